/* tests/test_locale.c: a program that speaks German: what the library writes and reads does not
 * depend on the locale's decimal comma. Each text is made twice, in the C locale and in one with a
 * comma, which localedef makes in a temporary folder where none is installed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/context.h"

static char folder[] = "/tmp/gradus_locale_XXXXXX";
static const char *comma; /* the name of a locale with a decimal comma; NULL: there is none */

#ifdef GD_HAVE_JANSSON
static const bool saves = true;
#else
static const bool saves = false; /* no optimizer states, no models in JSON */
#endif

static bool has_comma(const char *name)
{
    bool has = setlocale(LC_ALL, name) && strcmp(localeconv()->decimal_point, ",") == 0;
    setlocale(LC_ALL, "C");
    return has;
}

static int find_comma(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    static const char *const names[] = { "de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !comma; i++)
        comma = has_comma(names[i]) ? names[i] : NULL;
    if (comma)
        return 0;
    char command[200];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
             folder);
    setenv("LOCPATH", folder, 1);
    if (system(command) == 0 && has_comma("de_DE.UTF-8"))
        comma = "de_DE.UTF-8";
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static int close_and_reset(void **state)
{
    setlocale(LC_ALL, "C");
    return close_context(state);
}

static gd_tensor *step(void *optimizer, int count, gd_tensor *const *in)
{
    (void)count;
    gd_module *m = gd_optimizer_module(optimizer);
    gd_tensor *y = gd_dropout(gd_nn_linear(m, "fc", in[0], 3), 0.25);
    return gd_minimize(optimizer,
                       gd_mse(y, gd_full(gd_tensor_context(y), GD_SHAPE(2, 3), 0.1, GD_F32)));
}

/* A log's lines without their times; returns where they end. */
static char *write_log(char *at, size_t size)
{
    static const char *const names[] = { "metrics.csv", "metrics.jsonl", "log.prom" };
    char log_folder[64], path[128];
    snprintf(log_folder, sizeof log_folder, "%s/log", folder);
    snprintf(path, sizeof path, "%s/log.prom", log_folder);
    gd_run_log *log = gd_run_log_open(log_folder, .csv = true, .prometheus = path);
    assert_non_null(log);
    assert_int_equal(gd_run_log_scalar(log, 1, "x", 0.625), GD_OK);
    gd_run_log_close(log);
    gd_history *history = gd_history_load(log_folder);
    assert_non_null(history);
    at += snprintf(at, size, "%d\n", gd_history_metric_values(history, 0)[0] == 0.625);
    gd_history_release(history);
    for (int i = 0; i < 3; i++) {
        char text[4096];
        snprintf(path, sizeof path, "%s/%s", log_folder, names[i]);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        assert_int_equal(remove(path), 0);
        assert_non_null(strstr(text, "0.625"));
        assert_null(strstr(text, "0,625"));
    }
    assert_int_equal(rmdir(log_folder), 0);
    return at;
}

#define TEXT 400000
/* Everything with a fraction that the library writes, one after the other. */
static char *write_everything(const char *locale)
{
    char *text = malloc(TEXT), *at = text, *end = text + TEXT;
    assert_non_null(text);
    assert_non_null(setlocale(LC_ALL, locale));
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 1);
    gd_optimizer *o = gd_adam(gd_module_create(gd, .seed = 1), .lr = 0.375);
    gd_function *f = gd_compile(gd, step, o);
    gd_tensor *x = gd_full(gd, GD_SHAPE(2, 4), 0.7, GD_F32);
    assert_non_null(gd_call(f, 1, &x));

    char path[64];
    snprintf(path, sizeof path, "%s/optimizer", folder);
    assert_int_equal(gd_optimizer_save(o, path), GD_OK);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(at, 1, (size_t)(end - at), file);
    fclose(file);
    for (size_t i = 0; i < length; i++, at++)
        if (*at == '\0')
            *at = '0';

    snprintf(path, sizeof path, "%s/step.c", folder);
    file = fopen(path, "w+");
    assert_non_null(file);
    assert_int_equal(gd_export_c(f, "step", file), GD_OK);
    rewind(file);
    at += fread(at, 1, (size_t)(end - at), file);
    fclose(file);

    const gd_kernel_profile row = { .op = "linear",
                                    .what = "f32",
                                    .seconds = 0.0123456,
                                    .start = 0.5,
                                    .flops = 1e6,
                                    .bytes = 1e5 };
    at += gd_profile_format_trace(1, &row, at, (size_t)(end - at));
    at += gd_profile_format(1, &row, (gd_profile_bounds){ 1e11, 1e10 }, at, (size_t)(end - at));
    at += gd_tensor_format(x, at, (size_t)(end - at));
    at += gd_graph_format(gd_pad(x, GD_SHAPE(1, 0), GD_SHAPE(0, 1), 0.5), at, (size_t)(end - at));
    at += gd_plan_format(f, at, (size_t)(end - at));
    gd_model *model = gd_model_load_json(
        gd,
        "{\"input\": [4], \"layers\": [{\"name\": \"a\", \"type\": \"dropout\", "
        "\"dropout\": 0.125}, {\"name\": \"b\", \"type\": \"linear\", \"units\": 2}]}",
        .seed = 1);
    if (!model)
        fail_msg("%s", gd_error_message());
    at += gd_model_format_json(model, at, (size_t)(end - at));
    gd_chart *chart = gd_chart_create(.title = "chart", .log_x = true);
    const double numbers[] = { 0.0015, 0.25, 1.5 };
    assert_int_equal(gd_chart_line(chart, "line", 3, numbers, numbers, .smoothing = 0.5), GD_OK);
    at += gd_chart_svg(chart, at, (size_t)(end - at));
    at += gd_chart_text(chart, 60, 12, GD_TEXT_UNICODE, at, (size_t)(end - at));
    gd_chart_release(chart);
    at = write_log(at, (size_t)(end - at));
    assert_null(gd_dropout(x, 1.5));
    snprintf(at, (size_t)(end - at), "%s", gd_error_message());
    gd_error_clear();
    gd_close(gd);
    setlocale(LC_ALL, "C");
    return text;
}

