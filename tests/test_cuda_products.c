/* tests/test_cuda_products.c: contexts whose numbers are a library's, on the stand-in for cuBLASLt in
 * tests/fake_cuda, which sums in f64 and rounds once: every product of f32, f16 and bf16 has those
 * bits, whatever its layout, eagerly, compiled and replayed; a call that fails is told, and nothing is
 * left. Skipped where the stand-in is not built. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/gpu/gpu.h"
#include "support/effort.h"
#include "base/half.h"
#include "fake_cuda/fake.h"
#include "graph/context.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_DEVICE = 77 };
#define FOLDER GD_BINARY_DIR "/tests/fake_cuda"

static fake_cuda *fake;

/* Before CUDA is first asked for. */
static bool load_fake(void)
{
    fake_cuda *(*state)(void) = NULL;
    void *library = dlopen(FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "fake_cuda_state") : NULL;
    memcpy(&state, &found, sizeof found);
    if (!state || setenv("GRADUS_CUDA_PATH", FOLDER, 1) != 0)
        return false;
    fake = state();
    return true;
}

static void expect_nothing_left(void)
{
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->host_blocks, 0);
    assert_int_equal(fake->graphs, 0);
    assert_int_equal(fake->handles, 0);
    assert_int_equal(fake->descriptors, 0);
}

static const gd_gpu *gpu_of(const gd_context *gd)
{
    return (const gd_gpu *)gd->device;
}

/* ---- what is there: each in a process of its own ---- */

static void expect_refusal(const char *folder, const char *version, gd_status code,
                           const char *words)
{
    int ends[2];
    char told[1024] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("GRADUS_CUDA_PATH", folder, 1);
        setenv("FAKE_CUBLAS_VERSION", version, 1);
        gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_TF32);
        const char *said = gd ? "it opens" : gd_error_message();
        const gd_status status = gd_error_code();
        const ssize_t written = write(ends[1], said, strlen(said));
        gd_error_clear();
        gd_context *exact = gd_open("cuda"); /* whose numbers need no library */
        _exit(written < 0 || status != code || !exact);
    }
    int state = -1;
    close(ends[1]);
    assert_true(read(ends[0], told, sizeof told - 1) >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &state, 0), child);
    if (state != 0 || !strstr(told, words))
        fail_msg("expected \"%s\" in \"%s\"", words, told);
}

static void a_library_that_is_missing_or_wrong_is_told(void **state)
{
    (void)state;
    static const char *const there[] = { "libcuda.so.1", "libnvrtc.so.13" };
    char folder[] = "/tmp/gradus-cublas-XXXXXX", links[3][64];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        char target[512];
        snprintf(target, sizeof target, "%s/%s", FOLDER, there[i]);
        snprintf(links[i], sizeof links[i], "%s/%s", folder, there[i]);
        assert_int_equal(symlink(target, links[i]), 0);
    }
    expect_refusal(
        folder, "130100", GD_ERR_UNSUPPORTED,
        "cuBLASLt cannot be loaded: no libcublasLt.so.13 or older was found; it comes with "
        "the CUDA toolkit and with pip install nvidia-cublas, and GRADUS_CUDA_PATH may name "
        "its folder");
    snprintf(links[2], sizeof links[2], "%s/libcublasLt.so.13", folder);
    assert_int_equal(symlink(FOLDER "/libnvrtc.so.13", links[2]), 0);
    expect_refusal(
        folder, "130100", GD_ERR_UNSUPPORTED,
        "the libcublasLt.so.13 that was found is of no use: it has no function cublasLt");
    expect_refusal(
        FOLDER, "120103", GD_ERR_UNSUPPORTED,
        "the libcublasLt.so.13 that was found says that it is version 120103, and a version "
        "of 13 is needed");
    for (int i = 0; i < 3; i++)
        unlink(links[i]);
    rmdir(folder);
}

static void expect_error(gd_status code, const char *words)
{
    assert_int_equal(gd_error_code(), code);
    if (!strstr(gd_error_message(), words))
        fail_msg("expected \"%s\" in \"%s\"", words, gd_error_message());
    gd_error_clear();
}

