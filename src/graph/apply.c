/* graph/apply.c: one op on its inputs: check, infer, then compute at once (eager) or record
 * (tracing). Every builder ends here. */
#include "backend/backend.h"
#include "graph/apply.h"
#include "graph/autocast.h"
#include "graph/context.h"
#include "graph/dtypes.h"
#include "graph/node.h"
#include "graph/trace.h"

#include <string.h>

#include <gradus/ops.h>

#include "base/error.h"
#include "ops/attrs.h"

static inline gd_status infer_result(const gd_op *op, int n, const gd_layout *const *in,
                                     const void *attr, gd_layout *out)
{
    if (op->arity == GD_OP_VARIADIC ? n < 1 : n != op->arity)
        return gd_fail(GD_ERR_INVALID, "gd_%s: %d operands given, %d expected", op->name, n,
                       op->arity);
    gd_status status = gd_check_dtypes(op, n, in);
    return status == GD_OK ? op->infer(n, in, attr, out) : status;
}

gd_status gd_op_infer(const gd_op *op, int n, const gd_layout *const *in, const void *attr,
                      gd_layout *out)
{
    return infer_result(op, n, in, attr, out);
}

/* The tensor a view looks into, as far as its history tells. */
static const gd_tensor *viewed(const gd_tensor *t)
{
    while (!gd_is_leaf(t) && (t->op->flags & GD_OP_VIEW))
        t = t->inputs[0];
    return t;
}

/* Whether t has a history, and its value is no longer what that history computes, because t, or the
 * tensor it is a view of, was changed in place. A view of a leaf is never outdated: it has no value
 * of its own, reading it reads the leaf. */
static bool is_outdated(const gd_tensor *t)
{
    return t->replaced || (t->requires_grad && t->n_inputs && t->storage &&
                           t->version != t->storage->version && viewed(t)->n_inputs);
}

/* While the vjp of a node is built, the values it reads must be those the node read. */
static gd_status check_versions(const gd_tensor *node, int n, gd_tensor *const *inputs)
{
    for (int i = 0; i < n; i++) {
        if (!inputs[i]->storage)
            continue;
        uint32_t now = inputs[i]->storage->version;
        bool stale = inputs[i] == node && node->version != now;
        for (int j = 0; j < node->n_inputs; j++)
            stale |= inputs[i] == node->inputs[j] && node->versions[j] != now;
        if (stale)
            return gd_fail(GD_ERR_STATE,
                           "the gradient of %s needs a value that has been overwritten since "
                           "(in place, by gd_assign, by gd_tensor_write or by the next batch)",
                           node->op->name);
    }
    return GD_OK;
}

/* Whether a value without storage may be read now: in its trace, and in those within it. */
static bool is_in_trace(const gd_tensor *t, const gd_trace *trace)
{
    while (trace && trace != t->trace)
        trace = trace->outer;
    return trace == t->trace;
}

/* Same context everywhere, no traced value outside of its trace, nothing outdated; while a vjp is
 * built, check_versions knows better what may be read. */
static gd_status check_inputs(const gd_context *context, const gd_op *op, int n,
                              gd_tensor *const *inputs)
{
    for (int i = 0; i < n; i++) {
        if (inputs[i]->context != context)
            return gd_fail(GD_ERR_INVALID,
                           "gd_%s: operands belong to different contexts (%s and %s); gd_to copies "
                           "a tensor to another one",
                           op->name, context->device->name, inputs[i]->context->device->name);
        if (!inputs[i]->storage && !is_in_trace(inputs[i], context->trace))
            return gd_fail(GD_ERR_STATE,
                           "gd_%s: operand %d is a value of a compiled function that is no longer "
                           "(or not now) being traced",
                           op->name, i);
        if (!context->differentiating && context->no_grad == 0 && is_outdated(inputs[i]))
            return gd_fail(GD_ERR_STATE,
                           "gd_%s: operand %d was changed in place; use the tensor that the call "
                           "which changed it returned",
                           op->name, i);
    }
    return context->differentiating && !(context->trace && context->trace->is_resumed)
               ? check_versions(context->differentiating, n, inputs)
               : GD_OK;
}

