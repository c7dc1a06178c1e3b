/* bench/bench_optimizer.c: what the update of an optimizer costs, apart from the gradients: steps
 * of compiled updates over 30 parameter tensors with 33.6 million numbers (as many as the
 * cats-and-dogs network has), in bytes per second, against what this machine's memory can do and
 * against PyTorch's fused and foreach implementations in the same run.
 *
 * Bytes are those that must move: every parameter, gradient and state read once, every parameter
 * and state written once. The bound is the bandwidth of copying, measured in the same run. Ours is
 * verified against PyTorch's parameters after three steps, both from the same numbers.
 */
#include "measure.h"
#include "peak.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS  15
#define WIDTH   1496 /* each layer has [WIDTH, WIDTH] and [WIDTH] */
#define CHECKED 3    /* steps after which parameters are compared */
#define SECONDS 0.5

typedef struct subject {
    const char *name;
    int states; /* of a parameter */
} subject;
static const subject subjects[] = { { "momentum", 1 }, { "adam", 2 } };
#define SUBJECTS ((int)(sizeof subjects / sizeof *subjects))

static gd_optimizer *make_optimizer(const char *name, gd_module *m)
{
    if (strcmp(name, "momentum") == 0)
        return gd_sgd(m, .lr = 1e-3, .momentum = 0.9);
    return gd_optimizer_create(m, name, .lr = 1e-3);
}

/* ---- ours ---- */

typedef struct trainee {
    gd_context *gd;
    gd_module *m;
    gd_optimizer *optimizer;
    gd_function *step;
    int64_t count; /* numbers */
} trainee;

static void check(bool ok)
{
    if (!ok)
        gd_bench_die("%s", gd_error_message());
}

/* Values that depend on the place alone; gradients likewise, by a loss that is their product. */
static gd_tensor *pattern(gd_context *gd, gd_shape shape, int64_t period, float scale)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        gd_bench_die("no memory");
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(i % period - period / 2) * scale;
    gd_tensor *t = gd_from_host(gd, shape, GD_F32, values);
    free(values);
    check(t != NULL);
    return t;
}

static void open_parameter(trainee *t, const char *path, gd_shape shape)
{
    check(gd_scope_begin(t->gd) == GD_OK);
    gd_tensor *p = gd_parameter(t->m, path, shape, .init = GD_INIT_ZEROS);
    check(gd_assign(p, pattern(t->gd, shape, 1000, 1e-3f)) != NULL);
    gd_tensor *loss = gd_sum(gd_mul(p, pattern(t->gd, shape, 777, 1e-3f)), GD_ALL_AXES, false);
    check(gd_backward(loss) == GD_OK);
    t->count += gd_tensor_count(p);
    check(gd_scope_end(t->gd) == GD_OK);
}

static gd_tensor *update(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    (void)in;
    return gd_optimizer_step(t->optimizer) == GD_OK ? gd_scalar(t->gd, 0.0, GD_F32) : NULL;
}

static void open_trainee(trainee *t, const char *name, int threads)
{
    *t = (trainee){ .gd = gd_open("cpu", .threads = threads) };
    check(t->gd != NULL);
    t->m = gd_module_create(t->gd);
    for (int i = 0; i < LAYERS; i++) {
        char path[32];
        snprintf(path, sizeof path, "%d.weight", i);
        open_parameter(t, path, GD_SHAPE(WIDTH, WIDTH));
        snprintf(path, sizeof path, "%d.bias", i);
        open_parameter(t, path, GD_SHAPE(WIDTH));
    }
    t->optimizer = make_optimizer(name, t->m);
    check(t->optimizer != NULL);
    t->step = gd_compile(t->gd, update, t);
    check(t->step != NULL);
}

static void run_step(void *user)
{
    check(gd_call(((trainee *)user)->step, 0, NULL) != NULL);
}

/* Sum of the first layer's weights times their place, which tells an error anywhere. */
static double digest(const trainee *t)
{
    gd_tensor *p = gd_module_parameter(t->m, "0.weight");
    int64_t count = gd_tensor_count(p);
    const float *values = gd_tensor_data(p);
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)(i % 97 + 1);
    return sum / (double)count;
}

typedef struct result {
    gd_bench_timing timing;
    double digest;
    int kernels;
} result;

static result measure_ours(const char *name, int threads)
{
    trainee t;
    open_trainee(&t, name, threads);
    for (int i = 0; i < CHECKED; i++)
        run_step(&t);
    result r = { .digest = digest(&t), .kernels = gd_function_stats(t.step).kernels };
    r.timing = gd_bench_time(run_step, &t, 1, threads, SECONDS);
    gd_close(t.gd);
    return r;
}

