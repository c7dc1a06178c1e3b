/* tests/fake_cuda/cuda.c: the fake driver: devices, contexts, memory, streams, events, modules, graphs.
 * See fake.h. One thread at a time is let in. */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/api.h"
#include "threads.h"

enum { MOST_BLOCKS = 4096, MOST_STACKED = 16, PAGE = 4096, FIRST_ADDRESS_ALIGNMENT = 256 };

static fake_cuda state = { .fail_at = -1 };
static pthread_mutex_t lock; /* recursive */
static bool is_begun;

void fake_cuda_forbid(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "fake CUDA: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void read_settings(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    state.driver_version = (int)setting("FAKE_CUDA_DRIVER", 13000);
    state.architecture = (int)setting("FAKE_CUDA_ARCHITECTURE", 90);
    state.devices = (int)setting("FAKE_CUDA_DEVICES", 2);
    state.memory = (size_t)setting("FAKE_CUDA_MEMORY", 4L << 30);
    state.seed = (uint64_t)setting("FAKE_CUDA_SEED", 1);
}

fake_cuda *fake_cuda_state(void)
{
    return &state;
}

static bool ends_context(int error)
{
    return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_FAILED;
}

bool fake_cuda_call(void)
{
    return state.calls++ == state.fail_at;
}

/* The same for the driver's. */
static int driver_call(void)
{
    const bool fails = fake_cuda_call();
    if (fails && !state.lost && ends_context(state.fail_with))
        state.lost = state.fail_with;
    return state.lost ? state.lost : fails ? state.fail_with : CUDA_SUCCESS;
}

static uint64_t draw(void)
{
    return fake_mix(state.seed++);
}

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
    char *shared, *shared_end;
    CUfunction functions;
};

typedef enum work_kind { COPY_IN, COPY_OUT, COPY_WITHIN, KERNEL, RECORD } work_kind;
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

/* ---- contexts ---- */

enum { MOST_DEVICES = 8 };
static struct CUctx_st contexts[MOST_DEVICES];
static _Thread_local CUcontext stack[MOST_STACKED];
static _Thread_local int stacked;

static CUcontext current(void)
{
    return stacked ? stack[stacked - 1] : NULL;
}

/* begin(): of a function that needs a context. */
static int begin_without_context(void)
{
    pthread_mutex_lock(&lock);
    if (!is_begun)
        fake_cuda_forbid("a function of the driver is called before cuInit");
    return driver_call();
}

static int begin(void)
{
    const int error = begin_without_context();
    return error                                    ? error
           : !current() || current()->retained == 0 ? CUDA_ERROR_INVALID_CONTEXT
                                                    : CUDA_SUCCESS;
}

static int end(int error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

int cuInit(unsigned flags)
{
    (void)flags;
    is_begun = true;
    pthread_mutex_lock(&lock);
    return end(state.devices == 0 ? CUDA_ERROR_NO_DEVICE : driver_call());
}

int cuDriverGetVersion(int *version)
{
    *version = state.driver_version;
    return CUDA_SUCCESS;
}

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
      "no kernel image is available for execution on the device" },
    { CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
};

int cuGetErrorName(int error, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return *name = errors[i].name, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return *text = errors[i].text, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    *count = state.devices;
    return end(begin_without_context());
}

int cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    const int error = begin_without_context();
    return end(error ? error : index < state.devices ? 0 : CUDA_ERROR_INVALID_DEVICE);
}

int cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return end(begin_without_context());
}

int cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? state.architecture / 10
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? state.architecture % 10
                                                                         : 4;
    return end(begin_without_context());
}

int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = state.memory;
    return end(begin_without_context());
}

int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const int error = begin_without_context();
    if (error == 0) {
        *context = &contexts[device];
        (*context)->kind = CONTEXT;
        (*context)->retained++;
        state.contexts++;
    }
    return end(error);
}

int cuCtxPushCurrent_v2(CUcontext context)
{
    const int error = begin_without_context();
    EXPECT(context, CONTEXT);
    if (error == 0 && stacked == MOST_STACKED)
        fake_cuda_forbid("contexts are made current and not taken back");
    if (error == 0)
        stack[stacked++] = context;
    return end(error);
}

