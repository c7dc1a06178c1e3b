/* train/fit.c: the training loop. Start at run_all(); what is compiled are the bodies at the top. */
#include "train/fit.h"

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "optim/state.h"
#include "train/training_file.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

/* ---- what is compiled ---- */

static gd_tensor *run_objective(gd_fit *f, int count, gd_tensor *const *in)
{
    return gd_objective_run(f->objective, f->user, &f->meter, true, count, in);
}

/* Forward, backward, update and metrics of a batch. */
gd_tensor *gd_fit_step_body(void *fit, int count, gd_tensor *const *in)
{
    gd_fit *f = fit;
    gd_tensor *loss = run_objective(f, count, in);
    if (!loss || !gd_minimize(f->optimizer, loss))
        return NULL;
    (void)gd_trace_set_phase(f->context, GD_PHASE_UPDATE);
    return f->options.ema && gd_ema_update(f->options.ema) != GD_OK ? NULL : loss;
}

/* A batch's share of the mean gradient, accumulated. */
static gd_tensor *part_body(void *user, int count, gd_tensor *const *in)
{
    gd_fit *f = user;
    gd_tensor *loss = run_objective(f, count, in);
    (void)gd_trace_set_phase(f->context, GD_PHASE_BACKWARD);
    gd_tensor *share = loss ? gd_cast(f->share, gd_tensor_dtype(loss)) : NULL;
    gd_tensor *part = share ? gd_scale_loss(f->optimizer, gd_mul(loss, share)) : NULL;
    return part && gd_backward(part) == GD_OK ? loss : NULL;
}

static gd_tensor *update_body(void *user, int count, gd_tensor *const *in)
{
    (void)count, (void)in;
    gd_fit *f = user;
    (void)gd_trace_set_phase(f->context, GD_PHASE_UPDATE);
    if (gd_optimizer_step(f->optimizer) != GD_OK || gd_optimizer_zero_grad(f->optimizer) != GD_OK ||
        (f->options.ema && gd_ema_update(f->options.ema) != GD_OK))
        return NULL;
    return gd_add_scalar(f->share, 0.0);
}

/* ---- opening and closing ---- */

static gd_status open_parts(gd_fit *f)
{
    const gd_fit_options *o = &f->options;
    gd_meter_open(&f->meter, f->context, o->precision);
    if (o->precision == GD_F16 && !gd_optimizer_scales_losses(f->optimizer) &&
        gd_optimizer_scale_losses(f->optimizer) != GD_OK)
        return gd_error_last();
    if (o->validation) {
        f->evaluator = (gd_evaluator){ .module = f->module,
                                       .objective = f->objective,
                                       .user = f->user,
                                       .loader = o->validation,
                                       .mode = o->mode,
                                       .precision = o->precision };
        f->evaluates = true;
        if (!gd_evaluator_open(&f->evaluator))
            return gd_error_last();
    }
    bool whole = o->accumulate == 1;
    f->step = gd_compile(f->context, whole ? gd_fit_step_body : part_body, f, .mode = o->mode);
    if (!f->step || whole)
        return f->step ? GD_OK : gd_error_last();
    f->update = gd_compile(f->context, update_body, f, .mode = o->mode);
    f->share = gd_state(f->context, GD_SCALAR, 0.0, GD_F64);
    if (!f->update || !f->share)
        return gd_error_last();
    return gd_optimizer_zero_grad(f->optimizer);
}

static void close_parts(gd_fit *f)
{
    gd_function_release(f->step);
    gd_function_release(f->update);
    gd_release(f->share);
    if (f->evaluates)
        gd_evaluator_close(&f->evaluator);
    gd_meter_close(&f->meter);
    gd_kept_free(&f->blame.kept);
}

/* ---- a step ---- */

enum { TIMED_EVERY = 16 };

static gd_status set_lr(gd_fit *f)
{
    const gd_fit_options *o = &f->options;
    if (!o->schedule)
        return GD_OK;
    const uint64_t mark = gd_error_mark();
    double lr = NAN;
    gd_status status = o->schedule(o->schedule_user, f->done, f->total, &lr);
    status = gd_callback_status(status, mark, "gd_fit");
    return status == GD_OK ? gd_optimizer_set_lr(f->optimizer, lr) : status;
}

