/* bench/bench_scalar.c: the scalar engine against the obvious way to write it, and against
 * micrograd. One JSON object a line on stdout, a table on stderr.
 *
 * The work: a 2 -> 16 -> 16 -> 1 perceptron over 100 points, the squared errors added up in one
 * graph of some 64,000 values; forward, backward, release. Peers:
 *
 *   malloc per node            reference-counted nodes, one malloc and one free each, released by
 *                              recursion; backward with a growing stack and a mark in the node.
 *                              Section 1 below.
 *   malloc per node, hash set  the same, but what backward has seen is kept in a set of pointers,
 *                              as in micrograd
 *   micrograd (Python)         if the interpreter that BENCH_PEERS_PYTHON names, or else python3,
 *                              can import it
 *
 * The loss and all gradients are compared before anything is timed. Ours and the C peers take turns
 * in each round; the median of the rounds counts. Time is processor time per node made: a peer that
 * needs more nodes for the same work is not charged for it.
 */
#include "measure.h"

#include <gradus/scalar.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POINTS = 100, WARM_UP = 5, ROUNDS = 61 };

static const size_t sizes[] = { 2, 16, 16, 1 };
enum { LAYERS = 3, WIDEST = 16, PARAMETERS = 3 * 16 + 17 * 16 + 17 };

/* What all work on. */
static double weights[PARAMETERS]; // as gd_mlp_parameters orders them
static double points[POINTS][2];
static double targets[POINTS];

/* What one run of the work gave. */
typedef struct outcome {
    double loss;
    double gradients[PARAMETERS];
    size_t nodes;
    double forward, backward, release; /* seconds */
} outcome;

/* ---- 1. The obvious way ---- */

typedef enum plain_op { PLAIN_LEAF, PLAIN_ADD, PLAIN_SUB, PLAIN_MUL, PLAIN_RELU } plain_op;

typedef struct plain_node {
    double data, grad;
    plain_op op;
    struct plain_node *left, *right;
    size_t references;
    size_t seen; /* number of the backward pass that last saw it */
} plain_node;

static size_t plain_made;

static void out_of_memory(void)
{
    gd_bench_die("out of memory");
}

static plain_node *plain_create(plain_op op, double data, plain_node *left, plain_node *right)
{
    plain_node *node = malloc(sizeof *node);
    if (node == NULL)
        out_of_memory();
    *node = (plain_node){ .data = data, .op = op, .left = left, .right = right, .references = 1 };
    if (left != NULL)
        left->references++;
    if (right != NULL)
        right->references++;
    plain_made++;
    return node;
}

static void plain_release(plain_node *node)
{
    if (node == NULL || --node->references > 0)
        return;
    plain_release(node->left);
    plain_release(node->right);
    free(node);
}

static plain_node *plain_add(plain_node *a, plain_node *b)
{
    return plain_create(PLAIN_ADD, a->data + b->data, a, b);
}

static plain_node *plain_sub(plain_node *a, plain_node *b)
{
    return plain_create(PLAIN_SUB, a->data - b->data, a, b);
}

static plain_node *plain_mul(plain_node *a, plain_node *b)
{
    return plain_create(PLAIN_MUL, a->data * b->data, a, b);
}

static plain_node *plain_relu(plain_node *a)
{
    return plain_create(PLAIN_RELU, a->data > 0.0 ? a->data : 0.0, a, NULL);
}

typedef struct plain_list {
    plain_node **items;
    size_t size, capacity;
} plain_list;

static void plain_push(plain_list *list, plain_node *node)
{
    if (list->size == list->capacity) {
        list->capacity = list->capacity > 0 ? 2 * list->capacity : 64;
        list->items = realloc(list->items, list->capacity * sizeof *list->items);
        if (list->items == NULL)
            out_of_memory();
    }
    list->items[list->size++] = node;
}

/* Whether this backward pass meets `node` for the first time: in the set, if there is one, else by
 * the mark. */
static bool first_visit(plain_node *node, gd_scalar_set *set, size_t pass)
{
    if (set != NULL)
        return gd_scalar_set_insert(set, node) == 1;
    bool first = node->seen != pass;
    node->seen = pass;
    return first;
}

