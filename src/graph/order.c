/* graph/order.c: topological order of the graph behind some tensors, by depth-first search with a
 * stack of our own. */
#include "graph/autograd.h"
#include "graph/context.h"
#include "graph/node.h"

#include "base/memory.h"

typedef struct frame {
    gd_tensor *node;
    int next; /* input to look at next */
} frame;

typedef struct stack {
    frame *frames;
    size_t count, capacity;
} stack;

static bool stops_at(const gd_order_limits *limits, const gd_tensor *t)
{
    bool stops = t->id < limits->first_id;
    for (int i = 0; !stops && i < limits->stop_count; i++)
        stops = limits->stops[i] == t;
    return stops;
}

/* First visit: push, unless it was visited in this walk or is left out. */
static bool enter(stack *s, gd_tensor *t, uint64_t generation, const gd_order_limits *limits)
{
    if (t->mark == generation || (limits->grad_only && !t->requires_grad))
        return true;
    if (!gd_grow((void **)&s->frames, &s->capacity, s->count + 1, sizeof(frame)))
        return false;
    t->mark = generation;
    s->frames[s->count++] = (frame){ t, stops_at(limits, t) ? t->n_inputs : 0 };
    return true;
}

static bool leave(gd_order *order, gd_tensor *t)
{
    if (!gd_grow((void **)&order->nodes, &order->capacity, order->count + 1, sizeof(gd_tensor *)))
        return false;
    t->slot = (int64_t)order->count;
    order->nodes[order->count++] = t;
    return true;
}

static bool walk(gd_order *order, stack *s, uint64_t generation, const gd_order_limits *limits)
{
    while (s->count) {
        frame *top = &s->frames[s->count - 1];
        if (top->next < top->node->n_inputs) {
            gd_tensor *input = top->node->inputs[top->next++];
            if (!enter(s, input, generation, limits))
                return false;
        } else {
            gd_tensor *done = top->node;
            s->count--;
            if (!leave(order, done))
                return false;
        }
    }
    return true;
}

gd_status gd_order_make(gd_order *order, gd_context *context, gd_tensor *const *roots, int count,
                        const gd_order_limits *limits)
{
    static const gd_order_limits none = { 0 };
    limits = limits ? limits : &none;
    *order = (gd_order){ 0 };
    stack s = { 0 };
    uint64_t generation = ++context->generation;
    bool ok = true;
    for (int i = 0; ok && i < count; i++)
        ok = enter(&s, roots[i], generation, limits) && walk(order, &s, generation, limits);
    gd_free(s.frames);
    if (!ok) {
        gd_order_free(order);
        return GD_ERR_MEMORY;
    }
    return GD_OK;
}

void gd_order_free(gd_order *order)
{
    gd_free(order->nodes);
    *order = (gd_order){ 0 };
}
