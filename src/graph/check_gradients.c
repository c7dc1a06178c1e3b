/* graph/check_gradients.c: gd_check_gradients: the gradients of a user's function against central
 * differences. Start at the bottom. */
#include "graph/apply.h"
#include "graph/context.h"
#include "graph/node.h"

#include <math.h>
#include <string.h>

#include <gradus/autograd.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/element.h"

typedef struct check {
    gd_context *context;
    gd_function_body function;
    void *user;
    int count;
    gd_tensor *const *inputs;
    uint64_t position; /* of the random stream, at which each call begins */
    gd_layout result;  /* of the function, as the first call gave it */
    void *values;      /* room for the result's elements */
    gd_gradient_error worst;
} check;

/* What element i of the result is multiplied by: fixed, of both signs, from 0.5 to 1.5, in steps
 * that every float dtype has exactly. */
static double weight(int64_t i)
{
    uint64_t z = (uint64_t)i * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 27;
    double size = (double)(32 + (z >> 8) % 65) / 64.0;
    return z % 2 ? size : -size;
}

/* The function's result, in the open scope. */
static gd_tensor *call(check *c)
{
    c->context->random_position = c->position;
    gd_tensor *result =
        gd_run_body(c->function, c->user, c->count, c->inputs, "gd_check_gradients");
    if (result && result->context != c->context)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_check_gradients: the function's result is of another context");
    return result;
}

/* sum(result * weights) in f64. */
static gd_status evaluate(check *c, double *sum)
{
    if (gd_scope_begin(c->context) != GD_OK)
        return GD_ERR_MEMORY;
    gd_tensor *result = call(c);
    gd_status status = result ? GD_OK : gd_error_last();
    if (result && (!gd_layout_same_shape(&result->layout, &c->result) ||
                   result->layout.dtype != c->result.dtype))
        status = gd_fail(GD_ERR_INVALID, "gd_check_gradients: the function's result has another "
                                         "shape or dtype than that of the call before");
    if (status == GD_OK)
        status = gd_tensor_read(result, c->values, gd_layout_bytes(&c->result));
    (void)gd_scope_end(c->context);
    *sum = 0.0;
    int64_t count = gd_layout_count(&c->result);
    size_t size = gd_dtype_size(c->result.dtype);
    for (int64_t i = 0; status == GD_OK && i < count; i++)
        *sum +=
            weight(i) * gd_element_as_double(c->result.dtype, (char *)c->values + (size_t)i * size);
    return status;
}

/* The sum and the element's value, with `x` in its place. */
static gd_status evaluate_at(check *c, gd_tensor *input, gd_shape index, double x, double *sum,
                             double *value)
{
    gd_status status = gd_set_at(input, index, x);
    *value = gd_get_at(input, index);
    return status == GD_OK ? evaluate(c, sum) : status;
}

/* The slope over x - h … x + h. */
static gd_status slope_over(check *c, gd_tensor *input, gd_shape index, double h, double *slope)
{
    double x = gd_get_at(input, index), above = 0, below = 0, high = 0, low = 0;
    gd_status status = evaluate_at(c, input, index, x + h, &high, &above);
    if (status == GD_OK)
        status = evaluate_at(c, input, index, x - h, &low, &below);
    gd_status restored = gd_set_at(input, index, x);
    *slope = (high - low) / (above - below);
    return status == GD_OK ? restored : status;
}

/* Two central differences and Richardson's step. Where the two are far apart a kink may lie between,
 * and in f64 the steps are made smaller. */
static gd_status slope_at(check *c, gd_tensor *input, gd_shape index, double *slope)
{
    bool is_f64 = input->layout.dtype == GD_F64;
    double h = (is_f64 ? 1e-3 : 1e-2) * fmax(1.0, fabs(gd_get_at(input, index)));
    for (int step = 0; step < (is_f64 ? 4 : 1); step++) {
        double wide, narrow;
        gd_status status = slope_over(c, input, index, h, &wide);
        if (status == GD_OK)
            status = slope_over(c, input, index, h / 2.0, &narrow);
        if (status != GD_OK)
            return status;
        *slope = (4.0 * narrow - wide) / 3.0;
        if (fabs(wide - narrow) <= 2e-6 * (1.0 + fabs(narrow)))
            break;
        h /= 30.0;
    }
    return GD_OK;
}

