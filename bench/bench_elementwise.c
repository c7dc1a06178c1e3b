/* bench/bench_elementwise.c: the CPU's elementwise kernels, called as the eager mode calls them,
 * against the memory bandwidth of this machine and against a scalar loop. One JSON object a line on
 * stdout, a table on stderr. Start at bench_case().
 *
 * Every result is compared with the scalar loop's before it is timed. Ours, the loop and the bound
 * take turns; the median of the rounds counts. Bytes are those an ideal machine would move: each
 * input read once, the result written once. The bound is the time it takes to move the same bytes
 * of the same arrays: to add them all up, or to copy the first input past the caches over the
 * result and add up the others, whichever is faster; a share above 1 is cut to 1. Large cases go
 * through several sets of arrays, so that none is still in a cache; cases "in L2" stay on one set.
 *
 * usage: bench_elementwise [part of a case's name]
 */
#include "measure.h"
#include "peak.h"

#include "backend/cpu/cpu.h"
#include "ops/attrs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array)   (sizeof(array) / sizeof(array)[0])
#define MOST_THREADS   2
#define ROUNDS         13
#define SAMPLE_SECONDS 4e-3
#define MOST_SETS      128
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
    int at;       /* the set of the next run */
    double bytes; /* moved by one run */
    float *in[MOST_SETS][MOST_INPUTS], *out[MOST_SETS];
    gd_layout in_layout[MOST_INPUTS], out_layout;
    gd_op op;
} problem;

static struct {
    gd_device *device;
    const char *filter;
    float *memory;
    size_t memory_floats, rotated_bytes; /* of the sets of a large case together */
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
    int sets = in_cache ? 1 : (int)(bench.rotated_bytes / ((size_t)set * sizeof(float))) + 1;
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
        gd_bench_die("%s", gd_error_message());
}

static void run_scalar(const problem *p, int set)
{
    p->subject->scalar(p->in[set][0], p->in[set][1], p->in[set][2], p->out[set], p->n, p->cols);
}

/* ---- the bound ---- */

static void run_read(const problem *p, int set)
{
    for (int k = 0; k <= p->n_inputs; k++) {
        const float *data = k < p->n_inputs ? p->in[set][k] : p->out[set];
        const int64_t count = k < p->n_inputs ? gd_layout_count(&p->in_layout[k]) : p->n;
        gd_bench_read_bytes(data, (size_t)count * sizeof *data, bench.device->threads);
    }
}

static void run_copy(const problem *p, int set)
{
    const int threads = bench.device->threads;
    gd_bench_copy_bytes(p->out[set], p->in[set][0], (size_t)p->n * sizeof(float), threads);
    for (int k = 1; k < p->n_inputs; k++)
        gd_bench_read_bytes(p->in[set][k],
                            (size_t)gd_layout_count(&p->in_layout[k]) * sizeof(float), threads);
}

/* ---- turns: each takes the next set ---- */

static int next_set(problem *p)
{
    p->at = p->at + 1 < p->n_sets ? p->at + 1 : 0;
    return p->at;
}

static void turn_ours(void *user)
{
    run_ours(user, next_set(user));
}

static void turn_scalar(void *user)
{
    run_scalar(user, next_set(user));
}

static void turn_read(void *user)
{
    run_read(user, next_set(user));
}

static void turn_copy(void *user)
{
    run_copy(user, next_set(user));
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

/* metric "ns" reports the time of a run, smaller is better. */
static void bench_case(const measured_op *subject, result_size size, int threads,
                       const char *metric)
{
    char name[96];
    problem here, *p = &here;
    snprintf(name, sizeof name, "%s f32 %s", subject->name, size.name);
    if (bench.filter && !strstr(name, bench.filter))
        return;
    if (!set_up(p, subject, size.rows * size.cols, size.cols, size.in_cache))
        gd_bench_die("%s: no memory", name);
    gd_backend_cpu.set_threads(bench.device, threads);
    gd_bench_pin(threads);
    const bool verified = verify(p), is_time = strcmp(metric, "ns") == 0;
    gd_bench_runner runners[] = { { .run = turn_ours, .user = p },
                                  { .run = turn_scalar, .user = p },
                                  { .run = turn_read, .user = p },
                                  { .run = turn_copy, .user = p } };
    gd_bench_take_turns(runners, size.in_cache ? 2 : 4, ROUNDS, SAMPLE_SECONDS, threads);
    const gd_bench_timing ours = runners[0].timing, scalar = runners[1].timing;
    gd_bench_row row =
        gd_bench_make_row("elementwise", name, threads, metric,
                          is_time ? ours.seconds * 1e9 : p->bytes / ours.seconds * 1e-9, verified);
    row.more_is_better = !is_time;
    row.ours_spread = ours.spread;
    row.peer = is_time ? scalar.seconds * 1e9 : p->bytes / scalar.seconds * 1e-9;
    row.peer_spread = scalar.spread;
    row.peer_name = "scalar loop";
    if (!size.in_cache) {
        const double bound = fmin(runners[2].timing.seconds, runners[3].timing.seconds);
        row.bound_fraction = fmin(1, bound / ours.seconds);
        row.bound = "memory beside it";
    }
    gd_bench_print_row(&row);
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
    bench.device = gd_backend_cpu.open(&(gd_open_options){ GD_OPEN_DEFAULTS, .threads = 1 }, 0);
    if (!bench.device)
        gd_bench_die("%s", gd_error_message());
    bench.rotated_bytes = 2 * gd_bench_uncached_bytes();
    const size_t bytes = bench.rotated_bytes + ((size_t)1100 << 20);
    bench.memory = gd_backend_cpu.memory_alloc(bench.device, bytes);
    if (!bench.memory)
        gd_bench_die("%s", gd_error_message());
    memset(bench.memory, 0, bytes);
    bench.memory_floats = bytes / sizeof(float);
    bench_large();
    bench_small();
    gd_backend_cpu.memory_free(bench.device, bench.memory, bytes);
    gd_backend_cpu.close(bench.device);
    return gd_bench_all_verified() ? 0 : 1;
}
