/* io/quantized.c: numbers in blocks of few bits, as GGUF files have them. One row a type in `formats`; each reads and
 * writes one block. What is read is q * d or q * d + m in f32, q a whole number, d and m f16 in the block: the same
 * operations in the same order as in the Python package gguf (gguf/quants.py), and so the same bits. Products are never
 * contracted with sums (-ffp-contract=off).
 *
 * Bits of a block are told as they lie: "two halves" means that byte i has element i in its low four bits and element
 * i + 16 in its high ones. */
#include "io/quantized.h"

#include "io/quantized_k.h"

#include <string.h>
#include <strings.h>

/* ---- numbers by themselves ---- */

static void read_f32(const unsigned char *block, float *out)
{
    uint32_t bits = (uint32_t)gd_block_bits(block) | (uint32_t)gd_block_bits(block + 2) << 16;
    memcpy(out, &bits, sizeof bits);
}

static void write_f32(const float *values, unsigned char *block)
{
    uint32_t bits;
    memcpy(&bits, values, sizeof bits);
    gd_block_put_bits(block, (uint16_t)(bits & 0xffff));
    gd_block_put_bits(block + 2, (uint16_t)(bits >> 16));
}

static void read_f16(const unsigned char *block, float *out)
{
    *out = gd_block_half(block);
}

static void write_f16(const float *values, unsigned char *block)
{
    gd_block_put_bits(block, gd_f32_to_f16(*values));
}

static void read_bf16(const unsigned char *block, float *out)
{
    *out = gd_bf16_to_f32(gd_block_bits(block));
}

static void write_bf16(const float *values, unsigned char *block)
{
    gd_block_put_bits(block, gd_f32_to_bf16(*values));
}

/* ---- 32 numbers: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 ---- */

enum { SMALL = 32, HALF = SMALL / 2 };

/* Q4_*: d (m) and the numbers in two halves. Q5_*: between them 32 bits, the fifth of each number. */
static void take_small(const unsigned char *block, const unsigned char *fifth,
                       const unsigned char *quants, int offset, gd_k_block *to)
{
    to->d = gd_block_bits(block);
    to->dmin = 0;
    for (int i = 0; i < SMALL; i++) {
        int q = i < HALF ? quants[i] & 15 : quants[i - HALF] >> 4;
        q |= fifth ? (fifth[i / 8] >> (i % 8) & 1) << 4 : 0;
        to->q[i] = q - offset;
    }
}

/* The f16 m is added: its sign is turned. */
static void take_small_from(const unsigned char *block, const unsigned char *fifth,
                            const unsigned char *quants, gd_k_block *to)
{
    take_small(block, fifth, quants, 0, to);
    to->dmin = (uint16_t)(gd_block_bits(block + 2) ^ 0x8000);
}

void gd_q4_0_take(const unsigned char *block, gd_k_block *to)
{
    take_small(block, NULL, block + 2, 8, to);
}

void gd_q4_1_take(const unsigned char *block, gd_k_block *to)
{
    take_small_from(block, NULL, block + 4, to);
}

void gd_q5_0_take(const unsigned char *block, gd_k_block *to)
{
    take_small(block, block + 2, block + 6, 16, to);
}

void gd_q5_1_take(const unsigned char *block, gd_k_block *to)
{
    take_small_from(block, block + 4, block + 8, to);
}

void gd_q8_0_take(const unsigned char *block, gd_k_block *to)
{
    to->d = gd_block_bits(block);
    to->dmin = 0;
    for (int i = 0; i < SMALL; i++)
        to->q[i] = block[2 + i] < 128 ? block[2 + i] : block[2 + i] - 256;
}

static void read_small(const gd_k_block *b, float *out)
{
    const float d = gd_f16_to_f32(b->d);
    for (int i = 0; i < SMALL; i++)
        out[i] = d * (float)b->q[i];
}

static void read_small_from(const gd_k_block *b, float *out)
{
    const float least = gd_f16_to_f32(b->dmin);
    read_small(b, out);
    for (int i = 0; i < SMALL; i++)
        out[i] -= least;
}

