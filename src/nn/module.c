/* nn/module.c: modules: named parameters and buffers, and the layers that use them. Start at
 * gd_parameter(). Saving and loading are in nn/module_file.c, the summary in nn/summary.c. */
#include "nn/module.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <gradus/autograd.h>
#include <gradus/compile.h>
#include <gradus/ops.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy(void *object)
{
    gd_module *m = object;
    for (size_t i = 0; i < m->entry_count; i++) {
        gd_release(m->entries[i].tensor);
        gd_free(m->entries[i].path);
    }
    for (size_t i = 0; i < m->layer_count; i++)
        gd_free(m->layers[i].name);
    for (gd_module_block *b = m->blocks; b;) {
        gd_module_block *next = b->next;
        gd_free(b);
        b = next;
    }
    gd_names_clear(&m->paths);
    gd_names_clear(&m->layer_names);
    gd_free(m->entries);
    gd_free(m->layers);
    gd_free(m->loaded_from);
    gd_free(m);
}

gd_module *gd_module_create_with(gd_context *context, const gd_module_options *options)
{
    gd_module_options o = { GD_MODULE_DEFAULTS };
    if (!context || !gd_options_read("gd_module_create", &o, sizeof o, options))
        return NULL;
    if (o.dtype != GD_F32 && o.dtype != GD_F64 && o.dtype != GD_BF16)
        return gd_fail_null(GD_ERR_DTYPE,
                            "gd_module_create: parameters are f32, f64 or bf16, not %s",
                            gd_dtype_name(o.dtype));
    gd_module *m = gd_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->context = context;
    m->dtype = o.dtype;
    m->random.seed = o.seed;
    m->training = true;
    if (gd_context_adopt(m->context, m, destroy) != GD_OK) {
        destroy(m);
        return NULL;
    }
    return m;
}

void gd_module_release(gd_module *m)
{
    if (!m)
        return;
    gd_context_disown(m->context, m);
    destroy(m);
}

gd_context *gd_module_context(const gd_module *m)
{
    return m ? m->context : NULL;
}

gd_dtype gd_module_dtype(const gd_module *m)
{
    return m ? m->dtype : GD_F32;
}

void gd_module_set_training(gd_module *m, bool training)
{
    if (m)
        m->training = training;
}

bool gd_module_is_training(const gd_module *m)
{
    return m && m->training;
}

/* ---- entries ---- */

int gd_module_count(const gd_module *m)
{
    return m ? (int)m->entry_count : 0;
}

static const gd_module_entry *entry_at(const gd_module *m, int i)
{
    return i >= 0 && i < gd_module_count(m) ? &m->entries[i] : NULL;
}

const char *gd_module_path(const gd_module *m, int i)
{
    const gd_module_entry *entry = entry_at(m, i);
    return entry ? entry->path : NULL;
}

gd_tensor *gd_module_tensor(const gd_module *m, int i)
{
    const gd_module_entry *entry = entry_at(m, i);
    return entry ? entry->tensor : NULL;
}

bool gd_module_is_parameter(const gd_module *m, int i)
{
    const gd_module_entry *entry = entry_at(m, i);
    return entry && entry->parameter;
}

int64_t gd_module_parameter_count(const gd_module *m)
{
    int64_t count = 0;
    for (int i = 0; i < gd_module_count(m); i++)
        if (m->entries[i].parameter)
            count += gd_tensor_count(m->entries[i].tensor);
    return count;
}

gd_tensor *gd_module_parameter(const gd_module *m, const char *path)
{
    if (!m || !path)
        return gd_fail_null(GD_ERR_INVALID, "gd_module_parameter: %s is NULL",
                            m ? "the path" : "the module");
    int i = gd_names_find(&m->paths, path);
    if (i < 0)
        return gd_fail_null(GD_ERR_INVALID,
                            "gd_module_parameter: there is no \"%s\" (%zu parameters and buffers "
                            "so far; layers make theirs at first use)",
                            path, m->entry_count);
    return m->entries[i].tensor;
}

gd_status gd_module_entry_add(gd_module *m, const char *path, gd_tensor *t, bool parameter,
                              bool claimed)
{
    if (!t)
        return gd_error_last();
    if (!gd_grow((void **)&m->entries, &m->entry_capacity, m->entry_count + 1, sizeof *m->entries))
        return GD_ERR_MEMORY;
    char *copy = gd_strdup(path);
    if (!copy || !gd_names_add(&m->paths, copy, (int)m->entry_count)) {
        gd_free(copy);
        return GD_ERR_MEMORY;
    }
    m->entries[m->entry_count++] = (gd_module_entry){ .path = copy,
                                                      .tensor = gd_retain(t),
                                                      .parameter = parameter,
                                                      .claimed = claimed,
                                                      .turn = claimed ? m->turns++ : 0 };
    return GD_OK;
}