static gd_numbers numbers_of_default(const char *environment, gd_numbers chosen)
{
    assert_int_equal(setenv("GRADUS_NUMBERS", environment, 1), 0);
    gd_context *gd = gd_open("cuda", .numbers = chosen);
    assert_non_null(gd);
    const gd_numbers numbers = gpu_of(gd)->numbers;
    assert_int_equal(strstr(gd_context_isa(gd), ", products of cuBLASLt 13.1") != NULL,
                     numbers != GD_NUMBERS_EXACT);
    assert_int_equal(strstr(gd_context_isa(gd), " in TF32") != NULL, numbers == GD_NUMBERS_TF32);
    assert_int_equal(fake->handles, numbers != GD_NUMBERS_EXACT);
    gd_close(gd);
    return numbers;
}

static void numbers_are_chosen(void **state)
{
    (void)state;
    assert_int_equal(numbers_of_default("", GD_NUMBERS_DEFAULT), GD_NUMBERS_EXACT);
    assert_int_equal(numbers_of_default("exact", GD_NUMBERS_DEFAULT), GD_NUMBERS_EXACT);
    assert_int_equal(numbers_of_default("library", GD_NUMBERS_DEFAULT), GD_NUMBERS_LIBRARY);
    assert_int_equal(numbers_of_default("tf32", GD_NUMBERS_DEFAULT), GD_NUMBERS_TF32);
    assert_int_equal(numbers_of_default("tf32", GD_NUMBERS_EXACT), GD_NUMBERS_EXACT);
    assert_int_equal(numbers_of_default("exact", GD_NUMBERS_LIBRARY), GD_NUMBERS_LIBRARY);
    assert_int_equal(numbers_of_default("fast", GD_NUMBERS_DEFAULT), GD_NUMBERS_TF32);
    assert_int_equal(numbers_of_default("exact", GD_NUMBERS_FAST), GD_NUMBERS_TF32);
    assert_int_equal(setenv("GRADUS_NUMBERS", "quick", 1), 0);
    assert_null(gd_open("cuda"));
    expect_error(GD_ERR_INVALID, "GRADUS_NUMBERS=quick: must be exact, library, tf32 or fast");
    assert_int_equal(unsetenv("GRADUS_NUMBERS"), 0);
    assert_null(gd_open("cpu", .numbers = GD_NUMBERS_LIBRARY));
    expect_error(GD_ERR_UNSUPPORTED, "gd_open: cpu computes with the engine's own kernels alone");
    assert_null(gd_open("reference", .numbers = GD_NUMBERS_TF32));
    expect_error(GD_ERR_UNSUPPORTED, "gd_open: reference computes with the engine's own kernels");
    gd_context *cpu = gd_open("cpu", .numbers = GD_NUMBERS_EXACT);
    assert_non_null(cpu);
    gd_close(cpu);
    assert_null(gd_open("cuda", .numbers = (gd_numbers)5));
    expect_error(GD_ERR_INVALID,
                 "numbers 5; they are exact (1), library (2), tf32 (3) or fast (4)");
    expect_nothing_left();
}

/* ---- products ---- */

static float uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) / 0x1p31f;
}

static gd_tensor *draw(gd_context *gd, gd_shape shape, gd_dtype dtype, uint64_t seed)
{
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++)
        count *= shape.dim[a];
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = uniform(&seed);
    gd_tensor *t = gd_cast(gd_from_host(gd, shape, GD_F32, numbers), dtype);
    free(numbers);
    return t;
}

/* All elements, as f32. */
static float *values_of(gd_tensor *t)
{
    const size_t bytes = (size_t)gd_tensor_count(t) * sizeof(float);
    float *values = malloc(bytes + 1);
    assert_int_equal(gd_tensor_read(gd_cast(t, GD_F32), values, bytes), GD_OK);
    return values;
}

static float as_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float rounded(float sum, gd_dtype dtype)
{
    return dtype == GD_BF16  ? gd_bf16_to_f32(gd_f32_to_bf16(sum))
           : dtype == GD_F16 ? gd_f16_to_f32(gd_f32_to_f16(sum))
                             : sum;
}

