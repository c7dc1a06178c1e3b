/* bench/bench_call_overhead.c: what a call costs beyond its arithmetic: ops on tensors of a few
 * numbers, eager and planned, and scopes. One JSON object a line on stdout, a table on stderr.
 * Start reading at main().
 *
 * Eager times include making the result's handle and memory, and their end with the scope, which
 * closes after OPS calls; they are nanoseconds a call. What four numbers of arithmetic take, 1 to 5
 * ns, is not taken off. A planned kernel costs the difference between a plan of LONG kernels and
 * one of SHORT, each reading the result of the one before, divided by the number of kernels that
 * makes.
 *
 * The peer is PyTorch, called from Python, as its users call it (peers/call_overhead_torch.py).
 */
#include "measure.h"

#include <gradus/gradus.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)   \
    ((condition) ? (void)0 \
                 : gd_bench_die("call_overhead, line %d: %s", __LINE__, gd_error_message()))

enum { OPS = 200, SHORT = 8, LONG = 72 };
static const double seconds_each = 0.5;

/* ---- eager ---- */

/* An op on small tensors: x, y [4], or [4, 4] for a product. */
typedef gd_tensor *(*small_op)(gd_tensor *x, gd_tensor *y);

static gd_tensor *op_add(gd_tensor *x, gd_tensor *y)
{
    return gd_add(x, y);
}

static gd_tensor *op_relu(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_relu(x);
}

static gd_tensor *op_exp(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_exp(x);
}

static gd_tensor *op_sum(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_sum(x, GD_ALL_AXES, false);
}

static gd_tensor *op_matmul(gd_tensor *x, gd_tensor *y)
{
    return gd_matmul(x, y);
}

static gd_tensor *op_reshape(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_reshape(x, GD_SHAPE(2, 8));
}

static gd_tensor *op_transpose(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_transpose(x, 0, 1);
}

static gd_tensor *op_slice(gd_tensor *x, gd_tensor *y)
{
    (void)y;
    return gd_slice(x, 0, 1, 3, 1);
}

static const float x_values[16] = { 1, -2, 3, -4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
static const float y_values[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

/* What is measured. `expected`: the first number of the result. */
typedef struct eager_case {
    const char *name;
    small_op run;
    bool square; /* operands [4, 4], not [4] */
    double expected;
} eager_case;

static const eager_case eager_cases[] = {
    { "add, 4 elements", op_add, false, 2 },
    { "relu, 4 elements", op_relu, false, 1 },
    { "exp, 4 elements", op_exp, false, 2.718281828459045 },
    { "sum, 4 elements", op_sum, false, -2 },
    /* row 0 of x, 1 -2 3 -4, times column 0 of y, 1 5 9 13 */
    { "matmul, 4x4 by 4x4", op_matmul, true, -34 },
    { "reshape, a view", op_reshape, true, 1 },
    { "transpose, a view", op_transpose, true, 1 },
    { "slice, a view", op_slice, true, 5 },
};
enum { EAGER_CASES = sizeof eager_cases / sizeof *eager_cases };

typedef struct eager_job {
    const eager_case *of;
    gd_context *context;
    gd_tensor *x, *y;
} eager_job;

static void run_eager(void *user)
{
    eager_job *job = user;
    CHECK(gd_scope_begin(job->context) == GD_OK);
    gd_tensor *result = NULL;
    for (int i = 0; i < OPS; i++)
        result = job->of->run(job->x, job->y);
    CHECK(result);
    CHECK(gd_scope_end(job->context) == GD_OK);
}

static void run_scope(void *user)
{
    CHECK(gd_scope_begin(user) == GD_OK);
    CHECK(gd_scope_end(user) == GD_OK);
}

static gd_tensor *persistent(gd_context *context, gd_shape shape, const float *values,
                             bool requires_grad)
{
    gd_tensor *t = gd_retain(gd_from_host(context, shape, GD_F32, values));
    CHECK(gd_set_requires_grad(t, requires_grad));
    return t;
}

static bool near(double x, double expected)
{
    return fabs(x - expected) <= 1e-6 * fabs(expected);
}

/* Whether the op's first number is right. */
static bool verify_eager(const eager_job *job)
{
    CHECK(gd_scope_begin(job->context) == GD_OK);
    gd_tensor *t = job->of->run(job->x, job->y);
    float values[16] = { 0 };
    CHECK(gd_tensor_read(t, values, sizeof(float) * (size_t)gd_tensor_count(t)) == GD_OK);
    CHECK(gd_scope_end(job->context) == GD_OK);
    return near((double)values[0], job->of->expected);
}

/* ---- planned ---- */

typedef enum chain_kind { CHAIN_NEG, CHAIN_MATMUL } chain_kind;

typedef struct chain {
    chain_kind kind;
    int length;
    gd_tensor *weight; // [4, 4]
    gd_function *function;
    gd_tensor *x; // [4, 4]
} chain;

/* x through `length` kernels. */
static gd_tensor *chain_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const chain *c = user;
    gd_tensor *x = in[0];
    for (int i = 0; i < c->length; i++)
        x = c->kind == CHAIN_MATMUL ? gd_matmul(x, c->weight) : gd_neg(x);
    return x;
}

static void run_chain(void *user)
{
    chain *c = user;
    CHECK(gd_call(c->function, 1, &c->x));
}

/* Seconds a call of a chain takes. *verified becomes false unless the result is x, or -x, as it
 * must be, and the plan has as many kernels as was wanted. */
static gd_bench_timing measure_chain(gd_context *context, chain_kind kind, int length,
                                     bool *verified)
{
    static const float identity[16] = { [0] = 1, [5] = 1, [10] = 1, [15] = 1 };
    chain c = { .kind = kind,
                .length = length,
                .weight = persistent(context, GD_SHAPE(4, 4), identity, false),
                .x = persistent(context, GD_SHAPE(4, 4), x_values, false) };
    c.function = gd_compile(context, chain_body, &c);
    float values[16];
    CHECK(gd_tensor_read(gd_call(c.function, 1, &c.x), values, sizeof values) == GD_OK);
    float sign = kind == CHAIN_NEG && length % 2 != 0 ? -1.0F : 1.0F;
    for (int i = 0; i < 16; i++)
        *verified = *verified && values[i] == sign * x_values[i];
    *verified = *verified && gd_function_stats(c.function).kernels == length;
    gd_bench_timing timing = gd_bench_time(run_chain, &c, 500, 1, seconds_each);
    gd_function_release(c.function);
    gd_release(c.weight);
    gd_release(c.x);
    return timing;
}

/* ---- rows ---- */

/* PyTorch's time for the case of the same name, in nanoseconds; NAN when there is none. */
enum { MOST_PEER_CASES = 32 };
static struct {
    char name[64];
    int count;
    struct {
        char name[64];
        double ns, spread;
    } cases[MOST_PEER_CASES];
} torch;

static void run_torch(void)
{
    const char *arguments[] = { gd_bench_python(),
                                GD_SOURCE_DIR "/bench/peers/call_overhead_torch.py", NULL };
    gd_bench_process *process = gd_bench_start(arguments, 1);
    gd_bench_line line;
    while (process != NULL && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "name") == 0)
            snprintf(torch.name, sizeof torch.name, "%.*s", (int)sizeof torch.name - 1, line.text);
        const char *name = strstr(line.text, "; ");
        if (strcmp(line.kind, "ns") == 0 && line.count > 1 && name != NULL &&
            torch.count < MOST_PEER_CASES) {
            snprintf(torch.cases[torch.count].name, sizeof torch.cases[0].name, "%.*s",
                     (int)sizeof torch.cases[0].name - 1, name + 2);
            torch.cases[torch.count].spread = line.numbers[1];
            torch.cases[torch.count++].ns = line.numbers[0];
        }
    }
    int status = process != NULL ? gd_bench_finish(process) : 3;
    if (status != 0)
        fprintf(stderr, "PyTorch: %s, left out\n",
                status == 3 || status == 127 ? "not found" : "failed");
}

