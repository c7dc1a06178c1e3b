/* ops/batch.c: the batching rule of each op: the op on all elements of a batch at once, made of ops
 * with the batch as a further axis in front. An op without a rule is applied element by element
 * (ops/vmap.c), so a new op needs none. The table stands at the end. */
#include "ops/batch.h"
#include "ops/internal.h"
#include "ops/spatial.h"

/* ---- shapes ---- */

/* [size, the shape] */
static gd_shape with_batch(int64_t size, gd_shape shape)
{
    gd_shape all = { .rank = shape.rank + 1 };
    all.dim[0] = size;
    for (int i = 0; i < shape.rank; i++)
        all.dim[i + 1] = shape.dim[i];
    return all;
}

static gd_shape result_shape(const gd_batch_call *c)
{
    return with_batch(c->size, gd_layout_shape(&c->node->layout));
}

static gd_shape element_shape(const gd_batch_call *c, int i)
{
    return gd_layout_shape(&c->node->inputs[i]->layout);
}

/* Operand i such that it broadcasts with results of this rank for an element: [size, 1.., shape];
 * one that stands for all elements as it is. */
static gd_tensor *aligned(const gd_batch_call *c, int i, int rank)
{
    const gd_shape own = element_shape(c, i);
    if (!c->batched[i] || own.rank == rank)
        return c->in[i];
    gd_shape shape = { .rank = rank };
    for (int k = 0; k < rank; k++)
        shape.dim[k] = k < rank - own.rank ? 1 : own.dim[k - (rank - own.rank)];
    return gd_reshape(c->in[i], with_batch(c->size, shape));
}

/* Operand i with the batch's axis, whether it is batched or not. */
static gd_tensor *spread(const gd_batch_call *c, int i)
{
    return c->batched[i] ? c->in[i]
                         : gd_as_shape(c->in[i], with_batch(c->size, element_shape(c, i)));
}

/* [size, n, ..] -> [size * n, ..] */
static gd_tensor *fold(gd_tensor *t)
{
    if (!t)
        return NULL;
    gd_shape shape = gd_layout_shape(&t->layout);
    shape.dim[1] *= shape.dim[0];
    for (int i = 0; i + 1 < shape.rank; i++)
        shape.dim[i] = shape.dim[i + 1];
    shape.rank--;
    return gd_contiguous(gd_reshape(t, shape));
}

/* The other way, to the result's shape. */
static gd_tensor *unfold(const gd_batch_call *c, gd_tensor *t)
{
    return t ? gd_reshape(t, result_shape(c)) : NULL;
}

static gd_tensor *apply(const gd_batch_call *c, int n, gd_tensor *const *in, const void *attr)
{
    for (int i = 0; i < n; i++)
        if (!in[i])
            return NULL;
    return gd_apply(c->context, c->node->op->id, n, in, attr);
}

/* ---- element by element, and views ---- */

static gd_tensor *broadcasting(const gd_batch_call *c)
{
    gd_tensor *in[GD_OP_MAX_INPUTS];
    for (int i = 0; i < c->n; i++)
        in[i] = aligned(c, i, c->node->layout.rank);
    return apply(c, c->n, in, c->attr);
}

/* Of one operand, with an attribute that names no axis, or counts them from the end. */
static gd_tensor *unchanged(const gd_batch_call *c)
{
    return apply(c, c->n, c->in, c->attr);
}

static gd_tensor *reshape(const gd_batch_call *c)
{
    return gd_reshape(c->in[0], result_shape(c));
}

static gd_tensor *broadcast_to(const gd_batch_call *c)
{
    gd_shape_attr attr;
    memset(&attr, 0, sizeof attr);
    gd_set_shape(&attr.shape, result_shape(c));
    gd_tensor *x = aligned(c, 0, c->node->layout.rank);
    return apply(c, c->n, &x, &attr);
}

