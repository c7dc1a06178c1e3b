/* tests/test_dlpack.c: tensors' memory shared with other libraries. That of devices: test_opencl.c and
 * test_cuda.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "support/context.h"
#include "support/dlpack.h"

static int open_cpu(void **state)
{
    gd_error_clear();
    *state = gd_open("cpu", .threads = 2);
    return *state ? 0 : -1;
}

#define cpu_test(function) cmocka_unit_test_setup_teardown(function, open_cpu, close_context)

static int64_t live(gd_context *gd)
{
    return gd_memory(gd).live_tensors;
}

/* ---- export ---- */

static void the_struct_says_what_the_tensor_is(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_reshape(gd_arange(gd, 0, 6, 1, GD_F32), GD_SHAPE(2, 3));
    gd_tensor *view = gd_slice(gd_transpose(x, 0, 1), 0, 2, GD_END, 1);
    DLManagedTensorVersioned *m = gd_dlpack_export(view, false);
    assert_non_null(m);
    assert_int_equal(m->version.major, 1);
    assert_int_equal(m->flags, 0);
    DLTensor *d = &m->dl_tensor;
    assert_ptr_equal((char *)d->data + d->byte_offset, gd_tensor_data(view));
    assert_int_equal(d->device.device_type, 1);
    assert_int_equal(d->device.device_id, 0);
    assert_int_equal(d->ndim, 2);
    assert_int_equal(d->shape[0], 1);
    assert_int_equal(d->shape[1], 2);
    assert_int_equal(d->strides[0], 1);
    assert_int_equal(d->strides[1], 3);
    m->deleter(m);
}

static void every_dtype_has_its_code(void **state)
{
    static const struct {
        gd_dtype dtype;
        int code, bits;
    } rows[] = { { GD_F32, 2, 32 }, { GD_F64, 2, 64 }, { GD_F16, 2, 16 }, { GD_BF16, 4, 16 },
                 { GD_I8, 0, 8 },   { GD_I16, 0, 16 }, { GD_I32, 0, 32 }, { GD_I64, 0, 64 },
                 { GD_U8, 1, 8 },   { GD_U16, 1, 16 }, { GD_U32, 1, 32 }, { GD_U64, 1, 64 },
                 { GD_BOOL, 6, 8 } };
    assert_int_equal(sizeof rows / sizeof *rows, GD_DTYPE_COUNT);
    gd_context *gd = *state;
    for (size_t i = 0; i < GD_DTYPE_COUNT; i++) {
        gd_tensor *x = gd_ones(gd, GD_SHAPE(3), rows[i].dtype);
        DLManagedTensor *m = gd_dlpack_export_unversioned(x, false);
        assert_non_null(m);
        assert_int_equal(m->dl_tensor.dtype.code, rows[i].code);
        assert_int_equal(m->dl_tensor.dtype.bits, rows[i].bits);
        assert_int_equal(m->dl_tensor.dtype.lanes, 1);
        gd_tensor *back = gd_dlpack_import_unversioned(gd, m, GD_COPY_NEVER);
        assert_same_bits(x, back);
        assert_ptr_equal(gd_tensor_data(x), gd_tensor_data(back));
    }
}

static void a_number_and_nothing_are_exported(void **state)
{
    gd_context *gd = *state;
    DLManagedTensorVersioned *m = gd_dlpack_export(gd_scalar(gd, 3, GD_F64), false);
    assert_int_equal(m->dl_tensor.ndim, 0);
    assert_true(gd_item(gd_dlpack_import(gd, m, GD_COPY_NEVER)) == 3);
    m = gd_dlpack_export(gd_zeros(gd, GD_SHAPE(2, 0), GD_F32), false);
    assert_null(m->dl_tensor.data);
    assert_int_equal(gd_tensor_shape(gd_dlpack_import(gd, m, GD_COPY_NEVER)).dim[1], 0);
}

/* What requires a gradient is for reading, or a copy. */
static void leaves_are_handed_over_as_read_only(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_ones(gd, GD_SHAPE(2), GD_F32), true);
    DLManagedTensorVersioned *m = gd_dlpack_export(w, false);
    assert_int_equal(m->flags, 1);
    m->deleter(m);
    assert_null(gd_dlpack_export_unversioned(w, false));
    expect_error(GD_ERR_STATE, "requires a gradient");
    DLManagedTensor *copied = gd_dlpack_export_unversioned(w, true);
    assert_ptr_not_equal(copied->dl_tensor.data, gd_tensor_data(w));
    copied->deleter(copied);
    m = gd_dlpack_export(w, true);
    assert_int_equal(m->flags, 2);
    assert_true(((float *)m->dl_tensor.data)[1] == 1);
    m->deleter(m);
}

