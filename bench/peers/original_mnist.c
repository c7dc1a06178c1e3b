/* bench/peers/original_mnist.c: the work of bench_mnist_mlp in the way of the C program that Gradus
 * grew out of, written anew as a peer. It stands alone, knows nothing of Gradus, and is compiled
 * with plain -O2. What makes it what it is:
 *
 *   - rank-2, row-major f32 matrices out of one linear arena;
 *   - a node for each op, with value, gradient and up to two inputs; the graph is made once for ONE
 *     example, sorted by depth-first search into a forward and a backward program, and run example
 *     by example; gradients add up over the batch;
 *   - a matrix product of three plain loops, one text for each choice of transposed operands;
 *   - softmax's gradient by way of the whole 10 x 10 Jacobian.
 *
 *     original_mnist PROBLEM STEPS
 *
 * reads the problem file of bench_mnist_mlp.c, trains 20 steps for their losses, then STEPS more,
 * and prints "name original C program", "step us LOSS..." and "epoch s", the latter scaled from the
 * steps it did.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIXELS = 784, HIDDEN = 16, CLASSES = 10, BATCH = 50, CHECKED = 20, CHUNK = 10 };
static const float learning_rate = 0.01f;

static void die(const char *what)
{
    fprintf(stderr, "original_mnist: %s\n", what);
    exit(1);
}

/* Processor time: what other programs do in between does not count. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- arena ---- */

typedef struct arena {
    char *base;
    size_t used, size;
} arena;

static void *arena_push(arena *a, size_t bytes)
{
    bytes = (bytes + 7) & ~(size_t)7;
    if (a->used + bytes > a->size)
        die("the arena is full");
    void *block = a->base + a->used;
    a->used += bytes;
    return memset(block, 0, bytes);
}

/* ---- matrices ---- */

typedef struct matrix {
    int rows, columns;
    float *data; // [rows, columns]
} matrix;

static matrix *matrix_create(arena *a, int rows, int columns)
{
    matrix *m = arena_push(a, sizeof *m);
    m->rows = rows;
    m->columns = columns;
    m->data = arena_push(a, sizeof(float) * (size_t)rows * (size_t)columns);
    return m;
}

static int matrix_count(const matrix *m)
{
    return m->rows * m->columns;
}

static void matrix_clear(matrix *m)
{
    memset(m->data, 0, sizeof(float) * (size_t)matrix_count(m));
}

/* out += a @ b */
static void multiply_nn(matrix *out, const matrix *a, const matrix *b)
{
    for (int i = 0; i < out->rows; i++)
        for (int k = 0; k < a->columns; k++)
            for (int j = 0; j < out->columns; j++)
                out->data[j + i * out->columns] +=
                    a->data[k + i * a->columns] * b->data[j + k * b->columns];
}

/* out += a @ b^T */
static void multiply_nt(matrix *out, const matrix *a, const matrix *b)
{
    for (int i = 0; i < out->rows; i++)
        for (int j = 0; j < out->columns; j++)
            for (int k = 0; k < a->columns; k++)
                out->data[j + i * out->columns] +=
                    a->data[k + i * a->columns] * b->data[k + j * b->columns];
}

/* out += a^T @ b */
static void multiply_tn(matrix *out, const matrix *a, const matrix *b)
{
    for (int k = 0; k < a->rows; k++)
        for (int i = 0; i < out->rows; i++)
            for (int j = 0; j < out->columns; j++)
                out->data[j + i * out->columns] +=
                    a->data[i + k * a->columns] * b->data[j + k * b->columns];
}

/* ---- nodes ---- */

typedef enum op { INPUT, ADD, MATMUL, RELU, SOFTMAX, CROSS_ENTROPY } op;
enum { REQUIRES_GRAD = 1, PARAMETER = 2 };

typedef struct node {
    op op;
    int index; /* in the order of creation */
    unsigned flags;
    matrix *value, *grad; /* grad: only with REQUIRES_GRAD */
    struct node *inputs[2];
} node;

typedef struct graph {
    arena arena;
    arena scratch;
    int count; /* nodes made */
} graph;

