/* ops/attention.c: scaled dot-product attention (Vaswani et al., "Attention is all you need",
 * 2017). Start at gd_attention_with().
 *
 *     S = scale Q K^T (+ mask),   P = softmax(S),   O = dropout(P) V
 *
 * Two ways to the same values. The plain composition, made of matrix products and a softmax, stores
 * S and P, O(T^2) numbers. The ops never do (FlashAttention: Dao, Fu, Ermon, Rudra, Ré 2022; Dao
 * 2023): `attention` gives O and, for each row, L = log(sum(exp(S))), with which `attention_grad`
 * computes pieces of P again. Both lie in one flat result, O first; `attention_result` is the view
 * of O that users get, and the node derivatives start from. O and the three gradients lie in the
 * order [.., time, heads, width], in which heads are merged without a copy.
 *
 * f16 and bf16: q, k, v and the gradient of the result are halves, where the device has products of
 * them; O, L and the gradients are sums and lie in f32, which builders round once. A mask of numbers is
 * f32. The plain composition widens.
 */
#include "ops/internal.h"

#include "backend/backend.h"
#include "base/options.h"

#include <math.h>

#include "graph/trace.h"

/* Inputs of the ops. What is optional stands at the end: the mask, then the random state. */
enum { Q, K, V };            /* attention */
enum { PACKED, RESULT_Q };   /* attention_result: packed, q, k, v */
enum { GRAD_PACKED = 3, G }; /* attention_grad: q, k, v, packed, g */
#define GRAD_EXTRAS (G + 1)  /* where its optional inputs begin */
#define MOST_INPUTS (GRAD_EXTRAS + 2)

static gd_shape shape_of(const gd_layout *layout)
{
    return gd_layout_shape(layout);
}

/* shape with its axis `from_end` (1: the last) replaced. */
static gd_shape with_axis(gd_shape shape, int from_end, int64_t size)
{
    shape.dim[shape.rank - from_end] = size;
    return shape;
}

/* [.., h, tq, d] and [.., hk, tk, d] -> [.., h, tq, tk] */
static gd_shape score_shape(const gd_layout *q, const gd_layout *k)
{
    return with_axis(shape_of(q), 1, k->shape[k->rank - 2]);
}

static int64_t count_of(gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    return count;
}

/* ---- shapes ---- */

static gd_status fail_shapes(const gd_layout *const *in, const char *why)
{
    char q[GD_SHAPE_TEXT], k[GD_SHAPE_TEXT], v[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "gd_attention: q %s, k %s, v %s: %s", gd_layout_text(in[Q], q),
                   gd_layout_text(in[K], k), gd_layout_text(in[V], v), why);
}

static gd_status check_shapes(const gd_layout *const *in)
{
    const gd_layout *q = in[Q], *k = in[K], *v = in[V];
    int rank = q->rank;
    if (rank < 3 || k->rank != rank || v->rank != rank)
        return fail_shapes(in, "all need the axes [.., heads, time, width], as many of them");
    for (int i = 0; i < rank - 3; i++)
        if (q->shape[i] != k->shape[i] || q->shape[i] != v->shape[i])
            return fail_shapes(in, "the batch axes differ");
    int64_t heads = q->shape[rank - 3], groups = k->shape[rank - 3];
    if (v->shape[rank - 3] != groups || v->shape[rank - 2] != k->shape[rank - 2])
        return fail_shapes(in, "k and v differ in heads or time");
    if (groups < 1 ? heads > 0 : heads % groups != 0)
        return fail_shapes(in, "the heads of q are no multiple of those of k and v");
    if (q->shape[rank - 1] != k->shape[rank - 1] || q->shape[rank - 1] < 1)
        return fail_shapes(in, "the widths of q and k differ, or are 0");
    return GD_OK;
}

static gd_status check_operands(const gd_layout *const *in, const gd_layout *const *extras, int n,
                                const gd_attention_attr *attr)
{
    if (check_shapes(in) != GD_OK)
        return gd_error_last();
    gd_dtype dtype = gd_sums_dtype(in[Q]->dtype);
    if (n != (attr->has_mask != 0) + (attr->dropout > 0))
        return gd_fail(GD_ERR_INVALID, "gd_attention: %d optional operands do not fit the options",
                       n);
    if (!attr->has_mask)
        return GD_OK;
    gd_layout stretched;
    gd_shape scores = score_shape(in[Q], in[K]);
    if (!gd_layout_broadcast(extras[0], scores, &stretched)) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_attention: the mask %s does not stretch to the scores %s",
                       gd_layout_text(extras[0], a), gd_shape_text(scores, b));
    }
    if (extras[0]->dtype != GD_BOOL && extras[0]->dtype != dtype)
        return gd_fail(GD_ERR_DTYPE, "gd_attention: the mask is %s; bool or %s is needed",
                       gd_dtype_name(extras[0]->dtype), gd_dtype_name(dtype));
    return GD_OK;
}

/* [.., h, tq, dv] */
static gd_shape result_shape(const gd_layout *q, const gd_layout *v)
{
    return with_axis(shape_of(q), 1, v->shape[v->rank - 1]);
}

