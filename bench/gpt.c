/* bench/gpt.c: training and running a GPT: ours, eager and compiled, against PyTorch eager and
 * torch.compile (peers/gpt_torch.py) and JAX, jit and scan (peers/gpt_jax.py). Start at
 * gd_bench_gpt_run().
 *
 * All sides begin with the same weights, which we write to a file, and see the same tokens, which a
 * formula gives. Before timing, the losses of the first steps are compared: ours among themselves
 * bit for bit, those of the others to 1e-3, in bf16 to 2e-2. A step is forward, backward and AdamW on a fixed batch;
 * no dropout. Each side and mode runs in a process of its own, so that its peak memory is its own,
 * and they are timed in turns.
 */
#include "gpt.h"

#include "measure.h"
#include "peak.h"
#include "side.h"

#include "base/cpu.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SEED = 1,
    PROMPT = 16,
    LOGITS = 8,
    THREADS = 2,
    PEERS = 4,
    HALF_PEERS = 2,
    TALKERS = 2,
    ROUNDS = 7
};
static const char torch[] = GD_SOURCE_DIR "/bench/peers/gpt_torch.py",
                  jax[] = GD_SOURCE_DIR "/bench/peers/gpt_jax.py";
static const double learning_rate = 1e-4;

#define CHECK(condition) \
    ((condition) ? (void)0 : gd_bench_die("gpt, line %d: %s", __LINE__, gd_error_message()))

/* ---- ours ---- */

typedef struct trainee {
    gd_dtype dtype; /* bf16: under autocast */
    gd_context *context;
    gd_language_model *model;
    gd_optimizer *optimizer;
    gd_function *train;
    gd_tensor *in[2]; // [batch, time] each
} trainee;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    CHECK(gd_autocast_begin(t->context, t->dtype) == GD_OK);
    gd_tensor *loss = gd_language_model_loss(t->model, in[0], in[1]);
    CHECK(gd_autocast_end(t->context) == GD_OK);
    return gd_minimize(t->optimizer, loss);
}

/* Token number i of the text all sides see. */
static int64_t token(const gd_bench_gpt *g, int64_t i)
{
    return (i * 7919 + i / 5 * 31) % g->vocabulary;
}

static void open_model(trainee *t, const gd_bench_gpt *g, gd_context *context, const char *weights)
{
    t->context = context;
    t->model = weights
                   ? gd_language_model_load(t->context, weights)
                   : gd_language_model_create(t->context, .vocabulary = g->vocabulary,
                                              .max_length = g->max_length, .layers = g->layers,
                                              .heads = g->heads, .width = g->width, .seed = SEED);
    CHECK(t->model);
}

static void open_trainee(trainee *t, const gd_bench_gpt *g, gd_bench_way way, const char *weights)
{
    t->dtype = way.dtype;
    open_model(t, g, gd_bench_open(THREADS), weights);
    t->optimizer = gd_adamw(gd_language_model_module(t->model), .lr = learning_rate);
    t->train = gd_compile(t->context, step, t, .mode = way.mode);
    int64_t count = g->batch * g->time, *x = malloc(sizeof *x * (size_t)(count + 1));
    if (x == NULL)
        gd_bench_die("out of memory");
    for (int64_t i = 0; i <= count; i++)
        x[i] = token(g, i);
    for (int i = 0; i < 2; i++)
        t->in[i] = gd_from_host(t->context, GD_SHAPE(g->batch, g->time), GD_I64, x + i);
    CHECK(t->train && t->in[1]);
    free(x);
}

/* Generation: a token after `PROMPT` others, over and over; the sequence starts anew when the
 * model's length is reached. */
typedef struct talker {
    const gd_bench_gpt *gpt;
    gd_generator *generator;
} talker;

static const float *begin(talker *t)
{
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)token(t->gpt, i);
    gd_generator_reset(t->generator);
    const float *logits = gd_generator_feed(t->generator, PROMPT, tokens);
    CHECK(logits);
    return logits;
}

static void run_token(void *user)
{
    talker *t = user;
    if (gd_generator_length(t->generator) >= 128 ||
        gd_generator_length(t->generator) == t->gpt->max_length)
        (void)begin(t);
    int32_t next = (int32_t)token(t->gpt, gd_generator_length(t->generator));
    CHECK(gd_generator_feed(t->generator, 1, &next));
}

/* ---- a side in a process of its own: prints lines as the peer does ---- */

static void side_train(const gd_bench_gpt *g, gd_bench_way way, const char *weights)
{
    trainee t = { 0 };
    double before = gd_bench_resident();
    open_trainee(&t, g, way, weights);
    gd_bench_train_side(t.train, t.in, 1, THREADS, g->seconds, before);
    gd_close(t.context);
}

/* Bytes of weights that a token needs: all but the tables of tokens and positions, of which it
 * needs a row; but the first is the output's too. */
