/* moons.c: a small network learns to tell two half-moons apart, and draws where it sees the border.
 *
 * The loss is that of a support vector machine: max(0, 1 - target * score) for each point,
 * averaged, plus a little of every weight squared. This is the demonstration of Andrej Karpathy's
 * micrograd. Run it with `make moons`; the engine is explained in docs/guide/1-one-number.md.
 */
#include <gradus/scalar.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 100, STEPS = 200, PLOT_WIDTH = 72, PLOT_HEIGHT = 26 };

static const double left = -1.75, right = 2.75, top = 1.75, bottom = -1.25;

typedef struct point {
    double x, y;
    double target; /* 1: the upper moon; -1: the lower */
} point;

static void make_moons(point *points)
{
    gd_scalar_random random = { 1337 };
    for (int i = 0; i < POINTS; i++) {
        double angle = gd_scalar_uniform(&random, 0.0, 3.141592653589793);
        double noise_x = gd_scalar_uniform(&random, -0.17, 0.17);
        double noise_y = gd_scalar_uniform(&random, -0.17, 0.17);
        if (i % 2 == 0)
            points[i] = (point){ cos(angle) + noise_x, sin(angle) + noise_y, 1.0 };
        else
            points[i] = (point){ 1.0 - cos(angle) + noise_x, 0.5 - sin(angle) + noise_y, -1.0 };
    }
}

/* A new value: positive where the network sees the upper moon. */
static gd_value *score_of(const gd_mlp *mlp, double x, double y)
{
    gd_scalar_vector *input = gd_scalar_vector_create();
    gd_scalar_vector_push_leaf(input, x);
    gd_scalar_vector_push_leaf(input, y);
    gd_scalar_vector *output = gd_mlp_forward(mlp, input);
    gd_value *score = gd_value_retain(gd_scalar_vector_get(output, 0));
    gd_scalar_vector_destroy(output);
    gd_scalar_vector_destroy(input);
    return score;
}

/* factor * value, which it takes over. */
static gd_value *scaled(gd_value *value, double factor)
{
    gd_value *leaf = gd_value_create_leaf(factor);
    gd_value *product = gd_value_mul(leaf, value);
    gd_value_release(leaf);
    gd_value_release(value);
    return product;
}

/* max(0, 1 - target * score) of one point. */
static gd_value *hinge(gd_value *score, double target)
{
    gd_value *one = gd_value_create_leaf(1.0);
    gd_value *margin = gd_value_accumulate(one, scaled(gd_value_retain(score), -target));
    gd_value *loss = gd_value_relu(margin);
    gd_value_release(margin);
    return loss;
}

/* The whole loss as one graph, and how many points are on their right side. */
static gd_value *total_loss(const gd_mlp *mlp, const gd_scalar_vector *parameters,
                            const point *points, int *right_side)
{
    gd_value *losses = gd_value_create_leaf(0.0);
    *right_side = 0;
    for (int i = 0; i < POINTS; i++) {
        gd_value *score = score_of(mlp, points[i].x, points[i].y);
        *right_side += gd_value_data(score) * points[i].target > 0.0;
        losses = gd_value_accumulate(losses, hinge(score, points[i].target));
        gd_value_release(score);
    }
    gd_value *squares = gd_value_create_leaf(0.0);
    for (size_t i = 0; i < gd_scalar_vector_size(parameters); i++) {
        gd_value *p = gd_scalar_vector_get(parameters, i);
        squares = gd_value_accumulate(squares, gd_value_mul(p, p));
    }
    return gd_value_accumulate(scaled(losses, 1.0 / POINTS), scaled(squares, 1e-4));
}

static void print_plot(const gd_mlp *mlp, const point *points)
{
    char plot[PLOT_HEIGHT][PLOT_WIDTH];
    for (int row = 0; row < PLOT_HEIGHT; row++) {
        for (int column = 0; column < PLOT_WIDTH; column++) {
            double x = left + (right - left) * (column + 0.5) / PLOT_WIDTH;
            double y = top + (bottom - top) * (row + 0.5) / PLOT_HEIGHT;
            gd_value *score = score_of(mlp, x, y);
            plot[row][column] = gd_value_data(score) > 0.0 ? ':' : ' ';
            gd_value_release(score);
        }
    }
    for (int i = 0; i < POINTS; i++) {
        int column = (int)floor((points[i].x - left) / (right - left) * PLOT_WIDTH);
        int row = (int)floor((points[i].y - top) / (bottom - top) * PLOT_HEIGHT);
        if (row >= 0 && row < PLOT_HEIGHT && column >= 0 && column < PLOT_WIDTH)
            plot[row][column] = points[i].target > 0.0 ? 'O' : 'x';
    }
    for (int row = 0; row < PLOT_HEIGHT; row++)
        printf("    %.*s\n", PLOT_WIDTH, plot[row]);
    printf("\nO the upper moon   x the lower moon   : where the network says O\n");
}

int main(void)
{
    point points[POINTS];
    make_moons(points);
    static const size_t sizes[] = { 2, 16, 16, 1 };
    gd_mlp *mlp = gd_mlp_create(sizes, 4, GD_SCALAR_LINEAR, 1);
    gd_scalar_vector *parameters = gd_scalar_vector_create();
    gd_mlp_parameters(mlp, parameters);
    printf("2-16-16-1 perceptron, %zu parameters, %d points\n\n", gd_scalar_vector_size(parameters),
           POINTS);

    int status = 0;
    for (int step = 0; step <= STEPS && status == 0; step++) {
        int right_side;
        gd_value *loss = total_loss(mlp, parameters, points, &right_side);
        if (step % 20 == 0)
            printf("step %3d   loss %.4f   %3d of %d points on their side\n", step,
                   gd_value_data(loss), right_side, POINTS);
        gd_scalar_zero_grad(parameters);
        status = gd_value_backward(loss);
        gd_value_release(loss);
        gd_scalar_descend(parameters, 1.0 - 0.9 * step / STEPS); /* ever smaller steps */
    }
    if (status == 0) {
        putchar('\n');
        print_plot(mlp, points);
    } else {
        fprintf(stderr, "moons: %s\n", gd_scalar_error());
    }
    gd_scalar_vector_destroy(parameters);
    gd_mlp_destroy(mlp);
    return status == 0 ? 0 : 1;
}
