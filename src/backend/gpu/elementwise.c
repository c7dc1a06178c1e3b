/* backend/gpu/elementwise.c: elementwise ops, casts, copies, assignments and fused groups: one kernel
 * each, an item an element. Start at describe.
 *
 * A kernel's text depends on the program of the group, on dtypes, and on how indices are computed;
 * sizes and strides are arguments. So there are few kernels for each op, whatever the shapes: with
 * all operands in the order of the result, or with merged loops, whose rank is rounded up. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/error.h"
#include "ops/attrs.h"

/* What a kernel is made of: its key, without padding. */
typedef struct shape_of_kernel {
    int16_t inputs, results, instructions;
    int16_t rank;                    /* of the loops; 0: every operand is at the result's index */
    int16_t is_wide;                 /* indices need 64 bits */
    int16_t is_strided;              /* the result has strides */
    int16_t dtype[GD_LOOP_OPERANDS]; /* of inputs, then of results */
    int16_t made[1 + GD_FUSED_MAX_EXTRA]; /* values that are results */
    gd_fused_instruction instruction[GD_FUSED_MAX_ELEMENTWISE];
} shape_of_kernel;

typedef struct description {
    shape_of_kernel shape;
    gd_loops loops;
    int64_t items;
} description;

/* What a plan keeps of a description. */
typedef struct prepared {
    void *kernel;
    int64_t items;
    int64_t numbers;
    int64_t number[];
} prepared;

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
    return !is_libm && !gd_fused_reduces(in->op) && gd_codegen_type((gd_dtype)in->dtype) &&
           gd_codegen_type((gd_dtype)in->compute);
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
        if (!gd_codegen_type((gd_dtype)shape->dtype[i]))
            return false;
    }
    for (int r = 0; r < shape->results; r++) {
        const int instruction = r ? group->extra[r - 1] : group->n_instructions - 1;
        shape->made[r] = (int16_t)(group->n_inputs + instruction);
        shape->dtype[group->n_inputs + r] =
            moves ? shape->dtype[0] : group->instruction[instruction].dtype;
    }
    memcpy(shape->instruction, group->instruction,
           sizeof *group->instruction * (size_t)group->n_instructions);
    for (int i = 0; i < group->n_instructions; i++) {
        gd_fused_instruction *in = &shape->instruction[i];
        if (in->op == GD_OP_cast)
            in->compute = in->dtype;
        if (!has_text(in))
            return false;
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

static void take_loops(const gd_kernel_call *call, description *d)
{
    const gd_layout *operands[GD_LOOP_OPERANDS];
    shape_of_kernel *shape = &d->shape;
    const gd_layout *out = call->out.layout;
    for (int i = 0; i < shape->inputs; i++)
        operands[i] = input_of(call, i)->layout;
    operands[shape->inputs] = out;
    gd_codegen_merge(&d->loops, out, operands, shape->inputs + 1);
    d->items = gd_layout_count(out);
    shape->is_wide = d->items > INT32_MAX - GD_GPU_GROUP;
    if (is_linear(&d->loops)) {
        d->loops.rank = 0;
    } else {
        pad_loops(&d->loops);
        shape->is_strided = !gd_layout_is_contiguous(out);
    }
    shape->rank = (int16_t)d->loops.rank;
}

/* The arguments: how many elements, sizes of loops, strides of operands. */
static int count_numbers(const shape_of_kernel *shape)
{
    return 1 + shape->rank * (1 + shape->inputs + shape->is_strided);
}

static void write_numbers(const description *d, int64_t *number)
{
    const gd_loops *l = &d->loops;
    const size_t row = sizeof *number * (size_t)l->rank;
    *number++ = d->items;
    memcpy(number, l->size, row);
    for (int k = 0; k < d->shape.inputs + d->shape.is_strided; k++)
        memcpy(number += l->rank, l->stride[k], row);
}

/* false: there is no kernel for it. */
static bool describe(const gd_kernel_call *call, description *d)
{
    const gd_gpu *gpu = (const gd_gpu *)call->device;
    gd_fused_attr group;
    memset(&d->shape, 0, sizeof d->shape);
    if (!group_of(call, &group) || !take_program(call, &group, &d->shape))
        return false;
    take_loops(call, d);
    const int numbers = count_numbers(&d->shape), places = d->shape.inputs + d->shape.results;
    return numbers <= GD_GPU_NUMBERS &&
           (size_t)places * gpu->place_bytes + sizeof(int64_t) * (size_t)numbers <=
               gpu->parameter_bytes;
}

bool gd_gpu_elementwise_takes(const gd_kernel_call *call)
{
    description d;
    return describe(call, &d);
}

/* ---- the text ---- */

static void write_arguments(const shape_of_kernel *s, gd_text_buffer *out)
{
    gd_buffer_add(out, "KERNEL(%s)(", GD_GPU_KERNEL);
    for (int k = 0; k < s->inputs + s->results; k++)
        gd_buffer_add(out, "ARGUMENT(%s, %c%d), ", gd_codegen_type((gd_dtype)s->dtype[k]),
                      k < s->inputs ? 'x' : 'r', k < s->inputs ? k : k - s->inputs);
    gd_buffer_add(out, "NUMBER(items)");
    for (int a = 0; a < s->rank; a++)
        gd_buffer_add(out, ", NUMBER(size%d)", a);
    for (int k = 0; k < s->inputs + s->is_strided; k++)
        for (int a = 0; a < s->rank; a++)
            gd_buffer_add(out, ", NUMBER(stride%d_%d)", k, a);
    gd_buffer_add(out, ")\n{\n");
}

/* i0 …: the indices of item `item` in the loops. */
static void write_indices(const shape_of_kernel *s, gd_text_buffer *out)
{
    const char *type = s->is_wide ? "uint64_t" : "uint32_t";
    if (s->rank)
        gd_buffer_add(out, "    %s rest = (%s)item;\n", type, type);
    for (int a = s->rank - 1; a > 0; a--)
        gd_buffer_add(out,
                      "    const int64_t i%d = (int64_t)(rest %% (%s)size%d);\n"
                      "    rest /= (%s)size%d;\n",
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
        gd_buffer_add(out, "%si%d * stride%d_%d", a ? " + " : "", a, k, a);
}

static void write_kernel(const void *of, gd_codegen_functions *functions, gd_text_buffer *out)
{
    const shape_of_kernel *s = of;
    gd_dtype dtypes[GD_FUSED_MAX_INPUTS + GD_FUSED_MAX_ELEMENTWISE];
    gd_fused_attr group = { .n_inputs = s->inputs, .n_instructions = s->instructions };
    memcpy(group.instruction, s->instruction, sizeof s->instruction);
    write_arguments(s, out);
    gd_buffer_add(out,
                  "    const int64_t item = ITEM();\n    if (item >= items)\n        return;\n");
    write_indices(s, out);
    for (int k = 0; k < s->inputs; k++) {
        dtypes[k] = (gd_dtype)s->dtype[k];
        const char *type = gd_codegen_type(dtypes[k]);
        gd_buffer_add(out, "    OPEN(%s, x%d);\n    const %s v%d = x%d[", type, k, type, k, k);
        write_index(s, k, out);
        gd_buffer_add(out, "];\n");
    }
    for (int i = 0; i < s->instructions; i++) {
        dtypes[s->inputs + i] = (gd_dtype)s->instruction[i].dtype;
        gd_codegen_instruction(functions, out, &group, i, dtypes);
    }
    for (int r = 0; r < s->results; r++) {
        gd_buffer_add(out, "    OPEN(%s, r%d);\n    r%d[",
                      gd_codegen_type((gd_dtype)s->dtype[s->inputs + r]), r, r);
        write_index(s, s->inputs + r, out);
        gd_buffer_add(out, "] = v%d;\n", s->made[r]);
    }
    gd_buffer_add(out, "}\n");
}

static void *kernel_of(gd_gpu *gpu, const description *d)
{
    const size_t unused =
        sizeof *d->shape.instruction * (size_t)(GD_FUSED_MAX_ELEMENTWISE - d->shape.instructions);
    return gd_gpu_kernel(gpu, &d->shape, sizeof d->shape - unused, write_kernel, &d->shape);
}

/* ---- running ---- */

static gd_status launch(const gd_kernel_call *call, void *kernel, int64_t items, int64_t numbers,
                        const int64_t *number)
{
    gd_gpu *gpu = (gd_gpu *)call->device;
    gd_gpu_place places[GD_GPU_PLACES];
    const bool is_group = call->op->id == GD_OP_fused;
    const int inputs = call->op->id == GD_OP_assign ? 1 : call->n,
              extra = is_group ? ((const gd_fused_attr *)call->attr)->n_extra : 0;
    gpu->launched++;
    gd_status status = gd_gpu_place_of(gpu, call->out.data, &places[inputs]);
    for (int i = 0; status == GD_OK && i < inputs; i++)
        status = gd_gpu_place_of(gpu, input_of(call, i)->data, &places[i]);
    for (int i = 0; status == GD_OK && i < extra; i++)
        status = gd_gpu_place_of(gpu, call->extra[i].data, &places[inputs + 1 + i]);
    const gd_gpu_launch l = { .kernel = kernel,
                              .places = inputs + 1 + extra,
                              .numbers = (int)numbers,
                              .place = places,
                              .number = number,
                              .items = (items + GD_GPU_GROUP - 1) / GD_GPU_GROUP * GD_GPU_GROUP };
    return status == GD_OK ? gpu->driver->launch(gpu, &l) : status;
}

bool gd_gpu_elementwise_run(const gd_kernel_call *call, gd_status *status)
{
    description d;
    int64_t number[GD_GPU_NUMBERS];
    if (!describe(call, &d))
        return false;
    void *kernel = kernel_of((gd_gpu *)call->device, &d);
    write_numbers(&d, number);
    *status =
        kernel ? launch(call, kernel, d.items, count_numbers(&d.shape), number) : gd_error_last();
    return true;
}

/* ---- plans ---- */

size_t gd_gpu_elementwise_prepare_bytes(const gd_kernel_call *call)
{
    description d;
    return describe(call, &d) ? sizeof(prepared) + sizeof(int64_t) * (size_t)count_numbers(&d.shape)
                              : 0;
}

gd_status gd_gpu_elementwise_prepare(const gd_kernel_call *call, void *memory)
{
    prepared *p = memory;
    description d;
    (void)describe(call, &d);
    p->kernel = kernel_of((gd_gpu *)call->device, &d);
    p->items = d.items;
    p->numbers = count_numbers(&d.shape);
    write_numbers(&d, p->number);
    return p->kernel ? GD_OK : gd_error_last();
}

gd_status gd_gpu_elementwise_run_prepared(const gd_kernel_call *call, const void *memory)
{
    const prepared *p = memory;
    return launch(call, p->kernel, p->items, p->numbers, p->number);
}
