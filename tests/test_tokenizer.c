/* tests/test_tokenizer.c: tokenisers: GPT-2's against tiktoken, llama2.c's, characters and bytes;
 * any bytes come back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/text.h>

#include "support/shared_data.h"
#include "support/text_goldens.h"
#include "text/characters.h"

#ifdef GD_HAVE_JANSSON
#include <jansson.h>
#endif

static void expect_error(gd_status status, const char *words)
{
    if (!strstr(gd_error_message(), words))
        print_error("expected \"%s\" in \"%s\"\n", words, gd_error_message());
    assert_non_null(strstr(gd_error_message(), words));
    assert_int_equal(gd_error_code(), status);
    gd_error_clear();
}

static gd_tokenizer *gpt2(void)
{
    size_t size;
    char *merges = shared_text("gpt2-bpe/vocab.bpe", &size);
    gd_tokenizer *t = gd_tokenizer_bpe(merges, size);
    assert_non_null(t);
    free(merges);
    return t;
}

static void assert_comes_back(const gd_tokenizer *t, const char *text, size_t size)
{
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, text, size, &tokens), GD_OK);
    size_t got;
    char *back = gd_detokenize(t, tokens.count, tokens.ids, &got);
    assert_non_null(back);
    assert_int_equal(got, size);
    assert_memory_equal(back, text, size);
    gd_text_free(back);
    gd_tokens_free(&tokens);
}

/* Every byte, then random bytes, of which some look like UTF-8. */
static void assert_any_bytes_come_back(const gd_tokenizer *t)
{
    static const unsigned char common[] = { ' ',  '\'', 's',  'a',  '1', '\n',
                                            0xc3, 0xa9, 0xe4, 0xb8, 0xad };
    char text[400];
    for (int i = 0; i < 256; i++)
        text[i] = (char)(unsigned char)i;
    assert_comes_back(t, text, 256);
    uint32_t noise = 7;
    for (int round = 0; round < 300; round++) {
        size_t size = (size_t)(round + 1);
        for (size_t i = 0; i < size; i++) {
            noise = noise * 1664525u + 1013904223u;
            text[i] =
                (char)(noise >> 31 ? (noise >> 16) & 0xff : common[(noise >> 16) % sizeof common]);
        }
        assert_comes_back(t, text, size);
    }
}

static uint64_t fnv(const gd_tokens *tokens)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < tokens->count; i++)
        h = (h ^ (uint64_t)(uint32_t)tokens->ids[i]) * 0x100000001b3u;
    return h;
}

/* ---- GPT-2 ---- */

static void gpt2_tokens_equal_tiktokens(void **state)
{
    (void)state;
    gd_tokenizer *t = gpt2();
    assert_int_equal(gd_tokenizer_count(t), 50257);
    assert_int_equal(gd_tokenizer_end(t), 50256);
    assert_int_equal(gd_tokenizer_begin(t), -1);
    gd_tokens tokens = { 0 };
    for (size_t i = 0; i < sizeof bpe_goldens / sizeof *bpe_goldens; i++) {
        tokens.count = 0;
        const char *text = bpe_goldens[i].text;
        assert_int_equal(gd_tokenize(t, text, (size_t)bpe_goldens[i].bytes, &tokens), GD_OK);
        if ((int)tokens.count != bpe_goldens[i].count)
            print_error("text %zu: \"%s\"\n", i, text);
        assert_int_equal(tokens.count, bpe_goldens[i].count);
        assert_memory_equal(tokens.ids, bpe_goldens[i].tokens,
                            (size_t)tokens.count * sizeof *tokens.ids);
        assert_comes_back(t, text, (size_t)bpe_goldens[i].bytes);
    }
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
}

static void gpt2_tokenises_a_book_as_tiktoken_does(void **state)
{
    (void)state;
    size_t size;
    char *text = shared_text("tinyshakespeare/input.txt", &size);
    gd_tokenizer *t = gpt2();
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, text, size, &tokens), GD_OK);
    assert_int_equal(tokens.count, SHAKESPEARE_TOKENS);
    assert_true(fnv(&tokens) == shakespeare_hash);
    assert_comes_back(t, text, size);
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
    free(text);
}

