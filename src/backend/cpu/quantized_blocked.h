/* backend/cpu/quantized_blocked.h: many rows times weights in blocks, for one instruction set. A tile
 * of the result is ROWS x LANES, a column of it in each lane of a vector; rows and weights are packed
 * so that a tile reads both from front to back. Included by quantized_loops.h. Start at multiply().
 *
 * Blocks are packed in the order in which the definition (ops/quantized.c) adds them: those of lane 0,
 * then of lanes 4, 2, 6, 1, 5, 3, 7. So one vector of sums a row is enough for a lane, and what a lane
 * gives is added to those before it as soon as the definition has both.
 *
 * A block of packed rows is values [ROWS][32] and scales f32 [ROWS], and one of packed weights
 * values [DWORDS][LANES] in units of 4 bytes and scales f32 [LANES], and the scales of least values where
 * there are such. With VNNI values are bytes, those of weights 128 more than they are, as VPDPBUSD wants
 * its first operand. With SDOT they are bytes as they are. Elsewhere they are 16 bits, of which one
 * instruction adds the products of two neighbours: no sum leaves 32 bits. A row's block has its sum, i32,
 * for least values: with VNNI it is kept times -128, and products are added to that.
 *
 * Groups of 32 are blocks, with the group's scale and least value as numbers: float(k * sum) is
 * float(k) * float(sum), rounded once. With groups of 16 weights are packed times the scales of their groups,
 * which always takes 16 bits, and with the two least values of a block, for the two sums of a block of x. */
#define VLANES VF32_LANES /* columns of a tile */

#if defined(WITH_VNNI)
typedef int8_t packed;
#define OFFSET     128
#define SUMS_TIMES (-OFFSET)
#elif defined(WITH_DOTPROD)
typedef int8_t packed;
#define OFFSET     0
#define SUMS_TIMES 1
#else
typedef int16_t packed;
#define OFFSET     0
#define SUMS_TIMES 1
#endif
#define DWORDS (BLOCK * (int)sizeof(packed) / 4) /* of a block of a row */
#ifdef GD_ISA_AVX512_BUILD
#define ROWS 12
#else
#define ROWS 6
#endif
/* Below, the kernel of a row is faster; measured on Sapphire Rapids, of groups on Zen 5. */
#if defined(WITH_AVX2) && !defined(WITH_VNNI)
#define MANY_ROWS (ROWS == 12 ? 8 : 16)
#else
#define MANY_ROWS 4
#endif
/* Packing takes longer. */
#ifdef WITH_VNNI
#define MANY_ROWS_OF_32 7
#define MANY_ROWS_OF_16 10
#else
#define MANY_ROWS_OF_32 (MANY_ROWS > 6 ? MANY_ROWS : 6)
#define MANY_ROWS_OF_16 (MANY_ROWS > 8 ? MANY_ROWS : 8)
#endif

typedef struct packed_rows {
    packed values[ROWS][BLOCK];
    int32_t sums[ROWS]; /* times SUMS_TIMES */
    float scales[ROWS];
} packed_rows;

typedef struct packed_columns {
    int32_t values[DWORDS][VLANES];
    float scales[VLANES];
} packed_columns;

typedef struct packed_columns_with_least {
    packed_columns columns;
    float minus_least_scales[VLANES];
} packed_columns_with_least;

/* Blocks that are groups of 32: minus_least_scales and least are 0 where there are no least values, which
 * changes no bit of a sum that began with 0. */
typedef struct packed_columns_of_groups {
    packed_columns_with_least columns;
    float group_scales[VLANES], least[VLANES];
} packed_columns_of_groups;

#ifndef WITH_DOTPROD
#define WITH_GROUPS 1
#define PAIRS       (BLOCK / 2) /* of 16 bits each */

typedef struct grouped_rows {
    int16_t values[ROWS][BLOCK];
    int16_t sums[ROWS][2];
    float scales[ROWS];
} grouped_rows;

typedef struct grouped_columns {
    int32_t values[PAIRS][VLANES], least[VLANES]; /* pairs of i16 */
    float scales[VLANES], minus_least_scales[VLANES];
} grouped_columns;
#endif

