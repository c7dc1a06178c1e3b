/* bench/bench_compile.c: what compiling brings: small and wide networks, a block of primitives and
 * a chain over memory, compiled against eager and lazy execution, and against torch.compile and
 * JAX's jit on the same numbers. One JSON object a line on stdout, a table on stderr. Start at
 * main().
 *
 * bound_fraction is the share of the time that no program can do without: that of the products at
 * the peak of multiply-adds, or of reading the input and writing the result where these are larger
 * than the caches. BENCH_PROFILE=1 prints every kernel.
 *
 * A case is verified when compiled, lazy and eager give the same bits over STEPS calls, and each
 * peer the same first result to a thousandth. Peers are peers/compile_torch.py and compile_jax.py;
 * those that are not there (BENCH_PEERS_PYTHON names the Python that has them) are left out.
 */
#include "measure.h"
#include "peak.h"
#include "side.h"
#include "waves.h"

#include <gradus/gradus.h>
#include <gradus/loss.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
    ((condition) ? (void)0 : gd_bench_die("compile, line %d: %s", __LINE__, gd_error_message()))

enum { STEPS = 5, BATCH = 50, MOST_PARAMETERS = 6, MODES = 3 };
static const double seconds_each = 0.5;

typedef struct trainee trainee;

typedef struct example {
    const char *id, *name;
    gd_tensor *(*body)(void *user, int count, gd_tensor *const *in);
    gd_shape x;
    int64_t classes; /* 0: no labels */
    gd_shape parameters[MOST_PARAMETERS];
    int chunk;
} example;

struct trainee {
    gd_context *context;
    const example *what;
    gd_tensor *p[MOST_PARAMETERS], *m[MOST_PARAMETERS], *v[MOST_PARAMETERS], *count;
    gd_tensor *in[2];
    gd_function *function;
};

/* ---- numbers that a peer can make too: between -scale and scale ---- */

static gd_tensor *numbers(gd_context *gd, gd_shape shape, int seed, double scale)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    float *data = malloc((size_t)count * sizeof *data);
    if (!data)
        gd_bench_die("compile: out of memory");
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(((double)((i * 7919 + seed * 104729) % 2001) / 1000 - 1) * scale);
    gd_tensor *t = gd_retain(gd_from_host(gd, shape, GD_F32, data));
    free(data);
    CHECK(t);
    return t;
}

/* ---- the bodies ---- */

/* Adam with PyTorch's defaults, written out: what peers do in as many words. */
static void adam(trainee *t, gd_tensor *const *g, int n)
{
    gd_tensor *count = gd_add_scalar(t->count, 1);
    gd_context *gd = t->context;
    gd_tensor *c1 = gd_rsub_scalar(gd_pow(gd_scalar(gd, 0.9, GD_F32), count), 1);
    gd_tensor *c2 = gd_rsub_scalar(gd_pow(gd_scalar(gd, 0.999, GD_F32), count), 1);
    for (int i = 0; i < n; i++) {
        gd_tensor *m = gd_add(gd_mul_scalar(t->m[i], 0.9), gd_mul_scalar(g[i], 0.1));
        gd_tensor *v = gd_add(gd_mul_scalar(t->v[i], 0.999), gd_mul_scalar(gd_square(g[i]), 0.001));
        gd_tensor *spread = gd_add_scalar(gd_sqrt(gd_div(v, c2)), 1e-8);
        gd_assign(t->m[i], m);
        gd_assign(t->v[i], v);
        gd_assign(t->p[i], gd_sub(t->p[i], gd_mul_scalar(gd_div(gd_div(m, c1), spread), 1e-3)));
    }
    gd_assign(t->count, count);
}

static gd_tensor *update(trainee *t, gd_tensor *logits, gd_tensor *labels)
{
    gd_tensor *loss = gd_cross_entropy(logits, labels), *g[MOST_PARAMETERS];
    if (gd_grad(1, &loss, NULL, MOST_PARAMETERS, t->p, g) != GD_OK)
        return NULL;
    (void)gd_no_grad_begin(t->context);
    adam(t, g, MOST_PARAMETERS);
    (void)gd_no_grad_end(t->context);
    return loss;
}

