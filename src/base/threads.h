/* base/threads.h: the one place that starts parallel work. Which items are run in one call depends
 * on the number of threads and on chance: so an item's result must not depend on the others beside
 * it. A sum over items that is to be the same at any number of threads is cut into parts of its own
 * (see backend/cpu/reduce.c). */
#ifndef GD_BASE_THREADS_H
#define GD_BASE_THREADS_H

#include <stdint.h>

/* Work on items [begin, end). `thread` is 0 … threads-1, for per-thread scratch. */
typedef void (*gd_range_fn)(void *context, int64_t begin, int64_t end, int thread);

/* How many threads gd_parallel_for uses at most; they are 0 … ranges-1. At least 1. */
int gd_parallel_ranges(int threads, int64_t count, int64_t grain);

/* Split [0, count) into at most `threads` contiguous ranges of at least `grain` items and run them
 * at once. A thread takes a few items at a time, at least `grain` unless fewer are left, first of its
 * own range, then of others' that are late. So fn is called several times with a thread's number, one
 * call of a number at a time. All of it is one range, run by the calling thread as thread 0 in one call, when one range is enough,
 * in a call from inside of a range, and while another thread's call is running: the process has one
 * pool of threads, and who finds it taken does not wait. */
void gd_parallel_for(int threads, int64_t count, int64_t grain, gd_range_fn fn, void *context);

/* Threads asked for by GRADUS_NUM_THREADS, else OMP_NUM_THREADS, else gd_cpu_count(); at least 1,
 * at most GD_MAX_THREADS. */
int gd_thread_count_default(void);
#define GD_MAX_THREADS 256

#endif
