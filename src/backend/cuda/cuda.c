/* backend/cuda/cuda.c: the driver of NVIDIA's devices, gd_open("cuda:0"): CUDA's driver API, and NVRTC
 * to compile kernels, both found at run time. The device's primary context, which other libraries in
 * the process use too, and a stream of our own in it. Start at cuda_open.
 *
 * A thread's current context is its own business: each function here makes ours current and puts back
 * what was. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

enum {
    MOST_DEVICES = 16,
    MOST_ARCHITECTURES = 64,
    ADDRESS_ALIGNMENT = 256,
    PLAN_ITEMS = 512, /* of a work-group of a plan's one kernel: 128 registers for each */
    PLAN_BLOCKS = 8,  /* of a cluster, on every device that has clusters */
    /* By estimate: about 1.3 us lie between two kernels of a graph, and a small one takes as long; in
     * cycles of 1.7 GHz. */
    KERNEL_CYCLES = 4400,
    APART_BYTES = 4 << 20, /* of a plan's values, a part of the second cache */
};

/* ---- errors ---- */

/* After these a context is of no use, and so is the device in this process. */
static bool ends_context(int error)
{
    return (error >= CUDA_ERROR_ILLEGAL_ADDRESS && error <= CUDA_ERROR_LAUNCH_FAILED &&
            error != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) ||
           error == CUDA_ERROR_ECC_UNCORRECTABLE;
}

gd_status gd_cuda_check(const gd_gpu *gpu, int error, const char *what)
{
    const gd_cuda_device *c = gpu->own;
    char text[GD_CUDA_ERROR_TEXT];
    if (error == CUDA_SUCCESS)
        return GD_OK;
    const char *why = c->process != getpid() ? "; a process that fork made cannot use the device "
                                               "that its parent opened"
                      : ends_context(error)  ? "; the device is lost to this process"
                                             : "";
    return gd_fail(GD_ERR_DEVICE, "%s: %s: %s%s", gpu->base.name, what,
                   gd_cuda_error_text(error, text), why);
}

gd_status gd_cuda_enter(const gd_gpu *gpu)
{
    const gd_cuda_device *c = gpu->own;
    return gd_cuda_check(gpu, c->cu->cuCtxPushCurrent_v2(c->context), "cuCtxPushCurrent");
}

bool gd_cuda_enter_to_release(const gd_gpu *gpu)
{
    bool is_entered = false;
    for (int i = 0; i < 2 && !is_entered; i++)
        is_entered = gd_cuda_enter(gpu) == GD_OK;
    return is_entered;
}

void gd_cuda_leave(const gd_gpu *gpu)
{
    const gd_cuda_device *c = gpu->own;
    CUcontext ours;
    (void)c->cu->cuCtxPopCurrent_v2(&ours);
}

/* ---- opening ---- */

