/* compile/epilogue.c: writes matmul, matmul + bias, matmul + ReLU and matmul + bias + ReLU as one
 * `linear`, a convolution with the ReLU behind it as one `convolution`, and backward a matmul whose
 * result goes through the gradient of ReLU as one `matmul_relu_grad`. The product does the rest to
 * each finished element, the same roundings in the same order as the separate kernels.
 *
 * May do so only where the device takes the new op and nobody else reads what disappears, for
 * operands of the new op's dtypes, for a bias that is a vector along the last axis, and a ReLU's
 * result that lies as the product does. The new op stands
 * where the last of the old ones stood, backward where the first did. May not reorder sums, nor
 * join a product with ops that its kernel does not compute bit for bit. */
#include "compile/passes.h"

static gd_dtype dtype_of(const gd_ir *ir, int32_t value)
{
    return ir->values[value].layout.dtype;
}

static bool same_result(const gd_ir_value *a, const gd_ir_value *b)
{
    return gd_layout_same_shape(&a->layout, &b->layout) && a->layout.dtype == b->layout.dtype;
}

/* `bias` is a vector along the last axis of the product, contiguous enough for a kernel. */
static bool is_bias(const gd_ir *ir, int32_t bias, const gd_ir_value *product)
{
    const gd_layout *layout = &ir->values[bias].layout;
    return layout->rank == 1 &&
           layout->shape[0] == product->layout.shape[product->layout.rank - 1] &&
           layout->dtype == product->layout.dtype;
}

static void rewrite(gd_ir *ir, int32_t product, const gd_ir_users *users,
                    const int32_t *overwritten_at, int *changes)
{
    gd_ir_value *p = &ir->values[product];
    int32_t last = product, bias = -1;
    bool relu = false;
    int32_t next = p->is_output ? -1 : gd_ir_sole_user(users, product);
    if (next >= 0 && ir->values[next].op->id == GD_OP_add && same_result(&ir->values[next], p)) {
        gd_ir_value *sum = &ir->values[next];
        int32_t other = sum->in[0] == product ? sum->in[1] : sum->in[0];
        if (other != product && is_bias(ir, other, p) &&
            gd_ir_may_sink(ir, overwritten_at, p, next)) {
            bias = other;
            last = next;
            next = sum->is_output ? -1 : gd_ir_sole_user(users, last);
        }
    }
    if (next >= 0 && ir->values[next].op->id == GD_OP_relu && same_result(&ir->values[next], p) &&
        gd_ir_may_sink(ir, overwritten_at, p, next) &&
        (bias < 0 || gd_ir_may_sink(ir, overwritten_at, &ir->values[last], next))) {
        relu = true;
        last = next;
    }
    if (last == product)
        return;
    gd_linear_attr *attr = gd_arena_push_zero(&ir->memory, sizeof *attr, 8);
    int32_t *in = gd_arena_push(&ir->memory, sizeof(int32_t) * 3, sizeof(int32_t));
    if (!attr || !in)
        return; /* without the rewrite the program is as right as before */
    attr->relu = relu;
    in[0] = p->in[0];
    in[1] = p->in[1];
    in[2] = bias;
    if (!gd_ir_device_takes(ir, gd_op_row(GD_OP_linear), attr, bias >= 0 ? 3 : 2, in, &p->layout,
                            NULL))
        return;
    for (int32_t i = product; i < last; i++)
        if (i == product || (bias >= 0 && i == gd_ir_sole_user(users, product)))
            ir->values[i].kind = GD_IR_DEAD;
    gd_ir_value *v = &ir->values[last];
    v->op = gd_op_row(GD_OP_linear);
    v->attr = attr;
    v->n = bias >= 0 ? 3 : 2;
    v->in = in;
    ++*changes;
}

/* relu_grad(product, y), read by the product's only reader, in the product's place: further down,
 * it would often come behind a gradient of weights, whose memory it need not wait for. */
