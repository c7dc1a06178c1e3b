/* cli/plan.c: gradus plan: what the compiler makes of a network. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *model, *optimizer, *trace, *svg;
    const char *device, *precision_name;
    int64_t batch, length, threads, runs, memory_limit;
    bool train, frozen, dot, profile, explain;
} settings;

/* The text of a function with the conventions of gd_tensor_format; the caller frees it. */
static char *text_of(size_t (*format)(const gd_function *, char *, size_t), const gd_function *f)
{
    size_t length = format(f, NULL, 0);
    char *text = malloc(length + 1);
    if (text)
        format(f, text, length + 1);
    return text;
}

static bool print_text(size_t (*format)(const gd_function *, char *, size_t), const gd_function *f)
{
    char *text = text_of(format, f);
    if (text)
        fputs(text, stdout);
    free(text);
    return text;
}

/* ---- what the machine does at most, found by running what the engine does best ---- */

static gd_tensor *product(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_matmul(in[0], in[0]);
}

static gd_tensor *negative(void *user, int count, gd_tensor *const *in)
{
    (void)user, (void)count;
    return gd_neg(in[0]);
}

/* The shortest time of body on x. */
static double shortest(gd_context *gd, gd_function_body body, gd_tensor *x)
{
    gd_kernel_profile row = { .seconds = 1 };
    gd_function *f = gd_compile(gd, body, NULL);
    (void)gd_function_profile(f, 1, &x, 10, 1, &row);
    gd_function_release(f);
    return row.seconds;
}

/* Memory at the rate of the level that holds the plan's `bytes`. */
static gd_profile_bounds measure_bounds(gd_context *gd, size_t bytes)
{
    const int64_t n = 768, least = 16 * 1024, most = 16 << 20;
    int64_t count = (int64_t)(bytes / sizeof(float) / 2);
    count = count < least ? least : count > most ? most : count;
    gd_profile_bounds bounds = { 0, 0 };
    if (gd_scope_begin(gd) != GD_OK)
        return bounds;
    gd_tensor *square = gd_ones(gd, GD_SHAPE(n, n), GD_F32);
    bounds.flops = 2.0 * (double)(n * n * n) / shortest(gd, product, square);
    gd_tensor *line = gd_ones(gd, GD_SHAPE(count), GD_F32);
    bounds.bytes = 2.0 * sizeof(float) * (double)count / shortest(gd, negative, line);
    (void)gd_scope_end(gd);
    return bounds;
}

/* ---- measured ---- */

static bool write_trace(const char *path, const gd_kernel_profile *rows, int count)
{
    size_t length = gd_profile_format_trace(count, rows, NULL, 0);
    char *text = malloc(length + 1);
    if (text)
        gd_profile_format_trace(count, rows, text, length + 1);
    bool ok = text && gd_file_write(path, text, length) == GD_OK;
    free(text);
    return ok;
}

static bool print_rows(const settings *s, const cli_compiled *c, const gd_kernel_profile *rows,
                       int count)
{
    gd_profile_bounds bounds = measure_bounds(
        c->network.context,
        gd_function_stats(c->function).arena_bytes +
            sizeof(float) * (size_t)gd_module_parameter_count(cli_compiled_module(c)));
    size_t length = gd_profile_format(count, rows, bounds, NULL, 0);
    char *text = malloc(length + 1);
    if (text) {
        gd_profile_format(count, rows, bounds, text, length + 1);
        printf("\nThe shortest of %lld runs; bound: %.1f GFLOP/s (a large matrix product), %.1f "
               "GB/s (negation)\n%s",
               (long long)s->runs, bounds.flops * 1e-9, bounds.bytes * 1e-9, text);
    }
    free(text);
    return text;
}

/* rows: NULL, or measured kernels. */
static bool write_svg(const char *path, const gd_function *f, int count,
                      const gd_kernel_profile *rows)
{
    size_t length = gd_plan_format_svg(f, count, rows, NULL, 0);
    char *text = length ? malloc(length + 1) : NULL;
    bool ok = text && gd_plan_format_svg(f, count, rows, text, length + 1) == length &&
              gd_file_write(path, text, length) == GD_OK;
    free(text);
    return ok;
}

static int measure(const settings *s, cli_compiled *c)
{
    int kernels = gd_function_stats(c->function).kernels;
    gd_kernel_profile *rows = calloc((size_t)kernels + 1, sizeof *rows);
    int count = rows ? gd_function_profile(c->function, c->input_count, c->inputs, (int)s->runs,
                                           kernels, rows)
                     : -1;
    bool ok = count >= 0 && (!s->profile || print_rows(s, c, rows, count)) &&
              (!s->trace || write_trace(s->trace, rows, count)) &&
              (!s->svg || write_svg(s->svg, c->function, count, s->profile ? rows : NULL));
    int code = ok ? CLI_OK : cli_fail();
    free(rows);
    return code;
}

