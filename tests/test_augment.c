/* tests/test_augment.c: changes of images against torchvision; what they depend on; eager against
 * compiled, for any number of threads, bit for bit; noise, mixup and cutmix against their formulas. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/context.h"

#include <math.h>
#include <stdio.h>

#include "goldens/augment.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { ALL_DRAWS = 24 };

/* Every change at once. */
#define EVERYTHING                                                                                 \
    GD_AUGMENT_DEFAULTS, .padding = 2, .flip = 0.5, .flip_vertical = 0.5, .crop = 0.4,             \
                         .height = 8, .width = 5, .rotation = 20, .translation = 0.1, .zoom = 1.2, \
                         .shear = 10, .brightness = 0.4, .contrast = 0.4, .saturation = 0.4,       \
                         .hue = 0.1, .noise = 0.05, .erase = 0.5, .fill = 0.25

static gd_tensor *some_images(gd_context *gd)
{
    return gd_from_host(gd, GD_SHAPE(IMAGES, CHANNELS, HEIGHT, WIDTH), GD_F32, images);
}

/* [IMAGES, columns] without a pattern. */
static gd_tensor *some_draws(gd_context *gd, int columns, uint64_t seed)
{
    float u[IMAGES * ALL_DRAWS];
    assert_true(columns <= ALL_DRAWS);
    for (int i = 0; i < IMAGES * columns; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        u[i] = (float)(seed >> 40) * 0x1p-24f;
    }
    return gd_from_host(gd, GD_SHAPE(IMAGES, columns), GD_F32, u);
}

static void as_torchvision(void **state)
{
    gd_context *gd = *state;
    for (int i = 0; i < COUNT(augment_goldens); i++) {
        const struct augment_golden *g = &augment_goldens[i];
        assert_int_equal(gd_augment_draws(&g->options), g->columns);
        gd_tensor *draws = gd_from_host(gd, GD_SHAPE(IMAGES, g->columns), GD_F32, g->draws);
        gd_tensor *found = gd_augment_with(some_images(gd), draws, &g->options);
        float values[COUNT(g->expected)];
        size_t count = (size_t)(IMAGES * CHANNELS * g->height * g->width);
        if (!found || gd_tensor_read(found, values, count * sizeof *values) != GD_OK)
            fail_msg("%s: %s", g->name, gd_error_message());
        assert_int_equal(gd_tensor_shape(found).dim[2], g->height);
        for (size_t k = 0; k < count; k++)
            if (!(fabsf(values[k] - g->expected[k]) <= 4e-6f))
                fail_msg("%s: value %zu is %g, torchvision's %g", g->name, k, (double)values[k],
                         (double)g->expected[k]);
    }
}

/* The crop of a padded image is made of its pixels as they are, and so is a mirror image. */
static void moved_pixels_are_exact(void **state)
{
    gd_context *gd = *state;
    const float middle[IMAGES] = { 0.5f, 0.5f, 0.5f }; /* a shift by nothing */
    gd_tensor *half = gd_from_host(gd, GD_SHAPE(IMAGES, 1), GD_F32, middle);
    gd_tensor *draws = gd_broadcast_to(half, GD_SHAPE(IMAGES, 2)), *x = some_images(gd);
    assert_same_bits(gd_augment(x, draws, .padding = 4), x);
    gd_tensor *first = gd_zeros(gd, GD_SHAPE(IMAGES, 2), GD_F32);
    assert_same_bits(gd_augment(x, first, .flip = 1), gd_flip(x, GD_AXES(3)));
    assert_same_bits(gd_augment(x, first, .flip_vertical = 1), gd_flip(x, GD_AXES(2)));
    gd_tensor *moved = gd_augment(x, first, .padding = 2, .fill = -1);
    gd_tensor *inside = gd_slice(gd_slice(moved, 2, 2, GD_END, 1), 3, 2, GD_END, 1);
    assert_same_bits(inside, gd_slice(gd_slice(x, 2, 0, HEIGHT - 2, 1), 3, 0, WIDTH - 2, 1));
    assert_same_bits(gd_slice(moved, 2, 0, 2, 1),
                     gd_full(gd, GD_SHAPE(IMAGES, CHANNELS, 2, WIDTH), -1, GD_F32));
    assert_same_bits(gd_slice(moved, 3, 0, 2, 1),
                     gd_full(gd, GD_SHAPE(IMAGES, CHANNELS, HEIGHT, 2), -1, GD_F32));
    gd_tensor *plain = gd_full_like(x, 0.25); /* what comes in by an affine map is `fill` as well */
    assert_same_bits(
        gd_augment(plain, some_draws(gd, 5, 1), .rotation = 90, .translation = 0.5, .fill = 0.25),
        plain);
}

