/* bench/bench_conv.c: convolution and its gradients on the CPU back end against oneDNN and against
 * the multiply-adds this machine can do: layers of ResNet-50 (He et al. 2015), LeNet-5 and the
 * example networks. One JSON object a line on stdout, a table on stderr. Start at bench_case().
 *
 * All tensors are NCHW, as users hold them. oneDNN is run in two ways, and the faster is the peer:
 * on NCHW as it is, and in the layouts it likes best, with the conversions of operands and result
 * counted. A further row names oneDNN's time in its own layouts with no conversion counted, which a
 * user who keeps whole networks in them would see; it is not in the means. Results are compared
 * with sums in double first. Runners take turns within each round; the median of the rounds counts.
 * On two threads, where anyone is slower than on one, all are measured once more, and each one's
 * better time counts. A quick run (BENCH_QUICK) measures some of the layers.
 *
 * usage: [GRADUS_NUMBERS=fast] bench_conv [part of a case's name]
 */
#include "measure.h"
#include "onednn.h"
#include "peak.h"

#include "backend/cpu/conv_micro.h"
#include "backend/cpu/gemm.h"
#include "base/cpu.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array)   ((int)(sizeof(array) / sizeof *(array)))
#define MOST_THREADS   2
#define ROUNDS         9
#define SAMPLE_SECONDS 2e-3
#define SAMPLES        100 /* elements of a result that are compared */

typedef struct layer {
    const char *name;
    int64_t n, c, size, o, kernel, stride, pad;
    bool first; /* its input needs no gradient */
    bool quick; /* measured in a quick run too */
} layer;

static const layer layers[] = {
    { "ResNet 7x7/2 3-64 at 224", 1, 3, 224, 64, 7, 2, 3, true, false },
    { "ResNet 1x1 64-256 at 56", 1, 64, 56, 256, 1, 1, 0, false, false },
    { "ResNet 3x3 64-64 at 56", 1, 64, 56, 64, 3, 1, 1, false, false },
    { "ResNet 3x3/2 128-128 at 56", 1, 128, 56, 128, 3, 2, 1, false, false },
    { "ResNet 3x3 128-128 at 28", 1, 128, 28, 128, 3, 1, 1, false, false },
    { "ResNet 3x3 256-256 at 14", 1, 256, 14, 256, 3, 1, 1, false, false },
    { "ResNet 3x3 512-512 at 7", 1, 512, 7, 512, 3, 1, 1, false, false },
    { "ResNet 1x1 2048-512 at 7", 1, 2048, 7, 512, 1, 1, 0, false, false },
    { "ResNet 7x7/2 3-64 at 224 x16", 16, 3, 224, 64, 7, 2, 3, true, false },
    { "ResNet 1x1 64-256 at 56 x16", 16, 64, 56, 256, 1, 1, 0, false, true },
    { "ResNet 3x3 64-64 at 56 x16", 16, 64, 56, 64, 3, 1, 1, false, true },
    { "ResNet 3x3/2 128-128 at 56 x16", 16, 128, 56, 128, 3, 2, 1, false, true },
    { "ResNet 3x3 128-128 at 28 x16", 16, 128, 28, 128, 3, 1, 1, false, false },
    { "ResNet 3x3 256-256 at 14 x16", 16, 256, 14, 256, 3, 1, 1, false, true },
    { "ResNet 3x3 512-512 at 7 x16", 16, 512, 7, 512, 3, 1, 1, false, false },
    { "ResNet 1x1 2048-512 at 7 x16", 16, 2048, 7, 512, 1, 1, 0, false, false },
    { "LeNet 5x5 1-6 at 28 x64", 64, 1, 28, 6, 5, 1, 2, true, false },
    { "LeNet 5x5 6-16 at 14 x64", 64, 6, 14, 16, 5, 1, 0, false, true },
    { "simple CNN 3x3 3-8 at 32 x32", 32, 3, 32, 8, 3, 1, 1, true, true },
    { "cats-dogs 3x3 3-16 at 64 x16", 16, 3, 64, 16, 3, 1, 1, true, false },
    { "cats-dogs 3x3 16-32 at 64 x16", 16, 16, 64, 32, 3, 1, 1, false, true },
    { "cats-dogs 3x3 32-64 at 64 x16", 16, 32, 64, 64, 3, 1, 1, false, false },
};

