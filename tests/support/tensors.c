/* tests/support/tensors.c: see tensors.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/tensors.h"

#include "base/cpu.h"
#include "base/half.h"
#include "base/poison.h"
#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "graph/context.h"
#include "graph/node.h"
#include "support/effort.h"
#include "tensor/element.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

uint64_t numbers_next(numbers *n)
{
    uint64_t z = n->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

numbers numbers_of(const op_row *row, uint64_t seed)
{
    numbers n = { seed };
    for (const char *c = row->name; *c; c++)
        n.state = numbers_next(&n) ^ (uint64_t)(unsigned char)*c;
    return n;
}

double numbers_uniform(numbers *n, double low, double high)
{
    return low + (high - low) * (double)(numbers_next(n) >> 11) * 0x1p-53;
}

/* ---- operands ---- */

const char *const layout_names[LAYOUT_COUNT] = { "contiguous", "transposed", "sliced", "reversed",
                                                 "stretched" };

int64_t shape_count(gd_shape shape)
{
    int64_t count = 1;
    for (int a = 0; a < shape.rank; a++)
        count *= shape.dim[a];
    return count;
}

/* The value of the dtype nearest to x. */
static double round_to_dtype(gd_dtype dtype, double x)
{
    switch (dtype) {
    case GD_F64:
        return x;
    case GD_F32:
        return (float)x;
    case GD_F16:
        return gd_f16_to_f32(gd_f32_to_f16((float)x));
    case GD_BF16:
        return gd_bf16_to_f32(gd_f32_to_bf16((float)x));
    case GD_BOOL:
        return x != 0;
    case GD_I8:
        return fmax(-128, fmin(127, trunc(x))) + 0.0;
    case GD_U8:
    case GD_U16:
    case GD_U32:
    case GD_U64:
        return fabs(trunc(x));
    default:
        return trunc(x) + 0.0; /* no -0 */
    }
}

gd_dtype operand_dtype(const op_row *row, int which, gd_dtype dtype)
{
    switch (row->operand[which].kind) {
    case OPERAND_INDEX:
        return dtype == GD_I32 || dtype == GD_F64 ? GD_I32 : GD_I64; /* both are tried */
    case OPERAND_TRUTH:
        return GD_BOOL;
    default:
        return dtype;
    }
}

operand operand_make(const op_row *row, const op_case *c, int which, gd_dtype dtype,
                     layout_kind layout, bool whole, numbers *n)
{
    const operand_spec *spec = &row->operand[which];
    operand o = { .shape = c->shape[which],
                  .dtype = operand_dtype(row, which, dtype),
                  .layout = c->shape[which].rank ? layout : LAYOUT_CONTIGUOUS };
    o.count = shape_count(o.shape);
    assert_true(o.count <= OPERAND_LIMIT);
    o.value = malloc((size_t)o.count * sizeof(double) + 1);
    assert_non_null(o.value);
    bool integers = spec->kind != OPERAND_VALUE || whole;
    for (int64_t i = 0; i < o.count; i++) {
        double x = whole && spec->kind == OPERAND_VALUE ? numbers_uniform(n, -8, 9)
                                                        : numbers_uniform(n, spec->low, spec->high);
        o.value[i] = round_to_dtype(o.dtype, integers ? floor(x) : x);
    }
    int64_t line = o.shape.rank && o.shape.dim[0] ? o.count / o.shape.dim[0] : 0;
    if (o.layout == LAYOUT_STRETCHED)
        for (int64_t i = line; i < o.count; i++)
            o.value[i] = o.value[i % line];
    return o;
}

void operand_free(operand *o)
{
    free(o->value);
    o->value = NULL;
}

/* ---- tensors in a layout ---- */

