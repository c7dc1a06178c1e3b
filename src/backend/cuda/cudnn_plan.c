/* backend/cuda/cudnn_plan.c: a convolution as a graph of cuDNN's, the engine that computes it, and its
 * execution plan. Start at gd_cudnn_plan_make.
 *
 * Which engine is taken is a matter of the convolution, the kind of device and the library's version alone:
 * the first one that is proposed and may be taken. Nothing is timed. An engine that refuses is passed over;
 * when memory or the driver fails, that is an error, as another engine would give other bits. */
#include "backend/cuda/cudnn.h"

#include <string.h>

#include "base/error.h"

enum {
    MOST_PROPOSED = 64, /* engines, of one kind of heuristics */
    MOST_NOTES = 32,
    CATEGORY = 1000, /* of a status */
};

/* What builds a graph: after an error nothing more is done. */
typedef struct builder {
    const gd_cudnn_api *dnn;
    const gd_cudnn_target *target;
    gd_cudnn_plan *plan;
    int error;
    const char *what; /* that gave it */
} builder;

/* ---- descriptors ---- */

static cudnnBackendDescriptor_t make_loose(builder *b, int type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (b->error)
        return NULL;
    b->error = b->dnn->cudnnBackendCreateDescriptor(type, &descriptor);
    b->what = "cudnnBackendCreateDescriptor";
    return b->error ? NULL : descriptor;
}

static void end(builder *b, cudnnBackendDescriptor_t descriptor)
{
    if (descriptor)
        (void)b->dnn->cudnnBackendDestroyDescriptor(descriptor);
}

/* A descriptor that lasts as long as the plan. */
static cudnnBackendDescriptor_t keep(builder *b, cudnnBackendDescriptor_t descriptor)
{
    if (descriptor)
        b->plan->part[b->plan->parts++] = descriptor;
    return descriptor;
}

static cudnnBackendDescriptor_t make(builder *b, int type)
{
    return keep(b, make_loose(b, type));
}

static void set(builder *b, cudnnBackendDescriptor_t descriptor, int name, int type, int64_t count,
                const void *values)
{
    if (b->error)
        return;
    b->error = b->dnn->cudnnBackendSetAttribute(descriptor, name, type, count, values);
    b->what = "cudnnBackendSetAttribute";
}

