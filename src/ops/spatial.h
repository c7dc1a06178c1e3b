/* ops/spatial.h: how convolution and pooling see shapes: three spatial axes always, of which the
 * leading ones may have size 1. Shared by the ops and by the back ends. */
#ifndef GD_OPS_SPATIAL_H
#define GD_OPS_SPATIAL_H

#include "ops/attrs.h"

/* Spatial size of [n, c, spatial...] along axis a of the three. */
static inline int64_t gd_spatial_size(const gd_layout *layout, int a)
{
    const int axis = layout->rank - GD_SPATIAL + a;
    return axis >= 2 ? layout->shape[axis] : 1;
}

/* A convolution y = x * w with all its sizes. */
typedef struct gd_conv_sizes {
    int64_t n, groups, c, o; /* channels of x and of y in one group */
    int64_t in[GD_SPATIAL], kernel[GD_SPATIAL], out[GD_SPATIAL];
    int64_t in_plane, taps, out_plane; /* their products */
} gd_conv_sizes;

/* From the layouts of x [n, groups * c, in...], w [groups * o, c, kernel...] and y. */
static inline gd_conv_sizes gd_conv_sizes_of(const gd_layout *x, const gd_layout *w,
                                             const gd_layout *y, int64_t groups)
{
    gd_conv_sizes s = { .n = x->shape[0],
                        .groups = groups,
                        .c = w->shape[1],
                        .o = w->shape[0] / groups,
                        .in_plane = 1,
                        .taps = 1,
                        .out_plane = 1 };
    for (int a = 0; a < GD_SPATIAL; a++) {
        s.in_plane *= s.in[a] = gd_spatial_size(x, a);
        s.taps *= s.kernel[a] = gd_spatial_size(w, a);
        s.out_plane *= s.out[a] = gd_spatial_size(y, a);
    }
    return s;
}

/* A pooling of planes in[] to planes out[]. */
typedef struct gd_pool_sizes {
    const gd_pool_attr *attr;
    int64_t planes; /* n * c */
    int64_t in[GD_SPATIAL], out[GD_SPATIAL];
    int64_t in_plane, out_plane;
} gd_pool_sizes;

static inline gd_pool_sizes gd_pool_sizes_of(const gd_layout *in, const gd_layout *out,
                                             const gd_pool_attr *attr)
{
    gd_pool_sizes s = {
        .attr = attr, .planes = in->shape[0] * in->shape[1], .in_plane = 1, .out_plane = 1
    };
    for (int a = 0; a < GD_SPATIAL; a++) {
        s.in_plane *= s.in[a] = gd_spatial_size(in, a);
        s.out_plane *= s.out[a] = gd_spatial_size(out, a);
    }
    return s;
}

/* The elements of an axis that a window sees: first, first + step, … below end. `padded` counts
 * those of the padded axis. */
typedef struct gd_pool_window {
    int64_t first, end, step, padded;
} gd_pool_window;

static inline gd_pool_window gd_pool_window_at(const gd_pool_sizes *s, int a, int64_t i)
{
    const gd_pool_attr *attr = s->attr;
    const int64_t size = s->in[a];
    if (attr->adaptive) {
        gd_pool_window w = { i * size / s->out[a], ((i + 1) * size + s->out[a] - 1) / s->out[a], 1,
                             0 };
        w.padded = w.end - w.first;
        return w;
    }
    const int64_t step = attr->dilation[a], least = i * attr->stride[a] - attr->before[a];
    const int64_t most = least + (attr->kernel[a] - 1) * step + 1; /* one behind the last */
    const int64_t edge = size + attr->after[a];
    gd_pool_window w = { least < 0 ? least + (-least + step - 1) / step * step : least,
                         most < size ? most : size, step, (most < edge ? most : edge) - least };
    return w;
}

#endif