/* What a tile is made of. */
enum kind {
    IN_BLOCKS,
    IN_BLOCKS_WITH_LEAST,
    IN_GROUPS_OF_32,
    IN_GROUPS_OF_16,
    IN_GROUPS_OF_16_WITH_LEAST
};

/* The lanes in the order in which they are added, and the blocks of one. */
static const int turns[LANES] = { 0, 4, 2, 6, 1, 5, 3, 7 };

INLINE int64_t blocks_of_lane(int64_t blocks, int lane)
{
    return (blocks - lane + LANES - 1) / LANES;
}

/* ---- vectors of integers ---- */

#if defined(GD_ISA_AVX512_BUILD)
typedef __m512i vint;

INLINE vint int_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

INLINE vint int_dot(vint sum, vint weights, vint x)
{
#ifdef WITH_VNNI
    return _mm512_dpbusd_epi32(sum, weights, x);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(weights, x));
#endif
}

INLINE vint int_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE vf32 int_to_float(vint x)
{
    return _mm512_cvtepi32_ps(x);
}

/* Numbers 2 * at … of a block of weights in 16 bits, or all of them in 8, as a vector. */
INLINE vf32 load_dwords(const int8_t *w, int at)
{
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(w + 2 * at));
#ifdef WITH_VNNI
    return _mm512_castsi512_ps(_mm512_castsi256_si512(bytes));
#else
    return _mm512_castsi512_ps(_mm512_cvtepi8_epi16(bytes));
#endif
}
#elif defined(WITH_AVX2)
typedef __m256i vint;

INLINE vint int_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

INLINE vint int_dot(vint sum, vint weights, vint x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, x));
}

INLINE vint int_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE vf32 int_to_float(vint x)
{
    return _mm256_cvtepi32_ps(x);
}

INLINE vf32 load_dwords(const int8_t *w, int at)
{
    return _mm256_castsi256_ps(
        _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w + 2 * at))));
}
#elif defined(__SSE2__) && !defined(GD_SIMD_SCALAR)
#include <emmintrin.h>
typedef __m128i vint;

INLINE vint int_set1(int32_t x)
{
    return _mm_set1_epi32(x);
}

INLINE vint int_dot(vint sum, vint weights, vint x)
{
    return _mm_add_epi32(sum, _mm_madd_epi16(weights, x));
}

INLINE vint int_load(const int32_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE vf32 int_to_float(vint x)
{
    return _mm_cvtepi32_ps(x);
}

INLINE vf32 load_dwords(const int8_t *w, int at)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(w + 2 * at));
    return _mm_castsi128_ps(_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8));
}
#elif defined(WITH_DOTPROD)
typedef int32x4_t vint;

INLINE vint int_set1(int32_t x)
{
    return vdupq_n_s32(x);
}

INLINE vint int_dot(vint sum, vint weights, vint x)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(weights), vreinterpretq_s8_s32(x));
}

INLINE vint int_load(const int32_t *p)
{
    return vld1q_s32(p);
}

INLINE vf32 int_to_float(vint x)
{
    return vcvtq_f32_s32(x);
}

/* Numbers 4 * at … of a block of weights. */
INLINE vf32 load_dwords(const int8_t *w, int at)
{
    return vreinterpretq_f32_s8(vld1q_s8(w + 4 * at));
}
#else /* whatever the compiler makes of loops */
typedef struct vint {
    int32_t at[VLANES];
} vint;

INLINE vint int_set1(int32_t x)
{
    vint r;
    for (int l = 0; l < VLANES; l++)
        r.at[l] = x;
    return r;
}

INLINE vint int_dot(vint sum, vint weights, vint x)
{
    int16_t w[2 * VLANES], pairs[2 * VLANES];
    memcpy(w, &weights, sizeof w);
    memcpy(pairs, &x, sizeof pairs);
    for (int l = 0; l < VLANES; l++)
        sum.at[l] += w[2 * l] * pairs[2 * l] + w[2 * l + 1] * pairs[2 * l + 1];
    return sum;
}

