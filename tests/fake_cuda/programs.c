/* tests/fake_cuda/programs.c: the fake driver: streams, events, modules, launches, graphs. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what there is ---- */

enum { MOST_THINGS = 1 << 14 };
static void *things[MOST_THINGS];
static int thing_count;

/* A thing of its kind, in the list of all. */
static void *new_thing(enum kind kind, size_t bytes, int64_t *count)
{
    if (thing_count == MOST_THINGS)
        fake_cuda_forbid("too many things are made");
    void *thing = calloc(1, bytes);
    *(enum kind *)thing = kind;
    things[thing_count++] = thing;
    ++*count;
    return thing;
}

static void free_thing(void *thing, int64_t *count)
{
    int i = thing_count - 1;
    while (things[i] != thing)
        i--;
    things[i] = things[--thing_count];
    *(enum kind *)thing = 0;
    free(thing);
    --*count;
}

/* ---- streams and events ---- */

int cuStreamCreate(CUstream *s, unsigned flags)
{
    const int error = fake_begin();
    (void)flags;
    for (int i = 0; error == 0 && i < MOST_STREAMS; i++)
        if (!fake_streams[i]) {
            *s = fake_streams[i] = new_thing(STREAM, sizeof **s, &fake_machine.streams);
            break;
        }
    return fake_end(error);
}

int cuStreamDestroy_v2(CUstream s)
{
    const int error = fake_begin();
    EXPECT(s, STREAM);
    fake_progress(s, -1);
    for (int i = 0; i < MOST_STREAMS; i++)
        if (fake_streams[i] == s)
            fake_streams[i] = NULL;
    free_thing(s, &fake_machine.streams);
    return fake_end(error);
}

int cuCtxSynchronize(void)
{
    const int error = fake_begin();
    for (int i = 0; error == 0 && i < MOST_STREAMS; i++)
        if (fake_streams[i])
            fake_progress(fake_streams[i], -1);
    fake_machine.waits += error == 0;
    return fake_end(error);
}

int cuStreamSynchronize(CUstream s)
{
    int error = fake_begin();
    EXPECT(s, STREAM);
    if (error == 0 && s->capture)
        error = fake_spoils_captures();
    if (error == 0) {
        fake_machine.waits++;
        fake_progress(s, -1);
    }
    return fake_end(error);
}

int cuEventCreate(CUevent *event, unsigned flags)
{
    const int error = fake_begin();
    (void)flags;
    if (error == 0) {
        *event = new_thing(EVENT, sizeof **event, &fake_machine.events);
    }
    return fake_end(error);
}

int cuEventDestroy_v2(CUevent event)
{
    const int error = fake_begin();
    EXPECT(event, EVENT);
    if (event->pending)
        fake_finish_all();
    free_thing(event, &fake_machine.events);
    return fake_end(error);
}

int cuEventRecord(CUevent event, CUstream s)
{
    const int error = fake_begin();
    EXPECT(event, EVENT);
    EXPECT(s, STREAM);
    if (error)
        return fake_end(error);
    event->is_captured = s->capture != NULL;
    event->pending += !event->is_captured;
    work *w = fake_new_work(RECORD);
    w->event = event;
    return fake_end(fake_tell(s, w));
}

