/* tests/fake_cuda/fake.h: a stand-in for NVIDIA's driver, for NVRTC and for cuBLASLt, as the engine finds
 * them by GRADUS_CUDA_PATH: libcuda.so.1, libnvrtc.so.13, libcublasLt.so.13. It does what the
 * documentation of the functions says, at the worst moment that this allows, and aborts with a sentence
 * at what it forbids:
 *
 *  - The device's memory may be accessed by kernels and copies alone: the host faults. Blocks end at a
 *    page without access.
 *  - What is told is done late: when somebody waits, or at moments drawn from `seed`. Copies from
 *    page-locked memory read it then.
 *  - Kernels are the text that NVRTC is given, compiled by the host's C++ compiler ($CXX, else c++;
 *    $FAKE_CUDA_FLAGS are added). Blocks, and a block's threads between two barriers, run in orders
 *    drawn from the seed; __shared__ memory is garbage when a block begins. The blocks of a cluster run
 *    at the same time, each between two barriers in turns drawn from the seed.
 *  - Products are sums in f64, rounded once, so other bits than the engine's; with orders_differ they are
 *    of f32. What is said of matrices, of their alignment and of the workspace is held against the
 *    memory there is.
 *  - The n-th call fails. What there is of everything is counted, so that leaks show.
 *
 * With $FAKE_CUDA_TEXTS, a folder, texts of kernels are only written there; the kernels do nothing.
 *
 * What it cannot tell: speed, races between blocks that are no cluster's, how NVIDIA's own code differs from what is
 * documented. */
#ifndef GD_TESTS_FAKE_CUDA_H
#define GD_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_cuda {
    /* What the machine is: $FAKE_CUDA_DRIVER, _ARCHITECTURE, _DEVICES, _MEMORY at first. */
    int driver_version, architecture, devices;
    size_t memory; /* bytes of each device */
    uint64_t seed; /* $FAKE_CUDA_SEED */
    /* The call that fails, counted from 0 at `calls` = 0 (-1: none), and its error. NVRTC's calls
     * then fail with its own. After an error that ends a context every call fails with it. */
    int64_t fail_at;
    int fail_with;
    int lost; /* that error */

    bool forgets_barriers; /* of a block: its threads go on */
    bool forgets_clusters; /* a barrier of a cluster is one of each block by itself */
    bool refuses_products; /* cuBLASLt knows no algorithm */
    bool orders_differ;    /* each of its algorithms sums in f32, in an order of its own */

    /* how often */
    int64_t calls, launches, graph_launches, uploads, downloads, copies, waits, compilations;
    int64_t products, heuristics, checks; /* cuBLASLt's */
    /* how many there are */
    int64_t contexts, streams, events, modules, blocks, host_blocks, graphs, programs;
    int64_t handles, descriptors; /* of libraries */
    size_t taken;                 /* bytes of blocks */
} fake_cuda;

/* Of the process. Exported by libcuda.so.1: a test finds it by dlopen and dlsym. */
fake_cuda *fake_cuda_state(void);
/* Counts a call: whether it is to fail. */
bool fake_cuda_call(void);
/* Frees nothing, and ends the process: the sentence says what no driver would have forgiven. */
void fake_cuda_forbid(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* An image, as fake NVRTC makes and the fake driver loads it: this, then a shared library. */
#define FAKE_IMAGE_MAGIC "fake image\n"
typedef struct fake_image {
    char magic[16];
    uint64_t bytes; /* of the library */
    int32_t architecture;
    int32_t is_machine_code;
} fake_image;

#endif
