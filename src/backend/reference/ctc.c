/* backend/reference/ctc.c: the recursions over time of ops/ctc.c, from their definitions. Tables
 * are [n, time, states]. */
#include "backend/reference/reference.h"

#include <math.h>

/* States s, s - 1 and s - 2 of a table at a time: the ones before, of which a state may follow. */
typedef struct before {
    real value[3];
    int count;
    real total; /* log of the sum of their exponentials */
} before;

static real log_sum(const real *x, int count)
{
    real most = -INFINITY, sum = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(most) && !(x[i] <= most))
            most = x[i];
    if (most == -INFINITY)
        return most;
    for (int i = 0; i < count; i++)
        sum += expl(x[i] - most);
    return most + logl(sum);
}

static real at(const gd_operand *table, int64_t n, int64_t t, int64_t s)
{
    return gd_ref_load(table, gd_index_offset((int64_t[]){ n, t, s }, table->layout));
}

static before look_back(const gd_operand *alpha, const gd_operand *skip, int64_t n, int64_t t,
                        int64_t s)
{
    before b = { .count = s < 1 ? 1 : 2 };
    if (s >= 2 && gd_ref_load(skip, gd_index_offset((int64_t[]){ n, s }, skip->layout)) != 0)
        b.count = 3;
    for (int i = 0; i < b.count; i++)
        b.value[i] = at(alpha, n, t, s - i);
    b.total = log_sum(b.value, b.count);
    return b;
}

static gd_status ctc_alpha(const gd_kernel_call *call)
{
    const gd_operand *out = &call->out;
    for (gd_walk w = gd_walk_over(out->layout); w.more; gd_walk_next(&w)) {
        int64_t n = w.index[0], t = w.index[1], s = w.index[2];
        real start = s < 2 ? 0 : -INFINITY;
        real total = t == 0 ? start : look_back(out, &call->in[1], n, t - 1, s).total;
        gd_ref_store(out, w.count, at(&call->in[0], n, t, s) + total);
    }
    return GD_OK;
}

/* The gradient of alpha_t(s), for the time t + 1 already known, goes to the states it came from. */
static void send_back(const gd_kernel_call *call, int64_t n, int64_t t, int64_t s)
{
    const gd_operand *out = &call->out;
    before b = look_back(&call->in[0], &call->in[1], n, t, s);
    for (int i = 0; i < b.count && b.total != -INFINITY; i++) {
        int64_t to = gd_index_offset((int64_t[]){ n, t, s - i }, out->layout);
        real share = expl(b.value[i] - b.total) * at(out, n, t + 1, s);
        gd_ref_store(out, to, gd_ref_load(out, to) + share);
    }
}

static gd_status ctc_alpha_grad(const gd_kernel_call *call)
{
    const gd_operand *out = &call->out, *g = &call->in[2];
    const int64_t *shape = out->layout->shape;
    for (gd_walk w = gd_walk_over(out->layout); w.more; gd_walk_next(&w))
        gd_ref_store(out, w.count, at(g, w.index[0], w.index[1], w.index[2]));
    for (int64_t n = 0; n < shape[0]; n++) {
        for (int64_t t = shape[1] - 2; t >= 0; t--)
            for (int64_t s = 0; s < shape[2]; s++)
                send_back(call, n, t, s);
        for (int64_t s = 2; s < shape[2] && shape[1] > 0; s++) /* no path begins there */
            gd_ref_store(out, gd_index_offset((int64_t[]){ n, 0, s }, out->layout), 0);
    }
    return GD_OK;
}

void gd_reference_register_ctc(gd_kernel_fn *kernel)
{
    kernel[GD_OP_ctc_alpha] = ctc_alpha;
    kernel[GD_OP_ctc_alpha_grad] = ctc_alpha_grad;
}
