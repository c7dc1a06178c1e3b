/* tests/test_speculate.c: speculative decoding: the likeliest tokens are those of the model alone, on a real model; tokens
 * that are drawn have the model's distribution, whatever the draft is; wrong use. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/effort.h"
#include "support/shared_data.h"

#define STORIES "models/stories260K/"

/* ---- the likeliest tokens, of a real model ---- */

typedef struct story {
    char text[4096];
    size_t size, stop_at;
} story;

static gd_status listen(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    story *s = user;
    (void)token;
    assert_true(s->size + size < sizeof s->text);
    memcpy(s->text + s->size, text, size);
    s->size += size;
    *stop = s->stop_at > 0 && s->size >= s->stop_at;
    return GD_OK;
}

/* What stories260K tells is told word for word with drafts of itself in 4 bits, of itself as it is, and of a model that has
 * learnt nothing, however many tokens are drafted. */
static void the_likeliest_tokens_are_those_of_the_model_alone(void **state)
{
    char path[512];
    size_t size;
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_speculate_%d.gguf", (int)getpid());
    char *expected = shared_text(STORIES "expected_t0_n200.txt", &size);
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data(STORIES "tok512.bin"));
    gd_language_model *m = gd_language_model_load(*state, shared_data(STORIES "stories260K.bin"));
    assert_int_equal(gd_language_model_save_gguf(m, t, path, .type = GD_GGUF_Q4_0), GD_OK);
    gd_language_model *drafts[] = { gd_language_model_load(*state, path, .quantized = true), m,
                                    gd_language_model_create(
                                        *state, .decoder = GD_DECODER_LLAMA, .vocabulary = 512,
                                        .max_length = 100, .layers = 1, .heads = 2, .width = 16) };
    static const int64_t counts[] = { 1, 4, 7 };
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    for (size_t d = 0; d < 3; d++)
        for (size_t i = 0; i < 3; i++) {
            gd_generator *g = gd_generator_create(m), *draft = gd_generator_create(drafts[d]);
            story s = { .size = 0 };
            assert_int_equal(gd_generate(g, t, greedy, .max_tokens = 200, .callback = listen,
                                         .user = &s, .draft = draft, .draft_tokens = counts[i]),
                             200);
            assert_int_equal(s.size, size);
            assert_memory_equal(s.text, expected, size);
            const double drafted = (double)gd_generator_drafted(g);
            const double share = (double)gd_generator_accepted(g) / drafted;
            assert_true(drafted > 0 && (d == 0   ? share > 0.4 && share < 1
                                        : d == 1 ? share == 1
                                                 : share < 0.1));
            gd_generator_release(draft);
            gd_generator_release(g);
        }
    /* Stopped in the middle of what was drafted, and continued: the same text. */
    gd_generator *g = gd_generator_create(m), *draft = gd_generator_create(drafts[0]);
    story s = { .stop_at = 20 };
    const int64_t first = gd_generate(g, t, greedy, .max_tokens = 150, .callback = listen,
                                      .user = &s, .draft = draft, .draft_tokens = 7);
    assert_true(first > 0 && s.size >= 20 && s.size < 30);
    assert_memory_equal(s.text, expected, s.size);
    assert_int_equal(gd_generator_length(g), first); /* the begin token, and all but the last */
    gd_sampler_release(greedy);
    gd_tokenizer_release(t);
    free(expected);
    remove(path);
}

/* ---- the distribution ---- */

enum { KINDS = 5, FED = 2, TRIES = 6000 };

static gd_language_model *random_model(gd_context *gd, int64_t width, uint64_t seed)
{
    gd_language_model *m = gd_language_model_create(
        gd, .decoder = GD_DECODER_LLAMA, .vocabulary = KINDS, .max_length = 16, .layers = 1,
        .heads = 1, .width = width, .tied = false, .seed = seed);
    gd_module *module = gd_language_model_module(m);
    gd_tensor *head = gd_module_parameter(module, "head.weight");
    assert_non_null(gd_assign(head, gd_mul_scalar(head, 12.0)));
    return m;
}

