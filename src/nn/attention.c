/* nn/attention.c: multi-head attention as a layer, and what all layers of sequences share. Start at gd_nn_multi_head_attention_with(). */
#include "nn/sequence.h"

#include "base/error.h"
#include "base/options.h"
#include "nn/module.h"

#include <stdio.h>

/* ---- shared ---- */

const char *gd_nn_path(char text[GD_NN_PATH], const char *name, const char *part)
{
    bool has_name = name && *name;
    int length =
        snprintf(text, GD_NN_PATH, "%s%s%s", has_name ? name : "", has_name ? "." : "", part);
    if (length >= 0 && length < GD_NN_PATH)
        return text;
    return gd_fail_null(GD_ERR_INVALID, "the name of a layer is too long: \"%.40s…\"", name);
}

const char *gd_nn_path_number(char text[GD_NN_PATH], const char *name, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    return gd_nn_path(text, name, digits);
}

gd_tensor *gd_nn_drop(const gd_module *m, gd_tensor *x, double p)
{
    return p > 0 && gd_module_is_training(m) ? gd_dropout(x, p) : x;
}

/* ---- multi-head attention ---- */

/* Columns [from, from + heads * width) of x [batch, t, ..] as heads: [batch, heads, t, width]. */
static gd_tensor *heads_of(gd_tensor *x, int64_t from, int64_t heads, int64_t width)
{
    gd_shape shape = gd_tensor_shape(x);
    gd_tensor *part =
        shape.dim[2] == heads * width ? x : gd_slice(x, 2, from, from + heads * width, 1);
    gd_tensor *split = gd_reshape(part, GD_SHAPE(shape.dim[0], shape.dim[1], heads, width));
    return gd_permute(split, GD_AXES(0, 2, 1, 3));
}

/* One use of the layer, with its options read. */
typedef struct attention {
    gd_module *module;
    const char *name;
    gd_tensor *x; // [batch, t, width]
    int64_t heads;
    gd_nn_multi_head_attention_options o;
} attention;

static bool rotates(const attention *a)
{
    return a->o.position == GD_POSITION_ROTARY || a->o.position == GD_POSITION_ROTARY_HALVES;
}

static gd_tensor *project_to(const attention *a, const char *part, gd_tensor *x, int64_t units)
{
    char path[GD_NN_PATH];
    return gd_nn_linear(a->module, gd_nn_path(path, a->name, part), x, units, .bias = a->o.bias);
}

/* q, k and v [batch, heads, t, width]: of one source by one product, as far as they have one. */
static bool project(const attention *a, gd_tensor **q, gd_tensor **k, gd_tensor **v)
{
    int64_t d = a->o.head_width, dv = a->o.value_head_width, h = a->heads, g = a->o.kv_heads;
    if (a->o.value) {
        gd_tensor *keys = a->o.memory ? a->o.memory : a->x;
        *q = heads_of(project_to(a, "q", a->x, h * d), 0, h, d);
        *k = heads_of(project_to(a, "k", keys, g * d), 0, g, d);
        *v = heads_of(project_to(a, "v", a->o.value, g * dv), 0, g, dv);
    } else if (a->o.memory) {
        gd_tensor *both = project_to(a, "kv", a->o.memory, g * (d + dv));
        *q = heads_of(project_to(a, "q", a->x, h * d), 0, h, d);
        *k = heads_of(both, 0, g, d);
        *v = heads_of(both, g * d, g, dv);
    } else {
        gd_tensor *all = project_to(a, "qkv", a->x, (h + g) * d + g * dv);
        *q = heads_of(all, 0, h, d);
        *k = heads_of(all, h * d, g, d);
        *v = heads_of(all, (h + g) * d, g, dv);
    }
    if (rotates(a)) {
        bool halves = a->o.position == GD_POSITION_ROTARY_HALVES;
        int64_t start = gd_kv_cache_length_of(a->o.cache, a->name);
        *q = gd_rope(*q, .start = start, .rotary_base = a->o.rotary_base, .halves = halves);
        *k = gd_rope(*k, .start = start, .rotary_base = a->o.rotary_base, .halves = halves);
    }
    return *q && *k && *v;
}

