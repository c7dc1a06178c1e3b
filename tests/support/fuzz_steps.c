/* tests/support/fuzz_steps.c: what a program is (fuzz_draw, fuzz_body), and the steps that draw
 * rows of op_rows.h: every op and function there is, by itself. */
#include "support/fuzz.h"

#include <gradus/compile.h>

#include "support/tensors.h"

#include <stdarg.h>

enum { FEW_ELEMENTS = 400, MOST_ELEMENTS = 4096, MOST_LARGE = 1 << 17, TRIES = 6 };

/* The streams of a program: of its steps, from 0 on, and of what else is drawn. */
enum { OF_PROGRAM = 32, OF_BLOCKS = 64, OF_KEEPING = 128, OF_TOTAL = 192 };

const char *const fuzz_option_names[FUZZ_OPTIONS] = {
    "gradient",  "second gradient", "train", "results", "keep all",
    "2 threads", "called twice",    "lazy",  "limit",   "history"
};

/* ---- drawing ---- */

static gd_random stream(uint64_t seed, int part)
{
    return (gd_random){ seed << 8 | (uint64_t)part, 0 };
}

int fuzz_below(fuzz_maker *m, int bound)
{
    return (int)gd_random_below(&m->random, (uint64_t)bound);
}

fuzz_program fuzz_draw(uint64_t seed, int passes)
{
    fuzz_maker m = { .random = stream(seed, OF_PROGRAM) };
    fuzz_program p = { .seed = seed, .options = (unsigned)FUZZ_LAZY << fuzz_below(&m, 4) };
    p.options &= (1u << FUZZ_OPTIONS) - 1; /* one of four is run once only */
    static const struct {
        unsigned option;
        int of; /* one program of so many */
    } chances[] = { { FUZZ_GRADIENT, 2 }, { FUZZ_SECOND, 6 },   { FUZZ_TRAIN, 4 },
                    { FUZZ_RESULTS, 2 },  { FUZZ_KEEP_ALL, 2 }, { FUZZ_THREADS, 5 },
                    { FUZZ_TWICE, 2 } };
    for (int i = 0; i < COUNT(chances); i++)
        if (fuzz_below(&m, chances[i].of) == 0)
            p.options |= chances[i].option;
    if (fuzz_below(&m, 50) == 0)
        p.options = (p.options & ~(unsigned)FUZZ_SECOND) | FUZZ_LARGE | FUZZ_THREADS;
    int most = p.options & FUZZ_LARGE ? 4 : p.options & FUZZ_SECOND ? 8 : FUZZ_STEPS - 1;
    int steps = 2 + fuzz_below(&m, most);
    p.steps = (uint32_t)((1u << steps) - 1);
    /* A quarter of all programs with all passes, an eighth with none; else any. */
    const uint32_t all = (uint32_t)((1u << passes) - 1);
    const int kind = fuzz_below(&m, 8);
    p.off = gd_random_u32(&m.random);
    if (kind > 4)
        p.off &= gd_random_u32(&m.random);
    p.off &= kind < 2 ? 0 : all;
    if (kind == 2)
        p.off = all;
    return p;
}

void fuzz_say(fuzz_maker *m, const char *format, ...)
{
    if (!m->program->log)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(m->program->log, format, arguments);
    va_end(arguments);
    fflush(m->program->log); /* it may crash */
}

static void say_layout(fuzz_maker *m, const gd_tensor *t)
{
    char text[GD_SHAPE_TEXT];
    if (t)
        fuzz_say(m, " -> %s %s", gd_dtype_name(gd_tensor_dtype(t)),
                 gd_shape_text(gd_tensor_shape(t), text));
}

/* ---- values ---- */

bool fuzz_broadcast(gd_shape a, gd_shape b, gd_shape *r)
{
    *r = a.rank > b.rank ? a : b;
    for (int i = 1; i <= a.rank && i <= b.rank; i++) {
        int64_t x = a.dim[a.rank - i], y = b.dim[b.rank - i];
        if (x != y && x != 1 && y != 1)
            return false;
        r->dim[r->rank - i] = x == 1 ? y : x;
    }
    return true;
}

static bool is_too_large(const fuzz_maker *m, gd_shape shape)
{
    return shape_count(shape) > (m->program->options & FUZZ_LARGE ? MOST_LARGE : MOST_ELEMENTS);
}