static int cuda_count(void)
{
    const uint64_t mark = gd_error_mark();
    const gd_cuda_api *cu = gd_cuda();
    int count = 0;
    if (!cu || cu->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    gd_error_rollback(mark);
    return count < MOST_DEVICES ? count : MOST_DEVICES;
}

static gd_status fail_unknown(int index)
{
    char there[GD_DEVICE_NAMES];
    return gd_fail(GD_ERR_INVALID, "gd_open: no device is called \"cuda:%d\"; there are %s", index,
                   gd_device_names(there));
}

static gd_status find_device(const gd_gpu *gpu, int index)
{
    gd_cuda_device *c = gpu->own;
    int count = 0;
    const gd_status status =
        gd_cuda_check(gpu, c->cu->cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (status != GD_OK)
        return status;
    if (index >= count)
        return fail_unknown(index);
    return gd_cuda_check(gpu, c->cu->cuDeviceGet(&c->device, index), "cuDeviceGet");
}

static int ask(const gd_cuda_device *c, int attribute)
{
    int value = 0;
    (void)c->cu->cuDeviceGetAttribute(&value, attribute, c->device);
    return value;
}

/* Machine code for the device, or where the compiler does not know it, the intermediate code that the
 * driver makes some of: of the newest architecture that is not newer than the device's. */
static gd_status choose_architecture(const gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    int archs[MOST_ARCHITECTURES], count = 0, best = 0;
    const int own = 10 * ask(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                    ask(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    int error = c->rtc->nvrtcGetNumSupportedArchs(&count);
    if (error == 0 && count > 0 && count <= MOST_ARCHITECTURES)
        error = c->rtc->nvrtcGetSupportedArchs(archs);
    if (error != 0 || count <= 0 || count > MOST_ARCHITECTURES)
        return gd_fail(GD_ERR_DEVICE, "gd_open: %s: nvrtcGetSupportedArchs: %s", gpu->base.name,
                       error ? c->rtc->nvrtcGetErrorString(error) : "it knows too many");
    for (int i = 0; i < count; i++)
        if (archs[i] <= own && archs[i] > best)
            best = archs[i];
    c->architecture = own;
    c->is_machine_code = best == own;
    snprintf(c->architecture_option, sizeof c->architecture_option, "--gpu-architecture=%s_%d",
             c->is_machine_code ? "sm" : "compute", best);
    return best
               ? GD_OK
               : gd_fail(GD_ERR_UNSUPPORTED,
                         "gd_open: %s is an sm_%d, and the compiler of kernels, NVRTC %d.%d, makes "
                         "programs for sm_%d and newer ones only",
                         gpu->base.name, own, c->rtc->major, c->rtc->minor, archs[0]);
}

static gd_status describe(gd_gpu *gpu)
{
    const gd_cuda_device *c = gpu->own;
    char name[64] = "";
    gd_status status = gd_cuda_check(gpu, c->cu->cuDeviceGetName(name, sizeof name - 1, c->device),
                                     "cuDeviceGetName");
    if (status == GD_OK)
        status = gd_cuda_check(gpu, c->cu->cuDeviceTotalMem_v2(&gpu->memory, c->device),
                               "cuDeviceTotalMem");
    snprintf(gpu->description, sizeof gpu->description, "%s, sm_%d, %d multiprocessors", name,
             c->architecture, ask(c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    static const char *const options[] = GD_CUDA_OPTIONS;
    int length = snprintf(gpu->identity, sizeof gpu->identity, "cuda\nNVRTC %d.%d\n%s\n",
                          c->rtc->major, c->rtc->minor, c->architecture_option);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        length += snprintf(gpu->identity + length, sizeof gpu->identity - (size_t)length, "%s\n",
                           options[i]);
    gpu->alignment = ADDRESS_ALIGNMENT;
    gpu->parameter_bytes = GD_CUDA_PARAMETER_BYTES;
    gpu->place_bytes = sizeof(CUdeviceptr);
    gpu->plan_items = PLAN_ITEMS;
    gpu->plan_blocks = ask(c, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) ? PLAN_BLOCKS : 1;
    gpu->kernel_cycles = KERNEL_CYCLES;
    gpu->base.limits.apart_bytes = gpu->plan_blocks > 1 ? APART_BYTES : 0;
    return status;
}

static gd_status make_stream(const gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_check(gpu, c->cu->cuDevicePrimaryCtxRetain(&c->context, c->device),
                                     "cuDevicePrimaryCtxRetain");
    if (status != GD_OK) {
        c->context = NULL;
        return status;
    }
    status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate");
    if (status != GD_OK)
        c->stream = NULL;
    gd_cuda_leave(gpu);
    return status;
}

static gd_status cuda_open(gd_gpu *gpu, int index)
{
    gd_cuda_device *c = gd_alloc_zero(1, sizeof *c);
    if (!c)
        return GD_ERR_MEMORY;
    gpu->own = c;
    c->process = getpid();
    c->cu = gd_cuda();
    gd_status status = c->cu ? find_device(gpu, index) : gd_error_last();
    if (status == GD_OK) {
        c->rtc = gd_nvrtc();
        status = c->rtc ? choose_architecture(gpu) : gd_error_last();
    }
    if (status == GD_OK)
        status = describe(gpu);
    if (status == GD_OK)
        status = make_stream(gpu);
    return status == GD_OK && gpu->numbers != GD_NUMBERS_EXACT ? gd_cuda_products_open(gpu)
                                                               : status;
}

static void cuda_close(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    const uint64_t mark = gd_error_mark();
    const bool is_entered = c && c->context && gd_cuda_enter_to_release(gpu);
    if (is_entered && c->stream)
        (void)c->cu->cuStreamSynchronize(c->stream);
    gd_cuda_products_close(c ? c->products : NULL);
    gd_cuda_convolutions_close(gpu);
    if (is_entered) {
        if (c->stream)
            (void)c->cu->cuStreamDestroy_v2(c->stream);
        for (int i = 0; i < c->event_count; i++)
            (void)c->cu->cuEventDestroy_v2(c->events[i]);
        gd_cuda_leave(gpu);
    }
    if (c && c->context)
        (void)c->cu->cuDevicePrimaryCtxRelease_v2(c->device);
    gd_error_rollback(mark);
    gd_free(c);
}

/* ---- memory ---- */

static void *cuda_block_create(gd_gpu *gpu, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    CUdeviceptr address = 0;
    char text[GD_CUDA_ERROR_TEXT];
    if (gd_cuda_enter(gpu) != GD_OK)
        return NULL;
    const int error = c->cu->cuMemAlloc_v2(&address, bytes);
    gd_cuda_leave(gpu);
    if (error == CUDA_SUCCESS)
        return (void *)(uintptr_t)address;
    if (error == CUDA_ERROR_OUT_OF_MEMORY)
        return gd_fail_null(GD_ERR_MEMORY, "%s: cuMemAlloc of %zu bytes: %s", gpu->base.name, bytes,
                            gd_cuda_error_text(error, text));
    (void)gd_cuda_check(gpu, error, "cuMemAlloc");
    return NULL;
}

/* Other processes take of the device's memory, too. */
static size_t cuda_available(const gd_gpu *gpu)
{
    const gd_cuda_device *c = gpu->own;
    const uint64_t mark = gd_error_mark();
    size_t available = 0, total;
    if (gd_cuda_enter(gpu) == GD_OK) {
        if (c->cu->cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS)
            available = 0;
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(mark);
    return available;
}

/* cuMemFree waits for all work of the context. */
static void cuda_block_release(gd_gpu *gpu, void *block)
{
    const gd_cuda_device *c = gpu->own;
    const uint64_t mark = gd_error_mark();
    if (gd_cuda_enter_to_release(gpu)) {
        (void)c->cu->cuMemFree_v2((uintptr_t)block);
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(mark);
}

/* Page-locked: copies from it need no other copy, and nobody waits for them. */
static void *cuda_staging_create(gd_gpu *gpu, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    void *memory = NULL;
    if (gd_cuda_enter(gpu) != GD_OK)
        return NULL;
    if (gd_cuda_check(gpu, c->cu->cuMemHostAlloc(&memory, bytes, 0), "cuMemHostAlloc") != GD_OK)
        memory = NULL;
    gd_cuda_leave(gpu);
    return memory;
}

static void cuda_staging_release(gd_gpu *gpu, void *memory)
{
    const gd_cuda_device *c = gpu->own;
    const uint64_t mark = gd_error_mark();
    if (gd_cuda_enter_to_release(gpu)) {
        (void)c->cu->cuMemFreeHost(memory);
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(mark);
}

static CUdeviceptr address_of(gd_gpu_place place)
{
    return (uintptr_t)place.block + place.offset;
}

static gd_status wait_for_stream(const gd_gpu *gpu)
{
    const gd_cuda_device *c = gpu->own;
    return gd_cuda_check(gpu, c->cu->cuStreamSynchronize(c->stream), "cuStreamSynchronize");
}

/* An event behind all work told so far. */
static gd_status record(gd_gpu *gpu, void **mark)
{
    gd_cuda_device *c = gpu->own;
    CUevent event = NULL;
    gd_status status = GD_OK;
    if (c->event_count)
        event = c->events[--c->event_count];
    else
        status = gd_cuda_check(gpu, c->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
                               "cuEventCreate");
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuEventRecord(event, c->stream), "cuEventRecord");
    if (status != GD_OK)
        (void)c->cu->cuEventDestroy_v2(event);
    else
        *mark = event;
    return status;
}

static gd_status cuda_write(gd_gpu *gpu, gd_gpu_place to, const void *from, size_t bytes,
                            void **mark)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, c->stream),
                           "cuMemcpyHtoDAsync");
    if (status == GD_OK && mark) {
        status = record(gpu, mark);
        if (status != GD_OK) /* the copy is under way, and nothing tells its end */
            (void)c->cu->cuStreamSynchronize(c->stream);
    } else if (status == GD_OK) {
        status = wait_for_stream(gpu);
    }
    gd_cuda_leave(gpu);
    return status;
}

static gd_status cuda_read(gd_gpu *gpu, void *to, gd_gpu_place from, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, c->stream),
                           "cuMemcpyDtoHAsync");
    if (status == GD_OK)
        status = wait_for_stream(gpu);
    gd_cuda_leave(gpu);
    return status;
}

static gd_status cuda_copy(gd_gpu *gpu, gd_gpu_place to, gd_gpu_place from, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(
        gpu, c->cu->cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), bytes, c->stream),
        "cuMemcpyDtoDAsync");
    gd_cuda_leave(gpu);
    return status;
}

/* ---- order ---- */

static void end_mark(gd_gpu *gpu, CUevent event)
{
    gd_cuda_device *c = gpu->own;
    if (c->event_count < GD_CUDA_EVENTS)
        c->events[c->event_count++] = event;
    else
        (void)c->cu->cuEventDestroy_v2(event);
}

static bool cuda_is_past(gd_gpu *gpu, void *mark)
{
    const gd_cuda_device *c = gpu->own;
    const uint64_t errors = gd_error_mark();
    bool is_past = false;
    if (gd_cuda_enter(gpu) == GD_OK) {
        is_past = c->cu->cuEventQuery(mark) == CUDA_SUCCESS;
        if (is_past)
            end_mark(gpu, mark);
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(errors);
    return is_past;
}

static gd_status cuda_await(gd_gpu *gpu, void *mark)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuEventSynchronize(mark), "cuEventSynchronize");
    end_mark(gpu, mark);
    gd_cuda_leave(gpu);
    return status;
}

