/* backend/cpu/elementwise_chain_isa.c: steps of an elementwise program that follow one another, run
 * on values that stay in registers. A loop of elementwise_loops.h reads and writes the L1 cache for
 * every op, and a store takes longer than an addition; here an op is a HANDLER, which changes eight
 * vectors it was passed and jumps to the next (threaded code: Bell, 1973). Compilers make that jump
 * of a call in tail position where they optimise; where not, it is a call.
 *
 * f32 on AVX2 and AVX-512, read from and rounded to bf16 as well. Start at gd_ew_chain. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd_half.h"

#if defined(GD_ISA_AVX512_BUILD)
typedef __m512 vector;
enum { LANES = 16 };
#define V(name) _mm512_##name
#define KEEP_WHERE_POSITIVE(x, y) \
    _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_GT_OQ), x)
#define WORDS_OF(v)  _mm512_castps_si512(v)
#define FLOATS_OF(v) _mm512_castsi512_ps(v)
#define AND_OF(x, y) FLOATS_OF(_mm512_and_si512(WORDS_OF(x), WORDS_OF(y)))
#define FLUSHED_OF(v) \
    _mm512_maskz_mov_ps(_mm512_test_epi32_mask(WORDS_OF(v), _mm512_set1_epi32(0x7f800000)), v)
#else
typedef __m256 vector;
enum { LANES = 8 };
#define V(name) _mm256_##name
#define KEEP_WHERE_POSITIVE(x, y) \
    _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ))
#define WORDS_OF(v)  _mm256_castps_si256(v)
#define FLOATS_OF(v) _mm256_castsi256_ps(v)
#define AND_OF(x, y) _mm256_and_ps(x, y)
#define FLUSHED_OF(v)                                                          \
    _mm256_and_ps(v, _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0F), v), \
                                   _mm256_set1_ps(0x1p-126F), _CMP_NLT_UQ))
#endif

#define LINK                                                                                \
    const gd_ew_link *link, char *const *slot, int64_t at, int64_t row, vector a, vector b, \
        vector c, vector d, vector e, vector f, vector g, vector h
typedef void handler(LINK);
static handler *const handlers[GD_EW_CHAIN_COUNT];

/* Where the operand in the slot is, and what is done to vector v, the i-th of the eight. */
#define ELEMENTS float *p = (float *)(slot[link->slot] + at);
#define NUMBER            \
    const vector number = \
        V(set1_ps)(*(const float *)(slot[link->slot] + (row & -(int64_t)link->is_row)));
/* The same of bf16. */
#define HALVES uint16_t *p = (uint16_t *)(slot[link->slot] + at / 2);
#define HALF_NUMBER                                  \
    const vector number = V(set1_ps)(gd_bf16_to_f32( \
        *(const uint16_t *)(slot[link->slot] + (row & -(int64_t)link->is_row) / 2)));
#define ALONE
/* What the chain reads next. Eight lines of one operand, then eight of another, are no stream that
 * Zen 5 fetches by itself: momentum's update goes at 50 GB/s instead of 30. In the caches it costs nothing. */
#define FETCHED(i)          (__builtin_prefetch(p + (i)*LANES + GD_EW_AHEAD / (int)sizeof *p), p + (i)*LANES)
#define UNARY(OP, v, i)     v = OP(v);
#define X_ELEMENT(OP, v, i) v = OP(v, V(loadu_ps)(FETCHED(i)));
#define Y_ELEMENT(OP, v, i) v = OP(V(loadu_ps)(FETCHED(i)), v);
#define X_NUMBER(OP, v, i)  v = OP(v, number);
#define Y_NUMBER(OP, v, i)  v = OP(number, v);

#define EACH(DO, OP) \
    DO(OP, a, 0)     \
    DO(OP, b, 1) DO(OP, c, 2) DO(OP, d, 3) DO(OP, e, 4) DO(OP, f, 5) DO(OP, g, 6) DO(OP, h, 7)
#define HANDLER(name, operand, DO, OP)                                        \
    static void name(LINK)                                                    \
    {                                                                         \
        operand EACH(DO, OP) link++;                                          \
        handlers[link->handler](link, slot, at, row, a, b, c, d, e, f, g, h); \
    }
#define BINARY(name, OP)                             \
    HANDLER(x_##name, ELEMENTS, X_ELEMENT, OP)       \
    HANDLER(x_##name##_number, NUMBER, X_NUMBER, OP) \
    HANDLER(y_##name, ELEMENTS, Y_ELEMENT, OP)       \
    HANDLER(y_##name##_number, NUMBER, Y_NUMBER, OP)

/* x op y for x in the registers, and for y there. Which is first matters where both are NaN, and
 * compilers take sums and products to commute. */
static inline vector sum_of(vector x, vector y)
{
    __asm__("vaddps %2, %1, %0" : "=v"(x) : "v"(x), "vm"(y));
    return x;
}

static inline vector product_of(vector x, vector y)
{
    __asm__("vmulps %2, %1, %0" : "=v"(x) : "v"(x), "vm"(y));
    return x;
}

/* gd_round_bf16_f32 (vecmath.h). */
static inline vector rounded_bf16(vector x, vector y)
{
    y = V(min_ps)(V(max_ps)(y, V(setzero_ps)()),
                  V(set1_ps)(65535)); /* the second where unordered */
#if defined(GD_ISA_AVX512_BUILD)
    const __m512i bits = WORDS_OF(x), cut = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fff0000));
    const __mmask16 is_last = _mm512_cmpeq_epi32_mask(cut, _mm512_set1_epi32(0x7f7f0000));
    const __mmask16 is_finite = _mm512_cmplt_epi32_mask(cut, _mm512_set1_epi32(0x7f800000));
    const __m512i noise =
        _mm512_mask_mov_epi32(_mm512_cvtps_epi32(y), is_last, _mm512_set1_epi32(0x8000));
    return FLOATS_OF(_mm512_mask_and_epi32(bits, is_finite, _mm512_add_epi32(bits, noise),
                                           _mm512_set1_epi32(-65536)));
#else
    const __m256i bits = WORDS_OF(x), cut = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff0000));
    const __m256i is_last = _mm256_cmpeq_epi32(cut, _mm256_set1_epi32(0x7f7f0000));
    const __m256i is_finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), cut);
    const __m256i noise =
        _mm256_blendv_epi8(_mm256_cvtps_epi32(y), _mm256_set1_epi32(0x8000), is_last);
    const __m256i up = _mm256_and_si256(_mm256_add_epi32(bits, noise), _mm256_set1_epi32(-65536));
    return FLOATS_OF(_mm256_blendv_epi8(bits, up, is_finite));
