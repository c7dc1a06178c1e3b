/* ops/augment.c: random changes of images, made of ops: which draws make which change, and the
 * changes of geometry; colours and noise are ops/augment_colour.c. Start at gd_augment_with(). */
#include <math.h>

#include "ops/augment.h"

#include "base/options.h"

/* ---- options ---- */

typedef struct range {
    const char *name;
    double value, least, most;
} range;

static bool check(const gd_augment_options *o)
{
    const range ranges[] = {
        { "padding", (double)o->padding, 0, 1 << 15 },
        { "flip", o->flip, 0, 1 },
        { "flip_vertical", o->flip_vertical, 0, 1 },
        { "crop", o->crop, 1e-6, 1 },
        { "crop_aspect", o->crop_aspect, 1, 1e3 },
        { "height", (double)o->height, -1, 1 << 15 },
        { "width", (double)o->width, -1, 1 << 15 },
        { "rotation", o->rotation, 0, 360 },
        { "translation", o->translation, 0, 1 },
        { "zoom", o->zoom, 1, 1e3 },
        { "shear", o->shear, 0, 89 },
        { "brightness", o->brightness, 0, 1e3 },
        { "contrast", o->contrast, 0, 1e3 },
        { "saturation", o->saturation, 0, 1e3 },
        { "hue", o->hue, 0, 0.5 },
        { "noise", o->noise, 0, 1e3 },
        { "erase", o->erase, 0, 1 },
        { "erase_least", o->erase_least, 0, 1 },
        { "erase_most", o->erase_most, o->erase_least, 1 },
        { "erase_aspect", o->erase_aspect, 1, 1e3 },
        { "fill", o->fill, -1e30, 1e30 },
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most)) {
            (void)gd_fail(GD_ERR_INVALID, "gd_augment: %s of %g is not in %g … %g", ranges[i].name,
                          ranges[i].value, ranges[i].least, ranges[i].most);
            return false;
        }
    if (o->height == 0 || o->width == 0) {
        (void)gd_fail(GD_ERR_INVALID, "gd_augment: a size of 0; -1 is the images' own");
        return false;
    }
    return true;
}

/* How many draws each change takes, and in all. */
static int64_t count_columns(const gd_augment_options *o, int64_t columns[GD_CHANGES])
{
    bool affine = o->rotation > 0 || o->translation > 0 || o->zoom > 1 || o->shear > 0;
    columns[GD_CHANGE_PADDING] = o->padding > 0 ? 2 : 0;
    columns[GD_CHANGE_FLIP] = o->flip > 0;
    columns[GD_CHANGE_FLIP_VERTICAL] = o->flip_vertical > 0;
    columns[GD_CHANGE_CROP] = o->crop < 1 ? 4 : 0;
    columns[GD_CHANGE_AFFINE] = affine ? 5 : 0;
    columns[GD_CHANGE_BRIGHTNESS] = o->brightness > 0;
    columns[GD_CHANGE_CONTRAST] = o->contrast > 0;
    columns[GD_CHANGE_SATURATION] = o->saturation > 0;
    columns[GD_CHANGE_HUE] = o->hue > 0;
    columns[GD_CHANGE_NOISE] = o->noise > 0 ? 2 : 0;
    columns[GD_CHANGE_ERASE] = o->erase > 0 ? 5 : 0;
    int64_t sum = 0;
    for (int i = 0; i < GD_CHANGES; i++)
        sum += columns[i];
    return sum;
}

int64_t gd_augment_draws(const gd_augment_options *options)
{
    gd_augment_options o = { GD_AUGMENT_DEFAULTS };
    int64_t columns[GD_CHANGES];
    return gd_options_read("gd_augment_draws", &o, sizeof o, options) && check(&o)
               ? count_columns(&o, columns)
               : -1;
}

/* ---- pixels that move as they are: crops of padded images, mirror images ---- */

/* Where each pixel of a row (axis 3) or column (axis 2) of the result comes from, as f32. */
static gd_tensor *origins(const gd_augmentation *a, int64_t size, int axis)
{
    gd_change flip = axis == 3 ? GD_CHANGE_FLIP : GD_CHANGE_FLIP_VERTICAL;
    gd_tensor *at = gd_ramp(a->context, size, axis);
    if (gd_does(a, flip)) {
        double probability = axis == 3 ? a->o->flip : a->o->flip_vertical;
        at = gd_where(gd_lt_scalar(gd_draw(a, flip, 0), probability),
                      gd_rsub_scalar(at, (double)(size - 1)), at);
    }
    if (gd_does(a, GD_CHANGE_PADDING)) {
        double padding = (double)a->o->padding;
        gd_tensor *u = gd_draw(a, GD_CHANGE_PADDING, axis == 3);
        gd_tensor *place =
            gd_minimum_scalar(gd_floor(gd_mul_scalar(u, 2 * padding + 1)), 2 * padding);
        at = gd_add(at, gd_sub_scalar(place, padding));
    }
    return at;
}

