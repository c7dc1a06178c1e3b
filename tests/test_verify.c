/* tests/test_verify.c: the compiler's verifier is handed programs and plans that break its rules,
 * one rule at a time, and names what is wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"
#include "compile/memory.h"
#include "support/context.h"

/* A program as a trace of these lines would give it; each is the value of its number. */
enum {
    X,      /* an argument [2, 3] */
    OLD,    /* a tensor outside, t [2, 3] */
    ONE,    /* full(1), a constant */
    SUM,    /* X + OLD */
    SHOWN,  /* SUM as [6] */
    DOUBLE, /* SUM * ONE */
    READ,   /* neg(SHOWN), a result */
    STORE,  /* t = DOUBLE */
    NEW,    /* t, after that */
    LAST,   /* NEW * NEW, a result */
    COUNT
};

static int32_t push(gd_ir *ir, gd_op_id id, int n, const int32_t *in, const void *attr,
                    gd_shape shape)
{
    gd_layout layout;
    assert_int_equal(gd_layout_init(&layout, shape, GD_F32, "test"), GD_OK);
    int32_t value = gd_ir_push(ir, gd_op_row(id), n, in, attr, &layout);
    assert_true(value >= 0);
    return value;
}

static void push_external(gd_ir *ir, gd_tensor *t, int32_t version)
{
    gd_full_attr none = { 0 };
    int32_t value = push(ir, GD_OP_full, 0, NULL, &none, gd_tensor_shape(t));
    ir->values[value].kind = GD_IR_EXTERNAL;
    ir->values[value].external = gd_retain(t);
    ir->values[value].version = version;
    ir->values[value].memory = 0;
}

static void make_program(gd_ir *ir, gd_context *gd, gd_tensor *t)
{
    const gd_shape shape = GD_SHAPE(2, 3);
    gd_full_attr one = { .shape = shape, .dtype = GD_F32 };
    gd_shape_attr flat;
    memset(&flat, 0, sizeof flat);
    flat.shape = GD_SHAPE(6);
    *ir = (gd_ir){ .context = gd, .memory_count = 1 };
    push(ir, GD_OP_full, 0, NULL, &one, shape);
    ir->values[X].kind = GD_IR_INPUT;
    push_external(ir, t, 0);
    push(ir, GD_OP_full, 0, NULL, &one, shape);
    ir->values[ONE].is_constant = true;
    push(ir, GD_OP_add, 2, (int32_t[]){ X, OLD }, NULL, shape);
    push(ir, GD_OP_reshape, 1, (int32_t[]){ SUM }, &flat, flat.shape);
    push(ir, GD_OP_mul, 2, (int32_t[]){ SUM, ONE }, NULL, shape);
    push(ir, GD_OP_neg, 1, (int32_t[]){ SHOWN }, NULL, flat.shape);
    push(ir, GD_OP_assign, 2, (int32_t[]){ OLD, DOUBLE }, NULL, shape);
    push_external(ir, t, 1);
    push(ir, GD_OP_mul, 2, (int32_t[]){ NEW, NEW }, NULL, shape);
    assert_int_equal(ir->count, COUNT);
    ir->outputs = gd_alloc(2 * sizeof *ir->outputs);
    assert_non_null(ir->outputs);
    ir->output_count = 2;
    ir->outputs[0] = READ;
    ir->outputs[1] = LAST;
    ir->values[READ].is_output = ir->values[LAST].is_output = true;
}

/* ---- programs ---- */

