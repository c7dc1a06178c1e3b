/* bench/bench_reduce.c: reductions, softmax and the memory kernels of the CPU back end against a
 * scalar loop, and against the memory bandwidth of this machine. One JSON
 * object a line on stdout, a table on stderr. Start reading at bench_case().
 *
 * Every result is compared with one in double first. Ours, the scalar loop and the bound take
 * turns; the median of the rounds counts. Large cases walk through a pool far larger than the
 * caches, so that every run reads memory; cases named "in L2" stay on one small piece. The bound is
 * the time it takes to move the bytes a case must move: to add up its input, or, where it writes as
 * much as it reads, to copy it past the caches. A share above 1 is cut to 1: the bound's loop is
 * then not the fastest way to move these bytes.
 *
 * usage: bench_reduce [part of a case's name]
 */
#include "measure.h"
#include "peak.h"

#include "backend/cpu/cpu.h"
#include "base/random.h"
#include <gradus/base.h>
#include "ops/attrs.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEBI           ((int64_t)1 << 20)
#define ROUNDS         15
#define SAMPLE_SECONDS 4e-3
#define MOST_THREADS   2

/* A scalar loop is meant to be one. */
#if defined(__clang__)
#define SCALAR_FUNCTION
#define SCALAR_LOOP _Pragma("clang loop vectorize(disable) interleave(disable)")
#else
#define SCALAR_FUNCTION __attribute__((optimize("no-tree-vectorize")))
#define SCALAR_LOOP
#endif

typedef struct problem problem;
typedef void (*scalar_fn)(const problem *p, const float *x, void *out);
typedef bool (*verify_fn)(const problem *p, const float *x, const void *out);

struct problem {
    const char *name;
    gd_op_id id;
    const char *op;
    int64_t rows, columns; /* of the input, f32 */
    int axis;              /* -1: both are reduced */
    bool in_cache;
    bool writes; /* as much as it reads */
    scalar_fn scalar;
    verify_fn verify;
};

static struct {
    gd_cpu_device device;
    int64_t pool; /* elements of in and out */
    float *in;
    void *out;
    const char *filter;
} bench;

/* ---- scalar loops, which are also what results are checked against, in double ---- */

/* Element j of line i: lines are what is reduced. */
typedef struct lines {
    int64_t count, n, line_stride, stride;
} lines;

static lines lines_of(const problem *p)
{
    if (p->axis < 0)
        return (lines){ 1, p->rows * p->columns, 0, 1 };
    if (p->axis == 1)
        return (lines){ p->rows, p->columns, p->columns, 1 };
    return (lines){ p->columns, p->rows, 1, p->columns };
}

SCALAR_FUNCTION static void scalar_sum(const problem *p, const float *x, void *out)
{
    float *sum = out;
    if (p->axis == 0) { /* row after row, as one would write it */
        memset(sum, 0, (size_t)p->columns * sizeof *sum);
        for (int64_t i = 0; i < p->rows; i++)
            SCALAR_LOOP
        for (int64_t j = 0; j < p->columns; j++)
            sum[j] += x[i * p->columns + j];
        return;
    }
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        float s = 0;
        SCALAR_LOOP
        for (int64_t j = 0; j < l.n; j++)
            s += x[i * l.line_stride + j];
        sum[i] = s;
    }
}

SCALAR_FUNCTION static void scalar_max(const problem *p, const float *x, void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        float m = x[i * l.line_stride];
        SCALAR_LOOP
        for (int64_t j = 1; j < l.n; j++) {
            float v = x[i * l.line_stride + j];
            m = v > m || v != v ? v : m;
        }
        ((float *)out)[i] = m;
    }
}

SCALAR_FUNCTION static void scalar_argmax(const problem *p, const float *x, void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t best = 0;
        SCALAR_LOOP
        for (int64_t j = 1; j < l.n; j++)
            if (x[i * l.line_stride + j] > x[i * l.line_stride + best])
                best = j;
        ((int64_t *)out)[i] = best;
    }
}

