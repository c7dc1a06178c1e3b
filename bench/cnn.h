/* bench/cnn.h: what the benches of convolutional networks share: a training step against PyTorch
 * and JAX, and its peak memory. */
#ifndef GD_BENCH_CNN_H
#define GD_BENCH_CNN_H

#include <gradus/gradus.h>

#include <stdbool.h>

typedef struct gd_bench_cnn {
    const char *suite;
    gd_tensor *(*network)(gd_module *m, gd_tensor *x); /* x [batch, channels, height, width] */
    gd_shape input;                                    /* of x */
    int classes;
    bool digits; /* the batch is MNIST's first; otherwise noise */
    bool adam;   /* otherwise SGD */
    double learning_rate;
    double multiply_adds; /* of a step for one sample, forward and backward */
    int chunk;            /* steps timed together */
    double seconds;       /* of timing, for each side */
    double tolerance;     /* of the peers' losses; 0: 1e-4 */
} gd_bench_cnn;

/* The whole program: returns what main() returns. "--problem FILE" writes what the sides read; a mode
 * (gd_bench_parse_way), a number of threads and that file: one side of ours. */
int gd_bench_cnn_run(const gd_bench_cnn *cnn, int argument_count, char **arguments);

#endif
