/* tests/test_language_gguf.c: language models and tokenisers in GGUF files: saved and loaded they say the same, in other
 * types nearly; words as the patterns of GPT-2, Llama 3 and Qwen 2 cut them (tests/goldens/make_words.py); wrong files. */
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

#include "io/gguf.h"
#include "io/importance.h"
#include "text/bpe.h"

#include "goldens/words.h"
#include "support/context.h"
#include "support/shared_data.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define STORIES      "models/stories260K/"

static const char *temporary(int number)
{
    static char paths[3][512];
    snprintf(paths[number], sizeof *paths, GD_BINARY_DIR "/test_language_gguf_%d_%d.gguf",
             (int)getpid(), number);
    return paths[number];
}

static int end(void **state)
{
    for (int i = 0; i < 3; i++)
        remove(temporary(i));
    return close_context(state);
}

/* ---- a model told word for word ---- */

typedef struct story {
    char text[4096];
    size_t size;
} story;

static gd_status listen(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    story *s = user;
    (void)token, (void)stop;
    assert_true(s->size + size < sizeof s->text);
    memcpy(s->text + s->size, text, size);
    s->size += size;
    return GD_OK;
}

static story tell(gd_language_model *m, const gd_tokenizer *t)
{
    story s = { .size = 0 };
    assert_non_null(m);
    assert_non_null(t);
    gd_generator *g = gd_generator_create(m);
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    assert_int_equal(gd_generate(g, t, greedy, .max_tokens = 200, .callback = listen, .user = &s),
                     200);
    gd_sampler_release(greedy);
    gd_generator_release(g);
    return s;
}

static void stories260k_says_the_same_from_gguf(void **state)
{
    size_t size;
    char *expected = shared_text(STORIES "expected_t0_n200.txt", &size);
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data(STORIES "tok512.bin"));
    gd_language_model *m = gd_language_model_load(*state, shared_data(STORIES "stories260K.bin"));
    static const gd_gguf_type types[] = { GD_GGUF_F32, GD_GGUF_F16 }; /* F16: as it happens */
    for (size_t i = 0; i < COUNT(types); i++) {
        assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = types[i]), GD_OK);
        gd_tokenizer *own = gd_tokenizer_load_gguf(temporary(0));
        gd_language_model *again = gd_language_model_load(*state, temporary(0));
        story s = tell(again, own);
        assert_int_equal(s.size, size);
        assert_memory_equal(s.text, expected, size);
        gd_language_model_release(again);
        gd_tokenizer_release(own);
    }
    gd_tokenizer_release(t);
    free(expected);
}

/* ---- tokenisers ---- */

static void assert_same_tokens(const gd_tokenizer *a, const gd_tokenizer *b, const char *text)
{
    gd_tokens x = { 0 }, y = { 0 };
    assert_int_equal(gd_tokenize(a, text, strlen(text), &x), GD_OK);
    assert_int_equal(gd_tokenize(b, text, strlen(text), &y), GD_OK);
    assert_int_equal(x.count, y.count);
    assert_memory_equal(x.ids, y.ids, (size_t)x.count * sizeof *x.ids);
    size_t size, other;
    char *back = gd_detokenize(a, x.count, x.ids, &size);
    char *again = gd_detokenize(b, y.count, y.ids, &other);
    assert_int_equal(size, strlen(text));
    assert_int_equal(size, other);
    assert_memory_equal(back, text, size);
    assert_memory_equal(back, again, size);
    gd_text_free(back);
    gd_text_free(again);
    gd_tokens_free(&x);
    gd_tokens_free(&y);
}

/* A tiny model with the tokeniser's count of tokens carries it. */
static gd_tokenizer *through_a_file(gd_context *gd, const gd_tokenizer *t, gd_decoder decoder)
{
    gd_language_model *m =
        gd_language_model_create(gd, .decoder = decoder, .vocabulary = gd_tokenizer_count(t),
                                 .max_length = 16, .layers = 1, .heads = 2, .width = 8, .seed = 1);
    assert_int_equal(gd_language_model_save_gguf(m, t, temporary(1)), GD_OK);
    gd_language_model_release(m);
    gd_tokenizer *own = gd_tokenizer_load_gguf(temporary(1));
    if (!own)
        fail_msg("%s", gd_error_message());
    assert_int_equal(gd_tokenizer_count(own), gd_tokenizer_count(t));
    assert_int_equal(gd_tokenizer_begin(own), gd_tokenizer_begin(t));
    assert_int_equal(gd_tokenizer_end(own), gd_tokenizer_end(t));
    return own;
}

