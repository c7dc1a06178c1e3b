/* backend/cpu/index.h: what index.c gives to memory.c, and the strided copy both use. */
#ifndef GD_BACKEND_CPU_INDEX_H
#define GD_BACKEND_CPU_INDEX_H

#include "backend/cpu/cpu.h"

/* gather, scatter_add */
void gd_cpu_register_index(gd_kernel_fn *kernel);

/* Copy `shape` elements of `size` bytes between strided operands that do not overlap, on the call's
 * threads. */
void gd_copy_strided(const gd_kernel_call *call, void *to, const int64_t *to_stride,
                     const void *from, const int64_t *from_stride, int rank, const int64_t *shape,
                     size_t size);

#endif
