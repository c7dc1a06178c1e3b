/* bench/measure.h: what the benches of whole networks share: timing, rows, and peers that are
 * programs of their own. */
#ifndef GD_BENCH_MEASURE_H
#define GD_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Print "bench: ..." to stderr and end the program. */
void gd_bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* True in a short run (BENCH_QUICK is set, as `tools/run-bench --quick` does): less time for each
 * measurement. What is measured, and what is compared, is the same. */
bool gd_bench_quick(void);

/* Run on the last `threads` of the processors this program may use: the calling thread, threads
 * that it starts afterwards, and the programs of gd_bench_start(). Ours and the peers are bound
 * alike. Pools that size themselves by the processors they see follow it. */
void gd_bench_pin(int threads);

/* ---- timing ---- */

/* Sorts `samples` and gives the one in the middle; NAN for none. */
double gd_bench_median(double *samples, size_t count);

/* The clock for work on `threads` threads: of one, the processor time this process has used, all
 * its threads together, so that what other programs do in between does not count; of more, the
 * time of day. */
double gd_bench_now(int threads);

/* Seconds of one run, the median over samples, and how far these lie apart: the distance of their
 * quartiles over the median. NAN: not measured. */
typedef struct gd_bench_timing {
    double seconds, spread;
} gd_bench_timing;

/* Above this spread samples do not agree: it is measured once more, and the better agreement
 * counts.
 */
#define GD_BENCH_SPREAD 0.1

/* One run(user) by that clock, over chunks of `chunk` runs, for at least `seconds` (a third of it
 * in a quick run) and 5 chunks, after a warm-up that lasts until two chunks agree within 5 %. */
gd_bench_timing gd_bench_time(void (*run)(void *user), void *user, int chunk, int threads,
                              double seconds);

/* Something that is timed in turns with others. */
typedef struct gd_bench_runner {
    void (*run)(void *user);
    void *user;
    double pause;  /* seconds to sleep before its turn, lest threads of the one before still spin */
    int64_t chunk; /* runs timed together; 0: the warm-up finds how many take `sample` seconds */
    gd_bench_timing timing; /* the result */
} gd_bench_runner;

/* `rounds` samples of each of `count` runners that took turns: samples[runner * rounds + round], in
 * seconds. Each is divided by how slow the machine was in its round: the median over the runners of
 * sample over the runner's median (a step of Tukey's median polish, 1977, of the logarithms). The
 * timings are of what is left: what slowed all alike is in no spread. One runner is left as it is. */
void gd_bench_polish(double *samples, int count, int rounds, gd_bench_timing *timings);

/* Time `count` runners in turns, `rounds` samples of some `sample` seconds each, each runner warmed
 * up as gd_bench_time() does. In each turn a first run is not timed: it fetches operands back from
 * where the others drove them. gd_bench_polish() makes the timings; where samples of one disagree,
 * all are taken once more. */
void gd_bench_take_turns(gd_bench_runner *runners, int count, int rounds, double sample,
                         int threads);

/* ---- rows ---- */

/* One measurement. NAN stands for a number there is none of, NULL for a text. */
typedef struct gd_bench_row {
    const char *suite, *name;
    int threads;
    const char *metric;
    double ours, peer;
    const char *peer_name; /* NULL: no peer */
    const char *peer_how;  /* the setting that was its fastest */
    double ours_spread, peer_spread;
    bool more_is_better;   /* the ratio is ours / peer instead of peer / ours */
    double bound_fraction; /* of `bound`, which was measured in the same run */
    const char *bound;
    const char *clock; /* NULL: by the number of threads, as gd_bench_now() */
    bool verified;
} gd_bench_row;

/* A row without a peer and a bound so far. */
gd_bench_row gd_bench_make_row(const char *suite, const char *name, int threads, const char *metric,
                               double ours, bool verified);
/* Print it as a line of JSON on stdout, and for people on stderr; before the first, a line about
 * this machine. */
void gd_bench_print_row(const gd_bench_row *row);
/* False once a row that was not verified has been printed. */
bool gd_bench_all_verified(void);

/* ---- peers ---- */

/* A line a peer printed: its first word, the second where there is one, and the numbers after (what
 * is not a number ends them). */
#define GD_BENCH_MOST_NUMBERS 32
typedef struct gd_bench_line {
    char kind[16], mode[16];
    double numbers[GD_BENCH_MOST_NUMBERS];
    int count;
    char text[256]; /* all after the first word */
} gd_bench_line;

/* Run a program (NULL-terminated arguments, found along PATH) on `threads` processors and read what
 * it prints. Variables that choose OpenBLAS's kernels are cleared for it, OMP_NUM_THREADS and such
 * are set to `threads`. NULL: it could not be started. */
typedef struct gd_bench_process gd_bench_process;
gd_bench_process *gd_bench_start(const char *const *arguments, int threads);
/* The next line; false at the end. */
bool gd_bench_read(gd_bench_process *process, gd_bench_line *line);
/* Gives a program that waits a turn (side.h): the seconds of its sample, or the end of this program.
 */
double gd_bench_take_turn(gd_bench_process *process);
/* Ends its input. Its exit status, or -1 when it was killed. */
int gd_bench_finish(gd_bench_process *process);

/* Threads of the OpenMP runtime that a peer brought with it (oneDNN); none: nothing happens. */
void gd_bench_set_openmp_threads(int threads);

/* The Python for peers: what BENCH_PEERS_PYTHON names, or else python3. */
const char *gd_bench_python(void);

#endif
