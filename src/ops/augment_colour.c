/* ops/augment_colour.c: changes of colour, and noise, of images [n, c, h, w] with values 0 … 1. Start
 * at gd_augment_colours(). */
#include <math.h>

#include "ops/augment.h"

/* A factor from max(0, 1 - strength) to 1 + strength, [n, 1, 1, 1]. */
static gd_tensor *factor(const gd_augmentation *a, gd_change change, double strength)
{
    return gd_draw_between(gd_draw(a, change, 0), fmax(0, 1 - strength), 1 + strength);
}

static gd_tensor *channel(gd_tensor *x, int64_t i)
{
    return gd_slice(x, 1, i, i + 1, 1);
}

/* [n, c, h, w] -> [n, 1, h, w]: the luma of ITU-R BT.601 of three channels, else their mean. */
static gd_tensor *grey(gd_tensor *x)
{
    if (!x || x->layout.shape[1] != 3)
        return gd_mean(x, GD_AXES(1), true);
    gd_tensor *r = gd_mul_scalar(channel(x, 0), 0.2989), *g = gd_mul_scalar(channel(x, 1), 0.587);
    return gd_add(gd_add(r, g), gd_mul_scalar(channel(x, 2), 0.114));
}

/* base + f * (x - base), cut to 0 … 1 */
static gd_tensor *away_from(gd_tensor *base, gd_tensor *x, gd_tensor *f)
{
    return gd_clip(gd_add(base, gd_mul(f, gd_sub(x, base))), 0, 1);
}

/* ---- hue ---- */

/* Where the colour stands on its circle, 0 … 6 from red over green and blue; grey is red. */
static gd_tensor *circle_of(gd_tensor *x, gd_tensor *value, gd_tensor *chroma)
{
    gd_tensor *r = channel(x, 0), *g = channel(x, 1), *b = channel(x, 2);
    gd_tensor *zero = gd_scalar(x->context, 0, GD_F32), *one = gd_scalar(x->context, 1, GD_F32);
    gd_tensor *divisor = gd_where(gd_gt_scalar(chroma, 0), chroma, one);
    gd_tensor *red = gd_div(gd_sub(g, b), divisor);
    gd_tensor *green = gd_add_scalar(gd_div(gd_sub(b, r), divisor), 2);
    gd_tensor *blue = gd_add_scalar(gd_div(gd_sub(r, g), divisor), 4);
    gd_tensor *at = gd_where(gd_eq(value, r), red, gd_where(gd_eq(value, g), green, blue));
    return gd_where(gd_gt_scalar(chroma, 0), at, zero);
}

/* A channel of the colour that stands at `at`: value less chroma times how far it is from there. */
static gd_tensor *channel_at(gd_tensor *at, double offset, gd_tensor *value, gd_tensor *chroma)
{
    gd_tensor *k = gd_add_scalar(at, offset); /* less 6 times the turns in it */
    k = gd_sub(k, gd_mul_scalar(gd_floor(gd_mul_scalar(k, 1.0 / 6)), 6));
    gd_tensor *part = gd_clip(gd_minimum(k, gd_rsub_scalar(k, 4)), 0, 1);
    return gd_sub(value, gd_mul(chroma, part));
}

/* Through hue, saturation and value (Smith 1978). */
static gd_tensor *turn_hue(gd_tensor *x, gd_tensor *turn)
{
    if (!x)
        return NULL;
    gd_tensor *value = gd_max(x, GD_AXES(1), true);
    gd_tensor *chroma = gd_sub(value, gd_min(x, GD_AXES(1), true));
    if (!chroma)
        return NULL;
    gd_tensor *at = gd_add(circle_of(x, value, chroma), gd_mul_scalar(turn, 6));
    gd_tensor *channels[3] = { channel_at(at, 5, value, chroma), channel_at(at, 3, value, chroma),
                               channel_at(at, 1, value, chroma) };
    return gd_concat(3, channels, 1);
}