static node *node_create(graph *g, op kind, int rows, int columns, unsigned flags, node *x, node *y)
{
    node *n = arena_push(&g->arena, sizeof *n);
    n->op = kind;
    n->index = g->count++;
    n->inputs[0] = x;
    n->inputs[1] = y;
    n->flags = flags;
    for (int i = 0; i < 2; i++)
        if (n->inputs[i] != NULL)
            n->flags |= n->inputs[i]->flags & REQUIRES_GRAD;
    n->value = matrix_create(&g->arena, rows, columns);
    if (n->flags & REQUIRES_GRAD)
        n->grad = matrix_create(&g->arena, rows, columns);
    return n;
}

static node *node_add(graph *g, node *x, node *y)
{
    return node_create(g, ADD, x->value->rows, x->value->columns, 0, x, y);
}

static node *node_matmul(graph *g, node *x, node *y)
{
    return node_create(g, MATMUL, x->value->rows, y->value->columns, 0, x, y);
}

static node *node_relu(graph *g, node *x)
{
    return node_create(g, RELU, x->value->rows, x->value->columns, 0, x, NULL);
}

static node *node_softmax(graph *g, node *x)
{
    return node_create(g, SOFTMAX, x->value->rows, x->value->columns, 0, x, NULL);
}

static node *node_cross_entropy(graph *g, node *p, node *q)
{
    return node_create(g, CROSS_ENTROPY, q->value->rows, q->value->columns, 0, p, q);
}

/* The nodes that `last` depends on, inputs before users. */
typedef struct program {
    node **nodes;
    int count;
} program;

static void visit(program *p, node *n, bool *seen)
{
    if (n == NULL || seen[n->index])
        return;
    seen[n->index] = true;
    visit(p, n->inputs[0], seen);
    visit(p, n->inputs[1], seen);
    p->nodes[p->count++] = n;
}

static program program_create(graph *g, node *last)
{
    program p = { .nodes = arena_push(&g->arena, sizeof(node *) * (size_t)g->count) };
    bool *seen = arena_push(&g->arena, (size_t)g->count);
    visit(&p, last, seen);
    return p;
}

/* ---- forward ---- */

static void softmax(matrix *out, const matrix *in)
{
    float sum = 0;
    for (int i = 0; i < matrix_count(in); i++) {
        out->data[i] = expf(in->data[i]);
        sum += out->data[i];
    }
    for (int i = 0; i < matrix_count(in); i++)
        out->data[i] /= sum;
}

static void compute(const program *p)
{
    for (int i = 0; i < p->count; i++) {
        node *n = p->nodes[i];
        const matrix *x = n->inputs[0] ? n->inputs[0]->value : NULL;
        const matrix *y = n->inputs[1] ? n->inputs[1]->value : NULL;
        float *out = n->value->data;
        switch (n->op) {
        case INPUT:
            break;
        case ADD:
            for (int k = 0; k < matrix_count(x); k++)
                out[k] = x->data[k] + y->data[k];
            break;
        case MATMUL:
            matrix_clear(n->value);
            multiply_nn(n->value, x, y);
            break;
        case RELU:
            for (int k = 0; k < matrix_count(x); k++)
                out[k] = x->data[k] > 0 ? x->data[k] : 0;
            break;
        case SOFTMAX:
            softmax(n->value, x);
            break;
        case CROSS_ENTROPY:
            for (int k = 0; k < matrix_count(x); k++)
                out[k] = x->data[k] == 0 ? 0 : x->data[k] * -logf(y->data[k]);
            break;
        }
    }
}

/* ---- backward ---- */

/* grad += J @ out_grad with J[i, j] = s[i] * ((i == j) - s[j]), written out. */
static void softmax_backward(graph *g, matrix *grad, const matrix *s, const matrix *out_grad)
{
    int size = matrix_count(s);
    g->scratch.used = 0;
    matrix *jacobian = matrix_create(&g->scratch, size, size);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++)
            jacobian->data[j + i * size] = s->data[i] * ((i == j ? 1.0f : 0.0f) - s->data[j]);
    multiply_nn(grad, jacobian, out_grad);
}

