/* ops/checkpoint.c: gradient checkpointing (Chen, Xu, Zhang, Guestrin, "Training deep nets with
 * sublinear memory cost", 2016). Start at gd_checkpoint().
 *
 * The block is run, and the history it recorded is freed. What stays is its result and a node,
 * `checkpoint`, whose inputs are what the block depends on. The derivative of that node runs the
 * block again, at the same position of the random stream, and differentiates the second run. In a
 * trace, nodes of a second run carry the number of the run (region), so that the compiler does not
 * find them equal to those of the first. */
#include "ops/internal.h"

#include "graph/trace.h"

/* ---- the op: inputs: the result, the block's inputs, then the other tensors it depends on. A view
 * of the result ---- */

static gd_status infer_checkpoint(int n, const gd_layout *const *in, const void *attr,
                                  gd_layout *out)
{
    (void)n, (void)attr;
    *out = *in[0];
    return GD_OK;
}

static uint64_t *stream_position(gd_context *context)
{
    return context->trace ? &context->trace->random_words : &context->random_position;
}

/* The block's result. As of a compiled function's body, scopes that it left open are ended, what it switched is
 * as before, and it does not end scopes of others; a map that it left open is an error. */
static gd_tensor *run_block(gd_context *context, gd_function_body body, void *user, int count,
                            gd_tensor *const *inputs)
{
    gd_scope *outer = context->body_scope, *here = context->scope;
    const gd_recording before = gd_recording_now(context);
    context->body_scope = here;
    gd_tensor *y = gd_run_body(body, user, count, inputs, "gd_checkpoint");
    if (y && context->trace && context->trace != before.trace)
        y = gd_fail_null(GD_ERR_STATE,
                         "gd_checkpoint: the block left a map open, which gd_vmap_end "
                         "or gd_vmap_abandon ends");
    const bool is_deeper = context->scope != here;
    y = is_deeper ? gd_retain(y) : y;
    gd_recording_set(context, before);
    context->body_scope = here;
    while (context->scope != here)
        (void)gd_scope_end(context);
    context->body_scope = outer;
    return is_deeper && y ? gd_scope_adopt(y) : y;
}

/* The block once more: with history, and without effects. */
static gd_tensor *run_again(gd_tensor *r, const gd_checkpoint_attr *a)
{
    gd_context *context = r->context;
    uint64_t *position = stream_position(context), now = *position;
    const gd_recording before = gd_recording_now(context);
    *position = a->position;
    context->region = ++context->regions;
    context->recomputing++;
    context->no_grad = 0;
    context->autocast = a->autocast;
    gd_tensor *y = run_block(context, a->body, a->user, (int)a->count, r->inputs + 1);
    gd_recording_set(context, before);
    *position = now;
    if (y &&
        (!gd_layout_same_shape(&y->layout, &r->layout) || y->layout.dtype != r->layout.dtype)) {
        char first[GD_SHAPE_TEXT], second[GD_SHAPE_TEXT];
        return gd_fail_null(
            GD_ERR_STATE,
            "gd_checkpoint: the block gave %s at first and %s when it was run again; it must be a "
            "function of its inputs",
            gd_layout_text(&r->layout, first), gd_layout_text(&y->layout, second));
    }
    return y;
}

static bool vjp_checkpoint(gd_tensor *r, gd_tensor *g, gd_tensor **d)
{
    gd_tensor *target[GD_OP_MAX_INPUTS], *gradient[GD_OP_MAX_INPUTS];
    int place[GD_OP_MAX_INPUTS], count = 0;
    for (int i = 1; i < r->n_inputs; i++) {
        bool again = false; /* an input that is given twice gets its gradient once */
        for (int k = 0; k < count && !again; k++)
            again = target[k] == r->inputs[i];
        if (!again && r->inputs[i]->requires_grad && gd_wants_grad(r->inputs[i])) {
            target[count] = r->inputs[i];
            place[count++] = i;
        }
    }
    gd_tensor *y = run_again(r, r->attr);
    const gd_order_limits limits = { .stops = r->inputs + 1, .stop_count = r->n_inputs - 1 };
    if (!y || gd_grad_within(&y, &g, 1, &limits, target, gradient, count) != GD_OK)
        return false;
    for (int k = 0; k < count; k++)
        d[place[k]] = gradient[k];
    return true;
}

