/* backend/gpu/quantized.c: products with weights in blocks (ops/quantized.c): activations are rounded,
 * block by block, then multiplied. The kernels are in codegen/device/quantized.txt. */
#include "backend/gpu/gpu.h"

#include "base/quantized_form.h"

enum { ITEMS = 128, BLOCK = 32 };

static void add_numbers(gd_gpu_step *step, int64_t rows, int64_t columns, int64_t blocks)
{
    gd_gpu_add_number(step, rows);
    gd_gpu_add_number(step, columns);
    gd_gpu_add_number(step, blocks);
}

/* How weights lie: a byte each, or two in one, the first half of a block in the low four bits. */
static void define_weights(gd_gpu_step *step, const gd_quantized_form *form, gd_dtype values,
                           gd_dtype scales)
{
    gd_gpu_define(step, "W", "%s", gd_codegen_type(values));
    gd_gpu_define(step, "S", "%s", gd_codegen_storage(scales));
    gd_gpu_define(step, "SCALE(x)", scales == GD_F16 ? "gd_f16_to_f32(x)" : "(x)");
    gd_gpu_define(step, "BYTES", "%d", form->bytes);
    gd_gpu_define(step, "LEAST", "%d", form->has_least);
    if (form->groups) {
        gd_gpu_define(step, "QUANTS", "%d", form->numbers);
        gd_gpu_define(step, "GROUPS", "%d", form->groups);
    }
    const int offset = form->has_least ? 0 : 8;
    if (form->four_bits) {
        gd_gpu_define(step, "FIRST(w, i)", "((w)[i] %% 16 - %d)", offset);
        gd_gpu_define(step, "SECOND(w, i)", "((w)[i] / 16 - %d)", offset);
    } else {
        gd_gpu_define(step, "FIRST(w, i)", "(w)[i]");
        gd_gpu_define(step, "SECOND(w, i)", "(w)[(i) + 16]");
    }
}

bool gd_gpu_describe_quantized(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_layout *values = call->in[1].layout, *scales = call->in[2].layout;
    gd_quantized_form form;
    if (!gd_quantized_form_of(values->dtype == GD_U8, values->shape[1], scales->shape[1], &form))
        return false;
    const int64_t results = gd_layout_count(call->out.layout);
    const int64_t blocks = gd_quantized_inner(&form, scales->shape[1]) / BLOCK;
    const int64_t columns = values->shape[0], rows = columns > 0 ? results / columns : 0;
    if (results == 0)
        return true;
    if (blocks == 0) /* no weights: their places would be nowhere */
        return false;
    job->workspace = (size_t)(rows * blocks) * (sizeof(float) + BLOCK);
    gd_gpu_step *step =
        gd_gpu_add_kernel(job, "quantize_blocks", gd_gpu_groups(rows * blocks, ITEMS), ITEMS);
    gd_gpu_add_place(step, 0);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    add_numbers(step, rows, columns, blocks);
    step = gd_gpu_add_kernel(job, form.groups ? "grouped_products" : "quantized_products",
                             gd_gpu_groups(results, ITEMS), ITEMS);
    define_weights(step, &form, values->dtype, scales->dtype);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    gd_gpu_add_place(step, 1);
    gd_gpu_add_place(step, 2);
    gd_gpu_add_place(step, call->n);
    add_numbers(step, rows, columns, blocks);
    return true;
}
