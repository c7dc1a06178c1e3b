/* backend/gpu/attention.c: attention and its gradient. The kernels are in
 * codegen/device/attention.txt, those of f64 in attention_f64.txt; the order that they keep is backend/cpu/attention.h's. Start at
 * gd_gpu_describe_attention. */
#include "backend/gpu/gpu.h"

#include <math.h>
#include <string.h>

#include "backend/cpu/attention.h"
#include "backend/cpu/gemm.h"
#include "ops/attrs.h"

enum {
    QUERIES = 32,         /* that a group of attention_rows does */
    ROW_ITEMS = 128,      /* of it */
    PART = 64,            /* rows and columns that a group of the gradient makes, of 256 items */
    F64_ITEMS = 64,       /* each a query, or a key */
    OPERANDS = 3,         /* q, k, v */
    OF_GRADIENT = 2,      /* more of the gradient: what the forward pass gave, and g */
    WORKSPACE = 64 << 20, /* bytes for the gradient, unless a unit takes more */
};

typedef struct sizes {
    int64_t entries, heads, groups, tq, tk, d, dv;
    int64_t of_keys; /* entries of k and v */
} sizes;

static sizes sizes_of(const gd_kernel_call *call)
{
    const gd_layout *q = call->in[0].layout, *k = call->in[1].layout, *v = call->in[2].layout;
    const int rank = q->rank;
    sizes s = { .heads = q->shape[rank - 3],
                .groups = k->shape[rank - 3],
                .tq = q->shape[rank - 2],
                .tk = k->shape[rank - 2],
                .d = q->shape[rank - 1],
                .dv = v->shape[rank - 1] };
    s.entries = 1;
    for (int a = 0; a < rank - 2; a++)
        s.entries *= q->shape[a];
    s.of_keys = s.heads > 0 ? s.entries / s.heads * s.groups : 0;
    return s;
}

/* The mask stretched to the scores; without one, zeros. */
static gd_layout mask_of(const gd_kernel_call *call, int operand)
{
    const gd_layout *q = call->in[0].layout;
    gd_layout stretched = *q;
    memset(stretched.stride, 0, sizeof stretched.stride);
    if (((const gd_attention_attr *)call->attr)->has_mask) {
        gd_shape scores = gd_layout_shape(q);
        scores.dim[q->rank - 1] = call->in[1].layout->shape[q->rank - 2];
        (void)gd_layout_broadcast(call->in[operand].layout, scores, &stretched);
    }
    return stretched;
}

/* Where the entries of one or two operands begin: loops over all but the last two axes. */
static void add_entries(gd_gpu_step *step, const gd_layout *x, const gd_layout *other)
{
    gd_layout over = *x, second = other ? *other : *x;
    gd_loops loops;
    over.rank -= 2;
    second.rank -= 2;
    gd_codegen_merge(&loops, &over, (const gd_layout *[]){ &over, &second }, other ? 2 : 1);
    gd_gpu_add_loops(step, &loops);
}

/* As attention_numbers has it. */
static int masked_of(const gd_kernel_call *call, int operand)
{
    const bool has_mask = ((const gd_attention_attr *)call->attr)->has_mask;
    return !has_mask ? 0 : call->in[operand].layout->dtype == GD_BOOL ? 2 : 1;
}

/* The distance of neighbours along an axis counted from the last. */
static int64_t step_of(const gd_layout *x, int axis)
{
    return x->stride[x->rank - axis];
}

/* Rows of the CPU's tiles of queries. */
static int64_t tile_of(int64_t queries)
{
    const int64_t tiles = gd_gpu_groups(queries, GD_ATTENTION_QUERIES);
    return tiles > 0 ? (queries + tiles - 1) / tiles : 1;
}

/* How the gradient is made: in `turns`, each of some units, of which there are `tiles` in an entry. */
typedef struct turns {
    int64_t turns, units, tiles, slot,
        pitch; /* of the workspace: rows for a unit, and their length */
} turns;