static gd_tensor *permute(const gd_batch_call *c)
{
    const gd_permute_attr *a = c->attr;
    gd_permute_attr attr = { { 0 } };
    for (int i = 0; i < c->node->layout.rank; i++)
        attr.order[i + 1] = a->order[i] + 1;
    return apply(c, c->n, c->in, &attr);
}

static gd_tensor *slice(const gd_batch_call *c)
{
    const gd_slice_attr *a = c->attr;
    gd_slice_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.step[0] = 1;
    attr.size[0] = c->size;
    for (int i = 0; i < c->node->layout.rank; i++) {
        attr.start[i + 1] = a->start[i];
        attr.step[i + 1] = a->step[i];
        attr.size[i + 1] = a->size[i];
    }
    return apply(c, c->n, c->in, &attr);
}

static gd_tensor *pad(const gd_batch_call *c)
{
    const gd_pad_attr *a = c->attr;
    gd_pad_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.value = a->value;
    for (int i = 0; i < c->node->layout.rank; i++) {
        attr.before[i + 1] = a->before[i];
        attr.after[i + 1] = a->after[i];
    }
    return apply(c, c->n, c->in, &attr);
}

/* ---- along axes ---- */

static gd_tensor *reduce(const gd_batch_call *c)
{
    gd_reduce_attr attr = *(const gd_reduce_attr *)c->attr;
    attr.axes <<= 1;
    return apply(c, c->n, c->in, &attr);
}

/* The axis is counted from the front; all operands have its rank. */
static gd_tensor *along_axis(const gd_batch_call *c)
{
    gd_axis_attr attr = *(const gd_axis_attr *)c->attr;
    attr.axis++;
    gd_tensor *in[GD_OP_MAX_INPUTS];
    for (int i = 0; i < c->n; i++)
        in[i] = spread(c, i);
    return apply(c, c->n, in, &attr);
}

/* Rows of one table, which all elements read, by the indices of all: one long index. */
static gd_tensor *gather(const gd_batch_call *c)
{
    if (c->batched[0] || ((const gd_axis_attr *)c->attr)->axis != 0)
        return along_axis(c);
    gd_tensor *in[2] = { c->in[0], fold(c->in[1]) };
    return unfold(c, apply(c, 2, in, c->attr));
}

/* ---- products ---- */

/* [.., m, k] @ [.., k, n]. One matrix for all elements: one tall product. */
static gd_tensor *matmul(const gd_batch_call *c)
{
    if (c->batched[1] || c->node->inputs[1]->layout.rank > 2)
        return broadcasting(c);
    const gd_shape shape = gd_layout_shape(&c->in[0]->layout);
    int64_t rows = 1, k = shape.dim[shape.rank - 1];
    for (int i = 0; i < shape.rank - 1; i++)
        rows *= shape.dim[i];
    gd_tensor *in[2] = { gd_reshape(c->in[0], GD_SHAPE(rows, k)), c->in[1] };
    return unfold(c, apply(c, 2, in, NULL));
}

/* ---- rows: [n, ..] of an element are n of size * n rows ---- */

static gd_tensor *as_rows(const gd_batch_call *c)
{
    gd_tensor *in[GD_OP_MAX_INPUTS];
    for (int i = 0; i < c->n; i++)
        in[i] = fold(spread(c, i));
    return unfold(c, apply(c, c->n, in, c->attr));
}

/* ---- convolution: x [n, channels, ..], w [out, channels / groups, ..], bias [out] ---- */

/* [size, n, channels, ..] -> [n, size * channels, ..] */
static gd_tensor *as_channels(gd_tensor *t)
{
    gd_tensor *swapped = gd_transpose(t, 0, 1);
    if (!swapped)
        return NULL;
    gd_shape shape = gd_layout_shape(&swapped->layout);
    shape.dim[1] *= shape.dim[2];
    for (int i = 2; i + 1 < shape.rank; i++)
        shape.dim[i] = shape.dim[i + 1];
    shape.rank--;
    return gd_contiguous(gd_reshape(swapped, shape));
}

