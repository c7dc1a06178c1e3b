/* backend/cpu/gemm_f32_isa.c: the micro-kernels of products in f32, and their descriptor, compiled
 * once per instruction set. gemm_f64_isa.c is the same in f64. In reading order: gemm_tile.h
 * (tiles), gemm_finish.h (what becomes of their sums), gemm_rows.h (one row), gemm_pack.h (copies),
 * simd.h (vectors). The loops round them are gemm_driver.c.
 */
#include "backend/cpu/gemm_kernels.h"
