/* tests/test_k_quants.c: Q2_K to Q6_K as they are written: errors on the weights of a real model against an exhaustive search and
 * against the tables of rounding to a grid, importance, bits that no build changes, numbers that do not fit. That blocks
 * are read as others read them is in test_gguf.c, and tests/python/test_gguf.py asks the Python package gguf. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradus/gradus.h>

#include "io/quantized.h"
#include "io/quantized_k.h"

#include "support/shared_data.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { BLOCK = 256, MOST_BYTES = 210 };

static const gd_gguf_type types[] = { GD_GGUF_Q2_K, GD_GGUF_Q3_K, GD_GGUF_Q4_K, GD_GGUF_Q5_K,
                                      GD_GGUF_Q6_K };

/* 131,072 weights of stories260K, from its table of tokens on. The caller frees. */
static float *real_weights(size_t *count)
{
    size_t size;
    char *file = shared_text("models/stories260K/stories260K.bin", &size);
    const size_t header = 7 * sizeof(int32_t);
    *count = 512 * BLOCK;
    assert_true(size > header + *count * sizeof(float));
    float *weights = malloc(*count * sizeof *weights);
    memcpy(weights, file + header, *count * sizeof *weights);
    free(file);
    return weights;
}

/* The sum of w * error^2 over that of w * x^2, its root. */
static double error_of(const float *x, const float *back, const float *w, size_t count)
{
    double error = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double e = (double)back[i] - (double)x[i], by = w ? (double)w[i] : 1.0;
        error += by * e * e;
        squares += by * (double)x[i] * (double)x[i];
    }
    return sqrt(error / squares);
}

static double written_error(gd_gguf_type type, const float *x, const float *importance,
                            const float *judge, size_t count)
{
    const gd_block_format *f = gd_block_format_of((uint32_t)type);
    unsigned char *blocks = malloc(count / BLOCK * f->size);
    float *back = malloc(count * sizeof *back);
    size_t at;
    assert_true(gd_blocks_write(f, x, importance, count, blocks, &at));
    gd_blocks_read(f, blocks, count, back);
    const double error = error_of(x, back, judge, count);
    free(back);
    free(blocks);
    return error;
}

/* What llama.cpp 0.3.36 makes of the same numbers, ggml_quantize_chunk without importance: 30.28, 14.50, 7.04, 3.47 and 1.67 %. */
static void errors_are_below_those_of_the_reference(void **state)
{
    (void)state;
    static const double reference[] = { 0.3028, 0.1450, 0.0704, 0.0347, 0.0167 };
    size_t count;
    float *x = real_weights(&count);
    for (size_t i = 0; i < COUNT(types); i++) {
        const double error = written_error(types[i], x, NULL, NULL, count);
        if (!(error < reference[i]))
            print_error("%s: %g\n", gd_gguf_type_name(types[i]), error);
        assert_true(error < reference[i] && error > 0.8 * reference[i]);
    }
    free(x);
}

/* The least error of 16 numbers with d and dmin given: of all scales, and all least values. */
static double exhaustive(gd_gguf_type type, const float *x, float d, float dmin)
{
    const bool pairs = type == GD_GGUF_Q2_K;
    double best = INFINITY;
    for (int scale = pairs ? 0 : -128; scale <= (pairs ? 15 : 127); scale++)
        for (int least = 0; least <= (pairs ? 15 : 0); least++) {
            const float s = d * (float)scale, m = dmin * (float)least;
            double sum = 0;
            for (int i = 0; i < 16; i++) {
                float q = s == 0.0f ? 0.0f : roundf((x[i] + m) / s);
                q = fminf(fmaxf(q, pairs ? 0 : -32), pairs ? 3 : 31);
                const double e = (double)(s * q - m) - (double)x[i];
                sum += e * e;
            }
            best = sum < best ? sum : best;
        }
    return best;
}

/* Q2_K and Q6_K, a type with least values and one without: the search beside a group's own scale finds nearly what trying
 * every scale finds. */
