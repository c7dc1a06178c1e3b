/* tests/test_gemm.c: the packed matrix product against its definition, bit for bit, for every
 * instruction set this machine runs. A case is drawn at random: sizes, layouts, batch, epilogue,
 * numbers. Its operands end where their memory ends, so that a sanitizer sees every byte read too
 * many; C lies in a buffer of known bytes which must be the same afterwards.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/gemm_micro.h"
#include "base/cpu.h"
#include "support/effort.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define LEAST(a, b)  ((a) < (b) ? (a) : (b))
#define MAX_THREADS  64

typedef struct kernels {
    gd_isa isa;
    const gd_gemm_micro *micro[2]; /* f32, f64 */
} kernels;

#define KERNELS(ISA, isa)                          \
    {                                              \
        ISA,                                       \
        {                                          \
            &gd_gemm_f32_##isa, &gd_gemm_f64_##isa \
        }                                          \
    }
static const kernels isas[] = {
    KERNELS(GD_ISA_BASELINE, baseline),
#ifdef GD_HAVE_AVX2
    KERNELS(GD_ISA_AVX2, avx2),
#endif
#ifdef GD_HAVE_AVX512
    KERNELS(GD_ISA_AVX512, avx512),
#endif
#ifdef GD_HAVE_NEON
    KERNELS(GD_ISA_NEON, neon),
#endif
};

static const size_t real_size[2] = { sizeof(float), sizeof(double) };
static gd_paths paths; /* this machine's */
static char *memory;   /* of workspaces */
static size_t memory_bytes;

/* Blocks of half of 256 KB, 512 KB, 1 MB and 2 MB. */
static const size_t blocks[] = { 128u << 10, 256u << 10, 512u << 10, 1u << 20 };
static const int thread_counts[] = { 1, 2, 3, 5, MAX_THREADS };

/* As large as the device makes it, and no larger. */
static gd_workspace workspace_for(const gd_paths *p)
{
    const size_t bytes = gd_scratch_bytes(gd_gemm_scratch_bytes(p), GD_GEMM_SCRATCH_BLOCKS);
    assert_true(MAX_THREADS * bytes <= memory_bytes);
    return (gd_workspace){ memory, bytes, MAX_THREADS };
}

/* Numbers ------------------------------------------------------------------------------------- */

static uint64_t random_state = 0x9E3779B97F4A7C15u;

static uint64_t random_bits(void) /* xorshift64*, Vigna 2016 */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545F4914F6CDD1Du >> 32;
}

static int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

static double random_real(bool special)
{
    static const double odd[] = { NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-42, -1e-42, 1e38, -1e38 };
    if (special && random_below(40) == 0)
        return odd[random_below(COUNT(odd))];
    return (double)random_below(1 << 24) / (1 << 23) - 1.0;
}

static void put(void *p, int type, int64_t i, double x)
{
    if (type == 0)
        ((float *)p)[i] = (float)x;
    else
        ((double *)p)[i] = x;
}

