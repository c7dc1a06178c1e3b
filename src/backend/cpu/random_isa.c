/* backend/cpu/random_isa.c: the Philox words of base/random.h, several blocks at once.
 * gd_philox_words() says what they are; this says it with one 64-bit lane for each 32-bit word of
 * the state, because that is how the multiplication 32 x 32 -> 64 takes its operands. Only the low
 * half of a lane is the word; what is in the high half is ignored by the next round.
 */
#include "backend/cpu/isa.h"
#include "backend/cpu/random.h"
#include "base/random.h"

#include <string.h>

#if defined(GD_ISA_AVX512_BUILD)
#include <immintrin.h>
typedef __m512i vector;
#define BLOCKS                8
#define BLOCK_OF_LANE         _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)
#define BROADCAST(x)          _mm512_set1_epi64((int64_t)(x))
#define MULTIPLY_LOW(a, b)    _mm512_mul_epu32(a, b)
#define XOR(a, b)             _mm512_xor_si512(a, b)
#define OR(a, b)              _mm512_or_si512(a, b)
#define AND(a, b)             _mm512_and_si512(a, b)
#define ADD(a, b)             _mm512_add_epi64(a, b)
#define HIGH_HALF(a)          _mm512_srli_epi64(a, 32)
#define TO_HIGH_HALF(a)       _mm512_slli_epi64(a, 32)
#define FIRST_OF_PAIRS(a, b)  _mm512_unpacklo_epi64(a, b)
#define SECOND_OF_PAIRS(a, b) _mm512_unpackhi_epi64(a, b)
#define STORE(p, a)           _mm512_storeu_si512(p, a)
#elif defined(GD_ISA_AVX2_BUILD)
#include <immintrin.h>
typedef __m256i vector;
#define BLOCKS                4
#define BLOCK_OF_LANE         _mm256_setr_epi64x(0, 2, 1, 3)
#define BROADCAST(x)          _mm256_set1_epi64x((int64_t)(x))
#define MULTIPLY_LOW(a, b)    _mm256_mul_epu32(a, b)
#define XOR(a, b)             _mm256_xor_si256(a, b)
#define OR(a, b)              _mm256_or_si256(a, b)
#define AND(a, b)             _mm256_and_si256(a, b)
#define ADD(a, b)             _mm256_add_epi64(a, b)
#define HIGH_HALF(a)          _mm256_srli_epi64(a, 32)
#define TO_HIGH_HALF(a)       _mm256_slli_epi64(a, 32)
#define FIRST_OF_PAIRS(a, b)  _mm256_unpacklo_epi64(a, b)
#define SECOND_OF_PAIRS(a, b) _mm256_unpackhi_epi64(a, b)
#define STORE(p, a)           _mm256_storeu_si256((__m256i *)(void *)(p), a)
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i vector;
#define BLOCKS                2
#define BLOCK_OF_LANE         _mm_set_epi64x(1, 0)
#define BROADCAST(x)          _mm_set1_epi64x((int64_t)(x))
#define MULTIPLY_LOW(a, b)    _mm_mul_epu32(a, b)
#define XOR(a, b)             _mm_xor_si128(a, b)
#define OR(a, b)              _mm_or_si128(a, b)
#define AND(a, b)             _mm_and_si128(a, b)
#define ADD(a, b)             _mm_add_epi64(a, b)
#define HIGH_HALF(a)          _mm_srli_epi64(a, 32)
#define TO_HIGH_HALF(a)       _mm_slli_epi64(a, 32)
#define FIRST_OF_PAIRS(a, b)  _mm_unpacklo_epi64(a, b)
#define SECOND_OF_PAIRS(a, b) _mm_unpackhi_epi64(a, b)
#define STORE(p, a)           _mm_storeu_si128((__m128i *)(void *)(p), a)
#endif

#ifdef BLOCKS
#if defined(__GNUC__) && !defined(__clang__)
#define UNROLLED _Pragma("GCC unroll 16")
#else
#define UNROLLED
#endif
/* Independent states side by side: a round waits for the one before it. */
#if defined(GD_ISA_AVX512_BUILD)
#define CHAINS 4
#else
#define CHAINS 2
#endif
#define STEP       (CHAINS * BLOCKS)
#define REST_LEAST 8 /* words: more are a step of their own, of which only those are kept */

/* STEP blocks from block number `index` on: 4 * STEP words. */
static void philox_step(uint64_t seed, uint64_t index, uint32_t *out)
{
    const vector multiplier_0 = BROADCAST(0xd2511f53), multiplier_1 = BROADCAST(0xcd9e8d57);
    vector c0[CHAINS], c1[CHAINS], c2[CHAINS], c3[CHAINS];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    UNROLLED
    for (int i = 0; i < CHAINS; i++) {
        c0[i] = ADD(BROADCAST(index + (uint64_t)(i * BLOCKS)), BLOCK_OF_LANE);
        c1[i] = HIGH_HALF(c0[i]);
        c2[i] = c3[i] = BROADCAST(0);
    }
    UNROLLED
    for (int round = 0; round < 10; round++) {
        UNROLLED
        for (int i = 0; i < CHAINS; i++) {
            vector p0 = MULTIPLY_LOW(multiplier_0, c0[i]), p1 = MULTIPLY_LOW(multiplier_1, c2[i]);
            c0[i] = XOR(XOR(HIGH_HALF(p1), c1[i]), BROADCAST(k0));
            c1[i] = p1;
            c2[i] = XOR(XOR(HIGH_HALF(p0), c3[i]), BROADCAST(k1));
            c3[i] = p0;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    const vector low_half = BROADCAST(0xffffffff);
    UNROLLED
    for (int i = 0; i < CHAINS; i++) {
        vector a = OR(AND(c0[i], low_half), TO_HIGH_HALF(c1[i]));
        vector b = OR(AND(c2[i], low_half), TO_HIGH_HALF(c3[i]));
        STORE(out + i * 4 * BLOCKS, FIRST_OF_PAIRS(a, b));
        STORE(out + i * 4 * BLOCKS + 2 * BLOCKS, SECOND_OF_PAIRS(a, b));
    }
}
#endif

void GD_ISA_NAME(gd_random_words)(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out)
{
#ifdef BLOCKS
    uint64_t before = (0 - first) % 4; /* words up to the next block */
    if (count >= before + 4 * STEP) {
        gd_philox_words(seed, first, before, out);
        first += before;
        count -= before;
        out += before;
        for (; count >= 4 * STEP; first += 4 * STEP, count -= 4 * STEP, out += 4 * STEP)
            philox_step(seed, first / 4, out);
        if (count >= REST_LEAST) {
            uint32_t rest[4 * STEP];
            philox_step(seed, first / 4, rest);
            memcpy(out, rest, count * sizeof *out);
            return;
        }
    }
#endif
    gd_philox_words(seed, first, count, out);
}
