/* compile/draw.c: a plan as a picture (SVG): its kernels as boxes, one below the other in the order in which they
 * run, arcs from those that make a value to those that read it, bars of what each takes; and below, which bytes of
 * the block belong to which value when. Start at gd_plan_add_svg(). */
#include "compile/plan.h"

#include "base/memory.h"
#include "graph/phase.h"

#include <math.h>
#include <string.h>

/* In pixels. */
enum {
    WIDTH = 1000,
    HEAD = 78,
    ROW = 38,
    BOX = 32,
    BOX_LEFT = 170, /* arcs to the left of it, bars to the right of its end */
    BOX_RIGHT = 620,
    BAR_LEFT = 636,
    BAR_WIDTH = 210,
    MAP_LEFT = 24, /* of the memory */
    MAP_HEIGHT = 220,
    LINE_CHARACTERS = 62
};

typedef struct drawing {
    const gd_plan *plan;
    gd_text *text;
    int32_t *kernel_of; /* [values] the kernel that makes a value; -1: none */
    int32_t *last_use;  /* [values] */
    const double *shares;
    double largest, all;
    bool timed; /* shares are seconds, else bytes */
} drawing;

static const char *const phases[GD_PHASES] = { "forward", "backward", "update" };

static const char style[] =
    "text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',Arial,sans-serif;fill:#24292f}"
    ".t{font-size:15px;font-weight:600}.o{font-weight:600}.m{fill:#57606a;font-size:11px}"
    ".a{fill:none;stroke:#8c959f;stroke-opacity:.6}.x{fill-opacity:.16;stroke-width:1}"
    ".f{stroke:#8c959f;stroke-width:1;fill:none}.v{fill-opacity:.45;stroke:#fff;stroke-width:.5}"
    ".p0{fill:#0072b2}.p1{fill:#d55e00}.p2{fill:#009e73}"
    "\n@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9da7b1}"
    ".v{stroke:#0d1117}.p0{fill:#5cb3ec}.p1{fill:#ff8f52}.p2{fill:#3ecf9f}}";

/* ---- text ---- */

/* At most `most` characters, what XML reserves written so, without control characters. Returns how many
 * of them are left. */
static int add_xml(gd_text *text, const char *s, int most)
{
    for (; *s && most > 0; most--) {
        int length = gd_utf8_length(s);
        if (*s == '<' || *s == '>' || *s == '&')
            gd_text_add(text, "%s", *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;");
        else if (length == 0 || (unsigned char)*s < ' ' || *s == 127)
            gd_text_add(text, "?");
        else
            gd_text_add(text, "%.*s", length, s);
        s += length ? length : 1;
    }
    if (*s)
        gd_text_add(text, "\xe2\x80\xa6");
    return *s ? 0 : most;
}

/* 17.5 kB, 1.31 MFLOP */
static void add_count(gd_text *text, double count, const char *unit)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
    int i = 0;
    for (; count >= 999.5 && i < 5; i++)
        count /= 1000.0;
    gd_text_add(text, "%.3g %s%s", count, prefixes[i], unit);
}

static void add_seconds(gd_text *text, double seconds)
{
    if (seconds < 999.5e-6)
        gd_text_add(text, "%.3g \xc2\xb5s", seconds * 1e6);
    else
        gd_text_add(text, "%.3g %s", seconds < 0.9995 ? seconds * 1e3 : seconds,
                    seconds < 0.9995 ? "ms" : "s");
}

static void add_share(const drawing *d, double share)
{
    if (d->timed)
        add_seconds(d->text, share);
    else
        add_count(d->text, share, "B");
}

/* ---- kernels ---- */

static double middle_of(int32_t kernel)
{
    return HEAD + (double)kernel * ROW + BOX / 2.0;
}

static int phase_of(const gd_plan *plan, const gd_step *kernel)
{
    int phase = plan->ir.values[kernel->value].phase;
    return phase < GD_PHASES ? phase : 0;
}

