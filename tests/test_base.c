/* tests/test_base.c: errors, memory and its fault injection, arena, Philox, halves, threads,
 * processor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/base.h>
#include "base/arena.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int clear_error(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    gd_error_clear();
    return 0;
}

/* ---- errors ---- */

static void test_first_error_is_kept(void **state)
{
    (void)state;
    assert_int_equal(gd_error_code(), GD_OK);
    assert_string_equal(gd_error_message(), "");
    assert_int_equal(gd_fail(GD_ERR_SHAPE, "%s: %d and %d differ", "gd_add", 3, 4), GD_ERR_SHAPE);
    assert_int_equal(gd_fail(GD_ERR_IO, "later"), GD_ERR_IO);
    assert_null(gd_fail_null(GD_ERR_DTYPE, "later still"));
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    assert_string_equal(gd_error_message(), "gd_add: 3 and 4 differ");
    gd_error_clear();
    assert_int_equal(gd_error_code(), GD_OK);
    assert_string_equal(gd_error_message(), "");
    assert_int_equal(gd_fail_memory(12345), GD_ERR_MEMORY);
    assert_non_null(strstr(gd_error_message(), "12345"));
}

/* What was recorded since a mark, whatever was pending before. */
static void test_marks(void **state)
{
    (void)state;
    for (int pending = 0; pending < 2; pending++) {
        if (pending)
            (void)gd_fail(GD_ERR_SHAPE, "old");
        const uint64_t mark = gd_error_mark();
        assert_int_equal(gd_error_since(mark), GD_OK);
        (void)gd_fail(GD_ERR_IO, "attempt %d", 1);
        (void)gd_fail(GD_ERR_FORMAT, "attempt %d", 2);
        assert_int_equal(gd_error_since(mark), GD_ERR_FORMAT);
        assert_int_equal(gd_error_last(), GD_ERR_FORMAT);
        assert_string_equal(gd_error_last_message(), "attempt 2");
        assert_string_equal(gd_error_message(), pending ? "old" : "attempt 1");
        gd_error_rollback(mark);
        assert_int_equal(gd_error_since(mark), GD_OK);
        assert_int_equal(gd_error_code(), pending ? GD_ERR_SHAPE : GD_OK);
        assert_string_equal(gd_error_message(), pending ? "old" : "");
        (void)gd_fail(GD_ERR_DTYPE, "new");
        assert_int_equal(gd_error_since(mark), GD_ERR_DTYPE);
        gd_error_clear();
        assert_int_equal(gd_error_since(mark), GD_OK);
        (void)gd_fail(GD_ERR_STATE, "after");
        assert_int_equal(gd_error_since(mark), GD_ERR_STATE);
        gd_error_rollback(mark); /* the clearing stays */
        assert_int_equal(gd_error_code(), GD_OK);
        (void)gd_fail(GD_ERR_STATE, "again");
        assert_int_equal(gd_error_since(mark), GD_ERR_STATE);
        assert_string_equal(gd_error_message(), "again");
        gd_error_clear();
    }
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(gd_status_name(GD_OK), "GD_OK");
    assert_string_equal(gd_status_name(GD_ERR_DEVICE), "GD_ERR_DEVICE");
    for (int status = 0; status < GD_STATUS_COUNT; status++)
        assert_int_equal(strncmp(gd_status_name((gd_status)status), "GD_", 3), 0);
    assert_string_equal(gd_status_name(GD_STATUS_COUNT), "GD_ERR_UNKNOWN");
}

