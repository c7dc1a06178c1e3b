/* cli/train.c: gradus train: the model, and the run folder. Start at cli_train(); the options are
 * train_options.c, the training itself is train_fit.c. */
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
    const char *optimizer;
    int64_t epochs, batch;
    double lr;
} recipe;

/* The original: plain stochastic gradient descent. */
static const recipe faithful = { .optimizer = "sgd", .epochs = 10, .batch = 50, .lr = 0.01 };

static void complete(cli_settings *s, const cli_data_kind *kind)
{
    const recipe best = {
        .optimizer = "adam", .epochs = kind->epochs, .batch = kind->batch, .lr = kind->lr
    };
    const recipe *r = s->faithful ? &faithful : &best;
    bool own_optimizer = s->optimizer && strcmp(s->optimizer, r->optimizer) != 0;
    s->optimizer = s->optimizer ? s->optimizer : r->optimizer;
    s->schedule = cli_schedule_name(s);
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

bool cli_can_be_made(const char *folder)
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

bool cli_choose_folder(const char *data, const char *ending, char folder[CLI_PATH_BYTES])
{
    char name[256], whole[300];
    size_t length = strlen(data);
    while (length > 1 && data[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && data[begin - 1] != '/')
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(length - begin), data + begin);
    name[strcspn(name, ".")] = '\0';
    snprintf(whole, sizeof whole, "%s%s", *name ? name : "run", ending);
    snprintf(folder, CLI_PATH_BYTES, CLI_RUNS "/%s", whole);
    for (int i = 2; access(folder, F_OK) == 0; i++)
        snprintf(folder, CLI_PATH_BYTES, CLI_RUNS "/%s-%d", whole, i);
    return mkdir(CLI_RUNS, 0777) == 0 || errno == EEXIST ||
           record(GD_ERR_IO, "%s: cannot be made", CLI_RUNS);
}

static bool write_model(const cli_training *t)
{
    char path[CLI_PATH_BYTES + 32];
    if (t->language)
        return true;
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

/* config.json, and the options by their keys for what else the log writes. */
static bool keep_options(cli_training *t, const cli_config *config)
{
    char path[CLI_PATH_BYTES + 32], texts[CLI_MOST_OPTIONS][CLI_COUNT_TEXT];
    const char *keys[CLI_MOST_OPTIONS], *values[CLI_MOST_OPTIONS];
    int count = 0;
    for (int i = 0; i < config->count; i++) {
        const cli_option *o = &config->options[i];
        keys[count] =
            o->kind == CLI_GROUP || !cli_train_is_kept(o->name) ? NULL : cli_train_key(o->name);
        values[count] = keys[count] ? cli_value_text(o, texts[count]) : NULL;
        count += values[count] != NULL;
    }
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    return cli_config_write(config, path) == GD_OK &&
           gd_run_log_hyperparameters(t->log, count, keys, values) == GD_OK;
}

static bool has_file(const char *folder, const char *name)
{
    char path[CLI_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* What a training would write over. One that has begun has a log. */
static bool has_files_of_others(const char *folder)
{
    return has_file(folder, "search.json") ||
           (!has_file(folder, "metrics.jsonl") &&
            (has_file(folder, "config.json") || has_file(folder, "model.json")));
}

/* A new folder, or the one that is resumed. Whatever ends the process from here on, the folder has what
 * --resume needs: the options, which are written last. */
static bool open_run(cli_training *t, const cli_config *config)
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
    snprintf(
        sentence, sizeof sentence,
        "%.4000s has a search in it, or a config.json or model.json of somebody's: give another "
        "--run",
        t->folder);
    if (has_files_of_others(t->folder))
        return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
    t->log = cli_log_open(t, -1);
    return t->log && keep_model(t) && keep_options(t, config);
}

/* A training that cannot begin leaves no folder behind that was not there. */
static void take_back(const cli_training *t)
{
    static const char *const names[] = { "/config.json", "/model.json", "/metrics.jsonl",
                                         "/checkpoints", "/lock",       "" };
    char path[CLI_PATH_BYTES + 32];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s", t->folder, names[i]);
        (void)remove(path);
    }
}

/* ---- a training ---- */

cli_data_options cli_train_data_options(const cli_settings *s)
{
    return (cli_data_options){ .path = s->data,
                               .target = s->target,
                               .ignore = s->ignore,
                               .task = s->task,
                               .validation = s->validation,
                               .seed = s->seed,
                               .size = s->size };
}

/* What the kind of data takes of the options. */
static bool goes_together(const cli_settings *s, const cli_data_kind *kind)
{
    if ((s->target || s->ignore) && kind != &cli_table_kind)
        return record(GD_ERR_INVALID, "%s is no table, which --target and --ignore are for",
                      s->given);
    if (s->task && kind != &cli_table_kind && kind != &cli_array_kind)
        return record(GD_ERR_INVALID, "%s is no table and no arrays, which --task is for",
                      s->given);
    if (s->size && kind != &cli_image_kind && kind != &cli_audio_kind)
        return record(GD_ERR_INVALID, "%s: --size is for photographs and sounds", s->given);
    struct stat status;
    if (s->model && stat(s->model, &status) == 0 && S_ISDIR(status.st_mode))
        return record(
            GD_ERR_INVALID,
            "%s is a folder; --model takes a network as JSON, as the model.json of a run is",
            s->model);
    if (s->model && cli_has_ending(s->model, ".safetensors"))
        return record(GD_ERR_INVALID,
                      "%s has what was learnt; --model takes a network as JSON, as the "
                      "model.json of a run is",
                      s->model);
    if (s->model && !kind->propose)
        return record(GD_ERR_INVALID, "%s: a text is learnt by a GPT; --model is for other data",
                      s->model);
    return true;
}

/* The settings, whole, and the context. */
static bool prepare(cli_training *t, cli_settings *s)
{
    const cli_data_kind *kind = cli_data_find(s->given);
    if (!kind || !goes_together(s, kind))
        return false;
    complete(s, kind);
    if (!cli_recipe_check(s))
        return false;
    t->monitor = s->monitor ? s->monitor : kind->monitor;
    t->context = cli_open_device(s->device, GD_F32, s->threads);
    return t->context != NULL;
}

static bool train(cli_training *t, cli_settings *s, const cli_config *config)
{
    const cli_data_options data = cli_train_data_options(s);
    if (!prepare(t, s) || !open_run(t, config) || !cli_data_open(&t->data, t->context, &data) ||
        !make_model(t) || !choose_threads(t) || !write_model(t))
        return false;
    if (cli_is_interrupted()) {
        if (!s->is_trial)
            fprintf(stderr, "gradus train: interrupted before it began; nothing is saved\n");
        return true;
    }
    return cli_train_fit(t);
}

bool cli_train_rehearse(cli_settings *s, const char *option, const char **metric)
{
    cli_training t = { .settings = s };
    const cli_data_options data = cli_train_data_options(s);
    s->given = s->data;
    bool ok = prepare(&t, s) && cli_data_open(&t.data, t.context, &data) && make_model(&t);
    if (ok && !*metric) /* "accuracy" of digits, whose last epoch counts */
        *metric = t.monitor ? t.monitor : "accuracy";
    ok = ok && cli_check_metric(&t, option, *metric) &&
         gd_optimizer_create(cli_train_module(&t), s->optimizer, .lr = s->lr,
                             .momentum = s->momentum);
    cli_data_close(&t.data);
    gd_close(t.context);
    return ok;
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

bool cli_can_save(void)
{
    return gd_tensors_save("/dev/null", 0, NULL, 0, NULL) == GD_OK;
}

const char *cli_absolute(const char *given, char **path)
{
    *path = given ? realpath(given, NULL) : NULL;
    return *path ? *path : given;
}

int cli_train_run(cli_settings *s, const cli_config *config)
{
    cli_training t = { .settings = s, .config = config };
    const char *model = s->model;
    char *data_path, *model_path;
    const bool had_runs = access(CLI_RUNS, F_OK) == 0;
    s->given = s->data;
    bool ok = cli_can_save() && (s->run || s->resume || cli_choose_folder(s->data, "", t.folder));
    if (s->run || s->resume)
        snprintf(t.folder, sizeof t.folder, "%.4000s", s->run ? s->run : s->resume);
    if (ok && strncmp(t.folder, CLI_RUNS "/", strlen(CLI_RUNS "/")) == 0)
        (void)mkdir(CLI_RUNS, 0777); /* where it cannot be, the run cannot */
    ok = ok && cli_can_be_made(t.folder);
    s->data = cli_absolute(s->data, &data_path);
    s->model = cli_absolute(s->model, &model_path);
    ok = ok && train(&t, s, config);
    end(&t);
    s->data = s->given;
    s->model = model;
    free(data_path);
    free(model_path);
    if (!had_runs) /* nor an empty one of runs */
        (void)rmdir(CLI_RUNS);
    return !ok ? CLI_FAILED : cli_is_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

/* ---- the command ---- */

/* A run that gd.fit of the Python package began is told of: what is trained there is its program's. */
static bool is_of_python(const char *folder)
{
    gd_history *history = gd_history_load(folder);
    const char *program = gd_history_option(history, "program");
    if (program)
        fprintf(stderr,
                "gradus train: %s is a run of %s in Python, which goes on with it by run=FOLDER, "
                "resume=True\n",
                folder, program);
    gd_history_release(history);
    gd_error_clear(); /* what is wrong with config.json is told by who reads it next */
    return program != NULL;
}

/* Options that --resume takes beside those that are not kept: how long to train. */
static bool is_of_resuming(const char *name)
{
    return strcmp(name, "resume") == 0 || strcmp(name, "epochs") == 0 ||
           strcmp(name, "patience") == 0;
}

/* The run's options, of which those of the command line are changed. */
static int read_options(cli_settings *s, cli_config *config, const char *path)
{
    const int64_t epochs = s->epochs, patience = s->patience;
    if (cli_config_read(config, path) != CLI_OK)
        return CLI_FAILED;
    if (epochs > 0 && epochs != s->epochs) {
        s->epochs_before = s->epochs;
        s->epochs = epochs;
    }
    if (patience > 0 && patience != s->patience) {
        s->patience_before = s->patience;
        s->patience = patience;
    }
    return CLI_OK;
}

/* --resume goes on with the options of the run. */
static int read_run(cli_settings *s, cli_config *config, const bool *given)
{
    for (int i = 0; i < config->count; i++) {
        const char *name = config->options[i].name;
        if (given[i] && !is_of_resuming(name) &&
            (cli_train_is_kept(name) || !cli_train_key(name))) {
            fprintf(stderr,
                    "gradus train: --%s cannot be changed by --resume, which goes on with what is "
                    "in config.json;\n--epochs and --patience can be\n",
                    name);
            return CLI_USAGE;
        }
    }
    if (s->run || s->data) {
        fprintf(stderr, "gradus train: --resume takes model and data of the run\n");
        return CLI_USAGE;
    }
    char path[CLI_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%.4000s/metrics.jsonl", s->resume);
    if (access(path, F_OK) != 0) {
        fprintf(stderr, "gradus train: %s: there is no run to go on with\n", s->resume);
        return CLI_FAILED;
    }
    snprintf(path, sizeof path, "%.4000s/config.json", s->resume);
    if (access(path, F_OK) != 0) {
        fprintf(stderr,
                "gradus train: %s has no config.json: its training had not begun, and begins anew "
                "with --run\n",
                s->resume);
        return CLI_FAILED;
    }
    if (is_of_python(s->resume))
        return CLI_FAILED;
    return read_options(s, config, path);
}

/* DATA that is a file of options: as --config, which says of TOML that it is not read. */
static bool takes_config(const cli_settings *s)
{
    return s->data && !s->config &&
           (cli_has_ending(s->data, ".json") || cli_has_ending(s->data, ".toml"));
}

int cli_train_read(int argc, char **argv, const cli_command_help *help, cli_config *config,
                   cli_settings *s, bool *given)
{
    int code;
    if (cli_parse_noting(argc, argv, help, config->options, config->count, given, &code))
        return code == CLI_OK ? CLI_HELPED : code;
    bool is_operand = takes_config(s);
    for (int i = 0; is_operand && i < config->count; i++)
        if (given[i] && strcmp(config->options[i].name, "data") == 0) {
            fprintf(stderr,
                    "gradus %s: '%s' is a file of options, and --data gives the data: write "
                    "--config before the file\n",
                    config->command, s->data);
            return CLI_USAGE;
        }
    const char *file = is_operand ? s->data : s->config;
    const cli_texts sets = s->sets;
    if (!file && sets.count == 0)
        return CLI_OK;
    /* The file, --set, and the command line once more. */
    *s = cli_train_defaults();
    if (file)
        code = cli_config_read(config, file);
    for (int i = 0; code == CLI_OK && i < sets.count; i++)
        code = cli_config_set(config, sets.texts[i]);
    const char *data = s->data;
    if (code == CLI_OK)
        (void)cli_parse(argc, argv, help, config->options, config->count, &code);
    if (is_operand)
        s->data = data;
    return code;
}

static int run(cli_settings *s, const cli_config *config)
{
    if (!s->data && access(CLI_DEFAULT_DATA, F_OK) != 0) {
        fprintf(stderr, "gradus train: DATA is needed: a table, a text, or a folder; 'gradus train "
                        "--help' (" CLI_DEFAULT_DATA ", taken without, is not there)\n");
        return CLI_USAGE;
    }
    s->data = s->data ? s->data : CLI_DEFAULT_DATA;
    cli_catch_interrupts();
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is told in the end, after saving */
    int code = cli_train_run(s, config);
    return code == CLI_FAILED ? cli_fail() : code;
}

int cli_train(int argc, char **argv)
{
    cli_settings s = cli_train_defaults();
    cli_option options[CLI_MOST_OPTIONS];
    bool given[CLI_MOST_OPTIONS] = { false };
    cli_config config = { .command = "train",
                          .options = options,
                          .count = cli_train_options(&s, options),
                          .key = cli_train_key,
                          .is_kept = cli_train_is_kept };
    const cli_command_help help = {
        "gradus train [DATA] [OPTION]...",
        "Train a network on a table, a folder of photographs or sounds, a text, arrays, or "
        "handwritten digits (MNIST), found out from the files. The run's folder has the model "
        "(model.json, model.safetensors), the options (config.json), the log (metrics.jsonl), "
        "pictures (curves, predictions) and checkpoints. Ctrl-C finishes the step and saves; a "
        "second one "
        "ends at once."
    };
    int code = cli_train_read(argc, argv, &help, &config, &s, given);
    if (code == CLI_OK && s.resume)
        code = read_run(&s, &config, given);
    if (code == CLI_OK)
        code = cli_train_check("train", &s);
    if (code == CLI_OK)
        code = run(&s, &config);
    cli_config_close(&config);
    return code == CLI_HELPED ? CLI_OK : code;
}
