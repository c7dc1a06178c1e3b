/* graph/dlpack.c: tensors' memory shared with other libraries: gradus/dlpack.h. The structs are those
 * of DLPack 1.1's dlpack.h. */
#include "graph/context.h"
#include "graph/node.h"

#include <stdatomic.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/dlpack.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"

enum { ON_CPU = 1, ON_CUDA_HOST = 3, ON_ROCM_HOST = 11 }; /* memory the host can reach */
enum { OF_INT, OF_UINT, OF_FLOAT, OF_BFLOAT = 4, OF_BOOL = 6 };
enum { IS_READ_ONLY = 1, IS_COPIED = 2 };
enum { MAJOR = 1, MINOR = 1 };

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape, *strides; /* [ndim]; strides in elements, NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

struct DLManagedTensor {
    dl_tensor tensor;
    void *manager;
    void (*deleter)(DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(DLManagedTensorVersioned *self);
    uint64_t flags;
    dl_tensor tensor;
};

static const dl_dtype dtypes[GD_DTYPE_COUNT] = {
    [GD_F32] = { OF_FLOAT, 32, 1 }, [GD_F64] = { OF_FLOAT, 64, 1 },
    [GD_F16] = { OF_FLOAT, 16, 1 }, [GD_BF16] = { OF_BFLOAT, 16, 1 },
    [GD_I8] = { OF_INT, 8, 1 },     [GD_I16] = { OF_INT, 16, 1 },
    [GD_I32] = { OF_INT, 32, 1 },   [GD_I64] = { OF_INT, 64, 1 },
    [GD_U8] = { OF_UINT, 8, 1 },    [GD_U16] = { OF_UINT, 16, 1 },
    [GD_U32] = { OF_UINT, 32, 1 },  [GD_U64] = { OF_UINT, 64, 1 },
    [GD_BOOL] = { OF_BOOL, 8, 1 },
};

/* ---- export ---- */

/* What is handed over, with all that it points to. */
typedef struct dl_export {
    union {
        DLManagedTensor unversioned;
        DLManagedTensorVersioned versioned;
    } managed;
    gd_tensor *t; /* retained */
    gd_foreign_place place;
    int64_t shape[GD_MAX_RANK], strides[GD_MAX_RANK];
} dl_export;

static void export_end(dl_export *e)
{
    gd_release_later(e->t);
    gd_free(e);
}

static void end_versioned(DLManagedTensorVersioned *self)
{
    export_end(self->manager);
}

static void end_unversioned(DLManagedTensor *self)
{
    export_end(self->manager);
}

static gd_status check_export(gd_tensor *t, bool copy, bool may_be_read_only, const char *who)
{
    gd_status status = gd_check_value(t, who);
    if (status != GD_OK)
        return status;
    const gd_device *device = t->context->device;
    if (!device->host_memory && !device->backend->memory_name)
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "%s: the host cannot reach the memory of device %s; gd_to a context on "
                       "\"cpu\" first",
                       who, device->name);
    if (t->requires_grad && !copy && !may_be_read_only)
        return gd_fail(GD_ERR_STATE,
                       "%s: the tensor requires a gradient, which writing to its memory would "
                       "spoil; gd_detach it, or hand over a copy",
                       who);
    return GD_OK;
}

/* Where the elements are, once all work on them is done. */
static gd_status name_memory(dl_export *e)
{
    gd_context *context = e->t->context;
    gd_device *device = context->device;
    void *data = gd_layout_count(&e->t->layout) ? gd_node_data(e->t) : NULL;
    e->place = (gd_foreign_place){ .device_type = ON_CPU, .pointer = data };
    if (device->host_memory)
        return GD_OK;
    const gd_status status = gd_synchronize(context);
    return status == GD_OK ? device->backend->memory_name(device, data, &e->place) : status;
}

static dl_export *export_begin(gd_tensor *t, bool copy, bool may_be_read_only, const char *who)
{
    if (check_export(t, copy, may_be_read_only, who) != GD_OK)
        return NULL;
    dl_export *e = gd_alloc_zero(1, sizeof *e);
    gd_context *context = t->context;
    gd_tensor *shared = NULL;
    if (e && gd_scope_begin(context) == GD_OK) {
        shared = gd_retain(copy ? gd_copy(gd_detach(t)) : t);
        (void)gd_scope_end(context);
    }
    if (!shared) {
        gd_free(e);
        return NULL;
    }
    e->t = shared;
    if (name_memory(e) != GD_OK) {
        export_end(e);
        return NULL;
    }
    size_t bytes = sizeof(int64_t) * (size_t)shared->layout.rank;
    memcpy(e->shape, shared->layout.shape, bytes);
    memcpy(e->strides, shared->layout.stride, bytes);
    shared->storage->is_pinned = true; /* no plan may put anything else there */
    shared->storage->is_exposed |= !copy && !(may_be_read_only && t->requires_grad);
    return e;
}

