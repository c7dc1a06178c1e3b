/* graph/context.h: the context: a device, the memory of its tensors, their scopes, and what is being
 * done: recorded, differentiated, drawn at random. */
#ifndef GD_GRAPH_CONTEXT_H
#define GD_GRAPH_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "graph/node.h"
#include "tensor/pool.h"

typedef struct gd_device gd_device;

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
typedef struct gd_deferred {
    struct gd_deferred *before, *after;
    void (*destroy)(struct gd_deferred *object);
} gd_deferred;

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

struct gd_context {
    gd_device *device;
    gd_pool *pool;
    gd_arena slabs;
    gd_node_slots nodes;
    void *free_storages, *free_scopes; /* each begins with the next */
    gd_scope root;
    gd_scope *scope; /* innermost */
    /* The one a function's body began in, which it may not end; NULL: in none. */
    gd_scope *body_scope;
    int call_depth;  /* bodies being run, one within the other */
    gd_trace *trace; /* being recorded; NULL in eager execution */
    int trace_paused;
    gd_trace *paused_trace;
    gd_eager_outputs *outputs; /* of the innermost eager call; NULL outside of any */
    int no_grad;
    uint64_t autocast;                /* scopes of mixed precision: graph/autocast.h */
    const gd_tensor *differentiating; /* the node whose vjp is being built */
    int recomputing; /* inside a checkpointed block that is run again: effects are not repeated */
    uint32_t
        region; /* given to nodes made now: 0, or the number of the second run they belong to */
    uint32_t regions; /* second runs so far */
    uint64_t next_id;
    uint64_t generation; /* of the walk in progress */
    int64_t live_tensors;
    bool warn_leaks;         /* gd_close tells of tensors that were retained and not released */
    gd_tensor *random_state; /* i64 [2]: seed and position, as kernels read them */
    uint64_t random_seed, random_position; /* the truth; the position of the next unused word */
    gd_owned *owned;
    size_t owned_count, owned_capacity;
    gd_deferred *deferred;              /* destroyed last of all */
    gd_memory_callback memory_callback; /* NULL: none */
    void *memory_user;
    bool in_memory_callback;
    gd_name *names; /* of tensors */
    /* Buffers of tensors that are mapped through one, and those that wait for the next:
     * graph/values.c. */
    struct gd_mapping *mappings, *idle_mappings;
    _Atomic(gd_tensor *) later; /* what gd_release_later has given back */
    _Atomic uintptr_t user;     /* the thread that is inside a long call; 0: none is */
    uint64_t grad_version; /* calls of gd_set_requires_grad that changed something, and gradients
                               dropped */
};

/* Whether and where ops are recorded, and whether they get a history. Code that changes this for a
 * while saves and restores it as one value. */
typedef struct gd_recording {
    gd_trace *trace, *paused_trace;
    int trace_paused, no_grad, recomputing;
    uint32_t region;
    uint64_t autocast;
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
                           .autocast = c->autocast,
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
    c->autocast = r.autocast;
    c->differentiating = r.differentiating;
}

/* Bring random_state up to date before a kernel reads it. */
gd_status gd_random_publish(gd_context *context);

/* Take off the references that gd_release_later has given back: graph/node.c. */
void gd_release_listed(gd_context *context);
static inline void gd_release_given_back(gd_context *context)
{
    if (atomic_load_explicit(&context->later, memory_order_relaxed) &&
        !atomic_load_explicit(&context->user, memory_order_relaxed))
        gd_release_listed(context);
}

/* ---- one thread at a time ---- */

static inline uintptr_t gd_this_thread(void)
{
    return (uintptr_t)pthread_self();
}

gd_status gd_fail_in_use(const char *who); /* "gd_call", or an op, "add" */

/* GD_ERR_STATE while another thread is inside a long call. */
static inline gd_status gd_check_free(const gd_context *context, const char *who)
{
    uintptr_t user = atomic_load_explicit(&context->user, memory_order_relaxed);
    return user && user != gd_this_thread() ? gd_fail_in_use(who) : GD_OK;
}

/* Around a long call, which may be within another one: the outermost ends the use. */
typedef struct gd_use {
    gd_context *context;
    bool is_outermost;
} gd_use;

static inline gd_status gd_use_begin(gd_use *use, gd_context *context, const char *who)
{
    uintptr_t user = 0;
    use->context = context;
    use->is_outermost = atomic_compare_exchange_strong_explicit(
        &context->user, &user, gd_this_thread(), memory_order_acquire, memory_order_relaxed);
    return use->is_outermost || user == gd_this_thread() ? GD_OK : gd_fail_in_use(who);
}

static inline void gd_use_end(const gd_use *use)
{
    if (use->is_outermost)
        atomic_store_explicit(&use->context->user, 0, memory_order_release);
}

/* Close every scope and release the root's temporaries: for gd_close. */
void gd_scope_clear_root(gd_context *context);

#endif
