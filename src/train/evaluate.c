/* train/evaluate.c: loss and metrics over a whole loader, by the same objective that is trained. */
#include "train/meter.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/autograd.h>

bool gd_loader_next_batch(gd_loader *loader, gd_batch *batch)
{
    const uint64_t mark = gd_error_mark();
    if (gd_loader_next(loader, batch))
        return true;
    return gd_error_since(mark) == GD_OK && gd_loader_next(loader, batch);
}

static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    gd_evaluator *e = user;
    gd_context *context = gd_tensor_context(in[0]);
    (void)gd_no_grad_begin(context);
    gd_tensor *loss = gd_objective_run(e->objective, e->user, &e->meter, false, count, in);
    (void)gd_no_grad_end(context);
    return loss;
}

bool gd_evaluator_open(gd_evaluator *e)
{
    gd_context *context = gd_module_context(e->module);
    gd_meter_open(&e->meter, context, e->precision);
    e->function = gd_compile(context, body, e, .mode = e->mode, .detached = true);
    return e->function != NULL;
}

void gd_evaluator_close(gd_evaluator *e)
{
    gd_function_release(e->function);
    gd_meter_close(&e->meter);
}

/* An epoch from its first batch on. */
static gd_status run_epoch(gd_evaluator *e)
{
    gd_status status = gd_loader_seek(e->loader, 0);
    const int64_t batches = gd_loader_batches(e->loader);
    for (int64_t i = 0; status == GD_OK && i < batches; i++) {
        gd_batch b;
        if (!gd_loader_next_batch(e->loader, &b) || !gd_call(e->function, b.count, b.tensors))
            return gd_error_last();
        e->meter.samples += b.size;
        if (e->after_batch && i + 1 < batches)
            status = e->after_batch(e->fit, i + 1, batches);
    }
    return status;
}

gd_status gd_evaluator_try(gd_evaluator *e)
{
    bool was_training = gd_module_is_training(e->module);
    int64_t position = gd_loader_position(e->loader);
    gd_batch b;
    gd_module_set_training(e->module, false);
    gd_status status = gd_loader_seek(e->loader, 0);
    if (status == GD_OK &&
        (!gd_loader_next_batch(e->loader, &b) || !gd_call(e->function, b.count, b.tensors)))
        status = gd_error_last();
    gd_module_set_training(e->module, was_training);
    return status == GD_OK ? gd_loader_seek(e->loader, position) : status;
}

gd_status gd_evaluator_run(gd_evaluator *e, gd_metrics *out)
{
    bool was_training = gd_module_is_training(e->module);
    int64_t position = gd_loader_position(e->loader);
    gd_module_set_training(e->module, false);
    gd_status status = gd_meter_reset(&e->meter);
    if (status == GD_OK)
        status = run_epoch(e);
    gd_module_set_training(e->module, was_training);
    if (status == GD_OK)
        status = gd_loader_seek(e->loader, position);
    if (status == GD_OK)
        *out = gd_meter_read(&e->meter);
    return status;
}

gd_status gd_evaluate_with(gd_module *module, gd_objective_fn objective, void *user,
                           gd_loader *loader, gd_metrics *result,
                           const gd_evaluate_options *options)
{
    gd_evaluate_options o = { GD_EVALUATE_DEFAULTS };
    if (!gd_options_read("gd_evaluate", &o, sizeof o, options))
        return gd_error_last();
    if (!module || !objective || !loader || !result)
        return gd_fail(GD_ERR_INVALID,
                       "gd_evaluate: module, objective, loader and result are needed");
    *result = (gd_metrics){ 0 };
    gd_evaluator e = { .module = module,
                       .objective = objective,
                       .user = user,
                       .loader = loader,
                       .mode = o.mode,
                       .precision = o.precision };
    gd_status status = gd_evaluator_open(&e) ? gd_evaluator_run(&e, result) : gd_error_last();
    gd_evaluator_close(&e);
    return status;
}