/* y must be x @ w (+ bias) as the stand-in computes it. */
static void expect_product(gd_tensor *x, gd_tensor *w, gd_tensor *bias, gd_tensor *y)
{
    assert_non_null(y);
    const gd_dtype dtype = x->layout.dtype;
    const bool is_tf32 = gpu_of(x->context)->numbers == GD_NUMBERS_TF32 && dtype == GD_F32;
    gd_shape all = gd_layout_shape(&y->layout), of_x = all, of_w = all;
    const int64_t m = all.dim[all.rank - 2], n = all.dim[all.rank - 1];
    const int64_t k = x->layout.shape[x->layout.rank - 1];
    const int64_t batch = gd_tensor_count(y) / (m * n);
    of_x.dim[all.rank - 1] = of_w.dim[all.rank - 2] = k;
    float *a = values_of(gd_broadcast_to(x, of_x)), *b = values_of(gd_broadcast_to(w, of_w));
    float *c = values_of(y), *add = bias ? values_of(bias) : NULL;
    for (int64_t i = 0; i < batch * m * n; i++) {
        const int64_t row = i / n, product = row / m, column = i % n;
        double sum = 0;
        for (int64_t d = 0; d < k; d++) {
            const float p = a[row * k + d], q = b[(product * k + d) * n + column];
            sum += is_tf32 ? (double)as_tf32(p) * as_tf32(q) : (double)p * q;
        }
        const float expected = rounded((float)sum + (add ? add[column] : 0), dtype);
        if (c[i] != expected)
            fail_msg("element %lld of %lld x %lld x %lld: %a, and not %a", (long long)i,
                     (long long)m, (long long)k, (long long)n, (double)c[i], (double)expected);
    }
    free(a);
    free(b);
    free(c);
    free(add);
}

/* A matrix [.., rows, columns] that lies in one of several ways. */
enum { PLAIN, TRANSPOSED, CUT, GAPS, STEPPED, FLIPPED, SAME_ROWS, MOVED, LAYOUTS };

static gd_tensor *laid(gd_context *gd, gd_shape shape, gd_dtype dtype, int layout, uint64_t seed)
{
    const int r = shape.rank - 2, c = shape.rank - 1;
    gd_shape larger = shape;
    switch (layout) {
    case TRANSPOSED:
        larger.dim[r] = shape.dim[c];
        larger.dim[c] = shape.dim[r];
        return gd_transpose(draw(gd, larger, dtype, seed), -1, -2);
    case CUT: /* rows with gaps between them */
        larger.dim[c] += 3;
        return gd_slice(draw(gd, larger, dtype, seed), -1, 0, shape.dim[c], 1);
    case GAPS:
        larger.dim[c] *= 2;
        return gd_slice(draw(gd, larger, dtype, seed), -1, 0, larger.dim[c], 2);
    case STEPPED: /* every second row of a transposed matrix */
        larger.dim[r] = shape.dim[c];
        larger.dim[c] = 2 * shape.dim[r];
        return gd_slice(gd_transpose(draw(gd, larger, dtype, seed), -1, -2), -2, 0,
                        2 * shape.dim[r], 2);
    case FLIPPED:
        return gd_flip(draw(gd, shape, dtype, seed), GD_AXES(-2));
    case SAME_ROWS:
        larger.dim[r] = 1;
        return gd_broadcast_to(draw(gd, larger, dtype, seed), shape);
    case MOVED: /* an address that is aligned to an element and no more */
        larger.dim[r] += 1;
        larger.dim[c] += 1;
        return gd_slice(gd_slice(draw(gd, larger, dtype, seed), -1, 1, larger.dim[c], 1), -2, 1,
                        larger.dim[r], 1);
    default:
        return draw(gd, shape, dtype, seed);
    }
}

static const gd_numbers classes[] = { GD_NUMBERS_LIBRARY, GD_NUMBERS_TF32 };
static const gd_dtype dtypes[] = { GD_F32, GD_F16, GD_BF16 };

