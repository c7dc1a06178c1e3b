/* cli/search.h: gradus search in four files: search.c is the command and the rounds, search_space.c what is
 * tried, search_state.c the file that it goes on from, search_report.c what is shown at the end. */
#ifndef GD_CLI_SEARCH_H
#define GD_CLI_SEARCH_H

#include "train.h"

enum {
    CLI_MOST_TRIES = 16,   /* options that are tried */
    CLI_MOST_CHOICES = 64, /* values of one */
    CLI_MOST_ROUNDS = 12,
    CLI_MOST_TRIALS = 10000,
    CLI_VALUE_BYTES = 256
};

typedef enum cli_draw { CLI_CHOICES, CLI_UNIFORM, CLI_LOG } cli_draw;

/* An option that is tried: one of several values, or a number from a range. */
typedef struct cli_try {
    const cli_option *option;
    const char *key; /* of the option */
    char *spec;      /* as it was given: "log(1e-4,1e-1)" */
    cli_draw draw;
    double low, high;
    int count;
    char *choices[CLI_MOST_CHOICES];
} cli_try;

/* One training. */
typedef struct cli_trial {
    char *values[CLI_MOST_TRIES];    /* as cli_store takes them */
    int rounds;                      /* that it has been through */
    double results[CLI_MOST_ROUNDS]; /* the best value of the metric after each of them */
    char *problem;                   /* why it failed; NULL: it did not */
} cli_trial;

typedef enum cli_method { CLI_RANDOM, CLI_GRID, CLI_HALVING, CLI_METHOD_COUNT } cli_method;
extern const char *const cli_method_names[CLI_METHOD_COUNT];

/* A search and all its trials. */
typedef struct cli_study {
    cli_settings settings; /* of a trial; `options` are its rows */
    cli_settings base;     /* what trials have in common */
    cli_config *config;
    char folder[CLI_PATH_BYTES];
    char metric[GD_METRIC_NAME_SIZE]; /* of the validation, that is compared */
    cli_method method;
    int64_t reduction; /* one of so many trials comes into the next round */
    int64_t epochs;    /* of the last round */
    int rounds;
    int64_t budgets[CLI_MOST_ROUNDS]; /* epochs at the end of each round */
    int try_count;
    cli_try tries[CLI_MOST_TRIES];
    int64_t trial_count;
    cli_trial *trials;
} cli_study;

/* ---- search_space.c ---- */

/* "optimizer.lr=log(1e-4,1e-1)", added to the tries. CLI_OK, or what to exit with, the error told. */
int cli_try_add(cli_study *search, const char *text);
/* What cli_search_save has written of one: a range, or else its choices. false: that is none. */
bool cli_try_restore(cli_study *search, const char *key, const char *range, int count,
                     const char *const *choices);
/* How many combinations there are; 0: no end of them, or too many to count. */
int64_t cli_try_combinations(const cli_study *search);
/* The values of trial `index`, of the seed and the index alone; false: no memory. */
bool cli_try_draw(const cli_study *search, int64_t index, cli_trial *trial);

/* ---- search_state.c ---- */

/* FOLDER/search.json, replaced as a whole. */
gd_status cli_search_save(const cli_study *search);
/* CLI_OK, or what to exit with, the error told. */
int cli_search_load(cli_study *search);

/* ---- search_report.c ---- */

/* The folder of a trial. */
void cli_trial_folder(const cli_study *search, int64_t index, char folder[CLI_PATH_BYTES]);
/* 0.9545 of an accuracy is "95.45 %". */
void cli_trial_result(const cli_study *search, double value, char text[CLI_COUNT_TEXT]);
/* Whether a is better than b, which may be NaN. */
bool cli_is_better(const cli_study *search, double a, double b);
/* Indices of all trials, the best first: those that went through more rounds before others. To be freed;
 * NULL: no memory. */
int64_t *cli_search_order(const cli_study *search);
/* A table of the trials, the best one's name, and pictures. Returns an exit code. */
int cli_search_report(const cli_study *search);

#endif