SCALAR_FUNCTION static void scalar_cumsum(const problem *p, const float *x, void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        float s = 0;
        SCALAR_LOOP
        for (int64_t j = 0; j < l.n; j++) {
            s += x[i * l.line_stride + j * l.stride];
            ((float *)out)[i * l.line_stride + j * l.stride] = s;
        }
    }
}

SCALAR_FUNCTION static void scalar_softmax(const problem *p, const float *x, void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        const float *row = x + i * l.line_stride;
        float *to = (float *)out + i * l.line_stride;
        float max = row[0], sum = 0;
        SCALAR_LOOP
        for (int64_t j = 1; j < l.n; j++)
            max = row[j * l.stride] > max ? row[j * l.stride] : max;
        SCALAR_LOOP
        for (int64_t j = 0; j < l.n; j++)
            sum += to[j * l.stride] = expf(row[j * l.stride] - max);
        SCALAR_LOOP
        for (int64_t j = 0; j < l.n; j++)
            to[j * l.stride] /= sum;
    }
}

static bool verify_sum(const problem *p, const float *x, const void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < l.n; j++) {
            double v = (double)x[i * l.line_stride + j * l.stride];
            sum += v;
            size += fabs(v);
        }
        if (!(fabs((double)((const float *)out)[i] - sum) <= 5e-6 * size))
            return false;
    }
    return true;
}

static bool verify_max(const problem *p, const float *x, const void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        float m = x[i * l.line_stride];
        for (int64_t j = 1; j < l.n; j++)
            m = fmaxf(m, x[i * l.line_stride + j * l.stride]);
        if (((const float *)out)[i] != m)
            return false;
    }
    return true;
}

static bool verify_argmax(const problem *p, const float *x, const void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < l.n; j++)
            if (x[i * l.line_stride + j * l.stride] > x[i * l.line_stride + best * l.stride])
                best = j;
        if (((const int64_t *)out)[i] != best)
            return false;
    }
    return true;
}

static bool verify_cumsum(const problem *p, const float *x, const void *out)
{
    lines l = lines_of(p);
    for (int64_t i = 0; i < l.count; i++) {
        volatile float s = 0;
        for (int64_t j = 0; j < l.n; j++) {
            int64_t at = i * l.line_stride + j * l.stride;
            s = j ? s + x[at] : x[at];
            if (((const float *)out)[at] != s)
                return false;
        }
    }
    return true;
}

static bool verify_softmax(const problem *p, const float *x, const void *out)
{
    lines l = lines_of(p);
    int64_t skip = l.count > 1000 ? 7 : 1; /* of many rows, some */
    for (int64_t i = 0; i < l.count; i += skip) {
        const float *row = x + i * l.line_stride;
        double max = (double)row[0], sum = 0;
        for (int64_t j = 1; j < l.n; j++)
            max = fmax(max, (double)row[j * l.stride]);
        for (int64_t j = 0; j < l.n; j++)
            sum += exp((double)row[j * l.stride] - max);
        for (int64_t j = 0; j < l.n; j++) {
            double want = exp((double)row[j * l.stride] - max) / sum;
            double got = (double)((const float *)out)[i * l.line_stride + j * l.stride];
            if (!(fabs(got - want) <= 3e-6 * want + 1e-37))
                return false;
        }
    }
    return true;
}

/* ---- measuring ---- */

