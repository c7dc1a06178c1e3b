/* backend/reference/attention.c: attention and its gradient, row by row from the formulas in
 * ops/attention.c: every score is computed anew wherever it is needed. */
#include "backend/reference/reference.h"

#include "base/random.h"
#include "ops/attrs.h"

#include <math.h>

#define COLUMNS 64 /* of the result, summed together */

typedef struct attention {
    const gd_attention_attr *attr;
    const gd_operand *q, *k, *v, *mask;
    uint64_t seed, first;        /* of dropout's words */
    int64_t heads, groups, rows; /* rows: of q, all of them; heads: a batch entry */
    int64_t tq, tk, d, dv;
    int rank;
} attention;

/* Where the last two axes of entry (batch and head, a row-major number) begin. */
static int64_t entry_at(const gd_layout *layout, int64_t entry)
{
    int64_t at = 0;
    for (int axis = layout->rank - 3; axis >= 0; axis--) {
        at += entry % layout->shape[axis] * layout->stride[axis];
        entry /= layout->shape[axis];
    }
    return at;
}

static attention begin(const gd_kernel_call *call, int extras)
{
    const gd_operand *in = call->in;
    const gd_layout *q = in[0].layout, *k = in[1].layout, *v = in[2].layout;
    int rank = q->rank;
    attention a = { .attr = call->attr,
                    .q = &in[0],
                    .k = &in[1],
                    .v = &in[2],
                    .heads = q->shape[rank - 3],
                    .groups = k->shape[rank - 3],
                    .tq = q->shape[rank - 2],
                    .tk = k->shape[rank - 2],
                    .d = q->shape[rank - 1],
                    .dv = v->shape[rank - 1],
                    .rank = rank };
    a.rows = gd_layout_count(q) / a.d;
    if (a.attr->has_mask)
        a.mask = &in[extras++];
    if (a.attr->dropout > 0) {
        const gd_operand *state = &in[extras];
        a.seed = (uint64_t)gd_ref_load_integer(state, 0);
        a.first = (uint64_t)gd_ref_load_integer(state, state->layout->stride[0]) + a.attr->offset;
    }
    return a;
}

/* Row r of q is row i of entry `of_q`; its keys are entry `of_k`. */
typedef struct row {
    int64_t r, i, of_q, of_k;
} row;

static row row_at(const attention *a, int64_t r)
{
    int64_t of_q = r / a->tq;
    int64_t batch = of_q / a->heads, head = of_q % a->heads;
    return (row){ r, r % a->tq, of_q, batch * a->groups + head * a->groups / a->heads };
}

/* Where row i of an entry begins in a result [.., time, heads, width], rows of all heads being
 * `step` apart. */
static int64_t result_at(int64_t entry, int64_t heads, int64_t time, int64_t i, int64_t width,
                         int64_t step)
{
    return (entry / heads * time + i) * step + entry % heads * width;
}

static real number(const gd_operand *x, int64_t entry, int64_t i, int64_t j)
{
    const int64_t *stride = x->layout->stride + x->layout->rank - 2;
    return gd_ref_load(x, entry_at(x->layout, entry) + i * stride[0] + j * stride[1]);
}

/* The score of key j; -inf where it does not count. */
static real score(const attention *a, const row *w, int64_t j)
{
    if (a->attr->causal && j > w->i + a->tk - a->tq)
        return -INFINITY;
    real sum = 0;
    for (int64_t c = 0; c < a->d; c++)
        sum += number(a->q, w->of_q, w->i, c) * number(a->k, w->of_k, j, c);
    sum *= a->attr->scale;
    if (!a->mask)
        return sum;
    gd_layout scores = *a->q->layout, mask;
    scores.shape[a->rank - 1] = a->tk;
    (void)gd_layout_broadcast(a->mask->layout, gd_layout_shape(&scores), &mask);
    real m = gd_ref_load(a->mask, entry_at(&mask, w->of_q) + w->i * mask.stride[a->rank - 2] +
                                      j * mask.stride[a->rank - 1]);
    if (a->mask->layout->dtype == GD_BOOL)
        return m != 0 ? sum : -INFINITY;
    return m == -INFINITY ? m : sum + m;
}

