/* tests/test_compile_fuzz.c: random programs (support/fuzz.h), run eagerly and compiled under any
 * combination of passes, with one thread and two, lazily, within a limit of memory, with gradients
 * through the calls: all must leave the same bits. Where both have a NaN, which one does not
 * matter: it is not defined which comes out of a product of several.
 *
 * Programs run in a child process, so that one that crashes is a failure as well. One that fails is
 * shrunk, to the fewest steps, options and passes switched off that fail in the same way, and
 * printed, a line a step, with the call that repeats it.
 *
 *     GRADUS_FUZZ_SEED=1000 GRADUS_FUZZ_CASES=50000 test_compile_fuzz     so many programs, from a
 * seed on GRADUS_FUZZ_SEED=1000 GRADUS_FUZZ_SECONDS=60 test_compile_fuzz      as many as there is
 * time for GRADUS_FUZZ_ONE=1017:3:0:20 test_compile_fuzz                       one, as it was
 * printed
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/half.h"
#include "compile/passes.h"
#include "support/effort.h"
#include "support/fuzz.h"
#include "support/tensors.h"
#include "tensor/element.h"

/* ---- what a run leaves ---- */

enum { MOST_MARKS = 512 };

typedef struct mark {
    char what[40];
    gd_dtype dtype;
    size_t at, count;
} mark;

/* Tensors, one after the other, as bytes; every NaN as the same one. */
typedef struct contents {
    unsigned char *bytes;
    size_t size, capacity;
    mark marks[MOST_MARKS];
    int count;
} contents;

typedef struct record {
    contents values, gradients;
    bool refused; /* a gradient through a call */
    gd_status status;
    char message[400];
    size_t arena; /* of the plan */
} record;

static void forget_nan_bits(gd_dtype dtype, unsigned char *bytes, size_t count)
{
    const size_t size = gd_dtype_size(dtype);
    static const float nan32 = NAN;
    static const double nan64 = NAN;
    static const uint16_t nan16 = 0x7fff;
    const void *same = dtype == GD_F32   ? (const void *)&nan32
                       : dtype == GD_F64 ? (const void *)&nan64
                                         : &nan16;
    for (size_t i = 0; i < count && gd_dtype_is_float(dtype); i++)
        if (isnan(gd_element_as_double(dtype, bytes + i * size)))
            memcpy(bytes + i * size, same, size);
}

static void note(contents *c, const gd_tensor *t, const char *what, int number)
{
    if (!t || c->count == MOST_MARKS)
        return;
    mark *k = &c->marks[c->count];
    *k = (mark){ .dtype = gd_tensor_dtype(t), .at = c->size, .count = (size_t)gd_tensor_count(t) };
    snprintf(k->what, sizeof k->what, "%s %d", what, number);
    const size_t bytes = k->count * gd_dtype_size(k->dtype);
    if (c->size + bytes > c->capacity) {
        c->capacity = 2 * (c->size + bytes);
        c->bytes = realloc(c->bytes, c->capacity);
    }
    if (gd_tensor_read(t, c->bytes + c->size, bytes) != GD_OK)
        return;
    forget_nan_bits(k->dtype, c->bytes + c->size, k->count);
    c->size += bytes;
    c->count++;
}

static void record_free(record *r)
{
    free(r->values.bytes);
    free(r->gradients.bytes);
}

/* ---- running ---- */

static gd_pass_report passes; /* for their names */

static void set_passes(uint32_t off)
{
    char text[400] = "";
    for (int i = 0; i < GD_PASS_COUNT; i++)
        if (off >> i & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s-%s", *text ? "," : "",
                     passes.name[i]);
    setenv("GRADUS_PASSES", text, 1);
}

/* The gradient of a call's result by the first input; an error is cleared, and remembered. */
static void note_gradient(record *r, gd_tensor *result, gd_tensor *input, int call)
{
    gd_tensor *g = NULL, *sum = gd_sum(result, GD_ALL_AXES, false);
    if (!gd_requires_grad(sum))
        return;
    if (gd_grad(&sum, NULL, 1, &input, &g, 1) == GD_OK)
        note(&r->gradients, g, "gradient through call", call);
    else
        r->refused = true;
    gd_error_clear();
}

typedef struct variant {
    gd_mode mode;
    int threads;
    uint32_t off;
    size_t memory_limit;
    bool has_history;
} variant;