static void run_ours(const problem *p, const float *x, void *out)
{
    gd_layout in = {
        .rank = 2, .dtype = GD_F32, .shape = { p->rows, p->columns }, .stride = { p->columns, 1 }
    };
    gd_layout result = { .dtype = p->id == GD_OP_argmax ? GD_I64 : GD_F32 };
    gd_reduce_attr axes = { .axes = p->axis < 0 ? 3u : 1u << p->axis };
    gd_axis_attr axis = { .axis = p->axis };
    bool by_axes = p->id == GD_OP_sum || p->id == GD_OP_max;
    if (p->axis < 0 && !by_axes) { /* argmax of everything: one line */
        in = (gd_layout){
            .rank = 1, .dtype = GD_F32, .shape = { p->rows * p->columns }, .stride = { 1 }
        };
        axis.axis = 0;
    }
    if (p->writes) {
        result = in;
    } else if (p->axis >= 0) {
        result.rank = 1;
        result.shape[0] = p->axis == 1 ? p->rows : p->columns;
        result.stride[0] = 1;
    }
    const gd_op op = { .id = p->id, .name = p->op };
    const gd_operand operand = { .data = (void *)(uintptr_t)x, .layout = &in };
    const gd_kernel_call call = { .device = &bench.device.base,
                                  .op = &op,
                                  .attr = by_axes ? (const void *)&axes : (const void *)&axis,
                                  .n = 1,
                                  .in = &operand,
                                  .out = { .data = out, .layout = &result } };
    if (bench.device.base.kernel[p->id](&call) != GD_OK)
        gd_bench_die("%s", gd_error_message());
}

/* The next piece of the pool, so that a run does not find the last one's input in a cache. */
static int64_t next_piece(const problem *p)
{
    static int64_t at;
    int64_t n = p->rows * p->columns;
    if (p->in_cache)
        return 0;
    at = at + 2 * n <= bench.pool ? at + n : 0;
    return at;
}

static void run(const problem *p, bool ours)
{
    int64_t at = next_piece(p);
    char *out = (char *)bench.out + (p->writes ? at * (int64_t)sizeof(float) : 0);
    if (ours)
        run_ours(p, bench.in + at, out);
    else
        p->scalar(p, bench.in + at, out);
}

static void turn_ours(void *user)
{
    run(user, true);
}

static void turn_scalar(void *user)
{
    run(user, false);
}

static void turn_bound(void *user)
{
    const problem *p = user;
    const int threads = bench.device.base.threads;
    const int64_t at = next_piece(p);
    const size_t bytes = (size_t)(p->rows * p->columns) * sizeof(float);
    if (p->writes)
        gd_bench_copy_bytes((float *)bench.out + at, bench.in + at, bytes, threads);
    else
        gd_bench_read_bytes(bench.in + at, bytes, threads);
}

/* Small problems are measured in time per call, the others in bytes moved. */
static void bench_case(const problem *p, int threads)
{
    if (bench.filter && !strstr(p->name, bench.filter))
        return;
    bench.device.base.threads = threads;
    run_ours(p, bench.in, bench.out);
    const bool verified = p->verify(p, bench.in, bench.out);

    problem here = *p;
    gd_bench_runner runners[] = { { .run = turn_ours, .user = &here },
                                  { .run = turn_scalar, .user = &here },
                                  { .run = turn_bound, .user = &here } };
    gd_bench_take_turns(runners, p->in_cache ? 2 : 3, ROUNDS, SAMPLE_SECONDS, threads);
    const gd_bench_timing ours = runners[0].timing, scalar = runners[1].timing;
    const double bytes = (double)(p->rows * p->columns) * sizeof(float) * (p->writes ? 2 : 1);
    const bool small = bytes < 65536;
    gd_bench_row row =
        gd_bench_make_row("reduce", p->name, threads, small ? "ns" : "GB/s",
                          small ? ours.seconds * 1e9 : bytes / ours.seconds * 1e-9, verified);
    row.more_is_better = !small;
    row.ours_spread = ours.spread;
    row.peer = small ? scalar.seconds * 1e9 : bytes / scalar.seconds * 1e-9;
    row.peer_spread = scalar.spread;
    row.peer_name = "scalar loop";
    if (!p->in_cache) {
        row.bound_fraction = fmin(1, runners[2].timing.seconds / ours.seconds);
        row.bound = p->writes ? "memory copy beside it" : "memory read beside it";
    }
    gd_bench_print_row(&row);
}

static void turn_random(void *user)
{
    const gd_kernel_call *call = user;
    (void)bench.device.base.kernel[GD_OP_random_bits](call);
}