static void tokenisers_come_back(void **state)
{
    static const char merges[] =
        "#version: 0.2\nh e\nl l\nhe ll\nhell o\n\xc4\xa0 w\no r\n\xc4\xa0w or\n";
    static const char text[] = "hello world, \"well\" \xf0\x9f\x91\x8b\n\n  two  ";
    gd_tokenizer *made[] = {
        gd_tokenizer_bytes(),
        gd_tokenizer_characters("hello world, \"two\" \xf0\x9f\x91\x8b\n", 24),
        gd_tokenizer_bpe(merges, strlen(merges)),
        gd_tokenizer_load_llama2c(shared_data(STORIES "tok512.bin")),
    };
    for (size_t i = 0; i < COUNT(made); i++) {
        assert_non_null(made[i]);
        gd_tokenizer *own =
            through_a_file(*state, made[i], i % 2 ? GD_DECODER_LLAMA : GD_DECODER_GPT2);
        assert_same_tokens(made[i], own, text);
        assert_same_tokens(made[i], own, " ");
        assert_same_tokens(made[i], own, "");
        for (int32_t token = 0; token < gd_tokenizer_count(own); token++) {
            size_t a, b;
            const char *x = gd_token_text(made[i], 5, token, &a);
            const char *y = gd_token_text(own, 5, token, &b);
            assert_int_equal(a, b);
            assert_memory_equal(x, y, a);
        }
        gd_tokens none = { 0 };
        if (i == 1) {
            assert_int_equal(gd_tokenize(own, "z", 1, &none), GD_ERR_INVALID);
            gd_error_clear();
        }
        gd_tokenizer_release(own);
        gd_tokenizer_release(made[i]);
    }
}

static void words_are_cut_as_the_patterns_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(word_goldens); i++) {
        const char *text = word_goldens[i].text, *pattern = word_goldens[i].pattern;
        size_t size = strlen(text), at = 0;
        for (int k = 0; at < size; k++) {
            size_t (*word)(const char *, size_t) =
                strcmp(pattern, "gpt2") == 0     ? gd_bpe_word_gpt2
                : strcmp(pattern, "llama3") == 0 ? gd_bpe_word_llama3
                : strcmp(pattern, "qwen2") == 0  ? gd_bpe_word_qwen2
                                                 : gd_bpe_word_digits;
            size_t length = word(text + at, size - at);
            if (length != (size_t)word_goldens[i].bytes[k])
                print_error("%s: '%s' from byte %zu\n", pattern, text, at);
            assert_int_equal(length, word_goldens[i].bytes[k]);
            at += length;
        }
    }
}

/* ---- models ---- */

static gd_tensor *logits(gd_context *gd, gd_language_model *m)
{
    static const int64_t tokens[] = { 1, 5, 3, 0, 7, 200 };
    if (!m)
        fail_msg("%s", gd_error_message());
    return gd_language_model_forward(m, gd_from_host(gd, GD_SHAPE(1, 6), GD_I64, tokens));
}

static void both_architectures_give_the_same_logits(void **state)
{
    gd_tokenizer *t = gd_tokenizer_bytes();
    for (int tied = 0; tied < 2; tied++)
        for (int llama = 0; llama < 2; llama++) {
            gd_language_model *m = gd_language_model_create(
                *state, .decoder = llama ? GD_DECODER_LLAMA : GD_DECODER_GPT2, .vocabulary = 256,
                .max_length = 8, .layers = 2, .heads = 4, .kv_heads = llama ? 2 : 4, .width = 32,
                .hidden = 40, .tied = tied, .epsilon = 1e-3, .rotary_base = 500, .seed = 3);
            assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = GD_GGUF_F32),
                             GD_OK);
            gd_language_model *again = gd_language_model_load(*state, temporary(0));
            assert_same_bits(logits(*state, m), logits(*state, again));
            const gd_language_options *o = gd_language_model_options(again);
            assert_true(o->tied == tied && o->hidden == 40 &&
                        o->rotary_base == (llama ? 500 : 10000));