static void products_of_all_layouts_are_the_librarys(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = { { 5, 7, 3 }, { 1, 4, 6 }, { 6, 1, 1 }, { 1, 9, 1 } };
    for (int numbers = 0; numbers < 2; numbers++) {
        gd_context *gd = gd_open("cuda", .numbers = classes[numbers]);
        assert_non_null(gd);
        int64_t count = 0;
        for (int i = 0; i < 3 * 4 * LAYOUTS * LAYOUTS; i++) {
            const gd_dtype dtype = dtypes[i % 3];
            const int64_t *s = sizes[i / 3 % 4];
            const int left = i / 12 % LAYOUTS, right = i / 12 / LAYOUTS;
            gd_scope_begin(gd);
            gd_tensor *x = laid(gd, GD_SHAPE(s[0], s[1]), dtype, left, (uint64_t)i);
            gd_tensor *w = laid(gd, GD_SHAPE(s[1], s[2]), dtype, right, (uint64_t)i + 999);
            expect_product(x, w, NULL, gd_matmul(x, w));
            gd_scope_end(gd);
            count++;
        }
        assert_int_equal(gpu_of(gd)->ran_on_host, 0);
        assert_int_equal(fake->products, count);
        fake->products = 0;
        gd_close(gd);
    }
    expect_nothing_left();
}

static void batches_are_the_librarys(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    const struct {
        gd_shape x, w;
        int products; /* told */
    } cases[] = {
        { GD_SHAPE(4, 3, 5), GD_SHAPE(5, 2), 1 }, /* rows of one product */
        { GD_SHAPE(2, 4, 3, 5), GD_SHAPE(5, 2), 1 },
        { GD_SHAPE(4, 3, 5), GD_SHAPE(4, 5, 2), 1 },
        { GD_SHAPE(2, 4, 3, 5), GD_SHAPE(2, 4, 5, 2), 1 },
        { GD_SHAPE(3, 5), GD_SHAPE(4, 5, 2), 1 },
        { GD_SHAPE(2, 4, 3, 5), GD_SHAPE(4, 5, 2), 2 },
        { GD_SHAPE(2, 1, 3, 5), GD_SHAPE(1, 4, 5, 2), 2 },
        { GD_SHAPE(2, 3, 1, 3, 5), GD_SHAPE(3, 4, 5, 2), 6 },
        { GD_SHAPE(70000, 1, 2), GD_SHAPE(70000, 2, 1), 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int d = 0; d < 3; d++) {
            gd_scope_begin(gd);
            fake->products = 0;
            gd_tensor *x = draw(gd, cases[i].x, dtypes[d], i),
                      *w = draw(gd, cases[i].w, dtypes[d], 7);
            expect_product(x, w, NULL, gd_matmul(x, w));
            assert_int_equal(fake->products, cases[i].products);
            gd_scope_end(gd);
        }
    for (int layout = 0; layout < LAYOUTS; layout++) {
        gd_tensor *x = laid(gd, GD_SHAPE(3, 4, 5), GD_BF16, layout, 1),
                  *w = laid(gd, GD_SHAPE(3, 5, 6), GD_BF16, LAYOUTS - 1 - layout, 2);
        expect_product(x, w, NULL, gd_matmul(x, w));
    }
    gd_tensor *heads = gd_transpose(draw(gd, GD_SHAPE(2, 6, 3, 4), GD_F32, 3), 1, 2);
    fake->products = 0;
    expect_product(heads, gd_transpose(heads, -1, -2), NULL,
                   gd_matmul(heads, gd_transpose(heads, -1, -2)));
    assert_int_equal(fake->products, 2);
    gd_tensor *backwards = gd_flip(draw(gd, GD_SHAPE(4, 3, 5), GD_F32, 4), GD_AXES(0));
    expect_product(backwards, gd_transpose(backwards, 1, 2), NULL,
                   gd_matmul(backwards, gd_transpose(backwards, 1, 2)));
    gd_close(gd);
    expect_nothing_left();
}

/* What the library does not do is as it is everywhere. */
static void all_else_is_exact(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_TF32), *cpu = gd_open("cpu");
    static const gd_dtype others[] = { GD_F64, GD_I32, GD_I64, GD_U8 };
    fake->products = 0;
    for (int i = 0; i < 4; i++) {
        char bytes[2][12 * 8];
        gd_context *const contexts[] = { gd, cpu };
        for (int c = 0; c < 2; c++) {
            gd_tensor *x = gd_cast(gd_mul_scalar(draw(contexts[c], GD_SHAPE(3, 5), GD_F64, 1), 9),
                                   others[i]),
                      *w = gd_cast(gd_mul_scalar(draw(contexts[c], GD_SHAPE(5, 4), GD_F64, 2), 9),
                                   others[i]);
            gd_tensor *y = gd_matmul(x, w);
            assert_int_equal(gd_tensor_read(y, bytes[c], 12 * gd_dtype_size(others[i])), GD_OK);
        }
        assert_memory_equal(bytes[0], bytes[1], 12 * gd_dtype_size(others[i]));
    }
    for (int d = 0; d < 3; d++) { /* sums of nothing, and no sums */
        gd_tensor *y = gd_matmul(draw(gd, GD_SHAPE(2, 0), dtypes[d], 1),
                                 draw(gd, GD_SHAPE(0, 3), dtypes[d], 1));
        assert_true(gd_tensor_count(y) == 6 && gd_item(gd_sum(gd_abs(y), GD_ALL_AXES, false)) == 0);
        assert_int_equal(gd_tensor_count(gd_matmul(draw(gd, GD_SHAPE(0, 2), dtypes[d], 1),
                                                   draw(gd, GD_SHAPE(2, 3), dtypes[d], 1))),
                         0);
    }
    assert_int_equal(fake->products, 0);
    gd_close(gd);
    gd_close(cpu);
    expect_nothing_left();
}

