/* backend/gpu/replay.c: the calls of a plan as one piece of work for the device: one kernel, where that
 * pays (one_kernel.c), or else a graph. The second run with the same addresses is recorded by the
 * driver, and later ones are a single launch. Start at gd_gpu_run_calls.
 *
 * A recording holds addresses: of operands, of the workspace, of blocks behind them. So it is kept
 * under a hash of the first two, and is of no use once a block has been given back. Arguments come
 * from few places in turn, such as the slots of a loader: a few recordings are kept. */
#include "backend/gpu/gpu.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

enum {
    KEPT = 8,
    MOST_FAILURES = 3, /* of recordings; then the calls are told one by one for good */
};

typedef struct recording {
    uint64_t key;
    void *graph;   /* NULL: the addresses have been seen once */
    bool may_find; /* one of its kernels looks for what only values show: found.c */
} recording;

struct gd_replay {
    recording kept[KEPT]; /* `oldest` is replaced next */
    int count, oldest;
    uint64_t released; /* blocks, when those were made */
    int failures;
    bool is_on_host;    /* one of the calls is */
    gd_one_kernel *one; /* NULL: the calls are kernels */
};

static void add_operand(gd_hash *hash, const gd_operand *operand)
{
    const uintptr_t address = (uintptr_t)operand->data;
    gd_hash_add(hash, &address, sizeof address);
}

/* All that a recording would hold of addresses. */
static uint64_t key_of(const gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count)
{
    gd_hash hash;
    gd_hash_begin(&hash);
    const uintptr_t workspace = (uintptr_t)gpu->workspace;
    gd_hash_add(&hash, &workspace, sizeof workspace);
    for (size_t i = 0; i < count; i++) {
        const gd_kernel_call *call = calls[i];
        for (int k = 0; k < call->n; k++)
            add_operand(&hash, &call->in[k]);
        add_operand(&hash, &call->out);
        const int extra = call->extra ? gd_op_extra_count(call->op, call->attr) : 0;
        for (int k = 0; k < extra; k++)
            add_operand(&hash, &call->extra[k]);
    }
    return gd_hash_end(&hash);
}

static gd_status run_each(const gd_kernel_call *const *calls, size_t count)
{
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < count; i++)
        status = calls[i]->device->kernel[calls[i]->op->id](calls[i]);
    return status;
}

static void forget(gd_gpu *gpu, gd_replay *r)
{
    for (int i = 0; i < r->count; i++) {
        if (r->kept[i].graph)
            gpu->driver->graph_release(gpu, r->kept[i].graph);
        r->kept[i] = (recording){ .graph = NULL };
    }
    r->count = r->oldest = 0;
}

void gd_gpu_replay_free(gd_device *device, gd_replay *replay)
{
    if (!replay)
        return;
    forget((gd_gpu *)device, replay);
    gd_gpu_one_kernel_free((gd_gpu *)device, replay->one);
    gd_free(replay);
}

static gd_replay *make(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count)
{
    gd_replay *r = gd_alloc_zero(1, sizeof *r);
    for (size_t i = 0; r && i < count; i++)
        r->is_on_host |= gd_gpu_runs_on_host(calls[i]);
    gd_text ignored = { NULL, 0, 0 };
    if (r && gd_gpu_one_kernel_pays(gpu, calls, count, &ignored))
        r->one = gd_gpu_one_kernel_make(gpu, calls, count);
    return r;
}

static recording *find(gd_replay *r, uint64_t key)
{
    for (int i = 0; i < r->count; i++)
        if (r->kept[i].key == key)
            return &r->kept[i];
    return NULL;
}

static void note(gd_gpu *gpu, gd_replay *r, uint64_t key)
{
    recording *at = &r->kept[r->count < KEPT ? r->count++ : r->oldest];
    if (at->graph) {
        gpu->driver->graph_release(gpu, at->graph);
        r->oldest = (r->oldest + 1) % KEPT;
    }
    *at = (recording){ .key = key };
}

/* The graph of the calls, none of which is done; NULL, and nothing recorded as an error: it did not
 * come about. */
static void *record(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count, bool *may_find)
{
    const uint64_t mark = gd_error_mark(), launched = gpu->launched;
    const bool might_find = gpu->may_find;
    void *graph = NULL;
    gpu->may_find = false;
    if (gpu->driver->record_begin(gpu) == GD_OK) {
        const gd_status status = run_each(calls, count);
        graph = gpu->driver->record_end(gpu);
        if (graph && status != GD_OK) {
            gpu->driver->graph_release(gpu, graph);
            graph = NULL;
        }
    }
    gpu->launched = launched;
    *may_find = gpu->may_find;
    gpu->may_find = might_find;
    gd_error_rollback(mark);
    return graph;
}

void gd_gpu_explain_calls(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                          gd_text *text)
{
    gd_gpu *gpu = (gd_gpu *)device;
    char how[256] = "";
    gd_text out = { how, sizeof how, 0 };
    if (gd_gpu_one_kernel_pays(gpu, calls, count, &out))
        gd_text_add(text, "runs them as one kernel of %s steps", how);
    else
        gd_text_add(text, "runs them as kernels one after another%s: %s",
                    gpu->driver->record_begin ? ", in one graph where none runs on the host" : "",
                    how);
}

gd_status gd_gpu_run_calls(gd_device *device, const gd_kernel_call *const *calls, size_t count,
                           gd_replay **replay)
{
    gd_gpu *gpu = (gd_gpu *)device;
    if (count == 0)
        return run_each(calls, count);
    if (!*replay && !(*replay = make(gpu, calls, count)))
        return GD_ERR_MEMORY;
    gd_replay *r = *replay;
    if (r->is_on_host || (!r->one && !gpu->driver->record_begin))
        return run_each(calls, count);
    const uint64_t key = key_of(gpu, calls, count);
    if (r->one) {
        bool done;
        const gd_status status = gd_gpu_one_kernel_run(gpu, r->one, calls, key, &done);
        if (done || status != GD_OK)
            return status;
    }
    if (!gpu->driver->record_begin || r->failures == MOST_FAILURES)
        return run_each(calls, count);
    if (r->released != gpu->released) {
        forget(gpu, r);
        r->released = gpu->released;
    }
    recording *known = find(r, key);
    if (!known) {
        note(gpu, r, key);
        return run_each(calls, count);
    }
    if (!known->graph) {
        known->graph = record(gpu, calls, count, &known->may_find);
        r->failures += !known->graph;
        gpu->recorded += known->graph != NULL;
    }
    if (!known->graph)
        return run_each(calls, count);
    gpu->replayed++;
    gpu->may_find |= known->may_find;
    return gpu->driver->replay(gpu, known->graph);
}
