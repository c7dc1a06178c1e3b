/* tensor/format.c: arrays as text, character for character what NumPy 2.4 prints with its default
 * options: precision 8, 75 columns, more than 1000 elements summarised to 3 at each edge. Not a
 * number parser, and not for files.
 *
 * Start at gd_format_array. It walks the shown elements twice: survey() finds the common width and
 * whether exponents are needed, write_axis() prints. The rules are those of
 * numpy/_core/arrayprint.py; digits come from the C library, which rounds exactly, so the shortest
 * text that reads back as the same number is found by asking for one more digit until it does (what
 * Steele and White, "How to print floating-point numbers accurately", 1990, compute directly).
 */
#include "tensor/format.h"

#include "base/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRECISION  8 /* most digits after the point */
#define LINE_WIDTH 75
#define THRESHOLD  1000 /* arrays of more elements are summarised */
#define EDGE_ITEMS 3
#define MAX_DIGITS \
    40 /* 17 significant ones are enough for f64; fixed precision may ask for 8 + 8 */

/* ---- output: a bounded buffer that counts on past its end, and drops spaces at line ends ---- */

typedef struct writer {
    char *text;
    size_t size, length;
    size_t column;         /* characters on the present line, with pending spaces */
    size_t pending_spaces; /* written when something follows them on the line */
} writer;

static void put_raw(writer *w, char c)
{
    if (w->length + 1 < w->size)
        w->text[w->length] = c;
    w->length++;
}

static void put(writer *w, char c)
{
    if (c == '\n') {
        w->pending_spaces = w->column = 0;
        put_raw(w, c);
        return;
    }
    w->column++;
    if (c == ' ') {
        w->pending_spaces++;
        return;
    }
    for (; w->pending_spaces > 0; w->pending_spaces--)
        put_raw(w, ' ');
    put_raw(w, c);
}

static void put_text(writer *w, const char *text)
{
    while (*text)
        put(w, *text++);
}

static void put_spaces(writer *w, size_t count)
{
    while (count-- > 0)
        put(w, ' ');
}

/* ---- decimal digits ---- */

/* d.ddd * 10^exponent, without sign; the digits are characters. */
typedef struct decimal {
    int count;
    int exponent;
    char digit[MAX_DIGITS];
} decimal;

/* The magnitude to `count` significant digits, rounded exactly (ties to even). Reads digits alone,
 * so that the locale's decimal point does not matter. */
static decimal round_to(double magnitude, int count)
{
    char text[MAX_DIGITS + 24];
    decimal d = { 0 };
    snprintf(text, sizeof text, "%.*e", count - 1, magnitude);
    const char *at = text;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            d.digit[d.count++] = *at;
    d.exponent = (int)strtol(at + 1, NULL, 10);
    return d;
}

/* The next larger decimal of as many digits. */
static decimal step_up(decimal d)
{
    int i = d.count - 1;
    while (i >= 0 && d.digit[i] == '9')
        d.digit[i--] = '0';
    if (i >= 0) {
        d.digit[i]++;
    } else {
        d.digit[0] = '1';
        d.exponent++;
    }
    return d;
}

static bool reads_as(const decimal *d, double magnitude, gd_dtype dtype)
{
    char text[MAX_DIGITS + 24];
    memcpy(text, d->digit, (size_t)d->count);
    snprintf(text + d->count, sizeof text - (size_t)d->count, "e%d", d->exponent - d->count + 1);
    if (dtype == GD_F64)
        return strtod(text, NULL) == magnitude;
    float value = strtof(text, NULL);
    if (dtype == GD_F16)
        value = gd_f16_to_f32(gd_f32_to_f16(value));
    else if (dtype == GD_BF16)
        value = gd_bf16_to_f32(gd_f32_to_bf16(value));
    return value == (float)magnitude;
}

/* The fewest digits that read back as the same number of that dtype. The second attempt is for
 * powers of two, whose lower neighbour is nearer than the upper: there the number above may read
 * back where the closest one, below, does not. */
