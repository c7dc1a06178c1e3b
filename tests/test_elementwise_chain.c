/* tests/test_elementwise_chain.c: ops of fused groups that pass their values on in registers
 * (backend/cpu/elementwise_chain_isa.c) give the bits of the same ops one by one, whichever operand
 * comes out of the register, for NaNs of every kind and sizes around whole blocks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include "backend/cpu/elementwise_program.h"
#include "support/context.h"

#include <string.h>

enum { INPUTS = 4, SPECIALS = 12 };

typedef struct chain_case {
    gd_tensor *(*op)(gd_tensor *, gd_tensor *);
    int form;
    gd_dtype dtype;  /* of the operands */
    gd_tensor *kept; /* the last form's other value */
} chain_case;

static gd_tensor *flushed_product(gd_tensor *x, gd_tensor *y)
{
    return gd_flush_subnormal(gd_mul(x, y));
}

/* Conversions to bf16 and back, and of whole numbers. */
static gd_tensor *sum_through_bf16(gd_tensor *x, gd_tensor *y)
{
    const gd_dtype dtype = gd_tensor_dtype(x);
    return gd_add(gd_cast(gd_cast(gd_cast(x, GD_F32), GD_BF16), dtype), y);
}

static gd_tensor *sum_of_low_bits(gd_tensor *x, gd_tensor *y)
{
    gd_tensor *mask = gd_scalar(gd_tensor_context(x), 0x5555, GD_I32);
    return gd_add(x, gd_cast(gd_bitwise_and(gd_cast(y, GD_I32), mask), gd_tensor_dtype(x)));
}

/* The maximum is done by a loop, between two chains. */
static gd_tensor *(*const ops[])(gd_tensor *, gd_tensor *) = {
    gd_add,        gd_sub,          gd_mul,           gd_div,         gd_maximum,
    gd_round_bf16, flushed_product, sum_through_bf16, sum_of_low_bits
};
enum { OPS = sizeof ops / sizeof *ops, FORMS = 6 };

/* in[0], in[1] of one shape, in[2] one number, in[3] a row. */
static gd_tensor *body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const chain_case *c = user;
    gd_tensor *held = gd_neg(in[0]), *other = in[1];
    switch (c->form) {
    case 0:
        return gd_neg(c->op(held, other));
    case 1:
        return gd_neg(c->op(other, held));
    case 2:
        return gd_sqrt(c->op(held, held));
    case 3:
        return gd_relu(c->op(in[2], c->op(held, in[2])));
    case 4:
        return gd_square(c->op(gd_abs(c->op(in[3], held)), gd_reciprocal(other)));
    default: /* values that wait in memory, and two results */
        held = gd_mul(held, in[2]);
        gd_assign(c->kept, held);
        other = c->op(gd_relu(other), held);
        return gd_sub(c->op(gd_add(other, in[3]), gd_mul(held, other)), other);
    }
}

/* The same with operands that are one number a row: a reduction, an input, and both. in[2] as
 * above, in[3] one number each row. */
static gd_tensor *row_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const chain_case *c = user;
    gd_tensor *held = gd_neg(in[0]), *other = in[1];
    gd_tensor *ten = gd_full(gd_tensor_context(held), GD_SCALAR, 10, c->dtype);
    gd_tensor *finite = gd_where(gd_lt(gd_abs(other), ten), other, ten);
    gd_tensor *high = gd_sum(finite, GD_AXES(-1), true);
    switch (c->form) {
    case 0:
        return gd_neg(c->op(held, high));
    case 1:
        return c->op(c->op(high, held), other);
    case 2:
        return c->op(in[3], c->op(high, c->op(other, in[3])));
    case 3:
        return gd_sqrt(c->op(gd_mul(high, in[3]), gd_square(c->op(held, in[2]))));
    case 4: /* both operands are numbers */
        return gd_add(c->op(gd_broadcast_to(high, gd_tensor_shape(other)), in[3]), other);
    default: /* values that wait in memory, several reductions and results */
        held = gd_mul(gd_sub(held, high), in[2]);
        gd_assign(c->kept, held);
        other = c->op(gd_relu(other), gd_sum(gd_square(held), GD_AXES(-1), true));
        return gd_sub(c->op(gd_add(other, in[3]), gd_exp(held)),
                      c->op(gd_min(other, GD_AXES(-1), true), held));
    }
}

static const uint32_t specials[SPECIALS] = {
    0x7fc00000, 0xffc00000, 0x7fc01234, 0xffc04321, /* quiet NaNs of both signs */
    0x7f800000, 0xff800000, 0x00000000, 0x80000000, /* infinities, zeros */
    0x00000123, 0x80000123, 0x3fc00000, 0xc0a00000, /* subnormal numbers, others */
};

