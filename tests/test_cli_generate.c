/* tests/test_cli_generate.c: what the tool does with language models: `gradus generate`, a story as
 * it should be, the same quantised, a model we made, and mistakes; `gradus plan` and `gradus export`. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#ifdef GD_TOOL

#include <signal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/shared_data.h"

/* Run `gradus generate ARGUMENTS`: its exit code; what it says on one of the two streams in `text`.
 */
static int run_tool(const char *name, const char *arguments, bool errors, char *text, size_t size)
{
    char command[4096];
    snprintf(command, sizeof command, "'%s' %s %s %s", GD_TOOL, name, arguments,
             errors ? "2>&1 >/dev/null" : "2>/dev/null");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(text, 1, size - 1, pipe);
    text[length] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run(const char *arguments, bool errors, char *text, size_t size)
{
    return run_tool("generate", arguments, errors, text, size);
}

static void assert_tool_fails(const char *name, const char *arguments, int code, const char *words)
{
    char text[4096];
    assert_int_equal(run_tool(name, arguments, true, text, sizeof text), code);
    if (!strstr(text, words))
        print_error("expected \"%s\" in:\n%s\n", words, text);
    assert_non_null(strstr(text, words));
}

static void assert_fails(const char *arguments, int code, const char *words)
{
    assert_tool_fails("generate", arguments, code, words);
}

static void a_story_is_told_word_for_word(void **state)
{
    (void)state;
    size_t size;
    char *expected = shared_text("models/stories260K/expected_t0_n200.txt", &size);
    char model[1024], arguments[3000], text[8192];
    snprintf(model, sizeof model, "%s", shared_data("models/stories260K/stories260K.bin"));
    snprintf(arguments, sizeof arguments, "'%s' --tokenizer '%s' --temperature 0 --tokens 200",
             model, shared_data("models/stories260K/tok512.bin"));
    assert_int_equal(run(arguments, false, text, sizeof text), 0);
    assert_int_equal(strlen(text), size + 1);
    assert_memory_equal(text, expected, size);
    assert_int_equal(text[size], '\n');
    /* With keys and values in f16 it begins so. */
    strcat(arguments, " --cache f16");
    assert_int_equal(run(arguments, false, text, sizeof text), 0);
    assert_memory_equal(text, expected, 40);
    free(expected);
}

/* A checkpoint becomes GGUF, that becomes GGUF of fewer bits, and each is generated from without anything beside it. */
static void a_model_is_quantised(void **state)
{
    (void)state;
    size_t size;
    char *expected = shared_text("models/stories260K/expected_t0_n200.txt", &size);
    char model[1024], out[2][512], arguments[3000], text[8192];
    for (int i = 0; i < 2; i++)
        snprintf(out[i], sizeof out[i], GD_BINARY_DIR "/test_cli_quantize_%d_%d.gguf",
                 (int)getpid(), i);
    snprintf(model, sizeof model, "%s", shared_data("models/stories260K/stories260K.bin"));
    snprintf(arguments, sizeof arguments, "'%s' '%s'", model, out[0]);
    assert_tool_fails("quantize", arguments, 1, "--tokenizer is needed");
    snprintf(arguments, sizeof arguments, "'%s'", model);
    assert_fails(arguments, 2, "--tokenizer is needed");
    snprintf(arguments, sizeof arguments, "'%s' '%s' --type F32 --quiet --tokenizer '%s'", model,
             out[0], shared_data("models/stories260K/tok512.bin"));
    assert_int_equal(run_tool("quantize", arguments, false, text, sizeof text), 0);
    assert_string_equal(text, "");
    snprintf(arguments, sizeof arguments, "'%s' --temperature 0 --tokens 200", out[0]);
    assert_int_equal(run(arguments, false, text, sizeof text), 0);
    assert_memory_equal(text, expected, size);

    snprintf(arguments, sizeof arguments, "'%s' '%s' --type q4_0", out[0], out[1]);
    assert_int_equal(run_tool("quantize", arguments, false, text, sizeof text), 0);
    assert_non_null(
        strstr(text, "tensor                         shape            type         KB    error\n"));
    assert_non_null(strstr(text, "blk.4.ffn_down.weight          64x172           F16 "));
    assert_non_null(
        strstr(text, "output_norm.weight             64               F32         0.3     none\n"));
    assert_non_null(strstr(text, " MB, "));
    snprintf(arguments, sizeof arguments, "'%s' --temperature 0 --tokens 20", out[1]);
    assert_int_equal(run(arguments, false, text, sizeof text), 0);
    assert_memory_equal(text, "Once upon a time", 16);

    /* perplexity: of the checkpoint with its tokeniser and of the file the same, of fewer bits a higher one */
    char from_file[256], of_checkpoint[256];
    snprintf(arguments, sizeof arguments, "'%s' '%s'", out[0],
             shared_data("models/stories260K/expected_t0_n200.txt"));
    assert_int_equal(run_tool("eval", arguments, false, from_file, sizeof from_file), 0);
    snprintf(arguments, sizeof arguments, "'%s' '%s'", model,
             shared_data("models/stories260K/expected_t0_n200.txt"));
    snprintf(arguments + strlen(arguments), sizeof arguments - strlen(arguments),
             " --tokenizer '%s'", shared_data("models/stories260K/tok512.bin"));
    assert_int_equal(run_tool("eval", arguments, false, of_checkpoint, sizeof of_checkpoint), 0);
    assert_string_equal(from_file, of_checkpoint);
    assert_non_null(strstr(from_file, "200 tokens: loss 0."));
    assert_non_null(strstr(from_file, " bits a byte\n"));
    snprintf(arguments, sizeof arguments, "'%s' '%s'", out[1],
             shared_data("models/stories260K/expected_t0_n200.txt"));
    assert_int_equal(run_tool("eval", arguments, false, text, sizeof text), 0);
    const double loss = atof(strstr(text, "loss ") + 5);
    assert_true(loss > atof(strstr(from_file, "loss ") + 5));
    /* Computing with the 4 bits rounds activations, too. */
    strcat(arguments, " --quantized");
    assert_int_equal(run_tool("eval", arguments, false, text, sizeof text), 0);
    const double rounded = atof(strstr(text, "loss ") + 5);
    assert_true(rounded != loss && fabs(rounded - loss) < 0.02 * loss);
    snprintf(arguments, sizeof arguments, "'%s'", out[0]);
    assert_tool_fails("eval", arguments, 1, "a text is needed");

    /* k-quants: rows of 64 are no blocks of 256; calibrated, the report has a column more */
    snprintf(arguments, sizeof arguments, "'%s' '%s' --type Q6_K --calibrate '%s'", out[0], out[1],
             shared_data("models/stories260K/expected_t0_n200.txt"));
    assert_int_equal(run_tool("quantize", arguments, false, text, sizeof text), 0);
    assert_non_null(strstr(text, "      KB    error  product\n"));
    assert_non_null(strstr(text, "blk.4.ffn_up.weight            172x64           Q8_0 "));
    snprintf(arguments, sizeof arguments, "'%s' '%s' --calibrate /nowhere/x", out[0], out[1]);
    assert_tool_fails("quantize", arguments, 1, "/nowhere/x");

    snprintf(arguments, sizeof arguments, "'%s' '%s' --type Q4_X", out[0], out[1]);
    assert_tool_fails("quantize", arguments, 2, "--type takes Q8_0, Q6_K");
    assert_tool_fails("quantize", "", 2, "a MODEL is needed");
    assert_tool_fails("quantize", "/nowhere/x y.gguf", 1, "/nowhere/x is not there");
    snprintf(arguments, sizeof arguments, "'%s' '%s'", out[0], GD_BINARY_DIR);
    assert_int_equal(run_tool("quantize", arguments, false, text, sizeof text), 1);
    assert_string_equal(text, ""); /* told before the work */
    assert_tool_fails("quantize", arguments, 1, "is a directory");
    snprintf(arguments, sizeof arguments, "'%s' --length 513", out[0]);
    assert_tool_fails("plan", arguments, 1, "--length 513: the model takes 512 tokens at the most");
    remove(out[0]);
    remove(out[1]);
    free(expected);
}

/* Ctrl-C ends a text that would go on for hours in order: with a line end and the count. */
static void assert_text_is_interrupted(const char *arguments)
{
    char command[4096], text[64];
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    snprintf(command, sizeof command, "exec '%s' generate %s 2>&1", GD_TOOL, arguments);
    pid_t tool = fork();
    if (tool == 0) {
        (void)signal(SIGINT, SIG_DFL); /* ignored where the tests run in a script's background */
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    assert_non_null(out);
    assert_int_equal(fread(text, 1, 3, out), 3); /* it talks */
    assert_int_equal(kill(tool, SIGINT), 0);
    memset(text, 0, sizeof text); /* its end */
    for (int c; (c = fgetc(out)) != EOF; text[sizeof text - 2] = (char)c)
        memmove(text, text + 1, sizeof text - 2);
    fclose(out);
    assert_int_equal(waitpid(tool, &status, 0), tool);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    const char *count = text;
    while (count < text + sizeof text && !*count)
        count++;
    assert_non_null(strstr(count, " tokens, "));
}

static void a_model_of_ones_own_talks(void **state)
{
    (void)state;
    need_json();
    char path[512], characters[512], arguments[2000], text[2][4096];
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_cli_generate_%d.safetensors", (int)getpid());
    snprintf(characters, sizeof characters, GD_BINARY_DIR "/test_cli_generate_%d.txt",
             (int)getpid());
    gd_context *gd = gd_open(test_device());
    gd_language_model *m = gd_language_model_create(gd, .vocabulary = 4, .max_length = 16,
                                                    .layers = 1, .heads = 2, .width = 8, .seed = 1);
    assert_int_equal(gd_language_model_save(m, path, 0, NULL), GD_OK);
    gd_close(gd);
    FILE *f = fopen(characters, "w");
    fputs("abcb\n", f);
    fclose(f);
    snprintf(arguments, sizeof arguments,
             "'%s' --tokenizer 'characters:%s' --prompt ab --tokens 40 --seed 3 --quiet", path,
             characters);
    for (int i = 0; i < 2; i++) /* beyond the model's length, and again the same */
        assert_int_equal(run(arguments, false, text[i], sizeof text[i]), 0);
    snprintf(arguments, sizeof arguments,
             "'%s' --tokenizer 'characters:%s' --prompt ab --tokens 1000000000", path, characters);
    assert_int_equal(strlen(text[0]), 2 + 40 + 1);
    assert_memory_equal(text[0], "ab", 2);
    assert_string_equal(text[0], text[1]);
    assert_text_is_interrupted(arguments);
    snprintf(arguments, sizeof arguments, "'%s' --tokenizer bytes", path);
    assert_fails(arguments, 1, "the model has 4 tokens, the tokeniser 256");
    snprintf(arguments, sizeof arguments, "'%s' --tokenizer 'characters:%s' --prompt xyz", path,
             characters);
    assert_fails(arguments, 1, "not among the 4 characters");
    snprintf(arguments, sizeof arguments,
             "'%s' --tokenizer 'characters:%s' --prompt abababababababababab", path, characters);
    assert_int_equal(run(arguments, false, text[0], sizeof text[0]), 1);
    assert_string_equal(text[0], ""); /* longer than the model takes */
    remove(path);
    remove(characters);
}

/* gradus plan and gradus export take the same files; a compiler, if there is one, takes what comes.
 */
static void a_model_is_planned_and_exported(void **state)
{
    (void)state;
    char model[1024], command[4096], c[512], object[512];
    static char text[1 << 17]; /* all of it: a tool whose reader has gone fails */
    snprintf(model, sizeof model, "%s", shared_data("models/stories260K/stories260K.bin"));
    snprintf(c, sizeof c, GD_BINARY_DIR "/test_cli_export_%d.c", (int)getpid());
    snprintf(object, sizeof object, GD_BINARY_DIR "/test_cli_export_%d.o", (int)getpid());
    snprintf(command, sizeof command, "'%s' plan '%s' --batch 1 --length 8", GD_TOOL, model);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(strstr(text, "attention"));
    snprintf(command, sizeof command, "'%s' export '%s' --length 8 -o '%s'", GD_TOOL, model, c);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command,
             "! command -v cc >/dev/null || cc -std=c99 -Wall -Wextra -Werror -c '%s' -o '%s'", c,
             object);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "'%s' export '%s' --length 800", GD_TOOL, model);
    assert_int_not_equal(system(command), 0); /* longer than the model is */
    remove(c);
    remove(object);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    assert_fails("", 2, "a MODEL is needed");
    assert_fails("model.bin", 1, "model.bin is not there");
    /* of what is no model no tokeniser is asked */
    assert_fails("'" GD_SOURCE_DIR "/README.md'", 1, "/README.md: neither safetensors, nor GGUF,");
    assert_tool_fails("quantize", "'" GD_SOURCE_DIR "/README.md' '" GD_BINARY_DIR "/none.gguf'", 1,
                      "/README.md: neither safetensors, nor GGUF,");
    const char *empty = GD_BINARY_DIR "/test_cli_generate_empty.gguf";
    FILE *file = fopen(empty, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    static const char *const of_files[] = { "eval", "plan", "predict" };
    for (int i = 0; i < 3; i++)
        assert_tool_fails(of_files[i], GD_BINARY_DIR "/test_cli_generate_empty.gguf", 1,
                          "test_cli_generate_empty.gguf is no GGUF file");
    remove(empty);
    assert_fails("model.bin --cache i4", 2, "--cache takes f32, f16 or int8, not 'i4'");
    assert_fails("model.bin --tokenizer bytes --top-p 2", 2, "--top-p takes a number from 0 to 1");
    assert_fails("/nowhere/model.bin --tokenizer bytes", 1, "/nowhere/model.bin");
    assert_fails("'" GD_SOURCE_DIR "/README.md' --tokenizer /nowhere/tok", 1, "/nowhere/tok");
    char text[8192];
    assert_int_equal(run("--help", false, text, sizeof text), 0);
    assert_non_null(strstr(text, "Usage: gradus generate MODEL"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_story_is_told_word_for_word),
        cmocka_unit_test(a_model_is_quantised),
        cmocka_unit_test(a_model_of_ones_own_talks),
        cmocka_unit_test(a_model_is_planned_and_exported),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
