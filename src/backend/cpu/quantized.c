/* backend/cpu/quantized.c: products with weights in blocks: threads and rows. Columns of the result,
 * rows of the weights, are divided among the threads; each rounds the activations for itself, some
 * rows at a time, as many as its cache keeps. */
#include "backend/cpu/cpu.h"
#include "base/threads.h"

#include <string.h>

/* Bytes of rows in blocks: within the second-level cache, and with a row of the longest within
 * GD_CPU_WIDE_SCRATCH. */
#define ROWS_BYTES (128 * 1024)

typedef struct job {
    const gd_kernel_call *call;
    const gd_quantized_kernels *kernels;
    gd_quantized_weights weights;
    int64_t rows, columns, blocks;
} job;

static void run_columns(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t inner = j->blocks * GD_QUANTIZED_BLOCK;
    const int64_t row_bytes = inner + j->blocks * (int64_t)sizeof(float);
    int64_t step = ROWS_BYTES / row_bytes;
    step = step < 1 ? 1 : step < j->rows ? step : j->rows;
    gd_scratch scratch = gd_scratch_of(j->call, thread);
    gd_quantized_rows part = { .blocks = j->blocks };
    part.values = gd_scratch_take(&scratch, (size_t)(step * inner));
    part.scales = gd_scratch_take(&scratch, (size_t)(step * j->blocks) * sizeof(float));
    const float *x = j->call->in[0].data;
    float *out = j->call->out.data;
    for (int64_t row = 0; row < j->rows; row += step) {
        part.rows = j->rows - row < step ? j->rows - row : step;
        j->kernels->quantize(x + row * inner, &part);
        j->kernels->columns(&part, &j->weights, begin, end, out + row * j->columns, j->columns);
    }
}

static gd_status quantized_linear(const gd_kernel_call *call)
{
    const gd_layout *w = call->in[1].layout;
    const int64_t count = gd_layout_count(call->out.layout), inner = w->shape[1];
    if (count == 0)
        return GD_OK;
    job j = { .call = call,
              .kernels = &((const gd_cpu_device *)call->device)->quantized,
              .weights = { call->in[1].data, call->in[2].data,
                           call->in[2].layout->dtype == GD_F16 },
              .columns = w->shape[0],
              .rows = count / w->shape[0],
              .blocks = inner / GD_QUANTIZED_BLOCK };
    if (inner == 0) {
        memset(call->out.data, 0, (size_t)count * sizeof(float));
        return GD_OK;
    }
    /* 64 K products take some 5 us. */
    const int64_t grain = 1 + (64 * 1024) / (inner * j.rows);
    gd_parallel_for(call->device->threads, j.columns, grain, run_columns, &j);
    return GD_OK;
}

void gd_cpu_register_quantized(gd_kernel_fn *kernel)
{
    kernel[GD_OP_quantized_linear] = quantized_linear;
}
