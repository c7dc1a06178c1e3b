/* tests/support/kernel_conv.c: random convolutions, over one to three axes, transposed ones too,
 * with sizes and options of every axis by themselves. */
#include "support/kernel_case.h"

#include <gradus/conv.h>
#include <gradus/ops.h>

enum {
    AXES = K_OWN,
    TRANSPOSED,
    BATCH,
    GROUPS,
    IN, /* channels of a group */
    OUT,
    SIZE,
    KERNEL = SIZE + 3,
    STRIDE = KERNEL + 3,
    DILATION = STRIDE + 3,
    BEFORE = DILATION + 3,
    AFTER = BEFORE + 3,
    OUTPUT_PAD = AFTER + 3,
    PAD = OUTPUT_PAD + 3,
    SAME,
    BIAS,
    RELU,
    FIELDS
};

#define LIST(at, name, simplest_)                                                                 \
    [at] = { name "0", simplest_, FUZZ_NUMBER }, [at + 1] = { name "1", simplest_, FUZZ_NUMBER }, \
    [at + 2] = { name "2", simplest_, FUZZ_NUMBER }
static const fuzz_field fields[FIELDS] = {
    KERNEL_COMMON_FIELDS,
    [AXES] = { "axes", 1, FUZZ_NUMBER },
    [TRANSPOSED] = { "transposed", 0, FUZZ_NUMBER },
    [BATCH] = { "batch", 1, FUZZ_NUMBER },
    [GROUPS] = { "groups", 1, FUZZ_NUMBER },
    [IN] = { "in", 1, FUZZ_NUMBER },
    [OUT] = { "out", 1, FUZZ_NUMBER },
    LIST(SIZE, "size", 1),
    LIST(KERNEL, "kernel", 1),
    LIST(STRIDE, "stride", 1),
    LIST(DILATION, "dilation", 1),
    LIST(BEFORE, "before", 0),
    LIST(AFTER, "after", 0),
    LIST(OUTPUT_PAD, "output_pad", 0),
    [PAD] = { "pad", 0, FUZZ_NUMBER },
    [SAME] = { "same", 0, FUZZ_NUMBER },
    [BIAS] = { "bias", 0, FUZZ_NUMBER },
    [RELU] = { "relu", 0, FUZZ_NUMBER },
};

/* What K_WRONG makes wrong; larger numbers make nothing. */
enum { WRONG_CHANNELS = 1, WRONG_BIAS, WRONG_RANK, WRONG_PAD, WRONG_KERNEL, WRONG_GROUPS };

/* ---- drawing ---- */

static int64_t outputs_along(const fuzz_case *c, int a)
{
    const int64_t size = c->field[SIZE + a], stride = c->field[STRIDE + a],
                  pads = c->field[BEFORE + a] + c->field[AFTER + a] + 2 * c->field[PAD],
                  reach = c->field[DILATION + a] * (c->field[KERNEL + a] - 1) + 1;
    if (c->field[SAME])
        return c->field[TRANSPOSED] ? size * stride : (size + stride - 1) / stride;
    return c->field[TRANSPOSED] ? (size - 1) * stride - pads + reach + c->field[OUTPUT_PAD + a]
                                : (size + pads - reach) / stride + 1;
}

static double cost(const fuzz_case *c)
{
    double steps = (double)c->field[BATCH] * (double)c->field[GROUPS] * (double)c->field[IN] *
                   (double)c->field[OUT];
    for (int a = 0; a < c->field[AXES]; a++) {
        const double out = (double)outputs_along(c, a), in = (double)c->field[SIZE + a];
        steps *= (double)c->field[KERNEL + a] * (out > in ? out : in);
    }
    return steps;
}

static void draw_channels(fuzz_case *c, numbers *n)
{
    switch (kernel_below(n, 6)) {
    case 0: /* depthwise */
        c->field[GROUPS] = kernel_between(n, 2, 70);
        c->field[IN] = 1;
        c->field[OUT] = kernel_one_in(n, 2) ? 1 : kernel_between(n, 1, 4);
        break;
    case 1: /* many */
        c->field[IN] = kernel_size(n, 1100);
        c->field[OUT] = kernel_size(n, 40);
        break;
    case 2:
        c->field[IN] = kernel_size(n, 40);
        c->field[OUT] = kernel_size(n, 1100);
        break;
    default:
        c->field[GROUPS] = kernel_one_in(n, 3) ? kernel_between(n, 2, 5) : 1;
        c->field[IN] = kernel_size(n, 40);
        c->field[OUT] = kernel_size(n, 40);
    }
    c->field[BATCH] = kernel_one_in(n, 4) ? kernel_size(n, 70) : kernel_between(n, 1, 4);
}