static void a_bias_is_added_by_the_library_or_behind_it(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    gd_tensor *x = draw(gd, GD_SHAPE(4, 5), GD_F32, 1), *many = draw(gd, GD_SHAPE(64), GD_F32, 3);
    fake->checks = 0;
    for (int64_t n = 1; n <= 8; n++) { /* the stand-in's algorithms of odd sizes add none */
        gd_tensor *w = draw(gd, GD_SHAPE(5, n), GD_F32, 2);
        gd_tensor *const biases[] = { gd_slice(draw(gd, GD_SHAPE(n), GD_F32, 3), 0, 0, n, 1),
                                      gd_slice(many, 0, 1, n + 1, 1),
                                      gd_slice(many, 0, 0, 2 * n, 2),
                                      gd_flip(gd_slice(many, 0, 0, n, 1), GD_AXES(0)) };
        for (int i = 0; i < 4; i++) {
            gd_no_grad_begin(gd);
            gd_tensor *y = gd_linear(x, w, biases[i]);
            gd_no_grad_end(gd);
            expect_product(x, w, biases[i], y);
        }
        /* of halves: added in f32, and rounded with the product */
        gd_tensor *hx = gd_cast(x, GD_BF16), *hw = gd_cast(w, GD_BF16),
                  *hb = gd_cast(biases[0], GD_BF16);
        expect_product(hx, hw, hb, gd_linear(hx, hw, hb));
        gd_tensor *tall = draw(gd, GD_SHAPE(2, 3, 5), GD_F32, 4);
        expect_product(tall, w, biases[0], gd_linear(tall, w, biases[0]));
    }
    assert_true(fake->checks >= 8);
    gd_close(gd);
    expect_nothing_left();
}

/* ---- algorithms ---- */

static void an_algorithm_is_chosen_once(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    fake->heuristics = 0;
    for (int repeat = 0; repeat < 3; repeat++)
        for (int64_t n = 1; n <= 10; n++) {
            gd_tensor *x = draw(gd, GD_SHAPE(2, n), GD_F32, 1);
            expect_product(x, gd_transpose(x, 0, 1), NULL, gd_matmul(x, gd_transpose(x, 0, 1)));
        }
    assert_int_equal(fake->heuristics, 10);
    /* Of very many kinds of products some are given up, and made again. */
    for (int repeat = 0; repeat < 2; repeat++)
        for (int64_t m = 1; m <= 1500; m++) {
            gd_scope_begin(gd);
            gd_tensor *x = gd_ones(gd, GD_SHAPE(m, 1), GD_F32),
                      *w = gd_ones(gd, GD_SHAPE(1, 1), GD_F32);
            assert_non_null(gd_matmul(x, w));
            gd_scope_end(gd);
        }
    assert_true(fake->heuristics > 3000 - 1024 && fake->descriptors <= 4 * 1024);
    fake->refuses_products = true;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(2, 77), GD_BF16);
    gd_tensor *y = gd_matmul(x, gd_transpose(x, 0, 1));
    fake->refuses_products = false;
    assert_null(y);
    expect_error(GD_ERR_UNSUPPORTED,
                 "cuda:0: cuBLASLt 130100 has no algorithm for 1 products [2, 77] @ "
                 "[77, 2] of bf16; in a context with .numbers = GD_NUMBERS_EXACT");
    expect_product(x, gd_transpose(x, 0, 1), NULL, gd_matmul(x, gd_transpose(x, 0, 1)));
    gd_close(gd);
    expect_nothing_left();
}

