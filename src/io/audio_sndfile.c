/* io/audio_sndfile.c: sounds that libsndfile decodes: FLAC, Ogg Vorbis and Opus, MP3, AIFF, and WAV files
 * that are compressed. The library (or the one in the folder $GRADUS_SNDFILE_PATH) is loaded when a first
 * such file is read, and never unloaded: who reads none does not load its ten codecs at every start,
 * and who builds Gradus needs nothing. Its interface, declared here, has been the same since version 1.0.18
 * (2009). Start at gd_sndfile_decode(). */
#include "io/audio_sndfile.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/poison.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#define LIBRARY "libsndfile.1.dylib"
#else
#define LIBRARY "libsndfile.so.1"
#endif

/* ---- sndfile.h ---- */

enum { SFM_READ = 0x10, SF_FORMAT_TYPEMASK = 0x0fff0000, SF_FORMAT_MPEG = 0x230000 };

typedef struct SNDFILE SNDFILE;

typedef struct SF_INFO {
    int64_t frames;
    int samplerate, channels, format, sections, seekable;
} SF_INFO;

typedef struct SF_VIRTUAL_IO {
    int64_t (*get_filelen)(void *user);
    int64_t (*seek)(int64_t offset, int whence, void *user);
    int64_t (*read)(void *out, int64_t count, void *user);
    int64_t (*write)(const void *from, int64_t count, void *user);
    int64_t (*tell)(void *user);
} SF_VIRTUAL_IO;

static SNDFILE *(*sf_open_virtual)(SF_VIRTUAL_IO *io, int mode, SF_INFO *info, void *user);
static int64_t (*sf_readf_float)(SNDFILE *file, float *out, int64_t frames);
static int (*sf_error)(SNDFILE *file);
static const char *(*sf_strerror)(SNDFILE *file);
static int (*sf_close)(SNDFILE *file);

/* ---- loading ---- */

static bool is_loaded;
static char reason[256];

#ifndef GD_FORGETTING
/* A data pointer as a pointer to a function, which ISO C has no conversion for. */
static bool find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (found)
        *(void **)function = found;
    else
        snprintf(reason, sizeof reason, LIBRARY " has no function %s", name);
    return found;
}
#endif

static void load(void)
{
#ifdef GD_FORGETTING
    snprintf(reason, sizeof reason, "MemorySanitizer does not see what it writes");
#else
    const char *folder = getenv("GRADUS_SNDFILE_PATH");
    char path[PATH_MAX] = LIBRARY;
    if (folder && *folder)
        snprintf(path, sizeof path, "%s/" LIBRARY, folder);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    if (!library)
        snprintf(reason, sizeof reason, "%s", why ? why : LIBRARY " cannot be loaded");
    is_loaded = library && find_function(library, "sf_open_virtual", &sf_open_virtual) &&
                find_function(library, "sf_readf_float", &sf_readf_float) &&
                find_function(library, "sf_error", &sf_error) &&
                find_function(library, "sf_strerror", &sf_strerror) &&
                find_function(library, "sf_close", &sf_close);
#endif
}

static gd_status need_library(const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    if (is_loaded)
        return GD_OK;
    return gd_fail(
        GD_ERR_UNSUPPORTED,
        "%s: is no plain WAV file, and libsndfile, which reads other sounds, is not there "
        "(%s): apt install libsndfile1, or ffmpeg -i FILE -c:a pcm_s16le NEW.wav",
        path, reason);
}

/* ---- a file in memory ---- */

typedef struct memory {
    const unsigned char *bytes;
    int64_t size, at;
} memory;

static int64_t get_length(void *user)
{
    return ((memory *)user)->size;
}

static int64_t seek(int64_t offset, int whence, void *user)
{
    memory *m = user;
    const int64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? m->at : m->size;
    if (offset < -from || offset > m->size - from)
        return -1;
    return m->at = from + offset;
}

static int64_t read_bytes(void *out, int64_t count, void *user)
{
    memory *m = user;
    const int64_t there = m->size - m->at, taken = count < there ? count : there;
    if (taken <= 0)
        return 0;
    memcpy(out, m->bytes + m->at, (size_t)taken);
    m->at += taken;
    return taken;
}

