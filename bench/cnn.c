/* bench/cnn.c: a training step of a convolutional network: ours, compiled and eager, on 1 and 2
 * threads, against PyTorch eager and torch.compile (peers/cnn_torch.py) and JAX, one jit-compiled
 * call a step or one for many (scan; peers/cnn_jax.py). Start at gd_bench_cnn_run().
 *
 * A step is forward, mean cross-entropy, backward and update, on one fixed batch. Our weights
 * follow from a seed; they and the batch are written to a file for the peers (write_problem).
 * Before timing, the losses of the first steps are compared: ours among themselves bit for bit,
 * those of peers to 1e-4 or what the network says. In bf16, on two threads, the compiled step is compared with our own f32
 * and PyTorch under autocast; losses are then alike to 2e-2. Each side, mode and number of threads runs in a process of its own, and they are
 * timed in turns.
 */
#include "cnn.h"

#include "measure.h"
#include "peak.h"
#include "side.h"

#include "base/cpu.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 1, MOST_THREADS = 2, PEERS = 4, HALF_PEERS = 2 };
static const double half_tolerance = 2e-2;

static double tolerance_of(const gd_bench_cnn *cnn)
{
    return cnn->tolerance > 0 ? cnn->tolerance : 1e-4;
}

#define CHECK(condition) \
    ((condition) ? (void)0 : gd_bench_die("cnn, line %d: %s", __LINE__, gd_error_message()))

/* ---- ours ---- */

typedef struct trainee {
    const gd_bench_cnn *cnn;
    gd_dtype dtype; /* bf16: under autocast */
    gd_context *context;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_function *train;
    gd_tensor *in[2]; // [batch, channels, height, width], [batch]
} trainee;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    CHECK(gd_autocast_begin(t->context, t->dtype) == GD_OK);
    gd_tensor *loss = gd_cross_entropy(t->cnn->network(t->module, in[0]), in[1]);
    CHECK(gd_autocast_end(t->context) == GD_OK);
    return gd_minimize(t->optimizer, loss);
}

static void open_trainee(trainee *t, const gd_bench_cnn *cnn, gd_context *context, gd_bench_way way)
{
    *t = (trainee){ .cnn = cnn, .dtype = way.dtype, .context = context };
    t->module = gd_module_create(t->context, .seed = SEED);
    t->optimizer = cnn->adam ? gd_adam(t->module, .lr = cnn->learning_rate)
                             : gd_sgd(t->module, .lr = cnn->learning_rate);
    t->train = gd_compile(t->context, step, t, .mode = way.mode);
    t->in[0] = gd_zeros(t->context, cnn->input, GD_F32);
    t->in[1] = gd_zeros(t->context, GD_SHAPE(cnn->input.dim[0]), GD_I64);
    CHECK(t->train && t->in[0] && t->in[1]);
}

static size_t tensor_bytes(const gd_tensor *t)
{
    size_t size = gd_tensor_dtype(t) == GD_I64 ? sizeof(int64_t) : sizeof(float);
    return size * (size_t)gd_tensor_count(t);
}

/* The batch, which ends the problem file. */
static void read_batch(trainee *t, const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t bytes[2] = { tensor_bytes(t->in[0]), tensor_bytes(t->in[1]) };
    if (file == NULL || fseek(file, -(long)(bytes[0] + bytes[1]), SEEK_END) != 0)
        gd_bench_die("cannot read %s", path);
    for (int i = 0; i < 2; i++) {
        void *host = malloc(bytes[i]);
        if (host == NULL || fread(host, 1, bytes[i], file) != bytes[i])
            gd_bench_die("cannot read %s", path);
        CHECK(gd_tensor_write(t->in[i], host, bytes[i]) == GD_OK);
        free(host);
    }
    fclose(file);
}

/* A side in a process of its own: prints lines as the peer does. */
static void side_train(const gd_bench_cnn *cnn, gd_bench_way way, int threads, const char *path)
{
    trainee t;
    double before = gd_bench_resident();
    open_trainee(&t, cnn, gd_bench_open(threads), way);
    read_batch(&t, path);
    gd_bench_train_side(t.train, t.in, cnn->chunk, threads, cnn->seconds, before);
    gd_close(t.context);
}

/* ---- the problem, the same for all ---- */

static void first_digits(trainee *t)
{
    char folder[4096];
    gd_bench_source_path(folder, sizeof folder, "data/mnist");
    gd_dataset *digits = gd_mnist(t->context, folder);
    gd_loader *loader = gd_loader_create(digits, .batch = t->cnn->input.dim[0]);
    gd_batch batch;
    CHECK(loader && gd_loader_next(loader, &batch));
    for (int i = 0; i < 2; i++)
        CHECK(gd_tensor_write(t->in[i], gd_tensor_data(batch.tensors[i]), tensor_bytes(t->in[i])) ==
              GD_OK);
}

