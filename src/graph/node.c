/* graph/node.c: making and ending nodes, storage and scopes. Freed blocks go to free lists (nodes:
 * graph/slots.c); ending a chain of any length is a loop over a list threaded through the dying
 * nodes themselves. */
#include "graph/context.h"
#include "graph/node.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"

/* A block of `bytes` from a list of free ones, or a new one. */
static void *block_take(gd_context *context, void **list, size_t bytes)
{
    void *block = *list;
    if (!block)
        return gd_arena_push(&context->slabs, bytes, _Alignof(max_align_t));
    gd_unpoison(block, bytes);
    memcpy(list, block, sizeof *list);
    gd_forget(block, bytes);
    return block;
}

static void block_give(void **list, void *block, size_t bytes)
{
    memcpy(block, list, sizeof *list);
    *list = block;
    gd_poison(block, bytes);
}

static gd_storage *storage_struct_new(gd_context *context)
{
    gd_storage *storage = block_take(context, &context->free_storages, sizeof *storage);
    if (storage)
        *storage = (gd_storage){ .refs = 1 };
    return storage;
}

static void storage_struct_free(gd_context *context, gd_storage *storage)
{
    block_give(&context->free_storages, storage, sizeof *storage);
}

/* A block of the pool. Where there is none, the user's callback may make room. */
static gd_pool_block *pool_take(gd_context *context, size_t bytes)
{
    const uint64_t mark = gd_error_mark();
    gd_pool_block *block = gd_pool_alloc(context->pool, bytes);
    while (!block && context->memory_callback && !context->in_memory_callback) {
        context->in_memory_callback = true;
        gd_status status = context->memory_callback(context->memory_user, context, bytes);
        context->in_memory_callback = false;
        if (status != GD_OK)
            return NULL;
        block = gd_pool_alloc(context->pool, bytes);
        if (block)
            gd_error_rollback(mark); /* of the attempts before */
    }
    return block;
}

gd_storage *gd_storage_new(gd_context *context, size_t bytes)
{
    gd_storage *storage = storage_struct_new(context);
    if (!storage)
        return NULL;
    const uint64_t mark = gd_error_mark();
    gd_pool_block *block = pool_take(context, bytes);
    if (!block) {
        gd_tell_largest(context, mark);
        storage_struct_free(context, storage);
        return NULL;
    }
    storage->block = block;
    storage->data = block->address;
    if (context->device->host_memory)
        gd_forget(storage->data, bytes);
    storage->bytes = bytes;
    return storage;
}

gd_storage *gd_storage_wrap(gd_context *context, void *data, size_t bytes,
                            void (*release)(void *user), void *user)
{
    gd_storage *storage = storage_struct_new(context);
    if (!storage)
        return NULL;
    storage->data = data;
    storage->bytes = bytes;
    storage->release = release;
    storage->user = user;
    storage->is_exposed = true;
    return storage;
}

void gd_storage_drop(gd_context *context, gd_storage *storage)
{
    if (!storage || --storage->refs > 0)
        return;
    if (storage->block)
        gd_pool_free(context->pool, storage->block);
    if (storage->release)
        storage->release(storage->user);
    storage_struct_free(context, storage);
}

static void scope_insert(gd_scope *scope, gd_tensor *t)
{
    t->scope = scope;
    t->scope_before = NULL;
    t->scope_after = scope->first;
    if (scope->first)
        scope->first->scope_before = t;
    scope->first = t;
}

static void scope_remove(gd_tensor *t)
{
    if (t->scope_before)
        t->scope_before->scope_after = t->scope_after;
    else
        t->scope->first = t->scope_after;
    if (t->scope_after)
        t->scope_after->scope_before = t->scope_before;
    t->scope = NULL;
}

/* Bytes of a new node that are zero; the layout behind them is written whole. */
enum { CLEARED = offsetof(gd_tensor, layout) };

gd_tensor *gd_node_new(gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                       const void *attr, bool link)
{
    size_t attr_size = op ? op->attr_size : 0;
    size_t inputs_at = sizeof(gd_tensor);
    size_t linked = link ? (size_t)n : 0;
    size_t attr_at = inputs_at + linked * sizeof(gd_tensor *);
    size_t versions_at = attr_at + ((attr_size + 7) & ~(size_t)7);
    uint32_t size_class;
    gd_tensor *t = gd_slot_take(context, versions_at + linked * sizeof(uint32_t), &size_class);
    if (!t)
        return NULL;
    /* In two halves: compilers write as many bytes in place, and call memset for more. */
    memset(t, 0, CLEARED / 2);
    memset((char *)t + CLEARED / 2, 0, CLEARED - CLEARED / 2);
    t->alive = gd_alive_word(t);
    t->size_class = size_class;
    t->context = context;
    t->op = op;
    t->refs = 1;
    t->id = context->next_id++;
    if (attr_size) {
        t->attr = (char *)t + attr_at;
        memcpy((char *)t + attr_at, attr, attr_size);
    }
    if (linked) {
        t->inputs = (gd_tensor **)(void *)((char *)t + inputs_at);
        t->versions = (uint32_t *)(void *)((char *)t + versions_at);
        t->n_inputs = n;
        for (int i = 0; i < n; i++) {
            t->inputs[i] = inputs[i];
            t->versions[i] = inputs[i]->storage ? inputs[i]->storage->version : 0;
            gd_link(inputs[i]);
        }
    }
    context->live_tensors++;
    scope_insert(context->scope, t);
    return t;
}

