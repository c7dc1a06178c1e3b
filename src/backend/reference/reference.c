/* backend/reference/reference.c: the reference back end, gd_open("reference"): every op in the
 * plainest loop that is right. It is what the fast back ends are tested against and where to read
 * what an op computes; nobody is meant to wait for it. It has one thread, no scratch memory, no
 * vectors and no special cases for contiguous memory.
 *
 * Numerics. Elementwise rows compute their formula in the operands' own type, and each function in
 * it (exp, sin, …) in a wider type, rounded back. Sums and products of many terms run in long
 * double and are rounded once, at the end.
 *
 * Here: the device, and the tools of reference.h. The kernels: elementwise.c, memory.c, reduce.c,
 * product.c, loss.c. */
#include "backend/reference/reference.h"

#include "base/half.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* ---- walking ---- */

gd_walk gd_walk_over(const gd_layout *layout)
{
    gd_walk walk = { .rank = layout->rank, .more = gd_layout_count(layout) > 0 };
    memcpy(walk.shape, layout->shape, sizeof walk.shape);
    return walk;
}

void gd_walk_next(gd_walk *walk)
{
    walk->count++;
    for (int a = walk->rank - 1; a >= 0; a--) {
        if (++walk->index[a] < walk->shape[a])
            return;
        walk->index[a] = 0;
    }
    walk->more = false;
}

int64_t gd_walk_offset(const gd_walk *walk, const gd_layout *layout)
{
    int64_t offset = 0;
    const int64_t *index = walk->index + (walk->rank - layout->rank);
    for (int a = 0; a < layout->rank; a++)
        if (layout->shape[a] != 1)
            offset += index[a] * layout->stride[a];
    return offset;
}

int64_t gd_index_offset(const int64_t *index, const gd_layout *layout)
{
    int64_t offset = 0;
    for (int a = 0; a < layout->rank; a++)
        offset += index[a] * layout->stride[a];
    return offset;
}

/* ---- elements ---- */

real gd_ref_load(const gd_operand *operand, int64_t offset)
{
    switch (operand->layout->dtype) {
    case GD_F32:
        return ((const float *)operand->data)[offset];
    case GD_F64:
        return ((const double *)operand->data)[offset];
    case GD_F16:
        return gd_f16_to_f32(((const uint16_t *)operand->data)[offset]);
    case GD_BF16:
        return gd_bf16_to_f32(((const uint16_t *)operand->data)[offset]);
    case GD_U64:
        return (real)((const uint64_t *)operand->data)[offset];
    default:
        return gd_ref_load_integer(operand, offset);
    }
}

int64_t gd_ref_load_integer(const gd_operand *operand, int64_t offset)
{
    switch (operand->layout->dtype) {
    case GD_I8:
        return ((const int8_t *)operand->data)[offset];
    case GD_I16:
        return ((const int16_t *)operand->data)[offset];
    case GD_I32:
        return ((const int32_t *)operand->data)[offset];
    case GD_I64:
        return ((const int64_t *)operand->data)[offset];
    case GD_U16:
        return ((const uint16_t *)operand->data)[offset];
    case GD_U32:
        return ((const uint32_t *)operand->data)[offset];
    case GD_U64:
        return (int64_t)((const uint64_t *)operand->data)[offset];
    default: /* u8, bool */
        return ((const uint8_t *)operand->data)[offset];
    }
}

/* Rounded to odd: toward zero, with the last bit set if that lost anything. A float made so rounds
 * to the half dtypes as the number itself would, where rounding to nearest twice might not (Boldo
 * and Melquiond, 2008). */
static float to_odd(real value)
{
    float nearest = (float)value;
    if (nearest == value || isnan(value))
        return nearest;
    float toward_zero = fabsl(nearest) > fabsl(value) ? nextafterf(nearest, 0) : nearest;
    uint32_t bits;
    memcpy(&bits, &toward_zero, sizeof bits);
    bits |= 1;
    memcpy(&toward_zero, &bits, sizeof bits);
    return toward_zero;
}

/* Toward zero, within [least, most]; NaN gives 0. */
static int64_t to_integer(real value, int64_t least, int64_t most)
{
    if (isnan(value))
        return 0;
    if (value <= least)
        return least;
    if (value >= most)
        return most;
    return (int64_t)value;
}