static gd_shape index_of(const gd_layout *layout, int64_t element)
{
    gd_shape index = { .rank = layout->rank };
    for (int axis = layout->rank - 1; axis >= 0; axis--) {
        index.dim[axis] = element % layout->shape[axis];
        element /= layout->shape[axis];
    }
    return index;
}

/* NaN is worse than any number. */
static bool is_worse(const gd_gradient_error *e, const gd_gradient_error *worst)
{
    if (worst->elements == 0 || isnan(worst->error))
        return worst->elements == 0;
    return isnan(e->error) || e->error > worst->error;
}

/* gradient [count of the input]. */
static gd_status check_input(check *c, int i, const void *gradient)
{
    gd_tensor *input = c->inputs[i];
    const gd_layout layout = input->layout;
    size_t size = gd_dtype_size(layout.dtype);
    int64_t count = gd_layout_count(&layout);
    for (int64_t k = 0; k < count; k++) {
        gd_gradient_error e = { .input = i, .index = index_of(&layout, k) };
        e.gradient = gd_element_as_double(layout.dtype, (const char *)gradient + (size_t)k * size);
        gd_status status = slope_at(c, input, e.index, &e.slope);
        if (status != GD_OK)
            return status;
        e.error = fabs(e.gradient - e.slope) / fmax(1.0, fmax(fabs(e.gradient), fabs(e.slope)));
        e.elements = c->worst.elements + 1;
        if (is_worse(&e, &c->worst))
            c->worst = e;
        c->worst.elements = e.elements;
    }
    return GD_OK;
}

static bool is_checked(const gd_tensor *t)
{
    return t->requires_grad;
}

static gd_status check_arguments(gd_function_body function, int count, gd_tensor *const *inputs)
{
    if (!function || count < 1 || !inputs)
        return gd_fail(GD_ERR_INVALID,
                       "gd_check_gradients: the function is NULL, or there are no inputs");
    int checked = 0;
    for (int i = 0; i < count; i++) {
        const gd_tensor *t = inputs[i];
        if (!t)
            return gd_fail(GD_ERR_INVALID, "gd_check_gradients: input %d is NULL", i);
        if (!gd_usable(t, "gd_check_gradients"))
            return GD_ERR_STATE;
        if (t->context != inputs[0]->context)
            return gd_fail(GD_ERR_INVALID,
                           "gd_check_gradients: inputs belong to different contexts");
        if (!is_checked(t))
            continue;
        checked++;
        if (!gd_is_leaf(t) || !t->storage)
            return gd_fail(GD_ERR_STATE,
                           "gd_check_gradients: input %d is the result of %s, not a leaf: its "
                           "elements cannot be changed",
                           i, t->op ? t->op->name : "a trace");
        if (t->layout.dtype != GD_F32 && t->layout.dtype != GD_F64)
            return gd_fail(GD_ERR_DTYPE,
                           "gd_check_gradients: input %d is %s; differences need f32 or f64", i,
                           gd_dtype_name(t->layout.dtype));
        for (int axis = 0; axis < t->layout.rank; axis++)
            if (t->layout.stride[axis] == 0 && t->layout.shape[axis] > 1)
                return gd_fail(GD_ERR_INVALID,
                               "gd_check_gradients: elements of input %d share memory (it was "
                               "broadcast)",
                               i);
    }
    if (checked == 0)
        return gd_fail(GD_ERR_INVALID, "gd_check_gradients: no input requires a gradient");
    const gd_context *context = inputs[0]->context;
    if (context->trace)
        return gd_fail_traced("gd_check_gradients");
    if (context->no_grad > 0)
        return gd_fail(GD_ERR_STATE, "gd_check_gradients: no history is recorded here, between "
                                     "gd_no_grad_begin and gd_no_grad_end");
    return GD_OK;
}

/* The gradients of the weighted result, each read into memory of its own: gradients[i] for those
 * inputs that are checked. */