/* Numbers in `packed`: O and a logarithm for each of its rows. */
static int64_t packed_count(const gd_layout *q, const gd_layout *v)
{
    int64_t width = v->shape[v->rank - 1];
    return count_of(with_axis(shape_of(q), 1, width + 1));
}

static gd_status infer_attention(int n, const gd_layout *const *in, const void *attr,
                                 gd_layout *out)
{
    if (n < 3 || check_operands(in, in + 3, n - 3, attr) != GD_OK)
        return gd_error_last();
    return gd_layout_init(out, GD_SHAPE(packed_count(in[Q], in[V])), gd_sums_dtype(in[Q]->dtype),
                          "gd_attention");
}

static bool are_alike(const gd_layout *const *qkv)
{
    return qkv[K]->dtype == qkv[Q]->dtype && qkv[V]->dtype == qkv[Q]->dtype;
}

static gd_status infer_attention_result(int n, const gd_layout *const *in, const void *attr,
                                        gd_layout *out)
{
    const gd_layout *const *qkv = in + RESULT_Q;
    if (n < 4 || check_operands(qkv, in + 4, n - 4, attr) != GD_OK ||
        gd_layout_init(out, result_shape(qkv[Q], qkv[V]), in[PACKED]->dtype, "gd_attention") !=
            GD_OK)
        return gd_error_last();
    if (!are_alike(qkv) || in[PACKED]->dtype != gd_sums_dtype(qkv[Q]->dtype))
        return gd_fail(GD_ERR_DTYPE, "attention_result: the operands are not attention's");
    if (in[PACKED]->rank != 1 || in[PACKED]->shape[0] != packed_count(qkv[Q], qkv[V]) ||
        (in[PACKED]->shape[0] > 1 && in[PACKED]->stride[0] != 1))
        return gd_fail(GD_ERR_SHAPE, "attention_result: the first operand is not attention's");
    out->offset = in[PACKED]->offset;
    int rank = out->rank;
    out->stride[rank - 3] = out->shape[rank - 1];
    out->stride[rank - 2] = out->shape[rank - 3] * out->shape[rank - 1];
    return GD_OK;
}

/* The gradients of q, k and v, one after the other or joined row by row. */
static gd_status infer_attention_grad(int n, const gd_layout *const *in, const void *attr,
                                      gd_layout *out)
{
    if (n < GRAD_EXTRAS || check_operands(in, in + GRAD_EXTRAS, n - GRAD_EXTRAS, attr) != GD_OK)
        return gd_error_last();
    gd_layout result;
    if (gd_layout_init(&result, result_shape(in[Q], in[V]), in[Q]->dtype, "gd_attention") != GD_OK)
        return gd_error_last();
    const gd_dtype sums = gd_sums_dtype(in[Q]->dtype);
    if (in[GRAD_PACKED]->rank != 1 || in[GRAD_PACKED]->dtype != sums ||
        in[GRAD_PACKED]->shape[0] != packed_count(in[Q], in[V]) ||
        !gd_layout_same_shape(in[G], &result) || in[G]->dtype != in[Q]->dtype)
        return gd_fail(GD_ERR_SHAPE, "attention_grad: the gradient does not fit the operands");
    int time = in[Q]->rank - 2;
    if (((const gd_attention_attr *)attr)->is_joined && in[Q]->shape[time] != in[K]->shape[time])
        return gd_fail(GD_ERR_SHAPE, "attention_grad: to join rows takes a key for each query");
    int64_t count = gd_layout_count(in[Q]) + gd_layout_count(in[K]) + gd_layout_count(in[V]);
    return gd_layout_init(out, GD_SHAPE(count), sums, "gd_attention");
}

static void format_attention(const void *attr, char *text, size_t size)
{
    const gd_attention_attr *a = attr;
    int used = gd_snprintf(text, size, "scale=%g%s%s%s", a->scale, a->causal ? " causal" : "",
                           a->has_mask ? " mask" : "", a->is_joined ? " joined" : "");
    if (a->dropout > 0 && used > 0 && (size_t)used < size)
        gd_snprintf(text + used, size - (size_t)used, " dropout=%g", a->dropout);
}

/* ---- the plain composition ---- */

/* [.., heads, time, width] to [.., time, heads, width], or back. */
static gd_tensor *swap_heads(gd_tensor *x)
{
    return gd_transpose(x, -3, -2);
}

/* The part of attention_grad's result that is gradient number `i`, [.., heads, time, width]. */
static gd_tensor *unpack(gd_tensor *result, const gd_attention_attr *attr, gd_tensor *const *qkv,
                         int i)
{
    const gd_layout *const layouts[] = { &qkv[Q]->layout, &qkv[K]->layout, &qkv[V]->layout };
    gd_attention_offsets p = gd_attention_grad_offsets(attr, layouts);
    gd_shape shape = shape_of(layouts[i]);
    int rank = shape.rank;
    int64_t heads = shape.dim[rank - 3], time = shape.dim[rank - 2], width = shape.dim[rank - 1];
    int64_t size = attr->is_joined ? heads * width : count_of(shape);
    shape.dim[rank - 3] = time;
    if (attr->is_joined) { // [.., time, all widths]
        gd_shape rows = shape;
        rows.rank--;
        rows.dim[rank - 2] = p.row[i];
        result = gd_reshape(result, rows);
    }
    shape.dim[rank - 2] = heads;
    return swap_heads(gd_reshape(gd_slice(result, -1, p.at[i], p.at[i] + size, 1), shape));
}

