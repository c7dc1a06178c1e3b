/* bench/bench_fit.c: what gd_fit's conveniences cost a training step: gd_fit itself (metrics, sampled times)
 * against a loop of one's own, and then .blame and saving asynchronously each 100 steps against gd_fit
 * without them. Two networks on one thread, of which the small one has steps of some ten microseconds.
 *
 * The clock is the processor time of the training thread: what the thread that writes checkpoints does
 * beside it does not count. Verified: all variants end with the same parameters, bit for bit.
 */
#include "measure.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 3200, WARM = 20, ROUNDS = 9, SAVE_EVERY = 100 };

typedef struct subject {
    const char *name;
    int64_t batch, steps; /* timed */
    bool convolutions;
} subject;
static const subject subjects[] = { { "MLP 784-64-10, batch 50", 50, 4000, false },
                                    { "LeNet-5, batch 64", 64, 400, true } };

typedef enum variant { OWN, PLAIN, BLAME, SAVE, VARIANTS } variant;

typedef struct trainee {
    const subject *s;
    gd_context *gd;
    gd_module *m;
    gd_optimizer *optimizer;
    gd_loader *loader;
    gd_run *run;
    int64_t steps;
    double begin, end;
    double samples[ROUNDS];
} trainee;

static void check(bool ok)
{
    if (!ok)
        gd_bench_die("%s", gd_error_message());
}

static double thread_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what is trained ---- */

static gd_tensor *network(const trainee *t, gd_tensor *x)
{
    gd_module *m = t->m;
    if (!t->s->convolutions)
        return gd_nn_linear(m, "fc2", gd_relu(gd_nn_linear(m, "fc1", x, 64)), 10);
    x = gd_reshape(x, GD_SHAPE(-1, 1, 28, 28));
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 6, GD_SHAPE(5), .padding = GD_SHAPE(2)));
    x = gd_max_pool2d(x, GD_SHAPE(2));
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 16, GD_SHAPE(5)));
    x = gd_reshape(gd_max_pool2d(x, GD_SHAPE(2)), GD_SHAPE(-1, 400));
    x = gd_relu(gd_nn_linear(m, "fc1", x, 120));
    x = gd_relu(gd_nn_linear(m, "fc2", x, 84));
    return gd_nn_linear(m, "fc3", x, 10);
}

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    gd_tensor *logits = network(user, call->tensors[0]);
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

static gd_tensor *own_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(network(t, in[0]), in[1]));
}

static gd_dataset *make_data(gd_context *gd)
{
    static float x[SAMPLES * 784];
    static int64_t y[SAMPLES];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i * 2654435761u % 1000u) * 1e-3f;
    for (size_t i = 0; i < SAMPLES; i++)
        y[i] = (int64_t)(i * 40503u % 10u);
    const gd_field fields[] = { { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(784) },
                                { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64,
                                  .classes = 10 } };
    const void *const arrays[] = { x, y };
    return gd_dataset_from_arrays(gd, SAMPLES, 2, fields, arrays);
}

static void open_trainee(trainee *t, const subject *s, const char *folder)
{
    *t = (trainee){ .s = s, .gd = gd_open("cpu", .threads = 1, .seed = 1) };
    check(t->gd != NULL);
    t->m = gd_module_create(t->gd, .seed = 1);
    t->optimizer = gd_adam(t->m, .lr = 1e-4);
    gd_dataset *data = make_data(t->gd);
    t->loader = data ? gd_loader_create(data, .batch = s->batch, .shuffle = true) : NULL;
    t->run = folder ? gd_run_open(folder) : NULL;
    t->steps = gd_bench_quick() ? s->steps / 2 : s->steps;
    check(t->m && t->optimizer && t->loader && (t->run || !folder));
}

/* ---- timing ---- */

/* Called before each step: notes when the first timed one began, and the one behind the last. */
static gd_status note(void *user, int64_t step, int64_t steps, double *lr)
{
    trainee *t = user;
    if (step == WARM)
        t->begin = thread_seconds();
    if (step == steps - 1)
        t->end = thread_seconds();
    *lr = 1e-4;
    return GD_OK;
}

