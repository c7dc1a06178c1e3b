/* tests/test_cli.c: the gradus tool as a person runs it: what it prints, where, and its exit code. Under
 * ThreadSanitizer it trains, is interrupted, and evaluates; the rest are processes of one thread.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GD_TOOL

#define MNIST GD_SOURCE_DIR "/data/mnist"

#include "support/cli.h"
#include "support/effort.h"
#include "support/shared_data.h"

/* ---- help and mistakes ---- */

static void help_is_given(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    const result *r = run("--help");
    assert_int_equal(r->code, 0);
    static const char *const commands[] = { "train", "predict", "eval", "info" };
    for (int i = 0; i < 4; i++)
        assert_has(r->out, commands[i]);
    for (int i = 0; i < 4; i++) {
        r = run("%s --help", commands[i]);
        assert_int_equal(r->code, 0);
        assert_has(r->out, "Usage: gradus ");
        assert_has(r->out, "--help");
        assert_string_equal(r->err, "");
    }
    assert_has(run("help plan")->out, "Usage: gradus plan");
    assert_fails(run("help xyzzy"), 2, "there is no command 'xyzzy'");
    r = run("train --help");
    for (const char *line = r->out, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_in_range(end - line, 0, 80);
    static const char *const options[] = { "--model FILE",  "--data DATA",  "--epochs N",
                                           "--batch N",     "--lr X",       "--optimizer",
                                           "--seed N",      "--faithful",   "--eager",
                                           "--per-example", "--threads N",  "--quiet",
                                           "--device NAME", "--run FOLDER", "--resume",
                                           "--target",      "--schedule",   "--workers" };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        assert_has(r->out, options[i]);
    assert_has(run("--version")->out, "gradus 0.1.0\n");
    assert_fails(run(""), 2, "Usage: gradus COMMAND");
}

static void usage_errors_say_what_is_allowed(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    assert_fails(run("trian"), 2, "there is no command 'trian'; did you mean 'train'?");
    assert_fails(run("xyzzy"), 2, "'gradus --help' lists them");
    assert_fails(run("train --epoch-count 3"), 2,
                 "there is no option '--epoch-count'; 'gradus train --help'");
    assert_fails(run("train --epochs"), 2, "--epochs needs an argument");
    assert_fails(run("train --epochs three"), 2, "--epochs takes a whole number from 1 to");
    assert_fails(run("train --epochs 0"), 2,
                 "--epochs takes a whole number from 1 to 1000000, not '0'");
    assert_fails(run("train --seed -1"), 2, "from 0 to 9000000000000000, not '-1'");
    assert_fails(run("train --batch 1.5"), 2, "--batch takes a whole number");
    assert_fails(run("train --lr nan"), 2, "--lr takes a number");
    assert_fails(run("train --schedule linea"), 2,
                 "one_cycle or plateau, not 'linea'; did you mean 'linear'?");
    assert_fails(run("train --epocks 3"), 2, "no option '--epocks'; did you mean '--epochs'?");
    assert_fails(run("train now later"), 2, "'later' is one word too many");
    assert_fails(run("predict --index -4"), 2, "--index takes a whole number from 0 to 9999");
    assert_fails(run("info --verbose"), 2, "no option '--verbose'");
}

static void failures_say_what_is_missing(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    assert_fails(run("predict"), 1, "no trained model is given, and there is none in runs/");
    need("jansson"); /* without it train says first that it could not save */
    assert_fails(run("eval nothing.safetensors " MNIST), 1, "nothing.safetensors");
    assert_fails(run("predict nothing.safetensors " MNIST), 1, "nothing.safetensors");
    assert_fails(run("train %s --optimizer newton --run newton", MNIST), 1,
                 "there are sgd, rmsprop, adam, adamw");
    assert_fails(run("train --data nowhere"), 1, "nowhere is not there");
    assert_fails(run("train %s --model none.json", MNIST), 1, "none.json");
}

/* As Python saves what a class of one's own has learnt. */
static void parameters_without_a_network_are_told(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("jansson");
    char path[512];
    gd_context *gd = gd_open("cpu");
    const gd_named_tensor tensor = { "a.weight", gd_ones(gd, GD_SHAPE(4, 3), GD_F32) };
    snprintf(path, sizeof path, "%s/class", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/class/model.safetensors", folder);
    assert_int_equal(gd_tensors_save(path, 1, &tensor, 0, NULL), GD_OK);
    gd_close(gd);
    static const char *const commands[] = {
        "predict class x.csv", "predict class/model.safetensors",
        "eval class x.csv",    "eval class",
        "plan class",          "export class",
        "generate class",      "quantize class q.gguf"
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_fails(run("%s", commands[i]), 1,
                     "class/model.safetensors has parameters, and does not say of which network: "
                     "Python saves so");
    write_text("x.csv", "a,b\n1,2\n");
    assert_fails(
        run("train x.csv --model class"), 1,
        "class is a folder; --model takes a network as JSON, as the model.json of a run is");
    assert_fails(run("train x.csv --model class/model.safetensors"), 1,
                 "--model takes a network as JSON, as the model.json of a run is");
}

static void info_tells_of_the_machine(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    const result *r = run("info");
    assert_int_equal(r->code, 0);
    static const char *const lines[] = { "gradus           0.1.0", "instruction set", "threads",
                                         "devices          cpu" };
    for (int i = 0; i < 4; i++)
        assert_has(r->out, lines[i]);
}

/* Of the only epoch: the second percentage of its line. */
static double validation_accuracy(const char *out)
{
    const char *line = strstr(out, "\n  1/1 ");
    assert_non_null(line);
    const char *second = strchr(strchr(line, '%') + 1, '%') - 2;
    while (*second != ' ')
        second--;
    return strtod(second, NULL);
}

static void write_table(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/points.csv", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "x,y,side\n");
    for (int i = 0; i < 60; i++)
        fprintf(file, "%d,%d,%s\n", i * 7 % 31, i * 11 % 23, i * 7 % 31 > 15 ? "right" : "left");
    fclose(file);
}

static void a_device_that_is_not_there_is_told_with_those_that_are(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    assert_fails(run("plan --device opencl:99"), 1, "there are \"cpu\", \"reference\"");
    assert_int_equal(setenv("GRADUS_OPENCL_PATH", "/nowhere", 1), 0);
    assert_fails(run("plan --device opencl"), 1, "gradus: no OpenCL: /nowhere/");
    assert_fails(run("plan --device opencl"), 1, "; there are \"cpu\", \"reference\"\n");
    assert_int_equal(unsetenv("GRADUS_OPENCL_PATH"), 0);
}

static void every_device_trains_to_the_same_bytes(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("jansson");
    write_table();
    assert_fails(run("train points.csv --target side --device abacus"), 1,
                 "no device is called \"abacus\"; there are \"cpu\"");
    if (!strstr(run("info")->out, " opencl:0"))
        skip();
    need("jansson");
    static const char *const devices[] = { "cpu", "opencl", "opencl:0" };
    char command[700];
    for (int i = 0; i < 3; i++) {
        const result *r =
            run("train points.csv --target side --epochs 2 --device %s --run on%d", devices[i], i);
        assert_string_equal(r->err, "");
        assert_int_equal(r->code, 0);
        snprintf(command, sizeof command,
                 "cmp '%s/on0/model.safetensors' '%s/on%d/model.safetensors'", folder, folder, i);
        assert_int_equal(system(command), 0);
    }
    char expected[sizeof((result *)NULL)->out];
    memcpy(expected, run("eval on0")->out, sizeof expected);
    assert_has(expected, "accuracy");
    const result *r = run("eval on0 --device opencl");
    assert_string_equal(r->err, "");
    assert_string_equal(r->out, expected);
}

/* ---- the main job, shortly ---- */

static void a_network_is_trained_used_and_measured(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("zlib");
    need("jansson");
    const result *r = run("train %s --epochs 1 --run a --threads 1", MNIST);
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "fc1    linear + relu  [batch, 16]       12,560");
    assert_has(r->out, "60,000 digits for training, 10,000 for validation");
    assert_has(r->out, "\n  1/1    ");
    assert_has(r->out, "Saved to a/model.safetensors");
    assert_null(strchr(r->out, '\033')); /* a pipe gets no colours, no cursor movements */
    assert_null(strchr(r->out, '\r'));
    double accuracy = validation_accuracy(r->out);
    assert_true(accuracy > 85.0 && accuracy <= 100.0);

    r = run("eval a " MNIST);
    assert_int_equal(r->code, 0);
    assert_true(fabs(number_after(r->out, "10,000 digits: accuracy ") - accuracy) < 0.006);
    assert_has(r->out, "truth ");
    const char *drawn = run_on_terminal("eval a " MNIST)->out;
    assert_has(drawn, "Predictions: the surest mistakes first");
    assert_has(drawn, "\033[31m"); /* what it is, and what it was taken for */
    assert_has(drawn, " %), is ");
    /* The confusion matrix counts every digit once. */
    long sum = 0;
    char *line = strstr(r->out, "right\n") + strlen("right\n");
    for (int truth = 0; truth < 10; truth++, line = strchr(line, '\n') + 1) {
        char *at = line;
        assert_int_equal(strtol(at, &at, 10), truth);
        for (int predicted = 0; predicted < 10; predicted++) {
            at += strspn(at, " ");
            if (*at == '.')
                at++;
            else
                sum += strtol(at, &at, 10);
        }
    }
    assert_int_equal(sum, 10000);

    r = run("predict a " MNIST " --index 0 --count 2");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "test digit 0: predicted 7 with ");
    assert_has(r->out, ", truth 7\n");
    assert_has(r->out, "test digit 1: ");
    assert_null(strstr(r->out, "test digit 2: "));
    assert_has(r->out, "@");
    assert_null(strchr(r->out, '\033'));
    assert_has(run("predict a/model.safetensors " MNIST " --index 9999 --count 5")->out,
               "test digit 9999");
}

/* A file of MNIST with the first 6,000 of its digits, or their labels. */
static void write_first(const char *to, const char *name, size_t head, size_t each)
{
    enum { COUNT = 6000 };
    char path[1024];
    size_t size;
    snprintf(path, sizeof path, "mnist/%s", name);
    char *bytes = shared_text(path, &size);
    assert_true(size > head + COUNT * each);
    memcpy(bytes + 4, (const char[4]){ 0, 0, COUNT >> 8, (char)(COUNT & 255) }, 4);
    snprintf(path, sizeof path, "%s/%s", to, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, head + COUNT * each, file), head + COUNT * each);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

/* MNIST, or where it is slow a tenth of its training digits: for runs whose accuracy does not matter. */
static const char *digits(void)
{
    static char few[300];
    if (!test_is_slow())
        return MNIST;
    if (*few)
        return few;
    char path[1024];
    snprintf(path, sizeof path, "%s/few", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    write_first(path, "train-images-idx3-ubyte", 16, 784);
    write_first(path, "train-labels-idx1-ubyte", 8, 1);
    static const char *const rest[] = { "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/few/%s", folder, rest[i]);
        char from[1024];
        snprintf(from, sizeof from, "%s/%s", MNIST, rest[i]);
        assert_int_equal(symlink(from, path), 0);
    }
    snprintf(few, sizeof few, "%s/few", folder);
    return few;
}

/* The same seed gives the same file, by C and by JSON, compiled and eager, with and without a
 * thread for batches. */
static void runs_can_be_repeated(void **state)
{
    (void)state;
    need("zlib");
    need("jansson");
    static const char *const ways[] = { "",
                                        "--model " GD_SOURCE_DIR
                                        "/examples/models/mnist_mlp.json --threads 2",
                                        "--workers 2", "--eager" };
    for (int i = 0; i < (TEST_UNDER_TSAN ? 3 : 4); i++) {
        const result *r = run("train %s --epochs 1 --quiet --seed 7 --faithful --run way%d %s",
                              digits(), i, ways[i]);
        assert_int_equal(r->code, 0);
        assert_string_equal(r->out, "");
        assert_string_equal(r->err, "");
        char command[1024];
        snprintf(command, sizeof command,
                 "cmp '%s/way0/model.safetensors' '%s/way%d/model.safetensors'", folder, folder, i);
        assert_int_equal(system(command), 0);
    }
}

static void other_models_are_rejected(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("zlib");
    need("jansson");
    char path[512];
    snprintf(path, sizeof path, "%s/small.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"input\": [28, 28], \"layers\": [{\"name\": \"flat\", \"type\": \"flatten\"},"
          "{\"name\": \"fc\", \"type\": \"linear\", \"units\": 10}]}",
          file);
    assert_int_equal(fclose(file), 0);
    const result *r = run("train %s --model small.json --epochs 1 --run small", MNIST);
    assert_int_equal(r->code, 0);
    assert_has(r->out, "flat   flatten  [batch, 784]");
    /* What was trained is one file, which every command takes. */
    assert_has(run("eval small/model.safetensors " MNIST)->out, "accuracy ");
    assert_has(run("predict small " MNIST " --count 1")->out, "test digit 0");
    assert_has(run("plan small --batch 2")->out, "fc.weight");
    assert_has(run("export small/model.safetensors --name small")->out,
               "Start at small() at the end");
    /* A softmax at the end is not applied again. */
    write_text(
        "soft.json",
        "{\"input\": [28, 28], \"layers\": [{\"name\": \"flat\", \"type\": \"flatten\"},"
        "{\"name\": \"fc\", \"type\": \"linear\", \"units\": 10, \"activation\": \"softmax\"}]}");
    r = run("train %s --model soft.json --epochs 1 --run soft", MNIST);
    assert_int_equal(r->code, 0);
    double accuracy = validation_accuracy(r->out);
    assert_true(accuracy > 80.0);
    assert_true(fabs(number_after(run("eval soft " MNIST)->out, "accuracy ") - accuracy) < 0.006);
    write_text("wide.json", "{\"input\": [784], \"layers\": [{\"name\": \"fc\", \"type\": "
                            "\"linear\", \"units\": 11}]}");
    assert_fails(run("train %s --model wide.json --run wide", MNIST), 1,
                 "the model gives 11 numbers, 10 are needed: one for each class");
    write_text("flat.json", "{\"input\": [4], \"layers\": [{\"name\": \"fc\", \"type\": "
                            "\"linear\", \"units\": 10}]}");
    assert_fails(run("train %s --model flat.json --run wide", MNIST), 1,
                 "the model takes 4 numbers, a digit has 784");
}

static void models_of_several_inputs_are_planned_and_exported(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("jansson");
    write_text(
        "two.json",
        "{\"inputs\": [{\"name\": \"x\", \"shape\": [6, 4]}, {\"name\": \"n\", \"shape\": [], "
        "\"dtype\": \"i64\"}], \"layers\": [{\"name\": \"rnn\", \"type\": \"gru\", \"units\": 3, "
        "\"lengths\": \"n\"}, {\"name\": \"end\", \"type\": \"last\", \"lengths\": \"n\"}, "
        "{\"name\": \"class\", \"type\": \"linear\", \"units\": 5}], \"outputs\": [\"class\", "
        "\"rnn\"]}");
    const result *r = run("plan two.json --batch 2");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "recurrent");
    r = run("export two.json --name two");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "float *result1");
}

