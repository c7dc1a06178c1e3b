/* compile/export_steps.c: one step of a plan as C statements. A row a kind of op: the table at the
 * end. Elementwise code comes from the formulas of ops/elementwise.def. */
#include "compile/export.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/formulas.h"

enum { MOST_OPERANDS = GD_FUSED_MAX_INPUTS + 1 + GD_FUSED_MAX_MORE };

/* ---- addresses ---- */

/* "    const f32 *const x0 = (const f32 *)fc1_weight + 3; // [784, 16]" */
void gd_export_pointer(gd_export *e, const char *name, int number, int32_t value, bool is_result)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[value], *root = &ir->values[v->root];
    const char *alias = gd_export_alias(v->layout.dtype), *is_const = is_result ? "" : "const ";
    char shape[GD_SHAPE_TEXT], storage[128];
    int64_t offset = v->layout.offset;
    gd_buffer_add(&e->body, "        %s%s *const %s%d = (%s%s *)", is_const, alias, name, number,
                  is_const, alias);
    if (root->kind == GD_IR_INPUT) {
        e->is_read[v->root] = true;
        gd_buffer_add(&e->body, "input%d", root->input);
    } else if (root->external) {
        gd_export_storage_name(e, e->storage[v->root], storage);
        gd_buffer_add(&e->body, "%s", storage);
        offset += root->external->layout.offset;
    } else if (root->is_constant) {
        e->is_read[v->root] = true;
        gd_buffer_add(&e->body, "constant_%d", v->root);
    } else {
        size_t at = e->plan->memory.offset[v->root];
        gd_buffer_add(&e->body, "(%svoid *)(memory.byte + %zu)", is_const, at);
    }
    if (offset)
        gd_buffer_add(&e->body, " + %lld", (long long)offset);
    gd_buffer_add(&e->body, "; /* %s */\n", gd_layout_text(&v->layout, shape));
}

/* ---- loops over a shape, with axes merged that all operands step through alike ---- */

typedef struct loops {
    int rank, operands;
    int64_t size[GD_MAX_RANK];
    int64_t stride[MOST_OPERANDS][GD_MAX_RANK];
} loops;

static int64_t broadcast_stride(const gd_layout *in, const gd_layout *over, int axis)
{
    int own = axis - (over->rank - in->rank);
    return own < 0 || in->shape[own] == 1 ? 0 : in->stride[own];
}

static void merge(loops *l, const gd_layout *over, const gd_layout *const *operands, int n)
{
    l->rank = 0;
    l->operands = n;
    for (int axis = 0; axis < over->rank; axis++) {
        if (over->shape[axis] == 1)
            continue;
        bool merges = l->rank > 0;
        for (int k = 0; k < n && merges; k++)
            merges = l->stride[k][l->rank - 1] ==
                     broadcast_stride(operands[k], over, axis) * over->shape[axis];
        if (!merges)
            l->size[l->rank++] = 1;
        l->size[l->rank - 1] *= over->shape[axis];
        for (int k = 0; k < n; k++)
            l->stride[k][l->rank - 1] = broadcast_stride(operands[k], over, axis);
    }
}

static void open_loops(gd_export *e, const loops *l, const char *letter)
{
    for (int a = 0; a < l->rank; a++)
        gd_buffer_add(&e->body, "        for (int64_t %s%d = 0; %s%d < %lld; %s%d++)\n", letter, a,
                      letter, a, (long long)l->size[a], letter, a);
}

/* "i0 * 16 + i1", "0" where nothing varies. */
static void add_index(gd_export *e, const loops *l, int operand, const char *letter)
{
    const char *separator = "";
    for (int a = 0; a < l->rank; a++) {
        int64_t stride = l->stride[operand][a];
        if (stride == 0)
            continue;
        gd_buffer_add(&e->body, stride == 1 ? "%s%s%d" : "%s%s%d * %lld", separator, letter, a,
                      (long long)stride);
        separator = " + ";
    }
    if (!*separator)
        gd_buffer_add(&e->body, "0");
}

