/* support/fit.h: the small regression that tests of gd_fit train, and a callback that counts what it is told. Include after
 * cmocka.h. */
#ifndef GD_TESTS_FIT_H
#define GD_TESTS_FIT_H

#include "support/folder.h"

#include <math.h>

enum { SAMPLES = 22, IN = 3 };

/* x [3], y [1] = 2 x0 - x1 + 1, and the class of its sign. */
static inline gd_dataset *numbers(gd_context *gd)
{
    static float x[SAMPLES * IN], y[SAMPLES];
    static int64_t sign[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < IN; k++)
            x[i * IN + k] = (float)((i * 7 + k * 5) % 13) / 6.5f - 1.0f;
        y[i] = 2.0f * x[i * IN] - x[i * IN + 1] + 1.0f;
        sign[i] = y[i] > 1.0f;
    }
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(IN) },
        { GD_FIELD_DEFAULTS, .name = "y", .shape = GD_SHAPE(1) },
        { GD_FIELD_DEFAULTS, .name = "sign", .dtype = GD_I64, .classes = 2 },
    };
    const void *arrays[] = { x, y, sign };
    gd_dataset *d = gd_dataset_from_arrays(gd, SAMPLES, 3, fields, arrays);
    assert_non_null(d);
    return d;
}

typedef struct trainee {
    gd_module *module;
    double factor; /* of the loss */
    bool takes_log;
} trainee;

static inline gd_tensor *predicted(const trainee *t, gd_tensor *x)
{
    gd_tensor *h = gd_tanh(gd_nn_linear(t->module, "fc", x, 4));
    return gd_nn_linear(t->module, "out", h, 1);
}

static inline gd_tensor *objective(void *user, const gd_objective_call *call)
{
    const trainee *t = user;
    gd_tensor *y = predicted(t, call->tensors[0]), *truth = call->tensors[1];
    if (t->takes_log)
        y = gd_log(y);
    gd_tensor *squares = gd_square(gd_sub(y, truth));
    gd_report(call, "rmse", squares, .form = GD_METRIC_ROOT);
    gd_report(call, "r2", y, .form = GD_METRIC_R2, .truth = truth);
    gd_report(call, "mae", gd_mean(gd_abs(gd_sub(y, truth)), GD_ALL_AXES, false));
    return gd_mul_scalar(gd_mean(squares, GD_ALL_AXES, false), t->factor);
}

static inline trainee new_trainee(gd_context *gd)
{
    return (trainee){ .module = gd_module_create(gd, .seed = 3), .factor = 1.0 };
}

static inline double loss_of(const gd_metrics *m)
{
    return gd_metrics_get(m, "loss");
}

static inline void assert_same_parameters(const gd_module *a, const gd_module *b)
{
    assert_int_equal(gd_module_count(a), gd_module_count(b));
    for (int i = 0; i < gd_module_count(a); i++)
        assert_same_bits(gd_module_tensor(a, i), gd_module_tensor(b, i));
}

typedef struct watch {
    int64_t validations, improvements, last_step, stop_at;
    double lr;
    gd_fit_progress last;
} watch;

static inline gd_status look(void *user, const gd_fit_progress *p, bool *stop)
{
    watch *w = user;
    w->validations += p->validated;
    w->improvements += p->improved;
    assert_true(p->total_step > w->last_step);
    w->last_step = p->total_step;
    w->lr = p->lr;
    w->last = *p;
    *stop = p->total_step == w->stop_at;
    return GD_OK;
}

#endif
