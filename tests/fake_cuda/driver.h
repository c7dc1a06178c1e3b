/* tests/fake_cuda/driver.h: what the files of the fake driver share: devices.c, works.c (memory, and
 * what is done with it), programs.c (streams, events, modules, graphs). See fake.h. One thread at a
 * time is let in. */
#ifndef GD_TESTS_FAKE_CUDA_DRIVER_H
#define GD_TESTS_FAKE_CUDA_DRIVER_H

#include "backend/cuda/api.h"
#include "fake.h"
#include "threads.h"

extern fake_cuda fake_machine;
uint64_t fake_draw(void);

/* ---- things: what is named by a pointer must be what it is taken for ---- */

enum kind { CONTEXT = 0x1c0de, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXECUTABLE };

struct CUctx_st {
    enum kind kind;
    int retained;
};
struct CUevent_st {
    enum kind kind;
    int64_t pending; /* records told and not reached */
    bool is_captured;
};
struct CUfunc_st {
    enum kind kind;
    CUmodule module;
    void (*run)(const char *arguments);
    int bytes; /* of its arguments */
    struct CUfunc_st *next;
};
struct index3 {
    unsigned x, y, z;
};
struct CUmod_st {
    enum kind kind;
    void *library;
    struct index3 *thread, *block, *block_size, *grid;
    bool has_barriers;
    int cluster; /* blocks of one */
    char *shared, *shared_end;
    CUfunction functions;
};

typedef enum work_kind { COPY_IN, COPY_OUT, COPY_WITHIN, KERNEL, CALL, RECORD } work_kind;
typedef struct work {
    work_kind kind;
    struct work *next;
    char *to;
    const char *from;
    char *staged; /* what was read when it was told */
    size_t bytes;
    CUevent event;
    CUfunction function;
    struct index3 grid, block;
    void (*call)(const void *arguments); /* a library's kernel */
    char *arguments;
} work;
typedef struct list {
    work *first, **end;
} list;
struct CUgraph_st {
    enum kind kind;
    list works;
};
struct CUstream_st {
    enum kind kind;
    list works;
    CUgraph capture; /* being made */
    bool is_spoilt;  /* the capture */
};

#define EXPECT(thing, of)                                                     \
    do {                                                                      \
        if (!(thing) || (thing)->kind != (of))                                \
            fake_cuda_forbid("%s is given what is no %s", __func__ + 2, #of); \
    } while (0)

struct CUgraphExec_st {
    enum kind kind;
    list works;
};

/* ---- devices.c ---- */

/* Lets the thread in, and counts the call: the error that it is to return. begin: of a function that
 * needs a context. */
int fake_begin(void);
int fake_begin_without_context(void);
int fake_end(int error); /* lets the next one in, and returns the error */

/* ---- works.c ---- */

enum { MOST_STREAMS = 64 };
extern CUstream fake_streams[MOST_STREAMS];

work *fake_new_work(work_kind kind);
void fake_free_work(work *w);
void fake_free_works(list *l);
void fake_add_work(list *l, work *w);
work *fake_take_work(list *l);
/* Something is told: it waits, and perhaps others now get done. */
int fake_tell(CUstream s, work *w);
/* A kernel of a library, which is given a copy of these bytes when it runs. */
int fake_tell_call(CUstream s, void (*call)(const void *), const void *arguments, size_t bytes);
/* An address of the device's memory, of so many bytes, or the end. */
char *fake_device_memory(CUdeviceptr address, size_t bytes, const char *who);
/* The stream's next `count` works, or with -1 all. */
void fake_progress(CUstream s, int64_t count);
void fake_finish_all(void);
/* Of what no capture may contain: the error, where there is a capture. */
int fake_spoils_captures(void);
void fake_barrier_of_kernel(void);
void fake_cluster_barrier_of_kernel(void);
void fake_drop_memory(void);

/* ---- programs.c ---- */

void fake_drop_things(void);

#endif
