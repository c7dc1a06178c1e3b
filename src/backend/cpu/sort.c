/* backend/cpu/sort.c: argsort and searchsorted. Elements are compared as KEYS, unsigned numbers in
 * the same order, so one piece of code serves all dtypes. Nothing is allocated: a line is sorted in
 * the memory of its result, each entry the upper 32 bits of a key above its 32-bit index. The
 * entries differ, so any method gives the stable order. Start at sort_line().
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/iterate.h"
#include "base/threads.h"
#include "ops/attrs.h"

/* ---- keys ---- */

typedef struct sort_line {
    const void *x;
    int64_t stride, n;
    gd_dtype dtype;
    uint64_t flip; /* all bits of a key for falling order, else 0 */
} sort_line;

static int key_bits(gd_dtype dtype)
{
    return 8 * (int)gd_dtype_size(dtype);
}

/* Bits of a float as a number in the same order: negative ones count downward. */
static uint64_t float_key(uint64_t bits, int width)
{
    uint64_t sign = (uint64_t)1 << (width - 1), all = sign | (sign - 1);
    if (bits == sign) /* -0 */
        bits = 0;
    return bits & sign ? ~bits & all : bits | sign;
}

/* NaNs are above all numbers. */
static uint64_t key_at(const sort_line *line, int64_t i)
{
    int64_t at = i * line->stride;
    uint64_t key, bits;
    switch (line->dtype) {
    case GD_F32: {
        uint32_t word = ((const uint32_t __attribute__((may_alias)) *)line->x)[at];
        key = (word & 0x7fffffff) > 0x7f800000 ? UINT32_MAX : float_key(word, 32);
        break;
    }
    case GD_F64:
        bits = ((const uint64_t __attribute__((may_alias)) *)line->x)[at];
        key = (bits & INT64_MAX) > 0x7ff0000000000000 ? UINT64_MAX : float_key(bits, 64);
        break;
    case GD_F16:
        bits = ((const uint16_t *)line->x)[at];
        key = (bits & 0x7fff) > 0x7c00 ? UINT16_MAX : float_key(bits, 16);
        break;
    case GD_BF16:
        bits = ((const uint16_t *)line->x)[at];
        key = (bits & 0x7fff) > 0x7f80 ? UINT16_MAX : float_key(bits, 16);
        break;
    case GD_I8:
        key = ((const uint8_t *)line->x)[at] ^ 0x80u;
        break;
    case GD_I16:
        key = ((const uint16_t *)line->x)[at] ^ 0x8000u;
        break;
    case GD_U16:
        key = ((const uint16_t *)line->x)[at];
        break;
    case GD_U32:
        key = ((const uint32_t *)line->x)[at];
        break;
    case GD_U64:
        key = ((const uint64_t *)line->x)[at];
        break;
    case GD_I32:
        key = (uint32_t)((const int32_t *)line->x)[at] ^ 0x80000000u;
        break;
    case GD_I64:
        key = (uint64_t)((const int64_t *)line->x)[at] ^ (uint64_t)1 << 63;
        break;
    default:
        key = ((const uint8_t *)line->x)[at];
    }
    return key ^ line->flip;
}

/* ---- sorting entries ---- */

#define INSERTION_MOST 48

static void insertion_sort(uint64_t *v, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t entry = v[i];
        int64_t k = i;
        for (; k > 0 && v[k - 1] > entry; k--)
            v[k] = v[k - 1];
        v[k] = entry;
    }
}

/* In place by the byte at `shift`, then each bucket by the next lower one ("American flag sort",
 * McIlroy, Bostic, McIlroy 1993). */