static gd_shape leaf_shape(const operand *o)
{
    gd_shape leaf = o->shape;
    for (int a = 0; a < leaf.rank; a++) {
        if (o->layout == LAYOUT_TRANSPOSED)
            leaf.dim[a] = o->shape.dim[leaf.rank - 1 - a];
        else if (o->layout == LAYOUT_SLICED)
            leaf.dim[a] = 2 * o->shape.dim[a] + 2;
        else if (o->layout == LAYOUT_STRETCHED && a == 0)
            leaf.dim[a] = 1;
    }
    return leaf;
}

int64_t operand_leaf_index(const operand *o, int64_t i)
{
    gd_shape leaf = leaf_shape(o);
    int64_t at[GD_MAX_RANK], index = 0;
    for (int a = o->shape.rank - 1; a >= 0; a--) {
        int64_t k = i % o->shape.dim[a];
        i /= o->shape.dim[a];
        switch (o->layout) {
        case LAYOUT_TRANSPOSED:
            at[o->shape.rank - 1 - a] = k;
            break;
        case LAYOUT_SLICED:
            at[a] = 2 * k + 1;
            break;
        case LAYOUT_REVERSED:
            at[a] = o->shape.dim[a] - 1 - k;
            break;
        case LAYOUT_STRETCHED:
            at[a] = a == 0 ? 0 : k;
            break;
        default:
            at[a] = k;
        }
    }
    for (int a = 0; a < leaf.rank; a++)
        index = index * leaf.dim[a] + at[a];
    return index;
}

static void store_raw(gd_dtype dtype, void *raw, int64_t i, double x)
{
    switch (dtype) {
    case GD_F32:
        ((float *)raw)[i] = (float)x;
        break;
    case GD_F64:
        ((double *)raw)[i] = x;
        break;
    case GD_F16:
        ((uint16_t *)raw)[i] = gd_f32_to_f16((float)x);
        break;
    case GD_BF16:
        ((uint16_t *)raw)[i] = gd_f32_to_bf16((float)x);
        break;
    case GD_I8:
        ((int8_t *)raw)[i] = (int8_t)x;
        break;
    case GD_I16:
        ((int16_t *)raw)[i] = (int16_t)x;
        break;
    case GD_U16:
        ((uint16_t *)raw)[i] = (uint16_t)x;
        break;
    case GD_U32:
        ((uint32_t *)raw)[i] = (uint32_t)x;
        break;
    case GD_U64:
        ((uint64_t *)raw)[i] = (uint64_t)x;
        break;
    case GD_I32:
        ((int32_t *)raw)[i] = (int32_t)x;
        break;
    case GD_I64:
        ((int64_t *)raw)[i] = (int64_t)x;
        break;
    default:
        ((uint8_t *)raw)[i] = (uint8_t)x;
    }
}

static gd_tensor *view_of(gd_tensor *leaf, const operand *o)
{
    gd_tensor *view = leaf;
    gd_axes axes = { .count = o->shape.rank };
    switch (o->layout) {
    case LAYOUT_TRANSPOSED:
        for (int a = 0; a < axes.count; a++)
            axes.axis[a] = axes.count - 1 - a;
        return gd_permute(leaf, axes);
    case LAYOUT_SLICED:
        for (int a = 0; a < o->shape.rank; a++)
            view = gd_slice(view, a, 1, 2 * o->shape.dim[a] + 1, 2);
        return view;
    case LAYOUT_REVERSED:
        return gd_flip(leaf, GD_ALL_AXES);
    case LAYOUT_STRETCHED:
        return gd_broadcast_to(leaf, o->shape);
    default:
        return leaf;
    }
}

placed operand_place(gd_context *context, const operand *o, bool requires_grad)
{
    gd_shape shape = leaf_shape(o);
    placed p = { .leaf_count = shape_count(shape) };
    size_t size = gd_dtype_size(o->dtype);
    void *raw = malloc((size_t)p.leaf_count * size + 1);
    assert_non_null(raw);
    for (int64_t i = 0; i < p.leaf_count; i++)
        store_raw(o->dtype, raw, i,
                  gd_dtype_is_float(o->dtype) ? NAN
                  : o->dtype == GD_BOOL       ? 1
                                              : 77);
    for (int64_t i = 0; i < o->count; i++)
        store_raw(o->dtype, raw, operand_leaf_index(o, i), o->value[i]);
    p.leaf = gd_from_host(context, shape, o->dtype, raw);
    free(raw);
    if (requires_grad && gd_dtype_is_float(o->dtype))
        p.leaf = gd_set_requires_grad(p.leaf, true);
    p.view = view_of(p.leaf, o);
    return p;
}

