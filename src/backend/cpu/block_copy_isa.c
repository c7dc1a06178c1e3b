/* backend/cpu/block_copy_isa.c: gather a strided block of elements into dense rows: how the
 * elementwise engine and op copy read what does not lie contiguously. Elements are moved as
 * integers of their size, so NaNs keep their bits. Start at DEFINE_COPY. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/simd.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* Squares of this many elements are transposed in vector registers; 1 where an element size has no
 * such kernel. */
#define SQUARE_8  1
#define SQUARE_16 1
#define SQUARE_32 VF32_LANES
#define SQUARE_64 VF64_LANES

/* out[i*out_stride + j] = x[i + j*stride] over a square. */
INLINE void transpose_square_8(const uint8_t *x, int64_t stride, uint8_t *out, int64_t out_stride)
{
    (void)stride, (void)out_stride;
    *out = *x;
}

INLINE void transpose_square_16(const uint16_t *x, int64_t stride, uint16_t *out,
                                int64_t out_stride)
{
    (void)stride, (void)out_stride;
    *out = *x;
}

INLINE void transpose_square_32(const uint32_t *x, int64_t stride, uint32_t *out,
                                int64_t out_stride)
{
    vf32 r[VF32_LANES];
    for (int j = 0; j < VF32_LANES; j++)
        r[j] = vf32_load((const float *)(const void *)(x + j * stride));
    vf32_transpose(r);
    for (int i = 0; i < VF32_LANES; i++)
        vf32_store((float *)(void *)(out + i * out_stride), r[i]);
}

INLINE void transpose_square_64(const uint64_t *x, int64_t stride, uint64_t *out,
                                int64_t out_stride)
{
    vf64 r[VF64_LANES];
    for (int j = 0; j < VF64_LANES; j++)
        r[j] = vf64_load((const double *)(const void *)(x + j * stride));
    vf64_transpose(r);
    for (int i = 0; i < VF64_LANES; i++)
        vf64_store((double *)(void *)(out + i * out_stride), r[i]);
}

/* For each element size: fill (column stride 0), dense rows (1), transpose (row stride 1), and the
 * general case. */
#define DEFINE_COPY(bits)                                                                         \
    typedef uint##bits##_t element_##bits;                                                        \
                                                                                                  \
    INLINE void copy_general_##bits(const element_##bits *x, int64_t row_stride,                  \
                                    int64_t col_stride, element_##bits *out,                      \
                                    int64_t out_row_stride, int64_t rows, int64_t cols)           \
    {                                                                                             \
        for (int64_t i = 0; i < rows; i++)                                                        \
            for (int64_t j = 0; j < cols; j++)                                                    \
                out[i * out_row_stride + j] = x[i * row_stride + j * col_stride];                 \
    }                                                                                             \
                                                                                                  \
    static void copy_transposed_##bits(const element_##bits *x, int64_t col_stride,               \
                                       element_##bits *out, int64_t out_row_stride, int64_t rows, \
                                       int64_t cols)                                              \
    {                                                                                             \
        int64_t whole_rows = rows - rows % SQUARE_##bits;                                         \
        int64_t whole_cols = cols - cols % SQUARE_##bits;                                         \
        for (int64_t j = 0; j < whole_cols; j += SQUARE_##bits)                                   \
            for (int64_t i = 0; i < whole_rows; i += SQUARE_##bits)                               \
                transpose_square_##bits(x + i + j * col_stride, col_stride,                       \
                                        out + i * out_row_stride + j, out_row_stride);            \
        copy_general_##bits(x + whole_cols * col_stride, 1, col_stride, out + whole_cols,         \
                            out_row_stride, whole_rows, cols - whole_cols);                       \
        copy_general_##bits(x + whole_rows, 1, col_stride, out + whole_rows * out_row_stride,     \
                            out_row_stride, rows - whole_rows, cols);                             \
    }                                                                                             \
                                                                                                  \
    void GD_ISA_NAME(gd_ew_copy_##bits)(const void *, int64_t, int64_t, void *, int64_t, int64_t, \
                                        int64_t);                                                 \
    void GD_ISA_NAME(gd_ew_copy_##bits)(const void *from, int64_t row_stride, int64_t col_stride, \
                                        void *to, int64_t out_row_stride, int64_t rows,           \
                                        int64_t cols)                                             \
    {                                                                                             \
        const element_##bits *x = from;                                                           \
        element_##bits *out = to;                                                                 \
        if (col_stride == 1 && cols >= 16) {                                                      \
            for (int64_t i = 0; i < rows; i++)                                                    \
                memcpy(out + i * out_row_stride, x + i * row_stride, (size_t)cols * sizeof *out); \
        } else if (col_stride == 0) {                                                             \
            for (int64_t i = 0; i < rows; i++) {                                                  \
                element_##bits value = x[i * row_stride];                                         \
                for (int64_t j = 0; j < cols; j++)                                                \
                    out[i * out_row_stride + j] = value;                                          \
            }                                                                                     \
        } else if (row_stride == 1 && SQUARE_##bits > 1) {                                        \
            copy_transposed_##bits(x, col_stride, out, out_row_stride, rows, cols);               \
        } else {                                                                                  \
            copy_general_##bits(x, row_stride, col_stride, out, out_row_stride, rows, cols);      \
        }                                                                                         \
    }
