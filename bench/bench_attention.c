/* bench/bench_attention.c: gd_attention, forward and backward, 8 heads of width 64, against
 * PyTorch's scaled_dot_product_attention, against the plain composition, and as a share of the rate
 * at which our own matrix product runs. Then the memory of attention, and of a training step of a
 * language model with and without checkpointing, for 256 to 8,192 tokens. One JSON object a line on
 * stdout, a table on stderr. Start reading at bench_time().
 *
 * Arithmetic: two products of 2 T^2 d multiply-adds forward, five backward; half of that where the
 * future is hidden. The share printed is of that arithmetic at the rate of a product of [512, 512]
 * matrices measured in the same run. Results are compared first: sums over the result and the three
 * gradients, weighted by cosines, with the peer's, and with the plain composition's.
 */
#include "measure.h"
#include "waves.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/language.h>
#include <gradus/ops.h>
#include <gradus/optim.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, WIDTH = 64, MOST_TIMES = 5 };
static const int64_t times[MOST_TIMES] = { 256, 512, 1024, 2048, 4096 };

typedef struct sums {
    double value[4]; /* of the result and the gradients of q, k, v */
} sums;

typedef struct problem {
    gd_context *context;
    int64_t time;
    bool causal, plain;
    gd_tensor *in[4]; /* q, k, v, gradient */
    gd_function *step;
} problem;

static gd_tensor *numbers(gd_context *context, int64_t time, double phase)
{
    float *values = gd_bench_sines(HEADS * time * WIDTH, phase, 1);
    gd_tensor *t = gd_from_host(context, GD_SHAPE(1, HEADS, time, WIDTH), GD_F32, values);
    free(values);
    return t;
}

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const problem *p = user;
    gd_tensor *y = gd_attention(in[0], in[1], in[2], .causal = p->causal, .plain = p->plain);
    gd_tensor *g[3];
    if (gd_grad(1, &y, &in[3], 3, in, g) != GD_OK)
        return NULL;
    for (int i = 0; i < 3; i++)
        if (!gd_output(g[i]))
            return NULL;
    return y;
}

static void call(void *user)
{
    problem *p = user;
    if (!gd_call(p->step, 4, p->in))
        gd_bench_die("%s", gd_error_message());
}

static void open_problem(problem *p, int threads, int64_t time, bool causal, bool plain)
{
    *p = (problem){ .context = gd_open("cpu", .threads = threads),
                    .time = time,
                    .causal = causal,
                    .plain = plain };
    if (!p->context)
        gd_bench_die("%s", gd_error_message());
    for (int i = 0; i < 4; i++)
        p->in[i] = gd_set_requires_grad(numbers(p->context, time, i), i < 3);
    p->step = gd_compile(p->context, body, p, .detached = true);
    call(p);
}

static sums sums_of(const problem *p)
{
    sums s;
    for (int i = 0; i < 4; i++)
        s.value[i] = gd_bench_weighted_sum(gd_function_result(p->step, i));
    return s;
}

/* Sums of many terms of both signs; their error grows with the number of terms, not with the sum.
 */
static bool agree(const sums *a, const sums *b, int64_t time)
{
    bool same = true;
    for (int i = 0; i < 4; i++)
        same &= fabs(a->value[i] - b->value[i]) <=
                1e-6 * sqrt((double)(HEADS * time * WIDTH)) + 1e-5 * fabs(b->value[i]);
    return same;
}

/* ---- our own matrix product ---- */

typedef struct product {
    gd_function *function;
    gd_tensor *in[2];
} product;

static gd_tensor *multiply(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[1]);
}

static void call_product(void *user)
{
    product *p = user;
    if (!gd_call(p->function, 2, p->in))
        gd_bench_die("%s", gd_error_message());
}

static double product_rate(int threads)
{
    gd_context *context = gd_open("cpu", .threads = threads);
    product p = { gd_compile(context, multiply, NULL),
                  { gd_ones(context, GD_SHAPE(512, 512), GD_F32),
                    gd_ones(context, GD_SHAPE(512, 512), GD_F32) } };
    double seconds = gd_bench_time(call_product, &p, 4, threads, 0.5).seconds;
    gd_close(context);
    return 2.0 * 512 * 512 * 512 / seconds;
}

/* ---- rows ---- */

typedef struct peer {
    char name[64], how[MOST_TIMES][64];
    gd_bench_timing timing[MOST_TIMES];
    sums sums[MOST_TIMES];
} peer;

/* Lines "how T TEXT" and "time T SECONDS SPREAD SUMS". */
static void run_peer(peer *all, bool causal, int threads)
{
    *all = (peer){ .name = "PyTorch" };
    for (int i = 0; i < MOST_TIMES; i++)
        all->timing[i] = (gd_bench_timing){ NAN, NAN };
    const char *arguments[] = { gd_bench_python(),
                                GD_SOURCE_DIR "/bench/peers/attention_torch.py",
                                gd_bench_quick() ? "0.3" : "1",
                                "8",
                                "64",
                                causal ? "1" : "0",
                                "256",
                                "512",
                                "1024",
                                "2048",
                                "4096",
                                NULL };
    gd_bench_process *process = gd_bench_start(arguments, threads);
    gd_bench_line line;
    while (process && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0)
            snprintf(all->name, sizeof all->name, "%.60s", line.text);
        for (int i = 0; i < MOST_TIMES && line.count > 0; i++) {
            if (line.numbers[0] != (double)times[i])
                continue;
            if (strcmp(line.kind, "how") == 0)
                snprintf(all->how[i], sizeof all->how[i], "%.60s",
                         line.text + strcspn(line.text, " ") + 1);
            else if (strcmp(line.kind, "time") == 0 && line.count >= 7) {
                all->timing[i] = (gd_bench_timing){ line.numbers[1], line.numbers[2] };
                memcpy(all->sums[i].value, line.numbers + 3, sizeof all->sums[i].value);
            }
        }
    }
    if (!process || gd_bench_finish(process) != 0)
        fprintf(stderr, "no peer: %s did not run attention_torch.py\n", gd_bench_python());
}

