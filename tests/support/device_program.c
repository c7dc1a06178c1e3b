/* tests/support/device_program.c: see the header. Start at device_program. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/device_program.h"

#include <string.h>

enum { BATCH = 6, CLASSES = 4 };

typedef struct model {
    gd_module *module;
    gd_optimizer *optimizer;
} model;

static gd_tensor *step(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    const model *m = user;
    gd_tensor *h = gd_tanh(gd_nn_linear(m->module, "first", in[0], DEVICE_FEATURES));
    gd_tensor *scores = gd_nn_linear(m->module, "second", gd_dropout(h, 0.25), CLASSES);
    return gd_minimize(m->optimizer, gd_cross_entropy(scores, in[1]));
}

static bool train(gd_context *gd, device_outcome *out)
{
    float x[BATCH * DEVICE_FEATURES];
    int64_t labels[BATCH];
    for (int i = 0; i < BATCH * DEVICE_FEATURES; i++)
        x[i] = (float)(i % 7) / 4 - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % CLASSES;
    if (gd_seed(gd, 5) != GD_OK)
        return false;
    model m = { .module = gd_module_create(gd) };
    gd_tensor *in[2] = { gd_from_host(gd, GD_SHAPE(BATCH, DEVICE_FEATURES), GD_F32, x),
                         gd_from_host(gd, GD_SHAPE(BATCH), GD_I64, labels) };
    m.optimizer = gd_adam(m.module, .lr = 0.1);
    gd_function *f = gd_compile(gd, step, &m);
    bool ok = in[0] && in[1] && m.optimizer && f;
    for (int i = 0; i < DEVICE_STEPS && ok; i++) {
        gd_tensor *loss = gd_call(f, 2, in);
        ok = loss && gd_tensor_read(loss, &out->losses[i], sizeof(float)) == GD_OK;
    }
    gd_function_release(f);
    gd_optimizer_release(m.optimizer);
    gd_module_release(m.module);
    return ok;
}

/* Ops one by one, and a tensor that is larger than what goes through the ring of writes. */
static bool compute(gd_context *gd, device_outcome *out)
{
    enum { LARGE = 800000 };
    static float large[LARGE];
    gd_tensor *x = gd_from_host(gd, GD_SHAPE(LARGE), GD_F32, large);
    gd_tensor *y = gd_add(gd_slice(x, 0, 7, 7 + DEVICE_FEATURES, 1),
                          gd_ones(gd, GD_SHAPE(DEVICE_FEATURES), GD_F32));
    y = gd_contiguous(gd_neg(gd_square(y)));
    return y && gd_tensor_write(x, large, sizeof large) == GD_OK &&
           gd_tensor_read(y, out->read, sizeof out->read) == GD_OK && gd_synchronize(gd) == GD_OK;
}

bool device_program(gd_context *gd, device_outcome *out)
{
    memset(out, 0, sizeof *out);
    if (gd_scope_begin(gd) != GD_OK)
        return false;
    const bool ok = compute(gd, out) && train(gd, out);
    assert_int_equal(gd_scope_end(gd), GD_OK);
    return ok;
}