static double get(const void *p, int type, int64_t i)
{
    return type == 0 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

/* The definition of the result, word for word: gemm.h ------------------------------------------ */

/* Where kernels fuse, x86-64 has the instruction; a call of libm's function for each step takes
 * ten times as long. */
#if defined(__x86_64__)
#define FUSED_TARGET __attribute__((target("fma")))
#else
#define FUSED_TARGET
#endif

/* An element of C, for one STEP(x, y, s). */
#define DEFINE_ELEMENT(name, REAL, TARGET, STEP)                                          \
    TARGET static REAL name(const REAL *a, int64_t a_step, const REAL *b, int64_t b_step, \
                            int64_t k)                                                    \
    {                                                                                     \
        REAL c = 0;                                                                       \
        for (int64_t block = 0; block < k; block += GD_GEMM_KC) {                         \
            REAL s = 0;                                                                   \
            for (int64_t p = block; p < k && p < block + GD_GEMM_KC; p++)                 \
                s = STEP(a[p * a_step], b[p * b_step], s);                                \
            c = block == 0 ? s : c + s;                                                   \
        }                                                                                 \
        return c;                                                                         \
    }
#define IN_TWO_STEPS(x, y, s) ((x) * (y) + (s))
DEFINE_ELEMENT(fused_f32, float, FUSED_TARGET, fmaf)
DEFINE_ELEMENT(fused_f64, double, FUSED_TARGET, fma)
DEFINE_ELEMENT(plain_f32, float, , IN_TWO_STEPS)
DEFINE_ELEMENT(plain_f64, double, , IN_TWO_STEPS)

/* One product of the batch, whose operands begin there. */
#define DEFINE_REFERENCE(type, REAL)                                                           \
    static void reference_##type(const gd_gemm_micro *micro, const gd_gemm_args *g, int64_t a, \
                                 int64_t b, int64_t c)                                         \
    {                                                                                          \
        const REAL *bias = g->bias, *y = g->relu_result;                                       \
        for (int64_t i = 0; i < g->m; i++)                                                     \
            for (int64_t j = 0; j < g->n; j++) {                                               \
                REAL x = (micro->fused ? fused_##type : plain_##type)(                         \
                    (const REAL *)g->a + a + i * g->a_row_stride, g->a_col_stride,             \
                    (const REAL *)g->b + b + j * g->b_col_stride, g->b_row_stride, g->k);      \
                if (bias)                                                                      \
                    x = x + bias[j * g->bias_stride];                                          \
                const int64_t at = c + i * g->c_row_stride + j * g->c_col_stride;              \
                ((REAL *)g->c)[at] = (g->relu && x < 0) || (y && !(y[at] > 0)) ? 0 : x;        \
            }                                                                                  \
    }
DEFINE_REFERENCE(f32, float)
DEFINE_REFERENCE(f64, double)

static void reference(const gd_gemm_micro *micro, const gd_gemm_args *args)
{
    int64_t batch = 1;
    for (int d = 0; d < args->batch_rank; d++)
        batch *= args->batch_shape[d];
    for (int64_t index = 0; index < batch; index++) {
        int64_t rest = index, a = 0, b = 0, c = 0;
        for (int d = args->batch_rank - 1; d >= 0; d--) {
            const int64_t at = rest % args->batch_shape[d];
            rest /= args->batch_shape[d];
            a += at * args->a_batch_stride[d];
            b += at * args->b_batch_stride[d];
            c += at * args->c_batch_stride[d];
        }
        (micro->c == GD_F64 ? reference_f64 : reference_f32)(micro, args, a, b, c);
    }
}

/* Arrays with strides ------------------------------------------------------------------------- */

typedef struct array {
    void *memory; /* exactly the elements between the lowest and the highest address */
    void *origin; /* element 0 */
    int64_t elements;
    int64_t row_stride, col_stride;
} array;

enum layout {
    ROWS,
    COLUMNS,
    PADDED_ROWS,
    PADDED_COLUMNS,
    SPARSE,
    REVERSED,
    SAME_ROW,
    SAME_COLUMN,
    LAYOUTS
};
enum { WRITABLE_LAYOUTS = REVERSED };

/* A [rows, columns] matrix in the given layout, repeated along the batch dimensions whose bit is
 * not set in `shared`. */
