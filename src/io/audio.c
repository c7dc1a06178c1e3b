/* io/audio.c: sound files. Plain WAV (Microsoft and IBM, "Multimedia Programming Interface and Data
 * Specifications 1.0", 1991; WAVE_FORMAT_EXTENSIBLE, 2001) is read here: that needs no library, and tells a
 * file that is cut, which libsndfile takes for a shorter one. All other sounds are libsndfile's
 * (io/audio_sndfile.c). Start at gd_audio_read(). */
#include <gradus/io.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/audio.h"
#include "io/audio_sndfile.h"
#include "io/file.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#define MOST_FILE_BYTES ((size_t)1 << 31)

enum { PCM = 1, IEEE_FLOAT = 3, EXTENSIBLE = 0xfffe };

/* What the chunk "fmt " says. */
typedef struct format {
    unsigned code, channels, bits;
    uint32_t rate;
} format;

static uint32_t u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const unsigned char *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const unsigned char *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* ---- values ---- */

static float int24(const unsigned char *p)
{
    uint32_t bits = u16(p) << 8 | (uint32_t)p[2] << 24;
    return (float)((int32_t)bits / 256) * 0x1p-23f;
}

static float float32(const unsigned char *p)
{
    const uint32_t bits = u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float64(const unsigned char *p)
{
    const uint64_t bits = u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

/* One value, integers as -1 … 1. */
static float value_at(const format *f, const unsigned char *p)
{
    if (f->code == IEEE_FLOAT)
        return f->bits == 32 ? float32(p) : float64(p);
    switch (f->bits) {
    case 8: /* unsigned, alone of all */
        return (float)((int)*p - 128) * 0x1p-7f;
    case 16:
        return (float)(int16_t)u16(p) * 0x1p-15f;
    case 24:
        return int24(p);
    default:
        return (float)(int32_t)u32(p) * 0x1p-31f;
    }
}

/* ---- chunks ---- */

static gd_status read_format(const char *path, const unsigned char *p, size_t size, format *f)
{
    /* The end of the GUID of a format that has a code, too. */
    static const unsigned char guid[14] = { 0, 0, 0,    0, 0x10, 0,    0x80,
                                            0, 0, 0xaa, 0, 0x38, 0x9b, 0x71 };
    if (size < 16 || (u16(p) == EXTENSIBLE && size < 40))
        return gd_fail(GD_ERR_FORMAT, "%s: its chunk \"fmt \" has %zu bytes alone", path, size);
    *f = (format){ u16(p), u16(p + 2), u16(p + 14), u32(p + 4) };
    const uint32_t block = u16(p + 12);
    if (f->code == EXTENSIBLE && memcmp(p + 26, guid, sizeof guid) == 0)
        f->code = u16(p + 24);
    const bool pcm =
        f->code == PCM && (f->bits == 8 || f->bits == 16 || f->bits == 24 || f->bits == 32);
    if (!pcm && !(f->code == IEEE_FLOAT && (f->bits == 32 || f->bits == 64)))
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: WAV of code %u and %u bits", path, f->code,
                       f->bits);
    if (f->channels < 1 || f->channels > GD_AUDIO_MOST_CHANNELS || f->rate < 1 ||
        block != f->channels * f->bits / 8)
        return gd_fail(GD_ERR_FORMAT, "%s: %u channels at a rate of %u in blocks of %u bytes", path,
                       f->channels, f->rate, block);
    return GD_OK;
}

/* The first chunk of that name. A chunk may claim more than there is: programs that write to a pipe do not
 * know its size. NULL: there is none. */
static const unsigned char *find_chunk(const unsigned char *bytes, size_t size, const char *name,
                                       size_t *length)
{
    for (size_t at = 12; size - at >= 8;) {
        const size_t there = size - at - 8, claimed = u32(bytes + at + 4);
        *length = claimed < there ? claimed : there;
        if (memcmp(bytes + at, name, 4) == 0)
            return bytes + at + 8;
        const size_t padded = *length + (*length & 1);
        at += 8 + (padded < there ? padded : there);
    }
    return NULL;
}

/* GD_ERR_UNSUPPORTED: no WAV file, or one of another kind. */
static gd_status decode_wav(const char *path, const unsigned char *bytes, size_t size,
                            gd_audio *out)
{
    format f = { 0 };
    size_t length = 0;
    if (size < 12)
        return gd_fail(GD_ERR_FORMAT, "%s: %zu bytes are no sound", path, size);
    if (memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WAVE", 4) != 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: no WAV file", path);
    const unsigned char *p = find_chunk(bytes, size, "fmt ", &length);
    if (!p)
        return gd_fail(GD_ERR_FORMAT, "%s: a WAV file without a chunk \"fmt \"", path);
    gd_status status = read_format(path, p, length, &f);
    if (status != GD_OK)
        return status;
    p = find_chunk(bytes, size, "data", &length);
    const size_t width = f.bits / 8, block = f.channels * width;
    const size_t frames = p && block > 0 ? length / block : 0;
    if (frames == 0)
        return gd_fail(GD_ERR_FORMAT, "%s: a WAV file without sound", path);
    const size_t claimed = u32(p - 4);
    if (claimed > length && claimed < 0xffffff00u)
        return gd_fail(GD_ERR_FORMAT, "%s: %zu bytes of sound, where %zu are announced: it is cut",
                       path, length, claimed);
    *out = (gd_audio){ .frames = (int64_t)frames,
                       .channels = f.channels,
                       .rate = f.rate,
                       .samples = gd_alloc(frames * f.channels * sizeof(float)) };
    if (!out->samples)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < frames && status == GD_OK; i++)
        for (size_t c = 0; c < f.channels; c++, p += width) {
            const float value = value_at(&f, p);
            if (!isfinite(value))
                status = gd_fail(GD_ERR_FORMAT, "%s: frame %zu is not a number", path, i);
            out->samples[c * frames + i] = value;
        }
    return status;
}

