/* backend/cpu/conv_driver.h: convolution and its gradients as matrix products with windows, blocked
 * as gemm_driver.h blocks products and computed by the same micro-kernels. Included by gemm_isa.c
 * for f32. conv.h says what is computed. Start at GD_ISA_NAME(gd_conv_forward_f32), at the end.
 */

/* C[m, positions] = A[m, depth] @ window[depth, positions], then bias and ReLU. */
typedef struct conv_t {
    window_t window;
    int64_t m, depth; /* depth = channels * taps */
    const float *a;   // [m, channels, taps...]
    int64_t a_row, a_channel, a_tap[GD_SPATIAL];
    bool taps_plain, a_plain; /* taps follow each other; channels too */
    float *c;                 // [m, n, positions...]
    int64_t c_row, c_n, c_step[GD_SPATIAL];
    bool c_plain;      /* positions follow each other */
    const float *bias; // [m], bias_step apart
    int64_t bias_step;
    bool relu;
    const gd_paths *paths;
} conv_t;

/* Where there is no bias, at steps of 0. */
static const float no_bias = 0;

/* pack_weight where taps do not follow each other: step by step, for all rows. */
static __attribute__((noinline)) void pack_phase(const conv_t *v, int64_t row, int64_t rows,
                                                 int64_t step, int64_t depth, float *panel)
{
    const int64_t *taps = v->window.taps, *to_next = v->a_tap, count = v->window.tap_count;
    int64_t tx = step % taps[2], ty = step / taps[2] % taps[1],
            tz = step % count / taps[2] / taps[1];
    const float *channel = v->a + row * v->a_row + step / count * v->a_channel;
    for (int64_t p = 0; p < depth; p++) {
        const float *a = channel + tz * to_next[0] + ty * to_next[1] + tx * to_next[2];
        for (int64_t i = 0; i < rows; i++)
            panel[i * A_PANEL_ROW + p] = a[i * v->a_row];
        if (++tx < taps[2])
            continue;
        tx = 0;
        if (++ty < taps[1])
            continue;
        ty = 0;
        if (++tz < taps[0])
            continue;
        tz = 0;
        channel += v->a_channel;
    }
}

/* rows [row, row+rows) of A, steps [step, step+depth), to panel [rows, A_PANEL_ROW]. */
static __attribute__((noinline)) void pack_weight(const conv_t *v, int64_t row, int64_t rows,
                                                  int64_t step, int64_t depth, float *panel)
{
    const window_t *w = &v->window;
    int64_t channel = step / w->tap_count, tap = step % w->tap_count;
    if (!v->taps_plain) {
        pack_phase(v, row, rows, step, depth, panel);
        return;
    }
    for (int64_t p = 0; p < depth; channel++, tap = 0) {
        const float *a = v->a + row * v->a_row + channel * v->a_channel;
        const int64_t count = LEAST(w->tap_count - tap, depth - p);
        for (int64_t i = 0; i < rows * v->a_row;
             i += LINE) /* the next panel lies behind this one */
            __builtin_prefetch(a + rows * v->a_row + i, 0, 2);
        for (int64_t i = 0; i < rows; i++, a += v->a_row)
            copy_run(panel + i * A_PANEL_ROW + p, a + tap, count);
        p += count;
    }
}

/* Positions of a tile that are `stride` apart in C: `count` of them, from element `from` of C and
 * column `at` of the tile on. */
typedef struct c_run_t {
    int64_t from, stride;
    int32_t at, count;
} c_run_t;