/* As many units in a turn as the workspace is to have room for, but one at least. */
static turns turns_of(const sizes *s)
{
    turns t = { .tiles = gd_gpu_groups(s->tq, (int)tile_of(s->tq)),
                .slot = gd_gpu_groups(tile_of(s->tq), PART) * PART,
                .pitch = gd_gpu_groups(s->tk, PART) * PART };
    const int64_t all = s->entries * t.tiles, bytes = 2 * t.slot * t.pitch * (int64_t)sizeof(float);
    const int64_t most = bytes > 0 ? WORKSPACE / bytes : all;
    t.units = all < 1 ? 1 : most < 1 ? 1 : most < all ? most : all;
    t.turns = all > t.units ? (all + t.units - 1) / t.units : 1;
    return t;
}

/* As attention_numbers has them. `extras`: the first operand behind those that all have. */
static void add_numbers(const gd_kernel_call *call, const sizes *s, gd_gpu_step *step, int extras)
{
    const turns t = turns_of(s);
    const int64_t of_turns[] = { 0, t.units, t.tiles, t.slot, t.pitch };
    for (int i = 0; i < 5; i++)
        gd_gpu_add_number(step, of_turns[i]);
    const gd_attention_attr *attr = call->attr;
    const gd_layout *q = call->in[0].layout, *k = call->in[1].layout, *v = call->in[2].layout;
    const gd_layout mask = mask_of(call, extras);
    const int masked = masked_of(call, extras);
    const gd_layout *g = extras > OPERANDS ? call->in[4].layout : q;
    const gd_layout *const rows[] = { q, k, v, g, &mask };
    const gd_attention_offsets to =
        gd_attention_grad_offsets(attr, (const gd_layout *[]){ q, k, v });
    const int64_t first[] = { s->entries, s->heads, s->groups,         s->tq,  s->tk,
                              s->d,       s->dv,    attr->causal != 0, masked, tile_of(s->tq) };
    for (int i = 0; i < 10; i++)
        gd_gpu_add_number(step, first[i]);
    for (int axis = 2; axis > 0; axis--)
        for (int i = 0; i < 5; i++)
            gd_gpu_add_number(step, step_of(rows[i], axis));
    gd_gpu_add_number(step, (int64_t)attr->offset);
    gd_gpu_add_number(step, attr->dropout > 0 ? call->in[call->n - 1].layout->stride[0] : 0);
    gd_gpu_add_number(step, (int64_t)ceil(attr->dropout * 16777216));
    gd_gpu_add_real(step, q->dtype, attr->scale);
    gd_gpu_add_real(step, q->dtype, 1 / (1 - attr->dropout));
    for (int i = 0; i < 3; i++)
        gd_gpu_add_number(step, to.at[i]);
    for (int i = 0; i < 3; i++)
        gd_gpu_add_number(step, to.row[i]);
    add_entries(step, q, &mask);
    add_entries(step, k, v);
    add_entries(step, g, NULL);
}

static gd_gpu_step *add_kernel(const gd_kernel_call *call, gd_gpu_job *job, const char *name,
                               int64_t groups, int items, int extras)
{
    const gd_attention_attr *attr = call->attr;
    gd_gpu_step *step = gd_gpu_add_kernel(job, name, groups, items);
    step->is_uneven = true;
    for (int i = 0; i < OPERANDS; i++)
        gd_gpu_add_place(step, i);
    for (int as = 0; as < 2; as++) /* numbers, flags */
        gd_gpu_add_place(step, attr->has_mask ? extras : 0);
    gd_gpu_add_place(step, attr->dropout > 0 ? call->n - 1 : 0);
    return step;
}

/* Whether strides along the last two axes are numbers of 32 bits. */
static bool has_short_rows(const gd_layout *x)
{
    bool all = true;
    for (int axis = 1; axis <= 2; axis++)
        all &= step_of(x, axis) > -INT32_MAX && step_of(x, axis) < INT32_MAX;
    return all;
}

static bool is_taken(const gd_kernel_call *call, const sizes *s)
{
    const gd_dtype dtype = call->in[0].layout->dtype;
    const double most = INT32_MAX / 2; /* kernels count rows, and those of a result, in 32 bits */
    bool is_small = (double)s->entries * (double)(s->tq + 1) < most && (double)s->tk < most &&
                    (double)s->heads * (double)(s->d + s->dv) < most / 2;
    for (int i = 0; i < 5; i++)
        if (i < OPERANDS || (i == 4 && call->op->id == GD_OP_attention_grad))
            is_small &= has_short_rows(call->in[i].layout);
    return (dtype == GD_F32 || dtype == GD_F64) && s->d > 0 && s->dv > 0 && is_small;
}

