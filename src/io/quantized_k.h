/* io/quantized_k.h: the rows of the k-quants in the table of io/quantized.c, what all formats share, and blocks taken
 * apart. */
#ifndef GD_IO_QUANTIZED_K_H
#define GD_IO_QUANTIZED_K_H

#include "base/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline uint16_t gd_block_bits(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline float gd_block_half(const unsigned char *at)
{
    return gd_f16_to_f32(gd_block_bits(at));
}

static inline void gd_block_put_bits(unsigned char *at, uint16_t bits)
{
    at[0] = (unsigned char)(bits & 0xff);
    at[1] = (unsigned char)(bits >> 8);
}

/* 1 / d; 0 where there is nothing to divide by, or the quotient is beyond f32. */
static inline float gd_block_inverse(float d)
{
    float id = d == 0.0f ? 0.0f : 1.0f / d;
    return isfinite(id) ? id : 0.0f;
}

/* 256 numbers. Of what is written the sum of importance * error^2 is small; `importance` is that of each number, or NULL. */
void gd_q2_k_read(const unsigned char *block, float *out);
void gd_q3_k_read(const unsigned char *block, float *out);
void gd_q4_k_read(const unsigned char *block, float *out);
void gd_q5_k_read(const unsigned char *block, float *out);
void gd_q6_k_read(const unsigned char *block, float *out);
void gd_q2_k_write(const float *values, const float *importance, unsigned char *block);
void gd_q3_k_write(const float *values, const float *importance, unsigned char *block);
void gd_q4_k_write(const float *values, const float *importance, unsigned char *block);
void gd_q5_k_write(const float *values, const float *importance, unsigned char *block);
void gd_q6_k_write(const float *values, const float *importance, unsigned char *block);

/* A block taken apart: number i of group g is d * scale[g] * q[i] - dmin * least[g], of f16 d and dmin. */
typedef struct gd_k_block {
    uint16_t d, dmin;
    int scale[16], least[16], q[256];
} gd_k_block;

/* Of 32 numbers, d * q[i] - dmin; there are no groups. */
void gd_q4_0_take(const unsigned char *block, gd_k_block *to);
void gd_q4_1_take(const unsigned char *block, gd_k_block *to);
void gd_q5_0_take(const unsigned char *block, gd_k_block *to);
void gd_q5_1_take(const unsigned char *block, gd_k_block *to);
void gd_q8_0_take(const unsigned char *block, gd_k_block *to);
/* Of 256. */
void gd_q2_k_take(const unsigned char *block, gd_k_block *to);
void gd_q3_k_take(const unsigned char *block, gd_k_block *to);
void gd_q4_k_take(const unsigned char *block, gd_k_block *to);
void gd_q5_k_take(const unsigned char *block, gd_k_block *to);
void gd_q6_k_take(const unsigned char *block, gd_k_block *to);

#endif
