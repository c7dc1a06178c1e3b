/* tests/fake_cuda/cudnn.h: a stand-in for cuDNN 9, as the engine finds it by GRADUS_CUDA_PATH:
 * libcudnn.so.9, on the stand-in for the driver (fake.h). Of the graph API it knows one convolution in
 * f32 and contiguous operands. It aborts with a sentence at an attribute that the descriptor does not have, at one of
 * another type or length, at what is set or asked at the wrong time, at sizes that are no convolution, at addresses that
 * are not aligned as was said or not the device's. Plans are executed late, on the handle's stream, by plain
 * loops, after the workspace was filled with garbage. It fails in its turn among the driver's calls.
 *
 * Its engines, as its heuristics propose them: first all that the caller must not take. */
#ifndef GD_TESTS_FAKE_CUDNN_H
#define GD_TESTS_FAKE_CUDNN_H

#include <stdint.h>

enum {
    FAKE_ENGINE_FALLBACK,        /* proposed by the fallback heuristics alone: sums in f32 */
    FAKE_ENGINE_F32,             /* sums in f64 */
    FAKE_ENGINE_DOWN_CONVERTING, /* factors have 11 significant bits */
    FAKE_ENGINE_TF32,            /* the same, on tensor cores */
    FAKE_ENGINE_LARGE,           /* wants 1 GiB */
    FAKE_ENGINE_SYMMETRIC,       /* refuses all but symmetric padding without groups */
    FAKE_ENGINE_REFUSING,        /* refuses every plan */
    FAKE_ENGINE_HALF_SUMS,       /* sums of few bits */
    FAKE_ENGINE_RACING,          /* not deterministic */
    FAKE_ENGINES,
    FAKE_ENGINES_ALL = (1 << FAKE_ENGINES) - 1,
};

typedef struct fake_cudnn {
    int64_t version;  /* $FAKE_CUDNN_VERSION at first */
    uint32_t engines; /* that are proposed: bit i is engine i; all but SYMMETRIC at first */
    int64_t plans, executions; /* how often */
    int64_t executed[FAKE_ENGINES];
} fake_cudnn;

/* Of the process. Exported by libcudnn.so.9. */
fake_cudnn *fake_cudnn_state(void);

#endif
