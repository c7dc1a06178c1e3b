/* tests/fake_cuda/works.c: the fake driver: memory, copies, and works, which are done late. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_BLOCKS = 4096, PAGE = 4096, FIRST_ADDRESS_ALIGNMENT = 256 };

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
    *b = (block){ 0 };
}

int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    const int error = fake_begin();
    *total = fake_machine.memory;
    *available = fake_machine.memory - fake_machine.taken;
    return fake_end(error);
}

int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    int error = fake_begin();
    if (error == 0)
        error = bytes == 0                                         ? CUDA_ERROR_INVALID_VALUE
                : bytes > fake_machine.memory - fake_machine.taken ? CUDA_ERROR_OUT_OF_MEMORY
                                                                   : CUDA_SUCCESS;
    if (error == 0) {
        block *b = free_block(blocks);
        map_block(b, bytes, PROT_NONE);
        fake_machine.blocks++;
        fake_machine.taken += bytes;
        *address = (uintptr_t)b->address;
    }
    return fake_end(error);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    const int error = fake_begin();
    if (error == 0) {
        block *b = free_block(host_blocks);
        map_block(b, bytes, PROT_READ | PROT_WRITE);
        fake_machine.host_blocks++;
        *address = b->address;
    }
    return fake_end(error);
}

/* ---- works ---- */

void fake_add_work(list *l, work *w)
{
    if (!l->first)
        l->end = &l->first;
    *l->end = w;
    l->end = &w->next;
}

work *fake_take_work(list *l)
{
    work *w = l->first;
    l->first = w->next;
    return w;
}

void fake_free_work(work *w)
{
    free(w->staged);
    free(w->arguments);
    free(w);
}

void fake_free_works(list *l)
{
    while (l->first)
        fake_free_work(fake_take_work(l));
}

work *fake_new_work(work_kind kind)
{
    work *w = calloc(1, sizeof *w);
    w->kind = kind;
    return w;
}

