/* tests/test_cli_train.c: gradus train, predict and eval on tables and photographs, and runs that are killed and
 * resumed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/stat.h>

#include <gradus/gradus.h>

#ifdef GD_TOOL

#include "support/cli.h"
#include "support/effort.h"

#define TABLES GD_SOURCE_DIR "/tests/data/"

/* One command, no other option: the task is found out, a model proposed, and the run folder has it all. */
/* "row 71 is versicolor, predicted virginica with 63.3 %": so it stands in the table. */
static void assert_mistake_is_in_table(const char *out)
{
    int row;
    char truth[32], predicted[32], line[256] = "";
    assert_has(out, "\nThe surest mistakes:\n  row ");
    assert_int_equal(sscanf(strstr(out, "  row "), "  row %d is %31[a-z], predicted %31[a-z] with",
                            &row, truth, predicted),
                     3);
    assert_string_not_equal(truth, predicted);
    FILE *file = fopen(TABLES "iris.csv", "r");
    assert_non_null(file);
    for (int i = 0; i <= row; i++) /* a line of names before them */
        assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_has(line, truth);
}

static void a_table_of_classes_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("train " TABLES "iris.csv --target species");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_narrow(r->out);
    assert_has(r->out, "5 columns, 4 features; species: 3 classes (setosa, versicolor, virginica)");
    assert_has(r->out, "128 rows for training, 22 for validation");
    assert_has(r->out, "           training          validation\n"
                       "  epoch      loss  accuracy      loss  accuracy  samples/s   seconds\n"
                       "  1/100    ");
    assert_has(r->out, "\n100/100    ");
    for (const char *line = strstr(r->out, "  epoch "), *end; line[0] != '\n'; line = end + 1) {
        end = strchr(line, '\n');
        assert_in_range(end - line, 60, 80);
    }
    assert_has(r->out, "Saved to runs/iris/model.safetensors, as of epoch ");
    assert_null(strchr(r->out, '\033'));
    assert_holds("runs/iris/config.json", "\"target\": \"species\"");
    assert_holds("runs/iris/metrics.jsonl", "\"validation/accuracy\":");
    assert_holds("runs/iris/model.json", "\"units\": 64");

    assert_holds("runs/iris/pictures/curves.svg", ">validation/loss<");
    assert_holds("runs/iris/metrics.jsonl", "\"time/forward\":");
    assert_holds("runs/iris/metrics.jsonl", "\"memory\":");
    assert_has(r->out, "rest "); /* of the times; a line may end before it */
    assert_has(r->out, " MB in tensors.");

    /* What was kept for validation is found out from config.json. */
    r = run("eval runs/iris");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "22 rows kept for validation: accuracy ");
    assert_has(r->out,
               "Pictures: runs/iris/pictures (confusion, roc, precision-recall, calibration)");
    assert_holds("runs/iris/pictures/confusion.svg", ">versicolor<");
    assert_holds("runs/iris/pictures/roc.svg", ">setosa: 1.0000<");
    assert_holds("runs/iris/pictures/precision-recall.svg", ">virginica: 0.");
    assert_holds("runs/iris/pictures/calibration.svg", ">mean score<");
    r = run("eval " TABLES "iris.csv runs/iris"); /* the model may stand last */
    assert_has(r->out, "150 rows: accuracy ");
    r = run("eval runs/iris " TABLES "iris.csv");
    assert_int_equal(r->code, 0);
    assert_true(number_after(r->out, "150 rows: accuracy ") > 94.0);
    assert_has(r->out, "versicolor ");
    assert_mistake_is_in_table(r->out);
    r = run("eval " TABLES "iris.csv");
    assert_has(r->out, "150 rows: accuracy ");
    assert_string_equal(r->err, "gradus: with runs/iris, the newest run\n");

    write_text("new.csv", "petal width (cm),petal length (cm),sepal width (cm),sepal length (cm)\n"
                          "0.2,1.4,3.5,5.1\n2.3,6.1,3.0,7.7\n");
    r = run("predict runs/iris new.csv");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "species,probability\nsetosa,0.9");
    assert_has(r->out, "\nvirginica,0.9");
    write_text("less.csv", "petal width (cm),petal length (cm)\n0.2,1.4\n1,2\n");
    assert_fails(run("predict runs/iris less.csv"), 1, "there is no column \"sepal length (cm)\"");
    assert_fails(run("eval runs/iris new.csv"), 1,
                 "the table has no column \"species\", which was to be predicted");
    assert_fails(run("eval runs/iris --quantized"), 2, "--quantized is of language models");
    assert_fails(run("predict runs/iris"), 1, "DATA is needed");
    assert_fails(run("predict runs/iris new.csv less.csv"), 2, "'less.csv' is one word too many");
    write_text("names.csv", "sepal length (cm),species\n");
    assert_fails(run("predict runs/iris names.csv"), 1, "it has names of columns, and no rows");
    /* Another run of the same data has a folder of its own. */
    assert_has(run("train " TABLES "iris.csv --target species --epochs 1")->out,
               "runs/iris-2/model.safetensors");
}