/* Give a node made by a view op the storage of its input. */
static void share_storage(gd_tensor *t, gd_tensor *base)
{
    t->storage = base->storage;
    t->storage->refs++;
}

/* gd_device_takes on operands that are described by their layouts. */
static bool ask_device(gd_device *device, const gd_op *op, int n, const gd_layout *const *in,
                       const void *attr, const gd_layout *out)
{
    gd_operand operands[GD_OP_MAX_INPUTS];
    for (int i = 0; i < n; i++)
        operands[i] = (gd_operand){ NULL, in[i] };
    const gd_kernel_call call = {
        .device = device, .op = op, .attr = attr, .n = n, .in = operands, .out = { NULL, out }
    };
    return gd_device_takes(&call);
}

/* gd_call_has_halves of the same. */
static inline bool has_halves(const gd_op *op, int n, const gd_layout *const *in,
                              const gd_layout *out)
{
    bool has = op->halves && gd_dtype_is_half(out->dtype);
    for (int i = 0; i < n && op->halves >> i; i++)
        has |= op->halves >> i & 1 && gd_dtype_is_half(in[i]->dtype);
    return has;
}

/* Whether the device has a kernel for op on operands of these layouts. It is asked only where it may say no. */
static inline bool is_taken(const gd_context *context, const gd_op *op, int n,
                            const gd_layout *const *in, const void *attr, const gd_layout *out)
{
    gd_device *device = context->device;
    return device->kernel[op->id] && ((!device->takes[op->id] && !has_halves(op, n, in, out)) ||
                                      ask_device(device, op, n, in, attr, out));
}

bool gd_op_is_taken(const gd_context *context, gd_op_id id, int n, const gd_layout *const *in,
                    const void *attr)
{
    const gd_op *op = gd_op_row(id);
    gd_layout out;
    return gd_op_infer(op, n, in, attr, &out) == GD_OK && is_taken(context, op, n, in, attr, &out);
}

bool gd_may_read_halves(gd_op_id id, int n, gd_tensor *const *inputs, const void *attr)
{
    const gd_op *op = gd_op_row(id);
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    bool any = op->rounds && gd_op_rounded(op, attr);
    for (int i = 0; i < n; i++) {
        if (!inputs[i])
            return false;
        layouts[i] = &inputs[i]->layout;
        any |= op->halves >> i & 1 && gd_dtype_is_half(layouts[i]->dtype);
    }
    return any && !inputs[0]->context->trace &&
           gd_op_is_taken(inputs[0]->context, id, n, layouts, attr);
}

static gd_status run_kernel(gd_tensor *t, int n, gd_tensor *const *inputs)
{
    gd_context *context = t->context;
    t->storage = gd_storage_new(context, gd_layout_bytes(&t->layout));
    if (!t->storage)
        return GD_ERR_MEMORY;
    if (gd_layout_count(&t->layout) == 0)
        return GD_OK;
    gd_operand operands[GD_OP_MAX_INPUTS];
    for (int i = 0; i < n; i++)
        operands[i] = (gd_operand){ gd_node_data(inputs[i]), &inputs[i]->layout };
    gd_kernel_call call = { .device = context->device,
                            .op = t->op,
                            .attr = t->attr,
                            .n = n,
                            .in = operands,
                            .out = { t->storage->data, &t->layout } };
    return context->device->kernel[t->op->id](&call);
}

/* A callback that makes room may release an input, which is to last as long as the op. */
static gd_status compute(gd_tensor *t, int n, gd_tensor *const *inputs)
{
    bool may_be_released = t->context->memory_callback;
    for (int i = 0; may_be_released && i < n; i++)
        (void)gd_link(inputs[i]);
    gd_status status = run_kernel(t, n, inputs);
    for (int i = 0; may_be_released && i < n; i++)
        gd_unlink(inputs[i]);
    return status;
}

