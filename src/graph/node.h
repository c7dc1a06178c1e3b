/* graph/node.h: the tensor handle, which is also the graph node, and its storage. Start at struct
 * gd_tensor. The context that owns them is context.h; ops are applied by apply.h, differentiated by
 * autograd.h and recorded by trace.h.
 *
 * References. A tensor lives while anything counts on it: the scope it was made in (one reference,
 * while scope is not NULL), the user (gd_retain), nodes it is an input of, a trace. Storage is
 * counted separately and shared by views.
 *
 * Handles. A handle that was released, or whose scope has ended, is recognised: see
 * gd_is_alive() and graph/slots.c. Functions of the public API that look into a tensor ask
 * gd_usable() first; gd_apply asks for all its operands.
 */
#ifndef GD_GRAPH_NODE_H
#define GD_GRAPH_NODE_H

#include <gradus/tensor.h>

#include "base/poison.h"
#include "graph/op.h"
#include "tensor/pool.h"

typedef struct gd_storage {
    int64_t refs;
    uint32_t version; /* raised by every write after creation */
    void *data;
    size_t bytes;
    gd_pool_block *block; /* NULL when the memory is not the pool's */
    void (*release)(void *user);
    void *user;
    bool is_target;  /* a plan has been made that assigns to it */
    bool is_pinned;  /* a plan or the user knows its address */
    bool is_exposed; /* others know its address, and may write there without raising the version */
    struct gd_working_copy *copies; /* of what lies in it, in 16 bits (compile/working_copy.h) */
} gd_storage;

typedef struct gd_scope gd_scope;
typedef struct gd_trace gd_trace;

struct gd_tensor {
    uintptr_t alive;     /* gd_alive_word() of its own address; 0 when it has ended */
    uint32_t size_class; /* see graph/slots.c */
    int32_t retained;    /* references that gd_release may give back */
    gd_context *context;
    const gd_op *op;     /* what made it; NULL for a leaf */
    gd_storage *storage; /* NULL while it is only traced */
    gd_tensor **inputs;  /* [n_inputs], in this node's own block; each holds a reference */
    uint32_t *versions;  /* [n_inputs] storage version of each input when read */
    const void *attr; /* op->attr_size bytes, in this node's own block; NULL when there is none */
    gd_tensor *grad;  /* accumulated by gd_backward; of leaves, and where keeps_grad is set */
    gd_scope *scope;  /* the scope it is a temporary of; NULL for a kept one without */
    gd_tensor *scope_before, *scope_after;
    const gd_trace *trace; /* the trace that recorded it */
    char *name;            /* a gd_name's text, or NULL */
    uint64_t id;           /* order of creation within the context */
    uint64_t mark;         /* visited, when equal to the walk's generation */
    int64_t slot;          /* place in the walk's arrays */
    int64_t refs;          /* those and all others */
    int32_t n_inputs;
    uint32_t version; /* storage version when made */
    uint32_t region;  /* the context's when made: equal ops of different regions stay apart */
    bool requires_grad;
    bool wanted;     /* the walk that marked it needs its gradient */
    bool replaced;   /* changed in place: another tensor stands for the new value */
    bool is_marked;  /* traced, without a history, and made a leaf by gd_set_requires_grad */
    bool keeps_grad; /* gd_retain_grad: gd_backward accumulates `grad`, though it is no leaf */
    bool is_dropped; /* was the gradient of a tensor that has dropped it: plans that read it or add
                        to it are made again */
    uint8_t mapped;  /* a gd_map_access, between gd_tensor_map and gd_tensor_unmap; else 0 */
    _Atomic int32_t later; /* references given back by gd_release_later, not yet taken off */
    gd_layout layout;
    gd_tensor *next_later; /* in the context's list, where `later` is not 0 */
};

struct gd_scope {
    gd_scope *parent;
    gd_tensor *first; /* temporaries, newest first */
};

/* ---- nodes: graph/node.c ---- */

/* A node with room for n inputs and op's attribute, one reference held by the innermost scope.
 * inputs are retained and linked when `link`; attr is copied. layout is left to the caller. NULL:
 * out of memory. */
gd_tensor *gd_node_new(gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                       const void *attr, bool link);
/* Storage from the pool, with one reference. */
gd_storage *gd_storage_new(gd_context *context, size_t bytes);
/* Storage over memory of somebody else's. */
gd_storage *gd_storage_wrap(gd_context *context, void *data, size_t bytes,
                            void (*release)(void *user), void *user);
