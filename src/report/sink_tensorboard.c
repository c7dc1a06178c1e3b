/* report/sink_tensorboard.c: the run log as event files that TensorBoard reads: protobuf messages
 * (tensorboard.proto, by protobuf-c) in TFRecords (records.h). Each opening begins a file of its own,
 * as TensorFlow's writers do; resuming cuts later steps off the older ones. */
#include "report/sink.h"

#include "base/error.h"

#ifdef GD_HAVE_PROTOBUF_C

#include "base/memory.h"
#include "io/file.h"
#include "io/image.h"
#include "report/append.h"
#include "report/graph_def.h"
#include "base/buffer.h"
#include "report/records.h"
#include <tensorboard.pb-c.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)1 << 36)
#define PREFIX         "events.out.tfevents."

enum { FLOAT_DTYPE = 1, STRING_DTYPE = 7 }; /* of tensorflow/core/framework/types.proto */

typedef GdTensorboard__Event event;
typedef GdTensorboard__Summary summary;
typedef GdTensorboard__Summary__Value summary_value;

typedef struct tensorboard_sink {
    gd_sink sink;
    gd_append_file file;
} tensorboard_sink;

/* ---- memory of protobuf-c ---- */

static void *allocate(void *user, size_t size)
{
    (void)user;
    return gd_alloc(size);
}

static void release(void *user, void *block)
{
    (void)user;
    gd_free(block);
}

static ProtobufCAllocator memory = { allocate, release, NULL };

/* A message's bytes, to be gd_free'd; NULL: no memory. */
static unsigned char *pack(const ProtobufCMessage *message, size_t *size)
{
    *size = protobuf_c_message_get_packed_size(message);
    unsigned char *bytes = gd_alloc(*size + 1);
    if (bytes)
        (void)protobuf_c_message_pack(message, bytes);
    return bytes;
}

/* ---- writing ---- */

static gd_status write_event(tensorboard_sink *s, const event *e)
{
    size_t size;
    unsigned char *bytes = pack(&e->base, &size);
    if (!bytes)
        return GD_ERR_MEMORY;
    unsigned char head[GD_RECORD_HEAD], tail[GD_RECORD_TAIL];
    gd_record_frame(bytes, size, head, tail);
    gd_text_buffer record = { 0 };
    gd_buffer_put(&record, head, sizeof head);
    gd_buffer_put(&record, bytes, size);
    gd_buffer_put(&record, tail, sizeof tail);
    gd_free(bytes);
    gd_status status = (record.failed ? GD_ERR_MEMORY : GD_OK);
    if (status == GD_OK)
        status = gd_append(&s->file, record.text, record.length);
    gd_free(record.text);
    return status;
}

static gd_status write_values(gd_sink *sink, const gd_log_entry *entry, size_t count,
                              summary_value **values)
{
    summary all = GD_TENSORBOARD__SUMMARY__INIT;
    all.n_value = count;
    all.value = values;
    event e = GD_TENSORBOARD__EVENT__INIT;
    e.wall_time = entry->wall;
    e.step = entry->step;
    e.what_case = GD_TENSORBOARD__EVENT__WHAT_SUMMARY;
    e.summary = &all;
    return write_event((tensorboard_sink *)sink, &e);
}

static gd_status write_value(gd_sink *sink, const gd_log_entry *entry, summary_value *value)
{
    return write_values(sink, entry, 1, &value);
}

/* protobuf-c does not change strings, but its members are not const. */
static char *text_of(const char *text)
{
    union {
        const char *given;
        char *member;
    } same = { .given = text };
    return same.member;
}

static gd_status tensorboard_scalars(gd_sink *sink, const gd_log_entry *entry, int64_t count,
                                     const char *const *names, const double *values)
{
    if (count == 0)
        return GD_OK;
    size_t n = (size_t)count;
    summary_value *all = gd_alloc_zero(n, sizeof *all), **list = gd_alloc_zero(n, sizeof(void *));
    gd_status status = all && list ? GD_OK : GD_ERR_MEMORY;
    for (size_t i = 0; status == GD_OK && i < n; i++) {
        gd_tensorboard__summary__value__init(&all[i]);
        all[i].tag = text_of(names[i]);
        all[i].value_case = GD_TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        all[i].simple_value = (float)values[i];
        list[i] = &all[i];
    }
    if (status == GD_OK)
        status = write_values(sink, entry, n, list);
    gd_free(all);
    gd_free(list);
    return status;
}

