/* cli/terminal.c: what standard output can show, numbers as people write them, and interrupts. */
#include "cli.h"

#include <langinfo.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void cli_catch_interrupts(void)
{
    struct sigaction action = { .sa_handler = note_interrupt,
                                .sa_flags = (int)SA_RESETHAND | SA_RESTART };
    const int signals[] = { SIGINT, SIGTERM };
    for (int i = 0; i < 2; i++) {
        struct sigaction before;
        bool ignored = sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored) /* as for a program in the background of a script */
            (void)sigaction(signals[i], &action, NULL);
    }
}

bool cli_is_interrupted(void)
{
    return interrupted != 0;
}

bool cli_is_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

bool cli_has_colour(void)
{
    const char *no_colour = getenv("NO_COLOR"); /* https://no-color.org */
    const char *terminal = getenv("TERM");
    return cli_is_terminal() && !(no_colour && *no_colour) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

bool cli_has_unicode(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

int cli_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

const char *cli_bold(void)
{
    return cli_has_colour() ? "\033[1m" : "";
}

const char *cli_green(void)
{
    return cli_has_colour() ? "\033[32m" : "";
}

const char *cli_red(void)
{
    return cli_has_colour() ? "\033[31m" : "";
}

const char *cli_plain(void)
{
    return cli_has_colour() ? "\033[0m" : "";
}

const char *cli_shell_word(const char *text, char word[CLI_WORD_BYTES])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./-+=:,@%";
    size_t length = 0;
    bool quoted = !*text || text[strspn(text, plain)];
    if (quoted)
        word[length++] = '\'';
    for (; *text && length < CLI_WORD_BYTES - 8; text++) {
        if (*text == '\'') /* ends the quotation, stands by itself, and begins it anew */
            length += (size_t)snprintf(word + length, 4, "'\\'");
        word[length++] = *text;
    }
    if (quoted)
        word[length++] = '\'';
    word[length] = '\0';
    return word;
}

const char *cli_count(int64_t count, char text[CLI_COUNT_TEXT])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

const char *cli_duration(double seconds, char text[CLI_COUNT_TEXT])
{
    long whole = isfinite(seconds) && seconds < 1e8 ? lround(seconds) : 0;
    if (whole >= 3600)
        snprintf(text, CLI_COUNT_TEXT, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(text, CLI_COUNT_TEXT, "%ld:%02ld", whole / 60, whole % 60);
    return text;
}

const char *cli_number(double number, char text[CLI_COUNT_TEXT])
{
    snprintf(text, CLI_COUNT_TEXT, fabs(number) >= 1e4 && fabs(number) < 1e15 ? "%.0f" : "%.4g",
             number);
    return text;
}