/* ---- results ---- */

reading reading_take(const gd_tensor *t, const char *what)
{
    if (!t)
        fail_msg("%s: %s: %s", what, gd_status_name(gd_error_code()), gd_error_message());
    reading r = { .shape = gd_tensor_shape(t),
                  .dtype = gd_tensor_dtype(t),
                  .count = gd_tensor_count(t) };
    r.bytes = (size_t)r.count * gd_dtype_size(r.dtype);
    r.data = malloc(r.bytes + 1);
    if (gd_tensor_read(t, r.data, r.bytes) != GD_OK)
        fail_msg("%s: reading: %s", what, gd_error_message());
    return r;
}

void reading_free(reading *r)
{
    free(r->data);
    r->data = NULL;
}

double reading_value(const reading *r, int64_t i)
{
    return gd_element_as_double(r->dtype,
                                (const char *)r->data + (size_t)i * gd_dtype_size(r->dtype));
}

/* Numbers of a float dtype in order, as whole numbers one apart. */
static int64_t ordinal(gd_dtype dtype, double x)
{
    int64_t magnitude;
    double positive = fabs(x);
    float single = (float)positive;
    int32_t bits;
    memcpy(&magnitude, &positive, sizeof magnitude);
    memcpy(&bits, &single, sizeof bits);
    if (dtype == GD_F32)
        magnitude = bits;
    else if (dtype == GD_F16)
        magnitude = gd_f32_to_f16(single);
    else if (dtype == GD_BF16)
        magnitude = gd_f32_to_bf16(single);
    return x < 0 ? -magnitude : magnitude;
}

double ulp_distance(gd_dtype dtype, double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    if (isnan(a) || isnan(b))
        return INFINITY;
    if (!gd_dtype_is_float(dtype))
        return fabs(a - b);
    return fabs((double)ordinal(dtype, a) - (double)ordinal(dtype, b)) < 0x1p50
               ? (double)llabs(ordinal(dtype, a) - ordinal(dtype, b))
               : INFINITY;
}

static void assert_same_form(const reading *expected, const reading *actual, const char *what)
{
    if (expected->dtype != actual->dtype)
        fail_msg("%s: dtype %s, expected %s", what, gd_dtype_name(actual->dtype),
                 gd_dtype_name(expected->dtype));
    bool same = expected->shape.rank == actual->shape.rank;
    for (int a = 0; same && a < expected->shape.rank; a++)
        same = expected->shape.dim[a] == actual->shape.dim[a];
    char e[GD_SHAPE_TEXT], t[GD_SHAPE_TEXT];
    if (!same)
        fail_msg("%s: shape %s, expected %s", what, gd_shape_text(actual->shape, t),
                 gd_shape_text(expected->shape, e));
}

void assert_close(const reading *expected, const reading *actual, double ulp, const char *what)
{
    assert_same_form(expected, actual, what);
    for (int64_t i = 0; i < expected->count; i++) {
        double e = reading_value(expected, i), a = reading_value(actual, i);
        double distance = ulp_distance(expected->dtype, e, a);
        if (!(distance <= ulp))
            fail_msg(
                "%s: element %lld is %.17g, expected %.17g: %g units in the last place apart, at "
                "most %g allowed",
                what, (long long)i, a, e, distance, ulp);
    }
}

