/* backend/reference/memory.c: ops that make, move and convert elements: full, iota, random_bits,
 * copy, cast, assign, pad, concat, gather, scatter_add. */
#include "backend/reference/reference.h"

#include "base/error.h"
#include "base/random.h"
#include "ops/attrs.h"

#include <inttypes.h>
#include <string.h>

/* One element, of the same dtype, as it is. */
static void move(const gd_operand *to, int64_t to_offset, const gd_operand *from,
                 int64_t from_offset)
{
    size_t size = gd_dtype_size(to->layout->dtype);
    memcpy((char *)to->data + to_offset * (int64_t)size,
           (const char *)from->data + from_offset * (int64_t)size, size);
}

/* ---- sources ---- */

static gd_status full(const gd_kernel_call *call)
{
    const gd_full_attr *attr = call->attr;
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w))
        if (gd_dtype_is_integer(call->out.layout->dtype))
            gd_ref_store_integer(&call->out, w.count, attr->whole);
        else
            gd_ref_store(&call->out, w.count, attr->value);
    return GD_OK;
}

static gd_status iota(const gd_kernel_call *call)
{
    const gd_iota_attr *attr = call->attr;
    for (int64_t i = 0; i < attr->count; i++) {
        double value = attr->start + (double)i * attr->step;
        uint64_t whole = (uint64_t)attr->integer_start + (uint64_t)i * (uint64_t)attr->integer_step;
        if (attr->use_integers)
            gd_ref_store_integer(&call->out, i, (int64_t)whole);
        else
            gd_ref_store(&call->out, i, value);
    }
    return GD_OK;
}

/* Word i of the result is word state[1] + offset + i of the stream of state[0]; an i64 takes two,
 * the low one first. */
static gd_status random_bits(const gd_kernel_call *call)
{
    const gd_random_attr *attr = call->attr;
    const gd_operand *state = &call->in[0];
    uint64_t seed = (uint64_t)gd_ref_load_integer(state, 0);
    uint64_t first = (uint64_t)gd_ref_load_integer(state, state->layout->stride[0]) + attr->offset;
    uint64_t words = attr->dtype == GD_I64 ? 2 : 1;
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) {
        uint32_t word[2] = { 0 };
        gd_philox_words(seed, first + (uint64_t)w.count * words, words, word);
        gd_ref_store_integer(&call->out, w.count, (int64_t)((uint64_t)word[1] << 32 | word[0]));
    }
    return GD_OK;
}

static gd_status dropout(const gd_kernel_call *call)
{
    const gd_dropout_attr *attr = call->attr;
    const gd_operand *x = &call->in[0], *state = &call->in[1];
    uint64_t seed = (uint64_t)gd_ref_load_integer(state, 0);
    uint64_t first = (uint64_t)gd_ref_load_integer(state, state->layout->stride[0]) + attr->offset;
    bool is_f32 = x->layout->dtype == GD_F32;
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) {
        uint32_t word;
        gd_philox_words(seed, first + (uint64_t)w.count, 1, &word);
        double from = (double)gd_ref_load(x, gd_walk_offset(&w, x->layout));
        double value = is_f32 ? (float)from * (float)attr->scale : from * attr->scale;
        gd_ref_store(&call->out, w.count, word >= attr->threshold ? value : 0);
    }
    return GD_OK;
}

/* ---- copies ---- */

static gd_status copy(const gd_kernel_call *call)
{
    const gd_operand *x = &call->in[0];
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w))
        move(&call->out, w.count, x, gd_walk_offset(&w, x->layout));
    return GD_OK;
}

/* Into the target, input 0, which may be strided; the result is the target itself. */
static gd_status assign(const gd_kernel_call *call)
{
    const gd_operand *target = &call->in[0], *value = &call->in[1];
    for (gd_walk w = gd_walk_over(target->layout); w.more; gd_walk_next(&w))
        move(target, gd_walk_offset(&w, target->layout), value, gd_walk_offset(&w, value->layout));
    return GD_OK;
}

/* Integers to integers modulo 2^bits; everything else by value (gd_ref_store). */
static gd_status cast(const gd_kernel_call *call)
{
    const gd_operand *x = &call->in[0];
    bool is_modular =
        gd_dtype_is_integer(call->out.layout->dtype) && !gd_dtype_is_float(x->layout->dtype);
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) {
        int64_t offset = gd_walk_offset(&w, x->layout);
        if (is_modular)
            gd_ref_store_integer(&call->out, w.count, gd_ref_load_integer(x, offset));
        else
            gd_ref_store(&call->out, w.count, gd_ref_load(x, offset));
    }
    return GD_OK;
}

static gd_status pad(const gd_kernel_call *call)
{
    const gd_pad_attr *attr = call->attr;
    const gd_operand *x = &call->in[0];
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) {
        int64_t index[GD_MAX_RANK];
        bool inside = true;
        for (int a = 0; a < w.rank; a++) {
            index[a] = w.index[a] - attr->before[a];
            inside = inside && index[a] >= 0 && index[a] < x->layout->shape[a];
        }
        if (inside)
            move(&call->out, w.count, x, gd_index_offset(index, x->layout));
        else
            gd_ref_store(&call->out, w.count, attr->value);
    }
    return GD_OK;
}

