/* ops/recurrent.c: recurrent networks over whole sequences: the plain one (Elman 1990), LSTM
 * (Hochreiter, Schmidhuber 1997; Gers et al. 2000) and GRU (Cho et al. 2014, in the form of cuDNN
 * and PyTorch). Start at gd_recurrent_with().
 *
 * x [batch, time, ..] @ W is one product, made before; what is here is the part that cannot be: for
 * each step, a = h u + b, with z the input's share, and
 *
 *     RNN    h' = f(z + a)                                       f = tanh or ReLU
 *     LSTM   i, f, g, o = s(zi + ai), s(zf + af), tanh(zg + ag), s(zo + ao)
 *            c' = f c + i g,   h' = o tanh(c')
 *     GRU    r, k, n = s(zr + ar), s(zk + ak), tanh(zn + r an),   h' = (1 - k) n + k h
 *
 * The op `recurrent` leaves in one flat result what its gradient needs: all h [batch, time, h], for
 * LSTM all c, then the gates [batch, time, 4h] (GRU: r, k, n and an). `recurrent_result` is the
 * view of it that users get. A sequence that is over keeps its h and c.
 *
 * u may be bf16 beside f32: then h u, and backward the gradient of a by u's transpose, are products of
 * bf16, with h and that gradient rounded as they go in and sums in f32. All else is f32.
 */
#include "ops/internal.h"

#include <limits.h>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/options.h"

enum { Z, U, B, H0, C0 }; /* recurrent: z, u, b, h0, c0 (LSTM), lengths (if any) */

static bool is_lstm(const gd_recurrent_attr *a)
{
    return a->cell == GD_CELL_LSTM;
}

/* ---- shapes ---- */

static gd_status fail_shape(const gd_layout *const *in, const char *why)
{
    char z[GD_SHAPE_TEXT], u[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE, "gd_recurrent: z %s, weight %s: %s", gd_layout_text(in[Z], z),
                   gd_layout_text(in[U], u), why);
}

static bool is_shape(const gd_layout *x, gd_shape shape)
{
    bool same = x->rank == shape.rank;
    for (int i = 0; same && i < shape.rank; i++)
        same = x->shape[i] == shape.dim[i];
    return same;
}

/* u is as z, or bf16 beside f32. */
static gd_status check_weight(const gd_layout *z, const gd_layout *u)
{
    if (u->dtype == z->dtype || (u->dtype == GD_BF16 && z->dtype == GD_F32))
        return GD_OK;
    return gd_fail(GD_ERR_DTYPE,
                   "gd_recurrent: operand 0 is %s and the weight %s; they must be alike",
                   gd_dtype_name(z->dtype), gd_dtype_name(u->dtype));
}

static gd_status check(int n, const gd_layout *const *in, const gd_recurrent_attr *a)
{
    int states = is_lstm(a) ? 2 : 1;
    if (n != 3 + states + (a->has_lengths != 0))
        return gd_fail(GD_ERR_INVALID, "recurrent: %d operands do not fit the cell", n);
    if (check_weight(in[Z], in[U]) != GD_OK)
        return gd_error_last();
    int64_t gates = gd_recurrent_gates(a->cell);
    if (in[Z]->rank != 3 || in[U]->rank != 2 || in[Z]->shape[1] < 1 || in[U]->shape[0] < 1)
        return fail_shape(in, "[batch, time, gates * width] and [width, gates * width] are needed, "
                              "time and width at least 1");
    int64_t batch = in[Z]->shape[0], width = in[U]->shape[0];
    if (in[Z]->shape[2] != gates * width || in[U]->shape[1] != gates * width)
        return fail_shape(in, "their last axes must be gates * width: 1, LSTM 4, GRU 3 gates");
    if (!is_shape(in[B], GD_SHAPE(gates * width)))
        return fail_shape(in, "the bias must be [gates * width]");
    for (int i = 0; i < states; i++)
        if (!is_shape(in[H0 + i], GD_SHAPE(batch, width)))
            return fail_shape(in, "the first state must be [batch, width]");
    if (states > 1 && in[C0]->dtype != in[Z]->dtype)
        return gd_fail(GD_ERR_DTYPE, "gd_recurrent: z is %s and c0 %s; they must be alike",
                       gd_dtype_name(in[Z]->dtype), gd_dtype_name(in[C0]->dtype));
    if ((in[Z]->shape[2] > 1 && in[Z]->stride[2] != 1 && gd_layout_count(in[Z]) > 0) ||
        (in[B]->shape[0] > 1 && in[B]->stride[0] != 1))
        return gd_fail(GD_ERR_INVALID, "recurrent: z and the bias must run along their last axis");
    if (a->has_lengths && (!is_shape(in[n - 1], GD_SHAPE(batch)) || in[n - 1]->dtype != GD_I64))
        return fail_shape(in, "the lengths must be [batch] i64");
    return GD_OK;
}

