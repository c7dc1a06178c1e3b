/* io/quantized.h: the types of tensors in GGUF files: numbers in blocks, each with a scale of its own. Start at
 * gd_block_format_of(). */
#ifndef GD_IO_QUANTIZED_H
#define GD_IO_QUANTIZED_H

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
