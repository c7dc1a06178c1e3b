/* tests/support/device_rows.h: a device of backend/gpu gives the CPU's bits: every op, in every layout
 * and dtype, on ordinary numbers and on any bits. contexts: the CPU's and the device's.
 * GRADUS_TEST_ALL: everything, thousands of kernels. GRADUS_TEST_ROW: rows, and large or
 * unusual cases, whose names contain it, or "cast".
 * GRADUS_TEST_SHARD, "2/16": of rows and pairs of dtypes the third of sixteen like shares, so that several
 * processes compile kernels at once. */
#ifndef GD_TESTS_DEVICE_ROWS_H
#define GD_TESTS_DEVICE_ROWS_H

#include <gradus/gradus.h>

#include "support/tensors.h"

/* The CPU whose bits devices give: without extensions that multiply bf16, whose bits are their own. */
gd_context *device_rows_open_cpu(void);
/* A case of a row, its operands' layouts from number `arrangement` on; whether the device did without
 * its host. */
bool device_row_gives_the_cpus_bits(gd_context *const contexts[2], const op_row *row,
                                    const op_case *c, gd_dtype dtype, int arrangement, numbers *n);
/* A row's first case in f64 on a device without f64: the CPU's bits (elements that are only moved), or
 * the error names the op and the device; whether it was that. */
bool device_row_is_refused(gd_context *const contexts[2], const op_row *row, numbers *n);

enum { DEVICE_ROWS_ALL = -1 };
/* All rows, and that ops have kernels but for a list. Elementwise ops and functions are kernels to compile: every fifth of them,
 * from `part` on, in one case and dtype. Kernels of other ops take sizes as arguments: every case in f32, and one in every second
 * floating dtype and every fifth other one, from `part` on. With DEVICE_ROWS_ALL each row, and one case in every floating dtype. */
void device_gives_the_cpus_bits(gd_context *const contexts[2], int part);
/* Operands that make every kernel cut its work into pieces; not elementwise ops. */
void device_gives_the_cpus_bits_of_large_operands(gd_context *const contexts[2]);
/* Elementwise ops in the floating dtypes, every eleventh, from `part` on, or with DEVICE_ROWS_ALL each. */
void device_gives_the_cpus_bits_of_any_bits(gd_context *const contexts[2], int part);
/* Conversions between all dtypes, or of those from and to f16 and bf16 every fourth, of any bits. */
void device_casts_give_the_cpus_bits(gd_context *const contexts[2], int part);
/* What takes several passes, or has nothing to do: a concatenation of 61, orders of lines longer than
 * 4096, reductions of nothing; and large products. All of it without the host. */
void device_many_and_long_give_the_cpus_bits(gd_context *const contexts[2]);
/* The same on one device, not compared. */
void device_many_and_long(gd_context *gd);

#endif
