/* backend/cpu/conv_isa.c: convolution in f32 and its gradient by the input (conv.h), compiled once
 * per instruction set: threads, and which way. The ways are conv_packed.h, conv_direct.h,
 * conv_lanes.h and conv_images.h; the gradient by the weight is conv_weight_isa.c. Start at
 * GD_ISA_NAME(gd_conv_forward_f32).
 */
#include "backend/cpu/conv_direct.h"
#include "backend/cpu/conv_images.h"
#include "backend/cpu/conv_lanes.h"
#include "backend/cpu/conv_packed.h"
#include "backend/cpu/gemm_plan.h"
#include "base/threads.h"

#include <string.h>

/* No steps: C is the bias, or 0. */
static __attribute__((noinline)) void conv_fill(const conv_t *v, int64_t n)
{
    for (int64_t j = 0; j < n; j += COLUMNS_MAX) {
        gd_gemm_stretch c_runs[COLUMNS_MAX];
        const int many = list_c_runs(&v->window, &v->place, j, LEAST(n - j, COLUMNS_MAX), c_runs);
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

/* The largest piece, by the path that was chosen. */
static void conv_need(const conv_work *work, int threads)
{
    const conv_t *v = &work->first;
    const int64_t tiles = (work->n + COLUMNS_MAX - 1) / COLUMNS_MAX, parts = work->column_parts;
    const size_t bytes = work->images   ? images_bytes(v)
                         : work->lanes  ? lanes_bytes(v, &work->band)
                         : work->direct ? direct_bytes(v, &work->band)
                                        : conv_bytes(v, (tiles + parts - 1) / parts * COLUMNS_MAX);
    const int64_t pieces = work->args->s.groups * work->row_parts * parts;
    gd_conv_raise(work->args, (gd_workspace){ NULL, gd_scratch_bytes(bytes, GD_CONV_SCRATCH_BLOCKS),
                                              gd_parallel_ranges(threads, pieces, 1) });
}

/* The path and why, in words. */
static void conv_explain(const conv_work *work, int threads, const char *why)
{
    const conv_t *v = &work->first;
    gd_text *text = work->args->explain;
    const char *way = work->images   ? "images in the lanes"
                      : work->lanes  ? "channels in the lanes"
                      : work->direct ? "bands"
                                     : "packing";
    if (work->args->s.groups > 1)
        gd_text_add(text, "%lld times ", (long long)work->args->s.groups);
    gd_text_add(text, "%lld x %lld x %lld by %s: %s; vectors of %d; %d thread%s", (long long)v->m,
                (long long)v->depth, (long long)work->n, way, why, LANES, threads,
                threads == 1 ? "" : "s");
    if (work->row_parts * work->column_parts > 1)
        gd_text_add(text, ", %lld x %lld pieces", (long long)work->row_parts,
                    (long long)work->column_parts);
}

/* Chooses the path; says why. */
static const char *conv_choose(conv_work *work)
{
    const conv_t *v = &work->first;
    if (work->images)
        return "small images fill vectors, and taps in the padding are left out, unless a weight "
               "is not finite";
    work->lanes = use_lanes(v, &work->band);
    if (work->lanes)
        return "few channels and short rows";
    const gd_gemm_choice direct = choose_direct(v, &work->band);
    work->direct = direct.taken;
    return direct.why;
}

/* Where each window is one element of the image, and the planes of all images fill vectors: the
 * product C^T [plane, m] = image^T [plane, depth] @ A^T for each image. Products pack what they read
 * while they multiply: on Emerald Rapids a 1 x 1 convolution from 256 to 64 channels of 56 x 56
 * takes 0.72 of the time that packing windows needs. */
static bool use_product(const conv_t *v)
{
    const window_t *w = &v->window;
    return gd_conv_may_choose(v->paths) && v->place.plain && is_plain(w) &&
           (w->plane % LANES == 0 || w->plane >= 16 * LANES);
}

static void conv_product(const conv_work *work)
{
    const conv_t *v = &work->first;
    const gd_conv_args *args = work->args;
    gd_gemm_args product = { .m = v->window.plane,
                             .n = v->m,
                             .k = v->depth,
                             .a = v->window.data,
                             .a_row_stride = 1,
                             .a_col_stride = v->window.c_stride,
                             .b = v->a,
                             .b_row_stride = v->a_channel,
                             .b_col_stride = v->a_row,
                             .c = v->c,
                             .c_row_stride = 1,
                             .c_col_stride = v->c_row,
                             .batch_rank = 1,
                             .batch_shape = { args->s.n },
                             .a_batch_stride = { v->window.n_stride },
                             .c_batch_stride = { v->place.n },
                             .bias = v->bias,
                             .bias_stride = v->bias_step,
                             .relu = v->relu,
                             .threads = args->threads,
                             .paths = args->paths,
                             .workspace = args->workspace };
    gd_gemm_plan plan;
    if (gd_conv_is_asked(args) && !gd_gemm_choose(&PRODUCTS, &product, &plan))
        return;
    if (args->scratch) {
        gd_conv_raise(args, gd_gemm_plan_scratch(&PRODUCTS, &plan));
        return;
    }
    if (args->explain) {
        if (args->s.groups > 1)
            gd_text_add(args->explain, "%lld times ", (long long)args->s.groups);
        gd_text_add(args->explain, "a product, a window being one element: ");
        gd_gemm_explain(&PRODUCTS, &plan, args->explain);
        return;
    }
    for (int64_t g = 0; g < args->s.groups; g++) {
        product.a = v->window.data + g * work->group_data;
        product.b = v->a + g * work->group_a;
        product.c = v->c + g * work->group_c;
        product.bias = v->bias + g * work->group_bias;
        gd_gemm(&PRODUCTS, &product);
    }
}

static void conv_run(conv_work *work)
{
    const conv_t *v = &work->first;
    const int64_t groups = work->args->s.groups;
    if (v->m == 0 || work->n == 0)
        return;
    if (v->depth == 0 && gd_conv_is_asked(work->args))
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
    if (!work->images && use_product(v)) {
        conv_product(work);
        return;
    }
    const gd_gemm_args size = {
        .m = v->m, .n = work->n, .k = v->depth, .threads = work->args->threads
    };
    const int threads = gd_gemm_threads(&size, groups);
    const char *why = conv_choose(work);
    gd_gemm_divide(v->m, work->n, LANES, groups, gd_gemm_pieces(&size, groups, threads),
                   &work->row_parts, &work->column_parts);
    if (work->images || work->lanes) { /* which takes all rows together */
        work->column_parts *= work->row_parts;
        work->row_parts = 1;
    }
    if (work->args->explain) {
        conv_explain(work, threads, why);
        return;
    }
    if (work->args->scratch) {
        conv_need(work, threads);
        return;
    }
    gd_parallel_for(threads, groups * work->row_parts * work->column_parts, 1, conv_pieces, work);
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
    set_forward_window(args, &v->window);
    v->window.data = args->a;
    v->m = s->o;
    v->depth = s->c * s->taps;
    v->a = args->b;
    v->a_row = v->depth;
    v->a_channel = s->taps;
    v->taps_plain = v->a_plain = true;
    v->c = args->out;
    v->c_row = s->out_plane;
    set_forward_place(s, &v->place);
    v->bias = args->bias ? args->bias : &no_bias;
    v->bias_step = args->bias ? 1 : 0;
    v->relu = args->attr->relu != 0;
    conv_run(&work);
}

/* Elements first, first + stride, … of each axis of x's gradient: those that the same taps reach.
 */
static void conv_grad_phase(conv_work *work, const int64_t first[GD_SPATIAL])
{
    const gd_conv_args *args = work->args;
    const gd_conv_sizes *s = &args->s;
    conv_t *v = &work->first;
    const window_t *w = &v->window;
    const phase_t phase = set_phase(args, first, &v->window, &v->place);
    memcpy(v->a_tap, phase.a_tap, sizeof v->a_tap);
    v->depth = s->o * w->tap_count;
    v->a = (const float *)args->b + phase.tap_first;
    v->taps_plain = w->tap_count == s->taps;
    v->c = args->out + phase.c_first;
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
    int64_t phases[GD_SPATIAL];
    for (int a = 0; a < GD_SPATIAL; a++)
        phases[a] = LEAST(stride[a], s->in[a]);
    const int64_t count = phases[0] * phases[1] * phases[2];
    const size_t told = args->explain ? args->explain->length : 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t first[GD_SPATIAL] = { i / phases[2] / phases[1], i / phases[2] % phases[1],
                                            i % phases[2] };
        conv_grad_phase(&work, first);
        if (args->explain && args->explain->length > told) {
            if (count > 1)
                gd_text_add(args->explain, "; so each %lldth element, and the others likewise",
                            (long long)count);
            return;
        }
    }
}
