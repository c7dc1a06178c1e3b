/* base/random.h: Philox-4x32-10, a counter-based generator: the n-th number is a function of (key,
 * n) alone, so any number of threads, in any order, produce the same stream. Salmon, Moraes, Dror,
 * Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef GD_BASE_RANDOM_H
#define GD_BASE_RANDOM_H

#include <stdint.h>

typedef struct gd_philox_block {
    uint32_t word[4];
} gd_philox_block;

/* Ten rounds over a 128-bit counter and a 64-bit key. */
gd_philox_block gd_philox(const uint32_t counter[4], const uint32_t key[2]);

/* Words [first, first+count) of the stream of `seed`: word i is word[i % 4] of the block whose
 * counter is {low32(i/4), high32(i/4), 0, 0} under the key {low32(seed), high32(seed)}. */
void gd_philox_words(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);

/* A sequential reader of that stream, for host code such as shuffles. */
typedef struct gd_random {
    uint64_t seed;
    uint64_t next; /* index of the next word */
} gd_random;

uint32_t gd_random_u32(gd_random *random);
uint64_t
gd_random_below(gd_random *random,
                uint64_t bound); /* uniform in [0, bound), unbiased (Lemire 2019); bound > 0 */
double gd_random_unit(gd_random *random); /* uniform in [0, 1), 53 bits */

/* Fisher-Yates shuffle of `count` indices in place. */
void gd_random_shuffle(gd_random *random, int64_t *items, int64_t count);

#endif
