/* tests/test_cpu_device.c: the CPU back end as a device, memory, threads, instruction sets,
 * failures; and its matrix product as an op: how matmul and linear describe their operands to the
 * core, which tests/test_gemm.c checks by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "base/threads.h"
#include "kernel_support.h"
#include "support/effort.h"

#include <stdio.h>

static gd_device *open_cpu(int threads)
{
    return gd_backend_cpu.open(&(gd_open_options){ GD_OPEN_DEFAULTS, .threads = threads }, 0);
}

static void test_find(void **state)
{
    (void)state;
    int index = -1;
    assert_ptr_equal(gd_backend_find("cpu", &index), &gd_backend_cpu);
    assert_int_equal(index, 0);
    assert_ptr_equal(gd_backend_find("cpu:0", &index), &gd_backend_cpu);
    assert_non_null(gd_backend_find("reference", &index));
    assert_ptr_equal(gd_backend_find("opencl:12", &index), &gd_backend_opencl);
    assert_int_equal(index, 12);
    static const char *const no_names[] = { "abacus", "",       "cpu:1",     "cpu:",
                                            "cpu:-1", "cpu: 0", "opencl:0x", "opencl:99999999999",
                                            ":0",     "cp" };
    for (size_t i = 0; i < sizeof no_names / sizeof *no_names; i++)
        assert_null(gd_backend_find(no_names[i], &index));
}

static void test_open(void **state)
{
    (void)state;
    gd_device *device = open_cpu(3);
    assert_non_null(device);
    assert_string_equal(device->name, "cpu");
    assert_int_equal(gd_isa_parse(device->isa), ((gd_cpu_device *)device)->isa);
    assert_int_equal(device->threads, 3);
    assert_true(device->host_memory);
    assert_int_equal(gd_backend_cpu.set_threads(device, 5), GD_OK);
    assert_int_equal(device->threads, 5);
    assert_int_equal(gd_backend_cpu.set_threads(device, 0), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(gd_backend_cpu.set_threads(device, GD_MAX_THREADS + 1), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(device->threads, 5);
    gd_backend_cpu.close(device);
    gd_backend_cpu.close(NULL);

    assert_null(open_cpu(0));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    assert_null(open_cpu(-2));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    device = open_cpu(-1);
    assert_non_null(device);
    assert_int_equal(device->threads, gd_thread_count_default());
    gd_backend_cpu.close(device);
}

static void test_bad_isa(void **state)
{
    (void)state;
    setenv("GRADUS_ISA", "sse9", 1);
    assert_null(open_cpu(1));
    assert_int_equal(gd_error_code(), GD_ERR_INVALID);
    gd_error_clear();
    for (gd_isa isa = 0; isa < GD_ISA_COUNT; isa++) {
        setenv("GRADUS_ISA", gd_isa_name(isa), 1);
        gd_device *device = open_cpu(1);
        assert_int_equal(device != NULL, gd_isa_available(isa));
        assert_int_equal(gd_error_code(), device ? GD_OK : GD_ERR_UNSUPPORTED);
        if (device) {
            assert_string_equal(device->isa, gd_isa_name(isa));
            assert_string_equal(device->extensions, "");
        }
        gd_error_clear();
        gd_backend_cpu.close(device);
    }
    static const struct {
        const char *names;
        gd_cpu_extension first, second;
    } both[] = { { "avx512_bf16+avx512_vnni", GD_CPU_AVX512_BF16, GD_CPU_AVX512_VNNI },
                 { "neon_bf16+neon_dotprod", GD_CPU_NEON_BF16, GD_CPU_NEON_DOTPROD } };
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        setenv("GRADUS_ISA", both[i].names, 1);
        if (!gd_cpu_has(both[i].first) || !gd_cpu_has(both[i].second))
            continue;
        gd_device *device = open_cpu(1);
        assert_non_null(device);
        assert_string_equal(device->extensions, both[i].names);
        gd_backend_cpu.close(device);
    }
    unsetenv("GRADUS_ISA");
}

/* Every allocation of opening and of changing the threads fails once. */
static void test_out_of_memory(void **state)
{
    (void)state;
    int failures = 0;
    for (int64_t allowed = 0;; allowed++) {
        gd_fail_allocations_after(allowed);
        gd_device *device = open_cpu(1);
        gd_status status = device ? gd_backend_cpu.set_threads(device, 2) : GD_ERR_MEMORY;
        gd_fail_allocations_after(-1);
        if (device)
            assert_int_equal(device->threads, status == GD_OK ? 2 : 1);
        gd_backend_cpu.close(device);
        if (status == GD_OK)
            break;
        assert_int_equal(status, GD_ERR_MEMORY);
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_error_clear();
        failures++;
    }
    assert_true(failures >= 3);
}

