/* compile/ir.c: from a trace to the IR, and the IR's upkeep. */
#include "compile/ir.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "compile/storages.h"
#include "compile/working_copy.h"

static gd_ir_value *append(gd_ir *ir)
{
    if (ir->count >= INT32_MAX ||
        !gd_grow((void **)&ir->values, &ir->capacity, ir->count + 1, sizeof(gd_ir_value)))
        return NULL;
    gd_ir_value *v = &ir->values[ir->count];
    memset(v, 0, sizeof *v);
    v->root = (int32_t)ir->count++;
    v->memory = -1;
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

int32_t gd_ir_push_external(gd_ir *ir, gd_tensor *t, int32_t memory)
{
    gd_ir_value *v = append(ir);
    if (!v)
        return -1;
    v->kind = GD_IR_EXTERNAL;
    v->external = gd_link(t);
    t->storage->is_pinned = true;
    v->layout = t->layout;
    v->memory = memory;
    v->requires_grad = t->requires_grad;
    return (int32_t)(ir->count - 1);
}

int32_t gd_ir_push_view(gd_ir *ir, int32_t of, const gd_layout *layout)
{
    gd_call_result_attr view;
    memset(&view, 0, sizeof view);
    view.layout = *layout;
    return gd_ir_push(ir, gd_op_row(GD_OP_call_result), 1, &of, &view, layout);
}

/* ---- from a trace. While it lasts, a tensor's slot is its value where its mark is the walk's
 * generation. ---- */

typedef struct conversion {
    gd_ir *ir;
    gd_storages outside; /* storages of tensors outside, by the number of their memory */
    int32_t *writes;     /* [outside.count] assignments to each so far */
    size_t capacity;
} conversion;

/* The number of a storage outside; -1: out of memory. */
static int32_t memory_of(conversion *c, const gd_storage *storage)
{
    const int32_t known = c->outside.count, memory = gd_storages_add(&c->outside, storage);
    if (memory < known)
        return memory;
    if (!gd_grow((void **)&c->writes, &c->capacity, (size_t)memory + 1, sizeof *c->writes))
        return -1;
    c->writes[memory] = 0;
    c->ir->memory_count = c->outside.count;
    return memory;
}

/* The value of a tensor that exists outside the trace, as of now. */
static int32_t external_value(conversion *c, gd_tensor *t)
{
    gd_ir *ir = c->ir;
    const bool is_known = t->mark == ir->context->generation;
    const int32_t memory = is_known ? ir->values[t->slot].memory : memory_of(c, t->storage);
    if (memory < 0)
        return -1;
    if (is_known && ir->values[t->slot].version == c->writes[memory])
        return (int32_t)t->slot;
    const int32_t value = gd_ir_push_external(ir, t, memory);
    if (value < 0)
        return -1;
    ir->values[value].version = c->writes[memory];
    t->mark = ir->context->generation;
    t->slot = value;
    return value;
}

static int32_t value_of(conversion *c, gd_tensor *t)
{
    if (t->storage)
        return external_value(c, t);
    if (t->mark == c->ir->context->generation)
        return (int32_t)t->slot;
    (void)gd_fail(GD_ERR_STATE, "gd_compile: the body uses a value of another trace");
    return -1;
}

/* A view of an external must not be read once its storage has been assigned to: eagerly it would
 * show the new contents. */
static gd_status check_stale(const conversion *c, int32_t value, const gd_op *reader)
{
    const gd_ir *ir = c->ir;
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    if (root->kind != GD_IR_EXTERNAL || !gd_ir_is_view(&ir->values[value]))
        return GD_OK;
    if (c->writes[root->memory] == root->version)
        return GD_OK;
    return gd_fail(GD_ERR_STATE,
                   "gd_compile: %s reads a view of a tensor that gd_assign has changed since the "
                   "view was made; make the view again",
                   reader->name);
}

static gd_status convert_node(conversion *c, gd_tensor *t)
{
    gd_ir *ir = c->ir;
    int32_t in[GD_OP_MAX_INPUTS];
    if (t->op->id == GD_OP_checkpoint) { /* its result is the block's; the rest was for its vjp */
        t->slot = value_of(c, t->inputs[0]);
        t->mark = ir->context->generation;
        return t->slot < 0 ? gd_error_last() : GD_OK;
    }
    /* A view's further operands are for its vjp; here they may have no value. */
    const bool is_plain = !(t->op->flags & GD_OP_VIEW) || t->n_inputs == 1;
    const int n = is_plain ? t->n_inputs : 1;
    for (int i = 0; i < n; i++) {
        in[i] = value_of(c, t->inputs[i]);
        if (in[i] < 0)
            return gd_error_last();
        if (check_stale(c, in[i], t->op) != GD_OK)
            return gd_error_last();
    }
    int32_t value = is_plain ? gd_ir_push(ir, t->op, n, in, t->attr, &t->layout)
                             : gd_ir_push_view(ir, in[0], &t->layout);
    if (value < 0)
        return GD_ERR_MEMORY;
    ir->values[value].region = t->region;
    t->mark = ir->context->generation;
    t->slot = value;
    if (t->op->id == GD_OP_assign)
        c->writes[gd_ir_memory(ir, in[0])]++;
    return GD_OK;
}

/* A result must have memory of its own: copy what lies in an input or a parameter, and what is
 * given twice. A view of a tensor that has been assigned to since shows, at the end, what is there
 * now. */
static int32_t output_value(conversion *c, gd_tensor *t)
{
    gd_ir *ir = c->ir;
    int32_t value = value_of(c, t);
    if (value < 0)
        return -1;
    const gd_ir_value *root = &ir->values[ir->values[value].root];
    if (root->kind == GD_IR_EXTERNAL && gd_ir_is_view(&ir->values[value])) {
        const gd_layout layout = ir->values[value].layout;
        const int32_t now = external_value(c, root->external);
        value = now < 0 ? -1 : gd_ir_push_view(ir, now, &layout);
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

static gd_status convert_outputs(conversion *c, const gd_ir_source *source)
{
    gd_ir *ir = c->ir;
    ir->output_count = source->output_count;
    ir->outputs = gd_alloc((ir->output_count + 1) * sizeof(int32_t));
    if (!ir->outputs)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->output_count; i++) {
        int32_t value = output_value(c, source->outputs[i]);
        if (value < 0)
            return gd_error_last();
        ir->outputs[i] = value;
        ir->values[ir->values[value].root].is_output = true;
    }
    return GD_OK;
}

static gd_status convert_input(gd_ir *ir, gd_tensor *input, int32_t number)
{
    gd_ir_value *v = append(ir);
    if (!v)
        return GD_ERR_MEMORY;
    v->kind = GD_IR_INPUT;
    v->input = number;
    v->layout = input->layout;
    input->mark = ir->context->generation;
    input->slot = (int64_t)ir->count - 1;
    return GD_OK;
}

gd_status gd_ir_make(gd_ir *ir, gd_context *context, const gd_ir_source *source)
{
    *ir = (gd_ir){ .context = context,
                   .random_words = source->random_words,
                   .options = source->options };
    conversion c = { .ir = ir };
    context->generation++;
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < source->input_count; i++)
        status = convert_input(ir, source->inputs[i], i);
    for (size_t i = 0; status == GD_OK && i < source->count; i++) {
        size_t first = ir->count;
        status = convert_node(&c, source->nodes[i]);
        for (; source->phases && first < ir->count; first++)
            ir->values[first].phase = source->phases[i];
    }
    if (status == GD_OK)
        status = convert_outputs(&c, source);
    gd_storages_free(&c.outside);
    gd_free(c.writes);
    return status;
}

void gd_ir_free(gd_ir *ir)
{
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_EXTERNAL)
            gd_unlink(ir->values[i].external);
    for (size_t i = 0; i < ir->copy_count; i++)
        gd_working_copy_drop(ir->copies[i].copy);
    gd_free(ir->copies);
    gd_free(ir->values);
    gd_free(ir->outputs);
    gd_arena_close(&ir->memory);
    *ir = (gd_ir){ 0 };
}

