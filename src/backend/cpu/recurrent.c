/* backend/cpu/recurrent.c: recurrent networks, step by step. The sequences of a batch know nothing
 * of each other: each thread takes some of them through all steps, with their state in its scratch,
 * so that threads meet only at the end. Start at gd_recurrent_run().
 */
#include "backend/cpu/recurrent.h"

#include "backend/cpu/gemm_plan.h"
#include "base/threads.h"
#include "ops/attrs.h"

#include <string.h>

#define BLOCKS 6 /* of scratch, beside the products' */

typedef struct job {
    const gd_kernel_call *call;
    const gd_recurrent_loops *loops;
    const gd_recurrent_attr *attr;
    const gd_gemm_micro *gemm;
    int64_t size; /* of an element */
    bool is_half; /* u is bf16 */
    int64_t batch, time, w, gates, kept;
    int64_t rows; /* sequences a thread takes together */
    int64_t wide; /* numbers from row to row of a */
    const gd_operand *u, *h0, *c0, *lengths;
    char *h, *c, *gate; /* of what is kept: [batch, time, w], the same, [batch, time, 4 w] */
    /* forward */
    const gd_operand *z, *b;
    /* backward */
    const gd_operand *g;
    char *dz, *da, *dh0, *dc0;
} job;

/* Scratch of some rows: h (or dh), c (or dc) [rows, w], a (or da) [rows, gates * w], its rows
 * `wide` apart; and of one, a first h and c [w]; where u is bf16, what is multiplied by it, rounded;
 * u packed, or NULL; and what products take. */
typedef struct state {
    char *h, *c, *a, *first_h, *first_c;
    uint16_t *rounded;
    void *u;
    gd_workspace products;
} state;

/* Bytes of it without u and products. */
static size_t state_bytes(const job *j)
{
    const int64_t numbers = (2 * j->rows + 2) * j->w + j->rows * j->wide;
    const size_t rounded = j->is_half ? (size_t)(j->rows * j->gates * j->w) * sizeof(uint16_t) : 0;
    return gd_scratch_bytes((size_t)(numbers * j->size) + rounded, BLOCKS);
}

static size_t packed_bytes(const job *j)
{
    const gd_layout *u = j->u->layout;
    return gd_gemm_ahead_bytes(j->gemm, u->shape[0], u->shape[1]);
}

/* u, and what products take that need not pack it. */
static size_t ahead_bytes(const job *j)
{
    return gd_scratch_bytes(packed_bytes(j) + GD_GEMM_PANEL_BYTES, GD_GEMM_SCRATCH_BLOCKS);
}

/* Whether each thread packs u once for all steps: in tiles of few rows or columns it is read where
 * it is, and if it does not fit the device's scratch it is packed in each step. */
static bool packs_ahead(const job *j)
{
    enum { LEAST_ROWS = 4, LEAST_STEPS = 4, LEAST_WIDTH = 32 };
    const gd_cpu_device *cpu = (const gd_cpu_device *)j->call->device;
    return j->rows >= LEAST_ROWS && j->time >= LEAST_STEPS && j->w >= LEAST_WIDTH &&
           cpu->paths.matmul == GD_MATMUL_BEST &&
           state_bytes(j) + ahead_bytes(j) <= cpu->workspace.bytes;
}

static size_t bytes_of_thread(const job *j)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)j->call->device;
    const int64_t wide = j->gates * j->w;
    return state_bytes(j) +
           (packs_ahead(j)
                ? ahead_bytes(j)
                : gd_gemm_most_bytes(j->gemm, &cpu->paths, wide > j->rows ? wide : j->rows, wide));
}