/* Bytes become 0 … 1; nothing random without draws. */
static void bytes_and_no_draws(void **state)
{
    gd_context *gd = *state;
    gd_tensor *bytes = gd_cast(gd_mul_scalar(some_images(gd), 255), GD_U8);
    gd_tensor *floats = gd_div_scalar(gd_cast(bytes, GD_F32), 255);
    gd_tensor *draws = some_draws(gd, ALL_DRAWS, 5);
    const gd_augment_options all = { EVERYTHING };
    assert_same_bits(gd_augment_with(bytes, draws, &all), gd_augment_with(floats, draws, &all));
    assert_same_bits(gd_augment(bytes, NULL), floats);
    assert_same_bits(gd_augment_with(bytes, NULL, &all),
                     gd_augment(floats, NULL, .height = 8, .width = 5));
    assert_same_bits(gd_augment(gd_cast(floats, GD_F64), NULL), floats);
}

/* What happens to a sample depends on its own draws alone. */
static void samples_are_independent(void **state)
{
    gd_context *gd = *state;
    const gd_augment_options all = { EVERYTHING };
    gd_tensor *x = some_images(gd), *draws = some_draws(gd, ALL_DRAWS, 7);
    gd_tensor *together = gd_augment_with(x, draws, &all);
    for (int64_t i = 0; i < IMAGES; i++)
        assert_same_bits(
            gd_augment_with(gd_slice(x, 0, i, i + 1, 1), gd_slice(draws, 0, i, i + 1, 1), &all),
            gd_slice(together, 0, i, i + 1, 1));
    assert_same_bits(gd_augment_with(gd_roll(x, 0, 1), gd_roll(draws, 0, 1), &all),
                     gd_roll(together, 0, 1));
}

/* ---- eager, compiled, threads ---- */

static gd_tensor *all_of_it(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    const gd_augment_options all = { EVERYTHING };
    gd_tensor *x = gd_augment_with(in[0], in[1], &all), *targets = in[2], *mixed, *soft;
    if (gd_mixup(x, targets, in[1], 0.4, &mixed, &soft) != GD_OK ||
        gd_cutmix(mixed, soft, gd_slice(in[1], 1, 2, GD_END, 1), 1, &x, &targets) != GD_OK)
        return NULL;
    return gd_add(x, gd_mean(targets, GD_ALL_AXES, false));
}

static void run(float *out, size_t bytes, gd_mode mode, int threads, bool as_bytes)
{
    gd_context *gd = gd_open(test_device(), .threads = threads);
    gd_tensor *x = some_images(gd);
    x = as_bytes ? gd_cast(gd_mul_scalar(x, 255), GD_U8) : x;
    const int64_t labels[IMAGES] = { 1, 0, 2 };
    gd_tensor *y = gd_from_host(gd, GD_SHAPE(IMAGES), GD_I64, labels);
    gd_tensor *in[] = { x, some_draws(gd, ALL_DRAWS, 11), gd_one_hot(y, 3, GD_F32) };
    gd_function *f = gd_compile(gd, all_of_it, NULL, .mode = mode);
    for (int i = 0; i < 2; i++) {
        gd_tensor *r = gd_call(f, 3, in);
        if (!r)
            fail_msg("%s", gd_error_message());
        assert_int_equal(gd_tensor_read(r, out, bytes), GD_OK);
    }
    gd_close(gd);
}

static void eager_compiled_and_threads(void **state)
{
    (void)state;
    float expected[IMAGES * CHANNELS * 8 * 5], found[COUNT(expected)];
    for (int bytes = 0; bytes < 2; bytes++) {
        run(expected, sizeof expected, GD_MODE_EAGER, 1, bytes);
        for (int threads = 1; threads <= 3; threads++)
            for (int mode = 0; mode < 2; mode++) {
                run(found, sizeof found, mode ? GD_MODE_COMPILED : GD_MODE_EAGER, threads, bytes);
                assert_memory_equal(found, expected, sizeof expected);
            }
    }
}

/* ---- gradients ---- */

