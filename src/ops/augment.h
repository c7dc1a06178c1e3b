/* ops/augment.h: random numbers of a batch, as ops/augment*.c and ops/mixup.c share them. */
#ifndef GD_OPS_AUGMENT_H
#define GD_OPS_AUGMENT_H

#include <gradus/augment.h>

#include "ops/internal.h"

/* What an image is changed by, and the first column of its draws. Each takes as many columns as
 * gd_augment_columns() says, 0 where it is not asked for. */
typedef enum gd_change {
    GD_CHANGE_PADDING, /* 2: down, right */
    GD_CHANGE_FLIP,
    GD_CHANGE_FLIP_VERTICAL,
    GD_CHANGE_CROP,   /* 4: area, ratio, top, left */
    GD_CHANGE_AFFINE, /* 5: rotation, translation right, down, zoom, shear */
    GD_CHANGE_BRIGHTNESS,
    GD_CHANGE_CONTRAST,
    GD_CHANGE_SATURATION,
    GD_CHANGE_HUE,
    GD_CHANGE_NOISE, /* 2: a key */
    GD_CHANGE_ERASE, /* 5: whether, area, ratio, top, left */
    GD_CHANGES
} gd_change;

typedef struct gd_augmentation {
    const gd_augment_options *o;
    gd_context *context;
    gd_tensor *draws; /* [n, k] f32, or NULL: nothing is random */
    int64_t first[GD_CHANGES], columns[GD_CHANGES];
} gd_augmentation;

/* Whether a change is asked for, and is there a draw for it. */
static inline bool gd_does(const gd_augmentation *a, gd_change change)
{
    return a->draws && a->columns[change] > 0;
}

/* Column `i` of the draws as [n, 1, 1, 1], that broadcasts against images. */
static inline gd_tensor *gd_column(gd_tensor *draws, int64_t i)
{
    return gd_reshape(gd_slice(draws, 1, i, i + 1, 1), GD_SHAPE(-1, 1, 1, 1));
}

static inline gd_tensor *gd_draw(const gd_augmentation *a, gd_change change, int64_t i)
{
    return gd_column(a->draws, a->first[change] + i);
}

/* u in [0, 1) -> low + u * (high - low) */
static inline gd_tensor *gd_draw_between(gd_tensor *u, double low, double high)
{
    return gd_add_scalar(gd_mul_scalar(u, high - low), low);
}

/* u in [0, 1) -> 1/most to most, evenly in the logarithm */
static inline gd_tensor *gd_draw_ratio(gd_tensor *u, double most)
{
    return gd_exp(gd_draw_between(u, -log(most), log(most)));
}

/* u in [0, 1) -> one of 0, 1, … room, all as probable */
static inline gd_tensor *gd_draw_place(gd_tensor *u, gd_tensor *room)
{
    return gd_minimum(gd_floor(gd_mul(u, gd_add_scalar(room, 1))), room);
}

/* 0, 1, … size-1 as f32 along an axis of four. */
static inline gd_tensor *gd_ramp(gd_context *context, int64_t size, int axis)
{
    gd_shape shape = GD_SHAPE(1, 1, 1, 1);
    shape.dim[axis] = size;
    return gd_reshape(gd_arange(context, 0, (double)size, 1, GD_F32), shape);
}

/* from <= at < from + size */
static inline gd_tensor *gd_is_within(gd_tensor *at, gd_tensor *from, gd_tensor *size)
{
    return gd_logical_and(gd_ge(at, from), gd_lt(at, gd_add(from, size)));
}

/* ops/augment_colour.c: images [n, c, h, w] f32 */
gd_tensor *gd_augment_colours(const gd_augmentation *a, gd_tensor *x);
gd_tensor *gd_augment_noise(const gd_augmentation *a, gd_tensor *x);

#endif
