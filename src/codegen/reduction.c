/* codegen/reduction.c: the loops of sum, prod, max and min along any axes, in the order that
 * backend/cpu/reduce.h defines. Start at gd_codegen_reduce. */
#include "codegen/codegen.h"

typedef struct reduced_axis {
    int64_t size, in, out; /* strides of the input and the result */
    bool is_reduced;
} reduced_axis;

static uint64_t rank_of(const reduced_axis *a)
{
    const int64_t stride = a->in < 0 ? -a->in : a->in;
    return stride == 0 ? UINT64_MAX : (uint64_t)stride;
}

/* Axes by growing |stride|, of size 1 dropped, reduced ones running forward; *offset: of the first
 * element then. */
static int order_axes(const gd_layout *in, uint32_t reduced, reduced_axis *list, int64_t *offset)
{
    int n = 0;
    int64_t out_stride = 1;
    *offset = 0;
    for (int i = in->rank - 1; i >= 0; i--) {
        reduced_axis a = { in->shape[i], in->stride[i], 0, reduced >> i & 1 };
        if (!a.is_reduced) {
            a.out = out_stride;
            out_stride *= a.size;
        } else if (a.in < 0) {
            *offset += a.in * (a.size - 1);
            a.in = -a.in;
        }
        if (a.size == 1)
            continue;
        int place = n++;
        for (; place > 0 && rank_of(&a) < rank_of(&list[place - 1]); place--)
            list[place] = list[place - 1];
        list[place] = a;
    }
    return n;
}

/* Loops over the reduced or the kept axes, outermost first; operand 0 is the input, 1 the result. */
static gd_loops loops_over(const reduced_axis *list, int n, bool reduced)
{
    gd_loops l = { .operands = reduced ? 1 : 2 };
    for (int i = n - 1; i >= 0; i--) {
        const reduced_axis *a = &list[i];
        if (a->is_reduced != reduced)
            continue;
        int last = l.rank - 1;
        if (last < 0 || l.stride[0][last] != a->in * a->size ||
            l.stride[1][last] != a->out * a->size) {
            last = l.rank++;
            l.size[last] = 1;
        }
        l.size[last] *= a->size;
        l.stride[0][last] = a->in;
        l.stride[1][last] = a->out;
    }
    return l;
}

gd_reduce_loops gd_codegen_reduce(const gd_layout *in, uint32_t axes)
{
    gd_reduce_loops r;
    reduced_axis list[GD_MAX_RANK] = { { 0 } };
    const int n = order_axes(in, axes, list, &r.offset);
    r.kept = loops_over(list, n, false);
    r.reduced = loops_over(list, n, true);
    r.is_by_columns = n > 0 && !list[0].is_reduced;
    return r;
}

const char *gd_codegen_identity(gd_op_id op, gd_dtype dtype)
{
    static const char *const least[GD_DTYPE_COUNT] = {
        [GD_F32] = "-INFINITY", [GD_F64] = "-INFINITY", [GD_I8] = "-128", [GD_I16] = "-32768",
        [GD_I32] = "INT32_MIN", [GD_I64] = "INT64_MIN", [GD_U8] = "0",    [GD_U16] = "0",
        [GD_U32] = "0",         [GD_U64] = "0",         [GD_BOOL] = "0"
    };
    static const char *const most[GD_DTYPE_COUNT] = {
        [GD_F32] = "INFINITY",   [GD_F64] = "INFINITY",   [GD_I8] = "127", [GD_I16] = "32767",
        [GD_I32] = "INT32_MAX",  [GD_I64] = "INT64_MAX",  [GD_U8] = "255", [GD_U16] = "65535",
        [GD_U32] = "UINT32_MAX", [GD_U64] = "UINT64_MAX", [GD_BOOL] = "1"
    };
    return op == GD_OP_max    ? least[dtype]
           : op == GD_OP_min  ? most[dtype]
           : op == GD_OP_prod ? "1"
                              : "0";
}
