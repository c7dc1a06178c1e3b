/* tests/fuzz/fuzz_language.c: libFuzzer from safetensors files to language models. A model that is
 * read must run, and take no more memory than its file is worth: the context has 64 MB. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_context *gd = fuzz_context();
    gd_language_model *m = gd_language_model_load(gd, fuzz_file(data, size));
    if (!m && gd_error_code() == GD_ERR_MEMORY)
        abort(); /* whatever it promises, a file of 64 KB is read into less */
    fuzz_check(m != NULL);
    if (m) {
        static const int64_t tokens[2] = { 0, 0 };
        gd_language_options o = *gd_language_model_options(m);
        gd_shape shape = GD_SHAPE(1, o.max_length < 2 ? o.max_length : 2);
        gd_tensor *logits = gd_language_model_forward(m, gd_from_host(gd, shape, GD_I64, tokens));
        if (!logits && gd_error_code() != GD_ERR_MEMORY)
            abort();
    }
    gd_close(gd);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate_safetensors(data, size, room, seed);
}
