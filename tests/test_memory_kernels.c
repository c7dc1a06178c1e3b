/* tests/test_memory_kernels.c: full, iota, random_bits, pad, concat, gather, scatter_add and assign
 * of the CPU back end, called by hand: every dtype and kind of layout, on every instruction set of
 * this machine and with 1, 2 and 8 threads, exactly, against references that move one element at a
 * time.
 */
#include "device_support.h"

#include "base/random.h"

#define SHAPE(...) GD_SHAPE(__VA_ARGS__)

static const gd_dtype all_dtypes[] = { GD_F32,  GD_F64, GD_I32, GD_I64, GD_U8,  GD_BOOL, GD_F16,
                                       GD_BF16, GD_I8,  GD_I16, GD_U16, GD_U32, GD_U64 };
_Static_assert(sizeof all_dtypes / sizeof *all_dtypes == GD_DTYPE_COUNT, "all there are");
#define DTYPES ((int)(sizeof all_dtypes / sizeof *all_dtypes))

/* ---- full ---- */

/* What value becomes in each dtype: gd_cast's rules. Half bits from the formats' definitions. */
typedef struct conversion {
    double value;
    float f32;
    int32_t i32;
    int64_t i64;
    uint8_t u8, boolean;
    uint16_t f16, bf16;
} conversion;

static const conversion conversions[] = {
    { 0, 0, 0, 0, 0, 0, 0x0000, 0x0000 },
    { 1, 1, 1, 1, 1, 1, 0x3c00, 0x3f80 },
    { -2.75, -2.75f, -2, -2, 0, 1, 0xc180, 0xc030 },
    { 300.5, 300.5f, 300, 300, 255, 1, 0x5cb2, 0x4396 },
    { 1e10, 1e10f, INT32_MAX, 10000000000, 255, 1, 0x7c00, 0x5015 },
    { -1e30, -1e30f, INT32_MIN, INT64_MIN, 0, 1, 0xfc00, 0xf14a },
    { 0x1p63, 0x1p63f, INT32_MAX, INT64_MAX, 255, 1, 0x7c00, 0x5f00 },
    { -0.25, -0.25f, 0, 0, 0, 1, 0xb400, 0xbe80 },
};

/* The nearest number of an integer dtype, toward zero. */
static long double saturated(double value, gd_dtype dtype)
{
    const bool is_signed = gd_dtype_promote(dtype, GD_I8) == dtype;
    const int bits = 8 * (int)gd_dtype_size(dtype) - is_signed;
    const long double most = ldexpl(1, bits) - 1, least = is_signed ? -most - 1 : 0;
    const long double whole = truncl((long double)value);
    return whole > most ? most : whole < least ? least : whole;
}

static void expect_full(const conversion *c, gd_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case GD_F32:
        assert_memory_equal(&((const float *)data)[i], &c->f32, sizeof c->f32);
        break;
    case GD_F64:
        assert_memory_equal(&((const double *)data)[i], &c->value, sizeof c->value);
        break;
    case GD_I32:
        assert_int_equal(((const int32_t *)data)[i], c->i32);
        break;
    case GD_I64:
        assert_int_equal(((const int64_t *)data)[i], c->i64);
        break;
    case GD_U8:
    case GD_BOOL:
        assert_int_equal(((const uint8_t *)data)[i], dtype == GD_U8 ? c->u8 : c->boolean);
        break;
    case GD_F16:
    case GD_BF16:
        assert_int_equal(((const uint16_t *)data)[i], dtype == GD_F16 ? c->f16 : c->bf16);
        break;
    default:
        assert_true(get_number(dtype, data, i) == saturated(c->value, dtype));
    }
}

/* What gd_full puts into attr.whole: the number as an integer of that dtype, of u64 the bits. */
static int64_t whole_of(const conversion *c, gd_dtype dtype)
{
    if (dtype == GD_U64)
        return (int64_t)(uint64_t)saturated(c->value, dtype);
    return dtype == GD_I32   ? c->i32
           : dtype == GD_I64 ? c->i64
           : dtype == GD_U8  ? c->u8
                             : (int64_t)saturated(c->value, dtype);
}

