/* cli/train_fit.c: the training of gradus train: the library's gd_fit, with what is shown and logged of
 * it. Start at cli_train_fit(). */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- display ---- */

/* "  accuracy 91.25 %", "  mae 0.1234" */
static int format_metric(char *text, size_t size, const gd_metric *metric)
{
    if (strcmp(metric->name, "accuracy") == 0)
        return snprintf(text, size, "  %s %5.2f %%", metric->name, 100.0 * metric->value);
    return snprintf(text, size, fabs(metric->value) < 1e6 ? "  %s %.4f" : "  %s %.4g", metric->name,
                    metric->value);
}

static void print_bar(const gd_fit_progress *p)
{
    char left[CLI_COUNT_TEXT], rate[CLI_COUNT_TEXT], text[256], bar[64];
    int length = 0;
    for (int i = 0; i < p->train.count && i < 2; i++)
        length += format_metric(text + length, sizeof text - (size_t)length, &p->train.list[i]);
    length += snprintf(text + length, sizeof text - (size_t)length, "  %s samples/s  %s left",
                       cli_count((int64_t)p->samples_per_second, rate),
                       cli_duration(p->seconds_left, left));
    int room = cli_width() - length - 20;
    int cells = room < 4 ? 0 : room > 40 ? 40 : room;
    int full = (int)((double)cells * (double)p->step / (double)p->steps);
    for (int i = 0; i < cells; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[cells] = '\0';
    printf("\r\033[K%3lld/%lld%s%s%s%s", (long long)p->epoch, (long long)p->epochs,
           cells ? " [" : "", bar, cells ? "]" : "", text);
    fflush(stdout);
}

/* ---- the table of epochs, in 80 columns ---- */

static int column_width(const gd_metric *metric)
{
    int length = (int)strlen(metric->name);
    return 2 + (length > 8 ? length : 8);
}

static int columns_width(const gd_metrics *metrics)
{
    int width = 0;
    for (int i = 0; i < metrics->count; i++)
        width += column_width(&metrics->list[i]);
    return width;
}

/* "3/20", as wide as "20/20". */
static int epoch_width(const gd_fit_progress *p)
{
    int width = 2 * snprintf(NULL, 0, "%lld", (long long)p->epochs) + 1;
    return width < 5 ? 5 : width;
}

enum { SECONDS_WIDTH = 10, RATE_WIDTH = 11, MARK_WIDTH = 3, TABLE_WIDTH = 80 };

static bool has_rate(const gd_fit_progress *p)
{
    return epoch_width(p) + columns_width(&p->train) + columns_width(&p->validation) +
               SECONDS_WIDTH + RATE_WIDTH + MARK_WIDTH <=
           TABLE_WIDTH;
}

static void print_names(const gd_metrics *metrics)
{
    for (int i = 0; i < metrics->count; i++)
        printf("%*s", column_width(&metrics->list[i]), metrics->list[i].name);
}

static void print_header(const gd_fit_progress *p)
{
    printf("%*s%*s", epoch_width(p), "", columns_width(&p->train), "training");
    printf("%s%*s%s\n", cli_bold(), columns_width(&p->validation), "validation", cli_plain());
    printf("%*s", epoch_width(p), "epoch");
    print_names(&p->train);
    print_names(&p->validation);
    printf("%s%*s\n", has_rate(p) ? "  samples/s" : "", SECONDS_WIDTH, "seconds");
}

static void print_values(const gd_metrics *metrics)
{
    for (int i = 0; i < metrics->count; i++) {
        const gd_metric *metric = &metrics->list[i];
        char text[32];
        if (strcmp(metric->name, "accuracy") == 0)
            snprintf(text, sizeof text, "%.2f %%", 100.0 * metric->value);
        else
            snprintf(text, sizeof text, fabs(metric->value) < 1e4 ? "%.4f" : "%.2e", metric->value);
        printf("%*s", column_width(metric), text);
    }
}

static void print_epoch(cli_training *t, const gd_fit_progress *p)
{
    char rate[CLI_COUNT_TEXT];
    if (cli_is_terminal())
        printf("\r\033[K");
    if (!t->has_header)
        print_header(p);
    t->has_header = true;
    int digits = snprintf(NULL, 0, "%lld", (long long)p->epochs);
    printf("%*lld/%lld", epoch_width(p) - digits - 1, (long long)p->epoch, (long long)p->epochs);
    print_values(&p->train);
    printf("%s", cli_bold());
    print_values(&p->validation);
    printf("%s", cli_plain());
    if (has_rate(p))
        printf("%*s", RATE_WIDTH, cli_count((int64_t)p->samples_per_second, rate));
    printf("%*.2f%s\n", SECONDS_WIDTH, p->seconds, p->improved && t->monitor ? "  *" : "");
    fflush(stdout);
}

static void print_validation(const gd_fit_progress *p)
{
    printf("\r\033[K%3lld/%lld  validation %3.0f %%", (long long)p->epoch, (long long)p->epochs,
           100.0 * (double)p->validation_step / (double)p->validation_steps);
    fflush(stdout);
}

/* Short epochs are shown one in so many, and the last. */
static bool is_shown(const gd_fit_progress *p)
{
    enum { LINES = 20 };
    int64_t every = (p->epochs + LINES - 1) / LINES;
    return p->epoch % every == 0 || p->epoch == p->epochs || p->epoch == 1 ||
           p->seconds * (double)every > 2.0;
}

/* ---- while it trains ---- */

/* Ten times a second and after each epoch. Training goes on until an interrupt. */
static gd_status show(void *user, const gd_fit_progress *p, bool *stop)
{
    const double log_seconds = 10.0;
    cli_training *t = user;
    t->epoch = p->epoch_done ? p->epoch : p->epoch - 1;
    *stop = cli_is_interrupted();
    if (p->validation_steps > 0) {
        if (!t->settings->quiet && cli_is_terminal())
            print_validation(p);
        return GD_OK;
    }
    if (p->epoch_done && p->improved)
        t->best_epoch = p->epoch;
    if (!t->settings->quiet && p->epoch_done && is_shown(p))
        print_epoch(t, p);
    else if (!t->settings->quiet && !p->epoch_done && cli_is_terminal())
        print_bar(p);
    cli_add_times(t, p);
    const double begin = gd_seconds();
    if (!p->epoch_done && begin - t->logged < log_seconds)
        return GD_OK;
    gd_status status = cli_log_progress(t, p);
    t->times.log += gd_seconds() - begin;
    return status;
}

/* ---- the objective ---- */

static gd_tensor *objective(void *user, const gd_objective_call *call)
{
    const cli_training *t = user;
    gd_tensor *x = call->tensors[0];
    if (t->language) {
        gd_tensor *loss = gd_language_model_loss(t->language, x, call->tensors[1]);
        return gd_report(call, "perplexity", loss, .form = GD_METRIC_EXP) == GD_OK ? loss : NULL;
    }
    if (t->data.kind->flip)
        x = gd_augment(x, call->training ? call->tensors[2] : NULL, .flip = 0.5, .padding = 4);
    gd_tensor *const tensors[] = { cli_model_input(t->model, x), call->tensors[1] };
    gd_objective_call inner = *call;
    inner.count = 2;
    inner.tensors = tensors;
    return tensors[0] ? gd_model_objective(t->model, &inner) : NULL;
}

/* ---- the training ---- */

/* Of a number that is learnt standardised: what 1 is. */
static void print_unit(const cli_data *d)
{
    char text[CLI_COUNT_TEXT];
    double unit = fabs(cli_data_decode(d, 1.0) - cli_data_decode(d, 0.0));
    if (d->regression && unit != 1.0)
        printf("%s is learnt standardised: an mae of 1 is %s, its standard deviation\n",
               d->encoder ? gd_table_encoder_target(d->encoder) : "y", cli_number(unit, text));
}

static void print_start(const cli_training *t, const gd_optimizer *optimizer)
{
    const cli_settings *s = t->settings;
    char summary[8192], a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    gd_module_summary(cli_train_module(t), summary, sizeof summary);
    printf("%s: %s\n%s %ss for training, %s for validation\n", s->given, t->data.about,
           cli_count(gd_dataset_count(t->data.train), a), t->data.kind->sample,
           cli_count(gd_dataset_count(t->data.validation), b));
    print_unit(&t->data);
    printf("\n%s\n%s, learning rate %g (%s), batch %lld%s, seed %lld\n", summary,
           gd_optimizer_name(optimizer), gd_optimizer_lr(optimizer), s->schedule,
           (long long)s->batch, s->per_example ? " one example at a time" : "", (long long)s->seed);
    const gd_dtype precision = cli_train_precision(s);
    printf("%s%s%s, %d thread%s%s; run %s\n\n", gd_context_isa(t->context),
           precision == GD_F32 ? "" : ", ", precision == GD_F32 ? "" : gd_dtype_name(precision),
           gd_context_threads(t->context), gd_context_threads(t->context) == 1 ? "" : "s",
           s->eager ? ", eager" : "", t->folder);
}

static gd_loader *load_validation(const cli_training *t)
{
    const gd_dataset *d = t->data.validation;
    if (t->language) /* a part of a long text tells enough, and is the same each time */
        return gd_loader_create(t->data.validation, .batch = t->settings->batch,
                                .batches_per_epoch =
                                    gd_dataset_count(d) > 20 * t->settings->batch ? 20 : -1);
    return gd_loader_create(t->data.validation, .batch = t->data.kind->flip ? 64 : 500);
}

/* --balance: how often each sample is drawn, to be freed; NULL: recorded. */
static double *balance_classes(const cli_training *t)
{
    const gd_dataset *d = t->data.train;
    if (t->language || t->data.regression) {
        (void)gd_error_record(GD_ERR_INVALID, "--balance is for classes, and there are none here");
        return NULL;
    }
    double *weights = malloc((size_t)gd_dataset_count(d) * sizeof *weights);
    if (!weights)
        (void)gd_error_record(GD_ERR_MEMORY, "out of memory");
    else if (gd_dataset_sample_weights(d, 1, weights) == GD_OK)
        return weights;
    free(weights);
    return NULL;
}

static gd_loader *load_training(const cli_training *t)
{
    const cli_settings *s = t->settings;
    const gd_augment_options flips = { GD_AUGMENT_DEFAULTS, .flip = 0.5, .padding = 4 };
    bool images = t->data.kind->flip;
    int64_t workers = s->workers >= 0                             ? s->workers
                      : images || t->data.kind == &cli_audio_kind ? 2
                                                                  : 0;
    double *weights = s->balance ? balance_classes(t) : NULL;
    if (s->balance && !weights)
        return NULL;
    gd_loader *loader =
        gd_loader_create(t->data.train, .batch = s->per_example ? 1 : s->batch, .shuffle = true,
                         .seed = (uint64_t)s->seed, .workers = (int)workers, .weights = weights,
                         .with_replacement = t->data.kind->steps > 0,
                         .batches_per_epoch = t->data.kind->steps > 0 ? t->data.kind->steps : -1,
                         /* a batch of one would be normalised to nothing */
                         .drop_last = (images || t->data.kind == &cli_array_kind ||
                                       t->data.kind == &cli_audio_kind) &&
                                      gd_dataset_count(t->data.train) >= s->batch,
                         .draws = images ? (int)gd_augment_draws(&flips) : 0);
    free(weights);
    return loader;
}

/* The last parameters, or those that did best on the validation data, to the file that is used from then on. */
static gd_status save_model(cli_training *t)
{
    char path[CLI_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/checkpoints/best.safetensors", t->folder);
    gd_status status = gd_run_wait(t->run);
    bool chosen = t->monitor && access(path, F_OK) == 0;
    if (status == GD_OK && chosen && !t->recipe.ema)
        status = gd_module_load(cli_train_module(t), path);
    const gd_training best = { GD_TRAINING_DEFAULTS, .module = cli_train_module(t),
                               .ema = t->recipe.ema };
    if (status == GD_OK && chosen && t->recipe.ema)
        status = gd_training_load(&best, path);
    if (status == GD_OK && t->recipe.ema) /* the averages are what was validated */
        status = gd_ema_swap(t->recipe.ema);
    snprintf(path, sizeof path, "%s/model.safetensors", t->folder);
    if (t->language)
        return status == GD_OK ? gd_language_model_save(t->language, path, t->data.metadata_count,
                                                        t->data.metadata)
                               : status;
    const gd_training training = { GD_TRAINING_DEFAULTS, .model = t->model,
                                   .metadata_count = t->data.metadata_count,
                                   .metadata = t->data.metadata };
    return status == GD_OK ? gd_training_save(&training, path) : status;
}

/* Of a resumed run that made no step. */
static void print_nothing_left(const cli_training *t)
{
    const cli_settings *s = t->settings;
    char text[256];
    if (t->done_before < s->epochs)
        snprintf(text, sizeof text,
                 "There is nothing left to do: it ended after epoch %lld of %lld, with no better "
                 "validation %s in %lld. A greater --patience goes on.",
                 (long long)t->done_before, (long long)s->epochs, t->monitor ? t->monitor : "loss",
                 (long long)s->patience);
    else
        snprintf(text, sizeof text,
                 "There is nothing left to do: its %lld epochs were done before. More --epochs "
                 "train it longer.",
                 (long long)s->epochs);
    cli_print_wrapped(text, 0, 0);
}

static void print_end(const cli_training *t)
{
    bool chosen = t->monitor != NULL;
    char run[CLI_WORD_BYTES];
    if (t->settings->is_trial)
        return;
    (void)cli_shell_word(t->folder, run);
    if (cli_is_interrupted()) {
        fprintf(stderr,
                "%sgradus train: interrupted; gradus train --resume %s goes on, and what was "
                "learned so far is in %s/model.safetensors\n",
                cli_is_terminal() ? "\n" : "", run, t->folder);
        return;
    }
    if (t->settings->quiet)
        return;
    if (t->log && t->epoch < t->settings->epochs)
        printf("Ended after epoch %lld: no better validation %s in %lld.\n", (long long)t->epoch,
               t->monitor ? t->monitor : "loss", (long long)t->settings->patience);
    if (t->log)
        cli_print_times(t);
    else
        print_nothing_left(t);
    printf("\nSaved to %s/model.safetensors", t->folder);
    if (chosen && t->best_epoch > 0)
        printf(", as of epoch %lld (*)", (long long)t->best_epoch);
    else if (chosen)
        printf(", as of its best epoch (*)");
    printf("\nPictures of the training: %s/pictures\n", t->folder);
    if (t->language)
        printf("  gradus generate %s --prompt TEXT   goes on with a text\n", run);
    else
        printf("  gradus predict %s%s   what it makes of new data\n"
               "  gradus eval %s   %s   how well it does, and where it errs\n",
               run, chosen ? " DATA" : "", /* those of digits are known */
               run, chosen ? "     " : "");
}

/* ---- all of it ---- */

gd_module *cli_train_module(const cli_training *t)
{
    return t->language ? gd_language_model_module(t->language) : gd_model_module(t->model);
}

/* What was learnt of the data, an encoder of tables or names of classes, is what the checkpoint has:
 * else its parameters would go on with numbers that mean something else. A checkpoint that cannot be
 * read is gd_fit's business. */
static bool is_data_as_before(const cli_training *t)
{
    char path[sizeof t->folder + 40], problem[160];
    snprintf(path, sizeof path, "%s/checkpoints/last.safetensors", t->folder);
    const char *changed = cli_data_changed(&t->data, path);
    if (!changed)
        return true;
    snprintf(problem, sizeof problem,
             "the data has changed since the run began (its \"%s\"): begin a new run", changed);
    (void)gd_error_record(GD_ERR_STATE, problem);
    return false;
}

/* Batches to a step. */
static int64_t accumulated(const cli_settings *s)
{
    return s->per_example ? s->batch : s->accumulate > 0 ? s->accumulate : 1;
}

/* --find-lr: 100 steps of which the next has a rate larger by a factor, then all as before. */
static bool find_rate(const cli_training *t, gd_optimizer *optimizer, gd_loader *train)
{
    enum { STEPS = 100 };
    gd_lr_point points[STEPS];
    double lr;
    int64_t count =
        gd_lr_range(optimizer, objective, (void *)(uintptr_t)t, train, points, &lr, .from = 1e-7,
                    .to = 10, .steps = STEPS, .precision = cli_train_precision(t->settings));
    if (count < 0)
        return false;
    if (count == 0)
        return gd_error_record(GD_ERR_STATE, "the loss is not finite at any learning rate") ==
               GD_OK;
    if (cli_draw_rates(t, count, points, lr) != GD_OK)
        return false;
    if (isnan(lr))
        printf("The loss fell at no learning rate from %g to %g", points[0].lr,
               points[count - 1].lr);
    else
        printf("The loss falls most steeply at a learning rate of %s%.2g%s: train with --lr %.2g",
               cli_bold(), lr, cli_plain(), lr);
    printf("\nLosses of %lld rates: %s/pictures/lr-range.svg\n", (long long)count, t->folder);
    return true;
}

/* What a batch of the validation is told of, by name. */
static bool find_metrics(const cli_training *t, gd_metrics *metrics)
{
    const gd_random_stream random = gd_random_position(t->context);
    gd_loader *batch = gd_loader_create(t->data.validation, .batch = 2, .batches_per_epoch = 1);
    gd_status status = batch ? gd_evaluate(cli_train_module(t), objective, (void *)(uintptr_t)t,
                                           batch, metrics, .mode = GD_MODE_EAGER)
                             : gd_error_code();
    gd_loader_release(batch);
    gd_status back = gd_random_seek(t->context, random.seed, random.position);
    return status == GD_OK && back == GD_OK;
}

bool cli_check_metric(const cli_training *t, const char *option, const char *name)
{
    gd_metrics metrics;
    const char *names[GD_METRICS_MAX];
    char sentence[1024];
    if (!find_metrics(t, &metrics))
        return false;
    int at = snprintf(sentence, sizeof sentence,
                      "%s: the validation has no metric \"%.40s\"; it has", option, name);
    for (int i = 0; i < metrics.count; i++) {
        names[i] = metrics.list[i].name;
        if (strcmp(names[i], name) == 0)
            return true;
        if (at < (int)sizeof sentence)
            at += snprintf(sentence + at, sizeof sentence - (size_t)at, "%s %s", i ? "," : "",
                           names[i]);
    }
    if (at < (int)sizeof sentence)
        snprintf(sentence + at, sizeof sentence - (size_t)at, "%s",
                 cli_suggestion(name, "", metrics.count, names));
    return gd_error_record(GD_ERR_INVALID, sentence) == GD_OK;
}

/* ---- going on for longer, or less long ---- */

/* Whole epochs that the log has. */
static bool find_done(cli_training *t, int64_t steps)
{
    if (!gd_run_has_checkpoint(t->run)) /* it begins anew */
        return true;
    gd_history *history = gd_history_load(t->folder);
    t->done_before = history ? gd_history_last_step(history) / steps : 0;
    gd_history_release(history);
    return history != NULL;
}

/* Rates that change with the number of epochs: a run that trains longer is then not one that had as many
 * from the start. */
static bool is_spread(const cli_settings *s)
{
    const char *name = cli_schedule_name(s);
    return strcmp(name, "linear") == 0 || strcmp(name, "polynomial") == 0 ||
           strcmp(name, "cosine") == 0 || strcmp(name, "one_cycle") == 0 ||
           (strcmp(name, "step") == 0 && isnan(s->period));
}

static void print_longer(cli_training *t, int64_t steps)
{
    const cli_settings *s = t->settings;
    char text[256];
    double lr = NAN;
    int length = snprintf(text, sizeof text, "%lld epochs instead of %lld.", (long long)s->epochs,
                          (long long)s->epochs_before);
    if (is_spread(s) && s->epochs > t->done_before &&
        gd_schedule_follow(&t->recipe.schedule, t->done_before * steps, -1, &lr) == GD_OK)
        snprintf(text + length, sizeof text - (size_t)length,
                 " The %s schedule is spread over all of them: after epoch %lld the learning rate "
                 "is %.3g.",
                 cli_schedule_name(s), (long long)t->done_before, lr);
    cli_print_wrapped(text, 0, 0);
    printf("\n");
}

/* What --resume was told to change stands in the run's options from now on. */
static bool change_run(cli_training *t, int64_t steps)
{
    const cli_settings *s = t->settings;
    char path[sizeof t->folder + 32], problem[128];
    if (!find_done(t, steps))
        return false;
    if (s->epochs_before < 0 && s->patience_before < 0)
        return true;
    snprintf(problem, sizeof problem, "--epochs %lld: the run has had %lld", (long long)s->epochs,
             (long long)t->done_before);
    if (s->epochs < t->done_before)
        return gd_error_record(GD_ERR_INVALID, problem) == GD_OK;
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    return cli_config_write(t->config, path) == GD_OK;
}

bool cli_train_fit(cli_training *t)
{
    const cli_settings *s = t->settings;
    if (s->monitor && !cli_check_metric(t, "--monitor", s->monitor))
        return false;
    if (s->resume && !is_data_as_before(t))
        return false;
    gd_loader *train = load_training(t);
    gd_loader *validation = train ? load_validation(t) : NULL;
    const int64_t together = accumulated(s);
    cli_recipe *r = &t->recipe;
    /* The steps of an epoch. */
    const int64_t steps = train ? (gd_loader_batches(train) + together - 1) / together : 0;
    if (!validation || !cli_recipe_make(r, t, steps) || (s->resume && !change_run(t, steps)))
        return false;
    if (!s->quiet)
        print_start(t, r->optimizer);
    if (!s->quiet && s->epochs_before > 0)
        print_longer(t, steps);
    if (s->find_lr)
        return find_rate(t, r->optimizer, train);
    t->began = true;
    t->logged = t->times.begin = gd_seconds();
    gd_status status = gd_fit(
        r->optimizer, objective, t, train, .epochs = s->pause > 0 ? s->pause : s->epochs,
        .validation = validation, .mode = s->eager ? GD_MODE_EAGER : GD_MODE_COMPILED,
        .precision = cli_train_precision(s), .blame = s->blame, .accumulate = together,
        .ema = r->ema, .schedule = r->is_plateau ? NULL : gd_schedule_follow,
        .schedule_user = &r->schedule, .plateau = r->is_plateau ? &r->plateau : NULL,
        .monitor = t->monitor, .rising = t->monitor && cli_metric_direction(t->monitor) > 0,
        .patience = s->patience > 0 ? s->patience - 1 : -1,
        .min_improvement = isnan(s->min_improvement) ? 0.0 : s->min_improvement, .run = t->run,
        .resume = s->resume != NULL, .model = t->model, .metadata_count = t->data.metadata_count,
        .metadata = t->data.metadata, .checkpoint_seconds = 60, .progress = show,
        .progress_user = t, .progress_interval = 0.1, .validation_progress = true);
    t->times.end = gd_seconds();
    if (status == GD_OK)
        status = save_model(t);
    if (status == GD_OK)
        status = cli_draw_training(t);
    if (status == GD_OK)
        print_end(t);
    return status == GD_OK;
}
