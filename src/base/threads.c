/* base/threads.c: splitting a loop over threads. Start at gd_parallel_for(), then run_items(): how
 * an item finds the thread that runs it.
 *
 * One pool of threads serves the process. The caller publishes a job and then takes ranges itself,
 * beside the workers. Of its range a thread takes a few items at a time, and when none are left it
 * takes items of the others' ranges. So a thread without a core delays nothing, and one on a slow
 * core (a small one, or one whose other hyper-thread is busy) no more than by a few items.
 * (OpenMP ties each range to a thread. On a busy machine every loop then waits for a time slice; a
 * matrix product of 1 ms was seen to take 15.) On a machine that is quiet a thread runs the same
 * items in each of several loops, and finds them in its caches. Results do not depend on which
 * thread runs an item. A worker that finds no job spins for half a millisecond, then sleeps.
 *
 * A job must not fail and must not wait for another thread. When the pool is taken by another
 * caller, or a thread cannot be made, the caller does the work alone. */
#include "base/threads.h"
#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds for which a worker polls the job number before it sleeps, and the caller the count of
 * finished ranges before it yields its core. They are times and not numbers of pauses, since a
 * pause takes 40 cycles on one processor and 140 on another. */
#define SPIN_BEFORE_SLEEP 500000
#define SPIN_BEFORE_YIELD 50000
#define LOOKS_PER_CLOCK   32

/* So often does a thread take items of its range: the last thread to end is late by the work of one
 * turn at most. */
#define TURNS 8

/* The ticket says all that a worker must know to take a range: number of the job, ranges it has,
 * ranges taken. Taking one is a compare-and-swap on it, so a worker that comes late cannot take
 * from a job that is over, and reads `job` only while it holds a range of it. */
#define TICKET(number, ranges, taken) \
    ((uint64_t)(number) << 32 | (uint64_t)(ranges) << 16 | (uint64_t)(taken))
#define NUMBER(ticket) ((uint32_t)((ticket) >> 32))
#define RANGES(ticket) ((int)((ticket) >> 16 & 0xffff))
#define TAKEN(ticket)  ((int)((ticket)&0xffff))

static struct pool {
    pthread_mutex_t caller; /* held by the one whose job it is */
    _Alignas(64) _Atomic uint64_t ticket;
    struct {
        gd_range_fn fn;
        void *context;
        int64_t count, grain;
    } job;
    struct {
        _Alignas(64) _Atomic int64_t next; /* the first of its items that nobody has taken */
    } range[GD_MAX_THREADS];
    _Alignas(64) atomic_int finished; /* ranges of this job */
    _Alignas(64) atomic_int sleepers;
    pthread_mutex_t sleep;
    pthread_cond_t wake;
    atomic_bool stop;
    atomic_bool spins; /* workers spin before they sleep; false: threads outnumber cores */
    int workers;
    int caller_cpu; /* the caller's core when last asked */
    int kept_aside; /* how many workers may not run on it */
    pthread_t worker[GD_MAX_THREADS - 1];
} pool = { .caller = PTHREAD_MUTEX_INITIALIZER,
           .sleep = PTHREAD_MUTEX_INITIALIZER,
           .wake = PTHREAD_COND_INITIALIZER };

static _Thread_local bool in_range;

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Range i of n holds count/n items, one more for the first count%n of them. */
static int64_t range_begin(int index, int ranges)
{
    const int64_t size = pool.job.count / ranges, longer = pool.job.count % ranges;
    return index * size + (index < longer ? index : longer);
}

/* Take items of range `index` and run them as thread `thread` until none is left. */
static void run_items(int index, int ranges, int thread)
{
    const int64_t end = range_begin(index + 1, ranges);
    const int64_t turn = (end - range_begin(index, ranges) + TURNS - 1) / TURNS;
    const int64_t few = turn > pool.job.grain ? turn : pool.job.grain;
    _Atomic int64_t *next = &pool.range[index].next;
    while (atomic_load_explicit(next, memory_order_relaxed) < end) {
        const int64_t at = atomic_fetch_add_explicit(next, few, memory_order_relaxed);
        if (at < end)
            pool.job.fn(pool.job.context, at, at + few < end ? at + few : end, thread);
    }
}

static void run_range(int index, int ranges)
{
    for (int i = 0; i < ranges; i++)
        run_items((index + i) % ranges, ranges, index);
}

/* Take and run ranges of job `number` until none is left. */
static void take_ranges(uint32_t number)
{
    uint64_t ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    in_range = true;
    while (NUMBER(ticket) == number && TAKEN(ticket) < RANGES(ticket)) {
        if (!atomic_compare_exchange_weak_explicit(&pool.ticket, &ticket, ticket + 1,
                                                   memory_order_acquire, memory_order_acquire))
            continue;
        run_range(TAKEN(ticket), RANGES(ticket));
        atomic_fetch_add_explicit(&pool.finished, 1, memory_order_release);
        ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire);
    }
    in_range = false;
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Check is_so(value) again and again, for about `time` nanoseconds at the most. Returns whether it
 * became true. */
