/* data/loader.c: batches. They are numbered from 0 on, through all epochs; making batch n is a
 * function of the data set, the options and n, and is done either in gd_loader_next or ahead of it by
 * threads (data/workers.c). Start at gd_loader_make(), then gd_loader_next(). Which samples are in a
 * batch is data/order.c, reading them data/read.c. */
#include "data/loader.h"

#include <gradus/compile.h>
#include <gradus/ops.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/random.h"

#include <string.h>

/* ---- making a batch ---- */

/* `count` numbers of a sample in an epoch: words of Philox under a key of their own, so that they
 * have nothing to do with the shuffle. */
static void draw(const gd_loader *l, int64_t epoch, int64_t sample, float *out)
{
    const uint32_t key[2] = { (uint32_t)l->order.seed ^ 0x64726177u,
                              (uint32_t)(l->order.seed >> 32) ^ 0x73746570u };
    for (int i = 0; i < l->draws; i += 4) {
        const uint32_t counter[4] = { (uint32_t)sample, (uint32_t)((uint64_t)sample >> 32),
                                      (uint32_t)epoch, (uint32_t)i };
        gd_philox_block block = gd_philox(counter, key);
        for (int k = 0; k < 4 && i + k < l->draws; k++)
            out[i + k] = (float)(block.word[k] >> 8) * 0x1p-24f;
    }
}

gd_status gd_loader_make(gd_loader *l, gd_slot *s, int64_t first, int64_t end, void *scratch,
                         int64_t *failed)
{
    const gd_batch_set *set = gd_slot_set(l, s);
    for (int64_t i = first; l->draws > 0 && i < end; i++)
        draw(l, s->number / l->order.batches,
             l->order.with_replacement ? s->number % l->order.batches * l->order.batch + i
                                       : s->indices[i],
             set->draws + i * l->draws);
    return gd_dataset_read(l->dataset, s->indices, first, end, s->known, &set->rows, scratch,
                           failed);
}

void gd_loader_pad(gd_loader *l, gd_slot *s)
{
    const gd_rows *rows = &gd_slot_set(l, s)->rows;
    for (int f = 0; f < l->dataset->source->field_count; f++) {
        const gd_data_field *field = &l->dataset->source->fields[f];
        if (!field->varies)
            continue;
        s->padded[f] = gd_padded_length(field, rows->lengths[f], s->size, l->length_multiple);
        gd_pad_rows(field, rows->lengths[f], s->size, s->padded[f], rows->values[f],
                    rows->values[f]);
    }
}

/* Batch number `taken`, in the call. */
static gd_status make_here(gd_loader *l, gd_slot **slot)
{
    gd_slot *s = *slot = &l->slots[0];
    int64_t failed;
    s->number = l->taken;
    s->size = gd_order_size(&l->order, s->number);
    s->indices = gd_order_batch(&l->order, s->number, s->room, &s->known);
    gd_status status = gd_loader_make(l, s, 0, s->size, l->scratch, &failed);
    if (status == GD_OK)
        gd_loader_pad(l, s);
    return status;
}

/* ---- tensors of a batch ---- */

/* Map what is not mapped: all tensors but the caller's batch are, for makers to write to. */
static gd_status map_set(gd_loader *l, gd_batch_set *set)
{
    const int fields = l->dataset->source->field_count;
    int lengths = fields;
    for (int t = 0; t < l->tensor_count; t++)
        if (set->tensors[t] && !set->memory[t] &&
            !(set->memory[t] = gd_tensor_map(set->tensors[t], GD_MAP_WRITE)))
            return gd_error_last();
    for (int f = 0; f < fields; f++) {
        set->rows.values[f] = set->memory[f];
        if (l->dataset->source->fields[f].varies)
            set->rows.lengths[f] = set->memory[lengths++];
    }
    set->draws = l->draws > 0 ? set->memory[l->tensor_count - 1] : NULL;
    return GD_OK;
}

static gd_status unmap_set(gd_loader *l, gd_batch_set *set)
{
    gd_status status = GD_OK;
    for (int t = 0; t < l->tensor_count; t++) {
        if (!set->memory[t])
            continue;
        gd_status unmapped = gd_tensor_unmap(set->tensors[t]);
        set->memory[t] = NULL;
        status = status == GD_OK ? unmapped : status;
    }
    return status;
}

/* A state of this shape, of the root scope. */
static gd_tensor *new_tensor(gd_loader *l, gd_shape shape, gd_dtype dtype)
{
    return gd_state(l->context, shape, 0, dtype);
}

/* The padded batch of a field that varies: the beginning of its memory. */
static gd_tensor *padded_view(const gd_slot *s, const gd_data_field *field, int f, gd_tensor *whole)
{
    gd_shape shape = gd_batch_shape(field, s->size, s->padded[f]);
    gd_tensor *t = gd_slice(whole, 0, 0, gd_shape_count(shape), 1);
    return gd_retain(gd_reshape(t, shape));
}

