/* io/quantized_k.c: k-quants, numbers in blocks of 256 (ggml's ggml-common.h says where their bits lie). A block is groups of 16 or
 * 32 numbers, each with a scale, and with types Q2_K, Q4_K and Q5_K a least value, that are small whole numbers
 * themselves:
 *
 *     x ~ d * scale * q - dmin * least        d, dmin: f16 of the block
 *
 * What is read is told bit for bit by the Python package gguf. How a block is best written is nowhere defined; here is
 * searched, for each group and then for the block, what makes the sum of importance * error^2 small. It is done in f32 without
 * fused multiply-add, in an order that no instruction set changes, so a file has the same bits everywhere. Start at
 * gd_q4_k_write(). */
#include "io/quantized_k.h"

#include <string.h>

enum { LARGE = 256, GROUPS = 16 /* at most */, LANES = 8 };

/* ---- reading ---- */

/* 16 scales, 4 bits each beside a smallest value; 256 numbers of 2 bits, a quarter of 128 numbers in each pair of bits
 * of 32 bytes; d, dmin. */
void gd_q2_k_take(const unsigned char *block, gd_k_block *to)
{
    const unsigned char *scales = block, *quants = block + 16;
    to->d = gd_block_bits(block + 80);
    to->dmin = gd_block_bits(block + 82);
    for (int g = 0; g < GROUPS; g++) {
        to->scale[g] = scales[g] & 15;
        to->least[g] = scales[g] >> 4;
    }
    for (int i = 0; i < LARGE; i++)
        to->q[i] = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/* The third bit of each number, of byte i % 32 the bit i / 32, is 0 where 4 is taken away; numbers as of Q2_K; 16 scales
 * of 6 bits less 32: their low four in two halves of 8 bytes, their high two in quarters of 4; d. */
void gd_q3_k_take(const unsigned char *block, gd_k_block *to)
{
    const unsigned char *third = block, *quants = block + 32, *scales = block + 96;
    to->d = gd_block_bits(block + 108);
    to->dmin = 0;
    for (int g = 0; g < GROUPS; g++) {
        const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
        to->scale[g] = (low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
        to->least[g] = 0;
    }
    for (int i = 0; i < LARGE; i++) {
        const int q = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        to->q[i] = q - (third[i % 32] >> (i / 32) & 1 ? 0 : 4);
    }
}

/* Eight scales and eight smallest values of 6 bits in 12 bytes. */
static void six_bits(const unsigned char packed[12], int index, int *scale, int *least)
{
    int i = index % 4;
    if (index < 4) {
        *scale = packed[i] & 63;
        *least = packed[4 + i] & 63;
    } else {
        *scale = (packed[8 + i] & 15) | (packed[i] >> 2 & 0x30);
        *least = packed[8 + i] >> 4 | (packed[4 + i] >> 2 & 0x30);
    }
}

/* Groups of 64 numbers in 32 bytes, the first half in the low bits. `fifth`: as `third` above. */
static void take_k_with_least(const unsigned char *block, const unsigned char *fifth,
                              const unsigned char *quants, gd_k_block *to)
{
    to->d = gd_block_bits(block);
    to->dmin = gd_block_bits(block + 2);
    for (int g = 0; g < 8; g++)
        six_bits(block + 4, g, &to->scale[g], &to->least[g]);
    for (int i = 0; i < LARGE; i++) {
        const int q = quants[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
        to->q[i] = q | (fifth ? (fifth[i % 32] >> (i / 32) & 1) << 4 : 0);
    }
}

void gd_q4_k_take(const unsigned char *block, gd_k_block *to)
{
    take_k_with_least(block, NULL, block + 16, to);
}

void gd_q5_k_take(const unsigned char *block, gd_k_block *to)
{
    take_k_with_least(block, block + 16, block + 48, to);
}

/* Low four bits: 128 numbers in 64 bytes, the first half in the low bits; high two: as Q2_K's; 16 scales i8; d. */
void gd_q6_k_take(const unsigned char *block, gd_k_block *to)
{
    const unsigned char *low = block, *high = block + 128, *scales = block + 192;
    to->d = gd_block_bits(block + 208);
    to->dmin = 0;
    for (int g = 0; g < GROUPS; g++) {
        to->scale[g] = scales[g] < 128 ? scales[g] : scales[g] - 256;
        to->least[g] = 0;
    }
    for (int i = 0; i < LARGE; i++) {
        const int q = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        to->q[i] = (q | (high[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) << 4) - 32;
    }
}

/* A block's numbers, of so many groups. */
static void read_block(void (*take)(const unsigned char *block, gd_k_block *to), int groups,
                       bool has_least, const unsigned char *block, float *out)
{
    gd_k_block b;
    take(block, &b);
    const float d = gd_f16_to_f32(b.d), dmin = gd_f16_to_f32(b.dmin);
    for (int i = 0; i < LARGE; i++) {
        const int g = i * groups / LARGE;
        out[i] = d * (float)b.scale[g] * (float)b.q[i];
        if (has_least)
            out[i] -= dmin * (float)b.least[g];
    }
}

void gd_q2_k_read(const unsigned char *block, float *out)
{
    read_block(gd_q2_k_take, 16, true, block, out);
}

void gd_q3_k_read(const unsigned char *block, float *out)
{
    read_block(gd_q3_k_take, 16, false, block, out);
}

void gd_q4_k_read(const unsigned char *block, float *out)
{
    read_block(gd_q4_k_take, 8, true, block, out);
}

void gd_q5_k_read(const unsigned char *block, float *out)
{
    read_block(gd_q5_k_take, 8, true, block, out);
}

void gd_q6_k_read(const unsigned char *block, float *out)
{
    read_block(gd_q6_k_take, 16, false, block, out);
}

/* ---- writing: the search ---- */

/* The whole numbers that a type has. */
typedef struct k_type {
    int group;                 /* numbers that share a scale */
    int low, high;             /* of q */
    int scale_low, scale_high; /* of scales; of least values 0 … scale_high */
    bool has_least;
} k_type;

/* x ~ scale * q - least */
typedef struct k_fit {
    float scale, least;
} k_fit;

static inline float level_of(const k_type *k, float v)
{
    const float low = (float)k->low, high = (float)k->high;
    v = v < low ? low : v > high ? high : v;
    return (float)(int)(v - low + 0.5f) + low;
}

/* The sum of importance * error^2 of a group, each number at its nearest level. */
static float error_of(const k_type *k, const float *x, const float *w, k_fit f)
{
    float by = gd_block_inverse(f.scale), lanes[LANES] = { 0 }, sum = 0.0f;
    for (int i = 0; i < k->group; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float e = f.scale * level_of(k, (x[i + l] + f.least) * by) - f.least - x[i + l];
            lanes[l] += w[i + l] * (e * e);
        }
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

/* The least squares' scale, and least value, for the levels that numbers have with f. */
static k_fit refit(const k_type *k, const float *x, const float *w, k_fit f)
{
    double ones = 0, q1 = 0, q2 = 0, x1 = 0, qx = 0;
    const float by = gd_block_inverse(f.scale);
    for (int i = 0; i < k->group; i++) {
        double q = (double)level_of(k, (x[i] + f.least) * by), wi = (double)w[i];
        ones += wi;
        q1 += wi * q;
        q2 += wi * q * q;
        x1 += wi * (double)x[i];
        qx += wi * q * (double)x[i];
    }
    const double det = ones * q2 - q1 * q1;
    double least = 0.0, scale = q2 > 0.0 ? qx / q2 : 0.0;
    if (k->has_least && det > 0.0) {
        least = (q1 * qx - q2 * x1) / det;
        if (least > 0.0)
            scale = (ones * qx - q1 * x1) / det;
        least = least > 0.0 ? least : 0.0;
    }
    return (k_fit){ (float)scale, (float)least };
}

/* The smallest and the largest of a group and 0, and that of the two with the larger magnitude. */
static void extent(const float *x, int count, float *low, float *high, float *farther)
{
    *low = *high = 0.0f;
    for (int i = 0; i < count; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
    *farther = *high > -*low ? *high : *low;
}

/* A group by itself: ranges a little narrower and wider than the numbers', each fitted twice; the best of all. */
static k_fit fit_group(const k_type *k, const float *x, const float *w)
{
    enum { NARROWER = -8, WIDER = 6 };
    float low, high, farther, least_error = INFINITY;
    extent(x, k->group, &low, &high, &farther);
    k_fit best = { 0.0f, k->has_least ? -low : 0.0f };
    if (high == low)
        return best;
    for (int step = NARROWER; step <= WIDER; step++) {
        const float more = (float)step * (k->high - k->low > 8 ? 0.25f : 0.1f);
        k_fit f = k->has_least ? (k_fit){ (high - low) / ((float)k->high - more), -low }
                               : (k_fit){ farther / ((float)k->low + more), 0.0f };
        for (int round = 0; round < 2; round++) {
            f = refit(k, x, w, f);
            if (k->has_least && !(f.scale > 0.0f))
                break;
            const float error = error_of(k, x, w, f);
            best = error < least_error ? f : best;
            least_error = error < least_error ? error : least_error;
        }
    }
    return best;
}

/* A f16 that is not 0 where the value is not. */
static uint16_t half_of(float value)
{
    uint16_t bits = gd_f32_to_f16(value);
    return value != 0.0f && (bits & 0x7fff) == 0 ? bits | 1 : bits;
}

static int whole(float value, int low, int high)
{
    value = value < (float)low ? (float)low : value > (float)high ? (float)high : value;
    return (int)floorf(value + 0.5f);
}

/* The best scale and least value of a group with the block's d and dmin, near those given. Its error. */
static float choose_near(const k_type *k, const float *x, const float *w, int scale, int least,
                         gd_k_block *b, int g)
{
    float best = INFINITY;
    const float d = gd_f16_to_f32(b->d), dmin = gd_f16_to_f32(b->dmin);
    const int beside = k->has_least ? 1 : 3, least_beside = k->has_least && dmin > 0.0f ? 1 : 0;
    for (int s = scale - beside; s <= scale + beside; s++)
        for (int m = least - least_beside; m <= least + least_beside; m++) {
            if (s < k->scale_low || s > k->scale_high || m < 0 || m > k->scale_high)
                continue;
            const float error = error_of(k, x, w, (k_fit){ d * (float)s, dmin * (float)m });
            if (error < best) {
                best = error;
                b->scale[g] = s;
                b->least[g] = m;
            }
        }
    return best;
}

/* Scales and least values of all groups, where d and dmin are chosen. The block's error. */
static float choose_scales(const k_type *k, const float *x, const float *w, const k_fit *fits,
                           gd_k_block *b)
{
    const float by = gd_block_inverse(gd_f16_to_f32(b->d));
    const float least_by = gd_block_inverse(gd_f16_to_f32(b->dmin));
    float sum = 0.0f;
    for (int g = 0; g < LARGE / k->group; g++) {
        const float *group = x + g * k->group, *weights = w + g * k->group;
        const int scale = whole(fits[g].scale * by, k->scale_low, k->scale_high);
        const int least = whole(fits[g].least * least_by, 0, k->scale_high);
        b->scale[g] = b->least[g] = 0;
        sum += choose_near(k, group, weights, scale, least, b, g);
    }
    return sum;
}

/* d with which the groups' scales meet theirs, the farthest of all a little inside or outside; dmin likewise. */
static void choose_block(const k_type *k, const float *x, const float *w, const k_fit *fits,
                         gd_k_block *best)
{
    enum { TRIES = 4 };
    float scales[GROUPS], low, high, farther, most_least = 0.0f, least_error = INFINITY;
    const int groups = LARGE / k->group;
    for (int g = 0; g < groups; g++) {
        scales[g] = fits[g].scale;
        most_least = fits[g].least > most_least ? fits[g].least : most_least;
    }
    extent(scales, groups, &low, &high, &farther);
    for (int try = 0; try < TRIES; try++) {
        const float range = (float)(k->has_least ? k->scale_high : k->scale_low);
        const float more = range * (float)try * 0.04f;
        gd_k_block b = { .d = half_of(farther / (range - more)),
                         .dmin = half_of(most_least / (float)k->scale_high) };
        const float error = choose_scales(k, x, w, fits, &b);
        if (try == 0 || error < least_error) {
            *best = b;
            least_error = error;
        }
    }
}

/* What a block is to be. Numbers that no f16 reaches get a d of infinity, which gd_blocks_write refuses. */
static gd_k_block search(const k_type *k, const float *x, const float *importance)
{
    static const float farthest = 1e12f;
    float ones[LARGE], low, high, farther;
    const float *w = importance ? importance : ones;
    k_fit fits[GROUPS];
    gd_k_block b = { .d = 0x7c00 };
    extent(x, LARGE, &low, &high, &farther);
    if (!(fabsf(farther) < farthest))
        return b;
    for (int i = 0; i < LARGE; i++)
        ones[i] = 1.0f;
    for (int g = 0; g < LARGE / k->group; g++)
        fits[g] = fit_group(k, x + g * k->group, w + g * k->group);
    choose_block(k, x, w, fits, &b);
    for (int i = 0; i < LARGE; i++) {
        const int g = i / k->group;
        const float least = gd_f16_to_f32(b.dmin) * (float)b.least[g];
        const float by = gd_block_inverse(gd_f16_to_f32(b.d) * (float)b.scale[g]);
        b.q[i] = (int)level_of(k, (x[i] + least) * by);
    }
    return b;
}

/* ---- writing: the bits, where the functions above read them ---- */

/* Two bits of each number. */
static void put_pairs(const int *q, int shift, unsigned char *quants)
{
    for (int i = 0; i < LARGE; i++)
        quants[i / 128 * 32 + i % 32] |= (unsigned char)((q[i] >> shift & 3) << (i % 128 / 32 * 2));
}

void gd_q2_k_write(const float *values, const float *importance, unsigned char *block)
{
    static const k_type k = { 16, 0, 3, 0, 15, true };
    const gd_k_block b = search(&k, values, importance);
    memset(block, 0, 84);
    for (int g = 0; g < 16; g++)
        block[g] = (unsigned char)(b.scale[g] | b.least[g] << 4);
    put_pairs(b.q, 0, block + 16);
    gd_block_put_bits(block + 80, b.d);
    gd_block_put_bits(block + 82, b.dmin);
}

void gd_q3_k_write(const float *values, const float *importance, unsigned char *block)
{
    static const k_type k = { 16, -4, 3, -32, 31, false };
    gd_k_block b = search(&k, values, importance);
    unsigned char *third = block, *scales = block + 96;
    memset(block, 0, 110);
    for (int g = 0; g < 16; g++) {
        const int scale = b.scale[g] + 32;
        scales[g % 8] |= (unsigned char)((scale & 15) << (g / 8 * 4));
        scales[8 + g % 4] |= (unsigned char)((scale >> 4) << (g / 4 * 2));
    }
    for (int i = 0; i < LARGE; i++) {
        b.q[i] += 4;
        third[i % 32] |= (unsigned char)((b.q[i] >> 2) << (i / 32));
    }
    put_pairs(b.q, 0, block + 32);
    gd_block_put_bits(block + 108, b.d);
}

static void put_six_bits(const gd_k_block *b, unsigned char packed[12])
{
    for (int i = 0; i < 4; i++) {
        const int scale = b->scale[4 + i], least = b->least[4 + i];
        packed[i] = (unsigned char)(b->scale[i] | (scale >> 4) << 6);
        packed[4 + i] = (unsigned char)(b->least[i] | (least >> 4) << 6);
        packed[8 + i] = (unsigned char)((scale & 15) | (least & 15) << 4);
    }
}

static void put_k_with_least(const gd_k_block *b, unsigned char *block, unsigned char *fifth,
                             unsigned char *quants)
{
    gd_block_put_bits(block, b->d);
    gd_block_put_bits(block + 2, b->dmin);
    put_six_bits(b, block + 4);
    for (int i = 0; i < LARGE; i++) {
        quants[i / 64 * 32 + i % 32] |= (unsigned char)((b->q[i] & 15) << (i % 64 / 32 * 4));
        if (fifth)
            fifth[i % 32] |= (unsigned char)((b->q[i] >> 4) << (i / 32));
    }
}

void gd_q4_k_write(const float *values, const float *importance, unsigned char *block)
{
    static const k_type k = { 32, 0, 15, 0, 63, true };
    const gd_k_block b = search(&k, values, importance);
    memset(block, 0, 144);
    put_k_with_least(&b, block, NULL, block + 16);
}

void gd_q5_k_write(const float *values, const float *importance, unsigned char *block)
{
    static const k_type k = { 32, 0, 31, 0, 63, true };
    const gd_k_block b = search(&k, values, importance);
    memset(block, 0, 176);
    put_k_with_least(&b, block, block + 16, block + 48);
}

void gd_q6_k_write(const float *values, const float *importance, unsigned char *block)
{
    static const k_type k = { 16, -32, 31, -128, 127, false };
    gd_k_block b = search(&k, values, importance);
    unsigned char *low = block;
    memset(block, 0, 210);
    for (int i = 0; i < LARGE; i++) {
        b.q[i] += 32;
        low[i / 128 * 64 + i % 64] |= (unsigned char)((b.q[i] & 15) << (i % 128 / 64 * 4));
    }
    put_pairs(b.q, 4, block + 128);
    for (int g = 0; g < 16; g++)
        block[192 + g] = (unsigned char)(signed char)b.scale[g];
    gd_block_put_bits(block + 208, b.d);
}
