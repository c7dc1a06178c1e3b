/* compile/working_copy.c: copies of parameters in 16 bits: making, ending, converting. Which plans read
 * and update them is working_copies.c. */
#include "compile/working_copy.h"

#include <gradus/autograd.h>

#include "base/memory.h"
#include "graph/context.h"

bool gd_working_copy_is_of(const gd_working_copy *copy, const gd_layout *layout, gd_dtype dtype)
{
    const gd_layout *from = &copy->parameter->layout;
    return copy->tensor->layout.dtype == dtype && from->dtype == layout->dtype &&
           from->offset == layout->offset && gd_layout_same_shape(from, layout) &&
           gd_layout_is_contiguous(layout);
}

static void end_copy(gd_working_copy *copy)
{
    gd_unlink(copy->tensor);
    gd_unlink(copy->parameter);
    gd_free(copy);
}

/* A copy without contents that is in no list. */
static gd_working_copy *new_copy(gd_tensor *t, gd_dtype dtype)
{
    gd_context *context = t->context;
    gd_working_copy *copy = gd_alloc_zero(1, sizeof *copy);
    gd_layout layout;
    if (!copy || gd_scope_begin(context) != GD_OK) {
        gd_free(copy);
        return NULL;
    }
    copy->parameter = gd_link(t);
    if (gd_layout_init(&layout, gd_layout_shape(&t->layout), dtype, "gd_compile") == GD_OK) {
        gd_storage *storage = gd_storage_new(context, gd_layout_bytes(&layout));
        copy->tensor = storage ? gd_link(gd_leaf_new(context, &layout, storage)) : NULL;
    }
    (void)gd_scope_end(context);
    if (!copy->tensor || (t->name && !gd_set_name(copy->tensor, t->name))) {
        end_copy(copy);
        return NULL;
    }
    copy->attr = (gd_cast_attr){ .dtype = (int64_t)dtype };
    copy->in = (gd_operand){ gd_node_data(t), &t->layout };
    copy->call = (gd_kernel_call){ .device = context->device,
                                   .op = gd_op_row(GD_OP_cast),
                                   .attr = &copy->attr,
                                   .n = 1,
                                   .in = &copy->in,
                                   .out = { gd_node_data(copy->tensor), &copy->tensor->layout } };
    return copy;
}

gd_status gd_working_copy_take(gd_tensor *t, gd_dtype dtype, gd_working_copy **copy)
{
    gd_working_copy *c = t->storage->copies;
    while (c && !gd_working_copy_is_of(c, &t->layout, dtype))
        c = c->next;
    *copy = c;
    if (c) {
        c->refs++;
        return GD_OK;
    }
    c = new_copy(t, dtype);
    if (!c)
        return GD_ERR_MEMORY;
    if (!gd_device_takes(&c->call)) {
        end_copy(c);
        return GD_OK;
    }
    c->refs = 1;
    c->next = t->storage->copies;
    t->storage->copies = c;
    *copy = c;
    return GD_OK;
}

void gd_working_copy_drop(gd_working_copy *copy)
{
    if (--copy->refs > 0)
        return;
    gd_working_copy **link = &copy->parameter->storage->copies;
    while (*link != copy)
        link = &(*link)->next;
    *link = copy->next;
    end_copy(copy);
}

gd_status gd_working_copy_refresh(gd_working_copy *copy)
{
    const gd_storage *storage = copy->parameter->storage;
    if (copy->is_made && !storage->is_exposed && copy->version == storage->version)
        return GD_OK;
    if (gd_layout_count(&copy->parameter->layout) > 0) {
        const gd_status status = copy->call.device->kernel[GD_OP_cast](&copy->call);
        if (status != GD_OK)
            return status;
    }
    gd_working_copy_note(copy);
    return GD_OK;
}