static __attribute__((noinline)) int list_c_runs(const conv_t *v, int64_t column, int64_t columns,
                                                 c_run_t *c_runs)
{
    const window_t *w = &v->window;
    int many = 0;
    if (v->c_plain) {
        for (int64_t at = 0; at < columns;) {
            const int64_t n = (column + at) / w->plane, position = (column + at) % w->plane;
            const int64_t count = LEAST(w->plane - position, columns - at);
            c_runs[many++] = (c_run_t){ n * v->c_n + position, 1, (int32_t)at, (int32_t)count };
            at += count;
        }
        return many;
    }
    run_t runs[COLUMNS_MAX];
    const int run_count = list_runs(w, column, columns, runs);
    for (int i = 0; i < run_count; i++) {
        const run_t *r = &runs[i];
        const int64_t from =
            r->n * v->c_n + r->z * v->c_step[0] + r->y * v->c_step[1] + r->x * v->c_step[2];
        c_runs[many++] = (c_run_t){ from, v->c_step[2], (int32_t)r->at, (int32_t)r->count };
    }
    return many;
}

/* Let the tile read rows [row, row+rows) of A from step `step` on, where they lie or as a panel. */
static __attribute__((noinline)) void point_to_weight(const conv_t *v, int64_t row, int64_t rows,
                                                      int64_t step, int64_t depth, float *panel,
                                                      tile_t *t)
{
    t->a = v->a + row * v->a_row + step * v->a_channel;
    t->a_row = v->a_row;
    t->a_step = v->a_channel;
    if (v->window.tap_count == 1) {
        if (v->a_channel != 1)
            pack_a_f32(panel, t->a, t->a_row, t->a_step, rows, depth, &t->a_row, &t->a_step);
        else if (rows < 8 || !collide_f32(v->a_row))
            return;
        else
            pack_rows_f32(panel, A_PANEL_ROW, t->a, t->a_row, rows, depth), t->a_row = A_PANEL_ROW;
        t->a = panel;
        return;
    }
    t->a = v->a + row * v->a_row + step;
    t->a_step = 1;
    if (v->a_plain && (rows < 8 || !collide_f32(v->a_row)))
        return;
    if (v->a_plain)
        pack_rows_f32(panel, A_PANEL_ROW, t->a, t->a_row, rows, depth);
    else
        pack_weight(v, row, rows, step, depth, panel);
    t->a = panel;
    t->a_row = A_PANEL_ROW;
}

/* Elements of the rows of C, those of some runs, to the rows of a tile, or back. */
static __attribute__((noinline)) void copy_c_runs(float *copy, float *c, int64_t c_row,
                                                  int64_t rows, const c_run_t *c_runs, int many,
                                                  bool back)
{
    for (int64_t i = 0; i < rows; i++, copy += COLUMNS_MAX, c += c_row)
        for (int k = 0; k < many; k++) {
            const c_run_t *p = &c_runs[k];
            if (back)
                copy_numbers(c + p->from, p->stride, copy + p->at, 1, p->count);
            else
                copy_numbers(copy + p->at, 1, c + p->from, p->stride, p->count);
        }
}

/* A tile whose positions do not lie in whole vectors of one image: by way of a copy. */
static __attribute__((noinline)) void conv_tile_by_copy(tile_t t, int64_t rows, int64_t vecs,
                                                        const c_run_t *c_runs, int many)
{
    float copy[ROWS_MAX * COLUMNS_MAX];
    float *c = t.c;
    const int64_t c_row = t.c_row;
    if (t.accumulate)
        copy_c_runs(copy, c, c_row, rows, c_runs, many, false);
    t.c = copy;
    t.c_row = COLUMNS_MAX;
    if (!GD_SIMD_MASK_FREE)
        t.columns = vecs * LANES;
    tile_kernels_f32[rows - 1][vecs - 1](&t);
    copy_c_runs(copy, c, c_row, rows, c_runs, many, true);
}

