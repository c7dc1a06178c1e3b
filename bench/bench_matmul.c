/* bench/bench_matmul.c: the matrix product of the CPU back end against oneDNN, OpenBLAS and Intel's
 * MKL, and against the multiply-adds this machine can do. One JSON object a line on stdout, a table
 * on stderr. Start reading at bench_shape().
 *
 * Every result is compared with a product in double first. Ours and the peers take turns within
 * each round, on the same operands (which stay in the cache if they fit, as a layer's weights do),
 * and the median of the rounds counts. oneDNN is given its sgemm and its matmul primitive, and the
 * faster of the two is the peer. Between turns there is a pause, so that a peer's waiting threads
 * (OpenMP's spin for up to twenty milliseconds) hold no core while another is timed. On two threads, where
 * anyone is slower than on one, all are measured once more, and each one's better time counts.
 * OPENBLAS_CORETYPE and such are cleared lest it run a kernel for another processor. BENCH_OPENBLAS
 * and BENCH_MKL name other libraries than those the loader finds.
 *
 * usage: bench_matmul [part of a case's name]
 */
#include "measure.h"
#include "onednn.h"
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

#define COUNT(array)   (sizeof(array) / sizeof(array)[0])
#define MOST_THREADS   2
#define ROUNDS         15
#define SAMPLE_SECONDS 2e-3

enum peer { ONEDNN, OPENBLAS, MKL, PEERS };
enum { MOST_RUNNERS = 5 };

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
    gd_bench_onednn_product primitive;
#endif
} problem;

/* A library of CBLAS functions; sgemm NULL: not there. */
typedef struct blas {
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
    void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int,
                  double, double *, int);
    void (*set_threads)(int);
} blas;

static struct {
    gd_isa isa;
    const gd_gemm_micro *gemm[2];
    gd_paths paths;
    gd_workspace workspace;
    double peak[2][MOST_THREADS + 1]; /* [f64][threads], FLOP/s */
    const char *filter;
    blas blas[PEERS]; /* OPENBLAS and MKL */
    char peer_versions[PEERS][64];
    double at_one[COUNT(shapes)][MOST_RUNNERS]; /* seconds on one thread, of each runner */
} bench;

/* Ways to run a problem -------------------------------------------------------------------------
 */

typedef void (*run_fn)(void *user);

static void run_ours(void *user)
{
    problem *p = user;
    gd_gemm(bench.gemm[p->shape.f64], &p->args);
}

static void run_blas(const blas *lib, problem *p)
{
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const shape s = p->shape;
    const int m = (int)s.m, n = (int)s.n, k = (int)s.k, lda = s.a_transposed ? m : k;
    const int trans = s.a_transposed ? TRANS : NO_TRANS;
    for (int64_t i = 0; i < s.batch; i++)
        if (s.f64)
            lib->dgemm(ROW_MAJOR, trans, NO_TRANS, m, n, k, 1, (double *)p->a + i * s.m * s.k, lda,
                       (double *)p->b + i * s.k * s.n, n, 0, (double *)p->c + i * s.m * s.n, n);
        else
            lib->sgemm(ROW_MAJOR, trans, NO_TRANS, m, n, k, 1, (float *)p->a + i * s.m * s.k, lda,
                       (float *)p->b + i * s.k * s.n, n, 0, (float *)p->c + i * s.m * s.n, n);
}

static void run_openblas(void *user)
{
    run_blas(&bench.blas[OPENBLAS], user);
}

static void run_mkl(void *user)
{
    run_blas(&bench.blas[MKL], user);
}

#ifdef GD_HAVE_DNNL
static void run_onednn_sgemm(void *user)
{
    problem *p = user;
    const shape s = p->shape;
    for (int64_t i = 0; i < s.batch; i++)
        dnnl_sgemm(s.a_transposed ? 'T' : 'N', 'N', s.m, s.n, s.k, 1, (float *)p->a + i * s.m * s.k,
                   s.a_transposed ? s.m : s.k, (float *)p->b + i * s.k * s.n, s.n, 0,
                   (float *)p->c + i * s.m * s.n, s.n);
}

static void run_onednn_matmul(void *user)
{
    problem *p = user;
    gd_bench_onednn_run(&p->primitive);
}

static void open_onednn(problem *p)
{
    const shape s = p->shape;
    p->primitive = (gd_bench_onednn_product){ .type = dnnl_f32,
                                              .batch = s.batch,
                                              .m = s.m,
                                              .k = s.k,
                                              .n = s.n,
                                              .a_transposed = s.a_transposed,
                                              .a = p->a,
                                              .b = p->b,
                                              .c = p->c };
    gd_bench_onednn_open(&p->primitive);
}
#endif

