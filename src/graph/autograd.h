/* graph/autograd.h: walks through the graph, for vjp functions and for what differentiates a part of
 * it. */
#ifndef GD_GRAPH_AUTOGRAD_H
#define GD_GRAPH_AUTOGRAD_H

#include "graph/context.h"

/* Whether the walk in progress (gd_backward, gd_grad) needs the gradient of t: for vjp functions.
 */
static inline bool gd_wants_grad(const gd_tensor *t)
{
    return t->mark == t->context->generation && t->wanted;
}

/* Where a walk through the graph does not go on. All zero: nowhere. */
typedef struct gd_order_limits {
    bool grad_only;          /* leave out nodes that require no gradient */
    gd_tensor *const *stops; /* [stop_count] do not go below these, */
    int stop_count;
    uint64_t first_id; /* nor below nodes that are older than this */
} gd_order_limits;

/* Gradients of sum(output * seed), summed over outputs, by targets that lie in the graph behind
 * them, which is taken to end where the limits say (grad_only is theirs in any case): for vjp
 * functions that differentiate a graph of their own. A target no output depends on gets NULL. */
gd_status gd_grad_within(gd_tensor *const *outputs, gd_tensor *const *seeds, int output_count,
                         const gd_order_limits *limits, gd_tensor *const *targets,
                         gd_tensor **gradients, int target_count);

/* An entry for the list of gradients of the results of a GD_OP_SEVERAL op: g is that of `result`,
 * one of its views; the entry's inputs are g and the entry before it, if any. For such views' vjp.
 */
gd_tensor *gd_link_gradient(gd_tensor *result, gd_tensor *g, gd_tensor *before);

/* ---- order: graph/order.c ---- */

typedef struct gd_order {
    gd_tensor **nodes; /* [count] inputs before users */
    size_t count, capacity;
} gd_order;

/* Depth-first, iterative. Each node's slot is its index. Free with gd_order_free. */
gd_status gd_order_make(gd_order *order, gd_context *context, gd_tensor *const *roots, int count,
                        const gd_order_limits *limits);
void gd_order_free(gd_order *order);

#endif
