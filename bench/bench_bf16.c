/* bench/bench_bf16.c: bfloat16 against our own f32, products against oneDNN's too: products and
 * convolutions, compiled, whose result is rounded to bfloat16, and training steps of perceptrons and of an
 * LSTM under autocast with the casts of their weights. All take turns. Every product is compared with sums in double first, every convolution
 * with f32's.
 *
 * usage: bench_bf16 [part of a case's name]
 */
#include "measure.h"
#include "onednn.h"

#include <gradus/gradus.h>

#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Against a peer; `amount` of floating-point operations, or 0 for a time. */
static void print(const char *name, int threads, double amount, gd_bench_timing ours,
                  gd_bench_timing peer, const char *peer_name, bool verified)
{
    const bool is_rate = amount > 0;
    gd_bench_row row =
        gd_bench_make_row("bf16", name, threads, is_rate ? "GFLOP/s" : "ms",
                          is_rate ? amount / ours.seconds * 1e-9 : ours.seconds * 1e3, verified);
    row.more_is_better = is_rate;
    row.peer = is_rate ? amount / peer.seconds * 1e-9 : peer.seconds * 1e3;
    row.peer_name = peer_name;
    row.ours_spread = ours.spread;
    row.peer_spread = peer.spread;
    gd_bench_print_row(&row);
}

/* The third runner, where there is one, is a peer with threads of its own. */
static void take_turns(work *bf16, work *f32, int threads, gd_bench_runner *runners, int count)
{
    static const double rest = 40e-3; /* seconds in which idle threads of either cease to spin */
    runners[0] = (gd_bench_runner){ .run = run, .user = bf16 };
    runners[1] = (gd_bench_runner){ .run = run, .user = f32 };
    for (int i = 0; i < count; i++)
        runners[i].pause = count > 2 && threads > 1 ? rest : 0;
    gd_bench_take_turns(runners, count, ROUNDS, SAMPLE_SECONDS, threads);
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
static bool is_product(const shape *s, const work *w, const uint16_t *result)
{
    const uint16_t *a = gd_tensor_data(w->in[0]), *b = gd_tensor_data(w->in[1]);
    bool right = true;
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
    return right;
}

static bool verify(const shape *s, work *w)
{
    gd_scope_begin(w->context);
    gd_tensor *c = gd_call(w->function, 2, w->in);
    const bool right = c && is_product(s, w, gd_tensor_data(c));
    gd_scope_end(w->context);
    return right;
}

/* oneDNN on the same operands; open_peer() is false where it is not there. */
#ifdef GD_HAVE_DNNL
static void run_onednn(void *user)
{
    gd_bench_onednn_run(user);
}

typedef struct peer {
    gd_bench_onednn_product product;
    char name[64];
} peer;

static bool open_peer(peer *p, const shape *s, const work *w, gd_bench_runner *runner)
{
    gd_bench_onednn_name(p->name, sizeof p->name);
    p->product = (gd_bench_onednn_product){ .type = dnnl_bf16,
                                            .batch = 1,
                                            .m = s->m,
                                            .k = s->k,
                                            .n = s->n,
                                            .a_transposed = s->a_transposed,
                                            .b_transposed = s->b_transposed,
                                            .a = gd_tensor_data(w->in[0]),
                                            .b = gd_tensor_data(w->in[1]),
                                            .c = calloc((size_t)(s->m * s->n), 2) };
    if (!p->product.c)
        gd_bench_die("out of memory");
    gd_bench_onednn_open(&p->product);
    gd_bench_onednn_run(&p->product);
    if (!is_product(s, w, p->product.c))
        gd_bench_die("%s: its product is wrong", p->name);
    *runner = (gd_bench_runner){ .run = run_onednn, .user = &p->product };
    return true;
}

static void close_peer(peer *p)
{
    gd_bench_onednn_close(&p->product);
    free(p->product.c);
}
#else
typedef struct peer {
    char name[1];
} peer;

static bool open_peer(peer *p, const shape *s, const work *w, gd_bench_runner *runner)
{
    (void)p, (void)s, (void)w, (void)runner;
    return false;
}

static void close_peer(peer *p)
{
    (void)p;
}
#endif

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
    gd_bench_set_openmp_threads(threads);
    work bf16 = { .context = gd,
                  .function = gd_compile(gd, product, (void *)(uintptr_t)s),
                  .in = { matrix(gd, s->m, s->k, s->a_transposed),
                          matrix(gd, s->k, s->n, s->b_transposed) } };
    work f32 = { .context = gd, .function = gd_compile(gd, product, (void *)(uintptr_t)s) };
    for (int i = 0; i < 2; i++)
        f32.in[i] = gd_retain(gd_cast(bf16.in[i], GD_F32));
    const bool right = verify(s, &bf16);
    gd_bench_runner runners[3];
    peer other;
    const bool there = open_peer(&other, s, &bf16, &runners[2]);
    take_turns(&bf16, &f32, threads, runners, there ? 3 : 2);
    const double flops = 2.0 * (double)s->m * (double)s->k * (double)s->n;
    print(name, threads, flops, runners[0].timing, runners[1].timing, "f32", right);
    if (there) {
        print(name, threads, flops, runners[0].timing, runners[2].timing, other.name, right);
        close_peer(&other);
    }
    gd_close(gd);
    if (!right)
        gd_bench_die("%s: a result is wrong", name);
}

