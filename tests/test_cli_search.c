/* tests/test_cli_search.c: gradus search: what is drawn, rounds of successive halving, trials that fail, and
 * searches that are killed and resumed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <math.h>
#include <signal.h>

#ifdef GD_TOOL

#include "support/cli.h"
#include "support/effort.h"

#define IRIS    GD_SOURCE_DIR "/tests/data/iris.csv"
#define CLASSES "search " IRIS " --target species "
#define RATES   "--try 'optimizer.lr=log(1e-4,1)' "

static void shell(const char *format, ...)
{
    char words[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd '%s' && { %s ; } 2>shell-errors", folder, words);
    int status = system(command);
    if (status != 0)
        print_error("failed: %s\n", words);
    assert_int_equal(status, 0);
}

static int lines_of(const char *text, const char *words)
{
    int count = 0;
    while ((text = strstr(text, words))) {
        count++;
        text += strlen(words);
    }
    return count;
}

static void the_best_of_random_trials_is_named(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run(CLASSES RATES "--try batch=8,16 --try 'ema=uniform(0.1,0.5)' --trials 5 "
                                        "--epochs 4 --run r");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_int_equal(lines_of(r->out, "/5  optimizer.lr="), 5);
    int best = (int)number_after(r->out, "The best is trial ");
    assert_in_range(best, 1, 5);
    double loss = number_after(r->out, "with a validation loss of ");
    char name[512];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "%s/r/trials/%03d", folder, i);
        gd_history *h = gd_history_load(name);
        assert_non_null(h);
        double least = INFINITY;
        int64_t metric = gd_history_metric_find(h, "validation/loss");
        assert_int_equal(gd_history_metric_points(h, metric), 4);
        for (int64_t k = 0; k < 4; k++)
            least = fmin(least, gd_history_metric_values(h, metric)[k]);
        assert_true(i == best ? fabs(least - loss) < 1e-3 * loss : least > loss - 1e-3 * loss);
        double lr = strtod(gd_history_option(h, "optimizer.lr"), NULL);
        double batch = strtod(gd_history_option(h, "batch"), NULL);
        double ema = strtod(gd_history_option(h, "ema"), NULL);
        assert_true(lr >= 1e-4 && lr <= 1 && (batch == 8 || batch == 16));
        assert_true(ema >= 0.1 && ema <= 0.5);
        gd_history_release(h);
    }
    shell("ls r/pictures/curves.svg r/pictures/optimizer.lr.svg r/pictures/batch.svg >list");
    /* The config of a trial is one of gradus train: the same bytes. */
    assert_int_equal(run("train r/trials/002/config.json --run two --quiet")->code, 0);
    shell("cmp two/model.safetensors r/trials/002/model.safetensors");
    /* The draws are those of the seed and the trial: not of how many there are, nor of other options. */
    assert_int_equal(run(CLASSES RATES "--trials 2 --epochs 1 --run few --quiet")->code, 0);
    shell("grep lr few/trials/002/config.json >a; grep '\"lr\"' r/trials/002/config.json >b; "
          "cmp a b");
    r = run("search --resume few --trials 3");
    assert_int_equal(lines_of(r->out, "trial   3/3 "), 1);
    assert_int_equal(lines_of(r->out, "trial   2/3 "), 0);
    shell("grep lr few/trials/003/config.json >a; grep '\"lr\"' r/trials/003/config.json >b; "
          "cmp a b");
    assert_int_equal(run(CLASSES RATES "--trials 2 --epochs 1 --run other --quiet --seed 2")->code,
                     0);
    shell("grep lr few/trials/001/config.json >a; grep lr other/trials/001/config.json >b; "
          "! cmp -s a b");
}

