/* tests/failing_opencl/failing_opencl.c: an OpenCL library in front of the system's: it passes calls
 * on, counts them and what they make, and fails the n-th. Found by GRADUS_OPENCL_PATH, and told what
 * to do by the functions of failing_opencl.h. */
#include "failing_opencl/failing_opencl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COUNT_ONE(result, name, parameters) +1
enum { FUNCTIONS = GD_OPENCL_FUNCTIONS(COUNT_ONE) };
#define NAME(result, name, parameters) #name,
static const char *const names[FUNCTIONS] = { GD_OPENCL_FUNCTIONS(NAME) };

static int64_t calls[FUNCTIONS], alive, fail_call;
static int fail_function = -1;
static bool lasts, has_failed;
static cl_int fail_code;

static int number_of(const char *name)
{
    int i = FUNCTIONS - 1;
    while (i >= 0 && strcmp(names[i], name) != 0)
        i--;
    return i;
}

void failing_opencl_arm(const char *name, int64_t call, bool lasting, cl_int code)
{
    memset(calls, 0, sizeof calls);
    fail_function = name ? number_of(name) : -1;
    fail_call = call;
    fail_code = code;
    lasts = lasting;
    has_failed = false;
}

int64_t failing_opencl_calls(const char *name)
{
    return calls[number_of(name)];
}

int64_t failing_opencl_alive(void)
{
    return alive;
}

/* Whether this call is one to fail. */
static bool fails(const char *name)
{
    const int function = number_of(name);
    const bool is_meant = calls[function]++ == fail_call && function == fail_function;
    has_failed |= is_meant;
    return is_meant || (lasts && has_failed);
}

/* The system's function of that name; without such a library, NULL. A data pointer is turned into a
 * pointer to a function, which ISO C has no conversion for. */
static bool find(const char *name, void *function)
{
    static void *library;
    if (!library)
        library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(function, &found, sizeof found);
    return found;
}

