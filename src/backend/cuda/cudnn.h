/* backend/cuda/cudnn.h: convolutions by cuDNN 9's graph API. What is used of it is declared here and in
 * cudnn.def, as NVIDIA documents it, and found in the machine's libraries at the first convolution of a
 * context that asks for a library's numbers. So nothing of cuDNN is needed to build the engine.
 *
 * cudnn.c finds the library, cudnn_plan.c makes plans and runs them, convolution.c keeps a device's. */
#ifndef GD_BACKEND_CUDA_CUDNN_H
#define GD_BACKEND_CUDA_CUDNN_H

#include "backend/cuda/cuda.h"
#include "backend/gpu/convolution.h"

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

enum {
#define CUDNN_VALUE(name, number) name = (number),
#include "backend/cuda/cudnn.def"
};

typedef struct gd_cudnn_api {
#define CUDNN_FUNCTION(name, parameters) int(*name) parameters;
#include "backend/cuda/cudnn.def"
    const char *(*cudnnGetErrorString)(int status);
    void (*cudnnGetLastErrorString)(char *message, size_t bytes);
    size_t (*cudnnGetVersion)(void);
    int version; /* 92600: cuDNN 9.26.0 */
} gd_cudnn_api;

/* ---- cudnn.c ---- */

/* The library, found once; NULL with the reason recorded: GD_ERR_UNSUPPORTED. */
const gd_cudnn_api *gd_cudnn(void);
/* GD_OK, or GD_ERR_DEVICE with the library's words for the status of the function `what`. */
gd_status gd_cudnn_check(const gd_cudnn_api *api, const char *who, int status, const char *what);

/* ---- cudnn_plan.c ---- */

enum {
    GD_CUDNN_PARTS = 10, /* descriptors of a plan */
    /* What addresses are taken to be multiples of; an operand that lies otherwise is copied. */
    GD_CUDNN_ALIGNMENT = 16,
};
/* Bytes of workspace that an engine may want. Fixed: which engine is taken must not depend on what else is
 * in the memory. */
#define GD_CUDNN_WORKSPACE ((int64_t)64 << 20)

/* Whom plans are for. */
typedef struct gd_cudnn_target {
    const char *name;                    /* in errors: "cuda:0" */
    cudnnHandle_t handle;                /* or NULL: */
    cudnnBackendDescriptor_t properties; /* of a device that is not there */
    bool allows_tf32;                    /* factors rounded to 11 significant bits */
} gd_cudnn_target;

typedef struct gd_cudnn_plan {
    cudnnBackendDescriptor_t part[GD_CUDNN_PARTS];
    int parts;
    cudnnBackendDescriptor_t execution; /* one of them; NULL: no engine does this convolution */
    int64_t workspace;                  /* bytes */
    int64_t engine;                     /* its number */
    uint32_t notes;                     /* bit i: CUDNN_NUMERICAL_NOTE number i */
    int proposed, refused;              /* engines: by the heuristics, of those by us before it */
} gd_cudnn_plan;

/* The plan of the first engine that cuDNN's heuristics propose which is deterministic, has the numbers that
 * are asked for and wants no more workspace than there may be. A failure leaves nothing. */
gd_status gd_cudnn_plan_make(const gd_cudnn_api *dnn, const gd_cudnn_target *target,
                             const gd_gpu_convolution *c, gd_cudnn_plan *plan);
void gd_cudnn_plan_end(const gd_cudnn_api *dnn, gd_cudnn_plan *plan);
/* Addresses of x, w and y. On the handle's stream. */
gd_status gd_cudnn_plan_run(const gd_cudnn_api *dnn, const gd_cudnn_target *target,
                            const gd_cudnn_plan *plan, const CUdeviceptr address[GD_CONV_OPERANDS],
                            CUdeviceptr workspace);

#endif