static void bench_time(int64_t i, bool causal, int threads, double rate, const peer *other)
{
    problem p, plain;
    int64_t time = times[i];
    open_problem(&p, threads, time, causal, false);
    sums ours = sums_of(&p);
    gd_bench_timing timing = gd_bench_time(call, &p, 1, threads, 0.7);
    double seconds = timing.seconds;
    double flops = 7 * 2.0 * HEADS * WIDTH * (double)(time * time) * (causal ? 0.5 : 1);
    bool has_peer = !isnan(other->timing[i].seconds), verified = true;
    if (has_peer)
        verified = agree(&ours, &other->sums[i], time);
    gd_bench_timing plain_timing = { NAN, NAN };
    if (time <= 1024) {
        open_problem(&plain, threads, time, causal, true);
        sums theirs = sums_of(&plain);
        verified &= agree(&ours, &theirs, time);
        plain_timing = gd_bench_time(call, &plain, 1, threads, 0.3);
        gd_close(plain.context);
    }
    gd_close(p.context);
    char name[80];
    snprintf(name, sizeof name, "forward + backward, T = %lld%s", (long long)time,
             causal ? ", causal" : "");
    gd_bench_row row = gd_bench_make_row("attention", name, threads, "ms", seconds * 1e3, verified);
    row.ours_spread = timing.spread;
    row.peer = other->timing[i].seconds * 1e3;
    row.peer_spread = other->timing[i].spread;
    row.peer_name = has_peer ? other->name : NULL;
    row.peer_how = has_peer ? other->how[i] : NULL;
    row.bound_fraction = flops / seconds / rate;
    row.bound = "our product of 512x512";
    gd_bench_print_row(&row);
    if (!isnan(plain_timing.seconds)) {
        row.peer = plain_timing.seconds * 1e3;
        row.peer_spread = plain_timing.spread;
        row.peer_name = "plain composition";
        row.peer_how = NULL;
        gd_bench_print_row(&row);
    }
}

/* Most memory a step takes beside its operands, eagerly: results, gradients and what lies between.
 */
static double step_memory(int64_t time, bool plain)
{
    problem p = { .context = gd_open("cpu", .threads = 2), .time = time, .plain = plain };
    for (int i = 0; i < 4; i++)
        p.in[i] = gd_set_requires_grad(numbers(p.context, time, i), i < 3);
    gd_scope_begin(p.context);
    size_t before = gd_memory(p.context).in_use;
    gd_memory_reset_peak(p.context);
    if (!body(&p, 4, p.in))
        gd_bench_die("%s", gd_error_message());
    double bytes = (double)(gd_memory(p.context).peak - before);
    gd_scope_end(p.context);
    gd_close(p.context);
    return bytes / (1024 * 1024);
}

/* ---- memory of a language model's step ---- */

typedef struct trainee {
    gd_language_model *model;
    gd_optimizer *optimizer;
} trainee;

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_language_model_loss(t->model, in[0], in[0]));
}

/* What the plan of a training step takes beside the weights: 4 layers, 4 heads, 128 wide. */
static double model_memory(int64_t time, bool checkpoint)
{
    gd_context *gd = gd_open("cpu", .threads = 2);
    trainee t = { .model = gd_language_model_create(gd, .vocabulary = 65, .max_length = time,
                                                    .layers = 4, .heads = 4, .width = 128,
                                                    .checkpoint = checkpoint) };
    t.optimizer = gd_sgd(gd_language_model_module(t.model));
    gd_function *step = gd_compile(gd, train, &t);
    gd_tensor *tokens = gd_zeros(gd, GD_SHAPE(1, time), GD_I64);
    if (!gd_call(step, 1, &tokens))
        gd_bench_die("%s", gd_error_message());
    double bytes = (double)gd_function_stats(step).arena_bytes;
    gd_close(gd);
    return bytes / (1024 * 1024);
}

static void print_memory(const char *what, int64_t time, double ours, double other,
                         const char *other_name)
{
    char name[80];
    snprintf(name, sizeof name, "%s, T = %lld", what, (long long)time);
    gd_bench_row row = gd_bench_make_row("attention", name, 2, "MiB", ours, true);
    row.peer = other;
    row.peer_name = other_name;
    gd_bench_print_row(&row);
}

static void bench_memory(void)
{
    for (int64_t time = 256; time <= 8192; time *= 2) {
        bool has_peer = time <= 2048;
        print_memory("memory of a step", time, step_memory(time, false),
                     has_peer ? step_memory(time, true) : NAN,
                     has_peer ? "plain composition" : NULL);
    }
    for (int64_t time = 256; time <= 8192; time *= 2)
        print_memory("memory of a model's step", time, model_memory(time, true),
                     model_memory(time, false), "not checkpointed");
}

int main(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        gd_bench_pin(threads);
        double rate = product_rate(threads);
        fprintf(stderr, "\n%d thread%s; our matrix product: %.0f GFLOP/s\n", threads,
                threads > 1 ? "s" : "", rate * 1e-9);
        for (int causal = 0; causal < 2; causal++) {
            peer other;
            run_peer(&other, causal, threads);
            for (int64_t i = 0; i < MOST_TIMES; i++)
                bench_time(i, causal, threads, rate, &other);
        }
    }
    bench_memory();
    return gd_bench_all_verified() ? 0 : 1;
}