INLINE vint int_load(const int32_t *p)
{
    vint r;
    memcpy(&r, p, sizeof r);
    return r;
}

INLINE vf32 int_to_float(vint x)
{
    float r[VLANES];
    for (int l = 0; l < VLANES; l++)
        r[l] = (float)x.at[l];
    return vf32_load(r);
}

INLINE vf32 load_dwords(const int8_t *w, int at)
{
    int16_t wide[2 * VLANES];
    float r[VLANES];
    for (int l = 0; l < 2 * VLANES; l++)
        wide[l] = w[2 * at + l];
    memcpy(r, wide, sizeof r);
    return vf32_load(r);
}
#endif

/* ---- packing ---- */

INLINE void pack_row(const float *x, packed_rows *to, int row)
{
    int8_t values[BLOCK];
    int32_t sum = 0;
    to->scales[row] = quantize_block(x, values);
    for (int i = 0; i < BLOCK; i++) {
        to->values[row][i] = (packed)values[i];
        sum += values[i];
    }
    to->sums[row] = SUMS_TIMES * sum;
}

/* Rows of x, up to ROWS of them, zeros for those that lack. */
static void pack_rows(const float *x, int64_t rows, int64_t blocks, void *packed_to)
{
    packed_rows *to = packed_to;
    for (int turn = 0; turn < LANES; turn++)
        for (int64_t b = turns[turn]; b < blocks; b += LANES, to++) {
            if (rows < ROWS)
                memset(to, 0, sizeof *to);
            for (int i = 0; i < (int)rows; i++)
                pack_row(x + ((int64_t)i * blocks + b) * BLOCK, to, i);
        }
}

/* A block of weights of 4 bits, `offset` more than they are, in 8. */
INLINE void widen(const uint8_t *w, int8_t offset, int8_t *to)
{
#ifdef WITH_AVX2
    const __m256i numbers = _mm256_sub_epi8(unpack_halves(w), _mm256_set1_epi8(offset));
    _mm256_storeu_si256((__m256i *)to, numbers);
#else
    for (int i = 0; i < BLOCK / 2; i++) {
        to[i] = (int8_t)((w[i] & 15) - offset);
        to[i + BLOCK / 2] = (int8_t)((w[i] >> 4) - offset);
    }
#endif
}

/* Up to LANES rows of weights, columns of the result, and how far they lie apart. */
typedef struct panel {
    const gd_quantized_weights *weights; /* from the first column on */
    int64_t columns, bytes, scales;
} panel;

INLINE panel make_panel(const gd_quantized_weights *w, gd_quantized_weights *from, int64_t first,
                        int64_t columns, int64_t blocks)
{
    const int64_t all = w->form.groups ? blocks / LANES : blocks;
    const panel p = { from, columns, all * w->form.bytes, all * w->form.scales };
    *from = *w;
    from->values += first * p.bytes;
    from->scales = (const char *)w->scales + first * p.scales * (w->half_scales ? 2 : 4);
    return p;
}

/* Which of a column's scales is that of block b. */
INLINE int64_t scale_of_block(const panel *p, int64_t b)
{
    const gd_quantized_form *form = &p->weights->form;
    return (form->groups ? b / LANES : b) * form->scales;
}

/* Block b of each column; zeros for those that lack. `room` is for what has to be unpacked. */
INLINE void find_blocks(const panel *p, int64_t b, int8_t room[VLANES][BLOCK],
                        const int8_t *found[VLANES])
{
    static const int8_t none[BLOCK] = { 0 };
    const gd_quantized_form *form = &p->weights->form;
    const uint8_t *block = p->weights->values;
    block += form->groups ? b / LANES * form->bytes + b % LANES * (form->numbers / LANES)
                          : b * form->bytes;
    const int8_t offset = form->has_least ? 0 : 8;
    if (form->four_bits)
        for (int64_t j = 0; j < p->columns; j++, block += p->bytes) {
            widen(block, offset, room[j]);
            found[j] = room[j];
        }
    else
        for (int64_t j = 0; j < p->columns; j++, block += p->bytes)
            found[j] = (const int8_t *)block;
    for (int64_t j = p->columns; j < VLANES; j++)
        found[j] = none;
}