static gd_status view_fields(gd_loader *l, const gd_slot *s, const gd_batch_set *set)
{
    gd_status status = gd_scope_begin(l->context);
    for (int f = 0; status == GD_OK && f < l->dataset->source->field_count; f++)
        if (l->dataset->source->fields[f].varies) {
            l->varying[f] = padded_view(s, &l->dataset->source->fields[f], f, set->tensors[f]);
            status = l->varying[f] ? GD_OK : gd_error_last();
        }
    gd_status ended = gd_scope_end(l->context);
    return status == GD_OK ? ended : status;
}

static gd_status give(gd_loader *l, const gd_slot *s, gd_batch_set *set, gd_batch *batch)
{
    l->current = set;
    l->taken++;
    gd_status status = unmap_set(l, set);
    if (status == GD_OK)
        status = view_fields(l, s, set);
    if (status != GD_OK)
        return status;
    batch->count = l->tensor_count;
    for (int t = 0; t < l->tensor_count; t++)
        batch->tensors[t] = t < GD_FIELDS_MAX && l->varying[t] ? l->varying[t] : set->tensors[t];
    batch->size = s->size;
    batch->indices = s->indices;
    batch->epoch = s->number / l->order.batches;
    batch->number = s->number;
    return GD_OK;
}

/* ---- next ---- */

/* The caller's batch is given back. */
static gd_status take_back(gd_loader *l)
{
    for (int f = 0; f < GD_FIELDS_MAX; f++) {
        gd_release(l->varying[f]);
        l->varying[f] = NULL;
    }
    gd_status status = l->current ? map_set(l, l->current) : GD_OK;
    if (status == GD_OK)
        l->current = NULL;
    return status;
}

bool gd_loader_next(gd_loader *l, gd_batch *batch)
{
    if (!l || !batch)
        return false;
    *batch = (gd_batch){ 0 };
    if (gd_is_tracing(l->context)) {
        (void)gd_fail_traced("gd_loader_next");
        return false;
    }
    if (l->taken > 0 && !l->end_told && l->taken % l->order.batches == 0) {
        l->end_told = true;
        return false;
    }
    l->end_told = false;
    if (take_back(l) != GD_OK)
        return false;
    gd_slot *s;
    gd_status status = l->worker_count > 0 ? gd_workers_take(l, &s) : make_here(l, &s);
    if (status != GD_OK) {
        l->taken++;
        return false;
    }
    return give(l, s, gd_slot_set(l, s), batch) == GD_OK;
}

int64_t gd_loader_position(const gd_loader *l)
{
    return l ? l->taken : 0;
}

gd_status gd_loader_seek(gd_loader *l, int64_t position)
{
    if (!l || position < 0 || position > INT64_MAX / 2)
        return gd_fail(GD_ERR_INVALID, "gd_loader_seek: position %lld%s", (long long)position,
                       l ? "" : " of no loader");
    if (gd_is_tracing(l->context))
        return gd_fail_traced("gd_loader_seek");
    gd_status status = take_back(l);
    if (status != GD_OK)
        return status;
    if (l->worker_count > 0)
        gd_workers_seek(l, position);
    l->taken = position;
    l->end_told = true;
    return GD_OK;
}

int64_t gd_loader_batches(const gd_loader *l)
{
    return l ? l->order.batches : 0;
}

int64_t gd_loader_samples(const gd_loader *l)
{
    if (l && l->order.batches > INT64_MAX / l->order.batch)
        return INT64_MAX;
    return l ? l->order.batches * l->order.batch -
                   (l->order.rest ? l->order.batch - l->order.rest : 0)
             : 0;
}

int64_t gd_loader_batch_size(const gd_loader *l)
{
    return l ? l->order.batch : 0;
}

const gd_dataset *gd_loader_dataset(const gd_loader *l)
{
    return l ? l->dataset : NULL;
}

/* ---- opening and closing ---- */

static void close_set(gd_loader *l, gd_batch_set *set)
{
    (void)unmap_set(l, set);
    for (int t = 0; t < l->tensor_count; t++)
        gd_release(set->tensors[t]);
}

static void close_slots(gd_loader *l)
{
    for (int64_t i = 0; l->slots && i < l->ring; i++) {
        gd_slot *s = &l->slots[i];
        close_set(l, &s->full);
        close_set(l, &s->last);
        gd_free(s->room);
    }
    for (int f = 0; f < GD_FIELDS_MAX; f++)
        gd_release(l->varying[f]);
}

static void destroy(void *object)
{
    gd_loader *l = object;
    gd_workers_stop(l);
    gd_trace_pause(l->context); /* it may be released in a function that is being traced */
    close_slots(l);
    gd_trace_resume(l->context);
    gd_order_close(&l->order);
    gd_free(l->slots);
    gd_free(l->scratch);
    gd_dataset_unref(l->dataset);
    gd_free(l);
}

