/* backend/cpu/conv_choose.c: how a convolution is computed. Each function is one decision, a rule a
 * line, and says what the rule wins. No decision changes a bit of a result (conv.h), unless operands
 * are bf16 or numbers may be fast. Figures are of Zen 4 where nothing else is said. Start at
 * gd_conv_choose, at the end.
 *
 * GRADUS_CONV (paths.h) replaces the choice where the way can compute the convolution.
 */
#include "backend/cpu/conv_plan.h"

#include <math.h>

static const char *const forced = "GRADUS_CONV";

/* From so many blocks of k on packing wins over bands, and, from so many results a window and so wide rows on,
 * over images in the lanes. */
enum { MANY_BLOCKS = 4, MANY_CHANNELS = 32, MANY_WIDE = 8 };

/* Where each window is one element of the image, and the planes of all images fill vectors: the
 * product C^T [plane, m] = image^T [plane, depth] @ A^T for each image. Products pack what they read
 * while they multiply: on Emerald Rapids a 1 x 1 convolution from 256 to 64 channels of 56 x 56
 * takes 0.72 of the time that packing windows needs. */
static bool takes_product(const gd_conv_product *v)
{
    const gd_window *w = &v->access.window;
    const int lanes = v->tiles->lanes;
    return gd_conv_may_choose(v->paths) && v->access.place.plain && gd_window_is_plain(w) &&
           (w->plane % lanes == 0 || w->plane >= 16 * lanes);
}

/* ---- bands ---- */

/* Whether it pays. Packing costs about as much as sixteen rows of C. Of rows shorter than a tile that few taps
 * read, as in phases of a gradient by the input, it costs no more than bands: of 64 images with stride 2 the
 * gradient by 32 channels at 16 x 16 has 147 GFLOP/s instead of 76, by 16 at 32 x 32 118 instead of 100 (Zen 5).
 * Where sums take several blocks of k, each block reads its channels' bands and adds to C anew, and strips that
 * end within a vector cost the more: 3 x 3 taps of 16 images run over 256 channels at 28 x 28 at 148 GFLOP/s
 * packed and at 131 by bands, over 128 with stride 2 at 56 x 56 at 122 and 109 (Emerald Rapids). */
static bool bands_pay(const gd_conv_product *v, const gd_conv_band *b)
{
    const gd_window *w = &v->access.window;
    const int64_t columns = v->tiles->columns;
    if (w->tap_count <= 4 && w->count[2] < columns)
        return false;
    if (v->depth >= MANY_BLOCKS * GD_GEMM_KC && w->count[2] % v->tiles->lanes != 0)
        return false;
    const int64_t lanes = (b->taken * w->count[1] + columns - 1) / columns * columns;
    return w->step[1] * w->step[2] <= 16 && (b->taken - w->count[2]) * v->m <= 16 * w->count[2] &&
           (lanes - w->plane) * v->m <= 16 * w->plane;
}

/* Bands or, where they do not do, packing. Some rows of positions must fit in a band. */
static void choose_bands(const gd_conv_product *v, gd_conv_choice *choice)
{
    const bool is_forced = v->paths->conv == GD_CONV_DIRECT;
    const int64_t rows = v->access.window.count[1], least = is_forced ? 1 : gd_gemm_least(4, rows);
    choice->way = GD_CONV_BY_PACKING;
    if (!is_forced && !gd_conv_may_choose(v->paths)) {
        choice->why = forced;
    } else if (!gd_conv_shape_band(v, &choice->band)) {
        choice->why = "windows lie in three axes, or nowhere";
    } else if (!is_forced && !bands_pay(v, &choice->band)) {
        choice->why =
            "packing costs less than lanes left empty by short rows, and than copies for few taps";
    } else if (gd_conv_fit_band(v, &choice->band, gd_conv_band_channels(v), rows,
                                gd_conv_band_room(v)) < least) {
        choice->why = "a band of padded rows does not fit the cache";
    } else {
        choice->way = GD_CONV_BY_BANDS;
        choice->why = is_forced ? forced : "rows are copied once, and taps are shifts in them";
    }
}

/* ---- images in the lanes ---- */

/* Whether padding need not be multiplied: conv_images.c. */
static bool may_leave_out(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    if (gd_conv_is_asked(args))
        return !args->has_not_finite;
    bool may = args->micro->are_finite(args->b, s->groups * s->o * s->c * s->taps);
    for (int64_t i = 0; args->bias && i < s->groups * s->o; i++)
        may = may && (args->bias[i] != 0 || !signbit(args->bias[i]));
    return may;
}

/* A single tap is a matrix product. Rows of sixteen positions fill vectors as they are, which wins where
 * taps are few or skip positions: the gradient by 8 channels at 16 x 16 of 32 images takes 0.20 ms by bands and
 * 0.24 by images, and from 16 to 32 channels at 32 x 32 with stride 2, 3 x 3 taps of 64 images run at 84 GFLOP/s
 * by bands and at 68 by images, 5 x 5 at 111 and 88. Where taps are few, and the weights and the image of a
 * tile do not fit the first-level cache, a matrix product does no worse: over 128 channels at 8 x 8, 3 x 3
 * taps of 16 images run at 140 GFLOP/s packed and at 138 by images, and by input at 141 and 126; over 64
 * channels at 120 and 134 (Emerald Rapids). */