/* From a value's kernel to its reader: the farther, the wider. */
static void add_arc(const drawing *d, int32_t from, int32_t to)
{
    double bow = 10.0 + 14.0 * log2((double)(to - from));
    bow = bow > BOX_LEFT - 12 ? BOX_LEFT - 12 : bow;
    gd_text_add(d->text, "<path class=\"a\" d=\"M%d %.1fC%.1f %.1f %.1f %.1f %d %.1f\"/>\n",
                BOX_LEFT, middle_of(from) + 4, BOX_LEFT - bow * 4 / 3, middle_of(from) + 4,
                BOX_LEFT - bow * 4 / 3, middle_of(to) - 4, BOX_LEFT, middle_of(to) - 4);
}

static void add_arcs(const drawing *d, const gd_step *kernel, int32_t index)
{
    for (int i = 0; i < kernel->together; i++) {
        const gd_ir_value *v = &d->plan->ir.values[kernel[i].value];
        for (int k = 0; k < v->n; k++) {
            int32_t root = d->plan->ir.values[v->in[k]].root, from = d->kernel_of[root];
            bool again = from < 0 || from >= index;
            for (int j = 0; j < k && !again; j++)
                again = d->plan->ir.values[v->in[j]].root == root;
            if (!again)
                add_arc(d, from, index);
        }
    }
}

static void add_name(gd_text *line, const char *before, const char *name)
{
    gd_text_add(line, "%s%s", line->length ? ", " : "", before);
    gd_text_add(line, "%s", name);
}

/* What it has to do with outside: inputs and parameters that it reads, and those that it makes anew. */
static void describe_outside(const gd_plan *plan, const gd_step *kernel, gd_text *line)
{
    bool reads = false, writes = false;
    for (int i = 0; i < kernel->together; i++) {
        const gd_ir_value *v = &plan->ir.values[kernel[i].value];
        for (int k = gd_ir_is_effect(v) ? 1 : 0; k < v->n && kernel->together == 1; k++) {
            const gd_ir_value *root = &plan->ir.values[plan->ir.values[v->in[k]].root];
            char input[32];
            gd_snprintf(input, sizeof input, "input %d", root->input);
            bool is_named = root->kind == GD_IR_EXTERNAL && root->external->name;
            if (root->kind == GD_IR_INPUT || is_named) {
                add_name(line, reads ? "" : "reads ", is_named ? root->external->name : input);
                reads = true;
            }
        }
        for (int e = 0; e <= gd_ir_extra_count(v); e++)
            if (v[e].external && v[e].external->name) {
                add_name(line, writes ? "" : "updates ", v[e].external->name);
                writes = true;
            }
    }
    if (plan->ir.values[kernel->value].is_recomputed)
        gd_text_add(line, "%scomputed again", line->length ? ", " : "");
}

/* "linear f32[50, 16] relu": its offset is in the map. */
static void add_op(const drawing *d, const gd_step *kernel)
{
    const gd_ir_value *v = &d->plan->ir.values[kernel->value];
    char attribute[512] = "";
    gd_kernel_profile row;
    gd_plan_describe(d->plan, kernel, &row);
    row.what[strcspn(row.what, kernel->together > 1 ? ":" : "@")] = '\0';
    if (kernel->together == 1 && v->op->format)
        v->op->format(v->attr, attribute, sizeof attribute);
    int left = LINE_CHARACTERS - (int)strlen(row.op);
    gd_text_add(d->text, "<tspan class=\"o\">%s</tspan> ", row.op);
    left = add_xml(d->text, row.what, left);
    gd_text_add(d->text, " ");
    (void)add_xml(d->text, attribute, left);
}

static void add_box(const drawing *d, const gd_step *kernel, int32_t index)
{
    double top = HEAD + (double)index * ROW;
    char outside[512] = "";
    gd_text line = { outside, sizeof outside, 0 };
    describe_outside(d->plan, kernel, &line);
    gd_text_add(d->text,
                "<rect class=\"x p%d\" x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"3\"/>"
                "<rect class=\"p%d\" x=\"%d\" y=\"%.0f\" width=\"4\" height=\"%d\"/>\n"
                "<text x=\"%d\" y=\"%.0f\">",
                phase_of(d->plan, kernel), BOX_LEFT, top, BOX_RIGHT - BOX_LEFT, BOX,
                phase_of(d->plan, kernel), BOX_LEFT, top, BOX, BOX_LEFT + 12,
                top + (line.length ? 14 : 20));
    add_op(d, kernel);
    gd_text_add(d->text, "</text>\n");
    if (!line.length)
        return;
    gd_text_add(d->text, "<text class=\"m\" x=\"%d\" y=\"%.0f\">", BOX_LEFT + 12, top + 27);
    (void)add_xml(d->text, outside, LINE_CHARACTERS + 6);
    gd_text_add(d->text, "</text>\n");
}

