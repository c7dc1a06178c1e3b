/* train/blame.c: what made a loss NaN or infinite: the step is put back and done again op by op. Start
 * at gd_blame_tell(). */
#include "train/fit.h"

#include "base/error.h"
#include "base/memory.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

/* ---- doing steps again ---- */

/* Tracing makes parameters and states that are not there before the first step; eagerly, and where
 * gradients are accumulated, a function is traced for that alone. */
static gd_status make_state(gd_fit *f)
{
    bool whole = f->options.mode == GD_MODE_COMPILED && !f->update;
    int64_t position = gd_loader_position(f->train);
    gd_batch b;
    if (!gd_loader_next_batch(f->train, &b))
        return gd_error_last();
    gd_function *step = whole ? f->step : gd_compile(f->context, gd_fit_step_body, f);
    gd_status status = step ? gd_function_prepare(step, b.count, b.tensors) : gd_error_last();
    if (!whole)
        gd_function_release(step);
    return status == GD_OK ? gd_loader_seek(f->train, position) : status;
}

gd_status gd_blame_keep(gd_fit *f)
{
    gd_blame *blame = &f->blame;
    gd_status status = GD_OK;
    if (blame->done < 0 || f->done - blame->done == GD_BLAME_STEPS) {
        status = blame->kept.is_full ? gd_fit_check_loss(f) : make_state(f);
        if (status == GD_OK)
            status = gd_kept_take(&blame->kept, &f->of);
        blame->done = f->done;
    }
    blame->lr[f->done - blame->done] = gd_optimizer_lr(f->optimizer);
    return status;
}

static gd_status repeat_batch(gd_fit *f, int64_t samples, double *loss)
{
    gd_batch b;
    gd_tensor *result = gd_loader_next_batch(f->train, &b) ? gd_fit_call(f, &b, samples) : NULL;
    if (!result)
        return gd_error_last();
    const uint64_t mark = gd_error_mark();
    *loss = gd_item(result);
    return gd_error_since(mark);
}

/* Put the copy back, and do its steps again up to batch *i of step `step`; *i is -1: to the first whose
 * loss is not finite, which *i and *loss become, of the steps before `step`. */
static gd_status repeat(gd_fit *f, int64_t step, int64_t *i, double *loss)
{
    bool searches = *i < 0;
    gd_status status = gd_kept_restore(&f->blame.kept, &f->of);
    if (status == GD_OK && f->update) /* what a step that was not finished has added up */
        status = gd_optimizer_zero_grad(f->optimizer);
    for (f->done = f->blame.done; status == GD_OK && f->done < step + !searches; f->done++) {
        int64_t samples, count = gd_fit_group(f, &samples);
        status = gd_optimizer_set_lr(f->optimizer, f->blame.lr[f->done - f->blame.done]);
        for (int64_t k = 0; status == GD_OK && k < count; k++) {
            double value = 0.0;
            if (f->done == step && k == *i)
                return GD_OK;
            status = repeat_batch(f, samples, &value);
            if (status == GD_OK && searches && !isfinite(value)) {
                *i = k;
                *loss = value;
                return GD_OK;
            }
        }
        if (status == GD_OK && f->update && !gd_call(f->update, 0, NULL))
            status = gd_error_last();
    }
    return status;
}

/* ---- looking at values ---- */

/* The least and the largest finite number, and the first that is not finite (0: none). */
typedef struct range {
    double least, largest, bad;
} range;

static range look_at(gd_tensor *t)
{
    range r = { INFINITY, -INFINITY, 0.0 };
    if (!gd_dtype_is_float(gd_tensor_dtype(t)) || gd_tensor_count(t) == 0)
        return r;
    gd_context *context = gd_tensor_context(t);
    size_t count = (size_t)gd_tensor_count(t);
    double *values = gd_alloc(count * sizeof *values);
    (void)gd_no_grad_begin(context);
    gd_tensor *wide = gd_cast(t, GD_F64);
    bool ok = values && wide && gd_tensor_read(wide, values, count * sizeof *values) == GD_OK;
    (void)gd_no_grad_end(context);
    for (size_t i = 0; ok && i < count; i++) {
        bool finite = isfinite(values[i]);
        r.least = finite && values[i] < r.least ? values[i] : r.least;
        r.largest = finite && values[i] > r.largest ? values[i] : r.largest;
        r.bad = !finite && r.bad == 0.0 ? values[i] : r.bad;
    }
    gd_free(values);
    return r;
}

static bool is_bad(gd_tensor *t)
{
    return look_at(t).bad != 0.0; /* of a NaN too */
}

/* ---- telling ---- */

/* A NaN's sign says nothing, and printf shows it. */
static double without_sign(double x)
{
    return isnan(x) ? (double)NAN : x;
}

