/* bench/peak.c: the loops behind peak.h. The multiply-add loops are written per instruction set
 * with target attributes, so that this one file needs no flags of its own.
 */
#include "peak.h"

#include "measure.h"

#include "base/cpu.h"
#include "base/threads.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Independent sums: more than latency times throughput anywhere, fewer than 16 registers. */
#define CHAINS        12
#define ROUNDS        400
#define MEMORY_ROUNDS 15
#define STEPS         200000

typedef double (*fma_loop)(int64_t steps);

/* One multiply-add loop: x = x*y + z on CHAINS vectors. y < 1 keeps x finite and normal. Returns x,
 * lest it be dropped. */
#define FMA_LOOP(name, TARGET, VEC, REAL, SET1, FMA)      \
    TARGET static double name(int64_t steps)              \
    {                                                     \
        VEC x[CHAINS];                                    \
        VEC y = SET1((REAL)0.999), z = SET1((REAL)0.001); \
        for (int i = 0; i < CHAINS; i++)                  \
            x[i] = SET1((REAL)i);                         \
        for (int64_t step = 0; step < steps; step++) {    \
            x[0] = FMA(x[0], y, z);                       \
            x[1] = FMA(x[1], y, z);                       \
            x[2] = FMA(x[2], y, z);                       \
            x[3] = FMA(x[3], y, z);                       \
            x[4] = FMA(x[4], y, z);                       \
            x[5] = FMA(x[5], y, z);                       \
            x[6] = FMA(x[6], y, z);                       \
            x[7] = FMA(x[7], y, z);                       \
            x[8] = FMA(x[8], y, z);                       \
            x[9] = FMA(x[9], y, z);                       \
            x[10] = FMA(x[10], y, z);                     \
            x[11] = FMA(x[11], y, z);                     \
        }                                                 \
        double total = 0;                                 \
        for (int i = 0; i < CHAINS; i++) {                \
            REAL lanes[sizeof(VEC) / sizeof(REAL)];       \
            memcpy(lanes, &x[i], sizeof lanes);           \
            total += (double)lanes[0];                    \
        }                                                 \
        return total;                                     \
    }

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX512            __attribute__((target("avx512f")))
#define AVX2              __attribute__((target("avx2,fma")))
#define SSE2_F32(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define SSE2_F64(a, b, c) _mm_add_pd(_mm_mul_pd(a, b), c)
FMA_LOOP(loop_avx512_f32, AVX512, __m512, float, _mm512_set1_ps, _mm512_fmadd_ps)
FMA_LOOP(loop_avx512_f64, AVX512, __m512d, double, _mm512_set1_pd, _mm512_fmadd_pd)
FMA_LOOP(loop_avx2_f32, AVX2, __m256, float, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_LOOP(loop_avx2_f64, AVX2, __m256d, double, _mm256_set1_pd, _mm256_fmadd_pd)
FMA_LOOP(loop_baseline_f32, , __m128, float, _mm_set1_ps, SSE2_F32)
FMA_LOOP(loop_baseline_f64, , __m128d, double, _mm_set1_pd, SSE2_F64)
#elif defined(__aarch64__)
#include <arm_neon.h>
#define NEON_F32(a, b, c) vfmaq_f32(c, a, b)
#define NEON_F64(a, b, c) vfmaq_f64(c, a, b)
FMA_LOOP(loop_baseline_f32, , float32x4_t, float, vdupq_n_f32, NEON_F32)
FMA_LOOP(loop_baseline_f64, , float64x2_t, double, vdupq_n_f64, NEON_F64)
#else
#define SCALAR(x)            (x)
#define SCALAR_STEP(a, b, c) ((a) * (b) + (c))
FMA_LOOP(loop_baseline_f32, , float, float, SCALAR, SCALAR_STEP)
FMA_LOOP(loop_baseline_f64, , double, double, SCALAR, SCALAR_STEP)
#endif

static fma_loop choose_loop(gd_isa isa, bool f64, int *bytes)
{
#if defined(__x86_64__)
    if (isa == GD_ISA_AVX512) {
        *bytes = 64;
        return f64 ? loop_avx512_f64 : loop_avx512_f32;
    }
    if (isa == GD_ISA_AVX2) {
        *bytes = 32;
        return f64 ? loop_avx2_f64 : loop_avx2_f32;
    }
    *bytes = 16;
#elif defined(__aarch64__)
    (void)isa;
    *bytes = 16;
#else
    (void)isa;
    *bytes = f64 ? 8 : 4;
#endif
    return f64 ? loop_baseline_f64 : loop_baseline_f32;
}

typedef struct peak_job {
    fma_loop loop;
    volatile double sink[GD_MAX_THREADS];
} peak_job;

static void run_loop(void *context, int64_t begin, int64_t end, int thread)
{
    peak_job *job = context;
    for (int64_t i = begin; i < end; i++)
        job->sink[thread] = job->loop(STEPS);
}

double gd_bench_peak_flops(gd_isa isa, bool f64, int threads)
{
    int bytes;
    peak_job job = { .loop = choose_loop(isa, f64, &bytes) };
    const double lanes = bytes / (f64 ? 8.0 : 4.0);
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = gd_bench_now(threads);
        gd_parallel_for(threads, threads, 1, run_loop, &job);
        const double flops =
            2.0 * lanes * CHAINS * STEPS * threads / (gd_bench_now(threads) - start);
        best = flops > best ? flops : best;
    }
    return best;
}

/* Memory ----------------------------------------------------------------------------------------
 */

#define HUGE_PAGE ((size_t)2 << 20)