/* Changes of geometry are linear: their gradient is the adjoint, sum(g * A x) = sum(x * A' g). */
static void gradients_are_adjoint(void **state)
{
    gd_context *gd = *state;
    static const gd_augment_options linear[] = {
        { GD_AUGMENT_DEFAULTS, .padding = 2, .flip = 0.5, .flip_vertical = 0.5 },
        { GD_AUGMENT_DEFAULTS, .crop = 0.3, .height = 9, .width = 4 },
        { GD_AUGMENT_DEFAULTS, .rotation = 40, .translation = 0.2, .zoom = 1.3, .shear = 15 },
        { GD_AUGMENT_DEFAULTS, .erase = 0.7 },
    };
    for (int i = 0; i < COUNT(linear); i++) {
        gd_tensor *x = gd_set_requires_grad(some_images(gd), true);
        gd_tensor *r = gd_augment_with(x, some_draws(gd, 9, 3 + (uint64_t)i), &linear[i]);
        gd_tensor *g = gd_rsub_scalar(gd_square(r), 0.7); /* any weights */
        g = gd_detach(g);
        gd_tensor *sum = gd_sum(gd_mul(r, g), GD_ALL_AXES, false), *d = NULL;
        assert_int_equal(gd_grad(1, &sum, NULL, 1, &x, &d), GD_OK);
        double there = gd_item(sum), back = gd_item(gd_sum(gd_mul(d, x), GD_ALL_AXES, false));
        if (!(fabs(there - back) < 1e-4 * (1 + fabs(there))))
            fail_msg("case %d: %g and %g: %s", i, there, back, gd_error_message());
    }
}

/* ---- noise ---- */

static uint32_t carry_up(uint32_t x, uint32_t factor)
{
    for (int round = 0; round < 2; round++)
        x = (x + (x * x | 5)) * factor;
    return x;
}

static uint32_t mix_bits(uint32_t x)
{
    x = carry_up(x, 0x85ebca6bu);
    int32_t value = (int32_t)x;
    return carry_up(x ^ (uint32_t)(int32_t)((float)value * 0x1p-16f), 0xc2b2ae35u);
}

static double unit(uint32_t bits)
{
    return ((double)(int32_t)(bits & 0xffffff00) + 0x1p31 + 256) * 0x1p-32;
}

static void noise_is_normal(void **state)
{
    gd_context *gd = *state;
    enum { SIDE = 128, PIXELS = SIDE * SIDE };
    static float values[2 * PIXELS];
    const float u[2][2] = { { 0.3f, 0.7f }, { 0.8f, 0.1f } };
    gd_tensor *draws = gd_from_host(gd, GD_SHAPE(2, 2), GD_F32, u);
    gd_tensor *x = gd_full(gd, GD_SHAPE(2, 1, SIDE, SIDE), 0.5, GD_F32);
    assert_int_equal(gd_tensor_read(gd_augment(x, draws, .noise = 0.05), values, sizeof values),
                     GD_OK);
    double sum = 0, squares = 0, fourth = 0, product = 0, neighbours = 0;
    for (uint32_t i = 0; i < 2 * PIXELS; i++) {
        const float *d = u[i / PIXELS];
        uint32_t key = (uint32_t)(d[0] * 16777216) * 0x85ebca77u;
        uint32_t bits = mix_bits(i % PIXELS * 0x9e3779b9u + key);
        uint32_t more = mix_bits(bits + (uint32_t)(d[1] * 16777216) * 0x9e3779b1u);
        double z = sqrt(-2 * log(unit(bits))) * cos(6.283185307179586 * unit(more));
        if (!(fabs(values[i] - (0.5 + 0.05 * z)) < 1e-6))
            fail_msg("value %u is %g, not %g", i, (double)values[i], 0.5 + 0.05 * z);
        sum += z, squares += z * z, fourth += z * z * z * z;
        product += i < PIXELS ? ((double)values[i] - 0.5) * ((double)values[i + PIXELS] - 0.5) : 0;
        neighbours += i > 0 ? ((double)values[i] - 0.5) * ((double)values[i - 1] - 0.5) : 0;
    }
    const double n = 2 * PIXELS; /* the moments' deviations are 1, 1.4 and 10 over sqrt(n) */
    assert_true(fabs(sum / n) < 4 / sqrt(n) && fabs(squares / n - 1) < 4 * 1.42 / sqrt(n));
    assert_true(fabs(fourth / n - 3) < 4 * 9.8 / sqrt(n));
    assert_true(fabs(product / 0.0025 / PIXELS) < 4 / sqrt(PIXELS));
    assert_true(fabs(neighbours / 0.0025 / n) < 4 / sqrt(n));
}

