/* bench/measure.c: see measure.h. */
#include "measure.h"

#include "base/cpu.h"
#include <gradus/base.h>

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
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

bool gd_bench_quick(void)
{
    const char *text = getenv("BENCH_QUICK");
    return text != NULL && *text != '\0' && strcmp(text, "0") != 0;
}

/* ---- processors ---- */

static cpu_set_t allowed; /* what this program was given; empty: not asked for so far */

/* The last `threads` of the allowed ones. */
static cpu_set_t last_processors(int threads)
{
    if (CPU_COUNT(&allowed) == 0)
        (void)sched_getaffinity(0, sizeof allowed, &allowed);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = CPU_SETSIZE; i-- > 0 && CPU_COUNT(&set) < threads;)
        if (CPU_ISSET(i, &allowed))
            CPU_SET(i, &set);
    return set;
}

static int processor_count(void)
{
    (void)last_processors(0); /* fills `allowed` */
    return CPU_COUNT(&allowed);
}

void gd_bench_pin(int threads)
{
    cpu_set_t set = last_processors(threads);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* ---- timing ---- */

enum {
    LEAST_SAMPLES = 5,
    MOST_SAMPLES = 100000,
    MOST_WARM_UPS = 50,
    MOST_RUNNERS = 16,
    MOST_ROUNDS = 101
};
static const double agreement = 0.05, warm_up_seconds = 1.0, quick_share = 1.0 / 3;

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

static gd_bench_timing summary(double *samples, size_t count)
{
    gd_bench_timing t = { .seconds = gd_bench_median(samples, count), .spread = NAN };
    if (count > 0)
        t.spread = (samples[3 * (count - 1) / 4] - samples[(count - 1) / 4]) / t.seconds;
    return t;
}

static double time_chunk(const gd_bench_runner *r, int threads)
{
    double start = gd_bench_now(threads);
    for (int64_t i = 0; i < r->chunk; i++)
        r->run(r->user);
    return (gd_bench_now(threads) - start) / (double)r->chunk;
}

/* Run until two chunks agree, or for a second. With `sample` above 0, chunks grow to that time. */
static void warm_up(gd_bench_runner *r, double sample, int threads)
{
    double end = gd_seconds() + warm_up_seconds, before = NAN, now = time_chunk(r, threads);
    for (int i = 0; i < MOST_WARM_UPS && gd_seconds() < end; i++) {
        if (sample > 0)
            r->chunk = (int64_t)fmin(fmax(ceil(sample / fmax(now, 1e-10)), 1), 1e8);
        before = now;
        now = time_chunk(r, threads);
        if (fabs(now - before) <= agreement * now)
            break;
    }
}

gd_bench_timing gd_bench_time(void (*run)(void *user), void *user, int chunk, int threads,
                              double seconds)
{
    static double samples[MOST_SAMPLES];
    gd_bench_timing best = { NAN, INFINITY };
    gd_bench_runner r = { .run = run, .user = user, .chunk = chunk };
    seconds *= gd_bench_quick() ? quick_share : 1;
    for (int attempt = 0; attempt < 2 && best.spread > GD_BENCH_SPREAD; attempt++) {
        warm_up(&r, 0, threads);
        size_t count = 0;
        double end = gd_seconds() + seconds;
        while (count < MOST_SAMPLES && (count < LEAST_SAMPLES || gd_seconds() < end))
            samples[count++] = time_chunk(&r, threads);
        gd_bench_timing t = summary(samples, count);
        if (t.spread < best.spread)
            best = t;
    }
    return best;
}

static void pause_for(double seconds)
{
    if (seconds > 0)
        nanosleep(&(struct timespec){ (time_t)seconds, (long)(fmod(seconds, 1) * 1e9) }, NULL);
}

/* The geometric mean of the two in the middle, or the one. */
static double middle(double *ratios, size_t count)
{
    const double upper = gd_bench_median(ratios, count);
    return count % 2 ? upper : sqrt(upper * ratios[count / 2 - 1]);
}

void gd_bench_polish(double *samples, int count, int rounds, gd_bench_timing *timings)
{
    double medians[MOST_RUNNERS], sorted[MOST_ROUNDS];
    if (count > MOST_RUNNERS || rounds > MOST_ROUNDS)
        gd_bench_die("%d runners in %d rounds are too many", count, rounds);
    for (int i = 0; i < count; i++) {
        memcpy(sorted, samples + i * rounds, sizeof *sorted * (size_t)rounds);
        medians[i] = gd_bench_median(sorted, (size_t)rounds);
    }
    for (int round = 0; count > 1 && round < rounds; round++) {
        for (int i = 0; i < count; i++)
            sorted[i] = samples[i * rounds + round] / medians[i];
        const double slow = middle(sorted, (size_t)count);
        for (int i = 0; i < count; i++)
            samples[i * rounds + round] /= slow;
    }
    for (int i = 0; i < count; i++)
        timings[i] = summary(samples + i * rounds, (size_t)rounds);
}

void gd_bench_take_turns(gd_bench_runner *runners, int count, int rounds, double sample,
                         int threads)
{
    static double samples[MOST_RUNNERS * MOST_ROUNDS];
    gd_bench_timing timings[MOST_RUNNERS];
    if (count > MOST_RUNNERS || rounds > MOST_ROUNDS)
        gd_bench_die("%d runners in %d rounds are too many", count, rounds);
    rounds = gd_bench_quick() && rounds > 7 ? 7 : rounds;
    double best = INFINITY;
    for (int attempt = 0; attempt < 2 && best > GD_BENCH_SPREAD; attempt++) {
        for (int i = 0; i < count; i++) {
            runners[i].chunk = runners[i].chunk > 0 ? runners[i].chunk : 1;
            pause_for(runners[i].pause);
            warm_up(&runners[i], sample, threads);
        }
        for (int round = 0; round < rounds; round++)
            for (int i = 0; i < count; i++) {
                pause_for(runners[i].pause);
                runners[i].run(runners[i].user);
                samples[i * rounds + round] = time_chunk(&runners[i], threads);
            }
        gd_bench_polish(samples, count, rounds, timings);
        double worst = 0;
        for (int i = 0; i < count; i++)
            worst = fmax(worst, timings[i].spread);
        for (int i = 0; i < count && worst < best; i++)
            runners[i].timing = timings[i];
        best = fmin(best, worst);
    }
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

static void print_text(const char *name, const char *text)
{
    if (text)
        printf("\"%s\":\"%s\",", name, text);
    else
        printf("\"%s\":null,", name);
}

/* What tools/run-bench writes over the results of this processor. */
static void print_machine(void)
{
    static bool printed;
    if (printed)
        return;
    printed = true;
    gd_isa isa = gd_isa_choose();
    printf("{\"machine\":{\"processor\":\"%s\",\"processors\":%d,\"isa\":\"%s\","
           "\"compiler\":\"%s %s\"}}\n",
           gd_cpu_model(), processor_count(), isa < GD_ISA_COUNT ? gd_isa_name(isa) : "none",
#ifdef __clang__
           "clang", __clang_version__);
#else
           "gcc", __VERSION__);
#endif
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
                           .ours_spread = NAN,
                           .peer_spread = NAN,
                           .bound_fraction = NAN,
                           .verified = verified };
}

