/* backend/gpu/elementwise.c: elementwise ops, casts, copies, assignments and fused groups: one kernel
 * each, an item an element. Start at gd_gpu_describe_elementwise.
 *
 * A kernel's text depends on the program of the group, on dtypes, and on how indices are computed;
 * sizes and strides are arguments. So there are few kernels for each op, whatever the shapes: with
 * all operands in the order of the result, or with merged loops, whose rank is rounded up.
 *
 * In a plan's one kernel, whose items are few, an item does several elements, and reads all that they
 * are made of before it writes the first. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/error.h"
#include "ops/attrs.h"

/* An instruction that there is text for. */
typedef struct key_instruction {
    int16_t op, dtype, from[3], compute;
} key_instruction;

/* What a kernel is made of: its key, without padding. */
typedef struct shape_of_kernel {
    int16_t inputs, results, instructions;
    int16_t rank;                    /* of the loops; 0: every operand is at the result's index */
    int16_t is_wide;                 /* indices need 64 bits */
    int16_t is_strided;              /* the result has strides */
    int16_t elements;                /* of an item */
    int16_t dtype[GD_LOOP_OPERANDS]; /* of inputs, then of results */
    int16_t made[1 + GD_FUSED_MAX_EXTRA]; /* values that are results */
    key_instruction instruction[GD_FUSED_MAX_ELEMENTWISE];
} shape_of_kernel;

_Static_assert(sizeof(shape_of_kernel) <= GD_GPU_KEY, "keys of groups");

enum {
    ITEMS = 128,       /* of a work-group */
    MOST_ELEMENTS = 4, /* of an item */
};

/* ---- what a call is ---- */

/* The group that a call computes, its last value the result; false: none. No instructions: it moves
 * elements. */
static bool group_of(const gd_kernel_call *call, gd_fused_attr *group)
{
    const gd_op *op = call->op;
    memset(group, 0, sizeof *group);
    if (op->id == GD_OP_fused)
        *group = *(const gd_fused_attr *)call->attr;
    else if ((op->flags & GD_OP_ELEMENTWISE) || op->id == GD_OP_cast)
        *group = gd_codegen_group_of_one(op, call->n, call->in[call->n - 1].layout->dtype,
                                         call->out.layout->dtype);
    else if (op->id == GD_OP_copy || op->id == GD_OP_assign)
        group->n_inputs = 1;
    else
        return false;
    return group->row_axes == 0 && group->n_instructions <= GD_FUSED_MAX_ELEMENTWISE;
}

/* Input i of the group. */
static const gd_operand *input_of(const gd_kernel_call *call, int i)
{
    return call->op->id == GD_OP_assign ? &call->in[1] : &call->in[i];
}

/* Elements that are only moved are whole numbers of their size. */
static gd_dtype moved_as(gd_dtype dtype)
{
    static const gd_dtype whole[9] = { [1] = GD_U8, [2] = GD_U16, [4] = GD_U32, [8] = GD_U64 };
    return whole[gd_dtype_size(dtype)];
}

static bool has_text(const gd_fused_instruction *in)
{
    const bool is_libm = in->op == GD_OP_lgamma || in->op == GD_OP_polygamma;
    const bool is_one = in->op < GD_OP_ELEMENTWISE_COUNT || in->op == GD_OP_cast;
    return is_one && !is_libm;
}