int cuCtxPopCurrent_v2(CUcontext *context)
{
    if (stacked == 0)
        fake_cuda_forbid("no context is current that could be taken back");
    *context = stack[--stacked];
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

typedef struct block {
    char *map, *address;
    size_t mapped, bytes;
} block;
static block blocks[MOST_BLOCKS], host_blocks[MOST_BLOCKS];
static bool is_open; /* the device is at work: its memory may be accessed */

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The device's memory for itself alone, or for works. */
static void open_memory(bool opens)
{
    for (int i = 0; i < MOST_BLOCKS && opens != is_open; i++)
        if (blocks[i].map)
            mprotect(blocks[i].map, whole_pages(blocks[i].mapped) - PAGE,
                     opens ? PROT_READ | PROT_WRITE : PROT_NONE);
    is_open = opens;
}

static block *block_at(block *all, const void *address, size_t bytes)
{
    for (int i = 0; i < MOST_BLOCKS; i++) {
        const block *b = &all[i];
        if (b->map && (const char *)address >= b->address &&
            (const char *)address + bytes <= b->address + b->bytes)
            return &all[i];
    }
    return NULL;
}

static block *free_block(block *all)
{
    for (int i = 0; i < MOST_BLOCKS; i++)
        if (!all[i].map)
            return &all[i];
    fake_cuda_forbid("too many blocks");
}

/* Ends at a page without access; its first bytes are garbage. */
static void map_block(block *b, size_t bytes, int access)
{
    const size_t aligned =
        (bytes + FIRST_ADDRESS_ALIGNMENT - 1) / FIRST_ADDRESS_ALIGNMENT * FIRST_ADDRESS_ALIGNMENT;
    b->mapped = whole_pages(aligned) + PAGE;
    b->bytes = bytes;
    b->map = mmap(NULL, b->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->map == MAP_FAILED)
        fake_cuda_forbid("the machine has no memory");
    b->address = b->map + b->mapped - PAGE - aligned;
    mprotect(b->map, b->mapped - PAGE, PROT_READ | PROT_WRITE);
    memset(b->address, 0xA5, bytes < PAGE ? bytes : PAGE);
    mprotect(b->map, b->mapped - PAGE, access);
}

static void unmap_block(block *b)
{
    munmap(b->map, b->mapped);
    *b = (block){ NULL };
}

int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    const int error = begin();
    *total = state.memory;
    *available = state.memory - state.taken;
    return end(error);
}

int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    int error = begin();
    if (error == 0)
        error = bytes == 0                           ? CUDA_ERROR_INVALID_VALUE
                : bytes > state.memory - state.taken ? CUDA_ERROR_OUT_OF_MEMORY
                                                     : CUDA_SUCCESS;
    if (error == 0) {
        block *b = free_block(blocks);
        map_block(b, bytes, PROT_NONE);
        state.blocks++;
        state.taken += bytes;
        *address = (uintptr_t)b->address;
    }
    return end(error);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    const int error = begin();
    if (error == 0) {
        block *b = free_block(host_blocks);
        map_block(b, bytes, PROT_READ | PROT_WRITE);
        state.host_blocks++;
        *address = b->address;
    }
    return end(error);
}

/* ---- works ---- */

static void add(list *l, work *w)
{
    if (!l->first)
        l->end = &l->first;
    *l->end = w;
    l->end = &w->next;
}

static work *take(list *l)
{
    work *w = l->first;
    l->first = w->next;
    return w;
}

static void free_work(work *w)
{
    free(w->staged);
    free(w->arguments);
    free(w);
}

static work *new_work(work_kind kind)
{
    work *w = calloc(1, sizeof *w);
    w->kind = kind;
    return w;
}

typedef struct running {
    const work *kernel;
    CUmodule module;
} running;

static void run_thread(unsigned number, void *argument)
{
    const running *r = argument;
    const struct index3 size = r->kernel->block;
    *r->module->thread =
        (struct index3){ number % size.x, number / size.x % size.y, number / size.x / size.y };
    r->kernel->function->run(r->kernel->arguments);
}

