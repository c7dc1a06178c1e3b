/* tests/test_compile_fuzz.c: random programs, run eagerly and compiled under every kind of pass
 * selection, must agree bit for bit.
 *
 * A program is a seed and a number of steps: step after step an op is drawn and applied to values
 * drawn from those made so far (mixed shapes, dtypes, views, sharing, effects, random numbers); at
 * the end come gradients. The same seed draws the same program whether it is traced or run. A
 * failing program is shrunk to its fewest steps and printed as a call that repeats it.
 *
 * GRADUS_FUZZ_CASES sets how many programs are tried (default 400), GRADUS_FUZZ_SEED where they
 * begin.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include "base/random.h"

enum { MOST_VALUES = 48, STATES = 2, INPUTS = 3, CALLS = 2, MOST_STEPS = 30 };

typedef struct program {
    uint64_t seed;
    int steps;
    gd_tensor *states[STATES];
} program;

typedef struct maker {
    gd_random random;
    gd_context *gd;
    program *program;
    gd_tensor *values[MOST_VALUES];
    int count;
} maker;

static int below(maker *m, int bound)
{
    return (int)gd_random_below(&m->random, (uint64_t)bound);
}

static gd_tensor *any(maker *m)
{
    return m->values[below(m, m->count)];
}

static gd_tensor *any_float(maker *m)
{
    gd_tensor *t = any(m);
    gd_dtype dtype = gd_tensor_dtype(t);
    return dtype == GD_F32 || dtype == GD_F64 ? t : gd_cast(t, below(m, 4) ? GD_F32 : GD_F64);
}

static bool broadcasts(gd_shape a, gd_shape b)
{
    for (int i = 1; i <= a.rank && i <= b.rank; i++) {
        int64_t x = a.dim[a.rank - i], y = b.dim[b.rank - i];
        if (x != y && x != 1 && y != 1)
            return false;
    }
    return true;
}

static int64_t count_of(gd_shape s)
{
    int64_t count = 1;
    for (int i = 0; i < s.rank; i++)
        count *= s.dim[i];
    return count;
}

/* ---- the ops a step may draw; NULL: the draw does not fit, nothing happens ---- */

static gd_tensor *step_unary(maker *m)
{
    static gd_tensor *(*const functions[])(gd_tensor *) = {
        gd_neg, gd_abs,   gd_sign, gd_square,   gd_exp, gd_tanh, gd_relu,  gd_sigmoid, gd_floor,
        gd_erf, gd_log1p, gd_sqrt, gd_softplus, gd_sin, gd_gelu, gd_isnan, gd_silu,    gd_expm1
    };
    return functions[below(m, (int)(sizeof functions / sizeof *functions))](any_float(m));
}

static gd_tensor *step_binary(maker *m)
{
    static gd_tensor *(*const functions[])(gd_tensor *, gd_tensor *) = {
        gd_add, gd_sub, gd_mul, gd_div, gd_maximum,   gd_minimum,    gd_mod,
        gd_lt,  gd_eq,  gd_add, gd_mul, gd_relu_grad, gd_logical_or, gd_floor_div
    };
    gd_tensor *x = any(m), *y = any(m);
    if (!broadcasts(gd_tensor_shape(x), gd_tensor_shape(y)))
        return NULL;
    return functions[below(m, (int)(sizeof functions / sizeof *functions))](x, y);
}

static gd_tensor *step_scalar(maker *m)
{
    double c = (double)below(m, 9) / 4.0 - 1.0;
    gd_tensor *x = any(m);
    return below(m, 2) ? gd_add_scalar(x, c) : gd_mul_scalar(x, c);
}

static gd_tensor *step_where(maker *m)
{
    gd_tensor *x = any(m), *y = any(m),
              *condition = gd_gt(x, gd_scalar(m->gd, 0, gd_tensor_dtype(x)));
    return broadcasts(gd_tensor_shape(x), gd_tensor_shape(y)) ? gd_where(condition, x, y) : NULL;
}