#ifdef GD_HAVE_JANSSON
            assert_int_equal(gd_language_model_save(m, temporary(1), 0, NULL), GD_OK);
            gd_language_model *third = gd_language_model_load(*state, temporary(1));
            assert_same_bits(logits(*state, m), logits(*state, third));
            assert_true(gd_language_model_options(third)->epsilon == 1e-3);
#endif
        }
    gd_tokenizer_release(t);
}

typedef struct report {
    int tensors, quantised;
    double largest;
    size_t bytes;
    int stop_at;
} report;

static gd_status note(void *user, const gd_gguf_written *tensor, bool *stop)
{
    report *r = user;
    bool is_small = tensor->type != GD_GGUF_F32 && tensor->type != GD_GGUF_F16;
    r->tensors++;
    r->quantised += is_small;
    r->bytes += tensor->bytes;
    if (tensor->type == GD_GGUF_F32)
        assert_true(tensor->error == 0.0);
    r->largest = fmax(r->largest, tensor->error);
    *stop = r->tensors == r->stop_at;
    return GD_OK;
}

/* A model in another type, made of a file and of the model itself; how far the logits then are. */
static void a_model_is_quantised_with_a_report(void **state)
{
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_language_model *m = gd_language_model_create(
        *state, .decoder = GD_DECODER_LLAMA, .vocabulary = 256, .max_length = 8, .layers = 2,
        .heads = 4, .width = 32, .hidden = 40, .seed = 3);
    assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = GD_GGUF_F32), GD_OK);
    static const struct {
        gd_gguf_type type;
        double least, most;
    } rows[] = { { GD_GGUF_Q8_0, 1e-4, 0.01 }, { GD_GGUF_Q5_1, 1e-3, 0.05 },
                 { GD_GGUF_Q5_0, 1e-3, 0.06 }, { GD_GGUF_Q4_1, 1e-2, 0.1 },
                 { GD_GGUF_Q4_0, 1e-2, 0.12 }, { GD_GGUF_BF16, 1e-4, 0.004 },
                 { GD_GGUF_F16, 1e-6, 0.0005 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        report r = { 0 }, of_file = { 0 };
        assert_int_equal(gd_language_model_save_gguf(m, t, temporary(1), .type = rows[i].type,
                                                     .callback = note, .user = &r),
                         GD_OK);
        assert_int_equal(gd_gguf_quantize(temporary(0), temporary(2), .type = rows[i].type,
                                          .callback = note, .user = &of_file),
                         GD_OK);
        assert_memory_equal(&r, &of_file, sizeof r);
        assert_int_equal(r.tensors, 2 + 2 * 9);
        if (rows[i].type != GD_GGUF_F16) /* rows of 40 of ff.down are no blocks */
            assert_int_equal(r.quantised, rows[i].type == GD_GGUF_BF16 ? 15 : 13);
        if (!(r.largest > rows[i].least && r.largest < rows[i].most))
            print_error("%s: error %g\n", gd_gguf_type_name(rows[i].type), r.largest);
        assert_true(r.largest > rows[i].least && r.largest < rows[i].most);
        gd_language_model *a = gd_language_model_load(*state, temporary(1));
        gd_language_model *b = gd_language_model_load(*state, temporary(2));
        assert_same_bits(logits(*state, a), logits(*state, b));
        gd_language_model_release(a);
        gd_language_model_release(b);
    }
    report stopped = { .stop_at = 3 };
    assert_int_equal(
        gd_gguf_quantize(temporary(0), temporary(2), .callback = note, .user = &stopped),
        GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "gd_gguf_quantize: stopped by the callback");
    assert_int_equal(gd_gguf_quantize(temporary(0), temporary(2), .type = (gd_gguf_type)9),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "9 is no type of gd_gguf_type");
    gd_tokenizer_release(t);
    t = gd_tokenizer_characters("abc", 3);
    assert_int_equal(gd_language_model_save_gguf(m, t, temporary(1)), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the model has 256 tokens, the tokeniser 3");
    gd_tokenizer_release(t);
}

/* ---- calibration ---- */

typedef struct products {
    double error; /* the sum of those of products' */
    int with, without;
} products;

static gd_status note_products(void *user, const gd_gguf_written *t, bool *stop)
{
    products *p = user;
    (void)stop;
    *(t->output_error < 0 ? &p->without : &p->with) += 1;
    p->error += t->output_error < 0 ? 0 : t->output_error;
    return GD_OK;
}

/* What the first product of a Llama is given: rows of the table of tokens by their root mean square. */
static void importance_is_the_mean_square_of_what_is_multiplied(void **state)
{
    enum { WIDTH = 256, TOKENS = 5 };
    static const int32_t tokens[TOKENS] = { 3, 1, 4, 1, 5 };
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_language_model *m = gd_language_model_create(
        *state, .decoder = GD_DECODER_LLAMA, .vocabulary = 256, .max_length = 3, .layers = 1,
        .heads = 4, .width = WIDTH, .hidden = 512, .seed = 4, .tied = false);
    gd_importance *importance = gd_language_model_calibrate(m, TOKENS, tokens);
    assert_non_null(importance);
    const gd_column_importance *q = gd_importance_of(importance, "blk.0.attn_q.weight");
    assert_true(q && q->columns == WIDTH && q->rows == TOKENS);
    float *table = malloc(sizeof(float) * 256 * WIDTH);
    assert_int_equal(
        gd_tensor_read(gd_module_parameter(gd_language_model_module(m), "token.weight"), table,
                       sizeof(float) * 256 * WIDTH),
        GD_OK);
    for (int c = 0; c < WIDTH; c++) {
        double sum = 0;
        for (int i = 0; i < TOKENS; i++) {
            const float *row = table + tokens[i] * WIDTH;
            double squares = 0;
            for (int k = 0; k < WIDTH; k++)
                squares += (double)row[k] * (double)row[k];
            sum += (double)row[c] * (double)row[c] / (squares / WIDTH + 1e-5);
        }
        assert_true(fabs((double)q->mean[c] - sum / TOKENS) < 1e-4 * sum);
    }
    free(table);
    assert_non_null(gd_importance_of(importance, "output.weight"));
    assert_null(gd_importance_of(importance, "token_embd.weight"));
    assert_int_equal(gd_importance_count(importance), 8);

    /* Calibrated, products are nearer than without: the report is over the same importance. */
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS, .type = GD_GGUF_Q3_K,
                                   .callback = note_products, .importance = importance };
    products calibrated = { 0 }, file = { 0 };
    o.user = &calibrated;
    assert_int_equal(gd_language_model_save_gguf_with(m, t, temporary(0), &o), GD_OK);
    assert_true(calibrated.with == 8 && calibrated.without == 4 && calibrated.error > 0);
    assert_int_equal(gd_language_model_save_gguf(m, t, temporary(1), .type = GD_GGUF_F32), GD_OK);
    o.user = &file; /* the same from a file */
    assert_int_equal(gd_gguf_quantize_with(temporary(1), temporary(2), &o), GD_OK);
    assert_true(file.error == calibrated.error && file.with == 8);
    gd_language_model *other = gd_language_model_create(
        *state, .decoder = GD_DECODER_LLAMA, .vocabulary = 256, .max_length = 3, .layers = 1,
        .heads = 4, .width = 128, .hidden = 512);
    assert_int_equal(gd_language_model_save_gguf(other, t, temporary(0), .importance = importance),
                     GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "it is of another model");
    gd_importance_release(importance);
    assert_null(gd_language_model_calibrate(m, 0, tokens));
    expect_error(GD_ERR_INVALID, "there are no tokens");
    static const int32_t wrong = 256;
    assert_null(gd_language_model_calibrate(m, 1, &wrong));
    expect_error(GD_ERR_INVALID, "token 256; the model has 256");
    gd_importance_release(NULL);
    assert_int_equal(gd_importance_count(NULL), 0);
    gd_tokenizer_release(t);
}