static void a_table_of_numbers_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("train " TABLES "diabetes.csv --target target --run d --seed 3");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_narrow(r->out);
    assert_has(r->out, "target: a number");
    assert_has(r->out, "target is learnt standardised: an mae of 1 is ");
    assert_has(r->out, "      loss       mae        r2      loss       mae        r2   seconds\n");
    r = run("eval d");
    assert_narrow(r->out);
    assert_has(r->out, "66 rows kept for validation: target is off by ");
    assert_holds("d/pictures/errors.svg", "Errors of target: predicted less true<");
    assert_holds("d/pictures/predictions.svg", "target: predicted against true<");
    assert_has(run("eval d")->out, "\nFarthest off:\n  row ");
    r = run_on_terminal("eval d");
    assert_has(r->out, "Errors of target: predicted less true");
    assert_has(r->out, "\xe2\xa3\xbf"); /* bars, of dots */
    r = run("eval d " TABLES "diabetes.csv");
    assert_int_equal(r->code, 0);
    assert_true(number_after(r->out, "root mean square ") < 60.0); /* the deviation is 77 */
    assert_true(number_after(r->out, "R2 ") > 0.4);
    r = run("predict d " TABLES "diabetes.csv");
    double first = number_after(r->out, "target\n");
    assert_true(first > 25.0 && first < 346.0); /* in the target's unit */
}

/* What is logged for TensorBoard changes nothing of what is learnt. */
static void a_run_is_logged_for_tensorboard(void **state)
{
    (void)state;
    need("jansson");
    static const char train[] =
        "train " TABLES "iris.csv --target species --epochs 3 --quiet --run";
    char command[512];
    snprintf(command, sizeof command, "%s plain", train);
    assert_int_equal(run(command)->code, 0);
    snprintf(command, sizeof command, "%s logged --tensorboard", train);
    const result *r = run(command);
    if (r->code != 0 && strstr(r->err, "protobuf-c"))
        skip();
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_same_file("plain/model.safetensors", "logged/model.safetensors");
    assert_holds("logged/events.jsonl", "\"weights/");
    assert_holds("logged/events.jsonl", "\"gradients/");
    assert_holds("logged/config.json", "\"tensorboard\": true");
    snprintf(command, sizeof command, "test $(ls '%s/logged' | grep -c tfevents) = 1", folder);
    assert_int_equal(system(command), 0);
}

static void a_run_is_logged_for_others(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(run("train " TABLES "iris.csv --target species --epochs 2 --quiet --csv "
                         "--prometheus iris.prom --run others")
                         ->code,
                     0);
    assert_holds("others/metrics.csv", "step,epoch,time,");
    assert_holds("iris.prom", "gradus_run_epoch{run=\"others\"} 2\n");
    assert_holds("others/config.json", "\"prometheus\": \"iris.prom\"");
    assert_holds("iris.prom", "name=\"validation/accuracy\"} ");
}

