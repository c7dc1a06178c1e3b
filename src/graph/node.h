/* graph/node.h: the tensor handle, which is also the graph node, and the context that owns it.
 * Start at struct gd_tensor.
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

#include "backend/backend.h"
#include "base/arena.h"
#include "base/poison.h"
#include "base/text.h"
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
    bool is_target; /* a plan has been made that assigns to it */
    bool is_pinned; /* a plan or the user knows its address */
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
    gd_tensor *grad;  /* accumulated by gd_backward; leaves only */
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
    bool wanted;    /* the walk that marked it needs its gradient */
    bool replaced;  /* changed in place: another tensor stands for the new value */
    bool is_marked; /* traced, without a history, and made a leaf by gd_set_requires_grad */
    gd_layout layout;
};

struct gd_scope {
    gd_scope *parent;
    gd_tensor *first; /* temporaries, newest first */
};

/* The memory of nodes: graph/slots.c. */
#define GD_NODE_CLASSES 56
typedef struct gd_node_batch gd_node_batch;
typedef struct gd_node_slots {
    gd_tensor *free[GD_NODE_CLASSES]; /* where the next node of a class is made */
    gd_node_batch *batches;           /* all slots there are */
} gd_node_slots;

typedef struct gd_owned {
    void *object;
    void (*destroy)(void *object);
} gd_owned;

/* An object that nodes point to, destroyed with the context unless they let go of it before. */
typedef struct gd_late {
    struct gd_late *before, *after;
    void (*destroy)(struct gd_late *object);
} gd_late;

/* What gd_output was given in the body of a function that is called eagerly. */
typedef struct gd_eager_outputs {
    gd_tensor **list;
    size_t count, capacity;
    bool failed;
} gd_eager_outputs;

/* A tensor's name. The context has them in a list, to free those of tensors that outlive it. */
typedef struct gd_name {
    struct gd_name *next, **link; /* link: what points at this one */
    char text[32];
} gd_name;
void gd_name_free(char *name); /* NULL is fine */

struct gd_context {
    gd_device *device;
    gd_pool *pool;
    gd_arena slabs;
    gd_node_slots nodes;
    void *free_storages, *free_scopes; /* each begins with the next */
    gd_scope root;
    gd_scope *scope; /* innermost */
    gd_scope *floor; /* the one a function's body began in, which it may not end; NULL: in none */
    int within;      /* bodies being run, one within the other */
    gd_trace *trace; /* being recorded; NULL in eager execution */
    int trace_paused;
    gd_trace *paused_trace;
    gd_eager_outputs *outputs; /* of the innermost eager call; NULL outside of any */
    int no_grad;
    const gd_tensor *differentiating; /* the node whose vjp is being built */
    int recomputing; /* inside a checkpointed block that is run again: effects are not repeated */
    uint32_t
        region; /* given to nodes made now: 0, or the number of the second run they belong to */
    uint32_t regions; /* second runs so far */
    uint64_t next_id;
    uint64_t generation; /* of the walk in progress */
    size_t live_tensors;
    bool warn_leaks;         /* gd_close tells of tensors that were retained and not released */
    gd_tensor *random_state; /* i64 [2]: seed and position, as kernels read them */
    uint64_t random_seed, random_position; /* the truth; the position of the next unused word */
    gd_owned *owned;
    size_t owned_count, owned_capacity;
    gd_late *late;          /* destroyed last of all */
    gd_name *names;         /* of tensors */
    uint64_t grad_switches; /* calls of gd_set_requires_grad that changed something */
};

/* Whether and where ops are recorded, and whether they get a history. Code that changes this for a
 * while saves and restores it as one value. */
typedef struct gd_recording {
    gd_trace *trace, *paused_trace;
    int trace_paused, no_grad, recomputing;
    uint32_t region;
    const gd_tensor *differentiating;
} gd_recording;

static inline gd_recording gd_recording_now(const gd_context *c)
{
    return (gd_recording){ .trace = c->trace,
                           .paused_trace = c->paused_trace,
                           .trace_paused = c->trace_paused,
                           .no_grad = c->no_grad,
                           .recomputing = c->recomputing,
                           .region = c->region,
                           .differentiating = c->differentiating };
}

static inline void gd_recording_set(gd_context *c, gd_recording r)
{
    c->trace = r.trace;
    c->paused_trace = r.paused_trace;
    c->trace_paused = r.trace_paused;
    c->no_grad = r.no_grad;
    c->recomputing = r.recomputing;
    c->region = r.region;
    c->differentiating = r.differentiating;
}

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

/* ---- handles: graph/slots.c ---- */

/* What a node at this address has in `alive`: nothing that a node, a pointer or a number would have
 * there by chance. */
