/* data/mapping.c: a tensor that the host fills again and again: in its own memory, or through a
 * buffer on devices whose memory the host cannot reach. */
#include "data/mapping.h"

#include <gradus/ops.h>

#include "base/error.h"
#include "base/memory.h"

static size_t bytes_of(const gd_mapping *m)
{
    return (size_t)gd_tensor_count(m->tensor) * gd_dtype_size(gd_tensor_dtype(m->tensor));
}

gd_status gd_mapping_open(gd_mapping *m, gd_context *context, gd_shape shape, gd_dtype dtype)
{
    *m = (gd_mapping){ .tensor = gd_state(context, shape, 0, dtype) };
    if (!m->tensor)
        return gd_error_last();
    m->data = gd_tensor_data(m->tensor);
    if (!m->data)
        m->data = m->staging = gd_alloc(bytes_of(m));
    return m->data ? GD_OK : GD_ERR_MEMORY;
}

void gd_mapping_close(gd_mapping *m)
{
    gd_release(m->tensor);
    gd_free(m->staging);
    *m = (gd_mapping){ 0 };
}

gd_status gd_mapping_begin(gd_mapping *m)
{
    return gd_tensor_modified(m->tensor);
}

gd_status gd_mapping_end(gd_mapping *m)
{
    if (m->staging)
        return gd_tensor_write(m->tensor, m->staging, bytes_of(m));
    /* What was computed from the tensor during the write must not be differentiated, either. */
    return gd_tensor_modified(m->tensor);
}
