/* bench/bench_mnist_mlp.c: the residual perceptron 784-16-16(+)-10 on MNIST, batch 50, SGD: ours
 * against PyTorch, JAX and the original C program. One JSON object a line on stdout, a table on
 * stderr. Start reading at main().
 *
 * All begin with the same weights and see the same batches: these are written to a file
 * (write_problem) that the peers read (peers/problem.py). Before anything is timed the losses of
 * the first 20 steps are compared, ours among themselves bit for bit, those of peers to 1e-4. Then
 * each trains on, fetching its batches of shuffled examples itself, and the median time of a step
 * counts, and the time of an epoch.
 *
 * Peers that are not there (BENCH_PEERS_PYTHON names the Python that has them) are left out.
 */
#include "measure.h"
#include "peak.h"
#include "side.h"

#include "base/cpu.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIXELS = 784, HIDDEN = 16, CLASSES = 10, BATCH = 50, CHECKED = 20, CHUNK = 24, SEED = 1 };
static const double learning_rate = 0.01;
static const double seconds_each = 3.0; /* of timing, for each way of each engine */
static const char data_folder[] = GD_SOURCE_DIR "/data/mnist";

/* Multiply-adds of a step times two: each weight takes part once a sample in the forward pass and
 * once in its own gradient, and, but for those of the first layer, once in the gradient of the
 * layer's input. */
static const double step_flops =
    2.0 * BATCH * (2 * PIXELS * HIDDEN + 3 * (HIDDEN * HIDDEN + HIDDEN * CLASSES));

#define CHECK(condition) \
    ((condition) ? (void)0 : gd_bench_die("mnist_mlp, line %d: %s", __LINE__, gd_error_message()))

/* ---- ours ---- */

typedef struct trainee {
    gd_context *context;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_function *train;
    gd_loader *loader;
} trainee;

/* x [batch, 784] -> logits [batch, 10] */
static gd_tensor *net(gd_module *m, gd_tensor *x)
{
    gd_tensor *a = gd_relu(gd_nn_linear(m, "fc1", x, HIDDEN));
    gd_tensor *b = gd_relu(gd_nn_linear(m, "fc2", a, HIDDEN));
    return gd_nn_linear(m, "fc3", gd_add(a, b), CLASSES);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(net(t->module, in[0]), in[1]));
}

static gd_tensor *predict(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    return gd_softmax(net(user, in[0]), 1);
}

static void open_trainee(trainee *t, int threads, gd_mode mode)
{
    t->context = gd_open("cpu", .threads = threads);
    t->module = gd_module_create(t->context, .seed = SEED);
    t->optimizer = gd_sgd(t->module, .lr = learning_rate);
    t->train = gd_compile(t->context, step, t, .mode = mode);
    gd_dataset *digits = gd_mnist(t->context, data_folder);
    t->loader = gd_loader_create(digits, .batch = BATCH, .shuffle = true, .seed = SEED);
    CHECK(t->train && t->loader);
}

static void next_step(void *user)
{
    trainee *t = user;
    gd_batch b;
    while (!gd_loader_next(t->loader, &b))
        CHECK(gd_error_code() == GD_OK); /* else the epoch is over */
    CHECK(gd_call(t->train, b.count, b.tensors));
}

static double epoch_seconds(trainee *t, int threads)
{
    gd_batch b;
    while (gd_loader_next(t->loader, &b)) /* to the end of the epoch begun */
        CHECK(gd_call(t->train, b.count, b.tensors));
    double start = gd_bench_now(threads);
    while (gd_loader_next(t->loader, &b))
        CHECK(gd_call(t->train, b.count, b.tensors));
    return gd_bench_now(threads) - start;
}

/* ---- the problem, the same for all ---- */

typedef struct problem {
    gd_idx images, labels;
    int32_t count;
    int32_t *order;  // [count]
    char path[4096]; /* of the file */
} problem;

