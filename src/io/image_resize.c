/* io/image_resize.c: images brought to another size by weighted means of their pixels. Rows first, of
 * which whole lines are added, then columns of what is left. Start at gd_image_resize(). */
#include "io/image.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* What the pixels of an axis are made of: number i of weight[i * room] and on, from pixel first[i]. */
typedef struct taps {
    int64_t room;
    int64_t *first, *count; // [to]
    float *weight;          // [to, room]
} taps;

static void free_taps(taps *t)
{
    gd_free(t->first);
    gd_free(t->count);
    gd_free(t->weight);
}

/* The triangle around the pixel's centre, as wide as a pixel of the coarser of the two grids, so
 * that shrinking averages; weights add up to 1. */
static void make_tap(taps *t, int64_t i, int64_t from, int64_t to)
{
    double scale = (double)from / (double)to, support = scale > 1.0 ? scale : 1.0;
    double centre = ((double)i + 0.5) * scale, sum = 0.0;
    int64_t first = (int64_t)floor(centre - support), end = (int64_t)ceil(centre + support);
    float *weights = t->weight + i * t->room;
    t->first[i] = first < 0 ? 0 : first;
    end = end > from ? from : end;
    t->count[i] = end - t->first[i];
    for (int64_t k = 0; k < t->count[i]; k++) {
        double weight = 1.0 - fabs((double)(t->first[i] + k) + 0.5 - centre) / support;
        weights[k] = (float)(weight > 0.0 ? weight : 0.0);
        sum += (double)weights[k];
    }
    for (int64_t k = 0; k < t->count[i]; k++)
        weights[k] = (float)((double)weights[k] / sum);
}

static bool make_taps(taps *t, int64_t from, int64_t to)
{
    t->room = 2 * ((from + to - 1) / to) + 3;
    t->first = gd_alloc((size_t)to * sizeof *t->first);
    t->count = gd_alloc((size_t)to * sizeof *t->count);
    t->weight = gd_alloc((size_t)(to * t->room) * sizeof *t->weight);
    if (!t->first || !t->count || !t->weight)
        return false;
    for (int64_t i = 0; i < to; i++)
        make_tap(t, i, from, to);
    return true;
}

/* ---- rows ---- */

/* sum[j] += weight * line[j], rounded twice: the same on every instruction set. */
typedef void (*add_line_fn)(float *sum, const unsigned char *line, float weight, int64_t count);

#define ADD_LINE(name, attribute)                                                       \
    attribute static void name(float *restrict sum, const unsigned char *restrict line, \
                               float weight, int64_t count)                             \
    {                                                                                   \
        for (int64_t j = 0; j < count; j++)                                             \
            sum[j] += weight * (float)line[j];                                          \
    }
ADD_LINE(add_line, )
#if defined(__x86_64__) && defined(__GNUC__)
ADD_LINE(add_line_avx2, __attribute__((target("avx2"))))
#endif

static add_line_fn choose_add_line(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (gd_isa_available(GD_ISA_AVX2))
        return add_line_avx2;
#endif
    return add_line;
}

/* ---- columns ---- */

static unsigned char as_byte(float value)
{
    /* lround would be a call for each byte. NOLINTNEXTLINE(bugprone-incorrect-roundings) */
    return value <= 0.0f ? 0 : value >= 255.0f ? 255 : (unsigned char)(value + 0.5f);
}

/* A line [from, channels] to a line [to, channels] of bytes, of which those from channel c on,
 * `wide` of them, are made: what is known when it is compiled stays in registers. */
static inline void shrink_channels(const float *line, const taps *t, int64_t to, int64_t channels,
                                   int64_t c, int wide, unsigned char *out)
{
    for (int64_t i = 0; i < to; i++) {
        const float *weight = t->weight + i * t->room, *x = line + t->first[i] * channels + c;
        float sum[3] = { 0 };
        for (int64_t k = 0; k < t->count[i]; k++)
            for (int j = 0; j < wide; j++)
                sum[j] += weight[k] * x[k * channels + j];
        for (int j = 0; j < wide; j++)
            out[i * channels + c + j] = as_byte(sum[j]);
    }
}

static void shrink_line(const float *line, const taps *t, int64_t to, int64_t channels,
                        unsigned char *out)
{
    if (channels == 3)
        shrink_channels(line, t, to, 3, 0, 3, out);
    else
        for (int64_t c = 0; c < channels; c++)
            shrink_channels(line, t, to, channels, c, 1, out);
}

static void resize(const gd_image *in, const taps *rows, const taps *columns, float *line,
                   gd_image *out)
{
    int64_t numbers = in->width * in->channels;
    add_line_fn add = choose_add_line();
    for (int64_t y = 0; y < out->height; y++) {
        memset(line, 0, (size_t)numbers * sizeof *line);
        for (int64_t k = 0; k < rows->count[y]; k++)
            add(line, in->pixels + (rows->first[y] + k) * numbers, rows->weight[y * rows->room + k],
                numbers);
        shrink_line(line, columns, out->width, out->channels,
                    out->pixels + y * out->width * out->channels);
    }
}

gd_status gd_image_resize(const gd_image *image, int64_t height, int64_t width, gd_image *out)
{
    if (!out || !gd_image_is_whole(image))
        return gd_fail(GD_ERR_INVALID, "gd_image_resize: there is no image");
    *out = (gd_image){ 0 };
    if (height < 1 || width < 1 || height > GD_IMAGE_MAX_SIZE || width > GD_IMAGE_MAX_SIZE)
        return gd_fail(GD_ERR_INVALID, "gd_image_resize: to %lld x %lld; 1 to %d are possible",
                       (long long)height, (long long)width, GD_IMAGE_MAX_SIZE);
    taps rows = { 0 }, columns = { 0 };
    float *line = gd_alloc((size_t)(image->width * image->channels) * sizeof *line);
    out->pixels = gd_alloc((size_t)(height * width * image->channels));
    bool ok = line && out->pixels && make_taps(&rows, image->height, height) &&
              make_taps(&columns, image->width, width);
    if (ok) {
        out->height = height, out->width = width, out->channels = image->channels;
        resize(image, &rows, &columns, line, out);
    } else {
        gd_image_free(out);
    }
    free_taps(&rows);
    free_taps(&columns);
    gd_free(line);
    return ok ? GD_OK : GD_ERR_MEMORY;
}
