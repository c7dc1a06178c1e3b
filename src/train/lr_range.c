/* train/lr_range.c: the learning-rate range test: a short training whose rate grows, after which
 * everything is put back. Start at gd_lr_range_with(). */
#include "train/meter.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "nn/module_file.h"
#include "optim/state.h"

#include <gradus/autograd.h>

#include <math.h>

typedef struct range_test {
    gd_optimizer *optimizer;
    gd_context *context;
    gd_objective_fn objective;
    void *user;
    gd_loader *loader;
    gd_meter meter;
    gd_function *step;
    gd_lr_range_options options;
    /* what is put back */
    gd_state_list state;
    unsigned char
        *values; /* of all tensors of state, one after another; NULL: nothing is kept yet */
    gd_random_stream random;
    double lr;
    int64_t position;
} range_test;

static gd_tensor *step_body(void *user, int count, gd_tensor *const *in)
{
    range_test *t = user;
    gd_tensor *loss = gd_objective_run(t->objective, t->user, &t->meter, true, count, in);
    return loss ? gd_minimize(t->optimizer, loss) : NULL;
}

static size_t bytes_of(const gd_tensor *t)
{
    return (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
}

/* All that a step changes, once tracing the first has made it. */
static gd_status keep(range_test *t)
{
    gd_status status = gd_module_collect(gd_optimizer_module(t->optimizer), &t->state);
    if (status == GD_OK)
        status = gd_optimizer_collect(t->optimizer, NULL, &t->state);
    size_t size = 1, at = 0;
    for (size_t i = 0; i < t->state.count; i++)
        size += bytes_of(t->state.list[i].tensor);
    unsigned char *values = status == GD_OK ? gd_alloc(size) : NULL;
    if (!values)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    for (size_t i = 0; status == GD_OK && i < t->state.count; i++) {
        size_t bytes = bytes_of(t->state.list[i].tensor);
        status = gd_tensor_read(t->state.list[i].tensor, values + at, bytes);
        at += bytes;
    }
    if (status == GD_OK)
        t->values = values;
    else
        gd_free(values);
    return status;
}

static gd_status put_back(range_test *t)
{
    gd_status status = GD_OK;
    size_t at = 0;
    for (size_t i = 0; t->values && status == GD_OK && i < t->state.count; i++) {
        size_t bytes = bytes_of(t->state.list[i].tensor);
        status = gd_tensor_write(t->state.list[i].tensor, t->values + at, bytes);
        at += bytes;
    }
    if (status == GD_OK)
        status = gd_optimizer_set_lr(t->optimizer, t->lr);
    if (status == GD_OK)
        status = gd_random_seek(t->context, t->random.seed, t->random.position);
    return status == GD_OK ? gd_loader_seek(t->loader, t->position) : status;
}

/* The loss of a step at a rate; the first makes the plan, and what it changes is kept before it runs.
 */
static gd_status take_step(range_test *t, double lr, double *loss)
{
    gd_batch b;
    if (!gd_loader_next_batch(t->loader, &b))
        return gd_error_last();
    gd_status status = gd_optimizer_set_lr(t->optimizer, lr);
    if (status == GD_OK && !t->values)
        status = gd_function_prepare(t->step, b.count, b.tensors);
    if (status == GD_OK && !t->values)
        status = keep(t);
    gd_tensor *result = status == GD_OK ? gd_call(t->step, b.count, b.tensors) : NULL;
    if (!result)
        return gd_error_last();
    const uint64_t mark = gd_error_mark();
    *loss = gd_item(result);
    return gd_error_since(mark);
}

static int64_t run(range_test *t, gd_lr_point *points)
{
    const gd_lr_range_options *o = &t->options;
    const double keeping = 0.9; /* of the smoothed loss, which is an average with falling weights */
    double average = 0.0, weight = 0.0, least = INFINITY;
    double factor = o->steps > 1 ? pow(o->to / o->from, 1.0 / (double)(o->steps - 1)) : 1.0;
    for (int64_t i = 0; i < o->steps; i++) {
        double lr = o->from * pow(factor, (double)i), loss;
        if (take_step(t, lr, &loss) != GD_OK)
            return -1;
        if (!isfinite(loss))
            return i;
        average = keeping * average + (1.0 - keeping) * loss;
        weight = keeping * weight + (1.0 - keeping);
        points[i] = (gd_lr_point){ lr, average / weight };
        least = fmin(least, points[i].loss);
        if (points[i].loss > 4.0 * fabs(least) && i > 0)
            return i + 1;
    }
    return o->steps;
}

/* Where the smoothed loss falls most over a tenth of the points; not among the first tenth, of which
 * the average is of too few to be smooth. */
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
    range_test t = { .optimizer = optimizer,
                     .context = gd_module_context(module),
                     .objective = objective,
                     .user = user,
                     .loader = loader,
                     .options = o,
                     .lr = gd_optimizer_lr(optimizer),
                     .position = gd_loader_position(loader) };
    t.random = gd_random_position(t.context);
    gd_meter_open(&t.meter, t.context);
    bool was_training = gd_module_is_training(module);
    gd_module_set_training(module, true);
    t.step = gd_compile(t.context, step_body, &t);
    int64_t count = t.step ? run(&t, points) : -1;
    if (t.step && put_back(&t) != GD_OK)
        count = -1;
    gd_module_set_training(module, was_training);
    gd_function_release(t.step);
    gd_meter_close(&t.meter);
    gd_state_list_free(&t.state);
    gd_free(t.values);
    if (lr)
        *lr = steepest(points, count);
    return count;
}