static void test_long_message_is_marked(void **state)
{
    (void)state;
    enum { LONGEST = GD_ERROR_MESSAGE_BYTES - 1 };
    char text[LONGEST + 100];
    memset(text, 'a', sizeof text);
    text[LONGEST] = '\0';
    gd_fail(GD_ERR_INVALID, "%s", text);
    assert_string_equal(gd_error_message(), text);

    gd_error_clear();
    text[LONGEST] = 'a';
    text[LONGEST + 1] = '\0';
    gd_fail(GD_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(gd_error_message()), LONGEST);
    assert_string_equal(gd_error_message() + LONGEST - 4, "a...");

    /* "é" is two bytes: with an odd prefix the cut falls between them, and goes before both. */
    gd_error_clear();
    text[0] = 'x';
    for (size_t i = 1; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    gd_fail(GD_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(gd_error_message()), LONGEST - 1);
    assert_string_equal(gd_error_message() + LONGEST - 6, "\xc3\xa9...");
}

static void test_callers_record_errors(void **state)
{
    (void)state;
    assert_int_equal(gd_error_record(GD_ERR_SHAPE, "KeyError: 100%s"), GD_ERR_SHAPE);
    assert_int_equal(gd_error_record(GD_ERR_IO, "later"), GD_ERR_IO);
    assert_int_equal(gd_error_code(), GD_ERR_SHAPE);
    assert_string_equal(gd_error_message(), "KeyError: 100%s");
    gd_error_clear();
    assert_int_equal(gd_error_record(GD_OK, NULL), GD_ERR_INVALID);
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    assert_string_equal(gd_error_message(), "");
    gd_error_clear();
    assert_int_equal(gd_error_record(GD_STATUS_COUNT, "x"), GD_ERR_INVALID);
}

static void *fail_in_thread(void *argument)
{
    int id = *(int *)argument;
    if (gd_error_code() != GD_OK)
        return NULL;
    gd_fail(GD_ERR_STATE, "thread %d", id);
    char expected[32];
    snprintf(expected, sizeof expected, "thread %d", id);
    return strcmp(gd_error_message(), expected) == 0 ? argument : NULL;
}

static void test_errors_are_per_thread(void **state)
{
    (void)state;
    gd_fail(GD_ERR_IO, "main");
    pthread_t threads[4];
    int ids[4] = { 0, 1, 2, 3 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fail_in_thread, &ids[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, &ids[i]);
    }
    assert_string_equal(gd_error_message(), "main");
}

/* ---- log ---- */

typedef struct log_record {
    int calls;
    gd_log_level level;
    char message[64];
} log_record;

static void keep_message(void *user, gd_log_level level, const char *message)
{
    log_record *record = user;
    record->calls++;
    record->level = level;
    snprintf(record->message, sizeof record->message, "%s", message);
}

static void test_log_levels(void **state)
{
    (void)state;
    log_record record = { 0 };
    gd_log_message(GD_LOG_WARNING, "nobody listens");
    gd_set_log_callback(keep_message, &record, GD_LOG_INFO);
    gd_log_message(GD_LOG_DEBUG, "too low");
    assert_int_equal(record.calls, 0);
    gd_log_message(GD_LOG_INFO, "step %d", 7);
    assert_int_equal(record.calls, 1);
    assert_int_equal(record.level, GD_LOG_INFO);
    assert_string_equal(record.message, "step 7");
    gd_log_message(GD_LOG_WARNING, "high");
    assert_int_equal(record.calls, 2);
    gd_set_log_callback(NULL, NULL, GD_LOG_DEBUG);
    gd_log_message(GD_LOG_WARNING, "gone");
    assert_int_equal(record.calls, 2);
}

static void test_version_and_clock(void **state)
{
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", GD_VERSION_MAJOR, GD_VERSION_MINOR,
             GD_VERSION_PATCH);
    assert_string_equal(gd_version(), expected);
    double first = gd_seconds();
    double last = first;
    for (int i = 0; i < 1000; i++) {
        double now = gd_seconds();
        assert_true(now >= last);
        last = now;
    }
}

/* ---- memory ---- */

