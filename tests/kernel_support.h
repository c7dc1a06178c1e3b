/* tests/kernel_support.h: operands for calling kernels by hand: guarded memory, layouts of
 * every kind, values that include the awkward ones, and conversions said a second time without the
 * library. Start at struct operand. */
#ifndef GD_TESTS_KERNEL_SUPPORT_H
#define GD_TESTS_KERNEL_SUPPORT_H

#include "backend/backend.h"
#include "backend/cpu/elementwise.h"
#include "ops/attrs.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t random_state = 20240607;

static inline uint64_t random_bits(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t bound)
{
    return random_bits() % bound;
}

/* ---- elements. long double holds every value of every dtype. ---- */

static inline long double half_value(gd_dtype dtype, uint16_t bits)
{
    int fraction_bits = dtype == GD_F16 ? 10 : 7, exponent_most = dtype == GD_F16 ? 31 : 255;
    int bias = exponent_most / 2;
    int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    long double value;
    if (exponent == exponent_most)
        value = fraction ? (long double)NAN : (long double)INFINITY;
    else if (exponent == 0)
        value = ldexpl(fraction, 1 - bias - fraction_bits);
    else
        value = ldexpl(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

static inline long double get(gd_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case GD_F32:
        return ((const float *)data)[i];
    case GD_F64:
        return ((const double *)data)[i];
    case GD_I32:
        return ((const int32_t *)data)[i];
    case GD_I64:
        return ((const int64_t *)data)[i];
    case GD_U8:
    case GD_BOOL:
        return ((const uint8_t *)data)[i];
    case GD_I8:
        return ((const int8_t *)data)[i];
    case GD_I16:
        return ((const int16_t *)data)[i];
    case GD_U16:
        return ((const uint16_t *)data)[i];
    case GD_U32:
        return ((const uint32_t *)data)[i];
    case GD_U64:
        return ((const uint64_t *)data)[i];
    default:
        return half_value(dtype, ((const uint16_t *)data)[i]);
    }
}

/* Equal, or both NaN; zeros of the same sign unless any_zero. */
static inline bool is_same(long double a, long double b, bool any_zero)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b && (a != 0 || any_zero || signbit(a) == signbit(b));
}

/* Same bits, but that one NaN is as good as another. */
static inline bool same_elements(gd_dtype dtype, const void *a, const void *b, int64_t count)
{
    size_t size = gd_dtype_size(dtype);
    if (memcmp(a, b, (size_t)count * size) == 0)
        return true;
    for (int64_t i = 0; i < count; i++)
        if (memcmp((const char *)a + (size_t)i * size, (const char *)b + (size_t)i * size, size) !=
                0 &&
            !(isnan(get(dtype, a, i)) && isnan(get(dtype, b, i))))
            return false;
    return true;
}

static inline long double unit_in_last_place(gd_dtype dtype, long double value)
{
    int digits = dtype == GD_F32 ? FLT_MANT_DIG : DBL_MANT_DIG,
        least = dtype == GD_F32 ? FLT_MIN_EXP : DBL_MIN_EXP;
    int exponent;
    frexpl(value, &exponent);
    if (value == 0 || exponent < least)
        exponent = least;
    return ldexpl(1, exponent - digits);
}

static inline long double wrap_integer(gd_dtype dtype, int64_t value)
{
    switch (dtype) {
    case GD_BOOL:
        return value != 0;
    case GD_U8:
        return value & 255;
    case GD_I8:
        return ((value & 255) ^ 128) - 128;
    case GD_U16:
        return value & 0xffff;
    case GD_I16:
        return ((value & 0xffff) ^ 0x8000) - 0x8000;
    case GD_U32:
        return value & 0xffffffff;
    case GD_U64:
        return (uint64_t)value;
    case GD_I32:
        return ((value & 0xffffffff) ^ 0x80000000) - 0x80000000;
    default:
        return value;
    }
}

/* The bits of a whole number of any integer dtype. */
static inline int64_t whole_bits(long double value)
{
    return value >= 0x1p63L ? (int64_t)(uint64_t)value : (int64_t)value;
}

/* What is left of an exact number in a dtype that holds it, or in u8, which wraps. */
static inline long double wrap_to(gd_dtype dtype, long double value)
{
    return gd_dtype_is_float(dtype) ? value : wrap_integer(dtype, whole_bits(value));
}

