/* tests/fuzz/fuzz_model.h: what is done with a model that was accepted: it must run, and what is
 * written of it must be read back. */
#ifndef GD_TESTS_FUZZ_MODEL_H
#define GD_TESTS_FUZZ_MODEL_H

#include <gradus/gradus.h>

#include <stdlib.h>
#include <string.h>

/* A batch of two for input i: zeros where it is no float, for indices and lengths. */
static inline gd_tensor *fuzz_model_input(gd_context *gd, const gd_model *model, int i)
{
    gd_shape input = gd_model_input_shape(model, i),
             shape = { .rank = input.rank + 1, .dim = { 2 } };
    memcpy(shape.dim + 1, input.dim, sizeof(int64_t) * (size_t)input.rank);
    gd_dtype dtype = gd_model_input_dtype(model, i);
    return gd_dtype_is_float(dtype) ? gd_ones(gd, shape, GD_F32) : gd_zeros(gd, shape, dtype);
}

/* A forward pass. It may fail, since what fits a batch of one need not fit one of two: [batch] and
 * [batch, 4] are added. But then with an error. */
static inline void fuzz_run_model(gd_context *gd, gd_model *model)
{
    gd_tensor *in[GD_MODEL_MAX_INPUTS], *out[GD_MODEL_MAX_OUTPUTS];
    int count = gd_model_input_count(model);
    bool ok = true;
    for (int i = 0; i < count; i++)
        ok = (in[i] = fuzz_model_input(gd, model, i)) != NULL && ok;
    ok = ok && gd_model_forward_all(model, count, in, gd_model_output_count(model), out) == GD_OK;
    if (ok != (gd_error_code() == GD_OK))
        abort();
    gd_error_clear();
}

static inline void fuzz_use_model(gd_context *gd, gd_model *model)
{
    char summary[4096];
    size_t length = gd_model_format_json(model, NULL, 0);
    char *json = malloc(length + 1);
    if (!json || !length || gd_model_format_json(model, json, length + 1) != length)
        abort();
    gd_model *back = gd_model_load_json(gd, json);
    if (!back && gd_error_code() != GD_ERR_MEMORY)
        abort();
    gd_model_release(back);
    free(json);
    gd_error_clear();
    for (int i = 0; i < gd_model_layer_count(model); i++)
        if (!gd_model_layer_spec(model, i)->type || gd_model_layer_parameter_count(model, i) < 0)
            abort();
    fuzz_run_model(gd, model);
    (void)gd_module_summary(gd_model_module(model), summary, sizeof summary);
}

#endif