static int compare_turns(const void *a, const void *b)
{
    size_t x = ((const gd_module_entry *)a)->turn, y = ((const gd_module_entry *)b)->turn;
    return x < y ? -1 : x > y;
}

gd_status gd_module_order_by_use(gd_module *m, const char *path)
{
    gd_names paths = { 0 };
    for (size_t i = 0; i < m->entry_count; i++)
        if (!m->entries[i].claimed)
            return gd_fail(GD_ERR_FORMAT,
                           "%s: its description is of another model: it has a \"%s\", which no "
                           "layer asks for",
                           path, m->entries[i].path);
    if (m->entry_count)
        qsort(m->entries, m->entry_count, sizeof *m->entries, compare_turns);
    for (size_t i = 0; i < m->entry_count; i++)
        if (!gd_names_add(&paths, m->entries[i].path, (int)i)) {
            gd_names_clear(&paths);
            return GD_ERR_MEMORY;
        }
    gd_names_clear(&m->paths);
    m->paths = paths;
    return GD_OK;
}

/* In a scope of its own the new tensor ends up with one owner, the module. */
static bool begin_creation(gd_module *m)
{
    gd_trace_pause(m->context);
    if (gd_scope_begin(m->context) == GD_OK)
        return true;
    gd_trace_resume(m->context);
    return false;
}

static void end_creation(gd_module *m)
{
    (void)gd_scope_end(m->context);
    gd_trace_resume(m->context);
}

gd_tensor *gd_module_convert(gd_tensor *t, gd_dtype dtype)
{
    return gd_dtype_is_float(gd_tensor_dtype(t)) ? gd_cast(t, dtype) : t;
}

/* An entry that came from a file takes the dtype it is used with, if both are floats. */
static bool convert(gd_module *m, gd_module_entry *entry, gd_dtype dtype)
{
    if (entry->claimed || gd_tensor_dtype(entry->tensor) == dtype || !gd_dtype_is_float(dtype))
        return true;
    if (!begin_creation(m))
        return false;
    (void)gd_no_grad_begin(m->context);
    gd_tensor *t = gd_set_name(gd_module_convert(entry->tensor, dtype), entry->path);
    if (t && t != entry->tensor) {
        gd_release(entry->tensor);
        entry->tensor = gd_retain(t);
    }
    (void)gd_no_grad_end(m->context);
    end_creation(m);
    return t;
}

/* The entry of that path and shape; *found says whether there is one at all. */
static gd_tensor *claim(gd_module *m, const char *path, gd_shape shape, gd_dtype dtype,
                        bool parameter, bool *found)
{
    int i = gd_names_find(&m->paths, path);
    *found = i >= 0;
    if (i < 0)
        return NULL;
    gd_module_entry *entry = &m->entries[i];
    if (!convert(m, entry, dtype))
        return NULL;
    gd_shape has = gd_tensor_shape(entry->tensor);
    bool same = has.rank == shape.rank && gd_tensor_dtype(entry->tensor) == dtype;
    for (int axis = 0; same && axis < shape.rank; axis++)
        same = has.dim[axis] == shape.dim[axis];
    if (!same) {
        char a[GD_NN_SHAPE_TEXT], b[GD_NN_SHAPE_TEXT];
        return gd_fail_null(GD_ERR_SHAPE, "\"%s\" is %s %s, but is used here as %s %s", path,
                            gd_dtype_name(gd_tensor_dtype(entry->tensor)), gd_nn_shape_text(has, a),
                            gd_dtype_name(dtype), gd_nn_shape_text(shape, b));
    }
    if (entry->claimed && entry->parameter != parameter)
        return gd_fail_null(GD_ERR_INVALID, "\"%s\" is a %s, but is used here as a %s", path,
                            entry->parameter ? "parameter" : "buffer",
                            parameter ? "parameter" : "buffer");
    if (!entry->claimed) {
        entry->claimed = true;
        entry->turn = m->turns++;
        entry->parameter = parameter;
        return gd_set_requires_grad(entry->tensor, parameter);
    }
    return entry->tensor;
}

static bool may_create(const gd_module *m, const char *path, gd_shape shape)
{
    if (shape.rank < 0 || shape.rank > GD_MAX_RANK)
        (void)gd_fail(GD_ERR_SHAPE, "\"%s\": the rank is %d, 0 to %d are allowed", path, shape.rank,
                      GD_MAX_RANK);
    else if (path[0] == '\0')
        (void)gd_fail(GD_ERR_INVALID, "a parameter's path is empty");
    else if (m->loaded_from)
        (void)gd_fail(GD_ERR_STATE,
                      "\"%s\" is not in %s, from which the module was loaded: another model", path,
                      m->loaded_from);
    else
        return true;
    return false;
}

