/* io/quantized_store.c: blocks of GGUF files as operands of gd_quantized_linear, whose forms stand in
 * base/quantized_form.h. Numbers have 4 or 8 bits; k-quants become large blocks, and what their groups have a byte
 * each: the same weights, in more bytes where they had 2, 3, 5 or 6 bits. Start at gd_block_store(). */
#include "io/quantized.h"
#include "io/quantized_k.h"

typedef struct kept_type {
    gd_gguf_type type;
    bool four_bits, has_least;
    int groups;
    void (*take)(const unsigned char *block, gd_k_block *to);
} kept_type;

static const kept_type kept_types[] = {
    { GD_GGUF_Q8_0, false, false, 0, gd_q8_0_take },
    { GD_GGUF_Q5_0, false, false, 0, gd_q5_0_take },
    { GD_GGUF_Q5_1, false, true, 0, gd_q5_1_take },
    { GD_GGUF_Q4_0, true, false, 0, gd_q4_0_take },
    { GD_GGUF_Q4_1, true, true, 0, gd_q4_1_take },
    { GD_GGUF_Q2_K, true, true, 16, gd_q2_k_take },
    { GD_GGUF_Q3_K, true, false, 16, gd_q3_k_take },
    { GD_GGUF_Q4_K, true, true, 8, gd_q4_k_take },
    { GD_GGUF_Q5_K, false, true, 8, gd_q5_k_take },
    { GD_GGUF_Q6_K, false, false, 16, gd_q6_k_take },
};

static const kept_type *find_type(gd_gguf_type type)
{
    for (size_t i = 0; i < sizeof kept_types / sizeof *kept_types; i++)
        if (kept_types[i].type == type)
            return &kept_types[i];
    return NULL;
}

bool gd_block_form_of(gd_gguf_type type, gd_quantized_form *out)
{
    const kept_type *t = find_type(type);
    if (t)
        *out = gd_quantized_form_make(t->four_bits, t->groups, t->has_least);
    return t != NULL;
}

/* Numbers of 4 bits have other zeros with least values than without. */
bool gd_block_forms_join(const gd_quantized_form *a, const gd_quantized_form *b,
                         gd_quantized_form *out)
{
    if (!a->groups != !b->groups)
        return false;
    *out = gd_quantized_form_make(a->four_bits && b->four_bits && a->has_least == b->has_least,
                                  a->groups > b->groups ? a->groups : b->groups,
                                  a->has_least || b->has_least);
    return true;
}

static void store_numbers(const gd_k_block *b, const gd_quantized_form *form, unsigned char *values)
{
    if (!form->four_bits) {
        for (int i = 0; i < form->numbers; i++)
            values[i] = (unsigned char)b->q[i];
        return;
    }
    const int offset = form->has_least ? 0 : 8;
    for (int i = 0; i < form->numbers; i++) {
        const int *q = b->q + i / 16 * 32 + i % 16; /* and that 16 further */
        values[i] = (unsigned char)((q[0] + offset) | (q[16] + offset) << 4);
    }
}

void gd_block_store(gd_gguf_type type, const gd_quantized_form *form, const unsigned char *block,
                    unsigned char *values, uint16_t *scales)
{
    const kept_type *t = find_type(type);
    gd_k_block b;
    t->take(block, &b);
    scales[0] = b.d;
    if (form->has_least)
        scales[1] = b.dmin;
    store_numbers(&b, form, values);
    for (int g = 0; g < form->groups; g++) {
        const int from = g * t->groups / form->groups;
        values[form->numbers + g] = (unsigned char)b.scale[from];
        if (form->has_least)
            values[form->numbers + form->groups + g] = (unsigned char)b.least[from];
    }
}