static bool same_shape(gd_shape a, gd_shape b)
{
    bool same = a.rank == b.rank;
    for (int i = 0; same && i < a.rank; i++)
        same = a.dim[i] == b.dim[i];
    return same;
}

/* The place of a value, more often of one of the last few. */
static int draw_place(fuzz_maker *m)
{
    int last = m->count < TRIES ? m->count : TRIES;
    int at = fuzz_below(m, 2) ? m->count - 1 - fuzz_below(m, last) : fuzz_below(m, m->count);
    while (!m->values[at])
        at--; /* those before the steps' are all there */
    return at;
}

/* What stands at a place. A state is copied when it is read, for what views it would see how it
 * changes: by an op that stays, or by one that pass simplify leaves out. */
static gd_tensor *value_at(fuzz_maker *m, int at)
{
    gd_tensor *x = m->values[at];
    fuzz_say(m, " %%%d", at);
    if (m->block || at < FUZZ_INPUTS || at >= FUZZ_INPUTS + FUZZ_STATES)
        return x;
    return at % 2 ? gd_add_scalar(x, 0) : gd_mul_scalar(x, 1);
}

gd_tensor *fuzz_value(fuzz_maker *m)
{
    return value_at(m, draw_place(m));
}

/* The elements of x, again and again, as this shape. */
static gd_tensor *fit(fuzz_maker *m, gd_tensor *x, gd_shape shape)
{
    int64_t have = gd_tensor_count(x), want = shape_count(shape);
    if (same_shape(gd_tensor_shape(x), shape))
        return x;
    if (have == 0)
        return gd_full(m->gd, shape, 1, gd_tensor_dtype(x));
    x = gd_reshape(x, GD_SHAPE(-1));
    if (have < want) {
        int64_t times = (want + have - 1) / have;
        x = gd_reshape(gd_broadcast_to(x, GD_SHAPE(times, have)), GD_SHAPE(-1));
        have *= times;
    }
    int64_t from = fuzz_below(m, (int)(have - want + 1));
    return gd_reshape(gd_slice(x, 0, from, from + want, 1), shape);
}

/* The places of several values, of which the first that will do is taken, else the last. Drawn
 * together, so that what is drawn next does not depend on the choice. */
static gd_tensor *choose(fuzz_maker *m, bool (*will_do)(const gd_tensor *x, const void *what),
                         const void *what)
{
    int places[TRIES], chosen = 0;
    for (int i = 0; i < TRIES; i++)
        places[i] = draw_place(m);
    while (chosen < TRIES - 1 && !will_do(m->values[places[chosen]], what))
        chosen++;
    return value_at(m, places[chosen]);
}

static bool has_history(const gd_tensor *x, const void *what)
{
    (void)what;
    return gd_requires_grad(x);
}

gd_tensor *fuzz_tracked(fuzz_maker *m)
{
    return choose(m, has_history, NULL);
}

static bool has_rows(const gd_tensor *x, const void *what)
{
    (void)what;
    const int rank = gd_tensor_shape(x).rank;
    return rank > 1 && rank < 4 && gd_tensor_count(x) && gd_tensor_count(x) <= FEW_ELEMENTS;
}

gd_tensor *fuzz_rows(fuzz_maker *m)
{
    gd_tensor *t = choose(m, has_rows, NULL);
    t = has_rows(t, NULL) ? t : fit(m, t, GD_SHAPE(4, 6));
    return gd_dtype_is_float(gd_tensor_dtype(t)) ? t : gd_cast(t, GD_F32);
}

gd_tensor *fuzz_float(fuzz_maker *m)
{
    gd_tensor *t = fuzz_value(m);
    bool is_double = fuzz_below(m, 4) == 0;
    gd_dtype dtype = gd_tensor_dtype(t);
    return dtype == GD_F32 || dtype == GD_F64 ? t : gd_cast(t, is_double ? GD_F64 : GD_F32);
}

typedef struct form {
    gd_shape shape;
    gd_dtype dtype;
} form;

static bool has_form(const gd_tensor *x, const void *what)
{
    const form *f = what;
    return gd_tensor_dtype(x) == f->dtype && same_shape(gd_tensor_shape(x), f->shape);
}

