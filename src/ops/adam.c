/* ops/adam.c: the step of Adam as one op of three results, so that a kernel reads and writes each
 * number once; and the same put together of elementwise ops, for devices without one. Start at
 * gd_adam_step(). */
#include "ops/adam.h"
#include "ops/random.h"

#include "ops/internal.h"

static bool is_number(int operand)
{
    return operand >= GD_ADAM_NUMBERS && operand != GD_ADAM_WORDS;
}

static gd_status check_shapes(int n, const gd_layout *const *in)
{
    for (int k = 0; k < n; k++)
        if (is_number(k) ? in[k]->rank > 0 : !gd_layout_same_shape(in[k], in[GD_ADAM_P])) {
            char p[GD_SHAPE_TEXT], other[GD_SHAPE_TEXT];
            return gd_fail(GD_ERR_SHAPE, "gd_adam: operand %d is %s beside a parameter %s", k,
                           gd_layout_text(in[k], other), gd_layout_text(in[GD_ADAM_P], p));
        }
    return GD_OK;
}

static gd_status infer_adam(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)attr;
    gd_status status = check_shapes(n, in);
    return status == GD_OK ? gd_infer_like(in[GD_ADAM_P], in[GD_ADAM_P]->dtype, "gd_adam", out)
                           : status;
}

/* The first result is m'. */
static gd_status infer_adam_bf16(int n, const gd_layout *const *in, const void *attr,
                                 gd_layout *out)
{
    (void)attr;
    gd_status status = check_shapes(n, in);
    if (status == GD_OK && (in[GD_ADAM_M]->dtype != GD_BF16 || in[GD_ADAM_V]->dtype != GD_BF16 ||
                            in[GD_ADAM_WORDS]->dtype != GD_I32))
        return gd_fail(GD_ERR_DTYPE, "gd_adam: moments in bf16 and words in i32 are needed");
    return status == GD_OK ? gd_infer_like(in[GD_ADAM_P], GD_BF16, "gd_adam", out) : status;
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

/* The same of moments in bf16: widened, and rounded by the halves of words. */
static bool compose_bf16(gd_tensor *const *in, gd_tensor **results)
{
    gd_tensor *wide[GD_ADAM_OPERANDS];
    memcpy(wide, in, sizeof wide);
    wide[GD_ADAM_M] = gd_cast(in[GD_ADAM_M], GD_F32);
    wide[GD_ADAM_V] = gd_cast(in[GD_ADAM_V], GD_F32);
    if (!wide[GD_ADAM_M] || !wide[GD_ADAM_V] || !compose(wide, results))
        return false;
    for (int r = GD_ADAM_NEXT_M; r <= GD_ADAM_NEXT_V; r++) {
        gd_tensor *noise = gd_word_half(in[GD_ADAM_WORDS], r == GD_ADAM_NEXT_V, GD_F32);
        results[r] = gd_cast(gd_round_bf16(results[r], noise), GD_BF16);
    }
    return results[GD_ADAM_NEXT_M] && results[GD_ADAM_NEXT_V];
}

static gd_tensor *decompose_adam_bf16(int n, gd_tensor *const *in, const void *attr)
{
    (void)n, (void)attr;
    gd_tensor *results[GD_ADAM_RESULTS];
    return compose_bf16(in, results) ? results[0] : NULL;
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

const gd_op gd_op_adam_bf16 = { .id = GD_OP_adam_bf16,
                                .name = "adam_bf16",
                                .arity = GD_ADAM_BF16_OPERANDS,
                                .dtypes = GD_DTYPE_SET(GD_F32),
                                .alike = GD_ALIKE_ALL &
                                         ~(UINT64_C(1) << GD_ADAM_M | UINT64_C(1) << GD_ADAM_V |
                                           UINT64_C(1) << GD_ADAM_WORDS),
                                .extra = GD_ADAM_RESULTS - 1,
                                .infer = infer_adam_bf16,
                                .decompose = decompose_adam_bf16,
                                .flops = flops_adam,
                                .recompute = GD_RECOMPUTE_MOVES };

/* Whether the op can be recorded: a device with its kernel, in a trace. */
static bool is_one_op(gd_op_id id, gd_tensor *const *in)
{
    const gd_context *context = in[GD_ADAM_P]->context;
    const gd_layout *layouts[GD_ADAM_BF16_OPERANDS];
    if (!context->trace || in[GD_ADAM_P]->layout.dtype != GD_F32)
        return false;
    const int n = gd_op_row(id)->arity;
    for (int k = 0; k < n; k++) {
        const bool is_alike = gd_op_row(id)->alike >> k & 1;
        if (is_alike && in[k]->layout.dtype != GD_F32)
            return false;
        layouts[k] = &in[k]->layout;
    }
    return gd_op_is_taken(context, id, n, layouts, NULL);
}

/* Extra result number `index` of the op whose first is `first`. */
static gd_tensor *extra_result(gd_tensor *first, int index, gd_dtype dtype)
{
    gd_extra_result_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.index = index;
    attr.dtype = (int32_t)dtype;
    gd_set_shape(&attr.shape, gd_tensor_shape(first));
    return gd_apply1(GD_OP_extra_result, first, &attr);
}

/* in, with 1 for a decay that is not given. false: an operand is none. */
static bool complete(int n, gd_tensor *const *in, gd_tensor **all)
{
    for (int k = 0; k < n; k++) {
        all[k] = in[k];
        if (k == GD_ADAM_DECAY && !in[k])
            all[k] = gd_number_like(in[GD_ADAM_P], 1.0);
        if (!gd_usable(all[k], "gd_adam"))
            return false;
    }
    return true;
}

static bool record(gd_op_id id, gd_tensor *const *all, gd_tensor **results)
{
    results[0] = gd_apply(NULL, id, gd_op_row(id)->arity, all, NULL);
    bool ok = results[0] != NULL;
    for (int r = 1; ok && r < GD_ADAM_RESULTS; r++) {
        const gd_dtype dtype = r == GD_ADAM_NEXT_P ? GD_F32 : results[0]->layout.dtype;
        ok = (results[r] = extra_result(results[0], r - 1, dtype)) != NULL;
    }
    return ok;
}

bool gd_adam_step(gd_tensor *const *in, gd_tensor *results[GD_ADAM_RESULTS])
{
    gd_tensor *all[GD_ADAM_OPERANDS];
    if (!complete(GD_ADAM_OPERANDS, in, all))
        return false;
    return is_one_op(GD_OP_adam, all) ? record(GD_OP_adam, all, results) : compose(in, results);
}

bool gd_adam_step_bf16(gd_tensor *const *in, gd_tensor *results[GD_ADAM_RESULTS])
{
    gd_tensor *all[GD_ADAM_BF16_OPERANDS];
    if (!complete(GD_ADAM_BF16_OPERANDS, in, all))
        return false;
    return is_one_op(GD_OP_adam_bf16, all) ? record(GD_OP_adam_bf16, all, results)
                                           : compose_bf16(in, results);
}