/* ---- models that stay in blocks ---- */

static gd_tensor *tensor_at(gd_language_model *m, const char *path)
{
    gd_module *module = gd_language_model_module(m);
    for (int i = 0; i < gd_module_count(module); i++)
        if (strcmp(gd_module_path(module, i), path) == 0)
            return gd_module_tensor(module, i);
    return NULL;
}

/* A matrix of m, as it is in plain, but for being transposed unless it is a table. */
static void is_in_blocks(gd_language_model *m, gd_language_model *plain, const char *name,
                         bool table, gd_gguf_type type)
{
    char values[64], scales[64], weight[64];
    snprintf(values, sizeof values, "%s.values", name);
    snprintf(scales, sizeof scales, "%s.scales", name);
    snprintf(weight, sizeof weight, "%s.weight", name);
    assert_null(tensor_at(m, weight));
    gd_tensor *v = tensor_at(m, values), *s = tensor_at(m, scales), *w = tensor_at(plain, weight);
    if (!v || !s || !w)
        fail_msg("%s is not there", name);
    const bool four_bits = type == GD_GGUF_Q4_0 || type == GD_GGUF_Q4_1 || type == GD_GGUF_Q2_K ||
                           type == GD_GGUF_Q3_K || type == GD_GGUF_Q4_K;
    assert_true(gd_tensor_dtype(v) == (four_bits ? GD_U8 : GD_I8));
    assert_true(gd_tensor_dtype(s) == GD_F16);
    assert_false(gd_requires_grad(v) || gd_requires_grad(s));
    gd_tensor *rows = table ? w : gd_contiguous(gd_transpose(w, 0, 1));
    if (type != GD_GGUF_Q8_0 && type != GD_GGUF_Q4_0) {
        assert_same_bits(gd_dequantize(v, s), rows);
        return;
    }
    gd_shape shape = gd_tensor_shape(v);
    gd_tensor *blocks =
        gd_reshape(gd_cast(v, GD_F32), GD_SHAPE(shape.dim[0], -1, four_bits ? 16 : 32));
    if (four_bits) {
        gd_tensor *sixteenth = gd_floor(gd_mul_scalar(blocks, 0.0625));
        gd_tensor *halves[2] = { gd_sub(blocks, gd_mul_scalar(sixteenth, 16)), sixteenth };
        blocks = gd_add_scalar(gd_concat(2, halves, 2), -8);
        shape.dim[1] *= 2;
    }
    gd_tensor *numbers = gd_mul(blocks, gd_unsqueeze(gd_cast(s, GD_F32), 2));
    assert_same_bits(gd_reshape(numbers, shape), rows);
}

