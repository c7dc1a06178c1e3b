/* optim/lbfgs.c: limited-memory BFGS (Liu, Nocedal 1989) with a line search for the strong Wolfe
 * conditions (Nocedal, Wright, "Numerical optimization", algorithms 3.5 and 3.6; trial lengths by
 * cubic interpolation, as in PyTorch). All parameters together are one vector of n doubles on the
 * host. Start at gd_lbfgs_step().
 */
#include <gradus/optim.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <limits.h>
#include <math.h>
#include <string.h>

#define SUFFICIENT_DECREASE 1e-4 /* c1 */
#define CURVATURE           0.9  /* c2 */
#define MOST_TRIALS         25   /* of a line search */

/* The loss at start + length * direction. */
typedef struct trial {
    double length, loss, slope; /* slope: gradient . direction */
    double *gradient;           /* [n] */
} trial;

struct gd_lbfgs {
    gd_module *module;
    gd_context *context;
    gd_lbfgs_options options;
    gd_closure closure;
    void *user;
    gd_tensor **parameters; /* [count], those that are trained; borrowed */
    gd_tensor **gradients;  /* [count] */
    int count;
    size_t n;
    double *memory;                                /* what follows, in one block */
    double *start, *direction, *gradient, *before; /* [n]; before: the gradient one iteration ago */
    double *trials[3];                             /* [n] each */
    double *steps, *changes; /* [history, n], a ring: of the point, of the gradient */
    double *inverse, *share; /* [history]: 1 / (change . step), and room */
    int stored, next;        /* pairs in the ring, and where the next one goes */
    void *room;              /* [n] of the module's dtype */
    int64_t iterations;
    double length, scale, loss; /* of the last step; of the first guess at the inverse Hessian */
};

/* ---- making and ending ---- */

static void destroy(void *object)
{
    gd_lbfgs *l = object;
    gd_free(l->parameters);
    gd_free(l->gradients);
    gd_free(l->memory);
    gd_free(l->room);
    gd_free(l);
}

void gd_lbfgs_release(gd_lbfgs *l)
{
    if (!l)
        return;
    gd_context_disown(l->context, l);
    destroy(l);
}

gd_lbfgs *gd_lbfgs_create_with(gd_module *module, const gd_lbfgs_options *options)
{
    gd_lbfgs_options o = { GD_LBFGS_DEFAULTS };
    if (!module || !gd_options_read("gd_lbfgs_create", &o, sizeof o, options))
        return NULL;
    if (gd_module_dtype(module) == GD_BF16)
        return gd_fail_null(
            GD_ERR_DTYPE, "gd_lbfgs_create: the parameters are bf16, in which no line search finds "
                          "its step; f32 or f64 is needed");
    if (o.max_evaluations == -1)
        o.max_evaluations = (int)fmin(1.25 * o.max_iterations, INT_MAX);
    if (!(o.lr > 0.0) || isinf(o.lr) || o.max_iterations < 1 || o.max_evaluations < 1 ||
        o.history < 1 || !(o.tolerance_gradient >= 0.0) || !(o.tolerance_change >= 0.0))
        return gd_fail_null(
            GD_ERR_INVALID,
            "gd_lbfgs_create: lr %g, %d iterations, %d evaluations, history %d; all "
            "must be positive, the tolerances not negative",
            o.lr, o.max_iterations, o.max_evaluations, o.history);
    gd_lbfgs *l = gd_alloc_zero(1, sizeof *l);
    if (!l)
        return NULL;
    l->module = module;
    l->context = gd_module_context(module);
    l->options = o;
    l->scale = 1.0;
    if (gd_context_adopt(l->context, l, destroy) != GD_OK) {
        destroy(l);
        return NULL;
    }
    return l;
}