size_t gd_bench_uncached_bytes(void)
{
    const size_t least = (size_t)128 << 20;
    const size_t bytes = gd_cache_bytes(3);
    return bytes > least ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : least;
}

/* Doubles an array. */
static int64_t elements(void)
{
    return (int64_t)(gd_bench_uncached_bytes() / sizeof(double));
}

typedef struct memory_job {
    double *a, *b, *c;
    volatile double sink[GD_MAX_THREADS];
} memory_job;

static void fill_arrays(void *context, int64_t begin, int64_t end, int thread)
{
    const memory_job *job = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        job->a[i] = (double)i;
        job->b[i] = 1;
        job->c[i] = 0;
    }
}

/* Compiled for each vector width; the processor's is taken when the program starts. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_WIDTH
#endif

FOR_EACH_WIDTH
static void read_array(void *context, int64_t begin, int64_t end, int thread)
{
    memory_job *job = context;
    const double *a = job->a;
    double sum[32] = { 0 }; /* enough chains that memory, not addition, is what one waits for */
    int64_t i = begin;
    for (; i + 32 <= end; i += 32)
        for (int j = 0; j < 32; j++)
            sum[j] += a[i + j];
    for (; i < end; i++)
        sum[0] += a[i];
    for (int j = 1; j < 32; j++)
        sum[0] += sum[j];
    job->sink[thread] = sum[0];
}

/* With stores that do not read what they overwrite, where there are such. */
static void copy_array(void *context, int64_t begin, int64_t end, int thread)
{
    const memory_job *job = context;
    int64_t i = begin;
    (void)thread;
#ifdef __SSE2__
    bool aligned = ((uintptr_t)(job->c + i) | (uintptr_t)(job->a + i)) % sizeof(__m128d) == 0;
    for (; aligned && i + 8 <= end; i += 8)
        for (int j = 0; j < 8; j += 2)
            _mm_stream_pd(job->c + i + j, _mm_load_pd(job->a + i + j));
    _mm_sfence();
#endif
    memcpy(job->c + i, job->a + i, (size_t)(end - i) * sizeof(double));
}

static void triad_arrays(void *context, int64_t begin, int64_t end, int thread)
{
    const memory_job *job = context;
    const double *restrict a = job->a, *restrict b = job->b;
    double *restrict c = job->c;
    int64_t i = begin;
    (void)thread;
#ifdef __SSE2__
    const __m128d three = _mm_set1_pd(3.0);
    for (; i % 2 == 0 && i + 2 <= end; i += 2)
        _mm_stream_pd(c + i, _mm_add_pd(_mm_load_pd(a + i), _mm_mul_pd(three, _mm_load_pd(b + i))));
    _mm_sfence();
#endif
    for (; i < end; i++)
        c[i] = a[i] + 3.0 * b[i];
}

static double best_bandwidth(int threads, gd_range_fn fn, memory_job *job, int64_t count,
                             double bytes)
{
    double best = 0;
    for (int round = 0; round < MEMORY_ROUNDS; round++) {
        const double start = gd_bench_now(threads);
        gd_parallel_for(threads, count, 1, fn, job);
        best = fmax(best, bytes / (gd_bench_now(threads) - start));
    }
    return best;
}

/* Three arrays, one behind the other; to be freed: a. */
static bool make_arrays(int threads, memory_job *job)
{
    const size_t size = 3 * gd_bench_uncached_bytes();
    job->a = aligned_alloc(HUGE_PAGE, size);
    if (!job->a)
        return false;
#ifdef MADV_HUGEPAGE
    (void)madvise(job->a, size, MADV_HUGEPAGE); /* as the library does */
#endif
    job->b = job->a + elements();
    job->c = job->a + 2 * elements();
    gd_parallel_for(threads, elements(), 1, fill_arrays, job);
    return true;
}

void gd_bench_read_bytes(const void *data, size_t bytes, int threads)
{
    memory_job job = { .a = (double *)(uintptr_t)data };
    gd_parallel_for(threads, (int64_t)(bytes / sizeof(double)), 8 * 1024, read_array, &job);
}

void gd_bench_copy_bytes(void *to, const void *from, size_t bytes, int threads)
{
    memory_job job = { .a = (double *)(uintptr_t)from, .c = to };
    gd_parallel_for(threads, (int64_t)(bytes / sizeof(double)), 8 * 1024, copy_array, &job);
}

double gd_bench_read_rate(int threads)
{
    enum { READS = 11 };
    memory_job job = { 0 };
    double rates[READS];
    if (!make_arrays(threads, &job))
        return NAN;
    for (int i = 0; i < READS; i++) {
        const double start = gd_bench_now(threads);
        gd_parallel_for(threads, 3 * elements(), 1, read_array, &job);
        rates[i] = 3.0 * (double)gd_bench_uncached_bytes() / (gd_bench_now(threads) - start);
    }
    free(job.a);
    return gd_bench_median(rates, READS);
}

bool gd_bench_memory(int threads, gd_bench_bandwidth *result)
{
    memory_job job = { 0 };
    if (!make_arrays(threads, &job))
        return false;
    const double array = (double)gd_bench_uncached_bytes();
    /* Of one array the L3 cache would keep a part till the next round: all three are read. */
    result->read = best_bandwidth(threads, read_array, &job, 3 * elements(), 3 * array);
    result->copy = best_bandwidth(threads, copy_array, &job, elements(), 2 * array);
    result->triad = best_bandwidth(threads, triad_arrays, &job, elements(), 3 * array);
    free(job.a);
    return true;
}