/* The half nearest to a value, ties to even, by search among all of them. */
static inline long double round_to_half(gd_dtype dtype, long double value)
{
    if (isnan(value))
        return value;
    uint16_t infinity = dtype == GD_F16 ? 0x7c00 : 0x7f80;
    long double magnitude = fabsl(value);
    uint16_t low = 0, high = infinity; /* low <= magnitude < high */
    if (isinf(magnitude))
        low = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(dtype, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    if (low < infinity) { /* infinity stands where the next number would be */
        long double a = half_value(dtype, low);
        long double b = high < infinity ? half_value(dtype, high)
                                        : 2 * a - half_value(dtype, (uint16_t)(low - 1));
        long double to_a = magnitude - a, to_b = b - magnitude;
        if (to_b < to_a || (to_b == to_a && low % 2 == 1))
            low = high;
    }
    return copysignl(half_value(dtype, low), value);
}

/* What cast gives. */
static inline long double convert(gd_dtype to, long double value, bool from_float)
{
    static const long double least[GD_DTYPE_COUNT] = {
        [GD_I8] = -128, [GD_I16] = -0x1p15L, [GD_I32] = -0x1p31L, [GD_I64] = -0x1p63L
    };
    static const long double most[GD_DTYPE_COUNT] = {
        [GD_U8] = 255,          [GD_I32] = 0x1p31L - 1, [GD_I64] = 0x1p63L - 1,
        [GD_I8] = 127,          [GD_I16] = 0x1p15L - 1, [GD_U16] = 0x1p16L - 1,
        [GD_U32] = 0x1p32L - 1, [GD_U64] = 0x1p64L - 1
    };
    switch (to) {
    case GD_F32:
        return (float)value;
    case GD_F64:
        return (double)value;
    case GD_F16:
    case GD_BF16:
        return round_to_half(to, value);
    case GD_BOOL:
        return isnan(value) || value != 0;
    default:
        if (!from_float)
            return wrap_integer(to, whole_bits(value));
        if (isnan(value))
            return 0;
        return truncl(fmaxl(least[to], fminl(most[to], value)));
    }
}

/* ---- values ---- */

static inline void put(gd_dtype dtype, void *data, int64_t i, long double value)
{
    switch (dtype) {
    case GD_F32:
        ((float *)data)[i] = (float)value;
        break;
    case GD_F64:
        ((double *)data)[i] = (double)value;
        break;
    case GD_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case GD_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case GD_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case GD_I16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    case GD_U16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        break;
    case GD_U32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    case GD_U64:
        ((uint64_t *)data)[i] = (uint64_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

/* Any value a float may have: special, near 1, of any magnitude, whole. */
static inline long double random_float(gd_dtype dtype)
{
    static const long double special[] = { 0,       1,       2,           0.5L,  INFINITY, NAN,
                                           FLT_MAX, FLT_MIN, FLT_MIN / 8, 88.5L, 3,        1.5L };
    long double sign = random_below(2) ? 1 : -1;
    long double unit = (long double)(random_bits() >> 11) * 0x1p-53L;
    switch (random_below(6)) {
    case 0:
        return sign * special[random_below(sizeof special / sizeof *special)];
    case 1:
        return sign * (1 + unit) *
               ldexpl(1, (int)random_below(dtype == GD_F64 ? 2000 : 250) -
                             (dtype == GD_F64 ? 1000 : 125));
    case 2:
        return sign * (long double)random_below(10);
    case 3:
        return sign * unit;
    default:
        return sign * unit * ldexpl(1, (int)random_below(10));
    }
}

static inline void put_random(gd_dtype dtype, void *data, int64_t i)
{
    static const int64_t edges[] = { 0,         1,         -1,        2,   INT32_MAX,
                                     INT32_MIN, INT64_MAX, INT64_MIN, 255, 127 };
    int64_t bits = (int64_t)random_bits() >> random_below(64);
    int64_t whole = random_below(4) ? bits : edges[random_below(sizeof edges / sizeof *edges)];
    switch (dtype) {
    case GD_F32:
    case GD_F64:
        put(dtype, data, i, random_float(dtype));
        break;
    case GD_I8:
    case GD_I16:
    case GD_I32:
    case GD_I64:
    case GD_U8:
    case GD_U16:
    case GD_U32:
    case GD_U64:
    case GD_BOOL:
        put(dtype, data, i, wrap_integer(dtype, dtype == GD_BOOL ? whole & 1 : whole));
        break;
    default:
        ((uint16_t *)data)[i] = (uint16_t)random_bits();
        break;
    }
}

/* ---- operands ---- */

typedef struct operand {
    gd_layout layout;
    void *data; /* element 0 */
    unsigned char *memory;
    size_t bytes; /* between the guards */
} operand;

#define GUARD_BYTES 128
#define GUARD_VALUE 0xa5

static inline void operand_allocate(operand *x, int64_t elements)
{
    x->bytes = (size_t)elements * gd_dtype_size(x->layout.dtype);
    x->memory = malloc(x->bytes + 2 * GUARD_BYTES);
    assert_non_null(x->memory);
    memset(x->memory, GUARD_VALUE, x->bytes + 2 * GUARD_BYTES);
    x->data = x->memory + GUARD_BYTES;
}

static inline void check_guards(const operand *x)
{
    bool whole = true;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        whole &=
            x->memory[i] == GUARD_VALUE && x->memory[GUARD_BYTES + x->bytes + i] == GUARD_VALUE;
    assert_true(whole);
}

static inline void operand_free(operand *x)
{
    check_guards(x);
    free(x->memory);
}

static inline operand operand_dense(gd_dtype dtype, int rank, const int64_t *shape)
{
    operand x = { .layout = { .rank = rank, .dtype = dtype } };
    int64_t count = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        x.layout.shape[axis] = shape[axis];
        x.layout.stride[axis] = count;
        count *= shape[axis];
    }
    operand_allocate(&x, count);
    return x;
}

/* All of the memory, so every element whatever the layout. */
static inline void fill(const operand *x)
{
    void *data = x->memory + GUARD_BYTES;
    int64_t count = (int64_t)(x->bytes / gd_dtype_size(x->layout.dtype));
    for (int64_t i = 0; i < count; i++)
        put_random(x->layout.dtype, data, i);
}

/* x and y, alike but for y's own values; now and then equal. */
static inline void fill_pairs(const operand *x, const operand *y)
{
    size_t size = gd_dtype_size(x->layout.dtype);
    fill(x), fill(y);
    for (size_t i = 0; i < x->bytes; i += 7 * size)
        memcpy((char *)y->data + i, (char *)x->data + i, size);
}

/* Values near where a conversion turns: ties, ends of ranges. */
static inline void fill_for_cast(const operand *x)
{
    static const long double turns[] = { 0x1p31L,     0x1p63L,     255,         256,
                                         65504,       65520,       0x1p-24L,    0x1p-25L,
                                         2049,        0x1p24L + 1, 257,         16385.5L,
                                         0x1.01p100L, 0x1p-133L,   0x1.fep127L, 0x1.ffp127L };
    gd_dtype dtype = x->layout.dtype;
    fill(x);
    int64_t count = (int64_t)(x->bytes / gd_dtype_size(dtype));
    for (int64_t i = 0; i < count / 2 && (dtype == GD_F32 || dtype == GD_F64); i++) {
        long double value = turns[random_below(sizeof turns / sizeof *turns)];
        long double off = ((long double)random_below(5) - 2) * unit_in_last_place(dtype, value);
        put(dtype, x->data, i, (random_below(2) ? 1 : -1) * (value + off));
    }
    for (int64_t i = 0; i < count / 2 && dtype == GD_I64;
         i++) /* ties of an 8-bit fraction, and one off them */
        ((int64_t *)x->data)[i] =
            (int64_t)(((0x101u + 2 * random_below(128)) << random_below(55)) + random_below(3) - 1);
}

/* An operand laid out anyhow: with steps, backwards, its axes in any order in memory. Of the first
 * `stretchable` axes some may be missing or of size 1, so that it broadcasts to `shape`. */
static inline operand operand_stretched_anyhow(gd_dtype dtype, int rank, const int64_t *shape,
                                               int stretchable)
{
    operand x = { .layout = { .rank = rank, .dtype = dtype } };
    int missing = random_below(4) == 0 ? (int)random_below((uint64_t)stretchable + 1) : 0;
    x.layout.rank = rank - missing;
    int order[GD_MAX_RANK];
    bool shuffle = random_below(2) == 0;
    for (int axis = 0; axis < x.layout.rank; axis++) {
        int64_t size = shape[axis + missing];
        bool is_stretched = axis + missing < stretchable && random_below(4) == 0 && size != 0;
        x.layout.shape[axis] = is_stretched ? 1 : size;
        int at = axis;
        if (shuffle) {
            at = (int)random_below((uint64_t)axis + 1);
            order[axis] = order[at];
        }
        order[at] = axis;
    }
    int64_t count = 1, first = 0;
    for (int i = x.layout.rank - 1; i >= 0; i--) {
        int axis = order[i];
        int64_t size = x.layout.shape[axis];
        int64_t step = random_below(4) == 0 ? 2 : 1;
        bool backwards = random_below(6) == 0;
        x.layout.stride[axis] = backwards ? -count * step : count * step;
        if (backwards && size > 0)
            first += (size - 1) * count * step;
        count *= size * step;
        if (size == 1 && random_below(2))
            x.layout.stride[axis] = 1234567; /* of an axis of size 1: means nothing */
    }
    operand_allocate(&x, count);
    fill(&x);
    x.data = (char *)x.data + (size_t)first * gd_dtype_size(dtype);
    return x;
}

/* For elementwise ops, where any axis may be stretched. */
static inline operand operand_anyhow(gd_dtype dtype, int rank, const int64_t *shape)
{
    return operand_stretched_anyhow(dtype, rank, shape, rank);
}

/* The layout of a tensor broadcast to `shape`: stride 0 where it is stretched. */
static inline const gd_layout *stretched(const gd_layout *in, int rank, const int64_t *shape)
{
    static gd_layout out;
    memset(&out, 0, sizeof out);
    out.rank = rank;
    out.dtype = in->dtype;
    for (int axis = 0; axis < rank; axis++) {
        int own = axis - (rank - in->rank);
        out.shape[axis] = shape[axis];
        out.stride[axis] =
            own < 0 || (in->shape[own] == 1 && shape[axis] != 1) ? 0 : in->stride[own];
    }
    return &out;
}

/* Broadcast to `shape` and dense. */
static inline operand dense_copy(const operand *x, int rank, const int64_t *shape)
{
    operand out = operand_dense(x->layout.dtype, rank, shape);
    gd_layout view = *stretched(&x->layout, rank, shape);
    size_t size = gd_dtype_size(x->layout.dtype);
    int64_t index[GD_MAX_RANK] = { 0 };
    int64_t count = gd_layout_count(&out.layout);
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0;
        for (int axis = 0; axis < rank; axis++)
            offset += shape[axis] == 1 ? 0 : index[axis] * view.stride[axis];
        memcpy((char *)out.data + (size_t)i * size, (const char *)x->data + offset * (int64_t)size,
               size);
        for (int axis = rank - 1; axis >= 0 && ++index[axis] == shape[axis]; axis--)
            index[axis] = 0;
    }
    return out;
}

/* ---- calls ---- */

static const char *const row_names[] = {
#define GD_UNARY(name, ...)   #name,
#define GD_BINARY(name, ...)  #name,
#define GD_TERNARY(name, ...) #name,
#include "ops/elementwise.def"
};

static inline const char *row_name(int op)
{
    return op < GD_OP_ELEMENTWISE_COUNT ? row_names[op] : "op";
}

/* Where the further results of a fused group go, for try_run; each test sets them. */
static operand *more_results;

/* Call the device's kernel: as eager mode does, and, the same call again, prepared, which must give
 * the same bits. */
static inline gd_status try_run(gd_device *device, int id, const void *attr,
                                const operand *const *in, int n, const operand *out)
{
    gd_op op = { .id = (gd_op_id)id, .name = row_name(id), .arity = n };
    gd_operand operands[GD_FUSED_MAX_INPUTS];
    for (int k = 0; k < n; k++) {
        operands[k] = (gd_operand){ in[k]->data, &in[k]->layout };
    }
    gd_operand more[GD_FUSED_MAX_EXTRA];
    for (int r = 0; id == GD_OP_fused && r < ((const gd_fused_attr *)attr)->n_extra; r++)
        more[r] = (gd_operand){ more_results[r].data, &more_results[r].layout };
    gd_cast_attr cast = { out->layout.dtype };
    gd_kernel_call call = { .device = device,
                            .op = &op,
                            .attr = id == GD_OP_cast ? &cast : attr,
                            .n = n,
                            .in = operands,
                            .out = { out->data, &out->layout },
                            .extra = more };
    size_t bytes = gd_layout_bytes(&out->layout);
    void *before = malloc(bytes + 1), *eager = malloc(bytes + 1),
         *program = malloc(gd_ew_prepare_bytes());
    assert_true(before && eager && program);
    memcpy(before, out->data, bytes); /* it may be an input */
    gd_status status = device->kernel[id](&call);
    if (status == GD_OK) {
        memcpy(eager, out->data, bytes);
        memcpy(out->data, before, bytes);
        assert_int_equal(gd_ew_prepare(&call, program), GD_OK);
        call.prepared = program;
        status = device->kernel[id](&call);
        assert_true(
            same_elements(out->layout.dtype, out->data, eager, gd_layout_count(&out->layout)));
    }
    free(before);
    free(eager);
    free(program);
    return status;
}

static inline void run(gd_device *device, int id, const void *attr, const operand *const *in, int n,
                       const operand *out)
{
    gd_status status = try_run(device, id, attr, in, n, out);
    if (status != GD_OK)
        fail_msg("%s: %s", row_name(id), gd_error_message());
    check_guards(out);
}

static inline void run_row(gd_device *device, int op, const operand *const *in, int n,
                           const operand *out)
{
    run(device, op, NULL, in, n, out);
}

#endif
