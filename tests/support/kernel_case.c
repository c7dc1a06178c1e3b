/* tests/support/kernel_case.c: see kernel_case.h: drawing, operands, and what a person can paste.
 */
#include "support/kernel_case.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

/* ---- drawing ---- */

int64_t kernel_below(numbers *n, int64_t bound)
{
    return (int64_t)(numbers_next(n) % (uint64_t)bound);
}

int64_t kernel_between(numbers *n, int64_t low, int64_t high)
{
    return low + kernel_below(n, high - low + 1);
}

bool kernel_one_in(numbers *n, int64_t count)
{
    return kernel_below(n, count) == 0;
}

int64_t kernel_size(numbers *n, int64_t most)
{
    static const int64_t edges[] = { 8, 16, 32, 48, 64, 128, 256, 512, 1024 };
    int64_t size = 0;
    switch (kernel_below(n, 8)) {
    case 0:
        size = 1;
        break;
    case 1:
    case 2:
    case 3:
        size = kernel_between(n, 1, 6);
        break;
    case 4:
    case 5:
        size = kernel_between(n, 2, 24);
        break;
    case 6:
        size = edges[kernel_below(n, COUNT(edges))] + kernel_between(n, -1, 1);
        break;
    default:
        size = kernel_between(n, 1, most);
        break;
    }
    return size > most ? kernel_between(n, 1, most) : size;
}

void kernel_limit(fuzz_case *c, const int *fields, int count, double (*cost)(const fuzz_case *c),
                  double budget)
{
    while (cost(c) > budget) {
        int largest = fields[0];
        for (int i = 1; i < count; i++)
            if (c->field[fields[i]] > c->field[largest])
                largest = fields[i];
        if (c->field[largest] <= 1)
            return;
        c->field[largest] = (c->field[largest] + 1) / 2;
    }
}

const kernel_path kernel_paths[KERNEL_PATHS] = {
    { "", "", "" },
    { "packed", "packed", "256K" },
    { "direct", "direct", "512K" },
    { "direct", "rows", "256K" },
    { "images", "transposed", "1M" },
    { "narrow", "direct", "256K" },
};

static void draw_common(fuzz_case *c, uint64_t seed, numbers *n)
{
    static const gd_dtype rare[] = { GD_I32, GD_I64, GD_U8, GD_BOOL };
    c->field[K_NUMBERS] = (int64_t)seed;
    const int64_t values = kernel_below(n, 10);
    c->field[K_VALUES] = values < 5 ? VALUES_WHOLE : values < 9 ? VALUES_REAL : VALUES_SPECIAL;
    for (int i = K_DTYPE; i <= K_OTHER_DTYPE; i++) {
        const int64_t kind = kernel_below(n, 20);
        c->field[i] = kind < 13   ? GD_F32
                      : kind < 16 ? GD_F64
                      : kind < 17 ? GD_F16
                      : kind < 18 ? GD_BF16
                                  : rare[kernel_below(n, COUNT(rare))];
    }
    if (!kernel_one_in(n, 8))
        c->field[K_OTHER_DTYPE] = c->field[K_DTYPE];
    c->field[K_GRADIENT] = !kernel_one_in(n, 5);
    c->field[K_COMPILED] = kernel_one_in(n, 4);
    c->field[K_PATH] = kernel_below(n, KERNEL_PATHS);
    for (int i = 0; i < KERNEL_OPERANDS; i++)
        c->field[K_LAYOUT + i] = kernel_one_in(n, 3) ? kernel_below(n, KERNEL_LAYOUTS) : 0;
    c->field[K_WRONG] = kernel_one_in(n, 25) ? kernel_between(n, 1, 8) : 0;
}

void kernel_draw(const kernel_family *f, uint64_t seed, fuzz_case *c)
{
    for (int i = 0; i < f->fields; i++)
        c->field[i] = f->field[i].simplest;
    numbers n = { seed * UINT64_C(0x9e3779b97f4a7c15) };
    draw_common(c, seed, &n);
    f->draw(c, &n);
}

/* ---- as C ---- */

void kernel_say(const kernel_call *k, const char *format, ...)
{
    if (!k->log)
        return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(k->log, format, arguments);
    va_end(arguments);
}

void kernel_say_option(const kernel_call *k, const char *name, int64_t value)
{
    if (value)
        kernel_say(k, ", .%s = %lld", name, (long long)value);
}

void kernel_say_shape(const kernel_call *k, const char *name, gd_shape shape)
{
    if (shape.rank == 0)
        return;
    kernel_say(k, name[0] ? ", .%s = GD_SHAPE(" : ", GD_SHAPE(%s", name);
    for (int i = 0; i < shape.rank; i++)
        kernel_say(k, "%lld%s", (long long)shape.dim[i], i + 1 < shape.rank ? ", " : ")");
}

