/* scalar.c: a number that remembers how it was made, and backpropagation through such numbers.
 *
 * This is the whole of reverse-mode automatic differentiation in one file, to be read from top to
 * bottom:
 *
 *   1. the value: one number and its history
 *   2. the operations: each one's formula and, right below it, its derivative
 *   3. references: when a value may go
 *   4. backward: the chain rule, applied from the result back to the leaves
 *
 * What it is not: fast mathematics. One number costs a cache line and some ten nanoseconds; the
 * tensor engine does the same work on whole arrays. Neurons and layers are in nn.c, two small
 * containers in vector.c and set.c, and where the memory comes from in memory.h.
 */
#include <gradus/scalar.h>
#include "scalar/memory.h"

#include <math.h>

/* ---- 1. The value -------------------------------------------------------------------------- */

struct gd_value {
    double data;        /* the number */
    double grad;        /* d result / d this, once backward has run */
    gd_value *left;     /* what it was made of; NULL in a leaf */
    gd_value *right;    /* NULL in a leaf and after an operation on one number */
    double extra;       /* a constant the operation needs: the exponent of pow; else not set */
    gd_value *link;     /* the next value waiting to be freed, while a release is at work */
    size_t references;  /* how many hold this value: its creator, and each result made of it */
    uint32_t canary;    /* CANARY_LIVE, or the pointer is stale */
    uint16_t operation; /* gd_value_op: how it was made */
    bool visited;       /* backward has seen it; always so in a leaf: nothing below it to see */
};

_Static_assert(sizeof(gd_value) <= CELL_BYTES,
               "a value should fit a cell, which is one cache line");

enum { CANARY_LIVE = 0x11FEC0DE, CANARY_FREED = 0x0DEADBED };

static size_t live_values;

/* A value filled in. The caller holds the one reference. NULL: out of memory. */
static inline gd_value *new_value(gd_value_op op, double data, gd_value *left, gd_value *right)
{
    gd_value *value = cell_take();
    if (value == NULL)
        return NULL;
    value->data = data;
    value->grad = 0.0;
    value->left = left;
    value->right = right;
    value->references = 1;
    value->canary = CANARY_LIVE;
    value->operation = (uint16_t)op;
    value->visited = left == NULL;
    live_values++;
    return value;
}

static inline void free_value(gd_value *value)
{
    value->canary = CANARY_FREED;
    cell_give(value);
    live_values--;
}

/* Whether `value` may be used. NULL may not, in silence: the error it came from has been kept. */
static inline bool is_live(const gd_value *value)
{
    if (value == NULL)
        return false;
    if (value->canary == CANARY_LIVE)
        return true;
    gd_scalar_fail(
        "gd_value: this value has been freed (or was never one); look for one release too many");
    return false;
}

/* ---- 2. The operations --------------------------------------------------------------------- */

/* A result of one operand or two. It holds them, so they live as long as it does. */
static inline gd_value *unary(gd_value_op op, double data, gd_value *a)
{
    gd_value *c = new_value(op, data, a, NULL);
    if (c != NULL)
        a->references++;
    return c;
}

static inline gd_value *binary(gd_value_op op, double data, gd_value *a, gd_value *b)
{
    gd_value *c = new_value(op, data, a, b);
    if (c != NULL) {
        a->references++;
        b->references++;
    }
    return c;
}

/* Each operation is two functions. The first computes c from a and b. The second is its derivative:
 * handed a c whose grad g is known, it passes g on to a and b, multiplied by the derivative of c in
 * each. That is the chain rule. It adds (+=), because an operand may have been used in other places
 * too, and each contributes. */

gd_value *gd_value_create_leaf(double data)
{
    return new_value(GD_VALUE_LEAF, data, NULL, NULL);
}

static void backward_leaf(gd_value *c)
{
    (void)c; /* nothing below */
}

gd_value *gd_value_add(gd_value *a, gd_value *b)
{
    if (!is_live(a) || !is_live(b))
        return NULL;
    return binary(GD_VALUE_ADD, a->data + b->data, a, b);
}