/* The largest difference, as a part of the largest of a. */
static double distance(gd_tensor *a, gd_tensor *b)
{
    return gd_item(gd_max(gd_abs(gd_sub(a, b)), GD_ALL_AXES, false)) /
           gd_item(gd_max(gd_abs(a), GD_ALL_AXES, false));
}

static void try_blocks(void **state, gd_gguf_type type)
{
    const bool large = type >= GD_GGUF_Q2_K; /* blocks of 256 */
    gd_tokenizer *t = gd_tokenizer_bytes();
    for (int tied = 0; tied < 2; tied++)
        for (int llama = 0; llama < 2; llama++) {
            if (large && (tied || !llama)) /* to write those takes long */
                continue;
            gd_language_model *m = gd_language_model_create(
                *state, .decoder = llama ? GD_DECODER_LLAMA : GD_DECODER_GPT2, .vocabulary = 256,
                .max_length = 8, .layers = 2, .heads = 4, .kv_heads = llama ? 2 : 4,
                .width = large ? 256 : 64, .hidden = large ? 256 : 96, .tied = tied, .seed = 3);
            assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = type), GD_OK);
            gd_language_model *plain = gd_language_model_load(*state, temporary(0));
            gd_language_model *blocks =
                gd_language_model_load(*state, temporary(0), .quantized = true);
            gd_tensor *exact = logits(*state, plain), *got = logits(*state, blocks);
            assert_in_range((int64_t)(distance(exact, got) * 1e6), 10, 30000);
            is_in_blocks(blocks, plain, "token", true, type);
            is_in_blocks(blocks, plain, "1.self.qkv", false, type);
            is_in_blocks(blocks, plain, "0.self.out", false, type);
            is_in_blocks(blocks, plain, "0.ff.up", false, type);
            is_in_blocks(blocks, plain, "1.ff.down", false, type);
            if (llama)
                is_in_blocks(blocks, plain, "1.ff.gate", false, type);
            if (!tied)
                is_in_blocks(blocks, plain, "head", false, type);
            assert_int_equal(gd_language_model_save_gguf(blocks, t, temporary(1)),
                             GD_ERR_UNSUPPORTED);
            expect_error(GD_ERR_UNSUPPORTED, "has its matrices in blocks");
            assert_int_equal(gd_language_model_save(blocks, temporary(1), 0, NULL),
                             GD_ERR_UNSUPPORTED);
            expect_error(GD_ERR_UNSUPPORTED, "has its matrices in blocks");
        }
    gd_tokenizer_release(t);
}