gd_status gd_ir_users_make(gd_ir_users *users, const gd_ir *ir, gd_arena *scratch)
{
    size_t reads = 0;
    for (size_t i = 0; i < ir->count; i++)
        reads += ir->values[i].kind == GD_IR_OP ? (size_t)ir->values[i].n : 0;
    int32_t *first = gd_arena_array(scratch, ir->count + 2 + reads, sizeof(int32_t));
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

void gd_ir_find_last_uses(const gd_ir *ir, int32_t *last_use)
{
    for (size_t i = 0; i < ir->count; i++)
        last_use[i] = (int32_t)i;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        for (int k = 0; v->kind == GD_IR_OP && !gd_ir_is_view(v) && k < v->n; k++)
            last_use[ir->values[v->in[k]].root] = (int32_t)i;
    }
}

int32_t *gd_ir_find_assignments(const gd_ir *ir, gd_arena *scratch)
{
    int32_t *overwritten_at = gd_arena_array(scratch, ir->count + 1, sizeof *overwritten_at);
    /* of each memory, the next assignment, in the walk up the program; 0: none */
    int32_t *next = gd_arena_array(scratch, (size_t)ir->memory_count + 1, sizeof *next);
    if (!overwritten_at || !next)
        return NULL;
    for (size_t i = ir->count; i-- > 0;) {
        const gd_ir_value *v = &ir->values[i];
        overwritten_at[i] = INT32_MAX;
        if (gd_ir_is_effect(v))
            next[gd_ir_memory(ir, v->in[0])] = (int32_t)i;
        else if (v->kind == GD_IR_EXTERNAL && next[v->memory])
            overwritten_at[i] = next[v->memory];
    }
    return overwritten_at;
}