static void backward_add(gd_value *c)
{
    gd_value *a = c->left, *b = c->right;
    double g = c->grad;
    a->grad += g;
    b->grad += g;
}

gd_value *gd_value_sub(gd_value *a, gd_value *b)
{
    if (!is_live(a) || !is_live(b))
        return NULL;
    return binary(GD_VALUE_SUB, a->data - b->data, a, b);
}

static void backward_sub(gd_value *c)
{
    gd_value *a = c->left, *b = c->right;
    double g = c->grad;
    a->grad += g;
    b->grad -= g;
}

gd_value *gd_value_mul(gd_value *a, gd_value *b)
{
    if (!is_live(a) || !is_live(b))
        return NULL;
    return binary(GD_VALUE_MUL, a->data * b->data, a, b);
}

static void backward_mul(gd_value *c)
{
    gd_value *a = c->left, *b = c->right;
    double g = c->grad;
    a->grad += g * b->data;
    b->grad += g * a->data;
}

gd_value *gd_value_div(gd_value *a, gd_value *b)
{
    if (!is_live(a) || !is_live(b))
        return NULL;
    return binary(GD_VALUE_DIV, a->data / b->data, a, b);
}

static void backward_div(gd_value *c)
{
    gd_value *a = c->left, *b = c->right;
    double g = c->grad;
    a->grad += g / b->data;
    b->grad -= g * c->data / b->data;
}

gd_value *gd_value_neg(gd_value *a)
{
    return is_live(a) ? unary(GD_VALUE_NEG, -a->data, a) : NULL;
}

static void backward_neg(gd_value *c)
{
    c->left->grad -= c->grad;
}

gd_value *gd_value_pow(gd_value *a, double exponent)
{
    if (!is_live(a))
        return NULL;
    gd_value *c = unary(GD_VALUE_POW, pow(a->data, exponent), a);
    if (c != NULL)
        c->extra = exponent;
    return c;
}

static void backward_pow(gd_value *c)
{
    double n = c->extra;
    if (n != 0.0) /* a^0 is constant, also at a = 0, where n a^(n-1) would be 0 times infinity */
        c->left->grad += c->grad * n * pow(c->left->data, n - 1.0);
}

gd_value *gd_value_exp(gd_value *a)
{
    return is_live(a) ? unary(GD_VALUE_EXP, exp(a->data), a) : NULL;
}

static void backward_exp(gd_value *c)
{
    c->left->grad += c->grad * c->data;
}

gd_value *gd_value_log(gd_value *a)
{
    return is_live(a) ? unary(GD_VALUE_LOG, log(a->data), a) : NULL;
}

static void backward_log(gd_value *c)
{
    c->left->grad += c->grad / c->left->data;
}

gd_value *gd_value_relu(gd_value *a)
{
    /* Written so that NaN stays NaN. */
    return is_live(a) ? unary(GD_VALUE_RELU, a->data <= 0.0 ? 0.0 : a->data, a) : NULL;
}

static void backward_relu(gd_value *c)
{
    c->left->grad += c->data > 0.0 ? c->grad : 0.0;
}

gd_value *gd_value_tanh(gd_value *a)
{
    return is_live(a) ? unary(GD_VALUE_TANH, tanh(a->data), a) : NULL;
}

static void backward_tanh(gd_value *c)
{
    c->left->grad += c->grad * (1.0 - c->data * c->data);
}

gd_value *gd_value_sigmoid(gd_value *a)
{
    return is_live(a) ? unary(GD_VALUE_SIGMOID, 1.0 / (1.0 + exp(-a->data)), a) : NULL;
}

static void backward_sigmoid(gd_value *c)
{
    c->left->grad += c->grad * c->data * (1.0 - c->data);
}

/* All of them. To add an operation: its name in gd_value_op, its two functions above, its row here.
 */
