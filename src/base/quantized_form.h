/* base/quantized_form.h: how the weights of gd_quantized_linear lie in memory, which the sizes of their
 * rows tell. What they mean stands at the head of ops/quantized.c. */
#ifndef GD_BASE_QUANTIZED_FORM_H
#define GD_BASE_QUANTIZED_FORM_H

#include <stdbool.h>
#include <stdint.h>

enum { GD_QUANTIZED_BLOCK = 32, GD_QUANTIZED_LARGE = 256, GD_QUANTIZED_GROUPS = 16 /* at most */ };

/* Weights in blocks of 32, or in large blocks of 256 with groups of 16 or 32, which have scales and
 * perhaps least values of their own, one byte each. Both may have least values: a second scale. */
typedef struct gd_quantized_form {
    bool four_bits, has_least;
    int groups;  /* of a large block: 16 or 8; 0: blocks of 32 */
    int numbers; /* bytes of the numbers of a block, or of a large one */
    int bytes;   /* the same with what its groups have */
    int scales;  /* of a block, or of a large one */
} gd_quantized_form;

/* One of blocks of 32 (groups 0), or of large blocks. */
static inline gd_quantized_form gd_quantized_form_make(bool four_bits, int groups, bool has_least)
{
    const int weights = groups ? GD_QUANTIZED_LARGE : GD_QUANTIZED_BLOCK,
              scales = has_least ? 2 : 1;
    const int of_weights = four_bits ? weights / 2 : weights;
    return (gd_quantized_form){ .four_bits = four_bits,
                                .has_least = has_least,
                                .groups = groups,
                                .numbers = of_weights,
                                .bytes = of_weights + groups * scales,
                                .scales = scales };
}

/* The form with so many bytes of values, and so many scales, in a row; of 4 bits where values are u8.
 * false: there is none. */
static inline bool gd_quantized_form_of(bool four_bits, int64_t bytes, int64_t scales,
                                        gd_quantized_form *out)
{
    static const struct {
        int groups;
        bool has_least;
    } kinds[] = {
        { 0, false }, { 0, true }, { 16, false }, { 8, false }, { 16, true }, { 8, true }
    };
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        *out = gd_quantized_form_make(four_bits, kinds[i].groups, kinds[i].has_least);
        if (scales % out->scales == 0 && bytes == scales / out->scales * out->bytes)
            return true;
    }
    return false;
}

/* Weights in a row with so many scales. */
static inline int64_t gd_quantized_inner(const gd_quantized_form *form, int64_t scales)
{
    return scales / form->scales * (form->groups ? GD_QUANTIZED_LARGE : GD_QUANTIZED_BLOCK);
}

#endif
