/* tests/test_text.c: token files, batches of tokens, and sampling. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "support/context.h"

static const char *temporary(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_text_%d_%s", (int)getpid(), name);
    return path;
}

/* ---- token files ---- */

static void token_files_come_back(void **state)
{
    for (int wide = 0; wide < 2; wide++) {
        int32_t tokens[1000];
        int32_t vocabulary = wide ? 100000 : 65536;
        for (int i = 0; i < 1000; i++)
            tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)vocabulary);
        tokens[7] = vocabulary - 1;
        const char *path = temporary("tokens.bin");
        assert_int_equal(gd_token_file_write(path, 1000, tokens, vocabulary), GD_OK);
        FILE *f = fopen(path, "rb");
        fseek(f, 0, SEEK_END);
        assert_int_equal(ftell(f), 1024 + 1000 * (wide ? 4 : 2));
        fclose(f);
        gd_token_data *d = gd_token_data_open(*state, path);
        assert_non_null(d);
        assert_int_equal(gd_token_data_count(d), 1000);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(gd_token_data_get(d, i), tokens[i]);
        assert_int_equal(gd_token_data_get(d, 1000), -1);
        assert_int_equal(gd_token_data_get(d, -1), -1);
        gd_token_data_close(d);
        remove(path);
    }
}

static void wrong_token_files_are_errors(void **state)
{
    static const int32_t tokens[] = { 1, 2, 3 };
    const char *path = temporary("wrong.bin");
    assert_int_equal(gd_token_file_write(path, 3, tokens, 3), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "token 2 is 3; it must be 0 to 2");
    assert_int_equal(gd_token_file_write(path, 3, tokens, 300), GD_OK);
    unsigned char file[1030];
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(file, 1, sizeof file, f), sizeof file);
    fclose(f);
    for (size_t n = 0; n < sizeof file; n += n == 0 || n > 1000 ? 1 : 333) { /* truncated */
        f = fopen(path, "wb");
        fwrite(file, 1, n, f);
        fclose(f);
        assert_null(gd_token_data_open(*state, path));
        expect_error(GD_ERR_FORMAT, path);
    }
    file[0] ^= 1;
    f = fopen(path, "wb");
    fwrite(file, 1, sizeof file, f);
    fclose(f);
    assert_null(gd_token_data_open(*state, path));
    expect_error(GD_ERR_FORMAT, "not a token file");
    remove(path);
    assert_null(gd_token_data_open(*state, path));
    expect_error(GD_ERR_IO, path);
    assert_null(gd_token_data_create(*state, 0, tokens));
    expect_error(GD_ERR_INVALID, "no tokens");
}

/* Another process makes the file shorter while it is read. */
static void files_that_shrink_are_errors(void **state)
{
    static const int32_t tokens[100] = { 1, 2, 3 };
    const char *path = temporary("shrinks.bin");
    assert_int_equal(gd_token_file_write(path, 100, tokens, 300), GD_OK);
    gd_token_data *d = gd_token_data_open(*state, path);
    gd_loader *l = gd_loader_create(gd_token_dataset(*state, d, .length = 20), .batch = 2);
    gd_batch b;
    assert_true(gd_loader_next(l, &b));
    assert_int_equal(truncate(path, 1024 + 2 * 50), 0);
    assert_int_equal(gd_token_data_get(d, 49), 0);
    assert_int_equal(gd_token_data_get(d, 50), -1);
    expect_error(GD_ERR_IO, "shrinks.bin: has become shorter");
    assert_false(gd_loader_next(l, &b));
    expect_error(GD_ERR_IO, "shrinks.bin: has become shorter");
    remove(path);
}

/* ---- batches ---- */

static gd_token_data *counting(gd_context *gd, int count)
{
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    for (int i = 0; i < count; i++)
        tokens[i] = i;
    gd_token_data *d = gd_token_data_create(gd, count, tokens);
    free(tokens);
    assert_non_null(d);
    return d;
}

