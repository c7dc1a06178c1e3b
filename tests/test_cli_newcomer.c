/* tests/test_cli_newcomer.c: what a newcomer does wrong with the tool, and what it says of it: odd files, models that
 * are damaged, not trained yet, or of another kind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>

#include <gradus/gradus.h>

#ifdef GD_TOOL

#include "support/cli.h"

#define TABLES GD_SOURCE_DIR "/tests/data/"

static void in_shell(const char *words)
{
    char command[2048];
    snprintf(command, sizeof command, "cd '%s' && %s", folder, words);
    assert_int_equal(system(command), 0);
}

static void tables_without_rows_are_told(void **state)
{
    (void)state;
    need("jansson");
    write_text("empty.csv", "");
    assert_fails(run("train empty.csv"), 1, "empty.csv: there are no rows");
    write_text("names.csv", "a,b\n");
    assert_fails(run("train names.csv"), 1, "the table has names of columns and no rows");
    assert_fails(run("train " TABLES "iris.csv --target species --ignore species"), 1,
                 "column \"species\" is to be predicted, and to be ignored");
    assert_fails(run("train " TABLES "iris.csv --target Species"), 1, "did you mean \"species\"?");
    assert_null(strstr(run("train " TABLES "iris.csv --target Species")->err, "gd_"));
    write_text("empty.txt", "");
    assert_fails(run("train empty.txt"), 1, "empty.txt: there is no text in it");
    assert_false(is_there("^runs$"));
}

/* A word that names a model is one, also where it is damaged: another is not asked instead. */
static void damaged_models_are_no_data(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(
        run("train " TABLES "iris.csv --target species --epochs 2 --quiet --run runs/flower")->code,
        0);
    in_shell("head -c 300 runs/flower/model.safetensors > cut.safetensors");
    in_shell("head -n 4 " TABLES "iris.csv > rows.csv");
    assert_fails(run("predict cut.safetensors rows.csv"), 1,
                 "cut.safetensors: ends within its header");
    assert_fails(run("eval cut.safetensors"), 1, "cut.safetensors: ends within its header");
    write_text("none.safetensors", "");
    const result *r = run("eval none.safetensors");
    assert_has(r->err, "none.safetensors: ");
    assert_null(strstr(r->err, "the newest run"));
    in_shell("cp -r runs/flower cut && truncate -s 300 cut/model.safetensors");
    assert_fails(run("predict cut rows.csv"), 1, "cut/model.safetensors: ends within its header");
    assert_has(run("predict rows.csv")->err, "with runs/flower, the newest run");
}

