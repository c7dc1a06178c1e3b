/* compile/plan.c: making a plan from the IR and running it. Running is patches, then steps: nothing
 * is allocated, nothing decided. */
#include "compile/plan.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/poison.h"
#include "compile/call_gradient.h"
#include "compile/working_copy.h"

/* ---- addresses ---- */

static char *external_address(const gd_tensor *t)
{
    return (char *)t->storage->data + t->layout.offset * (int64_t)gd_dtype_size(t->layout.dtype);
}

/* Address of element 0 of a value; NULL when it lies in an argument (then a patch gives it). */
static void *address(const gd_plan *plan, int32_t value)
{
    const gd_ir_value *v = &plan->ir.values[value], *root = &plan->ir.values[v->root];
    int64_t bytes = v->layout.offset * (int64_t)gd_dtype_size(v->layout.dtype);
    if (root->kind == GD_IR_INPUT)
        return NULL;
    if (root->kind == GD_IR_EXTERNAL)
        return (char *)root->external->storage->data + bytes;
    if (root->external)
        return external_address(root->external) + bytes;
    return (char *)plan->block->data + plan->memory.offset[v->root] + bytes;
}

static gd_status resolve(gd_plan *plan, gd_operand *operand, int32_t value)
{
    const gd_ir_value *v = &plan->ir.values[value], *root = &plan->ir.values[v->root];
    operand->layout = &v->layout;
    operand->data = address(plan, value);
    if (root->kind != GD_IR_INPUT)
        return GD_OK;
    if (!gd_grow((void **)&plan->patches, &plan->patch_capacity, plan->n_patches + 1,
                 sizeof(gd_patch)))
        return GD_ERR_MEMORY;
    int64_t bytes = v->layout.offset * (int64_t)gd_dtype_size(v->layout.dtype);
    plan->patches[plan->n_patches++] = (gd_patch){ operand, root->input, bytes };
    return GD_OK;
}

/* ---- steps ---- */

static gd_status prepare(gd_plan *plan, gd_kernel_call *call)
{
    const gd_backend *backend = call->device->backend;
    size_t bytes = backend->prepare_bytes ? backend->prepare_bytes(call) : 0;
    if (bytes == 0)
        return GD_OK;
    void *memory = gd_arena_push(&plan->ir.memory, bytes, 8);
    if (!memory)
        return GD_ERR_MEMORY;
    call->prepared = memory;
    return backend->prepare(call, memory);
}

/* The extra results of value `value`, which follow it. */
static gd_status resolve_extra_results(gd_plan *plan, gd_step *step, int32_t value)
{
    gd_kernel_call *call = &step->call;
    const int n = gd_op_extra_count(call->op, call->attr);
    if (n == 0)
        return GD_OK;
    gd_operand *extra = gd_arena_push(&plan->ir.memory, sizeof *extra * (size_t)n, 8);
    if (!extra)
        return GD_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        int32_t made = value + 1 + i;
        const gd_ir_value *v = &plan->ir.values[made];
        extra[((const gd_extra_result_attr *)v->attr)->index] =
            (gd_operand){ address(plan, made), &v->layout };
    }
    call->extra = step->extra = extra;
    return GD_OK;
}

static gd_status make_step(gd_plan *plan, gd_step *step, int32_t value)
{
    gd_ir_value *v = &plan->ir.values[value];
    gd_operand *in = gd_arena_push(&plan->ir.memory, sizeof *in * (size_t)(v->n + 1), 8);
    if (!in)
        return GD_ERR_MEMORY;
    gd_device *device = plan->ir.context->device;
    *step =
        (gd_step){ .run = device->kernel[v->op->id],
                   .call = { .device = device, .op = v->op, .attr = v->attr, .n = v->n, .in = in },
                   .in = in,
                   .value = value,
                   .together = 1 };
    for (int k = 0; k < v->n; k++)
        if (resolve(plan, &in[k], v->in[k]) != GD_OK)
            return GD_ERR_MEMORY;
    step->call.scratch = plan->memory.scratch[value].asked;
    if (step->call.scratch.bytes > 0)
        step->call.scratch.memory = (char *)plan->block->data + plan->memory.scratch[value].offset;
    step->call.out = gd_ir_is_effect(v) ? in[0] : (gd_operand){ address(plan, value), &v->layout };
    gd_status status = resolve_extra_results(plan, step, value);
    if (status == GD_OK && !gd_device_takes(&step->call))
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "gd_compile: device %s has no kernel for %s as it is here", device->name,
                       v->op->name);
    if (status == GD_OK)
        status = gd_packed_take(&plan->packed, &plan->ir, v, &step->call);
    return status == GD_OK ? prepare(plan, &step->call) : status;
}