gd_tensor *fuzz_as(fuzz_maker *m, gd_shape shape, gd_dtype dtype)
{
    gd_tensor *x = choose(m, has_form, &(form){ shape, dtype });
    return gd_cast(fit(m, x, shape), dtype);
}

/* x with its numbers in [low, high), as the row wants them. */
static gd_tensor *into_range(gd_tensor *x, gd_dtype dtype, const operand_spec *spec, bool finite)
{
    double low = spec->low, high = spec->high;
    if (dtype == GD_BOOL)
        return gd_gt(x, gd_scalar(gd_tensor_context(x), 0, gd_tensor_dtype(x)));
    if (!gd_dtype_is_float(dtype)) {
        low = dtype == GD_U8 && low < 0 ? 0 : low < 0 ? -(double)(int)-low : (double)(int)low;
        double width = high - low < 1 ? 1 : (double)(int)(high - low);
        bool is_float = gd_dtype_is_float(gd_tensor_dtype(x));
        x = gd_cast(is_float ? gd_mul_scalar(x, 7) : x, GD_I64);
        return gd_cast(gd_add_scalar(gd_mod_scalar(x, width), low), dtype);
    }
    x = gd_cast(x, dtype);
    if (finite)
        x = gd_where(gd_isfinite(x), x, gd_full(gd_tensor_context(x), GD_SCALAR, 0.5, dtype));
    return gd_add_scalar(gd_mul_scalar(gd_sigmoid(x), high - low), low);
}

/* The shape whose view in this layout has the shape wanted; and that view. */
static gd_shape below_view(gd_shape shape, layout_kind layout)
{
    gd_shape s = shape;
    if (layout == LAYOUT_TRANSPOSED)
        for (int a = 0; a < s.rank; a++)
            s.dim[a] = shape.dim[s.rank - 1 - a];
    if (layout == LAYOUT_SLICED)
        s.dim[s.rank - 1] *= 2;
    if (layout == LAYOUT_STRETCHED)
        s.dim[0] = 1;
    return s;
}

static gd_tensor *view(gd_tensor *x, gd_shape shape, layout_kind layout)
{
    gd_axes axes = { .count = shape.rank };
    switch (layout) {
    case LAYOUT_TRANSPOSED:
        for (int a = 0; a < axes.count; a++)
            axes.axis[a] = axes.count - 1 - a;
        return gd_permute(x, axes);
    case LAYOUT_SLICED:
        return gd_slice(x, -1, 1, GD_END, 2);
    case LAYOUT_REVERSED:
        return gd_flip(x, GD_ALL_AXES);
    case LAYOUT_STRETCHED:
        return gd_broadcast_to(x, shape);
    default:
        return x;
    }
}

/* x as an operand of a call. Gradients that meet in a tensor are added up in the order of the walk,
 * and a sum's order depends on how its operand lies; both may differ where a call is one node from
 * where it is inlined. So that this cannot be seen, one operand has a history, which nothing else
 * reads and whose gradient is made anew, and none has where second derivatives are taken. */
static gd_tensor *of_call(fuzz_maker *m, gd_tensor *x, int which)
{
    x = gd_mul_scalar(x, 1);
    return which == 0 && !(m->program->options & FUZZ_SECOND) ? x : gd_detach(x);
}

/* ---- rows ---- */

static gd_tensor *row_operand(fuzz_maker *m, const op_row *row, int which, gd_shape shape,
                              gd_dtype row_dtype)
{
    const operand_spec *spec = &row->operand[which];
    const gd_dtype dtype = operand_dtype(row, which, row_dtype);
    const bool strided = fuzz_below(m, 3) == 0, in_range = fuzz_below(m, 3) != 0,
               finite = fuzz_below(m, 2);
    layout_kind layout = (layout_kind)fuzz_below(m, LAYOUT_COUNT);
    if (!strided || shape.rank == 0 || shape_count(shape) == 0)
        layout = LAYOUT_CONTIGUOUS;
    const gd_shape under = below_view(shape, layout);
    gd_tensor *x = fit(m, choose(m, has_form, &(form){ under, dtype }), under);
    if (spec->kind == OPERAND_VALUE && !in_range && !(row->flags & OP_INTEGERS_ONLY)) {
        x = gd_cast(x, dtype);
    } else {
        x = into_range(x, dtype, spec, finite);
        fuzz_say(m, " in range");
    }
    if (layout != LAYOUT_CONTIGUOUS)
        fuzz_say(m, " %s", layout_names[layout]);
    if (row->id == GD_OP_call || row->id == GD_OP_call_result)
        x = of_call(m, x, which);
    bool differentiable = row->flags & OP_DIFFERENTIABLE &&
                          !(row->flags & OP_ONCE && m->program->options & FUZZ_SECOND);
    x = view(x, shape, layout);
    return differentiable ? x : gd_detach(x);
}

