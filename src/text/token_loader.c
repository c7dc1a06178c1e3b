/* text/token_loader.c: batches of token sequences. Start at gd_token_loader_next(). */
#include "text/token_data.h"

#include <gradus/compile.h>
#include <gradus/ops.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

struct gd_token_loader {
    gd_context *context;
    const gd_token_data *data;
    gd_token_loader_options options; /* the count is that of tokens there are */
    int64_t batches;                 /* in a pass */
    int64_t taken;
    bool end_told;
    gd_tensor *x, *y; /* retained */
};

/* Where sequence `row` of batch number n begins. */
static int64_t start_of(const gd_token_loader *l, int64_t n, int64_t row)
{
    const gd_token_loader_options *o = &l->options;
    if (!o->random)
        return o->first + ((n % l->batches) * o->batch + row) * o->length;
    gd_random random = { .seed = o->seed,
                         .next = ((uint64_t)n * (uint64_t)o->batch + (uint64_t)row) * 16 };
    return o->first + (int64_t)gd_random_below(&random, (uint64_t)(o->count - o->length));
}

/* Sequences of the next batch, and the tokens behind each of theirs. */
static gd_status write_batch(const gd_token_loader *l, int64_t *x, int64_t *y)
{
    const gd_token_loader_options *o = &l->options;
    gd_status status = GD_OK;
    for (int64_t row = 0; status == GD_OK && row < o->batch; row++) {
        int64_t start = start_of(l, l->taken, row), at = row * o->length;
        status = gd_token_data_read(l->data, start, o->length, x + at);
        if (status == GD_OK)
            status = gd_token_data_read(l->data, start + 1, o->length, y + at);
    }
    return status;
}

bool gd_token_loader_next(gd_token_loader *l, gd_batch *batch)
{
    if (!l || !batch)
        return false;
    const gd_token_loader_options *o = &l->options;
    *batch = (gd_batch){ 0 };
    if (gd_is_tracing(l->context)) {
        (void)gd_fail_traced("gd_token_loader_next");
        return false;
    }
    if (!o->random && l->taken > 0 && l->taken % l->batches == 0 && !l->end_told) {
        l->end_told = true;
        return false;
    }
    l->end_told = false;
    int64_t *x = gd_tensor_map(l->x, GD_MAP_WRITE);
    int64_t *y = x ? gd_tensor_map(l->y, GD_MAP_WRITE) : NULL;
    bool ok = y && write_batch(l, x, y) == GD_OK;
    ok &= (!x || gd_tensor_unmap(l->x) == GD_OK) && (!y || gd_tensor_unmap(l->y) == GD_OK);
    if (!ok)
        return false;
    l->taken++;
    *batch = (gd_batch){ .count = 2, .tensors = { l->x, l->y }, .size = o->batch };
    return true;
}

int64_t gd_token_loader_batches(const gd_token_loader *l)
{
    return l ? l->batches : 0;
}

/* ---- opening and closing ---- */

static void destroy(void *object)
{
    gd_token_loader *l = object;
    gd_release(l->x);
    gd_release(l->y);
    gd_free(l);
}

void gd_token_loader_release(gd_token_loader *l)
{
    if (!l)
        return;
    gd_context_disown(l->context, l);
    destroy(l);
}

/* Whether the options can be, the count being made that of tokens there are. */
static gd_status check(const gd_token_data *data, gd_token_loader_options *o)
{
    if (o->batch < 1 || o->length < 1 || o->first < 0 || o->count < 0)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_token_loader_create: batch %lld, length %lld, first %lld, count %lld; the first "
            "two must be at least 1, none may be negative",
            (long long)o->batch, (long long)o->length, (long long)o->first, (long long)o->count);
    if (o->batch > INT32_MAX || o->length > INT32_MAX) /* so that their product fits 63 bits */
        return gd_fail(GD_ERR_SHAPE, "gd_token_loader_create: batch %lld, length %lld; at most %d",
                       (long long)o->batch, (long long)o->length, INT32_MAX);
    int64_t all = gd_token_data_count(data);
    if (o->first <= all && o->count == GD_END)
        o->count = all - o->first;
    if (o->first > all || o->count > all - o->first)
        return gd_fail(GD_ERR_SHAPE, "gd_token_loader_create: %lld tokens from %lld on, of %lld",
                       (long long)o->count, (long long)o->first, (long long)all);
    int64_t rows = o->random ? 1 : o->batch;
    int64_t needed = rows * o->length;
    if (o->count < needed + 1)
        return gd_fail(
            GD_ERR_SHAPE,
            "gd_token_loader_create: %lld sequences of %lld tokens need %lld tokens and one "
            "more; there are %lld",
            (long long)rows, (long long)o->length, (long long)needed, (long long)o->count);
    return GD_OK;
}

gd_token_loader *gd_token_loader_create_with(gd_context *context, const gd_token_data *data,
                                             const gd_token_loader_options *options)
{
    gd_token_loader_options o = { GD_TOKEN_LOADER_DEFAULTS };
    if (!gd_options_read("gd_token_loader_create", &o, sizeof o, options) || !context || !data ||
        check(data, &o) != GD_OK)
        return NULL;
    gd_token_loader *l = gd_alloc_zero(1, sizeof *l);
    if (!l)
        return NULL;
    l->context = context;
    l->data = data;
    l->options = o;
    l->batches = (o.count - 1) / (o.batch * o.length);
    if (l->batches == 0)
        l->batches = 1; /* random, and fewer tokens than a batch has */
    const gd_shape shape = GD_SHAPE(o.batch, o.length);
    l->x = gd_state(context, shape, 0, GD_I64);
    l->y = l->x ? gd_state(context, shape, 0, GD_I64) : NULL;
    if (!l->y || gd_context_adopt(context, l, destroy) != GD_OK) {
        destroy(l);
        return NULL;
    }
    return l;
}