/* random_bits has no input to speak of. Words a nanosecond. */
static void bench_random(int threads)
{
    const char *name = "random_bits 4Mi words";
    if (bench.filter && !strstr(name, bench.filter))
        return;
    int64_t state[2] = { 1, 0 };
    gd_layout in = { .rank = 1, .dtype = GD_I64, .shape = { 2 }, .stride = { 1 } };
    gd_layout out = { .rank = 1, .dtype = GD_I32, .shape = { 4 * MEBI }, .stride = { 1 } };
    gd_random_attr attr = { .shape = { .rank = 1, .dim = { 4 * MEBI } }, .dtype = GD_I32 };
    const gd_op op = { .id = GD_OP_random_bits, .name = "random_bits" };
    const gd_operand operand = { .data = state, .layout = &in };
    bench.device.base.threads = threads;
    gd_kernel_call call = { .device = &bench.device.base,
                            .op = &op,
                            .attr = &attr,
                            .n = 1,
                            .in = &operand,
                            .out = { .data = bench.out, .layout = &out } };
    gd_bench_runner runner = { .run = turn_random, .user = &call };
    gd_bench_take_turns(&runner, 1, ROUNDS, SAMPLE_SECONDS, threads);
    const uint32_t *words =
        bench.out; /* the first block under key {1, 0}: Random123's philox4x32-10 */
    uint32_t again[64];
    gd_philox_words(1, 4 * MEBI - 64, 64, again);
    bool verified = memcmp(words + 4 * MEBI - 64, again, sizeof again) == 0;
    gd_bench_row row =
        gd_bench_make_row("reduce", name, threads, "w/ns",
                          (double)(4 * MEBI) / runner.timing.seconds * 1e-9, verified);
    row.more_is_better = true;
    row.ours_spread = runner.timing.spread;
    gd_bench_print_row(&row);
}

/* ---- cases ---- */

#define SUM     GD_OP_sum, "sum"
#define MAX     GD_OP_max, "max"
#define ARGMAX  GD_OP_argmax, "argmax"
#define SOFTMAX GD_OP_softmax, "softmax"
#define CUMSUM  GD_OP_cumsum, "cumsum"

