/* backend/cpu/attention_isa.c: what attention does with a tile of scores between two matrix
 * products: exclude, take exponentials, drop, and the derivative of that. See attention.h.
 */
#include "backend/cpu/attention.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/simd_half.h"
#include "backend/cpu/vecmath.h"
#include "base/half.h"

#define KEYS  GD_ATTENTION_KEYS
#define LANES GD_ATTENTION_LANES
#define ROW   GD_ATTENTION_ROW

/* So many rows at a time: what is one number for each row is computed for all of them at once. */
#define GROUP LANES

/* Rows are handled in whole groups of LANES numbers; what lies behind the keys counts as excluded.
 */
static int padded(int64_t keys)
{
    return (int)((keys + LANES - 1) / LANES * LANES);
}

/* How many keys row i may see. */
static int64_t seen_by(const gd_attention_tile *t, int64_t i)
{
    int64_t seen = t->seen + i * t->seen_step;
    return seen < 0 ? 0 : seen < t->keys ? seen : t->keys;
}

/* What the mask adds to row i, -inf where it excludes. */
static void mask_row(const gd_attention_tile *t, int64_t i, int64_t n, float *add)
{
    int64_t step = t->mask_key;
    if (t->mask_is_bool) {
        const uint8_t *from = (const uint8_t *)t->mask + i * t->mask_row;
        if (step == 1)
            for (int64_t j = 0; j < n; j++)
                add[j] = from[j] ? 0.0f : -INFINITY;
        else
            for (int64_t j = 0; j < n; j++)
                add[j] = from[j * step] ? 0.0f : -INFINITY;
        return;
    }
    const float *from = (const float *)t->mask + i * t->mask_row;
    for (int64_t j = 0; j < n; j++)
        add[j] = from[j * step];
}

/* Makes row i ready: scores are its numbers times the result, up to `end`, which lies past all that
 * the row may see. What is excluded becomes -inf. */
static float scores(const gd_attention_tile *t, int64_t i, float *s, int *end)
{
    int n = (int)seen_by(t, i);
    float scale = t->scale;
    if (t->mask) {
        float add[KEYS];
        mask_row(t, i, n, add);
        for (int j = 0; j < n; j++)
            s[j] = add[j] == -INFINITY ? -INFINITY : s[j] * scale + add[j];
        scale = 1;
    } else if (scale == 0) { /* -inf times 0 would be no number */
        for (int j = 0; j < n; j++)
            s[j] *= scale;
        scale = 1;
    }
    *end = padded(n);
    for (int j = n; j < *end; j++)
        s[j] = scale < 0 ? INFINITY : -INFINITY;
    return scale;
}

/* lane[l]: the largest of every LANES-th score. NaN is passed over; it comes back through its
 * exponential. */
static void largest(const float *s, int end, float scale, float lane[LANES])
{
    vf32 most[LANES / VF32_LANES], by = vf32_set1(scale);
    GD_SIMD_UNROLL
    for (int v = 0; v < LANES / VF32_LANES; v++)
        most[v] = vf32_set1(-INFINITY);
    for (int j = 0; j < end; j += LANES) {
        GD_SIMD_UNROLL
        for (int v = 0; v < LANES / VF32_LANES; v++)
            most[v] = vf32_max(vf32_mul(vf32_load(s + j + v * VF32_LANES), by), most[v]);
    }
    GD_SIMD_UNROLL
    for (int v = 0; v < LANES / VF32_LANES; v++)
        vf32_store(lane + v * VF32_LANES, most[v]);
}

/* lane[l]: the sum of every LANES-th number. */
static void total(const float *s, int end, float lane[LANES])
{
    vf32 sum[LANES / VF32_LANES];
    GD_SIMD_UNROLL
    for (int v = 0; v < LANES / VF32_LANES; v++)
        sum[v] = vf32_zero();
    for (int j = 0; j < end; j += LANES) {
        GD_SIMD_UNROLL
        for (int v = 0; v < LANES / VF32_LANES; v++)
            sum[v] = vf32_add(sum[v], vf32_load(s + j + v * VF32_LANES));
    }
    GD_SIMD_UNROLL
    for (int v = 0; v < LANES / VF32_LANES; v++)
        vf32_store(lane + v * VF32_LANES, sum[v]);
}

