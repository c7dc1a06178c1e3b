/* train/model_objective.c: the objective of a model that is described as data. */
#include <gradus/train.h>

#include "base/error.h"

#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

static bool same(gd_shape a, gd_shape b)
{
    return a.rank == b.rank && memcmp(a.dim, b.dim, sizeof(int64_t) * (size_t)a.rank) == 0;
}

/* Logits [.., classes], two or more, and indices [..]. */
static bool are_classes(gd_tensor *output, gd_tensor *target)
{
    gd_shape o = gd_tensor_shape(output), t = gd_tensor_shape(target);
    bool leads = o.rank == t.rank + 1 && o.dim[t.rank] >= 2;
    o.rank -= leads;
    return leads && same(o, t) && gd_dtype_is_integer(gd_tensor_dtype(target));
}

static gd_status report(const gd_objective_call *call, const char *output_name, const char *name,
                        gd_tensor *values, const gd_report_options *o)
{
    char whole[GD_METRIC_NAME_SIZE];
    if (snprintf(whole, sizeof whole, "%s%s%s", output_name, output_name[0] ? "/" : "", name) >=
        (int)sizeof whole)
        return GD_OK; /* a name too long for a metric's */
    return gd_report_with(call, whole, values, o);
}

/* The input that says how many steps a sequence has: the one that layers take lengths from; -1: there is
 * none, or there are several. */
static int find_lengths(const gd_model *model)
{
    int found = -1;
    for (int i = 0; i < gd_model_layer_count(model); i++) {
        const gd_layer_spec *spec = gd_model_layer_spec(model, i);
        const char *name = spec->target_lengths ? spec->target_lengths : spec->lengths;
        for (int k = 0; name && k < gd_model_input_count(model); k++)
            if (strcmp(gd_model_input_name(model, k), name) == 0) {
                if (found >= 0 && found != k)
                    return -1;
                found = k;
            }
    }
    return found;
}

/* Values [batch, time, ..] of which those behind the end count for nothing in their mean. */
static gd_tensor *without_padding(gd_tensor *values, gd_tensor *lengths)
{
    gd_shape shape = values ? gd_tensor_shape(values) : GD_SCALAR;
    if (!lengths || shape.rank < 2)
        return values;
    gd_shape time = { .rank = shape.rank }, batch = { .rank = shape.rank };
    for (int i = 0; i < shape.rank; i++)
        time.dim[i] = batch.dim[i] = 1;
    time.dim[1] = shape.dim[1];
    batch.dim[0] = shape.dim[0];
    gd_tensor *steps = gd_arange(gd_tensor_context(values), 0, (double)shape.dim[1], 1, GD_I64);
    gd_tensor *there = gd_lt(gd_reshape(steps, time), gd_reshape(gd_cast(lengths, GD_I64), batch));
    gd_tensor *all = gd_cast(gd_broadcast_to(there, shape), GD_F32);
    return gd_div(gd_mul(gd_cast(values, GD_F32), all), gd_mean(all, GD_ALL_AXES, false));
}

/* What goes with a loss of one output and one target. */
static gd_status report_loss(const gd_objective_call *call, const char *name, const char *type,
                             gd_tensor *output, gd_tensor *target, gd_tensor *lengths)
{
    gd_report_options o = { GD_REPORT_DEFAULTS };
    bool is_logit = strcmp(type, "bce_with_logits") == 0 || strcmp(type, "focal") == 0;
    if (are_classes(output, target))
        return report(
            call, name, "accuracy",
            without_padding(gd_eq(gd_argmax(output, -1, false), gd_cast(target, GD_I64)), lengths),
            &o);
    if (!same(gd_tensor_shape(output), gd_tensor_shape(target)))
        return GD_OK;
    if (is_logit || strcmp(type, "bce") == 0)
        return report(
            call, name, "accuracy",
            without_padding(gd_eq(gd_gt(output, gd_full_like(output, is_logit ? 0.0 : 0.5)),
                                  gd_gt(target, gd_full_like(target, 0.5))),
                            lengths),
            &o);
    if (strcmp(type, "mse") != 0 && strcmp(type, "mae") != 0 && strcmp(type, "huber") != 0 &&
        strcmp(type, "smooth_l1") != 0)
        return GD_OK;
    gd_status status =
        report(call, name, "mae", without_padding(gd_abs(gd_sub(output, target)), lengths), &o);
    if (lengths && gd_tensor_shape(output).rank >= 2)
        return status; /* r2 would count what is padded */
    o.form = GD_METRIC_R2;
    o.truth = target;
    return status == GD_OK ? report(call, name, "r2", output, &o) : status;
}

static int targets_of(const gd_loss_spec *spec)
{
    return strcmp(spec->type, "triplet_margin") == 0 ? 0 : strcmp(spec->type, "ctc") == 0 ? 3 : 1;
}

static gd_status report_all(const gd_model *model, const gd_objective_call *call,
                            gd_tensor *const *outputs, gd_tensor *const *targets,
                            gd_tensor *lengths)
{
    gd_status status = GD_OK;
    int losses = gd_model_loss_count(model);
    for (int i = 0, t = 0; status == GD_OK && i < losses; i++) {
        const gd_loss_spec *spec = gd_model_loss_spec(model, i);
        int count = targets_of(spec), output = 0;
        while (output < gd_model_output_count(model) && spec->outputs[0] &&
               strcmp(gd_model_output_name(model, output), spec->outputs[0]) != 0)
            output++;
        if (count == 1 && !spec->outputs[1] && output < gd_model_output_count(model))
            status = report_loss(call, losses > 1 ? spec->outputs[0] : "", spec->type,
                                 outputs[output], targets[t], lengths);
        t += count;
    }
    return status;
}

gd_tensor *gd_model_objective(void *user, const gd_objective_call *call)
{
    gd_model *model = user;
    if (!model || !call)
        return gd_fail_null(GD_ERR_INVALID, "gd_model_objective: an argument is NULL");
    int inputs = gd_model_input_count(model), targets = gd_model_target_count(model);
    int count = gd_model_output_count(model);
    if (call->count < inputs + targets)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_model_objective: batches have %d tensors; the model has %d inputs "
                            "and its losses %d targets",
                            call->count, inputs, targets);
    gd_tensor *outputs[GD_MODEL_MAX_OUTPUTS];
    int number = find_lengths(model);
    gd_tensor *lengths = number >= 0 ? call->tensors[number] : NULL;
    if (gd_model_forward_all(model, inputs, call->tensors, count, outputs) != GD_OK ||
        report_all(model, call, outputs, call->tensors + inputs, lengths) != GD_OK)
        return NULL;
    return gd_model_loss_padded(model, count, outputs, targets, call->tensors + inputs, lengths);
}
