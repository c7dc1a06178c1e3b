/* guide_6.c: the program of docs/guide/6-attention.md: attention on a few numbers, positions, and
 * the memory it takes. Run it with `make guide_6`; every number in the chapter is one it prints. */
#include <gradus/gradus.h>

#include <stdio.h>

enum { HEADS = 8, WIDTH = 64 };

static void show(const char *name, const gd_tensor *t)
{
    char text[1000];
    gd_tensor_format(t, text, sizeof text);
    printf("%s\n%s\n", name, text);
}

static double largest_difference(gd_tensor *a, gd_tensor *b)
{
    return gd_item(gd_max(gd_abs(gd_sub(a, b)), GD_ALL_AXES, false));
}

/* One query among three keys, of which it is most like the second. */
static void look_up(gd_context *gd)
{
    gd_tensor *q = gd_from_host(gd, GD_SHAPE(1, 2), GD_F32, (float[]){ 0, 4 });
    gd_tensor *k = gd_from_host(gd, GD_SHAPE(3, 2), GD_F32, (float[]){ 1, 0, 0, 1, -1, 0 });
    gd_tensor *v = gd_from_host(gd, GD_SHAPE(3, 1), GD_F32, (float[]){ 10, 20, 40 });
    gd_tensor *scores = gd_div_scalar(gd_matmul(q, gd_transpose(k, 0, 1)), 1.4142135623730951);
    gd_tensor *shares = gd_softmax(scores, -1);
    printf("== dictionary\n");
    show("shares", shares);
    show("found", gd_matmul(shares, v));
}

/* Values that are the identity make the shares themselves the result. */
static void look_back(gd_context *gd)
{
    gd_tensor *x = gd_uniform(gd, GD_SHAPE(1, 4, 8), -2, 2, GD_F32);
    gd_tensor *identity = gd_reshape(gd_eye(gd, 4, GD_F32), GD_SHAPE(1, 4, 4));
    gd_tensor *shares = gd_attention(x, x, identity, .causal = true);
    gd_tensor *rows = gd_reshape(shares, GD_SHAPE(4, 4));
    printf("== causal\n");
    show("causal shares", gd_div_scalar(gd_round(gd_mul_scalar(rows, 100)), 100));
}

/* Keys and values in another order, the same for both: the result stays. */
static void order(gd_context *gd)
{
    gd_tensor *q = gd_uniform(gd, GD_SHAPE(1, 5, 8), -1, 1, GD_F64);
    gd_tensor *k = gd_uniform(gd, GD_SHAPE(1, 5, 8), -1, 1, GD_F64);
    gd_tensor *v = gd_uniform(gd, GD_SHAPE(1, 5, 8), -1, 1, GD_F64);
    gd_tensor *mixed = gd_attention(q, gd_flip(k, GD_AXES(1)), gd_flip(v, GD_AXES(1)));
    double without = largest_difference(gd_attention(q, k, v), mixed);
    printf("== order\nkeys and values reversed: the result %s\n",
           without < 1e-14 ? "stays" : "changes");
    double with = largest_difference(
        gd_attention(gd_rope(q), gd_rope(k), v),
        gd_attention(gd_rope(q), gd_rope(gd_flip(k, GD_AXES(1))), gd_flip(v, GD_AXES(1))));
    printf("with rotated queries and keys: the result %s\n", with < 1e-14 ? "stays" : "changes");
}

/* The product of a query at position t and a key at position s, both rotated. */
static double rotated_product(gd_tensor *q, gd_tensor *k, int64_t t, int64_t s)
{
    gd_tensor *product = gd_mul(gd_rope(q, .start = t), gd_rope(k, .start = s));
    return gd_item(gd_sum(product, GD_ALL_AXES, false));
}

static void distance(gd_context *gd)
{
    gd_tensor *q = gd_uniform(gd, GD_SHAPE(1, 8), -1, 1, GD_F64);
    gd_tensor *k = gd_uniform(gd, GD_SHAPE(1, 8), -1, 1, GD_F64);
    printf("== distance\nq at 5, k at 3: %.6f;  q at 105, k at 103: %.6f;  q at 5, k at 2: %.6f\n",
           rotated_product(q, k, 5, 3), rotated_product(q, k, 105, 103),
           rotated_product(q, k, 5, 2));
}

/* ---- memory ---- */

/* Attention of 8 heads and its three gradients. */
static gd_tensor *forward_backward(void *plain, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *r = gd_attention(in[0], in[1], in[2], .plain = plain != NULL), *gradient[3];
    if (gd_grad(1, &r, NULL, 3, in, gradient) != GD_OK)
        return NULL;
    return gd_add(gd_add(gradient[0], gradient[1]), gradient[2]);
}

/* A training step of a small language model. */
static gd_tensor *training_step(void *model, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *loss = gd_language_model_loss(model, in[0], in[1]);
    return gd_backward(loss) == GD_OK ? loss : NULL;
}

/* MiB of the plan, which is made but not run. */
static double plan_size(gd_context *gd, gd_function_body body, void *user, int count,
                        gd_tensor *const *in)
{
    gd_function *f = gd_compile(gd, body, user);
    gd_function_prepare(f, count, in);
    double size = (double)gd_function_stats(f).arena_bytes / (1 << 20);
    gd_function_release(f);
    return size;
}

static double attention_size(gd_context *gd, int64_t time, bool plain)
{
    gd_tensor *in[3];
    for (int i = 0; i < 3; i++)
        in[i] = gd_set_requires_grad(gd_zeros(gd, GD_SHAPE(HEADS, time, WIDTH), GD_F32), true);
    return plan_size(gd, forward_backward, plain ? gd : NULL, 3, in);
}

static double model_size(gd_context *gd, int64_t time, bool checkpoint)
{
    gd_language_model *m =
        gd_language_model_create(gd, .vocabulary = 65, .max_length = time, .layers = 4, .heads = 4,
                                 .width = 128, .checkpoint = checkpoint);
    gd_tensor *tokens = gd_zeros(gd, GD_SHAPE(1, time), GD_I64);
    double size = plan_size(gd, training_step, m, 2, (gd_tensor *[]){ tokens, tokens });
    gd_language_model_release(m);
    return size;
}

static void memory(gd_context *gd)
{
    printf("== memory\nMiB      attention         model of 4 layers\n");
    printf("length   plain   in blocks   kept   checkpointed\n");
    for (int64_t time = 128; time <= 512; time *= 2) {
        gd_scope_begin(gd);
        printf("%6lld   %5.1f   %9.1f   %4.1f   %12.1f\n", (long long)time,
               attention_size(gd, time, true), attention_size(gd, time, false),
               model_size(gd, time, false), model_size(gd, time, true));
        gd_scope_end(gd);
    }
}

int main(void)
{
    gd_context *gd = gd_open("cpu", .seed = 1);
    look_up(gd);
    look_back(gd);
    order(gd);
    distance(gd);
    memory(gd);
    if (gd_error_code())
        fprintf(stderr, "guide_6: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