static array make_array(int type, enum layout layout, int64_t rows, int64_t columns, int batch_rank,
                        const int64_t *batch_shape, unsigned shared, int64_t *batch_stride)
{
    array x = { 0 };
    int64_t size = 0; /* of one matrix, as a stride for the next */
    switch (layout) {
    case ROWS:
    case REVERSED:
        x.row_stride = columns, x.col_stride = 1, size = rows * columns;
        break;
    case COLUMNS:
        x.row_stride = 1, x.col_stride = rows, size = rows * columns;
        break;
    case PADDED_ROWS:
        x.row_stride = columns + 3, x.col_stride = 1, size = rows * (columns + 3) + 1;
        break;
    case PADDED_COLUMNS:
        x.row_stride = 1, x.col_stride = rows + 5, size = columns * (rows + 5);
        break;
    case SPARSE:
        x.row_stride = 2 * columns + 1, x.col_stride = 2, size = rows * (2 * columns + 1);
        break;
    case SAME_ROW:
        x.row_stride = 0, x.col_stride = 1, size = columns;
        break;
    case SAME_COLUMN:
    default:
        x.row_stride = 1, x.col_stride = 0, size = rows;
        break;
    }
    if (layout == REVERSED) {
        x.row_stride = -x.row_stride;
        x.col_stride = -x.col_stride;
    }
    int64_t low = 0, high = 0;
    for (int d = batch_rank - 1; d >= 0; d--) {
        batch_stride[d] = shared >> d & 1 ? 0 : size;
        size *= batch_stride[d] ? batch_shape[d] : 1;
        high += batch_stride[d] * (batch_shape[d] > 0 ? batch_shape[d] - 1 : 0);
    }
    const int64_t last_row = rows > 0 ? (rows - 1) * x.row_stride : 0;
    const int64_t last_col = columns > 0 ? (columns - 1) * x.col_stride : 0;
    *(last_row < 0 ? &low : &high) += last_row;
    *(last_col < 0 ? &low : &high) += last_col;
    x.elements = high - low + 1;
    x.memory = malloc((size_t)x.elements * real_size[type]);
    assert_non_null(x.memory);
    x.origin = (char *)x.memory - low * (int64_t)real_size[type];
    return x;
}

static void fill_array(array *x, int type, bool special)
{
    for (int64_t i = 0; i < x->elements; i++)
        put(x->memory, type, i, random_real(special));
}

/* Equal bits, but for the payload of NaN. */
static bool same_reals(const void *x, const void *y, int type, int64_t count)
{
    if (memcmp(x, y, (size_t)count * real_size[type]) == 0)
        return true;
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)i * real_size[type];
        const bool nan = isnan(get(x, type, i)) && isnan(get(y, type, i));
        if (!nan && memcmp((const char *)x + at, (const char *)y + at, real_size[type]) != 0)
            return false;
    }
    return true;
}

/* Cases --------------------------------------------------------------------------------------- */

typedef struct gemm_case {
    int64_t m, n, k;
    enum layout a, b, c;
    int batch_rank;
    int64_t batch_shape[GD_GEMM_BATCH_RANK];
    unsigned a_shared, b_shared; /* batch dimensions along which an operand is broadcast */
    bool bias, relu, special;
    bool relu_result;
    int64_t bias_stride;
} gemm_case;

/* How a product is computed, which must not show. */
typedef struct gemm_way {
    gd_paths paths;
    int threads;
} gemm_way;

static void fail_case(const kernels *isa, int type, const gemm_case *t, const gemm_way *way)
{
    fail_msg("%s %s [%lld,%lld]@[%lld,%lld] layouts %d %d %d, batch rank %d, bias %d stride %lld, "
             "relu %d, gradient of relu %d, %d threads, path %d, blocks of %zu bytes: differs from "
             "the definition",
             gd_isa_name(isa->isa), type ? "f64" : "f32", (long long)t->m, (long long)t->k,
             (long long)t->k, (long long)t->n, t->a, t->b, t->c, t->batch_rank, t->bias,
             (long long)t->bias_stride, t->relu, t->relu_result, way->threads, way->paths.matmul,
             way->paths.block_bytes);
}

