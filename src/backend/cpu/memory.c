/* backend/cpu/memory.c: kernels that make or move elements without arithmetic: full, iota,
 * random_bits, dropout, pad, concat and assign. gather and scatter_add are in index.c. Start at
 * gd_cpu_register_memory().
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/index.h"
#include "backend/cpu/iterate.h"
#include "base/random.h"
#include "base/threads.h"
#include "ops/attrs.h"
#include "tensor/element.h"

/* ---- full ---- */

typedef struct fill_job {
    char *to;
    size_t size;
    uint64_t element; /* in its first bytes */
} fill_job;

static void fill_elements(void *to, const void *element, size_t size, int64_t n)
{
#define FILL(bits)                                                        \
    {                                                                     \
        gd_bits##bits *out = to, value = *(const gd_bits##bits *)element; \
        for (int64_t i = 0; i < n; i++)                                   \
            out[i] = value;                                               \
    }
    switch (size) {
    case 1:
        memset(to, *(const uint8_t *)element, (size_t)n);
        break;
    case 2:
        FILL(16)
        break;
    case 4:
        FILL(32)
        break;
    default:
        FILL(64)
    }
#undef FILL
}

static void fill_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const fill_job *job = context;
    fill_elements(job->to + (size_t)begin * job->size, &job->element, job->size, end - begin);
}

static gd_status full_kernel(const gd_kernel_call *call)
{
    const gd_full_attr *attr = call->attr;
    const gd_layout *out = call->out.layout;
    fill_job job = { .to = call->out.data, .size = gd_dtype_size(out->dtype) };
    if (gd_dtype_is_integer(out->dtype))
        gd_element_store_integer(attr->whole, out->dtype, &job.element);
    else
        gd_element_store_real(attr->value, out->dtype, &job.element);
    gd_parallel_for(call->device->threads, gd_layout_count(out), GD_PARALLEL_ELEMENTS, fill_range,
                    &job);
    return GD_OK;
}

/* ---- iota ---- */

typedef struct iota_job {
    const gd_iota_attr *attr;
    char *to;
    gd_dtype dtype;
} iota_job;

static int64_t iota_integer(const gd_iota_attr *attr, int64_t i)
{
    return (int64_t)((uint64_t)attr->integer_start + (uint64_t)i * (uint64_t)attr->integer_step);
}

static double iota_real(const gd_iota_attr *attr, int64_t i)
{
    return attr->start + (double)i * attr->step;
}

static void iota_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const iota_job *job = context;
    const gd_iota_attr *attr = job->attr;
    size_t size = gd_dtype_size(job->dtype);
    if (attr->use_integers && job->dtype == GD_I64)
        for (int64_t i = begin; i < end; i++)
            ((int64_t *)(void *)job->to)[i] = iota_integer(attr, i);
    else if (attr->use_integers)
        for (int64_t i = begin; i < end; i++)
            gd_element_store_integer(iota_integer(attr, i), job->dtype, job->to + (size_t)i * size);
    else if (job->dtype == GD_F32)
        for (int64_t i = begin; i < end; i++)
            ((float *)(void *)job->to)[i] = (float)iota_real(attr, i);
    else
        for (int64_t i = begin; i < end; i++)
            gd_element_store_real(iota_real(attr, i), job->dtype, job->to + (size_t)i * size);
}

static gd_status iota_kernel(const gd_kernel_call *call)
{
    const gd_iota_attr *attr = call->attr;
    iota_job job = { .attr = attr, .to = call->out.data, .dtype = call->out.layout->dtype };
    gd_parallel_for(call->device->threads, attr->count, GD_PARALLEL_ELEMENTS, iota_range, &job);
    return GD_OK;
}

/* ---- random_bits ---- */

typedef struct random_job {
    gd_random_fn words;
    uint64_t seed, first;
    char *to;
    int64_t words_each; /* of an element: 1, or 2 with the low word first */
} random_job;

static void random_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const random_job *job = context;
    uint64_t first = job->first + (uint64_t)(begin * job->words_each);
    uint32_t *to = (uint32_t *)(void *)job->to + begin * job->words_each;
    job->words(job->seed, first, (uint64_t)((end - begin) * job->words_each), to);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (int64_t i = 0; job->words_each == 2 && i < end - begin; i++) {
        uint32_t low = to[2 * i];
        to[2 * i] = to[2 * i + 1];
        to[2 * i + 1] = low;
    }
#endif
}

