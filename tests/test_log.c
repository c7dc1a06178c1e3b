/* tests/test_log.c: the log of a run in each format, resumed and damaged; a run's folder read back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "support/folder.h"

#include "report/records.h"

#ifdef GD_HAVE_PROTOBUF_C
#define HAS_EVENTS true
#else
#define HAS_EVENTS false
#endif

/* The file's bytes, with a 0 behind. */
static const char *content(const char *name)
{
    static char text[1 << 16];
    FILE *f = fopen(in_folder(name), "rb");
    if (!f)
        return NULL;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void ok(gd_status status)
{
    if (status != GD_OK)
        fail_msg("%s", gd_error_message());
}

static int64_t count_lines(const char *text)
{
    int64_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static gd_run_log *logged(gd_run_log *log)
{
    if (!log)
        fail_msg("%s", gd_error_message());
    return log;
}

/* ---- JSON ---- */

static void numbers_that_json_lacks_make_valid_lines(void **state)
{
    (void)state;
    need_json();
    gd_run_log *log = logged(gd_run_log_open(folder));
    const char *names[] = { "train/loss", "a \"quoted\" name", "up", "down" };
    ok(gd_run_log_scalars(log, 3, 1, 4, names, (double[]){ NAN, 0.5, INFINITY, -INFINITY }));
    gd_run_log_close(log);
    const char *line = content("metrics.jsonl");
    assert_non_null(strstr(line, "{\"step\":3,\"epoch\":1,\"time\":"));
    assert_non_null(strstr(line, ",\"train/loss\":\"NaN\",\"a \\\"quoted\\\" name\":0.5,"
                                 "\"up\":\"Infinity\",\"down\":\"-Infinity\"}\n"));
    gd_history *history = gd_history_load(folder);
    assert_non_null(history);
    assert_int_equal(gd_history_metric_count(history), 5); /* epoch, too */
    int64_t loss = gd_history_metric_find(history, "train/loss"),
            up = gd_history_metric_find(history, "up");
    assert_true(isnan(gd_history_metric_values(history, loss)[0]));
    assert_true(gd_history_metric_values(history, up)[0] == INFINITY);
    assert_true(gd_history_metric_values(history, gd_history_metric_find(history, "down"))[0] ==
                -INFINITY);
    assert_true(gd_history_metric_steps(history, up)[0] == 3 &&
                gd_history_metric_points(history, up) == 1);
    assert_int_equal(gd_history_last_step(history), 3);
    gd_history_release(history);
}

static void values_are_read_back_bit_for_bit(void **state)
{
    (void)state;
    need_json();
    const double values[] = { 0.1, 1.0 / 3.0, 1e-310, 123456789.123456789, -0.0, 0 };
    gd_run_log *log = logged(gd_run_log_open(folder));
    for (int i = 0; i < 6; i++)
        ok(gd_run_log_scalar(log, i, "x", values[i]));
    gd_run_log_close(log);
    gd_history *history = gd_history_load(folder);
    assert_int_equal(gd_history_metric_points(history, 0), 6);
    assert_memory_equal(gd_history_metric_values(history, 0), values, sizeof values);
    gd_history_release(history);
}

static gd_run_log *open_both(int64_t resume_step)
{
    return gd_run_log_open(folder, .csv = true, .resume_step = resume_step);
}

static void what_follows_the_resumed_step_is_cut_off(void **state)
{
    (void)state;
    need_json();
    gd_run_log *log = logged(open_both(-1));
    for (int step = 0; step < 6; step++)
        ok(gd_run_log_scalar(log, step, "loss", 10 + step));
    char events[512];
    snprintf(events, sizeof events, "%s/events.jsonl", folder);
    assert_int_not_equal(access(events, F_OK), 0); /* made with its first line */
    ok(gd_run_log_text(log, 2, "note", "kept"));
    ok(gd_run_log_text(log, 5, "note", "cut off"));
    gd_run_log_close(log);

    assert_null(open_both(-1));
    expect_error(GD_ERR_STATE, "metrics.jsonl: is there already, of an earlier run");

    log = logged(open_both(3));
    assert_int_equal(count_lines(content("metrics.jsonl")), 4);
    assert_int_equal(count_lines(content("metrics.csv")), 5);
    assert_int_equal(count_lines(content("events.jsonl")), 1);
    assert_non_null(strstr(content("events.jsonl"), "\"text\":\"note\",\"value\":\"kept\""));
    ok(gd_run_log_scalar(log, 4, "loss", 20));
    gd_run_log_close(log);
    gd_history *history = gd_history_load(folder);
    const double expected[] = { 10, 11, 12, 13, 20 };
    assert_int_equal(gd_history_metric_points(history, 0), 5);
    assert_memory_equal(gd_history_metric_values(history, 0), expected, sizeof expected);
    const double *times = gd_history_metric_times(history, 0);
    for (int i = 1; i < 5; i++)
        assert_true(times[i] >= times[i - 1]); /* the clock goes on where it was */
    gd_history_release(history);
    assert_non_null(strstr(content("metrics.csv"), "\n4,,"));
}

/* A kill in the middle of a write leaves half a line. */
static void a_last_line_cut_short_is_dropped(void **state)
{
    (void)state;
    need_json();
    put("metrics.jsonl", "{\"step\":1,\"time\":2.5,\"a\":1}\n{\"step\":2,\"ti");
    put("metrics.csv", "step,epoch,time,a\n1,,2.5,1\n2,,3");
    gd_history *history = gd_history_load(folder);
    assert_int_equal(gd_history_last_step(history), 1);
    assert_true(gd_history_seconds(history) == 2.5);
    gd_history_release(history);
    gd_run_log *log = logged(open_both(9));
    ok(gd_run_log_scalar(log, 2, "a", 7));
    gd_run_log_close(log);
    history = gd_history_load(folder);
    assert_int_equal(gd_history_metric_points(history, 0), 2);
    assert_true(gd_history_seconds(history) >= 2.5);
    gd_history_release(history);
    assert_int_equal(count_lines(content("metrics.csv")), 3);
}

static void damage_is_named_by_its_line(void **state)
{
    (void)state;
    need_json();
    static const struct {
        const char *file, *text, *words;
    } rows[] = {
        { "metrics.jsonl", "{\"step\":1}\n{\"step\":2,}\n{\"step\":3}\n",
          "metrics.jsonl: line 2 is not JSON" },
        { "metrics.jsonl", "{\"step\":1}\n{\"loss\":2}\n",
          "line 2 is not an object whose \"step\"" },
        { "metrics.jsonl", "{\"step\":-1}\n", "line 1 is not an object whose \"step\"" },
        { "metrics.jsonl", "[1]\n", "line 1 is not an object whose \"step\"" },
        { "metrics.jsonl", "{\"step\":1,\"a\":1,\"a\":2}\n", "line 1 is not JSON: duplicate" },
        { "config.json", "{\n\"lr\": 1,\n\"seed\" 2}", "config.json: line 3 is not JSON" },
        { "config.json", "[]", "config.json: is not an object" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("metrics.jsonl", "{\"step\":1}\n");
        put(rows[i].file, rows[i].text);
        assert_null(gd_history_load(folder));
        expect_error(GD_ERR_FORMAT, rows[i].words);
        if (rows[i].file[0] != 'm')
            continue;
        assert_null(gd_run_log_open(folder, .resume_step = 5));
        expect_error(GD_ERR_FORMAT, rows[i].words);
        assert_string_equal(content("metrics.jsonl"), rows[i].text); /* nothing is lost */
    }
    assert_null(gd_history_load("/nowhere/at all"));
    expect_error(GD_ERR_IO, "/nowhere/at all/metrics.jsonl");
}

static void hyperparameters_are_the_configuration(void **state)
{
    (void)state;
    need_json();
    const char *names[] = { "optimizer.lr", "batch", "model", "shuffle", "tag", "share" };
    const char *values[] = { "0.25", "32", "mlp", "true", "1e5x", "0.15" };
    gd_run_log *log = logged(gd_run_log_open(folder));
    ok(gd_run_log_scalar(log, 0, "a", 1));
    ok(gd_run_log_hyperparameters(log, 6, names, values));
    ok(gd_run_log_hyperparameters(log, 1, names,
                                  (const char *[]){ "9" })); /* there is one already */
    gd_run_log_close(log);
    gd_history *history = gd_history_load(folder);
    assert_int_equal(gd_history_option_count(history), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(gd_history_option_name(history, i), names[i]);
        assert_string_equal(gd_history_option(history, names[i]), values[i]);
    }
    assert_null(gd_history_option(history, "no such"));
    assert_null(gd_history_option_name(history, 6));
    gd_history_release(history);
    assert_non_null(strstr(content("config.json"), "0.15\n}\n")); /* not 0.14999999999999999 */
    put("config.json", "{\"lr\": 0.0033333333333333335}");        /* which 15 digits do not tell */
    history = gd_history_load(folder);
    assert_true(strtod(gd_history_option(history, "lr"), NULL) == 0.0033333333333333335);
    gd_history_release(history);
    put("config.json", "{\"data\": {\"path\": \"photos\", \"sizes\": [1, 2]}, \"seed\": null}");
    history = gd_history_load(folder);
    assert_string_equal(gd_history_option(history, "data.path"), "photos");
    assert_string_equal(gd_history_option(history, "data.sizes"), "[1, 2]");
    assert_string_equal(gd_history_option(history, "seed"), "null");
    gd_history_release(history);
}

static void histograms_count_every_value_once(void **state)
{
    need_json();
    gd_run_log *log = logged(gd_run_log_open(folder));
    const float values[] = { 0, 0.5F, 1, 1, 64, NAN, INFINITY };
    ok(gd_run_log_histogram(log, 1, "w", gd_from_host(*state, GD_SHAPE(7), GD_F32, values)));
    ok(gd_run_log_histogram(log, 2, "w", gd_full(*state, GD_SHAPE(3), 2, GD_I32)));
    ok(gd_run_log_histogram(log, 3, "w", gd_full(*state, GD_SHAPE(2), NAN, GD_F32)));
    gd_run_log_close(log);
    const char *lines = content("events.jsonl");
    assert_non_null(strstr(lines, "\"histogram\":\"w\",\"count\":5,\"not_finite\":2,"));
    assert_non_null(strstr(lines, "\"edges\":[0.0,1.0,2.0"));
    assert_non_null(strstr(lines, "\"counts\":[2,2,0,0"));
    assert_non_null(strstr(lines, "0,0,1]}\n"));
    assert_non_null(strstr(lines, "\"count\":3,\"not_finite\":0,\"edges\":[1.5,"));
    assert_non_null(strstr(lines, "\"count\":0,\"not_finite\":2,\"edges\":[],\"counts\":[]}\n"));
}

/* ---- CSV ---- */

static void a_later_name_adds_a_column(void **state)
{
    (void)state;
    gd_run_log *log = logged(gd_run_log_open(folder, .json = false, .csv = true));
    ok(gd_run_log_scalars(log, 1, 0, 1, (const char *[]){ "a,\"b\"" }, (double[]){ 0.5 }));
    ok(gd_run_log_scalars(log, 2, -1, 1, (const char *[]){ "c" }, (double[]){ NAN }));
    gd_run_log_close(log);
    log = logged(gd_run_log_open(folder, .json = false, .csv = true, .resume_step = 2));
    ok(gd_run_log_scalar(log, 3, "a,\"b\"", 4));
    gd_run_log_close(log);
    char *text = strdup(content("metrics.csv")), *at = text;
    const char *expected[] = { "step,epoch,time,\"a,\"\"b\"\"\",c", "1,0,T,0.5,", "2,,T,,nan",
                               "3,,T,4," };
    for (int i = 0; i < 4; i++) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        if (i) { /* the time, which is not known */
            char *time = strchr(strchr(at, ',') + 1, ',') + 1, *behind = strchr(time, ',');
            *time = 'T';
            memmove(time + 1, behind, strlen(behind) + 1);
        }
        assert_string_equal(at, expected[i]);
        at = end + 1;
    }
    assert_true(*at == '\0');
    free(text);
    put("metrics.csv", "step,epoch,time,a\n1,,0,1\nx,,0,1\n");
    assert_null(gd_run_log_open(folder, .json = false, .csv = true, .resume_step = 5));
    expect_error(GD_ERR_FORMAT, "metrics.csv: line 3 does not begin with a step");
    put("metrics.csv", "step,epoch,time,a\n1,,0\n");
    assert_null(gd_run_log_open(folder, .json = false, .csv = true, .resume_step = 5));
    expect_error(GD_ERR_FORMAT, "metrics.csv: line 2 does not have a field for each name");
    put("metrics.csv", "a,b,c\n");
    assert_null(gd_run_log_open(folder, .json = false, .csv = true, .resume_step = 5));
    expect_error(GD_ERR_FORMAT, "metrics.csv: line 1 is not the header");
}

/* ---- Prometheus ---- */

static void prometheus_has_the_newest_values(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/gradus.prom", folder);
    gd_run_log *log = logged(
        gd_run_log_open(folder, .json = false, .prometheus = file, .prometheus_seconds = 1e6));
    const char *names[] = { "train/loss", "odd \\ \"name\"" };
    ok(gd_run_log_scalars(log, 7, 2, 2, names, (double[]){ 0.25, -INFINITY }));
    assert_non_null(strstr(content("gradus.prom"), "name=\"train/loss\"} 0.25\n"));
    ok(gd_run_log_scalar(log, 8, "train/loss", NAN));
    assert_null(strstr(content("gradus.prom"), "NaN")); /* not yet */
    ok(gd_run_log_flush(log));
    const char *text = content("gradus.prom");
    char expected[512];
    const char *name = strrchr(folder, '/') + 1;
    snprintf(expected, sizeof expected, "gradus_run_metric{run=\"%s\",name=\"train/loss\"} NaN\n",
             name);
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, "# TYPE gradus_run_metric gauge\n"));
    assert_non_null(strstr(text, "name=\"odd \\\\ \\\"name\\\"\"} -Inf\n"));
    snprintf(expected, sizeof expected, "gradus_run_step{run=\"%s\"} 8\n", name);
    assert_non_null(strstr(text, expected));
    gd_run_log_close(log);
}

