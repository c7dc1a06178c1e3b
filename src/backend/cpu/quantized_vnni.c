/* backend/cpu/quantized_vnni.c: products with weights in blocks by AVX512-VNNI, whose VPDPBUSD adds
 * four products of bytes to a lane. */
#include "backend/cpu/quantized.h"

#ifdef GD_HAVE_AVX512_VNNI

#define NAME(function) function##_vnni
#define WITH_AVX2      1
#define WITH_VNNI      1
#include "backend/cpu/quantized_loops.h"

#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
