/* tests/support/guard.c: the device "guard"; see guard.h. Start at guard_open, then enqueue and
 * run_first. */
#include "support/guard.h"

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "compile/ir.h"
#include "ops/attrs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 256, GARBAGE = 0xa5, MOST_QUEUED = 2000 };

/* Device addresses [address, address + bytes) are the host's [memory, memory + bytes). */
typedef struct chunk {
    char *address, *memory;
    size_t bytes, reserved;
} chunk;

/* Work that waits. */
typedef struct job {
    struct job *next;
    gd_kernel_fn kernel; /* NULL: a copy */
    gd_kernel_call *call;
    bool fails;
    void *to; /* of the host, as `from` */
    const void *from;
    size_t bytes;
    char room[]; /* what `call` points to, or the bytes to write */
} job;

typedef struct guard_device {
    gd_device base;
    gd_device *cpu;
    chunk *chunks;
    size_t count, capacity;
    job *first, **end;
    int queued;
    uint64_t random;
    guard_refusal refuse;
    bool is_prompt;
    gd_status status; /* of the first error that nobody has been told of */
    char message[GD_ERROR_MESSAGE_BYTES];
} guard_device;

guard_settings guard;
guard_counts guard_count;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t draw(guard_device *d)
{
    return mix(d->random += 0x9e3779b97f4a7c15u);
}

static void *checked(void *block)
{
    if (!block)
        abort();
    return block;
}

/* ---- addresses ---- */

static void *translate(const guard_device *d, const void *address, size_t bytes, const char *what)
{
    const char *at = address;
    for (size_t i = 0; i < d->count; i++) {
        const chunk *c = &d->chunks[i];
        if (at >= c->address && bytes <= c->bytes && (size_t)(at - c->address) <= c->bytes - bytes)
            return c->memory + (at - c->address);
    }
    fprintf(stderr, "guard: %s: %zu bytes at %p are no memory of the device\n", what, bytes,
            address);
    abort();
}

static gd_operand translate_operand(const guard_device *d, gd_operand operand, const char *what)
{
    static double nothing;
    const gd_layout *l = operand.layout;
    const int64_t size = (int64_t)gd_dtype_size(l->dtype);
    if (gd_layout_count(l) == 0) {
        operand.data = &nothing;
        return operand;
    }
    int64_t low = 0, high = 1;
    for (int a = 0; a < l->rank; a++)
        *(l->stride[a] < 0 ? &low : &high) += (l->shape[a] - 1) * l->stride[a];
    char *lowest =
        translate(d, (char *)operand.data + low * size, (size_t)((high - low) * size), what);
    operand.data = lowest - low * size;
    return operand;
}

/* ---- the queue ---- */

static void keep_error(guard_device *d, gd_status status, const char *message)
{
    if (d->status != GD_OK)
        return;
    d->status = status;
    snprintf(d->message, sizeof d->message, "%s", message);
}

static void run_first(guard_device *d)
{
    job *j = d->first;
    d->first = j->next;
    d->end = d->first ? d->end : &d->first;
    d->queued--;
    const uint64_t mark = gd_error_mark();
    if (j->fails) {
        char message[128];
        snprintf(message, sizeof message, "guard: a %s failed, as asked for", j->call->op->name);
        keep_error(d, GD_ERR_DEVICE, message);
    } else if (!j->kernel) {
        memcpy(j->to, j->from, j->bytes);
    } else {
        gd_status status = j->kernel(j->call);
        if (status != GD_OK) {
            keep_error(d, status, gd_error_last_message());
            gd_error_rollback(mark);
        }
    }
    free(j);
}

static void run_all(guard_device *d)
{
    while (d->first)
        run_first(d);
}

static gd_status wait_for_all(guard_device *d)
{
    guard_count.waits += d->first != NULL;
    run_all(d);
    gd_status status = d->status;
    d->status = GD_OK;
    return status == GD_OK ? GD_OK : gd_fail(status, "%s", d->message);
}

static void enqueue(guard_device *d, job *j)
{
    j->next = NULL;
    *d->end = j;
    d->end = &j->next;
    d->queued++;
    uint64_t drawn = draw(d);
    if (d->is_prompt || d->queued > MOST_QUEUED)
        run_all(d);
    else if (drawn % 16 == 0)
        for (drawn /= 16; d->first && drawn % 4; drawn /= 4)
            run_first(d);
}