static void set_threads(int threads)
{
    gd_bench_set_openmp_threads(threads);
    for (int peer = 0; peer < PEERS; peer++)
        if (bench.blas[peer].set_threads)
            bench.blas[peer].set_threads(threads);
    gd_bench_pin(threads);
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

/* Between thread pools: idle threads of each spin for a while, OpenBLAS's for 2^26 ticks, OpenMP's
 * for 300,000 pauses, of which each takes 140 cycles on Intel, and would take the other's core. */
#define PAUSE_SECONDS 40e-3

/* All runners in turns. `at_one`: their seconds on one thread, written where p has one; where one
 * of several threads is slower, all are measured once more. NULL: not compared. */
static void measure(problem *p, gd_bench_runner *runners, int count, double *at_one)
{
    bool slower = false;
    for (int i = 0; i < count; i++) {
        runners[i].user = p;
        runners[i].pause = p->threads > 1 ? PAUSE_SECONDS : 0;
    }
    gd_bench_take_turns(runners, count, ROUNDS, SAMPLE_SECONDS, p->threads);
    for (int i = 0; i < count && at_one; i++) {
        slower = slower || (p->threads > 1 && runners[i].timing.seconds > at_one[i]);
        if (p->threads == 1)
            at_one[i] = runners[i].timing.seconds;
    }
    if (!slower)
        return;
    gd_bench_timing first[MOST_RUNNERS];
    for (int i = 0; i < count; i++)
        first[i] = runners[i].timing;
    gd_bench_take_turns(runners, count, ROUNDS, SAMPLE_SECONDS, p->threads);
    for (int i = 0; i < count; i++)
        if (first[i].seconds < runners[i].timing.seconds)
            runners[i].timing = first[i];
}

/* Reporting -------------------------------------------------------------------------------------
 */

static gd_bench_row make_row(const char *name, int threads, const char *metric, double ours,
                             bool verified)
{
    gd_bench_row row = gd_bench_make_row("matmul", name, threads, metric, ours, verified);
    row.more_is_better = strcmp(metric, "ns") != 0;
    return row;
}

static void name_shape(const shape *s, char *name, size_t size)
{
    char batch[24] = "";
    if (s->batch > 1)
        snprintf(batch, sizeof batch, "%lldx ", (long long)s->batch);
    snprintf(name, size, "%s%lldx%lldx%lld%s %s", batch, (long long)s->m, (long long)s->k,
             (long long)s->n, s->a_transposed ? " A transposed" : "", s->f64 ? "f64" : "f32");
}

typedef struct contender {
    enum peer peer; /* PEERS: ours */
    const char *how;
} contender;

/* Who runs this problem; returns how many. */
static int enter(const problem *p, gd_bench_runner *runners, contender *who)
{
    int count = 0;
    who[count] = (contender){ PEERS, NULL };
    runners[count++].run = run_ours;
#ifdef GD_HAVE_DNNL
    if (!p->shape.f64) {
        who[count] = (contender){ ONEDNN, "sgemm" };
        runners[count++].run = run_onednn_sgemm;
        who[count] = (contender){ ONEDNN, "matmul primitive" };
        runners[count++].run = run_onednn_matmul;
    }
#else
    (void)p;
#endif
    static const struct {
        enum peer peer;
        run_fn run;
    } libraries[] = { { OPENBLAS, run_openblas }, { MKL, run_mkl } };
    for (size_t i = 0; i < COUNT(libraries); i++)
        if (bench.blas[libraries[i].peer].sgemm) {
            who[count] = (contender){ libraries[i].peer, NULL };
            runners[count++].run = libraries[i].run;
        }
    return count;
}

/* A row for each peer, by the faster of its ways; one without if there is none. */
static void print_rows(gd_bench_row row, double flops, const gd_bench_runner *runners,
                       const contender *who, int count)
{
    for (int peer = 0; peer < PEERS; peer++) {
        row.peer = 0;
        for (int i = 1; i < count; i++) {
            const double rate = flops / runners[i].timing.seconds * 1e-9;
            if ((int)who[i].peer != peer || rate <= row.peer)
                continue;
            row.peer = rate;
            row.peer_spread = runners[i].timing.spread;
            row.peer_how = who[i].how;
            row.peer_name = bench.peer_versions[peer];
        }
        if (row.peer > 0)
            gd_bench_print_row(&row);
    }
    if (!row.peer_name)
        gd_bench_print_row(&row);
}

static void compare(problem *p, const char *name, double *at_one)
{
    gd_bench_runner runners[MOST_RUNNERS] = { 0 };
    contender who[MOST_RUNNERS];
    const int count = enter(p, runners, who);
#ifdef GD_HAVE_DNNL
    if (!p->shape.f64)
        open_onednn(p);
#endif
    bool verified = true;
    for (int i = 0; i < count; i++)
        verified = verify(p, runners[i].run) && verified;
    measure(p, runners, count, at_one);
#ifdef GD_HAVE_DNNL
    if (!p->shape.f64)
        gd_bench_onednn_close(&p->primitive);
#endif
    const shape s = p->shape;
    const double flops = 2.0 * (double)(s.batch * s.m) * (double)(s.n * s.k);
    const double ours = flops / runners[0].timing.seconds;
    gd_bench_row row = make_row(name, p->threads, "GFLOP/s", ours * 1e-9, verified);
    row.ours_spread = runners[0].timing.spread;
    row.bound_fraction = ours / bench.peak[s.f64][p->threads];
    row.bound = "FMA peak";
    print_rows(row, flops, runners, who, count);
    if (!verified)
        gd_bench_die("%s: a result is wrong", name);
}

static void *allocate(size_t bytes)
{
    void *memory;
    if (posix_memalign(&memory, 4096, bytes) != 0)
        gd_bench_die("out of memory");
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

static void bench_shape(int index, int threads)
{
    const shape *s = &shapes[index];
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
        .paths = &bench.paths,
        .workspace = bench.workspace,
    };
    set_threads(threads);
    compare(&p, name, bench.at_one[index]);
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
    p.args.paths = &bench.paths;
    p.args.workspace = bench.workspace;
    const bool verified = verify(&p, run_ours);
    gd_bench_runner runner = { .run = run_ours };
    measure(&p, &runner, 1, NULL);
    gd_bench_row row = make_row(name, 1, "ns", runner.timing.seconds * 1e9, verified);
    row.ours_spread = runner.timing.spread;
    gd_bench_print_row(&row);
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
        bench.gemm[0] = &gd_gemm_f32_avx512, bench.gemm[1] = &gd_gemm_f64_avx512;
        break;
#endif
#ifdef GD_HAVE_AVX2
    case GD_ISA_AVX2:
        bench.gemm[0] = &gd_gemm_f32_avx2, bench.gemm[1] = &gd_gemm_f64_avx2;
        break;
#endif
#ifdef GD_HAVE_NEON
    case GD_ISA_NEON:
        bench.gemm[0] = &gd_gemm_f32_neon, bench.gemm[1] = &gd_gemm_f64_neon;
        break;
#endif
    case GD_ISA_BASELINE:
        bench.gemm[0] = &gd_gemm_f32_baseline, bench.gemm[1] = &gd_gemm_f64_baseline;
        break;
    default:
        gd_bench_die("%s", gd_error_message());
    }
}

