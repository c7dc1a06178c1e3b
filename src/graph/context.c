/* graph/context.c: opening and closing a context, its settings, what it owns, and reading and
 * writing tensors' values. */
#include "graph/apply.h"
#include "graph/context.h"
#include "graph/node.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/threads.h"
#include "tensor/element.h"
#include "tensor/format.h"

gd_status gd_fail_in_use(const char *who)
{
    return gd_fail(GD_ERR_STATE,
                   "%s%s: the context is in use by another thread; a context is used by one thread "
                   "at a time",
                   strncmp(who, "gd_", 3) == 0 ? "" : "gd_", who);
}

static void *pool_alloc(void *user, size_t bytes)
{
    gd_device *device = user;
    return device->backend->memory_alloc(device, bytes);
}

static void pool_release(void *user, void *memory, size_t bytes)
{
    gd_device *device = user;
    device->backend->memory_free(device, memory, bytes);
}

static bool has_numbers(const gd_backend *backend, gd_numbers numbers)
{
    return numbers <= GD_NUMBERS_EXACT || backend->has_libraries ||
           (numbers == GD_NUMBERS_FAST && backend->has_fast);
}

static gd_status open_parts(gd_context *context, const char *device, const gd_open_options *o)
{
    int index;
    const gd_backend *backend = gd_backend_find(device, &index);
    char names[GD_DEVICE_NAMES];
    if (!backend)
        return gd_fail(GD_ERR_INVALID, "gd_open: no device is called \"%s\"; there are %s", device,
                       gd_device_names(names));
    if (o->threads != -1 && (o->threads < 1 || o->threads > GD_MAX_THREADS))
        return gd_fail(GD_ERR_INVALID, "gd_open: %d threads; 1 to %d can be used, -1 chooses",
                       o->threads, GD_MAX_THREADS);
    if (o->numbers < GD_NUMBERS_DEFAULT || o->numbers > GD_NUMBERS_FAST)
        return gd_fail(GD_ERR_INVALID,
                       "gd_open: numbers %d; they are exact (%d), library (%d), tf32 (%d) or fast "
                       "(%d)",
                       (int)o->numbers, GD_NUMBERS_EXACT, GD_NUMBERS_LIBRARY, GD_NUMBERS_TF32,
                       GD_NUMBERS_FAST);
    if (!has_numbers(backend, o->numbers))
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "gd_open: %s computes with the engine's own kernels alone, whose numbers "
                       "are exact%s; library and tf32 can be had on cuda, fast on cpu and cuda",
                       backend->name, backend->has_fast ? " or fast" : "");
    context->device = backend->open(o, index);
    if (!context->device)
        return gd_error_last();
    gd_pool_source source = { pool_alloc, pool_release, context->device,
                              context->device->alignment };
    context->pool = gd_pool_open(source, o->memory_limit);
    if (!context->pool)
        return GD_ERR_MEMORY;
    int64_t state[2] = { (int64_t)o->seed, 0 };
    gd_tensor *random_state = gd_from_host(context, GD_SHAPE(2), GD_I64, state);
    context->random_state = gd_retain(gd_set_name(random_state, "random state"));
    return context->random_state ? GD_OK : GD_ERR_MEMORY;
}

gd_context *gd_open_with(const char *device, const gd_open_options *options)
{
    gd_open_options o = { GD_OPEN_DEFAULTS };
    if (!gd_options_read("gd_open", &o, sizeof o, options))
        return NULL;
    if (!device)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_open: the device's name is NULL; \"cpu\" is always there");
    gd_context *context = gd_alloc_zero(1, sizeof *context);
    if (!context)
        return NULL;
    context->scope = &context->root;
    context->random_seed = o.seed;
    context->warn_leaks = o.warn_leaks;
    if (open_parts(context, device, &o) != GD_OK) {
        gd_close(context);
        return NULL;
    }
    return context;
}