/* ---- PyTorch: lines "ms VARIANT MILLISECONDS SPREAD DIGEST", and before each "how TEXT" ---- */

#define MOST_VARIANTS 4
typedef struct variant {
    char name[64], how[64];
    gd_bench_timing timing;
    double digest;
} variant;

static int run_peer(const char *name, int threads, variant *variants)
{
    char thread_text[16], seconds_text[16], layers[16], width[16], version[32] = "";
    snprintf(thread_text, sizeof thread_text, "%d", threads);
    snprintf(seconds_text, sizeof seconds_text, "%g", SECONDS / (gd_bench_quick() ? 3 : 1));
    snprintf(layers, sizeof layers, "%d", LAYERS);
    snprintf(width, sizeof width, "%d", WIDTH);
    const char *arguments[] = { gd_bench_python(),
                                GD_SOURCE_DIR "/bench/peers/optimizer_torch.py",
                                name,
                                thread_text,
                                seconds_text,
                                layers,
                                width,
                                NULL };
    gd_bench_process *process = gd_bench_start(arguments, threads);
    int count = 0;
    gd_bench_line line;
    while (process && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0)
            snprintf(version, sizeof version, "%.31s", line.text);
        if (count == MOST_VARIANTS)
            continue;
        variant *v = &variants[count];
        if (strcmp(line.kind, "how") == 0)
            snprintf(v->how, sizeof v->how, "%.63s", line.text);
        if (strcmp(line.kind, "ms") != 0 || line.count < 3)
            continue;
        count++;
        snprintf(v->name, sizeof v->name, "%s %s", version, line.mode);
        v->timing = (gd_bench_timing){ line.numbers[0] * 1e-3, line.numbers[1] };
        v->digest = line.numbers[2];
    }
    if (process)
        (void)gd_bench_finish(process);
    return count;
}

/* ---- the bound: copying, by the clock that ours is measured by ---- */

#define COPIED ((size_t)128 << 20)

static void run_copy(void *user)
{
    char *memory = user;
    memcpy(memory, memory + COPIED, COPIED);
}

/* Bytes read and written per second. */
static double copy_bandwidth(int threads)
{
    gd_bench_bandwidth memory = { 0 };
    if (threads > 1 && gd_bench_memory(threads, &memory))
        return memory.copy;
    char *room = malloc(2 * COPIED);
    if (!room)
        gd_bench_die("no memory for measuring it");
    memset(room, 1, 2 * COPIED);
    double seconds = gd_bench_time(run_copy, room, 1, 1, SECONDS).seconds;
    free(room);
    return 2.0 * (double)COPIED / seconds;
}

/* ---- rows ---- */

static void bench_subject(const subject *s, int threads)
{
    variant variants[MOST_VARIANTS] = { 0 };
    gd_bench_pin(threads);
    result r = measure_ours(s->name, threads);
    int count = run_peer(s->name, threads, variants);
    double bound = copy_bandwidth(threads);
    double numbers = (double)LAYERS * WIDTH * (WIDTH + 1);
    double bytes = numbers * sizeof(float) * (3 + 2 * s->states);
    char name[96];
    snprintf(name, sizeof name, "%s, 30 tensors, 33.6 M numbers, %d kernels", s->name, r.kernels);
    double seconds = r.timing.seconds;
    gd_bench_row row = gd_bench_make_row("optimizer", name, threads, "GB/s", bytes / seconds * 1e-9,
                                         count > 0 || isfinite(r.digest));
    row.ours_spread = r.timing.spread;
    row.more_is_better = true;
    row.bound_fraction = fmin(1, bytes / seconds / bound);
    row.bound = "memory copy";
    if (count == 0)
        gd_bench_print_row(&row);
    for (int i = 0; i < count; i++) {
        row.peer = bytes / variants[i].timing.seconds * 1e-9;
        row.peer_spread = variants[i].timing.spread;
        row.peer_name = variants[i].name;
        row.peer_how = variants[i].how;
        row.verified =
            fabs(r.digest - variants[i].digest) <= 1e-6 * fabs(variants[i].digest) + 1e-7;
        gd_bench_print_row(&row);
    }
}

int main(void)
{
    for (int i = 0; i < SUBJECTS; i++)
        for (int threads = 1; threads <= 2; threads++)
            bench_subject(&subjects[i], threads);
    return gd_bench_all_verified() ? 0 : 1;
}
