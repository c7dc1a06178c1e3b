/* tests/test_kernel_fuzz.c: random convolutions, products, pooling and recurrent networks
 * (support/kernel_case.h), on the CPU with every instruction set this machine has and 1, 2, 3 and 5
 * threads, against the reference device: values, every gradient, and what is refused. Start at
 * attempt().
 *
 * Whole numbers, whose sums of products are exact, must be equal. Of others, an element may be off
 * by a bound of the rounding of a sum: terms * u * sum |a| |b|, the sum computed by the same call
 * on magnitudes, in f64. NaNs and infinities are where the reference has them. The number of
 * threads changes no bit; neither does the instruction set, where it has a fused multiply-add;
 * neither does compiling. No kernel writes outside its result.
 *
 * support/fuzz_run.h says how cases are tried, shrunk and printed, and which settings there are.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/contents.h"
#include "support/effort.h"
#include "support/kernel_case.h"

/* ---- running a case ---- */

enum { MOST_WANTED = KERNEL_OPERANDS + 32 };

typedef struct outcome {
    contents left; /* results, then gradients */
    gd_status status;
    char message[300];
} outcome;

/* How a case is run. */
typedef struct manner {
    gd_context *gd;
    int threads;
    bool is_compiled, as_magnitudes;
    FILE *log; /* gets the case as C */
} manner;

/* A call with its gradients; what a compiled function is made of. */
typedef struct body {
    const kernel_family *family;
    kernel_call call;
    int operands;
    kernel_operand operand[KERNEL_OPERANDS];
    gd_tensor *in[KERNEL_OPERANDS + 1]; /* and the gradient's seed, NULL before it is known */
    int results, values;                /* the first `values` results are no gradients */
    gd_tensor *result[2 + MOST_WANTED];
    bool as_magnitudes;
} body;

static void say_gradients(const body *b, const bool *wanted, int parameters)
{
    kernel_say(&b->call, "    gd_tensor *by[] = {");
    int count = 0;
    for (int i = 0; i < b->operands; i++)
        if (wanted[i])
            kernel_say(&b->call, "%s %s", count++ ? "," : "", b->operand[i].name);
    for (int i = 0; i < parameters; i++)
        kernel_say(&b->call, "%s gd_module_tensor(m, %d)", count++ ? "," : "", i);
    kernel_say(&b->call, " }, *g[%d];\n    gd_grad(1, &r, &seed, %d, by, g);\n", count, count);
}

/* By operands that want one, and by parameters. */
static void add_gradients(body *b, gd_tensor *y, gd_tensor *seed)
{
    gd_tensor *by[MOST_WANTED];
    bool wanted[KERNEL_OPERANDS] = { false };
    int count = 0;
    for (int i = 0; i < b->operands; i++)
        if ((wanted[i] = gd_requires_grad(b->call.in[i])))
            by[count++] = b->call.in[i];
    const int parameters = b->call.module ? gd_module_count(b->call.module) : 0;
    for (int i = 0; i < parameters && count < MOST_WANTED; i++)
        by[count++] = gd_module_tensor(b->call.module, i);
    say_gradients(b, wanted, parameters);
    if (gd_grad(1, &y, &seed, count, by, b->result + b->results) == GD_OK)
        b->results += count;
}

/* Run eagerly, and while a function is compiled. */
static gd_tensor *run_body(void *user, gd_tensor *const *in)
{
    body *b = user;
    const fuzz_case *c = b->call.c;
    b->call.in = in;
    b->call.more = NULL;
    b->results = 0;
    gd_tensor *y = b->family->call(&b->call);
    if (!y)
        return NULL;
    b->result[b->results++] = y;
    if (b->call.more)
        b->result[b->results++] = b->call.more;
    b->values = b->results;
    if (c->field[K_GRADIENT] && gd_requires_grad(y)) {
        if (!b->in[b->operands])
            b->in[b->operands] = kernel_seed(b->call.gd, c, gd_tensor_shape(y), gd_tensor_dtype(y),
                                             b->as_magnitudes, b->call.log);
        add_gradients(b, y, in == b->in ? b->in[b->operands] : in[b->operands]);
    }
    return y;
}

static gd_tensor *compiled_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    body *b = user;
    gd_tensor *y = run_body(b, in);
    for (int i = 1; y && i < b->results; i++)
        gd_output(b->result[i]);
    return y;
}

