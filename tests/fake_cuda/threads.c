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

enum { STACK = 256 << 10, MOST = 1024 };

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

static char *stacks;
static place places[MOST], scheduler;
static bool has_ended[MOST];
static unsigned current;
static void (*run_body)(unsigned, void *);
static void *run_argument;

static void begin(void)
{
    run_body(current, run_argument);
    has_ended[current] = true;
    place ended;
    go(&ended, &scheduler);
}

void fake_barrier(void)
{
    go(&places[current], &scheduler);
}

/* All threads from barrier to barrier. */
static void run_stretches(unsigned count, uint64_t seed)
{
    unsigned ended = 0;
    for (uint64_t stretch = 0; ended < count; stretch++) {
        const fake_order order = fake_draw_order(count, seed + stretch);
        for (unsigned i = 0; i < count; i++) {
            current = (unsigned)fake_in_order(&order, i);
            go(&scheduler, &places[current]);
            ended += has_ended[current];
        }
        if (ended && ended < count)
            fake_cuda_forbid("%u threads of a block of %u have ended, the others wait for them at "
                             "a barrier",
                             ended, count);
    }
}

void fake_run_threads(unsigned count, uint64_t seed, int barriers, void (*body)(unsigned, void *),
                      void *argument)
{
    if (count > MOST)
        fake_cuda_forbid("a block of %u threads", count);
    if (!barriers) {
        const fake_order order = fake_draw_order(count, seed);
        for (unsigned i = 0; i < count; i++)
            body((unsigned)fake_in_order(&order, i), argument);
        return;
    }
    if (!stacks)
        stacks = mmap(NULL, (size_t)STACK * MOST, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    run_body = body;
    run_argument = argument;
    for (unsigned i = 0; i < count; i++) {
        has_ended[i] = false;
        prepare(&places[i], stacks + (size_t)STACK * i, begin);
    }
    run_stretches(count, seed);
}