gd_tensor *gd_leaf_new(gd_context *context, const gd_layout *layout, gd_storage *storage)
{
    gd_tensor *t = gd_node_new(context, NULL, 0, NULL, NULL, false);
    if (!t) {
        gd_storage_drop(context, storage);
        return NULL;
    }
    t->layout = *layout;
    t->storage = storage;
    t->version = storage->version;
    return t;
}

/* End every node of the list linked by scope_after, and what dies with them. */
static void release_all(gd_tensor *dying)
{
    while (dying) {
        gd_tensor *t = dying;
        dying = t->scope_after;
        gd_context *context = t->context;
        for (int i = 0; i < t->n_inputs + (t->grad ? 1 : 0); i++) {
            gd_tensor *held = i < t->n_inputs ? t->inputs[i] : t->grad;
            if (--held->refs == 0) {
                held->scope_after = dying;
                dying = held;
            }
        }
        gd_storage_drop(context, t->storage);
        gd_name_free(t->name);
        context->live_tensors--;
        gd_slot_give(context, t);
    }
}

gd_tensor *gd_retain(gd_tensor *t)
{
    if (!gd_usable(t, "gd_retain"))
        return NULL;
    t->retained++;
    return gd_link(t);
}

void gd_release(gd_tensor *t)
{
    if (!gd_usable(t, "gd_release"))
        return;
    if (t->retained == 0) {
        (void)gd_fail(GD_ERR_STATE, "gd_release: the tensor was not retained, or was released as "
                                    "often already; what its scope has goes with the scope");
        return;
    }
    t->retained--;
    gd_unlink(t);
}

/* The list is pushed to by any thread, one tensor at a time, and taken as a whole. A tensor is in it
 * once, with the number of references given back. Who lists a tensor again writes its link after the
 * read of the link by the thread that took the list: the count's exchange releases that read, the
 * addition acquires it. */
void gd_release_later(gd_tensor *t)
{
    if (!gd_usable(t, "gd_release_later"))
        return;
    if (atomic_fetch_add_explicit(&t->later, 1, memory_order_acq_rel) > 0)
        return;
    gd_context *context = t->context;
    gd_tensor *first = atomic_load_explicit(&context->later, memory_order_relaxed);
    do
        t->next_later = first;
    while (!atomic_compare_exchange_weak_explicit(&context->later, &first, t, memory_order_release,
                                                  memory_order_relaxed));
}

void gd_release_listed(gd_context *context)
{
    gd_tensor *t;
    /* More than once: memory that goes here may be another tensor's, shared by DLPack. */
    while ((t = atomic_exchange_explicit(&context->later, NULL, memory_order_acquire)))
        while (t) {
            gd_tensor *next = t->next_later; /* from the exchange on it may be listed again */
            int32_t count = atomic_exchange_explicit(&t->later, 0, memory_order_acq_rel);
            while (count-- > 0)
                gd_release(t);
            t = next;
        }
}

void gd_unlink(gd_tensor *t)
{
    if (!t || --t->refs > 0)
        return;
    t->scope_after = NULL;
    release_all(t);
}

void gd_discard(gd_tensor *t)
{
    scope_remove(t);
    gd_unlink(t);
}

gd_tensor *gd_keep(gd_tensor *t)
{
    if (!gd_usable(t, "gd_keep"))
        return NULL;
    if (!t->scope || !t->scope->parent)
        return t;
    gd_scope *parent = t->scope->parent;
    scope_remove(t);
    scope_insert(parent, t);
    return t;
}

gd_tensor *gd_scope_adopt(gd_tensor *t)
{
    t->retained--;
    if (t->scope)
        gd_unlink(t);
    else
        scope_insert(t->context->scope, t);
    return t;
}

void gd_scope_leave(gd_tensor *t)
{
    t->retained++;
    if (t->scope)
        scope_remove(t);
    else
        gd_link(t);
}

gd_status gd_scope_begin(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_scope_begin: the context is NULL");
    if (gd_check_free(context, "gd_scope_begin") != GD_OK)
        return GD_ERR_STATE;
    gd_scope *scope = block_take(context, &context->free_scopes, sizeof *scope);
    if (!scope)
        return GD_ERR_MEMORY;
    *scope = (gd_scope){ .parent = context->scope };
    context->scope = scope;
    return GD_OK;
}

static void scope_clear(gd_scope *scope)
{
    while (scope->first) {
        gd_tensor *t = scope->first;
        scope->first = t->scope_after;
        t->scope = NULL;
        if (scope->first)
            scope->first->scope_before = NULL;
        gd_unlink(t);
    }
}

gd_tensor *gd_claim(gd_context *context, gd_tensor *t)
{
    if (t && !gd_usable(t, "gd_claim"))
        return NULL;
    if (t)
        context = t->context;
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_claim: the context is NULL");
    if (gd_check_free(context, "gd_claim") != GD_OK)
        return NULL;
    if (t)
        gd_retain(t);
    scope_clear(context->scope);
    gd_release_given_back(context);
    return t;
}

gd_status gd_scope_end(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_scope_end: the context is NULL");
    if (gd_check_free(context, "gd_scope_end") != GD_OK)
        return GD_ERR_STATE;
    gd_scope *scope = context->scope;
    if (!scope->parent || scope == context->body_scope)
        return gd_fail(GD_ERR_STATE, "gd_scope_end: no scope is open%s",
                       scope->parent ? " that the compiled function's body began" : "");
    scope_clear(scope);
    gd_release_given_back(context);
    context->scope = scope->parent;
    block_give(&context->free_scopes, scope, sizeof *scope);
    return GD_OK;
}

void gd_scope_clear_root(gd_context *context)
{
    context->body_scope = NULL;
    while (context->scope->parent)
        (void)gd_scope_end(context);
    scope_clear(&context->root);
}