static double torch_ns(const char *name, double *spread)
{
    for (int i = 0; i < torch.count; i++)
        if (strcmp(torch.cases[i].name, name) == 0) {
            *spread = torch.cases[i].spread;
            return torch.cases[i].ns;
        }
    return NAN;
}

static void print_row(const char *name, double seconds, double spread, bool verified)
{
    gd_bench_row row = gd_bench_make_row("call_overhead", name, 1, "ns", seconds * 1e9, verified);
    row.ours_spread = spread;
    row.peer = torch_ns(name, &row.peer_spread);
    row.peer_name = torch.name;
    gd_bench_print_row(&row);
}

static void bench_eager(gd_context *context)
{
    for (int requires_grad = 0; requires_grad < 2; requires_grad++)
        for (int i = 0; i < EAGER_CASES; i++) {
            const eager_case *c = &eager_cases[i];
            gd_shape shape = c->square ? GD_SHAPE(4, 4) : GD_SHAPE(4);
            eager_job job = { c, context, persistent(context, shape, x_values, requires_grad != 0),
                              persistent(context, shape, y_values, requires_grad != 0) };
            bool verified = verify_eager(&job);
            gd_bench_timing t = gd_bench_time(run_eager, &job, 20, 1, seconds_each);
            char name[64];
            snprintf(name, sizeof name, "%s%s", c->name, requires_grad ? ", requires grad" : "");
            print_row(name, t.seconds / OPS, t.spread, verified);
            gd_release(job.x);
            gd_release(job.y);
        }
    gd_bench_timing t = gd_bench_time(run_scope, context, 20000, 1, seconds_each);
    print_row("scope begin and end", t.seconds, t.spread, true);
}

static void bench_planned(gd_context *context)
{
    static const struct {
        chain_kind kind;
        const char *kernel, *call;
    } chains[] = {
        { CHAIN_NEG, "planned kernel, neg of 16 elements", "planned call of one such kernel" },
        { CHAIN_MATMUL, "planned kernel, matmul 4x4 by 4x4", "planned call of one such product" }
    };
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        bool verified = true;
        gd_bench_timing one = measure_chain(context, chains[i].kind, 1, &verified);
        gd_bench_timing few = measure_chain(context, chains[i].kind, SHORT, &verified);
        gd_bench_timing many = measure_chain(context, chains[i].kind, LONG, &verified);
        print_row(chains[i].kernel, (many.seconds - few.seconds) / (LONG - SHORT), many.spread,
                  verified);
        print_row(chains[i].call, one.seconds, one.spread, verified);
    }
}

int main(void)
{
    /* Negations would become one kernel, and pairs of them nothing at all. */
    setenv("GRADUS_PASSES", "-fuse,-simplify", 1);
    gd_bench_pin(1);
    gd_context *context = gd_open("cpu", .threads = 1);
    CHECK(context);
    run_torch();
    bench_eager(context);
    bench_planned(context);
    gd_close(context);
    return gd_bench_all_verified() ? 0 : 1;
}
