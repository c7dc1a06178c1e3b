/* ops/batch.h: how an op acts on all elements of a batch at once, for gd_vmap_begin (ops/vmap.c). */
#ifndef GD_OPS_BATCH_H
#define GD_OPS_BATCH_H

#include "graph/node.h"

/* A node that was recorded for one element of the batch, and what it is to be applied to: operands
 * of which those that are batched have an axis of `size` in front, and the others stand for all
 * elements. At least one is batched, or the op draws random numbers. */
typedef struct gd_batch_call {
    gd_context *context;
    const gd_tensor *node;
    const void *attr; /* the node's, but for the place in the stream of random numbers */
    int64_t size;
    int n;
    gd_tensor *in[GD_OP_MAX_INPUTS];
    bool batched[GD_OP_MAX_INPUTS];
} gd_batch_call;

/* Whether the op has a rule that takes these operands; otherwise it is applied element by element.
 */
bool gd_batch_has_rule(const gd_batch_call *call);
/* The node's result for all elements, with the batch's axis in front; of `attention` the packed
 * result for all of them, which only attention_result and attention_grad read. NULL on an error. */
gd_tensor *gd_batch_apply(const gd_batch_call *call);

#endif
