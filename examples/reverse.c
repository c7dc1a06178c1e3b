/* reverse.c: an encoder-decoder Transformer (Vaswani et al. 2017) learns to write sequences
 * backwards.
 *
 * The source is ten random letters; the target is the same letters from last to first. Nothing
 * tells the network so but examples. It trains until it reverses 500 new sequences without a
 * mistake, token by token, each chosen from what it has written so far. Run it with `make reverse`.
 */
#include <gradus/gradus.h>

#include <stdio.h>
#include <string.h>

enum { LETTERS = 16, START = LETTERS, VOCABULARY, LENGTH = 10, BATCH = 64, TESTED = 500 };

static const gd_transformer_config config = { GD_TRANSFORMER_CONFIG_DEFAULTS,
                                              .width = 32,
                                              .heads = 4,
                                              .hidden = 64,
                                              .layers = 2,
                                              .vocabulary = VOCABULARY,
                                              .max_length = LENGTH,
                                              .pre_norm = true };

typedef struct trainee {
    gd_module *model;
    gd_optimizer *optimizer;
} trainee;

/* source [batch, s], target [batch, t], which begins with START -> logits [batch, t, VOCABULARY] */
static gd_tensor *network(gd_module *m, gd_tensor *source, gd_tensor *target)
{
    gd_tensor *x = gd_nn_token_embedding(m, "source", source, &config);
    gd_tensor *y = gd_nn_token_embedding(m, "target", target, &config);
    return gd_nn_linear(m, "head", gd_nn_transformer(m, "transformer", x, y, &config), VOCABULARY);
}

/* in: source, target shifted by one, target */
static gd_tensor *train_step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    trainee *t = user;
    gd_tensor *logits = network(t->model, in[0], in[1]);
    gd_tensor *loss = gd_cross_entropy(gd_reshape(logits, GD_SHAPE(-1, VOCABULARY)),
                                       gd_reshape(in[2], GD_SHAPE(-1)));
    return gd_minimize(t->optimizer, loss);
}

static int64_t random_letter(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % LETTERS);
}

static void make_batch(gd_context *gd, int64_t count, gd_tensor *in[3])
{
    static int64_t source[TESTED][LENGTH], shifted[TESTED][LENGTH], target[TESTED][LENGTH];
    for (int64_t i = 0; i < count; i++) {
        for (int j = 0; j < LENGTH; j++)
            source[i][j] = random_letter();
        for (int j = 0; j < LENGTH; j++) {
            target[i][j] = source[i][LENGTH - 1 - j];
            shifted[i][j] = j == 0 ? START : target[i][j - 1];
        }
    }
    in[0] = gd_from_host(gd, GD_SHAPE(count, LENGTH), GD_I64, source);
    in[1] = gd_from_host(gd, GD_SHAPE(count, LENGTH), GD_I64, shifted);
    in[2] = gd_from_host(gd, GD_SHAPE(count, LENGTH), GD_I64, target);
}

/* Share of sequences written without a mistake, each token after those the network chose before. */
static double test(gd_context *gd, gd_module *m, bool show)
{
    static int64_t written[TESTED][LENGTH + 1], source[TESTED][LENGTH], target[TESTED][LENGTH];
    gd_tensor *in[3];
    gd_scope_begin(gd);
    gd_no_grad_begin(gd);
    gd_module_set_training(m, false);
    make_batch(gd, TESTED, in);
    (void)gd_tensor_read(in[0], source, sizeof source);
    (void)gd_tensor_read(in[2], target, sizeof target);
    for (int i = 0; i < TESTED; i++)
        written[i][0] = START;
    for (int64_t t = 0; t < LENGTH; t++) {
        gd_scope_begin(gd);
        gd_tensor *all = gd_from_host(gd, GD_SHAPE(TESTED, LENGTH + 1), GD_I64, written);
        gd_tensor *logits = network(m, in[0], gd_slice(all, 1, 0, t + 1, 1));
        int64_t next[TESTED] = { 0 };
        (void)gd_tensor_read(gd_argmax(gd_select(logits, 1, -1), 1, false), next, sizeof next);
        for (int i = 0; i < TESTED; i++)
            written[i][t + 1] = next[i];
        gd_scope_end(gd);
    }
    int right = 0;
    for (int i = 0; i < TESTED; i++)
        right += memcmp(written[i] + 1, target[i], sizeof target[i]) == 0;
    for (int i = 0; show && i < 3; i++) {
        printf("  ");
        for (int j = 0; j < LENGTH; j++)
            putchar('a' + (int)source[i][j]);
        printf(" -> ");
        for (int j = 1; j <= LENGTH; j++)
            putchar(written[i][j] < LETTERS ? 'a' + (int)written[i][j] : '?');
        printf("\n");
    }
    gd_module_set_training(m, true);
    gd_no_grad_end(gd);
    gd_scope_end(gd);
    return (double)right / TESTED;
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_module *model = gd_module_create(gd, .seed = 1);
    trainee t = { model, gd_adam(model, .lr = 2e-3f) };
    gd_function *train = gd_compile(gd, train_step, &t);
    double right = 0;
    for (int step = 1; step <= 4000 && right < 1 && !gd_error_code(); step++) {
        gd_tensor *in[3];
        gd_scope_begin(gd);
        make_batch(gd, BATCH, in);
        gd_tensor *loss = gd_call(train, 3, in);
        if (loss && step % 200 == 0) {
            printf("step %4d  loss %.4f", step, gd_item(loss));
            right = test(gd, model, false);
            printf("  reversed %.1f %%\n", 100 * right);
            fflush(stdout);
        }
        gd_scope_end(gd);
    }
    if (!gd_error_code())
        (void)test(gd, model, true);
    bool failed = gd_error_code() != GD_OK;
    if (failed)
        fprintf(stderr, "%s\n", gd_error_message());
    gd_close(gd);
    return failed || right < 1;
}
