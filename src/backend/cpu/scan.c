/* backend/cpu/scan.c: the walk of cumsum and cumprod along one axis. The additions of a line happen
 * in its order, so there is nothing to share out within one; lines go side by side. Start at
 * gd_scan_run().
 */
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
} scan;

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

gd_status gd_scan_run(const gd_kernel_call *call, const gd_scanner *scanner)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout;
    if (call->out.layout->dtype != scanner->result)
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
    s.before = gd_nest_make(in->rank == 0 ? 0 : axis, in->shape, in->stride, out_stride, NULL);
    int threads = call->device->threads;
    if (s.inner == 1) {
        gd_parallel_for(threads, count / s.n, 1 + GD_PARALLEL_ELEMENTS / s.n, scan_lines_range, &s);
        return GD_OK;
    }
    s.behind = gd_nest_make(in->rank - axis - 1, in->shape + axis + 1, in->stride + axis + 1,
                            out_stride + axis + 1, NULL);
    s.tile = s.inner < 1024 ? s.inner : 1024;
    s.tiles = (s.inner + s.tile - 1) / s.tile;
    gd_parallel_for(threads, gd_nest_count(&s.before) * s.tiles,
                    1 + GD_PARALLEL_ELEMENTS / (s.n * s.tile), scan_tiles_range, &s);
    return GD_OK;
}
