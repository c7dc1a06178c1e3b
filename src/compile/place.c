/* compile/place.c: the lowest free offset over a span of steps, for one buffer after the other.
 *
 * A segment tree over the steps. Each node keeps two sets of offsets: those taken at all of its
 * steps, by a buffer whose span was cut into pieces at this node, and those taken at any of its
 * steps. What is taken at any step of a span is then the union of O(log steps) sets: of the second
 * kind at the nodes the span is cut into, of the first kind above them. A set is a list of ranges,
 * neighbours merged: buffers stack up, so lists stay short, and placing n buffers takes about
 * n log n. Where they do not, as when 50,000 results wait for each other, the search ends after
 * MOST_LOOKS, above all that is taken. Start at gd_place(). */
#include "compile/place.h"

#include <string.h>

#include "base/memory.h"

typedef struct range {
    size_t begin, end;
} range;

typedef struct ranges {
    range *list; /* [count] ascending, disjoint, not touching */
    size_t count, capacity;
} ranges;

typedef struct node {
    ranges all, any; /* taken at all of its steps; at one of them or more */
} node;

enum {
    MOST_SETS = 160,  /* a span has at most 2 log2(2^31) pieces, and as many nodes above them */
    MOST_LOOKS = 2048 /* at sets; the step of a GPT of 100 layers takes 575 */
};

typedef struct tree {
    node *nodes; /* [2 * leaves], the root is 1, the children of i are 2i and 2i + 1 */
    size_t leaves;
} tree;

/* How many ranges end before `at`. */
static size_t before(const ranges *set, size_t at)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->list[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool add_range(ranges *set, range r)
{
    size_t from = before(set, r.begin), to = from;
    while (to < set->count && set->list[to].begin <= r.end)
        to++;
    if (to > from) { /* merge with those it touches */
        r.begin = set->list[from].begin < r.begin ? set->list[from].begin : r.begin;
        r.end = set->list[to - 1].end > r.end ? set->list[to - 1].end : r.end;
    } else if (!gd_grow((void **)&set->list, &set->capacity, set->count + 1, sizeof(range))) {
        return false;
    }
    size_t now = set->count + 1 - (to - from);
    memmove(set->list + from + 1, set->list + to, (set->count - to) * sizeof(range));
    set->list[from] = r;
    set->count = now;
    return true;
}

/* The nodes the steps first … last are cut into: their numbers, and how many. */
static int cut(const tree *t, int32_t first, int32_t last, size_t pieces[])
{
    int n = 0;
    size_t low = (size_t)first + t->leaves, high = (size_t)last + t->leaves + 1;
    for (; low < high; low /= 2, high /= 2) {
        if (low % 2)
            pieces[n++] = low++;
        if (high % 2)
            pieces[n++] = --high;
    }
    return n;
}

/* Visit every node above the pieces once: above neighbours the paths meet. */
static int find_above(const size_t pieces[], int n, size_t above[])
{
    int count = 0;
    for (int i = 0; i < n; i++)
        for (size_t a = pieces[i] / 2; a >= 1; a /= 2) {
            bool known = false;
            for (int k = 0; k < count && !known; k++)
                known = above[k] == a;
            if (known)
                break; /* and so is all above it */
            above[count++] = a;
        }
    return count;
}

/* The lowest offset from `at` on where `bytes` are free in all sets. */
static size_t lowest_gap(const ranges *const sets[], int n, size_t bytes, size_t at)
{
    size_t next[MOST_SETS] = { 0 }, looks = 0, top = 0;
    for (bool moved = true; moved && looks < MOST_LOOKS;) {
        moved = false;
        looks += (size_t)n;
        for (int i = 0; i < n; i++) {
            const ranges *s = sets[i];
            if (next[i] < s->count && s->list[next[i]].end <= at)
                next[i] = before(s, at + 1);
            for (; next[i] < s->count && s->list[next[i]].begin < at + bytes; next[i]++) {
                at = s->list[next[i]].end;
                moved = true;
            }
            const size_t end = s->count ? s->list[s->count - 1].end : 0;
            top = end > top ? end : top;
        }
    }
    return looks < MOST_LOOKS ? at : top;
}

/* bytes: what all before it take; wanted: of one that is to lie in a gap, where it lies if it can. */
static bool place(tree *t, gd_plan_buffer *b, size_t wanted, size_t bytes)
{
    size_t pieces[MOST_SETS], above[MOST_SETS];
    const ranges *sets[MOST_SETS];
    int n = cut(t, b->first, b->last, pieces), n_above = find_above(pieces, n, above), n_sets = 0;
    for (int i = 0; i < n; i++)
        if (t->nodes[pieces[i]].any.count)
            sets[n_sets++] = &t->nodes[pieces[i]].any;
    for (int i = 0; i < n_above; i++)
        if (t->nodes[above[i]].all.count)
            sets[n_sets++] = &t->nodes[above[i]].all;
    b->offset = lowest_gap(sets, n_sets, b->bytes, wanted);
    if (wanted && b->offset != wanted)
        b->offset = lowest_gap(sets, n_sets, b->bytes, 0);
    if (b->in_gaps && b->offset + b->bytes > bytes) {
        b->offset = GD_NO_OFFSET;
        return true;
    }
    const range r = { b->offset, b->offset + b->bytes };
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = add_range(&t->nodes[pieces[i]].all, r) && add_range(&t->nodes[pieces[i]].any, r);
    for (int i = 0; ok && i < n_above; i++)
        ok = add_range(&t->nodes[above[i]].any, r);
    return ok;
}

gd_status gd_place(gd_plan_buffer *buffers, size_t count, size_t steps, size_t *bytes)
{
    tree t = { .leaves = 1 };
    while (t.leaves < steps)
        t.leaves *= 2;
    t.nodes = gd_alloc_zero(2 * t.leaves, sizeof(node));
    bool ok = t.nodes;
    size_t wanted = 0;
    *bytes = 0;
    for (size_t i = 0; ok && i < count; i++) {
        gd_plan_buffer *b = &buffers[i];
        ok = place(&t, b, b->in_gaps ? wanted : 0, *bytes);
        if (b->offset == GD_NO_OFFSET)
            continue;
        wanted = b->in_gaps ? b->offset : 0;
        *bytes = b->offset + b->bytes > *bytes ? b->offset + b->bytes : *bytes;
    }
    for (size_t i = 0; t.nodes && i < 2 * t.leaves; i++) {
        gd_free(t.nodes[i].all.list);
        gd_free(t.nodes[i].any.list);
    }
    gd_free(t.nodes);
    return ok ? GD_OK : GD_ERR_MEMORY;
}
