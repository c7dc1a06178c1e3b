/* guide_2.c: the program of docs/guide/2-a-matrix.md: a matrix product, its derivative, and a
 * layer of neurons as one. Run it with `make guide_2`; every number in the chapter is one it
 * prints. */
#include <gradus/gradus.h>
#include <gradus/scalar.h>

#include <stdio.h>

static void show(const char *name, const gd_tensor *t)
{
    char text[400];
    gd_tensor_format(t, text, sizeof text);
    printf("%s\n%s\n", name, text);
}

static void product(gd_context *gd)
{
    printf("== product\n");
    const float x_values[] = { 1, 2, 3, 4, 5, 6 }, w_values[] = { 1, 0, 0, 1, 1, 1 };
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(2, 3), GD_F32, x_values);
    gd_tensor *w = gd_from_host(gd, GD_SHAPE(3, 2), GD_F32, w_values);
    gd_set_requires_grad(x, true);
    gd_set_requires_grad(w, true);
    gd_tensor *y = gd_matmul(x, w);
    gd_backward(gd_sum(y, GD_ALL_AXES, false));
    show("Y = X @ W", y);
    show("dL/dW = XT @ G", gd_gradient(w));
    show("dL/dX = G @ WT", gd_gradient(x));
}

/* The perceptron of chapter 1, on all points at once: in x [points, 2] -> [points, 1]. */
static gd_tensor *perceptron(gd_module *m, gd_tensor *x)
{
    x = gd_relu(gd_nn_linear(m, "hidden1", x, 16));
    x = gd_relu(gd_nn_linear(m, "hidden2", x, 16));
    return gd_nn_linear(m, "out", x, 1);
}

static void layers(gd_context *gd)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    float points[100][2], side[100][1];
    gd_scalar_random random = { 11 };
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < 2; k++)
            points[i][k] = (float)gd_scalar_uniform(&random, -2.0, 2.0);
        side[i][0] = points[i][0] * points[i][1] > 0 ? 1 : -1;
    }
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(100, 2), GD_F32, points);
    gd_tensor *target = gd_from_host(gd, GD_SHAPE(100, 1), GD_F32, side);
    gd_tensor *loss = gd_mse(perceptron(m, x), target);
    char text[4000];
    gd_graph_format(loss, text, sizeof text);
    printf("== graph\n%s", text);
    printf("== sizes\n%lld parameters\n", (long long)gd_module_parameter_count(m));
}

static void mistake(gd_context *gd)
{
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 3), GD_F32);
    if (!gd_matmul(x, x))
        printf("== mistake\n%s\n", gd_error_message());
    gd_error_clear();
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    product(gd);
    layers(gd);
    mistake(gd);
    if (gd_error_code())
        fprintf(stderr, "guide_2: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
