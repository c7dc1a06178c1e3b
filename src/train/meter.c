/* train/meter.c: running loss and accuracy in tensors. */
#include "train/meter.h"

#include <gradus/autograd.h>
#include <gradus/ops.h>

#include <math.h>
#include <string.h>

bool gd_meter_open(gd_meter *meter, gd_context *context)
{
    *meter = (gd_meter){ 0 };
    meter->loss = gd_state(context, GD_SCALAR, 0.0, GD_F64);
    meter->correct = gd_state(context, GD_SCALAR, 0.0, GD_I64);
    return meter->loss && meter->correct;
}

void gd_meter_close(gd_meter *meter)
{
    gd_release(meter->loss);
    gd_release(meter->correct);
    *meter = (gd_meter){ 0 };
}

gd_status gd_meter_reset(gd_meter *meter)
{
    const double no_loss = 0.0;
    const int64_t none = 0;
    meter->samples = 0;
    gd_status status = gd_tensor_write(meter->loss, &no_loss, sizeof no_loss);
    return status == GD_OK ? gd_tensor_write(meter->correct, &none, sizeof none) : status;
}

static bool are_classes(const gd_tensor *output, const gd_tensor *target)
{
    gd_shape o = gd_tensor_shape(output), t = gd_tensor_shape(target);
    gd_dtype dtype = gd_tensor_dtype(target);
    return gd_dtype_is_integer(dtype) && o.rank == t.rank + 1 && o.dim[t.rank] >= 2 &&
           memcmp(o.dim, t.dim, sizeof(int64_t) * (size_t)t.rank) == 0;
}

bool gd_meter_add(gd_meter *meter, gd_tensor *output, gd_tensor *target, gd_tensor *mean_loss)
{
    if (!output || !target || !mean_loss)
        return false;
    gd_context *context = gd_tensor_context(output);
    double samples = (double)gd_tensor_shape(output).dim[0];
    meter->has_classes = are_classes(output, target);
    (void)gd_no_grad_begin(context);
    gd_tensor *loss = gd_mul_scalar(gd_cast(mean_loss, GD_F64), samples);
    bool ok = gd_assign(meter->loss, gd_add(meter->loss, loss));
    if (meter->has_classes) {
        gd_tensor *hits = gd_sum(gd_eq(gd_argmax(output, -1, false), target), GD_ALL_AXES, false);
        ok = ok && gd_assign(meter->correct, gd_add(meter->correct, hits));
    }
    (void)gd_no_grad_end(context);
    return ok;
}

gd_metrics gd_meter_read(const gd_meter *meter)
{
    gd_metrics metrics = { .samples = meter->samples };
    if (meter->samples > 0) {
        metrics.loss = gd_item(meter->loss) / (double)meter->samples;
        metrics.accuracy =
            meter->has_classes ? gd_item(meter->correct) / (double)meter->samples : (double)NAN;
    }
    return metrics;
}
