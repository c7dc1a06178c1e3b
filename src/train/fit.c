/* train/fit.c: the training loop. Start at gd_fit_with(); what is compiled are the bodies at the
 * top. */
#include "train/meter.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>

typedef struct fit {
    gd_optimizer *optimizer;
    gd_forward_fn forward;
    void *user;
    gd_loader *train, *test; /* test may be NULL */
    gd_fit_options options;
    gd_context *context;
    gd_meter meter;
    gd_evaluator evaluator;
    bool evaluates;
    gd_function *step;    /* a whole batch */
    gd_function *example; /* or: one example's gradients, … */
    gd_function *update;  /* … and the update once a batch of them is done */
    gd_tensor *share;     /* [] f32: 1 / batch, an example's share in the mean; retained */
    gd_fit_progress now;
    int64_t steps_done, steps_all; /* over all epochs */
    double train_seconds;          /* of the epochs that are over */
    double epoch_start, last_display;
    bool stopped;
} fit;

/* ---- what is compiled ---- */

/* Forward, backward, update and metrics: in[0] samples, in[1] targets. */
static gd_tensor *step_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    fit *f = user;
    gd_tensor *logits = f->forward(f->user, in[0]);
    gd_tensor *loss = logits ? f->options.loss(f->options.loss_user, logits, in[1]) : NULL;
    if (!gd_minimize(f->optimizer, loss))
        return NULL;
    return gd_meter_add(&f->meter, logits, in[1], loss) ? loss : NULL;
}

/* One example's share of the batch's mean gradient, accumulated. */
static gd_tensor *example_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    fit *f = user;
    gd_tensor *logits = f->forward(f->user, in[0]);
    gd_tensor *loss = logits ? f->options.loss(f->options.loss_user, logits, in[1]) : NULL;
    gd_tensor *share = loss ? gd_cast(f->share, gd_tensor_dtype(loss)) : NULL;
    if (!share || gd_backward(gd_mul(loss, share)) != GD_OK)
        return NULL;
    return gd_meter_add(&f->meter, logits, in[1], loss) ? loss : NULL;
}

static gd_tensor *update_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    (void)in;
    fit *f = user;
    if (gd_optimizer_step(f->optimizer) != GD_OK || gd_optimizer_zero_grad(f->optimizer) != GD_OK)
        return NULL;
    return gd_add_scalar(f->meter.loss, 0.0);
}

/* ---- opening and closing ---- */

static gd_status open_parts(fit *f)
{
    const gd_fit_options *o = &f->options;
    if (!gd_meter_open(&f->meter, f->context))
        return gd_error_last();
    if (f->test) {
        f->evaluator = (gd_evaluator){ .module = gd_optimizer_module(f->optimizer),
                                       .forward = f->forward,
                                       .user = f->user,
                                       .loader = f->test,
                                       .loss = o->loss,
                                       .loss_user = o->loss_user,
                                       .mode = o->mode };
        f->evaluates = true;
        if (!gd_evaluator_open(&f->evaluator))
            return gd_error_last();
    }
    if (!o->per_example) {
        f->step = gd_compile(f->context, step_body, f, .mode = o->mode);
        return f->step ? GD_OK : gd_error_last();
    }
    f->example = gd_compile(f->context, example_body, f, .mode = o->mode);
    f->update = gd_compile(f->context, update_body, f, .mode = o->mode);
    f->share = gd_state(f->context, GD_SCALAR, 0.0, GD_F64);
    return f->example && f->update && f->share ? GD_OK : gd_error_last();
}

static void close_parts(fit *f)
{
    gd_function_release(f->step);
    gd_function_release(f->example);
    gd_function_release(f->update);
    gd_release(f->share);
    if (f->evaluates)
        gd_evaluator_close(&f->evaluator);
    gd_meter_close(&f->meter);
}

/* ---- progress ---- */

static gd_status display(fit *f)
{
    if (!f->options.progress)
        return GD_OK;
    gd_fit_progress *p = &f->now;
    double now = gd_seconds();
    if (!p->epoch_done) {
        p->train = gd_meter_read(&f->meter);
        p->seconds = now - f->epoch_start;
    }
    p->samples_per_second = p->seconds > 0.0 ? (double)f->meter.samples / p->seconds : 0.0;
    double spent = f->train_seconds + (p->epoch_done ? 0.0 : p->seconds);
    if (f->steps_done > 0)
        p->seconds_left = spent / (double)f->steps_done * (double)(f->steps_all - f->steps_done);
    p->lr = gd_optimizer_lr(f->optimizer);
    f->last_display = now;
    const uint64_t mark = gd_error_mark();
    gd_status status = f->options.progress(f->options.progress_user, p, &f->stopped);
    return gd_callback_status(status, mark, "gd_fit");
}