/* ---- copies ---- */

static bool is_to_fail(int64_t *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

static gd_status count_copy(const char *what)
{
    guard_count.copies++;
    return is_to_fail(&guard.copy_to_fail)
               ? gd_fail(GD_ERR_DEVICE, "guard: %s failed, as asked for", what)
               : GD_OK;
}

static job *new_copy(void *to, const void *from, size_t bytes, size_t room)
{
    job *j = checked(calloc(1, sizeof *j + room));
    j->to = to;
    j->from = room ? memcpy(j->room, from, bytes) : from;
    j->bytes = bytes;
    return j;
}

static gd_status guard_write(gd_device *device, void *to, const void *from, size_t bytes)
{
    guard_device *d = (guard_device *)device;
    if (count_copy("memory_write") != GD_OK)
        return GD_ERR_DEVICE;
    enqueue(d, new_copy(translate(d, to, bytes, "memory_write"), from, bytes, bytes));
    return GD_OK;
}

static gd_status guard_copy(gd_device *device, void *to, const void *from, size_t bytes)
{
    guard_device *d = (guard_device *)device;
    if (count_copy("memory_copy") != GD_OK)
        return GD_ERR_DEVICE;
    enqueue(d, new_copy(translate(d, to, bytes, "memory_copy"),
                        translate(d, from, bytes, "memory_copy"), bytes, 0));
    return GD_OK;
}

static gd_status guard_read(gd_device *device, void *to, const void *from, size_t bytes)
{
    guard_device *d = (guard_device *)device;
    if (count_copy("memory_read") != GD_OK)
        return GD_ERR_DEVICE;
    const void *memory = translate(d, from, bytes, "memory_read");
    gd_status status = wait_for_all(d);
    if (status == GD_OK)
        memcpy(to, memory, bytes);
    return status;
}

static gd_status guard_synchronize(gd_device *device)
{
    return wait_for_all((guard_device *)device);
}

/* ---- kernels ---- */

static int extra_of(const gd_kernel_call *call)
{
    return call->extra ? gd_op_extra_count(call->op, call->attr) : 0;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static size_t room_for(const guard_device *d, const gd_kernel_call *call)
{
    const size_t operands = (size_t)(call->n + 1 + extra_of(call));
    const size_t prepared =
        call->prepared && d->cpu->backend->prepare_bytes ? d->cpu->backend->prepare_bytes(call) : 0;
    return rounded(sizeof *call) +
           operands * (rounded(sizeof(gd_operand)) + rounded(sizeof(gd_layout))) +
           rounded(call->op->attr_size) + rounded(prepared);
}

static void *put(char **at, const void *from, size_t bytes)
{
    void *to = *at;
    if (bytes)
        memcpy(to, from, bytes);
    *at += rounded(bytes);
    return to;
}

static gd_operand put_operand(char **at, const guard_device *d, gd_operand operand,
                              const char *what)
{
    operand = translate_operand(d, operand, what);
    operand.layout = put(at, operand.layout, sizeof *operand.layout);
    return operand;
}

/* A copy of the call, with all that it points to, for the CPU's kernel. */
static gd_kernel_call *put_call(char **at, const guard_device *d, const gd_kernel_call *call)
{
    gd_kernel_call *own = put(at, call, sizeof *call);
    const char *what = call->op->name;
    own->device = d->cpu;
    gd_operand *in = put(at, call->in, sizeof *in * (size_t)call->n);
    gd_operand *extra = put(at, call->extra, sizeof *extra * (size_t)extra_of(call));
    for (int i = 0; i < call->n; i++)
        in[i] = put_operand(at, d, in[i], what);
    for (int i = 0; i < extra_of(call); i++)
        extra[i] = put_operand(at, d, extra[i], what);
    own->out = put_operand(at, d, call->out, what);
    own->in = in;
    own->extra = call->extra ? extra : NULL;
    own->attr = call->attr ? put(at, call->attr, call->op->attr_size) : NULL;
    if (call->prepared)
        own->prepared = put(at, call->prepared, d->cpu->backend->prepare_bytes(call));
    return own;
}

static gd_status tell(const gd_kernel_call *call, gd_kernel_fn kernel)
{
    guard_device *d = (guard_device *)call->device;
    guard_count.kernels++;
    const bool fails = is_to_fail(&guard.kernel_to_fail);
    if (fails && !guard.fails_late)
        return gd_fail(GD_ERR_DEVICE, "guard: a %s failed, as asked for", call->op->name);
    size_t room = 16;
    for (const gd_kernel_call *c = call; c; c = c->next)
        room += room_for(d, c);
    job *j = checked(malloc(sizeof *j + room));
    *j = (job){ .kernel = kernel, .fails = fails };
    char *at = j->room + (16 - (uintptr_t)j->room % 16) % 16;
    gd_kernel_call *before = NULL;
    for (const gd_kernel_call *c = call; c; c = c->next) {
        gd_kernel_call *own = put_call(&at, d, c);
        *(before ? (gd_kernel_call **)(uintptr_t)&before->next : &j->call) = own;
        own->next = NULL;
        before = own;
    }
    enqueue(d, j);
    return GD_OK;
}

static gd_status guard_kernel(const gd_kernel_call *call)
{
    return tell(call, ((guard_device *)call->device)->cpu->kernel[call->op->id]);
}

static gd_status guard_run_together(const gd_kernel_call *call)
{
    return tell(call, ((guard_device *)call->device)->cpu->backend->run_together);
}

/* ---- refusing ---- */

/* What passes make of other ops, without changing a bit. */
static bool is_rewrite(const gd_kernel_call *call)
{
    const gd_op_id id = call->op->id;
    return id == GD_OP_fused || id == GD_OP_linear || id == GD_OP_matmul_relu_grad ||
           (id == GD_OP_convolution && ((const gd_conv_attr *)call->attr)->relu) ||
           (id == GD_OP_attention_grad && ((const gd_attention_attr *)call->attr)->is_joined);
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

/* The answer is the same whenever the same call is asked about. */
static bool is_drawn(const guard_device *d, const gd_kernel_call *call)
{
    uint64_t hash = guard.seed ^ 0xcbf29ce484222325u;
    hash = hash_bytes(hash, &call->op->id, sizeof call->op->id);
    if (call->attr)
        hash = hash_bytes(hash, call->attr, call->op->attr_size);
    for (int i = 0; i <= call->n; i++) {
        const gd_layout *l = i < call->n ? call->in[i].layout : call->out.layout;
        hash = hash_bytes(hash, &l->dtype, sizeof l->dtype);
        hash = hash_bytes(hash, l->shape, sizeof *l->shape * (size_t)l->rank);
        hash = hash_bytes(hash, l->stride, sizeof *l->stride * (size_t)l->rank);
    }
    (void)d;
    return mix(hash) & 1;
}

static bool guard_takes(const gd_kernel_call *call)
{
    const guard_device *d = (const guard_device *)call->device;
    const bool may_refuse = (d->refuse >= GUARD_REFUSES_REWRITES && is_rewrite(call)) ||
                            (d->refuse >= GUARD_REFUSES_COMPOSITE && call->op->decompose);
    if (may_refuse && is_drawn(d, call)) {
        guard_count.refusals++;
        return false;
    }
    gd_kernel_call own = *call;
    own.device = d->cpu;
    return gd_device_takes(&own);
}

/* ---- plans ---- */

static size_t guard_prepare_bytes(const gd_kernel_call *call)
{
    gd_kernel_call own = *call;
    own.device = ((guard_device *)call->device)->cpu;
    return own.device->backend->prepare_bytes(&own);
}

static gd_status guard_prepare(const gd_kernel_call *call, void *memory)
{
    gd_kernel_call own = *call;
    own.device = ((guard_device *)call->device)->cpu;
    return own.device->backend->prepare(&own, memory);
}

/* ---- memory ---- */

static void *guard_alloc(gd_device *device, size_t bytes)
{
    guard_device *d = (guard_device *)device;
    const bool is_too_large = guard.largest_allocation && bytes > guard.largest_allocation;
    guard_count.allocations += !is_too_large;
    if (is_too_large ||
        (guard.allocation_to_fail > 0 && guard_count.allocations >= guard.allocation_to_fail)) {
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t reserved = bytes > SIZE_MAX / 2 ? 0 : (bytes + 2 * page - 1) / page * page;
    char *memory = gd_alloc_aligned(bytes, ALIGNMENT);
    if (!memory)
        return NULL;
    char *address =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        gd_free_aligned(memory);
        (void)gd_fail_memory(bytes);
        return NULL;
    }
    memset(memory, GARBAGE, bytes);
    if (d->count == d->capacity) {
        d->capacity = d->capacity ? 2 * d->capacity : 16;
        d->chunks = checked(realloc(d->chunks, d->capacity * sizeof *d->chunks));
    }
    d->chunks[d->count++] = (chunk){ address, memory, bytes, reserved };
    return address;
}

static void guard_free(gd_device *device, void *address, size_t bytes)
{
    guard_device *d = (guard_device *)device;
    if (!address)
        return;
    run_all(d);
    (void)translate(d, address, bytes, "memory_free");
    for (size_t i = 0; i < d->count; i++)
        if (d->chunks[i].address == (char *)address) {
            munmap(address, d->chunks[i].reserved);
            gd_free_aligned(d->chunks[i].memory);
            d->chunks[i] = d->chunks[--d->count];
            return;
        }
}

/* ---- the device ---- */

static const gd_backend backend;

static void guard_close(gd_device *device)
{
    guard_device *d = (guard_device *)device;
    run_all(d);
    d->cpu->backend->close(d->cpu);
    free(d->chunks);
    gd_free(d);
}

static gd_status guard_set_threads(gd_device *device, int threads)
{
    guard_device *d = (guard_device *)device;
    run_all(d);
    gd_status status = d->cpu->backend->set_threads(d->cpu, threads);
    d->base.threads = d->cpu->threads;
    return status;
}

/* The CPU's, or smaller ones. */
static gd_device_limits draw_limits(guard_device *d)
{
    gd_device_limits limits = d->cpu->limits;
    if (d->refuse == GUARD_TAKES_ALL)
        return limits;
    limits.group_inputs = 3 + (int32_t)(draw(d) % 14);
    limits.group_results = (int32_t)(draw(d) % 7);
    limits.group_instructions = 2 + (int32_t)(draw(d) % 31);
    limits.row_group_instructions = (int32_t)(draw(d) % 65);
    limits.row_length = (int64_t)(draw(d) % 4097);
    limits.group_distance = (int32_t)(draw(d) % 30);
    limits.row_group_distance = (int32_t)(draw(d) % 100);
    limits.together_result = draw(d) % 8192;
    limits.together_waiting = draw(d) % 100000;
    return limits;
}

static gd_device *guard_open(const gd_open_options *options, int index)
{
    guard_device *d = gd_alloc_zero(1, sizeof *d);
    gd_device *cpu = d ? gd_backend_cpu.open(options, index) : NULL;
    if (!cpu) {
        gd_free(d);
        return NULL;
    }
    d->cpu = cpu;
    d->end = &d->first;
    d->random = guard.seed;
    d->refuse = guard.refuse;
    d->is_prompt = guard.is_prompt;
    d->base = (gd_device){ .backend = &backend,
                           .name = backend.name,
                           .isa = cpu->isa,
                           .half_products = cpu->half_products,
                           .half_recurrent = cpu->half_recurrent,
                           .threads = cpu->threads,
                           .alignment = ALIGNMENT,
                           .limits = draw_limits(d) };
    for (int i = 0; i < GD_OP_COUNT; i++)
        if (cpu->kernel[i]) {
            d->base.kernel[i] = guard_kernel;
            d->base.takes[i] = guard_takes;
        }
    return &d->base;
}

static const gd_backend backend = {
    .name = "guard",
    .open = guard_open,
    .close = guard_close,
    .set_threads = guard_set_threads,
    .memory_alloc = guard_alloc,
    .memory_free = guard_free,
    .memory_write = guard_write,
    .memory_read = guard_read,
    .memory_copy = guard_copy,
    .memory_size = gd_host_memory_size,
    .synchronize = guard_synchronize,
    .prepare_bytes = guard_prepare_bytes,
    .prepare = guard_prepare,
    .run_together = guard_run_together,
};

void guard_reset(void)
{
    const char *seed = getenv("GRADUS_GUARD_SEED");
    guard = (guard_settings){ .seed = seed ? strtoull(seed, NULL, 10) : 0 };
    guard_count = (guard_counts){ 0 };
}

__attribute__((constructor)) static void add_guard(void)
{
    guard_reset();
    if (gd_backend_add(&backend) != GD_OK)
        abort();
}

const char *test_device(void)
{
    const char *name = getenv("GRADUS_TEST_DEVICE");
    return name ? name : "cpu";
}

bool test_device_is_host(void)
{
    return strcmp(test_device(), backend.name) != 0;
}