static void *delete_it(void *managed)
{
    DLManagedTensorVersioned *m = managed;
    m->deleter(m);
    return NULL;
}

/* The tensor lives as long as the struct, and any thread may end that. */
static void any_thread_may_call_the_deleter(void **state)
{
    gd_context *gd = *state;
    int64_t before = live(gd);
    DLManagedTensorVersioned *exports[4];
    gd_scope_begin(gd);
    gd_tensor *x = gd_full(gd, GD_SHAPE(4), 7, GD_F32);
    for (int i = 0; i < 4; i++)
        exports[i] = gd_dlpack_export(x, i == 3);
    gd_scope_end(gd);
    assert_int_equal(live(gd), before + 2);
    assert_true(((float *)exports[0]->dl_tensor.data)[3] == 7);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, delete_it, exports[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    gd_claim(gd, NULL);
    assert_int_equal(live(gd), before);
}

static gd_tensor *doubled(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_add(in[0], in[0]);
}

/* A tensor over another's memory ends, and with it the other, whatever ends them. */
static void what_is_shared_within_the_library_ends_at_once(void **state)
{
    gd_context *gd = *state;
    int64_t before = live(gd);
    gd_tensor *t = gd_claim(gd, gd_ones(gd, GD_SHAPE(3), GD_F32));
    for (int i = 0; i < 3; i++) {
        gd_tensor *over = gd_dlpack_import(gd, gd_dlpack_export(t, false), GD_COPY_NEVER);
        gd_release_later(t);
        t = gd_claim(gd, over);
    }
    assert_int_equal(live(gd), before + 4);
    gd_release_later(t);
    gd_claim(gd, NULL);
    assert_int_equal(live(gd), before);
}

/* A plan writes its next result elsewhere. */
static void an_exported_result_stays(void **state)
{
    gd_context *gd = *state;
    gd_function *f = gd_compile(gd, doubled, NULL);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32), *y = gd_full(gd, GD_SHAPE(3), 5, GD_F32);
    DLManagedTensorVersioned *m = gd_dlpack_export(gd_call(f, 1, &x), false);
    assert_non_null(gd_call(f, 1, &y));
    assert_true(((float *)m->dl_tensor.data)[0] == 2);
    m->deleter(m);
}

static gd_tensor *exported(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    assert_null(gd_dlpack_export(in[0], false));
    return in[0];
}

static void what_has_no_memory_is_not_exported(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    assert_null(gd_call(gd_compile(gd, exported, NULL), 1, &x));
    expect_error(GD_ERR_STATE, "gd_dlpack_export: the tensor has no value while");
    assert_null(gd_dlpack_export(NULL, false));
    expect_error(GD_ERR_INVALID, "NULL");
}

/* ---- import ---- */

/* Another library's tensor: 24 floats 0, 1, …, and how often its deleter was called. */
typedef struct {
    _Alignas(16) float values[24];
    int64_t shape[9], strides[9];
    int deleted;
    DLManagedTensorVersioned managed;
} foreign;

static void count_deletion(DLManagedTensorVersioned *m)
{
    ((foreign *)m->manager_ctx)->deleted++;
}

/* [2, 3] of strides [12, 4], from element 1 on. */
static DLManagedTensorVersioned *make_foreign(foreign *f)
{
    *f = (foreign){ .shape = { 2, 3 }, .strides = { 12, 4 } };
    for (int i = 0; i < 24; i++)
        f->values[i] = (float)i;
    f->managed = (DLManagedTensorVersioned){
        .version = { 1, 0 },
        .manager_ctx = f,
        .deleter = count_deletion,
        .dl_tensor = { .data = f->values,
                       .device = { 1, 0 },
                       .ndim = 2,
                       .dtype = { 2, 32, 1 },
                       .shape = f->shape,
                       .strides = f->strides,
                       .byte_offset = 4 },
    };
    return &f->managed;
}

static void expect_values(gd_tensor *t, const float *expected)
{
    float values[6];
    assert_non_null(t);
    assert_int_equal(gd_tensor_read(t, values, sizeof values), GD_OK);
    assert_memory_equal(values, expected, sizeof values);
}