/* [.., heads, time, width] -> [.., time, heads * width] */
static gd_tensor *join_heads(gd_tensor *x)
{
    gd_tensor *rows = swap_heads(x);
    if (!rows)
        return NULL;
    gd_shape shape = shape_of(&rows->layout);
    shape.rank--;
    shape.dim[shape.rank - 1] *= shape.dim[shape.rank];
    return gd_reshape(rows, shape);
}

static gd_tensor *flat(gd_tensor *x)
{
    return x ? gd_reshape(x, GD_SHAPE(gd_tensor_count(x))) : NULL;
}

/* k or v [.., hk, t, d], each head repeated for the heads of q that share it: [.., h, t, d]. */
static gd_tensor *repeat_heads(gd_tensor *k, int64_t heads)
{
    if (!k)
        return NULL;
    int rank = k->layout.rank;
    gd_shape shape = shape_of(&k->layout);
    int64_t groups = shape.dim[rank - 3];
    if (groups == heads || groups == 0)
        return k;
    gd_shape wide = { .rank = rank + 1 }, each = { .rank = rank + 1 };
    for (int i = 0; i <= rank; i++) {
        int64_t size = i == rank - 2 ? 1 : shape.dim[i < rank - 2 ? i : i - 1];
        each.dim[i] = size;
        wide.dim[i] = i == rank - 2 ? heads / groups : size;
    }
    shape.dim[rank - 3] = heads;
    return gd_reshape(gd_broadcast_to(gd_reshape(k, each), wide), shape);
}

/* Its adjoint: gradients of repeated heads [.., h, t, d] summed into [.., hk, t, d]. */
static gd_tensor *sum_heads(gd_tensor *g, int64_t groups)
{
    if (!g)
        return NULL;
    int rank = g->layout.rank;
    gd_shape shape = shape_of(&g->layout), split = { .rank = rank + 1 };
    int64_t heads = shape.dim[rank - 3];
    if (groups == heads || groups == 0)
        return g;
    for (int i = 0; i <= rank; i++)
        split.dim[i] = shape.dim[i < rank - 2 ? i : i - 1];
    split.dim[rank - 3] = groups;
    split.dim[rank - 2] = heads / groups;
    return gd_sum(gd_reshape(g, split), GD_AXES(rank - 2), false);
}

static gd_tensor *swap(gd_tensor *x)
{
    return gd_transpose(x, -1, -2);
}

/* Which scores count, bool, or NULL where all do: those a mask does not exclude and, with `causal`,
 * those of keys that are not after the query. *ok: no builder failed. */
static gd_tensor *allowed(const gd_attention_attr *attr, gd_tensor *mask, gd_tensor *q,
                          gd_tensor *k, bool *ok)
{
    gd_tensor *all = NULL;
    *ok = true;
    if (attr->has_mask) {
        all = mask->layout.dtype == GD_BOOL ? mask : gd_ne(mask, gd_number_like(mask, -INFINITY));
        *ok = all != NULL;
    }
    if (*ok && attr->causal) {
        int64_t tq = q->layout.shape[q->layout.rank - 2], tk = k->layout.shape[k->layout.rank - 2];
        gd_tensor *i = gd_arange(q->context, (double)(tk - tq), (double)tk, 1, GD_I64);
        gd_tensor *j = gd_arange(q->context, 0, (double)tk, 1, GD_I64);
        gd_tensor *past = gd_ge(gd_unsqueeze(i, 1), j);
        all = all ? gd_logical_and(all, past) : past;
        *ok = all != NULL;
    }
    return all;
}

/* What each score's probability is multiplied by: 0 with probability p, else 1/(1-p). The word of
 * row r and key j is number offset + r * tk + j after the state's position. */
static gd_tensor *dropout_factors(const gd_attention_attr *attr, gd_tensor *state, gd_shape scores,
                                  gd_dtype dtype)
{
    gd_random_attr random;
    memset(&random, 0, sizeof random);
    random.shape.rank = scores.rank;
    for (int i = 0; i < scores.rank; i++)
        random.shape.dim[i] = scores.dim[i];
    random.offset = attr->offset;
    random.dtype = GD_I32;
    gd_tensor *bits = gd_apply1(GD_OP_random_bits, state, &random);
    if (!bits)
        return NULL;
    gd_tensor *low = gd_bitwise_and(bits, gd_number_like(bits, 16777215));
    gd_tensor *keep = gd_ge(low, gd_number_like(bits, ceil(attr->dropout * 16777216)));
    return gd_mul_scalar(gd_cast(keep, dtype), 1 / (1 - attr->dropout));
}