/* "x0 + i0 * 16", "x0" where nothing varies. */
static void add_place(gd_export *e, const loops *l, const char *pointer, int operand)
{
    bool varies = false;
    for (int a = 0; a < l->rank; a++)
        varies |= l->stride[operand][a] != 0;
    gd_buffer_add(&e->body, "%s%s", pointer, varies ? " + " : "");
    if (varies)
        add_index(e, l, operand, "i");
}

/* What comes before the statement in loops. */
static const char *indent(const loops *l)
{
    return l->rank ? "            " : "        ";
}

/* ---- elementwise: the functions of rows ---- */

/* The functions that formulas call by other names than gd_<word>_<dtype>. */
static const char *const words[][2] = {
    { "SELECT", "select" },       { "MAX", "maximum" },         { "MIN", "minimum" },
    { "ABS", "absolute" },        { "SIGN", "sign" },           { "RELU", "relu" },
    { "FLOOR_DIV", "floor_div" }, { "FLOOR_MOD", "floor_mod" }, { "FMA", "fused_multiply_add" },
    { "SQRT", "square_root" },    { "FLOOR", "round_down" },    { "CEIL", "round_up" },
    { "RINT", "round_even" },     { "TRUNC", "round_to_zero" },
};

static void add_word(gd_buffer *out, const char *word, size_t length, const char *suffix)
{
    if (length == 9 && memcmp(word, "INFINITY_", 9) == 0) {
        gd_buffer_add(out, "INFINITY");
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == length && memcmp(words[i][0], word, length) == 0) {
            gd_buffer_add(out, "%s_%s", words[i][1], suffix);
            return;
        }
    gd_buffer_add(out, "gd_");
    for (size_t i = 0; i < length; i++)
        gd_buffer_add(out, "%c", word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    gd_buffer_add(out, "_%s", suffix);
}

/* static inline float op_add_f32(float x, float y) { return x + y; } */
static void define_op(gd_export *e, gd_op_id op, gd_dtype compute)
{
    if (e->op_is_defined[compute][op])
        return;
    e->op_is_defined[compute][op] = true;
    const gd_op_formula *f = gd_op_formula_of(op);
    const char *type = gd_export_type(compute), *suffix = gd_export_suffix(compute);
    gd_buffer *out = &e->functions;
    gd_buffer_add(out, "static inline %s op_%s_%s(%s x", f->gives_bool ? "uint8_t" : type,
                  gd_op_row(op)->name, suffix, f->chooses ? "uint8_t" : type);
    for (int k = 1; k < f->arity; k++)
        gd_buffer_add(out, ", %s %c", type, 'x' + k);
    gd_buffer_add(out, ")\n{\n    return ");
    bool narrow = f->gives_bool || compute == GD_U8 || compute == GD_BOOL;
    gd_buffer_add(out, "%s", narrow ? "(uint8_t)(" : "");
    for (const char *c = f->text; *c;) {
        size_t length = 0;
        while ((c[length] >= 'A' && c[length] <= 'Z') || c[length] == '_' ||
               (length && c[length] >= '0' && c[length] <= '9'))
            length++;
        if (length)
            add_word(out, c, length, suffix);
        else
            gd_buffer_add(out, "%c", *c);
        c += length ? length : 1;
    }
    gd_buffer_add(out, "%s;\n}\n\n", narrow ? ")" : "");
}

static gd_status add_cast(gd_export *e, gd_dtype from, gd_dtype to, int operand)
{
    bool from_float = gd_dtype_is_float(from), to_integer = to == GD_I32 || to == GD_I64;
    if (to == GD_BOOL)
        gd_buffer_add(&e->body, "(uint8_t)(v%d != 0)", operand);
    else if (from_float && to_integer)
        gd_buffer_add(&e->body, "%s_to_%s(v%d)", gd_export_suffix(from), gd_export_suffix(to),
                      operand);
    else if (from_float && to == GD_U8)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for a cast of %s to u8",
                       gd_dtype_name(from));
    else
        gd_buffer_add(&e->body, "(%s)v%d", gd_export_type(to), operand);
    return GD_OK;
}

