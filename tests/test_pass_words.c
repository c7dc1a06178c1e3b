/* tests/test_pass_words.c: random words that a group draws on its tiles are those that would lie in memory:
 * wherever the stream stands, for any shape, order of operands and number of threads; and words that
 * others read as well are drawn once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "support/context.h"
#include "support/effort.h"

enum { INPUTS = 2 };

static gd_tensor *noise(gd_tensor *x)
{
    return gd_uniform(gd_tensor_context(x), gd_tensor_shape(x), 0, 1, GD_F32);
}

static gd_tensor *add_noise(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(gd_mul(in[0], in[1]), noise(in[0]));
}

/* Two draws in a group. */
static gd_tensor *add_normal(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], gd_normal(gd_tensor_context(in[0]), gd_tensor_shape(in[1]), 0, 1, GD_F32));
}

/* Nothing else is read. */
static gd_tensor *noise_alone(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_square(noise(in[0]));
}

/* A reduction stands between two readers of the words. */
static gd_tensor *read_twice(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_bernoulli(in[0]);
    return gd_add(gd_mul(x, gd_cumsum(x, 0)), in[1]);
}

static int words_drawn(const gd_function *f)
{
    static char text[1 << 15];
    assert_true(gd_plan_format(f, text, sizeof text) < sizeof text);
    const char *passes = strstr(text, "passes on"), *at = passes ? strstr(passes, " words ") : NULL;
    assert_non_null(at);
    return atoi(at + strlen(" words "));
}

/* The value of a body where the stream stands at `position`, in[0] transposed if `is_turned`. Returns the
 * tensor in a context of its own; *drawn: what the pass did. */
static gd_tensor *value(gd_function_body body, gd_shape shape, bool is_turned, int position,
                        int threads, gd_mode mode, const char *passes, int *drawn)
{
    gd_context *gd = gd_open(test_device(), .threads = threads, .seed = 9);
    gd_shape other = shape;
    if (is_turned) {
        other.dim[0] = shape.dim[1];
        other.dim[1] = shape.dim[0];
    }
    gd_tensor *in[INPUTS] = { gd_uniform(gd, other, 0, 1, GD_F32),
                              gd_uniform(gd, shape, 0, 1, GD_F32) };
    if (is_turned)
        in[0] = gd_transpose(in[0], 0, 1);
    if (position > 0)
        (void)gd_uniform(gd, GD_SHAPE(position), 0, 1, GD_F32);
    gd_function *f = gd_compile(gd, body, NULL, .mode = mode, .passes = passes);
    (void)gd_call(f, INPUTS, in);
    gd_tensor *result = gd_call(f, INPUTS, in); /* at another place of the stream */
    assert_non_null(result);
    if (drawn)
        *drawn = words_drawn(f);
    return result;
}

static void check(gd_function_body body, gd_shape shape, bool is_turned, int position, int expected)
{
    const bool is_cpu = strcmp(test_device(), "cpu") == 0;
    int drawn;
    gd_tensor *eager = value(body, shape, is_turned, position, 1, GD_MODE_EAGER, "", NULL);
    for (int threads = 1; threads <= 3; threads += 2) {
        gd_tensor *compiled =
            value(body, shape, is_turned, position, threads, GD_MODE_COMPILED, "", &drawn);
        assert_in_range(drawn, is_cpu ? expected : 0, expected); /* others may not draw in groups */
        assert_same_bits(eager, compiled);
        gd_close(gd_tensor_context(compiled));
    }
    gd_tensor *apart =
        value(body, shape, is_turned, position, 1, GD_MODE_COMPILED, "-words", &drawn);
    assert_int_equal(drawn, 0);
    assert_same_bits(eager, apart);
    gd_close(gd_tensor_context(apart));
    gd_close(gd_tensor_context(eager));
}

static void groups_draw_the_words_of_their_elements(void **state)
{
    (void)state;
    const gd_shape shapes[] = { GD_SHAPE(1, 3),    GD_SHAPE(7, 11),   GD_SHAPE(64, 100),
                                GD_SHAPE(3, 4099), GD_SHAPE(301, 67), GD_SHAPE(513, 129) };
    int number = 0;
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int position = 0; position < 6; position++)
            for (int is_turned = 0; is_turned < 2; is_turned++) {
                if (!test_tries_similar(&number))
                    continue;
                check(add_noise, shapes[s], is_turned, position, 1);
                check(add_normal, shapes[s], is_turned, position, 2);
                check(noise_alone, shapes[s], is_turned, position, 1);
            }
}

static void words_of_several_readers_are_drawn_once(void **state)
{
    (void)state;
    check(read_twice, GD_SHAPE(20, 30), false, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_draw_the_words_of_their_elements),
        cmocka_unit_test(words_of_several_readers_are_drawn_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
