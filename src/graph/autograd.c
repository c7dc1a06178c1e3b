/* graph/autograd.c: reverse-mode differentiation. One walk in reverse topological order; each op's
 * row builds the gradients of its inputs as graph; gradients that meet at a node are added in the
 * order they arrive, which is fixed. Those of a node's parts wait until all are there, and are then
 * put together: slices side by side, gathered rows into what there is. Start at differentiate(). */
#include "graph/apply.h"
#include "graph/autocast.h"
#include "graph/autograd.h"
#include "graph/context.h"
#include "graph/node.h"
#include "graph/trace.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ops/attrs.h"

gd_tensor *gd_set_requires_grad(gd_tensor *t, bool requires_grad)
{
    if (!gd_usable(t, "gd_set_requires_grad"))
        return NULL;
    if (t->requires_grad && !gd_is_leaf(t))
        return gd_fail_null(GD_ERR_STATE,
                            "gd_set_requires_grad: the tensor is the result of %s, not a leaf",
                            t->op->name);
    if (requires_grad && !gd_dtype_is_float(t->layout.dtype))
        return gd_fail_null(GD_ERR_DTYPE,
                            "gd_set_requires_grad: gradients need a float dtype, this is %s",
                            gd_dtype_name(t->layout.dtype));
    t->context->grad_version += t->requires_grad != requires_grad;
    t->requires_grad = requires_grad;
    t->is_marked = requires_grad && t->n_inputs > 0;
    return t;
}

gd_tensor *gd_detach(gd_tensor *x)
{
    if (!gd_usable(x, "gd_detach"))
        return NULL;
    gd_shape_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = x->layout.rank;
    memcpy(attr.shape.dim, x->layout.shape, sizeof(int64_t) * (size_t)x->layout.rank);
    /* A view of everything, broadcast to its own shape, with no history. */
    x->context->no_grad++;
    gd_tensor *view = gd_apply1(GD_OP_broadcast_to, x, &attr);
    x->context->no_grad--;
    return view;
}

/* The gradient of a part of a node: its result's, a slice or gathered rows. */
typedef struct part {
    gd_tensor *of, *g;    /* g with a reference */
    struct part *earlier; /* that of another part of the same node */
} part;

/* The walk: gradients by slot, each with a reference while it waits. */
typedef struct walk {
    gd_context *context;
    gd_order_limits limits;
    gd_order order;
    gd_tensor **grads; /* [order.count] */
    part **parts;      /* [order.count] the last of each node's that wait */
    bool *wanted;      /* [order.count] the nodes' */
    bool *is_target;   /* [order.count] */
    uint64_t generation;
} walk;

static gd_tensor *ones_like(gd_tensor *t)
{
    gd_full_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = t->layout.rank;
    memcpy(attr.shape.dim, t->layout.shape, sizeof(int64_t) * (size_t)t->layout.rank);
    attr.value = 1.0;
    attr.dtype = (int64_t)t->layout.dtype;
    return gd_apply(t->context, GD_OP_full, 0, NULL, &attr);
}

/* Whether nobody but the walk, which waits to add g to it, sees t. */
static bool is_own(const gd_tensor *t, const gd_tensor *g)
{
    return t->refs == 1 && !t->scope && t->storage && t->storage->refs == 1 && !t->n_inputs &&
           !t->requires_grad && !g->requires_grad && gd_layout_is_contiguous(&t->layout);
}

/* Add g to what waits at slot. */
static bool collect(walk *w, int64_t slot, gd_tensor *g)
{
    gd_tensor *before = w->grads[slot];
    if (before && !w->context->trace && is_own(before, g))
        return gd_apply_in_place(GD_OP_add, 2, (gd_tensor *[]){ before, g }, NULL, 0);
    gd_tensor *sum = before ? gd_apply2(GD_OP_add, before, g, NULL) : g;
    if (!sum)
        return false;
    w->grads[slot] = gd_retain(sum);
    gd_release(before);
    return true;
}

/* Bring a gradient to the shape and dtype of the tensor it belongs to. */
static gd_tensor *fit(gd_tensor *g, const gd_tensor *t)
{
    return gd_sum_to(gd_as_dtype(g, t->layout.dtype), &t->layout);
}