/* Everything the program leaves: results, states, weights and the random stream's position. */
static record run(fuzz_program p, variant v)
{
    record r = { .status = GD_OK };
    gd_tensor *in[FUZZ_INPUTS];
    gd_error_clear();
    set_passes(v.off);
    gd_context *gd = gd_open("cpu", .threads = v.threads, .seed = p.seed);
    fuzz_place(&p, gd, in);
    gd_function *f = gd_compile(gd, fuzz_body, &p, .mode = v.mode, .memory_limit = v.memory_limit,
                                .detached = !v.has_history);
    for (int call = 0; call <= ((p.options & FUZZ_TWICE) != 0) && gd_error_code() == GD_OK;
         call++) {
        if (call) /* other numbers, and with an odd seed another signature */
            in[2] =
                p.seed % 2 ? gd_neg(in[2]) : gd_transpose(gd_neg(gd_transpose(in[2], 0, 1)), 0, 1);
        gd_tensor *result = gd_call(f, FUZZ_INPUTS, in);
        for (int i = 0; result && gd_function_result(f, i); i++)
            note(&r.values, gd_function_result(f, i), call ? "second call's result" : "result", i);
        if (result && v.has_history)
            note_gradient(&r, result, in[0], call);
    }
    r.arena = gd_function_stats(f).arena_bytes;
    r.status = gd_error_code();
    snprintf(r.message, sizeof r.message, "%s", gd_error_message());
    gd_error_clear();
    for (int i = 0; i < FUZZ_STATES; i++)
        note(&r.values, p.states[i], "state", i);
    for (int i = 0; i < FUZZ_WEIGHTS; i++)
        note(&r.values, p.weights[i], "weight", i);
    note(&r.values, gd_uniform(gd, GD_SHAPE(4), 0, 1, GD_F32), "random numbers", 0);
    gd_close(gd);
    gd_error_clear();
    return r;
}

/* ---- comparing ---- */

static bool same_contents(const contents *a, const contents *b, const char *how, FILE *log)
{
    for (int i = 0; i < a->count && i < b->count; i++) {
        const mark *x = &a->marks[i], *y = &b->marks[i];
        const size_t size = gd_dtype_size(x->dtype);
        if (x->count != y->count || x->dtype != y->dtype) {
            if (log)
                fprintf(log, "    %s: %s has %zu elements, %s, eagerly %zu, %s\n", how, x->what,
                        y->count, gd_dtype_name(y->dtype), x->count, gd_dtype_name(x->dtype));
            return false;
        }
        for (size_t k = 0; k < x->count; k++) {
            const unsigned char *p = a->bytes + x->at + k * size, *q = b->bytes + y->at + k * size;
            if (memcmp(p, q, size) == 0)
                continue;
            if (log)
                fprintf(log, "    %s: element %zu of %s is %.17g, eagerly %.17g\n", how, k, x->what,
                        gd_element_as_double(y->dtype, q), gd_element_as_double(x->dtype, p));
            return false;
        }
    }
    if (log && a->count != b->count)
        fprintf(log, "    %s: %d tensors, eagerly %d\n", how, b->count, a->count);
    return a->count == b->count;
}

/* What a program comes to; exit codes of the child. */
enum { AGREES, DIFFERS, INVALID };

/* Run as v and compare. Refusing a limit, or the gradient of what has been overwritten, is all
 * right; calls of what trains have no gradients. */
static bool equals(const fuzz_program *p, variant v, const record *eager, const char *how,
                   size_t *arena, FILE *log)
{
    record r = run(*p, v);
    bool same = r.status == GD_OK || (v.memory_limit && r.status == GD_ERR_MEMORY);
    if (!same && log)
        fprintf(log, "    %s: %s\n", how, r.message);
    if (r.status == GD_OK) {
        same = same_contents(&eager->values, &r.values, how, log);
        if (same && !eager->refused && !r.refused)
            same = same_contents(&eager->gradients, &r.gradients, how, log);
    }
    if (arena)
        *arena = r.arena;
    record_free(&r);
    return same;
}

static int try_program(fuzz_program p, FILE *log)
{
    const uint32_t off = p.off;
    variant v = { GD_MODE_EAGER, 1, 0, 0, false };
    p.log = log;
    record eager = run(p, v);
    p.log = NULL;
    if (eager.status != GD_OK && log)
        fprintf(log, "\n    eagerly: %s\n", eager.message);
    int result = eager.status == GD_OK ? AGREES : INVALID;
    size_t arena = 0;
    v = (variant){ GD_MODE_COMPILED, p.options & FUZZ_THREADS ? 2 : 1, off, 0, false };
    if (result == AGREES && !equals(&p, v, &eager, "compiled", &arena, log))
        result = DIFFERS;
    if (result == AGREES && p.options & FUZZ_LAZY) {
        v.mode = GD_MODE_LAZY;
        result = equals(&p, v, &eager, "lazily", NULL, log) ? AGREES : DIFFERS;
    } else if (result == AGREES && p.options & FUZZ_LIMIT) {
        v.memory_limit = arena > 64 ? arena - arena / (4u << p.seed % 4) : 0;
        result = equals(&p, v, &eager, "with less memory", NULL, log) ? AGREES : DIFFERS;
    } else if (result == AGREES && p.options & FUZZ_HISTORY && !(p.options & FUZZ_TRAIN)) {
        record_free(&eager);
        eager = run(p, (variant){ GD_MODE_EAGER, 1, 0, 0, true });
        v.has_history = true;
        result = equals(&p, v, &eager, "with a history", NULL, log) ? AGREES : DIFFERS;
    }
    record_free(&eager);
    return result;
}

/* ---- children ---- */

