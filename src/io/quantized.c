/* io/quantized.c: numbers in blocks of few bits, as GGUF files have them. One row a type in `formats`; each reads and
 * writes one block. What is read is q * d or q * d + m in f32, q a whole number, d and m f16 in the block: the same
 * operations in the same order as in the Python package gguf (gguf/quants.py), and so the same bits. Products are never
 * contracted with sums (-ffp-contract=off).
 *
 * Bits of a block are told as they lie: "two halves" means that byte i has element i in its low four bits and element
 * i + 16 in its high ones. */
#include "io/quantized.h"

#include "base/half.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static uint16_t bits_at(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static float half_at(const unsigned char *at)
{
    return gd_f16_to_f32(bits_at(at));
}

static void put_bits(unsigned char *at, uint16_t bits)
{
    at[0] = (unsigned char)(bits & 0xff);
    at[1] = (unsigned char)(bits >> 8);
}

/* ---- numbers by themselves ---- */

static void read_f32(const unsigned char *block, float *out)
{
    uint32_t bits = (uint32_t)bits_at(block) | (uint32_t)bits_at(block + 2) << 16;
    memcpy(out, &bits, sizeof bits);
}

static void write_f32(const float *values, unsigned char *block)
{
    uint32_t bits;
    memcpy(&bits, values, sizeof bits);
    put_bits(block, (uint16_t)(bits & 0xffff));
    put_bits(block + 2, (uint16_t)(bits >> 16));
}

static void read_f16(const unsigned char *block, float *out)
{
    *out = half_at(block);
}

static void write_f16(const float *values, unsigned char *block)
{
    put_bits(block, gd_f32_to_f16(*values));
}

static void read_bf16(const unsigned char *block, float *out)
{
    *out = gd_bf16_to_f32(bits_at(block));
}

static void write_bf16(const float *values, unsigned char *block)
{
    put_bits(block, gd_f32_to_bf16(*values));
}

/* ---- 32 numbers: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 ---- */

enum { SMALL = 32, HALF = SMALL / 2 };

/* Q4_*: d (m) and the numbers in two halves. Q5_*: between them 32 bits, the fifth of each number. */
static void read_small(const unsigned char *quants, const unsigned char *fifth, int offset, float d,
                       float *out)
{
    for (int i = 0; i < SMALL; i++) {
        int q = i < HALF ? quants[i] & 15 : quants[i - HALF] >> 4;
        q |= fifth ? (fifth[i / 8] >> (i % 8) & 1) << 4 : 0;
        out[i] = d * (float)(q - offset);
    }
}

static void read_small_from(const unsigned char *block, const unsigned char *fifth,
                            const unsigned char *quants, float *out)
{
    float m = half_at(block + 2);
    read_small(quants, fifth, 0, half_at(block), out);
    for (int i = 0; i < SMALL; i++)
        out[i] += m;
}

static void read_q4_0(const unsigned char *block, float *out)
{
    read_small(block + 2, NULL, 8, half_at(block), out);
}

static void read_q4_1(const unsigned char *block, float *out)
{
    read_small_from(block, NULL, block + 4, out);
}

static void read_q5_0(const unsigned char *block, float *out)
{
    read_small(block + 6, block + 2, 16, half_at(block), out);
}

static void read_q5_1(const unsigned char *block, float *out)
{
    read_small_from(block, block + 4, block + 8, out);
}

static void read_q8_0(const unsigned char *block, float *out)
{
    float d = half_at(block);
    for (int i = 0; i < SMALL; i++)
        out[i] = (float)(signed char)block[2 + i] * d;
}

/* 1 / d; 0 where there is nothing to divide by, or the quotient is beyond f32. */
static float inverse(float d)
{
    float id = d == 0.0f ? 0.0f : 1.0f / d;
    return isfinite(id) ? id : 0.0f;
}

/* The numbers x * id + shift, cut, from 0 to most, in two halves, and their fifth bits. */
static void write_small(const float *values, float from, float id, float shift, int most,
                        unsigned char *quants, unsigned char *fifth)
{
    memset(quants, 0, HALF);
    if (fifth)
        memset(fifth, 0, SMALL / 8);
    for (int i = 0; i < SMALL; i++) {
        int q = (int)((values[i] - from) * id + shift);
        q = q > most ? most : q < 0 ? 0 : q;
        quants[i % HALF] |= (unsigned char)(i < HALF ? q & 15 : (q & 15) << 4);
        if (fifth)
            fifth[i / 8] |= (unsigned char)((q >> 4) << (i % 8));
    }
}

