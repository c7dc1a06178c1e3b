/* bench/bench_matmul.c: the matrix product of the CPU back end against oneDNN and OpenBLAS, and
 * against the multiply-adds this machine can do. One JSON object a line on stdout, a table on
 * stderr. Start reading at bench_shape().
 *
 * Every result is compared with a product in double first. Ours and the peers take turns within
 * each round, on the same operands (which stay in the cache if they fit, as a layer's weights do),
 * and the median of the rounds counts. oneDNN is given its sgemm and its matmul primitive, and the
 * faster of the two is the peer. One thread is timed by the processor's time, several by the clock
 * on the wall. Between turns there is a pause, so that a
 * peer's waiting threads (OpenMP's spin for milliseconds) hold no core while another is timed.
 * OPENBLAS_CORETYPE and such are cleared lest it run a kernel for another processor.
 *
 * usage: bench_matmul [part of a case's name]
 */
#include "measure.h"
#include "peak.h"

#include "backend/cpu/gemm.h"
#include "base/cpu.h"
#include <gradus/base.h>

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef GD_HAVE_DNNL
#include <dnnl.h>
#endif

#define COUNT(array)   (sizeof(array) / sizeof(array)[0])
#define MOST_THREADS   2
#define ROUNDS         15
#define SAMPLE_SECONDS 2e-3

enum peer { ONEDNN, OPENBLAS, PEERS };
static const char *const peer_names[PEERS] = { "oneDNN", "OpenBLAS" };

typedef struct shape {
    int64_t batch, m, k, n;
    bool a_transposed; /* A lies in memory as [k, m] */
    bool f64;
} shape;

static const shape shapes[] = {
    { 1, 64, 64, 64, false, false },
    { 1, 128, 128, 128, false, false },
    { 1, 256, 256, 256, false, false },
    { 1, 512, 512, 512, false, false },
    { 1, 1024, 1024, 1024, false, false },
    { 1, 2048, 2048, 2048, false, false },
    { 1, 50, 784, 16, false, false },
    { 1, 784, 50, 16, true, false }, /* the gradient of the weights of the layer above */
    { 1, 64, 784, 512, false, false },
    { 1, 512, 512, 10, false, false },
    { 1, 2048, 384, 1536, false, false },
    { 8, 256, 64, 256, false, false }, /* eight attention heads */
    { 1, 512, 512, 512, false, true },
    { 1, 1024, 1024, 1024, false, true },
};

/* One product and all that runs it. a, b, c are float or double, as the shape says. */
typedef struct problem {
    shape shape;
    int threads;
    void *a, *b, *c;
    gd_gemm_args args;
#ifdef GD_HAVE_DNNL
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
#endif
} problem;

static struct {
    gd_isa isa;
    gd_gemm_fn gemm[2];
    void *workspace;
    double peak[2][MOST_THREADS + 1]; /* [f64][threads], FLOP/s */
    const char *filter;
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
    void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int,
                  double, double *, int);
    void (*blas_threads)(int);
    char peer_versions[PEERS][64];
#ifdef GD_HAVE_DNNL
    dnnl_engine_t engine;
    dnnl_stream_t stream;
#endif
    double ratio_logs[PEERS][MOST_THREADS + 1];
    int ratio_counts[PEERS][MOST_THREADS + 1];
} bench;

static void die(const char *what)
{
    fprintf(stderr, "bench_matmul: %s\n", what);
    exit(1);
}

/* Ways to run a problem -------------------------------------------------------------------------
 */

typedef void (*run_fn)(problem *p);

static void run_ours(problem *p)
{
    bench.gemm[p->shape.f64](&p->args);
}

