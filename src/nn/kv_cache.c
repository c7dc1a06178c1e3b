/* nn/kv_cache.c: the cache of keys and values, for generating token by token: a tensor [batch, heads, capacity, d] of each
 * for every layer of attention, by its path. Start at gd_kv_cache_append(). */
#include "nn/sequence.h"

#include "base/error.h"
#include "base/memory.h"
#include "nn/module.h"

#include <gradus/autograd.h>
#include <gradus/precision.h>

#include <string.h>

typedef struct cache_entry {
    char *name;
    // [batch, heads, capacity, d], retained
    gd_tensor *k, *v;
    // i8: [batch, heads, capacity, 1], by which a row of k or v is multiplied; else NULL
    gd_tensor *k_scale, *v_scale;
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

static void entry_release(cache_entry *entry)
{
    gd_release(entry->k);
    gd_release(entry->v);
    gd_release(entry->k_scale);
    gd_release(entry->v_scale);
    gd_free(entry->name);
}

static void cache_destroy(void *object)
{
    gd_kv_cache *cache = object;
    for (size_t i = 0; i < cache->count; i++)
        entry_release(&cache->entries[i]);
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
    if (!gd_dtype_is_float(dtype) && dtype != GD_I8)
        return gd_fail(GD_ERR_DTYPE,
                       "gd_kv_cache_set_dtype: %s; i8, or a dtype of floats, is needed",
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

/* [batch, heads, capacity, d], or d of 1. */
static gd_tensor *room_for(const gd_kv_cache *cache, gd_tensor *x, bool scale)
{
    gd_shape shape = gd_tensor_shape(x);
    shape.dim[2] = cache->capacity;
    shape.dim[3] = scale ? 1 : shape.dim[3];
    return gd_retain(gd_zeros(cache->context, shape,
                              scale             ? GD_F32
                              : cache->converts ? cache->dtype
                                                : gd_tensor_dtype(x)));
}

/* Room for tokens like those of k and v. */
static cache_entry *entry_add(gd_kv_cache *cache, const char *name, gd_tensor *k, gd_tensor *v)
{
    if (!gd_grow((void **)&cache->entries, &cache->room, cache->count + 1, sizeof *cache->entries))
        return NULL;
    const bool scaled = cache->converts && cache->dtype == GD_I8;
    cache_entry entry = { .name = gd_strdup(name),
                          .k = room_for(cache, k, false),
                          .v = room_for(cache, v, false),
                          .k_scale = scaled ? room_for(cache, k, true) : NULL,
                          .v_scale = scaled ? room_for(cache, v, true) : NULL };
    if (!entry.name || !entry.k || !entry.v || (scaled && (!entry.k_scale || !entry.v_scale))) {
        entry_release(&entry);
        return NULL;
    }
    cache->entries[cache->count] = entry;
    return &cache->entries[cache->count++];
}

static gd_status check_room(gd_tensor *all, gd_tensor *x, int64_t length)
{
    gd_shape has = gd_tensor_shape(all), more = gd_tensor_shape(x);
    if (has.dim[0] == more.dim[0] && has.dim[1] == more.dim[1] && has.dim[3] == more.dim[3] &&
        length + more.dim[2] <= has.dim[2])
        return GD_OK;
    char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
    return gd_fail(GD_ERR_SHAPE,
                   "the cache holds %lld tokens of %s, %s more do not fit: other sizes, or beyond "
                   "its capacity",
                   (long long)length, gd_nn_shape_text(has, a), gd_nn_shape_text(more, b));
}

/* Write x behind the first `length` tokens of `all`, of which a view, with x, is the result. */
static gd_tensor *write_behind(gd_tensor *all, gd_tensor *x, int64_t length)
{
    const int64_t end = length + gd_tensor_shape(x).dim[2];
    if (!x || !gd_assign(gd_slice(all, 2, length, end, 1), x))
        return NULL;
    return gd_slice(all, 2, 0, end, 1);
}

/* In 8 bits, a scale s for each row: s = max |x| / 127 and q = x / s, rounded to nearest, ties to even; what is read is
 * q * s. A row of zeros has s = 0 and q = 0. Where x is not finite, s is not, and the row is NaN. *scale: all of them. */
static gd_tensor *append_scaled(gd_tensor *all, gd_tensor *scales, gd_tensor *x, int64_t length,
                                gd_tensor **scale)
{
    gd_tensor *plain = gd_cast(x, GD_F32);
    gd_tensor *of_x = gd_div_scalar(gd_max(gd_abs(plain), GD_AXES(-1), true), 127.0);
    gd_tensor *q = gd_cast(gd_round(gd_div(plain, of_x)), GD_I8);
    gd_tensor *all_q = write_behind(all, q, length);
    *scale = write_behind(scales, of_x, length);
    return all_q && *scale ? all_q : NULL;
}

/* Whether attention takes what the cache has beside x as it is: queries of f32. */
static bool reads_as_kept(const gd_kv_cache *cache, gd_tensor *x)
{
    return gd_tensor_dtype(x) == GD_F32 && gd_autocast_get(cache->context) == GD_F32;
}

/* x behind the first `length` tokens of `all`; all of them are the result: as they are kept, with *scale if that is in 8
 * bits, or in x's dtype, with *scale NULL. */
static gd_tensor *append(const gd_kv_cache *cache, gd_tensor *all, gd_tensor *scales, gd_tensor *x,
                         int64_t length, gd_tensor **scale)
{
    *scale = NULL;
    if (check_room(all, x, length) != GD_OK)
        return NULL;
    const gd_dtype dtype = gd_tensor_dtype(all), given = gd_tensor_dtype(x);
    gd_tensor *result = scales ? append_scaled(all, scales, x, length, scale)
                               : write_behind(all, dtype == given ? x : gd_cast(x, dtype), length);
    if (!result || dtype == given ||
        (reads_as_kept(cache, x) && (scales || dtype == GD_F16 || dtype == GD_BF16)))
        return result;
    gd_tensor *by = *scale;
    *scale = NULL;
    return gd_cast(by ? gd_mul(gd_cast(result, GD_F32), by) : result, given);
}

gd_status gd_kv_cache_append(gd_kv_cache *cache, const char *name, gd_kv *kv)
{
    if (gd_no_grad_begin(cache->context) != GD_OK)
        return gd_error_last();
    cache_entry *e = entry_find(cache, name);
    if (!e)
        e = entry_add(cache, name, kv->k, kv->v);
    gd_kv all = { NULL, NULL, NULL, NULL };
    if (e)
        all.k = append(cache, e->k, e->k_scale, kv->k, e->length, &all.k_scale);
    if (all.k)
        all.v = append(cache, e->v, e->v_scale, kv->v, e->length, &all.v_scale);
    (void)gd_no_grad_end(cache->context);
    if (!all.v)
        return gd_error_last();
    e->length += gd_tensor_shape(kv->k).dim[2];
    *kv = all;
    return GD_OK;
}