/* x counts up from its first token in each row; y is one ahead. */
static void read_batch(const gd_batch *b, int64_t rows, int64_t length, int64_t *first)
{
    int64_t x[64], y[64];
    gd_shape shape = gd_tensor_shape(b->tensors[0]);
    assert_true(b->count == 2 && b->size == rows && shape.rank == 2 && shape.dim[0] == rows &&
                shape.dim[1] == length);
    assert_int_equal(gd_tensor_read(b->tensors[0], x, sizeof(int64_t) * (size_t)(rows * length)),
                     GD_OK);
    assert_int_equal(gd_tensor_read(b->tensors[1], y, sizeof(int64_t) * (size_t)(rows * length)),
                     GD_OK);
    for (int64_t r = 0; r < rows; r++) {
        first[r] = x[r * length];
        for (int64_t i = 0; i < length; i++) {
            assert_int_equal(x[r * length + i], first[r] + i);
            assert_int_equal(y[r * length + i], first[r] + i + 1);
        }
    }
}

static void batches_come_one_after_another(void **state)
{
    gd_token_data *d = counting(*state, 101);
    gd_dataset *pieces = gd_token_dataset(*state, d, .length = 5, .first = 10, .count = 77);
    assert_int_equal(gd_dataset_count(pieces), 15); /* 76 / 5 */
    gd_loader *l = gd_loader_create(pieces, .batch = 3);
    assert_int_equal(gd_loader_batches(l), 5);
    for (int pass = 0; pass < 2; pass++) {
        gd_batch b;
        for (int64_t n = 0; n < 5; n++) {
            int64_t first[3];
            assert_true(gd_loader_next(l, &b));
            read_batch(&b, 3, 5, first);
            for (int64_t r = 0; r < 3; r++)
                assert_int_equal(first[r], 10 + (n * 3 + r) * 5);
        }
        assert_false(gd_loader_next(l, &b));
        assert_int_equal(gd_error_code(), GD_OK);
    }
    gd_loader_release(l);
    gd_dataset_release(pieces);
    pieces =
        gd_token_dataset(*state, d, .length = 10, .stride = 30); /* they begin at 0, 30, 60, 90 */
    assert_int_equal(gd_dataset_count(pieces), 4);
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(pieces, 3, 1, t), GD_OK);
    assert_true(gd_item(gd_min(t[0], GD_ALL_AXES, false)) == 90 &&
                gd_item(gd_max(t[1], GD_ALL_AXES, false)) == 100);
    gd_dataset_release(pieces);
    gd_token_data_close(d);
}

/* As with gd_loader: the tokens of the batch before are overwritten. */
static void gradients_need_batches_that_are_still_there(void **state)
{
    gd_context *gd = *state;
    gd_loader *l =
        gd_loader_create(gd_token_dataset(gd, counting(gd, 30), .length = 2), .batch = 1);
    gd_tensor *w = gd_set_requires_grad(gd_zeros(gd, GD_SHAPE(30, 1), GD_F32), true), *g;
    gd_batch b;
    assert_true(gd_loader_next(l, &b));
    gd_tensor *loss = gd_sum(gd_embedding(b.tensors[0], w), GD_ALL_AXES, false);
    float each[30];
    assert_int_equal(gd_grad(1, &loss, NULL, 1, &w, &g), GD_OK);
    assert_int_equal(gd_tensor_read(g, each, sizeof each), GD_OK);
    assert_true(each[0] == 1 && each[1] == 1 && each[2] == 0);
    assert_true(gd_loader_next(l, &b));
    loss = gd_add(loss, gd_sum(gd_embedding(b.tensors[0], w), GD_ALL_AXES, false));
    assert_int_equal(gd_backward(loss), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "needs a value that has been overwritten");
}

/* Windows of 7 tokens and the next that lie in [3, 43). */
static gd_loader *windows(gd_context *gd, const gd_token_data *d, uint64_t seed)
{
    return gd_loader_create(
        gd_token_dataset(gd, d, .length = 7, .stride = 1, .first = 3, .count = 40), .batch = 4,
        .seed = seed, .with_replacement = true, .batches_per_epoch = INT64_MAX);
}

