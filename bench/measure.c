/* bench/measure.c: see measure.h. */
#include "measure.h"

#include <gradus/base.h>

#include <ctype.h>
#include <dlfcn.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void gd_bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

/* ---- timing ---- */

static int compare(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

double gd_bench_median(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    return count > 0 ? samples[count / 2] : (double)NAN;
}

double gd_bench_now(int threads)
{
    struct timespec time;
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double gd_bench_seconds(void (*run)(void *user), void *user, int chunk, int threads, double seconds)
{
    enum { LEAST = 5, MOST = 100000 };
    static double samples[MOST];
    double end = gd_seconds() + 0.1 * seconds;
    do
        run(user);
    while (gd_seconds() < end);
    size_t count = 0;
    end = gd_seconds() + seconds;
    for (double start = gd_bench_now(threads);
         count < MOST && (count < LEAST || gd_seconds() < end); count++) {
        for (int i = 0; i < chunk; i++)
            run(user);
        double stop = gd_bench_now(threads);
        samples[count] = (stop - start) / chunk;
        start = stop;
    }
    return gd_bench_median(samples, count);
}

/* ---- rows ---- */

static bool all_verified = true;

static void print_number(const char *name, double x)
{
    if (isfinite(x))
        printf("\"%s\":%.5g,", name, x);
    else
        printf("\"%s\":null,", name);
}

gd_bench_row gd_bench_make_row(const char *suite, const char *name, int threads, const char *metric,
                               double ours, bool verified)
{
    return (gd_bench_row){ .suite = suite,
                           .name = name,
                           .threads = threads,
                           .metric = metric,
                           .ours = ours,
                           .peer = NAN,
                           .bound_fraction = NAN,
                           .verified = verified };
}

void gd_bench_print_row(const gd_bench_row *row)
{
    bool has_peer = row->peer_name != NULL && isfinite(row->peer);
    double ratio = row->more_is_better ? row->ours / row->peer : row->peer / row->ours;
    ratio = has_peer ? ratio : (double)NAN;
    printf("{\"suite\":\"%s\",\"case\":\"%s\",\"threads\":%d,\"metric\":\"%s\",", row->suite,
           row->name, row->threads, row->metric);
    print_number("ours", row->ours);
    print_number("peer", has_peer ? row->peer : (double)NAN);
    if (has_peer)
        printf("\"peer_name\":\"%s\",", row->peer_name);
    else
        printf("\"peer_name\":null,");
    print_number("ratio", ratio);
    print_number("bound_fraction", row->bound_fraction);
    printf("\"verified\":%s}\n", row->verified ? "true" : "false");
    fflush(stdout);

    fprintf(stderr, "%-44s %d %10.4g %-5s", row->name, row->threads, row->ours, row->metric);
    if (has_peer)
        fprintf(stderr, " %10.4g %7.2fx  %s", row->peer, ratio, row->peer_name);
    if (isfinite(row->bound_fraction))
        fprintf(stderr, "  %.0f %% of the bound", 100 * row->bound_fraction);
    fprintf(stderr, "%s\n", row->verified ? "" : "  NOT VERIFIED");
    all_verified = all_verified && row->verified;
}

bool gd_bench_all_verified(void)
{
    return all_verified;
}

/* ---- peers ---- */

struct gd_bench_process {
    pid_t pid;
    FILE *output;
};

const char *gd_bench_python(void)
{
    const char *name = getenv("BENCH_PEERS_PYTHON");
    return name != NULL && *name != '\0' ? name : "python3";
}

extern char **environ;

/* The environment of a peer, in one block: a list of pointers, then the strings that are ours. */
static char **peer_environment(int threads)
{
    static const char *const set[] = { "OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                       "OPENBLAS_NUM_THREADS" };
    enum { SET = sizeof set / sizeof *set, LENGTH = 48 };
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = malloc((count + SET + 1) * sizeof *list + SET * LENGTH);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        bool drop = strncmp(environ[i], "OPENBLAS_", 9) == 0;
        for (int k = 0; k < SET; k++)
            drop = drop || (strncmp(environ[i], set[k], strlen(set[k])) == 0 &&
                            environ[i][strlen(set[k])] == '=');
        if (!drop)
            list[kept++] = environ[i];
    }
    char *text = (char *)(list + count + SET + 1);
    for (int k = 0; k < SET; k++, text += LENGTH) {
        snprintf(text, LENGTH, "%s=%d", set[k], threads);
        list[kept++] = text;
    }
    list[kept] = NULL;
    return list;
}

gd_bench_process *gd_bench_start(const char *const *arguments, int threads)
{
    gd_bench_process *process = malloc(sizeof *process);
    char **environment = peer_environment(threads);
    int ends[2] = { -1, -1 };
    posix_spawn_file_actions_t actions;
    if (process == NULL || environment == NULL || pipe(ends) != 0 ||
        posix_spawn_file_actions_init(&actions) != 0)
        gd_bench_die("cannot start %s", arguments[0]);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    fflush(stdout);
    /* The argument list is not written to: the missing const is POSIX's. */
    char *list[16];
    int count = 0;
    while (arguments[count] != NULL && count < 15) {
        memcpy(&list[count], &arguments[count], sizeof *list);
        count++;
    }
    list[count] = NULL;
    int failure = posix_spawnp(&process->pid, arguments[0], &actions, NULL, list, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    close(ends[1]);
    process->output = failure == 0 ? fdopen(ends[0], "r") : NULL;
    if (process->output != NULL)
        return process;
    close(ends[0]);
    free(process);
    return NULL;
}

/* The next word of *text into `word`; false when there is none. */
static bool next_word(const char **text, char *word, size_t size)
{
    size_t length = 0;
    while (isspace((unsigned char)**text))
        ++*text;
    for (; **text != '\0' && !isspace((unsigned char)**text); ++*text)
        if (length + 1 < size)
            word[length++] = **text;
    word[length] = '\0';
    return length > 0;
}

bool gd_bench_read(gd_bench_process *process, gd_bench_line *line)
{
    char buffer[1024];
    if (fgets(buffer, sizeof buffer, process->output) == NULL)
        return false;
    *line = (gd_bench_line){ 0 };
    const char *text = buffer;
    (void)next_word(&text, line->kind, sizeof line->kind);
    while (isspace((unsigned char)*text))
        text++;
    snprintf(line->text, sizeof line->text, "%.*s", (int)strcspn(text, "\n"), text);
    char *end;
    (void)strtod(text, &end);
    if (end == text)
        (void)next_word(&text, line->mode, sizeof line->mode);
    for (; line->count < GD_BENCH_MOST_NUMBERS; line->count++, text = end) {
        line->numbers[line->count] = strtod(text, &end);
        if (end == text)
            break;
    }
    return true;
}

int gd_bench_finish(gd_bench_process *process)
{
    int status;
    fclose(process->output);
    pid_t done = waitpid(process->pid, &status, 0);
    free(process);
    return done > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void gd_bench_set_openmp_threads(int threads)
{
    void (*set)(int);
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set)
        set(threads);
}