/* Squares of LANES columns by LANES units of 4 bytes are transposed. */
INLINE void pack_values(const int8_t *const w[VLANES], packed_columns *to)
{
    for (int at = 0; at < DWORDS; at += VLANES) {
        vf32 square[VLANES];
        GD_SIMD_UNROLL
        for (int j = 0; j < VLANES; j++)
            square[j] = load_dwords(w[j], at);
#if VF32_LANES > 1
        vf32_transpose(square);
#endif
        GD_SIMD_UNROLL
        for (int i = 0; i < (DWORDS < VLANES ? DWORDS : VLANES); i++) {
#ifdef WITH_VNNI
            const __m512i offset = _mm512_set1_epi8(-128);
            square[i] =
                _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(square[i]), offset));
#endif
            vf32_store((float *)(void *)to->values[at + i], square[i]);
        }
    }
}

/* Scale `at` of each column; zeros for those that lack. */
INLINE void pack_scales(const panel *p, int64_t at, float *to)
{
    const gd_quantized_weights *w = p->weights;
#ifdef WITH_AVX2
    if (w->half_scales) {
        const uint16_t *scale = (const uint16_t *)w->scales + at;
        uint16_t bits[VLANES] = { 0 };
        for (int64_t j = 0; j < p->columns; j++)
            bits[j] = scale[j * p->scales];
        for (int64_t j = 0; j < VLANES; j += LANES)
            _mm256_storeu_ps(to + j, read_scales(bits, true, j));
        return;
    }
#endif
    for (int64_t j = 0; j < VLANES; j++)
        to[j] = j < p->columns ? read_scale(w->scales, w->half_scales, at + j * p->scales) : 0;
}

/* Byte `at` of each column as a number; zeros for those that lack. */
INLINE void pack_bytes(const panel *p, int64_t at, float *to)
{
    const int8_t *byte = (const int8_t *)p->weights->values + at;
    int8_t bytes[VLANES] = { 0 };
    for (int64_t j = 0; j < p->columns; j++)
        bytes[j] = byte[j * p->bytes];
    for (int j = 0; j < VLANES; j++)
        to[j] = bytes[j];
}

INLINE void pack_block(const panel *p, int64_t b, packed_columns *to)
{
    int8_t room[VLANES][BLOCK];
    const int8_t *found[VLANES];
    find_blocks(p, b, room, found);
    pack_values(found, to);
    pack_scales(p, scale_of_block(p, b), to->scales);
}

INLINE void pack_block_with_least(const panel *p, int64_t b, packed_columns_with_least *to)
{
    float least[VLANES];
    pack_block(p, b, &to->columns);
    pack_scales(p, scale_of_block(p, b) + 1, least);
    for (int j = 0; j < VLANES; j++)
        to->minus_least_scales[j] = -least[j];
}

/* Block b is a group. */
INLINE void pack_group(const panel *p, int64_t b, packed_columns_of_groups *to)
{
    const gd_quantized_form *form = &p->weights->form;
    const int64_t k = b / LANES * form->bytes + form->numbers + b % LANES;
    pack_bytes(p, k, to->group_scales);
    if (form->has_least) {
        pack_block_with_least(p, b, &to->columns);
        pack_bytes(p, k + LANES, to->least);
    } else {
        pack_block(p, b, &to->columns.columns);
        memset(to->columns.minus_least_scales, 0, sizeof to->columns.minus_least_scales);
        memset(to->least, 0, sizeof to->least);
    }
}

INLINE void pack_panel(const panel *p, int64_t blocks, const enum kind kind, void *packed_to)
{
    packed_columns *in_blocks = packed_to;
    packed_columns_with_least *with_least = packed_to;
    packed_columns_of_groups *of_groups = packed_to;
    for (int turn = 0; turn < LANES; turn++)
        for (int64_t b = turns[turn]; b < blocks; b += LANES)
            if (kind == IN_BLOCKS)
                pack_block(p, b, in_blocks++);
            else if (kind == IN_BLOCKS_WITH_LEAST)
                pack_block_with_least(p, b, with_least++);
            else
                pack_group(p, b, of_groups++);
}