static void draw_axis(fuzz_case *c, numbers *n, int a, bool is_last)
{
    const bool is_small = kernel_one_in(n, 2);
    c->field[SIZE + a] = kernel_size(n, is_small ? 9 : is_last && kernel_one_in(n, 3) ? 600 : 40);
    c->field[KERNEL + a] = kernel_one_in(n, 3) ? 1 : kernel_between(n, 1, 7);
    c->field[STRIDE + a] = kernel_one_in(n, 2) ? 1 : kernel_between(n, 1, 4);
    c->field[DILATION + a] = kernel_one_in(n, 3) ? kernel_between(n, 1, 3) : 1;
    if (kernel_one_in(n, 2))
        c->field[BEFORE + a] = kernel_between(n, 0, 4);
    if (kernel_one_in(n, 2))
        c->field[AFTER + a] = kernel_between(n, 0, 4);
    if (c->field[TRANSPOSED] && kernel_one_in(n, 2))
        c->field[OUTPUT_PAD + a] = kernel_below(n, c->field[STRIDE + a] + kernel_one_in(n, 20));
}

/* Most often there is a result. */
static void fit_axis(fuzz_case *c, int a)
{
    while (outputs_along(c, a) < 1 && c->field[TRANSPOSED]) {
        if (c->field[PAD])
            c->field[PAD] = 0;
        else if (c->field[BEFORE + a] || c->field[AFTER + a])
            c->field[BEFORE + a] = c->field[AFTER + a] = 0;
        else
            return;
    }
    while (!c->field[TRANSPOSED] && c->field[KERNEL + a] > 1 &&
           c->field[SIZE + a] + c->field[BEFORE + a] + c->field[AFTER + a] + 2 * c->field[PAD] <
               c->field[DILATION + a] * (c->field[KERNEL + a] - 1) + 1)
        c->field[KERNEL + a]--;
}

static void draw(fuzz_case *c, numbers *n)
{
    static const int sizes[] = { BATCH, GROUPS, IN, OUT, SIZE, SIZE + 1, SIZE + 2 };
    const int64_t axes = kernel_below(n, 20);
    c->field[AXES] = axes < 5 ? 1 : axes < 16 ? 2 : 3;
    c->field[TRANSPOSED] = kernel_one_in(n, 4);
    draw_channels(c, n);
    c->field[PAD] = kernel_one_in(n, 4) ? kernel_between(n, 1, 3) : 0;
    for (int a = 0; a < c->field[AXES]; a++)
        draw_axis(c, n, a, a + 1 == c->field[AXES]);
    if (c->field[IN] + c->field[OUT] > 100 && kernel_one_in(n, 2))
        c->field[KERNEL] = c->field[KERNEL + 1] = c->field[KERNEL + 2] = 1;
    c->field[SAME] = kernel_one_in(n, 10);
    for (int a = 0; a < c->field[AXES] && c->field[SAME] && !kernel_one_in(n, 20); a++)
        c->field[BEFORE + a] = c->field[AFTER + a] = c->field[PAD] = 0;
    kernel_limit(c, sizes, 4 + (int)c->field[AXES], cost, kernel_one_in(n, 40) ? 2e6 : 4e4);
    for (int a = 0; a < c->field[AXES] && !kernel_one_in(n, 30); a++)
        fit_axis(c, a);
    if (kernel_one_in(n, 40)) /* and empty ones */
        c->field[sizes[kernel_below(n, 4 + c->field[AXES])]] = 0;
    c->field[BIAS] = kernel_one_in(n, 2);
    c->field[RELU] = kernel_one_in(n, 4);
}

/* ---- the call ---- */

static gd_shape shape_of(const fuzz_case *c, int64_t first, int64_t second, int sizes)
{
    gd_shape s = { .rank = 2 + (int)c->field[AXES], .dim = { first, second } };
    for (int a = 0; a < s.rank - 2; a++)
        s.dim[2 + a] = c->field[sizes + a];
    return s;
}

