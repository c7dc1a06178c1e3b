/* nn/model_loss.c: the losses of a model: a row and a function for each type, what a spec says of
 * them, and their sum. Start at gd_model_loss_all(). To add a loss: its function, a row in rows[],
 * and a line in gradus/model.h. */
#include "nn/model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <string.h>

/* One use of a loss. */
typedef struct loss_args {
    const gd_loss_spec *spec;
    gd_tensor *const *in; /* outputs of the model, then targets */
} loss_args;

struct gd_loss_row {
    const char *name;
    gd_tensor *(*build)(const loss_args *a);
    int outputs, targets;
    uint64_t uses; /* GD_LOSS_USES(…), beside the scale */
};

/* ---- a function for each type ---- */

static gd_tensor *cross_entropy(const loss_args *a)
{
    return gd_cross_entropy(a->in[0], a->in[1], .weight = a->spec->weight,
                            .label_smoothing = a->spec->label_smoothing,
                            .ignore_index = a->spec->ignore_index, .reduction = a->spec->reduction);
}

static gd_tensor *cross_entropy_probabilities(const loss_args *a)
{
    return gd_cross_entropy_probabilities(a->in[0], a->in[1]);
}

static gd_tensor *nll(const loss_args *a)
{
    return gd_nll(a->in[0], a->in[1], .weight = a->spec->weight,
                  .ignore_index = a->spec->ignore_index, .reduction = a->spec->reduction);
}

static gd_tensor *bce(const loss_args *a)
{
    return gd_bce(a->in[0], a->in[1], .weight = a->spec->weight, .reduction = a->spec->reduction);
}

static gd_tensor *bce_with_logits(const loss_args *a)
{
    return gd_bce_with_logits(a->in[0], a->in[1], .weight = a->spec->weight,
                              .positive_weight = a->spec->positive_weight,
                              .reduction = a->spec->reduction);
}

static gd_tensor *focal(const loss_args *a)
{
    return gd_focal(a->in[0], a->in[1], .alpha = a->spec->alpha, .gamma = a->spec->gamma,
                    .reduction = a->spec->reduction);
}

static double margin_of(const loss_args *a, double usual)
{
    return isnan(a->spec->margin) ? usual : a->spec->margin;
}

static gd_tensor *hinge(const loss_args *a)
{
    return gd_hinge(a->in[0], a->in[1], .margin = margin_of(a, 1), .reduction = a->spec->reduction);
}

static gd_tensor *hinge_embedding(const loss_args *a)
{
    return gd_hinge_embedding(a->in[0], a->in[1], .margin = margin_of(a, 1),
                              .reduction = a->spec->reduction);
}

static gd_tensor *kl_div(const loss_args *a)
{
    return gd_kl_div(a->in[0], a->in[1], .log_target = a->spec->log_target,
                     .reduction = a->spec->reduction);
}

static gd_tensor *mse(const loss_args *a)
{
    return gd_mse(a->in[0], a->in[1], .reduction = a->spec->reduction);
}

static gd_tensor *mae(const loss_args *a)
{
    return gd_mae(a->in[0], a->in[1], .reduction = a->spec->reduction);
}

static gd_tensor *huber(const loss_args *a)
{
    return gd_huber(a->in[0], a->in[1], .delta = a->spec->delta, .reduction = a->spec->reduction);
}

static gd_tensor *smooth_l1(const loss_args *a)
{
    return gd_smooth_l1(a->in[0], a->in[1], .delta = a->spec->delta,
                        .reduction = a->spec->reduction);
}

static gd_tensor *cosine_embedding(const loss_args *a)
{
    return gd_cosine_embedding(a->in[0], a->in[1], a->in[2], .margin = margin_of(a, 0),
                               .reduction = a->spec->reduction);
}

static gd_tensor *triplet_margin(const loss_args *a)
{
    return gd_triplet_margin(a->in[0], a->in[1], a->in[2], .margin = margin_of(a, 1),
                             .p = a->spec->p, .swap = a->spec->swap,
                             .reduction = a->spec->reduction);
}

