/* tests/fake_cuda/cublas.c: fake cuBLASLt. See fake.h. What the engine may not ask for, though NVIDIA's
 * library would do it, ends the process, too: sums in parts that are added in no fixed order, more
 * workspace than 32 MiB. */
#define _GNU_SOURCE
#include "base/half.h"
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum thing { HANDLE = 0xcb1a5, DESC, LAYOUT, PREFERENCE };

struct cublasLt_st {
    enum thing is;
    CUcontext context;
};
struct cublasLtDesc_st {
    enum thing is;
    int compute;
    int32_t transposed[2];
    uint32_t epilogue;
    const void *bias;
};
struct cublasLtLayout_st {
    enum thing is;
    int type;
    int64_t rows, columns, ld, batch, batch_stride;
};
struct cublasLtPreference_st {
    enum thing is;
    uint64_t workspace;
    uint32_t reductions, alignment[4];
};

#define EXPECT_THING(thing, what)                                           \
    do {                                                                    \
        if (!(thing) || (thing)->is != (what))                              \
            fake_cuda_forbid("%s is given what is no %s", __func__, #what); \
    } while (0)

enum { INTERNAL_ERROR = 14, WORKSPACE = 1 << 20, MOST_WORKSPACE = 32 << 20 };

size_t cublasLtGetVersion(void)
{
    const char *version = getenv("FAKE_CUBLAS_VERSION");
    return version ? strtoul(version, NULL, 10) : 130100;
}

const char *cublasLtGetStatusName(int status)
{
    return status == INTERNAL_ERROR                   ? "CUBLAS_STATUS_INTERNAL_ERROR"
           : status == CUBLAS_STATUS_ALLOC_FAILED     ? "CUBLAS_STATUS_ALLOC_FAILED"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_NOT_INITIALIZED  ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                      : "CUBLAS_STATUS_UNKNOWN";
}

/* ---- things ---- */

static int make(void *out, size_t bytes, enum thing is, int64_t *count)
{
    if (fake_cuda_call())
        return CUBLAS_STATUS_ALLOC_FAILED;
    enum thing *thing = calloc(1, bytes);
    *thing = is;
    *(void **)out = thing;
    ++*count;
    return CUBLAS_STATUS_SUCCESS;
}

static int end(void *thing, int64_t *count)
{
    *(enum thing *)thing = 0;
    free(thing);
    --*count;
    return fake_cuda_call() ? INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

static int needs_context(void)
{
    return fake_end(fake_begin()) ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

int cublasLtCreate(cublasLtHandle_t *handle)
{
    const int error = needs_context();
    return error ? error : make(handle, sizeof **handle, HANDLE, &fake_machine.handles);
}

int cublasLtDestroy(cublasLtHandle_t handle)
{
    EXPECT_THING(handle, HANDLE);
    return end(handle, &fake_machine.handles);
}

int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, int compute, int scale)
{
    const int error = make(desc, sizeof **desc, DESC, &fake_machine.descriptors);
    if (error)
        return error;
    if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) ||
        scale != CUDA_R_32F)
        fake_cuda_forbid("%s: compute type %d, scale type %d", __func__, compute, scale);
    (*desc)->compute = compute;
    (*desc)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    EXPECT_THING(desc, DESC);
    return end(desc, &fake_machine.descriptors);
}

/* The bytes of a value must be those of the attribute's type. */
static int set(void *to, size_t size, const void *value, size_t bytes)
{
    if (fake_cuda_call())
        return INTERNAL_ERROR;
    if (bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, int attribute, const void *value,
                                   size_t bytes)
{
    EXPECT_THING(desc, DESC);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->transposed[attribute - CUBLASLT_MATMUL_DESC_TRANSA], sizeof(int32_t),
                   value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, sizeof desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->bias, sizeof desc->bias, value, bytes);
    default:
        fake_cuda_forbid("%s: attribute %d", __func__, attribute);
    }
}