/* x [n, c, h, w] at rows [.., oh, ow] and columns [.., oh, ow], whole numbers of f32; what lies
 * outside is the pixel at the edge. */
static gd_tensor *pixels_at(gd_tensor *x, gd_tensor *rows, gd_tensor *columns)
{
    if (!x || !rows || !columns)
        return NULL;
    gd_shape s = gd_tensor_shape(x);
    rows = gd_cast(gd_clip(rows, 0, (double)(s.dim[2] - 1)), GD_I32);
    columns = gd_cast(gd_clip(columns, 0, (double)(s.dim[3] - 1)), GD_I32);
    gd_tensor *index = gd_add(gd_mul_scalar(rows, (double)s.dim[3]), columns);
    if (!index)
        return NULL;
    gd_shape out = gd_tensor_shape(index);
    int64_t pixels = out.dim[2] * out.dim[3];
    index = gd_reshape(index, GD_SHAPE(out.dim[0], 1, pixels));
    index = gd_broadcast_to(index, GD_SHAPE(s.dim[0], s.dim[1], pixels));
    x = gd_reshape(x, GD_SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3]));
    return gd_reshape(gd_gather(x, index, 2), GD_SHAPE(s.dim[0], s.dim[1], out.dim[2], out.dim[3]));
}

/* 0 <= at < size */
static gd_tensor *is_inside(gd_tensor *at, int64_t size)
{
    return gd_logical_and(gd_ge_scalar(at, 0), gd_lt_scalar(at, (double)size));
}

/* u8 to 0 … 1; floats to f32. */
static gd_tensor *as_f32(gd_tensor *x)
{
    bool bytes = x && x->layout.dtype == GD_U8;
    x = gd_cast(x, GD_F32);
    return bytes ? gd_div_scalar(x, 255) : x;
}

/* Of the images' own dtype, so that bytes move as bytes, to f32. */
static gd_tensor *move_pixels(const gd_augmentation *a, gd_tensor *x)
{
    bool crops = gd_does(a, GD_CHANGE_PADDING);
    if (!crops && !gd_does(a, GD_CHANGE_FLIP) && !gd_does(a, GD_CHANGE_FLIP_VERTICAL))
        return as_f32(x);
    gd_shape s = gd_tensor_shape(x);
    gd_tensor *rows = origins(a, s.dim[2], 2), *columns = origins(a, s.dim[3], 3);
    gd_tensor *moved = as_f32(pixels_at(x, rows, columns));
    if (!crops)
        return moved;
    gd_tensor *inside = gd_logical_and(is_inside(rows, s.dim[2]), is_inside(columns, s.dim[3]));
    return gd_where(inside, moved, gd_scalar(a->context, a->o->fill, GD_F32));
}

/* ---- resizing, of the whole image or of a crop: two products with matrices of weights ---- */

/* A part of an axis: numbers [n, 1, 1, 1], or NULL for all of it. */
typedef struct part {
    gd_tensor *from, *size;
} part;

/* Weights by which `in` pixels make `out`: a triangle around the centre of the result's pixel, as wide
 * as a pixel of the coarser of the two grids, as gd_image_resize has it. The pixels of the source are
 * along `axis` (2 or 3), those of the result along the other one. */
static gd_tensor *resize_weights(const gd_augmentation *a, int64_t in, int64_t out, part p,
                                 int axis)
{
    gd_tensor *source = gd_add_scalar(gd_ramp(a->context, in, axis), 0.5);
    gd_tensor *result = gd_add_scalar(gd_ramp(a->context, out, 5 - axis), 0.5);
    gd_tensor *from = p.from ? p.from : gd_scalar(a->context, 0, GD_F32);
    gd_tensor *size = p.size ? p.size : gd_scalar(a->context, (double)in, GD_F32);
    gd_tensor *scale = gd_div_scalar(size, (double)out);
    gd_tensor *centre = gd_add(from, gd_mul(result, scale));
    gd_tensor *distance = gd_div(gd_abs(gd_sub(source, centre)), gd_maximum_scalar(scale, 1));
    gd_tensor *weight = gd_relu(gd_rsub_scalar(distance, 1));
    if (p.from)
        weight =
            gd_where(gd_is_within(source, from, size), weight, gd_scalar(a->context, 0, GD_F32));
    return gd_div(weight, gd_sum(weight, GD_AXES(axis), true));
}