static void test_blocks(void **state)
{
    (void)state;
    void *empty = gd_alloc(0);
    assert_non_null(empty);
    empty = gd_realloc(empty, 0);
    assert_non_null(empty);
    gd_free(empty);
    gd_free(NULL);

    unsigned char *zeroed = gd_alloc_zero(13, 7);
    for (int i = 0; i < 13 * 7; i++)
        assert_int_equal(zeroed[i], 0);
    zeroed[90] = 5;
    zeroed = gd_realloc(zeroed, 1000);
    assert_int_equal(zeroed[90], 5);
    gd_free(zeroed);

    char *copy = gd_strdup("gradus");
    assert_string_equal(copy, "gradus");
    gd_free(copy);

    assert_int_equal(gd_error_code(), GD_OK);
    assert_null(gd_alloc_zero(SIZE_MAX / 2, 3));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
}

static void test_aligned_blocks(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2)
        for (size_t bytes = 0; bytes < 70; bytes += 23) {
            unsigned char *block = gd_alloc_aligned(bytes, alignment);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            memset(block, 0xa5, bytes);
            gd_free_aligned(block);
        }
    gd_free_aligned(NULL);
    assert_null(gd_alloc_aligned(SIZE_MAX - 8, 64));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
}

static void test_grow(void **state)
{
    (void)state;
    void *items = NULL;
    size_t capacity = 0;
    assert_true(gd_grow(&items, &capacity, 0, 12));
    assert_null(items);
    assert_true(gd_grow(&items, &capacity, 3, 12));
    assert_true(capacity >= 3);
    size_t before = capacity;
    memset(items, 0x5a, capacity * 12);
    assert_true(gd_grow(&items, &capacity, before + 1, 12));
    assert_true(capacity >= 2 * before);
    assert_int_equal(((unsigned char *)items)[before * 12 - 1], 0x5a);
    before = capacity;
    void *same = items;
    assert_false(gd_grow(&items, &capacity, SIZE_MAX / 4, 12));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_ptr_equal(items, same);
    assert_int_equal(capacity, before);
    gd_free(items);
}

/* One request of every kind; true if all came. Leaves nothing behind either way. */
static bool ask_for_everything(void)
{
    void *items = NULL;
    size_t capacity = 0;
    gd_arena arena = { 0 };
    char *text = gd_strdup("text");                /* 0 */
    void *zeroed = gd_alloc_zero(3, 4);            /* 1 */
    void *aligned = gd_alloc_aligned(100, 64);     /* 2 */
    bool grown = gd_grow(&items, &capacity, 4, 4); /* 3 */
    void *pushed = gd_arena_push(&arena, 1, 1);    /* 4: its first chunk */
    bool all = text && zeroed && aligned && grown && pushed;
    gd_free(text);
    gd_free(zeroed);
    gd_free_aligned(aligned);
    gd_free(items);
    gd_arena_close(&arena);
    return all;
}

static void test_fault_injection(void **state)
{
    (void)state;
    gd_fail_allocations_after(-1);
    assert_true(ask_for_everything());
    int64_t requests = gd_fail_allocations_after(-1);
    assert_int_equal(requests, 5);
    for (int64_t n = 0; n < requests; n++) {
        gd_error_clear();
        gd_fail_allocations_after(n);
        assert_false(ask_for_everything());
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    }
    gd_error_clear();
    gd_fail_allocations_after(requests);
    assert_true(ask_for_everything());
    assert_int_equal(gd_error_code(), GD_OK);
    assert_int_equal(gd_fail_allocations_after(-1), requests);

    unsigned char *block = gd_alloc(10); /* a failed growth leaves the block as it was */
    block[9] = 42;
    gd_fail_allocations_after(0);
    assert_null(gd_realloc(block, 20));
    gd_fail_allocations_after(-1);
    assert_int_equal(block[9], 42);
    gd_free(block);
}

typedef struct counting_allocator {
    int live;
    int calls;
} counting_allocator;

static void *count_resize(void *user, void *block, size_t bytes)
{
    counting_allocator *counter = user;
    counter->calls++;
    if (bytes == 0) {
        counter->live--;
        free(block);
        return NULL;
    }
    counter->live += block ? 0 : 1;
    return realloc(block, bytes);
}

