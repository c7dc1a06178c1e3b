/* compile/show.c: a plan printed for people, as text and as Graphviz: its kernels, the bytes they
 * move, their floating-point operations. Measured times are profile.c. */
#include "compile/plan.h"

#include "compile/working_copy.h"
#include "ops/attrs.h"

/* A kernel that does the work of several steps. */
static const char multi_tensor[] = "multi_tensor";

/* Floating-point operations of a step. */
static double flops(const gd_plan *plan, const gd_ir_value *v)
{
    const gd_layout *in[GD_OP_MAX_INPUTS];
    gd_ir_layouts(&plan->ir, v, in);
    return v->op->flops ? v->op->flops(v->n, in, &v->layout, v->attr) : 0;
}

static double bytes_moved(const gd_plan *plan, const gd_ir_value *v)
{
    double bytes = (double)gd_layout_bytes(&v->layout);
    for (int k = 0; k < v->n; k++)
        if (!(gd_ir_is_effect(v) && k == 0))
            bytes += (double)gd_layout_bytes(&plan->ir.values[v->in[k]].layout);
    for (int i = 0; i < gd_ir_extra_count(v); i++)
        bytes += (double)gd_layout_bytes(&v[1 + i].layout);
    return bytes;
}

static void add_operand(const gd_plan *plan, gd_text *text, int32_t value)
{
    const gd_ir_value *v = &plan->ir.values[value], *root = &plan->ir.values[v->root];
    char shape[GD_SHAPE_TEXT];
    gd_text_add(text, "%s%s", gd_dtype_name(v->layout.dtype), gd_layout_text(&v->layout, shape));
    if (root->kind == GD_IR_INPUT)
        gd_text_add(text, "@input%d", root->input);
    else if (root->external && root->external->name)
        gd_text_add(text, "@%s", root->external->name);
    else if (root->external)
        gd_text_add(text, "@external");
    else
        gd_text_add(text, "@%zu", plan->memory.offset[v->root]);
}

static void add_result(const gd_plan *plan, gd_text *text, const gd_step *step)
{
    const gd_ir_value *v = &plan->ir.values[step->value];
    add_operand(plan, text, gd_ir_is_effect(v) ? v->in[0] : step->value);
}

static void add_step(const gd_plan *plan, gd_text *text, const gd_step *step)
{
    const gd_ir_value *v = &plan->ir.values[step->value];
    gd_text_add(text, "%-18s ", v->op->name);
    add_result(plan, text, step);
    for (int i = 0; i < gd_ir_extra_count(v); i++) {
        gd_text_add(text, ", ");
        add_operand(plan, text, step->value + 1 + i);
    }
    gd_text_add(text, " <-");
    for (int k = gd_ir_is_effect(v) ? 1 : 0; k < v->n; k++) {
        gd_text_add(text, " ");
        add_operand(plan, text, v->in[k]);
    }
    char attr[512] = "";
    if (v->op->format)
        v->op->format(v->attr, attr, sizeof attr);
    gd_text_add(text, "%s%s%s", attr[0] ? " {" : "", attr, attr[0] ? "}" : "");
}

/* Of all ops of a kernel. */
static void count_kernel(const gd_plan *plan, const gd_step *kernel, double *bytes, double *ops)
{
    *bytes = *ops = 0;
    for (int i = 0; i < kernel->together; i++) {
        *bytes += bytes_moved(plan, &plan->ir.values[kernel[i].value]);
        *ops += flops(plan, &plan->ir.values[kernel[i].value]);
    }
}

/* "6 updates: f32[10]@fc3.bias, f32[16, 10]@fc3.weight, …" */
static void add_updates(const gd_plan *plan, gd_text *text, const gd_step *kernel)
{
    gd_text_add(text, "%d updates: ", kernel->together);
    for (int i = 0; i < kernel->together; i++) {
        gd_text_add(text, "%s", i ? ", " : "");
        add_result(plan, text, &kernel[i]);
    }
}

static bool runs_on_host(const gd_step *kernel)
{
    const gd_backend *backend = kernel->call.device->backend;
    return backend->runs_on_host && backend->runs_on_host(&kernel->call);
}

