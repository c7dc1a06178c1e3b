/* backend/cpu/random.h: the random words of base/random.h, as fast as each instruction set makes
 * them. */
#ifndef GD_BACKEND_CPU_RANDOM_H
#define GD_BACKEND_CPU_RANDOM_H

#include <stdint.h>

/* The same words as gd_philox_words(). */
typedef void (*gd_random_fn)(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);

void gd_random_words_baseline(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);
void gd_random_words_avx2(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);
void gd_random_words_avx512(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);
void gd_random_words_neon(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out);

#endif
