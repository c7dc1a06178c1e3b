/* nn/checkpointed.c: a Transformer's layer as a block that gd_checkpoint runs a second time. */
#include "nn/sequence.h"

#include "base/memory.h"
#include "nn/module.h"

#include <gradus/autograd.h>

#include <stdio.h>
#include <string.h>

/* What the second run needs; its tensors are the block's inputs. Kept by the module, once for each
 * layer and way of calling it. */
typedef struct block {
    gd_module_block head;
    gd_transformer_config config;
    gd_nn_layer_fn layer;
    bool causal, has_memory, has_mask, has_memory_mask;
    char name[GD_NN_PATH];
    gd_module *module;
} block;

/* Configs are compared as bytes. */
_Static_assert(sizeof(gd_transformer_config) == sizeof(size_t) + 9 * sizeof(int64_t) +
                                                    3 * sizeof(int) + 4 * sizeof(bool) +
                                                    3 * sizeof(double),
               "gd_transformer_config has no padding");

static bool same(const block *a, const block *b)
{
    return a->layer == b->layer && a->causal == b->causal && a->has_memory == b->has_memory &&
           a->has_mask == b->has_mask && a->has_memory_mask == b->has_memory_mask &&
           memcmp((const void *)&a->config, (const void *)&b->config, sizeof a->config) == 0 &&
           strcmp(a->name, b->name) == 0;
}

/* The block like `wanted`, made now if there is none. NULL: out of memory. */
static block *find(const block *wanted)
{
    for (gd_module_block *b = wanted->module->blocks; b; b = b->next)
        if (same((block *)b, wanted))
            return (block *)b;
    block *made = gd_alloc(sizeof *made);
    if (!made)
        return NULL;
    *made = *wanted;
    made->head.next = wanted->module->blocks;
    wanted->module->blocks = &made->head;
    return made;
}

static gd_tensor *run(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const block *b = user;
    gd_nn_block o = {
        .module = b->module, .name = b->name, .x = *in++, .config = &b->config, .causal = b->causal
    };
    if (b->has_memory)
        o.memory = *in++;
    if (b->has_mask)
        o.mask = *in++;
    if (b->has_memory_mask)
        o.memory_mask = *in;
    return b->layer(o);
}

gd_tensor *gd_nn_checkpointed(gd_nn_block o, gd_nn_layer_fn layer)
{
    block wanted = { .config = *o.config,
                     .layer = layer,
                     .causal = o.causal,
                     .has_memory = o.memory,
                     .has_mask = o.mask,
                     .has_memory_mask = o.memory_mask,
                     .module = o.module };
    snprintf(wanted.name, sizeof wanted.name, "%s", o.name);
    gd_tensor *in[4] = { o.x };
    int count = 1;
    gd_tensor *others[] = { o.memory, o.mask, o.memory_mask };
    for (int i = 0; i < 3; i++)
        if (others[i])
            in[count++] = others[i];
    block *b = find(&wanted);
    return b ? gd_checkpoint(run, b, count, in) : NULL;
}