static state state_of(const job *j, int thread)
{
    gd_scratch scratch = gd_scratch_of(j->call, thread);
    const size_t row = (size_t)(j->w * j->size), rows = (size_t)j->rows * row;
    const gd_layout *u = j->u->layout;
    state s = { .h = gd_scratch_take(&scratch, rows) };
    s.c = gd_scratch_take(&scratch, rows);
    s.a = gd_scratch_take(&scratch, (size_t)(j->rows * j->wide * j->size));
    s.first_h = gd_scratch_take(&scratch, row);
    s.first_c = gd_scratch_take(&scratch, row);
    if (j->is_half)
        s.rounded =
            gd_scratch_take(&scratch, (size_t)(j->rows * j->gates * j->w) * sizeof *s.rounded);
    if (packs_ahead(j)) {
        s.u = gd_scratch_take(&scratch, packed_bytes(j));
        gd_gemm_pack_ahead(j->gemm, s.u, j->u->data, u->stride[0], u->stride[1], u->shape[0],
                           u->shape[1]);
    }
    s.products = gd_scratch_rest(&scratch);
    return s;
}

static bool is_over(const job *j, int64_t row, int64_t t)
{
    return j->lengths &&
           t >= ((const int64_t *)j->lengths->data)[row * j->lengths->layout->stride[0]];
}

/* Row of an operand [batch, w], copied: any strides. */
static void copy_row(const job *j, char *to, const gd_operand *from, int64_t row)
{
    const int64_t *stride = from->layout->stride;
    const char *data = (const char *)from->data + row * stride[0] * j->size;
    for (int64_t i = 0; i < j->w; i++)
        memcpy(to + i * j->size, data + i * stride[1] * j->size, (size_t)j->size);
}

/* c [rows, n] (+)= a [rows, k] @ u [k, n] in scratch; rows are a_row and c_row apart. */
static void multiply(const job *j, const state *s, int64_t rows, const char *a, int64_t a_row,
                     char *c, int64_t c_row, bool accumulate, const gd_gemm_fetch *next, int many)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)j->call->device;
    const gd_layout *u = j->u->layout;
    const int64_t k = u->shape[0];
    if (j->is_half)
        for (int64_t i = 0; i < rows; i++)
            j->loops->round(s->rounded + i * k, (const float *)(const void *)a + i * a_row, k);
    gd_gemm_args args = { .m = rows,
                          .n = u->shape[1],
                          .k = k,
                          .a = j->is_half ? (const void *)s->rounded : a,
                          .a_row_stride = j->is_half ? k : a_row,
                          .a_col_stride = 1,
                          .b = j->u->data,
                          .b_row_stride = u->stride[0],
                          .b_col_stride = u->stride[1],
                          .b_packed = s->u,
                          .fetch = next,
                          .fetches = s->u ? many : 0,
                          .c = c,
                          .c_row_stride = c_row,
                          .c_col_stride = 1,
                          .accumulate = accumulate,
                          .threads = 1,
                          .paths = &cpu->paths,
                          .workspace = s->products };
    gd_gemm(j->gemm, &args);
}

static job job_of(const gd_kernel_call *call, const gd_recurrent_loops *loops)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const gd_recurrent_attr *attr = call->attr;
    bool is_f64 = call->out.layout->dtype == GD_F64;
    bool is_half = call->in[1].layout->dtype == GD_BF16;
    return (job){ .call = call,
                  .loops = loops,
                  .attr = attr,
                  .gemm = is_half  ? cpu->gemm_bf16
                          : is_f64 ? cpu->gemm_f64
                                   : cpu->gemm_f32,
                  .size = is_f64 ? 8 : 4,
                  .is_half = is_half,
                  .gates = gd_recurrent_gates(attr->cell),
                  .kept = gd_recurrent_kept(attr->cell),
                  .lengths = attr->has_lengths ? call->in : NULL };
}

/* How many rows are taken together: at least one fits the scratch up to GD_RECURRENT_WIDEST. */
_Static_assert((GD_RECURRENT_WIDEST * (2 + 2 + 4)) * sizeof(double) <= GD_CPU_SCRATCH,
               "one row must fit the scratch");