void assert_same_bits(const reading *expected, const reading *actual, const char *what)
{
    assert_same_form(expected, actual, what);
    size_t size = gd_dtype_size(expected->dtype);
    for (int64_t i = 0; i < expected->count; i++) {
        const char *e = (const char *)expected->data + (size_t)i * size;
        const char *a = (const char *)actual->data + (size_t)i * size;
        double x = reading_value(expected, i), y = reading_value(actual, i);
        if (memcmp(e, a, size) != 0 && !(isnan(x) && isnan(y)))
            fail_msg("%s: element %lld is %.17g (%a), expected %.17g (%a), bit for bit", what,
                     (long long)i, y, y, x, x);
    }
}

bool same_bits(const reading *a, const reading *b)
{
    return a->bytes == b->bytes && (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0);
}

/* ---- watched kernels ---- */

#define GUARD      64
#define GUARD_BYTE 0xa5
#define WATCHED    16

typedef struct watched {
    gd_device *device;
    gd_kernel_fn original[GD_OP_COUNT];
} watched;
static watched watch_list[WATCHED];
static int faults;

int watch_faults(void)
{
    return faults;
}

static void fault(const gd_kernel_call *call, const char *what)
{
    faults++;
    print_error("kernel %s of %s %s\n", call->op->name, call->device->name, what);
}

/* The bytes an operand covers: from the lowest address its layout reaches. */
typedef struct extent {
    char *low;
    size_t bytes;
} extent;

static extent extent_of(const gd_operand *x)
{
    int64_t size = (int64_t)gd_dtype_size(x->layout->dtype), low = 0, high = 0;
    if (gd_layout_count(x->layout) == 0)
        return (extent){ x->data, 0 };
    for (int a = 0; a < x->layout->rank; a++) {
        int64_t reach = (x->layout->shape[a] - 1) * x->layout->stride[a];
        *(reach < 0 ? &low : &high) += reach;
    }
    return (extent){ (char *)x->data + low * size, (size_t)((high - low + 1) * size) };
}

/* A copy in a block of exactly the extent's size, so that AddressSanitizer sees any step outside.
 */
static void copy_operand(const gd_operand *from, gd_operand *to, void **block)
{
    extent e = extent_of(from);
    *block = NULL;
    if (posix_memalign(block, 64, e.bytes ? e.bytes : 1) != 0)
        abort();
    memcpy(*block, e.low, e.bytes);
    *to = *from;
    to->data = (char *)*block + ((char *)from->data - e.low);
}

/* A call without a plan gets the scratch that a plan would place for it, and no more: what it takes
 * beyond ends the process (backend/cpu/scratch.h). Elementwise programs ask for what they take once
 * they are prepared. */
static void *give_scratch(gd_kernel_call *call)
{
    const gd_device *device = call->device;
    const bool is_program = call->op->flags & GD_OP_ELEMENTWISE || call->op->id == GD_OP_cast ||
                            call->op->id == GD_OP_copy || call->op->id == GD_OP_fused ||
                            gd_is_adam(call->op->id);
    if (!device->backend->scratch || call->scratch.memory || is_program)
        return NULL;
    call->scratch = device->backend->scratch(call);
    const size_t bytes = call->scratch.bytes;
    if (bytes == 0)
        return NULL;
    if (bytes % device->alignment != 0 || call->scratch.areas > device->threads ||
        bytes > ((const gd_cpu_device *)device)->workspace.bytes)
        fault(call, "asks for scratch that the device has not got in eager mode");
    if (posix_memalign(&call->scratch.memory, device->alignment,
                       bytes * (size_t)call->scratch.areas) != 0)
        abort();
    return call->scratch.memory;
}

static void take_scratch(const gd_kernel_call *call, void *memory)
{
    gd_unpoison(memory, memory ? call->scratch.bytes * (size_t)call->scratch.areas : 0);
    free(memory);
}

