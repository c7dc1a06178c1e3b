/* tests/test_resume.c: trainings that are killed with SIGKILL at random moments and resumed end with the
 * same bytes as those that are left alone: an MLP, a CNN on images that are augmented, and a GPT, all
 * with dropout, with 0, 1 and 3 workers. A child process trains and tells of each step; this one kills
 * it some microseconds after a step that is drawn, perhaps while a checkpoint is being written.
 *
 * GRADUS_KILLS=100 kills at least so many times in all (18), GRADUS_KILL_SEED=n draws other moments,
 * GRADUS_KILL_FOLDER=/tmp is where runs are kept: without it, in memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"

enum { EPOCHS = 3, CASES = 9 };

static uint64_t draw_state = 1;

static uint64_t draw(uint64_t bound)
{
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (draw_state >> 33) % bound;
}

static int begin(void **state)
{
    (void)state;
    const char *seed = getenv("GRADUS_KILL_SEED");
    if (seed)
        draw_state = strtoull(seed, NULL, 10);
    return make_folder_in(getenv("GRADUS_KILL_FOLDER"));
}

static int end(void **state)
{
    (void)state;
    return delete_folder();
}

/* ---- the trainings ---- */

typedef struct job {
    gd_context *gd;
    gd_module *module;
    gd_language_model *gpt;
    gd_optimizer *optimizer;
    gd_dataset *train, *validation;
    gd_objective_fn objective;
    gd_loader_options loader;
    gd_fit_options fit;
} job;

static gd_tensor *classify(gd_tensor *logits, gd_tensor *target, const gd_objective_call *call)
{
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), target));
    return gd_cross_entropy(logits, target);
}

static gd_tensor *mlp(void *user, const gd_objective_call *call)
{
    const job *j = user;
    gd_tensor *h = gd_relu(gd_nn_linear(j->module, "fc1", call->tensors[0], 24));
    h = gd_nn_dropout(j->module, "drop", gd_nn_layer_norm(j->module, "norm", h), 0.3);
    return classify(gd_nn_linear(j->module, "fc2", h, 3), call->tensors[1], call);
}

static gd_tensor *cnn(void *user, const gd_objective_call *call)
{
    const job *j = user;
    gd_tensor *x = gd_augment(call->tensors[0], call->training ? call->tensors[2] : NULL,
                              .padding = 1, .flip = 0.5, .brightness = 0.2);
    x = gd_nn_conv2d(j->module, "conv", x, 6, GD_SHAPE(3), .padding = GD_SHAPE(1));
    x = gd_max_pool2d(gd_relu(gd_nn_batch_norm(j->module, "norm", x)), GD_SHAPE(2));
    x = gd_nn_dropout(j->module, "drop", gd_reshape(x, GD_SHAPE(-1, 6 * 4 * 4)), 0.3);
    return classify(gd_nn_linear(j->module, "out", x, 3), call->tensors[1], call);
}

static gd_tensor *gpt(void *user, const gd_objective_call *call)
{
    const job *j = user;
    gd_tensor *loss = gd_language_model_loss(j->gpt, call->tensors[0], call->tensors[1]);
    gd_report(call, "perplexity", loss, .form = GD_METRIC_EXP);
    return loss;
}

/* Samples of three classes; pixels or numbers depend on the class, with noise. */
static gd_dataset *samples(gd_context *gd, gd_shape shape, gd_dtype dtype, int64_t count)
{
    int64_t size = 1;
    for (int i = 0; i < shape.rank; i++)
        size *= shape.dim[i];
    float *numbers = malloc((size_t)(count * size) * sizeof *numbers);
    uint8_t *pixels = malloc((size_t)(count * size));
    int64_t *labels = malloc((size_t)count * sizeof *labels);
    uint32_t noise = 7;
    for (int64_t i = 0; i < count * size; i++) {
        noise = noise * 1664525u + 1013904223u;
        int64_t label = labels[i / size] = i / size % 3;
        pixels[i] = (uint8_t)((i % 3 == label ? 100 : 0) + (int)(noise >> 25));
        numbers[i] = (float)pixels[i] / 128.0f - 1.0f;
    }
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = shape, .dtype = dtype },
        { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = 3 },
    };
    const void *arrays[] = { dtype == GD_U8 ? (void *)pixels : (void *)numbers, labels };
    gd_dataset *d = gd_dataset_from_arrays(gd, count, 2, fields, arrays);
    free(numbers);
    free(pixels);
    free(labels);
    return d;
}