/* A size has no clock. */
static const char *clock_of(const gd_bench_row *row)
{
    static const char *const sizes[] = { "MiB", "KiB", "MB", "peak KiB" };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(row->metric, sizes[i]) == 0)
            return NULL;
    return row->clock ? row->clock : row->threads == 1 ? "processor" : "wall";
}

static void print_for_people(const gd_bench_row *row, bool has_peer, double ratio)
{
    fprintf(stderr, "%-44s %d %10.4g %-5s", row->name, row->threads, row->ours, row->metric);
    if (has_peer)
        fprintf(stderr, " %10.4g %7.2fx  %s", row->peer, ratio, row->peer_name);
    if (has_peer && row->peer_how)
        fprintf(stderr, " (%s)", row->peer_how);
    if (isfinite(row->bound_fraction))
        fprintf(stderr, "  %.0f %% of %s", 100 * row->bound_fraction, row->bound);
    fprintf(stderr, "%s\n", row->verified ? "" : "  NOT VERIFIED");
}

void gd_bench_print_row(const gd_bench_row *row)
{
    bool has_peer = row->peer_name != NULL && isfinite(row->peer);
    double ratio = row->more_is_better ? row->ours / row->peer : row->peer / row->ours;
    ratio = has_peer ? ratio : (double)NAN;
    print_machine();
    printf("{\"suite\":\"%s\",\"case\":\"%s\",\"threads\":%d,\"metric\":\"%s\",", row->suite,
           row->name, row->threads, row->metric);
    printf("\"more_is_better\":%s,", row->more_is_better ? "true" : "false");
    print_number("ours", row->ours);
    print_number("ours_spread", row->ours_spread);
    print_number("peer", has_peer ? row->peer : (double)NAN);
    print_number("peer_spread", has_peer ? row->peer_spread : (double)NAN);
    print_text("peer_name", has_peer ? row->peer_name : NULL);
    print_text("peer_how", has_peer ? row->peer_how : NULL);
    print_number("ratio", ratio);
    print_number("bound_fraction", row->bound_fraction);
    print_text("bound", isfinite(row->bound_fraction) ? row->bound : NULL);
    print_text("clock", clock_of(row));
    printf("\"verified\":%s}\n", row->verified ? "true" : "false");
    fflush(stdout);
    print_for_people(row, has_peer, ratio);
    all_verified = all_verified && row->verified;
}

