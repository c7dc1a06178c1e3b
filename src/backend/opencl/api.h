/* backend/opencl/api.h: what of OpenCL 1.2 is used, as its specification has it: declared here, and
 * found in the system's library when a device is first asked for. So nothing of OpenCL is needed to
 * build the engine. */
#ifndef GD_BACKEND_OPENCL_API_H
#define GD_BACKEND_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct cl_platform_id_object *cl_platform_id;
typedef struct cl_device_id_object *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_command_queue_object *cl_command_queue;
typedef struct cl_mem_object *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef struct cl_event_object *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_bitfield;
typedef intptr_t cl_context_properties;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_FALSE = 0,
    CL_TRUE = 1,
    CL_COMPLETE = 0,

    CL_DEVICE_TYPE_ALL_LOW = -1, /* as 64 bits: every type */

    CL_PLATFORM_VERSION = 0x0901,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_CONTEXT_PLATFORM = 0x1084,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_MEM_SIZE = 0x1102,
    CL_MEM_CONTEXT = 0x1106,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_PROGRAM = 0x1194,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,

    /* bits of a floating-point configuration */
    CL_FP_DENORM = 1 << 0,
    CL_FP_INF_NAN = 1 << 1,
    CL_FP_ROUND_TO_NEAREST = 1 << 2,
    CL_FP_FMA = 1 << 5,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
};

/* function(result, name, parameters) for each that is used. */
#define GD_OPENCL_FUNCTIONS(function)                                                              \
    function(cl_int, clGetMemObjectInfo, (cl_mem, cl_uint, size_t, void *, size_t *)) function(    \
        cl_int, clGetPlatformIDs,                                                                  \
        (cl_uint, cl_platform_id *,                                                                \
         cl_uint *)) function(cl_int, clGetPlatformInfo,                                           \
                              (cl_platform_id, cl_uint, size_t, void *,                            \
                               size_t *)) function(cl_int, clGetDeviceIDs,                         \
                                                   (cl_platform_id, cl_bitfield, cl_uint,          \
                                                    cl_device_id *,                                \
                                                    cl_uint *)) function(cl_int, clGetDeviceInfo,  \
                                                                         (cl_device_id, cl_uint,   \
                                                                          size_t, void *,          \
                                                                          size_t *))               \
        function(cl_context, clCreateContext,                                                      \
                 (const cl_context_properties *, cl_uint, const cl_device_id *,                    \
                  void (*)(const char *, const void *, size_t, void *), void *, cl_int *))         \
            function(cl_int, clReleaseContext,                                                     \
                     (cl_context)) function(cl_command_queue, clCreateCommandQueue,                \
                                            (cl_context, cl_device_id, cl_bitfield, cl_int *))     \
                function(cl_int, clReleaseCommandQueue,                                            \
                         (cl_command_queue)) function(cl_int, clFlush, (cl_command_queue))         \
                    function(cl_int, clFinish, (cl_command_queue)) function(                       \
                        cl_mem,                                                                    \
                        clCreateBuffer,                                                            \
                        (cl_context, cl_bitfield, size_t, void *,                                  \
                         cl_int *)) function(cl_int, clReleaseMemObject, (cl_mem))                 \
                        function(cl_int, clEnqueueReadBuffer,                                      \
                                 (cl_command_queue, cl_mem,                                        \
                                  cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,      \
                                  cl_event *))                                                     \
                            function(                                                              \
                                cl_int,                                                            \
                                clEnqueueWriteBuffer,                                              \
                                (cl_command_queue, cl_mem, cl_bool, size_t, size_t,                \
                                 const void *, cl_uint, const cl_event *, cl_event *))             \
                                function(                                                          \
                                    cl_int,                                                        \
                                    clEnqueueCopyBuffer,                                           \
                                    (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t,     \
                                     cl_uint,                                                      \
                                     const cl_event *,                                             \
                                     cl_event *)) function(cl_int, clWaitForEvents,                \
                                                           (cl_uint, const cl_event *))            \
                                    function(                                                      \
                                        cl_int,                                                    \
                                        clGetEventInfo,                                            \
                                        (cl_event, cl_uint, size_t, void *,                        \
                                         size_t *)) function(cl_int, clReleaseEvent, (cl_event))   \
                                        function(cl_program, clCreateProgramWithSource,            \
                                                 (cl_context, cl_uint, const char **,              \
                                                  const size_t *,                                  \
                                                  cl_int                                           \
                                                      *)) function(cl_program,                     \
                                                                   clCreateProgramWithBinary,      \
                                                                   (cl_context, cl_uint,           \
                                                                    const cl_device_id *,          \
                                                                    const size_t *,                \
                                                                    const unsigned char **,        \
                                                                    cl_int *, cl_int *))           \
                                            function(cl_int, clBuildProgram,                       \
                                                     (cl_program,                                  \
                                                      cl_uint, const cl_device_id *, const char *, \
                                                      void (*)(cl_program, void *), void *))       \
                                                function(                                          \
                                                    cl_int,                                        \
                                                    clGetProgramInfo,                              \
                                                    (cl_program, cl_uint, size_t, void *,          \
                                                     size_t *))                                    \
                                                    function(cl_int, clGetProgramBuildInfo,        \
                                                             (cl_program, cl_device_id,            \
                                                              cl_uint, size_t, void *,             \
                                                              size_t                               \
                                                                  *)) function(cl_int,             \
                                                                               clReleaseProgram,   \
                                                                               (cl_program))       \
                                                        function(                                  \
                                                            cl_kernel, clCreateKernel,             \
                                                            (cl_program, const char *, cl_int *))  \
                                                            function(                              \
                                                                cl_int,                            \
                                                                clGetKernelInfo,                   \
                                                                (cl_kernel, cl_uint, size_t,       \
                                                                 void *,                           \
                                                                 size_t                            \
                                                                     *)) function(cl_int,          \
                                                                                  clReleaseKernel, \
                                                                                  (cl_kernel))     \
                                                                function(                          \
                                                                    cl_int,                        \
                                                                    clSetKernelArg,                \
                                                                    (cl_kernel, cl_uint, size_t,   \
                                                                     const void *))                \
                                                                    function(                      \
                                                                        cl_int,                    \
                                                                        clEnqueueNDRangeKernel,    \
                                                                        (cl_command_queue,         \
                                                                         cl_kernel, cl_uint,       \
                                                                         const size_t *,           \
                                                                         const size_t *,           \
                                                                         const size_t *, cl_uint,  \
                                                                         const cl_event *,         \
                                                                         cl_event *))

typedef struct gd_opencl_api {
#define GD_OPENCL_MEMBER(result, name, parameters) result(*name) parameters;
    GD_OPENCL_FUNCTIONS(GD_OPENCL_MEMBER)
} gd_opencl_api;

/* library.c: the functions, found once; NULL with the reason recorded. */
const gd_opencl_api *gd_opencl(void);
/* "CL_OUT_OF_RESOURCES" */
const char *gd_opencl_error_name(cl_int code, char text[32]);

enum { GD_OPENCL_MOST_DEVICES = 16 };
/* All devices of all platforms, the platforms in their order; at most GD_OPENCL_MOST_DEVICES. */
int gd_opencl_devices(cl_device_id devices[GD_OPENCL_MOST_DEVICES],
                      cl_platform_id platforms[GD_OPENCL_MOST_DEVICES]);

#endif
