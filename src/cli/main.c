/* cli/main.c: the gradus tool. One row a command; start at main(). The tool stands on the public
 * headers alone. */
#include "cli.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    { "train", "train a network on MNIST and save it", cli_train },
    { "predict", "draw test digits, with the prediction and its probability", cli_predict },
    { "eval", "accuracy and confusion matrix on the test digits", cli_eval },
    { "generate", "continue a text with a language model", cli_generate },
    { "plan", "show what a compiled network is: kernels, memory, times", cli_plan },
    { "export", "write a network as one C file", cli_export },
    { "compare", "show runs side by side: metrics, options, curves", cli_compare },
    { "info", "version, instruction set, threads, caches, devices", cli_info },
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fprintf(out, "Usage: gradus COMMAND [OPTION]...\n\n"
                 "Gradus is a deep-learning engine in C. Commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n'gradus COMMAND --help' tells the options of a command; 'gradus --version' the "
                 "version.\n");
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

static int unknown_command(const char *name)
{
    const command *nearest = &commands[0];
    for (int i = 1; i < COMMAND_COUNT; i++)
        if (distance(name, commands[i].name) < distance(name, nearest->name))
            nearest = &commands[i];
    fprintf(stderr, "gradus: there is no command '%s'.", name);
    if (distance(name, nearest->name) <= 2)
        fprintf(stderr, " Did you mean '%s'?", nearest->name);
    fprintf(stderr, " 'gradus --help' lists them.\n");
    return CLI_USAGE;
}

/* A command whose output is lost has failed. */
static int finish(int code)
{
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (written || code != CLI_OK)
        return code;
    fprintf(stderr, "gradus: standard output cannot be written\n");
    return CLI_FAILED;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("gradus %s\n", gd_version());
        return CLI_OK;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));
    return unknown_command(name);
}