static void test_full(void **state)
{
    (void)state;
    const gd_shape shapes[] = { GD_SCALAR, SHAPE(0), SHAPE(7, 11), SHAPE(300, 257) };
    int number = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < DTYPES; d++)
            for (size_t v = 0; v < sizeof conversions / sizeof *conversions; v++) {
                if (s < 3 && !test_tries_alike(&number))
                    continue;
                gd_full_attr attr = { .shape = shapes[s],
                                      .value = conversions[v].value,
                                      .whole = whole_of(&conversions[v], all_dtypes[d]),
                                      .dtype = all_dtypes[d] };
                test_result result = make_result(shapes[s], all_dtypes[d]);
                run_everywhere(GD_OP_full, "full", &attr, 0, NULL, &result, true, NULL, NULL);
                for (int64_t i = 0; i < gd_layout_count(&result.layout); i++)
                    expect_full(&conversions[v], all_dtypes[d], result.data, i);
                free_result(&result);
            }
    /* NaN: true as a bool; as an integer the builder refuses it */
    gd_full_attr attr = { .value = (double)NAN };
    test_result boolean = make_result(GD_SCALAR, GD_BOOL), f32 = make_result(GD_SCALAR, GD_F32);
    run_everywhere(GD_OP_full, "full", &attr, 0, NULL, &boolean, true, NULL, NULL);
    run_everywhere(GD_OP_full, "full", &attr, 0, NULL, &f32, true, NULL, NULL);
    assert_int_equal(*(uint8_t *)boolean.data, 1);
    assert_true(isnan(*(float *)f32.data));
    free_result(&boolean);
    free_result(&f32);
}

/* ---- iota ---- */

static void test_iota(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 13, 100003 };
    for (int k = 0; k < 4; k++)
        for (int d = 0; d < 4; d++) {
            gd_dtype dtype = all_dtypes[d];
            gd_iota_attr attr = { .count = counts[k], .start = -3.5, .step = 0.1, .dtype = dtype };
            test_result result = make_result(SHAPE(counts[k]), dtype);
            run_everywhere(GD_OP_iota, "iota", &attr, 0, NULL, &result, true, NULL, NULL);
            for (int64_t i = 0; i < counts[k]; i++) {
                volatile double product = (double)i * 0.1;
                double want = -3.5 + product;
                long double got = get_number(dtype, result.data, i);
                assert_true(got == (dtype == GD_F32   ? (long double)(float)want
                                    : dtype == GD_F64 ? (long double)want
                                                      : (long double)trunc(want)));
            }
            free_result(&result);
        }
    /* integers beyond what a double holds exactly */
    gd_iota_attr attr = {
        .count = 70001, .integer_start = INT64_MAX - 2 * 70000, .integer_step = 2, .use_integers = 1
    };
    test_result result = make_result(SHAPE(70001), GD_I64),
                narrow = make_result(SHAPE(70001), GD_I32);
    run_everywhere(GD_OP_iota, "iota", &attr, 0, NULL, &result, true, NULL, NULL);
    for (int64_t i = 0; i < attr.count; i++)
        assert_int_equal(((int64_t *)result.data)[i], attr.integer_start + 2 * i);
    attr.integer_start = -7;
    run_everywhere(GD_OP_iota, "iota", &attr, 0, NULL, &narrow, true, NULL, NULL);
    for (int64_t i = 0; i < attr.count; i++)
        assert_int_equal(((int32_t *)narrow.data)[i], -7 + 2 * i);
    free_result(&result);
    free_result(&narrow);
}

/* ---- random_bits ---- */

/* base/random.c is tested against the known answers of the Random123 paper; here, that every kernel
 * gives its words. */
static void test_random_bits(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 3, 4, 63, 64, 65, 1000, 100003 };
    static const uint64_t positions[] = { 0, 1, 3, 0xfffffffe, 0x3fffffffd, 0x7ffffffffffffff0 };
    int number = 0;
    for (int k = 0; k < 9; k++)
        for (int p = 0; p < 6; p++)
            for (int stride = 1; stride <= 2; stride++)
                for (gd_dtype dtype = GD_I32; dtype <= GD_I64; dtype++) {
                    if (k < 8 && !test_tries_alike(&number))
                        continue;
                    int64_t values[4] = { (int64_t)0x243f6a8885a308d3, 0, 0, 0 };
                    values[stride] = (int64_t)positions[p];
                    gd_layout layout = {
                        .rank = 1, .dtype = GD_I64, .shape = { 2 }, .stride = { stride }
                    };
                    gd_operand in = { .data = values, .layout = &layout };
                    gd_random_attr attr = { .shape = SHAPE(counts[k]),
                                            .offset = 5,
                                            .dtype = dtype };
                    test_result result = make_result(attr.shape, dtype);
                    run_everywhere(GD_OP_random_bits, "random_bits", &attr, 1, &in, &result, true,
                                   NULL, NULL);
                    int64_t words = counts[k] * (dtype == GD_I64 ? 2 : 1);
                    uint32_t *want = calloc((size_t)words + 1, sizeof *want);
                    gd_philox_words((uint64_t)values[0], positions[p] + 5, (uint64_t)words, want);
                    for (int64_t i = 0; i < counts[k]; i++)
                        if (dtype == GD_I32)
                            assert_int_equal(((uint32_t *)result.data)[i], want[i]);
                        else
                            assert_int_equal(((uint64_t *)result.data)[i],
                                             want[2 * i] | (uint64_t)want[2 * i + 1] << 32);
                    free(want);
                    free_result(&result);
                }
}

