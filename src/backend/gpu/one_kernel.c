/* backend/gpu/one_kernel.c: the calls of a small plan as one kernel of one work-group. Each step of their
 * jobs is a call of its kernel's text, as a function (codegen/device/steps.txt), so it has the same
 * bits; groups of a step follow one another, as many at a time as the work-group has items for, and
 * behind each step is a barrier. A launch costs more than such a step: on a GPU about a microsecond
 * lies between two kernels, and tens of nanoseconds between two barriers.
 *
 * Shapes, strides and all other numbers are constants of the program. Addresses are not: operands'
 * places, a block of memory and an offset, are in a table on the device, written when the plan runs
 * with addresses that are new. Start at gd_gpu_one_kernel_make. */
#include "backend/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

enum {
    BLOCKS = 8, /* of memory, that a kernel is given: b0 to b7 in steps.txt */
    TABLES = 8, /* kept: batches come from few places in turn */
    OFFSET_BITS = 48,
    MOST_STEPS = 512, /* the compiler's time grows with them */
};

/* An operand of a step. */
typedef struct entry {
    int32_t call;
    int8_t operand;
} entry;

/* What the kernel is given with some addresses. */
typedef struct table {
    uint64_t addresses;
    int blocks;
    void *block[BLOCKS];
} table;

struct gd_one_kernel {
    void *kernel;
    bool may_find;   /* a step looks for what only values show: found.c */
    char *tables;    /* on the device: TABLES of `entries` numbers each */
    int64_t *packed; /* a table, while it is written */
    table kept[TABLES];
    int count, oldest; /* `oldest` is replaced next */
    uint64_t released; /* blocks, when those were made */
    entry *entry;
    size_t entries, capacity;
};

/* ---- whether it pays ---- */

static double operations_of(const gd_kernel_call *call)
{
    const gd_layout *in[GD_OP_MAX_INPUTS];
    double operations = (double)gd_layout_count(call->out.layout);
    for (int k = 0; k < call->n; k++)
        in[k] = call->in[k].layout;
    if (call->op->flops) {
        const double flops = call->op->flops(call->n, in, call->out.layout, call->attr);
        operations = flops > operations ? flops : operations;
    }
    return operations;
}

/* A step whose groups can share a work-group with others. */
static bool is_fit(const gd_gpu_step *s)
{
    return !gd_gpu_is_of_library(s) && !s->is_uneven && GD_GPU_PLAN_ITEMS % s->items == 0;
}

bool gd_gpu_one_kernel_pays(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count,
                            gd_text *text)
{
    gd_gpu_job job;
    double operations = 0;
    int64_t steps = 0;
    if (gpu->one_kernel < 0) {
        gd_text_add(text, "GRADUS_ONE_KERNEL=never");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (gd_gpu_runs_on_host(calls[i]) || !gd_gpu_describe(calls[i], &job)) {
            gd_text_add(text, "%s runs on the host", calls[i]->op->name);
            return false;
        }
        for (int s = 0; s < job.steps; s++)
            if (!is_fit(&job.step[s])) {
                gd_text_add(text,
                            gd_gpu_is_of_library(&job.step[s])
                                ? "%s is a library's"
                                : "the groups of %s cannot share a work-group",
                            calls[i]->op->name);
                return false;
            }
        steps += job.steps;
        operations += operations_of(calls[i]);
    }
    if (steps < 2 || steps > MOST_STEPS) {
        gd_text_add(text, "one kernel is made of 2 to %d steps, and these are %lld", MOST_STEPS,
                    (long long)steps);
        return false;
    }
    if (gpu->one_kernel == 0 && gpu->plan_operations == 0) {
        gd_text_add(text, "to compile one takes longer than it saves, but see GRADUS_ONE_KERNEL");
        return false;
    }
    if (gpu->one_kernel == 0 && operations > gpu->plan_operations * (double)(steps - 1)) {
        gd_text_add(text,
                    "one work-group would do %.0f operations, which %lld launches fewer do not "
                    "outweigh",
                    operations, (long long)(steps - 1));
        return false;
    }
    gd_text_add(text, "%lld", (long long)steps);
    return true;
}

