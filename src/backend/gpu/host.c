/* backend/gpu/host.c: an op that the device has no kernel for, on the CPU device: its operands are
 * copied to the host's memory, the CPU's kernel runs, what it wrote is copied back. Start at
 * gd_gpu_host_run.
 *
 * Operands may share memory, as the target and the source of a copy within a tensor do: bytes that
 * several of them reach are one region, copied once. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/memory.h"

enum {
    ALIGNMENT = 64, /* of the host's kernels: a region keeps its place in such a block */
    MOST_OPERANDS = GD_OP_MAX_INPUTS + 1 + GD_FUSED_MAX_EXTRA,
};

/* Bytes that operands reach, on the device and in the scratch memory. */
typedef struct region {
    uintptr_t begin, end;
    size_t offset; /* in the scratch memory */
    bool is_read, is_written;
} region;

/* An operand of a call; `is_result`: the call writes it. */
typedef struct reach {
    gd_operand operand;
    bool is_result;
    int region; /* -1: it has no elements */
} reach;

typedef struct host_call {
    int n_operands, n_regions;
    size_t bytes; /* of all regions */
    reach operands[MOST_OPERANDS];
    region regions[MOST_OPERANDS];
} host_call;

static int extra_of(const gd_kernel_call *call)
{
    return call->extra ? gd_op_extra_count(call->op, call->attr) : 0;
}

/* ---- regions ---- */

/* What an operand reaches; false: nothing. */
static bool span_of(const gd_operand *operand, uintptr_t *begin, uintptr_t *end)
{
    const gd_layout *l = operand->layout;
    const int64_t size = (int64_t)gd_dtype_size(l->dtype);
    if (gd_layout_count(l) == 0)
        return false;
    int64_t low = 0, high = 1;
    for (int a = 0; a < l->rank; a++)
        *(l->stride[a] < 0 ? &low : &high) += (l->shape[a] - 1) * l->stride[a];
    *begin = (uintptr_t)operand->data + (uintptr_t)(low * size);
    *end = (uintptr_t)operand->data + (uintptr_t)(high * size);
    return true;
}

/* A region that reaches so far, made of those that overlap it and itself. Its number. */
static int add_region(host_call *h, region added)
{
    int kept = 0, renamed[MOST_OPERANDS];
    for (int i = 0; i < h->n_regions; i++) {
        const region *r = &h->regions[i];
        const bool overlaps = r->begin < added.end && added.begin < r->end;
        renamed[i] = overlaps ? -1 : kept;
        if (!overlaps) {
            h->regions[kept++] = *r;
            continue;
        }
        added.begin = r->begin < added.begin ? r->begin : added.begin;
        added.end = r->end > added.end ? r->end : added.end;
        added.is_read |= r->is_read;
        added.is_written |= r->is_written;
    }
    for (int i = 0; i < h->n_operands; i++) {
        int *number = &h->operands[i].region;
        if (*number >= 0)
            *number = renamed[*number] < 0 ? kept : renamed[*number];
    }
    h->regions[kept] = added;
    h->n_regions = kept + 1;
    return kept;
}

static void add_operand(host_call *h, gd_operand operand, bool is_result)
{
    region r = { .is_read = !is_result || !gd_layout_is_contiguous(operand.layout),
                 .is_written = is_result };
    reach added = { .operand = operand, .is_result = is_result, .region = -1 };
    if (span_of(&operand, &r.begin, &r.end))
        added.region = add_region(h, r);
    h->operands[h->n_operands++] = added;
}

