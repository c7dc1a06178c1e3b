/* tests/test_pool.c: the caching pool: random use with the structure checked at every step, fit,
 * splitting and merging, limit, statistics, trimming, and every allocation failing in turn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "tensor/pool.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

/* A device whose memory can run out. */
typedef struct device {
    size_t capacity; /* 0: endless */
    size_t taken;
    int chunks, attempts;
    size_t alignment; /* 0: 64 */
} device;

static void *device_alloc(void *user, size_t bytes)
{
    device *d = user;
    d->attempts++;
    if (d->capacity && bytes > d->capacity - d->taken)
        return NULL;
    void *memory = gd_alloc_aligned(bytes, d->alignment ? d->alignment : 64);
    if (memory) {
        d->taken += bytes;
        d->chunks++;
    }
    return memory;
}

static void device_release(void *user, void *memory, size_t bytes)
{
    device *d = user;
    d->taken -= bytes;
    d->chunks--;
    gd_free_aligned(memory);
}

static gd_pool *open_pool(device *d, size_t limit)
{
    gd_pool *pool = gd_pool_open((gd_pool_source){ device_alloc, device_release, d, 64 },
                                 limit ? limit : SIZE_MAX);
    assert_non_null(pool);
    return pool;
}

static gd_pool_block *take(gd_pool *pool, size_t bytes)
{
    gd_pool_block *block = gd_pool_alloc(pool, bytes);
    assert_non_null(block);
    assert_true(block->bytes >= bytes && block->bytes % 64 == 0);
    assert_int_equal((uintptr_t)block->address % 64, 0);
    assert_true(gd_pool_check(pool));
    return block;
}

static void give(gd_pool *pool, gd_pool_block *block)
{
    gd_pool_free(pool, block);
    assert_true(gd_pool_check(pool));
}

static gd_memory_stats stats_of(const gd_pool *pool)
{
    gd_memory_stats stats = { .live_tensors = 42 };
    gd_pool_stats(pool, &stats);
    assert_int_equal(stats.live_tensors, 42); /* somebody else's */
    return stats;
}

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

/* ---- fit, split, merge ---- */

static void test_sizes(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    assert_int_equal(take(pool, 0)->bytes, 64);
    assert_int_equal(take(pool, 1)->bytes, 64);
    assert_int_equal(take(pool, 64)->bytes, 64);
    assert_int_equal(take(pool, 65)->bytes, 128);
    assert_int_equal(take(pool, 3 * MIB + 1)->bytes, 3 * MIB + 64);
    assert_null(gd_pool_alloc(pool, SIZE_MAX));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_true(gd_pool_check(pool));
    gd_pool_free(pool, NULL);
    gd_pool_close(pool);
    gd_pool_close(NULL);
    assert_int_equal(d.chunks, 0);
}

static void test_merge_restores_the_chunk(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    /* Free in every order of four neighbours. */
    for (int order = 0; order < 24; order++) {
        gd_pool_block *block[4];
        for (int i = 0; i < 4; i++)
            block[i] = take(pool, (size_t)(i + 1) * 100);
        int pick[4] = { order / 6, order / 2 % 3, order % 2, 0 };
        for (int left = 4; left > 0; left--) {
            int i = pick[4 - left];
            give(pool, block[i]);
            memmove(&block[i], &block[i + 1], (size_t)(3 - i) * sizeof *block);
        }
        gd_memory_stats stats = stats_of(pool);
        assert_int_equal(stats.in_use, 0);
        assert_int_equal(stats.free_blocks, 1);
        assert_int_equal(stats.largest_free, MIB);
        assert_int_equal(stats.from_device, 1);
        assert_int_equal(stats.splits, stats.merges);
    }
    gd_pool_close(pool);
}

/* Of several holes the smallest that is large enough is taken, also within one size class and
 * across classes. */
static void test_best_fit(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    static const size_t holes[] = {
        66560, 66048, 67584, 131072, 4096, 66304
    }; /* 64…67 KiB share a class */
    gd_pool_block *hole[6];
    void *address[6];
    for (int i = 0; i < 6; i++) {
        hole[i] = take(pool, holes[i]);
        address[i] = hole[i]->address;
        take(pool, 64); /* a wall between */
    }
    for (int i = 0; i < 6; i++)
        give(pool, hole[i]);
    assert_ptr_equal(take(pool, 66300)->address, address[5]);
    assert_ptr_equal(take(pool, 66300)->address, address[0]);
    assert_ptr_equal(take(pool, 66300)->address, address[2]);
    assert_ptr_equal(take(pool, 66300)->address, address[3]);
    assert_ptr_equal(take(pool, 66048)->address, address[1]);
    assert_ptr_equal(take(pool, 4000)->address, address[4]);
    assert_int_equal(stats_of(pool).from_device, 1);
    gd_pool_close(pool);
}

