/* backend/cuda/convolution.c: a device's convolutions by cuDNN: its handle, and the plans it keeps, a
 * few hundred at most, the one that was used longest ago replaced next. Start at gd_cuda_convolution_find.
 *
 * Plans are made before anything is captured: a graph is recorded of calls that ran once. It uses kernels
 * of a plan, so when one is ended, recordings are of no use, as if a block had been given back (gpu->released). */
#include "backend/cuda/cudnn.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

enum { ALIGNMENT = 256 }; /* of parts of the workspace */

typedef struct entry {
    uint64_t hash, used; /* used: when, in calls */
    gd_gpu_convolution convolution;
    gd_cudnn_plan plan;
} entry;

struct gd_cuda_convolutions {
    const gd_cudnn_api *dnn;
    gd_cudnn_target target;
    uint64_t calls;
    int count;
    entry kept[GD_CUDA_CONVOLUTIONS];
};

/* ---- the handle ---- */

static gd_status make_handle(gd_gpu *gpu, gd_cuda_convolutions *all)
{
    const gd_cuda_device *c = gpu->own;
    const gd_cudnn_api *dnn = all->dnn;
    gd_status status =
        gd_cudnn_check(dnn, gpu->base.name, dnn->cudnnCreate(&all->target.handle), "cudnnCreate");
    if (status != GD_OK) {
        all->target.handle = NULL;
        return status;
    }
    status = gd_cudnn_check(dnn, gpu->base.name, dnn->cudnnSetStream(all->target.handle, c->stream),
                            "cudnnSetStream");
    if (status != GD_OK)
        (void)dnn->cudnnDestroy(all->target.handle);
    return status;
}

/* In our context. NULL with the error recorded. */
static gd_cuda_convolutions *open_library(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    if (c->convolutions)
        return c->convolutions;
    const gd_cudnn_api *dnn = gd_cudnn();
    gd_cuda_convolutions *all = dnn ? gd_alloc_zero(1, sizeof *all) : NULL;
    if (!all)
        return NULL;
    all->dnn = dnn;
    all->target =
        (gd_cudnn_target){ .name = gpu->base.name, .allows_tf32 = gpu->numbers == GD_NUMBERS_TF32 };
    if (make_handle(gpu, all) != GD_OK) {
        gd_free(all);
        return NULL;
    }
    return c->convolutions = all;
}

void gd_cuda_convolutions_close(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    gd_cuda_convolutions *all = c ? c->convolutions : NULL;
    if (!all)
        return;
    for (int i = 0; i < all->count; i++)
        gd_cudnn_plan_end(all->dnn, &all->kept[i].plan);
    (void)all->dnn->cudnnDestroy(all->target.handle);
    gd_free(all);
    c->convolutions = NULL;
}

/* ---- plans ---- */

static uint64_t hash_of(const gd_gpu_convolution *c)
{
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_hash_add(&hash, c, sizeof *c);
    return gd_hash_end(&hash);
}

static entry *find_kept(gd_cuda_convolutions *all, uint64_t hash, const gd_gpu_convolution *c)
{
    for (int i = 0; i < all->count; i++) {
        entry *e = &all->kept[i];
        if (e->hash == hash && memcmp(&e->convolution, c, sizeof *c) == 0)
            return e;
    }
    return NULL;
}

/* A place for one more plan; the oldest one is ended when nothing uses it any more. */
static gd_status make_room(gd_gpu *gpu, gd_cuda_convolutions *all, entry **place)
{
    const gd_cuda_device *c = gpu->own;
    entry *oldest = &all->kept[0];
    if (all->count < GD_CUDA_CONVOLUTIONS) {
        *place = &all->kept[all->count++];
        return GD_OK;
    }
    for (int i = 1; i < all->count; i++)
        oldest = all->kept[i].used < oldest->used ? &all->kept[i] : oldest;
    const gd_status status =
        gd_cuda_check(gpu, c->cu->cuStreamSynchronize(c->stream), "cuStreamSynchronize");
    if (status != GD_OK)
        return status;
    gd_cudnn_plan_end(all->dnn, &oldest->plan);
    gpu->released++;
    *place = oldest;
    return GD_OK;
}