static gd_tensor *step_cast(maker *m)
{
    return gd_cast(any(m), (gd_dtype)below(m, GD_DTYPE_COUNT));
}

static gd_tensor *step_reduce(maker *m)
{
    gd_tensor *x = any(m);
    int rank = gd_tensor_shape(x).rank;
    bool keep = below(m, 2);
    gd_axes axes = rank && below(m, 3) ? GD_AXES(below(m, rank)) : GD_ALL_AXES;
    switch (below(m, 5)) {
    case 0:
        return gd_mean(x, axes, keep);
    case 1:
        return gd_tensor_count(x) ? gd_max(x, axes, keep) : NULL;
    case 2:
        return gd_var(x, axes, 0, keep);
    case 3:
        return rank && gd_tensor_count(x) ? gd_argmax(x, below(m, rank), keep) : NULL;
    default:
        return gd_sum(x, axes, keep);
    }
}

/* Rows and what is made of them: a value, a number for each row, and both together again. */
static gd_tensor *step_rows(maker *m)
{
    gd_tensor *x = any_float(m);
    int rank = gd_tensor_shape(x).rank;
    if (rank == 0 || gd_tensor_count(x) == 0)
        return NULL;
    gd_axes axes = rank > 1 && below(m, 3) == 0 ? GD_AXES(rank - 2, rank - 1) : GD_AXES(-1);
    gd_tensor *mean = gd_mean(x, axes, true);
    switch (below(m, 5)) {
    case 0:
        return gd_mul(x, gd_rsqrt(gd_add_scalar(gd_mean(gd_square(x), axes, true), 1e-3)));
    case 1:
        return gd_div(gd_exp(x), gd_sum(gd_exp(x), axes, true));
    case 2:
        return gd_maximum(gd_sub(x, gd_max(x, axes, true)), gd_neg(gd_min(x, axes, true)));
    case 3:
        return gd_sub(x, gd_unsqueeze(gd_sum(gd_tanh(x), GD_AXES(-1), false), -1));
    default:
        return gd_sum(gd_square(gd_sub(x, mean)), axes, below(m, 2));
    }
}

static gd_tensor *step_view(maker *m)
{
    gd_tensor *x = any(m);
    gd_shape s = gd_tensor_shape(x);
    if (s.rank == 0)
        return gd_broadcast_to(x, GD_SHAPE(1 + below(m, 3), 1 + below(m, 4)));
    int axis = below(m, s.rank);
    switch (below(m, 6)) {
    case 0:
        return gd_reshape(x, GD_SHAPE(-1));
    case 1:
        return s.rank > 1 ? gd_transpose(x, axis, below(m, s.rank)) : NULL;
    case 2:
        return gd_slice(x, axis, below(m, 4), GD_END, 1 + below(m, 2));
    case 3:
        return gd_flip(x, GD_AXES(axis));
    case 4:
        return s.rank < 4 ? gd_unsqueeze(x, below(m, s.rank + 1)) : NULL;
    default:
        if (s.dim[axis] != 1)
            return NULL;
        s.dim[axis] = 3;
        return gd_broadcast_to(x, s);
    }
}

static gd_tensor *step_join(maker *m)
{
    gd_tensor *x = any(m);
    gd_shape s = gd_tensor_shape(x);
    if (s.rank == 0 || count_of(s) > 400)
        return NULL;
    int axis = below(m, s.rank);
    if (below(m, 2))
        return gd_concat((gd_tensor *[]){ x, gd_neg(gd_cast(x, GD_F32)), x }, 3, axis);
    gd_shape before = s, after = s;
    for (int i = 0; i < s.rank; i++) {
        before.dim[i] = below(m, 2);
        after.dim[i] = below(m, 2);
    }
    return gd_pad(x, before, after, 0.5);
}

