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
    atomic_int visits[1000];
    atomic_int calls;
    int64_t begins[GD_MAX_THREADS], ends[GD_MAX_THREADS];
} coverage;

static void visit(void *context, int64_t begin, int64_t end, int thread)
{
    coverage *seen = context;
    atomic_fetch_add(&seen->calls, 1);
    seen->begins[thread] = begin;
    seen->ends[thread] = end;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&seen->visits[i], 1);
}

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
                gd_parallel_for(threads, counts[c], grains[g], visit, &seen);
                for (int64_t i = 0; i < 1000; i++)
                    assert_int_equal(atomic_load(&seen.visits[i]), i < counts[c]);
                int calls = atomic_load(&seen.calls);
                assert_true(calls <= (threads > 1 ? threads : 1));
                int64_t at =
                    0; /* range i begins where range i-1 ended, and holds at least `grain` items */
                for (int i = 0; i < calls; i++) {
                    assert_int_equal(seen.begins[i], at);
                    at = seen.ends[i];
                    assert_true(calls == 1 || at - seen.begins[i] >= grains[g]);
                    assert_true(at - seen.begins[i] <= counts[c] / calls + 1);
                }
                assert_int_equal(at, counts[c]);
            }
}

static void test_partition_is_static(void **state)
{
    (void)state;
    static coverage first, again;
    memset(&first, 0, sizeof first);
    gd_parallel_for(4, 997, 1, visit, &first);
    assert_int_equal(atomic_load(&first.calls), 4);
    assert_int_equal(first.ends[0], 250); /* 997 = 4 * 249 + 1: the first range is one longer */
    assert_int_equal(first.ends[1], 499);
    for (int i = 0; i < 20; i++) {
        memset(&again, 0, sizeof again);
        gd_parallel_for(4, 997, 1, visit, &again);
        assert_memory_equal(first.begins, again.begins, sizeof first.begins);
        assert_memory_equal(first.ends, again.ends, sizeof first.ends);
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
    gd_parallel_for(2, 6, 1, visit_nested, all);
    for (int k = 0; k < 6; k++) {
        assert_int_equal(atomic_load(&all[k].calls), 1);
        for (int i = 0; i < 100; i++)
            assert_int_equal(atomic_load(&all[k].visits[i]), 1);
    }
}

/* ---- items by a counter ---- */

typedef struct uneven_work {
    atomic_int visits[1000], running[GD_MAX_THREADS], wrong;
    int threads;
} uneven_work;

static void visit_some(void *context, int64_t begin, int64_t end, int thread)
{
    uneven_work *w = context;
    if (thread < 0 || thread >= w->threads || atomic_fetch_add(&w->running[thread], 1) != 0)
        atomic_fetch_add(&w->wrong, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&w->visits[i], 1);
    atomic_fetch_sub(&w->running[thread], 1);
}

/* Every item once, by a thread's number that is in use nowhere else. */
static void test_parallel_uneven_covers(void **state)
{
    (void)state;
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 64, 999, 1000 };
    static const int64_t grains[] = { 0, 1, 10, 300, 5000 };
    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t g = 0; g < COUNT(grains); g++)
            for (int threads = 1; threads <= 9; threads++) {
                static uneven_work w;
                memset(&w, 0, sizeof w);
                w.threads = threads;
                gd_parallel_uneven(threads, counts[c], grains[g], visit_some, &w);
                for (int64_t i = 0; i < 1000; i++)
                    assert_int_equal(atomic_load(&w.visits[i]), i < counts[c]);
                assert_int_equal(atomic_load(&w.wrong), 0);
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
    gd_parallel_uneven(16, SHORT_ITEMS + 1, 1, run_items, &w);
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
        cmocka_unit_test(test_partition_is_static),
        cmocka_unit_test(test_nested_runs_serially),
        cmocka_unit_test(test_parallel_uneven_covers),
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
