/* cli/data_audio.c: folders of sounds, one folder a class, and a convolutional network over the waveform.
 * Start at open_sounds(). */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_is_sound(const char *path)
{
    return gd_audio_is_file_name(path);
}

static bool is_sounds(const char *path)
{
    return cli_has_classes_of(path, cli_is_sound);
}

static bool keep(cli_data *d)
{
    char length[32], rate[32];
    snprintf(length, sizeof length, "%lld", (long long)d->size);
    snprintf(rate, sizeof rate, "%lld", (long long)d->rate);
    return cli_data_keep(d, "length", length) && cli_data_keep(d, "rate", rate) &&
           cli_data_keep_classes(d);
}

/* Of a file in the folder; 0: it cannot be read, or is absurd, which is recorded. */
static int64_t find_rate(const char *folder)
{
    const int64_t most = 1000000; /* converters reach 768,000 */
    gd_audio a = { 0 };
    char path[CLI_PATH_BYTES], sentence[CLI_PATH_BYTES + 128];
    if (cli_find_in_classes(folder, cli_is_sound, path))
        (void)gd_audio_read(path, &a);
    int64_t rate = a.rate;
    gd_audio_free(&a);
    if (rate <= most)
        return rate;
    snprintf(sentence, sizeof sentence,
             "%.4000s: its header says %lld frames a second, which no sound has: the file is "
             "damaged, or is no sound",
             path, (long long)rate);
    (void)gd_error_record(GD_ERR_FORMAT, sentence);
    return 0;
}

static void describe(cli_data *d)
{
    int at = snprintf(d->about, sizeof d->about,
                      "%lld frames, %.3g s at %lld a second; %lld classes", (long long)d->size,
                      (double)d->size / (double)d->rate, (long long)d->rate, (long long)d->outputs);
    for (int64_t i = 0; i < d->outputs && i < 8; i++) {
        char number[CLI_COUNT_TEXT];
        at += snprintf(d->about + at, sizeof d->about - (size_t)at, "%s%.24s", i ? ", " : " (",
                       cli_data_class(d, i, number));
    }
    snprintf(d->about + at, sizeof d->about - (size_t)at, d->outputs > 8 ? ", ...)" : ")");
}

static bool open_sounds(cli_data *d, const cli_data_options *o)
{
    d->rate = find_rate(o->path);
    gd_dataset *all =
        d->rate > 0 ? gd_audio_folder(d->context, o->path, o->size, .rate = d->rate) : NULL;
    d->train = d->validation = all;
    if (all)
        cli_data_take_classes(d);
    bool ok = all && cli_data_has_all_classes(d) &&
              gd_dataset_split(all, 1.0 - o->validation, &d->train, &d->validation,
                               .seed = (uint64_t)o->seed, .stratify = 1) == GD_OK;
    gd_dataset_release(all);
    if (!ok)
        return false;
    d->size = d->input.dim[1];
    describe(d);
    return keep(d);
}

static bool reopen_sounds(cli_data *d, const char *path, gd_tensor_file *file)
{
    const char *length = gd_tensor_file_metadata(file, "length");
    const char *rate = gd_tensor_file_metadata(file, "rate");
    d->size = length ? strtoll(length, NULL, 10) : 0;
    d->rate = rate ? strtoll(rate, NULL, 10) : 0; /* 0: whatever a file has */
    if (d->size < 1 || d->rate < 0 || !cli_data_take_kept_classes(d, file)) {
        if (gd_error_code() == GD_OK)
            (void)gd_error_record(GD_ERR_FORMAT, "the model's file does not say what sounds it "
                                                 "is for");
        return false;
    }
    if (!is_sounds(path))
        return true; /* a sound, or a folder of them: nobody says what they are */
    d->validation = gd_audio_folder(d->context, path, d->size, .rate = d->rate);
    return d->validation && cli_data_has_kept_classes(d);
}

gd_tensor *cli_read_sound(const cli_data *d, const char *path)
{
    char problem[256];
    gd_audio a;
    gd_tensor *x = NULL;
    if (gd_audio_read(path, &a) != GD_OK)
        return NULL;
    float *values = calloc((size_t)d->size, sizeof *values);
    const int64_t shift = (d->size - a.frames) / 2; /* as gd_audio_folder does it */
    for (int64_t i = 0; values && i < d->size; i++)
        for (int64_t c = 0; i >= shift && i - shift < a.frames && c < a.channels; c++)
            values[i] += a.samples[c * a.frames + i - shift] / (float)a.channels;
    if (d->rate > 0 && a.rate != d->rate) {
        snprintf(problem, sizeof problem,
                 "%.160s has %lld frames a second, the model was trained "
                 "with %lld",
                 path, (long long)a.rate, (long long)d->rate);
        (void)gd_error_record(GD_ERR_INVALID, problem);
    } else if (values)
        x = gd_from_host(d->context, GD_SHAPE(1, 1, d->size), GD_F32, values);
    free(values);
    gd_audio_free(&a);
    return x;
}

/* The network M5 of Dai, Dai, Qu, Li and Das ("Very deep convolutional neural networks for raw
 * waveforms", 2017): filters of 10 ms, and stages of convolution and pooling while there is width. */
static gd_model *propose_sounds(const cli_data *d, uint64_t seed)
{
    static const int64_t channels[] = { 32, 32, 64, 64 };
    const int64_t rate = d->rate > 0 ? d->rate : 8000;
    const int64_t wanted = rate / 100 < d->size ? rate / 100 : d->size;
    const int64_t kernel = wanted < 3 ? 3 : wanted, stride = rate < 4000 ? 1 : rate / 2000;
    int64_t width = (d->size - 1) / stride + 1;
    gd_model_builder *b = gd_model_begin(d->context, d->input, .seed = seed);
    for (int i = 0; i < 4; i++) {
        char conv[16], norm[16], pool[16];
        snprintf(conv, sizeof conv, "conv%d", i + 1);
        snprintf(norm, sizeof norm, "norm%d", i + 1);
        snprintf(pool, sizeof pool, "pool%d", i + 1);
        if (i == 0)
            (void)gd_model_add(b, conv, "conv1d", .channels = channels[i],
                               .kernel = GD_SHAPE(kernel), .stride = GD_SHAPE(stride),
                               .padding = GD_SHAPE(kernel / 2));
        else
            (void)gd_model_add(b, conv, "conv1d", .channels = channels[i], .kernel = GD_SHAPE(3),
                               .padding = GD_SHAPE(1));
        (void)gd_model_add(b, norm, "batch_norm", .activation = "relu");
        if (width >= 8) {
            (void)gd_model_add(b, pool, "max_pool1d", .kernel = GD_SHAPE(4), .stride = GD_SHAPE(4));
            width /= 4;
        }
    }
    (void)gd_model_add(b, "mean", "global_avg_pool");
    (void)gd_model_add(b, "out", "linear", .units = d->outputs);
    return gd_model_end(b);
}

const cli_data_kind cli_audio_kind = {
    .name = "audio",
    .sample = "sound",
    .is = is_sounds,
    .open = open_sounds,
    .reopen = reopen_sounds,
    .propose = propose_sounds,
    .epochs = 30,
    .batch = 32,
    .lr = 2e-3,
    .monitor = "accuracy",
};
