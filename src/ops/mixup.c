/* ops/mixup.c: images and targets of a batch mixed with their neighbours, made of ops. Start at
 * gd_mixup() and gd_cutmix(). */
#include <math.h>

#include "ops/augment.h"

/* What both are given, checked. */
static gd_status check(const char *who, gd_tensor *x, gd_tensor *targets, gd_tensor *draws,
                       double alpha, int64_t columns)
{
    if (!gd_usable(x, who) || !gd_usable(targets, who) || !gd_usable(draws, who))
        return gd_error_last();
    if (!(alpha > 0.0 && alpha <= 1e3))
        return gd_fail(GD_ERR_INVALID, "%s: alpha of %g is not in 0 … 1000, without 0", who, alpha);
    if (!gd_dtype_is_float(x->layout.dtype) || !gd_dtype_is_float(targets->layout.dtype) ||
        draws->layout.dtype != GD_F32)
        return gd_fail(GD_ERR_DTYPE,
                       "%s: images and targets are floats and draws f32, not %s, %s, %s", who,
                       gd_dtype_name(x->layout.dtype), gd_dtype_name(targets->layout.dtype),
                       gd_dtype_name(draws->layout.dtype));
    int64_t n = x->layout.rank > 0 ? x->layout.shape[0] : -1;
    if (n < 1 || targets->layout.rank != 2 || targets->layout.shape[0] != n ||
        draws->layout.rank != 2 || draws->layout.shape[0] != n ||
        draws->layout.shape[1] < columns) {
        char images[GD_SHAPE_TEXT], classes[GD_SHAPE_TEXT], numbers[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE,
                       "%s: images %s, targets %s, draws %s; they are [n, ..], [n, classes], "
                       "[n, at least %lld]",
                       who, gd_layout_text(&x->layout, images),
                       gd_layout_text(&targets->layout, classes),
                       gd_layout_text(&draws->layout, numbers), (long long)columns);
    }
    return GD_OK;
}

/* A share of Beta(alpha, alpha) from two numbers of [0, 1): (1 + s) / 2 with
 * s = c sqrt(1 - q) / sqrt(q + (1 - q) c^2), q = (1 - u)^(1/alpha), c = cos(2 pi v), which is Bailey's
 * (1994) t with 2 alpha degrees of freedom brought to -1 … 1 (Devroye 1996). */
static gd_tensor *draw_share(gd_tensor *u, gd_tensor *v, double alpha)
{
    gd_tensor *q = gd_exp(gd_div_scalar(gd_log(gd_rsub_scalar(u, 1)), alpha));
    gd_tensor *p = gd_rsub_scalar(q, 1), *c = gd_cos(gd_mul_scalar(v, 6.283185307179586));
    gd_tensor *s = gd_div(gd_mul(c, gd_sqrt(p)), gd_sqrt(gd_add(q, gd_mul(p, gd_square(c)))));
    return gd_mul_scalar(gd_add_scalar(s, 1), 0.5);
}

/* The batch with each element in the place of the one before it. */
static gd_tensor *next_of(gd_tensor *x)
{
    return gd_roll(x, 0, -1);
}

/* share * x + (1 - share) * next, rounded once: share [n, 1, ..] of x's rank */
static gd_tensor *blend(gd_tensor *x, gd_tensor *share)
{
    if (!x || !share)
        return NULL;
    gd_shape shape = { .rank = x->layout.rank };
    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = i ? 1 : -1;
    gd_tensor *wide = gd_widen(x);
    share = wide ? gd_as_dtype(gd_reshape(share, shape), wide->layout.dtype) : NULL;
    gd_tensor *next = gd_mul(gd_rsub_scalar(share, 1), next_of(wide));
    return gd_round_like(gd_add(gd_mul(share, wide), next), x);
}

