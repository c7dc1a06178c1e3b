/* graph/values.c: values of tensors from the host, beyond reading and writing all of them
 * (graph/context.c): one element, a copy, another context, and tensors mapped into host memory. */
#include "backend/backend.h"
#include "graph/apply.h"
#include "graph/context.h"
#include "graph/node.h"

#include <math.h>
#include <string.h>

#include <gradus/ops.h>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/element.h"

/* ---- one element ---- */

/* Where the element lies, in bytes from the start of the storage. */
static gd_status locate(const gd_tensor *t, gd_shape index, const char *who, size_t *at)
{
    gd_status status = gd_check_value(t, who);
    if (status != GD_OK)
        return status;
    const gd_layout *layout = &t->layout;
    char shape[GD_SHAPE_TEXT], text[GD_SHAPE_TEXT];
    if (index.rank != layout->rank)
        return gd_fail(GD_ERR_SHAPE, "%s: %d indices for a tensor %s", who, index.rank,
                       gd_layout_text(layout, shape));
    int64_t offset = layout->offset;
    for (int axis = 0; axis < index.rank; axis++) {
        int64_t i = index.dim[axis] < 0 ? index.dim[axis] + layout->shape[axis] : index.dim[axis];
        if (i < 0 || i >= layout->shape[axis])
            return gd_fail(GD_ERR_SHAPE, "%s: there is no element %s in a tensor %s", who,
                           gd_shape_text(index, text), gd_layout_text(layout, shape));
        offset += i * layout->stride[axis];
    }
    *at = (size_t)offset * gd_dtype_size(layout->dtype);
    return GD_OK;
}

/* The element's bytes. */
static gd_status read_element(const gd_tensor *t, gd_shape index, const char *who,
                              unsigned char raw[8])
{
    size_t at;
    if (locate(t, index, who, &at) != GD_OK)
        return gd_error_last();
    gd_device *device = t->context->device;
    return device->backend->memory_read(device, raw, (char *)t->storage->data + at,
                                        gd_dtype_size(t->layout.dtype));
}

double gd_get_at(const gd_tensor *t, gd_shape index)
{
    unsigned char raw[8] = { 0 };
    return read_element(t, index, "gd_get", raw) == GD_OK
               ? gd_element_as_double(t->layout.dtype, raw)
               : NAN;
}

int64_t gd_get_i64_at(const gd_tensor *t, gd_shape index)
{
    unsigned char raw[8] = { 0 };
    if (read_element(t, index, "gd_get_i64", raw) != GD_OK)
        return 0;
    if (gd_dtype_is_float(t->layout.dtype)) {
        (void)gd_fail(GD_ERR_DTYPE, "gd_get_i64: the tensor is %s; gd_get reads floats",
                      gd_dtype_name(t->layout.dtype));
        return 0;
    }
    int64_t exact;
    memcpy(&exact, raw, sizeof exact);
    if (t->layout.dtype == GD_U64 && exact < 0) {
        (void)gd_fail(GD_ERR_INVALID, "gd_get_i64: %llu is more than an i64 holds",
                      (unsigned long long)exact);
        return 0;
    }
    return gd_dtype_size(t->layout.dtype) == sizeof exact
               ? exact
               : (int64_t)gd_element_as_double(t->layout.dtype, raw);
}

static gd_status write_element(gd_tensor *t, gd_shape index, const char *who, const void *raw)
{
    size_t at;
    if (locate(t, index, who, &at) != GD_OK)
        return gd_error_last();
    t->storage->version++;
    gd_device *device = t->context->device;
    return device->backend->memory_write(device, (char *)t->storage->data + at, raw,
                                         gd_dtype_size(t->layout.dtype));
}

gd_status gd_set_at(gd_tensor *t, gd_shape index, double value)
{
    size_t at;
    if (locate(t, index, "gd_set", &at) != GD_OK)
        return gd_error_last();
    unsigned char raw[8] = { 0 };
    gd_status status = gd_scope_begin(t->context);
    if (status != GD_OK)
        return status;
    /* gd_full knows which numbers the dtype holds, and rounds. */
    gd_tensor *number = GD_AS("gd_set", gd_full(t->context, GD_SCALAR, value, t->layout.dtype));
    status = number ? gd_tensor_read(number, raw, gd_dtype_size(t->layout.dtype)) : gd_error_last();
    (void)gd_scope_end(t->context);
    return status == GD_OK ? write_element(t, index, "gd_set", raw) : status;
}

gd_status gd_set_i64_at(gd_tensor *t, gd_shape index, int64_t value)
{
    const int64_t exact = (int64_t)1 << 53;
    bool is_exact = (value >= -exact && value <= exact) || !gd_usable(t, "gd_set_i64") ||
                    gd_dtype_is_float(t->layout.dtype);
    if (is_exact)
        return GD_AS("gd_set_i64", gd_set_at(t, index, (double)value));
    if (t->layout.dtype == GD_I64 || (t->layout.dtype == GD_U64 && value >= 0))
        return write_element(t, index, "gd_set_i64", &value);
    return gd_fail(GD_ERR_INVALID, "gd_set_i64: %s cannot hold %lld",
                   gd_dtype_name(t->layout.dtype), (long long)value);
}

/* ---- copies ---- */

gd_tensor *gd_copy(gd_tensor *x)
{
    return gd_usable(x, "gd_copy") ? GD_AS("gd_copy", gd_apply1(GD_OP_copy, x, NULL)) : NULL;
}