static void run_openblas(problem *p)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const shape s = p->shape;
    const int m = (int)s.m, n = (int)s.n, k = (int)s.k, lda = s.a_transposed ? m : k;
    const int trans = s.a_transposed ? TRANS : NO_TRANS;
    for (int64_t i = 0; i < s.batch; i++)
        if (s.f64)
            bench.dgemm(ROW_MAJOR, trans, NO_TRANS, m, n, k, 1, (double *)p->a + i * s.m * s.k, lda,
                        (double *)p->b + i * s.k * s.n, n, 0, (double *)p->c + i * s.m * s.n, n);
        else
            bench.sgemm(ROW_MAJOR, trans, NO_TRANS, m, n, k, 1, (float *)p->a + i * s.m * s.k, lda,
                        (float *)p->b + i * s.k * s.n, n, 0, (float *)p->c + i * s.m * s.n, n);
}

#ifdef GD_HAVE_DNNL
static void run_onednn_sgemm(problem *p)
{
    const shape s = p->shape;
    for (int64_t i = 0; i < s.batch; i++)
        dnnl_sgemm(s.a_transposed ? 'T' : 'N', 'N', s.m, s.n, s.k, 1, (float *)p->a + i * s.m * s.k,
                   s.a_transposed ? s.m : s.k, (float *)p->b + i * s.k * s.n, s.n, 0,
                   (float *)p->c + i * s.m * s.n, s.n);
}

static void run_onednn_matmul(problem *p)
{
    const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, p->memory[0] },
                                     { DNNL_ARG_WEIGHTS, p->memory[1] },
                                     { DNNL_ARG_DST, p->memory[2] } };
    dnnl_primitive_execute(p->primitive, bench.stream, 3, args);
    dnnl_stream_wait(bench.stream);
}

static void describe(dnnl_memory_desc_t *desc, int64_t batch, int64_t rows, int64_t columns,
                     bool transposed)
{
    const dnnl_dims_t dims = { batch, rows, columns };
    const dnnl_dims_t strides = { rows * columns, transposed ? 1 : columns, transposed ? rows : 1 };
    if (dnnl_memory_desc_init_by_strides(desc, 3, dims, dnnl_f32, strides) != dnnl_success)
        die("dnnl_memory_desc_init_by_strides failed");
}

static void open_onednn(problem *p)
{
    const shape s = p->shape;
    dnnl_memory_desc_t desc[3];
    describe(&desc[0], s.batch, s.m, s.k, s.a_transposed);
    describe(&desc[1], s.batch, s.k, s.n, false);
    describe(&desc[2], s.batch, s.m, s.n, false);
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t primitive_desc = NULL;
    if (dnnl_matmul_desc_init(&matmul, &desc[0], &desc[1], NULL, &desc[2]) != dnnl_success ||
        dnnl_primitive_desc_create(&primitive_desc, &matmul, NULL, bench.engine, NULL) !=
            dnnl_success ||
        dnnl_primitive_create(&p->primitive, primitive_desc) != dnnl_success)
        die("oneDNN makes no matmul primitive");
    dnnl_primitive_desc_destroy(primitive_desc);
    void *const data[3] = { p->a, p->b, p->c };
    for (int i = 0; i < 3; i++)
        if (dnnl_memory_create(&p->memory[i], &desc[i], bench.engine, data[i]) != dnnl_success)
            die("dnnl_memory_create failed");
}

static void close_onednn(problem *p)
{
    dnnl_primitive_destroy(p->primitive);
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(p->memory[i]);
}
#endif

static void set_threads(int threads)
{
    gd_bench_set_openmp_threads(threads);
    if (bench.blas_threads)
        bench.blas_threads(threads);
}

/* Measuring -------------------------------------------------------------------------------------
 */

