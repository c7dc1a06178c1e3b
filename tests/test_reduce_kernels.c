/* tests/test_reduce_kernels.c: sum, prod, max, min, argmax, argmin, cumsum and cumprod of the CPU
 * back end, called by hand: every dtype, set of axes and kind of layout, on every instruction set
 * of this machine and with 1, 2 and 8 threads, whose results must have the same bits. References
 * are written here, in long double or exact integers. test_defined_order() is the definition of
 * reduce.h said a second time, element by element.
 */
#include "device_support.h"

#include "backend/cpu/reduce.h"

#include <float.h>

static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_I32, GD_I64, GD_U8, GD_BOOL };
#define DTYPES ((int)(sizeof dtypes / sizeof *dtypes))

#define SHAPE(...) GD_SHAPE(__VA_ARGS__)
static gd_shape shape_at(int i, bool *last)
{
    const gd_shape shapes[] = {
        GD_SCALAR,
        SHAPE(1),
        SHAPE(5),
        SHAPE(7, 11),
        SHAPE(5, 7, 11),
        SHAPE(5, 7, 11, 13),
        SHAPE(0),
        SHAPE(0, 3),
        SHAPE(3, 0, 2),
        SHAPE(1, 1),
        SHAPE(2, 1, 5),
        SHAPE(13000),
        SHAPE(5000, 3),
        SHAPE(3, 5000),
        SHAPE(150, 130),
        SHAPE(40, 3, 300),
        SHAPE(2, 90, 2, 70),
        SHAPE(50, 10),
        SHAPE(50, 16),
        SHAPE(3, 2, 1, 2, 3, 2, 2, 3),
        SHAPE(140001),
        SHAPE(9001, 10),
        SHAPE(33, 4100),
    };
    *last = i == (int)(sizeof shapes / sizeof *shapes) - 1;
    return shapes[i];
}

/* Large shapes are there for how work is cut; they need not be tried in every layout. */
static bool is_worth_trying(gd_shape shape, gd_dtype dtype, int kind)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    bool plain = kind == CONTIGUOUS || kind == TRANSPOSED || kind == STEPPED;
    return count < 10000 || (plain && (dtype == GD_F32 || dtype == GD_U8)) ||
           (kind == CONTIGUOUS && count < 40000);
}

/* ---- sum, prod, max, min ---- */

enum reduction { SUM, PROD, MAX, MIN };
static const gd_op_id reduce_ids[] = { GD_OP_sum, GD_OP_prod, GD_OP_max, GD_OP_min };
static const char *const reduce_names[] = { "sum", "prod", "max", "min" };

typedef struct reduce_case {
    enum reduction op;
    const test_operand *x;
    uint32_t axes;
    int64_t results;
    /* of each result */
    long double *value, *magnitude; /* magnitude: sum of absolute values */
    uint64_t *integer;
    int64_t *count;
} reduce_case;

/* The number of the result an element belongs to. */
static int64_t result_of(const gd_layout *x, uint32_t axes, int64_t linear)
{
    int64_t result = 0, step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (!(axes >> i & 1)) {
            result += linear % x->shape[i] * step;
            step *= x->shape[i];
        }
        linear /= x->shape[i];
    }
    return result;
}

static void take(reduce_case *c, int64_t r, long double v, uint64_t bits)
{
    c->magnitude[r] += fabsl(v);
    switch (c->op) {
    case SUM:
        c->value[r] += v;
        c->integer[r] += bits;
        break;
    case PROD:
        c->value[r] *= v;
        c->integer[r] *= bits;
        break;
    case MAX:
        if (c->count[r] == 0 || v > c->value[r] || isnan(v))
            c->value[r] = isnan(c->value[r]) ? c->value[r] : v;
        break;
    case MIN:
        if (c->count[r] == 0 || v < c->value[r] || isnan(v))
            c->value[r] = isnan(c->value[r]) ? c->value[r] : v;
        break;
    }
    c->count[r]++;
}

static void reference_reduce(reduce_case *c)
{
    for (int64_t r = 0; r < c->results; r++) {
        c->value[r] = c->op == PROD;
        c->integer[r] = c->op == PROD;
        c->magnitude[r] = 0;
        c->count[r] = 0;
    }
    for (int64_t i = 0, n = count_of(c->x); i < n; i++) {
        long double v = get_element(c->x, i);
        bool whole = !is_float(c->x->layout.dtype);
        take(c, result_of(&c->x->layout, c->axes, i), v, whole ? (uint64_t)(int64_t)v : 0);
    }
}

