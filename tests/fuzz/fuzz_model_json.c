/* tests/fuzz/fuzz_model_json.c: libFuzzer on the JSON model reader. A model that is accepted must
 * run.
 *
 *   clang -fsanitize=fuzzer,address,undefined …; fuzz_model_json -max_total_time=60
 * tests/fuzz/corpus/model_json
 */
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
        fuzz_use_model(gd, model);
    gd_close(gd);
    free(text);
    return 0;
}