static void plans_are_shown(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    const result *r = run("plan --batch 7");
    assert_int_equal(r->code, 0);
    assert_has(r->out,
               "linear             f32[7, 16]@0 <- f32[7, 784]@input0 f32[784, 16]@fc1.weight");
    assert_has(r->out, "kernels, ");
    assert_has(r->out, "passes on ");
    assert_null(strstr(r->out, "cross_entropy_grad"));
    r = run("plan mnist_mlp --train --profile --runs 3 --trace trace.json");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "cross_entropy_grad");
    assert_has(r->out, "GFLOP/s");
    char path[512], text[64] = "";
    snprintf(path, sizeof path, "%s/trace.json", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    read_stream(file, text, sizeof text);
    fclose(file);
    assert_has(text, "\"traceEvents\": [");
    assert_null(strstr(run("plan --batch 7")->out, " by blocks of "));
    assert_has(run("plan --batch 7 --explain")->out, "\n    7 x 784 x 16 by blocks of ");
    assert_has(run("plan --batch 7 --explain --frozen")->out, "; B packed once: it is frozen");
    assert_has(run("plan --batch 7 --frozen")->out, " packed once, ");
    assert_fails(run("plan --dot --explain"), 2, "--dot is the graph alone");
    assert_has(run("plan --dot")->out, "digraph plan {");
    assert_int_equal(run("plan --svg bytes.svg")->code, 0);
    assert_holds("bytes.svg", "bytes that a kernel moves");
    assert_int_equal(run("plan --train --svg times.svg --profile --runs 1")->code, 0);
    assert_holds("times.svg", "the shortest time of a kernel");
    assert_holds("times.svg", ">update</text>");
    assert_fails(run("plan --svg nowhere/plan.svg"), 1, "nowhere/plan.svg");
    assert_fails(run("plan --dot --svg plan.svg"), 2, "--dot is the graph alone");
    assert_has(run("plan --memory-limit 1000000")->out, "limit 1000000 B: ");
    assert_fails(run("plan --train --memory-limit 1000"), 1, ".memory_limit = 1000 B");
    assert_fails(run("plan a b"), 2, "'b' is one word too many");
    assert_fails(run("plan --batch 0"), 2, "--batch takes a whole number");
    assert_fails(run("plan --length 8"), 2, "--length is for language models");
    need("jansson");
    assert_fails(run("plan no_such.json"), 1, "no_such.json");
}