gd_tensor *gd_to(gd_context *context, gd_tensor *t)
{
    if (!context)
        return gd_fail_null(GD_ERR_INVALID, "gd_to: the context is NULL");
    if (!gd_usable(t, "gd_to") || t->context == context)
        return gd_usable(t, "gd_to") ? t : NULL;
    if (gd_check_value(t, "gd_to") != GD_OK)
        return NULL;
    if (context->trace)
        return (gd_tensor *)(gd_fail_traced("gd_to"), NULL);
    gd_shape shape = gd_layout_shape(&t->layout);
    if (t->context->device->host_memory && gd_layout_is_contiguous(&t->layout))
        return GD_AS("gd_to", gd_from_host(context, shape, t->layout.dtype, gd_node_data(t)));
    size_t bytes = gd_layout_bytes(&t->layout);
    void *values = gd_alloc(bytes + 1);
    gd_tensor *copy = NULL;
    if (values && gd_tensor_read(t, values, bytes) == GD_OK)
        copy = GD_AS("gd_to", gd_from_host(context, shape, t->layout.dtype, values));
    gd_free(values);
    return copy;
}

/* ---- mapping ---- */

/* A buffer for a tensor that the host cannot use as it lies. Those of tensors that are no longer mapped
 * are kept for the next that take as many bytes: a loader maps batches of one size or two, over and
 * over. */
typedef struct gd_mapping {
    struct gd_mapping *next;
    const gd_tensor *tensor; /* NULL: it waits for one */
    size_t bytes;
    void *values; /* row-major */
} gd_mapping;

enum { MOST_IDLE = 4 }; /* samples and labels of two sizes of batches */

static bool is_host_array(const gd_tensor *t)
{
    return t->context->device->host_memory && gd_layout_is_contiguous(&t->layout);
}

static void mapping_free(gd_mapping *m)
{
    gd_free(m->values);
    gd_free(m);
}

static void free_all(gd_mapping **list)
{
    while (*list) {
        gd_mapping *m = *list;
        *list = m->next;
        mapping_free(m);
    }
}

void gd_mappings_trim(gd_context *context)
{
    free_all(&context->idle_mappings);
}

void gd_mappings_free(gd_context *context)
{
    free_all(&context->mappings);
    free_all(&context->idle_mappings);
}

/* A buffer, of those that wait or a new one. NULL: out of memory. */
static gd_mapping *take_mapping(gd_context *context, size_t bytes)
{
    gd_mapping **link = &context->idle_mappings;
    while (*link && (*link)->bytes != bytes)
        link = &(*link)->next;
    gd_mapping *m = *link;
    if (m) {
        *link = m->next;
        return m;
    }
    m = gd_alloc_zero(1, sizeof *m);
    if (m)
        *m = (gd_mapping){ .bytes = bytes, .values = gd_alloc(bytes + 1) };
    if (m && !m->values) {
        mapping_free(m);
        m = NULL;
    }
    return m;
}

/* Keep a buffer nobody uses; the one that has waited longest goes where there are too many. */
static void keep_mapping(gd_context *context, gd_mapping *m)
{
    m->tensor = NULL;
    m->next = context->idle_mappings;
    context->idle_mappings = m;
    gd_mapping **link = &context->idle_mappings;
    for (int i = 0; *link && i < MOST_IDLE; i++)
        link = &(*link)->next;
    free_all(link);
}

static void *map_buffer(gd_tensor *t, bool filled)
{
    gd_context *context = t->context;
    gd_mapping *m = take_mapping(context, gd_layout_bytes(&t->layout));
    if (!m)
        return NULL;
    if (filled && gd_tensor_read(t, m->values, m->bytes) != GD_OK) {
        keep_mapping(context, m);
        return NULL;
    }
    m->tensor = t;
    m->next = context->mappings;
    context->mappings = m;
    return m->values;
}

void *gd_tensor_map(gd_tensor *t, gd_map_access access)
{
    if (gd_check_value(t, "gd_tensor_map") != GD_OK)
        return NULL;
    if (access != GD_MAP_READ && access != GD_MAP_WRITE && access != GD_MAP_READ_WRITE)
        return gd_fail_null(GD_ERR_INVALID, "gd_tensor_map: %d is no access", (int)access);
    if (t->mapped)
        return gd_fail_null(GD_ERR_STATE, "gd_tensor_map: the tensor is mapped already");
    void *values = NULL;
    if (is_host_array(t)) {
        t->storage->is_pinned = true;
        values = gd_node_data(t);
    } else {
        values = map_buffer(t, access & GD_MAP_READ);
    }
    if (!values)
        return NULL;
    if (access & GD_MAP_WRITE)
        t->storage->version++;
    t->mapped = (uint8_t)access;
    (void)gd_link(t);
    return values;
}

gd_status gd_tensor_unmap(gd_tensor *t)
{
    gd_status status = gd_check_value(t, "gd_tensor_unmap");
    if (status != GD_OK)
        return status;
    if (!t->mapped)
        return gd_fail(GD_ERR_STATE, "gd_tensor_unmap: the tensor is not mapped");
    gd_mapping **link = &t->context->mappings;
    while (*link && (*link)->tensor != t)
        link = &(*link)->next;
    gd_mapping *m = *link;
    if (m && (t->mapped & GD_MAP_WRITE))
        status = gd_tensor_write(t, m->values, gd_layout_bytes(&t->layout));
    else if (t->mapped & GD_MAP_WRITE)
        t->storage->version++; /* for what was computed from it meanwhile */
    if (m) {
        *link = m->next;
        keep_mapping(t->context, m);
    }
    t->mapped = 0;
    gd_unlink(t);
    return status;
}
