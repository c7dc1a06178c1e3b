/* tests/test_compile_fuzz.c: random programs (support/fuzz.h), run eagerly and compiled under any
 * combination of passes, with one thread and two, lazily, within a limit of memory, with gradients
 * through the calls: all must leave the same bits, and on other devices than the CPU the bits that
 * it leaves. Where both have a NaN, which one does not matter: it is not defined which comes out of
 * a product of several.
 *
 * support/fuzz_run.h says how programs are tried, shrunk and printed, and which settings there are.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/compile.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compile/passes.h"
#include "support/contents.h"
#include "support/effort.h"
#include "support/fuzz.h"
#include "support/fuzz_run.h"
#include "support/guard.h"

/* ---- running ---- */

typedef struct record {
    contents values, gradients;
    bool refused; /* a gradient through a call */
    gd_status status;
    char message[400];
    size_t arena; /* of the plan */
} record;

static void record_free(record *r)
{
    contents_free(&r->values);
    contents_free(&r->gradients);
}

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
    if (gd_grad(1, &sum, NULL, 1, &input, &g) == GD_OK)
        contents_note(&r->gradients, g, "gradient through call", call);
    else
        r->refused = true;
    gd_error_clear();
}

typedef struct variant {
    gd_mode mode;
    int threads;
    uint32_t off;
    size_t memory_limit;
    bool has_history, is_on_cpu; /* else on test_device() */
} variant;

/* Everything the program leaves: results, states, weights and the random stream's position. */
static record run(fuzz_program p, variant v)
{
    record r = { .status = GD_OK };
    gd_tensor *in[FUZZ_INPUTS];
    gd_error_clear();
    set_passes(v.off);
    gd_context *gd =
        gd_open(v.is_on_cpu ? "cpu" : test_device(), .threads = v.threads, .seed = p.seed);
    fuzz_place(&p, gd, in);
    gd_function *f = gd_compile(gd, fuzz_body, &p, .mode = v.mode,
                                .memory_limit = v.memory_limit ? v.memory_limit : SIZE_MAX,
                                .detached = !v.has_history);
    for (int call = 0; call <= ((p.options & FUZZ_TWICE) != 0) && gd_error_code() == GD_OK;
         call++) {
        if (call) /* other numbers, and with an odd seed another signature */
            in[2] =
                p.seed % 2 ? gd_neg(in[2]) : gd_transpose(gd_neg(gd_transpose(in[2], 0, 1)), 0, 1);
        gd_tensor *result = gd_call(f, FUZZ_INPUTS, in);
        for (int i = 0; result && gd_function_result(f, i); i++)
            contents_note(&r.values, gd_function_result(f, i),
                          call ? "second call's result" : "result", i);
        if (result && v.has_history)
            note_gradient(&r, result, in[0], call);
    }
    r.arena = gd_function_stats(f).arena_bytes;
    r.status = gd_error_code();
    snprintf(r.message, sizeof r.message, "%s", gd_error_message());
    gd_error_clear();
    for (int i = 0; i < FUZZ_STATES; i++)
        contents_note(&r.values, p.states[i], "state", i);
    for (int i = 0; i < FUZZ_WEIGHTS; i++)
        contents_note(&r.values, p.weights[i], "weight", i);
    contents_note(&r.values, gd_uniform(gd, GD_SHAPE(4), 0, 1, GD_F32), "random numbers", 0);
    gd_close(gd);
    gd_error_clear();
    return r;
}

/* ---- comparing ---- */

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
        same = contents_same(&eager->values, "eagerly", &r.values, how, log);
        if (same && !eager->refused && !r.refused)
            same = contents_same(&eager->gradients, "eagerly", &r.gradients, how, log);
    }
    if (arena)
        *arena = r.arena;
    record_free(&r);
    return same;
}

