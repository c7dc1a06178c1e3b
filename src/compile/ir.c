/* compile/ir.c: from a trace to the IR, and the IR's upkeep. */
#include "compile/ir.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static gd_ir_value *append(gd_ir *ir)
{
    if (ir->count >= INT32_MAX ||
        !gd_grow((void **)&ir->values, &ir->capacity, ir->count + 1, sizeof(gd_ir_value)))
        return NULL;
    gd_ir_value *v = &ir->values[ir->count];
    memset(v, 0, sizeof *v);
    v->root = (int32_t)ir->count++;
    return v;
}

int32_t gd_ir_push(gd_ir *ir, const gd_op *op, int n, const int32_t *in, const void *attr,
                   const gd_layout *layout)
{
    int32_t *operands =
        gd_arena_push(&ir->memory, sizeof(int32_t) * (size_t)(n + 1), sizeof(int32_t));
    void *copy = op->attr_size ? gd_arena_push(&ir->memory, op->attr_size, 8) : NULL;
    if (!operands || (op->attr_size && !copy))
        return -1;
    for (int i = 0; i < n; i++)
        operands[i] = in[i];
    if (copy && attr)
        memcpy(copy, attr, op->attr_size);
    gd_ir_value *v = append(ir);
    if (!v)
        return -1;
    v->kind = GD_IR_OP;
    v->op = op;
    v->n = n;
    v->in = operands;
    v->attr = copy;
    v->layout = *layout;
    if (op->flags & GD_OP_VIEW)
        v->root = ir->values[in[0]].root;
    return (int32_t)(ir->count - 1);
}

/* ---- from a trace. While it lasts, a tensor's slot is its value where its mark is the walk's
 * generation; a storage's mark and trace_version say how often it has been assigned to. ---- */

static int32_t assignments(const gd_storage *storage, uint64_t generation)
{
    return storage->mark == generation ? storage->trace_version : 0;
}

/* The value of a tensor that exists outside the trace, as of now. */
static int32_t external_value(gd_ir *ir, gd_tensor *t)
{
    uint64_t generation = ir->context->generation;
    int32_t version = assignments(t->storage, generation);
    if (t->mark == generation && ir->values[t->slot].version == version)
        return (int32_t)t->slot;
    gd_ir_value *v = append(ir);
    if (!v)
        return -1;
    v->kind = GD_IR_EXTERNAL;
    v->external = gd_link(t);
    t->storage->is_pinned = true;
    v->layout = t->layout;
    v->version = version;
    v->requires_grad = t->requires_grad;
    t->mark = generation;
    t->slot = (int64_t)ir->count - 1;
    return (int32_t)t->slot;
}

static int32_t value_of(gd_ir *ir, gd_tensor *t)
{
    if (t->storage)
        return external_value(ir, t);
    if (t->mark == ir->context->generation)
        return (int32_t)t->slot;
    (void)gd_fail(GD_ERR_STATE, "gd_compile: the body uses a value of another trace");
    return -1;
}

/* A view of an external must not be read once its storage has been assigned to: eagerly it would
 * show the new contents. */
static gd_status check_stale(const gd_ir *ir, int32_t value, const gd_op *reader)
{
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    if (root->kind != GD_IR_EXTERNAL || !gd_ir_is_view(&ir->values[value]))
        return GD_OK;
    if (assignments(root->external->storage, ir->context->generation) == root->version)
        return GD_OK;
    return gd_fail(GD_ERR_STATE,
                   "gd_compile: %s reads a view of a tensor that gd_assign has changed since the "
                   "view was made; make the view again",
                   reader->name);
}

/* What lies in the memory of value `of` as `layout` says. */
static int32_t push_view(gd_ir *ir, int32_t of, const gd_layout *layout)
{
    gd_call_result_attr view;
    memset(&view, 0, sizeof view);
    view.layout = *layout;
    return gd_ir_push(ir, gd_op_row(GD_OP_call_result), 1, &of, &view, layout);
}

