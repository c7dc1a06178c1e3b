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

/* What getopt_long found wrong: `word` is what was given. */
static int complain_word(const char *command, int problem, const char *word)
{
    if (problem == ':')
        fprintf(stderr, "gradus %s: %s needs an argument\n", command, word);
    else
        fprintf(stderr, "gradus %s: there is no option '%s'; 'gradus %s --help' lists them\n",
                command, word, command);
    return CLI_USAGE;
}

/* The words that are no options, in the order of the operands' rows. */
static int store_operands(int argc, char **argv, const cli_option *options, int count)
{
    for (int i = 0; i < count && optind < argc; i++) {
        if (options[i].kind == CLI_OPERAND)
            (void)store(argv[0], &options[i], argv[optind++]);
        else if (options[i].kind == CLI_OPERANDS) {
            *(cli_words *)options[i].value = (cli_words){ argc - optind, argv + optind };
            optind = argc;
        }
    }
    if (optind == argc)
        return CLI_OK;
    fprintf(stderr, "gradus %s: '%s' is not an option; 'gradus %s --help' lists them\n", argv[0],
            argv[optind], argv[0]);
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
        *exit_code = found >= FIRST ? store(argv[0], &options[found - FIRST], optarg)
                                    : complain_word(argv[0], found, argv[optind - 1]);
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
