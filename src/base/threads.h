/* base/threads.h: the one place that starts parallel work. Chunks are static: chunk i of n covers
 * the same items at any thread count, so results never depend on how many threads ran them. */
#ifndef GD_BASE_THREADS_H
#define GD_BASE_THREADS_H

#include <stdint.h>

/* Work on items [begin, end). `thread` is 0 … threads-1, for per-thread scratch. */
typedef void (*gd_range_fn)(void *context, int64_t begin, int64_t end, int thread);

/* Split [0, count) into at most `threads` contiguous ranges of at least `grain` items and run them
 * at once; runs in the calling thread when one range is enough. Nested calls run serially. */
void gd_parallel_for(int threads, int64_t count, int64_t grain, gd_range_fn fn, void *context);

/* Threads asked for by GRADUS_NUM_THREADS, else OMP_NUM_THREADS, else gd_cpu_count(); at least 1,
 * at most GD_MAX_THREADS. */
int gd_thread_count_default(void);
#define GD_MAX_THREADS 256

#endif
