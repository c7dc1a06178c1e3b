/* examples/char_gpt.c: a GPT learns to write like a text, character by character.
 *
 *     make char_gpt                            a small one: two and a half minutes on two cores
 *     make char_gpt ARGS="--full"              6 layers, 6 heads, 384 wide, context 256
 *     make char_gpt ARGS="book.txt"            on a text of yours
 *
 * It is built as GPTs are today, with rotary positions, RMSNorm and SwiGLU; "--gpt2" builds it as
 * in 2019, with learned positions, LayerNorm and GELU, which takes half as many steps again to the
 * same loss. "--bf16" computes products and attention in bf16; weights stay f32.
 *
 * Any plain text will do; where none is named it is Tiny Shakespeare, 1.1 MB (karpathy/char-rnn on
 * GitHub, here data/tinyshakespeare/input.txt.gz). The last tenth is kept apart for validation. The
 * result goes to char_gpt.safetensors, for
 *
 *     gradus generate char_gpt.safetensors --tokenizer characters:input.txt --prompt "ROMEO:"
 */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    gd_decoder decoder;
    int64_t layers, heads, width, hidden, length, batch, steps;
    double lr, dropout;
    bool bf16;
} setting;

/* SwiGLU has three matrices where GELU has two: 8/3 of the width make as many weights as 4 there.
 */
static const setting small = { .decoder = GD_DECODER_LLAMA,
                               .layers = 4,
                               .heads = 4,
                               .width = 128,
                               .hidden = 344,
                               .length = 128,
                               .batch = 12,
                               .steps = 2000,
                               .lr = 3e-3 };
static const setting full = { .decoder = GD_DECODER_LLAMA,
                              .layers = 6,
                              .heads = 6,
                              .width = 384,
                              .hidden = 1024,
                              .length = 256,
                              .batch = 8,
                              .steps = 3000,
                              .lr = 1e-3,
                              .dropout = 0.1 };

typedef struct {
    gd_context *context;
    gd_language_model *model;
    gd_optimizer *optimizer;
    bool bf16;
} trainee;

/* in[0]: characters [batch, length], in[1]: those that come next. */
static gd_tensor *loss_of(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    if (t->bf16)
        gd_autocast_begin(t->context, GD_BF16);
    gd_tensor *loss = gd_language_model_loss(t->model, in[0], in[1]);
    if (t->bf16)
        gd_autocast_end(t->context);
    return loss;
}

/* Forward, backward and update. */
static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    trainee *t = user;
    return gd_minimize(t->optimizer, loss_of(user, count, in));
}

/* Mean loss over the first `most` batches of a loader, all of them when there are fewer. Compiled
 * code keeps what a module was when it was traced, so dropout is off here and on in training. */
static double validate(gd_function *f, trainee *t, gd_loader *data, int most)
{
    gd_module *module = gd_language_model_module(t->model);
    double sum = 0.0;
    int count = 0;
    gd_module_set_training(module, false);
    gd_loader_seek(data, 0);
    for (gd_batch b; count < most && gd_loader_next(data, &b); count++)
        sum += gd_item(gd_call(f, b.count, b.tensors));
    gd_module_set_training(module, true);
    return sum / count;
}

static gd_status print_text(void *user, int32_t token, const char *text, size_t size, bool *stop)
{
    (void)user;
    (void)token;
    *stop = fwrite(text, 1, size, stdout) != size;
    return GD_OK;
}

static void show_sample(gd_language_model *model, const gd_tokenizer *tokenizer, int64_t tokens)
{
    gd_generator *g = gd_generator_create(model);
    gd_sampler *s = gd_sampler_create(.temperature = 0.8, .top_k = 40, .seed = 1);
    printf("---\n");
    gd_generate(g, tokenizer, s, .prompt = "\n", .max_tokens = tokens, .callback = print_text);
    printf("\n---\n");
    gd_sampler_release(s);
    gd_generator_release(g);
}

/* The file's text; NULL: Tiny Shakespeare, which is packed, and the shell unpacks it. */
static char *read_text(const char *path, size_t *size)
{
    FILE *f = path ? fopen(path, "rb") : popen("gzip -dc data/tinyshakespeare/input.txt.gz", "r");
    char *text = f ? malloc(1 << 26) : NULL; /* 64 MiB are text enough */
    *size = text ? fread(text, 1, 1 << 26, f) : 0;
    if (f && path)
        fclose(f);
    else if (f)
        pclose(f);
    return text;
}

