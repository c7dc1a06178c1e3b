/* base/half.h: IEEE binary16 and bfloat16 to and from float, round to nearest, ties to even;
 * subnormals, infinities kept; NaN stays a (quiet) NaN. Branch-light scalar code that compilers
 * vectorise. */
#ifndef GD_BASE_HALF_H
#define GD_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float gd_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    /* Place the exponent and fraction, then rescale by 2^112: exact for normals and subnormals
     * alike. */
    uint32_t bits = magnitude << 13;
    uint32_t scale_bits = 0x77800000u; /* 2^112 */
    float value, scale;
    memcpy(&value, &bits, sizeof value);
    memcpy(&scale, &scale_bits, sizeof scale);
    value *= scale;
    memcpy(&bits, &value, sizeof bits);
    uint32_t special = 0x7f800000u | (magnitude << 13) | (magnitude > 0x7c00u ? 0x00400000u : 0u);
    bits = magnitude >= 0x7c00u ? special : bits;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t gd_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    /* Normal results: rebias by 112 and round the 13 dropped bits to nearest even in integer
     * arithmetic. */
    uint32_t odd = (magnitude >> 13) & 1u;
    uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + odd) >> 13;
    /* Subnormal results: adding 0.5 aligns the fraction so that the addition itself rounds. */
    uint32_t half_bits = 0x3f000000u, sum_bits;
    float small, half;
    memcpy(&small, &magnitude, sizeof small);
    memcpy(&half, &half_bits, sizeof half);
    small += half;
    memcpy(&sum_bits, &small, sizeof sum_bits);
    uint32_t subnormal = sum_bits - half_bits;
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result; /* rounds to infinity, or is infinity */
    result = magnitude > 0x7f800000u ? 0x7e00u : result;  /* NaN */
    return (uint16_t)(result | sign);
}

static inline float gd_bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t gd_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x0040u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#endif