static void networks_are_exported(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    const result *r = run("export --batch 2 -o net.c");
    assert_int_equal(r->code, 0);
    assert_string_equal(r->out, "");
    assert_int_equal(run("export mnist_mlp --train --name step -o step.c")->code, 0);
    char path[512], text[64] = "";
    snprintf(path, sizeof path, "%s/step.c", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    read_stream(file, text, sizeof text);
    fclose(file);
    assert_has(text, "/* step: written by gradus");
    assert_fails(run("export --output no/such/folder/net.c"), 1, "no/such/folder/net.c");
    assert_fails(run("export --weights none.safetensors"), 1, "none.safetensors");
}

/* What cannot be written is told before the work, and what stood there stands. */
static void outputs_are_not_lost(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    write_text("kept.c", "mine");
    assert_fails(run("export --name 'bad name' -o kept.c"), 1, "the name is none");
    assert_holds("kept.c", "mine");
    assert_fails(run("export -o /dev/full"), 1, "/dev/full: cannot write: No space left");
    assert_fails(run("export -o ."), 1, "is a directory");
    assert_int_equal(run("export -o kept.c")->code, 0);
    assert_holds("kept.c", "/* infer: written by gradus");

    write_text("kept.json", "mine");
    assert_fails(run("plan --trace no/such/folder/t.json"), 1, "no/such/folder/t.json");
    assert_fails(run("plan --train --memory-limit 1000 --trace kept.json"), 1, ".memory_limit");
    assert_holds("kept.json", "mine");
    assert_int_equal(run("plan --trace kept.json --runs 1")->code, 0);
    assert_holds("kept.json", "traceEvents");

    /* Standard output on a full disk. */
    assert_int_equal(run("info >/dev/full")->code, 1);
    assert_int_equal(run("--help >/dev/full")->code, 1);
    assert_int_equal(run("--version >/dev/full")->code, 1);
    assert_has(run("export >/dev/full")->err, "standard output cannot be written");
    assert_false(is_there("tmp"));
}

/* A folder that is not there is told before the data are looked for. */
static void training_finds_out_first_that_it_cannot_save(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
#ifdef GD_HAVE_JANSSON
    assert_fails(run("train nowhere --run no/such/folder/a"), 1,
                 "no/such/folder/a: cannot be made");
    write_text("file", "");
    assert_fails(run("train nowhere --run file"), 1, "file: not a folder that can be written to");
#else
    assert_fails(run("train nowhere"), 1, "built without jansson");
#endif
}

/* Ctrl-C ends training after the batch; what was learned is saved. */
static void an_interrupt_ends_training_in_order(void **state)
{
    (void)state;
    need("zlib");
    need("jansson");
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && exec '%s' train " MNIST " --epochs 1000000 --threads 1 "
             "--run stopped >stopped.out 2>stopped.err",
             folder, GD_TOOL);
    pid_t tool = fork();
    if (tool == 0) {
        (void)signal(SIGINT, SIG_DFL); /* ignored where the tests run in a script's background */
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    snprintf(command, sizeof command,
             "cd '%s' && until grep -q '^ *1/' stopped.out 2>&1; do sleep 0.05; done", folder);
    assert_int_equal(system(command), 0);
    int status;
    assert_int_equal(kill(tool, SIGINT), 0);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    assert_holds("stopped.err", "interrupted; gradus train --resume stopped goes on");
    assert_has(run("eval stopped " MNIST)->out, "10,000 digits: accuracy ");
    assert_has(run("eval stopped")->out, "10,000 digits: accuracy "); /* of config.json's files */
}

/* The reader of its output has gone: training is finished and saved, and the loss is told. */
static void a_closed_pipe_does_not_stop_training(void **state)
{
    (void)state;
    TEST_OF_ONE_THREAD();
    need("zlib");
    need("jansson");
    char command[4096], text[8192];
    snprintf(command, sizeof command,
             "cd '%s' && { '%s' train %s --epochs 1 --threads 1 --run piped "
             "2>piped.err; echo \"exit $?\" >piped.code; } | true; cat piped.code",
             folder, GD_TOOL, digits());
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    read_stream(pipe, text, sizeof text);
    assert_int_equal(pclose(pipe), 0);
    assert_has(text, "exit 1\n");
    assert_holds("piped.err", "standard output cannot be written");
    assert_int_equal(run("eval piped " MNIST)->code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_given),
        cmocka_unit_test(usage_errors_say_what_is_allowed),
        cmocka_unit_test(failures_say_what_is_missing),
        cmocka_unit_test(parameters_without_a_network_are_told),
        cmocka_unit_test(info_tells_of_the_machine),
        cmocka_unit_test(a_device_that_is_not_there_is_told_with_those_that_are),
        cmocka_unit_test(every_device_trains_to_the_same_bytes),
        cmocka_unit_test(a_network_is_trained_used_and_measured),
        cmocka_unit_test(runs_can_be_repeated),
        cmocka_unit_test(other_models_are_rejected),
        cmocka_unit_test(models_of_several_inputs_are_planned_and_exported),
        cmocka_unit_test(plans_are_shown),
        cmocka_unit_test(networks_are_exported),
        cmocka_unit_test(outputs_are_not_lost),
        cmocka_unit_test(training_finds_out_first_that_it_cannot_save),
        cmocka_unit_test(an_interrupt_ends_training_in_order),
        cmocka_unit_test(a_closed_pipe_does_not_stop_training),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