/* ---- pad, concat, assign ---- */

static void check_pad(gd_shape shape, gd_dtype dtype, enum layout_kind kind, unsigned sides,
                      double value)
{
    test_operand x = make_operand(shape, dtype, kind);
    fill_random(&x);
    gd_pad_attr attr = { .value = value };
    gd_shape padded = shape;
    for (int i = 0; i < shape.rank; i++) {
        attr.before[i] = sides >> (2 * i) & 1 ? i + 1 : 0;
        attr.after[i] = sides >> (2 * i) & 2 ? i + 2 : 0;
        padded.dim[i] += attr.before[i] + attr.after[i];
    }
    test_result result = make_result(padded, dtype), fill = make_result(GD_SCALAR, dtype);
    gd_operand in = as_operand(&x);
    run_everywhere(GD_OP_pad, "pad", &attr, 1, &in, &result, true, NULL, NULL);
    gd_full_attr full = { .value = value,
                          .whole =
                              gd_dtype_is_integer(dtype) ? (int64_t)saturated(value, dtype) : 0 };
    run_kernel(&test_devices[0], 1, GD_OP_full, "full", &full, 0, NULL, &fill);
    for (int64_t i = 0; i < gd_layout_count(&result.layout); i++) {
        int64_t rest = i, linear = 0, step = 1;
        bool inside = true;
        for (int axis = shape.rank - 1; axis >= 0; axis--) {
            int64_t at = rest % padded.dim[axis] - attr.before[axis];
            rest /= padded.dim[axis];
            inside = inside && at >= 0 && at < shape.dim[axis];
            linear += at * step;
            step *= shape.dim[axis];
        }
        long double want = inside ? get_element(&x, linear) : get_number(dtype, fill.data, 0);
        assert_true(get_number(dtype, result.data, i) == want);
    }
    free_result(&result);
    free_result(&fill);
    free_operand(&x);
}

static void test_pad(void **state)
{
    (void)state;
    const gd_shape shapes[] = { GD_SCALAR,    SHAPE(5),       SHAPE(0, 3),
                                SHAPE(7, 11), SHAPE(2, 3, 5), SHAPE(5, 7, 11, 13) };
    int number = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < DTYPES; d++)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++)
                for (unsigned round = 0; round < 6; round++) {
                    const unsigned sides = round == 0   ? 0
                                           : round == 1 ? ~0u
                                                        : (unsigned)test_random();
                    if (test_tries_alike(&number))
                        check_pad(shapes[s], all_dtypes[d], (enum layout_kind)kind, sides,
                                  round % 2 ? 3 : -1.5);
                }
    for (unsigned round = 0; round < 8; round++) { /* shared by threads */
        check_pad(SHAPE(300, 501), GD_F32, CONTIGUOUS, (unsigned)test_random(), 7);
        check_pad(SHAPE(1, 40, 50, 60), GD_F32, round % 2 ? TRANSPOSED : CONTIGUOUS,
                  (unsigned)test_random(), 7);
    }
}