static void write_all(FILE *file, const void *data, size_t bytes)
{
    if (fwrite(data, 1, bytes, file) != bytes)
        gd_bench_die("cannot write the problem file");
}

/* What peers/problem.py describes. */
static void write_problem(problem *p)
{
    trainee t;
    open_trainee(&t, 1, GD_MODE_EAGER);
    gd_tensor *x = gd_zeros(t.context, GD_SHAPE(1, PIXELS), GD_F32);
    CHECK(net(t.module, x)); /* makes the parameters */
    const char *folder = getenv("TMPDIR");
    snprintf(p->path, sizeof p->path, "%s/bench_mnist_mlp.XXXXXX", folder ? folder : "/tmp");
    int descriptor = mkstemp(p->path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (file == NULL)
        gd_bench_die("cannot make %s", p->path);
    write_all(file, "GDMNIST1", 8);
    write_all(file, &p->count, sizeof p->count);
    for (int i = 0; i < gd_module_count(t.module); i++) {
        gd_tensor *parameter = gd_module_tensor(t.module, i);
        write_all(file, gd_tensor_data(parameter),
                  sizeof(float) * (size_t)gd_tensor_count(parameter));
    }
    write_all(file, p->order, sizeof *p->order * (size_t)p->count);
    write_all(file, p->labels.data, p->labels.bytes);
    write_all(file, p->images.data, p->images.bytes);
    if (fclose(file) != 0)
        gd_bench_die("cannot write %s", p->path);
    gd_close(t.context);
}

static void make_problem(problem *p)
{
    CHECK(gd_idx_read(GD_SOURCE_DIR "/data/mnist/train-images-idx3-ubyte", &p->images) == GD_OK);
    CHECK(gd_idx_read(GD_SOURCE_DIR "/data/mnist/train-labels-idx1-ubyte", &p->labels) == GD_OK);
    p->count = (int32_t)p->labels.dims[0];
    p->order = malloc(sizeof *p->order * (size_t)p->count);
    if (p->order == NULL)
        gd_bench_die("out of memory");
    uint64_t state = SEED;
    for (int32_t i = 0; i < p->count; i++) { /* Fisher, Yates; any order does */
        state = state * 6364136223846793005u + 1442695040888963407u;
        int32_t k = (int32_t)((state >> 33) % (uint64_t)(i + 1));
        p->order[i] = p->order[k];
        p->order[k] = i;
    }
    write_problem(p);
}

/* Image number i as the network sees it. */
static void get_image(const problem *p, int64_t i, float *x)
{
    const uint8_t *pixel = (const uint8_t *)p->images.data + i * PIXELS;
    for (int k = 0; k < PIXELS; k++)
        x[k] = (float)pixel[k] * (1.0f / 255.0f);
}

/* Train on the first batches of the order. */
static void first_losses(trainee *t, const problem *p, double losses[CHECKED])
{
    static float pixels[BATCH * PIXELS];
    int64_t labels[BATCH];
    CHECK(gd_scope_begin(t->context) == GD_OK);
    gd_tensor *in[2] = { gd_zeros(t->context, GD_SHAPE(BATCH, PIXELS), GD_F32),
                         gd_zeros(t->context, GD_SHAPE(BATCH), GD_I64) };
    for (int n = 0; n < CHECKED; n++) {
        for (int i = 0; i < BATCH; i++) {
            int32_t example = p->order[n * BATCH + i];
            get_image(p, example, pixels + i * PIXELS);
            labels[i] = ((const uint8_t *)p->labels.data)[example];
        }
        CHECK(gd_tensor_write(in[0], pixels, sizeof pixels) == GD_OK);
        CHECK(gd_tensor_write(in[1], labels, sizeof labels) == GD_OK);
        losses[n] = gd_item(gd_call(t->train, 2, in));
    }
    CHECK(gd_scope_end(t->context) == GD_OK);
}

static bool agree(const double *x, const double *y, int count, double tolerance)
{
    bool same = true;
    for (int i = 0; i < count; i++)
        same = same && fabs(x[i] - y[i]) <= tolerance;
    return same;
}

/* ---- measuring ours ---- */

typedef struct result {
    gd_bench_timing step;
    double epoch; /* seconds */
    bool verified;
} result;

static double expected[CHECKED]; /* losses, of the compiled step at one thread */
static gd_plan_stats plan;       /* of the same */

static result measure_ours(const problem *p, int threads, gd_mode mode)
{
    trainee t;
    double losses[CHECKED];
    open_trainee(&t, threads, mode);
    first_losses(&t, p, losses);
    if (threads == 1 && mode == GD_MODE_COMPILED) {
        memcpy(expected, losses, sizeof expected);
        plan = gd_function_stats(t.train);
    }
    result r = { .verified = agree(losses, expected, CHECKED, 0.0) && isfinite(losses[0]) };
    r.step = gd_bench_time(next_step, &t, CHUNK, threads, seconds_each);
    r.epoch = epoch_seconds(&t, threads);
    gd_close(t.context);
    return r;
}

typedef struct image_job {
    gd_function *predict;
    gd_tensor *x; // [1, 784]
} image_job;

static void run_image(void *user)
{
    image_job *job = user;
    CHECK(gd_call(job->predict, 1, &job->x));
}

/* The time for the probabilities of the first image, and these. */
static gd_bench_timing measure_image(const problem *p, gd_mode mode, double probabilities[CLASSES])
{
    float image[PIXELS], read[CLASSES];
    get_image(p, 0, image);
    gd_context *context = gd_open("cpu", .threads = 1);
    gd_module *module = gd_module_create(context, .seed = SEED);
    image_job job = { gd_compile(context, predict, module, .mode = mode),
                      gd_from_host(context, GD_SHAPE(1, PIXELS), GD_F32, image) };
    CHECK(gd_no_grad_begin(context) == GD_OK);
    CHECK(gd_tensor_read(gd_call(job.predict, 1, &job.x), read, sizeof read) == GD_OK);
    for (int i = 0; i < CLASSES; i++)
        probabilities[i] = (double)read[i];
    gd_bench_timing timing = gd_bench_time(run_image, &job, 500, 1, 1.0);
    gd_close(context);
    return timing;
}

/* ---- peers ---- */

/* What a peer reported about one of its ways of working. */
typedef struct peer_mode {
    char name[128];                     /* "PyTorch 2.15.0 eager" */
    char how[128], image_how[128];      /* the settings that were fastest */
    double step, epoch, image, compile; /* seconds; NAN: not reported */
    double step_spread, image_spread;
    bool step_verified, image_verified;
} peer_mode;

enum { MOST_MODES = 16 };
typedef struct peers {
    peer_mode modes[MOST_MODES];
    int count;
    double start[2],
        memory[2]; /* of PyTorch, JAX: seconds to the first step; MiB without libraries */
} peers;

static peer_mode *find_mode(peers *all, const char *program, const char *mode)
{
    char name[sizeof all->modes[0].name];
    snprintf(name, sizeof name, "%s%s%s", program, *mode ? " " : "", mode);
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->modes[i].name, name) == 0)
            return &all->modes[i];
    if (all->count == MOST_MODES)
        gd_bench_die("a peer reports too many modes");
    peer_mode *m = &all->modes[all->count++];
    *m = (peer_mode){ .step = NAN,
                      .epoch = NAN,
                      .image = NAN,
                      .compile = NAN,
                      .step_spread = NAN,
                      .image_spread = NAN };
    memcpy(m->name, name, sizeof name);
    return m;
}

