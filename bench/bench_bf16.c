/* bench/bench_bf16.c: bfloat16 against our own f32: products, compiled, whose result is rounded to
 * bfloat16, and training steps of perceptrons under autocast with the casts of their weights. Both
 * take turns. Every product is compared with sums in double first.
 *
 * usage: bench_bf16 [part of a case's name]
 */
#include "measure.h"

#include <gradus/gradus.h>

#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
enum { ROUNDS = 15, MOST_THREADS = 2 };
#define SAMPLE_SECONDS 2e-3

/* A compiled function on its operands. */
typedef struct work {
    gd_context *context;
    gd_function *function;
    gd_tensor *in[2];
} work;

static void run(void *user)
{
    work *w = user;
    gd_scope_begin(w->context);
    if (!gd_call(w->function, 2, w->in))
        gd_bench_die("%s", gd_error_message());
    gd_scope_end(w->context);
}

static void print(const char *name, int threads, const char *metric, double amount,
                  const gd_bench_runner *runners, bool verified)
{
    const bool is_rate = amount > 0;
    const double seconds = runners[0].timing.seconds, of_f32 = runners[1].timing.seconds;
    gd_bench_row row = gd_bench_make_row(
        "bf16", name, threads, metric, is_rate ? amount / seconds * 1e-9 : seconds * 1e3, verified);
    row.more_is_better = is_rate;
    row.peer = is_rate ? amount / of_f32 * 1e-9 : of_f32 * 1e3;
    row.peer_name = "f32";
    row.ours_spread = runners[0].timing.spread;
    row.peer_spread = runners[1].timing.spread;
    gd_bench_print_row(&row);
}

static void take_turns(work *bf16, work *f32, int threads, gd_bench_runner runners[2])
{
    runners[0] = (gd_bench_runner){ .run = run, .user = bf16 };
    runners[1] = (gd_bench_runner){ .run = run, .user = f32 };
    gd_bench_take_turns(runners, 2, ROUNDS, SAMPLE_SECONDS, threads);
}

/* ---- products ---- */

typedef struct shape {
    int64_t m, k, n;
    bool a_transposed, b_transposed; /* in memory */
} shape;

static const shape shapes[] = {
    { 64, 64, 64, false, false },       { 256, 256, 256, false, false },
    { 512, 512, 512, false, false },    { 1024, 1024, 1024, false, false },
    { 2048, 2048, 2048, false, false }, { 2048, 384, 1536, false, false },
    { 2048, 384, 1536, true, false },   { 2048, 384, 1536, false, true },
    { 256, 768, 3072, false, false },   { 64, 784, 512, false, false },
};

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    const shape *s = user;
    (void)count;
    gd_tensor *a = s->a_transposed ? gd_transpose(in[0], 0, 1) : in[0];
    return gd_matmul(a, s->b_transposed ? gd_transpose(in[1], 0, 1) : in[1]);
}

static gd_tensor *matrix(gd_context *gd, int64_t rows, int64_t columns, bool transposed)
{
    return gd_retain(gd_cast(
        gd_normal(gd, transposed ? GD_SHAPE(columns, rows) : GD_SHAPE(rows, columns), 0, 1, GD_F32),
        GD_BF16));
}

static double number_of(const uint16_t *x, int64_t i, int64_t j, int64_t rows, int64_t columns,
                        bool transposed)
{
    return (double)gd_bf16_to_f32(x[transposed ? j * rows + i : i * columns + j]);
}

/* Some elements of the product, within the bound of sums in f32 and a rounding to bfloat16. */
static bool verify(const shape *s, work *w)
{
    gd_scope_begin(w->context);
    gd_tensor *c = gd_call(w->function, 2, w->in);
    bool right = c != NULL;
    const uint16_t *a = gd_tensor_data(w->in[0]), *b = gd_tensor_data(w->in[1]),
                   *result = c ? gd_tensor_data(c) : NULL;
    for (int64_t at = 0; right && at < s->m * s->n; at += s->m * s->n / 997 + 1) {
        const int64_t i = at / s->n, j = at % s->n;
        double sum = 0, size = 0;
        for (int64_t p = 0; p < s->k; p++) {
            const double x = number_of(a, i, p, s->m, s->k, s->a_transposed) *
                             number_of(b, p, j, s->k, s->n, s->b_transposed);
            sum += x;
            size += fabs(x);
        }
        const double bound = (double)(s->k + 1) * FLT_EPSILON * size;
        right = fabs((double)gd_bf16_to_f32(result[at]) - sum) <= bound + (fabs(sum) + bound) / 256;
    }
    gd_scope_end(w->context);
    return right;
}