static gd_tensor *dense(const trainee *t, int layer, gd_tensor *x)
{
    return gd_add(gd_matmul(x, t->p[2 * layer]), t->p[2 * layer + 1]);
}

static gd_tensor *mlp(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *h = gd_relu(dense(t, 1, gd_relu(dense(t, 0, in[0]))));
    return update(t, dense(t, 2, h), in[1]);
}

/* The MNIST network: the second hidden layer is added to the first. */
static gd_tensor *residual_mlp(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *a = gd_relu(dense(t, 0, in[0])), *b = gd_relu(dense(t, 1, a));
    return update(t, dense(t, 2, gd_add(a, b)), in[1]);
}

/* Layer norm, GELU and softmax of primitives, and the gradient by x of a weighted sum. */
static gd_tensor *block(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *x = t->p[0];
    gd_tensor *centred = gd_sub(x, gd_mean(x, GD_AXES(-1), true));
    gd_tensor *variance = gd_mean(gd_square(centred), GD_AXES(-1), true);
    gd_tensor *y = gd_mul(centred, gd_rsqrt(gd_add_scalar(variance, 1e-5)));
    y = gd_mul(gd_mul_scalar(y, 0.5), gd_add_scalar(gd_erf(gd_mul_scalar(y, 0.70710678)), 1));
    gd_tensor *e = gd_exp(gd_sub(y, gd_detach(gd_max(y, GD_AXES(-1), true))));
    gd_tensor *s = gd_div(e, gd_sum(e, GD_AXES(-1), true));
    gd_tensor *loss = gd_sum(gd_mul(s, in[0]), GD_ALL_AXES, false), *g;
    if (gd_grad(1, &loss, NULL, 1, &x, &g) != GD_OK)
        return NULL;
    gd_output(g);
    return loss;
}

static gd_tensor *chain(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0];
    gd_tensor *y = gd_sub_scalar(gd_mul(gd_add_scalar(gd_mul_scalar(x, 1.01), 0.5), x), 0.25);
    return gd_relu(gd_add(gd_mul_scalar(gd_abs(y), 0.5), x));
}

#define LAYERS(a, b, c, d)                                                             \
    {                                                                                  \
        { 2, { a, b } }, { 1, { b } }, { 2, { b, c } }, { 1, { c } }, { 2, { c, d } }, \
        {                                                                              \
            1,                                                                         \
            {                                                                          \
                d                                                                      \
            }                                                                          \
        }                                                                              \
    }
static const example examples[] = {
    { "mnist_mlp",
      "train step, MNIST MLP 784-16-16-10",
      residual_mlp,
      { 2, { BATCH, 784 } },
      10,
      LAYERS(784, 16, 16, 10),
      50 },
    { "mlp_512",
      "train step, MLP 784-512-512-10",
      mlp,
      { 2, { BATCH, 784 } },
      10,
      LAYERS(784, 512, 512, 10),
      1 },
    { "mlp_256",
      "train step, MLP 64-256-256-8",
      mlp,
      { 2, { BATCH, 64 } },
      8,
      LAYERS(64, 256, 256, 8),
      10 },
    { "block",
      "layer norm, GELU, softmax of primitives [256, 256], with gradient",
      block,
      { 2, { 256, 256 } },
      0,
      { { 2, { 256, 256 } } },
      2 },
    { "chain",
      "chain of 8 elementwise ops over 16 Mi",
      chain,
      { 1, { 1 << 24 } },
      0,
      { { 0 } },
      1 },
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* ---- running ---- */

static void open_trainee(trainee *t, const example *what, gd_mode mode)
{
    memset(t, 0, sizeof *t);
    t->what = what;
    t->context = gd_open("cpu", .threads = 1);
    CHECK(t->context);
    gd_context *gd = t->context;
    for (int i = 0; i < MOST_PARAMETERS && what->parameters[i].rank > 0; i++) {
        gd_shape shape = what->parameters[i];
        double scale = shape.rank > 1 ? 1 / sqrt((double)shape.dim[0]) : 0;
        t->p[i] = gd_set_requires_grad(numbers(gd, shape, i + 1, what->classes ? scale : 1), true);
        t->m[i] = gd_retain(gd_zeros(gd, shape, GD_F32));
        t->v[i] = gd_retain(gd_zeros(gd, shape, GD_F32));
    }
    t->count = gd_retain(gd_scalar(gd, 0, GD_F32));
    t->in[0] = numbers(gd, what->x, 17, 1);
    if (what->classes) {
        int64_t labels[BATCH];
        for (int64_t i = 0; i < BATCH; i++)
            labels[i] = i % what->classes;
        t->in[1] = gd_retain(gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, labels));
    }
    t->function = gd_compile(gd, what->body, t, .mode = mode, .detached = true);
    CHECK(t->function);
}