/* After a walk within this one: nodes' marks are what this one needs again. */
static void mark_again(walk *w)
{
    w->generation = ++w->context->generation;
    for (size_t i = 0; i < w->order.count; i++) {
        gd_tensor *t = w->order.nodes[i];
        t->mark = w->generation;
        t->slot = (int64_t)i;
        t->wanted = w->wanted[i];
    }
}

gd_tensor *gd_link_gradient(gd_tensor *result, gd_tensor *g, gd_tensor *before)
{
    gd_tensor *pair[2] = { g, before };
    gd_tensor *entry =
        gd_node_new(result->context, result->op, before ? 2 : 1, pair, result->attr, true);
    if (entry)
        (void)gd_layout_init(&entry->layout, GD_SCALAR, GD_BOOL, "gd_grad");
    return entry;
}

/* Add d to what waits for t, or to its list. */
static bool pass_on(walk *w, gd_tensor *d, gd_tensor *t)
{
    if (!t->op || !(t->op->flags & GD_OP_SEVERAL)) {
        gd_tensor *fitted = fit(d, t);
        return fitted && collect(w, t->slot, fitted);
    }
    gd_tensor *before = w->grads[t->slot];
    gd_tensor *entry = before ? gd_link_gradient(d, d->inputs[0], before) : d;
    w->grads[t->slot] = entry ? gd_retain(entry) : before;
    if (entry)
        gd_release(before);
    return entry;
}

/* Whether r's gradient waits for those of other parts of the same node. */
static bool is_part(const gd_tensor *r)
{
    const gd_op *from = r->inputs[0]->op;
    return (r->op->flags & GD_OP_PART) && !(from && (from->flags & GD_OP_SEVERAL)) &&
           gd_layout_count(&r->layout) > 0;
}

static bool add_part(walk *w, gd_tensor *r, gd_tensor *g)
{
    if (!gd_wants_grad(r->inputs[0]))
        return true;
    part *p = gd_alloc(sizeof *p), **last = &w->parts[r->inputs[0]->slot];
    if (!p)
        return false;
    *p = (part){ r, gd_retain(g), *last };
    *last = p;
    return true;
}

/* d [input] = the gradients of the inputs of node r, from its own. */
static bool derive(walk *w, gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    const gd_tensor *before = w->context->differentiating;
    const uint64_t autocast = gd_autocast_pause(w->context);
    w->context->differentiating = r;
    bool ok = r->op->vjp(r, g, d);
    w->context->differentiating = before;
    gd_autocast_resume(w->context, autocast);
    if (w->context->generation != w->generation)
        mark_again(w);
    return ok;
}

/* Gradients of the inputs of node r, from its own. */
static bool step_back(walk *w, gd_tensor *r, gd_tensor *g)
{
    if (is_part(r))
        return add_part(w, r, g);
    gd_tensor *few[GD_OP_MAX_INPUTS] = { NULL }, **d = few; /* only a call may have more */
    if (r->n_inputs > GD_OP_MAX_INPUTS)
        d = gd_alloc_zero((size_t)r->n_inputs, sizeof *d);
    if (!d)
        return false;
    bool ok = derive(w, r, g, d);
    for (int i = 0; ok && i < r->n_inputs; i++)
        if (d[i] && gd_wants_grad(r->inputs[i]))
            ok = pass_on(w, d[i], r->inputs[i]);
    if (d != few)
        gd_free(d);
    return ok;
}

/* ---- gradients of parts: one pass over the whole, instead of one of zeros for each ---- */

static int64_t start_of(const part *p, int axis)
{
    return ((const gd_slice_attr *)p->of->attr)->start[axis];
}

/* Whether p is a slice along one axis alone, in its order: *axis, if that is not set yet. */
static bool is_cut_along(const part *p, int *axis)
{
    const gd_slice_attr *a = p->of->attr;
    const gd_layout *whole = &p->of->inputs[0]->layout;
    for (int i = 0; i < whole->rank; i++) {
        bool is_cut = a->size[i] != whole->shape[i];
        if (is_cut && *axis < 0)
            *axis = i;
        if (a->step[i] != 1 || (is_cut && i != *axis))
            return false;
    }
    return *axis >= 0;
}