/* A rate is found, drawn, and nothing else is left: the folder can be trained in. */
static void a_learning_rate_is_found(void **state)
{
    (void)state;
    need("jansson");
    const result *r =
        run("train " TABLES "iris.csv --target species --quiet --find-lr --run rates");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    double lr = number_after(r->out, "train with --lr ");
    assert_true(lr > 0.003 && lr < 0.3);
    assert_holds("rates/pictures/lr-range.svg", "Learning-rate range test<");
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && [ \"$(ls rates)\" = pictures ]", folder);
    assert_int_equal(system(command), 0);
    r = run("train " TABLES "iris.csv --target species --quiet --epochs 1 --run rates");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
}

/* Categories, dates, missing cells and texts need no option either; columns can be left out. */
static void a_mixed_table_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    const result *r = run("train " TABLES "mixed.csv --target income --ignore id --run mixed");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "7 columns, 15 features (left out: id, remark); income: a number");
    r = run("eval mixed " TABLES "mixed.csv");
    assert_true(number_after(r->out, "R2 ") > 0.5);
}

/* 12,5 is a number where cells are separated by semicolons; also to gradus predict and eval. */
static void decimal_commas_are_found_out(void **state)
{
    (void)state;
    need("jansson");
    char table[2048] = "weight;price\n";
    for (int i = 0; i < 60; i++)
        snprintf(table + strlen(table), sizeof table - strlen(table), "%d,%d;%d,25\n", i, i % 10,
                 2 * i);
    write_text("commas.csv", table);
    const result *r = run("train commas.csv --target price --epochs 40 --run commas");
    assert_string_equal(r->err, "");
    assert_has(r->out, "2 columns, 1 feature; price: a number");
    write_text("one.csv", "weight;price\n30,125;60\n");
    double price = number_after(run("predict commas one.csv")->out, "price\n");
    assert_true(price > 40.0 && price < 80.0);
    assert_has(run("eval commas")->out, "9 rows kept for validation: price is off by ");
    /* Thousands stay what they are. */
    snprintf(table, sizeof table, "city,people\n");
    for (int i = 1; i <= 60; i++)
        snprintf(table + strlen(table), sizeof table - strlen(table), "c%d,\"%d,250\"\n", i, i);
    write_text("thousands.csv", table);
    assert_fails(run("train thousands.csv --target people"), 1, "cannot be the target");
}

static void mistakes_about_tables_are_told(void **state)
{
    (void)state;
    need("jansson");
    assert_fails(run("train " TABLES "iris.csv"), 1,
                 "which column is to be predicted? --target NAME. There are: sepal length (cm), ");
    assert_fails(run("train " TABLES "iris.csv --target specis"), 1, "did you mean \"species\"?");
    assert_fails(run("train " TABLES "iris.csv --target species --task regression"), 1,
                 "\"setosa\" is not a number");
    assert_fails(run("train " TABLES "iris.csv --target species --task clustering"), 1,
                 "--task is classification or regression");
    assert_fails(run("train " TABLES "iris.csv --target species --ignore petal"), 1,
                 "has no column \"petal\" to ignore");
    write_text("broken.csv", "a,b\n1,2\n3\n");
    assert_fails(run("train broken.csv --target a"), 1, "line 3: 1 cells, where line 1 has 2");
    assert_fails(run("train " TABLES), 1, "is a folder without MNIST's files");
    static const char wild[] = "train " TABLES "diabetes.csv --target target --optimizer sgd "
                               "--lr 1000 --epochs 2 --quiet --run";
    assert_fails(run("%s wild", wild), 1, "with --blame the op");
    assert_fails(run("%s wild2 --blame", wild), 1, "] makes ");
    char table[256] = "x,y\n"; /* numbers without end are told in short */
    for (int i = 0; i < 20; i++)
        snprintf(table + strlen(table), sizeof table - strlen(table), "%d,%d\n", i, i % 2);
    write_text("far.csv", table);
    assert_has(run("train far.csv --target y --optimizer sgd --lr 1000 --epochs 3")->out, "e+");
    assert_fails(run("train file.xyz"), 1, "file.xyz is not there");
    assert_fails(run("train " TABLES "iris.csv --target species --size 32"), 1,
                 "--size is for photographs");
    write_text("three.csv", "a,b\n1,x\n2,y\n3,x\n");
    assert_fails(run("train three.csv --target b"), 1, "one part would have none");
    assert_fails(run("train"), 2, "DATA is needed: a table");
    write_text("LOUD.CSV", "a,b\n1,2\n");
    assert_fails(run("train LOUD.CSV"), 1, "There are: a, b");
}