/* In our context. */
static gd_status find(gd_gpu *gpu, const gd_gpu_convolution *convolution, entry **found)
{
    const gd_cuda_device *c = gpu->own;
    gd_cuda_convolutions *all = open_library(gpu);
    if (!all)
        return gd_error_last();
    const uint64_t hash = hash_of(convolution);
    gd_cudnn_plan plan;
    *found = find_kept(all, hash, convolution);
    if (!*found) {
        if (c->is_recording)
            return gd_fail(GD_ERR_STATE, "%s: a convolution's plan is made before it is recorded",
                           gpu->base.name);
        gd_status status = gd_cudnn_plan_make(all->dnn, &all->target, convolution, &plan);
        if (status == GD_OK && (status = make_room(gpu, all, found)) != GD_OK)
            gd_cudnn_plan_end(all->dnn, &plan);
        if (status != GD_OK)
            return status;
        **found = (entry){ .hash = hash, .convolution = *convolution, .plan = plan };
    }
    (*found)->used = ++all->calls;
    return GD_OK;
}

gd_status gd_cuda_convolution_find(gd_gpu *gpu, const gd_gpu_convolution *c, bool *is_there,
                                   size_t *workspace)
{
    entry *found;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = find(gpu, c, &found);
    if (status == GD_OK) {
        *is_there = found->plan.execution != NULL;
        *workspace = (size_t)found->plan.workspace;
    }
    gd_cuda_leave(gpu);
    return status;
}

/* ---- running ---- */

static size_t whole(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t bytes_of(const gd_gpu_convolution *c, int operand)
{
    size_t bytes = sizeof(float);
    for (int a = 0; a < c->axes; a++)
        bytes *= (size_t)c->size[operand][a];
    return bytes;
}

/* The workspace, with room behind the plan's for operands that lie at odd addresses. Not while a graph is
 * recorded: the run before that one has made it. */
static gd_status make_workspace(gd_gpu *gpu, size_t bytes, gd_gpu_place *place)
{
    const gd_cuda_device *c = gpu->own;
    if (bytes > gpu->workspace_bytes && c->is_recording)
        return gd_fail(GD_ERR_STATE, "%s: the workspace does not grow while calls are recorded",
                       gpu->base.name);
    const gd_status status = gd_gpu_make_workspace(gpu, bytes);
    *place = (gd_gpu_place){ NULL, 0 };
    return status == GD_OK && gpu->workspace ? gd_gpu_place_of(gpu, gpu->workspace, place) : status;
}

static CUdeviceptr address_of(gd_gpu_place place)
{
    return (uintptr_t)place.block + place.offset;
}

static gd_status copy(gd_gpu *gpu, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    return gd_cuda_check(gpu, c->cu->cuMemcpyDtoDAsync_v2(to, from, bytes, c->stream),
                         "cuMemcpyDtoDAsync");
}

/* Through copies of those operands whose addresses the plan does not take: so its engine, and with it the
 * bits, do not depend on where things lie. */
static gd_status run_aligned(gd_gpu *gpu, const gd_gpu_convolution *c, const gd_cudnn_plan *plan,
                             const gd_gpu_place place[GD_CONV_OPERANDS])
{
    const gd_cuda_convolutions *all = ((const gd_cuda_device *)gpu->own)->convolutions;
    CUdeviceptr own[GD_CONV_OPERANDS], used[GD_CONV_OPERANDS];
    size_t bytes = whole((size_t)plan->workspace), at = bytes;
    gd_gpu_place workspace;
    for (int k = 0; k < GD_CONV_OPERANDS; k++) {
        own[k] = used[k] = address_of(place[k]);
        bytes += own[k] % GD_CUDNN_ALIGNMENT ? whole(bytes_of(c, k)) : 0;
    }
    gd_status status = make_workspace(gpu, bytes, &workspace);
    for (int k = 0; status == GD_OK && k < GD_CONV_OPERANDS; k++) {
        if (own[k] % GD_CUDNN_ALIGNMENT == 0)
            continue;
        used[k] = address_of(workspace) + at;
        at += whole(bytes_of(c, k));
        if (k != c->result)
            status = copy(gpu, used[k], own[k], bytes_of(c, k));
    }
    if (status == GD_OK)
        status = gd_cudnn_plan_run(all->dnn, &all->target, plan, used, address_of(workspace));
    if (status == GD_OK && used[c->result] != own[c->result])
        status = copy(gpu, own[c->result], used[c->result], bytes_of(c, (int)c->result));
    return status;
}

gd_status gd_cuda_convolution_run(gd_gpu *gpu, const gd_gpu_convolution *c,
                                  const gd_gpu_place *place)
{
    entry *found;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = find(gpu, c, &found);
    if (status == GD_OK && !found->plan.execution)
        status = gd_fail(GD_ERR_UNSUPPORTED, "%s: cuDNN has no repeatable engine for a convolution",
                         gpu->base.name);
    if (status == GD_OK)
        status = run_aligned(gpu, c, &found->plan, place);
    gd_cuda_leave(gpu);
    return status;
}