static void check_reduce(void *user, const test_result *result)
{
    const reduce_case *c = user;
    gd_dtype dtype = result->layout.dtype;
    long double unit = dtype == GD_F32 ? (long double)FLT_EPSILON : (long double)DBL_EPSILON;
    for (int64_t r = 0; r < c->results; r++) {
        long double got = get_number(dtype, result->data, r), want = c->value[r];
        if (is_float(dtype) && (c->op == SUM || c->op == PROD)) {
            /* by rows at most 64 additions follow one another, by columns as many, then the tree */
            long double scale =
                c->op == SUM
                    ? c->magnitude[r] * (c->count[r] < 100 ? (long double)c->count[r] : 100)
                    : fabsl(want) * (long double)c->count[r];
            if (isnan(want)   ? !isnan(got)
                : isinf(want) ? got != want
                              : !(fabsl(got - want) <= unit * scale))
                fail_msg("%s %s: result %lld is %Lg, not %Lg", reduce_names[c->op],
                         gd_dtype_name(dtype), (long long)r, got, want);
        } else if (is_float(dtype)) {
            assert_true(isnan(want) ? isnan(got) : got == want);
        } else if (dtype == GD_I64 && (c->op == SUM || c->op == PROD)) {
            assert_int_equal(((const int64_t *)result->data)[r], (int64_t)c->integer[r]);
        } else {
            assert_true(got == want);
        }
    }
}

static gd_shape reduced_shape(gd_shape shape, uint32_t axes, bool keep)
{
    gd_shape out = { .rank = 0 };
    for (int i = 0; i < shape.rank; i++)
        if (!(axes >> i & 1))
            out.dim[out.rank++] = shape.dim[i];
        else if (keep)
            out.dim[out.rank++] = 1;
    return out;
}

static void run_reduce_case(enum reduction op, const test_operand *x, uint32_t axes)
{
    gd_dtype in = x->layout.dtype;
    gd_dtype out = op >= MAX || is_float(in) ? in : GD_I64;
    gd_reduce_attr attr = { .axes = axes, .keep = axes & 1 };
    test_result result =
        make_result(reduced_shape(gd_layout_shape(&x->layout), axes, attr.keep), out);
    reduce_case c = { .op = op, .x = x, .axes = axes, .results = gd_layout_count(&result.layout) };
    size_t room = (size_t)c.results + 1;
    c.value = calloc(room, sizeof *c.value);
    c.magnitude = calloc(room, sizeof *c.magnitude);
    c.integer = calloc(room, sizeof *c.integer);
    c.count = calloc(room, sizeof *c.count);
    reference_reduce(&c);
    gd_operand operand = as_operand(x);
    run_everywhere(reduce_ids[op], reduce_names[op], &attr, 1, &operand, &result, true,
                   check_reduce, &c);
    free(c.value);
    free(c.magnitude);
    free(c.integer);
    free(c.count);
    free_result(&result);
}

/* Products of many numbers near 1 stay in range. */
static void fill_near_one(test_operand *x)
{
    for (int64_t i = 0, n = count_of(x); i < n; i++)
        set_element(x, i, 1 + (long double)test_unit() * 0x1p-10L);
}

/* Of all combinations of shape, dtype and layout every seventh is tried, another seventh for each
 * op and phase; all of them when GRADUS_TEST_ALL is set, which takes minutes. */
static bool is_tried(int *number, int phase)
{
    return getenv("GRADUS_TEST_ALL") || (*number)++ % 7 == phase % 7;
}

static void test_reductions(enum reduction op)
{
    bool last = false;
    int number = 0;
    for (int s = 0; !last; s++) {
        gd_shape shape = shape_at(s, &last);
        for (int d = 0; d < DTYPES; d++)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
                if (!is_tried(&number, (int)op))
                    continue;
                if (!is_worth_trying(shape, dtypes[d], kind))
                    continue;
                test_operand x = make_operand(shape, dtypes[d], (enum layout_kind)kind);
                fill_random(&x);
                if (op == PROD && is_float(dtypes[d]))
                    fill_near_one(&x);
                /* all sets of axes of small shapes; of rank 8 a sample */
                uint32_t sets = 1u << shape.rank, step = shape.rank == 8 ? 37 : 1;
                for (uint32_t axes = 0; axes < sets; axes += step) {
                    int64_t reduced = 1;
                    for (int i = 0; i < shape.rank; i++)
                        reduced *= axes >> i & 1 ? shape.dim[i] : 1;
                    if (op < MAX || reduced > 0) /* the extreme of nothing is refused earlier */
                        run_reduce_case(op, &x, axes);
                }
                free_operand(&x);
            }
    }
}

