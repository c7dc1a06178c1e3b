/* tests/fuzz/fuzz_png.c: libFuzzer on PNG images. An image that is read has all its pixels; written
 * and read again, it has the same. A mutation does not get past the check sums of chunks, so those
 * of chunks that are there are made right first, but for one input in eight. */
#include "fuzz.h"

static uint32_t get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t check_sum(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void repair(uint8_t *file, size_t size)
{
    for (size_t at = 8; at + 12 <= size;) {
        size_t length = get_u32(file + at);
        if (length > size - at - 12)
            return;
        uint32_t sum = check_sum(file + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            file[at + 8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + 12;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, room);
    if (seed % 8)
        repair(data, size);
    return size;
}

static void write_and_read(const gd_image *image)
{
    static char path[64];
    if (!path[0])
        snprintf(path, sizeof path, "%s/gradus_fuzz_%d.png",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    gd_image back;
    fuzz_check(gd_image_write(path, image) == GD_OK);
    gd_status status = gd_image_read(path, &back);
    (void)remove(path);
    gd_error_clear();
    if (status != GD_OK) /* 4,096 pixels a byte */
        return;
    if (memcmp(back.pixels, image->pixels, (size_t)(image->height * image->width * 3)) != 0)
        abort();
    gd_image_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_image image;
    if (!fuzz_image(data, size, &image))
        return 0;
    if (image.height * image.width < 1 << 12)
        write_and_read(&image);
    gd_image_free(&image);
    return 0;
}
