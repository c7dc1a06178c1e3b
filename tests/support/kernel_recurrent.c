/* tests/support/kernel_recurrent.c: random recurrent networks: single calls of every cell, and
 * layers of them in one direction or both. */
#include "support/kernel_case.h"

#include <gradus/ops.h>
#include <gradus/sequence.h>

#include <stdlib.h>

enum {
    CELL = K_OWN,
    BATCH,
    TIME,
    WIDTH,
    REVERSE,
    FIRST, /* states before the first step are given */
    LENGTHS,
    LAST, /* the last c, as well */
    PLAIN,
    LAYERS, /* 0: the call by itself */
    BOTH,   /* directions */
    INPUT,  /* width of what the first layer reads */
    FIELDS
};

static const fuzz_field fields[FIELDS] = {
    KERNEL_COMMON_FIELDS,
    [CELL] = { "cell", 0, FUZZ_SEED },
    [BATCH] = { "batch", 1, FUZZ_NUMBER },
    [TIME] = { "time", 1, FUZZ_NUMBER },
    [WIDTH] = { "width", 1, FUZZ_NUMBER },
    [REVERSE] = { "reverse", 0, FUZZ_NUMBER },
    [FIRST] = { "first", 0, FUZZ_NUMBER },
    [LENGTHS] = { "lengths", 0, FUZZ_NUMBER },
    [LAST] = { "last", 0, FUZZ_NUMBER },
    [PLAIN] = { "plain", 0, FUZZ_NUMBER },
    [LAYERS] = { "layers", 0, FUZZ_NUMBER },
    [BOTH] = { "both", 0, FUZZ_NUMBER },
    [INPUT] = { "input", 1, FUZZ_NUMBER },
};

enum { WRONG_WIDTH = 1, WRONG_BIAS, WRONG_STATE, WRONG_LENGTHS };

static int64_t gates_of(const fuzz_case *c)
{
    return c->field[CELL] == GD_CELL_LSTM ? 4 : c->field[CELL] == GD_CELL_GRU ? 3 : 1;
}

/* ---- drawing ---- */

static double cost(const fuzz_case *c)
{
    const double width = (double)c->field[WIDTH], layers = (double)c->field[LAYERS] + 1;
    return (double)c->field[BATCH] * (double)c->field[TIME] * width *
           (width + (double)c->field[INPUT]) * (double)gates_of(c) * layers;
}

/* Gradients of a ReLU are compared where it is sure which numbers are positive: small whole ones.
 */
static bool is_whole(const fuzz_case *c)
{
    return c->field[CELL] == GD_CELL_RNN_RELU && c->field[K_GRADIENT];
}

/* What h cannot exceed, of whole numbers up to 8 and weights -1, 0 and 1. */
static double largest_state(const fuzz_case *c)
{
    double h = 8;
    for (int64_t t = 0; t < c->field[TIME]; t++)
        h = h * (double)c->field[WIDTH] + 16;
    return h;
}

static void draw(fuzz_case *c, numbers *n)
{
    static const int sizes[] = { BATCH, TIME, WIDTH, INPUT };
    static const int options[] = { REVERSE, FIRST, LENGTHS, LAST };
    if (!kernel_one_in(n, 20))
        c->field[K_DTYPE] = kernel_one_in(n, 4) ? GD_F64 : GD_F32;
    c->field[K_OTHER_DTYPE] = kernel_one_in(n, 20) ? c->field[K_OTHER_DTYPE] : c->field[K_DTYPE];
    c->field[CELL] = kernel_below(n, 4);
    c->field[BATCH] = kernel_size(n, 40);
    c->field[TIME] = kernel_size(n, 40);
    c->field[WIDTH] = kernel_size(n, kernel_one_in(n, 4) ? 300 : 70);
    c->field[INPUT] = kernel_size(n, 40);
    for (int i = 0; i < COUNT(options); i++)
        c->field[options[i]] = kernel_one_in(n, 2);
    c->field[PLAIN] = kernel_one_in(n, 8);
    c->field[LAYERS] = kernel_one_in(n, 3) ? kernel_between(n, 1, 3) : 0;
    c->field[BOTH] = kernel_one_in(n, 2);
    kernel_limit(c, sizes, COUNT(sizes), cost, kernel_one_in(n, 40) ? 1e6 : 4e4);
    if (c->field[LAYERS] && !kernel_one_in(n, 20))
        c->field[K_DTYPE] = GD_F32;
    if (is_whole(c)) {
        c->field[LAYERS] = 0;
        while (largest_state(c) > 0x1p24 && c->field[TIME] > 1)
            c->field[TIME]--;
        while (largest_state(c) > 0x1p24)
            c->field[WIDTH] /= 2;
    }
    if (kernel_one_in(n, 40))
        c->field[sizes[kernel_below(n, COUNT(sizes))]] = 0;
}