/* Rows [row, row+rows) of C, columns [column, column+columns), one block of the depth. */
static __attribute__((noinline)) void conv_panel(const conv_t *v, int64_t row, int64_t rows,
                                                 int64_t column, int64_t columns, int64_t step,
                                                 int64_t depth, const float *packed,
                                                 float *row_panel)
{
    const bool last = step + depth == v->depth;
    tile_t t = {
        .depth = depth,
        .c_row = v->c_row,
        .row_bias = last ? v->bias + row * v->bias_step : NULL,
        .row_bias_stride = v->bias_step,
        .next_a = v->a,
        .accumulate = step > 0,
        .relu = last && v->relu,
    };
    point_to_weight(v, row, rows, step, depth, row_panel, &t);
    if (v->a_plain && row + 2 * rows <= v->m) {
        const int64_t tiles = (columns + COLUMNS_MAX - 1) / COLUMNS_MAX;
        t.next_a = v->a + (row + rows) * v->a_row + step;
        t.next_a_row = v->a_row;
        t.next_lines = (depth + LINE * tiles - 1) / (LINE * tiles);
    }
    for (int64_t j = 0; j < columns; j += COLUMNS_MAX) {
        c_run_t c_runs[COLUMNS_MAX];
        t.columns = LEAST(columns - j, COLUMNS_MAX);
        const int64_t vecs = (t.columns + LANES - 1) / LANES;
        const int many = list_c_runs(v, column + j, t.columns, c_runs);
        t.b = packed + j * depth;
        t.b_step = vecs * LANES;
        t.c = v->c + row * v->c_row;
        if (many == 1 && c_runs[0].stride == 1 &&
            (GD_SIMD_MASK_FREE || t.columns == vecs * LANES)) {
            t.c += c_runs[0].from;
            tile_kernels_f32[rows - 1][vecs - 1](&t);
        } else {
            conv_tile_by_copy(t, rows, vecs, c_runs, many);
        }
        t.next_a += t.next_lines * LINE;
    }
}

/* Where panel i of m rows begins: even heights, an odd row in the last, which is no higher. */
static int64_t panel_begin(int64_t m, int64_t i, int64_t panels)
{
    return i == panels ? m : (m / TILE_UNIT * i + panels - 1) / panels * TILE_UNIT;
}

/* Rows [row, row+m) and columns [column, column+n) of C in this thread. */
static void conv_part(const conv_t *v, int64_t row, int64_t m, int64_t column, int64_t n,
                      gd_scratch scratch)
{
    const int64_t most = block_columns_f32(v->paths);
    const int64_t block_columns = LEAST(most, (n + LANES - 1) / LANES * LANES);
    float *block = gd_scratch_take(&scratch, (size_t)(block_columns * LEAST(v->depth, GD_GEMM_KC)) *
                                                 sizeof *block);
    float *panel = gd_scratch_take(&scratch, GD_GEMM_PANEL_BYTES);
    const int64_t panels = (m + ROWS_MAX - 1) / ROWS_MAX;
    for (int64_t j = 0; j < n; j += block_columns) {
        const int64_t columns = LEAST(n - j, block_columns);
        for (int64_t step = 0; step < v->depth; step += GD_GEMM_KC) {
            const int64_t depth = LEAST(v->depth - step, GD_GEMM_KC);
            pack_window(&v->window, block, step, depth, column + j, columns);
            for (int64_t i = 0; i < panels; i++) {
                const int64_t from = panel_begin(m, i, panels), to = panel_begin(m, i + 1, panels);
                conv_panel(v, row + from, to - from, column + j, columns, step, depth, block,
                           panel);
            }
        }
    }
}

#include "backend/cpu/conv_direct.h"
#include "backend/cpu/conv_lanes.h"
#include "backend/cpu/conv_images.h"

/* No steps: C is the bias, or 0. */
static __attribute__((noinline)) void conv_fill(const conv_t *v, int64_t n)
{
    for (int64_t j = 0; j < n; j += COLUMNS_MAX) {
        c_run_t c_runs[COLUMNS_MAX];
        const int many = list_c_runs(v, j, LEAST(n - j, COLUMNS_MAX), c_runs);
        for (int64_t i = 0; i < v->m; i++) {
            const float bias = v->bias[i * v->bias_step];
            for (int k = 0; k < many; k++)
                for (int64_t x = 0; x < c_runs[k].count; x++)
                    v->c[i * v->c_row + c_runs[k].from + x * c_runs[k].stride] =
                        v->relu && bias < 0 ? 0 : bias;
        }
    }
}