/* Whether the steps, which are many, are so little work together that waking threads for some of
 * them, and handing what those made from cache to cache, costs more than the threads bring. On
 * Emerald Rapids a training step of 21 kernels, 2.8 MFLOP and 0.87 MB (MNIST) took 43 µs on one thread
 * and 1.7 times as long on two (bench/results). */
static bool is_small(const gd_ir *ir)
{
    enum { KERNELS = 8, FLOP = 4000000, BYTES = 1000000 };
    double flops = 0, bytes = 0;
    int kernels = 0;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_ir_value *v = &ir->values[i];
        const gd_layout *in[GD_OP_MAX_INPUTS];
        if (!gd_ir_is_kernel(v) || v->is_constant)
            continue;
        gd_ir_layouts(ir, v, in);
        flops += v->op->flops ? v->op->flops(v->n, in, &v->layout, v->attr) : 0;
        bytes += (double)gd_layout_bytes(&v->layout);
        for (int k = 0; k < v->n; k++)
            bytes += (double)gd_layout_bytes(in[k]);
        kernels += !v->is_joined;
    }
    return ir->context->device->host_memory && kernels >= KERNELS && flops <= FLOP &&
           bytes <= BYTES;
}

/* The last step made is run by `kernel`, with those joined to that before. */
static void join_step(gd_plan *plan, gd_step *kernel)
{
    gd_step *step = &plan->steps[plan->n_steps - 1];
    kernel->run = plan->ir.context->device->backend->run_together;
    kernel->together++;
    step[-1].call.next = &step->call;
}

/* Constants run now; the others become steps. */
static gd_status make_steps(gd_plan *plan)
{
    gd_step *kernel = NULL;
    plan->steps = gd_alloc(sizeof(gd_step) * (plan->ir.count + 1));
    if (!plan->steps)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < plan->ir.count; i++) {
        const gd_ir_value *v = &plan->ir.values[i];
        if (!gd_ir_is_kernel(v))
            continue;
        gd_step *step = &plan->steps[plan->n_steps];
        gd_status status = make_step(plan, step, (int32_t)i);
        if (status != GD_OK)
            return status;
        if (v->is_constant) {
            if (gd_step_run(step) != GD_OK)
                return gd_error_last();
            continue;
        }
        plan->n_steps++;
        if (v->is_joined) {
            join_step(plan, kernel);
        } else {
            kernel = step;
            plan->n_kernels++;
        }
    }
    return GD_OK;
}

static gd_status list_calls(gd_plan *plan)
{
    if (!plan->ir.context->device->backend->run_calls)
        return GD_OK;
    plan->calls = gd_alloc(sizeof *plan->calls * (plan->n_steps + 1));
    if (!plan->calls)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < plan->n_steps; i++)
        plan->calls[i] = &plan->steps[i].call;
    return GD_OK;
}

static gd_status note_written(gd_plan *plan)
{
    plan->written = gd_alloc(sizeof(gd_storage *) * (plan->ir.count + 1));
    if (!plan->written)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < plan->ir.count; i++) {
        const gd_ir_value *v = &plan->ir.values[i];
        if (gd_ir_is_effect(v))
            plan->written[plan->n_written++] = plan->ir.values[v->in[0]].external->storage;
        else if (v->kind == GD_IR_OP && v->external)
            plan->written[plan->n_written++] = v->external->storage;
    }
    for (size_t i = 0; i < plan->n_written; i++)
        plan->written[i]->is_target = true;
    return GD_OK;
}

/* ---- results: tensors over the block ---- */

/* Result number `value` of the IR, in `block`; the reference is the plan's, and the scope's. */
static gd_tensor *make_result(gd_plan *plan, int32_t value, gd_storage *block)
{
    const gd_ir_value *v = &plan->ir.values[value];
    gd_layout layout = v->layout;
    size_t size = gd_dtype_size(layout.dtype);
    layout.offset += (int64_t)(plan->memory.offset[v->root] / size);
    block->refs++;
    return gd_link(gd_leaf_new(plan->ir.context, &layout, block));
}

