/* nn/layer_registry.c: types of layers of a user's own, of one context each. Start at
 * gd_layer_type_register_with(). */
#include "nn/layer_types.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <pthread.h>
#include <string.h>

/* The types of a context, owned by it. The list of all registries is shared by all threads; what a
 * registry holds is its context's, and so that of the thread that uses it. */
typedef struct registry {
    struct registry *next;
    gd_context *context;
    gd_layer_type **types; /* each by itself: models point to them */
    size_t count, capacity;
} registry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static registry *registries;

static registry *find(gd_context *context)
{
    pthread_mutex_lock(&lock);
    registry *r = registries;
    while (r && r->context != context)
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

static void free_type(gd_layer_type *type)
{
    if (type)
        gd_free((void *)(uintptr_t)type->name); /* ours, although the row shows it as const */
    gd_free(type);
}

static void destroy(void *object)
{
    registry *r = object;
    pthread_mutex_lock(&lock);
    for (registry **at = &registries; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < r->count; i++)
        free_type(r->types[i]);
    gd_free(r->types);
    gd_free(r);
}

static registry *find_or_make(gd_context *context)
{
    registry *r = find(context);
    if (r)
        return r;
    r = gd_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    r->context = context;
    if (gd_context_adopt(context, r, destroy) != GD_OK) {
        gd_free(r);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    r->next = registries;
    registries = r;
    pthread_mutex_unlock(&lock);
    return r;
}

const gd_layer_type *gd_custom_layer_type(gd_context *context, int i)
{
    const registry *r = find(context);
    return r && i >= 0 && (size_t)i < r->count ? r->types[i] : NULL;
}

/* The function of all types of users: calls theirs. */
static gd_tensor *build_custom(const gd_layer_args *a)
{
    const gd_layer_call call = { .module = a->module,
                                 .spec = a->spec,
                                 .count = a->n,
                                 .inputs = a->in,
                                 .mask = a->operand[GD_OPERAND_MASK],
                                 .lengths = a->operand[GD_OPERAND_LENGTHS],
                                 .memory_mask = a->operand[GD_OPERAND_MEMORY_MASK],
                                 .memory_lengths = a->operand[GD_OPERAND_MEMORY_LENGTHS],
                                 .target_mask = a->operand[GD_OPERAND_TARGET_MASK],
                                 .target_lengths = a->operand[GD_OPERAND_TARGET_LENGTHS] };
    gd_tensor *result = NULL;
    uint64_t mark = gd_error_mark();
    gd_status status = a->type->custom(a->type->user, &call, &result);
    if (status == GD_OK && result)
        return result;
    if (gd_error_since(mark) == GD_OK)
        (void)gd_fail(status == GD_OK ? GD_ERR_INVALID : status,
                      "the build function of the type %s",
                      status == GD_OK ? "gave no result" : gd_status_name(status));
    return NULL;
}

/* "units bias" as bits. */
static gd_status read_members(const char *who, const char *list, uint64_t *bits)
{
    *bits = 0;
    while (list && *list) {
        list += strspn(list, " ");
        size_t length = strcspn(list, " ");
        char name[64] = "";
        if (length && length < sizeof name)
            memcpy(name, list, length);
        const gd_spec_field *field = gd_field_find(&gd_layer_fields, name);
        if (length && !field)
            return gd_fail(GD_ERR_INVALID, "%s: a layer has no member \"%.*s\"", who,
                           length < sizeof name ? (int)length : (int)sizeof name - 1, list);
        if (length)
            *bits |= UINT64_C(1) << (field - gd_layer_fields.fields);
        list += length;
    }
    return GD_OK;
}

static gd_status read_row(gd_context *context, const char *name, const gd_layer_type_options *o,
                          gd_layer_type *row)
{
    static const char who[] = "gd_layer_type_register";
    if (!name || !*name)
        return gd_fail(GD_ERR_INVALID, "%s: the name is empty", who);
    if (gd_layer_type_find(context, name))
        return gd_fail(GD_ERR_INVALID, "%s: there is a type \"%s\" already", who, name);
    if (o->min_inputs < 1 || o->max_inputs < o->min_inputs || o->max_inputs > GD_LAYER_MAX_INPUTS)
        return gd_fail(GD_ERR_INVALID, "%s: \"%s\" takes %d to %d inputs; 1 to %d are allowed", who,
                       name, o->min_inputs, o->max_inputs, GD_LAYER_MAX_INPUTS);
    if (o->activation && (o->max_inputs > 1 || o->uses || o->needs))
        return gd_fail(GD_ERR_INVALID,
                       "%s: \"%s\" is an activation, which takes one input and nothing else", who,
                       name);
    row->min_inputs = o->min_inputs;
    row->max_inputs = o->max_inputs;
    row->is_activation = o->activation;
    row->maps = o->activation ? GD_MAPS_AS_INPUT : GD_MAPS_NO;
    row->has_layers = !o->activation;
    gd_status status = read_members(who, o->uses, &row->uses);
    if (status == GD_OK)
        status = read_members(who, o->needs, &row->needs);
    row->uses |= row->needs;
    return status;
}

gd_status gd_layer_type_register_with(gd_context *context, const char *name,
                                      gd_layer_build_fn build, void *user,
                                      const gd_layer_type_options *options)
{
    gd_layer_type_options o = { GD_LAYER_TYPE_DEFAULTS };
    if (!context || !build)
        return gd_fail(GD_ERR_INVALID, "gd_layer_type_register: the %s is NULL",
                       context ? "function" : "context");
    if (!gd_options_read("gd_layer_type_register", &o, sizeof o, options))
        return gd_error_last();
    gd_layer_type row = { .build = build_custom, .custom = build, .user = user };
    gd_status status = read_row(context, name, &o, &row);
    registry *r = status == GD_OK ? find_or_make(context) : NULL;
    if (!r)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    gd_layer_type *type = gd_alloc_zero(1, sizeof *type);
    if (!type)
        return GD_ERR_MEMORY;
    *type = row;
    type->name = gd_strdup(name);
    if (!type->name || !gd_grow((void **)&r->types, &r->capacity, r->count + 1, sizeof *r->types)) {
        free_type(type);
        return GD_ERR_MEMORY;
    }
    r->types[r->count++] = type;
    return GD_OK;
}