static void test_allocator_can_be_replaced(void **state)
{
    (void)state;
    counting_allocator counter = { 0 };
    gd_set_allocator(&(gd_allocator){ count_resize, &counter });
    void *block = gd_realloc(gd_alloc(8), 80);
    void *aligned = gd_alloc_aligned(8, 256);
    int live = counter.live;
    gd_free(block);
    gd_free_aligned(aligned);
    gd_set_allocator(NULL);
    gd_free(gd_alloc(1));
    assert_int_equal(live, 2);
    assert_int_equal(counter.live, 0);
    assert_int_equal(counter.calls, 5);
}

/* ---- arena ---- */

static void test_arena_alignment(void **state)
{
    (void)state;
    gd_arena arena = { 0 };
    unsigned char *end = NULL;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2)
        for (size_t bytes = 0; bytes <= 130; bytes += 13) {
            gd_arena_chunk *chunk = arena.newest;
            unsigned char *block = gd_arena_push(&arena, bytes, alignment);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_true(block >= end || arena.newest != chunk); /* no overlap */
            memset(block, 0xcc, bytes);
            end = block + bytes;
        }
    gd_arena_close(&arena);
    assert_null(arena.newest);
    assert_int_equal(arena.reserved, 0);
    gd_arena_close(&arena);                       /* closing a closed one does nothing */
    assert_non_null(gd_arena_push(&arena, 0, 1)); /* and it can be used again */
    gd_arena_close(&arena);
}

static void test_arena_grows_without_moving(void **state)
{
    (void)state;
    gd_arena arena = { 0 };
    enum { BLOCKS = 300, BYTES = 50000 };
    unsigned char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = gd_arena_push_zero(&arena, BYTES, 64);
        assert_non_null(blocks[i]);
        assert_int_equal(blocks[i][BYTES - 1], 0);
        memset(blocks[i], i & 0xff, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        for (int at = 0; at < BYTES; at += 997)
            assert_int_equal(blocks[i][at], i & 0xff);
    assert_true(arena.reserved < 3 * (size_t)BLOCKS * BYTES);
    unsigned char *large = gd_arena_push(&arena, (size_t)20 << 20, 64); /* more than any chunk */
    memset(large, 1, (size_t)20 << 20);
    gd_arena_close(&arena);
}

/* A request that cannot be met leaves the arena as it was. */
static void test_arena_out_of_memory(void **state)
{
    (void)state;
    gd_arena arena = { 0 };
    unsigned char *first = gd_arena_push(&arena, 10, 1);
    assert_non_null(first);
    size_t left = arena.left, reserved = arena.reserved;
    const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX - 8192, SIZE_MAX / 2 };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        gd_error_clear();
        assert_null(gd_arena_push(&arena, sizes[i], 4096));
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    }
    gd_error_clear();
    gd_fail_allocations_after(0);
    assert_null(gd_arena_push(&arena, 1 << 20, 1));
    gd_fail_allocations_after(-1);
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    assert_int_equal(arena.left, left);
    assert_int_equal(arena.reserved, reserved);
    assert_ptr_equal(gd_arena_push(&arena, 1, 1), first + 10);
    assert_non_null(gd_arena_push(&arena, 1 << 20, 1));
    gd_arena_close(&arena);
}

/* ---- random ---- */