/* ---- the call ---- */

enum { X, U, B, H0, C0, LENGTH };

static int operands(const fuzz_case *c, kernel_operand *o)
{
    const int64_t batch = c->field[BATCH], time = c->field[TIME], width = c->field[WIDTH],
                  wide = gates_of(c) * width, wrong = c->field[K_WRONG], layers = c->field[LAYERS];
    const int64_t states = layers * (c->field[BOTH] ? 2 : 1);
    const gd_dtype dtype = (gd_dtype)c->field[K_DTYPE], other = (gd_dtype)c->field[K_OTHER_DTYPE];
    const bool is_real = !is_whole(c);
    double root =
        1; /* weights of about 1 / sqrt(width), so that gradients neither grow nor vanish */
    while (root * root < (double)width)
        root++;
    const gd_shape state = GD_SHAPE(batch + (wrong == WRONG_STATE), width);
    o[X] = (kernel_operand){ .name = "x",
                             .shape = GD_SHAPE(batch, time, layers ? c->field[INPUT] : wide),
                             .dtype = dtype,
                             .is_real = is_real,
                             .scale = 2 };
    o[U] = (kernel_operand){ .name = "u",
                             .shape = GD_SHAPE(width, wide + (wrong == WRONG_WIDTH)),
                             other,
                             .is_real = is_real,
                             .scale = 1 / root,
                             .most = 1 };
    o[B] = (kernel_operand){ .name = "b",
                             .shape = GD_SHAPE(wide + (wrong == WRONG_BIAS)),
                             .dtype = other,
                             .is_real = is_real };
    o[H0] = (kernel_operand){ .name = "h0",
                              .shape = layers ? GD_SHAPE(states, batch, width) : state,
                              .dtype = dtype,
                              .is_real = is_real };
    o[C0] = o[H0];
    o[C0].name = "c0";
    o[LENGTH] = (kernel_operand){ .name = "lengths",
                                  .shape = GD_SHAPE(batch + (wrong == WRONG_LENGTHS)),
                                  .dtype = GD_I64,
                                  .is_index = true,
                                  .most = time };
    return 6;
}

static gd_tensor *layers_of(kernel_call *k)
{
    const fuzz_case *c = k->c;
    const bool first = c->field[FIRST], is_lstm = c->field[CELL] == GD_CELL_LSTM;
    gd_tensor *last = NULL;
    gd_nn_recurrent_options o = { GD_NN_RECURRENT_DEFAULTS,
                                  .layers = c->field[LAYERS],
                                  .bidirectional = c->field[BOTH],
                                  .lengths = c->field[LENGTHS] ? k->in[LENGTH] : NULL,
                                  .first_hidden = first ? k->in[H0] : NULL,
                                  .first_cell = first && is_lstm ? k->in[C0] : NULL,
                                  .last_hidden = c->field[LAST] ? &last : NULL,
                                  .relu = c->field[CELL] == GD_CELL_RNN_RELU,
                                  .plain = c->field[PLAIN] };
    const int64_t units = c->field[WIDTH];
    gd_tensor *h = is_lstm ? gd_nn_lstm_with(k->module, "r", k->in[X], units, &o)
                   : c->field[CELL] == GD_CELL_GRU
                       ? gd_nn_gru_with(k->module, "r", k->in[X], units, &o)
                       : gd_nn_rnn_with(k->module, "r", k->in[X], units, &o);
    k->more = last;
    return h;
}