static void a_grid_has_every_combination_once(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run(CLASSES "--try 'optimizer.lr=log(1e-3,1e-1,3)' --try eager=true,false "
                                  "--method grid --epochs 1 --run g");
    assert_int_equal(r->code, 0);
    static const char *const lines[] = { "1/6  optimizer.lr=0.001 eager=true ",
                                         "4/6  optimizer.lr=0.01 eager=false ",
                                         "5/6  optimizer.lr=0.1 eager=true ",
                                         "6/6  optimizer.lr=0.1 eager=false " };
    for (int i = 0; i < 4; i++)
        assert_has(r->out, lines[i]);
    /* So do as many random trials as there are combinations. */
    r = run(CLASSES "--try batch=4,8,16 --try epochs=1,2 --trials 50 --run all");
    assert_int_equal(r->code, 0);
    for (int batch = 4; batch <= 16; batch *= 2)
        for (int epochs = 1; epochs <= 2; epochs++) {
            char words[64];
            snprintf(words, sizeof words, "/6  batch=%d epochs=%d ", batch, epochs);
            assert_int_equal(lines_of(r->out, words), 1);
        }
    /* Whole numbers, both ends among them. */
    r = run(CLASSES "--try 'batch=log(8,128,5)' --method grid --epochs 1 --run whole");
    assert_has(r->out, "1/5  batch=8 ");
    assert_has(r->out, "3/5  batch=32 ");
    assert_has(r->out, "5/5  batch=128 ");
    r = run(CLASSES "--try 'batch=log(8,9,5)' --method grid --epochs 1 --run near");
    assert_has(r->out, "1/2  batch=8 ");
    assert_has(r->out, "2/2  batch=9 ");
}

/* Who comes through has trained each epoch once, to the same bytes as in one go. */
static void halving_goes_on_from_checkpoints(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run(CLASSES RATES "--method halving --trials 9 --epochs 9 --run h");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "round 1/3: 9 trials up to epoch 1\n");
    assert_has(r->out, "round 2/3: 3 trials up to epoch 3\n");
    assert_has(r->out, "round 3/3: 1 trial up to epoch 9\n");
    int best = (int)number_after(r->out, "The best is trial ");
    shell("[ $(cat h/trials/*/metrics.jsonl | wc -l) -eq %d ]", 9 * 1 + 3 * 2 + 1 * 6);
    shell("[ $(wc -l <h/trials/%03d/metrics.jsonl) -eq 9 ]", best);
    r = run("train --config h/trials/%03d/config.json --run alone --quiet", best);
    assert_string_equal(r->err, "");
    shell("cmp alone/model.safetensors h/trials/%03d/model.safetensors", best);
    /* Done once, it trains nothing when it is resumed. */
    shell("cp h/search.json before");
    r = run("search --resume h");
    assert_int_equal(r->code, 0);
    assert_int_equal((int)number_after(r->out, "The best is trial "), best);
    assert_int_equal(lines_of(r->out, "/9  "), 0);
    shell("cmp h/search.json before && [ $(cat h/trials/*/metrics.jsonl | wc -l) -eq 21 ]");
    /* Killed between the end of a trial's training and the note of its result, it trains no further. */
    shell("sed -i ':a;N;$!ba;s/\"results\": \\[\\n *[-0-9.e]*\\n *\\]/\"results\": []/g' "
          "h/search.json && ! cmp -s h/search.json before");
    assert_int_equal(run("search --resume h --quiet")->code, 0);
    shell("cmp h/search.json before && [ $(cat h/trials/*/metrics.jsonl | wc -l) -eq 21 ]");
}

static void failures_do_not_end_a_search(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("search " GD_SOURCE_DIR "/tests/data/diabetes.csv --target target "
                          "--optimizer sgd --try optimizer.lr=0.01,1e5,0.02 --method grid "
                          "--epochs 2 --run f");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "trial   2/3  optimizer.lr=1e5\n    failed: ");
    assert_has(r->out, "trial   3/3  optimizer.lr=0.02  loss ");
    assert_has(r->out, "  failed\n");
    assert_int_not_equal((int)number_after(r->out, "The best is trial "), 2);
    r = run("search " GD_SOURCE_DIR "/tests/data/diabetes.csv --target target --optimizer sgd "
            "--try optimizer.lr=1e5,2e5 --method grid --epochs 2 --run none");
    assert_int_equal(r->code, 1);
    assert_has(r->err, "no trial came to an end; the first: ");
}

/* A file in the way of a trial's folder, as a full disk might be; without it --resume makes up for the
 * trial. */
static void failed_trials_are_tried_again_when_resumed(void **state)
{
    (void)state;
    need("jansson");
    static const char arguments[] = CLASSES "--try batch=8,16 --method grid --epochs 2";
    assert_int_equal(run("%s --run good --quiet", arguments)->code, 0);
    shell("mkdir -p again/trials && touch again/trials/002");
    const result *r = run("%s --run again", arguments);
    assert_int_equal(r->code, 0);
    assert_has(r->out, "trial   2/2  batch=16\n    failed: ");
    shell("rm again/trials/002");
    r = run("search --resume again");
    assert_string_equal(r->err, "");
    assert_has(r->out, "trial   2/2  batch=16  loss ");
    assert_int_equal(lines_of(r->out, "trial   1/2 "), 0);
    shell("cmp good/search.json again/search.json && "
          "cmp good/trials/002/model.safetensors again/trials/002/model.safetensors");
}