static gd_status run_watched(const gd_kernel_call *call)
{
    gd_kernel_fn kernel = NULL;
    for (int i = 0; i < WATCHED; i++)
        if (watch_list[i].device == call->device)
            kernel = watch_list[i].original[call->op->id];
    bool in_place = (call->op->flags & GD_OP_EFFECT) != 0;
    int more = call->extra ? gd_op_extra_count(call->op, call->attr) : 0;
    for (int i = 0; i < call->n; i++) {
        in_place = in_place || call->in[i].data == call->out.data;
        for (int r = 0; r < more; r++)
            in_place = in_place || call->in[i].data == call->extra[r].data;
    }
    if (in_place)
        return kernel(call);

    gd_operand in[GD_OP_MAX_INPUTS];
    void *blocks[GD_OP_MAX_INPUTS];
    for (int i = 0; i < call->n; i++)
        copy_operand(&call->in[i], &in[i], &blocks[i]);
    size_t bytes = gd_layout_bytes(call->out.layout);
    unsigned char *block = NULL;
    if (posix_memalign((void **)&block, 64, bytes + 2 * GUARD) != 0)
        abort();
    memset(block, GUARD_BYTE, bytes + 2 * GUARD);
    gd_kernel_call copy = *call;
    copy.in = in;
    copy.out.data = block + GUARD;
    void *scratch = give_scratch(&copy);
    gd_status status = kernel(&copy);
    take_scratch(&copy, scratch);
    for (size_t i = 0; i < GUARD; i++)
        if (block[i] != GUARD_BYTE || block[GUARD + bytes + i] != GUARD_BYTE) {
            fault(call, "wrote outside its result");
            break;
        }
    for (int i = 0; i < call->n; i++) {
        extent e = extent_of(&call->in[i]);
        if (e.bytes && memcmp(blocks[i], e.low, e.bytes) != 0)
            fault(call, "wrote into an input");
        free(blocks[i]);
    }
    if (bytes)
        memcpy(call->out.data, block + GUARD, bytes);
    free(block);
    return status;
}

void watch_kernels(gd_context *context)
{
    gd_device *device = context->device;
    for (int i = 0; i < WATCHED; i++) {
        if (watch_list[i].device)
            continue;
        watch_list[i].device = device;
        memcpy(watch_list[i].original, device->kernel, sizeof device->kernel);
        for (int op = 0; op < GD_OP_COUNT; op++)
            if (device->kernel[op])
                device->kernel[op] = run_watched;
        return;
    }
    fail_msg("too many contexts are watched");
}

void unwatch_kernels(gd_context *context)
{
    for (int i = 0; i < WATCHED; i++)
        if (watch_list[i].device == context->device) {
            memcpy(context->device->kernel, watch_list[i].original, sizeof context->device->kernel);
            watch_list[i].device = NULL;
        }
}

/* ---- contexts ---- */

const char *const *isa_names(void)
{
    static const char *names[GD_ISA_COUNT + 1];
    int count = 0;
    for (int isa = 0; isa < GD_ISA_COUNT; isa++)
        if (test_tries_isa((gd_isa)isa))
            names[count++] = gd_isa_name((gd_isa)isa);
    names[count] = NULL;
    return names;
}

bool isa_fuses(const char *isa)
{
#if defined(__aarch64__)
    (void)isa;
    return true;
#else
    return strcmp(isa, "baseline") != 0;
#endif
}

static gd_context *opened(gd_context *context)
{
    if (!context)
        fail_msg("gd_open: %s", gd_error_message());
    watch_kernels(context);
    return context;
}

gd_context *open_cpu_unwatched(const char *isa, int threads)
{
    const char *before = getenv("GRADUS_ISA");
    char *kept = before ? strdup(before) : NULL;
    if (isa)
        setenv("GRADUS_ISA", isa, 1);
    gd_context *context = gd_open("cpu", .threads = threads, .seed = 5);
    if (kept)
        setenv("GRADUS_ISA", kept, 1);
    else
        unsetenv("GRADUS_ISA");
    free(kept);
    return context;
}

gd_context *open_cpu(const char *isa, int threads)
{
    return opened(open_cpu_unwatched(isa, threads));
}

gd_context *open_reference(void)
{
    return opened(gd_open("reference", .seed = 5));
}

void close_context(gd_context *context)
{
    unwatch_kernels(context);
    gd_close(context);
}