/* Intermediate values of the plain composition, [.., h, tq, tk] unless said otherwise; of bf16 in
 * f32. */
typedef struct plain {
    gd_tensor *q;
    gd_tensor *k, *v;       // [.., h, tk, d], heads repeated
    gd_tensor *scores;      /* S, with -inf where not allowed */
    gd_tensor *probability; /* P, with rows of zeros where nothing is allowed */
    gd_tensor *factors;     /* of dropout, or NULL */
    gd_tensor *dropped;     /* P times them */
} plain;

static gd_tensor *widened(gd_tensor *x)
{
    return gd_as_dtype(x, gd_sums_dtype(x->layout.dtype));
}

static bool compose(gd_tensor *const *in, gd_tensor *const *extras, const gd_attention_attr *attr,
                    plain *p)
{
    gd_tensor *q = p->q = widened(in[Q]);
    if (!q)
        return false;
    int64_t heads = q->layout.shape[q->layout.rank - 3];
    p->k = repeat_heads(widened(in[K]), heads);
    p->v = repeat_heads(widened(in[V]), heads);
    p->scores = gd_mul_scalar(gd_product(q, swap(p->k)), attr->scale);
    if (!p->scores)
        return false;
    gd_tensor *mask = attr->has_mask ? extras[0] : NULL;
    bool ok;
    gd_tensor *may = allowed(attr, mask, q, in[K], &ok);
    if (!ok)
        return false;
    if (mask && mask->layout.dtype != GD_BOOL)
        p->scores = gd_add(p->scores, mask);
    if (may)
        p->scores = gd_where(may, p->scores, gd_number_like(q, -INFINITY));
    p->probability = gd_softmax(p->scores, -1);
    if (may) /* also where a whole row is excluded, whose softmax is NaN */
        p->probability = gd_where(may, p->probability, gd_number_like(q, 0));
    p->factors = NULL;
    p->dropped = p->probability;
    if (attr->dropout > 0 && p->probability) {
        p->factors = dropout_factors(attr, extras[attr->has_mask], shape_of(&p->scores->layout),
                                     q->layout.dtype);
        p->dropped = gd_mul(p->probability, p->factors);
    }
    return p->dropped != NULL;
}

/* `attention` from simpler ops: O, then L = log(sum(exp(S))), +inf for a row without keys. */
static gd_tensor *decompose_attention(int n, gd_tensor *const *in, const void *attr)
{
    (void)n;
    plain p;
    if (!compose(in, in + 3, attr, &p))
        return NULL;
    gd_tensor *o = gd_product(p.dropped, p.v);
    gd_tensor *l;
    if (p.k->layout.shape[p.k->layout.rank - 2] == 0) {
        gd_shape rows = shape_of(&in[Q]->layout);
        rows.rank--;
        l = gd_full(in[Q]->context, rows, INFINITY, p.q->layout.dtype);
    } else {
        l = gd_logsumexp(p.scores, GD_AXES(-1), false);
        l = l ? gd_where(gd_eq(l, gd_number_like(l, -INFINITY)), gd_number_like(l, INFINITY), l)
              : NULL;
    }
    gd_tensor *parts[2] = { flat(swap_heads(o)), flat(l) };
    return parts[0] && parts[1] ? gd_concat(2, parts, 0) : NULL;
}

/* Products of [tq, d] and [tk, d], or [tq, tk] and [tk, d]: `with_d` of them in the width of q and
 * k, `with_dv` in that of v; half as much where the future is hidden. */
static double flops_of_products(const gd_layout *const *in, const void *attr, int with_d,
                                int with_dv)
{
    const gd_layout *q = in[0], *v = in[2];
    const double d = (double)q->shape[q->rank - 1], dv = (double)v->shape[v->rank - 1];
    const double pairs = (double)gd_layout_count(q) / d * (double)v->shape[v->rank - 2];
    const bool causal = ((const gd_attention_attr *)attr)->causal != 0;
    return 2 * pairs * (with_d * d + with_dv * dv) * (causal ? 0.5 : 1);
}

static double flops_attention(int n, const gd_layout *const *in, const gd_layout *out,
                              const void *attr)
{
    (void)n, (void)out;
    return flops_of_products(in, attr, 1, 1);
}

static double flops_attention_grad(int n, const gd_layout *const *in, const gd_layout *out,
                                   const void *attr)
{
    (void)n, (void)out;
    return flops_of_products(in, attr, 3, 2);
}

static uint64_t *attention_offset(void *attr)
{
    gd_attention_attr *a = attr;
    return a->dropout > 0 ? &a->offset : NULL;
}

const gd_op gd_op_attention = { .id = GD_OP_attention,
                                .name = "attention",
                                .arity = GD_OP_VARIADIC,
                                .flags = GD_OP_LOWER,
                                .dtypes = GD_DTYPES_REAL | GD_DTYPES_HALF,
                                .alike = 1 << K | 1 << V,
                                .attr_size = sizeof(gd_attention_attr),
                                .infer = infer_attention,
                                .decompose = decompose_attention,
                                .format = format_attention,
                                .flops = flops_attention,
                                .recompute = GD_RECOMPUTE_NEVER,
                                .random_offset = attention_offset };

