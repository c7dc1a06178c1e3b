/* graph/slots.c: the memory of nodes, and how a handle that has ended is recognised.
 *
 * A slot holds one node at a time. A freed slot is the next to be used again, while it is in the
 * cache; but each node begins POSITION_BYTES behind where the one before it began, and after
 * POSITIONS of them at the slot's beginning again. A node's first word is a function of its own
 * address, and 0 once it has ended. So a handle of an ended tensor finds another word: 0, or
 * something out of the middle of a later node. It is taken for alive only if a multiple of POSITIONS
 * further nodes have used the slot and the last of them is alive. The memory behind a handle can be
 * read while the context is open: slots are never given back.
 *
 *     slot     |0.1.2. POSITIONS |                        |
 *     node 1    [ node bytes          ]
 *     node 2      [ node bytes          ]
 *
 * Slots begin at multiples of POSITIONS * POSITION_BYTES, so an address tells its position.
 *
 * Under the address sanitizer everything but live nodes is poisoned, so the library itself cannot
 * look into an ended node either; gd_is_alive alone may. It may also read what MemorySanitizer takes
 * for unwritten: the middle of a later node.
 */
#include "graph/context.h"
#include "graph/node.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum {
    SLOT_STEP = 64,
    SLOTS_A_BATCH = 64,
    POSITIONS = 32,
    POSITION_BYTES = 8,
    SLOT_ALIGNMENT = POSITIONS * POSITION_BYTES,
    SMALL_CLASSES = 33 /* multiples of SLOT_STEP; each further class is twice as large */
};

_Static_assert(POSITION_BYTES % _Alignof(gd_tensor) == 0, "nodes are aligned at each position");

struct gd_node_batch {
    gd_node_batch *next;
    char *slots; /* [count] of bytes each */
    size_t bytes, count;
};

/* The most bytes a node of a class has. */
static size_t room_of(unsigned size_class)
{
    return size_class < SMALL_CLASSES
               ? (size_t)size_class * SLOT_STEP
               : (size_t)SMALL_CLASSES * SLOT_STEP << (size_class - SMALL_CLASSES);
}

static unsigned class_of(size_t bytes)
{
    unsigned size_class = SMALL_CLASSES;
    if (bytes <= (size_t)(SMALL_CLASSES - 1) * SLOT_STEP)
        return (unsigned)((bytes + SLOT_STEP - 1) / SLOT_STEP);
    while (size_class < GD_NODE_CLASSES && room_of(size_class) < bytes)
        size_class++;
    return size_class;
}

static size_t slot_bytes(unsigned size_class)
{
    size_t bytes = room_of(size_class) + SLOT_ALIGNMENT - POSITION_BYTES;
    return (bytes + SLOT_ALIGNMENT - 1) & ~(size_t)(SLOT_ALIGNMENT - 1);
}

static char *slot_of(gd_tensor *t)
{
    return (char *)t - ((uintptr_t)t & (SLOT_ALIGNMENT - 1));
}

/* Where the slot's next node begins, after t. */
static gd_tensor *next_position(gd_tensor *t)
{
    uintptr_t position = ((uintptr_t)t + POSITION_BYTES) & (SLOT_ALIGNMENT - 1);
    return (gd_tensor *)(void *)(slot_of(t) + position);
}

/* A free slot begins with the address of the next one in its list. */
static gd_tensor *next_free(const gd_tensor *slot)
{
    gd_tensor *next;
    memcpy(&next, (const void *)slot, sizeof next);
    return next;
}

static void set_next_free(gd_tensor *slot, gd_tensor *next)
{
    memcpy((void *)slot, &next, sizeof next);
}

/* More slots of a class, all of them free. */
static bool add_batch(gd_context *context, unsigned size_class)
{
    size_t bytes = slot_bytes(size_class);
    size_t count = size_class < SMALL_CLASSES ? SLOTS_A_BATCH : 1;
    gd_node_batch *batch = gd_arena_push(&context->slabs, sizeof *batch, _Alignof(gd_node_batch));
    char *slots = batch ? gd_arena_push_zero(&context->slabs, bytes * count, SLOT_ALIGNMENT) : NULL;
    if (!slots)
        return false;
    *batch = (gd_node_batch){ context->nodes.batches, slots, bytes, count };
    context->nodes.batches = batch;
    for (size_t i = count; i-- > 0;) {
        gd_tensor *first = (gd_tensor *)(void *)(slots + i * bytes);
        set_next_free(first, context->nodes.free[size_class]);
        context->nodes.free[size_class] = first;
    }
    gd_poison(slots, bytes * count);
    return true;
}

gd_tensor *gd_slot_take(gd_context *context, size_t bytes, uint32_t *node_class)
{
    const unsigned size_class = *node_class = class_of(bytes);
    if (size_class == GD_NODE_CLASSES) {
        gd_fail_memory(bytes);
        return NULL;
    }
    if (!context->nodes.free[size_class] && !add_batch(context, size_class))
        return NULL;
    gd_tensor *t = context->nodes.free[size_class];
    gd_unpoison(t, bytes);
    context->nodes.free[size_class] = next_free(t);
    gd_forget(t, bytes);
    return t;
}

void gd_slot_give(gd_context *context, gd_tensor *t)
{
    unsigned size_class = t->size_class;
    gd_tensor *next = next_position(t);
    t->alive = 0;
    gd_unpoison(next, sizeof next);
    set_next_free(next, context->nodes.free[size_class]);
    context->nodes.free[size_class] = next;
    gd_poison(slot_of(t), slot_bytes(size_class));
}

#ifdef GD_UNCHECKED
GD_UNCHECKED bool gd_is_alive(const gd_tensor *t)
{
    return t->alive == gd_alive_word(t);
}
#endif

gd_status gd_fail_ended(const char *who, const char *what)
{
    return gd_fail(GD_ERR_STATE,
                   "%s: %s was released, or the scope it was made in has ended; gd_keep and "
                   "gd_retain make it live longer",
                   who, what);
}

void gd_fail_operand_ended(gd_op_id id, int i)
{
    char who[64], what[24];
    snprintf(who, sizeof who, "gd_%s", gd_op_row(id)->name);
    snprintf(what, sizeof what, "operand %d", i);
    (void)gd_fail_ended(who, what);
}

bool gd_none_ended(const char *who, int count, gd_tensor *const *tensors)
{
    for (int i = 0; i < count; i++)
        if (tensors[i] && !gd_usable(tensors[i], who))
            return false;
    return true;
}

void gd_each_alive(const gd_context *context, void (*visit)(void *user, const gd_tensor *t),
                   void *user)
{
    for (const gd_node_batch *b = context->nodes.batches; b; b = b->next)
        for (size_t i = 0; i < b->count; i++)
            for (unsigned position = 0; position < POSITIONS; position++) {
                const char *at = b->slots + i * b->bytes + position * POSITION_BYTES;
                const gd_tensor *t = (const gd_tensor *)(const void *)at;
                if (gd_is_alive(t)) {
                    visit(user, t);
                    break;
                }
            }
}