static void matrices_stay_in_blocks_where_asked(void **state)
{
    static const gd_gguf_type types[] = { GD_GGUF_Q8_0, GD_GGUF_Q4_0, GD_GGUF_Q4_1, GD_GGUF_Q5_0,
                                          GD_GGUF_Q5_1, GD_GGUF_Q2_K, GD_GGUF_Q3_K, GD_GGUF_Q4_K,
                                          GD_GGUF_Q5_K, GD_GGUF_Q6_K };
    for (size_t i = 0; i < COUNT(types); i++)
        try_blocks(state, types[i]);
}

static void count_warning(void *user, gd_log_level level, const char *message)
{
    *(int *)user += level == GD_LOG_WARNING && strstr(message, "no matrix is in blocks");
}

/* Other types are read as they are without the option, to f32, which a warning says. */
static void other_types_do_not_stay_in_blocks(void **state)
{
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_language_model *m =
        gd_language_model_create(*state, .vocabulary = 256, .max_length = 8, .layers = 1,
                                 .heads = 4, .width = 64, .seed = 3);
    static const gd_gguf_type types[] = { GD_GGUF_F32, GD_GGUF_BF16, GD_GGUF_F16 };
    int warnings = 0;
    gd_set_log_callback(count_warning, &warnings, GD_LOG_WARNING);
    for (size_t i = 0; i < COUNT(types); i++) {
        assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = types[i]), GD_OK);
        assert_same_bits(
            logits(*state, gd_language_model_load(*state, temporary(0))),
            logits(*state, gd_language_model_load(*state, temporary(0), .quantized = true)));
    }
    gd_set_log_callback(NULL, NULL, GD_LOG_WARNING);
    assert_int_equal(warnings, COUNT(types));
    gd_tokenizer_release(t);
}

/* Token by token, with a cache, a model in blocks begins as the same weights in f32 do; once a
 * rounding has changed a word, the two tell different stories. */
static void tell_in_blocks(void **state, gd_gguf_type type)
{
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data(STORIES "tok512.bin"));
    gd_language_model *m = gd_language_model_load(*state, shared_data(STORIES "stories260K.bin"));
    assert_int_equal(gd_language_model_save_gguf(m, t, temporary(0), .type = type), GD_OK);
    gd_tokenizer *own = gd_tokenizer_load_gguf(temporary(0));
    story plain = tell(gd_language_model_load(*state, temporary(0)), own);
    story blocks = tell(gd_language_model_load(*state, temporary(0), .quantized = true), own);
    size_t same = 0;
    while (same < plain.size && same < blocks.size && plain.text[same] == blocks.text[same])
        same++;
    assert_true(same > (type == GD_GGUF_Q8_0 ? 100 : 20));
    gd_tokenizer_release(own);
    gd_tokenizer_release(t);
}

static void stories260k_begins_the_same_in_blocks(void **state)
{
    tell_in_blocks(state, GD_GGUF_Q8_0);
    tell_in_blocks(state, GD_GGUF_Q4_0);
    tell_in_blocks(state, GD_GGUF_Q4_1);
    tell_in_blocks(state, GD_GGUF_Q5_1);
}

