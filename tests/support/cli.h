/* tests/support/cli.h: the gradus tool as a person runs it, in a folder of the test's own: what it prints,
 * where, and its exit code. For programs that end in cmocka_run_group_tests(tests, make_folder,
 * remove_folder); include after cmocka.h, where GD_TOOL is defined. */
#ifndef GD_TESTS_CLI_H
#define GD_TESTS_CLI_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Output and errors of a command, and its exit code. */
typedef struct result {
    char out[65536], err[8192];
    int code;
} result;

static char folder[256]; /* of this run: weights, errors */

static inline void read_stream(FILE *from, char *text, size_t size)
{
    size_t length = fread(text, 1, size - 1, from);
    text[length] = '\0';
}

/* Run `gradus ARGUMENTS` from the test's folder, with output to a pipe. */
static inline const result *run(const char *format, ...)
{
    static result r;
    char arguments[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd '%s' && '%s' %s 2>errors", folder, GD_TOOL, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    read_stream(pipe, r.out, sizeof r.out);
    int status = pclose(pipe);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    char path[512];
    snprintf(path, sizeof path, "%s/errors", folder);
    FILE *errors = fopen(path, "r");
    assert_non_null(errors);
    read_stream(errors, r.err, sizeof r.err);
    fclose(errors);
    return &r;
}

static inline void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        print_error("expected \"%s\" in:\n%s\n", words, text);
    assert_non_null(strstr(text, words));
}

/* The same on a terminal of 80 columns with colours, to which both output and errors go. */
static inline const result *run_on_terminal(const char *format, ...)
{
    static result r;
    char arguments[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd '%s' && exec '%s' %s", folder, GD_TOOL, arguments);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    const struct winsize size = { .ws_row = 24, .ws_col = 80 };
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int other = open(ptsname(terminal), O_RDWR);
        (void)ioctl(other, TIOCSWINSZ, &size);
        for (int i = 0; i < 3; i++)
            (void)dup2(other, i);
        close(other);
        close(terminal); /* else its reader would wait for it */
        setenv("TERM", "xterm-256color", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        unsetenv("NO_COLOR");
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    size_t length = 0;
    for (ssize_t n; (n = read(terminal, r.out + length, sizeof r.out - 1 - length)) > 0;)
        length += (size_t)n; /* Linux ends it with EIO */
    r.out[length] = '\0';
    close(terminal);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
    return &r;
}

/* Both in the test's folder. */
static inline void assert_same_file(const char *a, const char *b)
{
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && cmp '%s' '%s'", folder, a, b);
    assert_int_equal(system(command), 0);
}

/* A usage error or a failure: the words on standard error, nothing on standard output. */
static inline void assert_fails(const result *r, int code, const char *words)
{
    assert_has(r->err, words);
    assert_string_equal(r->out, "");
    assert_int_equal(r->code, code);
}

/* No line has more than 80 characters, but for the first, which names the data. */
static inline void assert_narrow(const char *out)
{
    for (const char *line = strchr(out, '\n'), *end; line && line[1]; line = end) {
        end = strchr(line + 1, '\n');
        if (!end || end - line > 81)
            print_error("not one line of 80 columns: %.100s\n", line + 1);
        assert_non_null(end);
        assert_in_range(end - line, 1, 81);
    }
}

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/cli_XXXXXX", GD_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

/* A build without zlib cannot read the data, one without jansson cannot save. */
static inline void need(const char *library)
{
#ifndef GD_HAVE_ZLIB
    if (strcmp(library, "zlib") == 0)
        skip();
#endif
#ifndef GD_HAVE_JANSSON
    if (strcmp(library, "jansson") == 0)
        skip();
#endif
    (void)library;
}

static inline void write_text(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static inline void assert_holds(const char *name, const char *words)
{
    char path[512], text[4096] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    read_stream(file, text, sizeof text);
    fclose(file);
    assert_has(text, words);
}

/* Nothing is left in the test's folder whose name has these words. */
static inline bool is_there(const char *pattern)
{
    char command[1024];
    snprintf(command, sizeof command, "cd '%s' && ls | grep -q -- '%s'", folder, pattern);
    return system(command) == 0;
}

/* The number after `words` in text. */
static inline double number_after(const char *text, const char *words)
{
    assert_has(text, words);
    return strtod(strstr(text, words) + strlen(words), NULL);
}

#endif
