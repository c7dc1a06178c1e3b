/* backend/cpu/ctc.c: the recursions over time of ops/ctc.c. The samples of a batch go side by side
 * on the threads; within one every step needs the one before. */
#include "backend/cpu/cpu.h"
#include "base/threads.h"

#include <math.h>

typedef struct job {
    const gd_operand *table; /* emissions, or alpha: [n, time, states] */
    const gd_operand *skip;  /* [n, states] */
    const gd_operand *g;     /* NULL, or the gradient of alpha */
    void *out;
    int64_t time, states;
    void (*run)(const struct job *j, int64_t n);
} job;

#define N(name) f32_##name
#define REAL    float
#define EXP     expf
#define LOG     logf
#include "backend/cpu/ctc_loops.h"
#define N(name) f64_##name
#define REAL    double
#define EXP     exp
#define LOG     log
#include "backend/cpu/ctc_loops.h"

static void run_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = context;
    for (int64_t n = begin; n < end; n++)
        j->run(j, n);
}

static gd_status run(const gd_kernel_call *call, job j)
{
    const gd_layout *out = call->out.layout;
    j.table = &call->in[0];
    j.skip = &call->in[1];
    j.out = call->out.data;
    j.time = out->shape[1];
    j.states = out->shape[2];
    /* A state costs four exponentials or logarithms: some 40 ns. */
    int64_t grain = 1 + 1000 / (1 + j.time * j.states);
    if (j.time > 0 && j.states > 0)
        gd_parallel_for(call->device->threads, out->shape[0], grain, run_range, &j);
    return GD_OK;
}

static gd_status ctc_alpha(const gd_kernel_call *call)
{
    bool wide = call->out.layout->dtype == GD_F64;
    return run(call, (job){ .run = wide ? f64_alpha : f32_alpha });
}

static gd_status ctc_alpha_grad(const gd_kernel_call *call)
{
    bool wide = call->out.layout->dtype == GD_F64;
    return run(call, (job){ .g = &call->in[2], .run = wide ? f64_alpha_grad : f32_alpha_grad });
}

void gd_cpu_register_ctc(gd_kernel_fn *kernel)
{
    kernel[GD_OP_ctc_alpha] = ctc_alpha;
    kernel[GD_OP_ctc_alpha_grad] = ctc_alpha_grad;
}