/* Samples in the next `count` batches, wherever in an epoch the loader stands. */
static int64_t samples_of_next(const gd_fit *f, int64_t count)
{
    const gd_loader *l = f->train;
    const int64_t batches = gd_loader_batches(l), full = gd_loader_batch_size(l);
    int64_t samples = count * full;
    for (int64_t i = gd_loader_position(l), end = i + count; i < end; i++)
        if (i % batches == batches - 1)
            samples -= batches * full - gd_loader_samples(l);
    return samples;
}

int64_t gd_fit_group(const gd_fit *f, int64_t *samples)
{
    int64_t first = f->done % f->per_epoch * f->options.accumulate;
    int64_t left = gd_loader_batches(f->train) - first;
    int64_t count = left < f->options.accumulate ? left : f->options.accumulate;
    *samples = samples_of_next(f, count);
    return count;
}

static gd_tensor *call(gd_fit *f, gd_function *function, int count, gd_tensor *const *tensors)
{
    return f->is_timed ? gd_call_timed(function, count, tensors, f->phase_seconds)
                       : gd_call(function, count, tensors);
}

gd_tensor *gd_fit_call(gd_fit *f, const gd_batch *batch, int64_t samples)
{
    double share = (double)batch->size / (double)samples;
    if (f->share && gd_tensor_write(f->share, &share, sizeof share) != GD_OK)
        return NULL;
    return call(f, f->step, batch->count, batch->tensors);
}

/* Batch i of the step at hand, whose batches have so many samples. */
static gd_status run_batch(gd_fit *f, int64_t i, int64_t samples)
{
    double begin = gd_seconds();
    gd_batch b;
    if (!gd_loader_next_batch(f->train, &b))
        return gd_error_last();
    double ready = gd_seconds();
    f->now.data_seconds += ready - begin;
    gd_tensor *loss = gd_fit_call(f, &b, samples);
    if (!loss)
        return gd_error_last();
    f->meter.samples += b.size;
    if (f->is_watched) {
        double value = gd_item(loss);
        if (!isfinite(value)) {
            f->is_timed = false;
            return gd_blame_tell(f, i, value);
        }
    }
    f->now.step_seconds += gd_seconds() - ready;
    return GD_OK;
}

/* One update: of one batch, or of the gradients of several. */
static gd_status run_step(gd_fit *f)
{
    gd_status status = set_lr(f);
    if (status == GD_OK && f->options.blame)
        status = gd_blame_keep(f);
    int64_t samples, count = gd_fit_group(f, &samples);
    f->is_timed = (f->done - f->begun) % TIMED_EVERY == 1; /* not the first, which is compiled */
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        status = run_batch(f, i, samples);
    if (status == GD_OK && f->update && !call(f, f->update, 0, NULL))
        status = gd_error_last();
    f->done += status == GD_OK;
    f->timed += f->is_timed;
    f->is_timed = false;
    return status;
}

/* ---- progress ---- */

gd_status gd_fit_check_loss(gd_fit *f)
{
    if (f->is_watched || f->meter.samples == 0)
        return GD_OK;
    f->now.train = gd_meter_read(&f->meter);
    double loss = gd_metrics_get(&f->now.train, "loss");
    return isfinite(loss) ? GD_OK : gd_blame_tell(f, -1, loss);
}

/* What the timed steps took, for all of the epoch's. */
static void take_times(gd_fit *f)
{
    gd_fit_progress *p = &f->now;
    const double steps = (double)(f->done - f->epoch_begun);
    const double each = f->timed > 0 ? steps / (double)f->timed : 0.0;
    p->forward_seconds = each * f->phase_seconds[GD_PHASE_FORWARD];
    p->backward_seconds = each * f->phase_seconds[GD_PHASE_BACKWARD];
    p->update_seconds = each * f->phase_seconds[GD_PHASE_UPDATE];
    p->memory = gd_memory(f->context).peak;
}

