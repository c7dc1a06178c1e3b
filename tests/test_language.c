/* tests/test_language.c: language models: stories260K word for word, GPT-2 against PyTorch,
 * training, files, generation. */
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
#include "support/effort.h"
#include "support/gpt2_golden.h"
#include "support/shared_data.h"

#define STORIES "models/stories260K/stories260K.bin"

static const char *temporary(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, GD_BINARY_DIR "/test_language_%d_%s", (int)getpid(), name);
    return path;
}

static gd_tensor *indices(gd_context *gd, int64_t rows, int64_t columns, const int64_t *values)
{
    return gd_from_host(gd, GD_SHAPE(rows, columns), GD_I64, values);
}

/* ---- stories260K ---- */

typedef struct listener {
    char text[4096];
    size_t size;
    int stop_after, fail_after, heard; /* 0: never */
} listener;

static gd_status listen(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    listener *l = user;
    (void)token;
    assert_true(l->size + size < sizeof l->text);
    memcpy(l->text + l->size, text, size);
    l->size += size;
    *stop = ++l->heard == l->stop_after;
    return l->heard == l->fail_after ? GD_ERR_IO : GD_OK;
}

/* Embeddings and norms have rows, too, and all rows together are the total. */
static void the_summary_has_all_layers(void **state)
{
    gd_language_model *m = gd_language_model_create(*state, .vocabulary = 11, .max_length = 8,
                                                    .layers = 1, .heads = 2, .width = 12);
    char text[2048];
    gd_module_summary(gd_language_model_module(m), text, sizeof text);
    static const char *const begins[] = { "layer ",     "token ",     "position ", "0.norm1 ",
                                          "0.self.qkv", "0.self.out", "0.norm2 ",  "0.ff.up",
                                          "0.ff.down",  "norm ",      "total " };
    int64_t sum = 0;
    size_t count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), count++) {
        assert_true(count < sizeof begins / sizeof *begins);
        assert_memory_equal(line, begins[count], strlen(begins[count]));
        char *number = strrchr(line, ' ') + 1, *comma = strchr(number, ',');
        if (comma)
            memmove(comma, comma + 1, strlen(comma));
        sum += count > 0 ? atoll(number) : 0;
        if (count == 1)
            assert_non_null(strstr(line, "embedding         [batch, time, 12]"));
        if (count == 2)
            assert_non_null(strstr(line, "learned_position  [batch, time, 12]"));
    }
    assert_int_equal(count, sizeof begins / sizeof *begins);
    assert_int_equal(sum, 2 * gd_module_parameter_count(gd_language_model_module(m)));
    gd_language_model_release(m);
}

static void stories260k_talks_word_for_word(void **state)
{
    size_t size;
    char *expected = shared_text("models/stories260K/expected_t0_n200.txt", &size);
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data("models/stories260K/tok512.bin"));
    gd_language_model *m = gd_language_model_load(*state, shared_data(STORIES));
    assert_non_null(m);
    gd_language_options o = *gd_language_model_options(m);
    assert_true(o.decoder == GD_DECODER_LLAMA && o.width == 64 && o.hidden == 172 &&
                o.layers == 5 && o.heads == 8 && o.kv_heads == 4 && o.vocabulary == 512 &&
                o.max_length == 512);
    gd_generator *g = gd_generator_create(m);
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    listener heard = { 0 };
    assert_int_equal(
        gd_generate(g, t, greedy, .max_tokens = 200, .callback = listen, .user = &heard), 200);
    assert_int_equal(heard.size, size);
    assert_memory_equal(heard.text, expected, size);

    gd_generator_reset(g); /* the same again, stopped by the listener */
    listener brief = { .stop_after = 7 };
    assert_int_equal(gd_generate(g, t, greedy, .callback = listen, .user = &brief), 7);
    assert_memory_equal(brief.text, expected, brief.size);

    gd_generator_reset(g); /* a listener that fails */
    listener failing = { .fail_after = 3 };
    assert_int_equal(gd_generate(g, t, greedy, .callback = listen, .user = &failing), -1);
    assert_int_equal(failing.heard, 3);
    assert_int_equal(gd_error_code(), GD_ERR_IO);
    assert_non_null(strstr(gd_error_message(), "gd_generate: the callback returned GD_ERR_IO"));
    gd_error_clear();

    gd_generator_reset(g); /* the beginning as a prompt */
    listener rest = { 0 };
    assert_true(gd_generate(g, t, greedy, .prompt = "Once upon a time", .max_tokens = 100,
                            .callback = listen, .user = &rest) == 100);
    assert_memory_equal(rest.text, expected + strlen("Once upon a time"), rest.size);

    gd_generator_reset(g); /* to the model's length */
    listener whole = { .stop_after = 0 };
    int64_t made = gd_generate(g, t, greedy, .callback = listen, .user = &whole);
    assert_true(made > 200 && made <= 512);
    gd_sampler_release(greedy);
    gd_tokenizer_release(t);
    free(expected);
}

