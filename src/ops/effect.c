/* ops/effect.c: rows of ops that change storage, and of the groups the compiler makes. */
#include "ops/internal.h"

/* inputs: target, value; the result is the target itself. */
static gd_status infer_assign(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n, (void)attr;
    if (!gd_layout_same_shape(in[0], in[1]) || in[0]->dtype != in[1]->dtype)
        return gd_fail(GD_ERR_SHAPE, "gd_assign: the value does not fit its target");
    *out = *in[0];
    return GD_OK;
}

const gd_op gd_op_assign = {
    .id = GD_OP_assign, .name = "assign", .arity = 2, .flags = GD_OP_EFFECT, .infer = infer_assign
};

/* The compiler knows the result's layout and does not ask; a group is described by gd_fused_attr
 * (backend/backend.h). */
static gd_status infer_fused(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    const gd_fused_attr *a = attr;
    if (n != a->n_inputs || a->n_instructions < 1)
        return gd_fail(GD_ERR_INVALID, "fused: %d operands, %d expected", n, a->n_inputs);
    gd_shape shape = GD_SCALAR;
    for (int i = 0; i < n; i++)
        if (!gd_shape_broadcast(shape, gd_layout_shape(in[i]), &shape))
            return gd_fail(GD_ERR_SHAPE, "fused: operands do not broadcast together");
    return gd_layout_init(out, shape, (gd_dtype)a->instruction[a->n_instructions - 1].dtype,
                          "fused");
}

static void format_fused(const void *attr, char *text, size_t size)
{
    const gd_fused_attr *a = attr;
    gd_text t = { text, size, 0 };
    for (int i = 0, k = 0; i < a->n_instructions; i++) {
        bool is_result =
            k < a->n_more && a->more[k] == i; /* marked, as it does not end the group */
        k += is_result;
        gd_text_add(&t, "%s%s%s", i ? " " : "", gd_op_row((gd_op_id)a->instruction[i].op)->name,
                    is_result ? "*" : "");
    }
}

const gd_op gd_op_fused = { .id = GD_OP_fused,
                            .name = "fused",
                            .arity = GD_OP_VARIADIC,
                            .flags = GD_OP_COMPILER_ONLY,
                            .attr_size = sizeof(gd_fused_attr),
                            .infer = infer_fused,
                            .format = format_fused };

static gd_status infer_part(int n, const gd_layout *const *in, const void *attr, gd_layout *out)
{
    (void)n;
    return gd_layout_init(out, gd_layout_shape(in[0]),
                          (gd_dtype)((const gd_part_attr *)attr)->dtype, "part");
}

const gd_op gd_op_part = { .id = GD_OP_part,
                           .name = "part",
                           .arity = 1,
                           .flags = GD_OP_COMPILER_ONLY,
                           .attr_size = sizeof(gd_part_attr),
                           .infer = infer_part };