#define MOST_RUNNERS 4
enum direction { FORWARD, GRAD_INPUT, GRAD_WEIGHT, DIRECTIONS };
static const char *const direction_names[] = { "forward", "by input", "by weight" };
enum tensor { X, W, Y, TENSORS };
/* Operands in the op's order, then the result. */
static const enum tensor roles[DIRECTIONS][TENSORS] = { { X, W, Y }, { Y, W, X }, { Y, X, W } };

/* One layer in one direction. */
typedef struct problem {
    const layer *l;
    enum direction direction;
    int threads;
    gd_conv_attr attr;
    gd_conv_sizes s;
    int64_t count[TENSORS];
    float *data[TENSORS];
    gd_conv_args args;
    double *at_one; /* seconds on one thread, of each runner: [MOST_RUNNERS] */
#ifdef GD_HAVE_DNNL
    struct onednn {
        dnnl_primitive_t conv, reorder[TENSORS]; /* NULL: the tensor is as it likes it */
        dnnl_memory_t plain[TENSORS], own[TENSORS];
    } onednn[2]; /* on NCHW; in its own layouts */
#endif
} problem;

static struct {
    const gd_conv_micro *micro;
    gd_isa isa;
    gd_paths paths;
    bool fast; /* GRADUS_NUMBERS=fast */
    gd_workspace workspace;
    double peak[MOST_THREADS + 1];
    const char *filter;
    char peer_name[64];
    double at_one[COUNT(layers)][DIRECTIONS][MOST_RUNNERS];
#ifdef GD_HAVE_DNNL
    dnnl_engine_t engine;
    dnnl_stream_t stream;
#endif
} bench;

typedef void (*run_fn)(void *user);

static void run_ours(void *user)
{
    problem *p = user;
    static const gd_conv_fn run[] = { gd_conv_forward, gd_conv_grad_input, gd_conv_grad_weight };
    run[p->direction](&p->args);
}

/* ---- oneDNN ---- */

#ifdef GD_HAVE_DNNL
static void check(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success)
        gd_bench_die("oneDNN: %s failed", what);
}

static void execute(dnnl_primitive_t primitive, int count, const dnnl_exec_arg_t *args)
{
    check(dnnl_primitive_execute(primitive, bench.stream, count, args), "execute");
}

