/* ops/vmap.c: gd_vmap_begin … gd_vmap_end. What is done between them is recorded in a trace of its own,
 * on placeholders of one element's shape. At the end the record is applied, in its order and where it
 * is needed, to the whole batch: a node that depends on no batched input as it is, another by its
 * op's rule (ops/batch.c), or element by element. The results are ordinary tensors: eager, or nodes of
 * the trace around this one. Start at gd_vmap_end(). */
#include <gradus/vmap.h>

#include "base/memory.h"
#include "graph/trace.h"
#include "ops/batch.h"
#include "ops/internal.h"

/* What stands for a placeholder or a node: one tensor for all elements, or one for each. Both with a
 * reference. */
typedef struct value {
    gd_tensor *whole;     /* [size, ..] when batched; NULL: elements, or not computed */
    gd_tensor **elements; /* [size]; NULL: whole */
    int uses;             /* to come */
    bool is_batched;
    bool is_needed;
} value;

struct gd_vmap {
    gd_context *context;
    int64_t size;
    int count; /* of inputs */
    gd_tensor **inputs, **placeholders;
    bool *batched;
    gd_trace trace;
    gd_recording before;
    gd_scope *body_scope; /* as it was before */
    int call_depth;       /* of the body that it was begun in */
    uint64_t mark;        /* of errors */
    value *values;        /* [count + trace.count], once it is ended */
    gd_tensor *state;     /* of random numbers, as drawn for the batch */
    uint64_t first_word;  /* in it */
};

/* ---- begin ---- */

static gd_status check_inputs(int count, gd_tensor *const *inputs, const bool *batched,
                              int64_t *size)
{
    const char *who = "gd_vmap_begin";
    *size = -1;
    if (count < 1 || !inputs)
        return gd_fail(GD_ERR_INVALID, "%s: there are no inputs", who);
    for (int i = 0; i < count; i++) {
        if (!inputs[i])
            return gd_fail(GD_ERR_INVALID, "%s: input %d is NULL", who, i);
        if (!gd_usable(inputs[i], who))
            return GD_ERR_STATE;
        if (inputs[i]->context != inputs[0]->context)
            return gd_fail(GD_ERR_INVALID, "%s: inputs belong to different contexts", who);
        if (batched && !batched[i])
            continue;
        const gd_layout *layout = &inputs[i]->layout;
        if (layout->rank == 0)
            return gd_fail(GD_ERR_SHAPE, "%s: input %d is a number, which has no axis to map over",
                           who, i);
        if (*size >= 0 && layout->shape[0] != *size)
            return gd_fail(GD_ERR_SHAPE, "%s: input %d has %lld elements, others have %lld", who, i,
                           (long long)layout->shape[0], (long long)*size);
        *size = layout->shape[0];
    }
    if (*size < 0)
        return gd_fail(GD_ERR_INVALID, "%s: no input is batched", who);
    return gd_check_free(inputs[0]->context, who);
}

static void unlink_value(value *v, int64_t size)
{
    gd_unlink(v->whole);
    for (int64_t b = 0; v->elements && b < size; b++)
        gd_unlink(v->elements[b]);
    gd_free(v->elements);
    v->whole = NULL;
    v->elements = NULL;
}

static void destroy(void *object)
{
    gd_vmap *m = object;
    for (size_t i = 0; m->values && i < (size_t)m->count + m->trace.count; i++)
        unlink_value(&m->values[i], m->size);
    gd_trace_clear(&m->trace);
    for (int i = 0; i < m->count; i++) {
        gd_unlink(m->placeholders[i]);
        gd_unlink(m->inputs[i]);
    }
    gd_unlink(m->state);
    gd_free(m->values);
    gd_free(m->inputs);
    gd_free(m->placeholders);
    gd_free(m->batched);
    gd_free(m);
}

/* A value without storage that stands for an element of input i. */
static gd_tensor *placeholder(gd_vmap *m, int i)
{
    const gd_tensor *input = m->inputs[i];
    gd_tensor *t = gd_node_new(m->context, NULL, 0, NULL, NULL, false);
    if (!t)
        return NULL;
    gd_shape shape = gd_layout_shape(&input->layout);
    for (int k = 0; m->batched[i] && k + 1 < shape.rank; k++)
        shape.dim[k] = shape.dim[k + 1];
    shape.rank -= m->batched[i];
    (void)gd_layout_init(&t->layout, shape, input->layout.dtype, "gd_vmap_begin");
    t->requires_grad = input->requires_grad;
    t->trace = &m->trace;
    return gd_link(t);
}