static void reads_itself(gd_ir *ir)
{
    ir->values[SUM].in[1] = SUM;
}
static void reads_what_comes_later(gd_ir *ir)
{
    ir->values[SUM].in[1] = DOUBLE;
}
static void reads_no_value(gd_ir *ir)
{
    ir->values[SUM].in[0] = -1;
}
static void removes_what_is_read(gd_ir *ir)
{
    ir->values[SUM].kind = GD_IR_DEAD;
}
static void reads_an_effect(gd_ir *ir)
{
    ir->values[LAST].in[0] = STORE;
}
static void has_another_shape(gd_ir *ir)
{
    ir->values[DOUBLE].layout.shape[1] = 4;
}
static void has_another_dtype(gd_ir *ir)
{
    ir->values[LAST].layout.dtype = GD_I32;
}
static void has_other_strides(gd_ir *ir)
{
    ir->values[SUM].layout.stride[0] = 1;
}
static void has_another_offset(gd_ir *ir)
{
    ir->values[SHOWN].layout.offset = 1;
}
static void operands_do_not_fit(gd_ir *ir)
{
    ir->values[DOUBLE].in[1] = SHOWN;
}
static void has_too_few_operands(gd_ir *ir)
{
    ir->values[SUM].n = 1;
}
static void is_a_view_elsewhere(gd_ir *ir)
{
    ir->values[SHOWN].root = X;
}
static void lies_in_another(gd_ir *ir)
{
    ir->values[DOUBLE].root = SUM;
}
static void is_a_constant_of_an_argument(gd_ir *ir)
{
    ir->values[SUM].is_constant = true;
}
static void assigns_to_an_argument(gd_ir *ir)
{
    ir->values[STORE].in[0] = X;
}
static void removes_a_result(gd_ir *ir)
{
    ir->values[LAST].kind = GD_IR_DEAD;
}
static void gives_an_argument(gd_ir *ir)
{
    ir->outputs[0] = X;
}
static void gives_what_may_be_overwritten(gd_ir *ir)
{
    ir->outputs[0] = SUM;
}
static void gives_no_value(gd_ir *ir)
{
    ir->outputs[1] = COUNT;
}
static void reads_old_contents_too_late(gd_ir *ir)
{
    ir->values[LAST].in[1] = OLD;
}
static void reads_new_contents_too_early(gd_ir *ir)
{
    ir->values[NEW].version = 2;
}
/* As `forward` does it. */
static void make_in_target(gd_ir *ir, int32_t value, int32_t target)
{
    ir->values[value].external = ir->values[target].external;
    ir->values[value].memory = ir->values[target].memory;
}
static void assigns_too_early(gd_ir *ir) /* DOUBLE is made in t, as `forward` does, before OLD is */
{                                        /* read */
    ir->values[STORE].kind = GD_IR_DEAD;
    make_in_target(ir, DOUBLE, OLD);
    ir->values[LAST].in[0] = OLD;
}
static void loses_an_assignment(gd_ir *ir)
{
    ir->values[STORE].kind = GD_IR_DEAD;
}
static void has_an_extra_result_of_no_group(gd_ir *ir)
{
    gd_extra_result_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = GD_F32;
    attr.shape = GD_SHAPE(2, 3);
    push(ir, GD_OP_extra_result, 1, (int32_t[]){ SUM }, &attr, attr.shape);
}

static void lies_in_no_memory(gd_ir *ir)
{
    ir->values[OLD].memory = -1;
}
static void lies_in_memory_of_a_tensor_outside(gd_ir *ir)
{
    ir->values[SUM].memory = 0;
}

static void joins_what_is_in_the_block(gd_ir *ir)
{
    ir->values[READ].is_joined = true;
}

static const struct {
    void (*spoil)(gd_ir *ir);
    const char *words;
} faults[] = {
    { reads_itself, "value 3 (add): an operand comes after its user" },
    { reads_what_comes_later, "value 3 (add): an operand comes after its user" },
    { reads_no_value, "an operand comes after its user" },
    { removes_what_is_read, "value 4 (reshape): an operand was removed" },
    { reads_an_effect, "an operand is an effect" },
    { has_another_shape, "value 5 (mul): its layout is not the one the op infers" },
    { has_another_dtype, "value 9 (mul): its layout is not the one the op infers" },
    { has_other_strides, "value 3 (add): its layout is not the one the op infers" },
    { has_another_offset, "value 4 (reshape): its layout is not the one the op infers" },
    { operands_do_not_fit, "gd_mul: shapes [2, 3] and [6] do not broadcast" },
    { has_too_few_operands, "gd_add: 1 operands given" },
    { is_a_view_elsewhere, "value 4 (reshape): a view's root is not its operand's" },
    { lies_in_another, "value 5 (mul): its root is not itself" },
    { is_a_constant_of_an_argument, "value 3 (add): a constant of what is none" },
    { assigns_to_an_argument, "value 7 (assign): an effect on what is no tensor outside" },
    { removes_a_result, "value 9 (mul): a result that was removed" },
    { gives_an_argument, "value 0 (full): a result that was removed, or has no memory of its own" },
    { gives_what_may_be_overwritten, "value 3 (add): a result" },
    { gives_no_value, "result 1 is no value" },
    { reads_old_contents_too_late, "value 9 (mul): it reads contents of a tensor outside" },
    { reads_new_contents_too_early, "value 9 (mul): it reads contents of a tensor outside" },
    { assigns_too_early, "value 9 (mul): it reads contents of a tensor outside" },
    { loses_an_assignment, "value 9 (mul): it reads contents of a tensor outside" },
    { has_an_extra_result_of_no_group,
      "value 10 (extra_result): an extra result does not follow its group" },
    { lies_in_no_memory, "value 1 (full): the number of its memory" },
    { lies_in_memory_of_a_tensor_outside, "value 3 (add): the number of its memory" },
    { joins_what_is_in_the_block, "value 5 (mul): its kernel writes this twice, or into the plan" },
};