/* The text as tokens: the first nine tenths to train on, the rest to judge by. */
static bool learn(gd_context *gd, const setting *s, const gd_tokenizer *tokenizer,
                  const gd_tokens *tokens)
{
    gd_token_data *data = gd_token_data_create(gd, tokens->count, tokens->ids);
    int64_t all = gd_token_data_count(data), train_count = all / 10 * 9;
    gd_dataset *pieces =
        gd_token_dataset(gd, data, .length = s->length, .stride = 1, .count = train_count);
    gd_dataset *rest = gd_token_dataset(gd, data, .length = s->length, .first = train_count);
    gd_loader *batches = gd_loader_create(pieces, .batch = s->batch, .seed = 1,
                                          .with_replacement = true, .batches_per_epoch = INT64_MAX);
    gd_loader *unseen = gd_loader_create(rest, .batch = s->batch, .drop_last = true);
    trainee t = { .context = gd,
                  .bf16 = s->bf16,
                  .model = gd_language_model_create(
                      gd, .decoder = s->decoder, .vocabulary = gd_tokenizer_count(tokenizer),
                      .max_length = s->length, .layers = s->layers, .heads = s->heads,
                      .width = s->width, .hidden = s->hidden, .dropout = s->dropout, .seed = 1) };
    gd_module *module = gd_language_model_module(t.model);
    t.optimizer = gd_adamw(module, .lr = s->lr, .beta2 = 0.999, .weight_decay = 0.1);
    gd_optimizer_clip_norm(t.optimizer, 1.0);
    gd_function *train = gd_compile(gd, train_step, &t),
                *judge = gd_compile(gd, loss_of, &t, .detached = true);
    printf("%lld characters, %lld different ones; %lld parameters; %lld steps of %lld x %lld\n",
           (long long)all, (long long)gd_tokenizer_count(tokenizer),
           (long long)gd_module_parameter_count(module), (long long)s->steps, (long long)s->batch,
           (long long)s->length);

    const gd_schedule rate = {
        GD_SCHEDULE_DEFAULTS, .kind = GD_SCHEDULE_COSINE,
        .lr = s->lr,          .lr_end = s->lr / 10.0,
        .steps = s->steps,    .warmup = s->steps < 1000 ? s->steps / 10 : 100
    };
    double start = gd_seconds(), loss = 0.0;
    for (int64_t step = 0; step < s->steps && !gd_error_code(); step++) {
        gd_batch b;
        gd_optimizer_set_lr(t.optimizer, gd_schedule_at(&rate, step));
        gd_loader_next(batches, &b);
        double now = gd_item(gd_call(train, b.count, b.tensors));
        loss = step == 0 ? now : 0.98 * loss + 0.02 * now;
        bool last = step + 1 == s->steps;
        if ((step + 1) % 250 == 0 || last) {
            printf("step %5lld  training loss %.3f  validation loss %.4f  %.0f s\n",
                   (long long)step + 1, loss, validate(judge, &t, unseen, last ? 1 << 20 : 20),
                   gd_seconds() - start);
            fflush(stdout);
        }
        if ((step + 1) % 1000 == 0 || last)
            gd_language_model_save(t.model, "char_gpt.safetensors", 0, NULL);
    }
    if (!gd_error_code())
        show_sample(t.model, tokenizer, 500);
    return !gd_error_code();
}

/* A whole number from 1 on, of which the word is no more than that. */
static bool read_count(const char *word, int64_t *count)
{
    char *end;
    *count = strtoll(word, &end, 10);
    return end != word && *end == '\0' && *count >= 1;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    setting s = small;
    bool gpt2 = false, bf16 = false, ok = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0)
            s = full;
        else if (strcmp(argv[i], "--gpt2") == 0)
            gpt2 = true;
        else if (strcmp(argv[i], "--bf16") == 0)
            bf16 = true;
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            ok &= read_count(argv[++i], &s.steps);
        else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc)
            ok &= read_count(argv[++i], &s.batch);
        else if (argv[i][0] == '-' || path)
            ok = false;
        else
            path = argv[i];
    }
    if (gpt2) {
        s.decoder = GD_DECODER_GPT2;
        s.hidden = 4 * s.width;
    }
    s.bf16 = bf16;
    if (!ok) {
        fprintf(stderr,
                "usage: char_gpt [TEXT] [--full] [--gpt2] [--bf16] [--steps N] [--batch N]\n");
        return 2;
    }
    size_t size;
    char *text = read_text(path, &size);
    if (size == 0) {
        fprintf(stderr, "char_gpt: no text in %s\n",
                path ? path : "data/tinyshakespeare/input.txt.gz");
        free(text);
        return 2;
    }
    gd_context *gd = gd_open("cpu");
    gd_tokenizer *tokenizer = gd_tokenizer_characters(text, size);
    gd_tokens tokens = { 0 };
    bool done =
        gd_tokenize(tokenizer, text, size, &tokens) == GD_OK && learn(gd, &s, tokenizer, &tokens);
    if (!done)
        fprintf(stderr, "char_gpt: %s\n", gd_error_message());
    gd_tokens_free(&tokens);
    gd_tokenizer_release(tokenizer);
    gd_close(gd);
    free(text);
    return !done;
}