/* "const float v5 = op_add_f32(v1, v2);" */
static gd_status add_instruction(gd_export *e, const gd_fused_attr *group, int i,
                                 const gd_dtype *dtypes)
{
    const gd_fused_instruction *in = &group->instruction[i];
    gd_buffer_add(&e->body, "            const %s v%d = ", gd_export_type((gd_dtype)in->dtype),
                  group->n_inputs + i);
    gd_status status = GD_OK;
    if (in->op == GD_OP_cast) {
        status = add_cast(e, dtypes[in->from[0]], (gd_dtype)in->dtype, in->from[0]);
    } else {
        gd_op_id op = (gd_op_id)in->op;
        gd_dtype compute = (gd_dtype)in->compute;
        define_op(e, op, compute);
        gd_buffer_add(&e->body, "op_%s_%s(", gd_op_row(op)->name, gd_export_suffix(compute));
        for (int k = 0; k < gd_op_formula_of(op)->arity; k++)
            gd_buffer_add(&e->body, "%sv%d", k ? ", " : "", in->from[k]);
        gd_buffer_add(&e->body, ")");
    }
    gd_buffer_add(&e->body, ";\n");
    return status;
}

static gd_status export_group(gd_export *e, const gd_step *step, const gd_fused_attr *group)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *operands[MOST_OPERANDS];
    gd_dtype dtypes[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_INSTRUCTIONS];
    for (int k = 0; k < v->n; k++) {
        operands[k] = &ir->values[v->in[k]].layout;
        dtypes[k] = operands[k]->dtype;
        gd_export_pointer(e, "x", k, v->in[k], false);
    }
    for (int i = 0; i < group->n_instructions; i++)
        dtypes[v->n + i] = (gd_dtype)group->instruction[i].dtype;
    for (int r = 0; r <= group->n_more; r++) {
        operands[v->n + r] = &v->layout;
        gd_export_pointer(e, "r", r, step->value + r, true);
    }
    loops l;
    merge(&l, &v->layout, operands, v->n + 1);
    open_loops(e, &l, "i");
    gd_buffer_add(&e->body, "        {\n");
    for (int k = 0; k < v->n; k++) {
        gd_buffer_add(&e->body, "            const %s v%d = x%d[", gd_export_type(dtypes[k]), k, k);
        add_index(e, &l, k, "i");
        gd_buffer_add(&e->body, "];\n");
    }
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < group->n_instructions; i++)
        status = add_instruction(e, group, i, dtypes);
    for (int r = 0; r <= group->n_more; r++) {
        int made = r ? group->more[((const gd_part_attr *)ir->values[step->value + r].attr)->index]
                     : group->n_instructions - 1;
        gd_buffer_add(&e->body, "            r%d[", r);
        add_index(e, &l, v->n, "i");
        gd_buffer_add(&e->body, "] = v%d;\n", v->n + made);
    }
    gd_buffer_add(&e->body, "        }\n");
    return status;
}

static gd_status export_fused(gd_export *e, const gd_step *step)
{
    return export_group(e, step, step->call.attr);
}

/* A row or a cast: a group of one. */
static gd_status export_row(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    gd_fused_attr group;
    memset(&group, 0, sizeof group);
    group.n_inputs = v->n;
    group.n_instructions = 1;
    group.instruction[0] = (gd_fused_instruction){
        .op = (int16_t)v->op->id,
        .dtype = (int16_t)v->layout.dtype,
        .from = { 0, 1, 2 },
        .compute = (int16_t)e->plan->ir.values[v->in[v->n - 1]].layout.dtype,
    };
    return export_group(e, step, &group);
}

/* copy: input 0 to the result; assign: input 1 to input 0. */
static gd_status export_copy(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    bool assigns = gd_ir_is_effect(v);
    int32_t to = assigns ? v->in[0] : step->value, from = v->in[assigns];
    gd_export_pointer(e, "x", 0, from, false);
    gd_export_pointer(e, "r", 0, to, true);
    loops l;
    merge(&l, &ir->values[to].layout,
          (const gd_layout *[]){ &ir->values[from].layout, &ir->values[to].layout }, 2);
    open_loops(e, &l, "i");
    gd_buffer_add(&e->body, "%sr0[", indent(&l));
    add_index(e, &l, 1, "i");
    gd_buffer_add(&e->body, "] = x0[");
    add_index(e, &l, 0, "i");
    gd_buffer_add(&e->body, "];\n");
    return GD_OK;
}

