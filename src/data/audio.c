/* data/audio.c: a folder of sounds as a data set: each folder in it is a class, and a file is read, cut and
 * filled up when its sample is asked for, by the thread that asks. Start at gd_audio_folder_with(). */
#include "data/images.h"

#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "io/audio.h"

typedef struct reader {
    gd_name_list paths;
    int64_t length, channels, rate;
} reader;

static void destroy(void *user)
{
    reader *r = user;
    gd_name_list_free(&r->paths);
    gd_free(r);
}

/* Channel c of the sample: the file's; one that all are wanted in: their mean. */
static float frame_of(const gd_audio *a, const reader *r, int64_t c, int64_t i)
{
    if (r->channels > 1 || a->channels == 1)
        return a->samples[c * a->frames + i];
    float sum = 0;
    for (int64_t k = 0; k < a->channels; k++)
        sum += a->samples[k * a->frames + i];
    return sum / (float)a->channels;
}

/* The middle of a long sound, silence around a short one. */
static gd_status get_sample(void *user, int64_t index, gd_sample_values *sample)
{
    const reader *r = user;
    float *out = sample->data[0];
    gd_audio a;
    gd_status status = gd_audio_read(r->paths.name[index], &a);
    if (status == GD_OK && a.rate != r->rate)
        status = gd_fail(GD_ERR_FORMAT,
                         "%s: %lld frames a second, where the others have %lld: ffmpeg -i FILE -ar "
                         "%lld NEW.wav converts it",
                         r->paths.name[index], (long long)a.rate, (long long)r->rate,
                         (long long)r->rate);
    if (status == GD_OK && r->channels > 1 && a.channels != r->channels)
        status = gd_fail(GD_ERR_FORMAT, "%s: %lld channels, not %lld", r->paths.name[index],
                         (long long)a.channels, (long long)r->channels);
    const int64_t shift = (r->length - a.frames) / 2; /* of the file's first frame */
    for (int64_t c = 0; status == GD_OK && c < r->channels; c++)
        for (int64_t i = 0; i < r->length; i++) {
            int64_t from = i - shift;
            *out++ = from >= 0 && from < a.frames ? frame_of(&a, r, c, from) : 0.0f;
        }
    gd_audio_free(&a);
    return status;
}

/* What is not given is the first file's. */
static gd_status complete(const char *path, gd_audio_folder_options *o, int64_t *length)
{
    gd_audio a = { 0 };
    gd_status status =
        *length > 0 && o->rate > 0 && o->channels > 0 ? GD_OK : gd_audio_read(path, &a);
    *length = *length > 0 ? *length : a.frames;
    o->rate = o->rate > 0 ? o->rate : a.rate;
    o->channels = o->channels > 0 ? o->channels : a.channels;
    gd_audio_free(&a);
    return status;
}

/* Before an epoch ends at one of them. Of very many files as many as this are looked at, evenly spread. */
static gd_status check_rates(const gd_name_list *paths, int64_t rate)
{
    const size_t most = 10000, count = paths->count < most ? paths->count : most;
    const char *first = NULL;
    int64_t others = 0, other = 0;
    for (size_t i = 0; i < count; i++) {
        const char *path = paths->name[i * paths->count / count];
        const int64_t found = gd_audio_peek_rate(path);
        if (found == 0 || found == rate)
            continue;
        other = others++ ? other : found;
        first = first ? first : path;
    }
    if (others == 0)
        return GD_OK;
    char whose[64] = ", which was asked for"; /* a rate that no sound has */
    if ((size_t)others < count)
        gd_snprintf(whose, sizeof whose, " as %lld of the %lld sounds",
                    (long long)(count - (size_t)others), (long long)count);
    return gd_fail(GD_ERR_FORMAT,
                   "%s: %lld frames a second, not %lld%s: ffmpeg -i FILE -ar %lld NEW.wav "
                   "converts it",
                   first, (long long)other, (long long)rate, whose, (long long)rate);
}

static gd_dataset *make_dataset(gd_context *context, gd_image_files *files, int64_t length,
                                const gd_audio_folder_options *o)
{
    reader *r = gd_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    const gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "audio", .shape = GD_SHAPE(o->channels, length),
          .dtype = GD_F32 },
        { GD_FIELD_DEFAULTS, .name = "label", .dtype = GD_I64,
          .classes = (int64_t)files->classes.count,
          .class_names = (const char *const *)files->classes.name },
    };
    const void *const arrays[2] = { NULL, files->labels };
    const int64_t count = (int64_t)files->paths.count;
    const uint64_t print = gd_image_files_fingerprint(files) ^ (uint64_t)o->rate;
    *r = (reader){ files->paths, length, o->channels, o->rate };
    files->paths = (gd_name_list){ 0 };
    return gd_dataset_create(context, count, 2, fields, get_sample, r, .release = destroy,
                             .arrays = arrays, .fingerprint = print);
}

gd_dataset *gd_audio_folder_with(gd_context *context, const char *folder, int64_t length,
                                 const gd_audio_folder_options *options)
{
    gd_audio_folder_options o = { GD_AUDIO_FOLDER_DEFAULTS };
    if (!gd_options_read("gd_audio_folder", &o, sizeof o, options) || !context)
        return NULL;
    if (!folder || length < 0 || o.channels < 0 || o.rate < 0)
        return gd_fail_null(GD_ERR_INVALID, "gd_audio_folder: the folder is NULL, or a size is "
                                            "negative");
    gd_image_files all = { 0 };
    gd_dataset *d = NULL;
    if (gd_list_class_folders(&all, folder, gd_audio_is_file_name,
                              "sound (.wav, .flac, .ogg, .mp3)") == GD_OK &&
        complete(all.paths.name[0], &o, &length) == GD_OK &&
        check_rates(&all.paths, o.rate) == GD_OK)
        d = make_dataset(context, &all, length, &o);
    gd_image_files_free(&all);
    return d;
}
