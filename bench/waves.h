/* bench/waves.h: numbers that a peer in Python can make too, and a sum that tells whether results
 * are the same. */
#ifndef GD_BENCH_WAVES_H
#define GD_BENCH_WAVES_H

#include "measure.h"

#include <gradus/tensor.h>

#include <math.h>
#include <stdlib.h>

/* scale * sin(0.7 i + phase) for i below count; the caller frees them. */
static inline float *gd_bench_sines(int64_t count, double phase, double scale)
{
    float *values = malloc((size_t)count * sizeof *values);
    if (!values)
        gd_bench_die("out of memory");
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(scale * sin((double)i * 0.7 + phase));
    return values;
}

/* The sum of t's elements times cos(0.3 i). t is f32. */
static inline double gd_bench_weighted_sum(gd_tensor *t)
{
    size_t count = (size_t)gd_tensor_count(t);
    float *values = malloc(count * sizeof *values);
    if (!values || gd_tensor_read(t, values, count * sizeof *values) != GD_OK)
        gd_bench_die("%s", values ? gd_error_message() : "out of memory");
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * cos((double)i * 0.3);
    free(values);
    return sum;
}

#endif