static void plain_backward(plain_node *root, bool with_set)
{
    static size_t pass;
    pass++;
    gd_scalar_set *set = with_set ? gd_scalar_set_create() : NULL;
    plain_list stack = { 0 }, order = { 0 };

    /* Each node is pushed to be opened, and once more, marked by a NULL below it, to be finished.
     */
    plain_push(&stack, root);
    while (stack.size > 0) {
        plain_node *node = stack.items[--stack.size];
        if (node == NULL) {
            plain_push(&order, stack.items[--stack.size]);
            continue;
        }
        if (!first_visit(node, set, pass))
            continue;
        plain_push(&stack, node);
        plain_push(&stack, NULL);
        if (node->right != NULL)
            plain_push(&stack, node->right);
        if (node->left != NULL)
            plain_push(&stack, node->left);
    }

    root->grad = 1.0;
    while (order.size > 0) {
        plain_node *c = order.items[--order.size];
        switch (c->op) {
        case PLAIN_LEAF:
            break;
        case PLAIN_ADD:
            c->left->grad += c->grad;
            c->right->grad += c->grad;
            break;
        case PLAIN_SUB:
            c->left->grad += c->grad;
            c->right->grad -= c->grad;
            break;
        case PLAIN_MUL:
            c->left->grad += c->grad * c->right->data;
            c->right->grad += c->grad * c->left->data;
            break;
        case PLAIN_RELU:
            c->left->grad += c->data > 0.0 ? c->grad : 0.0;
            break;
        }
    }
    free(order.items);
    free(stack.items);
    gd_scalar_set_destroy(set);
}

/* A layer of `outputs` neurons with `parameters` [outputs * (inputs + 1)] from `x` [inputs] to `y`
 * [outputs]. */
static void plain_layer(plain_node *const *parameters, size_t inputs, size_t outputs, bool relu,
                        plain_node *const *x, plain_node **y)
{
    for (size_t neuron = 0; neuron < outputs; neuron++) {
        plain_node *const *w = parameters + neuron * (inputs + 1);
        plain_node *sum = w[inputs];
        sum->references++;
        for (size_t i = 0; i < inputs; i++) {
            plain_node *product = plain_mul(w[i], x[i]);
            plain_node *next = plain_add(sum, product);
            plain_release(product);
            plain_release(sum);
            sum = next;
        }
        y[neuron] = relu ? plain_relu(sum) : sum;
        if (relu)
            plain_release(sum);
    }
}

/* A new node: the network's output for `input` [2]. */
static plain_node *plain_mlp(plain_node *const *parameters, plain_node *const *input)
{
    plain_node *x[WIDEST] = { input[0], input[1] };
    for (size_t layer = 0; layer < LAYERS; layer++) {
        plain_node *y[WIDEST];
        plain_layer(parameters, sizes[layer], sizes[layer + 1], layer + 1 < LAYERS, x, y);
        parameters += sizes[layer + 1] * (sizes[layer] + 1);
        for (size_t i = 0; layer > 0 && i < sizes[layer]; i++)
            plain_release(x[i]);
        memcpy(x, y, sizes[layer + 1] * sizeof *y);
    }
    return x[0];
}

static struct {
    plain_node *parameters[PARAMETERS];
    plain_node *points[POINTS][2];
    plain_node *targets[POINTS];
} plain;

static void plain_open(void)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        plain.parameters[i] = plain_create(PLAIN_LEAF, weights[i], NULL, NULL);
    for (size_t i = 0; i < POINTS; i++) {
        plain.points[i][0] = plain_create(PLAIN_LEAF, points[i][0], NULL, NULL);
        plain.points[i][1] = plain_create(PLAIN_LEAF, points[i][1], NULL, NULL);
        plain.targets[i] = plain_create(PLAIN_LEAF, targets[i], NULL, NULL);
    }
}

static void plain_close(void)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        plain_release(plain.parameters[i]);
    for (size_t i = 0; i < POINTS; i++) {
        plain_release(plain.points[i][0]);
        plain_release(plain.points[i][1]);
        plain_release(plain.targets[i]);
    }
}

static void run_plain(bool with_set, outcome *out)
{
    for (size_t i = 0; i < PARAMETERS; i++)
        plain.parameters[i]->grad = 0.0;
    size_t before = plain_made;
    double start = gd_bench_now(1);
    plain_node *loss = plain_create(PLAIN_LEAF, 0.0, NULL, NULL);
    for (size_t i = 0; i < POINTS; i++) {
        plain_node *y = plain_mlp(plain.parameters, plain.points[i]);
        plain_node *error = plain_sub(y, plain.targets[i]);
        plain_node *squared = plain_mul(error, error);
        plain_node *sum = plain_add(loss, squared);
        plain_release(y);
        plain_release(error);
        plain_release(squared);
        plain_release(loss);
        loss = sum;
    }
    double forward = gd_bench_now(1);
    plain_backward(loss, with_set);
    double backward = gd_bench_now(1);
    out->loss = loss->data;
    out->nodes = plain_made - before;
    plain_release(loss);
    double release = gd_bench_now(1);
    out->forward = forward - start;
    out->backward = backward - forward;
    out->release = release - backward;
    for (size_t i = 0; i < PARAMETERS; i++)
        out->gradients[i] = plain.parameters[i]->grad;
}

static void run_plain_mark(outcome *out)
{
    run_plain(false, out);
}

static void run_plain_set(outcome *out)
{
    run_plain(true, out);
}