/* Columns of the result, rows of the weights, up to LANES from `first` on; zeros for those that lack.
 */
INLINE void pack_kind(const gd_quantized_weights *w, int64_t first, int64_t columns, int64_t blocks,
                      const enum kind kind, void *to)
{
    gd_quantized_weights from;
    panel p = make_panel(w, &from, first, columns, blocks);
    if (columns == VLANES) {
        p.columns = VLANES; /* known when this is compiled */
        pack_panel(&p, blocks, kind, to);
    } else {
        pack_panel(&p, blocks, kind, to);
    }
}

static void pack_columns(const gd_quantized_weights *w, int64_t first, int64_t columns,
                         int64_t blocks, void *to)
{
    pack_kind(w, first, columns, blocks, IN_BLOCKS, to);
}

static void pack_columns_with_least(const gd_quantized_weights *w, int64_t first, int64_t columns,
                                    int64_t blocks, void *to)
{
    pack_kind(w, first, columns, blocks, IN_BLOCKS_WITH_LEAST, to);
}

static void pack_columns_of_groups(const gd_quantized_weights *w, int64_t first, int64_t columns,
                                   int64_t blocks, void *to)
{
    pack_kind(w, first, columns, blocks, IN_GROUPS_OF_32, to);
}

#ifdef WITH_GROUPS
static void pack_grouped_rows(const float *x, int64_t rows, int64_t blocks, void *packed_to)
{
    grouped_rows *to = packed_to;
    for (int turn = 0; turn < LANES; turn++)
        for (int64_t b = turns[turn]; b < blocks; b += LANES, to++) {
            if (rows < ROWS)
                memset(to, 0, sizeof *to);
            for (int i = 0; i < (int)rows; i++) {
                int8_t values[BLOCK];
                int32_t sums[2] = { 0 };
                to->scales[i] = quantize_block(x + ((int64_t)i * blocks + b) * BLOCK, values);
                for (int k = 0; k < BLOCK; k++) {
                    to->values[i][k] = (int16_t)values[k];
                    sums[k / (BLOCK / 2)] += values[k];
                }
                to->sums[i][0] = (int16_t)sums[0];
                to->sums[i][1] = (int16_t)sums[1];
            }
        }
}

/* Weights of block b of a large one times the scales of their groups; at most 2^14. */
INLINE void scale_weights(const uint8_t *large, const gd_quantized_form *form, int b, int16_t *to)
{
    const uint8_t *w = large + b * form->numbers / LANES;
    const int8_t *k = (const int8_t *)large + form->numbers + 2 * b;
    const int16_t first = (int16_t)k[0], second = (int16_t)k[1];
    const int16_t offset = form->has_least ? 0 : 8;
#ifdef WITH_AVX2
    __m128i low = _mm_loadu_si128((const __m128i *)w), high;
    if (form->four_bits) {
        const __m128i fifteen = _mm_set1_epi8(15), by = _mm_set1_epi8((char)offset);
        high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(low, 4), fifteen), by);
        low = _mm_sub_epi8(_mm_and_si128(low, fifteen), by);
    } else {
        high = _mm_loadu_si128((const __m128i *)(w + BLOCK / 2));
    }
    const __m256i low_scaled =
        _mm256_mullo_epi16(_mm256_cvtepi8_epi16(low), _mm256_set1_epi16(first));
    const __m256i high_scaled =
        _mm256_mullo_epi16(_mm256_cvtepi8_epi16(high), _mm256_set1_epi16(second));
    _mm256_storeu_si256((__m256i *)to, low_scaled);
    _mm256_storeu_si256((__m256i *)(to + BLOCK / 2), high_scaled);
