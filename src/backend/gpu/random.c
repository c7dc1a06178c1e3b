/* backend/gpu/random.c: random_bits and dropout: an item a block of four words of the stream. Where the
 * stream stands lies on the device, in their input; the kernels are in codegen/device/random.txt. */
#include "backend/gpu/gpu.h"

#include "ops/attrs.h"

enum { ITEMS = 128, WORDS = 4 /* of an item */ };

/* The first item may begin with as many as three words before the first one. */
static int64_t groups_of(int64_t words)
{
    return gd_gpu_groups((words + 2 * (WORDS - 1)) / WORDS, ITEMS);
}

bool gd_gpu_describe_random(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_random_attr *attr = call->attr;
    const gd_layout *out = call->out.layout;
    const int64_t words = gd_layout_count(out) * (out->dtype == GD_I64 ? 2 : 1);
    if (words == 0)
        return true;
    gd_gpu_step *s = gd_gpu_add_kernel(job, "random_blocks", groups_of(words), ITEMS);
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_number(s, words);
    gd_gpu_add_number(s, (int64_t)attr->offset);
    gd_gpu_add_number(s, call->in[0].layout->stride[0]);
    return true;
}

bool gd_gpu_describe_dropout(const gd_kernel_call *call, gd_gpu_job *job)
{
    const gd_dropout_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    const int64_t items = gd_layout_count(x);
    const char *type = gd_codegen_type(x->dtype);
    gd_loops loops;
    if (!type)
        return false;
    if (items == 0)
        return true;
    gd_codegen_merge(&loops, x, (const gd_layout *[]){ x }, 1);
    gd_gpu_step *s = gd_gpu_add_kernel(job, "drop_elements", groups_of(items), ITEMS);
    gd_gpu_define(s, "T", "%s", type);
    gd_gpu_define(s, "REAL(bits)", "gd_from_bits_%s(bits)", gd_codegen_suffix(x->dtype));
    gd_gpu_add_place(s, 0);
    gd_gpu_add_place(s, 1);
    gd_gpu_add_place(s, 2);
    gd_gpu_add_number(s, items);
    gd_gpu_add_number(s, (int64_t)attr->offset);
    gd_gpu_add_number(s, call->in[1].layout->stride[0]);
    gd_gpu_add_number(s, (int64_t)attr->threshold);
    gd_gpu_add_real(s, x->dtype, attr->scale);
    gd_gpu_add_loops(s, &loops);
    return true;
}
