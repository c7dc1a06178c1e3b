/* backend/opencl/opencl.c: the driver of OpenCL devices, gd_open("opencl:0"): OpenCL 1.2, found at run
 * time. One context and one queue in order for each device that is opened. Start at opencl_open. */
#include "backend/gpu/gpu.h"
#include "backend/opencl/api.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum {
    LAUNCHES_TO_FLUSH = 32,
    PLAN_ITEMS = 256, /* of the work-group of a plan's one kernel */
};
/* Divisions and roots are rounded as IEEE 754 says. The program's text sees to the rest. */
static const char build_options[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

typedef struct opencl {
    const gd_opencl_api *cl;
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    int unflushed; /* launches */
} opencl;

static gd_status check(const gd_gpu *gpu, cl_int code, const char *what)
{
    char text[32];
    return code == CL_SUCCESS ? GD_OK
                              : gd_fail(GD_ERR_DEVICE, "%s: %s: %s", gpu->base.name, what,
                                        gd_opencl_error_name(code, text));
}

/* ---- opening ---- */

static void ask(const opencl *o, cl_uint what, void *answer, size_t bytes)
{
    memset(answer, 0, bytes);
    if (o->cl->clGetDeviceInfo(o->device, what, bytes, answer, NULL) != CL_SUCCESS)
        memset(answer, 0, bytes);
}

static cl_ulong ask_number(const opencl *o, cl_uint what)
{
    cl_ulong number;
    ask(o, what, &number, sizeof number);
    return number;
}

/* f32 as IEEE 754 has it: what the results of all devices stand on. f64 is as IEEE 754 has it, or as
 * good as missing. */
static gd_status check_arithmetic(gd_gpu *gpu)
{
    const opencl *o = gpu->own;
    const cl_bitfield needed = CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST | CL_FP_FMA;
    const cl_bitfield f32 = ask_number(o, CL_DEVICE_SINGLE_FP_CONFIG),
                      f64 = ask_number(o, CL_DEVICE_DOUBLE_FP_CONFIG);
    const char *lacks = (f32 & needed) != needed ? "f32 with subnormal numbers and fma"
                        : !(f32 & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
                            ? "f32 with divisions and roots that are rounded correctly"
                        : !ask_number(o, CL_DEVICE_COMPILER_AVAILABLE) ? "a compiler"
                        : !ask_number(o, CL_DEVICE_ENDIAN_LITTLE)      ? "little-endian numbers"
                                                                       : NULL;
    gpu->is_without_f64 = (f64 & needed) != needed;
    return lacks ? gd_fail(GD_ERR_UNSUPPORTED,
                           "gd_open: %s, %s, has no %s, and so cannot give the results that other "
                           "devices give",
                           gpu->base.name, gpu->description, lacks)
                 : GD_OK;
}

static void describe(gd_gpu *gpu)
{
    const opencl *o = gpu->own;
    char platform[96] = "", name[96], version[96], driver[96];
    (void)o->cl->clGetPlatformInfo(o->platform, CL_PLATFORM_VERSION, sizeof platform, platform,
                                   NULL);
    ask(o, CL_DEVICE_NAME, name, sizeof name - 1);
    ask(o, CL_DEVICE_VERSION, version, sizeof version - 1);
    ask(o, CL_DRIVER_VERSION, driver, sizeof driver - 1);
    snprintf(gpu->description, sizeof gpu->description, "%s", name);
    snprintf(gpu->identity, sizeof gpu->identity, "opencl\n%s\n%s\n%s\n%s\n%s\n", platform, name,
             version, driver, build_options);
    gpu->memory = (size_t)ask_number(o, CL_DEVICE_GLOBAL_MEM_SIZE);
    gpu->alignment = 256;
    gpu->plan_items = PLAN_ITEMS;
    gpu->plan_blocks = 1;
    gpu->parameter_bytes = (size_t)ask_number(o, CL_DEVICE_MAX_PARAMETER_SIZE);
    gpu->place_bytes = sizeof(cl_mem) + sizeof(cl_ulong);
}

static int opencl_count(void)
{
    cl_device_id devices[GD_OPENCL_MOST_DEVICES];
    cl_platform_id platforms[GD_OPENCL_MOST_DEVICES];
    const uint64_t mark = gd_error_mark();
    const int count = gd_opencl_devices(devices, platforms);
    gd_error_rollback(mark);
    return count;
}

static gd_status fail_unknown(int index)
{
    char names[GD_DEVICE_NAMES];
    return gd_fail(GD_ERR_INVALID, "gd_open: no device is called \"opencl:%d\"; there are %s",
                   index, gd_device_names(names));
}

/* With the reason that was recorded since the mark. */
static gd_status fail_library(uint64_t mark)
{
    char names[GD_DEVICE_NAMES], reason[512];
    snprintf(reason, sizeof reason, "%s", gd_error_last_message());
    gd_error_rollback(mark);
    return gd_fail(GD_ERR_UNSUPPORTED, "gd_open: no OpenCL: %s; there are %s", reason,
                   gd_device_names(names));
}

static gd_status find_device(opencl *o, int index)
{
    cl_device_id devices[GD_OPENCL_MOST_DEVICES];
    cl_platform_id platforms[GD_OPENCL_MOST_DEVICES];
    const int count = gd_opencl_devices(devices, platforms);
    if (index >= count)
        return fail_unknown(index);
    o->device = devices[index];
    o->platform = platforms[index];
    return GD_OK;
}

static gd_status opencl_open(gd_gpu *gpu, int index)
{
    opencl *o = gd_alloc_zero(1, sizeof *o);
    if (!o)
        return GD_ERR_MEMORY;
    gpu->own = o;
    const uint64_t mark = gd_error_mark();
    o->cl = gd_opencl();
    if (!o->cl)
        return fail_library(mark);
    gd_status status = find_device(o, index);
    if (status != GD_OK)
        return status;
    describe(gpu);
    status = check_arithmetic(gpu);
    if (status != GD_OK)
        return status;
    cl_int code;
    const cl_context_properties properties[] = { CL_CONTEXT_PLATFORM,
                                                 (cl_context_properties)o->platform, 0 };
    o->context = o->cl->clCreateContext(properties, 1, &o->device, NULL, NULL, &code);
    if (code == CL_SUCCESS)
        o->queue = o->cl->clCreateCommandQueue(o->context, o->device, 0, &code);
    return check(gpu, code, o->context ? "clCreateCommandQueue" : "clCreateContext");
}

static void opencl_close(gd_gpu *gpu)
{
    opencl *o = gpu->own;
    if (!o)
        return;
    if (o->queue) {
        (void)o->cl->clFinish(o->queue);
        (void)o->cl->clReleaseCommandQueue(o->queue);
    }
    if (o->context)
        (void)o->cl->clReleaseContext(o->context);
    gd_free(o);
}

/* ---- memory ---- */

static void *opencl_block_create(gd_gpu *gpu, size_t bytes)
{
    const opencl *o = gpu->own;
    cl_int code;
    cl_mem block = o->cl->clCreateBuffer(o->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    if (code == CL_SUCCESS)
        return block;
    char text[32];
    return gd_fail_null(GD_ERR_MEMORY, "%s: clCreateBuffer of %zu bytes: %s", gpu->base.name, bytes,
                        gd_opencl_error_name(code, text));
}

static void opencl_block_release(gd_gpu *gpu, void *block)
{
    const opencl *o = gpu->own;
    (void)o->cl->clReleaseMemObject(block);
}

static gd_status opencl_write(gd_gpu *gpu, gd_gpu_place to, const void *from, size_t bytes,
                              void **mark)
{
    const opencl *o = gpu->own;
    cl_event event = NULL;
    const cl_int code =
        o->cl->clEnqueueWriteBuffer(o->queue, to.block, mark ? CL_FALSE : CL_TRUE, to.offset, bytes,
                                    from, 0, NULL, mark ? &event : NULL);
    if (mark)
        *mark = event;
    return check(gpu, code, "clEnqueueWriteBuffer");
}

static gd_status opencl_read(gd_gpu *gpu, void *to, gd_gpu_place from, size_t bytes)
{
    const opencl *o = gpu->own;
    return check(gpu,
                 o->cl->clEnqueueReadBuffer(o->queue, from.block, CL_TRUE, from.offset, bytes, to,
                                            0, NULL, NULL),
                 "clEnqueueReadBuffer");
}

static gd_status opencl_copy(gd_gpu *gpu, gd_gpu_place to, gd_gpu_place from, size_t bytes)
{
    const opencl *o = gpu->own;
    return check(gpu,
                 o->cl->clEnqueueCopyBuffer(o->queue, from.block, to.block, from.offset, to.offset,
                                            bytes, 0, NULL, NULL),
                 "clEnqueueCopyBuffer");
}

/* ---- order ---- */

static bool opencl_is_past(gd_gpu *gpu, void *mark)
{
    const opencl *o = gpu->own;
    cl_int state = 1;
    if (o->cl->clGetEventInfo(mark, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                              NULL) != CL_SUCCESS ||
        state != CL_COMPLETE)
        return false;
    (void)o->cl->clReleaseEvent(mark);
    return true;
}

static gd_status opencl_await(gd_gpu *gpu, void *mark)
{
    const opencl *o = gpu->own;
    cl_event event = mark;
    (void)o->cl->clFlush(o->queue);
    const gd_status status = check(gpu, o->cl->clWaitForEvents(1, &event), "clWaitForEvents");
    (void)o->cl->clReleaseEvent(event);
    return status;
}

static gd_status opencl_synchronize(gd_gpu *gpu)
{
    const opencl *o = gpu->own;
    return check(gpu, o->cl->clFinish(o->queue), "clFinish");
}

static gd_status opencl_block_adopt(gd_gpu *gpu, void *block, size_t bytes)
{
    const opencl *o = gpu->own;
    cl_context context = NULL;
    size_t size = 0;
    gd_status status = opencl_synchronize(gpu);
    if (status == GD_OK)
        status = check(
            gpu, o->cl->clGetMemObjectInfo(block, CL_MEM_CONTEXT, sizeof context, &context, NULL),
            "clGetMemObjectInfo");
    if (status == GD_OK)
        status = check(gpu, o->cl->clGetMemObjectInfo(block, CL_MEM_SIZE, sizeof size, &size, NULL),
                       "clGetMemObjectInfo");
    if (status == GD_OK && context != o->context)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: the memory is of another OpenCL context",
                       gpu->base.name);
    if (status == GD_OK && size < bytes)
        return gd_fail(GD_ERR_INVALID, "%s: the tensor ends %zu bytes behind its memory's end",
                       gpu->base.name, bytes - size);
    return status;
}

/* ---- kernels ---- */

static gd_status fail_build(const gd_gpu *gpu, cl_program program, cl_int code)
{
    const opencl *o = gpu->own;
    char text[32];
    size_t bytes = 0;
    (void)o->cl->clGetProgramBuildInfo(program, o->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
    char *log = gd_alloc_zero(bytes + 1, 1);
    if (!log)
        return GD_ERR_MEMORY;
    (void)o->cl->clGetProgramBuildInfo(program, o->device, CL_PROGRAM_BUILD_LOG, bytes, log, NULL);
    const gd_status status = gd_fail(GD_ERR_DEVICE, "%s: a kernel does not compile: %s: %.1000s",
                                     gpu->base.name, gd_opencl_error_name(code, text), log);
    gd_free(log);
    return status;
}

/* A kernel holds its program. */
static void *build(gd_gpu *gpu, cl_program program, const char *name, bool reports)
{
    const opencl *o = gpu->own;
    cl_kernel kernel = NULL;
    cl_int code = o->cl->clBuildProgram(program, 1, &o->device, build_options, NULL, NULL);
    if (code != CL_SUCCESS && reports)
        (void)fail_build(gpu, program, code);
    if (code == CL_SUCCESS) {
        kernel = o->cl->clCreateKernel(program, name, &code);
        if (code != CL_SUCCESS && reports)
            (void)check(gpu, code, "clCreateKernel");
    }
    (void)o->cl->clReleaseProgram(program);
    return kernel;
}

static void *opencl_kernel_compile(gd_gpu *gpu, const char *text, const char *name)
{
    const opencl *o = gpu->own;
    cl_int code;
    cl_program program = o->cl->clCreateProgramWithSource(o->context, 1, &text, NULL, &code);
    if (check(gpu, code, "clCreateProgramWithSource") != GD_OK)
        return NULL;
    return build(gpu, program, name, true);
}

static void *opencl_kernel_load(gd_gpu *gpu, const void *binary, size_t bytes, const char *name)
{
    const opencl *o = gpu->own;
    cl_int code, state = CL_SUCCESS;
    const unsigned char *start = binary;
    cl_program program =
        o->cl->clCreateProgramWithBinary(o->context, 1, &o->device, &bytes, &start, &state, &code);
    if (code != CL_SUCCESS)
        return NULL;
    if (state == CL_SUCCESS)
        return build(gpu, program, name, false);
    (void)o->cl->clReleaseProgram(program);
    return NULL;
}

static gd_status opencl_kernel_binary(gd_gpu *gpu, void *kernel, gd_text_buffer *out)
{
    const opencl *o = gpu->own;
    cl_program program = NULL;
    size_t bytes = 0;
    cl_int code = o->cl->clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    if (code == CL_SUCCESS)
        code =
            o->cl->clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    if (code != CL_SUCCESS || bytes == 0)
        return check(gpu, code, "clGetProgramInfo");
    unsigned char *binary = gd_alloc(bytes);
    if (!binary)
        return GD_ERR_MEMORY;
    code = o->cl->clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    if (code == CL_SUCCESS)
        gd_buffer_put(out, binary, bytes);
    gd_free(binary);
    return check(gpu, code, "clGetProgramInfo");
}

static void opencl_kernel_release(gd_gpu *gpu, void *kernel)
{
    const opencl *o = gpu->own;
    (void)o->cl->clReleaseKernel(kernel);
}

static cl_int set_arguments(const opencl *o, const gd_gpu_launch *launch)
{
    cl_uint number = 0;
    cl_int code = CL_SUCCESS;
    for (int i = 0; code == CL_SUCCESS && i < launch->places; i++) {
        cl_mem block = launch->place[i].block;
        const cl_ulong offset = launch->place[i].offset;
        code = o->cl->clSetKernelArg(launch->kernel, number++, sizeof block, &block);
        if (code == CL_SUCCESS)
            code = o->cl->clSetKernelArg(launch->kernel, number++, sizeof offset, &offset);
    }
    if (code == CL_SUCCESS && launch->numbers)
        code = o->cl->clSetKernelArg(launch->kernel, number,
                                     sizeof(int64_t) * (size_t)launch->numbers, launch->number);
    return code;
}

static gd_status opencl_launch(gd_gpu *gpu, const gd_gpu_launch *launch)
{
    opencl *o = gpu->own;
    const size_t group[2] = { (size_t)launch->items, 1 };
    const size_t items[2] = { (size_t)launch->groups[0] * group[0], (size_t)launch->groups[1] };
    cl_int code = set_arguments(o, launch);
    if (code != CL_SUCCESS)
        return check(gpu, code, "clSetKernelArg");
    code = o->cl->clEnqueueNDRangeKernel(o->queue, launch->kernel, 2, NULL, items, group, 0, NULL,
                                         NULL);
    if (++o->unflushed == LAUNCHES_TO_FLUSH) { /* the device begins while we go on */
        o->unflushed = 0;
        (void)o->cl->clFlush(o->queue);
    }
    return check(gpu, code, "clEnqueueNDRangeKernel");
}

/* ---- the back end ---- */

static const gd_gpu_driver driver = {
    .dialect = GD_DIALECT_OPENCL,
    .open = opencl_open,
    .close = opencl_close,
    .dlpack_type = 4, /* kDLOpenCL */
    .block_adopt = opencl_block_adopt,
    .block_create = opencl_block_create,
    .block_release = opencl_block_release,
    .write = opencl_write,
    .read = opencl_read,
    .copy = opencl_copy,
    .is_past = opencl_is_past,
    .await = opencl_await,
    .synchronize = opencl_synchronize,
    .kernel_compile = opencl_kernel_compile,
    .kernel_load = opencl_kernel_load,
    .kernel_binary = opencl_kernel_binary,
    .kernel_release = opencl_kernel_release,
    .launch = opencl_launch,
};

static const char *const names[GD_OPENCL_MOST_DEVICES] = {
    "opencl:0",  "opencl:1",  "opencl:2",  "opencl:3",  "opencl:4",  "opencl:5",
    "opencl:6",  "opencl:7",  "opencl:8",  "opencl:9",  "opencl:10", "opencl:11",
    "opencl:12", "opencl:13", "opencl:14", "opencl:15",
};

static gd_device *opencl_open_device(const gd_open_options *options, int index)
{
    if (index >= GD_OPENCL_MOST_DEVICES)
        return (void)fail_unknown(index), NULL;
    return gd_gpu_open(&gd_backend_opencl, &driver, index, options);
}

const gd_backend gd_backend_opencl = {
    .name = "opencl",
    .count = opencl_count,
    .names = names,
    .open = opencl_open_device,
    GD_GPU_BACKEND_FUNCTIONS,
};
