/* backend/cpu/elementwise_chain_isa.c: steps of an elementwise program that follow one another, run
 * on values that stay in registers. A loop of elementwise_loops.h reads and writes the L1 cache for
 * every op, and a store takes longer than an addition; here an op is a HANDLER, which changes eight
 * vectors it was passed and jumps to the next (threaded code: Bell, 1973). Compilers make that jump
 * of a call in tail position where they optimise; where not, it is a call.
 *
 * f32 on AVX2 and AVX-512. Start at gd_ew_chain. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"

#if defined(GD_ISA_AVX2_BUILD) || defined(GD_ISA_AVX512_BUILD)
#include <immintrin.h>

#if defined(GD_ISA_AVX512_BUILD)
typedef __m512 vector;
enum { LANES = 16 };
#define V(name) _mm512_##name
#define KEEP_WHERE_POSITIVE(x, y) \
    _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_GT_OQ), x)
#else
typedef __m256 vector;
enum { LANES = 8 };
#define V(name) _mm256_##name
#define KEEP_WHERE_POSITIVE(x, y) \
    _mm256_and_ps(x, _mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_GT_OQ))
#endif

#define LINK                                                                                       \
    const gd_ew_link *link, char *const *slot, int64_t at, vector a, vector b, vector c, vector d, \
        vector e, vector f, vector g, vector h
typedef void handler(LINK);
static handler *const handlers[GD_EW_CHAIN_COUNT];

#define EACH(DO) DO(a, 0) DO(b, 1) DO(c, 2) DO(d, 3) DO(e, 4) DO(f, 5) DO(g, 6) DO(h, 7)
#define HANDLER(name, DO)                                                      \
    static void name(LINK)                                                     \
    {                                                                          \
        float *p = (float *)(slot[link->slot] + (at & -(int64_t)link->moves)); \
        (void)p;                                                               \
        EACH(DO)                                                               \
        link++;                                                                \
        handlers[link->handler](link, slot, at, a, b, c, d, e, f, g, h);       \
    }

/* x op y for x in the registers, and for y there. Which is first matters where both are NaN, and
 * compilers take sums and products to commute. */
static inline vector sum(vector x, vector y)
{
    __asm__("vaddps %2, %1, %0" : "=v"(x) : "v"(x), "vm"(y));
    return x;
}

static inline vector product(vector x, vector y)
{
    __asm__("vmulps %2, %1, %0" : "=v"(x) : "v"(x), "vm"(y));
    return x;
}

#define X_SUM(v, i)        v = sum(v, V(loadu_ps)(p + i * LANES));
#define Y_SUM(v, i)        v = sum(V(loadu_ps)(p + i * LANES), v);
#define X_PRODUCT(v, i)    v = product(v, V(loadu_ps)(p + i * LANES));
#define Y_PRODUCT(v, i)    v = product(V(loadu_ps)(p + i * LANES), v);
#define X_DIFFERENCE(v, i) v = V(sub_ps)(v, V(loadu_ps)(p + i * LANES));
#define Y_DIFFERENCE(v, i) v = V(sub_ps)(V(loadu_ps)(p + i * LANES), v);
#define X_QUOTIENT(v, i)   v = V(div_ps)(v, V(loadu_ps)(p + i * LANES));
#define Y_QUOTIENT(v, i)   v = V(div_ps)(V(loadu_ps)(p + i * LANES), v);
#define X_GATED(v, i)      v = KEEP_WHERE_POSITIVE(v, V(loadu_ps)(p + i * LANES));
#define Y_GATED(v, i)      v = KEEP_WHERE_POSITIVE(V(loadu_ps)(p + i * LANES), v);
HANDLER(x_sum, X_SUM)
HANDLER(y_sum, Y_SUM)
HANDLER(x_difference, X_DIFFERENCE)
HANDLER(y_difference, Y_DIFFERENCE)
HANDLER(x_product, X_PRODUCT)
HANDLER(y_product, Y_PRODUCT)
HANDLER(x_quotient, X_QUOTIENT)
HANDLER(y_quotient, Y_QUOTIENT)
HANDLER(x_gated, X_GATED)
HANDLER(y_gated, Y_GATED)

#define LOAD(v, i)       v = V(loadu_ps)(p + i * LANES);
#define STORE(v, i)      V(storeu_ps)(p + i * LANES, v);
#define NEG(v, i)        v = V(xor_ps)(v, V(set1_ps)(-0.0F));
#define ABS(v, i)        v = V(andnot_ps)(V(set1_ps)(-0.0F), v);
#define SQUARE(v, i)     v = V(mul_ps)(v, v);
#define SQRT(v, i)       v = V(sqrt_ps)(v);
#define RELU(v, i)       v = V(max_ps)(V(setzero_ps)(), v); /* the second where unordered */
#define RECIPROCAL(v, i) v = V(div_ps)(V(set1_ps)(1), v);
HANDLER(load, LOAD)
HANDLER(store, STORE)
HANDLER(neg, NEG)
HANDLER(absolute, ABS)
HANDLER(square, SQUARE)
HANDLER(square_root, SQRT)
HANDLER(relu, RELU)
HANDLER(reciprocal, RECIPROCAL)

static void end(LINK)
{
    (void)link, (void)slot, (void)at;
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
}

static handler *const handlers[GD_EW_CHAIN_COUNT] = {
    [GD_EW_CHAIN_END] = end,
    [GD_EW_CHAIN_LOAD] = load,
    [GD_EW_CHAIN_STORE] = store,
    [GD_EW_CHAIN_NEG] = neg,
    [GD_EW_CHAIN_ABS] = absolute,
    [GD_EW_CHAIN_SQUARE] = square,
    [GD_EW_CHAIN_SQRT] = square_root,
    [GD_EW_CHAIN_RELU] = relu,
    [GD_EW_CHAIN_RECIPROCAL] = reciprocal,
    [GD_EW_CHAIN_ADD] = x_sum,
    [GD_EW_CHAIN_ADD + 1] = y_sum,
    [GD_EW_CHAIN_SUB] = x_difference,
    [GD_EW_CHAIN_SUB + 1] = y_difference,
    [GD_EW_CHAIN_MUL] = x_product,
    [GD_EW_CHAIN_MUL + 1] = y_product,
    [GD_EW_CHAIN_DIV] = x_quotient,
    [GD_EW_CHAIN_DIV + 1] = y_quotient,
    [GD_EW_CHAIN_RELU_GRAD] = x_gated,
    [GD_EW_CHAIN_RELU_GRAD + 1] = y_gated,
};

void GD_ISA_NAME(gd_ew_chain)(const gd_ew_link *links, char *const *slot, int64_t bytes)
{
    const vector none = V(setzero_ps)();
    for (int64_t at = 0; at < bytes; at += 8 * (int64_t)sizeof(vector))
        handlers[links->handler](links, slot, at, none, none, none, none, none, none, none, none);
}
#endif