GD_SIMD_INLINE vf32 join(vf32 a, vf32 b, bool add)
{
    return add ? vf32_add(a, b) : vf32_max(a, b);
}

/* The sum, or the largest, of each row's lanes: halves upon halves, of many rows at once. */
static __attribute__((noinline)) void fold(float lane[GROUP][LANES], bool add, float result[GROUP])
{
    _Static_assert(GROUP % VF32_LANES == 0, "whole squares");
    for (int r = 0; r < GROUP; r += VF32_LANES) {
        vf32 square[VF32_LANES];
        GD_SIMD_UNROLL
        for (int i = 0; i < VF32_LANES; i++) {
            vf32 part[LANES / VF32_LANES];
            GD_SIMD_UNROLL
            for (int v = 0; v < LANES / VF32_LANES; v++)
                part[v] = vf32_load(lane[r + i] + v * VF32_LANES);
            GD_SIMD_UNROLL
            for (int half = LANES / VF32_LANES / 2; half > 0; half /= 2)
                for (int v = 0; v < half; v++)
                    part[v] = join(part[v], part[v + half], add);
            square[i] = part[0];
        }
        vf32_transpose(square);
        GD_SIMD_UNROLL
        for (int half = VF32_LANES / 2; half > 0; half /= 2)
            for (int v = 0; v < half; v++)
                square[v] = join(square[v], square[v + half], add);
        vf32_store(result + r, square[0]);
    }
}

/* exp(x) for x <= 0, but for rounding: it cannot overflow. Below -87.7 the result may be 0, since
 * the sum of a row contains a 1 to which less adds nothing: then 2^-127 is made, whose bits are
 * those of 0. NaN stays NaN. */
GD_INLINE float weight(float x)
{
    uint32_t k;
    float q = gd_exp_reduce_f32(x < -88.0f ? -88.0f : x, &k);
    return (1.0f + q) * gd_pow2_f32(k);
}

static void exponentials(float *s, int end, float scale, float base)
{
    for (int j = 0; j < end; j++)
        s[j] = weight(s[j] * scale - base);
}

/* The same, and on the way what comes of dp: the gradient of the products. */
static void differentials(float *s, float *dp, int end, float scale, float base, float delta,
                          float factor)
{
    for (int j = 0; j < end; j++) {
        float p = weight(s[j] * scale - base), d = p * (dp[j] - delta) * factor;
        s[j] = p;
        dp[j] = GD_SELECT_F32(p == 0.0f, 0.0f, d);
    }
}

/* What the weights of row i are multiplied by. */
static void drop_factors(const gd_attention_tile *t, int64_t i, float *factor)
{
    uint32_t word[KEYS];
    GD_ISA_NAME(gd_random_words)
    (t->seed, t->word + (uint64_t)i * t->word_row, (uint64_t)t->keys, word);
    for (int64_t j = 0; j < t->keys; j++)
        factor[j] = (word[j] & 0xffffff) >= t->drop_below ? t->keep : 0.0f;
}

static void drop(const gd_attention_tile *t, int64_t i, float *s)
{
    float factor[KEYS];
    drop_factors(t, i, factor);
    for (int64_t j = 0; j < t->keys; j++)
        s[j] = s[j] * factor[j];
}

/* Row i of a tile, whose first `end` numbers count, rounded for the next product. */
static void round_row(const gd_attention_tile *t, int64_t i, const float *s, int end, uint16_t *to)
{
    const int all = padded(t->keys);
    to += i * ROW;
    for (int j = 0; j < end; j++)
        to[j] = gd_f32_to_bf16(s[j]);
    for (int j = end; j < all; j++)
        to[j] = 0;
}

static void multiply(float *x, int64_t count, float factor)
{
    for (int64_t j = 0; j < count; j++)
        x[j] = x[j] * factor;
}

/* Of GROUP rows: the largest score so far, what is taken off scores, and what the sums so far
 * shrink by. */
static void rebase(const float most[GROUP], float max[GROUP], float base[GROUP],
                   float shrink[GROUP])
{
    for (int r = 0; r < GROUP; r++) {
        float before = max[r], now = before > most[r] ? before : most[r];
        base[r] = now == -INFINITY ? 0.0f : now; /* nothing yet that counts */
        shrink[r] = gd_exp_f32(before == now ? 0.0f : before - base[r]);
        max[r] = now;
    }
}