/* ---- mixup and cutmix ---- */

/* Shares from a grid of draws have the moments of Beta(alpha, alpha): mean 1/2, variance
 * 1 / (4 (2 alpha + 1)), fourth central moment 3 / (16 (2 alpha + 1) (2 alpha + 3)). */
static void shares_are_beta(void **state)
{
    gd_context *gd = *state;
    enum { SIDE = 128, N = SIDE * SIDE };
    static float draws[N][2], share[N][2];
    for (int i = 0; i < N; i++) {
        draws[i][0] = ((float)(i / SIDE) + 0.5f) / SIDE;
        draws[i][1] = ((float)(i % SIDE) + 0.5f) / SIDE;
    }
    gd_tensor *u = gd_from_host(gd, GD_SHAPE(N, 2), GD_F32, draws);
    gd_tensor *labels = gd_mod_scalar(gd_arange(gd, 0, N, 1, GD_I64), 2);
    gd_tensor *targets = gd_one_hot(labels, 2, GD_F32), *x = gd_zeros(gd, GD_SHAPE(N, 1), GD_F32);
    static const double alphas[] = { 0.1, 0.2, 0.5, 1, 2, 8 };
    for (int a = 0; a < COUNT(alphas); a++) {
        gd_tensor *images_out, *mixed;
        assert_int_equal(gd_mixup(x, targets, u, alphas[a], &images_out, &mixed), GD_OK);
        assert_int_equal(gd_tensor_read(mixed, share, sizeof share), GD_OK);
        double sum = 0, second = 0, fourth = 0, b = 2 * alphas[a];
        for (int i = 0; i < N; i++) {
            double s = share[i][i % 2] - 0.5;
            assert_true(s >= -0.5 && s <= 0.5);
            sum += s, second += s * s, fourth += s * s * s * s;
        }
        assert_true(fabs(sum / N) < 1e-5);
        assert_true(fabs(second / N / (1 / (4 * (b + 1))) - 1) < 0.02);
        assert_true(fabs(fourth / N / (3 / (16 * (b + 1) * (b + 3))) - 1) < 0.03);
    }
    const float edges[4][2] = { { 0, 0 }, { 0, 0.5f }, { 0.99999994f, 0 }, { 0.99999994f, 0.5f } };
    gd_tensor *first = gd_from_host(gd, GD_SHAPE(4, 2), GD_F32, edges), *images_out, *mixed;
    assert_int_equal(gd_mixup(gd_slice(x, 0, 0, 4, 1), gd_slice(targets, 0, 0, 4, 1), first, 0.05,
                              &images_out, &mixed),
                     GD_OK);
    assert_int_equal(gd_tensor_read(mixed, share, 8 * sizeof(float)), GD_OK);
    assert_true(share[0][0] == 0.5f && share[1][1] == 0.5f); /* no NaN at the ends */
    assert_true(share[2][0] == 1 && share[3][1] == 0);
}

/* Targets of three classes for IMAGES samples, and the share of its own that each mixed one kept. */
static gd_tensor *three_targets(gd_context *gd)
{
    return gd_one_hot(gd_arange(gd, 0, IMAGES, 1, GD_I64), IMAGES, GD_F32);
}

static void mixup_mixes(void **state)
{
    gd_context *gd = *state;
    gd_tensor *mixed, *soft, *x = some_images(gd);
    assert_int_equal(gd_mixup(x, three_targets(gd), some_draws(gd, 2, 2), 0.7, &mixed, &soft),
                     GD_OK);
    float values[COUNT(images)], share[IMAGES][IMAGES];
    assert_int_equal(gd_tensor_read(mixed, values, sizeof values), GD_OK);
    assert_int_equal(gd_tensor_read(soft, share, sizeof share), GD_OK);
    const int each = COUNT(images) / IMAGES;
    for (int i = 0; i < IMAGES; i++) {
        int next = (i + 1) % IMAGES;
        assert_true(share[i][i] > 0 && share[i][i] < 1 && share[i][(i + 2) % IMAGES] == 0);
        assert_true(share[i][next] == 1 - share[i][i]);
        for (int k = 0; k < each; k++)
            assert_true(fabsf(values[i * each + k] - (share[i][i] * images[i * each + k] +
                                                      share[i][next] * images[next * each + k])) <
                        1e-6f);
    }
}

