/* tensor/element.h: one element of any dtype, as a double. */
#ifndef GD_TENSOR_ELEMENT_H
#define GD_TENSOR_ELEMENT_H

#include <gradus/tensor.h>

/* The element at `raw` (need not be aligned). i64 and u64 beyond 2^53 are rounded. */
double gd_element_as_double(gd_dtype dtype, const void *raw);

#endif