static void weights(gd_attention_tile *t)
{
    for (int64_t first = 0; first < t->rows; first += GROUP) {
        int rows = (int)(t->rows - first < GROUP ? t->rows - first : GROUP), end[GROUP];
        float lane[GROUP][LANES] = { { 0 } }, scale = 0;
        float max[GROUP] = { 0 }, most[GROUP], base[GROUP], shrink[GROUP], sum[GROUP];
        float *s = t->s + first * ROW;
        for (int r = 0; r < rows; r++) {
            scale = scores(t, first + r, s + r * ROW, &end[r]);
            largest(s + r * ROW, end[r], scale, lane[r]);
            max[r] = t->max[first + r];
        }
        fold(lane, false, most);
        rebase(most, max, base, shrink);
        for (int r = 0; r < rows; r++) {
            exponentials(s + r * ROW, end[r], scale, base[r]);
            total(s + r * ROW, end[r], lane[r]);
        }
        fold(lane, true, sum);
        for (int r = 0; r < rows; r++) {
            t->max[first + r] = max[r];
            t->sum[first + r] = t->sum[first + r] * shrink[r] + sum[r];
            if (shrink[r] != 1.0f)
                multiply(t->o + (first + r) * t->o_row, t->width, shrink[r]);
            if (t->drop_below)
                drop(t, first + r, s + r * ROW);
            if (t->s_bf16)
                round_row(t, first + r, s + r * ROW, end[r], t->s_bf16);
        }
    }
}

/* A row that saw no key has l = 0, gets zeros, and +inf as its logarithm, so that its weights come
 * out as 0 in the gradient. */
static void finish(gd_attention_tile *t, float *logarithm)
{
    for (int64_t i = 0; i < t->rows; i++) {
        float l = t->sum[i], inverse = l == 0.0f ? 0.0f : 1.0f / l;
        float *o = t->o + i * t->o_row;
        for (int64_t j = 0; j < t->width; j++)
            o[j] = o[j] * inverse;
        if (logarithm)
            logarithm[i] = l == 0.0f ? INFINITY : t->max[i] + gd_log_f32(l);
    }
}

/* lane[l]: of g_ij O_ij, whose sum over j is that over keys of P dP, every LANES-th added up. */
static void along(const float *o, const float *g, int64_t step, int64_t count, float lane[LANES])
{
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        if (step == 1)
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[j + l];
        else
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[(j + l) * step];
    }
    for (int l = 0; j + l < count; l++)
        lane[l] += o[j + l] * g[(j + l) * step];
}

static void along_row(const gd_attention_tile *t, int64_t i, float lane[LANES])
{
    const float *o = t->result + i * t->result_row;
    const int64_t step = t->g_column;
    if (!t->s_bf16) {
        along(o, (const float *)t->g + i * t->g_row, step, t->width, lane);
        return;
    }
    const uint16_t *g = (const uint16_t *)t->g + i * t->g_row;
    float wide[4 * LANES];
    for (int64_t j = 0; j < t->width; j += 4 * LANES) {
        const int64_t count = t->width - j < 4 * LANES ? t->width - j : 4 * LANES;
        for (int64_t l = 0; l < count; l++)
            wide[l] = gd_bf16_to_f32(g[(j + l) * step]);
        along(o + j, wide, 1, count, lane);
    }
}

/* Row i with dropout, whose weights are in s. */
static void dropped_differentials(const gd_attention_tile *t, int64_t i, float *s, float *dp,
                                  float delta)
{
    float factor[KEYS];
    drop_factors(t, i, factor);
    for (int64_t j = 0; j < t->keys; j++) {
        float p = s[j], d = p * (dp[j] * factor[j] - delta) * t->scale;
        dp[j] = GD_SELECT_F32(p == 0.0f, 0.0f, d);
        s[j] = p * factor[j];
    }
}

