/* bench/bench_lstm.c: a two-layer LSTM, 256 wide, over 128 steps of 32 sequences: forward and
 * backward (gradients of the input and of all parameters), compiled and eager, against PyTorch's.
 * One JSON object a line on stdout. The bound is the arithmetic of the matrix products alone, at
 * the machine's peak. Verified: weighted sums of the result and of the input's gradient.
 */
#include "measure.h"
#include "peak.h"
#include "waves.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>
#include <gradus/sequence.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, TIME = 128, INPUT = 256, WIDTH = 256, LAYERS = 2, MOST = 64 };

typedef struct problem {
    gd_context *context;
    gd_module *module;
    gd_tensor *in[2]; /* x, gradient of the result */
    gd_function *step;
    double sums[2];
} problem;

static gd_tensor *body(void *user, gd_tensor *const *in)
{
    problem *p = user;
    gd_tensor *y = gd_nn_lstm(p->module, "lstm", in[0], WIDTH, .layers = LAYERS);
    gd_tensor *wanted[MOST] = { in[0] }, *g[MOST];
    int count = 1;
    for (int i = 0; i < gd_module_count(p->module) && count < MOST; i++)
        wanted[count++] = gd_module_tensor(p->module, i);
    if (gd_grad(&y, &in[1], 1, wanted, g, count) != GD_OK)
        return NULL;
    for (int i = 0; i < count; i++)
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

static void open_problem(problem *p, int threads, gd_mode mode)
{
    *p = (problem){ .context = gd_open("cpu", .threads = threads) };
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
    p->step = gd_compile(p->context, body, p, .mode = mode, .detached = true);
    call(p);
    for (int i = 0; i < gd_module_count(p->module); i++) {
        gd_tensor *t = gd_module_tensor(p->module, i);
        float *values = gd_bench_sines(gd_tensor_count(t), i, 0.05);
        (void)gd_tensor_write(t, values, (size_t)gd_tensor_count(t) * sizeof *values);
        free(values);
    }
    gd_tensor *y = gd_call(p->step, 2, p->in);
    p->sums[0] = gd_bench_weighted_sum(y);
    if (mode == GD_MODE_COMPILED) /* eager calls keep no further results */
        p->sums[1] = gd_bench_weighted_sum(gd_function_result(p->step, 1));
}

static void bench(int threads)
{
    static const char *const names[2] = { "forward + backward, compiled",
                                          "forward + backward, eager" };
    static const gd_mode modes[2] = { GD_MODE_COMPILED, GD_MODE_EAGER };
    double seconds[2], sums[2] = { 0 }, peer = NAN, peer_sums[2] = { 0 };
    bool same = true;
    for (int i = 0; i < 2; i++) {
        problem p;
        open_problem(&p, threads, modes[i]);
        same &= i == 0 || sums[0] == p.sums[0];
        if (i == 0)
            memcpy(sums, p.sums, sizeof sums);
        seconds[i] = gd_bench_seconds(call, &p, 1, threads, 3);
        gd_close(p.context);
    }
    char name[64] = "PyTorch";
    const char *arguments[] = { gd_bench_python(),
                                GD_SOURCE_DIR "/bench/peers/lstm_torch.py",
                                "32",
                                "128",
                                "256",
                                "256",
                                "2",
                                NULL };
    gd_bench_process *process = gd_bench_start(arguments, threads);
    gd_bench_line line;
    while (process && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0)
            snprintf(name, sizeof name, "%.60s", line.text);
        if (strcmp(line.kind, "time") == 0 &&
            sscanf(line.text, "%lf %lf %lf", &peer, &peer_sums[0], &peer_sums[1]) == 3)
            for (int i = 0; i < 2; i++)
                same &= fabs(sums[i] - peer_sums[i]) <= 1e-3 * (1 + fabs(peer_sums[i]));
    }
    if (!process || gd_bench_finish(process) != 0)
        fprintf(stderr, "no peer: %s did not run lstm_torch.py\n", gd_bench_python());
    double peak = gd_bench_peak_flops(gd_isa_choose(), false, threads);
    double flops = 3 * 2.0 * BATCH * TIME * LAYERS * 4 * WIDTH * (INPUT + WIDTH);
    for (int i = 0; i < 2; i++) {
        gd_bench_row row = { .suite = "lstm",
                             .name = names[i],
                             .threads = threads,
                             .metric = "ms",
                             .ours = seconds[i] * 1e3,
                             .peer = peer * 1e3,
                             .peer_name = isnan(peer) ? NULL : name,
                             .bound_fraction = flops / peak / seconds[i],
                             .verified = same };
        gd_bench_print_row(&row);
    }
}

int main(void)
{
    for (int threads = 1; threads <= 2; threads++)
        bench(threads);
    return gd_bench_all_verified() ? 0 : 1;
}