static void choose_rows(job *j)
{
    int64_t each =
        2 + j->gates + (j->is_half ? (j->gates + 1) / 2 : 0); /* numbers of a row, by w */
    int64_t most = ((int64_t)GD_CPU_SCRATCH / (j->w * j->size) - 2) / each;
    int64_t even = (j->batch + j->call->device->threads - 1) / j->call->device->threads;
    j->rows = even < most ? even : most;
    j->rows = j->rows < 1 ? 1 : j->rows;
    const int64_t bytes =
        j->gates * j->w * j->size; /* rows that collide in the cache: a line more */
    j->wide = j->gates * j->w + (gd_gemm_collide(bytes) ? GD_LINE_BYTES / j->size : 0);
}

/* Where the kept values lie. */
static void place(job *j, const void *packed)
{
    int64_t steps = j->batch * j->time * j->w * j->size;
    j->h = (char *)(uintptr_t)packed;
    j->c = j->h + steps; /* LSTM */
    j->gate = j->attr->cell == GD_CELL_LSTM ? j->c + steps : j->h + steps;
}

/* ---- forward ---- */

static void step_forward(const job *j, state s, int64_t row, int64_t t, int64_t i)
{
    int64_t wide = j->w * j->size, at = row * j->time + t;
    char *h = s.h + i * wide, *c = s.c + i * wide;
    char *gate = j->gate + at * 4 * wide;
    if (!is_over(j, row, t)) {
        const int64_t *stride = j->z->layout->stride;
        const char *z = (const char *)j->z->data + (row * stride[0] + t * stride[1]) * j->size;
        j->loops->forward(j->attr->cell, j->w, z, j->b->data, s.a + i * j->wide * j->size, h, c,
                          gate);
    } else if (j->kept > 1) {
        memset(gate, 0, (size_t)(4 * wide));
    }
    memcpy(j->h + at * wide, h, (size_t)wide);
    if (j->attr->cell == GD_CELL_LSTM)
        memcpy(j->c + at * wide, c, (size_t)wide);
}

/* What step_forward reads and writes in step t. */
static int touched_forward(const job *j, int64_t row, int64_t t, gd_gemm_fetch touched[2])
{
    const int64_t *stride = j->z->layout->stride, wide = 4 * j->w * j->size;
    touched[0] =
        (gd_gemm_fetch){ (const char *)j->z->data + (row * stride[0] + t * stride[1]) * j->size,
                         stride[0] * j->size, j->gates * j->w * j->size };
    touched[1] = (gd_gemm_fetch){ j->gate + (row * j->time + t) * wide, j->time * wide, wide };
    return j->kept > 1 ? 2 : 1;
}

static void range_forward(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    state s = state_of(j, thread);
    int64_t wide = j->w * j->size;
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * j->rows, rows = j->batch - first;
        rows = rows < j->rows ? rows : j->rows;
        for (int64_t i = 0; i < rows; i++) {
            copy_row(j, s.h + i * wide, j->h0, first + i);
            if (j->c0)
                copy_row(j, s.c + i * wide, j->c0, first + i);
        }
        for (int64_t step = 0; step < j->time; step++) {
            int64_t t = j->attr->reverse ? j->time - 1 - step : step;
            gd_gemm_fetch touched[2];
            const int many = touched_forward(j, first, t, touched);
            multiply(j, &s, rows, s.h, j->w, s.a, j->wide, false, touched, many);
            for (int64_t i = 0; i < rows; i++)
                step_forward(j, s, first + i, t, i);
        }
    }
}

/* ---- backward ---- */