static void test_memory(void **state)
{
    (void)state;
    gd_device *device = open_cpu(1);
    static const size_t sizes[] = {
        1, 64, 100, 4096, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)7 << 20) + 12
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *memory = gd_backend_cpu.memory_alloc(device, sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        unsigned char first = 7, last = 9;
        assert_int_equal(gd_backend_cpu.memory_write(device, memory, &first, 1), GD_OK);
        assert_int_equal(gd_backend_cpu.memory_write(device, memory + sizes[i] - 1, &last, 1),
                         GD_OK);
        assert_int_equal(gd_backend_cpu.memory_read(device, &first, memory + sizes[i] - 1, 1),
                         GD_OK);
        assert_int_equal(first, 9);
        assert_int_equal(gd_backend_cpu.memory_write(device, memory, NULL, 0), GD_OK);
        gd_backend_cpu.memory_free(device, memory, sizes[i]);
    }
    gd_backend_cpu.memory_free(device, NULL, 64);
    assert_null(gd_backend_cpu.memory_alloc(device, SIZE_MAX - 100));
    assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
    gd_error_clear();
    gd_fail_allocations_after(0);
    assert_null(gd_backend_cpu.memory_alloc(device, 64));
    assert_null(gd_backend_cpu.memory_alloc(device, (size_t)4 << 20));
    gd_fail_allocations_after(-1);
    gd_error_clear();
    gd_backend_cpu.close(device);
}

/* ---- matmul and linear ---- */

/* Small whole numbers, whose products and sums are exact in every dtype but u8, where they wrap. */
static void fill_small(const operand *x)
{
    void *data = x->memory + GUARD_BYTES;
    int64_t count = (int64_t)(x->bytes / gd_dtype_size(x->layout.dtype));
    for (int64_t i = 0; i < count; i++)
        put(x->layout.dtype, data, i,
            wrap_integer(x->layout.dtype,
                         (int64_t)random_below(15) - (x->layout.dtype == GD_U8 ? 0 : 7)));
}

static void call_product(gd_device *device, int op, const operand *const *in, int n, bool relu,
                         const operand *out)
{
    gd_op row = { .id = (gd_op_id)op, .name = op == GD_OP_matmul ? "matmul" : "linear" };
    gd_linear_attr attr = { relu };
    gd_operand operands[3];
    for (int k = 0; k < n; k++)
        operands[k] = (gd_operand){ in[k]->data, &in[k]->layout };
    gd_kernel_call call = { .device = device,
                            .op = &row,
                            .attr = &attr,
                            .n = n,
                            .in = operands,
                            .out = { out->data, &out->layout } };
    assert_int_equal(device->kernel[op](&call), GD_OK);
    check_guards(out);
}

/* [.., m, k] @ [.., k, n] by definition, from dense operands of the full batch shape. */
static long double product_at(const operand *x, const operand *w, int64_t batch, int64_t i,
                              int64_t j, int64_t m, int64_t k, int64_t n)
{
    long double sum = 0;
    for (int64_t p = 0; p < k; p++)
        sum += get(x->layout.dtype, x->data, (batch * m + i) * k + p) *
               get(w->layout.dtype, w->data, (batch * k + p) * n + j);
    return sum;
}

typedef struct product_case {
    int batch_rank;
    int64_t batch[GD_MAX_RANK], m, k, n;
} product_case;

static void check_product(gd_device *device, gd_dtype dtype, const product_case *c, int op,
                          bool has_bias, bool relu)
{
    int rank = c->batch_rank + 2;
    int64_t x_shape[GD_MAX_RANK], w_shape[GD_MAX_RANK], out_shape[GD_MAX_RANK], batches = 1;
    for (int axis = 0; axis < c->batch_rank; axis++) {
        x_shape[axis] = w_shape[axis] = out_shape[axis] = c->batch[axis];
        batches *= c->batch[axis];
    }
    int at = c->batch_rank;
    x_shape[at] = out_shape[at] = c->m, x_shape[at + 1] = w_shape[at] = c->k;
    w_shape[at + 1] = out_shape[at + 1] = c->n;
    operand x = operand_stretched_anyhow(dtype, rank, x_shape, c->batch_rank),
            w = operand_stretched_anyhow(dtype, rank, w_shape, c->batch_rank);
    operand bias = operand_stretched_anyhow(dtype, 1, &c->n, 0),
            out = operand_dense(dtype, rank, out_shape);
    fill_small(&x), fill_small(&w), fill_small(&bias);
    operand dense_x = dense_copy(&x, rank, x_shape), dense_w = dense_copy(&w, rank, w_shape);
    operand dense_bias = dense_copy(&bias, 1, &c->n);

    call_product(device, op, (const operand *[]){ &x, &w, &bias }, has_bias ? 3 : 2, relu, &out);
    for (int64_t b = 0; b < batches; b++)
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < c->n; j++) {
                long double want = product_at(&dense_x, &dense_w, b, i, j, c->m, c->k, c->n);
                want += has_bias ? get(dtype, dense_bias.data, j) : 0;
                want = wrap_to(dtype, want);
                want = relu && want < 0 ? 0 : want;
                long double got = get(dtype, out.data, (b * c->m + i) * c->n + j);
                if (got != want)
                    fail_msg("%s %s %s [%d, %d, %d]: (%d, %d) is %Lg, not %Lg", device->isa,
                             row_name(op), gd_dtype_name(dtype), (int)c->m, (int)c->k, (int)c->n,
                             (int)i, (int)j, got, want);
            }
    operand_free(&x), operand_free(&w), operand_free(&bias), operand_free(&out);
    operand_free(&dense_x), operand_free(&dense_w), operand_free(&dense_bias);
}