/* ---- matrix products ---- */

static gd_status export_product(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *a = &ir->values[v->in[0]].layout, *b = &ir->values[v->in[1]].layout;
    bool is_linear = v->op->id == GD_OP_linear;
    if (a->rank < 2 || b->rank < 2 || !gd_dtype_is_float(v->layout.dtype))
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for this %s",
                       v->op->name);
    for (int k = 0; k < v->n; k++)
        gd_export_pointer(e, "x", k, v->in[k], false);
    gd_export_pointer(e, "r", 0, step->value, true);
    /* The batch axes, as loops over what is left without the last two. */
    gd_layout batch[3] = { *a, *b, v->layout };
    for (int k = 0; k < 3; k++)
        batch[k].rank -= 2;
    loops l;
    merge(&l, &batch[2], (const gd_layout *[]){ &batch[0], &batch[1], &batch[2] }, 3);
    open_loops(e, &l, "i");
    int ar = a->rank, br = b->rank, rank = v->layout.rank;
    gd_buffer_add(&e->body, "%smatmul_%s(%lld, %lld, %lld, ", indent(&l),
                  gd_export_suffix(v->layout.dtype), (long long)v->layout.shape[rank - 2],
                  (long long)v->layout.shape[rank - 1], (long long)a->shape[ar - 1]);
    add_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, %lld, ", (long long)a->stride[ar - 2],
                  (long long)a->stride[ar - 1]);
    add_place(e, &l, "x1", 1);
    gd_buffer_add(&e->body, ", %lld, %lld, ", (long long)b->stride[br - 2],
                  (long long)b->stride[br - 1]);
    if (is_linear && v->n > 2)
        gd_buffer_add(&e->body, "x2, %lld, ", (long long)ir->values[v->in[2]].layout.stride[0]);
    else
        gd_buffer_add(&e->body, "NULL, 0, ");
    gd_buffer_add(&e->body, "%d, ", is_linear && ((const gd_linear_attr *)v->attr)->relu ? 1 : 0);
    add_place(e, &l, "r0", 2);
    gd_buffer_add(&e->body, ");\n");
    return GD_OK;
}

/* ---- sums: the order of backend/cpu/reduce.h ---- */

typedef struct axis {
    int64_t size, in, out; /* strides of the input and the result */
    bool is_reduced;
} axis;

static uint64_t rank_of(const axis *a)
{
    int64_t stride = a->in < 0 ? -a->in : a->in;
    return stride == 0 ? UINT64_MAX : (uint64_t)stride;
}

/* Axes by falling |stride|, of size 1 dropped, reduced ones running forward; *offset: of the first
 * element then. */
static int order_axes(const gd_layout *in, uint32_t reduced, axis *list, int64_t *offset)
{
    int n = 0;
    int64_t out_stride = 1;
    *offset = 0;
    for (int i = in->rank - 1; i >= 0; i--) {
        axis a = { in->shape[i], in->stride[i], 0, reduced >> i & 1 };
        if (!a.is_reduced) {
            a.out = out_stride;
            out_stride *= a.size;
        } else if (a.in < 0) {
            *offset += a.in * (a.size - 1);
            a.in = -a.in;
        }
        if (a.size == 1)
            continue;
        int place = n++;
        for (; place > 0 && rank_of(&a) < rank_of(&list[place - 1]); place--)
            list[place] = list[place - 1];
        list[place] = a;
    }
    return n;
}

/* Loops over the reduced or the kept axes, outermost first, merged as the engine does; operand 0
 * is the input, 1 the result. */
static void take_axes(loops *l, const axis *list, int n, bool reduced)
{
    l->rank = 0;
    l->operands = 2;
    for (int i = n - 1; i >= 0; i--) {
        const axis *a = &list[i];
        if (a->is_reduced != reduced)
            continue;
        int last = l->rank - 1;
        if (last < 0 || l->stride[0][last] != a->in * a->size ||
            l->stride[1][last] != a->out * a->size) {
            last = l->rank++;
            l->size[last] = 1;
        }
        l->size[last] *= a->size;
        l->stride[0][last] = a->in;
        l->stride[1][last] = a->out;
    }
}