/* ---- going on ---- */

/* Killed after so many epochs, and some more, and resumed: the same bytes as without. After none: as soon
 * as the run folder has options, when the data have not been read. */
static void kill_and_resume(const char *arguments, int epochs, int kill_at, const char *name)
{
    char command[4096], file[64];
    snprintf(command, sizeof command,
             "cd '%s' && { '%s' %s --run %s & P=$!; until [ -f %s/config.json ] && "
             "[ $(wc -l <%s/metrics.jsonl) -ge %d ]; do kill -0 $P 2>errors || break; done; "
             "kill -9 $P 2>errors; wait $P; [ -f %s/config.json ]; } 2>errors",
             folder, GD_TOOL, arguments, name, name, name, kill_at, name);
    assert_int_equal(system(command), 0);
    const result *r = run("train --resume %s --quiet", name);
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    assert_same_file("whole/model.safetensors", file);
    /* Each epoch stands once in the log. */
    snprintf(command, sizeof command,
             "cd '%s' && [ $(grep -c time/epoch %s/metrics.jsonl) -eq %d ]", folder, name, epochs);
    assert_int_equal(system(command), 0);
}

static void a_killed_run_is_resumed_to_the_same_bytes(void **state)
{
    (void)state;
    need("jansson");
    static const char arguments[] =
        "train " TABLES "diabetes.csv --target target --epochs 60 --quiet";
    assert_int_equal(run("%s --run whole", arguments)->code, 0);
    kill_and_resume(arguments, 60, 1, "killed1");
    if (!test_is_slow()) {
        kill_and_resume(arguments, 60, 0, "killed0");
        kill_and_resume(arguments, 60, 14, "killed2");
        kill_and_resume(arguments, 60, 50, "killed3");
    }
    assert_fails(run("train --resume none"), 1, "none: there is no run to go on with");
    /* A folder of nothing but what is written before the options. */
    assert_int_equal(run("train " TABLES "iris.csv --target no --run taken")->code, 1);
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && [ ! -e taken ] && mkdir half && >half/metrics.jsonl", folder);
    assert_int_equal(system(command), 0);
    assert_fails(run("train --resume half"), 1,
                 "half has no config.json: its training had not begun");
    /* Once more, where nothing is left to do. */
    assert_int_equal(run("train --resume whole --quiet")->code, 0);
    assert_same_file("whole/model.safetensors", "killed1/model.safetensors");
}

/* In 16 bits it learns as well, with the same bits op by op and after a kill, and other ones than in
 * 32. */