static gd_status display(gd_fit *f)
{
    if (!f->options.progress)
        return GD_OK;
    gd_fit_progress *p = &f->now;
    gd_status checked = gd_fit_check_loss(f);
    if (checked != GD_OK)
        return checked;
    p->train = gd_meter_read(&f->meter);
    const double seen = (double)(f->meter.samples - f->samples_before);
    p->samples_per_second = p->seconds > 0.0 ? seen / p->seconds : 0.0;
    take_times(f);
    double spent = f->train_seconds + (p->epoch_done ? 0.0 : p->seconds);
    int64_t here = f->done - f->begun;
    p->seconds_left = here > 0 ? spent / (double)here * (double)(f->total - f->done) : 0.0;
    p->lr = gd_optimizer_lr(f->optimizer);
    f->last_display = gd_seconds();
    const uint64_t mark = gd_error_mark();
    bool stop = false;
    gd_status status = f->options.progress(f->options.progress_user, p, &stop);
    f->stopped |= stop;
    return gd_callback_status(status, mark, "gd_fit");
}

static gd_status display_validation(void *fit, int64_t done, int64_t batches)
{
    gd_fit *f = fit;
    if (gd_seconds() - f->last_display < f->options.progress_interval)
        return GD_OK;
    gd_fit_progress p = f->now;
    p.epoch_done = p.validated = p.improved = false;
    p.validation_step = done;
    p.validation_steps = batches;
    f->last_display = gd_seconds();
    const uint64_t mark = gd_error_mark();
    bool stop = false;
    gd_status status = f->options.progress(f->options.progress_user, &p, &stop);
    f->stopped |= stop;
    return gd_callback_status(status, mark, "gd_fit");
}

static bool is_reported(const gd_meter *meter, const char *name)
{
    bool is = false;
    for (int i = 0; i < meter->count; i++)
        is |= strcmp(meter->slots[i].name, name) == 0;
    return is;
}

static gd_status fail_monitor(const gd_meter *meter, const char *name)
{
    char there[GD_METRICS_MAX * (GD_METRIC_NAME_SIZE + 2) + 1] = "";
    gd_text text = { there, sizeof there, 0 };
    for (int i = 0; i < meter->count; i++)
        gd_text_add(&text, "%s%s", i ? ", " : "", meter->slots[i].name);
    return gd_fail(GD_ERR_INVALID,
                   "gd_fit: the metric \"%s\" to monitor is not reported; there are: %s", name,
                   there);
}

/* After the first step, whose objective told what it reports: an epoch later it would be late. What
 * training does not report may be reported in validation alone, of which a batch is tried. */
static gd_status check_monitor(gd_fit *f)
{
    const char *name = f->options.monitor;
    if (!name || is_reported(&f->meter, name))
        return GD_OK;
    if (!f->evaluates)
        return fail_monitor(&f->meter, name);
    gd_random_stream random = gd_random_position(f->context);
    gd_status status = gd_evaluator_try(&f->evaluator);
    gd_status back = gd_random_seek(f->context, random.seed, random.position);
    if (status != GD_OK || back != GD_OK)
        return status == GD_OK ? back : status;
    const gd_meter *meter = &f->evaluator.meter;
    return is_reported(meter, name) ? GD_OK : fail_monitor(meter, name);
}

/* A new value of the monitored metric: is it the best, is it time to end, or to lower the rate? */
static gd_status judge(gd_fit *f, const gd_metrics *metrics)
{
    const gd_fit_options *o = &f->options;
    const char *name = o->monitor ? o->monitor : "loss";
    double value = gd_metrics_get(metrics, name);
    double gain = o->rising ? value - f->best : f->best - value;
    f->now.improved = !isnan(value) && (isnan(f->best) || gain > o->min_improvement);
    if (f->now.improved)
        f->best = value;
    f->bad = f->now.improved ? 0 : f->bad + 1;
    if (!o->plateau)
        return GD_OK;
    double lr = gd_plateau_step(o->plateau, gd_optimizer_lr(f->optimizer), value);
    return isnan(lr) ? gd_error_last() : gd_optimizer_set_lr(f->optimizer, lr);
}

