/* ops/adam.c: the step of Adam as one op of three results, so that a kernel reads and writes each
 * number once; and the same put together of elementwise ops, for devices without one. Start at
 * gd_adam_step(). */
#include "ops/adam.h"

#include "ops/internal.h"

static gd_status infer_adam(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)attr;
    for (int k = 0; k < n; k++)
        if (k < GD_ADAM_NUMBERS ? !gd_layout_same_shape(in[k], in[GD_ADAM_P]) : in[k]->rank > 0) {
            char p[GD_SHAPE_TEXT], other[GD_SHAPE_TEXT];
            return gd_fail(GD_ERR_SHAPE, "gd_adam: operand %d is %s beside a parameter %s", k,
                           gd_layout_text(in[k], other), gd_layout_text(in[GD_ADAM_P], p));
        }
    return gd_infer_like(in[GD_ADAM_P], in[GD_ADAM_P]->dtype, "gd_adam", out);
}

/* The step by elementwise ops. */
static bool compose(gd_tensor *const *in, gd_tensor **results)
{
    gd_tensor *p = in[GD_ADAM_P], *g = in[GD_ADAM_G], *m = in[GD_ADAM_M], *v = in[GD_ADAM_V];
    gd_tensor *change = gd_mul(gd_sub(g, m), in[GD_ADAM_REST1]);
    m = gd_flush_subnormal(gd_add(m, change));
    gd_tensor *kept = gd_mul(v, in[GD_ADAM_BETA2]);
    v = gd_flush_subnormal(gd_add(kept, gd_mul(gd_mul(g, in[GD_ADAM_REST2]), g)));
    gd_tensor *step =
        gd_div(gd_mul(m, in[GD_ADAM_STEP_SIZE]), gd_add(gd_sqrt(v), in[GD_ADAM_EPSILON]));
    results[GD_ADAM_NEXT_P] = gd_sub(in[GD_ADAM_DECAY] ? gd_mul(p, in[GD_ADAM_DECAY]) : p, step);
    results[GD_ADAM_NEXT_M] = m;
    results[GD_ADAM_NEXT_V] = v;
    return m && v && results[GD_ADAM_NEXT_P];
}

static gd_tensor *decompose_adam(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *results[GD_ADAM_RESULTS];
    return compose(in, results) ? results[0] : NULL;
}

static double flops_adam(int n, const gd_layout *const *in, const gd_layout *out, const void *attr)
{
    (void)n, (void)in, (void)attr;
    return GD_ADAM_FLOPS * (double)gd_layout_count(out);
}

const gd_op gd_op_adam = { .id = GD_OP_adam,
                           .name = "adam",
                           .arity = GD_ADAM_OPERANDS,
                           .dtypes = GD_DTYPE_SET(GD_F32),
                           .alike = GD_ALIKE_ALL,
                           .extra = GD_ADAM_RESULTS - 1,
                           .infer = infer_adam,
                           .decompose = decompose_adam,
                           .flops = flops_adam,
                           .recompute = GD_RECOMPUTE_MOVES };

/* Whether the op can be recorded: a device with its kernel, in a trace. */
static bool is_one_op(gd_tensor *const *in)
{
    const gd_context *context = in[GD_ADAM_P]->context;
    const gd_layout *layouts[GD_ADAM_OPERANDS];
    if (!context->trace)
        return false;
    for (int k = 0; k < GD_ADAM_OPERANDS; k++) {
        if (in[k]->layout.dtype != GD_F32)
            return false;
        layouts[k] = &in[k]->layout;
    }
    return gd_op_is_taken(context, GD_OP_adam, GD_ADAM_OPERANDS, layouts, NULL);
}

/* Extra result number `index` of the op whose first is `first`. */
static gd_tensor *extra_result(gd_tensor *first, int index)
{
    gd_extra_result_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.index = index;
    attr.dtype = (int32_t)first->layout.dtype;
    gd_set_shape(&attr.shape, gd_tensor_shape(first));
    return gd_apply1(GD_OP_extra_result, first, &attr);
}

bool gd_adam_step(gd_tensor *const *in, gd_tensor *results[GD_ADAM_RESULTS])
{
    gd_tensor *all[GD_ADAM_OPERANDS];
    for (int k = 0; k < GD_ADAM_OPERANDS; k++) {
        all[k] = in[k];
        if (k == GD_ADAM_DECAY && !in[k])
            all[k] = gd_number_like(in[GD_ADAM_P], 1.0);
        if (!gd_usable(all[k], "gd_adam"))
            return false;
    }
    if (!is_one_op(all))
        return compose(in, results);
    results[0] = gd_apply(NULL, GD_OP_adam, GD_ADAM_OPERANDS, all, NULL);
    bool ok = results[0] != NULL;
    for (int r = 1; ok && r < GD_ADAM_RESULTS; r++)
        ok = (results[r] = extra_result(results[0], r - 1)) != NULL;
    return ok;
}