/* ---- training ---- */

enum { BATCH = 16, FEATURES = 7, STEPS = 8 };

typedef struct model {
    gd_module *module;
    gd_optimizer *optimizer;
    gd_dtype precision;
} model;

static gd_tensor *objective(model *m, gd_tensor *const *in)
{
    (void)gd_autocast_begin(in[0]->context, m->precision);
    gd_tensor *h = gd_relu(gd_nn_linear(m->module, "first", in[0], 16));
    gd_tensor *sequence = gd_reshape(h, GD_SHAPE(2, BATCH / 2, 16));
    h = gd_add(h, gd_reshape(gd_nn_multi_head_attention(m->module, "attention", sequence, 2),
                             GD_SHAPE(BATCH, 16)));
    gd_tensor *error = gd_sub(gd_nn_linear(m->module, "second", h, 4), in[1]);
    (void)gd_autocast_end(in[0]->context);
    return gd_mean(gd_square(error), GD_ALL_AXES, false);
}

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    model *m = user;
    return gd_minimize(m->optimizer, objective(m, in));
}

static bool train(gd_context *gd, gd_dtype precision, bool compiles, float losses[STEPS])
{
    model m = { .precision = precision };
    bool ok = gd_scope_begin(gd) == GD_OK && gd_seed(gd, 5) == GD_OK;
    gd_tensor *in[2] = { draw(gd, GD_SHAPE(BATCH, FEATURES), GD_F32, 1),
                         draw(gd, GD_SHAPE(BATCH, 4), GD_F32, 2) };
    m.module = gd_module_create(gd);
    m.optimizer = ok ? gd_adam(m.module, .lr = 0.01) : NULL;
    gd_function *f = ok && compiles ? gd_compile(gd, step, &m) : NULL;
    ok = in[0] && in[1] && m.optimizer && (!compiles || f);
    for (int i = 0; ok && i < STEPS; i++) {
        gd_tensor *loss = compiles ? gd_call(f, 2, in) : step(&m, 2, in);
        ok = loss && gd_tensor_read(loss, &losses[i], sizeof(float)) == GD_OK;
    }
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    return gd_scope_end(gd) == GD_OK && ok;
}

/* The stand-in's algorithms have orders of their own: the same ones are chosen in all modes. */
static void training_has_the_same_bits_eagerly_and_compiled(void **state)
{
    (void)state;
    fake->orders_differ = true;
    for (int i = 0; i < 6; i++) {
        gd_context *gd = gd_open("cuda", .numbers = classes[i % 2]);
        float eager[STEPS], compiled[STEPS], exact[STEPS];
        fake->products = fake->graph_launches = 0;
        assert_true(train(gd, dtypes[i / 2], false, eager));
        const int64_t told = fake->products;
        assert_true(told >= 5 * STEPS);
        assert_true(train(gd, dtypes[i / 2], true, compiled));
        assert_memory_equal(eager, compiled, sizeof eager);
        assert_int_equal(fake->graph_launches, STEPS - 1);
        assert_int_equal(fake->products - told, told / STEPS); /* the other steps' are in graphs */
        assert_int_equal(gpu_of(gd)->ran_on_host, 0);
        gd_close(gd);
        gd = gd_open("cuda");
        assert_true(train(gd, dtypes[i / 2], true, exact));
        assert_true(i != 1 || memcmp(exact, eager, sizeof exact) != 0); /* TF32 */
        for (int s = 0; s < STEPS; s++)
            assert_true(eager[s] > 0.9F * exact[s] && eager[s] < 1.1F * exact[s]);
        gd_close(gd);
    }
    fake->orders_differ = false;
    expect_nothing_left();
}

