/* cli/options.c: from rows that describe options to parsing and to --help. Start at cli_parse(). */
#include "cli.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP = 'h', FIRST = 256, COLUMNS = 80, LEFT = 25 };

static bool is_operand(const cli_option *o)
{
    return o->kind == CLI_OPERAND || o->kind == CLI_OPERANDS;
}

/* A row with a dot in its name is a setting of files and of --set alone. */
static bool is_setting(const cli_option *o)
{
    return strchr(o->name, '.') != NULL;
}

static bool is_on_command_line(const cli_option *o)
{
    return o->kind != CLI_GROUP && !is_operand(o) && !is_setting(o);
}

/* ---- help ---- */

void cli_print_wrapped(const char *text, int column, int indent)
{
    while (*(text += strspn(text, " \n"))) {
        int length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", length, text);
        text += length;
    }
    printf("\n");
}

static void print_row(const cli_option *o)
{
    bool option = is_on_command_line(o);
    int column = printf("  %s%s%s%s", option ? "--" : "", o->name, o->argument ? " " : "",
                        o->argument ? o->argument : "");
    if (column >= LEFT)
        column = printf("\n") - 1;
    printf("%*s", LEFT - column, "");
    cli_print_wrapped(o->help, LEFT, LEFT);
}

static void print_help(const cli_command_help *help, const cli_option *options, int count)
{
    printf("Usage: %s\n\n", help->usage);
    cli_print_wrapped(help->summary, 0, 0);
    if (count == 0 || options[0].kind != CLI_GROUP)
        printf("\nOptions:\n");
    for (int i = 0; i < count; i++) {
        if (options[i].kind == CLI_GROUP)
            printf("\n%s:\n", options[i].name);
        else
            print_row(&options[i]);
    }
    printf("  --help                 this text\n");
}

/* ---- values ---- */

const char *cli_wanted(const cli_option *o, char text[CLI_WANTED_BYTES])
{
    if (o->kind == CLI_FLAG)
        snprintf(text, CLI_WANTED_BYTES, "true or false");
    else if (o->kind == CLI_WHOLE)
        snprintf(text, CLI_WANTED_BYTES, "a whole number from %lld to %lld", (long long)o->min,
                 (long long)o->max);
    else if (o->kind == CLI_REAL)
        snprintf(text, CLI_WANTED_BYTES, "a number from %g to %g", o->min, o->max);
    else
        snprintf(text, CLI_WANTED_BYTES, "a text");
    return text;
}

bool cli_store(const cli_option *o, const char *given)
{
    char *end;
    errno = 0;
    if (o->kind == CLI_FLAG) {
        bool is_true = strcmp(given, "true") == 0;
        *(bool *)o->value = is_true;
        return is_true || strcmp(given, "false") == 0;
    }
    if (o->kind == CLI_WHOLE) {
        long long number = strtoll(given, &end, 10);
        if (end == given || *end || errno || (double)number < o->min || (double)number > o->max)
            return false;
        *(int64_t *)o->value = number;
        return true;
    }
    if (o->kind == CLI_REAL) {
        double number = strtod(given, &end);
        if (end == given || *end || !isfinite(number) || number < o->min || number > o->max)
            return false;
        *(double *)o->value = number;
        return true;
    }
    if (o->kind == CLI_TEXTS) {
        cli_texts *list = o->value;
        if (list->count == CLI_MOST_TEXTS)
            return false;
        list->texts[list->count++] = given;
        return true;
    }
    *(const char **)o->value = given;
    return true;
}

/* Put the option's argument where it belongs. */
static int store(const char *command, const cli_option *o, const char *given)
{
    char wanted[CLI_WANTED_BYTES];
    if (cli_store(o, o->kind == CLI_FLAG ? "true" : given))
        return CLI_OK;
    if (o->kind == CLI_TEXTS)
        fprintf(stderr, "gradus %s: --%s is given more than %d times\n", command, o->name,
                (int)CLI_MOST_TEXTS);
    else
        fprintf(stderr, "gradus %s: --%s takes %s, not '%s'\n", command, o->name,
                cli_wanted(o, wanted), given);
    return CLI_USAGE;
}

const char *cli_value_text(const cli_option *o, char text[CLI_COUNT_TEXT])
{
    if (o->kind == CLI_TEXT || o->kind == CLI_LIST)
        return *(const char **)o->value;
    if (o->kind == CLI_FLAG)
        return *(bool *)o->value ? "true" : NULL;
    if (o->kind == CLI_WHOLE && (double)*(int64_t *)o->value >= o->min)
        snprintf(text, CLI_COUNT_TEXT, "%lld", (long long)*(int64_t *)o->value);
    else if (o->kind == CLI_REAL && !isnan(*(double *)o->value))
        snprintf(text, CLI_COUNT_TEXT, "%.17g", *(double *)o->value);
    else
        return NULL;
    return text;
}

/* ---- mistakes ---- */

