/* compile/text_model.h: how likely the next bit of a text is a 1: what packs the text that the
 * library carries for gd_export_c to a fifth (cmake/pack_text.c), and unpacks it
 * (export_text.c).
 *
 * For each of the last 1, 2, 3 and 5 bytes before, a table says how often a 1 came next; the
 * answers are mixed by weights that learn (Mahoney, "Adaptive weighing of context models for
 * lossless data compression", 2005). Whole numbers only, so that both sides agree. */
#ifndef GD_COMPILE_TEXT_MODEL_H
#define GD_COMPILE_TEXT_MODEL_H

#include <stdint.h>

enum { GD_TEXT_ORDERS = 4, GD_TEXT_SLOTS = 1 << 18 };

typedef struct gd_text_model {
    uint16_t chance[GD_TEXT_ORDERS][GD_TEXT_SLOTS]; /* of a 1, of 2^16 */
    uint8_t count[GD_TEXT_ORDERS][GD_TEXT_SLOTS];   /* bits learned from, up to 12 */
    uint32_t hash[GD_TEXT_ORDERS],
        slot[GD_TEXT_ORDERS]; /* of the bytes before; of those and the bits */
    int32_t weight[256][GD_TEXT_ORDERS], input[GD_TEXT_ORDERS]; /* weights by the bits so far */
    int32_t stretched[4096], rate[13];
    uint64_t history; /* the last 8 bytes */
    uint32_t bits;    /* of this byte so far, behind a 1 */
    int32_t mixed;    /* the answer, of 2^12 */
} gd_text_model;

/* 4096 / (1 + e^(-x/256)) */
static inline int32_t gd_text_squash(int32_t x)
{
    static const int16_t at[33] = { 1,    2,    3,    6,    10,   16,   27,   45,   73,
                                    120,  194,  310,  488,  747,  1101, 1546, 2047, 2549,
                                    2994, 3348, 3607, 3785, 3901, 3975, 4024, 4050, 4068,
                                    4079, 4085, 4089, 4092, 4093, 4094 };
    if (x > 2047)
        return 4095;
    if (x < -2047)
        return 1;
    int32_t part = (x + 2048) % 128, i = (x + 2048) / 128;
    return (at[i] * (128 - part) + at[i + 1] * part + 64) / 128;
}

/* The chance that the next bit is a 1, of 2^12, not 0 and not 2^12. */
static inline int32_t gd_text_predict(gd_text_model *m)
{
    int64_t sum = 0;
    for (int o = 0; o < GD_TEXT_ORDERS; o++) {
        m->slot[o] = (m->hash[o] + m->bits * 0x9e3779b1u) >> 14;
        m->input[o] = m->stretched[m->chance[o][m->slot[o]] >> 4];
        sum += (int64_t)m->weight[m->bits][o] * m->input[o];
    }
    sum /= 65536;
    m->mixed = gd_text_squash(sum > 2047 ? 2047 : sum < -2047 ? -2047 : (int32_t)sum);
    return m->mixed;
}

/* Find the tables' places for a new byte. */
static inline void gd_text_look_back(gd_text_model *m)
{
    static const int32_t bytes[GD_TEXT_ORDERS] = { 1, 2, 3, 5 };
    for (int o = 0; o < GD_TEXT_ORDERS; o++) {
        uint64_t seen = m->history & ((UINT64_C(1) << 8 * bytes[o]) - 1);
        m->hash[o] = (uint32_t)((seen * 8 + (uint64_t)o) * UINT64_C(0xd6e8feb86659fd93) >> 32);
    }
    m->bits = 1;
}

/* Learn the bit that came. */
static inline void gd_text_update(gd_text_model *m, uint32_t bit)
{
    int32_t error = (int32_t)bit * 4096 - m->mixed;
    for (int o = 0; o < GD_TEXT_ORDERS; o++) {
        m->weight[m->bits][o] += m->input[o] * error / 2048;
        uint16_t *chance = &m->chance[o][m->slot[o]];
        uint8_t *count = &m->count[o][m->slot[o]];
        int64_t miss = (bit ? 65535 : 0) - *chance;
        *chance = (uint16_t)(*chance + miss * m->rate[*count] / 65536);
        *count = (uint8_t)(*count + (*count < 12));
    }
    m->bits = m->bits * 2 + bit;
    if (m->bits > 255) {
        m->history = m->history << 8 | (m->bits & 255);
        gd_text_look_back(m);
    }
}

static inline void gd_text_begin(gd_text_model *m)
{
    m->history = 0;
    gd_text_look_back(m);
    for (int n = 0; n < 13; n++)
        m->rate[n] = 2 * 65536 / (2 * n + 3);
    for (int o = 0; o < GD_TEXT_ORDERS; o++)
        for (int i = 0; i < GD_TEXT_SLOTS; i++) {
            m->chance[o][i] = 32768;
            m->count[o][i] = 0;
        }
    for (int i = 0; i < 256; i++)
        for (int o = 0; o < GD_TEXT_ORDERS; o++)
            m->weight[i][o] = 20000;
    int32_t next = 0;
    for (int32_t x = -2047; x <= 2047; x++) /* the inverse of gd_text_squash */
        for (; next <= gd_text_squash(x); next++)
            m->stretched[next] = x;
    for (; next < 4096; next++)
        m->stretched[next] = 2047;
}

#endif