static void add_gradients(graph *g, node *n)
{
    node *x = n->inputs[0], *y = n->inputs[1];
    const float *grad = n->grad->data;
    int count = matrix_count(n->grad);
    switch (n->op) {
    case INPUT:
        break;
    case ADD:
        for (int i = 0; i < 2; i++)
            if (n->inputs[i]->flags & REQUIRES_GRAD)
                for (int k = 0; k < count; k++)
                    n->inputs[i]->grad->data[k] += grad[k];
        break;
    case MATMUL:
        if (x->flags & REQUIRES_GRAD)
            multiply_nt(x->grad, n->grad, y->value);
        if (y->flags & REQUIRES_GRAD)
            multiply_tn(y->grad, x->value, n->grad);
        break;
    case RELU:
        for (int k = 0; k < count; k++)
            x->grad->data[k] += x->value->data[k] > 0 ? grad[k] : 0;
        break;
    case SOFTMAX:
        softmax_backward(g, x->grad, n->value, n->grad);
        break;
    case CROSS_ENTROPY: /* x is the target p, y the prediction q */
        for (int k = 0; k < count; k++)
            y->grad->data[k] += -x->value->data[k] / y->value->data[k] * grad[k];
        break;
    }
}

static void compute_gradients(graph *g, const program *p)
{
    for (int i = 0; i < p->count; i++)
        if ((p->nodes[i]->flags & (REQUIRES_GRAD | PARAMETER)) == REQUIRES_GRAD)
            matrix_clear(p->nodes[i]->grad);
    matrix *last = p->nodes[p->count - 1]->grad;
    for (int k = 0; k < matrix_count(last); k++)
        last->data[k] = 1;
    for (int i = p->count - 1; i >= 0; i--)
        if (p->nodes[i]->flags & REQUIRES_GRAD)
            add_gradients(g, p->nodes[i]);
}

/* ---- the network ---- */

typedef struct network {
    graph graph;
    node *x, *target, *cost; // [784, 1], [10, 1], [10, 1]
    node *parameters[6];
    program program;
} network;

static void network_create(network *n)
{
    graph *g = &n->graph;
    static const int sizes[4] = { PIXELS, HIDDEN, HIDDEN, CLASSES };
    g->arena = (arena){ malloc(1 << 20), 0, 1 << 20 };
    g->scratch = (arena){ malloc(1 << 16), 0, 1 << 16 };
    if (g->arena.base == NULL || g->scratch.base == NULL)
        die("out of memory");
    for (int i = 0; i < 3; i++) {
        unsigned flags = REQUIRES_GRAD | PARAMETER;
        n->parameters[2 * i] = node_create(g, INPUT, sizes[i + 1], sizes[i], flags, NULL, NULL);
        n->parameters[2 * i + 1] = node_create(g, INPUT, sizes[i + 1], 1, flags, NULL, NULL);
    }
    node **p = n->parameters;
    n->x = node_create(g, INPUT, PIXELS, 1, 0, NULL, NULL);
    n->target = node_create(g, INPUT, CLASSES, 1, 0, NULL, NULL);
    node *a = node_relu(g, node_add(g, node_matmul(g, p[0], n->x), p[1]));
    node *b = node_relu(g, node_add(g, node_matmul(g, p[2], a), p[3]));
    node *c = node_add(g, node_matmul(g, p[4], node_add(g, a, b)), p[5]);
    n->cost = node_cross_entropy(g, n->target, node_softmax(g, c));
    n->program = program_create(g, n->cost);
}

/* ---- the problem ---- */

typedef struct problem {
    int count;
    int32_t *order;  // [count]
    uint8_t *labels; // [count]
    float *pixels;   // [count, 784]
} problem;

static void read_exactly(FILE *file, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, file) != bytes)
        die("the problem file is too short");
}

/* `weights` are stored [in, out], ours are [out, in]. */
static void read_weights(FILE *file, matrix *weights)
{
    int in = weights->columns, out = weights->rows;
    for (int i = 0; i < in; i++)
        for (int j = 0; j < out; j++)
            read_exactly(file, &weights->data[i + j * in], sizeof(float));
}