/* list [count] in the order in which they lie, if they do not overlap. */
static bool sort_slices(part **list, int64_t count, int axis)
{
    for (int64_t i = 1; i < count; i++) {
        part *p = list[i];
        int64_t at = i;
        for (; at > 0 && start_of(list[at - 1], axis) > start_of(p, axis); at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
    for (int64_t i = 1; i < count; i++)
        if (start_of(list[i - 1], axis) + list[i - 1]->g->layout.shape[axis] >
            start_of(list[i], axis))
            return false;
    return true;
}

/* Slices' gradients side by side, zeros between them. Room: pieces [2 count + 1]. */
static gd_tensor *concat_slices(part **list, int64_t count, int axis, gd_tensor **pieces)
{
    gd_tensor *x = list[0]->of->inputs[0];
    gd_tensor *zero = gd_scalar(x->context, 0, x->layout.dtype);
    gd_shape gap = gd_tensor_shape(x);
    int64_t n = 0, end = 0, length = gap.dim[axis];
    for (int64_t i = 0; i <= count; i++) {
        gap.dim[axis] = (i < count ? start_of(list[i], axis) : length) - end;
        if (gap.dim[axis] > 0)
            pieces[n++] = gd_as_shape(zero, gap);
        if (i == count)
            break;
        pieces[n++] = list[i]->g;
        end = start_of(list[i], axis) + list[i]->g->layout.shape[axis];
    }
    return gd_concat((int)n, pieces, axis);
}

/* Of the parts that wait at slot, slices that lie apart along one axis: two or more are put
 * together, and lose their g. */
static bool join_slices(walk *w, int64_t slot)
{
    int64_t count = 0;
    int axis = -1;
    for (const part *p = w->parts[slot]; p; p = p->earlier)
        if (p->of->op->id == GD_OP_slice) {
            count++;
            if (!is_cut_along(p, &axis))
                return true;
        }
    if (count < 2)
        return true;
    part **list = gd_alloc((size_t)count * sizeof *list);
    gd_tensor **pieces = gd_alloc((size_t)(2 * count + 1) * sizeof *pieces);
    bool ok = list && pieces;
    count = 0;
    for (part *p = w->parts[slot]; ok && p; p = p->earlier)
        if (p->of->op->id == GD_OP_slice)
            list[count++] = p;
    if (ok && sort_slices(list, count, axis)) {
        gd_tensor *whole = concat_slices(list, count, axis, pieces);
        ok = whole && collect(w, slot, whole);
        for (int64_t i = 0; i < count; i++) {
            gd_release(list[i]->g);
            list[i]->g = NULL;
        }
    }
    gd_free(list);
    gd_free(pieces);
    return ok;
}

/* `to` with gathered rows' gradient added, in its own memory if may be. */
static gd_tensor *add_rows(gd_tensor *to, const part *p, bool in_place)
{
    gd_tensor *inputs[3] = { to, p->of->inputs[1], p->g };
    gd_context *context = to->context;
    const gd_tensor *before = context->differentiating;
    context->differentiating = p->of;
    gd_tensor *sum =
        in_place && !gd_dtype_is_half(to->layout.dtype)
            ? gd_apply_in_place(GD_OP_scatter_add, 3, inputs, p->of->attr, 0)
            : gd_scatter_add(to, inputs[1], p->g, ((const gd_axis_attr *)p->of->attr)->axis);
    context->differentiating = before;
    return sum;
}

/* A part by itself: rows into what is there already, else among zeros. */
static bool join_alone(walk *w, int64_t slot, const part *p)
{
    gd_tensor *d[2] = { NULL }, *before = w->grads[slot];
    if (!before || p->of->op->id == GD_OP_slice)
        return derive(w, p->of, p->g, d) && collect(w, slot, d[0]);
    gd_tensor *sum = add_rows(before, p, !w->context->trace && is_own(before, p->g));
    if (sum && sum != before) {
        w->grads[slot] = gd_retain(sum);
        gd_release(before);
    }
    return sum;
}

/* Put the parts that wait at slot together with what was added up there. Where that is nothing,
 * rows only if `with_rows`. */
static bool join(walk *w, int64_t slot, bool with_rows)
{
    bool ok = join_slices(w, slot);
    with_rows = with_rows || w->grads[slot];
    part *p = w->parts[slot], *later = NULL;
    w->parts[slot] = NULL;
    for (part *next; p; p = next) {
        next = p->earlier;
        if (p->g && p->of->op->id != GD_OP_slice && !with_rows) {
            p->earlier = later;
            later = p;
            continue;
        }
        ok = ok && (!p->g || join_alone(w, slot, p));
        gd_release(p->g);
        gd_free(p);
    }
    w->parts[slot] = later;
    return ok;
}

/* Which nodes of the order lead to a target. targets NULL: every leaf is one, and every result that
 * keeps its gradient. */
static void mark_wanted(walk *w, gd_tensor *const *targets, int count)
{
    for (size_t i = 0; i < w->order.count; i++) {
        gd_tensor *t = w->order.nodes[i];
        w->is_target[i] = !targets && t->keeps_grad;
        t->wanted = w->is_target[i] || (!targets && gd_is_leaf(t));
    }
    for (int i = 0; i < count; i++)
        if (targets[i]->mark == w->context->generation)
            targets[i]->wanted = w->is_target[targets[i]->slot] = true;
    for (size_t i = 0; i < w->order.count; i++) {
        gd_tensor *t = w->order.nodes[i];
        for (int j = 0; j < t->n_inputs && !t->wanted; j++)
            t->wanted = gd_wants_grad(t->inputs[j]);
        w->wanted[i] = t->wanted;
    }
}

static bool is_among(gd_tensor *const *list, int count, const gd_tensor *t)
{
    for (int i = 0; i < count; i++)
        if (list[i] == t)
            return true;
    return false;
}

static bool seed(walk *w, gd_tensor *output, gd_tensor *given)
{
    if (!output->requires_grad)
        return true;
    gd_tensor *g = given ? given : ones_like(output);
    if (given && !gd_layout_same_shape(&given->layout, &output->layout)) {
        char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
        (void)gd_fail(GD_ERR_SHAPE, "gd_grad: a seed is %s, its output %s",
                      gd_layout_text(&given->layout, a), gd_layout_text(&output->layout, b));
        return false;
    }
    g = gd_as_dtype(g, output->layout.dtype);
    return g && collect(w, output->slot, g);
}

static void walk_end(walk *w)
{
    for (size_t i = 0; w->grads && i < w->order.count; i++)
        gd_release(w->grads[i]);
    for (size_t i = 0; w->parts && i < w->order.count; i++)
        for (part *p = w->parts[i], *next; p; p = next) {
            next = p->earlier;
            gd_release(p->g);
            gd_free(p);
        }
    gd_free(w->grads);
    gd_free(w->parts);
    gd_free(w->wanted);
    gd_free(w->is_target);
    gd_order_free(&w->order);
}

/* Fill w->grads for the targets (NULL: for leaves). What else was built on the way is released. */
static gd_status differentiate(walk *w, gd_tensor *const *outputs, gd_tensor *const *seeds,
                               int output_count, gd_tensor *const *targets, int target_count)
{
    w->limits.grad_only = true;
    if (gd_order_make(&w->order, w->context, outputs, output_count, &w->limits) != GD_OK)
        return GD_ERR_MEMORY;
    w->grads = gd_alloc_zero(w->order.count + 1, sizeof(gd_tensor *));
    w->parts = gd_alloc_zero(w->order.count + 1, sizeof(part *));
    w->wanted = gd_alloc_zero(w->order.count + 1, sizeof(bool));
    w->is_target = gd_alloc_zero(w->order.count + 1, sizeof(bool));
    if (!w->grads || !w->parts || !w->wanted || !w->is_target)
        return GD_ERR_MEMORY;
    w->generation = w->context->generation;
    mark_wanted(w, targets, target_count);
    bool ok = gd_scope_begin(w->context) == GD_OK;
    if (!ok)
        return GD_ERR_MEMORY;
    for (int i = 0; ok && i < output_count; i++)
        ok = seed(w, outputs[i], seeds ? seeds[i] : NULL);
    (void)gd_scope_end(w->context);

    for (size_t i = w->order.count; ok && i-- > 0;) {
        gd_tensor *r = w->order.nodes[i];
        if (w->parts[i]) {
            if (gd_scope_begin(w->context) != GD_OK)
                return GD_ERR_MEMORY;
            ok = join(w, (int64_t)i, targets || !gd_is_leaf(r));
            (void)gd_scope_end(w->context);
        }
        gd_tensor *g = w->grads[i];
        if (!ok || !g || gd_is_leaf(r) || !r->wanted || !r->op->vjp || r->id < w->limits.first_id ||
            is_among(w->limits.stops, w->limits.stop_count, r))
            continue;
        if (gd_scope_begin(w->context) != GD_OK)
            return GD_ERR_MEMORY;
        ok = step_back(w, r, g);
        (void)gd_scope_end(w->context);
        if (!w->is_target[i]) {
            gd_release(g);
            w->grads[i] = NULL;
        }
    }
    return ok ? GD_OK : gd_error_last();
}

/* What the walk has for its targets; NULL where no output depends on one. */
static void collect_gradients(walk *w, gd_tensor *const *targets, gd_tensor **gradients, int count)
{
    for (int i = 0; i < count; i++) {
        gd_tensor *g = targets[i]->mark == w->generation ? w->grads[targets[i]->slot] : NULL;
        gradients[i] = g ? gd_scope_adopt(gd_retain(g)) : NULL;
    }
}

/* Whether a and b lie in the same memory. */
static bool share_memory(const gd_tensor *a, const gd_tensor *b)
{
    return a && b && (a == b || (a->storage && a->storage == b->storage));
}

/* Gradients are the caller's, who may change them in place: one that is a seed, or another
 * gradient, is copied. In a trace only one with a history is, in which the copy is a node as it is
 * eagerly: gradients of it are added up in the same order. */
static bool separate_gradients(gd_tensor *const *seeds, int seed_count, gd_tensor **gradients,
                               int count)
{
    for (int i = 0; i < count; i++) {
        bool shared = false;
        if (gradients[i]->context->trace && !gradients[i]->requires_grad)
            continue;
        for (int k = 0; seeds && k < seed_count; k++)
            shared |= share_memory(gradients[i], seeds[k]);
        for (int k = 0; k < i; k++)
            shared |= share_memory(gradients[i], gradients[k]);
        if (shared && !(gradients[i] = gd_apply1(GD_OP_copy, gradients[i], NULL)))
            return false;
    }
    return true;
}

gd_status gd_grad(int output_count, gd_tensor *const *outputs, gd_tensor *const *seeds,
                  int input_count, gd_tensor *const *inputs, gd_tensor **gradients)
{
    if (!outputs || !inputs || !gradients || output_count < 1 || input_count < 0)
        return gd_fail(GD_ERR_INVALID, "gd_grad: an argument is NULL or a count is wrong");
    for (int i = 0; i < input_count; i++)
        gradients[i] = NULL;
    for (int i = 0; i < output_count + input_count; i++) {
        const gd_tensor *t = i < output_count ? outputs[i] : inputs[i - output_count];
        if (!t)
            return gd_fail(GD_ERR_INVALID, "gd_grad: a tensor is NULL");
        if (!gd_usable(t, "gd_grad"))
            return GD_ERR_STATE;
        if (seeds && i < output_count && seeds[i] && !gd_usable(seeds[i], "gd_grad"))
            return GD_ERR_STATE;
        if (t->context != outputs[0]->context)
            return gd_fail(GD_ERR_INVALID, "gd_grad: tensors belong to different contexts");
    }
    walk w = { .context = outputs[0]->context };
    gd_use use;
    if (gd_use_begin(&use, w.context, "gd_grad") != GD_OK)
        return GD_ERR_STATE;
    gd_status status = differentiate(&w, outputs, seeds, output_count, inputs, input_count);
    if (status == GD_OK)
        collect_gradients(&w, inputs, gradients, input_count);
    walk_end(&w);
    for (int i = 0; status == GD_OK && i < input_count; i++)
        if (!gradients[i] && !(gradients[i] = gd_zeros_like(inputs[i])))
            status = gd_error_last();
    if (status == GD_OK && !separate_gradients(seeds, output_count, gradients, input_count))
        status = gd_error_last();
    gd_use_end(&use);
    return status;
}

gd_status gd_grad_within(gd_tensor *const *outputs, gd_tensor *const *seeds, int output_count,
                         const gd_order_limits *limits, gd_tensor *const *targets,
                         gd_tensor **gradients, int target_count)
{
    walk w = { .context = outputs[0]->context, .limits = *limits };
    gd_status status = differentiate(&w, outputs, seeds, output_count, targets, target_count);
    if (status == GD_OK)
        collect_gradients(&w, targets, gradients, target_count);
    walk_end(&w);
    return status;
}

/* Whether gd_zero_grad was called for t, which had no gradient, in this recording. */
static bool was_zeroed(const gd_trace *trace, const gd_tensor *t)
{
    for (size_t i = 0; trace && i < trace->zeroed_count; i++)
        if (trace->zeroed[i] == t)
            return true;
    return false;
}

/* The first time a gradient is made of zeros, outside of any trace. */
static gd_status make_gradient(gd_tensor *t)
{
    if (t->grad)
        return GD_OK;
    gd_trace_pause(t->context);
    gd_tensor *zeros = gd_zeros_like(t);
    if (zeros) { /* not a temporary: it lasts as long as t has it */
        t->grad = gd_link(zeros);
        gd_discard(zeros);
    }
    gd_trace_resume(t->context);
    if (t->grad && was_zeroed(t->context->trace, t) && gd_zero_grad(t) != GD_OK)
        return gd_error_last();
    return t->grad ? GD_OK : gd_error_last();
}

/* leaf->grad += g, or gathered rows. */
static gd_status accumulate(gd_tensor *leaf, gd_tensor *g, const part *rows)
{
    gd_context *context = leaf->context;
    if (make_gradient(leaf) != GD_OK)
        return gd_error_last();
    gd_tensor *sum = leaf->grad;
    if (g)
        sum = context->trace ? gd_apply2(GD_OP_add, sum, g, NULL)
                             : gd_apply_in_place(GD_OP_add, 2, (gd_tensor *[]){ sum, g }, NULL, 0);
    for (; rows && sum; rows = rows->earlier)
        sum = add_rows(sum, rows, !context->trace);
    return sum == leaf->grad || gd_assign(leaf->grad, sum) ? GD_OK : gd_error_last();
}

static gd_status accumulate_all(walk *w)
{
    bool any = false;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < w->order.count; i++) {
        gd_tensor *leaf = w->order.nodes[i];
        if (!(gd_is_leaf(leaf) || leaf->keeps_grad) || !(w->grads[i] || w->parts[i]))
            continue;
        any |= gd_is_leaf(leaf);
        if (!leaf->storage)
            return gd_fail(
                GD_ERR_STATE,
                "gd_backward: a traced value requires a gradient; use gd_grad for those");
        if (gd_scope_begin(w->context) != GD_OK)
            return GD_ERR_MEMORY;
        status = accumulate(leaf, w->grads[i], w->parts[i]);
        (void)gd_scope_end(w->context);
    }
    if (status == GD_OK && !any)
        status = gd_fail(GD_ERR_STATE,
                         "gd_backward: the loss depends on no tensor that requires a gradient");
    return status;
}

static gd_status backward(gd_tensor *output, gd_tensor *seed)
{
    if (!output)
        return gd_fail(GD_ERR_INVALID, "gd_backward: the loss is NULL");
    if (!gd_usable(output, "gd_backward") || (seed && !gd_usable(seed, "gd_backward")))
        return GD_ERR_STATE;
    if (seed && seed->context != output->context)
        return gd_fail(GD_ERR_INVALID, "gd_backward: the seed belongs to another context");
#ifdef GD_DEBUG_CHECKS
    if (gd_graph_verify(output) != GD_OK)
        return gd_error_last();
#endif
    walk w = { .context = output->context };
    gd_use use;
    if (gd_use_begin(&use, w.context, "gd_backward") != GD_OK)
        return GD_ERR_STATE;
    if (w.context->trace)
        w.context->trace->has_backward = true;
    w.context->no_grad++;
    gd_status status = differentiate(&w, &output, &seed, 1, NULL, 0);
    if (status == GD_OK)
        status = accumulate_all(&w);
    walk_end(&w);
    w.context->no_grad--;
    gd_use_end(&use);
    return status;
}

gd_status gd_backward(gd_tensor *loss)
{
    return backward(loss, NULL);
}

gd_status gd_backward_seeded(gd_tensor *output, gd_tensor *seed)
{
    if (!seed)
        return gd_fail(GD_ERR_INVALID, "gd_backward_seeded: the seed is NULL");
    return GD_AS("gd_backward_seeded", backward(output, seed));
}

/* ---- gradients of tensors ---- */

gd_tensor *gd_retain_grad(gd_tensor *t)
{
    if (!gd_usable(t, "gd_retain_grad"))
        return NULL;
    if (t->context->trace)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_retain_grad: a value of a compiled function has no gradient of its "
                            "own; take gd_grad by it, and give that to gd_output");
    if (!t->requires_grad)
        return gd_fail_null(GD_ERR_STATE,
                            "gd_retain_grad: the tensor depends on none that requires a gradient");
    t->keeps_grad = !gd_is_leaf(t);
    return t;
}