/* ---- the derivative ---- */

/* With dP = (G V^T) * factors: dS = P (dP - rowsum(dP P)) scale. */
static gd_tensor *score_gradient(const plain *p, gd_tensor *dp, double scale)
{
    gd_tensor *along = gd_sum(gd_mul(dp, p->probability), GD_AXES(-1), true);
    return gd_mul_scalar(gd_mul(p->probability, gd_sub(dp, along)), scale);
}

static gd_tensor *probability_gradient(const plain *p, gd_tensor *g)
{
    gd_tensor *dp = gd_product(g, swap(p->v));
    return p->factors ? gd_mul(dp, p->factors) : dp;
}

static gd_tensor *decompose_attention_grad(int n, gd_tensor *const *in, const void *attr)
{
    (void)n;
    double scale = ((const gd_attention_attr *)attr)->scale;
    int64_t groups = in[K]->layout.shape[in[K]->layout.rank - 3];
    plain p;
    if (!compose(in, in + GRAD_EXTRAS, attr, &p))
        return NULL;
    gd_tensor *g = widened(in[G]);
    gd_tensor *ds = score_gradient(&p, probability_gradient(&p, g), scale);
    gd_tensor *parts[3] = { gd_product(ds, p.k), sum_heads(gd_product(swap(ds), p.q), groups),
                            sum_heads(gd_product(swap(p.dropped), g), groups) };
    const bool is_joined = ((const gd_attention_attr *)attr)->is_joined;
    for (int i = 0; i < 3; i++)
        parts[i] = is_joined ? join_heads(parts[i]) : flat(swap_heads(parts[i]));
    return parts[0] && parts[1] && parts[2] ? flat(gd_concat(3, parts, -1)) : NULL;
}

/* The derivative of the derivative, by the chain rule through the plain composition. x_bar is the
 * gradient by x; uq, uk, uv are the gradients by those of q, k and v. */
static bool vjp_attention_grad(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    gd_tensor **in = r->inputs;
    const gd_attention_attr *attr = r->attr;
    double scale = attr->scale;
    int64_t heads = in[Q]->layout.shape[in[Q]->layout.rank - 3];
    int64_t groups = in[K]->layout.shape[in[K]->layout.rank - 3];
    plain p;
    if (!compose(in, in + GRAD_EXTRAS, attr, &p))
        return false;
    gd_tensor *uq = unpack(u, attr, in, Q);
    gd_tensor *uk = repeat_heads(unpack(u, attr, in, K), heads);
    gd_tensor *uv = repeat_heads(unpack(u, attr, in, V), heads);
    gd_tensor *g = widened(in[G]), *q = p.q;
    gd_tensor *dp = probability_gradient(&p, g), *ds = score_gradient(&p, dp, scale);

    gd_tensor *ds_bar =
        gd_mul_scalar(gd_add(gd_product(uq, swap(p.k)), gd_product(q, swap(uk))), scale);
    gd_tensor *c = gd_sum(gd_mul(ds_bar, p.probability), GD_AXES(-1), true);
    gd_tensor *along = gd_sum(gd_mul(dp, p.probability), GD_AXES(-1), true);
    gd_tensor *dp_bar = gd_mul(p.probability, gd_sub(ds_bar, c));
    gd_tensor *p_bar = gd_sub(gd_mul(ds_bar, gd_sub(dp, along)), gd_mul(c, dp));
    gd_tensor *dropped_bar = gd_product(g, swap(uv));
    if (p.factors) {
        dp_bar = gd_mul(dp_bar, p.factors);
        dropped_bar = gd_mul(dropped_bar, p.factors);
    }
    p_bar = gd_add(p_bar, dropped_bar);
    gd_tensor *s_bar = score_gradient(&p, p_bar, scale);

    gd_tensor *q_bar = gd_add(gd_product(ds, uk), gd_product(s_bar, p.k));
    gd_tensor *k_bar = gd_add(gd_product(swap(ds), uq), gd_product(swap(s_bar), q));
    gd_tensor *v_bar = gd_product(swap(dp_bar), g);
    gd_tensor *g_bar = gd_add(gd_product(p.dropped, uv), gd_product(dp_bar, p.v));
    const gd_dtype dtype = in[Q]->layout.dtype;
    return gd_put(&d[Q], gd_as_dtype(q_bar, dtype)) &&
           gd_put(&d[K], gd_as_dtype(sum_heads(k_bar, groups), dtype)) &&
           gd_put(&d[V], gd_as_dtype(sum_heads(v_bar, groups), dtype)) &&
           gd_put(&d[G], gd_as_dtype(g_bar, dtype));
}

