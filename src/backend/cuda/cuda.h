/* backend/cuda/cuda.h: what the files of this driver share: the device, and kernels. */
#ifndef GD_BACKEND_CUDA_CUDA_H
#define GD_BACKEND_CUDA_CUDA_H

#include "backend/cuda/api.h"
#include "backend/gpu/gpu.h"

/* What a compiler must not do to an expression: contract it, flush subnormal numbers, divide and draw
 * roots with other roundings than IEEE 754's. */
#define GD_CUDA_OPTIONS                                                       \
    {                                                                         \
        "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", \
            "--device-as-default-execution-space"                             \
    }

enum {
    GD_CUDA_PARAMETER_BYTES = 4096, /* of a kernel, on every device */
    GD_CUDA_EVENTS = 256,
    GD_CUDA_CONVOLUTIONS = 256, /* whose plans a device keeps */
};

typedef struct gd_cuda_products gd_cuda_products;
typedef struct gd_cuda_convolutions gd_cuda_convolutions;

typedef struct gd_cuda_device {
    const gd_cuda_api *cu;
    const gd_nvrtc_api *rtc;
    CUdevice device;
    CUcontext context; /* NULL: not had */
    CUstream stream;
    long process;                   /* that opened it */
    int architecture;               /* 90 */
    bool is_machine_code;           /* the compiler makes that, or else intermediate code */
    char architecture_option[40];   /* "--gpu-architecture=sm_90" */
    CUevent events[GD_CUDA_EVENTS]; /* for the next marks */
    int event_count;
    gd_cuda_products *products;         /* cuBLASLt's; NULL where numbers are exact */
    gd_cuda_convolutions *convolutions; /* cuDNN's; NULL: none was asked for */
    bool is_recording;                  /* a graph, from record_begin to record_end */
} gd_cuda_device;

/* ---- cuda.c ---- */

/* GD_OK, or GD_ERR_DEVICE with the driver's words for the error of the function `what`. */
gd_status gd_cuda_check(const gd_gpu *gpu, int error, const char *what);
/* Our context becomes the calling thread's, until leave. */
gd_status gd_cuda_enter(const gd_gpu *gpu);
/* The same for functions that release something, and cannot tell that they did not: tried again. */
bool gd_cuda_enter_to_release(const gd_gpu *gpu);
void gd_cuda_leave(const gd_gpu *gpu);

/* ---- kernels.c: as gd_gpu_driver has them ---- */

void *gd_cuda_kernel_compile(gd_gpu *gpu, const char *text, const char *name);
void *gd_cuda_kernel_load(gd_gpu *gpu, const void *binary, size_t bytes, const char *name);
gd_status gd_cuda_kernel_binary(gd_gpu *gpu, void *kernel, gd_text_buffer *out);
void gd_cuda_kernel_release(gd_gpu *gpu, void *kernel);
gd_status gd_cuda_launch(gd_gpu *gpu, const gd_gpu_launch *launch);

/* ---- graphs.c: likewise ---- */

gd_status gd_cuda_record_begin(gd_gpu *gpu);
void *gd_cuda_record_end(gd_gpu *gpu);
gd_status gd_cuda_replay(gd_gpu *gpu, void *graph);
void gd_cuda_graph_release(gd_gpu *gpu, void *graph);

/* ---- products.c ---- */

/* Into c->products, even where it fails. */
gd_status gd_cuda_products_open(gd_gpu *gpu);
/* In our context. */
void gd_cuda_products_close(gd_cuda_products *products);
/* As gd_gpu_driver has it. */
gd_status gd_cuda_product(gd_gpu *gpu, const gd_gpu_product *product, const gd_gpu_place *place,
                          size_t workspace_bytes, bool *adds_bias);

/* ---- convolution.c: as gd_gpu_driver has them; close: in our context ---- */

gd_status gd_cuda_convolution_find(gd_gpu *gpu, const struct gd_gpu_convolution *c, bool *is_there,
                                   size_t *workspace);
gd_status gd_cuda_convolution_run(gd_gpu *gpu, const struct gd_gpu_convolution *c,
                                  const gd_gpu_place *place);
void gd_cuda_convolutions_close(gd_gpu *gpu);

#endif