static void take_line(peers *all, const gd_bench_line *line, const char *program,
                      const double *probabilities)
{
    peer_mode *m = find_mode(all, program, line->mode);
    const char *rest = line->text + strcspn(line->text, " ");
    if (strcmp(line->kind, "how") == 0)
        snprintf(m->how, sizeof m->how, "%.*s", (int)sizeof m->how - 1, rest + (*rest == ' '));
    if (strcmp(line->kind, "imagehow") == 0)
        snprintf(m->image_how, sizeof m->image_how, "%.*s", (int)sizeof m->image_how - 1,
                 rest + (*rest == ' '));
    if (line->count < 1)
        return;
    double value = line->numbers[0];
    if (strcmp(line->kind, "spread") == 0)
        m->step_spread = value;
    else if (strcmp(line->kind, "imagespread") == 0)
        m->image_spread = value;
    if (strcmp(line->kind, "step") == 0) {
        m->step = value * 1e-6;
        m->step_verified =
            line->count == 1 + CHECKED && agree(line->numbers + 1, expected, CHECKED, 1e-4);
    } else if (strcmp(line->kind, "image") == 0) {
        m->image = value * 1e-6;
        m->image_verified =
            line->count == 1 + CLASSES && agree(line->numbers + 1, probabilities, CLASSES, 1e-5);
    } else if (strcmp(line->kind, "epoch") == 0) {
        m->epoch = value;
    } else if (strcmp(line->kind, "compile") == 0) {
        m->compile = value;
    }
}