static double get(const problem *p, const void *x, int64_t i)
{
    return p->shape.f64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Whether C is the product within (k+1) eps sum |a||b|; in large products, for every seventeenth
 * element or so. */
static bool verify(problem *p, run_fn run)
{
    const shape s = p->shape;
    const int64_t size = s.batch * s.m * s.n;
    memset(p->c, 0xFF, (size_t)size * (s.f64 ? sizeof(double) : sizeof(float)));
    run(p);
    const double unit = s.f64 ? DBL_EPSILON : (double)FLT_EPSILON;
    const int64_t skip = size * s.k > 20000000 ? size * s.k / 20000000 + 17 : 1;
    for (int64_t at = 0; at < size; at += skip) {
        const int64_t batch = at / (s.m * s.n), i = at / s.n % s.m, j = at % s.n;
        double sum = 0, magnitude = 0;
        for (int64_t q = 0; q < s.k; q++) {
            const int64_t a = batch * s.m * s.k + (s.a_transposed ? q * s.m + i : i * s.k + q);
            const double x = get(p, p->a, a) * get(p, p->b, batch * s.k * s.n + q * s.n + j);
            sum += x;
            magnitude += fabs(x);
        }
        if (!(fabs(get(p, p->c, at) - sum) <= (double)(s.k + 1) * unit * magnitude))
            return false;
    }
    return true;
}

static double seconds_per_run(problem *p, run_fn run, int64_t repeats)
{
    run(p); /* threads awake, operands where the last runner left them */
    const double start = gd_bench_now(p->threads);
    for (int64_t i = 0; i < repeats; i++)
        run(p);
    return (gd_bench_now(p->threads) - start) / (double)repeats;
}

static int compare_doubles(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Between thread pools: idle threads of each spin for a while, OpenBLAS's for 2^26 ticks, OpenMP's
 * a millisecond or two, and would take the other's core. */
static void let_threads_sleep(run_fn of)
{
    nanosleep(&(struct timespec){ .tv_nsec = of == run_openblas ? 40000000 : 4000000 }, NULL);
}

/* Median seconds per run of each runner, all of them taking turns. */
static void measure(problem *p, const run_fn *runs, int count, double *seconds)
{
    double samples[4][ROUNDS];
    int64_t repeats[4];
    for (int r = 0; r < count; r++) {
        const double once = fmin(seconds_per_run(p, runs[r], 1), seconds_per_run(p, runs[r], 3));
        repeats[r] = (int64_t)ceil(SAMPLE_SECONDS / fmax(once, 1e-9));
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int r = 0; r < count; r++) {
            const run_fn before = runs[(r + count - 1) % count];
            if (p->threads > 1)
                let_threads_sleep(before);
            samples[r][round] = seconds_per_run(p, runs[r], repeats[r]);
        }
    for (int r = 0; r < count; r++) {
        qsort(samples[r], ROUNDS, sizeof(double), compare_doubles);
        seconds[r] = samples[r][ROUNDS / 2];
    }
}

/* Reporting -------------------------------------------------------------------------------------
 */

static void print_row(const char *name, int threads, const char *metric, double ours, double peer,
                      const char *peer_name, double ratio, double bound_fraction, bool verified)
{
    printf("{\"suite\":\"matmul\",\"case\":\"%s\",\"threads\":%d,\"metric\":\"%s\",\"ours\":%.4g,",
           name, threads, metric, ours);
    if (peer > 0)
        printf("\"peer\":%.4g,\"peer_name\":\"%s\",\"ratio\":%.4g,", peer, peer_name, ratio);
    else
        printf("\"peer\":null,\"peer_name\":null,\"ratio\":null,");
    if (bound_fraction > 0)
        printf("\"bound_fraction\":%.4g,", bound_fraction);
    else
        printf("\"bound_fraction\":null,");
    printf("\"verified\":%s}\n", verified ? "true" : "false");
    fflush(stdout);
}

static void name_shape(const shape *s, char *name, size_t size)
{
    char batch[24] = "";
    if (s->batch > 1)
        snprintf(batch, sizeof batch, "%lldx ", (long long)s->batch);
    snprintf(name, size, "%s%lldx%lldx%lld%s %s", batch, (long long)s->m, (long long)s->k,
             (long long)s->n, s->a_transposed ? " A transposed" : "", s->f64 ? "f64" : "f32");
}

static void compare(problem *p, const char *name)
{
    run_fn runs[4] = { run_ours };
    enum peer peers[4] = { PEERS };
    int count = 1;
#ifdef GD_HAVE_DNNL
    if (!p->shape.f64) {
        open_onednn(p);
        runs[count] = run_onednn_sgemm, peers[count++] = ONEDNN;
        runs[count] = run_onednn_matmul, peers[count++] = ONEDNN;
    }
#endif
    if (bench.sgemm)
        runs[count] = run_openblas, peers[count++] = OPENBLAS;

    bool verified = true;
    for (int r = 0; r < count; r++)
        verified = verify(p, runs[r]) && verified;
    double seconds[4] = { 0 };
    measure(p, runs, count, seconds);
#ifdef GD_HAVE_DNNL
    if (!p->shape.f64)
        close_onednn(p);
#endif

    const shape s = p->shape;
    const double flops = 2.0 * (double)(s.batch * s.m) * (double)(s.n * s.k);
    const double ours = flops / seconds[0] * 1e-9;
    const double peak = bench.peak[s.f64][p->threads] * 1e-9;
    fprintf(stderr, "%-28s %d  %7.1f %4.0f%%", name, p->threads, ours, 100 * ours / peak);
    bool reported = false;
    for (int peer = 0; peer < PEERS; peer++) {
        double best = 0;
        for (int r = 1; r < count; r++)
            if ((int)peers[r] == peer)
                best = fmax(best, flops / seconds[r] * 1e-9);
        if (best == 0) {
            fprintf(stderr, "  %16s", "-");
            continue;
        }
        print_row(name, p->threads, "GFLOP/s", ours, best, bench.peer_versions[peer], ours / best,
                  ours / peak, verified);
        fprintf(stderr, "  %8.1f (%.2fx)", best, ours / best);
        bench.ratio_logs[peer][p->threads] += log(ours / best);
        bench.ratio_counts[peer][p->threads]++;
        reported = true;
    }
    if (!reported)
        print_row(name, p->threads, "GFLOP/s", ours, 0, "", 0, ours / peak, verified);
    fprintf(stderr, "%s\n", verified ? "" : "  WRONG RESULT");
    if (!verified)
        die("a result is wrong");
}

static void *allocate(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, 4096, bytes) != 0)
        die("out of memory");
    return memory;
}