/* Products are the library's wherever plans are made one kernel. */
static void no_product_hides_in_one_kernel(void **state)
{
    (void)state;
    float graphs[STEPS], one[STEPS];
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "always", 1), 0);
    gd_context *gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    assert_true(train(gd, GD_F32, true, one));
    assert_int_equal(gpu_of(gd)->one_kernels, 0);
    gd_close(gd);
    assert_int_equal(setenv("GRADUS_ONE_KERNEL", "never", 1), 0);
    gd = gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY);
    assert_true(train(gd, GD_F32, true, graphs));
    gd_close(gd);
    assert_memory_equal(graphs, one, sizeof one);
}

/* Attention, convolutions and recurrent networks of bf16 stay on the device, too; the sums of convolutions
 * are another library's. */
static void other_products_of_halves_stay_on_the_device(void **state)
{
    (void)state;
    float got[2][8];
    for (int c = 0; c < 2; c++) {
        gd_context *gd = c ? gd_open("cuda", .numbers = GD_NUMBERS_LIBRARY) : gd_open("cuda");
        gd_tensor *image = gd_set_requires_grad(draw(gd, GD_SHAPE(1, 2, 5, 5), GD_BF16, 1), true),
                  *kernel = gd_set_requires_grad(draw(gd, GD_SHAPE(3, 2, 3, 3), GD_BF16, 2), true);
        gd_tensor *q = gd_set_requires_grad(draw(gd, GD_SHAPE(1, 2, 6, 4), GD_BF16, 3), true);
        gd_tensor *sequence = draw(gd, GD_SHAPE(2, 3, 12), GD_BF16, 4),
                  *weight = draw(gd, GD_SHAPE(3, 12), GD_BF16, 5),
                  *bias = draw(gd, GD_SHAPE(12), GD_BF16, 6);
        gd_tensor *sums[] = { gd_conv2d(image, kernel, NULL), gd_attention(q, q, q),
                              gd_recurrent(sequence, weight, bias, GD_CELL_LSTM) };
        for (int i = 0; i < 3; i++) {
            assert_non_null(sums[i]);
            got[c][i] = (float)gd_item(gd_sum(gd_cast(sums[i], GD_F32), GD_ALL_AXES, false));
        }
        assert_int_equal(gd_backward(gd_sum(sums[0], GD_ALL_AXES, false)), GD_OK);
        assert_int_equal(gd_backward(gd_sum(sums[1], GD_ALL_AXES, false)), GD_OK);
        gd_tensor *of[] = { image, kernel, q };
        for (int i = 0; i < 3; i++)
            got[c][3 + i] =
                (float)gd_item(gd_sum(gd_cast(gd_gradient(of[i]), GD_F32), GD_ALL_AXES, false));
        assert_int_equal(gpu_of(gd)->ran_on_host, 0);
        gd_close(gd);
    }
    static const bool is_convolution[6] = { true, false, false, true, true, false };
    for (int i = 0; i < 6; i++)
        if (is_convolution[i])
            assert_true(fabsf(got[0][i] - got[1][i]) <= 0.02f * (1 + fabsf(got[0][i])));
        else
            assert_memory_equal(&got[0][i], &got[1][i], sizeof(float));
    expect_nothing_left();
}

/* ---- failures ---- */

static float expected[2][STEPS];

static bool run(gd_context *gd, float losses[2][STEPS])
{
    gd_no_grad_begin(gd);
    gd_tensor *x = laid(gd, GD_SHAPE(3, 4), GD_F32, GAPS, 1);
    gd_tensor *w = draw(gd, GD_SHAPE(4, 2), GD_F32, 2), *bias = draw(gd, GD_SHAPE(2), GD_F32, 3);
    gd_tensor *y = x && w && bias ? gd_linear(x, w, bias) : NULL;
    const bool ok = y && gd_tensor_read(y, losses[0], 6 * sizeof(float)) == GD_OK;
    gd_no_grad_end(gd);
    return ok && train(gd, GD_BF16, true, losses[1]);
}