const gd_op gd_op_attention_grad = { .id = GD_OP_attention_grad,
                                     .name = "attention_grad",
                                     .arity = GD_OP_VARIADIC,
                                     .dtypes = GD_DTYPES_REAL | GD_DTYPES_HALF,
                                     .alike = 1 << K | 1 << V | 1 << G,
                                     .attr_size = sizeof(gd_attention_attr),
                                     .infer = infer_attention_grad,
                                     .vjp = vjp_attention_grad,
                                     .decompose = decompose_attention_grad,
                                     .format = format_attention,
                                     .flops = flops_attention_grad,
                                     .recompute = GD_RECOMPUTE_NEVER,
                                     .random_offset = attention_offset };

static bool vjp_attention_result(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor **qkv = r->inputs + RESULT_Q;
    const gd_dtype dtype = qkv[Q]->layout.dtype; /* to which the result was rounded */
    gd_tensor *in[MOST_INPUTS] = { qkv[Q], qkv[K], qkv[V], r->inputs[PACKED],
                                   gd_as_dtype(g, dtype) };
    int n = GRAD_EXTRAS;
    for (int i = 4; i < r->n_inputs; i++)
        in[n++] = r->inputs[i];
    gd_tensor *all = gd_as_dtype(gd_apply(NULL, GD_OP_attention_grad, n, in, r->attr), dtype);
    for (int i = Q; i <= V; i++) {
        gd_tensor *part = unpack(all, r->attr, qkv, i);
        if (gd_wants_grad(qkv[i]) && !gd_put(&d[RESULT_Q + i], part))
            return false;
    }
    return all != NULL;
}

const gd_op gd_op_attention_result = { .id = GD_OP_attention_result,
                                       .name = "attention_result",
                                       .arity = GD_OP_VARIADIC,
                                       .dtypes = GD_DTYPES_REAL,
                                       .flags = GD_OP_VIEW,
                                       .attr_size = sizeof(gd_attention_attr),
                                       .infer = infer_attention_result,
                                       .vjp = vjp_attention_result,
                                       .format = format_attention,
                                       .random_offset = attention_offset };

/* ---- keys and values in fewer bits ---- */

/* attention_narrow: q f32, k and v halves or i8; of i8 their scales; then the mask. The result is O
 * [.., tq, heads, dv], with the bits that attention has of k and v in f32. */
enum { K_SCALE = 3, V_SCALE };

/* How many operands stand before the mask. */
static int narrow_operands(gd_dtype dtype)
{
    return dtype == GD_I8 ? 5 : 3;
}

static bool is_narrow(gd_dtype dtype)
{
    return dtype == GD_I8 || gd_dtype_is_half(dtype);
}

/* Scales: one for each row of k, or of v. */
static gd_status check_scale(const gd_layout *x, const gd_layout *scale)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (x->dtype != GD_I8 || scale->dtype != GD_F32)
        return gd_fail(
            GD_ERR_DTYPE,
            "gd_attention: keys or values of %s with scales of %s; i8 and f32 are needed",
            gd_dtype_name(x->dtype), gd_dtype_name(scale->dtype));
    bool fits = x->rank >= 1 && scale->rank == x->rank && scale->shape[x->rank - 1] == 1;
    for (int i = 0; fits && i + 1 < x->rank; i++)
        fits = scale->shape[i] == x->shape[i];
    if (!fits)
        return gd_fail(GD_ERR_SHAPE,
                       "gd_attention: keys or values %s with scales %s; one for each row, [.., "
                       "kv_heads, tk, 1], is needed",
                       gd_layout_text(x, a), gd_layout_text(scale, b));
    return GD_OK;
}

static gd_status infer_attention_narrow(int n, const gd_layout *const *in, const void *attr,
                                        gd_layout *out)
{
    if (n < 3)
        return gd_fail(GD_ERR_INVALID, "attention_narrow: %d operands", n);
    const int first = narrow_operands(in[K]->dtype);
    if (!is_narrow(in[K]->dtype) || in[V]->dtype != in[K]->dtype)
        return gd_fail(
            GD_ERR_DTYPE,
            "attention_narrow: keys are %s and values %s; halves or i8, alike, are needed",
            gd_dtype_name(in[K]->dtype), gd_dtype_name(in[V]->dtype));
    if (n < first || check_operands(in, in + first, n - first, attr) != GD_OK)
        return n < first ? gd_fail(GD_ERR_INVALID, "attention_narrow: i8 has no scales")
                         : gd_error_last();
    if (first > 3 &&
        (check_scale(in[K], in[K_SCALE]) != GD_OK || check_scale(in[V], in[V_SCALE]) != GD_OK))
        return gd_error_last();
    gd_shape shape = result_shape(in[Q], in[V]);
    const int64_t heads = shape.dim[shape.rank - 3];
    shape.dim[shape.rank - 3] = shape.dim[shape.rank - 2];
    shape.dim[shape.rank - 2] = heads;
    return gd_layout_init(out, shape, GD_F32, "gd_attention");
}

/* What k or v of i8 stands for. */
static gd_tensor *scaled(gd_tensor *x, gd_tensor *scale)
{
    return gd_mul(gd_cast(x, GD_F32), scale);
}