int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, int type, uint64_t rows,
                               uint64_t columns, int64_t ld)
{
    const int error = make(layout, sizeof **layout, LAYOUT, &fake_machine.descriptors);
    if (error)
        return error;
    if (rows == 0 || columns == 0 || ld < (int64_t)rows ||
        (type != CUDA_R_32F && type != CUDA_R_16F && type != CUDA_R_16BF))
        fake_cuda_forbid("%s: type %d, %llu rows, %llu columns, leading dimension %lld", __func__,
                         type, (unsigned long long)rows, (unsigned long long)columns,
                         (long long)ld);
    (*layout)->type = type;
    (*layout)->rows = (int64_t)rows;
    (*layout)->columns = (int64_t)columns;
    (*layout)->ld = ld;
    (*layout)->batch = 1;
    return CUBLAS_STATUS_SUCCESS;
}

int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    EXPECT_THING(layout, LAYOUT);
    return end(layout, &fake_machine.descriptors);
}

int cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, int attribute,
                                     const void *value, size_t bytes)
{
    EXPECT_THING(layout, LAYOUT);
    int32_t count = 0;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        return set(&layout->batch_stride, sizeof layout->batch_stride, value, bytes);
    if (attribute != CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        fake_cuda_forbid("%s: attribute %d", __func__, attribute);
    const int error = set(&count, sizeof count, value, bytes);
    if (error == CUBLAS_STATUS_SUCCESS && (count < 1 || count > 65535))
        fake_cuda_forbid("%s: a batch of %d", __func__, count);
    layout->batch = count;
    return error;
}

int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    const int error = make(preference, sizeof **preference, PREFERENCE, &fake_machine.descriptors);
    for (int i = 0; error == CUBLAS_STATUS_SUCCESS && i < 4; i++)
        (*preference)->alignment[i] = 256;
    if (error == CUBLAS_STATUS_SUCCESS)
        (*preference)->reductions = 7;
    return error;
}

int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    EXPECT_THING(preference, PREFERENCE);
    return end(preference, &fake_machine.descriptors);
}

int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, int attribute,
                                         const void *value, size_t bytes)
{
    EXPECT_THING(preference, PREFERENCE);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace, sizeof preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&preference->reductions, sizeof preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                   sizeof(uint32_t), value, bytes);
    default:
        fake_cuda_forbid("%s: attribute %d", __func__, attribute);
    }
}

/* ---- products ---- */

/* What a product is: what its algorithm was chosen for must be what it computes. */
typedef struct problem {
    struct cublasLtDesc_st desc;
    struct cublasLtLayout_st a, b, c;
} problem;

static problem check_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                             cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                             cublasLtMatrixLayout_t d)
{
    EXPECT_THING(desc, DESC);
    EXPECT_THING(a, LAYOUT);
    EXPECT_THING(b, LAYOUT);
    EXPECT_THING(c, LAYOUT);
    if (c != d)
        fake_cuda_forbid("C and D differ");
    const int64_t m = desc->transposed[0] ? a->columns : a->rows,
                  k = desc->transposed[0] ? a->rows : a->columns,
                  depth = desc->transposed[1] ? b->columns : b->rows,
                  n = desc->transposed[1] ? b->rows : b->columns;
    if (k != depth || m != c->rows || n != c->columns || a->type != b->type ||
        c->type != CUDA_R_32F || a->batch != b->batch || a->batch != c->batch ||
        (desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type != CUDA_R_32F) ||
        a->batch_stride < 0 || b->batch_stride < 0 || c->ld != c->rows ||
        (c->batch > 1 && c->batch_stride != m * n) ||
        (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && desc->epilogue != CUBLASLT_EPILOGUE_BIAS))
        fake_cuda_forbid("a product of %lld x %lld and %lld x %lld is %lld x %lld, epilogue %u",
                         (long long)m, (long long)k, (long long)depth, (long long)n,
                         (long long)c->rows, (long long)c->columns, desc->epilogue);
    problem p;
    memset(&p, 0, sizeof p);
    p.desc = *desc;
    p.a = *a;
    p.b = *b;
    p.c = *c;
    return p;
}

static uint64_t mark_of(const problem *p)
{
    problem plain = *p;
    uint64_t hash = 14695981039346656037u;
    plain.desc.epilogue = 0; /* which of them the algorithm has is cublasLtMatmulAlgoCheck's */
    plain.desc.bias = NULL;
    for (size_t i = 0; i < sizeof plain; i++)
        hash = (hash ^ ((const unsigned char *)&plain)[i]) * 1099511628211u;
    return hash;
}