static void note(outcome *r, const gd_tensor *t, int i, int values)
{
    contents_note(&r->left, t, i < values ? "result" : "gradient", i < values ? i : i - values);
}

/* The same as a compiled function of the operands and of the seed that the eager run has made. */
static void run_compiled(body *b, outcome *r)
{
    b->call.log = NULL;
    gd_error_clear();
    gd_function *f = gd_compile(b->call.gd, compiled_body, b, .detached = true);
    if (gd_call(f, b->operands + (b->in[b->operands] != NULL), b->in))
        for (int i = 0; gd_function_result(f, i); i++)
            note(r, gd_function_result(f, i), i, b->values);
    gd_function_release(f);
}

static outcome run(const kernel_family *family, const fuzz_case *c, manner m)
{
    outcome r = { .status = GD_OK };
    if (m.log)
        fprintf(m.log, "    gd_context *gd = gd_open(\"cpu\"); /* and \"reference\" */\n");
    gd_error_clear();
    gd_scope_begin(m.gd);
    gd_context_set_threads(m.gd, m.threads);
    body b = { .family = family };
    b.operands = family->operands(c, b.operand);
    for (int i = 0; i < b.operands; i++)
        b.in[i] = kernel_place(m.gd, c, &b.operand[i], i, m.as_magnitudes, m.log);
    gd_module *module = family->module ? family->module(m.gd, c, b.in) : NULL;
    b.call = (kernel_call){ .c = c, .gd = m.gd, .module = module, .log = m.log };
    b.as_magnitudes = m.as_magnitudes;
    if (gd_error_code() == GD_OK && run_body(&b, b.in) && gd_error_code() == GD_OK &&
        !m.is_compiled)
        for (int i = 0; i < b.results; i++)
            note(&r, b.result[i], i, b.values);
    if (m.is_compiled)
        run_compiled(&b, &r);
    r.status = gd_error_code();
    snprintf(r.message, sizeof r.message, "%s", gd_error_message());
    gd_error_clear();
    gd_module_release(module);
    gd_scope_end(m.gd);
    return r;
}

/* ---- comparing with the reference ---- */

static double unit_of(gd_dtype dtype)
{
    return dtype == GD_F64    ? DBL_EPSILON / 2
           : dtype == GD_F16  ? 0x1p-11
           : dtype == GD_BF16 ? 0x1p-8
                              : FLT_EPSILON / 2;
}

/* What stands for an element of any size: where sums of it are, and products of it. */
typedef struct bound {
    const kernel_family *family;
    const fuzz_case *c;
    const contents *magnitude; /* NULL: equality, or `tolerance` */
} bound;

/* How far an element may be from the reference's. */
static double allowed(const bound *b, const contents_mark *mark, int tensor, size_t i,
                      double largest)
{
    const double u = unit_of(mark->dtype), compute = mark->dtype == GD_F64 ? u : unit_of(GD_F32);
    const double least = mark->dtype == GD_F16 ? 0x1p-22 : mark->dtype == GD_F64 ? 0 : 0x1p-140;
    if (!b->family->terms)
        return (b->family->tolerance(b->c) * compute + 8 * u) * largest + least;
    if (!b->magnitude)
        return 0;
    const double magnitude = contents_value(b->magnitude, &b->magnitude->marks[tensor], i);
    return ((2 * b->family->terms(b->c) + 16) * compute + 8 * u) * magnitude + least;
}

/* The largest of all results, or of all gradients, and at least 1: what a sum that cancels was made
 * of. */
static double largest_like(const contents *c, int tensor)
{
    double largest = 1;
    for (int t = 0; t < c->count; t++)
        for (size_t i = 0; c->marks[t].what[0] == c->marks[tensor].what[0] && i < c->marks[t].count;
             i++) {
            const double x = fabs(contents_value(c, &c->marks[t], i));
            largest = isfinite(x) && x > largest ? x : largest;
        }
    return largest;
}

static bool is_close(double a, double b, double off)
{
    return a == b || (isnan(a) && isnan(b)) ||
           (isfinite(a) && isfinite(b) && isfinite(off) && fabs(a - b) <= off);
}