static gd_tensor *call(trainee *t)
{
    gd_tensor *result = gd_call(t->function, t->what->classes ? 2 : 1, t->in);
    CHECK(result);
    return result;
}

static void run(void *user)
{
    (void)call(user);
}

/* A number of the result, and what tells whether two runs are the same: its bits. */
static double value_of(const trainee *t, gd_tensor *result)
{
    if (gd_tensor_count(result) == 1)
        return gd_item(result);
    double value = NAN;
    if (gd_scope_begin(t->context) == GD_OK) {
        value = gd_item(gd_slice(result, 0, 12345, 12346, 1));
        (void)gd_scope_end(t->context);
    }
    return value;
}

typedef struct result {
    gd_bench_timing timing;
    double compile_seconds, values[STEPS];
    gd_plan_stats plan;
} result;

/* Seconds that compiling takes, the parameters being there. */
static double compile_seconds(trainee *t)
{
    double samples[5];
    for (int i = 0; i < 5; i++) {
        gd_function *f = gd_compile(t->context, t->what->body, t, .detached = true);
        CHECK(gd_function_prepare(f, t->what->classes ? 2 : 1, t->in) == GD_OK);
        samples[i] = gd_function_stats(f).compile_seconds;
        gd_function_release(f);
    }
    return gd_bench_median(samples, 5);
}

static result measure(const example *what, gd_mode mode)
{
    trainee t;
    result r = { 0 };
    open_trainee(&t, what, mode);
    for (int i = 0; i < STEPS; i++)
        r.values[i] = value_of(&t, call(&t));
    r.plan = gd_function_stats(t.function);
    r.compile_seconds = mode == GD_MODE_COMPILED ? compile_seconds(&t) : 0;
    r.timing = gd_bench_time(run, &t, what->chunk, 1, seconds_each);
    if (mode == GD_MODE_COMPILED)
        gd_bench_print_profile(t.function, what->classes ? 2 : 1, t.in);
    gd_close(t.context);
    return r;
}

/* ---- peers ---- */

typedef struct peer_time {
    char name[64], how[EXAMPLES][64];
    double us[EXAMPLES], spread[EXAMPLES], value[EXAMPLES];
} peer_time;

