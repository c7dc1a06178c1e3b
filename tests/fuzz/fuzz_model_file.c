/* tests/fuzz/fuzz_model_file.c: libFuzzer on gd_model_load: one file with a description and
 * parameters, which need not be of one model. A model that is accepted must run. */
#include "fuzz.h"
#include "fuzz_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_context *gd = fuzz_context();
    gd_model *model = gd_model_load(gd, fuzz_file(data, size));
    bool ok = model != NULL;
    fuzz_check(ok);
    if (ok)
        fuzz_use_model(gd, model);
    gd_close(gd);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate_safetensors(data, size, room, seed);
}