void gd_close(gd_context *context)
{
    if (!context)
        return;
    gd_release_listed(context);
    while (context->owned_count) {
        gd_owned last = context->owned[--context->owned_count];
        last.destroy(last.object);
    }
    gd_free(context->owned);
    gd_scope_clear_root(context);
    while (context->deferred)
        context->deferred->destroy(context->deferred);
    gd_mappings_free(context);
    gd_release(context->random_state);
    if (context->warn_leaks)
        gd_warn_leaks(context);
    while (context->names)
        gd_name_free(context->names->text);
    if (context->pool)
        gd_pool_close(context->pool);
    if (context->device)
        context->device->backend->close(context->device);
    gd_arena_close(&context->slabs);
    gd_free(context);
}

static void count_uses(void *user, const gd_tensor *t)
{
    *(int64_t *)user += t->retained + (t->mapped != 0);
}

bool gd_close_if_unused(gd_context *context)
{
    if (!context || atomic_load_explicit(&context->user, memory_order_acquire))
        return false;
    gd_release_listed(context);
    int64_t uses = -1; /* random_state is the context's own */
    gd_each_alive(context, count_uses, &uses);
    if (uses > 0 || context->owned_count || context->trace)
        return false;
    gd_close(context);
    return true;
}

gd_status gd_context_adopt(gd_context *context, void *object, void (*destroy)(void *object))
{
    if (!context || !object || !destroy)
        return gd_fail(GD_ERR_INVALID, "gd_context_adopt: an argument is NULL");
    if (!gd_grow((void **)&context->owned, &context->owned_capacity, context->owned_count + 1,
                 sizeof(gd_owned)))
        return GD_ERR_MEMORY;
    context->owned[context->owned_count++] = (gd_owned){ object, destroy };
    return GD_OK;
}

void gd_context_disown(gd_context *context, void *object)
{
    for (size_t i = context ? context->owned_count : 0; i-- > 0;)
        if (context->owned[i].object == object) {
            size_t after = context->owned_count - i - 1;
            memmove(&context->owned[i], &context->owned[i + 1], after * sizeof(gd_owned));
            context->owned_count--;
            return;
        }
}

const char *gd_context_device(const gd_context *context)
{
    return context ? context->device->name : "";
}

const char *gd_context_isa(const gd_context *context)
{
    return context ? context->device->isa : "";
}

const char *gd_context_extensions(const gd_context *context)
{
    return context && context->device->extensions ? context->device->extensions : "";
}

int gd_context_threads(const gd_context *context)
{
    return context ? context->device->threads : 0;
}

gd_status gd_context_set_threads(gd_context *context, int threads)
{
    if (!context || threads < 1 || threads > GD_MAX_THREADS)
        return gd_fail(GD_ERR_INVALID, "gd_context_set_threads: %d threads; 1 to %d can be used",
                       threads, GD_MAX_THREADS);
    return context->device->backend->set_threads(context->device, threads);
}

bool gd_context_has_host_memory(const gd_context *context)
{
    return context && context->device->host_memory;
}

gd_status gd_synchronize(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_synchronize: the context is NULL");
    if (context->trace)
        return gd_fail_traced("gd_synchronize");
    return gd_device_synchronize(context->device);
}

gd_memory_stats gd_memory(const gd_context *context)
{
    gd_memory_stats stats = { 0 };
    if (context) {
        gd_pool_stats(context->pool, &stats);
        stats.live_tensors = context->live_tensors;
    }
    return stats;
}

gd_device_memory_size gd_device_memory(const gd_context *context)
{
    gd_device_memory_size size = { 0, 0 };
    if (context && context->device->backend->memory_size)
        context->device->backend->memory_size(context->device, &size.total, &size.available);
    return size;
}

void gd_memory_reset_peak(gd_context *context)
{
    if (context)
        gd_pool_reset_peak(context->pool);
}

void gd_memory_trim(gd_context *context)
{
    if (!context)
        return;
    gd_mappings_trim(context);
    gd_pool_trim(context->pool);
}

