/* tests/test_gemm_half.c: products of bfloat16 and of f16 with sums in f32, and of f32 as three of bfloat16, against
 * the product in double, within the bounds of gemm_half.h, by every kind of kernel that this machine runs;
 * and that neither the number of threads nor the blocking changes a bit. C lies in a buffer of known bytes, which must
 * be the same afterwards.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/gemm_half.h"
#include "base/half.h"
#include "support/effort.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define THREADS      3

typedef struct kernels {
    const char *name;
    gd_isa isa;
    int extension; /* or -1 */
    const gd_gemm_micro *micro;
} kernels;

static const kernels kinds[] = {
    { "bf16 widened, baseline", GD_ISA_BASELINE, -1, &gd_gemm_bf16_baseline },
    { "f16 widened, baseline", GD_ISA_BASELINE, -1, &gd_gemm_f16_baseline },
#ifdef GD_HAVE_AVX2
    { "bf16 widened, AVX2", GD_ISA_AVX2, -1, &gd_gemm_bf16_avx2 },
    { "f16 widened, AVX2", GD_ISA_AVX2, -1, &gd_gemm_f16_avx2 },
#endif
#ifdef GD_HAVE_AVX512
    { "bf16 widened, AVX-512", GD_ISA_AVX512, -1, &gd_gemm_bf16_avx512 },
    { "f16 widened, AVX-512", GD_ISA_AVX512, -1, &gd_gemm_f16_avx512 },
#endif
#ifdef GD_HAVE_NEON
    { "bf16 widened, NEON", GD_ISA_NEON, -1, &gd_gemm_bf16_neon },
    { "f16 widened, NEON", GD_ISA_NEON, -1, &gd_gemm_f16_neon },
#endif
#ifdef GD_HAVE_AVX512_BF16
    { "AVX512-BF16", GD_ISA_AVX512, GD_CPU_AVX512_BF16, &gd_gemm_bf16_pairs },
    { "bf16x3, AVX512-BF16", GD_ISA_AVX512, GD_CPU_AVX512_BF16, &gd_gemm_bf16x3_pairs },
#endif
#ifdef GD_HAVE_AMX_BF16
    { "AMX", GD_ISA_AVX512, GD_CPU_AMX_BF16, &gd_gemm_bf16_tiles },
#endif
#if defined(GD_HAVE_AMX_BF16) && defined(GD_HAVE_AVX512_BF16)
    { "bf16x3, AMX", GD_ISA_AVX512, GD_CPU_AMX_BF16, &gd_gemm_bf16x3_tiles },
#endif
#ifdef GD_HAVE_NEON_BF16
    { "BFMMLA", GD_ISA_NEON, GD_CPU_NEON_BF16, &gd_gemm_bf16_mmla },
#endif
};

static bool runs(const kernels *k)
{
    return test_tries_isa(k->isa) &&
           (k->extension < 0 || gd_cpu_has((gd_cpu_extension)k->extension));
}

static uint64_t state = 0x9E3779B97F4A7C15u;

static int64_t below(int64_t n) /* xorshift64*, Vigna 2016 */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545F4914F6CDD1Du >> 32) % (uint64_t)n);
}

static uint16_t half_of(gd_dtype dtype, float x)
{
    return dtype == GD_F16 ? gd_f32_to_f16(x) : gd_f32_to_bf16(x);
}

