/* tests/fuzz/fuzz_model_json.c: libFuzzer on the JSON model reader. A model that is accepted must
 * run.
 *
 *   clang -fsanitize=fuzzer,address,undefined …; fuzz_model_json -max_total_time=60
 * tests/fuzz/corpus/model_json
 */
#include <gradus/gradus.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A forward pass over a batch of two. */
static void use(gd_context *gd, gd_model *model)
{
    gd_shape input = gd_model_input_shape(model), shape = { .rank = input.rank + 1, .dim = { 2 } };
    memcpy(shape.dim + 1, input.dim, sizeof(int64_t) * (size_t)input.rank);
    gd_tensor *x = gd_ones(gd, shape, GD_F32);
    gd_tensor *y = x ? gd_model_forward(model, x) : NULL;
    if (!y && gd_error_code() != GD_ERR_MEMORY)
        abort();
    char summary[4096];
    (void)gd_module_summary(gd_model_module(model), summary, sizeof summary);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Text, not a path: it begins with '{'. */
    char *text = malloc(size + 2);
    if (!text)
        return 0;
    text[0] = '{';
    memcpy(text + 1, data, size);
    text[size + 1] = '\0';
    gd_error_clear();
    gd_context *gd = gd_open("cpu", .threads = 1, .memory_limit = (size_t)64 << 20);
    if (!gd)
        abort();
    gd_model *model = gd_model_load_json(gd, text, .seed = 1);
    if (!model && (gd_error_code() == GD_OK || gd_error_message()[0] == '\0'))
        abort();
    if (model && gd_error_code() != GD_OK)
        abort();
    if (model)
        use(gd, model);
    gd_close(gd);
    free(text);
    return 0;
}