static gd_status infer_recurrent(int n, const gd_layout *const *in, const void *attr,
                                 gd_layout *out)
{
    if (check(n, in, attr) != GD_OK)
        return gd_error_last();
    const gd_recurrent_attr *a = attr;
    int64_t steps = in[Z]->shape[0] * in[Z]->shape[1];
    return gd_layout_init(out, GD_SHAPE(steps * in[U]->shape[0] * gd_recurrent_kept(a->cell)),
                          in[Z]->dtype, "gd_recurrent");
}

/* Part 0: h of all steps [batch, time, width]; part 1: the last c [batch, width]. */
static gd_status infer_result(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    const gd_recurrent_attr *a = attr;
    gd_layout packed;
    if (infer_recurrent(n - 1, in + 1, attr, &packed) != GD_OK)
        return gd_error_last();
    if (!gd_layout_same_shape(&packed, in[0]) || (a->part && !is_lstm(a)) ||
        (in[0]->shape[0] > 1 && in[0]->stride[0] != 1))
        return gd_fail(GD_ERR_SHAPE, "recurrent_result: the first operand is not recurrent's");
    int64_t batch = in[1]->shape[0], time = in[1]->shape[1], width = in[1 + U]->shape[0];
    gd_shape shape = GD_SHAPE(batch, time, width);
    if (a->part)
        shape = GD_SHAPE(batch, width);
    if (gd_layout_init(out, shape, in[0]->dtype, "gd_recurrent") != GD_OK)
        return gd_error_last();
    out->offset = in[0]->offset;
    if (a->part) {
        out->offset += (batch * time + (a->reverse ? 0 : time - 1)) * width;
        out->stride[0] = time * width;
    }
    return GD_OK;
}

/* Inputs: packed, the transposed weight [gates * width, width], h0, c0 (LSTM), lengths (if any),
 * and the gradient of the part. The gradients of z, (GRU) of a, of h0 and (LSTM) of c0, one after
 * the other. */
static gd_status infer_grad(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    const gd_recurrent_attr *a = attr;
    int states = is_lstm(a) ? 2 : 1;
    if (n != 3 + states + (a->has_lengths != 0) || in[1]->rank != 2 || in[2]->rank != 2)
        return gd_fail(GD_ERR_INVALID, "recurrent_grad: the operands do not fit the cell");
    if (check_weight(in[0], in[1]) != GD_OK)
        return gd_error_last();
    int64_t width = in[1]->shape[1], batch = in[2]->shape[0];
    int64_t gates = gd_recurrent_gates(a->cell), each = batch * width * gd_recurrent_kept(a->cell);
    int64_t time = each > 0 ? in[0]->shape[0] / each : 0;
    bool fits =
        in[1]->shape[0] == gates * width && in[2]->shape[1] == width &&
        in[0]->shape[0] == each * time && in[n - 1]->dtype == in[0]->dtype &&
        is_shape(in[n - 1], a->part ? GD_SHAPE(batch, width) : GD_SHAPE(batch, time, width));
    if (!fits && batch > 0)
        return gd_fail(GD_ERR_SHAPE, "recurrent_grad: the gradient does not fit the operands");
    int64_t rows = a->cell == GD_CELL_GRU ? 2 * gates * time : gates * time;
    return gd_layout_init(out, GD_SHAPE(batch * width * (rows + states)), in[0]->dtype,
                          "gd_recurrent");
}

static void format_recurrent(const void *attr, char *text, size_t size)
{
    static const char *const names[] = { "rnn", "rnn relu", "lstm", "gru" };
    const gd_recurrent_attr *a = attr;
    snprintf(text, size, "%s%s%s", names[a->cell], a->reverse ? " reverse" : "",
             a->has_lengths ? " lengths" : "");
}

/* ---- derivatives ---- */

/* [batch, time, ..] -> [batch * time, ..] */
static gd_tensor *flat_rows(gd_tensor *x)
{
    return x ? gd_reshape(x, GD_SHAPE(x->layout.shape[0] * x->layout.shape[1], x->layout.shape[2]))
             : NULL;
}

static gd_tensor *take_part(gd_tensor *flat, int64_t *at, gd_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    gd_tensor *part = gd_reshape(gd_slice(flat, 0, *at, *at + count, 1), shape);
    *at += count;
    return part;
}

