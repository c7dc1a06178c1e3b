/* tests/fuzz/fuzz_log.c: libFuzzer on the files of a run's folder. The first byte says which file the
 * others are: metrics and configuration as JSON, a table, an event file. They are read, and a log is
 * resumed over them; what was logged then is read back. */
#include "fuzz.h"

#include <dirent.h>

#ifdef GD_HAVE_PROTOBUF_C
#define HAS_EVENTS true
#else
#define HAS_EVENTS false
#endif

static const char *const names[] = { "metrics.jsonl", "config.json", "metrics.csv",
                                     "events.out.tfevents.0000000001.host.1.0", "events.jsonl" };
enum { NAMES = sizeof names / sizeof *names };

static char folder[] = "/tmp/gradus-fuzz-log-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%.200s", folder, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(path_of(name), "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        abort();
}

/* Each log begins one of its own. */
static void remove_event_files(void)
{
    DIR *directory = opendir(folder);
    if (!directory)
        abort();
    for (const struct dirent *e; (e = readdir(directory)) != NULL;)
        if (strncmp(e->d_name, "events.out.", 11) == 0)
            (void)unlink(path_of(e->d_name));
    (void)closedir(directory);
}

static void make_folder(void)
{
    static bool made;
    if (!made && !mkdtemp(folder))
        abort();
    if (!made)
        (void)atexit(remove_all);
    made = true;
}

static void read_back(const char *name, double value)
{
    gd_history *history = gd_history_load(folder);
    fuzz_check(history != NULL);
    for (int64_t m = 0; m < gd_history_metric_count(history); m++)
        if (gd_history_metric_points(history, m) < 1 || !gd_history_metric_values(history, m))
            abort();
    int64_t metric = name && history ? gd_history_metric_find(history, name) : 0;
    int64_t last = gd_history_metric_points(history, metric) - 1;
    if (name && history && gd_history_metric_values(history, metric)[last] != value)
        abort();
    gd_history_release(history);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    make_folder();
    gd_error_clear();
    for (int i = 0; i < NAMES; i++)
        (void)unlink(path_of(names[i]));
    put("metrics.jsonl", "{\"step\":1,\"a\":1}\n", 17);
    put(names[data[0] % NAMES], data + 1, size - 1);
    read_back(NULL, 0);
    gd_run_log *log =
        gd_run_log_open(folder, .csv = true, .resume_step = 7, .tensorboard = HAS_EVENTS);
    fuzz_check(log != NULL);
    bool logged = log && gd_run_log_scalar(log, 8, "fuzz/x", 0.5) == GD_OK;
    if (log)
        fuzz_check(logged);
    gd_run_log_close(log);
    if (logged && data[0] % NAMES != 1) /* the configuration may be damaged */
        read_back("fuzz/x", 0.5);
    remove_event_files();
    return 0;
}
