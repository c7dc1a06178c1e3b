/* bench/bench_lstm.c: a two-layer LSTM, 256 wide, over 128 steps of 32 sequences: forward and
 * backward (gradients of the input and of all parameters), compiled and eager, against PyTorch's
 * nn.LSTM and a jit-compiled one in JAX (peers/lstm_*.py). The bound is the arithmetic of the
 * matrix products alone, at the machine's peak. Verified: weighted sums of the result and of the
 * input's gradient, ours bit for bit among themselves. Each side runs in a process of its own, so
 * that its peak memory is its own, and they are timed in turns.
 */
#include "measure.h"
#include "peak.h"
#include "side.h"
#include "waves.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>
#include <gradus/precision.h>
#include <gradus/sequence.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, TIME = 128, INPUT = 256, WIDTH = 256, LAYERS = 2, MOST = 64 };

typedef struct problem {
    gd_dtype dtype; /* bf16: under autocast */
    gd_context *context;
    gd_module *module;
    gd_tensor *in[2]; /* x, gradient of the result */
    gd_function *step;
} problem;

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    problem *p = user;
    if (gd_autocast_begin(p->context, p->dtype) != GD_OK)
        return NULL;
    gd_tensor *y = gd_nn_lstm(p->module, "lstm", in[0], WIDTH, .layers = LAYERS);
    if (gd_autocast_end(p->context) != GD_OK)
        return NULL;
    y = gd_cast(y, GD_F32);
    gd_tensor *wanted[MOST] = { in[0] }, *g[MOST];
    int n = 1;
    for (int i = 0; i < gd_module_count(p->module) && n < MOST; i++)
        wanted[n++] = gd_module_tensor(p->module, i);
    if (gd_grad(1, &y, &in[1], n, wanted, g) != GD_OK)
        return NULL;
    for (int i = 0; i < n; i++)
        if (!gd_output(g[i]))
            return NULL;
    return y;
}

static void call(void *user)
{
    problem *p = user;
    if (!gd_call(p->step, 2, p->in))
        gd_bench_die("%s", gd_error_message());
}

static void open_problem(problem *p, int threads, gd_bench_way way)
{
    *p = (problem){ .dtype = way.dtype, .context = gd_open("cpu", .threads = threads) };
    if (!p->context)
        gd_bench_die("%s", gd_error_message());
    p->module = gd_module_create(p->context);
    float *x = gd_bench_sines(BATCH * TIME * INPUT, 50, 1),
          *g = gd_bench_sines(BATCH * TIME * WIDTH, 51, 1);
    p->in[0] = gd_set_requires_grad(
        gd_from_host(p->context, GD_SHAPE(BATCH, TIME, INPUT), GD_F32, x), true);
    p->in[1] = gd_from_host(p->context, GD_SHAPE(BATCH, TIME, WIDTH), GD_F32, g);
    free(x);
    free(g);
    p->step = gd_compile(p->context, body, p, .mode = way.mode, .detached = true);
    call(p);
    for (int i = 0; i < gd_module_count(p->module); i++) {
        gd_tensor *t = gd_module_tensor(p->module, i);
        float *values = gd_bench_sines(gd_tensor_count(t), i, 0.05);
        (void)gd_tensor_write(t, values, (size_t)gd_tensor_count(t) * sizeof *values);
        free(values);
    }
}

static void run_side(gd_bench_way way, int threads)
{
    problem p;
    double before = gd_bench_resident();
    open_problem(&p, threads, way);
    call(&p);
    double sums[2] = { gd_bench_weighted_sum(gd_function_result(p.step, 0)),
                       gd_bench_weighted_sum(gd_function_result(p.step, 1)) };
    gd_bench_timing step = gd_bench_time(call, &p, 1, threads, 3);
    printf("spread %.4g\nstep ours %.9g %.17g %.17g\n", step.spread, step.seconds, sums[0],
           sums[1]);
    gd_bench_print_memory(before);
    if (way.mode == GD_MODE_COMPILED)
        gd_bench_print_profile(p.step, 2, p.in);
    gd_bench_await_turns(call, &p, 1, threads);
    gd_close(p.context);
}