static size_t number_bytes(gd_dtype dtype)
{
    return dtype == GD_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void set_number(void *numbers, gd_dtype dtype, int64_t i, float x)
{
    if (dtype == GD_F32)
        ((float *)numbers)[i] = x;
    else
        ((uint16_t *)numbers)[i] = half_of(dtype, x);
}

/* An operand [rows, columns] whose last number ends where its memory ends. */
typedef struct matrix {
    gd_dtype dtype;
    void *memory;
    int64_t row, column, count;
} matrix;

static matrix make_matrix(gd_dtype dtype, int64_t rows, int64_t columns, int layout)
{
    matrix x = { .dtype = dtype, .row = columns, .column = 1 };
    if (layout == 1)
        x.row = 1, x.column = rows;
    else if (layout == 2)
        x.row = 2 * columns + 3, x.column = 2;
    x.count = (rows - 1) * x.row + (columns - 1) * x.column + 1;
    x.memory = malloc((size_t)x.count * number_bytes(dtype));
    assert_non_null(x.memory);
    for (int64_t i = 0; i < x.count; i++)
        set_number(x.memory, dtype, i, (float)below(1 << 24) / (1 << 23) - 1.0f);
    return x;
}

typedef struct gemm_case {
    int64_t m, n, k;
    int a, b;          /* layouts: rows, columns, neither contiguous */
    bool c_transposed; /* columns of C are contiguous */
    bool bias, relu, relu_result, accumulate;
} gemm_case;

static double at(const matrix *x, int64_t i, int64_t j)
{
    const int64_t index = i * x->row + j * x->column;
    if (x->dtype == GD_F32)
        return (double)((const float *)x->memory)[index];
    const uint16_t half = ((const uint16_t *)x->memory)[index];
    return (double)(x->dtype == GD_F16 ? gd_f16_to_f32(half) : gd_bf16_to_f32(half));
}

/* What a result of k steps may be off, in units of the sum of magnitudes: gemm_half.h. Two more additions are
 * of what C held and the bias. */
static double bound(gd_dtype dtype, int64_t k)
{
    const double sums = (double)(k + 3) * FLT_EPSILON;
    return dtype == GD_F32 ? 3 * sums + 0x1p-14 : sums;
}

/* c, computed from what C held before, against the sum in double. */
static void check_numbers(const kernels *kind, const gemm_case *t, const matrix *a, const matrix *b,
                          const gd_gemm_args *args, const float *before)
{
    const float *bias = args->bias, *y = args->relu_result, *c = args->c;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            const int64_t place = i * args->c_row_stride + j * args->c_col_stride;
            double sum = t->accumulate ? (double)before[place] : 0, size = fabs(sum);
            for (int64_t p = 0; p < t->k; p++) {
                const double x = at(a, i, p) * at(b, p, j);
                sum += x;
                size += fabs(x);
            }
            sum += bias ? (double)bias[j] : 0;
            size += bias ? fabs((double)bias[j]) : 0;
            if ((t->relu && sum < 0) || (y && !(y[place] > 0)))
                sum = 0;
            if (!(fabs((double)c[place] - sum) <= bound(a->dtype, t->k) * size))
                fail_msg("%s: [%lld, %lld] @ [%lld, %lld], layouts %d %d: C[%lld, %lld] is %.9g, "
                         "not %.9g",
                         kind->name, (long long)t->m, (long long)t->k, (long long)t->k,
                         (long long)t->n, t->a, t->b, (long long)i, (long long)j, (double)c[place],
                         sum);
        }
}

