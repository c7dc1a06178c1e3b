/* backend/reference/spatial.c: convolution, its gradients and pooling, each as its definition says:
 * for every element of the result a sum over whatever contributes to it. Operands are contiguous.
 * Start at convolution(). */
#include "backend/reference/reference.h"

#include "ops/spatial.h"

#include <math.h>

/* Where an index of three axes lies in a plane of these sizes, or -1 outside. */
static int64_t place(const int64_t size[GD_SPATIAL], const int64_t at[GD_SPATIAL])
{
    int64_t offset = 0;
    for (int a = 0; a < GD_SPATIAL; a++) {
        if (at[a] < 0 || at[a] >= size[a])
            return -1;
        offset = offset * size[a] + at[a];
    }
    return offset;
}

/* The index at a place of a plane. */
static void index_at(const int64_t size[GD_SPATIAL], int64_t offset, int64_t at[GD_SPATIAL])
{
    for (int a = GD_SPATIAL - 1; a >= 0; offset /= size[a], a--)
        at[a] = offset % size[a];
}

/* Element of [.., plane]; 0 in the padding. */
static real padded(const gd_operand *x, int64_t plane_index, int64_t plane, int64_t offset)
{
    return offset < 0 ? 0 : gd_ref_load(x, plane_index * plane + offset);
}

/* Place in x's plane that element p of y's plane sees through tap k, or -1. */
static int64_t seen(const gd_conv_attr *attr, const gd_conv_sizes *s, int64_t p, int64_t k)
{
    int64_t out[GD_SPATIAL], tap[GD_SPATIAL], in[GD_SPATIAL];
    index_at(s->out, p, out);
    index_at(s->kernel, k, tap);
    for (int a = 0; a < GD_SPATIAL; a++)
        in[a] = out[a] * attr->stride[a] - attr->before[a] + tap[a] * attr->dilation[a];
    return place(s->in, in);
}

static gd_status convolution(const gd_kernel_call *call)
{
    const gd_conv_attr *attr = call->attr;
    const gd_operand *x = &call->in[0], *w = &call->in[1],
                     *bias = call->n > 2 ? &call->in[2] : NULL;
    const gd_conv_sizes s = gd_conv_sizes_of(x->layout, w->layout, call->out.layout, attr->groups);
    for (int64_t i = 0; i < s.n * s.groups * s.o; i++) {
        const int64_t n = i / (s.groups * s.o), o = i % (s.groups * s.o);
        const int64_t first = n * s.groups * s.c + o / s.o * s.c; /* plane of x */
        for (int64_t p = 0; p < s.out_plane; p++) {
            real sum = 0;
            for (int64_t k = 0; k < s.taps; k++) {
                const int64_t q = seen(attr, &s, p, k);
                for (int64_t c = 0; c < s.c; c++)
                    sum += gd_ref_load(w, (o * s.c + c) * s.taps + k) *
                           padded(x, first + c, s.in_plane, q);
            }
            if (bias)
                sum += gd_ref_load(bias, o);
            gd_ref_store(&call->out, i * s.out_plane + p, attr->relu && sum < 0 ? 0 : sum);
        }
    }
    return GD_OK;
}

/* Place in y's plane of the element that sees element q of x's plane through tap k; -1 when it lies
 * outside, -2 when no element could for q falls between two strides. */
static int64_t seeing(const gd_conv_attr *attr, const gd_conv_sizes *s, int64_t q, int64_t k)
{
    int64_t in[GD_SPATIAL], tap[GD_SPATIAL], out[GD_SPATIAL];
    index_at(s->in, q, in);
    index_at(s->kernel, k, tap);
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int64_t at = in[a] + attr->before[a] - tap[a] * attr->dilation[a];
        if (at % attr->stride[a] != 0)
            return -2;
        out[a] = at / attr->stride[a];
    }
    return place(s->out, out);
}

static gd_status convolution_grad_input(const gd_kernel_call *call)
{
    const gd_conv_attr *attr = call->attr;
    const gd_operand *g = &call->in[0], *w = &call->in[1];
    const gd_conv_sizes s = gd_conv_sizes_of(call->out.layout, w->layout, g->layout, attr->groups);
    for (int64_t i = 0; i < s.n * s.groups * s.c; i++) {
        const int64_t n = i / (s.groups * s.c), c = i % s.c, group = i / s.c % s.groups;
        for (int64_t q = 0; q < s.in_plane; q++) {
            real sum = 0;
            for (int64_t k = 0; k < s.taps; k++) {
                const int64_t p = seeing(attr, &s, q, k);
                for (int64_t o = group * s.o; p > -2 && o < (group + 1) * s.o; o++)
                    sum += gd_ref_load(w, (o * s.c + c) * s.taps + k) *
                           padded(g, n * s.groups * s.o + o, s.out_plane, p);
            }
            gd_ref_store(&call->out, i * s.in_plane + q, sum);
        }
    }
    return GD_OK;
}

static gd_status convolution_grad_weight(const gd_kernel_call *call)
{
    const gd_conv_attr *attr = call->attr;
    const gd_operand *g = &call->in[0], *x = &call->in[1];
    const gd_conv_sizes s = gd_conv_sizes_of(x->layout, call->out.layout, g->layout, attr->groups);
    for (int64_t i = 0; i < s.groups * s.o * s.c; i++) {
        const int64_t o = i / s.c, c = o / s.o * s.c + i % s.c;
        for (int64_t k = 0; k < s.taps; k++) {
            real sum = 0;
            for (int64_t n = 0; n < s.n; n++)
                for (int64_t p = 0; p < s.out_plane; p++)
                    sum += gd_ref_load(g, (n * s.groups * s.o + o) * s.out_plane + p) *
                           padded(x, n * s.groups * s.c + c, s.in_plane, seen(attr, &s, p, k));
            gd_ref_store(&call->out, i * s.taps + k, sum);
        }
    }
    return GD_OK;
}