/* ---- 2. Ours ---- */

static struct {
    gd_mlp *mlp;
    gd_scalar_vector *parameters; // [PARAMETERS]
    gd_scalar_vector *points[POINTS];
    gd_value *targets[POINTS];
} ours;

/* Makes the network and the points, and writes down the numbers for the others. */
static void ours_open(void)
{
    gd_scalar_random random = { 1 };
    bool well = true;
    ours.mlp = gd_mlp_create(sizes, LAYERS + 1, GD_SCALAR_LINEAR, 7);
    ours.parameters = gd_scalar_vector_create();
    well = gd_mlp_parameters(ours.mlp, ours.parameters) == 0;
    for (size_t i = 0; i < POINTS; i++) {
        ours.points[i] = gd_scalar_vector_create();
        for (size_t k = 0; k < 2; k++) {
            points[i][k] = gd_scalar_uniform(&random, -1.0, 1.0);
            well = gd_scalar_vector_push_leaf(ours.points[i], points[i][k]) == 0 && well;
        }
        targets[i] = points[i][0] * points[i][1] > 0.0 ? 1.0 : -1.0;
        ours.targets[i] = gd_value_create_leaf(targets[i]);
        well = ours.targets[i] != NULL && well;
    }
    if (!well)
        out_of_memory();
    for (size_t i = 0; i < PARAMETERS; i++)
        weights[i] = gd_value_data(gd_scalar_vector_get(ours.parameters, i));
}

static void ours_close(void)
{
    for (size_t i = 0; i < POINTS; i++) {
        gd_scalar_vector_destroy(ours.points[i]);
        gd_value_release(ours.targets[i]);
    }
    gd_scalar_vector_destroy(ours.parameters);
    gd_mlp_destroy(ours.mlp);
}

static void run_ours(outcome *out)
{
    gd_scalar_zero_grad(ours.parameters);
    size_t before = gd_scalar_live_values();
    double start = gd_bench_now(1);
    gd_value *loss = gd_value_create_leaf(0.0);
    for (size_t i = 0; i < POINTS; i++) {
        gd_scalar_vector *y = gd_mlp_forward(ours.mlp, ours.points[i]);
        gd_value *error = gd_value_sub(gd_scalar_vector_get(y, 0), ours.targets[i]);
        loss = gd_value_accumulate(loss, gd_value_mul(error, error));
        gd_value_release(error);
        gd_scalar_vector_destroy(y);
    }
    double forward = gd_bench_now(1);
    if (gd_value_backward(loss) != 0)
        out_of_memory();
    double backward = gd_bench_now(1);
    out->loss = gd_value_data(loss);
    out->nodes = gd_scalar_live_values() - before;
    gd_value_release(loss);
    double release = gd_bench_now(1);
    out->forward = forward - start;
    out->backward = backward - forward;
    out->release = release - backward;
    for (size_t i = 0; i < PARAMETERS; i++)
        out->gradients[i] = gd_value_grad(gd_scalar_vector_get(ours.parameters, i));
}

/* ---- 3. micrograd ---- */

/* The numbers go to a file, bench/peers/micrograd_peer.py reads them, does the work, and prints a
 * line for each thing measured: its name and numbers. */
static bool write_problem(FILE *file)
{
    bool well = fprintf(file, "weights") > 0;
    for (size_t i = 0; i < PARAMETERS; i++)
        well = fprintf(file, " %.17g", weights[i]) > 0 && well;
    well = fprintf(file, "\n") > 0 && well;
    for (size_t i = 0; i < POINTS; i++)
        well = fprintf(file, "point %.17g %.17g %.17g\n", points[i][0], points[i][1], targets[i]) >
                   0 &&
               well;
    return well;
}

/* What the script prints, to the lines of measure.h: "version V", "nodes N", "ns NS SPREAD", "loss
 * X", "gradients X..." as often as it takes for all. Whether all of it was there. */
static bool read_outcome(gd_bench_process *process, outcome *out, gd_bench_timing *node, char *name,
                         size_t name_size)
{
    gd_bench_line line;
    size_t gradients = 0;
    while (gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "version") == 0)
            snprintf(name, name_size, "micrograd %.40s", line.text);
        else if (strcmp(line.kind, "nodes") == 0)
            out->nodes = (size_t)line.numbers[0];
        else if (strcmp(line.kind, "ns") == 0 && line.count > 1)
            *node = (gd_bench_timing){ line.numbers[0] * 1e-9, line.numbers[1] };
        else if (strcmp(line.kind, "loss") == 0)
            out->loss = line.numbers[0];
        else if (strcmp(line.kind, "gradients") == 0)
            for (int i = 0; i < line.count && gradients < PARAMETERS; i++)
                out->gradients[gradients++] = line.numbers[i];
    }
    return gradients == PARAMETERS && out->nodes > 0;
}