/* With B packed ahead, and memory fetched meanwhile, which changes nothing. */
static void check_ahead(const kernels *isa, int type, const gemm_case *t, const gemm_way *way,
                        gd_gemm_args args, const void *before, const array *c, const void *expected)
{
    const gd_gemm_micro *micro = isa->micro[type];
    const size_t bytes = gd_gemm_ahead_bytes(micro, t->k, t->n);
    const gd_gemm_fetch fetch[] = { { before, 64, 100 }, { expected, 8, 4096 } };
    char *packed =
        aligned_alloc(GD_SCRATCH_ALIGN, (bytes / GD_SCRATCH_ALIGN + 2) * GD_SCRATCH_ALIGN);
    assert_non_null(packed);
    memcpy(packed + bytes, "guarded", 8);
    gd_gemm_pack_ahead(micro, packed, args.b, args.b_row_stride, args.b_col_stride, t->k, t->n);
    assert_memory_equal(packed + bytes, "guarded", 8);
    memcpy(c->memory, before, (size_t)c->elements * real_size[type]);
    args.c = c->memory;
    args.b = NULL;
    args.b_packed = packed;
    args.fetch = fetch;
    args.fetches = 2;
    args.threads = 1;
    args.paths = &way->paths;
    args.workspace = workspace_for(args.paths);
    gd_gemm(micro, &args);
    if (!same_reals(c->memory, expected, type, c->elements))
        fail_case(isa, type, t, way);
    free(packed);
}

static void check_ways(const kernels *isa, int type, const gemm_case *t, const gemm_way *ways,
                       int way_count)
{
    gd_gemm_args args = { .m = t->m, .n = t->n, .k = t->k, .relu = t->relu };
    args.batch_rank = t->batch_rank;
    memcpy(args.batch_shape, t->batch_shape, sizeof args.batch_shape);
    array a = make_array(type, t->a, t->m, t->k, t->batch_rank, t->batch_shape, t->a_shared,
                         args.a_batch_stride);
    array b = make_array(type, t->b, t->k, t->n, t->batch_rank, t->batch_shape, t->b_shared,
                         args.b_batch_stride);
    array c =
        make_array(type, t->c, t->m, t->n, t->batch_rank, t->batch_shape, 0, args.c_batch_stride);
    const enum layout bias_layout = t->bias_stride == 0  ? SAME_COLUMN
                                    : t->bias_stride < 0 ? REVERSED
                                    : t->bias_stride > 1 ? SPARSE
                                                         : ROWS;
    array bias = make_array(type, bias_layout, 1, t->n, 0, NULL, 0, NULL);
    array y =
        make_array(type, t->c, t->m, t->n, t->batch_rank, t->batch_shape, 0, args.c_batch_stride);
    fill_array(&a, type, t->special);
    fill_array(&b, type, t->special);
    fill_array(&c, type, false);
    fill_array(&bias, type, t->special);
    fill_array(&y, type, t->special);
    const size_t c_bytes = (size_t)c.elements * real_size[type];
    void *before = malloc(c_bytes), *expected = malloc(c_bytes);
    assert_true(before && expected);
    memcpy(before, c.memory, c_bytes);
    memcpy(expected, c.memory, c_bytes);

    args.a = a.origin, args.a_row_stride = a.row_stride, args.a_col_stride = a.col_stride;
    args.b = b.origin, args.b_row_stride = b.row_stride, args.b_col_stride = b.col_stride;
    args.c_row_stride = c.row_stride, args.c_col_stride = c.col_stride;
    if (t->bias)
        args.bias = bias.origin, args.bias_stride = bias.col_stride;
    if (t->relu_result)
        args.relu_result = y.origin;
    args.c = expected;
    reference(isa->micro[type], &args);

    for (int i = 0; i < way_count; i++) {
        memcpy(c.memory, before, c_bytes);
        args.c = c.memory;
        args.threads = ways[i].threads;
        args.paths = &ways[i].paths;
        args.workspace = workspace_for(args.paths);
        char *end = memory + MAX_THREADS * args.workspace.bytes;
        gd_unpoison(end, 6); /* a larger workspace's, before */
        memcpy(end, "guard", 6);
        gd_gemm(isa->micro[type], &args);
        if (!same_reals(c.memory, expected, type, c.elements))
            fail_case(isa, type, t, &ways[i]);
        assert_memory_equal(end, "guard", 6);
    }
    args.b = b.origin;
    for (int i = 0; i < way_count && t->batch_rank == 0 && !TEST_UNDER_TSAN; i++)
        check_ahead(isa, type, t, &ways[i], args, before, &c, expected);
    free(before);
    free(expected);
    free(a.memory);
    free(b.memory);
    free(c.memory);
    free(y.memory);
    free(bias.memory);
}