/* The op wants [time, batch, classes]. */
static gd_tensor *ctc(const loss_args *a)
{
    return gd_ctc(gd_transpose(a->in[0], 0, 1), a->in[1], a->in[2], a->in[3],
                  .blank = a->spec->blank, .zero_infinity = a->spec->zero_infinity,
                  .reduction = a->spec->reduction);
}

#define USES(id)  GD_LOSS_USES(id)
#define REDUCTION USES(REDUCTION)
#define CLASSES   (USES(WEIGHT) | USES(IGNORE_INDEX) | REDUCTION)

static const gd_loss_row rows[] = {
    { "cross_entropy", cross_entropy, 1, 1, CLASSES | USES(LABEL_SMOOTHING) },
    { "cross_entropy_probabilities", cross_entropy_probabilities, 1, 1, 0 },
    { "nll", nll, 1, 1, CLASSES },
    { "bce", bce, 1, 1, USES(WEIGHT) | REDUCTION },
    { "bce_with_logits", bce_with_logits, 1, 1, USES(WEIGHT) | USES(POSITIVE_WEIGHT) | REDUCTION },
    { "focal", focal, 1, 1, USES(ALPHA) | USES(GAMMA) | REDUCTION },
    { "hinge", hinge, 1, 1, USES(MARGIN) | REDUCTION },
    { "hinge_embedding", hinge_embedding, 1, 1, USES(MARGIN) | REDUCTION },
    { "kl_div", kl_div, 1, 1, USES(LOG_TARGET) | REDUCTION },
    { "mse", mse, 1, 1, REDUCTION },
    { "mae", mae, 1, 1, REDUCTION },
    { "huber", huber, 1, 1, USES(DELTA) | REDUCTION },
    { "smooth_l1", smooth_l1, 1, 1, USES(DELTA) | REDUCTION },
    { "cosine_embedding", cosine_embedding, 2, 1, USES(MARGIN) | REDUCTION },
    { "triplet_margin", triplet_margin, 3, 0, USES(MARGIN) | USES(P) | USES(SWAP) | REDUCTION },
    { "ctc", ctc, 1, 3, USES(BLANK) | USES(ZERO_INFINITY) | REDUCTION },
};
enum { ROWS = sizeof rows / sizeof *rows, MOST_TENSORS = 4 };

/* ---- what a spec says ---- */

static gd_status find_row(const char *name, const gd_loss_row **row)
{
    char all[512] = "", words[GD_NEAREST_TEXT];
    gd_nearest nearest = { .given = name };
    for (size_t i = 0, at = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *row = &rows[i];
            return GD_OK;
        }
        gd_nearest_try(&nearest, rows[i].name);
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", rows[i].name);
    }
    return gd_fail(GD_ERR_INVALID, "model: there is no loss \"%.64s\"%s%s there are %s", name,
                   gd_nearest_words(&nearest, words), nearest.name ? "" : ";", all);
}

static gd_status check_uses(const gd_loss_row *row, const gd_loss_spec *spec)
{
    uint64_t extra = gd_fields_given(&gd_loss_fields, spec) & ~(row->uses | GD_LOSS_USES(SCALE));
    if (extra)
        return gd_fail(GD_ERR_INVALID, "model: the loss %s does not use \"%s\"", row->name,
                       gd_field_name(&gd_loss_fields, extra));
    if (isfinite(spec->scale))
        return GD_OK;
    return gd_fail(GD_ERR_INVALID, "model: the scale of the loss %s is no finite number",
                   row->name);
}

/* Which output of the model is called so; -1: none. */
static int find_output(const gd_model *model, const char *name)
{
    for (int k = 0; k < model->output_count; k++)
        if (strcmp(model->layers[model->outputs[k]].name, name) == 0)
            return k;
    return -1;
}

