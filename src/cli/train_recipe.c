/* cli/train_recipe.c: optimizer, averages and schedule of a training, from its settings. Start at
 * cli_recipe_make(). */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double or_else(double given, double otherwise)
{
    return isnan(given) ? otherwise : given;
}

/* Steps in so many epochs, one at least. */
static int64_t steps_of(double epochs, int64_t steps)
{
    double count = round(epochs * (double)steps);
    return count < 1.0 ? 1 : (int64_t)count;
}

/* "30,60" epochs as ascending steps. */
static bool read_milestones(cli_recipe *r, const char *text, int64_t steps)
{
    int count = 0;
    for (const char *at = text;; at++) {
        char *end;
        double epochs = strtod(at, &end);
        bool ok = end > at && (*end == ',' || *end == '\0') && epochs > 0.0 && epochs < 1e6 &&
                  count < CLI_MOST_MILESTONES;
        if (ok)
            r->milestones[count] = steps_of(epochs, steps);
        if (!ok || (count > 0 && r->milestones[count] <= r->milestones[count - 1]))
            return gd_error_record(GD_ERR_INVALID,
                                   "schedule.milestones are ascending numbers of epochs with "
                                   "commas between them, as 30,60, at most 64") == GD_OK;
        count++;
        at = end;
        if (!*at)
            break;
    }
    r->schedule.milestone_count = count;
    r->schedule.milestones = r->milestones;
    return true;
}

bool cli_recipe_check(const cli_settings *s)
{
    char sentence[160];
    cli_recipe r;
    if (!isnan(s->warmup) && s->warmup >= (double)s->epochs) {
        snprintf(sentence, sizeof sentence,
                 "the warm-up takes %g epochs, and there are %lld in all: --warmup is to be less",
                 s->warmup, (long long)s->epochs);
        return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
    }
    return !s->milestones || read_milestones(&r, s->milestones, INT32_MAX);
}

static gd_schedule_kind kind_of(const char *name)
{
    static const char *const names[] = {
        [GD_SCHEDULE_CONSTANT] = "constant",     [GD_SCHEDULE_STEP] = "step",
        [GD_SCHEDULE_MULTI_STEP] = "multi_step", [GD_SCHEDULE_EXPONENTIAL] = "exponential",
        [GD_SCHEDULE_LINEAR] = "linear",         [GD_SCHEDULE_POLYNOMIAL] = "polynomial",
        [GD_SCHEDULE_COSINE] = "cosine",         [GD_SCHEDULE_ONE_CYCLE] = "one_cycle",
    };
    int kind = 0;
    while (kind < GD_SCHEDULE_COUNT && strcmp(names[kind], name) != 0)
        kind++;
    return (gd_schedule_kind)kind; /* cli_train_check knows all names */
}

/* The settings count in epochs, which people do; schedules in steps. */
static bool make_schedule(cli_recipe *r, const cli_settings *s, int64_t steps)
{
    gd_schedule_kind kind = kind_of(cli_schedule_name(s));
    double epochs = (double)s->epochs;
    bool is_cosine = kind == GD_SCHEDULE_COSINE;
    r->schedule = (gd_schedule){ GD_SCHEDULE_DEFAULTS,
                                 .kind = kind,
                                 .lr = gd_optimizer_lr(r->optimizer),
                                 .steps = steps * s->epochs, /* also where it pauses before */
                                 .lr_end = or_else(s->lr_end, 0.0),
                                 .growth = or_else(s->growth, 1.0),
                                 .power = or_else(s->power, 1.0),
                                 .rising_share = or_else(s->rising_share, 0.3),
                                 .linear_annealing = s->linear_annealing };
    gd_schedule *schedule = &r->schedule;
    /* Cosine: down to nothing by the end, after a short rise. */
    if (!isnan(s->warmup))
        schedule->warmup =
            (int64_t)fmin(round(s->warmup * (double)steps), (double)(schedule->steps - 1));
    else if (is_cosine)
        schedule->warmup = steps * s->epochs / 50;
    if (kind == GD_SCHEDULE_EXPONENTIAL)
        schedule->factor = pow(or_else(s->factor, 0.9), 1.0 / (double)steps);
    else
        schedule->factor = s->factor;
    if (kind == GD_SCHEDULE_STEP || !isnan(s->period))
        schedule->period = steps_of(or_else(s->period, epochs / 3.0), steps);
    return kind != GD_SCHEDULE_MULTI_STEP || read_milestones(r, s->milestones, steps);
}

/* What the optimizer does with gradients before its rule. */
static bool set_gradients(const cli_recipe *r, const cli_settings *s)
{
    return (isnan(s->weight_decay) ||
            gd_optimizer_group(r->optimizer, "*", .weight_decay = s->weight_decay) == GD_OK) &&
           (isnan(s->clip_norm) || gd_optimizer_clip_norm(r->optimizer, s->clip_norm) == GD_OK) &&
           (isnan(s->clip_value) ||
            gd_optimizer_clip_value(r->optimizer, s->clip_value) == GD_OK) &&
           (isnan(s->loss_scale) ||
            gd_optimizer_scale_losses(r->optimizer, .initial = s->loss_scale) == GD_OK);
}

bool cli_recipe_make(cli_recipe *r, const cli_training *t, int64_t steps)
{
    const cli_settings *s = t->settings;
    gd_module *module = cli_train_module(t);
    r->optimizer = gd_optimizer_create(module, s->optimizer, .lr = s->lr, .momentum = s->momentum,
                                       .state_dtype = cli_train_state_dtype(s),
                                       .stochastic_rounding = cli_train_stochastic_rounding(s));
    if (!r->optimizer || !set_gradients(r, s))
        return false;
    if (!isnan(s->ema) && !(r->ema = gd_ema_create(module, .decay = s->ema)))
        return false;
    r->is_plateau = strcmp(cli_schedule_name(s), "plateau") == 0;
    if (!r->is_plateau)
        return make_schedule(r, s, steps);
    r->plateau = (gd_plateau){ GD_PLATEAU_DEFAULTS, .lr_end = or_else(s->lr_end, 0.0),
                               .rising = t->monitor && cli_metric_direction(t->monitor) > 0 };
    if (!isnan(s->factor))
        r->plateau.factor = s->factor;
    if (s->plateau_patience > 0)
        r->plateau.patience = (int)s->plateau_patience;
    return true;
}