/* As the kernels choose, and by a path, a size of blocks and a number of threads that change from
 * case to case. */
static void check_case(const kernels *isa, int type, const gemm_case *t)
{
    static int turn;
    const gemm_way ways[] = { { paths, 1 },
                              { paths, 2 },
                              { { .block_bytes = blocks[turn / 5 % 4],
                                  .matmul = (gd_matmul_path)(turn % 5) },
                                1 + turn / 20 % 3 } };
    turn++;
    check_ways(isa, type, t, ways, (int)COUNT(ways));
}

static void for_each_isa(void (*check)(const kernels *isa, int type))
{
    for (size_t i = 0; i < COUNT(isas); i++)
        if (test_tries_isa(isas[i].isa))
            for (int type = 0; type < 2; type++)
                check(&isas[i], type);
}

/* Tests --------------------------------------------------------------------------------------- */

/* Every height and width of tile, around every block edge, in the four plain layouts. */
static void check_tiles(const kernels *isa, int type)
{
    static const int64_t depths[] = { 1, 5, 257 };
    int number = 0;
    for (int64_t m = 1; m <= 30; m++)
        for (int64_t n = 1; n <= 34; n += n < 18 ? 1 : 5)
            for (int layouts = 0; layouts < 8; layouts++) {
                if (!test_tries(&number))
                    continue;
                const gemm_case t = {
                    .m = m,
                    .n = n,
                    .k = depths[(m + n + layouts) % 3],
                    .a = layouts & 1 ? COLUMNS : ROWS,
                    .b = layouts & 2 ? COLUMNS : ROWS,
                    .c = layouts & 4 ? COLUMNS : ROWS,
                    .bias = (m + n) & 1,
                    .bias_stride = 1,
                    .relu = (m + n) & 2,
                    .relu_result = (m + n + layouts / 4) % 3 == 0,
                };
                check_case(isa, type, &t);
            }
}

static void test_tiles(void **state)
{
    (void)state;
    for_each_isa(check_tiles);
}

static gemm_case random_case(void)
{
    static const int64_t sizes[] = { 0,  1,  2,  3,   5,   7,   8,   13,  16, 17,
                                     31, 33, 64, 100, 255, 256, 257, 513, 784 };
    static const int64_t bias_strides[] = { 0, 1, 2, -1 };
    gemm_case t = { 0 };
    do {
        t.m = sizes[random_below(COUNT(sizes))];
        t.n = sizes[random_below(COUNT(sizes))];
        t.k = sizes[random_below(COUNT(sizes))];
    } while (t.m * t.n * t.k > 8000000);
    t.a = (enum layout)random_below(LAYOUTS);
    t.b = (enum layout)random_below(LAYOUTS);
    t.c = (enum layout)random_below(WRITABLE_LAYOUTS);
    if (t.m * t.n * t.k < 200000) {
        t.batch_rank = (int)random_below(GD_GEMM_BATCH_RANK + 1);
        for (int d = 0; d < t.batch_rank; d++)
            t.batch_shape[d] =
                random_below(30) == 0 ? 0 : 1 + random_below(t.batch_rank > 3 ? 2 : 4);
        t.a_shared = (unsigned)(random_bits() & random_bits());
        t.b_shared = (unsigned)random_bits();
    }
    t.bias = random_below(2);
    t.bias_stride = bias_strides[random_below(COUNT(bias_strides))];
    t.relu = random_below(2);
    t.relu_result = random_below(3) == 0;
    t.special = random_below(8) == 0;
    return t;
}

