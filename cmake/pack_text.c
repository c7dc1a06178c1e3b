/* cmake/pack_text.c: pack_text TEXT OUT.c NAME, a tool of the build: the text as the array NAME,
 * packed by an arithmetic coder (Witten, Neal, Cleary 1987) over compile/text_model.h. A zero ends
 * it. */
#include <stdint.h>
#include <stdio.h>

#include "compile/text_model.h"

static gd_text_model model;
static uint32_t low, high = UINT32_MAX;
static int column;

static void put(FILE *out, unsigned byte)
{
    fprintf(out, "%u,%s", byte, ++column % 24 ? "" : "\n");
}

static void encode(FILE *out, int byte)
{
    for (int i = 7; i >= 0; i--) {
        const uint32_t bit = (uint32_t)byte >> i & 1;
        const uint32_t middle = low + (high - low) / 4096 * (uint32_t)gd_text_predict(&model);
        if (bit)
            high = middle;
        else
            low = middle + 1;
        gd_text_update(&model, bit);
        for (; (low ^ high) >> 24 == 0; low <<= 8, high = high << 8 | 255)
            put(out, low >> 24);
    }
}

int main(int argc, char **argv)
{
    FILE *in = argc == 4 ? fopen(argv[1], "rb") : NULL, *out = in ? fopen(argv[2], "wb") : NULL;
    if (!out)
        return 1;
    gd_text_begin(&model);
    fprintf(out,
            "/* Made by cmake/pack_text.c. */\nextern const unsigned char %s[];\n"
            "const unsigned char %s[] = {\n",
            argv[3], argv[3]);
    for (int byte; (byte = fgetc(in)) != EOF;)
        encode(out, byte);
    encode(out, 0);
    for (int i = 0; i < 4; i++, low <<= 8)
        put(out, low >> 24);
    fprintf(out, "};\n");
    fclose(in);
    return fclose(out) != 0;
}
