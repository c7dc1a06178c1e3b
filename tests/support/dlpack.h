/* tests/support/dlpack.h: DLPack's structs, written down once more from dlpack.h 1.1, and memory of
 * devices shared by them. */
#ifndef GD_TESTS_SUPPORT_DLPACK_H
#define GD_TESTS_SUPPORT_DLPACK_H

#include <gradus/dlpack.h>

#include <stdint.h>

typedef struct {
    void *data;
    struct {
        int32_t device_type, device_id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
};

/* A device whose memory is not the host's hands it out as DLPack's device `type`, and takes it back;
 * every context on it shares the memory with every other where `is_shared`. */
void check_dlpack_of_device(const char *device, int32_t type, bool is_shared);

#endif