gd_tensor *gd_augment_colours(const gd_augmentation *a, gd_tensor *x)
{
    const gd_augment_options *o = a->o;
    bool coloured = x && x->layout.shape[1] == 3;
    if (gd_does(a, GD_CHANGE_BRIGHTNESS))
        x = gd_clip(gd_mul(x, factor(a, GD_CHANGE_BRIGHTNESS, o->brightness)), 0, 1);
    if (gd_does(a, GD_CHANGE_CONTRAST))
        x = away_from(gd_mean(grey(x), GD_AXES(2, 3), true), x,
                      factor(a, GD_CHANGE_CONTRAST, o->contrast));
    if (gd_does(a, GD_CHANGE_SATURATION) && coloured)
        x = away_from(grey(x), x, factor(a, GD_CHANGE_SATURATION, o->saturation));
    if (gd_does(a, GD_CHANGE_HUE) && coloured)
        x = turn_hue(x, gd_draw_between(gd_draw(a, GD_CHANGE_HUE, 0), -o->hue, o->hue));
    return x;
}

/* ---- noise ---- */

/* Hashes are 32 bits as i32, whose products wrap and for which there are kernels. */
static gd_tensor *i32(gd_context *context, uint32_t bits)
{
    return gd_scalar(context, bits > INT32_MAX ? (double)bits - 0x1p32 : (double)bits, GD_I32);
}

static gd_tensor *multiply(gd_tensor *x, uint32_t by)
{
    return x ? gd_mul(x, i32(x->context, by)) : NULL;
}

/* A bit of a product depends on the lower ones alone: two rounds of x + (x^2 | 5) (Klimov, Shamir
 * 2002) and an odd factor carry them up. */
static gd_tensor *carry_up(gd_tensor *x, uint32_t factor)
{
    for (int round = 0; x && round < 2; round++) {
        gd_tensor *square = gd_bitwise_or(gd_square(x), i32(x->context, 5));
        x = multiply(gd_add(x, square), factor);
    }
    return x;
}

/* Bits that look random. Between the rounds the upper half is brought down, by way of f32, since
 * shifts have no kernel. */
static gd_tensor *mix_bits(gd_tensor *x)
{
    x = carry_up(x, 0x85ebca6b);
    gd_tensor *upper = gd_cast(gd_mul_scalar(gd_cast(x, GD_F32), 0x1p-16), GD_I32);
    return carry_up(gd_bitwise_xor(x, upper), 0xc2b2ae35);
}

/* Draw number i as an odd multiple of its 24 bits. */
static gd_tensor *key(const gd_augmentation *a, int i)
{
    gd_tensor *bits = gd_cast(gd_mul_scalar(gd_draw(a, GD_CHANGE_NOISE, i), 0x1p24), GD_I32);
    return multiply(bits, i ? 0x9e3779b1 : 0x85ebca77);
}

/* The upper 24 bits as a number of (0, 1]. */
static gd_tensor *unit(gd_tensor *bits)
{
    if (!bits)
        return NULL;
    gd_tensor *number = gd_cast(gd_bitwise_and(bits, i32(bits->context, 0xffffff00)), GD_F32);
    return gd_add_scalar(gd_mul_scalar(number, 0x1p-32), 0.5 + 0x1p-24);
}

/* Normal noise by Box and Muller (1958) from two numbers for each value, hashed from the sample's
 * draws and the value's place. */
gd_tensor *gd_augment_noise(const gd_augmentation *a, gd_tensor *x)
{
    if (!x || !gd_does(a, GD_CHANGE_NOISE))
        return x;
    gd_shape image = gd_tensor_shape(x);
    image.dim[0] = 1;
    double count = (double)(image.dim[1] * image.dim[2] * image.dim[3]);
    gd_tensor *place = gd_reshape(gd_arange(a->context, 0, count, 1, GD_I32), image);
    gd_tensor *bits = mix_bits(gd_add(multiply(place, 0x9e3779b9), key(a, 0)));
    gd_tensor *more = mix_bits(gd_add(bits, key(a, 1)));
    gd_tensor *radius = gd_sqrt(gd_mul_scalar(gd_log(unit(bits)), -2));
    gd_tensor *normal = gd_mul(radius, gd_cos(gd_mul_scalar(unit(more), 6.283185307179586)));
    return gd_clip(gd_add(x, gd_mul_scalar(normal, a->o->noise)), 0, 1);
}
