/* backend/cpu/iterate.h: walking over strided tensors: a nest of loops whose axes are merged where
 * memory allows, a cursor that steps through it, and the copies of single runs. It knows sizes and
 * strides, not what is done with the elements. Everything is static: both plain files and those
 * compiled per instruction set may include it. Start at gd_nest.
 */
#ifndef GD_BACKEND_CPU_ITERATE_H
#define GD_BACKEND_CPU_ITERATE_H

#include "tensor/layout.h"

#include <string.h>

#define GD_STATIC_INLINE static inline __attribute__((unused))

/* Work below this many elements is not worth a second thread. */
#define GD_PARALLEL_ELEMENTS 32768

/* Loops from the outermost to the innermost, over up to three operands. Strides are in elements. */
#define GD_NEST_OPERANDS 3
typedef struct gd_nest {
    int rank;
    int64_t size[GD_MAX_RANK];
    int64_t stride[GD_MAX_RANK][GD_NEST_OPERANDS];
} gd_nest;

GD_STATIC_INLINE int64_t gd_nest_count(const gd_nest *nest)
{
    int64_t count = 1;
    for (int i = 0; i < nest->rank; i++)
        count *= nest->size[i];
    return count;
}

/* Add an innermost loop, or lengthen the one that is innermost now when the two together are one
 * regular loop for every operand. A loop of size 1 is left out. */
GD_STATIC_INLINE void gd_nest_push(gd_nest *nest, int64_t size,
                                   const int64_t stride[GD_NEST_OPERANDS])
{
    if (size == 1)
        return;
    int last = nest->rank - 1;
    bool merges = last >= 0;
    for (int k = 0; merges && k < GD_NEST_OPERANDS; k++)
        merges = nest->stride[last][k] == stride[k] * size;
    if (merges) {
        nest->size[last] *= size;
    } else {
        last = nest->rank++;
        nest->size[last] = size;
    }
    for (int k = 0; k < GD_NEST_OPERANDS; k++)
        nest->stride[last][k] = stride[k];
}

/* The nest over `shape` with the strides of up to three operands (NULL: none, stride 0), each
 * [rank]. */
GD_STATIC_INLINE gd_nest gd_nest_make(int rank, const int64_t *shape, const int64_t *a,
                                      const int64_t *b, const int64_t *c)
{
    gd_nest nest = { .rank = 0 };
    for (int i = 0; i < rank; i++) {
        const int64_t stride[GD_NEST_OPERANDS] = { a ? a[i] : 0, b ? b[i] : 0, c ? c[i] : 0 };
        gd_nest_push(&nest, shape[i], stride);
    }
    return nest;
}

/* Take the innermost loop off a nest and return its size and strides; a nest of rank 0 gives one
 * iteration. */
typedef struct gd_run {
    int64_t size;
    int64_t stride[GD_NEST_OPERANDS];
} gd_run;

GD_STATIC_INLINE gd_run gd_nest_pop(gd_nest *nest)
{
    gd_run run = { .size = 1 };
    if (nest->rank > 0) {
        int last = --nest->rank;
        run.size = nest->size[last];
        for (int k = 0; k < GD_NEST_OPERANDS; k++)
            run.stride[k] = nest->stride[last][k];
    }
    return run;
}

/* Row-major strides of a shape. */
GD_STATIC_INLINE void gd_strides_row_major(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i];
    }
}

/* A place in a nest: the index of each loop, and where it is in each operand, in elements. */
typedef struct gd_cursor {
    const gd_nest *nest;
    int64_t index[GD_MAX_RANK];
    int64_t at[GD_NEST_OPERANDS];
} gd_cursor;

/* The cursor at iteration number `linear`, counted with the innermost loop fastest. */
GD_STATIC_INLINE gd_cursor gd_cursor_at(const gd_nest *nest, int64_t linear)
{
    gd_cursor cursor = { .nest = nest };
    for (int i = nest->rank - 1; i >= 0; i--) {
        cursor.index[i] = linear % nest->size[i];
        linear /= nest->size[i];
        for (int k = 0; k < GD_NEST_OPERANDS; k++)
            cursor.at[k] += cursor.index[i] * nest->stride[i][k];
    }
    return cursor;
}

