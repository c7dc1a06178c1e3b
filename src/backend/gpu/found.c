/* backend/gpu/found.c: what only values show, an index out of range: kernels leave it in memory of the
 * device, FOUND numbers, and whoever waits next looks there. check_indices in
 * codegen/device/index.txt writes it. */
#include "backend/gpu/gpu.h"

#include "base/error.h"

enum { IS_THERE, OP, AXIS, SIZE, VALUE, POSITION, FOUND };

static const int64_t nothing[FOUND];

gd_status gd_gpu_found_open(gd_gpu *gpu)
{
    gpu->found = gd_gpu_memory_alloc(&gpu->base, sizeof nothing);
    return gpu->found ? gd_gpu_memory_write(&gpu->base, gpu->found, nothing, sizeof nothing)
                      : gd_error_last();
}

/* The CPU's sentences. */
static gd_status tell(const int64_t found[FOUND])
{
    const gd_op_id op = (gd_op_id)found[OP];
    if (op == GD_OP_cross_entropy || op == GD_OP_cross_entropy_grad)
        return gd_fail(GD_ERR_INVALID, "gd_%s: label %lld of row %lld is not one of %lld classes",
                       gd_op_row(op)->name, (long long)found[VALUE], (long long)found[POSITION],
                       (long long)found[SIZE]);
    return gd_fail(GD_ERR_INVALID,
                   "gd_%s: index %lld (element %lld of the index tensor) is out of range for "
                   "axis %lld of size %lld",
                   gd_op_row(op)->name, (long long)found[VALUE], (long long)found[POSITION],
                   (long long)found[AXIS], (long long)found[SIZE]);
}

gd_status gd_gpu_found_tell(gd_gpu *gpu)
{
    int64_t found[FOUND];
    gd_gpu_place place;
    if (!gpu->may_find)
        return GD_OK;
    gpu->may_find = false;
    gd_status status = gd_gpu_place_of(gpu, gpu->found, &place);
    if (status == GD_OK)
        status = gpu->driver->read(gpu, found, place, sizeof found);
    if (status != GD_OK || !found[IS_THERE])
        return status;
    status = gd_gpu_memory_write(&gpu->base, gpu->found, nothing, sizeof nothing);
    return status == GD_OK ? tell(found) : status;
}