static gd_status tensorboard_histogram(gd_sink *sink, const gd_log_entry *entry,
                                       const gd_log_histogram *h)
{
    double limits[GD_LOG_BINS], counts[GD_LOG_BINS];
    for (int i = 0; i < GD_LOG_BINS; i++) {
        limits[i] = h->edges[i + 1];
        counts[i] = (double)h->counts[i];
    }
    GdTensorboard__HistogramProto histogram = GD_TENSORBOARD__HISTOGRAM_PROTO__INIT;
    histogram.min = h->min;
    histogram.max = h->max;
    histogram.num = (double)h->count;
    histogram.sum = h->sum;
    histogram.sum_squares = h->sum_squares;
    histogram.n_bucket = histogram.n_bucket_limit = h->count ? GD_LOG_BINS : 0;
    histogram.bucket_limit = limits;
    histogram.bucket = counts;
    summary_value value = GD_TENSORBOARD__SUMMARY__VALUE__INIT;
    value.tag = text_of(entry->name);
    value.value_case = GD_TENSORBOARD__SUMMARY__VALUE__VALUE_HISTO;
    value.histo = &histogram;
    return write_value(sink, entry, &value);
}

static gd_status tensorboard_image(gd_sink *sink, const gd_log_entry *entry, const gd_image *pixels)
{
    unsigned char *png;
    size_t size;
    gd_status status = gd_image_encode_png(entry->name, pixels, &png, &size);
    if (status != GD_OK)
        return status;
    GdTensorboard__Summary__Image image = GD_TENSORBOARD__SUMMARY__IMAGE__INIT;
    image.height = (int32_t)pixels->height;
    image.width = (int32_t)pixels->width;
    image.colorspace = (int32_t)pixels->channels; /* 1: grey, 3: RGB */
    image.encoded_image_string = (ProtobufCBinaryData){ size, png };
    summary_value value = GD_TENSORBOARD__SUMMARY__VALUE__INIT;
    value.tag = text_of(entry->name);
    value.value_case = GD_TENSORBOARD__SUMMARY__VALUE__VALUE_IMAGE;
    value.image = &image;
    status = write_value(sink, entry, &value);
    gd_free(png);
    return status;
}

static gd_status tensorboard_graph(gd_sink *sink, const gd_log_entry *entry, int64_t count,
                                   gd_tensor *const *tensors)
{
    event e = GD_TENSORBOARD__EVENT__INIT;
    e.wall_time = entry->wall;
    e.step = entry->step;
    e.what_case = GD_TENSORBOARD__EVENT__WHAT_GRAPH_DEF;
    gd_status status = gd_graph_def(count, tensors, &e.graph_def.data, &e.graph_def.len);
    if (status == GD_OK)
        status = write_event((tensorboard_sink *)sink, &e);
    gd_free(e.graph_def.data);
    return status;
}

/* A value for one of TensorBoard's plugins. */
static gd_status write_plugin(gd_sink *sink, const gd_log_entry *entry, const char *tag,
                              const char *plugin, ProtobufCBinaryData content,
                              GdTensorboard__TensorProto *tensor)
{
    GdTensorboard__SummaryMetadata__PluginData data =
        GD_TENSORBOARD__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    data.plugin_name = text_of(plugin);
    data.content = content;
    GdTensorboard__SummaryMetadata metadata = GD_TENSORBOARD__SUMMARY_METADATA__INIT;
    metadata.plugin_data = &data;
    summary_value value = GD_TENSORBOARD__SUMMARY__VALUE__INIT;
    value.tag = text_of(tag);
    value.metadata = &metadata;
    value.value_case = GD_TENSORBOARD__SUMMARY__VALUE__VALUE_TENSOR;
    value.tensor = tensor;
    return write_value(sink, entry, &value);
}

static gd_status tensorboard_text(gd_sink *sink, const gd_log_entry *entry, const char *text)
{
    ProtobufCBinaryData string = { strlen(text), (uint8_t *)text_of(text) };
    GdTensorboard__TensorShapeProto__Dim one = GD_TENSORBOARD__TENSOR_SHAPE_PROTO__DIM__INIT,
                                         *dims = &one;
    one.size = 1;
    GdTensorboard__TensorShapeProto shape = GD_TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
    shape.n_dim = 1;
    shape.dim = &dims;
    GdTensorboard__TensorProto tensor = GD_TENSORBOARD__TENSOR_PROTO__INIT;
    tensor.dtype = STRING_DTYPE;
    tensor.tensor_shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &string;
    return write_plugin(sink, entry, entry->name, "text", (ProtobufCBinaryData){ 0, NULL },
                        &tensor);
}

