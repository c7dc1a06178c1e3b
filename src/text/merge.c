/* text/merge.c: byte pair encoding of a word in O(n log n): symbols in a linked list, possible
 * merges in a heap. A merge in the heap is outdated when one of its two symbols has been merged
 * since. It is then recognised, when it is taken out, by the tokens it was noted with. Start at
 * gd_merger_finish(). */
#include "text/merge.h"

#include "base/error.h"
#include "base/memory.h"

/* ---- the table of merges ---- */

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of a pair, or the free slot for it. NULL: neither is among the slots that may be probed.
 */
static gd_token_merge *slot_of(const gd_tokenizer *t, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h ^ h >> 32);
    for (int probes = 0; probes < GD_TOKENIZER_MOST_PROBES; probes++, i++) {
        gd_token_merge *slot = &t->merges[i & (t->merge_slots - 1)];
        if (slot->pair == pair || slot->pair == GD_NO_PAIR)
            return slot;
    }
    return NULL;
}

gd_status gd_merges_reserve(gd_tokenizer *t, size_t count)
{
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    t->merges = gd_alloc_zero(slots, sizeof *t->merges);
    if (!t->merges)
        return GD_ERR_MEMORY;
    t->merge_slots = slots;
    for (size_t i = 0; i < slots; i++)
        t->merges[i].pair = GD_NO_PAIR;
    return GD_OK;
}

gd_status gd_merges_add(gd_tokenizer *t, int32_t left, int32_t right, double order, int32_t token)
{
    gd_token_merge *slot = slot_of(t, pair_of(left, right));
    if (!slot)
        return gd_fail(GD_ERR_FORMAT, "a tokeniser with too many merges that hash alike");
    if (slot->pair == GD_NO_PAIR)
        *slot = (gd_token_merge){ pair_of(left, right), order, token };
    return GD_OK;
}

/* ---- the heap ---- */

static bool before(const gd_merge_candidate *a, const gd_merge_candidate *b)
{
    return a->order < b->order || (a->order == b->order && a->at < b->at);
}

static void heap_push(gd_merger *m, gd_merge_candidate c)
{
    size_t i = m->candidates++;
    for (; i > 0 && before(&c, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static gd_merge_candidate heap_pop(gd_merger *m)
{
    gd_merge_candidate top = m->heap[0], last = m->heap[--m->candidates];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->candidates; i = child) {
        child += child + 1 < m->candidates && before(&m->heap[child + 1], &m->heap[child]);
        if (!before(&m->heap[child], &last))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* ---- a word ---- */

void gd_merger_free(gd_merger *m)
{
    gd_free(m->symbols);
    gd_free(m->heap);
    *m = (gd_merger){ 0 };
}

gd_status gd_merger_begin(gd_merger *m, size_t most)
{
    if (most > INT32_MAX)
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "gd_tokenize: %zu bytes without a place to cut; at most %d can be merged",
                       most, INT32_MAX);
    m->count = m->candidates = 0;
    /* A word of n symbols has n - 1 pairs, and each of its up to n - 1 merges makes two new ones.
     */
    if (!gd_grow((void **)&m->symbols, &m->symbol_capacity, most, sizeof *m->symbols) ||
        !gd_grow((void **)&m->heap, &m->heap_capacity, 3 * most, sizeof *m->heap))
        return GD_ERR_MEMORY;
    return GD_OK;
}

void gd_merger_push(gd_merger *m, int32_t token)
{
    int32_t at = (int32_t)m->count++;
    m->symbols[at] = (gd_merge_symbol){ token, at - 1, -1 };
    if (at > 0)
        m->symbols[at - 1].next = at;
}

/* Note the merge of symbol `at` with its right neighbour, if there is one. */
static void note(gd_merger *m, const gd_tokenizer *t, int32_t at)
{
    if (at < 0 || m->symbols[at].next < 0)
        return;
    int32_t left = m->symbols[at].token, right = m->symbols[m->symbols[at].next].token;
    const gd_token_merge *found = slot_of(t, pair_of(left, right));
    if (found && found->pair != GD_NO_PAIR)
        heap_push(m, (gd_merge_candidate){ found->order, at, left, right, found->token });
}

gd_status gd_merger_finish(gd_merger *m, const gd_tokenizer *t, gd_tokens *out)
{
    gd_merge_symbol *s = m->symbols;
    for (size_t i = 0; i + 1 < m->count; i++)
        note(m, t, (int32_t)i);
    while (m->candidates > 0) {
        gd_merge_candidate c = heap_pop(m);
        int32_t right = s[c.at].next;
        if (s[c.at].token != c.left || right < 0 || s[right].token != c.right)
            continue;
        s[c.at].token = c.token;
        s[c.at].next = s[right].next;
        if (s[right].next >= 0)
            s[s[right].next].previous = c.at;
        s[right].token = -1;
        note(m, t, s[c.at].previous);
        note(m, t, c.at);
    }
    for (int32_t i = m->count > 0 ? 0 : -1; i >= 0; i = s[i].next)
        if (gd_tokens_add(out, s[i].token) != GD_OK)
            return GD_ERR_MEMORY;
    return GD_OK;
}
