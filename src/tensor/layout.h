/* tensor/layout.h: shape, strides and dtype together: how elements lie in storage. Plain values, no
 * memory of their own. */
#ifndef GD_TENSOR_LAYOUT_H
#define GD_TENSOR_LAYOUT_H

#include <gradus/tensor.h>

typedef struct gd_layout {
    int32_t rank;
    gd_dtype dtype;
    int64_t offset;              /* of element 0 from the start of the storage, in elements */
    int64_t shape[GD_MAX_RANK];  /* [rank] */
    int64_t stride[GD_MAX_RANK]; /* [rank], in elements; 0 broadcasts, negative runs backwards */
} gd_layout;

int64_t gd_layout_count(const gd_layout *layout); /* elements; 1 for rank 0 */
size_t gd_layout_bytes(const gd_layout *layout);  /* of a contiguous copy */
bool gd_layout_is_contiguous(const gd_layout *layout);
bool gd_layout_same_shape(const gd_layout *a, const gd_layout *b);
gd_shape gd_layout_shape(const gd_layout *layout);

/* Row-major over `shape`, offset 0. GD_ERR_SHAPE (naming `who`) for a bad rank, negative size or a
 * count beyond 2^46. */
gd_status gd_layout_init(gd_layout *out, gd_shape shape, gd_dtype dtype, const char *who);

/* "[32, 784]" into text; returns text. */
#define GD_SHAPE_TEXT 200
const char *gd_shape_text(gd_shape shape, char text[GD_SHAPE_TEXT]);
const char *gd_layout_text(const gd_layout *layout, char text[GD_SHAPE_TEXT]);

/* The axis in 0 … rank-1, or -1 (and GD_ERR_SHAPE naming `who`) when out of range. */
int gd_axis_normal(int axis, int rank, const char *who);

/* Views: *out describes the same storage as *in. Each returns false, recording nothing, when
 * strides cannot express it. */
bool gd_layout_reshape(const gd_layout *in, gd_shape shape, gd_layout *out);

/* `in` seen with `shape` (stride 0 where stretched); false when it does not stretch to it. */
bool gd_layout_broadcast(const gd_layout *in, gd_shape shape, gd_layout *out);

/* A set of dtypes: bit d stands for dtype d. */
typedef uint32_t gd_dtype_set;
#define GD_DTYPE_SET(dtype) ((gd_dtype_set)1 << (dtype))
#define GD_DTYPES_HALF      (GD_DTYPE_SET(GD_F16) | GD_DTYPE_SET(GD_BF16))
#define GD_DTYPES_REAL      (GD_DTYPE_SET(GD_F32) | GD_DTYPE_SET(GD_F64))
#define GD_DTYPES_INTEGER                                                                       \
    (GD_DTYPE_SET(GD_I8) | GD_DTYPE_SET(GD_I16) | GD_DTYPE_SET(GD_I32) | GD_DTYPE_SET(GD_I64) | \
     GD_DTYPE_SET(GD_U8) | GD_DTYPE_SET(GD_U16) | GD_DTYPE_SET(GD_U32) | GD_DTYPE_SET(GD_U64))
#define GD_DTYPES_FLOAT (GD_DTYPES_REAL | GD_DTYPES_HALF)
/* Those that every kernel on numbers is made for: the others are computed in these. */
#define GD_DTYPES_COMMON \
    (GD_DTYPES_REAL | GD_DTYPE_SET(GD_I32) | GD_DTYPE_SET(GD_I64) | GD_DTYPE_SET(GD_U8))

static inline bool gd_dtype_set_has(gd_dtype_set set, gd_dtype dtype)
{
    return (unsigned)dtype < GD_DTYPE_COUNT && (set >> dtype & 1);
}

static inline bool gd_dtype_is_half(gd_dtype dtype)
{
    return gd_dtype_set_has(GD_DTYPES_HALF, dtype);
}

/* Whether every value of dtype `from` is one of dtype `to`. */
bool gd_dtype_holds(gd_dtype to, gd_dtype from);

/* The public functions, in place. */
#define gd_dtype_is_float(dtype)   gd_dtype_set_has(GD_DTYPES_FLOAT, dtype)
#define gd_dtype_is_integer(dtype) gd_dtype_set_has(GD_DTYPES_INTEGER, dtype)

#endif
