/* backend/cpu/conv_weight_band.h: the gradient of a convolution's weight where the windows overlap:
 * the part of the image that a block of positions sees is copied once, with its padding, to a band,
 * and the micro-kernel reads every window row out of it, at an address of its own. So no row is
 * packed, of which there are as many copies of the image as taps.
 * The micro-kernel is in conv_band_tile.h. Start at multiply_band.
 */
#ifndef GD_BACKEND_CPU_CONV_WEIGHT_BAND_H
#define GD_BACKEND_CPU_CONV_WEIGHT_BAND_H

#include "backend/cpu/conv_band_tile.h"
#include "backend/cpu/conv_copy.h"

/* Part of the gradient of one group: window rows [row, row+m), output channels [column, column+n).
 */
typedef struct weight_part {
    const window_t *window;
    const float *g; // [n, o, plane], of the group
    int64_t g_n;    /* from image to image */
    float *out;     // [o, channels * taps]
    int64_t out_row;
    int64_t row, m, column, n, positions;
    float *block, *panel, *sums; // G^T; window rows; [m, n in whole vectors]
    int64_t sums_row;
    const gd_paths *paths;
} weight_part;

typedef struct weight_band {
    float *data;               // [channels, plane]
    int64_t channel, channels; /* those that the part's rows read */
    int64_t row, plane;        /* numbers from row to row, from channel to channel */
    run_t runs[GD_GEMM_KC];
    stretch_t stretches[GD_GEMM_KC];
    int many;
} weight_band;

/* Whether the part is for this path: two axes, more than one tap, and room behind the block. */
static bool shape_weight_band(const weight_part *part, weight_band *b)
{
    const window_t *w = part->window;
    if (part->paths->conv == GD_CONV_PACKED || w->taps[0] != 1 || w->count[0] != 1 ||
        w->size[0] != 1 || w->first[0] != 0 || w->tap_count < 2)
        return false;
    b->channel = part->row / w->tap_count;
    b->channels = (part->row + part->m - 1) / w->tap_count + 1 - b->channel;
    b->row = (w->count[2] - 1) * w->step[2] + (w->taps[2] - 1) * w->gap[2] + 1;
    const int64_t images = (GD_GEMM_KC - 1) / w->plane + 2; /* at most, in a block */
    const int64_t lines = (GD_GEMM_KC - 1) / w->count[2] + 2;
    b->plane =
        (lines * w->step[1] + LEAST(images, lines) * ((w->taps[1] - 1) * w->gap[1] + 1)) * b->row;
    b->plane = (b->plane + LINE - 1) / LINE * LINE + LINE;
    const int64_t room = (int64_t)(part->paths->block_bytes / sizeof(float));
    return b->channels * b->plane <= room - GD_GEMM_KC * part->sums_row;
}

/* Row y of a plane of the image, with its padding; rows are filled in ascending order. */
static void copy_padded_row(const window_t *w, const float *plane, int64_t y, int64_t width,
                            float *to)
{
    const int64_t before = w->first[2] < 0 ? LEAST(-w->first[2], width) : 0;
    const int64_t room = w->size[2] - w->first[2];
    int64_t end = room < before ? before : LEAST(room, width);
    if (y < 0 || y >= w->size[1])
        end = before;
    zero_over(to, before);
    copy_run(to + before, plane + y * w->size[2] + w->first[2] + before, end - before);
    zero_over(to + end, width - end);
}

/* What positions [position, position+depth) see. */
static void fill_weight_band(const window_t *w, weight_band *b, int64_t position, int64_t depth)
{
    b->many = list_runs(w, position, depth, b->runs);
    int64_t line = 0;
    for (int first = 0, last; first < b->many; first = last + 1) {
        const run_t *run = &b->runs[first];
        for (last = first; last + 1 < b->many && b->runs[last + 1].n == run->n;)
            last++;
        for (int i = first; i <= last; i++) {
            const run_t *r = &b->runs[i];
            b->stretches[i].from =
                (line + (r->y - run->y) * w->step[1]) * b->row + r->x * w->step[2];
            b->stretches[i].count = r->count;
        }
        const int64_t height =
            (b->runs[last].y - run->y) * w->step[1] + (w->taps[1] - 1) * w->gap[1] + 1;
        const float *plane = w->data + run->n * w->n_stride + b->channel * w->c_stride;
        for (int64_t c = 0; c < b->channels; c++, plane += w->c_stride)
            for (int64_t i = 0; i < height; i++)
                copy_padded_row(w, plane, run->y * w->step[1] + w->first[1] + i, b->row,
                                b->data + c * b->plane + (line + i) * b->row);
        line += height;
    }
}

/* One block of positions: all rows of the part against all columns. Rows beyond the last are
 * computed as the last one is, into sums that nobody reads. */
static void multiply_band(const weight_part *part, weight_band *band, int64_t position,
                          int64_t depth)
{
    const window_t *w = part->window;
    fill_weight_band(w, band, position, depth);
    band_tile_t t = { .band = band->data,
                      .stretches = band->stretches,
                      .many = band->many,
                      .step = w->step[2],
                      .c_row = part->sums_row,
                      .accumulate = position > 0 };
    for (int64_t j = 0; j < part->sums_row; j += COLUMNS_MAX) {
        int64_t height;
        const band_fn kernel = choose_band_tile(part->sums_row - j, &height);
        int64_t channel = part->row / w->tap_count - band->channel, tx = part->row % w->taps[2],
                ty = part->row % w->tap_count / w->taps[2];
        t.b = part->block + j * depth;
        for (int64_t i = 0; i < part->m; i += height) {
            for (int64_t k = 0; k < height; k++) {
                t.shift[k] = channel * band->plane + ty * w->gap[1] * band->row + tx * w->gap[2];
                if (i + k + 1 >= part->m || ++tx < w->taps[2])
                    continue;
                tx = 0;
                if (++ty == w->taps[1])
                    ty = 0, channel++;
            }
            t.c = part->sums + i * part->sums_row + j;
            kernel(&t);
        }
    }
}

#endif
