/* tests/device_support.h: calling CPU kernels by hand, for test_reduce_kernels.c,
 * test_softmax_kernels.c and test_memory_kernels.c: devices of every instruction set this machine
 * has, operands in memory of many layouts, results between guard bytes. Everything is static. Start
 * at run_kernel().
 */
#ifndef GD_TESTS_DEVICE_SUPPORT_H
#define GD_TESTS_DEVICE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "ops/attrs.h"
#include "support/effort.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED_OK __attribute__((unused))

/* ---- devices ---- */

typedef struct test_device {
    gd_cpu_device cpu;
    void *scratch_block; /* as malloc gave it */
} test_device;

#define MAX_TEST_THREADS 8
static const int test_thread_counts[] = { 1, 2, 8 };

typedef struct isa_entry {
    gd_isa isa;
    void (*reduce)(gd_kernel_fn *kernel);
    void (*softmax)(gd_kernel_fn *kernel);
} isa_entry;

#define ISA_ENTRY(name, isa)                                               \
    {                                                                      \
        isa, gd_cpu_register_reduce_##name, gd_cpu_register_softmax_##name \
    }
static const isa_entry isa_entries[] = {
    ISA_ENTRY(baseline, GD_ISA_BASELINE),
#ifdef GD_HAVE_AVX2
    ISA_ENTRY(avx2, GD_ISA_AVX2),
#endif
#ifdef GD_HAVE_AVX512
    ISA_ENTRY(avx512, GD_ISA_AVX512),
#endif
#ifdef GD_HAVE_NEON
    ISA_ENTRY(neon, GD_ISA_NEON),
#endif
};

/* Devices of the instruction sets that are tried, baseline first. */
static test_device test_devices[GD_ISA_COUNT];
static int test_device_count;

static UNUSED_OK int open_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof isa_entries / sizeof *isa_entries; i++) {
        if (!test_tries_isa(isa_entries[i].isa))
            continue;
        test_device *d = &test_devices[test_device_count++];
        d->cpu.isa = isa_entries[i].isa;
        d->cpu.base.isa = gd_isa_name(d->cpu.isa);
        d->cpu.base.name = "cpu";
        d->cpu.base.threads = 1;
        d->cpu.base.host_memory = true;
        const size_t bytes = gd_scratch_bytes(GD_CPU_SCRATCH, GD_CPU_SCRATCH_BLOCKS);
        d->scratch_block = malloc(MAX_TEST_THREADS * bytes + GD_SCRATCH_ALIGN);
        char *memory = (char *)d->scratch_block + (64 - (uintptr_t)d->scratch_block % 64) % 64;
        d->cpu.workspace = (gd_workspace){ memory, bytes, MAX_TEST_THREADS };
        isa_entries[i].reduce(d->cpu.base.kernel);
        isa_entries[i].softmax(d->cpu.base.kernel);
        gd_cpu_register_memory(d->cpu.base.kernel);
    }
    return 0;
}

static UNUSED_OK int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < test_device_count; i++)
        free(test_devices[i].scratch_block);
    return 0;
}

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t test_random_state = 20261121;

static UNUSED_OK uint64_t test_random(void)
{
    uint64_t z = test_random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in (-1, 1). */
static UNUSED_OK double test_unit(void)
{
    return (double)(test_random() >> 11) * 0x1p-52 - 1.0;
}

/* ---- elements ---- */

/* long double holds every value of these dtypes. */
static UNUSED_OK long double get_number(gd_dtype dtype, const void *data, int64_t i)
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
    case GD_U32:
        return ((const uint32_t *)data)[i];
    case GD_U64:
        return (long double)((const uint64_t *)data)[i];
    default:                                /* u16 and */
        return ((const uint16_t *)data)[i]; /* halves: their bits */
    }
}

static UNUSED_OK void put_number(gd_dtype dtype, void *data, int64_t i, long double v)
{
    switch (dtype) {
    case GD_F32:
        ((float *)data)[i] = (float)v;
        break;
    case GD_F64:
        ((double *)data)[i] = (double)v;
        break;
    case GD_I32:
        ((int32_t *)data)[i] = (int32_t)v;
        break;
    case GD_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        break;
    case GD_U8:
    case GD_BOOL:
        ((uint8_t *)data)[i] = (uint8_t)v;
        break;
    case GD_I8:
        ((int8_t *)data)[i] = (int8_t)v;
        break;
    case GD_I16:
        ((int16_t *)data)[i] = (int16_t)v;
        break;
    case GD_U32:
        ((uint32_t *)data)[i] = (uint32_t)v;
        break;
    case GD_U64:
        ((uint64_t *)data)[i] = (uint64_t)v;
        break;
    default:
        ((uint16_t *)data)[i] = (uint16_t)v;
    }
}

