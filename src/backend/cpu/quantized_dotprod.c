/* backend/cpu/quantized_dotprod.c: products with weights in blocks by SDOT (Armv8.2, FEAT_DotProd), which adds
 * four products of bytes to a lane. */
#include "backend/cpu/quantized.h"

#ifdef GD_HAVE_NEON_DOTPROD

#define NAME(function) function##_dotprod
#define WITH_DOTPROD   1
#include "backend/cpu/quantized_loops.h"

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