static gd_status convert_node(gd_ir *ir, gd_tensor *t)
{
    int32_t in[GD_OP_MAX_INPUTS];
    if (t->op->id == GD_OP_checkpoint) { /* its result is the block's; the rest was for its vjp */
        t->slot = value_of(ir, t->inputs[0]);
        t->mark = ir->context->generation;
        return t->slot < 0 ? gd_error_last() : GD_OK;
    }
    /* A view's further operands are for its vjp; here they may have no value. */
    const bool is_plain = !(t->op->flags & GD_OP_VIEW) || t->n_inputs == 1;
    const int n = is_plain ? t->n_inputs : 1;
    for (int i = 0; i < n; i++) {
        in[i] = value_of(ir, t->inputs[i]);
        if (in[i] < 0)
            return gd_error_last();
        if (check_stale(ir, in[i], t->op) != GD_OK)
            return gd_error_last();
    }
    int32_t value = is_plain ? gd_ir_push(ir, t->op, n, in, t->attr, &t->layout)
                             : push_view(ir, in[0], &t->layout);
    if (value < 0)
        return GD_ERR_MEMORY;
    ir->values[value].region = t->region;
    t->mark = ir->context->generation;
    t->slot = value;
    if (t->op->id == GD_OP_assign) {
        gd_storage *storage = t->inputs[0]->storage;
        storage->trace_version = assignments(storage, ir->context->generation) + 1;
        storage->mark = ir->context->generation;
    }
    return GD_OK;
}

/* A result must have memory of its own: copy what lies in an input or a parameter, and what is
 * given twice. A view of a tensor that has been assigned to since shows, at the end, what is there
 * now. */
static int32_t output_value(gd_ir *ir, gd_tensor *t)
{
    int32_t value = value_of(ir, t);
    if (value < 0)
        return -1;
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    if (root->kind == GD_IR_EXTERNAL && gd_ir_is_view(&ir->values[value])) {
        const gd_layout layout = ir->values[value].layout;
        const int32_t now = external_value(ir, root->external);
        value = now < 0 ? -1 : push_view(ir, now, &layout);
        if (value < 0)
            return -1;
        root = &ir->values[ir->values[value].root];
    }
    if (root->kind == GD_IR_OP && !root->is_output && !gd_ir_is_effect(root))
        return value;
    gd_layout layout;
    if (gd_layout_init(&layout, gd_layout_shape(&t->layout), t->layout.dtype, "gd_output") != GD_OK)
        return -1;
    return gd_ir_push(ir, gd_op_row(GD_OP_copy), 1, &value, NULL, &layout);
}

static gd_status convert_outputs(gd_ir *ir, const gd_ir_source *source)
{
    ir->output_count = source->output_count;
    ir->outputs = gd_alloc((ir->output_count + 1) * sizeof(int32_t));
    if (!ir->outputs)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->output_count; i++) {
        int32_t value = output_value(ir, source->outputs[i]);
        if (value < 0)
            return gd_error_last();
        ir->outputs[i] = value;
        ir->values[ir->values[value].root].is_output = true;
    }
    return GD_OK;
}

gd_status gd_ir_make(gd_ir *ir, gd_context *context, const gd_ir_source *source)
{
    *ir = (gd_ir){ .context = context,
                   .random_words = source->random_words,
                   .memory_limit = source->memory_limit };
    context->generation++;
    for (int i = 0; i < source->input_count; i++) {
        gd_tensor *input = source->inputs[i];
        gd_ir_value *v = append(ir);
        if (!v)
            return GD_ERR_MEMORY;
        v->kind = GD_IR_INPUT;
        v->input = i;
        v->layout = input->layout;
        input->mark = context->generation;
        input->slot = (int64_t)ir->count - 1;
    }
    for (size_t i = 0; i < source->count; i++)
        if (convert_node(ir, source->nodes[i]) != GD_OK)
            return gd_error_last();
    return convert_outputs(ir, source);
}

