/* cli/main.c: the gradus tool. One row a command; start at main(). The tool stands on the public
 * headers alone. */
#include "cli.h"

#include <locale.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    { "train", "train a network on a table, photographs, sounds, a text or arrays", cli_train },
    { "search", "try values of options in many trainings, and name the best", cli_search },
    { "predict", "what a trained network makes of new data", cli_predict },
    { "eval", "how well a trained network does on data", cli_eval },
    { "generate", "continue a text with a language model", cli_generate },
    { "quantize", "write a language model in fewer bits, as a GGUF file", cli_quantize },
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

static int unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i].name;
    const char *meant = cli_suggestion(name, "", COMMAND_COUNT, names);
    fprintf(stderr, "gradus: there is no command '%s'%s%s'gradus --help' lists them\n", name, meant,
            *meant ? " " : "; ");
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

/* words[0] is the command's name. */
static int run_command(int count, char **words)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(words[0], commands[i].name) == 0)
            return finish(commands[i].run(count, words));
    return unknown_command(words[0]);
}

/* What the library warns of, as files that it leaves out. Of very many such messages the first are enough. */
static void warn(void *user, gd_log_level level, const char *message)
{
    enum { MOST = 10 };
    atomic_int *count = user;
    const int before = atomic_fetch_add(count, 1);
    (void)level;
    if (before < MOST)
        fprintf(stderr, "gradus: warning: %s\n", cli_without_function(message));
    else if (before == MOST)
        fprintf(stderr, "gradus: further warnings are not shown\n");
}

int main(int argc, char **argv)
{
    static atomic_int warnings;
    setlocale(LC_CTYPE, "");
    gd_set_log_callback(warn, &warnings, GD_LOG_WARNING);
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 && argc > 2) /* of a command */
        return run_command(2, (char *[]){ argv[2], "--help", NULL });
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return finish(CLI_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("gradus %s\n", gd_version());
        return finish(CLI_OK);
    }
    return run_command(argc - 1, argv + 1);
}
