/* tests/fuzz/fuzz_jpeg.c: libFuzzer on JPEG images. An image that is read has all its pixels, and
 * can be resized. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_image image, small;
    gd_error_clear();
    gd_status status = gd_image_read(fuzz_file(data, size), &image);
    fuzz_check(status == GD_OK);
    if (status != GD_OK) {
        if (image.pixels || image.height || image.width)
            abort();
        return 0;
    }
    if (image.height < 1 || image.width < 1 || image.channels != 3 ||
        image.height * image.width > ((int64_t)size + 1) * 4096)
        abort();
    volatile unsigned char sum = 0; /* touch every byte */
    for (int64_t i = 0; i < image.height * image.width * 3; i++)
        sum = (unsigned char)(sum + image.pixels[i]);
    if (image.height * image.width < 1 << 18) {
        status = gd_image_read_reduced(fuzz_file(data, size), 5, 3, &small);
        fuzz_check(status == GD_OK); /* libjpeg may warn of what is not decoded, or not */
        gd_image_free(&small);
        status = gd_image_resize(&image, 5, 3, &small);
        fuzz_check(status == GD_OK);
        gd_image_free(&small);
    }
    gd_image_free(&image);
    return 0;
}