/* softmax(logits / temperature) of the tokens that are among the `most` likeliest */
static void distribution(const float *logits, double temperature, int most, double p[KINDS])
{
    double sum = 0;
    for (int i = 0; i < KINDS; i++) {
        int before = 0;
        for (int k = 0; k < KINDS; k++)
            before += logits[k] > logits[i];
        p[i] = before < most ? exp((double)logits[i] / temperature) : 0;
        sum += p[i];
    }
    for (int i = 0; i < KINDS; i++)
        p[i] /= sum;
}

/* chi^2 of how often tokens came; degrees of freedom into *freedom. */
static double chi_squared(const int *counts, const double *p, int kinds, int tries, int *freedom)
{
    double sum = 0;
    *freedom = -1;
    for (int i = 0; i < kinds; i++) {
        const double expected = p[i] * tries;
        if (p[i] == 0)
            assert_int_equal(counts[i], 0);
        else
            sum += (counts[i] - expected) * (counts[i] - expected) / expected;
        *freedom += p[i] > 0;
    }
    return sum;
}

/* Pairs of tokens: drawn one by one from the model they have p(a) p(b | a). So they must with a draft whose distribution is
 * another one. Bounds of chi^2: mean + 4 deviations, n + 4 sqrt(2 n). */
static void drawn_tokens_have_the_distribution_of_the_model(void **state)
{
    static const int32_t fed[FED] = { 1, 3 };
    static const struct {
        double temperature;
        int64_t top_k;
    } samplers[] = { { 1.0, KINDS }, { 0.6, 3 } };
    gd_language_model *m = random_model(*state, 16, 3), *other = random_model(*state, 8, 8);
    for (size_t c = 0; c < (test_is_slow() ? 1 : 2); c++) {
        gd_generator *g = gd_generator_create(m), *draft = gd_generator_create(other);
        const int most = (int)samplers[c].top_k;
        double first[KINDS], pairs[KINDS * KINDS], of_draft[KINDS], apart = 0;
        distribution(gd_generator_feed(g, FED, fed), samplers[c].temperature, most, first);
        distribution(gd_generator_feed(draft, FED, fed), samplers[c].temperature, most, of_draft);
        for (int a = 0; a < KINDS; a++) {
            const int32_t next[FED + 1] = { fed[0], fed[1], a };
            double second[KINDS];
            gd_generator_reset(g);
            distribution(gd_generator_feed(g, FED + 1, next), samplers[c].temperature, most,
                         second);
            for (int b = 0; b < KINDS; b++)
                pairs[a * KINDS + b] = first[a] * second[b];
            apart += fabs(first[a] - of_draft[a]);
        }
        assert_true(apart > 0.2); /* or the rule would not be needed */
        gd_sampler *s = gd_sampler_create(.temperature = samplers[c].temperature,
                                          .top_k = samplers[c].top_k, .seed = 7);
        int counts[KINDS * KINDS] = { 0 }, drafts_counts[KINDS] = { 0 }, freedom;
        for (int i = 0; i < TRIES; i++) {
            int32_t out[4], pair[2];
            gd_generator_reset(g);
            int64_t made = gd_generator_speculate(g, draft, s, FED, fed, FED, fed, 2, out);
            assert_true(made >= 1 && made <= 3);
            assert_int_equal(gd_generator_length(g), FED + made - 1);
            pair[0] = out[0];
            drafts_counts[out[0]]++;
            if (made == 1) { /* the second comes of the next call */
                const int32_t past[FED + 1] = { fed[0], fed[1], out[0] };
                assert_true(gd_generator_speculate(g, draft, s, 1, out, FED + 1, past, 1, out) >=
                            1);
                pair[1] = out[0];
            } else {
                pair[1] = out[1];
            }
            counts[pair[0] * KINDS + pair[1]]++;
        }
        const double chi = chi_squared(counts, pairs, KINDS * KINDS, TRIES, &freedom);
        assert_true(freedom >= 8 && chi < freedom + 4 * sqrt(2.0 * freedom));
        /* The test can tell the two apart: as drawn from the draft they would be far off. */
        double far = 0;
        for (int i = 0; i < KINDS; i++)
            far += of_draft[i] > 0
                       ? pow(drafts_counts[i] - of_draft[i] * TRIES, 2) / (of_draft[i] * TRIES)
                       : 0;
        assert_true(far > 100);
        assert_true(gd_generator_accepted(g) > TRIES / 4 &&
                    gd_generator_accepted(g) < gd_generator_drafted(g));
        gd_sampler_release(s);
        gd_generator_release(draft);
        gd_generator_release(g);
    }
}

