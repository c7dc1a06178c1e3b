/* backend/cpu/conv_window.h: the image seen through windows, as a matrix with a row for each
 * channel and tap and a column for each position of the window, of every image of the batch; and
 * where the columns of a convolution's product lie in its result, which is no matrix: images follow
 * each other outside of channels, and of the gradient by the input only each stride-th element is of
 * one product. The matrix is read in runs: positions that follow each other along an axis of the
 * image. Start at gd_window.
 */
#ifndef GD_BACKEND_CPU_CONV_WINDOW_H
#define GD_BACKEND_CPU_CONV_WINDOW_H

#include "backend/cpu/conv.h"
#include "backend/cpu/gemm.h"

typedef struct gd_window {
    int64_t n_stride, c_stride; /* in the image [n, channels, size...] of one group */
    int64_t size[GD_SPATIAL];
    int64_t count[GD_SPATIAL], plane; /* positions of the window */
    int64_t step[GD_SPATIAL];         /* between positions, in the image */
    int64_t taps[GD_SPATIAL], tap_count;
    /* tap t of position p is at p*step + first + t*gap */
    int64_t first[GD_SPATIAL], gap[GD_SPATIAL];
} gd_window;

/* Positions that follow each other in a row of positions; `at` is where they go. */
typedef struct gd_window_run {
    int64_t n, z, y, x, at, count;
} gd_window_run;

/* Elements `step` apart in the image, to go to `at`. */
typedef struct gd_window_piece {
    int64_t from;
    int32_t at, count;
} gd_window_piece;

/* The pieces of a row of at most GD_GEMM_RUNS numbers that lie in the image as they lie in the row:
 * number i of the row is data[shift + i] for the bits i of the mask. A window that keeps the size
 * of an image has one for all that lies in the same image. */
typedef struct gd_window_span {
    int64_t shift;
    uint32_t mask;
} gd_window_span;

/* From one image to the next, and from one position to the next along each axis. */
typedef struct gd_conv_place {
    int64_t n, step[GD_SPATIAL];
    bool plain; /* positions follow each other */
} gd_conv_place;

/* Positions [first, first+count), counted through the batch, as runs; returns how many. */
int gd_window_runs(const gd_window *w, int64_t first, int64_t count, gd_window_run *runs);

/* What tap `tap` sees of the image from the runs' positions, from channel 0 on; what they see of
 * the padding is left out. Returns how many pieces; *covered counts their elements. */
int gd_window_pieces(const gd_window *w, int64_t tap, const gd_window_run *runs, int run_count,
                     gd_window_piece *pieces, int64_t *covered);

/* The spans of some pieces; returns how many. */
int gd_window_spans(const gd_window_piece *pieces, int many, gd_window_span *spans);

/* Whether a window is an element of the image: rows of the matrix are planes. */
bool gd_window_is_plain(const gd_window *w);

/* Where columns [column, column+columns), at most GD_GEMM_RUNS of them, lie in a row of the result;
 * returns how many runs. */
int gd_conv_place_runs(const gd_window *w, const gd_conv_place *to, int64_t column, int64_t columns,
                       gd_gemm_stretch *runs);

/* x [n, c, in...] of a group as y's positions see it, and y [n, groups * o, out...], of which all
 * positions are columns. */
void gd_conv_forward_window(const gd_conv_args *args, gd_window *w);
void gd_conv_forward_place(const gd_conv_sizes *s, gd_conv_place *to);

/* What elements first, first + stride, … of each axis of x's gradient see, those that the same taps
 * reach, and their addresses. */
typedef struct gd_conv_phase {
    int64_t a_tap[GD_SPATIAL];  /* from tap to tap, in a weight [taps...] */
    int64_t tap_first, c_first; /* the first of these taps, and the first of these elements */
} gd_conv_phase;
gd_conv_phase gd_conv_phase_of(const gd_conv_args *args, const int64_t first[GD_SPATIAL],
                               gd_window *w, gd_conv_place *to);

#endif