static double token_bytes(const gd_bench_gpt *g)
{
    double c = (double)g->width;
    return 4 * ((double)g->layers * (12 * c * c + 13 * c) + (double)g->vocabulary * c + 2 * c);
}

/* Times of a token and of reading memory alternate: `bound` is the median share of the bandwidth.
 */
static void side_generate(const gd_bench_gpt *g, const char *weights)
{
    trainee t = { 0 };
    open_model(&t, g, gd_open("cpu", .threads = THREADS), weights);
    talker talk = { g, gd_generator_create(t.model) };
    CHECK(talk.generator);
    const float *logits = begin(&talk);
    float first[LOGITS];
    memcpy(first, logits, sizeof first);
    double seconds[ROUNDS], spreads[ROUNDS], shares[ROUNDS], reads[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        gd_bench_timing one = gd_bench_time(run_token, &talk, 8, THREADS, g->seconds / ROUNDS);
        seconds[i] = one.seconds;
        spreads[i] = one.spread;
        reads[i] = gd_bench_read_rate(THREADS);
        shares[i] = fmin(1, token_bytes(g) / seconds[i] / reads[i]);
    }
    printf("spread %.4g\n", gd_bench_median(spreads, ROUNDS));
    printf("token ours %.9g", gd_bench_median(seconds, ROUNDS));
    for (int i = 0; i < LOGITS; i++)
        printf(" %.9g", (double)first[i]);
    printf("\nbound %.9g\n", gd_bench_median(shares, ROUNDS));
    double read = gd_bench_median(reads, ROUNDS);
    printf("note %s: a token reads %.0f MB of weights; at %.1f GB/s that takes %.1f ms\n", g->suite,
           token_bytes(g) * 1e-6, read * 1e-9, token_bytes(g) / read * 1e3);
    gd_bench_await_turns(run_token, &talk, 8, THREADS);
    gd_close(t.context);
}

/* ---- the sides, compared ---- */

/* Multiply-adds of a step times two: each weight of a product thrice a token (Kaplan et al. 2020),
 * and the scores and sums of causal attention. */
static double step_flops(const gd_bench_gpt *g)
{
    double c = (double)g->width, l = (double)g->layers;
    double tokens = (double)(g->batch * g->time);
    double weights = 12 * l * c * c + (double)g->vocabulary * c;
    return tokens * (6 * weights + 6 * l * c * (double)g->time);
}

/* What AdamW must move where it is more than the caches hold, else 0. */
static double update_bytes(const gd_bench_gpt *g)
{
    double c = (double)g->width;
    double parameters = (double)g->layers * (12 * c * c + 13 * c) + 2 * c +
                        (double)(g->vocabulary + g->max_length) * c;
    double bytes = 6 * sizeof(float) * parameters;
    return bytes > 1e9 ? bytes : 0.0;
}

/* Seconds below which no step can be: its arithmetic at the peak, and, where weights are more than
 * the caches hold, reading and writing them and both moments once. */
static double bound_seconds(const gd_bench_gpt *g, double peak)
{
    double traffic = 0.0, bytes = update_bytes(g);
    gd_bench_bandwidth memory;
    fprintf(stderr, "\n%s: a step is %.1f GFLOP; at the peak of %.0f GFLOP/s it takes %.0f ms",
            g->suite, step_flops(g) * 1e-9, peak * 1e-9, step_flops(g) / peak * 1e3);
    if (bytes > 0.0 && gd_bench_memory(THREADS, &memory)) {
        traffic = bytes / memory.copy;
        fprintf(stderr, "; the update's %.0f MB, at %.1f GB/s, %.0f ms", bytes * 1e-6,
                memory.copy * 1e-9, traffic * 1e3);
    }
    fprintf(stderr, "\n");
    return step_flops(g) / peak + traffic;
}

typedef struct run {
    const gd_bench_gpt *gpt;
    char self[4096], weights[4096];
    char count[16], seconds[16], numbers[8][24];
    gd_bench_sides sides; /* those that wait for their turns */
} run;

static void start_ours(run *r, const char *mode, gd_bench_side *out)
{
    const char *arguments[] = { r->self, mode, r->weights, NULL };
    if (!gd_bench_start_side(&r->sides, arguments, THREADS, out))
        gd_bench_die("%s failed", r->self);
}

static bool start_peer(run *r, const char *program, const char *mode, gd_bench_side *out)
{
    const gd_bench_gpt *g = r->gpt;
    const int64_t numbers[] = { g->heads, g->batch, g->time, PROMPT };
    for (int i = 0; i < 4; i++)
        snprintf(r->numbers[i], sizeof r->numbers[i], "%lld", (long long)numbers[i]);
    snprintf(r->seconds, sizeof r->seconds, "%g", g->seconds / (gd_bench_quick() ? 3 : 1));
    snprintf(r->count, sizeof r->count, "%d", THREADS);
    const char *arguments[] = { gd_bench_python(), program,       mode,          r->weights,
                                r->count,          r->seconds,    r->numbers[0], r->numbers[1],
                                r->numbers[2],     r->numbers[3], NULL };
    return gd_bench_start_side(&r->sides, arguments, THREADS, out);
}

