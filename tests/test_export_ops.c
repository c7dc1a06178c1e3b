/* tests/test_export_ops.c: every row of support/op_rows.h, with its gradients, in one exported
 * function: compiled and run, it gives the bits of the plan at the baseline instruction set. What
 * rows do not reach, whole models, is in test_export.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/compile.h>

#include "support/guard.h"
#include "support/op_rows.h"

enum { MOST_RESULTS = 9999, MOST_EXAMPLES = 4096 };

typedef struct example {
    const op_row *row;
    const int64_t *p;
    gd_tensor *in[OP_MAX_OPERANDS];
} example;

typedef struct program {
    gd_context *context;
    example *examples;
    int count;
    const char *of[MOST_RESULTS]; /* the row of each result */
    int results;
} program;

/* ---- operands: values of the parameter's kind ---- */

static gd_tensor *make_operand(gd_context *gd, const op_row *row, int i, gd_shape shape)
{
    const operand_spec *spec = &row->operand[i];
    bool whole = spec->kind == OPERAND_INDEX || (row->flags & OP_INTEGERS_ONLY);
    if (spec->kind == OPERAND_TRUTH)
        return gd_retain(gd_gt(gd_uniform(gd, shape, -1, 1, GD_F32), gd_scalar(gd, 0, GD_F32)));
    gd_tensor *x = gd_uniform(gd, shape, spec->low, spec->high, GD_F32);
    if (whole)
        return gd_retain(gd_cast(gd_floor(x), GD_I64));
    return gd_retain(gd_set_requires_grad(x, (row->flags & OP_DIFFERENTIABLE) != 0));
}

static void make_examples(program *p)
{
    const int most = getenv("GRADUS_TEST_ALL") ? MOST_EXAMPLES : 2; /* cases of a row */
    for (int r = 0; r < op_row_count; r++) {
        const op_row *row = op_rows[r];
        for (int c = 0; c < row->case_count && c < most; c++) {
            if ((strcmp(row->name, "attention_narrow") == 0 && !row->cases[c].p[2]) ||
                strcmp(row->name, "adam_bf16") == 0)
                continue; /* keys or moments of bf16: C has no such type */
            assert_true(p->count < MOST_EXAMPLES);
            example *e = &p->examples[p->count++];
            *e = (example){ .row = row, .p = row->cases[c].p };
            for (int i = 0; i < row->operands; i++)
                e->in[i] = make_operand(p->context, row, i, row->cases[c].shape[i]);
        }
    }
}

/* ---- the function ---- */

static void give(program *p, gd_tensor *x, const char *of)
{
    x = gd_contiguous(gd_detach(x));
    if (!x)
        fail_msg("%s: %s", of, gd_error_message());
    if (gd_tensor_count(x) == 0)
        return;
    gd_output(x);
    p->of[++p->results] = of;
    assert_true(p->results < MOST_RESULTS - 1);
}

static gd_tensor *all_rows(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    program *p = user;
    (void)in;
    p->results = 0; /* result 0 is the last line's */
    for (int i = 0; i < p->count; i++) {
        example *e = &p->examples[i];
        gd_tensor *t = e->row->build(p->context, e->in, e->p);
        if (!t)
            fail_msg("%s: %s", e->row->name, gd_error_message());
        if (gd_tensor_dtype(t) == GD_F16 || gd_tensor_dtype(t) == GD_BF16)
            continue; /* C has no such types; nothing depends on it */
        give(p, t, e->row->name);
        gd_tensor *inputs[OP_MAX_OPERANDS], *grads[OP_MAX_OPERANDS];
        int wanted = 0;
        for (int k = 0; k < e->row->operands; k++)
            if (gd_requires_grad(e->in[k]))
                inputs[wanted++] = e->in[k];
        if (wanted == 0 || !gd_requires_grad(t))
            continue;
        gd_tensor *seed = gd_add_scalar(gd_mul_scalar(t, 0.5), 0.25);
        if (gd_grad(1, &t, &seed, wanted, inputs, grads) != GD_OK)
            fail_msg("gradient of %s: %s", e->row->name, gd_error_message());
        for (int k = 0; k < wanted; k++)
            give(p, grads[k], e->row->name);
    }
    p->of[0] = "the last";
    return gd_arange(p->context, 0, 3, 1, GD_F32);
}

