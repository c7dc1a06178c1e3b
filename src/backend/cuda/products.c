/* backend/cuda/products.c: matrix products by NVIDIA's cuBLASLt, on the device's stream. Start at
 * gd_cuda_product.
 *
 * cuBLASLt's matrices lie by columns: ours, by rows, are their transposes, and c^T = b^T a^T is what it
 * is asked for. Its heuristic names an algorithm for each kind of product, which is kept; a product
 * with a bias has the algorithm of the one without, where that can add it, so that both have the same
 * bits. Sums that are made in parts are added in f32 in a step of their own: what the order of is
 * fixed. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

enum {
    KEPT = 1024, /* products; a power of two */
    PLACES = 8,  /* where one may be kept */
    FULLY_ALIGNED = 256,
};

/* All that an algorithm is chosen for. */
typedef struct product_key {
    gd_gpu_product product;
    int64_t alignment[3]; /* of the addresses of a, b and c, at most FULLY_ALIGNED */
} product_key;

typedef struct planned {
    product_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3]; /* of b, a, c: cuBLASLt's A, B, C */
    cublasLtMatmulAlgo_t algo;
    bool adds_bias;
} planned;

struct gd_cuda_products {
    const gd_cublas_api *lt;
    cublasLtHandle_t handle;
    planned *kept[KEPT];
};

static gd_status check(const gd_gpu *gpu, int status, const char *what)
{
    const gd_cuda_device *c = gpu->own;
    if (status == CUBLAS_STATUS_SUCCESS)
        return GD_OK;
    const char *name = c->products->lt->cublasLtGetStatusName(status);
    return gd_fail(GD_ERR_DEVICE, "%s: %s: %s (%d)", gpu->base.name, what, name ? name : "error",
                   status);
}

/* ---- opening ---- */

gd_status gd_cuda_products_open(gd_gpu *gpu)
{
    gd_cuda_device *c = gpu->own;
    const gd_cublas_api *lt = gd_cublas();
    if (!lt)
        return gd_error_last();
    c->products = gd_alloc_zero(1, sizeof *c->products);
    if (!c->products)
        return GD_ERR_MEMORY;
    c->products->lt = lt;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    status = check(gpu, lt->cublasLtCreate(&c->products->handle), "cublasLtCreate");
    if (status != GD_OK)
        c->products->handle = NULL;
    gd_cuda_leave(gpu);
    const size_t length = strlen(gpu->description);
    snprintf(gpu->description + length, sizeof gpu->description - length,
             ", products of cuBLASLt %zu.%zu%s", lt->version / 10000, lt->version % 10000 / 100,
             gpu->numbers == GD_NUMBERS_TF32 ? " in TF32" : "");
    return status;
}

static void forget(const gd_cublas_api *lt, planned *p)
{
    if (!p)
        return;
    for (int i = 0; i < 3; i++)
        if (p->layout[i])
            (void)lt->cublasLtMatrixLayoutDestroy(p->layout[i]);
    if (p->desc)
        (void)lt->cublasLtMatmulDescDestroy(p->desc);
    gd_free(p);
}

void gd_cuda_products_close(gd_cuda_products *products)
{
    if (!products)
        return;
    for (int i = 0; i < KEPT; i++)
        forget(products->lt, products->kept[i]);
    if (products->handle)
        (void)products->lt->cublasLtDestroy(products->handle);
    gd_free(products);
}

/* ---- what is multiplied ---- */