typedef struct conv_work {
    const gd_conv_args *args;
    conv_t first;                                     /* of group 0 */
    int64_t group_data, group_a, group_c, group_bias; /* from one group to the next */
    int64_t n;                                        /* columns */
    bool direct, lanes, images;                       /* the path; else by packing */
    band_t band;                                      /* of those two */
    int64_t row_parts, column_parts;
} conv_work;

static void conv_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_work *work = context;
    const gd_scratch scratch = gd_scratch_of_thread(&work->args->workspace, thread);
    const int64_t parts = work->row_parts * work->column_parts;
    for (int64_t index = begin; index < end; index++) {
        const int64_t group = index / parts, i = index % parts / work->column_parts,
                      j = index % work->column_parts;
        conv_t v = work->first;
        v.window.data += group * work->group_data;
        v.a += group * work->group_a;
        v.c += group * work->group_c;
        v.bias += group * work->group_bias;
        const int64_t row = v.m * i / work->row_parts;
        const int64_t m = v.m * (i + 1) / work->row_parts - row;
        const bool by_lines = work->direct || work->lanes;
        const int64_t images = work->args->s.n;
        const int64_t tiles = work->images ? (images + IMAGES - 1) / IMAGES * v.window.count[1]
                              : by_lines   ? work->n / v.window.count[2]
                                           : (work->n + COLUMNS_MAX - 1) / COLUMNS_MAX;
        const int64_t tile = tiles * j / work->column_parts,
                      tile_end = tiles * (j + 1) / work->column_parts;
        if (m <= 0 || tile_end <= tile)
            continue;
        if (GD_SIMD_FUSED && work->images) {
            images_part(&v, images, tile, tile_end - tile, scratch);
        } else if (work->lanes) {
            lanes_part(&v, &work->band, tile, tile_end - tile, scratch);
        } else if (work->direct) {
            direct_part(&v, &work->band, row, m, tile, tile_end - tile, scratch);
        } else {
            const int64_t column = tile * COLUMNS_MAX,
                          column_end = LEAST(tile_end * COLUMNS_MAX, work->n);
            conv_part(&v, row, m, column, column_end - column, scratch);
        }
    }
}