static gd_status give(gd_tensor *images, gd_tensor *targets, gd_tensor **mixed_images,
                      gd_tensor **mixed_targets)
{
    if (!images || !targets)
        return gd_error_last();
    *mixed_images = images;
    *mixed_targets = targets;
    return GD_OK;
}

static gd_status mixup(gd_tensor *x, gd_tensor *targets, gd_tensor *draws, double alpha,
                       gd_tensor **mixed_images, gd_tensor **mixed_targets)
{
    gd_status status = check("gd_mixup", x, targets, draws, alpha, GD_MIXUP_DRAWS);
    if (status != GD_OK)
        return status;
    gd_tensor *share = draw_share(gd_column(draws, 0), gd_column(draws, 1), alpha);
    return give(blend(x, share), blend(targets, share), mixed_images, mixed_targets);
}

static gd_status cutmix(gd_tensor *x, gd_tensor *targets, gd_tensor *draws, double alpha,
                        gd_tensor **mixed_images, gd_tensor **mixed_targets)
{
    gd_status status = check("gd_cutmix", x, targets, draws, alpha, GD_CUTMIX_DRAWS);
    if (status != GD_OK)
        return status;
    if (x->layout.rank != 4)
        return gd_fail(GD_ERR_SHAPE, "gd_cutmix: images of rank %d; they are [n, c, h, w]",
                       x->layout.rank);
    gd_shape s = gd_tensor_shape(x);
    gd_tensor *share = draw_share(gd_column(draws, 0), gd_column(draws, 1), alpha);
    gd_tensor *side = gd_sqrt(gd_rsub_scalar(share, 1)), *inside = NULL, *area = NULL;
    for (int i = 0; i < 2; i++) {
        double most = (double)s.dim[2 + i];
        gd_tensor *half = gd_mul_scalar(gd_floor(gd_mul_scalar(side, most)), 0.5);
        gd_tensor *centre = gd_floor(gd_mul_scalar(gd_column(draws, 2 + i), most));
        gd_tensor *from = gd_clip(gd_floor(gd_sub(centre, half)), 0, most);
        gd_tensor *size = gd_sub(gd_clip(gd_floor(gd_add(centre, half)), 0, most), from);
        gd_tensor *within = gd_is_within(gd_ramp(x->context, s.dim[2 + i], 2 + i), from, size);
        inside = i ? gd_logical_and(inside, within) : within;
        area = i ? gd_mul(area, size) : size;
    }
    share = gd_rsub_scalar(gd_div_scalar(area, (double)(s.dim[2] * s.dim[3])), 1);
    return give(gd_where(inside, next_of(x), x), blend(targets, share), mixed_images,
                mixed_targets);
}

typedef gd_status (*mix_fn)(gd_tensor *, gd_tensor *, gd_tensor *, double, gd_tensor **,
                            gd_tensor **);

static gd_status mix(const char *who, mix_fn fn, gd_tensor *x, gd_tensor *targets, gd_tensor *draws,
                     double alpha, gd_tensor **mixed_images, gd_tensor **mixed_targets)
{
    if (!mixed_images || !mixed_targets)
        return gd_fail(GD_ERR_INVALID, "%s: a place for a result is NULL", who);
    *mixed_images = *mixed_targets = NULL;
    return fn(x, targets, draws, alpha, mixed_images, mixed_targets);
}

gd_status gd_mixup(gd_tensor *images, gd_tensor *targets, gd_tensor *draws, double alpha,
                   gd_tensor **mixed_images, gd_tensor **mixed_targets)
{
    return GD_AS("gd_mixup", mix("gd_mixup", mixup, images, targets, draws, alpha, mixed_images,
                                 mixed_targets));
}

gd_status gd_cutmix(gd_tensor *images, gd_tensor *targets, gd_tensor *draws, double alpha,
                    gd_tensor **mixed_images, gd_tensor **mixed_targets)
{
    return GD_AS("gd_cutmix", mix("gd_cutmix", cutmix, images, targets, draws, alpha, mixed_images,
                                  mixed_targets));
}