gd_status gd_set_memory_callback(gd_context *context, gd_memory_callback callback, void *user)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_set_memory_callback: the context is NULL");
    context->memory_callback = callback;
    context->memory_user = user;
    return GD_OK;
}

gd_status gd_no_grad_begin(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_no_grad_begin: the context is NULL");
    context->no_grad++;
    return GD_OK;
}

gd_status gd_no_grad_end(gd_context *context)
{
    if (!context || context->no_grad == 0)
        return gd_fail(GD_ERR_STATE, "gd_no_grad_end: without gd_no_grad_begin");
    context->no_grad--;
    return GD_OK;
}

/* ---- the random stream ---- */

gd_status gd_random_publish(gd_context *context)
{
    int64_t state[2] = { (int64_t)context->random_seed, (int64_t)context->random_position };
    return context->device->backend->memory_write(
        context->device, context->random_state->storage->data, state, sizeof state);
}

gd_status gd_random_seek(gd_context *context, uint64_t seed, uint64_t position)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_random_seek: the context is NULL");
    if (context->trace)
        return gd_fail_traced("gd_random_seek");
    context->random_seed = seed;
    context->random_position = position;
    return GD_OK;
}

gd_random_stream gd_random_position(const gd_context *context)
{
    gd_random_stream none = { 0, 0 };
    if (!context) {
        (void)gd_fail(GD_ERR_INVALID, "gd_random_position: the context is NULL");
        return none;
    }
    if (context->trace) {
        (void)gd_fail_traced("gd_random_position");
        return none;
    }
    return (gd_random_stream){ context->random_seed, context->random_position };
}

gd_status gd_seed(gd_context *context, uint64_t seed)
{
    return GD_AS("gd_seed", gd_random_seek(context, seed, 0));
}

/* ---- asking ---- */

gd_context *gd_tensor_context(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_context") ? t->context : NULL;
}

gd_shape gd_tensor_shape(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_shape") ? gd_layout_shape(&t->layout) : GD_SCALAR;
}

gd_shape gd_tensor_strides(const gd_tensor *t)
{
    gd_shape strides = GD_SCALAR;
    if (gd_usable(t, "gd_tensor_strides")) {
        strides.rank = t->layout.rank;
        memcpy(strides.dim, t->layout.stride, sizeof(int64_t) * (size_t)t->layout.rank);
    }
    return strides;
}

gd_dtype gd_tensor_dtype(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_dtype") ? t->layout.dtype : GD_F32;
}

int64_t gd_tensor_count(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_count") ? gd_layout_count(&t->layout) : 0;
}

bool gd_tensor_is_contiguous(const gd_tensor *t)
{
    return gd_usable(t, "gd_tensor_is_contiguous") && gd_layout_is_contiguous(&t->layout);
}

bool gd_requires_grad(const gd_tensor *t)
{
    return gd_usable(t, "gd_requires_grad") && t->requires_grad;
}

void gd_name_free(char *name)
{
    if (!name)
        return;
    gd_name *own = (gd_name *)(void *)(name - offsetof(gd_name, text));
    *own->link = own->next;
    if (own->next)
        own->next->link = own->link;
    gd_free(own);
}

gd_tensor *gd_set_name(gd_tensor *t, const char *name)
{
    if (!gd_usable(t, "gd_set_name"))
        return NULL;
    if (!name)
        return t;
    if (name[0] == '\0') {
        gd_name_free(t->name);
        t->name = NULL;
        return t;
    }
    gd_name *own = gd_alloc(sizeof *own);
    if (!own)
        return NULL;
    snprintf(own->text, sizeof own->text, "%s", name);
    gd_name_free(t->name);
    own->next = t->context->names;
    own->link = &t->context->names;
    if (own->next)
        own->next->link = &own->next;
    t->context->names = own;
    t->name = own->text;
    return t;
}

/* ---- values in and out ---- */