/* The program and the dtypes. false: there is no text for it. */
static bool take_program(const gd_kernel_call *call, const gd_fused_attr *group,
                         shape_of_kernel *shape)
{
    shape->inputs = (int16_t)group->n_inputs;
    shape->results = (int16_t)(1 + group->n_extra);
    shape->instructions = (int16_t)group->n_instructions;
    const bool moves = group->n_instructions == 0;
    if (moves && input_of(call, 0)->layout->dtype != call->out.layout->dtype)
        return false;
    for (int i = 0; i < group->n_inputs; i++) {
        const gd_dtype dtype = input_of(call, i)->layout->dtype;
        shape->dtype[i] = (int16_t)(moves ? moved_as(dtype) : dtype);
    }
    for (int r = 0; r < shape->results; r++) {
        const int instruction = r ? group->extra[r - 1] : group->n_instructions - 1;
        shape->made[r] = (int16_t)(group->n_inputs + instruction);
        shape->dtype[group->n_inputs + r] =
            moves ? shape->dtype[0] : group->instruction[instruction].dtype;
    }
    for (int i = 0; i < group->n_instructions; i++) {
        gd_fused_instruction in = group->instruction[i];
        if (in.op == GD_OP_cast)
            in.compute = in.dtype;
        if (!has_text(&in))
            return false;
        shape->instruction[i] = (key_instruction){ in.op, in.dtype, .compute = in.compute };
        memcpy(shape->instruction[i].from, in.from, sizeof shape->instruction[i].from);
    }
    return true;
}

/* Whether every operand lies in the order of the result. */
static bool is_linear(const gd_loops *l)
{
    bool all = l->rank <= 1;
    for (int k = 0; k < l->operands && all && l->rank; k++)
        all = l->stride[k][0] == 1;
    return all;
}

/* Loops of size 1 in front, up to a rank that there are kernels for. */
static void pad_loops(gd_loops *l)
{
    const int rank = l->rank <= 2 ? l->rank : l->rank <= 4 ? 4 : GD_MAX_RANK, more = rank - l->rank;
    for (int k = -1; more > 0 && k < l->operands; k++) {
        int64_t *row = k < 0 ? l->size : l->stride[k];
        memmove(row + more, row, sizeof *row * (size_t)l->rank);
        for (int a = 0; a < more; a++)
            row[a] = k < 0;
    }
    l->rank = rank;
}

static void take_loops(const gd_kernel_call *call, shape_of_kernel *shape, gd_loops *loops)
{
    const gd_layout *operands[GD_LOOP_OPERANDS];
    const gd_layout *out = call->out.layout;
    for (int i = 0; i < shape->inputs; i++)
        operands[i] = input_of(call, i)->layout;
    operands[shape->inputs] = out;
    gd_codegen_merge(loops, out, operands, shape->inputs + 1);
    shape->is_wide = gd_layout_count(out) > INT32_MAX - ITEMS;
    if (is_linear(loops)) {
        loops->rank = 0;
    } else {
        pad_loops(loops);
        shape->is_strided = !gd_layout_is_contiguous(out);
    }
    shape->rank = (int16_t)loops->rank;
}

static void write_kernel(const void *key, gd_gpu_source *source);

static void add_places(const gd_kernel_call *call, const shape_of_kernel *shape, gd_gpu_step *step)
{
    for (int i = 0; i < shape->inputs; i++)
        gd_gpu_add_place(step, (int)(input_of(call, i) - call->in));
    for (int r = 0; r < shape->results; r++)
        gd_gpu_add_place(step, call->n + r);
}

/* How many elements, sizes of loops, strides of operands. */
static void add_numbers(const shape_of_kernel *shape, const gd_loops *l, int64_t items,
                        gd_gpu_step *step)
{
    gd_gpu_add_number(step, items);
    for (int a = 0; a < l->rank; a++)
        gd_gpu_add_number(step, l->size[a]);
    for (int k = 0; k < shape->inputs + shape->is_strided; k++)
        for (int a = 0; a < l->rank; a++)
            gd_gpu_add_number(step, l->stride[k][a]);
}

