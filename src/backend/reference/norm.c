/* backend/reference/norm.c: normalize and normalize_grad from their definitions (ops/norm.c).
 * Operands are contiguous. */
#include "backend/reference/reference.h"

#include "ops/attrs.h"

#include <math.h>

/* One row of x: where it begins, its mean (0 when not centred) and 1 / deviation. */
typedef struct row {
    int64_t first, k;
    real mean, scale;
} row;

static row row_of(const gd_kernel_call *call, int64_t number)
{
    const gd_norm_attr *attr = call->attr;
    const gd_operand *x = &call->in[0];
    row r = { .k = x->layout->shape[x->layout->rank - 1] };
    r.first = number * r.k;
    for (int64_t i = 0; i < r.k && attr->center; i++)
        r.mean += gd_ref_load(x, r.first + i) / (real)r.k;
    real variance = 0;
    for (int64_t i = 0; i < r.k; i++) {
        real c = gd_ref_load(x, r.first + i) - r.mean;
        variance += c * c / (real)r.k;
    }
    r.scale = 1 / sqrtl(variance + (real)attr->epsilon);
    return r;
}

static real normalized(const gd_kernel_call *call, const row *r, int64_t i)
{
    return (gd_ref_load(&call->in[0], r->first + i) - r->mean) * r->scale;
}

static gd_status normalize(const gd_kernel_call *call)
{
    int64_t rows = gd_norm_rows(call->in[0].layout);
    for (int64_t number = 0; number < rows; number++) {
        row r = row_of(call, number);
        for (int64_t i = 0; i < r.k; i++) {
            real y = normalized(call, &r, i);
            if (call->n > 1)
                y *= gd_ref_load(&call->in[1], i);
            if (call->n > 2)
                y += gd_ref_load(&call->in[2], i);
            gd_ref_store(&call->out, r.first + i, y);
        }
    }
    return GD_OK;
}

/* weight * g */
static real weighted(const gd_kernel_call *call, const row *r, int64_t i)
{
    real g = gd_ref_load(&call->in[1], r->first + i);
    return call->n > 2 ? g * gd_ref_load(&call->in[2], i) : g;
}

static void row_gradient(const gd_kernel_call *call, const row *r)
{
    const gd_norm_attr *attr = call->attr;
    real middle = 0, along = 0;
    for (int64_t i = 0; i < r->k; i++) {
        if (attr->center)
            middle += weighted(call, r, i) / (real)r->k;
        along += weighted(call, r, i) * normalized(call, r, i) / (real)r->k;
    }
    for (int64_t i = 0; i < r->k; i++)
        gd_ref_store(&call->out, r->first + i,
                     r->scale * (weighted(call, r, i) - middle - normalized(call, r, i) * along));
}

/* Element i of the sums of one block of rows: of g h for the weight, of g for the bias. */
static real block_sum(const gd_kernel_call *call, int64_t block, int64_t i, bool for_weight)
{
    int64_t rows = gd_norm_rows(call->in[0].layout), each = gd_norm_block_rows(rows);
    real sum = 0;
    for (int64_t number = block * each; number < rows && number < (block + 1) * each; number++) {
        row r = row_of(call, number);
        real g = gd_ref_load(&call->in[1], r.first + i);
        sum += for_weight ? g * normalized(call, &r, i) : g;
    }
    return sum;
}

static gd_status normalize_grad(const gd_kernel_call *call)
{
    const gd_norm_attr *attr = call->attr;
    int64_t rows = gd_norm_rows(call->in[0].layout), blocks = gd_norm_blocks(rows);
    int64_t k = call->out.layout->shape[1];
    for (int64_t number = 0; number < rows; number++) {
        row r = row_of(call, number);
        row_gradient(call, &r);
    }
    for (int part = 0; part < attr->parts; part++)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t i = 0; i < k; i++)
                gd_ref_store(&call->out, (rows + part * blocks + block) * k + i,
                             block_sum(call, block, i, part == 0));
    return GD_OK;
}

static gd_status centred_products(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    const int64_t rows = x->shape[0] * x->shape[1], k = gd_centred_row(x);
    for (int64_t at = 0; at < rows; at++) {
        const real center = gd_ref_load(&call->in[1], at % x->shape[1]);
        real sum = 0;
        for (int64_t i = at * k; i < (at + 1) * k; i++) {
            const real c = gd_ref_load(&call->in[0], i) - center;
            sum += c * (call->n > 2 ? gd_ref_load(&call->in[2], i) : c);
        }
        gd_ref_store(&call->out, at, sum);
    }
    return GD_OK;
}

void gd_reference_register_norm(gd_kernel_fn *kernel)
{
    kernel[GD_OP_normalize] = normalize;
    kernel[GD_OP_normalize_grad] = normalize_grad;
    kernel[GD_OP_centred_products] = centred_products;
}
