/* compile/packed.c: which operands of a frozen function's plan are packed once, and when. How is the
 * back end's. Start at gd_packed_take. */
#include "compile/packed.h"

#include "base/memory.h"
#include "compile/working_copy.h"

/* Whether the program writes to the memory outside that has this number. */
static bool is_written(const gd_ir *ir, int32_t memory)
{
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        if (gd_ir_is_effect(v) ? gd_ir_memory(ir, v->in[0]) == memory
                               : v->kind == GD_IR_OP && v->external && v->memory == memory)
            return true;
    }
    return false;
}

/* The storage that t's contents are of. */
static const gd_storage *source_of(const gd_ir *ir, const gd_tensor *t)
{
    for (size_t i = 0; i < ir->copy_count; i++)
        if (ir->copies[i].copy->tensor == t)
            return ir->copies[i].copy->parameter->storage;
    return t->storage;
}

size_t gd_packed_wanted(const gd_ir *ir, const gd_ir_value *v, const gd_kernel_call *call)
{
    const gd_backend *backend = call->device->backend;
    if (!ir->options.frozen || ir->options.memory_limit != SIZE_MAX || !backend->pack_bytes ||
        v->n < 2)
        return 0;
    const gd_ir_value *root = &ir->values[ir->values[v->in[1]].root];
    return root->kind == GD_IR_EXTERNAL && !is_written(ir, root->memory) ? backend->pack_bytes(call)
                                                                         : 0;
}

gd_status gd_packed_take(gd_packed *packed, const gd_ir *ir, const gd_ir_value *v,
                         gd_kernel_call *call)
{
    const size_t bytes = gd_packed_wanted(ir, v, call);
    if (bytes == 0)
        return GD_OK;
    if (!gd_grow((void **)&packed->operands, &packed->capacity, packed->count + 1,
                 sizeof *packed->operands))
        return GD_ERR_MEMORY;
    gd_storage *memory = gd_storage_new(ir->context, bytes);
    if (!memory)
        return GD_ERR_MEMORY;
    packed->operands[packed->count++] =
        (gd_packed_operand){ .call = call,
                             .memory = memory,
                             .source =
                                 source_of(ir, ir->values[ir->values[v->in[1]].root].external) };
    call->packed = memory->data;
    return GD_OK;
}

void gd_packed_refresh(gd_packed *packed)
{
    for (size_t i = 0; i < packed->count; i++) {
        gd_packed_operand *o = &packed->operands[i];
        if (o->is_made && o->version == o->source->version)
            continue;
        o->call->device->backend->pack(o->call, o->memory->data);
        o->version = o->source->version;
        o->is_made = true;
    }
}

size_t gd_packed_bytes(const gd_packed *packed)
{
    size_t bytes = 0;
    for (size_t i = 0; i < packed->count; i++)
        bytes += packed->operands[i].memory->bytes;
    return bytes;
}

void gd_packed_free(gd_packed *packed, gd_context *context)
{
    for (size_t i = 0; i < packed->count; i++)
        gd_storage_drop(context, packed->operands[i].memory);
    gd_free(packed->operands);
}