static void random_batches_depend_on_the_seed_alone(void **state)
{
    gd_token_data *d = counting(*state, 50);
    int64_t starts[2][3][40], seen[50] = { 0 };
    for (int k = 0; k < 3; k++) {
        gd_loader *l = windows(*state, d, k == 2 ? 6 : 5);
        gd_batch b;
        for (int n = 0; n < 10; n++) {
            assert_true(gd_loader_next(l, &b));
            read_batch(&b, 4, 7, &starts[0][k][n * 4]);
        }
        gd_loader_release(l);
    }
    assert_memory_equal(starts[0][0], starts[0][1], sizeof starts[0][0]);
    assert_memory_not_equal(starts[0][0], starts[0][2], sizeof starts[0][0]);
    gd_loader *l = windows(*state, d, 0);
    for (int n = 0; n < 400; n++) {
        gd_batch b;
        int64_t first[4];
        assert_true(gd_loader_next(l, &b));
        read_batch(&b, 4, 7, first);
        for (int r = 0; r < 4; r++)
            seen[first[r]]++;
    }
    for (int i = 0; i < 50; i++)
        assert_int_equal(seen[i] > 0, i >= 3 && i <= 43 - 8);
}

static void wrong_sequences_are_errors(void **state)
{
    gd_token_data *d = counting(*state, 50);
    assert_int_equal(gd_dataset_count(gd_token_dataset(*state, d, .length = 49)), 1);
    assert_null(gd_token_dataset(*state, d, .length = 50));
    expect_error(GD_ERR_SHAPE, "a sequence of 50 tokens needs them and one more; there are 50");
    assert_null(gd_token_dataset(*state, d, .length = 0));
    expect_error(GD_ERR_INVALID, "length 0");
    assert_null(gd_token_dataset(*state, d, .stride = -2));
    expect_error(GD_ERR_INVALID, "stride -2");
    assert_null(gd_token_dataset(*state, d, .first = 40, .count = 11));
    expect_error(GD_ERR_SHAPE, "11 tokens from 40 on, of 50");
    assert_null(gd_token_dataset(*state, d, .length = INT64_MAX));
    expect_error(GD_ERR_SHAPE, "a sequence of 9223372036854775807 tokens");
    assert_int_equal(
        gd_dataset_count(gd_token_dataset(*state, d, .length = 4, .stride = INT64_MAX)), 1);
    assert_null(gd_token_dataset(*state, NULL));
    assert_int_equal(gd_error_code(), GD_OK);
}

/* ---- sampling ---- */

static void greedy_takes_the_most_likely(void **state)
{
    (void)state;
    gd_sampler *s = gd_sampler_create(.temperature = 0);
    const float logits[] = { 1, 3, -2, 3, 2 };
    for (int i = 0; i < 5; i++)
        assert_int_equal(gd_sample(s, 5, logits, 0, NULL), 1);
    gd_sampler_release(s);
}

/* How often each token is drawn, against its probability, in standard deviations. */
static void assert_shares(const gd_sampler_options *o, const float *logits, int count,
                          const double *expected)
{
    enum { DRAWS = 20000 };
    gd_sampler *s = gd_sampler_create_with(o);
    int seen[16] = { 0 };
    for (int i = 0; i < DRAWS; i++)
        seen[gd_sample(s, count, logits, 0, NULL)]++;
    for (int i = 0; i < count; i++) {
        double p = expected[i], deviation = sqrt(DRAWS * p * (1.0 - p));
        assert_true(fabs(seen[i] - DRAWS * p) <= 5.0 * deviation);
    }
    gd_sampler_release(s);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    /* probabilities 0.4, 0.3, 0.2, 0.1 in another order, and one that is impossible */
    const float logits[] = { logf(0.1f), logf(0.4f), -INFINITY, logf(0.2f), logf(0.3f) };
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1 }, logits, 5,
                  (double[]){ 0.1, 0.4, 0, 0.2, 0.3 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 0.5 }, logits, 5,
                  (double[]){ 0.01 / 0.3, 0.16 / 0.3, 0, 0.04 / 0.3, 0.09 / 0.3 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_k = 2 },
                  logits, 5, (double[]){ 0, 4.0 / 7, 0, 0, 3.0 / 7 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_k = 1 },
                  logits, 5, (double[]){ 0, 1, 0, 0, 0 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_k = 99 },
                  logits, 5, (double[]){ 0.1, 0.4, 0, 0.2, 0.3 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_p = 0.75 },
                  logits, 5, (double[]){ 0, 4.0 / 9, 0, 2.0 / 9, 3.0 / 9 });
    assert_shares(&(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_p = 1e-9 },
                  logits, 5, (double[]){ 0, 1, 0, 0, 0 });
    /* 0.4 of the 0.9 that top_k leaves is less than half of it, 0.7 is more */
    assert_shares(
        &(gd_sampler_options){ GD_SAMPLER_DEFAULTS, .temperature = 1, .top_k = 3, .top_p = 0.5 },
        logits, 5, (double[]){ 0, 4.0 / 7, 0, 0, 3.0 / 7 });
}