/* Find the parameters and make room, the first time. */
static gd_status reserve(gd_lbfgs *l)
{
    if (l->memory)
        return GD_OK;
    size_t all = (size_t)gd_module_count(l->module);
    if (!l->parameters)
        l->parameters = gd_alloc_zero(all + 1, sizeof *l->parameters);
    if (!l->gradients)
        l->gradients = gd_alloc_zero(all + 1, sizeof *l->gradients);
    if (!l->parameters || !l->gradients)
        return GD_ERR_MEMORY;
    l->n = 0;
    l->count = 0;
    for (int i = 0; i < (int)all; i++) {
        gd_tensor *p = gd_module_tensor(l->module, i);
        if (!gd_module_is_parameter(l->module, i) || !gd_requires_grad(p))
            continue;
        l->parameters[l->count++] = p;
        l->n += (size_t)gd_tensor_count(p);
    }
    if (l->count == 0)
        return gd_fail(GD_ERR_STATE, "gd_lbfgs_step: the module has no parameter to train");
    size_t n = l->n, history = (size_t)l->options.history;
    if (!l->room)
        l->room = gd_alloc_zero(n + 1, gd_dtype_size(gd_module_dtype(l->module)));
    l->memory = l->room ? gd_alloc_zero(7 * n + history * (2 * n + 2), sizeof *l->memory) : NULL;
    if (!l->memory)
        return GD_ERR_MEMORY;
    double *at = l->memory;
    double **const vectors[] = { &l->start,     &l->direction, &l->gradient, &l->before,
                                 &l->trials[0], &l->trials[1], &l->trials[2] };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++, at += n)
        *vectors[i] = at;
    l->steps = at;
    l->changes = at + history * n;
    l->inverse = at + 2 * history * n;
    l->share = l->inverse + history;
    return GD_OK;
}

/* ---- vectors ---- */

