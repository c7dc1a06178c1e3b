/* backend/reference/recurrent.c: recurrent networks and their gradient, number by number, from the
 * formulas in ops/recurrent.c, where also stands what is kept, and in which order. */
#include "backend/reference/reference.h"

#include <gradus/ops.h>

#include "ops/attrs.h"

#include <math.h>

typedef struct network {
    const gd_recurrent_attr *attr;
    int64_t batch, time, w, gates;
    gd_operand kept; /* [batch, time, w] h, the same of c, [.., 4 w] gates */
    const gd_operand *h0, *c0, *lengths;
    int64_t c_at, gate_at;
} network;

static void place(network *n)
{
    int64_t steps = n->batch * n->time * n->w;
    n->c_at = steps;
    n->gate_at = n->attr->cell == GD_CELL_LSTM ? 2 * steps : steps;
}

static real element(const gd_operand *x, int64_t i, int64_t j)
{
    return gd_ref_load(x, i * x->layout->stride[0] + j * x->layout->stride[1]);
}

static int64_t step_before(const network *n, int64_t t)
{
    return n->attr->reverse ? (t + 1 < n->time ? t + 1 : -1) : t - 1;
}

/* h of a row at a step, -1 the first state; `at` is where those of all steps begin. */
static real state(const network *n, const gd_operand *first, int64_t at, int64_t row, int64_t t,
                  int64_t j)
{
    return t < 0 ? element(first, row, j)
                 : gd_ref_load(&n->kept, at + (row * n->time + t) * n->w + j);
}

static bool is_over(const network *n, int64_t row, int64_t t)
{
    return n->lengths && t >= gd_ref_load_integer(n->lengths, row * n->lengths->layout->stride[0]);
}

static real sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

/* ---- forward ---- */

/* Number j of the next h; its gates are kept. z and a are those of all gates. */
static real cell(const network *n, const real *z, const real *a, real h, real *c, int64_t gate)
{
    real kept[4] = { 0 };
    switch (n->attr->cell) {
    case GD_CELL_RNN:
        return tanhl(z[0] + a[0]);
    case GD_CELL_RNN_RELU:
        return z[0] + a[0] < 0 ? 0 : z[0] + a[0];
    case GD_CELL_LSTM:
        for (int k = 0; k < 4; k++)
            kept[k] = k == 2 ? tanhl(z[k] + a[k]) : sigmoid(z[k] + a[k]);
        *c = kept[1] * *c + kept[0] * kept[2];
        h = kept[3] * tanhl(*c);
        break;
    default:
        kept[0] = sigmoid(z[0] + a[0]);
        kept[1] = sigmoid(z[1] + a[1]);
        kept[2] = tanhl(z[2] + kept[0] * a[2]);
        kept[3] = a[2];
        h = (1 - kept[1]) * kept[2] + kept[1] * h;
    }
    for (int k = 0; k < 4; k++)
        gd_ref_store(&n->kept, gate + k * n->w, kept[k]);
    return h;
}

static void step_forward(const network *n, const gd_kernel_call *call, int64_t row, int64_t t)
{
    const gd_operand *z = &call->in[0], *u = &call->in[1], *b = &call->in[2];
    bool lstm = n->attr->cell == GD_CELL_LSTM, over = is_over(n, row, t);
    int64_t before = step_before(n, t), at = row * n->time + t;
    for (int64_t j = 0; j < n->w; j++) {
        real zs[4] = { 0 }, as[4] = { 0 }, h = state(n, n->h0, 0, row, before, j);
        real c = lstm ? state(n, n->c0, n->c_at, row, before, j) : 0;
        int64_t gate = n->gate_at + at * 4 * n->w + j;
        for (int64_t k = 0; k < n->gates; k++) {
            int64_t column = k * n->w + j;
            const int64_t *stride = z->layout->stride;
            zs[k] = gd_ref_load(z, row * stride[0] + t * stride[1] + column * stride[2]);
            as[k] = gd_ref_load(b, column * b->layout->stride[0]);
            for (int64_t i = 0; i < n->w; i++)
                as[k] += state(n, n->h0, 0, row, before, i) * element(u, i, column);
        }
        if (!over)
            h = cell(n, zs, as, h, &c, gate);
        for (int k = 0; over && n->attr->cell >= GD_CELL_LSTM && k < 4; k++)
            gd_ref_store(&n->kept, gate + k * n->w, 0);
        gd_ref_store(&n->kept, at * n->w + j, h);
        if (lstm)
            gd_ref_store(&n->kept, n->c_at + at * n->w + j, c);
    }
}

static gd_status recurrent(const gd_kernel_call *call)
{
    const gd_operand *in = call->in;
    network n = { .attr = call->attr,
                  .batch = in[0].layout->shape[0],
                  .time = in[0].layout->shape[1],
                  .w = in[1].layout->shape[0],
                  .kept = call->out,
                  .h0 = &in[3],
                  .c0 = &in[4] };
    n.gates = gd_recurrent_gates(n.attr->cell);
    n.lengths = n.attr->has_lengths ? &in[call->n - 1] : NULL;
    place(&n);
    for (int64_t row = 0; row < n.batch; row++)
        for (int64_t step = 0; step < n.time; step++)
            step_forward(&n, call, row, n.attr->reverse ? n.time - 1 - step : step);
    return GD_OK;
}