#endif
}

BINARY(sum, sum_of)
BINARY(difference, V(sub_ps))
BINARY(product, product_of)
BINARY(quotient, V(div_ps))
BINARY(gated, KEEP_WHERE_POSITIVE)
BINARY(rounded, rounded_bf16)
BINARY(both, AND_OF)

#define FIRST(v, y)      y
#define NEGATIVE_OF(v)   V(xor_ps)(v, V(set1_ps)(-0.0F))
#define ABSOLUTE_OF(v)   V(andnot_ps)(V(set1_ps)(-0.0F), v)
#define SQUARE_OF(v)     V(mul_ps)(v, v)
#define RELU_OF(v)       V(max_ps)(V(setzero_ps)(), v) /* the second where unordered */
#define RECIPROCAL_OF(v) V(div_ps)(V(set1_ps)(1), v)
#define STORE(OP, v, i)  V(storeu_ps)(p + i * LANES, v);
HANDLER(load, ELEMENTS, X_ELEMENT, FIRST)
HANDLER(load_number, NUMBER, X_NUMBER, FIRST)
HANDLER(store, ELEMENTS, STORE, )
#define X_HALF(OP, v, i)     v = vf32_load_bf16(FETCHED(i));
#define STORE_HALF(OP, v, i) vf32_store_bf16(p + i * LANES, v);
#define FROM_I32(v)          V(cvtepi32_ps)(WORDS_OF(v))
HANDLER(widen, HALVES, X_HALF, )
HANDLER(widen_number, HALF_NUMBER, X_NUMBER, FIRST)
HANDLER(narrow, HALVES, STORE_HALF, )
HANDLER(from_i32, ALONE, UNARY, FROM_I32)
HANDLER(flushed, ALONE, UNARY, FLUSHED_OF)
HANDLER(negative, ALONE, UNARY, NEGATIVE_OF)
HANDLER(absolute, ALONE, UNARY, ABSOLUTE_OF)
HANDLER(square, ALONE, UNARY, SQUARE_OF)
HANDLER(square_root, ALONE, UNARY, V(sqrt_ps))
HANDLER(relu, ALONE, UNARY, RELU_OF)
HANDLER(reciprocal, ALONE, UNARY, RECIPROCAL_OF)

static void end(LINK)
{
    (void)link, (void)slot, (void)at, (void)row;
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
}

#define FOUR(op, name)                                              \
    [op] = x_##name, [op + GD_EW_CHAIN_NUMBER] = x_##name##_number, \
    [op + GD_EW_CHAIN_SECOND] = y_##name,                           \
    [op + GD_EW_CHAIN_SECOND + GD_EW_CHAIN_NUMBER] = y_##name##_number
static handler *const handlers[GD_EW_CHAIN_COUNT] = {
    [GD_EW_CHAIN_END] = end,
    [GD_EW_CHAIN_STORE] = store,
    [GD_EW_CHAIN_LOAD] = load,
    [GD_EW_CHAIN_LOAD + GD_EW_CHAIN_NUMBER] = load_number,
    [GD_EW_CHAIN_WIDEN] = widen,
    [GD_EW_CHAIN_WIDEN + GD_EW_CHAIN_NUMBER] = widen_number,
    [GD_EW_CHAIN_NARROW] = narrow,
    [GD_EW_CHAIN_FROM_I32] = from_i32,
    [GD_EW_CHAIN_NEG] = negative,
    [GD_EW_CHAIN_ABS] = absolute,
    [GD_EW_CHAIN_SQUARE] = square,
    [GD_EW_CHAIN_SQRT] = square_root,
    [GD_EW_CHAIN_RELU] = relu,
    [GD_EW_CHAIN_RECIPROCAL] = reciprocal,
    [GD_EW_CHAIN_FLUSH] = flushed,
    FOUR(GD_EW_CHAIN_ADD, sum),
    FOUR(GD_EW_CHAIN_SUB, difference),
    FOUR(GD_EW_CHAIN_MUL, product),
    FOUR(GD_EW_CHAIN_DIV, quotient),
    FOUR(GD_EW_CHAIN_RELU_GRAD, gated),
    FOUR(GD_EW_CHAIN_ROUND_BF16, rounded),
    FOUR(GD_EW_CHAIN_AND_I32, both),
};

void GD_ISA_NAME(gd_ew_chain)(const gd_ew_link *links, char *const *slot, int64_t begin,
                              int64_t end, int64_t row)
{
    const vector none = V(setzero_ps)();
    for (int64_t at = begin; at < end; at += 8 * (int64_t)sizeof(vector))
        handlers[links->handler](links, slot, at, row, none, none, none, none, none, none, none,
                                 none);
}
