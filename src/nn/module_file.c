/* nn/module_file.c: modules in safetensors files. Start at gd_module_save() and gd_module_load().
 */
#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"
#include "nn/module_file.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/io.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

/* ---- paths, each with an end of line, as metadata: of all, and of those that are buffers ---- */

static char *list_paths(const gd_module *m, bool buffers_alone)
{
    size_t size = 1;
    for (size_t i = 0; i < m->entry_count; i++)
        size += strlen(m->entries[i].path) + 1;
    char *list = gd_alloc(size), *at = list;
    if (!list)
        return NULL;
    *at = '\0';
    for (size_t i = 0; i < m->entry_count; i++)
        if (!buffers_alone || !m->entries[i].parameter)
            at += sprintf(at, "%s\n", m->entries[i].path);
    return list;
}

static bool lists(const char *list, const char *path)
{
    size_t length = strlen(path);
    for (const char *at = list; at && *at; at = strchr(at, '\n') + 1) {
        const char *end = strchr(at, '\n');
        if (!end)
            return false;
        if ((size_t)(end - at) == length && memcmp(at, path, length) == 0)
            return true;
    }
    return false;
}

gd_status gd_module_describe(const gd_module *m, const gd_model *model, gd_module_strings *strings)
{
    *strings = (gd_module_strings){ .buffers = list_paths(m, true), .order = list_paths(m, false) };
    bool ok = strings->buffers && strings->order;
    size_t size = model ? gd_model_format_json(model, NULL, 0) : 0;
    if (ok && model)
        ok = size && (strings->model = gd_alloc(size + 1)) &&
             gd_model_format_json(model, strings->model, size + 1) == size;
    gd_metadata *list = strings->list;
    list[strings->count++] = (gd_metadata){ "producer", "gradus " GD_VERSION_STRING };
    list[strings->count++] = (gd_metadata){ "buffers", strings->buffers };
    list[strings->count++] = (gd_metadata){ "order", strings->order };
    if (model) {
        list[strings->count++] = (gd_metadata){ "model", strings->model };
        list[strings->count++] = (gd_metadata){ "dtype", gd_dtype_name(m->dtype) };
    }
    if (!ok)
        gd_module_strings_free(strings);
    return ok ? GD_OK : gd_error_last();
}

void gd_module_strings_free(gd_module_strings *strings)
{
    gd_free(strings->buffers);
    gd_free(strings->order);
    gd_free(strings->model);
    *strings = (gd_module_strings){ 0 };
}

gd_status gd_module_write(const gd_module *m, const gd_model *model, const char *path)
{
    gd_named_tensor *list = gd_alloc_zero(m->entry_count + 1, sizeof *list);
    if (!list)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < m->entry_count; i++)
        list[i] = (gd_named_tensor){ m->entries[i].path, m->entries[i].tensor };
    gd_module_strings strings;
    gd_status status = gd_module_describe(m, model, &strings);
    if (status == GD_OK)
        status = gd_tensors_save(path, (int64_t)m->entry_count, list, strings.count, strings.list);
    gd_module_strings_free(&strings);
    gd_free(list);
    return status;
}

gd_status gd_module_save(const gd_module *m, const char *path)
{
    return m ? gd_module_write(m, NULL, path)
             : gd_fail(GD_ERR_INVALID, "gd_module_save: the module is NULL");
}

gd_status gd_module_collect(const gd_module *m, gd_state_list *state)
{
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < m->entry_count; i++) {
        if (gd_is_training_state(m->entries[i].path))
            return gd_fail(
                GD_ERR_INVALID,
                "\"%s\": no parameter of a training that is saved may be called " GD_STATE_PREFIX
                "...",
                m->entries[i].path);
        status = gd_state_add(state, NULL, m->entries[i].path, NULL, m->entries[i].tensor);
    }
    return status;
}

static gd_tensor *find(void *user, const char *name)
{
    const gd_module *m = user;
    int i = gd_names_find(&m->paths, name);
    return i >= 0 ? m->entries[i].tensor : NULL;
}

gd_status gd_module_read(gd_module *m, const gd_tensor_file *file, const char *path,
                         gd_state_list *state)
{
    gd_state_list has = { 0 };
    const gd_state_owner owner = { .prefix = "", .whose = "model", .find = find, .user = m };
    gd_status status = gd_module_collect(m, &has);
    if (status == GD_OK)
        status = gd_state_read(state, file, path, m->context, &owner, &has);
    gd_state_list_free(&has);
    return status;
}

uint64_t gd_module_random_position(const gd_module *m)
{
    return m->random.next;
}

void gd_module_random_seek(gd_module *m, uint64_t position)
{
    m->random.next = position;
}

/* ---- into a module that has its parameters ---- */

static bool same_shape(gd_shape a, gd_shape b)
{
    bool same = a.rank == b.rank;
    for (int i = 0; same && i < a.rank; i++)
        same = a.dim[i] == b.dim[i];
    return same;
}

static bool converts(gd_dtype from, gd_dtype to)
{
    return from == to || (gd_dtype_is_float(from) && gd_dtype_is_float(to));
}

