/* tests/support/kernel_pool.c: random pooling: maxima and means of windows, adaptive ones, of whole
 * planes. */
#include "support/kernel_case.h"

#include <gradus/conv.h>

enum {
    KIND = K_OWN,
    AXES,
    BATCH,
    CHANNELS,
    SIZE,
    KERNEL = SIZE + 3, /* adaptive: the result's sizes */
    STRIDE = KERNEL + 3,
    DILATION = STRIDE + 3,
    PAD = DILATION + 3,
    CEIL = PAD + 3,
    EXCLUDE,
    FIELDS
};

enum kind { MAXIMUM, MEAN, ADAPTIVE_MAXIMUM, ADAPTIVE_MEAN, GLOBAL_MAXIMUM, GLOBAL_MEAN, KINDS };

#define LIST(at, name, simplest_)                                                                 \
    [at] = { name "0", simplest_, FUZZ_NUMBER }, [at + 1] = { name "1", simplest_, FUZZ_NUMBER }, \
    [at + 2] = { name "2", simplest_, FUZZ_NUMBER }
static const fuzz_field fields[FIELDS] = {
    KERNEL_COMMON_FIELDS,
    [KIND] = { "kind", MAXIMUM, FUZZ_SEED },
    [AXES] = { "axes", 1, FUZZ_NUMBER },
    [BATCH] = { "batch", 1, FUZZ_NUMBER },
    [CHANNELS] = { "channels", 1, FUZZ_NUMBER },
    LIST(SIZE, "size", 1),
    LIST(KERNEL, "kernel", 1),
    LIST(STRIDE, "stride", 0),
    LIST(DILATION, "dilation", 1),
    LIST(PAD, "pad", 0),
    [CEIL] = { "ceil", 0, FUZZ_NUMBER },
    [EXCLUDE] = { "exclude", 0, FUZZ_NUMBER },
};

enum { WRONG_RANK = 1, WRONG_PAD, WRONG_DILATION, WRONG_STRIDE, WRONG_KERNEL };

static bool is_maximum(const fuzz_case *c)
{
    return c->field[KIND] % 2 == 0;
}

/* ---- drawing ---- */

/* What the reference does for a gradient: every window, for every element. */
static double cost(const fuzz_case *c)
{
    double all = (double)c->field[BATCH] * (double)c->field[CHANNELS];
    for (int a = 0; a < c->field[AXES]; a++) {
        const double size = (double)c->field[SIZE + a], kernel = (double)c->field[KERNEL + a];
        const int64_t stride = c->field[STRIDE + a];
        const double windows = c->field[KIND] >= ADAPTIVE_MAXIMUM ? kernel
                               : stride                           ? size / (double)stride + 1
                                                                  : size / kernel + 1;
        all *= size * windows * (c->field[KIND] >= ADAPTIVE_MAXIMUM ? size / kernel + 1 : kernel);
    }
    return all;
}

static void draw_axis(fuzz_case *c, numbers *n, int a)
{
    c->field[SIZE + a] = kernel_size(n, kernel_one_in(n, 3) ? 100 : 20);
    c->field[KERNEL + a] = kernel_between(n, 1, kernel_one_in(n, 4) ? 9 : 4);
    if (c->field[KERNEL + a] > c->field[SIZE + a] && !kernel_one_in(n, 10))
        c->field[KERNEL + a] = c->field[SIZE + a];
    c->field[STRIDE + a] = kernel_one_in(n, 3) ? 0 : kernel_between(n, 1, 5);
    if (is_maximum(c) && kernel_one_in(n, 3))
        c->field[DILATION + a] = kernel_between(n, 1, 3);
    if (kernel_one_in(n, 2))
        c->field[PAD + a] = kernel_between(n, 0, c->field[KERNEL + a] / 2);
}

static void draw(fuzz_case *c, numbers *n)
{
    static const int sizes[] = { BATCH, CHANNELS, SIZE, SIZE + 1, SIZE + 2 };
    const int64_t kind = kernel_below(n, 14);
    c->field[KIND] = kind < 10 ? kind % 2 : 2 + kind - 10;
    const int64_t axes = kernel_below(n, 20);
    c->field[AXES] = axes < 5 ? 1 : axes < 16 ? 2 : 3;
    c->field[BATCH] = kernel_between(n, 1, 5);
    c->field[CHANNELS] = kernel_size(n, 40);
    for (int a = 0; a < c->field[AXES]; a++)
        draw_axis(c, n, a);
    kernel_limit(c, sizes, 2 + (int)c->field[AXES], cost, kernel_one_in(n, 40) ? 2e6 : 6e4);
    if (kernel_one_in(n, 40))
        c->field[sizes[kernel_below(n, 2 + c->field[AXES])]] = 0;
    c->field[CEIL] = kernel_one_in(n, 3);
    c->field[EXCLUDE] = kernel_one_in(n, 2);
}

