/* backend/cpu/reduce_others_isa.c: the arithmetic of sum, prod, max and min over f64 and integers
 * for one instruction set: reduce_loops.h once for each operation and dtype. Start at reduce_isa.c.
 */
/* A loop of fixed length over an array of lanes, once vectorised, is to be unrolled completely, so
 * that the lanes stay in registers. gcc does that at -O3, or when it is told; clang always. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("peel-loops")
#endif

#include "backend/cpu/isa.h"
#include "backend/cpu/reduce_isa.h"

/* ---- sum: floats keep their dtype; integers are summed in i64, where they wrap ---- */
#define OP       sum
#define MERGE    ADD
#define IDENTITY 0
#define TYPE     f64
#define ACC      f64
#include "backend/cpu/reduce_loops.h"
#define TYPE i32
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
/* u8 and bool: a block sums to at most 4096 * 255, so its lanes may be narrow */
#define TYPE u8
#define ACC  i64
#define LANE uint32_t
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- prod: the same ---- */
#define OP       prod
#define MERGE    MULTIPLY
#define IDENTITY 1
#define TYPE     f64
#define ACC      f64
#include "backend/cpu/reduce_loops.h"
#define TYPE i32
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#define TYPE u8
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- max: the dtype stays; NaN wins ---- */
#define OP       max
#define MERGE    LARGER
#define IDENTITY JOIN(LOWEST_, TYPE)
#define TYPE     f64
#define ACC      f64
#include "backend/cpu/reduce_loops.h"
#define TYPE i32
#define ACC  i32
#include "backend/cpu/reduce_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#define TYPE u8
#define ACC  u8
#include "backend/cpu/reduce_loops.h"
#undef OP
#undef MERGE
#undef IDENTITY

/* ---- min: the dtype stays; NaN wins ---- */
#define OP       min
#define MERGE    SMALLER
#define IDENTITY JOIN(HIGHEST_, TYPE)
#define TYPE     f64
#define ACC      f64
#include "backend/cpu/reduce_loops.h"
#define TYPE i32
#define ACC  i32
#include "backend/cpu/reduce_loops.h"
#define TYPE i64
#define ACC  i64
#include "backend/cpu/reduce_loops.h"
#define TYPE u8
#define ACC  u8
#include "backend/cpu/reduce_loops.h"
