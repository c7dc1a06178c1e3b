/* backend/reference/reference.h: what the kernels of the reference back end are written with: a
 * walk over an N-dimensional index, and elements of any dtype as one type of number. Start at
 * reference.c. */
#ifndef GD_BACKEND_REFERENCE_REFERENCE_H
#define GD_BACKEND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

/* Every value of every dtype is one of these exactly: 64 bits of fraction hold an i64 as well as an
 * f64. */
typedef long double real;
_Static_assert(__LDBL_MANT_DIG__ >= 64,
               "the reference back end needs a long double of 64 bits or more");

/* All indices of a shape in row-major order:
 *     for (gd_walk w = gd_walk_over(layout); w.more; gd_walk_next(&w))
 */
typedef struct gd_walk {
    int rank;
    int64_t shape[GD_MAX_RANK];
    int64_t index[GD_MAX_RANK];
    int64_t count; /* steps taken: the index as a row-major number */
    bool more;
} gd_walk;

gd_walk gd_walk_over(const gd_layout *layout);
void gd_walk_next(gd_walk *walk);

/* Where the walk's index lies in an operand (in elements), broadcast as NumPy does: aligned at the
 * last axes, and an axis of size 1 is read at 0. */
int64_t gd_walk_offset(const gd_walk *walk, const gd_layout *layout);
/* The same for an index of the operand's own rank, without broadcasting. */
int64_t gd_index_offset(const int64_t *index, const gd_layout *layout);

/* An element as a number. */
real gd_ref_load(const gd_operand *operand, int64_t offset);
/* A number as an element, rounded once, to nearest, ties to even. To integers: truncated toward
 * zero, held within the range, NaN as 0. To bool: x != 0. */
void gd_ref_store(const gd_operand *operand, int64_t offset, real value);
/* An integer as an element: integers take it modulo 2^bits, floats round it. */
void gd_ref_store_integer(const gd_operand *operand, int64_t offset, int64_t value);
/* An integer or bool; of u64 the bits. */
int64_t gd_ref_load_integer(const gd_operand *operand, int64_t offset);

/* Each file enters its kernels. */
void gd_reference_register_elementwise(gd_kernel_fn *kernel);
void gd_reference_register_memory(gd_kernel_fn *kernel);
void gd_reference_register_reduce(gd_kernel_fn *kernel);
void gd_reference_register_product(gd_kernel_fn *kernel);
void gd_reference_register_loss(gd_kernel_fn *kernel);
void gd_reference_register_sort(gd_kernel_fn *kernel);
void gd_reference_register_ctc(gd_kernel_fn *kernel);
void gd_reference_register_norm(gd_kernel_fn *kernel);
void gd_reference_register_attention(gd_kernel_fn *kernel);
void gd_reference_register_recurrent(gd_kernel_fn *kernel);
void gd_reference_register_spatial(gd_kernel_fn *kernel);

#endif
