/* bench/side.c: see side.h. */
#include "side.h"

#include "peak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void take_line(gd_bench_side *side, const gd_bench_line *line)
{
    const char *kind = line->kind;
    if (strcmp(kind, "name") == 0)
        snprintf(side->name, sizeof side->name, "%.*s", (int)sizeof side->name - 1, line->text);
    else if (strcmp(kind, "how") == 0)
        snprintf(side->how, sizeof side->how, "%.*s", (int)sizeof side->how - 1, line->text);
    else if (strcmp(kind, "note") == 0)
        fprintf(stderr, "%s\n", line->text);
    else if (strcmp(kind, "memory") == 0 && line->count > 1)
        side->memory = line->numbers[0] - line->numbers[1];
    else if (strcmp(kind, "bound") == 0 && line->count > 0)
        side->bound = line->numbers[0];
    else if (strcmp(kind, "spread") == 0 && line->count > 0)
        side->spread = line->numbers[0];
    else if ((strcmp(kind, "step") == 0 || strcmp(kind, "token") == 0) && line->count > 0) {
        side->seconds = line->numbers[0];
        side->check_count = line->count - 1;
        memcpy(side->checks, line->numbers + 1, sizeof(double) * (size_t)(line->count - 1));
    }
}

/* Lines up to "ready" or the end. */
static bool run_until_ready(const char *const *arguments, int threads, gd_bench_side *side)
{
    *side = (gd_bench_side){ .seconds = NAN, .spread = NAN, .memory = NAN, .bound = NAN };
    snprintf(side->name, sizeof side->name, "ours, %s", arguments[1]);
    gd_bench_process *process = gd_bench_start(arguments, threads);
    gd_bench_line line;
    while (process != NULL && gd_bench_read(process, &line)) {
        if (strcmp(line.kind, "ready") != 0) {
            take_line(side, &line);
            continue;
        }
        if (isnan(side->seconds))
            break; /* it had no time to print */
        side->process = process;
        return true;
    }
    int status = process != NULL ? gd_bench_finish(process) : 3;
    if (status != 0 && status != 3 && status != 127)
        fprintf(stderr, "%s %s failed: exit status %d\n", arguments[0], arguments[1], status);
    return status == 0 && !isnan(side->seconds);
}

bool gd_bench_run_side(const char *const *arguments, int threads, gd_bench_side *side)
{
    unsetenv("BENCH_TURNS");
    return run_until_ready(arguments, threads, side);
}

/* ---- turns ---- */

/* A quarter of the memory is free: room for one more side. */
static bool memory_is_left(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    double total = 0, available = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "MemTotal: %lf", &total);
        (void)sscanf(line, "MemAvailable: %lf", &available);
    }
    if (file != NULL)
        fclose(file);
    return available > total / 4;
}

bool gd_bench_start_side(gd_bench_sides *sides, const char *const *arguments, int threads,
                         gd_bench_side *side)
{
    if (sides->count == GD_BENCH_MOST_SIDES)
        gd_bench_die("more than %d sides", GD_BENCH_MOST_SIDES);
    if (memory_is_left())
        setenv("BENCH_TURNS", "1", 1);
    else
        unsetenv("BENCH_TURNS");
    if (!run_until_ready(arguments, threads, side))
        return false;
    if (side->process != NULL)
        sides->side[sides->count++] = side;
    else
        fprintf(stderr, "%s: timed on its own\n", side->name);
    return true;
}

double gd_bench_take_side_turns(gd_bench_sides *sides, int threads)
{
    enum { ROUNDS = 11, QUICK_ROUNDS = 7, MOST = GD_BENCH_MOST_SIDES + 1 };
    double samples[MOST * ROUNDS];
    const int rounds = gd_bench_quick() ? QUICK_ROUNDS : ROUNDS, count = sides->count;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++)
            samples[i * rounds + round] = gd_bench_take_turn(sides->side[i]->process);
        samples[count * rounds + round] = 1 / gd_bench_peak_flops(gd_isa_choose(), false, threads);
    }
    gd_bench_timing timings[MOST];
    gd_bench_polish(samples, count + 1, rounds, timings);
    for (int i = 0; i < count; i++) {
        gd_bench_side *side = sides->side[i];
        side->seconds = timings[i].seconds;
        side->spread = timings[i].spread;
        if (gd_bench_finish(side->process) != 0)
            gd_bench_die("%s failed in its turns", side->name);
        side->process = NULL;
    }
    sides->count = 0;
    return 1 / timings[count].seconds;
}

