/* backend/cuda/api.h: what of CUDA's driver API and of NVRTC is used, as NVIDIA documents it: declared
 * here, and found in the machine's libraries when a device is first asked for. So nothing of CUDA is
 * needed to build the engine. */
#ifndef GD_BACKEND_CUDA_API_H
#define GD_BACKEND_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct nvrtcProgram_st *nvrtcProgram;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
};

/* cuLaunchKernel's `extra`: how the arguments' bytes are given. */
#define CU_LAUNCH_PARAM_END            ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE    ((void *)2)

typedef struct gd_cuda_api {
#define DRIVER(name, parameters) int(*name) parameters;
#include "backend/cuda/functions.def"
    int driver_version; /* 13000: CUDA 13.0 */
} gd_cuda_api;

typedef struct gd_nvrtc_api {
#define COMPILER(name, parameters) int(*name) parameters;
#include "backend/cuda/functions.def"
    const char *(*nvrtcGetErrorString)(int error);
    int major, minor;
} gd_nvrtc_api;

/* library.c: the driver, found and begun once; NULL with the reason recorded. */
const gd_cuda_api *gd_cuda(void);
/* The newest compiler that the driver runs the programs of; NULL with the reason recorded. */
const gd_nvrtc_api *gd_nvrtc(void);
/* "CUDA_ERROR_OUT_OF_MEMORY: out of memory" */
#define GD_CUDA_ERROR_TEXT 160
const char *gd_cuda_error_text(int error, char text[GD_CUDA_ERROR_TEXT]);

#endif