static void run_own(trainee *t)
{
    const int64_t steps = WARM + t->steps + 1;
    gd_function *step = gd_compile(t->gd, own_step, t);
    check(step != NULL);
    for (int64_t i = 0; i < steps; i++) {
        double lr;
        gd_batch b;
        check(note(t, i, steps, &lr) == GD_OK && gd_optimizer_set_lr(t->optimizer, lr) == GD_OK);
        if (!gd_loader_next(t->loader, &b))
            check(gd_loader_next(t->loader, &b));
        gd_tensor *loss = gd_call(step, b.count, b.tensors);
        check(loss && isfinite(gd_item(loss)));
    }
    gd_function_release(step);
}

static void run_fit(trainee *t, variant v)
{
    check(gd_fit(t->optimizer, objective, t, t->loader, .steps = WARM + t->steps + 1,
                 .schedule = note, .schedule_user = t, .blame = v == BLAME, .run = t->run,
                 .checkpoint_steps = t->run ? SAVE_EVERY : -1,
                 .checkpoint_seconds = INFINITY) == GD_OK);
}

static gd_bench_timing timing_of(trainee *t)
{
    double middle = gd_bench_median(t->samples, ROUNDS); /* sorts */
    return (gd_bench_timing){ middle,
                              (t->samples[ROUNDS * 3 / 4] - t->samples[ROUNDS / 4]) / middle };
}

static bool same_parameters(const trainee *a, const trainee *b)
{
    bool same = gd_module_count(a->m) == gd_module_count(b->m);
    for (int i = 0; same && i < gd_module_count(a->m); i++) {
        gd_tensor *x = gd_module_tensor(a->m, i), *y = gd_module_tensor(b->m, i);
        size_t bytes = (size_t)gd_tensor_count(x) * sizeof(float);
        char *p = malloc(2 * bytes);
        same = p && gd_tensor_read(x, p, bytes) == GD_OK &&
               gd_tensor_read(y, p + bytes, bytes) == GD_OK && memcmp(p, p + bytes, bytes) == 0;
        free(p);
    }
    return same;
}

static void print(const subject *s, trainee *all, variant v, variant against)
{
    static const char *const names[] = { "a loop of one's own", "gd_fit", "blame",
                                         "saving each 100 steps" };
    char name[128];
    snprintf(name, sizeof name, "%s, %s", s->name, names[v]);
    gd_bench_timing ours = timing_of(&all[v]), peer = timing_of(&all[against]);
    gd_bench_row row = gd_bench_make_row("fit", name, 1, "us", 1e6 * ours.seconds,
                                         same_parameters(&all[v], &all[against]));
    row.ours_spread = ours.spread;
    row.peer = 1e6 * peer.seconds;
    row.peer_spread = peer.spread;
    row.peer_name = names[against];
    row.clock = "processor, of the training thread";
    gd_bench_print_row(&row);
}

static void measure(const subject *s)
{
    char folder[512], command[600];
    trainee all[VARIANTS];
    snprintf(folder, sizeof folder, "%s/bench-fit-run", GD_BINARY_DIR);
    for (int v = 0; v < VARIANTS; v++)
        open_trainee(&all[v], s, v == SAVE ? folder : NULL);
    for (int round = 0; round < ROUNDS; round++)
        for (int v = 0; v < VARIANTS; v++) {
            if (v == OWN)
                run_own(&all[v]);
            else
                run_fit(&all[v], (variant)v);
            all[v].samples[round] = (all[v].end - all[v].begin) / (double)(all[v].steps);
        }
    print(s, all, PLAIN, OWN);
    print(s, all, BLAME, PLAIN);
    print(s, all, SAVE, PLAIN);
    check(gd_run_close(all[SAVE].run) == GD_OK);
    for (int v = 0; v < VARIANTS; v++)
        gd_close(all[v].gd);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    (void)!system(command);
}

int main(int count, char **arguments)
{
    gd_bench_pin(1);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (count < 2 || strstr(subjects[i].name, arguments[1]))
            measure(&subjects[i]);
    return gd_bench_all_verified() ? EXIT_SUCCESS : EXIT_FAILURE;
}