static const struct {
    const char *name;
    int operands;
    void (*backward)(gd_value *c);
} operations[GD_VALUE_OP_COUNT] = {
    [GD_VALUE_LEAF] = { "leaf", 0, backward_leaf },
    [GD_VALUE_ADD] = { "add", 2, backward_add },
    [GD_VALUE_SUB] = { "sub", 2, backward_sub },
    [GD_VALUE_MUL] = { "mul", 2, backward_mul },
    [GD_VALUE_DIV] = { "div", 2, backward_div },
    [GD_VALUE_NEG] = { "neg", 1, backward_neg },
    [GD_VALUE_POW] = { "pow", 1, backward_pow },
    [GD_VALUE_EXP] = { "exp", 1, backward_exp },
    [GD_VALUE_LOG] = { "log", 1, backward_log },
    [GD_VALUE_RELU] = { "relu", 1, backward_relu },
    [GD_VALUE_TANH] = { "tanh", 1, backward_tanh },
    [GD_VALUE_SIGMOID] = { "sigmoid", 1, backward_sigmoid },
};

/* c's own derivative function. Sums and products, most of a network, are called by their names: the
 * compiler inlines those two, which saves a twentieth of the time. */
static inline void backward_through(gd_value *c)
{
    if (c->operation == GD_VALUE_ADD)
        backward_add(c);
    else if (c->operation == GD_VALUE_MUL)
        backward_mul(c);
    else
        operations[c->operation].backward(c);
}

/* An operation from outside, for a caller who computes `data` by other means. */
gd_value *gd_value_create(gd_value_op op, double data, gd_value *left, gd_value *right,
                          double extra)
{
    if ((unsigned)op >= GD_VALUE_OP_COUNT) {
        gd_scalar_fail("gd_value_create: no such operation");
        return NULL;
    }
    int operands = operations[op].operands;
    if ((operands < 1 && left != NULL) || (operands < 2 && right != NULL)) {
        gd_scalar_fail("gd_value_create: more operands than the operation takes");
        return NULL;
    }
    if ((operands >= 1 && !is_live(left)) || (operands == 2 && !is_live(right)))
        return NULL;
    gd_value *value = new_value(op, data, left, right);
    if (value != NULL) {
        value->extra = extra;
        if (left != NULL)
            left->references++;
        if (right != NULL)
            right->references++;
    }
    return value;
}

double gd_value_data(const gd_value *value)
{
    return is_live(value) ? value->data : (double)NAN;
}

double gd_value_grad(const gd_value *value)
{
    return is_live(value) ? value->grad : (double)NAN;
}

int gd_value_set_data(gd_value *leaf, double data)
{
    if (!is_live(leaf))
        return -1;
    if (leaf->operation != GD_VALUE_LEAF) {
        gd_scalar_fail("gd_value_set_data: the value was computed; only a leaf may be set");
        return -1;
    }
    leaf->data = data;
    return 0;
}

void gd_value_zero_grad(gd_value *value)
{
    if (is_live(value))
        value->grad = 0.0;
}

gd_value_op gd_value_operation(const gd_value *value)
{
    return is_live(value) ? (gd_value_op)value->operation : GD_VALUE_LEAF;
}

gd_value *gd_value_operand(const gd_value *value, int index)
{
    if (!is_live(value) || index < 0 || index > 1)
        return NULL;
    return index == 0 ? value->left : value->right;
}

const char *gd_value_op_name(gd_value_op op)
{
    return (unsigned)op < GD_VALUE_OP_COUNT ? operations[op].name : "?";
}

/* ---- 3. References ------------------------------------------------------------------------- */

gd_value *gd_value_retain(gd_value *value)
{
    if (!is_live(value))
        return NULL;
    value->references++;
    return value;
}

size_t gd_scalar_live_values(void)
{
    return live_values;
}

size_t gd_value_references(const gd_value *value)
{
    return is_live(value) ? value->references : 0;
}

/* Give back one reference to an operand, if there is one. Whether it was the last. */
static inline bool drop(gd_value *operand)
{
    return operand != NULL && --operand->references == 0;
}

/* A value that goes gives back its operands, which may make them go, and so on down. The obvious
 * way is for this function to call itself; a chain of a million values would then need a million
 * stack frames. Instead we go on with one operand, and the other, if it must go too, waits in a
 * list threaded through the values themselves. */
