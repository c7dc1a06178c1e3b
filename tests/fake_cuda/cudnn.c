/* tests/fake_cuda/cudnn.c: the stand-in for cuDNN: descriptors, engines, handles. See cudnn.h. */
#include "cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn.h"
#include "convolve.h"
#include "driver.h"

enum { MOST_ATTRIBUTES = 8, MAGIC = 0xD44, WORKSPACE_ALIGNMENT = 256 };

typedef struct value {
    int name, type;
    int64_t count;
    char bytes[8 * GD_CONV_AXES];
} value;

typedef struct descriptor {
    int magic, type;
    bool is_final;
    int values;
    value value[MOST_ATTRIBUTES];
    /* configs and engines */
    int engine;
    struct descriptor *graph;
} descriptor;

struct cudnnContext {
    int magic;
    CUstream stream;
};

static fake_cudnn machine = { .engines = FAKE_ENGINES_ALL & ~(1u << FAKE_ENGINE_SYMMETRIC) };

fake_cudnn *fake_cudnn_state(void)
{
    return &machine;
}

__attribute__((constructor)) static void read_settings(void)
{
    const char *version = getenv("FAKE_CUDNN_VERSION");
    machine.version = version ? strtol(version, NULL, 10) : 92600;
}

/* ---- calls ---- */

/* Counts a call, and gives the status that it is to return. */
static int begin(void)
{
    const int error = fake_end(fake_begin());
    if (error == CUDA_ERROR_INVALID_CONTEXT)
        fake_cuda_forbid("a function of cuDNN is called without a context");
    return error == CUDA_SUCCESS               ? CUDNN_STATUS_SUCCESS
           : error == CUDA_ERROR_OUT_OF_MEMORY ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
                                               : CUDNN_STATUS_EXECUTION_FAILED;
}

size_t cudnnGetVersion(void)
{
    return (size_t)machine.version;
}

const char *cudnnGetErrorString(int status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED      ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
           : status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
               ? "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"
               : "another status";
}

void cudnnGetLastErrorString(char *message, size_t bytes)
{
    snprintf(message, bytes, "the stand-in says so");
}

int cudnnCreate(cudnnHandle_t *handle)
{
    const int error = begin();
    if (error)
        return error;
    *handle = calloc(1, sizeof **handle);
    (*handle)->magic = MAGIC;
    fake_cuda_state()->handles++;
    return error;
}

static void expect_handle(cudnnHandle_t handle)
{
    if (!handle || handle->magic != MAGIC)
        fake_cuda_forbid("cuDNN is given what is no handle");
}

int cudnnDestroy(cudnnHandle_t handle)
{
    expect_handle(handle);
    handle->magic = 0;
    free(handle);
    fake_cuda_state()->handles--;
    return CUDNN_STATUS_SUCCESS;
}

int cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    const int error = begin();
    expect_handle(handle);
    handle->stream = stream;
    return error;
}

/* ---- descriptors ---- */

static descriptor *expect_descriptor(void *of, int type)
{
    descriptor *d = of;
    if (!d || d->magic != MAGIC)
        fake_cuda_forbid("cuDNN is given what is no descriptor");
    if (type >= 0 && d->type != type)
        fake_cuda_forbid("cuDNN is given a descriptor of type %d for one of %d", d->type, type);
    return d;
}

/* What attributes a descriptor must be given. */
static const struct attribute {
    int descriptor, name, type, most; /* most: elements; at least one */
} attributes[] = {
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1 },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 5 },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 5 },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1 },
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
      1 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
      CUDNN_TYPE_CONVOLUTION_MODE, 1 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
      1 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 3 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
      3 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64,
      3 },
    { CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
      3 },