/* The result [n, size * channels, ..] of as_channels' operands -> [size, n, channels, ..] */
static gd_tensor *from_channels(const gd_batch_call *c, gd_tensor *t)
{
    gd_shape shape = result_shape(c);
    shape.dim[0] = shape.dim[1];
    shape.dim[1] = c->size;
    return t ? gd_transpose(gd_reshape(t, shape), 0, 1) : NULL;
}

/* With a weight for each element, the elements are groups of one convolution. */
static gd_tensor *grouped(const gd_batch_call *c)
{
    gd_conv_attr attr = *(const gd_conv_attr *)c->attr;
    attr.groups *= c->size;
    gd_tensor *in[3] = { as_channels(spread(c, 0)), fold(spread(c, 1)) };
    if (c->n > 2)
        in[2] = fold(spread(c, 2));
    return from_channels(c, apply(c, c->n, in, &attr));
}

/* convolution, convolution_grad_input */
static gd_tensor *convolution(const gd_batch_call *c)
{
    if (c->batched[1] || (c->n > 2 && c->batched[2]))
        return grouped(c);
    gd_tensor *in[3] = { fold(c->in[0]), gd_contiguous(c->in[1]), c->in[2] };
    return unfold(c, apply(c, c->n, in, c->attr));
}

/* g [n, out, ..], x [n, channels, ..] -> [out, channels / groups, ..] */
static gd_tensor *convolution_grad_weight(const gd_batch_call *c)
{
    gd_conv_attr attr = *(const gd_conv_attr *)c->attr;
    attr.groups *= c->size;
    gd_tensor *in[2] = { as_channels(spread(c, 0)), as_channels(spread(c, 1)) };
    return unfold(c, apply(c, 2, in, &attr));
}

/* ---- normalize: rows of the last axis, weight and bias [k] ---- */

/* t [size, k] beside x [size, .., k]. */
static gd_tensor *beside_rows(const gd_batch_call *c, int i)
{
    return aligned(c, i, c->node->inputs[0]->layout.rank);
}

static gd_tensor *normalize(const gd_batch_call *c)
{
    gd_norm_attr attr = *(const gd_norm_attr *)c->attr;
    gd_tensor *in[3];
    bool shared = true; /* weight and bias, by all elements */
    for (int i = 0; i < c->n; i++) {
        in[i] = gd_contiguous(i == 0 ? spread(c, 0) : c->in[i]);
        shared &= i == 0 || !c->batched[i];
    }
    if (shared)
        return apply(c, c->n, in, &attr);
    const int parts = attr.parts;
    attr.parts = 0;
    gd_tensor *r = gd_apply1(GD_OP_normalize, in[0], &attr);
    r = r ? gd_mul(r, beside_rows(c, 1)) : NULL;
    return r && parts > 1 ? gd_add(r, beside_rows(c, 2)) : r;
}

/* x [size, rows, k] -> [size, blocks, k]: the sums over the rows of each block. */
static gd_tensor *block_sums(gd_tensor *x)
{
    if (!x)
        return NULL;
    const int64_t size = x->layout.shape[0], rows = x->layout.shape[1], k = x->layout.shape[2];
    const int64_t blocks = gd_norm_blocks(rows), each = gd_norm_block_rows(rows);
    gd_tensor *full = gd_pad(x, GD_SHAPE(0, 0, 0), GD_SHAPE(0, blocks * each - rows, 0), 0.0);
    return gd_sum(gd_reshape(full, GD_SHAPE(size, blocks, each, k)), GD_AXES(2), false);
}

/* x, g [.., k], weight [k] -> [rows + parts * blocks, k]: the gradient by x of all elements' rows at
 * once; the block sums, which are each element's own, beside it. */