static double dot(const double *x, const double *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static double largest(const double *x, size_t n)
{
    double most = 0.0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* y += a * x */
static void add_scaled(double *y, double a, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* ---- between the vector and the tensors ---- */

static gd_status read_tensors(const gd_lbfgs *l, gd_tensor *const *tensors, double *out)
{
    gd_dtype dtype = gd_module_dtype(l->module);
    size_t at = 0;
    for (int i = 0; i < l->count; i++) {
        size_t count = (size_t)gd_tensor_count(l->parameters[i]);
        gd_status status = gd_tensor_read(tensors[i], l->room, count * gd_dtype_size(dtype));
        if (status != GD_OK)
            return status;
        for (size_t k = 0; k < count; k++)
            out[at++] = dtype == GD_F64 ? ((double *)l->room)[k] : (double)((float *)l->room)[k];
    }
    return GD_OK;
}

/* Parameters = start + length * direction. */
static gd_status move_to(const gd_lbfgs *l, double length)
{
    gd_dtype dtype = gd_module_dtype(l->module);
    size_t at = 0;
    for (int i = 0; i < l->count; i++) {
        size_t count = (size_t)gd_tensor_count(l->parameters[i]);
        for (size_t k = 0; k < count; k++, at++) {
            double value = l->start[at] + length * l->direction[at];
            if (dtype == GD_F64)
                ((double *)l->room)[k] = value;
            else
                ((float *)l->room)[k] = (float)value;
        }
        gd_status status = gd_tensor_write(l->parameters[i], l->room, count * gd_dtype_size(dtype));
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

static gd_status differentiate(gd_lbfgs *l, double *loss, double *gradient)
{
    gd_tensor *value = l->closure(l->user);
    if (!value)
        return gd_fail(GD_ERR_INVALID, "gd_lbfgs_step: the closure gave NULL");
    if (gd_tensor_count(value) != 1)
        return gd_fail(GD_ERR_SHAPE, "gd_lbfgs_step: the loss is not one number");
    gd_status status = gd_grad(1, &value, NULL, l->count, l->parameters, l->gradients);
    if (status == GD_OK)
        status = read_tensors(l, l->gradients, gradient);
    *loss = status == GD_OK ? gd_item(value) : NAN;
    return status;
}

/* Loss and gradient of the parameters as they are. */
static gd_status evaluate(gd_lbfgs *l, double *loss, double *gradient)
{
    gd_status status = gd_scope_begin(l->context);
    if (status != GD_OK)
        return status;
    status = differentiate(l, loss, gradient);
    (void)gd_scope_end(l->context);
    return status;
}

/* ---- the line search ---- */

static gd_status try_length(gd_lbfgs *l, double length, trial *t)
{
    t->length = length;
    gd_status status = move_to(l, length);
    if (status == GD_OK)
        status = evaluate(l, &t->loss, t->gradient);
    t->slope = dot(t->gradient, l->direction, l->n);
    return status;
}

/* The minimum between low and high of the cubic through two trials and their slopes; the middle
 * where it has none. */
static double interpolate(const trial *x, const trial *y, double low, double high)
{
    double d1 = x->slope + y->slope - 3.0 * (x->loss - y->loss) / (x->length - y->length);
    double square = d1 * d1 - x->slope * y->slope;
    if (!(square >= 0.0))
        return (low + high) / 2.0;
    const trial *left = x->length <= y->length ? x : y, *right = left == x ? y : x;
    double d2 = sqrt(square), width = right->length - left->length;
    double at = right->length -
                width * ((right->slope + d2 - d1) / (right->slope - left->slope + 2.0 * d2));
    return fmin(fmax(at, low), high);
}

static void swap(trial *a, trial *b)
{
    trial kept = *a;
    *a = *b;
    *b = kept;
}

/* A length within the bracket; away from its ends when the last one was close to one, too. */
static double next_length(const trial *low, const trial *high, bool *was_close)
{
    double first = fmin(low->length, high->length), last = fmax(low->length, high->length);
    double t = interpolate(low, high, first, last), margin = 0.1 * (last - first);
    bool close = fmin(last - t, t - first) < margin;
    if (close && (*was_close || t >= last || t <= first)) {
        t = fabs(t - last) < fabs(t - first) ? last - margin : first + margin;
        close = false;
    }
    *was_close = close;
    return t;
}

/* Of a search from `start` (length 0) downhill: *low becomes the point found, *used the trials. */
typedef struct search {
    trial start, low, high, fresh;
    int used;
    bool done;
} search;

static bool is_flat(const search *s, const trial *t)
{
    return fabs(t->slope) <= -CURVATURE * s->start.slope;
}

static bool is_too_high(const search *s, const trial *t)
{
    return t->loss > s->start.loss + SUFFICIENT_DECREASE * t->length * s->start.slope;
}

/* Longer and longer, until a trial satisfies the conditions or lies beyond some that do. */
static gd_status bracket(gd_lbfgs *l, search *s, double length)
{
    trial *before = &s->low, *now = &s->high;
    memcpy(before->gradient, s->start.gradient, l->n * sizeof(double));
    before->length = 0.0;
    before->loss = s->start.loss;
    before->slope = s->start.slope;
    gd_status status = try_length(l, length, now);
    for (int i = 0; status == GD_OK; i++) {
        s->used = i + 1;
        if (is_too_high(s, now) || (i > 1 && now->loss >= before->loss))
            break;
        s->done = is_flat(s, now);
        if (s->done || now->slope >= 0.0)
            break;
        if (i == MOST_TRIALS) { /* from the start to here */
            memcpy(before->gradient, s->start.gradient, l->n * sizeof(double));
            before->length = 0.0;
            before->loss = s->start.loss;
            before->slope = s->start.slope;
            break;
        }
        double longer = interpolate(
            before, now, now->length + 0.01 * (now->length - before->length), now->length * 10.0);
        swap(before, now);
        status = try_length(l, longer, now);
    }
    if (s->done || s->high.loss < s->low.loss)
        swap(&s->low, &s->high);
    return status;
}

static gd_status zoom(gd_lbfgs *l, search *s)
{
    double reach = largest(l->direction, l->n);
    bool was_close = false;
    gd_status status = GD_OK;
    for (; status == GD_OK && !s->done && s->used <= MOST_TRIALS; s->used++) {
        if (fabs(s->high.length - s->low.length) * reach < l->options.tolerance_change)
            break;
        status = try_length(l, next_length(&s->low, &s->high, &was_close), &s->fresh);
        if (is_too_high(s, &s->fresh) || s->fresh.loss >= s->low.loss) {
            swap(&s->high, &s->fresh);
            if (s->high.loss < s->low.loss)
                swap(&s->low, &s->high);
            continue;
        }
        s->done = is_flat(s, &s->fresh);
        if (!s->done && s->fresh.slope * (s->high.length - s->low.length) >= 0.0)
            swap(&s->high, &s->low);
        swap(&s->low, &s->fresh);
    }
    return status;
}

/* A step along the direction, from l->gradient and l->loss to those where it ends. */
static gd_status search_line(gd_lbfgs *l, double slope, int *evaluations)
{
    search s = { .start = { 0.0, l->loss, slope, l->gradient },
                 .low = { .gradient = l->trials[0] },
                 .high = { .gradient = l->trials[1] },
                 .fresh = { .gradient = l->trials[2] } };
    gd_status status = bracket(l, &s, l->length);
    if (status == GD_OK)
        status = zoom(l, &s);
    *evaluations += s.used;
    if (status == GD_OK)
        status = move_to(l, s.low.length);
    l->length = s.low.length;
    l->loss = s.low.loss;
    memcpy(l->gradient, s.low.gradient, l->n * sizeof(double));
    return status;
}

/* ---- an iteration ---- */

/* Store the last step and the change of the gradient, if the curvature along the step is positive.
 */
static void remember(gd_lbfgs *l)
{
    size_t n = l->n;
    double *step = l->steps + (size_t)l->next * n, *change = l->changes + (size_t)l->next * n;
    for (size_t i = 0; i < n; i++) {
        change[i] = l->gradient[i] - l->before[i];
        step[i] = l->direction[i] * l->length;
    }
    double curvature = dot(change, step, n);
    if (!(curvature > 1e-10))
        return;
    l->inverse[l->next] = 1.0 / curvature;
    l->scale = curvature / dot(change, change, n);
    l->next = (l->next + 1) % l->options.history;
    l->stored += l->stored < l->options.history;
}

/* direction = -(inverse Hessian) * gradient, by the two loops over what is remembered. */
static void choose_direction(gd_lbfgs *l)
{
    size_t n = l->n;
    int history = l->options.history;
    for (size_t i = 0; i < n; i++)
        l->direction[i] = -l->gradient[i];
    for (int k = 1; k <= l->stored; k++) {
        int i = (l->next - k + history) % history;
        l->share[i] = l->inverse[i] * dot(l->steps + (size_t)i * n, l->direction, n);
        add_scaled(l->direction, -l->share[i], l->changes + (size_t)i * n, n);
    }
    for (size_t i = 0; i < n; i++)
        l->direction[i] *= l->scale;
    for (int k = l->stored; k >= 1; k--) {
        int i = (l->next - k + history) % history;
        double share = l->inverse[i] * dot(l->changes + (size_t)i * n, l->direction, n);
        add_scaled(l->direction, l->share[i] - share, l->steps + (size_t)i * n, n);
    }
}

/* The length tried first: short along the first direction, which is not scaled yet. */
static double first_length(const gd_lbfgs *l)
{
    double sum = 0.0;
    for (size_t i = 0; i < l->n; i++)
        sum += fabs(l->gradient[i]);
    return l->iterations == 0 ? fmin(1.0, 1.0 / sum) * l->options.lr : l->options.lr;
}

/* *done: there is nothing left to gain. */
static gd_status iterate(gd_lbfgs *l, bool is_last, int *evaluations, bool *done)
{
    if (l->iterations > 0)
        remember(l);
    choose_direction(l);
    memcpy(l->before, l->gradient, l->n * sizeof(double));
    double loss_before = l->loss, slope = dot(l->gradient, l->direction, l->n);
    l->length = first_length(l);
    l->iterations++;
    *done = slope > -l->options.tolerance_change;
    if (*done)
        return GD_OK;
    gd_status status = read_tensors(l, l->parameters, l->start);
    if (status == GD_OK && l->options.line_search) {
        status = search_line(l, slope, evaluations);
    } else if (status == GD_OK) {
        status = move_to(l, l->length);
        if (status == GD_OK && !is_last)
            status = evaluate(l, &l->loss, l->gradient);
        ++*evaluations;
    }
    *done = *evaluations >= l->options.max_evaluations ||
            largest(l->gradient, l->n) <= l->options.tolerance_gradient ||
            largest(l->direction, l->n) * l->length <= l->options.tolerance_change ||
            fabs(l->loss - loss_before) < l->options.tolerance_change;
    return status;
}

gd_status gd_lbfgs_step(gd_lbfgs *l, gd_closure closure, void *user, double *loss)
{
    if (!l || !closure)
        return gd_fail(GD_ERR_INVALID, "gd_lbfgs_step: the optimizer or the closure is NULL");
    gd_status status = reserve(l);
    if (status != GD_OK)
        return status;
    l->closure = closure;
    l->user = user;
    status = evaluate(l, &l->loss, l->gradient);
    if (status == GD_OK && loss)
        *loss = l->loss;
    int evaluations = 1;
    bool done = largest(l->gradient, l->n) <= l->options.tolerance_gradient;
    for (int i = 1; status == GD_OK && !done && i <= l->options.max_iterations; i++)
        status = iterate(l, i == l->options.max_iterations, &evaluations, &done);
    return status;
}