static void add_bar(const drawing *d, const gd_step *kernel, int32_t index)
{
    double share = d->shares[index], top = HEAD + (double)index * ROW;
    double width = d->largest > 0 ? BAR_WIDTH * share / d->largest : 0;
    gd_text_add(d->text,
                "<rect class=\"p%d\" x=\"%d\" y=\"%.0f\" width=\"%.1f\" height=\"14\"/>"
                "<text x=\"%.1f\" y=\"%.0f\">",
                phase_of(d->plan, kernel), BAR_LEFT, top + 9, width, BAR_LEFT + width + 6,
                top + 20);
    add_share(d, share);
    gd_text_add(d->text, ", %.1f %%</text>\n", d->all > 0 ? 100.0 * share / d->all : 0.0);
}

/* ---- memory ---- */

/* Who has been made by the end of the kernel, and from which to which kernel the value lives. */
static void find_life(const drawing *d, int32_t value, int32_t *first, int32_t *last)
{
    const gd_ir_value *v = &d->plan->ir.values[value];
    *first = v->is_constant ? 0 : d->kernel_of[value];
    *last = v->is_constant || v->is_output ? (int32_t)d->plan->n_kernels - 1
                                           : d->kernel_of[d->last_use[value]];
    *last = *last < *first ? *first : *last;
}

static void add_value(const drawing *d, int32_t value, double top)
{
    const gd_ir_value *v = &d->plan->ir.values[value];
    double step = (double)(WIDTH - 2 * MAP_LEFT) / (double)d->plan->n_kernels;
    double scale = MAP_HEIGHT / (double)d->plan->memory.bytes;
    double bytes = (double)gd_memory_bytes(&d->plan->ir, &v->layout);
    int32_t first, last;
    char shape[GD_SHAPE_TEXT];
    find_life(d, value, &first, &last);
    gd_text_add(d->text,
                "<rect class=\"v p%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>"
                "%s %s%s, ",
                v->phase < GD_PHASES ? v->phase : 0, MAP_LEFT + step * first,
                top + scale * (double)d->plan->memory.offset[value], step * (last - first + 1),
                scale * bytes, v->op->name, gd_dtype_name(v->layout.dtype),
                gd_layout_text(&v->layout, shape));
    add_count(d->text, bytes, "B");
    gd_text_add(d->text, ", kernels %d to %d</title></rect>\n", first + 1, last + 1);
}

static void add_map(const drawing *d, double top)
{
    const gd_plan *plan = d->plan;
    gd_text_add(d->text, "<text class=\"t\" x=\"%d\" y=\"%.0f\">Memory: ", MAP_LEFT, top - 26);
    add_count(d->text, (double)plan->memory.bytes, "B");
    gd_text_add(
        d->text,
        "</text>\n<text class=\"m\" x=\"%d\" y=\"%.0f\">A box is a value: from left to right "
        "the kernels between its making and its last use, from top to bottom its bytes</text>\n"
        "<rect class=\"f\" x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\"/>\n",
        MAP_LEFT, top - 9, MAP_LEFT, top, WIDTH - 2 * MAP_LEFT, MAP_HEIGHT);
    for (size_t i = 0; i < plan->ir.count; i++)
        if (gd_ir_needs_memory(&plan->ir.values[i]) && plan->memory.offset[i] != GD_NO_OFFSET &&
            (d->kernel_of[i] >= 0 || plan->ir.values[i].is_constant))
            add_value(d, (int32_t)i, top);
}

/* ---- all of it ---- */