/* dlsym's result as a function pointer, as POSIX has it. */
static void load_function(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

static void clear_environment(void)
{
    static const char *const variables[] = { "OPENBLAS_CORETYPE",      "OPENBLAS_NUM_THREADS",
                                             "OPENBLAS_MAIN_FREE",     "OPENBLAS_VERBOSE",
                                             "ONEDNN_MAX_CPU_ISA",     "DNNL_MAX_CPU_ISA",
                                             "MKL_ENABLE_INSTRUCTIONS" };
    for (size_t i = 0; i < COUNT(variables); i++)
        if (getenv(variables[i])) {
            fprintf(stderr, "%s=%s cleared\n", variables[i], getenv(variables[i]));
            unsetenv(variables[i]);
        }
}

static void *open_library(const char *variable, const char *usual)
{
    const char *named = getenv(variable);
    return dlopen(named && *named ? named : usual, RTLD_NOW | RTLD_LOCAL);
}

/* OpenBLAS from PyPI (scipy-openblas32) has a prefix before all its names. */
static void open_openblas(void)
{
    void *library = open_library("BENCH_OPENBLAS", "libopenblas.so.0");
    if (!library)
        return;
    blas *b = &bench.blas[OPENBLAS];
    char *(*config)(void) = NULL, *(*corename)(void) = NULL;
    const bool prefix = dlsym(library, "scipy_cblas_sgemm") != NULL;
    load_function(library, prefix ? "scipy_cblas_sgemm" : "cblas_sgemm", &b->sgemm);
    load_function(library, prefix ? "scipy_cblas_dgemm" : "cblas_dgemm", &b->dgemm);
    load_function(library, prefix ? "scipy_openblas_set_num_threads" : "openblas_set_num_threads",
                  &b->set_threads);
    load_function(library, prefix ? "scipy_openblas_get_config" : "openblas_get_config", &config);
    load_function(library, prefix ? "scipy_openblas_get_corename" : "openblas_get_corename",
                  &corename);
    if (!b->sgemm || !b->dgemm || !b->set_threads)
        gd_bench_die("OpenBLAS lacks its functions");
    char version[32] = "";
    if (config)
        sscanf(config(), "OpenBLAS %20s", version);
    snprintf(bench.peer_versions[OPENBLAS], sizeof bench.peer_versions[0], "OpenBLAS %s, %s",
             version, corename ? corename() : "");
}

static void open_mkl(void)
{
    setenv("MKL_THREADING_LAYER", "GNU", 0); /* the same OpenMP as oneDNN's: no second pool */
    setenv("MKL_INTERFACE_LAYER", "LP64", 0);
    void *library = open_library("BENCH_MKL", "libmkl_rt.so.3");
    if (!library)
        return;
    blas *b = &bench.blas[MKL];
    void (*version)(char *, int) = NULL;
    load_function(library, "cblas_sgemm", &b->sgemm);
    load_function(library, "cblas_dgemm", &b->dgemm);
    load_function(library, "MKL_Set_Num_Threads", &b->set_threads);
    load_function(library, "mkl_get_version_string", &version);
    if (!b->sgemm || !b->dgemm || !b->set_threads)
        gd_bench_die("MKL lacks its functions");
    char text[200] = "";
    int year = 0, update = 0;
    if (version)
        version(text, sizeof text - 1);
    const char *at = strstr(text, "Version ");
    if (at)
        sscanf(at, "Version %d.%d", &year, &update);
    snprintf(bench.peer_versions[MKL], sizeof bench.peer_versions[0], "MKL %d.%d", year, update);
}

static void open_peers(void)
{
    clear_environment();
    open_openblas();
    open_mkl();
#ifdef GD_HAVE_DNNL
    gd_bench_onednn_name(bench.peer_versions[ONEDNN], sizeof bench.peer_versions[0]);
#endif
}

static void print_machine_row(const char *name, int threads, const char *metric, double value)
{
    gd_bench_row row = make_row(name, threads, metric, value * 1e-9, true);
    gd_bench_print_row(&row);
}

static void measure_machine(int threads)
{
    set_threads(threads);
    for (int f64 = 0; f64 < 2; f64++) {
        bench.peak[f64][threads] = gd_bench_peak_flops(bench.isa, f64, threads);
        print_machine_row(f64 ? "FMA peak f64" : "FMA peak f32", threads, "GFLOP/s",
                          bench.peak[f64][threads]);
    }
    gd_bench_bandwidth memory = { 0 };
    if (!gd_bench_memory(threads, &memory))
        gd_bench_die("out of memory");
    print_machine_row("memory read", threads, "GB/s", memory.read);
    print_machine_row("memory copy", threads, "GB/s", memory.copy);
    print_machine_row("memory triad", threads, "GB/s", memory.triad);
}

int main(int argc, char **argv)
{
    bench.filter = argc > 1 ? argv[1] : NULL;
    const int most_threads = gd_cpu_count() < MOST_THREADS ? gd_cpu_count() : MOST_THREADS;
    choose_kernels();
    open_peers();
    set_threads(most_threads); /* pools begin unbound */
    if (gd_paths_read(&bench.paths) != GD_OK)
        gd_bench_die("%s", gd_error_message());
    const size_t bytes =
        gd_scratch_bytes(gd_gemm_scratch_bytes(&bench.paths), GD_GEMM_SCRATCH_BLOCKS);
    bench.workspace = (gd_workspace){ allocate((size_t)most_threads * bytes), bytes, most_threads };
    memset(bench.workspace.memory, 0, (size_t)most_threads * bytes);
    for (int threads = 1; threads <= most_threads; threads++) {
        measure_machine(threads);
        for (int i = 0; i < (int)COUNT(shapes); i++)
            bench_shape(i, threads);
        if (threads == 1)
            bench_calls();
    }
    free(bench.workspace.memory);
    return gd_bench_all_verified() ? 0 : 1;
}