static bool agrees(const bound *b, const contents *reference, const contents *cpu, const char *who,
                   FILE *log)
{
    if (!contents_alike(reference, "the reference", cpu, who, log))
        return false;
    for (int t = 0; t < cpu->count; t++) {
        const contents_mark *x = &reference->marks[t], *y = &cpu->marks[t];
        const double largest = b->family->terms ? 0 : largest_like(reference, t);
        for (size_t i = 0; i < x->count; i++) {
            const double expected = contents_value(reference, x, i),
                         got = contents_value(cpu, y, i);
            const double off = gd_dtype_is_float(x->dtype) ? allowed(b, x, t, i, largest) : 0;
            if (is_close(expected, got, off))
                continue;
            if (log)
                fprintf(
                    log,
                    "    %s: element %zu of %s is %.17g, the reference's %.17g (%.3g allowed)\n",
                    who, i, y->what, got, expected, off);
            return false;
        }
    }
    return true;
}

/* ---- trying a case ---- */

static const int thread_counts[] = { 1, 2, 3, 5 };

/* Open for as long as the process runs: the reference, the CPU with each instruction set, and the
 * best of these on each path. */
typedef struct devices {
    gd_context *reference, *cpu[GD_ISA_COUNT], *path[KERNEL_PATHS];
    const char *isa[GD_ISA_COUNT];
    int count;
} devices;

static gd_context *open_path(const char *isa, int i)
{
    setenv("GRADUS_CONV", kernel_paths[i].conv, 1);
    setenv("GRADUS_MATMUL", kernel_paths[i].matmul, 1);
    setenv("GRADUS_L2", kernel_paths[i].l2, 1);
    gd_context *gd = open_cpu(isa, 1);
    unsetenv("GRADUS_CONV");
    unsetenv("GRADUS_MATMUL");
    unsetenv("GRADUS_L2");
    return gd;
}

static const devices *open_devices(void)
{
    static devices d;
    if (d.reference)
        return &d;
    d.reference = open_reference();
    for (const char *const *isa = isa_names(); *isa; isa++) {
        if (!test_tries_isa(gd_isa_parse(*isa)))
            continue;
        d.isa[d.count] = *isa;
        d.cpu[d.count++] = open_cpu(*isa, 1);
    }
    for (int i = 1; i < KERNEL_PATHS; i++)
        d.path[i] = open_path(d.isa[d.count - 1], i);
    return &d;
}

static bool same_status(const outcome *reference, const outcome *r, const char *who, FILE *log)
{
    if (r->status == reference->status && strcmp(r->message, reference->message) == 0)
        return true;
    if (log)
        fprintf(log, "    %s: \"%s\"; the reference: \"%s\"\n", who,
                r->status == GD_OK ? "done" : r->message,
                reference->status == GD_OK ? "done" : reference->message);
    return false;
}

/* One instruction set: any number of threads, compiled. `first` gets what one thread leaves. */
static bool agrees_on(const bound *b, const outcome *reference, const devices *d, int which,
                      outcome *first, FILE *log)
{
    bool same = true;
    for (int i = 0; same && i < COUNT(thread_counts); i++) {
        char who[64];
        snprintf(who, sizeof who, "%s, %d threads", d->isa[which], thread_counts[i]);
        const manner m = { .gd = d->cpu[which], .threads = thread_counts[i] };
        outcome r = run(b->family, b->c, m);
        same = same_status(reference, &r, who, log) &&
               (i ? contents_same(&first->left, "one thread", &r.left, who, log)
                  : agrees(b, &reference->left, &r.left, who, log));
        if (i == 0)
            *first = r;
        else
            contents_free(&r.left);
    }
    if (!same || !b->c->field[K_COMPILED])
        return same;
    const manner m = { .gd = d->cpu[which], .threads = 2, .is_compiled = true };
    outcome r = run(b->family, b->c, m);
    if (log && r.status != reference->status)
        fprintf(log, "    %s, compiled: %s\n", d->isa[which], r.message);
    same = r.status == reference->status &&
           contents_same(&first->left, "eagerly", &r.left, "compiled", log);
    contents_free(&r.left);
    return same;
}

