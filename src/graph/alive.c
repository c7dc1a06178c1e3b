/* graph/alive.c: what is alive in a context, as text: gd_memory_report, what holds most when memory is
 * out, and gd_close's warning of tensors that were retained and never released. */
#include "graph/context.h"
#include "graph/node.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

typedef struct alive_list {
    const gd_tensor **tensors; /* [count] */
    size_t count;
} alive_list;

static void append(void *user, const gd_tensor *t)
{
    alive_list *list = user;
    list->tensors[list->count++] = t;
}

static size_t bytes_of(const gd_tensor *t)
{
    return t->storage ? t->storage->bytes : 0;
}

static int by_address(const void *a, const void *b)
{
    return a < b ? -1 : a > b;
}

/* Large storage first; tensors of one storage side by side, the oldest of them first. */
static int by_size(const void *a, const void *b)
{
    const gd_tensor *x = *(const gd_tensor *const *)a, *y = *(const gd_tensor *const *)b;
    if (bytes_of(x) != bytes_of(y))
        return bytes_of(x) > bytes_of(y) ? -1 : 1;
    if (x->storage != y->storage)
        return by_address(x->storage, y->storage);
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Every tensor alive, sorted. false: out of memory. */
static bool list_alive(const gd_context *context, alive_list *list)
{
    *list = (alive_list){ .tensors =
                              gd_alloc(((size_t)context->live_tensors + 1) * sizeof(gd_tensor *)) };
    if (!list->tensors)
        return false;
    gd_each_alive(context, append, list);
    qsort(list->tensors, list->count, sizeof *list->tensors, by_size);
    return true;
}

static bool shares_storage(const alive_list *list, size_t i)
{
    return i > 0 && list->tensors[i]->storage &&
           list->tensors[i]->storage == list->tensors[i - 1]->storage;
}

static int depth_of(const gd_scope *scope)
{
    int depth = 0;
    for (; scope->parent; scope = scope->parent)
        depth++;
    return depth;
}

/* Who has references to it. */
static void add_references(gd_text *text, const gd_tensor *t)
{
    long long others = (long long)t->refs - t->retained - (t->scope ? 1 : 0);
    const char *before = "  ";
    if (t->scope) {
        gd_text_add(text, "%sscope %d", before, depth_of(t->scope));
        before = ", ";
    }
    if (t->retained) {
        gd_text_add(text, "%sretained %ld", before, (long)t->retained);
        before = ", ";
    }
    if (others > 0)
        gd_text_add(text, "%sgraph %lld", before, others);
}

static const char *made_by(const gd_tensor *t)
{
    if (t->requires_grad && t->n_inputs == 0)
        return "parameter";
    return t->op ? t->op->name : "leaf";
}

static void add_tensor(gd_text *text, const gd_tensor *t, bool is_shared)
{
    char shape[GD_SHAPE_TEXT];
    if (is_shared)
        gd_text_add(text, "%14s", "shared");
    else
        gd_text_add(text, "%14zu", bytes_of(t));
    gd_text_add(text, "  %-14s  %-4s %-20s", made_by(t), gd_dtype_name(t->layout.dtype),
                gd_layout_text(&t->layout, shape));
    add_references(text, t);
    if (t->name)
        gd_text_add(text, "  \"%s\"", t->name);
}

size_t gd_memory_report(const gd_context *context, char *out, size_t size)
{
    if (size)
        out[0] = '\0';
    alive_list list;
    if (!context || !list_alive(context, &list))
        return 0;
    size_t bytes = 0;
    for (size_t i = 0; i < list.count; i++)
        bytes += shares_storage(&list, i) ? 0 : bytes_of(list.tensors[i]);
    gd_text text = { out, size, 0 };
    gd_text_add(&text, "%zu tensor%s, %zu bytes\n", list.count, list.count == 1 ? "" : "s", bytes);
    for (size_t i = 0; i < list.count; i++) {
        add_tensor(&text, list.tensors[i], shares_storage(&list, i));
        gd_text_add(&text, "\n");
    }
    gd_free(list.tensors);
    return text.length;
}

/* ---- out of memory ---- */

static void find_largest(void *user, const gd_tensor *t)
{
    const gd_tensor **largest = user;
    if (t->storage && t->storage->block && (!*largest || bytes_of(t) > bytes_of(*largest)))
        *largest = t;
}

void gd_tell_largest(const gd_context *context, uint64_t mark)
{
    char what[GD_ERROR_MESSAGE_BYTES], shape[GD_SHAPE_TEXT];
    gd_text text = { what, sizeof what, 0 };
    if (gd_error_since(mark) != GD_ERR_MEMORY)
        return;
    gd_text_add(&text, "%s", gd_error_last_message());
    const gd_device_memory_size size = gd_device_memory(context);
    if (size.total)
        gd_text_add(&text, "; %s has %zu bytes left of %zu", context->device->name, size.available,
                    size.total);
    const gd_tensor *largest = NULL;
    gd_each_alive(context, find_largest, &largest);
    if (largest)
        gd_text_add(&text, "; the largest tensor is %s%s%s %s %s with %zu bytes",
                    largest->name ? "\"" : "", largest->name ? largest->name : made_by(largest),
                    largest->name ? "\"," : ",", gd_dtype_name(largest->layout.dtype),
                    gd_layout_text(&largest->layout, shape), bytes_of(largest));
    gd_error_rollback(mark); /* that sentence, and those of attempts before it */
    (void)gd_fail(GD_ERR_MEMORY, "%s", what);
}

/* ---- leaks ---- */

void gd_warn_leaks(const gd_context *context)
{
    enum { MOST_LINES = 20 };
    alive_list list;
    size_t count = 0;
    if (!list_alive(context, &list))
        return;
    for (size_t i = 0; i < list.count; i++)
        count += list.tensors[i]->retained > 0;
    if (count)
        gd_log_message(GD_LOG_WARNING, "gd_close: %zu tensor%s retained and never released%s",
                       count, count == 1 ? " was" : "s were",
                       count > MOST_LINES ? "; the largest:" : ":");
    for (size_t i = 0, lines = 0; i < list.count && lines < MOST_LINES; i++) {
        if (list.tensors[i]->retained == 0)
            continue;
        char line[320];
        gd_text text = { line, sizeof line, 0 };
        add_tensor(&text, list.tensors[i], shares_storage(&list, i));
        gd_log_message(GD_LOG_WARNING, "gd_close: %s", line);
        lines++;
    }
    gd_free(list.tensors);
}