static gd_tensor *decompose_attention_narrow(int n, gd_tensor *const *in, const void *attr)
{
    const int first = narrow_operands(in[K]->layout.dtype);
    const bool has_scales = first > 3;
    gd_tensor *wide[3] = { in[Q], has_scales ? scaled(in[K], in[K_SCALE]) : gd_cast(in[K], GD_F32),
                           has_scales ? scaled(in[V], in[V_SCALE]) : gd_cast(in[V], GD_F32) };
    plain p;
    (void)n;
    if (!wide[K] || !wide[V] || !compose(wide, in + first, attr, &p))
        return NULL;
    return gd_contiguous(swap_heads(gd_product(p.dropped, p.v)));
}

const gd_op gd_op_attention_narrow = { .id = GD_OP_attention_narrow,
                                       .name = "attention_narrow",
                                       .arity = GD_OP_VARIADIC,
                                       .flags = GD_OP_LOWER,
                                       .dtypes = GD_DTYPE_SET(GD_F32),
                                       .attr_size = sizeof(gd_attention_attr),
                                       .infer = infer_attention_narrow,
                                       .decompose = decompose_attention_narrow,
                                       .format = format_attention,
                                       .flops = flops_attention,
                                       .recompute = GD_RECOMPUTE_NEVER };

/* ---- what users call ---- */

/* A copy of the context's random state that does not change when more is drawn, with `words` set
 * aside for the caller from number *offset after its position on. */
static gd_tensor *take_random(gd_context *context, uint64_t words, uint64_t *offset)
{
    *offset = 0;
    if (context->trace) {
        *offset = context->trace->random_words;
        context->trace->random_words += words;
        return gd_apply1(GD_OP_copy, context->random_state, NULL);
    }
    if (gd_random_publish(context) != GD_OK)
        return NULL;
    gd_tensor *state = gd_apply1(GD_OP_copy, context->random_state, NULL);
    if (state)
        context->random_position += words;
    return state;
}

/* The dtype in which the op takes q, k and v, of `dtype` once promoted: halves stay so where the device
 * has a kernel for them, else they are f32. */
static gd_dtype factor_dtype(gd_tensor *const *qkv, gd_dtype dtype, const gd_attention_attr *attr)
{
    const gd_device *device = qkv[Q]->context->device;
    if (!gd_dtype_is_half(dtype) || gd_compute_dtype(GD_OP_attention, dtype) != dtype)
        return gd_compute_dtype(GD_OP_attention, dtype);
    if (!gd_dtype_set_has(device->half_products, dtype))
        return GD_F32;
    gd_layout rounded[3];
    for (int i = Q; i <= V; i++) {
        rounded[i] = qkv[i]->layout;
        rounded[i].dtype = dtype;
    }
    const gd_layout *const in[] = { &rounded[Q], &rounded[K], &rounded[V] };
    return gd_op_is_taken(qkv[Q]->context, GD_OP_attention, 3, in, attr) ? dtype : GD_F32;
}

/* Everything as the ops want it: q, k and v, given in `in`, of one compute dtype, then the mask and
 * random state. How many there are; 0 on an error. */
static int collect_inputs(const gd_attention_options *o, gd_dtype dtype, gd_attention_attr *attr,
                          gd_tensor **in)
{
    in[Q] = gd_as_dtype(in[Q], dtype);
    in[K] = gd_as_dtype(in[K], dtype);
    in[V] = gd_as_dtype(in[V], dtype);
    int n = 3;
    if (o->mask) {
        attr->has_mask = 1;
        in[n++] =
            o->mask->layout.dtype == GD_BOOL ? o->mask : gd_as_dtype(o->mask, gd_sums_dtype(dtype));
    }
    for (int i = 0; i < n; i++)
        if (!in[i])
            return 0;
    if (o->dropout > 0) {
        const gd_layout *layouts[] = { &in[Q]->layout, &in[K]->layout, &in[V]->layout };
        if (check_shapes(layouts) != GD_OK)
            return 0;
        attr->dropout = o->dropout;
        uint64_t words = (uint64_t)count_of(score_shape(&in[Q]->layout, &in[K]->layout));
        in[n] = take_random(in[Q]->context, words, &attr->offset);
        n = in[n] ? n + 1 : 0;
    }
    return n;
}

/* The plain composition as a function of its own, for masks that want a gradient and for
 * comparison. */
static gd_tensor *attend_plainly(int n, gd_tensor *const *in, const gd_attention_attr *attr)
{
    const gd_layout *layouts[MOST_INPUTS];
    for (int i = 0; i < n; i++)
        layouts[i] = &in[i]->layout;
    plain p;
    if (check_operands(layouts, layouts + 3, n - 3, attr) != GD_OK ||
        !compose(in, in + 3, attr, &p))
        return NULL;
    return gd_product(p.dropped, p.v);
}

static bool wants_gradient(const gd_tensor *x)
{
    return x && x->requires_grad;
}

