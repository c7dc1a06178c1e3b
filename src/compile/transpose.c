/* compile/transpose.c: products that are read transposed are computed so: (A B)^T = B^T A^T, the same
 * numbers multiplied and added in the same order. The gradient of a weight that a product reads
 * transposed, as the logits do that of a token embedding, is the transpose of a product; computed so
 * it lies as the weight does, where its update reads it in line, and other gradients of that weight
 * are added to it in place.
 *
 * May do so only where one permute alone reads the product, casts in between, and ops alone that take
 * numbers place by place, or as a base that is copied, read that: sums choose their order by how
 * their operand lies. May not touch results. */
#include "compile/passes.h"

#include <string.h>

#include "base/error.h"
#include "graph/apply.h"

/* A product to be computed transposed. */
typedef struct finding {
    int32_t product, view; /* that permute */
    int32_t operand[2];    /* of the new product */
} finding;

static bool is_transpose(const gd_ir *ir, int32_t i)
{
    const gd_ir_value *v = &ir->values[i];
    return v->kind == GD_IR_OP && v->op->id == GD_OP_permute && v->layout.rank == 2 &&
           ((const gd_permute_attr *)v->attr)->order[0] == 1;
}

/* Whether op v reads value `x` place by place, or as a base that is copied: however it lies. */
static bool reads_any_order(const gd_ir_value *v, int32_t x)
{
    const unsigned flags = v->op->flags;
    bool reads = true;
    for (int k = 0; k < v->n; k++)
        reads &= v->in[k] != x || flags & (GD_OP_ELEMENTWISE | GD_OP_EFFECT) || v->op->extra > 0 ||
                 v->op->id == GD_OP_cast || (flags & GD_OP_IN_PLACE && k == 0);
    return reads;
}

/* The product of matrices that value `view`, a transpose, shows, behind casts; or -1. */
static int32_t product_behind(const gd_ir *ir, const gd_ir_users *users, int32_t view)
{
    int32_t i = ir->values[view].in[0];
    for (;; i = ir->values[i].in[0]) {
        const gd_ir_value *v = &ir->values[i];
        if (v->kind != GD_IR_OP || v->is_output || gd_ir_sole_user(users, i) < 0)
            return -1;
        if (v->op->id != GD_OP_cast)
            break;
    }
    const gd_ir_value *p = &ir->values[i];
    return p->op->id == GD_OP_matmul && ir->values[p->in[0]].layout.rank == 2 &&
                   ir->values[p->in[1]].layout.rank == 2
               ? i
               : -1;
}

static bool is_read_in_any_order(const gd_ir *ir, const gd_ir_users *users, int32_t view)
{
    bool is = users->first[view] < users->first[view + 1];
    for (int32_t u = users->first[view]; u < users->first[view + 1]; u++)
        is &= reads_any_order(&ir->values[users->op[u]], view);
    return is;
}

/* The transpose of value x: what x is a transpose of, or a new value at the end. -1: an error. */
static int32_t transpose_of(gd_ir *ir, const finding *f, int32_t x)
{
    if (is_transpose(ir, x))
        return ir->values[x].in[0];
    const gd_ir_value view = ir->values[f->view], product = ir->values[f->product];
    const gd_layout *from = &ir->values[x].layout;
    gd_layout layout;
    if (gd_op_infer(view.op, 1, &from, view.attr, &layout) != GD_OK)
        return -1;
    const int32_t made = gd_ir_push(ir, view.op, 1, &x, view.attr, &layout);
    if (made >= 0) {
        ir->values[made].phase = product.phase;
        ir->values[made].region = product.region;
    }
    return made;
}

/* Layouts from the product to value i, a cast behind it or itself. */
static gd_status infer_again(gd_ir *ir, const finding *f, int32_t i)
{
    gd_ir_value *v = &ir->values[i];
    const gd_layout *in[GD_OP_MAX_INPUTS];
    if (i != f->product && infer_again(ir, f, v->in[0]) != GD_OK)
        return gd_error_last();
    gd_ir_layouts(ir, v, in);
    return gd_op_infer(v->op, v->n, in, v->attr, &v->layout);
}

/* Whether the device computes b a in its place. */
static bool is_taken(const gd_ir *ir, const finding *f)
{
    const gd_ir_value *p = &ir->values[f->product];
    const gd_layout *in[] = { &ir->values[f->operand[0]].layout,
                              &ir->values[f->operand[1]].layout };
    gd_layout layout;
    return gd_op_infer(p->op, 2, in, p->attr, &layout) == GD_OK &&
           gd_ir_device_takes(ir, p->op, p->attr, 2, f->operand, &layout, NULL);
}

/* The values before `count`, and before a product the new ones, which are found in order. */
static gd_status insert(gd_ir *ir, gd_arena *scratch, const finding *found, size_t n, int32_t count)
{
    int32_t *first = gd_arena_array(scratch, (size_t)count + 1, sizeof *first);
    int32_t *order = gd_arena_array(scratch, ir->count + 1, sizeof *order);
    if (!first || !order)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        first[found[i].product] = (int32_t)i + 1;
    size_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        for (int k = 0; first[i] && k < 2; k++)
            if (found[first[i] - 1].operand[k] >= count)
                order[kept++] = found[first[i] - 1].operand[k];
        order[kept++] = i;
    }
    return gd_ir_reorder(ir, order, kept);
}

gd_status gd_pass_transpose(gd_ir *ir, gd_arena *scratch, int *changes)
{
    gd_ir_users users;
    const int32_t count = (int32_t)ir->count;
    if (!ir->context->device->limits.products_commute)
        return GD_OK;
    finding *found = gd_arena_array(scratch, ir->count + 1, sizeof *found);
    int32_t *replaced_by = gd_arena_array(scratch, 3 * ir->count + 1, sizeof *replaced_by);
    if (!found || !replaced_by || gd_ir_users_make(&users, ir, scratch) != GD_OK)
        return GD_ERR_MEMORY;
    size_t n = 0;
    for (int32_t i = 0; i < 3 * count; i++)
        replaced_by[i] = i;
    for (int32_t i = 0; i < count; i++) {
        if (!is_transpose(ir, i) || ir->values[i].is_output || ir->values[i].is_constant ||
            !is_read_in_any_order(ir, &users, i))
            continue;
        finding f = { .product = product_behind(ir, &users, i), .view = i };
        if (f.product < 0)
            continue;
        const gd_ir_value product = ir->values[f.product];
        f.operand[0] = transpose_of(ir, &f, product.in[1]);
        f.operand[1] = f.operand[0] < 0 ? -1 : transpose_of(ir, &f, product.in[0]);
        if (f.operand[1] < 0)
            return gd_error_last();
        if (!is_taken(ir, &f))
            continue;
        memcpy(product.in, f.operand, sizeof f.operand);
        if (infer_again(ir, &f, ir->values[i].in[0]) != GD_OK)
            return gd_error_last();
        replaced_by[i] = ir->values[i].in[0];
        ir->values[i].kind = GD_IR_DEAD;
        found[n++] = f;
        ++*changes;
    }
    if (ir->count == (size_t)count && n == 0)
        return GD_OK;
    gd_ir_replace(ir, replaced_by);
    return insert(ir, scratch, found, n, count);
}