static void fill(void *x, bool f64, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        const double number = (double)(int32_t)seed / 2147483648.0;
        if (f64)
            ((double *)x)[i] = number;
        else
            ((float *)x)[i] = (float)number;
    }
}

static void bench_shape(const shape *s, int threads)
{
    char name[64];
    name_shape(s, name, sizeof name);
    if (bench.filter && !strstr(name, bench.filter))
        return;
    const size_t size = s->f64 ? sizeof(double) : sizeof(float);
    problem p = {
        .shape = *s,
        .threads = threads,
        .a = allocate((size_t)(s->batch * s->m * s->k) * size),
        .b = allocate((size_t)(s->batch * s->k * s->n) * size),
        .c = allocate((size_t)(s->batch * s->m * s->n) * size),
    };
    fill(p.a, s->f64, s->batch * s->m * s->k, 1);
    fill(p.b, s->f64, s->batch * s->k * s->n, 2);
    p.args = (gd_gemm_args){
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a = p.a,
        .a_row_stride = s->a_transposed ? 1 : s->k,
        .a_col_stride = s->a_transposed ? s->m : 1,
        .b = p.b,
        .b_row_stride = s->n,
        .b_col_stride = 1,
        .c = p.c,
        .c_row_stride = s->n,
        .c_col_stride = 1,
        .batch_rank = s->batch > 1,
        .batch_shape = { s->batch },
        .a_batch_stride = { s->m * s->k },
        .b_batch_stride = { s->k * s->n },
        .c_batch_stride = { s->m * s->n },
        .threads = threads,
        .workspace = bench.workspace,
    };
    set_threads(threads);
    compare(&p, name);
    free(p.a);
    free(p.b);
    free(p.c);
}