/* ---- backward: dh and dc of a row lie in the result, where those of the first state end up ----
 */

typedef struct gradient {
    const gd_operand *out, *u_transposed, *g;
    int64_t da, dh, dc; /* where they begin in the result; da of GRU alone, else that of z */
} gradient;

static void cell_back(const network *n, const gradient *d, int64_t row, int64_t t, int64_t j)
{
    const gd_operand *out = d->out;
    bool over = is_over(n, row, t);
    int64_t at = row * n->time + t, h_at = d->dh + row * n->w + j, c_at = d->dc + row * n->w + j;
    int64_t dz = at * n->gates * n->w + j, da = d->da + dz, before = step_before(n, t);
    real dh = gd_ref_load(out, h_at), gate[4], by[4] = { 0 }, on_a = 1;
    for (int k = 0; k < 4 && n->attr->cell >= GD_CELL_LSTM; k++)
        gate[k] = gd_ref_load(&n->kept, n->gate_at + (at * 4 + k) * n->w + j);
    if (n->attr->cell < GD_CELL_LSTM) {
        real h = state(n, n->h0, 0, row, t, j);
        by[0] = n->attr->cell == GD_CELL_RNN ? dh * (1 - h * h) : h > 0 ? dh : 0;
        dh = over ? dh : 0;
    } else if (n->attr->cell == GD_CELL_LSTM) {
        real s = tanhl(state(n, n->c0, n->c_at, row, t, j)), dc = gd_ref_load(out, c_at);
        real all = dc + dh * gate[3] * (1 - s * s);
        by[0] = all * gate[2] * gate[0] * (1 - gate[0]);
        by[1] = all * state(n, n->c0, n->c_at, row, before, j) * gate[1] * (1 - gate[1]);
        by[2] = all * gate[0] * (1 - gate[2] * gate[2]);
        by[3] = dh * s * gate[3] * (1 - gate[3]);
        gd_ref_store(out, c_at, over ? dc : all * gate[1]);
        dh = over ? dh : 0;
    } else {
        by[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
        by[0] = by[2] * gate[3] * gate[0] * (1 - gate[0]);
        by[1] = dh * (state(n, n->h0, 0, row, before, j) - gate[2]) * gate[1] * (1 - gate[1]);
        on_a = gate[0];
        dh = over ? dh : dh * gate[1];
    }
    for (int64_t k = 0; k < n->gates; k++) {
        gd_ref_store(out, dz + k * n->w, over ? 0 : by[k]);
        if (d->da)
            gd_ref_store(out, da + k * n->w, over ? 0 : k == 2 ? by[k] * on_a : by[k]);
    }
    gd_ref_store(out, h_at, dh);
}

static void step_backward(const network *n, const gradient *d, int64_t row, int64_t t)
{
    const int64_t *stride = d->g->layout->stride;
    int64_t h_at = d->dh + row * n->w;
    for (int64_t j = 0; j < n->w; j++) {
        if (!n->attr->part)
            gd_ref_store(d->out, h_at + j,
                         gd_ref_load(d->out, h_at + j) +
                             gd_ref_load(d->g, row * stride[0] + t * stride[1] + j * stride[2]));
        cell_back(n, d, row, t, j);
    }
    int64_t da = d->da + (row * n->time + t) * n->gates * n->w;
    for (int64_t j = 0; j < n->w; j++) {
        real sum = gd_ref_load(d->out, h_at + j);
        for (int64_t k = 0; k < n->gates * n->w; k++)
            sum += gd_ref_load(d->out, da + k) * element(d->u_transposed, k, j);
        gd_ref_store(d->out, h_at + j, sum);
    }
}

static gd_status recurrent_grad(const gd_kernel_call *call)
{
    const gd_operand *in = call->in;
    network n = { .attr = call->attr, .kept = in[0], .h0 = &in[2], .c0 = &in[3] };
    n.batch = in[2].layout->shape[0];
    n.w = in[1].layout->shape[1];
    n.gates = gd_recurrent_gates(n.attr->cell);
    n.time = in[0].layout->shape[0] / (n.batch * n.w * gd_recurrent_kept(n.attr->cell));
    n.lengths = n.attr->has_lengths ? &in[call->n - 2] : NULL;
    place(&n);
    gradient d = { .out = &call->out, .u_transposed = &in[1], .g = &in[call->n - 1] };
    int64_t steps = n.batch * n.time * n.gates * n.w;
    d.da = n.attr->cell == GD_CELL_GRU ? steps : 0;
    d.dh = d.da + steps;
    d.dc = d.dh + n.batch * n.w;
    for (int64_t i = d.dh; i < gd_layout_count(call->out.layout); i++)
        gd_ref_store(&call->out, i, 0);
    for (int64_t row = 0; row < n.batch; row++) {
        for (int64_t j = 0; n.attr->part && j < n.w; j++)
            gd_ref_store(&call->out, d.dc + row * n.w + j, element(d.g, row, j));
        for (int64_t step = 0; step < n.time; step++)
            step_backward(&n, &d, row, n.attr->reverse ? step : n.time - 1 - step);
    }
    return GD_OK;
}

void gd_reference_register_recurrent(gd_kernel_fn *kernel)
{
    kernel[GD_OP_recurrent] = recurrent;
    kernel[GD_OP_recurrent_grad] = recurrent_grad;
}
