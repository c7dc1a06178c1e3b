/* tests/failing_opencl/failing_opencl.h: what the library that fails OpenCL's calls is told. Those who
 * use it load it by name and look these up. */
#ifndef FAILING_OPENCL_H
#define FAILING_OPENCL_H

#include "backend/opencl/api.h"

#include <stdbool.h>

/* Calls are counted from 0 again; number `call` of those of the function `name` fails with the code,
 * and with `lasting` all calls after it, too. NULL: none fails. */
void failing_opencl_arm(const char *name, int64_t call, bool lasting, cl_int code);
/* Calls of a function since then. */
int64_t failing_opencl_calls(const char *name);
/* Objects that were made and not released. */
int64_t failing_opencl_alive(void);
/* From now on the device answers `what` without these bits. Without all of CL_DEVICE_DOUBLE_FP_CONFIG it
 * compiles no text that names the type double, and constants are of f32, as on a device without f64. */
void failing_opencl_without(cl_uint what, cl_bitfield bits);

#endif