static gd_status validate(gd_fit *f)
{
    gd_ema *ema = f->options.ema;
    gd_status status = ema ? gd_ema_swap(ema) : GD_OK;
    if (status != GD_OK)
        return status;
    status = gd_evaluator_run(&f->evaluator, &f->now.validation);
    gd_status back = ema ? gd_ema_swap(ema) : GD_OK;
    return status == GD_OK ? back : status;
}

static bool is_every(int64_t steps, int64_t done)
{
    return steps > 0 && done % steps == 0;
}

static gd_status save_if_due(gd_fit *f, bool best)
{
    const gd_fit_options *o = &f->options;
    if (!o->run || !(f->now.epoch_done || best || f->done == f->total ||
                     is_every(o->checkpoint_steps, f->done) ||
                     gd_seconds() - f->last_save >= o->checkpoint_seconds))
        return GD_OK;
    return gd_fit_save(f, best);
}

/* After a step: measure, tell, save. */
static gd_status conclude_step(gd_fit *f)
{
    const gd_fit_options *o = &f->options;
    gd_fit_progress *p = &f->now;
    bool last = f->done == f->total;
    p->step = (f->done - 1) % f->per_epoch + 1;
    p->total_step = f->done;
    p->epoch_done = p->step == p->steps || last;
    p->seconds = gd_seconds() - f->epoch_start - p->validation_seconds;
    p->validated = p->improved = false;
    gd_status status = GD_OK;
    if (p->epoch_done) {
        f->train_seconds += p->seconds;
        p->train = gd_meter_read(&f->meter);
        status = gd_fit_check_loss(f);
    }
    if (status == GD_OK && f->evaluates &&
        (o->validate_steps > 0 ? is_every(o->validate_steps, f->done) || last : p->epoch_done)) {
        double begin = gd_seconds();
        status = validate(f);
        p->validation_seconds += gd_seconds() - begin;
        p->validated = true;
        f->blame.done = -1; /* it may have drawn random numbers */
    }
    const gd_metrics *judged = f->evaluates ? &p->validation : &p->train;
    bool is_judged = f->evaluates ? p->validated : p->epoch_done;
    if (status == GD_OK && is_judged)
        status = judge(f, judged);
    if (status == GD_OK && is_judged && o->result)
        *o->result = *judged;
    if (status == GD_OK &&
        (p->epoch_done || p->validated || gd_seconds() - f->last_display >= o->progress_interval))
        status = display(f);
    if (p->epoch_done) /* what follows is told of with the next one */
        p->save_seconds = 0.0;
    return status == GD_OK ? save_if_due(f, p->improved) : status;
}

/* ---- all of it ---- */

static gd_status begin_epoch(gd_fit *f)
{
    gd_fit_progress *p = &f->now;
    p->epoch = f->done / f->per_epoch + 1;
    p->data_seconds = p->step_seconds = p->validation_seconds = 0.0;
    f->epoch_begun = f->done;
    f->epoch_start = f->last_display = gd_seconds();
    gd_status status = f->done % f->per_epoch == 0 ? gd_meter_reset(&f->meter) : GD_OK;
    f->samples_before = f->meter.samples;
    return status;
}

static bool goes_on(const gd_fit *f)
{
    int64_t patience = f->options.patience;
    return f->done < f->total && !f->stopped && !(patience >= 0 && f->bad > patience);
}

static gd_status run_all(gd_fit *f)
{
    if (f->evaluates && f->options.progress && f->options.validation_progress) {
        f->evaluator.after_batch = display_validation;
        f->evaluator.fit = f;
    }
    gd_status status = f->options.run && f->options.resume ? gd_fit_resume(f) : GD_OK;
    f->begun = f->done;
    f->last_save = gd_seconds();
    bool begins = true;
    while (status == GD_OK && goes_on(f)) {
        if (begins)
            status = begin_epoch(f);
        if (status == GD_OK)
            status = run_step(f);
        if (status == GD_OK && f->done == f->begun + 1)
            status = check_monitor(f);
        if (status == GD_OK)
            status = conclude_step(f);
        begins = f->now.epoch_done;
    }
    if (!f->options.run)
        return status;
    if (status == GD_OK && f->done > f->begun && f->saved != f->done)
        status = gd_fit_save(f, false);
    gd_status written = gd_run_wait(f->options.run);
    return status == GD_OK ? written : status;
}