/* ---- convolutions ---- */

enum direction { FORWARD, BY_INPUT, BY_WEIGHT, DIRECTIONS };
static const char *const direction_names[] = { "forward", "by input", "by weight" };

typedef struct layer {
    const char *name;
    int64_t n, c, size, o, kernel, stride;
} layer;

static const layer layers[] = {
    { "ResNet 3x3 64-64 at 56 x4", 4, 64, 56, 64, 3, 1 },
    { "ResNet 3x3/2 128-128 at 56 x4", 4, 128, 56, 128, 3, 2 },
    { "ResNet 3x3 256-256 at 14 x16", 16, 256, 14, 256, 3, 1 },
    { "ResNet 1x1 64-256 at 56 x4", 4, 64, 56, 256, 1, 1 },
    { "cats-dogs 3x3 16-32 at 64 x16", 16, 16, 64, 32, 3, 1 },
    { "cats-dogs 3x3 32-64 at 64 x16", 16, 32, 64, 64, 3, 1 },
};

typedef struct convolution {
    const layer *layer;
    enum direction direction;
} convolution;

/* Forward of (x, w), by input of (g, w), by weight of (g, x). */
static gd_tensor *convolve(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const convolution *c = user;
    const layer *l = c->layer;
    const gd_shape stride = GD_SHAPE(l->stride, l->stride),
                   padding = GD_SHAPE(l->kernel / 2, l->kernel / 2);
    if (c->direction == FORWARD)
        return gd_conv2d(in[0], in[1], NULL, .stride = stride, .padding = padding);
    gd_context *gd = gd_tensor_context(in[0]);
    const bool by_input = c->direction == BY_INPUT;
    const gd_shape operand = by_input ? GD_SHAPE(l->n, l->c, l->size, l->size)
                                      : GD_SHAPE(l->o, l->c, l->kernel, l->kernel);
    gd_tensor *of = gd_set_requires_grad(gd_zeros(gd, operand, gd_tensor_dtype(in[0])), true), *d;
    gd_tensor *y = by_input ? gd_conv2d(of, in[1], NULL, .stride = stride, .padding = padding)
                            : gd_conv2d(in[1], of, NULL, .stride = stride, .padding = padding);
    return gd_grad(1, &y, &in[0], 1, &of, &d) == GD_OK ? d : NULL;
}

static gd_tensor *half_noise(gd_context *gd, gd_shape sizes)
{
    return gd_retain(gd_cast(gd_normal(gd, sizes, 0, 1, GD_F32), GD_BF16));
}

/* In f32, of the operands or of their sizes. */
static gd_tensor *in_f32(const convolution *c, const work *w, bool sizes)
{
    gd_tensor *in[2];
    for (int i = 0; i < 2; i++) {
        gd_tensor *x = gd_cast(w->in[i], GD_F32);
        in[i] = sizes ? gd_abs(x) : x;
    }
    return convolve((void *)(uintptr_t)c, 2, in);
}

/* As near to f32's result, which bench_conv verifies, as both bounds of sums of `terms` products and
 * a rounding to bfloat16 say. */
static bool verify_convolution(const convolution *c, work *w, int64_t terms)
{
    gd_scope_begin(w->context);
    gd_tensor *r = gd_call(w->function, 2, w->in), *value = in_f32(c, w, false),
              *size = in_f32(c, w, true);
    bool right = r && value && size;
    const uint16_t *result = right ? gd_tensor_data(r) : NULL;
    const float *expected = right ? gd_tensor_data(value) : NULL,
                *sizes = right ? gd_tensor_data(size) : NULL;
    for (int64_t i = 0; right && i < gd_tensor_count(r); i++) {
        const double bound = 2 * (double)(terms + 1) * FLT_EPSILON * (double)sizes[i],
                     value_of = (double)expected[i];
        right = fabs((double)gd_bf16_to_f32(result[i]) - value_of) <=
                bound + (fabs(value_of) + bound) / 256;
    }
    gd_scope_end(w->context);
    return right;
}