static void test_products(void **state)
{
    (void)state;
    static const product_case cases[] = {
        { 0, { 0 }, 1, 1, 1 },      { 0, { 0 }, 5, 7, 3 },
        { 0, { 0 }, 50, 33, 16 },   { 1, { 4 }, 6, 5, 9 },
        { 2, { 3, 2 }, 4, 8, 5 },   { 0, { 0 }, 3, 0, 4 },
        { 0, { 0 }, 0, 3, 4 },      { 1, { 0 }, 2, 3, 4 },
        { 0, { 0 }, 2, 3, 0 },      { 6, { 1, 2, 1, 2, 1, 3 }, 3, 4, 2 },
        { 0, { 0 }, 130, 300, 70 },
    };
    static const gd_dtype dtypes[] = { GD_F32, GD_F64, GD_I32, GD_I64, GD_U8 };
    for (gd_isa isa = 0; isa < GD_ISA_COUNT; isa++) {
        if (!test_tries_isa(isa))
            continue;
        setenv("GRADUS_ISA", gd_isa_name(isa), 1);
        gd_device *device = open_cpu(2);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                for (int round = 0; round < 4; round++) {
                    check_product(device, dtypes[d], &cases[c], GD_OP_matmul, false, false);
                    check_product(device, dtypes[d], &cases[c], GD_OP_linear, round & 1,
                                  (round & 2) != 0);
                }
        gd_backend_cpu.close(device);
    }
    unsetenv("GRADUS_ISA");
}

/* linear is matmul, add and relu to the bit: also for what is not a number, and for zeros. */
static void test_linear_is_its_parts(void **state)
{
    (void)state;
    gd_device *device = open_cpu(1);
    const int64_t x_shape[] = { 19, 23 }, w_shape[] = { 23, 37 }, out_shape[] = { 19, 37 };
    for (int round = 0; round < 20; round++) {
        gd_dtype dtype = round % 2 ? GD_F64 : GD_F32;
        operand x = operand_dense(dtype, 2, x_shape), w = operand_dense(dtype, 2, w_shape);
        operand bias = operand_dense(dtype, 1, &w_shape[1]);
        operand parts = operand_dense(dtype, 2, out_shape),
                whole = operand_dense(dtype, 2, out_shape);
        if (round < 10)
            fill(&x), fill(&w), fill(&bias);
        else
            fill_small(&x), fill_small(&w), fill_small(&bias);
        call_product(device, GD_OP_matmul, (const operand *[]){ &x, &w }, 2, false, &parts);
        run_row(device, GD_OP_add, (const operand *[]){ &parts, &bias }, 2, &parts);
        run_row(device, GD_OP_relu, (const operand *[]){ &parts }, 1, &parts);
        call_product(device, GD_OP_linear, (const operand *[]){ &x, &w, &bias }, 3, true, &whole);
        assert_true(same_elements(dtype, whole.data, parts.data, 19 * 37));
        operand_free(&x), operand_free(&w), operand_free(&bias), operand_free(&parts),
            operand_free(&whole);
    }
    gd_backend_cpu.close(device);
}

static void test_product_of_other_dtypes(void **state)
{
    (void)state;
    gd_device *device = open_cpu(1);
    const int64_t shape[] = { 2, 2 };
    operand x = operand_dense(GD_BF16, 2, shape);
    gd_op row = { .id = GD_OP_matmul, .name = "matmul" };
    gd_operand in[] = { { x.data, &x.layout }, { x.data, &x.layout } };
    gd_kernel_call call = {
        .device = device, .op = &row, .n = 2, .in = in, .out = { x.data, &x.layout }
    };
    assert_int_equal(device->kernel[GD_OP_matmul](&call), GD_ERR_UNSUPPORTED);
    assert_string_equal(gd_error_message(), "cpu: no kernel for matmul of bf16");
    gd_error_clear();
    operand_free(&x);
    gd_backend_cpu.close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_bad_isa),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_linear_is_its_parts),
        cmocka_unit_test(test_product_of_other_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
