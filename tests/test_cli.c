/* tests/test_cli.c: the gradus tool as a person runs it: what it prints, where, and its exit code.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GD_TOOL

#define MNIST "--data " GD_SOURCE_DIR "/data/mnist"

/* Output and errors of a command, and its exit code. */
typedef struct result {
    char out[65536], err[8192];
    int code;
} result;

static char folder[256]; /* of this run: weights, errors */

static void read_stream(FILE *from, char *text, size_t size)
{
    size_t length = fread(text, 1, size - 1, from);
    text[length] = '\0';
}

/* Run `gradus ARGUMENTS` from the test's folder, with output to a pipe. */
static const result *run(const char *format, ...)
{
    static result r;
    char arguments[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>errors", folder, GD_TOOL, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    read_stream(pipe, r.out, sizeof r.out);
    int status = pclose(pipe);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    char path[512];
    snprintf(path, sizeof path, "%s/errors", folder);
    FILE *errors = fopen(path, "r");
    assert_non_null(errors);
    read_stream(errors, r.err, sizeof r.err);
    fclose(errors);
    return &r;
}

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        print_error("expected \"%s\" in:\n%s\n", words, text);
    assert_non_null(strstr(text, words));
}

/* A usage error or a failure: the words on standard error, nothing on standard output. */
static void assert_fails(const result *r, int code, const char *words)
{
    assert_has(r->err, words);
    assert_string_equal(r->out, "");
    assert_int_equal(r->code, code);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/test_cli_XXXXXX", GD_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

/* A build without zlib cannot read the data, one without jansson cannot save. */
static void need(const char *library)
{
#ifndef GD_HAVE_ZLIB
    if (strcmp(library, "zlib") == 0)
        skip();
#endif
#ifndef GD_HAVE_JANSSON
    if (strcmp(library, "jansson") == 0)
        skip();
#endif
    (void)library;
}

static void write_text(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void assert_holds(const char *name, const char *words)
{
    char path[512], text[4096] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    read_stream(file, text, sizeof text);
    fclose(file);
    assert_has(text, words);
}

/* Nothing is left in the test's folder whose name has these words. */
static bool is_there(const char *pattern)
{
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && ls | grep -q -- '%s'", folder, pattern);
    return system(command) == 0;
}

/* ---- help and mistakes ---- */

static void help_is_given(void **state)
{
    (void)state;
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
    r = run("train --help");
    static const char *const options[] = { "--model FILE",  "--data FOLDER", "--epochs N",
                                           "--batch N",     "--lr X",        "--optimizer",
                                           "--seed N",      "--faithful",    "--eager",
                                           "--per-example", "--threads N",   "--quiet",
                                           "--output FILE", "--schedule",    "--workers" };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        assert_has(r->out, options[i]);
    assert_has(run("--version")->out, "gradus 0.1.0\n");
    assert_fails(run(""), 2, "Usage: gradus COMMAND");
}

static void usage_errors_say_what_is_allowed(void **state)
{
    (void)state;
    assert_fails(run("trian"), 2, "there is no command 'trian'. Did you mean 'train'?");
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
    assert_fails(run("train --schedule linear"), 2,
                 "--schedule is cosine or constant, not 'linear'");
    assert_fails(run("train now"), 2, "'now' is not an option");
    assert_fails(run("predict --index -4"), 2, "--index takes a whole number from 0 to 9999");
    assert_fails(run("info --verbose"), 2, "no option '--verbose'");
}

static void failures_say_what_is_missing(void **state)
{
    (void)state;
    assert_fails(run("eval --weights nothing.safetensors"), 1, "nothing.safetensors");
    assert_fails(run("predict --weights nothing.safetensors"), 1, "nothing.safetensors");
    need("jansson"); /* without it train says first that it could not save */
    assert_fails(run("train --optimizer newton"), 1, "there are sgd, rmsprop, adam, adamw");
    assert_fails(run("train --data nowhere"), 1, "nowhere: train-images-idx3-ubyte is not there");
    assert_fails(run("train --model none.json"), 1, "none.json");
}

static void info_tells_of_the_machine(void **state)
{
    (void)state;
    const result *r = run("info");
    assert_int_equal(r->code, 0);
    static const char *const lines[] = { "gradus           0.1.0", "instruction set", "threads",
                                         "devices          cpu" };
    for (int i = 0; i < 4; i++)
        assert_has(r->out, lines[i]);
}

/* ---- the main job, shortly ---- */

/* The number after `words` in text. */
static double number_after(const char *text, const char *words)
{
    assert_has(text, words);
    return strtod(strstr(text, words) + strlen(words), NULL);
}

static void a_network_is_trained_used_and_measured(void **state)
{
    (void)state;
    need("zlib");
    need("jansson");
    const result *r = run("train %s --epochs 1 --output a.safetensors --threads 1", MNIST);
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "fc1    linear + relu  [batch, 16]       12,560");
    assert_has(r->out, "60,000 training digits, 10,000 test digits; adam");
    assert_has(r->out, "epoch  1/1  loss ");
    assert_has(r->out, "Saved to a.safetensors");
    assert_null(strchr(r->out, '\033')); /* a pipe gets no colours, no cursor movements */
    assert_null(strchr(r->out, '\r'));
    double accuracy = number_after(r->out, "test accuracy ");
    assert_true(accuracy > 85.0 && accuracy <= 100.0);

    r = run("eval %s --model a.safetensors", MNIST);
    assert_int_equal(r->code, 0);
    assert_true(fabs(number_after(r->out, "10,000 test digits: accuracy ") - accuracy) < 0.006);
    assert_has(r->out, "truth ");
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

    r = run("predict %s --model a.safetensors --index 0 --count 2", MNIST);
    assert_int_equal(r->code, 0);
    assert_has(r->out, "test digit 0: predicted 7 with ");
    assert_has(r->out, ", truth 7\n");
    assert_has(r->out, "test digit 1: ");
    assert_null(strstr(r->out, "test digit 2: "));
    assert_has(r->out, "@");
    assert_null(strchr(r->out, '\033'));
    assert_has(run("predict %s --model a.safetensors --index 9999 --count 5", MNIST)->out,
               "test digit 9999");
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
                                        "--eager", "--workers 2" };
    for (int i = 0; i < 4; i++) {
        const result *r =
            run("train %s --epochs 1 --quiet --seed 7 --faithful --output way%d.safetensors %s",
                MNIST, i, ways[i]);
        assert_int_equal(r->code, 0);
        assert_string_equal(r->out, "");
        assert_string_equal(r->err, "");
        char command[1024];
        snprintf(command, sizeof command, "cmp '%s/way0.safetensors' '%s/way%d.safetensors'",
                 folder, folder, i);
        assert_int_equal(system(command), 0);
    }
}