static void test_chunks_grow(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    static const size_t reserved[] = { 1, 3, 7, 15, 31, 63, 127, 191, 255 };
    for (int i = 0; i < 9; i++) {
        size_t free_bytes;
        do { /* fill up what there is */
            take(pool, MIB / 2);
            free_bytes = stats_of(pool).reserved - stats_of(pool).in_use;
        } while (free_bytes > 0);
        assert_int_equal(stats_of(pool).reserved, reserved[i] * MIB);
        assert_int_equal(stats_of(pool).from_device, i + 1);
    }
    take(pool, 100 * MIB); /* larger than any chunk: one of its own */
    assert_int_equal(stats_of(pool).reserved, 355 * MIB);
    gd_pool_close(pool);
    assert_int_equal(d.taken, 0);
}

/* ---- limit, trim, statistics ---- */

static void test_limit(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 100000);
    gd_pool_block *a = take(pool, 60000); /* an ordinary chunk would pass the limit: just this */
    assert_int_equal(stats_of(pool).reserved, 60032);
    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_pool_alloc(pool, 50000));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_string_equal(gd_error_message(),
                        "out of memory: 50048 bytes wanted, 60032 of the limit of "
                        "100000 are taken");
    assert_true(gd_pool_check(pool));
    gd_error_clear();
    give(pool, a);
    gd_pool_block *b = take(pool, 99968); /* the unused chunk is given back to make room */
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(stats_of(pool).reserved, 99968);
    assert_int_equal(stats_of(pool).limit, 100000);
    give(pool, b);
    gd_pool_close(pool);
}

static void test_device_out_of_memory(void **state)
{
    (void)state;
    device d = { .capacity = MIB / 2 };
    gd_pool *pool = open_pool(&d, 0);
    gd_pool_block *a = take(pool, 1000); /* the ordinary chunk is refused, the exact one is not */
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(d.attempts, 2);
    assert_null(gd_pool_alloc(pool, MIB));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_true(gd_pool_check(pool));
    gd_error_clear();
    give(pool, a);
    take(pool, MIB / 2);
    gd_pool_close(pool);
    assert_int_equal(d.taken, 0);
}

static void test_trim_and_peak(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    gd_pool_block *small = take(pool, 100);
    gd_pool_block *large = take(pool, 5 * MIB);
    assert_int_equal(stats_of(pool).reserved, 6 * MIB);
    give(pool, large);
    gd_memory_stats stats = stats_of(pool);
    assert_int_equal(stats.in_use, 128);
    assert_int_equal(stats.peak, 5 * MIB + 128);
    assert_int_equal(stats.free_blocks, 2);
    assert_int_equal(stats.largest_free, 5 * MIB);
    assert_int_equal(stats.allocations, 2);
    assert_int_equal(stats.splits, 1);
    gd_pool_reset_peak(pool);
    assert_int_equal(stats_of(pool).peak, 128);
    gd_pool_trim(pool); /* the first chunk is in use */
    assert_true(gd_pool_check(pool));
    assert_int_equal(stats_of(pool).reserved, MIB);
    assert_int_equal(d.chunks, 1);
    give(pool, small);
    gd_pool_trim(pool);
    assert_true(gd_pool_check(pool));
    stats = stats_of(pool);
    assert_int_equal(stats.reserved, 0);
    assert_int_equal(stats.free_blocks, 0);
    assert_int_equal(stats.largest_free, 0);
    assert_int_equal(d.chunks, 0);
    take(pool, 100);
    gd_pool_close(pool);
}

/* A loop that asks for what it freed needs no new memory from the device. */
static void test_reuse(void **state)
{
    (void)state;
    device d = { 0 };
    gd_pool *pool = open_pool(&d, 0);
    void *address = NULL;
    for (int i = 0; i < 1000; i++) {
        gd_pool_block *a = take(pool, 5000), *b = take(pool, 300);
        assert_true(address == NULL || a->address == address);
        address = a->address;
        give(pool, a);
        give(pool, b);
    }
    assert_int_equal(stats_of(pool).from_device, 1);
    gd_pool_close(pool);
}

/* ---- random use ---- */

#define LIVE 200

typedef struct holding {
    gd_pool_block *block;
    size_t bytes;
    unsigned char mark;
} holding;

static size_t random_size(gd_random *random)
{
    size_t scale = (size_t)1 << gd_random_below(random, 19);
    return (size_t)gd_random_below(random, 4 * scale);
}

/* Fill, remember, and find unchanged: blocks do not overlap. Every `fail_each`-th request meets an
 * exhausted allocator. */