static void repetition_is_penalised_once(void **state)
{
    (void)state;
    const float logits[] = { 4, 3, -1, -1.5f };
    const int32_t past[] = { 0, 0, 0, 2, 99, -1 };
    gd_sampler *s = gd_sampler_create(.temperature = 0, .repetition_penalty = 2);
    assert_int_equal(gd_sample(s, 4, logits, 6, past), 1);                 /* 4 became 2 */
    assert_int_equal(gd_sample(s, 2, logits + 2, 1, (int32_t[]){ 0 }), 1); /* -1 became -2 */
    assert_int_equal(gd_sample(s, 4, logits, 0, NULL), 0);
    gd_sampler_release(s);
}

static void draws_depend_on_the_seed_alone(void **state)
{
    (void)state;
    float logits[300];
    for (int i = 0; i < 300; i++)
        logits[i] = sinf((float)i);
    int32_t drawn[3][50];
    for (int k = 0; k < 3; k++) {
        gd_sampler *s =
            gd_sampler_create(.temperature = 0.9, .top_p = 0.95, .seed = k == 2 ? 8 : 7);
        for (int i = 0; i < 50; i++)
            drawn[k][i] = gd_sample(s, 300, logits, 0, NULL);
        gd_sampler_release(s);
    }
    assert_memory_equal(drawn[0], drawn[1], sizeof drawn[0]);
    assert_memory_not_equal(drawn[0], drawn[2], sizeof drawn[0]);
}

static void wrong_samplers_and_logits_are_errors(void **state)
{
    (void)state;
    assert_null(gd_sampler_create(.temperature = -1));
    expect_error(GD_ERR_INVALID, "temperature -1");
    assert_null(gd_sampler_create(.top_p = 1.5));
    expect_error(GD_ERR_INVALID, "top_p 1.5");
    assert_null(gd_sampler_create(.temperature = (double)NAN));
    expect_error(GD_ERR_INVALID, "temperature");
    gd_sampler *s = gd_sampler_create(.temperature = 1);
    assert_int_equal(gd_sample(s, 2, (float[]){ 1, NAN }, 0, NULL), -1);
    expect_error(GD_ERR_INVALID, "token 1 is not a number");
    assert_int_equal(gd_sample(s, 2, (float[]){ -INFINITY, -INFINITY }, 0, NULL), -1);
    expect_error(GD_ERR_INVALID, "largest of 2 logits is -inf");
    assert_int_equal(gd_sample(s, 2, (float[]){ 1, INFINITY }, 0, NULL), -1);
    expect_error(GD_ERR_INVALID, "is inf");
    assert_int_equal(gd_sample(s, 2, NULL, 0, NULL), -1);
    expect_error(GD_ERR_INVALID, "logits are NULL");
    gd_sampler_release(s);
    gd_sampler_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(token_files_come_back, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_token_files_are_errors, open_context, close_context),
        cmocka_unit_test_setup_teardown(files_that_shrink_are_errors, open_context, close_context),
        cmocka_unit_test_setup_teardown(batches_come_one_after_another, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(gradients_need_batches_that_are_still_there, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(random_batches_depend_on_the_seed_alone, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(wrong_sequences_are_errors, open_context, close_context),
        cmocka_unit_test(greedy_takes_the_most_likely),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(repetition_is_penalised_once),
        cmocka_unit_test(draws_depend_on_the_seed_alone),
        cmocka_unit_test(wrong_samplers_and_logits_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