static void add_kernel(const gd_plan *plan, gd_text *text, const gd_step *kernel, double bytes,
                       double ops)
{
    if (kernel->together > 1) {
        gd_text_add(text, "%-18s ", multi_tensor);
        add_updates(plan, text, kernel);
    } else {
        add_step(plan, text, kernel);
    }
    gd_text_add(text, "  %.0f B", bytes);
    if (ops > 0)
        gd_text_add(text, ", %.0f FLOP", ops);
    gd_text_add(text, "%s%s\n",
                plan->ir.values[kernel->value].is_recomputed ? ", computed again" : "",
                runs_on_host(kernel) ? ", on the host" : "");
}

/* How the kernel is computed, where there are several ways, and where it works, on a line of its own. */
static void add_explanation(const gd_plan *plan, gd_text *text, const gd_step *kernel)
{
    const gd_backend *backend = kernel->call.device->backend;
    const gd_kernel_scratch *scratch = &kernel->call.scratch;
    gd_text none = { NULL, 0, 0 };
    if (backend->explain && kernel->together == 1)
        backend->explain(&kernel->call, &none);
    if (none.length == 0 && !scratch->memory)
        return;
    gd_text_add(text, "    ");
    if (none.length > 0)
        backend->explain(&kernel->call, text);
    if (scratch->memory)
        gd_text_add(text, "%sscratch %zu B@%zu", none.length > 0 ? "; " : "",
                    scratch->bytes * (size_t)scratch->areas,
                    plan->memory.scratch[kernel->value].offset);
    gd_text_add(text, "\n");
}

/* How the device runs all of them. */
static void explain_calls(const gd_plan *plan, gd_text *text)
{
    gd_device *device = plan->ir.context->device;
    if (!device->backend->explain_calls || plan->n_steps == 0)
        return;
    gd_text_add(text, "%s ", device->name);
    device->backend->explain_calls(device, plan->calls, plan->n_steps, text);
    gd_text_add(text, "\n");
}

/* Memory beside the block, for as long as there is a plan that uses it. */
static void add_copies(const gd_plan *plan, gd_text *text)
{
    size_t bytes = 0, read = 0, updated = 0, exposed = 0;
    for (size_t i = 0; i < plan->ir.copy_count; i++) {
        const gd_ir_copy *c = &plan->ir.copies[i];
        bytes += c->copy->tensor->storage->bytes;
        read += c->is_read;
        updated += c->is_updated;
        exposed += c->is_read && c->copy->parameter->storage->is_exposed;
    }
    if (plan->ir.copy_count == 0)
        return;
    gd_text_add(text,
                "working copies of %zu tensors, %zu B beside the block: %zu read, %zu updated",
                plan->ir.copy_count, bytes, read, updated);
    if (exposed)
        gd_text_add(text, "; %zu converted at each run, as others may write to the tensor",
                    exposed);
    gd_text_add(text, "\n");
}

static void add_packed(const gd_plan *plan, gd_text *text)
{
    const size_t count = plan->packed.count;
    if (count > 0)
        gd_text_add(text, "%zu operand%s packed once, %zu B beside the block\n", count,
                    count == 1 ? "" : "s", gd_packed_bytes(&plan->packed));
}

void gd_plan_add_text(const gd_plan *plan, bool explained, gd_text *text)
{
    double all_bytes = 0, all_flops = 0;
    const gd_step *kernel = plan->steps;
    size_t on_host = 0;
    const int threads = gd_plan_take_threads(plan);
    for (size_t i = 0; i < plan->n_kernels; i++, kernel += kernel->together) {
        double bytes, ops;
        count_kernel(plan, kernel, &bytes, &ops);
        add_kernel(plan, text, kernel, bytes, ops);
        if (explained)
            add_explanation(plan, text, kernel);
        all_bytes += bytes;
        all_flops += ops;
        on_host += runs_on_host(kernel);
    }
    gd_plan_give_threads(plan, threads);
    if (explained && plan->is_small && threads > 1)
        gd_text_add(text, "all on one thread: little work in many kernels\n");
    if (on_host)
        gd_text_add(text, "%zu of the kernels %s on the host, for which %s has none\n", on_host,
                    on_host == 1 ? "runs" : "run", plan->steps->call.device->name);
    gd_text_add(text,
                "%zu kernels, %.0f B moved, %.0f FLOP; block %zu B, least possible %zu B "
                "(ratio %.3f), constants %zu B\n",
                plan->n_kernels, all_bytes, all_flops, plan->memory.bytes, plan->memory.live_bytes,
                plan->memory.live_bytes
                    ? (double)plan->memory.bytes / (double)plan->memory.live_bytes
                    : 1.0,
                plan->memory.constant_bytes);
    add_copies(plan, text);
    add_packed(plan, text);
    explain_calls(plan, text);
    gd_text_add(text, "passes on %d traced ops:", plan->nodes_traced);
    for (int i = 0; i < GD_PASS_COUNT; i++) {
        if (plan->report.changes[i] < 0)
            gd_text_add(text, " %s off;", plan->report.name[i]);
        else
            gd_text_add(text, " %s %d;", plan->report.name[i], plan->report.changes[i]);
    }
    gd_text_add(text, "\n");
    if (plan->ir.options.memory_limit != SIZE_MAX)
        gd_text_add(text, "limit %zu B: %zu B without computing again\n",
                    plan->ir.options.memory_limit, plan->ir.unlimited_bytes);
}