/* Lines "name NAME" begin a peer; "how CASE TEXT" and "us CASE US SPREAD VALUE" follow. */
static int run_peers(const char *script, peer_time *peers, int most)
{
    const char *arguments[] = { gd_bench_python(), script, NULL };
    gd_bench_process *process = gd_bench_start(arguments, 1);
    gd_bench_line line;
    int count = 0;
    while (process && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0 && count < most) {
            snprintf(peers[count].name, sizeof peers[count].name, "%.63s", line.text);
            for (int i = 0; i < EXAMPLES; i++)
                peers[count].us[i] = peers[count].value[i] = NAN;
            count++;
        }
        for (int i = 0; i < EXAMPLES && count > 0; i++) {
            peer_time *peer = &peers[count - 1];
            if (strcmp(line.mode, examples[i].id) != 0)
                continue;
            if (strcmp(line.kind, "how") == 0)
                snprintf(peer->how[i], sizeof peer->how[i], "%.60s",
                         line.text + strcspn(line.text, " ") + 1);
            if (strcmp(line.kind, "us") != 0 || line.count < 3)
                continue;
            peer->us[i] = line.numbers[0];
            peer->spread[i] = line.numbers[1];
            peer->value[i] = line.numbers[2];
        }
    }
    if (process && gd_bench_finish(process) != 0 && count == 0)
        fprintf(stderr, "%s: not run (BENCH_PEERS_PYTHON may name a Python that has it)\n", script);
    return count;
}

/* ---- rows ---- */

static gd_bench_row make_row(const char *name, const char *metric, double ours, bool verified)
{
    return gd_bench_make_row("compile", name, 1, metric, ours, verified);
}

/* Microseconds, of ours and a peer's. */
static gd_bench_row time_row(const char *name, gd_bench_timing ours, gd_bench_timing peer,
                             const char *peer_name, bool verified)
{
    gd_bench_row row = make_row(name, "us", ours.seconds * 1e6, verified);
    row.ours_spread = ours.spread;
    row.peer = peer.seconds * 1e6;
    row.peer_spread = peer.spread;
    row.peer_name = peer_name;
    return row;
}

/* Seconds the example takes at least; NAN where neither arithmetic nor memory is known to be the
 * bound. */
static double least_seconds(const example *what, double peak_flops, double bandwidth)
{
    double flops = 0;
    if (what->classes == 0)
        return what->x.rank == 1 ? 2.0 * 4.0 * (double)what->x.dim[0] / bandwidth : NAN;
    for (int i = 0; i < MOST_PARAMETERS; i += 2) /* forward, by the weight, and by the input */
        flops += (i ? 3 : 2) * 2.0 * BATCH * (double)what->parameters[i].dim[0] *
                 (double)what->parameters[i].dim[1];
    return flops / peak_flops;
}

static void bench_example(int index, const peer_time *peers, int peer_count, double least)
{
    static const char *const names[MODES] = { "compiled", "eager", "lazy" };
    const example *what = &examples[index];
    const char *bound = what->classes ? "FMA peak" : "memory copy";
    result r[MODES];
    bool verified = true;
    for (int mode = 0; mode < MODES; mode++) {
        r[mode] = measure(what, (gd_mode)mode);
        verified = verified && memcmp(r[0].values, r[mode].values, sizeof r[0].values) == 0;
    }
    for (int i = 1; i < MODES + peer_count; i++) {
        const peer_time *peer = i < MODES ? NULL : &peers[i - MODES];
        char against[64];
        snprintf(against, sizeof against, "Gradus, %s", names[i < MODES ? i : 0]);
        gd_bench_row row =
            peer ? time_row(what->name, r[0].timing,
                            (gd_bench_timing){ peer->us[index] * 1e-6, peer->spread[index] },
                            peer->name,
                            verified && fabs(peer->value[index] - r[0].values[0]) <=
                                            1e-3 * (1 + fabs(r[0].values[0])))
                 : time_row(what->name, r[0].timing, r[i].timing, against, verified);
        row.peer_how = peer && *peer->how[index] ? peer->how[index] : NULL;
        row.bound_fraction = fmin(1, least / r[0].timing.seconds);
        row.bound_fraction = isnan(least) ? (double)NAN : row.bound_fraction;
        row.bound = bound;
        if (isfinite(row.peer))
            gd_bench_print_row(&row);
    }
    gd_bench_row row = make_row(what->name, "ms", r[0].compile_seconds * 1e3, verified);
    char name[128];
    snprintf(name, sizeof name, "compiling: %s", what->name);
    row.name = name;
    gd_bench_print_row(&row);
    snprintf(name, sizeof name, "planned memory: %s", what->name);
    row = make_row(name, "KiB", (double)r[0].plan.arena_bytes / 1024, verified);
    row.peer = (double)r[0].plan.live_bytes / 1024;
    row.peer_name = "alive at once";
    gd_bench_print_row(&row);
}