/* Products so small or thin that the time of one call says more than a rate. No peer. */
static void bench_call(const char *name, gd_gemm_args args)
{
    if (bench.filter && !strstr(name, bench.filter))
        return;
    const shape s = { 1, args.m, args.k, args.n, args.a_row_stride == 1 && args.m > 1, false };
    problem p = { .shape = s, .threads = 1, .args = args };
    p.a = allocate((size_t)(s.m * s.k) * sizeof(float));
    p.b = allocate((size_t)(s.k * s.n) * sizeof(float));
    p.c = allocate((size_t)(s.m * s.n) * sizeof(float));
    fill(p.a, false, s.m * s.k, 1);
    fill(p.b, false, s.k * s.n, 2);
    p.args.a = p.a;
    p.args.b = p.b;
    p.args.c = p.c;
    p.args.threads = 1;
    p.args.workspace = bench.workspace;
    const bool verified = verify(&p, run_ours);
    const run_fn runs[] = { run_ours };
    double seconds;
    measure(&p, runs, 1, &seconds);
    const double bytes = (double)(s.m * s.k + s.k * s.n + s.m * s.n) * sizeof(float);
    print_row(name, 1, "nanoseconds", seconds * 1e9, 0, "", 0, 0, verified);
    fprintf(stderr, "%-28s 1  %10.1f ns, %.1f GB/s%s\n", name, seconds * 1e9,
            bytes / seconds * 1e-9, verified ? "" : "  WRONG RESULT");
    free(p.a);
    free(p.b);
    free(p.c);
}

static void bench_calls(void)
{
    static const int64_t sizes[][3] = { { 4, 4, 4 },      { 1, 784, 16 }, { 1, 16, 16 },
                                        { 1, 16, 10 },    { 50, 16, 10 }, { 1, 4096, 4096 },
                                        { 4096, 4096, 1 } };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        char name[64];
        snprintf(name, sizeof name, "%lldx%lldx%lld f32", (long long)m, (long long)k, (long long)n);
        bench_call(name, (gd_gemm_args){ .m = m,
                                         .n = n,
                                         .k = k,
                                         .a_row_stride = k,
                                         .a_col_stride = 1,
                                         .b_row_stride = n,
                                         .b_col_stride = 1,
                                         .c_row_stride = n,
                                         .c_col_stride = 1 });
    }
}

/* Setting up ------------------------------------------------------------------------------------
 */

static void choose_kernels(void)
{
    bench.isa = gd_isa_choose();
    switch (bench.isa) {
#ifdef GD_HAVE_AVX512
    case GD_ISA_AVX512:
        bench.gemm[0] = gd_gemm_f32_avx512, bench.gemm[1] = gd_gemm_f64_avx512;
        break;
#endif
#ifdef GD_HAVE_AVX2
    case GD_ISA_AVX2:
        bench.gemm[0] = gd_gemm_f32_avx2, bench.gemm[1] = gd_gemm_f64_avx2;
        break;
#endif
#ifdef GD_HAVE_NEON
    case GD_ISA_NEON:
        bench.gemm[0] = gd_gemm_f32_neon, bench.gemm[1] = gd_gemm_f64_neon;
        break;
#endif
    case GD_ISA_BASELINE:
        bench.gemm[0] = gd_gemm_f32_baseline, bench.gemm[1] = gd_gemm_f64_baseline;
        break;
    default:
        die(gd_error_message());
    }
}