/* *next is the first output that no loss has taken without naming it. */
static gd_status resolve_outputs(gd_model *model, gd_model_loss_term *term, int *next)
{
    const gd_loss_row *row = term->row;
    const char **names = term->spec.outputs;
    int given = 0;
    while (given < GD_LOSS_MAX_OUTPUTS && names[given])
        given++;
    if (given && given != row->outputs)
        return gd_fail(GD_ERR_INVALID, "model: the loss %s takes %d output%s, not %d", row->name,
                       row->outputs, row->outputs == 1 ? "" : "s", given);
    for (int k = 0; k < row->outputs; k++) {
        int output = given ? find_output(model, names[k]) : (*next)++;
        if (output < 0)
            return gd_fail(GD_ERR_INVALID, "model: the loss %s is of \"%.64s\", which is no output",
                           row->name, names[k]);
        if (output >= model->output_count)
            return gd_fail(GD_ERR_INVALID,
                           "model: the loss %s takes %d output%s, but the model has %d and other "
                           "losses take them: say which by \"outputs\"",
                           row->name, row->outputs, row->outputs == 1 ? "" : "s",
                           model->output_count);
        term->outputs[k] = output;
        names[k] = model->layers[model->outputs[output]].name;
    }
    return GD_OK;
}

/* ---- probabilities ---- */

static bool is_softmax(const gd_layer_type *type)
{
    return type && strcmp(type->name, "softmax") == 0;
}

static bool ends_in_softmax(const gd_model_layer *layer)
{
    return is_softmax(layer->activation) || (is_softmax(layer->type) && !layer->activation);
}

bool gd_model_gives_probabilities(const gd_model *model)
{
    return model && ends_in_softmax(&model->layers[model->outputs[0]]);
}

/* Not a softmax of a softmax. */
static gd_status note_probabilities(gd_model *model, gd_model_loss_term *term)
{
    const gd_model_layer *last = &model->layers[model->outputs[term->outputs[0]]];
    if (term->row->build != cross_entropy || !ends_in_softmax(last))
        return GD_OK;
    uint64_t given = gd_fields_given(&gd_loss_fields, &term->spec) & ~GD_LOSS_USES(SCALE);
    if (given)
        return gd_fail(GD_ERR_INVALID,
                       "model: cross_entropy with \"%s\" takes logits, but layer \"%s\" ends in "
                       "softmax",
                       gd_field_name(&gd_loss_fields, given), last->name);
    term->of_probabilities = true;
    return GD_OK;
}

/* ---- taking the losses in ---- */

/* A copy of a weight in the module's dtype, retained; NULL of NULL. false: the error is recorded. */
static bool copy_weight(const gd_model *model, gd_tensor **weight)
{
    gd_tensor *given = *weight;
    *weight = NULL;
    if (!given)
        return true;
    gd_context *context = model->context;
    if (gd_scope_begin(context) != GD_OK)
        return false;
    gd_trace_pause(context);
    (void)gd_no_grad_begin(context);
    *weight = gd_retain(gd_copy(gd_cast(given, gd_module_dtype(model->module))));
    (void)gd_no_grad_end(context);
    gd_trace_resume(context);
    (void)gd_scope_end(context);
    return *weight;
}

static gd_status take_loss(gd_model *model, const gd_loss_spec *given, int *next)
{
    gd_model_loss_term *term = &model->losses[model->loss_count];
    gd_status status = find_row(given->type ? given->type : "", &term->row);
    if (status == GD_OK)
        status = check_uses(term->row, given);
    if (status != GD_OK)
        return status;
    term->spec = *given;
    term->spec.type = term->row->name;
    status = resolve_outputs(model, term, next);
    if (status == GD_OK)
        status = note_probabilities(model, term);
    if (status != GD_OK)
        return status;
    bool copied = copy_weight(model, &term->spec.weight);
    if (!copied)
        term->spec.positive_weight = NULL; /* the caller's */
    copied = copied && copy_weight(model, &term->spec.positive_weight);
    model->loss_count++;
    return copied ? GD_OK : gd_error_last();
}

/* Each element has a number in a sum of several losses; so each of them must be one number. */
static gd_status check_reductions(const gd_model *model)
{
    for (int i = 0; model->loss_count > 1 && i < model->loss_count; i++)
        if (model->losses[i].spec.reduction == GD_REDUCE_NONE)
            return gd_fail(GD_ERR_INVALID,
                           "model: the loss %s has the reduction none; one of several losses is a "
                           "number",
                           model->losses[i].row->name);
    return GD_OK;
}

