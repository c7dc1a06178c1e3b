/* nn/recurrent.c: layers of recurrent networks: RNN, LSTM, GRU, stacked, in one direction or both.
 * The steps are in gd_recurrent; the input's share of all steps is one product, a gd_nn_linear.
 * Start at run_layers(). */
#include "nn/sequence.h"

#include "base/error.h"
#include "base/options.h"
#include "nn/module.h"

/* One use of a layer, with its options read. */
typedef struct network {
    gd_module *module;
    const char *name;
    int64_t units;
    gd_cell cell;
    gd_nn_recurrent_options o;
} network;

/* One direction of one layer: x [batch, time, any] -> [batch, time, units]. */
typedef struct direction {
    const network *net;
    const char *name;
    bool reverse;
    int64_t number; /* of its states */
} direction;

static int64_t gates_of(gd_cell cell)
{
    return cell == GD_CELL_LSTM ? 4 : cell == GD_CELL_GRU ? 3 : 1;
}

/* First state of a direction, of [directions, batch, units]; NULL for none. */
static gd_tensor *first_state(gd_tensor *all, int64_t number)
{
    return all ? gd_select(all, 0, number) : NULL;
}

static gd_tensor *run_direction(const direction *d, gd_tensor *x, gd_tensor **last_h,
                                gd_tensor **last_c)
{
    const network *net = d->net;
    const gd_nn_recurrent_options *o = &net->o;
    char path[GD_NN_PATH];
    int64_t wide = gates_of(net->cell) * net->units;
    const char *at = gd_nn_path(path, d->name, "input");
    gd_tensor *z = at ? gd_nn_linear(net->module, at, x, wide) : NULL;
    at = z ? gd_nn_path(path, d->name, "hidden.weight") : NULL;
    gd_shape shape = GD_SHAPE(net->units, wide);
    gd_tensor *u = at ? gd_parameter(net->module, at, shape, .init = GD_INIT_GLOROT_UNIFORM) : NULL;
    at = u ? gd_nn_path(path, d->name, "hidden.bias") : NULL;
    gd_tensor *b = at ? gd_parameter(net->module, at, GD_SHAPE(wide), .init = GD_INIT_ZEROS) : NULL;
    if (!b)
        return NULL;
    gd_tensor *h0 = first_state(o->first_hidden, d->number);
    gd_tensor *c0 = first_state(o->first_cell, d->number);
    if ((o->first_hidden && !h0) || (o->first_cell && !c0))
        return NULL;
    gd_tensor *h = gd_recurrent(z, u, b, net->cell, .first_hidden = h0, .first_cell = c0,
                                .lengths = o->lengths, .reverse = d->reverse, .plain = o->plain,
                                .last_cell = net->cell == GD_CELL_LSTM ? last_c : NULL);
    *last_h = gd_select(h, 1, d->reverse ? 0 : -1);
    return h;
}

/* Zeros where a sequence is over. */
static gd_tensor *cut(gd_tensor *h, gd_tensor *lengths)
{
    if (!h || !lengths)
        return h;
    gd_context *context = gd_tensor_context(h);
    gd_tensor *t = gd_arange(context, 0, (double)gd_tensor_shape(h).dim[1], 1, GD_I64);
    gd_tensor *runs = gd_lt(t, gd_unsqueeze(gd_cast(lengths, GD_I64), 1));
    return gd_where(gd_unsqueeze(runs, 2), h, gd_scalar(context, 0, gd_tensor_dtype(h)));
}

static gd_tensor *run_layer(const network *net, int64_t layer, gd_tensor *x, gd_tensor **last_h,
                            gd_tensor **last_c)
{
    int ways = net->o.bidirectional ? 2 : 1;
    gd_tensor *out[2] = { NULL, NULL };
    char name[GD_NN_PATH], path[GD_NN_PATH];
    if (!gd_nn_path_number(name, net->name, layer))
        return NULL;
    for (int way = 0; way < ways; way++) {
        direction d = { .net = net,
                        .name = gd_nn_path(path, name, way ? "backward" : "forward"),
                        .reverse = way == 1,
                        .number = layer * ways + way };
        out[way] = d.name ? run_direction(&d, x, &last_h[d.number], &last_c[d.number]) : NULL;
        if (!out[way])
            return NULL;
    }
    return cut(ways == 2 ? gd_concat(2, out, 2) : out[0], net->o.lengths);
}

static bool check(const network *net, const gd_tensor *x, const char *who)
{
    int most = GD_NN_RECURRENT_MOST_STATES / (net->o.bidirectional ? 2 : 1);
    const char *name = net->name ? net->name : "";
    if (!*name || net->units < 1 || net->units > GD_NN_LARGEST || net->o.layers < 1 ||
        net->o.layers > most)
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: \"%s\": %lld units, %lld layers; a name, 1 unit and 1 to %d layers are "
                      "needed",
                      who, name, (long long)net->units, (long long)net->o.layers, most);
    else if (gd_tensor_shape(x).rank != 3)
        (void)gd_fail(GD_ERR_SHAPE, "%s: \"%s\" is given rank %d; [batch, time, width] is needed",
                      who, name, gd_tensor_shape(x).rank);
    else
        return true;
    return false;
}

static gd_tensor *run_layers(network net, gd_tensor *x, const char *who)
{
    if (!net.module || !x || !check(&net, x, who))
        return NULL;
    gd_tensor *last_h[GD_NN_RECURRENT_MOST_STATES] = { NULL };
    gd_tensor *last_c[GD_NN_RECURRENT_MOST_STATES] = { NULL };
    const gd_nn_recurrent_options *o = &net.o;
    for (int64_t layer = 0; layer < o->layers && x; layer++)
        x = run_layer(&net, layer, layer ? gd_nn_drop(net.module, x, o->dropout) : x, last_h,
                      last_c);
    int count = (int)o->layers * (o->bidirectional ? 2 : 1);
    if (x && o->last_hidden)
        *o->last_hidden = gd_stack(count, last_h, 0);
    if (x && o->last_cell)
        *o->last_cell = net.cell == GD_CELL_LSTM ? gd_stack(count, last_c, 0) : NULL;
    return x;
}

gd_tensor *gd_nn_rnn_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                          const gd_nn_recurrent_options *options)
{
    network net = { m, name, units, GD_CELL_RNN, { GD_NN_RECURRENT_DEFAULTS } };
    if (!gd_options_read("gd_nn_rnn", &net.o, sizeof net.o, options))
        return NULL;
    net.cell = net.o.relu ? GD_CELL_RNN_RELU : GD_CELL_RNN;
    return run_layers(net, x, "gd_nn_rnn");
}

gd_tensor *gd_nn_lstm_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                           const gd_nn_recurrent_options *options)
{
    network net = { m, name, units, GD_CELL_LSTM, { GD_NN_RECURRENT_DEFAULTS } };
    if (!gd_options_read("gd_nn_lstm", &net.o, sizeof net.o, options))
        return NULL;
    return run_layers(net, x, "gd_nn_lstm");
}

gd_tensor *gd_nn_gru_with(gd_module *m, const char *name, gd_tensor *x, int64_t units,
                          const gd_nn_recurrent_options *options)
{
    network net = { m, name, units, GD_CELL_GRU, { GD_NN_RECURRENT_DEFAULTS } };
    if (!gd_options_read("gd_nn_gru", &net.o, sizeof net.o, options))
        return NULL;
    return run_layers(net, x, "gd_nn_gru");
}
