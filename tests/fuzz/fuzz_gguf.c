/* tests/fuzz/fuzz_gguf.c: libFuzzer on GGUF files: the values, the tensors, and, where there are some, the tokeniser and the model. Whatever it promises,
 * a file of 64 KB is read into less than 64 MB. */
#include "fuzz.h"

static void read_tensors(gd_context *gd, const gd_gguf *file)
{
    for (int64_t i = 0; i < gd_gguf_count(file); i++) {
        gd_gguf_info info;
        if (gd_gguf_tensor_info(file, i, &info) != GD_OK || gd_gguf_find(file, info.name) != i)
            abort();
        gd_scope_begin(gd);
        gd_tensor *t = gd_gguf_read(file, gd, i);
        if (!t && gd_error_code() == GD_ERR_MEMORY)
            abort();
        fuzz_check(t != NULL);
        (void)gd_scope_end(gd);
    }
}

static void read_values(const gd_gguf *file)
{
    const char *key;
    for (int64_t i = 0; (key = gd_gguf_key(file, i)); i++) {
        double number;
        size_t size;
        int64_t count = gd_gguf_length(file, key);
        if (count < 0)
            abort();
        for (int64_t k = 0; k < count; k++) {
            const char *text = gd_gguf_text(file, key, k, &size);
            if (text ? text[size] != '\0' : !gd_gguf_number(file, key, k, &number))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_context *gd = fuzz_context();
    gd_gguf *file = gd_gguf_open(fuzz_file(data, size));
    fuzz_check(file != NULL);
    if (file) {
        read_values(file);
        read_tensors(gd, file);
    }
    gd_gguf_close(file);
    const char *path = fuzz_file(data, size);
    gd_tokenizer *tokenizer = gd_tokenizer_load_gguf(path);
    fuzz_check(tokenizer != NULL);
    gd_tokens tokens = { 0 };
    if (tokenizer)
        fuzz_check(gd_tokenize(tokenizer, "a text: 12,\n", 12, &tokens) == GD_OK);
    gd_tokens_free(&tokens);
    gd_tokenizer_release(tokenizer);
    gd_language_model *model = gd_language_model_load(gd, path);
    if (!model && gd_error_code() == GD_ERR_MEMORY)
        abort();
    fuzz_check(model != NULL);
    gd_close(gd);
    return 0;
}