/* A crop's place and size along both axes. */
static void draw_crop(const gd_augmentation *a, int64_t h, int64_t w, part *rows, part *columns)
{
    gd_tensor *u[4];
    for (int i = 0; i < 4; i++)
        u[i] = gd_draw(a, GD_CHANGE_CROP, i);
    gd_tensor *area = gd_mul_scalar(gd_draw_between(u[0], a->o->crop, 1), (double)(h * w));
    gd_tensor *ratio = gd_draw_ratio(u[1], a->o->crop_aspect);
    gd_tensor *sizes[2] = { gd_sqrt(gd_div(area, ratio)), gd_sqrt(gd_mul(area, ratio)) };
    for (int i = 0; i < 2; i++) {
        double most = (double)(i ? w : h);
        part *p = i ? columns : rows;
        p->size = gd_clip(gd_round(sizes[i]), 1, most);
        p->from = gd_draw_place(u[2 + i], gd_rsub_scalar(p->size, most));
    }
}

static gd_tensor *resize(const gd_augmentation *a, gd_tensor *x)
{
    if (!x)
        return NULL;
    gd_shape s = gd_tensor_shape(x);
    int64_t h = a->o->height < 0 ? s.dim[2] : a->o->height;
    int64_t w = a->o->width < 0 ? s.dim[3] : a->o->width;
    part rows = { 0 }, columns = { 0 };
    bool crops = gd_does(a, GD_CHANGE_CROP);
    if (crops)
        draw_crop(a, s.dim[2], s.dim[3], &rows, &columns);
    if (crops || w != s.dim[3])
        x = gd_product(x, resize_weights(a, s.dim[3], w, columns, 2));
    if (crops || h != s.dim[2])
        x = gd_product(resize_weights(a, s.dim[2], h, rows, 3), x);
    return x;
}

/* ---- affine maps ---- */

/* The place in the source that each pixel [1, 1, h, w] of the result shows, [n, 1, h, w], in pixels
 * with the first one's centre at 0. */
typedef struct places {
    gd_tensor *row, *column;
} places;

static places map_back(const gd_augmentation *a, int64_t h, int64_t w)
{
    const gd_augment_options *o = a->o;
    gd_tensor *u[5];
    for (int i = 0; i < 5; i++)
        u[i] = gd_draw(a, GD_CHANGE_AFFINE, i);
    const double degree = 0.017453292519943295;
    gd_tensor *angle = gd_draw_between(u[0], -o->rotation * degree, o->rotation * degree);
    gd_tensor *right =
        gd_draw_between(u[1], -o->translation * (double)w, o->translation * (double)w);
    gd_tensor *down =
        gd_draw_between(u[2], -o->translation * (double)h, o->translation * (double)h);
    gd_tensor *shrink = gd_draw_ratio(u[3], o->zoom); /* 1 / zoom is as probable as zoom */
    gd_tensor *slope = gd_tan(gd_draw_between(u[4], -o->shear * degree, o->shear * degree));
    gd_tensor *cosine = gd_cos(angle), *sine = gd_sin(angle);
    double middle_row = (double)(h - 1) / 2, middle_column = (double)(w - 1) / 2;
    gd_tensor *x = gd_sub(gd_sub_scalar(gd_ramp(a->context, w, 3), middle_column), right);
    gd_tensor *y = gd_sub(gd_sub_scalar(gd_ramp(a->context, h, 2), middle_row), down);
    /* The inverse of: shear, then rotation, then zoom. */
    gd_tensor *turned_x = gd_add(gd_mul(cosine, x), gd_mul(sine, y));
    gd_tensor *turned_y = gd_sub(gd_mul(cosine, y), gd_mul(sine, x));
    turned_x = gd_add(turned_x, gd_mul(slope, turned_y));
    return (places){ .row = gd_add_scalar(gd_mul(shrink, turned_y), middle_row),
                     .column = gd_add_scalar(gd_mul(shrink, turned_x), middle_column) };
}

/* Bilinear, pixels outside being `fill`. */
static gd_tensor *transform(const gd_augmentation *a, gd_tensor *x)
{
    if (!x || !gd_does(a, GD_CHANGE_AFFINE))
        return x;
    gd_shape s = gd_tensor_shape(x);
    double fill = a->o->fill;
    x = fill != 0 ? gd_sub_scalar(x, fill) : x;
    places at = map_back(a, s.dim[2], s.dim[3]);
    gd_tensor *row = gd_floor(at.row), *column = gd_floor(at.column), *sum = NULL;
    gd_tensor *below = gd_sub(at.row, row), *beyond = gd_sub(at.column, column);
    for (int i = 0; i < 4; i++) {
        gd_tensor *r = gd_add_scalar(row, i / 2), *c = gd_add_scalar(column, i % 2);
        gd_tensor *weight = gd_mul(i / 2 ? below : gd_rsub_scalar(below, 1),
                                   i % 2 ? beyond : gd_rsub_scalar(beyond, 1));
        gd_tensor *inside = gd_logical_and(is_inside(r, s.dim[2]), is_inside(c, s.dim[3]));
        weight = gd_where(inside, weight, gd_scalar(a->context, 0, GD_F32));
        gd_tensor *term = gd_mul(weight, pixels_at(x, r, c));
        sum = i ? gd_add(sum, term) : term;
    }
    return fill != 0 ? gd_add_scalar(sum, fill) : sum;
}

