/* train/meter.c: running metrics in tensors. Start at gd_objective_run() and gd_report_with(). */
#include "train/meter.h"

#include "base/error.h"
#include "base/options.h"
#include "train/words.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>
#include <gradus/precision.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gd_meter_open(gd_meter *meter, gd_context *context, gd_dtype precision)
{
    *meter = (gd_meter){ .context = context, .precision = precision };
}

void gd_meter_close(gd_meter *meter)
{
    for (int i = 0; i < meter->count; i++)
        for (int k = 0; k < GD_METER_SUMS; k++)
            gd_release(meter->slots[i].sum[k]);
    *meter = (gd_meter){ 0 };
}

gd_status gd_meter_reset(gd_meter *meter)
{
    const double zero = 0.0;
    gd_status status = GD_OK;
    meter->samples = 0;
    for (int i = 0; i < meter->count; i++)
        for (int k = 0; status == GD_OK && k < GD_METER_SUMS; k++) {
            meter->slots[i].start[k] = 0.0;
            if (meter->slots[i].sum[k])
                status = gd_tensor_write(meter->slots[i].sum[k], &zero, sizeof zero);
        }
    return status;
}

/* ---- adding ---- */

static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    size_t length = name ? strlen(name) : 0;
    return length > 0 && length < GD_METRIC_NAME_SIZE && strspn(name, letters) == length;
}

static gd_meter_slot *find(gd_meter *meter, const char *name)
{
    for (int i = 0; i < meter->count; i++)
        if (strcmp(meter->slots[i].name, name) == 0)
            return &meter->slots[i];
    return NULL;
}

/* The slot of that name, made at first use. NULL: the error is recorded. */
static gd_meter_slot *claim(gd_meter *meter, const char *name, gd_metric_form form)
{
    if (!is_name(name))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_report: \"%s\" is no name of a metric: 1 to %d letters, digits, "
                            "_ . / and -",
                            name ? name : "", GD_METRIC_NAME_SIZE - 1);
    gd_meter_slot *slot = find(meter, name);
    if (!slot && meter->count == GD_METRICS_MAX)
        return gd_fail_null(GD_ERR_INVALID, "gd_report: more than %d metrics", GD_METRICS_MAX);
    if (!slot) {
        slot = &meter->slots[meter->count++];
        *slot = (gd_meter_slot){ .form = form };
        snprintf(slot->name, sizeof slot->name, "%s", name);
    }
    if (slot->round == meter->round)
        return gd_fail_null(GD_ERR_INVALID, "gd_report: \"%s\" is reported twice", name);
    slot->round = meter->round;
    slot->form = form;
    return slot;
}

/* Sum k of a slot grows by `values`, all of them, times `share`. */
static bool add(const gd_meter *meter, gd_meter_slot *slot, int k, gd_tensor *values, double share)
{
    gd_tensor **sum = &slot->sum[k];
    if (!*sum)
        *sum = gd_state(meter->context, GD_SCALAR, slot->start[k], GD_F64);
    if (!*sum || !values)
        return false;
    if (gd_dtype_is_float(gd_tensor_dtype(values)))
        values = gd_cast(values, GD_F64);
    if (gd_tensor_shape(values).rank > 0)
        values = gd_sum(values, GD_ALL_AXES, false);
    values = gd_cast(values, GD_F64);
    if (share != 1.0)
        values = gd_mul_scalar(values, share);
    return gd_assign(*sum, gd_add(*sum, values)) != NULL;
}

static bool add_r2(const gd_meter *meter, gd_meter_slot *slot, gd_tensor *x, gd_tensor *y,
                   double share)
{
    x = gd_cast(x, GD_F64);
    y = gd_cast(y, GD_F64);
    return add(meter, slot, 0, gd_square(gd_sub(x, y)), share) && add(meter, slot, 1, y, share) &&
           add(meter, slot, 2, gd_square(y), share);
}

static bool same_shapes(gd_shape a, gd_shape b)
{
    return a.rank == b.rank && memcmp(a.dim, b.dim, sizeof(int64_t) * (size_t)a.rank) == 0;
}

/* Values of a batch of `samples`, which count together as much as its samples. */
static gd_status report(gd_meter *meter, const char *name, gd_tensor *values, int64_t samples,
                        const gd_report_options *o)
{
    gd_meter_slot *slot = claim(meter, name, o->form);
    if (!slot)
        return gd_error_last();
    int64_t count = gd_tensor_count(values);
    if (count == 0)
        return GD_OK;
    if (o->form == GD_METRIC_R2 &&
        (!o->truth || !same_shapes(gd_tensor_shape(values), gd_tensor_shape(o->truth))))
        return gd_fail(GD_ERR_SHAPE, "gd_report: \"%s\" needs .truth of its values' shape", name);
    double share = (double)samples / (double)count;
    (void)gd_no_grad_begin(meter->context);
    bool ok = o->form == GD_METRIC_R2 ? add_r2(meter, slot, values, o->truth, share)
                                      : add(meter, slot, 0, values, share);
    (void)gd_no_grad_end(meter->context);
    return ok ? GD_OK : gd_error_last();
}

static int64_t samples_of(int count, gd_tensor *const *tensors)
{
    gd_shape shape = count > 0 ? gd_tensor_shape(tensors[0]) : GD_SCALAR;
    return shape.rank > 0 ? shape.dim[0] : 1;
}