static void bench_product(const shape *s, int threads, const char *filter)
{
    char name[64];
    snprintf(name, sizeof name, "%lldx%lldx%lld%s%s", (long long)s->m, (long long)s->k,
             (long long)s->n, s->a_transposed ? " A transposed" : "",
             s->b_transposed ? " B transposed" : "");
    if (filter && !strstr(name, filter))
        return;
    gd_context *gd = gd_open("cpu", .threads = threads);
    gd_bench_pin(threads);
    work bf16 = { .context = gd,
                  .function = gd_compile(gd, product, (void *)(uintptr_t)s),
                  .in = { matrix(gd, s->m, s->k, s->a_transposed),
                          matrix(gd, s->k, s->n, s->b_transposed) } };
    work f32 = { .context = gd, .function = gd_compile(gd, product, (void *)(uintptr_t)s) };
    for (int i = 0; i < 2; i++)
        f32.in[i] = gd_retain(gd_cast(bf16.in[i], GD_F32));
    const bool right = verify(s, &bf16);
    gd_bench_runner runners[2];
    take_turns(&bf16, &f32, threads, runners);
    print(name, threads, "GFLOP/s", 2.0 * (double)s->m * (double)s->k * (double)s->n, runners,
          right);
    gd_close(gd);
    if (!right)
        gd_bench_die("%s: a result is wrong", name);
}

/* ---- training steps ---- */

typedef struct network {
    gd_module *module;
    gd_optimizer *optimizer;
    int64_t width;
    gd_dtype dtype;
} network;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    network *n = user;
    gd_context *gd = gd_module_context(n->module);
    (void)count;
    if (gd_autocast_begin(gd, n->dtype) != GD_OK)
        return NULL;
    gd_tensor *h = gd_relu(gd_nn_linear(n->module, "fc1", in[0], n->width));
    h = gd_relu(gd_nn_linear(n->module, "fc2", h, n->width));
    gd_tensor *loss = gd_cross_entropy(gd_nn_linear(n->module, "out", h, 10), in[1]);
    return gd_autocast_end(gd) == GD_OK ? gd_minimize(n->optimizer, loss) : NULL;
}

static void bench_step(int64_t width, int64_t batch, int threads, const char *filter)
{
    char name[64];
    snprintf(name, sizeof name, "MLP 784-%lld-%lld-10 step, batch %lld", (long long)width,
             (long long)width, (long long)batch);
    if (filter && !strstr(name, filter))
        return;
    gd_context *gd = gd_open("cpu", .threads = threads);
    gd_bench_pin(threads);
    gd_tensor *in[2] = { gd_retain(gd_normal(gd, GD_SHAPE(batch, 784), 0, 1, GD_F32)),
                         gd_retain(gd_randint(gd, GD_SHAPE(batch), 0, 10, GD_I64)) };
    network networks[2];
    work works[2];
    for (int i = 0; i < 2; i++) {
        network *n = &networks[i];
        *n = (network){ .module = gd_module_create(gd, .seed = 3),
                        .width = width,
                        .dtype = i ? GD_F32 : GD_BF16 };
        n->optimizer = gd_adam(n->module);
        works[i] = (work){ gd, gd_compile(gd, step, n), { in[0], in[1] } };
    }
    gd_bench_runner runners[2];
    take_turns(&works[0], &works[1], threads, runners);
    print(name, threads, "ms", 0, runners, true);
    gd_close(gd);
}

int main(int count, char **arguments)
{
    const char *filter = count > 1 ? arguments[1] : NULL;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        for (size_t i = 0; i < COUNT(shapes); i++)
            bench_product(&shapes[i], threads, filter);
        bench_step(16, 50, threads, filter);
        bench_step(128, 64, threads, filter);
        bench_step(512, 64, threads, filter);
        bench_step(1024, 256, threads, filter);
    }
    return gd_bench_all_verified() ? 0 : 1;
}
