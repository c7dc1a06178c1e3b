/* base/hash.h: XXH64, a 64-bit hash of bytes (Y. Collet, xxHash; seed 0): finds damage, not forgery.
 */
#ifndef GD_BASE_HASH_H
#define GD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Bytes may come in any number of pieces. */
typedef struct gd_hash {
    uint64_t lane[4];
    uint64_t total; /* bytes so far */
    unsigned char rest[32];
    size_t rest_bytes;
} gd_hash;

void gd_hash_begin(gd_hash *hash);
void gd_hash_add(gd_hash *hash, const void *bytes, size_t size);
uint64_t gd_hash_end(const gd_hash *hash);

#endif