/* Whether a result of op requires a gradient. */
static bool has_history(const gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                        gd_dtype dtype)
{
    bool any = false;
    if (op->vjp && context->no_grad == 0 && gd_dtype_is_float(dtype))
        for (int i = 0; i < n; i++)
            any |= inputs[i]->requires_grad;
    return any;
}

/* The node of op on checked inputs, computed or recorded; NULL on failure, with nothing left
 * behind. */
static gd_tensor *build(gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                        const void *attr, const gd_layout *layout)
{
    bool requires_grad = has_history(context, op, n, inputs, layout->dtype);
    gd_tensor *t = gd_node_new(context, op, n, inputs, attr, requires_grad || context->trace);
    if (!t)
        return NULL;
    t->layout = *layout;
    t->requires_grad = requires_grad;
    t->region = context->region;
    gd_status status = GD_OK;
    if (context->trace) {
        t->trace = context->trace;
        status = gd_trace_record(context->trace, t);
    } else if (op->flags & GD_OP_VIEW) {
        share_storage(t, inputs[0]);
    } else {
        status = compute(t, n, inputs);
    }
    if (status != GD_OK) {
        gd_discard(t);
        return NULL;
    }
    t->version = t->storage ? t->storage->version : 0;
    return t;
}

/* Recording what was recorded before: the same node, with no work. */
static gd_tensor *repeat(const gd_context *context, const gd_op *op, int n,
                         gd_tensor *const *inputs, const void *attr)
{
    gd_trace *trace = context->trace;
    if (trace->count >= trace->known)
        return NULL;
    gd_dtype dtype = trace->nodes[trace->count]->layout.dtype; /* matters if it is that node */
    bool requires_grad = has_history(context, op, n, inputs, dtype);
    return gd_trace_repeat(trace, op, n, inputs, attr, requires_grad);
}

static gd_tensor *decompose(gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                            const void *attr)
{
    const uint64_t autocast = gd_autocast_pause(context);
    gd_tensor *r = op->decompose(n, inputs, attr);
    gd_autocast_resume(context, autocast);
    return r;
}

gd_tensor *gd_apply(gd_context *context, gd_op_id id, int n, gd_tensor *const *inputs,
                    const void *attr)
{
    const gd_op *op = gd_op_row(id);
    if (n > GD_OP_MAX_INPUTS)
        return gd_fail_null(GD_ERR_INVALID, "gd_%s: %d operands, at most %d are allowed", op->name,
                            n, GD_OP_MAX_INPUTS);
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    for (int i = 0; i < n; i++) {
        if (!gd_operand_usable(id, i, inputs[i]))
            return NULL;
        layouts[i] = &inputs[i]->layout;
    }
    if (!context)
        context = inputs[0]->context;
    if (gd_check_free(context, op->name) != GD_OK || check_inputs(context, op, n, inputs) != GD_OK)
        return NULL;
    gd_tensor *again = context->trace ? repeat(context, op, n, inputs, attr) : NULL;
    if (again)
        return again;
    gd_layout layout;
    if (infer_result(op, n, layouts, attr, &layout) != GD_OK)
        return NULL;
    const bool has_no_kernel = op->flags & GD_OP_VIEW || id == GD_OP_extra_result;
    if (!has_no_kernel && !is_taken(context, op, n, layouts, attr, &layout)) {
        if (op->decompose)
            return decompose(context, op, n, inputs, attr);
        return gd_fail_null(GD_ERR_UNSUPPORTED, "gd_%s: device %s has no kernel for it", op->name,
                            context->device->name);
    }
    return build(context, op, n, inputs, attr, &layout);
}

/* ---- in place ---- */

/* Whether a kernel may write to the target while it reads the others: it lies in row-major order,
 * and what shares its storage is exactly it. */
static bool may_run_in_place(const gd_op *op, int n, gd_tensor *const *inputs,
                             const gd_tensor *target)
{
    if (!gd_layout_is_contiguous(&target->layout))
        return false;
    for (int i = 0; i < n; i++)
        if (inputs[i]->storage == target->storage &&
            ((i > 0 && !(op->flags & GD_OP_ELEMENTWISE)) ||
             !gd_layout_is_contiguous(&inputs[i]->layout) ||
             !gd_layout_same_shape(&inputs[i]->layout, &target->layout) ||
             inputs[i]->layout.offset != target->layout.offset ||
             inputs[i]->layout.dtype != target->layout.dtype))
            return false;
    return true;
}