/* threadIdx is one variable: threads get theirs back behind a barrier. */
static CUmodule barrier_module;
static void barrier(void)
{
    const struct index3 own = *barrier_module->thread;
    fake_barrier();
    *barrier_module->thread = own;
}

static void run_kernel(const work *w)
{
    CUmodule m = w->function->module;
    if (!m->library)
        return;
    running r = { w, m };
    const uint64_t grid = (uint64_t)w->grid.x * w->grid.y * w->grid.z;
    const fake_order order = fake_draw_order(grid, draw());
    *m->block_size = w->block;
    *m->grid = w->grid;
    barrier_module = m;
    for (uint64_t i = 0; i < grid; i++) {
        const uint64_t b = fake_in_order(&order, i);
        *m->block =
            (struct index3){ (unsigned)(b % w->grid.x), (unsigned)(b / w->grid.x % w->grid.y),
                             (unsigned)(b / w->grid.x / w->grid.y) };
        if (m->shared)
            memset(m->shared, 0xA5, (size_t)(m->shared_end - m->shared));
        fake_run_threads(w->block.x * w->block.y * w->block.z, draw(), m->has_barriers, run_thread,
                         &r);
    }
}

static void run(const work *w)
{
    open_memory(true);
    if (w->kind == KERNEL)
        run_kernel(w);
    else if (w->kind == RECORD)
        w->event->pending--;
    else
        memcpy(w->to, w->staged ? w->staged : w->from, w->bytes);
}

/* The stream's next `count` works, or with -1 all. */
static void progress(CUstream s, int64_t count)
{
    for (; s->works.first && count != 0; count--) {
        work *w = take(&s->works);
        run(w);
        free_work(w);
    }
    open_memory(false);
}

/* Something is told: it waits, and perhaps others now get done. */
static int tell(CUstream s, work *w)
{
    if (s->capture) {
        add(&s->capture->works, w);
        return CUDA_SUCCESS;
    }
    add(&s->works, w);
    if (draw() % 8 == 0)
        progress(s, (int64_t)(draw() % 16));
    return CUDA_SUCCESS;
}

enum { MOST_STREAMS = 64 };
static CUstream streams[MOST_STREAMS];

static void finish_all(void)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        if (streams[i])
            progress(streams[i], -1);
}

/* What no capture may contain. */
static int spoils_captures(void)
{
    int error = CUDA_SUCCESS;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (streams[i] && streams[i]->capture) {
            streams[i]->is_spoilt = true;
            error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return error;
}

int cuMemFree_v2(CUdeviceptr address)
{
    const int error = begin();
    block *b = block_at(blocks, (const void *)(uintptr_t)address, 1);
    if (!b || (uintptr_t)b->address != address)
        fake_cuda_forbid("cuMemFree of what is no block");
    if (spoils_captures())
        fake_cuda_forbid("cuMemFree while a stream is being captured");
    finish_all();
    state.blocks--;
    state.taken -= b->bytes;
    unmap_block(b);
    return end(error);
}

int cuMemFreeHost(void *address)
{
    const int error = begin();
    block *b = block_at(host_blocks, address, 1);
    if (!b || b->address != address)
        fake_cuda_forbid("cuMemFreeHost of what is no block");
    finish_all();
    state.host_blocks--;
    unmap_block(b);
    return end(error);
}

static char *device_memory(CUdeviceptr address, size_t bytes, const char *who)
{
    char *at = (char *)(uintptr_t)address;
    if (!block_at(blocks, at, bytes))
        fake_cuda_forbid("%s: %zu bytes at %p are not the device's", who, bytes, (void *)at);
    return at;
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    const int error = begin();
    EXPECT(s, STREAM);
    if (error)
        return end(error);
    const bool is_locked = block_at(host_blocks, from, bytes) != NULL;
    if (s->capture && !is_locked)
        return end(spoils_captures());
    work *w = new_work(COPY_IN);
    w->to = device_memory(to, bytes, __func__);
    w->from = from;
    w->bytes = bytes;
    if (!is_locked) {
        w->staged = malloc(bytes);
        memcpy(w->staged, from, bytes);
    }
    state.uploads++;
    return end(tell(s, w));
}

int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    const int error = begin();
    EXPECT(s, STREAM);
    if (error)
        return end(error);
    const bool is_locked = block_at(host_blocks, to, bytes) != NULL;
    if (s->capture && !is_locked)
        return end(spoils_captures());
    work *w = new_work(COPY_OUT);
    w->to = to;
    w->from = device_memory(from, bytes, __func__);
    w->bytes = bytes;
    state.downloads++;
    tell(s, w);
    if (!is_locked)
        progress(s, -1);
    return end(CUDA_SUCCESS);
}

