/* backend/cpu/conv_band_tile.h: the micro-kernel of convolutions that read the image out of a band,
 * a copy with its padding, number by number: every row of the tile has an address of its own, and
 * steps of the sum that follow each other are stretches. The other operand fills vectors.
 */
#ifndef GD_BACKEND_CPU_CONV_BAND_TILE_H
#define GD_BACKEND_CPU_CONV_BAND_TILE_H

#include "backend/cpu/gemm_real.h"

/* The height of a tile of one vector, and the tallest. One of two is ROWS_MAX high. */
#define BAND_ROWS 14

/* Steps that follow each other in the band, from where on. */
typedef struct stretch_t {
    int64_t from, count;
} stretch_t;

typedef struct band_tile_t {
    const float *band;
    const stretch_t *stretches; /* the steps of the sums */
    int many;
    int64_t step;             /* in the band, from step to step of a stretch */
    int64_t shift[BAND_ROWS]; /* in the band, of each row of the tile */
    const float *b;           // [steps, vectors]
    float *c;                 // [rows, vectors]
    int64_t c_row;
    bool accumulate;
} band_tile_t;

GD_SIMD_INLINE void band_body(const band_tile_t *t, const int rows, const int vecs)
{
    VEC sum[BAND_ROWS][VECS_MAX];
    UNROLL
    for (int i = 0; i < rows; i++) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            sum[i][v] = V(zero)();
    }
    const float *b = t->b;
    const int64_t *shift = t->shift;
    for (int k = 0; k < t->many; k++) {
        const float *x = t->band + t->stretches[k].from;
        for (int64_t p = t->stretches[k].count; p > 0; p--) {
            VEC bv[VECS_MAX];
            UNROLL
            for (int v = 0; v < vecs; v++)
                bv[v] = V(load)(b + v * LANES);
            UNROLL
            for (int i = 0; i < rows; i++) {
                const VEC xv = V(set1)(x[shift[i]]);
                UNROLL
                for (int v = 0; v < vecs; v++)
                    sum[i][v] = V(fma)(xv, bv[v], sum[i][v]);
            }
            x += t->step;
            b += vecs * LANES;
            /* Kept where the compiler likes: with two narrow multiply-adds a cycle, reading them
             * anew takes the ports that x needs. With one wide one it is best. */
            if (LANES == 16)
                OPAQUE(shift);
        }
    }
    float *c = t->c;
    UNROLL
    for (int i = 0; i < rows; i++, c += t->c_row) {
        UNROLL
        for (int v = 0; v < vecs; v++)
            V(store)
        (c + v * LANES, t->accumulate ? V(add)(V(load)(c + v * LANES), sum[i][v]) : sum[i][v]);
    }
}

static void band_tile_1(const band_tile_t *t)
{
    band_body(t, BAND_ROWS, 1);
}

static void band_tile_2(const band_tile_t *t)
{
    band_body(t, ROWS_MAX, 2);
}

typedef void (*band_fn)(const band_tile_t *t);

/* The kernel for the next columns of those left, which are whole vectors, and its height. */
static band_fn choose_band_tile(int64_t left, int64_t *height)
{
    static const int64_t heights[] = { BAND_ROWS, ROWS_MAX };
    const bool two = left >= COLUMNS_MAX;
    *height = heights[two];
    return two ? band_tile_2 : band_tile_1;
}

#endif