static void run_conv(problem *p, const struct onednn *d)
{
    static const int names[DIRECTIONS][TENSORS] = {
        { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
        { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
        { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
    };
    dnnl_exec_arg_t args[TENSORS];
    for (int t = 0; t < TENSORS; t++)
        args[t] = (dnnl_exec_arg_t){ names[p->direction][t], d->own[t] };
    execute(d->conv, TENSORS, args);
}

static void reorder(const struct onednn *d, enum tensor t, bool result)
{
    const dnnl_exec_arg_t args[2] = { { DNNL_ARG_FROM, result ? d->own[t] : d->plain[t] },
                                      { DNNL_ARG_TO, result ? d->plain[t] : d->own[t] } };
    if (d->reorder[t])
        execute(d->reorder[t], 2, args);
}

static void run_with_conversions(problem *p, const struct onednn *d)
{
    for (int i = 0; i < 2; i++)
        reorder(d, roles[p->direction][i], false);
    run_conv(p, d);
    reorder(d, roles[p->direction][2], true);
    check(dnnl_stream_wait(bench.stream), "wait");
}

static void run_onednn_plain(void *user)
{
    problem *p = user;
    run_with_conversions(p, &p->onednn[0]);
}

static void run_onednn_own(void *user)
{
    problem *p = user;
    run_with_conversions(p, &p->onednn[1]);
}

static void run_onednn_unconverted(void *user)
{
    problem *p = user;
    run_conv(p, &p->onednn[1]);
    check(dnnl_stream_wait(bench.stream), "wait");
}

static dnnl_primitive_desc_t describe_conv(const problem *p, const dnnl_memory_desc_t md[TENSORS])
{
    const layer *l = p->l;
    const dnnl_dims_t strides = { l->stride, l->stride }, pads = { l->pad, l->pad };
    const dnnl_dims_t dilates = { 0, 0 };
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    dnnl_primitive_desc_t hint = NULL, desc = NULL;
    check(dnnl_convolution_forward_primitive_desc_create(&hint, bench.engine, dnnl_forward_training,
                                                         direct, md[X], md[W], NULL, md[Y], strides,
                                                         dilates, pads, pads, NULL),
          "a forward description");
    if (p->direction == FORWARD)
        return hint;
    if (p->direction == GRAD_INPUT)
        check(dnnl_convolution_backward_data_primitive_desc_create(&desc, bench.engine, direct,
                                                                   md[X], md[W], md[Y], strides,
                                                                   dilates, pads, pads, hint, NULL),
              "a backward description");
    else
        check(dnnl_convolution_backward_weights_primitive_desc_create(
                  &desc, bench.engine, direct, md[X], md[W], NULL, md[Y], strides, dilates, pads,
                  pads, hint, NULL),
              "a backward description");
    dnnl_primitive_desc_destroy(hint);
    return desc;
}

/* Tensor t of *d: in the layout the primitive likes, with a conversion where that is another. */
static void open_tensor(problem *p, struct onednn *d, enum tensor t, const_dnnl_memory_desc_t plain,
                        const_dnnl_memory_desc_t own)
{
    check(dnnl_memory_create(&d->plain[t], plain, bench.engine, p->data[t]), "memory");
    if (dnnl_memory_desc_equal(own, plain)) {
        d->own[t] = d->plain[t];
        return;
    }
    check(dnnl_memory_create(&d->own[t], own, bench.engine, DNNL_MEMORY_ALLOCATE), "memory");
    const bool result = roles[p->direction][2] == t;
    dnnl_primitive_desc_t conversion;
    check(dnnl_reorder_primitive_desc_create(&conversion, result ? own : plain, bench.engine,
                                             result ? plain : own, bench.engine, NULL),
          "a conversion");
    check(dnnl_primitive_create(&d->reorder[t], conversion), "a conversion");
    dnnl_primitive_desc_destroy(conversion);
}

static void open_onednn(problem *p, struct onednn *d, bool own_layouts)
{
    const layer *l = p->l;
    const int64_t out = p->s.out[2];
    const dnnl_dims_t dims[TENSORS] = { { l->n, l->c, l->size, l->size },
                                        { l->o, l->c, l->kernel, l->kernel },
                                        { l->n, l->o, out, out } };
    static const dnnl_query_t queries[DIRECTIONS][TENSORS] = {
        { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md },
        { dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md },
        { dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md },
    };
    dnnl_memory_desc_t plain[TENSORS], wanted[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        check(dnnl_memory_desc_create_with_tag(&plain[t], 4, dims[t], dnnl_f32, dnnl_abcd),
              "a layout");
        check(dnnl_memory_desc_create_with_tag(&wanted[t], 4, dims[t], dnnl_f32,
                                               own_layouts ? dnnl_format_tag_any : dnnl_abcd),
              "a layout");
    }
    dnnl_primitive_desc_t desc = describe_conv(p, wanted);
    memset(d, 0, sizeof *d);
    for (int t = 0; t < TENSORS; t++)
        open_tensor(p, d, (enum tensor)t, plain[t],
                    dnnl_primitive_desc_query_md(desc, queries[p->direction][t], 0));
    check(dnnl_primitive_create(&d->conv, desc), "a primitive");
    dnnl_primitive_desc_destroy(desc);
    for (int t = 0; t < TENSORS; t++) {
        dnnl_memory_desc_destroy(plain[t]);
        dnnl_memory_desc_destroy(wanted[t]);
    }
}

static void close_onednn(struct onednn *d)
{
    for (int t = 0; t < TENSORS; t++) {
        if (d->reorder[t]) {
            dnnl_primitive_destroy(d->reorder[t]);
            dnnl_memory_destroy(d->own[t]);
        }
        dnnl_memory_destroy(d->plain[t]);
    }
    dnnl_primitive_destroy(d->conv);
}
#endif

/* ---- checking ---- */

/* x at channel c of image n, where position (y, x) sees it through tap (ky, kx); 0 in the padding.
 */
static double seen(const problem *p, int64_t n, int64_t c, int64_t position, int64_t tap)
{
    const layer *l = p->l;
    const int64_t out = p->s.out[2];
    const int64_t y = position / out * l->stride - l->pad + tap / l->kernel;
    const int64_t x = position % out * l->stride - l->pad + tap % l->kernel;
    if (y < 0 || y >= l->size || x < 0 || x >= l->size)
        return 0;
    return (double)p->data[X][((n * l->c + c) * l->size + y) * l->size + x];
}

/* Element `at` of the result by its definition, and the sum of the magnitudes. */
static double exact(const problem *p, int64_t at, double *magnitude)
{
    const layer *l = p->l;
    const int64_t taps = p->s.taps, plane = p->s.out_plane, out = p->s.out[2];
    double sum = 0;
    *magnitude = 0;
#define ADD(a, b)                      \
    do {                               \
        const double term = (a) * (b); \
        sum += term;                   \
        *magnitude += fabs(term);      \
    } while (0)
    if (p->direction == FORWARD) {
        const int64_t position = at % plane, o = at / plane % l->o, n = at / plane / l->o;
        for (int64_t k = 0; k < l->c * taps; k++)
            ADD((double)p->data[W][o * l->c * taps + k], seen(p, n, k / taps, position, k % taps));
    } else if (p->direction == GRAD_WEIGHT) {
        const int64_t tap = at % taps, c = at / taps % l->c, o = at / taps / l->c;
        for (int64_t i = 0; i < l->n * plane; i++)
            ADD((double)p->data[Y][(i / plane * l->o + o) * plane + i % plane],
                seen(p, i / plane, c, i % plane, tap));
    } else {
        const int64_t x = at % l->size, y = at / l->size % l->size,
                      c = at / l->size / l->size % l->c, n = at / l->size / l->size / l->c;
        for (int64_t k = 0; k < l->o * taps; k++) {
            const int64_t ky = k % taps / l->kernel, kx = k % l->kernel, o = k / taps;
            const int64_t py = y + l->pad - ky, px = x + l->pad - kx;
            if (py % l->stride || px % l->stride || py < 0 || px < 0 || py / l->stride >= out ||
                px / l->stride >= out)
                continue;
            ADD((double)p->data[W][(o * l->c + c) * taps + k % taps],
                (double)p->data[Y][((n * l->o + o) * out + py / l->stride) * out + px / l->stride]);
        }
    }
    return sum;
#undef ADD
}

static bool verify(problem *p, run_fn run)
{
    const enum tensor result = roles[p->direction][2];
    memset(p->data[result], 0xFF, (size_t)p->count[result] * sizeof(float));
    run(p);
    const double steps = p->direction == GRAD_WEIGHT ? (double)(p->s.n * p->s.out_plane)
                         : p->direction == FORWARD   ? (double)(p->s.c * p->s.taps)
                                                     : (double)(p->s.o * p->s.taps);
    for (int i = 0; i < SAMPLES; i++) {
        const int64_t at = (int64_t)((double)i / (SAMPLES - 1) * (double)(p->count[result] - 1));
        double magnitude;
        const double expected = exact(p, at, &magnitude);
        if (!(fabs((double)p->data[result][at] - expected) <=
              (steps + 1) * (double)FLT_EPSILON * magnitude))
            return false;
    }
    return true;
}

/* ---- measuring ---- */

/* All runners in turns; where one of several threads is slower than one, once more. */
static void measure(problem *p, gd_bench_runner *runners, int count)
{
    bool slower = false;
    for (int i = 0; i < count; i++) { /* idle threads spin for a while, the peer's the longer */
        runners[i].user = p;
        runners[i].pause = p->threads == 1 ? 0 : i == 0 && count > 1 ? 0.1 : 4e-3;
    }
    gd_bench_take_turns(runners, count, ROUNDS, SAMPLE_SECONDS, p->threads);
    for (int i = 0; i < count; i++) {
        slower = slower || (p->threads > 1 && runners[i].timing.seconds > p->at_one[i]);
        if (p->threads == 1)
            p->at_one[i] = runners[i].timing.seconds;
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

/* `peer` NULL: there is none. */
static void print(const problem *p, const char *suffix, gd_bench_timing ours,
                  const gd_bench_timing *peer, const char *peer_how, bool verified)
{
    char name[96];
    snprintf(name, sizeof name, "%s, %s%s", p->l->name, direction_names[p->direction], suffix);
    const double flops =
        2.0 * (double)(p->s.n * p->s.o * p->s.out_plane) * (double)(p->s.c * p->s.taps);
    gd_bench_row row = gd_bench_make_row("conv", name, p->threads, "GFLOP/s",
                                         flops / ours.seconds * 1e-9, verified);
    row.ours_spread = ours.spread;
    row.more_is_better = true;
    row.bound_fraction = flops / ours.seconds / bench.peak[p->threads];
    row.bound = "FMA peak";
    if (peer) {
        row.peer = flops / peer->seconds * 1e-9;
        row.peer_spread = peer->spread;
        row.peer_name = bench.peer_name;
        row.peer_how = peer_how;
    }
    gd_bench_print_row(&row);
}

static void compare(problem *p)
{
    gd_bench_runner runners[MOST_RUNNERS] = { { .run = run_ours } };
    int count = 1;
#ifdef GD_HAVE_DNNL
    open_onednn(p, &p->onednn[0], false);
    open_onednn(p, &p->onednn[1], true);
    runners[count++].run = run_onednn_plain;
    runners[count++].run = run_onednn_own;
    runners[count++].run = run_onednn_unconverted;
#endif
    bool verified = true;
    for (int r = 0; r < count && r < 3; r++) {
        if (verify(p, runners[r].run))
            continue;
        fprintf(stderr, "%s: %s is wrong\n", p->l->name, r ? "oneDNN" : "ours");
        verified = false;
    }
    measure(p, runners, count);
#ifdef GD_HAVE_DNNL
    close_onednn(&p->onednn[0]);
    close_onednn(&p->onednn[1]);
    const bool plain = runners[1].timing.seconds < runners[2].timing.seconds;
    print(p, "", runners[0].timing, &runners[plain ? 1 : 2].timing,
          plain ? "NCHW" : "its layouts, conversions counted", verified);
    print(p, ", own layouts", runners[0].timing, &runners[3].timing,
          "its layouts, no conversion counted", verified);
#else
    print(p, "", runners[0].timing, NULL, NULL, verified);
#endif
}

static float *allocate(int64_t count, uint32_t seed)
{
    void *memory;
    if (posix_memalign(&memory, 4096, (size_t)count * sizeof(float)) != 0)
        gd_bench_die("out of memory");
    float *x = memory;
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)(int32_t)seed / 2147483648.0);
    }
    return x;
}

static void bench_case(int index, enum direction direction, int threads)
{
    const layer *l = &layers[index];
    char name[96];
    snprintf(name, sizeof name, "%s, %s", l->name, direction_names[direction]);
    if ((bench.filter && !strstr(name, bench.filter)) || (gd_bench_quick() && !l->quick) ||
        (direction == GRAD_INPUT && l->first))
        return;
    const int64_t out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    problem p = {
        .l = l, .direction = direction, .threads = threads, .at_one = bench.at_one[index][direction]
    };
    p.s = (gd_conv_sizes){ .n = l->n,
                           .groups = 1,
                           .c = l->c,
                           .o = l->o,
                           .in = { 1, l->size, l->size },
                           .kernel = { 1, l->kernel, l->kernel },
                           .out = { 1, out, out },
                           .in_plane = l->size * l->size,
                           .taps = l->kernel * l->kernel,
                           .out_plane = out * out };
    p.attr.groups = 1;
    for (int a = 0; a < GD_SPATIAL; a++) {
        p.attr.stride[a] = a ? l->stride : 1;
        p.attr.dilation[a] = 1;
        p.attr.before[a] = p.attr.after[a] = a ? l->pad : 0;
    }
    p.count[X] = l->n * l->c * p.s.in_plane;
    p.count[W] = l->o * l->c * p.s.taps;
    p.count[Y] = l->n * l->o * p.s.out_plane;
    for (int t = 0; t < TENSORS; t++)
        p.data[t] = allocate(p.count[t], (uint32_t)t + 1);
    const enum tensor *role = roles[direction];
    p.args = (gd_conv_args){ .attr = &p.attr,
                             .s = p.s,
                             .a = p.data[role[0]],
                             .b = p.data[role[1]],
                             .out = p.data[role[2]],
                             .micro = bench.micro,
                             .threads = threads,
                             .paths = &bench.paths,
                             .fast = bench.fast,
                             .workspace = bench.workspace };
    gd_bench_set_openmp_threads(threads); /* oneDNN's */
    compare(&p);
    for (int t = 0; t < TENSORS; t++)
        free(p.data[t]);
}

/* ---- setting up ---- */

static const gd_conv_micro *const kernels[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = &gd_conv_f32_baseline,
#ifdef GD_HAVE_AVX2
    [GD_ISA_AVX2] = &gd_conv_f32_avx2,
#endif
#ifdef GD_HAVE_AVX512
    [GD_ISA_AVX512] = &gd_conv_f32_avx512,
#endif
#ifdef GD_HAVE_NEON
    [GD_ISA_NEON] = &gd_conv_f32_neon,
#endif
};

static void choose_kernels(void)
{
    bench.isa = gd_isa_choose();
    if (bench.isa == GD_ISA_COUNT || !kernels[bench.isa])
        gd_bench_die("no kernels for this instruction set");
    bench.micro = kernels[bench.isa];
}

static void open_peer(void)
{
#ifdef GD_HAVE_DNNL
    check(dnnl_engine_create(&bench.engine, dnnl_cpu, 0), "starting");
    check(dnnl_stream_create(&bench.stream, bench.engine, dnnl_stream_default_flags), "starting");
    gd_bench_onednn_name(bench.peer_name, sizeof bench.peer_name);
#endif
}

int main(int argc, char **argv)
{
    bench.filter = argc > 1 ? argv[1] : NULL;
    const int most_threads = gd_cpu_count() < MOST_THREADS ? gd_cpu_count() : MOST_THREADS;
    unsetenv("ONEDNN_MAX_CPU_ISA");
    unsetenv("DNNL_MAX_CPU_ISA");
    choose_kernels();
    open_peer();
    gd_bench_set_openmp_threads(most_threads); /* its pool begins unbound */
    if (gd_paths_read(&bench.paths) != GD_OK)
        gd_bench_die("%s", gd_error_message());
    const char *numbers_asked = getenv("GRADUS_NUMBERS");
    bench.fast = numbers_asked && strcmp(numbers_asked, "fast") == 0;
    const size_t bytes = gd_scratch_bytes(gd_gemm_scratch_bytes(&bench.paths) + GD_CONV_SCRATCH +
                                              (bench.fast ? GD_CONV_FAST_SCRATCH : 0),
                                          GD_CONV_SCRATCH_BLOCKS);
    const int64_t numbers = most_threads * (int64_t)(bytes / sizeof(float));
    bench.workspace = (gd_workspace){ (char *)allocate(numbers, 0), bytes, most_threads };
    for (int threads = 1; threads <= most_threads; threads++) {
        gd_bench_pin(threads);
        bench.peak[threads] = gd_bench_peak_flops(bench.isa, false, threads);
        for (int i = 0; i < COUNT(layers); i++)
            for (int d = 0; d < DIRECTIONS; d++)
                bench_case(i, (enum direction)d, threads);
    }
    free(bench.workspace.memory);
    return gd_bench_all_verified() ? 0 : 1;
}