gd_status gd_model_resolve_losses(gd_model *model, const gd_model_spec *spec)
{
    const gd_loss_spec usual = { GD_LOSS_SPEC_DEFAULTS, .type = "cross_entropy" };
    const gd_loss_spec *losses = spec->loss_count ? spec->losses : &usual;
    int count = spec->loss_count ? spec->loss_count : model->output_count == 1;
    if (count < 0 || count > GD_MODEL_MAX_LOSSES || !losses)
        return gd_fail(GD_ERR_INVALID, "model: there are %d losses; up to %d are allowed", count,
                       GD_MODEL_MAX_LOSSES);
    model->losses = gd_alloc_zero((size_t)count + 1, sizeof *model->losses);
    if (!model->losses)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    int next = 0;
    for (int i = 0; status == GD_OK && i < count; i++) {
        gd_loss_spec loss = { GD_LOSS_SPEC_DEFAULTS };
        status = gd_read_spec("gd_loss_spec", losses, i, &loss, sizeof loss);
        if (status == GD_OK)
            status = take_loss(model, &loss, &next);
    }
    return status == GD_OK ? check_reductions(model) : status;
}

void gd_model_free_losses(gd_model *model)
{
    for (int i = 0; i < model->loss_count; i++) {
        gd_release(model->losses[i].spec.weight);
        gd_release(model->losses[i].spec.positive_weight);
    }
    gd_free(model->losses);
}

/* ---- computing them ---- */

/* Classes lie along the last axis. */
static bool softmax_fits(const gd_model *model, const gd_model_loss_term *term,
                         const gd_tensor *output)
{
    const gd_model_layer *last = &model->layers[model->outputs[term->outputs[0]]];
    int axis = is_softmax(last->activation) ? -1 : last->spec.axis;
    if (axis == -1 || axis == gd_tensor_shape(output).rank - 1)
        return true;
    (void)gd_fail(GD_ERR_SHAPE,
                  "gd_model_loss: the softmax of layer \"%s\" is along axis %d; %s wants classes "
                  "along the last one",
                  last->name, axis, term->row->name);
    return false;
}

/* ---- of padded sequences ---- */

/* An output [batch, time, ..] and a target of as many steps; lengths may be NULL. */
static bool is_padded(const gd_model_loss_term *term, gd_tensor *const *in,
                      const gd_tensor *lengths)
{
    if (!lengths || term->row->outputs != 1 || term->row->targets != 1)
        return false;
    gd_shape x = gd_tensor_shape(in[0]), y = gd_tensor_shape(in[1]);
    return x.rank >= 2 && y.rank >= 2 && x.dim[0] == y.dim[0] && x.dim[1] == y.dim[1];
}

/* [batch, time], whether a step is there; as wide as a tensor of that rank is to be compared with. */
static gd_tensor *steps_there(gd_tensor *lengths, gd_shape like)
{
    gd_shape time = { .rank = like.rank }, batch = { .rank = like.rank };
    for (int i = 0; i < like.rank; i++)
        time.dim[i] = batch.dim[i] = 1;
    time.dim[1] = like.dim[1];
    batch.dim[0] = like.dim[0];
    gd_tensor *steps = gd_arange(gd_tensor_context(lengths), 0, (double)like.dim[1], 1, GD_I64);
    return gd_lt(gd_reshape(steps, time), gd_reshape(gd_cast(lengths, GD_I64), batch));
}

/* Targets behind the end become the index that is ignored, and elements there 0; the mean is over the
 * rest. */
static gd_tensor *padded_loss(const gd_model_loss_term *term, gd_tensor *const *in,
                              gd_tensor *lengths)
{
    const int64_t ignored = -100;
    gd_loss_spec spec = term->spec;
    gd_shape shape = gd_tensor_shape(in[1]);
    gd_tensor *there = steps_there(lengths, shape), *tensors[] = { in[0], in[1] };
    const loss_args args = { &spec, tensors };
    if (term->of_probabilities || !(term->row->uses & GD_LOSS_USES(REDUCTION)))
        return gd_fail_null(GD_ERR_UNSUPPORTED,
                            "gd_model_loss_padded: %s of padded sequences: let the model end in "
                            "logits",
                            term->row->name);
    if (term->row->uses & GD_LOSS_USES(IGNORE_INDEX) &&
        gd_dtype_is_integer(gd_tensor_dtype(in[1]))) {
        spec.ignore_index = spec.ignore_index == GD_NO_INDEX ? ignored : spec.ignore_index;
        tensors[1] = gd_where(there, in[1], gd_full_like(in[1], (double)spec.ignore_index));
        return term->row->build(&args);
    }
    spec.reduction = GD_REDUCE_NONE;
    gd_tensor *each = term->row->build(&args);
    each = each ? gd_where(there, each, gd_zeros_like(each)) : NULL;
    if (term->spec.reduction == GD_REDUCE_NONE || !each)
        return each;
    gd_tensor *sum = gd_sum(each, GD_ALL_AXES, false);
    if (term->spec.reduction == GD_REDUCE_SUM)
        return sum;
    gd_tensor *all = gd_broadcast_to(there, gd_tensor_shape(each));
    return gd_div(sum,
                  gd_cast(gd_sum(gd_cast(all, GD_I64), GD_ALL_AXES, false), gd_tensor_dtype(sum)));
}