static void other_models_are_rejected(void **state)
{
    (void)state;
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
    const result *r =
        run("train %s --model small.json --epochs 1 --output small.safetensors", MNIST);
    assert_int_equal(r->code, 0);
    assert_has(r->out, "flat   flatten  [batch, 784]");
    assert_has(run("eval %s --model small.json --weights small.safetensors", MNIST)->out,
               "accuracy ");
    /* A softmax at the end is not applied again: the same weights give the same loss. */
    char loss[64];
    const char *at = strstr(
        run("eval %s --model small.json --weights small.safetensors", MNIST)->out, ", loss ");
    assert_non_null(at);
    snprintf(loss, sizeof loss, "%.13s", at);
    write_text(
        "soft.json",
        "{\"input\": [28, 28], \"layers\": [{\"name\": \"flat\", \"type\": \"flatten\"},"
        "{\"name\": \"fc\", \"type\": \"linear\", \"units\": 10, \"activation\": \"softmax\"}]}");
    assert_has(run("eval %s --model soft.json --weights small.safetensors", MNIST)->out, loss);
    /* What was trained is one file, which every command takes. */
    assert_has(run("eval %s --model small.safetensors", MNIST)->out, loss);
    assert_has(run("predict %s --model small.safetensors --count 1", MNIST)->out, "test digit 0");
    assert_has(run("plan small.safetensors --batch 2")->out, "fc.weight");
    assert_has(run("export small.safetensors --name small")->out, "Start at small() at the end");
    assert_fails(run("eval %s --weights small.safetensors", MNIST), 1,
                 "of another model: it has no \"fc1.weight\"");
    assert_fails(run("train %s --output no/such/folder/a --quiet --epochs 1", MNIST), 1,
                 "no/such/folder");
}