static decimal shortest(double magnitude, gd_dtype dtype)
{
    for (int count = 1; count < 17; count++) {
        decimal d = round_to(magnitude, count);
        if (reads_as(&d, magnitude, dtype))
            return d;
        d = step_up(d);
        if (reads_as(&d, magnitude, dtype))
            return d;
    }
    return round_to(magnitude, 17);
}

static void trim_zeros(decimal *d)
{
    while (d->count > 1 && d->digit[d->count - 1] == '0')
        d->count--;
}

/* Digits after the point in positional notation. */
static int fraction_digits(const decimal *d)
{
    int n = d->count - 1 - d->exponent;
    return n > 0 ? n : 0;
}

/* For positional notation: shortest, with at most PRECISION digits after the point. */
static decimal positional(double magnitude, gd_dtype dtype)
{
    decimal d = shortest(magnitude, dtype);
    if (fraction_digits(&d) > PRECISION)
        d = round_to(magnitude, d.exponent + 1 + PRECISION);
    trim_zeros(&d);
    return d;
}

/* For scientific notation: shortest, with at most PRECISION digits after the point. */
static decimal scientific(double magnitude, gd_dtype dtype)
{
    decimal d = shortest(magnitude, dtype);
    if (d.count > PRECISION + 1)
        d = round_to(magnitude, PRECISION + 1);
    trim_zeros(&d);
    return d;
}

/* ---- one element ---- */

/* How the elements of one array are printed: what they have in common. */
typedef struct style {
    gd_dtype dtype;
    bool use_exponent;
    int left;            /* floats: width up to the point; others: whole width */
    int right;           /* floats: width after the point */
    int fraction;        /* with exponent: digits after the point */
    int exponent_digits; /* with exponent: at least so many */
} style;

static double read_float(gd_dtype dtype, const void *at)
{
    uint16_t half;
    float single;
    double value;
    switch (dtype) {
    case GD_F16:
        memcpy(&half, at, sizeof half);
        return gd_f16_to_f32(half);
    case GD_BF16:
        memcpy(&half, at, sizeof half);
        return gd_bf16_to_f32(half);
    case GD_F32:
        memcpy(&single, at, sizeof single);
        return single;
    default:
        memcpy(&value, at, sizeof value);
        return value;
    }
}

/* Of a u64 the bits. */
static int64_t read_integer(gd_dtype dtype, const void *at)
{
    int8_t i8;
    int16_t i16;
    uint16_t u16;
    uint32_t u32;
    int32_t narrow;
    int64_t wide;
    switch (dtype) {
    case GD_I8:
        memcpy(&i8, at, sizeof i8);
        return i8;
    case GD_I16:
        memcpy(&i16, at, sizeof i16);
        return i16;
    case GD_U16:
        memcpy(&u16, at, sizeof u16);
        return u16;
    case GD_U32:
        memcpy(&u32, at, sizeof u32);
        return u32;
    case GD_I32:
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    case GD_I64:
    case GD_U64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    default:
        return *(const unsigned char *)at;
    }
}

static void put_positional(writer *w, const decimal *d, bool negative, const style *s)
{
    int whole = d->exponent >= 0 ? d->exponent + 1 : 1;
    put_spaces(w, (size_t)(s->left > whole + negative ? s->left - whole - negative : 0));
    if (negative)
        put(w, '-');
    int at = d->exponent < 0
                 ? d->exponent
                 : 0; /* digit[i] stands at position i; before it and after it lie zeros */
    for (int i = 0; i < whole; i++, at++)
        put(w, at >= 0 && at < d->count ? d->digit[at] : '0');
    put(w, '.');
    int fraction = fraction_digits(d);
    for (int i = 0; i < fraction; i++, at++)
        put(w, at >= 0 && at < d->count ? d->digit[at] : '0');
    put_spaces(w, (size_t)(s->right > fraction ? s->right - fraction : 0));
}