static const char *const dtype_words[GD_DTYPE_COUNT] = { "GD_F32", "GD_F64",  "GD_I32", "GD_I64",
                                                         "GD_U8",  "GD_BOOL", "GD_F16", "GD_BF16",
                                                         "GD_I8",  "GD_I16",  "GD_U16", "GD_U32",
                                                         "GD_U64" };

static void say_shape(FILE *log, gd_shape shape)
{
    fprintf(log, shape.rank ? "GD_SHAPE(" : "GD_SCALAR");
    for (int i = 0; i < shape.rank; i++)
        fprintf(log, "%lld%s", (long long)shape.dim[i], i + 1 < shape.rank ? ", " : ")");
}

static void say_numbers(FILE *log, const double *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(value[i]))
            fprintf(log, "%s%.17g", i ? ", " : "", value[i]);
        else
            fprintf(log, "%s%s", i ? ", " : "",
                    isnan(value[i]) ? "NAN"
                    : value[i] < 0  ? "-INFINITY"
                                    : "INFINITY");
    }
}

/* What holds an operand's elements: the numbers of a few, else any of the same kind. */
static void say_base(FILE *log, gd_shape shape, gd_dtype dtype, const double *value, int64_t count,
                     int64_t is_whole)
{
    if (count <= 64) {
        fprintf(log, "gd_cast(gd_from_host(gd, ");
        say_shape(log, shape);
        fprintf(log, ", GD_F64, (double[]){ ");
        if (count)
            say_numbers(log, value, count);
        fprintf(log, count ? " }), %s)" : "0 }), %s)", dtype_words[dtype]);
        return;
    }
    fprintf(log, is_whole ? "gd_cast(gd_round(gd_uniform(gd, " : "gd_cast(gd_uniform(gd, ");
    say_shape(log, shape);
    fprintf(log, is_whole ? ", -8, 8, GD_F64)), %s)" : ", -1, 1, GD_F64), %s)", dtype_words[dtype]);
}

/* ---- numbers ---- */

static double draw_number(numbers *n, const fuzz_case *c, const kernel_operand *o)
{
    const double scale = o->scale > 0 ? o->scale : 1, real = numbers_uniform(n, -scale, scale);
    static const double special[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN };
    const bool is_float = gd_dtype_is_float(o->dtype);
    if (o->is_index)
        return (double)kernel_below(n, o->most + 1);
    if (o->dtype == GD_BOOL)
        return (double)kernel_below(n, 2);
    if (o->dtype == GD_U8)
        return (double)kernel_below(n, 9);
    if (!is_float || (c->field[K_VALUES] == VALUES_WHOLE && !o->is_real)) {
        const int64_t most = o->most ? o->most : 8;
        return (double)kernel_between(n, -most, most);
    }
    return c->field[K_VALUES] == VALUES_SPECIAL && kernel_one_in(n, 40)
               ? special[kernel_below(n, COUNT(special))]
               : real;
}

/* Element `at`, row-major, of base: where element `i` of the operand lies. */
typedef struct place {
    gd_shape base;
    int64_t count;
} place;

static place place_of(gd_shape shape, kernel_layout layout)
{
    place p = { .base = shape, .count = 1 };
    const int last = shape.rank - 1;
    if (layout == KERNEL_TRANSPOSED)
        for (int i = 0; i < shape.rank; i++)
            p.base.dim[i] = shape.dim[last - i];
    else if (layout == KERNEL_STEPPED)
        p.base.dim[last] = 2 * shape.dim[last] + 1;
    else if (layout == KERNEL_STRETCHED)
        p.base.dim[0] = 1;
    else if (layout == KERNEL_CUT)
        p.base.dim[last] = shape.dim[last] + 3;
    for (int i = 0; i < p.base.rank; i++)
        p.count *= p.base.dim[i];
    return p;
}

static int64_t base_index(const place *p, gd_shape shape, kernel_layout layout, int64_t i)
{
    const int last = shape.rank - 1;
    int64_t at[GD_MAX_RANK], flat = 0;
    if (layout == KERNEL_CONTIGUOUS)
        return i;
    for (int axis = last; axis >= 0; i /= shape.dim[axis], axis--)
        at[axis] = i % shape.dim[axis];
    for (int axis = 0; axis <= last; axis++) {
        int64_t index = at[layout == KERNEL_TRANSPOSED ? last - axis : axis];
        if (layout == KERNEL_REVERSED)
            index = shape.dim[axis] - 1 - index;
        else if (layout == KERNEL_STEPPED && axis == last)
            index = 2 * index + 1;
        else if (layout == KERNEL_CUT && axis == last)
            index += 2;
        else if (layout == KERNEL_STRETCHED && axis == 0)
            index = 0;
        flat = flat * p->base.dim[axis] + index;
    }
    return flat;
}

