/* compile/export_spatial.c: convolution and pooling as C statements: the shape as a constant, and a
 * call of a function of codegen/kernels.txt. Start at the two functions at the end. */
#include "compile/export.h"

#include "base/error.h"
#include "ops/spatial.h"

static void add_sizes(gd_export *e, const int64_t size[GD_SPATIAL])
{
    gd_buffer_add(&e->body, ", { ");
    for (int a = 0; a < GD_SPATIAL; a++)
        gd_buffer_add(&e->body, "%s%lld", a ? ", " : "", (long long)size[a]);
    gd_buffer_add(&e->body, " }");
}

static const gd_layout *layout_of(const gd_export *e, int32_t value)
{
    return &e->plan->ir.values[value].layout;
}

/* "x0, x1, r0);": the call's end */
static void add_call(gd_export *e, const gd_ir_value *v, const char *after_inputs)
{
    gd_buffer_add(&e->body, "        %s_%s(&shape", v->op->name,
                  gd_codegen_suffix(layout_of(e, v->in[0])->dtype));
    for (int k = 0; k < v->n; k++)
        gd_buffer_add(&e->body, ", x%d", k);
    gd_buffer_add(&e->body, "%s, r0);\n", after_inputs);
}

/* How large the copy with zeros around is, of what taps see (codegen/kernels.txt): its margin before
 * each axis and its size. Returns how many numbers the function needs as scratch. */
static int64_t conv_room(const gd_conv_sizes *s, const gd_conv_attr *attr, gd_op_id op,
                         int64_t margin[GD_SPATIAL], int64_t room[GD_SPATIAL])
{
    for (int a = 0; a < GD_SPATIAL; a++) {
        const int64_t reach = (s->kernel[a] - 1) * attr->dilation[a], stride = attr->stride[a];
        margin[a] = attr->before[a];
        int64_t filled = margin[a] + s->in[a], seen = (s->out[a] - 1) * stride + reach + 1;
        if (op == GD_OP_convolution_grad_input) {
            const int64_t outside = reach - attr->before[a];
            margin[a] = outside > 0 ? (outside + stride - 1) / stride : 0;
            filled = margin[a] + s->out[a];
            seen = margin[a] + (s->in[a] + attr->before[a] + stride - 1) / stride + 1;
        }
        room[a] = filled > seen ? filled : seen;
    }
    const int64_t plane = room[0] * room[1] * room[2], places = s->out[0] * s->out[1] * s->out[2];
    if (op == GD_OP_convolution_grad_input)
        return s->o * plane + room[2];
    if (op == GD_OP_convolution_grad_weight) {
        const int64_t images = places ? 255 / places + 2 : 0; /* that 256 positions lie in */
        return (images < s->n ? images : s->n) * s->c * plane + room[2];
    }
    return s->c * plane + room[2] + s->o * s->out[0] * s->out[1] * room[2];
}

/* How many numbers conv_images_f32 needs as scratch, where that function is better; else 0. */
static int64_t images_room(const gd_conv_sizes *s, const gd_conv_attr *attr, bool by_input)
{
    enum { IMAGES = 16, FEW_CHANNELS = 4, MOST_TAPS = 256, MOST = 1 << 20 };
    const int64_t *from = by_input ? s->out : s->in;
    const int64_t channels = by_input ? s->o : s->c, results = by_input ? s->c : s->o;
    const int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    const int64_t images = (s->n + IMAGES - 1) / IMAGES * IMAGES;
    const int64_t room =
        images * channels * from[0] * from[1] * from[2] + results * (IMAGES + channels * taps);
    const bool has_stride = attr->stride[0] * attr->stride[1] * attr->stride[2] > 1;
    return s->n < IMAGES || channels < FEW_CHANNELS || taps < 2 || taps > MOST_TAPS ||
                   room > MOST || has_stride
               ? 0
               : room;
}

gd_status gd_export_convolution(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_conv_attr *attr = v->attr;
    const gd_layout *first = layout_of(e, v->in[0]), *second = layout_of(e, v->in[1]);
    if (first->dtype != GD_F32)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s of %s",
                       v->op->name, gd_dtype_name(first->dtype));
    const bool by_input = v->op->id == GD_OP_convolution_grad_input,
               by_weight = v->op->id == GD_OP_convolution_grad_weight;
    const gd_conv_sizes s = by_input    ? gd_conv_sizes_of(&v->layout, second, first, attr->groups)
                            : by_weight ? gd_conv_sizes_of(second, &v->layout, first, attr->groups)
                                        : gd_conv_sizes_of(first, second, &v->layout, attr->groups);
    int64_t margin[GD_SPATIAL], room[GD_SPATIAL];
    const int64_t by_images = by_weight ? 0 : images_room(&s, attr, by_input);
    int64_t scratch = conv_room(&s, attr, v->op->id, margin, room);
    scratch = by_images > scratch ? by_images : scratch;
    if (scratch > INT32_MAX)
        return gd_export_refuse(step, e, "so large images");
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        static f32 scratch[%lld];\n", (long long)scratch + 1);
    gd_buffer_add(&e->body, "        static const conv_f32 shape = { %lld, %lld, %lld, %lld",
                  (long long)s.n, (long long)s.groups, (long long)s.c, (long long)s.o);
    add_sizes(e, s.in);
    add_sizes(e, s.kernel);
    add_sizes(e, s.out);
    add_sizes(e, attr->stride);
    add_sizes(e, attr->before);
    add_sizes(e, attr->dilation);
    add_sizes(e, margin);
    add_sizes(e, room);
    gd_buffer_add(&e->body, ", %d };\n", by_images > 0);
    const bool forward = !by_input && !by_weight;
    add_call(e, v,
             !forward     ? ", scratch"
             : v->n > 2   ? (attr->relu ? ", 1, scratch" : ", 0, scratch")
             : attr->relu ? ", NULL, 1, scratch"
                          : ", NULL, 0, scratch");
    return GD_OK;
}

gd_status gd_export_pooling(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    const gd_pool_attr *attr = v->attr;
    const bool is_gradient = v->op->id == GD_OP_max_pool_grad || v->op->id == GD_OP_avg_pool_grad;
    const gd_layout *small = is_gradient ? layout_of(e, v->in[0]) : &v->layout;
    const gd_layout *large = is_gradient ? &v->layout : layout_of(e, v->in[0]);
    const gd_pool_sizes s = gd_pool_sizes_of(large, small, attr);
    if (s.planes * s.in_plane * s.out_plane == 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s of nothing",
                       v->op->name);
    const char *suffix = gd_codegen_suffix(layout_of(e, v->in[0])->dtype);
    gd_export_pointers(e, step);
    gd_buffer_add(&e->body, "        static const pool_%s shape = { %lld", suffix,
                  (long long)s.planes);
    add_sizes(e, s.in);
    add_sizes(e, s.out);
    add_sizes(e, attr->kernel);
    add_sizes(e, attr->stride);
    add_sizes(e, attr->before);
    add_sizes(e, attr->after);
    add_sizes(e, attr->dilation);
    gd_buffer_add(&e->body, ", %d, %d };\n", attr->adaptive != 0, attr->exclude_pad != 0);
    add_call(e, v, "");
    return GD_OK;
}