/* ---- wrong files ---- */

static gd_status ones(void *user, size_t first, size_t count, float *out)
{
    (void)user, (void)first;
    for (size_t i = 0; i < count; i++)
        out[i] = 1.0f;
    return GD_OK;
}

/* A small Llama of one layer; `change` is left out, or put in beside. */
static void write_llama(const char *arch, const char *without, const char *key, const char *value)
{
    const struct {
        const char *name;
        gd_shape shape;
    } tensors[] = {
        { "token_embd.weight", GD_SHAPE(3, 4) },   { "blk.0.attn_norm.weight", GD_SHAPE(4) },
        { "blk.0.attn_q.weight", GD_SHAPE(4, 4) }, { "blk.0.attn_k.weight", GD_SHAPE(4, 4) },
        { "blk.0.attn_v.weight", GD_SHAPE(4, 4) }, { "blk.0.attn_output.weight", GD_SHAPE(4, 4) },
        { "blk.0.ffn_norm.weight", GD_SHAPE(4) },  { "blk.0.ffn_gate.weight", GD_SHAPE(8, 4) },
        { "blk.0.ffn_up.weight", GD_SHAPE(8, 4) }, { "blk.0.ffn_down.weight", GD_SHAPE(4, 8) },
        { "output_norm.weight", GD_SHAPE(4) },
    };
    static const struct {
        const char *name;
        uint32_t value;
    } numbers[] = { { "context_length", 16 },
                    { "embedding_length", 4 },
                    { "block_count", 1 },
                    { "feed_forward_length", 8 },
                    { "attention.head_count", 2 } };
    gd_gguf_values v = { 0 };
    gd_gguf_part parts[16] = { { .name = NULL } };
    size_t count = 0;
    gd_gguf_add_text(&v, "general.architecture", arch);
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", arch, numbers[i].name);
        if (strcmp(name, without) != 0)
            gd_gguf_add_u32(&v, name, numbers[i].value);
    }
    if (key && value)
        gd_gguf_add_text(&v, key, value);
    else if (key && !strstr(key, ".weight") && !strstr(key, ".bias"))
        gd_gguf_add_u32(&v, key, 3);
    for (size_t i = 0; i < COUNT(tensors); i++)
        if (strcmp(tensors[i].name, without) != 0)
            parts[count++] = (gd_gguf_part){ .name = tensors[i].name,
                                             .format = gd_block_format_of(GD_GGUF_F32),
                                             .shape = tensors[i].shape,
                                             .values = ones };
    if (key && (strstr(key, ".weight") || strstr(key, ".bias")))
        parts[count++] = (gd_gguf_part){ .name = key,
                                         .format = gd_block_format_of(GD_GGUF_F32),
                                         .shape = GD_SHAPE(4),
                                         .values = ones };
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS };
    assert_int_equal(gd_gguf_write("test", temporary(0), &v, count, parts, &o), GD_OK);
    gd_gguf_values_free(&v);
}

