/* cli/train.c: gradus train: options, the model, and the run folder. Start at cli_train(); the training
 * itself is train_fit.c. */
#include "train.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is not given on the command line. */
typedef struct recipe {
    const char *optimizer, *schedule;
    int64_t epochs, batch;
    double lr;
} recipe;

/* The original: plain stochastic gradient descent. */
static const recipe faithful = {
    .optimizer = "sgd", .schedule = "constant", .epochs = 10, .batch = 50, .lr = 0.01
};

static void complete(cli_settings *s, const cli_data_kind *kind)
{
    const recipe best = { .optimizer = "adam",
                          .schedule = "cosine",
                          .epochs = kind->epochs,
                          .batch = kind->batch,
                          .lr = kind->lr };
    const recipe *r = s->faithful ? &faithful : &best;
    bool own_optimizer = s->optimizer && strcmp(s->optimizer, r->optimizer) != 0;
    s->optimizer = s->optimizer ? s->optimizer : r->optimizer;
    s->schedule = s->schedule ? s->schedule : r->schedule;
    s->epochs = s->epochs ? s->epochs : r->epochs;
    s->batch = s->batch ? s->batch : r->batch;
    if (isnan(s->lr) && !own_optimizer) /* another optimizer has a default of its own */
        s->lr = r->lr;
}

static bool record(gd_status status, const char *format, const char *text)
{
    char sentence[2 * CLI_PATH_BYTES + 256];
    snprintf(sentence, sizeof sentence, format, text, text);
    (void)gd_error_record(status, sentence);
    return false;
}

/* ---- the model ---- */

/* What the model gives for a sample must be what the data want of it. */
static bool fits(const cli_training *t)
{
    int layer = gd_model_layer_find(t->model, gd_model_output_name(t->model, 0));
    gd_shape given = gd_model_layer_shape(t->model, layer);
    int64_t outputs = given.rank > 0 ? given.dim[given.rank - 1] : 0;
    int64_t taken = 1, there = 1;
    char text[256];
    gd_shape input = gd_model_input_shape(t->model, 0);
    for (int i = 0; i < input.rank; i++)
        taken *= input.dim[i];
    for (int i = 0; i < t->data.input.rank; i++)
        there *= t->data.input.dim[i];
    const gd_loss_spec *loss = gd_model_loss_spec(t->model, 0);
    bool classes = !loss || strcmp(loss->type, "cross_entropy") == 0;
    text[0] = '\0';
    if (gd_model_input_count(t->model) != 1 || gd_model_output_count(t->model) != 1)
        snprintf(text, sizeof text, "the model has several inputs or outputs; the data have one");
    else if (taken != there)
        snprintf(text, sizeof text, "the model takes %lld numbers, a %s has %lld", (long long)taken,
                 t->data.kind->sample, (long long)there);
    else if (outputs != t->data.outputs)
        snprintf(text, sizeof text, "the model gives %lld numbers, %lld are needed: %s",
                 (long long)outputs, (long long)t->data.outputs,
                 t->data.regression ? "the target is a number" : "one for each class");
    else if (t->data.regression && classes)
        snprintf(text, sizeof text,
                 "the target is a number, and the model's loss is for classes; "
                 "add \"loss\": \"mse\" to it");
    if (text[0])
        (void)gd_error_record(GD_ERR_INVALID, text);
    return text[0] == '\0';
}

/* The run's model.json, which the user may have looked at, or --model, or a proposal. */
static bool make_model(cli_training *t)
{
    const cli_settings *s = t->settings;
    uint64_t seed = (uint64_t)s->seed;
    char path[CLI_PATH_BYTES + 32];
    if (!t->data.kind->propose) {
        t->language = cli_propose_language(&t->data, seed);
        return t->language != NULL;
    }
    snprintf(path, sizeof path, "%s/model.json", t->folder);
    if (s->resume && access(path, F_OK) == 0)
        t->model = gd_model_load_json(t->context, path, .seed = seed);
    else if (s->model && strcmp(s->model, "mnist_mlp") == 0)
        t->model = cli_mnist_model(t->context, seed);
    else if (s->model)
        t->model = gd_model_load_json(t->context, s->model, .seed = seed);
    else
        t->model = t->data.kind->propose(&t->data, seed);
    return t->model && fits(t);
}

/* A flat network of few parameters is trained by one thread, unless told otherwise: a step of some ten
 * microseconds is over before another has been woken. (Convolutions work long on few parameters.)
 * The result does not depend on it. */
static bool choose_threads(const cli_training *t)
{
    const int64_t small = 200000;
    if (t->language)
        return true;
    bool is_small = gd_module_parameter_count(gd_model_module(t->model)) <= small &&
                    gd_model_input_shape(t->model, 0).rank == 1;
    return t->settings->threads > 0 || !is_small || gd_context_set_threads(t->context, 1) == GD_OK;
}