#define OPERATION(kind, prefix, x, w, y)                                                         \
    { kind, prefix##_ALPHA, CUDNN_TYPE_FLOAT, 1 }, { kind, prefix##_BETA, CUDNN_TYPE_FLOAT, 1 }, \
        { kind, prefix##_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },                          \
        { kind, prefix##_##x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },                                \
        { kind, prefix##_##w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },                                \
        { kind, prefix##_##y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },
    OPERATION(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD, X, W, Y)
        OPERATION(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY)
            OPERATION(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER, X, DW,
                      DY){ CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                           CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1 },
    { CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },
    { CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },
    { CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1 },
    { CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
      1 },
    { CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1 },
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
      3 },
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
      CUDNN_TYPE_VOID_PTR, 3 },
    { CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
      1 },
};

static size_t size_of(int type)
{
    return type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ||
                   type == CUDNN_TYPE_BACKEND_DESCRIPTOR
               ? 8
               : 4;
}

int cudnnBackendCreateDescriptor(int type, cudnnBackendDescriptor_t *out)
{
    const int error = begin();
    if (error)
        return error;
    descriptor *d = calloc(1, sizeof *d);
    d->magic = MAGIC;
    d->type = type;
    fake_cuda_state()->descriptors++;
    *out = d;
    return error;
}

int cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t of)
{
    descriptor *d = expect_descriptor(of, -1);
    memset(d, 0xA5, sizeof *d);
    free(d);
    fake_cuda_state()->descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

int cudnnBackendSetAttribute(cudnnBackendDescriptor_t of, int name, int type, int64_t count,
                             const void *values)
{
    const int error = begin();
    descriptor *d = expect_descriptor(of, -1);
    const struct attribute *known = NULL;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].descriptor == d->type && attributes[i].name == name)
            known = &attributes[i];
    if (!known)
        fake_cuda_forbid("a descriptor of type %d has no attribute %d", d->type, name);
    if (known->type != type || count < 1 || count > known->most)
        fake_cuda_forbid("attribute %d is given %lld elements of type %d", name, (long long)count,
                         type);
    if (d->is_final)
        fake_cuda_forbid("attribute %d is set when its descriptor is final", name);
    if (error)
        return error;
    value *v = &d->value[d->values++];
    *v = (value){ .name = name, .type = type, .count = count };
    memcpy(v->bytes, values, size_of(type) * (size_t)count);
    return error;
}

static const value *value_of(const descriptor *d, int name)
{
    for (int i = 0; i < d->values; i++)
        if (d->value[i].name == name)
            return &d->value[i];
    fake_cuda_forbid("attribute %d of a descriptor of type %d is not set", name, d->type);
}

static int64_t int64_at(const descriptor *d, int name, int64_t i)
{
    int64_t number;
    memcpy(&number, value_of(d, name)->bytes + 8 * i, sizeof number);
    return number;
}

static int int_of(const descriptor *d, int name)
{
    int number;
    memcpy(&number, value_of(d, name)->bytes, sizeof number);
    return number;
}

static descriptor *final_of(const descriptor *d, int name, int type)
{
    void *pointer;
    memcpy(&pointer, value_of(d, name)->bytes, sizeof pointer);
    descriptor *found = expect_descriptor(pointer, type);
    if (!found->is_final)
        fake_cuda_forbid("attribute %d is a descriptor that is not final", name);
    return found;
}

static cudnnHandle_t handle_of(const descriptor *d, int name)
{
    cudnnHandle_t handle;
    memcpy(&handle, value_of(d, name)->bytes, sizeof handle);
    expect_handle(handle);
    return handle;
}

/* ---- finalizing ---- */

static void check_tensor(const descriptor *d)
{
    const value *size = value_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t stride = 1;
    if (size->count != value_of(d, CUDNN_ATTR_TENSOR_STRIDES)->count || size->count < 4)
        fake_cuda_forbid("a tensor has %lld sizes", (long long)size->count);
    for (int64_t a = size->count; a-- > 0;) {
        const int64_t n = int64_at(d, CUDNN_ATTR_TENSOR_DIMENSIONS, a);
        if (n < 1 || int64_at(d, CUDNN_ATTR_TENSOR_STRIDES, a) != stride)
            fake_cuda_forbid("axis %lld of a tensor has size %lld and is not contiguous",
                             (long long)a, (long long)n);
        stride *= n;
    }
    if (int_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE) != CUDNN_DATA_FLOAT ||
        int64_at(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0) % 4)
        fake_cuda_forbid("a tensor is not of f32 or not aligned");
}