static dl_tensor describe(dl_export *e)
{
    const gd_layout *layout = &e->t->layout;
    return (dl_tensor){ .data = e->place.pointer,
                        .device = { e->place.device_type, e->place.device_id },
                        .byte_offset = e->place.offset,
                        .ndim = layout->rank,
                        .dtype = dtypes[layout->dtype],
                        .shape = e->shape,
                        .strides = e->strides };
}

DLManagedTensorVersioned *gd_dlpack_export(gd_tensor *t, bool copy)
{
    dl_export *e = export_begin(t, copy, true, "gd_dlpack_export");
    if (!e)
        return NULL;
    uint64_t flags = copy ? IS_COPIED : t->requires_grad ? IS_READ_ONLY : 0;
    e->managed.versioned = (DLManagedTensorVersioned){ .version = { MAJOR, MINOR },
                                                       .manager = e,
                                                       .deleter = end_versioned,
                                                       .flags = flags,
                                                       .tensor = describe(e) };
    return &e->managed.versioned;
}

DLManagedTensor *gd_dlpack_export_unversioned(gd_tensor *t, bool copy)
{
    dl_export *e = export_begin(t, copy, false, "gd_dlpack_export_unversioned");
    if (!e)
        return NULL;
    e->managed.unversioned =
        (DLManagedTensor){ .tensor = describe(e), .manager = e, .deleter = end_unversioned };
    return &e->managed.unversioned;
}

/* ---- import ---- */

/* What is to become a tensor, and how it is let go of. */
typedef struct dl_import {
    const char *who;
    const dl_tensor *from;
    bool read_only;
    void (*release)(void *managed);
    void *managed;
    gd_layout
        layout;  /* its offset is the elements that lie before element 0, under negative strides */
    size_t span; /* elements from the first to the last in memory */
} dl_import;

static void release_versioned(void *managed)
{
    DLManagedTensorVersioned *m = managed;
    if (m->deleter)
        m->deleter(m);
}

static void release_unversioned(void *managed)
{
    DLManagedTensor *m = managed;
    if (m->deleter)
        m->deleter(m);
}

static gd_status find_dtype(const dl_import *in, gd_dtype *dtype)
{
    dl_dtype from = in->from->dtype;
    for (int d = 0; d < GD_DTYPE_COUNT; d++)
        if (dtypes[d].code == from.code && dtypes[d].bits == from.bits && from.lanes == 1) {
            *dtype = (gd_dtype)d;
            return GD_OK;
        }
    return gd_fail(GD_ERR_DTYPE, "%s: elements of code %d, %d bits and %d lanes are no dtype here",
                   in->who, from.code, from.bits, from.lanes);
}

/* Strides as given, and where the first element in memory lies. */
static gd_status place_strides(dl_import *in)
{
    /* Of an axis; all of them, in bytes, are numbers of 64 bits then. */
    const int64_t most = INT64_MAX / (GD_MAX_RANK * 8);
    const int64_t *strides = in->from->strides;
    int64_t before = 0, after = 0;
    for (int i = 0; i < in->layout.rank; i++) {
        const int64_t steps = in->layout.shape[i] - 1, farthest = most / (steps + !steps);
        if (strides && steps) /* of one element none is taken */
            in->layout.stride[i] = strides[i];
        const int64_t stride = in->layout.stride[i];
        if (stride > farthest || stride < -farthest)
            return gd_fail(GD_ERR_SHAPE, "%s: strides of %lld reach beyond any memory", in->who,
                           (long long)stride);
        const int64_t reach = steps * stride;
        before -= reach < 0 ? reach : 0;
        after += reach > 0 ? reach : 0;
    }
    in->layout.offset = before;
    in->span = (size_t)(before + after) + 1;
    return GD_OK;
}

static bool is_of_host(const dl_tensor *from)
{
    const int32_t device = from->device.type;
    return device == ON_CPU || device == ON_CUDA_HOST || device == ON_ROCM_HOST;
}

