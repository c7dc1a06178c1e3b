/* backend/gpu/movement.c: what makes or moves elements without arithmetic: full, iota, pad, concat. An
 * item an element; the kernels are in codegen/device/movement.txt. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "ops/attrs.h"
#include "tensor/element.h"

enum { ITEMS = 128 };

const char *gd_gpu_moved_type(gd_dtype dtype)
{
    static const char *const whole[9] = {
        [1] = "uint8_t", [2] = "uint16_t", [4] = "uint32_t", [8] = "uint64_t"
    };
    return whole[gd_dtype_size(dtype)];
}

static gd_gpu_step *add_kernel(gd_gpu_job *job, const char *name, int64_t items, const char *type)
{
    gd_gpu_step *s = gd_gpu_add_kernel(job, name, gd_gpu_groups(items, ITEMS), ITEMS);
    gd_gpu_define(s, "T", "%s", type);
    return s;
}

/* ---- sources ---- */

bool gd_gpu_describe_full(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_full_attr *attr = call->attr;
    const gd_dtype dtype = call->out.layout->dtype;
    const int64_t items = gd_layout_count(call->out.layout);
    int64_t bits = 0; /* little-endian, as devices are */
    if (gd_dtype_is_integer(dtype))
        gd_element_store_integer(attr->whole, dtype, &bits);
    else
        gd_element_store_real(attr->value, dtype, &bits);
    if (items == 0)
        return true;
    gd_gpu_step *s = add_kernel(job, "fill_elements", items, gd_gpu_moved_type(dtype));
    gd_gpu_add_place(s, 0);
    gd_gpu_add_number(s, items);
    gd_gpu_add_number(s, bits);
    return true;
}

static int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* How an int64_t or a double becomes an element. */
static void define_conversion(gd_gpu_step *s, gd_dtype dtype, bool is_whole)
{
    const char *type = gd_codegen_type(dtype);
    if (dtype == GD_F16 || dtype == GD_BF16)
        gd_gpu_define(s, "CONVERT(x)", "gd_f32_to_%s((float)(double)(x))",
                      dtype == GD_F16 ? "f16" : "bf16");
    else if (gd_dtype_is_float(dtype))
        gd_gpu_define(s, "CONVERT(x)", "(%s)(double)(x)", type);
    else if (is_whole)
        gd_gpu_define(s, "CONVERT(x)", "(%s)(x)", type);
    else
        gd_gpu_define(s, "CONVERT(x)", "f64_to_%s(x)", gd_codegen_suffix(dtype));
}

bool gd_gpu_describe_iota(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_iota_attr *attr = call->attr;
    const gd_dtype dtype = call->out.layout->dtype;
    const char *type = gd_codegen_type(dtype);
    if (dtype == GD_BOOL)
        return false;
    if (attr->count == 0)
        return true;
    gd_gpu_step *s = add_kernel(job, attr->use_integers ? "iota_elements" : "iota_reals",
                                attr->count, type ? type : gd_gpu_moved_type(dtype));
    define_conversion(s, dtype, attr->use_integers);
    gd_gpu_add_place(s, 0);
    gd_gpu_add_number(s, attr->count);
    gd_gpu_add_number(s, attr->use_integers ? attr->integer_start : bits_of(attr->start));
    gd_gpu_add_number(s, attr->use_integers ? attr->integer_step : bits_of(attr->step));
    return true;
}

/* ---- pad, concat ---- */

static void add_axes(gd_gpu_step *s, const int64_t *numbers, int rank)
{
    for (int a = 0; a < GD_MAX_RANK; a++)
        gd_gpu_add_number(s, a < rank ? numbers[a] : 0);
}

bool gd_gpu_describe_pad(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_pad_attr *attr = call->attr;
    const gd_layout *in = call->in[0].layout, *out = call->out.layout;
    const int64_t items = gd_layout_count(out);
    int64_t bits = 0;
    gd_element_store_real(attr->value, out->dtype, &bits);
    if (items == 0)
        return true;
    gd_gpu_step *s = add_kernel(job, "pad_elements", items, gd_gpu_moved_type(out->dtype));
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, items);
    gd_gpu_add_number(s, bits);
    gd_gpu_add_number(s, out->rank);
    add_axes(s, out->shape, out->rank);
    add_axes(s, attr->before, out->rank);
    add_axes(s, in->shape, out->rank);
    add_axes(s, in->stride, out->rank);
    return true;
}

enum { PARTS = 4 }; /* that a launch moves */

/* Inputs [first, first + PARTS) that have elements, to where they begin in the result: offset[i]. */
static void add_parts(gd_gpu_job *job, const gd_kernel_call *call, const int64_t *offset, int first)
{
    int64_t most = 0, items[PARTS] = { 0 };
    int input[PARTS], largest = first; /* which stands for those without elements */
    for (int i = 0; i < PARTS && first + i < call->n; i++) {
        items[i] = gd_layout_count(call->in[first + i].layout);
        largest = items[i] > most ? first + i : largest;
        most = items[i] > most ? items[i] : most;
    }
    if (most == 0)
        return;
    for (int i = 0; i < PARTS; i++)
        input[i] = items[i] > 0 ? first + i : largest;
    gd_gpu_step *s =
        add_kernel(job, "move_elements", most, gd_gpu_moved_type(call->out.layout->dtype));
    s->groups[1] = PARTS;
    for (int i = 0; i < PARTS; i++)
        gd_gpu_add_place(s, input[i]);
    gd_gpu_add_place(s, call->n);
    for (int i = 0; i < PARTS; i++)
        gd_gpu_add_number(s, items[i]);
    for (int i = 0; i < PARTS; i++)
        gd_gpu_add_number(s, offset[input[i]]);
    for (int i = 0; i < PARTS; i++) {
        gd_layout to = *call->in[input[i]].layout;
        gd_loops loops;
        memcpy(to.stride, call->out.layout->stride, sizeof to.stride);
        const gd_layout *operands[] = { call->in[input[i]].layout, &to };
        gd_codegen_merge(&loops, operands[0], operands, 2);
        gd_gpu_add_loops(s, &loops);
    }
}

_Static_assert(GD_OP_MAX_INPUTS <= PARTS * GD_GPU_STEPS, "concat");

bool gd_gpu_describe_concat(const gd_kernel_call *call, gd_gpu_job *job)
{
    const int axis = ((const gd_axis_attr *)call->attr)->axis;
    int64_t offset[GD_OP_MAX_INPUTS] = { 0 };
    for (int i = 1; i < call->n; i++)
        offset[i] =
            offset[i - 1] + call->in[i - 1].layout->shape[axis] * call->out.layout->stride[axis];
    for (int i = 0; i < call->n; i += PARTS)
        add_parts(job, call, offset, i);
    return true;
}
