/* guide_1.c: the program of docs/guide/1-one-number.md: derivatives of a formula, and a small
 * network of single numbers that learns. Run it with `make guide_1`; every number in the chapter is
 * one it prints. */
#include <gradus/scalar.h>

#include <stdio.h>

enum { POINTS = 100, STEPS = 50 };

/* d = a b + a */
static gd_value *formula(gd_value *a, gd_value *b)
{
    gd_value *c = gd_value_mul(a, b);
    gd_value *d = gd_value_add(c, a);
    gd_value_release(c);
    return d;
}

static double formula_at(double a, double b)
{
    gd_value *x = gd_value_create_leaf(a), *y = gd_value_create_leaf(b);
    gd_value *d = formula(x, y);
    double result = gd_value_data(d);
    gd_value_release(d);
    gd_value_release(x);
    gd_value_release(y);
    return result;
}

static void show_derivatives(void)
{
    printf("== derivatives\n");
    gd_value *a = gd_value_create_leaf(2.0);
    gd_value *b = gd_value_create_leaf(-3.0);
    gd_value *d = formula(a, b);
    gd_value_backward(d);
    printf("d = %g, dd/da = %g, dd/db = %g\n", gd_value_data(d), gd_value_grad(a),
           gd_value_grad(b));
    gd_value_backward(d);
    printf("after a second backward: dd/da = %g\n", gd_value_grad(a));
    const double h = 0.25;
    printf("by differences: dd/da = %g, dd/db = %g\n",
           (formula_at(2.0 + h, -3.0) - formula_at(2.0 - h, -3.0)) / (2 * h),
           (formula_at(2.0, -3.0 + h) - formula_at(2.0, -3.0 - h)) / (2 * h));
    gd_value_release(d);
    gd_value_release(a);
    gd_value_release(b);
}

/* (network(x, y) - target)^2 of one point; a point's target is 1 where x y > 0, else -1. */
static gd_value *error_of(const gd_mlp *mlp, double x, double y)
{
    gd_scalar_vector *input = gd_scalar_vector_create();
    gd_scalar_vector_push_leaf(input, x);
    gd_scalar_vector_push_leaf(input, y);
    gd_scalar_vector *output = gd_mlp_forward(mlp, input);
    gd_value *target = gd_value_create_leaf(x * y > 0.0 ? 1.0 : -1.0);
    gd_value *error = gd_value_sub(gd_scalar_vector_get(output, 0), target);
    gd_value *square = gd_value_pow(error, 2.0);
    gd_value_release(error);
    gd_value_release(target);
    gd_scalar_vector_destroy(output);
    gd_scalar_vector_destroy(input);
    return square;
}

/* The mean over all points, as one graph. */
static gd_value *mean_loss(const gd_mlp *mlp)
{
    gd_scalar_random random = { 11 };
    gd_value *sum = gd_value_create_leaf(0.0);
    for (int i = 0; i < POINTS; i++) {
        double x = gd_scalar_uniform(&random, -2.0, 2.0), y = gd_scalar_uniform(&random, -2.0, 2.0);
        sum = gd_value_accumulate(sum, error_of(mlp, x, y));
    }
    gd_value *share = gd_value_create_leaf(1.0 / POINTS);
    gd_value *mean = gd_value_mul(sum, share);
    gd_value_release(share);
    gd_value_release(sum);
    return mean;
}

static void train(void)
{
    printf("== training\n");
    gd_mlp *mlp = gd_mlp_create((size_t[]){ 2, 16, 16, 1 }, 4, GD_SCALAR_LINEAR, 1);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_mlp_parameters(mlp, parameters);
    size_t count = gd_scalar_vector_size(parameters);
    printf("%zu parameters, %d points\n", count, POINTS);
    for (int step = 0; step <= STEPS; step++) {
        gd_value *loss = mean_loss(mlp); // forward: how wrong is it, over all points
        if (step == 0)
            printf("%zu values in the graph\n", gd_scalar_live_values() - count);
        if (step % 10 == 0)
            printf("step %2d  loss %.4f\n", step, gd_value_data(loss));
        gd_scalar_zero_grad(parameters);
        gd_value_backward(loss); // how does each parameter matter
        gd_value_release(loss);
        gd_scalar_descend(parameters, 0.1); // a small step against it
    }
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
}

int main(void)
{
    show_derivatives();
    train();
    printf("%zu values left\n", gd_scalar_live_values());
    if (*gd_scalar_error())
        fprintf(stderr, "guide_1: %s\n", gd_scalar_error());
    return *gd_scalar_error() != '\0';
}