static void check_random(const kernels *isa, int type)
{
    int number = 0;
    for (int i = 0; i < 400; i++) {
        const gemm_case t = random_case();
        if (test_tries(&number))
            check_case(isa, type, &t);
    }
}

static void test_random(void **state)
{
    (void)state;
    for_each_isa(check_random);
}

/* Sizes at which every block edge is crossed, rows lie pages apart, and eight threads all have
 * work. */
static void check_large(const kernels *isa, int type)
{
    static const gemm_case cases[] = {
        { .m = 140, .n = 1100, .k = 270, .bias = true },
        { .m = 140, .n = 1024, .k = 300, .relu = true },
        { .m = 140, .n = 1024, .k = 300, .relu_result = true },
        { .m = 530, .n = 70, .k = 1024 },
        { .m = 530,
          .n = 257,
          .k = 258,
          .a = COLUMNS,
          .bias = true,
          .bias_stride = 1,
          .relu = true },
        { .m = 140, .n = 1100, .k = 270, .a = COLUMNS, .b = COLUMNS },
        { .m = 530, .n = 70, .k = 270, .a = SPARSE, .b = SPARSE, .c = SPARSE, .bias = true },
        { .m = 1100, .n = 3, .k = 784, .bias = true, .bias_stride = 1 },
        { .m = 3, .n = 1100, .k = 600, .b = COLUMNS },
        { .m = 1, .n = 5001, .k = 784, .relu = true },
        { .m = 1, .n = 5001, .k = 784, .relu_result = true },
        { .m = 1, .n = 3001, .k = 785, .b = COLUMNS, .bias = true, .bias_stride = 2 },
        { .m = 3001, .n = 1, .k = 785 },
        { .m = 5001, .n = 1, .k = 785, .a = PADDED_COLUMNS, .c = SPARSE },
        { .m = 1, .n = 1, .k = 100001 },
        { .m = 1, .n = 768, .k = 769, .bias = true, .bias_stride = 1, .special = true },
        { .m = 1, .n = 1003, .k = 1030, .b = PADDED_ROWS, .bias = true, .relu = true },
        { .m = 1, .n = 300, .k = 1783, .b = PADDED_ROWS, .bias = true, .special = true },
        { .m = 1, .n = 129, .k = 2300, .c = SPARSE },
        { .m = 1, .n = 4096, .k = 257, .bias = true, .bias_stride = 1, .relu = true },
        { .m = 1, .n = 70, .k = 8200, .c = SPARSE, .bias = true, .bias_stride = -1 },
        { .m = 900, .n = 1, .k = 600, .a = COLUMNS, .bias = true, .special = true },
        { .m = 2, .n = 530, .k = 770, .b = PADDED_ROWS, .special = true },
        { .m = 17, .n = 520, .k = 530, .a = SPARSE, .bias = true, .relu = true },
        { .m = 33, .n = 515, .k = 1025, .bias = true, .bias_stride = 1 },
        { .m = 1, .n = 703, .k = 900, .b = COLUMNS, .bias = true, .special = true },
        { .m = 40, .n = 50, .k = 300, .batch_rank = 1, .batch_shape = { 3 } },
        { .m = 256, .n = 256, .k = 64, .batch_rank = 2, .batch_shape = { 2, 4 }, .b = COLUMNS },
        { .m = 50, .n = 64, .k = 64, .batch_rank = 2, .batch_shape = { 5, 7 }, .b_shared = 3 },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        if (!test_is_slow() || (int)i % 2 == type)
            check_case(isa, type, &cases[i]);
}

static void test_large(void **state)
{
    (void)state;
    for_each_isa(check_large);
}

/* Columns about as many as a packed block holds, and products of one row whose sums just fit in the
 * scratch of all threads. */
static void check_capacity(const kernels *isa, int type)
{
    for (int b = 0; b < (int)COUNT(blocks); b++) {
        const int64_t columns = (int64_t)(blocks[b] / real_size[type] / GD_GEMM_KC);
        const int64_t room = (int64_t)((blocks[b] + GD_GEMM_PANEL_BYTES) / sizeof(float));
        const gemm_case cases[] = {
            { .m = 15, .n = columns - 1, .k = 257 },
            { .m = 7, .n = columns, .k = 256, .b = COLUMNS },
            { .m = 14, .n = columns + 1, .k = 256, .a = COLUMNS },
            { .m = columns + 1, .n = 9, .k = 300, .c = COLUMNS },
            { .m = 1, .n = 4096, .k = LEAST(room / 4096, 10) * GD_GEMM_KC },
            { .m = 1, .n = 4095, .k = LEAST(room / 4096, 10) * GD_GEMM_KC + 1, .bias = true },
        };
        for (int i = 0; i < (int)COUNT(cases); i++) {
            if (test_is_slow() && (i + type) % (int)COUNT(blocks) != b)
                continue;
            gemm_way ways[GD_MATMUL_TRANSPOSED + 1];
            for (int path = 0; path < (int)COUNT(ways); path++)
                ways[path] = (gemm_way){
                    { .block_bytes = blocks[b], .matmul = (gd_matmul_path)path },
                    cases[i].m == 1 ? 2 : thread_counts[(b + i + path) % (int)COUNT(thread_counts)]
                };
            check_ways(isa, type, &cases[i], ways, (int)COUNT(ways));
        }
    }
}

static void test_capacity(void **state)
{
    (void)state;
    for_each_isa(check_capacity);
}

/* The references against the product in long double: |error| <= (k+1) eps sum |a||b|, Higham
 * (2002), section 3.5. */
static void check_reference(const kernels *isa, int type)
{
    enum { M = 5, N = 7, K = 700 };
    static double numbers[M * K + K * N];
    static float a32[M * K], b32[K * N];
    double *a = numbers, *b = numbers + M * K;
    for (int i = 0; i < M * K; i++)
        a[i] = a32[i] = (float)random_real(false);
    for (int i = 0; i < K * N; i++)
        b[i] = b32[i] = (float)random_real(false);
    float c32[M * N];
    double c64[M * N];
    const gd_gemm_args args = {
        .m = M,
        .n = N,
        .k = K,
        .a = type ? (void *)a : a32,
        .a_row_stride = K,
        .a_col_stride = 1,
        .b = type ? (void *)b : b32,
        .b_row_stride = N,
        .b_col_stride = 1,
        .c = type ? (void *)c64 : c32,
        .c_row_stride = N,
        .c_col_stride = 1,
        .threads = 1,
    };
    reference(isa->micro[type], &args);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            long double sum = 0, magnitude = 0;
            for (int p = 0; p < K; p++) {
                const long double x = (long double)a[i * K + p] * b[p * N + j];
                sum += x;
                magnitude += fabsl(x);
            }
            const long double unit = type ? DBL_EPSILON : FLT_EPSILON;
            const long double error = fabsl(get(args.c, type, i * N + j) - sum);
            assert_true(error <= (K + 1) * unit * magnitude);
        }
}

