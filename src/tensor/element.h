/* tensor/element.h: one element of any dtype, as a double, and made of a number. */
#ifndef GD_TENSOR_ELEMENT_H
#define GD_TENSOR_ELEMENT_H

#include <gradus/tensor.h>

/* The element at `raw` (need not be aligned). i64 and u64 beyond 2^53 are rounded. */
double gd_element_as_double(gd_dtype dtype, const void *raw);

/* By the rules of gd_cast: the element of `dtype` that stands for v, at `to`, which is aligned. */
void gd_element_store_real(double v, gd_dtype dtype, void *to);
/* The same of an integer, which wraps where it does not fit. */
void gd_element_store_integer(int64_t v, gd_dtype dtype, void *to);

#endif
