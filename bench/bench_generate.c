/* bench/bench_generate.c: GPT-2's sizes with weights in blocks: a generated token, and the prompt of
 * 512 tokens at once ("prefill"), of the same GGUF file in Q8_0, Q4_0, Q4_K and F32, against llama.cpp
 * (peers/generate_llama.py), 2 threads. The weights are drawn; the logits behind the same tokens are
 * compared. Each side runs in a process of its own. Start at main(). */
#include "measure.h"
#include "side.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, PROMPT = 16, LONGEST = 128, PREFILL = 512, LOGITS = 8, VOCABULARY = 50257 };

/* Of logits whose root mean square is some 0.5. Both round activations to 8 bits, but llama.cpp keeps
 * their scales, keys and values in f16. */
static const double tolerance = 0.05;
static const double seconds_each = 10;

#define CHECK(condition) \
    ((condition) ? (void)0 : gd_bench_die("generate, line %d: %s", __LINE__, gd_error_message()))

/* ---- the files ---- */

/* As many characters as the model has tokens: the format wants a tokeniser. */
static gd_tokenizer *any_tokenizer(void)
{
    char *text = malloc((size_t)VOCABULARY * 3), *end = text;
    if (!text)
        gd_bench_die("out of memory");
    for (unsigned c = 0x800; c < 0x800 + VOCABULARY; c++) { /* in UTF-8, three bytes each */
        const unsigned code = c < 0xd800 ? c : c + 0x800;   /* but for the surrogates */
        *end++ = (char)(0xe0 | code >> 12);
        *end++ = (char)(0x80 | (code >> 6 & 63));
        *end++ = (char)(0x80 | (code & 63));
    }
    gd_tokenizer *tokenizer = gd_tokenizer_characters(text, (size_t)(end - text));
    free(text);
    CHECK(tokenizer);
    return tokenizer;
}

static void write_model(const char *path, gd_gguf_type type)
{
    gd_context *gd = gd_open("cpu", .threads = THREADS);
    gd_language_model *model = gd_language_model_create(gd, GD_GPT2_124M, .seed = 1);
    CHECK(model);
    gd_tokenizer *tokenizer = any_tokenizer();
    CHECK(gd_language_model_save_gguf(model, tokenizer, path, .type = type) == GD_OK);
    gd_tokenizer_release(tokenizer);
    gd_close(gd);
}

/* ---- ours ---- */

static int32_t token(int64_t i)
{
    return (int32_t)((i * 7919 + i / 5 * 31) % VOCABULARY);
}

static const float *begin(gd_generator *g, int count)
{
    int32_t tokens[PREFILL];
    for (int i = 0; i < count; i++)
        tokens[i] = token(i);
    gd_generator_reset(g);
    const float *logits = gd_generator_feed(g, count, tokens);
    CHECK(logits);
    return logits;
}

static void run_token(void *user)
{
    gd_generator *g = user;
    if (gd_generator_length(g) >= LONGEST)
        (void)begin(g, PROMPT);
    const int32_t next = token(gd_generator_length(g));
    CHECK(gd_generator_feed(g, 1, &next));
}

static void run_prefill(void *user)
{
    (void)begin(user, PREFILL);
}

static void side(bool prefill, const char *path)
{
    gd_context *gd = gd_open("cpu", .threads = THREADS);
    gd_language_model *model = gd_language_model_load(gd, path, .quantized = true);
    gd_generator *g = gd_generator_create(model);
    CHECK(model && g);
    float first[LOGITS];
    memcpy(first, begin(g, prefill ? PREFILL : PROMPT), sizeof first);
    const gd_bench_timing timing =
        gd_bench_time(prefill ? run_prefill : run_token, g, prefill ? 1 : 8, THREADS, seconds_each);
    printf("spread %.4g\ntoken ours %.9g", timing.spread, timing.seconds);
    for (int i = 0; i < LOGITS; i++)
        printf(" %.9g", (double)first[i]);
    printf("\n");
    gd_bench_await_turns(prefill ? run_prefill : run_token, g, prefill ? 1 : 8, THREADS);
    gd_close(gd);
}

/* ---- both ---- */

static void compare(const char *self, const char *path, const char *type, bool prefill)
{
    char numbers[5][24], name[64];
    const double seconds = seconds_each / (gd_bench_quick() ? 3 : 1);
    snprintf(numbers[0], sizeof numbers[0], "%d", (int)THREADS);
    snprintf(numbers[1], sizeof numbers[1], "%g", seconds);
    snprintf(numbers[2], sizeof numbers[2], "%d", (int)PROMPT);
    snprintf(numbers[3], sizeof numbers[3], "%d", (int)(prefill ? PREFILL : LONGEST));
    snprintf(numbers[4], sizeof numbers[4], "%d", (int)LOGITS);
    snprintf(name, sizeof name, prefill ? "prefill of 512 tokens, %s" : "a token, %s", type);
    const char *ours_is[] = { self, prefill ? "--prefill" : "--token", path, NULL };
    const char *peer_is[] = { gd_bench_python(),
                              GD_SOURCE_DIR "/bench/peers/generate_llama.py",
                              prefill ? "prefill" : "token",
                              path,
                              numbers[0],
                              numbers[1],
                              numbers[2],
                              numbers[3],
                              numbers[4],
                              NULL };
    gd_bench_sides sides = { .count = 0 };
    gd_bench_side ours, peer;
    if (!gd_bench_start_side(&sides, ours_is, THREADS, &ours))
        gd_bench_die("%s failed", self);
    const bool there = gd_bench_start_side(&sides, peer_is, THREADS, &peer);
    (void)gd_bench_take_side_turns(&sides, THREADS);
    gd_bench_row row = gd_bench_make_row("generate", name, THREADS, "ms", ours.seconds * 1e3,
                                         ours.check_count == LOGITS);
    gd_bench_print_sides(row, &ours, &peer, &there, 1, false, tolerance);
}

int main(int count, char **arguments)
{
    static const gd_gguf_type types[] = { GD_GGUF_Q8_0, GD_GGUF_Q4_0, GD_GGUF_Q4_K, GD_GGUF_F32 };
    if (count == 3) {
        side(strcmp(arguments[1], "--prefill") == 0, arguments[2]);
        return 0;
    }
    char self[4096], path[4096];
    const char *folder = getenv("TMPDIR");
    gd_bench_own_path(self, sizeof self);
    snprintf(path, sizeof path, "%s/bench_generate_%d.gguf", folder ? folder : "/tmp",
             (int)getpid());
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        write_model(path, types[i]);
        compare(self, path, gd_gguf_type_name(types[i]), false);
        compare(self, path, gd_gguf_type_name(types[i]), true);
        unlink(path);
    }
    return gd_bench_all_verified() ? 0 : 1;
}
