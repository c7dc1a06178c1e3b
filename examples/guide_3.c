/* guide_3.c: the program of docs/guide/3-a-tensor.md: strides, views, broadcasting, and what is
 * alive. Run it with `make guide_3`; every number in the chapter is one it prints. */
#include <gradus/gradus.h>

#include <stdio.h>

static void print_shape(gd_shape s)
{
    printf(" [");
    for (int i = 0; i < s.rank; i++)
        printf("%s%lld", i ? ", " : "", (long long)s.dim[i]);
    printf("]");
}

/* Shape, strides, offset from `base`'s first element, and what is seen. */
static void show(const char *name, gd_tensor *t, gd_tensor *base)
{
    char text[200];
    gd_tensor_format(t, text, sizeof text);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    printf("%-9s shape", name);
    print_shape(gd_tensor_shape(t));
    printf("  strides");
    print_shape(gd_tensor_strides(t));
    long offset = (long)((float *)gd_tensor_data(t) - (float *)gd_tensor_data(base));
    printf("  offset %ld  %s\n", offset, text);
}

static void views(gd_context *gd)
{
    gd_tensor *x = gd_reshape(gd_arange(gd, 1, 7, 1, GD_F32), GD_SHAPE(2, 3));
    printf("== views\n");
    show("x", x, x);
    show("transpose", gd_transpose(x, 0, 1), x);
    show("slice", gd_slice(x, 1, 0, 3, 2), x);
    show("flip", gd_flip(x, GD_AXES(1)), x);
    show("select", gd_select(x, 0, 1), x);
    show("reshape", gd_reshape(x, GD_SHAPE(6)), x);
    show("broadcast", gd_broadcast_to(gd_select(x, 0, 0), GD_SHAPE(2, 3)), x);
    gd_tensor *flat = gd_reshape(gd_transpose(x, 0, 1), GD_SHAPE(6));
    char text[100];
    gd_tensor_format(flat, text, sizeof text);
    printf("== reshape\nthe transpose reshaped: %s, %s\n", text,
           gd_tensor_data(flat) == gd_tensor_data(x) ? "a view" : "a copy");
}

/* b is added to each of 100 rows, so its gradient is a sum of 100. */
static void broadcasting(gd_context *gd)
{
    gd_tensor *b = gd_set_requires_grad(gd_zeros(gd, GD_SHAPE(4), GD_F32), true);
    gd_backward(gd_sum(gd_add(gd_ones(gd, GD_SHAPE(100, 4), GD_F32), b), GD_ALL_AXES, false));
    char text[100];
    gd_tensor_format(gd_gradient(b), text, sizeof text);
    printf("== broadcasting\ngradient of b: %s\n", text);
}

static void scopes(gd_context *gd)
{
    gd_scope_begin(gd);
    gd_tensor *weight = gd_retain(gd_full(gd, GD_SHAPE(100, 10), 0.5, GD_F32));
    gd_set_name(gd_set_requires_grad(weight, true), "weight");
    gd_tensor *e = gd_exp(gd_transpose(gd_detach(weight), 0, 1));
    char text[2000];
    gd_memory_report(gd, text, sizeof text);
    printf("== memory\n%s", text);
    gd_scope_end(gd);
    if (!gd_add(weight, e)) // e has ended with its scope
        printf("== ended\n%s\n", gd_error_message());
    gd_error_clear();
    gd_release(weight);
}

int main(void)
{
    gd_context *gd = gd_open("cpu");
    gd_scope_begin(gd);
    views(gd);
    broadcasting(gd);
    gd_scope_end(gd);
    scopes(gd);
    if (gd_error_code())
        fprintf(stderr, "guide_3: %s\n", gd_error_message());
    gd_close(gd);
    return gd_error_code() != GD_OK;
}