static fuzz_verdict try_program(fuzz_program p, FILE *log)
{
    const uint32_t off = p.off;
    variant v = { GD_MODE_EAGER, 1, 0, 0, false, true };
    p.log = log;
    record eager = run(p, v);
    p.log = NULL;
    if (eager.status != GD_OK && log)
        fprintf(log, "\n    eagerly: %s\n", eager.message);
    fuzz_verdict result = eager.status == GD_OK ? FUZZ_AGREES : FUZZ_INVALID;
    size_t arena = 0;
    v.is_on_cpu = false;
    if (result == FUZZ_AGREES && strcmp(test_device(), "cpu") != 0 &&
        !equals(&p, v, &eager, test_device(), NULL, log))
        result = FUZZ_DIFFERS;
    v = (variant){ GD_MODE_COMPILED, p.options & FUZZ_THREADS ? 2 : 1, off, 0, false, false };
    if (result == FUZZ_AGREES && !equals(&p, v, &eager, "compiled", &arena, log))
        result = FUZZ_DIFFERS;
    if (result == FUZZ_AGREES && p.options & FUZZ_LAZY) {
        v.mode = GD_MODE_LAZY;
        result = equals(&p, v, &eager, "lazily", NULL, log) ? FUZZ_AGREES : FUZZ_DIFFERS;
    } else if (result == FUZZ_AGREES && p.options & FUZZ_LIMIT) {
        v.memory_limit = arena > 64 ? arena - arena / (4u << p.seed % 4) : 0;
        result = equals(&p, v, &eager, "with less memory", NULL, log) ? FUZZ_AGREES : FUZZ_DIFFERS;
    } else if (result == FUZZ_AGREES && p.options & FUZZ_HISTORY && !(p.options & FUZZ_TRAIN)) {
        record_free(&eager);
        eager = run(p, (variant){ GD_MODE_EAGER, 1, 0, 0, true, true });
        v.has_history = true;
        result = equals(&p, v, &eager, "with a history", NULL, log) ? FUZZ_AGREES : FUZZ_DIFFERS;
    }
    record_free(&eager);
    return result;
}

/* ---- programs as cases ---- */

enum { SEED, STEPS, OFF, OPTIONS, FIELDS };
static const fuzz_field fields[FIELDS] = {
    [SEED] = { "seed", 0, FUZZ_SEED },
    [STEPS] = { "steps", 0, FUZZ_SET },
    [OFF] = { "off", 0, FUZZ_SET },
    [OPTIONS] = { "options", 0, FUZZ_SET },
};

static void draw(const fuzz_suite *suite, uint64_t seed, fuzz_case *c)
{
    const fuzz_program p = fuzz_draw(seed, GD_PASS_COUNT);
    *c = fuzz_simplest(suite);
    c->field[SEED] = (int64_t)p.seed;
    c->field[STEPS] = p.steps;
    c->field[OFF] = p.off;
    c->field[OPTIONS] = p.options;
}

static void say(const fuzz_program *p, FILE *log)
{
    fprintf(log, "seed %" PRIu64 "; options:", p->seed);
    for (int i = 0; i < FUZZ_OPTIONS; i++)
        if (p->options >> i & 1)
            fprintf(log, " %s;", fuzz_option_names[i]);
    fprintf(log, " passes off:");
    for (int i = 0; i < GD_PASS_COUNT; i++)
        if (p->off >> i & 1)
            fprintf(log, " %s", passes.name[i]);
    fprintf(log, "\n");
}

static fuzz_verdict attempt(const fuzz_suite *suite, const fuzz_case *c, FILE *log)
{
    (void)suite;
    const fuzz_program p = { .seed = (uint64_t)c->field[SEED],
                             .steps = (uint32_t)c->field[STEPS],
                             .off = (uint32_t)c->field[OFF],
                             .options = (unsigned)c->field[OPTIONS] };
    if (log)
        say(&p, log);
    return try_program(p, log);
}

static const fuzz_suite suite = { .name = "program",
                                  .fields = FIELDS,
                                  .field = fields,
                                  .usual = TEST_UNDER_TSAN            ? 20
                                           : TEST_UNDER_MEMORY_CHECKS ? 150
                                                                      : 300,
                                  .draw = draw,
                                  .attempt = attempt };

/* ---- the test ---- */

/* On the CPU: cases run in children, where a driver's threads are not that the parent began. */
static int find_passes(void)
{
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_ir ir = { .context = gd };
    gd_status status = gd_passes_run(&ir, &passes);
    gd_ir_free(&ir);
    gd_close(gd);
    return status == GD_OK ? 0 : -1;
}

static void random_programs_agree(void **state)
{
    (void)state;
    fuzz_run(&suite, 1);
}

int main(void)
{
    int status = find_passes();
    if (status != 0 || fuzz_run_one(&suite, 1, &status))
        return status;
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_programs_agree) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
