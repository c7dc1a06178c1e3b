/* backend/cpu/conv_copy.h: numbers of an image in f32 copied to rows of its matrix of windows
 * (conv_window.h), for the paths that pack windows or copy bands of them.
 */
#ifndef GD_BACKEND_CPU_CONV_COPY_H
#define GD_BACKEND_CPU_CONV_COPY_H

#include "backend/cpu/conv_window.h"

/* Tiles and packers are those of products. */
#define PRODUCTS GD_ISA_NAME(gd_gemm_f32)

/* Numbers that do not follow each other: dst[i * to] = src[i * from]. Kept out of line, as it is
 * long once vectorised. */
static __attribute__((noinline)) void copy_strided(float *dst, int64_t to, const float *src,
                                                   int64_t from, int64_t count)
{
#if GD_SIMD_MASK_FREE
    for (; from == 2 && to == 1 && count > 0; count -= LANES, src += 2 * LANES, dst += LANES)
        V(store_masked)
    (dst, V(mask_first)(LEAST(count, LANES)), V(load_even)(src, LEAST(count, LANES)));
    for (; from == 1 && to == 2 && count > 0; count -= LANES, src += LANES, dst += 2 * LANES)
        V(store_even)
    (dst, LEAST(count, LANES), V(load_masked)(V(mask_first)(LEAST(count, LANES)), src));
#endif
    for (int64_t i = 0; i < count; i++)
        dst[i * to] = src[i * from];
}

/* count numbers that follow each other. */
GD_SIMD_INLINE void copy_run(float *dst, const float *src, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        V(store)(dst + i, V(load)(src + i));
    if (GD_SIMD_MASK_FREE) {
        const VMASK mask = V(mask_first)(count - i);
        V(store_masked)(dst + i, mask, V(load_masked)(mask, src + i));
        return;
    }
    if (i < count && count >= LANES) { /* once more, some of them */
        V(store)(dst + count - LANES, V(load)(src + count - LANES));
        return;
    }
    for (; i < count; i++)
        dst[i] = src[i];
}

/* Zeros, count of them, and as many behind as a vector has: for short runs that something else is
 * written behind afterwards. */
static __attribute__((noinline)) void zero_over(float *dst, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES)
        V(store)(dst + i, V(zero)());
}

/* A row of `width` numbers (rounded up to vectors): the pieces, zeros between them. */
static __attribute__((noinline)) void copy_pieces(const piece_t *pieces, int many, bool gaps,
                                                  const float *data, int64_t step, int64_t width,
                                                  float *row)
{
    for (int64_t i = 0; gaps && i < width; i += LANES)
        V(store)(row + i, V(zero)());
    for (int k = 0; k < many; k++)
        if (step == 1)
            copy_run(row + pieces[k].at, data + pieces[k].from, pieces[k].count);
        else
            copy_strided(row + pieces[k].at, 1, data + pieces[k].from, step, pieces[k].count);
}

/* Where panel i of m rows begins: even heights, an odd row in the last, which is no higher. */
static inline int64_t panel_begin(int64_t m, int64_t i, int64_t panels)
{
    return i == panels ? m : (m / TILE_UNIT * i + panels - 1) / panels * TILE_UNIT;
}

#endif
