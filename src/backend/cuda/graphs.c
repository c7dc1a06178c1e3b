/* backend/cuda/graphs.c: launches captured from the stream, as graphs that are launched as one. */
#include "backend/cuda/cuda.h"

#include "base/error.h"

gd_status gd_cuda_record_begin(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(
        gpu, c->cu->cuStreamBeginCapture_v2(c->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture");
    c->is_recording = status == GD_OK;
    gd_cuda_leave(gpu);
    return status;
}

static CUgraphExec instantiate(const gd_gpu *gpu, CUgraph graph)
{
    const gd_cuda_device *c = gpu->own;
    CUgraphExec executable = NULL;
    const gd_status status = gd_cuda_check(
        gpu, c->cu->cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
    (void)c->cu->cuGraphDestroy(graph);
    return status == GD_OK ? executable : NULL;
}

/* Without our context, too: a capture that does not end would keep the stream from all else. */
void *gd_cuda_record_end(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    const bool is_entered = gd_cuda_enter(gpu) == GD_OK;
    c->is_recording = false;
    const gd_status status =
        gd_cuda_check(gpu, c->cu->cuStreamEndCapture(c->stream, &graph), "cuStreamEndCapture");
    if (status == GD_OK)
        executable = instantiate(gpu, graph);
    if (is_entered)
        gd_cuda_leave(gpu);
    return executable;
}

gd_status gd_cuda_replay(gd_gpu *gpu, void *graph)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuGraphLaunch(graph, c->stream), "cuGraphLaunch");
    gd_cuda_leave(gpu);
    return status;
}

void gd_cuda_graph_release(gd_gpu *gpu, void *graph)
{
    const gd_cuda_device *c = gpu->own;
    const uint64_t mark = gd_error_mark();
    if (gd_cuda_enter_to_release(gpu)) {
        (void)c->cu->cuGraphExecDestroy(graph);
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(mark);
}