#else
    if (form->four_bits)
        for (int i = 0; i < BLOCK / 2; i++) {
            to[i] = (int16_t)(((w[i] & 15) - offset) * first);
            to[i + BLOCK / 2] = (int16_t)(((w[i] >> 4) - offset) * second);
        }
    else
        for (int i = 0; i < BLOCK / 2; i++) {
            to[i] = (int16_t)((int8_t)w[i] * first);
            to[i + BLOCK / 2] = (int16_t)((int8_t)w[i + BLOCK / 2] * second);
        }
#endif
}

INLINE void pack_grouped_values(int16_t room[VLANES][BLOCK], grouped_columns *to)
{
    for (int at = 0; at < PAIRS; at += VLANES) {
        vf32 square[VLANES];
        GD_SIMD_UNROLL
        for (int j = 0; j < VLANES; j++)
            square[j] = vf32_load((const float *)(const void *)(room[j] + 2 * at));
#if VF32_LANES > 1
        vf32_transpose(square);
#endif
        GD_SIMD_UNROLL
        for (int i = 0; i < VLANES; i++)
            vf32_store((float *)(void *)to->values[at + i], square[i]);
    }
}

/* Block b of column j. */
INLINE void pack_group_numbers(const gd_quantized_weights *w, int64_t large_block, int b, int64_t j,
                               grouped_columns *to)
{
    const gd_quantized_form form = w->form;
    const int64_t scale = large_block * form.scales;
    to->scales[j] = read_scale(w->scales, w->half_scales, scale);
    if (!form.has_least)
        return;
    const int8_t *least =
        (const int8_t *)w->values + large_block * form.bytes + form.numbers + form.groups + 2 * b;
    const int16_t pair[2] = { (int16_t)least[0], (int16_t)least[1] };
    to->minus_least_scales[j] = -read_scale(w->scales, w->half_scales, scale + 1);
    memcpy(&to->least[j], pair, sizeof pair);
}

static void pack_grouped_columns(const gd_quantized_weights *w, int64_t first, int64_t columns,
                                 int64_t blocks, void *packed_to)
{
    grouped_columns *to = packed_to;
    int16_t room[VLANES][BLOCK] = { { 0 } };
    for (int turn = 0; turn < LANES; turn++)
        for (int64_t b = turns[turn]; b < blocks; b += LANES, to++) {
            if (columns < VLANES)
                memset(to, 0, sizeof *to);
            for (int64_t j = 0; j < columns; j++) {
                const int64_t large = ((first + j) * blocks + b) / LANES;
                scale_weights(w->values + large * w->form.bytes, &w->form, turns[turn], room[j]);
                pack_group_numbers(w, large, turns[turn], j, to);
            }
            pack_grouped_values(room, to);
        }
}
#endif

/* ---- products ---- */

/* The sums of a block's rows as numbers; after them comes what is not looked at. */
INLINE void find_sums(const packed_rows *x, const int rows, float out[ROWS + VLANES])
{
    const vf32 by = vf32_set1(1.0f / SUMS_TIMES); /* exact: a power of two */
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i += VLANES)
        vf32_store(out + i, vf32_mul(int_to_float(int_load(x->sums + i)), by));
}

/* Add the terms of one block, of the first `rows` rows. `packed_w` is what the kind has. */
INLINE void add_block(const packed_rows *x, const void *packed_w, const int rows,
                      const enum kind kind, vf32 *lane)
{
    const packed_columns *w = packed_w;
    const packed_columns_with_least *with_least = packed_w;
    const packed_columns_of_groups *groups = packed_w;
    vint sum[ROWS];
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i++)
        sum[i] = int_set1(OFFSET ? x->sums[i] : 0);
    GD_SIMD_UNROLL
    for (int at = 0; at < DWORDS; at++) {
        const vint weights = int_load(w->values[at]);
        GD_SIMD_UNROLL
        for (int i = 0; i < rows; i++) {
            int32_t four;
            memcpy(&four, (const char *)x->values[i] + 4 * at, sizeof four);
            sum[i] = int_dot(sum[i], weights, int_set1(four));
        }
    }
    const vf32 d = vf32_load(w->scales);
    float sums[ROWS + VLANES];
    if (kind != IN_BLOCKS)
        find_sums(x, rows, sums);
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i++) {
        const vf32 scale = vf32_set1(x->scales[i]);
        vf32 exact = int_to_float(sum[i]);
        if (kind == IN_GROUPS_OF_32)
            exact = vf32_mul(vf32_load(groups->group_scales), exact);
        vf32 term = vf32_mul(vf32_mul(scale, d), exact);
        if (kind != IN_BLOCKS) {
            vf32 of_x = vf32_set1(sums[i]);
            if (kind == IN_GROUPS_OF_32)
                of_x = vf32_mul(vf32_load(groups->least), of_x);
            const vf32 minus_e = vf32_load(with_least->minus_least_scales);
            term = vf32_add(term, vf32_mul(vf32_mul(scale, minus_e), of_x));
        }
        lane[i] = vf32_add(lane[i], term);
    }
}