static const problem problems[] = {
    { "sum all f32 1Mi", SUM, 1024, 1024, -1, false, false, scalar_sum, verify_sum },
    { "sum all f32 16Mi", SUM, 16384, 1024, -1, false, false, scalar_sum, verify_sum },
    { "sum all f32 64Mi", SUM, 65536, 1024, -1, false, false, scalar_sum, verify_sum },
    { "sum rows 1024 f32 1Mi", SUM, 1024, 1024, 1, false, false, scalar_sum, verify_sum },
    { "sum rows 1024 f32 16Mi", SUM, 16384, 1024, 1, false, false, scalar_sum, verify_sum },
    { "sum rows 128 f32 16Mi", SUM, 131072, 128, 1, false, false, scalar_sum, verify_sum },
    { "sum columns 1024 f32 1Mi", SUM, 1024, 1024, 0, false, false, scalar_sum, verify_sum },
    { "sum columns 1024 f32 16Mi", SUM, 16384, 1024, 0, false, false, scalar_sum, verify_sum },
    { "sum columns 16384 f32 64Mi", SUM, 4096, 16384, 0, false, false, scalar_sum, verify_sum },
    { "sum columns 10 f32 16Mi", SUM, 1677721, 10, 0, false, false, scalar_sum, verify_sum },
    { "max all f32 16Mi", MAX, 16384, 1024, -1, false, false, scalar_max, verify_max },
    { "max rows 1024 f32 16Mi", MAX, 16384, 1024, 1, false, false, scalar_max, verify_max },
    { "argmax all f32 16Mi", ARGMAX, 16384, 1024, -1, false, false, scalar_argmax, verify_argmax },
    { "argmax rows 1024 f32 16Mi", ARGMAX, 16384, 1024, 1, false, false, scalar_argmax,
      verify_argmax },
    { "softmax rows 128 f32 16Mi", SOFTMAX, 131072, 128, 1, false, true, scalar_softmax,
      verify_softmax },
    { "softmax rows 1024 f32 1Mi", SOFTMAX, 1024, 1024, 1, false, true, scalar_softmax,
      verify_softmax },
    { "softmax rows 1024 f32 16Mi", SOFTMAX, 16384, 1024, 1, false, true, scalar_softmax,
      verify_softmax },
    { "softmax rows 50257 f32 16Mi", SOFTMAX, 333, 50257, 1, false, true, scalar_softmax,
      verify_softmax },
    { "softmax columns 1024 f32 1Mi", SOFTMAX, 1024, 1024, 0, false, true, scalar_softmax,
      verify_softmax },
    { "cumsum columns 1024 f32 16Mi", CUMSUM, 16384, 1024, 0, false, true, scalar_cumsum,
      verify_cumsum },
    { "cumsum rows 1024 f32 16Mi", CUMSUM, 16384, 1024, 1, false, true, scalar_cumsum,
      verify_cumsum },
    { "sum all f32 64Ki in L2", SUM, 64, 1024, -1, true, false, scalar_sum, verify_sum },
    { "sum rows 256 f32 64Ki in L2", SUM, 256, 256, 1, true, false, scalar_sum, verify_sum },
    { "sum columns 256 f32 64Ki in L2", SUM, 256, 256, 0, true, false, scalar_sum, verify_sum },
    { "max all f32 64Ki in L2", MAX, 64, 1024, -1, true, false, scalar_max, verify_max },
    { "argmax all f32 64Ki in L2", ARGMAX, 64, 1024, -1, true, false, scalar_argmax,
      verify_argmax },
    { "softmax rows 256 f32 64Ki in L2", SOFTMAX, 256, 256, 1, true, true, scalar_softmax,
      verify_softmax },
    { "cumsum columns 256 f32 64Ki in L2", CUMSUM, 256, 256, 0, true, true, scalar_cumsum,
      verify_cumsum },
    { "softmax 50x10 f32", SOFTMAX, 50, 10, 1, true, true, scalar_softmax, verify_softmax },
    { "sum columns 50x16 f32", SUM, 50, 16, 0, true, false, scalar_sum, verify_sum },
    { "sum columns 50x10 f32", SUM, 50, 10, 0, true, false, scalar_sum, verify_sum },
    { "sum all 50 f32", SUM, 1, 50, -1, true, false, scalar_sum, verify_sum },
};

static void open_device(void)
{
    gd_device *device =
        gd_backend_cpu.open(&(gd_open_options){ GD_OPEN_DEFAULTS, .threads = MOST_THREADS }, 0);
    if (!device)
        gd_bench_die("%s", gd_error_message());
    bench.device =
        *(gd_cpu_device *)
            device; /* its table and scratch; the number of threads is set for each case */
}

int main(int argc, char **argv)
{
    bench.filter = argc > 1 ? argv[1] : NULL;
    open_device();
    bench.pool = (int64_t)(2 * gd_bench_uncached_bytes() / sizeof(float));
    bench.in = malloc((size_t)bench.pool * sizeof *bench.in);
    bench.out = malloc((size_t)bench.pool * sizeof(float));
    if (!bench.in || !bench.out)
        gd_bench_die("no memory");
    uint64_t state = 1;
    for (int64_t i = 0; i < bench.pool; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        bench.in[i] = (float)((double)(state >> 11) * 0x1p-50 - 4.0);
    }
    memset(bench.out, 0, (size_t)bench.pool * sizeof(float));
    int most = gd_cpu_count() < MOST_THREADS ? gd_cpu_count() : MOST_THREADS;
    for (int threads = 1; threads <= most; threads++) {
        gd_bench_pin(threads);
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
            bench_case(&problems[i], threads);
        bench_random(threads);
    }
    return gd_bench_all_verified() ? 0 : 1;
}
