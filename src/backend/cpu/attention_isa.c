/* backend/cpu/attention_isa.c: what attention does with a tile of scores between two matrix
 * products: exclude, take exponentials, drop, and the derivative of that. See attention.h.
 */
#include "backend/cpu/attention.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/vecmath.h"

#define KEYS  GD_ATTENTION_KEYS
#define LANES GD_ATTENTION_LANES

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

/* Row i as scale s + mask, -inf where excluded, up to the result: past all that the row may see. */
static int scores(const gd_attention_tile *t, int64_t i, float *s)
{
    int n = (int)seen_by(t, i), end = padded(n);
    float scale = t->scale;
    if (t->mask) {
        float add[KEYS];
        mask_row(t, i, n, add);
        for (int j = 0; j < n; j++)
            s[j] = add[j] == -INFINITY ? -INFINITY : s[j] * scale + add[j];
        scale = 1;
    }
    for (int j = 0; j < end; j++)
        s[j] = j < n ? s[j] * scale : -INFINITY;
    return end;
}

/* The largest of a row, found among integers in the same order, whose maximum compilers vectorise.
 * Of NaN, those with a sign are passed over; they all come back through their exponentials. */
static float largest(const float *s, int end)
{
    int32_t most = -0x7f800001; /* -inf */
    for (int j = 0; j < end; j++) {
        int32_t bits = (int32_t)gd_bits_f32(s[j]);
        bits ^= bits >> 31 & INT32_MAX;
        most = bits > most ? bits : most;
    }
    return gd_from_bits_f32((uint32_t)(most ^ (most >> 31 & INT32_MAX)));
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

/* exp(s - most), never above 1 but for rounding: so it needs no care for overflow, and below e^-87,
 * which no sum with a 1 in it sees, it may be 0. Zeros from `end` to the end of the tile. */
static void exponentials(const gd_attention_tile *t, float *s, int end, float most)
{
    for (int j = 0; j < end; j++) {
        float x = s[j] - most;
        uint32_t k;
        float q = gd_exp_reduce_f32(GD_SELECT_F32(x < -87.0f, -87.0f, x), &k);
        s[j] = GD_SELECT_F32(x < -87.0f, 0.0f, (1.0f + q) * gd_pow2_f32(k));
    }
    for (int j = end; j < padded(t->keys); j++)
        s[j] = 0;
}

/* lane[.][0] = the sum of each row's lanes, halves upon halves. */
#define HALVE(half)                    \
    for (int r = 0; r < GROUP; r++)    \
        for (int l = 0; l < half; l++) \
            lane[r][l] += lane[r][l + half];
static void fold(float lane[GROUP][LANES])
{
    _Static_assert(LANES == 16, "halves");
    HALVE(8)
    HALVE(4)
    HALVE(2)
    HALVE(1)
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

static void weights(gd_attention_tile *t)
{
    for (int64_t first = 0; first < t->rows; first += GROUP) {
        int rows = (int)(t->rows - first < GROUP ? t->rows - first : GROUP);
        float lane[GROUP][LANES] = { { 0 } }, base[GROUP], shrink[GROUP] = { 0 };
        float *s = t->s + first * KEYS, *max = t->max + first, *sum = t->sum + first;
        int end[GROUP];
        for (int r = 0; r < rows; r++) {
            end[r] = scores(t, first + r, s + r * KEYS);
            float most = largest(s + r * KEYS, end[r]), before = max[r];
            most = before > most ? before : most;
            base[r] = most == -INFINITY ? 0.0f : most; /* nothing yet that counts */
            shrink[r] = before == most ? 0.0f : before - base[r];
            max[r] = most;
        }
        for (int r = 0; r < GROUP; r++)
            shrink[r] = gd_exp_f32(shrink[r]);
        for (int r = 0; r < rows; r++) {
            exponentials(t, s + r * KEYS, end[r], base[r]);
            total(s + r * KEYS, end[r], lane[r]);
        }
        fold(lane);
        for (int r = 0; r < rows; r++) {
            sum[r] = sum[r] * shrink[r] + lane[r][0];
            float *o = t->o + (first + r) * t->o_row;
            for (int64_t j = 0; shrink[r] != 1.0f && j < t->width; j++)
                o[j] = o[j] * shrink[r];
            if (t->drop_below)
                drop(t, first + r, s + r * KEYS);
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
        logarithm[i] = l == 0.0f ? INFINITY : t->max[i] + gd_log_f32(l);
    }
}

/* lane[l]: of g_ij O_ij, whose sum over j is that over keys of P dP, every LANES-th added up. */
static void along(const gd_attention_tile *t, int64_t i, float lane[LANES])
{
    const float *o = t->result + i * t->result_row, *g = t->g + i * t->g_row;
    int64_t j = 0, step = t->g_column;
    for (int l = 0; l < LANES; l++)
        lane[l] = 0;
    for (; j + LANES <= t->width; j += LANES) {
        if (step == 1)
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[j + l];
        else
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[(j + l) * step];
    }
    for (int l = 0; j + l < t->width; l++)
        lane[l] += o[j + l] * g[(j + l) * step];
}

static void gradients(gd_attention_tile *t)
{
    float scale = t->scale;
    for (int64_t first = 0; first < t->rows; first += GROUP) {
        int rows = (int)(t->rows - first < GROUP ? t->rows - first : GROUP);
        float lane[GROUP][LANES] = { { 0 } };
        for (int r = 0; r < rows; r++)
            along(t, first + r, lane[r]);
        fold(lane);
        for (int r = 0; r < rows; r++) {
            float *s = t->s + (first + r) * KEYS, *dp = t->dp + (first + r) * KEYS;
            float delta = lane[r][0];
            int end = scores(t, first + r, s), all = padded(t->keys);
            exponentials(t, s, end, t->logarithm[first + r]);
            if (t->drop_below) {
                float factor[KEYS];
                drop_factors(t, first + r, factor);
                for (int64_t j = 0; j < t->keys; j++) {
                    float p = s[j], d = p * (dp[j] * factor[j] - delta) * scale;
                    dp[j] = p == 0.0f ? 0.0f : d;
                    s[j] = p * factor[j];
                }
                continue;
            }
            for (int j = 0; j < all; j++) {
                float d = s[j] * (dp[j] - delta) * scale;
                dp[j] = s[j] == 0.0f ? 0.0f : d;
            }
        }
    }
}

static const gd_attention_loops loops = { .weights = weights,
                                          .finish = finish,
                                          .gradients = gradients };

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
}
