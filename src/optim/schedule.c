/* optim/schedule.c: learning rates over time. Start at gd_schedule_at(). */
#include <gradus/schedule.h>

#include "base/error.h"
#include "base/options.h"

#include <math.h>
#include <string.h>

/* Half a cosine from `from` (t = 0) to `to` (t = 1). */
static double cosine(double from, double to, double t)
{
    const double pi = 3.14159265358979323846;
    return to + (from - to) * 0.5 * (1.0 + cos(pi * t));
}

/* ---- the kinds: t steps after the warm-up, of n ---- */

static double constant(const gd_schedule *s, double t, double n)
{
    (void)t, (void)n;
    return s->lr;
}

static double factor(const gd_schedule *s, double otherwise)
{
    return isnan(s->factor) ? otherwise : s->factor;
}

static double by_steps(const gd_schedule *s, double t, double n)
{
    (void)n;
    double period = s->period == -1 ? 1.0 : (double)s->period;
    return s->lr * pow(factor(s, 0.1), floor(t / period));
}

static double by_milestones(const gd_schedule *s, double t, double n)
{
    (void)n;
    int passed = 0;
    while (passed < s->milestone_count && (double)s->milestones[passed] <= t)
        passed++;
    return s->lr * pow(factor(s, 0.1), passed);
}

static double exponential(const gd_schedule *s, double t, double n)
{
    (void)n;
    return s->lr * pow(factor(s, 0.99), t);
}

static double linear(const gd_schedule *s, double t, double n)
{
    return t >= n ? s->lr_end : s->lr + (s->lr_end - s->lr) * t / n;
}

static double polynomial(const gd_schedule *s, double t, double n)
{
    return t >= n ? s->lr_end : s->lr_end + (s->lr - s->lr_end) * pow(1.0 - t / n, s->power);
}

/* How far step t is within its period, 0 … 1; each period is `growth` times as long as the one
 * before. */
static double place_in_period(const gd_schedule *s, double t)
{
    double period = (double)s->period, growth = s->growth;
    if (growth == 1.0)
        return fmod(t, period) / period;
    double number = floor(log1p(t / period * (growth - 1.0)) / log(growth) + 1e-12);
    double before = period * (pow(growth, number) - 1.0) / (growth - 1.0);
    return (t - before) / (period * pow(growth, number));
}

static double cosines(const gd_schedule *s, double t, double n)
{
    if (s->period != -1)
        return cosine(s->lr, s->lr_end, place_in_period(s, t));
    return t >= n ? s->lr_end : cosine(s->lr, s->lr_end, t / n);
}

static double one_cycle(const gd_schedule *s, double t, double n)
{
    double start = s->lr / s->start_divisor;
    double end = start / s->end_divisor;
    double top = s->rising_share * n - 1.0, last = n - 1.0;
    if (t >= last)
        return end;
    bool rises = t <= top;
    /* Where the rising share is one step or less, the first step has the highest rate. */
    double place = rises ? (top > 0.0 ? t / top : 1.0) : (t - top) / (last - top);
    double from = rises ? start : s->lr, to = rises ? s->lr : end;
    return s->linear_annealing ? from + (to - from) * place : cosine(from, to, place);
}

static const struct {
    double (*at)(const gd_schedule *s, double t, double n);
    bool needs_steps;
} kinds[GD_SCHEDULE_COUNT] = {
    [GD_SCHEDULE_CONSTANT] = { constant, false },
    [GD_SCHEDULE_STEP] = { by_steps, false },
    [GD_SCHEDULE_MULTI_STEP] = { by_milestones, false },
    [GD_SCHEDULE_EXPONENTIAL] = { exponential, false },
    [GD_SCHEDULE_LINEAR] = { linear, true },
    [GD_SCHEDULE_POLYNOMIAL] = { polynomial, true },
    [GD_SCHEDULE_COSINE] = { cosines, true },
    [GD_SCHEDULE_ONE_CYCLE] = { one_cycle, true },
};

/* ---- checks ---- */