static void test_concat(void **state)
{
    (void)state;
    int number = 0;
    for (int d = 0; d < DTYPES; d++)
        for (int round = 0; round < 40; round++) {
            if (!test_tries_alike(&number))
                continue;
            gd_shape shape = round % 4 == 0   ? SHAPE(7)
                             : round % 4 == 1 ? SHAPE(5, 7)
                             : round % 4 == 2 ? SHAPE(5, 7, 11)
                                              : SHAPE(90, 70, 3);
            int n = 1 + (int)(test_random() % 5),
                axis = (int)(test_random() % (uint64_t)shape.rank);
            test_operand x[5];
            gd_operand in[5];
            gd_shape joined = shape;
            joined.dim[axis] = 0;
            for (int i = 0; i < n; i++) {
                gd_shape part = shape;
                part.dim[axis] = (int64_t)(test_random() % 4) * shape.dim[axis] / 2;
                joined.dim[axis] += part.dim[axis];
                x[i] = make_operand(part, all_dtypes[d],
                                    (enum layout_kind)(test_random() % LAYOUT_KINDS));
                fill_random(&x[i]);
            }
            for (int i = 0; i < n; i++)
                in[i] = as_operand(&x[i]);
            gd_axis_attr attr = { .axis = axis };
            test_result result = make_result(joined, all_dtypes[d]);
            run_everywhere(GD_OP_concat, "concat", &attr, n, in, &result, true, NULL, NULL);
            for (int64_t i = 0; i < gd_layout_count(&result.layout); i++) {
                int64_t inner = 1;
                for (int a = axis + 1; a < shape.rank; a++)
                    inner *= shape.dim[a];
                int64_t at = i / inner % joined.dim[axis], before = i / inner / joined.dim[axis],
                        from = 0;
                while (at >= x[from].layout.shape[axis])
                    at -= x[from++].layout.shape[axis];
                long double want = get_element(
                    &x[from], (before * x[from].layout.shape[axis] + at) * inner + i % inner);
                assert_true(get_number(all_dtypes[d], result.data, i) == want);
            }
            free_result(&result);
            for (int i = 0; i < n; i++)
                free_operand(&x[i]);
        }
}

static void test_assign(void **state)
{
    (void)state;
    const gd_shape shapes[] = { GD_SCALAR,       SHAPE(5),        SHAPE(0, 3),        SHAPE(7, 11),
                                SHAPE(5, 7, 11), SHAPE(200, 300), SHAPE(3, 70, 1, 90) };
    int number = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < DTYPES; d++)
            for (int to = 0; to < LAYOUT_KINDS; to++)
                for (int from = 0; from < LAYOUT_KINDS; from++) {
                    if (to == STRETCHED || to == FLAT)
                        continue; /* elements of a target are distinct */
                    if (!test_tries_alike(&number))
                        continue;
                    test_operand target =
                        make_operand(shapes[s], all_dtypes[d], (enum layout_kind)to);
                    test_operand value =
                        make_operand(shapes[s], all_dtypes[d], (enum layout_kind)from);
                    fill_random(&value);
                    gd_operand in[2] = { as_operand(&target), as_operand(&value) };
                    test_device *device =
                        &test_devices[(s + (size_t)to) % (size_t)test_device_count];
                    const gd_op op = { .id = GD_OP_assign, .name = "assign" };
                    device->cpu.base.threads = 1 + from % 2;
                    const gd_kernel_call call = {
                        .device = &device->cpu.base, .op = &op, .n = 2, .in = in, .out = in[0]
                    };
                    assert_int_equal(device->cpu.base.kernel[GD_OP_assign](&call), GD_OK);
                    for (int64_t i = 0; i < count_of(&target); i++)
                        assert_true(get_element(&target, i) == get_element(&value, i));
                    if (from == to) { /* a tensor onto itself stays as it is */
                        in[1] = in[0];
                        assert_int_equal(device->cpu.base.kernel[GD_OP_assign](&call), GD_OK);
                        for (int64_t i = 0; i < count_of(&target); i++)
                            assert_true(get_element(&target, i) == get_element(&value, i));
                    }
                    free_operand(&target);
                    free_operand(&value);
                }
}

/* ---- gather, scatter_add ---- */

/* The row-major number, in a tensor of `shape`, of the element of number `linear` of `index`, with
 * its index along axis replaced. */
static int64_t redirect(const gd_layout *index, const gd_layout *shape, int axis, int64_t linear,
                        int64_t to)
{
    int64_t number = 0, step = 1, at[GD_MAX_RANK];
    for (int i = index->rank - 1; i >= 0; i--) {
        at[i] = linear % index->shape[i];
        linear /= index->shape[i];
    }
    at[axis] = to;
    for (int i = shape->rank - 1; i >= 0; i--) {
        number += at[i] * step;
        step *= shape->shape[i];
    }
    return number;
}