/* Random123's kat_vectors, philox4x32-10. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } rows[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        gd_philox_block block = gd_philox(rows[i].counter, rows[i].key);
        assert_memory_equal(block.word, rows[i].expected, sizeof block.word);
    }
}

static void test_philox_words_are_the_stream(void **state)
{
    (void)state;
    /* Word i belongs to block i / 4; the stream crosses the carry into the counter's second word.
     */
    const uint64_t seed = 0x0123456789abcdefu;
    const uint64_t start = 4 * (((uint64_t)1 << 32) - 40);
    enum { WORDS = 320 };
    uint32_t whole[WORDS];
    gd_philox_words(seed, start, WORDS, whole);
    for (uint64_t i = 0; i < WORDS; i++) {
        uint64_t index = (start + i) / 4;
        const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), 0, 0 };
        const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
        assert_int_equal(whole[i], gd_philox(counter, key).word[(start + i) % 4]);
    }
    for (uint64_t first = 0; first < 70; first++)
        for (uint64_t count = 0; count + first <= WORDS; count += first < 5 ? 1 : 37) {
            uint32_t slice[WORDS + 1];
            slice[count] = 0xdeadbeef;
            gd_philox_words(seed, start + first, count, slice);
            assert_memory_equal(slice, whole + first, count * sizeof *slice);
            assert_int_equal(slice[count], 0xdeadbeef);
        }
}

static void test_random_reader(void **state)
{
    (void)state;
    uint32_t words[8];
    gd_philox_words(9, 0, 8, words);
    gd_random random = { .seed = 9 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(gd_random_u32(&random), words[i]);
    double unit = gd_random_unit(&random);
    assert_int_equal(random.next, 5);
    uint64_t word = words[3] | (uint64_t)words[4] << 32;
    assert_true(unit == (double)(word >> 11) / 9007199254740992.0);
    for (int i = 0; i < 1000; i++) {
        unit = gd_random_unit(&random);
        assert_true(unit >= 0.0 && unit < 1.0);
    }
}

static void test_random_below_is_uniform(void **state)
{
    (void)state;
    gd_random random = { .seed = 3 };
    for (int i = 0; i < 10; i++)
        assert_int_equal(gd_random_below(&random, 1), 0);
    enum { BINS = 7, DRAWS = 70000 };
    int counts[BINS] = { 0 };
    for (int i = 0; i < DRAWS; i++) {
        uint64_t value = gd_random_below(&random, BINS);
        assert_true(value < BINS);
        counts[value]++;
    }
    double chi2 = 0;
    for (int i = 0; i < BINS; i++)
        chi2 += (counts[i] - DRAWS / BINS) * (double)(counts[i] - DRAWS / BINS) / (DRAWS / BINS);
    assert_true(
        chi2 < 22.5); /* 99.9 % point of chi-squared with 6 degrees of freedom; the seed is fixed */

    /* 3 * 2^62 rejects one word in four: without the rejection, results divisible by 3 would be
     * twice as likely. */
    const uint64_t large = (uint64_t)3 << 62;
    int64_t third[3] = { 0 };
    uint64_t before = random.next;
    for (int i = 0; i < 30000; i++) {
        uint64_t value = gd_random_below(&random, large);
        assert_true(value < large);
        third[value % 3]++;
    }
    double tries = (double)(random.next - before) / 2 / 30000;
    assert_true(tries > 1.30 && tries < 1.37);
    for (int i = 0; i < 3; i++)
        assert_true(third[i] > 9600 && third[i] < 10400);
}

static void test_shuffle(void **state)
{
    (void)state;
    enum { ITEMS = 1000 };
    int64_t items[ITEMS], again[ITEMS];
    bool seen[ITEMS] = { false };
    for (int i = 0; i < ITEMS; i++)
        items[i] = again[i] = i;
    gd_random random = { .seed = 5, .next = 11 };
    gd_random_shuffle(&random, items, ITEMS);
    int fixed = 0;
    for (int i = 0; i < ITEMS; i++) {
        assert_true(items[i] >= 0 && items[i] < ITEMS && !seen[items[i]]);
        seen[items[i]] = true;
        fixed += items[i] == i;
    }
    assert_true(fixed < 10);

    /* Fisher-Yates, one gd_random_below per step: the words read ahead change nothing. */
    gd_random slow = { .seed = 5, .next = 11 };
    for (int64_t i = ITEMS - 1; i > 0; i--) {
        int64_t j = (int64_t)gd_random_below(&slow, (uint64_t)i + 1);
        int64_t item = again[i];
        again[i] = again[j];
        again[j] = item;
    }
    assert_memory_equal(items, again, sizeof items);
    assert_int_equal(random.next, slow.next);
    gd_random_shuffle(&random, items, 1);
    gd_random_shuffle(&random, NULL, 0);
    assert_int_equal(random.next, slow.next);
}

/* ---- halves ---- */

/* A half format: one sign bit, exponent bits, fraction bits. The reference is exact doubles. */
typedef struct half_format {
    int fraction_bits;
    int bias;
    uint16_t infinity;
} half_format;

static const half_format binary16 = { 10, 15, 0x7c00 };
static const half_format bfloat16 = { 7, 127, 0x7f80 };

/* The value of a pattern below or at infinity's, with infinity's own pattern read as if exponents
 * went on. */
static double pattern_value(half_format format, uint16_t magnitude)
{
    int exponent = magnitude >> format.fraction_bits;
    int fraction = magnitude & ((1 << format.fraction_bits) - 1);
    if (exponent == 0)
        return ldexp(fraction, 1 - format.bias - format.fraction_bits);
    return ldexp(fraction + (1 << format.fraction_bits),
                 exponent - format.bias - format.fraction_bits);
}

static float decode(half_format format, uint16_t half)
{
    return format.bias == 15 ? gd_f16_to_f32(half) : gd_bf16_to_f32(half);
}

static uint16_t encode(half_format format, float value)
{
    return format.bias == 15 ? gd_f32_to_f16(value) : gd_f32_to_bf16(value);
}

static void check_all_patterns(half_format format)
{
    for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
        uint16_t half = (uint16_t)pattern;
        uint16_t magnitude = half & 0x7fff;
        float value = decode(format, half);
        assert_int_equal(!!signbit(value), half >> 15);
        if (magnitude > format.infinity) {
            assert_true(isnan(value));
            uint16_t back = encode(format, value);
            assert_true((back & 0x7fff) > format.infinity);
            assert_int_equal(back >> 15, half >> 15);
            continue;
        }
        double expected =
            magnitude == format.infinity ? HUGE_VAL : pattern_value(format, magnitude);
        assert_true(fabs((double)value) == expected);
        assert_int_equal(encode(format, value), half);
    }
}