static gd_status random_bits_kernel(const gd_kernel_call *call)
{
    const gd_random_attr *attr = call->attr;
    const gd_layout *out = call->out.layout;
    const int64_t *state = call->in[0].data; /* [2]: seed, position */
    uint64_t position = (uint64_t)state[call->in[0].layout->stride[0]];
    random_job job = { .words = gd_ew_table_of(call->device)->words,
                       .seed = (uint64_t)state[0],
                       .first = position + attr->offset,
                       .to = call->out.data,
                       .words_each = out->dtype == GD_I64 ? 2 : 1 };
    gd_parallel_for(call->device->threads, gd_layout_count(out), GD_PARALLEL_ELEMENTS, random_range,
                    &job);
    return GD_OK;
}

/* ---- dropout: the words are drawn a piece at a time and used while they are in the cache ---- */

#define DROPOUT_PIECE 1024

typedef struct dropout_job {
    gd_random_fn words;
    uint64_t seed, first;
    const gd_dropout_attr *attr;
    gd_nest nest; /* operand 0: x */
    const char *x;
    char *out;
    bool is_contiguous;
    gd_dtype dtype;
} dropout_job;

/* Selected, not multiplied by 0: with NaN and infinities the product would not be 0. */
#define DROPOUT_PIECE_OF(T)                                                                       \
    static void dropout_piece_##T(const T *x, const uint32_t *words, const gd_dropout_attr *attr, \
                                  int64_t n, T *out)                                              \
    {                                                                                             \
        T scale = (T)attr->scale;                                                                 \
        if (attr->threshold > UINT32_MAX) {                                                       \
            memset(out, 0, (size_t)n * sizeof(T));                                                \
            return;                                                                               \
        }                                                                                         \
        uint32_t threshold = (uint32_t)attr->threshold;                                           \
        for (int64_t i = 0; i < n; i++)                                                           \
            out[i] = words[i] >= threshold ? x[i] * scale : 0;                                    \
    }
DROPOUT_PIECE_OF(float)
DROPOUT_PIECE_OF(double)

static void dropout_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const dropout_job *job = context;
    int64_t size = (int64_t)gd_dtype_size(job->dtype);
    uint32_t words[DROPOUT_PIECE];
    double gathered[DROPOUT_PIECE];
    for (int64_t n; begin < end; begin += n) {
        n = end - begin < DROPOUT_PIECE ? end - begin : DROPOUT_PIECE;
        job->words(job->seed, job->first + (uint64_t)begin, (uint64_t)n, words);
        const void *x = job->x + begin * size;
        if (!job->is_contiguous) {
            gd_nest_gather(gathered, job->x, &job->nest, begin, begin + n, (size_t)size);
            x = gathered;
        }
        void *out = job->out + begin * size;
        if (job->dtype == GD_F32)
            dropout_piece_float(x, words, job->attr, n, out);
        else
            dropout_piece_double(x, words, job->attr, n, out);
    }
}

/* x, state -> as x; see gd_dropout_attr */
static gd_status dropout_kernel(const gd_kernel_call *call)
{
    const gd_layout *x = call->in[0].layout;
    const int64_t *state = call->in[1].data; /* [2]: seed, position */
    const gd_dropout_attr *attr = call->attr;
    dropout_job job = { .words = gd_ew_table_of(call->device)->words,
                        .seed = (uint64_t)state[0],
                        .first = (uint64_t)state[call->in[1].layout->stride[0]] + attr->offset,
                        .attr = attr,
                        .nest = gd_nest_make(x->rank, x->shape, x->stride, NULL, NULL),
                        .x = call->in[0].data,
                        .out = call->out.data,
                        .is_contiguous = gd_layout_is_contiguous(x),
                        .dtype = x->dtype };
    gd_parallel_for(call->device->threads, gd_layout_count(x), GD_PARALLEL_ELEMENTS, dropout_range,
                    &job);
    return GD_OK;
}

/* ---- pad ---- */

typedef struct pad_job {
    const gd_pad_attr *attr;
    const gd_layout *in, *out;
    const char *from;
    char *to;
    size_t size;
    uint64_t element; /* the padding, in its first bytes */
    int64_t out_stride[GD_MAX_RANK];
    int plain; /* from this axis on nothing is padded and the input is row-major */
    int items; /* axes before this one are shared out */
} pad_job;