static UNUSED_OK bool is_float(gd_dtype dtype)
{
    return dtype == GD_F32 || dtype == GD_F64;
}

/* Same bits, but that one NaN is as good as another. */
static UNUSED_OK bool same_bits(gd_dtype dtype, const void *a, const void *b, int64_t count)
{
    size_t size = gd_dtype_size(dtype);
    if (memcmp(a, b, (size_t)count * size) == 0)
        return true;
    for (int64_t i = 0; i < count; i++) {
        const char *x = (const char *)a + (size_t)i * size, *y = (const char *)b + (size_t)i * size;
        if (memcmp(x, y, size) != 0 &&
            !(is_float(dtype) && isnan(get_number(dtype, a, i)) && isnan(get_number(dtype, b, i))))
            return false;
    }
    return true;
}

/* ---- operands: how a shape may lie in memory ---- */

enum layout_kind {
    CONTIGUOUS,
    TRANSPOSED, /* axes in reverse order */
    BACKWARDS,  /* every stride negative */
    STEPPED,    /* every second element of the last axis, rows with a gap */
    STRETCHED,  /* the first axis has stride 0 */
    FLAT,       /* the last axis has stride 0 */
    ROTATED,    /* the last axis outermost, the others in order */
    LAYOUT_KINDS
};

typedef struct test_operand {
    gd_layout layout;
    void *storage; /* of exactly the elements the layout reaches, so that sanitizers see one step
                      too far */
    gd_operand operand;
} test_operand;

static UNUSED_OK void plan_strides(gd_layout *layout, enum layout_kind kind)
{
    int rank = layout->rank, order[GD_MAX_RANK]; /* from the innermost axis in memory outwards */
    for (int i = 0; i < rank; i++)
        order[i] = kind == TRANSPOSED ? i
                   : kind == ROTATED  ? (rank - 2 - i + rank) % rank
                                      : rank - 1 - i;
    int64_t step = kind == STEPPED ? 2 : 1;
    for (int i = 0; i < rank; i++) {
        int axis = order[i];
        bool stretched = (kind == STRETCHED && axis == 0) || (kind == FLAT && axis == rank - 1);
        layout->stride[axis] = stretched ? 0 : kind == BACKWARDS ? -step : step;
        if (!stretched)
            step *= layout->shape[axis] > 0 ? layout->shape[axis] : 1;
        if (kind == STEPPED && i == 0)
            step += 3;
    }
}