int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    const int error = begin();
    EXPECT(s, STREAM);
    if (error)
        return end(error);
    work *w = new_work(COPY_WITHIN);
    w->to = device_memory(to, bytes, __func__);
    w->from = device_memory(from, bytes, __func__);
    w->bytes = bytes;
    if (w->to < w->from + bytes && w->from < w->to + bytes)
        fake_cuda_forbid("%s: what is copied overlaps", __func__);
    state.copies++;
    return end(tell(s, w));
}

/* ---- streams and events ---- */

int cuStreamCreate(CUstream *s, unsigned flags)
{
    const int error = begin();
    (void)flags;
    for (int i = 0; error == 0 && i < MOST_STREAMS; i++)
        if (!streams[i]) {
            *s = streams[i] = calloc(1, sizeof **s);
            (*s)->kind = STREAM;
            state.streams++;
            break;
        }
    return end(error);
}

int cuStreamDestroy_v2(CUstream s)
{
    const int error = begin();
    EXPECT(s, STREAM);
    progress(s, -1);
    for (int i = 0; i < MOST_STREAMS; i++)
        if (streams[i] == s)
            streams[i] = NULL;
    s->kind = 0;
    free(s);
    state.streams--;
    return end(error);
}

int cuStreamSynchronize(CUstream s)
{
    int error = begin();
    EXPECT(s, STREAM);
    if (error == 0 && s->capture)
        error = spoils_captures();
    if (error == 0) {
        state.waits++;
        progress(s, -1);
    }
    return end(error);
}

int cuEventCreate(CUevent *event, unsigned flags)
{
    const int error = begin();
    (void)flags;
    if (error == 0) {
        *event = calloc(1, sizeof **event);
        (*event)->kind = EVENT;
        state.events++;
    }
    return end(error);
}

int cuEventDestroy_v2(CUevent event)
{
    const int error = begin();
    EXPECT(event, EVENT);
    if (event->pending)
        finish_all();
    event->kind = 0;
    free(event);
    state.events--;
    return end(error);
}

int cuEventRecord(CUevent event, CUstream s)
{
    const int error = begin();
    EXPECT(event, EVENT);
    EXPECT(s, STREAM);
    if (error)
        return end(error);
    event->is_captured = s->capture != NULL;
    event->pending += !event->is_captured;
    work *w = new_work(RECORD);
    w->event = event;
    return end(tell(s, w));
}

