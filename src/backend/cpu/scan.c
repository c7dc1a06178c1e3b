/* backend/cpu/scan.c: the walk of cumsum and cumprod along one axis. The additions of a line happen
 * in its order, so there is nothing to share out within one; lines go side by side. f16 and bf16 are
 * f32 in scratch, a piece of some lines at a time. Start at gd_scan_run().
 */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/reduce.h"
#include "base/error.h"
#include "base/threads.h"
#include "ops/attrs.h"

/* The result is row-major [before…, n, inner…]: a line's elements are `inner` apart. */
typedef struct scan {
    const gd_scanner *scanner;
    const char *in;
    char *out;
    int64_t n, in_stride; /* along the axis */
    int64_t inner;        /* elements of the axes behind it */
    gd_nest before; /* operand 0: the input, 1: the result; with the axes behind when inner == 1 */
    gd_nest behind;
    int64_t tile, tiles; /* of the elements behind */

    /* f16 and bf16, of an input without gaps */
    const gd_kernel_call *call;
    gd_ew_loop widen, narrow; /* NULL: the input, or the result, is f32 */
} scan;

enum {
    TILE = 1024, /* elements behind the axis, at most */
    LINES = 4,   /* side by side */
    PIECE = 512, /* of a line of halves; before it stands what was added up so far */
    ROOM = LINES * (PIECE + 1) > TILE ? LINES *(PIECE + 1) : TILE,
};

/* Lines along the last axis. */
static void scan_lines_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const scan *s = context;
    gd_nest outer = s->before;
    gd_run lines = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / lines.size);
    int64_t skip = begin % lines.size;
    while (begin < end) {
        int64_t count = lines.size - skip < end - begin ? lines.size - skip : end - begin;
        int64_t in = cursor.at[0] + skip * lines.stride[0];
        int64_t out = cursor.at[1] + skip * lines.stride[1];
        s->scanner->lines(s->in + in * (int64_t)s->scanner->in_size, lines.stride[0], s->in_stride,
                          s->n, s->out + out * (int64_t)s->scanner->out_size, lines.stride[1],
                          count);
        begin += count;
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

/* Elements [first, first + count) behind the axis at its index i: one step for all these lines. */
static void scan_step(const scan *s, int64_t in, int64_t out, int64_t i, int64_t first,
                      int64_t count)
{
    gd_nest outer = s->behind;
    gd_run run = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, first / run.size);
    int64_t skip = first % run.size;
    char *to = s->out + (out + i * s->inner + first) * (int64_t)s->scanner->out_size;
    in += i * s->in_stride;
    while (count > 0) {
        int64_t n = run.size - skip < count ? run.size - skip : count;
        int64_t at = in + cursor.at[0] + skip * run.stride[0];
        const char *before = i == 0 ? NULL : to - s->inner * (int64_t)s->scanner->out_size;
        s->scanner->step(before, s->in + at * (int64_t)s->scanner->in_size, run.stride[0], to, n);
        to += n * (int64_t)s->scanner->out_size;
        count -= n;
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

static void scan_tiles_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const scan *s = context;
    for (int64_t item = begin; item < end; item++) {
        gd_cursor cursor = gd_cursor_at(&s->before, item / s->tiles);
        int64_t first = item % s->tiles * s->tile, rest = s->inner - first;
        for (int64_t i = 0; i < s->n; i++)
            scan_step(s, cursor.at[0], cursor.at[1], i, first, rest < s->tile ? rest : s->tile);
    }
}

/* ---- f16 and bf16 ---- */

/* Elements from `at` on of the input as f32. */
static void read_piece(const scan *s, int64_t at, int64_t n, float *to)
{
    if (s->widen)
        s->widen((const uint16_t *)(const void *)s->in + at, NULL, NULL, to, n);
    else
        memcpy(to, (const float *)(const void *)s->in + at, (size_t)n * sizeof *to);
}

static void write_piece(const scan *s, int64_t at, int64_t n, const float *from)
{
    if (s->narrow)
        s->narrow(from, NULL, NULL, (uint16_t *)(void *)s->out + at, n);
    else
        memcpy((float *)(void *)s->out + at, from, (size_t)n * sizeof *from);
}

static void half_lines_range(void *context, int64_t begin, int64_t end, int thread)
{
    const scan *s = context;
    gd_scratch area = gd_scratch_of(s->call, thread);
    float *x = gd_scratch_take(&area, ROOM * sizeof *x);
    float *sums = gd_scratch_take(&area, ROOM * sizeof *sums);
    const int64_t stride = PIECE + 1;
    for (int64_t line = begin; line < end; line += LINES) {
        const int64_t lines = end - line < LINES ? end - line : LINES;
        int64_t last = 0; /* element of each line in `sums` */
        for (int64_t at = 0; at < s->n; at += PIECE) {
            const int64_t n = s->n - at < PIECE ? s->n - at : PIECE, lead = at > 0;
            for (int64_t l = 0; l < lines; l++) {
                x[l * stride] = lead ? sums[l * stride + last] : 0;
                read_piece(s, (line + l) * s->n + at, n, x + l * stride + lead);
            }
            last = n - 1 + lead;
            s->scanner->lines(x, stride, 1, last + 1, sums, stride, lines);
            for (int64_t l = 0; l < lines; l++)
                write_piece(s, (line + l) * s->n + at, n, sums + l * stride + lead);
        }
    }
}

static void half_tiles_range(void *context, int64_t begin, int64_t end, int thread)
{
    const scan *s = context;
    gd_scratch area = gd_scratch_of(s->call, thread);
    float *x = gd_scratch_take(&area, ROOM * sizeof *x), *sums[2];
    sums[0] = gd_scratch_take(&area, ROOM * sizeof *x);
    sums[1] = gd_scratch_take(&area, ROOM * sizeof *x);
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item % s->tiles * s->tile, rest = s->inner - first;
        const int64_t n = rest < s->tile ? rest : s->tile;
        const int64_t from = item / s->tiles * s->n * s->inner + first;
        for (int64_t i = 0; i < s->n; i++) {
            read_piece(s, from + i * s->inner, n, x);
            s->scanner->step(i == 0 ? NULL : sums[(i + 1) % 2], x, 1, sums[i % 2], n);
            write_piece(s, from + i * s->inner, n, sums[i % 2]);
        }
    }
}