static bool describe(const gd_kernel_call *call, int elements, gd_gpu_job *job)
{
    gd_fused_attr group;
    gd_loops loops;
    shape_of_kernel shape;
    const int64_t items = gd_layout_count(call->out.layout);
    memset(&shape, 0, sizeof shape);
    if (!group_of(call, &group) || !take_program(call, &group, &shape))
        return false;
    take_loops(call, &shape, &loops);
    shape.elements = (int16_t)elements;
    gd_gpu_step *step = gd_gpu_add_step(job, gd_gpu_groups(items, ITEMS * elements), ITEMS);
    step->write = write_kernel;
    step->key_bytes = sizeof shape - sizeof *shape.instruction *
                                         (size_t)(GD_FUSED_MAX_ELEMENTWISE - shape.instructions);
    memcpy(step->key.text, &shape, step->key_bytes);
    add_places(call, &shape, step);
    add_numbers(&shape, &loops, items, step);
    return true;
}

bool gd_gpu_describe_elementwise(const gd_kernel_call *call, gd_gpu_job *job)
{
    return describe(call, 1, job);
}

bool gd_gpu_plan_elementwise(const gd_kernel_call *call, int64_t items, gd_gpu_job *job)
{
    int elements = 1;
    while (elements < MOST_ELEMENTS && elements * items < gd_layout_count(call->out.layout))
        elements *= 2;
    job->steps = 0;
    return elements > 1 && describe(call, elements, job);
}

/* ---- the text ---- */

/* The numbers as add_numbers has them. */
static void write_numbers(const shape_of_kernel *s, gd_text_buffer *out)
{
    gd_buffer_add(out, "typedef struct group_numbers {\n    int64_t items");
    for (int a = 0; a < s->rank; a++)
        gd_buffer_add(out, ", size%d", a);
    for (int k = 0; k < s->inputs + s->is_strided; k++)
        for (int a = 0; a < s->rank; a++)
            gd_buffer_add(out, ", stride%d_%d", k, a);
    gd_buffer_add(out, ";\n} group_numbers;\n\n");
}

static void write_arguments(const shape_of_kernel *s, gd_text_buffer *out)
{
    gd_buffer_add(out, "KERNEL(group, %d)(", ITEMS);
    for (int k = 0; k < s->inputs + s->results; k++)
        gd_buffer_add(out, "ARGUMENT(%s, %c%d), ", gd_codegen_storage((gd_dtype)s->dtype[k]),
                      k < s->inputs ? 'x' : 'r', k < s->inputs ? k : k - s->inputs);
    gd_buffer_add(out, "NUMBERS(group_numbers, p))\n{\n    OPEN_NUMBERS(group_numbers, p);\n");
}

/* i0 …: the indices of item `item` in the loops. */
static void write_indices(const shape_of_kernel *s, gd_text_buffer *out)
{
    const char *type = s->is_wide ? "uint64_t" : "uint32_t";
    if (s->rank)
        gd_buffer_add(out, "    %s rest = (%s)item;\n", type, type);
    for (int a = s->rank - 1; a > 0; a--)
        gd_buffer_add(out,
                      "    const int64_t i%d = (int64_t)(rest %% (%s)p.size%d);\n"
                      "    rest /= (%s)p.size%d;\n",
                      a, type, a, type, a);
    if (s->rank)
        gd_buffer_add(out, "    const int64_t i0 = (int64_t)rest;\n");
}

/* The index of operand k. */
static void write_index(const shape_of_kernel *s, int k, gd_text_buffer *out)
{
    if (s->rank == 0 || (k >= s->inputs && !s->is_strided)) {
        gd_buffer_add(out, "item");
        return;
    }
    for (int a = 0; a < s->rank; a++)
        gd_buffer_add(out, "%si%d * p.stride%d_%d", a ? " + " : "", a, k, a);
}

static void write_loads(const shape_of_kernel *s, gd_text_buffer *out)
{
    for (int k = 0; k < s->inputs; k++) {
        const char *type = gd_codegen_storage((gd_dtype)s->dtype[k]);
        gd_buffer_add(out, "    OPEN(%s, x%d);\n    const %s v%d = x%d[", type, k, type, k, k);
        write_index(s, k, out);
        gd_buffer_add(out, "];\n");
    }
}