/* The next iteration; after the last comes the first again. */
GD_STATIC_INLINE void gd_cursor_next(gd_cursor *cursor)
{
    const gd_nest *nest = cursor->nest;
    for (int i = nest->rank - 1; i >= 0; i--) {
        cursor->index[i]++;
        for (int k = 0; k < GD_NEST_OPERANDS; k++)
            cursor->at[k] += nest->stride[i][k];
        if (cursor->index[i] < nest->size[i])
            return;
        for (int k = 0; k < GD_NEST_OPERANDS; k++)
            cursor->at[k] -= nest->size[i] * nest->stride[i][k];
        cursor->index[i] = 0;
    }
}

/* ---- runs: n elements of 1, 2, 4 or 8 bytes at a stride ---- */

/* Elements are copied as integers of their size, whatever their dtype: hence may_alias. */
#define GD_COPY_RUN(bits)                                                                     \
    typedef uint##bits##_t __attribute__((may_alias)) gd_bits##bits;                          \
    static inline __attribute__((unused)) void gd_copy_run_##bits(                            \
        gd_bits##bits *to, int64_t to_stride, const gd_bits##bits *from, int64_t from_stride, \
        int64_t n)                                                                            \
    {                                                                                         \
        if (to_stride == 1)                                                                   \
            for (int64_t i = 0; i < n; i++)                                                   \
                to[i] = from[i * from_stride];                                                \
        else                                                                                  \
            for (int64_t i = 0; i < n; i++)                                                   \
                to[i * to_stride] = from[i * from_stride];                                    \
    }
GD_COPY_RUN(8)
GD_COPY_RUN(16)
GD_COPY_RUN(32)
GD_COPY_RUN(64)
#undef GD_COPY_RUN

/* to[i * to_stride] = from[i * from_stride] for i < n. The two do not overlap. */
GD_STATIC_INLINE void gd_copy_run(void *to, int64_t to_stride, const void *from,
                                  int64_t from_stride, int64_t n, size_t element_bytes)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * element_bytes);
        return;
    }
    switch (element_bytes) {
    case 1:
        gd_copy_run_8(to, to_stride, from, from_stride, n);
        break;
    case 2:
        gd_copy_run_16(to, to_stride, from, from_stride, n);
        break;
    case 4:
        gd_copy_run_32(to, to_stride, from, from_stride, n);
        break;
    default:
        gd_copy_run_64(to, to_stride, from, from_stride, n);
    }
}

/* Iterations [begin, end) of a nest, in order: operand 0, at `from`, is copied to the contiguous
 * `to`. */
GD_STATIC_INLINE void gd_nest_gather(void *to, const void *from, const gd_nest *nest, int64_t begin,
                                     int64_t end, size_t element_bytes)
{
    gd_nest outer = *nest;
    gd_run run = gd_nest_pop(&outer);
    char *out = to;
    gd_cursor cursor = gd_cursor_at(&outer, begin / run.size);
    int64_t skip = begin % run.size;
    while (begin < end) {
        int64_t n = run.size - skip < end - begin ? run.size - skip : end - begin;
        int64_t at = cursor.at[0] + skip * run.stride[0];
        gd_copy_run(out, 1, (const char *)from + at * (int64_t)element_bytes, run.stride[0], n,
                    element_bytes);
        out += (size_t)n * element_bytes;
        begin += n;
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

/* Iterations [begin, end) of a nest: operand 0, at `from`, is copied to operand 1, at `to`. The two
 * do not overlap. */
GD_STATIC_INLINE void gd_nest_copy(void *to, const void *from, const gd_nest *nest, int64_t begin,
                                   int64_t end, size_t element_bytes)
{
    gd_nest outer = *nest;
    gd_run run = gd_nest_pop(&outer);
    gd_cursor cursor = gd_cursor_at(&outer, begin / run.size);
    int64_t skip = begin % run.size;
    while (begin < end) {
        int64_t n = run.size - skip < end - begin ? run.size - skip : end - begin;
        int64_t in = cursor.at[0] + skip * run.stride[0];
        int64_t out = cursor.at[1] + skip * run.stride[1];
        gd_copy_run((char *)to + out * (int64_t)element_bytes, run.stride[1],
                    (const char *)from + in * (int64_t)element_bytes, run.stride[0], n,
                    element_bytes);
        begin += n;
        skip = 0;
        gd_cursor_next(&cursor);
    }
}

#endif
