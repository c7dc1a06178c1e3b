/* tests/fake_cuda/threads.h: the threads of a block, or of the blocks of a cluster, run one at a time: each
 * until the next barrier, in an order drawn anew for each stretch. Of a cluster's blocks one after
 * another has a stretch, as is drawn, so that one may be far ahead of the others. */
#ifndef GD_TESTS_FAKE_CUDA_THREADS_H
#define GD_TESTS_FAKE_CUDA_THREADS_H

#include <stdint.h>

/* Runs body(number, argument) for each of `count` threads of a block. */
void fake_run_threads(unsigned count, uint64_t seed, void (*body)(unsigned, void *),
                      void *argument);
/* The same of `blocks` blocks, after each enter(block, argument). The body may call fake_barrier, and then
 * all threads of its block do, and fake_cluster_barrier, and then all of all do. */
void fake_run_blocks(unsigned blocks, unsigned count, uint64_t seed,
                     void (*enter)(unsigned, void *), void (*body)(unsigned, void *),
                     void *argument);
void fake_barrier(void);
void fake_cluster_barrier(void);

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