bool gd_ir_may_sink(const gd_ir *ir, const int32_t *overwritten_at, const gd_ir_value *v,
                    int32_t to)
{
    for (int k = 0; k < v->n; k++)
        if (overwritten_at[ir->values[v->in[k]].root] < to)
            return false;
    return true;
}

void gd_ir_rename(gd_ir_value *v, const int32_t *replaced_by)
{
    for (int k = 0; k < v->n; k++)
        v->in[k] = replaced_by[v->in[k]];
    v->root = replaced_by[v->root];
}

void gd_ir_replace(gd_ir *ir, const int32_t *replaced_by)
{
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            gd_ir_rename(&ir->values[i], replaced_by);
    for (size_t i = 0; i < ir->output_count; i++)
        ir->outputs[i] = replaced_by[ir->outputs[i]];
}

gd_status gd_ir_remove_dead(gd_ir *ir)
{
    int32_t *order = gd_alloc((ir->count + 1) * sizeof *order);
    if (!order)
        return GD_ERR_MEMORY;
    size_t n = 0;
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD)
            order[n++] = (int32_t)i;
    gd_status status = n < ir->count ? gd_ir_reorder(ir, order, n) : GD_OK;
    gd_free(order);
    return status;
}

gd_status gd_ir_reorder(gd_ir *ir, const int32_t *order, size_t n)
{
    gd_ir_value *values = gd_alloc(sizeof(gd_ir_value) * (n + 1));
    int32_t *number = gd_alloc(sizeof(int32_t) * (ir->count + 1));
    if (!values || !number) {
        gd_free(values);
        gd_free(number);
        return GD_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        number[order[i]] = (int32_t)i;
        values[i] = ir->values[order[i]];
        ir->values[order[i]].external = NULL; /* its reference has moved */
    }
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_EXTERNAL)
            gd_unlink(ir->values[i].external);
    for (size_t i = 0; i < n; i++) {
        values[i].root = number[values[i].root];
        /* A removed value's operands may be those of what took its place. */
        for (int k = 0; values[i].kind != GD_IR_DEAD && k < values[i].n; k++)
            values[i].in[k] = number[values[i].in[k]];
    }
    for (size_t i = 0; i < ir->output_count; i++)
        ir->outputs[i] = number[ir->outputs[i]];
    gd_free(number);
    gd_free(ir->values);
    ir->values = values;
    ir->count = n;
    ir->capacity = n + 1;
    return GD_OK;
}