/* Write everything at and behind `axis` of the result at `to`, whose input begins at `from`. */
static void pad_axis(const pad_job *job, int axis, char *to, const char *from)
{
    if (axis >= job->plain) {
        int64_t n = axis == 0 ? gd_layout_count(job->out) : job->out_stride[axis - 1];
        memcpy(to, from, (size_t)n * job->size);
        return;
    }
    int64_t stride = job->out_stride[axis], n = job->in->shape[axis];
    int64_t before = job->attr->before[axis] * stride, after = job->attr->after[axis] * stride;
    size_t step = (size_t)stride * job->size;
    fill_elements(to, &job->element, job->size, before);
    to += (size_t)before * job->size;
    if (axis == job->in->rank - 1) {
        gd_copy_run(to, 1, from, job->in->stride[axis], n, job->size);
    } else {
        for (int64_t i = 0; i < n; i++)
            pad_axis(job, axis + 1, to + (size_t)i * step,
                     from + i * job->in->stride[axis] * (int64_t)job->size);
    }
    fill_elements(to + (size_t)n * step, &job->element, job->size, after);
}

/* Indices [begin, end) of the axes before `items`, taken together. */
static void pad_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pad_job *job = context;
    int64_t step = job->items == 0 ? gd_layout_count(job->out) : job->out_stride[job->items - 1];
    for (int64_t item = begin; item < end; item++) {
        char *to = job->to + (size_t)(item * step) * job->size;
        const char *from = job->from;
        bool inside = true;
        for (int64_t axis = job->items - 1, rest = item; axis >= 0; axis--) {
            int64_t i = rest % job->out->shape[axis] - job->attr->before[axis];
            rest /= job->out->shape[axis];
            inside = inside && i >= 0 && i < job->in->shape[axis];
            from += i * job->in->stride[axis] * (int64_t)job->size;
        }
        if (inside)
            pad_axis(job, job->items, to, from);
        else
            fill_elements(to, &job->element, job->size, step);
    }
}

static gd_status pad_kernel(const gd_kernel_call *call)
{
    const gd_layout *in = call->in[0].layout, *out = call->out.layout;
    int64_t count = gd_layout_count(out);
    if (count == 0)
        return GD_OK;
    pad_job job = { .attr = call->attr,
                    .in = in,
                    .out = out,
                    .from = call->in[0].data,
                    .to = call->out.data,
                    .size = gd_dtype_size(out->dtype),
                    .plain = in->rank };
    gd_element_store_real(job.attr->value, out->dtype, &job.element);
    gd_strides_row_major(out->rank, out->shape, job.out_stride);
    while (job.plain > 0 && job.attr->before[job.plain - 1] == 0 &&
           job.attr->after[job.plain - 1] == 0 &&
           in->stride[job.plain - 1] == job.out_stride[job.plain - 1])
        job.plain--;
    int threads = call->device->threads;
    int64_t items = 1;
    if (threads > 1 && count >= 2 * GD_PARALLEL_ELEMENTS)
        while (job.items < job.plain && items < 4 * threads)
            items *= out->shape[job.items++];
    gd_parallel_for(threads, items, 1, pad_range, &job);
    return GD_OK;
}

/* ---- concat, assign: copies ---- */

static gd_status concat_kernel(const gd_kernel_call *call)
{
    const gd_axis_attr *attr = call->attr;
    const gd_layout *out = call->out.layout;
    size_t size = gd_dtype_size(out->dtype);
    int64_t out_stride[GD_MAX_RANK];
    gd_strides_row_major(out->rank, out->shape, out_stride);
    char *to = call->out.data;
    for (int i = 0; i < call->n; i++) {
        const gd_layout *in = call->in[i].layout;
        gd_copy_strided(call, to, out_stride, call->in[i].data, in->stride, in->rank, in->shape,
                        size);
        to += (size_t)(in->shape[attr->axis] * out_stride[attr->axis]) * size;
    }
    return GD_OK;
}

/* The value (input 1) into the storage of input 0, which is the result. Where the two overlap
 * without being the same elements at the same places, the order of reading and writing is not
 * defined: the builder copies such a value first. */
static gd_status assign_kernel(const gd_kernel_call *call)
{
    const gd_layout *value = call->in[1].layout, *out = call->out.layout;
    bool same = call->in[1].data == call->out.data;
    for (int i = 0; i < out->rank; i++)
        same = same && (out->shape[i] == 1 || out->stride[i] == value->stride[i]);
    if (!same)
        gd_copy_strided(call, call->out.data, out->stride, call->in[1].data, value->stride,
                        out->rank, out->shape, gd_dtype_size(out->dtype));
    return GD_OK;
}

void gd_cpu_register_memory(gd_kernel_fn *kernel)
{
    kernel[GD_OP_full] = full_kernel;
    kernel[GD_OP_iota] = iota_kernel;
    kernel[GD_OP_random_bits] = random_bits_kernel;
    kernel[GD_OP_dropout] = dropout_kernel;
    kernel[GD_OP_pad] = pad_kernel;
    kernel[GD_OP_concat] = concat_kernel;
    kernel[GD_OP_assign] = assign_kernel;
    gd_cpu_register_index(kernel);
}
