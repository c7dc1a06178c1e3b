/* backend/cpu/conv_driver.c: convolution and its gradient by the input (conv.h), for all instruction
 * sets, in f32 and bf16: threads, and what is given to each way. conv_choose.c chooses; the gradient
 * by the weight in f32 is conv_weight.c. Start at gd_conv_forward, at the end.
 *
 * Where windows are packed it is a product of gemm_driver.c, whose packers read the image:
 *     Y[o, positions]  = W[o, channel and tap]  @ window[channel and tap, positions]
 *     dX[c, positions] = W[c, channel and tap]  @ window of dY, a product for each phase of the stride
 *     dW[o, channel and tap] = dY[o, positions] @ window[channel and tap, positions]^T
 * Groups are a batch.
 */
#include "backend/cpu/conv_plan.h"
#include "base/threads.h"

#include <string.h>

static const float no_bias = 0; /* at steps of 0 */

typedef struct conv_work {
    const gd_conv_args *args;
    gd_conv_product first;                            /* of group 0 */
    int64_t group_data, group_a, group_c, group_bias; /* from one group to the next */
    int64_t n;                                        /* columns */
    bool images;                                      /* may be images in the lanes */
    gd_conv_choice choice;
    int64_t row_parts, column_parts;
} conv_work;

static int find_columns(const gd_gemm_access *access, int64_t column, int64_t columns,
                        gd_gemm_stretch *runs)
{
    const gd_conv_access *v = (const gd_conv_access *)access;
    return gd_conv_place_runs(&v->window, &v->place, column, columns, runs);
}

/* No steps: C is the bias, or 0. */
static void fill(const gd_conv_product *v, int64_t n)
{
    const gd_conv_access *access = &v->access;
    for (int64_t j = 0; j < n; j += GD_GEMM_RUNS) {
        gd_gemm_stretch runs[GD_GEMM_RUNS];
        const int many = gd_conv_place_runs(&access->window, &access->place, j,
                                            gd_gemm_least(n - j, GD_GEMM_RUNS), runs);
        for (int64_t i = 0; i < v->m; i++) {
            const float bias = v->bias[i * v->bias_step];
            for (int k = 0; k < many; k++)
                for (int64_t x = 0; x < runs[k].count; x++)
                    v->c[i * v->c_row + runs[k].from + x * runs[k].stride] =
                        v->relu && bias < 0 ? 0 : bias;
        }
    }
}

/* The product of a group with index `group`. */
static gd_conv_product product_of(const conv_work *work, int64_t group)
{
    gd_conv_product v = work->first;
    v.image = gd_gemm_at(v.image, group * work->group_data, v.tiles->b_bytes);
    v.a = gd_gemm_at(v.a, group * work->group_a, v.tiles->a_bytes);
    v.c += group * work->group_c;
    v.bias += group * work->group_bias;
    return v;
}

/* ---- by products ---- */

/* What gemm_driver.c is told, besides the operands. */
static gd_gemm_args gemm_args(const gd_conv_args *args, bool relu)
{
    return (gd_gemm_args){
        .relu = relu, .threads = args->threads, .paths = args->paths, .workspace = args->workspace
    };
}

/* The scratch of a product, or the way in words. */
static void answer(const gd_conv_args *args, const gd_gemm_micro *tiles,
                   const gd_gemm_args *product, const char *what, const char *why)
{
    gd_gemm_plan plan;
    if (!gd_gemm_choose(tiles, product, &plan))
        return;
    if (args->scratch) {
        gd_conv_raise(args, gd_gemm_plan_scratch(tiles, &plan));
        return;
    }
    gd_text_add(args->explain, "%s%s: ", what, why);
    gd_gemm_explain(tiles, &plan, args->explain);
}

/* A product for each image of a group, C^T [plane, m] = image^T @ A^T. */
static void run_product(const conv_work *work)
{
    const gd_conv_args *args = work->args;
    const gd_conv_product *first = &work->first;
    const gd_window *w = &first->access.window;
    gd_gemm_args product = gemm_args(args, first->relu);
    product.m = w->plane, product.n = first->m, product.k = first->depth;
    product.a_row_stride = 1, product.a_col_stride = w->c_stride;
    product.b_row_stride = first->a_plain ? 1 : first->access.a_channel;
    product.b_col_stride = first->a_row;
    product.c_row_stride = 1, product.c_col_stride = first->c_row;
    product.batch_rank = 1;
    product.batch_shape[0] = args->s.n;
    product.a_batch_stride[0] = w->n_stride;
    product.c_batch_stride[0] = first->access.place.n;
    product.bias_stride = first->bias_step;
    for (int64_t g = 0; g < args->s.groups; g++) {
        const gd_conv_product v = product_of(work, g);
        product.a = v.image, product.b = v.a, product.c = v.c, product.bias = v.bias;
        if (gd_conv_is_asked(args)) {
            if (args->explain && args->s.groups > 1)
                gd_text_add(args->explain, "%lld times ", (long long)args->s.groups);
            answer(args, v.tiles, &product, "a product, ", work->choice.why);
            return;
        }
        gd_gemm(v.tiles, &product);
    }
}