/* h before each step, [batch, time, width]. */
static gd_tensor *states_before(gd_tensor *r, const gd_recurrent_attr *a)
{
    gd_tensor *z = r->inputs[1], *h0 = r->inputs[1 + H0];
    int64_t batch = z->layout.shape[0], time = z->layout.shape[1], width = h0->layout.shape[1];
    int64_t at = 0;
    gd_tensor *h = take_part(r->inputs[0], &at, GD_SHAPE(batch, time, width));
    gd_tensor *first = gd_unsqueeze(h0, 1);
    gd_tensor *rest = a->reverse ? gd_slice(h, 1, 1, time, 1) : gd_slice(h, 1, 0, time - 1, 1);
    gd_tensor *parts[2] = { a->reverse ? rest : first, a->reverse ? first : rest };
    return first && rest ? gd_concat(2, parts, 1) : NULL;
}

static bool vjp_result(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_recurrent_attr *a = r->attr;
    gd_tensor **in = r->inputs + 1;
    int n = 0, states = is_lstm(a) ? 2 : 1;
    gd_tensor *inputs[6] = { r->inputs[0], gd_contiguous(gd_transpose(in[U], 0, 1)) };
    n = 2;
    for (int i = H0; i < r->n_inputs - 1; i++)
        inputs[n++] = in[i];
    inputs[n++] = g;
    gd_tensor *all = gd_apply(NULL, GD_OP_recurrent_grad, n, inputs, a);
    int64_t batch = in[Z]->layout.shape[0], time = in[Z]->layout.shape[1];
    int64_t width = in[U]->layout.shape[0], gates = gd_recurrent_gates(a->cell), at = 0;
    gd_tensor *dz = take_part(all, &at, GD_SHAPE(batch, time, gates * width)), *da = dz;
    if (a->cell == GD_CELL_GRU)
        da = take_part(all, &at, GD_SHAPE(batch, time, gates * width));
    if (!dz || !da || !gd_put(&d[1 + Z], dz))
        return false;
    const gd_dtype factor = in[U]->layout.dtype;
    if (gd_wants_grad(in[U]) &&
        !gd_put(&d[1 + U],
                gd_matmul(gd_transpose(gd_as_dtype(flat_rows(states_before(r, a)), factor), 0, 1),
                          gd_as_dtype(flat_rows(da), factor))))
        return false;
    if (gd_wants_grad(in[B]) && !gd_put(&d[1 + B], gd_sum(da, GD_AXES(0, 1), false)))
        return false;
    for (int i = 0; i < states; i++)
        if (!gd_put(&d[1 + H0 + i], take_part(all, &at, GD_SHAPE(batch, width))))
            return false;
    return true;
}

static bool vjp_grad(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    (void)r, (void)g, (void)d;
    (void)gd_fail(GD_ERR_UNSUPPORTED, "gd_recurrent: second derivatives need .plain = true");
    return false;
}

/* The products with the state, as of attention: [batch, width] by u, [width, gates * width], in
 * every step. */
static double flops_recurrent(int n, const gd_layout *const *in, const gd_layout *out,
                              const void *attr)
{
    (void)n, (void)out, (void)attr;
    return 2 * (double)(in[Z]->shape[0] * in[Z]->shape[1]) * (double)gd_layout_count(in[U]);
}

/* As many, by u's transpose. The result of `recurrent`, in[0], has as many numbers for each step. */
static double flops_recurrent_grad(int n, const gd_layout *const *in, const gd_layout *out,
                                   const void *attr)
{
    (void)n, (void)out;
    const int64_t each =
        in[1]->shape[1] * gd_recurrent_kept(((const gd_recurrent_attr *)attr)->cell);
    const int64_t steps = each ? in[0]->shape[0] / each : 0;
    return 2 * (double)steps * (double)gd_layout_count(in[1]);
}

const gd_op gd_op_recurrent = { .id = GD_OP_recurrent,
                                .name = "recurrent",
                                .arity = GD_OP_VARIADIC,
                                .flags = GD_OP_LOWER,
                                .dtypes = GD_DTYPES_REAL,
                                .alike = 1 << B | 1 << H0,
                                .attr_size = sizeof(gd_recurrent_attr),
                                .infer = infer_recurrent,
                                .format = format_recurrent,
                                .flops = flops_recurrent,
                                .recompute = GD_RECOMPUTE_NEVER };

