/* guide_9.c: the program of docs/guide/9-debugging.md: mistakes made on purpose, and what finds
 * them. Run it with `make guide_9`; every number in the chapter is one it prints. */
#include <gradus/gradus.h>

#include <stdio.h>

/* The pending error's kind and sentence; none is pending afterwards. */
static void show_error(void)
{
    printf("%s: %s\n", gd_status_name(gd_error_code()), gd_error_message());
    gd_error_clear();
}

/* ---- sentences ---- */

static void mistakes(gd_context *gd)
{
    printf("== shapes\n");
    gd_tensor *x = gd_ones(gd, GD_SHAPE(32, 784), GD_F32);
    gd_tensor *w = gd_ones(gd, GD_SHAPE(16, 784), GD_F32);
    gd_tensor *b = gd_ones(gd, GD_SHAPE(17), GD_F32);
    gd_tensor *y = gd_relu(gd_add(gd_matmul(x, w), b));
    printf("y is %s\n", y ? "a tensor" : "NULL");
    (void)gd_reshape(x, GD_SHAPE(5, 5));
    show_error();

    printf("== overwritten\n");
    gd_tensor *leaf = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(3), GD_F32), true);
    gd_tensor *sum = gd_sum(gd_square(leaf), GD_ALL_AXES, false);
    gd_tensor_write(leaf, (float[]){ 2, 2, 2 }, 3 * sizeof(float));
    if (gd_backward(sum) != GD_OK)
        show_error();
}

/* ---- NaN ---- */

static bool is_finite(gd_tensor *t)
{
    return gd_item(gd_all(gd_isfinite(t), GD_ALL_AXES, false)) != 0.0;
}

/* The first tensor behind t, in the order of computing, that has an element which is not finite. */
static gd_tensor *first_strange(gd_tensor *t)
{
    gd_tensor *node[64];
    int64_t count = gd_graph_order(t, node, 64);
    for (int64_t i = 0; i < count && i < 64; i++)
        if (!is_finite(node[i]))
            return node[i];
    return NULL;
}

static void show(const char *name, const gd_tensor *t)
{
    char text[200];
    gd_tensor_format(t, text, sizeof text);
    printf("%s\n%s\n", name, text);
}

static void not_a_number(gd_context *gd)
{
    gd_tensor *logits = gd_from_host(gd, GD_SHAPE(2, 3), GD_F32, (float[]){ 2, 1, 0, 900, 0, 1 });
    gd_tensor *target = gd_from_host(gd, GD_SHAPE(2, 3), GD_F32, (float[]){ 1, 0, 0, 1, 0, 0 });
    gd_set_name(gd_set_requires_grad(logits, true), "logits");
    gd_set_name(target, "target");
    gd_tensor *log_p = gd_log(gd_softmax(logits, -1));
    gd_tensor *loss = gd_neg(gd_sum(gd_mul(target, log_p), GD_ALL_AXES, false));
    printf("== nan\n");
    show("loss", loss);
    gd_tensor *strange = first_strange(loss);
    printf("the first that is not finite is made by %s\n", gd_tensor_op(strange));
    show("it is", strange);
    show("its operand is", gd_tensor_input(strange, 0));
    printf("== graph\n");
    char text[1000];
    gd_graph_format(loss, text, sizeof text);
    printf("%s", text);
    printf("== finite\n");
    show("loss", gd_neg(gd_sum(gd_mul(target, gd_log_softmax(logits, -1)), GD_ALL_AXES, false)));
}

/* ---- gradients ---- */

/* x^2, of which one factor is detached by mistake. */
static gd_tensor *half_a_square(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(in[0], gd_detach(in[0]));
}

static gd_tensor *square(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(in[0], in[0]);
}

static void gradients(gd_context *gd)
{
    printf("== gradients\n");
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(3), GD_F64, (double[]){ 1, 2, 3 });
    gd_set_requires_grad(x, true);
    if (gd_check_gradients(half_a_square, NULL, 1, &x, 1e-6, NULL) != GD_OK)
        show_error();
    if (gd_check_gradients(square, NULL, 1, &x, 1e-6, NULL) == GD_OK)
        printf("the gradient of square is right\n");
}

/* ---- memory that grows ---- */

static void grow(gd_context *gd, bool scopes)
{
    gd_tensor *x = gd_ones(gd, GD_SHAPE(1000), GD_F32);
    for (int round = 0; round < 2; round++) {
        if (scopes)
            gd_scope_begin(gd);
        (void)gd_sum(gd_exp(gd_neg(x)), GD_ALL_AXES, false);
        if (scopes)
            gd_scope_end(gd);
        printf("round %d: %lld tensors alive\n", round, (long long)gd_memory(gd).live_tensors);
    }
}

static void memory(gd_context *gd)
{
    printf("== growing\n");
    gd_scope_begin(gd);
    grow(gd, false);
    char text[2000];
    gd_memory_report(gd, text, sizeof text);
    printf("%s", text);
    gd_scope_end(gd);
    printf("== steady\n");
    gd_scope_begin(gd);
    grow(gd, true);
    gd_scope_end(gd);
}

/* ---- compiled functions ---- */

/* |x|, by a branch in plain C on a value. */
static gd_tensor *branch(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_item(in[0]) < 0.0 ? gd_neg(in[0]) : in[0];
}

static void compiled(gd_context *gd)
{
    printf("== branch\n");
    gd_tensor *x = gd_scalar(gd, -3.0, GD_F32);
    if (!gd_call(gd_compile(gd, branch, NULL), 1, &x))
        show_error();
    gd_function *eager = gd_compile(gd, branch, NULL, .mode = GD_MODE_EAGER);
    printf("eager: %g\n", gd_item(gd_call(eager, 1, &x)));
}

/* ---- where the work is ---- */

static gd_tensor *network(void *module, int count, gd_tensor *const *in)
{
    (void)count;
    gd_tensor *hidden = gd_tanh(gd_nn_linear(module, "hidden", in[0], 256));
    return gd_softmax(gd_nn_linear(module, "out", hidden, 10), -1);
}

static void profile(gd_context *gd)
{
    printf("== profile\n");
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(64, 784), GD_F32);
    gd_function *f = gd_compile(gd, network, m, .detached = true);
    gd_kernel_profile rows[16];
    int count = gd_function_profile(f, 1, &x, 3, 16, rows);
    for (int i = 0; i < count; i++)
        printf("%-8s %-14s %9.0f FLOP %8.0f bytes, %s\n", rows[i].op, rows[i].what, rows[i].flops,
               rows[i].bytes, rows[i].seconds > 0 ? "timed" : "not timed");
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    void (*const stage[])(gd_context *) = { mistakes, not_a_number, gradients,
                                            memory,   compiled,     profile };
    for (size_t i = 0; i < sizeof stage / sizeof *stage; i++) {
        gd_scope_begin(gd);
        stage[i](gd);
        gd_scope_end(gd);
    }
    if (gd_error_code())
        fprintf(stderr, "guide_9: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
