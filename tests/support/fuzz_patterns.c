/* tests/support/fuzz_patterns.c: the steps of random programs that make what the compiler's passes
 * look for, and what single rows do not: rows with their reductions, layers with their gradients,
 * updates of states, views of any value, blocks, gradients in the middle. */
#include "support/fuzz.h"

#include <gradus/compile.h>
#include <gradus/conv.h>

#include "support/tensors.h"

/* ---- what reads one value ---- */

/* Rows and what is made of them: a value, a number for each row, and both together again. */
static gd_tensor *rows(fuzz_maker *m)
{
    gd_tensor *x = fuzz_float(m);
    const int rank = gd_tensor_shape(x).rank, two = fuzz_below(m, 3) == 0, kind = fuzz_below(m, 5);
    const bool keep = fuzz_below(m, 2);
    if (rank == 0 || gd_tensor_count(x) == 0)
        return NULL;
    gd_axes axes = rank > 1 && two ? GD_AXES(rank - 2, rank - 1) : GD_AXES(-1);
    switch (kind) {
    case 0:
        return gd_mul(x, gd_rsqrt(gd_add_scalar(gd_mean(gd_square(x), axes, true), 1e-3)));
    case 1:
        return gd_div(gd_exp(x), gd_sum(gd_exp(x), axes, true));
    case 2:
        return gd_maximum(gd_sub(x, gd_max(x, axes, true)), gd_neg(gd_min(x, axes, true)));
    case 3:
        return gd_sub(x, gd_unsqueeze(gd_sum(gd_tanh(x), GD_AXES(-1), false), -1));
    default:
        return gd_sum(gd_square(gd_sub(x, gd_mean(x, axes, true))), axes, keep);
    }
}

static gd_tensor *reduce(fuzz_maker *m)
{
    gd_tensor *x = fuzz_value(m);
    const int rank = gd_tensor_shape(x).rank, axis = fuzz_below(m, rank ? rank : 1);
    const bool one = fuzz_below(m, 3), keep = fuzz_below(m, 2);
    const gd_axes axes = rank && one ? GD_AXES(axis) : GD_ALL_AXES;
    switch (fuzz_below(m, 4)) {
    case 0:
        return gd_mean(x, axes, keep);
    case 1:
        return gd_tensor_count(x) ? gd_max(x, axes, keep) : NULL;
    case 2:
        return gd_sum(gd_mul(x, x), axes, keep);
    default:
        return gd_sum(x, axes, keep);
    }
}

static gd_tensor *view(fuzz_maker *m)
{
    gd_tensor *x = fuzz_value(m);
    gd_shape s = gd_tensor_shape(x);
    const int a = fuzz_below(m, s.rank ? s.rank : 1), b = fuzz_below(m, s.rank ? s.rank : 1),
              kind = fuzz_below(m, 6), size = fuzz_below(m, 4);
    if (s.rank == 0)
        return gd_broadcast_to(x, GD_SHAPE(1 + kind, 1 + size));
    switch (kind) {
    case 0:
        return gd_reshape(x, GD_SHAPE(gd_tensor_count(x)));
    case 1:
        return gd_transpose(x, a, b);
    case 2:
        return gd_slice(x, a, size, GD_END, 1 + b % 2);
    case 3:
        return gd_flip(x, GD_AXES(a));
    case 4:
        return s.rank < 4 ? gd_unsqueeze(x, b) : NULL;
    default:
        if (s.dim[a] != 1)
            return NULL;
        s.dim[a] = 3;
        return gd_broadcast_to(x, s);
    }
}

/* Concatenations of a value with what is made of it, and paddings. */
static gd_tensor *join(fuzz_maker *m)
{
    gd_tensor *x = fuzz_value(m);
    gd_shape s = gd_tensor_shape(x), before = s, after = s;
    const int axis = fuzz_below(m, s.rank ? s.rank : 1);
    if (s.rank == 0 || gd_tensor_count(x) > 400)
        return NULL;
    if (fuzz_below(m, 2))
        return gd_concat(3, (gd_tensor *[]){ x, gd_neg(gd_cast(x, GD_F32)), x }, axis);
    for (int i = 0; i < s.rank; i++) {
        before.dim[i] = fuzz_below(m, 2);
        after.dim[i] = fuzz_below(m, 2);
    }
    return gd_pad(x, before, after, gd_dtype_is_float(gd_tensor_dtype(x)) ? 0.5 : 1);
}