DEFINE_COPY(8)
DEFINE_COPY(16)
DEFINE_COPY(32)
DEFINE_COPY(64)

/* ---- streaming stores ---- */

#if defined(GD_ISA_AVX512_BUILD)
#define STREAM_LINE(to, from) _mm512_stream_si512((__m512i *)(to), _mm512_loadu_si512(from))
#elif defined(GD_ISA_AVX2_BUILD)
#define STREAM_LINE(to, from)                                                                      \
    do {                                                                                           \
        _mm256_stream_si256((__m256i *)(to), _mm256_loadu_si256((const __m256i *)(from)));         \
        _mm256_stream_si256((__m256i *)(to) + 1, _mm256_loadu_si256((const __m256i *)(from) + 1)); \
    } while (0)
#elif defined(__SSE2__)
#define STREAM_LINE(to, from)                                                  \
    do {                                                                       \
        for (int part = 0; part < 4; part++)                                   \
            _mm_stream_si128((__m128i *)(to) + part,                           \
                             _mm_loadu_si128((const __m128i *)(from) + part)); \
    } while (0)
#endif

void GD_ISA_NAME(gd_ew_stream)(void *to, const void *from, size_t bytes);
void GD_ISA_NAME(gd_ew_stream)(void *to, const void *from, size_t bytes)
{
#ifdef STREAM_LINE
    if (bytes == 0) {
        _mm_sfence();
        return;
    }
    size_t head = -(uintptr_t)to & 63;
    if (head > bytes)
        head = bytes;
    memcpy(to, from, head);
    char *line = (char *)to + head;
    const char *source = (const char *)from + head;
    size_t rest = bytes - head;
    for (; rest >= 64; rest -= 64, line += 64, source += 64)
        STREAM_LINE((void *)line, (const void *)source);
    memcpy(line, source, rest);
#else
    if (bytes > 0)
        memcpy(to, from, bytes);
#endif
}

/* The same as gd_ew_copy_<bits>, past the caches where whole lines of a transposed block are at
 * hand at once, rows first. */
#if defined(GD_ISA_AVX512_BUILD)
#define STREAM_VECTOR(out, r) _mm512_stream_si512((__m512i *)(void *)(out), (__m512i)(r))
#define DEFINE_STREAMED_COPY(bits)                                                                 \
    INLINE void stream_square_##bits(const element_##bits *x, int64_t stride, element_##bits *out, \
                                     int64_t out_stride)                                           \
    {                                                                                              \
        vf##bits r[SQUARE_##bits];                                                                 \
        for (int j = 0; j < SQUARE_##bits; j++)                                                    \
            r[j] = vf##bits##_load((const void *)(x + j * stride));                                \
        vf##bits##_transpose(r);                                                                   \
        for (int i = 0; i < SQUARE_##bits; i++)                                                    \
            STREAM_VECTOR(out + i * out_stride, r[i]);                                             \
    }                                                                                              \
                                                                                                   \
    void GD_ISA_NAME(gd_ew_copy_streamed_##bits)(const void *, int64_t, int64_t, void *, int64_t,  \
                                                 int64_t, int64_t);                                \
    void GD_ISA_NAME(gd_ew_copy_streamed_##bits)(                                                  \
        const void *from, int64_t row_stride, int64_t col_stride, void *to,                        \
        int64_t out_row_stride, int64_t rows, int64_t cols)                                        \
    {                                                                                              \
        const element_##bits *x = from;                                                            \
        element_##bits *out = to;                                                                  \
        int64_t whole_rows = rows - rows % SQUARE_##bits;                                          \
        int64_t whole_cols = cols - cols % SQUARE_##bits;                                          \
        if (row_stride != 1 || (uintptr_t)out % 64 != 0 || out_row_stride % SQUARE_##bits != 0) {  \
            GD_ISA_NAME(gd_ew_copy_##bits)                                                         \
            (from, row_stride, col_stride, to, out_row_stride, rows, cols);                        \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < whole_rows; i += SQUARE_##bits)                                    \
            for (int64_t j = 0; j < whole_cols; j += SQUARE_##bits)                                \
                stream_square_##bits(x + i + j * col_stride, col_stride,                           \
                                     out + i * out_row_stride + j, out_row_stride);                \
        copy_general_##bits(x + whole_cols * col_stride, 1, col_stride, out + whole_cols,          \
                            out_row_stride, whole_rows, cols - whole_cols);                        \
        copy_general_##bits(x + whole_rows, 1, col_stride, out + whole_rows * out_row_stride,      \
                            out_row_stride, rows - whole_rows, cols);                              \
    }
DEFINE_STREAMED_COPY(32)
DEFINE_STREAMED_COPY(64)
#endif