static void radix_sort(uint64_t *v, int64_t n, int shift)
{
    if (n <= INSERTION_MOST) {
        insertion_sort(v, n);
        return;
    }
    int64_t next[256], end[256] = { 0 };
    for (int64_t i = 0; i < n; i++)
        end[v[i] >> shift & 255]++;
    for (int64_t b = 0, at = 0; b < 256; b++) {
        next[b] = at;
        at += end[b];
        end[b] = at;
    }
    for (int b = 0; b < 256; b++)
        while (next[b] < end[b]) {
            uint64_t entry = v[next[b]];
            for (int home; (home = (int)(entry >> shift & 255)) != b;) {
                uint64_t other = v[next[home]];
                v[next[home]++] = entry;
                entry = other;
            }
            v[next[b]++] = entry;
        }
    for (int b = 0; b < 256 && shift > 0; b++) {
        int64_t begin = b ? end[b - 1] : 0;
        if (end[b] - begin > 1)
            radix_sort(v + begin, end[b] - begin, shift - 8);
    }
}

/* ---- sorting indices, by keys looked up ---- */

static bool comes_before(const sort_line *line, int64_t a, int64_t b)
{
    uint64_t key_a = key_at(line, a), key_b = key_at(line, b);
    return key_a < key_b || (key_a == key_b && a < b);
}

/* heap[at] to where no child comes after it; the root is the last of all. */
static void sift_down(const sort_line *line, int64_t *heap, int64_t size, int64_t at)
{
    int64_t index = heap[at];
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && comes_before(line, heap[child], heap[child + 1]))
            child++;
        if (!comes_before(line, index, heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = index;
}

static void make_heap(const sort_line *line, int64_t *heap, int64_t size)
{
    for (int64_t i = size / 2; i-- > 0;)
        sift_down(line, heap, size, i);
}

static void unheap(const sort_line *line, int64_t *heap, int64_t size)
{
    while (size-- > 1) {
        int64_t last = heap[0];
        heap[0] = heap[size];
        heap[size] = last;
        sift_down(line, heap, size, 0);
    }
}

/* ---- lines ---- */

/* Whether any of a line's elements begin … end-1 may have a key below `worst`. Contiguous f32 has a
 * loop of its own: finding the first few of many spends most of its time there. */
static bool any_below(const sort_line *line, int64_t begin, int64_t end, uint64_t worst)
{
    if (line->dtype != GD_F32 || line->stride != 1)
        return true;
    const uint32_t __attribute__((may_alias)) *x = line->x;
    uint32_t flip = (uint32_t)line->flip, limit = (uint32_t)worst, any = 0;
    for (int64_t i = begin; i < end; i++) {
        uint32_t word = x[i] == 0x80000000u ? 0 : x[i];
        uint32_t key = word ^ (-(word >> 31) | 0x80000000u);
        key = (word & 0x7fffffffu) > 0x7f800000u ? UINT32_MAX : key;
        any |= (key ^ flip) < limit;
    }
    return any;
}

/* The first k of a line's order: of those seen, a heap keeps them. */
static void select_first(const sort_line *line, int64_t k, int64_t *out)
{
    if (k == 0)
        return;
    for (int64_t i = 0; i < k; i++)
        out[i] = i;
    make_heap(line, out, k);
    uint64_t worst = key_at(line, out[0]);
    for (int64_t block = k, end; block < line->n; block = end) {
        end = line->n - block < 64 ? line->n : block + 64;
        if (!any_below(line, block, end, worst))
            continue;
        for (int64_t i = block; i < end; i++)
            if (key_at(line, i) < worst) {
                out[0] = i;
                sift_down(line, out, k, 0);
                worst = key_at(line, out[0]);
            }
    }
    unheap(line, out, k);
}

/* All of a line's order. The keys, less the least of them, are shifted to fit into 32 bits; runs of
 * entries that this makes equal are sorted by the whole keys. */
static void sort_line_whole(const sort_line *line, int64_t *out)
{
    uint64_t *entry = (uint64_t *)out, least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < line->n; i++) {
        uint64_t key = key_at(line, i);
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    int drop = 0, shift = 0;
    while ((most - least) >> drop > UINT32_MAX)
        drop++;
    for (int64_t i = 0; i < line->n; i++)
        entry[i] = (key_at(line, i) - least) >> drop << 32 | (uint64_t)i;
    uint64_t largest = (most - least) >> drop << 32 | (uint64_t)(line->n - 1);
    while (largest >> shift > 255)
        shift += 8;
    radix_sort(entry, line->n, shift);
    for (int64_t begin = 0, end; begin < line->n; begin = end) {
        uint64_t key = entry[begin] >> 32;
        for (end = begin; end < line->n && entry[end] >> 32 == key; end++)
            out[end] = (int64_t)(entry[end] & UINT32_MAX);
        if (drop > 0 && end - begin > 1) {
            make_heap(line, out + begin, end - begin);
            unheap(line, out + begin, end - begin);
        }
    }
}

typedef struct sort_job {
    gd_nest lines; /* operand 0: x */
    const char *x;
    int64_t *out;
    int64_t count;
    sort_line line;
} sort_job;

static void sort_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const sort_job *job = context;
    gd_cursor cursor = gd_cursor_at(&job->lines, begin);
    for (int64_t i = begin; i < end; i++, gd_cursor_next(&cursor)) {
        sort_line line = job->line;
        line.x = job->x + cursor.at[0] * (int64_t)gd_dtype_size(line.dtype);
        int64_t *out = job->out + i * job->count;
        if (job->count < line.n)
            select_first(&line, job->count, out);
        else
            sort_line_whole(&line, out);
    }
}

