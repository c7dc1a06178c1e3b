/* tests/fuzz/fuzz_tokens.c: libFuzzer on token files and their loader. The input is three numbers
 * for the loader, then the file; the mutator mostly keeps the header's count in step with the
 * file's size. */
#include "fuzz.h"

enum { OPTIONS = 3, HEADER = 1024 };

static void load(gd_context *gd, const gd_token_data *d, const uint8_t options[OPTIONS])
{
    int64_t batch = options[0] % 16, length = options[1];
    bool random = options[2] % 2;
    gd_dataset *pieces = gd_token_dataset(gd, d, .length = length, .stride = random ? 1 : length,
                                          .first = options[2] / 2);
    fuzz_check(pieces != NULL);
    gd_loader *l =
        pieces ? gd_loader_create(pieces, .batch = batch, .with_replacement = random) : NULL;
    fuzz_check(l != NULL || !pieces);
    gd_batch b;
    for (int i = 0; l && i < 3; i++)
        if (!gd_loader_next(l, &b))
            fuzz_check(true); /* the end, no error */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < OPTIONS)
        return 0;
    gd_context *gd = fuzz_context();
    gd_token_data *d = gd_token_data_open(gd, fuzz_file(data + OPTIONS, size - OPTIONS));
    fuzz_check(d != NULL);
    for (int64_t i = 0; i < gd_token_data_count(d); i++)
        if (gd_token_data_get(d, i) < 0)
            abort();
    if (d)
        load(gd, d, data);
    gd_close(gd);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, room);
    if (seed % 4 != 0 && size >= OPTIONS + HEADER) {
        uint8_t *header = data + OPTIONS;
        uint32_t width = header[4] == 7 ? 4 : 2;
        uint32_t count = (uint32_t)(size - OPTIONS - HEADER) / width;
        size = OPTIONS + HEADER + count * width;
        memcpy(header + 8, &count, sizeof count); /* little-endian, as the machines it runs on */
    }
    return size;
}