static gd_status compute_in_place(const gd_op *op, int n, gd_tensor *const *inputs,
                                  const gd_layout *const *layouts, const void *attr,
                                  gd_tensor *target)
{
    gd_context *context = target->context;
    if (gd_layout_count(&target->layout) == 0)
        return GD_OK;
    if (!may_run_in_place(op, n, inputs, target) ||
        !is_taken(context, op, n, layouts, attr, &target->layout)) {
        context->no_grad++;
        gd_tensor *value = gd_apply(context, op->id, n, inputs, attr);
        uint32_t before = target->version;
        gd_status status = value ? gd_store(target, value) : gd_error_last();
        target->version = before;
        context->no_grad--;
        return status;
    }
    gd_operand operands[GD_OP_MAX_INPUTS];
    for (int i = 0; i < n; i++)
        operands[i] = (gd_operand){ gd_node_data(inputs[i]), &inputs[i]->layout };
    gd_kernel_call call = { .device = context->device,
                            .op = op,
                            .attr = attr,
                            .n = n,
                            .in = operands,
                            .out = { gd_node_data(target), &target->layout } };
    gd_status status = context->device->kernel[op->id](&call);
    target->storage->version++;
    return status;
}

/* What forbids a change in place whether eager or traced. */
static gd_status check_target(const gd_op *op, const gd_tensor *target, const gd_layout *result)
{
    const gd_layout *layout = &target->layout;
    if (!gd_layout_same_shape(result, layout) || result->dtype != layout->dtype) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        return gd_fail(GD_ERR_SHAPE, "gd_%s_: the result is %s %s, which does not fit into %s %s",
                       op->name, gd_dtype_name(result->dtype), gd_layout_text(result, a),
                       gd_dtype_name(layout->dtype), gd_layout_text(layout, b));
    }
    for (int i = 0; i < layout->rank; i++)
        if (layout->stride[i] == 0 && layout->shape[i] > 1 && gd_layout_count(layout) > 0)
            return gd_fail(GD_ERR_INVALID,
                           "gd_%s_: elements of the tensor share memory (it was broadcast); change "
                           "a copy",
                           op->name);
    const gd_tensor *base = viewed(target);
    if (target->context->no_grad == 0 && base->requires_grad && gd_is_leaf(base))
        return gd_fail(GD_ERR_STATE,
                       "gd_%s_: a leaf that requires a gradient cannot be changed in place while "
                       "history is recorded; do it between gd_no_grad_begin and gd_no_grad_end",
                       op->name);
    return GD_OK;
}

/* In a trace nothing has storage yet: the op is recorded as any other, and what saw the old value
 * in eager execution may not be read again. */
static gd_tensor *trace_in_place(const gd_op *op, int n, gd_tensor *const *inputs, const void *attr,
                                 gd_tensor *target)
{
    gd_context *context = target->context;
    if (!target->storage && (!target->op || (target->op->flags & GD_OP_VIEW)))
        return gd_fail_null(GD_ERR_STATE,
                            "gd_%s_: %s of a compiled function cannot be changed in "
                            "place",
                            op->name, target->op ? "a view inside" : "an argument");
    gd_tensor *value = gd_apply(context, op->id, n, inputs, attr);
    if (!value)
        return NULL;
    if (target->storage && value->requires_grad)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_%s_: a tensor from outside of a compiled function cannot take a "
                            "value with a history; use gd_assign or gd_detach",
                            op->name);
    if (target->storage)
        return gd_assign(target, value);
    target->replaced = true;
    for (size_t i = 0; i < context->trace->count; i++) {
        gd_tensor *node = context->trace->nodes[i];
        if ((node->op->flags & GD_OP_VIEW) && viewed(node) == target)
            node->replaced = true;
    }
    return value;
}

