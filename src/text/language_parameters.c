/* text/language_parameters.c: which parameters a language model has, and their shapes, from its sizes: what readers of
 * files go by, so that nothing is made before it is known to be in the file. Start at gd_language_each(). */
#include "text/language_model.h"

#include "base/error.h"

#include <stdio.h>

typedef enum size_name { NONE, WIDTH, LENGTH, VOCABULARY, HIDDEN, QUERIES_KEYS_VALUES } size_name;

enum { GPT2 = 1, LLAMA = 2, UNTIED = 4, BOTH = GPT2 | LLAMA };

static const struct parameter {
    const char *name;
    int models; /* that have it */
    size_name dim[2];
} first_parameters[] = { { "token.weight", BOTH, { VOCABULARY, WIDTH } },
                         { "position.weight", GPT2, { LENGTH, WIDTH } } },
  layer_parameters[] = { { "norm1.weight", BOTH, { WIDTH } },
                         { "norm1.bias", GPT2, { WIDTH } },
                         { "self.qkv.weight", BOTH, { WIDTH, QUERIES_KEYS_VALUES } },
                         { "self.qkv.bias", GPT2, { QUERIES_KEYS_VALUES } },
                         { "self.out.weight", BOTH, { WIDTH, WIDTH } },
                         { "self.out.bias", GPT2, { WIDTH } },
                         { "norm2.weight", BOTH, { WIDTH } },
                         { "norm2.bias", GPT2, { WIDTH } },
                         { "ff.gate.weight", LLAMA, { WIDTH, HIDDEN } },
                         { "ff.up.weight", BOTH, { WIDTH, HIDDEN } },
                         { "ff.up.bias", GPT2, { HIDDEN } },
                         { "ff.down.weight", BOTH, { HIDDEN, WIDTH } },
                         { "ff.down.bias", GPT2, { WIDTH } } },
  last_parameters[] = { { "norm.weight", BOTH, { WIDTH } },
                        { "norm.bias", GPT2, { WIDTH } },
                        { "head.weight", UNTIED, { WIDTH, VOCABULARY } } };
enum {
    FIRST_PARAMETERS = sizeof first_parameters / sizeof *first_parameters,
    LAYER_PARAMETERS = sizeof layer_parameters / sizeof *layer_parameters,
    LAST_PARAMETERS = sizeof last_parameters / sizeof *last_parameters
};

static int64_t size_of(const gd_language_options *o, size_name name)
{
    switch (name) {
    case WIDTH:
        return o->width;
    case LENGTH:
        return o->max_length;
    case VOCABULARY:
        return o->vocabulary;
    case HIDDEN:
        return o->hidden;
    case QUERIES_KEYS_VALUES:
        return o->width + 2 * (o->width / o->heads * o->kv_heads);
    default:
        return 0;
    }
}

/* Those of a table that the model has, of layer number `layer`, -1: of none. */
static gd_status each_of(const gd_language_options *o, const struct parameter *table, int count,
                         int64_t layer, gd_language_each_fn each, void *user)
{
    int model = (o->decoder == GD_DECODER_GPT2 ? GPT2 : LLAMA) | (o->tied ? 0 : UNTIED);
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < count; i++) {
        char name[64];
        if (!(table[i].models & model))
            continue;
        if (layer >= 0)
            snprintf(name, sizeof name, "%lld.%s", (long long)layer, table[i].name);
        int64_t rows = size_of(o, table[i].dim[0]);
        gd_shape shape =
            table[i].dim[1] == NONE ? GD_SHAPE(rows) : GD_SHAPE(rows, size_of(o, table[i].dim[1]));
        status = each(user, layer >= 0 ? name : table[i].name, shape);
    }
    return status;
}

gd_status gd_language_each(const gd_language_options *o, gd_language_each_fn each, void *user)
{
    gd_status status = each_of(o, first_parameters, FIRST_PARAMETERS, -1, each, user);
    for (int64_t layer = 0; status == GD_OK && layer < o->layers; layer++)
        status = each_of(o, layer_parameters, LAYER_PARAMETERS, layer, each, user);
    return status == GD_OK ? each_of(o, last_parameters, LAST_PARAMETERS, -1, each, user) : status;
}

gd_status gd_language_check_shape(const char *path, const char *name, gd_shape got, gd_shape wanted)
{
    if (got.rank == wanted.rank && got.dim[0] == wanted.dim[0] &&
        (wanted.rank == 1 || got.dim[1] == wanted.dim[1]))
        return GD_OK;
    char text[64];
    if (wanted.rank == 2)
        snprintf(text, sizeof text, "[%lld, %lld]", (long long)wanted.dim[0],
                 (long long)wanted.dim[1]);
    else
        snprintf(text, sizeof text, "[%lld]", (long long)wanted.dim[0]);
    return gd_fail(GD_ERR_FORMAT, "%s: its \"%s\" is not %s, as a model of its sizes needs", path,
                   name, text);
}