static void open_mlp(job *j)
{
    j->module = gd_module_create(j->gd, .seed = 1);
    j->optimizer = gd_adam(j->module, .lr = 0.01);
    j->train = samples(j->gd, GD_SHAPE(10), GD_F32, 70);
    j->validation = samples(j->gd, GD_SHAPE(10), GD_F32, 20);
    j->objective = mlp;
    j->loader = (gd_loader_options){ GD_LOADER_DEFAULTS, .batch = 8, .shuffle = true, .seed = 4 };
    static gd_plateau plateau;
    plateau = (gd_plateau){ GD_PLATEAU_DEFAULTS, .patience = 0, .threshold = 0.5, .factor = 0.9 };
    j->fit.ema = gd_ema_create(j->module, .decay = 0.9);
    j->fit.plateau = &plateau;
    j->fit.validate_steps = 4;
    j->fit.checkpoint_steps = 2;
}

static void open_cnn(job *j)
{
    static gd_schedule schedule = { GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_ONE_CYCLE,
                                    .lr = 0.05 };
    j->module = gd_module_create(j->gd, .seed = 1);
    j->optimizer = gd_sgd(j->module, .lr = 0.05, .momentum = 0.9);
    j->train = samples(j->gd, GD_SHAPE(3, 8, 8), GD_U8, 60);
    j->validation = samples(j->gd, GD_SHAPE(3, 8, 8), GD_U8, 15);
    j->objective = cnn;
    const gd_augment_options augment = { GD_AUGMENT_DEFAULTS, .padding = 1, .flip = 0.5,
                                         .brightness = 0.2 };
    j->loader = (gd_loader_options){ GD_LOADER_DEFAULTS, .batch = 8, .shuffle = true, .seed = 4,
                                     .draws = (int)gd_augment_draws(&augment) };
    j->fit.schedule = gd_schedule_follow;
    j->fit.schedule_user = &schedule;
    j->fit.monitor = "accuracy";
    j->fit.rising = true;
    j->fit.checkpoint_steps = 1;
}

static void open_gpt(job *j)
{
    int32_t tokens[600];
    for (int i = 0; i < 600; i++)
        tokens[i] = (i * i / 7 + i) % 23;
    j->gpt = gd_language_model_create(j->gd, .vocabulary = 23, .max_length = 12, .layers = 2,
                                      .heads = 2, .width = 16, .dropout = 0.2, .seed = 1);
    j->module = gd_language_model_module(j->gpt);
    j->optimizer = gd_adamw(j->module, .lr = 3e-3);
    assert_int_equal(gd_optimizer_clip_norm(j->optimizer, 1.0), GD_OK);
    gd_token_data *data = gd_token_data_create(j->gd, 600, tokens);
    j->train = gd_token_dataset(j->gd, data, .length = 12, .stride = 1);
    j->validation = gd_token_dataset(j->gd, data, .length = 12, .stride = 120);
    j->objective = gpt;
    j->loader = (gd_loader_options){ GD_LOADER_DEFAULTS, .batch = 4, .seed = 4,
                                     .with_replacement = true, .batches_per_epoch = 15 };
    j->fit.accumulate = 2;
    j->fit.checkpoint_steps = 1;
}

static gd_status tell_step(void *user, const gd_fit_progress *progress, bool *stop)
{
    (void)progress, (void)stop;
    return write(*(int *)user, "s", 1) == 1 ? GD_OK : GD_ERR_IO;
}

/* The whole program of a child: train, or go on training, in a folder, and leave `final` there. Its
 * exit status. */