static gd_vmap *make(int count, gd_tensor *const *inputs, const bool *batched, int64_t size)
{
    gd_vmap *m = gd_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->context = inputs[0]->context;
    m->size = size;
    m->inputs = gd_alloc_zero((size_t)count, sizeof *m->inputs);
    m->placeholders = gd_alloc_zero((size_t)count, sizeof *m->placeholders);
    m->batched = gd_alloc_zero((size_t)count, sizeof *m->batched);
    bool ok = m->inputs && m->placeholders && m->batched;
    for (int i = 0; ok && i < count; i++) {
        m->inputs[i] = gd_link(inputs[i]);
        m->batched[i] = !batched || batched[i];
        m->count++;
        m->placeholders[i] = placeholder(m, i);
        ok = m->placeholders[i];
    }
    if (ok && gd_context_adopt(m->context, m, destroy) == GD_OK)
        return m;
    destroy(m);
    return NULL;
}

gd_vmap *gd_vmap_begin(int count, gd_tensor *const *inputs, const bool *batched,
                       gd_tensor **elements)
{
    int64_t size;
    for (int i = 0; elements && i < count; i++)
        elements[i] = NULL;
    if (!elements)
        return gd_fail_null(GD_ERR_INVALID, "gd_vmap_begin: the array for the elements is NULL");
    if (check_inputs(count, inputs, batched, &size) != GD_OK)
        return NULL;
    gd_context *context = inputs[0]->context;
    if (gd_scope_begin(context) != GD_OK)
        return NULL;
    gd_vmap *m = make(count, inputs, batched, size);
    if (!m) {
        (void)gd_scope_end(context);
        return NULL;
    }
    m->body_scope = context->body_scope;
    m->before = gd_recording_now(context);
    m->mark = gd_error_mark();
    m->trace.outer = context->trace;
    m->call_depth = context->call_depth;
    context->body_scope = context->scope;
    gd_recording now = m->before;
    now.trace = &m->trace;
    now.paused_trace = NULL;
    now.trace_paused = 0;
    gd_recording_set(context, now);
    memcpy(elements, m->placeholders, sizeof(gd_tensor *) * (size_t)count);
    return m;
}

/* ---- what was recorded, and what stands for it ---- */

static size_t count_all(const gd_vmap *m)
{
    return (size_t)m->count + m->trace.count;
}

static gd_tensor *recorded(const gd_vmap *m, size_t i)
{
    return i < (size_t)m->count ? m->placeholders[i] : m->trace.nodes[i - (size_t)m->count];
}

/* The value of a tensor that was recorded, placeholders first, in the order of their ids; NULL for
 * one from outside. */