void gd_ref_store(const gd_operand *operand, int64_t offset, real value)
{
    switch (operand->layout->dtype) {
    case GD_F32:
        ((float *)operand->data)[offset] = (float)value;
        break;
    case GD_F64:
        ((double *)operand->data)[offset] = (double)value;
        break;
    case GD_F16:
        ((uint16_t *)operand->data)[offset] = gd_f32_to_f16(to_odd(value));
        break;
    case GD_BF16:
        ((uint16_t *)operand->data)[offset] = gd_f32_to_bf16(to_odd(value));
        break;
    case GD_I32:
        ((int32_t *)operand->data)[offset] = (int32_t)to_integer(value, INT32_MIN, INT32_MAX);
        break;
    case GD_I64:
        ((int64_t *)operand->data)[offset] = to_integer(value, INT64_MIN, INT64_MAX);
        break;
    case GD_I8:
        ((int8_t *)operand->data)[offset] = (int8_t)to_integer(value, INT8_MIN, INT8_MAX);
        break;
    case GD_I16:
        ((int16_t *)operand->data)[offset] = (int16_t)to_integer(value, INT16_MIN, INT16_MAX);
        break;
    case GD_U8:
        ((uint8_t *)operand->data)[offset] = (uint8_t)to_integer(value, 0, UINT8_MAX);
        break;
    case GD_U16:
        ((uint16_t *)operand->data)[offset] = (uint16_t)to_integer(value, 0, UINT16_MAX);
        break;
    case GD_U32:
        ((uint32_t *)operand->data)[offset] = (uint32_t)to_integer(value, 0, UINT32_MAX);
        break;
    case GD_U64:
        ((uint64_t *)operand->data)[offset] = value >= 0x1p64L ? UINT64_MAX
                                              : value >= 0x1p63L
                                                  ? (uint64_t)value
                                                  : (uint64_t)to_integer(value, 0, INT64_MAX);
        break;
    default:
        ((uint8_t *)operand->data)[offset] = value != 0;
    }
}

void gd_ref_store_integer(const gd_operand *operand, int64_t offset, int64_t value)
{
    const gd_dtype dtype = operand->layout->dtype;
    const uint64_t bits = (uint64_t)value;
    if (!gd_dtype_is_integer(dtype)) { /* floats round it; bool asks whether it is 0 */
        gd_ref_store(operand, offset, value);
        return;
    }
    switch (gd_dtype_size(dtype)) {
    case 1:
        ((uint8_t *)operand->data)[offset] = (uint8_t)bits;
        break;
    case 2:
        ((uint16_t *)operand->data)[offset] = (uint16_t)bits;
        break;
    case 4:
        ((uint32_t *)operand->data)[offset] = (uint32_t)bits;
        break;
    default:
        ((uint64_t *)operand->data)[offset] = bits;
    }
}

/* ---- the device ---- */

static gd_device *reference_open(const gd_open_options *options, int index)
{
    (void)options, (void)index;
    gd_device *device = gd_alloc_zero(1, sizeof *device);
    if (!device)
        return NULL;
    device->backend = &gd_backend_reference;
    device->name = "reference";
    device->isa = "scalar";
    device->threads = 1;
    device->half_products = GD_DTYPE_SET(GD_BF16) | GD_DTYPE_SET(GD_F16);
    device->half_recurrent = true;
    device->host_memory = true;
    device->alignment = 64;
    gd_reference_register_elementwise(device->kernel);
    gd_reference_register_memory(device->kernel);
    gd_reference_register_reduce(device->kernel);
    gd_reference_register_product(device->kernel);
    gd_reference_register_loss(device->kernel);
    gd_reference_register_sort(device->kernel);
    gd_reference_register_ctc(device->kernel);
    gd_reference_register_norm(device->kernel);
    gd_reference_register_attention(device->kernel);
    gd_reference_register_recurrent(device->kernel);
    gd_reference_register_spatial(device->kernel);
    return device;
}

static void reference_close(gd_device *device)
{
    gd_free(device);
}

/* One thread does all the work, whatever is asked for; results do not depend on it. */
static gd_status reference_set_threads(gd_device *device, int threads)
{
    (void)device, (void)threads;
    return GD_OK;
}

static void *reference_memory_alloc(gd_device *device, size_t bytes)
{
    (void)device;
    return gd_alloc_aligned(bytes, 64);
}

static void reference_memory_free(gd_device *device, void *memory, size_t bytes)
{
    (void)device, (void)bytes;
    gd_free_aligned(memory);
}

static gd_status reference_copy(gd_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return GD_OK;
}

const gd_backend gd_backend_reference = {
    .name = "reference",
    .open = reference_open,
    .close = reference_close,
    .set_threads = reference_set_threads,
    .memory_alloc = reference_memory_alloc,
    .memory_free = reference_memory_free,
    .memory_write = reference_copy,
    .memory_read = reference_copy,
    .memory_copy = reference_copy,
    .memory_size = gd_host_memory_size,
};