/* Whether x is [batch, time, width], memory and value likewise with x's batch, and value with as
 * many steps as the keys. */
static bool sources_fit(const attention *a)
{
    gd_shape x = gd_tensor_shape(a->x), memory = gd_tensor_shape(a->o.memory);
    gd_shape value = gd_tensor_shape(a->o.value), keys = a->o.memory ? memory : x;
    if (x.rank == 3 && keys.rank == 3 && keys.dim[0] == x.dim[0] &&
        (!a->o.value ||
         (value.rank == 3 && value.dim[0] == x.dim[0] && value.dim[1] == keys.dim[1])))
        return true;
    char text[3][GD_NN_SHAPE_TEXT];
    (void)gd_fail(GD_ERR_SHAPE,
                  "gd_nn_multi_head_attention: \"%s\" is given %s, memory %s and value %s; [batch, "
                  "time, width] with equal batches are needed, and a value for each key",
                  a->name ? a->name : "", gd_nn_shape_text(x, text[0]),
                  a->o.memory ? gd_nn_shape_text(memory, text[1]) : "none",
                  a->o.value ? gd_nn_shape_text(value, text[2]) : "none");
    return false;
}

/* Whether all fits; what the options leave to others is a number then. */
static bool check(attention *a)
{
    gd_nn_multi_head_attention_options *o = &a->o;
    if (!sources_fit(a))
        return false;
    int64_t width = gd_tensor_shape(a->x).dim[2];
    const char *name = a->name ? a->name : "";
    if (o->kv_heads == -1)
        o->kv_heads = a->heads;
    if (o->head_width == -1 && a->heads > 0 && width % a->heads == 0)
        o->head_width = width / a->heads;
    if (o->value_head_width == -1)
        o->value_head_width = o->head_width;
    if (!*name || a->heads < 1 || o->kv_heads < 1 || o->head_width < 1 || o->value_head_width < 1 ||
        a->heads % o->kv_heads != 0 || a->heads > GD_NN_LARGEST || o->head_width > GD_NN_LARGEST ||
        o->value_head_width > GD_NN_LARGEST) {
        (void)gd_fail(GD_ERR_INVALID,
                      "gd_nn_multi_head_attention: \"%s\": %lld heads, %lld of keys, %lld wide, of "
                      "values %lld, do not fit each other or a width of %lld",
                      name, (long long)a->heads, (long long)o->kv_heads, (long long)o->head_width,
                      (long long)o->value_head_width, (long long)width);
    } else if (o->memory && (o->cache || rotates(a))) {
        (void)gd_fail(GD_ERR_INVALID,
                      "gd_nn_multi_head_attention: \"%s\": with memory there is no cache and no "
                      "rotation",
                      name);
    } else {
        return true;
    }
    return false;
}

gd_tensor *gd_nn_multi_head_attention_with(gd_module *m, const char *name, gd_tensor *x,
                                           int64_t heads,
                                           const gd_nn_multi_head_attention_options *options)
{
    attention a = { m, name, x, heads, { GD_NN_MULTI_HEAD_ATTENTION_DEFAULTS } };
    gd_tensor *q, *k, *v;
    if (!m || !x || !gd_options_read("gd_nn_multi_head_attention", &a.o, sizeof a.o, options) ||
        !check(&a) || !project(&a, &q, &k, &v))
        return NULL;
    gd_kv kv = { k, v, NULL, NULL };
    if (a.o.cache && gd_kv_cache_append(a.o.cache, name, &kv) != GD_OK)
        return NULL;
    double dropout = gd_module_is_training(m) ? a.o.dropout : 0;
    gd_tensor *r = gd_attention(q, kv.k, kv.v, .mask = a.o.mask, .causal = a.o.causal,
                                .dropout = dropout, .k_scale = kv.k_scale, .v_scale = kv.v_scale);
    gd_shape shape = gd_tensor_shape(x);
    gd_tensor *joined =
        gd_reshape(gd_permute(r, GD_AXES(0, 2, 1, 3)),
                   GD_SHAPE(shape.dim[0], shape.dim[1], heads * a.o.value_head_width));
    return project_to(&a, "out", joined, shape.dim[2]);
}
