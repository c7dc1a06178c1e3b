/* ops/internal.h: helpers the files of src/ops share. */
#ifndef GD_OPS_INTERNAL_H
#define GD_OPS_INTERNAL_H

#include <stdio.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include "base/error.h"
#include "base/text.h"
#include "graph/apply.h"
#include "graph/autocast.h"
#include "graph/autograd.h"
#include "graph/context.h"
#include "graph/dtypes.h"
#include "ops/attrs.h"

/* x in the dtype a function of real numbers is computed in. With gd_round_like at its end,
 * functions made of several ops round halves once. */
static inline gd_tensor *gd_widen(gd_tensor *x)
{
    return gd_usable(x, "gd_cast") ? gd_as_dtype(x, gd_real_dtype(x->layout.dtype)) : NULL;
}

/* The result r of such a function of x, in the dtype it gives. */
static inline gd_tensor *gd_round_like(gd_tensor *r, const gd_tensor *x)
{
    return r && x ? gd_as_dtype(r, gd_float_dtype(x->layout.dtype)) : NULL;
}

/* The same of x and y. */
static inline gd_tensor *gd_round_like_both(gd_tensor *r, const gd_tensor *x, const gd_tensor *y)
{
    if (!r || !x || !y)
        return NULL;
    return gd_as_dtype(r, gd_float_dtype(gd_dtype_promote(x->layout.dtype, y->layout.dtype)));
}

/* Whether what is made of x has a history to differentiate. */
static inline bool gd_has_history(const gd_tensor *x)
{
    return x->requires_grad && x->context->no_grad == 0;
}

/* A value, for derivatives, that stands for "zero": the input gets no gradient. Never dereferenced.
 */
extern gd_tensor gd_zero_marker;

/* Put a derivative in its place: false when its builder failed. */
static inline bool gd_put(gd_tensor **place, gd_tensor *value)
{
    if (value == &gd_zero_marker)
        return true;
    *place = value;
    return value != NULL;
}

/* Whether dtype can hold the number, recorded otherwise: integers hold whole numbers of their
 * range, bool any, floats all, rounded. */
bool gd_check_number(double value, gd_dtype dtype, const char *who);

/* A number of t's dtype, 0-d. */
static inline gd_tensor *gd_number_like(gd_tensor *t, double value)
{
    return gd_usable(t, "gd_scalar") ? gd_scalar(t->context, value, t->layout.dtype) : NULL;
}

/* out = in's shape, contiguous, of dtype. */
static inline gd_status gd_infer_like(const gd_layout *in, gd_dtype dtype, const char *who,
                                      gd_layout *out)
{
    return gd_layout_init(out, gd_layout_shape(in), dtype, who);
}

/* The shape of an attribute that is all zero. Its parts one by one: a copy of the whole need not
 * keep the bytes between them zero, and attributes are compared as bytes. */
static inline void gd_set_shape(gd_shape *out, gd_shape shape)
{
    out->rank = shape.rank;
    for (int i = 0; i < shape.rank && i < GD_MAX_RANK; i++)
        out->dim[i] = shape.dim[i];
}

/* Axes as bits; *ok is false (and the error recorded) when one is out of range or given twice. */
static inline uint32_t gd_axes_mask(gd_axes axes, int rank, const char *who, bool *ok)
{
    uint32_t mask = 0;
    *ok = true;
    if (axes.count < 0)
        return rank ? (uint32_t)((1ull << rank) - 1) : 0;
    if (axes.count > GD_MAX_RANK) {
        (void)gd_fail(GD_ERR_SHAPE, "%s: %d axes given, at most %d are possible", who, axes.count,
                      GD_MAX_RANK);
        *ok = false;
        return 0;
    }
    for (int i = 0; i < axes.count; i++) {
        int axis = gd_axis_normal(axes.axis[i], rank, who);
        if (axis < 0 || (mask & (1u << axis))) {
            if (axis >= 0)
                (void)gd_fail(GD_ERR_SHAPE, "%s: axis %d is given twice", who, axes.axis[i]);
            *ok = false;
            return 0;
        }
        mask |= 1u << axis;
    }
    return mask;
}

/* gd_matmul of operands as they are, in a scope of mixed precision, too: for what has seen to that. */
gd_tensor *gd_product(gd_tensor *x, gd_tensor *y);
/* The same in the dtype that the op gives: of halves f32, which the caller rounds. */
gd_tensor *gd_product_sums(gd_tensor *x, gd_tensor *y);

/* Whether an op on t and other may put its result in t's place, where t has just been made and
 * nobody else has seen it: eagerly, if dtype and shape stay. In a trace the planner sees to that.
 */
bool gd_may_replace(const gd_tensor *t, const gd_tensor *other);

/* x^p of x >= 0 and p > 0; where x is 0, so is its gradient. */
gd_tensor *gd_power_of_size(gd_tensor *x, double p);

/* Floating-point operations, for rows (ops/flops.c): none that count, one for each element of the
 * result, one for each of input 0, those of a product of matrices. */
double gd_flops_none(int n, const gd_layout *const *in, const gd_layout *out, const void *attr);
double gd_flops_each(int n, const gd_layout *const *in, const gd_layout *out, const void *attr);
double gd_flops_each_read(int n, const gd_layout *const *in, const gd_layout *out,
                          const void *attr);
double gd_flops_product(int n, const gd_layout *const *in, const gd_layout *out, const void *attr);
double gd_flops_softmax(int n, const gd_layout *const *in, const gd_layout *out, const void *attr);

/* "axis=1", of a gd_axis_attr, for rows. */
void gd_format_axis(const void *attr, char *text, size_t size);

/* The sums of (x - center) g over all axes but 1, as `like`; where x [n, c, ..] has such axes, and `like` and
 * the center one number for each channel, [c, 1, ..] or [1, c, 1, ..]. false: they have not. */
bool gd_sum_channels(gd_tensor *x, gd_tensor *center, gd_tensor *g, const gd_layout *like,
                     gd_tensor **sums);

/* The op normalize_grad (ops/norm.c): x [.., k] and g like it; weight [k] when attr->parts > 0. */
gd_tensor *gd_normalize_grad(gd_tensor *x, gd_tensor *g, gd_tensor *weight,
                             const gd_norm_attr *attr);

/* An option of convolution or pooling for spatial axis i of `axes`: what is given, one number for all
 * axes or one for each, else (rank 0) the fallback. False, with the error recorded, when it is less
 * than `least`, or so large that sizes computed from it could overflow. */
#define GD_SPATIAL_LARGEST ((int64_t)1 << 16)
bool gd_spatial_option(const char *who, const char *name, const gd_shape *given, int axes, int i,
                       int64_t fallback, int64_t least, int64_t *out);

#endif
