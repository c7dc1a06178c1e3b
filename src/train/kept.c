/* train/kept.c: a copy of all that training steps change. */
#include "train/kept.h"

#include "base/memory.h"
#include "nn/module_file.h"
#include "optim/state.h"

#include <gradus/compile.h>

static gd_status collect(gd_state_list *state, const gd_kept_of *of)
{
    gd_status status = gd_module_collect(gd_optimizer_module(of->optimizer), state);
    if (status == GD_OK)
        status = gd_optimizer_collect(of->optimizer, GD_STATE_PREFIX "optimizer/", state);
    if (status == GD_OK && of->ema)
        status = gd_ema_collect(of->ema, GD_STATE_PREFIX "average/", state);
    for (int i = 0; status == GD_OK && i < of->tensor_count; i++)
        status = gd_state_add(state, GD_STATE_PREFIX "tensors/", of->tensors[i].name, NULL,
                              of->tensors[i].tensor);
    return status;
}

static size_t bytes_of(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

static gd_status copy_values(gd_kept *kept)
{
    size_t size = 1, at = 0;
    for (size_t i = 0; i < kept->state.count; i++)
        size += bytes_of(kept->state.list[i].tensor);
    if (!gd_grow((void **)&kept->values, &kept->capacity, size, 1))
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < kept->state.count; i++) {
        size_t bytes = bytes_of(kept->state.list[i].tensor);
        status = gd_tensor_read(kept->state.list[i].tensor, kept->values + at, bytes);
        at += bytes;
    }
    return status;
}

gd_status gd_kept_take(gd_kept *kept, const gd_kept_of *of)
{
    kept->is_full = false;
    gd_state_list_free(&kept->state);
    gd_status status = collect(&kept->state, of);
    if (status == GD_OK)
        status = copy_values(kept);
    if (status != GD_OK)
        return status;
    kept->random = gd_random_position(gd_module_context(gd_optimizer_module(of->optimizer)));
    kept->lr = gd_optimizer_lr(of->optimizer);
    kept->position = gd_loader_position(of->loader);
    kept->is_full = true;
    return GD_OK;
}

gd_status gd_kept_restore(const gd_kept *kept, const gd_kept_of *of)
{
    if (!kept->is_full)
        return GD_OK;
    gd_context *context = gd_module_context(gd_optimizer_module(of->optimizer));
    gd_status status = GD_OK;
    size_t at = 0;
    for (size_t i = 0; status == GD_OK && i < kept->state.count; i++) {
        size_t bytes = bytes_of(kept->state.list[i].tensor);
        status = gd_tensor_write(kept->state.list[i].tensor, kept->values + at, bytes);
        at += bytes;
    }
    if (status == GD_OK)
        status = gd_optimizer_set_lr(of->optimizer, kept->lr);
    if (status == GD_OK)
        status = gd_random_seek(context, kept->random.seed, kept->random.position);
    return status == GD_OK ? gd_loader_seek(of->loader, kept->position) : status;
}

void gd_kept_free(gd_kept *kept)
{
    gd_state_list_free(&kept->state);
    gd_free(kept->values);
    *kept = (gd_kept){ 0 };
}