int cuEventQuery(CUevent event)
{
    int error = fake_begin();
    EXPECT(event, EVENT);
    if (error == 0 && event->is_captured)
        error = fake_spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                       : CUDA_ERROR_INVALID_VALUE;
    return fake_end(error ? error : event->pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

int cuEventSynchronize(CUevent event)
{
    int error = fake_begin();
    EXPECT(event, EVENT);
    if (error == 0 && event->is_captured)
        error = fake_spoils_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                       : CUDA_ERROR_INVALID_VALUE;
    if (error == 0) {
        fake_machine.waits++;
        if (event->pending)
            fake_finish_all();
    }
    return fake_end(error);
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
    CUmodule m = new_thing(MODULE, sizeof *m, &fake_machine.modules);
    if (!library)
        return m;
    m->library = library;
    m->thread = dlsym(library, "threadIdx");
    m->block = dlsym(library, "blockIdx");
    m->block_size = dlsym(library, "blockDim");
    m->grid = dlsym(library, "gridDim");
    m->has_barriers = *(const int *)dlsym(library, "fake_has_barriers");
    m->cluster = *(const int *)dlsym(library, "fake_cluster");
    *(void (**)(void))dlsym(library, "fake_barrier") = fake_barrier_of_kernel;
    *(void (**)(void))dlsym(library, "fake_cluster_barrier") = fake_cluster_barrier_of_kernel;
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
        image->architecture <= fake_machine.architecture &&
        (!image->is_machine_code || image->architecture / 10 == fake_machine.architecture / 10);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

int cuModuleLoadData(CUmodule *module, const void *data)
{
    int error = fake_begin();
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
    return fake_end(error);
}

static void free_module(CUmodule m)
{
    for (CUfunction f = m->functions, next; f; f = next) {
        next = f->next;
        f->kind = 0;
        free(f);
    }
    if (m->library)
        dlclose(m->library);
    free_thing(m, &fake_machine.modules);
}

int cuModuleUnload(CUmodule m)
{
    const int error = fake_begin();
    EXPECT(m, MODULE);
    fake_finish_all();
    free_module(m);
    return fake_end(error);
}

int cuModuleGetFunction(CUfunction *function, CUmodule m, const char *name)
{
    const int error = fake_begin();
    EXPECT(m, MODULE);
    char symbol[128];
    snprintf(symbol, sizeof symbol, "fake_run_%s", name);
    void *run_symbol = m->library ? dlsym(m->library, symbol) : NULL;
    snprintf(symbol, sizeof symbol, "fake_bytes_%s", name);
    const int *bytes = m->library ? dlsym(m->library, symbol) : NULL;
    if (error || (m->library && (!run_symbol || !bytes)))
        return fake_end(error ? error : CUDA_ERROR_NOT_FOUND);
    CUfunction f = calloc(1, sizeof *f);
    *f = (struct CUfunc_st){
        .kind = FUNCTION, .module = m, .bytes = bytes ? *bytes : -1, .next = m->functions
    };
    *(void **)&f->run = run_symbol;
    m->functions = f;
    *function = f;
    return fake_end(CUDA_SUCCESS);
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
    const int error = fake_begin();
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
    if (f->module->cluster > 1 &&
        (fake_machine.architecture < 90 || grid_x % (unsigned)f->module->cluster))
        fake_cuda_forbid("a launch of %u blocks in clusters of %d on sm_%d", grid_x,
                         f->module->cluster, fake_machine.architecture);
    if (error)
        return fake_end(error);
    work *w = fake_new_work(KERNEL);
    w->function = f;
    w->grid = (struct index3){ grid_x, grid_y, grid_z };
    w->block = (struct index3){ block_x, block_y, block_z };
    w->arguments = malloc(bytes);
    memcpy(w->arguments, packed, bytes);
    w->bytes = bytes;
    fake_machine.launches += s->capture == NULL;
    return fake_end(fake_tell(s, w));
}

/* ---- graphs ---- */

int cuStreamBeginCapture_v2(CUstream s, int mode)
{
    int error = fake_begin();
    EXPECT(s, STREAM);
    if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        fake_cuda_forbid("captures of mode %d see what other threads do", mode);
    if (error == 0 && s->capture)
        error = CUDA_ERROR_ILLEGAL_STATE;
    if (error == 0) {
        s->capture = new_thing(GRAPH, sizeof *s->capture, &fake_machine.graphs);
        s->is_spoilt = false;
    }
    return fake_end(error);
}

int cuStreamEndCapture(CUstream s, CUgraph *graph)
{
    int error = fake_begin();
    EXPECT(s, STREAM);
    if (!s->capture)
        return fake_end(error ? error : CUDA_ERROR_ILLEGAL_STATE);
    if (error == 0 && s->is_spoilt)
        error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = error ? NULL : s->capture;
    if (error) {
        fake_free_works(&s->capture->works);
        free_thing(s->capture, &fake_machine.graphs);
    }
    s->capture = NULL;
    return fake_end(error);
}

static void copy_works(list *to, const list *from)
{
    for (const work *w = from->first; w; w = w->next) {
        work *own = fake_new_work(w->kind);
        *own = *w;
        own->next = NULL;
        if (w->kind == KERNEL || w->kind == CALL) {
            own->arguments = malloc((size_t)w->bytes);
            memcpy(own->arguments, w->arguments, w->bytes);
        }
        fake_add_work(to, own);
    }
}

int cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    const int error = fake_begin();
    EXPECT(graph, GRAPH);
    (void)flags;
    if (error == 0) {
        *executable = new_thing(EXECUTABLE, sizeof **executable, &fake_machine.graphs);
        copy_works(&(*executable)->works, &graph->works);
    }
    return fake_end(error);
}

int cuGraphDestroy(CUgraph graph)
{
    const int error = fake_begin();
    EXPECT(graph, GRAPH);
    fake_free_works(&graph->works);
    free_thing(graph, &fake_machine.graphs);
    return fake_end(error);
}

int cuGraphExecDestroy(CUgraphExec executable)
{
    const int error = fake_begin();
    EXPECT(executable, EXECUTABLE);
    fake_free_works(&executable->works); /* what was launched goes on */
    free_thing(executable, &fake_machine.graphs);
    return fake_end(error);
}

int cuGraphLaunch(CUgraphExec executable, CUstream s)
{
    const int error = fake_begin();
    EXPECT(executable, EXECUTABLE);
    EXPECT(s, STREAM);
    if (error == 0) {
        copy_works(&s->works, &executable->works);
        fake_machine.graph_launches++;
        if (fake_draw() % 4 == 0)
            fake_progress(s, (int64_t)(fake_draw() % 64));
    }
    return fake_end(error);
}

/* ---- the end of a context ---- */

static void drop(void *thing)
{
    switch (*(enum kind *)thing) {
    case STREAM:
        fake_free_works(&((CUstream)thing)->works);
        free_thing(thing, &fake_machine.streams);
        break;
    case EVENT:
        free_thing(thing, &fake_machine.events);
        break;
    case MODULE:
        free_module(thing);
        break;
    case GRAPH:
        fake_free_works(&((CUgraph)thing)->works);
        free_thing(thing, &fake_machine.graphs);
        break;
    default:
        fake_free_works(&((CUgraphExec)thing)->works);
        free_thing(thing, &fake_machine.graphs);
    }
}

void fake_drop_things(void)
{
    while (thing_count)
        drop(things[thing_count - 1]);
    for (int i = 0; i < MOST_STREAMS; i++)
        fake_streams[i] = NULL;
}
