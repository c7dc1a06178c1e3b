/* bench/bench_elementwise.c: the CPU's elementwise kernels, called as the eager mode calls them,
 * against the memory bandwidth of this machine and against a scalar loop. One JSON object a line on
 * stdout, a table on stderr. Start at bench_case().
 *
 * Every result is compared with the scalar loop's before it is timed. Ours, the loop and the bound
 * take turns; the median of the rounds counts, of processor time where one thread runs. Bytes are
 * those an ideal machine would move: each input read once, the result written once. The bound is
 * the time it takes to add up the same bytes of the same arrays, reading being the cheapest thing
 * one can do with memory. Large cases go through several sets of arrays, so that none is still in a
 * cache; cases "in L2" stay on one set.
 *
 * usage: bench_elementwise [part of a case's name]
 */
#include "backend/cpu/cpu.h"
#include "base/threads.h"
#include "ops/attrs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(array)   (sizeof(array) / sizeof(array)[0])
#define MOST_THREADS   2
#define ROUNDS         13
#define SCALAR_EVERY   4 /* the slow loop takes its turn in every fourth round */
#define SAMPLE_SECONDS 4e-3
#define ROTATED_BYTES  ((size_t)192 << 20) /* the sets of a large case together */
#define MOST_SETS      16
#define MOST_INPUTS    3

/* What stands for hand-written C without vectors. */
#if defined(__clang__)
#define SCALAR      __attribute__((noinline))
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable) interleave(disable)")
#else
#define SCALAR __attribute__((noinline, optimize("O1", "no-tree-vectorize")))
#define SCALAR_LOOP
#endif

/* out [n]; x and y of the case's shapes */
typedef void (*scalar_loop)(const float *x, const float *y, const float *z, float *out, int64_t n,
                            int64_t cols);

#define DEFINE_SCALAR(name, expression)                                                            \
    SCALAR static void name(const float *x, const float *y, const float *z, float *out, int64_t n, \
                            int64_t cols)                                                          \
    {                                                                                              \
        (void)x, (void)y, (void)z, (void)cols;                                                     \
        SCALAR_LOOP                                                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = expression;                                                                   \
    }
DEFINE_SCALAR(scalar_add, x[i] + y[i])
DEFINE_SCALAR(scalar_mul, x[i] * y[i])
DEFINE_SCALAR(scalar_relu, x[i] < 0 ? 0 : x[i])
DEFINE_SCALAR(scalar_exp, expf(x[i]))
DEFINE_SCALAR(scalar_tanh, tanhf(x[i]))
DEFINE_SCALAR(scalar_scale, x[i] * y[0])
DEFINE_SCALAR(scalar_sin, sinf(x[i]))
DEFINE_SCALAR(scalar_fused, fmaxf(0.0f, x[i] * y[i] + z[i]))

SCALAR static void scalar_bias(const float *x, const float *y, const float *z, float *out,
                               int64_t n, int64_t cols)
{
    (void)z;
    for (int64_t i = 0; i < n / cols; i++) {
        SCALAR_LOOP
        for (int64_t j = 0; j < cols; j++)
            out[i * cols + j] = x[i * cols + j] + y[j];
    }
}

SCALAR static void scalar_transpose(const float *x, const float *y, const float *z, float *out,
                                    int64_t n, int64_t cols)
{
    (void)y, (void)z;
    int64_t rows = n / cols;
    for (int64_t i = 0; i < rows; i++) {
        SCALAR_LOOP
        for (int64_t j = 0; j < cols; j++)
            out[i * cols + j] = x[j * rows + i];
    }
}

/* How an input lies: [n], one number, a row [cols] for every row of the result, or a transposed
 * matrix. */
enum { DENSE = 1, NUMBER, ROW, TRANSPOSED };

typedef struct measured_op {
    const char *name;
    int op;
    int inputs[MOST_INPUTS]; /* how each lies; 0: none */
    scalar_loop scalar;
    float tolerance; /* relative; 0: the same bits */
} measured_op;

