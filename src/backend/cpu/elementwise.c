/* backend/cpu/elementwise.c: the kernels of elementwise rows, cast, copy and fused, with short ways
 * for what small tensors mostly are: operands that lie like the result, or are one number; and the
 * tables of loops by instruction set. Everything else is elementwise_program.c. Start at run_in_line. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/cpu.h"
#include "base/threads.h"

enum {
    SERIAL_MOST = 32 * 1024, /* elements below which threads cost more than they bring */
    BLOCK = 1024,            /* threads share the work out in blocks of this many elements … */
    BLOCKS_LEAST = 16,       /* … and take at least so many */
};

static const gd_ew_table *const tables[GD_ISA_COUNT] = {
    [GD_ISA_BASELINE] = &gd_ew_table_baseline,
#ifdef GD_HAVE_AVX2
    [GD_ISA_AVX2] = &gd_ew_table_avx2,
#endif
#ifdef GD_HAVE_AVX512
    [GD_ISA_AVX512] = &gd_ew_table_avx512,
#endif
#ifdef GD_HAVE_NEON
    [GD_ISA_NEON] = &gd_ew_table_neon,
#endif
};

const gd_ew_table *gd_ew_table_of(const gd_device *device)
{
    return tables[((const gd_cpu_device *)device)->isa];
}

gd_ew_loop gd_ew_half_cast(const gd_kernel_call *call, const gd_operand *of)
{
    const gd_dtype dtype = of->layout->dtype;
    if (!gd_dtype_is_half(dtype))
        return NULL;
    const gd_ew_table *table = gd_ew_table_of(call->device);
    return of == &call->out ? table->cast[GD_F32][dtype] : table->cast[dtype][GD_F32];
}

/* The layout of an input, compared with the result's. */
typedef enum arrangement { IN_LINE, ONE_NUMBER, OTHERWISE } arrangement;

static inline arrangement arrangement_of(const gd_layout *in, int64_t count)
{
    int64_t expected = 1;
    bool is_dense = true, is_constant = true;
    for (int axis = in->rank - 1; axis >= 0; axis--) {
        if (in->shape[axis] == 1)
            continue;
        is_dense &= in->stride[axis] == expected;
        is_constant &= in->stride[axis] == 0;
        expected *= in->shape[axis];
    }
    return is_dense && expected == count ? IN_LINE : is_constant ? ONE_NUMBER : OTHERWISE;
}

typedef struct line_job {
    const gd_kernel_call *call;
    gd_ew_loop loop;
    int64_t count;
    int size[3], out_size; /* bytes of an element */
    bool is_number[3];     /* the input is one number */
    bool is_streamed;      /* the result goes past the caches, piece by piece */
    const gd_ew_table *table;
} line_job;

static int log2_of(int size)
{
    return size == 8 ? 3 : size >> 1;
}

/* Elements [begin, end) of a result with operands in line or of one number; numbers are spread over
 * a block of scratch. */
static void run_line(const line_job *job, int64_t begin, int64_t end, int thread)
{
    const gd_kernel_call *call = job->call;
    const char *from[3];
    int64_t step[3];
    int64_t block = job->is_streamed ? GD_EW_STREAM_PIECE / job->out_size : end - begin;
    gd_scratch scratch = gd_scratch_of(call, thread);
    char *piece = gd_scratch_take(&scratch, GD_EW_STREAM_PIECE);
    for (int k = 0; k < 3; k++) {
        int operand = k < call->n ? k : 0;
        int size = job->size[operand];
        if (job->is_number[operand]) {
            if (block > BLOCK)
                block = BLOCK;
            step[k] = 0;
            if (operand == k) {
                char *numbers = gd_scratch_take(&scratch, BLOCK * (size_t)size);
                job->table->copy[log2_of(size)](call->in[k].data, 0, 0, numbers, 0, 1, block);
                from[k] = numbers;
            } else {
                from[k] = from[operand];
            }
        } else {
            from[k] = (const char *)call->in[operand].data + begin * size;
            step[k] = size;
        }
    }
    char *out = (char *)call->out.data + begin * job->out_size;
    for (int64_t i = begin; i < end; i += block) {
        int64_t count = end - i < block ? end - i : block;
        for (int k = 0; job->is_streamed && k < call->n; k++)
            for (int64_t at = 0; at < step[k] * count; at += GD_EW_LINE)
                __builtin_prefetch(from[k] + GD_EW_AHEAD + at);
        job->loop(from[0], from[1], from[2], job->is_streamed ? piece : out, count);
        if (job->is_streamed)
            job->table->stream(out, piece, (size_t)(count * job->out_size));
        for (int k = 0; k < 3; k++)
            from[k] += step[k] * count;
        out += job->out_size * count;
    }
    if (job->is_streamed)
        job->table->stream(out, piece, 0);
}