static void precision_is_chosen(void **state)
{
    (void)state;
    need("jansson");
    static const char *const names[] = { "f32", "bf16", "f16" };
    double r2[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run("train " TABLES "diabetes.csv --target target --epochs 60 --quiet "
                             "--precision %s --run %s",
                             names[i], names[i])
                             ->code,
                         0);
        r2[i] = number_after(run("eval %s " TABLES "diabetes.csv", names[i])->out, "R2 ");
        assert_true(r2[i] > 0.4 && fabs(r2[i] - r2[0]) < 0.03);
    }
    char command[1024], arguments[1024], killed[32];
    snprintf(command, sizeof command,
             "cd '%s' && ! cmp -s f32/model.safetensors bf16/model.safetensors && "
             "! cmp -s bf16/model.safetensors f16/model.safetensors",
             folder);
    assert_int_equal(system(command), 0);
    for (int i = 1; i < 3; i++) {
        snprintf(command, sizeof command, "cd '%s' && rm -rf whole eager && mv %s whole", folder,
                 names[i]);
        assert_int_equal(system(command), 0);
        snprintf(arguments, sizeof arguments,
                 "train " TABLES "diabetes.csv --target target --epochs 60 --precision %s --quiet",
                 names[i]);
        assert_int_equal(run("%s --eager --run eager", arguments)->code, 0);
        assert_same_file("whole/model.safetensors", "eager/model.safetensors");
        snprintf(killed, sizeof killed, "killed_%s", names[i]);
        kill_and_resume(arguments, 60, 14, killed);
    }
    const char *exact = "eval whole " TABLES "diabetes.csv";
    r2[0] = number_after(run("%s", exact)->out, "R2 ");
    r2[1] = number_after(run("%s --precision BF16", exact)->out, "R2 ");
    assert_true(fabs(r2[1] - r2[0]) < 0.01);
    char *rows = strdup(run("predict whole " TABLES "diabetes.csv")->out);
    assert_string_not_equal(run("predict whole " TABLES "diabetes.csv --precision f16")->out, rows);
    free(rows);
    assert_has(run("plan whole --precision bf16")->out, "linear             f32[50, ");
    assert_has(run("plan whole --train --precision bf16")->out, "working copies of ");
    assert_fails(run("eval whole --precision f64"), 2,
                 "--precision is f32, bf16 or f16, not 'f64'");
    assert_has(run("train " TABLES "diabetes.csv --target target --epochs 1 --precision bf16")->out,
               ", bf16, ");
    assert_fails(run("train " TABLES "diabetes.csv --target target --precision bf1"), 2,
                 "--precision is f32, bf16 or f16, not 'bf1'; did you mean 'bf16'?");
}

/* ---- text ---- */

