/* tests/test_cli_compare.c: gradus compare as a person runs it, on folders of runs that this test
 * writes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined GD_TOOL && defined GD_HAVE_JANSSON

static char folder[256]; /* of this run of the test */

/* What the tool printed, to either stream; *code is its exit status. */
static const char *compare(const char *arguments, int *code)
{
    static char out[1 << 16];
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && LC_ALL=C '%s' compare %s 2>&1", folder, GD_TOOL,
             arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    out[fread(out, 1, sizeof out - 1, pipe)] = '\0';
    int status = pclose(pipe);
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
    return out;
}

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in:\n%s", words, text);
}

static void put(const char *name, const char *text)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_run(const char *name, const char *metrics, const char *config)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    put(path, metrics);
    snprintf(path, sizeof path, "%s/config.json", name);
    if (config)
        put(path, config);
}

static int make_runs(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/gradus-compare-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    make_run("a",
             "{\"step\":1,\"time\":1,\"train/loss\":2,\"validation/accuracy\":0.5}\n"
             "{\"step\":2,\"time\":61,\"train/loss\":1,\"validation/accuracy\":0.75}\n"
             "{\"step\":3000,\"time\":75,\"train/loss\":1.5,\"lr\":0.1}\n",
             "{\"seed\": 1, \"optimizer\": {\"lr\": 0.1, \"name\": \"adam\"}}");
    make_run("b",
             "{\"step\":1,\"time\":2,\"train/loss\":\"NaN\",\"validation/accuracy\":0.25}\n"
             "{\"step\":2,\"time\":4,\"train/loss\":3}\n{\"step\":3,\"ti",
             "{\"seed\": 1, \"optimizer\": {\"lr\": 0.2, \"name\": \"adam\"}, \"extra\": true}");
    return 0;
}

static int drop_runs(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void runs_stand_side_by_side(void **state)
{
    (void)state;
    int code;
    const char *out = compare("a b/ --svg curves.svg", &code);
    assert_int_equal(code, 0);
    assert_has(out, "                                       a               b\n"
                    "last step                          3,000               2\n"
                    "time                                1:15            0:04\n"
                    "train/loss                           1.5               3\n"
                    "  best, at step                      1 2             3 2\n"
                    "validation/accuracy                 0.75            0.25\n"
                    "  best, at step                   0.75 2          0.25 1\n"
                    "lr                                   0.1                \n"
                    "\noptions that differ\n"
                    "optimizer.lr                         0.1             0.2\n"
                    "extra                                  -            true\n");
    assert_has(out, "\nvalidation/accuracy\n  a a   b b\n"); /* without UTF-8: letters */
    assert_null(strstr(out, "\033"));
    char path[300];
    snprintf(path, sizeof path, "%s/curves.svg", folder);
    assert_int_equal(access(path, R_OK), 0);
}

static void a_metric_is_chosen(void **state)
{
    (void)state;
    int code;
    assert_has(compare("a --metric train/loss --time --smoothing 0.5", &code),
               "\ntrain/loss\n  * a\n");
    assert_int_equal(code, 0);
    assert_has(compare("a b --metric test/loss", &code),
               "no run has a metric 'test/loss'; the table has");
    assert_int_equal(code, 1);
}

static void equal_names_become_paths(void **state)
{
    (void)state;
    int code;
    char path[300];
    snprintf(path, sizeof path, "%s/more", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    make_run("more/a", "{\"step\":7}\n", NULL);
    assert_has(compare("a more/a", &code),
               "                                       a          more/a\n");
    assert_int_equal(code, 0);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    int code;
    assert_has(compare("", &code), "the folder of a run is missing");
    assert_int_equal(code, 2);
    assert_has(compare("a nowhere", &code), "gradus: nowhere/metrics.jsonl: cannot open");
    assert_int_equal(code, 1);
    make_run("broken", "{\"step\":1}\nnot JSON\n", NULL);
    assert_has(compare("a broken", &code), "broken/metrics.jsonl: line 2 is not JSON");
    assert_int_equal(code, 1);
    assert_has(compare("a --svg /no/such/folder/x.svg", &code), "gradus: /no/such/folder/x.svg");
    assert_int_equal(code, 1);
    assert_has(compare("--help", &code), "Usage: gradus compare [OPTION]... RUN...");
    assert_int_equal(code, 0);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_runs, drop_runs)
    const struct CMUnitTest tests[] = {
        EACH(runs_stand_side_by_side),
        EACH(a_metric_is_chosen),
        EACH(equal_names_become_paths),
        EACH(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* there is no tool, or no JSON */
}

#endif
