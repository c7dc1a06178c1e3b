/* optim/state_file.c: an optimizer's state in a safetensors file: "<path>.<state>" for each state
 * of each parameter ("fc1.weight.m"), "step" and "product" where the rule has them. Start at
 * gd_optimizer_save() and gd_optimizer_load(). */
#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#include <gradus/compile.h>
#include <gradus/io.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what belongs in the file ---- */

typedef struct entry {
    char *name;
    gd_tensor *tensor; /* the optimizer's own, borrowed */
    gd_tensor *value;  /* read from a file */
} entry;

typedef struct entries {
    entry *list;
    size_t count, capacity;
} entries;

static void entries_free(entries *e)
{
    for (size_t i = 0; i < e->count; i++)
        gd_free(e->list[i].name);
    gd_free(e->list);
}

/* "<path>.<state>", or the path alone. */
static gd_status add(entries *e, const char *path, const char *state, gd_tensor *tensor)
{
    if (!gd_grow((void **)&e->list, &e->capacity, e->count + 1, sizeof *e->list))
        return GD_ERR_MEMORY;
    size_t size = strlen(path) + (state ? strlen(state) : 0) + 2;
    char *name = gd_alloc(size);
    if (!name)
        return GD_ERR_MEMORY;
    snprintf(name, size, "%s%s%s", path, state ? "." : "", state ? state : "");
    e->list[e->count++] = (entry){ .name = name, .tensor = tensor };
    return GD_OK;
}

/* All state there is. */
static gd_status collect(const gd_optimizer *o, entries *e)
{
    gd_status status = GD_OK;
    for (size_t i = 0; i < o->slot_count; i++)
        for (int k = 0; status == GD_OK && k < GD_RULE_MAX_STATES; k++)
            if (o->slots[i].state[k])
                status = add(e, gd_module_path(o->module, (int)i), o->rule->state_name[k],
                             o->slots[i].state[k]);
    if (status == GD_OK && o->count_tensor)
        status = add(e, "step", NULL, o->count_tensor);
    if (status == GD_OK && o->product_tensor)
        status = add(e, "product", NULL, o->product_tensor);
    return status;
}

gd_status gd_optimizer_save(const gd_optimizer *o, const char *path)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_save: the optimizer is NULL");
    entries e = { 0 };
    gd_named_tensor *list = NULL;
    gd_status status = collect(o, &e);
    if (status == GD_OK) {
        list = gd_alloc_zero(e.count + 1, sizeof *list);
        status = list ? GD_OK : GD_ERR_MEMORY;
    }
    for (size_t i = 0; status == GD_OK && i < e.count; i++)
        list[i] = (gd_named_tensor){ e.list[i].name, e.list[i].tensor };
    char lr[40];
    gd_snprintf(lr, sizeof lr, "%.17g", o->lr);
    const gd_metadata metadata[] = { { "producer", "gradus " GD_VERSION_STRING },
                                     { "optimizer", o->rule->name },
                                     { "lr", lr } };
    if (status == GD_OK)
        status = gd_tensors_save(path, (int64_t)e.count, list, 3, metadata);
    gd_free(list);
    entries_free(&e);
    return status;
}

/* ---- reading ---- */

static bool same_shape(const gd_tensor_info *info, const gd_tensor *t)
{
    gd_shape shape = gd_tensor_shape(t);
    bool same = info->shape.rank == shape.rank && info->dtype == gd_tensor_dtype(t);
    for (int i = 0; same && i < shape.rank; i++)
        same = info->shape.dim[i] == shape.dim[i];
    return same;
}

/* The optimizer's tensor of that name; a parameter's state is made when there is none yet. NULL:
 * there can be none, or the error is recorded. */