/* false: there is no micrograd here, or no Python. */
static bool run_micrograd(outcome *out, gd_bench_timing *node, char *name, size_t name_size)
{
    char path[] = "/tmp/bench_scalar.XXXXXX";
    int handle = mkstemp(path);
    FILE *file = handle >= 0 ? fdopen(handle, "w") : NULL;
    if (file == NULL)
        return false;
    bool well = write_problem(file);
    well = fclose(file) == 0 && well;
    const char *arguments[] = { gd_bench_python(), GD_SOURCE_DIR "/bench/peers/micrograd_peer.py",
                                path, NULL };
    gd_bench_process *process = well ? gd_bench_start(arguments, 1) : NULL;
    well = process != NULL && read_outcome(process, out, node, name, name_size);
    if (process != NULL)
        well = gd_bench_finish(process) == 0 && well;
    remove(path);
    return well;
}

/* ---- 4. Comparing ---- */

static bool agree(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(1.0, fmax(fabs(a), fabs(b)));
}

/* Whether two runs came to the same loss and gradients. */
static bool same_outcome(const outcome *a, const outcome *b)
{
    bool same = agree(a->loss, b->loss);
    for (size_t i = 0; i < PARAMETERS; i++)
        same = agree(a->gradients[i], b->gradients[i]) && same;
    return same;
}

enum { OURS, PLAIN_MARK, PLAIN_SET, RUNNERS };

static const struct {
    const char *name;
    void (*run)(outcome *);
} runners[RUNNERS] = {
    { "gradus", run_ours },
    { "malloc per node", run_plain_mark },
    { "malloc per node, hash set", run_plain_set },
};

enum { FORWARD, BACKWARD, RELEASE, ALL, PHASES };

static gd_bench_timing summary(double samples[ROUNDS])
{
    const double middle = gd_bench_median(samples, ROUNDS);
    return (gd_bench_timing){ middle, (samples[3 * (ROUNDS - 1) / 4] - samples[(ROUNDS - 1) / 4]) /
                                          middle };
}

static void print_row(const char *what, gd_bench_timing node, gd_bench_timing peer,
                      const char *peer_name, bool verified)
{
    gd_bench_row row =
        gd_bench_make_row("scalar", what, 1, "ns/node", node.seconds * 1e9, verified);
    row.ours_spread = node.spread;
    row.peer = peer.seconds * 1e9;
    row.peer_spread = peer.spread;
    row.peer_name = peer_name;
    gd_bench_print_row(&row);
}

int main(void)
{
    static outcome outcomes[RUNNERS];
    static double samples[RUNNERS][PHASES][ROUNDS];
    gd_bench_pin(1);
    ours_open();
    plain_open();

    bool verified[RUNNERS] = { true };
    for (int r = 0; r < RUNNERS; r++) {
        runners[r].run(&outcomes[r]);
        verified[r] = same_outcome(&outcomes[OURS], &outcomes[r]);
    }
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        for (int r = 0; r < RUNNERS; r++) {
            /* The first of two runs fetches its memory back from where the others drove it, as no
             * training loop would have to. */
            outcome *o = &outcomes[r];
            runners[r].run(o);
            runners[r].run(o);
            if (round < 0)
                continue;
            double per_node = 1 / (double)o->nodes;
            samples[r][FORWARD][round] = o->forward * per_node;
            samples[r][BACKWARD][round] = o->backward * per_node;
            samples[r][RELEASE][round] = o->release * per_node;
            samples[r][ALL][round] = (o->forward + o->backward + o->release) * per_node;
        }
    }

    gd_bench_timing node[RUNNERS][PHASES];
    for (int r = 0; r < RUNNERS; r++)
        for (int phase = 0; phase < PHASES; phase++)
            node[r][phase] = summary(samples[r][phase]);

    static const char *const cases[PHASES] = { "mlp 2-16-16-1 x100, forward",
                                               "mlp 2-16-16-1 x100, backward",
                                               "mlp 2-16-16-1 x100, release",
                                               "mlp 2-16-16-1 x100" };
    for (int r = PLAIN_MARK; r < RUNNERS; r++)
        for (int phase = 0; phase < PHASES; phase++)
            print_row(cases[phase], node[OURS][phase], node[r][phase], runners[r].name,
                      verified[r]);

    static outcome python;
    char name[96];
    gd_bench_timing python_node = { NAN, NAN };
    if (run_micrograd(&python, &python_node, name, sizeof name))
        print_row(cases[ALL], node[OURS][ALL], python_node, name,
                  same_outcome(&outcomes[OURS], &python));
    else
        fprintf(
            stderr,
            "micrograd: not found (BENCH_PEERS_PYTHON may name a Python that has it); left out\n");
    plain_close();
    ours_close();
    return gd_bench_all_verified() ? 0 : 1;
}