/* A dtype the row takes, half of the time f32. */
static gd_dtype row_dtype(fuzz_maker *m, const op_row *row)
{
    int dtype = fuzz_below(m, 2 * GD_DTYPE_COUNT);
    dtype = dtype < GD_DTYPE_COUNT ? dtype : GD_F32;
    while (!op_row_takes(row, (gd_dtype)dtype))
        dtype = (dtype + 1) % GD_DTYPE_COUNT;
    return (gd_dtype)dtype;
}

gd_tensor *fuzz_step_row(fuzz_maker *m)
{
    const op_row *row = op_rows[fuzz_below(m, op_row_count)];
    const int c = fuzz_below(m, row->case_count);
    const gd_dtype dtype = row_dtype(m, row);
    /* A checkpointed block may not read what it assigns. */
    if (m->block && !m->block->is_call && row->id == GD_OP_assign)
        return NULL;
    fuzz_say(m, "row %s, case %d, %s:", row->name, c, gd_dtype_name(dtype));
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    for (int i = 0; i < row->operands; i++)
        in[i] = row_operand(m, row, i, row->cases[c].shape[i], dtype);
    return row->build(m->gd, in, row->cases[c].p);
}

typedef struct partner {
    const fuzz_maker *m;
    const op_row *row;
    gd_shape shape;
} partner;

static bool is_partner(const gd_tensor *x, const void *what)
{
    const partner *p = what;
    gd_shape both;
    return op_row_takes(p->row, gd_tensor_dtype(x)) &&
           fuzz_broadcast(gd_tensor_shape(x), p->shape, &both) && !is_too_large(p->m, both);
}

/* An op or function of one element on values as they are, shapes broadcast, dtypes mixed. */
gd_tensor *fuzz_step_elementwise(fuzz_maker *m)
{
    const op_row *row = NULL;
    while (!row || !row->oracle) /* those have one, and those alone */
        row = op_rows[fuzz_below(m, op_row_count)];
    fuzz_say(m, "%s:", row->name);
    partner with = { m, row, GD_SCALAR };
    gd_tensor *in[OP_MAX_OPERANDS] = { NULL };
    for (int i = 0; i < row->operands; i++) {
        const bool in_range = fuzz_below(m, 3) == 0 || row->flags & OP_INTEGERS_ONLY;
        gd_tensor *x = choose(m, is_partner, &with);
        const operand_spec *spec = &row->operand[i];
        gd_dtype dtype = spec->kind == OPERAND_TRUTH ? GD_BOOL : gd_tensor_dtype(x);
        if (!op_row_takes(row, dtype))
            dtype = row->flags & OP_INTEGERS_ONLY ? GD_I32 : GD_F32;
        /* u64 and a signed integer are computed in f64, which such a row refuses */
        if (i > 0 && row->flags & OP_INTEGERS_ONLY &&
            gd_dtype_is_float(gd_dtype_promote(gd_tensor_dtype(in[0]), dtype)))
            dtype = gd_tensor_dtype(in[0]);
        gd_shape both;
        if (fuzz_broadcast(gd_tensor_shape(x), with.shape, &both) && !is_too_large(m, both))
            with.shape = both;
        else
            x = fit(m, x, with.shape);
        in[i] = in_range || spec->kind == OPERAND_TRUTH ? into_range(x, dtype, spec, false)
                                                        : gd_cast(x, dtype);
    }
    return row->build(m->gd, in, NULL);
}

/* ---- programs ---- */

static gd_tensor *step(fuzz_maker *m)
{
    int shares = 0;
    for (int i = 0; i < fuzz_pattern_count; i++)
        shares += fuzz_patterns[i].share;
    int at = fuzz_below(m, 2 * shares), i = 0; /* as many rows as patterns */
    if (at >= shares)
        return at % 2 ? fuzz_step_row(m) : fuzz_step_elementwise(m);
    while (at >= fuzz_patterns[i].share)
        at -= fuzz_patterns[i++].share;
    if (m->block && fuzz_patterns[i].has_effects)
        return NULL;
    fuzz_say(m, "%s:", fuzz_patterns[i].name);
    return fuzz_patterns[i].make(m);
}

