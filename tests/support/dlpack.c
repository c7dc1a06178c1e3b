/* tests/support/dlpack.c: memory of devices, shared by DLPack. */
#include "support/dlpack.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "support/tensors.h"

enum { COUNT = 6 };

static void expect(gd_tensor *t, const float expected[COUNT])
{
    float values[COUNT];
    assert_non_null(t);
    assert_int_equal(gd_tensor_read(t, values, sizeof values), GD_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == expected[i]);
}

static void expect_refusal(gd_tensor *t, gd_status code)
{
    assert_null(t);
    assert_int_equal(gd_error_code(), code);
    gd_error_clear();
}

/* A view with an offset and strides: 2, 8, 3, 9, 4, 10 of 0 to 11. */
static gd_tensor *make_view(gd_tensor *x)
{
    return gd_transpose(gd_slice(x, 1, 2, 5, 1), 0, 1);
}

static void check_sharing(gd_context *gd, int32_t type)
{
    gd_tensor *x = gd_reshape(gd_arange(gd, 0, 12, 1, GD_F32), GD_SHAPE(2, 6));
    DLManagedTensorVersioned *m = gd_dlpack_export(make_view(x), false);
    assert_non_null(m);
    assert_int_equal(m->dl_tensor.device.device_type, type);
    assert_int_equal(m->dl_tensor.device.device_id, 0);
    assert_non_null(m->dl_tensor.data);
    gd_tensor *y = gd_dlpack_import(gd, m, GD_COPY_NEVER);
    expect(y, (float[]){ 2, 8, 3, 9, 4, 10 });
    assert_non_null(gd_add_scalar_(y, 100)); /* through one and seen through the other */
    expect(gd_contiguous(make_view(x)), (float[]){ 102, 108, 103, 109, 104, 110 });

    m = gd_dlpack_export(make_view(x), false);
    gd_tensor *copy = gd_dlpack_import(gd, m, GD_COPY_ALWAYS);
    assert_non_null(gd_add_scalar_(y, -100));
    expect(copy, (float[]){ 102, 108, 103, 109, 104, 110 });
    expect(y, (float[]){ 2, 8, 3, 9, 4, 10 });

    DLManagedTensor *backward =
        gd_dlpack_export_unversioned(gd_arange(gd, 0, COUNT, 1, GD_F32), false);
    backward->dl_tensor.byte_offset += (COUNT - 1) * sizeof(float);
    backward->dl_tensor.strides[0] = -1;
    expect(gd_dlpack_import_unversioned(gd, backward, GD_COPY_NEVER),
           (float[]){ 5, 4, 3, 2, 1, 0 });

    m = gd_dlpack_export(gd_zeros(gd, GD_SHAPE(2, 0), GD_F32), false);
    assert_null(m->dl_tensor.data);
    assert_int_equal(m->dl_tensor.device.device_type, type);
    assert_non_null(gd_dlpack_import(gd, m, GD_COPY_NEVER));
}

/* What cannot be taken stays the caller's. */
static void check_refusals(gd_context *gd, int32_t type)
{
    gd_tensor *x = gd_arange(gd, 0, COUNT, 1, GD_F32);
    DLManagedTensorVersioned *m = gd_dlpack_export(x, false);
    m->dl_tensor.device.device_id = 7;
    expect_refusal(gd_dlpack_import(gd, m, GD_COPY_IF_NEEDED), GD_ERR_UNSUPPORTED);
    m->dl_tensor.device = (__typeof__(m->dl_tensor.device)){ 8, 0 }; /* Metal */
    expect_refusal(gd_dlpack_import(gd, m, GD_COPY_ALWAYS), GD_ERR_UNSUPPORTED);
    m->dl_tensor.device.device_type = type;
    gd_context *cpu = gd_open("cpu");
    expect_refusal(gd_dlpack_import(cpu, m, GD_COPY_ALWAYS), GD_ERR_UNSUPPORTED);
    gd_close(cpu);
    expect(gd_dlpack_import(gd, m, GD_COPY_NEVER), (float[]){ 0, 1, 2, 3, 4, 5 });
}

/* Between two contexts; the one that gave the memory outlives the other. */
static void check_contexts(gd_context *gd, const char *device, bool is_shared)
{
    gd_context *other = gd_open(device);
    gd_tensor *x = gd_arange(gd, 0, COUNT, 1, GD_F32);
    DLManagedTensorVersioned *m = gd_dlpack_export(x, false);
    gd_tensor *y = gd_dlpack_import(other, m, GD_COPY_IF_NEEDED);
    if (is_shared) {
        expect(y, (float[]){ 0, 1, 2, 3, 4, 5 });
        assert_non_null(gd_mul_scalar_(y, 2));
        assert_int_equal(gd_synchronize(other), GD_OK);
        expect(x, (float[]){ 0, 2, 4, 6, 8, 10 });
    } else {
        expect_refusal(y, GD_ERR_UNSUPPORTED);
        m->deleter(m);
    }
    gd_close(other);
}

void check_dlpack_of_device(const char *device, int32_t type, bool is_shared)
{
    gd_context *gd = gd_open(device, .threads = 2);
    assert_non_null(gd);
    const int64_t live = gd_memory(gd).live_tensors;
    assert_int_equal(gd_scope_begin(gd), GD_OK);
    check_sharing(gd, type);
    check_refusals(gd, type);
    check_contexts(gd, device, is_shared);
    assert_int_equal(gd_scope_end(gd), GD_OK);
    assert_int_equal(gd_scope_begin(gd),
                     GD_OK); /* what deleters gave back goes with a scope's end */
    assert_int_equal(gd_scope_end(gd), GD_OK);
    assert_int_equal(gd_memory(gd).live_tensors, live);
    gd_close(gd);
}