/* By one thread with large blocks, and by three with small ones. */
static void check_case(const kernels *kind, const gemm_case *t)
{
    const gd_paths paths[] = { { .block_bytes = (size_t)1 << 20 }, { .block_bytes = 128u << 10 } };
    const size_t bytes = gd_scratch_bytes(gd_gemm_scratch_bytes(&paths[0]), GD_GEMM_SCRATCH_BLOCKS);
    const int64_t line = (t->c_transposed ? t->m : t->n) + 3,
                  count = line * (t->c_transposed ? t->n : t->m);
    const gd_dtype dtype = kind->micro->a;
    matrix a = make_matrix(dtype, t->m, t->k, t->a), b = make_matrix(dtype, t->k, t->n, t->b);
    float *memory = aligned_alloc(GD_SCRATCH_ALIGN, THREADS * bytes);
    float *numbers = malloc((size_t)(4 * count + t->n) * sizeof *numbers);
    assert_true(memory && numbers);
    float *before = numbers, *one = before + count, *three = one + count, *y = three + count,
          *bias = y + count;
    for (int64_t i = 0; i < 4 * count + t->n; i++)
        numbers[i] = (float)below(1000) / 500 - 1;
    memcpy(one, before, (size_t)count * sizeof *one);
    memcpy(three, before, (size_t)count * sizeof *one);
    gd_gemm_args args = { .m = t->m,
                          .n = t->n,
                          .k = t->k,
                          .a = a.memory,
                          .a_row_stride = a.row,
                          .a_col_stride = a.column,
                          .b = b.memory,
                          .b_row_stride = b.row,
                          .b_col_stride = b.column,
                          .c = one,
                          .c_row_stride = t->c_transposed ? 1 : line,
                          .c_col_stride = t->c_transposed ? line : 1,
                          .bias = t->bias ? bias : NULL,
                          .bias_stride = 1,
                          .relu = t->relu,
                          .relu_result = t->relu_result ? y : NULL,
                          .accumulate = t->accumulate,
                          .threads = 1,
                          .paths = &paths[0],
                          .workspace = { (char *)memory, bytes, THREADS } };
    gd_gemm(kind->micro, &args);
    if (!TEST_UNDER_TSAN) /* which looks for races, and makes this the longest part */
        check_numbers(kind, t, &a, &b, &args, before);
    for (int64_t i = 0; i < count; i++) /* between the lines */
        if (i % line >= line - 3)
            assert_memory_equal(&one[i], &before[i], sizeof *one);
    args.c = three;
    args.threads = THREADS;
    args.paths = &paths[1];
    gd_gemm(kind->micro, &args);
    assert_memory_equal(one, three, (size_t)count * sizeof *one);
    const size_t lines = gd_gemm_ahead_bytes(kind->micro, t->k, t->n) / GD_SCRATCH_ALIGN + 1;
    char *packed = aligned_alloc(GD_SCRATCH_ALIGN, lines * GD_SCRATCH_ALIGN);
    assert_non_null(packed);
    gd_gemm_pack_ahead(kind->micro, packed, b.memory, b.row, b.column, t->k, t->n);
    memcpy(three, before, (size_t)count * sizeof *one);
    args.b = NULL;
    args.b_packed = packed;
    args.threads = 1;
    gd_gemm(kind->micro, &args);
    assert_memory_equal(one, three, (size_t)count * sizeof *one);
    free(packed);
    free(numbers);
    gd_unpoison(memory, THREADS * bytes);
    free(memory);
    free(a.memory);
    free(b.memory);
}

static void for_each_kind(void (*check)(const kernels *kind))
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (runs(&kinds[i]))
            check(&kinds[i]);
}

/* Every height and width of tile, and depths round the units of the kernels. */
static void check_tiles(const kernels *kind)
{
    static const int64_t depths[] = { 1, 2, 31, 32, 33, 65 };
    int number = 0;
    for (int64_t m = 1; m <= 34; m++)
        for (int64_t n = 1; n <= 34; n += n < 3 ? 1 : 5) {
            if (!test_tries(&number))
                continue;
            const gemm_case t = { .m = m,
                                  .n = n,
                                  .k = depths[(m + n) % 6],
                                  .a = (int)(m % 3),
                                  .b = (int)(n % 3),
                                  .bias = m % 2,
                                  .relu = n % 2 };
            check_case(kind, &t);
        }
}

static void test_tiles(void **unused)
{
    (void)unused;
    for_each_kind(check_tiles);
}

static void check_random(const kernels *kind)
{
    for (int i = 0; i < 40; i += test_is_slow() ? 5 : 1) {
        gemm_case t = { .m = 1 + below(90),
                        .n = 1 + below(90),
                        .k = 1 + below(i % 4 == 0 ? 1200 : 80),
                        .a = (int)below(3),
                        .b = (int)below(3),
                        .c_transposed = below(3) == 0,
                        .accumulate = below(3) == 0 };
        t.bias = !t.accumulate && below(2);
        t.relu = !t.accumulate && below(2);
        t.relu_result = !t.accumulate && below(3) == 0;
        check_case(kind, &t);
    }
}