/* A first run is not timed: it fetches operands back from where the others drove them. */
void gd_bench_await_turns(void (*run)(void *user), void *user, int chunk, int threads)
{
    static const double least = 0.25; /* seconds of a sample */
    char line[16];
    if (!getenv("BENCH_TURNS"))
        return;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        run(user);
        const double begin = gd_bench_now(threads), end = gd_bench_now(0) + least;
        int runs = 0;
        do {
            for (int i = 0; i < chunk; i++)
                run(user);
            runs += chunk;
        } while (gd_bench_now(0) < end);
        printf("sample %.9g\n", (gd_bench_now(threads) - begin) / runs);
        fflush(stdout);
    }
}

bool gd_bench_sides_agree(const gd_bench_side *a, const gd_bench_side *b, double tolerance)
{
    bool same = a->check_count == b->check_count && a->check_count > 0;
    for (int i = 0; same && i < a->check_count; i++)
        same = fabs(a->checks[i] - b->checks[i]) <= tolerance;
    return same;
}

void gd_bench_print_sides(gd_bench_row row, const gd_bench_side *ours, const gd_bench_side *peers,
                          const bool *there, int count, bool memory, double tolerance)
{
    bool any = false, verified = row.verified;
    row.ours_spread = memory ? (double)NAN : ours->spread;
    for (int i = 0; i < count; i++) {
        if (!there[i] || (memory && isnan(peers[i].memory)))
            continue;
        row.peer = memory ? peers[i].memory : 1e3 * peers[i].seconds; /* MiB, ms */
        row.peer_name = peers[i].name;
        row.peer_how = !memory && *peers[i].how ? peers[i].how : NULL;
        row.peer_spread = memory ? (double)NAN : peers[i].spread;
        row.verified = verified && gd_bench_sides_agree(ours, &peers[i], tolerance);
        gd_bench_print_row(&row);
        any = true;
    }
    if (!any)
        gd_bench_print_row(&row);
}

gd_bench_way gd_bench_parse_way(const char *argument)
{
    return (gd_bench_way){ .mode =
                               strncmp(argument, "--eager", 7) ? GD_MODE_COMPILED : GD_MODE_EAGER,
                           .dtype = strstr(argument, "-bf16") ? GD_BF16 : GD_F32 };
}

void gd_bench_print_bf16(gd_bench_row row, const gd_bench_side *compiled,
                         const gd_bench_side *eager, const gd_bench_side *f32,
                         const gd_bench_side *peers, const bool *there, int count, double tolerance)
{
    enum { MOST = 8 };
    gd_bench_side all[MOST] = { *f32 };
    bool is_there[MOST] = { true };
    snprintf(all[0].name, sizeof all[0].name, "Gradus f32");
    for (int i = 0; i < count && i + 1 < MOST; i++) {
        all[i + 1] = peers[i];
        is_there[i + 1] = there[i];
    }
    row.ours = compiled->seconds * 1e3;
    row.verified = gd_bench_sides_agree(compiled, eager, 0);
    gd_bench_print_sides(row, compiled, all, is_there, count + 1, false, tolerance);
}

static double status_mib(const char *field)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = NAN;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtod(line + strlen(field), NULL);
    if (file != NULL)
        fclose(file);
    return kib / 1024;
}

double gd_bench_resident(void)
{
    return status_mib("VmRSS:");
}

double gd_bench_most_resident(void)
{
    return status_mib("VmHWM:");
}

void gd_bench_print_memory(double before)
{
    printf("memory %.1f %.1f\n", gd_bench_most_resident(), before);
}

void gd_bench_print_profile(gd_function *function, int count, gd_tensor *const *inputs)
{
    enum { ROWS = 2000, RUNS = 3 };
    static gd_kernel_profile rows[ROWS];
    if (!getenv("BENCH_PROFILE"))
        return;
    int kernels = gd_function_profile(function, count, inputs, RUNS, ROWS, rows);
    for (int i = 0; i < kernels && i < ROWS; i++)
        fprintf(stderr, "%10.2f us %7.1f GFLOP/s %6.1f GB/s  %s  %s\n", rows[i].seconds * 1e6,
                rows[i].flops / rows[i].seconds * 1e-9, rows[i].bytes / rows[i].seconds * 1e-9,
                rows[i].op, rows[i].what);
}