static gd_status make_results(gd_plan *plan)
{
    plan->results = gd_alloc_zero(plan->ir.output_count, sizeof(gd_tensor *));
    if (!plan->results || gd_scope_begin(plan->ir.context) != GD_OK)
        return GD_ERR_MEMORY;
    bool ok = true;
    for (size_t i = 0; ok && i < plan->ir.output_count; i++)
        ok = (plan->results[i] = make_result(plan, plan->ir.outputs[i], plan->block)) != NULL;
    (void)gd_scope_end(plan->ir.context);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

/* ---- the block ---- */

static gd_storage *new_block(gd_plan *plan)
{
    gd_storage *block = gd_storage_new(plan->ir.context, plan->memory.bytes);
    if (block && plan->gradient) {
        gd_call_gradient_retain(plan->gradient);
        block->release = gd_call_gradient_drop;
        block->user = plan->gradient;
    }
    return block;
}

static void move(void **address, uintptr_t from, size_t bytes, char *to)
{
    uintptr_t at = (uintptr_t)*address;
    if (*address && at >= from && at - from < bytes)
        *address = to + (at - from);
}

static gd_status copy_memory(const gd_plan *plan, void *to, const void *from, size_t bytes)
{
    gd_device *device = plan->ir.context->device;
    return bytes ? device->backend->memory_copy(device, to, from, bytes) : GD_OK;
}

/* Constants go with the plan to another block. */
static gd_status copy_constants(const gd_plan *plan, const gd_storage *block)
{
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < plan->ir.count; i++) {
        const size_t at = plan->memory.offset[i];
        if (plan->ir.values[i].is_constant && at != GD_NO_OFFSET)
            status = copy_memory(plan, (char *)block->data + at, (char *)plan->block->data + at,
                                 gd_layout_bytes(&plan->ir.values[i].layout));
    }
    return status;
}

/* All steps in another block. */
static void move_steps(gd_plan *plan, gd_storage *block)
{
    const gd_storage *old = plan->block;
    uintptr_t from = (uintptr_t)old->data;
    char *to = block->data;
    for (size_t i = 0; i < plan->n_steps; i++) {
        gd_kernel_call *call = &plan->steps[i].call;
        gd_operand *in = plan->steps[i].in;
        for (int k = 0; k < call->n; k++)
            move(&in[k].data, from, old->bytes, to);
        move(&call->out.data, from, old->bytes, to);
        move(&call->scratch.memory, from, old->bytes, to);
        gd_operand *extra = plan->steps[i].extra;
        for (int k = 0; extra && k < gd_op_extra_count(call->op, call->attr); k++)
            move(&extra[k].data, from, old->bytes, to);
    }
}

static gd_status build(gd_plan *plan)
{
    if (gd_passes_run(&plan->ir, &plan->report) != GD_OK)
        return gd_error_last();
    plan->is_small = is_small(&plan->ir);
    const int threads = gd_plan_take_threads(plan);
    gd_status status = gd_memory_plan_make(&plan->memory, &plan->ir);
    gd_plan_give_threads(plan, threads);
    if (status != GD_OK)
        return status;
#ifdef GD_DEBUG_CHECKS
    if (gd_memory_verify(&plan->memory, &plan->ir) != GD_OK)
        return gd_error_last();
#endif
    if (plan->memory.bytes > plan->ir.options.memory_limit)
        return gd_fail(GD_ERR_MEMORY,
                       "gd_compile: the plan takes %zu B, .memory_limit is %zu B, and pass "
                       "rematerialise is switched off",
                       plan->memory.bytes, plan->ir.options.memory_limit);
    plan->block = new_block(plan);
    if (!plan->block)
        return GD_ERR_MEMORY;
    /* Random constants do not exist, but a constant may follow nothing else: the stream is
     * published at every run. */
    (void)gd_plan_take_threads(plan);
    status = make_steps(plan);
    gd_plan_give_threads(plan, threads);
    if (status == GD_OK)
        status = list_calls(plan);
    if (status == GD_OK)
        status = note_written(plan);
    return status == GD_OK ? make_results(plan) : status;
}

gd_plan *gd_plan_make(gd_ir *ir, gd_call_gradient *gradient)
{
    gd_plan *plan = gd_alloc_zero(1, sizeof *plan);
    if (!plan) {
        gd_ir_free(ir);
        return NULL;
    }
    plan->ir = *ir;
    plan->gradient = gradient;
    *ir = (gd_ir){ 0 };
    if (build(plan) != GD_OK) {
        gd_plan_free(plan);
        return NULL;
    }
    return plan;
}