static gd_tensor *call_layers(kernel_call *k)
{
    static const char *const names[] = { "rnn", "rnn", "lstm", "gru" };
    const fuzz_case *c = k->c;
    kernel_say(k,
               "    gd_module *m = gd_module_create(gd);\n    gd_tensor *last = NULL, *r = "
               "gd_nn_%s(m, \"r\", x, %lld",
               names[c->field[CELL]], (long long)c->field[WIDTH]);
    kernel_say_option(k, "layers", c->field[LAYERS]);
    kernel_say_option(k, "bidirectional", c->field[BOTH]);
    kernel_say_option(k, "relu", c->field[CELL] == GD_CELL_RNN_RELU);
    kernel_say_option(k, "plain", c->field[PLAIN]);
    kernel_say(k, "%s%s%s%s);\n", c->field[FIRST] ? ", .first_hidden = h0" : "",
               c->field[FIRST] && c->field[CELL] == GD_CELL_LSTM ? ", .first_cell = c0" : "",
               c->field[LENGTHS] ? ", .lengths = lengths" : "",
               c->field[LAST] ? ", .last_hidden = &last" : "");
    return layers_of(k);
}

static gd_tensor *call(kernel_call *k)
{
    static const char *const cells[] = { "GD_CELL_RNN", "GD_CELL_RNN_RELU", "GD_CELL_LSTM",
                                         "GD_CELL_GRU" };
    const fuzz_case *c = k->c;
    if (c->field[LAYERS])
        return call_layers(k);
    const bool first = c->field[FIRST], is_lstm = c->field[CELL] == GD_CELL_LSTM;
    gd_tensor *last = NULL;
    kernel_say(k, "    gd_tensor *last = NULL, *r = gd_recurrent(x, u, b, %s%s%s%s%s%s%s);\n",
               cells[c->field[CELL]], first ? ", .first_hidden = h0" : "",
               first && is_lstm ? ", .first_cell = c0" : "",
               c->field[LENGTHS] ? ", .lengths = lengths" : "",
               c->field[REVERSE] ? ", .reverse = true" : "",
               c->field[PLAIN] ? ", .plain = true" : "",
               c->field[LAST] ? ", .last_cell = &last" : "");
    gd_tensor *y = gd_recurrent(k->in[X], k->in[U], k->in[B], (gd_cell)c->field[CELL],
                                .first_hidden = first ? k->in[H0] : NULL,
                                .first_cell = first && is_lstm ? k->in[C0] : NULL,
                                .lengths = c->field[LENGTHS] ? k->in[LENGTH] : NULL,
                                .last_cell = c->field[LAST] ? &last : NULL,
                                .reverse = c->field[REVERSE], .plain = c->field[PLAIN]);
    k->more = last;
    return y;
}

/* The layers' parameters, of the same numbers on every device. */
static gd_module *make_module(gd_context *gd, const fuzz_case *c, gd_tensor *const *in)
{
    if (!c->field[LAYERS])
        return NULL;
    gd_module *m = gd_module_create(gd);
    kernel_call k = { .c = c, .gd = gd, .in = in, .module = m };
    if (!layers_of(&k))
        return m;
    numbers n = { (uint64_t)c->field[K_NUMBERS] + 77 };
    for (int i = 0; i < gd_module_count(m); i++) {
        gd_tensor *t = gd_module_tensor(m, i);
        const size_t count = (size_t)gd_tensor_count(t);
        const double scale = 1 / (1 + 0.15 * (double)c->field[WIDTH]);
        float *value = calloc(count + 1, sizeof *value);
        for (size_t j = 0; value && j < count; j++)
            value[j] = (float)numbers_uniform(&n, -scale, scale);
        gd_tensor_write(t, value, count * sizeof *value);
        free(value);
    }
    return m;
}

static double tolerance(const fuzz_case *c)
{
    const double steps = (double)c->field[TIME] * (double)(c->field[LAYERS] + 1);
    return (double)(16 + c->field[WIDTH] + c->field[INPUT]) * (steps + (double)c->field[BATCH]);
}

static bool is_exact(const fuzz_case *c)
{
    (void)c;
    return false;
}

const kernel_family kernel_recurrent = { .name = "recurrent",
                                         .fields = FIELDS,
                                         .field = fields,
                                         .draw = draw,
                                         .operands = operands,
                                         .module = make_module,
                                         .call = call,
                                         .tolerance = tolerance,
                                         .is_exact = is_exact };