static bool is_f64(const gd_kernel_call *call)
{
    return call->in[0].layout->dtype == GD_F64;
}

bool gd_gpu_describe_attention(const gd_kernel_call *call, gd_gpu_job *job)
{
    const sizes s = sizes_of(call);
    const int64_t groups = is_f64(call) ? gd_gpu_groups(s.entries * s.tq, F64_ITEMS)
                                        : s.entries * gd_gpu_groups(s.tq, QUERIES);
    if (!is_taken(call, &s))
        return false;
    if (groups == 0)
        return true;
    gd_gpu_step *step =
        is_f64(call) ? add_kernel(call, job, "attention_rows_f64", groups, F64_ITEMS, OPERANDS)
                     : add_kernel(call, job, "attention_rows", groups, ROW_ITEMS, OPERANDS);
    if (!is_f64(call)) { /* what else is asked for takes registers */
        const gd_attention_attr *attr = call->attr;
        const bool is_plain = !attr->has_mask && attr->dropout == 0 && s.d <= GD_GEMM_KC;
        gd_gpu_define(step, "IS_PLAIN", "%d", is_plain);
        gd_gpu_define(step, "RESIDENT", "%d", is_plain ? 3 : 2);
    }
    gd_gpu_add_place(step, call->n);
    add_numbers(call, &s, step, OPERANDS);
    return true;
}

static void add_gradient(const gd_kernel_call *call, gd_gpu_job *job, const sizes *s,
                         const char *name, int64_t groups, int items)
{
    const int extras = OPERANDS + OF_GRADIENT;
    if (groups == 0)
        return;
    gd_gpu_step *step = add_kernel(call, job, name, groups, items, extras);
    if (!is_f64(call))
        gd_gpu_define(step, "RESIDENT", "GRAD_RESIDENT");
    gd_gpu_add_place(step, 3);
    gd_gpu_add_place(step, 4);
    gd_gpu_add_place(step, call->n);
    gd_gpu_add_place(step, GD_GPU_WORKSPACE);
    add_numbers(call, s, step, extras);
}

/* Entries of k and v that the units of a turn look at, at most. */
static int64_t most_of_keys(const sizes *s, const turns *t)
{
    const int64_t of_one = s->of_keys > 0 ? s->entries / s->of_keys * t->tiles : 0;
    const int64_t most = of_one > 0 ? (t->units + of_one - 2) / of_one + 1 : s->of_keys;
    return most < s->of_keys ? most : s->of_keys;
}

static void add_gradient_f32(const gd_kernel_call *call, gd_gpu_job *job, const sizes *s)
{
    const turns t = turns_of(s);
    const int64_t down = t.units * t.slot / PART, across = t.pitch / PART;
    const int64_t d = gd_gpu_groups(s->d, PART), dv = gd_gpu_groups(s->dv, PART);
    job->turns = t.turns;
    job->workspace = (size_t)(2 * t.units * t.slot * t.pitch) * sizeof(float);
    if (t.tiles > 0)
        add_gradient(call, job, s, "attention_grad_scores", down * across, 256);
    add_gradient(call, job, s, "attention_grad_sums",
                 down * d + most_of_keys(s, &t) * across * (d + dv), 256);
}

bool gd_gpu_describe_attention_grad(const gd_kernel_call *call, gd_gpu_job *job)
{
    const sizes s = sizes_of(call);
    if (!is_taken(call, &s))
        return false;
    if (s.entries == 0 && s.of_keys == 0)
        return true;
    if (!is_f64(call)) {
        add_gradient_f32(call, job, &s);
        return true;
    }
    job->workspace = (size_t)(s.entries * s.tq + 1) * sizeof(double);
    add_gradient(call, job, &s, "attention_grad_rows_f64",
                 gd_gpu_groups(s.entries * s.tq, F64_ITEMS), F64_ITEMS);
    add_gradient(call, job, &s, "attention_grad_keys_f64",
                 gd_gpu_groups(s.of_keys * s.tk, F64_ITEMS), F64_ITEMS);
    return true;
}