static gd_status export_sum(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value], *x = &ir->values[v->in[0]];
    if (!gd_dtype_is_float(x->layout.dtype))
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for a sum of %s",
                       gd_dtype_name(x->layout.dtype));
    const char *suffix = gd_export_suffix(v->layout.dtype);
    axis list[GD_MAX_RANK];
    int64_t offset, rows = 1;
    int n = order_axes(&x->layout, ((const gd_reduce_attr *)v->attr)->axes, list, &offset);
    bool by_rows = n == 0 || list[0].is_reduced;
    loops kept, reduced;
    take_axes(&kept, list, n, false);
    take_axes(&reduced, list, n, true);
    for (int a = 0; a < reduced.rank; a++)
        rows *= reduced.size[a];
    if (rows == 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for a sum of nothing");
    int64_t lanes = (int64_t)(256 / gd_dtype_size(v->layout.dtype)), block = 4096;
    if (!by_rows) {
        int64_t columns = kept.size[kept.rank - 1];
        lanes = 1;
        while (columns < 64 && 2 * lanes * columns <= 128 && 2 * lanes * 4 <= rows)
            lanes *= 2;
        block = 64 * lanes;
        while (rows / block >= (int64_t)1 << 20)
            block *= 2;
    }
    /* Long runs end blocks of their own. */
    int last = reduced.rank - 1;
    bool by_runs = by_rows && last > 0 && reduced.size[last] >= 256;
    gd_export_pointer(e, "x", 0, v->in[0], false);
    gd_export_pointer(e, "r", 0, step->value, true);
    open_loops(e, &kept, "i");
    gd_buffer_add(&e->body,
                  "        {\n        sum_%s sum;\n        sum_begin_%s(&sum, %lld, %lld);\n",
                  suffix, suffix, (long long)lanes, (long long)block);
    loops outer = reduced, inner = reduced;
    if (by_runs) { /* only the last loop within */
        outer.rank = last;
        open_loops(e, &outer, "k");
        gd_buffer_add(&e->body, "        {\n        for (int64_t k%d = 0; k%d < %lld; k%d++)\n",
                      last, last, (long long)reduced.size[last], last);
    } else {
        open_loops(e, &inner, "k");
    }
    gd_buffer_add(&e->body, "            sum_add_%s(&sum, x0[%lld + ", suffix, (long long)offset);
    add_index(e, &kept, 0, "i");
    gd_buffer_add(&e->body, " + ");
    add_index(e, &reduced, 0, "k");
    gd_buffer_add(&e->body, "]);\n");
    if (by_runs)
        gd_buffer_add(&e->body, "        sum_end_block_%s(&sum);\n        }\n", suffix);
    gd_buffer_add(&e->body, "        r0[");
    add_index(e, &kept, 1, "i");
    gd_buffer_add(&e->body, "] = sum_end_%s(&sum);\n        }\n", suffix);
    return GD_OK;
}

/* ---- softmax and cross-entropy, along the last axis ---- */

static gd_status export_softmax(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *in = &ir->values[v->in[0]].layout;
    int last = in->rank - 1;
    if (last < 0 || ((const gd_axis_attr *)v->attr)->axis != last)
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "gd_export_c: there is no C text for %s but along the last axis",
                       v->op->name);
    gd_export_pointer(e, "x", 0, v->in[0], false);
    gd_export_pointer(e, "r", 0, step->value, true);
    gd_layout lines[2] = { *in, v->layout };
    lines[0].rank = lines[1].rank = last;
    loops l;
    merge(&l, &lines[1], (const gd_layout *[]){ &lines[0], &lines[1] }, 2);
    open_loops(e, &l, "i");
    gd_buffer_add(&e->body, "%s%s_%s(", indent(&l), v->op->name, gd_export_suffix(v->layout.dtype));
    add_place(e, &l, "x0", 0);
    gd_buffer_add(&e->body, ", %lld, %lld, ", (long long)in->shape[last],
                  (long long)in->stride[last]);
    add_place(e, &l, "r0", 1);
    gd_buffer_add(&e->body, ");\n");
    return GD_OK;
}