static void test_sum(void **state)
{
    (void)state;
    test_reductions(SUM);
}

static void test_prod(void **state)
{
    (void)state;
    test_reductions(PROD);
}

static void test_max(void **state)
{
    (void)state;
    test_reductions(MAX);
}

static void test_min(void **state)
{
    (void)state;
    test_reductions(MIN);
}

/* One special value at any place of an otherwise ordinary tensor. */
static void test_special_values(void **state)
{
    (void)state;
    static const long double special[] = { NAN, INFINITY, -INFINITY, -0.0L };
    const gd_shape shapes[] = { SHAPE(5), SHAPE(200), SHAPE(9000), SHAPE(11, 13), SHAPE(150, 7) };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 2; d++)
            for (int v = 0; v < 4; v++)
                for (int round = 0; round < 6; round++) {
                    test_operand x = make_operand(shapes[s], dtypes[d], CONTIGUOUS);
                    fill_random(&x);
                    int64_t n = count_of(&x);
                    set_element(&x, (int64_t)(test_random() % (uint64_t)n), special[v]);
                    if (round % 2) /* two: inf - inf, NaN after NaN */
                        set_element(&x, (int64_t)(test_random() % (uint64_t)n), special[round % 3]);
                    for (uint32_t axes = 1; axes < 1u << shapes[s].rank; axes++)
                        for (int op = SUM; op <= MIN; op++)
                            if (op != PROD ||
                                count_of(&x) <
                                    10) /* longer ones underflow to 0 before they meet it */
                                run_reduce_case((enum reduction)op, &x, axes);
                    free_operand(&x);
                }
}

/* All zeros negative: which zero comes out must not depend on the instruction set (run_everywhere
 * compares bits). */
static void test_negative_zeros(void **state)
{
    (void)state;
    const gd_shape shapes[] = { SHAPE(3), SHAPE(100), SHAPE(5000), SHAPE(9, 10), SHAPE(9, 100) };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        test_operand x = make_operand(shapes[s], GD_F32, CONTIGUOUS);
        for (int64_t i = 0; i < count_of(&x); i++)
            set_element(&x, i, test_random() & 1 ? -0.0L : 0.0L);
        for (uint32_t axes = 1; axes < 1u << shapes[s].rank; axes++)
            for (int op = SUM; op <= MIN; op++)
                run_reduce_case((enum reduction)op, &x, axes);
        free_operand(&x);
    }
}

/* ---- the defined order, said again ---- */

typedef struct defined_axis {
    int64_t size, stride, out_stride;
    bool reduced;
} defined_axis;

/* Axes as reduce.h orders them, outermost first. Merging is left out where it changes nothing but
 * names; merged sizes of the innermost axis are what the rules ask for, so runs are merged by the
 * caller. */
static int defined_axes(const gd_layout *x, uint32_t axes, defined_axis *list, int64_t *base)
{
    int n = 0;
    int64_t out_stride = 1;
    for (int i = x->rank - 1; i >= 0; i--)
        out_stride *= axes >> i & 1 ? 1 : x->shape[i];
    *base = 0;
    for (int i = 0; i < x->rank; i++) {
        bool reduced = axes >> i & 1;
        if (!reduced)
            out_stride /= x->shape[i];
        if (x->shape[i] == 1)
            continue;
        defined_axis a = { x->shape[i], x->stride[i], out_stride, reduced };
        if (a.reduced && a.stride < 0) {
            *base += a.stride * (a.size - 1);
            a.stride = -a.stride;
        }
        list[n++] = a;
    }
    for (int pass = 0; pass < n; pass++)
        for (int i = 0; i + 1 < n; i++) {
            int64_t p = llabs(list[i].stride), q = llabs(list[i + 1].stride);
            bool swap = p != 0 && (q == 0 || q > p);
            if (swap) {
                defined_axis a = list[i];
                list[i] = list[i + 1];
                list[i + 1] = a;
            }
        }
    return n;
}