const gd_op gd_op_recurrent_result = { .id = GD_OP_recurrent_result,
                                       .name = "recurrent_result",
                                       .arity = GD_OP_VARIADIC,
                                       .dtypes = GD_DTYPES_REAL,
                                       .alike = 1 << (1 + Z) | 1 << (1 + B) | 1 << (1 + H0),
                                       .flags = GD_OP_VIEW,
                                       .attr_size = sizeof(gd_recurrent_attr),
                                       .infer = infer_result,
                                       .vjp = vjp_result,
                                       .format = format_recurrent };

const gd_op gd_op_recurrent_grad = { .id = GD_OP_recurrent_grad,
                                     .name = "recurrent_grad",
                                     .arity = GD_OP_VARIADIC,
                                     .dtypes = GD_DTYPES_REAL,
                                     .alike = 1 << 2,
                                     .attr_size = sizeof(gd_recurrent_attr),
                                     .infer = infer_grad,
                                     .vjp = vjp_grad,
                                     .format = format_recurrent,
                                     .flops = flops_recurrent_grad,
                                     .recompute = GD_RECOMPUTE_NEVER };

/* ---- step by step, from simpler ops ---- */

static gd_tensor *gate(gd_tensor *x, int64_t index, int64_t width)
{
    return gd_slice(x, 1, index * width, (index + 1) * width, 1);
}

/* One step: z [batch, gates * width]. */
static gd_tensor *plain_step(int cell, gd_tensor *z, gd_tensor *a, gd_tensor *h, gd_tensor **c)
{
    if (!h)
        return NULL;
    int64_t w = h->layout.shape[1];
    if (cell == GD_CELL_RNN)
        return gd_tanh(gd_add(z, a));
    if (cell == GD_CELL_RNN_RELU)
        return gd_relu(gd_add(z, a));
    if (cell == GD_CELL_LSTM) {
        gd_tensor *s = gd_add(z, a);
        gd_tensor *i = gd_sigmoid(gate(s, 0, w)), *f = gd_sigmoid(gate(s, 1, w));
        gd_tensor *g = gd_tanh(gate(s, 2, w)), *o = gd_sigmoid(gate(s, 3, w));
        *c = gd_add(gd_mul(f, *c), gd_mul(i, g));
        return gd_mul(o, gd_tanh(*c));
    }
    gd_tensor *r = gd_sigmoid(gd_add(gate(z, 0, w), gate(a, 0, w)));
    gd_tensor *k = gd_sigmoid(gd_add(gate(z, 1, w), gate(a, 1, w)));
    gd_tensor *n = gd_tanh(gd_add(gate(z, 2, w), gd_mul(r, gate(a, 2, w))));
    return gd_add(gd_mul(gd_rsub_scalar(k, 1), n), gd_mul(k, h));
}

/* rows [time]: room for h of every step, [batch, 1, width]. */
static gd_tensor *plain_steps(gd_tensor *const *in, int n, const gd_recurrent_attr *a,
                              gd_tensor **last_cell, gd_tensor **rows)
{
    int64_t time = in[Z]->layout.shape[1];
    gd_tensor *h = in[H0], *c = is_lstm(a) ? in[C0] : NULL;
    gd_tensor *lengths = a->has_lengths ? in[n - 1] : NULL;
    for (int64_t step = 0; step < time; step++) {
        int64_t t = a->reverse ? time - 1 - step : step;
        gd_tensor *before = c;
        gd_tensor *x = gd_add(gd_product(h, in[U]), in[B]);
        gd_tensor *next = plain_step(a->cell, gd_select(in[Z], 1, t), x, h, &c);
        if (lengths) {
            gd_tensor *runs = gd_unsqueeze(gd_gt(lengths, gd_number_like(lengths, (double)t)), 1);
            next = gd_where(runs, next, h);
            c = c ? gd_where(runs, c, before) : NULL;
        }
        h = next;
        rows[t] = gd_unsqueeze(h, 1);
        if (!rows[t])
            return NULL;
    }
    if (last_cell)
        *last_cell = c;
    return gd_concat((int)time, rows, 1);
}

static gd_tensor *plain(gd_tensor *const *in, int n, const gd_recurrent_attr *a,
                        gd_tensor **last_cell)
{
    int64_t time = in[Z]->layout.shape[1];
    if (time > INT_MAX)
        return gd_fail_null(GD_ERR_SHAPE, "gd_recurrent: %lld steps", (long long)time);
    gd_tensor **rows = gd_alloc((size_t)time * sizeof *rows);
    gd_tensor *all = rows ? plain_steps(in, n, a, last_cell, rows) : NULL;
    gd_free(rows);
    return all;
}

/* ---- what users call ---- */

