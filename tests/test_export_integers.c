/* tests/test_export_integers.c: ops on every integer dtype in one exported function: compiled and run, it
 * gives what the engine gives, at the ends of the dtypes too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "support/guard.h"

static const gd_dtype integers[] = { GD_I8, GD_I16, GD_I32, GD_I64, GD_U8, GD_U16, GD_U32, GD_U64 };
enum { INTEGERS = 8, MOST_RESULTS = 400 };

typedef struct program {
    gd_context *gd;
    gd_tensor *x[INTEGERS], *y[INTEGERS], *real; /* read from outside: arrays of the file */
    int results;                                 /* besides number 0 */
} program;

static void give(program *p, gd_tensor *t)
{
    t = gd_contiguous(t);
    if (!t)
        fail_msg("result %d: %s", p->results + 1, gd_error_message());
    gd_output(t);
    p->results++;
    assert_true(p->results < MOST_RESULTS);
}

static void every_op(program *p, gd_tensor *x, gd_tensor *y)
{
    const gd_dtype dtype = gd_tensor_dtype(x);
    typedef gd_tensor *(*unary)(gd_tensor *);
    typedef gd_tensor *(*binary)(gd_tensor *, gd_tensor *);
    const unary unaries[] = { gd_neg, gd_abs, gd_sign, gd_square, gd_relu, gd_bitwise_not };
    const binary binaries[] = { gd_add,         gd_sub,        gd_mul,        gd_floor_div,
                                gd_mod,         gd_fmod,       gd_maximum,    gd_minimum,
                                gd_lt,          gd_eq,         gd_logical_or, gd_bitwise_and,
                                gd_bitwise_xor, gd_bitwise_or, gd_div };
    for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++)
        give(p, unaries[i](x));
    for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
        give(p, binaries[i](x, y));
    give(p, gd_where(gd_gt(x, y), x, y));
    give(p, gd_cast(x, GD_F32));
    give(p, gd_cast(p->real, dtype));
    give(p, gd_cast(gd_cast(p->real, GD_F64), dtype));
    for (int to = 0; to < INTEGERS; to++)
        give(p, gd_cast(x, integers[to]));
    give(p, gd_sum(x, GD_ALL_AXES, false));
    give(p, gd_max(x, GD_ALL_AXES, false));
    give(p, gd_min(x, GD_ALL_AXES, false));
    give(p, gd_cumsum(x, 0));
    give(p, gd_argmax(x, 0, false));
    give(p, gd_sort(x, 0, true));
    give(p, gd_concat(2, (gd_tensor *[]){ x, gd_flip(y, GD_AXES(0)) }, 0));
    give(p, gd_pad(x, GD_SHAPE(1), GD_SHAPE(0), 7));
    give(p, gd_arange(p->gd, 3, 6, 1, dtype));
    give(p, gd_take(x, gd_cast(gd_arange(p->gd, 2, -1, -1, GD_I64), dtype), 0));
    give(p, gd_full_integer(p->gd, GD_SHAPE(2), 100, dtype));
}

static gd_tensor *all(void *user, int count, gd_tensor *const *in)
{
    (void)count, (void)in;
    program *p = user;
    p->results = 0;
    for (int i = 0; i < INTEGERS; i++)
        every_op(p, p->x[i], p->y[i]);
    return gd_arange(p->gd, 0, 3, 1, GD_F32);
}