static void conv_run(conv_work *work)
{
    const conv_t *v = &work->first;
    const int64_t groups = work->args->s.groups;
    if (v->m == 0 || work->n == 0)
        return;
    if (v->depth == 0) {
        for (int64_t g = 0; g < groups; g++) {
            conv_t one = *v;
            one.c += g * work->group_c;
            one.bias += g * work->group_bias;
            conv_fill(&one, work->n);
        }
        return;
    }
    const gd_gemm_args size = {
        .m = v->m, .n = work->n, .k = v->depth, .threads = work->args->threads
    };
    const int threads = gd_gemm_threads(&size, groups);
    work->lanes = !work->images && use_lanes(v, &work->band);
    work->direct = !work->images && !work->lanes && use_direct(v, &work->band);
    gd_gemm_divide(v->m, work->n, LANES, groups, threads, &work->row_parts, &work->column_parts);
    if (work->images || work->lanes) { /* which takes all rows together */
        work->column_parts *= work->row_parts;
        work->row_parts = 1;
    }
    gd_parallel_for(threads, groups * work->row_parts * work->column_parts, 1, conv_pieces, work);
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

void GD_ISA_NAME(gd_conv_forward_f32)(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t *stride = args->attr->stride;
    const bool full = gd_conv_may_choose(args->paths) && s->out[2] == 16 && s->taps < 16 &&
                      stride[1] * stride[2] == 1; /* vectors */
    const bool images = !full && use_images(args, s->o, s->c * s->in_plane, s->out[2]);
#if defined(GD_ISA_AVX512_BUILD)
    if (args->paths->conv == GD_CONV_NARROW ||
        (!images && is_narrow(args, s->o, s->c * s->taps, s->out[2]))) {
        gd_conv_forward_f32_avx2(args);
        return;
    }
#endif
    conv_work work = { .args = args,
                       .group_data = s->c * s->in_plane,
                       .group_a = s->o * s->c * s->taps,
                       .group_c = s->o * s->out_plane,
                       .group_bias = args->bias ? s->o : 0,
                       .n = s->n * s->out_plane,
                       .images = images };
    conv_t *v = &work.first;
    v->paths = args->paths;
    set_forward_window(args, args->a, &v->window);
    v->m = s->o;
    v->depth = s->c * s->taps;
    v->a = args->b;
    v->a_row = v->depth;
    v->a_channel = s->taps;
    v->taps_plain = v->a_plain = true;
    v->c = args->out;
    v->c_row = s->out_plane;
    v->c_n = s->groups * s->o * s->out_plane;
    v->c_plain = true;
    v->c_step[2] = 1;
    v->c_step[1] = s->out[2];
    v->c_step[0] = s->out[1] * s->out[2];
    v->bias = args->bias ? args->bias : &no_bias;
    v->bias_step = args->bias ? 1 : 0;
    v->relu = args->attr->relu != 0;
    conv_run(&work);
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

/* Elements first, first + stride, … of each axis of x's gradient: those that the same taps reach.
 */
static void conv_grad_phase(conv_work *work, const int64_t first[GD_SPATIAL])
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    const gd_conv_attr *attr = args->attr;
    conv_t *v = &work->first;
    window_t *w = &v->window;
    int64_t in_step = 1, tap_step = 1, tap_first = 0, c_first = 0;
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
        v->a_tap[a] = every * tap_step;
        v->c_step[a] = stride * in_step;
        tap_first += tap * tap_step;
        c_first += first[a] * in_step;
        tap_step *= s->kernel[a];
        in_step *= s->in[a];
    }
    v->depth = s->o * w->tap_count;
    v->a = args->b + tap_first;
    v->taps_plain = w->tap_count == s->taps;
    v->c = args->out + c_first;
    v->c_plain = attr->stride[0] * attr->stride[1] * attr->stride[2] == 1;
    work->n = s->n * w->plane;
    conv_run(work);
}

void GD_ISA_NAME(gd_conv_grad_input_f32)(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t *stride = args->attr->stride;
    const bool images = stride[0] * stride[1] * stride[2] == 1 &&
                        use_images(args, s->c, s->o * s->out_plane, s->in[2]);
#if defined(GD_ISA_AVX512_BUILD)
    if (args->paths->conv == GD_CONV_NARROW ||
        (!images && is_narrow(args, s->c, s->o * s->taps, s->in[2]))) {
        gd_conv_grad_input_f32_avx2(args);
        return;
    }
#endif
    conv_work work = { .args = args,
                       .group_data = s->o * s->out_plane,
                       .group_a = s->o * s->c * s->taps,
                       .group_c = s->c * s->in_plane,
                       .images = images };
    conv_t *v = &work.first;
    v->paths = args->paths;
    v->bias = &no_bias;
    v->window.data = args->a;
    v->window.n_stride = s->groups * s->o * s->out_plane;
    v->window.c_stride = s->out_plane;
    v->m = s->c;
    v->a_row = s->taps;
    v->a_channel = s->c * s->taps;
    v->c_row = s->in_plane;
    v->c_n = s->groups * s->c * s->in_plane;
    int64_t first[GD_SPATIAL];
    for (first[0] = 0; first[0] < LEAST(stride[0], s->in[0]); first[0]++)
        for (first[1] = 0; first[1] < LEAST(stride[1], s->in[1]); first[1]++)
            for (first[2] = 0; first[2] < LEAST(stride[2], s->in[2]); first[2]++)
                conv_grad_phase(&work, first);
}
