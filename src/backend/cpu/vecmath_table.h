/* backend/cpu/vecmath_table.h: the functions of vecmath.h applied to arrays, one table per
 * instruction set. The tests and the bench walk it; kernels that fuse several operations include
 * vecmath.h instead. */
#ifndef GD_BACKEND_CPU_VECMATH_TABLE_H
#define GD_BACKEND_CPU_VECMATH_TABLE_H

#include <stdint.h>

/* out[i] = f(x[i]); out may be x. */
typedef struct gd_vecmath_unary {
    const char *name; /* "exp" */
    void (*f32)(const float *x, float *out, int64_t n);
    void (*f64)(const double *x, double *out, int64_t n);
} gd_vecmath_unary;

/* out[i] = f(x[i], y[i]); out may be x or y. */
typedef struct gd_vecmath_binary {
    const char *name; /* "pow" */
    void (*f32)(const float *x, const float *y, float *out, int64_t n);
    void (*f64)(const double *x, const double *y, double *out, int64_t n);
} gd_vecmath_binary;

typedef struct gd_vecmath_table {
    const gd_vecmath_unary *unary;
    int unary_count;
    const gd_vecmath_binary *binary;
    int binary_count;
} gd_vecmath_table;

extern const gd_vecmath_table gd_vecmath_baseline;
#if defined(GD_HAVE_AVX2)
extern const gd_vecmath_table gd_vecmath_avx2;
#endif
#if defined(GD_HAVE_AVX512)
extern const gd_vecmath_table gd_vecmath_avx512;
#endif
#if defined(GD_HAVE_NEON)
extern const gd_vecmath_table gd_vecmath_neon;
#endif

#endif