static void step_backward(const job *j, state s, int64_t row, int64_t t, int64_t i)
{
    int64_t wide = j->w * j->size, at = row * j->time + t;
    int64_t first = j->attr->reverse ? j->time - 1 : 0, back = j->attr->reverse ? 1 : -1;
    char *dh = s.h + i * wide, *dc = s.c + i * wide, *da = s.a + i * j->wide * j->size;
    char *dz = j->dz + at * j->gates * wide;
    char *kept_da = j->da ? j->da + at * j->gates * wide : NULL;
    if (!j->attr->part) { /* add the gradient of this step's h */
        const int64_t *stride = j->g->layout->stride;
        const char *g = (const char *)j->g->data + (row * stride[0] + t * stride[1]) * j->size;
        for (int64_t k = 0; k < j->w; k++) {
            int64_t from = k * stride[2];
            if (j->size == 4)
                ((float *)(void *)dh)[k] += ((const float *)(const void *)g)[from];
            else
                ((double *)(void *)dh)[k] += ((const double *)(const void *)g)[from];
        }
    }
    if (is_over(j, row, t)) {
        memset(da, 0, (size_t)(j->gates * wide));
        memset(dz, 0, (size_t)(j->gates * wide));
    } else {
        const char *before = j->h + (at + back) * wide, *c_before = j->c + (at + back) * wide;
        if (t == first) {
            before = s.first_h;
            c_before = s.first_c;
            copy_row(j, s.first_h, j->h0, row);
            if (j->c0)
                copy_row(j, s.first_c, j->c0, row);
        }
        j->loops->backward(j->attr->cell, j->w, j->gate + at * 4 * wide, j->h + at * wide, before,
                           j->c + at * wide, c_before, dh, dc, dz, da);
    }
    if (kept_da)
        memcpy(kept_da, da, (size_t)(j->gates * wide));
}

/* What step_backward reads and writes in the step after step t. */
static int touched_backward(const job *j, int64_t row, int64_t t, gd_gemm_fetch touched[2])
{
    const int64_t next = t + (j->attr->reverse ? 1 : -1), at = row * j->time + next;
    if (next < 0 || next >= j->time)
        return 0;
    const int64_t wide = j->gates * j->w * j->size, kept = 4 * j->w * j->size;
    touched[0] = (gd_gemm_fetch){ j->dz + at * wide, j->time * wide, wide };
    touched[1] = (gd_gemm_fetch){ j->gate + at * kept, j->time * kept, kept };
    return j->kept > 1 ? 2 : 1;
}

static void range_backward(void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    state s = state_of(j, thread);
    int64_t wide = j->w * j->size;
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * j->rows, rows = j->batch - first;
        rows = rows < j->rows ? rows : j->rows;
        memset(s.h, 0, (size_t)(rows * wide));
        memset(s.c, 0, (size_t)(rows * wide));
        for (int64_t i = 0; i < rows && j->attr->part; i++)
            copy_row(j, s.c + i * wide, j->g, first + i);
        for (int64_t step = 0; step < j->time; step++) {
            int64_t t = j->attr->reverse ? step : j->time - 1 - step;
            for (int64_t i = 0; i < rows; i++)
                step_backward(j, s, first + i, t, i);
            gd_gemm_fetch touched[2];
            const int many = touched_backward(j, first, t, touched);
            multiply(j, &s, rows, s.a, j->wide, s.h, j->w, true, touched, many);
        }
        memcpy(j->dh0 + first * wide, s.h, (size_t)(rows * wide));
        if (j->dc0)
            memcpy(j->dc0 + first * wide, s.c, (size_t)(rows * wide));
    }
}

/* ---- the kernels ---- */

/* A u that does not fit the scratch is packed in each step, which takes as long as eight rows in
 * f32. */
#define LEAST_BATCH 32

bool gd_recurrent_takes(const gd_kernel_call *call)
{
    const gd_cpu_device *cpu = (const gd_cpu_device *)call->device;
    const int h0 = call->op->id == GD_OP_recurrent ? 3 : 2;
    return call->in[1].layout->dtype != GD_BF16 ||
           (cpu->gemm_bf16->b_packed_bytes == (int)sizeof(uint16_t) &&
            call->in[h0].layout->shape[0] >= LEAST_BATCH);
}

/* Groups of rows, and how many of them a thread is worth waking for. */
static int64_t groups_of(const job *j, int64_t *least)
{
    const int64_t worth = 500000; /* multiply-adds */
    const int64_t work = j->rows * j->time * j->w * j->w * j->gates;
    *least = 1 + worth / (work + 1);
    return (j->batch + j->rows - 1) / j->rows;
}

