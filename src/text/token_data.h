/* text/token_data.h: tokens as they lie in a file or in memory. */
#ifndef GD_TEXT_TOKEN_DATA_H
#define GD_TEXT_TOKEN_DATA_H

#include <gradus/text.h>

#include "io/file.h"

struct gd_token_data {
    gd_context *context;
    const unsigned char *tokens; /* [count] of `width` bytes, little-endian; in the view or ours */
    int64_t count;
    int width; /* 2 or 4 */
    gd_file_view view;
    unsigned char *copy;
};

/* Tokens [first, first + count), which are there, as i64. */
void gd_token_data_read(const gd_token_data *data, int64_t first, int64_t count, int64_t *out);

#endif
