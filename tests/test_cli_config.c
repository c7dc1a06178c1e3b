/* tests/test_cli_config.c: options of gradus train: files of --config, --set, what overrides what, and what
 * each of them does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <math.h>

#ifdef GD_TOOL

#include "support/cli.h"

#define IRIS    GD_SOURCE_DIR "/tests/data/iris.csv"
#define CLASSES "train " IRIS " --target species --quiet "

static void assert_other_file(const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && cmp -s '%s' '%s'", folder, a, b);
    assert_int_not_equal(system(command), 0);
}

static gd_history *history_of(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gd_history *history = gd_history_load(path);
    assert_non_null(history);
    return history;
}

/* The file, then --set, then the command line. */
static void later_options_win(void **state)
{
    (void)state;
    need("jansson");
    write_text("c.json", "{\"data\": \"" IRIS "\", \"target\": \"species\", \"epochs\": 2,\n"
                         "\"batch\": 20, \"seed\": 7, \"ignore\": [\"petal width (cm)\"],\n"
                         "\"optimizer\": {\"name\": \"sgd\", \"lr\": 0.5, \"momentum\": null}}");
    const result *r =
        run("train --config c.json --run c --quiet --set batch=24 --set seed=8 --seed 9");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    gd_history *h = history_of("c");
    assert_string_equal(gd_history_option(h, "epochs"), "2");
    assert_string_equal(gd_history_option(h, "batch"), "24");
    assert_string_equal(gd_history_option(h, "seed"), "9");
    assert_string_equal(gd_history_option(h, "ignore"), "petal width (cm)");
    assert_string_equal(gd_history_option(h, "optimizer.name"), "sgd");
    assert_string_equal(gd_history_option(h, "optimizer.lr"), "0.5");
    assert_null(gd_history_option(h, "optimizer.momentum"));
    gd_history_release(h);
    assert_fails(run("train --data other.csv c.json"), 2, "'c.json' is a file of options");
    /* So is what another program writes into a pipe. */
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && mkfifo pipe.json && (cat c.json >pipe.json &)",
             folder);
    assert_int_equal(system(command), 0);
    r = run("train pipe.json --run piped --quiet --set batch=24 --seed 9");
    assert_string_equal(r->err, "");
    assert_same_file("c/model.safetensors", "piped/model.safetensors");
    /* A run's config.json is such a file. */
    assert_int_equal(run("train --config c/config.json --run again --quiet")->code, 0);
    assert_same_file("c/model.safetensors", "again/model.safetensors");
    assert_same_file("c/config.json", "again/config.json");
}

