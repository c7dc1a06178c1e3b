/* tests/fuzz/fuzz_idx.c: libFuzzer on the IDX reader.
 *
 * No corpus is needed: the mutator below turns an empty input into a small valid file, and it looks
 * inside gzip, whose checksum would otherwise reject nearly every mutation.
 *
 *   clang -fsanitize=fuzzer,address,undefined …; fuzz_idx -max_total_time=60
 */
#include <gradus/data.h>

#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_ZLIB
#include <zlib.h>
#endif

#define ROOM (1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_idx idx;
    gd_error_clear();
    gd_status status = gd_idx_read_memory(data, size, &idx);
    if (status != gd_error_code() || (status != GD_OK) != (gd_error_message()[0] != '\0'))
        abort();
    if (status != GD_OK && (idx.data || idx.bytes || idx.rank))
        abort();
    if (status == GD_OK) {
        size_t product = gd_idx_type_size(idx.type);
        for (int i = 0; i < idx.rank; i++)
            product *= (size_t)idx.dims[i];
        if (product != idx.bytes)
            abort();
        volatile unsigned char sum = 0; /* touch every byte */
        for (size_t i = 0; i < idx.bytes; i++)
            sum = (unsigned char)(sum + ((unsigned char *)idx.data)[i]);
    }
    gd_idx_free(&idx);
    return 0;
}

static size_t give_seed(uint8_t *data, size_t room)
{
    static const uint8_t file[] = { 0, 0, 0x0b, 2, 0, 0, 0, 2, 0, 0,  0,  3,
                                    1, 2, 3,    4, 5, 6, 7, 8, 9, 10, 11, 12 };
    if (room < sizeof file)
        return 0;
    memcpy(data, file, sizeof file);
    return sizeof file;
}

#ifdef GD_HAVE_ZLIB

/* Decompress what can be; 0 when nothing can. */
static size_t unpack(const uint8_t *data, size_t size, uint8_t *out)
{
    z_stream zlib = { .next_in = (uint8_t *)(uintptr_t)data, .avail_in = (unsigned)size };
    zlib.next_out = out;
    zlib.avail_out = ROOM;
    if (inflateInit2(&zlib, 15 + 16) != Z_OK)
        return 0;
    inflate(&zlib, Z_FINISH);
    inflateEnd(&zlib);
    return ROOM - zlib.avail_out;
}

/* 0 when it does not fit. */
static size_t pack(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream zlib = { .next_in = (uint8_t *)(uintptr_t)data, .avail_in = (unsigned)size };
    zlib.next_out = out;
    zlib.avail_out = (unsigned)room;
    if (deflateInit2(&zlib, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    int result = deflate(&zlib, Z_FINISH);
    deflateEnd(&zlib);
    return result == Z_STREAM_END ? room - zlib.avail_out : 0;
}

/* Mutate the content and compress it again; 0 when that is not possible. */
static size_t mutate_content(uint8_t *data, size_t size, size_t room)
{
    static uint8_t plain[ROOM];
    size_t length = size > 2 && data[0] == 0x1f && data[1] == 0x8b ? unpack(data, size, plain) : 0;
    if (length == 0) { /* a plain file: compress it as it is */
        length = size < ROOM ? size : ROOM;
        memcpy(plain, data, length);
    }
    length = LLVMFuzzerMutate(plain, length, ROOM);
    return pack(plain, length, data, room);
}

#else

static size_t mutate_content(uint8_t *data, size_t size, size_t room)
{
    return LLVMFuzzerMutate(data, size, room);
}

#endif

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size <= 1)
        return give_seed(data, room);
    size_t packed = seed % 4 == 0 ? mutate_content(data, size, room) : 0;
    return packed ? packed : LLVMFuzzerMutate(data, size, room);
}
