/* tests/fake_cuda/threads.c: threads as stacks that are switched between. See threads.h. */
#define _GNU_SOURCE
#include "threads.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fake.h"

uint64_t fake_mix(uint64_t x) /* splitmix64 */
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t divisor_of_both(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

fake_order fake_draw_order(uint64_t n, uint64_t seed)
{
    fake_order o = { .n = n, .step = 1, .start = n ? fake_mix(seed) % n : 0 };
    for (uint64_t i = 1; n > 1; i++) {
        o.step = 1 + fake_mix(seed + i) % (n - 1);
        if (divisor_of_both(o.step, n) == 1)
            break;
    }
    return o;
}

/* ---- stacks ---- */

enum {
    STACK = 256 << 10,
    MOST_BLOCKS = 16,
    MOST_OF_BLOCK = 1024,
    MOST = MOST_BLOCKS * MOST_OF_BLOCK
};

#if defined(__x86_64__)
/* Keeps the registers that a call keeps on the stack, whose end it stores, and goes on with another. */
void fake_switch(void **from, void *to);
__asm__(".text\n"
        ".globl fake_switch\n"
        ".type fake_switch, @function\n"
        "fake_switch:\n"
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "ret\n"
        ".size fake_switch, .-fake_switch\n");
typedef void *place;
static void go(place *from, const place *to)
{
    fake_switch(from, *to);
}
/* At the function's first instruction the stack is as a call leaves it. */
static void prepare(place *p, char *stack, void (*entry)(void))
{
    void **top = (void **)(stack + STACK) - 1;
    *top-- = NULL; /* where entry would return to */
    *top = *(void **)&entry;
    *p = top - 6;
}
#else
#include <ucontext.h>
typedef ucontext_t place;
static void go(place *from, const place *to)
{
    swapcontext(from, to);
}
static void prepare(place *p, char *stack, void (*entry)(void))
{
    getcontext(p);
    p->uc_stack.ss_sp = stack;
    p->uc_stack.ss_size = STACK;
    makecontext(p, entry, 0);
}
#endif

/* Where a thread has stopped. */
typedef enum stop { AT_BARRIER, AT_CLUSTER_BARRIER, AT_END } stop;
static const char *const stops[] = { "wait for them at a barrier",
                                     "wait at a barrier of the cluster", "have ended" };

static char *stacks;
static place places[MOST], scheduler;
static stop stopped[MOST];
static unsigned current, of_block;
static void (*run_body)(unsigned, void *);
static void *run_argument;

static void stop_at(stop where)
{
    stopped[current] = where;
    go(&places[current], &scheduler);
}

static void begin(void)
{
    run_body(current % of_block, run_argument);
    stop_at(AT_END);
}

void fake_barrier(void)
{
    stop_at(AT_BARRIER);
}

void fake_cluster_barrier(void)
{
    stop_at(AT_CLUSTER_BARRIER);
}

/* The threads of a block, each to where it stops: all at the same. */
static stop run_stretch(unsigned block, uint64_t seed)
{
    const fake_order order = fake_draw_order(of_block, seed);
    const unsigned first = block * of_block;
    for (unsigned i = 0; i < of_block; i++) {
        current = first + (unsigned)fake_in_order(&order, i);
        go(&scheduler, &places[current]);
    }
    for (unsigned i = 1; i < of_block; i++)
        if (stopped[first + i] != stopped[first])
            fake_cuda_forbid(
                "threads 0 and %u of a block of %u have parted: the first %s, the other "
                "%s",
                i, of_block, stops[stopped[first]], stops[stopped[first + i]]);
    return stopped[first];
}

/* The next block that can go on: as often as not the same. */
static unsigned next_block(const stop *at, unsigned blocks, unsigned last, uint64_t draw)
{
    unsigned next = draw % 2 ? last : (unsigned)(draw / 2 % blocks);
    while (at[next] != AT_BARRIER)
        next = (next + 1) % blocks;
    return next;
}

void fake_run_blocks(unsigned blocks, unsigned count, uint64_t seed,
                     void (*enter)(unsigned, void *), void (*body)(unsigned, void *),
                     void *argument)
{
    stop at[MOST_BLOCKS];
    if (count > MOST_OF_BLOCK || blocks > MOST_BLOCKS)
        fake_cuda_forbid("%u blocks of %u threads that wait for one another", blocks, count);
    if (!stacks)
        stacks = mmap(NULL, (size_t)STACK * MOST, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    run_body = body;
    run_argument = argument;
    of_block = count;
    for (unsigned i = 0; i < blocks * count; i++)
        prepare(&places[i], stacks + (size_t)STACK * i, begin);
    for (unsigned b = 0; b < blocks; b++)
        at[b] = AT_BARRIER;
    unsigned waiting = 0, ended = 0, block = 0;
    for (uint64_t stretch = 0; ended < blocks; stretch++) {
        block = next_block(at, blocks, block, fake_mix(seed + stretch));
        enter(block, argument);
        at[block] = run_stretch(block, seed + stretch);
        waiting += at[block] == AT_CLUSTER_BARRIER;
        ended += at[block] == AT_END;
        if (waiting && waiting + ended == blocks) {
            if (ended)
                fake_cuda_forbid(
                    "%u blocks of a cluster of %u have ended, the others wait for them", ended,
                    blocks);
            for (unsigned b = 0; b < blocks; b++)
                at[b] = AT_BARRIER;
            waiting = 0;
        }
    }
}

void fake_run_threads(unsigned count, uint64_t seed, void (*body)(unsigned, void *), void *argument)
{
    const fake_order order = fake_draw_order(count, seed);
    for (unsigned i = 0; i < count; i++)
        body((unsigned)fake_in_order(&order, i), argument);
}