static gd_status read_layout(const gd_context *context, dl_import *in)
{
    const dl_tensor *from = in->from;
    if (!is_of_host(from) && !context->device->backend->memory_adopt)
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "%s: the memory is that of a device of DLPack's type %d, not the host's",
                       in->who, (int)from->device.type);
    if (from->ndim < 0 || from->ndim > GD_MAX_RANK)
        return gd_fail(GD_ERR_SHAPE, "%s: rank %d; a tensor has at most %d axes", in->who,
                       (int)from->ndim, GD_MAX_RANK);
    gd_dtype dtype = GD_F32;
    gd_status status = find_dtype(in, &dtype);
    if (status != GD_OK)
        return status;
    if (from->ndim > 0 && !from->shape)
        return gd_fail(GD_ERR_INVALID, "%s: the shape is NULL", in->who);
    gd_shape shape = { .rank = from->ndim };
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = from->shape[i];
    status = gd_layout_init(&in->layout, shape, dtype, in->who);
    if (status == GD_OK && !from->data && gd_layout_count(&in->layout))
        status = gd_fail(GD_ERR_INVALID, "%s: the memory is NULL", in->who);
    if (status == GD_OK && gd_layout_count(&in->layout))
        status = place_strides(in);
    return status;
}

static char *element_zero(const dl_import *in)
{
    return (char *)in->from->data + in->from->byte_offset;
}

/* Why the memory cannot be shared; NULL: it can. */
static const char *obstacle(const gd_context *context, const dl_import *in)
{
    if (!context->device->host_memory && is_of_host(in->from))
        return "the device cannot use memory of the host";
    if (in->read_only)
        return "the memory is read-only";
    if (gd_layout_count(&in->layout) &&
        (uintptr_t)element_zero(in) % gd_dtype_size(in->layout.dtype))
        return "the memory is not aligned to its elements";
    return NULL;
}

static gd_tensor *share(gd_context *context, const dl_import *in)
{
    size_t size = gd_dtype_size(in->layout.dtype);
    char *data = element_zero(in) - (size_t)in->layout.offset * size;
    gd_storage *storage = gd_storage_wrap(context, data, in->span * size, NULL, NULL);
    gd_tensor *t = storage ? gd_leaf_new(context, &in->layout, storage) : NULL;
    if (t) { /* on failure it stays the caller's */
        storage->release = in->release;
        storage->user = in->managed;
    }
    return t;
}

/* ---- memory of the device itself ---- */

typedef struct dl_adopted {
    gd_device *device;
    void *address;
    void (*release)(void *managed); /* NULL: it stays the caller's */
    void *managed;
} dl_adopted;

static void release_adopted(void *user)
{
    dl_adopted *a = user;
    a->device->backend->memory_disown(a->device, a->address);
    if (a->release)
        a->release(a->managed);
    gd_free(a);
}

/* A leaf over the memory, which stays the caller's until *adopted has its release. */
static gd_tensor *adopt(gd_context *context, const dl_import *in, dl_adopted **adopted)
{
    gd_device *device = context->device;
    const size_t size = gd_dtype_size(in->layout.dtype);
    const uint64_t before = (uint64_t)in->layout.offset * size;
    gd_foreign_place place = { in->from->device.type, in->from->device.id, in->from->data,
                               in->from->byte_offset };
    if (place.offset >= before)
        place.offset -= before;
    else /* the pointer is to element 0, and is an address */
        place.pointer = (char *)place.pointer - before;
    dl_adopted *a = gd_alloc_zero(1, sizeof *a);
    if (!a)
        return NULL;
    a->device = device;
    a->address = device->backend->memory_adopt(device, &place, in->span * size);
    if (!a->address) {
        gd_free(a);
        return NULL;
    }
    gd_storage *storage = gd_storage_wrap(context, a->address, in->span * size, release_adopted, a);
    if (!storage) {
        release_adopted(a);
        return NULL;
    }
    *adopted = a;
    return gd_leaf_new(context, &in->layout, storage);
}

static gd_tensor *take_of_device(gd_context *context, const dl_import *in, bool copy)
{
    dl_adopted *adopted = NULL;
    gd_tensor *t = adopt(context, in, &adopted);
    if (!t)
        return NULL;
    gd_tensor *result = copy ? gd_copy(t) : t;
    if (result) {
        adopted->release = in->release;
        adopted->managed = in->managed;
    }
    return result;
}