static void compare_bf16(run *r)
{
    static const char *const modes[HALF_PEERS] = { "eager-bf16", "compile-bf16" };
    gd_bench_side ours[2], f32, peers[HALF_PEERS];
    bool there[HALF_PEERS];
    start_ours(r, "--compiled-bf16", &ours[0]);
    start_ours(r, "--eager-bf16", &ours[1]);
    start_ours(r, "--compiled", &f32);
    for (int i = 0; i < HALF_PEERS; i++)
        there[i] = start_peer(r, torch, modes[i], &peers[i]);
    (void)gd_bench_take_side_turns(&r->sides, THREADS);
    gd_bench_print_bf16(
        gd_bench_make_row(r->gpt->suite, "train step in bf16, compiled", THREADS, "ms", 0, true),
        &ours[0], &ours[1], &f32, peers, there, HALF_PEERS, 2e-2);
}

static void compare_training(run *r)
{
    const gd_bench_gpt *g = r->gpt;
    static const char *const cases[] = { "train step, compiled", "train step, eager" };
    static const char *const memories[] = { "memory of training, compiled",
                                            "memory of training, eager" };
    gd_bench_side ours[2], peers[PEERS];
    bool there[PEERS];
    start_ours(r, "--compiled", &ours[0]);
    start_ours(r, "--eager", &ours[1]);
    there[0] = start_peer(r, torch, "eager", &peers[0]);
    there[1] = start_peer(r, torch, "compile", &peers[1]);
    there[2] = start_peer(r, jax, "jit", &peers[2]);
    there[3] = start_peer(r, jax, "scan", &peers[3]);
    double bound = bound_seconds(g, gd_bench_take_side_turns(&r->sides, THREADS));
    for (int i = 0; i < 2; i++) {
        bool same = gd_bench_sides_agree(&ours[0], &ours[i], 0.0);
        gd_bench_row row =
            gd_bench_make_row(g->suite, cases[i], THREADS, "ms", ours[i].seconds * 1e3, same);
        row.bound_fraction = bound / ours[i].seconds;
        row.bound = update_bytes(g) > 0 ? "FMA peak, update at memory copy" : "FMA peak";
        gd_bench_print_sides(row, &ours[i], peers, there, PEERS, false, 1e-3);
        gd_bench_print_sides(
            gd_bench_make_row(g->suite, memories[i], THREADS, "MiB", ours[i].memory, same),
            &ours[i], peers, there, PEERS, true, 1e-3);
    }
    compare_bf16(r);
}

static void compare_generation(run *r)
{
    const gd_bench_gpt *g = r->gpt;
    static const char *const modes[TALKERS] = { "generate", "compile_generate" };
    gd_bench_side ours, peers[TALKERS];
    bool there[TALKERS];
    start_ours(r, "--generate", &ours);
    for (int i = 0; i < TALKERS; i++)
        there[i] = start_peer(r, torch, modes[i], &peers[i]);
    (void)gd_bench_take_side_turns(&r->sides, THREADS);
    gd_bench_row row = gd_bench_make_row(g->suite, "a token, batch 1", THREADS, "ms",
                                         ours.seconds * 1e3, ours.check_count == LOGITS);
    row.bound_fraction = ours.bound;
    row.bound = "memory read";
    gd_bench_print_sides(row, &ours, peers, there, TALKERS, false, 1e-3);
}

/* The weights all sides begin with. */
static void write_weights(const gd_bench_gpt *g, const char *path)
{
    trainee t = { 0 };
    open_model(&t, g, gd_open("cpu", .threads = THREADS), NULL);
    CHECK(gd_language_model_save(t.model, path, 0, NULL) == GD_OK);
    gd_module *m = gd_language_model_module(t.model);
    fprintf(stderr, "%s: %lld parameters\n", g->suite, (long long)gd_module_parameter_count(m));
    gd_close(t.context);
}

int gd_bench_gpt_run(const gd_bench_gpt *g, int count, char **arguments)
{
    if (count == 3) {
        if (strcmp(arguments[1], "--generate") == 0)
            side_generate(g, arguments[2]);
        else if (strcmp(arguments[1], "--problem") == 0)
            write_weights(g, arguments[2]);
        else
            side_train(g, gd_bench_parse_way(arguments[1]), arguments[2]);
        return 0;
    }
    run r = { .gpt = g };
    gd_bench_own_path(r.self, sizeof r.self);
    const char *folder = getenv("TMPDIR");
    snprintf(r.weights, sizeof r.weights, "%s/bench_%s_%d.safetensors", folder ? folder : "/tmp",
             g->suite, (int)getpid());
    write_weights(g, r.weights);
    compare_training(&r);
    if (g->generates)
        compare_generation(&r);
    unlink(r.weights);
    return gd_bench_all_verified() ? 0 : 1;
}