/* ---- our side, which may train on a device ---- */

static const char *device_name(void)
{
    const char *name = getenv("BENCH_DEVICE");
    return name && *name ? name : "cpu";
}

gd_context *gd_bench_open(int threads)
{
    gd_context *context = gd_open(device_name(), .threads = threads);
    if (!context)
        gd_bench_die("%s: %s", device_name(), gd_error_message());
    return context;
}

void gd_bench_source_path(char *path, size_t size, const char *name)
{
    const char *folder = getenv("BENCH_SOURCE");
    snprintf(path, size, "%s/%s", folder && *folder ? folder : GD_SOURCE_DIR, name);
}

typedef struct training {
    gd_context *context;
    gd_function *train;
    gd_tensor *const *in;
    int steps; /* of a run, which ends in a wait */
} training;

/* The loss is not read: that would wait for each step. */
static void run_steps(void *user)
{
    training *t = user;
    for (int i = 0; i < t->steps; i++) {
        gd_scope_begin(t->context);
        if (!gd_call(t->train, 2, t->in) || gd_scope_end(t->context) != GD_OK)
            gd_bench_die("%s", gd_error_message());
    }
    if (gd_synchronize(t->context) != GD_OK)
        gd_bench_die("%s", gd_error_message());
}

/* On the host's memory as many steps as the bench says; on a device as many as take 50 ms. */
static void choose_steps(training *t, int chunk)
{
    enum { FIRST = 3, MOST = 5000 };
    t->steps = chunk;
    if (gd_context_has_host_memory(t->context))
        return;
    t->steps = FIRST;
    run_steps(t); /* where the plan becomes a graph of the device */
    const double begin = gd_bench_now(0);
    run_steps(t);
    const double step = (gd_bench_now(0) - begin) / FIRST;
    t->steps = (int)fmin(fmax(0.05 / step, 1), MOST);
}

/* Other sides use the device: the time of this one begins once the program that started it says so. */
static void await_turn(void)
{
    if (!getenv("BENCH_WAIT"))
        return;
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        gd_bench_die("nobody wants the time of this side");
}

static gd_bench_timing time_steps(training *t, int chunk, int threads, double seconds)
{
    const char *text = getenv("BENCH_SECONDS");
    if (text && atof(text) <= 0)
        return (gd_bench_timing){ NAN, NAN };
    await_turn();
    choose_steps(t, chunk);
    if (!gd_context_has_host_memory(t->context))
        threads = 0; /* processor time says nothing of a device */
    gd_bench_timing time = gd_bench_time(run_steps, t, 1, threads, text ? atof(text) : seconds);
    time.seconds /= t->steps;
    return time;
}

void gd_bench_train_side(gd_function *train, gd_tensor *const in[2], int chunk, int threads,
                         double seconds, double resident_before)
{
    training t = { .context = gd_tensor_context(in[0]), .train = train, .in = in };
    double losses[GD_BENCH_CHECKED];
    for (int i = 0; i < GD_BENCH_CHECKED; i++) {
        gd_scope_begin(t.context);
        losses[i] = gd_item(gd_call(train, 2, in));
        if (gd_scope_end(t.context) != GD_OK || gd_error_code() != GD_OK)
            gd_bench_die("%s", gd_error_message());
    }
    gd_bench_timing step = time_steps(&t, chunk, threads, seconds);
    printf("spread %.4g\nstep ours %.9g", step.spread, step.seconds);
    for (int i = 0; i < GD_BENCH_CHECKED; i++)
        printf(" %.17g", losses[i]);
    printf("\n");
    gd_bench_print_memory(resident_before);
    fflush(stdout); /* a profile may take long */
    gd_bench_print_profile(train, 2, in);
    t.steps = 1;
    gd_bench_await_turns(run_steps, &t, chunk, threads);
}

void gd_bench_own_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0)
        gd_bench_die("cannot find this program");
    path[length] = '\0';
}
