/* codegen/text.c: the text of functions, which the library carries. cmake/EmbedText.cmake makes the
 * array. */
#include "codegen/codegen.h"

extern const unsigned char gd_codegen_text[];
extern const size_t gd_codegen_text_size;

void gd_codegen_unpack(gd_text_buffer *out)
{
    gd_buffer_put(out, (const char *)gd_codegen_text, gd_codegen_text_size);
}