/* Around every midpoint of two neighbours: the tie goes to the even one, a float's breadth away to
 * the nearer. */
static void check_all_ties(half_format format)
{
    for (uint16_t low = 0; low < format.infinity; low++) {
        uint16_t high = (uint16_t)(low + 1);
        uint16_t even = low % 2 == 0 ? low : high;
        double exact = (pattern_value(format, low) + pattern_value(format, high)) / 2;
        float middle = (float)exact;
        assert_true((double)middle == exact);
        float below = nextafterf(middle, 0), above = nextafterf(middle, HUGE_VALF);
        assert_int_equal(encode(format, middle), even);
        assert_int_equal(encode(format, below), low);
        assert_int_equal(encode(format, above), high);
        assert_int_equal(encode(format, -middle), even | 0x8000);
        assert_int_equal(encode(format, -below), low | 0x8000);
        assert_int_equal(encode(format, -above), high | 0x8000);
    }
}

static void check_infinities_and_nan(half_format format)
{
    assert_int_equal(encode(format, INFINITY), format.infinity);
    assert_int_equal(encode(format, -INFINITY), format.infinity | 0x8000);
    /* A NaN whose payload lies in the dropped bits only must not become an infinity. */
    uint32_t bits = 0x7f800001;
    float nan;
    memcpy(&nan, &bits, sizeof nan);
    assert_true((encode(format, nan) & 0x7fff) > format.infinity);
    assert_int_equal(encode(format, 3.39e38f) == format.infinity, format.bias == 15);
}

static void test_binary16(void **state)
{
    (void)state;
    check_all_patterns(binary16);
    check_all_ties(binary16);
    check_infinities_and_nan(binary16);
}