/* ---- TensorBoard ---- */

static void checksums_are_those_of_rfc_3720(void **state)
{
    (void)state;
    unsigned char bytes[32] = { 0 };
    assert_int_equal(gd_crc32c(bytes, 32), 0x8a9136aa);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(gd_crc32c(bytes, 32), 0x46dd794e);
    assert_int_equal(gd_crc32c("123456789", 9), 0xe3069283);
    unsigned char record[GD_RECORD_HEAD + 9 + GD_RECORD_TAIL];
    memcpy(record + GD_RECORD_HEAD, "123456789", 9);
    gd_record_frame("123456789", 9, record, record + GD_RECORD_HEAD + 9);
    const unsigned char *found;
    size_t length;
    assert_int_equal(gd_record_read(record, sizeof record, 0, &found, &length), 1);
    assert_true(found == record + GD_RECORD_HEAD && length == 9);
    for (size_t size = 0; size < sizeof record; size++)
        assert_int_equal(gd_record_read(record, size, 0, &found, &length), 0);
    for (size_t i = 0; i < sizeof record; i++) {
        record[i] ^= 4;
        assert_int_equal(gd_record_read(record, sizeof record, 0, &found, &length), -1);
        record[i] ^= 4;
    }
}

#ifdef GD_HAVE_PROTOBUF_C