/* Whether k and v, in fewer bits than q, may be read as they are. */
static bool may_be_narrow(gd_tensor *const *qkv, const gd_attention_options *o)
{
    const gd_context *context = qkv[Q]->context;
    const bool differentiates =
        context->no_grad == 0 &&
        (wants_gradient(qkv[Q]) || wants_gradient(qkv[K]) || wants_gradient(qkv[V]) ||
         wants_gradient(o->mask) || wants_gradient(o->k_scale) || wants_gradient(o->v_scale));
    return qkv[Q]->layout.dtype == GD_F32 && is_narrow(qkv[K]->layout.dtype) &&
           qkv[V]->layout.dtype == qkv[K]->layout.dtype && !o->plain && !(o->dropout > 0) &&
           !differentiates && (qkv[K]->layout.dtype != GD_I8 || o->k_scale) &&
           !gd_autocast_is_on(context);
}

/* *r: the result by attention_narrow, NULL on an error. false: the device has no kernel. */
static bool attend_narrowly(gd_tensor *const *qkv, const gd_attention_options *o,
                            gd_attention_attr attr, gd_tensor **r)
{
    gd_tensor *in[MOST_INPUTS] = { qkv[Q], qkv[K], qkv[V], o->k_scale, o->v_scale };
    const gd_layout *layouts[MOST_INPUTS];
    int n = narrow_operands(qkv[K]->layout.dtype);
    if (o->mask) {
        attr.has_mask = 1;
        in[n++] = o->mask->layout.dtype == GD_BOOL ? o->mask : gd_as_dtype(o->mask, GD_F32);
    }
    for (int i = 0; i < n; i++) {
        if (!in[i])
            return true;
        layouts[i] = &in[i]->layout;
    }
    if (check_operands(layouts, layouts + n - attr.has_mask, attr.has_mask, &attr) != GD_OK)
        return true;
    if (!gd_op_is_taken(in[Q]->context, GD_OP_attention_narrow, n, layouts, &attr))
        return false;
    *r = swap_heads(gd_apply(NULL, GD_OP_attention_narrow, n, in, &attr));
    return true;
}

static gd_status check_scales(gd_tensor *const *qkv, const gd_attention_options *o)
{
    if (!o->k_scale && !o->v_scale)
        return GD_OK;
    if (!o->k_scale || !o->v_scale)
        return gd_fail(GD_ERR_INVALID, "gd_attention: of the two scales one is not given");
    if (check_scale(&qkv[K]->layout, &o->k_scale->layout) != GD_OK)
        return gd_error_last();
    return check_scale(&qkv[V]->layout, &o->v_scale->layout);
}

static gd_tensor *build_attention(gd_tensor *q, gd_tensor *k, gd_tensor *v,
                                  const gd_attention_options *options)
{
    gd_attention_options o = { GD_ATTENTION_DEFAULTS };
    if (!gd_options_read("gd_attention", &o, sizeof o, options) || !q || !k || !v ||
        !GD_NONE_ENDED("gd_attention", q, k, v, o.mask, o.k_scale, o.v_scale))
        return NULL;
    if (!(o.dropout >= 0 && o.dropout < 1) || isinf(o.scale))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_attention: dropout %g must lie in [0, 1), scale %g be finite",
                            o.dropout, o.scale);
    int rank = q->layout.rank;
    gd_attention_attr attr = { .causal = o.causal };
    attr.scale = !isnan(o.scale) ? o.scale
                 : rank > 0      ? 1 / sqrt((double)q->layout.shape[rank - 1])
                                 : 1;
    gd_tensor *given[3] = { q, k, v }, *narrow = NULL;
    if (check_scales(given, &o) != GD_OK)
        return NULL;
    if (may_be_narrow(given, &o) && attend_narrowly(given, &o, attr, &narrow))
        return narrow;
    if (o.k_scale) {
        k = scaled(k, o.k_scale);
        v = scaled(v, o.v_scale);
    }
    q = gd_autocast(GD_OP_attention, q);
    k = gd_autocast(GD_OP_attention, k);
    v = gd_autocast(GD_OP_attention, v);
    if (!q || !k || !v)
        return NULL;
    gd_dtype dtype = gd_dtype_promote(q->layout.dtype, k->layout.dtype);
    dtype = gd_float_dtype(gd_dtype_promote(dtype, v->layout.dtype));
    gd_tensor *in[MOST_INPUTS] = { NULL, q, k, v };
    int n = collect_inputs(&o, factor_dtype(in + 1, dtype, &attr), &attr, in + 1);
    if (n == 0)
        return NULL;
    if (o.plain || (o.mask && o.mask->requires_grad && q->context->no_grad == 0))
        return gd_as_dtype(attend_plainly(n, in + 1, &attr), dtype);
    in[PACKED] = gd_apply(NULL, GD_OP_attention, n, in + 1, &attr);
    return gd_as_dtype(gd_apply(NULL, GD_OP_attention_result, n + 1, in, &attr), dtype);
}

gd_tensor *gd_attention_with(gd_tensor *q, gd_tensor *k, gd_tensor *v,
                             const gd_attention_options *options)
{
    return GD_AS("gd_attention", build_attention(q, k, v, options));
}
