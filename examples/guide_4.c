/* guide_4.c: the program of docs/guide/4-convolution.md: a kernel slides over a picture, learns an
 * edge, and becomes a network. Run it with `make guide_4`; every number in the chapter is one it
 * prints. */
#include <gradus/gradus.h>

#include <stdio.h>

static void show(const char *name, const gd_tensor *t)
{
    char text[1000];
    gd_tensor_format(t, text, sizeof text);
    printf("%s\n%s\n", name, text);
}

/* The last two axes of [1, 1, rows, columns]. */
static gd_tensor *plane(gd_tensor *t)
{
    gd_shape s = gd_tensor_shape(t);
    return gd_reshape(t, GD_SHAPE(s.dim[2], s.dim[3]));
}

/* A white square of 3 x 3 on black, [1, 1, 6, 6], whose first row is `top`. */
static gd_tensor *picture(gd_context *gd, int top)
{
    float value[6][6] = { { 0 } };
    for (int i = top; i < top + 3; i++)
        for (int j = 2; j < 5; j++)
            value[i][j] = 1;
    return gd_from_host(gd, GD_SHAPE(1, 1, 6, 6), GD_F32, value);
}

/* What is right of a place less what is left of it: large where dark turns bright. */
static gd_tensor *edge_kernel(gd_context *gd)
{
    return gd_from_host(gd, GD_SHAPE(1, 1, 1, 3), GD_F32, (float[]){ -1, 0, 1 });
}

static void slide(gd_context *gd)
{
    gd_tensor *x = picture(gd, 1);
    printf("== edges\n");
    show("the picture", plane(x));
    show("its edges", plane(gd_conv2d(x, edge_kernel(gd), NULL)));
    show("two rows further down", plane(gd_conv2d(picture(gd, 3), edge_kernel(gd), NULL)));
}

/* The same as a matrix product: each row of `windows` is what the kernel sees at one place. */
static void as_product(gd_context *gd)
{
    gd_tensor *x = picture(gd, 1), *edges = gd_conv2d(x, edge_kernel(gd), NULL);
    gd_tensor *windows[3];
    for (int k = 0; k < 3; k++)
        windows[k] = gd_reshape(gd_slice(x, 3, k, k + 4, 1), GD_SHAPE(24, 1));
    gd_tensor *matrix = gd_concat(3, windows, 1);
    gd_tensor *product = gd_matmul(matrix, gd_reshape(edge_kernel(gd), GD_SHAPE(3, 1)));
    gd_tensor *difference = gd_abs(gd_sub(gd_reshape(product, GD_SHAPE(1, 1, 6, 4)), edges));
    printf("== product\n[24, 3] @ [3, 1]: difference %g\n",
           gd_item(gd_max(difference, GD_ALL_AXES, false)));
}

/* A kernel of zeros learns to give what the edge kernel gives, of random pictures. */
static void learn_edge(gd_context *gd)
{
    printf("== learning\n");
    gd_tensor *x = gd_uniform(gd, GD_SHAPE(8, 1, 6, 6), 0, 1, GD_F32);
    gd_tensor *wanted = gd_conv2d(x, edge_kernel(gd), NULL);
    gd_tensor *kernel = gd_set_requires_grad(gd_zeros(gd, GD_SHAPE(1, 1, 1, 3), GD_F32), true);
    for (int step = 0; step <= 60; step++) {
        gd_scope_begin(gd);
        gd_tensor *loss = gd_mse(gd_conv2d(x, kernel, NULL), wanted), *gradient;
        gd_grad(1, &loss, NULL, 1, &kernel, &gradient);
        if (step % 20 == 0)
            printf("step %2d  loss %.6f\n", step, gd_item(loss));
        gd_no_grad_begin(gd);
        gd_assign(kernel, gd_sub(kernel, gd_mul_scalar(gradient, 0.5)));
        gd_no_grad_end(gd);
        gd_scope_end(gd);
    }
    show("the kernel learned", gd_reshape(kernel, GD_SHAPE(3)));
}

/* LeNet's class (LeCun et al. 1998): x [batch, 1, 28, 28] -> logits [batch, 10]. */
static gd_tensor *network(gd_module *m, gd_tensor *x)
{
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 12, GD_SHAPE(5), .same = true)); // [batch, 12, 28, 28]
    x = gd_max_pool2d(x, GD_SHAPE(2));                                       // [batch, 12, 14, 14]
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 32, GD_SHAPE(5)));               // [batch, 32, 10, 10]
    x = gd_reshape(gd_max_pool2d(x, GD_SHAPE(2)), GD_SHAPE(-1, 32 * 5 * 5)); // [batch, 800]
    x = gd_relu(gd_nn_linear(m, "fc1", x, 84));
    return gd_nn_linear(m, "fc2", x, 10);
}

static void count(gd_context *gd)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    (void)network(m, gd_zeros(gd, GD_SHAPE(1, 1, 28, 28), GD_F32));
    char text[2000];
    gd_module_summary(m, text, sizeof text);
    printf("== network\n%s", text);
    gd_module *dense = gd_module_create(gd, .seed = 1);
    (void)gd_nn_linear(dense, "fc", gd_zeros(gd, GD_SHAPE(1, 28 * 28), GD_F32), 12 * 28 * 28);
    printf("a dense layer in conv1's place: %lld parameters\n",
           (long long)gd_module_parameter_count(dense));
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    slide(gd);
    as_product(gd);
    learn_edge(gd);
    count(gd);
    if (gd_error_code())
        fprintf(stderr, "guide_4: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