/* The instructions, and the results. */
static void write_program(const shape_of_kernel *s, const gd_fused_attr *group,
                          gd_gpu_source *source)
{
    gd_dtype dtypes[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_ELEMENTWISE];
    gd_text_buffer *out = &source->text;
    for (int k = 0; k < s->inputs + s->instructions; k++)
        dtypes[k] = (gd_dtype)(k < s->inputs ? s->dtype[k] : s->instruction[k - s->inputs].dtype);
    for (int i = 0; i < s->instructions; i++)
        gd_codegen_instruction(&source->functions, out, group, i, dtypes);
    for (int r = 0; r < s->results; r++) {
        gd_buffer_add(out, "    OPEN(%s, r%d);\n    r%d[",
                      gd_codegen_storage((gd_dtype)s->dtype[s->inputs + r]), r, r);
        write_index(s, s->inputs + r, out);
        gd_buffer_add(out, "] = v%d;\n", s->made[r]);
    }
}

/* An item's elements are ITEMS apart: neighbours are neighbouring items'. All are read, then made. Those
 * behind the last read that one. */
static void write_elements(const shape_of_kernel *s, const gd_fused_attr *group,
                           gd_gpu_source *source)
{
    gd_text_buffer *out = &source->text;
    for (int k = 0; k < s->inputs; k++)
        gd_buffer_add(out, "    %s x%d_of[%d];\n", gd_codegen_storage((gd_dtype)s->dtype[k]), k,
                      s->elements);
    for (int pass = 0; pass < 2; pass++) {
        gd_buffer_add(out,
                      "    UNROLL\n    for (int e = 0; e < %d; e++) {\n"
                      "    const int64_t own = GROUP(0) * %d + e * %d + LOCAL_ITEM();\n"
                      "    const int64_t item = own < p.items ? own : p.items - 1;\n",
                      s->elements, s->elements * ITEMS, ITEMS);
        write_indices(s, out);
        if (pass == 0)
            write_loads(s, out);
        for (int k = 0; k < s->inputs; k++)
            if (pass == 0)
                gd_buffer_add(out, "    x%d_of[e] = v%d;\n", k, k);
            else
                gd_buffer_add(out, "    const %s v%d = x%d_of[e];\n",
                              gd_codegen_storage((gd_dtype)s->dtype[k]), k, k);
        if (pass == 1) {
            gd_buffer_add(out, "    if (own < p.items) {\n");
            write_program(s, group, source);
            gd_buffer_add(out, "    }\n");
        }
        gd_buffer_add(out, "    }\n");
    }
}

static void write_kernel(const void *key, gd_gpu_source *source)
{
    shape_of_kernel shape;
    const shape_of_kernel *s = &shape;
    memset(&shape, 0, sizeof shape);
    memcpy(&shape, key, offsetof(shape_of_kernel, instruction));
    memcpy(shape.instruction, (const char *)key + offsetof(shape_of_kernel, instruction),
           sizeof *shape.instruction * (size_t)shape.instructions);
    gd_fused_attr group = { .n_inputs = s->inputs, .n_instructions = s->instructions };
    for (int i = 0; i < s->instructions; i++) {
        const key_instruction *in = &s->instruction[i];
        group.instruction[i] =
            (gd_fused_instruction){ .op = in->op,
                                    .dtype = in->dtype,
                                    .from = { in->from[0], in->from[1], in->from[2] },
                                    .compute = in->compute };
    }
    gd_text_buffer *out = &source->text;
    strcpy(source->kernel, "group");
    write_numbers(s, out);
    write_arguments(s, out);
    if (s->elements > 1) {
        write_elements(s, &group, source);
    } else {
        gd_buffer_add(out, "    const int64_t item = ITEM();\n"
                           "    if (item >= p.items)\n        return;\n");
        write_indices(s, out);
        write_loads(s, out);
        write_program(s, &group, source);
    }
    gd_buffer_add(out, "}\n");
}