static void a_text_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    char text[400] = "";
    while (strlen(text) < 300)
        strcat(text, "the quick brown fox. ");
    write_text("be.txt", text);
    write_text("packed.txt",
               "\x1f\x8b\x08 the beginning of what gzip writes, whatever it is called");
    assert_fails(run("train packed.txt --run packed"), 1, "unpack it first (gunzip)");
    if (test_is_slow() || TEST_UNDER_MEMORY_CHECKS) { /* hundreds of steps of a GPT */
        assert_int_equal(run("train be.txt --epochs 1 --batch 1 --run slow --quiet")->code, 0);
        return;
    }
    static const char arguments[] = "train be.txt --epochs 2 --batch 2 --quiet";
    const result *r = run("train be.txt --epochs 2 --batch 2");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "be.txt: 315 tokens, 17 different ones");
    assert_has(r->out, "epoch      loss  perplexity      loss  perplexity  samples/s   seconds\n");
    double values[4];
    assert_has(r->out, "\n  2/2 ");
    assert_int_equal(sscanf(strstr(r->out, "\n  2/2 ") + 6, "%lf %lf %lf %lf", &values[0],
                            &values[1], &values[2], &values[3]),
                     4);
    assert_true(values[3] > 1.0 && fabs(values[3] - exp(values[2])) < 2e-3);
    assert_has(r->out, "gradus generate runs/be --prompt TEXT");
    assert_holds("runs/be/pictures/attention-4.svg", "Attention 4: queries down");
    /* 100 steps in each of two epochs are enough to know it by heart. */
    assert_has(run("generate runs/be --prompt 'the q' --tokens 30 --temperature 0 --quiet")->out,
               "the quick brown fox. the quick");
    assert_fails(run("predict runs/be be.txt"), 1,
                 "runs/be is a model of text: gradus generate runs/be goes on with one");
    /* What it knows by heart: all of the end of the text, which was kept, and the rest of it. */
    r = run("eval runs/be");
    assert_string_equal(r->err, "");
    assert_has(r->out, "47 characters kept for validation: loss ");
    assert_true(number_after(r->out, "perplexity ") < 2.0);
    r = run("eval runs/be be.txt");
    assert_has(r->out, "314 characters: loss ");
    double loss = number_after(r->out, "loss "), bits = number_after(r->out, "perplexity ");
    assert_true(fabs(log(bits) - loss) < 1e-3);
    assert_has(r->out, " bits a character");
    write_text("other.txt", "THE OTHER LETTERS");
    assert_int_equal(run("eval runs/be other.txt")->code, 1);
    assert_int_equal(run("plan runs/be --batch 1 --length 8")->code, 0);
    /* The model's file alone has all that is needed, also of a text that is no UTF-8. */
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && cp runs/be/model.safetensors alone.safetensors",
             folder);
    assert_int_equal(system(command), 0);
    assert_has(run("generate alone.safetensors --prompt 'the quick' --tokens 4 --quiet")->out,
               "the quick");
    assert_int_equal(run("generate alone.safetensors --prompt XYZ --tokens 4")->code, 1);
    snprintf(text + 20, sizeof text - 20, "\xff");
    while (strlen(text) < 300)
        strcat(text, "the quick brown fox. ");
    write_text("odd.txt", text);
    assert_int_equal(run("train odd.txt --epochs 1 --batch 1 --run odd --quiet")->code, 0);
    assert_int_equal(run("generate odd/model.safetensors --prompt XYZ --tokens 4 --quiet")->code,
                     0);
    assert_fails(run("train be.txt --target word"), 1, "be.txt is no table, which --target");
    assert_fails(run("train be.txt --model own.json --run m"), 1, "a text is learnt by a GPT");
    write_text("short.txt", "to be");
    assert_fails(run("train short.txt --run m"), 1,
                 "short.txt: 5 tokens are too few to learn from and to validate with");
    snprintf(command, sizeof command, "cd '%s' && rm -rf whole && mv runs/be whole", folder);
    assert_int_equal(system(command), 0);
    kill_and_resume(arguments, 2, 1, "killed_text");
}

static void resuming_takes_the_options_of_the_run(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(
        run("train " TABLES "iris.csv --target species --epochs 2 --run r --quiet")->code, 0);
    assert_fails(run("train --resume r --batch 5"), 2, "--batch cannot be changed by --resume");
    assert_fails(run("train --resume r --batc 5"), 2, "--batch cannot be changed by --resume");
    assert_has(run("train --resume r")->out, "nothing left to do: its 2 epochs were done before");
    /* A command that is suggested can be copied. */
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && cp -r r \"it's mine\"", folder);
    assert_int_equal(system(command), 0);
    assert_has(run("train --resume \"it's mine\"")->out, "gradus eval 'it'\\''s mine' ");
    assert_fails(run("train --resume r " TABLES "iris.csv"), 2,
                 "--resume takes model and data of the run");
    assert_fails(run("train " TABLES "iris.csv --target species --run r"), 1,
                 "r has a training in it: --resume r goes on with it");
    assert_fails(run("train --resume nowhere"), 1, "nowhere");
    write_text("r/config.json", "{\"epocs\": 3}");
    assert_fails(run("train --resume r"), 1, "there is no key \"epocs\"; did you mean 'epochs'?");
}

/* One number of the table is another: what the features mean has changed with it. */
static void changed_data_is_not_gone_on_with(void **state)
{
    (void)state;
    need("jansson");
    char table[800] = "a,b\n";
    for (int i = 0; i < 60; i++)
        snprintf(table + strlen(table), sizeof table - strlen(table), "%d.5,%d.25\n", i, 100 - i);
    write_text("grows.csv", table);
    assert_int_equal(run("train grows.csv --target b --epochs 2 --run grows --quiet")->code, 0);
    assert_int_equal(run("train --resume grows --quiet")->code, 0);
    for (char *at = table; (at = strstr(at, ".5,"));)
        at[1] = '7';
    write_text("grows.csv", table);
    assert_fails(run("train --resume grows --quiet"), 1,
                 "the data has changed since the run began");
    assert_fails(run("eval grows"), 1, "the data has changed since the run began");
}