/* An operand of this layout; its storage is zero. */
static UNUSED_OK test_operand make_operand(gd_shape shape, gd_dtype dtype, enum layout_kind kind)
{
    test_operand t = { .layout = { .rank = shape.rank, .dtype = dtype } };
    memcpy(t.layout.shape, shape.dim, sizeof t.layout.shape);
    plan_strides(&t.layout, kind);
    int64_t low = 0, high = 0, count = 1;
    for (int i = 0; i < shape.rank; i++) {
        int64_t reach = (shape.dim[i] - 1) * t.layout.stride[i];
        count *= shape.dim[i];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    int64_t stored = count == 0 ? 0 : high - low + 1;
    t.layout.offset = count == 0 ? 0 : -low;
    t.storage = calloc(stored > 0 ? (size_t)stored : 1, gd_dtype_size(dtype));
    t.operand.data = (char *)t.storage + t.layout.offset * (int64_t)gd_dtype_size(dtype);
    return t;
}

static UNUSED_OK void free_operand(test_operand *t)
{
    free(t->storage);
}

/* The operand must not move after this: a kernel is given a pointer to its layout. */
static UNUSED_OK gd_operand as_operand(const test_operand *t)
{
    return (gd_operand){ .data = t->operand.data, .layout = &t->layout };
}

/* Row-major number of an element -> its place relative to data. */
static UNUSED_OK int64_t place_of(const gd_layout *layout, int64_t linear)
{
    int64_t at = 0;
    for (int i = layout->rank - 1; i >= 0; i--) {
        at += linear % layout->shape[i] * layout->stride[i];
        linear /= layout->shape[i];
    }
    return at;
}

static UNUSED_OK long double get_element(const test_operand *t, int64_t linear)
{
    return get_number(t->layout.dtype, t->operand.data, place_of(&t->layout, linear));
}

static UNUSED_OK void set_element(test_operand *t, int64_t linear, long double v)
{
    put_number(t->layout.dtype, t->operand.data, place_of(&t->layout, linear), v);
}

static UNUSED_OK int64_t count_of(const test_operand *t)
{
    return gd_layout_count(&t->layout);
}

/* Numbers in (-1, 1) for floats, any of 32 and 64 bits, small ones for the others. */
static UNUSED_OK void fill_random(test_operand *t)
{
    gd_dtype dtype = t->layout.dtype;
    for (int64_t i = 0, n = count_of(t); i < n; i++) {
        uint64_t bits = test_random();
        switch (dtype) {
        case GD_F32:
        case GD_F64:
            set_element(t, i, (long double)test_unit());
            break;
        case GD_BOOL:
            set_element(t, i, (long double)(bits & 1));
            break;
        case GD_I64:
            set_element(t, i, (long double)(int64_t)bits);
            break;
        case GD_I32:
            set_element(t, i, (long double)(int32_t)bits);
            break;
        case GD_U64:
            set_element(t, i, (long double)bits);
            break;
        case GD_U32:
            set_element(t, i, (long double)(uint32_t)bits);
            break;
        case GD_I8:
        case GD_I16:
            set_element(t, i, (long double)(int8_t)bits);
            break;
        default:
            set_element(t, i, (long double)(bits & 0xff));
        }
    }
}

/* ---- results between guard bytes ---- */

#define GUARD      64
#define GUARD_BYTE 0xA5

typedef struct test_result {
    gd_layout layout;
    unsigned char *block;
    size_t bytes;
    void *data;
} test_result;

static UNUSED_OK test_result make_result(gd_shape shape, gd_dtype dtype)
{
    test_result r;
    assert_int_equal(gd_layout_init(&r.layout, shape, dtype, "test"), GD_OK);
    r.bytes = gd_layout_bytes(&r.layout);
    r.block = malloc(r.bytes + 2 * GUARD);
    r.data = r.block + GUARD;
    return r;
}

static UNUSED_OK void check_guards(const test_result *r)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(r->block[i], GUARD_BYTE);
        assert_int_equal(r->block[GUARD + r->bytes + i], GUARD_BYTE);
    }
}

static UNUSED_OK void free_result(test_result *r)
{
    free(r->block);
}

/* Run op `id` on one device. The result is first filled with the guard byte. */
static UNUSED_OK gd_status run_kernel(test_device *device, int threads, gd_op_id id,
                                      const char *name, const void *attr, int n,
                                      const gd_operand *in, test_result *result)
{
    memset(result->block, GUARD_BYTE, result->bytes + 2 * GUARD);
    const gd_op op = { .id = id, .name = name };
    device->cpu.base.threads = threads;
    const gd_kernel_call call = { .device = &device->cpu.base,
                                  .op = &op,
                                  .attr = attr,
                                  .n = n,
                                  .in = in,
                                  .out = { .data = result->data, .layout = &result->layout } };
    gd_status status = device->cpu.base.kernel[id](&call);
    check_guards(result);
    return status;
}

/* Run it with every thread count on every device; where `same_on_all`, all results must have the
 * bits of the first, else those of the first on the same device. The result of device 0, one
 * thread, stays in *result; check(user, result) is called for the first result of each device. */
static UNUSED_OK void run_everywhere(gd_op_id id, const char *name, const void *attr, int n,
                                     const gd_operand *in, test_result *result, bool same_on_all,
                                     void (*check)(void *user, const test_result *result),
                                     void *user)
{
    gd_shape shape = gd_layout_shape(&result->layout);
    test_result first = make_result(shape, result->layout.dtype);
    int64_t count = gd_layout_count(&result->layout);
    for (int d = test_device_count - 1; d >= 0; d--)
        for (int t = 0; t < 3; t++) {
            int threads = test_thread_counts[t];
            assert_int_equal(run_kernel(&test_devices[d], threads, id, name, attr, n, in, result),
                             GD_OK);
            bool is_first = t == 0 && (!same_on_all || d == test_device_count - 1);
            if (is_first)
                memcpy(first.data, result->data, result->bytes);
            else if (!same_bits(result->layout.dtype, first.data, result->data, count))
                fail_msg("%s: %s with %d threads gives other bits", name,
                         test_devices[d].cpu.base.isa, threads);
            if (t == 0 && check)
                check(user, result);
        }
    free_result(&first);
}

#endif