static void add_head(const drawing *d, double height)
{
    double bytes = 0, flops = 0;
    bool has[GD_PHASES] = { false };
    const gd_step *kernel = d->plan->steps;
    for (size_t i = 0; i < d->plan->n_kernels; i++, kernel += kernel->together) {
        gd_kernel_profile row;
        gd_plan_describe(d->plan, kernel, &row);
        bytes += row.bytes;
        flops += row.flops;
        has[phase_of(d->plan, kernel)] = true;
    }
    gd_text_add(d->text,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                "viewBox=\"0 0 %d %.0f\" role=\"img\">\n<title>Plan</title>\n<style>%s</style>\n"
                "<text class=\"t\" x=\"%d\" y=\"26\">%zu kernel%s: ",
                WIDTH, height, WIDTH, height, style, MAP_LEFT, d->plan->n_kernels,
                d->plan->n_kernels == 1 ? "" : "s");
    if (d->timed) {
        add_seconds(d->text, d->all);
        gd_text_add(d->text, ", ");
    }
    add_count(d->text, bytes, "B");
    gd_text_add(d->text, " moved, ");
    add_count(d->text, flops, "FLOP");
    gd_text_add(d->text, "</text>\n");
    int x = BOX_LEFT;
    for (int i = 0; i < GD_PHASES; i++)
        if (has[i]) {
            gd_text_add(d->text,
                        "<rect class=\"p%d\" x=\"%d\" y=\"46\" width=\"12\" height=\"12\"/>"
                        "<text x=\"%d\" y=\"57\">%s</text>\n",
                        i, x, x + 18, phases[i]);
            x += 100;
        }
    gd_text_add(d->text, "<text class=\"m\" x=\"%d\" y=\"57\">%s, and the share of all</text>\n",
                BAR_LEFT, d->timed ? "the shortest time of a kernel" : "bytes that a kernel moves");
}

static void draw(const drawing *d)
{
    const gd_plan *plan = d->plan;
    double below = HEAD + (double)plan->n_kernels * ROW;
    bool has_map = plan->memory.bytes > 0 && plan->n_kernels > 0;
    add_head(d, below + (has_map ? 56 + MAP_HEIGHT + 20 : 12));
    const gd_step *kernel = plan->steps;
    for (int32_t i = 0; i < (int32_t)plan->n_kernels; i++, kernel += kernel->together)
        add_arcs(d, kernel, i);
    kernel = plan->steps;
    for (int32_t i = 0; i < (int32_t)plan->n_kernels; i++, kernel += kernel->together) {
        add_box(d, kernel, i);
        add_bar(d, kernel, i);
    }
    if (has_map)
        add_map(d, below + 56);
    gd_text_add(d->text, "</svg>\n");
}

/* The kernels that make the values, and by what of each its bar is long. */
static void measure(drawing *d, const gd_kernel_profile *rows, int count, double *shares)
{
    const gd_plan *plan = d->plan;
    const gd_step *kernel = plan->steps;
    for (size_t i = 0; i < plan->ir.count; i++)
        d->kernel_of[i] = -1;
    for (int32_t i = 0; i < (int32_t)plan->n_kernels; i++, kernel += kernel->together) {
        gd_kernel_profile row;
        gd_plan_describe(plan, kernel, &row);
        shares[i] = !rows ? row.bytes : i < count ? rows[i].seconds : 0.0;
        d->all += shares[i];
        d->largest = shares[i] > d->largest ? shares[i] : d->largest;
        for (int k = 0; k < kernel->together; k++)
            for (int e = 0; e <= gd_ir_extra_count(&plan->ir.values[kernel[k].value]); e++)
                d->kernel_of[kernel[k].value + e] = i;
    }
    gd_ir_find_last_uses(&plan->ir, d->last_use);
}

gd_status gd_plan_add_svg(const gd_plan *plan, int count, const gd_kernel_profile *rows,
                          gd_text *text)
{
    double *shares = gd_alloc((plan->n_kernels + 1) * sizeof *shares);
    drawing d = { .plan = plan,
                  .text = text,
                  .kernel_of = gd_alloc((plan->ir.count + 1) * sizeof(int32_t)),
                  .last_use = gd_alloc((plan->ir.count + 1) * sizeof(int32_t)),
                  .shares = shares,
                  .timed = rows != NULL };
    bool ok = shares && d.kernel_of && d.last_use;
    if (ok) {
        measure(&d, rows, count, shares);
        draw(&d);
    }
    gd_free(shares);
    gd_free(d.kernel_of);
    gd_free(d.last_use);
    return ok ? GD_OK : GD_ERR_MEMORY;
}
