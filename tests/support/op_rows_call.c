/* tests/support/op_rows_call.c: the rows of call and call_result: a compiled function called where
 * history is recorded, with one result and with two. More is in tests/test_call_gradients.c. */
#include "support/op_row_macros.h"

#include <gradus/compile.h>

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_mul(gd_add(in[0], in[1]), in[0]);
}

static gd_tensor *two(void *user, int count, gd_tensor *const *in)
{
    gd_output(gd_mul(in[1], in[0]));
    return product(user, count, in);
}

static gd_tensor *call_once(gd_function_body body, gd_tensor *const *in)
{
    gd_function *f = in[0] && in[1] ? gd_compile(gd_tensor_context(in[0]), body, NULL) : NULL;
    return f ? gd_call(f, 2, in) : NULL;
}

static gd_tensor *call_for_two(gd_tensor *const *in)
{
    gd_function *f = in[0] && in[1] ? gd_compile(gd_tensor_context(in[0]), two, NULL) : NULL;
    gd_tensor *first = f ? gd_call(f, 2, in) : NULL;
    /* inlined into another trace, a function has one result */
    gd_tensor *second = first ? gd_function_result(f, 1) : NULL;
    return second ? gd_add(first, second) : gd_add(first, gd_mul(in[1], in[0]));
}

static const op_case call_cases[] = { { .shape = { SHAPE(5, 7), SHAPE(7) } },
                                      { .shape = { SHAPE(3, 131), NUMBER } } };
OP_SAFE(call, 2, E | OP_DIFFERENTIABLE, RESULT_NUMERIC, 0, call_once(product, in), VALUES(-20, 20),
        VALUES(-20, 20))
#define call_result_cases call_cases
OP_SAFE(call_result, 2, E | OP_DIFFERENTIABLE, RESULT_NUMERIC, 0, call_for_two(in), VALUES(-20, 20),
        VALUES(-20, 20))