static void test_texts_have_a_point(void **state)
{
    (void)state;
    if (!comma || !saves)
        skip();
    char *plain = write_everything("C"), *german = write_everything(comma);
    assert_non_null(strstr(plain, "0.375"));
    assert_non_null(strstr(plain, "1.5"));
    size_t i = 0;
    while (plain[i] && plain[i] == german[i])
        i++;
    if (plain[i] != german[i])
        fail_msg("with a comma: %.60s\nwithout: %.60s", german + (i < 20 ? 0 : i - 20),
                 plain + (i < 20 ? 0 : i - 20));
    free(plain);
    free(german);
}

/* A learning rate saved and read back where fractions have a comma, or in two such places. */
static void test_learning_rate_is_read(void **state)
{
    if (!comma || !saves)
        skip();
    char path[64];
    snprintf(path, sizeof path, "%s/rate", folder);
    const char *const locales[][2] = { { comma, comma }, { "C", comma }, { comma, "C" } };
    for (int i = 0; i < 3; i++) {
        gd_module *m = gd_module_create(*state, .seed = 1);
        assert_non_null(gd_parameter(m, "w", GD_SHAPE(2), .init = GD_INIT_ZEROS));
        gd_optimizer *saved = gd_sgd(m, .lr = 0.25), *loaded = gd_sgd(m, .lr = 1);
        setlocale(LC_ALL, locales[i][0]);
        assert_int_equal(gd_optimizer_save(saved, path), GD_OK);
        setlocale(LC_ALL, locales[i][1]);
        assert_int_equal(gd_optimizer_load(loaded, path), GD_OK);
        assert_true(gd_optimizer_lr(loaded) == 0.25);
        setlocale(LC_ALL, "C");
    }
}

/* The library leaves the program's locale as it is. */
static void test_locale_is_left_alone(void **state)
{
    if (!comma)
        skip();
    setlocale(LC_ALL, comma);
    char text[64];
    gd_tensor *x = gd_full(*state, GD_SHAPE(2), 0.5, GD_F32);
    gd_tensor_format(x, text, sizeof text);
    assert_null(gd_dropout(x, 7.5));
    expect_error(GD_ERR_INVALID, "7.5");
    snprintf(text, sizeof text, "%.2f", 0.25);
    assert_string_equal(text, "0,25");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_and_reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_texts_have_a_point),
        TEST(test_learning_rate_is_read),
        TEST(test_locale_is_left_alone),
    };
    return cmocka_run_group_tests(tests, find_comma, remove_folder);
}