/* x [.., n] -> i64 [.., count] */
static gd_status argsort_kernel(const gd_kernel_call *call)
{
    const gd_sort_attr *attr = call->attr;
    const gd_layout *x = call->in[0].layout;
    int last = x->rank - 1;
    sort_job job = { .lines = gd_nest_make(last, x->shape, x->stride, NULL, NULL),
                     .x = call->in[0].data,
                     .out = call->out.data,
                     .count = attr->count,
                     .line = { .stride = x->stride[last],
                               .n = x->shape[last],
                               .dtype = x->dtype,
                               .flip = attr->descending ? UINT64_MAX >> (64 - key_bits(x->dtype))
                                                        : 0 } };
    if (job.line.n > 0)
        gd_parallel_for(call->device->threads, gd_nest_count(&job.lines), 1 + 4096 / job.line.n,
                        sort_range, &job);
    return GD_OK;
}

/* ---- searchsorted ---- */

typedef struct search_job {
    gd_nest nest; /* operand 0: values */
    sort_line sorted, value;
    const char *values;
    int64_t *out;
    bool right;
} search_job;

static void search_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const search_job *job = context;
    sort_line value = job->value;
    gd_cursor cursor = gd_cursor_at(&job->nest, begin);
    for (int64_t i = begin; i < end; i++, gd_cursor_next(&cursor)) {
        value.x = job->values + cursor.at[0] * (int64_t)gd_dtype_size(value.dtype);
        uint64_t key = key_at(&value, 0);
        int64_t low = 0, high = job->sorted.n;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            uint64_t there = key_at(&job->sorted, middle);
            if (there < key || (job->right && there == key))
                low = middle + 1;
            else
                high = middle;
        }
        job->out[i] = low;
    }
}

/* sorted [n], values [..] -> i64 [..]: how many of sorted stand before each value */
static gd_status searchsorted_kernel(const gd_kernel_call *call)
{
    const gd_layout *sorted = call->in[0].layout, *values = call->in[1].layout;
    search_job job = {
        .nest = gd_nest_make(values->rank, values->shape, values->stride, NULL, NULL),
        .sorted = { call->in[0].data, sorted->stride[0], sorted->shape[0], sorted->dtype, 0 },
        .value = { NULL, 0, 1, values->dtype, 0 },
        .values = call->in[1].data,
        .out = call->out.data,
        .right = ((const gd_search_attr *)call->attr)->right
    };
    gd_parallel_for(call->device->threads, gd_nest_count(&job.nest), 2048, search_range, &job);
    return GD_OK;
}

void gd_cpu_register_sort(gd_kernel_fn *kernel)
{
    kernel[GD_OP_argsort] = argsort_kernel;
    kernel[GD_OP_searchsorted] = searchsorted_kernel;
}