static gd_tensor *step_matmul(maker *m)
{
    gd_tensor *x = any_float(m), *y = any_float(m);
    gd_shape a = gd_tensor_shape(x), b = gd_tensor_shape(y);
    if (a.rank < 2 || b.rank < 2 || a.dim[a.rank - 1] != b.dim[b.rank - 2])
        return a.rank == 2 ? gd_matmul(x, gd_transpose(x, 0, 1)) : NULL;
    gd_shape a_batch = a, b_batch = b;
    a_batch.rank -= 2;
    b_batch.rank -= 2;
    if (!broadcasts(a_batch, b_batch))
        return NULL;
    gd_tensor *r = gd_matmul(x, y);
    if (below(m, 2))
        r = gd_add(r, gd_arange(m->gd, 0, (double)b.dim[b.rank - 1], 1, GD_F32));
    return below(m, 2) ? gd_relu(r) : r;
}

static gd_tensor *step_axis(maker *m)
{
    gd_tensor *x = any_float(m);
    int rank = gd_tensor_shape(x).rank;
    if (rank == 0 || gd_tensor_count(x) == 0)
        return NULL;
    int axis = below(m, rank);
    switch (below(m, 4)) {
    case 0:
        return gd_softmax(x, axis);
    case 1:
        return gd_log_softmax(x, axis);
    case 2:
        return gd_cumsum(x, axis);
    default:
        return gd_gather(x, gd_argmax(x, axis, true), axis);
    }
}

/* Attention among rows, queries, keys and values cut out of one tensor, as layers do. */
static gd_tensor *step_attention(maker *m)
{
    gd_tensor *x = any_float(m), *qkv[3];
    gd_shape s = gd_tensor_shape(x), split = s;
    if (s.rank < 2 || s.rank > 3 || count_of(s) == 0 || count_of(s) > 400)
        return NULL;
    gd_tensor *all = gd_concat((gd_tensor *[]){ x, gd_tanh(x), gd_neg(x) }, 3, -1);
    int64_t width = s.dim[s.rank - 1], heads = below(m, 2) ? width : 1;
    split.dim[split.rank++ - 1] = heads;
    split.dim[s.rank] = width / heads;
    int first = below(m, 4) == 0;
    for (int i = 0; i < 3; i++) {
        int64_t at = (i + first) % 3 * width;
        qkv[i] = gd_transpose(gd_reshape(gd_slice(all, -1, at, at + width, 1), split), -3, -2);
    }
    gd_tensor *r = gd_attention(qkv[0], qkv[1], qkv[2], .causal = below(m, 2));
    r = gd_reshape(gd_transpose(r, -3, -2), s);
    return below(m, 3) ? r : gd_mul(r, gd_slice(all, -1, 0, width, 1));
}

static gd_tensor *step_random(maker *m)
{
    gd_shape shape = GD_SHAPE(1 + below(m, 3), 5);
    return below(m, 2) ? gd_uniform(m->gd, shape, -1, 1, GD_F32)
                       : gd_normal(m->gd, shape, 0, 1, GD_F64);
}

/* A state is changed, and read from then on with its new value. */
static gd_tensor *step_assign(maker *m)
{
    gd_tensor *state = m->program->states[below(m, STATES)], *x = any(m);
    gd_shape s = gd_tensor_shape(x), to = gd_tensor_shape(state);
    bool fits = s.rank <= to.rank && broadcasts(s, to);
    for (int i = 1; fits && i <= s.rank; i++)
        fits = s.dim[s.rank - i] == 1 || s.dim[s.rank - i] == to.dim[to.rank - i];
    if (!fits)
        return NULL;
    gd_assign(state, below(m, 2) ? x : gd_mul_scalar(gd_add(state, x), 0.5));
    /* Views of the old contents must not be read again: forget everything that may be one. */
    for (int i = 0; i < m->count; i++)
        m->values[i] = gd_add_scalar(gd_contiguous(m->values[i]), 0.0);
    return gd_add_scalar(state, 0.0);
}