/* Both ends, what lies at them, and small numbers; and others to go with them, 0 among them. */
static void make_operands(program *p)
{
    static const float reals[] = { -1e30f, -300.5f, -1.5f, 0.5f, 254.7f, 65535.9f, 4e9f, 3e19f };
    p->real = gd_retain(gd_from_host(p->gd, GD_SHAPE(8), GD_F32, reals));
    for (int i = 0; i < INTEGERS; i++) {
        const gd_dtype dtype = integers[i];
        const bool is_signed = gd_dtype_promote(dtype, GD_I8) == dtype;
        const uint64_t most = UINT64_MAX >> (64 - 8 * gd_dtype_size(dtype) + is_signed);
        const uint64_t least = is_signed ? ~most : 0;
        const uint64_t x[] = { least, most, least + 1, most - 1, 0, 1, 7, 100 };
        const uint64_t y[] = { is_signed ? UINT64_MAX : most, 2, 3, most, 0, 0, 2, 9 };
        p->x[i] = gd_retain(gd_cast(gd_from_host(p->gd, GD_SHAPE(8), GD_U64, x), dtype));
        p->y[i] = gd_retain(gd_cast(gd_from_host(p->gd, GD_SHAPE(8), GD_U64, y), dtype));
    }
}

static size_t bytes_of(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

static FILE *open_in(const char *folder, const char *name, const char *mode)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    return file;
}

/* main.c: call it once, write the results. */
static void write_caller(const char *folder, gd_function *f, int results)
{
    FILE *out = open_in(folder, "main.c", "wb");
    fprintf(out, "#include <stdio.h>\nint whole();\n");
    for (int r = 0; r <= results; r++)
        fprintf(out, "static double r%d[%zu];\n", r, bytes_of(gd_function_result(f, r)) / 8 + 1);
    fprintf(out, "int main(void)\n{\n    FILE *out = fopen(\"out.bin\", \"wb\");\n    if (whole(");
    for (int r = 0; r <= results; r++)
        fprintf(out, "%sr%d", r ? ", " : "", r);
    fprintf(out, ")) return 1;\n");
    for (int r = 0; r <= results; r++)
        fprintf(out, "    fwrite(r%d, 1, %zu, out);\n", r, bytes_of(gd_function_result(f, r)));
    fprintf(out, "    return fclose(out);\n}\n");
    fclose(out);
}

static void compare(gd_function *f, int results, const char *folder)
{
    FILE *file = open_in(folder, "out.bin", "rb");
    for (int r = 0; r <= results; r++) {
        gd_tensor *t = gd_function_result(f, r);
        unsigned char want[64 * 8], got[64 * 8];
        assert_true(bytes_of(t) <= sizeof want);
        assert_int_equal(gd_tensor_read(t, want, bytes_of(t)), GD_OK);
        assert_int_equal(fread(got, 1, bytes_of(t), file), bytes_of(t));
        if (memcmp(want, got, bytes_of(t)) != 0)
            print_error("result %d, of %s, differs\n", r, gd_dtype_name(gd_tensor_dtype(t)));
        assert_memory_equal(want, got, bytes_of(t));
    }
    fclose(file);
}

static void exported_integers_are_the_engines(void **state)
{
    const char *folder = *state;
    if (system("command -v gcc >/dev/null") != 0)
        skip();
    setenv("GRADUS_ISA", "baseline", 1);
    program p = { .gd = gd_open(test_device(), .threads = 1) };
    unsetenv("GRADUS_ISA");
    make_operands(&p);
    gd_function *f = gd_compile(p.gd, all, &p, .detached = true);
    if (!gd_call(f, 0, NULL))
        fail_msg("%s", gd_error_message());
    FILE *file = open_in(folder, "whole.c", "wb");
    if (gd_export_c(f, "whole", file) != GD_OK)
        fail_msg("%s", gd_error_message());
    fclose(file);
    write_caller(folder, f, p.results);
    char command[1024];
    snprintf(command, sizeof command,
             "cd '%s' && gcc -std=c99 -O1 -Wall -Wextra -pedantic -Werror -c whole.c && "
             "gcc -w -c main.c && gcc whole.o main.o -o run -lm && ./run",
             folder);
    assert_int_equal(system(command), 0);
    compare(f, p.results, folder);
    gd_close(p.gd);
}

static int make_folder(void **state)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%s/test_export_integers_XXXXXX", GD_BINARY_DIR);
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", (const char *)*state);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(
        exported_integers_are_the_engines, make_folder, remove_folder) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