/* ---- a model of one's own ---- */

static void a_model_can_be_given(void **state)
{
    (void)state;
    need("jansson");
    write_text(
        "own.json",
        "{\"input\": [4], \"layers\": [{\"name\": \"fc\", \"type\": \"linear\", \"units\": 3}]}");
    const result *r = run("train --model own.json --data " TABLES
                          "iris.csv --target species --seed 1 --epochs 2 --run own");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "fc     linear  [batch, 3]");
    assert_fails(run("train " TABLES "wine.csv --target target --model own.json --run o"), 1,
                 "the model takes 4 numbers, a row has 13");
    write_text(
        "one.json",
        "{\"input\": [10], \"layers\": [{\"name\": \"fc\", \"type\": \"linear\", \"units\": 1}]}");
    assert_fails(run("train " TABLES "diabetes.csv --target target --model one.json --run o"), 1,
                 "add \"loss\": \"mse\" to it");
}

/* ---- CIFAR-10 ---- */

/* Records of the binary version: the red, green and blue planes of a class have means of its own. */
static void write_cifar(const char *name, int count)
{
    static unsigned char pixels[3][32 * 32];
    char path[512];
    snprintf(path, sizeof path, "%s/cifar", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/cifar/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        int class = i % 10;
        const int mean[3] = { 40 + 40 * (class % 3), 40 + 40 * (class / 3), 40 + 80 * (class % 2) };
        for (int plane = 0; plane < 3; plane++)
            for (int p = 0; p < 32 * 32; p++)
                pixels[plane][p] = (unsigned char)(mean[plane] + (p * 7 + i * 13) % 32);
        fputc(class, f);
        fwrite(pixels, 1, sizeof pixels, f);
    }
    assert_int_equal(fclose(f), 0);
}

/* A part of the training files is for validation; the test file is left for gradus eval. */
static void cifar_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    write_cifar("data_batch_1.bin", 200);
    assert_fails(run("train cifar --size 64"), 1, "CIFAR-10's photographs have 32 x 32 pixels");
    const result *r = run("train cifar --epochs 6 --batch 16");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "cifar: 32 x 32 pixels; 10 classes (airplane, automobile, bird, cat, ");
    assert_has(r->out, "170 photographs for training, 30 for validation");
    assert_has(run("eval runs/cifar")->out, "30 photographs kept for validation: accuracy ");
    assert_fails(run("eval runs/cifar cifar"), 1, "no test_batch.bin is there");
    write_cifar("test_batch.bin", 50);
    r = run("eval runs/cifar cifar");
    assert_int_equal(r->code, 0);
    assert_true(number_after(r->out, "50 photographs: accuracy ") > 70.0); /* of 10 classes */
    assert_has(r->out, " automobile ");
}

/* ---- photographs ---- */

#ifdef GD_HAVE_PNG

/* Pictures that are mainly red or mainly blue, in a folder each. */
static void write_photographs(int count)
{
    static unsigned char pixels[20 * 24 * 3];
    char path[512];
    snprintf(path, sizeof path, "%s/photos", folder);
    mkdir(path, 0777);
    for (int i = 0; i < 2 * count; i++) {
        const char *class = i % 2 ? "red" : "blue";
        snprintf(path, sizeof path, "%s/photos/%s", folder, class);
        mkdir(path, 0777);
        for (size_t p = 0; p < sizeof pixels; p++)
            pixels[p] = (unsigned char)((p % 3 == (i % 2 ? 0u : 2u) ? 150 : 20) +
                                        (p * 7 + (size_t)i * 13) % 90);
        snprintf(path, sizeof path, "%s/photos/%s/%03d.png", folder, class, i);
        gd_image image = { .height = 20, .width = 24, .channels = 3, .pixels = pixels };
        assert_int_equal(gd_image_write(path, &image), GD_OK);
    }
}