/* Named as seen from where the search began, and found from elsewhere. */
static void files_are_tried(void **state)
{
    (void)state;
    need("jansson");
    shell("cp " IRIS " a.csv; head -n 120 a.csv >b.csv; mkdir -p elsewhere");
    write_text("small.json", "{\"input\": [4], \"layers\": [{\"name\": \"fc\", \"type\": "
                             "\"linear\", \"units\": 3}]}");
    write_text("wrong.json", "{\"input\": [7], \"layers\": [{\"name\": \"fc\", \"type\": "
                             "\"linear\", \"units\": 3}]}");
    const result *r = run("search --target species --try data=a.csv,b.csv --try model=small.json "
                          "--epochs 1 --method grid --run files");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    shell("grep -q \"\\\"data\\\": \\\"$(pwd -P)/b.csv\\\"\" files/trials/002/config.json && "
          "rm -r files/trials/002 && sed -i ':a;N;$!ba;s/\\(.*\\)\"results\": \\[[^]]*/"
          "\\1\"results\": [/' files/search.json && cd elsewhere && '%s' search --resume ../files "
          "--quiet && ls ../files/trials/002/model.safetensors >list",
          GD_TOOL);
    assert_fails(run("search --target species --try data=a.csv,c.csv --run no"), 2,
                 "--try data: c.csv is not there");
    assert_fails(run("search a.csv --target species --try model=small.json,wrong.json --run no"), 1,
                 "wrong.json: the model takes 7 numbers, a row has 4");
    assert_false(is_there("^no$"));
}

static void a_trial_without_patience_is_shown_with_its_epochs(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run(CLASSES "--try optimizer.lr=0.01,1 --method grid --epochs 200 "
                                  "--patience 2 --run p");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "trial    lr  epochs        loss");
    for (int i = 1; i <= 2; i++) {
        char name[512], row[32];
        snprintf(name, sizeof name, "%s/p/trials/%03d", folder, i);
        gd_history *h = gd_history_load(name);
        int64_t epochs = gd_history_metric_points(h, gd_history_metric_find(h, "validation/loss"));
        gd_history_release(h);
        assert_in_range(epochs, 3, 199);
        snprintf(row, sizeof row, "    %d  %s  %6d  ", i, i == 1 ? "0.01" : "   1", (int)epochs);
        assert_has(r->out, row);
    }
}