static void run_line_blocks(void *context, int64_t begin, int64_t end, int thread)
{
    const line_job *job = context;
    int64_t last = end * BLOCK < job->count ? end * BLOCK : job->count;
    run_line(job, begin * BLOCK, last, thread);
}

static bool run_in_line(const gd_kernel_call *call, const gd_ew_table *table, gd_ew_loop loop)
{
    const gd_layout *out = call->out.layout;
    int64_t count = 1;
    for (int axis = 0; axis < out->rank; axis++)
        count *= out->shape[axis];
    line_job job = { .call = call, .loop = loop, .count = count, .table = table };
    bool has_number = false;
    for (int k = 0; k < call->n; k++) {
        arrangement lies = arrangement_of(call->in[k].layout, count);
        if (lies == OTHERWISE)
            return false;
        job.is_number[k] = lies == ONE_NUMBER;
        has_number |= lies == ONE_NUMBER;
    }
    const void *x = call->in[0].data;
    if (count <= SERIAL_MOST && !has_number) {
        loop(x, call->n > 1 ? call->in[1].data : x, call->n > 2 ? call->in[2].data : x,
             call->out.data, count);
        return true;
    }
    for (int k = 0; k < call->n; k++)
        job.size[k] = (int)gd_dtype_size(call->in[k].layout->dtype);
    job.out_size = (int)gd_dtype_size(out->dtype);
    if (count <= SERIAL_MOST) {
        run_line(&job, 0, count, 0);
        return true;
    }
    job.is_streamed = gd_ew_is_streamed((size_t)(count * job.out_size)) && !gd_ew_is_in_place(call);
    gd_parallel_for(call->device->threads, (count + BLOCK - 1) / BLOCK, BLOCKS_LEAST,
                    run_line_blocks, &job);
    return true;
}

gd_status gd_ew_kernel_program(const gd_kernel_call *call)
{
    if (call->prepared) {
        gd_ew_run(call->prepared, call);
        return GD_OK;
    }
    _Alignas(8) char memory[GD_EW_PROGRAM_BYTES];
    gd_status status = gd_ew_prepare(call, memory);
    if (status == GD_OK)
        gd_ew_run((const gd_ew_program *)(const void *)memory, call);
    return status;
}

gd_status gd_ew_kernel_row(const gd_kernel_call *call)
{
    if (!call->prepared) {
        const gd_ew_table *table = gd_ew_table_of(call->device);
        gd_dtype dtype = call->in[call->n > 2 ? 1 : 0].layout->dtype; /* not the condition's */
        gd_ew_loop loop = table->op[dtype][call->op->id];
        if (loop && run_in_line(call, table, loop))
            return GD_OK;
    }
    return gd_ew_kernel_program(call);
}

gd_status gd_ew_kernel_cast(const gd_kernel_call *call)
{
    if (!call->prepared) {
        const gd_ew_table *table = gd_ew_table_of(call->device);
        gd_ew_loop loop = table->cast[call->in[0].layout->dtype][call->out.layout->dtype];
        if (loop && run_in_line(call, table, loop))
            return GD_OK;
    }
    return gd_ew_kernel_program(call);
}