static gd_tensor *normalize_grad(const gd_batch_call *c)
{
    gd_norm_attr attr = *(const gd_norm_attr *)c->attr;
    const gd_layout *layout = &c->node->inputs[0]->layout;
    const int64_t rows = gd_norm_rows(layout), k = layout->shape[layout->rank - 1];
    const gd_shape flat = GD_SHAPE(c->size, rows, k);
    const int parts = attr.parts;
    attr.parts = 0;
    gd_tensor *x = gd_contiguous(spread(c, 0)), *g = spread(c, 1);
    gd_tensor *weighted = parts ? gd_mul(g, beside_rows(c, 2)) : g;
    gd_tensor *by_x = x && weighted ? gd_normalize_grad(x, weighted, NULL, &attr) : NULL;
    if (!by_x)
        return NULL;
    gd_tensor *part[3] = { gd_reshape(by_x, flat) };
    if (parts > 0) {
        gd_tensor *h = gd_apply1(GD_OP_normalize, x, &attr);
        part[1] = h ? block_sums(gd_reshape(gd_mul(g, h), flat)) : NULL;
    }
    if (parts > 1)
        part[2] = block_sums(gd_reshape(g, flat));
    for (int i = 0; i <= parts; i++)
        if (!part[i])
            return NULL;
    return gd_concat(1 + parts, part, 1);
}

/* ---- attention: q, k, v [.., heads, time, width], then a mask and a random state, or none. Packed
 * results have the elements' one after the other, and belong to no element (ops/attention.c) ---- */

enum { GRAD_PACKED = 3 }; /* attention_grad: q, k, v, packed, g */

/* A packed result that all elements share, as one for all of them: their results, then their
 * logarithms, of which each row of q has one. */
static gd_tensor *spread_packed(const gd_batch_call *c, int packed, const gd_tensor *q)
{
    gd_tensor *all = c->in[packed], *part[2];
    if (c->batched[packed])
        return all;
    const int64_t count = gd_tensor_count(all);
    const int64_t logarithms = gd_tensor_count(q) / q->layout.shape[q->layout.rank - 1];
    const int64_t begin[3] = { 0, count - logarithms, count };
    for (int i = 0; i < 2; i++) {
        const int64_t size = begin[i + 1] - begin[i];
        part[i] = gd_as_shape(gd_slice(all, 0, begin[i], begin[i + 1], 1), GD_SHAPE(c->size, size));
        part[i] = part[i] ? gd_reshape(part[i], GD_SHAPE(c->size * size)) : NULL;
        if (!part[i])
            return NULL;
    }
    return gd_concat(2, part, 0);
}

/* Operands with the batch's axis; the mask stretches to the scores. */
static bool attention_operands(const gd_batch_call *c, int packed, gd_tensor **in)
{
    const gd_attention_attr *a = c->attr;
    const int q = packed == 0 ? 1 : 0, state = a->dropout > 0 ? c->n - 1 : -1;
    const int mask = a->has_mask ? c->n - 1 - (a->dropout > 0) : -1;
    for (int i = 0; i < c->n; i++) {
        in[i] = i == state    ? c->in[i]
                : i == packed ? spread_packed(c, packed, c->node->inputs[q])
                : i == mask   ? aligned(c, i, c->node->inputs[q]->layout.rank)
                              : spread(c, i);
        if (!in[i])
            return false;
    }
    return true;
}

static gd_tensor *attention(const gd_batch_call *c)
{
    gd_tensor *in[GD_OP_MAX_INPUTS];
    return attention_operands(c, -1, in) ? apply(c, c->n, in, c->attr) : NULL;
}

static gd_tensor *attention_result(const gd_batch_call *c)
{
    gd_tensor *in[GD_OP_MAX_INPUTS];
    return attention_operands(c, 0, in) ? apply(c, c->n, in, c->attr) : NULL;
}

/* The gradients by q, k and v: of all elements one after the other, they become those of each; side by
 * side, they are. */