/* Evenly distributed on (-1.73, 1.73), of deviation 1 as normalised pictures. */
static void noise(trainee *t)
{
    float *x = gd_tensor_data(t->in[0]);
    int64_t *labels = gd_tensor_data(t->in[1]);
    uint64_t state = SEED;
    for (int64_t i = 0; i < gd_tensor_count(t->in[0]); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = ((float)(state >> 40) * 0x1p-23f - 1.0f) * 1.7320508f;
    }
    for (int64_t i = 0; i < gd_tensor_count(t->in[1]); i++)
        labels[i] = i % t->cnn->classes;
}

static void write_tensor(FILE *file, gd_tensor *t)
{
    if (fwrite(gd_tensor_data(t), 1, tensor_bytes(t), file) != tensor_bytes(t))
        gd_bench_die("cannot write the problem file");
}

/* The parameters in the order of the layers, weight and bias, and the batch: what
 * peers/cnn_torch.py reads. Returns how many numbers the parameters are. */
static int64_t write_problem(const gd_bench_cnn *cnn, FILE *file)
{
    trainee t;
    open_trainee(&t, cnn, gd_open("cpu"), (gd_bench_way){ GD_MODE_EAGER, GD_F32 });
    if (cnn->digits)
        first_digits(&t);
    else
        noise(&t);
    CHECK(cnn->network(t.module, t.in[0])); /* makes the parameters */
    for (int i = 0; i < gd_module_count(t.module); i++)
        write_tensor(file, gd_module_tensor(t.module, i));
    write_tensor(file, t.in[0]);
    write_tensor(file, t.in[1]);
    int64_t count = gd_module_parameter_count(t.module);
    gd_close(t.context);
    return count;
}

static int64_t write_problem_file(const gd_bench_cnn *cnn, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        gd_bench_die("cannot make %s", path);
    int64_t count = write_problem(cnn, file);
    if (fclose(file) != 0)
        gd_bench_die("cannot write %s", path);
    return count;
}

static int64_t make_problem(const gd_bench_cnn *cnn, char *path, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/bench_%s.XXXXXX", folder ? folder : "/tmp", cnn->suite);
    int descriptor = mkstemp(path);
    if (descriptor < 0 || close(descriptor) != 0)
        gd_bench_die("cannot make %s", path);
    return write_problem_file(cnn, path);
}

/* ---- the sides, compared ---- */

typedef struct run {
    const gd_bench_cnn *cnn;
    char self[4096], problem[4096];
    int64_t parameters;
    gd_bench_side first;  /* compiled on one thread: what all losses are compared with */
    gd_bench_sides sides; /* those that wait for their turns */
} run;

static void start_ours(run *r, const char *mode, int threads, gd_bench_side *out)
{
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    const char *arguments[] = { r->self, mode, count, r->problem, NULL };
    if (!gd_bench_start_side(&r->sides, arguments, threads, out))
        gd_bench_die("%s failed", r->self);
}

static bool start_peer(run *r, int which, int threads, gd_bench_side *out)
{
    char count[16], seconds[16], chunk[16], rate[32];
    snprintf(count, sizeof count, "%d", threads);
    snprintf(seconds, sizeof seconds, "%g", r->cnn->seconds / (gd_bench_quick() ? 3 : 1));
    snprintf(chunk, sizeof chunk, "%d", r->cnn->chunk);
    snprintf(rate, sizeof rate, "%.9g", r->cnn->learning_rate);
    static const char torch[] = GD_SOURCE_DIR "/bench/peers/cnn_torch.py";
    static const char jax[] = GD_SOURCE_DIR "/bench/peers/cnn_jax.py";
    static const struct {
        const char *script, *mode;
    } peers[PEERS + HALF_PEERS] = { { torch, "eager" },      { torch, "compile" },
                                    { jax, "jit" },          { jax, "scan" },
                                    { torch, "eager-bf16" }, { torch, "compile-bf16" } };
    const char *script = peers[which].script, *mode = peers[which].mode;
    const char *arguments[] = { gd_bench_python(), script, r->cnn->suite, mode, r->problem, count,
                                seconds,           chunk,  rate,          NULL };
    return gd_bench_start_side(&r->sides, arguments, threads, out);
}