typedef GdTensorboard__SessionStartInfo__HparamsEntry hparams_entry;
typedef GdTensorboard__HparamValue hparam_value;

static void set_hyperparameter(hparams_entry *entry, hparam_value *value, const char *name,
                               const char *text)
{
    gd_tensorboard__session_start_info__hparams_entry__init(entry);
    gd_tensorboard__hparam_value__init(value);
    entry->key = text_of(name);
    entry->value = value;
    bool is_true = strcmp(text, "true") == 0;
    if (gd_text_is_number(text, &value->number_value)) {
        value->kind_case = GD_TENSORBOARD__HPARAM_VALUE__KIND_NUMBER_VALUE;
    } else if (is_true || strcmp(text, "false") == 0) {
        value->kind_case = GD_TENSORBOARD__HPARAM_VALUE__KIND_BOOL_VALUE;
        value->bool_value = is_true;
    } else {
        value->kind_case = GD_TENSORBOARD__HPARAM_VALUE__KIND_STRING_VALUE;
        value->string_value = text_of(text);
    }
}

static gd_status write_session(gd_sink *sink, const gd_log_entry *entry,
                               GdTensorboard__SessionStartInfo *session)
{
    GdTensorboard__HParamsPluginData data = GD_TENSORBOARD__HPARAMS_PLUGIN_DATA__INIT;
    data.session_start_info = session;
    ProtobufCBinaryData content;
    content.data = pack(&data.base, &content.len);
    if (!content.data)
        return GD_ERR_MEMORY;
    float zero = 0;
    GdTensorboard__TensorShapeProto shape = GD_TENSORBOARD__TENSOR_SHAPE_PROTO__INIT;
    GdTensorboard__TensorProto tensor = GD_TENSORBOARD__TENSOR_PROTO__INIT;
    tensor.dtype = FLOAT_DTYPE;
    tensor.tensor_shape = &shape;
    tensor.n_float_val = 1;
    tensor.float_val = &zero;
    gd_status status =
        write_plugin(sink, entry, "_hparams_/session_start_info", "hparams", content, &tensor);
    gd_free(content.data);
    return status;
}

static gd_status tensorboard_hyperparameters(gd_sink *sink, const gd_log_entry *entry,
                                             int64_t count, const char *const *names,
                                             const char *const *values)
{
    size_t n = (size_t)count;
    hparams_entry *entries = gd_alloc_zero(n + 1, sizeof *entries),
                  **list = gd_alloc_zero(n + 1, sizeof(void *));
    hparam_value *numbers = gd_alloc_zero(n + 1, sizeof *numbers);
    gd_status status = entries && list && numbers ? GD_OK : GD_ERR_MEMORY;
    for (size_t i = 0; status == GD_OK && i < n; i++) {
        set_hyperparameter(&entries[i], &numbers[i], names[i], values[i]);
        list[i] = &entries[i];
    }
    GdTensorboard__SessionStartInfo session = GD_TENSORBOARD__SESSION_START_INFO__INIT;
    session.n_hparams = n;
    session.hparams = list;
    session.start_time_secs = entry->wall;
    if (status == GD_OK)
        status = write_session(sink, entry, &session);
    gd_free(entries);
    gd_free(list);
    gd_free(numbers);
    return status;
}

/* ---- opening ---- */

/* Cut a file of an earlier session off at its first record of a step after `last`. A record that is
 * cut short ends the file; one with a wrong checksum is damage. */