static gd_tensor *(*const steps[])(maker *m) = {
    step_unary,  step_unary,  step_binary, step_binary, step_binary,   step_scalar, step_where,
    step_cast,   step_reduce, step_view,   step_view,   step_join,     step_matmul, step_axis,
    step_random, step_assign, step_rows,   step_rows,   step_attention
};

static void add_value(maker *m, gd_tensor *t)
{
    if (t && gd_tensor_count(t) <= 4096 && m->count < MOST_VALUES)
        m->values[m->count++] = t;
}

/* The program itself. */
static gd_tensor *body(void *user, gd_tensor *const *in)
{
    program *p = user;
    maker m = { .random = { p->seed, 0 }, .gd = gd_tensor_context(in[0]), .program = p };
    for (int i = 0; i < INPUTS; i++)
        add_value(&m, in[i]);
    for (int i = 0; i < STATES; i++)
        add_value(&m, gd_add_scalar(p->states[i], 0.0));
    for (int i = 0; i < p->steps && gd_error_code() == GD_OK; i++)
        add_value(&m, steps[below(&m, (int)(sizeof steps / sizeof *steps))](&m));
    /* Gradients by the float input of everything of a float dtype. */
    gd_tensor *total = gd_sum(gd_mul(in[0], in[0]), GD_ALL_AXES, false);
    for (int i = 0; i < m.count; i++)
        if (gd_requires_grad(m.values[i]))
            total = gd_add(total, gd_sum(gd_cast(m.values[i], GD_F32), GD_ALL_AXES, false));
    gd_tensor *x = in[0], *g = NULL;
    if (gd_requires_grad(x) && gd_grad(&total, NULL, 1, &x, &g, 1) != GD_OK)
        return NULL;
    /* One result that holds everything: a cast to f64 keeps the bits of any number apart. */
    gd_tensor *parts[MOST_VALUES + 1] = { gd_cast(gd_reshape(g ? g : total, GD_SHAPE(-1)),
                                                  GD_F64) };
    for (int i = 0; i < m.count; i++)
        parts[i + 1] = gd_cast(gd_reshape(m.values[i], GD_SHAPE(-1)), GD_F64);
    return gd_concat(parts, m.count + 1, 0);
}

/* ---- running a program ---- */

typedef struct record {
    unsigned char *bytes;
    size_t size, capacity;
    bool refused; /* a gradient */
    size_t arena; /* of the plan */
} record;

static void note(record *r, const gd_tensor *t)
{
    size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(gd_tensor_dtype(t));
    if (r->size + bytes > r->capacity) {
        r->capacity = 2 * (r->size + bytes);
        r->bytes = realloc(r->bytes, r->capacity);
    }
    if (gd_tensor_read(t, r->bytes + r->size, bytes) == GD_OK)
        r->size += bytes;
}

/* The gradient of a result by the first input; an error is cleared, and remembered. */
static void note_gradient(record *r, gd_tensor *result, gd_tensor *input)
{
    gd_tensor *g = NULL, *sum = gd_sum(result, GD_ALL_AXES, false);
    if (gd_requires_grad(sum) && gd_grad(&sum, NULL, 1, &input, &g, 1) != GD_OK) {
        r->refused = true;
        gd_error_clear();
    } else if (g) {
        note(r, g);
    }
}

/* How a program is run. */
typedef struct variant {
    gd_mode mode;
    int threads;
    const char *passes;
    size_t memory_limit;
    bool with_gradients;
} variant;