gd_status gd_audio_read(const char *path, gd_audio *out)
{
    if (out)
        *out = (gd_audio){ 0 };
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_audio_read: the %s NULL",
                       path ? "struct to fill is" : "path is");
    unsigned char *bytes;
    size_t size;
    gd_status status = gd_file_read_all(path, MOST_FILE_BYTES, &bytes, &size);
    if (status != GD_OK)
        return status;
    const uint64_t mark = gd_error_mark();
    status = decode_wav(path, bytes, size, out);
    if (status == GD_ERR_UNSUPPORTED) {
        gd_error_rollback(mark);
        status = gd_sndfile_decode(path, bytes, size, out);
    }
    gd_free(bytes);
    if (status != GD_OK)
        gd_audio_free(out);
    return status;
}

int64_t gd_audio_peek_rate(const char *path)
{
    enum { START = 4096 }; /* "fmt " comes first but for notes of programs */
    unsigned char bytes[START];
    gd_file *file;
    format f = { 0 };
    size_t length;
    const uint64_t mark = gd_error_mark();
    if (gd_file_open(path, &file) == GD_OK) {
        const size_t size = gd_file_size(file) < START ? gd_file_size(file) : START;
        const bool is_wav = size >= 12 && gd_file_read_at(file, 0, size, bytes) == GD_OK &&
                            memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WAVE", 4) == 0;
        const unsigned char *p = is_wav ? find_chunk(bytes, size, "fmt ", &length) : NULL;
        if (p && read_format(path, p, length, &f) != GD_OK)
            f.rate = 0;
        gd_file_close(file);
    }
    gd_error_rollback(mark);
    return f.rate;
}

bool gd_audio_is_file_name(const char *path)
{
    static const char *const endings[] = { ".wav", ".wave", ".flac", ".ogg",  ".oga", ".opus",
                                           ".mp3", ".aif",  ".aiff", ".aifc", ".au" };
    const char *end = path ? strrchr(path, '.') : NULL;
    for (size_t i = 0; end && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(end, endings[i]) == 0)
            return true;
    return false;
}

void gd_audio_free(gd_audio *audio)
{
    if (!audio)
        return;
    gd_free(audio->samples);
    *audio = (gd_audio){ 0 };
}