static void read_problem(const char *path, network *n, problem *p)
{
    FILE *file = fopen(path, "rb");
    char magic[8];
    int32_t count;
    if (file == NULL)
        die("cannot open the problem file");
    read_exactly(file, magic, sizeof magic);
    read_exactly(file, &count, sizeof count);
    if (memcmp(magic, "GDMNIST1", sizeof magic) != 0 || count < BATCH)
        die("not a problem file");
    for (int i = 0; i < 6; i += 2) {
        read_weights(file, n->parameters[i]->value);
        matrix *bias = n->parameters[i + 1]->value;
        read_exactly(file, bias->data, sizeof(float) * (size_t)matrix_count(bias));
    }
    size_t size = (size_t)count;
    p->count = count;
    p->order = malloc(size * sizeof *p->order);
    p->labels = malloc(size);
    p->pixels = malloc(size * PIXELS * sizeof *p->pixels);
    uint8_t *bytes = malloc(size * PIXELS);
    if (p->order == NULL || p->labels == NULL || p->pixels == NULL || bytes == NULL)
        die("out of memory");
    read_exactly(file, p->order, size * sizeof *p->order);
    read_exactly(file, p->labels, size);
    read_exactly(file, bytes, size * PIXELS);
    for (size_t i = 0; i < size * PIXELS; i++)
        p->pixels[i] = (float)bytes[i] * (1.0f / 255.0f);
    free(bytes);
    fclose(file);
}

/* ---- training ---- */

/* One step on the batch that begins at `first` of the order; returns the mean loss. */
static float train_step(network *n, const problem *p, int first)
{
    float loss = 0;
    for (int i = 0; i < 6; i++)
        matrix_clear(n->parameters[i]->grad);
    for (int i = 0; i < BATCH; i++) {
        int example = p->order[first + i];
        memcpy(n->x->value->data, p->pixels + (size_t)example * PIXELS, PIXELS * sizeof(float));
        matrix_clear(n->target->value);
        n->target->value->data[p->labels[example]] = 1;
        compute(&n->program);
        compute_gradients(&n->graph, &n->program);
        for (int k = 0; k < CLASSES; k++)
            loss += n->cost->value->data[k];
    }
    for (int i = 0; i < 6; i++) {
        const float *grad = n->parameters[i]->grad->data;
        float *value = n->parameters[i]->value->data;
        for (int k = 0; k < matrix_count(n->parameters[i]->value); k++)
            value[k] -= learning_rate * grad[k] / BATCH;
    }
    return loss / BATCH;
}

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    int steps = count == 3 ? atoi(arguments[2]) : 0;
    if (steps < CHUNK) {
        fprintf(stderr, "usage: original_mnist PROBLEM STEPS (at least %d)\n", CHUNK);
        return 2;
    }
    static network n;
    static problem p;
    network_create(&n);
    read_problem(arguments[1], &n, &p);
    float losses[CHECKED];
    int batches = p.count / BATCH, at = 0;
    for (; at < CHECKED; at++)
        losses[at] = train_step(&n, &p, at % batches * BATCH);

    int chunks = steps / CHUNK;
    double *seconds = malloc(sizeof *seconds * (size_t)chunks), total = 0;
    if (seconds == NULL)
        die("out of memory");
    for (int chunk = 0; chunk < chunks; chunk++) {
        double start = now();
        for (int i = 0; i < CHUNK; i++, at++)
            (void)train_step(&n, &p, at % batches * BATCH);
        seconds[chunk] = (now() - start) / CHUNK;
        total += seconds[chunk];
    }
    qsort(seconds, (size_t)chunks, sizeof *seconds, compare);
    printf("name original C program\nstep %.3f", seconds[chunks / 2] * 1e6);
    for (int i = 0; i < CHECKED; i++)
        printf(" %.7g", (double)losses[i]);
    printf("\nepoch %.4f\n", total / chunks * batches);
    return 0;
}