static void test_random(void **unused)
{
    (void)unused;
    for_each_kind(check_random);
}

/* Several blocks of rows, columns and depth. */
static void check_large(const kernels *kind)
{
    check_case(kind, &(gemm_case){ .m = 70, .n = 600, .k = 1100, .bias = true });
    check_case(kind, &(gemm_case){ .m = 300, .n = 40, .k = 600, .b = 1, .relu = true });
}

static void test_large(void **unused)
{
    (void)unused;
    for_each_kind(check_large);
}

/* C [m, n] = A [m, k] B [k, n], all of them contiguous. */
static void multiply(const gd_gemm_micro *micro, int64_t m, int64_t n, int64_t k, const void *a,
                     const void *b, float *c)
{
    const gd_paths paths = { .block_bytes = (size_t)1 << 20 };
    const size_t bytes = gd_scratch_bytes(gd_gemm_scratch_bytes(&paths), GD_GEMM_SCRATCH_BLOCKS);
    char *memory = aligned_alloc(GD_SCRATCH_ALIGN, bytes);
    assert_non_null(memory);
    gd_gemm(micro, &(gd_gemm_args){ .m = m,
                                    .n = n,
                                    .k = k,
                                    .a = a,
                                    .a_row_stride = k,
                                    .a_col_stride = 1,
                                    .b = b,
                                    .b_row_stride = n,
                                    .b_col_stride = 1,
                                    .c = c,
                                    .c_row_stride = n,
                                    .c_col_stride = 1,
                                    .threads = 1,
                                    .paths = &paths,
                                    .workspace = { memory, bytes, 1 } });
    gd_unpoison(memory, bytes);
    free(memory);
}

/* Zeros that fill up tiles multiply no infinity: one in A's row 1 and B's column 2 reaches the results
 * of that row and that column alone. Odd sizes have zeros behind every edge. */
static void check_infinite(const kernels *kind)
{
    enum { M = 3, N = 5, K = 7 };
    float a[M * K], b[K * N], c[M * N]; /* room for numbers of each dtype */
    const gd_dtype dtype = kind->micro->a;
    for (int i = 0; i < M * K; i++)
        set_number(a, dtype, i, 1);
    for (int i = 0; i < K * N; i++)
        set_number(b, dtype, i, 2);
    set_number(a, dtype, 1 * K + K - 1, INFINITY);
    set_number(b, dtype, (K - 1) * N + 2, NAN);
    multiply(kind->micro, M, N, K, a, b, c);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            if (j == 2)
                assert_true(isnan(c[i * N + j]));
            else
                assert_true(c[i * N + j] == (i == 1 ? INFINITY : 2 * K));
}

static double flushed_number(float x)
{
    return fabsf(x) < FLT_MIN ? 0 : (double)x;
}

/* Numbers whose high parts would round to infinity, infinities, and the smallest, in products of
 * f32 as three of bfloat16. */
static void check_extremes(const kernels *kind)
{
    static const float extremes[] = {
        0x1.fffp127f, -0x1.ff81p127f, 0x1.ffp127f, INFINITY, -INFINITY, 1.0f,
        -1.00001f,    FLT_MIN,        0x1p-149f,   0,        -0.0f
    };
    enum { N = COUNT(extremes) };
    const gd_dtype dtype = kind->micro->a;
    if (dtype != GD_F32)
        return;
    float c[N * N];
    multiply(kind->micro, N, N, 1, extremes, extremes, c);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const double exact = flushed_number(extremes[i]) * flushed_number(extremes[j]);
            const double lost = (double)FLT_MIN * (fabs(flushed_number(extremes[i])) +
                                                   fabs(flushed_number(extremes[j])));
            const float rounded = (float)exact, is = c[i * N + j];
            if (isnan(exact))
                assert_true(isnan(is));
            else if (isinf(rounded))
                assert_true(is == rounded);
            else
                assert_true(fabs((double)is - exact) <= bound(dtype, 1) * fabs(exact) + lost);
        }
}