/* `which`: 0 PyTorch, 1 JAX, 2 the original C program */
static void run_peer(peers *all, int which, const char *const *arguments, int threads,
                     const double *probabilities)
{
    gd_bench_process *process = gd_bench_start(arguments, threads);
    gd_bench_line line;
    char program[64] = "";
    while (process != NULL && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0)
            snprintf(program, sizeof program, "%.*s", (int)sizeof program - 1, line.text);
        else if (strcmp(line.kind, "note") == 0)
            fprintf(stderr, "%s\n", line.text);
        else if (strcmp(line.kind, "start") == 0 && which < 2)
            all->start[which] = line.numbers[0];
        else if (strcmp(line.kind, "memory") == 0 && which < 2 && line.count > 1)
            all->memory[which] = line.numbers[0] - line.numbers[1];
        else
            take_line(all, &line, program, probabilities);
    }
    int status = process != NULL ? gd_bench_finish(process) : 3;
    static const char *const names[] = { "PyTorch", "JAX", "the original C program" };
    if (status == 3 || status == 127)
        fprintf(stderr, "%s: not found, left out\n", names[which]);
    else if (status != 0)
        gd_bench_die("the peer %s failed: exit status %d", names[which], status);
}

static void run_peers(peers *all, const problem *p, int threads, const double *probabilities)
{
    *all = (peers){ .start = { NAN, NAN }, .memory = { NAN, NAN } };
    char count[16], seconds[16];
    snprintf(count, sizeof count, "%d", threads);
    snprintf(seconds, sizeof seconds, "%g", seconds_each / (gd_bench_quick() ? 6 : 1));
    static const char *const scripts[] = { GD_SOURCE_DIR "/bench/peers/mnist_mlp_torch.py",
                                           GD_SOURCE_DIR "/bench/peers/mnist_mlp_jax.py" };
    for (int i = 0; i < 2; i++) {
        const char *arguments[] = { gd_bench_python(), scripts[i], p->path, count, seconds, NULL };
        run_peer(all, i, arguments, threads, probabilities);
    }
    static const char original[] = GD_BINARY_DIR "/bench/peers/original_mnist";
    const char *arguments[] = { original, p->path, "600", NULL };
    if (threads == 1)
        run_peer(all, 2, arguments, threads, probabilities);
}

/* ---- rows ---- */

static gd_bench_row make_row(const char *name, int threads, const char *metric, double ours,
                             bool verified)
{
    return gd_bench_make_row("mnist_mlp", name, threads, metric, ours, verified);
}

/* What a row takes of a peer's mode. */
typedef struct peer_number {
    double value, spread; /* value NAN: it has none */
    const char *how;
    bool verified;
} peer_number;