static gd_status cut_off(gd_append_file *file, int64_t last)
{
    unsigned char *bytes;
    size_t size, at = 0, length;
    gd_status status = gd_file_read_all(file->path, FILE_BYTES_MAX, &bytes, &size);
    if (status != GD_OK)
        return status;
    const unsigned char *record;
    int found;
    for (long long number = 1; (found = gd_record_read(bytes, size, at, &record, &length)) != 0;
         number++) {
        event *e = found > 0 ? gd_tensorboard__event__unpack(&memory, length, record) : NULL;
        if (!e) {
            gd_free(bytes);
            return gd_fail(GD_ERR_FORMAT, "%s: record %lld is damaged", file->path, number);
        }
        bool later = e->step > last;
        gd_tensorboard__event__free_unpacked(e, &memory);
        if (later)
            break;
        at += GD_RECORD_HEAD + length + GD_RECORD_TAIL;
    }
    gd_free(bytes);
    return gd_append_truncate(file, at);
}

/* Of a new run: there may be none. Of one that is resumed: all are cut off. */
static gd_status see_to_old_files(const char *folder, int64_t resume_step)
{
    DIR *directory = opendir(folder);
    if (!directory)
        return gd_fail(GD_ERR_IO, "%s: cannot be read: %s", folder, strerror(errno));
    gd_status status = GD_OK;
    const struct dirent *entry;
    while (status == GD_OK && (entry = readdir(directory)) != NULL) {
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        gd_append_file file;
        status = gd_append_open(&file, folder, entry->d_name,
                                resume_step < 0 ? GD_APPEND_NEW : GD_APPEND_OLD);
        if (status == GD_OK && resume_step >= 0)
            status = cut_off(&file, resume_step);
        gd_append_close(&file);
    }
    (void)closedir(directory);
    return status;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A name of its own: TensorBoard reads the files of a folder in the order of their names. */
static gd_status open_new(tensorboard_sink *s, const char *folder)
{
    char host[128] = "localhost", name[256];
    (void)gethostname(host, sizeof host - 1);
    for (int number = 0;; number++) {
        gd_text_buffer path = { 0 };
        snprintf(name, sizeof name, PREFIX "%010lld.%s.%ld.%d", (long long)now(), host,
                 (long)getpid(), number);
        gd_buffer_add(&path, "%s/%s", folder, name);
        bool taken = !path.failed && access(path.text, F_OK) == 0;
        gd_free(path.text);
        if (!taken)
            return gd_append_open(&s->file, folder, name, GD_APPEND_NEW);
    }
}

static gd_status tensorboard_open(gd_sink **out, const char *folder,
                                  const gd_run_log_options *options, double *time)
{
    (void)time;
    tensorboard_sink *s = gd_alloc_zero(1, sizeof *s);
    if (!s)
        return GD_ERR_MEMORY;
    *out = &s->sink;
    s->file = GD_APPEND_NONE;
    gd_status status = see_to_old_files(folder, options->resume_step);
    if (status == GD_OK)
        status = open_new(s, folder);
    event e = GD_TENSORBOARD__EVENT__INIT;
    e.wall_time = now();
    e.what_case = GD_TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    e.file_version = text_of("brain.Event:2");
    if (status == GD_OK)
        status = write_event(s, &e);
    if (status != GD_OK || options->resume_step < 0)
        return status;
    /* A TensorBoard that is running has read what was cut off: this has it forget that. */
    GdTensorboard__SessionLog session = GD_TENSORBOARD__SESSION_LOG__INIT;
    session.status = GD_TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
    e.step = options->resume_step + 1;
    e.what_case = GD_TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    e.session_log = &session;
    return write_event(s, &e);
}

static gd_status tensorboard_flush(gd_sink *sink)
{
    return gd_append_sync(&((tensorboard_sink *)sink)->file);
}

static void tensorboard_close(gd_sink *sink)
{
    tensorboard_sink *s = (tensorboard_sink *)sink;
    gd_append_close(&s->file);
    gd_free(s);
}

const gd_sink_type gd_tensorboard_sink = {
    .open = tensorboard_open,
    .scalars = tensorboard_scalars,
    .histogram = tensorboard_histogram,
    .image = tensorboard_image,
    .text = tensorboard_text,
    .graph = tensorboard_graph,
    .hyperparameters = tensorboard_hyperparameters,
    .flush = tensorboard_flush,
    .close = tensorboard_close,
};

#else

static gd_status tensorboard_open(gd_sink **out, const char *folder,
                                  const gd_run_log_options *options, double *time)
{
    (void)out, (void)options, (void)time;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "gd_run_log_open: %s: this build writes no event files for TensorBoard "
                   "(protobuf-c)",
                   folder);
}

const gd_sink_type gd_tensorboard_sink = { .open = tensorboard_open };

#endif