/* ---- erasing ---- */

static gd_tensor *erase(const gd_augmentation *a, gd_tensor *x)
{
    if (!x || !gd_does(a, GD_CHANGE_ERASE))
        return x;
    gd_shape s = gd_tensor_shape(x);
    const gd_augment_options *o = a->o;
    gd_tensor *u[5];
    for (int i = 0; i < 5; i++)
        u[i] = gd_draw(a, GD_CHANGE_ERASE, i);
    gd_tensor *area = gd_mul_scalar(gd_draw_between(u[1], o->erase_least, o->erase_most),
                                    (double)(s.dim[2] * s.dim[3]));
    gd_tensor *ratio = gd_draw_ratio(u[2], o->erase_aspect);
    gd_tensor *sizes[2] = { gd_sqrt(gd_mul(area, ratio)), gd_sqrt(gd_div(area, ratio)) };
    gd_tensor *inside = gd_lt_scalar(u[0], o->erase);
    for (int i = 0; i < 2; i++) {
        double most = (double)s.dim[2 + i];
        gd_tensor *size = gd_clip(gd_round(sizes[i]), 0, most);
        gd_tensor *from = gd_draw_place(u[3 + i], gd_rsub_scalar(size, most));
        inside = gd_logical_and(inside,
                                gd_is_within(gd_ramp(a->context, s.dim[2 + i], 2 + i), from, size));
    }
    return gd_where(inside, gd_scalar(a->context, o->fill, GD_F32), x);
}

/* ---- all of them ---- */

static gd_status check_draws(const gd_augmentation *a, int64_t images, int64_t columns)
{
    gd_shape s = gd_tensor_shape(a->draws);
    if (a->draws->layout.dtype != GD_F32)
        return gd_fail(GD_ERR_DTYPE, "gd_augment: draws are f32, not %s",
                       gd_dtype_name(a->draws->layout.dtype));
    if (s.rank == 2 && s.dim[0] == images && s.dim[1] >= columns)
        return GD_OK;
    char shape[GD_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE,
                   "gd_augment: draws are %s; these changes of %lld images need [%lld, %lld]",
                   gd_layout_text(&a->draws->layout, shape), (long long)images, (long long)images,
                   (long long)columns);
}

static gd_status check_images(const gd_augment_options *o, gd_tensor *x)
{
    gd_dtype dtype = x->layout.dtype;
    if (dtype != GD_U8 && !gd_dtype_is_float(dtype))
        return gd_fail(GD_ERR_DTYPE, "gd_augment: images are u8 or of floats, not %s",
                       gd_dtype_name(dtype));
    gd_shape s = gd_tensor_shape(x);
    char shape[GD_SHAPE_TEXT];
    if (s.rank != 4 || s.dim[1] < 1 || s.dim[2] < 1 || s.dim[3] < 1)
        return gd_fail(GD_ERR_SHAPE, "gd_augment: images are [n, channels, height, width], not %s",
                       gd_layout_text(&x->layout, shape));
    if ((o->saturation > 0 || o->hue > 0) && s.dim[1] != 3 && s.dim[1] != 1)
        return gd_fail(GD_ERR_SHAPE, "gd_augment: saturation and hue of %lld channels; 3 have them",
                       (long long)s.dim[1]);
    return GD_OK;
}

static gd_tensor *build(gd_tensor *x, gd_tensor *draws, const gd_augment_options *options)
{
    gd_augment_options o = { GD_AUGMENT_DEFAULTS };
    if (!gd_options_read("gd_augment", &o, sizeof o, options) || !check(&o) ||
        !gd_usable(x, "gd_augment") || (draws && !gd_usable(draws, "gd_augment")) ||
        check_images(&o, x) != GD_OK)
        return NULL;
    gd_augmentation a = { .o = &o, .context = x->context, .draws = draws };
    int64_t columns = count_columns(&o, a.columns);
    for (int i = 1; i < GD_CHANGES; i++)
        a.first[i] = a.first[i - 1] + a.columns[i - 1];
    if (draws && check_draws(&a, x->layout.shape[0], columns) != GD_OK)
        return NULL;
    x = transform(&a, resize(&a, move_pixels(&a, x)));
    x = gd_augment_noise(&a, gd_augment_colours(&a, x));
    return erase(&a, x);
}

gd_tensor *gd_augment_with(gd_tensor *images, gd_tensor *draws, const gd_augment_options *options)
{
    return GD_AS("gd_augment", build(images, draws, options));
}