static gd_tensor *term_of(const gd_model *model, const gd_model_loss_term *term,
                          gd_tensor *const *outputs, gd_tensor *const *targets, gd_tensor *lengths)
{
    gd_tensor *in[MOST_TENSORS];
    for (int k = 0; k < term->row->outputs; k++)
        in[k] = outputs[term->outputs[k]];
    for (int k = 0; k < term->row->targets; k++)
        in[term->row->outputs + k] = targets[k];
    for (int k = 0; k < term->row->outputs + term->row->targets; k++)
        if (!in[k])
            return NULL;
    const loss_args args = { &term->spec, in };
    if (term->of_probabilities && !softmax_fits(model, term, in[0]))
        return NULL;
    gd_tensor *loss = is_padded(term, in, lengths) ? padded_loss(term, in, lengths)
                      : term->of_probabilities     ? cross_entropy_probabilities(&args)
                                                   : term->row->build(&args);
    return term->spec.scale == 1 ? loss : gd_mul_scalar(loss, term->spec.scale);
}

int gd_model_target_count(const gd_model *model)
{
    int count = 0;
    for (int i = 0; model && i < model->loss_count; i++)
        count += model->losses[i].row->targets;
    return count;
}

gd_tensor *gd_model_loss_all(const gd_model *model, int output_count, gd_tensor *const *outputs,
                             int target_count, gd_tensor *const *targets)
{
    return gd_model_loss_padded(model, output_count, outputs, target_count, targets, NULL);
}

gd_tensor *gd_model_loss_padded(const gd_model *model, int output_count, gd_tensor *const *outputs,
                                int target_count, gd_tensor *const *targets, gd_tensor *lengths)
{
    if (!model || (output_count && !outputs) || (target_count && !targets))
        return NULL;
    if (output_count != model->output_count || target_count != gd_model_target_count(model))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_model_loss_all: %d outputs and %d targets are given; the model's "
                            "losses take %d and %d",
                            output_count, target_count, model->output_count,
                            gd_model_target_count(model));
    if (!model->loss_count)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_model_loss_all: the model has %d outputs and no "
                            "loss: say which by \"losses\"",
                            model->output_count);
    gd_tensor *sum = NULL;
    for (int i = 0, at = 0; i < model->loss_count; i++) {
        const gd_model_loss_term *term = &model->losses[i];
        gd_tensor *loss =
            term_of(model, term, outputs, term->row->targets ? &targets[at] : NULL, lengths);
        at += term->row->targets;
        sum = i ? gd_add(sum, loss) : loss;
    }
    return sum;
}

gd_tensor *gd_model_loss(const gd_model *model, gd_tensor *output, gd_tensor *target)
{
    if (!model || !output)
        return NULL;
    if (model->output_count != 1 || gd_model_target_count(model) != 1)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_model_loss: the model has %d outputs, and its losses take %d "
                            "targets: call gd_model_loss_all",
                            model->output_count, gd_model_target_count(model));
    return gd_model_loss_all(model, 1, &output, 1, &target);
}

int gd_model_loss_count(const gd_model *model)
{
    return model ? model->loss_count : 0;
}

const gd_loss_spec *gd_model_loss_spec(const gd_model *model, int index)
{
    return model && index >= 0 && index < model->loss_count ? &model->losses[index].spec : NULL;
}
