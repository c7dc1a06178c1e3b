/* nn/attention.c: multi-head attention as a layer, the cache of keys and values, and what all
 * layers of sequences share. Start at gd_nn_multi_head_attention_with(). */
#include "nn/sequence.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "nn/module.h"

#include <gradus/autograd.h>

#include <stdio.h>
#include <string.h>

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

/* ---- the cache ---- */

typedef struct cache_entry {
    char *name;
    gd_tensor *k, *v; // [batch, heads, capacity, d], retained
    int64_t length;
} cache_entry;

struct gd_kv_cache {
    gd_context *context;
    int64_t capacity;
    bool converts; /* to `dtype`; else entries have that of what comes */
    gd_dtype dtype;
    cache_entry *entries;
    size_t count, room;
};

static void cache_destroy(void *object)
{
    gd_kv_cache *cache = object;
    for (size_t i = 0; i < cache->count; i++) {
        gd_release(cache->entries[i].k);
        gd_release(cache->entries[i].v);
        gd_free(cache->entries[i].name);
    }
    gd_free(cache->entries);
    gd_free(cache);
}

gd_kv_cache *gd_kv_cache_create(gd_context *context, int64_t capacity)
{
    if (!context)
        return NULL;
    if (capacity < 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_kv_cache_create: a capacity of %lld tokens",
                            (long long)capacity);
    gd_kv_cache *cache = gd_alloc_zero(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->context = context;
    cache->capacity = capacity;
    if (gd_context_adopt(cache->context, cache, cache_destroy) != GD_OK) {
        cache_destroy(cache);
        return NULL;
    }
    return cache;
}

void gd_kv_cache_release(gd_kv_cache *cache)
{
    if (!cache)
        return;
    gd_context_disown(cache->context, cache);
    cache_destroy(cache);
}

int64_t gd_kv_cache_length(const gd_kv_cache *cache)
{
    return cache && cache->count > 0 ? cache->entries[0].length : 0;
}

gd_status gd_kv_cache_set_dtype(gd_kv_cache *cache, gd_dtype dtype)
{
    if (!cache)
        return GD_OK;
    if (cache->count > 0)
        return gd_fail(GD_ERR_STATE, "gd_kv_cache_set_dtype: the cache has had tokens already");
    if (!gd_dtype_is_float(dtype))
        return gd_fail(GD_ERR_DTYPE, "gd_kv_cache_set_dtype: %s; a dtype of floats is needed",
                       gd_dtype_name(dtype));
    cache->dtype = dtype;
    cache->converts = true;
    return GD_OK;
}

gd_status gd_kv_cache_truncate(gd_kv_cache *cache, int64_t length)
{
    if (!cache)
        return GD_OK;
    if (length < 0 || length > gd_kv_cache_length(cache))
        return gd_fail(GD_ERR_INVALID, "gd_kv_cache_truncate: to %lld tokens, there are %lld",
                       (long long)length, (long long)gd_kv_cache_length(cache));
    for (size_t i = 0; i < cache->count; i++)
        cache->entries[i].length = length;
    return GD_OK;
}

static cache_entry *entry_find(const gd_kv_cache *cache, const char *name)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->entries[i].name, name) == 0)
            return &cache->entries[i];
    return NULL;
}

int64_t gd_kv_cache_length_of(const gd_kv_cache *cache, const char *name)
{
    const cache_entry *entry = cache ? entry_find(cache, name) : NULL;
    return entry ? entry->length : 0;
}

/* Room for tokens like those of k and v. */
static cache_entry *entry_add(gd_kv_cache *cache, const char *name, gd_tensor *k, gd_tensor *v)
{
    if (!gd_grow((void **)&cache->entries, &cache->room, cache->count + 1, sizeof *cache->entries))
        return NULL;
    gd_shape of_k = gd_tensor_shape(k), of_v = gd_tensor_shape(v);
    of_k.dim[2] = of_v.dim[2] = cache->capacity;
    const gd_dtype k_dtype = cache->converts ? cache->dtype : gd_tensor_dtype(k);
    const gd_dtype v_dtype = cache->converts ? cache->dtype : gd_tensor_dtype(v);
    cache_entry entry = { .name = gd_strdup(name),
                          .k = gd_retain(gd_zeros(cache->context, of_k, k_dtype)),
                          .v = gd_retain(gd_zeros(cache->context, of_v, v_dtype)) };
    if (!entry.name || !entry.k || !entry.v) {
        gd_release(entry.k);
        gd_release(entry.v);
        gd_free(entry.name);
        return NULL;
    }
    cache->entries[cache->count] = entry;
    return &cache->entries[cache->count++];
}

/* Write x behind the first `length` tokens of `all`, a view of which, with x, is the result; as x's
 * dtype, if `all` has another. */
static gd_tensor *append(gd_tensor *all, gd_tensor *x, int64_t length)
{
    int64_t end = length + gd_tensor_shape(x).dim[2];
    gd_shape has = gd_tensor_shape(all), more = gd_tensor_shape(x);
    if (has.dim[0] != more.dim[0] || has.dim[1] != more.dim[1] || has.dim[3] != more.dim[3] ||
        end > has.dim[2]) {
        char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE,
                            "the cache holds %lld tokens of %s, %s more do not fit: other sizes, "
                            "or beyond its capacity",
                            (long long)length, gd_nn_shape_text(has, a), gd_nn_shape_text(more, b));
    }
    const gd_dtype dtype = gd_tensor_dtype(all), given = gd_tensor_dtype(x);
    gd_tensor *kept = dtype == given ? x : gd_cast(x, dtype);
    if (!gd_assign(gd_slice(all, 2, length, end, 1), kept))
        return NULL;
    gd_tensor *result = gd_slice(all, 2, 0, end, 1);
    return dtype == given ? result : gd_cast(result, given);
}

gd_status gd_kv_cache_append(gd_kv_cache *cache, const char *name, gd_tensor **k, gd_tensor **v)
{
    if (gd_no_grad_begin(cache->context) != GD_OK)
        return gd_error_last();
    cache_entry *entry = entry_find(cache, name);
    if (!entry)
        entry = entry_add(cache, name, *k, *v);
    gd_tensor *all_k = entry ? append(entry->k, *k, entry->length) : NULL;
    gd_tensor *all_v = all_k ? append(entry->v, *v, entry->length) : NULL;
    (void)gd_no_grad_end(cache->context);
    if (!all_v)
        return gd_error_last();
    entry->length += gd_tensor_shape(*k).dim[2];
    *k = all_k;
    *v = all_v;
    return GD_OK;
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
    if (a.o.cache && gd_kv_cache_append(a.o.cache, name, &k, &v) != GD_OK)
        return NULL;
    double dropout = gd_module_is_training(m) ? a.o.dropout : 0;
    gd_tensor *r =
        gd_attention(q, k, v, .mask = a.o.mask, .causal = a.o.causal, .dropout = dropout);
    gd_shape shape = gd_tensor_shape(x);
    gd_tensor *joined =
        gd_reshape(gd_permute(r, GD_AXES(0, 2, 1, 3)),
                   GD_SHAPE(shape.dim[0], shape.dim[1], heads * a.o.value_head_width));
    return project_to(&a, "out", joined, shape.dim[2]);
}