static gd_status concat(const gd_kernel_call *call)
{
    int axis = ((const gd_axis_attr *)call->attr)->axis;
    int64_t start = 0;
    for (int i = 0; i < call->n; i++) {
        const gd_operand *x = &call->in[i];
        for (gd_walk w = gd_walk_over(x->layout); w.more; gd_walk_next(&w)) {
            int64_t index[GD_MAX_RANK];
            memcpy(index, w.index, sizeof index);
            index[axis] += start;
            move(&call->out, gd_index_offset(index, call->out.layout), x,
                 gd_walk_offset(&w, x->layout));
        }
        start += x->layout->shape[axis];
    }
    return GD_OK;
}

/* ---- indexing ---- */

/* The walk's index with the axis replaced by what the index operand says there. */
static gd_status look_up(const gd_walk *w, const gd_operand *index, int axis, int64_t size,
                         const char *who, int64_t place[GD_MAX_RANK])
{
    memcpy(place, w->index, GD_MAX_RANK * sizeof *place);
    place[axis] = gd_ref_load_integer(index, gd_walk_offset(w, index->layout));
    if (place[axis] < 0 || place[axis] >= size)
        return gd_fail(GD_ERR_INVALID,
                       "%s: index %" PRId64 " is out of range for axis %d of size %" PRId64, who,
                       place[axis], axis, size);
    return GD_OK;
}

/* out[i][j] = x[index[i][j]][j] for axis 0, and so on. */
static gd_status gather(const gd_kernel_call *call)
{
    int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_operand *x = &call->in[0];
    for (gd_walk w = gd_walk_over(call->out.layout); w.more; gd_walk_next(&w)) {
        int64_t place[GD_MAX_RANK];
        gd_status status =
            look_up(&w, &call->in[1], axis, x->layout->shape[axis], "gd_gather", place);
        if (status != GD_OK)
            return status;
        move(&call->out, w.count, x, gd_index_offset(place, x->layout));
    }
    return GD_OK;
}

/* out = base; out[index[i][j]][j] += source[i][j] for axis 0, and so on, in row-major order of the
 * index. */
static gd_status scatter_add(const gd_kernel_call *call)
{
    int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_operand *index = &call->in[1], *source = &call->in[2], *out = &call->out;
    gd_status status = call->out.data == call->in[0].data ? GD_OK : copy(call);
    for (gd_walk w = gd_walk_over(index->layout); w.more && status == GD_OK; gd_walk_next(&w)) {
        int64_t place[GD_MAX_RANK];
        status = look_up(&w, index, axis, out->layout->shape[axis], "gd_scatter_add", place);
        if (status != GD_OK)
            return status;
        int64_t to = gd_index_offset(place, out->layout);
        int64_t from = gd_walk_offset(&w, source->layout);
        if (gd_dtype_is_float(out->layout->dtype)) {
            gd_ref_store(out, to, gd_ref_load(out, to) + gd_ref_load(source, from));
        } else {
            uint64_t sum = (uint64_t)gd_ref_load_integer(out, to) +
                           (uint64_t)gd_ref_load_integer(source, from);
            gd_ref_store_integer(out, to, (int64_t)sum);
        }
    }
    return status;
}

/* The same with = in place of +=. */
static gd_status scatter(const gd_kernel_call *call)
{
    int axis = ((const gd_axis_attr *)call->attr)->axis;
    const gd_operand *index = &call->in[1], *source = &call->in[2], *out = &call->out;
    gd_status status = call->out.data == call->in[0].data ? GD_OK : copy(call);
    for (gd_walk w = gd_walk_over(index->layout); w.more && status == GD_OK; gd_walk_next(&w)) {
        int64_t place[GD_MAX_RANK];
        status = look_up(&w, index, axis, out->layout->shape[axis], "gd_scatter", place);
        if (status == GD_OK)
            move(out, gd_index_offset(place, out->layout), source,
                 gd_walk_offset(&w, source->layout));
    }
    return status;
}

void gd_reference_register_memory(gd_kernel_fn *kernel)
{
    kernel[GD_OP_full] = full;
    kernel[GD_OP_iota] = iota;
    kernel[GD_OP_random_bits] = random_bits;
    kernel[GD_OP_dropout] = dropout;
    kernel[GD_OP_copy] = copy;
    kernel[GD_OP_assign] = assign;
    kernel[GD_OP_cast] = cast;
    kernel[GD_OP_pad] = pad;
    kernel[GD_OP_concat] = concat;
    kernel[GD_OP_gather] = gather;
    kernel[GD_OP_scatter_add] = scatter_add;
    kernel[GD_OP_scatter] = scatter;
}
