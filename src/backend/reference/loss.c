/* backend/reference/loss.c: softmax, log_softmax, and cross-entropy with class indices, each from
 * its definition, with the maximum taken off first so that nothing overflows. */
#include "backend/reference/reference.h"

#include "base/error.h"
#include "ops/attrs.h"

#include <inttypes.h>
#include <math.h>

/* n numbers of an operand: element i at first + i * stride. */
typedef struct line {
    const gd_operand *x;
    int64_t first, stride, n;
} line;

static real at(const line *l, int64_t i)
{
    return gd_ref_load(l->x, l->first + i * l->stride);
}

/* The largest; NaN if there is one. */
static real largest(const line *l)
{
    real most = -INFINITY;
    for (int64_t i = 0; i < l->n; i++)
        if (!isnan(most) && !(at(l, i) <= most))
            most = at(l, i);
    return most;
}

/* sum over i of exp(x_i - most) */
static real sum_exp(const line *l, real most)
{
    real sum = 0;
    for (int64_t i = 0; i < l->n; i++)
        sum += expl(at(l, i) - most);
    return sum;
}

static gd_status softmax_lines(const gd_kernel_call *call, bool logarithm)
{
    int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_operand *x = &call->in[0], *out = &call->out;
    gd_layout lines = *x->layout;
    lines.shape[axis] = 1; /* walk over the others */
    for (gd_walk w = gd_walk_over(&lines); w.more; gd_walk_next(&w)) {
        line l = { x, gd_index_offset(w.index, x->layout), x->layout->stride[axis],
                   x->layout->shape[axis] };
        int64_t to = gd_index_offset(w.index, out->layout);
        real most = largest(&l), sum = sum_exp(&l, most);
        for (int64_t i = 0; i < l.n; i++) {
            real shifted = at(&l, i) - most;
            gd_ref_store(out, to + i * out->layout->stride[axis],
                         logarithm ? shifted - logl(sum) : expl(shifted) / sum);
        }
    }
    return GD_OK;
}

static gd_status softmax(const gd_kernel_call *call)
{
    return softmax_lines(call, false);
}

static gd_status log_softmax(const gd_kernel_call *call)
{
    return softmax_lines(call, true);
}

/* Row i of the logits, and its label. */
static gd_status read_row(const gd_kernel_call *call, int64_t i, line *row, int64_t *label)
{
    const gd_operand *logits = &call->in[0], *labels = &call->in[1];
    *row = (line){ logits, i * logits->layout->stride[0], logits->layout->stride[1],
                   logits->layout->shape[1] };
    *label = gd_ref_load_integer(labels, i * labels->layout->stride[0]);
    if (*label < 0 || *label >= row->n)
        return gd_fail(GD_ERR_INVALID,
                       "gd_cross_entropy: label %" PRId64 " of row %" PRId64
                       " is out of range for %" PRId64 " classes",
                       *label, i, row->n);
    return GD_OK;
}

/* -log softmax(logits[i])[labels[i]] */
static gd_status cross_entropy(const gd_kernel_call *call)
{
    for (int64_t i = 0; i < call->out.layout->shape[0]; i++) {
        line row;
        int64_t label;
        gd_status status = read_row(call, i, &row, &label);
        if (status != GD_OK)
            return status;
        real most = largest(&row);
        gd_ref_store(&call->out, i, logl(sum_exp(&row, most)) - (at(&row, label) - most));
    }
    return GD_OK;
}

/* (softmax(logits[i])[j] - (j == labels[i])) * g[i] */
static gd_status cross_entropy_grad(const gd_kernel_call *call)
{
    const gd_operand *g = &call->in[2];
    for (int64_t i = 0; i < call->out.layout->shape[0]; i++) {
        line row;
        int64_t label;
        gd_status status = read_row(call, i, &row, &label);
        if (status != GD_OK)
            return status;
        real most = largest(&row), sum = sum_exp(&row, most);
        real scale = gd_ref_load(g, i * g->layout->stride[0]);
        for (int64_t j = 0; j < row.n; j++) {
            real probability = expl(at(&row, j) - most) / sum;
            gd_ref_store(&call->out, i * row.n + j, (probability - (j == label)) * scale);
        }
    }
    return GD_OK;
}

void gd_reference_register_loss(gd_kernel_fn *kernel)
{
    kernel[GD_OP_softmax] = softmax;
    kernel[GD_OP_log_softmax] = log_softmax;
    kernel[GD_OP_cross_entropy] = cross_entropy;
    kernel[GD_OP_cross_entropy_grad] = cross_entropy_grad;
}