typedef struct running {
    const work *kernel;
    CUmodule module;
    uint64_t first;   /* block of those that run together */
    unsigned blocks;  /* so many */
    char *shared;     /* what is in __shared__ memory of each of them, while another runs */
    unsigned current; /* whose is there */
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
void fake_barrier_of_kernel(void)
{
    const struct index3 own = *barrier_module->thread;
    if (fake_machine.forgets_barriers)
        return;
    fake_barrier();
    *barrier_module->thread = own;
}

void fake_cluster_barrier_of_kernel(void)
{
    const struct index3 own = *barrier_module->thread;
    if (fake_machine.forgets_clusters)
        fake_barrier();
    else
        fake_cluster_barrier();
    *barrier_module->thread = own;
}

/* blockIdx is one variable, and __shared__ memory is there once: a block gets its own. */
static void enter_block(unsigned block, void *argument)
{
    running *r = argument;
    const CUmodule m = r->module;
    const struct index3 grid = r->kernel->grid;
    const uint64_t b = r->first + block;
    const size_t bytes = m->shared ? (size_t)(m->shared_end - m->shared) : 0;
    *m->block = (struct index3){ (unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                                 (unsigned)(b / grid.x / grid.y) };
    if (r->blocks == 1 || block == r->current || !bytes)
        return;
    memcpy(r->shared + r->current * bytes, m->shared, bytes);
    memcpy(m->shared, r->shared + block * bytes, bytes);
    r->current = block;
}

static void run_kernel(const work *w)
{
    CUmodule m = w->function->module;
    if (!m->library)
        return;
    const unsigned blocks = (unsigned)m->cluster, threads = w->block.x * w->block.y * w->block.z;
    const uint64_t grid = (uint64_t)w->grid.x * w->grid.y * w->grid.z, clusters = grid / blocks;
    const fake_order order = fake_draw_order(clusters, fake_draw());
    const size_t bytes = m->shared ? (size_t)(m->shared_end - m->shared) : 0;
    running r = { .kernel = w, .module = m, .blocks = blocks };
    r.shared = malloc(blocks * bytes + 1);
    *m->block_size = w->block;
    *m->grid = w->grid;
    barrier_module = m;
    for (uint64_t i = 0; i < clusters; i++) {
        r.first = fake_in_order(&order, i) * blocks;
        r.current = 0;
        if (bytes) {
            memset(m->shared, 0xA5, bytes);
            memset(r.shared, 0xA5, blocks * bytes);
        }
        if (m->has_barriers || blocks > 1) {
            fake_run_blocks(blocks, threads, fake_draw(), enter_block, run_thread, &r);
        } else {
            enter_block(0, &r);
            fake_run_threads(threads, fake_draw(), run_thread, &r);
        }
    }
    free(r.shared);
}

static void run(const work *w)
{
    open_memory(true);
    if (w->kind == KERNEL)
        run_kernel(w);
    else if (w->kind == CALL)
        w->call(w->arguments);
    else if (w->kind == RECORD)
        w->event->pending--;
    else
        memcpy(w->to, w->staged ? w->staged : w->from, w->bytes);
}

/* The stream's next `count` works, or with -1 all. */
void fake_progress(CUstream s, int64_t count)
{
    for (; s->works.first && count != 0; count--) {
        work *w = fake_take_work(&s->works);
        run(w);
        fake_free_work(w);
    }
    open_memory(false);
}

/* Something is told: it waits, and perhaps others now get done. */
int fake_tell(CUstream s, work *w)
{
    if (s->capture) {
        fake_add_work(&s->capture->works, w);
        return CUDA_SUCCESS;
    }
    fake_add_work(&s->works, w);
    if (fake_draw() % 8 == 0)
        fake_progress(s, (int64_t)(fake_draw() % 16));
    return CUDA_SUCCESS;
}

int fake_tell_call(CUstream s, void (*call)(const void *), const void *arguments, size_t bytes)
{
    EXPECT(s, STREAM);
    work *w = fake_new_work(CALL);
    w->call = call;
    w->arguments = malloc(bytes);
    memcpy(w->arguments, arguments, bytes);
    w->bytes = bytes;
    return fake_tell(s, w);
}

CUstream fake_streams[MOST_STREAMS];

void fake_finish_all(void)
{
    for (int i = 0; i < MOST_STREAMS; i++)
        if (fake_streams[i])
            fake_progress(fake_streams[i], -1);
}

/* What no capture may contain. */
int fake_spoils_captures(void)
{
    int error = CUDA_SUCCESS;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (fake_streams[i] && fake_streams[i]->capture) {
            fake_streams[i]->is_spoilt = true;
            error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return error;
}

int cuMemFree_v2(CUdeviceptr address)
{
    const int error = fake_begin();
    block *b = block_at(blocks, (const void *)(uintptr_t)address, 1);
    if (!b || (uintptr_t)b->address != address)
        fake_cuda_forbid("cuMemFree of what is no block");
    if (fake_spoils_captures())
        fake_cuda_forbid("cuMemFree while a stream is being captured");
    fake_finish_all();
    fake_machine.blocks--;
    fake_machine.taken -= b->bytes;
    unmap_block(b);
    return fake_end(error);
}

int cuMemFreeHost(void *address)
{
    const int error = fake_begin();
    block *b = block_at(host_blocks, address, 1);
    if (!b || b->address != address)
        fake_cuda_forbid("cuMemFreeHost of what is no block");
    fake_finish_all();
    fake_machine.host_blocks--;
    unmap_block(b);
    return fake_end(error);
}

char *fake_device_memory(CUdeviceptr address, size_t bytes, const char *who)
{
    char *at = (char *)(uintptr_t)address;
    if (!block_at(blocks, at, bytes))
        fake_cuda_forbid("%s: %zu bytes at %p are not the device's", who, bytes, (void *)at);
    return at;
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    const int error = fake_begin();
    EXPECT(s, STREAM);
    if (error)
        return fake_end(error);
    const bool is_locked = block_at(host_blocks, from, bytes) != NULL;
    if (s->capture && !is_locked)
        return fake_end(fake_spoils_captures());
    work *w = fake_new_work(COPY_IN);
    w->to = fake_device_memory(to, bytes, __func__);
    w->from = from;
    w->bytes = bytes;
    if (!is_locked) {
        w->staged = malloc(bytes);
        memcpy(w->staged, from, bytes);
    }
    fake_machine.uploads++;
    return fake_end(fake_tell(s, w));
}

int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
    const int error = fake_begin();
    EXPECT(s, STREAM);
    if (error)
        return fake_end(error);
    const bool is_locked = block_at(host_blocks, to, bytes) != NULL;
    if (s->capture && !is_locked)
        return fake_end(fake_spoils_captures());
    work *w = fake_new_work(COPY_OUT);
    w->to = to;
    w->from = fake_device_memory(from, bytes, __func__);
    w->bytes = bytes;
    fake_machine.downloads++;
    fake_tell(s, w);
    if (!is_locked)
        fake_progress(s, -1);
    return fake_end(CUDA_SUCCESS);
}

int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    const int error = fake_begin();
    EXPECT(s, STREAM);
    if (error)
        return fake_end(error);
    work *w = fake_new_work(COPY_WITHIN);
    w->to = fake_device_memory(to, bytes, __func__);
    w->from = fake_device_memory(from, bytes, __func__);
    w->bytes = bytes;
    if (w->to < w->from + bytes && w->from < w->to + bytes)
        fake_cuda_forbid("%s: what is copied overlaps", __func__);
    fake_machine.copies++;
    return fake_end(fake_tell(s, w));
}

void fake_drop_memory(void)
{
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (blocks[i].map)
            unmap_block(&blocks[i]);
        if (host_blocks[i].map)
            unmap_block(&host_blocks[i]);
    }
    fake_machine.taken = 0;
    fake_machine.blocks = fake_machine.host_blocks = 0;
}
