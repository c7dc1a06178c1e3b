/* graph/node.c: making and ending nodes and storage. Freed blocks go to free lists of the context's
 * slabs; ending a chain of any length is a loop over a list threaded through the dying nodes
 * themselves. */
#include "graph/node.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { SLAB_STEP = 64, SLAB_BATCH = 64 };

void *gd_slab_alloc(gd_context *context, size_t bytes, uint16_t *size_class)
{
    size_t class = (bytes + SLAB_STEP - 1) / SLAB_STEP;
    if (class >= GD_NODE_CLASSES) {
        *size_class = 0;
        return gd_alloc(bytes);
    }
    *size_class = (uint16_t) class;
    void *block = context->free_nodes[class];
    if (block) {
        memcpy(&context->free_nodes[class], block, sizeof(void *));
        return block;
    }
    /* Carve a batch; all but the first join the free list. */
    char *batch = gd_arena_push(&context->slabs, class * SLAB_STEP * SLAB_BATCH, SLAB_STEP);
    if (!batch)
        return NULL;
    for (size_t i = SLAB_BATCH; i-- > 1;) {
        void *piece = batch + i * class * SLAB_STEP;
        memcpy(piece, &context->free_nodes[class], sizeof(void *));
        context->free_nodes[class] = piece;
    }
    return batch;
}

void gd_slab_free(gd_context *context, void *block, uint16_t size_class)
{
    if (size_class == 0) {
        gd_free(block);
        return;
    }
    memcpy(block, &context->free_nodes[size_class], sizeof(void *));
    context->free_nodes[size_class] = block;
}

static gd_storage *storage_struct_new(gd_context *context)
{
    uint16_t size_class;
    gd_storage *storage = gd_slab_alloc(context, sizeof *storage, &size_class);
    if (storage)
        *storage = (gd_storage){ .refs = 1 };
    return storage;
}

static void storage_struct_free(gd_context *context, gd_storage *storage)
{
    gd_slab_free(context, storage, (sizeof *storage + SLAB_STEP - 1) / SLAB_STEP);
}

gd_storage *gd_storage_new(gd_context *context, size_t bytes)
{
    gd_storage *storage = storage_struct_new(context);
    if (!storage)
        return NULL;
    gd_pool_block *block = gd_pool_alloc(context->pool, bytes);
    if (!block) {
        storage_struct_free(context, storage);
        return NULL;
    }
    storage->block = block;
    storage->data = block->address;
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

gd_tensor *gd_node_new(gd_context *context, const gd_op *op, int n, gd_tensor *const *inputs,
                       const void *attr, bool link)
{
    size_t attr_size = op ? op->attr_size : 0;
    size_t inputs_at = sizeof(gd_tensor);
    size_t linked = link ? (size_t)n : 0;
    size_t attr_at = inputs_at + linked * sizeof(gd_tensor *);
    size_t versions_at = attr_at + ((attr_size + 7) & ~(size_t)7);
    uint16_t size_class;
    gd_tensor *t = gd_slab_alloc(context, versions_at + linked * sizeof(uint32_t), &size_class);
    if (!t)
        return NULL;
    memset(t, 0, offsetof(gd_tensor, layout));
    t->context = context;
    t->op = op;
    t->size_class = size_class;
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
            inputs[i]->refs++;
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
        gd_slab_free(context, t, t->size_class);
    }
}

gd_tensor *gd_retain(gd_tensor *t)
{
    if (t)
        t->refs++;
    return t;
}

void gd_release(gd_tensor *t)
{
    if (!t || --t->refs > 0)
        return;
    /* Over-released while its scope still held it: take it out of the scope's list. */
    if (t->scope)
        scope_remove(t);
    t->scope_after = NULL;
    release_all(t);
}

gd_tensor *gd_keep(gd_tensor *t)
{
    if (!t || !t->scope || !t->scope->parent)
        return t;
    gd_scope *parent = t->scope->parent;
    scope_remove(t);
    scope_insert(parent, t);
    return t;
}

gd_tensor *gd_scope_adopt(gd_tensor *t)
{
    if (t->scope)
        gd_release(t);
    else
        scope_insert(t->context->scope, t);
    return t;
}

void gd_scope_leave(gd_tensor *t)
{
    if (t->scope)
        scope_remove(t);
    else
        t->refs++;
}

gd_status gd_scope_begin(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_scope_begin: the context is NULL");
    uint16_t size_class;
    gd_scope *scope = gd_slab_alloc(context, sizeof *scope, &size_class);
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
        gd_release(t);
    }
}

gd_status gd_scope_end(gd_context *context)
{
    if (!context)
        return gd_fail(GD_ERR_INVALID, "gd_scope_end: the context is NULL");
    gd_scope *scope = context->scope;
    if (!scope->parent || scope == context->floor)
        return gd_fail(GD_ERR_STATE, "gd_scope_end: no scope is open%s",
                       scope->parent ? " that the compiled function's body began" : "");
    scope_clear(scope);
    context->scope = scope->parent;
    gd_slab_free(context, scope, (sizeof *scope + SLAB_STEP - 1) / SLAB_STEP);
    return GD_OK;
}

void gd_scope_clear_root(gd_context *context)
{
    context->floor = NULL;
    while (context->scope->parent)
        (void)gd_scope_end(context);
    scope_clear(&context->root);
}