/* One row for each peer that has the number; one without a peer if none has. */
static void print_rows(gd_bench_row row, const peers *all, peer_number (*get)(const peer_mode *))
{
    bool any = false, verified = row.verified;
    for (int i = 0; i < all->count; i++) {
        peer_number number = get(&all->modes[i]);
        row.peer = number.value;
        row.peer_spread = number.spread;
        row.peer_name = all->modes[i].name;
        row.peer_how = number.how && *number.how ? number.how : NULL;
        row.verified = verified && number.verified;
        if (isnan(row.peer))
            continue;
        gd_bench_print_row(&row);
        any = true;
    }
    row.peer_name = NULL;
    row.verified = verified;
    if (!any)
        gd_bench_print_row(&row);
}

static peer_number get_step(const peer_mode *m)
{
    return (peer_number){ m->step * 1e6, m->step_spread, m->how, m->step_verified };
}

static peer_number get_epoch(const peer_mode *m)
{
    return (peer_number){ m->epoch, NAN, m->how, m->step_verified };
}

static peer_number get_image_time(const peer_mode *m)
{
    return (peer_number){ m->image * 1e6, m->image_spread, m->image_how, m->image_verified };
}

static peer_number get_compile(const peer_mode *m)
{
    return (peer_number){ m->compile * 1e3, NAN, NULL, m->step_verified };
}

static void bench_training(const problem *p, int threads, const double *probabilities, peers *all)
{
    static const char *const names[2][2] = {
        { "train step batch 50, compiled", "train step batch 50, eager" },
        { "epoch of 60000, compiled", "epoch of 60000, eager" }
    };
    static const gd_mode modes[2] = { GD_MODE_COMPILED, GD_MODE_EAGER };
    result results[2];
    gd_bench_pin(threads);
    for (int i = 0; i < 2; i++)
        results[i] = measure_ours(p, threads, modes[i]);
    run_peers(all, p, threads, probabilities);
    gd_isa isa = gd_isa_choose();
    double peak = 0.0; /* the best of several looks: other programs may be running */
    for (int i = 0; i < 5; i++)
        peak = fmax(peak, gd_bench_peak_flops(isa, false, threads));
    fprintf(
        stderr,
        "\n%d thread%s, %s, peak %.0f GFLOP/s; the arithmetic of a step takes %.1f us at that\n",
        threads, threads > 1 ? "s" : "", gd_isa_name(isa), peak * 1e-9, step_flops / peak * 1e6);
    for (int i = 0; i < 2; i++) {
        gd_bench_row row = make_row(names[0][i], threads, "us", results[i].step.seconds * 1e6,
                                    results[i].verified);
        row.ours_spread = results[i].step.spread;
        row.bound_fraction = step_flops / peak / results[i].step.seconds;
        row.bound = "FMA peak";
        print_rows(row, all, get_step);
    }
    for (int i = 0; i < 2; i++)
        print_rows(make_row(names[1][i], threads, "s", results[i].epoch, results[i].verified), all,
                   get_epoch);
}

/* ---- from the start to the first step, and memory: in a process of its own ---- */

/* Prints when the first step was done, trains one epoch, and prints the most memory it had. */
static int run_fresh(void)
{
    trainee t;
    double before = gd_bench_resident();
    open_trainee(&t, 1, GD_MODE_COMPILED);
    next_step(&t);
    printf("start %.6f\n", gd_seconds());
    gd_batch b;
    while (gd_loader_next(t.loader, &b))
        CHECK(gd_call(t.train, b.count, b.tensors));
    gd_close(t.context);
    gd_bench_print_memory(before);
    return 0;
}