static gd_status cuda_synchronize(gd_gpu *gpu)
{
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = wait_for_stream(gpu);
    gd_cuda_leave(gpu);
    return status;
}

static gd_status cuda_block_adopt(gd_gpu *gpu, void *block, size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    (void)block, (void)bytes;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = gd_cuda_check(gpu, c->cu->cuCtxSynchronize(), "cuCtxSynchronize");
    gd_cuda_leave(gpu);
    return status;
}

/* ---- the back end ---- */

static const gd_gpu_driver driver = {
    .dialect = GD_DIALECT_CUDA,
    .open = cuda_open,
    .close = cuda_close,
    .dlpack_type = 2, /* kDLCUDA */
    .is_addressed = true,
    .block_adopt = cuda_block_adopt,
    .block_create = cuda_block_create,
    .block_release = cuda_block_release,
    .available = cuda_available,
    .staging_create = cuda_staging_create,
    .staging_release = cuda_staging_release,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
    .is_past = cuda_is_past,
    .await = cuda_await,
    .synchronize = cuda_synchronize,
    .kernel_compile = gd_cuda_kernel_compile,
    .kernel_load = gd_cuda_kernel_load,
    .kernel_binary = gd_cuda_kernel_binary,
    .kernel_release = gd_cuda_kernel_release,
    .launch = gd_cuda_launch,
    .product = gd_cuda_product,
    .convolution_find = gd_cuda_convolution_find,
    .convolution_run = gd_cuda_convolution_run,
    .record_begin = gd_cuda_record_begin,
    .record_end = gd_cuda_record_end,
    .replay = gd_cuda_replay,
    .graph_release = gd_cuda_graph_release,
};

static const char *const names[MOST_DEVICES] = {
    "cuda:0", "cuda:1", "cuda:2",  "cuda:3",  "cuda:4",  "cuda:5",  "cuda:6",  "cuda:7",
    "cuda:8", "cuda:9", "cuda:10", "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
};

static gd_device *cuda_open_device(const gd_open_options *options, int index)
{
    if (index >= MOST_DEVICES)
        return (void)fail_unknown(index), NULL;
    return gd_gpu_open(&gd_backend_cuda, &driver, index, options);
}

const gd_backend gd_backend_cuda = {
    .name = "cuda",
    .count = cuda_count,
    .names = names,
    .has_libraries = true,
    .open = cuda_open_device,
    GD_GPU_BACKEND_FUNCTIONS,
};