/* What is kept of keys and values changes nothing but the time it takes. */
static void a_cache_gives_what_whole_sequences_give(void **state)
{
    enum { TIME = 40, VOCABULARY = 512 };
    gd_language_model *m = gd_language_model_load(*state, shared_data(STORIES));
    gd_module_set_training(gd_language_model_module(m), false);
    int64_t wide[TIME];
    int32_t tokens[TIME];
    for (int i = 0; i < TIME; i++)
        wide[i] = tokens[i] = i == 0 ? 1 : (i * 37) % VOCABULARY;
    gd_tensor *logits = gd_language_model_forward(m, indices(*state, 1, TIME, wide));
    float *whole = malloc(sizeof(float) * TIME * VOCABULARY);
    assert_int_equal(gd_tensor_read(logits, whole, sizeof(float) * TIME * VOCABULARY), GD_OK);
    gd_generator *g = gd_generator_create(m);
    for (int at = 0, count; at < TIME; at += count) { /* 5 tokens, then one by one, then 9 */
        count = at == 0 ? 5 : at == 31 ? 9 : 1;
        const float *got = gd_generator_feed(g, count, tokens + at);
        assert_non_null(got);
        assert_int_equal(gd_generator_length(g), at + count);
        for (int i = 0; i < VOCABULARY; i++)
            assert_true(fabsf(got[i] - whole[(at + count - 1) * VOCABULARY + i]) < 2e-4f);
    }
    free(whole);
}

typedef struct trainee {
    gd_language_model *model;
    gd_optimizer *optimizer;
} trainee;

/* Batches of sequences from anywhere, without end. */
static gd_loader *random_pieces(gd_context *gd, const gd_token_data *data, int64_t batch,
                                int64_t length)
{
    return gd_loader_create(gd_token_dataset(gd, data, .length = length, .stride = 1),
                            .batch = batch, .with_replacement = true,
                            .batches_per_epoch = INT64_MAX);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_language_model_loss(t->model, in[0], in[1]));
}