gd_tensor *gd_apply_in_place(gd_op_id id, int n, gd_tensor *const *inputs, const void *attr,
                             int target_index)
{
    const gd_op *op = gd_op_row(id);
    const gd_layout *layouts[GD_OP_MAX_INPUTS];
    bool requires_grad = false;
    for (int i = 0; i < n; i++) {
        if (!gd_operand_usable(id, i, inputs[i]))
            return NULL;
        layouts[i] = &inputs[i]->layout;
        requires_grad |= inputs[i]->requires_grad;
    }
    gd_tensor *target = inputs[target_index];
    gd_context *context = target->context;
    requires_grad &= context->no_grad == 0 && gd_dtype_is_float(target->layout.dtype);
    gd_layout result = { 0 };
    if (gd_check_free(context, op->name) != GD_OK ||
        check_inputs(context, op, n, inputs) != GD_OK ||
        gd_op_infer(op, n, layouts, attr, &result) != GD_OK ||
        check_target(op, target, &result) != GD_OK)
        return NULL;
    if (context->trace)
        return trace_in_place(op, n, inputs, attr, target);
    gd_tensor *t = target;
    if (requires_grad) { /* made first: it notes which versions it read */
        t = gd_node_new(context, op, n, inputs, attr, true);
        if (!t)
            return NULL;
        t->layout = target->layout;
        t->requires_grad = true;
        share_storage(t, target);
    }
    if (compute_in_place(op, n, inputs, layouts, attr, target) != GD_OK) {
        if (requires_grad)
            gd_discard(t);
        return NULL;
    }
    if (requires_grad)
        target->replaced = true;
    if (t->n_inputs == 0 ||
        requires_grad) /* one with a history shows by its version that it aged */
        t->version = t->storage->version;
    return t;
}

gd_tensor *gd_apply1(gd_op_id id, gd_tensor *x, const void *attr)
{
    return gd_apply(NULL, id, 1, &x, attr);
}

gd_tensor *gd_apply2(gd_op_id id, gd_tensor *x, gd_tensor *y, const void *attr)
{
    gd_tensor *inputs[2] = { x, y };
    return gd_apply(NULL, id, 2, inputs, attr);
}

gd_tensor *gd_as_shape(gd_tensor *x, gd_shape shape)
{
    if (!gd_usable(x, "gd_broadcast_to"))
        return NULL;
    gd_shape now = gd_tensor_shape(x);
    if (now.rank == shape.rank &&
        memcmp(now.dim, shape.dim, sizeof(int64_t) * (size_t)now.rank) == 0)
        return x;
    gd_shape_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = shape.rank;
    for (int i = 0; i < shape.rank && i < GD_MAX_RANK; i++)
        attr.shape.dim[i] = shape.dim[i];
    return gd_apply1(GD_OP_broadcast_to, x, &attr);
}

gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype)
{
    if (!gd_usable(x, "gd_cast"))
        return NULL;
    if (x->layout.dtype == dtype)
        return x;
    gd_cast_attr attr = { .dtype = (int64_t)dtype };
    return gd_apply1(GD_OP_cast, x, &attr);
}

/* Those of `axes` that end the shape of x, where others of them stand before an axis that is kept,
 * and rows of that kind have so many elements that they are summed by themselves; else none. The
 * number is part of the definition of the sum's order, and so of its bits: it is no device's. */
static uint32_t axes_of_rows(const gd_layout *x, uint32_t axes)
{
    enum { SUMMED_AS_ROWS = 16 };
    uint32_t rows = 0;
    int64_t length = 1;
    int axis = x->rank - 1;
    for (; axis >= 0 && (axes >> axis & 1 || x->shape[axis] == 1); axis--) {
        rows |= axes & 1u << axis;
        length *= x->shape[axis];
    }
    return rows != axes && length >= SUMMED_AS_ROWS && gd_layout_is_contiguous(x) ? rows : 0;
}

