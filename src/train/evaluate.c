/* train/evaluate.c: loss and accuracy over a whole data set, with the same model function that
 * training uses. */
#include "train/meter.h"

#include "base/error.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

/* Forward and metrics of a batch: in[0] samples, in[1] targets. */
static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_evaluator *e = user;
    gd_context *context = gd_tensor_context(in[0]);
    (void)gd_no_grad_begin(context);
    gd_tensor *logits = e->options.forward(e->options.forward_user, in[0]);
    gd_tensor *loss = logits ? e->options.loss(logits, in[1]) : NULL;
    bool ok = gd_meter_add(&e->meter, logits, in[1], loss);
    (void)gd_no_grad_end(context);
    return ok ? loss : NULL;
}

bool gd_evaluator_open(gd_evaluator *e, gd_evaluate_options options)
{
    *e = (gd_evaluator){ .options = options };
    if (!options.loss)
        e->options.loss = gd_cross_entropy;
    gd_context *context = gd_module_context(options.module);
    if (!gd_meter_open(&e->meter, context))
        return false;
    e->function = gd_compile(context, body, e, .mode = options.mode, .detached = true);
    return e->function != NULL;
}

void gd_evaluator_close(gd_evaluator *e)
{
    gd_function_release(e->function);
    gd_meter_close(&e->meter);
}

gd_status gd_evaluator_run(gd_evaluator *e, gd_metrics *out)
{
    gd_module *module = e->options.module;
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, false);
    gd_status status = gd_meter_reset(&e->meter);
    int64_t batches = 0;
    const uint64_t mark = gd_error_mark();
    for (gd_batch b; status == GD_OK && gd_loader_next(e->options.data, &b); batches++) {
        if (!gd_call(e->function, b.count, b.tensors))
            status = gd_error_last();
        e->meter.samples += b.size;
    }
    if (status == GD_OK && batches < gd_loader_batches(e->options.data))
        status = gd_error_since(mark); /* the loader failed */
    gd_module_set_training(module, was_training);
    if (status == GD_OK)
        *out = gd_meter_read(&e->meter);
    return status;
}

gd_status gd_evaluate_with(gd_evaluate_options options)
{
    if (!options.module || !options.forward || !options.data || !options.result)
        return gd_fail(GD_ERR_INVALID, "gd_evaluate: module, forward, data and .result are needed");
    *options.result = (gd_metrics){ 0 };
    gd_evaluator e;
    gd_status status =
        gd_evaluator_open(&e, options) ? gd_evaluator_run(&e, options.result) : gd_error_last();
    gd_evaluator_close(&e);
    return status;
}