static gd_tensor *find(gd_optimizer *o, const char *name)
{
    if (strcmp(name, "step") == 0 && o->count_tensor)
        return o->count_tensor;
    if (strcmp(name, "product") == 0 && o->product_tensor)
        return o->product_tensor;
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < gd_module_count(o->module); i++) {
        const char *path = gd_module_path(o->module, i);
        size_t length = (size_t)(dot - name);
        if (strlen(path) != length || memcmp(path, name, length) != 0 ||
            !gd_module_is_parameter(o->module, i))
            continue;
        int states = o->rule->states(&gd_optimizer_group_of(o, i)->hyper);
        for (int k = 0; k < states; k++)
            if (strcmp(o->rule->state_name[k], dot + 1) == 0)
                return gd_optimizer_state(o, i, k);
    }
    return NULL;
}

/* Every tensor of the file, with the tensor it is for. */
static gd_status read_all(gd_optimizer *o, const gd_tensor_file *file, const char *path, entries *e)
{
    for (int64_t i = 0; i < gd_tensor_file_count(file); i++) {
        gd_tensor_info info;
        gd_status status = gd_tensor_file_info(file, i, &info);
        if (status != GD_OK)
            return status;
        const uint64_t mark = gd_error_mark();
        gd_tensor *tensor = find(o, info.name);
        if (!tensor && gd_error_since(mark) != GD_OK)
            return gd_error_last();
        if (!tensor)
            return gd_fail(GD_ERR_FORMAT, "%s: of another optimizer: it has a \"%s\"", path,
                           info.name);
        if (!same_shape(&info, tensor))
            return gd_fail(GD_ERR_FORMAT, "%s: of another model: its \"%s\" has another shape",
                           path, info.name);
        status = add(e, info.name, NULL, tensor);
        if (status != GD_OK)
            return status;
        e->list[e->count - 1].value = gd_tensor_file_read(file, o->context, i);
        if (!e->list[e->count - 1].value)
            return gd_error_last();
    }
    return GD_OK;
}

/* Whether the file has all of what the optimizer had before. */
static gd_status check_complete(const gd_tensor_file *file, const entries *before, const char *path)
{
    for (size_t i = 0; i < before->count; i++)
        if (gd_tensor_file_find(file, before->list[i].name) < 0)
            return gd_fail(GD_ERR_FORMAT, "%s: of another optimizer: it has no \"%s\"", path,
                           before->list[i].name);
    return GD_OK;
}

static gd_status load(gd_optimizer *o, const gd_tensor_file *file, const char *path)
{
    const char *name = gd_tensor_file_metadata(file, "optimizer");
    const char *lr = gd_tensor_file_metadata(file, "lr");
    if (!name || !lr || strcmp(name, o->rule->name) != 0)
        return gd_fail(GD_ERR_FORMAT, "%s: holds the state of %s, not of %s", path,
                       name ? name : "no optimizer", o->rule->name);
    if (!gd_optimizer_reserve(o))
        return GD_ERR_MEMORY;
    entries before = { 0 }, e = { 0 };
    gd_status status = collect(o, &before);
    if (status == GD_OK)
        status = check_complete(file, &before, path);
    if (status == GD_OK)
        status = read_all(o, file, path, &e);
    for (size_t i = 0; status == GD_OK && i < e.count; i++)
        if (!gd_assign(e.list[i].tensor, e.list[i].value))
            status = gd_error_last();
    if (status == GD_OK)
        status = gd_optimizer_set_lr(o, gd_strtod(lr, NULL));
    entries_free(&before);
    entries_free(&e);
    return status;
}

gd_status gd_optimizer_load(gd_optimizer *o, const char *path)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_load: the optimizer is NULL");
    if (gd_is_tracing(o->context))
        return gd_fail_traced("gd_optimizer_load");
    gd_tensor_file *file = gd_tensor_file_open(path);
    if (!file)
        return gd_error_last();
    gd_status status = gd_scope_begin(o->context);
    if (status == GD_OK) {
        status = load(o, file, path);
        (void)gd_scope_end(o->context);
    }
    gd_tensor_file_close(file);
    return status;
}