static void start_ours(gd_bench_sides *sides, const char *self, const char *mode, int threads,
                       gd_bench_side *out)
{
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    const char *arguments[] = { self, mode, count, NULL };
    if (!gd_bench_start_side(sides, arguments, threads, out))
        gd_bench_die("%s %s failed", self, mode);
}

static bool start_peer(gd_bench_sides *sides, const char *program, const char *mode, int threads,
                       gd_bench_side *out)
{
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    const char *seconds = gd_bench_quick() ? "1" : "3";
    const char *arguments[] = {
        gd_bench_python(), program, count, seconds, "32", "128", "256", "256", "2", mode, NULL
    };
    return gd_bench_start_side(sides, arguments, threads, out);
}

static const char torch[] = GD_SOURCE_DIR "/bench/peers/lstm_torch.py",
                  jax[] = GD_SOURCE_DIR "/bench/peers/lstm_jax.py";

/* In bf16, against our own f32 and PyTorch under autocast. The sums that are compared add a million
 * numbers, each rounded to 8 bits. */
static void bench_bf16(const char *self, int threads)
{
    enum { PEERS = 2 };
    static const char *const modes[PEERS] = { "eager-bf16", "compile-bf16" };
    gd_bench_sides sides = { .count = 0 };
    gd_bench_side ours[2], f32, peers[PEERS];
    bool there[PEERS];
    start_ours(&sides, self, "--compiled-bf16", threads, &ours[0]);
    start_ours(&sides, self, "--eager-bf16", threads, &ours[1]);
    start_ours(&sides, self, "--compiled", threads, &f32);
    for (int i = 0; i < PEERS; i++)
        there[i] = start_peer(&sides, torch, modes[i], threads, &peers[i]);
    (void)gd_bench_take_side_turns(&sides, threads);
    gd_bench_print_bf16(
        gd_bench_make_row("lstm", "forward + backward in bf16, compiled", threads, "ms", 0, true),
        &ours[0], &ours[1], &f32, peers, there, PEERS, 1);
}

static void bench(const char *self, int threads)
{
    static const char *const cases[2] = { "forward + backward, compiled",
                                          "forward + backward, eager" };
    static const char *const memories[2] = { "memory, compiled", "memory, eager" };
    static const char *const modes[2] = { "--compiled", "--eager" };
    static const char *const programs[2] = { torch, jax };
    gd_bench_sides sides = { .count = 0 };
    gd_bench_side ours[2], peers[2];
    bool there[2];
    for (int i = 0; i < 2; i++)
        start_ours(&sides, self, modes[i], threads, &ours[i]);
    for (int i = 0; i < 2; i++)
        there[i] = start_peer(&sides, programs[i], "eager", threads, &peers[i]);
    double peak = gd_bench_take_side_turns(&sides, threads);
    double flops = 3 * 2.0 * BATCH * TIME * LAYERS * 4 * WIDTH * (INPUT + WIDTH);
    for (int i = 0; i < 2; i++) {
        bool same = gd_bench_sides_agree(&ours[0], &ours[i], 0);
        gd_bench_row row =
            gd_bench_make_row("lstm", cases[i], threads, "ms", ours[i].seconds * 1e3, same);
        row.bound_fraction = flops / peak / ours[i].seconds;
        row.bound = "FMA peak";
        gd_bench_print_sides(row, &ours[i], peers, there, 2, false, 1e-2);
        gd_bench_print_sides(
            gd_bench_make_row("lstm", memories[i], threads, "MiB", ours[i].memory, same), &ours[i],
            peers, there, 2, true, 1e-2);
    }
    if (threads == 2)
        bench_bf16(self, threads);
}

int main(int count, char **arguments)
{
    if (count == 3) {
        run_side(gd_bench_parse_way(arguments[1]), atoi(arguments[2]));
        return 0;
    }
    char self[4096];
    gd_bench_own_path(self, sizeof self);
    for (int threads = 1; threads <= 2; threads++)
        bench(self, threads);
    return gd_bench_all_verified() ? 0 : 1;
}
