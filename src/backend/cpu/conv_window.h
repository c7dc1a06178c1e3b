/* backend/cpu/conv_window.h: the image seen through windows, as a matrix with a row for each
 * channel and tap and a column for each position of the window, of every image of the batch. It is
 * read in runs: positions that follow each other along an axis of the image. Start at window_t.
 */
#ifndef GD_BACKEND_CPU_CONV_WINDOW_H
#define GD_BACKEND_CPU_CONV_WINDOW_H

#include "backend/cpu/conv.h"
#include "backend/cpu/gemm_real.h"

/* Tiles and packers are those of products. */
#define PRODUCTS GD_ISA_NAME(gd_gemm_f32)

typedef struct window_t {
    const float *data; // [n, channels, size...], of one group
    int64_t n_stride, c_stride;
    int64_t size[GD_SPATIAL];
    int64_t count[GD_SPATIAL], plane; /* positions of the window */
    int64_t step[GD_SPATIAL];         /* between positions, in the image */
    int64_t taps[GD_SPATIAL], tap_count;
    /* tap t of position p is at p*step + first + t*gap */
    int64_t first[GD_SPATIAL], gap[GD_SPATIAL];
} window_t;

/* Positions that follow each other in a row of positions; `at` is where they go. */
typedef struct run_t {
    int64_t n, z, y, x, at, count;
} run_t;

/* Elements `step` apart in the image, to go to `at`. */
typedef struct piece_t {
    int64_t from;
    int32_t at, count;
} piece_t;

/* Positions [first, first+count), counted through the batch, as runs; returns how many. */
static __attribute__((noinline)) int list_runs(const window_t *w, int64_t first, int64_t count,
                                               run_t *runs)
{
    int many = 0;
    int64_t n = first / w->plane, rest = first % w->plane;
    int64_t x = rest % w->count[2], y = rest / w->count[2] % w->count[1],
            z = rest / w->count[2] / w->count[1];
    for (int64_t at = 0; at < count; many++) {
        const int64_t length = LEAST(w->count[2] - x, count - at);
        runs[many] = (run_t){ n, z, y, x, at, length };
        at += length;
        x = 0;
        if (++y == w->count[1]) {
            y = 0;
            if (++z == w->count[0]) {
                z = 0;
                n++;
            }
        }
    }
    return many;
}

/* What tap `tap` sees of the image from the runs' positions, from channel 0 on; what they see of
 * the padding is left out. Returns how many pieces; *covered counts their elements. */
static __attribute__((noinline)) int list_pieces(const window_t *w, int64_t tap, const run_t *runs,
                                                 int run_count, piece_t *pieces, int64_t *covered)
{
    const int64_t tz = tap / (w->taps[1] * w->taps[2]), ty = tap / w->taps[2] % w->taps[1],
                  tx = tap % w->taps[2];
    const int64_t shift_z = w->first[0] + tz * w->gap[0], shift_y = w->first[1] + ty * w->gap[1],
                  shift_x = w->first[2] + tx * w->gap[2], step = w->step[2];
    int many = 0;
    *covered = 0;
    for (int i = 0; i < run_count; i++) {
        const run_t *r = &runs[i];
        const int64_t z = r->z * w->step[0] + shift_z, y = r->y * w->step[1] + shift_y,
                      x = r->x * step + shift_x;
        if (z < 0 || z >= w->size[0] || y < 0 || y >= w->size[1] || x >= w->size[2])
            continue;
        const int64_t low = x >= 0 ? 0 : step == 1 ? -x : (-x + step - 1) / step;
        const int64_t room = step == 1 ? w->size[2] - x : (w->size[2] - x + step - 1) / step;
        const int64_t high = LEAST(r->count, room);
        if (low >= high)
            continue;
        const int64_t from =
            r->n * w->n_stride + (z * w->size[1] + y) * w->size[2] + x + low * step;
        const int32_t at = (int32_t)(r->at + low), length = (int32_t)(high - low);
        *covered += length;
        piece_t *last = many > 0 ? &pieces[many - 1] : NULL;
        if (last && step == 1 && last->from + last->count == from && last->at + last->count == at)
            last->count += length;
        else
            pieces[many++] = (piece_t){ from, at, length };
    }
    return many;
}

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

/* Group 0 of x [n, c, in...] as y's positions see it. */
static __attribute__((noinline)) void set_forward_window(const gd_conv_args *args, const float *x,
                                                         window_t *w)
{
    const gd_conv_sizes *s = &args->s;
    const gd_conv_attr *attr = args->attr;
    w->data = x;
    w->n_stride = s->groups * s->c * s->in_plane;
    w->c_stride = s->in_plane;
    w->plane = s->out_plane;
    w->tap_count = s->taps;
    for (int a = 0; a < GD_SPATIAL; a++) {
        w->size[a] = s->in[a];
        w->count[a] = s->out[a];
        w->step[a] = attr->stride[a];
        w->taps[a] = s->kernel[a];
        w->first[a] = -attr->before[a];
        w->gap[a] = attr->dilation[a];
    }
}

/* Where panel i of m rows begins: even heights, an odd row in the last, which is no higher. */
static inline int64_t panel_begin(int64_t m, int64_t i, int64_t panels)
{
    return i == panels ? m : (m / TILE_UNIT * i + panels - 1) / panels * TILE_UNIT;
}

#endif