static void test_reference(void **state)
{
    (void)state;
    for_each_isa(check_reference);
}

/* Nothing to write: nothing is touched, not even a pointer. */
/* The operands are NULL: reading or writing any ends the program. */
static void check_empty(const kernels *isa, int type)
{
    gd_gemm(isa->micro[type],
            &(gd_gemm_args){ .m = 0, .n = 5, .k = 5, .threads = 2, .paths = &paths });
    gd_gemm(isa->micro[type],
            &(gd_gemm_args){ .m = 5, .n = 0, .k = 5, .threads = 2, .paths = &paths });
    gd_gemm(isa->micro[type],
            &(gd_gemm_args){
                .m = 5, .n = 5, .k = 5, .batch_rank = 2, .batch_shape = { 3, 0 }, .threads = 2 });
}

static void test_empty(void **state)
{
    (void)state;
    for_each_isa(check_empty);
}

static void test_join_batch(void **state)
{
    (void)state;
    gd_gemm_args args = {
        .m = 4, .n = 6, .k = 5, .a_row_stride = 5, .c_row_stride = 6, .batch_rank = 3
    };
    memcpy(args.batch_shape, (int64_t[]){ 3, 1, 2 }, 3 * sizeof(int64_t));
    memcpy(args.a_batch_stride, (int64_t[]){ 40, 40, 20 }, 3 * sizeof(int64_t));
    memcpy(args.c_batch_stride, (int64_t[]){ 48, 48, 24 }, 3 * sizeof(int64_t));
    gd_gemm_args own_b = args;
    assert_int_equal(gd_gemm_join_batch(&args), 1); /* one B for all: rows of one product */
    assert_int_equal(args.m, 24);
    assert_int_equal(args.batch_rank, 0);

    memcpy(own_b.b_batch_stride, (int64_t[]){ 60, 60, 30 }, 3 * sizeof(int64_t));
    assert_int_equal(gd_gemm_join_batch(&own_b), 6);
    assert_int_equal(own_b.m, 4);
    assert_int_equal(own_b.batch_rank, 1);
    assert_int_equal(own_b.b_batch_stride[0], 30);
}