void gd_plan_free(gd_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; plan->results && i < plan->ir.output_count; i++)
        gd_unlink(plan->results[i]);
    gd_free(plan->results);
    if (plan->replay)
        plan->ir.context->device->backend->replay_free(plan->ir.context->device, plan->replay);
    gd_free(plan->calls);
    gd_storage_drop(plan->ir.context, plan->block);
    gd_storage_drop(plan->ir.context, plan->kept);
    gd_packed_free(&plan->packed, plan->ir.context);
    gd_free(plan->steps);
    gd_free(plan->patches);
    gd_free(plan->written);
    gd_memory_plan_free(&plan->memory);
    gd_ir_free(&plan->ir);
    gd_free(plan);
}

/* ---- running ---- */

/* Bytes from an argument's lowest element to the end of its highest; *before: of them, those before
 * element 0. */
static size_t span(const gd_layout *layout, size_t *before)
{
    int64_t low = 0, high = 0;
    for (int axis = 0; axis < layout->rank; axis++) {
        int64_t reach = (layout->shape[axis] - 1) * layout->stride[axis];
        *(reach < 0 ? &low : &high) += reach;
    }
    const size_t size = gd_dtype_size(layout->dtype);
    *before = (size_t)-low * size;
    return (size_t)(high - low + 1) * size;
}

/* Results of the call before lie where this one computes: what is read of them is read from a copy,
 * one a reader. */
static gd_status keep_own_results(gd_plan *plan, gd_tensor *const *inputs)
{
    const size_t alignment = plan->ir.context->device->alignment;
    for (int copying = 0; copying < 2; copying++) {
        size_t at = 0, before;
        for (size_t i = 0; i < plan->n_patches; i++) {
            const gd_patch *patch = &plan->patches[i];
            const gd_tensor *t = inputs[patch->input];
            if (t->storage != plan->block || gd_layout_count(&t->layout) == 0)
                continue;
            const size_t bytes = span(&t->layout, &before);
            if (copying) {
                char *to = (char *)plan->kept->data + at;
                if (copy_memory(plan, to, (char *)gd_node_data(t) - before, bytes) != GD_OK)
                    return gd_error_last();
                patch->operand->data = to + before + patch->bytes;
            }
            at += (bytes + alignment - 1) / alignment * alignment;
        }
        if (!copying && (!plan->kept || plan->kept->bytes < at)) {
            gd_storage_drop(plan->ir.context, plan->kept);
            plan->kept = gd_storage_new(plan->ir.context, at);
            if (!plan->kept)
                return GD_ERR_MEMORY;
        }
    }
    return GD_OK;
}

/* ---- results that are still referenced when the plan runs again ---- */

/* Result i has references beside the plan's. */
static bool is_referenced(const gd_plan *plan, size_t i)
{
    return plan->results[i]->refs > 1;
}

static bool is_any_referenced(const gd_plan *plan)
{
    for (size_t i = 0; i < plan->ir.output_count; i++)
        if (is_referenced(plan, i))
            return true;
    return false;
}

/* The block is shared by tensors other than the results: views of them, or their history. */
static bool is_block_shared(const gd_plan *plan)
{
    return plan->block->refs > 1 + (int64_t)plan->ir.output_count;
}