/* Inputs: logits [rows, n], labels [rows], and for the gradient g [rows]. */
static gd_status export_loss(gd_export *e, const gd_step *step)
{
    const gd_ir *ir = &e->plan->ir;
    const gd_ir_value *v = &ir->values[step->value];
    const gd_layout *x = &ir->values[v->in[0]].layout, *label = &ir->values[v->in[1]].layout;
    bool is_gradient = v->op->id == GD_OP_cross_entropy_grad;
    if (x->stride[1] != 1 && x->shape[1] != 1)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s of columns",
                       v->op->name);
    for (int k = 0; k < v->n; k++)
        gd_export_pointer(e, "x", k, v->in[k], false);
    gd_export_pointer(e, "r", 0, step->value, true);
    long long n = x->shape[1], rows = x->shape[0];
    const char *suffix = gd_export_suffix(v->layout.dtype);
    gd_buffer_add(&e->body, "        for (int64_t i = 0; i < %lld; i++) {\n", rows);
    gd_buffer_add(&e->body, "            const int64_t label = x1[i * %lld];\n",
                  (long long)label->stride[0]);
    gd_buffer_add(&e->body,
                  "            if (label < 0 || label >= %lld)\n                return 1;\n", n);
    if (is_gradient)
        gd_buffer_add(&e->body,
                      "            cross_entropy_grad_%s(x0 + i * %lld, %lld, 1, label, x2[i * "
                      "%lld], r0 + i * %lld);\n",
                      suffix, (long long)x->stride[0], n,
                      (long long)ir->values[v->in[2]].layout.stride[0], n);
    else
        gd_buffer_add(&e->body,
                      "            r0[i] = cross_entropy_%s(x0 + i * %lld, %lld, 1, label);\n",
                      suffix, (long long)x->stride[0], n);
    gd_buffer_add(&e->body, "        }\n");
    return GD_OK;
}

static gd_status export_full(gd_export *e, const gd_step *step)
{
    const gd_ir_value *v = &e->plan->ir.values[step->value];
    gd_export_pointer(e, "r", 0, step->value, true);
    gd_buffer_add(&e->body,
                  "        for (int64_t i = 0; i < %lld; i++)\n            r0[i] = (%s)%a;\n",
                  (long long)gd_layout_count(&v->layout), gd_export_type(v->layout.dtype),
                  ((const gd_full_attr *)v->attr)->value);
    return GD_OK;
}

/* ---- the table ---- */

static gd_status (*const writers[GD_OP_COUNT])(gd_export *, const gd_step *) = {
    [GD_OP_fused] = export_fused,
    [GD_OP_cast] = export_row,
    [GD_OP_copy] = export_copy,
    [GD_OP_assign] = export_copy,
    [GD_OP_matmul] = export_product,
    [GD_OP_linear] = export_product,
    [GD_OP_sum] = export_sum,
    [GD_OP_softmax] = export_softmax,
    [GD_OP_log_softmax] = export_softmax,
    [GD_OP_cross_entropy] = export_loss,
    [GD_OP_cross_entropy_grad] = export_loss,
    [GD_OP_full] = export_full,
    [GD_OP_convolution] = gd_export_convolution,
    [GD_OP_convolution_grad_input] = gd_export_convolution,
    [GD_OP_convolution_grad_weight] = gd_export_convolution,
    [GD_OP_max_pool] = gd_export_pooling,
    [GD_OP_max_pool_grad] = gd_export_pooling,
    [GD_OP_avg_pool] = gd_export_pooling,
    [GD_OP_avg_pool_grad] = gd_export_pooling,
};

gd_status gd_export_step(gd_export *e, const gd_step *step)
{
    const gd_op *op = e->plan->ir.values[step->value].op;
    gd_status (*write)(gd_export *, const gd_step *) =
        (op->flags & GD_OP_ELEMENTWISE) ? export_row : writers[op->id];
    if (!write)
        return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C text for %s", op->name);
    char attr[512] = "";
    if (op->format)
        op->format(step->call.attr, attr, sizeof attr);
    gd_buffer_add(&e->body, "    { /* %s%s%s */\n", op->name, attr[0] ? ": " : "", attr);
    gd_status status = write(e, step);
    gd_buffer_add(&e->body, "    }\n");
    return status;
}