static int train(int network, int workers, const char *path, int told)
{
    static void (*const open_job[])(job *) = { open_mlp, open_cnn, open_gpt };
    char final[160];
    snprintf(final, sizeof final, "%s/final.safetensors", path);
    job j = { .gd = gd_open("cpu", .threads = 2, .seed = 9), .fit = { GD_FIT_DEFAULTS } };
    open_job[network](&j);
    j.loader.workers = workers;
    j.fit.epochs = EPOCHS;
    j.fit.resume = true;
    j.fit.run = gd_run_open(path, .interval = workers == 3 ? 0.004 : 0); /* some are passed over */
    j.fit.validation = gd_loader_create(j.validation, .batch = 8);
    j.fit.progress = tell_step;
    j.fit.progress_user = &told;
    j.fit.progress_interval = 0;
    gd_loader *loader = gd_loader_create_with(j.train, &j.loader);
    gd_training model = { GD_TRAINING_DEFAULTS, .module = j.module };
    bool ok = gd_fit_with(j.optimizer, j.objective, &j, loader, &j.fit) == GD_OK &&
              gd_training_save(&model, final) == GD_OK && gd_run_close(j.fit.run) == GD_OK;
    if (!ok)
        fprintf(stderr, "%s: %s\n", path, gd_error_message());
    gd_close(j.gd);
    return ok ? 0 : 1;
}

/* ---- killing them ---- */

/* A child that trains, killed some microseconds after `steps` steps; a negative number: left alone.
 * Whether it came to its end. */
static bool run_child(int network, int workers, const char *path, int steps, unsigned microseconds)
{
    int told[2], status;
    assert_int_equal(pipe(told), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(told[0]);
        _exit(train(network, workers, path, told[1]));
    }
    close(told[1]);
    char byte;
    for (int i = 0; (steps < 0 || i < steps) && read(told[0], &byte, 1) == 1; i++)
        ;
    if (steps >= 0) {
        usleep(microseconds);
        kill(child, SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close(told[0]);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("network %d, %d workers: the child ended with %d", network, workers, status);
    return true;
}

/* What a killed child leaves is whole. */
static void check_last(const char *path)
{
    char last[160];
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", path);
    if (access(last, F_OK) != 0)
        return;
    gd_tensor_file *file = gd_tensor_file_open(last);
    if (!file || gd_tensor_file_verify(file) != GD_OK)
        fail_msg("%s", gd_error_message());
    gd_tensor_file_close(file);
}

static void assert_same_results(const char *a, const char *b)
{
    static const char *const files[] = { "final.safetensors", "checkpoints/last.safetensors",
                                         "checkpoints/best.safetensors" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char command[400];
        snprintf(command, sizeof command, "cmp %s/%s %s/%s", a, files[i], b, files[i]);
        assert_int_equal(system(command), 0);
    }
}

static void killed_trainings_end_as_others_do(void **state)
{
    (void)state;
    need_json();
    const char *wanted = getenv("GRADUS_KILLS");
    int kills = wanted ? atoi(wanted) : 2 * CASES, killed = 0;
    char whole[96], part[96];
    for (int network = 0; network < 3; network++) {
        snprintf(whole, sizeof whole, "%s/whole%d", folder, network);
        assert_true(run_child(network, 0, whole, -1, 0));
    }
    for (int number = 0; killed < kills || number < CASES; number++) {
        int network = number % 3, workers = (int[]){ 0, 1, 3 }[number / 3 % 3];
        snprintf(whole, sizeof whole, "%s/whole%d", folder, network);
        snprintf(part, sizeof part, "%s/part%d", folder, number);
        for (int left = 1 + (int)draw(3); left > 0; left--) {
            if (run_child(network, workers, part, (int)draw(14), (unsigned)draw(3000)))
                break; /* it was faster */
            killed++;
            check_last(part);
        }
        assert_true(run_child(network, workers, part, -1, 0));
        assert_same_results(whole, part);
    }
    print_message("%d kills\n", killed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(killed_trainings_end_as_others_do) };
    return cmocka_run_group_tests(tests, begin, end);
}
