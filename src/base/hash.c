/* base/hash.c: XXH64 as its specification writes it (github.com/Cyan4973/xxHash,
 * doc/xxhash_spec.md). */
#include "base/hash.h"

#include <string.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* `bytes` of a little-endian number. */
static uint64_t load(const unsigned char *at, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;)
        x = x << 8 | at[i];
    return x;
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static void add_stripe(gd_hash *h, const unsigned char *at)
{
    for (int i = 0; i < 4; i++)
        h->lane[i] = mix(h->lane[i], load(at + 8 * i, 8));
}

void gd_hash_begin(gd_hash *h)
{
    *h = (gd_hash){ .lane = { P1 + P2, P2, 0, -P1 } };
}

void gd_hash_add(gd_hash *h, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    h->total += size;
    if (h->rest_bytes > 0) {
        size_t room = sizeof h->rest - h->rest_bytes, part = size < room ? size : room;
        memcpy(h->rest + h->rest_bytes, at, part);
        h->rest_bytes += part;
        at += part;
        size -= part;
        if (h->rest_bytes < sizeof h->rest)
            return;
        add_stripe(h, h->rest);
        h->rest_bytes = 0;
    }
    for (; size >= sizeof h->rest; at += sizeof h->rest, size -= sizeof h->rest)
        add_stripe(h, at);
    if (size > 0)
        memcpy(h->rest, at, size);
    h->rest_bytes = size;
}

static uint64_t join_lanes(const gd_hash *h)
{
    if (h->total < sizeof h->rest)
        return P5;
    uint64_t x = rotate(h->lane[0], 1) + rotate(h->lane[1], 7) + rotate(h->lane[2], 12) +
                 rotate(h->lane[3], 18);
    for (int i = 0; i < 4; i++)
        x = (x ^ mix(0, h->lane[i])) * P1 + P4;
    return x;
}

uint64_t gd_hash_end(const gd_hash *h)
{
    uint64_t x = join_lanes(h) + h->total;
    size_t at = 0;
    for (; at + 8 <= h->rest_bytes; at += 8)
        x = rotate(x ^ mix(0, load(h->rest + at, 8)), 27) * P1 + P4;
    if (at + 4 <= h->rest_bytes) {
        x = rotate(x ^ load(h->rest + at, 4) * P1, 23) * P2 + P3;
        at += 4;
    }
    for (; at < h->rest_bytes; at++)
        x = rotate(x ^ h->rest[at] * P5, 11) * P1;
    x = (x ^ x >> 33) * P2;
    x = (x ^ x >> 29) * P3;
    return x ^ x >> 32;
}
