/* backend/cpu/softmax_f64_isa.c: the loops of softmax.h over f64 for one instruction set. Start at
 * softmax_isa.c. */
#include "backend/cpu/reduce_isa.h"
#include "backend/cpu/softmax.h"
#include "backend/cpu/vecmath.h"

#define TYPE f64
#include "backend/cpu/softmax_loops.h"

extern const gd_softmax_loops *const GD_ISA_NAME(gd_softmax_f64);
const gd_softmax_loops *const GD_ISA_NAME(gd_softmax_f64) = &softmax_f64_loops;
