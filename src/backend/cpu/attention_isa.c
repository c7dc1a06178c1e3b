/* backend/cpu/attention_isa.c: what attention does with a tile of scores between two matrix
 * products: exclude, take exponentials, drop, and the derivative of that. See attention.h.
 */
#include "backend/cpu/attention.h"

#include "backend/cpu/isa.h"
#include "backend/cpu/vecmath.h"

#define KEYS  GD_ATTENTION_KEYS
#define LANES GD_ATTENTION_LANES

/* Rows are handled in whole groups of LANES; what lies behind the keys counts as excluded. */
static int64_t padded(int64_t keys)
{
    return (keys + LANES - 1) / LANES * LANES;
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

/* Row i as scale s + mask, -inf where excluded, up to padded(keys). */
static void scores(const gd_attention_tile *t, int64_t i, float *s)
{
    int64_t n = seen_by(t, i), end = padded(t->keys);
    float scale = t->scale;
    if (t->mask) {
        float add[KEYS];
        mask_row(t, i, n, add);
        for (int64_t j = 0; j < n; j++)
            s[j] = add[j] == -INFINITY ? -INFINITY : s[j] * scale + add[j];
    } else {
        for (int64_t j = 0; j < n; j++)
            s[j] = s[j] * scale;
    }
    for (int64_t j = n; j < end; j++)
        s[j] = -INFINITY;
}

/* NaN is passed over: it comes back through its exponential. */
static float largest(const float *s, int64_t end)
{
    float lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = -INFINITY;
    for (int64_t j = 0; j < end; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

static float total(const float *s, int64_t end)
{
    float lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = 0;
    for (int64_t j = 0; j < end; j += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += s[j + l];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* exp(s - most), never above 1 but for rounding: so it needs no care for overflow, and below e^-87,
 * which no sum with a 1 in it sees, it may be 0. */
static void exponentials(float *s, int64_t end, float most)
{
    for (int64_t j = 0; j < end; j++) {
        float x = s[j] - most;
        uint32_t k;
        float q = gd_exp_reduce_f32(GD_SELECT_F32(x < -87.0f, -87.0f, x), &k);
        s[j] = GD_SELECT_F32(x < -87.0f, 0.0f, (1.0f + q) * gd_pow2_f32(k));
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

static void weights(gd_attention_tile *t)
{
    int64_t end = padded(t->keys);
    for (int64_t i = 0; i < t->rows; i++) {
        float *s = t->s + i * KEYS;
        scores(t, i, s);
        float before = t->max[i], most = largest(s, end);
        most = most > before ? most : before;
        float base = most == -INFINITY ? 0.0f : most; /* nothing yet that counts */
        exponentials(s, end, base);
        float shrink = before == most ? 1.0f : gd_exp_f32(before - base);
        t->sum[i] = t->sum[i] * shrink + total(s, end);
        t->max[i] = most;
        if (shrink != 1.0f) {
            float *o = t->o + i * t->o_row;
            for (int64_t j = 0; j < t->width; j++)
                o[j] = o[j] * shrink;
        }
        if (t->drop_below) {
            float factor[KEYS];
            drop_factors(t, i, factor);
            for (int64_t j = 0; j < t->keys; j++)
                s[j] = s[j] * factor[j];
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

/* sum over j of g_ij O_ij, which is sum over keys of P dP. */
static float along(const gd_attention_tile *t, int64_t i)
{
    const float *o = t->result + i * t->result_row, *g = t->g + i * t->g_row;
    float lane[LANES] = { 0 }, product[LANES];
    int64_t j = 0, step = t->g_column;
    for (; j + LANES <= t->width; j += LANES) {
        if (step == 1)
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[j + l];
        else
            for (int l = 0; l < LANES; l++)
                lane[l] += o[j + l] * g[(j + l) * step];
    }
    for (int l = 0; l < LANES; l++)
        product[l] = j + l < t->width ? o[j + l] * g[(j + l) * step] : 0.0f;
    for (int l = 0; l < LANES; l++)
        lane[l] += product[l];
    return total(lane, LANES);
}

static void gradients(gd_attention_tile *t)
{
    int64_t end = padded(t->keys);
    for (int64_t i = 0; i < t->rows; i++) {
        float *s = t->s + i * KEYS, *dp = t->dp + i * KEYS;
        float delta = along(t, i), scale = t->scale;
        scores(t, i, s);
        exponentials(s, end, t->logarithm[i]);
        if (t->drop_below) {
            float factor[KEYS];
            drop_factors(t, i, factor);
            for (int64_t j = 0; j < t->keys; j++) {
                float p = s[j], d = p * (dp[j] * factor[j] - delta) * scale;
                dp[j] = p == 0.0f ? 0.0f : d;
                s[j] = p * factor[j];
            }
            continue;
        }
        for (int64_t j = 0; j < t->keys; j++) {
            float d = s[j] * (dp[j] - delta) * scale;
            dp[j] = s[j] == 0.0f ? 0.0f : d;
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
