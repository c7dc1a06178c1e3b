/* cli/train.h: gradus train in two files: train.c is the command, its options and its run folder;
 * train_fit.c the training, its display and its log. */
#ifndef GD_CLI_TRAIN_H
#define GD_CLI_TRAIN_H

#include "cli.h"

typedef struct cli_settings {
    const char *given; /* the data, as the user called them */
    const char *data, *model, *run, *resume, *target, *task, *ignore, *optimizer, *schedule;
    int64_t epochs, batch, seed, threads, workers, size; /* 0 (workers: -1): by the kind of data */
    double lr, momentum, validation;
    bool faithful, per_example, eager, blame, quiet;
} cli_settings;

/* A training as it runs. */
typedef struct cli_training {
    const cli_settings *settings;
    gd_context *context;
    cli_data data;
    gd_model *model;
    gd_language_model *language; /* instead of a model, for text */
    gd_run *run;
    gd_run_log *log; /* of a resumed run NULL until the first step is known */
    char folder[CLI_PATH_BYTES];
    bool is_new, began; /* the folder was made by this process; its training has begun */
    double logged;      /* when */
} cli_training;

/* The parameters of either. */
gd_module *cli_train_module(const cli_training *t);
/* Train the model, and write RUN/model.safetensors. false: the error is recorded. */
bool cli_train_fit(cli_training *t);

#endif