static void test_extremes(void **unused)
{
    (void)unused;
    for_each_kind(check_extremes);
}

static void test_infinite(void **unused)
{
    (void)unused;
    for_each_kind(check_infinite);
}

#ifdef GD_HAVE_NEON_BF16
/* x, which a double holds, as BFMMLA rounds it: cut off, with a last bit of 1 if that changes it, and 0
 * below 2^-126. */
static double rounded_to_odd(double x)
{
    if (fabs(x) < (double)FLT_MIN)
        return 0;
    float y = (float)x;
    if ((double)y == x)
        return x;
    if (fabs((double)y) > fabs(x))
        y = nextafterf(y, 0);
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    bits |= 1;
    memcpy(&y, &bits, sizeof y);
    return (double)y;
}

static double flushed(uint16_t half)
{
    const double x = (double)gd_bf16_to_f32(half);
    return fabs(x) < (double)FLT_MIN ? 0 : x;
}

/* A block of k of one result: BFMMLA's definition, two steps at a time. a and b have zeros behind an odd
 * depth. */
static double block_by_pairs(const uint16_t *a, const uint16_t *b, int64_t b_row, int64_t depth)
{
    double sum = 0;
    for (int64_t p = 0; p < depth; p += 2) {
        double pair = 0;
        for (int64_t q = p; q < p + 2 && q < depth; q++)
            pair += rounded_to_odd(flushed(a[q]) * flushed(b[q * b_row]));
        sum = rounded_to_odd(sum + rounded_to_odd(pair));
    }
    return sum;
}

/* By the definition in gemm_bf16_mmla.c, bit for bit: of numbers of usual sizes, and of some so small that
 * they, their products and sums count as 0 or nearly do. Doubles hold every sum before it is rounded. */
static void test_bfmmla_by_definition(void **unused)
{
    (void)unused;
    enum { M = 7, N = 9, K = 1031 };
    static uint16_t a[M * K], b[K * N];
    const gd_gemm_micro *micro = &gd_gemm_bf16_mmla;
    float c[M * N];
    if (!gd_cpu_has(GD_CPU_NEON_BF16))
        skip();
    for (int small = 0; small < 2; small++) {
        for (int i = 0; i < M * K; i++)
            a[i] = half_of(GD_BF16,
                           ((float)below(1 << 16) / (1 << 15) - 1.0f) * (small ? 0x1p-122f : 1.0f));
        for (int i = 0; i < K * N; i++)
            b[i] = half_of(GD_BF16, (float)below(1 << 16) / (1 << 15) - 1.0f);
        multiply(micro, M, N, K, a, b, c);
        int zeros = 0;
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int64_t p = 0; p < K; p += micro->depth)
                    sum += (float)block_by_pairs(a + i * K + p, b + p * N + j, N,
                                                 K - p < micro->depth ? K - p : micro->depth);
                assert_true(c[i * N + j] == sum);
                zeros += sum == 0;
            }
        assert_true(zeros < M * N / 2);
    }
}
#endif

/* Each instruction set has kernels of both types, and the best that may be used on this processor comes
 * first. */
static void test_choice(void **unused)
{
    (void)unused;
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        const gd_gemm_micro *of_bf16 = NULL, *of_f16 = NULL;
        for (size_t i = 0; i < COUNT(kinds); i++)
            if (kinds[i].isa == (gd_isa)isa && kinds[i].micro->a != GD_F32 &&
                (kinds[i].extension < 0 || gd_cpu_may_use((gd_cpu_extension)kinds[i].extension)))
                *(kinds[i].micro->a == GD_F16 ? &of_f16 : &of_bf16) = kinds[i].micro;
        assert_ptr_equal(gd_gemm_bf16((gd_isa)isa), of_bf16);
        assert_ptr_equal(gd_gemm_f16((gd_isa)isa), of_f16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_infinite),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_choice),
#ifdef GD_HAVE_NEON_BF16
        cmocka_unit_test(test_bfmmla_by_definition),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