/* A call that answers with a code. `always`: it waits or releases, and does so before it fails. */
#define PASS(name, parameters, arguments, always)                  \
    cl_int name parameters;                                        \
    cl_int name parameters                                         \
    {                                                              \
        static cl_int(*real) parameters;                           \
        if (!real && !find(#name, &real))                          \
            return CL_DEVICE_NOT_FOUND;                            \
        const bool fail = fails(#name);                            \
        const cl_int got = !fail || (always) ? real arguments : 0; \
        return fail ? fail_code : got;                             \
    }
/* One that makes an object. */
#define MAKE(type, name, parameters, arguments) \
    type name parameters;                       \
    type name parameters                        \
    {                                           \
        static type(*real) parameters;          \
        *code = CL_DEVICE_NOT_FOUND;            \
        if (!real && !find(#name, &real))       \
            return NULL;                        \
        if (fails(#name)) {                     \
            *code = fail_code;                  \
            return NULL;                        \
        }                                       \
        const type made = real arguments;       \
        alive += made != NULL;                  \
        return made;                            \
    }
#define RELEASE(name, type)                    \
    cl_int name(type object);                  \
    cl_int name(type object)                   \
    {                                          \
        static cl_int (*real)(type);           \
        if (!real && !find(#name, &real))      \
            return CL_DEVICE_NOT_FOUND;        \
        alive--;                               \
        const cl_int got = real(object);       \
        return fails(#name) ? fail_code : got; \
    }

/* ---- what there is ---- */

PASS(clGetPlatformIDs, (cl_uint most, cl_platform_id *found, cl_uint *count), (most, found, count),
     false)
PASS(clGetPlatformInfo, (cl_platform_id of, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, what, bytes, to, size), false)
PASS(clGetDeviceIDs,
     (cl_platform_id of, cl_bitfield type, cl_uint most, cl_device_id *found, cl_uint *count),
     (of, type, most, found, count), false)
/* What the device is told to be without. */
static cl_uint without_what;
static cl_bitfield without_bits;

void failing_opencl_without(cl_uint what, cl_bitfield bits)
{
    without_what = what;
    without_bits = bits;
}

cl_int clGetDeviceInfo(cl_device_id of, cl_uint what, size_t bytes, void *to, size_t *size);
cl_int clGetDeviceInfo(cl_device_id of, cl_uint what, size_t bytes, void *to, size_t *size)
{
    static cl_int (*real)(cl_device_id, cl_uint, size_t, void *, size_t *);
    if (!real && !find("clGetDeviceInfo", &real))
        return CL_DEVICE_NOT_FOUND;
    if (fails("clGetDeviceInfo"))
        return fail_code;
    const cl_int got = real(of, what, bytes, to, size);
    if (got == CL_SUCCESS && what == without_what && to && bytes == sizeof without_bits) {
        cl_bitfield number;
        memcpy(&number, to, sizeof number);
        number &= ~without_bits;
        memcpy(to, &number, sizeof number);
    }
    return got;
}

/* ---- contexts and queues ---- */

MAKE(cl_context, clCreateContext,
     (const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
      void (*tell)(const char *, const void *, size_t, void *), void *user, cl_int *code),
     (properties, count, devices, tell, user, code))
RELEASE(clReleaseContext, cl_context)
MAKE(cl_command_queue, clCreateCommandQueue,
     (cl_context context, cl_device_id device, cl_bitfield properties, cl_int *code),
     (context, device, properties, code))
RELEASE(clReleaseCommandQueue, cl_command_queue)
PASS(clFlush, (cl_command_queue queue), (queue), true)
PASS(clFinish, (cl_command_queue queue), (queue), true)

/* ---- memory ---- */

MAKE(cl_mem, clCreateBuffer,
     (cl_context context, cl_bitfield flags, size_t bytes, void *host, cl_int *code),
     (context, flags, bytes, host, code))
RELEASE(clReleaseMemObject, cl_mem)
PASS(clGetMemObjectInfo, (cl_mem of, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, what, bytes, to, size), false)
PASS(clEnqueueReadBuffer,
     (cl_command_queue queue, cl_mem from, cl_bool waits, size_t offset, size_t bytes, void *to,
      cl_uint count, const cl_event *after, cl_event *event),
     (queue, from, waits, offset, bytes, to, count, after, event), false)
PASS(clEnqueueCopyBuffer,
     (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
      size_t bytes, cl_uint count, const cl_event *after, cl_event *event),
     (queue, from, to, from_offset, to_offset, bytes, count, after, event), false)

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem to, cl_bool waits, size_t offset,
                            size_t bytes, const void *from, cl_uint count, const cl_event *after,
                            cl_event *event);
cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem to, cl_bool waits, size_t offset,
                            size_t bytes, const void *from, cl_uint count, const cl_event *after,
                            cl_event *event)
{
    static cl_int (*real)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint,
                          const cl_event *, cl_event *);
    if (!real && !find("clEnqueueWriteBuffer", &real))
        return CL_DEVICE_NOT_FOUND;
    if (fails("clEnqueueWriteBuffer"))
        return fail_code;
    const cl_int code = real(queue, to, waits, offset, bytes, from, count, after, event);
    alive += event && code == CL_SUCCESS;
    return code;
}

/* ---- events ---- */

PASS(clWaitForEvents, (cl_uint count, const cl_event *events), (count, events), true)
PASS(clGetEventInfo, (cl_event of, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, what, bytes, to, size), false)
RELEASE(clReleaseEvent, cl_event)

/* ---- kernels ---- */

/* CL_INVALID_PROGRAM */
enum { CL_INVALID_PROGRAM = -44 };

static bool is_without_f64(void)
{
    return without_what == CL_DEVICE_DOUBLE_FP_CONFIG && !~without_bits;
}

static bool names_f64(cl_uint count, const char **texts)
{
    bool any = false;
    for (cl_uint i = 0; i < count; i++)
        any |= strstr(texts[i], "double") || strstr(texts[i], "fp64");
    return any;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                     const size_t *lengths, cl_int *code);
cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                     const size_t *lengths, cl_int *code)
{
    static cl_program (*real)(cl_context, cl_uint, const char **, const size_t *, cl_int *);
    const bool refuses = is_without_f64() && names_f64(count, texts);
    *code = refuses ? CL_INVALID_PROGRAM : CL_DEVICE_NOT_FOUND;
    if (refuses || (!real && !find("clCreateProgramWithSource", &real)))
        return NULL;
    if (fails("clCreateProgramWithSource")) {
        *code = fail_code;
        return NULL;
    }
    const cl_program made = real(context, count, texts, lengths, code);
    alive += made != NULL;
    return made;
}
MAKE(cl_program, clCreateProgramWithBinary,
     (cl_context context, cl_uint count, const cl_device_id *devices, const size_t *bytes,
      const unsigned char **binaries, cl_int *states, cl_int *code),
     (context, count, devices, bytes, binaries, states, code))

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, void (*tell)(cl_program, void *), void *user);
cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, void (*tell)(cl_program, void *), void *user)
{
    static cl_int (*real)(cl_program, cl_uint, const cl_device_id *, const char *,
                          void (*)(cl_program, void *), void *);
    char all[256];
    snprintf(all, sizeof all, "%s%s", options,
             is_without_f64() ? " -cl-single-precision-constant" : "");
    if (!real && !find("clBuildProgram", &real))
        return CL_DEVICE_NOT_FOUND;
    return fails("clBuildProgram") ? fail_code : real(program, count, devices, all, tell, user);
}

PASS(clGetProgramInfo, (cl_program of, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, what, bytes, to, size), false)
PASS(clGetProgramBuildInfo,
     (cl_program of, cl_device_id device, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, device, what, bytes, to, size), false)
RELEASE(clReleaseProgram, cl_program)
MAKE(cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *code),
     (program, name, code))
PASS(clGetKernelInfo, (cl_kernel of, cl_uint what, size_t bytes, void *to, size_t *size),
     (of, what, bytes, to, size), false)
RELEASE(clReleaseKernel, cl_kernel)
PASS(clSetKernelArg, (cl_kernel kernel, cl_uint number, size_t bytes, const void *value),
     (kernel, number, bytes, value), false)
PASS(clEnqueueNDRangeKernel,
     (cl_command_queue queue, cl_kernel kernel, cl_uint rank, const size_t *offset,
      const size_t *items, const size_t *group, cl_uint count, const cl_event *after,
      cl_event *event),
     (queue, kernel, rank, offset, items, group, count, after, event), false)
