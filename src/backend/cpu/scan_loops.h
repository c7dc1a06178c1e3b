/* backend/cpu/scan_loops.h: the loops of a running sum or product of one dtype: a template,
 * included by arg_scan_isa.c once for each. It makes static functions <OP>_<TYPE>_<what> and their
 * table, and undefines TYPE and ACC:
 *
 *   OP, TYPE, ACC   as in cumsum, i32, i64: elements of TYPE, results of ACC
 *   MERGE(a, x)     a combined with the later x
 */
#define NAME(what) JOIN(JOIN(OP, _), JOIN(TYPE, _##what))

/* One line alone waits for every addition; four side by side do not wait for each other. */
static void NAME(four_lines)(const TYPE *x, int64_t x_row_stride, int64_t x_stride, int64_t n,
                             ACC *restrict out, int64_t out_row_stride)
{
    ACC a = (ACC)x[0], b = (ACC)x[x_row_stride];
    ACC c = (ACC)x[2 * x_row_stride], d = (ACC)x[3 * x_row_stride];
    for (int64_t i = 0;;) {
        out[i] = a;
        out[i + out_row_stride] = b;
        out[i + 2 * out_row_stride] = c;
        out[i + 3 * out_row_stride] = d;
        if (++i == n)
            return;
        x += x_stride;
        a = MERGE(a, (ACC)x[0]);
        b = MERGE(b, (ACC)x[x_row_stride]);
        c = MERGE(c, (ACC)x[2 * x_row_stride]);
        d = MERGE(d, (ACC)x[3 * x_row_stride]);
    }
}

static void NAME(lines)(const void *x, int64_t x_row_stride, int64_t x_stride, int64_t n, void *out,
                        int64_t out_row_stride, int64_t rows)
{
    const TYPE *row = x;
    ACC *to = out;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        NAME(four_lines)
    (row + r * x_row_stride, x_row_stride, x_stride, n, to + r * out_row_stride, out_row_stride);
    for (; r < rows; r++) {
        const TYPE *from = row + r * x_row_stride;
        ACC *line = to + r * out_row_stride;
        ACC a = line[0] = (ACC)from[0];
        for (int64_t i = 1; i < n; i++) {
            a = MERGE(a, (ACC)from[i * x_stride]);
            line[i] = a;
        }
    }
}

static void NAME(step)(const void *before, const void *x, int64_t x_stride, void *out, int64_t n)
{
    const ACC *a = before;
    const TYPE *element = x;
    ACC *restrict to = out;
    if (!a)
        for (int64_t c = 0; c < n; c++)
            to[c] = (ACC)element[c * x_stride];
    else if (x_stride == 1)
        for (int64_t c = 0; c < n; c++)
            to[c] = MERGE(a[c], (ACC)element[c]);
    else
        for (int64_t c = 0; c < n; c++)
            to[c] = MERGE(a[c], (ACC)element[c * x_stride]);
}

static gd_status NAME(kernel)(const gd_kernel_call *call)
{
    const gd_scanner scanner = { .result = JOIN(DTYPE_, ACC),
                                 .in_size = sizeof(TYPE),
                                 .out_size = sizeof(ACC),
                                 .lines = NAME(lines),
                                 .step = NAME(step) };
    return gd_scan_run(call, &scanner);
}

#undef NAME
#undef TYPE
#undef ACC