static gd_status take_gradients(check *c, gd_tensor *result, gd_tensor **targets, void **gradients)
{
    int64_t count = gd_layout_count(&result->layout);
    double *weights = gd_alloc((size_t)count * sizeof *weights + 1);
    if (!weights)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        weights[i] = weight(i);
    gd_tensor *seed =
        gd_as_dtype(gd_from_host(c->context, gd_layout_shape(&result->layout), GD_F64, weights),
                    result->layout.dtype);
    gd_free(weights);
    int n = 0;
    for (int i = 0; i < c->count; i++)
        if (is_checked(c->inputs[i]))
            targets[n++] = c->inputs[i];
    gd_status status = seed ? gd_grad(1, &result, &seed, n, targets, targets + n) : gd_error_last();
    for (int i = 0, k = n; status == GD_OK && i < c->count; i++) {
        if (!is_checked(c->inputs[i]))
            continue;
        size_t bytes = gd_layout_bytes(&c->inputs[i]->layout);
        gradients[i] = gd_alloc(bytes + 1);
        status = gradients[i] ? gd_tensor_read(targets[k++], gradients[i], bytes) : GD_ERR_MEMORY;
    }
    return status;
}

/* The first call, with its history, and what later ones are compared with. */
static gd_status differentiate(check *c, void **gradients)
{
    gd_tensor **targets = gd_alloc((size_t)c->count * 2 * sizeof *targets);
    if (!targets || gd_scope_begin(c->context) != GD_OK) {
        gd_free(targets);
        return GD_ERR_MEMORY;
    }
    gd_tensor *result = call(c);
    gd_status status = result ? GD_OK : gd_error_last();
    if (result && !gd_dtype_is_float(result->layout.dtype))
        status = gd_fail(GD_ERR_DTYPE,
                         "gd_check_gradients: the function's result is %s; only "
                         "floats have gradients",
                         gd_dtype_name(result->layout.dtype));
    if (status == GD_OK) {
        c->result = result->layout;
        c->values = gd_alloc(gd_layout_bytes(&c->result) + 1);
        status = c->values ? take_gradients(c, result, targets, gradients) : GD_ERR_MEMORY;
    }
    (void)gd_scope_end(c->context);
    gd_free(targets);
    return status;
}

static gd_status judge(const check *c, double tolerance)
{
    const gd_gradient_error *e = &c->worst;
    if (e->elements == 0 || e->error <= tolerance)
        return GD_OK;
    char index[GD_SHAPE_TEXT];
    const char *name = c->inputs[e->input]->name;
    return gd_fail(GD_ERR_INVALID,
                   "gd_check_gradients: input %d%s%s%s, element %s: the gradient is %.9g, "
                   "differences give %.9g; the error is %.3g, %.3g is allowed",
                   e->input, name ? " \"" : "", name ? name : "", name ? "\"" : "",
                   gd_shape_text(e->index, index), e->gradient, e->slope, e->error, tolerance);
}

gd_status gd_check_gradients(gd_function_body function, void *user, int count,
                             gd_tensor *const *inputs, double tolerance, gd_gradient_error *worst)
{
    if (worst)
        *worst = (gd_gradient_error){ 0 };
    gd_status status = check_arguments(function, count, inputs);
    if (status != GD_OK)
        return status;
    check c = { .context = inputs[0]->context,
                .function = function,
                .user = user,
                .count = count,
                .inputs = inputs,
                .position = inputs[0]->context->random_position };
    void **gradients = gd_alloc_zero((size_t)count, sizeof *gradients);
    status = gradients ? differentiate(&c, gradients) : GD_ERR_MEMORY;
    for (int i = 0; status == GD_OK && i < count; i++)
        if (is_checked(inputs[i]))
            status = check_input(&c, i, gradients[i]);
    for (int i = 0; gradients && i < count; i++)
        gd_free(gradients[i]);
    gd_free(gradients);
    gd_free(c.values);
    if (worst)
        *worst = c.worst;
    return status == GD_OK ? judge(&c, tolerance) : status;
}