/* The event files' names in their order; returns how many. */
static int event_files(char names[4][256])
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    int count = 0;
    for (const struct dirent *e; (e = readdir(directory)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0 && count < 4)
            snprintf(names[count++], 256, "%s", e->d_name);
    closedir(directory);
    if (count == 2 && strcmp(names[0], names[1]) > 0) {
        char first[256];
        memcpy(first, names[0], 256);
        memcpy(names[0], names[1], 256);
        memcpy(names[1], first, 256);
    }
    return count;
}

static size_t file_size(const char *name)
{
    struct stat about;
    return stat(in_folder(name), &about) == 0 ? (size_t)about.st_size : 0;
}

/* tests/python/test_log.py reads them with the real TensorBoard. */
static void event_files_are_cut_off_where_they_resume(void **state)
{
    (void)state;
    gd_run_log *log = logged(gd_run_log_open(folder, .json = false, .tensorboard = true));
    char names[4][256];
    assert_int_equal(event_files(names), 1);
    size_t sizes[4];
    for (int step = 0; step < 4; step++) {
        sizes[step] = file_size(names[0]);
        ok(gd_run_log_scalar(log, step, "loss", step));
    }
    size_t whole = file_size(names[0]);
    assert_null(gd_run_log_open(folder, .json = false, .tensorboard = true, .resume_step = 2));
    expect_error(GD_ERR_STATE, "another log of this one");
    gd_run_log_close(log);
    assert_null(gd_run_log_open(folder, .json = false, .tensorboard = true));
    expect_error(GD_ERR_STATE, "is there already, of an earlier run");
    assert_int_equal(file_size(names[0]), whole);
    /* cut short in the middle of the last record, as a kill leaves it */
    assert_int_equal(truncate(in_folder(names[0]), (off_t)whole - 3), 0);
    log = logged(gd_run_log_open(folder, .json = false, .tensorboard = true, .resume_step = 9));
    assert_int_equal(file_size(names[0]), sizes[3]);
    gd_run_log_close(log);
    log = logged(gd_run_log_open(folder, .json = false, .tensorboard = true, .resume_step = 1));
    assert_int_equal(event_files(names), 3);
    gd_run_log_close(log);
    FILE *f = fopen(in_folder(names[0]), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 20, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, 20, SEEK_SET), 0);
    fputc(byte ^ 1, f);
    fclose(f);
    assert_null(gd_run_log_open(folder, .json = false, .tensorboard = true, .resume_step = 1));
    expect_error(GD_ERR_FORMAT, "record 1 is damaged");
}