static void mistakes_name_key_value_and_remedy(void **state)
{
    (void)state;
    need("jansson");
    static const char *const sets[][2] = {
        { "epocs=3", "--set: there is no key \"epocs\"; did you mean 'epochs'?" },
        { "lr=3", "did you mean 'optimizer.lr'?" },
        { "weight-decay=3", "did you mean 'optimizer.weight_decay'?" },
        { "optimizer=sgd", "did you mean 'optimizer.name'?" },
        { "colour=red", "no key \"colour\"; 'gradus train --help' lists them" },
        { "epochs=ten", "\"epochs\" is ten; it takes a whole number from 1 to 1000000" },
        { "optimizer.lr=-1", "\"optimizer.lr\" is -1; it takes a number from 0 to 1e+06" },
        { "eager=yes", "\"eager\" is yes; it takes true or false" },
        { "epochs", "--set takes KEY=VALUE, not 'epochs'" },
        { "resume=x", "there is no key \"resume\"" },
        { "schedule.power=2",
          "schedule.power is for the schedules polynomial; this one is cosine" },
        { "schedule.name=multi_step", "needs its epochs: --set schedule.milestones=30,60" },
        { "min_improvement=1", "--min-improvement is for --patience" },
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        assert_fails(run(CLASSES "--run no --set %s", sets[i][0]), 2, sets[i][1]);
    static const char *const files[][2] = {
        { "{\"epochs\": \"3\"}", "f.json: \"epochs\" is \"3\"; it takes a whole number" },
        { "{\"epochs\": 2.5}", "\"epochs\" is 2.5; it takes a whole number" },
        { "{\"target\": 3}", "\"target\" is 3; it takes a text" },
        { "{\"eager\": 1}", "\"eager\" is 1; it takes true or false" },
        { "{\"epochs\": {\"most\": 3}}", "no key \"epochs.most\"" },
        { "{\"optimizer\": \"sgd\"}", "no key \"optimizer\"; did you mean 'optimizer.name'?" },
        { "{\"epochs\": 3,\n \"epochs\": 4}", "f.json: line 2: duplicate object key near" },
        { "{\"optimizer.lr\": 1, \"optimizer\": {\"lr\": 2}}",
          "f.json: the key \"optimizer.lr\" is there twice" },
        { "{\"\": {\"epochs\": 3}}", "f.json: a key is empty" },
        { "{\"optimizer\": {\"\": 3}}", "f.json: a key is empty" },
        { "[3]", "f.json: is no JSON object" },
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_text("f.json", files[i][0]);
        assert_fails(run(CLASSES "--run no --config f.json"), 2, files[i][1]);
    }
    assert_fails(run(CLASSES "--run no --config none.json"), 1, "none.json: cannot be read");
    assert_fails(run(CLASSES "--run no --set schedule.name=multi_step --set "
                             "schedule.milestones=3,2"),
                 1, "schedule.milestones are ascending numbers of epochs");
    assert_fails(run(CLASSES "--run no --epochs 3 --warmup 3"), 1,
                 "the warm-up takes 3 epochs, and there are 3 in all");
    write_text("f.toml", "epochs = 3\n");
    assert_fails(run("train f.toml"), 2, "f.toml is TOML; options are read from JSON");
    assert_fails(run(CLASSES "--run no --config f.toml"), 2, "json.dump(tomllib.load(");
    assert_false(is_there("^no$"));
}

static double lr_after(const char *name, int64_t epoch)
{
    gd_history *h = history_of(name);
    int64_t lr = gd_history_metric_find(h, "lr");
    assert_true(lr >= 0 && gd_history_metric_points(h, lr) >= epoch);
    double value = gd_history_metric_values(h, lr)[epoch - 1];
    gd_history_release(h);
    return value;
}

/* The learning rate of each epoch's last step, four steps an epoch. */
static void schedules_count_in_epochs(void **state)
{
    (void)state;
    need("jansson");
    static const struct {
        const char *options;
        double lr[4];
    } rows[] = {
        { "constant", { 1, 1, 1, 1 } },
        { "constant --warmup 2", { 0.5, 1, 1, 1 } },
        { "step --set schedule.period=2", { 1, 1, 0.1, 0.1 } },
        { "multi_step --set schedule.milestones=1,3 --set schedule.factor=0.5",
          { 1, 0.5, 0.5, 0.25 } },
        { "linear --set schedule.lr_end=0.2", { 0.85, 0.65, 0.45, 0.25 } },
        { "polynomial --set schedule.power=2",
          { 0.8125 * 0.8125, 0.5625 * 0.5625, 0.3125 * 0.3125, 0.0625 * 0.0625 } },
        { "exponential --set schedule.factor=0.0625", { 0.125, 0.0078125, 0.00048828125, 0 } },
        { "plateau --set schedule.patience=1 --min-improvement 0 --patience 9 --monitor loss",
          { 1, 1, 1, 1 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%zu", i);
        const result *r = run(CLASSES "--run %s --optimizer sgd --lr 1 --epochs 4 --batch 32 "
                                      "--set optimizer.lr=1 --schedule %s",
                              name, rows[i].options);
        assert_string_equal(r->err, "");
        for (int64_t e = 1; e <= 4; e++)
            assert_true(rows[i].lr[e - 1] == 0 ||
                        fabs(lr_after(name, e) / rows[i].lr[e - 1] - 1.0) < 1e-9);
    }
    assert_true(lr_after("s6", 4) < 1e-4);
    assert_int_equal(run(CLASSES "--run cycle --schedule one_cycle --epochs 4")->code, 0);
    assert_true(lr_after("cycle", 2) > lr_after("cycle", 4));
}

/* Each changes the parameters, and the same twice gives the same bytes. */
static void optimizers_are_set(void **state)
{
    (void)state;
    need("jansson");
    static const char *const options[] = { "",
                                           "--weight-decay 0.5",
                                           "--clip-norm 0.01 --optimizer sgd",
                                           "--optimizer sgd",
                                           "--clip-value 0.001 --optimizer sgd",
                                           "--ema 0.5",
                                           "--accumulate 2",
                                           "--state-dtype bf16",
                                           "--state-dtype bf16 --state-rounding nearest",
                                           "--precision f16",
                                           "--precision f16 --loss-scale 1" };
    enum { COUNT = sizeof options / sizeof *options };
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(run(CLASSES "--epochs 3 --run o%d %s", i, options[i])->code, 0);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++) {
            char a[64], b[64];
            snprintf(a, sizeof a, "o%d/model.safetensors", i);
            snprintf(b, sizeof b, "o%d/model.safetensors", k);
            assert_other_file(a, b);
        }
    assert_int_equal(run(CLASSES "--epochs 3 --run f32 --state-dtype f32")->code, 0);
    assert_same_file("o0/model.safetensors", "f32/model.safetensors");
    assert_fails(run(CLASSES "--state-dtype bf1"), 2,
                 "--state-dtype is f32 or bf16, not 'bf1'; did you mean 'bf16'?");
    assert_fails(run(CLASSES "--state-rounding nearest"), 2,
                 "--state-rounding is for --state-dtype bf16, which is not given");
    assert_fails(run(CLASSES "--loss-scale 8"), 2,
                 "--loss-scale is for --precision f16, which is not given");
    /* Two batches to a step are one of twice the size, but for the last bits of the sums. */
    assert_int_equal(run(CLASSES "--epochs 3 --run twice --batch 64")->code, 0);
    gd_history *a = history_of("o6"), *b = history_of("twice");
    assert_int_equal(gd_history_last_step(a), gd_history_last_step(b));
    gd_history_release(a);
    gd_history_release(b);
}

/* Averages are what is validated and saved: eval finds what the best epoch had. */
static void averages_are_saved(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(run(CLASSES "--epochs 6 --run mean --ema 0.8")->code, 0);
    gd_history *h = history_of("mean");
    int64_t loss = gd_history_metric_find(h, "validation/loss");
    int64_t accuracy = gd_history_metric_find(h, "validation/accuracy");
    int64_t best = 0;
    for (int64_t i = 1; i < 6; i++)
        if (gd_history_metric_values(h, loss)[i] < gd_history_metric_values(h, loss)[best])
            best = i;
    double percent = 100.0 * gd_history_metric_values(h, accuracy)[best];
    gd_history_release(h);
    assert_true(fabs(number_after(run("eval mean")->out, "accuracy ") - percent) < 0.006);
    /* Gone on with, where nothing is left to do, it writes the same file. */
    assert_int_equal(
        run("train " IRIS " --target species --quiet --epochs 6 --run mean2 --ema 0.8 ")->code, 0);
    assert_int_equal(run("train --resume mean2 --quiet")->code, 0);
    assert_same_file("mean/model.safetensors", "mean2/model.safetensors");
}

static void patience_ends_a_training(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("train " IRIS " --target species --epochs 300 --run early --patience 3 "
                          "--min-improvement 0.01");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "no better validation loss in 3.");
    double epochs = number_after(r->out, "Ended after epoch ");
    assert_true(epochs >= 4 && epochs < 300);
    gd_history *h = history_of("early");
    int64_t loss = gd_history_metric_find(h, "validation/loss");
    assert_true((double)gd_history_metric_points(h, loss) == epochs);
    gd_history_release(h);
    assert_fails(run(CLASSES "--run wrong --monitor acuracy --epochs 2"), 1,
                 "--monitor: the validation has no metric \"acuracy\"; it has loss, accuracy; did "
                 "you mean 'accuracy'?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_options_win),
        cmocka_unit_test(mistakes_name_key_value_and_remedy),
        cmocka_unit_test(schedules_count_in_epochs),
        cmocka_unit_test(optimizers_are_set),
        cmocka_unit_test(averages_are_saved),
        cmocka_unit_test(patience_ends_a_training),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