/* The elements in row-major order. */
static void gather(const dl_import *in, char *to)
{
    const gd_layout *layout = &in->layout;
    size_t size = gd_dtype_size(layout->dtype);
    int64_t index[GD_MAX_RANK] = { 0 }, at = 0;
    for (int64_t n = gd_layout_count(layout); n-- > 0; to += size) {
        memcpy(to, element_zero(in) + at * (int64_t)size, size);
        for (int axis = layout->rank; axis-- > 0;) {
            at += layout->stride[axis];
            if (++index[axis] < layout->shape[axis])
                break;
            at -= layout->shape[axis] * layout->stride[axis];
            index[axis] = 0;
        }
    }
}

static gd_tensor *take_copy(gd_context *context, const dl_import *in)
{
    size_t bytes = gd_layout_bytes(&in->layout);
    char *values = gd_alloc(bytes + 1);
    gd_tensor *t = NULL;
    if (values) {
        gather(in, values);
        t = gd_from_host(context, gd_layout_shape(&in->layout), in->layout.dtype, values);
    }
    gd_free(values);
    if (t)
        in->release(in->managed);
    return t;
}

static gd_tensor *take(gd_context *context, dl_import *in, gd_copying copying)
{
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "%s: the context is NULL", in->who);
    if (copying != GD_COPY_IF_NEEDED && copying != GD_COPY_ALWAYS && copying != GD_COPY_NEVER)
        return gd_fail_null(GD_ERR_INVALID, "%s: %d is no gd_copying", in->who, (int)copying);
    if (context->trace)
        return (gd_tensor *)(gd_fail_traced(in->who), NULL);
    if (read_layout(context, in) != GD_OK)
        return NULL;
    const char *why = obstacle(context, in);
    if (why && copying == GD_COPY_NEVER)
        return gd_fail_null(GD_ERR_UNSUPPORTED, "%s: a copy is needed: %s", in->who, why);
    bool is_empty = gd_layout_count(&in->layout) == 0;
    if (!is_empty && !is_of_host(in->from))
        return take_of_device(context, in, why || copying == GD_COPY_ALWAYS);
    return why || is_empty || copying == GD_COPY_ALWAYS ? take_copy(context, in)
                                                        : share(context, in);
}

gd_tensor *gd_dlpack_import(gd_context *context, DLManagedTensorVersioned *managed,
                            gd_copying copying)
{
    const char *who = "gd_dlpack_import";
    if (!managed)
        return gd_fail_null(GD_ERR_INVALID, "%s: the struct is NULL", who);
    if (managed->version.major != MAJOR)
        return gd_fail_null(GD_ERR_UNSUPPORTED, "%s: DLPack %u.%u; this library knows %d.%d", who,
                            (unsigned)managed->version.major, (unsigned)managed->version.minor,
                            MAJOR, MINOR);
    dl_import in = { .who = who,
                     .from = &managed->tensor,
                     .read_only = managed->flags & IS_READ_ONLY,
                     .release = release_versioned,
                     .managed = managed };
    return take(context, &in, copying);
}

gd_tensor *gd_dlpack_import_unversioned(gd_context *context, DLManagedTensor *managed,
                                        gd_copying copying)
{
    const char *who = "gd_dlpack_import_unversioned";
    if (!managed)
        return gd_fail_null(GD_ERR_INVALID, "%s: the struct is NULL", who);
    dl_import in = {
        .who = who, .from = &managed->tensor, .release = release_unversioned, .managed = managed
    };
    return take(context, &in, copying);
}

/* ---- Python's capsules ---- */

static _Atomic(int (*)(void *, const char *)) capsule_is_valid;
static _Atomic(void *(*)(void *, const char *)) capsule_pointer;

void gd_dlpack_set_capsules(int (*is_valid)(void *capsule, const char *name),
                            void *(*get_pointer)(void *capsule, const char *name))
{
    atomic_store(&capsule_is_valid, is_valid);
    atomic_store(&capsule_pointer, get_pointer);
}

void gd_dlpack_capsule_destructor(void *capsule)
{
    static const char versioned[] = "dltensor_versioned", unversioned[] = "dltensor";
    int (*is_valid)(void *, const char *) = atomic_load(&capsule_is_valid);
    void *(*get_pointer)(void *, const char *) = atomic_load(&capsule_pointer);
    if (!is_valid || !get_pointer)
        return;
    if (is_valid(capsule, versioned))
        release_versioned(get_pointer(capsule, versioned));
    else if (is_valid(capsule, unversioned))
        release_unversioned(get_pointer(capsule, unversioned));
}