static const char *packing_name(const gd_conv_micro *micro)
{
    return micro->name ? micro->name : "packing: ";
}

/* One product whose B is the image seen through windows. */
static void run_packing(const conv_work *work)
{
    const gd_conv_args *args = work->args;
    const gd_conv_product *v = &work->first;
    gd_conv_access access = v->access;
    access.base = (gd_gemm_access){ .stage_bytes = v->micro->stage_bytes,
                                    .pack_b = v->micro->pack_windows,
                                    .find_c = find_columns };
    const bool in_rows = v->a_plain || access.window.tap_count == 1; /* steps are equally far */
    if (!in_rows)
        access.base.pack_a = v->micro->pack_weight;
    gd_gemm_args product = gemm_args(args, v->relu);
    product.m = v->m, product.n = work->n, product.k = v->depth;
    product.a = v->a, product.a_row_stride = v->a_row;
    product.a_col_stride = v->a_plain ? 1 : in_rows ? access.a_channel : 0;
    product.b = v->image;
    product.c = v->c, product.c_row_stride = v->c_row;
    product.batch_rank = 1;
    product.batch_shape[0] = args->s.groups;
    product.a_batch_stride[0] = work->group_a;
    product.b_batch_stride[0] = work->group_data;
    product.c_batch_stride[0] = work->group_c;
    product.access = &access.base;
    product.bias = v->bias, product.bias_stride = v->bias_step;
    if (gd_conv_is_asked(args))
        answer(args, v->tiles, &product, packing_name(v->micro), work->choice.why);
    else
        gd_gemm(v->tiles, &product);
}

/* ---- by ways of their own ---- */

/* Rows of positions of all images: what these ways divide over threads. */
static int64_t lines_of(const conv_work *work)
{
    const gd_window *w = &work->first.access.window;
    const int64_t images = work->args->s.n, most = work->first.micro->images;
    if (work->choice.way == GD_CONV_BY_WINOGRAD)
        return work->choice.winograd.all_strips;
    return work->choice.way == GD_CONV_BY_IMAGES ? (images + most - 1) / most * w->count[1]
                                                 : work->n / w->count[2];
}

/* Part `i` of the rows of C: [*row, *row + the result). */
static int64_t rows_of(const conv_work *work, int64_t i, int64_t *row)
{
    const int64_t m = work->first.m, each = work->choice.winograd.rows;
    if (work->choice.way == GD_CONV_BY_WINOGRAD) {
        *row = i * each;
        return gd_gemm_least(m - *row, each);
    }
    *row = m * i / work->row_parts;
    return m * (i + 1) / work->row_parts - *row;
}

static void run_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_work *work = context;
    const gd_scratch scratch = gd_scratch_of_thread(&work->args->workspace, thread);
    const int64_t parts = work->row_parts * work->column_parts, lines = lines_of(work);
    for (int64_t index = begin; index < end; index++) {
        const int64_t j = index % work->column_parts;
        const gd_conv_product v = product_of(work, index / parts);
        int64_t row;
        const int64_t m = rows_of(work, index % parts / work->column_parts, &row);
        const int64_t line = lines * j / work->column_parts;
        const int64_t count = lines * (j + 1) / work->column_parts - line;
        if (m <= 0 || count <= 0)
            continue;
        if (work->choice.way == GD_CONV_BY_WINOGRAD)
            gd_conv_winograd_rows(&v, &work->choice.winograd, row, m, line, count, scratch);
        else if (work->choice.way == GD_CONV_BY_IMAGES)
            gd_conv_images(&v, work->args->s.n, line, count, scratch);
        else
            gd_conv_direct(&v, &work->choice.band, row, m, line, count, scratch);
    }
}