static void wrong_models_are_errors(void **state)
{
    static const struct {
        const char *arch, *without, *key, *value;
        gd_status status;
        const char *words;
    } rows[] = {
        { "mamba", "", NULL, NULL, GD_ERR_UNSUPPORTED,
          "the architecture \"mamba\"; gpt2 and llama are read" },
        { "llama", "llama.block_count", NULL, NULL, GD_ERR_FORMAT,
          "\"llama.block_count\" is needed" },
        { "llama", "token_embd.weight", NULL, NULL, GD_ERR_FORMAT, "lacks \"token_embd.weight\"" },
        { "llama", "blk.0.attn_k.weight", NULL, NULL, GD_ERR_FORMAT,
          "lacks \"blk.0.attn_k.weight\"" },
        { "llama", "output_norm.weight", NULL, NULL, GD_ERR_FORMAT,
          "lacks \"output_norm.weight\"" },
        { "llama", "", "output.weight", NULL, GD_ERR_FORMAT, "\"output.weight\" is not [3, 4]" },
        { "llama", "", "blk.0.attn_q.bias", NULL, GD_ERR_UNSUPPORTED,
          "it has a \"blk.0.attn_q.bias\"" },
        { "llama", "", "blk.1.attn_norm.weight", NULL, GD_ERR_FORMAT, "more tensors" },
        { "llama", "", "rope_freqs.weight", NULL, GD_ERR_UNSUPPORTED,
          "rotary positions are scaled" },
        { "llama", "", "llama.expert_count", NULL, GD_ERR_UNSUPPORTED, "mixture of 3 experts" },
        { "llama", "", "llama.attention.key_length", NULL, GD_ERR_UNSUPPORTED,
          "its heads are 2 wide" },
        { "llama", "", "llama.attention.head_count_kv", NULL, GD_ERR_INVALID,
          "a divisor of the heads" },
        { "gpt2", "", NULL, NULL, GD_ERR_FORMAT, "lacks \"position_embd.weight\"" },
    };
    write_llama("llama", "", NULL, NULL);
    assert_non_null(gd_language_model_load(*state, temporary(0)));
    assert_null(gd_tokenizer_load_gguf(temporary(0)));
    expect_error(GD_ERR_FORMAT, "it has no tokeniser");
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_llama(rows[i].arch, rows[i].without, rows[i].key, rows[i].value);
        assert_null(gd_language_model_load(*state, temporary(0)));
        expect_error(rows[i].status, rows[i].words);
    }
}

static void wrong_tokenisers_are_errors(void **state)
{
    static const char *const models[] = { "bert", "gpt2", "llama" }, *const errors[] = {
        "of the model \"bert\"", "lacks the list \"tokenizer.ggml.merges\"", "lacks the score"
    };
    (void)state;
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS };
    for (size_t i = 0; i < COUNT(models) + 3; i++) {
        gd_gguf_values v = { 0 };
        gd_gguf_add_text(&v, "tokenizer.ggml.model", i < 3 ? models[i] : "gpt2");
        gd_gguf_add_list(&v, "tokenizer.ggml.tokens", GD_GGUF_TEXT, 2);
        gd_gguf_put_text(&v, "a", 1);
        gd_gguf_put_text(&v, "b", 1);
        if (i == 3)
            gd_gguf_add_text(&v, "tokenizer.ggml.pre", "deepseek-llm");
        if (i >= 3) {
            gd_gguf_add_list(&v, "tokenizer.ggml.merges", GD_GGUF_TEXT, 1);
            gd_gguf_put_text(&v, i == 4 ? "a b" : "ab", i == 4 ? 3 : 2);
        }
        assert_int_equal(gd_gguf_write("test", temporary(0), &v, 0, NULL, &o), GD_OK);
        gd_gguf_values_free(&v);
        assert_null(gd_tokenizer_load_gguf(temporary(0)));
        expect_error(i == 0 || i == 3 ? GD_ERR_UNSUPPORTED : GD_ERR_FORMAT,
                     i < 3    ? errors[i]
                     : i == 3 ? "as \"deepseek-llm\" does"
                     : i == 4 ? "a merge of what are no tokens"
                              : "not \"left right\"");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(importance_is_the_mean_square_of_what_is_multiplied,
                                        open_context, end),
        cmocka_unit_test_setup_teardown(stories260k_says_the_same_from_gguf, open_context, end),
        cmocka_unit_test_setup_teardown(tokenisers_come_back, open_context, end),
        cmocka_unit_test(words_are_cut_as_the_patterns_say),
        cmocka_unit_test_setup_teardown(both_architectures_give_the_same_logits, open_context, end),
        cmocka_unit_test_setup_teardown(a_model_is_quantised_with_a_report, open_context, end),
        cmocka_unit_test_setup_teardown(matrices_stay_in_blocks_where_asked, open_context, end),
        cmocka_unit_test_setup_teardown(other_types_do_not_stay_in_blocks, open_context, end),
        cmocka_unit_test_setup_teardown(stories260k_begins_the_same_in_blocks, open_context, end),
        cmocka_unit_test_setup_teardown(wrong_models_are_errors, open_context, end),
        cmocka_unit_test_setup_teardown(wrong_tokenisers_are_errors, open_context, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
