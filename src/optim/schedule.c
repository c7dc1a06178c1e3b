/* optim/schedule.c: learning rates over time, pure functions of the step. */
#include <gradus/optim.h>

#include <math.h>

double gd_schedule_constant(double lr, int64_t step)
{
    (void)step;
    return lr;
}

double gd_schedule_cosine(double lr, double lr_end, int64_t step, int64_t steps, int64_t warmup)
{
    if (step < warmup)
        return lr * (double)(step < 0 ? 1 : step + 1) / (double)warmup;
    if (step >= steps)
        return lr_end;
    const double pi = 3.14159265358979323846;
    double t = (double)(step - warmup) / (double)(steps - warmup);
    return lr_end + (lr - lr_end) * 0.5 * (1.0 + cos(pi * t));
}
