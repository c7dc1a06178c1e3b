/* text_rnn.c: an LSTM and a GRU learn to write like Shakespeare, a character at a time (Karpathy,
 * "The unreasonable effectiveness of recurrent neural networks", 2015).
 *
 * usage: text_rnn [text file] [steps]
 *
 * The file is data/tinyshakespeare/input.txt.gz, unpacked, by default. Each network embeds the character,
 * runs two recurrent layers, and predicts the next character. After training it writes a little,
 * handing its state from character to character. Run it with `make text_rnn`.
 */
#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 128, LAYERS = 2, BATCH = 32, LENGTH = 64, WRITTEN = 300 };

typedef struct trainee {
    gd_module *model;
    gd_optimizer *optimizer;
    int64_t vocabulary;
    bool gru;
} trainee;

typedef struct memory {
    gd_tensor *h, *c; // [layers, batch, width]; NULL at the start
} memory;

/* tokens [batch, t] -> logits [batch, t, vocabulary] */
static gd_tensor *network(const trainee *t, gd_tensor *tokens, memory *before, memory *after)
{
    gd_tensor *table = gd_parameter(t->model, "embedding", GD_SHAPE(t->vocabulary, WIDTH),
                                    .init = GD_INIT_GLOROT_NORMAL);
    gd_tensor *x = gd_embedding(tokens, table), *y;
    if (t->gru)
        y = gd_nn_gru(t->model, "gru", x, WIDTH, .layers = LAYERS, .first_hidden = before->h,
                      .last_hidden = &after->h);
    else
        y = gd_nn_lstm(t->model, "lstm", x, WIDTH, .layers = LAYERS, .first_hidden = before->h,
                       .first_cell = before->c, .last_hidden = &after->h, .last_cell = &after->c);
    return gd_nn_linear(t->model, "head", y, t->vocabulary);
}

static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    memory none = { NULL, NULL }, after;
    gd_tensor *logits = network(t, in[0], &none, &after);
    gd_tensor *loss = gd_cross_entropy(gd_reshape(logits, GD_SHAPE(-1, t->vocabulary)),
                                       gd_reshape(in[1], GD_SHAPE(-1)));
    return gd_minimize(t->optimizer, loss);
}

/* Some text, one character after the other. */
static void write_text(gd_context *gd, const trainee *t, const gd_tokenizer *characters)
{
    gd_sampler *sampler = gd_sampler_create(.temperature = 0.8, .seed = 1);
    memory state = { NULL, NULL };
    float logits[512];
    int64_t token = 0;
    gd_no_grad_begin(gd);
    for (int i = 0; i < WRITTEN && t->vocabulary <= 512 && !gd_error_code(); i++) {
        memory next = { NULL, NULL };
        gd_scope_begin(gd);
        gd_tensor *in = gd_from_host(gd, GD_SHAPE(1, 1), GD_I64, &token);
        gd_tensor *y = network(t, in, &state, &next);
        (void)gd_tensor_read(y, logits, (size_t)t->vocabulary * sizeof *logits);
        gd_release(state.h);
        gd_release(state.c);
        state = (memory){ gd_retain(next.h), gd_retain(next.c) };
        gd_scope_end(gd);
        token = gd_sample(sampler, t->vocabulary, logits, 0, NULL);
        size_t size;
        const char *text = token >= 0 ? gd_token_text(characters, -1, (int32_t)token, &size) : NULL;
        if (text)
            fwrite(text, 1, size, stdout);
    }
    printf("\n\n");
    gd_release(state.h);
    gd_release(state.c);
    gd_no_grad_end(gd);
    gd_sampler_release(sampler);
}

static void run(gd_context *gd, const gd_tokenizer *characters, const gd_token_data *data, bool gru,
                int steps)
{
    trainee t = { .model = gd_module_create(gd, .seed = 1),
                  .vocabulary = gd_tokenizer_count(characters),
                  .gru = gru };
    t.optimizer = gd_adam(t.model, .lr = 3e-3f);
    gd_function *train = gd_compile(gd, train_step, &t);
    gd_dataset *pieces = gd_token_dataset(gd, data, .length = LENGTH, .stride = 1);
    gd_loader *batches = gd_loader_create(pieces, .batch = BATCH, .seed = 1,
                                          .with_replacement = true, .batches_per_epoch = INT64_MAX);
    double begin = gd_seconds();
    gd_batch b;
    for (int step = 1; step <= steps && gd_loader_next(batches, &b); step++) {
        gd_tensor *loss = gd_call(train, 2, b.tensors);
        if (!loss)
            break;
        if (step == 1 || step % 100 == 0)
            printf("%s  step %4d  loss %.3f  %5.1f s\n", gru ? "GRU " : "LSTM", step, gd_item(loss),
                   gd_seconds() - begin);
        fflush(stdout);
    }
    gd_loader_release(batches);
    gd_dataset_release(pieces);
    gd_function_release(train);
    write_text(gd, &t, characters);
}

/* The file's text; NULL: Tiny Shakespeare, which is packed, and the shell unpacks it. */
static char *read_text(const char *path, size_t *size)
{
    FILE *file =
        path ? fopen(path, "rb") : popen("gzip -dc data/tinyshakespeare/input.txt.gz", "r");
    char *text = file ? malloc(1 << 26) : NULL; /* 64 MiB are text enough */
    *size = text ? fread(text, 1, 1 << 26, file) : 0;
    if (file && path)
        fclose(file);
    else if (file)
        pclose(file);
    return text;
}

int main(int count, char **arguments)
{
    const char *path = count > 1 ? arguments[1] : NULL;
    int steps = count > 2 ? atoi(arguments[2]) : 500;
    size_t size;
    char *text = read_text(path, &size);
    if (size == 0) {
        fprintf(stderr, "text_rnn: no text in %s\n",
                path ? path : "data/tinyshakespeare/input.txt.gz");
        free(text);
        return 1;
    }
    gd_context *gd = gd_open("cpu");
    gd_tokenizer *characters = gd_tokenizer_characters(text, size);
    gd_tokens tokens = { 0 };
    if (characters && gd_tokenize(characters, text, size, &tokens) == GD_OK) {
        gd_token_data *data = gd_token_data_create(gd, tokens.count, tokens.ids);
        for (int gru = 0; gru < 2 && !gd_error_code(); gru++)
            run(gd, characters, data, gru, steps);
    }
    bool failed = gd_error_code() != GD_OK;
    if (failed)
        fprintf(stderr, "%s\n", gd_error_message());
    gd_tokens_free(&tokens);
    gd_close(gd);
    gd_tokenizer_release(characters);
    free(text);
    return failed;
}