/* The places of all elements of one result, in order; run gets the size of the innermost merged
 * run. */
static int64_t defined_places(const defined_axis *list, int n, int64_t at, int64_t *places,
                              int64_t *run)
{
    defined_axis reduced[GD_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < n; i++) {
        if (!list[i].reduced)
            continue;
        if (rank > 0 && reduced[rank - 1].stride == list[i].stride * list[i].size) {
            reduced[rank - 1].size *= list[i].size;
            reduced[rank - 1].stride = list[i].stride;
        } else {
            reduced[rank++] = list[i];
        }
    }
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= reduced[i].size;
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k, place = at;
        for (int i = rank - 1; i >= 0; i--) {
            place += rest % reduced[i].size * reduced[i].stride;
            rest /= reduced[i].size;
        }
        places[k] = place;
    }
    *run = rank ? reduced[rank - 1].size : 1;
    return count;
}

static float defined_tree(const float *blocks, int64_t n)
{
    if (n == 1)
        return blocks[0];
    int64_t half = 1;
    while (half * 2 < n)
        half *= 2;
    return defined_tree(blocks, half) + defined_tree(blocks + half, n - half);
}

static float defined_fold(float *lane, int64_t lanes)
{
    for (int64_t h = lanes / 2; h > 0; h /= 2)
        for (int64_t j = 0; j < h; j++)
            lane[j] = lane[j] + lane[j + h];
    return lane[0];
}

static float defined_block(const float *data, const int64_t *places, int64_t n)
{
    float lane[64] = { 0 };
    for (int64_t i = 0; i < n; i++)
        lane[i % 64] = lane[i % 64] + data[places[i]];
    return defined_fold(lane, 64);
}

static float defined_sum_by_rows(const float *data, const int64_t *places, int64_t count,
                                 int64_t run, float *blocks)
{
    int64_t cut = count > run && run < 256 ? count : run, n = 0;
    for (int64_t first = 0; first < count; first += cut)
        for (int64_t i = first; i < first + cut; i += 4096) {
            int64_t rest = first + cut - i;
            blocks[n++] = defined_block(data, places + i, rest < 4096 ? rest : 4096);
        }
    return defined_tree(blocks, n);
}

static float defined_sum_by_columns(const float *data, const int64_t *places, int64_t rows,
                                    int64_t columns, float *blocks)
{
    int64_t k = 1, n = 0;
    if (columns < 64)
        while (2 * k * columns <= 128 && 2 * k <= rows / 4)
            k *= 2;
    for (int64_t first = 0; first < rows; first += 64 * k) {
        float lane[64] = { 0 };
        for (int64_t q = first; q < rows && q < first + 64 * k; q++)
            lane[(q - first) % k] = lane[(q - first) % k] + data[places[q]];
        blocks[n++] = defined_fold(lane, k);
    }
    return defined_tree(blocks, n);
}

static void check_defined(const test_operand *x, uint32_t axes)
{
    defined_axis list[GD_MAX_RANK];
    int64_t base;
    int n = defined_axes(&x->layout, axes, list, &base);
    bool by_rows = n == 0 || list[n - 1].reduced;
    int64_t columns = 0; /* of the innermost kept axis, merged with those that continue it */
    for (int i = 0; i < n; i++)
        if (!list[i].reduced) {
            bool merges = false;
            for (int j = i - 1; j >= 0 && !merges; j--)
                if (!list[j].reduced) {
                    merges = list[j].stride == list[i].stride * list[i].size &&
                             list[j].out_stride == list[i].out_stride * list[i].size;
                    break;
                }
            columns = merges ? columns * list[i].size : list[i].size;
        }

    gd_reduce_attr attr = { .axes = axes };
    test_result result =
        make_result(reduced_shape(gd_layout_shape(&x->layout), axes, false), GD_F32);
    gd_operand operand = as_operand(x);
    assert_int_equal(run_kernel(&test_devices[test_device_count - 1], 2, GD_OP_sum, "sum", &attr, 1,
                                &operand, &result),
                     GD_OK);

    int64_t count = count_of(x);
    int64_t *places = calloc((size_t)count + 1, sizeof *places);
    float *blocks = calloc((size_t)count + 1, sizeof *blocks);
    for (int64_t r = 0; r < gd_layout_count(&result.layout); r++) {
        int64_t rest = r, at = base, run;
        for (int i = x->layout.rank - 1; i >= 0; i--)
            if (!(axes >> i & 1)) {
                at += rest % x->layout.shape[i] * x->layout.stride[i];
                rest /= x->layout.shape[i];
            }
        int64_t elements = defined_places(list, n, at, places, &run);
        const float *data = x->operand.data;
        float want = by_rows ? defined_sum_by_rows(data, places, elements, run, blocks)
                             : defined_sum_by_columns(data, places, elements, columns, blocks);
        float got = ((const float *)result.data)[r];
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg("result %lld is %a, defined as %a (axes %x of %s, innermost stride %lld)",
                     (long long)r, (double)got, (double)want, axes,
                     gd_layout_text(&x->layout, (char[GD_SHAPE_TEXT]){ 0 }),
                     (long long)x->layout.stride[x->layout.rank - 1]);
    }
    free(places);
    free(blocks);
    free_result(&result);
}

