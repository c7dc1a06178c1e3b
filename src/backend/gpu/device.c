/* backend/gpu/device.c: a device on a driver: opening it, its memory, and which calls its kernels do.
 * Start at gd_gpu_open. */
#include "backend/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* ---- kernels ---- */

static gd_kernel_call on_host(const gd_kernel_call *call)
{
    gd_kernel_call own = *call;
    own.device = ((gd_gpu *)call->device)->host;
    return own;
}

/* A group is made for kernels of the device, else its ops run one by one; all else may run on the
 * host. */
static bool takes(const gd_kernel_call *call)
{
    const gd_kernel_call own = on_host(call);
    if (gd_gpu_declines(call))
        return false;
    return call->op->id == GD_OP_fused ? gd_gpu_takes(call) : gd_device_takes(&own);
}

static bool is_f64(const gd_operand *operand)
{
    return operand->layout->dtype == GD_F64;
}

/* A call without a kernel runs on the host, but not, if so chosen, one of f64 on a device that has
 * none: a search for what waits. */
static gd_status check_f64(const gd_kernel_call *call)
{
    const gd_gpu *gpu = (const gd_gpu *)call->device;
    bool any = is_f64(&call->out);
    for (int i = 0; i < call->n; i++)
        any |= is_f64(&call->in[i]);
    return any && gpu->is_without_f64 && gpu->refuses_f64
               ? gd_fail(GD_ERR_UNSUPPORTED,
                         "gd_%s: needs f64, which %s (%s) does not have; compute in f32, or in a "
                         "context on cpu",
                         call->op->name, gpu->base.name, gpu->description)
               : GD_OK;
}

/* What a plan keeps of a call: for a kernel of the device, or for the host's. */
typedef struct prepared {
    uint64_t is_on_host;
    uint64_t rest[]; /* none: the host has nothing to prepare */
} prepared;

size_t gd_gpu_prepare_bytes(const gd_kernel_call *call)
{
    const size_t bytes = gd_gpu_job_bytes(call);
    return sizeof(prepared) + (bytes ? bytes : gd_gpu_host_prepare_bytes(call));
}

gd_status gd_gpu_prepare(const gd_kernel_call *call, void *memory)
{
    prepared *p = memory;
    p->is_on_host = !gd_gpu_takes(call);
    const gd_status status = p->is_on_host ? check_f64(call) : GD_OK;
    if (status != GD_OK)
        return status;
    return p->is_on_host ? gd_gpu_host_prepare(call, p->rest) : gd_gpu_job_prepare(call, p->rest);
}

bool gd_gpu_runs_on_host(const gd_kernel_call *call)
{
    return ((const prepared *)call->prepared)->is_on_host;
}

static gd_status run_prepared(const gd_kernel_call *call)
{
    const prepared *p = call->prepared;
    if (!p->is_on_host)
        return gd_gpu_job_run(call, p->rest);
    return gd_gpu_host_run(call, gd_gpu_host_prepare_bytes(call) ? p->rest : NULL);
}

static gd_status run(const gd_kernel_call *call)
{
    gd_gpu_job job;
    if (call->prepared)
        return run_prepared(call);
    if (gd_gpu_describe(call, &job))
        return gd_gpu_run(call, &job);
    const gd_status status = check_f64(call);
    return status == GD_OK ? gd_gpu_host_run(call, NULL) : status;
}

/* ---- memory ---- */

gd_status gd_gpu_memory_write(gd_device *device, void *to, const void *from, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    gd_gpu_place place;
    if (bytes == 0)
        return GD_OK;
    const gd_status status = gd_gpu_place_of(gpu, to, &place);
    return status == GD_OK ? gd_gpu_staging_write(gpu, place, from, bytes) : status;
}

gd_status gd_gpu_memory_read(gd_device *device, void *to, const void *from, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    gd_gpu_place place;
    if (bytes == 0)
        return GD_OK;
    gd_status status = gd_gpu_place_of(gpu, from, &place);
    if (status == GD_OK)
        status = gpu->driver->read(gpu, to, place, bytes);
    return status == GD_OK ? gd_gpu_found_tell(gpu) : status;
}

gd_status gd_gpu_memory_copy(gd_device *device, void *to, const void *from, size_t bytes)
{
    gd_gpu *gpu = (gd_gpu *)device;
    gd_gpu_place place, source;
    if (bytes == 0)
        return GD_OK;
    gd_status status = gd_gpu_place_of(gpu, to, &place);
    if (status == GD_OK)
        status = gd_gpu_place_of(gpu, from, &source);
    return status == GD_OK ? gpu->driver->copy(gpu, place, source, bytes) : status;
}

void gd_gpu_memory_size(const gd_device *device, size_t *total, size_t *available)
{
    const gd_gpu *gpu = (const gd_gpu *)device;
    *total = gpu->memory;
    *available = gpu->driver->available     ? gpu->driver->available(gpu)
                 : gpu->memory > gpu->taken ? gpu->memory - gpu->taken
                                            : 0;
}

gd_status gd_gpu_synchronize(gd_device *device)
{
    gd_gpu *gpu = (gd_gpu *)device;
    const gd_status status = gpu->driver->synchronize(gpu);
    return status == GD_OK ? gd_gpu_found_tell(gpu) : status;
}

