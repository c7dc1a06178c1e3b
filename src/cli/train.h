/* cli/train.h: gradus train: train.c is the command and its run folder, train_options.c its options,
 * train_recipe.c optimizer and schedule, train_fit.c the training and its display, train_log.c its log and its
 * times, pictures.c what is drawn of it.
 * gradus search trains with them, too. */
#ifndef GD_CLI_TRAIN_H
#define GD_CLI_TRAIN_H

#include "cli.h"

/* ---- train_options.c, but for cli_train_read: train.c ---- */

/* Numbers that are 0, -1 or NaN are not given: the data's kind or the library chooses. */
typedef struct cli_settings {
    const char *given; /* the data, as the user called them */
    const char *data, *model, *run, *resume, *config, *target, *task, *ignore, *optimizer,
        *schedule, *monitor, *device, *precision, *state_dtype, *state_rounding;
    cli_texts sets;
    int64_t epochs, batch, seed, threads, workers, size, accumulate, patience, plateau_patience;
    double lr, momentum, weight_decay, clip_norm, clip_value, loss_scale, validation, ema,
        min_improvement;
    double warmup, lr_end, factor, period, growth, power, rising_share; /* of the schedule */
    const char *milestones;
    bool balance, linear_annealing, faithful, per_example, eager, blame, quiet, tensorboard, csv,
        find_lr;
    const char *prometheus;
    /* --resume with --epochs or --patience: what the run had before; -1: it is not changed */
    int64_t epochs_before, patience_before;
    /* gradus search's alone */
    bool is_trial; /* nothing is said at its end */
    int64_t pause; /* train up to this epoch alone, with the schedule of all; 0: all */
} cli_settings;

/* The command line into the settings that config's options belong to: first the file of --config, then
 * --set, then the other options. CLI_HELPED: --help was given; else CLI_OK, or what to exit with, the
 * error told. given[i]: option i was on the command line. */
enum { CLI_HELPED = -1 };
int cli_train_read(int argc, char **argv, const cli_command_help *help, cli_config *config,
                   cli_settings *s, bool *given);
/* What is not given has these values. */
cli_settings cli_train_defaults(void);
/* Rows whose values are `s`. Returns how many. */
int cli_train_options(cli_settings *s, cli_option rows[CLI_MOST_TRAIN_OPTIONS]);
/* An option's name in files, "optimizer.lr"; NULL: it is in none. */
const char *cli_train_key(const char *name);
/* Options that decide what comes out, and so are kept. */
bool cli_train_is_kept(const char *name);
/* What --precision names. */
gd_dtype cli_train_precision(const cli_settings *s);
/* What --state-dtype and --state-rounding name, as gd_optimizer_options has them. */
gd_dtype cli_train_state_dtype(const cli_settings *s);
int cli_train_stochastic_rounding(const cli_settings *s);
/* Names and combinations that can be told to be wrong without the data. CLI_OK, or the exit code. */
int cli_train_check(const char *command, const cli_settings *s);

/* ---- train_recipe.c ---- */

enum { CLI_MOST_MILESTONES = 64 };

/* How parameters are changed, for gd_fit. */
typedef struct cli_recipe {
    gd_optimizer *optimizer;
    gd_ema *ema; /* NULL: none */
    gd_schedule schedule;
    gd_plateau plateau;
    bool is_plateau; /* instead of the schedule */
    int64_t milestones[CLI_MOST_MILESTONES];
} cli_recipe;

typedef struct cli_training cli_training;
/* What is wrong with it whatever the data are, of complete settings. false: the error is recorded. */
bool cli_recipe_check(const cli_settings *s);
/* steps: of an epoch. false: the error is recorded. */
bool cli_recipe_make(cli_recipe *recipe, const cli_training *t, int64_t steps);
/* What the recipe's schedule is called. */
const char *cli_schedule_name(const cli_settings *s);

/* ---- train.c ---- */

/* Seconds of the epochs of this process. */
typedef struct cli_times {
    double begin, end; /* of gd_fit, by gd_seconds */
    double data, forward, backward, update, validation, save, log;
    size_t memory; /* the most bytes in tensors */
} cli_times;

/* A training as it runs. */
struct cli_training {
    const cli_settings *settings;
    const cli_config *config; /* of the settings */
    gd_context *context;
    cli_data data;
    gd_model *model;
    gd_language_model *language; /* instead of a model, for text */
    const char *monitor; /* the metric that says which epoch is best; NULL: the last one counts */
    cli_recipe recipe;
    gd_run *run;
    gd_run_log *log; /* of a resumed run NULL until the first step is known */
    char folder[CLI_PATH_BYTES];
    bool has_header;     /* of the table of epochs */
    bool is_new, began;  /* the folder was made by this process; its training has begun */
    int64_t epoch;       /* the last one that was finished; 0: none was */
    int64_t done_before; /* epochs that a resumed run had */
    int64_t best_epoch;  /* by the monitor; 0: none of this process */
    double logged;       /* when */
    bool has_begun_log;  /* what it has once is there */
    cli_times times;
};

/* What the settings say of the data. */
cli_data_options cli_train_data_options(const cli_settings *s);
/* Train as the settings say, in the run's folder, of which nothing but what was there before is left where
 * the training cannot begin. CLI_OK, CLI_INTERRUPTED or CLI_FAILED, with the error recorded. */
int cli_train_run(cli_settings *s, const cli_config *config);

/* All that comes before the first step, without a folder: what is wrong with options, data, model and the
 * name of the metric (of `option`; NULL: the data's own) is told now. *metric is the name. */
bool cli_train_rehearse(cli_settings *s, const char *option, const char **metric);

/* runs/NAME of the data's name and the ending, runs/NAME-2 where that is taken, … false: recorded. */
bool cli_choose_folder(const char *data, const char *ending, char folder[CLI_PATH_BYTES]);
/* A folder that is there, or can be made. false: recorded. */
bool cli_can_be_made(const char *folder);
/* A build that cannot save finds out now, not after hours. false: recorded. */
bool cli_can_save(void);
/* Absolute, so that a run can be resumed from anywhere. *path is to be freed. */
const char *cli_absolute(const char *given, char **path);

/* The parameters of either. */
gd_module *cli_train_module(const cli_training *t);

/* ---- train_log.c ---- */

/* The run's log in the formats that the settings ask for; resume_step is gd_run_log_open's. */
gd_run_log *cli_log_open(const cli_training *t, int64_t resume_step);
/* Metrics, and after an epoch times and what TensorBoard shows. A resumed run goes on in the log of the one
 * before, without its steps from here on. */
gd_status cli_log_progress(cli_training *t, const gd_fit_progress *p);
/* After an epoch: what it took. */
void cli_add_times(cli_training *t, const gd_fit_progress *p);
void cli_print_times(const cli_training *t);

/* ---- pictures.c ---- */

/* RUN/pictures, of the whole log and of the model. */
gd_status cli_draw_training(const cli_training *t);
/* "lr-range": what gd_lr_range found. */
gd_status cli_draw_rates(const cli_training *t, int64_t count, const gd_lr_point *points,
                         double lr);

/* ---- train_fit.c ---- */

/* Train the model, and write RUN/model.safetensors. false: the error is recorded. */
bool cli_train_fit(cli_training *t);
/* Whether the validation tells of a metric of that name, which the option gave; false: it does not, which is
 * recorded with those it tells of. */
bool cli_check_metric(const cli_training *t, const char *option, const char *name);

#endif
