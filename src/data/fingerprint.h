/* data/fingerprint.h: hashes of what may be too large to be read whole. */
#ifndef GD_DATA_FINGERPRINT_H
#define GD_DATA_FINGERPRINT_H

#include "base/hash.h"

/* Up to 16 MiB whole; of more 1,024 pieces of 4 KiB, evenly spaced, the first and the last among them. */
void gd_hash_add_spread(gd_hash *hash, const void *bytes, size_t size);

#endif