/* ---- the program ---- */

typedef struct part {
    char key[GD_GPU_KEY];
    size_t bytes;
    gd_gpu_writer write;
    char name[64];
    bool has_barriers;
} part;

typedef struct program {
    gd_gpu *gpu;
    gd_one_kernel *one;
    gd_text_buffer functions, constants, body;
    part *parts; /* a kernel each */
    size_t count, capacity;
    int steps;
} program;

static gd_dialect dialect_of(const gd_gpu *gpu)
{
    return gpu->driver->dialect == GD_DIALECT_CUDA ? GD_DIALECT_CUDA_STEPS
                                                   : GD_DIALECT_OPENCL_STEPS;
}

/* "enum { local_bytes_3 = 0 + LOCAL_BYTES(T, lane, LANES), …": a group's; then, of all parts so far,
 * the most that a work-group needs. */
static void add_local_bytes(program *p, const char *text, int number, int groups)
{
    static const char array[] = "\n    LOCAL_ARRAY(";
    gd_text_buffer *out = &p->functions;
    gd_buffer_add(out, "\nenum { local_bytes_%d = 0", number);
    for (const char *c = text; (c = strstr(c, array)); c++)
        gd_buffer_add(out, " + LOCAL_BYTES(%.*s", (int)strcspn(c + sizeof array - 1, ";"),
                      c + sizeof array - 1);
    gd_buffer_add(out, " };\nenum { local_total_%d = ", number);
    if (number > 0)
        gd_buffer_add(out, "local_total_%d > local_bytes_%d * %d ? local_total_%d : ", number - 1,
                      number, groups, number - 1);
    gd_buffer_add(out, "local_bytes_%d * %d };\n", number, groups);
}

/* A name for the type of the numbers, which the signature of kernel `name` ends with. */
static bool add_numbers_type(program *p, const char *text, const char *name, int number)
{
    char line[96];
    snprintf(line, sizeof line, "\nKERNEL(%s,", name);
    const char *c = strstr(text, line);
    c = c ? strstr(c, "NUMBERS(") : NULL;
    if (!c)
        return false;
    c += strlen("NUMBERS(");
    gd_buffer_add(&p->functions, "typedef %.*s numbers_of_%d;\n", (int)strcspn(c, ","), c, number);
    return true;
}

/* The kernel's functions, under names of their own. */
static gd_status write_part(program *p, const gd_gpu_step *step, const gd_gpu_source *source,
                            const gd_text_buffer *used, part *new)
{
    gd_text_buffer *out = &p->functions;
    const int number = (int)p->count;
    const size_t begin = out->length;
    gd_buffer_add(out, "\n#define GROUP_ITEMS %d\n%s\n", step->items,
                  source->definitions.text ? source->definitions.text : "");
    gd_status status = gd_codegen_link_part(dialect_of(p->gpu), used, number, out);
    gd_buffer_add(out, "\n%s%s", source->functions.text.text ? source->functions.text.text : "",
                  source->text.text ? source->text.text : "");
    if (status != GD_OK || out->failed)
        return status != GD_OK ? status : GD_ERR_MEMORY;
    gd_text_buffer own = { 0 };
    gd_buffer_put(&own, out->text + begin, out->length - begin);
    const char *text = own.failed ? "" : own.text;
    new->has_barriers = strstr(text, "BARRIER();");
    status = own.failed ? GD_ERR_MEMORY : GD_OK;
    if (status == GD_OK && ((new->has_barriers && !strstr(text, "GROUP_RUNS()")) ||
                            !add_numbers_type(p, text, source->kernel, number)))
        status =
            gd_fail(GD_ERR_UNSUPPORTED, "kernel %s cannot be a step of another", source->kernel);
    add_local_bytes(p, text, number, GD_GPU_PLAN_ITEMS / step->items);
    gd_free(own.text);
    return status == GD_OK ? gd_codegen_end_part(out, begin) : status;
}