static void memory_is_shared_with_its_strides(void **state)
{
    gd_context *gd = *state;
    foreign f;
    gd_scope_begin(gd);
    gd_tensor *t = gd_dlpack_import(gd, make_foreign(&f), GD_COPY_NEVER);
    expect_values(t, (float[]){ 1, 5, 9, 13, 17, 21 });
    assert_ptr_equal(gd_tensor_data(t), f.values + 1);
    f.values[5] = -1;
    expect_values(t, (float[]){ 1, -1, 9, 13, 17, 21 });
    gd_tensor *view = gd_retain(gd_select(t, 0, 1));
    gd_scope_end(gd);
    assert_int_equal(f.deleted, 0);
    gd_release(view);
    assert_int_equal(f.deleted, 1);
}

static void strides_may_be_negative_zero_or_left_out(void **state)
{
    gd_context *gd = *state;
    foreign f;
    make_foreign(&f)->dl_tensor.byte_offset = 40;
    f.strides[0] = 0, f.strides[1] = -4;
    gd_scope_begin(gd);
    gd_tensor *t = gd_dlpack_import(gd, &f.managed, GD_COPY_NEVER);
    expect_values(t, (float[]){ 10, 6, 2, 10, 6, 2 });
    expect_values(gd_flip(t, GD_AXES(1)), (float[]){ 2, 6, 10, 2, 6, 10 });
    make_foreign(&f)->dl_tensor.strides = NULL;
    expect_values(gd_dlpack_import(gd, &f.managed, GD_COPY_NEVER), (float[]){ 1, 2, 3, 4, 5, 6 });
    gd_scope_end(gd);
    assert_int_equal(f.deleted, 2);
    make_foreign(&f);
    gd_scope_begin(gd);
    f.shape[0] = 1, f.strides[0] = INT64_MIN; /* of one element: it is never taken */
    gd_tensor *row = gd_dlpack_import(gd, &f.managed, GD_COPY_NEVER);
    assert_non_null(row);
    assert_true(gd_item(gd_sum(row, GD_ALL_AXES, false)) == 1 + 5 + 9);
    gd_scope_end(gd);
    assert_int_equal(f.deleted, 1);
}

/* A copy is there at once, and the memory given back. */
static void what_cannot_be_shared_is_copied(void **state)
{
    gd_context *gd = *state;
    const float expected[] = { 1, 5, 9, 13, 17, 21 };
    foreign f;
    expect_values(gd_dlpack_import(gd, make_foreign(&f), GD_COPY_ALWAYS), expected);
    assert_int_equal(f.deleted, 1);
    make_foreign(&f)->flags = 1; /* read-only */
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_NEVER));
    expect_error(GD_ERR_UNSUPPORTED, "a copy is needed: the memory is read-only");
    assert_int_equal(f.deleted, 0);
    expect_values(gd_dlpack_import(gd, &f.managed, GD_COPY_IF_NEEDED), expected);
    assert_int_equal(f.deleted, 1);
    make_foreign(&f);
    memmove((char *)f.values + 1, f.values, sizeof f.values - 4);
    f.managed.dl_tensor.byte_offset = 5;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_NEVER));
    expect_error(GD_ERR_UNSUPPORTED, "not aligned");
    expect_values(gd_dlpack_import(gd, &f.managed, GD_COPY_IF_NEEDED), expected);
}

/* The struct stays the caller's after each error. */
static void what_is_no_tensor_here_is_refused(void **state)
{
    gd_context *gd = *state;
    foreign f;
    make_foreign(&f)->version.major = 2;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_IF_NEEDED));
    expect_error(GD_ERR_UNSUPPORTED, "DLPack 2.0");
    make_foreign(&f)->dl_tensor.device.device_type = 2;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_UNSUPPORTED, "type 2");
    make_foreign(&f)->dl_tensor.dtype.lanes = 4;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_DTYPE, "4 lanes");
    make_foreign(&f)->dl_tensor.dtype.code = 5;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_DTYPE, "code 5");
    make_foreign(&f)->dl_tensor.ndim = 9;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_SHAPE, "rank 9");
    make_foreign(&f);
    f.shape[1] = -1;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_SHAPE, "gd_dlpack_import");
    make_foreign(&f)->dl_tensor.shape = NULL;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_INVALID, "the shape is NULL");
    for (int far = 0; far < 4; far++) {
        make_foreign(&f);
        f.strides[far / 2] = far % 2 ? INT64_MIN : INT64_MAX;
        assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
        expect_error(GD_ERR_SHAPE, "reach beyond any memory");
    }
    make_foreign(&f)->dl_tensor.data = NULL;
    assert_null(gd_dlpack_import(gd, &f.managed, GD_COPY_ALWAYS));
    expect_error(GD_ERR_INVALID, "NULL");
    assert_null(gd_dlpack_import(gd, NULL, GD_COPY_ALWAYS));
    expect_error(GD_ERR_INVALID, "NULL");
    assert_null(gd_dlpack_import_unversioned(NULL, (DLManagedTensor *)(void *)&f, GD_COPY_NEVER));
    expect_error(GD_ERR_INVALID, "the context is NULL");
    assert_null(gd_dlpack_import(gd, make_foreign(&f), (gd_copying)3));
    expect_error(GD_ERR_INVALID, "3 is no gd_copying");
    assert_int_equal(f.deleted, 0);
}