static bool display_is_due(const fit *f)
{
    return gd_seconds() - f->last_display >= f->options.progress_interval;
}

/* ---- a batch, an epoch ---- */

static gd_status run_examples(fit *f, const gd_batch *b)
{
    double share = 1.0 / (double)b->size;
    gd_status status = gd_tensor_write(f->share, &share, sizeof share);
    for (int64_t i = 0; status == GD_OK && i < b->size; i++) {
        gd_tensor *in[2] = { gd_slice(b->tensors[0], 0, i, i + 1, 1),
                             gd_slice(b->tensors[1], 0, i, i + 1, 1) };
        if (!gd_call(f->example, 2, in))
            status = gd_error_last();
    }
    if (status == GD_OK && !gd_call(f->update, 0, NULL))
        status = gd_error_last();
    return status;
}

static gd_status run_batch(fit *f, const gd_batch *b)
{
    if (!f->options.per_example)
        return gd_call(f->step, b->count, b->tensors) ? GD_OK : gd_error_last();
    gd_status status = gd_scope_begin(f->context);
    if (status != GD_OK)
        return status;
    status = run_examples(f, b);
    (void)gd_scope_end(f->context);
    return status;
}

static gd_status set_lr(fit *f)
{
    const gd_fit_options *o = &f->options;
    if (!o->schedule)
        return GD_OK;
    const uint64_t mark = gd_error_mark();
    double lr = NAN;
    gd_status status = o->schedule(o->schedule_user, f->steps_done, f->steps_all, &lr);
    status = gd_callback_status(status, mark, "gd_fit");
    return status == GD_OK ? gd_optimizer_set_lr(f->optimizer, lr) : status;
}

static gd_status train_epoch(fit *f)
{
    gd_status status = gd_meter_reset(&f->meter);
    f->now.epoch_done = false;
    f->now.test = (gd_metrics){ 0 };
    f->now.step = 0;
    f->epoch_start = f->last_display = gd_seconds();
    const uint64_t mark = gd_error_mark();
    for (gd_batch b; status == GD_OK && !f->stopped && gd_loader_next(f->train, &b);) {
        status = set_lr(f);
        if (status == GD_OK)
            status = run_batch(f, &b);
        if (status != GD_OK)
            break;
        f->meter.samples += b.size;
        f->now.step++;
        f->steps_done++;
        if (display_is_due(f))
            status = display(f);
    }
    if (status == GD_OK && !f->stopped && f->now.step < f->now.steps)
        status = gd_error_since(mark); /* the loader failed */
    f->now.seconds = gd_seconds() - f->epoch_start;
    f->train_seconds += f->now.seconds;
    return status;
}

/* After an epoch: measure, tell. */
static gd_status conclude_epoch(fit *f)
{
    f->now.train = gd_meter_read(&f->meter);
    if (f->evaluates) {
        gd_status status = gd_evaluator_run(&f->evaluator, &f->now.test);
        if (status != GD_OK)
            return status;
        if (f->options.result)
            *f->options.result = f->now.test;
    }
    f->now.epoch_done = true;
    return display(f);
}

gd_status gd_fit_with(gd_optimizer *optimizer, gd_forward_fn forward, void *user, gd_loader *train,
                      gd_loader *test, const gd_fit_options *options)
{
    gd_fit_options o = { GD_FIT_DEFAULTS };
    if (!gd_options_read("gd_fit", &o, sizeof o, options))
        return gd_error_last();
    if (!optimizer || !forward || !train || o.epochs < 0 || !(o.progress_interval >= 0.0))
        return gd_fail(GD_ERR_INVALID,
                       "gd_fit: optimizer, forward and train are needed, and neither epochs nor "
                       "progress_interval may be negative");
    if (o.result)
        *o.result = (gd_metrics){ 0 };
    if (!o.loss)
        o.loss = gd_default_loss;
    gd_module *module = gd_optimizer_module(optimizer);
    fit f = { .optimizer = optimizer,
              .forward = forward,
              .user = user,
              .train = train,
              .test = test,
              .options = o,
              .context = gd_module_context(module) };
    f.now.epochs = o.epochs;
    f.now.steps = gd_loader_batches(train);
    f.steps_all = f.now.steps * o.epochs;
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, true);
    gd_status status = open_parts(&f);
    for (int epoch = 1; status == GD_OK && epoch <= o.epochs && !f.stopped; epoch++) {
        f.now.epoch = epoch;
        status = train_epoch(&f);
        if (status == GD_OK && !f.stopped)
            status = conclude_epoch(&f);
    }
    close_parts(&f);
    gd_module_set_training(module, was_training);
    return status;
}