static void test_bfloat16(void **state)
{
    (void)state;
    check_all_patterns(bfloat16);
    check_all_ties(bfloat16);
    check_infinities_and_nan(bfloat16);
}

#ifdef __FLT16_MANT_DIG__
/* The compiler's own conversion, where it has one, on floats spread over all exponents. */
static void test_binary16_against_the_compiler(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 1u << 20; step++) {
        uint32_t bits = (uint32_t)(step * 4099u);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (isnan(value))
            continue;
        __extension__ _Float16 half = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &half, sizeof expected);
        assert_int_equal(gd_f32_to_f16(value), expected);
    }
}
#endif

/* ---- processor ---- */

static void test_isa_names(void **state)
{
    (void)state;
    for (int isa = 0; isa < GD_ISA_COUNT; isa++)
        assert_int_equal(gd_isa_parse(gd_isa_name((gd_isa)isa)), isa);
    assert_int_equal(gd_isa_parse("sse9"), GD_ISA_COUNT);
    assert_string_equal(gd_isa_name(GD_ISA_COUNT), "unknown");
    assert_true(gd_isa_available(GD_ISA_BASELINE));
    assert_false(gd_isa_available(GD_ISA_COUNT));
    assert_true(gd_isa_available(GD_ISA_AVX2) || !gd_isa_available(GD_ISA_AVX512));
}

static void test_isa_override(void **state)
{
    (void)state;
    char saved[32] = "";
    if (getenv("GRADUS_ISA"))
        snprintf(saved, sizeof saved, "%s", getenv("GRADUS_ISA"));
    unsetenv("GRADUS_ISA");
    gd_isa best = gd_isa_choose();
    assert_true(gd_isa_available(best));
    setenv("GRADUS_ISA", "", 1);
    assert_int_equal(gd_isa_choose(), best);
    for (int isa = 0; isa < GD_ISA_COUNT; isa++) {
        setenv("GRADUS_ISA", gd_isa_name((gd_isa)isa), 1);
        gd_error_clear();
        bool available = gd_isa_available((gd_isa)isa);
        assert_int_equal(gd_isa_choose(), available ? isa : GD_ISA_COUNT);
        assert_int_equal(gd_error_code(), available ? GD_OK : GD_ERR_UNSUPPORTED);
    }
    for (int e = 0; e < GD_CPU_EXTENSION_COUNT; e++) {
        const gd_cpu_extension extension = (gd_cpu_extension)e;
        const bool has = gd_cpu_has(extension);
        unsetenv("GRADUS_ISA");
        const bool pays = extension != GD_CPU_AVX512_BF16 || !strstr(gd_cpu_model(), "Intel");
        assert_int_equal(gd_cpu_may_use(extension), has && pays);
        const gd_isa isa = strncmp(gd_cpu_extension_name(extension), "neon_", 5) == 0
                               ? GD_ISA_NEON
                               : GD_ISA_AVX512;
        setenv("GRADUS_ISA", gd_isa_name(isa), 1);
        assert_false(gd_cpu_may_use(extension));
        setenv("GRADUS_ISA", gd_cpu_extension_name(extension), 1);
        gd_error_clear();
        assert_int_equal(gd_cpu_may_use(extension), has);
        assert_int_equal(gd_isa_choose(), has ? isa : GD_ISA_COUNT);
        assert_int_equal(gd_error_code(), has ? GD_OK : GD_ERR_UNSUPPORTED);
    }
    static const struct {
        const char *names;
        gd_isa isa;
        gd_cpu_extension one, other; /* GD_CPU_EXTENSION_COUNT: there is no other */
    } lists[] = {
        { "avx512+avx512_vnni", GD_ISA_AVX512, GD_CPU_AVX512_VNNI, GD_CPU_EXTENSION_COUNT },
        { "avx512_bf16+avx512_vnni", GD_ISA_AVX512, GD_CPU_AVX512_VNNI, GD_CPU_AVX512_BF16 },
        { "avx512_vnni+avx512_bf16+avx512", GD_ISA_AVX512, GD_CPU_AVX512_VNNI, GD_CPU_AVX512_BF16 },
        { "neon+neon_dotprod", GD_ISA_NEON, GD_CPU_NEON_DOTPROD, GD_CPU_EXTENSION_COUNT },
        { "neon_bf16+neon_dotprod", GD_ISA_NEON, GD_CPU_NEON_DOTPROD, GD_CPU_NEON_BF16 }
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const gd_cpu_extension one = lists[i].one, other = lists[i].other;
        setenv("GRADUS_ISA", lists[i].names, 1);
        gd_error_clear();
        const bool runs = gd_cpu_has(one) && (other == GD_CPU_EXTENSION_COUNT || gd_cpu_has(other));
        assert_int_equal(gd_isa_choose(), runs ? lists[i].isa : GD_ISA_COUNT);
        assert_int_equal(gd_error_code(), runs ? GD_OK : GD_ERR_UNSUPPORTED);
        for (int e = 0; e < GD_CPU_EXTENSION_COUNT; e++) {
            const gd_cpu_extension extension = (gd_cpu_extension)e;
            const bool is_named = extension == one || extension == other;
            assert_int_equal(gd_cpu_may_use(extension), is_named && gd_cpu_has(extension));
        }
    }
    static const char *const wrong[] = { "avx2+avx512_vnni", "avx512+", "+avx512",
                                         "avx512+sse9",      "avx5",    "avx512+neon_bf16" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("GRADUS_ISA", wrong[i], 1);
        gd_error_clear();
        assert_int_equal(gd_isa_choose(), GD_ISA_COUNT);
        assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    }
    setenv("GRADUS_ISA", "fast", 1);
    gd_error_clear();
    assert_int_equal(gd_isa_choose(), GD_ISA_COUNT);
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    assert_non_null(strstr(gd_error_message(), "GRADUS_ISA=fast"));
    unsetenv("GRADUS_ISA");
    if (*saved)
        setenv("GRADUS_ISA", saved, 1);
}