/* ---- the call ---- */

static int operands(const fuzz_case *c, kernel_operand *o)
{
    gd_shape s = { .rank = 2 + (int)c->field[AXES],
                   .dim = { c->field[BATCH], c->field[CHANNELS] } };
    for (int a = 0; a < s.rank - 2; a++)
        s.dim[2 + a] = c->field[SIZE + a];
    s.rank -= c->field[K_WRONG] == WRONG_RANK;
    o[0] = (kernel_operand){
        .name = "x", .shape = s, .dtype = (gd_dtype)c->field[K_DTYPE], .keeps_signs = is_maximum(c)
    };
    return 1;
}

static gd_tensor *call_adaptive(kernel_call *k)
{
    gd_shape s = { .rank = (int)k->c->field[AXES] };
    kernel_say(k, "    gd_tensor *r = gd_adaptive_%s_pool(x, GD_SHAPE(",
               is_maximum(k->c) ? "max" : "avg");
    for (int a = 0; a < s.rank; a++) {
        s.dim[a] = k->c->field[KERNEL + a];
        kernel_say(k, "%lld%s", (long long)s.dim[a], a + 1 < s.rank ? ", " : "));\n");
    }
    return is_maximum(k->c) ? gd_adaptive_max_pool(k->in[0], s) : gd_adaptive_avg_pool(k->in[0], s);
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

static gd_tensor *call(kernel_call *k)
{
    const fuzz_case *c = k->c;
    const int axes = (int)c->field[AXES];
    const int64_t wrong = c->field[K_WRONG];
    const char *word = is_maximum(c) ? "max" : "avg";
    if (c->field[KIND] >= GLOBAL_MAXIMUM) {
        kernel_say(k, "    gd_tensor *r = gd_global_%s_pool(x);\n", word);
        return is_maximum(c) ? gd_global_max_pool(k->in[0]) : gd_global_avg_pool(k->in[0]);
    }
    if (c->field[KIND] >= ADAPTIVE_MAXIMUM)
        return call_adaptive(k);
    gd_shape kernel = option_of(c, KERNEL, 0);
    gd_pool_options o = { GD_POOL_DEFAULTS,
                          .stride = option_of(c, STRIDE, 0),
                          .padding = option_of(c, PAD, 0),
                          .dilation = option_of(c, DILATION, 1),
                          .ceil_mode = c->field[CEIL],
                          .count_padding = !c->field[EXCLUDE] };
    for (int a = 0; a < o.stride.rank; a++)
        o.stride.dim[a] = o.stride.dim[a] ? o.stride.dim[a] : kernel.dim[a];
    if (wrong == WRONG_PAD)
        o.padding = GD_SHAPE(kernel.dim[0]);
    if (wrong == WRONG_DILATION)
        o.dilation = GD_SHAPE(2);
    if (wrong == WRONG_STRIDE)
        o.stride = GD_SHAPE(-1);
    kernel.dim[0] = wrong == WRONG_KERNEL ? 1000 : kernel.dim[0];
    kernel_say(k, "    gd_tensor *r = gd_%s_pool%dd(x", word, axes);
    kernel_say_shape(k, "", kernel);
    kernel_say_shape(k, "stride", o.stride);
    kernel_say_shape(k, "padding", o.padding);
    kernel_say_shape(k, "dilation", o.dilation);
    kernel_say_option(k, "ceil_mode", o.ceil_mode);
    if (!o.count_padding)
        kernel_say(k, ", .count_padding = false");
    kernel_say(k, ");\n");
    return is_maximum(c) ? gd_max_pool_with(k->in[0], axes, kernel, &o)
                         : gd_avg_pool_with(k->in[0], axes, kernel, &o);
}

static double terms(const fuzz_case *c)
{
    double plane = 1;
    for (int a = 0; a < c->field[AXES]; a++)
        plane *= (double)(c->field[SIZE + a] + 2 * c->field[PAD + a] + c->field[KERNEL + a]);
    return plane;
}

/* Maxima are; their gradients, too, but where those that are equal share. */
static bool is_exact(const fuzz_case *c)
{
    return is_maximum(c) && c->field[KIND] != GLOBAL_MAXIMUM;
}

const kernel_family kernel_pool = { .name = "pool",
                                    .fields = FIELDS,
                                    .field = fields,
                                    .draw = draw,
                                    .operands = operands,
                                    .call = call,
                                    .terms = terms,
                                    .is_exact = is_exact };