static const measured_op subjects[] = {
    { "add", GD_OP_add, { DENSE, DENSE }, scalar_add, 0 },
    { "mul", GD_OP_mul, { DENSE, DENSE }, scalar_mul, 0 },
    { "relu", GD_OP_relu, { DENSE }, scalar_relu, 0 },
    { "exp", GD_OP_exp, { DENSE }, scalar_exp, 4e-7f },
    { "tanh", GD_OP_tanh, { DENSE }, scalar_tanh, 4e-7f },
    { "sin", GD_OP_sin, { DENSE }, scalar_sin, 4e-7f },
    { "mul by number", GD_OP_mul, { DENSE, NUMBER }, scalar_scale, 0 },
    { "add bias row", GD_OP_add, { DENSE, ROW }, scalar_bias, 0 },
    { "transposing copy", GD_OP_copy, { TRANSPOSED }, scalar_transpose, 0 },
    { "fused relu(x*y+z)", GD_OP_fused, { DENSE, DENSE, DENSE }, scalar_fused, 0 },
};
#define BASIC 5 /* the first of them are measured at every size, all at 16Mi */

static const gd_fused_attr fused_attr = {
    .n_inputs = 3,
    .n_instructions = 3,
    .instruction = { { .op = GD_OP_mul, .dtype = GD_F32, .from = { 0, 1 }, .compute = GD_F32 },
                     { .op = GD_OP_add, .dtype = GD_F32, .from = { 3, 2 }, .compute = GD_F32 },
                     { .op = GD_OP_relu, .dtype = GD_F32, .from = { 4 }, .compute = GD_F32 } },
};

/* The shape of a result, [rows, cols]. */
typedef struct result_size {
    const char *name;
    int64_t rows, cols;
    bool in_cache;
} result_size;

/* A case: a subject at a size, on some sets of arrays. */
typedef struct problem {
    const measured_op *subject;
    int64_t n, cols;
    int n_inputs, n_sets;
    double bytes; /* moved by one run */
    float *in[MOST_SETS][MOST_INPUTS], *out[MOST_SETS];
    gd_layout in_layout[MOST_INPUTS], out_layout;
    gd_op op;
} problem;

static struct {
    gd_device *device;
    const char *filter;
    float *memory;
    size_t memory_floats;
    int failures;
} bench;

static gd_layout matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride)
{
    return (gd_layout){
        .rank = 2, .dtype = GD_F32, .shape = { rows, cols }, .stride = { row_stride, col_stride }
    };
}

/* Lay the sets of a case out in the bench's memory, which is allocated and touched once. */
static bool set_up(problem *p, const measured_op *subject, int64_t n, int64_t cols, bool in_cache)
{
    *p = (problem){ .subject = subject, .n = n, .cols = cols };
    int64_t rows = n / cols;
    p->out_layout = matrix(rows, cols, cols, 1);
    p->op = (gd_op){ .id = (gd_op_id)subject->op, .name = subject->name };
    int64_t sizes[MOST_INPUTS] = { 0 };
    int64_t set = n;
    for (int k = 0; k < MOST_INPUTS && subject->inputs[k]; k++) {
        bool is_whole = subject->inputs[k] == DENSE || subject->inputs[k] == TRANSPOSED;
        sizes[k] = is_whole ? n : subject->inputs[k] == ROW ? cols : 1;
        set += sizes[k];
        p->n_inputs++;
        p->in_layout[k] = subject->inputs[k] == TRANSPOSED ? matrix(rows, cols, 1, rows)
                          : subject->inputs[k] == DENSE    ? p->out_layout
                                                           : matrix(1, sizes[k], sizes[k], 1);
    }
    p->bytes = (double)set * sizeof(float);
    const int64_t page = 1024,
                  gap = 5 * page; /* floats: lest arrays of 2^k bytes fall on the same cache sets */
    float *at = bench.memory;
    int sets = in_cache ? 1 : (int)(ROTATED_BYTES / ((size_t)set * sizeof(float))) + 1;
    for (; p->n_sets < sets && p->n_sets < MOST_SETS; p->n_sets++) {
        if (at + set + 4 * (page + gap) > bench.memory + bench.memory_floats)
            break;
        for (int k = 0; k < p->n_inputs; k++) {
            p->in[p->n_sets][k] = at;
            at += (sizes[k] + page - 1) / page * page + gap;
        }
        p->out[p->n_sets] = at;
        at += (n + page - 1) / page * page + gap;
    }
    for (int s = 0; s < p->n_sets; s++)
        for (int k = 0; k < p->n_inputs; k++)
            for (int64_t i = 0; i < sizes[k]; i++)
                p->in[s][k][i] = (float)((i * 7 + k * 3 + s) % 1000) * 0.01f - 5;
    return p->n_sets > 0;
}