static void add_value(fuzz_maker *m, gd_tensor *t)
{
    m->values[m->count++] = t && !is_too_large(m, gd_tensor_shape(t)) ? t : NULL;
}

/* A block's own steps, on its two operands. */
static gd_tensor *block_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const fuzz_block *b = user;
    fuzz_maker m = { .program = b->program, .gd = gd_tensor_context(in[0]), .block = b };
    add_value(&m, in[0]);
    add_value(&m, in[1]);
    m.random = stream(b->program->seed, OF_BLOCKS + b->step);
    gd_tensor *r = in[0];
    for (int i = 1 + fuzz_below(&m, 3); i > 0 && gd_error_code() == GD_OK; i--) {
        fuzz_say(&m, "\n        %%%d = ", m.count);
        add_value(&m, step(&m));
        r = m.values[m.count - 1] ? m.values[m.count - 1] : r;
        say_layout(&m, m.values[m.count - 1]);
    }
    return gd_error_code() == GD_OK ? gd_add_scalar(r, 0) : NULL;
}

gd_tensor *fuzz_step_block(fuzz_maker *m)
{
    fuzz_block *b = &m->program->blocks[m->step];
    *b = (fuzz_block){ m->program, m->step, fuzz_below(m, 2) };
    fuzz_say(m, b->is_call ? " call" : " checkpoint");
    gd_tensor *in[2] = { fuzz_value(m) };
    in[1] = fuzz_value(m);
    if (!b->is_call)
        return gd_checkpoint(block_body, b, 2, in);
    for (int i = 0; i < 2; i++)
        in[i] = of_call(m, in[i], i);
    gd_function *f = gd_compile(m->gd, block_body, b);
    return f ? gd_call(f, 2, in) : NULL;
}

/* A number for the total that makes gradients differ from element to element. */
static gd_tensor *share_of_total(fuzz_maker *m, int i)
{
    gd_tensor *t = m->values[i];
    m->random = stream(m->program->seed, OF_TOTAL + i);
    if (fuzz_below(m, 2))
        t = gd_mul(t, gd_sigmoid(gd_detach(t)));
    return gd_sum(gd_cast(t, GD_F32), GD_ALL_AXES, false);
}

/* Gradients of the total by inputs and weights; by them all again; and the update. */
static int add_gradients(fuzz_maker *m, gd_tensor *total, gd_tensor **results)
{
    fuzz_program *p = m->program;
    enum { WANTED = 2 + FUZZ_WEIGHTS };
    gd_tensor *x[WANTED] = { m->values[0], m->values[3] }, *g[WANTED];
    for (int i = 0; i < FUZZ_WEIGHTS; i++)
        x[2 + i] = p->weights[i];
    if (gd_grad(1, &total, NULL, WANTED, x, g) != GD_OK)
        return 0;
    int count = 0;
    /* What has first derivatives only refuses gradients of these. */
    for (int i = 0; i < WANTED; i++)
        results[count++] = p->options & FUZZ_SECOND ? g[i] : gd_detach(g[i]);
    if (p->options & FUZZ_SECOND) {
        gd_tensor *slope = gd_scalar(m->gd, 0, GD_F64), *h[WANTED];
        for (int i = 0; i < WANTED; i++)
            slope = gd_add(slope, gd_sum(gd_mul(g[i], g[i]), GD_ALL_AXES, false));
        if (gd_requires_grad(slope) && gd_grad(1, &slope, NULL, WANTED, x, h) == GD_OK)
            for (int i = 0; i < WANTED; i++)
                results[count++] = h[i];
    }
    if (p->options & FUZZ_TRAIN)
        for (int i = 0; i < FUZZ_WEIGHTS; i++)
            gd_assign(x[2 + i], gd_sub(gd_detach(x[2 + i]), gd_mul_scalar(g[2 + i], 0.125)));
    return count;
}

enum { MOST_RESULTS = FUZZ_VALUES + 2 * (2 + FUZZ_WEIGHTS) + 1 };

/* Results as one tensor. A cast to f64 keeps the bits of any number apart, but for large i64.
 * Within a limit of memory their sums alone, for results themselves cannot be computed again. */
