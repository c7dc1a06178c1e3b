/* tests/fake_cuda/threads.h: the threads of a block, run one at a time: each until the next barrier,
 * in an order drawn anew for each stretch. */
#ifndef GD_TESTS_FAKE_CUDA_THREADS_H
#define GD_TESTS_FAKE_CUDA_THREADS_H

#include <stdint.h>

/* Runs body(number, argument) for each of `count` threads. `barriers`: it may call fake_barrier, and
 * then all of them do. */
void fake_run_threads(unsigned count, uint64_t seed, int barriers, void (*body)(unsigned, void *),
                      void *argument);
void fake_barrier(void);

/* A permutation of 0 … n-1: i -> (i * step + start) % n. */
typedef struct fake_order {
    uint64_t n, step, start;
} fake_order;
fake_order fake_draw_order(uint64_t n, uint64_t seed);
static inline uint64_t fake_in_order(const fake_order *o, uint64_t i)
{
    return (i * o->step + o->start) % o->n;
}

uint64_t fake_mix(uint64_t x);

#endif