static void bench_convolution(const layer *l, enum direction direction, int threads,
                              const char *filter)
{
    char name[64];
    snprintf(name, sizeof name, "%s %s", l->name, direction_names[direction]);
    if (filter && !strstr(name, filter))
        return;
    const convolution c = { l, direction };
    const int64_t out = (l->size - 1) / l->stride + 1;
    const double terms = (double)(l->c * l->kernel * l->kernel);
    gd_context *gd = gd_open("cpu", .threads = threads);
    gd_bench_pin(threads);
    gd_tensor *x = half_noise(gd, GD_SHAPE(l->n, l->c, l->size, l->size)),
              *w = half_noise(gd, GD_SHAPE(l->o, l->c, l->kernel, l->kernel)),
              *g = half_noise(gd, GD_SHAPE(l->n, l->o, out, out));
    work bf16 = { .context = gd,
                  .function = gd_compile(gd, convolve, (void *)(uintptr_t)&c),
                  .in = { direction == FORWARD ? x : g, direction == BY_WEIGHT ? x : w } };
    work f32 = { .context = gd, .function = gd_compile(gd, convolve, (void *)(uintptr_t)&c) };
    for (int i = 0; i < 2; i++)
        f32.in[i] = gd_retain(gd_cast(bf16.in[i], GD_F32));
    const bool right = verify_convolution(
        &c, &bf16, direction == BY_WEIGHT ? l->n * out * out : (int64_t)terms * l->o);
    gd_bench_runner runners[2];
    take_turns(&bf16, &f32, threads, runners, 2);
    print(name, threads, 2.0 * terms * (double)(l->n * l->o * out * out), runners[0].timing,
          runners[1].timing, "f32", right);
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

/* A network's step of (x, y) in bf16 and in f32. */
static void bench_network(gd_context *gd, const char *name, gd_function_body body, int64_t width,
                          gd_tensor *const in[2], int threads)
{
    network networks[2];
    work works[2];
    for (int i = 0; i < 2; i++) {
        network *n = &networks[i];
        *n = (network){ .module = gd_module_create(gd, .seed = 3),
                        .width = width,
                        .dtype = i ? GD_F32 : GD_BF16 };
        n->optimizer = gd_adam(n->module);
        works[i] = (work){ gd, gd_compile(gd, body, n), { in[0], in[1] } };
    }
    gd_bench_runner runners[2];
    take_turns(&works[0], &works[1], threads, runners, 2);
    print(name, threads, 0, runners[0].timing, runners[1].timing, "f32", true);
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
    bench_network(gd, name, step, width, in, threads);
    gd_close(gd);
}

static gd_tensor *lstm_step(void *user, int count, gd_tensor *const *in)
{
    network *n = user;
    gd_context *gd = gd_module_context(n->module);
    (void)count;
    if (gd_autocast_begin(gd, n->dtype) != GD_OK)
        return NULL;
    gd_tensor *h = gd_nn_lstm(n->module, "lstm", in[0], n->width); // [batch, time, width]
    gd_tensor *loss =
        gd_cross_entropy(gd_nn_linear(n->module, "out", gd_select(h, 1, -1), 10), in[1]);
    return gd_autocast_end(gd) == GD_OK ? gd_minimize(n->optimizer, loss) : NULL;
}

static void bench_lstm(int64_t width, int64_t batch, int threads, const char *filter)
{
    char name[64];
    snprintf(name, sizeof name, "LSTM %lld step, batch %lld of 32", (long long)width,
             (long long)batch);
    if (filter && !strstr(name, filter))
        return;
    gd_context *gd = gd_open("cpu", .threads = threads);
    gd_bench_pin(threads);
    gd_tensor *in[2] = { gd_retain(gd_normal(gd, GD_SHAPE(batch, 32, width), 0, 1, GD_F32)),
                         gd_retain(gd_randint(gd, GD_SHAPE(batch), 0, 10, GD_I64)) };
    bench_network(gd, name, lstm_step, width, in, threads);
    gd_close(gd);
}

int main(int count, char **arguments)
{
    const char *filter = count > 1 ? arguments[1] : NULL;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        for (size_t i = 0; i < COUNT(shapes); i++)
            bench_product(&shapes[i], threads, filter);
        for (size_t i = 0; i < COUNT(layers); i++)
            for (int k = 0; k < DIRECTIONS; k++)
                bench_convolution(&layers[i], (enum direction)k, threads, filter);
        bench_lstm(128, 64, threads, filter);
        bench_lstm(512, 64, threads, filter);
        bench_step(16, 50, threads, filter);
        bench_step(128, 64, threads, filter);
        bench_step(512, 64, threads, filter);
        bench_step(1024, 256, threads, filter);
    }
    return gd_bench_all_verified() ? 0 : 1;
}