static void mistakes_are_told_before_the_first_trial(void **state)
{
    (void)state;
    need("jansson");
    static const char *const rows[][2] = {
        { "", "what is to be tried?" },
        { "--try lr=1,2", "there is no key \"lr\"; did you mean 'optimizer.lr'?" },
        { "--try batch=8,many",
          "--try batch: many is none of its values; it takes a whole number" },
        { "--try 'optimizer.lr=log(0,1)'", "it takes values, as 16,32,64, or a range" },
        { "--try 'optimizer.lr=log(1,0.1)'", "it takes values" },
        { "--try 'optimizer.lr=log(0.1,1,2.5)'", "it takes values" },
        { "--try schedule.name=cosine,linaer", "not 'linaer'; did you mean 'linear'?" },
        { "--try min_improvement=0.1,0.2", "--min-improvement is for --patience" },
        { "--try 'optimizer.name=log(1,2)'", "it takes values" },
        { "--try 'optimizer.lr=uniform(0.1,1e9)'", "1000000000 is none of its values" },
        { "--try batch=8 --try batch=16", "--try batch: it is there already" },
        { "--try batch=8,16,8", "--try batch: 8 is there twice" },
        { "--try optimizer.lr=0.01,1e-2", "--try optimizer.lr: 1e-2 is there twice" },
        { "--try 'batch=uniform(8.2,8.4)'",
          "--try batch: uniform(8.2,8.4): it takes whole numbers, and so do its ends" },
        { "--try threads=1,2", "it does not change what is learnt" },
        { "--try batch=8,16 --method gridd", "not 'gridd'; did you mean 'grid'?" },
        { "--method grid " RATES, "a grid needs values, not ranges" },
        { "--method grid --try batch=8,16 --trials 5",
          "as many trials as there are combinations, 2" },
        { "--method halving --try epochs=1,2", "halving shares out the epochs" },
        { "--try batch", "--try takes KEY=VALUES" },
        { "--try batch=8,16 --find-lr", "--find-lr is for gradus train" },
        { "--try batch=8,16 --epochs 0", "--epochs takes a whole number" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_fails(run(CLASSES "--run m %s", rows[i][0]), 2, rows[i][1]);
    assert_fails(run("search " IRIS " --target specis --run m --try batch=8,16"), 1,
                 "did you mean \"species\"?");
    assert_fails(run(CLASSES "--run m --try optimizer.name=adam,newton"), 1,
                 "gradus search: optimizer.name=newton: ");
    assert_fails(run(CLASSES "--run m --epochs 4 --try schedule.warmup=0,5"), 1,
                 "the warm-up takes 5 epochs, and there are 4 in all");
    assert_fails(run(CLASSES "--run m --try batch=8,16 --metric acuracy"), 1,
                 "--metric: the validation has no metric \"acuracy\"; it has loss, accuracy; did "
                 "you mean 'accuracy'?");
    assert_fails(run("search --resume nowhere"), 1, "nowhere: there is no search to go on with");
    assert_false(is_there("^m$"));
    assert_int_equal(run(CLASSES "--try batch=8,16 --epochs 1 --run s --quiet")->code, 0);
    assert_fails(run(CLASSES "--try batch=8,16 --run s"), 1,
                 "s has a search in it: --resume s goes on with it");
    assert_fails(run("train " IRIS " --target species --run s"), 1, "s has a search in it");
    assert_fails(run("search --resume s --epochs 2"), 2, "--epochs cannot be changed by --resume");
    assert_fails(run("search --resume s --try batch=1,2"), 2, "cannot be changed by --resume");
    assert_fails(run(CLASSES "--try batch=8,16 --run s/trials/001"), 1,
                 "s/trials/001 is the run of a training: give another --run");
    write_text("s/search.json", "{\"method\": \"random\"}");
    assert_fails(run("search --resume s"), 1, "is not what gradus search writes");
}

/* Ended by a signal when so many trials are done, in the middle of the next, and resumed: the same
 * trials, results and parameters. */
static void end_and_resume(const char *arguments, const char *name, const char *signal, int done)
{
    shell("rm -rf %s; '%s' %s --run %s >out & P=$!; until [ -f %s/search.json ] && "
          "[ $(grep -c 'e-\\|0\\.[0-9]*$' %s/search.json) -ge %d ]; do kill -0 $P || break; done; "
          "kill -%s $P; wait $P; [ $? -ne 0 ]",
          name, GD_TOOL, arguments, name, name, name, done, signal);
    const result *r = run("search --resume %s --quiet", name);
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    shell(
        "cmp whole/search.json %s/search.json && cd whole/trials && for t in *; do "
        "cmp $t/model.safetensors ../../%s/trials/$t/model.safetensors || exit 1; "
        "[ $(wc -l <$t/metrics.jsonl) -eq $(wc -l <../../%s/trials/$t/metrics.jsonl) ] || exit 1; "
        "done",
        name, name, name);
}

static void a_killed_search_is_resumed_to_the_same_result(void **state)
{
    (void)state;
    need("jansson");
    static const char arguments[] = CLASSES RATES "--try batch=4,8 --method halving --reduction 2 "
                                                  "--trials 6 --epochs 24";
    shell("rm -rf whole");
    assert_int_equal(run("%s --run whole", arguments)->code, 0);
    end_and_resume(arguments, "k2", "KILL", 4);
    if (TEST_UNDER_TSAN)
        return;
    end_and_resume(arguments, "k0", "KILL", 0);
    end_and_resume(arguments, "k3", "KILL", 7);
    end_and_resume(arguments, "t1", "TERM", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_random_trials_is_named),
        cmocka_unit_test(a_grid_has_every_combination_once),
        cmocka_unit_test(halving_goes_on_from_checkpoints),
        cmocka_unit_test(failures_do_not_end_a_search),
        cmocka_unit_test(failed_trials_are_tried_again_when_resumed),
        cmocka_unit_test(files_are_tried),
        cmocka_unit_test(a_trial_without_patience_is_shown_with_its_epochs),
        cmocka_unit_test(mistakes_are_told_before_the_first_trial),
        cmocka_unit_test(a_killed_search_is_resumed_to_the_same_result),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
