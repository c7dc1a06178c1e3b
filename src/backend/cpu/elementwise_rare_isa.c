/* backend/cpu/elementwise_rare_isa.c: the rows of ops/elementwise.def over the integers that seldom
 * take time: i8, i16, u16, u32, u64. Compiled once, for the baseline: a copy for each instruction
 * set would make the library larger for nothing. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"

#define GD_T        int8_t
#define GD_T_SUFFIX i8
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T        int16_t
#define GD_T_SUFFIX i16
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint16_t
#define GD_T_SUFFIX   u16
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint32_t
#define GD_T_SUFFIX   u32
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint64_t
#define GD_T_SUFFIX   u64
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"
