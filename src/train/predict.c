/* train/predict.c: a model's forward pass, compiled once, for batches and for whole loaders. */
#include "train/meter.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <string.h>

struct gd_predictor {
    gd_model *model;
    gd_context *context;
    gd_function *function;
};

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    gd_predictor *p = user;
    int outputs = gd_model_output_count(p->model);
    gd_tensor *out[GD_MODEL_MAX_OUTPUTS];
    if (gd_model_forward_all(p->model, count, in, outputs, out) != GD_OK)
        return NULL;
    for (int i = 1; i < outputs; i++)
        (void)gd_output(out[i]);
    return out[0];
}

static void destroy(void *object)
{
    gd_predictor *p = object;
    gd_function_release(p->function);
    gd_free(p);
}

void gd_predictor_release(gd_predictor *p)
{
    if (!p)
        return;
    gd_context_disown(p->context, p);
    destroy(p);
}

gd_predictor *gd_predictor_create(gd_model *model)
{
    if (!model)
        return NULL;
    gd_predictor *p = gd_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->model = model;
    p->context = gd_module_context(gd_model_module(model));
    p->function = gd_compile(p->context, body, p, .detached = true);
    if (p->function && gd_context_adopt(p->context, p, destroy) == GD_OK)
        return p;
    destroy(p);
    return NULL;
}

static gd_status check(const gd_predictor *p, const char *who, int outputs, const void *list)
{
    if (!p || !list)
        return gd_fail(GD_ERR_INVALID, "%s: an argument is NULL", who);
    int count = gd_model_output_count(p->model);
    return outputs == count ? GD_OK
                            : gd_fail(GD_ERR_INVALID, "%s: the model has %d outputs, not %d", who,
                                      count, outputs);
}

/* The function's results, which the next call overwrites. */
static gd_status run(gd_predictor *p, int count, gd_tensor *const *inputs)
{
    gd_module *module = gd_model_module(p->model);
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, false);
    (void)gd_no_grad_begin(p->context);
    gd_tensor *first = gd_call(p->function, count, inputs);
    (void)gd_no_grad_end(p->context);
    gd_module_set_training(module, was_training);
    return first ? GD_OK : gd_error_last();
}

gd_status gd_predict(gd_predictor *p, int count, gd_tensor *const *inputs, int output_count,
                     gd_tensor **outputs)
{
    gd_status status = check(p, "gd_predict", output_count, outputs);
    for (int i = 0; outputs && i < output_count; i++)
        outputs[i] = NULL;
    if (status == GD_OK)
        status = run(p, count, inputs);
    for (int i = 0; status == GD_OK && i < output_count; i++)
        if (!(outputs[i] = gd_copy(gd_function_result(p->function, i))))
            status = gd_error_last();
    return status;
}

/* ---- whole loaders ---- */

/* Results of all samples, in host memory until all are there. */
typedef struct rows {
    unsigned char *values[GD_MODEL_MAX_OUTPUTS];
    gd_shape shape[GD_MODEL_MAX_OUTPUTS];
    gd_dtype dtype[GD_MODEL_MAX_OUTPUTS];
    size_t bytes[GD_MODEL_MAX_OUTPUTS]; /* of one sample */
    int64_t done, samples;
} rows;

static gd_status add_batch(gd_predictor *p, rows *r, const gd_batch *b)
{
    gd_status status = run(p, gd_model_input_count(p->model), b->tensors);
    for (int i = 0; status == GD_OK && i < gd_model_output_count(p->model); i++) {
        gd_tensor *t = gd_function_result(p->function, i);
        gd_shape shape = gd_tensor_shape(t);
        size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
        if (!r->values[i]) {
            r->shape[i] = shape;
            r->dtype[i] = gd_tensor_dtype(t);
            r->bytes[i] = bytes / (size_t)b->size;
            r->values[i] = gd_alloc(r->bytes[i] * (size_t)r->samples + 1);
        }
        if (!r->values[i])
            return GD_ERR_MEMORY;
        shape.dim[0] = r->shape[i].dim[0];
        if (shape.rank != r->shape[i].rank || r->done + b->size > r->samples ||
            memcmp(shape.dim, r->shape[i].dim, sizeof(int64_t) * (size_t)shape.rank) != 0)
            return gd_fail(GD_ERR_SHAPE, "gd_predict_loader: results of batches differ in shape");
        status = gd_tensor_read(t, r->values[i] + r->bytes[i] * (size_t)r->done, bytes);
    }
    r->done += b->size;
    return status;
}

static gd_status read_epoch(gd_predictor *p, rows *r, gd_loader *loader)
{
    gd_status status = gd_loader_seek(loader, 0);
    for (int64_t i = gd_loader_batches(loader); status == GD_OK && i > 0; i--) {
        gd_batch b;
        if (!gd_loader_next_batch(loader, &b))
            return gd_error_last();
        status = b.count < gd_model_input_count(p->model)
                     ? gd_fail(GD_ERR_INVALID,
                               "gd_predict_loader: batches have %d tensors, fewer "
                               "than the model has inputs",
                               b.count)
                     : add_batch(p, r, &b);
    }
    return status;
}

gd_status gd_predict_loader(gd_predictor *p, gd_loader *loader, int output_count,
                            gd_tensor **outputs)
{
    gd_status status = check(p, "gd_predict_loader", output_count, outputs);
    for (int i = 0; outputs && i < output_count; i++)
        outputs[i] = NULL;
    if (status != GD_OK || !loader)
        return status != GD_OK ? status
                               : gd_fail(GD_ERR_INVALID, "gd_predict_loader: the loader is NULL");
    rows r = { .samples = gd_loader_samples(loader) };
    int64_t position = gd_loader_position(loader);
    status = read_epoch(p, &r, loader);
    if (status == GD_OK)
        status = gd_loader_seek(loader, position);
    for (int i = 0; i < output_count; i++) {
        r.shape[i].dim[0] = r.done;
        if (status == GD_OK && r.values[i] &&
            !(outputs[i] = gd_from_host(p->context, r.shape[i], r.dtype[i], r.values[i])))
            status = gd_error_last();
        gd_free(r.values[i]);
    }
    return status;
}