/* Edits (one character inserted, deleted or replaced) between two words: Levenshtein's distance. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t length = strlen(b);
    int row[LONGEST + 1];
    if (length > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= length; j++)
        row[j] = (int)j;
    for (; *a; a++) {
        int corner = row[0];
        row[0]++;
        for (size_t j = 1; j <= length; j++) {
            int replaced = corner + (*a != b[j - 1]);
            int shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            corner = row[j];
            row[j] = replaced < shorter + 1 ? replaced : shorter + 1;
        }
    }
    return row[length];
}

const char *cli_suggestion(const char *word, const char *prefix, int count,
                           const char *const *words)
{
    static char text[96];
    const char *nearest = NULL;
    for (int i = 0; i < count; i++)
        if (!nearest || distance(word, words[i]) < distance(word, nearest))
            nearest = words[i];
    text[0] = '\0';
    if (nearest && distance(word, nearest) <= (strlen(word) < 5 ? 1 : 2))
        snprintf(text, sizeof text, "; did you mean '%s%s'?", prefix, nearest);
    return text;
}

/* What getopt_long found wrong: `word` is what was given. */
static int complain_word(const char *command, int problem, const char *word,
                         const cli_option *options, int count)
{
    const char *names[CLI_MOST_OPTIONS];
    int named = 0;
    for (int i = 0; i < count; i++)
        if (is_on_command_line(&options[i]))
            names[named++] = options[i].name;
    if (problem == ':')
        fprintf(stderr, "gradus %s: %s needs an argument\n", command, word);
    else {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + strspn(word, "-"), "="),
                 word + strspn(word, "-"));
        const char *meant = cli_suggestion(name, "--", named, names);
        fprintf(stderr, "gradus %s: there is no option '%s'%s%s'gradus %s --help' lists them\n",
                command, word, meant, *meant ? " " : "; ", command);
    }
    return CLI_USAGE;
}

/* ---- parsing ---- */

/* The words that are no options, in the order of the operands' rows. */
static int store_operands(int argc, char **argv, const cli_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        if (options[i].kind == CLI_OPERAND && optind < argc)
            (void)store(argv[0], &options[i], argv[optind++]);
        else if (options[i].kind == CLI_OPERANDS) {
            *(cli_words *)options[i].value = (cli_words){ argc - optind, argv + optind };
            optind = argc;
        }
    }
    return optind == argc ? CLI_OK : cli_one_too_many(argv[0], argv[optind]);
}

int cli_one_too_many(const char *command, const char *word)
{
    fprintf(stderr,
            "gradus %s: '%s' is one word too many; 'gradus %s --help' tells what it takes\n",
            command, word, command);
    return CLI_USAGE;
}

int cli_parse_noting(int argc, char **argv, const cli_command_help *help, const cli_option *options,
                     int count, bool *given, int *exit_code)
{
    struct option rows[CLI_MOST_OPTIONS + 2] = { { "help", no_argument, NULL, HELP } };
    assert(count <= CLI_MOST_OPTIONS);
    for (int i = 0, row = 1; i < count; i++)
        if (is_on_command_line(&options[i]))
            rows[row++] =
                (struct option){ options[i].name,
                                 options[i].kind == CLI_FLAG ? no_argument : required_argument,
                                 NULL, FIRST + i };
    /* The one letter there is: -o for --output. */
    int output = -1;
    for (int i = 0; i < count; i++)
        output = strcmp(options[i].name, "output") == 0 ? i : output;
    for (int i = 0; i < count; i++)
        if (options[i].kind == CLI_TEXTS)
            *(cli_texts *)options[i].value = (cli_texts){ 0 };
    *exit_code = CLI_OK;
    opterr = 0;
    optind = 1;
    for (int found;
         *exit_code == CLI_OK &&
         (found = getopt_long(argc, argv, output < 0 ? ":h" : ":ho:", rows, NULL)) != -1;) {
        if (found == 'o')
            found = FIRST + output;
        if (found == HELP) {
            print_help(help, options, count);
            return 1;
        }
        if (given && found >= FIRST)
            given[found - FIRST] = true;
        *exit_code = found >= FIRST
                         ? store(argv[0], &options[found - FIRST], optarg)
                         : complain_word(argv[0], found, argv[optind - 1], options, count);
    }
    if (*exit_code == CLI_OK)
        *exit_code = store_operands(argc, argv, options, count);
    return *exit_code != CLI_OK;
}

int cli_parse(int argc, char **argv, const cli_command_help *help, const cli_option *options,
              int count, int *exit_code)
{
    return cli_parse_noting(argc, argv, help, options, count, NULL, exit_code);
}

const char *cli_without_function(const char *message)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strncmp(message, "gd_", 3) == 0 ? strspn(message, letters) : 0;
    return length > 0 && strncmp(message + length, ": ", 2) == 0 ? message + length + 2 : message;
}

const char *cli_error_words(void)
{
    static char text[4 * CLI_PATH_BYTES];
    static const char ours[] = "with .blame = true", theirs[] = "with --blame";
    const char *message = cli_without_function(gd_error_message()), *at = strstr(message, ours);
    if (!*message)
        return "something failed without a word; please report it";
    if (!at) /* a member of an option of C is an option of the shell */
        return message;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - message), message, theirs,
             at + strlen(ours));
    return text;
}

int cli_fail(void)
{
    fprintf(stderr, "gradus: %s\n", cli_error_words());
    return CLI_FAILED;
}