/* An algorithm: the mark of its problem, then alignments of A, B and C. */
int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t preference, int wanted,
                                   cublasLtMatmulHeuristicResult_t *results, int *found)
{
    EXPECT_THING(handle, HANDLE);
    EXPECT_THING(preference, PREFERENCE);
    const int error = needs_context();
    if (error)
        return error;
    const problem p = check_problem(desc, a, b, c, d);
    if (preference->reductions & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        fake_cuda_forbid("sums may be added in no fixed order: schemes %u", preference->reductions);
    if (preference->workspace > MOST_WORKSPACE || wanted < 1 ||
        preference->alignment[2] != preference->alignment[3])
        fake_cuda_forbid("a workspace of %llu bytes, %d results",
                         (unsigned long long)preference->workspace, wanted);
    fake_machine.heuristics++;
    *found = 0;
    if (fake_machine.refuses_products)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    results->algo.data[0] = mark_of(&p);
    for (int i = 0; i < 3; i++)
        results->algo.data[1 + i] = preference->alignment[i];
    results->workspaceSize = preference->workspace < WORKSPACE ? 0 : WORKSPACE;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* Algorithms for an odd number of rows, the engine's columns, add no bias. */
int cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result)
{
    EXPECT_THING(handle, HANDLE);
    const int error = needs_context();
    if (error)
        return error;
    const problem p = check_problem(desc, a, b, c, d);
    if (algo->data[0] != mark_of(&p))
        return CUBLAS_STATUS_INVALID_VALUE;
    fake_machine.checks++;
    result->algo = *algo;
    result->workspaceSize = WORKSPACE;
    result->state = CUBLAS_STATUS_SUCCESS;
    return desc->epilogue == CUBLASLT_EPILOGUE_BIAS && c->rows % 2 ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                   : CUBLAS_STATUS_SUCCESS;
}

typedef struct product {
    problem of;
    const char *a, *b;
    float *c;
    char *workspace;
    size_t workspace_bytes;
    int order; /* 0: in f64 */
} product;

/* TF32: rounded to 10 bits of fraction, to nearest. */
static double as_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double element(const struct cublasLtLayout_st *l, const char *data, int64_t batch,
                      int64_t row, int64_t column, bool is_tf32)
{
    const int64_t at = batch * l->batch_stride + row + column * l->ld;
    if (l->type == CUDA_R_16F)
        return gd_f16_to_f32(((const uint16_t *)data)[at]);
    if (l->type == CUDA_R_16BF)
        return gd_bf16_to_f32(((const uint16_t *)data)[at]);
    return is_tf32 ? as_tf32(((const float *)data)[at]) : ((const float *)data)[at];
}

/* Element [i, d] of the first operand times [d, j] of the second. */
static double factor(const product *p, int64_t batch, int64_t i, int64_t j, int64_t d)
{
    const struct cublasLtDesc_st *desc = &p->of.desc;
    const bool is_tf32 = desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return element(&p->of.a, p->a, batch, desc->transposed[0] ? d : i, desc->transposed[0] ? i : d,
                   is_tf32) *
           element(&p->of.b, p->b, batch, desc->transposed[1] ? j : d, desc->transposed[1] ? d : j,
                   is_tf32);
}

/* Orders: ascending, descending, two chains, and one of every three. */
static float sum_of(const product *p, int64_t batch, int64_t i, int64_t j, int64_t k)
{
    double exact = 0;
    float sum[3] = { 0, 0, 0 };
    for (int64_t d = 0; d < k && p->order == 0; d++)
        exact += factor(p, batch, i, j, d);
    for (int64_t d = 0; d < k && p->order != 0; d++) {
        const int64_t at = p->order == 2 ? k - 1 - d : d;
        sum[p->order < 3 ? 0 : d % (p->order - 1)] += (float)factor(p, batch, i, j, at);
    }
    return p->order == 0 ? (float)exact : sum[0] + sum[1] + sum[2];
}

static void run(const void *arguments)
{
    product p;
    memcpy(&p, arguments, sizeof p);
    const struct cublasLtDesc_st *desc = &p.of.desc;
    const int64_t k = desc->transposed[0] ? p.of.a.rows : p.of.a.columns;
    memset(p.workspace, 0xA5, WORKSPACE);
    memset(p.workspace + p.workspace_bytes - WORKSPACE, 0xA5, WORKSPACE);
    for (int64_t batch = 0; batch < p.of.c.batch; batch++)
        for (int64_t j = 0; j < p.of.c.columns; j++)
            for (int64_t i = 0; i < p.of.c.rows; i++) {
                float value = sum_of(&p, batch, i, j, k);
                if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS)
                    value += ((const float *)desc->bias)[i];
                p.c[batch * p.of.c.batch_stride + i + j * p.of.c.ld] = value;
            }
}