/* The path of the case: the bits of the instruction set's own choice, `first`. */
static bool agrees_on_path(const bound *b, const outcome *reference, const devices *d,
                           const outcome *first, FILE *log)
{
    const int path = (int)b->c->field[K_PATH];
    if (path == 0)
        return true;
    char who[100];
    snprintf(who, sizeof who, "GRADUS_CONV=%s GRADUS_MATMUL=%s GRADUS_L2=%s",
             kernel_paths[path].conv, kernel_paths[path].matmul, kernel_paths[path].l2);
    bool same = true;
    for (int i = 0; same && i < COUNT(thread_counts); i += 2) {
        outcome r =
            run(b->family, b->c, (manner){ .gd = d->path[path], .threads = thread_counts[i] });
        same = same_status(reference, &r, who, log) &&
               contents_same(&first->left, d->isa[d->count - 1], &r.left, who, log);
        contents_free(&r.left);
    }
    return same;
}

/* Whether whole numbers give whole numbers that f32 holds. */
static bool is_exact(const kernel_family *f, const fuzz_case *c)
{
    return c->field[K_VALUES] == VALUES_WHOLE && f->is_exact(c) && f->terms(c) < 0x1p24 / 512;
}

static fuzz_verdict attempt(const fuzz_suite *suite, const fuzz_case *c, FILE *log)
{
    const kernel_family *family = suite->user;
    const devices *d = open_devices();
    const int faults = watch_faults();
    outcome reference = run(family, c, (manner){ .gd = d->reference, .threads = 1, .log = log }),
            magnitude = { .status = GD_OK }, first[GD_ISA_COUNT] = { { .status = GD_OK } };
    bound b = { family, c, NULL };
    if (reference.status == GD_OK && family->terms && !is_exact(family, c)) {
        magnitude =
            run(family, c, (manner){ .gd = d->reference, .threads = 1, .as_magnitudes = true });
        b.magnitude = &magnitude.left;
    }
    bool same = magnitude.left.count == (b.magnitude ? reference.left.count : 0);
    if (!same && log)
        fprintf(log, "    magnitudes: %s\n", magnitude.message);
    for (int i = 0; same && i < d->count; i++) {
        same = agrees_on(&b, &reference, d, i, &first[i], log);
        if (same && i > 0 && isa_fuses(d->isa[i - 1]))
            same = contents_same(&first[i - 1].left, d->isa[i - 1], &first[i].left, d->isa[i], log);
    }
    same = same && agrees_on_path(&b, &reference, d, &first[d->count - 1], log);
    if (same && watch_faults() != faults && log)
        fprintf(log, "    a kernel wrote outside its result\n");
    same = same && watch_faults() == faults;
    for (int i = 0; i < d->count; i++)
        contents_free(&first[i].left);
    contents_free(&reference.left);
    contents_free(&magnitude.left);
    return same ? FUZZ_AGREES : FUZZ_DIFFERS;
}

/* ---- the tests ---- */

static void draw(const fuzz_suite *suite, uint64_t seed, fuzz_case *c)
{
    kernel_draw(suite->user, seed, c);
}

enum { SUITES = 4 };
static fuzz_suite suites[SUITES];

static void make_suites(void)
{
    static const kernel_family *const families[SUITES] = { &kernel_conv, &kernel_product,
                                                           &kernel_pool, &kernel_recurrent };
    for (int i = 0; i < SUITES; i++)
        suites[i] = (fuzz_suite){ .name = families[i]->name,
                                  .fields = families[i]->fields,
                                  .field = families[i]->field,
                                  .usual = TEST_UNDER_TSAN            ? 10
                                           : TEST_UNDER_MEMORY_CHECKS ? 60
                                                                      : 250,
                                  .draw = draw,
                                  .attempt = attempt,
                                  .user = families[i] };
}

static void convolutions_agree(void **state)
{
    (void)state;
    fuzz_run(&suites[0], SUITES);
}

static void products_agree(void **state)
{
    (void)state;
    fuzz_run(&suites[1], SUITES);
}

static void pooling_agrees(void **state)
{
    (void)state;
    fuzz_run(&suites[2], SUITES);
}

static void recurrent_networks_agree(void **state)
{
    (void)state;
    fuzz_run(&suites[3], SUITES);
}

int main(void)
{
    int status = 0;
    make_suites();
    if (fuzz_run_one(suites, SUITES, &status))
        return status;
    const struct CMUnitTest tests[] = { cmocka_unit_test(convolutions_agree),
                                        cmocka_unit_test(products_agree),
                                        cmocka_unit_test(pooling_agrees),
                                        cmocka_unit_test(recurrent_networks_agree) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
