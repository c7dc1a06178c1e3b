/* tests/fuzz/fuzz_npy.c: libFuzzer on .npy and .npz files. An array that is read has the bytes that its
 * shape says, and can be written. */
#include "fuzz.h"

static void check_array(gd_status status, gd_npy *npy)
{
    fuzz_check(status == GD_OK);
    if (status != GD_OK) {
        if (npy->data || npy->bytes)
            abort();
        return;
    }
    size_t product = gd_dtype_size(npy->dtype);
    for (int i = 0; i < npy->shape.rank; i++)
        product *= (size_t)npy->shape.dim[i];
    if (product != npy->bytes)
        abort();
    volatile unsigned char sum = 0; /* touch every byte */
    for (size_t i = 0; i < npy->bytes; i++)
        sum = (unsigned char)(sum + ((unsigned char *)npy->data)[i]);
    gd_npy_free(npy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_npy npy;
    gd_error_clear();
    const char *path = fuzz_file(data, size);
    check_array(gd_npy_read(path, &npy), &npy);
    gd_npz *npz = gd_npz_open(path);
    fuzz_check(npz != NULL);
    for (int64_t i = 0; i < gd_npz_count(npz) && i < 4; i++)
        check_array(gd_npz_read(npz, i, &npy), &npy);
    gd_npz_close(npz);
    return 0;
}