gd_tensor *gd_gradient(gd_tensor *t)
{
    return gd_usable(t, "gd_gradient") ? t->grad : NULL;
}

/* Let go of the gradient; plans that add to it are made again. */
static void drop_gradient(gd_tensor *t)
{
    if (!t->grad)
        return;
    t->grad->is_dropped = true;
    t->context->grad_version++;
    gd_unlink(t->grad);
    t->grad = NULL;
}

static gd_status check_gradient(const gd_tensor *t, const gd_tensor *gradient)
{
    char a[GD_SHAPE_TEXT], b[GD_SHAPE_TEXT];
    if (!t->requires_grad || !(gd_is_leaf(t) || t->keeps_grad))
        return gd_fail(GD_ERR_STATE,
                       "gd_set_gradient: the tensor has no gradient: it is neither a leaf that "
                       "requires one nor marked by gd_retain_grad");
    if (gradient->context != t->context)
        return gd_fail(GD_ERR_INVALID, "gd_set_gradient: the gradient belongs to another context");
    if (gradient->layout.dtype != t->layout.dtype)
        return gd_fail(GD_ERR_DTYPE, "gd_set_gradient: the gradient is %s, the tensor %s",
                       gd_dtype_name(gradient->layout.dtype), gd_dtype_name(t->layout.dtype));
    if (!gd_layout_same_shape(&gradient->layout, &t->layout))
        return gd_fail(GD_ERR_SHAPE, "gd_set_gradient: the gradient is %s, the tensor %s",
                       gd_layout_text(&gradient->layout, a), gd_layout_text(&t->layout, b));
    return GD_OK;
}

