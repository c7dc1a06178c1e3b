/* tensor/format.h: an array in host memory as text. */
#ifndef GD_TENSOR_FORMAT_H
#define GD_TENSOR_FORMAT_H

#include "tensor/layout.h"

/* Write the array as NumPy's str() does with its default print options. `data` is the address of
 * element 0 (the layout's offset is already applied). Writes at most `size` bytes with the
 * terminator and returns the length of the whole text, as snprintf does; `text` may be NULL when
 * size is 0. Needs no memory. */
size_t gd_format_array(const gd_layout *layout, const void *data, char *text, size_t size);

#endif
