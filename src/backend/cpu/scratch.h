/* backend/cpu/scratch.h: scratch memory of kernels. There is an area for each thread: in the memory of
 * a plan, which asks each kernel how much it takes (gd_backend.scratch), or for eager ops in the
 * device's, allocated when it is opened, so that running allocates nothing. A kernel takes blocks from
 * the area of its thread, one behind the other. A gd_scratch is a value: what a function takes from its copy
 * is free again when it returns.
 *
 *     gd_scratch s = gd_scratch_of(call, thread);
 *     float *band = gd_scratch_take(&s, count * sizeof *band);
 *
 * A block that does not fit ends the process, in every build: kernels choose their path and their
 * blocking so that it cannot happen. Under the address sanitizer a gap stands behind each block,
 * and what is not taken is poisoned; to MemorySanitizer a block is new memory.
 */
#ifndef GD_BACKEND_CPU_SCRATCH_H
#define GD_BACKEND_CPU_SCRATCH_H

#include <stddef.h>

#include "base/poison.h"

#ifdef GD_POISONING
#define GD_SCRATCH_GAP ((size_t)64) /* behind each block */
#else
#define GD_SCRATCH_GAP ((size_t)0)
#endif

#define GD_SCRATCH_ALIGN 64 /* bytes: of areas and blocks */

/* The areas of `threads` threads, side by side. */
typedef struct gd_workspace {
    char *memory; /* aligned */
    size_t bytes; /* of each thread, whole alignments */
    int threads;
} gd_workspace;

/* What is left of an area. */
typedef struct gd_scratch {
    char *next, *end;
} gd_scratch;

/* Bytes of the area of a thread whose kernels take at most `bytes`, in at most `blocks` blocks. */
static inline size_t gd_scratch_bytes(size_t bytes, size_t blocks)
{
    const size_t each = GD_SCRATCH_ALIGN + GD_SCRATCH_GAP;
    return (bytes + blocks * each) / GD_SCRATCH_ALIGN * GD_SCRATCH_ALIGN;
}

/* Ends the process with a sentence. */
_Noreturn void gd_scratch_overrun(size_t bytes, size_t left);

static inline gd_scratch gd_scratch_make(char *memory, size_t bytes)
{
    gd_poison(memory, bytes);
    return (gd_scratch){ memory, memory + bytes };
}

/* The area of a thread; all of it is free. */
static inline gd_scratch gd_scratch_of_thread(const gd_workspace *w, int thread)
{
    if (thread < 0 || thread >= w->threads)
        gd_scratch_overrun(w->bytes, 0);
    return gd_scratch_make(w->memory + (size_t)thread * w->bytes, w->bytes);
}

/* The areas of the first `threads` threads as one, for what these threads share. */
static inline gd_scratch gd_scratch_of_threads(const gd_workspace *w, int threads)
{
    if (threads > w->threads)
        gd_scratch_overrun((size_t)threads * w->bytes, (size_t)w->threads * w->bytes);
    return gd_scratch_make(w->memory, (size_t)threads * w->bytes);
}

/* Bytes that one more block may have. */
static inline size_t gd_scratch_left(const gd_scratch *s)
{
    return (size_t)(s->end - s->next);
}

/* A block of `bytes`, aligned. */
static inline void *gd_scratch_take(gd_scratch *s, size_t bytes)
{
    char *block = s->next;
    const size_t left = gd_scratch_left(s);
    if (bytes > left)
        gd_scratch_overrun(bytes, left);
    const size_t size =
        (bytes + GD_SCRATCH_ALIGN - 1) / GD_SCRATCH_ALIGN * GD_SCRATCH_ALIGN + GD_SCRATCH_GAP;
    s->next = size < left ? block + size : s->end;
    gd_poison(block, left); /* an earlier block's memory may be part of it */
    gd_unpoison(block, bytes);
    gd_forget(block, bytes);
    return block;
}

/* What is left, as the workspace of a kernel that this one calls in the same thread. */
static inline gd_workspace gd_scratch_rest(const gd_scratch *s)
{
    return (gd_workspace){ s->next, gd_scratch_left(s), 1 };
}

#endif