/* The scale with which the value of the largest magnitude, the first of several, becomes -steps. */
static float signed_scale(const float *values, int steps)
{
    float most = values[0];
    for (int i = 1; i < SMALL; i++)
        most = fabsf(values[i]) > fabsf(most) ? values[i] : most;
    return most / (float)-steps;
}

static void write_q4_0(const float *values, unsigned char *block)
{
    float d = signed_scale(values, 8);
    put_bits(block, gd_f32_to_f16(d));
    write_small(values, 0.0f, inverse(d), 8.5f, 15, block + 2, NULL);
}

static void write_q5_0(const float *values, unsigned char *block)
{
    float d = signed_scale(values, 16);
    put_bits(block, gd_f32_to_f16(d));
    write_small(values, 0.0f, inverse(d), 16.5f, 31, block + 6, block + 2);
}

static float write_range(const float *values, int steps, unsigned char *block, float *least)
{
    float most = values[0];
    *least = values[0];
    for (int i = 1; i < SMALL; i++) {
        most = values[i] > most ? values[i] : most;
        *least = values[i] < *least ? values[i] : *least;
    }
    float d = (most - *least) / (float)steps;
    put_bits(block, gd_f32_to_f16(d));
    put_bits(block + 2, gd_f32_to_f16(*least));
    return inverse(d);
}

static void write_q4_1(const float *values, unsigned char *block)
{
    float least, id = write_range(values, 15, block, &least);
    write_small(values, least, id, 0.5f, 15, block + 4, NULL);
}

static void write_q5_1(const float *values, unsigned char *block)
{
    float least, id = write_range(values, 31, block, &least);
    write_small(values, least, id, 0.5f, 31, block + 8, block + 4);
}

static void write_q8_0(const float *values, unsigned char *block)
{
    float most = 0.0f;
    for (int i = 0; i < SMALL; i++)
        most = fabsf(values[i]) > most ? fabsf(values[i]) : most;
    float d = most / 127.0f, id = inverse(d);
    put_bits(block, gd_f32_to_f16(d));
    for (int i = 0; i < SMALL; i++)
        block[2 + i] = (unsigned char)(signed char)roundf(values[i] * id);
}

/* ---- 256 numbers: Q2_K … Q6_K ---- */

enum { LARGE = 256 };

/* 16 scales, 4 bits each beside a smallest value; 256 numbers of 2 bits, a quarter of 128 numbers in each pair of bits
 * of 32 bytes; d, dmin. */
static void read_q2_k(const unsigned char *block, float *out)
{
    const unsigned char *scales = block, *quants = block + 16;
    float d = half_at(block + 80), least = half_at(block + 82);
    for (int i = 0; i < LARGE; i++) {
        int q = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3, scale = scales[i / 16];
        out[i] = d * (float)(scale & 15) * (float)q - least * (float)(scale >> 4);
    }
}

/* The third bit of each number, of byte i % 32 the bit i / 32, is 0 where 4 is taken away; numbers as of Q2_K; 16 scales
 * of 6 bits less 32: their low four in two halves of 8 bytes, their high two in quarters of 4; d. */