static int type_of(int64_t dtype)
{
    return dtype == GD_F32 ? CUDA_R_32F : dtype == GD_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* A matrix of ours [rows, columns] as cuBLASLt has it. */
static gd_status make_layout(const gd_gpu *gpu, cublasLtMatrixLayout_t *layout, int type,
                             int64_t rows, int64_t columns, gd_gpu_matrix matrix, int64_t batch)
{
    const gd_cuda_device *c = gpu->own;
    const gd_cublas_api *lt = c->products->lt;
    const int64_t first = matrix.is_transposed ? rows : columns,
                  second = matrix.is_transposed ? columns : rows;
    const int32_t count = (int32_t)batch;
    gd_status status = check(gpu,
                             lt->cublasLtMatrixLayoutCreate(layout, type, (uint64_t)first,
                                                            (uint64_t)second, matrix.stride),
                             "cublasLtMatrixLayoutCreate");
    if (status != GD_OK)
        *layout = NULL;
    if (status == GD_OK && batch > 1)
        status = check(gpu,
                       lt->cublasLtMatrixLayoutSetAttribute(
                           *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                       "cublasLtMatrixLayoutSetAttribute");
    if (status == GD_OK && batch > 1)
        status = check(gpu,
                       lt->cublasLtMatrixLayoutSetAttribute(
                           *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch,
                           sizeof matrix.batch),
                       "cublasLtMatrixLayoutSetAttribute");
    return status;
}

static gd_status set(const gd_gpu *gpu, const planned *p, int attribute, const void *value,
                     size_t bytes)
{
    const gd_cuda_device *c = gpu->own;
    return check(gpu,
                 c->products->lt->cublasLtMatmulDescSetAttribute(p->desc, attribute, value, bytes),
                 "cublasLtMatmulDescSetAttribute");
}

static gd_status describe(const gd_gpu *gpu, planned *p)
{
    const gd_cuda_device *c = gpu->own;
    const gd_gpu_product *of = &p->key.product;
    const int compute = of->dtype == GD_F32 && gpu->numbers == GD_NUMBERS_TF32
                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                            : CUBLAS_COMPUTE_32F;
    const int32_t transposed[2] = { of->b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    of->a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N };
    const gd_gpu_matrix result = { .stride = of->n, .batch = of->m * of->n };
    const int type = type_of(of->dtype);
    gd_status status =
        check(gpu, c->products->lt->cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F),
              "cublasLtMatmulDescCreate");
    if (status != GD_OK) {
        p->desc = NULL;
        return status;
    }
    for (int i = 0; status == GD_OK && i < 2; i++)
        status = set(gpu, p, i ? CUBLASLT_MATMUL_DESC_TRANSB : CUBLASLT_MATMUL_DESC_TRANSA,
                     &transposed[i], sizeof transposed[i]);
    if (status == GD_OK)
        status = make_layout(gpu, &p->layout[0], type, of->k, of->n, of->b, of->batch);
    if (status == GD_OK)
        status = make_layout(gpu, &p->layout[1], type, of->m, of->k, of->a, of->batch);
    if (status == GD_OK)
        status = make_layout(gpu, &p->layout[2], CUDA_R_32F, of->m, of->n, result, of->batch);
    return status;
}

/* ---- how ---- */

static gd_status prefer(const gd_gpu *gpu, cublasLtMatmulPreference_t preference,
                        const product_key *key, uint64_t workspace)
{
    const gd_cuda_device *c = gpu->own;
    const uint32_t number[] = { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, (uint32_t)key->alignment[1],
                                (uint32_t)key->alignment[0], (uint32_t)key->alignment[2],
                                (uint32_t)key->alignment[2] };
    static const int attribute[] = { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                     CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    int error = c->products->lt->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (int i = 0; error == CUBLAS_STATUS_SUCCESS && i < 5; i++)
        error = c->products->lt->cublasLtMatmulPreferenceSetAttribute(preference, attribute[i],
                                                                      &number[i], sizeof *number);
    return check(gpu, error, "cublasLtMatmulPreferenceSetAttribute");
}

static gd_status fail_unknown(const gd_gpu *gpu, const gd_gpu_product *p)
{
    const gd_cuda_device *c = gpu->own;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: cuBLASLt %zu has no algorithm for %lld products [%lld, %lld] @ [%lld, "
                   "%lld] of %s; in a context with .numbers = GD_NUMBERS_EXACT they are computed",
                   gpu->base.name, c->products->lt->version, (long long)p->batch, (long long)p->m,
                   (long long)p->k, (long long)p->k, (long long)p->n,
                   gd_dtype_name((gd_dtype)p->dtype));
}

static gd_status choose(const gd_gpu *gpu, planned *p, size_t workspace)
{
    const gd_cuda_device *c = gpu->own;
    const gd_cublas_api *lt = c->products->lt;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result = { .state = CUBLAS_STATUS_NOT_SUPPORTED };
    int found = 0;
    gd_status status = check(gpu, lt->cublasLtMatmulPreferenceCreate(&preference),
                             "cublasLtMatmulPreferenceCreate");
    if (status != GD_OK)
        return status;
    status = prefer(gpu, preference, &p->key, workspace);
    if (status == GD_OK) {
        const int error = lt->cublasLtMatmulAlgoGetHeuristic(
            c->products->handle, p->desc, p->layout[0], p->layout[1], p->layout[2], p->layout[2],
            preference, 1, &result, &found);
        const bool is_known = error != CUBLAS_STATUS_NOT_SUPPORTED &&
                              (error != CUBLAS_STATUS_SUCCESS ||
                               (found == 1 && result.state == CUBLAS_STATUS_SUCCESS));
        status = is_known ? check(gpu, error, "cublasLtMatmulAlgoGetHeuristic")
                          : fail_unknown(gpu, &p->key.product);
    }
    (void)lt->cublasLtMatmulPreferenceDestroy(preference);
    p->algo = result.algo;
    return status;
}

/* Has the algorithm add the bias, if it can. */
static gd_status add_bias(const gd_gpu *gpu, planned *p, const void *bias, size_t workspace)
{
    const gd_cuda_device *c = gpu->own;
    cublasLtMatmulHeuristicResult_t result = { .state = CUBLAS_STATUS_NOT_SUPPORTED };
    uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    gd_status status = set(gpu, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == GD_OK)
        status = set(gpu, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status != GD_OK)
        return status;
    const int error = c->products->lt->cublasLtMatmulAlgoCheck(
        c->products->handle, p->desc, p->layout[0], p->layout[1], p->layout[2], p->layout[2],
        &p->algo, &result);
    p->adds_bias = error == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace;
    epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return p->adds_bias ? GD_OK
                        : set(gpu, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
}

static planned *make(const gd_gpu *gpu, const product_key *key, const void *bias, size_t workspace)
{
    const gd_cuda_device *c = gpu->own;
    planned *p = gd_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->key = *key;
    gd_status status = describe(gpu, p);
    if (status == GD_OK)
        status = choose(gpu, p, workspace);
    if (status == GD_OK && key->product.has_bias)
        status = add_bias(gpu, p, bias, workspace);
    if (status == GD_OK)
        return p;
    forget(c->products->lt, p);
    return NULL;
}

/* What is kept of a key, made where there is nothing: in one of the places behind its hash, the first of
 * which is given up where all are taken. */
static planned *find(const gd_gpu *gpu, const product_key *key, const void *bias, size_t workspace)
{
    const gd_cuda_device *c = gpu->own;
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_hash_add(&hash, key, sizeof *key);
    const uint64_t first = gd_hash_end(&hash);
    planned **place = &c->products->kept[first % KEPT];
    for (uint64_t i = PLACES; i-- > 0;) {
        planned **at = &c->products->kept[(first + i) % KEPT];
        if (*at && memcmp(&(*at)->key, key, sizeof *key) == 0)
            return *at;
        if (!*at)
            place = at;
    }
    planned *made = make(gpu, key, bias, workspace);
    if (made) {
        forget(c->products->lt, *place);
        *place = made;
    }
    return made;
}

/* ---- the product ---- */

enum { A, B, BIAS, C, WORKSPACE };

static void *address_of(gd_gpu_place place)
{
    return (char *)place.block + place.offset;
}

static int64_t alignment_of(gd_gpu_place place)
{
    const uintptr_t address = (uintptr_t)address_of(place) | FULLY_ALIGNED;
    return (int64_t)(address & (0 - address));
}

gd_status gd_cuda_product(gd_gpu *gpu, const gd_gpu_product *product, const gd_gpu_place *place,
                          size_t workspace_bytes, bool *adds_bias)
{
    const gd_cuda_device *c = gpu->own;
    const float one = 1, zero = 0;
    const void *bias = address_of(place[BIAS]);
    void *result = address_of(place[C]);
    product_key key = { .product = *product };
    for (int i = 0; i < 3; i++)
        key.alignment[i] = alignment_of(place[i == 2 ? C : i]);
    /* What alignment the bias needs is not documented. */
    key.product.has_bias &= alignment_of(place[BIAS]) == FULLY_ALIGNED;
    *adds_bias = false;
    gd_status status = gd_cuda_enter(gpu);
    if (status != GD_OK)
        return status;
    const planned *p = find(gpu, &key, bias, workspace_bytes);
    status = p ? GD_OK : gd_error_last();
    if (p && p->adds_bias)
        status = set(gpu, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (status == GD_OK)
        status = check(gpu,
                       c->products->lt->cublasLtMatmul(
                           c->products->handle, p->desc, &one, address_of(place[B]), p->layout[0],
                           address_of(place[A]), p->layout[1], &zero, result, p->layout[2], result,
                           p->layout[2], &p->algo, address_of(place[WORKSPACE]), workspace_bytes,
                           c->stream),
                       "cublasLtMatmul");
    gd_cuda_leave(gpu);
    *adds_bias = status == GD_OK && p->adds_bias;
    return status;
}
