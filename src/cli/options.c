/* cli/options.c: from rows that describe options to parsing and to --help. Start at cli_parse(). */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 32, HELP = 'h', FIRST = 256 };

static bool is_operand(const cli_option *o)
{
    return o->kind == CLI_OPERAND || o->kind == CLI_OPERANDS;
}

static void print_help(const cli_command_help *help, const cli_option *options, int count)
{
    printf("Usage: %s\n\n%s\n\nOptions:\n", help->usage, help->summary);
    for (int i = 0; i < count; i++) {
        char left[64];
        if (is_operand(&options[i])) {
            printf("  %-20s %s\n", options[i].name, options[i].help);
            continue;
        }
        snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].argument ? " " : "",
                 options[i].argument ? options[i].argument : "");
        printf("  %-20s %s\n", left, options[i].help);
    }
    printf("  %-20s %s\n", "--help", "this text");
}

static int complain(const char *command, const cli_option *o, const char *given)
{
    if (o->kind == CLI_WHOLE)
        fprintf(stderr, "gradus %s: --%s takes a whole number from %lld to %lld, not '%s'\n",
                command, o->name, (long long)o->min, (long long)o->max, given);
    else
        fprintf(stderr, "gradus %s: --%s takes a number from %g to %g, not '%s'\n", command,
                o->name, o->min, o->max, given);
    return CLI_USAGE;
}

/* Put the option's argument where it belongs. */
static int store(const char *command, const cli_option *o, const char *given)
{
    if (o->kind == CLI_FLAG) {
        *(bool *)o->value = true;
        return CLI_OK;
    }
    if (o->kind == CLI_TEXT || o->kind == CLI_OPERAND) {
        *(const char **)o->value = given;
        return CLI_OK;
    }
    char *end;
    errno = 0;
    if (o->kind == CLI_WHOLE) {
        long long number = strtoll(given, &end, 10);
        if (end == given || *end || errno || (double)number < o->min || (double)number > o->max)
            return complain(command, o, given);
        *(int64_t *)o->value = number;
        return CLI_OK;
    }
    double number = strtod(given, &end);
    if (end == given || *end || !isfinite(number) || number < o->min || number > o->max)
        return complain(command, o, given);
    *(double *)o->value = number;
    return CLI_OK;
}

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
    const char *names[MOST_OPTIONS];
    int named = 0;
    for (int i = 0; i < count && named < MOST_OPTIONS; i++)
        if (options[i].kind != CLI_OPERAND)
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

/* ---- config.json of a run ---- */

/* The value of an option as text; NULL: there is none, and it has its default. */
static const char *value_text(const cli_option *o, char text[CLI_COUNT_TEXT])
{
    if (o->kind == CLI_TEXT)
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

gd_status cli_write_config(gd_run_log *log, const cli_option *options, int count, cli_kept_fn kept)
{
    const char *names[MOST_OPTIONS], *values[MOST_OPTIONS];
    char texts[MOST_OPTIONS][CLI_COUNT_TEXT];
    int named = 0;
    for (int i = 0; i < count && named < MOST_OPTIONS; i++) {
        values[named] = kept(options[i].name) ? value_text(&options[i], texts[named]) : NULL;
        names[named] = options[i].name;
        named += values[named] != NULL;
    }
    return gd_run_log_hyperparameters(log, named, names, values);
}

int cli_read_config(const char *command, const gd_history *history, const cli_option *options,
                    int count, cli_kept_fn kept)
{
    for (int64_t k = 0; k < gd_history_option_count(history); k++) {
        const char *name = gd_history_option_name(history, k);
        const char *text = gd_history_option(history, name);
        int found = -1;
        for (int i = 0; i < count; i++)
            if (options[i].kind != CLI_OPERAND && strcmp(options[i].name, name) == 0)
                found = i;
        if (found < 0 || !kept(name)) {
            const char *names[MOST_OPTIONS];
            for (int i = 0; i < count && i < MOST_OPTIONS; i++)
                names[i] = options[i].name;
            fprintf(stderr,
                    "gradus %s: config.json of the run has the key \"%s\", which is no option%s\n",
                    command, name, cli_suggestion(name, "", count, names));
            return CLI_FAILED;
        }
        if (options[found].kind == CLI_FLAG)
            *(bool *)options[found].value = strcmp(text, "true") == 0;
        else if (store(command, &options[found], text) != CLI_OK)
            return CLI_FAILED;
    }
    return CLI_OK;
}

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

int cli_parse(int argc, char **argv, const cli_command_help *help, const cli_option *options,
              int count, int *exit_code)
{
    struct option rows[MOST_OPTIONS + 2] = { { "help", no_argument, NULL, HELP } };
    for (int i = 0, row = 1; i < count && i < MOST_OPTIONS; i++)
        if (!is_operand(&options[i]))
            rows[row++] =
                (struct option){ options[i].name,
                                 options[i].kind == CLI_FLAG ? no_argument : required_argument,
                                 NULL, FIRST + i };
    /* The one letter there is: -o for --output. */
    int output = -1;
    for (int i = 0; i < count; i++)
        output = strcmp(options[i].name, "output") == 0 ? i : output;
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
        *exit_code = found >= FIRST
                         ? store(argv[0], &options[found - FIRST], optarg)
                         : complain_word(argv[0], found, argv[optind - 1], options, count);
    }
    if (*exit_code == CLI_OK)
        *exit_code = store_operands(argc, argv, options, count);
    return *exit_code != CLI_OK;
}

int cli_fail(void)
{
    const char *message = gd_error_message();
    fprintf(stderr, "gradus: %s\n",
            *message ? message : "something failed without a word; please report it");
    return CLI_FAILED;
}