gd_status gd_set_gradient(gd_tensor *t, gd_tensor *gradient)
{
    if (!t)
        return gd_fail(GD_ERR_INVALID, "gd_set_gradient: the tensor is NULL");
    if (!gd_usable(t, "gd_set_gradient") || (gradient && !gd_usable(gradient, "gd_set_gradient")))
        return GD_ERR_STATE;
    if (!gradient && t->context->trace)
        return gd_fail_traced("gd_set_gradient(t, NULL)");
    if (!gradient) {
        drop_gradient(t);
        return GD_OK;
    }
    gd_status status = check_gradient(t, gradient);
    if (status == GD_OK && gradient != t->grad)
        status = make_gradient(t);
    return status == GD_OK && !gd_assign(t->grad, gradient) ? gd_error_last() : status;
}

gd_status gd_zero_grad(gd_tensor *t)
{
    if (t && !gd_usable(t, "gd_zero_grad"))
        return GD_ERR_STATE;
    if (!t)
        return GD_OK;
    gd_trace *trace = t->context->trace;
    if (!t->grad && trace && t->requires_grad) {
        if (!gd_grow((void **)&trace->zeroed, &trace->zeroed_capacity, trace->zeroed_count + 1,
                     sizeof *trace->zeroed))
            return GD_ERR_MEMORY;
        trace->zeroed[trace->zeroed_count++] = t;
    }
    if (!t->grad)
        return GD_OK;
    return gd_assign(t->grad, gd_zeros_like(t->grad)) ? GD_OK : gd_error_last();
}