static void gpt2_token_numbers_equal_encoder_json(void **state)
{
    (void)state;
#ifdef GD_HAVE_JANSSON
    size_t text_size;
    char *file = shared_text("gpt2-bpe/encoder.json", &text_size);
    json_t *numbers = json_loadb(file, text_size, 0, NULL);
    assert_non_null(numbers);
    free(file);
    gd_tokenizer *t = gpt2();
    assert_int_equal(json_object_size(numbers), gd_tokenizer_count(t));
    /* The names there spell bytes as characters: U+0100 and on for those that cannot be seen. */
    int byte_of[512], hidden = 0;
    for (int b = 0; b < 256; b++) {
        int seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        byte_of[seen ? b : 256 + hidden++] = b;
    }
    const char *name;
    json_t *number;
    json_object_foreach(numbers, name, number)
    {
        char bytes[1024];
        size_t count = 0, size, length = strlen(name);
        for (size_t i = 0; i < length;) {
            gd_character c = gd_character_at(name + i, length - i);
            assert_true(c.point < 512);
            bytes[count++] = (char)byte_of[c.point];
            i += (size_t)c.bytes;
        }
        const char *text = gd_token_text(t, -1, (int32_t)json_integer_value(number), &size);
        assert_int_equal(size, count);
        assert_memory_equal(text, bytes, count);
    }
    json_decref(numbers);
    gd_tokenizer_release(t);
#else
    skip();
#endif
}

static void gpt2_gives_any_bytes_back(void **state)
{
    (void)state;
    gd_tokenizer *t = gpt2();
    assert_any_bytes_come_back(t);
    gd_tokenizer_release(t);
}

/* A vocabulary made to fall on one slot of the table, which would take time with the square of its
 * size, is refused. */
static void a_vocabulary_that_collides_is_refused(void **state)
{
    (void)state;
    enum { TOKENS = 1100, BYTES = 8, ENTRY = 8 + BYTES };
    static unsigned char file[4 + TOKENS * ENTRY];
    size_t at = 4;
    for (uint64_t number = 0; at < sizeof file; number++) {
        uint64_t h = 0xcbf29ce484222325u; /* FNV-1a, as in text/tokenizer.c */
        unsigned char text[BYTES];
        for (int i = 0; i < BYTES; i++) {
            text[i] = (unsigned char)('a' + (number >> 4 * i & 15));
            h = (h ^ text[i]) * 0x100000001b3u;
        }
        if (((h ^ h >> 32) & 4095) != 0)
            continue;
        file[at + 4] = BYTES; /* score 0, size, text */
        memcpy(file + at + 8, text, BYTES);
        at += ENTRY;
    }
    assert_null(gd_tokenizer_llama2c(file, sizeof file));
    expect_error(GD_ERR_FORMAT, "too many tokens that hash alike");
    gd_tokenizer *t = gd_tokenizer_llama2c(file, 4 + 900 * ENTRY); /* slow, but sound */
    assert_int_equal(gd_tokenizer_count(t), 900);
    gd_tokenizer_release(t);
}

/* A word without a place to cut: with a scan for the best pair this would take minutes. */
static void a_long_word_is_merged(void **state)
{
    (void)state;
    enum { SIZE = 400000 };
    static const char merges[] = "a a\naa aa\naaaa aaaa\n";
    gd_tokenizer *t = gd_tokenizer_bpe(merges, sizeof merges - 1);
    assert_non_null(t);
    assert_int_equal(gd_tokenizer_count(t), 256 + 3 + 1);
    char *text = malloc(SIZE + 7);
    memset(text, 'a', SIZE + 7);
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, text, SIZE + 7, &tokens), GD_OK);
    assert_int_equal(tokens.count, SIZE / 8 + 3); /* 7 = 4 + 2 + 1 */
    assert_int_equal(tokens.ids[SIZE / 8 - 1], 258);
    assert_int_equal(tokens.ids[SIZE / 8], 257);
    assert_int_equal(tokens.ids[SIZE / 8 + 1], 256);
    assert_int_equal(tokens.ids[SIZE / 8 + 2], 'a' - '!');
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
    free(text);
}

static gd_tokenizer *bpe(const char *merges)
{
    return gd_tokenizer_bpe(merges, strlen(merges));
}

static void merge_files_are_read(void **state)
{
    (void)state;
    /* A version, Windows line ends, no newline at the end. "ab c" makes again what "a bc" makes. */
    gd_tokenizer *t = bpe("#version: 0.2\r\nb c\r\na bc\r\na b\r\nab c");
    assert_non_null(t);
    assert_int_equal(gd_tokenizer_count(t), 256 + 3 + 1);
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, "abcab", 5, &tokens), GD_OK);
    assert_int_equal(tokens.count, 2);
    assert_int_equal(tokens.ids[0], 257);
    assert_int_equal(tokens.ids[1], 258);
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
}