void gd_value_release(gd_value *value)
{
    if (!is_live(value) || !drop(value))
        return;
    gd_value *waiting = NULL;
    for (gd_value *gone = value; gone != NULL;) {
        gd_value *left = gone->left;
        gd_value *right = gone->right;
        free_value(gone);

        gone = drop(right) ? right : NULL;
        if (drop(left)) {
            if (gone == NULL) {
                gone = left;
            } else {
                left->link = waiting;
                waiting = left;
            }
        }
        if (gone == NULL && waiting != NULL) {
            gone = waiting;
            waiting = gone->link;
        }
    }
}

/* "sum + term" where the sum takes over the references instead of adding its own. */
gd_value *gd_value_accumulate(gd_value *sum, gd_value *term)
{
    gd_value *c = NULL;
    if (is_live(sum) && is_live(term))
        c = new_value(GD_VALUE_ADD, sum->data + term->data, sum, term);
    if (c == NULL) {
        gd_value_release(sum);
        gd_value_release(term);
    }
    return c;
}

/* ---- 4. Backward --------------------------------------------------------------------------- */

/* Room for the lists of a backward pass: a pointer for each value alive, kept from call to call. */
static gd_value **scratch; // [scratch_capacity]
static size_t scratch_capacity;

static bool reserve_scratch(void)
{
    if (scratch_capacity >= live_values)
        return true;
    size_t capacity = live_values + live_values / 2;
    gd_value **larger = gd_scalar_realloc(scratch, capacity, sizeof(gd_value *));
    if (larger == NULL)
        return false;
    scratch = larger;
    scratch_capacity = capacity;
    return true;
}

/* A value may pass its grad on only when that grad is complete: after every result it was used in
 * has passed on its own. An order with this property is called topological, and depth-first search
 * finds one. Walk from the root down to operands not yet seen, remembering the path. A value whose
 * operands have all been seen is finished; step back to the one before it on the path. Everything a
 * value was made of finishes before it does, so the finishing order, read backwards, is what we
 * want: the root first, every result before its operands.
 *
 * Path and finished values share the scratch array. The path grows from its left end; the finished
 * values fill it from the right, which also turns their order around. They cannot meet: a value is
 * never in both, and there is room for all. Leaves are in neither, they have nothing to pass on.
 *
 * Returns how many values stand, in topological order, at the right end of the scratch array. */
static size_t topological_order(gd_value *root)
{
    gd_value **path = scratch;                        // [depth]
    gd_value **finished = scratch + scratch_capacity; // up to the end of the array
    size_t depth = 0;

    for (gd_value *next = root->visited ? NULL : root; next != NULL;) {
        next->visited = true;
        next->grad = 0.0;

        /* Down, if there is anything new. */
        if (next->right != NULL && !next->right->visited) {
            path[depth++] = next;
            next = next->right;
            continue;
        }
        if (!next->left->visited) {
            path[depth++] = next;
            next = next->left;
            continue;
        }
        /* Nothing: finished. Back along the path to a value with its left operand still to see. */
        *--finished = next;
        next = NULL;
        while (depth > 0 && next == NULL) {
            gd_value *last = path[depth - 1];
            if (!last->left->visited) {
                next = last->left;
            } else {
                *--finished = last;
                depth--;
            }
        }
    }
    return (size_t)(scratch + scratch_capacity - finished);
}

int gd_value_backward(gd_value *root)
{
    if (!is_live(root) || !reserve_scratch())
        return -1;
    size_t count = topological_order(root);
    gd_value *const *order = scratch + scratch_capacity - count; // [count]

    root->grad += 1.0; /* d root / d root */
    for (size_t i = 0; i < count; i++) {
        prefetch(order[i + 8 < count ? i + 8 : i]);
        order[i]->visited = false; /* ready for the next call */
        backward_through(order[i]);
    }
    return 0;
}

/* ---- The end ------------------------------------------------------------------------------- */

int gd_scalar_trim(void)
{
    if (live_values > 0)
        return -1;
    gd_scalar_free_pages();
    gd_scalar_realloc(scratch, 0, sizeof(gd_value *));
    scratch = NULL;
    scratch_capacity = 0;
    return 0;
}