static gd_tensor *joined(gd_tensor **results, int count, bool as_sums)
{
    for (int i = 0; i < count; i++) {
        gd_tensor *x = gd_cast(results[i], GD_F64);
        results[i] = as_sums ? gd_sum(x, GD_ALL_AXES, false) : x;
        results[i] = gd_reshape(results[i], GD_SHAPE(gd_tensor_count(results[i])));
    }
    return gd_concat(count, results, 0);
}

gd_tensor *fuzz_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    fuzz_program *p = user;
    fuzz_maker m = { .program = p, .gd = gd_tensor_context(in[0]) };
    for (int i = 0; i < FUZZ_INPUTS; i++)
        add_value(&m, in[i]);
    for (int i = 0; i < FUZZ_STATES; i++)
        add_value(&m, p->states[i]);
    for (int i = 0; i < FUZZ_WEIGHTS; i++)
        /* What is changed at the end must not be seen through views. */
        add_value(&m, p->options & FUZZ_TRAIN ? gd_add_scalar(p->weights[i], 0) : p->weights[i]);
    gd_tensor *results[MOST_RESULTS], *total = gd_sum(gd_mul(in[0], in[0]), GD_ALL_AXES, false);
    for (m.step = 0; m.step < FUZZ_STEPS && gd_error_code() == GD_OK; m.step++) {
        if (!(p->steps >> m.step & 1)) {
            add_value(&m, NULL);
            continue;
        }
        fuzz_say(&m, "    %%%d = ", m.count);
        m.random = stream(p->seed, m.step);
        add_value(&m, step(&m));
        say_layout(&m, m.values[m.count - 1]);
        fuzz_say(&m, "\n");
    }
    if (gd_error_code() != GD_OK)
        return NULL;
    int n = 0;
    results[n++] = total;
    for (int i = FUZZ_FIRST; i < m.count; i++) {
        m.random = stream(p->seed, OF_KEEPING + i);
        bool keep = fuzz_below(&m, 2) || p->options & FUZZ_KEEP_ALL;
        if (!m.values[i] || !keep)
            continue;
        results[n++] = m.values[i];
        if (p->options & FUZZ_GRADIENT && gd_requires_grad(m.values[i]))
            total = gd_add(total, share_of_total(&m, i));
    }
    results[0] = total;
    if (p->options & FUZZ_GRADIENT)
        n += add_gradients(&m, total, results + n);
    if (gd_error_code() != GD_OK)
        return NULL;
    p->log = NULL; /* once is enough */
    if (!(p->options & FUZZ_RESULTS) || p->options & FUZZ_LIMIT)
        return joined(results, n, p->options & FUZZ_LIMIT);
    for (int i = 1; i < n; i++)
        gd_output(results[i]);
    return total;
}

void fuzz_place(fuzz_program *p, gd_context *gd, gd_tensor *in[FUZZ_INPUTS])
{
    const gd_shape first = p->options & FUZZ_LARGE ? GD_SHAPE(96, 517) : GD_SHAPE(3, 5);
    in[0] = gd_set_requires_grad(gd_detach(gd_normal(gd, first, 0, 1, GD_F32)), true);
    in[1] = gd_arange(gd, -2, 8, 1, GD_I64);
    in[2] = gd_transpose(gd_normal(gd, GD_SHAPE(5, 4), 0, 1, GD_F64), 0, 1);
    in[3] = gd_set_requires_grad(gd_detach(gd_normal(gd, GD_SHAPE(5, 7), 0, 1, GD_F64)), true);
    for (int i = 0; i < FUZZ_STATES - 1; i++)
        p->states[i] = gd_normal(gd, GD_SHAPE(5, 4), 0, 1, GD_F32);
    p->states[FUZZ_STATES - 1] = gd_normal(gd, GD_SHAPE(4), 0, 1, GD_F64);
    const gd_shape shapes[FUZZ_WEIGHTS] = { GD_SHAPE(5, 4), GD_SHAPE(4), GD_SHAPE(3, 2, 3, 3),
                                            GD_SHAPE(3) };
    for (int i = 0; i < FUZZ_WEIGHTS; i++)
        p->weights[i] =
            gd_set_requires_grad(gd_detach(gd_normal(gd, shapes[i], 0, 0.5, GD_F32)), true);
}