void *gd_tensor_data(gd_tensor *t)
{
    if (!gd_usable(t, "gd_tensor_data"))
        return NULL;
    if (t->context->trace)
        (void)gd_fail_traced("gd_tensor_data");
    else if (!t->context->device->host_memory)
        (void)gd_fail(GD_ERR_UNSUPPORTED,
                      "gd_tensor_data: the host cannot reach the memory of device %s; use "
                      "gd_tensor_map, gd_tensor_read or gd_tensor_write",
                      t->context->device->name);
    else if (t->storage) {
        t->storage->is_pinned = t->storage->is_exposed = true;
        return gd_node_data(t);
    }
    return NULL;
}

gd_status gd_check_value(const gd_tensor *t, const char *who)
{
    if (!t)
        return gd_fail(GD_ERR_INVALID, "%s: the tensor is NULL", who);
    if (!gd_usable(t, who) || gd_check_free(t->context, who) != GD_OK)
        return GD_ERR_STATE;
    if (!t->storage)
        return gd_fail(GD_ERR_STATE,
                       "%s: the tensor has no value while its function is being traced; gd_output "
                       "it and read it after the call",
                       who);
    if (t->context->trace)
        return gd_fail_traced(who);
    return GD_OK;
}

static gd_status check_transfer(const gd_tensor *t, const void *host, size_t bytes, const char *who)
{
    if (gd_check_value(t, who) != GD_OK)
        return gd_error_last();
    if (!host && bytes)
        return gd_fail(GD_ERR_INVALID, "%s: the memory is NULL", who);
    size_t need = gd_layout_bytes(&t->layout);
    if (bytes != need) {
        char text[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "%s: %zu bytes given, a tensor %s %s has %zu", who, bytes,
                       gd_dtype_name(t->layout.dtype), gd_layout_text(&t->layout, text), need);
    }
    return GD_OK;
}

gd_status gd_tensor_modified(gd_tensor *t)
{
    gd_status status = gd_check_value(t, "gd_tensor_modified");
    if (status == GD_OK)
        t->storage->version++;
    return status;
}

static gd_status read_values(const gd_tensor *t, void *out, size_t bytes)
{
    gd_context *context = t->context;
    const gd_backend *backend = context->device->backend;
    if (gd_layout_is_contiguous(&t->layout))
        return backend->memory_read(context->device, out, gd_node_data(t), bytes);
    gd_status status = gd_scope_begin(context);
    if (status == GD_OK) {
        gd_tensor *row_major = gd_apply1(GD_OP_copy, (gd_tensor *)(uintptr_t)t, NULL);
        status = row_major
                     ? backend->memory_read(context->device, out, gd_node_data(row_major), bytes)
                     : gd_error_last();
        (void)gd_scope_end(context);
    }
    return status;
}

static gd_status write_values(gd_tensor *t, const void *data, size_t bytes)
{
    gd_context *context = t->context;
    if (gd_layout_is_contiguous(&t->layout)) {
        t->storage->version++;
        return context->device->backend->memory_write(context->device, gd_node_data(t), data,
                                                      bytes);
    }
    gd_status status = gd_scope_begin(context);
    if (status == GD_OK) {
        gd_tensor *value = gd_from_host(context, gd_tensor_shape(t), t->layout.dtype, data);
        status = value ? gd_store(t, value) : gd_error_last();
        (void)gd_scope_end(context);
    }
    return status;
}

gd_status gd_tensor_read(const gd_tensor *t, void *out, size_t bytes)
{
    if (check_transfer(t, out, bytes, "gd_tensor_read") != GD_OK)
        return gd_error_last();
    gd_use use;
    gd_status status = gd_use_begin(&use, t->context, "gd_tensor_read");
    if (status == GD_OK && bytes > 0)
        status = read_values(t, out, bytes);
    gd_use_end(&use);
    return status;
}