/* What gives its operand back, and what only seems to. */
static gd_tensor *nothing(fuzz_maker *m)
{
    gd_tensor *x = fuzz_value(m);
    const gd_dtype dtype = gd_tensor_dtype(x);
    const int rank = gd_tensor_shape(x).rank;
    switch (fuzz_below(m, 9)) {
    case 0:
        return gd_mul_scalar(x, 1);
    case 1:
        return gd_add_scalar(x, 0);
    case 2:
        return gd_sub_scalar(x, 0);
    case 3:
        return gd_neg(gd_neg(x));
    case 4:
        return gd_relu(gd_relu(x));
    case 5:
        return gd_cast(gd_cast(x, gd_dtype_promote(dtype, GD_F64)), dtype);
    case 6:
        return gd_cast(gd_cast(x, GD_F32), dtype);
    case 7:
        return rank > 1 ? gd_transpose(gd_transpose(x, 0, -1), -1, 0) : gd_unsqueeze(x, 0);
    default:
        return gd_maximum(gd_div_scalar(x, 1), x);
    }
}

/* ---- layers ---- */

static bool owns_operands(const fuzz_maker *m)
{
    return m->block && m->block->is_call;
}

/* x W + b with or without ReLU, as one function and as its parts; of weights, or of any values. The
 * gradients of a weight that a call reads are added up inside first: calls read copies. */
static gd_tensor *linear(fuzz_maker *m)
{
    const bool of_weights = fuzz_below(m, 3), deep = fuzz_below(m, 3) == 0,
               apart = fuzz_below(m, 2);
    const int columns = 4 + 3 * fuzz_below(m, 2), lines = 1 + fuzz_below(m, 6);
    const gd_dtype dtype = fuzz_below(m, 4) ? GD_F32 : GD_F64;
    gd_tensor *x = fuzz_as(m, deep ? GD_SHAPE(2, lines, 5) : GD_SHAPE(lines, 5), dtype), *w, *b;
    if (of_weights && !owns_operands(m)) {
        w = m->program->weights[0];
        b = m->program->weights[1];
        fuzz_say(m, " weights");
    } else {
        w = fuzz_as(m, GD_SHAPE(5, columns), dtype);
        b = fuzz_as(m, GD_SHAPE(columns), dtype);
    }
    gd_tensor *r = apart ? gd_add(gd_matmul(x, w), b) : gd_linear(x, w, b);
    switch (fuzz_below(m, 5)) {
    case 0:
        return r;
    case 1:
        return gd_gelu_tanh(r);
    case 2:
        return gd_matmul(gd_transpose(x, -1, -2), gd_relu(r));
    default:
        return gd_relu(r);
    }
}

static gd_tensor *convolution(fuzz_maker *m)
{
    const int n = 1 + fuzz_below(m, 2), width = 5 + fuzz_below(m, 4), pad = fuzz_below(m, 2),
              stride = 1 + fuzz_below(m, 2);
    gd_tensor *x = fuzz_as(m, GD_SHAPE(n, 2, 5, width), GD_F32), *w, *b;
    if (owns_operands(m)) {
        w = fuzz_as(m, GD_SHAPE(3, 2, 3, 3), GD_F32);
        b = fuzz_as(m, GD_SHAPE(3), GD_F32);
    } else {
        w = m->program->weights[2];
        b = m->program->weights[3];
        fuzz_say(m, " weights");
    }
    gd_tensor *r = gd_conv2d(x, w, b, .stride = GD_SHAPE(stride), .padding = GD_SHAPE(pad));
    switch (fuzz_below(m, 4)) {
    case 0:
        return r;
    case 1:
        return gd_max_pool2d(gd_relu(r), GD_SHAPE(2), .stride = GD_SHAPE(1));
    default:
        return gd_relu(r);
    }
}

/* Attention among rows, queries, keys and values cut out of one tensor, as layers do; or its
 * gradient by that tensor, with that by one of them or without. */
static gd_tensor *attention(fuzz_maker *m)
{
    gd_tensor *x = fuzz_rows(m), *qkv[3];
    gd_shape s = gd_tensor_shape(x), split = s;
    const bool one = fuzz_below(m, 2), causal = fuzz_below(m, 2), again = fuzz_below(m, 3) == 0;
    const int first = fuzz_below(m, 4) == 0, at_hand = fuzz_below(m, 3);
    const bool early = fuzz_below(m, 3) == 0, also = fuzz_below(m, 2);
    gd_tensor *all = gd_concat(3, (gd_tensor *[]){ x, gd_tanh(x), gd_neg(x) }, -1);
    int64_t width = s.dim[s.rank - 1], heads = one ? width : 1;
    split.dim[split.rank++ - 1] = heads;
    split.dim[s.rank] = width / heads;
    for (int i = 0; i < 3; i++) {
        int64_t at = (i + first) % 3 * width;
        qkv[i] = gd_transpose(gd_reshape(gd_slice(all, -1, at, at + width, 1), split), -3, -2);
    }
    gd_tensor *r = gd_attention(qkv[0], qkv[1], qkv[2], .causal = causal), *g[2];
    if (early && gd_requires_grad(all) && !(m->block && !m->block->is_call)) {
        if (gd_grad(1, &r, NULL, 2, (gd_tensor *[]){ all, qkv[at_hand] }, g) != GD_OK)
            return NULL;
        return gd_detach(also ? gd_concat(2,
                                          (gd_tensor *[]){ gd_reshape(g[0], GD_SHAPE(-1)),
                                                           gd_reshape(g[1], GD_SHAPE(-1)) },
                                          0)
                              : g[0]);
    }
    r = gd_reshape(gd_transpose(r, -3, -2), s);
    return again ? gd_mul(r, gd_slice(all, -1, 0, width, 1)) : r;
}