static bool rewrite_gradient(gd_ir *ir, int32_t product, const gd_ir_users *users,
                             int32_t *replaced_by, int *changes)
{
    gd_ir_value *p = &ir->values[product];
    if (!gd_dtype_set_has(gd_op_row(GD_OP_matmul_relu_grad)->dtypes, dtype_of(ir, p->in[0])))
        return false;
    const int32_t next = p->is_output ? -1 : gd_ir_sole_user(users, product);
    gd_ir_value *gradient = next < 0 ? NULL : &ir->values[next];
    if (!gradient || p->is_constant || gradient->op->id != GD_OP_relu_grad ||
        gradient->in[0] != product || gradient->in[1] > product || !same_result(gradient, p))
        return false;
    const gd_layout *y = &ir->values[gradient->in[1]].layout;
    int32_t *in = gd_arena_push(&ir->memory, sizeof(int32_t) * 3, sizeof(int32_t));
    if (!in || !gd_layout_same_shape(y, &p->layout) || y->dtype != p->layout.dtype ||
        !gd_layout_is_contiguous(y))
        return false;
    in[0] = p->in[0];
    in[1] = p->in[1];
    in[2] = gradient->in[1];
    if (!gd_ir_device_takes(ir, gd_op_row(GD_OP_matmul_relu_grad), NULL, 3, in, &p->layout, NULL))
        return false;
    p->op = gd_op_row(GD_OP_matmul_relu_grad);
    p->attr = NULL;
    p->n = 3;
    p->in = in;
    p->is_output = gradient->is_output;
    replaced_by[next] = product;
    gradient->kind = GD_IR_DEAD;
    ++*changes;
    return true;
}

static void rewrite_convolution(gd_ir *ir, int32_t convolution, const gd_ir_users *users,
                                const int32_t *overwritten_at, int *changes)
{
    gd_ir_value *c = &ir->values[convolution];
    const int32_t next = c->is_output ? -1 : gd_ir_sole_user(users, convolution);
    if (next < 0 || ir->values[next].op->id != GD_OP_relu || !same_result(&ir->values[next], c) ||
        !gd_ir_may_sink(ir, overwritten_at, c, next))
        return;
    gd_conv_attr *attr = gd_arena_push(&ir->memory, sizeof *attr, 8);
    if (!attr)
        return; /* as right as before */
    *attr = *(const gd_conv_attr *)c->attr;
    attr->relu = 1;
    if (!gd_ir_device_takes(ir, c->op, attr, c->n, c->in, &c->layout, NULL))
        return;
    gd_ir_value *relu = &ir->values[next];
    relu->op = c->op;
    relu->attr = attr;
    relu->n = c->n;
    relu->in = c->in;
    c->kind = GD_IR_DEAD;
    ++*changes;
}

static void rewrite_all(gd_ir *ir, const gd_ir_users *users, const int32_t *overwritten_at,
                        int32_t *replaced_by, int *changes)
{
    for (int32_t i = 0; i < (int32_t)ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP)
            continue;
        if (v->op->id == GD_OP_convolution)
            rewrite_convolution(ir, i, users, overwritten_at, changes);
        else if (v->op->id == GD_OP_matmul &&
                 gd_dtype_set_has(gd_op_row(GD_OP_linear)->dtypes, dtype_of(ir, v->in[0])) &&
                 !rewrite_gradient(ir, i, users, replaced_by, changes))
            rewrite(ir, i, users, overwritten_at, changes);
    }
}

gd_status gd_pass_epilogue(gd_ir *ir, gd_arena *scratch, int *changes)
{
    gd_ir_users users;
    int32_t *replaced_by = gd_arena_array(scratch, ir->count + 1, sizeof *replaced_by);
    const int32_t *overwritten_at = gd_ir_find_assignments(ir, scratch);
    if (!replaced_by || !overwritten_at || gd_ir_users_make(&users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->count; i++)
        replaced_by[i] = (int32_t)i;
    rewrite_all(ir, &users, overwritten_at, replaced_by, changes);
    gd_ir_replace(ir, replaced_by);
    return GD_OK;
}