/* Every pair of special values at the same place of two tensors. */
static gd_tensor *filled(gd_context *gd, gd_shape shape, int every)
{
    static uint32_t data[1 << 15];
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++)
        count *= shape.dim[i];
    assert_true(count <= (int64_t)(sizeof data / sizeof *data));
    for (int64_t i = 0; i < count; i++)
        data[i] = specials[i / every % SPECIALS];
    return gd_from_host(gd, shape, GD_F32, data);
}

static void compare(gd_context *gd, gd_shape shape, chain_case c, gd_function_body traced)
{
    gd_shape row = GD_SHAPE(shape.dim[shape.rank - 1]);
    if (traced == row_body) {
        row = shape;
        row.dim[shape.rank - 1] = 1;
    }
    gd_tensor *in[INPUTS] = { gd_cast(filled(gd, shape, 1), c.dtype),
                              gd_cast(filled(gd, shape, SPECIALS), c.dtype),
                              gd_cast(filled(gd, GD_SHAPE(1), 1), c.dtype),
                              gd_cast(filled(gd, row, 5), c.dtype) };
    gd_function *f[2];
    gd_tensor *result[2], *kept[2];
    for (int mode = 0; mode < 2; mode++) {
        c.kept = kept[mode] = gd_zeros(gd, shape, c.dtype);
        f[mode] = gd_compile(gd, traced, &c, .mode = mode ? GD_MODE_EAGER : GD_MODE_COMPILED);
        result[mode] = gd_call(f[mode], INPUTS, in);
    }
    /* One; ops on numbers alone may be another. */
    assert_in_range(gd_function_stats(f[0]).kernels, 1, 2);
    assert_same_bits(result[0], result[1]);
    assert_same_bits(kept[0], kept[1]);
}

static void chains_give_the_bits_of_single_ops(void **state)
{
    const gd_shape shapes[] = { GD_SHAPE(127),   GD_SHAPE(128),     GD_SHAPE(129),
                                GD_SHAPE(20000), GD_SHAPE(29, 131), GD_SHAPE(3, 5, 64) };
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int op = 0; op < OPS; op++)
            for (int form = 0; form < 2 * FORMS; form++)
                compare(*state, shapes[s],
                        (chain_case){ ops[op], form / 2, form % 2 ? GD_BF16 : GD_F32, NULL }, body);
}

static void numbers_of_rows_give_the_bits_of_single_ops(void **state)
{
    const gd_shape shapes[] = { GD_SHAPE(13, 128),    GD_SHAPE(5, 384),  GD_SHAPE(3, 640),
                                GD_SHAPE(4, 2, 2048), GD_SHAPE(11, 200), GD_SHAPE(2, 1000) };
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int op = 0; op < OPS; op++)
            for (int form = 0; form < 2 * FORMS; form++)
                compare(*state, shapes[s],
                        (chain_case){ ops[op], form / 2, form % 2 ? GD_BF16 : GD_F32, NULL },
                        row_body);
}

/* The gradient of relu is an op of its own, which only differentiation makes. */
static gd_tensor *relu_chain(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    gd_tensor *x = in[0], *g = NULL;
    gd_tensor *y = gd_mul(gd_relu(gd_mul(gd_relu(gd_add(x, in[1])), in[1])), in[3]);
    return gd_grad(1, &y, (gd_tensor *[]){ gd_mul(in[1], in[2]) }, 1, &x, &g) == GD_OK ? g : NULL;
}

static void gradients_of_relu_give_the_bits_of_single_ops(void **state)
{
    gd_context *gd = *state;
    gd_shape shape = GD_SHAPE(31, 67);
    gd_tensor *in[INPUTS] = { gd_set_requires_grad(filled(gd, shape, 1), true),
                              filled(gd, shape, SPECIALS), filled(gd, GD_SHAPE(1), 1),
                              filled(gd, GD_SHAPE(67), 7) };
    in[2] = gd_full(gd, GD_SHAPE(1), 1.5, GD_F32);
    gd_tensor *result[2];
    for (int mode = 0; mode < 2; mode++)
        result[mode] = gd_call(gd_compile(gd, relu_chain, NULL, .detached = true,
                                          .mode = mode ? GD_MODE_EAGER : GD_MODE_COMPILED),
                               INPUTS, in);
    assert_same_bits(result[0], result[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(chains_give_the_bits_of_single_ops),
        context_test(numbers_of_rows_give_the_bits_of_single_ops),
        context_test(gradients_of_relu_give_the_bits_of_single_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
