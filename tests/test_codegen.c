/* tests/test_codegen.c: the functions that generated programs are given (codegen/library.c): those
 * that a text names, and no others. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "codegen/codegen.h"

#include <stdlib.h>
#include <string.h>

/* What `text` needs, which the caller frees. */
static char *linked(gd_dialect dialect, const char *text)
{
    gd_text_buffer used = { 0 }, out = { 0 };
    gd_buffer_add(&used, "%s", text);
    gd_buffer_add(&out, "\n");
    assert_int_equal(gd_codegen_link(dialect, &used, &out), GD_OK);
    assert_false(out.failed);
    gd_free(used.text);
    return out.text;
}

/* Whether the program for `text` has the line that begins so. */
static bool brings(gd_dialect dialect, const char *text, const char *line)
{
    char begin[100] = "\n", *program = linked(dialect, text);
    strncat(begin, line, sizeof begin - 2);
    const bool has = strstr(program, begin) != NULL;
    gd_free(program);
    return has;
}

static void a_name_brings_its_function_and_what_that_needs(void **state)
{
    (void)state;
    for (int d = 0; d < GD_DIALECT_COUNT; d++) {
        const gd_dialect dialect = (gd_dialect)d;
        char *program = linked(dialect, "y = gd_tanh_f32(x);");
        assert_non_null(strstr(program, " gd_tanh_f32("));
        assert_non_null(strstr(program, "GD_FMA_F32"));
        assert_null(strstr(program, " gd_tanh_f64("));
        gd_free(program);
        program = linked(dialect, "");
        assert_null(strstr(program, "gd_"));
        gd_free(program);
    }
}

static void words_in_comments_bring_nothing(void **state)
{
    (void)state;
    static const char *const silent[] = { "/* gd_tanh_f32(x), gd_never_f32(x) */",
                                          "/* one\n * gd_tanh_f32\n */",
                                          "x = y; // gd_tanh_f32\n",
                                          "// gd_tanh_f32",
                                          "/*/ gd_tanh_f32 */",
                                          "/* gd_tanh_f32",
                                          "gd_tanh_f3 2gd_tanh_f32" };
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        char *program = linked(GD_DIALECT_OPENCL, silent[i]);
        if (strstr(program, "gd_tanh"))
            fail_msg("\"%s\" brings a function", silent[i]);
        gd_free(program);
    }
    static const char *const naming[] = { "/**/gd_tanh_f32(x)", "x / gd_tanh_f32(x) /* y */",
                                          "// x\ngd_tanh_f32(x)", "/* x */ /gd_tanh_f32(x)" };
    for (size_t i = 0; i < sizeof naming / sizeof *naming; i++) {
        char *program = linked(GD_DIALECT_OPENCL, naming[i]);
        if (!strstr(program, " gd_tanh_f32("))
            fail_msg("\"%s\" brings no function", naming[i]);
        gd_free(program);
    }
}

/* Kernels' comments, some of which name other kernels, stay in the sources (cmake/EmbedText.cmake). */
static void texts_for_devices_have_no_comments(void **state)
{
    (void)state;
    gd_text_buffer all = { 0 };
    gd_codegen_unpack(&all);
    const char *const of_devices = strstr(all.text, "\n@D");
    assert_non_null(of_devices);
    assert_null(strstr(of_devices, "/*"));
    gd_free(all.text);
    for (int d = GD_DIALECT_OPENCL; d < GD_DIALECT_COUNT; d++) {
        const gd_dialect dialect = (gd_dialect)d;
        assert_true(brings(dialect, "cross_entropy_row\n", "KERNEL(cross_entropy_row,"));
        assert_false(brings(dialect, "cross_entropy_row\n", "KERNEL(check_indices,"));
        assert_true(brings(dialect, "check_indices\n", "KERNEL(check_indices,"));
    }
}

static void a_function_that_is_nowhere_is_refused(void **state)
{
    (void)state;
    gd_text_buffer used = { 0 }, out = { 0 };
    gd_error_clear();
    gd_buffer_add(&used, "y = gd_never_f32(x);");
    assert_int_equal(gd_codegen_link(GD_DIALECT_C, &used, &out), GD_ERR_UNSUPPORTED);
    assert_non_null(strstr(gd_error_message(), "there is no C text for gd_never_f32"));
    gd_error_clear();
    gd_free(used.text);
    gd_free(out.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_brings_its_function_and_what_that_needs),
        cmocka_unit_test(words_in_comments_bring_nothing),
        cmocka_unit_test(texts_for_devices_have_no_comments),
        cmocka_unit_test(a_function_that_is_nowhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