static void no_scale_is_much_better(void **state)
{
    (void)state;
    static const gd_gguf_type two[] = { GD_GGUF_Q2_K, GD_GGUF_Q6_K };
    size_t count, at;
    float *x = real_weights(&count), back[BLOCK];
    for (size_t t = 0; t < COUNT(two); t++) {
        const gd_block_format *f = gd_block_format_of((uint32_t)two[t]);
        unsigned char block[MOST_BYTES];
        double ours = 0, best = 0;
        for (size_t i = 0; i < count; i += 16 * BLOCK) {
            assert_true(gd_blocks_write(f, x + i, NULL, BLOCK, block, &at));
            gd_blocks_read(f, block, BLOCK, back);
            const bool pairs = two[t] == GD_GGUF_Q2_K;
            const float d = gd_block_half(block + (pairs ? 80 : 208));
            const float dmin = pairs ? gd_block_half(block + 82) : 0.0f;
            for (size_t k = 0; k < BLOCK; k++)
                ours += pow((double)back[k] - (double)x[i + k], 2);
            for (size_t g = 0; g < BLOCK; g += 16)
                best += exhaustive(two[t], x + i + g, d, dmin);
        }
        if (!(ours < 1.05 * best))
            print_error("%s: %g, exhaustive %g\n", f->name, ours, best);
        assert_true(ours < 1.05 * best && ours > 0.9999 * best);
    }
    free(x);
}

/* Columns that count more are nearer to what they were, at the cost of others. */
static void importance_moves_the_error(void **state)
{
    (void)state;
    size_t count;
    float *x = real_weights(&count);
    float *importance = malloc(count * sizeof *importance);
    for (size_t i = 0; i < count; i++)
        importance[i] = i % 8 < 2 ? 4.0f : 0.05f;
    for (size_t i = 0; i < COUNT(types); i++) {
        const double alike = written_error(types[i], x, NULL, importance, count);
        const double weighted = written_error(types[i], x, importance, importance, count);
        assert_true(weighted < 0.97 * alike);
        assert_true(written_error(types[i], x, importance, NULL, count) >
                    written_error(types[i], x, NULL, NULL, count));
    }
    free(importance);
    free(x);
}

/* FNV-1a of what is made of small fractions: no compiler and no instruction set gives other bits. */
static void bits_are_the_same_everywhere(void **state)
{
    (void)state;
    static const uint64_t expected[] = { 0xc28e84827e1be258, 0x8cebc4b196b62683, 0x4b49d2dac9f14602,
                                         0xb49bc6833ed9fca1, 0x4527c3d9d9d8c168 };
    float x[4 * BLOCK];
    uint32_t seed = 1;
    for (size_t i = 0; i < COUNT(x); i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 16) - 32768) / (i < BLOCK ? 65536.0f : 1e6f) -
               (i > 700 ? 0.01f : 0.0f);
    }
    for (size_t t = 0; t < COUNT(types); t++) {
        const gd_block_format *f = gd_block_format_of((uint32_t)types[t]);
        unsigned char blocks[4 * MOST_BYTES];
        uint64_t hash = 14695981039346656037u;
        size_t at;
        assert_true(gd_blocks_write(f, x, NULL, COUNT(x), blocks, &at));
        for (size_t i = 0; i < 4 * f->size; i++)
            hash = (hash ^ blocks[i]) * 1099511628211u;
        if (hash != expected[t])
            print_error("%s: 0x%016llx\n", f->name, (unsigned long long)hash);
        assert_true(hash == expected[t]);
    }
}

static void edges(void **state)
{
    (void)state;
    static const float wrong[] = { NAN, INFINITY, -INFINITY, 3e38f, -1e13f };
    unsigned char blocks[2 * MOST_BYTES];
    float back[2 * BLOCK];
    size_t at;
    for (size_t t = 0; t < COUNT(types); t++) {
        const gd_block_format *f = gd_block_format_of((uint32_t)types[t]);
        for (size_t i = 0; i < COUNT(wrong); i++) {
            float x[2 * BLOCK] = { 1 };
            x[BLOCK + 40] = wrong[i];
            assert_false(gd_blocks_write(f, x, NULL, COUNT(x), blocks, &at));
            assert_int_equal(at, BLOCK);
        }
        float x[2 * BLOCK] = { 0 };
        for (size_t i = 0; i < BLOCK; i++) /* all alike and negative; then zeros */
            x[i] = -0.25f;
        assert_true(gd_blocks_write(f, x, NULL, COUNT(x), blocks, &at));
        gd_blocks_read(f, blocks, COUNT(x), back);
        for (size_t i = 0; i < COUNT(x); i++)
            assert_true(fabsf(back[i] - x[i]) <= 2e-4f && (i < BLOCK || back[i] == 0.0f));
        for (size_t i = 0; i < COUNT(x);
             i++) /* d is below the smallest f16, the numbers are not lost */
            x[i] = 2e-6f * (float)((int)(i % 16) - 8);
        assert_true(gd_blocks_write(f, x, NULL, COUNT(x), blocks, &at));
        gd_blocks_read(f, blocks, COUNT(x), back);
        assert_true(error_of(x, back, NULL, COUNT(x)) < 0.35);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_below_those_of_the_reference),
        cmocka_unit_test(no_scale_is_much_better),
        cmocka_unit_test(importance_moves_the_error),
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
