/* backend/cpu/conv_place.h: where the columns of a convolution's product lie in its result, which is
 * no matrix: images follow each other outside of channels, and of the gradient by the input only each
 * stride-th element is of one product. Start at place_t.
 */
#ifndef GD_BACKEND_CPU_CONV_PLACE_H
#define GD_BACKEND_CPU_CONV_PLACE_H

#include "backend/cpu/conv_window.h"

/* Whether a window is an element of the image: rows of the matrix are planes. */
static bool is_plain(const window_t *w)
{
    bool plain = w->tap_count == 1;
    for (int a = 0; a < GD_SPATIAL; a++)
        plain = plain && w->first[a] == 0 && w->step[a] == 1 && w->count[a] == w->size[a];
    return plain;
}

#if GD_SIMD_MASK_FREE
/* The pieces of a row of at most COLUMNS_MAX numbers that lie in the image as they lie in the row:
 * number i of the row is data[shift + i] for the bits i of the mask. A window that keeps the size
 * of an image has one for all that lies in the same image. */
typedef struct span_t {
    int64_t shift;
    uint32_t mask;
} span_t;
_Static_assert(COLUMNS_MAX <= 32, "a mask has a bit a column");

/* The spans of some pieces; returns how many. */
static __attribute__((noinline)) int list_spans(const piece_t *pieces, int many, span_t *spans)
{
    int count = 0;
    for (int k = 0; k < many; k++) {
        const piece_t *p = &pieces[k];
        const uint32_t mask = (uint32_t)((((uint64_t)1 << p->count) - 1) << p->at);
        int i = 0;
        while (i < count && spans[i].shift != p->from - p->at)
            i++;
        if (i == count)
            spans[count++] = (span_t){ p->from - p->at, 0 };
        spans[i].mask |= mask;
    }
    return count;
}
#endif

/* From one image to the next, and from one position to the next along each axis. */
typedef struct place_t {
    int64_t n, step[GD_SPATIAL];
    bool plain; /* positions follow each other */
} place_t;

static __attribute__((noinline)) int list_c_runs(const window_t *w, const place_t *to,
                                                 int64_t column, int64_t columns,
                                                 gd_gemm_stretch *c_runs)
{
    int many = 0;
    if (to->plain) {
        for (int64_t at = 0; at < columns;) {
            const int64_t n = (column + at) / w->plane, position = (column + at) % w->plane;
            const int64_t count = LEAST(w->plane - position, columns - at);
            c_runs[many++] =
                (gd_gemm_stretch){ n * to->n + position, 1, (int32_t)at, (int32_t)count };
            at += count;
        }
        return many;
    }
    run_t runs[COLUMNS_MAX];
    const int run_count = list_runs(w, column, columns, runs);
    for (int i = 0; i < run_count; i++) {
        const run_t *r = &runs[i];
        const int64_t from =
            r->n * to->n + r->z * to->step[0] + r->y * to->step[1] + r->x * to->step[2];
        c_runs[many++] = (gd_gemm_stretch){ from, to->step[2], (int32_t)r->at, (int32_t)r->count };
    }
    return many;
}

/* y [n, groups * o, out...], of which all positions are columns. */
static __attribute__((noinline)) void set_forward_place(const gd_conv_sizes *s, place_t *to)
{
    *to = (place_t){ .n = s->groups * s->o * s->out_plane,
                     .step = { s->out[1] * s->out[2], s->out[2], 1 },
                     .plain = true };
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What elements first, first + stride, … of each axis of x's gradient see, those that the same taps
 * reach, and their addresses. */
typedef struct phase_t {
    int64_t a_tap[GD_SPATIAL];  /* from tap to tap, in a weight [taps...] */
    int64_t tap_first, c_first; /* the first of these taps, and the first of these elements */
} phase_t;

static __attribute__((noinline)) phase_t
set_phase(const gd_conv_args *args, const int64_t first[GD_SPATIAL], window_t *w, place_t *to)
{
    const gd_conv_sizes *s = &args->s;
    const gd_conv_attr *attr = args->attr;
    int64_t in_step = 1, tap_step = 1;
    phase_t phase = { .tap_first = 0 };
    w->plane = w->tap_count = 1;
    for (int a = GD_SPATIAL - 1; a >= 0; a--) {
        const int64_t stride = attr->stride[a], dilation = attr->dilation[a];
        const int64_t every = stride / common_divisor(stride, dilation); /* tap may fit */
        const int64_t at = first[a] + attr->before[a];
        int64_t tap = 0;
        while (tap < s->kernel[a] && (at - tap * dilation) % stride)
            tap++;
        w->size[a] = s->out[a];
        w->count[a] = (s->in[a] - first[a] + stride - 1) / stride;
        w->step[a] = 1;
        w->taps[a] = tap < s->kernel[a] ? (s->kernel[a] - tap + every - 1) / every : 0;
        w->first[a] = (at - tap * dilation) / stride;
        w->gap[a] = -(every * dilation / stride);
        w->plane *= w->count[a];
        w->tap_count *= w->taps[a];
        phase.a_tap[a] = every * tap_step;
        to->step[a] = stride * in_step;
        phase.tap_first += tap * tap_step;
        phase.c_first += first[a] * in_step;
        tap_step *= s->kernel[a];
        in_step *= s->in[a];
    }
    to->n = s->groups * s->c * s->in_plane;
    to->plain = attr->stride[0] * attr->stride[1] * attr->stride[2] == 1;
    return phase;
}

#endif