static size_t bytes_of(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

static FILE *create(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    return file;
}

/* main.c: call it once, write the results. */
static void write_caller(const char *folder, gd_function *f, int results)
{
    FILE *out = create(folder, "main.c");
    fprintf(out, "#include <stdio.h>\nint rows();\n");
    for (int r = 0; r <= results; r++)
        fprintf(out, "static double r%d[%zu];\n", r, bytes_of(gd_function_result(f, r)) / 8 + 1);
    fprintf(out, "int main(void)\n{\n    FILE *out = fopen(\"out.bin\", \"wb\");\n    if (rows(");
    for (int r = 0; r <= results; r++)
        fprintf(out, "%sr%d", r ? ", " : "", r);
    fprintf(out, ")) return 1;\n");
    for (int r = 0; r <= results; r++)
        fprintf(out, "    fwrite(r%d, 1, %zu, out);\n", r, bytes_of(gd_function_result(f, r)));
    fprintf(out, "    return fclose(out);\n}\n");
    fclose(out);
}

static bool shell(const char *format, const char *folder, const char *compiler)
{
    char command[2048];
    snprintf(command, sizeof command, format, folder, compiler, compiler);
    return system(command) == 0;
}

static void compare(const program *p, gd_function *f, const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/out.bin", folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (int r = 0; r <= p->results; r++) {
        size_t bytes = bytes_of(gd_function_result(f, r));
        char *want = malloc(bytes + 1), *got = malloc(bytes + 1);
        assert_int_equal(gd_tensor_read(gd_function_result(f, r), want, bytes), GD_OK);
        assert_int_equal(fread(got, 1, bytes, file), bytes);
        if (memcmp(want, got, bytes) != 0)
            print_error("%s: result %d differs\n", p->of[r], r);
        assert_memory_equal(want, got, bytes);
        free(want);
        free(got);
    }
    fclose(file);
}

static void every_row_gives_the_same_bits(void **state)
{
    const char *folder = *state;
    setenv("GRADUS_ISA", "baseline", 1);
    gd_context *gd = gd_open(test_device(), .threads = 1, .seed = 3);
    unsetenv("GRADUS_ISA");
    program *p = calloc(1, sizeof *p);
    p->examples = calloc(MOST_EXAMPLES, sizeof *p->examples);
    p->context = gd;
    make_examples(p);
    gd_function *f = gd_compile(gd, all_rows, p, .detached = true);
    if (gd_function_prepare(f, 0, NULL) != GD_OK)
        fail_msg("%s", gd_error_message());
    FILE *file = create(folder, "rows.c");
    if (gd_export_c(f, "rows", file) != GD_OK)
        fail_msg("%s", gd_error_message());
    fclose(file);
    assert_non_null(gd_call(f, 0, NULL));
    write_caller(folder, f, p->results);
    const char *compiler = shell("command -v gcc >/dev/null", "", "") ? "gcc" : "cc";
    if (!shell("command -v gcc cc >/dev/null", "", ""))
        skip();
    assert_true(shell("cd '%s' && %s -std=c99 -Wall -Wextra -pedantic -Werror -c rows.c", folder,
                      compiler));
    assert_true(shell("cd '%s' && %s -w -c main.c && %s rows.o main.o -o run -lm && ./run", folder,
                      compiler));
    compare(p, f, folder);
    gd_close(gd);
    free(p->examples);
    free(p);
}

static int make_folder(void **state)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s/test_export_ops_XXXXXX", GD_BINARY_DIR);
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static int remove_folder(void **state)
{
    return shell("rm -r '%s'", *state, "") ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(
        every_row_gives_the_same_bits, make_folder, remove_folder) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
