/* tests/fuzz/fuzz_jpeg.c: libFuzzer on JPEG images. An image that is read has all its pixels, and
 * can be resized. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_image image, small;
    if (!fuzz_image(data, size, &image))
        return 0;
    volatile unsigned char sum = 0; /* touch every byte */
    for (int64_t i = 0; i < image.height * image.width * 3; i++)
        sum = (unsigned char)(sum + image.pixels[i]);
    if (image.height * image.width < 1 << 18) {
        gd_status status = gd_image_read_reduced(fuzz_file(data, size), 5, 3, &small);
        fuzz_check(status == GD_OK); /* libjpeg may warn of what is not decoded, or not */
        gd_image_free(&small);
        status = gd_image_resize(&image, 5, 3, &small);
        fuzz_check(status == GD_OK);
        gd_image_free(&small);
    }
    gd_image_free(&image);
    return 0;
}
