/* tests/fuzz/fuzz_tokenizer.c: libFuzzer on the tokeniser files and on text.
 *
 * The first byte says which reader; then come the file, a 0 byte, and a text to tokenise, which
 * must come back.
 */
#include <gradus/text.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void come_back(const gd_tokenizer *t, const char *text, size_t size)
{
    gd_tokens tokens = { 0 };
    gd_error_clear();
    if (gd_tokenize(t, text, size, &tokens) == GD_OK) {
        size_t got;
        char *back = gd_detokenize(t, tokens.count, tokens.ids, &got);
        if (!back || got != size || memcmp(back, text, size) != 0)
            abort();
        gd_text_free(back);
    } else if (tokens.count > 0 || !gd_error_message()[0]) {
        abort();
    }
    gd_tokens_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    int kind = data[0] % 3;
    const uint8_t *file = data + 1, *stop = data + size;
    /* A llama2.c file is full of zeros: its text is what follows the last one. */
    const uint8_t *text = stop;
    while (text > file && text[-1] != 0)
        text--;
    size_t file_size = (size_t)(text - file);
    gd_error_clear();
    gd_tokenizer *t = kind == 0   ? gd_tokenizer_bpe(file, file_size)
                      : kind == 1 ? gd_tokenizer_llama2c(file, file_size)
                                  : gd_tokenizer_characters((const char *)file, file_size);
    if (!t != (gd_error_code() != GD_OK))
        abort();
    if (t)
        come_back(t, (const char *)text, (size_t)(stop - text));
    if (t && kind == 2)
        come_back(t, (const char *)file, file_size);
    gd_tokenizer_release(t);
    return 0;
}