static test_operand random_index(gd_shape shape, gd_dtype dtype, enum layout_kind kind,
                                 int64_t bound)
{
    test_operand index = make_operand(shape, dtype, kind);
    for (int64_t i = 0; i < count_of(&index); i++)
        set_element(&index, i, (long double)(test_random() % (uint64_t)bound));
    return index;
}

static const struct {
    int rank, axis;
    int64_t x[4], index[4];
} index_cases[] = {
    { 1, 0, { 5 }, { 11 } },
    { 1, 0, { 5 }, { 0 } },
    { 2, 0, { 7, 11 }, { 13, 11 } },
    { 2, 0, { 7, 11 }, { 5, 4 } },
    { 2, 1, { 7, 11 }, { 7, 3 } },
    { 3, 1, { 5, 7, 11 }, { 4, 13, 9 } },
    { 4, 2, { 2, 3, 5, 7 }, { 2, 3, 11, 7 } },
    { 2, 0, { 1000, 64 }, { 2000, 64 } },
    { 1, 0, { 1000 }, { 100000 } },
    { 2, 1, { 3, 50 }, { 3, 30000 } },
};
#define INDEX_CASES ((int)(sizeof index_cases / sizeof *index_cases))

static gd_shape shape_of(int rank, const int64_t *dim)
{
    gd_shape shape = { .rank = rank };
    for (int i = 0; i < rank; i++)
        shape.dim[i] = dim[i];
    return shape;
}

static void test_gather(void **state)
{
    (void)state;
    int number = 0;
    for (int k = 0; k < INDEX_CASES; k++)
        for (int d = 0; d<DTYPES; d += index_cases[k].index[0]> 999 ? 3 : 1)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++)
                for (gd_dtype index_dtype = GD_I32; index_dtype <= GD_I64; index_dtype++) {
                    if (!test_tries_alike(&number))
                        continue;
                    int rank = index_cases[k].rank;
                    gd_shape shape = shape_of(rank, index_cases[k].index);
                    test_operand x = make_operand(shape_of(rank, index_cases[k].x), all_dtypes[d],
                                                  (enum layout_kind)kind);
                    fill_random(&x);
                    gd_axis_attr attr = { .axis = index_cases[k].axis };
                    test_operand index = random_index(
                        shape, index_dtype, (enum layout_kind)((kind + k + d) % LAYOUT_KINDS),
                        index_cases[k].x[attr.axis]);
                    test_result result = make_result(shape, all_dtypes[d]);
                    gd_operand in[2] = { as_operand(&x), as_operand(&index) };
                    run_everywhere(GD_OP_gather, "gather", &attr, 2, in, &result, true, NULL, NULL);
                    for (int64_t i = 0; i < count_of(&index); i++) {
                        int64_t from = redirect(&index.layout, &x.layout, attr.axis, i,
                                                (int64_t)get_element(&index, i));
                        assert_true(get_number(all_dtypes[d], result.data, i) ==
                                    get_element(&x, from));
                    }
                    free_result(&result);
                    free_operand(&x);
                    free_operand(&index);
                }
}

/* Sums in index order, rounded one after another, so the result is exact to the bit. */
static void check_scatter_add(int k, gd_dtype dtype, enum layout_kind kind, gd_dtype index_dtype)
{
    int rank = index_cases[k].rank, axis = index_cases[k].axis;
    gd_shape shape = shape_of(rank, index_cases[k].index),
             base_shape = shape_of(rank, index_cases[k].x);
    test_operand base = make_operand(base_shape, dtype, kind);
    test_operand source =
        make_operand(shape, dtype, (enum layout_kind)(((int)kind + 2) % LAYOUT_KINDS));
    test_operand index =
        random_index(shape, index_dtype, (enum layout_kind)(((int)kind + k) % LAYOUT_KINDS),
                     base_shape.dim[axis]);
    fill_random(&base);
    fill_random(&source);
    test_operand want = make_operand(base_shape, dtype, CONTIGUOUS);
    for (int64_t i = 0; i < count_of(&base); i++)
        set_element(&want, i, get_element(&base, i));
    for (int64_t i = 0; i < count_of(&index); i++) {
        int64_t to =
            redirect(&index.layout, &base.layout, axis, i, (int64_t)get_element(&index, i));
        switch (dtype) {
        case GD_F32:
            ((float *)want.storage)[to] += (float)get_element(&source, i);
            break;
        case GD_F64:
            ((double *)want.storage)[to] += (double)get_element(&source, i);
            break;
        case GD_I32:
            ((uint32_t *)want.storage)[to] += (uint32_t)(int32_t)get_element(&source, i);
            break;
        case GD_I64:
            ((uint64_t *)want.storage)[to] += (uint64_t)(int64_t)get_element(&source, i);
            break;
        default:
            ((uint8_t *)want.storage)[to] =
                (uint8_t)(((uint8_t *)want.storage)[to] + (uint8_t)get_element(&source, i));
        }
    }
    gd_axis_attr attr = { .axis = axis };
    test_result result = make_result(base_shape, dtype);
    gd_operand in[3] = { as_operand(&base), as_operand(&index), as_operand(&source) };
    run_everywhere(GD_OP_scatter_add, "scatter_add", &attr, 3, in, &result, true, NULL, NULL);
    assert_true(same_bits(dtype, result.data, want.storage, count_of(&base)));
    free_result(&result);
    free_operand(&base);
    free_operand(&source);
    free_operand(&index);
    free_operand(&want);
}