/* A tensor of initial values. */
static gd_tensor *draw(gd_module *m, const char *path, gd_shape shape,
                       const gd_parameter_options *o)
{
    gd_tensor *t = gd_zeros(m->context, shape, m->dtype); /* checks the shape */
    if (!t)
        return NULL;
    size_t bytes = (size_t)gd_tensor_count(t) * gd_dtype_size(m->dtype);
    void *values = gd_alloc(bytes + 1);
    if (!values)
        return NULL;
    gd_random random = m->random;
    gd_initialiser initialiser = { o->init, o->init_scale, shape, o->fan_in, o->fan_out };
    gd_status status = gd_init_fill(&initialiser, &random, m->dtype, values);
    if (status == GD_OK)
        status = gd_tensor_write(t, values, bytes);
    gd_free(values);
    if (status != GD_OK || !gd_set_name(t, path) || !gd_set_requires_grad(t, true))
        return NULL;
    return t;
}

/* A tensor made outside of any trace and added as a parameter. On failure, NULL, the module is as
 * it was: its random stream advances only when the parameter has been added. */
static gd_tensor *create_parameter(gd_module *m, const char *path, gd_shape shape,
                                   const gd_parameter_options *o)
{
    gd_tensor *t = draw(m, path, shape, o);
    if (!t || gd_module_entry_add(m, path, t, true, true) != GD_OK)
        return NULL;
    m->random.next += gd_init_words(o->init, shape);
    return t;
}

static gd_tensor *create_buffer(gd_module *m, const char *path, gd_shape shape, gd_dtype dtype,
                                double value)
{
    gd_tensor *t = gd_set_name(gd_full(m->context, shape, value, dtype), path);
    return t && gd_module_entry_add(m, path, t, false, true) == GD_OK ? t : NULL;
}

gd_tensor *gd_parameter_with(gd_module *m, const char *path, gd_shape shape,
                             const gd_parameter_options *options)
{
    gd_parameter_options o = { GD_PARAMETER_DEFAULTS };
    if (!m || !gd_options_read("gd_parameter", &o, sizeof o, options))
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_parameter: the path is NULL");
    bool found;
    gd_tensor *t = claim(m, path, shape, m->dtype, true, &found);
    if (found || !may_create(m, path, shape) || !begin_creation(m))
        return t;
    t = create_parameter(m, path, shape, &o);
    end_creation(m);
    return t;
}

gd_tensor *gd_buffer(gd_module *m, const char *path, gd_shape shape, double value, gd_dtype dtype)
{
    if (!m)
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_buffer: the path is NULL");
    bool found;
    gd_tensor *t = claim(m, path, shape, dtype, false, &found);
    if (found || !may_create(m, path, shape) || !begin_creation(m))
        return t;
    t = create_buffer(m, path, shape, dtype, value);
    end_creation(m);
    return t;
}

gd_tensor *gd_module_draw_with(gd_module *m, gd_shape shape, const gd_parameter_options *options)
{
    gd_parameter_options o = { GD_PARAMETER_DEFAULTS };
    if (!m || !gd_options_read("gd_module_draw", &o, sizeof o, options))
        return NULL;
    if (!begin_creation(m))
        return NULL;
    gd_tensor *t = gd_keep(draw(m, "", shape, &o));
    if (t)
        m->random.next += gd_init_words(o.init, shape);
    end_creation(m);
    return t;
}

/* Where t stands in m already; NULL: nowhere. */
static const char *path_of(const gd_module *m, const gd_tensor *t)
{
    for (size_t i = 0; i < m->entry_count; i++)
        if (m->entries[i].tensor == t)
            return m->entries[i].path;
    return NULL;
}

/* Whether t can be a parameter or a buffer of m: what optimizers and files take for granted. An optimizer would
 * change a tensor of two paths twice. */
static bool may_put(const gd_module *m, const char *path, gd_tensor *t, bool parameter)
{
    if (!gd_set_requires_grad(t, gd_requires_grad(t))) /* ended, or not a leaf */
        return false;
    if (gd_tensor_context(t) != m->context)
        (void)gd_fail(GD_ERR_INVALID, "gd_module_put: \"%s\" is a tensor of another context", path);
    else if (path[0] == '\0')
        (void)gd_fail(GD_ERR_INVALID, "gd_module_put: the path is empty");
    else if (gd_names_find(&m->paths, path) >= 0)
        (void)gd_fail(GD_ERR_INVALID, "gd_module_put: there is a \"%s\" already", path);
    else if (path_of(m, t))
        (void)gd_fail(
            GD_ERR_INVALID,
            "gd_module_put: \"%s\" is the module's \"%s\", which an optimizer would change "
            "twice; layers that share it ask for one path",
            path, path_of(m, t));
    else if (parameter && gd_tensor_dtype(t) != m->dtype)
        (void)gd_fail(GD_ERR_DTYPE, "gd_module_put: \"%s\" is %s, the module's parameters are %s",
                      path, gd_dtype_name(gd_tensor_dtype(t)), gd_dtype_name(m->dtype));
    else
        return true;
    return false;
}