#else

static void event_files_are_cut_off_where_they_resume(void **state)
{
    (void)state;
    assert_null(gd_run_log_open(folder, .json = false, .tensorboard = true));
    expect_error(GD_ERR_UNSUPPORTED, "protobuf-c");
}

#endif

/* ---- all of them ---- */

/* Whole lines stay when the disk is full (here: a limit of the file's size), and later ones follow. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    need_json();
    gd_run_log *log = logged(open_both(-1));
    ok(gd_run_log_scalar(log, 1, "a", 1));
    size_t before = strlen(content("metrics.jsonl"));
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = before + 10;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    gd_status status = gd_run_log_scalar(log, 2, "a", 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, GD_ERR_IO);
    expect_error(GD_ERR_IO, "metrics.jsonl: cannot write: File too large");
    assert_int_equal(strlen(content("metrics.jsonl")), before);
    ok(gd_run_log_scalar(log, 3, "a", 3));
    gd_run_log_close(log);
    gd_history *history = gd_history_load(folder);
    assert_int_equal(gd_history_last_step(history), 3);
    gd_history_release(history);
}

static void wrong_calls_are_refused(void **state)
{
    assert_null(gd_run_log_open(NULL));
    expect_error(GD_ERR_INVALID, "gd_run_log_open");
    assert_null(gd_run_log_open(folder, .resume_step = -2));
    expect_error(GD_ERR_INVALID, "resume_step");
    assert_null(gd_run_log_open("/proc/no such/folder"));
    expect_error(GD_ERR_IO, "cannot make the folder");
    gd_run_log *log = logged(gd_run_log_open(folder, .json = false, .csv = true));
    static const struct {
        const char *name, *words;
    } rows[] = { { "", "a name is missing" },
                 { NULL, "a name is missing" },
                 { "a\nb", "not printable" },
                 { "\xff", "UTF-8" },
                 { "step", "is there twice, or is one of step, epoch, time" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(gd_run_log_scalar(log, 1, rows[i].name, 0), GD_ERR_INVALID);
        expect_error(GD_ERR_INVALID, rows[i].words);
    }
    const char *twice[] = { "a", "a" };
    assert_int_equal(gd_run_log_scalars(log, 1, 0, 2, twice, (double[]){ 1, 2 }), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "\"a\" is there twice");
    assert_int_equal(gd_run_log_scalar(log, -1, "a", 0), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "step -1");
    assert_int_equal(gd_run_log_text(log, 1, "a", "\x80"), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "not UTF-8");
    assert_int_equal(gd_run_log_image(log, 1, "a", gd_full(*state, GD_SHAPE(2, 4, 4), 0, GD_F32)),
                     GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "2 channels");
    assert_int_equal(gd_run_log_histogram(log, 1, "a", NULL), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the tensor is NULL");
    ok(gd_run_log_image(log, 1, "a", gd_full(*state, GD_SHAPE(5, 3, 4, 4), 0, GD_F32)));
    ok(gd_run_log_flush(log));
    gd_run_log_close(log);
    gd_run_log_close(NULL);
    assert_int_equal(gd_run_log_scalar(NULL, 1, "a", 0), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the log is NULL");
    gd_history_release(NULL);
    assert_int_equal(gd_history_metric_count(NULL), 0);
    assert_string_equal(gd_history_name(NULL), "");
}

/* Everything a log has, in every format of this build; false: memory was out. */
static bool log_each(gd_tensor *values, const char *prometheus)
{
    gd_run_log *log = gd_run_log_open(folder, .csv = true, .prometheus = prometheus,
                                      .resume_step = 0, .tensorboard = HAS_EVENTS);
    const char *names[] = { "a", "b" }, *texts[] = { "1", "x" };
    bool ok = log && gd_run_log_scalars(log, 1, 0, 2, names, (double[]){ 1, 2 }) == GD_OK &&
              gd_run_log_histogram(log, 1, "h", values) == GD_OK &&
              gd_run_log_text(log, 1, "t", "text") == GD_OK &&
              gd_run_log_hyperparameters(log, 2, names, texts) == GD_OK &&
              gd_run_log_flush(log) == GD_OK;
    gd_run_log_close(log);
    gd_history *history = ok ? gd_history_load(folder) : NULL;
    gd_history_release(history);
    return history;
}

