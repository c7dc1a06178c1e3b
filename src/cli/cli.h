/* cli/cli.h: what the commands of the gradus tool share: the table of commands, options, the
 * terminal, and the network they work on. */
#ifndef GD_CLI_CLI_H
#define GD_CLI_CLI_H

#include <gradus/gradus.h>

enum { CLI_PATH_BYTES = 4096 };

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 /* 128 + SIGINT */ };

/* ---- commands: one file and one row in main.c each ---- */

/* argv[0] is the command's name. Returns an exit code. */
int cli_train(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_quantize(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_search(int argc, char **argv);

/* ---- tokenizer.c ---- */

bool cli_is_gguf(const char *path);
/* The tokeniser that --tokenizer names: a file, "bytes", "characters:TEXTFILE". NULL: the error has been told. */
gd_tokenizer *cli_open_tokenizer(const char *name);
/* That in a model's file: of GGUF; what gradus train saved of a text has its tokens' characters, or says that they are bytes.
 * *own is NULL where there is none; false: the error is recorded. */
bool cli_own_tokenizer(const char *path, gd_tokenizer **own);

/* ---- options.c ---- */

typedef enum cli_kind {
    CLI_FLAG,
    CLI_TEXT,
    CLI_LIST,  /* a text, several with commas between them */
    CLI_TEXTS, /* a text; the option may be given several times */
    CLI_WHOLE,
    CLI_REAL,
    CLI_OPERAND,  /* a word that is no option */
    CLI_OPERANDS, /* all such words that are left; the last row */
    CLI_GROUP     /* no option: a heading over those that follow */
} cli_kind;
enum { CLI_MOST_OPTIONS = 80, CLI_MOST_TRAIN_OPTIONS = 72, CLI_MOST_TEXTS = 64 };

/* Words of the command line. */
typedef struct cli_words {
    int count;
    char *const *words;
} cli_words;

typedef struct cli_texts {
    int count;
    const char *texts[CLI_MOST_TEXTS];
} cli_texts;

/* An option: --name ARGUMENT; an operand, a word that is no option; or, with a dot in its name, a
 * setting of files and of --set alone. */
typedef struct cli_option {
    const char *name;
    const char *argument; /* what --help calls it; NULL for a flag */
    const char *help;
    cli_kind kind;
    void *value;     /* bool *, const char **, int64_t *, double *, for an operand const char **,
                        for operands cli_words *, for texts cli_texts *; holds the default */
    double min, max; /* of numbers */
} cli_option;

typedef struct cli_command_help {
    const char *usage;   /* "gradus train [OPTION]..." */
    const char *summary; /* a sentence or two */
} cli_command_help;

/* Read argv into the options' values. 0: go on; otherwise *exit_code is what to exit with (--help
 * was asked for, or an error told). */
int cli_parse(int argc, char **argv, const cli_command_help *help, const cli_option *options,
              int count, int *exit_code);

/* The same, and given[i] is set where option i is on the command line. */
int cli_parse_noting(int argc, char **argv, const cli_command_help *help, const cli_option *options,
                     int count, bool *given, int *exit_code);

/* The option's value from text, which lives as long as it; false: that is none of its values. */
bool cli_store(const cli_option *option, const char *text);
/* "a whole number from 1 to 10" */
#define CLI_WANTED_BYTES 96
const char *cli_wanted(const cli_option *option, char text[CLI_WANTED_BYTES]);
/* The value as cli_store takes it; NULL: there is none (a number that is NaN, or below its range),
 * or the flag is not set. */
#define CLI_COUNT_TEXT 32
const char *cli_value_text(const cli_option *option, char text[CLI_COUNT_TEXT]);

/* A word that is no option, where none is left to be taken: told. Returns CLI_USAGE. */
int cli_one_too_many(const char *command, const char *word);

/* Words in lines of 80 columns, the first of which has `column` columns already; further ones are
 * indented. */
void cli_print_wrapped(const char *text, int column, int indent);

/* ", did you mean '--epochs'?" of the word among count words, "" where none is near. Static text. */
const char *cli_suggestion(const char *word, const char *prefix, int count,
                           const char *const *words);

/* A message of the library without the name of the function that it may begin with, "gd_fit: ". */
const char *cli_without_function(const char *message);
/* The library's error in words of the shell. */
const char *cli_error_words(void);
/* "gradus: " and the library's error, to stderr. Returns CLI_FAILED. */
int cli_fail(void);

/* ---- config.c: options in files, by names with dots ---- */

/* JSON, objects in objects: {"epochs": 20, "optimizer": {"lr": 0.01}} has "epochs" and "optimizer.lr". */
typedef struct cli_config {
    const char *command; /* that messages begin with: "train" */
    const cli_option *options;
    int count;
    const char *(*key)(const char *name); /* of the option in a file; NULL: it is in none */
    bool (*is_kept)(const char *name);    /* whether cli_config_text has it */
    char **texts;                         /* [text_count], of files */
    int text_count;
} cli_config;

/* Each returns CLI_OK, or what to exit with, the error told. */
int cli_config_read(cli_config *config, const char *path);
/* "optimizer.lr=0.01", a text that lives on. */
int cli_config_set(cli_config *config, const char *assignment);
/* The option with that key; NULL: there is none, which is told. `where` begins the message. */
const cli_option *cli_config_find(const cli_config *config, const char *where, const char *key);
/* All that is kept and has a value, as such a file, to be freed; NULL: the error is recorded. */
char *cli_config_text(const cli_config *config);
gd_status cli_config_write(const cli_config *config, const char *path);
/* Ends the texts of files. */
void cli_config_close(cli_config *config);

/* ---- terminal.c ---- */

/* From here on the first interrupt (SIGINT: Ctrl-C; SIGTERM) is only noted, for a command that ends
 * its work in order; the second ends the program. */
void cli_catch_interrupts(void);
bool cli_is_interrupted(void);

bool cli_is_terminal(void); /* standard output */
bool cli_has_colour(void);  /* a terminal, and NO_COLOR is not set */
bool cli_has_unicode(void); /* the locale is UTF-8 */
int cli_width(void);        /* columns */
/* "\033[1m" and the like where there is colour, else "". */
const char *cli_bold(void);
const char *cli_green(void);
const char *cli_red(void);
const char *cli_plain(void);
/* As a shell reads it as one word: in quotation marks where it needs them. */
#define CLI_WORD_BYTES 4400
const char *cli_shell_word(const char *text, char word[CLI_WORD_BYTES]);
/* 13002 -> "13,002" */
const char *cli_count(int64_t count, char text[CLI_COUNT_TEXT]);
/* Four digits, and all those before the point: 0.01235, 7785, 46970 */
const char *cli_number(double number, char text[CLI_COUNT_TEXT]);
/* 75 -> "1:15" */
const char *cli_duration(double seconds, char text[CLI_COUNT_TEXT]);

/* ---- data.c: what is trained on, found out from its files ---- */

#define CLI_DEFAULT_DATA "data/mnist"
#define CLI_RUNS         "runs" /* the folder of runs that were given no name */

typedef struct cli_data_options {
    const char *path, *target, *ignore; /* ignore: names of columns, with commas between them */
    const char *task;                   /* "classification", "regression"; NULL: found out */
    double validation;                  /* share of the samples */
    int64_t seed, size;                 /* size: height and width of photographs */
} cli_data_options;

typedef struct cli_data cli_data;

/* One row a kind. */
typedef struct cli_data_kind {
    const char *name;   /* in a model's metadata, "task" */
    const char *sample; /* "row", "photograph" */
    bool (*is)(const char *path);
    bool (*open)(cli_data *data, const cli_data_options *options);
    /* Data that a trained model is asked about: without a split, by what its file says. */
    bool (*reopen)(cli_data *data, const char *path, gd_tensor_file *file);
    gd_model *(*propose)(const cli_data *data, uint64_t seed); /* NULL: cli_propose_language */
    int64_t epochs, batch;                                     /* unless the user says otherwise */
    double lr;
    /* the metric of the validation data that says which epoch is best; NULL: the last one counts,
     * since they are what the network is tested with */
    const char *monitor;
    int64_t steps; /* > 0: batches of an epoch, of samples drawn at random */
    bool flip;     /* samples are images whose mirror images are as good */
} cli_data_kind;

#define CLI_MAX_METADATA 8
struct cli_data {
    gd_context *context;
    const cli_data_kind *kind;
    gd_dataset *train, *validation; /* of a trained model's data: validation alone */
    gd_shape input;
    int64_t outputs; /* classes, or numbers: 1 of a table */
    bool regression;
    double mean, deviation; /* of the numbers of arrays, which are learnt standardised */
    gd_table *table;
    gd_table_encoder *encoder;
    int64_t *rows;           /* of the table, whose samples `validation` has */
    char **classes;          /* [outputs] of photographs without folders; else NULL */
    int64_t size;            /* height and width of photographs, frames of sounds */
    int64_t rate;            /* frames a second of sounds */
    gd_tokenizer *tokenizer; /* of text */
    gd_token_data *tokens;
    int64_t length;  /* of sequences of tokens */
    int64_t first;   /* token of the validation */
    char about[512]; /* what it is, for people */
    gd_metadata metadata[CLI_MAX_METADATA];
    int metadata_count;
};

/* What kind of data lies there; NULL: none that is known, which is recorded. */
const cli_data_kind *cli_data_find(const char *path);
/* false: the error is recorded. cli_data_close it all the same. */
bool cli_data_open(cli_data *data, gd_context *context, const cli_data_options *options);
/* Data for a model in a file that gradus train wrote. */
bool cli_data_reopen(cli_data *data, gd_context *context, const char *path, const char *model);
/* The part that the run of that model kept for validation: its data, split as config.json says. */
bool cli_data_open_kept(cli_data *data, gd_context *context, const char *model);
/* What was learnt of the data, an encoder of tables or names of classes, and is another in that file;
 * NULL: none, or the file cannot be read. */
const char *cli_data_changed(const cli_data *d, const char *path);
void cli_data_close(cli_data *data);
/* Keep a string for the model's file. The key lives longer than the data; the value is copied. */
bool cli_data_keep(cli_data *data, const char *key, const char *value);
/* Kinds that have a file of their own. */
extern const cli_data_kind cli_table_kind, cli_image_kind, cli_text_kind, cli_array_kind,
    cli_audio_kind;
/* A small GPT for the tokens. */
gd_language_model *cli_propose_language(const cli_data *data, uint64_t seed);
/* A whole file with a 0 byte behind it, to be freed; NULL: it cannot be read, which is recorded. */
char *cli_read_file(const char *path, size_t *size);
/* Keys of a language model's file: the characters that are its tokens; or "bytes". */
#define CLI_CHARACTERS "characters"
#define CLI_TOKENIZER  "tokenizer"
/* By its ending. */
bool cli_is_photograph(const char *path);
/* A folder with folders of files that `is` takes. */
bool cli_has_classes_of(const char *path, bool (*is)(const char *path));
/* One of these files. */
bool cli_find_in_classes(const char *path, bool (*is)(const char *path),
                         char found[CLI_PATH_BYTES]);
/* By its ending; as the model takes it, [1, 1, size], NULL: an error. */
bool cli_is_sound(const char *path);
gd_tensor *cli_read_sound(const cli_data *data, const char *path);
/* Names of classes, to the model's file and from it. false: the error is recorded. */
bool cli_data_keep_classes(cli_data *data);
bool cli_data_take_kept_classes(cli_data *data, gd_tensor_file *file);
/* Whether the classes of the data, the names of its folders, are those. */
bool cli_data_has_kept_classes(const cli_data *data);
/* Of one class alone, or of one without samples to train with, nothing is learnt: false, which is recorded. */
bool cli_data_has_all_classes(const cli_data *data);
/* The field's class names, and outputs, from its second field. */
void cli_data_take_classes(cli_data *data);
/* A number that the model gives, in the target's unit. */
double cli_data_decode(const cli_data *data, double value);
const char *cli_data_class(const cli_data *data, int64_t index, char number[CLI_COUNT_TEXT]);
/* Whether its samples have as many numbers as the model takes; false: no, which is recorded. */
bool cli_data_fits(gd_model *model, const cli_data *data);
/* x as the model takes it: of the model's shape, f32. */
gd_tensor *cli_model_input(gd_model *model, gd_tensor *x);
/* What the model makes of cli_model_input(x), in f32 with any --precision. */
gd_tensor *cli_model_output(gd_model *model, gd_tensor *x);
/* It has that ending, or that and ".gz". */
bool cli_has_ending(const char *path, const char *ending);

/* ---- compare.c ---- */

/* -1: less of that metric is better; 1: more is; 0: neither is known. The last part of its name tells. */
int cli_metric_direction(const char *name);
/* A chart for the terminal, in at most so many columns, to standard output. Returns an exit code. */
int cli_print_chart(const gd_chart *chart, int most);

/* ---- network.c ---- */

/* What the commands work on. */
typedef struct cli_network {
    gd_context *context;
    gd_model *model;
    gd_language_model *language; /* instead of a model, where cli_compiled_open finds one */
    char path[CLI_PATH_BYTES];   /* of the file that the model is from; "" for JSON */
} cli_network;

/* The row of --device. */
#define CLI_DEVICE_OPTION(name)                                                            \
    {                                                                                      \
        "device", "NAME", "what computes, of those that gradus info lists (default: cpu)", \
            CLI_TEXT, name, 0, 0                                                           \
    }
#define CLI_PRECISION_OPTION(name)                                                              \
    {                                                                                           \
        "precision", "NAME", "compute products and convolutions in bf16 or f16 (default: f32)", \
            CLI_TEXT, name, 0, 0                                                                \
    }
/* --precision: f32 (NULL, too), bf16 or f16. false: it is another, which is told. */
bool cli_precision(const char *command, const char *word, gd_dtype *precision);
/* NULL: the error is recorded. device: NULL for the CPU. precision: of a gd_autocast that does not end; GD_F32: none. */
gd_context *cli_open_device(const char *device, gd_dtype precision, int64_t threads);

typedef struct cli_network_options {
    const char *model;   /* a run folder, a file that gradus train saved, or JSON; "mnist_mlp": the
                            network of examples/models/mnist_mlp.json; NULL: that, too */
    const char *weights; /* a safetensors file; NULL: the model's, or as initialised */
    const char *device;  /* NULL: cpu */
    gd_dtype precision;  /* of cli_open_device */
    int64_t threads;     /* -1: as gd_open chooses */
    int64_t seed;
} cli_network_options;

/* Whether it is a safetensors file with a model in it, as gradus train saves one. */
bool cli_is_model_file(const char *path);
/* The same of a language model. */
bool cli_is_language_file(const char *path);
/* false: a file of parameters that does not say what network they are of, which is recorded. */
bool cli_has_network(const char *path);
/* The network of examples/models/mnist_mlp.json. */
gd_model *cli_mnist_model(gd_context *context, uint64_t seed);
/* false: the error is recorded. cli_network_close it all the same. */
bool cli_network_open(cli_network *network, const cli_network_options *options);
/* The same with parameters in any case: where no model is given, the newest run's. */
bool cli_trained_open(cli_network *network, const cli_network_options *options);
void cli_network_close(cli_network *network);
/* The words MODEL [DATA]... as they were read: the model may stand last, too; where none is, all are
 * data, and the model is that of the newest run. */
void cli_sort_operands(const char **model, cli_words *data);
/* A run folder is its model.safetensors. */
void cli_find_model(const char *given, char path[CLI_PATH_BYTES]);

/* The file of the trained model that is meant: that of a folder, or of the newest run where none is given,
 * which is told. false: there is none, which is recorded. */
bool cli_find_trained(const char *given, char path[CLI_PATH_BYTES]);
/* The same of a language model. false: it is another network, or parameters of an unknown one, too. */
bool cli_find_language(const char *given, char path[CLI_PATH_BYTES]);
/* Whether it is a language model, by loading it; false: what it is not is recorded. */
bool cli_loads_language(const char *path);

/* ---- eval_text.c ---- */

typedef struct cli_eval_text_options {
    const char *tokenizer; /* --tokenizer, NULL: that in the file */
    const char
        *cache; /* the dtype of keys and values that are read from a cache; NULL: there is none */
    const char *device;
    gd_dtype precision;
    int64_t threads;
    bool quantized; /* as gradus generate has it */
} cli_eval_text_options;
/* gradus eval of a language model's file; path: a text, NULL: what the run kept. Returns an exit code. */
int cli_eval_text(const char *model, const char *path, const cli_eval_text_options *options);
/* --cache: f32, f16 or int8. false: it is another, which is told. */
bool cli_cache_dtype(const char *command, const char *word, gd_dtype *dtype);

/* ---- compiled.c ---- */

/* The network compiled for one batch size, and arguments to call it with: noise or tokens, and
 * targets 0. */
typedef struct cli_compiled {
    cli_network network;
    gd_optimizer *optimizer; /* NULL: inference */
    gd_function *function;
    gd_tensor *inputs[GD_MODEL_MAX_INPUTS + 1];
    int input_count;
} cli_compiled;

typedef struct cli_compiled_options {
    cli_network_options network; /* its model may be a language model's file, too */
    int64_t batch;
    int64_t length;        /* of a language model: tokens of a sequence; 0: the most it takes */
    bool train;            /* forward, backward and update, else inference */
    bool frozen;           /* gd_compile_options.frozen */
    size_t memory_limit;   /* of the plan; SIZE_MAX: none */
    const char *optimizer; /* of gd_optimizer_create */
    double lr;             /* NaN: the optimizer's */
} cli_compiled_options;

/* Parameters of either kind of network. */
gd_module *cli_compiled_module(const cli_compiled *compiled);
/* Opens the network and makes the plan, without running it. Returns CLI_OK or, with what is wrong
 * written to stderr, the exit code. cli_compiled_close it all the same. */
int cli_compiled_open(cli_compiled *compiled, const cli_compiled_options *options);
void cli_compiled_close(cli_compiled *compiled);

#endif
