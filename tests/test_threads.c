/* tests/test_threads.c: gd_parallel_for and the pool of threads behind it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct coverage {
    atomic_int visits[1000], running[GD_MAX_THREADS];
    atomic_int calls, wrong, small; /* small: calls with fewer than `grain` items */
    int threads;
    int64_t grain;
} coverage;

static void visit(void *context, int64_t begin, int64_t end, int thread)
{
    coverage *seen = context;
    if (begin >= end || thread < 0 || thread >= seen->threads ||
        atomic_fetch_add(&seen->running[thread], 1) != 0)
        atomic_fetch_add(&seen->wrong, 1);
    atomic_fetch_add(&seen->calls, 1);
    if (end - begin < seen->grain)
        atomic_fetch_add(&seen->small, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&seen->visits[i], 1);
    atomic_fetch_sub(&seen->running[thread], 1);
}

/* Every item once, by a thread's number that is in use nowhere else; of each range only the last
 * call may have fewer items than the grain. */
static void test_parallel_for_covers(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 64, 999, 1000 };
    static const int64_t grains[] = { 0, 1, 10, 300, 5000 };
    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t g = 0; g < COUNT(grains); g++)
            for (int threads = 0; threads <= 9; threads++) {
                static coverage seen;
                memset(&seen, 0, sizeof seen);
                const int ranges = gd_parallel_ranges(threads, counts[c], grains[g]);
                assert_in_range(ranges, 1, threads > 1 ? threads : 1);
                seen.threads = ranges;
                seen.grain = grains[g];
                gd_parallel_for(threads, counts[c], grains[g], visit, &seen);
                for (int64_t i = 0; i < 1000; i++)
                    assert_int_equal(atomic_load(&seen.visits[i]), i < counts[c]);
                assert_int_equal(atomic_load(&seen.wrong), 0);
                assert_true(atomic_load(&seen.small) <= ranges);
                if (ranges == 1)
                    assert_int_equal(atomic_load(&seen.calls), counts[c] > 0);
                else /* an eighth of a range at a time, or a rest */
                    assert_true(atomic_load(&seen.calls) <= 8 * ranges);
            }
}

static void visit_nested(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    coverage *all = context;
    for (int64_t i = begin; i < end; i++)
        gd_parallel_for(4, 100, 1, visit, &all[i]);
}

static void test_nested_runs_serially(void **state)
{
    (void)state;
    static coverage all[6];
    memset(all, 0, sizeof all);
    for (int k = 0; k < 6; k++)
        all[k].threads = 1;
    gd_parallel_for(2, 6, 1, visit_nested, all);
    for (int k = 0; k < 6; k++) {
        assert_int_equal(atomic_load(&all[k].calls), 1);
        for (int i = 0; i < 100; i++)
            assert_int_equal(atomic_load(&all[k].visits[i]), 1);
    }
}

enum { SHORT_ITEMS = 99 };

typedef struct long_item {
    atomic_int done; /* of the short ones */
} long_item;

/* Item 0 ends when all others have: so whoever runs it can run none of them meanwhile. */
static void run_items(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    long_item *w = context;
    for (int64_t i = begin; i < end; i++) {
        if (i > 0)
            atomic_fetch_add(&w->done, 1);
        while (i == 0 && atomic_load(&w->done) < SHORT_ITEMS)
            usleep(100);
    }
}

static void remember_runners(void *context, int64_t begin, int64_t end, int thread)
{
    (void)begin, (void)end;
    ((pthread_t *)context)[thread] = pthread_self();
    for (int i = 0; i < 100; i++) /* the other range is for another thread, if there is one */
        usleep(100);
}

/* A thread with a long item leaves all others to the rest. */
static void test_a_long_item_delays_no_other(void **state)
{
    (void)state;
    pthread_t runner[2];
    gd_parallel_for(2, 2, 1, remember_runners, runner);
    if (pthread_equal(runner[0], runner[1]))
        skip(); /* no second thread could be made, or it has no core */
    static long_item w;
    /* So many threads take one item at a time. */
    gd_parallel_for(16, SHORT_ITEMS + 1, 1, run_items, &w);
    assert_int_equal(atomic_load(&w.done), SHORT_ITEMS);
}

static void remember_thread(void *context, int64_t begin, int64_t end, int thread)
{
    (void)begin, (void)end, (void)thread;
    *(pthread_t *)context = pthread_self();
}

static void test_one_range_runs_in_the_caller(void **state)
{
    (void)state;
    pthread_t runner;
    gd_parallel_for(8, 10, 10, remember_thread, &runner);
    assert_true(pthread_equal(runner, pthread_self()));
    gd_parallel_for(1, 1000, 1, remember_thread, &runner);
    assert_true(pthread_equal(runner, pthread_self()));
}

static void test_thread_count_default(void **state)
{
    (void)state;
    char saved[32] = "";
    if (getenv("OMP_NUM_THREADS"))
        snprintf(saved, sizeof saved, "%s", getenv("OMP_NUM_THREADS"));
    setenv("OMP_NUM_THREADS", "3,2", 1);
    setenv("GRADUS_NUM_THREADS", "5", 1);
    assert_int_equal(gd_thread_count_default(), 5);
    setenv("GRADUS_NUM_THREADS", "100000", 1);
    assert_int_equal(gd_thread_count_default(), GD_MAX_THREADS);
    static const char *const meaningless[] = { "", "0", "-2", "four", "4x" };
    for (size_t i = 0; i < COUNT(meaningless); i++) {
        setenv("GRADUS_NUM_THREADS", meaningless[i], 1);
        assert_int_equal(gd_thread_count_default(), 3);
    }
    unsetenv("GRADUS_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    int count = gd_cpu_count();
    assert_int_equal(gd_thread_count_default(), count < GD_MAX_THREADS ? count : GD_MAX_THREADS);
    if (*saved)
        setenv("OMP_NUM_THREADS", saved, 1);
}

/* Whoever finds the pool taken does all of its work alone. */
static void *call_many_times(void *argument)
{
    coverage *seen = argument;
    for (int i = 0; i < 300; i++)
        gd_parallel_for(3, 1000, 1, visit, seen);
    return NULL;
}

static void test_callers_at_the_same_time(void **state)
{
    (void)state;
    static coverage seen[3];
    pthread_t callers[3];
    memset(seen, 0, sizeof seen);
    for (int k = 0; k < 3; k++)
        assert_int_equal(pthread_create(&callers[k], NULL, call_many_times, &seen[k]), 0);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(pthread_join(callers[k], NULL), 0);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(atomic_load(&seen[k].visits[i]), 300);
    }
}

#if !defined(__SANITIZE_THREAD__) /* which does not follow a fork with threads */
/* A child has none of its parent's workers, and makes its own. */
static void test_fork(void **state)
{
    (void)state;
    static coverage seen;
    memset(&seen, 0, sizeof seen);
    gd_parallel_for(2, 1000, 1, visit, &seen);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            gd_parallel_for(2, 1000, 1, visit, &seen);
        _exit(atomic_load(&seen.visits[999]) == 101 && atomic_load(&seen.visits[0]) == 101 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    gd_parallel_for(2, 1000, 1, visit, &seen);
    assert_int_equal(atomic_load(&seen.visits[0]), 2);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parallel_for_covers),
        cmocka_unit_test(test_nested_runs_serially),
        cmocka_unit_test(test_a_long_item_delays_no_other),
        cmocka_unit_test(test_one_range_runs_in_the_caller),
        cmocka_unit_test(test_callers_at_the_same_time),
#if !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_fork),
#endif
        cmocka_unit_test(test_thread_count_default),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