/* dlsym's result as a function pointer, as POSIX has it. */
static void load_function(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

static void open_openblas(void)
{
    static const char *const variables[] = { "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS",
                                             "OPENBLAS_MAIN_FREE", "OPENBLAS_VERBOSE" };
    for (size_t i = 0; i < COUNT(variables); i++)
        if (getenv(variables[i])) {
            fprintf(stderr, "%s=%s cleared\n", variables[i], getenv(variables[i]));
            unsetenv(variables[i]);
        }
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    load_function(library, "cblas_sgemm", &bench.sgemm);
    load_function(library, "cblas_dgemm", &bench.dgemm);
    load_function(library, "openblas_set_num_threads", &bench.blas_threads);
    if (!bench.sgemm || !bench.dgemm || !bench.blas_threads)
        die("libopenblas.so.0 lacks its functions");
    char *(*config)(void) = NULL, *(*corename)(void) = NULL;
    load_function(library, "openblas_get_config", &config);
    load_function(library, "openblas_get_corename", &corename);
    char version[32] = "OpenBLAS";
    if (config)
        sscanf(config(), "OpenBLAS %20s", version);
    snprintf(bench.peer_versions[OPENBLAS], sizeof bench.peer_versions[0], "OpenBLAS %s %s",
             version, corename ? corename() : "");
}

static void open_peers(void)
{
    open_openblas();
#ifdef GD_HAVE_DNNL
    if (dnnl_engine_create(&bench.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&bench.stream, bench.engine, dnnl_stream_default_flags) != dnnl_success)
        die("oneDNN does not start");
    const dnnl_version_t *version = dnnl_version();
    snprintf(bench.peer_versions[ONEDNN], sizeof bench.peer_versions[0], "oneDNN %d.%d.%d",
             version->major, version->minor, version->patch);
#endif
}

static void measure_machine(int threads)
{
    for (int f64 = 0; f64 < 2; f64++) {
        bench.peak[f64][threads] = gd_bench_peak_flops(bench.isa, f64, threads);
        print_row(f64 ? "FMA peak f64" : "FMA peak f32", threads, "GFLOP/s",
                  bench.peak[f64][threads] * 1e-9, 0, "", 0, 1, true);
    }
    gd_bench_bandwidth memory = { 0 };
    if (!gd_bench_memory(threads, &memory))
        die("out of memory");
    print_row("memory read", threads, "GB/s", memory.read * 1e-9, 0, "", 0, 1, true);
    print_row("memory copy", threads, "GB/s", memory.copy * 1e-9, 0, "", 0, 1, true);
    print_row("memory triad", threads, "GB/s", memory.triad * 1e-9, 0, "", 0, 1, true);
    fprintf(stderr,
            "\n%d thread%s: peak %.1f GFLOP/s f32, %.1f f64; memory %.1f GB/s read, %.1f copy, "
            "%.1f triad\n",
            threads, threads > 1 ? "s" : "", bench.peak[0][threads] * 1e-9,
            bench.peak[1][threads] * 1e-9, memory.read * 1e-9, memory.copy * 1e-9,
            memory.triad * 1e-9);
    fprintf(stderr, "%-28s thr  GFLOP/s peak  %16s  %16s\n", "case (m x k x n)", "oneDNN",
            "OpenBLAS");
}

static void report_means(int most_threads)
{
    for (int threads = 1; threads <= most_threads; threads++)
        for (int peer = 0; peer < PEERS; peer++) {
            const int count = bench.ratio_counts[peer][threads];
            if (count == 0)
                continue;
            const double mean = exp(bench.ratio_logs[peer][threads] / count);
            print_row("geometric mean", threads, "ratio", mean, 1, bench.peer_versions[peer], mean,
                      0, true);
            fprintf(stderr, "geometric mean, %d thread%s, %d shapes: %.3f x %s\n", threads,
                    threads > 1 ? "s" : "", count, mean, peer_names[peer]);
        }
}

int main(int argc, char **argv)
{
    bench.filter = argc > 1 ? argv[1] : NULL;
    choose_kernels();
    open_peers();
    const int most_threads = gd_cpu_count() < MOST_THREADS ? gd_cpu_count() : MOST_THREADS;
    const size_t workspace = gd_gemm_workspace_bytes(most_threads);
    bench.workspace = allocate(workspace);
    memset(bench.workspace, 0, workspace);
    fprintf(stderr, "%s, %s kernels\n", gd_cpu_model(), gd_isa_name(bench.isa));
    for (int threads = 1; threads <= most_threads; threads++) {
        measure_machine(threads);
        for (size_t i = 0; i < COUNT(shapes); i++)
            bench_shape(&shapes[i], threads);
        if (threads == 1)
            bench_calls();
    }
    report_means(most_threads);
    free(bench.workspace);
    return 0;
}