void gd_ir_free(gd_ir *ir)
{
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_EXTERNAL)
            gd_unlink(ir->values[i].external);
    gd_free(ir->values);
    gd_free(ir->outputs);
    gd_arena_close(&ir->memory);
    *ir = (gd_ir){ 0 };
}

void gd_ir_count_users(gd_ir *ir)
{
    for (size_t i = 0; i < ir->count; i++)
        ir->values[i].users = 0;
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_OP)
            for (int k = 0; k < ir->values[i].n; k++)
                ir->values[ir->values[i].in[k]].users++;
}

gd_status gd_ir_users_make(gd_ir_users *users, const gd_ir *ir)
{
    size_t reads = 0;
    for (size_t i = 0; i < ir->count; i++)
        reads += ir->values[i].kind == GD_IR_OP ? (size_t)ir->values[i].n : 0;
    int32_t *first = gd_alloc_zero(ir->count + 2 + reads, sizeof(int32_t));
    *users = (gd_ir_users){ first, first ? first + ir->count + 2 : NULL };
    if (!first)
        return GD_ERR_MEMORY;
    /* first[i + 2] counts the readers of i, then, summed up, is where those of i + 1 begin; filling
     * moves first[i + 1] from the beginning of i's to their end. */
    for (size_t i = 0; i < ir->count; i++)
        for (int k = 0; ir->values[i].kind == GD_IR_OP && k < ir->values[i].n; k++)
            first[ir->values[i].in[k] + 2]++;
    for (size_t i = 2; i < ir->count + 2; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < ir->count; i++)
        for (int k = 0; ir->values[i].kind == GD_IR_OP && k < ir->values[i].n; k++)
            users->op[first[ir->values[i].in[k] + 1]++] = (int32_t)i;
    return GD_OK;
}

void gd_ir_users_free(gd_ir_users *users)
{
    gd_free(users->first);
    *users = (gd_ir_users){ 0 };
}

void gd_ir_find_assignments(gd_ir *ir, int32_t *until)
{
    uint64_t generation = ++ir->context->generation;
    for (size_t i = ir->count; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        until[i] = INT32_MAX;
        if (gd_ir_is_effect(v)) {
            gd_storage *storage = ir->values[v->in[0]].external->storage;
            storage->mark = generation;
            storage->trace_version = (int32_t)i;
        } else if (v->kind == GD_IR_EXTERNAL && v->external->storage->mark == generation) {
            until[i] = v->external->storage->trace_version;
        }
    }
}

bool gd_ir_may_sink(const gd_ir *ir, const int32_t *until, const gd_ir_value *v, int32_t to)
{
    for (int k = 0; k < v->n; k++)
        if (until[ir->values[v->in[k]].root] < to)
            return false;
    return true;
}

gd_status gd_ir_reorder(gd_ir *ir, const int32_t *order, size_t n)
{
    gd_ir_value *values = gd_alloc(sizeof(gd_ir_value) * (n + 1));
    int32_t *now = gd_alloc(sizeof(int32_t) * (ir->count + 1));
    if (!values || !now) {
        gd_free(values);
        gd_free(now);
        return GD_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        now[order[i]] = (int32_t)i;
        values[i] = ir->values[order[i]];
        ir->values[order[i]].external = NULL; /* its reference has moved */
    }
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_EXTERNAL)
            gd_unlink(ir->values[i].external);
    for (size_t i = 0; i < n; i++) {
        values[i].root = now[values[i].root];
        /* A removed value's operands may be those of what took its place. */
        for (int k = 0; values[i].kind != GD_IR_DEAD && k < values[i].n; k++)
            values[i].in[k] = now[values[i].in[k]];
    }
    for (size_t i = 0; i < ir->output_count; i++)
        ir->outputs[i] = now[ir->outputs[i]];
    gd_free(now);
    gd_free(ir->values);
    ir->values = values;
    ir->count = n;
    ir->capacity = n + 1;
    return GD_OK;
}
