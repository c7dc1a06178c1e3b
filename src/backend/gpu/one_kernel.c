/* backend/gpu/one_kernel.c: the calls of a small plan as one kernel. Each step of their jobs is a call of
 * its kernel's text, as a function (codegen/device/steps.txt), so it has the same bits; products have
 * a text of their own (product_plan.txt). Steps are in stages (stages.c), with a barrier behind each.
 * The groups of a step are shared by all work-groups, as many as can meet at a barrier
 * (cluster.txt), or, in stages that are too small for that, are the first one's.
 *
 * Shapes, strides and all other numbers are constants of the program. Addresses are not: the kernel is
 * given those of operands, or, where the device has none, a table of blocks and offsets in its
 * memory, written when the plan runs with addresses that are new. Start at gd_gpu_one_kernel_make. */
#include "backend/gpu/stages.h"

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

/* What the kernel is given with some addresses. */
typedef struct table {
    uint64_t addresses;
    int blocks;
    void *block[BLOCKS];
} table;

struct gd_one_kernel {
    void *kernel;
    bool may_find;   /* a step looks for what only values show: found.c */
    size_t entries;  /* of a table: the operands of all steps */
    int64_t *packed; /* TABLES of so many: addresses, or of the device's table what is in it */
    char *tables;    /* on the device; NULL: the kernel is given the addresses */
    table kept[TABLES];
    int count, oldest; /* `oldest` is replaced next */
    uint64_t released; /* blocks, when those were made */
    gd_plan_steps steps;
    gd_plan_range *ranges; /* of operands, while they are looked at */
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
static bool is_fit(const gd_gpu *gpu, const gd_gpu_step *s)
{
    return !gd_gpu_is_of_library(s) && !s->is_uneven && gpu->plan_items % s->items == 0;
}

/* The steps of a call behind the others, without those that have no work. false, with the reason in
 * `text`: they cannot be steps of one kernel. */
static bool add_steps_of(gd_gpu *gpu, const gd_kernel_call *call, int32_t number,
                         gd_plan_steps *steps, gd_text *text)
{
    gd_gpu_job job;
    if (gd_gpu_runs_on_host(call) || !gd_gpu_describe(call, &job)) {
        gd_text_add(text, "%s runs on the host", call->op->name);
        return false;
    }
    /* A product is one step of such a kernel, also where it is several kernels by itself. */
    (void)gd_gpu_plan_product(call, gpu->plan_items, 1, &job);
    for (int s = 0; s < job.steps; s++) {
        const gd_gpu_step *step = &job.step[s];
        if (!is_fit(gpu, step)) {
            gd_text_add(text,
                        gd_gpu_is_of_library(step) ? "%s is a library's"
                                                   : "the groups of %s cannot share a work-group",
                        call->op->name);
            return false;
        }
        if (step->groups[0] == 0 || step->groups[1] == 0)
            continue;
        if (!gd_grow((void **)&steps->step, &steps->capacity, steps->count + 1,
                     sizeof *steps->step)) {
            gd_text_add(text, "there is no memory");
            return false;
        }
        steps->step[steps->count++] = (gd_plan_step){ .call = number,
                                                      .operations = operations_of(call) / job.steps,
                                                      .step = *step };
    }
    return true;
}

static void free_steps(gd_plan_steps *steps)
{
    gd_free(steps->step);
    gd_free(steps->is_wide);
    *steps = (gd_plan_steps){ 0 };
}

static size_t entries_of(const gd_plan_steps *steps)
{
    size_t entries = 0;
    for (size_t i = 0; i < steps->count; i++)
        entries += (size_t)steps->step[i].step.places;
    return entries;
}

/* All steps, of a plan that can be one kernel. */
static bool collect(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count,
                    gd_plan_steps *steps, gd_text *text)
{
    for (size_t i = 0; i < count; i++)
        if (!add_steps_of(gpu, calls[i], (int32_t)i, steps, text))
            return false;
    if (steps->count < 2 || steps->count > MOST_STEPS) {
        gd_text_add(text, "one kernel is made of 2 to %d steps, and these are %zu", MOST_STEPS,
                    steps->count);
        return false;
    }
    if (gpu->driver->is_addressed && entries_of(steps) * sizeof(int64_t) > gpu->parameter_bytes) {
        gd_text_add(text, "a kernel is not given as many as %zu operands", entries_of(steps));
        return false;
    }
    return true;
}

/* By estimate: steps one after another in one kernel, against what each kernel more takes. */
static bool saves(const gd_gpu *gpu, const gd_kernel_call *const *calls, const gd_plan_steps *steps,
                  gd_text *text)
{
    if (gpu->one_kernel > 0)
        return true;
    if (gpu->kernel_cycles == 0) {
        gd_text_add(text, "to compile one takes longer than it saves, but see GRADUS_ONE_KERNEL");
        return false;
    }
    const double one = gd_gpu_plan_cycles_of_all(gpu, calls, steps);
    const double saved = gpu->kernel_cycles * (double)(steps->count - 1);
    if (one > saved)
        gd_text_add(text,
                    "as one kernel they would take %.0f cycles, and %zu launches fewer save %.0f",
                    one, steps->count - 1, saved);
    return one <= saved;
}

bool gd_gpu_one_kernel_pays(gd_gpu *gpu, const gd_kernel_call *const *calls, size_t count,
                            gd_text *text)
{
    const uint64_t mark = gd_error_mark();
    gd_plan_steps steps = { 0 };
    if (gpu->one_kernel < 0) {
        gd_text_add(text, "GRADUS_ONE_KERNEL=never");
        return false;
    }
    const bool pays = collect(gpu, calls, count, &steps, text) && saves(gpu, calls, &steps, text);
    if (pays)
        gd_text_add(text, "%zu", steps.count);
    free_steps(&steps);
    gd_error_rollback(mark);
    return pays;
}

/* ---- the program ---- */

typedef struct part {
    char key[GD_GPU_KEY];
    size_t bytes;
    gd_gpu_writer write;
    char name[64];
    bool has_barriers, has_shared; /* memory of the work-group */
} part;

typedef struct program {
    gd_gpu *gpu;
    gd_one_kernel *one;
    gd_text_buffer functions, constants, body;
    part *parts; /* a kernel each */
    size_t count, capacity;
    bool has_met; /* behind the last step all items of a work-group have met */
} program;

static bool is_cuda(const gd_gpu *gpu)
{
    return gpu->driver->dialect == GD_DIALECT_CUDA;
}

static gd_dialect dialect_of(const gd_gpu *gpu)
{
    return !is_cuda(gpu)          ? GD_DIALECT_OPENCL_STEPS
           : gpu->plan_blocks > 1 ? GD_DIALECT_CUDA_CLUSTER
                                  : GD_DIALECT_CUDA_STEPS;
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
    new->has_shared = strstr(text, "\n    LOCAL_ARRAY(");
    status = own.failed ? GD_ERR_MEMORY : GD_OK;
    if (status == GD_OK && ((new->has_barriers && !strstr(text, "GROUP_RUNS()")) ||
                            !add_numbers_type(p, text, source->kernel, number)))
        status =
            gd_fail(GD_ERR_UNSUPPORTED, "kernel %s cannot be a step of another", source->kernel);
    add_local_bytes(p, text, number, p->gpu->plan_items / step->items);
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

/* Operands of step `number`. */
static void add_places(program *p, size_t number)
{
    size_t entry = 0;
    for (size_t i = 0; i < number; i++)
        entry += (size_t)p->one->steps.step[i].step.places;
    for (int i = 0; i < p->one->steps.step[number].step.places; i++)
        gd_buffer_add(&p->body, is_cuda(p->gpu) ? "PLACE(%zu), " : "TABLE_PLACE(%zu), ",
                      entry + (size_t)i);
}

/* Constants of step `number`. */
static void add_numbers(program *p, const gd_gpu_step *s, int kernel, size_t number)
{
    gd_buffer_add(&p->constants, "CONSTANT_NUMBERS(numbers_of_%d, numbers_%zu) = { ", kernel,
                  number);
    for (int i = 0; i < s->numbers; i++)
        add_number(&p->constants, s->number[i]);
    gd_buffer_add(&p->constants, "};\n");
}

/* The group's number along both axes. */
static void add_group(gd_text_buffer *out, const gd_gpu_step *s, const char *group)
{
    if (s->groups[1] == 1)
        gd_buffer_add(out, "%s, 0, ", group);
    else
        gd_buffer_add(out, "%s %% %lld, %s / %lld, ", group, (long long)s->groups[0], group,
                      (long long)s->groups[0]);
}

/* The step's groups, as `blocks` work-groups share them; *taken: how many groups of the stage's other steps
 * have been given away, behind which these come. */
static void add_loop(program *p, const gd_gpu_step *s, bool has_barriers, int blocks,
                     int64_t *taken)
{
    const long long all = s->groups[0] * s->groups[1];
    const int beside = p->gpu->plan_items / s->items; /* in a work-group */
    const int turn = blocks * beside, places = has_barriers ? blocks : turn;
    const long long behind = places - *taken % places;
    const char *type = all < INT32_MAX / 2 ? "int" : "int64_t";
    gd_text_buffer *out = &p->body;
    gd_buffer_add(out, "    item = STEP_ITEM();\n    for (%s %s = (", type,
                  has_barriers ? "first" : "group");
    if (!has_barriers)
        gd_buffer_add(out, "item / %d * %d + ", s->items, blocks);
    gd_buffer_add(out, "%s + %lld) %% %d", blocks > 1 ? "block" : "0", behind % places, places);
    if (has_barriers) {
        gd_buffer_add(out, " * %d; first < %lld; first += %d) {\n", beside, all, turn);
        gd_buffer_add(out, "        const %s last = first + item / %d;\n", type, s->items);
        gd_buffer_add(out, "        const %s group = last < %lld ? last : %lld;\n        ", type,
                      all, all - 1);
    } else {
        gd_buffer_add(out, "; group < %lld; group += %d)\n        ", all, turn);
    }
    *taken += has_barriers ? gd_gpu_groups(all, beside) : all;
}

/* Behind a step that has memory of the work-group its items meet: the next may use the same. */
static gd_status add_step(program *p, size_t number, int blocks, int64_t *taken)
{
    const gd_gpu_step *s = &p->one->steps.step[number].step;
    const int kernel = find_part(p, s);
    if (kernel < 0)
        return gd_error_last();
    const part *of = &p->parts[kernel];
    gd_text_buffer *out = &p->body;
    add_numbers(p, s, kernel, number);
    add_loop(p, s, of->has_barriers, blocks, taken);
    gd_buffer_add(out, "%s_%d(", of->name, kernel);
    add_places(p, number);
    gd_buffer_add(out, "numbers_%zu, ", number);
    add_group(out, s, "group");
    gd_buffer_add(out, of->has_barriers ? "last == group, " : "1, ");
    gd_buffer_add(out, "shared + item / %d * local_bytes_%d);\n", s->items, kernel);
    if (of->has_barriers)
        gd_buffer_add(out, "        BARRIER();\n    }\n");
    else if (of->has_shared)
        gd_buffer_add(out, "    BARRIER();\n");
    p->has_met = of->has_barriers || of->has_shared;
    return GD_OK;
}

/* Products and elementwise ops, as so many work-groups make them; small ones of a stage are one's each. */
static void describe_for(const gd_gpu *gpu, const gd_kernel_call *call, int blocks, gd_plan_step *s)
{
    gd_gpu_job job;
    if (blocks > 1 && !gd_gpu_plan_is_large(gpu, call, s))
        blocks = 1;
    if (gd_gpu_plan_product(call, gpu->plan_items, blocks, &job) ||
        gd_gpu_plan_elementwise(call, (int64_t)blocks * gpu->plan_items, &job))
        s->step = job.step[0];
}

/* The steps of a stage that are the work-group's, or are shared. */
static gd_status add_stage(program *p, const gd_kernel_call *const *calls, int stage, int block)
{
    gd_plan_steps *steps = &p->one->steps;
    const int blocks = block == GD_PLAN_SHARED ? p->gpu->plan_blocks : 1;
    int64_t taken = 0;
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < steps->count; i++) {
        gd_plan_step *s = &steps->step[i];
        if (s->stage != stage || s->block != block)
            continue;
        if (block > 0 && !p->has_met) /* one waits for another */
            gd_buffer_add(&p->body, "    BARRIER();\n");
        describe_for(p->gpu, calls[s->call], blocks, s);
        status = add_step(p, i, blocks, &taken);
    }
    return status;
}

enum { ANY = -2 };

/* Whether a work-group has steps in these stages. */
static bool has_steps(const gd_plan_steps *steps, int first, int last, int block)
{
    for (size_t i = 0; i < steps->count; i++) {
        const gd_plan_step *s = &steps->step[i];
        if (s->stage >= first && s->stage <= last && (block == ANY || s->block == block))
            return true;
    }
    return false;
}

/* A run of stages that are the first work-group's, with a barrier of its own between two, or what another
 * one does meanwhile. */
static gd_status add_run(program *p, const gd_kernel_call *const *calls, int first, int last,
                         int block)
{
    gd_status status = GD_OK;
    if (!has_steps(&p->one->steps, first, last, block))
        return GD_OK;
    gd_buffer_add(&p->body, "    if (block == %d) {\n", block);
    p->has_met = true;
    for (int stage = first; status == GD_OK && stage <= last; stage++)
        if (has_steps(&p->one->steps, stage, stage, block)) {
            if (!p->has_met)
                gd_buffer_add(&p->body, "    BARRIER();\n");
            status = add_stage(p, calls, stage, block);
        }
    gd_buffer_add(&p->body, "    }\n");
    return status;
}

/* Stages that all work-groups share, and runs of the others, with a barrier of all between two. */
static gd_status add_stages(program *p, const gd_kernel_call *const *calls)
{
    const gd_plan_steps *steps = &p->one->steps;
    gd_status status = GD_OK;
    for (int stage = 0, end; status == GD_OK && stage < steps->stages; stage = end + 1) {
        const bool is_wide = steps->is_wide[stage];
        for (end = stage; !is_wide && end + 1 < steps->stages && !steps->is_wide[end + 1];)
            end++;
        if (!has_steps(steps, stage, end, ANY))
            continue;
        if (has_steps(steps, 0, stage - 1, ANY))
            gd_buffer_add(&p->body, "    PLAN_BARRIER();\n");
        if (is_wide)
            status = add_stage(p, calls, stage, GD_PLAN_SHARED);
        for (int block = 0; status == GD_OK && !is_wide && block < p->gpu->plan_blocks; block++)
            status = add_run(p, calls, stage, end, block);
    }
    return status;
}

/* What the kernel is given, and how that is opened. */
static void add_arguments(const program *p, gd_text_buffer *out)
{
    if (is_cuda(p->gpu)) {
        gd_buffer_add(out, "const __grid_constant__ plan_places places)\n{\n");
        return;
    }
    gd_buffer_add(out, "MEMORY(tables)");
    for (int i = 0; i < BLOCKS; i++)
        gd_buffer_add(out, ", MEMORY(b%d)", i);
    gd_buffer_add(out, ")\n{\n"
                       "    GLOBAL int64_t *table = (GLOBAL int64_t *)MEMORY_START(tables);\n");
}

/* All of it: the functions, then the kernel. OpenCL C has no constants before it that a function could
 * be given. */
static gd_status join(program *p, gd_text_buffer *out)
{
    const char *const constants = p->constants.text ? p->constants.text : "";
    gd_text_buffer entry_text = { 0 };
    if (is_cuda(p->gpu))
        gd_buffer_add(&entry_text,
                      "%s\ntypedef struct plan_places {\n    char *at[%zu];\n} plan_places;\n",
                      constants, p->one->entries);
    gd_buffer_add(&entry_text, "\nENTRY(plan_steps, %d)(", p->gpu->plan_items);
    add_arguments(p, &entry_text);
    gd_buffer_add(&entry_text,
                  "    SHARED_ARRAY(double, memory, local_total_%zu / 8 + 1);\n"
                  "    LOCAL char *shared = (LOCAL char *)memory;\n"
                  "    const int block = PLAN_BLOCK();\n"
                  "    int item;\n%s%s}\n",
                  p->count - 1, is_cuda(p->gpu) ? "" : constants, p->body.text ? p->body.text : "");
    gd_codegen_begin(dialect_of(p->gpu), !p->gpu->is_without_f64, out);
    gd_buffer_add(out, "#define PLAN_BLOCKS %d\n", p->gpu->plan_blocks);
    gd_buffer_put(out, p->functions.text, p->functions.length);
    gd_buffer_add(out, "\n");
    gd_status status = gd_codegen_link(dialect_of(p->gpu), &entry_text, out);
    gd_buffer_put(out, entry_text.text, entry_text.length);
    gd_free(entry_text.text);
    if (p->body.failed || p->functions.failed || p->constants.failed || out->failed)
        status = GD_ERR_MEMORY;
    return status;
}

/* ---- making it ---- */

static size_t table_bytes(const gd_one_kernel *one)
{
    return sizeof(int64_t) * one->entries;
}

/* The steps, in their stages. */
static gd_status plan(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                      size_t count)
{
    gd_text ignored = { NULL, 0, 0 };
    if (!collect(gpu, calls, count, &one->steps, &ignored))
        return gd_fail(GD_ERR_UNSUPPORTED, "there are steps that cannot be one kernel's");
    one->entries = entries_of(&one->steps);
    for (size_t i = 0; i < one->steps.count; i++)
        for (int k = 0; k < one->steps.step[i].step.places; k++)
            one->may_find |= one->steps.step[i].step.place[k] == GD_GPU_FOUND;
    one->ranges = gd_alloc_zero(one->entries, sizeof *one->ranges);
    gd_status status =
        one->ranges ? gd_gpu_plan_ranges(gpu, calls, &one->steps, one->ranges) : GD_ERR_MEMORY;
    return status == GD_OK ? gd_gpu_plan_stages(gpu, calls, &one->steps, one->ranges) : status;
}

static gd_status make_tables(gd_gpu *gpu, gd_one_kernel *one)
{
    one->packed = gd_alloc_zero(TABLES, table_bytes(one));
    if (one->packed && !is_cuda(gpu))
        one->tables = gd_gpu_memory_alloc(&gpu->base, TABLES * table_bytes(one));
    return one->packed && (one->tables || is_cuda(gpu)) ? GD_OK : GD_ERR_MEMORY;
}

static gd_status make(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                      size_t count)
{
    program p = { .gpu = gpu, .one = one };
    gd_text_buffer text = { 0 };
    gd_status status = plan(gpu, one, calls, count);
    if (status == GD_OK)
        status = add_stages(&p, calls);
    if (status == GD_OK)
        status = join(&p, &text);
    if (status == GD_OK) {
        one->kernel = gd_gpu_kernel_of(gpu, &text, "plan_steps");
        status = one->kernel ? make_tables(gpu, one) : gd_error_last();
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
    free_steps(&one->steps);
    gd_free(one->packed);
    gd_free(one->ranges);
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

/* An operand's entry; -1: it lies in one block more than a kernel is given. */
static int64_t entry_of(const gd_gpu *gpu, table *t, gd_gpu_place place)
{
    if (is_cuda(gpu))
        return (int64_t)((uintptr_t)place.block + place.offset);
    const int block = block_number(t, place.block);
    return block < 0 ? -1 : (int64_t)block << OFFSET_BITS | (int64_t)place.offset;
}

/* Where the operands lie, also to the device where it has a table. *fits: they lie in few enough blocks, and
 * the stages are right for them. */
static gd_status write_table(gd_gpu *gpu, gd_one_kernel *one, const gd_kernel_call *const *calls,
                             table *t, int slot, bool *fits)
{
    gd_gpu_place place;
    int64_t *packed = one->packed + (size_t)slot * one->entries;
    gd_status status = gd_gpu_plan_ranges(gpu, calls, &one->steps, one->ranges);
    *fits = status == GD_OK && gd_gpu_plan_stages_hold(&one->steps, one->ranges);
    for (size_t i = 0; i < one->steps.count; i++) {
        const gd_plan_step *s = &one->steps.step[i];
        for (int k = 0; *fits && k < s->step.places; k++) {
            status =
                gd_gpu_place_of(gpu, gd_gpu_address_of(calls[s->call], s->step.place[k]), &place);
            *packed = status == GD_OK ? entry_of(gpu, t, place) : -1;
            *fits = *packed++ != -1;
        }
    }
    if (!*fits || is_cuda(gpu))
        return status;
    status = gd_gpu_place_of(gpu, one->tables + (size_t)slot * table_bytes(one), &place);
    return status == GD_OK
               ? gd_gpu_staging_write(gpu, place, one->packed + (size_t)slot * one->entries,
                                      table_bytes(one))
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
    gd_gpu_launch launch = { .kernel = one->kernel,
                             .place = place,
                             .groups = { gpu->plan_blocks, 1 },
                             .items = gpu->plan_items };
    if (is_cuda(gpu)) {
        launch.numbers = (int)one->entries;
        launch.number = one->packed + (size_t)slot * one->entries;
    } else {
        launch.places = 1 + BLOCKS;
        status = gd_gpu_place_of(gpu, one->tables + (size_t)slot * table_bytes(one), &place[0]);
        for (int i = 0; i < BLOCKS; i++)
            place[1 + i] = (gd_gpu_place){ t->block[i < t->blocks ? i : 0], 0 };
    }
    gpu->may_find |= one->may_find;
    gpu->launched++;
    gpu->one_kernels++;
    return status == GD_OK ? gpu->driver->launch(gpu, &launch) : status;
}
