/* base/random.c: Philox-4x32-10 and what host code draws from it. Start at gd_philox().
 *
 * Constants and rounds are those of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011.
 */
#include "base/random.h"

#include <stddef.h>
#include <string.h>

#define MULTIPLIER_0 0xd2511f53u
#define MULTIPLIER_1 0xcd9e8d57u
#define WEYL_0       0x9e3779b9u /* golden ratio */
#define WEYL_1       0xbb67ae85u /* sqrt(3) - 1 */
#define ROUNDS       10

gd_philox_block gd_philox(const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    return (gd_philox_block){ { c0, c1, c2, c3 } };
}

/* Block number `index` of the stream of `seed`. */
static gd_philox_block stream_block(uint64_t seed, uint64_t index)
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), 0, 0 };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    return gd_philox(counter, key);
}

void gd_philox_words(uint64_t seed, uint64_t first, uint64_t count, uint32_t *out)
{
    while (count > 0) {
        gd_philox_block block = stream_block(seed, first / 4);
        uint64_t offset = first % 4; /* not 0 at most in the first block */
        uint64_t done = count < 4 - offset ? count : 4 - offset;
        memcpy(out, block.word + offset, (size_t)done * sizeof *out);
        out += done;
        first += done;
        count -= done;
    }
}

/* A reader that computes `chunk` words ahead and advances random->next only past those it gave. */
#define CHUNK_MAX 256
typedef struct word_reader {
    gd_random *random;
    uint64_t chunk;
    uint64_t ready; /* words computed and not yet given */
    uint32_t words[CHUNK_MAX];
} word_reader;

static uint32_t next_word(word_reader *reader)
{
    if (reader->ready == 0) {
        gd_philox_words(reader->random->seed, reader->random->next, reader->chunk, reader->words);
        reader->ready = reader->chunk;
    }
    reader->random->next++;
    return reader->words[reader->chunk - reader->ready--];
}

static uint64_t next_word64(word_reader *reader)
{
    uint64_t low = next_word(reader);
    return low | (uint64_t)next_word(reader) << 32;
}

__extension__ typedef unsigned __int128 wide;

/* Lemire, "Fast random integer generation in an interval", 2019: the high half of word*bound,
 * rejecting the few words that would make some results likelier. Bounds below 2^32 take one word a
 * try, larger ones two. */
static uint64_t next_below(word_reader *reader, uint64_t bound)
{
    if (bound <= UINT32_MAX) {
        uint32_t narrow = (uint32_t)bound;
        uint64_t product = (uint64_t)next_word(reader) * narrow;
        if ((uint32_t)product < narrow) {
            uint32_t threshold = -narrow % narrow;
            while ((uint32_t)product < threshold)
                product = (uint64_t)next_word(reader) * narrow;
        }
        return product >> 32;
    }
    wide product = (wide)next_word64(reader) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = -bound % bound;
        while ((uint64_t)product < threshold)
            product = (wide)next_word64(reader) * bound;
    }
    return (uint64_t)(product >> 64);
}

static void open_reader(word_reader *reader, gd_random *random, uint64_t chunk)
{
    reader->random = random;
    reader->chunk = chunk;
    reader->ready = 0;
}

uint32_t gd_random_u32(gd_random *random)
{
    uint32_t word;
    gd_philox_words(random->seed, random->next++, 1, &word);
    return word;
}

uint64_t gd_random_below(gd_random *random, uint64_t bound)
{
    word_reader reader;
    open_reader(&reader, random, 2);
    return next_below(&reader, bound);
}

double gd_random_unit(gd_random *random)
{
    word_reader reader;
    open_reader(&reader, random, 2);
    return (double)(next_word64(&reader) >> 11) * 0x1p-53;
}

void gd_random_shuffle(gd_random *random, int64_t *items, int64_t count)
{
    word_reader reader;
    open_reader(&reader, random, CHUNK_MAX);
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)next_below(&reader, (uint64_t)i + 1);
        int64_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}
