/* tests/fuzz/fuzz.h: what the fuzz targets share: bytes as a file, contexts of bounded memory, the
 * rule of errors, and a mutator for safetensors files. */
#ifndef GD_TESTS_FUZZ_H
#define GD_TESTS_FUZZ_H

#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* The path of a file in memory with these bytes; static text, until the next call. */
static inline const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

/* One thread, 64 MB of tensors. */
static inline gd_context *fuzz_context(void)
{
    gd_error_clear();
    gd_context *gd = gd_open("cpu", .threads = 1, .memory_limit = (size_t)64 << 20);
    if (!gd)
        abort();
    return gd;
}

/* What failed has recorded an error with a sentence, and what succeeded none. */
static inline void fuzz_check(bool succeeded)
{
    if (succeeded != (gd_error_code() == GD_OK) || succeeded != (gd_error_message()[0] == '\0'))
        abort();
    gd_error_clear();
}

/* Reads the bytes as an image; false: they are none, which has been told as it should be. The caller frees it. */
static inline bool fuzz_image(const uint8_t *data, size_t size, gd_image *image)
{
    gd_error_clear();
    gd_status status = gd_image_read(fuzz_file(data, size), image);
    fuzz_check(status == GD_OK);
    bool empty = !image->pixels && image->height == 0 && image->width == 0;
    bool whole = image->pixels && image->height >= 1 && image->width >= 1 && image->channels == 3 &&
                 image->height * image->width <= ((int64_t)size + 1) * 4096;
    if (status == GD_OK ? !whole : !empty)
        abort();
    return status == GD_OK;
}

/* Mutate a safetensors file; mostly its header alone, keeping the header's length and the file's
 * size in step, so that mutations reach the checks behind those two. */
static inline size_t fuzz_mutate_safetensors(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    enum { ROOM = 1 << 16 };
    static uint8_t header[ROOM], values[ROOM];
    uint64_t length;
    if (size <= 8 || seed % 8 == 0)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(&length, data, sizeof length);
    if (length > size - 8)
        length = size - 8;
    size_t values_bytes = size - 8 - (size_t)length;
    if (length > ROOM || values_bytes > ROOM)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(header, data + 8, (size_t)length);
    memcpy(values, data + 8 + length, values_bytes);
    length = LLVMFuzzerMutate(header, (size_t)length, ROOM);
    if (8 + length + values_bytes > room)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(data, &length, sizeof length);
    memcpy(data + 8, header, (size_t)length);
    memcpy(data + 8 + length, values, values_bytes);
    return 8 + (size_t)length + values_bytes;
}

#endif