/* The view of base that is the operand. */
static gd_tensor *view_of(gd_tensor *base, gd_shape shape, kernel_layout layout)
{
    gd_axes order = { .count = shape.rank };
    for (int i = 0; i < shape.rank; i++)
        order.axis[i] = layout == KERNEL_TRANSPOSED ? shape.rank - 1 - i : i;
    switch (layout) {
    case KERNEL_TRANSPOSED:
        return gd_permute(base, order);
    case KERNEL_STEPPED:
        return gd_slice(base, -1, 1, GD_END, 2);
    case KERNEL_REVERSED:
        return gd_flip(base, order);
    case KERNEL_STRETCHED:
        return gd_broadcast_to(base, shape);
    case KERNEL_CUT:
        return gd_slice(base, -1, 2, -1, 1);
    default:
        return base;
    }
}

static void say_view(FILE *log, const char *name, gd_shape shape, kernel_layout layout)
{
    if (layout == KERNEL_CONTIGUOUS)
        return;
    fprintf(log, "    %s = ", name);
    if (layout == KERNEL_STEPPED)
        fprintf(log, "gd_slice(%s, -1, 1, GD_END, 2)", name);
    else if (layout == KERNEL_CUT)
        fprintf(log, "gd_slice(%s, -1, 2, -1, 1)", name);
    else if (layout == KERNEL_STRETCHED) {
        fprintf(log, "gd_broadcast_to(%s, ", name);
        say_shape(log, shape);
        fprintf(log, ")");
    } else {
        fprintf(log,
                layout == KERNEL_TRANSPOSED ? "gd_permute(%s, GD_AXES(" : "gd_flip(%s, GD_AXES(",
                name);
        for (int i = 0; i < shape.rank; i++)
            fprintf(log, "%s%d", i ? ", " : "",
                    layout == KERNEL_TRANSPOSED ? shape.rank - 1 - i : i);
        fprintf(log, "))");
    }
    fprintf(log, ";\n");
}

static gd_tensor *place_numbers(gd_context *gd, const fuzz_case *c, const kernel_operand *o,
                                kernel_layout layout, uint64_t stream, bool as_magnitude, FILE *log)
{
    numbers n = { (uint64_t)c->field[K_NUMBERS] * UINT64_C(0xd1342543de82ef95) + stream };
    if (o->shape.rank == 0 || (layout == KERNEL_STRETCHED && o->shape.dim[0] == 0))
        layout = KERNEL_CONTIGUOUS;
    const place p = place_of(o->shape, layout);
    const int64_t count = shape_count(o->shape);
    double *value = calloc((size_t)p.count + 1, sizeof *value);
    if (!value)
        abort();
    for (int64_t i = 0; i < p.count; i++)
        value[i] = gd_dtype_is_float(o->dtype) && !as_magnitude ? NAN : 1; /* between elements */
    for (int64_t i = 0; i < count; i++) {
        const double x = draw_number(&n, c, o);
        value[base_index(&p, o->shape, layout, i)] = as_magnitude && !o->keeps_signs ? fabs(x) : x;
    }
    gd_tensor *base = gd_from_host(gd, p.base, GD_F64, value);
    base = gd_cast(base, o->dtype);
    if (as_magnitude && !o->is_index)
        base = gd_cast(base, GD_F64);
    if (log) {
        fprintf(log, "    gd_tensor *%s = ", o->name);
        say_base(log, p.base, o->dtype, value, p.count, c->field[K_VALUES] == VALUES_WHOLE);
        fprintf(log, ";\n");
        say_view(log, o->name, o->shape, layout);
    }
    free(value);
    return view_of(base, o->shape, layout);
}

gd_tensor *kernel_place(gd_context *gd, const fuzz_case *c, const kernel_operand *o, int which,
                        bool as_magnitude, FILE *log)
{
    const kernel_layout layout = (kernel_layout)c->field[K_LAYOUT + which];
    gd_tensor *t = place_numbers(gd, c, o, layout, (uint64_t)which, as_magnitude, log);
    if (!c->field[K_GRADIENT] || o->is_index || !gd_dtype_is_float(o->dtype))
        return t;
    if (log)
        fprintf(log, "    %s = gd_set_requires_grad(gd_detach(%s), true);\n", o->name, o->name);
    return gd_set_requires_grad(gd_detach(t), true);
}

gd_tensor *kernel_seed(gd_context *gd, const fuzz_case *c, gd_shape shape, gd_dtype dtype,
                       bool as_magnitude, FILE *log)
{
    const kernel_operand seed = { .name = "seed", .shape = shape, .dtype = dtype };
    return place_numbers(gd, c, &seed, KERNEL_CONTIGUOUS, 1000, as_magnitude, log);
}