/* A matrix with its whole batch must be the device's memory. */
static size_t bytes_of(const struct cublasLtLayout_st *l)
{
    const int64_t elements = (l->batch - 1) * l->batch_stride + (l->columns - 1) * l->ld + l->rows;
    return (size_t)elements * (l->type == CUDA_R_32F ? 4 : 2);
}

static char *check_matrix(const void *address, const struct cublasLtLayout_st *l,
                          uint64_t alignment, const char *name)
{
    if ((uintptr_t)address % alignment)
        fake_cuda_forbid("cublasLtMatmul: %s is not aligned to %llu bytes", name,
                         (unsigned long long)alignment);
    return fake_device_memory((uintptr_t)address, bytes_of(l), "cublasLtMatmul");
}

static void forbid_overlap(const product *p, const char *from, size_t bytes)
{
    const char *c = (const char *)p->c;
    if (from < c + bytes_of(&p->of.c) && c < from + bytes)
        fake_cuda_forbid("cublasLtMatmul: the result overlaps what it is made of");
}

int cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                   const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                   cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                   cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                   CUstream stream)
{
    EXPECT_THING(handle, HANDLE);
    const int error = fake_begin();
    if (error)
        return fake_end(CUBLAS_STATUS_EXECUTION_FAILED);
    product p;
    memset(&p, 0, sizeof p);
    p.of = check_problem(desc, a_layout, b_layout, c_layout, d_layout);
    if (*(const float *)alpha != 1 || *(const float *)beta != 0 || c != d)
        fake_cuda_forbid("cublasLtMatmul: more than a product");
    if (algo->data[0] != mark_of(&p.of))
        fake_cuda_forbid("cublasLtMatmul: the algorithm is that of another product");
    if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && p.of.c.rows % 2)
        fake_cuda_forbid("cublasLtMatmul: the algorithm adds no bias");
    p.a = check_matrix(a, a_layout, algo->data[1], "A");
    p.b = check_matrix(b, b_layout, algo->data[2], "B");
    p.c = (float *)(void *)check_matrix(d, d_layout, algo->data[3], "D");
    if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS)
        (void)fake_device_memory((uintptr_t)desc->bias, (size_t)p.of.c.rows * sizeof(float),
                                 "cublasLtMatmul");
    if (workspace_bytes < 2 * WORKSPACE || (uintptr_t)workspace % 256)
        fake_cuda_forbid("cublasLtMatmul: %zu bytes of workspace at %p", workspace_bytes,
                         workspace);
    p.workspace = fake_device_memory((uintptr_t)workspace, workspace_bytes, "cublasLtMatmul");
    p.workspace_bytes = workspace_bytes;
    for (int i = 0; i < 4 && fake_machine.orders_differ; i++)
        p.order = (int)((p.order + algo->data[i] % 251 + algo->data[i] % 241) % 1009);
    p.order = fake_machine.orders_differ ? 1 + p.order % 4 : 0;
    forbid_overlap(&p, p.a, bytes_of(a_layout));
    forbid_overlap(&p, p.b, bytes_of(b_layout));
    forbid_overlap(&p, p.workspace, workspace_bytes);
    fake_machine.products += stream->capture == NULL;
    return fake_end(fake_tell_call(stream, run, &p, sizeof p) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                              : CUBLAS_STATUS_SUCCESS);
}