static void models_that_are_not_trained_yet_are_told(void **state)
{
    (void)state;
    need("jansson");
    in_shell("cp -r runs/flower early && rm early/model.safetensors");
    static const char *const commands[] = {
        "predict early rows.csv", "eval early",     "plan early",
        "export early",           "generate early", "quantize early q.gguf"
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_fails(run("%s", commands[i]), 1,
                     "early has no model.safetensors yet: its training has not ended. If it does "
                     "not run any more, gradus train --resume early goes on with it");
    assert_fails(run("generate runs/flower --prompt x"), 1,
                 "runs/flower is no model of text: gradus predict says what it makes of new data");
    assert_fails(run("quantize runs/flower q.gguf"), 1,
                 "runs/flower is no model of text: gradus predict says what it makes of new data");
    write_text("iris-y.csv", "sepal length (cm)\n1\n2\n");
    assert_fails(run("eval runs/flower iris-y.csv"), 1, "the table has no column \"species\"");
}

/* model.json is the user's to look at, and to spoil. */
static void a_spoilt_model_is_named_when_resumed(void **state)
{
    (void)state;
    need("jansson");
    in_shell("cp -r runs/flower spoilt");
    write_text("spoilt/model.json", "{}");
    assert_fails(run("train --resume spoilt --epochs 99"), 1,
                 "gradus: spoilt/model.json: the model has no \"layers\"");
    write_text("spoilt/model.json", "{\"input\": [4], \"layers\": [{\"type\": \"rela\"}]}");
    assert_fails(run("train --resume spoilt --epochs 99"), 1, "gradus: spoilt/model.json: ");
    write_text("spoilt/model.json", "");
    assert_fails(run("train --resume spoilt --epochs 99"), 1,
                 "gradus: spoilt/model.json: not JSON: line 1");
}

/* The last checkpoint is damaged: the one before it is taken, which is told. */
static void what_is_passed_over_is_told(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(
        run("train " TABLES "iris.csv --target species --epochs 4 --quiet --run hurt")->code, 0);
    assert_int_equal(run("train --resume hurt --epochs 6 --quiet")->code, 0);
    in_shell("truncate -s 2000 hurt/checkpoints/last.safetensors");
    const result *r = run("train --resume hurt");
    assert_int_equal(r->code, 0);
    assert_has(r->err, "gradus: warning: ");
    assert_has(r->err, "hurt/checkpoints/last.safetensors: ");
    assert_has(r->err, "; the checkpoint before it is taken");
    in_shell("truncate -s 2000 hurt/checkpoints/*.safetensors");
    r = run("train --resume hurt");
    assert_int_equal(r->code, 1);
    assert_has(r->err, "hurt/checkpoints/");
}

/* One row in twenty is of the rare class, and a little greater. Balanced, more of it is found; eval tells of each
 * class what accuracy hides. */
static void rare_classes_are_balanced(void **state)
{
    (void)state;
    need("jansson");
    char path[512];
    snprintf(path, sizeof path, "%s/rare.csv", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("a,b,y\n", file);
    for (int i = 0; i < 400; i++)
        fprintf(file, "%d,%d,%s\n", i * 37 % 100 + (i % 20 ? 0 : 50), i * 7 % 13,
                i % 20 ? "common" : "rare");
    assert_int_equal(fclose(file), 0);
    double found[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run("train rare.csv --target y --epochs 20 --quiet --run rare%d %s", i,
                             i ? "--balance" : "")
                             ->code,
                         0);
        const result *r = run("eval rare%d rare.csv", i);
        assert_narrow(r->out);
        const char *scores = strstr(r->out, "precision    recall        F1  samples\n");
        assert_non_null(scores);
        double precision, recall, f1;
        assert_int_equal(sscanf(strstr(scores, " rare "), " rare %lf %% %lf %% %lf %%", &precision,
                                &recall, &f1),
                         3);
        assert_has(scores, "20\n");
        if (precision + recall > 0)
            assert_true(f1 - 2 * precision * recall / (precision + recall) < 0.1);
        char right[32]; /* the confusion matrix says the same */
        snprintf(right, sizeof right, "%5.1f %%\n", recall);
        assert_has(strstr(r->out, "  rare "), right);
        found[i] = recall;
    }
    assert_true(found[1] > found[0] + 30.0);
    assert_holds("rare1/config.json", "\"balance\": true");
    assert_fails(run("train " TABLES "diabetes.csv --target target --balance --run numbers"), 1,
                 "--balance is for classes, and there are none here");
    assert_false(is_there("^numbers$"));
}

static void empty_logs_and_folders_are_told(void **state)
{
    (void)state;
    need("jansson");
    in_shell("mkdir begun && echo '{}' > begun/config.json && : > begun/metrics.jsonl");
    assert_has(run("compare begun")->out, " none\n");
    assert_fails(run("train " TABLES "iris.csv --target species --config begun"), 1,
                 "begun: cannot be read: Is a directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_logs_and_folders_are_told),
        cmocka_unit_test(rare_classes_are_balanced),
        cmocka_unit_test(tables_without_rows_are_told),
        cmocka_unit_test(damaged_models_are_no_data),
        cmocka_unit_test(models_that_are_not_trained_yet_are_told),
        cmocka_unit_test(a_spoilt_model_is_named_when_resumed),
        cmocka_unit_test(what_is_passed_over_is_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