static void run_ours(const problem *p, int set)
{
    gd_operand in[MOST_INPUTS];
    for (int k = 0; k < p->n_inputs; k++)
        in[k] = (gd_operand){ p->in[set][k], &p->in_layout[k] };
    gd_kernel_call call = { .device = bench.device,
                            .op = &p->op,
                            .attr = p->subject->op == GD_OP_fused ? &fused_attr : NULL,
                            .n = p->n_inputs,
                            .in = in,
                            .out = { p->out[set], &p->out_layout } };
    if (bench.device->kernel[p->subject->op](&call) != GD_OK)
        bench.failures++;
}

static void run_scalar(const problem *p, int set)
{
    p->subject->scalar(p->in[set][0], p->in[set][1], p->in[set][2], p->out[set], p->n, p->cols);
}

/* ---- the bound: adding up all the bytes of a set, as floats ---- */

typedef struct reading {
    const float *data;
    volatile float sum[MOST_THREADS];
} reading;

static void read_range(void *context, int64_t begin, int64_t end, int thread)
{
    reading *job = context;
    const float *x = job->data;
    float sum[64] = { 0 }; /* enough chains that memory, not addition, is what one waits for */
    int64_t i = begin;
    for (; i + 64 <= end; i += 64)
        for (int lane = 0; lane < 64; lane++)
            sum[lane] += x[i + lane];
    for (; i < end; i++)
        sum[0] += x[i];
    for (int lane = 1; lane < 64; lane++)
        sum[0] += sum[lane];
    job->sum[thread] = sum[0];
}

static void run_bound(const problem *p, int set)
{
    for (int k = 0; k <= p->n_inputs; k++) {
        reading job = { .data = k < p->n_inputs ? p->in[set][k] : p->out[set] };
        int64_t count = k < p->n_inputs ? gd_layout_count(&p->in_layout[k]) : p->n;
        gd_parallel_for(bench.device->threads, count, 64 * 1024, read_range, &job);
    }
}

static bool verify(const problem *p)
{
    float *ours = malloc((size_t)p->n * sizeof(float));
    if (!ours)
        return false;
    run_ours(p, 0);
    memcpy(ours, p->out[0], (size_t)p->n * sizeof(float));
    memset(p->out[0], 0, (size_t)p->n * sizeof(float));
    run_scalar(p, 0);
    bool same = true;
    for (int64_t i = 0; i < p->n && same; i++) {
        float want = p->out[0][i];
        same = fabsf(ours[i] - want) <= p->subject->tolerance * fabsf(want);
    }
    free(ours);
    return same;
}