gd_status gd_tensor_write(gd_tensor *t, const void *data, size_t bytes)
{
    if (check_transfer(t, data, bytes, "gd_tensor_write") != GD_OK)
        return gd_error_last();
    gd_use use;
    gd_status status = gd_use_begin(&use, t->context, "gd_tensor_write");
    if (status == GD_OK && bytes > 0)
        status = write_values(t, data, bytes);
    gd_use_end(&use);
    return status;
}

gd_tensor *gd_from_host(gd_context *context, gd_shape shape, gd_dtype dtype, const void *data)
{
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_from_host: the context is NULL");
    gd_layout layout;
    if (gd_layout_init(&layout, shape, dtype, "gd_from_host") != GD_OK)
        return NULL;
    size_t bytes = gd_layout_bytes(&layout);
    if (!data && bytes)
        return gd_fail_null(GD_ERR_INVALID, "gd_from_host: the memory is NULL");
    if (gd_check_free(context, "gd_from_host") != GD_OK)
        return NULL;
    gd_storage *storage = gd_storage_new(context, bytes);
    if (!storage)
        return NULL;
    if (bytes && context->device->backend->memory_write(context->device, storage->data, data,
                                                        bytes) != GD_OK) {
        gd_storage_drop(context, storage);
        return NULL;
    }
    return gd_leaf_new(context, &layout, storage);
}

gd_tensor *gd_from_host_in_place(gd_context *context, gd_shape shape, gd_dtype dtype, void *data,
                                 void (*release)(void *user), void *user)
{
    if (!context || !data)
        return gd_fail_null(GD_ERR_INVALID, "gd_from_host_in_place: an argument is NULL");
    if (!context->device->host_memory)
        return gd_fail_null(GD_ERR_UNSUPPORTED,
                            "gd_from_host_in_place: device %s cannot use host memory in place",
                            context->device->name);
    gd_layout layout;
    if (gd_layout_init(&layout, shape, dtype, "gd_from_host_in_place") != GD_OK)
        return NULL;
    if ((uintptr_t)data % gd_dtype_size(dtype))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_from_host_in_place: the memory is not aligned for %s",
                            gd_dtype_name(dtype));
    /* The caller's release runs only once the tensor exists: on failure the memory stays the
     * caller's. */
    gd_storage *storage = gd_storage_wrap(context, data, gd_layout_bytes(&layout), NULL, NULL);
    gd_tensor *t = storage ? gd_leaf_new(context, &layout, storage) : NULL;
    if (t) {
        storage->release = release;
        storage->user = user;
    }
    return t;
}

double gd_item(const gd_tensor *t)
{
    if (gd_check_value(t, "gd_item") != GD_OK)
        return NAN;
    if (gd_layout_count(&t->layout) != 1) {
        char text[GD_SHAPE_TEXT];
        (void)gd_fail(GD_ERR_SHAPE, "gd_item: a tensor %s has not exactly one element",
                      gd_layout_text(&t->layout, text));
        return NAN;
    }
    unsigned char raw[8];
    if (gd_tensor_read(t, raw, gd_dtype_size(t->layout.dtype)) != GD_OK)
        return NAN;
    return gd_element_as_double(t->layout.dtype, raw);
}

size_t gd_tensor_format(const gd_tensor *t, char *text, size_t size)
{
    bool is_usable = gd_usable(t, "gd_tensor_format");
    if (!is_usable || !t->storage) {
        const char *what = is_usable ? "(traced: no value yet)" : t ? "(released)" : "(null)";
        return (size_t)snprintf(text, size, "%s", what);
    }
    if (t->context->device->host_memory)
        return gd_format_array(&t->layout, gd_node_data(t), text, size);
    gd_layout layout;
    size_t bytes = gd_layout_bytes(&t->layout), length = 0;
    void *copy = gd_alloc(bytes + 1);
    if (copy && gd_tensor_read(t, copy, bytes) == GD_OK &&
        gd_layout_init(&layout, gd_layout_shape(&t->layout), t->layout.dtype, "gd_tensor_format") ==
            GD_OK)
        length = gd_format_array(&layout, copy, text, size);
    gd_free(copy);
    return length;
}
