/* text/token_data.h: tokens in a file or in memory. */
#ifndef GD_TEXT_TOKEN_DATA_H
#define GD_TEXT_TOKEN_DATA_H

#include <gradus/text.h>

#include "io/file.h"

struct gd_token_data {
    gd_context *context;
    int64_t count;
    int width;     /* bytes of a token, little-endian: 2 or 4 */
    gd_file *file; /* NULL: they are in memory, at tokens */
    int32_t *tokens;
};

/* Tokens [first, first + count), which are there, as i64. GD_ERR_IO; GD_ERR_FORMAT: one beyond
 * 2^31 - 1. */
gd_status gd_token_data_read(const gd_token_data *data, int64_t first, int64_t count, int64_t *out);

#endif