void gd_loader_release(gd_loader *l)
{
    if (!l)
        return;
    gd_context_disown(l->context, l);
    destroy(l);
}

static gd_status open_set(gd_loader *l, int64_t size, gd_batch_set *set)
{
    const gd_source *source = l->dataset->source;
    int lengths = source->field_count;
    bool ok = true;
    for (int f = 0; ok && f < source->field_count; f++) {
        const gd_data_field *field = &source->fields[f];
        gd_shape shape =
            field->varies ? GD_SHAPE(size * field->room) : gd_batch_shape(field, size, 0);
        set->tensors[f] = new_tensor(l, shape, field->spec.batch_dtype);
        ok = set->tensors[f] != NULL;
        if (ok && field->varies)
            ok = (set->tensors[lengths++] = new_tensor(l, GD_SHAPE(size), GD_I64)) != NULL;
    }
    if (ok && l->draws > 0)
        ok = (set->tensors[lengths] = new_tensor(l, GD_SHAPE(size, l->draws), GD_F32)) != NULL;
    return ok ? map_set(l, set) : gd_error_last();
}

static gd_status open_slot(gd_loader *l, gd_slot *s)
{
    const int64_t most = l->order.batches > (l->order.rest > 0) ? l->order.batch : l->order.rest;
    s->room = gd_alloc((size_t)most * sizeof *s->room);
    if (!s->room)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    if (l->order.batches > (l->order.rest > 0))
        status = open_set(l, l->order.batch, &s->full);
    if (status == GD_OK && l->order.rest > 0)
        status = open_set(l, l->order.rest, &s->last);
    return status;
}

static gd_status open_slots(gd_loader *l)
{
    l->slots = gd_alloc_zero((size_t)l->ring, sizeof *l->slots);
    l->scratch = gd_alloc(l->dataset->source->scratch_bytes + 1);
    if (!l->slots || !l->scratch)
        return GD_ERR_MEMORY;
    gd_status status = gd_scope_begin(l->context);
    if (status != GD_OK)
        return status;
    for (int64_t i = 0; status == GD_OK && i < l->ring; i++)
        status = open_slot(l, &l->slots[i]);
    (void)gd_scope_end(l->context);
    return status;
}

/* How many samples a worker makes at a time: few where a callback writes them, which takes long; of
 * those in memory, so many that a lock costs nothing beside them. */
static int64_t choose_chunk(const gd_source *source, int64_t batch, int workers)
{
    if (source->get) {
        int64_t share = batch / (4 * (int64_t)workers);
        return share < 1 ? 1 : share < 16 ? share : 16;
    }
    int64_t values = 1;
    for (int f = 0; f < source->field_count; f++)
        values += source->fields[f].room;
    return values >= 1 << 16 ? 1 : (1 << 16) / values;
}

static gd_status check(const gd_loader_options *o)
{
    if (o->prefetch < 0 || o->prefetch > 1024)
        return gd_fail(GD_ERR_INVALID,
                       "gd_loader_create: prefetch %d; up to 1024 batches can be made ahead",
                       o->prefetch);
    if (o->workers < 0 || o->workers > 256 || o->draws < 0 || o->draws > 1 << 20 ||
        o->length_multiple < 1)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_loader_create: workers %d, draws %d, length_multiple %lld; workers are 0 "
            "to 256, draws 0 to 1048576, and a multiple is at least 1",
            o->workers, o->draws, (long long)o->length_multiple);
    return GD_OK;
}

static gd_status open_loader(gd_loader *l, const gd_loader_options *o)
{
    gd_status status = gd_order_open(&l->order, o->weights);
    if (status == GD_OK)
        status = open_slots(l);
    if (status == GD_OK && o->workers > 0)
        status = gd_workers_start(l, o->workers);
    return status == GD_OK ? gd_context_adopt(l->context, l, destroy) : status;
}

gd_loader *gd_loader_create_with(gd_dataset *dataset, const gd_loader_options *options)
{
    gd_loader_options o = { GD_LOADER_DEFAULTS };
    gd_order order;
    if (!gd_options_read("gd_loader_create", &o, sizeof o, options) || !dataset ||
        check(&o) != GD_OK || gd_order_choose(dataset, &o, &order) != GD_OK)
        return NULL;
    gd_loader *l = gd_alloc_zero(1, sizeof *l);
    if (!l)
        return NULL;
    l->dataset = gd_dataset_retain(dataset);
    l->context = dataset->context;
    l->order = order;
    l->draws = o.draws;
    l->length_multiple = o.length_multiple;
    l->tensor_count = gd_dataset_tensor_count(dataset) + (o.draws > 0);
    l->ring = o.workers > 0 ? o.prefetch + 1 : 1;
    l->chunk = o.workers > 0 ? choose_chunk(dataset->source, o.batch, o.workers) : o.batch;
    if (open_loader(l, &o) == GD_OK)
        return l;
    destroy(l);
    return NULL;
}
