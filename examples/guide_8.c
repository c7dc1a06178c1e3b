/* guide_8.c: the program of docs/guide/8-the-compiler.md: one small training step, and what each
 * pass of the compiler makes of it. Run it with `make guide_8`; every number in the chapter is one
 * it prints. */
#include <gradus/gradus.h>

#include <stdio.h>
#include <string.h>

enum { BATCH = 8, INPUTS = 4, CLASSES = 3 };

/* in[0] x [batch, inputs], in[1] classes [batch] -> loss [] */
static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_module *m = gd_optimizer_module(user);
    gd_tensor *hidden = gd_relu(gd_nn_linear(m, "hidden", in[0], 5));
    return gd_minimize(user, gd_cross_entropy(gd_nn_linear(m, "out", hidden, CLASSES), in[1]));
}

/* in[0] x -> exp(x) + sqrt(2) exp(x), written without care. */
static gd_tensor *clumsy(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = gd_mul_scalar(in[0], 1.0);
    gd_tensor *root = gd_sqrt(gd_scalar(gd_tensor_context(x), 2.0, GD_F32));
    (void)gd_sin(x);
    gd_tensor *scaled = gd_mul(gd_exp(x), root);
    return gd_add(gd_exp(x), scaled);
}

/* A body planned with the passes that `passes` leaves on; nothing is run. */
static gd_function *plan(gd_context *gd, gd_function_body body, void *user, const char *passes,
                         gd_tensor *const *in)
{
    gd_function *f = gd_compile(gd, body, user, .passes = passes);
    gd_function_prepare(f, 2, in);
    return f;
}

static gd_optimizer *optimizer(gd_context *gd)
{
    return gd_sgd(gd_module_create(gd, .seed = 1), .lr = 0.1);
}

static void show_plan(const gd_function *f)
{
    char text[20000];
    gd_plan_format(f, text, sizeof text);
    printf("%s", text);
}

/* Passes added one after another, in the order in which they run. */
static void add_passes(gd_context *gd, gd_tensor *const *in)
{
    const char *passes[] = { "simplify",  "cse",      "join_attention", "dead",
                             "fold",      "epilogue", "sink",           "fuse",
                             "recompute", "forward",  "schedule",       "multi_tensor" };
    char list[400] = "-all";
    printf("== passes\npasses           ops  kernels  bytes\n");
    for (size_t i = 0; i <= sizeof passes / sizeof *passes; i++) {
        gd_plan_stats s = gd_function_stats(plan(gd, step, optimizer(gd), list, in));
        printf("%-15s  %3d  %7d  %5zu\n", i ? passes[i - 1] : "none", s.nodes_planned, s.kernels,
               s.arena_bytes);
        if (i < sizeof passes / sizeof *passes)
            snprintf(list + strlen(list), sizeof list - strlen(list), ",+%s", passes[i]);
    }
}

/* Losses of ten steps, exactly. */
static void run(gd_context *gd, gd_mode mode, int count, gd_tensor *const *in, double *losses)
{
    gd_function *f = gd_compile(gd, step, optimizer(gd), .mode = mode);
    for (int i = 0; i < 10; i++)
        losses[i] = gd_item(gd_call(f, count, in));
}

int main(void)
{
    gd_context *gd = gd_open("cpu", .seed = 1);
    gd_tensor *in[2] = { gd_uniform(gd, GD_SHAPE(BATCH, INPUTS), -1, 1, GD_F32),
                         gd_from_host(gd, GD_SHAPE(BATCH), GD_I64,
                                      (int64_t[]){ 0, 1, 2, 0, 1, 2, 0, 1 }) };
    printf("== clumsy, without passes\n");
    show_plan(plan(gd, clumsy, NULL, "-all", in));
    printf("== clumsy, with all passes\n");
    show_plan(plan(gd, clumsy, NULL, "", in));
    printf("== without passes\n");
    show_plan(plan(gd, step, optimizer(gd), "-all", in));
    add_passes(gd, in);
    printf("== with all passes\n");
    show_plan(plan(gd, step, optimizer(gd), "", in));

    double eager[10], compiled[10];
    run(gd, GD_MODE_EAGER, 2, in, eager);
    run(gd, GD_MODE_COMPILED, 2, in, compiled);
    printf("== bits\nlosses after ten steps: eager %.9g, compiled %.9g, %s\n", eager[9],
           compiled[9],
           memcmp(eager, compiled, sizeof eager) == 0 ? "the same bits in all ten" : "not equal");
    if (gd_error_code())
        fprintf(stderr, "guide_8: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