#ifdef WITH_GROUPS
/* Adds the products of two neighbours of 16 bits. */
INLINE vint pair_dot(vint sum, vint weights, vint x)
{
#ifdef WITH_VNNI
    return _mm512_dpwssd_epi32(sum, weights, x);
#else
    return int_dot(sum, weights, x);
#endif
}

INLINE vint pair_of(const int16_t *at)
{
    int32_t both;
    memcpy(&both, at, sizeof both);
    return int_set1(both);
}

INLINE void add_grouped(const grouped_rows *x, const grouped_columns *w, const int rows,
                        const bool has_least, vf32 *lane)
{
    vint sum[ROWS];
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i++)
        sum[i] = int_set1(0);
    GD_SIMD_UNROLL
    for (int at = 0; at < PAIRS; at++) {
        const vint weights = int_load(w->values[at]);
        GD_SIMD_UNROLL
        for (int i = 0; i < rows; i++)
            sum[i] = pair_dot(sum[i], weights, pair_of(x->values[i] + 2 * at));
    }
    const vf32 d = vf32_load(w->scales), minus_e = vf32_load(w->minus_least_scales);
    const vint least = int_load(w->least);
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i++) {
        const vf32 scale = vf32_set1(x->scales[i]);
        vf32 term = vf32_mul(vf32_mul(scale, d), int_to_float(sum[i]));
        if (has_least) {
            const vint less = pair_dot(int_set1(0), least, pair_of(x->sums[i]));
            term = vf32_add(term, vf32_mul(vf32_mul(scale, minus_e), int_to_float(less)));
        }
        lane[i] = vf32_add(lane[i], term);
    }
}
#endif

/* Lane number `turn` in order, whose sums are in `lane`, is added to as many before it as the
 * definition has pairs complete: sums of 1, 2 and 4 lanes wait in `waiting`. */
INLINE void fold(vf32 *lane, int turn, const int rows, float waiting[3][ROWS][VLANES])
{
    int depth = (turn & 1) + (turn >> 1 & 1) + (turn >> 2 & 1);
    for (int t = turn; t & 1; t >>= 1) {
        depth--;
        GD_SIMD_UNROLL
        for (int i = 0; i < rows; i++)
            lane[i] = vf32_add(vf32_load(waiting[depth][i]), lane[i]);
    }
    GD_SIMD_UNROLL
    for (int i = 0; i < rows; i++)
        vf32_store(waiting[depth][i], lane[i]);
}

INLINE void multiply_rows(const void *packed_x, const void *packed_w, int64_t blocks,
                          const int rows, const enum kind kind, float waiting[3][ROWS][VLANES])
{
    const packed_rows *x = packed_x;
    const char *w = packed_w;
    const size_t column_bytes = kind == IN_BLOCKS              ? sizeof(packed_columns)
                                : kind == IN_BLOCKS_WITH_LEAST ? sizeof(packed_columns_with_least)
                                                               : sizeof(packed_columns_of_groups);
#ifdef WITH_GROUPS
    const grouped_rows *grouped_x = packed_x;
    const grouped_columns *grouped_w = packed_w;
#endif
    for (int turn = 0; turn < LANES; turn++) {
        vf32 lane[ROWS];
        GD_SIMD_UNROLL
        for (int i = 0; i < rows; i++)
            lane[i] = vf32_zero();
        for (int64_t n = blocks_of_lane(blocks, turns[turn]); n > 0; n--) {
#ifdef WITH_GROUPS
            if (kind == IN_GROUPS_OF_16 || kind == IN_GROUPS_OF_16_WITH_LEAST) {
                add_grouped(grouped_x++, grouped_w++, rows, kind == IN_GROUPS_OF_16_WITH_LEAST,
                            lane);
                continue;
            }
#endif
            add_block(x++, w, rows, kind, lane);
            w += column_bytes;
        }
        fold(lane, turn, rows, waiting);
    }
}

