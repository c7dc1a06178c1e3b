/* gradus/dlpack.h: tensors' memory shared with other libraries (NumPy, PyTorch, JAX, …) by DLPack 1.1,
 * https://dmlc.github.io/dlpack. The structs are those of dlpack.h, which need not be there. */
#ifndef GRADUS_DLPACK_H
#define GRADUS_DLPACK_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DLManagedTensor DLManagedTensor;
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;

/* t's memory for another library, which calls the struct's deleter when it has done with it: on any
 * thread, and before gd_close. Until then there is a reference to t. With `copy` it is the memory of
 * a copy. Memory of a tensor that requires a gradient is handed over as read-only; who writes to
 * other memory says so with gd_tensor_modified. Memory of a device is DLPack's CUDA (2; an address) or
 * OpenCL (4; a cl_mem, and byte_offset), and all work on it that was told is done. NULL: GD_ERR_STATE
 * while tracing, GD_ERR_UNSUPPORTED on a device whose memory nobody else can use, GD_ERR_MEMORY, and
 * what went wrong on the device. */
GD_API DLManagedTensorVersioned *gd_dlpack_export(gd_tensor *t, bool copy);
/* The same for libraries of before DLPack 1.0, which know nothing of read-only memory: a tensor that
 * requires a gradient is GD_ERR_STATE without `copy`. */
GD_API DLManagedTensor *gd_dlpack_export_unversioned(gd_tensor *t, bool copy);

typedef enum gd_copying {
    GD_COPY_IF_NEEDED,
    GD_COPY_ALWAYS,
    GD_COPY_NEVER /* GD_ERR_UNSUPPORTED where one is needed */
} gd_copying;

/* A temporary over memory of another library, with any strides; a leaf. It is shared, and the struct's
 * deleter is called when the last tensor over it has gone, or copied, and the deleter called at once.
 * A copy is needed of memory that is read-only or not aligned to the element, and on a device that
 * cannot use the host's. Memory of the context's own device is shared, too, after a wait for all work
 * on the device; a copy of it calls the deleter when the scope ends. On an error the struct stays the
 * caller's: GD_ERR_UNSUPPORTED, of memory of another device, of another OpenCL context, and of another
 * major version; GD_ERR_DTYPE; GD_ERR_SHAPE. */
GD_API gd_tensor *gd_dlpack_import(gd_context *context, DLManagedTensorVersioned *managed,
                                   gd_copying copying);
GD_API gd_tensor *gd_dlpack_import_unversioned(gd_context *context, DLManagedTensor *managed,
                                               gd_copying copying);

/* For Python, where the structs come in capsules: a capsule's destructor runs while exceptions are
 * pending, so it must not be Python code. This one calls the deleter of a struct that nobody took
 * out of its capsule ("dltensor", "dltensor_versioned"), and does without Python.h: before its first
 * use it is told where PyCapsule_IsValid and PyCapsule_GetPointer are. */
GD_API void gd_dlpack_capsule_destructor(void *capsule);
GD_API void gd_dlpack_set_capsules(int (*is_valid)(void *capsule, const char *name),
                                   void *(*get_pointer)(void *capsule, const char *name));

#ifdef __cplusplus
}
#endif
#endif