/* One tensor of the module against the file. */
static gd_status check_entry(const gd_module_entry *entry, const gd_tensor_file *file,
                             const char *path)
{
    char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
    gd_shape shape = gd_tensor_shape(entry->tensor);
    gd_dtype dtype = gd_tensor_dtype(entry->tensor);
    int64_t index = gd_tensor_file_find(file, entry->path);
    if (index < 0)
        return gd_fail(GD_ERR_FORMAT, "%s: of another model: it has no \"%s\" (%s %s)", path,
                       entry->path, gd_dtype_name(dtype), gd_nn_shape_text(shape, a));
    gd_tensor_info info;
    gd_status status = gd_tensor_file_info(file, index, &info);
    if (status == GD_OK && (!converts(info.dtype, dtype) || !same_shape(info.shape, shape)))
        status = gd_fail(GD_ERR_FORMAT,
                         "%s: of another model: its \"%s\" is %s %s, the module's is %s %s", path,
                         entry->path, gd_dtype_name(info.dtype), gd_nn_shape_text(info.shape, a),
                         gd_dtype_name(dtype), gd_nn_shape_text(shape, b));
    return status;
}

static gd_status check_all(const gd_module *m, const gd_tensor_file *file, const char *path)
{
    for (size_t i = 0; i < m->entry_count; i++) {
        gd_status status = check_entry(&m->entries[i], file, path);
        if (status != GD_OK)
            return status;
    }
    for (int64_t i = 0; i < gd_tensor_file_count(file); i++) {
        gd_tensor_info info;
        gd_status status = gd_tensor_file_info(file, i, &info);
        if (status != GD_OK)
            return status;
        if (gd_names_find(&m->paths, info.name) < 0 && !gd_is_training_state(info.name))
            return gd_fail(GD_ERR_FORMAT,
                           "%s: of another model: it has a \"%s\", which the module has not", path,
                           info.name);
    }
    return GD_OK;
}

/* Read everything, then put it in place, so that a failure changes nothing. */
static gd_status replace_values(gd_module *m, const gd_tensor_file *file)
{
    gd_tensor **values = gd_alloc_zero(m->entry_count, sizeof(gd_tensor *));
    if (!values)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < m->entry_count; i++) {
        int64_t index = gd_tensor_file_find(file, m->entries[i].path);
        values[i] = gd_module_convert(gd_tensor_file_read(file, m->context, index),
                                      gd_tensor_dtype(m->entries[i].tensor));
        if (!values[i])
            status = gd_error_last();
    }
    for (size_t i = 0; status == GD_OK && i < m->entry_count; i++)
        if (!gd_assign(m->entries[i].tensor, values[i]))
            status = gd_error_last();
    gd_free(values);
    return status;
}

/* ---- into an empty one ---- */

/* A tensor of the file as a parameter or a buffer of the module. */
static gd_status take_one(gd_module *m, const gd_tensor_file *file, int64_t index,
                          const char *buffers)
{
    gd_tensor_info info;
    gd_status status = gd_tensor_file_info(file, index, &info);
    if (status != GD_OK || gd_is_training_state(info.name))
        return status;
    gd_tensor *t = gd_tensor_file_read(file, m->context, index);
    bool parameter = gd_dtype_is_float(info.dtype) && !lists(buffers, info.name);
    if (parameter)
        t = gd_cast(t, m->dtype);
    t = gd_set_name(t, info.name);
    if (t && parameter)
        t = gd_set_requires_grad(t, true);
    return gd_module_entry_add(m, info.name, t, parameter, false);
}

/* In the order in which the module that was saved had made them, as far as the file tells. */
static gd_status take_in_order(gd_module *m, const gd_tensor_file *file)
{
    const char *buffers = gd_tensor_file_metadata(file, "buffers");
    const char *order = gd_tensor_file_metadata(file, "order");
    int64_t count = gd_tensor_file_count(file);
    bool *taken = gd_alloc_zero((size_t)count + 1, sizeof *taken);
    char *list = order ? gd_strdup(order) : NULL;
    gd_status status = taken && (list || !order) ? GD_OK : GD_ERR_MEMORY;
    for (char *at = list, *end; status == GD_OK && at && (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        int64_t index = gd_tensor_file_find(file, at);
        if (index < 0 || taken[index])
            continue;
        taken[index] = true;
        status = take_one(m, file, index, buffers);
    }
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        if (!taken[i])
            status = take_one(m, file, i, buffers);
    gd_free(list);
    gd_free(taken);
    return status;
}

gd_status gd_module_take(gd_module *m, const gd_tensor_file *file, const char *path)
{
    gd_status status = take_in_order(m, file);
    if (status == GD_OK) {
        m->loaded_from = gd_strdup(path);
        status = m->loaded_from ? GD_OK : GD_ERR_MEMORY;
    }
    if (status != GD_OK) {
        for (size_t i = 0; i < m->entry_count; i++) {
            gd_release(m->entries[i].tensor);
            gd_free(m->entries[i].path);
        }
        m->entry_count = 0;
        gd_names_clear(&m->paths);
    }
    return status;
}

gd_status gd_module_load(gd_module *m, const char *path)
{
    if (!m)
        return gd_fail(GD_ERR_INVALID, "gd_module_load: the module is NULL");
    if (gd_is_tracing(m->context))
        return gd_fail_traced("gd_module_load");
    gd_tensor_file *file = gd_tensor_file_open(path);
    if (!file)
        return gd_error_last();
    gd_status status = gd_tensor_file_verify(file);
    if (status == GD_OK)
        status = gd_scope_begin(m->context);
    if (status == GD_OK) {
        if (m->entry_count == 0) {
            status = gd_module_take(m, file, path);
        } else {
            status = check_all(m, file, path);
            if (status == GD_OK)
                status = replace_values(m, file);
        }
        (void)gd_scope_end(m->context);
    }
    gd_tensor_file_close(file);
    return status;
}
