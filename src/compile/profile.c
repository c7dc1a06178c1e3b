/* compile/profile.c: a plan run with every kernel timed, and what was measured as a table and as a
 * trace for chrome://tracing and Perfetto. */
#include "compile/plan.h"

#include "base/error.h"
#include "base/memory.h"

/* rows [n_kernels]; each kernel's shortest time, and when it began in the shortest run, so that no
 * kernel overlaps the next. start [n_kernels] is room. */
static gd_status run_timed(gd_plan *plan, gd_tensor *const *inputs, int runs,
                           gd_kernel_profile *rows, double *start)
{
    double shortest = 0;
    for (int run = 0; run < runs; run++) {
        double begin = gd_seconds(), now = begin;
        gd_status status = gd_plan_begin(plan, inputs);
        if (status == GD_OK)
            status = gd_device_synchronize(plan->ir.context->device);
        const gd_step *kernel = plan->steps;
        for (size_t i = 0; status == GD_OK && i < plan->n_kernels; i++) {
            start[i] = gd_seconds() - begin;
            status = gd_step_run(kernel);
            if (status == GD_OK)
                status = gd_device_synchronize(plan->ir.context->device);
            now = gd_seconds();
            double took = now - begin - start[i];
            if (run == 0 || took < rows[i].seconds)
                rows[i].seconds = took;
            kernel += kernel->together;
        }
        if (status != GD_OK)
            return status;
        for (size_t i = 0; (run == 0 || now - begin < shortest) && i < plan->n_kernels; i++)
            rows[i].start = start[i];
        shortest = run == 0 || now - begin < shortest ? now - begin : shortest;
        gd_plan_end(plan);
    }
    return GD_OK;
}

gd_status gd_plan_profile(gd_plan *plan, gd_tensor *const *inputs, int runs,
                          gd_kernel_profile *rows, size_t capacity)
{
    gd_kernel_profile *all = gd_alloc_zero(plan->n_kernels + 1, sizeof *all);
    double *start = gd_alloc_zero(plan->n_kernels + 1, sizeof *start);
    const int threads = gd_plan_take_threads(plan);
    gd_status status = all && start ? run_timed(plan, inputs, runs, all, start) : GD_ERR_MEMORY;
    gd_plan_give_threads(plan, threads);
    const gd_step *kernel = plan->steps;
    for (size_t i = 0; status == GD_OK && i < plan->n_kernels && i < capacity; i++) {
        gd_plan_describe(plan, kernel, &all[i]);
        rows[i] = all[i];
        kernel += kernel->together;
    }
    gd_free(all);
    gd_free(start);
    return status;
}

/* ---- as a table ---- */

static double shortest_possible(const gd_kernel_profile *row, gd_profile_bounds bounds)
{
    double arithmetic = bounds.flops > 0 ? row->flops / bounds.flops : 0;
    double memory = bounds.bytes > 0 ? row->bytes / bounds.bytes : 0;
    return arithmetic > memory ? arithmetic : memory;
}

static void add_rates(gd_text *text, const gd_kernel_profile *row, gd_profile_bounds bounds)
{
    double seconds = row->seconds > 0 ? row->seconds : 1e-9;
    gd_text_add(text, "%10.2f %9.2f %9.2f", row->seconds * 1e6, row->flops / seconds * 1e-9,
                row->bytes / seconds * 1e-9);
    if (bounds.flops > 0 || bounds.bytes > 0)
        gd_text_add(text, " %7.0f %%", 100 * shortest_possible(row, bounds) / seconds);
}

size_t gd_profile_format(int count, const gd_kernel_profile *rows, gd_profile_bounds bounds,
                         char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (!rows || count <= 0)
        return 0;
    bool has_bounds = bounds.flops > 0 || bounds.bytes > 0;
    gd_text_add(&out, "%10s %9s %9s%s  kernel\n", "us", "GFLOP/s", "GB/s",
                has_bounds ? "  of bound" : "");
    gd_kernel_profile all = { 0 };
    double possible = 0;
    for (int i = 0; i < count; i++) {
        add_rates(&out, &rows[i], bounds);
        gd_text_add(&out, "  %-18s %s\n", rows[i].op, rows[i].what);
        all.seconds += rows[i].seconds;
        all.flops += rows[i].flops;
        all.bytes += rows[i].bytes;
        possible += shortest_possible(&rows[i], bounds);
    }
    add_rates(&out, &all, (gd_profile_bounds){ 0, 0 });
    if (has_bounds)
        gd_text_add(&out, " %7.0f %%", all.seconds > 0 ? 100 * possible / all.seconds : 0);
    gd_text_add(&out, "  all %d kernels\n", count);
    return out.length;
}

/* ---- as a trace: the Trace Event Format, complete events ---- */

static void add_json_string(gd_text *text, const char *string)
{
    gd_text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < ' ')
            gd_text_add(text, "\\u%04x", (unsigned)*c);
        else
            gd_text_add(text, "%c", *c);
    }
    gd_text_add(text, "\"");
}

size_t gd_profile_format_trace(int count, const gd_kernel_profile *rows, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    gd_text_add(&out, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
    for (int i = 0; rows && i < count; i++) {
        gd_text_add(&out,
                    "%s\n{\"ph\": \"X\", \"pid\": 0, \"tid\": 0, \"cat\": \"kernel\", \"name\": ",
                    i ? "," : "");
        add_json_string(&out, rows[i].op);
        gd_text_add(&out,
                    ", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"result\": ", rows[i].start * 1e6,
                    rows[i].seconds * 1e6);
        add_json_string(&out, rows[i].what);
        gd_text_add(&out, ", \"flops\": %.0f, \"bytes\": %.0f}}", rows[i].flops, rows[i].bytes);
    }
    gd_text_add(&out, "\n]}\n");
    return out.length;
}
