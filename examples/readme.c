/* examples/readme.c: the program README.md shows: a small network learns the sine. The text between
 * the two marks stands there word for word; tools/check-readme sees to it. For a data set, a model
 * file and saving, see mnist.c. */

/* README begin */
#include <gradus/gradus.h>
#include <stdio.h>

/* in[0] x [n, 1], in[1] y [n, 1] -> loss []. Forward, backward and update; compiled, one call. */
static gd_tensor *step(void *optimizer, int count, gd_tensor *const *in)
{
    (void)count;
    gd_module *m = gd_optimizer_module(optimizer);
    gd_tensor *hidden = gd_tanh(gd_nn_linear(m, "hidden", in[0], 32));
    return gd_minimize(optimizer, gd_mse(gd_nn_linear(m, "out", hidden, 1), in[1]));
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_optimizer *adam = gd_adam(gd_module_create(gd, .seed = 1), .lr = 0.01);
    gd_tensor *x = gd_reshape(gd_linspace(gd, -3, 3, 64, GD_F32), GD_SHAPE(64, 1));
    gd_function *train = gd_compile(gd, step, adam);
    gd_tensor *sine[] = { x, gd_sin(x) };
    for (int i = 1; i <= 1000 && !gd_error_code(); i++) {
        double loss = gd_item(gd_call(train, 2, sine));
        if (i == 1 || i % 250 == 0)
            printf("step %4d  loss %.6f\n", i, loss);
    }
    gd_close(gd);
    if (gd_error_code())
        fprintf(stderr, "%s\n", gd_error_message());
    return gd_error_code() != GD_OK;
}
/* README end */