static gd_status tell(const gd_fit *f, double loss, const char *format, const char *what)
{
    char why[512];
    gd_snprintf(why, sizeof why, format, what);
    return gd_fail(GD_ERR_STATE, "gd_fit: the loss of step %lld, in epoch %lld, is %g%s",
                   (long long)f->done + 1, (long long)(f->done / f->per_epoch) + 1,
                   without_sign(loss), why);
}

/* "log of [50, 10], whose operand lies in 0 … 1": the op, what it read, and the layer: the parameter
 * that was read last before. */
static void describe(gd_tensor *const *order, int64_t at, char *out, size_t size)
{
    gd_tensor *t = order[at];
    gd_text text = { out, size, 0 };
    gd_text_add(&text, "\"%s\" of [", gd_tensor_op(t));
    gd_shape shape = gd_tensor_shape(t);
    for (int i = 0; i < shape.rank; i++)
        gd_text_add(&text, "%s%lld", i ? ", " : "", (long long)shape.dim[i]);
    gd_text_add(&text, "] makes %g of", without_sign(look_at(t).bad));
    for (int i = 0; i < gd_tensor_input_count(t); i++) {
        range r = look_at(gd_tensor_input(t, i));
        if (r.least <= r.largest)
            gd_text_add(&text, "%s numbers in %g ... %g", i ? " and" : "", r.least, r.largest);
        else
            gd_text_add(&text, "%s integers", i ? " and" : "");
    }
    for (int64_t i = at; i-- > 0;)
        if (gd_tensor_name(order[i])[0]) {
            gd_text_add(&text, ", behind \"%s\"", gd_tensor_name(order[i]));
            break;
        }
}

/* The first node behind the loss that is not finite. */
static gd_status blame_node(gd_fit *f, gd_tensor *loss, double value)
{
    int64_t count = gd_graph_order(loss, NULL, 0);
    gd_tensor **order = gd_alloc_zero((size_t)count + 1, sizeof(gd_tensor *));
    if (!order)
        return GD_ERR_MEMORY;
    (void)gd_graph_order(loss, order, count);
    char text[400] = "";
    bool found = false;
    for (int64_t i = 0; !found && i < count; i++) {
        found = is_bad(order[i]);
        if (found && gd_tensor_op(order[i])[0])
            describe(order, i, text, sizeof text);
        else if (found)
            gd_snprintf(text, sizeof text, "it is in a tensor%s%s that no op with a history made",
                        gd_tensor_name(order[i])[0] ? ", " : "", gd_tensor_name(order[i]));
    }
    gd_free(order);
    return found ? tell(f, value, ": %s", text)
                 : tell(f, value, "; %s", "done again op by op, it is finite");
}

/* In this batch, before which all is as it was. */
static gd_status search(gd_fit *f, const gd_batch *batch, double loss)
{
    char text[64];
    for (int i = 0; i < gd_module_count(f->module); i++)
        if (is_bad(gd_module_tensor(f->module, i)))
            return tell(f, loss,
                        ": \"%s\" was not finite before it: the step before went too far, or its "
                        "gradient was not finite",
                        gd_module_path(f->module, i));
    for (int i = 0; i < batch->count; i++) {
        gd_snprintf(text, sizeof text, "tensor %d", i);
        if (is_bad(batch->tensors[i]))
            return tell(f, loss, ": %s of the batch is not finite", text);
    }
    gd_tensor *again =
        gd_objective_run(f->objective, f->user, &f->meter, true, batch->count, batch->tensors);
    return again ? blame_node(f, again, loss) : gd_error_last();
}

/* The step, where it is not known; all as it was before its batch; the search; and all as it was before
 * the step. */
static gd_status search_again(gd_fit *f, int64_t i, double loss)
{
    gd_status status = i < 0 ? repeat(f, f->done, &i, &loss) : GD_OK;
    if (status == GD_OK && i < 0) {
        f->done--;
        return tell(f, loss, "%s", ", or that of a step shortly before; done again, it is finite");
    }
    gd_batch batch;
    if (status == GD_OK)
        status = repeat(f, f->done, &i, &loss);
    if (status == GD_OK && !gd_loader_next_batch(f->train, &batch))
        status = gd_error_last();
    if (status == GD_OK)
        status = gd_scope_begin(f->context);
    if (status != GD_OK)
        return status;
    status = search(f, &batch, loss);
    (void)gd_scope_end(f->context);
    int64_t first = 0;
    gd_status back = repeat(f, f->done, &first, &loss);
    return back == GD_OK ? status : back;
}

gd_status gd_blame_tell(gd_fit *f, int64_t i, double loss)
{
    if (f->options.blame)
        return search_again(f, i, loss);
    if (i >= 0)
        return tell(f, loss, "; %s", "with .blame = true the op that made it so is found");
    f->done -= f->done > 0; /* the last step that was done */
    return tell(
        f, loss, ", or became so before: %s",
        "on this device it is looked at now and then; with .blame = true the step and the op "
        "that made it so are found");
}