/* The number of the step's kernel among the parts; -1 on failure. */
static int find_part(program *p, const gd_gpu_step *s)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->parts[i].write == s->write && p->parts[i].bytes == s->key_bytes &&
            memcmp(p->parts[i].key, s->key.text, s->key_bytes) == 0)
            return (int)i;
    gd_gpu_source *source = gd_alloc_zero(1, sizeof *source);
    gd_text_buffer used = { 0 };
    gd_status status =
        source && gd_grow((void **)&p->parts, &p->capacity, p->count + 1, sizeof(part))
            ? gd_gpu_source_write(s->key.text, s->write, source, &used)
            : GD_ERR_MEMORY;
    if (status == GD_OK) {
        part *new = &p->parts[p->count];
        *new = (part){ .bytes = s->key_bytes, .write = s->write };
        memcpy(new->key, s->key.text, s->key_bytes);
        snprintf(new->name, sizeof new->name, "%s", source->kernel);
        status = write_part(p, s, source, &used, new);
    }
    gd_free(used.text);
    gd_gpu_source_free(source);
    return status == GD_OK ? (int)p->count++ : -1;
}

static void add_number(gd_text_buffer *out, int64_t number)
{
    if (number == INT64_MIN)
        gd_buffer_add(out, "INT64_MIN, ");
    else
        gd_buffer_add(out, "%lld, ", (long long)number);
}

/* Operands of the step: PLACE(…) of their entries in the table. */
static gd_status add_places(program *p, const gd_gpu_step *s, size_t call)
{
    gd_one_kernel *one = p->one;
    for (int i = 0; i < s->places; i++) {
        if (!gd_grow((void **)&one->entry, &one->capacity, one->entries + 1, sizeof(entry)))
            return GD_ERR_MEMORY;
        gd_buffer_add(&p->body, "PLACE(%zu), ", one->entries);
        one->entry[one->entries++] = (entry){ (int32_t)call, s->place[i] };
        one->may_find |= s->place[i] == GD_GPU_FOUND;
    }
    return GD_OK;
}

static gd_status add_step(program *p, const gd_gpu_step *s, size_t call)
{
    const int number = find_part(p, s);
    if (number < 0)
        return gd_error_last();
    const part *of = &p->parts[number];
    const int groups = GD_GPU_PLAN_ITEMS / s->items; /* at a time */
    const long long across = s->groups[0], all = across * s->groups[1];
    gd_text_buffer *out = &p->body;
    gd_buffer_add(&p->constants, "CONSTANT_NUMBERS(numbers_of_%d, numbers_%d) = { ", number,
                  p->steps);
    for (int i = 0; i < s->numbers; i++)
        add_number(&p->constants, s->number[i]);
    gd_buffer_add(&p->constants, "};\n");
    if (of->has_barriers)
        gd_buffer_add(out,
                      "    for (int64_t first = 0; first < %lld; first += %d) {\n"
                      "        const int64_t group = first + item / %d;\n        ",
                      all, groups, s->items);
    else
        gd_buffer_add(out,
                      "    for (int64_t group = item / %d; group < %lld; group += %d)\n        ",
                      s->items, all, groups);
    gd_buffer_add(out, "%s_%d(", of->name, number);
    const gd_status status = add_places(p, s, call);
    gd_buffer_add(out, "numbers_%d, ", p->steps);
    if (of->has_barriers)
        gd_buffer_add(
            out,
            "(group < %lld ? group : %lld) %% %lld, (group < %lld ? group : %lld) / %lld, "
            "group < %lld,",
            all, all - 1, across, all, all - 1, across, all);
    else
        gd_buffer_add(out, "group %% %lld, group / %lld, 1,", across, across);
    gd_buffer_add(out, " shared + item / %d * local_bytes_%d);\n", s->items, number);
    gd_buffer_add(out, of->has_barriers ? "        BARRIER();\n    }\n" : "    BARRIER();\n");
    p->steps++;
    return status;
}

