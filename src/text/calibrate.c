/* text/calibrate.c: how much the columns of a language model's matrices count: the mean squares of what they are multiplied with, over
 * a text. Start at gd_language_model_calibrate(). */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/importance.h"
#include "nn/observe.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

/* Tokens of a sequence at most: more make no other means, and their logits take memory. */
enum { SEQUENCE = 512 };

typedef struct observation {
    gd_importance *importance;
    const gd_language_model *model;
} observation;

/* Squares of the rows x [.., columns] that the layer `name` is given, added to those of its matrices. */
static gd_status observe(void *user, const char *name, gd_tensor *x)
{
    const observation *o = user;
    const int64_t columns = gd_tensor_shape(x).dim[gd_tensor_shape(x).rank - 1];
    const int64_t rows = gd_tensor_count(x) / columns;
    const char *files[3];
    char room[3][GD_LANGUAGE_FILE_NAME];
    const int count = gd_language_file_names(o->model, name, files, room);
    gd_tensor *plain = gd_contiguous(gd_cast(x, GD_F32));
    const size_t size = (size_t)(rows * columns) * sizeof(float);
    float *values = plain ? gd_alloc(size) : NULL;
    gd_status status = values ? gd_tensor_read(plain, values, size) : gd_error_last();
    for (int i = 0; status == GD_OK && i < count; i++)
        status = gd_importance_add(o->importance, files[i], rows, columns, values);
    gd_free(values);
    return status;
}

static gd_status run_sequence(gd_language_model *m, int64_t count, const int32_t *tokens)
{
    gd_status status = gd_scope_begin(m->context);
    if (status != GD_OK)
        return status;
    gd_tensor *t = gd_from_host(m->context, GD_SHAPE(1, count), GD_I32, tokens);
    if (!gd_language_model_forward(m, t))
        status = gd_error_last();
    (void)gd_scope_end(m->context);
    return status;
}

/* A model in training is not, for the time. */
static gd_status run_all(gd_language_model *m, observation *o, int64_t count, const int32_t *tokens)
{
    const int64_t most = m->options.max_length < SEQUENCE ? m->options.max_length : SEQUENCE;
    const bool training = gd_module_is_training(m->module);
    gd_status status = gd_no_grad_begin(m->context);
    if (status != GD_OK)
        return status;
    gd_module_set_training(m->module, false);
    gd_module_observe(m->module, observe, o);
    for (int64_t at = 0; status == GD_OK && at < count; at += most)
        status = run_sequence(m, count - at < most ? count - at : most, tokens + at);
    gd_module_observe(m->module, NULL, NULL);
    gd_module_set_training(m->module, training);
    (void)gd_no_grad_end(m->context);
    return status;
}

gd_importance *gd_language_model_calibrate(gd_language_model *m, int64_t count,
                                           const int32_t *tokens)
{
    static const char who[] = "gd_language_model_calibrate";
    if (!m || !tokens || count < 1)
        return gd_fail_null(GD_ERR_INVALID, "%s: %s", who,
                            m ? "there are no tokens" : "the model is NULL");
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= m->options.vocabulary)
            return gd_fail_null(GD_ERR_INVALID, "%s: token %d; the model has %lld", who,
                                (int)tokens[i], (long long)m->options.vocabulary);
    observation o = { .importance = gd_alloc_zero(1, sizeof(gd_importance)), .model = m };
    gd_status status = o.importance ? run_all(m, &o, count, tokens) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = gd_importance_finish(o.importance);
    if (status == GD_OK)
        return o.importance;
    gd_importance_release(o.importance);
    return NULL;
}
