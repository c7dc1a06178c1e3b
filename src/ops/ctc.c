/* ops/ctc.c: connectionist temporal classification. Start at gd_ctc_with().
 *
 * A target of S classes becomes 2S + 1 states, blanks between and around its classes. alpha[n, t,
 * s] is the logarithm of the probability of all paths that are in state s at time t (Graves et al.
 * 2006, equation 6, in logarithms). That recursion over time is the op ctc_alpha; what leads to it
 * and from it is made of other ops. The result of ctc_alpha is the table its gradient needs.
 */
#include "ops/loss.h"

#include <math.h>

/* ---- ctc_alpha: emissions [n, time, states], skip bool [n, states] -> alpha [n, time, states].
 * alpha_t(s) = e_t(s) + log(exp alpha_t-1(s) + exp alpha_t-1(s-1) + skip(s) exp alpha_t-1(s-2))
 * ---- */

static gd_status check_lattice(const gd_layout *table, const gd_layout *skip)
{
    if (skip->dtype != GD_BOOL)
        return gd_fail(GD_ERR_DTYPE, "ctc_alpha: skip is %s, not bool", gd_dtype_name(skip->dtype));
    if (table->rank == 3 && skip->rank == 2 && skip->shape[0] == table->shape[0] &&
        skip->shape[1] == table->shape[2])
        return GD_OK;
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "ctc_alpha: %s and %s; [n, time, states] and [n, states] expected",
                   gd_layout_text(table, a), gd_layout_text(skip, b));
}

static gd_status infer_ctc_alpha(int n, const gd_layout *const *in, const void *attr,
                                 gd_layout *out)
{
    (void)n, (void)attr;
    if (check_lattice(in[0], in[1]) != GD_OK)
        return gd_error_last();
    return gd_infer_like(in[0], in[0]->dtype, "ctc_alpha", out);
}

static bool vjp_ctc_alpha(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *inputs[3] = { r, r->inputs[1], g };
    return gd_put(&d[0], gd_apply(NULL, GD_OP_ctc_alpha_grad, 3, inputs, NULL));
}

const gd_op gd_op_ctc_alpha = { .id = GD_OP_ctc_alpha,
                                .name = "ctc_alpha",
                                .arity = 2,
                                .dtypes = GD_DTYPES_REAL,
                                .infer = infer_ctc_alpha,
                                .vjp = vjp_ctc_alpha,
                                .flops = gd_flops_none,
                                .recompute = GD_RECOMPUTE_NEVER };

/* alpha [n, time, states], skip [n, states], g like alpha -> the gradient of the emissions. */
static gd_status infer_ctc_alpha_grad(int n, const gd_layout *const *in, const void *attr,
                                      gd_layout *out)
{
    (void)n, (void)attr;
    if (check_lattice(in[0], in[1]) != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(in[0], in[2]))
        return gd_fail(GD_ERR_SHAPE, "ctc_alpha_grad: the gradient does not fit alpha");
    return gd_infer_like(in[0], in[0]->dtype, "ctc_alpha_grad", out);
}

static bool vjp_ctc_alpha_grad(gd_tensor *r, gd_tensor *u, gd_tensor **d)
{
    (void)r, (void)u, (void)d;
    (void)gd_fail(GD_ERR_UNSUPPORTED, "gd_ctc: it can be differentiated once, not twice");
    return false;
}

const gd_op gd_op_ctc_alpha_grad = { .id = GD_OP_ctc_alpha_grad,
                                     .name = "ctc_alpha_grad",
                                     .arity = 3,
                                     .dtypes = GD_DTYPES_REAL,
                                     .alike = 1 << 2,
                                     .infer = infer_ctc_alpha_grad,
                                     .vjp = vjp_ctc_alpha_grad,
                                     .flops = gd_flops_none,
                                     .recompute = GD_RECOMPUTE_NEVER };

/* ---- the loss ---- */