gd_status gd_module_put(gd_module *m, const char *path, gd_tensor *t, bool parameter)
{
    if (!m || !path || !t)
        return gd_fail(GD_ERR_INVALID, "gd_module_put: %s is NULL",
                       !m      ? "the module"
                       : !path ? "the path"
                               : "the tensor");
    if (!may_put(m, path, t, parameter))
        return gd_error_last();
    if (!gd_tensor_name(t)[0] && !gd_set_name(t, path))
        return gd_error_last();
    return gd_module_entry_add(m, path, t, parameter, true);
}

/* ---- to another context ---- */

/* An entry of another module, copied. */
static bool add_copy(gd_module *to, const gd_module_entry *entry)
{
    gd_tensor *t = entry->tensor;
    gd_tensor *copy = gd_tensor_context(t) == to->context ? gd_copy(t) : gd_to(to->context, t);
    if (!copy || !gd_set_name(copy, gd_tensor_name(t)) ||
        !gd_set_requires_grad(copy, gd_requires_grad(t)) ||
        gd_module_entry_add(to, entry->path, copy, entry->parameter, entry->claimed) != GD_OK)
        return false;
    to->entries[to->entry_count - 1].turn = entry->turn;
    return true;
}

/* What a new module has of m. */
static bool fill(gd_module *to, const gd_module *m)
{
    bool ok = !m->loaded_from || (to->loaded_from = gd_strdup(m->loaded_from));
    to->random = m->random;
    to->training = m->training;
    if (!ok || !begin_creation(to))
        return false;
    (void)gd_no_grad_begin(to->context);
    for (size_t i = 0; ok && i < m->entry_count; i++)
        ok = add_copy(to, &m->entries[i]);
    (void)gd_no_grad_end(to->context);
    end_creation(to);
    to->turns = m->turns;
    return ok;
}

gd_module *gd_module_to(gd_context *context, const gd_module *m)
{
    if (!context || !m)
        return gd_fail_null(GD_ERR_INVALID, "gd_module_to: the %s is NULL",
                            context ? "module" : "context");
    gd_module *to = gd_module_create(context, .dtype = m->dtype);
    if (to && !fill(to, m)) {
        gd_module_release(to);
        return NULL;
    }
    return to;
}

/* ---- layers ---- */

gd_module_layer *gd_module_layer_find(gd_module *m, const char *name)
{
    int i = gd_names_find(&m->layer_names, name);
    return i >= 0 ? &m->layers[i] : NULL;
}

gd_module_layer *gd_module_layer_add(gd_module *m, const char *name, const char *type)
{
    if (!gd_grow((void **)&m->layers, &m->layer_capacity, m->layer_count + 1, sizeof *m->layers))
        return NULL;
    char *copy = gd_strdup(name);
    if (!copy || !gd_names_add(&m->layer_names, copy, (int)m->layer_count)) {
        gd_free(copy);
        return NULL;
    }
    gd_module_layer *layer = &m->layers[m->layer_count++];
    *layer = (gd_module_layer){ .name = copy, .type = type };
    return layer;
}

char *gd_module_join(const char *layer, const char *suffix)
{
    size_t room = strlen(layer) + 1 + strlen(suffix) + 1;
    char *path = gd_alloc(room);
    if (path)
        snprintf(path, room, "%s.%s", layer, suffix);
    return path;
}

const char *gd_nn_shape_text(gd_shape shape, char text[GD_NN_SHAPE_TEXT])
{
    size_t at = (size_t)snprintf(text, GD_NN_SHAPE_TEXT, "[");
    for (int i = 0; i < shape.rank && at < GD_NN_SHAPE_TEXT; i++) {
        const char *comma = i ? ", " : "";
        size_t room = GD_NN_SHAPE_TEXT - at;
        if (shape.dim[i] == GD_NN_BATCH || shape.dim[i] == GD_NN_TIME)
            at += (size_t)snprintf(text + at, room, "%s%s", comma,
                                   shape.dim[i] == GD_NN_BATCH ? "batch" : "time");
        else
            at += (size_t)snprintf(text + at, room, "%s%lld", comma, (long long)shape.dim[i]);
    }
    if (at < GD_NN_SHAPE_TEXT)
        snprintf(text + at, GD_NN_SHAPE_TEXT - at, "]");
    return text;
}