/* ---- limits and errors ---- */

static void drafts_end_where_a_model_is_full(void **state)
{
    gd_language_model *m = random_model(*state, 16, 3);
    gd_generator *g = gd_generator_create(m), *draft = gd_generator_create(m);
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    int32_t fed[15] = { 0 }, out[9];
    assert_int_equal(gd_generator_speculate(g, draft, greedy, 14, fed, 0, NULL, 8, out), 3);
    assert_int_equal(gd_generator_length(g), 16);
    gd_generator_reset(g);
    assert_non_null(gd_generator_feed(g, 15, fed));
    assert_int_equal(gd_generator_speculate(g, draft, greedy, 1, fed, 0, NULL, 8, out), 1);
    assert_int_equal(gd_generator_speculate(g, draft, greedy, 1, fed, 0, NULL, 8, out), -1);
    expect_error(GD_ERR_SHAPE, "1 tokens after 16 are more than the model's 16");
    gd_sampler_release(greedy);
}

static void wrong_use_is_an_error(void **state)
{
    gd_language_model *m = random_model(*state, 16, 3);
    gd_language_model *other = gd_language_model_create(*state, .vocabulary = 6, .max_length = 4,
                                                        .layers = 1, .heads = 1, .width = 8);
    gd_generator *g = gd_generator_create(m), *same = gd_generator_create(m);
    gd_generator *foreign = gd_generator_create(other);
    gd_sampler *s = gd_sampler_create(.temperature = 1);
    gd_tokenizer *t = gd_tokenizer_characters("abcde", 5);
    static const int32_t fed = 1;
    int32_t out[9];
    assert_int_equal(gd_generator_speculate(g, foreign, s, 1, &fed, 0, NULL, 4, out), -1);
    expect_error(GD_ERR_INVALID, "the model has 5 tokens, the draft's 6");
    assert_int_equal(gd_generator_speculate(g, g, s, 1, &fed, 0, NULL, 4, out), -1);
    expect_error(GD_ERR_INVALID, "generators of their own");
    assert_int_equal(gd_generator_speculate(g, NULL, s, 1, &fed, 0, NULL, 4, out), -1);
    expect_error(GD_ERR_INVALID, "the draft is NULL");
    assert_int_equal(gd_generator_speculate(g, same, s, 1, &fed, 0, NULL, 65, out), -1);
    expect_error(GD_ERR_INVALID, "65 tokens to draft");
    static const int32_t wrong = 5;
    assert_int_equal(gd_generator_speculate(g, same, s, 1, &wrong, 0, NULL, 4, out), -1);
    expect_error(GD_ERR_INVALID, "token 5; the model has 5");
    assert_int_equal(gd_generate(g, t, s, .draft = same, .draft_tokens = 0), -1);
    expect_error(GD_ERR_INVALID, "gd_generate: 0 tokens to draft");
    assert_null(gd_generator_feed_all(g, 0, &fed));
    expect_error(GD_ERR_INVALID, "gd_generator_feed_all: there are no tokens");
    assert_true(gd_generator_drafted(NULL) == 0 && gd_generator_accepted(NULL) == 0);
    gd_tokenizer_release(t);
    gd_sampler_release(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_likeliest_tokens_are_those_of_the_model_alone),
        TEST(drawn_tokens_have_the_distribution_of_the_model),
        TEST(drafts_end_where_a_model_is_full),
        TEST(wrong_use_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