/* The operands: n samples, targets of up to `length` classes. */
typedef struct ctc {
    gd_tensor *log_q;         /* [time, n, classes], taken as f32 or f64 */
    gd_tensor *targets;       /* [n, length] i64; blanks behind each target's length */
    gd_tensor *input_lengths; /* [n] i64 */
    gd_tensor *target_lengths;
    gd_tensor *blank; /* [] i64 */
    int64_t n, length;
} ctc;

static gd_status check_operands(const ctc *c, int64_t blank)
{
    const gd_layout *x = &c->log_q->layout, *y = &c->targets->layout;
    const gd_layout *in = &c->input_lengths->layout, *out = &c->target_lengths->layout;
    if (gd_dtype_is_float(y->dtype) || gd_dtype_is_float(in->dtype) ||
        gd_dtype_is_float(out->dtype))
        return gd_fail(GD_ERR_DTYPE, "gd_ctc: targets and lengths must be integers");
    if (x->rank != 3 || y->rank != 2 || in->rank != 1 || out->rank != 1 ||
        y->shape[0] != x->shape[1] || in->shape[0] != x->shape[1] || out->shape[0] != x->shape[1]) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT], d[GD_SHAPE_TEXT], e[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE,
                       "gd_ctc: log-probabilities %s, targets %s, lengths %s and %s; [time, n, "
                       "classes], [n, length], [n] and [n] expected",
                       gd_layout_text(x, a), gd_layout_text(y, b), gd_layout_text(in, d),
                       gd_layout_text(out, e));
    }
    if (blank < 0 || blank >= x->shape[2])
        return gd_fail(GD_ERR_INVALID, "gd_ctc: blank is %lld, there are %lld classes",
                       (long long)blank, (long long)x->shape[2]);
    return GD_OK;
}

/* Bring checked operands to the dtypes they are computed in, and put blanks behind each target. */
static gd_tensor *take_operands(ctc *c, int64_t blank)
{
    c->n = c->targets->layout.shape[0];
    c->length = c->targets->layout.shape[1];
    gd_context *context = c->targets->context;
    c->log_q = gd_widen(c->log_q);
    c->input_lengths = gd_as_dtype(c->input_lengths, GD_I64);
    c->target_lengths = gd_as_dtype(c->target_lengths, GD_I64);
    c->blank = gd_scalar(context, (double)blank, GD_I64);
    gd_tensor *place = gd_arange(context, 0.0, (double)c->length, 1.0, GD_I64);
    gd_tensor *counts = gd_lt(place, gd_unsqueeze(c->target_lengths, 1));
    c->targets = gd_where(counts, gd_as_dtype(c->targets, GD_I64), c->blank);
    return c->log_q ? c->targets : NULL;
}

/* blank, first class, blank, … , last class, blank: [n, 2 * length + 1] */
static gd_tensor *states_of(const ctc *c)
{
    gd_tensor *blanks = gd_broadcast_to(c->blank, GD_SHAPE(c->n, c->length));
    gd_tensor *last = gd_broadcast_to(c->blank, GD_SHAPE(c->n, 1));
    gd_tensor *both = gd_stack(2, (gd_tensor *[]){ blanks, c->targets }, 2);
    gd_tensor *pairs = gd_reshape(both, GD_SHAPE(c->n, 2 * c->length));
    return gd_concat(2, (gd_tensor *[]){ pairs, last }, 1);
}

/* Whether a state may follow the one two before it: it is a class, and another one. [n, states] */
static gd_tensor *skips_of(const ctc *c, gd_tensor *states)
{
    gd_tensor *from =
        gd_broadcast_to(gd_scalar(c->blank->context, 0.0, GD_BOOL), GD_SHAPE(c->n, 1));
    if (c->length == 0)
        return from;
    gd_tensor *here = gd_slice(states, 1, 2, GD_END, 1), *there = gd_slice(states, 1, 0, -2, 1);
    gd_tensor *may = gd_logical_and(gd_ne(here, c->blank), gd_ne(here, there));
    return gd_concat(3, (gd_tensor *[]){ from, from, may }, 1);
}

/* alpha at each sample's last time, in its last two states: [n, 2]; -infinity where there is but
 * one. */