static int64_t pieces_of(int64_t m, int64_t n, int64_t batch, int wanted)
{
    const gd_gemm_work work = { m, n, batch, .lanes = 16, .packing = 4 };
    int64_t rows, columns;
    gd_gemm_divide(&work, wanted, &rows, &columns);
    return 100 * rows + columns;
}

/* Every division covers [m, n] with at most `wanted` rounds of pieces, and makes as many as are wanted
 * where it can. */
static void test_divide(void **state)
{
    (void)state;
    assert_int_equal(pieces_of(2048, 2048, 1, 2), 102);
    assert_int_equal(pieces_of(50, 16, 1, 2),
                     201); /* one vector of columns: only rows can be cut */
    assert_int_equal(pieces_of(1, 4096, 1, 8), 108);
    assert_int_equal(pieces_of(256, 256, 8, 2), 101); /* whole products for each thread */
    assert_int_equal(pieces_of(256, 256, 3, 2), 102);
}

static int64_t pieces_cut(int packing, int64_t m, int64_t k, int64_t n, int threads)
{
    const gd_gemm_work work = { m, n, 1, .lanes = 16, packing };
    int64_t rows, columns;
    gd_gemm_cut(&work, k, threads, &rows, &columns);
    return rows * columns;
}

/* Long products are cut into several pieces a thread, as far as these do not pack too much again. */
static void test_cut(void **state)
{
    (void)state;
    assert_int_equal(pieces_cut(4, 2048, 2048, 2048, 2), 8);
    assert_int_equal(pieces_cut(4, 2048, 2048, 2048, 1), 1);
    assert_int_equal(pieces_cut(4, 128, 128, 128, 2), 2);    /* short */
    assert_int_equal(pieces_cut(4, 16, 262144, 2048, 2), 2); /* thin */
    assert_int_equal(pieces_cut(4, 1536, 2048, 384, 2), 4);
    assert_int_equal(pieces_cut(12, 1536, 2048, 384, 2), 2); /* packing is dearer */
}

static int set_up(void **state)
{
    (void)state;
    if (gd_paths_read(&paths) != GD_OK)
        return -1;
    const gd_paths most = { .block_bytes = blocks[COUNT(blocks) - 1] };
    memory_bytes =
        MAX_THREADS * gd_scratch_bytes(gd_gemm_scratch_bytes(&most), GD_GEMM_SCRATCH_BLOCKS);
    void *block;
    if (posix_memalign(&block, GD_SCRATCH_ALIGN, memory_bytes + 6) != 0)
        return -1;
    memory = block;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(memory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_random),    cmocka_unit_test(test_large),
        cmocka_unit_test(test_empty),     cmocka_unit_test(test_join_batch),
        cmocka_unit_test(test_divide),    cmocka_unit_test(test_cut),
        cmocka_unit_test(test_capacity),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