/* ---- pooling ---- */

/* Does `visit` with the place of every element that window p of a plane sees; returns what the mean
 * is to be divided by. */
typedef struct window_total {
    const gd_operand *x;
    int64_t plane_first, place; /* of the largest so far, -1 before */
    real sum, most;
} window_total;

static real walk_window(const gd_pool_sizes *s, int64_t p, window_total *t)
{
    int64_t out[GD_SPATIAL], inside = 1, all = 1;
    gd_pool_window w[GD_SPATIAL];
    index_at(s->out, p, out);
    for (int a = 0; a < GD_SPATIAL; a++) {
        w[a] = gd_pool_window_at(s, a, out[a]);
        inside *= w[a].end > w[a].first ? (w[a].end - w[a].first + w[a].step - 1) / w[a].step : 0;
        all *= w[a].padded;
    }
    int64_t at[GD_SPATIAL];
    for (at[0] = w[0].first; at[0] < w[0].end; at[0] += w[0].step)
        for (at[1] = w[1].first; at[1] < w[1].end; at[1] += w[1].step)
            for (at[2] = w[2].first; at[2] < w[2].end; at[2] += w[2].step) {
                const int64_t offset = place(s->in, at);
                if (!t->x)
                    continue;
                const real value = gd_ref_load(t->x, t->plane_first + offset);
                t->sum += value;
                if (t->place < 0 || (!isnan(t->most) && !(value <= t->most))) {
                    t->most = value;
                    t->place = offset;
                }
            }
    return (real)(s->attr->exclude_pad ? inside : all);
}

enum goal { MAXIMUM, INDEX, MEAN };

static gd_status pool(const gd_kernel_call *call, enum goal goal)
{
    const gd_operand *x = &call->in[0], *out = &call->out;
    const gd_pool_sizes s = gd_pool_sizes_of(x->layout, out->layout, call->attr);
    for (int64_t i = 0; i < s.planes * s.out_plane; i++) {
        window_total t = { .x = x, .plane_first = i / s.out_plane * s.in_plane, .place = -1 };
        const real divisor = walk_window(&s, i % s.out_plane, &t);
        if (goal == INDEX)
            gd_ref_store_integer(out, i, t.place);
        else
            gd_ref_store(out, i, goal == MEAN ? t.sum / divisor : t.most);
    }
    return GD_OK;
}

static gd_status max_pool(const gd_kernel_call *call)
{
    return pool(call, MAXIMUM);
}

static gd_status max_pool_index(const gd_kernel_call *call)
{
    return pool(call, INDEX);
}

static gd_status avg_pool(const gd_kernel_call *call)
{
    return pool(call, MEAN);
}

/* For element q of x's plane, the sum over the windows whose maximum it is. */
static gd_status max_pool_grad(const gd_kernel_call *call)
{
    const gd_operand *g = &call->in[0], *x = &call->in[1];
    const gd_pool_sizes s = gd_pool_sizes_of(x->layout, g->layout, call->attr);
    for (int64_t i = 0; i < s.planes * s.in_plane; i++) {
        const int64_t plane = i / s.in_plane;
        real sum = 0;
        for (int64_t p = 0; p < s.out_plane; p++) {
            window_total t = { .x = x, .plane_first = plane * s.in_plane, .place = -1 };
            (void)walk_window(&s, p, &t);
            if (t.place == i % s.in_plane)
                sum += gd_ref_load(g, plane * s.out_plane + p);
        }
        gd_ref_store(&call->out, i, sum);
    }
    return GD_OK;
}

static bool sees(const gd_pool_window *w, int64_t at)
{
    return at >= w->first && at < w->end && (at - w->first) % w->step == 0;
}

/* For element q of x's plane, the sum over the windows that see it. */
static gd_status avg_pool_grad(const gd_kernel_call *call)
{
    const gd_operand *g = &call->in[0];
    const gd_pool_sizes s = gd_pool_sizes_of(call->out.layout, g->layout, call->attr);
    for (int64_t i = 0; i < s.planes * s.in_plane; i++) {
        int64_t at[GD_SPATIAL];
        index_at(s.in, i % s.in_plane, at);
        real sum = 0;
        for (int64_t p = 0; p < s.out_plane; p++) {
            int64_t out[GD_SPATIAL];
            index_at(s.out, p, out);
            bool all = true;
            for (int a = 0; a < GD_SPATIAL; a++) {
                const gd_pool_window w = gd_pool_window_at(&s, a, out[a]);
                all = all && sees(&w, at[a]);
            }
            window_total nothing = { .x = NULL };
            if (all)
                sum +=
                    gd_ref_load(g, i / s.in_plane * s.out_plane + p) / walk_window(&s, p, &nothing);
        }
        gd_ref_store(&call->out, i, sum);
    }
    return GD_OK;
}

void gd_reference_register_spatial(gd_kernel_fn *kernel)
{
    kernel[GD_OP_convolution] = convolution;
    kernel[GD_OP_convolution_grad_input] = convolution_grad_input;
    kernel[GD_OP_convolution_grad_weight] = convolution_grad_weight;
    kernel[GD_OP_max_pool] = max_pool;
    kernel[GD_OP_max_pool_index] = max_pool_index;
    kernel[GD_OP_max_pool_grad] = max_pool_grad;
    kernel[GD_OP_avg_pool] = avg_pool;
    kernel[GD_OP_avg_pool_grad] = avg_pool_grad;
}