static bool run_failing(int64_t call, int error)
{
    float losses[2][STEPS] = { { 0 } };
    gd_error_clear();
    fake->seed = 77; /* the same moments: the same calls */
    fake->calls = 0;
    fake->fail_at = call;
    fake->fail_with = error;
    gd_context *gd = gd_open("cuda:0", .threads = 1, .numbers = GD_NUMBERS_LIBRARY);
    const bool ok = gd && run(gd, losses), is_lost = fake->lost;
    if (!ok && (gd_error_code() == GD_OK || !strstr(gd_error_message(), "cuda")))
        fail_msg("call %lld failing: \"%s\"", (long long)call, gd_error_message());
    if (ok && memcmp(losses, expected, sizeof losses) != 0)
        fail_msg("other numbers where call %lld fails", (long long)call);
    fake->fail_at = -1;
    if (gd && !is_lost) { /* it works again */
        gd_error_clear();
        if (!run(gd, losses))
            fail_msg("after call %lld failed: %s", (long long)call, gd_error_message());
        assert_memory_equal(losses, expected, sizeof losses);
    }
    gd_close(gd);
    fake->lost = 0;
    expect_nothing_left();
    return ok;
}

static void fail_each(int error, int64_t step_of)
{
    int64_t tried = 0, refused = 0;
    fake->seed = 77;
    fake->calls = 0;
    gd_context *gd = gd_open("cuda:0", .threads = 1, .numbers = GD_NUMBERS_LIBRARY);
    memset(expected, 0, sizeof expected);
    assert_true(gd && run(gd, expected));
    gd_close(gd);
    const int64_t calls = fake->calls, first = test_is_slow() ? 20 : 60;
    const int64_t last = calls - 20; /* of these each, as of the first ones */
    for (int64_t i = 0; i < calls; tried++) {
        refused += !run_failing(i, error);
        if (i < first || i >= last)
            i++;
        else
            i = i + step_of < last ? i + step_of : last;
    }
    assert_true(tried > 30 && refused > tried / 4);
}

static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    fail_each(2 /* CUDA_ERROR_OUT_OF_MEMORY */, test_call_step(11));
}

static void a_device_that_is_lost_is_told(void **state)
{
    (void)state;
    fail_each(700 /* CUDA_ERROR_ILLEGAL_ADDRESS */, test_call_step(23));
}

static void a_device_without_room_for_the_workspace_is_told(void **state)
{
    (void)state;
    const size_t before = fake->memory;
    fake->memory = (size_t)24 << 20;
    gd_context *gd = gd_open("cuda:0", .numbers = GD_NUMBERS_LIBRARY);
    assert_non_null(gd);
    gd_tensor *x = draw(gd, GD_SHAPE(3, 3), GD_F32, 1);
    assert_non_null(x);
    assert_null(gd_matmul(x, x));
    expect_error(GD_ERR_MEMORY, "cuMemAlloc");
    gd_close(gd);
    fake->memory = before;
    expect_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_is_missing_or_wrong_is_told), /* before CUDA is asked for */
        cmocka_unit_test(numbers_are_chosen),
        cmocka_unit_test(products_of_all_layouts_are_the_librarys),
        cmocka_unit_test(batches_are_the_librarys),
        cmocka_unit_test(all_else_is_exact),
        cmocka_unit_test(a_bias_is_added_by_the_library_or_behind_it),
        cmocka_unit_test(an_algorithm_is_chosen_once),
        cmocka_unit_test(training_has_the_same_bits_eagerly_and_compiled),
        cmocka_unit_test(no_product_hides_in_one_kernel),
        cmocka_unit_test(other_products_of_halves_stay_on_the_device),
        cmocka_unit_test(a_call_that_fails_is_told),
        cmocka_unit_test(a_device_that_is_lost_is_told),
        cmocka_unit_test(a_device_without_room_for_the_workspace_is_told),
    };
    if (!load_fake() || setenv("GRADUS_ONE_KERNEL", "never", 1) != 0) {
        printf("skipped: the stand-in for CUDA is not built\n");
        return NO_DEVICE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