static void wrong_merge_files_are_errors(void **state)
{
    (void)state;
    assert_null(bpe(""));
    expect_error(GD_ERR_FORMAT, "no merge");
    assert_null(bpe("#version: 0.2\n"));
    expect_error(GD_ERR_FORMAT, "no merge");
    assert_null(bpe("a b\nab\n"));
    expect_error(GD_ERR_FORMAT, "line 2 is not \"left right\"");
    assert_null(bpe("a \n"));
    expect_error(GD_ERR_FORMAT, "line 1");
    assert_null(bpe("a bc\n"));
    expect_error(GD_ERR_FORMAT, "\"bc\", which no line above makes");
    assert_null(bpe("a b\n\nab \xe4\xb8\xad\n"));
    expect_error(GD_ERR_FORMAT, "line 3 has a character that stands for no byte");
    assert_null(gd_tokenizer_load_bpe("/nowhere/vocab.bpe"));
    expect_error(GD_ERR_IO, "/nowhere/vocab.bpe");
}

/* ---- llama2.c ---- */

static void llama2c_tokens_are_read(void **state)
{
    (void)state;
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data("models/stories260K/tok512.bin"));
    assert_non_null(t);
    assert_int_equal(gd_tokenizer_count(t), 512);
    assert_int_equal(gd_tokenizer_begin(t), 1);
    assert_int_equal(gd_tokenizer_end(t), 2);
    size_t size;
    char *story = shared_text("models/stories260K/expected_t0_n200.txt", &size);
    assert_comes_back(t, story, size);
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, "Once upon a time", 16, &tokens), GD_OK);
    /* llama2.c: encode(&tokenizer, "Once upon a time", 1, 0, tokens, &count), without its BOS */
    static const int32_t expected[] = { 403, 407, 261, 378 };
    assert_int_equal(tokens.count, 4);
    assert_memory_equal(tokens.ids, expected, sizeof expected);
    assert_any_bytes_come_back(t);
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
    free(story);
}

/* The leading space goes at the start of a text and after the begin token, nowhere else. */
static void llama2c_drops_the_leading_space(void **state)
{
    (void)state;
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data("models/stories260K/tok512.bin"));
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, "a", 1, &tokens), GD_OK);
    assert_int_equal(tokens.count, 1); /* " a" */
    size_t size;
    assert_non_null(gd_token_text(t, -1, tokens.ids[0], &size));
    assert_int_equal(size, 1);
    assert_non_null(gd_token_text(t, 1, tokens.ids[0], &size));
    assert_int_equal(size, 1);
    assert_non_null(gd_token_text(t, 400, tokens.ids[0], &size));
    assert_int_equal(size, 2);
    assert_non_null(gd_token_text(t, -1, 1, &size));
    assert_int_equal(size, 0);
    assert_null(gd_token_text(t, -1, 512, &size));
    expect_error(GD_ERR_INVALID, "512 is no token");
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
}

static void every_truncation_of_a_llama2c_file_is_handled(void **state)
{
    (void)state;
    size_t size;
    char *file = shared_text("models/stories260K/tok512.bin", &size);
    int good = 0;
    for (size_t n = 0; n < size; n += n < 400 || n > size - 60 ? 1 : 97) {
        char *part = malloc(n + 1); /* exact, so that a sanitizer sees reading beyond */
        memcpy(part, file, n);
        gd_tokenizer *t = gd_tokenizer_llama2c(part, n);
        good += t != NULL; /* a cut between tokens is a smaller vocabulary */
        assert_true(t || gd_error_code() == GD_ERR_FORMAT);
        gd_tokenizer_release(t);
        gd_error_clear();
        free(part);
    }
    assert_true(good > 0);
    free(file);
    assert_null(gd_tokenizer_llama2c("", 0));
    expect_error(GD_ERR_FORMAT, "too short");
}

/* ---- characters and bytes ---- */