/* The operands of a call, inputs first, and their regions, which keep their alignment. */
static void find_regions(host_call *h, const gd_kernel_call *call)
{
    h->n_operands = h->n_regions = 0;
    for (int i = 0; i < call->n; i++)
        add_operand(h, call->in[i], false);
    add_operand(h, call->out, true);
    for (int i = 0; i < extra_of(call); i++)
        add_operand(h, call->extra[i], true);
    h->bytes = ALIGNMENT; /* what has no elements lies there */
    for (int i = 0; i < h->n_regions; i++) {
        region *r = &h->regions[i];
        r->offset = h->bytes + r->begin % ALIGNMENT;
        h->bytes = (r->offset + (r->end - r->begin) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

static gd_status make_scratch(gd_gpu *gpu, size_t bytes)
{
    gd_gpu_scratch *s = &gpu->scratch;
    if (bytes <= s->bytes)
        return GD_OK;
    char *memory = gd_alloc_aligned(bytes, ALIGNMENT);
    if (!memory)
        return GD_ERR_MEMORY;
    gd_free_aligned(s->memory);
    *s = (gd_gpu_scratch){ memory, bytes };
    return GD_OK;
}

/* ---- plans ---- */

/* What the host's kernel wants prepared. */
size_t gd_gpu_host_prepare_bytes(const gd_kernel_call *call)
{
    gd_kernel_call own = *call;
    own.device = ((gd_gpu *)call->device)->host;
    const gd_backend *backend = own.device->backend;
    return backend->prepare_bytes ? backend->prepare_bytes(&own) : 0;
}

static size_t scratch_bytes(const gd_operand *operand)
{
    uintptr_t begin = 0, end = 0;
    return span_of(operand, &begin, &end) ? end - begin + 2 * ALIGNMENT : 0;
}

/* Sees to it that there is scratch memory for the call: it may not allocate when it runs. */
gd_status gd_gpu_host_prepare(const gd_kernel_call *call, void *memory)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    size_t bytes = 2 * ALIGNMENT + scratch_bytes(&call->out);
    for (int i = 0; i < call->n; i++)
        bytes += scratch_bytes(&call->in[i]);
    for (int i = 0; i < extra_of(call); i++)
        bytes += scratch_bytes(&call->extra[i]);
    gd_status status = make_scratch(gpu, bytes);
    if (status != GD_OK || gd_gpu_host_prepare_bytes(call) == 0)
        return status;
    gd_kernel_call own = *call;
    own.device = gpu->host;
    return gpu->host->backend->prepare(&own, memory);
}

/* ---- running ---- */

static gd_status read_regions(gd_gpu *gpu, const host_call *h)
{
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < h->n_regions; i++) {
        const region *r = &h->regions[i];
        if (r->is_read)
            status = gd_gpu_memory_read(&gpu->base, gpu->scratch.memory + r->offset,
                                        (const void *)r->begin, r->end - r->begin);
    }
    return status;
}

static gd_status write_regions(gd_gpu *gpu, const host_call *h)
{
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < h->n_regions; i++) {
        const region *r = &h->regions[i];
        if (r->is_written)
            status = gd_gpu_memory_write(&gpu->base, (void *)r->begin,
                                         gpu->scratch.memory + r->offset, r->end - r->begin);
    }
    return status;
}

static gd_operand operand_in_scratch(const gd_gpu *gpu, const host_call *h, int i)
{
    const reach *o = &h->operands[i];
    const region *r = o->region >= 0 ? &h->regions[o->region] : NULL;
    const size_t within = r ? (uintptr_t)o->operand.data - r->begin : 0;
    return (gd_operand){ gpu->scratch.memory + (r ? r->offset : 0) + within, o->operand.layout };
}

gd_status gd_gpu_host_run(const gd_kernel_call *call, const void *prepared)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    host_call h;
    gpu->ran_on_host++;
    find_regions(&h, call);
    gd_status status = make_scratch(gpu, h.bytes);
    if (status == GD_OK)
        status = read_regions(gpu, &h);
    if (status != GD_OK)
        return status;
    gd_operand operands[MOST_OPERANDS];
    for (int i = 0; i < h.n_operands; i++)
        operands[i] = operand_in_scratch(gpu, &h, i);
    gd_kernel_call own = *call;
    own.device = gpu->host;
    own.in = operands;
    own.out = operands[call->n];
    own.extra = call->extra ? &operands[call->n + 1] : NULL;
    own.prepared = prepared;
    own.next = NULL;
    status = gpu->host->kernel[call->op->id](&own);
    return status == GD_OK ? write_regions(gpu, &h) : status;
}