/* In a child process: its wait status. With a log, which is the standard error, it may print. */
static int wait_for(pid_t child)
{
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static pid_t start_child(void)
{
    fflush(NULL);
    const pid_t child = fork();
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    for (int i = 0; child == 0 && i < COUNT(signals); i++)
        signal(signals[i], SIG_DFL); /* and not cmocka's */
    return child;
}

static int status_of(fuzz_program p, bool is_quiet)
{
    const pid_t child = start_child();
    if (child == 0) {
        if (is_quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
            exit(99);
        exit(try_program(p, is_quiet ? NULL : stderr));
    }
    return wait_for(child);
}

/* ---- shrinking ---- */

static bool keeps(fuzz_program *p, fuzz_program smaller, int status)
{
    if (status_of(smaller, true) != status)
        return false;
    *p = smaller;
    return true;
}

/* The fewest steps, options and passes switched off with this status. */
static fuzz_program shrink(fuzz_program p, int status)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = FUZZ_STEPS - 1; i >= 0; i--) {
            fuzz_program less = p;
            less.steps &= ~(1u << i);
            again |= less.steps != p.steps && keeps(&p, less, status);
        }
        for (int i = 0; i < FUZZ_OPTIONS; i++) {
            fuzz_program less = p;
            less.options &= ~(1u << i);
            again |= less.options != p.options && keeps(&p, less, status);
        }
        for (int i = 0; i < GD_PASS_COUNT; i++) {
            fuzz_program less = p;
            less.off &= ~(1u << i);
            again |= less.off != p.off && keeps(&p, less, status);
        }
    }
    return p;
}

static void print(const fuzz_program *p)
{
    fprintf(stderr, "seed %" PRIu64 "; options:", p->seed);
    for (int i = 0; i < FUZZ_OPTIONS; i++)
        if (p->options >> i & 1)
            fprintf(stderr, " %s;", fuzz_option_names[i]);
    fprintf(stderr, " passes off:");
    for (int i = 0; i < GD_PASS_COUNT; i++)
        if (p->off >> i & 1)
            fprintf(stderr, " %s", passes.name[i]);
    fprintf(stderr, "\n");
    int status = status_of(*p, false);
    fprintf(stderr, "    %s %d\n    again: GRADUS_FUZZ_ONE=%" PRIu64 ":%x:%x:%x\n",
            WIFEXITED(status) ? "exit code" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), p->seed, p->steps, p->off,
            p->options);
}

/* ---- the test ---- */

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static int find_passes(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_ir ir = { .context = gd };
    gd_status status = gd_passes_run(&ir, &passes);
    gd_ir_free(&ir);
    gd_close(gd);
    return status == GD_OK ? 0 : -1;
}

/* Until one fails: its number, and the process's status. */
static int run_from(long first, long cases, volatile long *at, time_t end)
{
    const pid_t child = start_child();
    if (child == 0) {
        for (*at = first; *at < cases && (!end || time(NULL) < end); ++*at) {
            int result = try_program(fuzz_draw((uint64_t)*at, GD_PASS_COUNT), NULL);
            if (result != AGREES)
                exit(result);
        }
        exit(AGREES);
    }
    return wait_for(child);
}

static void random_programs_agree(void **state)
{
    (void)state;
    const long seconds = setting("GRADUS_FUZZ_SECONDS", 0), first = setting("GRADUS_FUZZ_SEED", 1),
               usual = TEST_UNDER_TSAN   ? 20
                       : TEST_UNDER_ASAN ? 150
                                         : 300,
               cases = setting("GRADUS_FUZZ_CASES", seconds ? 1000000000 : usual);
    const time_t end = seconds ? time(NULL) + seconds : 0;
    volatile long *at =
        mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    long failures = 0;
    int status = run_from(first, first + cases, at, end);
    while (status != 0) {
        fuzz_program p = fuzz_draw((uint64_t)*at, GD_PASS_COUNT);
        status = status_of(p, true);
        if (status == 0)
            fail_msg("seed %ld fails after others only, or leaks", *at);
        p = shrink(p, status);
        print(&p);
        failures++;
        if (failures >= setting("GRADUS_FUZZ_FAILURES", 1))
            break;
        status = run_from(*at + 1, first + cases, at, end);
    }
    const long last = *at;
    munmap((void *)at, sizeof *at);
    if (seconds)
        print_message("%ld programs\n", last - first);
    if (failures)
        fail_msg("%ld programs fail, the last of them with seed %ld", failures, last);
}

/* One program, "seed:steps:off:options", in this process, for a debugger. */
static int run_one(const char *text)
{
    fuzz_program p = { 0 };
    if (sscanf(text, "%" SCNu64 ":%x:%x:%x", &p.seed, &p.steps, &p.off, &p.options) != 4)
        return 2;
    int result = find_passes(NULL) == 0 ? try_program(p, stderr) : 2;
    fprintf(stderr, "%s\n", result == AGREES ? "agrees" : "fails");
    return result;
}

int main(void)
{
    if (getenv("GRADUS_FUZZ_ONE"))
        return run_one(getenv("GRADUS_FUZZ_ONE"));
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_programs_agree) };
    return cmocka_run_group_tests(tests, find_passes, NULL);
}