/* A tile of the result. */
INLINE void multiply_kind(const void *x, const void *w, int64_t blocks, int64_t rows,
                          int64_t columns, const enum kind kind, float *out, int64_t stride)
{
    float waiting[3][ROWS][VLANES];
    if (rows <= ROWS / 3)
        multiply_rows(x, w, blocks, ROWS / 3, kind, waiting);
    else if (rows <= 2 * ROWS / 3)
        multiply_rows(x, w, blocks, 2 * ROWS / 3, kind, waiting);
    else
        multiply_rows(x, w, blocks, ROWS, kind, waiting);
    for (int64_t i = 0; i < rows; i++)
        memcpy(out + i * stride, waiting[0][i], (size_t)columns * sizeof(float));
}

static void multiply(const void *x, const void *w, int64_t blocks, int64_t rows, int64_t columns,
                     float *out, int64_t stride)
{
    multiply_kind(x, w, blocks, rows, columns, IN_BLOCKS, out, stride);
}

static void multiply_with_least(const void *x, const void *w, int64_t blocks, int64_t rows,
                                int64_t columns, float *out, int64_t stride)
{
    multiply_kind(x, w, blocks, rows, columns, IN_BLOCKS_WITH_LEAST, out, stride);
}

static void multiply_groups_of_32(const void *x, const void *w, int64_t blocks, int64_t rows,
                                  int64_t columns, float *out, int64_t stride)
{
    multiply_kind(x, w, blocks, rows, columns, IN_GROUPS_OF_32, out, stride);
}

#define TILES(from, of_rows, of_columns, pack_x, pack_w, of)                              \
    {                                                                                     \
        .rows = ROWS, .columns = VLANES, .many_rows = from, .row_bytes = sizeof(of_rows), \
        .column_bytes = sizeof(of_columns), .pack_rows = pack_x, .pack_columns = pack_w,  \
        .multiply = of                                                                    \
    }
const gd_quantized_tiles NAME(gd_quantized_tiles)[3] = {
    TILES(MANY_ROWS, packed_rows, packed_columns, pack_rows, pack_columns, multiply),
    TILES(MANY_ROWS, packed_rows, packed_columns_with_least, pack_rows, pack_columns_with_least,
          multiply_with_least),
    TILES(MANY_ROWS_OF_32, packed_rows, packed_columns_of_groups, pack_rows, pack_columns_of_groups,
          multiply_groups_of_32)
};

#ifdef WITH_GROUPS
static void multiply_grouped(const void *x, const void *w, int64_t blocks, int64_t rows,
                             int64_t columns, float *out, int64_t stride)
{
    multiply_kind(x, w, blocks, rows, columns, IN_GROUPS_OF_16, out, stride);
}

static void multiply_grouped_with_least(const void *x, const void *w, int64_t blocks, int64_t rows,
                                        int64_t columns, float *out, int64_t stride)
{
    multiply_kind(x, w, blocks, rows, columns, IN_GROUPS_OF_16_WITH_LEAST, out, stride);
}

const gd_quantized_tiles NAME(gd_grouped_tiles)[2] = {
    TILES(MANY_ROWS_OF_16, grouped_rows, grouped_columns, pack_grouped_rows, pack_grouped_columns,
          multiply_grouped),
    TILES(MANY_ROWS_OF_16, grouped_rows, grouped_columns, pack_grouped_rows, pack_grouped_columns,
          multiply_grouped_with_least)
};
#endif