static gd_tensor *build_recurrent(gd_tensor *z, gd_tensor *weight, gd_tensor *bias, gd_cell cell,
                                  const gd_recurrent_options *options)
{
    gd_recurrent_options o = { GD_RECURRENT_DEFAULTS };
    if (!gd_options_read("gd_recurrent", &o, sizeof o, options) || !z || !weight || !bias ||
        !GD_NONE_ENDED("gd_recurrent", z, weight, bias, o.first_hidden, o.first_cell, o.lengths))
        return NULL;
    if (cell < 0 || cell > GD_CELL_GRU)
        return gd_fail_null(GD_ERR_INVALID, "gd_recurrent: %d is no cell", (int)cell);
    gd_recurrent_attr attr = { .cell = (int32_t)cell,
                               .reverse = o.reverse,
                               .has_lengths = o.lengths != NULL };
    gd_tensor **operands[] = { &z, &weight, &bias, &o.first_hidden, &o.first_cell };
    z = gd_autocast(GD_OP_recurrent, z);
    weight = gd_autocast(GD_OP_recurrent, weight);
    if (!z || !weight)
        return NULL;
    gd_dtype dtype = gd_dtype_promote(z->layout.dtype, weight->layout.dtype);
    for (int i = 2; i < 5; i++)
        if (*operands[i] && !gd_autocast_is_on(z->context))
            dtype = gd_dtype_promote(dtype, (*operands[i])->layout.dtype);
    dtype = gd_float_dtype(dtype);
    const gd_dtype compute = gd_compute_dtype(GD_OP_recurrent, dtype);
    /* The kernel's weight of bf16 stays so, where the device has such products. */
    const bool keeps = dtype == GD_BF16 && weight->layout.dtype == GD_BF16 && !o.plain &&
                       z->context->device->half_recurrent;
    for (int i = 0; i < 5; i++) {
        gd_tensor *given = *operands[i];
        if (given && !(i == U && keeps) && !(*operands[i] = gd_as_dtype(given, compute)))
            return NULL;
    }
    gd_shape shape = gd_layout_shape(&z->layout), u = gd_layout_shape(&weight->layout);
    gd_shape state = GD_SHAPE(shape.rank > 0 ? shape.dim[0] : 0, u.rank > 0 ? u.dim[0] : 0);
    gd_tensor *zero = o.first_hidden && (o.first_cell || !is_lstm(&attr))
                          ? NULL
                          : gd_zeros(z->context, state, z->layout.dtype);
    bool runs = shape.rank == 3 && z->layout.stride[2] == 1;
    gd_tensor *in[7] = { NULL, runs ? z : gd_contiguous(z), weight, gd_contiguous(bias),
                         o.first_hidden ? o.first_hidden : zero };
    int n = 4;
    if (is_lstm(&attr))
        in[1 + n++] = o.first_cell ? o.first_cell : zero;
    if (o.lengths)
        in[1 + n++] = gd_as_dtype(o.lengths, GD_I64);
    const gd_layout *layouts[6];
    for (int i = 0; i < n; i++) {
        if (!in[1 + i])
            return NULL;
        layouts[i] = &in[1 + i]->layout;
    }
    if (check(n, layouts, &attr) != GD_OK)
        return NULL;
    if (keeps && (u.dim[0] > GD_RECURRENT_WIDEST ||
                  !gd_op_is_taken(z->context, GD_OP_recurrent, n, layouts, &attr)))
        in[1 + U] = gd_as_dtype(weight, compute);
    if (!in[1 + U])
        return NULL;
    gd_tensor *h, *last_cell = NULL;
    if (o.plain || u.dim[0] > GD_RECURRENT_WIDEST) {
        h = plain(in + 1, n, &attr, &last_cell);
    } else {
        in[0] = gd_apply(NULL, GD_OP_recurrent, n, in + 1, &attr);
        if (o.last_cell && is_lstm(&attr)) {
            attr.part = 1;
            last_cell = gd_apply(NULL, GD_OP_recurrent_result, n + 1, in, &attr);
            attr.part = 0;
        }
        h = gd_apply(NULL, GD_OP_recurrent_result, n + 1, in, &attr);
    }
    if (o.last_cell)
        *o.last_cell = last_cell ? gd_as_dtype(last_cell, dtype) : NULL;
    return h ? gd_as_dtype(h, dtype) : NULL;
}

gd_tensor *gd_recurrent_with(gd_tensor *z, gd_tensor *weight, gd_tensor *bias, gd_cell cell,
                             const gd_recurrent_options *options)
{
    return GD_AS("gd_recurrent", build_recurrent(z, weight, bias, cell, options));
}
