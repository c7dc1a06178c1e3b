/* examples/tabular.c: a table of measured flowers (Fisher's irises, data/iris/iris.csv), used
 * twice: a classifier tells the species from four measurements, and a regression tells the fourth
 * measurement, the petal's width, from the other three. Run it from the top of the source: make
 * tabular. Every third flower is kept for testing. */
#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>

enum { FLOWERS = 150, MEASURES = 4, TEST = FLOWERS / 3, TRAIN = FLOWERS - TEST, STEPS = 300 };
static const double WANTED_ACCURACY = 0.94, WANTED_R2 = 0.9;

typedef struct table {
    float value[FLOWERS][MEASURES]; /* standardised: mean 0, deviation 1 */
    int64_t species[FLOWERS];
    double mean[MEASURES], deviation[MEASURES];
} table;

/* The file's rows, those for testing last. */
static bool read_table(const char *path, table *t)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    char line[256];
    int row = 0;
    while (row < FLOWERS && fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        int at = row % 3 == 2 ? TRAIN + row / 3 : row / 3 * 2 + row % 3, species;
        float *v = t->value[at];
        if (sscanf(line, "%f,%f,%f,%f,%d", &v[0], &v[1], &v[2], &v[3], &species) != MEASURES + 1)
            break;
        t->species[at] = species;
        row++;
    }
    fclose(file);
    return row == FLOWERS;
}

/* By means and deviations of what is learned from. */
static void standardise(table *t)
{
    for (int c = 0; c < MEASURES; c++) {
        double sum = 0.0, square = 0.0;
        for (int i = 0; i < TRAIN; i++)
            sum += (double)t->value[i][c];
        t->mean[c] = sum / TRAIN;
        for (int i = 0; i < TRAIN; i++)
            square += pow((double)t->value[i][c] - t->mean[c], 2);
        t->deviation[c] = sqrt(square / TRAIN);
        for (int i = 0; i < FLOWERS; i++)
            t->value[i][c] = (float)(((double)t->value[i][c] - t->mean[c]) / t->deviation[c]);
    }
}

typedef struct trainee {
    gd_module *model;
    gd_optimizer *optimizer;
    int64_t outputs;
} trainee;

/* x [n, in] -> [n, outputs] */
static gd_tensor *network(const trainee *t, gd_tensor *x)
{
    x = gd_tanh(gd_nn_linear(t->model, "hidden", x, 16));
    return gd_nn_linear(t->model, "out", x, t->outputs);
}

static gd_tensor *classify_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_cross_entropy(network(t, in[0]), in[1]));
}

static gd_tensor *regress_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_mse(network(t, in[0]), in[1]));
}

/* All steps on the whole table; the last loss. */
static double train(gd_context *gd, trainee *t, gd_function_body step, gd_tensor *const *in)
{
    gd_function *f = gd_compile(gd, step, t);
    double loss = NAN;
    for (int i = 0; i < STEPS && !gd_error_code(); i++)
        loss = gd_item(gd_call(f, 2, in));
    return loss;
}

static bool classify(gd_context *gd, gd_tensor *all, const table *t)
{
    gd_module *model = gd_module_create(gd, .seed = 1);
    trainee tr = { model, gd_adamw(model, .lr = 1e-2, .weight_decay = 0.5), 3 };
    gd_tensor *species = gd_from_host(gd, GD_SHAPE(FLOWERS), GD_I64, t->species);
    gd_tensor *in[2] = { gd_slice(all, 0, 0, TRAIN, 1), gd_slice(species, 0, 0, TRAIN, 1) };
    double loss = train(gd, &tr, classify_step, in);
    gd_tensor *unseen = network(&tr, gd_slice(all, 0, TRAIN, FLOWERS, 1));
    double accuracy = gd_item(gd_accuracy(unseen, gd_slice(species, 0, TRAIN, FLOWERS, 1)));
    printf("species from four measurements: loss %.4f; %.1f %% of %d unseen flowers are right\n",
           loss, 100.0 * accuracy, TEST);
    return accuracy >= WANTED_ACCURACY;
}

static bool regress(gd_context *gd, gd_tensor *all, const table *t)
{
    gd_module *model = gd_module_create(gd, .seed = 1);
    trainee tr = { model, gd_adamw(model, .lr = 1e-2, .weight_decay = 0.05), 1 };
    gd_tensor *x = gd_slice(all, 1, 0, 3, 1), *y = gd_slice(all, 1, 3, 4, 1);
    gd_tensor *in[2] = { gd_contiguous(gd_slice(x, 0, 0, TRAIN, 1)),
                         gd_contiguous(gd_slice(y, 0, 0, TRAIN, 1)) };
    double loss = train(gd, &tr, regress_step, in);
    gd_tensor *truth = gd_slice(y, 0, TRAIN, FLOWERS, 1);
    double error =
        gd_item(gd_mse(network(&tr, gd_slice(x, 0, TRAIN, FLOWERS, 1)), gd_contiguous(truth)));
    double r2 = 1.0 - error / gd_item(gd_var(truth, GD_ALL_AXES, 0, false));
    printf("petal width from three measurements: loss %.4f; unseen flowers: off by %.2f cm (root "
           "mean square), R2 %.3f\n",
           loss, sqrt(error) * t->deviation[3], r2);
    return r2 >= WANTED_R2;
}

int main(int argc, char **argv)
{
    static table t;
    const char *path = argc > 1 ? argv[1] : "data/iris/iris.csv";
    if (!read_table(path, &t)) {
        fprintf(stderr, "tabular: %s cannot be read as the table of irises\n", path);
        return 1;
    }
    standardise(&t);
    gd_context *gd = gd_open("cpu");
    gd_tensor *all = gd_from_host(gd, GD_SHAPE(FLOWERS, MEASURES), GD_F32, t.value);
    bool classified = classify(gd, all, &t), regressed = regress(gd, all, &t);
    bool failed = gd_error_code() != GD_OK;
    if (failed)
        fprintf(stderr, "tabular: %s\n", gd_error_message());
    else if (!classified || !regressed)
        fprintf(stderr, "tabular: %.0f %% and an R2 of %.2f were expected\n",
                100.0 * WANTED_ACCURACY, WANTED_R2);
    gd_close(gd);
    return failed || !classified || !regressed;
}