static void put_scientific(writer *w, const decimal *d, bool negative, const style *s)
{
    char exponent[16];
    put_spaces(w, (size_t)(s->left > 1 + negative ? s->left - 1 - negative : 0));
    if (negative)
        put(w, '-');
    put(w, d->digit[0]);
    put(w, '.');
    for (int i = 1; i <= s->fraction; i++)
        put(w, i < d->count ? d->digit[i] : '0');
    snprintf(exponent, sizeof exponent, "e%c%0*d", d->exponent < 0 ? '-' : '+', s->exponent_digits,
             abs(d->exponent));
    put_text(w, exponent);
}

/* The text of an infinity or NaN. */
static const char *name_of(double value)
{
    return isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

static void put_float(writer *w, double value, const style *s)
{
    bool negative = signbit(value);
    double magnitude = fabs(value);
    if (!isfinite(value)) {
        const char *name = name_of(value);
        int width = s->left + s->right + 1;
        put_spaces(w, (size_t)(width - (int)strlen(name)));
        put_text(w, name);
    } else if (s->use_exponent) {
        /* Past the shortest digits NumPy goes on with the exact value: 1e-5f beside 1.2345679e-5f
         * is 9.9999997e-06. */
        decimal d = scientific(magnitude, s->dtype);
        if (d.count < s->fraction + 1)
            d = round_to(magnitude, s->fraction + 1);
        put_scientific(w, &d, negative, s);
    } else {
        decimal d = positional(magnitude, s->dtype);
        put_positional(w, &d, negative, s);
    }
}

static void put_element(writer *w, const void *at, const style *s)
{
    char text[32];
    if (gd_dtype_is_float(s->dtype))
        put_float(w, read_float(s->dtype, at), s);
    else if (s->dtype == GD_BOOL)
        put_text(w, *(const unsigned char *)at ? (s->left ? " True" : "True") : "False");
    else {
        int64_t value = read_integer(s->dtype, at);
        if (s->dtype == GD_U64)
            snprintf(text, sizeof text, "%*" PRIu64, s->left, (uint64_t)value);
        else
            snprintf(text, sizeof text, "%*" PRId64, s->left, value);
        put_text(w, text);
    }
}

/* ---- the shown part of an array ---- */

typedef struct array {
    const gd_layout *layout;
    bool summarised;
} array;

static bool is_cut(const array *a, int axis)
{
    return a->summarised && a->layout->shape[axis] > 2 * EDGE_ITEMS;
}

static const void *step(const array *a, int axis, const void *data, int64_t index)
{
    int64_t bytes = index * a->layout->stride[axis] * (int64_t)gd_dtype_size(a->layout->dtype);
    return (const char *)data + bytes;
}

/* The index shown after `i`: passes over the hidden middle. */
static int64_t next_shown(const array *a, int axis, int64_t i)
{
    return is_cut(a, axis) && i + 1 == EDGE_ITEMS ? a->layout->shape[axis] - EDGE_ITEMS : i + 1;
}

typedef void (*visitor)(void *context, const void *element);

/* NOLINTNEXTLINE(misc-no-recursion): no deeper than the rank */
static void visit(const array *a, int axis, const void *data, visitor fn, void *context)
{
    if (axis == a->layout->rank) {
        fn(context, data);
        return;
    }
    for (int64_t i = 0; i < a->layout->shape[axis]; i = next_shown(a, axis, i))
        visit(a, axis + 1, step(a, axis, data, i), fn, context);
}

/* ---- survey: widths ---- */

typedef struct extremes {
    gd_dtype dtype;
    double smallest, largest; /* finite, non-zero magnitudes; infinity and 0 when there are none */
    bool any_finite, any_other, any_negative_infinity;
    int64_t least, most;    /* integers … */
    uint64_t most_unsigned; /* … but u64 */
} extremes;

static void find_extremes(void *context, const void *element)
{
    extremes *e = context;
    if (!gd_dtype_is_float(e->dtype)) {
        int64_t value = read_integer(e->dtype, element);
        if (e->dtype == GD_U64) {
            e->most_unsigned =
                (uint64_t)value > e->most_unsigned ? (uint64_t)value : e->most_unsigned;
            return;
        }
        e->least = value < e->least ? value : e->least;
        e->most = value > e->most ? value : e->most;
        return;
    }
    double value = read_float(e->dtype, element);
    if (!isfinite(value)) {
        e->any_other = true;
        e->any_negative_infinity = e->any_negative_infinity || (isinf(value) && value < 0);
        return;
    }
    e->any_finite = true;
    if (value != 0) {
        e->smallest = fmin(e->smallest, fabs(value));
        e->largest = fmax(e->largest, fabs(value));
    }
}

/* From this magnitude on numbers take an exponent: 10^(decimal digits the dtype holds for certain),
 * at most 10^8. */
static double exponent_cutoff(gd_dtype dtype)
{
    switch (dtype) {
    case GD_F16:
        return 1e3;
    case GD_BF16:
        return 1e2;
    case GD_F32:
        return 1e6;
    default:
        return 1e8;
    }
}

/* a / b and 10^-4 in the array's own precision, as NumPy computes them. */
static double round_like(gd_dtype dtype, double value)
{
    if (dtype == GD_F64)
        return value;
    float single = (float)value;
    if (dtype == GD_F16)
        return gd_f16_to_f32(gd_f32_to_f16(single));
    if (dtype == GD_BF16)
        return gd_bf16_to_f32(gd_f32_to_bf16(single));
    return single;
}

static bool needs_exponent(const extremes *e)
{
    return e->largest > 0 &&
           (e->largest >= exponent_cutoff(e->dtype) || e->smallest < round_like(e->dtype, 0.0001) ||
            round_like(e->dtype, e->largest / e->smallest) > 1000);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static void widen(void *context, const void *element)
{
    style *s = context;
    double value = read_float(s->dtype, element);
    if (!isfinite(value))
        return;
    int sign = signbit(value) ? 1 : 0;
    if (s->use_exponent) {
        decimal d = scientific(fabs(value), s->dtype);
        s->left = larger(s->left, 1 + sign);
        s->fraction = larger(s->fraction, d.count - 1);
        s->exponent_digits = larger(s->exponent_digits, abs(d.exponent) >= 100 ? 3 : 2);
    } else {
        decimal d = positional(fabs(value), s->dtype);
        s->left = larger(s->left, (d.exponent > 0 ? d.exponent : 0) + 1 + sign);
        s->right = larger(s->right, fraction_digits(&d));
    }
}

static style survey(const array *a, const void *data)
{
    style s = { .dtype = a->layout->dtype };
    extremes e = { .dtype = s.dtype, .smallest = INFINITY, .least = INT64_MAX, .most = INT64_MIN };
    visit(a, 0, data, find_extremes, &e);
    if (s.dtype == GD_BOOL) {
        s.left = 5;
    } else if (s.dtype == GD_U64) {
        s.left = snprintf(NULL, 0, "%" PRIu64, e.most_unsigned);
    } else if (!gd_dtype_is_float(s.dtype)) {
        s.left =
            larger(snprintf(NULL, 0, "%" PRId64, e.least), snprintf(NULL, 0, "%" PRId64, e.most));
    } else {
        s.use_exponent = needs_exponent(&e);
        visit(a, 0, data, widen, &s);
        if (s.use_exponent)
            s.right = s.fraction + 2 + s.exponent_digits;
        int names = e.any_negative_infinity ? 4 : 3; /* "-inf", "nan" */
        if (e.any_other)
            s.left = larger(s.left, names - s.right - 1);
    }
    return s;
}

/* ---- printing ---- */

/* The width of every element is the same, but for bools in NumPy's " True". */
static size_t element_width(const style *s)
{
    return (size_t)(gd_dtype_is_float(s->dtype) ? s->left + 1 + s->right : s->left);
}

/* Begin a new line, indented by `indent`, where a word of `width` would pass the right edge; not
 * when that would not help. */
static void wrap(writer *w, size_t width, size_t edge, size_t indent)
{
    if (w->column + width > edge && w->column > indent) {
        put(w, '\n');
        put_spaces(w, indent);
    }
}

static void write_row(writer *w, const array *a, const void *data, const style *s)
{
    int axis = a->layout->rank - 1;
    size_t indent = (size_t)axis + 1, edge = LINE_WIDTH - (size_t)axis - 1;
    int64_t count = a->layout->shape[axis];
    for (int64_t i = 0, next; i < count; i = next) {
        wrap(w, element_width(s), edge, indent);
        put_element(w, step(a, axis, data, i), s);
        next = next_shown(a, axis, i);
        if (next > i + 1) {
            put(w, ' ');
            wrap(w, 3, edge, indent);
            put_text(w, "...");
        }
        if (next < count)
            put(w, ' ');
    }
}

/* NOLINTNEXTLINE(misc-no-recursion): no deeper than the rank */
static void write_axis(writer *w, const array *a, int axis, const void *data, const style *s)
{
    int inner = a->layout->rank - 1 - axis;
    put(w, '[');
    if (inner == 0) {
        write_row(w, a, data, s);
        put(w, ']');
        return;
    }
    int64_t count = a->layout->shape[axis];
    for (int64_t i = 0, next; i < count; i = next) {
        write_axis(w, a, axis + 1, step(a, axis, data, i), s);
        next = next_shown(a, axis, i);
        for (int pass = next > i + 1 ? 0 : 1; pass < 2 && next < count;
             pass++) { /* "..." comes first */
            for (int line = 0; line < inner; line++)
                put(w, '\n');
            put_spaces(w, (size_t)axis + 1);
            if (pass == 0)
                put_text(w, "...");
        }
    }
    put(w, ']');
}

/* A number alone has its own rules: no padding, "1.0" where arrays have "1.", all digits, exponents
 * outside of [1e-4, cutoff). */
static void write_scalar(writer *w, gd_dtype dtype, const void *data)
{
    style s = { .dtype = dtype };
    if (!gd_dtype_is_float(dtype)) {
        put_element(w, data, &s);
        return;
    }
    double value = read_float(dtype, data);
    if (!isfinite(value)) {
        put_text(w, name_of(value));
        return;
    }
    double magnitude = fabs(value);
    double cutoff = dtype == GD_F64 ? 1e16 : exponent_cutoff(dtype);
    decimal d = shortest(magnitude, dtype);
    trim_zeros(&d);
    if (magnitude == 0 || (magnitude >= 1e-4 && magnitude < cutoff)) {
        put_positional(w, &d, signbit(value), &s);
        if (fraction_digits(&d) == 0)
            put(w, '0');
        return;
    }
    char exponent[16];
    if (value < 0)
        put(w, '-');
    for (int i = 0; i < d.count; i++) {
        if (i == 1)
            put(w, '.');
        put(w, d.digit[i]);
    }
    snprintf(exponent, sizeof exponent, "e%c%02d", d.exponent < 0 ? '-' : '+', abs(d.exponent));
    put_text(w, exponent);
}

size_t gd_format_array(const gd_layout *layout, const void *data, char *text, size_t size)
{
    writer w = { .text = text, .size = size };
    int64_t count = gd_layout_count(layout);
    array a = { .layout = layout, .summarised = count > THRESHOLD };
    if (count == 0) {
        put_text(&w, "[]");
    } else if (layout->rank == 0) {
        write_scalar(&w, layout->dtype, data);
    } else {
        style s = survey(&a, data);
        write_axis(&w, &a, 0, data, &s);
    }
    if (size > 0)
        text[w.length < size ? w.length : size - 1] = '\0';
    return w.length;
}
