/* codegen/text.c: the text of functions, which the library carries: with zlib, packed to a quarter.
 * cmake/EmbedText.cmake makes the array. */
#include "base/error.h"
#include "codegen/codegen.h"

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

extern const unsigned char gd_codegen_text[];
extern const size_t gd_codegen_text_size;

#ifdef GD_HAVE_ZLIB
void gd_codegen_unpack(gd_text_buffer *out)
{
    z_stream stream = { .next_in = (z_const Bytef *)gd_codegen_text,
                        .avail_in = (uInt)gd_codegen_text_size };
    const int gzip = 16 + MAX_WBITS;
    int status = inflateInit2(&stream, gzip);
    while (status == Z_OK && !out->failed) {
        char part[4096];
        stream.next_out = (Bytef *)part;
        stream.avail_out = sizeof part;
        status = inflate(&stream, Z_NO_FLUSH);
        gd_buffer_put(out, part, sizeof part - stream.avail_out);
    }
    inflateEnd(&stream);
    if (!out->failed && status != Z_STREAM_END) {
        gd_fail(GD_ERR_MEMORY, "zlib found no memory");
        out->failed = true;
    }
}
#else
void gd_codegen_unpack(gd_text_buffer *out)
{
    gd_buffer_put(out, (const char *)gd_codegen_text, gd_codegen_text_size);
}
#endif