gd_tensor *gd_sum_along(gd_tensor *x, uint32_t axes, bool keep)
{
    if (!gd_usable(x, "gd_sum"))
        return NULL;
    const gd_reduce_attr rows = { .axes = axes_of_rows(&x->layout, axes), .keep = true },
                         all = { .axes = axes, .keep = keep };
    if (rows.axes)
        x = gd_apply1(GD_OP_sum, x, &rows);
    return x ? gd_apply1(GD_OP_sum, x, &all) : NULL;
}

gd_tensor *gd_sum_to(gd_tensor *x, const gd_layout *like)
{
    if (!gd_usable(x, "gd_sum"))
        return NULL;
    if (gd_layout_same_shape(&x->layout, like))
        return x;
    int lead = x->layout.rank - like->rank;
    uint32_t axes = 0;
    for (int axis = 0; axis < x->layout.rank; axis++)
        if (axis < lead || (like->shape[axis - lead] == 1 && x->layout.shape[axis] != 1))
            axes |= 1u << axis;
    gd_dtype dtype = x->layout.dtype;
    gd_tensor *sum = x;
    if (axes) {
        const gd_reduce_attr attr = { .axes = axes };
        if (!gd_may_read_halves(GD_OP_sum, 1, &x, &attr))
            sum = gd_as_dtype(x, gd_compute_dtype(GD_OP_sum, dtype));
        sum = gd_as_dtype(gd_sum_along(sum, axes, false), dtype);
    }
    gd_shape_attr shape;
    memset(&shape, 0, sizeof shape);
    shape.shape.rank = like->rank;
    memcpy(shape.shape.dim, like->shape, sizeof(int64_t) * (size_t)like->rank);
    return sum && !gd_layout_same_shape(&sum->layout, like) ? gd_apply1(GD_OP_reshape, sum, &shape)
                                                            : sum;
}

/* ---- effects ---- */

gd_status gd_store(gd_tensor *t, gd_tensor *value)
{
    gd_context *context = t->context;
    gd_operand operands[2] = { { gd_node_data(t), &t->layout },
                               { gd_node_data(value), &value->layout } };
    gd_kernel_call call = { .device = context->device,
                            .op = gd_op_row(GD_OP_assign),
                            .n = 2,
                            .in = operands,
                            .out = operands[0] };
    if (!gd_device_takes(&call))
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_assign: device %s has no kernel for it",
                       context->device->name);
    t->storage->version++;
    t->version = t->storage->version;
    return gd_layout_count(&t->layout) ? context->device->kernel[GD_OP_assign](&call) : GD_OK;
}

static gd_tensor *build_assign(gd_tensor *target, gd_tensor *value)
{
    if (!gd_usable(target, "gd_assign") || !gd_usable(value, "gd_assign"))
        return NULL;
    gd_context *context = target->context;
    if (context->recomputing)
        return target;
    if (!target->storage || target->n_inputs)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_assign: the target is %s, not a tensor with storage of its own",
                            target->storage ? "part of a graph" : "a traced value");
    if (value->context != context)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_assign: target and value belong to different contexts");
    if (!value->storage && !context->trace)
        return gd_fail_null(GD_ERR_STATE, "gd_assign: the value is one of a compiled function that "
                                          "is not being traced now");
    context->no_grad++;
    value = gd_as_dtype(value, target->layout.dtype);
    if (value && !gd_layout_same_shape(&value->layout, &target->layout))
        value = gd_as_shape(value, gd_tensor_shape(target));
    /* A value that is another view of the target's own storage is copied before it is overwritten.
     */
    if (value && value->storage == target->storage && value->storage)
        value = gd_apply1(GD_OP_copy, value, NULL);
    gd_status status = value ? GD_OK : GD_ERR_STATE;
    if (value && context->trace) {
        status = gd_apply2(GD_OP_assign, target, value, NULL) ? GD_OK : GD_ERR_STATE;
        target->storage->version++;
    } else if (value) {
        status = gd_store(target, value);
    }
    context->no_grad--;
    return status == GD_OK ? target : NULL;
}

gd_tensor *gd_assign(gd_tensor *target, gd_tensor *value)
{
    return GD_AS("gd_assign", build_assign(target, value));
}