static void failed_allocations_are_errors(void **state)
{
    need_json();
    gd_tensor *values = gd_arange(*state, 0, 100, 1, GD_F32);
    char prometheus[512];
    snprintf(prometheus, sizeof prometheus, "%s/gradus.prom", folder);
    bool whole = false;
    for (int64_t after = 0; !whole; after++) {
        (void)gd_fail_allocations_after(after);
        whole = log_each(values, prometheus);
        (void)gd_fail_allocations_after(-1);
        assert_int_equal(gd_error_code(), whole ? GD_OK : GD_ERR_MEMORY);
        gd_error_clear();
        assert_true(after < 10000);
    }
    gd_history *history = gd_history_load(folder); /* what was written on the way is whole */
    assert_non_null(history);
    gd_history_release(history);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        EACH(numbers_that_json_lacks_make_valid_lines),
        EACH(values_are_read_back_bit_for_bit),
        EACH(what_follows_the_resumed_step_is_cut_off),
        EACH(a_last_line_cut_short_is_dropped),
        EACH(damage_is_named_by_its_line),
        EACH(hyperparameters_are_the_configuration),
        EACH(histograms_count_every_value_once),
        EACH(a_later_name_adds_a_column),
        EACH(prometheus_has_the_newest_values),
        EACH(checksums_are_those_of_rfc_3720),
        EACH(event_files_are_cut_off_where_they_resume),
        EACH(a_full_disk_leaves_whole_lines),
        EACH(failed_allocations_are_errors),
        EACH(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
