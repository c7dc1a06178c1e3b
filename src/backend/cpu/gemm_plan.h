/* backend/cpu/gemm_plan.h: how a product is computed, decided before it is: gemm_choose.c makes a
 * plan of layouts and sizes alone, gemm_driver.c does what it says.
 */
#ifndef GD_BACKEND_CPU_GEMM_PLAN_H
#define GD_BACKEND_CPU_GEMM_PLAN_H

#include "backend/cpu/gemm_micro.h"
#include "base/text.h"

/* How a thread computes its piece. */
typedef enum gd_gemm_way {
    GD_GEMM_BLOCKS,    /* tiles, in blocks of k */
    GD_GEMM_CHAINS,    /* row by row: sums in registers, four blocks of k side by side */
    GD_GEMM_STREAMS,   /* row by row: B is read once, eight rows abreast, sums in the cache */
    GD_GEMM_DOTS,      /* row by row: dot products with B's columns, a square of them at a time */
    GD_GEMM_SCALARS,   /* row by row: dot products, number by number */
    GD_GEMM_STRETCHES, /* one row, by all threads: each reads a stretch of B's rows */
} gd_gemm_way;

/* A decision and why: the rule that held. */
typedef struct gd_gemm_choice {
    int taken;
    const char *why;
} gd_gemm_choice;

typedef struct gd_gemm_plan {
    /* The product at batch index 0. Its addresses are those of the operands when the plan was made. */
    gd_gemm_product first;
    gd_gemm_choice transposed; /* computed as C^T = B^T A^T */
    gd_gemm_choice way, pack_a, pack_b, stream_c;
    bool has_steps;                          /* false: k == 0, and C is the bias alone */
    int threads, asked;                      /* those used; the most that the plan was made for */
    int64_t pieces, row_parts, column_parts; /* of the batch; of one product */
    int64_t block_columns;                   /* of B, packed together at most */
    int batch_rank; /* of what follows, with a and b exchanged if transposed */
    int64_t batch_shape[GD_GEMM_BATCH_RANK];
    int64_t a_batch_stride[GD_GEMM_BATCH_RANK];
    int64_t b_batch_stride[GD_GEMM_BATCH_RANK];
    int64_t c_batch_stride[GD_GEMM_BATCH_RANK];
} gd_gemm_plan;

/* Makes a plan. False where there is nothing to compute. */
bool gd_gemm_choose(const gd_gemm_micro *micro, const gd_gemm_args *args, gd_gemm_plan *plan);

/* Whether a product with a constant B runs faster when B is packed once (gd_gemm_args.b_packed). */
bool gd_gemm_packs_once(const gd_gemm_micro *micro, const gd_gemm_args *args);

/* The operands of a call, with the layouts that its plan was made of. */
typedef struct gd_gemm_operands {
    const void *a, *b;
    const void *bias, *relu_result, *b_packed; /* NULL where gd_gemm_args had them so */
    void *c;
} gd_gemm_operands;

/* Does what a plan says. The workspace is one of plan->threads threads. */
void gd_gemm_run(const gd_gemm_micro *micro, const gd_gemm_plan *plan,
                 const gd_gemm_operands *operands, const gd_workspace *workspace);

/* The workspace that gd_gemm_run takes for a plan, whose memory is still to be given: bytes for each
 * of some threads. */
gd_workspace gd_gemm_plan_scratch(const gd_gemm_micro *micro, const gd_gemm_plan *plan);

/* The most that a product takes which one thread computes: of at most `width` rows and columns, and
 * `depth` steps. Without gd_gemm_args.access. */
size_t gd_gemm_most_bytes(const gd_gemm_micro *micro, const gd_paths *paths, int64_t width,
                          int64_t depth);

/* The plan in words: the way, what is packed, threads, each with the rule that held. */
void gd_gemm_explain(const gd_gemm_micro *micro, const gd_gemm_plan *plan, gd_text *text);

/* ---- gemm_rows.c: products with one row ---- */

/* By streams; one of whose scratch. */
void gd_gemm_streams(const gd_gemm_micro *micro, const gd_gemm_product *p, gd_scratch scratch);

/* Bytes that streams take. */
size_t gd_gemm_streams_bytes(const gd_gemm_micro *micro, int64_t n);
/* Whether stretches compute it in the scratch of `threads` threads. */
bool gd_gemm_takes_stretches(const gd_gemm_micro *micro, const gd_gemm_product *p,
                             const gd_paths *paths, int threads);
void gd_gemm_stretches(const gd_gemm_micro *micro, const gd_gemm_product *p,
                       const gd_workspace *workspace, int threads);
/* Bytes that they take of the areas of all threads together. */
size_t gd_gemm_stretches_bytes(const gd_gemm_micro *micro, const gd_gemm_product *p, int threads);

#define GD_GEMM_STREAM_BYTES 16384 /* streams take columns in runs of so many bytes of C */

/* Element `index` of numbers of `bytes` bytes each. */
static inline const void *gd_gemm_at(const void *p, int64_t index, int bytes)
{
    return (const char *)p + index * bytes;
}

static inline int64_t gd_gemm_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
