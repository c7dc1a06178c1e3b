/* compile/timed.h: a compiled function called with a clock: what forward, backward and update take. */
#ifndef GD_COMPILE_TIMED_H
#define GD_COMPILE_TIMED_H

#include <gradus/compile.h>

#include "graph/phase.h"

/* gd_call, with the seconds that each phase's kernels took added to seconds: nothing where the function runs
 * without a plan, or with one for a gradient through it. */
gd_tensor *gd_call_timed(gd_function *function, int count, gd_tensor *const *inputs,
                         double seconds[GD_PHASES]);

#endif