/* All of it: the functions, then the kernel. OpenCL C has no constants before it that a function could
 * be given. */
static gd_status join(program *p, gd_text_buffer *out)
{
    const bool is_cuda = dialect_of(p->gpu) == GD_DIALECT_CUDA_STEPS;
    const char *const constants = p->constants.text ? p->constants.text : "";
    gd_text_buffer entry_text = { 0 };
    gd_buffer_add(&entry_text, "%s\nENTRY(plan_steps, %d)(MEMORY(tables)", is_cuda ? constants : "",
                  GD_GPU_PLAN_ITEMS);
    for (int i = 0; i < BLOCKS; i++)
        gd_buffer_add(&entry_text, ", MEMORY(b%d)", i);
    gd_buffer_add(&entry_text,
                  ")\n{\n"
                  "    SHARED_ARRAY(double, memory, local_total_%zu / 8 + 1);\n"
                  "    LOCAL char *shared = (LOCAL char *)memory;\n"
                  "    GLOBAL int64_t *table = (GLOBAL int64_t *)MEMORY_START(tables);\n"
                  "    const int item = SHARED_ITEM();\n%s%s}\n",
                  p->count - 1, is_cuda ? "" : constants, p->body.text ? p->body.text : "");
    gd_codegen_begin(dialect_of(p->gpu), !p->gpu->is_without_f64, out);
    gd_buffer_put(out, p->functions.text, p->functions.length);
    gd_buffer_add(out, "\n");
    gd_status status = gd_codegen_link(dialect_of(p->gpu), &entry_text, out);
    gd_buffer_put(out, entry_text.text, entry_text.length);
    gd_free(entry_text.text);
    if (p->body.failed || p->functions.failed || p->constants.failed || out->failed)
        status = GD_ERR_MEMORY;
    return status;
}

static gd_status write_program(program *p, const gd_kernel_call *const *calls, size_t count,
                               gd_text_buffer *out)
{
    gd_gpu_job job;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < count; i++) {
        (void)gd_gpu_describe(calls[i], &job);
        for (int s = 0; status == GD_OK && s < job.steps; s++)
            if (job.step[s].groups[0] > 0 && job.step[s].groups[1] > 0)
                status = add_step(p, &job.step[s], i);
    }
    if (status == GD_OK && p->count == 0)
        status = gd_fail(GD_ERR_UNSUPPORTED, "no step has work");
    return status == GD_OK ? join(p, out) : status;
}

/* ---- making it ---- */

static size_t table_bytes(const gd_one_kernel *one)
{
    return sizeof(int64_t) * one->entries;
}

static gd_status make(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                      size_t count)
{
    program p = { .gpu = gpu, .one = one };
    gd_text_buffer text = { 0 };
    gd_status status = write_program(&p, calls, count, &text);
    if (status == GD_OK) {
        one->kernel = gd_gpu_kernel_of(gpu, &text, "plan_steps");
        status = one->kernel ? GD_OK : gd_error_last();
    }
    if (status == GD_OK) {
        one->packed = gd_alloc(table_bytes(one));
        one->tables =
            one->packed ? gd_gpu_memory_alloc(&gpu->base, TABLES * table_bytes(one)) : NULL;
        status = one->tables ? GD_OK : GD_ERR_MEMORY;
    }
    gd_free(text.text);
    gd_free(p.functions.text);
    gd_free(p.constants.text);
    gd_free(p.body.text);
    gd_free(p.parts);
    return status;
}