/* What Adam must move where it is more than the caches hold, else 0. */
static double update_bytes(const run *r)
{
    double bytes = r->cnn->adam ? 6.0 * sizeof(float) * (double)r->parameters : 0.0;
    return bytes > 1e8 ? bytes : 0.0;
}

/* Seconds below which no step can be: its arithmetic at the peak, and, for Adam, weights and both
 * moments read and written once each. */
static double bound_seconds(const run *r, int threads, double peak)
{
    const gd_bench_cnn *cnn = r->cnn;
    double flops = 2.0 * (double)cnn->input.dim[0] * cnn->multiply_adds, traffic = 0.0;
    gd_bench_bandwidth memory;
    double bytes = update_bytes(r);
    if (bytes > 0.0 && gd_bench_memory(threads, &memory))
        traffic = bytes / memory.copy;
    fprintf(stderr, "%s, %d thread%s: %.3f GFLOP, at the peak of %.0f GFLOP/s %.3f ms", cnn->suite,
            threads, threads > 1 ? "s" : "", flops * 1e-9, peak * 1e-9, flops / peak * 1e3);
    if (traffic > 0.0)
        fprintf(stderr, "; the update's %.0f MB, at %.1f GB/s %.1f ms", bytes * 1e-6,
                memory.copy * 1e-9, traffic * 1e3);
    fprintf(stderr, "\n");
    return flops / peak + traffic;
}

static void compare_bf16(run *r, int threads)
{
    gd_bench_side ours[2], f32, peers[HALF_PEERS];
    bool there[HALF_PEERS];
    start_ours(r, "--compiled-bf16", threads, &ours[0]);
    start_ours(r, "--eager-bf16", threads, &ours[1]);
    start_ours(r, "--compiled", threads, &f32);
    for (int i = 0; i < HALF_PEERS; i++)
        there[i] = start_peer(r, PEERS + i, threads, &peers[i]);
    (void)gd_bench_take_side_turns(&r->sides, threads);
    gd_bench_print_bf16(
        gd_bench_make_row(r->cnn->suite, "train step in bf16, compiled", threads, "ms", 0, true),
        &ours[0], &ours[1], &f32, peers, there, HALF_PEERS, half_tolerance);
}

static void compare(run *r, int threads)
{
    static const char *const cases[] = { "train step, compiled", "train step, eager" };
    static const char *const memories[] = { "memory of training, compiled",
                                            "memory of training, eager" };
    gd_bench_side ours[2], peers[PEERS];
    bool there[PEERS];
    start_ours(r, "--compiled", threads, &ours[0]);
    start_ours(r, "--eager", threads, &ours[1]);
    for (int i = 0; i < PEERS; i++)
        there[i] = start_peer(r, i, threads, &peers[i]);
    double bound = bound_seconds(r, threads, gd_bench_take_side_turns(&r->sides, threads));
    if (threads == 1)
        r->first = ours[0];
    for (int i = 0; i < 2; i++) {
        bool same = gd_bench_sides_agree(&r->first, &ours[i], 0.0);
        gd_bench_row row =
            gd_bench_make_row(r->cnn->suite, cases[i], threads, "ms", ours[i].seconds * 1e3, same);
        row.bound_fraction = bound / ours[i].seconds;
        row.bound = update_bytes(r) > 0 ? "FMA peak, update at memory copy" : "FMA peak";
        gd_bench_print_sides(row, &ours[i], peers, there, PEERS, false, tolerance_of(r->cnn));
        row = gd_bench_make_row(r->cnn->suite, memories[i], threads, "MiB", ours[i].memory, same);
        gd_bench_print_sides(row, &ours[i], peers, there, PEERS, true, tolerance_of(r->cnn));
    }
    if (threads == MOST_THREADS)
        compare_bf16(r, threads);
}

int gd_bench_cnn_run(const gd_bench_cnn *cnn, int count, char **arguments)
{
    if (count == 4) {
        side_train(cnn, gd_bench_parse_way(arguments[1]), atoi(arguments[2]), arguments[3]);
        return 0;
    }
    if (count == 3 && strcmp(arguments[1], "--problem") == 0) {
        write_problem_file(cnn, arguments[2]);
        return 0;
    }
    run r = { .cnn = cnn };
    gd_bench_own_path(r.self, sizeof r.self);
    r.parameters = make_problem(cnn, r.problem, sizeof r.problem);
    fprintf(stderr, "%s: %lld parameters\n", cnn->suite, (long long)r.parameters);
    for (int threads = 1; threads <= MOST_THREADS; threads++)
        compare(&r, threads);
    unlink(r.problem);
    return gd_bench_all_verified() ? 0 : 1;
}