static void a_folder_of_photographs_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    write_photographs(20);
    const result *r = run("train photos --size 16 --epochs 3 --batch 8");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_narrow(r->out);
    assert_has(r->out, "photos: 16 x 16 pixels; 2 classes (blue, red)");
    assert_has(r->out, "34 photographs for training, 6 for validation");
    assert_holds("runs/photos/pictures/filters.svg", "conv1.weight");
    assert_holds("runs/photos/pictures/predictions.svg", "Predictions: the surest mistakes first");
    assert_has(run("eval runs/photos")->out, "6 photographs kept for validation: accuracy ");
    assert_holds("runs/photos/pictures/confusion.svg", ">blue<");
    r = run("eval runs/photos photos");
    assert_int_equal(r->code, 0);
    assert_true(number_after(r->out, "40 photographs: accuracy ") > 95.0);
    r = run("predict runs/photos photos/red");
    assert_has(r->out, "file,class,probability\nphotos/red/001.png,red,");
    r = run("predict runs/photos photos/blue/000.png");
    assert_has(r->out, "photos/blue/000.png,blue,");
    /* Several, and folders; what is no photograph is told, and the others are answered. */
    write_text("no.png", "no photograph");
    r = run("predict runs/photos photos/red/001.png no.png photos/blue");
    assert_int_equal(r->code, 1);
    assert_string_equal(r->err, "gradus: no.png: neither a JPEG nor a PNG image\n");
    assert_has(r->out, "file,class,probability\nphotos/red/001.png,red,");
    assert_has(r->out, "\nphotos/blue/038.png,blue,");
    assert_fails(run("predict runs/photos no.png"), 1, "neither a JPEG nor a PNG");
    r = run("predict photos/red/001.png photos/red/003.png runs/photos");
    assert_has(r->out, "\nphotos/red/003.png,red,");
    assert_fails(run("predict runs/photos photos"), 1, "photos: there are no photographs");
    assert_fails(run("train photos/red"), 1, "each of which would be a class");
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && mkdir -p one photos/none && cp -r photos/red one",
             folder);
    assert_int_equal(system(command), 0);
    assert_fails(run("train one"), 1, "all photographs are in the folder \"red\"");
    assert_fails(run("train photos"), 1, "the folder \"none\" has no photographs");
    snprintf(command, sizeof command, "rmdir '%s/photos/none'", folder);
    assert_int_equal(system(command), 0);
    /* Any number of workers gives the same file. */
    assert_int_equal(
        run("train photos --size 16 --epochs 3 --batch 8 --workers 0 --run none --quiet")->code, 0);
    assert_same_file("none/model.safetensors", "runs/photos/model.safetensors");
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_of_classes_is_trained_on),
        cmocka_unit_test(a_table_of_numbers_is_trained_on),
        cmocka_unit_test(a_run_is_logged_for_tensorboard),
        cmocka_unit_test(a_run_is_logged_for_others),
        cmocka_unit_test(a_learning_rate_is_found),
        cmocka_unit_test(a_mixed_table_is_trained_on),
        cmocka_unit_test(decimal_commas_are_found_out),
        cmocka_unit_test(mistakes_about_tables_are_told),
        cmocka_unit_test(a_killed_run_is_resumed_to_the_same_bytes),
        cmocka_unit_test(precision_is_chosen),
        cmocka_unit_test(changed_data_is_not_gone_on_with),
        cmocka_unit_test(a_text_is_trained_on),
        cmocka_unit_test(resuming_takes_the_options_of_the_run),
        cmocka_unit_test(a_model_can_be_given),
        cmocka_unit_test(cifar_is_trained_on),
#ifdef GD_HAVE_PNG
        cmocka_unit_test(a_folder_of_photographs_is_trained_on),
#endif
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
