/* train/lr_range.c: the learning-rate range test: a short training whose rate grows, after which
 * everything is put back. Start at gd_lr_range_with(). */
#include "train/kept.h"
#include "train/meter.h"

#include "base/error.h"
#include "base/options.h"

#include <gradus/autograd.h>

#include <math.h>

typedef struct range_test {
    gd_objective_fn objective;
    void *user;
    gd_meter meter;
    gd_function *step;
    gd_lr_range_options options;
    gd_kept_of of;
    double lr; /* before the test, and where the loader stood */
    int64_t position;
    gd_kept before; /* all that is put back */
} range_test;

static gd_tensor *step_body(void *user, int count, gd_tensor *const *in)
{
    range_test *t = user;
    gd_tensor *loss = gd_objective_run(t->objective, t->user, &t->meter, true, count, in);
    return loss ? gd_minimize(t->of.optimizer, loss) : NULL;
}

static gd_status put_back(const range_test *t)
{
    if (t->before.is_full)
        return gd_kept_restore(&t->before, &t->of);
    gd_status status = gd_optimizer_set_lr(t->of.optimizer, t->lr); /* no step was made */
    return status == GD_OK ? gd_loader_seek(t->of.loader, t->position) : status;
}

/* The loss of a step at a rate; the first makes the plan, and what it changes is kept before it runs.
 */
static gd_status take_step(range_test *t, double lr, double *loss)
{
    gd_batch b;
    if (!gd_loader_next_batch(t->of.loader, &b))
        return gd_error_last();
    gd_status status = gd_optimizer_set_lr(t->of.optimizer, lr);
    if (status == GD_OK && !t->before.is_full) {
        status = gd_function_prepare(t->step, b.count, b.tensors);
        if (status == GD_OK)
            status = gd_kept_take(&t->before, &t->of);
        t->before.position = t->position;
        t->before.lr = t->lr;
    }
    gd_tensor *result = status == GD_OK ? gd_call(t->step, b.count, b.tensors) : NULL;
    if (!result)
        return gd_error_last();
    const uint64_t mark = gd_error_mark();
    *loss = gd_item(result);
    return gd_error_since(mark);
}

/* An exponential moving average with 0.98 of the past, divided by the sum of its weights, and the end
 * where it is four times its least: as fastai and PyTorch Lightning have them. */
static int64_t run(range_test *t, gd_lr_point *points)
{
    const gd_lr_range_options *o = &t->options;
    const double past = 0.98;
    double average = 0.0, weight = 0.0, least = INFINITY;
    double factor = o->steps > 1 ? pow(o->to / o->from, 1.0 / (double)(o->steps - 1)) : 1.0;
    for (int64_t i = 0; i < o->steps; i++) {
        double lr = o->from * pow(factor, (double)i), loss;
        if (take_step(t, lr, &loss) != GD_OK)
            return -1;
        if (!isfinite(loss))
            return i;
        average = past * average + (1.0 - past) * loss;
        weight = past * weight + (1.0 - past);
        points[i] = (gd_lr_point){ lr, average / weight };
        least = fmin(least, points[i].loss);
        if (points[i].loss > 4.0 * fabs(least) && i > 0)
            return i + 1;
    }
    return o->steps;
}

/* Where the smoothed loss falls most over a tenth of the points (between neighbours, as Lightning has it,
 * noise decides where batches are small); not among the first, of which the average is of too few. */
static double steepest(const gd_lr_point *points, int64_t count)
{
    double lr = NAN, most = 0.0;
    int64_t width = count / 10 + 1;
    for (int64_t i = 2 * width; i < count; i++) {
        double fall = points[i - width].loss - points[i].loss;
        if (fall > most) {
            most = fall;
            lr = points[i - width / 2].lr;
        }
    }
    return lr;
}

int64_t gd_lr_range_with(gd_optimizer *optimizer, gd_objective_fn objective, void *user,
                         gd_loader *loader, gd_lr_point *points, double *lr,
                         const gd_lr_range_options *options)
{
    gd_lr_range_options o = { GD_LR_RANGE_DEFAULTS };
    if (!gd_options_read("gd_lr_range", &o, sizeof o, options))
        return -1;
    if (!optimizer || !objective || !loader || !points || o.steps < 1 ||
        !(o.from > 0.0 && o.to >= o.from && isfinite(o.to))) {
        (void)gd_fail(GD_ERR_INVALID, "gd_lr_range: optimizer, objective, loader and points are "
                                      "needed, and rates above 0 that grow, in 1 or more steps");
        return -1;
    }
    gd_module *module = gd_optimizer_module(optimizer);
    range_test t = { .objective = objective,
                     .user = user,
                     .options = o,
                     .of = { .optimizer = optimizer, .loader = loader },
                     .lr = gd_optimizer_lr(optimizer),
                     .position = gd_loader_position(loader) };
    gd_context *context = gd_module_context(module);
    gd_meter_open(&t.meter, context, o.precision);
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, true);
    t.step = gd_compile(context, step_body, &t);
    int64_t count = t.step ? run(&t, points) : -1;
    if (t.step && put_back(&t) != GD_OK)
        count = -1;
    gd_module_set_training(module, was_training);
    gd_function_release(t.step);
    gd_meter_close(&t.meter);
    gd_kept_free(&t.before);
    if (lr)
        *lr = steepest(points, count);
    return count;
}