static value *find(const gd_vmap *m, const gd_tensor *t)
{
    if (t->trace != &m->trace)
        return NULL;
    size_t low = 0, high = count_all(m);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (recorded(m, middle)->id < t->id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count_all(m) && recorded(m, low) == t ? &m->values[low] : NULL;
}

/* A checkpointed block's node is a view of its result without a history; the result, with one, is
 * what that was detached from. The second run, if there is one, has been recorded. */
static const gd_tensor *of_checkpoint(const gd_tensor *node)
{
    return node->inputs[0]->inputs[0];
}

static void need(gd_vmap *m, const gd_tensor *t)
{
    value *v = find(m, t);
    if (v) {
        v->is_needed = true;
        v->uses++;
    }
}

/* Mark what the outputs and changes of tensors outside need, from the end on. */
static void mark_needed(gd_vmap *m, int count, gd_tensor *const *outputs)
{
    for (int i = 0; i < count; i++)
        need(m, outputs[i]);
    for (size_t i = count_all(m); i-- > (size_t)m->count;) {
        const gd_tensor *node = recorded(m, i);
        m->values[i].is_needed |= (node->op->flags & GD_OP_EFFECT) != 0;
        if (!m->values[i].is_needed)
            continue;
        if (node->op->id == GD_OP_checkpoint)
            need(m, of_checkpoint(node));
        for (int k = 0; node->op->id != GD_OP_checkpoint && k < node->n_inputs; k++)
            need(m, node->inputs[k]);
    }
}

/* ---- values ---- */

/* The whole of a value: its elements are stacked when somebody asks, with their history, whether he
 * wants one or not. */
static gd_tensor *whole_of(const gd_vmap *m, value *v)
{
    if (v->whole || !v->elements)
        return v->whole;
    const gd_recording now = gd_recording_now(m->context);
    gd_recording_set(m->context, m->before);
    v->whole = gd_link(gd_stack((int)m->size, v->elements, 0));
    gd_recording_set(m->context, now);
    return v->whole;
}

/* Element b of operand i of a node; as contiguous as it was recorded. */
static gd_tensor *element_of(const gd_batch_call *c, value *const *values, int i, int64_t b)
{
    if (!c->batched[i])
        return c->in[i];
    gd_tensor *t = values[i]->elements ? values[i]->elements[b] : gd_select(values[i]->whole, 0, b);
    return t ? gd_contiguous(t) : NULL;
}

/* ---- applying a node ---- */

/* A node of which nothing is batched. */
static gd_tensor *apply_once(const gd_batch_call *c)
{
    if (c->node->op->flags & GD_OP_EFFECT)
        return gd_assign(c->in[0], c->in[1]);
    return gd_apply(c->context, c->node->op->id, c->n, c->in, c->attr);
}

typedef union random_attr {
    gd_random_attr bits;
    gd_dropout_attr dropout;
    gd_attention_attr attention;
} random_attr;

/* Where the record of a node's numbers begins; false: it draws none. */
static bool recorded_word(const gd_tensor *node, uint64_t *word)
{
    random_attr attr;
    if (!node->op->random_offset)
        return false;
    memcpy(&attr, node->attr, node->op->attr_size);
    const uint64_t *offset = node->op->random_offset(&attr);
    *word = offset ? *offset : 0;
    return offset;
}

/* Words that a node drew: up to where those of the next one begin. */
static uint64_t words_of(const gd_vmap *m, const gd_tensor *node)
{
    uint64_t begin, end = m->trace.random_words, at;
    if (!recorded_word(node, &begin))
        return 0;
    for (size_t i = 0; i < m->trace.count; i++)
        if (recorded_word(m->trace.nodes[i], &at) && at > begin && at < end)
            end = at;
    return end - begin;
}

static bool apply_to_each(const gd_vmap *m, const gd_batch_call *c, value *const *values,
                          value *result)
{
    result->elements = gd_alloc_zero((size_t)m->size, sizeof(gd_tensor *));
    if (!result->elements)
        return false;
    random_attr attr; /* each has numbers of its own */
    const gd_op *op = c->node->op;
    uint64_t *offset = NULL, words = 0;
    if (op->random_offset) {
        memcpy(&attr, c->attr, op->attr_size);
        offset = op->random_offset(&attr);
        words = words_of(m, c->node);
    }
    for (int64_t b = 0; b < m->size; b++) {
        gd_tensor *in[GD_OP_MAX_INPUTS];
        for (int i = 0; i < c->n; i++)
            if (!(in[i] = element_of(c, values, i, b)))
                return false;
        gd_tensor *t = gd_apply(c->context, op->id, c->n, in, offset ? (void *)&attr : c->attr);
        if (!t)
            return false;
        if (offset)
            *offset += words;
        result->elements[b] = gd_link(t);
    }
    return true;
}

static gd_tensor *apply_to_all(gd_batch_call *c, const gd_vmap *m, value *const *values)
{
    for (int i = 0; i < c->n; i++)
        if (c->batched[i] && !(c->in[i] = whole_of(m, values[i])))
            return NULL;
    if (m->size == 0) {
        gd_shape shape = { .rank = 1 };
        for (int i = 0; i < c->node->layout.rank && shape.rank < GD_MAX_RANK; i++)
            shape.dim[shape.rank++] = c->node->layout.shape[i];
        return gd_zeros(c->context, shape, c->node->layout.dtype);
    }
    return gd_batch_apply(c);
}

/* The operands of a node: values of this map, or tensors from outside. */
static gd_status read_operands(const gd_vmap *m, gd_batch_call *c, value **values)
{
    for (int i = 0; i < c->n; i++) {
        gd_tensor *t = c->node->inputs[i];
        values[i] = find(m, t);
        c->batched[i] = values[i] && values[i]->is_batched;
        c->in[i] = values[i] ? values[i]->whole : t == m->context->random_state ? m->state : t;
        if (!c->in[i] && !c->batched[i])
            return gd_fail(GD_ERR_STATE,
                           "gd_vmap_end: gd_%s: operand %d is a value of a map that "
                           "has ended",
                           c->node->op->name, i);
    }
    return GD_OK;
}

static gd_status apply_node(const gd_vmap *m, gd_batch_call *c, value *result)
{
    value *values[GD_OP_MAX_INPUTS];
    if (read_operands(m, c, values) != GD_OK)
        return GD_ERR_STATE;
    for (int i = 0; i < c->n; i++)
        result->is_batched |= c->batched[i];
    if (result->is_batched && (c->node->op->flags & GD_OP_EFFECT))
        return gd_fail(GD_ERR_STATE,
                       "gd_vmap_end: a tensor from outside is changed by what differs from element "
                       "to element: gd_assign, gd_backward, an optimizer or running statistics");
    if (!result->is_batched)
        result->whole = gd_link(apply_once(c));
    else if (m->size == 0 || gd_batch_has_rule(c))
        result->whole = gd_link(apply_to_all(c, m, values));
    else
        return apply_to_each(m, c, values, result) ? GD_OK : gd_error_last();
    return result->whole ? GD_OK : gd_error_last();
}

/* What had no history when it was recorded gets none. */
static gd_status cut_history(const gd_vmap *m, value *v)
{
    for (int64_t b = 0; b < (v->elements ? m->size : 1); b++) {
        gd_tensor **place = v->elements ? &v->elements[b] : &v->whole;
        if (!(*place)->requires_grad)
            continue;
        gd_tensor *cut = gd_link(gd_detach(*place));
        if (!cut)
            return gd_error_last();
        gd_unlink(*place);
        *place = cut;
    }
    return GD_OK;
}

static gd_status apply_recorded(gd_vmap *m, const gd_tensor *node, value *result)
{
    gd_context *context = m->context;
    if (node->op->id == GD_OP_checkpoint) {
        const value *block = find(m, of_checkpoint(node));
        result->is_batched = block->is_batched;
        result->whole = gd_link(whole_of(m, find(m, of_checkpoint(node))));
        return result->whole ? GD_OK : gd_error_last();
    }
    random_attr attr;
    memset(&attr, 0, sizeof attr);
    gd_batch_call c = {
        .context = context, .node = node, .attr = node->attr, .size = m->size, .n = node->n_inputs
    };
    uint64_t *offset = NULL;
    if (node->op->random_offset) {
        memcpy(&attr, node->attr, node->op->attr_size);
        offset = node->op->random_offset(&attr);
    }
    /* What the record drew at word n, the elements draw from word n * size on, each its own. */
    if (offset) {
        *offset = m->first_word + *offset * (uint64_t)m->size;
        c.attr = &attr;
        result->is_batched = true;
    }
    const bool has_history = node->requires_grad && !node->is_marked;
    const gd_recording before = gd_recording_now(context);
    context->no_grad += !has_history;
    context->autocast = 0;
    context->region = node->region ? node->region : before.region;
    gd_status status = apply_node(m, &c, result);
    gd_recording_set(context, before);
    if (status == GD_OK && !has_history && !(node->op->flags & GD_OP_EFFECT))
        status = cut_history(m, result);
    return status;
}

/* Let go of operands that nobody else reads. */
static void drop_operand(const gd_vmap *m, const gd_tensor *t)
{
    value *v = find(m, t);
    if (v && --v->uses == 0)
        unlink_value(v, m->size);
}

static gd_status apply_all(gd_vmap *m)
{
    for (int i = 0; i < m->count; i++) {
        /* What stands for it was contiguous, and so is what was recorded. */
        m->values[i].whole = gd_link(m->batched[i] ? m->inputs[i] : gd_contiguous(m->inputs[i]));
        m->values[i].is_batched = m->batched[i];
        if (!m->values[i].whole)
            return gd_error_last();
    }
    for (size_t i = (size_t)m->count; i < count_all(m); i++) {
        const gd_tensor *node = recorded(m, i);
        if (!m->values[i].is_needed)
            continue;
        if (gd_scope_begin(m->context) != GD_OK)
            return GD_ERR_MEMORY;
        const gd_status status = apply_recorded(m, node, &m->values[i]);
        (void)gd_scope_end(m->context);
        if (status != GD_OK)
            return status;
        const bool is_checkpoint = node->op->id == GD_OP_checkpoint;
        if (is_checkpoint)
            drop_operand(m, of_checkpoint(node));
        for (int k = 0; !is_checkpoint && k < node->n_inputs; k++)
            drop_operand(m, node->inputs[k]);
    }
    return GD_OK;
}

/* ---- end ---- */

/* Words of the stream for all that was drawn, for each element. */
static gd_status draw(gd_vmap *m)
{
    gd_context *context = m->context;
    const uint64_t words = m->trace.random_words * (uint64_t)m->size;
    if (m->trace.random_words == 0)
        return GD_OK;
    if (context->trace) {
        m->first_word = context->trace->random_words;
        context->trace->random_words += words;
        m->state = gd_link(context->random_state);
        return GD_OK;
    }
    const int64_t state[2] = { (int64_t)context->random_seed, (int64_t)context->random_position };
    m->state = gd_link(gd_from_host(context, GD_SHAPE(2), GD_I64, state));
    context->random_position += words;
    return m->state ? GD_OK : gd_error_last();
}

static gd_tensor *result_of(gd_vmap *m, gd_tensor *output)
{
    value *v = find(m, output);
    if (!v && output->trace == &m->trace)
        return gd_fail_null(GD_ERR_STATE, "gd_vmap_end: an output is of a map that has ended");
    gd_tensor *t = v ? whole_of(m, v) : output;
    if (!t || (v && v->is_batched))
        return t;
    if (t->layout.rank == GD_MAX_RANK)
        return gd_fail_null(GD_ERR_SHAPE, "gd_vmap_end: the rank would pass %d", GD_MAX_RANK);
    gd_shape shape = { .rank = t->layout.rank + 1, .dim = { m->size } };
    for (int i = 0; i < t->layout.rank; i++)
        shape.dim[i + 1] = t->layout.shape[i];
    return gd_as_shape(t, shape);
}

/* Scopes that were left open are ended, but the map's own; and all is recorded as before. */
static void close_record(gd_vmap *m)
{
    gd_context *context = m->context;
    while (context->scope != context->body_scope)
        (void)gd_scope_end(context);
    context->body_scope = m->body_scope;
    gd_recording_set(context, m->before);
}

static gd_status check_open(const gd_vmap *m, const char *who)
{
    if (!m)
        return gd_fail(GD_ERR_INVALID, "%s: the map is NULL", who);
    if (m->context->trace != &m->trace || m->context->call_depth != m->call_depth)
        return gd_fail(GD_ERR_STATE, "%s: tracing is paused, or another map or function is open",
                       who);
    return GD_OK;
}

static gd_status check_outputs(const gd_vmap *m, int count, gd_tensor *const *outputs,
                               gd_tensor *const *results)
{
    gd_status status = gd_error_since(m->mark);
    if (status == GD_OK && (count < 1 || !outputs || !results))
        status = gd_fail(GD_ERR_INVALID, "gd_vmap_end: there are no outputs");
    if (status == GD_OK && m->trace.failed)
        status = gd_fail(GD_ERR_MEMORY, "gd_vmap_end: no memory to record what was done");
    for (int i = 0; status == GD_OK && i < count; i++) {
        if (!outputs[i])
            status = gd_fail(GD_ERR_INVALID, "gd_vmap_end: output %d is NULL", i);
        else if (!gd_usable(outputs[i], "gd_vmap_end"))
            status = GD_ERR_STATE;
        else if (outputs[i]->context != m->context)
            status = gd_fail(GD_ERR_INVALID, "gd_vmap_end: output %d is of another context", i);
    }
    return status;
}

/* results[i], each with a reference. */
static gd_status compute(gd_vmap *m, int count, gd_tensor *const *outputs, gd_tensor **results)
{
    m->values = gd_alloc_zero(count_all(m) + 1, sizeof *m->values);
    if (!m->values)
        return GD_ERR_MEMORY;
    mark_needed(m, count, outputs);
    gd_status status = draw(m);
    if (status == GD_OK)
        status = apply_all(m);
    for (int i = 0; status == GD_OK && i < count; i++) {
        results[i] = gd_retain(result_of(m, outputs[i]));
        status = results[i] ? GD_OK : gd_error_last();
    }
    return status;
}

/* End the map and its scope. */
static void release(gd_vmap *m)
{
    gd_context *context = m->context;
    gd_context_disown(context, m);
    destroy(m);
    (void)gd_scope_end(context);
}

gd_status gd_vmap_end(gd_vmap *m, int count, gd_tensor *const *outputs, gd_tensor **results)
{
    for (int i = 0; results && i < count; i++)
        results[i] = NULL;
    if (check_open(m, "gd_vmap_end") != GD_OK)
        return gd_error_last();
    gd_use use;
    if (gd_use_begin(&use, m->context, "gd_vmap_end") != GD_OK)
        return GD_ERR_STATE;
    gd_status status = check_outputs(m, count, outputs, results);
    close_record(m);
    if (status == GD_OK)
        status = compute(m, count, outputs, results);
    release(m);
    gd_use_end(&use);
    for (int i = 0; results && i < count; i++) {
        if (status == GD_OK)
            (void)gd_scope_adopt(results[i]);
        else
            gd_release(results[i]);
        if (status != GD_OK)
            results[i] = NULL;
    }
    return status;
}

gd_status gd_vmap_abandon(gd_vmap *m)
{
    if (!m)
        return GD_OK;
    if (check_open(m, "gd_vmap_abandon") != GD_OK)
        return GD_ERR_STATE;
    close_record(m);
    release(m);
    return GD_OK;
}
