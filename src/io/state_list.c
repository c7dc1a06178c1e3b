/* io/state_list.c: tensors by their names in files. */
#include "io/state_list.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/ops.h>

#include <string.h>

gd_status gd_state_add(gd_state_list *state, const char *prefix, const char *path,
                       const char *suffix, gd_tensor *tensor)
{
    if (!gd_grow((void **)&state->list, &state->capacity, state->count + 1, sizeof *state->list))
        return GD_ERR_MEMORY;
    size_t before = prefix ? strlen(prefix) : 0, middle = strlen(path);
    size_t after = suffix ? strlen(suffix) : 0;
    char *name = gd_alloc(before + middle + after + 1);
    if (!name)
        return GD_ERR_MEMORY;
    if (before)
        memcpy(name, prefix, before);
    memcpy(name + before, path, middle);
    if (after)
        memcpy(name + before + middle, suffix, after);
    name[before + middle + after] = '\0';
    state->list[state->count++] = (gd_state_entry){ .name = name, .tensor = tensor };
    return GD_OK;
}

void gd_state_list_free(gd_state_list *state)
{
    for (size_t i = 0; i < state->count; i++)
        gd_free(state->list[i].name);
    gd_free(state->list);
    *state = (gd_state_list){ 0 };
}

gd_state_entry *gd_state_find(const gd_state_list *state, const char *name)
{
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->list[i].name, name) == 0)
            return &state->list[i];
    return NULL;
}

/* Of the tensor's shape, and of a dtype that the owner takes for it. */
static bool fits(const gd_tensor_info *info, const gd_tensor *t, const gd_state_owner *owner)
{
    gd_shape shape = gd_tensor_shape(t);
    const gd_dtype dtype = gd_tensor_dtype(t);
    const bool converts = owner->takes_bf16 && gd_dtype_is_float(dtype) &&
                          gd_dtype_is_float(info->dtype) &&
                          (dtype == GD_BF16 || info->dtype == GD_BF16);
    bool same = info->shape.rank == shape.rank && (info->dtype == dtype || converts);
    for (int i = 0; same && i < shape.rank; i++)
        same = info->shape.dim[i] == shape.dim[i];
    return same;
}

/* A tensor of the file, for the owner. */
static gd_status read_one(gd_state_list *state, const gd_tensor_file *file, int64_t index,
                          const gd_tensor_info *info, const char *path, gd_context *context,
                          const gd_state_owner *owner)
{
    const uint64_t mark = gd_error_mark();
    gd_tensor *tensor = owner->find(owner->user, info->name + strlen(owner->prefix));
    if (!tensor && gd_error_since(mark) != GD_OK)
        return gd_error_last();
    if (!tensor)
        return gd_fail(GD_ERR_FORMAT, "%s: of another %s: it has a \"%s\"", path, owner->whose,
                       info->name);
    if (!fits(info, tensor, owner))
        return gd_fail(GD_ERR_FORMAT, "%s: of another model: its \"%s\" has another shape or dtype",
                       path, info->name);
    gd_status status = gd_state_add(state, NULL, info->name, NULL, tensor);
    if (status != GD_OK)
        return status;
    gd_tensor *value = gd_cast(gd_tensor_file_read(file, context, index), gd_tensor_dtype(tensor));
    state->list[state->count - 1].value = value;
    return value ? GD_OK : gd_error_last();
}

gd_status gd_state_read(gd_state_list *state, const gd_tensor_file *file, const char *path,
                        gd_context *context, const gd_state_owner *owner, const gd_state_list *has)
{
    for (size_t i = 0; i < has->count; i++)
        if (gd_tensor_file_find(file, has->list[i].name) < 0)
            return gd_fail(GD_ERR_FORMAT, "%s: of another %s: it has no \"%s\"", path, owner->whose,
                           has->list[i].name);
    size_t length = strlen(owner->prefix);
    gd_status status = GD_OK;
    for (int64_t i = 0; status == GD_OK && i < gd_tensor_file_count(file); i++) {
        gd_tensor_info info;
        status = gd_tensor_file_info(file, i, &info);
        if (status != GD_OK || strncmp(info.name, owner->prefix, length) != 0 ||
            (length == 0 && gd_is_training_state(info.name)))
            continue;
        status = read_one(state, file, i, &info, path, context, owner);
    }
    return status;
}

gd_status gd_state_assign(const gd_state_list *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (!gd_assign(state->list[i].tensor, state->list[i].value))
            return gd_error_last();
    return GD_OK;
}

bool gd_is_training_state(const char *name)
{
    return strncmp(name, GD_STATE_PREFIX, sizeof GD_STATE_PREFIX - 1) == 0;
}