/* The way and why, in words. */
static void explain(const conv_work *work, int threads)
{
    static const char *const names[] = {
        [GD_CONV_BY_BANDS] = "bands",
        [GD_CONV_BY_IMAGES] = "images in the lanes",
        [GD_CONV_BY_WINOGRAD] = "Winograd's F(4 x 4, 3 x 3)",
    };
    const gd_conv_product *v = &work->first;
    gd_text *text = work->args->explain;
    if (work->args->s.groups > 1)
        gd_text_add(text, "%lld times ", (long long)work->args->s.groups);
    gd_text_add(text, "%lld x %lld x %lld by %s: %s; vectors of %d; %d thread%s", (long long)v->m,
                (long long)v->depth, (long long)work->n, names[work->choice.way], work->choice.why,
                v->tiles->lanes, threads, threads == 1 ? "" : "s");
    if (work->row_parts * work->column_parts > 1)
        gd_text_add(text, ", %lld x %lld pieces", (long long)work->row_parts,
                    (long long)work->column_parts);
}

/* The scratch of the largest piece. */
static void raise_scratch(const conv_work *work, int threads)
{
    const gd_conv_product *v = &work->first;
    const gd_conv_choice *choice = &work->choice;
    const size_t bytes =
        choice->way == GD_CONV_BY_WINOGRAD ? gd_conv_winograd_bytes(v, &choice->winograd)
        : choice->way == GD_CONV_BY_IMAGES ? gd_conv_images_bytes(v)
                                           : gd_conv_direct_bytes(v, &choice->band);
    const int64_t pieces = work->args->s.groups * work->row_parts * work->column_parts;
    gd_conv_raise(work->args, (gd_workspace){ NULL, gd_scratch_bytes(bytes, GD_CONV_SCRATCH_BLOCKS),
                                              gd_parallel_ranges(threads, pieces, 1) });
}

static void run_own(conv_work *work)
{
    const gd_conv_args *args = work->args;
    const gd_conv_product *v = &work->first;
    const int64_t groups = args->s.groups;
    const gd_gemm_args size = { .m = v->m, .n = work->n, .k = v->depth, .threads = args->threads };
    const int threads = gd_gemm_threads(&size, groups);
    const gd_gemm_work products = { v->m, work->n, groups, v->tiles->lanes, v->tiles->packing };
    gd_gemm_divide(&products, threads, &work->row_parts, &work->column_parts);
    if (work->choice.way == GD_CONV_BY_WINOGRAD) { /* whose rows are divided in any case */
        work->row_parts = work->choice.winograd.row_parts;
        work->column_parts = groups * work->row_parts % threads == 0 ? 1 : threads;
    } else if (work->choice.way == GD_CONV_BY_IMAGES) { /* which takes all rows together */
        work->column_parts *= work->row_parts;
        work->row_parts = 1;
    }
    if (args->explain)
        explain(work, threads);
    else if (args->scratch)
        raise_scratch(work, threads);
    else
        gd_parallel_for(threads, groups * work->row_parts * work->column_parts, 1, run_pieces,
                        work);
}

static void run(conv_work *work)
{
    const gd_conv_product *v = &work->first;
    const int64_t groups = work->args->s.groups;
    if (v->m == 0 || work->n == 0)
        return;
    if (v->depth == 0) {
        for (int64_t g = 0; g < groups && !gd_conv_is_asked(work->args); g++) {
            const gd_conv_product one = product_of(work, g);
            fill(&one, work->n);
        }
        return;
    }
    gd_conv_choose(work->args, v, work->images, &work->choice);
    if (work->choice.way == GD_CONV_BY_PRODUCT)
        run_product(work);
    else if (work->choice.way == GD_CONV_BY_PACKING)
        run_packing(work);
    else
        run_own(work);
}

/* ---- the ops ---- */

static const gd_gemm_micro *tiles_of(const gd_conv_args *args)
{
    return args->micro->product ? args->micro->product : args->product;
}

void gd_conv_forward(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t numbers = s->c * s->in_plane, width = s->out[2], depth = s->c * s->taps;
    conv_work work = { .args = args,
                       .group_data = numbers,
                       .group_a = s->o * depth,
                       .group_c = s->o * s->out_plane,
                       .group_bias = args->bias ? s->o : 0,
                       .n = s->n * s->out_plane,
                       .images = gd_conv_takes_images(args, s->o, numbers, width) };
    gd_conv_product *v = &work.first;
    v->micro = args->micro;
    v->tiles = tiles_of(args);
    v->paths = args->paths;
    gd_conv_forward_window(args, &v->access.window);
    gd_conv_forward_place(s, &v->access.place);
    v->access.a_channel = s->taps;
    v->access.taps_plain = v->a_plain = true;
    v->image = args->a;
    v->m = s->o;
    v->depth = depth;
    v->a = args->b;
    v->a_row = depth;
    v->c = args->out;
    v->c_row = s->out_plane;
    v->bias = args->bias ? args->bias : &no_bias;
    v->bias_step = args->bias ? 1 : 0;
    v->relu = args->attr->relu != 0;
    run(&work);
}