static void bench_fresh(const peers *all)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return;
    self[length] = '\0';
    const char *arguments[] = { self, "--fresh", NULL };
    double starts[5] = { 0 }, memory = NAN;
    for (int i = 0; i < 5; i++) {
        double begin = gd_seconds();
        gd_bench_process *process = gd_bench_start(arguments, 1);
        gd_bench_line line;
        while (process != NULL && gd_bench_read(process, &line)) {
            if (strcmp(line.kind, "start") == 0)
                starts[i] = line.numbers[0] - begin;
            else if (strcmp(line.kind, "memory") == 0 && line.count > 1)
                memory = line.numbers[0] - line.numbers[1];
        }
        if (process == NULL || gd_bench_finish(process) != 0)
            gd_bench_die("%s --fresh failed", self);
    }
    static const char *const names[] = { "PyTorch eager", "JAX jit" };
    double start = gd_bench_median(starts, 5);
    for (int i = 0; i < 2; i++) {
        gd_bench_row row = make_row("start to first trained step", 1, "s", start, true);
        row.clock = "wall";
        row.peer = all->start[i];
        row.peer_name = names[i];
        if (i == 0 || !isnan(row.peer))
            gd_bench_print_row(&row);
    }
    for (int i = 0; i < 2; i++) {
        gd_bench_row row = make_row("memory of training", 1, "MiB", memory, true);
        row.peer = all->memory[i];
        row.peer_name = names[i];
        if (i == 0 || !isnan(row.peer))
            gd_bench_print_row(&row);
    }
}

/* ---- sizes ---- */

static void bench_library(void)
{
    char path[] = "/tmp/bench_mnist_mlp.XXXXXX";
    int descriptor = mkstemp(path);
    if (descriptor < 0)
        return;
    close(descriptor);
    const char *arguments[] = { "strip", "-o", path, GD_BINARY_DIR "/libgradus.so", NULL };
    gd_bench_process *process = gd_bench_start(arguments, 1);
    struct stat status;
    if (process != NULL && gd_bench_finish(process) == 0 && stat(path, &status) == 0) {
        gd_bench_row row =
            make_row("libgradus.so, stripped", 1, "MB", (double)status.st_size * 1e-6, true);
        gd_bench_print_row(&row);
    } else {
        fprintf(stderr, "libgradus.so could not be stripped: no row for its size\n");
    }
    unlink(path);
}

static void bench_plan(const peers *all, bool verified)
{
    print_rows(make_row("compiling the train step", 1, "ms", plan.compile_seconds * 1e3, verified),
               all, get_compile);
    gd_bench_row row = make_row("planned memory of the train step", 1, "KiB",
                                (double)plan.arena_bytes / 1024, verified);
    row.peer = (double)plan.live_bytes / 1024;
    row.peer_name = "alive at once";
    gd_bench_print_row(&row);
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--fresh") == 0)
        return run_fresh();
    static problem p;
    static peers at_one, at_more;
    int processors = gd_cpu_count();
    double probabilities[2][CLASSES];
    make_problem(&p);
    gd_bench_pin(1);
    gd_bench_timing image[2] = { measure_image(&p, GD_MODE_COMPILED, probabilities[0]),
                                 measure_image(&p, GD_MODE_EAGER, probabilities[1]) };
    bool same = agree(probabilities[0], probabilities[1], CLASSES, 0.0);
    bench_training(&p, 1, probabilities[0], &at_one);
    if (processors > 1)
        bench_training(&p, 2, probabilities[0], &at_more);
    unlink(p.path);

    fprintf(stderr, "\n");
    static const char *const names[] = { "one image, compiled", "one image, eager" };
    for (int i = 0; i < 2; i++) {
        gd_bench_row row = make_row(names[i], 1, "us", image[i].seconds * 1e6, same);
        row.ours_spread = image[i].spread;
        print_rows(row, &at_one, get_image_time);
    }
    bench_plan(&at_one, same);
    bench_fresh(&at_one);
    bench_library();
    gd_idx_free(&p.images);
    gd_idx_free(&p.labels);
    free(p.order);
    return gd_bench_all_verified() ? 0 : 1;
}