const gd_op gd_op_checkpoint = { .id = GD_OP_checkpoint,
                                 .name = "checkpoint",
                                 .arity = GD_OP_VARIADIC,
                                 .flags = GD_OP_VIEW,
                                 .attr_size = sizeof(gd_checkpoint_attr),
                                 .infer = infer_checkpoint,
                                 .vjp = vjp_checkpoint };

/* ---- the builder ---- */

/* What the node will have as inputs. */
typedef struct boundary {
    gd_tensor *inputs[GD_OP_MAX_INPUTS];
    int count;
    uint64_t first; /* id of the first node the block can have made */
} boundary;

/* Add the tensors that a node of the block reads from outside, or that are its own leaves. */
static bool add_outside(boundary *b, gd_tensor *t)
{
    if (!t->requires_grad || (t->id >= b->first && !gd_is_leaf(t)))
        return true;
    for (int i = 1; i < b->count; i++)
        if (b->inputs[i] == t)
            return true;
    if (b->count == GD_OP_MAX_INPUTS) {
        (void)gd_fail(
            GD_ERR_UNSUPPORTED,
            "gd_checkpoint: the block depends on more than %d tensors; make it of smaller blocks",
            GD_OP_MAX_INPUTS - 1);
        return false;
    }
    b->inputs[b->count++] = t;
    return true;
}

/* Walk the block's graph from y, not below what is outside. */
static bool find_outside(boundary *b, gd_tensor *y)
{
    gd_order order;
    gd_order_limits limits = { .grad_only = true, .first_id = b->first };
    if (gd_order_make(&order, y->context, &y, 1, &limits) != GD_OK)
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < order.count; i++)
        ok = add_outside(b, order.nodes[i]);
    gd_order_free(&order);
    return ok;
}

/* The node for a block that gave y; y itself where no gradient passes. */
static gd_tensor *close_block(gd_tensor *y, boundary *b, const gd_checkpoint_attr *attr)
{
    if (!y || !y->requires_grad || y->id < b->first || gd_is_leaf(y))
        return y;
    b->inputs[0] = gd_detach(y);
    return b->inputs[0] && find_outside(b, y)
               ? gd_apply(NULL, GD_OP_checkpoint, b->count, b->inputs, attr)
               : NULL;
}

gd_tensor *gd_checkpoint(gd_function_body body, void *user, int count, gd_tensor *const *inputs)
{
    if (!body || count < 1 || !inputs)
        return gd_fail_null(GD_ERR_INVALID, "gd_checkpoint: the block or its inputs are missing");
    if (count > GD_OP_MAX_INPUTS - 1)
        return gd_fail_null(GD_ERR_INVALID, "gd_checkpoint: %d inputs, at most %d are allowed",
                            count, GD_OP_MAX_INPUTS - 1);
    for (int i = 0; i < count; i++)
        if (!gd_usable(inputs[i], "gd_checkpoint"))
            return NULL;
    gd_context *context = inputs[0]->context;
    if (context->no_grad > 0)
        return run_block(context, body, user, count, inputs);
    gd_checkpoint_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.body = body;
    attr.user = user;
    attr.count = count;
    attr.position = *stream_position(context);
    attr.autocast = context->autocast;
    boundary b = { .count = 1 + count, .first = context->next_id };
    memcpy(b.inputs + 1, inputs, sizeof(gd_tensor *) * (size_t)count);
    if (gd_scope_begin(context) != GD_OK)
        return NULL;
    gd_tensor *y = run_block(context, body, user, count, inputs);
    gd_tensor *result = gd_retain(close_block(y, &b, &attr));
    (void)gd_scope_end(context);
    return result ? gd_scope_adopt(result) : NULL;
}
