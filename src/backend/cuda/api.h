/* backend/cuda/api.h: what of CUDA's driver API, of NVRTC and of cuBLASLt is used, as NVIDIA documents
 * it: declared
 * here, and found in the machine's libraries when a device is first asked for. So nothing of CUDA is
 * needed to build the engine. */
#ifndef GD_BACKEND_CUDA_API_H
#define GD_BACKEND_CUDA_API_H

#include <stdbool.h>
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

typedef struct cublasLt_st *cublasLtHandle_t;
typedef struct cublasLtDesc_st *cublasLtMatmulDesc_t;
typedef struct cublasLtLayout_st *cublasLtMatrixLayout_t;
typedef struct cublasLtPreference_st *cublasLtMatmulPreference_t;
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

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
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
};

/* cuBLASLt's; a comment says what type an attribute has. */
enum {
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14,

    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,

    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,

    CUBLASLT_MATMUL_DESC_TRANSA = 3,       /* int32_t */
    CUBLASLT_MATMUL_DESC_TRANSB = 4,       /* int32_t */
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,     /* uint32_t */
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8, /* void * */
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,

    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          /* int32_t */
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, /* int64_t */

    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   /* uint64_t */
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, /* uint32_t */
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, /* uint32_t, as B, C and D */
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
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

typedef struct gd_cublas_api {
#define PRODUCTS(name, parameters) int(*name) parameters;
#include "backend/cuda/functions.def"
    size_t (*cublasLtGetVersion)(void);
    const char *(*cublasLtGetStatusName)(int status);
    size_t version; /* 130100: 13.1 */
} gd_cublas_api;

/* ---- library.c ---- */

/* A library of NVIDIA's by the name of its file, "libcuda.so.1", from where GRADUS_CUDA_PATH says or the
 * system has it; NULL: there is none. */
void *gd_cuda_library_open(const char *name);
/* Puts the library's function of that name into *function, a pointer to a function, or says in
 * `reason` that there is none. */
#define GD_CUDA_REASON 512
bool gd_cuda_library_find(void *library, const char *name, void *function,
                          char reason[GD_CUDA_REASON]);

/* The driver, found and begun once; NULL with the reason recorded. */
const gd_cuda_api *gd_cuda(void);
/* The newest compiler that the driver runs the programs of; NULL with the reason recorded. */
const gd_nvrtc_api *gd_nvrtc(void);
/* The newest cuBLASLt that is there and not newer than the driver; NULL with the reason recorded. */
const gd_cublas_api *gd_cublas(void);
/* "CUDA_ERROR_OUT_OF_MEMORY: out of memory" */
#define GD_CUDA_ERROR_TEXT 160
const char *gd_cuda_error_text(int error, char text[GD_CUDA_ERROR_TEXT]);

#endif