static void models_of_several_inputs_are_planned_and_exported(void **state)
{
    (void)state;
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
    assert_has(run("plan --dot")->out, "digraph plan {");
    assert_has(run("plan --memory-limit 1000000")->out, "limit 1000000 B: ");
    assert_fails(run("plan --train --memory-limit 1000"), 1, ".memory_limit = 1000 B");
    assert_fails(run("plan a b"), 2, "'b' is not an option");
    assert_fails(run("plan --batch 0"), 2, "--batch takes a whole number");
    assert_fails(run("plan --length 8"), 2, "--length is for language models");
    need("jansson");
    assert_fails(run("plan no_such.json"), 1, "no_such.json");
}

static void networks_are_exported(void **state)
{
    (void)state;
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
    assert_has(run("export >/dev/full")->err, "standard output cannot be written");
    assert_false(is_there("tmp"));
}

/* A folder that is not there is told before the data are looked for. */
static void training_finds_out_first_that_it_cannot_save(void **state)
{
    (void)state;
    assert_fails(run("train --data nowhere --output no/such/folder/a"), 1, "no/such/folder/a");
    assert_fails(run("train --data nowhere --output ."), 1, "is a directory");
#ifndef GD_HAVE_JANSSON
    assert_fails(run("train --data nowhere"), 1, "built without jansson");
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
             "--output stopped.safetensors >stopped.out 2>stopped.err",
             folder, GD_TOOL);
    pid_t tool = fork();
    if (tool == 0) {
        (void)signal(SIGINT, SIG_DFL); /* ignored where the tests run in a script's background */
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    snprintf(command, sizeof command,
             "cd '%s' && until grep -q '^epoch  1/' stopped.out 2>&1; do sleep 0.05; done", folder);
    assert_int_equal(system(command), 0);
    int status;
    assert_int_equal(kill(tool, SIGINT), 0);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    assert_holds("stopped.err", "interrupted; what was learned so far is saved to stopped.safe");
    assert_has(run("eval %s --weights stopped.safetensors", MNIST)->out, "test digits: accuracy ");
}

/* The reader of its output has gone: training is finished and saved, and the loss is told. */
static void a_closed_pipe_does_not_stop_training(void **state)
{
    (void)state;
    need("zlib");
    need("jansson");
    char command[4096], text[8192];
    snprintf(command, sizeof command,
             "cd '%s' && { '%s' train " MNIST " --epochs 1 --threads 1 --output piped.safetensors "
             "2>piped.err; echo \"exit $?\" >piped.code; } | true; cat piped.code",
             folder, GD_TOOL);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    read_stream(pipe, text, sizeof text);
    assert_int_equal(pclose(pipe), 0);
    assert_has(text, "exit 1\n");
    assert_holds("piped.err", "standard output cannot be written");
    assert_int_equal(run("eval %s --weights piped.safetensors", MNIST)->code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_is_given),
        cmocka_unit_test(usage_errors_say_what_is_allowed),
        cmocka_unit_test(failures_say_what_is_missing),
        cmocka_unit_test(info_tells_of_the_machine),
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
