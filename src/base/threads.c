/* base/threads.c: splitting a loop over threads. Start at gd_parallel_for(); run_ranges() is where
 * threads begin.
 *
 * This is the only file that knows OpenMP. Without it the ranges run one after another. With
 * GD_THREADS_PTHREAD they run on threads made for the call: slow, but ThreadSanitizer sees their
 * synchronisation, which it cannot see in libgomp.
 *
 * Errors are kept per thread, so a range function must not be one that can fail.
 */
#include "base/threads.h"
#include "base/cpu.h"

#include <stdbool.h>
#include <stdlib.h>

#if defined(GD_THREADS_PTHREAD)
#include <pthread.h>
#elif defined(_OPENMP)
#include <omp.h>
#endif

typedef struct parallel_job {
    gd_range_fn fn;
    void *context;
    int64_t count;
    int ranges;
} parallel_job;

/* Range i of n holds count/n items, one more for the first count%n of them. */
static void run_range(const parallel_job *job, int index)
{
    int64_t size = job->count / job->ranges;
    int64_t longer = job->count % job->ranges;
    int64_t begin = index * size + (index < longer ? index : longer);
    int64_t end = begin + size + (index < longer ? 1 : 0);
    job->fn(job->context, begin, end, index);
}

#if defined(GD_THREADS_PTHREAD)

typedef struct worker {
    const parallel_job *job;
    int index;
    bool started;
    pthread_t thread;
} worker;

static _Thread_local bool in_parallel;

static void *work(void *argument)
{
    worker *self = argument;
    in_parallel = true;
    run_range(self->job, self->index);
    in_parallel = false;
    return NULL;
}

static bool is_nested(void)
{
    return in_parallel;
}

static void run_ranges(const parallel_job *job)
{
    worker workers[GD_MAX_THREADS];
    for (int i = 1; i < job->ranges; i++) {
        workers[i] = (worker){ .job = job, .index = i };
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    workers[0] = (worker){ .job = job, .index = 0 };
    work(&workers[0]);
    for (int i = 1; i < job->ranges; i++) {
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        else
            work(&workers[i]);
    }
}

#elif defined(_OPENMP)

static bool is_nested(void)
{
    return omp_in_parallel();
}

/* OpenMP may grant fewer threads than asked for; each then takes several ranges. */
static void run_ranges(const parallel_job *job)
{
#pragma omp parallel num_threads(job->ranges)
    {
        int team = omp_get_num_threads();
        for (int index = omp_get_thread_num(); index < job->ranges; index += team)
            run_range(job, index);
    }
}

#else

static bool is_nested(void)
{
    return false;
}

static void run_ranges(const parallel_job *job)
{
    for (int index = 0; index < job->ranges; index++)
        run_range(job, index);
}

#endif

void gd_parallel_for(int threads, int64_t count, int64_t grain, gd_range_fn fn, void *context)
{
    if (count <= 0)
        return;
    int64_t ranges = grain > 1 ? count / grain : count;
    if (ranges > threads)
        ranges = threads;
    if (ranges > GD_MAX_THREADS)
        ranges = GD_MAX_THREADS;
    if (ranges <= 1 || is_nested()) {
        fn(context, 0, count, 0);
        return;
    }
    parallel_job job = { fn, context, count, (int)ranges };
    run_ranges(&job);
}

/* The leading number of an environment variable ("4", or OpenMP's list "4,2"); 0 if none. */
static long leading_number(const char *variable)
{
    const char *text = getenv(variable);
    if (!text)
        return 0;
    char *end;
    long number = strtol(text, &end, 10);
    while (*end == ' ')
        end++;
    return end != text && (*end == '\0' || *end == ',') && number > 0 ? number : 0;
}

int gd_thread_count_default(void)
{
    long count = leading_number("GRADUS_NUM_THREADS");
    if (count == 0)
        count = leading_number("OMP_NUM_THREADS");
    if (count == 0)
        count = gd_cpu_count();
    return count > GD_MAX_THREADS ? GD_MAX_THREADS : (int)count;
}