static void stories260k_is_fine_tuned(void **state)
{
    static const char text[] = "Once upon a time there was a small engine in C. It learned to "
                               "read, one step after another. ";
    gd_tokenizer *t = gd_tokenizer_load_llama2c(shared_data("models/stories260K/tok512.bin"));
    trainee tuned = { .model = gd_language_model_load(*state, shared_data(STORIES)) };
    tuned.optimizer = gd_adamw(gd_language_model_module(tuned.model), .lr = 1e-3);
    gd_tokens tokens = { 0 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(gd_tokenize(t, text, strlen(text), &tokens), GD_OK);
    gd_token_data *data = gd_token_data_create(*state, tokens.count, tokens.ids);
    gd_loader *l = random_pieces(*state, data, 2, 24);
    gd_function *train = gd_compile(*state, step, &tuned);
    double first = 0.0, last = 0.0;
    for (int i = 0; i < 16; i++) {
        gd_batch b;
        assert_true(gd_loader_next(l, &b));
        double loss = gd_item(gd_call(train, b.count, b.tensors));
        if (i < 4)
            first += loss / 4;
        if (i >= 12)
            last += loss / 4;
    }
    assert_true(last < 0.7 * first);
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
}

static void broken_checkpoints_are_errors(void **state)
{
    size_t size;
    char *file = shared_text(STORIES, &size);
    const char *path = temporary("broken.bin");
    const size_t cuts[] = { 0, 3, 27, 28, 1000, size - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        FILE *f = fopen(path, "wb");
        fwrite(file, 1, cuts[i], f);
        fclose(f);
        assert_null(gd_language_model_load(*state, path));
        expect_error(GD_ERR_FORMAT, path);
    }
    static const unsigned char wrong[] = { 0, 1, 0x7f, 0xff };
    for (size_t at = 0; at < 28; at++) /* every byte of the header */
        for (size_t i = 0; i < sizeof wrong; i++) {
            FILE *f = fopen(path, "wb");
            char kept = file[at];
            file[at] = (char)wrong[i];
            fwrite(file, 1, 64, f);
            file[at] = kept;
            fclose(f);
            assert_null(gd_language_model_load(*state, path));
            expect_error(GD_ERR_FORMAT, path);
        }
    remove(path);
    assert_null(gd_language_model_load(*state, path));
    expect_error(GD_ERR_IO, path);
    free(file);
}

/* ---- GPT-2 ---- */

/* Element i of the golden's tensor number t. */
static float golden_value(uint32_t t, uint32_t i, bool around_one)
{
    uint32_t h = (t * 1000003u + i) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    double value = ((double)((h ^ h >> 13) % 4001u) - 2000.0) / 4000.0;
    return (float)(around_one ? value + 1.0 : value);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static gd_shape golden_shape(const char *name)
{
    const int64_t c = GPT2_WIDTH;
    if (strcmp(name, "wte.weight") == 0)
        return GD_SHAPE(GPT2_VOCABULARY, c);
    if (strcmp(name, "wpe.weight") == 0)
        return GD_SHAPE(GPT2_LENGTH, c);
    int64_t in = ends_with(name, "mlp.c_proj.weight") ? 4 * c : c;
    int64_t out = strstr(name, "c_attn") ? 3 * c : strstr(name, "c_fc") ? 4 * c : c;
    bool matrix = strstr(name, ".c_") && ends_with(name, "weight");
    return matrix ? GD_SHAPE(in, out) : GD_SHAPE(out);
}

/* The golden's weights in a file, as they are published: without "transformer.", with a mask and a
 * copy of the tied output that are not wanted. `missing`: leave that one out. */
static const char *golden_file(gd_context *gd, int missing)
{
    gd_named_tensor list[GPT2_TENSORS + 2];
    int64_t count = 0;
    for (int t = 0; t < GPT2_TENSORS; t++) {
        gd_shape shape = golden_shape(gpt2_names[t]);
        int64_t n = shape.dim[0] * (shape.rank == 2 ? shape.dim[1] : 1);
        bool around_one = shape.rank == 1 && ends_with(gpt2_names[t], "weight");
        float *numbers = malloc((size_t)n * sizeof *numbers);
        for (int64_t i = 0; i < n; i++)
            numbers[i] = golden_value((uint32_t)t, (uint32_t)i, around_one);
        gd_tensor *values = gd_from_host(gd, shape, GD_F32, numbers);
        free(numbers);
        if (t != missing)
            list[count++] = (gd_named_tensor){ gpt2_names[t], values };
    }
    list[count++] =
        (gd_named_tensor){ "lm_head.weight", gd_ones(gd, golden_shape("wte.weight"), GD_F32) };
    list[count++] = (gd_named_tensor){ "h.0.attn.bias", gd_ones(gd, GD_SHAPE(1, 1, 8, 8), GD_F32) };
    static const gd_metadata says[] = {
        { "gradus.decoder", "0" }, { "gradus.vocabulary", "11" }, { "gradus.length", "8" },
        { "gradus.layers", "2" },  { "gradus.heads", "2" },       { "gradus.kv_heads", "2" },
        { "gradus.width", "12" },  { "gradus.hidden", "48" },     { "gradus.untied", "0" },
    };
    const char *path = temporary("gpt2.safetensors");
    assert_int_equal(
        gd_tensors_save(path, count, list, (int64_t)(sizeof says / sizeof *says), says), GD_OK);
    return path;
}

/* What the module calls a published tensor. */
static const char *own_name(const char *published)
{
    static const char *const names[][2] = {
        { "wte.", "token." },
        { "wpe.", "position." },
        { "ln_f.", "norm." },
        { "ln_1.", "norm1." },
        { "ln_2.", "norm2." },
        { "attn.c_attn.", "self.qkv." },
        { "attn.c_proj.", "self.out." },
        { "mlp.c_fc.", "ff.up." },
        { "mlp.c_proj.", "ff.down." },
    };
    static char own[96];
    int layer = -1, used = 0;
    if (sscanf(published, "h.%d.%n", &layer, &used) == 1)
        published += used;
    int at = layer >= 0 ? snprintf(own, sizeof own, "%d.", layer) : 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(published, names[i][0], strlen(names[i][0])) == 0)
            snprintf(own + at, sizeof own - (size_t)at, "%s%s", names[i][1],
                     published + strlen(names[i][0]));
    return own;
}

static void gpt2_equals_pytorch(void **state)
{
    need_json();
    const char *path = golden_file(*state, -1);
    gd_language_model *m = gd_language_model_load(*state, path);
    remove(path);
    assert_non_null(m);
    gd_module *module = gd_language_model_module(m);
    assert_int_equal(gd_module_count(module), GPT2_TENSORS);
    gd_tensor *x = indices(*state, 2, 5, gpt2_x), *y = indices(*state, 2, 5, gpt2_y);
    float logits[2 * 5 * GPT2_VOCABULARY];
    assert_int_equal(gd_tensor_read(gd_language_model_forward(m, x), logits, sizeof logits), GD_OK);
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
        assert_true(fabs(logits[i] - gpt2_logits[i]) < 1e-5);
    gd_tensor *loss = gd_language_model_loss(m, x, y);
    assert_true(fabs(gd_item(loss) - gpt2_loss) < 1e-6);
    assert_int_equal(gd_backward(loss), GD_OK);
    for (int t = 0; t < GPT2_TENSORS; t++) {
        gd_tensor *g = gd_gradient(gd_module_parameter(module, own_name(gpt2_names[t])));
        int64_t n = gd_tensor_count(g);
        float *values = malloc((size_t)n * sizeof *values);
        assert_int_equal(gd_tensor_read(g, values, (size_t)n * sizeof *values), GD_OK);
        double squares = 0.0, weighted = 0.0;
        for (int64_t i = 0; i < n; i++) {
            squares += (double)values[i] * values[i];
            weighted += (double)(i + 1) * values[i];
        }
        double size = sqrt(gpt2_gradients[t][0]);
        assert_true(fabs(sqrt(squares) - size) < 1e-5 * size + 1e-7);
        assert_true(fabs(weighted - gpt2_gradients[t][1]) < 1e-5 * size * (double)n + 1e-6);
        free(values);
    }
}

static void incomplete_files_are_errors(void **state)
{
    need_json();
    const char *path = golden_file(*state, 5);
    assert_null(gd_language_model_load(*state, path));
    expect_error(GD_ERR_FORMAT, "lacks \"transformer.h.0.attn.c_attn.bias\"");
    gd_named_tensor other = { "w", gd_ones(*state, GD_SHAPE(2, 2), GD_F32) };
    assert_int_equal(gd_tensors_save(path, 1, &other, 0, NULL), GD_OK);
    assert_null(gd_language_model_load(*state, path));
    expect_error(GD_ERR_FORMAT, "nor a GPT-2");
    remove(path);
}

/* A file of a few KB whose metadata promises gigabytes is refused by what it holds: nothing is made
 * for what it lacks. And nothing in it is left over. */
static void metadata_is_held_against_the_tensors(void **state)
{
    need_json();
    static const struct {
        const char *key, *value, *words;
    } lies[] = { { "gradus.layers", "16777216", "lacks \"2.norm1.weight\"" },
                 { "gradus.layers", "1", "has a \"1." },
                 { "gradus.vocabulary", "16777216", "\"token.weight\" is not [16777216, 8]" },
                 { "gradus.width", "16777216", "\"token.weight\" is not [4, 16777216]" },
                 { "gradus.hidden", "16777216", "\"0.ff.gate.weight\" is not [8, 16777216]" },
                 { "gradus.untied", "1", "lacks \"head.weight\"" },
                 { "gradus.untied", "0", "has a \"more\"" } };
    const char *path = temporary("lies.safetensors");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        gd_metadata says[] = {
            { "gradus.decoder", "1" }, { "gradus.vocabulary", "4" }, { "gradus.length", "6" },
            { "gradus.layers", "2" },  { "gradus.heads", "2" },      { "gradus.kv_heads", "2" },
            { "gradus.width", "8" },   { "gradus.hidden", "12" },    { "gradus.untied", "0" },
        };
        gd_language_model *m = gd_language_model_create(
            *state, .decoder = GD_DECODER_LLAMA, .vocabulary = 4, .max_length = 6, .layers = 2,
            .heads = 2, .width = 8, .hidden = 12);
        gd_module *module = gd_language_model_module(m);
        gd_named_tensor list[32];
        int64_t count = 0;
        for (; count < gd_module_count(module); count++)
            list[count] = (gd_named_tensor){ gd_module_path(module, (int)count),
                                             gd_module_tensor(module, (int)count) };
        if (strstr(lies[i].words, "more"))
            list[count++] = (gd_named_tensor){ "more", gd_ones(*state, GD_SHAPE(2), GD_F32) };
        for (size_t k = 0; k < sizeof says / sizeof *says; k++)
            if (strcmp(says[k].key, lies[i].key) == 0)
                says[k].value = lies[i].value;
        assert_int_equal(
            gd_tensors_save(path, count, list, (int64_t)(sizeof says / sizeof *says), says), GD_OK);
        gd_context *small_context = gd_open(test_device(), .memory_limit = 1 << 20);
        assert_null(gd_language_model_load(small_context, path));
        expect_error(GD_ERR_FORMAT, lies[i].words);
        gd_close(small_context);
        gd_language_model_release(m);
    }
    remove(path);
}