static void test_defined_order(void **state)
{
    (void)state;
    bool last = false;
    for (int s = 0; !last; s++) {
        gd_shape shape = shape_at(s, &last);
        if (gd_layout_count(&(gd_layout){
                .rank = shape.rank, .shape = { shape.dim[0], shape.dim[1], shape.dim[2] } }) == 0)
            continue;
        for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
            test_operand x = make_operand(shape, GD_F32, (enum layout_kind)kind);
            fill_random(&x);
            for (uint32_t axes = 0; axes < 1u << shape.rank; axes += shape.rank == 8 ? 17 : 1)
                if (count_of(&x) > 0)
                    check_defined(&x, axes);
            free_operand(&x);
        }
    }
}

/* Millions of elements, so that results are shared by threads; the sum of 0.1f has a known rounding
 * error when it is naive. */
static void test_large_sums(void **state)
{
    (void)state;
    const struct {
        gd_shape shape;
        uint32_t axes;
    } cases[] = {
        { SHAPE(3000001), 1 },    { SHAPE(300001, 10), 1 },  { SHAPE(2, 1000003), 2 },
        { SHAPE(20011, 150), 1 }, { SHAPE(500, 9, 700), 5 }, { SHAPE(1500, 2003), 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_operand x = make_operand(cases[i].shape, GD_F32, CONTIGUOUS);
        for (int64_t k = 0; k < count_of(&x); k++)
            ((float *)x.storage)[k] = 0.1f;
        gd_reduce_attr attr = { .axes = cases[i].axes };
        test_result result =
            make_result(reduced_shape(cases[i].shape, cases[i].axes, false), GD_F32);
        gd_operand operand = as_operand(&x);
        run_everywhere(GD_OP_sum, "sum", &attr, 1, &operand, &result, true, NULL, NULL);
        int64_t results = gd_layout_count(&result.layout);
        double want = (double)(count_of(&x) / results) * (double)0.1f;
        for (int64_t r = 0; r < results; r++)
            assert_true(fabs((double)((float *)result.data)[r] - want) <= 1e-6 * want);
        free_result(&result);
        free_operand(&x);
    }
}

static void test_wrong_result_dtype(void **state)
{
    (void)state;
    test_operand x = make_operand(SHAPE(3), GD_I32, CONTIGUOUS);
    test_operand half = make_operand(SHAPE(3), GD_F16, CONTIGUOUS);
    test_result result = make_result(GD_SCALAR, GD_I32);
    gd_reduce_attr attr = { .axes = 1 };
    gd_axis_attr axis = { .axis = 0 };
    gd_operand operand = as_operand(&x), half_operand = as_operand(&half);
    test_device *device = &test_devices[0];
    assert_int_equal(run_kernel(device, 1, GD_OP_sum, "sum", &attr, 1, &operand, &result),
                     GD_ERR_DTYPE);
    assert_string_equal(gd_error_message(), "sum of i32 gives i64, not i32");
    gd_error_clear();
    assert_int_equal(run_kernel(device, 1, GD_OP_max, "max", &attr, 1, &half_operand, &result),
                     GD_ERR_DTYPE);
    gd_error_clear();
    assert_int_equal(run_kernel(device, 1, GD_OP_argmax, "argmax", &axis, 1, &operand, &result),
                     GD_ERR_DTYPE);
    gd_error_clear();
    assert_int_equal(
        run_kernel(device, 1, GD_OP_cumsum, "cumsum", &axis, 1, &half_operand, &result),
        GD_ERR_DTYPE);
    gd_error_clear();
    free_operand(&x);
    free_operand(&half);
    free_result(&result);
}

/* ---- argmax, argmin ---- */

typedef struct axis_case {
    const test_operand *x;
    int axis;
    bool smallest, product;
} axis_case;

/* before * n * inner: an axis and what is on its sides, in row-major numbers */
static void split_axis(const gd_layout *x, int axis, int64_t *before, int64_t *n, int64_t *inner)
{
    *before = *inner = 1;
    for (int i = 0; i < axis; i++)
        *before *= x->shape[i];
    *n = x->shape[axis];
    for (int i = axis + 1; i < x->rank; i++)
        *inner *= x->shape[i];
}

static void check_arg(void *user, const test_result *result)
{
    const axis_case *c = user;
    int64_t before, n, inner;
    split_axis(&c->x->layout, c->axis, &before, &n, &inner);
    for (int64_t b = 0; b < before; b++)
        for (int64_t q = 0; q < inner; q++) {
            int64_t best = 0;
            for (int64_t i = 1; i < n; i++) {
                long double first = get_element(c->x, (b * n + best) * inner + q);
                long double v = get_element(c->x, (b * n + i) * inner + q);
                if (isnan(first))
                    break;
                if (isnan(v) || (c->smallest ? v < first : v > first))
                    best = i;
            }
            assert_int_equal(((const int64_t *)result->data)[b * inner + q], best);
        }
}

static void test_argmax_argmin(void **state)
{
    (void)state;
    bool last = false;
    int number = 0;
    for (int s = 0; !last; s++) {
        gd_shape shape = shape_at(s, &last);
        for (int d = 0; d < DTYPES; d++)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++)
                for (int round = 0; round < 3; round++) {
                    if (!is_tried(&number, 4))
                        continue;
                    if (!is_worth_trying(shape, dtypes[d], kind))
                        continue;
                    test_operand x = make_operand(shape, dtypes[d], (enum layout_kind)kind);
                    fill_random(&x);
                    int64_t n = count_of(&x);
                    for (int64_t i = 0; round > 0 && i < n; i++) /* many equal values, then NaNs */
                        set_element(&x, i, (long double)(test_random() % 4));
                    for (int k = 0; round == 2 && n > 0 && is_float(dtypes[d]) && k < 9; k++)
                        set_element(&x, (int64_t)(test_random() % (uint64_t)n), (long double)NAN);
                    for (int axis = 0; axis < shape.rank; axis++) {
                        if (shape.dim[axis] == 0)
                            continue;
                        axis_case c = { .x = &x, .axis = axis };
                        gd_axis_attr attr = { .axis = axis, .keep = round == 1 };
                        test_result result =
                            make_result(reduced_shape(shape, 1u << axis, attr.keep), GD_I64);
                        gd_operand operand = as_operand(&x);
                        run_everywhere(GD_OP_argmax, "argmax", &attr, 1, &operand, &result, true,
                                       check_arg, &c);
                        c.smallest = true;
                        run_everywhere(GD_OP_argmin, "argmin", &attr, 1, &operand, &result, true,
                                       check_arg, &c);
                        free_result(&result);
                    }
                    free_operand(&x);
                }
    }
}

