/* cli/train_options.c: the options of a training: rows for the command line and for files, and what can be
 * told to be wrong before the data are read. */
#include "train.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

cli_settings cli_train_defaults(void)
{
    return (cli_settings){ .threads = -1,
                           .workers = -1,
                           .seed = 1,
                           .epochs_before = -1,
                           .patience_before = -1,
                           .lr = NAN,
                           .momentum = NAN,
                           .weight_decay = NAN,
                           .clip_norm = NAN,
                           .clip_value = NAN,
                           .loss_scale = NAN,
                           .validation = 0.15,
                           .ema = NAN,
                           .min_improvement = NAN,
                           .warmup = NAN,
                           .lr_end = NAN,
                           .factor = NAN,
                           .period = NAN,
                           .growth = NAN,
                           .power = NAN,
                           .rising_share = NAN };
}

static int data_rows(cli_settings *s, cli_option *rows)
{
    const cli_option options[] = {
        { "Data", NULL, NULL, CLI_GROUP, NULL, 0, 0 },
        { "DATA", NULL,
          "a table (.csv, .tsv), a folder of photographs or sounds with a folder for each "
          "class, a text "
          "(.txt), NumPy's arrays x and y (.npz), or the files of CIFAR-10 or MNIST "
          "(default: " CLI_DEFAULT_DATA "); or a file of --config",
          CLI_OPERAND, &s->data, 0, 0 },
        { "data", "DATA", "the same", CLI_TEXT, &s->data, 0, 0 },
        { "target", "COLUMN", "of a table: what is to be predicted", CLI_TEXT, &s->target, 0, 0 },
        { "ignore", "COLUMNS", "of a table: columns to leave out, with commas between them",
          CLI_LIST, &s->ignore, 0, 0 },
        { "task", "NAME", "classification or regression (default: as the target says)", CLI_TEXT,
          &s->task, 0, 0 },
        { "size", "N",
          "of photographs: height and width in pixels (default: 64); of sounds: frames "
          "(default: those of the first)",
          CLI_WHOLE, &s->size, 8, 1 << 24 },
        { "validation", "X", "share of the data to validate with (default: 0.15)", CLI_REAL,
          &s->validation, 0.01, 0.9 },
        { "workers", "N",
          "threads that make batches ahead (default: 2 for photographs and sounds, else none)",
          CLI_WHOLE, &s->workers, 0, 256 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

static int run_rows(cli_settings *s, cli_option *rows)
{
    const cli_option options[] = {
        { "Run", NULL, NULL, CLI_GROUP, NULL, 0, 0 },
        { "run", "FOLDER", "for all that comes of it (default: " CLI_RUNS "/ and the data's name)",
          CLI_TEXT, &s->run, 0, 0 },
        { "resume", "FOLDER",
          "go on with a run that was interrupted; with --epochs or --patience, train longer",
          CLI_TEXT, &s->resume, 0, 0 },
        { "config", "FILE",
          "options as JSON, as config.json of a run is; those of the command line come after it",
          CLI_TEXT, &s->config, 0, 0 },
        { "set", "KEY=VALUE",
          "set an option by its name in such a file, as optimizer.lr=0.01; may be given often",
          CLI_TEXTS, &s->sets, 0, 0 },
        { "tensorboard", NULL,
          "log for TensorBoard, too: metrics, weights and gradients, the graph, samples", CLI_FLAG,
          &s->tensorboard, 0, 0 },
        { "csv", NULL, "log into metrics.csv, too", CLI_FLAG, &s->csv, 0, 0 },
        { "prometheus", "FILE",
          "keep the newest numbers in a file that Prometheus' node_exporter reads (.prom)",
          CLI_TEXT, &s->prometheus, 0, 0 },
        { "seed", "N", "of initial weights, shuffles and the split (default: 1)", CLI_WHOLE,
          &s->seed, 0, 9e15 },
        { "threads", "N",
          "threads to compute with (default: the cores there are; 1 for a small network)",
          CLI_WHOLE, &s->threads, 1, 256 },
        CLI_DEVICE_OPTION(&s->device),
        { "quiet", NULL, "print nothing but errors", CLI_FLAG, &s->quiet, 0, 0 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

static int training_rows(cli_settings *s, cli_option *rows)
{
    const cli_option options[] = {
        { "Training", NULL, NULL, CLI_GROUP, NULL, 0, 0 },
        { "model", "FILE", "the network as JSON (default: one is proposed)", CLI_TEXT, &s->model, 0,
          0 },
        { "epochs", "N",
          "passes over the data (default: 10 for digits and text, 20 photographs, 100 tables)",
          CLI_WHOLE, &s->epochs, 1, 1e6 },
        { "batch", "N", "samples in a batch (default: 50 digits, 16 text, else 32)", CLI_WHOLE,
          &s->batch, 1, 60000 },
        { "accumulate", "N", "batches whose gradients are added up for a step (default: 1)",
          CLI_WHOLE, &s->accumulate, 1, 1e6 },
        { "balance", NULL,
          "of classes: draw each as often as the others, however few samples it has", CLI_FLAG,
          &s->balance, 0, 0 },
        { "ema", "X",
          "average the weights over the steps with this decay, as 0.999; the averages are "
          "validated and saved",
          CLI_REAL, &s->ema, 0, 0.999999 },
        { "monitor", "METRIC",
          "of the validation: says which epoch is best (default: loss; photographs: accuracy; "
          "digits: the last epoch counts)",
          CLI_TEXT, &s->monitor, 0, 0 },
        { "patience", "N", "end after so many validations without an improvement", CLI_WHOLE,
          &s->patience, 1, 1e6 },
        { "min-improvement", "X", "what is no more than that is none (default: 0)", CLI_REAL,
          &s->min_improvement, 0, 1e9 },
        { "precision", "NAME",
          "f32, bf16 or f16: products, convolutions and attention take 16-bit numbers, parameters "
          "stay f32; f16 scales the loss (default: f32)",
          CLI_TEXT, &s->precision, 0, 0 },
        { "blame", NULL, "where the loss is not finite, find the op that made it so", CLI_FLAG,
          &s->blame, 0, 0 },
        { "eager", NULL, "run op by op, without compiling: the same result, slower", CLI_FLAG,
          &s->eager, 0, 0 },
        { "per-example", NULL,
          "accumulate gradients one example at a time: the same result, slower", CLI_FLAG,
          &s->per_example, 0, 0 },
        { "faithful", NULL,
          "as the original: sgd, learning rate 0.01, constant, 10 epochs of batch 50", CLI_FLAG,
          &s->faithful, 0, 0 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

static int optimizer_rows(cli_settings *s, cli_option *rows)
{
    const cli_option options[] = {
        { "Optimizer", NULL, NULL, CLI_GROUP, NULL, 0, 0 },
        { "optimizer", "NAME",
          "sgd, rmsprop, adam, adamw, nadam, radam, adagrad, adadelta, lion, lamb (default: adam)",
          CLI_TEXT, &s->optimizer, 0, 0 },
        { "lr", "X", "learning rate (default: by the data, or the optimizer's)", CLI_REAL, &s->lr,
          0, 1e6 },
        { "find-lr", NULL,
          "do not train: try ever larger learning rates, say which is good, and draw the losses",
          CLI_FLAG, &s->find_lr, 0, 0 },
        { "momentum", "X", "of sgd and rmsprop (default: 0)", CLI_REAL, &s->momentum, 0, 1 },
        { "weight-decay", "X", "(default: the optimizer's: adamw 0.01, else 0)", CLI_REAL,
          &s->weight_decay, 0, 1e6 },
        { "clip-norm", "X", "scale gradients whose norm is greater down to it", CLI_REAL,
          &s->clip_norm, 1e-12, 1e12 },
        { "clip-value", "X", "hold each element of the gradients within -X and X", CLI_REAL,
          &s->clip_value, 1e-12, 1e12 },
        { "loss-scale", "X",
          "of --precision f16: what the loss is first multiplied by; it adapts (default: 65536)",
          CLI_REAL, &s->loss_scale, 1, 1e9 },
        { "state-dtype", "NAME",
          "bf16 keeps the optimizer's states (moments) in half the memory (default: f32)", CLI_TEXT,
          &s->state_dtype, 0, 0 },
        { "state-rounding", "NAME",
          "of --state-dtype bf16: stochastic, which keeps small changes on average, or nearest "
          "(default: stochastic)",
          CLI_TEXT, &s->state_rounding, 0, 0 },
        { "schedule", "NAME",
          "of the learning rate: constant, step, multi_step, exponential, linear, polynomial, "
          "cosine, one_cycle, plateau (default: cosine)",
          CLI_TEXT, &s->schedule, 0, 0 },
        { "warmup", "EPOCHS",
          "rise to the learning rate first, over so many epochs or parts of one (default: cosine "
          "1/50 of all, else 0)",
          CLI_REAL, &s->warmup, 0, 1e6 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

static int schedule_rows(cli_settings *s, cli_option *rows)
{
    const cli_option options[] = {
        { "Settings for --set and --config alone; periods in epochs", NULL, NULL, CLI_GROUP, NULL,
          0, 0 },
        { "schedule.lr_end", "X", "where it ends: linear, polynomial, cosine, plateau (default: 0)",
          CLI_REAL, &s->lr_end, 0, 1e6 },
        { "schedule.factor", "X",
          "of step, multi_step, plateau (default: 0.1), and exponential, each epoch (0.9)",
          CLI_REAL, &s->factor, 1e-6, 1 },
        { "schedule.period", "X",
          "of step (default: a third of all); cosine: begins anew after it (default: never)",
          CLI_REAL, &s->period, 1e-3, 1e6 },
        { "schedule.patience", "N", "of plateau: validations without an improvement (default: 10)",
          CLI_WHOLE, &s->plateau_patience, 1, 1e6 },
        { "schedule.growth", "X", "of cosine's period, each time (default: 1)", CLI_REAL,
          &s->growth, 1, 100 },
        { "schedule.milestones", "LIST", "of multi_step: epochs after which it falls, as 30,60",
          CLI_LIST, &s->milestones, 0, 0 },
        { "schedule.power", "X", "of polynomial (default: 1)", CLI_REAL, &s->power, 0, 100 },
        { "schedule.rising_share", "X", "of one_cycle: the share it rises in (default: 0.3)",
          CLI_REAL, &s->rising_share, 0, 0.99 },
        { "schedule.linear", NULL, "of one_cycle: straight lines instead of cosines", CLI_FLAG,
          &s->linear_annealing, 0, 0 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

int cli_train_options(cli_settings *s, cli_option rows[CLI_MOST_TRAIN_OPTIONS])
{
    int count = data_rows(s, rows);
    count += run_rows(s, rows + count);
    count += training_rows(s, rows + count);
    count += optimizer_rows(s, rows + count);
    count += schedule_rows(s, rows + count);
    assert(count <= CLI_MOST_TRAIN_OPTIONS);
    return count;
}

/* ---- names ---- */

const char *cli_train_key(const char *name)
{
    static const char *const keys[][2] = {
        { "optimizer", "optimizer.name" },
        { "lr", "optimizer.lr" },
        { "momentum", "optimizer.momentum" },
        { "weight-decay", "optimizer.weight_decay" },
        { "clip-norm", "optimizer.clip_norm" },
        { "clip-value", "optimizer.clip_value" },
        { "loss-scale", "optimizer.loss_scale" },
        { "state-dtype", "optimizer.state_dtype" },
        { "state-rounding", "optimizer.state_rounding" },
        { "schedule", "schedule.name" },
        { "warmup", "schedule.warmup" },
        { "min-improvement", "min_improvement" },
        { "per-example", "per_example" },
        { "find-lr", NULL },
        { "config", NULL },
        { "set", NULL },
        { "resume", NULL },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(name, keys[i][0]) == 0)
            return keys[i][1];
    return name;
}

bool cli_train_is_kept(const char *name)
{
    static const char *const others[] = { "run",    "find-lr", "resume", "config", "set", "threads",
                                          "device", "workers", "blame",  "quiet",  "DATA" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return true;
}

/* ---- what fits together ---- */

static const char *const schedules[] = { "constant",    "step",      "multi_step",
                                         "exponential", "linear",    "polynomial",
                                         "cosine",      "one_cycle", "plateau" };
enum { SCHEDULE_COUNT = sizeof schedules / sizeof *schedules };

const char *cli_schedule_name(const cli_settings *s)
{
    return s->schedule ? s->schedule : s->faithful ? "constant" : "cosine";
}

static int check_schedule_name(const char *command, const char *name)
{
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        if (strcmp(name, schedules[i]) == 0)
            return CLI_OK;
    fprintf(stderr, "gradus %s: --schedule is", command);
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        fprintf(stderr, "%s %s", i == 0 ? "" : i + 1 < SCHEDULE_COUNT ? "," : " or", schedules[i]);
    fprintf(stderr, ", not '%s'%s\n", name, cli_suggestion(name, "", SCHEDULE_COUNT, schedules));
    return CLI_USAGE;
}

/* A setting of one schedule that another would pass over in silence. */
static int check_schedule(const char *command, const cli_settings *s)
{
    const struct {
        const char *setting, *of;
        bool given;
    } settings[] = {
        { "schedule.lr_end", "linear polynomial cosine plateau", !isnan(s->lr_end) },
        { "schedule.factor", "step multi_step exponential plateau", !isnan(s->factor) },
        { "schedule.period", "step cosine", !isnan(s->period) },
        { "schedule.patience", "plateau", s->plateau_patience > 0 },
        { "schedule.growth", "cosine", !isnan(s->growth) },
        { "schedule.milestones", "multi_step", s->milestones != NULL },
        { "schedule.power", "polynomial", !isnan(s->power) },
        { "schedule.rising_share", "one_cycle", !isnan(s->rising_share) },
        { "schedule.linear", "one_cycle", s->linear_annealing },
    };
    const char *name = cli_schedule_name(s);
    size_t length = strlen(name);
    int code = check_schedule_name(command, name);
    for (size_t i = 0; code == CLI_OK && i < sizeof settings / sizeof *settings; i++) {
        bool has = false;
        for (const char *at = settings[i].of; *at; at += strcspn(at, " "), at += *at == ' ')
            has |= strncmp(at, name, length) == 0 && (at[length] == ' ' || !at[length]);
        if (!settings[i].given || has)
            continue;
        fprintf(stderr, "gradus %s: %s is for the schedules %s; this one is %s\n", command,
                settings[i].setting, settings[i].of, name);
        code = CLI_USAGE;
    }
    return code;
}

gd_dtype cli_train_precision(const cli_settings *s)
{
    gd_dtype precision;
    (void)cli_precision("train", s->precision, &precision);
    return precision;
}

/* An option that takes one of two names, or is not given. */
static int check_either(const char *command, const char *option, const char *given,
                        const char *const names[2])
{
    if (!given || strcmp(given, names[0]) == 0 || strcmp(given, names[1]) == 0)
        return CLI_OK;
    fprintf(stderr, "gradus %s: --%s is %s or %s, not '%s'%s\n", command, option, names[0],
            names[1], given, cli_suggestion(given, "", 2, names));
    return CLI_USAGE;
}

static const char *const state_dtypes[] = { "f32", "bf16" };
static const char *const state_roundings[] = { "nearest", "stochastic" };

gd_dtype cli_train_state_dtype(const cli_settings *s)
{
    return s->state_dtype && strcmp(s->state_dtype, "bf16") == 0 ? GD_BF16 : GD_DTYPE_COUNT;
}

int cli_train_stochastic_rounding(const cli_settings *s)
{
    return !s->state_rounding ? -1 : strcmp(s->state_rounding, "stochastic") == 0;
}

static int check_states(const char *command, const cli_settings *s)
{
    int code = check_either(command, "state-dtype", s->state_dtype, state_dtypes);
    if (code == CLI_OK)
        code = check_either(command, "state-rounding", s->state_rounding, state_roundings);
    if (code != CLI_OK || !s->state_rounding || cli_train_state_dtype(s) == GD_BF16)
        return code;
    fprintf(stderr, "gradus %s: --state-rounding is for --state-dtype bf16, which is not given\n",
            command);
    return CLI_USAGE;
}

int cli_train_check(const char *command, const cli_settings *s)
{
    const char *problem = NULL;
    const char *schedule = cli_schedule_name(s);
    int code = check_schedule(command, s);
    gd_dtype precision;
    if (code == CLI_OK && !cli_precision(command, s->precision, &precision))
        code = CLI_USAGE;
    if (code == CLI_OK)
        code = check_states(command, s);
    if (code != CLI_OK)
        return code;
    if (s->per_example && s->accumulate > 1)
        problem = "--per-example adds up the examples of a batch, --accumulate whole batches: one "
                  "of them";
    else if (!isnan(s->min_improvement) && s->patience == 0)
        problem = "--min-improvement is for --patience, which is not given";
    else if (!isnan(s->loss_scale) && precision != GD_F16)
        problem = "--loss-scale is for --precision f16, which is not given";
    else if (s->warmup > 0 && strcmp(schedule, "plateau") == 0)
        problem = "the schedule plateau has no warm-up";
    else if (strcmp(schedule, "multi_step") == 0 && !s->milestones)
        problem = "the schedule multi_step needs its epochs: --set schedule.milestones=30,60";
    else if (!isnan(s->growth) && isnan(s->period))
        problem = "schedule.growth is for a schedule.period, which is not given";
    if (!problem)
        return CLI_OK;
    fprintf(stderr, "gradus %s: %s\n", command, problem);
    return CLI_USAGE;
}