/* ---- a call ---- */

static bool has_halves(const gd_kernel_call *call)
{
    return gd_dtype_is_half(call->in[0].layout->dtype) || gd_dtype_is_half(call->out.layout->dtype);
}

gd_workspace gd_scan_scratch(const gd_kernel_call *call)
{
    if (!has_halves(call))
        return (gd_workspace){ 0 };
    return (gd_workspace){ NULL, gd_scratch_bytes(3 * ROOM * sizeof(float), 3),
                           call->device->threads };
}

gd_status gd_scan_run(const gd_kernel_call *call, const gd_scanner *scanner)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout;
    if (call->out.layout->dtype != scanner->result && !attr->rounded)
        return gd_fail(GD_ERR_DTYPE, "%s of %s gives %s, not %s", call->op->name,
                       gd_dtype_name(in->dtype), gd_dtype_name(scanner->result),
                       gd_dtype_name(call->out.layout->dtype));
    int64_t count = gd_layout_count(in);
    if (count == 0)
        return GD_OK;
    int axis = attr->axis;
    int64_t out_stride[GD_MAX_RANK];
    gd_strides_row_major(in->rank, in->shape, out_stride);
    scan s = { .scanner = scanner,
               .in = call->in[0].data,
               .out = call->out.data,
               .n = in->rank == 0 ? 1 : in->shape[axis],
               .in_stride = in->rank == 0 ? 1 : in->stride[axis],
               .inner = in->rank == 0 ? 1 : out_stride[axis] };
    if (has_halves(call)) {
        s.call = call;
        s.widen = gd_ew_half_cast(call, &call->in[0]);
        s.narrow = gd_ew_half_cast(call, &call->out);
    }
    s.before = gd_nest_make(in->rank == 0 ? 0 : axis, in->shape, in->stride, out_stride, NULL);
    int threads = call->device->threads;
    if (s.inner == 1) {
        gd_parallel_for(threads, count / s.n, 1 + GD_PARALLEL_ELEMENTS / s.n,
                        s.call ? half_lines_range : scan_lines_range, &s);
        return GD_OK;
    }
    s.behind = gd_nest_make(in->rank - axis - 1, in->shape + axis + 1, in->stride + axis + 1,
                            out_stride + axis + 1, NULL);
    s.tile = s.inner < TILE ? s.inner : TILE;
    s.tiles = (s.inner + s.tile - 1) / s.tile;
    gd_parallel_for(threads, gd_nest_count(&s.before) * s.tiles,
                    1 + GD_PARALLEL_ELEMENTS / (s.n * s.tile),
                    s.call ? half_tiles_range : scan_tiles_range, &s);
    return GD_OK;
}