/* Equal extremes in different blocks and chunks of one long line: the first one counts. */
static void test_argmax_long_line(void **state)
{
    (void)state;
    const int64_t n = 1000003;
    static const int64_t places[] = { 0, 4095, 4096, 32768, 500000, 1000002 };
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int nan = 0; nan < 2; nan++) {
            test_operand x = make_operand(SHAPE(n), GD_F32, p % 2 ? BACKWARDS : CONTIGUOUS);
            fill_random(&x);
            for (size_t q = p; q < sizeof places / sizeof *places; q++)
                set_element(&x, places[q], nan ? (long double)NAN : 5);
            gd_axis_attr attr = { .axis = 0 };
            test_result result = make_result(GD_SCALAR, GD_I64);
            gd_operand operand = as_operand(&x);
            run_everywhere(GD_OP_argmax, "argmax", &attr, 1, &operand, &result, true, NULL, NULL);
            assert_int_equal(*(int64_t *)result.data, places[p]);
            free_result(&result);
            free_operand(&x);
        }
}

/* ---- cumsum, cumprod ---- */

/* Exact: one rounding after another, as defined. */
static void check_scan(void *user, const test_result *result)
{
    const axis_case *c = user;
    int64_t before, n, inner;
    gd_dtype in = c->x->layout.dtype;
    split_axis(&c->x->layout, c->axis, &before, &n, &inner);
    for (int64_t b = 0; b < before; b++)
        for (int64_t q = 0; q < inner; q++) {
            volatile float f = c->product;
            volatile double d = c->product;
            uint64_t u = c->product;
            for (int64_t i = 0; i < n; i++) {
                int64_t linear = (b * n + i) * inner + q;
                long double v = get_element(c->x, linear);
                if (in == GD_F32) {
                    f = i == 0 ? (float)v : c->product ? f * (float)v : f + (float)v;
                    float got = ((const float *)result->data)[linear];
                    assert_true(isnan(f) ? isnan(got) : got == f);
                } else if (in == GD_F64) {
                    d = i == 0 ? (double)v : c->product ? d * (double)v : d + (double)v;
                    assert_true(((const double *)result->data)[linear] == d);
                } else {
                    u = c->product ? u * (uint64_t)(int64_t)v : u + (uint64_t)(int64_t)v;
                    assert_int_equal(((const int64_t *)result->data)[linear], (int64_t)u);
                }
            }
        }
}