/* ---- as Graphviz ---- */

static void add_dot_leaf(const gd_plan *plan, gd_text *text, int32_t root)
{
    const gd_ir_value *v = &plan->ir.values[root];
    char shape[GD_SHAPE_TEXT];
    if (v->kind == GD_IR_INPUT) {
        gd_text_add(text, "  n%d [shape=box, label=\"input %d", root, v->input);
    } else {
        gd_text_add(text, "  n%d [shape=box, style=bold, label=\"", root);
        gd_text_add_escaped(text, v->external->name ? v->external->name : "tensor");
    }
    gd_text_add(text, "\\n%s %s\"];\n", gd_dtype_name(v->layout.dtype),
                gd_layout_text(&v->layout, shape));
}

/* A frame around the steps of one kernel. */
static void add_dot_cluster(gd_text *text, const gd_step *kernel)
{
    if (kernel->together == 1)
        return;
    gd_text_add(text, "  subgraph cluster_%d {\n    label=\"%s\";\n   ", kernel->value,
                multi_tensor);
    for (int i = 0; i < kernel->together; i++)
        gd_text_add(text, " n%d;", kernel[i].value);
    gd_text_add(text, "\n  }\n");
}

/* Whether a step makes a result. */
static bool gives(const gd_ir_value *v)
{
    bool any = v->is_output;
    for (int i = 1; i <= gd_ir_extra_count(v); i++)
        any |= v[i].is_output;
    return any;
}

/* Ops with a double line make results; "in fc1.bias" is where a value is made. */
void gd_plan_add_dot(const gd_plan *plan, gd_text *text)
{
    gd_text_add(text, "digraph plan {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n");
    for (size_t i = 0; i < plan->ir.count; i++)
        if (plan->ir.values[i].kind == GD_IR_INPUT || plan->ir.values[i].kind == GD_IR_EXTERNAL)
            add_dot_leaf(plan, text, (int32_t)i);
    for (size_t i = 0; i < plan->n_steps; i++) {
        int32_t value = plan->steps[i].value;
        const gd_ir_value *v = &plan->ir.values[value];
        char shape[GD_SHAPE_TEXT];
        gd_text_add(text, "  n%d [%slabel=\"%s\\n%s %s", value, gives(v) ? "peripheries=2, " : "",
                    v->op->name, gd_dtype_name(v->layout.dtype), gd_layout_text(&v->layout, shape));
        for (int k = 0; k <= gd_ir_extra_count(v); k++)
            if (v[k].external && v[k].external->name) {
                gd_text_add(text, "\\nin ");
                gd_text_add_escaped(text, v[k].external->name);
            }
        gd_text_add(text, "\"];\n");
        for (int k = 0; k < v->n; k++) {
            const gd_ir_value *from = &plan->ir.values[plan->ir.values[v->in[k]].root];
            int32_t node = gd_ir_is_extra(from) ? from->in[0] : plan->ir.values[v->in[k]].root;
            gd_text_add(text, "  n%d -> n%d;\n", node, value);
        }
    }
    for (const gd_step *kernel = plan->steps; kernel < plan->steps + plan->n_steps;
         kernel += kernel->together)
        add_dot_cluster(text, kernel);
    gd_text_add(text, "}\n");
}

void gd_plan_describe(const gd_plan *plan, const gd_step *kernel, gd_kernel_profile *out)
{
    gd_text text = { out->what, sizeof out->what, 0 };
    out->what[0] = '\0';
    if (kernel->together > 1) {
        out->op = multi_tensor;
        add_updates(plan, &text, kernel);
    } else {
        out->op = plan->ir.values[kernel->value].op->name;
        add_result(plan, &text, kernel);
    }
    count_kernel(plan, kernel, &out->bytes, &out->flops);
}