gd_one_kernel *gd_gpu_one_kernel_make(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count)
{
    const uint64_t mark = gd_error_mark();
    gd_one_kernel *one = gd_alloc_zero(1, sizeof *one);
    if (one && make(gpu, one, calls, count) != GD_OK) {
        gd_gpu_one_kernel_free(gpu, one);
        one = NULL;
    }
    gd_error_rollback(mark);
    return one;
}

void gd_gpu_one_kernel_free(gd_gpu *gpu, gd_one_kernel *one)
{
    if (!one)
        return;
    if (one->tables)
        gd_gpu_memory_free(&gpu->base, one->tables, TABLES * table_bytes(one));
    gd_free(one->packed);
    gd_free(one->entry);
    gd_free(one);
}

/* ---- running it ---- */

/* The block's number in the table, or -1: there is no room for it. */
static int block_number(table *t, void *block)
{
    for (int i = 0; i < t->blocks; i++)
        if (t->block[i] == block)
            return i;
    if (t->blocks == BLOCKS)
        return -1;
    t->block[t->blocks] = block;
    return t->blocks++;
}

/* Where the operands lie, to the device. *fits: in few enough blocks. */
static gd_status write_table(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                             table *t, int slot, bool *fits)
{
    gd_gpu_place place;
    *fits = true;
    for (size_t i = 0; i < one->entries; i++) {
        const entry *e = &one->entry[i];
        const gd_status status =
            gd_gpu_place_of(gpu, gd_gpu_address_of(calls[e->call], e->operand), &place);
        const int block = status == GD_OK ? block_number(t, place.block) : -1;
        if (block < 0) {
            *fits = false;
            return status;
        }
        one->packed[i] = (int64_t)block << OFFSET_BITS | (int64_t)place.offset;
    }
    const gd_status status =
        gd_gpu_place_of(gpu, one->tables + (size_t)slot * table_bytes(one), &place);
    return status == GD_OK ? gd_gpu_staging_write(gpu, place, one->packed, table_bytes(one))
                           : status;
}

/* The table's number; -1 with *status GD_OK: there can be none. */
static int find_table(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                      uint64_t addresses, gd_status *status)
{
    if (one->released != gpu->released) { /* handles of blocks may be others' */
        one->count = one->oldest = 0;
        one->released = gpu->released;
    }
    for (int i = 0; i < one->count; i++)
        if (one->kept[i].addresses == addresses)
            return i;
    const bool is_new = one->count < TABLES;
    const int slot = is_new ? one->count : one->oldest;
    table t = { .addresses = addresses };
    bool fits;
    *status = write_table(gpu, one, calls, &t, slot, &fits);
    if (*status != GD_OK || !fits) {
        if (!is_new)
            one->kept[slot].addresses = ~addresses; /* it may be half written */
        return -1;
    }
    one->kept[slot] = t;
    one->count += is_new;
    one->oldest = is_new ? 0 : (slot + 1) % TABLES;
    return slot;
}

gd_status gd_gpu_one_kernel_run(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                                uint64_t addresses, bool *done)
{
    gd_status status = GD_OK;
    gd_gpu_place place[1 + BLOCKS];
    const int slot = find_table(gpu, one, calls, addresses, &status);
    *done = slot >= 0;
    if (slot < 0)
        return status;
    const table *t = &one->kept[slot];
    status = gd_gpu_place_of(gpu, one->tables + (size_t)slot * table_bytes(one), &place[0]);
    for (int i = 0; i < BLOCKS; i++)
        place[1 + i] = (gd_gpu_place){ t->block[i < t->blocks ? i : 0], 0 };
    const gd_gpu_launch launch = { .kernel = one->kernel,
                                   .places = 1 + BLOCKS,
                                   .place = place,
                                   .groups = { 1, 1 },
                                   .items = GD_GPU_PLAN_ITEMS };
    gpu->may_find |= one->may_find;
    gpu->launched++;
    gpu->one_kernels++;
    return status == GD_OK ? gpu->driver->launch(gpu, &launch) : status;
}
