/* backend/cpu/conv_window.c: the arithmetic of windows and places: conv_window.h. */
#include "backend/cpu/conv_window.h"
#include "backend/cpu/gemm_plan.h"

int gd_window_runs(const gd_window *w, int64_t first, int64_t count, gd_window_run *runs)
{
    int many = 0;
    int64_t n = first / w->plane, rest = first % w->plane;
    int64_t x = rest % w->count[2], y = rest / w->count[2] % w->count[1],
            z = rest / w->count[2] / w->count[1];
    for (int64_t at = 0; at < count; many++) {
        const int64_t length = gd_gemm_least(w->count[2] - x, count - at);
        runs[many] = (gd_window_run){ n, z, y, x, at, length };
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

int gd_window_pieces(const gd_window *w, int64_t tap, const gd_window_run *runs, int run_count,
                     gd_window_piece *pieces, int64_t *covered)
{
    const int64_t tz = tap / (w->taps[1] * w->taps[2]), ty = tap / w->taps[2] % w->taps[1],
                  tx = tap % w->taps[2];
    const int64_t shift_z = w->first[0] + tz * w->gap[0], shift_y = w->first[1] + ty * w->gap[1],
                  shift_x = w->first[2] + tx * w->gap[2], step = w->step[2];
    int many = 0;
    *covered = 0;
    for (int i = 0; i < run_count; i++) {
        const gd_window_run *r = &runs[i];
        const int64_t z = r->z * w->step[0] + shift_z, y = r->y * w->step[1] + shift_y,
                      x = r->x * step + shift_x;
        if (z < 0 || z >= w->size[0] || y < 0 || y >= w->size[1] || x >= w->size[2])
            continue;
        const int64_t low = x >= 0 ? 0 : step == 1 ? -x : (-x + step - 1) / step;
        const int64_t room = step == 1 ? w->size[2] - x : (w->size[2] - x + step - 1) / step;
        const int64_t high = gd_gemm_least(r->count, room);
        if (low >= high)
            continue;
        const int64_t from =
            r->n * w->n_stride + (z * w->size[1] + y) * w->size[2] + x + low * step;
        const int32_t at = (int32_t)(r->at + low), length = (int32_t)(high - low);
        *covered += length;
        gd_window_piece *last = many > 0 ? &pieces[many - 1] : NULL;
        if (last && step == 1 && last->from + last->count == from && last->at + last->count == at)
            last->count += length;
        else
            pieces[many++] = (gd_window_piece){ from, at, length };
    }
    return many;
}

int gd_window_spans(const gd_window_piece *pieces, int many, gd_window_span *spans)
{
    int count = 0;
    for (int k = 0; k < many; k++) {
        const gd_window_piece *p = &pieces[k];
        const uint32_t mask = (uint32_t)((((uint64_t)1 << p->count) - 1) << p->at);
        int i = 0;
        while (i < count && spans[i].shift != p->from - p->at)
            i++;
        if (i == count)
            spans[count++] = (gd_window_span){ p->from - p->at, 0 };
        spans[i].mask |= mask;
    }
    return count;
}
bool gd_window_is_plain(const gd_window *w)
{
    bool plain = w->tap_count == 1;
    for (int a = 0; a < GD_SPATIAL; a++)
        plain = plain && w->first[a] == 0 && w->step[a] == 1 && w->count[a] == w->size[a];
    return plain;
}

int gd_conv_place_runs(const gd_window *w, const gd_conv_place *to, int64_t column, int64_t columns,
                       gd_gemm_stretch *c_runs)
{
    int many = 0;
    if (to->plain) {
        for (int64_t at = 0; at < columns;) {
            const int64_t n = (column + at) / w->plane, position = (column + at) % w->plane;
            const int64_t count = gd_gemm_least(w->plane - position, columns - at);
            c_runs[many++] =
                (gd_gemm_stretch){ n * to->n + position, 1, (int32_t)at, (int32_t)count };
            at += count;
        }
        return many;
    }
    gd_window_run runs[GD_GEMM_RUNS];
    const int run_count = gd_window_runs(w, column, columns, runs);
    for (int i = 0; i < run_count; i++) {
        const gd_window_run *r = &runs[i];
        const int64_t from =
            r->n * to->n + r->z * to->step[0] + r->y * to->step[1] + r->x * to->step[2];
        c_runs[many++] = (gd_gemm_stretch){ from, to->step[2], (int32_t)r->at, (int32_t)r->count };
    }
    return many;
}

void gd_conv_forward_window(const gd_conv_args *args, gd_window *w)
{
    const gd_conv_sizes *s = &args->s;
    const gd_conv_attr *attr = args->attr;
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

void gd_conv_forward_place(const gd_conv_sizes *s, gd_conv_place *to)
{
    *to = (gd_conv_place){ .n = s->groups * s->o * s->out_plane,
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

gd_conv_phase gd_conv_phase_of(const gd_conv_args *args, const int64_t first[GD_SPATIAL],
                               gd_window *w, gd_conv_place *to)
{
    const gd_conv_sizes *s = &args->s;
    const gd_conv_attr *attr = args->attr;
    int64_t in_step = 1, tap_step = 1;
    gd_conv_phase phase = { .tap_first = 0 };
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
