/* data/convert.h: values as a data set has them to values as batches have them. */
#ifndef GD_DATA_CONVERT_H
#define GD_DATA_CONVERT_H

#include <gradus/tensor.h>

/* out[i] = in[i] * scale + shift, rounded twice: the same on every instruction set. Integers of four
 * bytes and more, and f64, are scaled in f64. */
typedef void (*gd_convert_fn)(const void *in, float *out, int64_t count, double scale,
                              double shift);
/* The one for values of `dtype` and the instruction set of that name. */
gd_convert_fn gd_convert_choose(gd_dtype dtype, const char *isa);

typedef struct gd_conversion {
    gd_dtype from, to;
    double scale, shift;
    bool copies;          /* the bytes are the same */
    gd_convert_fn to_f32; /* where `to` is f32, f16 or bf16 */
} gd_conversion;

/* Whether values of one dtype can be in batches of another: a float dtype, or for integers and bool
 * an integer dtype that has all their numbers. */
bool gd_can_convert(gd_dtype from, gd_dtype to);
gd_conversion gd_conversion_choose(gd_dtype from, gd_dtype to, double scale, double shift,
                                   const char *isa);
void gd_convert(const gd_conversion *conversion, const void *in, void *out, int64_t count);
/* `count` times the value nearest to `value` that `dtype` has. */
void gd_fill_values(gd_dtype dtype, double value, void *out, int64_t count);

#endif
