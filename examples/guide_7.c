/* guide_7.c: the program of docs/guide/7-a-language-model.md: text becomes numbers, a very small
 * GPT learns from it, and writes. Run it with `make guide_7`, from the top of the source; every
 * number in the chapter is one it prints. */
#include <gradus/gradus.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 32, BATCH = 16, STEPS = 300 };

/* The plays are packed; the shell unpacks them. */
static char *read_text(size_t *size)
{
    FILE *f = popen("gzip -dc data/tinyshakespeare/input.txt.gz", "r");
    char *text = malloc(1 << 21);
    *size = f && text ? fread(text, 1, 1 << 21, f) : 0;
    if (f)
        pclose(f);
    return text;
}

/* What GPT-2 makes of a sentence. */
static void cut(void)
{
    FILE *f = popen("gzip -dc data/gpt2-bpe/vocab.bpe.gz", "r");
    static char merges[1 << 20];
    size_t size = f ? fread(merges, 1, sizeof merges, f) : 0;
    if (f)
        pclose(f);
    gd_tokenizer *t = gd_tokenizer_bpe(merges, size);
    gd_tokens tokens = { 0 };
    gd_tokenize(t, "This is some text", 17, &tokens);
    printf("== pieces\n");
    for (int64_t i = 0; i < tokens.count; i++) {
        size_t length = 0;
        const char *piece = gd_token_text(t, i ? tokens.ids[i - 1] : -1, tokens.ids[i], &length);
        printf("%d \"%.*s\"\n", (int)tokens.ids[i], (int)length, piece);
    }
    printf("of %lld tokens\n", (long long)gd_tokenizer_count(t));
    gd_tokens_free(&tokens);
    gd_tokenizer_release(t);
}

/* What a guesser without a network loses: one who knows nothing, one who knows how frequent each
 * character is, one who knows how frequent each pair is. */
static void baselines(const gd_tokens *text, size_t kinds)
{
    double *single = calloc(kinds, sizeof *single), *pair = calloc(kinds * kinds, sizeof *pair);
    double one = 0.0, two = 0.0, n = (double)text->count;
    for (int64_t i = 0; single && pair && i < text->count; i++) {
        single[text->ids[i]]++;
        if (i)
            pair[(size_t)text->ids[i - 1] * kinds + (size_t)text->ids[i]]++;
    }
    for (size_t i = 0; single && i < kinds; i++)
        one -= single[i] / n * log(single[i] / n);
    for (size_t i = 0; single && pair && i < kinds * kinds; i++)
        if (pair[i] > 0)
            two -= pair[i] / n * log(pair[i] / single[i / kinds]);
    printf("losses: nothing known %.2f, each character's frequency %.2f, each pair's %.2f\n",
           log((double)kinds), one, two);
    free(single);
    free(pair);
}

typedef struct trainee {
    gd_language_model *model;
    gd_optimizer *optimizer;
} trainee;

/* Forward, backward and update: in[0] characters [batch, length], in[1] those that come next. */
static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    return gd_minimize(t->optimizer, gd_language_model_loss(t->model, in[0], in[1]));
}

static void learn(gd_context *gd, gd_language_model *model, const gd_token_data *data)
{
    gd_dataset *pieces = gd_token_dataset(gd, data, .length = LENGTH, .stride = 1);
    gd_loader *batches = gd_loader_create(pieces, .batch = BATCH, .seed = 1,
                                          .with_replacement = true, .batches_per_epoch = INT64_MAX);
    trainee t = { model, gd_adamw(gd_language_model_module(model), .lr = 1e-2) };
    gd_function *train = gd_compile(gd, train_step, &t);
    double sum = 0.0;
    for (int step = 1; step <= STEPS && !gd_error_code(); step++) {
        gd_batch b;
        gd_loader_next(batches, &b);
        sum += gd_item(gd_call(train, b.count, b.tensors));
        if (step % 50 == 0) {
            printf("steps to %3d  mean loss %.3f\n", step, sum / 50);
            sum = 0.0;
        }
    }
    gd_function_release(train);
    gd_loader_release(batches);
}

static gd_status print_text(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    (void)user, (void)token;
    *stop = fwrite(text, 1, size, stdout) != size;
    return GD_OK;
}

static void write_some(gd_language_model *model, const gd_tokenizer *tokenizer, double temperature)
{
    gd_generator *g = gd_generator_create(model);
    gd_sampler *s = gd_sampler_create(.temperature = temperature, .seed = 1);
    printf("--- temperature %g\n", temperature);
    gd_generate(g, tokenizer, s, .prompt = "\n", .max_tokens = 120, .callback = print_text);
    printf("\n");
    gd_sampler_release(s);
    gd_generator_release(g);
}

/* The logits behind a sequence, fed whole and token by token with a cache. */
static void compare_cache(gd_context *gd, gd_language_model *model)
{
    const int32_t text[] = { 18, 47, 56, 57, 58, 1, 15, 47 };
    int64_t wide[8];
    for (int i = 0; i < 8; i++)
        wide[i] = text[i];
    gd_tensor *tokens = gd_from_host(gd, GD_SHAPE(1, 8), GD_I64, wide);
    gd_tensor *whole = gd_select(gd_select(gd_language_model_forward(model, tokens), 0, 0), 0, -1);
    gd_generator *g = gd_generator_create(model);
    const float *cached = NULL;
    for (int i = 0; i < 8; i++)
        cached = gd_generator_feed(g, 1, &text[i]);
    double most = 0.0;
    for (int i = 0; cached && i < 65; i++)
        most = fmax(most, fabs(gd_item(gd_select(whole, 0, i)) - (double)cached[i]));
    printf("== cache\nwith a cache and without: logits differ by %s 1e-4\n",
           most < 1e-4 ? "less than" : "over");
    gd_generator_release(g);
}

int main(void)
{
    size_t size;
    char *text = read_text(&size);
    gd_context *gd = gd_open("cpu", .seed = 1);
    gd_tokenizer *tokenizer = gd_tokenizer_characters(text, size);
    gd_tokens tokens = { 0 };
    cut();
    if (gd_tokenize(tokenizer, text, size, &tokens) == GD_OK) {
        size_t kinds = (size_t)gd_tokenizer_count(tokenizer);
        printf("== text\n%lld characters, %zu different ones\n", (long long)tokens.count, kinds);
        baselines(&tokens, kinds);
        gd_language_model *model = gd_language_model_create(
            gd, .decoder = GD_DECODER_LLAMA, .vocabulary = (int64_t)kinds, .max_length = LENGTH,
            .layers = 2, .heads = 4, .width = 32, .hidden = 88, .seed = 1);
        printf("== training\n%lld parameters\n",
               (long long)gd_module_parameter_count(gd_language_model_module(model)));
        learn(gd, model, gd_token_data_create(gd, tokens.count, tokens.ids));
        printf("== writing\n");
        write_some(model, tokenizer, 0.0);
        write_some(model, tokenizer, 0.5);
        write_some(model, tokenizer, 2.0);
        compare_cache(gd, model);
    }
    if (gd_error_code())
        fprintf(stderr, "guide_7: %s\n", gd_error_message());
    gd_tokens_free(&tokens);
    gd_tokenizer_release(tokenizer);
    gd_close(gd);
    free(text);
    return gd_error_code() != GD_OK;
}