static void set_int64(builder *b, cudnnBackendDescriptor_t descriptor, int name, int64_t value)
{
    set(b, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_descriptor(builder *b, cudnnBackendDescriptor_t descriptor, int name,
                           cudnnBackendDescriptor_t value)
{
    set(b, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_float(builder *b, cudnnBackendDescriptor_t descriptor, int name, float value)
{
    set(b, descriptor, name, CUDNN_TYPE_FLOAT, 1, &value);
}

/* Enumerations are ints. */
static void set_choice(builder *b, cudnnBackendDescriptor_t descriptor, int name, int type,
                       int value)
{
    set(b, descriptor, name, type, 1, &value);
}

static void finish(builder *b, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (b->error)
        return;
    b->error = b->dnn->cudnnBackendFinalize(descriptor);
    b->what = what;
}

/* How many values there are of `room` that were asked for. */
static int64_t get(builder *b, cudnnBackendDescriptor_t descriptor, int name, int type,
                   int64_t room, void *values)
{
    int64_t count = 0;
    if (b->error)
        return 0;
    b->error = b->dnn->cudnnBackendGetAttribute(descriptor, name, type, room, &count, values);
    b->what = "cudnnBackendGetAttribute";
    return b->error ? 0 : count;
}

/* ---- the graph ---- */

static cudnnBackendDescriptor_t add_tensor(builder *b, const gd_gpu_convolution *c, int operand)
{
    int64_t stride[GD_CONV_AXES];
    const int axes = (int)c->axes;
    stride[axes - 1] = 1;
    for (int a = axes - 1; a > 0; a--)
        stride[a - 1] = stride[a] * c->size[operand][a];
    cudnnBackendDescriptor_t t = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_choice(b, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set(b, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, axes, c->size[operand]);
    set(b, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, axes, stride);
    set_int64(b, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, operand);
    set_int64(b, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, GD_CUDNN_ALIGNMENT);
    finish(b, t, "cudnnBackendFinalize of a tensor");
    return t;
}

static cudnnBackendDescriptor_t add_windows(builder *b, const gd_gpu_convolution *c)
{
    const int64_t count = c->axes - 2;
    cudnnBackendDescriptor_t w = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_choice(b, w, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set_choice(b, w, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
               CUDNN_CROSS_CORRELATION);
    set_int64(b, w, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, count);
    set(b, w, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, count, c->dilation);
    set(b, w, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, count, c->stride);
    set(b, w, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, count, c->before);
    set(b, w, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, count, c->after);
    finish(b, w, "cudnnBackendFinalize of a convolution");
    return w;
}

/* An operation's descriptor and attributes, by what it computes. */
static const struct operation {
    int type, alpha, beta, windows;
    int operand[GD_CONV_OPERANDS]; /* x, w, y */
} operations[GD_CONV_OPERANDS] = {
    [GD_CONV_Y] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    { CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y } },
    [GD_CONV_X] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY } },
    [GD_CONV_W] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY } },
};

static cudnnBackendDescriptor_t add_operation(builder *b, const gd_gpu_convolution *c)
{
    const struct operation *o = &operations[c->result];
    cudnnBackendDescriptor_t operands[GD_CONV_OPERANDS];
    for (int k = 0; k < GD_CONV_OPERANDS; k++)
        operands[k] = add_tensor(b, c, k);
    cudnnBackendDescriptor_t windows = add_windows(b, c), d = make(b, o->type);
    set_float(b, d, o->alpha, 1);
    set_float(b, d, o->beta, 0);
    set_descriptor(b, d, o->windows, windows);
    for (int k = 0; k < GD_CONV_OPERANDS; k++)
        set_descriptor(b, d, o->operand[k], operands[k]);
    finish(b, d, "cudnnBackendFinalize of an operation");
    return d;
}

static cudnnBackendDescriptor_t add_graph(builder *b, const gd_gpu_convolution *c)
{
    cudnnBackendDescriptor_t operation = add_operation(b, c);
    cudnnBackendDescriptor_t graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (b->target->handle)
        set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &b->target->handle);
    set_descriptor(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    finish(b, graph, "cudnnBackendFinalize of a graph");
    return graph;
}

/* ---- the engine ---- */

/* Whether a status says that something cannot be done, and not that it failed. */
static bool is_refusal(int error)
{
    return error >= CUDNN_STATUS_BAD_PARAM && error < CUDNN_STATUS_EXECUTION_FAILED &&
           error != CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED &&
           error != CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

/* Forgets a refusal. Whether there was one. */
static bool was_refused(builder *b)
{
    const bool was = is_refusal(b->error);
    if (was)
        b->error = CUDNN_STATUS_SUCCESS;
    return was;
}

/* Of a proposal: its engine's number and notes. */
static void ask_engine(builder *b, cudnnBackendDescriptor_t config, int64_t *number,
                       uint32_t *notes)
{
    int note[MOST_NOTES];
    cudnnBackendDescriptor_t engine = make_loose(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    (void)get(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    (void)get(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, number);
    const int64_t count = get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                              CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, note);
    *notes = 0;
    for (int64_t i = 0; i < count && i < MOST_NOTES; i++)
        *notes |= (uint32_t)1 << (note[i] & 31);
    end(b, engine);
}

static bool has_note(uint32_t notes, int note)
{
    return notes >> note & 1;
}

/* Whether an engine with these notes has the numbers that are asked for, the same at every run. Of f32,
 * tensor cores multiply TF32. */
static bool may_be_taken(const gd_cudnn_target *target, uint32_t notes)
{
    const bool has_f32 = !has_note(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
                         !has_note(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    return !has_note(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           !has_note(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           (target->allows_tf32 || has_f32);
}

/* Of a finished plan; too large a number is a refusal. */
static void ask_workspace(builder *b, cudnnBackendDescriptor_t execution, int64_t *bytes)
{
    (void)get(b, execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, bytes);
    if (!b->error && *bytes > GD_CUDNN_WORKSPACE)
        b->error = CUDNN_STATUS_NOT_SUPPORTED;
}

/* Whether the proposal has become the plan. */
static bool take(builder *b, cudnnBackendDescriptor_t config)
{
    gd_cudnn_plan *plan = b->plan;
    const gd_cudnn_target *target = b->target;
    ask_engine(b, config, &plan->engine, &plan->notes);
    if (b->error || !may_be_taken(target, plan->notes))
        return false;
    cudnnBackendDescriptor_t execution = make_loose(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target->handle)
        set(b, execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    else
        set_descriptor(b, execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target->properties);
    set_descriptor(b, execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(b, execution, "cudnnBackendFinalize of an execution plan");
    ask_workspace(b, execution, &plan->workspace);
    if (b->error) {
        end(b, execution);
        return false;
    }
    plan->execution = keep(b, execution);
    return true;
}

/* The first of `count` proposals that can be taken; the others are ended. */
static void take_first(builder *b, cudnnBackendDescriptor_t *configs, int64_t count)
{
    for (int64_t i = 0; i < count && !b->error && !b->plan->execution; i++) {
        if (take(b, configs[i])) {
            keep(b, configs[i]);
            configs[i] = NULL;
        } else if (!b->error || was_refused(b)) {
            b->plan->refused++;
        }
    }
}

/* What one kind of heuristics proposes, best first. A kind that cannot tell has no proposals. */
static void ask_heuristics(builder *b, cudnnBackendDescriptor_t graph, int mode)
{
    cudnnBackendDescriptor_t configs[MOST_PROPOSED] = { NULL };
    cudnnBackendDescriptor_t heuristics = make_loose(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_choice(b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (!b->target->handle)
        set_descriptor(b, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, b->target->properties);
    finish(b, heuristics, "cudnnBackendFinalize of heuristics");
    if (!was_refused(b)) {
        int64_t count = get(b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, NULL);
        count = count < MOST_PROPOSED ? count : MOST_PROPOSED;
        for (int64_t i = 0; i < count; i++)
            configs[i] = make_loose(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        count = get(b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    count, configs);
        b->plan->proposed += (int)count;
        take_first(b, configs, count < MOST_PROPOSED ? count : MOST_PROPOSED);
    }
    for (int i = 0; i < MOST_PROPOSED; i++)
        end(b, configs[i]);
    end(b, heuristics);
}

/* ---- plans ---- */

static gd_status result_of(const builder *b)
{
    return gd_cudnn_check(b->dnn, b->target->name, b->error, b->what);
}

gd_status gd_cudnn_plan_make(const gd_cudnn_api *dnn, const gd_cudnn_target *target,
                             const gd_gpu_convolution *c, gd_cudnn_plan *plan)
{
    builder b = { .dnn = dnn, .target = target, .plan = plan };
    memset(plan, 0, sizeof *plan);
    cudnnBackendDescriptor_t graph = add_graph(&b, c);
    if (b.error / CATEGORY == CUDNN_STATUS_NOT_SUPPORTED / CATEGORY) {
        gd_cudnn_plan_end(dnn, plan);
        return GD_OK;
    }
    static const int modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
    for (int i = 0; i < 2 && !b.error && !plan->execution; i++)
        ask_heuristics(&b, graph, modes[i]);
    const gd_status status = result_of(&b);
    if (!plan->execution)
        gd_cudnn_plan_end(dnn, plan);
    return status;
}

void gd_cudnn_plan_end(const gd_cudnn_api *dnn, gd_cudnn_plan *plan)
{
    while (plan->parts)
        (void)dnn->cudnnBackendDestroyDescriptor(plan->part[--plan->parts]);
    plan->execution = NULL;
}

gd_status gd_cudnn_plan_run(const gd_cudnn_api *dnn, const gd_cudnn_target *target,
                            const gd_cudnn_plan *plan, const CUdeviceptr address[GD_CONV_OPERANDS],
                            CUdeviceptr workspace)
{
    builder b = { .dnn = dnn, .target = target };
    int64_t ids[GD_CONV_OPERANDS];
    void *pointers[GD_CONV_OPERANDS], *room = (void *)(uintptr_t)workspace;
    for (int k = 0; k < GD_CONV_OPERANDS; k++) {
        ids[k] = k;
        pointers[k] = (void *)(uintptr_t)address[k];
    }
    cudnnBackendDescriptor_t pack = make_loose(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, GD_CONV_OPERANDS, ids);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, GD_CONV_OPERANDS,
        pointers);
    set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &room);
    finish(&b, pack, "cudnnBackendFinalize of a variant pack");
    if (!b.error) {
        b.error = dnn->cudnnBackendExecute(target->handle, plan->execution, pack);
        b.what = "cudnnBackendExecute";
    }
    end(&b, pack);
    return result_of(&b);
}