static int show(const settings *s, cli_compiled *c)
{
    if (!print_text(s->dot       ? gd_plan_format_dot
                    : s->explain ? gd_plan_explain
                                 : gd_plan_format,
                    c->function))
        return cli_fail();
    if (s->dot)
        return CLI_OK;
    printf("compiled in %.2f ms\n", gd_function_stats(c->function).compile_seconds * 1e3);
    if (s->profile || s->trace)
        return measure(s, c);
    return !s->svg || write_svg(s->svg, c->function, 0, NULL) ? CLI_OK : cli_fail();
}

int cli_plan(int argc, char **argv)
{
    settings s = { .batch = 50, .runs = 20, .threads = 1, .memory_limit = -1 };
    const cli_option options[] = {
        { "MODEL", NULL,
          "the network: a JSON file, what gradus train saved, a language model (see gradus "
          "generate), "
          "or mnist_mlp (the default)",
          CLI_OPERAND, &s.model, 0, 0 },
        { "train", NULL, "a training step: forward, backward and update", CLI_FLAG, &s.train, 0,
          0 },
        { "batch", "N", "samples in a batch (default: 50)", CLI_WHOLE, &s.batch, 1, 1e6 },
        { "length", "N", "tokens of a sequence, for language models (default: the most it takes)",
          CLI_WHOLE, &s.length, 1, 1e9 },
        { "optimizer", "NAME", "of the training step (default: adam)", CLI_TEXT, &s.optimizer, 0,
          0 },
        { "explain", NULL, "say how kernels with several forms are computed, and why", CLI_FLAG,
          &s.explain, 0, 0 },
        { "dot", NULL, "a Graphviz graph instead of the list", CLI_FLAG, &s.dot, 0, 0 },
        { "svg", "FILE",
          "write a picture: kernels, the bytes they move (with --profile: their times), and memory",
          CLI_TEXT, &s.svg, 0, 0 },
        { "profile", NULL, "measure each kernel against what the machine does at most", CLI_FLAG,
          &s.profile, 0, 0 },
        { "trace", "FILE", "write a trace for chrome://tracing or ui.perfetto.dev", CLI_TEXT,
          &s.trace, 0, 0 },
        { "memory-limit", "BYTES", "compute values again until the plan takes no more memory",
          CLI_WHOLE, &s.memory_limit, 0, 1e18 },
        { "frozen", NULL, "pack weights once, as gd_compile does with .frozen", CLI_FLAG, &s.frozen,
          0, 0 },
        { "runs", "N", "runs to measure (default: 20)", CLI_WHOLE, &s.runs, 1, 1e6 },
        { "threads", "N", "threads to compute with (default: 1)", CLI_WHOLE, &s.threads, 1, 256 },
        CLI_DEVICE_OPTION(&s.device),
        CLI_PRECISION_OPTION(&s.precision_name),
    };
    const cli_command_help help = {
        "gradus plan [MODEL] [OPTION]...",
        "Compile a network and show the plan: a line a kernel (what it makes from what; @ says "
        "where:\nan input, a parameter, or an offset in the plan's memory; bytes moved; "
        "operations), totals, and\nwhat each pass of the compiler did. GRADUS_PASSES=-fuse "
        "switches a pass off, -all,+fuse all\nothers."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    gd_dtype precision;
    if (!cli_precision("plan", s.precision_name, &precision))
        return CLI_USAGE;
    if (s.dot && (s.explain || s.profile || s.trace || s.svg)) {
        fprintf(stderr, "gradus plan: --dot is the graph alone, without --explain, --profile, "
                        "--trace and --svg\n");
        return CLI_USAGE;
    }
    if ((s.trace && gd_file_check_writable(s.trace) != GD_OK) ||
        (s.svg && gd_file_check_writable(s.svg) != GD_OK))
        return cli_fail();
    cli_compiled_options compiled_options = { .network = { .model = s.model,
                                                           .device = s.device,
                                                           .precision = precision,
                                                           .threads = s.threads,
                                                           .seed = 1 },
                                              .batch = s.batch,
                                              .length = s.length,
                                              .train = s.train,
                                              .frozen = s.frozen,
                                              .memory_limit = s.memory_limit < 0
                                                                  ? SIZE_MAX
                                                                  : (size_t)s.memory_limit,
                                              .optimizer = s.optimizer,
                                              .lr = NAN };
    cli_compiled compiled;
    code = cli_compiled_open(&compiled, &compiled_options);
    if (code == CLI_OK)
        code = show(&s, &compiled);
    cli_compiled_close(&compiled);
    return code;
}