static gd_status check(const gd_optimizer *optimizer, gd_objective_fn objective,
                       const gd_loader *train, const gd_fit_options *o)
{
    if (!optimizer || !objective || !train)
        return gd_fail(GD_ERR_INVALID,
                       "gd_fit: an optimizer, an objective and a loader are needed");
    if (o->epochs < 0 || o->steps < -1 || o->accumulate < 1 || !(o->progress_interval >= 0.0) ||
        !(o->checkpoint_seconds >= 0.0) || o->patience < -1 || !(o->min_improvement >= 0.0) ||
        o->validate_steps == 0 || o->validate_steps < -1 || o->checkpoint_steps == 0 ||
        o->checkpoint_steps < -1)
        return gd_fail(GD_ERR_INVALID,
                       "gd_fit: epochs, steps, accumulate, patience, min_improvement, or steps or "
                       "seconds between validations, checkpoints or displays are out of range");
    if (o->precision != GD_F32 && o->precision != GD_BF16 && o->precision != GD_F16)
        return gd_fail(GD_ERR_DTYPE, "gd_fit: precision is %s; f32, bf16 and f16 are possible",
                       gd_dtype_name(o->precision));
    if (o->schedule && o->plateau)
        return gd_fail(GD_ERR_INVALID,
                       "gd_fit: a schedule and a plateau both set the learning rate");
    if (o->resume && !o->run)
        return gd_fail(GD_ERR_INVALID, "gd_fit: resume needs a run");
    if (gd_loader_batches(train) < 1)
        return gd_fail(GD_ERR_INVALID, "gd_fit: the loader has no batches");
    if (!o->run)
        return GD_OK;
    for (int i = 0; o->metadata && i < o->metadata_count; i++)
        if (o->metadata[i].key && strcmp(o->metadata[i].key, "fit") == 0)
            return gd_fail(GD_ERR_INVALID, "gd_fit: \"fit\" is the key of its own metadata");
    return gd_training_check_metadata("gd_fit", o->metadata_count, o->metadata);
}

gd_status gd_fit_with(gd_optimizer *optimizer, gd_objective_fn objective, void *user,
                      gd_loader *train, const gd_fit_options *options)
{
    gd_fit_options o = { GD_FIT_DEFAULTS };
    if (!gd_options_read("gd_fit", &o, sizeof o, options))
        return gd_error_last();
    gd_status status = check(optimizer, objective, train, &o);
    if (status != GD_OK)
        return status;
    if (o.result)
        *o.result = (gd_metrics){ 0 };
    if (!o.model && objective == gd_model_objective)
        o.model = user;
    gd_module *module = gd_optimizer_module(optimizer);
    gd_fit f = { .optimizer = optimizer,
                 .module = module,
                 .context = gd_module_context(module),
                 .objective = objective,
                 .user = user,
                 .train = train,
                 .options = o,
                 .saved = -1,
                 .best = NAN,
                 .of = { optimizer, train, o.ema, o.tensor_count, o.tensors },
                 .blame = { .done = -1 } };
    f.is_watched = gd_context_has_host_memory(f.context);
    f.data = o.run ? gd_dataset_fingerprint(gd_loader_dataset(train)) : 0;
    int64_t batches = gd_loader_batches(train);
    f.per_epoch = batches / o.accumulate + (batches % o.accumulate != 0);
    bool endless = o.epochs > 0 && f.per_epoch > INT64_MAX / o.epochs;
    f.total = o.steps >= 0 ? o.steps : endless ? INT64_MAX : f.per_epoch * o.epochs;
    f.now.steps = f.per_epoch;
    f.now.total_steps = f.total;
    f.now.epochs = f.total / f.per_epoch + (f.total % f.per_epoch != 0);
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, true);
    status = open_parts(&f);
    if (status == GD_OK)
        status = run_all(&f);
    close_parts(&f);
    gd_module_set_training(module, was_training);
    return status;
}