static void use_at_random(uint64_t seed, size_t limit, unsigned fail_each)
{
    device d = { 0 };
    gd_pool *pool = open_pool(&d, limit);
    gd_random random = { .seed = seed };
    static holding held[LIVE];
    memset(held, 0, sizeof held);
    size_t in_use = 0, refusals = 0;
    for (int step = 0; step < 20000; step++) {
        holding *h = &held[gd_random_below(&random, LIVE)];
        if (h->block) {
            const unsigned char *bytes = h->block->address;
            assert_true(h->bytes == 0 || (bytes[0] == h->mark && bytes[h->bytes - 1] == h->mark));
            in_use -= h->block->bytes;
            gd_pool_free(pool, h->block);
            h->block = NULL;
        } else {
            h->bytes = random_size(&random);
            h->mark = (unsigned char)step;
            bool fail = fail_each && gd_random_below(&random, fail_each) == 0;
            if (fail)
                gd_fail_allocations_after((int64_t)gd_random_below(&random, 3));
            h->block = gd_pool_alloc(pool, h->bytes);
            gd_fail_allocations_after(-1);
            if (h->block) {
                assert_int_equal(gd_error_code(), GD_OK);
                memset(h->block->address, h->mark, h->bytes);
                in_use += h->block->bytes;
            } else {
                assert_true(fail || limit);
                assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
                gd_error_clear();
                refusals++;
            }
        }
        if (step % 1000 == 999)
            gd_pool_trim(pool);
        assert_true(gd_pool_check(pool));
        assert_int_equal(stats_of(pool).in_use, in_use);
        assert_int_equal(stats_of(pool).reserved, d.taken);
        assert_true(!limit || d.taken <= limit);
    }
    assert_true(!(limit || fail_each) == (refusals == 0));
    for (int i = 0; i < LIVE; i++)
        if (held[i].block)
            gd_pool_free(pool, held[i].block);
    gd_pool_trim(pool);
    assert_int_equal(d.chunks, 0);
    gd_pool_close(pool);
}

static void test_random(void **state)
{
    (void)state;
    use_at_random(1, 0, 0);
    use_at_random(2, 0, 0);
}

static void test_random_with_limit(void **state)
{
    (void)state;
    use_at_random(3, 4 * MIB, 0);
}

static void test_random_with_failures(void **state)
{
    (void)state;
    use_at_random(4, 0, 5);
    use_at_random(5, 8 * MIB, 5);
}

/* The memory of devices that want more: blocks are cut at multiples of it. */
static void test_alignment(void **state)
{
    (void)state;
    device d = { .alignment = 512 };
    gd_pool *pool =
        gd_pool_open((gd_pool_source){ device_alloc, device_release, &d, 512 }, SIZE_MAX);
    gd_pool_block *block[40];
    for (int i = 0; i < 40; i++) {
        block[i] = gd_pool_alloc(pool, (size_t)i * 100);
        assert_true((uintptr_t)block[i]->address % 512 == 0 && block[i]->bytes % 512 == 0);
        assert_true(block[i]->bytes < (size_t)i * 100 + 512 + (i == 0));
        assert_true(gd_pool_check(pool));
    }
    for (int i = 0; i < 40; i++) {
        gd_pool_free(pool, block[i * 7 % 40]);
        assert_true(gd_pool_check(pool));
    }
    gd_pool_close(pool);
    assert_int_equal(d.taken, 0);
}

/* A program of a few hundred blocks, with the n-th allocation and all later ones failing, for every
 * n. */
static void test_every_failure(void **state)
{
    (void)state;
    bool completed = false;
    for (int64_t n = 0; !completed; n++) {
        device d = { 0 };
        gd_error_clear();
        gd_fail_allocations_after(n);
        gd_pool *pool =
            gd_pool_open((gd_pool_source){ device_alloc, device_release, &d, 64 }, SIZE_MAX);
        gd_pool_block *block[300] = { 0 };
        int made = 0;
        while (pool && made < 300 && (block[made] = gd_pool_alloc(pool, (size_t)made * 100)))
            made++;
        gd_fail_allocations_after(-1);
        completed = made == 300;
        assert_int_equal(gd_error_code(), completed ? GD_OK : GD_ERR_MEMORY);
        if (!pool)
            continue;
        assert_true(gd_pool_check(pool));
        gd_error_clear();
        gd_pool_block *more = gd_pool_alloc(pool, 2 * MIB); /* it works on */
        assert_non_null(more);
        assert_true(gd_pool_check(pool));
        gd_pool_free(pool, more);
        for (int i = 0; i < made; i++)
            gd_pool_free(pool, block[i]);
        assert_true(gd_pool_check(pool));
        gd_pool_close(pool);
        assert_int_equal(d.taken, 0);
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sizes, clear_error),
        cmocka_unit_test_setup(test_merge_restores_the_chunk, clear_error),
        cmocka_unit_test_setup(test_best_fit, clear_error),
        cmocka_unit_test_setup(test_chunks_grow, clear_error),
        cmocka_unit_test_setup(test_limit, clear_error),
        cmocka_unit_test_setup(test_device_out_of_memory, clear_error),
        cmocka_unit_test_setup(test_trim_and_peak, clear_error),
        cmocka_unit_test_setup(test_reuse, clear_error),
        cmocka_unit_test_setup(test_random, clear_error),
        cmocka_unit_test_setup(test_random_with_limit, clear_error),
        cmocka_unit_test_setup(test_random_with_failures, clear_error),
        cmocka_unit_test_setup(test_alignment, clear_error),
        cmocka_unit_test_setup(test_every_failure, clear_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