/* Without a word of ours in the file, sizes come from the shapes. */
static void published_files_tell_their_sizes(void **state)
{
    need_json();
    gd_language_model *m = gd_language_model_create(*state, .vocabulary = 7, .max_length = 5,
                                                    .layers = 3, .heads = 2, .width = 128);
    const char *path = temporary("published.safetensors");
    const gd_metadata own[] = { { "characters", "ab\n\"c" } };
    assert_int_equal(gd_language_model_save(m, path, 1, own), GD_OK);
    gd_tensor_file *file = gd_tensor_file_open(path);
    assert_string_equal(gd_tensor_file_metadata(file, "characters"), "ab\n\"c");
    gd_named_tensor list[64];
    int64_t count = gd_tensor_file_count(file);
    gd_tensor_info none;
    assert_int_equal(gd_tensor_file_info(file, -1, &none), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no tensor number -1");
    assert_null(gd_tensor_file_read(file, *state, count));
    expect_error(GD_ERR_INVALID, "there is no tensor number");
    assert_int_equal(gd_tensors_save(path, -1, list, 0, NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "-1 tensors");
    assert_true(count == gd_module_count(gd_language_model_module(m)) && count < 64);
    for (int64_t i = 0; i < count; i++) {
        gd_tensor_info info;
        assert_int_equal(gd_tensor_file_info(file, i, &info), GD_OK);
        assert_memory_equal(info.name, "transformer.", 12);
        list[i] = (gd_named_tensor){ info.name + 12, gd_tensor_file_read(file, *state, i) };
    }
    assert_true(gd_tensor_file_find(file, "transformer.h.2.mlp.c_proj.bias") >= 0);
    assert_int_equal(gd_tensors_save(path, count, list, 0, NULL), GD_OK);
    gd_tensor_file_close(file);
    gd_language_model *n = gd_language_model_load(*state, path);
    remove(path);
    assert_non_null(n);
    gd_language_options o = *gd_language_model_options(n);
    assert_true(o.decoder == GD_DECODER_GPT2 && o.vocabulary == 7 && o.max_length == 5 &&
                o.layers == 3 && o.heads == 2 && o.width == 128 && o.hidden == 512);
    gd_tensor *x = indices(*state, 1, 4, (int64_t[]){ 6, 0, 3, 3 });
    assert_same_bits(gd_language_model_forward(m, x), gd_language_model_forward(n, x));
}

static void saved_models_open_again(void **state)
{
    need_json();
    const char *path = temporary("saved.safetensors");
    for (int kind = 0; kind < 3; kind++) {
        gd_language_model *m = gd_language_model_create(
            *state, .decoder = kind == 0 ? GD_DECODER_GPT2 : GD_DECODER_LLAMA, .vocabulary = 9,
            .max_length = 6, .layers = 2, .heads = 4, .kv_heads = kind == 0 ? -1 : 2, .width = 24,
            .hidden = 20, .tied = kind != 2, .seed = 3);
        assert_non_null(m);
        assert_int_equal(gd_language_model_save(m, path, 0, NULL), GD_OK);
        gd_language_model *n = gd_language_model_load(*state, path);
        assert_non_null(n);
        assert_int_equal(gd_language_model_options(n)->kv_heads, kind == 0 ? 4 : 2);
        gd_tensor *x = indices(*state, 1, 6, (int64_t[]){ 6, 0, 3, 3, 8, 1 });
        assert_same_bits(gd_language_model_forward(m, x), gd_language_model_forward(n, x));
    }
    remove(path);
}

/* Vocabulary and positions, and for each layer two norms, four dense layers: Radford et al. 2019.
 */
static void gpt2_has_as_many_parameters_as_published(void **state)
{
    const int64_t v = 50, t = 20, c = 24, l = 3;
    gd_language_model *m = gd_language_model_create(*state, .vocabulary = v, .max_length = t,
                                                    .layers = l, .heads = 2, .width = c);
    int64_t expected = v * c + t * c + l * (12 * c * c + 13 * c) + 2 * c;
    assert_int_equal(gd_module_parameter_count(gd_language_model_module(m)), expected);
    struct {
        int64_t vocabulary, max_length, layers, heads, width;
    } small = { GD_GPT2_124M };
    assert_int_equal(small.vocabulary * small.width + small.max_length * small.width +
                         small.layers * (12 * small.width * small.width + 13 * small.width) +
                         2 * small.width,
                     124439808);
}

/* ---- training ---- */

/* 30 steps on a sequence that repeats; losses into out. */
static gd_language_model *train_30(gd_context *gd, gd_decoder decoder, gd_mode mode, int threads,
                                   float out[30])
{
    int32_t tokens[64];
    for (int i = 0; i < 64; i++)
        tokens[i] = i * i % 7;
    assert_int_equal(gd_context_set_threads(gd, threads), GD_OK);
    assert_int_equal(gd_seed(gd, 4), GD_OK);
    trainee t = { .model = gd_language_model_create(gd, .decoder = decoder, .vocabulary = 7,
                                                    .max_length = 12, .layers = 2, .heads = 4,
                                                    .width = 32, .dropout = 0.1, .seed = 2) };
    t.optimizer = gd_adamw(gd_language_model_module(t.model), .lr = 0.01);
    gd_token_data *data = gd_token_data_create(gd, 64, tokens);
    gd_loader *l = random_pieces(gd, data, 3, 12);
    gd_function *f = gd_compile(gd, step, &t, .mode = mode);
    for (int i = 0; i < 30; i++) {
        gd_batch b;
        assert_true(gd_loader_next(l, &b));
        gd_tensor *loss = gd_call(f, b.count, b.tensors);
        assert_non_null(loss);
        out[i] = (float)gd_item(loss);
    }
    return t.model;
}

static void training_is_the_same_in_every_mode(void **state)
{
    for (int decoder = 0; decoder < 2; decoder++) {
        float losses[3][30];
        gd_language_model *m[3];
        m[0] = train_30(*state, (gd_decoder)decoder, GD_MODE_EAGER, 1, losses[0]);
        m[1] = train_30(*state, (gd_decoder)decoder, GD_MODE_COMPILED, 1, losses[1]);
        m[2] = train_30(*state, (gd_decoder)decoder, GD_MODE_COMPILED, 2, losses[2]);
        assert_true(losses[0][0] > 1.8f && losses[0][29] < 0.7f * losses[0][0]);
        for (int i = 1; i < 3; i++) {
            assert_memory_equal(losses[0], losses[i], sizeof losses[0]);
            gd_module *a = gd_language_model_module(m[0]), *b = gd_language_model_module(m[i]);
            for (int k = 0; k < gd_module_count(a); k++)
                assert_same_bits(gd_module_tensor(a, k), gd_module_tensor(b, k));
        }
    }
}

/* ---- generation ---- */

static gd_language_model *small(gd_context *gd)
{
    gd_language_model *m = gd_language_model_create(gd, .vocabulary = 256, .max_length = 8,
                                                    .layers = 1, .heads = 1, .width = 8, .seed = 5);
    assert_non_null(m);
    return m;
}

static void generation_ends_with_the_models_length(void **state)
{
    gd_generator *g = gd_generator_create(small(*state));
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_sampler *s = gd_sampler_create(.temperature = 1, .seed = 2);
    listener heard = { 0 };
    assert_int_equal(gd_generate(g, t, s, .prompt = "abc", .callback = listen, .user = &heard), 6);
    assert_int_equal(heard.size, 6);
    assert_int_equal(gd_generator_length(g), 8);
    assert_null(gd_generator_feed(g, 1, (int32_t[]){ 1 }));
    expect_error(GD_ERR_SHAPE, "1 tokens after 8 are more than the model's 8");
    gd_generator_reset(g); /* but for a limit beyond it */
    assert_int_equal(gd_generate(g, t, s, .prompt = NULL, .max_tokens = 30), 30);
    gd_sampler_release(s);
    gd_tokenizer_release(t);
}

/* A model whose choices depend on all of its tokens: one fresh from its initial weights mostly
 * repeats the last. */
static gd_language_model *lively(gd_context *gd)
{
    gd_language_model *m = gd_language_model_create(gd, .decoder = GD_DECODER_LLAMA,
                                                    .vocabulary = 256, .max_length = 8, .layers = 1,
                                                    .heads = 1, .width = 8, .tied = false);
    assert_non_null(m);
    gd_module *module = gd_language_model_module(m);
    for (int i = 0; i < gd_module_count(module); i++) {
        gd_tensor *t = gd_module_tensor(module, i);
        int64_t count = gd_tensor_count(t);
        float *values = malloc((size_t)count * sizeof *values);
        for (int64_t k = 0; k < count; k++)
            values[k] = golden_value((uint32_t)i, (uint32_t)k, false) * 4.0f;
        assert_int_equal(gd_tensor_write(t, values, (size_t)count * sizeof *values), GD_OK);
        free(values);
    }
    return m;
}

/* The most likely token after some, all fed at once. */
static int32_t likeliest_after(gd_language_model *m, const int32_t *tokens, int64_t count)
{
    gd_generator *g = gd_generator_create(m);
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    const float *logits = gd_generator_feed(g, count, tokens);
    assert_non_null(logits);
    int32_t token = gd_sample(greedy, 256, logits, 0, NULL);
    gd_sampler_release(greedy);
    gd_generator_release(g);
    return token;
}

/* Beyond the model's length a sequence is begun anew with its last half, however many calls it has
 * grown over. */
static void a_text_is_continued_past_the_length(void **state)
{
    enum { LENGTH = 8, AGAIN = 4, CALLS = 4 };
    static const struct {
        const char *prompt;
        int tokens;
    } calls[CALLS] = { { "abc", 4 }, { "d", 10 }, { "e", 1 }, { "f", 12 } };
    gd_language_model *m = lively(*state);
    gd_generator *g = gd_generator_create(m);
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_sampler *greedy = gd_sampler_create(.temperature = 0);
    int32_t expected[LENGTH];
    size_t count = 0; /* of the tokens that the generator has */
    for (int call = 0; call < CALLS; call++) {
        listener heard = { 0 };
        const char *prompt = calls[call].prompt;
        if (count + strlen(prompt) > LENGTH) { /* a prompt must fit; only what follows moves on */
            assert_int_equal(gd_generate(g, t, greedy, .prompt = prompt, .max_tokens = 1), -1);
            expect_error(GD_ERR_SHAPE, "more than the model's 8");
            gd_generator_reset(g);
            count = 0;
        }
        assert_int_equal(gd_generate(g, t, greedy, .prompt = prompt,
                                     .max_tokens = calls[call].tokens, .callback = listen,
                                     .user = &heard),
                         calls[call].tokens);
        for (; *prompt; prompt++)
            expected[count++] = (unsigned char)*prompt;
        for (int i = 0; i < calls[call].tokens; i++) {
            int32_t token = likeliest_after(m, expected, (int64_t)count);
            assert_int_equal((unsigned char)heard.text[i], token);
            if (i + 1 == calls[call].tokens)
                break; /* the last one is not fed */
            if (count == LENGTH) {
                memmove(expected, expected + LENGTH - (AGAIN - 1), (AGAIN - 1) * sizeof *expected);
                count = AGAIN - 1;
            }
            expected[count++] = token;
        }
        assert_int_equal(gd_generator_length(g), count);
    }
    gd_sampler_release(greedy);
    gd_tokenizer_release(t);
}

/* The largest difference of logits behind the same tokens, fed in two parts. */
static double distance(const float *a, gd_generator *g, const int32_t *tokens, int64_t count,
                       int64_t at_first)
{
    double most = 0;
    if (at_first > 0)
        assert_non_null(gd_generator_feed(g, at_first, tokens));
    const float *b = gd_generator_feed(g, count - at_first, tokens + at_first);
    assert_non_null(b);
    for (int i = 0; i < 256; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* Rounding to bf16 is an error of 2^-8 of a number at most. */
static void autocast_gives_logits_in_f32(void **state)
{
    static const int32_t tokens[] = { 'a', 'q', 3, 200, 'z', 'b', 9 };
    gd_generator *g = gd_generator_create(lively(*state));
    float exact[256];
    memcpy(exact, gd_generator_feed(g, 7, tokens), sizeof exact);
    double size = 0;
    for (int i = 0; i < 256; i++)
        size = fmax(size, fabs((double)exact[i]));
    gd_generator_reset(g);
    assert_int_equal(gd_autocast_begin(*state, GD_BF16), GD_OK);
    const double off = distance(exact, g, tokens, 7, 0);
    assert_int_equal(gd_autocast_end(*state), GD_OK);
    assert_true(off > 0 && off < size / 16);
}

/* Rounding to f16 is an error of 2^-11 of a number at most. */
static void keys_and_values_may_be_f16(void **state)
{
    static const int32_t tokens[] = { 'a', 'q', 3, 200, 'z', 'b', 9 };
    gd_language_model *m = lively(*state);
    gd_generator *plain = gd_generator_create(m), *g = gd_generator_create(m);
    float exact[256], half[256];
    const float *logits = gd_generator_feed(plain, 7, tokens);
    assert_non_null(logits);
    memcpy(exact, logits, sizeof exact);
    double size = 0;
    for (int i = 0; i < 256; i++)
        size = fmax(size, fabs((double)exact[i]));
    assert_int_equal(gd_generator_set_cache_dtype(g, GD_F16), GD_OK);
    const double off = distance(exact, g, tokens, 7, 0);
    assert_true(off > 0 && off < size / 256);
    gd_generator_reset(g);
    memcpy(half, gd_generator_feed(g, 7, tokens), sizeof half);
    for (int at_first = 0; at_first < 7; at_first++) {
        gd_generator_reset(g);
        assert_true(distance(half, g, tokens, 7, at_first) <= size * 1e-5);
    }
    assert_int_equal(gd_generator_set_cache_dtype(g, GD_F32), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, "has had tokens already");
    g = gd_generator_create(m);
    assert_int_equal(gd_generator_set_cache_dtype(g, GD_I32), GD_ERR_DTYPE);
    expect_error(GD_ERR_DTYPE, "i32; i8, or a dtype of floats, is needed");
    assert_int_equal(gd_generator_set_cache_dtype(NULL, GD_F16), GD_OK);
}

/* 127 steps of a row's largest number: an error of half of one at most. */
static void keys_and_values_may_be_8_bits(void **state)
{
    static const int32_t tokens[] = { 'a', 'q', 3, 200, 'z', 'b', 9 };
    gd_language_model *m = lively(*state);
    gd_generator *plain = gd_generator_create(m), *g = gd_generator_create(m);
    float exact[256], eight[256], last[256];
    memcpy(exact, gd_generator_feed(plain, 7, tokens), sizeof exact);
    double size = 0;
    for (int i = 0; i < 256; i++)
        size = fmax(size, fabs((double)exact[i]));
    assert_int_equal(gd_generator_set_cache_dtype(g, GD_I8), GD_OK);
    const double off = distance(exact, g, tokens, 7, 0);
    assert_true(off > size / 4096 && off < size / 32);
    gd_generator_reset(g);
    memcpy(eight, gd_generator_feed(g, 7, tokens), sizeof eight);
    for (int at_first = 0; at_first < 7; at_first++) {
        gd_generator_reset(g);
        assert_true(distance(eight, g, tokens, 7, at_first) <= size * 1e-5);
    }
    /* the number of threads changes no bit */
    for (int threads = 1; threads <= 4; threads += 3) {
        assert_int_equal(gd_context_set_threads(*state, threads), GD_OK);
        gd_generator_reset(g);
        assert_memory_equal(gd_generator_feed(g, 7, tokens), eight, sizeof eight);
    }
    /* the logits behind all tokens: the last are those behind the last */
    gd_generator_reset(g);
    const float *all = gd_generator_feed_all(g, 7, tokens);
    assert_memory_equal(all + 6 * 256, eight, sizeof eight);
    memcpy(last, all + 2 * 256, sizeof last);
    gd_generator_reset(g);
    assert_true(distance(last, g, tokens, 3, 0) <= size * 1e-5);
}

/* The loss of a text is that of its sequences, of 8 tokens here, whatever the generator had before. */
static void the_loss_of_a_text_is_that_of_its_sequences(void **state)
{
    enum { COUNT = 20, LENGTH = 8 };
    gd_language_model *m = small(*state);
    int32_t tokens[COUNT];
    int64_t wide[COUNT];
    for (int i = 0; i < COUNT; i++)
        wide[i] = tokens[i] = (i * 37 + 11) % 256;
    double expected = 0.0, loss = 0.0;
    for (int64_t at = 0; at < COUNT - 1; at += LENGTH) {
        const int64_t some = COUNT - 1 - at < LENGTH ? COUNT - 1 - at : LENGTH;
        gd_tensor *of = gd_language_model_loss(m, indices(*state, 1, some, wide + at),
                                               indices(*state, 1, some, wide + at + 1));
        expected += gd_item(of) * (double)some / (COUNT - 1);
    }
    gd_generator *g = gd_generator_create(m);
    assert_non_null(gd_generator_feed(g, 3, tokens));
    assert_int_equal(gd_generator_loss(g, COUNT, tokens, &loss), GD_OK);
    assert_true(fabs(loss - expected) < 1e-5 * expected);
    assert_int_equal(gd_generator_length(g), 0);
    assert_int_equal(gd_generator_loss(g, 1, tokens, &loss), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "1 tokens: two at least are needed");
    tokens[COUNT - 1] = 256;
    assert_int_equal(gd_generator_loss(g, COUNT, tokens, &loss), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "token 256; the model has 256");
    assert_int_equal(gd_generator_loss(NULL, COUNT, tokens, &loss), GD_ERR_INVALID);
    gd_error_clear();
}

static void wrong_use_is_an_error(void **state)
{
    gd_context *gd = *state;
    assert_null(gd_language_model_create(gd, .vocabulary = 9, .max_length = 4, .layers = 1,
                                         .heads = 3, .width = 8));
    expect_error(GD_ERR_INVALID, "3 heads");
    assert_null(gd_language_model_create(gd, .vocabulary = 9, .max_length = 4, .layers = 0,
                                         .heads = 2, .width = 8));
    expect_error(GD_ERR_INVALID, "0 layers");
    assert_null(gd_language_model_create(gd, .vocabulary = 9, .max_length = 4, .layers = 1,
                                         .heads = 2, .width = 8, .dropout = 1));
    expect_error(GD_ERR_INVALID, "dropout is 1");
    gd_language_model *m = small(gd);
    assert_null(gd_language_model_forward(m, indices(gd, 1, 9, (int64_t[9]){ 0 })));
    expect_error(GD_ERR_SHAPE, "length 8");
    gd_generator *g = gd_generator_create(m);
    assert_null(gd_generator_feed(g, 2, (int32_t[]){ 3, 256 }));
    expect_error(GD_ERR_INVALID, "token 256; the model has 256");
    assert_null(gd_generator_feed(g, 0, NULL));
    expect_error(GD_ERR_INVALID, "no tokens");
    assert_true(gd_generate(g, NULL, NULL) == -1);
    expect_error(GD_ERR_INVALID, "tokeniser is NULL");
    assert_null(gd_generator_create(NULL));
    assert_null(gd_language_model_load(gd, NULL));
    expect_error(GD_ERR_INVALID, "path is NULL");
}

/* Every allocation that fails is an error; afterwards the generator works. */
static void running_out_of_memory_is_an_error(void **state)
{
    gd_language_model *m = small(*state);
    gd_tokenizer *t = gd_tokenizer_bytes();
    gd_sampler *s = gd_sampler_create(.temperature = 0);
    for (int64_t n = 0;; n += test_allocation_step()) {
        gd_fail_allocations_after(n);
        gd_generator *g = gd_generator_create(m);
        int64_t made = g ? gd_generate(g, t, s, .prompt = "ab", .max_tokens = 2) : -1;
        gd_fail_allocations_after(-1);
        if (made == 2)
            break;
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_error_clear();
        assert_int_equal(gd_generator_length(g), 0);
        if (g)
            assert_int_equal(gd_generate(g, t, s, .prompt = "ab", .max_tokens = 2), 2);
        gd_generator_release(g);
        assert_true(n < 5000);
    }
    gd_sampler_release(s);
    gd_tokenizer_release(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_summary_has_all_layers),
        TEST(stories260k_talks_word_for_word),
        TEST(a_cache_gives_what_whole_sequences_give),
        TEST(stories260k_is_fine_tuned),
        TEST(broken_checkpoints_are_errors),
        TEST(gpt2_equals_pytorch),
        TEST(incomplete_files_are_errors),
        TEST(metadata_is_held_against_the_tensors),
        TEST(published_files_tell_their_sizes),
        TEST(saved_models_open_again),
        TEST(gpt2_has_as_many_parameters_as_published),
        TEST(training_is_the_same_in_every_mode),
        TEST(generation_ends_with_the_models_length),
        TEST(a_text_is_continued_past_the_length),
        TEST(autocast_gives_logits_in_f32),
        TEST(keys_and_values_may_be_f16),
        TEST(keys_and_values_may_be_8_bits),
        TEST(the_loss_of_a_text_is_that_of_its_sequences),
        TEST(wrong_use_is_an_error),
        TEST(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
