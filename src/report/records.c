/* report/records.c: see records.h. */
#include "report/records.h"

uint32_t gd_crc32c(const void *bytes, size_t size)
{
    /* The remainders of half a byte's 16 values; 0x82f63b78 is the polynomial with its bits reversed. */
    uint32_t table[16];
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 4 ^ table[(crc ^ at[i]) & 15];
        crc = crc >> 4 ^ table[(crc ^ at[i] >> 4) & 15];
    }
    return ~crc;
}

/* A CRC of bytes that hold their own CRC would be weak. */
static uint32_t masked(const void *bytes, size_t size)
{
    uint32_t crc = gd_crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put(unsigned char *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(number >> (8 * i) & 0xff);
}

static uint64_t get(const unsigned char *in, int bytes)
{
    uint64_t number = 0;
    for (int i = 0; i < bytes; i++)
        number |= (uint64_t)in[i] << (8 * i);
    return number;
}

void gd_record_frame(const void *bytes, size_t size, unsigned char head[GD_RECORD_HEAD],
                     unsigned char tail[GD_RECORD_TAIL])
{
    put(head, size, 8);
    put(head + 8, masked(head, 8), 4);
    put(tail, masked(bytes, size), 4);
}

int gd_record_read(const unsigned char *file, size_t size, size_t at, const unsigned char **bytes,
                   size_t *length)
{
    if (size - at < GD_RECORD_HEAD)
        return 0;
    uint64_t claimed = get(file + at, 8);
    if (get(file + at + 8, 4) != masked(file + at, 8))
        return -1;
    size_t left = size - at - GD_RECORD_HEAD;
    if (left < GD_RECORD_TAIL || claimed > left - GD_RECORD_TAIL)
        return 0;
    *length = (size_t)claimed;
    *bytes = file + at + GD_RECORD_HEAD;
    return get(*bytes + *length, 4) == masked(*bytes, *length) ? 1 : -1;
}