static int64_t write_nothing(const void *from, int64_t count, void *user)
{
    (void)from, (void)count, (void)user;
    return 0;
}

static int64_t tell(void *user)
{
    return ((memory *)user)->at;
}

/* ---- decoding ---- */

/* What has been decoded, [frames, channels]. */
typedef struct frames {
    float *values;
    size_t capacity; /* values */
    int64_t count;
} frames;

/* All there is, whatever the header says; but no more than so many values a byte, which a file that is made
 * to fill the memory would have. */
static gd_status read_all(const char *path, SNDFILE *file, int64_t channels, size_t size, frames *f)
{
    enum { BLOCK = 16384, MOST_A_BYTE = 4096 };
    const int64_t most = (int64_t)(size < INT_MAX / MOST_A_BYTE ? size * MOST_A_BYTE : INT_MAX);
    for (;;) {
        const size_t wanted = (size_t)((f->count + BLOCK) * channels);
        if (!gd_grow((void **)&f->values, &f->capacity, wanted, sizeof *f->values))
            return GD_ERR_MEMORY;
        const int64_t got = sf_readf_float(file, f->values + f->count * channels, BLOCK);
        if (got <= 0)
            break;
        f->count += got;
        if (f->count > most / channels)
            return gd_fail(GD_ERR_FORMAT, "%s: more than %lld samples of %zu bytes", path,
                           (long long)most, size);
    }
    return sf_error(file) == 0
               ? GD_OK
               : gd_fail(GD_ERR_FORMAT, "%s: libsndfile: %s", path, sf_strerror(file));
}

/* The length in the headers of MP3 files is a guess. */
static gd_status check_length(const char *path, const SF_INFO *info, int64_t frames_read)
{
    const bool is_known =
        (info->format & SF_FORMAT_TYPEMASK) != SF_FORMAT_MPEG && info->frames < INT64_MAX;
    if (frames_read < 1)
        return gd_fail(GD_ERR_FORMAT, "%s: a file without sound", path);
    if (is_known && info->frames > frames_read)
        return gd_fail(GD_ERR_FORMAT, "%s: %lld frames, where %lld are announced: it is cut", path,
                       (long long)frames_read, (long long)info->frames);
    return GD_OK;
}

static gd_status take_frames(const char *path, const SF_INFO *info, const frames *f, gd_audio *out)
{
    const int64_t channels = info->channels;
    *out = (gd_audio){ .frames = f->count,
                       .channels = channels,
                       .rate = info->samplerate,
                       .samples = gd_alloc((size_t)(f->count * channels) * sizeof(float)) };
    if (!out->samples)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < f->count; i++)
        for (int64_t c = 0; c < channels; c++) {
            const float value = f->values[i * channels + c];
            if (!isfinite(value))
                return gd_fail(GD_ERR_FORMAT, "%s: frame %lld is not a number", path, (long long)i);
            out->samples[c * f->count + i] = value;
        }
    return GD_OK;
}

gd_status gd_sndfile_decode(const char *path, const unsigned char *bytes, size_t size,
                            gd_audio *out)
{
    static SF_VIRTUAL_IO io = { get_length, seek, read_bytes, write_nothing, tell };
    gd_status status = need_library(path);
    if (status != GD_OK)
        return status;
    memory m = { bytes, (int64_t)size, 0 };
    SF_INFO info = { 0 };
    SNDFILE *file = sf_open_virtual(&io, SFM_READ, &info, &m);
    if (!file)
        return gd_fail(GD_ERR_FORMAT, "%s: no sound that libsndfile can read: %s", path,
                       sf_strerror(NULL));
    frames f = { 0 };
    if (info.channels < 1 || info.channels > GD_AUDIO_MOST_CHANNELS || info.samplerate < 1)
        status = gd_fail(GD_ERR_FORMAT, "%s: %d channels at a rate of %d", path, info.channels,
                         info.samplerate);
    if (status == GD_OK)
        status = read_all(path, file, info.channels, size, &f);
    if (status == GD_OK)
        status = check_length(path, &info, f.count);
    if (status == GD_OK)
        status = take_frames(path, &info, &f, out);
    (void)sf_close(file);
    gd_free(f.values);
    if (status != GD_OK)
        gd_audio_free(out);
    return status;
}