static void test_cumsum_cumprod(void **state)
{
    (void)state;
    bool last = false;
    int number = 0;
    for (int s = 0; !last; s++) {
        gd_shape shape = shape_at(s, &last);
        for (int d = 0; d < DTYPES; d++)
            for (int kind = 0; kind < LAYOUT_KINDS; kind++) {
                if (!is_tried(&number, 5))
                    continue;
                if (!is_worth_trying(shape, dtypes[d], kind))
                    continue;
                test_operand x = make_operand(shape, dtypes[d], (enum layout_kind)kind);
                fill_random(&x);
                test_result result = make_result(shape, is_float(dtypes[d]) ? dtypes[d] : GD_I64);
                gd_operand operand = as_operand(&x);
                for (int axis = 0; axis < shape.rank; axis++) {
                    axis_case c = { .x = &x, .axis = axis };
                    gd_axis_attr attr = { .axis = axis };
                    run_everywhere(GD_OP_cumsum, "cumsum", &attr, 1, &operand, &result, true,
                                   check_scan, &c);
                    c.product = true;
                    if (is_float(dtypes[d]))
                        fill_near_one(&x);
                    run_everywhere(GD_OP_cumprod, "cumprod", &attr, 1, &operand, &result, true,
                                   check_scan, &c);
                }
                free_operand(&x);
                free_result(&result);
            }
    }
}

/* A 0-d tensor has no axis; kernels take axis 0 of one element. */
static void test_scalar_scan(void **state)
{
    (void)state;
    test_operand x = make_operand(GD_SCALAR, GD_F32, CONTIGUOUS);
    set_element(&x, 0, 3);
    test_result result = make_result(GD_SCALAR, GD_F32), index = make_result(GD_SCALAR, GD_I64);
    gd_axis_attr attr = { .axis = 0 };
    gd_operand operand = as_operand(&x);
    run_everywhere(GD_OP_cumsum, "cumsum", &attr, 1, &operand, &result, true, NULL, NULL);
    assert_true(*(float *)result.data == 3);
    run_everywhere(GD_OP_argmax, "argmax", &attr, 1, &operand, &index, true, NULL, NULL);
    assert_int_equal(*(int64_t *)index.data, 0);
    free_operand(&x);
    free_result(&result);
    free_result(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_prod),
        cmocka_unit_test(test_max),
        cmocka_unit_test(test_min),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_negative_zeros),
        cmocka_unit_test(test_defined_order),
        cmocka_unit_test(test_large_sums),
        cmocka_unit_test(test_wrong_result_dtype),
        cmocka_unit_test(test_argmax_argmin),
        cmocka_unit_test(test_argmax_long_line),
        cmocka_unit_test(test_cumsum_cumprod),
        cmocka_unit_test(test_scalar_scan),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
