/* compile/export_text.c: the text of functions for exported C, which the library carries packed:
 * see text_model.h. */
#include "compile/export.h"

#include "base/memory.h"
#include "compile/text_model.h"

extern const unsigned char gd_export_text[];

void gd_export_unpack(gd_text_buffer *out)
{
    gd_text_model *model = gd_alloc(sizeof *model);
    if (!model) {
        out->failed = true;
        return;
    }
    const unsigned char *in = gd_export_text;
    uint32_t low = 0, high = UINT32_MAX, code = 0;
    for (int i = 0; i < 4; i++)
        code = code << 8 | *in++;
    gd_text_begin(model);
    for (uint32_t byte = 1; byte != 0 && !out->failed;) {
        for (byte = 1; byte < 256;) {
            uint32_t middle = low + (high - low) / 4096 * (uint32_t)gd_text_predict(model);
            uint32_t bit = code <= middle;
            if (bit)
                high = middle;
            else
                low = middle + 1;
            gd_text_update(model, bit);
            for (; (low ^ high) >> 24 == 0; low <<= 8, high = high << 8 | 255)
                code = code << 8 | *in++;
            byte = byte * 2 + bit;
        }
        byte &= 255;
        const char letter = (char)byte;
        if (byte)
            gd_buffer_put(out, &letter, 1);
    }
    gd_free(model);
}