/* On a device of which the host has no addresses. */
static void memory_of_other_devices_is_copied_in_and_not_handed_out(void **state)
{
    (void)state;
    guard_reset();
    gd_context *gd = gd_open("guard");
    assert_non_null(gd);
    foreign f;
    gd_tensor *t = gd_dlpack_import(gd, make_foreign(&f), GD_COPY_IF_NEEDED);
    assert_int_equal(f.deleted, 1);
    expect_values(t, (float[]){ 1, 5, 9, 13, 17, 21 });
    assert_null(gd_dlpack_import(gd, make_foreign(&f), GD_COPY_NEVER));
    expect_error(GD_ERR_UNSUPPORTED, "a copy is needed");
    assert_null(gd_dlpack_export(t, false));
    expect_error(GD_ERR_UNSUPPORTED, "guard");
    gd_close(gd);
}

static bool exchange(int copying)
{
    gd_context *gd = gd_open("cpu", .threads = 1);
    gd_tensor *x = gd ? gd_ones(gd, GD_SHAPE(3), GD_F32) : NULL;
    DLManagedTensorVersioned *m = x ? gd_dlpack_export(x, copying == GD_COPY_ALWAYS) : NULL;
    bool ok = m && gd_dlpack_import(gd, m, (gd_copying)copying);
    if (m && !ok)
        m->deleter(m);
    if (gd)
        gd_close(gd);
    return ok;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_every_allocation(exchange, GD_COPY_NEVER);
    fail_every_allocation(exchange, GD_COPY_ALWAYS);
}

/* ---- capsules ---- */

typedef struct {
    const char *name;
    void *pointer;
} capsule;

static int is_valid(void *c, const char *name)
{
    return strcmp(((capsule *)c)->name, name) == 0;
}

static void *get_pointer(void *c, const char *name)
{
    (void)name;
    return ((capsule *)c)->pointer;
}

static void a_capsule_that_nobody_took_ends_its_tensor(void **state)
{
    gd_context *gd = *state;
    gd_tensor *x = gd_ones(gd, GD_SHAPE(3), GD_F32);
    foreign f;
    capsule taken = { "used_dltensor_versioned", make_foreign(&f) };
    capsule left = { "dltensor_versioned", &f.managed };
    gd_dlpack_capsule_destructor(&left); /* Python is not known yet */
    gd_dlpack_set_capsules(is_valid, get_pointer);
    gd_dlpack_capsule_destructor(&taken);
    assert_int_equal(f.deleted, 0);
    gd_dlpack_capsule_destructor(&left);
    assert_int_equal(f.deleted, 1);
    gd_retain(x);
    int64_t before = live(gd);
    left = (capsule){ "dltensor", gd_dlpack_export_unversioned(x, true) };
    assert_int_equal(live(gd), before + 1);
    gd_dlpack_capsule_destructor(&left);
    gd_claim(gd, NULL);
    assert_int_equal(live(gd), before);
    gd_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cpu_test(the_struct_says_what_the_tensor_is),
        cpu_test(every_dtype_has_its_code),
        cpu_test(a_number_and_nothing_are_exported),
        cpu_test(leaves_are_handed_over_as_read_only),
        cpu_test(any_thread_may_call_the_deleter),
        cpu_test(what_is_shared_within_the_library_ends_at_once),
        cpu_test(an_exported_result_stays),
        cpu_test(what_has_no_memory_is_not_exported),
        cpu_test(memory_is_shared_with_its_strides),
        cpu_test(strides_may_be_negative_zero_or_left_out),
        cpu_test(what_cannot_be_shared_is_copied),
        cpu_test(what_is_no_tensor_here_is_refused),
        cmocka_unit_test(memory_of_other_devices_is_copied_in_and_not_handed_out),
        cmocka_unit_test(every_allocation_may_fail),
        cpu_test(a_capsule_that_nobody_took_ends_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