static void read_q4_0(const unsigned char *block, float *out)
{
    gd_k_block b;
    gd_q4_0_take(block, &b);
    read_small(&b, out);
}

static void read_q4_1(const unsigned char *block, float *out)
{
    gd_k_block b;
    gd_q4_1_take(block, &b);
    read_small_from(&b, out);
}

static void read_q5_0(const unsigned char *block, float *out)
{
    gd_k_block b;
    gd_q5_0_take(block, &b);
    read_small(&b, out);
}

static void read_q5_1(const unsigned char *block, float *out)
{
    gd_k_block b;
    gd_q5_1_take(block, &b);
    read_small_from(&b, out);
}

static void read_q8_0(const unsigned char *block, float *out)
{
    gd_k_block b;
    gd_q8_0_take(block, &b);
    read_small(&b, out);
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
    gd_block_put_bits(block, gd_f32_to_f16(d));
    write_small(values, 0.0f, gd_block_inverse(d), 8.5f, 15, block + 2, NULL);
}

static void write_q5_0(const float *values, unsigned char *block)
{
    float d = signed_scale(values, 16);
    gd_block_put_bits(block, gd_f32_to_f16(d));
    write_small(values, 0.0f, gd_block_inverse(d), 16.5f, 31, block + 6, block + 2);
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
    gd_block_put_bits(block, gd_f32_to_f16(d));
    gd_block_put_bits(block + 2, gd_f32_to_f16(*least));
    return gd_block_inverse(d);
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
    float d = most / 127.0f, id = gd_block_inverse(d);
    gd_block_put_bits(block, gd_f32_to_f16(d));
    for (int i = 0; i < SMALL; i++)
        block[2 + i] = (unsigned char)(signed char)roundf(values[i] * id);
}

/* ---- the table ---- */

static const gd_block_format formats[] = {
    { GD_GGUF_F32, "F32", 1, 4, read_f32, write_f32, NULL },
    { GD_GGUF_F16, "F16", 1, 2, read_f16, write_f16, NULL },
    { GD_GGUF_BF16, "BF16", 1, 2, read_bf16, write_bf16, NULL },
    { GD_GGUF_Q4_0, "Q4_0", SMALL, 18, read_q4_0, write_q4_0, NULL },
    { GD_GGUF_Q4_1, "Q4_1", SMALL, 20, read_q4_1, write_q4_1, NULL },
    { GD_GGUF_Q5_0, "Q5_0", SMALL, 22, read_q5_0, write_q5_0, NULL },
    { GD_GGUF_Q5_1, "Q5_1", SMALL, 24, read_q5_1, write_q5_1, NULL },
    { GD_GGUF_Q8_0, "Q8_0", SMALL, 34, read_q8_0, write_q8_0, NULL },
    { GD_GGUF_Q2_K, "Q2_K", GD_BLOCK_MOST, 84, gd_q2_k_read, NULL, gd_q2_k_write },
    { GD_GGUF_Q3_K, "Q3_K", GD_BLOCK_MOST, 110, gd_q3_k_read, NULL, gd_q3_k_write },
    { GD_GGUF_Q4_K, "Q4_K", GD_BLOCK_MOST, 144, gd_q4_k_read, NULL, gd_q4_k_write },
    { GD_GGUF_Q5_K, "Q5_K", GD_BLOCK_MOST, 176, gd_q5_k_read, NULL, gd_q5_k_write },
    { GD_GGUF_Q6_K, "Q6_K", GD_BLOCK_MOST, 210, gd_q6_k_read, NULL, gd_q6_k_write },
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

bool gd_blocks_write(const gd_block_format *f, const float *values, const float *importance,
                     size_t count, unsigned char *blocks, size_t *at)
{
    for (*at = 0; *at < count; *at += (size_t)f->count, blocks += f->size) {
        bool finite = true;
        for (int i = 0; i < f->count; i++)
            finite = finite && isfinite(values[*at + (size_t)i]);
        if (!finite)
            return false;
        if (f->search)
            f->search(values + *at, importance ? importance + *at : NULL, blocks);
        else
            f->write(values + *at, blocks);
        if (!fits(f, values + *at, blocks))
            return false;
    }
    return true;
}