static void broken_programs_are_found(void **state)
{
    gd_context *gd = *state;
    gd_tensor *t = gd_ones(gd, GD_SHAPE(2, 3), GD_F32);
    gd_ir ir;
    make_program(&ir, gd, t);
    assert_int_equal(gd_ir_verify(&ir, "test"), GD_OK);
    gd_ir_free(&ir);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        make_program(&ir, gd, t);
        faults[i].spoil(&ir);
        assert_true(gd_ir_verify(&ir, "a pass") != GD_OK);
        expect_error(gd_error_code(), faults[i].words);
        gd_ir_free(&ir);
    }
    /* What `forward` may do: nothing reads the old contents any more. */
    make_program(&ir, gd, t);
    make_in_target(&ir, DOUBLE, OLD);
    ir.values[STORE].kind = GD_IR_DEAD;
    assert_int_equal(gd_ir_verify(&ir, "forward"), GD_OK);
    gd_ir_free(&ir);
}

/* ---- addresses ---- */

static void expect_overlap(const gd_memory_plan *plan, const gd_ir *ir, const char *words)
{
    assert_int_equal(gd_memory_verify(plan, ir), GD_ERR_STATE);
    expect_error(GD_ERR_STATE, words);
}

static void broken_plans_are_found(void **state)
{
    gd_context *gd = *state;
    gd_ir ir;
    gd_memory_plan plan;
    make_program(&ir, gd, gd_ones(gd, GD_SHAPE(2, 3), GD_F32));
    assert_int_equal(gd_memory_plan_make(&plan, &ir), GD_OK);
    assert_int_equal(gd_memory_verify(&plan, &ir), GD_OK);
    size_t *at = plan.offset, bytes = plan.bytes, was[COUNT];
    memcpy(was, at, sizeof was);
    plan.bytes = 64;
    expect_overlap(&plan, &ir, "outside of the block");
    plan.bytes = bytes;
    at[READ] = bytes;
    expect_overlap(&plan, &ir, "value 6 (neg): it lies outside of the block");
    at[READ] = was[READ];
    at[SUM] = at[ONE]; /* a constant is always alive */
    expect_overlap(&plan, &ir, "value 3 (add): it overlaps a value that is alive");
    at[SUM] = was[SUM];
    at[DOUBLE] = at[SUM]; /* READ reads a view of SUM after DOUBLE is made */
    expect_overlap(&plan, &ir, "value 5 (mul): it overlaps a value that is alive");
    at[DOUBLE] = was[DOUBLE];
    at[LAST] = at[READ]; /* a result */
    expect_overlap(&plan, &ir, "value 9 (mul): it overlaps a value that is alive");
    at[LAST] = was[LAST];
    assert_int_equal(gd_memory_verify(&plan, &ir), GD_OK);
    plan.scratch[DOUBLE].asked = (gd_kernel_scratch){ .bytes = 64, .areas = 1, .threads = 1 };
    plan.scratch[DOUBLE].offset = at[SUM]; /* which it reads */
    expect_overlap(&plan, &ir, "value 5 (mul): its scratch overlaps a value that is alive");
    plan.scratch[DOUBLE].offset = bytes;
    expect_overlap(&plan, &ir, "value 5 (mul): its scratch lies outside of the block");
    plan.scratch[DOUBLE].asked.bytes = 0;
    /* Without the view, DOUBLE may take over SUM's memory, but not shifted, and not where SUM is
     * read in another order as well. */
    ir.values[READ].in[0] = DOUBLE;
    ir.values[READ].layout = ir.values[DOUBLE].layout;
    assert_int_equal(gd_ir_verify(&ir, "test"), GD_OK);
    at[DOUBLE] = at[SUM] = bytes;
    plan.bytes = bytes + 128;
    assert_int_equal(gd_memory_verify(&plan, &ir), GD_OK);
    at[DOUBLE] += 4;
    expect_overlap(&plan, &ir, "value 5 (mul): it overlaps a value that is alive");
    at[DOUBLE] = at[SUM];
    ir.values[DOUBLE].in[1] = SUM;
    expect_overlap(&plan, &ir, "value 5 (mul): it overlaps a value that is alive");
    gd_memory_plan_free(&plan);
    gd_ir_free(&ir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(broken_programs_are_found),
        context_test(broken_plans_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
