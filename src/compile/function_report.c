/* compile/function_report.c: what a function's plans are, as numbers, as text, as C, and measured. */
#include "compile/function.h"

#include <stdlib.h>
#include <string.h>

#include <gradus/io.h>

#include "base/error.h"

gd_plan_stats gd_function_stats(const gd_function *function)
{
    gd_plan_stats stats = { 0 };
    if (!function)
        return stats;
    stats.plans = (int)function->count;
    stats.calls = function->calls;
    stats.traces = function->traces;
    stats.evictions = function->evictions;
    const gd_plan *plan = function->current ? function->current->plan : NULL;
    if (!plan)
        return stats;
    stats.nodes_traced = plan->nodes_traced;
    for (size_t i = 0; i < plan->ir.count; i++) {
        stats.nodes_planned += plan->ir.values[i].kind == GD_IR_OP;
        stats.recomputed += plan->ir.values[i].is_recomputed;
    }
    stats.kernels = (int)plan->n_kernels;
    stats.arena_bytes = plan->memory.bytes;
    stats.live_bytes = plan->memory.live_bytes;
    stats.compile_seconds = plan->compile_seconds;
    stats.packed_bytes = gd_packed_bytes(&plan->packed);
    return stats;
}

static size_t format(const gd_function *function, bool explained, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (function && function->current)
        gd_plan_add_text(function->current->plan, explained, &out);
    return out.length;
}

size_t gd_plan_format(const gd_function *function, char *text, size_t size)
{
    return format(function, false, text, size);
}

size_t gd_plan_explain(const gd_function *function, char *text, size_t size)
{
    return format(function, true, text, size);
}

size_t gd_plan_format_dot(const gd_function *function, char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (function && function->current)
        gd_plan_add_dot(function->current->plan, &out);
    return out.length;
}

size_t gd_plan_format_svg(const gd_function *function, int count, const gd_kernel_profile *rows,
                          char *text, size_t size)
{
    if (size)
        text[0] = '\0';
    gd_text out = { text, size, 0 };
    if (count < 0) {
        (void)gd_fail(GD_ERR_INVALID, "gd_plan_format_svg: %d rows", count);
        return 0;
    }
    if (function && function->current &&
        gd_plan_add_svg(function->current->plan, count, rows, &out) != GD_OK)
        return 0;
    return out.length;
}

/* Whether an exported file may define a function of this name. */
static bool is_c_name(const char *name)
{
    static const char taken[] =
        " auto break case char const continue default do double else enum extern float for goto if "
        "inline int long register restrict return short signed sizeof static struct switch typedef "
        "union unsigned void volatile while main memory f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 ";
    bool ok = name && *name && !(*name >= '0' && *name <= '9');
    const char *at = ok ? strstr(taken, name) : NULL;
    for (; ok && at; at = strstr(at + 1, name))
        ok = !(at[-1] == ' ' && at[strlen(name)] == ' ');
    for (const char *c = name; ok && *c; c++)
        ok = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
             *c == '_';
    return ok;
}

gd_status gd_export_c(const gd_function *function, const char *name, FILE *file)
{
    if (!function || !file || !is_c_name(name))
        return gd_fail(GD_ERR_INVALID, "gd_export_c: %s",
                       is_c_name(name) ? "the function or the file is NULL"
                                       : "the name is none that a C function may have here");
    if (!function->current)
        return gd_fail(GD_ERR_STATE, "gd_export_c: the function has not been called yet");
    if (function->current->gradient)
        return gd_fail(GD_ERR_STATE,
                       "gd_export_c: the plan keeps what a gradient through it needs; compile "
                       "the function with .detached = true");
    return gd_plan_export(function->current->plan, name, file);
}

gd_status gd_export_c_path(const gd_function *function, const char *name, const char *path)
{
    if (!path)
        return gd_fail(GD_ERR_INVALID, "gd_export_c_path: the path is NULL");
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return gd_fail(GD_ERR_MEMORY, "gd_export_c_path: out of memory");
    gd_status status = GD_AS("gd_export_c_path", gd_export_c(function, name, memory));
    if (fclose(memory) != 0 && status == GD_OK)
        status = gd_fail(GD_ERR_MEMORY, "gd_export_c_path: out of memory");
    if (status == GD_OK)
        status = GD_AS("gd_export_c_path", gd_file_write(path, text, size));
    free(text);
    return status;
}

int gd_function_profile(gd_function *function, int count, gd_tensor *const *inputs, int runs,
                        int capacity, gd_kernel_profile *rows)
{
    if (runs < 1 || capacity < 0 || (capacity > 0 && !rows)) {
        (void)gd_fail(GD_ERR_INVALID, "gd_function_profile: %d runs into %d rows%s", runs, capacity,
                      rows ? "" : " at NULL");
        return -1;
    }
    if (function && (function->mode != GD_MODE_COMPILED || function->context->trace)) {
        (void)gd_fail(
            GD_ERR_STATE,
            "gd_function_profile: only a compiled function outside of a trace has kernels to time");
        return -1;
    }
    if (!gd_call(function, count, inputs))
        return -1;
    gd_plan *plan = function->current->plan;
    gd_status status = gd_plan_profile(plan, inputs, runs, rows, (size_t)capacity);
    return status == GD_OK ? (int)plan->n_kernels : -1;
}
