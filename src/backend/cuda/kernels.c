/* backend/cuda/kernels.c: kernels of NVIDIA's devices: compiled by NVRTC, loaded, launched. Start at
 * gd_cuda_kernel_compile. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct cuda_kernel {
    CUmodule module;
    CUfunction function;
    size_t bytes; /* of the image that it was made of */
    char image[];
} cuda_kernel;

static const char *const options[] = GD_CUDA_OPTIONS;

/* ---- compiling ---- */

static gd_status check_compiler(const gd_gpu *gpu, int error, const char *what)
{
    const gd_cuda_device *c = gpu->own;
    return error == 0 ? GD_OK
                      : gd_fail(GD_ERR_DEVICE, "%s: %s: %s", gpu->base.name, what,
                                c->rtc->nvrtcGetErrorString(error));
}

static gd_status fail_compilation(const gd_gpu *gpu, nvrtcProgram program, int error)
{
    const gd_cuda_device *c = gpu->own;
    size_t bytes = 0;
    if (c->rtc->nvrtcGetProgramLogSize(program, &bytes) != 0)
        bytes = 0;
    char *log = bytes ? gd_alloc_zero(bytes + 1, 1) : NULL;
    if (log && c->rtc->nvrtcGetProgramLog(program, log) != 0)
        log[0] = '\0';
    const gd_status status =
        gd_fail(GD_ERR_DEVICE, "%s: a kernel does not compile: %s: %.1024s", gpu->base.name,
                c->rtc->nvrtcGetErrorString(error), log ? log : "");
    gd_free(log);
    return status;
}

static gd_status compile(const gd_gpu *gpu, nvrtcProgram program)
{
    const gd_cuda_device *c = gpu->own;
    const char *all[1 + sizeof options / sizeof *options] = { c->architecture_option };
    memcpy(all + 1, options, sizeof options);
    const int error = c->rtc->nvrtcCompileProgram(program, (int)(sizeof all / sizeof *all), all);
    return error == 0 ? GD_OK : fail_compilation(gpu, program, error);
}

/* A kernel without a module, of a compiled program. */
static cuda_kernel *image_of(const gd_gpu *gpu, nvrtcProgram program)
{
    const gd_cuda_device *c = gpu->own;
    const bool is_machine = c->is_machine_code;
    const char *what = is_machine ? "nvrtcGetCUBIN" : "nvrtcGetPTX";
    size_t bytes = 0;
    int error = is_machine ? c->rtc->nvrtcGetCUBINSize(program, &bytes)
                           : c->rtc->nvrtcGetPTXSize(program, &bytes);
    if (check_compiler(gpu, error, what) != GD_OK)
        return NULL;
    cuda_kernel *kernel = gd_alloc(sizeof *kernel + bytes);
    if (!kernel)
        return NULL;
    *kernel = (cuda_kernel){ .bytes = bytes };
    error = is_machine ? c->rtc->nvrtcGetCUBIN(program, kernel->image)
                       : c->rtc->nvrtcGetPTX(program, kernel->image);
    if (check_compiler(gpu, error, what) == GD_OK)
        return kernel;
    gd_free(kernel);
    return NULL;
}

/* The kernel's module, or none: then the kernel is freed. */
static cuda_kernel *load(const gd_gpu *gpu, cuda_kernel *kernel, const char *name)
{
    const gd_cuda_device *c = gpu->own;
    gd_status status = gd_cuda_enter(gpu);
    if (status == GD_OK) {
        status = gd_cuda_check(gpu, c->cu->cuModuleLoadData(&kernel->module, kernel->image),
                               "cuModuleLoadData");
        if (status == GD_OK) {
            status = gd_cuda_check(
                gpu, c->cu->cuModuleGetFunction(&kernel->function, kernel->module, name),
                "cuModuleGetFunction");
            if (status != GD_OK)
                (void)c->cu->cuModuleUnload(kernel->module);
        }
        gd_cuda_leave(gpu);
    }
    if (status == GD_OK)
        return kernel;
    gd_free(kernel);
    return NULL;
}

void *gd_cuda_kernel_compile(gd_gpu *gpu, const char *text, const char *name)
{
    const gd_cuda_device *c = gpu->own;
    nvrtcProgram program = NULL;
    const int error = c->rtc->nvrtcCreateProgram(&program, text, "gradus.cu", 0, NULL, NULL);
    if (check_compiler(gpu, error, "nvrtcCreateProgram") != GD_OK)
        return NULL;
    cuda_kernel *kernel = compile(gpu, program) == GD_OK ? image_of(gpu, program) : NULL;
    (void)c->rtc->nvrtcDestroyProgram(&program);
    return kernel ? load(gpu, kernel, name) : NULL;
}

void *gd_cuda_kernel_load(gd_gpu *gpu, const void *binary, size_t bytes, const char *name)
{
    cuda_kernel *kernel = gd_alloc(sizeof *kernel + bytes);
    if (!kernel)
        return NULL;
    *kernel = (cuda_kernel){ .bytes = bytes };
    memcpy(kernel->image, binary, bytes);
    return load(gpu, kernel, name);
}

gd_status gd_cuda_kernel_binary(gd_gpu *gpu, void *kernel, gd_text_buffer *out)
{
    const cuda_kernel *k = kernel;
    (void)gpu;
    gd_buffer_put(out, k->image, k->bytes);
    return out->failed ? GD_ERR_MEMORY : GD_OK;
}

void gd_cuda_kernel_release(gd_gpu *gpu, void *kernel)
{
    const gd_cuda_device *c = gpu->own;
    cuda_kernel *k = kernel;
    const uint64_t mark = gd_error_mark();
    if (gd_cuda_enter_to_release(gpu)) {
        (void)c->cu->cuModuleUnload(k->module);
        gd_cuda_leave(gpu);
    }
    gd_error_rollback(mark);
    gd_free(k);
}

/* ---- launching ---- */

/* Arguments, one behind another as the kernel has them: addresses, then the struct of numbers. */
static size_t pack(const gd_gpu_launch *launch, uint64_t *packed)
{
    for (int i = 0; i < launch->places; i++)
        *packed++ = (uintptr_t)launch->place[i].block + launch->place[i].offset;
    if (launch->numbers > 0)
        memcpy(packed, launch->number, sizeof(int64_t) * (size_t)launch->numbers);
    return sizeof(uint64_t) * (size_t)(launch->places + launch->numbers);
}

gd_status gd_cuda_launch(gd_gpu *gpu, const gd_gpu_launch *launch)
{
    const gd_cuda_device *c = gpu->own;
    const cuda_kernel *kernel = launch->kernel;
    uint64_t packed[GD_CUDA_PARAMETER_BYTES / sizeof(uint64_t)];
    size_t bytes = pack(launch, packed);
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END };
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status =
        gd_cuda_check(gpu,
                      c->cu->cuLaunchKernel(kernel->function, (unsigned)launch->groups[0],
                                            (unsigned)launch->groups[1], 1, (unsigned)launch->items,
                                            1, 1, 0, c->stream, NULL, extra),
                      "cuLaunchKernel");
    gd_cuda_leave(gpu);
    return status;
}
