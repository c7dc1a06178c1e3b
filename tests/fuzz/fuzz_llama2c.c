/* tests/fuzz/fuzz_llama2c.c: libFuzzer on llama2.c's checkpoints. The file's size follows from its
 * header, so the input is the header and some weights, which are repeated to that size; a last odd
 * byte leaves one byte out. A model that is read must run. */
#include "fuzz.h"

enum { NUMBERS = 7, HEADER = 4 * NUMBERS, MOST = 1 << 20 };

/* Bytes of a checkpoint of these sizes; 0: too many to try. */
static size_t checkpoint_bytes(const int32_t n[NUMBERS])
{
    int64_t width = n[0], hidden = n[1], layers = n[2], heads = n[3], kv = n[4], length = n[6];
    int64_t vocabulary = n[5] < 0 ? -(int64_t)n[5] : n[5];
    for (int i = 0; i < NUMBERS; i++)
        if (i != 5 && (n[i] < 1 || n[i] > 256))
            return 0;
    if (vocabulary > 4096)
        return 0;
    int64_t layer =
        2 * width + 2 * width * width + 2 * width * (width / heads * kv) + 3 * width * hidden;
    int64_t all =
        vocabulary * width * (n[5] < 0 ? 2 : 1) + layers * layer + width + length * (width / heads);
    return all <= MOST / 4 ? HEADER + 4 * (size_t)all : 0;
}

static void use(gd_context *gd, gd_language_model *m)
{
    gd_language_options o = *gd_language_model_options(m);
    gd_generator *g = gd_generator_create(m);
    for (int64_t i = 0; g && i < 3 && i < o.max_length; i++) {
        int32_t token = (int32_t)(i % o.vocabulary);
        if (!gd_generator_feed(g, 1, &token) && gd_error_code() != GD_ERR_MEMORY)
            abort();
    }
    gd_error_clear();
    (void)gd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[MOST + HEADER];
    int32_t n[NUMBERS];
    size_t bytes = 0;
    if (size > HEADER) {
        memcpy(n, data, HEADER);
        bytes = checkpoint_bytes(n);
        memcpy(file, data, HEADER);
        for (size_t i = HEADER; i < bytes; i++)
            file[i] = data[HEADER + (i - HEADER) % (size - HEADER)];
        bytes -= bytes > 0 ? data[size - 1] % 8 == 7 : 0;
    }
    gd_context *gd = fuzz_context();
    gd_language_model *m =
        gd_language_model_load(gd, bytes ? fuzz_file(file, bytes) : fuzz_file(data, size));
    fuzz_check(m != NULL);
    if (m)
        use(gd, m);
    gd_close(gd);
    return 0;
}