/* ---- compile time by size ---- */

typedef struct tower {
    gd_module *module;
    gd_optimizer *optimizer;
    int layers;
} tower;

static gd_tensor *tower_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const tower *t = user;
    gd_tensor *h = in[0];
    for (int i = 0; i < t->layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_relu(gd_nn_linear(t->module, name, h, 16));
    }
    return gd_minimize(t->optimizer, gd_cross_entropy(h, in[1]));
}

static void bench_size(int layers)
{
    double samples[5];
    int nodes = 0;
    for (int i = 0; i < 5; i++) {
        gd_context *gd = gd_open("cpu", .threads = 1);
        tower t = { gd_module_create(gd, .seed = 1), NULL, layers };
        t.optimizer = gd_adam(t.module);
        gd_function *f = gd_compile(gd, tower_step, &t);
        gd_tensor *in[2] = { gd_ones(gd, GD_SHAPE(8, 16), GD_F32),
                             gd_zeros(gd, GD_SHAPE(8), GD_I64) };
        CHECK(gd_call(f, 2, in));
        /* Once more: the first time, parameters are made as well. */
        gd_function *again = gd_compile(gd, tower_step, &t);
        CHECK(gd_call(again, 2, in));
        samples[i] = gd_function_stats(again).compile_seconds;
        nodes = gd_function_stats(again).nodes_traced;
        gd_close(gd);
    }
    char name[64];
    snprintf(name, sizeof name, "compiling a train step of %d nodes", nodes);
    gd_bench_row row = make_row(name, "ms", gd_bench_median(samples, 5) * 1e3, true);
    gd_bench_print_row(&row);
}

/* ---- within a memory limit, and backward through a call ---- */

enum { WIDE_LAYERS = 8, WIDE = 512, WIDE_CALLS = 4 };

/* Wide elementwise parts between products. */
static gd_tensor *wide_loss(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const tower *t = user;
    gd_tensor *h = in[0];
    for (int i = 0; i < WIDE_LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        h = gd_nn_linear(t->module, name, h, WIDE);
        h = gd_add(gd_mul(gd_tanh(h), gd_sigmoid(gd_mul_scalar(h, 1.5))), gd_gelu(gd_square(h)));
    }
    return gd_cross_entropy(gd_nn_linear(t->module, "out", h, 10), in[1]);
}

static gd_tensor *wide_step(void *user, int count, gd_tensor *const *in)
{
    const tower *t = user;
    return gd_minimize(t->optimizer, wide_loss(user, count, in));
}

typedef struct wide_job {
    gd_context *context;
    tower t;
    gd_function *function;
    gd_tensor *in[2];
    bool is_call; /* backward outside of it, else the body as it is */
} wide_job;

static void open_wide(wide_job *j, gd_function_body body, size_t limit)
{
    *j = (wide_job){ .context = gd_open("cpu", .threads = 1, .seed = 2) };
    CHECK(j->context);
    j->t = (tower){ gd_module_create(j->context, .seed = 1), NULL, WIDE_LAYERS };
    j->t.optimizer = gd_adam(j->t.module);
    j->in[0] = gd_normal(j->context, GD_SHAPE(128, 64), 0, 1, GD_F32);
    j->in[1] = gd_zeros(j->context, GD_SHAPE(128), GD_I64);
    j->function = gd_compile(j->context, body, &j->t, .memory_limit = limit ? limit : SIZE_MAX);
}

static void run_wide(void *user)
{
    wide_job *j = user;
    CHECK(gd_call(j->function, 2, j->in));
}