/* ---- the run folder ---- */

/* Options that decide what comes out, and so are kept. */
static bool is_kept(const char *name)
{
    static const char *const others[] = { "model",   "run",   "resume", "threads",
                                          "workers", "blame", "quiet",  "DATA" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    return true;
}

/* Before the data are looked at: the folder is there, or the one that it is to be made in. */
static bool can_be_made(const char *folder)
{
    char parent[CLI_PATH_BYTES];
    struct stat status;
    if (stat(folder, &status) == 0)
        return (S_ISDIR(status.st_mode) && access(folder, W_OK) == 0) ||
               record(GD_ERR_IO, "%s: not a folder that can be written to", folder);
    snprintf(parent, sizeof parent, "%s", folder);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    return access(slash ? parent : ".", W_OK) == 0 ||
           record(GD_ERR_IO, "%s: cannot be made: its folder is not there, or not to be written to",
                  folder);
}

/* runs/NAME of the data's name, runs/NAME-2 where that is taken, … */
static bool choose_folder(const cli_settings *s, char folder[CLI_PATH_BYTES])
{
    char name[256];
    size_t length = strlen(s->data);
    while (length > 1 && s->data[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && s->data[begin - 1] != '/')
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(length - begin), s->data + begin);
    name[strcspn(name, ".")] = '\0';
    snprintf(folder, CLI_PATH_BYTES, CLI_RUNS "/%s", *name ? name : "run");
    for (int i = 2; access(folder, F_OK) == 0; i++)
        snprintf(folder, CLI_PATH_BYTES, CLI_RUNS "/%s-%d", *name ? name : "run", i);
    return mkdir(CLI_RUNS, 0777) == 0 || errno == EEXIST ||
           record(GD_ERR_IO, "%s: cannot be made", CLI_RUNS);
}

static bool write_model(const cli_training *t)
{
    char path[CLI_PATH_BYTES + 32];
    if (t->language) {
        snprintf(path, sizeof path, "%s/characters.txt", t->folder);
        return cli_write_characters(&t->data, path);
    }
    size_t length = gd_model_format_json(t->model, NULL, 0);
    char *json = length ? malloc(length + 1) : NULL;
    snprintf(path, sizeof path, "%s/model.json", t->folder);
    bool ok = json && gd_model_format_json(t->model, json, length + 1) == length &&
              gd_file_write(path, json, length) == GD_OK;
    free(json);
    return ok;
}

/* --model's file, word for word, until the model has been made of it. */
static bool keep_model(const cli_training *t)
{
    const char *file = t->settings->model;
    if (!file || strcmp(file, "mnist_mlp") == 0)
        return true;
    char to[CLI_PATH_BYTES + 32];
    size_t size;
    char *text = cli_read_file(file, &size);
    if (!text)
        return false;
    snprintf(to, sizeof to, "%s/model.json", t->folder);
    bool ok = gd_file_write(to, text, size) == GD_OK;
    free(text);
    return ok;
}

/* A new folder, or the one that is resumed. Whatever ends the process from here on, the folder has what
 * --resume needs: the options, which are written last. */
static bool open_run(cli_training *t, const cli_option *options, int count)
{
    t->is_new = access(t->folder, F_OK) != 0;
    t->run = gd_run_open(t->folder);
    if (!t->run || t->settings->resume)
        return t->run != NULL;
    char word[CLI_WORD_BYTES], sentence[2 * CLI_WORD_BYTES];
    snprintf(sentence, sizeof sentence,
             "%.4000s has a training in it: --resume %.4200s goes on with it, another --run begins "
             "anew",
             t->folder, cli_shell_word(t->folder, word));
    if (gd_run_has_checkpoint(t->run))
        return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
    t->log = gd_run_log_open(t->folder);
    return t->log && keep_model(t) && cli_write_config(t->log, options, count, is_kept) == GD_OK;
}

/* A training that cannot begin leaves no folder behind that was not there. */
static void take_back(const cli_training *t)
{
    static const char *const names[] = { "/config.json",
                                         "/model.json",
                                         "/metrics.jsonl",
                                         "/characters.txt",
                                         "/checkpoints",
                                         "/lock",
                                         "" };
    char path[CLI_PATH_BYTES + 32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", t->folder, names[i]);
        (void)remove(path);
    }
}

/* ---- the command ---- */

static bool train(cli_training *t, cli_settings *s, const cli_option *options, int count)
{
    const cli_data_options data = { .path = s->data,
                                    .target = s->target,
                                    .ignore = s->ignore,
                                    .task = s->task,
                                    .validation = s->validation,
                                    .seed = s->seed,
                                    .size = s->size };
    const cli_data_kind *kind = cli_data_find(s->data);
    if (!kind)
        return false;
    if ((s->target || s->ignore || s->task) && kind != &cli_table_kind)
        return record(GD_ERR_INVALID, "%s is no table, which --target, --ignore and --task are for",
                      s->given);
    if (s->size && kind != &cli_image_kind)
        return record(GD_ERR_INVALID, "%s: --size is for photographs", s->given);
    if (s->model && !kind->propose)
        return record(GD_ERR_INVALID, "%s: a text is learnt by a GPT; --model is for other data",
                      s->model);
    complete(s, kind);
    t->context = gd_open("cpu", .threads = (int)s->threads);
    if (!t->context || !open_run(t, options, count) ||
        !cli_data_open(&t->data, t->context, &data) || !make_model(t) || !choose_threads(t) ||
        !write_model(t))
        return false;
    if (cli_is_interrupted()) {
        fprintf(stderr, "gradus train: interrupted before it began; nothing is saved\n");
        return true;
    }
    t->began = true;
    return cli_train_fit(t);
}

static void end(cli_training *t)
{
    gd_run_log_close(t->log);
    bool opened = t->run != NULL;
    (void)gd_run_close(t->run);
    if (opened && t->is_new && !t->began)
        take_back(t);
    cli_data_close(&t->data);
    gd_close(t->context);
}

/* A build that cannot save finds out now, not after hours. */
static bool can_save(void)
{
    return gd_tensors_save("/dev/null", 0, NULL, 0, NULL) == GD_OK;
}

/* --resume goes on with the options of the run. */
static int read_run(int argc, char **argv, cli_settings *s, const cli_option *options, int count,
                    gd_history **history)
{
    for (int i = 1; i < argc; i++)
        for (int k = 0; k < count; k++) {
            /* The beginning of a name is as good as the name. */
            size_t length = strncmp(argv[i], "--", 2) == 0 ? strcspn(argv[i] + 2, "=") : 0;
            if (length > 0 && is_kept(options[k].name) &&
                strncmp(argv[i] + 2, options[k].name, length) == 0) {
                fprintf(stderr,
                        "gradus train: --%s cannot be changed by --resume, which goes on "
                        "with what is in config.json\n",
                        options[k].name);
                return CLI_USAGE;
            }
        }
    if (s->model || s->run || s->data) {
        fprintf(stderr, "gradus train: --resume takes model and data of the run\n");
        return CLI_USAGE;
    }
    char log[CLI_PATH_BYTES + 32];
    snprintf(log, sizeof log, "%.4000s/metrics.jsonl", s->resume);
    if (access(log, F_OK) != 0) {
        fprintf(stderr, "gradus train: %s: there is no run to go on with\n", s->resume);
        return CLI_FAILED;
    }
    *history = gd_history_load(s->resume);
    if (*history && gd_history_option_count(*history) == 0) {
        fprintf(stderr,
                "gradus train: %s has no config.json: its training had not begun, and begins anew "
                "with --run\n",
                s->resume);
        return CLI_FAILED;
    }
    return *history ? cli_read_config("train", *history, options, count, is_kept) : cli_fail();
}

static int check(const cli_settings *s)
{
    if (!s->schedule || strcmp(s->schedule, "cosine") == 0 || strcmp(s->schedule, "constant") == 0)
        return CLI_OK;
    fprintf(stderr, "gradus train: --schedule is cosine or constant, not '%s'\n", s->schedule);
    return CLI_USAGE;
}

/* Absolute, so that the run can be resumed from anywhere. */
static int run(cli_settings *s, const cli_option *options, int count)
{
    cli_training t = { .settings = s };
    char *path = NULL;
    if (!s->data && access(CLI_DEFAULT_DATA, F_OK) != 0) {
        fprintf(stderr, "gradus train: DATA is needed: a table, a text, or a folder; 'gradus train "
                        "--help' (" CLI_DEFAULT_DATA ", taken without, is not there)\n");
        return CLI_USAGE;
    }
    s->data = s->data ? s->data : CLI_DEFAULT_DATA;
    bool ok = can_save() && (s->run || s->resume || choose_folder(s, t.folder));
    if (s->run || s->resume)
        snprintf(t.folder, sizeof t.folder, "%.4000s", s->run ? s->run : s->resume);
    ok = ok && can_be_made(t.folder);
    s->given = s->data;
    path = realpath(s->data, NULL);
    s->data = path ? path : s->data;
    cli_catch_interrupts();
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is told in the end, after saving */
    ok = ok && train(&t, s, options, count);
    int code = !ok ? cli_fail() : cli_is_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    end(&t);
    s->data = s->given;
    free(path);
    return code;
}

int cli_train(int argc, char **argv)
{
    cli_settings s = {
        .threads = -1, .workers = -1, .seed = 1, .lr = NAN, .momentum = NAN, .validation = 0.15
    };
    const cli_option options[] = {
        { "DATA", NULL,
          "a table (.csv, .tsv), a folder of photographs with a folder for each class, a text "
          "(.txt), or MNIST's files (default: " CLI_DEFAULT_DATA ")",
          CLI_OPERAND, &s.data, 0, 0 },
        { "data", "DATA", "the same", CLI_TEXT, &s.data, 0, 0 },
        { "target", "COLUMN", "of a table: what is to be predicted", CLI_TEXT, &s.target, 0, 0 },
        { "ignore", "COLUMNS", "of a table: columns to leave out, with commas between them",
          CLI_TEXT, &s.ignore, 0, 0 },
        { "task", "NAME", "classification or regression (default: as the target says)", CLI_TEXT,
          &s.task, 0, 0 },
        { "size", "N", "of photographs: height and width in pixels (default: 64)", CLI_WHOLE,
          &s.size, 8, 1024 },
        { "validation", "X", "share of the data to validate with (default: 0.15)", CLI_REAL,
          &s.validation, 0.01, 0.9 },
        { "model", "FILE", "the network as JSON (default: one is proposed)", CLI_TEXT, &s.model, 0,
          0 },
        { "run", "FOLDER", "for all that comes of it (default: " CLI_RUNS "/ and the data's name)",
          CLI_TEXT, &s.run, 0, 0 },
        { "resume", "FOLDER", "go on with a run that was interrupted", CLI_TEXT, &s.resume, 0, 0 },
        { "epochs", "N",
          "passes over the data (default: 10 for digits and text, 20 photographs, 100 tables)",
          CLI_WHOLE, &s.epochs, 1, 1e6 },
        { "batch", "N", "samples in a batch (default: 50 digits, 16 text, else 32)", CLI_WHOLE,
          &s.batch, 1, 60000 },
        { "optimizer", "NAME", "sgd, rmsprop, adam, adamw, nadam, radam, ... (default: adam)",
          CLI_TEXT, &s.optimizer, 0, 0 },
        { "lr", "X", "learning rate (default: by the data, or the optimizer's)", CLI_REAL, &s.lr, 0,
          1e6 },
        { "momentum", "X", "of sgd and rmsprop (default: 0)", CLI_REAL, &s.momentum, 0, 1 },
        { "schedule", "NAME", "cosine or constant (default: cosine)", CLI_TEXT, &s.schedule, 0, 0 },
        { "seed", "N", "of initial weights, shuffles and the split (default: 1)", CLI_WHOLE,
          &s.seed, 0, 9e15 },
        { "threads", "N",
          "threads to compute with (default: the cores there are; 1 for a small network)",
          CLI_WHOLE, &s.threads, 1, 256 },
        { "workers", "N", "threads that make batches ahead (default: 2 for photographs, else none)",
          CLI_WHOLE, &s.workers, 0, 256 },
        { "faithful", NULL,
          "as the original: sgd, learning rate 0.01, constant, 10 epochs of batch 50", CLI_FLAG,
          &s.faithful, 0, 0 },
        { "per-example", NULL,
          "accumulate gradients one example at a time: the same result, slower", CLI_FLAG,
          &s.per_example, 0, 0 },
        { "eager", NULL, "run op by op, without compiling: the same result, slower", CLI_FLAG,
          &s.eager, 0, 0 },
        { "blame", NULL, "where the loss is not finite, find the op that made it so", CLI_FLAG,
          &s.blame, 0, 0 },
        { "quiet", NULL, "print nothing but errors", CLI_FLAG, &s.quiet, 0, 0 },
    };
    const int count = (int)(sizeof options / sizeof *options);
    const cli_command_help help = {
        "gradus train [DATA] [OPTION]...",
        "Train a network on a table, a folder of photographs, a text, or handwritten digits "
        "(MNIST),\nfound out from the files. The run's folder has the model (model.json, "
        "model.safetensors), the options\n(config.json), the log (metrics.jsonl), curves "
        "(pictures/curves.svg) and checkpoints. Ctrl-C finishes\nthe step and saves; a second one "
        "ends at once."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, count, &code))
        return code;
    gd_history *history = NULL;
    if (s.resume)
        code = read_run(argc, argv, &s, options, count, &history);
    if (code == CLI_OK)
        code = check(&s);
    if (code == CLI_OK)
        code = run(&s, options, count);
    gd_history_release(history);
    return code;
}