static void gradients(gd_attention_tile *t)
{
    for (int64_t first = 0; first < t->rows; first += GROUP) {
        int rows = (int)(t->rows - first < GROUP ? t->rows - first : GROUP), end;
        float lane[GROUP][LANES] = { { 0 } }, delta[GROUP];
        for (int r = 0; r < rows; r++)
            along_row(t, first + r, lane[r]);
        fold(lane, true, delta);
        for (int r = 0; r < rows; r++) {
            float *s = t->s + (first + r) * ROW, *dp = t->dp + (first + r) * ROW;
            float scale = scores(t, first + r, s, &end), base = t->logarithm[first + r];
            if (t->drop_below) {
                exponentials(s, end, scale, base);
                dropped_differentials(t, first + r, s, dp, delta[r]);
            } else {
                differentials(s, dp, end, scale, base, delta[r], t->scale);
            }
            if (t->s_bf16) {
                round_row(t, first + r, s, end, t->s_bf16);
                round_row(t, first + r, dp, end, t->dp_bf16);
            }
        }
    }
}

/* Vectors go over the end of a row, where the next one is written afterwards. */
#define WIDEN(half)                                                                          \
    static void widen_##half(const gd_attention_rows *x, float *to)                          \
    {                                                                                        \
        const int64_t width = x->width, whole = width / VF32_LANES * VF32_LANES;             \
        const uint16_t *from = x->data;                                                      \
        for (int64_t i = 0; i < x->rows; i++, from += x->row, to += width) {                 \
            for (int64_t j = 0; x->column != 1 && j < width; j++)                            \
                to[j] = gd_##half##_to_f32(from[j * x->column]);                             \
            if (x->column != 1)                                                              \
                continue;                                                                    \
            for (int64_t j = 0; j < whole; j += VF32_LANES)                                  \
                vf32_store(to + j, vf32_load_##half(from + j));                              \
            if (whole < width)                                                               \
                vf32_store(to + whole, vf32_load_first_##half(from + whole, width - whole)); \
        }                                                                                    \
    }
WIDEN(f16)
WIDEN(bf16)

static void widen_i8(const gd_attention_rows *x, float *to)
{
    const int8_t *from = x->data;
    for (int64_t i = 0; i < x->rows; i++, from += x->row, to += x->width) {
        const float scale = x->scale[i * x->scale_row];
        if (x->column == 1)
            for (int64_t j = 0; j < x->width; j++)
                to[j] = (float)from[j] * scale;
        else
            for (int64_t j = 0; j < x->width; j++)
                to[j] = (float)from[j * x->column] * scale;
    }
}
_Static_assert(VF32_LANES <= GD_ATTENTION_SLACK, "the last row's end is in the slack");

static void transpose(const float *x, int64_t row, int64_t column, int64_t rows, int64_t width,
                      float *to)
{
    int64_t whole = column == 1 ? width / VF32_LANES * VF32_LANES : 0, i = 0;
    for (; i + VF32_LANES <= rows; i += VF32_LANES)
        for (int64_t j = 0; j < whole; j += VF32_LANES) {
            vf32 square[VF32_LANES];
            GD_SIMD_UNROLL
            for (int l = 0; l < VF32_LANES; l++)
                square[l] = vf32_load(x + (i + l) * row + j);
            vf32_transpose(square);
            GD_SIMD_UNROLL
            for (int l = 0; l < VF32_LANES; l++)
                vf32_store(to + (j + l) * ROW + i, square[l]);
        }
    for (int64_t k = 0; k < rows; k++)
        for (int64_t j = k < i ? whole : 0; j < width; j++)
            to[j * ROW + k] = x[k * row + j * column];
}

static double exponential(double x)
{
    return gd_exp_f64(x);
}

static double logarithm(double x)
{
    return gd_log_f64(x);
}

static const gd_attention_loops loops = {
    .widen = { [GD_F16] = widen_f16, [GD_BF16] = widen_bf16, [GD_I8] = widen_i8 },
    .transpose = transpose,
    .weights = weights,
    .finish = finish,
    .gradients = gradients,
    .exp = exponential,
    .log = logarithm
};

static gd_status attention_kernel(const gd_kernel_call *call)
{
    return gd_attention_run(call, &loops);
}

static gd_status attention_grad_kernel(const gd_kernel_call *call)
{
    return gd_attention_grad_run(call, &loops);
}

void GD_ISA_NAME(gd_cpu_register_attention)(gd_kernel_fn *kernel)
{
    kernel[GD_OP_attention] = attention_kernel;
    kernel[GD_OP_attention_grad] = attention_grad_kernel;
    kernel[GD_OP_attention_narrow] = attention_kernel;
}