static void characters_are_numbered_in_order(void **state)
{
    (void)state;
    static const char text[] = "zaé\xff中a";
    gd_tokenizer *t = gd_tokenizer_characters(text, strlen(text));
    assert_int_equal(gd_tokenizer_count(t), 5);
    gd_tokens tokens = { 0 };
    assert_int_equal(gd_tokenize(t, text, strlen(text), &tokens), GD_OK);
    static const int32_t expected[] = { 1, 0, 2, 4, 3, 0 };
    assert_int_equal(tokens.count, 6);
    assert_memory_equal(tokens.ids, expected, sizeof expected);
    assert_comes_back(t, text, strlen(text));
    assert_int_equal(gd_tokenize(t, "azb", 3, &tokens), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "'b' (U+0062, byte 2 of the text) is not among the 5 characters");
    assert_int_equal(gd_tokenize(t, "a\xfe", 2, &tokens), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "byte 1 of the text, 0xfe, is not UTF-8");
    assert_int_equal(tokens.count, 6); /* as before */
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
    assert_null(gd_tokenizer_characters("", 0));
    expect_error(GD_ERR_INVALID, "no text");
}

static void bytes_are_tokens(void **state)
{
    (void)state;
    gd_tokenizer *t = gd_tokenizer_bytes();
    assert_int_equal(gd_tokenizer_count(t), 256);
    assert_any_bytes_come_back(t);
    assert_int_equal(gd_tokenize(t, NULL, 1, &(gd_tokens){ 0 }), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the text is NULL");
    static const int32_t wrong[] = { 65, 256 };
    assert_null(gd_detokenize(t, 2, wrong, NULL));
    expect_error(GD_ERR_INVALID, "256 is no token");
    gd_tokenizer_release(t);
}

/* Every form of one to four bytes: what Python's bytes.decode() takes, and nothing else. */
static void utf8_is_told_from_stray_bytes(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x110000; point++) {
        char bytes[4];
        int length = gd_character_put(point, bytes);
        gd_character c = gd_character_at(bytes, (size_t)length);
        if (point >= 0xd800 && point < 0xe000) { /* surrogates are not characters */
            assert_int_equal(c.point, GD_STRAY_BYTE + 0xed);
            continue;
        }
        assert_int_equal(c.point, point);
        assert_int_equal(c.bytes, length);
        if (length > 1)
            assert_int_equal(gd_character_at(bytes, (size_t)length - 1).bytes, 1);
    }
    static const char *const wrong[] = {
        "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80",         "\xff"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(gd_character_at(wrong[i], strlen(wrong[i])).point,
                         GD_STRAY_BYTE + (unsigned char)wrong[i][0]);
}

/* ---- memory ---- */

/* Every allocation that fails is an error, and nothing is lost. */
static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    static const char merges[] = "a a\naa aa\nb c\n", text[] = "aaaa bc \xc3\xa9";
    for (int kind = 0; kind < 3; kind++)
        for (int64_t n = 0;; n++) {
            gd_fail_allocations_after(n);
            gd_tokens tokens = { 0 };
            gd_tokenizer *t = kind == 0   ? gd_tokenizer_bytes()
                              : kind == 1 ? gd_tokenizer_characters(text, sizeof text - 1)
                                          : gd_tokenizer_bpe(merges, sizeof merges - 1);
            gd_status status = t ? gd_tokenize(t, text, sizeof text - 1, &tokens) : gd_error_code();
            char *back = status == GD_OK ? gd_detokenize(t, tokens.count, tokens.ids, NULL) : NULL;
            gd_fail_allocations_after(-1);
            if (!back)
                assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
            bool done = back != NULL;
            gd_error_clear();
            gd_text_free(back);
            gd_tokens_free(&tokens);
            gd_tokenizer_release(t);
            if (done)
                break;
            assert_true(n < 10000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_tokens_equal_tiktokens),
        cmocka_unit_test(gpt2_tokenises_a_book_as_tiktoken_does),
        cmocka_unit_test(gpt2_token_numbers_equal_encoder_json),
        cmocka_unit_test(gpt2_gives_any_bytes_back),
        cmocka_unit_test(a_vocabulary_that_collides_is_refused),
        cmocka_unit_test(a_long_word_is_merged),
        cmocka_unit_test(merge_files_are_read),
        cmocka_unit_test(wrong_merge_files_are_errors),
        cmocka_unit_test(llama2c_tokens_are_read),
        cmocka_unit_test(llama2c_drops_the_leading_space),
        cmocka_unit_test(every_truncation_of_a_llama2c_file_is_handled),
        cmocka_unit_test(characters_are_numbered_in_order),
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(utf8_is_told_from_stray_bytes),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