static bool spin(bool (*is_so)(uint32_t value), uint32_t value, int64_t time)
{
    for (int64_t end = 0;;) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (is_so(value))
                return true;
            relax();
        }
        const int64_t now = nanoseconds();
        end = end ? end : now + time;
        if (now >= end)
            return false;
    }
}

static bool is_news(uint32_t seen)
{
    return NUMBER(atomic_load(&pool.ticket)) != seen || atomic_load(&pool.stop);
}

/* Wait for a job other than number `seen`. A worker counts itself asleep before it looks for
 * the last time, the caller publishes before it counts sleepers: one of them sees the other. */
static void wait_for_news(uint32_t seen)
{
    if (atomic_load(&pool.spins) && spin(is_news, seen, SPIN_BEFORE_SLEEP))
        return;
    pthread_mutex_lock(&pool.sleep);
    atomic_fetch_add(&pool.sleepers, 1);
    while (!is_news(seen))
        pthread_cond_wait(&pool.wake, &pool.sleep);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.sleep);
}

/* A thread that is woken may be put on the processor of the one who woke it, and wait there for a
 * time slice while another processor idles (seen on a virtual machine of two: 200 µs and more). So
 * workers may run anywhere but where the caller is. This costs a system call for each worker when
 * the caller has moved since, else none. */
static void keep_workers_aside(void)
{
#if defined(__linux__)
    const int cpu = sched_getcpu();
    if (cpu < 0 || (cpu == pool.caller_cpu && pool.kept_aside == pool.workers))
        return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    CPU_CLR((size_t)cpu, &allowed);
    for (int i = 0; i < pool.workers; i++)
        (void)pthread_setaffinity_np(pool.worker[i], sizeof allowed, &allowed);
    pool.caller_cpu = cpu;
    pool.kept_aside = pool.workers;
#endif
}

static void wake_sleepers(void)
{
    if (atomic_load(&pool.sleepers) == 0)
        return;
    keep_workers_aside();
    pthread_mutex_lock(&pool.sleep);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
}

static void *work(void *argument)
{
    uint32_t seen = (uint32_t)(uintptr_t)argument;
    while (wait_for_news(seen), !atomic_load(&pool.stop)) {
        seen = NUMBER(atomic_load(&pool.ticket));
        take_ranges(seen);
    }
    return NULL;
}

/* In the child of fork() there are no workers, and the locks are as they were. */
static void forget_workers(void)
{
    pthread_mutex_init(&pool.caller, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
    atomic_store(&pool.sleepers, 0);
    pool.workers = pool.kept_aside = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_workers);
}

/* Workers are made when first needed; fewer than wanted is no error. */
static void make_workers(int wanted)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    atomic_store(&pool.spins, wanted < gd_cpu_count());
    void *seen = (void *)(uintptr_t)NUMBER(atomic_load(&pool.ticket));
    while (pool.workers < wanted &&
           pthread_create(&pool.worker[pool.workers], NULL, work, seen) == 0)
        pool.workers++;
}

/* When the process ends or the library is unloaded. */
__attribute__((destructor)) static void end_workers(void)
{
    atomic_store(&pool.stop, true);
    wake_sleepers();
    for (int i = 0; i < pool.workers; i++)
        pthread_join(pool.worker[i], NULL);
    pool.workers = 0;
}

static bool is_finished(uint32_t ranges)
{
    return atomic_load_explicit(&pool.finished, memory_order_acquire) >= (int)ranges;
}

/* The caller holds the pool. */
static void run_job(gd_range_fn fn, void *context, int64_t count, int64_t grain, int ranges)
{
    if (pool.workers < ranges - 1)
        make_workers(ranges - 1);
    pool.job.fn = fn;
    pool.job.context = context;
    pool.job.count = count;
    pool.job.grain = grain > 1 ? grain : 1;
    for (int i = 0; i < ranges; i++)
        atomic_store_explicit(&pool.range[i].next, range_begin(i, ranges), memory_order_relaxed);
    atomic_store_explicit(&pool.finished, 0, memory_order_relaxed);
    uint32_t number = NUMBER(atomic_load(&pool.ticket)) + 1;
    atomic_store(&pool.ticket, TICKET(number, ranges, 0));
    wake_sleepers();
    take_ranges(number);
    if (!spin(is_finished, (uint32_t)ranges, SPIN_BEFORE_YIELD))
        while (!is_finished((uint32_t)ranges))
            sched_yield();
}

int gd_parallel_ranges(int threads, int64_t count, int64_t grain)
{
    int64_t ranges = grain > 1 ? count / grain : count;
    if (ranges > threads)
        ranges = threads;
    if (ranges > GD_MAX_THREADS)
        ranges = GD_MAX_THREADS;
    return ranges > 1 ? (int)ranges : 1;
}

void gd_parallel_for(int threads, int64_t count, int64_t grain, gd_range_fn fn, void *context)
{
    if (count <= 0)
        return;
    const int ranges = gd_parallel_ranges(threads, count, grain);
    if (ranges == 1 || in_range || pthread_mutex_trylock(&pool.caller) != 0) {
        fn(context, 0, count, 0);
        return;
    }
    run_job(fn, context, count, grain, ranges);
    pthread_mutex_unlock(&pool.caller);
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
