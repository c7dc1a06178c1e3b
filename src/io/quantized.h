/* io/quantized.h: the types of tensors in GGUF files: numbers in blocks, each with a scale of its own. Start at
 * gd_block_format_of(). */
#ifndef GD_IO_QUANTIZED_H
#define GD_IO_QUANTIZED_H

#include "base/quantized_form.h"

#include <gradus/gguf.h>

typedef struct gd_block_format {
    gd_gguf_type type;
    const char *name;
    int count;   /* numbers in a block */
    size_t size; /* bytes of a block */
    /* One block, bit for bit as the Python package gguf does it. */
    void (*read)(const unsigned char *block, float *out);
    void (*write)(const float *values, unsigned char *block); /* NULL: by `search` */
    /* One block, so that the sum of importance * error^2 is small; `importance` is that of each number, or NULL. */
    void (*search)(const float *values, const float *importance, unsigned char *block);
} gd_block_format;

/* Whether a tensor of a type can be an operand of gd_quantized_linear, and in which form. */
bool gd_block_form_of(gd_gguf_type type, gd_quantized_form *out);
/* The form that both kinds of weights fit. false: there is none. */
bool gd_block_forms_join(const gd_quantized_form *a, const gd_quantized_form *b,
                         gd_quantized_form *out);
/* A block of a type in a form that it fits: form->bytes of values, form->scales of f16. */
void gd_block_store(gd_gguf_type type, const gd_quantized_form *form, const unsigned char *block,
                    unsigned char *values, uint16_t *scales);

/* The most numbers in a block of any format. */
enum { GD_BLOCK_MOST = 256 };

/* NULL: unknown. */
const gd_block_format *gd_block_format_of(uint32_t type);

/* `count` numbers, a multiple of the format's. */
void gd_blocks_read(const gd_block_format *format, const unsigned char *blocks, size_t count,
                    float *out);
/* `importance` is looked at where the format has a search; NULL: all are alike. false: a number is not finite, or a
 * block's scale is too large for f16; *at is its place. */
bool gd_blocks_write(const gd_block_format *format, const float *values, const float *importance,
                     size_t count, unsigned char *blocks, size_t *at);

#endif