static int operands(const fuzz_case *c, kernel_operand *o)
{
    const int64_t wrong = c->field[K_WRONG], groups = c->field[GROUPS], in = groups * c->field[IN],
                  out = groups * c->field[OUT];
    const gd_dtype other = (gd_dtype)c->field[K_OTHER_DTYPE];
    o[0] = (kernel_operand){ .name = "x",
                             .shape = shape_of(c, c->field[BATCH], in, SIZE),
                             .dtype = (gd_dtype)c->field[K_DTYPE] };
    o[1] = (kernel_operand){ .name = "w",
                             .shape = shape_of(c, out, c->field[IN], KERNEL),
                             .dtype = other };
    if (c->field[TRANSPOSED])
        o[1].shape = shape_of(c, in, c->field[OUT], KERNEL);
    o[2] = (kernel_operand){ .name = "b", .shape = GD_SHAPE(out), .dtype = other };
    o[1].shape.dim[1] += wrong == WRONG_CHANNELS;
    o[2].shape.dim[0] += wrong == WRONG_BIAS;
    o[1].shape.rank -= wrong == WRONG_RANK;
    o[1].shape.dim[2] = wrong == WRONG_KERNEL ? 0 : o[1].shape.dim[2];
    return c->field[BIAS] ? 3 : 2;
}

/* The fields from `at` on, of each axis; rank 0 where all are `usual`. */
static gd_shape option_of(const fuzz_case *c, int at, int64_t usual)
{
    gd_shape s = { .rank = 0 };
    for (int a = 0; a < c->field[AXES]; a++) {
        s.dim[a] = c->field[at + a];
        s.rank = s.rank || s.dim[a] != usual ? (int)c->field[AXES] : 0;
    }
    return s;
}

/* What one end of each axis is padded by: that of both, and its own. */
static gd_shape padding_of(const fuzz_case *c, int at)
{
    gd_shape s = option_of(c, at, 0);
    for (int a = 0; a < s.rank; a++)
        s.dim[a] += c->field[PAD];
    return s;
}

static gd_tensor *call(kernel_call *k)
{
    const fuzz_case *c = k->c;
    const int axes = (int)c->field[AXES];
    const bool transposed = c->field[TRANSPOSED];
    const int64_t pad = c->field[K_WRONG] == WRONG_PAD ? -1 : c->field[PAD];
    gd_conv_options o = { GD_CONV_DEFAULTS,
                          .stride = option_of(c, STRIDE, 1),
                          .padding_before = padding_of(c, BEFORE),
                          .padding_after = padding_of(c, AFTER),
                          .dilation = option_of(c, DILATION, 1),
                          .groups = c->field[GROUPS] + (c->field[K_WRONG] == WRONG_GROUPS),
                          .same = c->field[SAME] };
    if (pad)
        o.padding = GD_SHAPE(pad);
    if (pad < 0)
        o.padding_before.rank = 0;
    if (transposed)
        o.output_padding = option_of(c, OUTPUT_PAD, 0);
    gd_tensor *b = c->field[BIAS] ? k->in[2] : NULL;
    kernel_say(k, "    gd_tensor *r = gd_conv%s%dd(x, w, %s", transposed ? "_transpose" : "", axes,
               b ? "b" : "NULL");
    kernel_say_shape(k, "stride", o.stride);
    kernel_say_shape(k, "padding", o.padding);
    kernel_say_shape(k, "padding_before", o.padding_before);
    kernel_say_shape(k, "padding_after", o.padding_after);
    kernel_say_shape(k, "dilation", o.dilation);
    kernel_say_option(k, "groups", o.groups == 1 ? 0 : o.groups);
    kernel_say_option(k, "same", o.same);
    kernel_say_shape(k, "output_padding", o.output_padding);
    kernel_say(k, ");\n");
    gd_tensor *y = transposed ? gd_conv_transpose_with(k->in[0], k->in[1], b, axes, &o)
                              : gd_conv_with(k->in[0], k->in[1], b, axes, &o);
    /* Of sums that round, which are positive is not for every device the same. */
    if (!c->field[RELU] || c->field[K_VALUES] != VALUES_WHOLE)
        return y;
    kernel_say(k, "    r = gd_relu(r);\n");
    return gd_relu(y);
}

static double terms(const fuzz_case *c)
{
    double taps = 1, plane = 1;
    for (int a = 0; a < c->field[AXES]; a++) {
        const double out = (double)outputs_along(c, a), in = (double)c->field[SIZE + a];
        taps *= (double)c->field[KERNEL + a];
        plane *= out > in ? out : in;
    }
    const double in = (double)c->field[IN], out = (double)c->field[OUT];
    return taps * (in > out ? in : out) + plane * (double)c->field[BATCH] + 1;
}

static bool is_exact(const fuzz_case *c)
{
    (void)c;
    return true;
}

const kernel_family kernel_conv = { .name = "conv",
                                    .fields = FIELDS,
                                    .field = fields,
                                    .draw = draw,
                                    .operands = operands,
                                    .call = call,
                                    .terms = terms,
                                    .is_exact = is_exact };