/* New handles in `block` for the results that are referenced; NULL for the others. */
static gd_status make_handles(gd_plan *plan, gd_storage *block, gd_tensor **fresh)
{
    if (gd_scope_begin(plan->ir.context) != GD_OK)
        return GD_ERR_MEMORY;
    bool ok = true;
    for (size_t i = 0; ok && i < plan->ir.output_count; i++)
        if (is_referenced(plan, i))
            ok = (fresh[i] = make_result(plan, plan->ir.outputs[i], block)) != NULL;
    (void)gd_scope_end(plan->ir.context);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

/* Results that are arguments of this call and that the plan alone references: the scope takes a
 * reference as well, so that they keep their contents until it ends. */
static void keep_arguments(gd_plan *plan, gd_tensor *const *inputs)
{
    for (size_t i = 0; i < plan->n_patches; i++) {
        gd_tensor *t = inputs[plan->patches[i].input];
        if (t->storage == plan->block && t->refs == 1)
            (void)gd_scope_adopt(gd_retain(t));
    }
}

/* The old block stays with the tensors that share it; the plan continues in a new one. */
static gd_status change_block(gd_plan *plan)
{
    size_t n = plan->ir.output_count;
    gd_storage *old = plan->block, *block = new_block(plan);
    gd_tensor **fresh = gd_alloc_zero(n, sizeof(gd_tensor *));
    gd_status status = block && fresh ? make_handles(plan, block, fresh) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = copy_constants(plan, block);
    if (status == GD_OK) {
        move_steps(plan, block);
        plan->block = block;
    }
    for (size_t i = 0; fresh && i < n; i++) {
        if (status != GD_OK) {
            gd_unlink(fresh[i]);
        } else if (fresh[i]) {
            gd_unlink(plan->results[i]);
            plan->results[i] = fresh[i];
        } else {
            plan->results[i]->storage = block;
            block->refs++;
            old->refs--;
        }
    }
    gd_free(fresh);
    gd_storage_drop(plan->ir.context, status == GD_OK ? old : block);
    return status;
}

/* Move result i out of the block, with its contents. The plan gets a new handle for its next run. */
static gd_status copy_out(gd_plan *plan, size_t i)
{
    gd_tensor *t = plan->results[i];
    gd_context *context = plan->ir.context;
    size_t before = 0, size = gd_dtype_size(t->layout.dtype);
    size_t bytes = gd_layout_count(&t->layout) ? span(&t->layout, &before) : 0;
    gd_storage *own = gd_storage_new(context, bytes);
    if (!own || gd_scope_begin(context) != GD_OK) {
        gd_storage_drop(context, own);
        return GD_ERR_MEMORY;
    }
    gd_tensor *fresh = make_result(plan, plan->ir.outputs[i], plan->block);
    (void)gd_scope_end(context);
    gd_status status =
        fresh ? copy_memory(plan, own->data, (const char *)gd_node_data(t) - before, bytes)
              : GD_ERR_MEMORY;
    if (status != GD_OK) {
        gd_unlink(fresh);
        gd_storage_drop(context, own);
        return status;
    }
    own->version = t->storage->version;
    gd_storage_drop(context, t->storage);
    t->storage = own;
    t->layout.offset = (int64_t)(before / size);
    plan->results[i] = fresh;
    gd_unlink(t);
    return GD_OK;
}

/* Before the plan runs again: results of the last run that are still referenced keep their contents.
 * Where a view, another plan or the user knows an address in the block, the block is left to them;
 * else the results are copied out of it, so that a loss does not keep the memory of a whole training
 * step alive. */
static gd_status preserve_results(gd_plan *plan, gd_tensor *const *inputs)
{
    bool any = is_any_referenced(plan);
    if (is_block_shared(plan) || (any && plan->block->is_pinned)) {
        keep_arguments(plan, inputs);
        return change_block(plan);
    }
    gd_status status = GD_OK;
    for (size_t i = 0; any && status == GD_OK && i < plan->ir.output_count; i++)
        if (is_referenced(plan, i))
            status = copy_out(plan, i);
    return status;
}

/* Working copies and packed operands that the plan reads are those of the parameters as they are;
 * copies that it makes belong to nothing until it has run to its end. */
static gd_status begin_copies(gd_plan *plan)
{
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < plan->ir.copy_count; i++) {
        const gd_ir_copy *c = &plan->ir.copies[i];
        if (c->is_read)
            status = gd_working_copy_refresh(c->copy);
        if (c->is_updated)
            gd_working_copy_forget(c->copy);
    }
    if (status == GD_OK)
        gd_packed_refresh(&plan->packed);
    return status;
}

gd_status gd_plan_begin(gd_plan *plan, gd_tensor *const *inputs)
{
    gd_status status = preserve_results(plan, inputs);
    if (status != GD_OK)
        return status;
    bool is_own = false;
    for (size_t i = 0; i < plan->n_patches; i++) {
        const gd_patch *patch = &plan->patches[i];
        const gd_tensor *t = inputs[patch->input];
        patch->operand->data = (char *)gd_node_data(t) + patch->bytes;
        is_own |= t->storage == plan->block;
    }
    if (is_own)
        status = keep_own_results(plan, inputs);
    if (status == GD_OK)
        status = begin_copies(plan);
    if (status != GD_OK)
        return status;
    return plan->ir.random_words ? gd_random_publish(plan->ir.context) : GD_OK;
}

