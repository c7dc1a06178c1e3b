/* backend/cpu/pooling_rows.h: one row of the maximum over squares and of its gradient, a vector of
 * windows at a time; the loops over rows are in pooling_squares.h. Compilers vectorise these rows,
 * too, but bring even and odd numbers together in twice the time, and rows of ten not at all. A
 * row's last vector overlaps the one before, which writes the same values twice. Included by
 * pooling_isa.c once per number of lanes, with LANES and W(name) defined, and the orders of
 * shuffles EVEN, ODD, IN_ORDER (back from the order that EVEN leaves), LOW and HIGH (of pairs).
 */

typedef float W(floats) __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t W(masks) __attribute__((vector_size(LANES * sizeof(float))));

/* What EVEN and ODD bring together of two vectors from p on. */
#define LOAD_PAIRS(p, even, odd)                             \
    W(floats) even, odd;                                     \
    do {                                                     \
        W(floats) first, second;                             \
        memcpy(&first, p, sizeof first);                     \
        memcpy(&second, (p) + LANES, sizeof second);         \
        even = __builtin_shufflevector(first, second, EVEN); \
        odd = __builtin_shufflevector(first, second, ODD);   \
    } while (0)
/* Where the second is larger than the first; NaN is larger than numbers. */
#define IS_LARGER(first, second) (~(((first) >= (second)) | ((first) != (first))))
#define CHOOSE(mask, first, second) \
    (W(floats))(((W(masks))(second) & (mask)) | ((W(masks))(first) & ~(mask)))
#define STORE_PAIRS(p, even, odd)                                        \
    do {                                                                 \
        const W(floats) low = __builtin_shufflevector(even, odd, LOW),   \
                        high = __builtin_shufflevector(even, odd, HIGH); \
        memcpy(p, &low, sizeof low);                                     \
        memcpy((p) + LANES, &high, sizeof high);                         \
    } while (0)

static inline void W(pool_row)(const float *above, const float *below, int64_t width, float *to)
{
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t x = i < width - LANES ? i : width - LANES;
        LOAD_PAIRS(above + 2 * x, a, b);
        LOAD_PAIRS(below + 2 * x, c, d);
        const W(floats) ab = CHOOSE(IS_LARGER(a, b), a, b);
        const W(floats) abc = CHOOSE(IS_LARGER(ab, c), ab, c);
        const W(floats) most = CHOOSE(IS_LARGER(abc, d), abc, d);
        const W(floats) result = __builtin_shufflevector(most, most, IN_ORDER);
        memcpy(to + x, &result, sizeof result);
    }
}

static inline void W(spread_row)(const float *above, const float *below, const float *g,
                                 int64_t width, float *to_above, float *to_below)
{
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t x = i < width - LANES ? i : width - LANES;
        LOAD_PAIRS(above + 2 * x, a, b);
        LOAD_PAIRS(below + 2 * x, c, d);
        const W(masks) is_b = IS_LARGER(a, b);
        const W(floats) ab = CHOOSE(is_b, a, b);
        const W(masks) is_c = IS_LARGER(ab, c);
        const W(floats) abc = CHOOSE(is_c, ab, c);
        const W(masks) is_d = IS_LARGER(abc, d), is_below = is_c | is_d;
        W(floats) gradient;
        memcpy(&gradient, g + x, sizeof gradient);
        gradient = 0 + __builtin_shufflevector(gradient, gradient, IN_ORDER); /* 0 + -0 is 0 */
        const W(masks) value = (W(masks))gradient;
        STORE_PAIRS(to_above + 2 * x, (W(floats))(value & ~(is_b | is_below)),
                    (W(floats))(value & is_b & ~is_below));
        STORE_PAIRS(to_below + 2 * x, (W(floats))(value & is_c & ~is_d), (W(floats))(value & is_d));
    }
}

#undef LOAD_PAIRS
#undef IS_LARGER
#undef CHOOSE
#undef STORE_PAIRS
#undef EVEN
#undef ODD
#undef IN_ORDER
#undef LOW
#undef HIGH
#undef LANES
#undef W