gd_status gd_report_with(const gd_objective_call *call, const char *name, gd_tensor *values,
                         const gd_report_options *options)
{
    gd_report_options o = { GD_REPORT_DEFAULTS };
    gd_meter *meter = call ? call->meter : NULL;
    gd_status status = GD_OK;
    if (!gd_options_read("gd_report", &o, sizeof o, options))
        status = gd_error_last();
    else if (!meter)
        status = gd_fail(GD_ERR_INVALID, "gd_report: the call is NULL");
    else if (!values) /* its error is recorded */
        status = gd_error_last() != GD_OK ? gd_error_last()
                                          : gd_fail(GD_ERR_INVALID, "gd_report: values are NULL");
    else if (o.form < GD_METRIC_MEAN || o.form > GD_METRIC_R2)
        status = gd_fail(GD_ERR_INVALID, "gd_report: there is no form %d", (int)o.form);
    else
        status = report(meter, name, values, samples_of(call->count, call->tensors), &o);
    if (status != GD_OK && meter)
        meter->failed = status;
    return status;
}

gd_tensor *gd_objective_run(gd_objective_fn objective, void *user, gd_meter *meter, bool training,
                            int count, gd_tensor *const *tensors)
{
    const gd_objective_call call = {
        .training = training, .count = count, .tensors = tensors, .meter = meter
    };
    meter->round++;
    meter->failed = GD_OK;
    if (gd_autocast_begin(meter->context, meter->precision) != GD_OK)
        return NULL;
    gd_tensor *loss = objective(user, &call);
    (void)gd_autocast_end(meter->context);
    if (!loss || meter->failed != GD_OK)
        return NULL;
    if (gd_tensor_shape(loss).rank != 0)
        return gd_fail_null(GD_ERR_SHAPE,
                            "gd_fit: the objective's loss is no number but of rank %d",
                            gd_tensor_shape(loss).rank);
    const gd_report_options mean = { GD_REPORT_DEFAULTS };
    return report(meter, "loss", loss, samples_of(count, tensors), &mean) == GD_OK ? loss : NULL;
}

/* ---- reading ---- */

static double value_of(const gd_meter_slot *slot, int64_t samples)
{
    double sum[GD_METER_SUMS] = { 0 }, n = (double)samples;
    for (int k = 0; k < GD_METER_SUMS; k++)
        sum[k] = slot->sum[k] ? gd_item(slot->sum[k]) : slot->start[k];
    double mean = sum[0] / n, variation = sum[2] - sum[1] * sum[1] / n;
    switch (slot->form) {
    case GD_METRIC_ROOT:
        return sqrt(mean);
    case GD_METRIC_EXP:
        return exp(mean);
    case GD_METRIC_R2:
        return variation > 0.0 ? 1.0 - sum[0] / variation : (double)NAN;
    default:
        return mean;
    }
}

gd_metrics gd_meter_read(const gd_meter *meter)
{
    gd_metrics metrics = { .samples = meter->samples };
    if (meter->samples == 0)
        return metrics;
    /* The loss, which is reported last, comes first. */
    for (int is_loss = 1; is_loss >= 0; is_loss--)
        for (int i = 0; i < meter->count; i++) {
            const gd_meter_slot *slot = &meter->slots[i];
            if ((strcmp(slot->name, "loss") == 0) != is_loss)
                continue;
            gd_metric *metric = &metrics.list[metrics.count++];
            memcpy(metric->name, slot->name, sizeof metric->name);
            metric->value = value_of(slot, meter->samples);
        }
    return metrics;
}

double gd_metrics_get(const gd_metrics *metrics, const char *name)
{
    for (int i = 0; metrics && name && i < metrics->count; i++)
        if (strcmp(metrics->list[i].name, name) == 0)
            return metrics->list[i].value;
    return NAN;
}

/* ---- in checkpoints ---- */

void gd_meter_write(const gd_meter *meter, gd_text *text)
{
    gd_text_add(text, "samples %lld\n", (long long)meter->samples);
    for (int i = 0; i < meter->count; i++) {
        const gd_meter_slot *slot = &meter->slots[i];
        gd_text_add(text, "sum %s %d", slot->name, (int)slot->form);
        for (int k = 0; k < GD_METER_SUMS; k++)
            gd_text_add(text, " %.17g", slot->sum[k] ? gd_item(slot->sum[k]) : slot->start[k]);
        gd_text_add(text, "\n");
    }
}

/* "NAME FORM a b c" */
static bool restore_slot(gd_meter *meter, const char *line)
{
    gd_meter_slot slot = { 0 };
    int64_t form;
    if (meter->count == GD_METRICS_MAX || !gd_take_name(&line, slot.name, sizeof slot.name) ||
        !gd_take_whole(&line, &form))
        return false;
    slot.form = (gd_metric_form)form;
    char *next = NULL;
    for (int k = 0; k < GD_METER_SUMS; k++, line = next) {
        slot.start[k] = gd_strtod(line, &next);
        if (next == line)
            return false;
    }
    meter->slots[meter->count++] = slot;
    return true;
}

gd_status gd_meter_restore(gd_meter *meter, const char *text)
{
    bool ok = true;
    for (const char *at = text; ok && at && *at;
         at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        const char *samples = gd_after_key(at, "samples"), *sum = gd_after_key(at, "sum");
        if (samples)
            ok = gd_take_whole(&samples, &meter->samples);
        else if (sum)
            ok = restore_slot(meter, sum);
    }
    return ok ? GD_OK : gd_fail(GD_ERR_FORMAT, "gd_fit: a checkpoint's metrics cannot be read");
}