static void test_scatter_add(void **state)
{
    (void)state;
    int number = 0;
    for (int k = 0; k < INDEX_CASES; k++)
        for (int d = 0; d<5; d += index_cases[k].index[0]> 999 ? 2 : 1)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++)
                for (gd_dtype index_dtype = GD_I32; index_dtype <= GD_I64; index_dtype++)
                    if (test_tries_alike(&number))
                        check_scatter_add(k, all_dtypes[d], (enum layout_kind)kind, index_dtype);
}

static void test_bad_index(void **state)
{
    (void)state;
    static const int64_t bad[] = { -1, 7, INT64_MIN, INT64_MAX };
    for (int k = 0; k < 4; k++)
        for (int d = 0; d < test_device_count; d++)
            for (int threads = 1; threads <= 8; threads += 7)
                for (int stretched = 0; stretched < 2; stretched++) {
                    test_operand x = make_operand(SHAPE(7, 30), GD_F32, CONTIGUOUS);
                    test_operand index =
                        make_operand(SHAPE(5000, 30), GD_I64, stretched ? FLAT : CONTIGUOUS);
                    test_operand source = make_operand(SHAPE(5000, 30), GD_F32, CONTIGUOUS);
                    set_element(&index, 90000, (long double)bad[k]); /* row 3000 */
                    set_element(&index, 149999, 99);
                    test_result out = make_result(SHAPE(5000, 30), GD_F32),
                                sum = make_result(SHAPE(7, 30), GD_F32);
                    gd_axis_attr attr = { .axis = 0 };
                    gd_operand in[3] = { as_operand(&x), as_operand(&index), as_operand(&source) };
                    char sentence[200];
                    snprintf(sentence, sizeof sentence,
                             "gather: index %lld (element 90000 of the index tensor) is out of "
                             "range for axis 0 of size 7",
                             (long long)bad[k]);
                    assert_int_equal(run_kernel(&test_devices[d], threads, GD_OP_gather, "gather",
                                                &attr, 2, in, &out),
                                     GD_ERR_INVALID);
                    assert_string_equal(gd_error_message(), sentence);
                    gd_error_clear();
                    assert_int_equal(run_kernel(&test_devices[d], threads, GD_OP_scatter_add,
                                                "scatter_add", &attr, 3, in, &sum),
                                     GD_ERR_INVALID);
                    gd_error_clear();
                    free_result(&out);
                    free_result(&sum);
                    free_operand(&x);
                    free_operand(&index);
                    free_operand(&source);
                }
    /* an index of another dtype */
    test_operand x = make_operand(SHAPE(3), GD_F32, CONTIGUOUS);
    test_result out = make_result(SHAPE(3), GD_F32);
    gd_axis_attr attr = { .axis = 0 };
    gd_operand in[2] = { as_operand(&x), as_operand(&x) };
    assert_int_equal(run_kernel(&test_devices[0], 1, GD_OP_gather, "gather", &attr, 2, in, &out),
                     GD_ERR_DTYPE);
    assert_string_equal(gd_error_message(), "gather: the index is f32, not i64 or i32");
    gd_error_clear();
    free_result(&out);
    free_operand(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),        cmocka_unit_test(test_iota),
        cmocka_unit_test(test_random_bits), cmocka_unit_test(test_pad),
        cmocka_unit_test(test_concat),      cmocka_unit_test(test_assign),
        cmocka_unit_test(test_gather),      cmocka_unit_test(test_scatter_add),
        cmocka_unit_test(test_bad_index),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
