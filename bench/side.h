/* bench/side.h: a side of a comparison, ours or a peer's, in a process of its own, so that its peak
 * memory is its own. It prints lines (measure.h): "name NAME", "how TEXT" (its fastest setting),
 * "spread X" (of its samples), "step MODE SECONDS CHECKS..." or "token ...", "memory PEAK BEFORE"
 * (MiB: the most it had, and what it had once its libraries were loaded), "bound FRACTION" (of what
 * the machine could do), "note TEXT". */
#ifndef GD_BENCH_SIDE_H
#define GD_BENCH_SIDE_H

#include "measure.h"

#include <gradus/gradus.h>

#include <stdbool.h>

/* What a side reported. */
typedef struct gd_bench_side {
    char name[128], how[128];
    double seconds, spread, memory, bound; /* NAN: not reported; memory in MiB, without libraries */
    double checks[GD_BENCH_MOST_NUMBERS];
    int check_count;
    gd_bench_process *process; /* waits for its turns; NULL: it has ended */
} gd_bench_side;

/* Run a program as gd_bench_start() does, to its end. false: there is no such peer, or it failed,
 * which stderr tells. */
bool gd_bench_run_side(const char *const *arguments, int threads, gd_bench_side *side);

/* ---- turns ----
 *
 * How fast a shared machine is changes from minute to minute, by half and more: sides that are timed
 * one after another are not timed on the same machine. So the sides of one comparison are all
 * started, come one after another to where they would end, print "ready", and wait. Then each line
 * on its stdin is a turn: it prints "sample SECONDS", of one run. Nothing else runs meanwhile. */

enum { GD_BENCH_MOST_SIDES = 12 };
typedef struct gd_bench_sides {
    gd_bench_side *side[GD_BENCH_MOST_SIDES];
    int count;
} gd_bench_sides;

/* As gd_bench_run_side(), but the program then waits for its turns, with `sides`. Where little
 * memory is left, it ends instead, and what it measured on its own counts. */
bool gd_bench_start_side(gd_bench_sides *sides, const char *const *arguments, int threads,
                         gd_bench_side *side);

/* Gives the sides their turns, after which they have ended: `seconds` and `spread` of each are
 * those of its samples, each over the speed of the machine in that round (gd_bench_polish()).
 * Returns the peak of `threads` threads in floating-point operations a second, which has turns of
 * its own. */
double gd_bench_take_side_turns(gd_bench_sides *sides, int threads);

/* In a program that is a side: what it does last. run(user) `chunk` times and more is a sample. */
void gd_bench_await_turns(void (*run)(void *user), void *user, int chunk, int threads);

/* The numbers both report to be compared are there, and as close as that. */
bool gd_bench_sides_agree(const gd_bench_side *a, const gd_bench_side *b, double tolerance);

/* A row for each of `count` peers that is there, or one without. `row` has our number and whether
 * it is verified so far; the peers' checks must agree with `ours` to `tolerance`. */
void gd_bench_print_sides(gd_bench_row row, const gd_bench_side *ours, const gd_bench_side *peers,
                          const bool *there, int count, bool memory, double tolerance);

/* What this process has in memory, and the most it has had, in MiB. */
double gd_bench_resident(void);
double gd_bench_most_resident(void);
/* Print a "memory" line. `before`: gd_bench_resident() at the beginning. */
void gd_bench_print_memory(double before);

/* Every kernel of a compiled function with its time and rate, for people, on stderr; only when
 * BENCH_PROFILE is set. */
void gd_bench_print_profile(gd_function *function, int count, gd_tensor *const *inputs);

/* ---- our side, which may train on a device ----
 *
 * Variables that tools/gpu_models.py sets:
 *   BENCH_DEVICE   where our side trains, "cuda:0"; not set: "cpu"
 *   BENCH_SECONDS  how long a step is timed; 0: no longer than the losses of the first steps take
 *   BENCH_WAIT     print "ready" after these steps, and time only once a line comes on stdin
 *   BENCH_SOURCE   the folder of the sources; not set: where this was compiled */

/* The device of our side: a context, or the end of the program. */
gd_context *gd_bench_open(int threads);
/* A file or a folder of the sources. */
void gd_bench_source_path(char *path, size_t size, const char *name);

/* Our side of a training step of (x, y): prints the losses of the first GD_BENCH_CHECKED steps, the
 * time of a step and this process's memory. On a device it is the time of day, and of so many steps
 * that the wait for the last of them does not count. */
#define GD_BENCH_CHECKED 4
void gd_bench_train_side(gd_function *train, gd_tensor *const in[2], int chunk, int threads,
                         double seconds, double resident_before);

/* What a side of ours is called with: a mode and a precision, "--compiled", "--eager" or these with
 * "-bf16", under autocast. */
typedef struct gd_bench_way {
    gd_mode mode;
    gd_dtype dtype;
} gd_bench_way;
gd_bench_way gd_bench_parse_way(const char *argument);

/* A row for the compiled step in bf16 against our own f32 and the peers in bf16 (`peers`: `count`
 * of them), on `threads` threads. Verified: eager gives the same bits, and the others' numbers are
 * within `tolerance`. `row` has the suite, the name and the threads. */
void gd_bench_print_bf16(gd_bench_row row, const gd_bench_side *compiled,
                         const gd_bench_side *eager, const gd_bench_side *f32,
                         const gd_bench_side *peers, const bool *there, int count,
                         double tolerance);

/* The path of this program. */
void gd_bench_own_path(char *path, size_t size);

#endif