static const char *fault(const gd_schedule *s)
{
    if ((unsigned)s->kind >= GD_SCHEDULE_COUNT)
        return "kind is unknown";
    if (!(s->lr >= 0.0) || !(s->lr_end >= 0.0) || isinf(s->lr) || isinf(s->lr_end))
        return "lr and lr_end must be 0 or more";
    if (s->warmup < 0 || s->steps < -1)
        return "warmup and steps must not be negative";
    if (s->period != -1 && s->period < 1)
        return "period must be at least 1";
    if (kinds[s->kind].needs_steps && !(s->kind == GD_SCHEDULE_COSINE && s->period != -1) &&
        s->steps <= s->warmup)
        return "steps must be more than warmup";
    if (s->factor < 0.0 || !(s->power >= 0.0) || isinf(s->factor) || isinf(s->power))
        return "factor and power must not be negative";
    if (!(s->growth >= 1.0 && s->growth < INFINITY))
        return "growth must be 1 or more";
    if (!(s->rising_share >= 0.0 && s->rising_share < 1.0) || !(s->start_divisor > 0.0) ||
        !(s->end_divisor > 0.0))
        return "rising_share must be below 1, divisors positive";
    return s->milestone_count > 0 && !s->milestones ? "milestones is NULL" : NULL;
}

static double rate_at(const gd_schedule *s, int64_t step)
{
    const char *what = fault(s);
    if (what) {
        (void)gd_fail(GD_ERR_INVALID, "gd_schedule_at: %s", what);
        return NAN;
    }
    step = step < 0 ? 0 : step;
    if (step < s->warmup)
        return s->lr * (double)(step + 1) / (double)s->warmup;
    return kinds[s->kind].at(s, (double)(step - s->warmup), (double)(s->steps - s->warmup));
}

/* The caller's schedule as this version has it. */
static bool read(const gd_schedule *given, gd_schedule *s)
{
    *s = (gd_schedule){ GD_SCHEDULE_DEFAULTS };
    if (given)
        return gd_options_read("gd_schedule_at", s, sizeof *s, given);
    (void)gd_fail(GD_ERR_INVALID, "gd_schedule_at: the schedule is NULL");
    return false;
}

double gd_schedule_at(const gd_schedule *schedule, int64_t step)
{
    gd_schedule s;
    return read(schedule, &s) ? rate_at(&s, step) : NAN;
}

gd_status gd_schedule_follow(void *schedule, int64_t step, int64_t steps, double *lr)
{
    gd_schedule s;
    if (!lr)
        return gd_fail(GD_ERR_INVALID, "gd_schedule_follow: lr is NULL");
    *lr = NAN;
    if (!read(schedule, &s))
        return gd_error_last();
    s.steps = s.steps == -1 ? steps : s.steps;
    *lr = rate_at(&s, step);
    return isnan(*lr) ? gd_error_last() : GD_OK;
}

/* ---- plateaus ---- */

static double plateau_step(gd_plateau *p, double lr, double metric)
{
    double margin = p->threshold;
    bool better = p->rising ? metric > p->best * (1.0 + margin) : metric < p->best * (1.0 - margin);
    if (!p->started)
        better = !isnan(metric);
    if (better) {
        p->best = metric;
        p->started = true;
    }
    p->bad = better ? 0 : p->bad + 1;
    if (p->cooling > 0) {
        p->cooling--;
        p->bad = 0;
    }
    if (p->bad <= p->patience)
        return lr;
    p->cooling = p->cooldown;
    p->bad = 0;
    double lower = fmax(lr * p->factor, p->lr_end);
    return lr - lower > 1e-8 ? lower : lr;
}

double gd_plateau_step(gd_plateau *plateau, double lr, double metric)
{
    if (!plateau)
        return lr;
    gd_plateau own = { GD_PLATEAU_DEFAULTS };
    if (!gd_options_read("gd_plateau_step", &own, sizeof own, plateau))
        return NAN;
    double next = plateau_step(&own, lr, metric);
    size_t size = plateau->size;
    memcpy(plateau, &own, size < sizeof own ? size : sizeof own);
    plateau->size = size;
    return next;
}
