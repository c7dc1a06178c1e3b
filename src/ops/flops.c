/* ops/flops.c: floating-point operations, and the text of attributes, of the kinds of ops there are many
 * of, for their rows. */
#include "ops/internal.h"

double gd_flops_none(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)in, (void)out, (void)attr;
    return 0;
}

double gd_flops_each(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)in, (void)attr;
    return (double)gd_layout_count(out);
}

double gd_flops_each_read(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)out, (void)attr;
    return (double)gd_layout_count(in[0]);
}

/* The largest, the difference from it, an exponential, the sum, the quotient. */
double gd_flops_softmax(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)out, (void)attr;
    return 5 * (double)gd_layout_count(in[0]);
}

double gd_flops_product(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)attr;
    return 2 * (double)gd_layout_count(out) * (double)in[0]->shape[in[0]->rank - 1];
}

void gd_format_axis(const void *attr, char *text, size_t size)
{
    snprintf(text, size, "axis=%d", ((const gd_axis_attr *)attr)->axis);
}