static inline uintptr_t gd_alive_word(const gd_tensor *t)
{
    return (uintptr_t)t ^ (uintptr_t)0x9e3779b97f4a7c15u;
}

/* Whether the handle's tensor has not ended. What was once a handle of an open context may be
 * asked. */
#ifdef GD_POISONING
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

/* Close every scope and release the root's temporaries: for gd_close. */
void gd_scope_clear_root(gd_context *context);
/* Hand the caller's reference to the innermost scope. Returns t. */
gd_tensor *gd_scope_adopt(gd_tensor *t);
/* The other way: the reference the scope had is the caller's. */
void gd_scope_leave(gd_tensor *t);

/* Whether the walk in progress (gd_backward, gd_grad) needs the gradient of t: for vjp functions.
 */
static inline bool gd_wants_grad(const gd_tensor *t)
{
    return t->mark == t->context->generation && t->wanted;
}

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

/* The log's warning of tensors that were retained and never released: graph/alive.c. */
void gd_warn_leaks(const gd_context *context);

/* ---- running: graph/apply.c ---- */

/* Build op's node on inputs (NULL inputs give NULL); context may be NULL when there is an input.
 * Eager: compute it; tracing: record it. */
gd_tensor *gd_apply(gd_context *context, gd_op_id id, int n, gd_tensor *const *inputs,
                    const void *attr);

/* The result of an elementwise op, or of a GD_OP_IN_PLACE op with target 0, in the storage of
 * inputs[target], which must have its shape and dtype. Returns the tensor that stands for the new
 * value: the target itself where no history is recorded, else a node of its own, and the target may
 * not be used any more. */
gd_tensor *gd_apply_in_place(gd_op_id id, int n, gd_tensor *const *inputs, const void *attr,
                             int target);

/* Copy value (of t's shape and dtype) into t's storage now. */
gd_status gd_store(gd_tensor *t, gd_tensor *value);

/* Bring random_state up to date before a kernel reads it. */
gd_status gd_random_publish(gd_context *context);

/* Shorthands. */
gd_tensor *gd_apply1(gd_op_id id, gd_tensor *x, const void *attr);
gd_tensor *gd_apply2(gd_op_id id, gd_tensor *x, gd_tensor *y, const void *attr);

/* Infer the layout of an op's result, checking arity and rank on the way. */
gd_status gd_op_infer(const gd_op *op, int n, const gd_layout *const *in, const void *attr,
                      gd_layout *out);

/* Views and conversions that graph/ needs itself, through their rows. x itself where nothing is to
 * be done. */
gd_tensor *gd_as_shape(gd_tensor *x, gd_shape shape); /* broadcast_to */
gd_tensor *gd_as_dtype(gd_tensor *x, gd_dtype dtype); /* cast */
/* x summed over a mask of axes. Axes at the end of a contiguous shape are summed first, by
 * themselves, where an axis is kept before them and others are summed: (0, 2, 3) of [n, c, h, w]
 * becomes (2, 3), then 0. A compiled graph joins sums of rows to the ops that make the rows. */
gd_tensor *gd_sum_along(gd_tensor *x, uint32_t axes, bool keep);
/* x summed over the axes along which `like` was broadcast to x's shape: the adjoint of
 * broadcasting. */
gd_tensor *gd_sum_to(gd_tensor *x, const gd_layout *like);

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

/* ---- traces: hooks for src/compile, defined in graph/trace.c ---- */

struct gd_trace {
    gd_tensor **nodes; /* [count] every op recorded, in order; each holds a reference */
    size_t count, capacity;
    size_t known; /* nodes behind those are of the recording before, up to here: an op that is the
                     next of them is that node again */
    gd_tensor **outputs; /* gd_output's, each with a reference */
    size_t output_count, output_capacity;
    uint64_t random_words; /* drawn so far */
    int nested;            /* inside the bodies of functions called by the body */
    bool failed;
    bool has_backward; /* gd_backward was called */
    bool is_resumed;   /* what is recorded now differentiates what was recorded in an earlier call:
                          tensors outside may have changed since */
};

gd_status gd_trace_record(gd_trace *trace, gd_tensor *node);
/* The node the last recording had here, if it is op on inputs, brought up to date; else NULL, and
 * what that recording had from here on is let go. */
gd_tensor *gd_trace_repeat(gd_trace *trace, const gd_op *op, int n, gd_tensor *const *inputs,
                           const void *attr, bool requires_grad);
/* Begin again, to record what may be the same. */
void gd_trace_rewind(gd_trace *trace);
/* Let go of what was recorded, keeping room for the next recording; gd_trace_clear frees that too.
 */
void gd_trace_reset(gd_trace *trace);
void gd_trace_clear(gd_trace *trace);

#endif
