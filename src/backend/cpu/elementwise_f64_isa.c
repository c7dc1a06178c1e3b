/* backend/cpu/elementwise_f64_isa.c: the rows of ops/elementwise.def over f64, for one instruction
 * set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"

#define GD_T        double
#define GD_T_SUFFIX f64
#define GD_T_FLOAT  1
#include "backend/cpu/elementwise_loops.h"