static gd_tensor *ends_of(const ctc *c, gd_tensor *alpha)
{
    int64_t states = 2 * c->length + 1;
    gd_tensor *last = gd_reshape(gd_sub_scalar(c->input_lengths, 1.0), GD_SHAPE(c->n, 1, 1));
    last = gd_broadcast_to(last, GD_SHAPE(c->n, 1, states));
    gd_tensor *rows = gd_squeeze(gd_gather(alpha, last, 1), 1);
    gd_tensor *final = gd_unsqueeze(gd_mul_scalar(c->target_lengths, 2.0), 1);
    gd_tensor *empty = gd_eq(final, gd_number_like(final, 0.0));
    gd_tensor *before = gd_where(empty, final, gd_sub_scalar(final, 1.0));
    gd_tensor *one = gd_gather(rows, final, 1), *other = gd_gather(rows, before, 1);
    other = gd_where(empty, gd_number_like(other, -INFINITY), other);
    return gd_concat(2, (gd_tensor *[]){ one, other }, 1);
}

/* -logsumexp of the ends; what cannot be aligned is cut off, so that its gradient is 0. */
static gd_tensor *losses_of(gd_tensor *ends, bool zero_infinity)
{
    gd_tensor *never = gd_number_like(ends, -INFINITY);
    gd_tensor *possible = gd_ne(gd_max(ends, GD_AXES(1), true), never);
    gd_tensor *total =
        gd_logsumexp(gd_where(possible, ends, gd_number_like(ends, 0.0)), GD_AXES(1), false);
    gd_tensor *otherwise = gd_number_like(ends, zero_infinity ? 0.0 : INFINITY);
    return gd_where(gd_squeeze(possible, 1), gd_neg(total), otherwise);
}

static gd_tensor *build_ctc(ctc c, const gd_ctc_options *options)
{
    gd_ctc_options o = { GD_CTC_DEFAULTS };
    if (!gd_options_read("gd_ctc", &o, sizeof o, options) || !c.log_q || !c.targets ||
        !c.input_lengths || !c.target_lengths ||
        !GD_NONE_ENDED("gd_ctc", c.log_q, c.targets, c.input_lengths, c.target_lengths) ||
        check_operands(&c, o.blank) != GD_OK)
        return NULL;
    c.log_q = gd_autocast(GD_OP_cross_entropy, c.log_q);
    if (!c.log_q)
        return NULL;
    const gd_dtype dtype = gd_float_dtype(c.log_q->layout.dtype);
    if (!take_operands(&c, o.blank))
        return NULL;
    int64_t time = c.log_q->layout.shape[0], states = 2 * c.length + 1;
    gd_tensor *extended = states_of(&c), *skip = extended ? skips_of(&c, extended) : NULL;
    gd_tensor *index = gd_broadcast_to(gd_unsqueeze(extended, 1), GD_SHAPE(c.n, time, states));
    gd_tensor *emissions = gd_gather(gd_permute(c.log_q, GD_AXES(1, 0, 2)), index, 2);
    gd_tensor *alpha = emissions && skip ? gd_apply2(GD_OP_ctc_alpha, emissions, skip, NULL) : NULL;
    gd_tensor *ends = alpha ? ends_of(&c, alpha) : NULL;
    gd_tensor *each = ends ? losses_of(ends, o.zero_infinity) : NULL;
    if (o.reduction == GD_REDUCE_MEAN && each) {
        gd_tensor *lengths = gd_maximum(c.target_lengths, gd_number_like(c.target_lengths, 1.0));
        each = gd_div(each, gd_as_dtype(lengths, each->layout.dtype));
    }
    return gd_reduce_losses(each, NULL, o.reduction, dtype, "gd_ctc");
}

gd_tensor *gd_ctc_with(gd_tensor *log_probabilities, gd_tensor *targets, gd_tensor *input_lengths,
                       gd_tensor *target_lengths, const gd_ctc_options *options)
{
    return GD_AS("gd_ctc", build_ctc((ctc){ .log_q = log_probabilities,
                                            .targets = targets,
                                            .input_lengths = input_lengths,
                                            .target_lengths = target_lengths },
                                     options));
}