/* ---- the device ---- */

gd_status gd_gpu_set_threads(gd_device *device, int threads)
{
    gd_gpu *gpu = (gd_gpu *)device;
    const gd_status status = gpu->host->backend->set_threads(gpu->host, threads);
    gpu->base.threads = gpu->host->threads;
    return status;
}

/* The formulas of adam are fused into a kernel of the device; keys and values in fewer bits are widened there;
 * sums about centers are a subtraction, a product and a sum, with the same bits. */
static bool is_decomposed(gd_op_id op)
{
    return gd_is_adam(op) || op == GD_OP_attention_narrow || op == GD_OP_centred_products;
}

static void describe_device(gd_gpu *gpu, const gd_backend *backend, int index)
{
    gpu->base = (gd_device){
        .backend = backend,
        .name = backend->names[index],
        .isa = gpu->description,
        .threads = gpu->host->threads,
        .limits = { .group_inputs = GD_FUSED_MAX_INPUTS,
                    .group_results = GD_FUSED_MAX_EXTRA,
                    .group_instructions = GD_FUSED_MAX_ELEMENTWISE,
                    .products_commute = gpu->numbers == GD_NUMBERS_EXACT,
                    .group_distance = gpu->host->limits.group_distance },
    };
    for (int i = 0; i < GD_OP_COUNT; i++)
        if (gpu->host->kernel[i] && !is_decomposed((gd_op_id)i)) {
            gpu->base.kernel[i] = run;
            gpu->base.takes[i] = takes;
        }
}

/* GRADUS_ONE_KERNEL: always or never; not set: where it pays. */
static gd_status read_one_kernel(gd_gpu *gpu)
{
    const char *value = getenv("GRADUS_ONE_KERNEL");
    if (!value || !*value)
        return GD_OK;
    gpu->one_kernel = strcmp(value, "always") == 0 ? 1 : strcmp(value, "never") == 0 ? -1 : 0;
    return gpu->one_kernel
               ? GD_OK
               : gd_fail(GD_ERR_INVALID, "GRADUS_ONE_KERNEL=%s: must be always or never", value);
}

/* GRADUS_F64: host or refuse; not set: host. */
static gd_status read_f64(gd_gpu *gpu)
{
    const char *value = getenv("GRADUS_F64");
    if (!value || !*value || strcmp(value, "host") == 0)
        return GD_OK;
    gpu->refuses_f64 = strcmp(value, "refuse") == 0;
    return gpu->refuses_f64
               ? GD_OK
               : gd_fail(GD_ERR_INVALID, "GRADUS_F64=%s: must be host or refuse", value);
}

/* On a device with libraries fast numbers are those of TF32. */
static gd_status choose_numbers(gd_gpu *gpu, const gd_backend *backend, gd_numbers chosen)
{
    gpu->numbers = GD_NUMBERS_EXACT;
    const gd_status status =
        backend->has_libraries ? gd_numbers_choose(chosen, &gpu->numbers) : GD_OK;
    if (gpu->numbers == GD_NUMBERS_FAST)
        gpu->numbers = GD_NUMBERS_TF32;
    return status;
}

/* What the device has no kernel for runs on the host, in exact numbers. */
static gd_device *open_host(const gd_open_options *options)
{
    gd_open_options exact = *options;
    exact.numbers = GD_NUMBERS_EXACT;
    return gd_backend_cpu.open(&exact, 0);
}

gd_device *gd_gpu_open(const gd_backend *backend, const gd_gpu_driver *driver, int index,
                       const gd_open_options *options)
{
    gd_gpu *gpu = gd_alloc_zero(1, sizeof *gpu);
    if (!gpu)
        return NULL;
    gpu->driver = driver;
    gpu->index = index;
    gpu->host = open_host(options);
    gd_status status = gpu->host ? read_one_kernel(gpu) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = read_f64(gpu);
    if (status == GD_OK)
        status = choose_numbers(gpu, backend, options->numbers);
    if (status == GD_OK) {
        describe_device(gpu, backend, index);
        if (gpu->numbers != GD_NUMBERS_EXACT)
            gpu->base.half_products = GD_DTYPE_SET(GD_F16) | GD_DTYPE_SET(GD_BF16);
        status = driver->open(gpu, index);
        gpu->base.alignment = gpu->alignment;
    }
    if (status == GD_OK) {
        gpu->staging = gd_gpu_staging_open(gpu);
        gpu->kernels = gd_gpu_kernels_open();
        status = gpu->staging && gpu->kernels ? gd_gpu_found_open(gpu) : GD_ERR_MEMORY;
    }
    if (status != GD_OK) {
        gd_gpu_close(&gpu->base);
        return NULL;
    }
    return &gpu->base;
}

void gd_gpu_close(gd_device *device)
{
    gd_gpu *gpu = (gd_gpu *)device;
    gd_gpu_staging_close(gpu);
    gd_gpu_kernels_close(gpu);
    while (gpu->chunk_count)
        gd_gpu_memory_free(device, gpu->chunks[0].address, 0);
    gpu->driver->close(gpu);
    if (gpu->host)
        gpu->host->backend->close(gpu->host);
    gd_free_aligned(gpu->scratch.memory);
    gd_free(gpu->chunks);
    gd_free(gpu);
}
