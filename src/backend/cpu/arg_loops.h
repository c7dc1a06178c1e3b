/* backend/cpu/arg_loops.h: the loops of argmax or argmin of one dtype: a template, included by
 * arg_scan_isa.c once for each. It makes static functions <OP>_<TYPE>_<what> and their table, and
 * undefines TYPE:
 *
 *   OP, TYPE     as in argmax, f32
 *   EXTREME      the reducers of the value, by dtype
 *   BEATS(a, x)  x is more extreme than a
 */
#define NAME(what) JOIN(JOIN(OP, _), JOIN(TYPE, _##what))

static int64_t NAME(find)(const void *x, int64_t n, const void *value)
{
    const TYPE *element = x;
    TYPE wanted = *(const TYPE *)value;
    int64_t i = 0;
    if (!IS_NAN(wanted)) {
        /* Stretch by stretch: a loop that does not stop early is vectorised. */
        for (; i + 64 <= n; i += 64) {
            int found = 0, first = 64;
            for (int j = 0; j < 64; j++)
                found |= element[i + j] == wanted;
            if (!found)
                continue;
            for (int j = 0; j < 64; j++) {
                const int at = element[i + j] == wanted ? j : 64;
                first = at < first ? at : first;
            }
            return i + first;
        }
        while (i < n && element[i] != wanted)
            i++;
    } else {
        while (i < n && !IS_NAN(element[i]))
            i++;
    }
    return i;
}

static bool NAME(beats)(const void *later, const void *first)
{
    TYPE x = *(const TYPE *)later, a = *(const TYPE *)first;
    return BEATS(a, x);
}

static void NAME(columns)(void *best, int32_t *restrict index, const void *x, int64_t rows,
                          int64_t row_stride, int64_t n)
{
    TYPE *restrict a = best;
    const TYPE *restrict row = x;
    for (int64_t c = 0; c < n; c++) {
        a[c] = row[c];
        index[c] = 0;
    }
    for (int32_t r = 1; r < (int32_t)rows; r++) {
        row += row_stride;
        for (int64_t c = 0; c < n; c++) {
            bool taken = BEATS(a[c], row[c]);
            a[c] = taken ? row[c] : a[c];
            index[c] = taken ? r : index[c];
        }
    }
}

static void NAME(merge)(void *best, int64_t *restrict index, const void *block,
                        const int32_t *restrict block_index, int64_t first_row, int64_t n)
{
    TYPE *restrict a = best;
    const TYPE *restrict x = block;
    for (int64_t c = 0; c < n; c++) {
        bool taken = BEATS(a[c], x[c]);
        a[c] = taken ? x[c] : a[c];
        index[c] = taken ? first_row + block_index[c] : index[c];
    }
}

static gd_status NAME(kernel)(const gd_kernel_call *call)
{
    const gd_arg_reducer reducer = { .extreme = EXTREME[JOIN(DTYPE_, TYPE)],
                                     .find = NAME(find),
                                     .beats = NAME(beats),
                                     .columns = NAME(columns),
                                     .merge = NAME(merge) };
    return gd_arg_reduce_run(call, &reducer);
}

#undef NAME
#undef TYPE