gd_status gd_plan_check_arguments(const gd_plan *plan, int count, gd_tensor *const *inputs)
{
    for (int i = 0; i < count; i++)
        for (size_t k = 0; inputs[i]->storage->is_target && k < plan->n_written; k++)
            if (inputs[i]->storage == plan->written[k])
                return gd_fail(GD_ERR_STATE,
                               "gd_call: input %d lies in the memory of a tensor that the function "
                               "assigns to; give it a copy, or read that tensor in the body",
                               i);
    return GD_OK;
}

/* Results without other references become new tensors in their old handles: marks, gradients and
 * names of the old ones do not pass to them. Results with other references have been replaced
 * before the run. */
static void renew_results(gd_plan *plan)
{
    for (size_t i = 0; i < plan->ir.output_count; i++) {
        gd_tensor *t = plan->results[i];
        t->requires_grad = t->replaced = false;
        t->version = t->storage->version;
        gd_unlink(t->grad);
        t->grad = NULL;
        gd_name_free(t->name);
        t->name = NULL;
    }
}

void gd_plan_end(gd_plan *plan)
{
    renew_results(plan);
    plan->ir.context->random_position += plan->ir.random_words;
    for (size_t i = 0; i < plan->n_written; i++)
        plan->written[i]->version++;
    for (size_t i = 0; i < plan->ir.copy_count; i++)
        if (plan->ir.copies[i].is_updated)
            gd_working_copy_note(plan->ir.copies[i].copy);
}

/* Of what the call before left in the block, only constants have a meaning. */
static void forget_values(const gd_plan *plan)
{
#ifdef GD_FORGETTING
    if (!plan->ir.context->device->host_memory)
        return;
    for (size_t i = 0; i < plan->ir.count; i++) {
        const size_t at = plan->memory.offset[i];
        if (at != GD_NO_OFFSET && !plan->ir.values[i].is_constant)
            gd_forget((char *)plan->block->data + at, gd_layout_bytes(&plan->ir.values[i].layout));
    }
#else
    (void)plan;
#endif
}

static gd_status run_steps(gd_plan *plan, gd_status status)
{
    if (status == GD_OK)
        forget_values(plan);
    gd_device *device = plan->ir.context->device;
    const gd_step *end = plan->steps + plan->n_steps;
    const int threads = gd_plan_take_threads(plan);
    if (plan->calls && status == GD_OK)
        status = device->backend->run_calls(device, plan->calls, plan->n_steps, &plan->replay);
    else
        for (const gd_step *s = plan->steps; status == GD_OK && s < end; s += s->together)
            status = gd_step_run(s);
    gd_plan_give_threads(plan, threads);
    if (status == GD_OK)
        gd_plan_end(plan);
    return status;
}

gd_status gd_plan_run_timed(gd_plan *plan, gd_tensor *const *inputs, double *seconds)
{
    gd_status status = gd_plan_begin(plan, inputs);
    if (status == GD_OK)
        forget_values(plan);
    gd_device *device = plan->ir.context->device;
    const gd_step *end = plan->steps + plan->n_steps;
    const int threads = gd_plan_take_threads(plan);
    double begin = gd_seconds();
    for (const gd_step *s = plan->steps; status == GD_OK && s < end;) {
        const uint8_t phase = plan->ir.values[s->value].phase;
        while (status == GD_OK && s < end && plan->ir.values[s->value].phase == phase) {
            status = gd_step_run(s);
            s += s->together;
        }
        if (status == GD_OK)
            status = gd_device_synchronize(device);
        double now = gd_seconds();
        seconds[phase] += now - begin;
        begin = now;
    }
    gd_plan_give_threads(plan, threads);
    if (status == GD_OK)
        gd_plan_end(plan);
    return status;
}

gd_status gd_plan_run(gd_plan *plan, gd_tensor *const *inputs)
{
    return run_steps(plan, gd_plan_begin(plan, inputs));
}

gd_status gd_plan_run_at(gd_plan *plan, void *const *arguments)
{
    gd_status status = is_block_shared(plan) ? change_block(plan) : GD_OK;
    if (status == GD_OK)
        status = begin_copies(plan);
    if (status != GD_OK)
        return status;
    for (size_t i = 0; i < plan->n_patches; i++) {
        const gd_patch *patch = &plan->patches[i];
        patch->operand->data = (char *)arguments[patch->input] + patch->bytes;
    }
    return run_steps(plan, plan->ir.random_words ? gd_random_publish(plan->ir.context) : GD_OK);
}