static void check_windows(const descriptor *d)
{
    const int64_t count = int64_at(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    static const int arrays[] = { CUDNN_ATTR_CONVOLUTION_DILATIONS,
                                  CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                                  CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                                  CUDNN_ATTR_CONVOLUTION_POST_PADDINGS };
    for (int i = 0; i < 4; i++) {
        if (value_of(d, arrays[i])->count != count)
            fake_cuda_forbid("attribute %d has not one number for each spatial axis", arrays[i]);
        for (int64_t a = 0; a < count; a++)
            if (int64_at(d, arrays[i], a) < (i < 2))
                fake_cuda_forbid("attribute %d is %lld", arrays[i],
                                 (long long)int64_at(d, arrays[i], a));
    }
    if (int_of(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT ||
        int_of(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
        fake_cuda_forbid("a convolution computes in no f32, or turns its kernel around");
}

/* The numbers of x's, w's and y's attributes in an operation of this type. */
static const int *operands_of(int type)
{
    static const int forward[] = { CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
                     data[] = { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
                     filter[] = { CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA };
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR           ? forward
           : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR   ? data
           : type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR ? filter
                                                                                    : NULL;
}

/* The convolution of an operation, with three spatial axes; aborts where it is none. */
static fake_convolution convolution_of(const descriptor *d)
{
    const int *names = operands_of(d->type);
    const descriptor *windows = final_of(d, names[3], CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t spatial = int64_at(windows, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0),
                  missing = 3 - spatial;
    fake_convolution c = {
        .result = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 2
                  : d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0
                                                                                            : 1
    };
    for (int k = 0; k < 3; k++) {
        const descriptor *t = final_of(d, names[k], CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        if (value_of(t, CUDNN_ATTR_TENSOR_DIMENSIONS)->count != spatial + 2)
            fake_cuda_forbid("operand %d of a convolution has not %lld axes", k,
                             (long long)spatial + 2);
        for (int64_t a = 0; a < 5; a++)
            c.size[k][a] = 1;
        for (int64_t a = 0; a < spatial + 2; a++)
            c.size[k][a < 2 ? a : a + missing] = int64_at(t, CUDNN_ATTR_TENSOR_DIMENSIONS, a);
    }
    for (int64_t a = 0; a < 3; a++) {
        const bool is_there = a >= missing;
        c.stride[a] =
            is_there ? int64_at(windows, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, a - missing) : 1;
        c.dilation[a] =
            is_there ? int64_at(windows, CUDNN_ATTR_CONVOLUTION_DILATIONS, a - missing) : 1;
        c.before[a] =
            is_there ? int64_at(windows, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, a - missing) : 0;
        c.after[a] =
            is_there ? int64_at(windows, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, a - missing) : 0;
    }
    const char *why = fake_convolution_fault(&c);
    if (why)
        fake_cuda_forbid("an operation is no convolution: %s", why);
    return c;
}

static void check_operation(const descriptor *d)
{
    const int *names = operands_of(d->type);
    float alpha, beta;
    memcpy(&alpha, value_of(d, names[4])->bytes, sizeof alpha);
    memcpy(&beta, value_of(d, names[5])->bytes, sizeof beta);
    if (alpha != 1 || beta != 0)
        fake_cuda_forbid("an operation has alpha %g and beta %g", (double)alpha, (double)beta);
    for (int k = 0; k < 3; k++)
        for (int other = 0; other < k; other++)
            if (int64_at(final_of(d, names[k], CUDNN_BACKEND_TENSOR_DESCRIPTOR),
                         CUDNN_ATTR_TENSOR_UNIQUE_ID,
                         0) == int64_at(final_of(d, names[other], CUDNN_BACKEND_TENSOR_DESCRIPTOR),
                                        CUDNN_ATTR_TENSOR_UNIQUE_ID, 0))
                fake_cuda_forbid("two operands have one id");
    (void)convolution_of(d);
}

static const descriptor *operation_of(const descriptor *graph)
{
    return final_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, -1);
}

static int64_t workspace_of(int engine)
{
    return engine == FAKE_ENGINE_LARGE      ? INT64_C(1) << 30
           : engine == FAKE_ENGINE_FALLBACK ? 0
                                            : 1000 * engine;
}

static int check_plan(const descriptor *d)
{
    const descriptor *config =
        final_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (handle_of(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) !=
        handle_of(config->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE))
        fake_cuda_forbid("a plan has another handle than its graph");
    const fake_convolution c = convolution_of(operation_of(config->graph));
    machine.plans++;
    if (config->engine == FAKE_ENGINE_REFUSING)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return config->engine == FAKE_ENGINE_SYMMETRIC && !fake_convolution_is_symmetric(&c)
               ? CUDNN_STATUS_NOT_SUPPORTED
               : CUDNN_STATUS_SUCCESS;
}

static int check(const descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        check_tensor(d);
        return 0;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        check_windows(d);
        return 0;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        (void)handle_of(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
        (void)operation_of(d);
        return 0;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        (void)final_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                       CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        (void)value_of(d, CUDNN_ATTR_ENGINEHEUR_MODE);
        return 0;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        (void)value_of(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
        if (value_of(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count !=
            value_of(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count)
            fake_cuda_forbid("a pack has not one address for each id");
        return 0;
    default:
        if (!operands_of(d->type))
            fake_cuda_forbid("a descriptor of type %d is finalized", d->type);
        check_operation(d);
        return 0;
    }
}

int cudnnBackendFinalize(cudnnBackendDescriptor_t of)
{
    const int error = begin();
    descriptor *d = expect_descriptor(of, -1);
    if (d->is_final)
        fake_cuda_forbid("a descriptor of type %d is finalized twice", d->type);
    const int refused = error ? error : check(d);
    d->is_final = refused == 0;
    return refused;
}

/* ---- engines ---- */

static int notes_of(int engine, int notes[1])
{
    notes[0] = engine == FAKE_ENGINE_RACING      ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
               : engine == FAKE_ENGINE_HALF_SUMS ? CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION
               : engine == FAKE_ENGINE_TF32      ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                                                 : CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return engine == FAKE_ENGINE_RACING || engine == FAKE_ENGINE_HALF_SUMS ||
           engine == FAKE_ENGINE_TF32 || engine == FAKE_ENGINE_DOWN_CONVERTING;
}

/* The n-th engine that is proposed; -1: there are no more. */
static int proposal(int mode, int n)
{
    const int first = mode == CUDNN_HEUR_MODE_A ? FAKE_ENGINE_RACING : FAKE_ENGINE_FALLBACK;
    const int last = mode == CUDNN_HEUR_MODE_A ? FAKE_ENGINE_F32 : FAKE_ENGINE_FALLBACK;
    for (int engine = first; engine >= last; engine--)
        if (machine.engines >> engine & 1 && n-- == 0)
            return engine;
    return -1;
}

static int64_t give_proposals(const descriptor *heuristics, int64_t room,
                              cudnnBackendDescriptor_t *out)
{
    const int mode = int_of(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE);
    int64_t count = 0;
    while (proposal(mode, (int)count) >= 0)
        count++;
    if (room == 0)
        return count;
    for (int64_t i = 0; i < count && i < room; i++) {
        descriptor *config = expect_descriptor(out[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        config->engine = proposal(mode, (int)i);
        config->graph = final_of(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        config->is_final = true;
    }
    return count < room ? count : room;
}

static void give_engine(const descriptor *config, cudnnBackendDescriptor_t *out)
{
    descriptor *engine = expect_descriptor(*out, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine->engine = config->engine;
    engine->is_final = true;
}

int cudnnBackendGetAttribute(cudnnBackendDescriptor_t of, int name, int type, int64_t room,
                             int64_t *count, void *values)
{
    const int error = begin();
    const descriptor *d = expect_descriptor(of, -1);
    if (!d->is_final)
        fake_cuda_forbid("attribute %d is asked of a descriptor that is not final", name);
    if (error)
        return error;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        *count = give_proposals(d, room, values);
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        give_engine(d, values);
    } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64) {
        *(int64_t *)values = d->engine;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE &&
               room >= 1) {
        *count = notes_of(d->engine, values);
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
        const descriptor *config = final_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        *(int64_t *)values = workspace_of(config->engine);
    } else {
        fake_cuda_forbid("attribute %d of type %d is asked of a descriptor of type %d", name, type,
                         d->type);
    }
    return error;
}

/* ---- executing ---- */

/* The address that a pack has for a tensor, which must be the device's and aligned as the tensor says. */
static float *address_of(const descriptor *pack, const descriptor *tensor)
{
    const int64_t id = int64_at(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    size_t bytes = sizeof(float);
    for (int64_t a = 0; a < value_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->count; a++)
        bytes *= (size_t)int64_at(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, a);
    for (int64_t i = 0; i < value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count; i++) {
        if (int64_at(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) != id)
            continue;
        const int64_t address = int64_at(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
        if (address % int64_at(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0))
            fake_cuda_forbid("an operand of cuDNN's lies at %lld", (long long)address);
        (void)fake_device_memory((CUdeviceptr)address, bytes, "cudnnBackendExecute");
        return (float *)(intptr_t)address;
    }
    fake_cuda_forbid("a pack has no address for tensor %lld", (long long)id);
}

int cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t of,
                        cudnnBackendDescriptor_t with)
{
    const int error = begin();
    expect_handle(handle);
    const descriptor *plan = expect_descriptor(of, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const descriptor *pack = expect_descriptor(with, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (!plan->is_final || !pack->is_final)
        fake_cuda_forbid("a plan is executed that is not final, or with such a pack");
    const descriptor *config =
        final_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const descriptor *operation = operation_of(config->graph);
    fake_convolution c = convolution_of(operation);
    for (int k = 0; k < 3; k++)
        c.operand[k] = address_of(pack, final_of(operation, operands_of(operation->type)[k],
                                                 CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    c.engine = config->engine;
    c.workspace = (char *)(intptr_t)int64_at(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    c.workspace_bytes = (size_t)workspace_of(config->engine);
    if (c.workspace_bytes)
        (void)fake_device_memory((uintptr_t)c.workspace, c.workspace_bytes, "cudnnBackendExecute");
    if ((uintptr_t)c.workspace % WORKSPACE_ALIGNMENT)
        fake_cuda_forbid("the workspace lies at %p", (void *)c.workspace);
    if (error)
        return error;
    machine.executions++;
    machine.executed[config->engine]++;
    (void)fake_tell_call(handle->stream, fake_convolve, &c, sizeof c);
    return error;
}