bool gd_bench_all_verified(void)
{
    return all_verified;
}

/* ---- peers ---- */

struct gd_bench_process {
    pid_t pid;
    FILE *input, *output; /* its stdin and stdout */
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
    int in[2], out[2]; /* not inherited: a program would keep another's stdin open */
    posix_spawn_file_actions_t actions;
    if (process == NULL || environment == NULL || pipe2(in, O_CLOEXEC) != 0 ||
        pipe2(out, O_CLOEXEC) != 0 || posix_spawn_file_actions_init(&actions) != 0)
        gd_bench_die("cannot start %s", arguments[0]);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    fflush(stdout);
    /* The argument list is not written to: the missing const is POSIX's. */
    char *list[16];
    int count = 0;
    while (arguments[count] != NULL && count < 15) {
        memcpy(&list[count], &arguments[count], sizeof *list);
        count++;
    }
    list[count] = NULL;
    cpu_set_t mine, theirs = last_processors(threads);
    (void)sched_getaffinity(0, sizeof mine, &mine);
    (void)sched_setaffinity(0, sizeof theirs, &theirs); /* which the program inherits */
    int failure = posix_spawnp(&process->pid, arguments[0], &actions, NULL, list, environment);
    (void)sched_setaffinity(0, sizeof mine, &mine);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    close(in[0]);
    close(out[1]);
    process->input = fdopen(in[1], "w");
    process->output = fdopen(out[0], "r");
    if (process->input == NULL || process->output == NULL)
        gd_bench_die("cannot start %s", arguments[0]);
    if (failure == 0)
        return process;
    fclose(process->input);
    fclose(process->output);
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

double gd_bench_take_turn(gd_bench_process *process)
{
    static const double rest = 0.1; /* seconds: threads of the one before may still spin */
    gd_bench_line line;
    pause_for(rest);
    signal(SIGPIPE, SIG_IGN); /* if it has died, reading tells */
    fprintf(process->input, "go\n");
    fflush(process->input);
    if (!gd_bench_read(process, &line) || strcmp(line.kind, "sample") != 0 || line.count != 1)
        gd_bench_die("a side has not taken its turn");
    return line.numbers[0];
}

int gd_bench_finish(gd_bench_process *process)
{
    int status;
    fclose(process->input);
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