static void run(job *j, gd_range_fn range)
{
    int64_t least;
    const int64_t groups = groups_of(j, &least);
    gd_parallel_for(j->call->device->threads, groups, least, range, j);
}

static job forward_job(const gd_kernel_call *call, const gd_recurrent_loops *loops)
{
    const gd_operand *in = call->in;
    job j = job_of(call, loops);
    bool lstm = j.attr->cell == GD_CELL_LSTM;
    j.z = &in[0];
    j.u = &in[1];
    j.b = &in[2];
    j.h0 = &in[3];
    j.c0 = lstm ? &in[4] : NULL;
    if (j.lengths)
        j.lengths = &in[call->n - 1];
    j.batch = j.z->layout->shape[0];
    j.time = j.z->layout->shape[1];
    j.w = j.u->layout->shape[0];
    choose_rows(&j);
    return j;
}

static job backward_job(const gd_kernel_call *call, const gd_recurrent_loops *loops)
{
    const gd_operand *in = call->in;
    job j = job_of(call, loops);
    bool lstm = j.attr->cell == GD_CELL_LSTM;
    j.u = &in[1];
    j.h0 = &in[2];
    j.c0 = lstm ? &in[3] : NULL;
    if (j.lengths)
        j.lengths = &in[call->n - 2];
    j.g = &in[call->n - 1];
    j.batch = j.h0->layout->shape[0];
    j.w = j.u->layout->shape[1];
    j.time = in[0].layout->shape[0] / (j.batch * j.w * j.kept);
    choose_rows(&j);
    return j;
}

gd_workspace gd_recurrent_scratch(const gd_kernel_call *call)
{
    const job j =
        call->op->id == GD_OP_recurrent ? forward_job(call, NULL) : backward_job(call, NULL);
    int64_t least;
    const int64_t groups = groups_of(&j, &least);
    return (gd_workspace){ NULL, bytes_of_thread(&j),
                           gd_parallel_ranges(call->device->threads, groups, least) };
}

void gd_recurrent_explain(const gd_kernel_call *call, gd_text *text)
{
    const job j =
        call->op->id == GD_OP_recurrent ? forward_job(call, NULL) : backward_job(call, NULL);
    gd_text_add(text, "%lld sequences, %lld at a time, through %lld steps: products of %s",
                (long long)j.batch, (long long)j.rows, (long long)j.time,
                j.is_half     ? "bf16, state of f32"
                : j.size == 8 ? "f64"
                              : "f32");
    gd_text_add(text, "; %s",
                j.rows * call->device->threads >= j.batch ? "threads divide the sequences"
                                                          : "as many as the scratch holds");
    gd_text_add(text, "; the weight %s",
                packs_ahead(&j) ? "packed once for all steps" : "read or packed in each step");
    gd_cpu_explain_threads(text, gd_recurrent_scratch(call).threads);
}

gd_status gd_recurrent_run(const gd_kernel_call *call, const gd_recurrent_loops *loops)
{
    job j = forward_job(call, loops);
    place(&j, call->out.data);
    run(&j, range_forward);
    return GD_OK;
}

gd_status gd_recurrent_grad_run(const gd_kernel_call *call, const gd_recurrent_loops *loops)
{
    job j = backward_job(call, loops);
    const bool lstm = j.attr->cell == GD_CELL_LSTM;
    place(&j, call->in[0].data);
    int64_t steps = j.batch * j.time * j.gates * j.w * j.size;
    j.dz = call->out.data;
    j.da = j.attr->cell == GD_CELL_GRU ? j.dz + steps : NULL;
    j.dh0 = j.dz + (j.da ? 2 : 1) * steps;
    j.dc0 = lstm ? j.dh0 + j.batch * j.w * j.size : NULL;
    run(&j, range_backward);
    return GD_OK;
}