/* Images and targets in f16 and bf16 are mixed in f32 and rounded once. */
static void halves_are_mixed_in_f32(void **state)
{
    gd_context *gd = *state;
    static const gd_dtype dtypes[] = { GD_F16, GD_BF16 };
    gd_tensor *draws = some_draws(gd, 2, 2);
    for (int d = 0; d < 2; d++) {
        gd_tensor *x = gd_cast(some_images(gd), dtypes[d]),
                  *y = gd_cast(three_targets(gd), dtypes[d]);
        gd_tensor *mixed, *soft, *exact, *exact_soft;
        assert_int_equal(gd_mixup(x, y, draws, 0.7, &mixed, &soft), GD_OK);
        assert_int_equal(
            gd_mixup(gd_cast(x, GD_F32), gd_cast(y, GD_F32), draws, 0.7, &exact, &exact_soft),
            GD_OK);
        assert_int_equal(gd_tensor_dtype(mixed), dtypes[d]);
        assert_int_equal(gd_tensor_dtype(soft), dtypes[d]);
        assert_true(gd_equal(mixed, gd_cast(exact, dtypes[d])));
        assert_true(gd_equal(soft, gd_cast(exact_soft, dtypes[d])));
    }
}

/* Each pixel is one of the two images', those of the other make a rectangle, and targets say how
 * large it is. */
static void cutmix_pastes(void **state)
{
    gd_context *gd = *state;
    int pasted_at_all = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        gd_tensor *mixed, *soft;
        assert_int_equal(gd_cutmix(some_images(gd), three_targets(gd), some_draws(gd, 4, seed), 1,
                                   &mixed, &soft),
                         GD_OK);
        float values[IMAGES][CHANNELS][HEIGHT][WIDTH], share[IMAGES][IMAGES];
        float from[IMAGES][CHANNELS][HEIGHT][WIDTH];
        memcpy(from, images, sizeof from);
        assert_int_equal(gd_tensor_read(mixed, values, sizeof values), GD_OK);
        assert_int_equal(gd_tensor_read(soft, share, sizeof share), GD_OK);
        for (int i = 0; i < IMAGES; i++) {
            int next = (i + 1) % IMAGES, pasted = 0;
            int top = HEIGHT, bottom = -1, left = WIDTH, right = -1;
            for (int y = 0; y < HEIGHT; y++)
                for (int x = 0; x < WIDTH; x++) {
                    bool other = values[i][2][y][x] != from[i][2][y][x];
                    for (int c = 0; c < CHANNELS; c++)
                        assert_true(values[i][c][y][x] == from[other ? next : i][c][y][x]);
                    if (!other)
                        continue;
                    pasted++;
                    top = y < top ? y : top, bottom = y > bottom ? y : bottom;
                    left = x < left ? x : left, right = x > right ? x : right;
                }
            assert_int_equal(pasted, pasted ? (bottom - top + 1) * (right - left + 1) : 0);
            assert_true(fabsf(share[i][next] - (float)pasted / (HEIGHT * WIDTH)) < 1e-6f);
            assert_true(share[i][i] == 1 - share[i][next]);
            pasted_at_all += pasted > 0;
        }
    }
    assert_true(pasted_at_all > 15);
}

/* ---- what is refused ---- */

