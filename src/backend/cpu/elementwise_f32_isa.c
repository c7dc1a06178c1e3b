/* backend/cpu/elementwise_f32_isa.c: the rows of ops/elementwise.def over f32, for one instruction
 * set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"

#define GD_T        float
#define GD_T_SUFFIX f32
#define GD_T_FLOAT  1
#include "backend/cpu/elementwise_loops.h"
