/* optim/state_file.c: an optimizer's state and averages as named tensors, and an optimizer's in a
 * safetensors file: "<path>.<state>" for each state of each parameter ("fc1.weight.m"), "step" and
 * "product" where the rule has them, "loss_scale" where losses are scaled. Start at gd_optimizer_save() and gd_optimizer_load(). */
#include "optim/optimizer.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "optim/state.h"

#include <gradus/compile.h>
#include <gradus/io.h>

#include <stdio.h>
#include <string.h>

gd_status gd_optimizer_collect(const gd_optimizer *o, const char *prefix, gd_state_list *state)
{
    gd_status status = GD_OK;
    for (size_t i = 0; i < o->slot_count; i++)
        for (int k = 0; status == GD_OK && k < GD_RULE_MAX_STATES; k++) {
            char suffix[40];
            if (!o->slots[i].state[k])
                continue;
            snprintf(suffix, sizeof suffix, ".%s", o->rule->state_name[k]);
            status = gd_state_add(state, prefix, gd_module_path(o->module, (int)i), suffix,
                                  o->slots[i].state[k]);
        }
    if (status == GD_OK && o->count_tensor)
        status = gd_state_add(state, prefix, "step", NULL, o->count_tensor);
    if (status == GD_OK && o->product_tensor)
        status = gd_state_add(state, prefix, "product", NULL, o->product_tensor);
    if (status == GD_OK && o->scale_tensor)
        status = gd_state_add(state, prefix, "loss_scale", NULL, o->scale_tensor);
    return status;
}

gd_status gd_optimizer_save(const gd_optimizer *o, const char *path)
{
    if (!o)
        return gd_fail(GD_ERR_INVALID, "gd_optimizer_save: the optimizer is NULL");
    gd_state_list state = { 0 };
    gd_named_tensor *list = NULL;
    gd_status status = gd_optimizer_collect(o, NULL, &state);
    if (status == GD_OK) {
        list = gd_alloc_zero(state.count + 1, sizeof *list);
        status = list ? GD_OK : GD_ERR_MEMORY;
    }
    for (size_t i = 0; status == GD_OK && i < state.count; i++)
        list[i] = (gd_named_tensor){ state.list[i].name, state.list[i].tensor };
    char lr[40];
    gd_snprintf(lr, sizeof lr, "%.17g", o->lr);
    const gd_metadata metadata[] = { { "producer", "gradus " GD_VERSION_STRING },
                                     { "optimizer", o->rule->name },
                                     { "lr", lr } };
    if (status == GD_OK)
        status = gd_tensors_save(path, (int64_t)state.count, list, 3, metadata);
    gd_free(list);
    gd_state_list_free(&state);
    return status;
}

/* ---- reading ---- */

/* The optimizer's tensor of that name; a parameter's state is made when there is none yet. NULL:
 * there can be none, or the error is recorded. */
static gd_tensor *find(void *user, const char *name)
{
    gd_optimizer *o = user;
    if (strcmp(name, "step") == 0 && o->count_tensor)
        return o->count_tensor;
    if (strcmp(name, "product") == 0 && o->product_tensor)
        return o->product_tensor;
    if (strcmp(name, "loss_scale") == 0 && o->scale_tensor)
        return o->scale_tensor;
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

gd_status gd_optimizer_read(gd_optimizer *o, const char *prefix, const gd_tensor_file *file,
                            const char *path, gd_state_list *state, double *lr)
{
    const char *name = gd_tensor_file_metadata(file, "optimizer");
    const char *text = gd_tensor_file_metadata(file, "lr");
    if (!name || !text || strcmp(name, o->rule->name) != 0)
        return gd_fail(GD_ERR_FORMAT, "%s: holds the state of %s, not of %s", path,
                       name ? name : "no optimizer", o->rule->name);
    *lr = gd_strtod(text, NULL);
    if (!gd_optimizer_reserve(o))
        return GD_ERR_MEMORY;
    gd_state_list has = { 0 };
    const gd_state_owner owner = {
        .prefix = prefix, .whose = "optimizer", .find = find, .user = o, .takes_bf16 = true
    };
    gd_status status = gd_optimizer_collect(o, prefix, &has);
    if (status == GD_OK)
        status = gd_state_read(state, file, path, o->context, &owner, &has);
    gd_state_list_free(&has);
    return status;
}

static gd_status load(gd_optimizer *o, const gd_tensor_file *file, const char *path)
{
    double lr;
    gd_state_list state = { 0 };
    gd_status status = gd_tensor_file_verify(file);
    if (status == GD_OK)
        status = gd_optimizer_read(o, "", file, path, &state, &lr);
    if (status == GD_OK)
        status = gd_state_assign(&state);
    if (status == GD_OK)
        status = gd_optimizer_set_lr(o, lr);
    gd_state_list_free(&state);
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