static gd_tensor *attention_grad(const gd_batch_call *c)
{
    gd_tensor *in[GD_OP_MAX_INPUTS], *part[3];
    gd_tensor *all = attention_operands(c, GRAD_PACKED, in) ? apply(c, c->n, in, c->attr) : NULL;
    if (((const gd_attention_attr *)c->attr)->is_joined)
        return unfold(c, all);
    for (int64_t i = 0, at = 0; all && i < 3; i++) {
        const int64_t count = gd_layout_count(&c->node->inputs[i]->layout);
        part[i] =
            gd_reshape(gd_slice(all, 0, at, at + c->size * count, 1), GD_SHAPE(c->size, count));
        at += c->size * count;
        if (!part[i])
            return NULL;
    }
    return all ? gd_concat(3, part, 1) : NULL;
}

/* ---- random numbers: as many as all elements need, so that each has its own ---- */

static gd_tensor *random_bits(const gd_batch_call *c)
{
    gd_random_attr attr;
    memcpy(&attr, c->attr, sizeof attr);
    gd_set_shape(&attr.shape, result_shape(c));
    return apply(c, c->n, c->in, &attr);
}

static gd_tensor *dropout(const gd_batch_call *c)
{
    gd_tensor *in[2] = { spread(c, 0), c->in[1] };
    return apply(c, 2, in, c->attr);
}

/* ---- the rules ---- */

typedef gd_tensor *(*batch_rule)(const gd_batch_call *call);

static const batch_rule rules[GD_OP_COUNT] = {
    [GD_OP_random_bits] = random_bits,
    [GD_OP_dropout] = dropout,
    [GD_OP_reshape] = reshape,
    [GD_OP_permute] = permute,
    [GD_OP_broadcast_to] = broadcast_to,
    [GD_OP_slice] = slice,
    [GD_OP_copy] = unchanged,
    [GD_OP_pad] = pad,
    [GD_OP_concat] = along_axis,
    [GD_OP_cast] = unchanged,
    [GD_OP_sum] = reduce,
    [GD_OP_prod] = reduce,
    [GD_OP_max] = reduce,
    [GD_OP_min] = reduce,
    [GD_OP_argmax] = along_axis,
    [GD_OP_argmin] = along_axis,
    [GD_OP_cumsum] = along_axis,
    [GD_OP_cumprod] = along_axis,
    [GD_OP_matmul] = matmul,
    [GD_OP_gather] = gather,
    [GD_OP_scatter_add] = along_axis,
    [GD_OP_scatter] = along_axis,
    [GD_OP_argsort] = unchanged,
    [GD_OP_searchsorted] = unchanged,
    [GD_OP_softmax] = along_axis,
    [GD_OP_log_softmax] = along_axis,
    [GD_OP_cross_entropy] = as_rows,
    [GD_OP_cross_entropy_grad] = as_rows,
    [GD_OP_normalize] = normalize,
    [GD_OP_normalize_grad] = normalize_grad,
    [GD_OP_attention] = attention,
    [GD_OP_attention_result] = attention_result,
    [GD_OP_attention_grad] = attention_grad,
    [GD_OP_convolution] = convolution,
    [GD_OP_convolution_grad_input] = convolution,
    [GD_OP_convolution_grad_weight] = convolution_grad_weight,
    [GD_OP_max_pool] = as_rows,
    [GD_OP_max_pool_index] = as_rows,
    [GD_OP_max_pool_grad] = as_rows,
    [GD_OP_avg_pool] = as_rows,
    [GD_OP_avg_pool_grad] = as_rows,
};

static batch_rule rule_of(const gd_op *op)
{
    return op->flags & GD_OP_ELEMENTWISE ? broadcasting : rules[op->id];
}

bool gd_batch_has_rule(const gd_batch_call *c)
{
    const gd_op *op = c->node->op;
    if (!rule_of(op) || c->node->layout.rank == GD_MAX_RANK)
        return false;
    for (int i = 0; i < c->n; i++)
        if (c->node->inputs[i]->layout.rank == GD_MAX_RANK)
            return false;
    /* A vector is searched, one. */
    return op->id != GD_OP_searchsorted || !c->batched[0];
}

gd_tensor *gd_batch_apply(const gd_batch_call *c)
{
    return rule_of(c->node->op)(c);
}