/* ---- what changes something ---- */

/* A state is changed, and read from then on with its new value. */
static gd_tensor *assign(fuzz_maker *m)
{
    const int which = fuzz_below(m, FUZZ_STATES);
    const bool mixed = fuzz_below(m, 2);
    gd_tensor *state = m->program->states[which];
    gd_tensor *x = fuzz_as(m, gd_tensor_shape(state), gd_tensor_dtype(state));
    fuzz_say(m, " to state %d", which);
    gd_assign(state, mixed ? gd_mul_scalar(gd_add(state, x), 0.5) : x);
    return gd_add_scalar(state, 0);
}

/* An optimizer's step: moments of a gradient, and by them the third state. */
static gd_tensor *update(fuzz_maker *m)
{
    gd_tensor *first = m->program->states[0], *second = m->program->states[1],
              *w = m->program->states[2];
    gd_tensor *g = fuzz_as(m, gd_tensor_shape(w), GD_F32);
    const bool held = fuzz_below(m, 2), decayed = fuzz_below(m, 2), detached = fuzz_below(m, 2);
    g = detached ? gd_detach(g) : g;
    g = decayed ? gd_add(g, gd_mul_scalar(w, 0.01)) : g;
    gd_tensor *a = gd_add(gd_mul_scalar(first, 0.875), gd_mul_scalar(g, 0.125)), *step = a;
    gd_tensor *assigned = gd_assign(first, a);
    if (fuzz_below(m, 2)) {
        gd_tensor *b = gd_add(gd_mul_scalar(second, 0.75), gd_mul_scalar(gd_square(g), 0.25));
        gd_assign(second, b);
        step = gd_div(held ? assigned : a, gd_add_scalar(gd_sqrt(held ? second : b), 1e-3));
    }
    gd_assign(w, gd_sub(w, gd_mul_scalar(step, 0.1)));
    return gd_add_scalar(w, 0);
}

/* In place, by functions whose derivative does not read what is overwritten. */
static gd_tensor *in_place(fuzz_maker *m)
{
    static gd_tensor *(*const functions[])(gd_tensor *) = { gd_neg_, gd_sigmoid_, gd_tanh_,
                                                            gd_exp_ };
    gd_tensor *x = gd_neg(fuzz_float(m));
    const int kind = fuzz_below(m, 2 * COUNT(functions));
    if (kind < COUNT(functions))
        return functions[kind](x);
    gd_tensor *y = fuzz_as(m, gd_tensor_shape(x), gd_tensor_dtype(x));
    return kind % 2 ? gd_add_(x, y) : gd_sub_(x, y);
}

/* ---- gradients ---- */

/* The gradient of a value by a weight or another value, from here on a value like others. Within a
 * block by its operands: what they depend on outside is not known there. */
static gd_tensor *backward(fuzz_maker *m)
{
    gd_tensor *y = fuzz_tracked(m), *x[3], *g[3];
    gd_tensor *seed = fuzz_as(m, gd_tensor_shape(y), gd_tensor_dtype(y));
    const int pair = 2 * fuzz_below(m, 2), which = fuzz_below(m, 3);
    const bool plain = fuzz_below(m, 4) == 0;
    x[0] = m->block ? m->values[0] : m->program->weights[pair];
    x[1] = m->block ? m->values[1] : m->program->weights[pair + 1];
    if (m->block)
        fuzz_say(m, " by operands,");
    else
        fuzz_say(m, " by weights %d, %d,", pair, pair + 1);
    x[2] = fuzz_tracked(m);
    for (int i = 0; i < 3; i++)
        if (!gd_requires_grad(y) || !gd_requires_grad(x[i]))
            return NULL;
    if ((m->block && !m->block->is_call) || gd_grad(1, &y, plain ? NULL : &seed, 3, x, g) != GD_OK)
        return NULL;
    bool has_history = m->program->options & FUZZ_SECOND && m->backwards++ == 0;
    return has_history ? g[which] : gd_detach(g[which]);
}

const fuzz_pattern fuzz_patterns[] = {
    { "rows", rows, 4, false },
    { "reduce", reduce, 2, false },
    { "view", view, 4, false },
    { "join", join, 1, false },
    { "nothing", nothing, 2, false },
    { "linear", linear, 4, false },
    { "convolution", convolution, 2, false },
    { "attention", attention, 2, false },
    { "in place", in_place, 1, false },
    { "assign", assign, 1, true },
    { "update", update, 2, true },
    { "backward", backward, 2, false },
    { "block", fuzz_step_block, 1, true },
};
const int fuzz_pattern_count = COUNT(fuzz_patterns);