static real factor(const attention *a, const row *w, int64_t j)
{
    if (a->attr->dropout == 0)
        return 1;
    uint32_t word;
    gd_philox_words(a->seed, a->first + (uint64_t)(w->r * a->tk + j), 1, &word);
    return (word & 0xffffff) >= ceil(a->attr->dropout * 16777216) ? 1 / (1 - a->attr->dropout) : 0;
}

/* log(sum(exp(scores))), +inf for a row without keys. */
static real logarithm(const attention *a, const row *w)
{
    real most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->tk; j++)
        most = fmaxl(most, score(a, w, j));
    real base = most == -INFINITY ? 0 : most; /* of no score that counts; NaN is passed over */
    for (int64_t j = 0; j < a->tk; j++)
        sum += expl(score(a, w, j) - base);
    return sum != 0 ? base + logl(sum) : INFINITY;
}

static gd_status attention_forward(const gd_kernel_call *call)
{
    attention a = begin(call, 3);
    for (int64_t r = 0; r < a.rows; r++) {
        row w = row_at(&a, r);
        real l = logarithm(&a, &w);
        int64_t at = result_at(w.of_q, a.heads, a.tq, w.i, a.dv, a.heads * a.dv);
        gd_ref_store(&call->out, a.rows * a.dv + r, l);
        for (int64_t first = 0; first < a.dv; first += COLUMNS) {
            real sum[COLUMNS] = { 0 };
            int64_t columns = a.dv - first < COLUMNS ? a.dv - first : COLUMNS;
            for (int64_t j = 0; j < a.tk; j++) {
                real p = expl(score(&a, &w, j) - l) * factor(&a, &w, j);
                for (int64_t c = 0; c < columns; c++)
                    sum[c] += p * number(a.v, w.of_k, j, first + c);
            }
            for (int64_t c = 0; c < columns; c++)
                gd_ref_store(&call->out, at + first + c, sum[c]);
        }
    }
    return GD_OK;
}

/* Add to an element of the result; the rounding of each sum is that of the result's dtype. */
static void add(const gd_operand *out, int64_t at, real x)
{
    gd_ref_store(out, at, gd_ref_load(out, at) + x);
}

static gd_status attention_grad(const gd_kernel_call *call)
{
    attention a = begin(call, 5);
    const gd_operand *g = &call->in[4], *out = &call->out;
    const gd_layout *const qkv[] = { a.q->layout, a.k->layout, a.v->layout };
    const gd_attention_offsets p = gd_attention_grad_offsets(a.attr, qkv);
    for (int64_t i = 0; i < gd_layout_count(out->layout); i++)
        gd_ref_store(out, i, 0);
    for (int64_t r = 0; r < a.rows; r++) {
        row w = row_at(&a, r);
        real l = logarithm(&a, &w), along = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = 0; j < a.tk; j++) {
                real weight = expl(score(&a, &w, j) - l), f = factor(&a, &w, j), dp = 0;
                for (int64_t c = 0; c < a.dv; c++)
                    dp += number(g, w.of_q, w.i, c) * number(a.v, w.of_k, j, c) * f;
                if (pass == 0) {
                    along += weight * dp;
                    continue;
                }
                real ds = weight * (dp - along) * a.attr->scale;
                int64_t to_q = p.at[0] + result_at(w.of_q, a.heads, a.tq, w.i, a.d, p.row[0]);
                int64_t to_k = p.at[1] + result_at(w.of_k, a.groups, a.tk, j, a.d, p.row[1]);
                int64_t to_v = p.at[2] + result_at(w.of_k, a.groups, a.tk, j, a.dv, p.row[2]);
                for (int64_t c = 0; c < a.d; c++) {
                    add(out, to_q + c, ds * number(a.k, w.of_k, j, c));
                    add(out, to_k + c, ds * number(a.q, w.of_q, w.i, c));
                }
                for (int64_t c = 0; c < a.dv; c++)
                    add(out, to_v + c, weight * f * number(g, w.of_q, w.i, c));
            }
    }
    return GD_OK;
}

void gd_reference_register_attention(gd_kernel_fn *kernel)
{
    kernel[GD_OP_attention] = attention_forward;
    kernel[GD_OP_attention_grad] = attention_grad;
}