/* On one thread, processor time: what other programs do in between does not count. */
static double seconds_now(void)
{
    if (bench.device->threads > 1)
        return gd_seconds();
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of one run, averaged over enough runs to measure. */
static double time_runs(const problem *p, void (*run)(const problem *, int), int64_t runs)
{
    double start = seconds_now();
    int set = 0;
    for (int64_t i = 0; i < runs; i++) {
        run(p, set);
        set = set + 1 == p->n_sets ? 0 : set + 1;
    }
    return (seconds_now() - start) / (double)runs;
}

static int64_t enough_runs(const problem *p, void (*run)(const problem *, int))
{
    double once = time_runs(p, run, p->n_sets);
    double runs = SAMPLE_SECONDS / once;
    return runs < p->n_sets ? p->n_sets : (int64_t)runs;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return values[count / 2];
}

/* metric "ns" reports the time of a run, smaller is better. */
static void bench_case(const measured_op *subject, result_size size, int threads,
                       const char *metric)
{
    char name[96];
    problem here, *p = &here;
    snprintf(name, sizeof name, "%s f32 %s", subject->name, size.name);
    if (bench.filter && !strstr(name, bench.filter))
        return;
    if (!set_up(p, subject, size.rows * size.cols, size.cols, size.in_cache)) {
        fprintf(stderr, "%s: no memory\n", name);
        bench.failures++;
        return;
    }
    gd_backend_cpu.set_threads(bench.device, threads);
    bool verified = verify(p);
    double ours[ROUNDS], scalar[ROUNDS];
    int64_t our_runs = enough_runs(p, run_ours), scalar_runs = enough_runs(p, run_scalar);
    double bound[ROUNDS];
    int64_t bound_runs = enough_runs(p, run_bound);
    int scalar_rounds = 0;
    for (int round = 0; round < ROUNDS; round++) {
        ours[round] = time_runs(p, run_ours, our_runs);
        bound[round] = time_runs(p, run_bound, bound_runs);
        if (round % SCALAR_EVERY == 0)
            scalar[scalar_rounds++] = time_runs(p, run_scalar, scalar_runs);
    }
    double our_seconds = median(ours, ROUNDS), scalar_seconds = median(scalar, scalar_rounds);
    double ratio = scalar_seconds / our_seconds;
    bool is_time = strcmp(metric, "ns") == 0;
    double our_value = is_time ? our_seconds * 1e9 : p->bytes / our_seconds * 1e-9;
    double scalar_value = is_time ? scalar_seconds * 1e9 : p->bytes / scalar_seconds * 1e-9;
    double bound_fraction = median(bound, ROUNDS) / our_seconds;

    printf(
        "{\"suite\":\"elementwise\",\"case\":\"%s\",\"threads\":%d,\"metric\":\"%s\",\"ours\":%.4g,"
        "\"peer\":%.4g,\"peer_name\":\"scalar loop\",\"ratio\":%.4g,",
        name, threads, metric, our_value, scalar_value, ratio);
    if (size.in_cache)
        printf("\"bound_fraction\":null,");
    else
        printf("\"bound_fraction\":%.3f,", bound_fraction);
    printf("\"verified\":%s}\n", verified ? "true" : "false");
    fprintf(stderr, "%-34s %d %9.2f %-4s", name, threads, our_value, metric);
    if (size.in_cache)
        fprintf(stderr, "     -");
    else
        fprintf(stderr, "  %3.0f%%", 100 * bound_fraction);
    fprintf(stderr, "   scalar %9.2f  (%.2fx)%s\n", scalar_value, ratio,
            verified ? "" : "  WRONG RESULT");
    bench.failures += !verified;
}

static void bench_large(void)
{
    static const result_size sizes[] = { { "1Mi", 1024, 1024, false },
                                         { "4Mi", 2048, 2048, false },
                                         { "16Mi", 4096, 4096, false },
                                         { "64Mi", 8192, 8192, false } };
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t s = 0; s < (i == 2 ? COUNT(subjects) : BASIC); s++)
            for (int threads = 1; threads <= MOST_THREADS; threads++)
                bench_case(&subjects[s], sizes[i], threads, "GB/s");
}

static void bench_small(void)
{
    for (size_t s = 0; s < COUNT(subjects); s++)
        bench_case(&subjects[s], (result_size){ "16Ki in L2", 128, 128, true }, 1, "GB/s");
    for (size_t s = 0; s < COUNT(subjects); s++)
        bench_case(&subjects[s], (result_size){ "16 elements", 4, 4, true }, 1, "ns");
}

int main(int argc, char **argv)
{
    bench.filter = argc > 1 ? argv[1] : NULL;
    bench.device = gd_backend_cpu.open(&(gd_open_options){ .device = "cpu", .threads = 1 });
    if (!bench.device) {
        fprintf(stderr, "bench_elementwise: %s\n", gd_error_message());
        return 1;
    }
    size_t bytes = (size_t)1100 << 20;
    bench.memory = gd_backend_cpu.memory_alloc(bench.device, bytes);
    if (!bench.memory) {
        fprintf(stderr, "bench_elementwise: %s\n", gd_error_message());
        return 1;
    }
    memset(bench.memory, 0, bytes);
    bench.memory_floats = bytes / sizeof(float);
    fprintf(stderr, "%s\n%-34s %s %14s  bound   peer\n", bench.device->isa, "case", "threads",
            "ours");
    bench_large();
    bench_small();
    gd_backend_cpu.memory_free(bench.device, bench.memory, bytes);
    gd_backend_cpu.close(bench.device);
    return bench.failures > 0;
}