void gd_storage_drop(gd_context *context, gd_storage *storage);
/* A leaf over storage (whose reference it takes over). */
gd_tensor *gd_leaf_new(gd_context *context, const gd_layout *layout, gd_storage *storage);

/* A reference that the graph has, and gives back itself: not the user's, as gd_retain's are. */
static inline gd_tensor *gd_link(gd_tensor *t)
{
    if (t)
        t->refs++;
    return t;
}
void gd_unlink(gd_tensor *t); /* NULL is fine */
/* End a temporary before its scope does: one that nobody else has seen. */
void gd_discard(gd_tensor *t);

/* End a tensor's name. */
void gd_name_free(char *name); /* NULL is fine */

/* ---- handles: graph/slots.c ---- */

/* What a node at this address has in `alive`: nothing that a node, a pointer or a number would have
 * there by chance. */
static inline uintptr_t gd_alive_word(const gd_tensor *t)
{
    return (uintptr_t)t ^ (uintptr_t)0x9e3779b97f4a7c15u;
}

/* Whether the handle's tensor has not ended. What was once a handle of an open context may be
 * asked. */
#ifdef GD_UNCHECKED
bool gd_is_alive(const gd_tensor *t);
#else
static inline bool gd_is_alive(const gd_tensor *t)
{
    return t->alive == gd_alive_word(t);
}
#endif

/* GD_ERR_STATE: `what` ("operand 1") was released, or the scope it was made in has ended. */
gd_status gd_fail_ended(const char *who, const char *what);
/* Whether a function of the public API may look into t. false for NULL, in silence, and with
 * GD_ERR_STATE for a handle that was released or whose scope has ended. `who` is the function. */
static inline bool gd_usable(const gd_tensor *t, const char *who)
{
    if (!t)
        return false;
    if (gd_is_alive(t))
        return true;
    (void)gd_fail_ended(who, "the tensor");
    return false;
}
/* The same for operand i of an op. */
void gd_fail_operand_ended(gd_op_id id, int i);
static inline bool gd_operand_usable(gd_op_id id, int i, const gd_tensor *t)
{
    if (!t || gd_is_alive(t))
        return t;
    gd_fail_operand_ended(id, i);
    return false;
}
/* Whether none of several tensors, of which those that are NULL were left out, has ended. */
bool gd_none_ended(const char *who, int count, gd_tensor *const *tensors);
#define GD_NONE_ENDED(who, ...)                                                             \
    gd_none_ended(who, (int)(sizeof((gd_tensor *[]){ __VA_ARGS__ }) / sizeof(gd_tensor *)), \
                  (gd_tensor *[]){ __VA_ARGS__ })

/* Uninitialised memory for a node of `bytes`, and what its `size_class` is to be. NULL: out of
 * memory. */
gd_tensor *gd_slot_take(gd_context *context, size_t bytes, uint32_t *node_class);
void gd_slot_give(gd_context *context, gd_tensor *t);
/* Every tensor that is alive, in no order. */
void gd_each_alive(const gd_context *context, void (*visit)(void *user, const gd_tensor *t),
                   void *user);

/* ---- scopes: graph/node.c ---- */

/* Hand the caller's reference to the innermost scope. Returns t. */
gd_tensor *gd_scope_adopt(gd_tensor *t);
/* The other way: the reference the scope had is the caller's. */
void gd_scope_leave(gd_tensor *t);

/* Whether a history begins with t. While tracing, nodes have inputs that eagerly have none. */
static inline bool gd_is_leaf(const gd_tensor *t)
{
    return t->n_inputs == 0 || t->is_marked;
}

/* Address of element 0. */
static inline void *gd_node_data(const gd_tensor *t)
{
    return (char *)t->storage->data + t->layout.offset * (int64_t)gd_dtype_size(t->layout.dtype);
}

/* ---- values: graph/context.c, graph/values.c ---- */

/* GD_ERR_STATE where the host cannot have t's value: it is only traced, or a trace is going on. */
gd_status gd_check_value(const gd_tensor *t, const char *who);
/* Free the buffers that wait for a tensor to be mapped; and, for gd_close, those of tensors that
 * still are. */
void gd_mappings_trim(gd_context *context);
void gd_mappings_free(gd_context *context);

/* The log's warning of tensors that were retained and never released: graph/alive.c. */
void gd_warn_leaks(const gd_context *context);
/* Has the error recorded since the mark, that memory is out, tell what the device has left and which
 * tensor holds most: graph/alive.c. */
void gd_tell_largest(const gd_context *context, uint64_t mark);

#endif
