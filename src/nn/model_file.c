/* nn/model_file.c: a model in one safetensors file: parameters and buffers as tensors, the description
 * as JSON and the dtype in the metadata. Start at gd_model_save() and gd_model_load(). */
#include "nn/model.h"

#include "base/error.h"
#include "nn/module_file.h"

#include <gradus/compile.h>
#include <gradus/io.h>

#include <string.h>

gd_status gd_model_save(const gd_model *model, const char *path)
{
    return model ? gd_module_write(model->module, model, path)
                 : gd_fail(GD_ERR_INVALID, "gd_model_save: the model is NULL");
}

/* What fills the module before its layers ask: only what the file has is ever allocated. */
typedef struct source_file {
    const gd_tensor_file *file;
    const char *path;
} source_file;

static gd_status take_file(void *user, gd_module *module)
{
    const source_file *source = user;
    gd_context *context = gd_module_context(module);
    gd_trace_pause(context);
    gd_status status = gd_scope_begin(context);
    if (status == GD_OK) {
        status = gd_module_take(module, source->file, source->path);
        (void)gd_scope_end(context);
    }
    gd_trace_resume(context);
    return status;
}

static gd_status read_dtype(const gd_tensor_file *file, const char *path, gd_dtype *dtype)
{
    const char *name = gd_tensor_file_metadata(file, "dtype");
    static const gd_dtype known[] = { GD_F32, GD_F64, GD_BF16 };
    *dtype = GD_F32;
    for (int i = 0; name && i < 3; i++)
        if (strcmp(name, gd_dtype_name(known[i])) == 0)
            *dtype = known[i];
    if (!name || strcmp(name, gd_dtype_name(*dtype)) == 0)
        return GD_OK;
    return gd_fail(GD_ERR_FORMAT, "%s: its parameters are %.32s, not f32, f64 or bf16", path, name);
}

static gd_model *read_model(gd_context *context, const gd_tensor_file *file, const char *path)
{
    static const char who[] = "gd_model_load";
    const char *json = gd_tensor_file_metadata(file, "model");
    gd_model_options o = { GD_MODEL_DEFAULTS };
    if (!json || json[strspn(json, " \t\r\n")] != '{')
        return gd_fail_null(GD_ERR_FORMAT,
                            "%s: it has no description of a model, as gd_model_save writes one",
                            path);
    if (read_dtype(file, path, &o.dtype) != GD_OK)
        return NULL;
    source_file from = { file, path };
    const gd_model_source source = { take_file, &from };
    gd_model *model = gd_model_read_json(context, who, json, &o, &source);
    if (!model || gd_module_order_by_use(model->module, path) == GD_OK)
        return model;
    gd_model_release(model);
    return NULL;
}

gd_model *gd_model_load(gd_context *context, const char *path)
{
    if (!context)
        return NULL;
    if (gd_is_tracing(context)) {
        (void)gd_fail_traced("gd_model_load");
        return NULL;
    }
    gd_tensor_file *file = gd_tensor_file_open(path);
    gd_model *model =
        file && gd_tensor_file_verify(file) == GD_OK ? read_model(context, file, path) : NULL;
    gd_tensor_file_close(file);
    return model;
}