static void refusals(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = some_images(gd), *draws = some_draws(gd, 4, 1);
    assert_null(gd_augment(x, draws, .flip = 1.5));
    expect_error(GD_ERR_INVALID, "gd_augment: flip of 1.5 is not in 0 … 1");
    assert_null(gd_augment(x, draws, .crop = NAN));
    expect_error(GD_ERR_INVALID, "crop of nan");
    assert_null(gd_augment(x, draws, .erase = 1, .erase_least = 0.5));
    expect_error(GD_ERR_INVALID, "erase_most");
    assert_null(gd_augment(x, draws, .height = 0));
    expect_error(GD_ERR_INVALID, "a size of 0");
    assert_int_equal(gd_augment_draws(&(gd_augment_options){ GD_AUGMENT_DEFAULTS, .hue = 1 }), -1);
    expect_error(GD_ERR_INVALID, "hue of 1");
    assert_int_equal(gd_augment_draws(&(gd_augment_options){ EVERYTHING }), ALL_DRAWS);
    assert_int_equal(gd_augment_draws(NULL), 0);
    assert_null(gd_augment(x, draws, .erase = 0.5));
    expect_error(GD_ERR_SHAPE, "draws are [3, 4]; these changes of 3 images need [3, 5]");
    assert_null(gd_augment(gd_slice(x, 0, 0, 2, 1), draws, .flip = 0.5));
    expect_error(GD_ERR_SHAPE, "of 2 images need [2, 1]");
    assert_null(gd_augment(x, gd_cast(draws, GD_F64), .flip = 0.5));
    expect_error(GD_ERR_DTYPE, "draws are f32, not f64");
    assert_null(gd_augment(gd_cast(x, GD_I32), draws, .flip = 0.5));
    expect_error(GD_ERR_DTYPE, "u8 or of floats, not i32");
    assert_null(gd_augment(gd_select(x, 0, 0), draws, .flip = 0.5));
    expect_error(GD_ERR_SHAPE, "[n, channels, height, width], not [3, 6, 7]");
    gd_tensor *two = gd_slice(x, 1, 0, 2, 1);
    assert_null(gd_augment(two, draws, .hue = 0.1));
    expect_error(GD_ERR_SHAPE, "of 2 channels");
    assert_non_null(gd_augment(two, draws, .contrast = 0.1));
    assert_null(gd_augment(NULL, draws, .flip = 0.5));
    assert_int_equal(gd_error_code(), GD_OK);

    gd_tensor *a = x, *b = x, *targets = three_targets(gd);
    assert_int_equal(gd_mixup(x, targets, draws, 0, &a, &b), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "alpha of 0");
    assert_true(!a && !b);
    assert_int_equal(gd_mixup(x, gd_slice(targets, 0, 0, 2, 1), draws, 1, &a, &b), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "gd_mixup: images [3, 3, 6, 7], targets [2, 3], draws [3, 4]");
    assert_int_equal(gd_cutmix(x, targets, gd_slice(draws, 1, 0, 3, 1), 1, &a, &b), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "[n, at least 4]");
    assert_int_equal(gd_cutmix(gd_flatten(x, 1, 2), targets, draws, 1, &a, &b), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "images of rank 3");
    assert_int_equal(gd_mixup(x, gd_cast(targets, GD_I64), draws, 1, &a, &b), GD_ERR_DTYPE);
    expect_error(GD_ERR_DTYPE, "not f32, i64, f32");
    assert_int_equal(gd_mixup(x, targets, draws, 1, NULL, &b), GD_ERR_INVALID);
    gd_error_clear();
}

/* Of one channel grey is the channel: saturation and hue change nothing. */
static void one_channel(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_slice(some_images(gd), 1, 0, 1, 1);
    assert_same_bits(gd_augment(x, some_draws(gd, 2, 4), .saturation = 0.9, .hue = 0.4), x);
}

/* ---- memory ---- */

static bool everything_once(int compiled)
{
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_tensor *x = gd ? gd_zeros(gd, GD_SHAPE(IMAGES, 3, 4, 4), GD_F32) : NULL;
    gd_tensor *u = gd ? gd_zeros(gd, GD_SHAPE(IMAGES, ALL_DRAWS), GD_F32) : NULL;
    gd_tensor *in[] = { x, u, gd ? gd_zeros(gd, GD_SHAPE(IMAGES, 3), GD_F32) : NULL };
    gd_tensor *r = NULL;
    if (in[0] && in[1] && in[2])
        r = compiled ? gd_call(gd_compile(gd, all_of_it, NULL), 3, in) : all_of_it(NULL, 3, in);
    gd_close(gd);
    return r != NULL;
}

static void failing_allocations(void **state)
{
    (void)state;
    fail_every_allocation(everything_once, 0);
    fail_every_allocation(everything_once, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(as_torchvision),
        context_test(moved_pixels_are_exact),
        context_test(bytes_and_no_draws),
        context_test(samples_are_independent),
        context_test(eager_compiled_and_threads),
        context_test(gradients_are_adjoint),
        context_test(noise_is_normal),
        context_test(shares_are_beta),
        context_test(mixup_mixes),
        context_test(halves_are_mixed_in_f32),
        context_test(cutmix_pastes),
        context_test(refusals),
        context_test(one_channel),
        context_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