int cuEventQuery(CUevent event)
{
    int error = begin();
    EXPECT(event, EVENT);
    if (error == 0 && event->is_captured)
        error =
            spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_INVALID_VALUE;
    return end(error ? error : event->pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

int cuEventSynchronize(CUevent event)
{
    int error = begin();
    EXPECT(event, EVENT);
    if (error == 0 && event->is_captured)
        error =
            spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (error == 0) {
        state.waits++;
        if (event->pending)
            finish_all();
    }
    return end(error);
}

/* ---- modules and kernels ---- */

/* A shared library from memory, under a name of its own, or the loader takes it for one it has. */
static void *open_image(const char *bytes, size_t count)
{
    char path[] = "/tmp/fake-cuda-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        fake_cuda_forbid("an image cannot be kept");
    close(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    return library;
}

static CUmodule make_module(void *library)
{
    CUmodule m = calloc(1, sizeof *m);
    m->kind = MODULE;
    state.modules++;
    if (!library)
        return m;
    m->library = library;
    m->thread = dlsym(library, "threadIdx");
    m->block = dlsym(library, "blockIdx");
    m->block_size = dlsym(library, "blockDim");
    m->grid = dlsym(library, "gridDim");
    m->has_barriers = *(const int *)dlsym(library, "fake_has_barriers");
    *(void (**)(void))dlsym(library, "fake_barrier") = barrier;
    void (*shared)(char **, char **);
    *(void **)&shared = dlsym(library, "fake_shared_memory");
    shared(&m->shared, &m->shared_end);
    return m;
}

/* Machine code runs on devices of its major version, from its minor one on; intermediate code on all
 * that are not older. */
static int check_image(const fake_image *image)
{
    if (memcmp(image->magic, FAKE_IMAGE_MAGIC, sizeof FAKE_IMAGE_MAGIC) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    const bool fits =
        image->architecture <= state.architecture &&
        (!image->is_machine_code || image->architecture / 10 == state.architecture / 10);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

int cuModuleLoadData(CUmodule *module, const void *data)
{
    int error = begin();
    fake_image image;
    memcpy(&image, data, sizeof image);
    if (error == 0)
        error = check_image(&image);
    const bool is_empty = error == 0 && image.bytes == 0; /* a text that was kept */
    void *library =
        error || is_empty ? NULL : open_image((const char *)data + sizeof image, image.bytes);
    if (error == 0 && !library && !is_empty)
        error = CUDA_ERROR_INVALID_IMAGE;
    if (error == 0)
        *module = make_module(library);
    return end(error);
}

int cuModuleUnload(CUmodule m)
{
    const int error = begin();
    EXPECT(m, MODULE);
    finish_all();
    for (CUfunction f = m->functions, next; f; f = next) {
        next = f->next;
        f->kind = 0;
        free(f);
    }
    if (m->library)
        dlclose(m->library);
    m->kind = 0;
    free(m);
    state.modules--;
    return end(error);
}

int cuModuleGetFunction(CUfunction *function, CUmodule m, const char *name)
{
    const int error = begin();
    EXPECT(m, MODULE);
    char symbol[128];
    snprintf(symbol, sizeof symbol, "fake_run_%s", name);
    void *run_symbol = m->library ? dlsym(m->library, symbol) : NULL;
    snprintf(symbol, sizeof symbol, "fake_bytes_%s", name);
    const int *bytes = m->library ? dlsym(m->library, symbol) : NULL;
    if (error || (m->library && (!run_symbol || !bytes)))
        return end(error ? error : CUDA_ERROR_NOT_FOUND);
    CUfunction f = calloc(1, sizeof *f);
    *f = (struct CUfunc_st){
        .kind = FUNCTION, .module = m, .bytes = bytes ? *bytes : -1, .next = m->functions
    };
    *(void **)&f->run = run_symbol;
    m->functions = f;
    *function = f;
    return end(CUDA_SUCCESS);
}

/* What `extra` says. */
static const char *packed_arguments(void **extra, size_t *bytes)
{
    const char *packed = NULL;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            packed = extra[1];
        else
            *bytes = *(size_t *)extra[1];
    }
    return packed;
}

int cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   CUstream s, void **parameters, void **extra)
{
    const int error = begin();
    EXPECT(f, FUNCTION);
    EXPECT(s, STREAM);
    const uint64_t threads = (uint64_t)block_x * block_y * block_z;
    size_t bytes = 0;
    const char *packed = extra && !parameters ? packed_arguments(extra, &bytes) : NULL;
    if (!packed || (f->bytes >= 0 && bytes != (size_t)f->bytes) || bytes > 4096)
        fake_cuda_forbid("a kernel with %d bytes of arguments is given %zu", f->bytes, bytes);
    if (!grid_x || !grid_y || !grid_z || !threads || threads > 1024 || grid_x > INT32_MAX ||
        grid_y > 65535 || grid_z > 65535 || shared_bytes)
        fake_cuda_forbid("a launch of %u x %u x %u blocks of %u x %u x %u threads", grid_x, grid_y,
                         grid_z, block_x, block_y, block_z);
    if (error)
        return end(error);
    work *w = new_work(KERNEL);
    w->function = f;
    w->grid = (struct index3){ grid_x, grid_y, grid_z };
    w->block = (struct index3){ block_x, block_y, block_z };
    w->arguments = malloc(bytes);
    memcpy(w->arguments, packed, bytes);
    w->bytes = bytes;
    state.launches += s->capture == NULL;
    return end(tell(s, w));
}

/* ---- graphs ---- */

struct CUgraphExec_st {
    enum kind kind;
    list works;
};

static void free_works(list *l)
{
    while (l->first)
        free_work(take(l));
}

int cuStreamBeginCapture_v2(CUstream s, int mode)
{
    int error = begin();
    EXPECT(s, STREAM);
    if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        fake_cuda_forbid("captures of mode %d see what other threads do", mode);
    if (error == 0 && s->capture)
        error = CUDA_ERROR_ILLEGAL_STATE;
    if (error == 0) {
        s->capture = calloc(1, sizeof *s->capture);
        s->capture->kind = GRAPH;
        s->is_spoilt = false;
        state.graphs++;
    }
    return end(error);
}

int cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    int error = begin();
    EXPECT(s, STREAM);
    if (!s->capture)
        return end(error ? error : CUDA_ERROR_ILLEGAL_STATE);
    if (error == 0 && s->is_spoilt)
        error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = error ? NULL : s->capture;
    if (error) {
        free_works(&s->capture->works);
        free(s->capture);
        state.graphs--;
    }
    s->capture = NULL;
    return end(error);
}

static void copy_works(list *to, const list *from)
{
    for (const work *w = from->first; w; w = w->next) {
        work *own = new_work(w->kind);
        *own = *w;
        own->next = NULL;
        if (w->kind == KERNEL) {
            own->arguments = malloc((size_t)w->bytes);
            memcpy(own->arguments, w->arguments, w->bytes);
        }
        add(to, own);
    }
}

int cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    const int error = begin();
    EXPECT(graph, GRAPH);
    (void)flags;
    if (error == 0) {
        *executable = calloc(1, sizeof **executable);
        (*executable)->kind = EXECUTABLE;
        copy_works(&(*executable)->works, &graph->works);
        state.graphs++;
    }
    return end(error);
}

int cuGraphDestroy(CUgraph graph)
{
    const int error = begin();
    EXPECT(graph, GRAPH);
    free_works(&graph->works);
    graph->kind = 0;
    free(graph);
    state.graphs--;
    return end(error);
}

int cuGraphExecDestroy(CUgraphExec executable)
{
    const int error = begin();
    EXPECT(executable, EXECUTABLE);
    free_works(&executable->works); /* what was launched goes on */
    executable->kind = 0;
    free(executable);
    state.graphs--;
    return end(error);
}

int cuGraphLaunch(CUgraphExec executable, CUstream s)
{
    const int error = begin();
    EXPECT(executable, EXECUTABLE);
    EXPECT(s, STREAM);
    if (error == 0) {
        copy_works(&s->works, &executable->works);
        state.graph_launches++;
        if (draw() % 4 == 0)
            progress(s, (int64_t)(draw() % 64));
    }
    return end(error);
}

/* ---- the end of a context ---- */

/* What is in a lost context goes with it; of others all is to be given back before. */
static void drop_everything(void)
{
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (blocks[i].map)
            unmap_block(&blocks[i]);
        if (host_blocks[i].map)
            unmap_block(&host_blocks[i]);
    }
    for (int i = 0; i < MOST_STREAMS; i++)
        streams[i] = NULL;
    state.taken = 0;
    state.streams = state.events = state.modules = state.blocks = state.host_blocks = 0;
    state.graphs = 0;
}

int cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const int error = begin_without_context();
    if (contexts[device].retained == 0)
        fake_cuda_forbid("a primary context is released that nobody has");
    state.contexts--;
    if (--contexts[device].retained == 0 && state.lost)
        drop_everything();
    return end(error);
}