bool gd_conv_takes_images(const gd_conv_args *args, int64_t m, int64_t numbers, int64_t width)
{
    const gd_conv_micro *micro = args->micro;
    const gd_conv_sizes *s = &args->s;
    const bool is_forced = args->paths->conv == GD_CONV_IMAGES;
    if (!micro->direct || (!is_forced && !gd_conv_may_choose(args->paths)))
        return false;
    const int64_t *stride = args->attr->stride;
    if (!is_forced && width == 16 && (s->taps < 16 || stride[1] * stride[2] > 1))
        return false;
    const bool keeps_size = s->in[1] == s->out[1] && s->in[2] == s->out[2];
    if (!is_forced && width >= MANY_WIDE && m >= MANY_CHANNELS && s->taps < 16 && keeps_size &&
        numbers * s->taps >= MANY_BLOCKS * GD_GEMM_KC * s->in[1] * s->in[2])
        return false;
    const int64_t images = micro->images, lanes = (s->n + images - 1) / images * images;
    return s->in[0] * s->kernel[0] * s->out[0] == 1 && args->attr->before[0] == 0 && s->taps > 1 &&
           m >= 4 && width <= GD_CONV_IMAGES_WIDTH && (is_forced || 5 * s->n >= 4 * lanes) &&
           numbers * images <= (int64_t)(args->paths->block_bytes / sizeof(float)) &&
           may_leave_out(args);
}

/* ---- other numbers ---- */

/* Whether conv_winograd.c can compute it. */
static bool suits_winograd(const gd_conv_args *args, const gd_conv_product *v)
{
    const gd_conv_access *access = &v->access;
    const gd_window *w = &access->window;
    const int64_t gap = w->gap[2];
    return args->fast && v->micro->winograd && w->taps[0] == 1 && w->taps[1] == 3 &&
           w->taps[2] == 3 && access->taps_plain && w->size[0] * w->count[0] == 1 &&
           w->first[0] == 0 && w->step[1] * w->step[2] == 1 && access->place.plain &&
           gap * gap == 1 && w->gap[1] == gap;
}

/* Tiles from which on it wins, for so many pairs of channels: transforming their kernels takes as long as
 * multiplying some tiles. With 128 and 128 channels it wins 20 % of 16 tiles. Where transformed kernels do not
 * fit the second-level cache it wins nothing of 16 tiles: with 256 and 256 channels 17 % of 32, with 512 and
 * 512 nothing of 32 and 13 % of 64. Figures, those below, too, are of one thread of an Emerald Rapids. */
static int64_t least_tiles(int64_t pairs)
{
    return pairs <= 128 * 128 ? 16 : pairs <= 256 * 256 ? 32 : 64;
}

/* By shapes alone: the numbers are others, and those of a shape are always the same. Transforms take time
 * for each channel, products for each pair of them: with 16 and 16 channels it wins 7 %, with 24 and 24 at
 * 16 x 16 of 16 images 24 %, and with 8 and 16 it takes 1.4 times as long. Where more than half of the tiles'
 * results lie beyond the edge it wins 5 % (5 x 5). */
static bool takes_winograd(const gd_conv_args *args, const gd_conv_product *v)
{
    if (!suits_winograd(args, v))
        return false;
    if (v->paths->conv == GD_CONV_WINOGRAD)
        return true;
    if (!gd_conv_may_choose(v->paths))
        return false;
    const gd_window *w = &v->access.window;
    const int64_t m = v->m, channels = v->depth / w->tap_count, tile = GD_WINOGRAD_TILE;
    const int64_t tiles =
        args->s.n * ((w->count[1] + tile - 1) / tile) * ((w->count[2] + tile - 1) / tile);
    return m >= 16 && channels >= 16 && m + channels >= 48 && tiles >= least_tiles(m * channels) &&
           tile * tile * tiles <= 2 * args->s.n * w->plane;
}

/* ---- kernels with half as many lanes ---- */

/* They do the work of few channels with half as many empty lanes: of LeNet's first layer, 1 to 6
 * channels at 28 x 28 x 64 images, in 0.39 ms instead of 0.53, of 3 to 8 at 32 x 32 x 32 in 0.28 instead
 * of 0.35; lines of taps, of which two share a vector then, take 0.28 and 0.22 (Emerald Rapids). */
const gd_conv_micro *gd_conv_choose_weight_lanes(const gd_conv_args *args)
{
    const gd_conv_micro *micro = args->micro;
    if (!micro->narrow)
        return micro;
    const bool pays = args->paths->conv == GD_CONV_BEST && args->s.o <= micro->product->lanes / 2;
    return pays || args->paths->conv == GD_CONV_NARROW ? micro->narrow : micro;
}

/* ---- all of them ---- */

void gd_conv_choose(const gd_conv_args *args, const gd_conv_product *v, bool images,
                    gd_conv_choice *choice)
{
    if (takes_winograd(args, v)) {
        choice->way = GD_CONV_BY_WINOGRAD;
        choice->why =
            v->paths->conv == GD_CONV_WINOGRAD ? forced : "numbers are fast, and channels are many";
        gd_conv_shape_winograd(v, args->s.n, &choice->winograd);
    } else if (images) {
        choice->way = GD_CONV_BY_IMAGES;
        choice->why = "small images fill vectors, and taps in the padding are left out, unless a "
                      "weight is not finite";
    } else if (takes_product(v)) {
        choice->way = GD_CONV_BY_PRODUCT;
        choice->why = "a window being one element";
    } else if (!v->micro->direct) {
        choice->way = GD_CONV_BY_PACKING;
        choice->why = "the only way";
    } else {
        choose_bands(v, choice);
    }
}