/* Elements first, first + stride, … of each axis of x's gradient: those that the same taps reach. */
static void run_phase(conv_work *work, const int64_t first[GD_SPATIAL])
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    gd_conv_product *v = &work->first;
    gd_window *w = &v->access.window;
    const gd_conv_phase phase = gd_conv_phase_of(args, first, w, &v->access.place);
    memcpy(v->access.a_tap, phase.a_tap, sizeof v->access.a_tap);
    v->access.taps_plain = w->tap_count == s->taps;
    v->depth = s->o * w->tap_count;
    v->a = gd_gemm_at(args->b, phase.tap_first, v->tiles->a_bytes);
    v->c = args->out + phase.c_first;
    work->n = s->n * w->plane;
    run(work);
}

void gd_conv_grad_input(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t *stride = args->attr->stride;
    const int64_t numbers = s->o * s->out_plane, width = s->in[2];
    const bool steps = stride[0] * stride[1] * stride[2] > 1;
    conv_work work = { .args = args,
                       .group_data = numbers,
                       .group_a = s->o * s->c * s->taps,
                       .group_c = s->c * s->in_plane,
                       .images = !steps && gd_conv_takes_images(args, s->c, numbers, width) };
    gd_conv_product *v = &work.first;
    v->micro = args->micro;
    v->tiles = tiles_of(args);
    v->paths = args->paths;
    v->access.window.n_stride = s->groups * numbers;
    v->access.window.c_stride = s->out_plane;
    v->access.a_channel = s->c * s->taps;
    v->bias = &no_bias;
    v->image = args->a;
    v->m = s->c;
    v->a_row = s->taps;
    v->c_row = s->in_plane;
    int64_t phases[GD_SPATIAL];
    for (int a = 0; a < GD_SPATIAL; a++)
        phases[a] = gd_gemm_least(stride[a], s->in[a]);
    const int64_t count = phases[0] * phases[1] * phases[2];
    const size_t told = args->explain ? args->explain->length : 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t first[GD_SPATIAL] = { i / phases[2] / phases[1], i / phases[2] % phases[1],
                                            i % phases[2] };
        run_phase(&work, first);
        if (args->explain && args->explain->length > told) {
            if (count > 1)
                gd_text_add(args->explain, "; so each %lldth element, and the others likewise",
                            (long long)count);
            return;
        }
    }
}

/* Each kernel position is a step, and window rows are columns. */
static void grad_weight_by_product(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t rows = s->c * s->taps;
    const gd_conv_micro *micro = args->micro;
    const gd_gemm_micro *tiles = tiles_of(args);
    gd_conv_access access = { .base = { .stage_bytes = micro->stage_bytes,
                                        .pack_a = micro->pack_gradient,
                                        .pack_b = micro->pack_transposed_windows },
                              .g_n = s->groups * s->o * s->out_plane };
    gd_conv_forward_window(args, &access.window);
    gd_gemm_args product = gemm_args(args, false);
    product.m = s->o, product.n = rows, product.k = s->n * s->out_plane;
    product.a = args->a, product.a_row_stride = s->out_plane;
    product.b = args->b;
    product.c = args->out, product.c_row_stride = rows, product.c_col_stride = 1;
    product.batch_rank = 1;
    product.batch_shape[0] = s->groups;
    product.a_batch_stride[0] = s->o * s->out_plane;
    product.b_batch_stride[0] = s->c * s->in_plane;
    product.c_batch_stride[0] = s->o * rows;
    product.access = &access.base;
    if (gd_conv_is_asked(args))
        answer(args, tiles, &product, packing_name(micro), "the only way");
    else
        gd_gemm(tiles, &product);
}

void gd_conv_grad_weight(const gd_conv_args *args)
{
    const gd_conv_sizes *s = &args->s;
    const int64_t numbers = s->groups * s->o * s->c * s->taps;
    if (numbers == 0)
        return;
    if (s->n * s->out_plane == 0) {
        if (!gd_conv_is_asked(args))
            memset(args->out, 0, (size_t)numbers * sizeof *args->out);
        return;
    }
    if (args->micro->pack_gradient)
        grad_weight_by_product(args);
    else
        gd_conv_weight(args, gd_conv_choose_weight_lanes(args));
}
