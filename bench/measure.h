/* bench/measure.h: what the benches of whole networks share: timing, rows, and peers that are
 * programs of their own. */
#ifndef GD_BENCH_MEASURE_H
#define GD_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Print "bench: ..." to stderr and end the program. */
void gd_bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Sorts `samples` and gives the one in the middle; NAN for none. */
double gd_bench_median(double *samples, size_t count);

/* The clock for work on `threads` threads: of one, the processor time this process has used, so
 * that what other programs do in between does not count; of more, the time of day. */
double gd_bench_now(int threads);

/* Seconds one run(user) takes by that clock: the median over chunks of `chunk` runs, for at least
 * `seconds` and 5 chunks, after a tenth of that to warm up. */
double gd_bench_seconds(void (*run)(void *user), void *user, int chunk, int threads,
                        double seconds);

/* One measurement. NAN stands for a number there is none of. */
typedef struct gd_bench_row {
    const char *suite, *name;
    int threads;
    const char *metric;
    double ours;
    double peer;
    const char *peer_name; /* NULL: no peer */
    bool more_is_better;   /* the ratio is ours / peer instead of peer / ours */
    double bound_fraction; /* of what the machine could do at most */
    bool verified;
} gd_bench_row;

/* A row without a peer and a bound so far. */
gd_bench_row gd_bench_make_row(const char *suite, const char *name, int threads, const char *metric,
                               double ours, bool verified);
/* Print it as a line of JSON on stdout, and for people on stderr. */
void gd_bench_print_row(const gd_bench_row *row);
/* False once a row that was not verified has been printed. */
bool gd_bench_all_verified(void);

/* A line a peer printed: its first word, the second where there is one, and the numbers after (what
 * is not a number ends them). */
#define GD_BENCH_MOST_NUMBERS 32
typedef struct gd_bench_line {
    char kind[16], mode[16];
    double numbers[GD_BENCH_MOST_NUMBERS];
    int count;
    char text[256]; /* all after the first word */
} gd_bench_line;

/* Run a program (NULL-terminated arguments, found along PATH) and read what it prints. Variables
 * that choose OpenBLAS's kernels are cleared for it, OMP_NUM_THREADS and such are set to `threads`.
 * NULL: it could not be started. */
typedef struct gd_bench_process gd_bench_process;
gd_bench_process *gd_bench_start(const char *const *arguments, int threads);
/* The next line; false at the end. */
bool gd_bench_read(gd_bench_process *process, gd_bench_line *line);
/* Its exit status, or -1 when it was killed. */
int gd_bench_finish(gd_bench_process *process);

/* Threads of the OpenMP runtime that a peer brought with it (oneDNN); none: nothing happens. */
void gd_bench_set_openmp_threads(int threads);

/* The Python for peers: what BENCH_PEERS_PYTHON names, or else python3. */
const char *gd_bench_python(void);

#endif