/* A share that the plan cannot be made to fit is said on stderr, and has no row. */
static void bench_limit(double share)
{
    gd_bench_timing timing[2];
    double losses[2][WIDE_CALLS];
    size_t bytes[2] = { 0, 0 };
    for (int i = 0; i < 2; i++) {
        wide_job j;
        open_wide(&j, wide_step, i ? (size_t)((double)bytes[0] * share) : 0);
        if (gd_function_prepare(j.function, 2, j.in) != GD_OK) {
            fprintf(stderr, "%.0f %% of its memory: %s\n", share * 100, gd_error_message());
            gd_close(j.context);
            return;
        }
        for (int call = 0; call < WIDE_CALLS; call++)
            losses[i][call] = gd_item(gd_call(j.function, 2, j.in));
        bytes[i] = gd_function_stats(j.function).arena_bytes;
        timing[i] = gd_bench_time(run_wide, &j, 4, 1, seconds_each);
        gd_close(j.context);
    }
    bool verified = memcmp(losses[0], losses[1], sizeof losses[0]) == 0;
    char name[96];
    snprintf(name, sizeof name, "wide MLP train step within %.0f %% of its memory", share * 100);
    gd_bench_row row = time_row(name, timing[1], timing[0], "without a limit", verified);
    gd_bench_print_row(&row);
    row = make_row(name, "KiB", (double)bytes[1] / 1024, verified);
    row.peer = (double)bytes[0] / 1024;
    row.peer_name = "without a limit";
    gd_bench_print_row(&row);
}

/* Forward, and backward from outside. */
static void run_backward(void *user)
{
    wide_job *j = user;
    CHECK(gd_scope_begin(j->context) == GD_OK);
    gd_tensor *loss = j->is_call ? gd_call(j->function, 2, j->in) : wide_loss(&j->t, 2, j->in);
    CHECK(loss && gd_backward(loss) == GD_OK);
    CHECK(gd_scope_end(j->context) == GD_OK);
}

static void bench_backward(void)
{
    gd_bench_timing timing[2];
    double sums[2], peaks[2];
    for (int i = 0; i < 2; i++) {
        wide_job j;
        open_wide(&j, wide_loss, 0);
        j.is_call = i == 0;
        run_backward(&j);
        sums[i] = gd_bench_weighted_sum(gd_gradient(gd_module_tensor(j.t.module, 0)));
        gd_memory_reset_peak(j.context);
        timing[i] = gd_bench_time(run_backward, &j, 4, 1, seconds_each);
        peaks[i] = (double)gd_memory(j.context).peak;
        gd_close(j.context);
    }
    const char *name = "wide MLP, loss compiled, gd_backward outside";
    gd_bench_row row = time_row(name, timing[0], timing[1], "Gradus, eager", sums[0] == sums[1]);
    gd_bench_print_row(&row);
    row = make_row(name, "peak KiB", peaks[0] / 1024, sums[0] == sums[1]);
    row.peer = peaks[1] / 1024;
    row.peer_name = "Gradus, eager";
    gd_bench_print_row(&row);
}

int main(void)
{
    static peer_time peers[4];
    gd_bench_pin(1);
    int count = run_peers(GD_SOURCE_DIR "/bench/peers/compile_torch.py", peers, 2);
    count += run_peers(GD_SOURCE_DIR "/bench/peers/compile_jax.py", peers + count, 4 - count);
    double peak = 0;
    gd_bench_bandwidth memory;
    for (int i = 0; i < 5; i++) /* the best of several looks: other programs may be running */
        peak = fmax(peak, gd_bench_peak_flops(gd_isa_choose(), false, 1));
    if (!gd_bench_memory(1, &memory))
        memory.copy = NAN;
    for (int i = 0; i < EXAMPLES; i++)
        bench_example(i, peers, count, least_seconds(&examples[i], peak, memory.copy));
    for (int layers = 20; layers <= 2000; layers *= 10)
        bench_size(layers);
    bench_limit(0.75);
    bench_limit(0.5);
    bench_limit(0.25);
    bench_backward();
    return gd_bench_all_verified() ? 0 : 1;
}
