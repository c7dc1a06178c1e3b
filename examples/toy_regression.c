/* toy_regression.c: a small network learns a curve from forty noisy points, one number at a time.
 *
 * Prints the loss as it falls and then what was learned: the points (o), the network's answer (#),
 * and the curve the points were taken from (.). Run it with `make toy_regression`. The engine is
 * explained in docs/guide/1-one-number.md.
 */
#include <gradus/scalar.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 40, STEPS = 1000, PLOT_WIDTH = 73, PLOT_HEIGHT = 19 };

static double curve(double x)
{
    return sin(1.5 * x);
}

/* Mean squared error over all points, as a graph. The caller owns the result. */
static gd_value *mean_squared_error(const gd_mlp *mlp, const double *x, const double *y)
{
    gd_value *sum = gd_value_create_leaf(0.0);
    for (int i = 0; i < POINTS; i++) {
        gd_scalar_vector *input = gd_scalar_vector_create();
        gd_scalar_vector_push_leaf(input, x[i]);
        gd_scalar_vector *output = gd_mlp_forward(mlp, input);
        gd_value *target = gd_value_create_leaf(y[i]);
        gd_value *error = gd_value_sub(gd_scalar_vector_get(output, 0), target);
        sum = gd_value_accumulate(sum, gd_value_mul(error, error));
        gd_value_release(error);
        gd_value_release(target);
        gd_scalar_vector_destroy(output);
        gd_scalar_vector_destroy(input);
    }
    gd_value *count = gd_value_create_leaf(POINTS);
    gd_value *mean = gd_value_div(sum, count);
    gd_value_release(count);
    gd_value_release(sum);
    return mean;
}

/* What the network answers to x; no gradient is wanted, so the graph goes at once. */
static double answer(const gd_mlp *mlp, double x)
{
    gd_scalar_vector *input = gd_scalar_vector_create();
    gd_scalar_vector_push_leaf(input, x);
    gd_scalar_vector *output = gd_mlp_forward(mlp, input);
    double y = gd_value_data(gd_scalar_vector_get(output, 0));
    gd_scalar_vector_destroy(output);
    gd_scalar_vector_destroy(input);
    return y;
}

/* ---- The plot: x from -3 to 3, y from -1.5 to 1.5 -------------------------------------------- */

static void mark(char plot[PLOT_HEIGHT][PLOT_WIDTH + 1], int column, double y, char symbol)
{
    int row = (int)lround((1.5 - y) / 3.0 * (PLOT_HEIGHT - 1));
    if (row >= 0 && row < PLOT_HEIGHT)
        plot[row][column] = symbol;
}

static void print_plot(const gd_mlp *mlp, const double *x, const double *y)
{
    char plot[PLOT_HEIGHT][PLOT_WIDTH + 1];
    memset(plot, ' ', sizeof plot);
    for (int column = 0; column < PLOT_WIDTH; column++) {
        double at = -3.0 + 6.0 * column / (PLOT_WIDTH - 1);
        mark(plot, column, curve(at), '.');
        mark(plot, column, answer(mlp, at), '#');
    }
    for (int i = 0; i < POINTS; i++)
        mark(plot, (int)lround((x[i] + 3.0) / 6.0 * (PLOT_WIDTH - 1)), y[i], 'o');
    for (int row = 0; row < PLOT_HEIGHT; row++)
        printf("%5.2f |%.*s\n", 1.5 - 3.0 * row / (PLOT_HEIGHT - 1), PLOT_WIDTH, plot[row]);
    printf("      +");
    for (int column = 0; column < PLOT_WIDTH; column++)
        putchar(column % 12 == 0 ? '+' : '-');
    printf("\n      -3          -2          -1           0           1           2           3\n");
    printf("o a point to learn from   # the network   . the curve behind the points\n");
}

int main(void)
{
    gd_scalar_random random = { 3 };
    double x[POINTS], y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        x[i] = -3.0 + 6.0 * (i + gd_scalar_uniform(&random, 0.0, 1.0)) / POINTS;
        y[i] = curve(x[i]) + gd_scalar_uniform(&random, -0.2, 0.2);
    }

    static const size_t sizes[] = { 1, 16, 16, 1 };
    gd_mlp *mlp = gd_mlp_create(sizes, 4, GD_SCALAR_LINEAR, 2);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_mlp_parameters(mlp, parameters);
    printf("1-16-16-1 perceptron, %zu parameters, %d points\n\n", gd_scalar_vector_size(parameters),
           POINTS);

    int status = 0;
    for (int step = 0; step <= STEPS && status == 0; step++) {
        gd_value *loss = mean_squared_error(mlp, x, y);
        if (step % 100 == 0)
            printf("step %4d   loss %.5f\n", step, gd_value_data(loss));
        gd_scalar_zero_grad(parameters);
        status = gd_value_backward(loss);
        gd_value_release(loss);
        gd_scalar_descend(parameters, 0.03);
    }
    if (status == 0) {
        putchar('\n');
        print_plot(mlp, x, y);
    } else {
        fprintf(stderr, "toy_regression: %s\n", gd_scalar_error());
    }
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
    return status == 0 ? 0 : 1;
}
