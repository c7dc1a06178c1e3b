/* optim/ema.c: exponential moving averages of a module's parameters. Start at gd_ema_update(). */
#include <gradus/optim.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "optim/state.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <string.h>

struct gd_ema {
    gd_module *module;
    gd_context *context;
    double decay;
    gd_tensor *count;    /* [] f64, updates so far */
    gd_tensor **average; /* by number of the module's parameter; NULL: none, or not yet */
    size_t slots, capacity;
};

static void destroy(void *object)
{
    gd_ema *e = object;
    for (size_t i = 0; i < e->slots; i++)
        gd_release(e->average[i]);
    gd_release(e->count);
    gd_free(e->average);
    gd_free(e);
}

void gd_ema_release(gd_ema *e)
{
    if (!e)
        return;
    gd_context_disown(e->context, e);
    destroy(e);
}

gd_ema *gd_ema_create_with(gd_module *module, const gd_ema_options *options)
{
    gd_ema_options o = { GD_EMA_DEFAULTS };
    if (!module || !gd_options_read("gd_ema_create", &o, sizeof o, options))
        return NULL;
    if (gd_module_dtype(module) == GD_BF16)
        return gd_fail_null(
            GD_ERR_DTYPE, "gd_ema_create: the parameters are bf16, in which averages stand still; "
                          "f32 or f64 is needed");
    if (!(o.decay >= 0.0 && o.decay < 1.0))
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_ema_create: decay is %g; it must be 0 or more, below 1", o.decay);
    gd_ema *e = gd_alloc_zero(1, sizeof *e);
    if (!e)
        return NULL;
    e->module = module;
    e->context = gd_module_context(module);
    e->decay = o.decay;
    e->count = gd_state(e->context, GD_SCALAR, 0.0, GD_F64);
    if (!e->count || gd_context_adopt(e->context, e, destroy) != GD_OK) {
        destroy(e);
        return NULL;
    }
    return e;
}

/* An average for each parameter there is. One made later begins with the parameter's value. */
static gd_status reserve(gd_ema *e)
{
    size_t count = (size_t)gd_module_count(e->module);
    if (!gd_grow((void **)&e->average, &e->capacity, count, sizeof *e->average))
        return GD_ERR_MEMORY;
    for (; e->slots < count; e->slots++) {
        gd_tensor *p = gd_module_tensor(e->module, (int)e->slots),
                  **average = &e->average[e->slots];
        *average = NULL;
        if (!gd_module_is_parameter(e->module, (int)e->slots))
            continue;
        *average = gd_state(e->context, gd_tensor_shape(p), 0.0, gd_tensor_dtype(p));
        gd_trace_pause(e->context);
        bool ok = *average && gd_assign(*average, p);
        gd_trace_resume(e->context);
        if (!ok) {
            gd_release(*average);
            return gd_error_last();
        }
    }
    return GD_OK;
}

/* average += weight * (parameter - average), the weight of the first time being 1. */
static bool update(gd_ema *e)
{
    gd_tensor *first = gd_eq(e->count, gd_scalar(e->context, 0.0, GD_F64));
    gd_dtype dtype = gd_module_dtype(e->module);
    gd_tensor *weight = gd_where(first, gd_scalar(e->context, 1.0, dtype),
                                 gd_scalar(e->context, 1.0 - e->decay, dtype));
    gd_tensor *zero = gd_scalar(e->context, 0.0, dtype);
    for (size_t i = 0; i < e->slots; i++) {
        gd_tensor *average = e->average[i], *p = gd_module_tensor(e->module, (int)i);
        if (!average)
            continue;
        /* The first time the average is taken for zero: a + 1 * (p - a) would not be p exactly. */
        gd_tensor *from = gd_where(first, zero, average);
        if (!gd_assign(average, gd_add(from, gd_mul(gd_sub(p, from), weight))))
            return false;
    }
    return gd_assign(e->count, gd_add_scalar(e->count, 1.0));
}

gd_status gd_ema_update(gd_ema *e)
{
    if (!e)
        return gd_fail(GD_ERR_INVALID, "gd_ema_update: the averages are NULL");
    gd_status status = reserve(e);
    if (status != GD_OK)
        return status;
    status = gd_scope_begin(e->context);
    if (status != GD_OK)
        return status;
    (void)gd_no_grad_begin(e->context);
    if (!update(e))
        status = gd_error_last();
    (void)gd_no_grad_end(e->context);
    (void)gd_scope_end(e->context);
    return status;
}

/* Exchange the contents of two tensors, with room for both. */
static gd_status exchange(gd_tensor *a, gd_tensor *b, char *room, size_t bytes)
{
    gd_status status = gd_tensor_read(a, room, bytes);
    if (status == GD_OK)
        status = gd_tensor_read(b, room + bytes, bytes);
    if (status == GD_OK)
        status = gd_tensor_write(a, room + bytes, bytes);
    return status == GD_OK ? gd_tensor_write(b, room, bytes) : status;
}

gd_status gd_ema_swap(gd_ema *e)
{
    if (!e)
        return gd_fail(GD_ERR_INVALID, "gd_ema_swap: the averages are NULL");
    if (gd_is_tracing(e->context))
        return gd_fail_traced("gd_ema_swap");
    double count;
    gd_status status = gd_tensor_read(e->count, &count, sizeof count);
    if (status != GD_OK)
        return status;
    if (count == 0.0)
        return gd_fail(GD_ERR_STATE, "gd_ema_swap: there are no averages before gd_ema_update");
    size_t most = 0;
    for (size_t i = 0; i < e->slots; i++) {
        size_t bytes = (size_t)gd_tensor_count(e->average[i]) * sizeof(double);
        most = bytes > most ? bytes : most;
    }
    char *room = gd_alloc(2 * most + 1);
    if (!room)
        return GD_ERR_MEMORY;
    for (size_t i = 0; status == GD_OK && i < e->slots; i++) {
        gd_tensor *average = e->average[i];
        if (average)
            status = exchange(average, gd_module_tensor(e->module, (int)i), room,
                              (size_t)gd_tensor_count(average) *
                                  gd_dtype_size(gd_tensor_dtype(average)));
    }
    gd_free(room);
    return status;
}

/* ---- in files ---- */

gd_status gd_ema_collect(const gd_ema *e, const char *prefix, gd_state_list *state)
{
    gd_status status = gd_state_add(state, prefix, "updates", NULL, e->count);
    for (size_t i = 0; status == GD_OK && i < e->slots; i++)
        if (e->average[i])
            status =
                gd_state_add(state, prefix, gd_module_path(e->module, (int)i), NULL, e->average[i]);
    return status;
}

static gd_tensor *find(void *user, const char *name)
{
    const gd_ema *e = user;
    if (strcmp(name, "updates") == 0)
        return e->count;
    for (size_t i = 0; i < e->slots; i++)
        if (e->average[i] && strcmp(gd_module_path(e->module, (int)i), name) == 0)
            return e->average[i];
    return NULL;
}

gd_status gd_ema_read(gd_ema *e, const char *prefix, const gd_tensor_file *file, const char *path,
                      gd_state_list *state)
{
    gd_state_list has = { 0 };
    const gd_state_owner owner = {
        .prefix = prefix, .whose = "average of weights", .find = find, .user = e
    };
    gd_status status = reserve(e);
    if (status == GD_OK)
        status = gd_ema_collect(e, prefix, &has);
    if (status == GD_OK)
        status = gd_state_read(state, file, path, e->context, &owner, &has);
    gd_state_list_free(&has);
    return status;
}