static void read_q3_k(const unsigned char *block, float *out)
{
    const unsigned char *third = block, *quants = block + 32, *scales = block + 96;
    float d = half_at(block + 108);
    for (int i = 0; i < LARGE; i++) {
        int s = i / 16, low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
        int scale = (low | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4) - 32;
        int q = quants[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        q -= third[i % 32] >> (i / 32) & 1 ? 0 : 4;
        out[i] = d * (float)scale * (float)q;
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
static void read_k_with_least(const unsigned char *block, const unsigned char *fifth,
                              const unsigned char *quants, float *out)
{
    float d = half_at(block), dmin = half_at(block + 2);
    for (int i = 0; i < LARGE; i++) {
        int scale, least;
        six_bits(block + 4, i / 32, &scale, &least);
        int q = quants[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
        q |= fifth ? (fifth[i % 32] >> (i / 32) & 1) << 4 : 0;
        out[i] = d * (float)scale * (float)q - dmin * (float)least;
    }
}

static void read_q4_k(const unsigned char *block, float *out)
{
    read_k_with_least(block, NULL, block + 16, out);
}

static void read_q5_k(const unsigned char *block, float *out)
{
    read_k_with_least(block, block + 16, block + 48, out);
}

/* Low four bits: 128 numbers in 64 bytes, the first half in the low bits; high two: as Q2_K's; 16 scales i8; d. */
static void read_q6_k(const unsigned char *block, float *out)
{
    const unsigned char *low = block, *high = block + 128, *scales = block + 192;
    float d = half_at(block + 208);
    for (int i = 0; i < LARGE; i++) {
        int q = low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        q |= (high[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) << 4;
        out[i] = d * (float)(signed char)scales[i / 16] * (float)(q - 32);
    }
}

/* ---- the table ---- */

static const gd_block_format formats[] = {
    { GD_GGUF_F32, "F32", 1, 4, read_f32, write_f32 },
    { GD_GGUF_F16, "F16", 1, 2, read_f16, write_f16 },
    { GD_GGUF_BF16, "BF16", 1, 2, read_bf16, write_bf16 },
    { GD_GGUF_Q4_0, "Q4_0", SMALL, 18, read_q4_0, write_q4_0 },
    { GD_GGUF_Q4_1, "Q4_1", SMALL, 20, read_q4_1, write_q4_1 },
    { GD_GGUF_Q5_0, "Q5_0", SMALL, 22, read_q5_0, write_q5_0 },
    { GD_GGUF_Q5_1, "Q5_1", SMALL, 24, read_q5_1, write_q5_1 },
    { GD_GGUF_Q8_0, "Q8_0", SMALL, 34, read_q8_0, write_q8_0 },
    { GD_GGUF_Q2_K, "Q2_K", LARGE, 84, read_q2_k, NULL },
    { GD_GGUF_Q3_K, "Q3_K", LARGE, 110, read_q3_k, NULL },
    { GD_GGUF_Q4_K, "Q4_K", LARGE, 144, read_q4_k, NULL },
    { GD_GGUF_Q5_K, "Q5_K", LARGE, 176, read_q5_k, NULL },
    { GD_GGUF_Q6_K, "Q6_K", LARGE, 210, read_q6_k, NULL },
};
enum { FORMATS = sizeof formats / sizeof *formats };

const gd_block_format *gd_block_format_of(uint32_t type)
{
    for (int i = 0; i < FORMATS; i++)
        if ((uint32_t)formats[i].type == type)
            return &formats[i];
    return NULL;
}

const char *gd_gguf_type_name(gd_gguf_type type)
{
    const gd_block_format *format = gd_block_format_of((uint32_t)type);
    return format ? format->name : NULL;
}

bool gd_gguf_type_find(const char *name, gd_gguf_type *out)
{
    for (int i = 0; name && out && i < FORMATS; i++)
        if (strcasecmp(formats[i].name, name) == 0) {
            *out = formats[i].type;
            return true;
        }
    return false;
}

void gd_blocks_read(const gd_block_format *f, const unsigned char *blocks, size_t count, float *out)
{
    for (size_t i = 0; i < count; i += (size_t)f->count, blocks += f->size)
        f->read(blocks, out + i);
}

/* A block's numbers are finite, and so is what would be read of it. */
static bool fits(const gd_block_format *f, const float *values, const unsigned char *block)
{
    float back[GD_BLOCK_MOST];
    bool finite = true;
    f->read(block, back);
    for (int i = 0; i < f->count; i++)
        finite = finite && isfinite(values[i]) && isfinite(back[i]);
    return finite;
}

bool gd_blocks_write(const gd_block_format *f, const float *values, size_t count,
                     unsigned char *blocks, size_t *at)
{
    for (*at = 0; *at < count; *at += (size_t)f->count, blocks += f->size) {
        bool finite = true;
        for (int i = 0; i < f->count; i++)
            finite = finite && isfinite(values[*at + (size_t)i]);
        if (!finite)
            return false;
        f->write(values + *at, blocks);
        if (!fits(f, values + *at, blocks))
            return false;
    }
    return true;
}