static void test_machine(void **state)
{
    (void)state;
    assert_true(gd_cpu_count() >= 1);
    assert_true(gd_cache_bytes(1) >= 4096 && gd_cache_bytes(1) <= gd_cache_bytes(2));
    assert_true(gd_cache_bytes(3) > 0);
    assert_int_equal(gd_cache_bytes(0), 0);
    assert_int_equal(gd_cache_bytes(4), 0);
    assert_true(strlen(gd_cpu_model()) > 0);
    size_t kilobytes;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (file && fscanf(file, "%zuK", &kilobytes) == 1)
        assert_int_equal(gd_cache_bytes(3),
                         kilobytes << 10); /* where glibc says another number, too */
    if (file)
        fclose(file);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, clear_error, clear_error)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_first_error_is_kept),
        TEST(test_marks),
        TEST(test_status_names),
        TEST(test_long_message_is_marked),
        TEST(test_callers_record_errors),
        TEST(test_errors_are_per_thread),
        TEST(test_log_levels),
        TEST(test_version_and_clock),
        TEST(test_blocks),
        TEST(test_aligned_blocks),
        TEST(test_grow),
        TEST(test_fault_injection),
        TEST(test_allocator_can_be_replaced),
        TEST(test_arena_alignment),
        TEST(test_arena_grows_without_moving),
        TEST(test_arena_out_of_memory),
        TEST(test_philox_known_answers),
        TEST(test_philox_words_are_the_stream),
        TEST(test_random_reader),
        TEST(test_random_below_is_uniform),
        TEST(test_shuffle),
        TEST(test_binary16),
        TEST(test_bfloat16),
#ifdef __FLT16_MANT_DIG__
        TEST(test_binary16_against_the_compiler),
#endif
        TEST(test_isa_names),
        TEST(test_isa_override),
        TEST(test_machine),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
