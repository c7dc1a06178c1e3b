/* train/evaluate.c: loss and accuracy over a whole data set, with the same model function that
 * training uses. */
#include "train/meter.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

gd_tensor *gd_default_loss(void *user, gd_tensor *logits, gd_tensor *target)
{
    (void)user;
    return gd_cross_entropy(logits, target);
}

/* Forward and metrics of a batch: in[0] samples, in[1] targets. */
static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    gd_evaluator *e = user;
    gd_context *context = gd_tensor_context(in[0]);
    (void)gd_no_grad_begin(context);
    gd_tensor *logits = e->forward(e->user, in[0]);
    gd_tensor *loss = logits ? e->loss(e->loss_user, logits, in[1]) : NULL;
    bool ok = gd_meter_add(&e->meter, logits, in[1], loss);
    (void)gd_no_grad_end(context);
    return ok ? loss : NULL;
}

bool gd_evaluator_open(gd_evaluator *e)
{
    if (!e->loss)
        e->loss = gd_default_loss;
    gd_context *context = gd_module_context(e->module);
    if (!gd_meter_open(&e->meter, context))
        return false;
    e->function = gd_compile(context, body, e, .mode = e->mode, .detached = true);
    return e->function != NULL;
}

void gd_evaluator_close(gd_evaluator *e)
{
    gd_function_release(e->function);
    gd_meter_close(&e->meter);
}

gd_status gd_evaluator_run(gd_evaluator *e, gd_metrics *out)
{
    gd_module *module = e->module;
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, false);
    gd_status status = gd_meter_reset(&e->meter);
    int64_t batches = 0;
    const uint64_t mark = gd_error_mark();
    for (gd_batch b; status == GD_OK && gd_loader_next(e->loader, &b); batches++) {
        if (!gd_call(e->function, b.count, b.tensors))
            status = gd_error_last();
        e->meter.samples += b.size;
    }
    if (status == GD_OK && batches < gd_loader_batches(e->loader))
        status = gd_error_since(mark); /* the loader failed */
    gd_module_set_training(module, was_training);
    if (status == GD_OK)
        *out = gd_meter_read(&e->meter);
    return status;
}

gd_status gd_evaluate_with(gd_module *module, gd_forward_fn forward, void *user, gd_loader *loader,
                           gd_metrics *result, const gd_evaluate_options *options)
{
    gd_evaluate_options o = { GD_EVALUATE_DEFAULTS };
    if (!gd_options_read("gd_evaluate", &o, sizeof o, options))
        return gd_error_last();
    if (!module || !forward || !loader || !result)
        return gd_fail(GD_ERR_INVALID,
                       "gd_evaluate: module, forward, loader and result are needed");
    *result = (gd_metrics){ 0 };
    gd_evaluator e = { .module = module,
                       .forward = forward,
                       .user = user,
                       .loader = loader,
                       .loss = o.loss,
                       .loss_user = o.loss_user,
                       .mode = o.mode };
    gd_status status = gd_evaluator_open(&e) ? gd_evaluator_run(&e, result) : gd_error_last();
    gd_evaluator_close(&e);
    return status;
}