/* Everything the program leaves: its results, states, and position of the random stream. */
static record run(program p, variant v, gd_status *status)
{
    gd_mode mode = v.mode;
    int threads = v.threads;
    const char *passes = v.passes;
    setenv("GRADUS_PASSES", passes, 1);
    record r = { 0 };
    gd_error_clear();
    gd_context *gd = gd_open("cpu", .threads = threads, .seed = p.seed);
    p.states[0] = gd_normal(gd, GD_SHAPE(3, 5), 0, 1, GD_F32);
    p.states[1] = gd_normal(gd, GD_SHAPE(4), 0, 1, GD_F64);
    gd_tensor *in[INPUTS] = { gd_set_requires_grad(
                                  gd_detach(gd_normal(gd, GD_SHAPE(3, 5), 0, 1, GD_F32)), true),
                              gd_arange(gd, -2, 8, 1, GD_I64),
                              gd_transpose(gd_normal(gd, GD_SHAPE(5, 4), 0, 1, GD_F64), 0, 1) };
    gd_function *f = gd_compile(gd, body, &p, .mode = mode, .memory_limit = v.memory_limit,
                                .detached = !v.with_gradients);
    for (int call = 0; call < CALLS && gd_error_code() == GD_OK; call++) {
        gd_tensor *result = gd_call(f, INPUTS, in);
        if (result)
            note(&r, result);
        if (result && v.with_gradients)
            note_gradient(&r, result, in[0]);
    }
    r.arena = gd_function_stats(f).arena_bytes;
    for (int i = 0; i < STATES; i++)
        note(&r, p.states[i]);
    note(&r, gd_uniform(gd, GD_SHAPE(4), 0, 1, GD_F32));
    *status = gd_error_code();
    gd_close(gd);
    gd_error_clear();
    return r;
}

/* Whether variant v does what eager execution does; *arena: its memory. Refusing a limit, or the
 * gradient of what has been overwritten, is all right. */
static bool equals_eager(program p, variant v, size_t *arena)
{
    gd_status eager_status, status;
    record eager = run(p, (variant){ GD_MODE_EAGER, 1, "", 0, v.with_gradients }, &eager_status),
           compiled = run(p, v, &status);
    *arena = compiled.arena;
    /* A program that fails leaves eagerly what it did before, compiled nothing: only the code is
     * compared. */
    bool same = eager_status == status &&
                (status != GD_OK || (eager.size == compiled.size &&
                                     memcmp(eager.bytes, compiled.bytes, eager.size) == 0));
    same = same || eager.refused || compiled.refused || (v.memory_limit && status == GD_ERR_MEMORY);
    free(eager.bytes);
    free(compiled.bytes);
    return same;
}

static bool agrees(program p, int threads, const char *passes)
{
    size_t arena, less;
    variant plain = { GD_MODE_COMPILED, threads, passes, 0, false };
    if (!equals_eager(p, plain, &arena))
        return false;
    variant other = plain;
    if (p.seed % 4 == 0)
        other.mode = GD_MODE_LAZY;
    else if (p.seed % 4 == 1)
        other.memory_limit = arena > 64 ? arena - arena / 4 : 0;
    else
        other.with_gradients = true;
    return equals_eager(p, other, &less);
}

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void random_programs_agree(void **state)
{
    (void)state;
    static const char *const selections[] = { "",          "-fuse",           "-cse,-dead",
                                              "-forward",  "-epilogue,-fold", "-fuse,-forward,-cse",
                                              "-simplify", "-sink",           "-recompute",
                                              "-layout" };
    const long selection_count = sizeof selections / sizeof *selections;
    long cases = setting("GRADUS_FUZZ_CASES", 400), first = setting("GRADUS_FUZZ_SEED", 1);
    for (long i = 0; i < cases; i++) {
        program p = { .seed = (uint64_t)(first + i), .steps = 2 + (int)(i % MOST_STEPS) };
        const char *passes = i % 2 ? selections[i / 2 % selection_count] : "";
        int threads = i % 5 == 4 ? 2 : 1;
        if (agrees(p, threads, passes))
            continue;
        while (p.steps > 0) {
            program shorter = p;
            shorter.steps--;
            if (agrees(shorter, threads, passes))
                break;
            p = shorter;
        }
        fail_msg("seed %ld disagrees after %d steps (GRADUS_PASSES=%s, %d threads)", first + i,
                 p.steps, passes, threads);
    }
    unsetenv("GRADUS_PASSES");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_programs_agree) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
