/* text/token_data.c: token files (llm.c's form; gradus/text.h describes it). */
#include "text/token_data.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { HEADER_WORDS = 256, HEADER_BYTES = 4 * HEADER_WORDS, CHUNK = 1024 };

/* The two forms of a file. */
static const struct form {
    uint32_t magic, version;
    int width;
    int64_t vocabulary; /* the most tokens there may be */
} forms[] = { { 20240520, 1, 2, 1 << 16 }, { 20240801, 7, 4, INT32_MAX } };
enum { FORM_COUNT = sizeof forms / sizeof *forms };

static void put(unsigned char *out, uint32_t value, int width)
{
    for (int i = 0; i < width; i++)
        out[i] = (unsigned char)(value >> 8 * i & 0xff);
}

static uint32_t get(const unsigned char *in, int width)
{
    uint32_t value = 0;
    for (int i = 0; i < width; i++)
        value |= (uint32_t)in[i] << 8 * i;
    return value;
}

/* ---- writing ---- */

static gd_status check_tokens(const int32_t *tokens, int64_t count, int64_t vocabulary)
{
    if (count > INT32_MAX)
        return gd_fail(GD_ERR_UNSUPPORTED,
                       "gd_token_file_write: %lld tokens; a file holds at most %d",
                       (long long)count, INT32_MAX);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return gd_fail(GD_ERR_INVALID,
                           "gd_token_file_write: token %lld is %d; it must be 0 to %lld",
                           (long long)i, (int)tokens[i], (long long)vocabulary - 1);
    return GD_OK;
}

gd_status gd_token_file_write(const char *path, int64_t count, const int32_t *tokens,
                              int64_t vocabulary)
{
    if (!path || count < 0 || (!tokens && count > 0) || vocabulary < 1 || vocabulary > INT32_MAX)
        return gd_fail(GD_ERR_INVALID, "gd_token_file_write: %s",
                       !path ? "the path is NULL"
                       : vocabulary < 1 || vocabulary > INT32_MAX
                           ? "a vocabulary has 1 to 2147483647 tokens"
                       : count < 0 ? "there are less than 0 tokens"
                                   : "the tokens are NULL");
    if (check_tokens(tokens, count, vocabulary) != GD_OK)
        return gd_error_last();
    const struct form *form = &forms[vocabulary > forms[0].vocabulary];
    unsigned char header[HEADER_BYTES] = { 0 };
    put(header, form->magic, 4);
    put(header + 4, form->version, 4);
    put(header + 8, (uint32_t)count, 4);
    size_t width = (size_t)form->width;
    size_t size = (size_t)count * width;
    unsigned char *bytes = gd_alloc(size + 1);
    if (!bytes)
        return GD_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        put(bytes + (size_t)i * width, (uint32_t)tokens[i], form->width);
    const gd_file_part parts[] = { { header, sizeof header }, { bytes, size } };
    gd_status status = gd_file_write_atomic(path, parts, 2);
    gd_free(bytes);
    return status;
}

/* ---- reading ---- */

static void destroy(void *object)
{
    gd_token_data *d = object;
    gd_file_close(d->file);
    gd_free(d->tokens);
    gd_free(d);
}

void gd_token_data_close(gd_token_data *d)
{
    if (!d)
        return;
    gd_context_disown(d->context, d);
    destroy(d);
}

static gd_token_data *adopt(gd_token_data *d, gd_status status)
{
    if (status == GD_OK)
        status = gd_context_adopt(d->context, d, destroy);
    if (status == GD_OK)
        return d;
    destroy(d);
    return NULL;
}

static gd_status read_header(gd_token_data *d, const char *path)
{
    unsigned char header[HEADER_BYTES];
    size_t size = gd_file_size(d->file);
    if (size < HEADER_BYTES)
        return gd_fail(GD_ERR_FORMAT, "%s: too short for a token file", path);
    gd_status status = gd_file_read_at(d->file, 0, HEADER_BYTES, header);
    if (status != GD_OK)
        return status;
    for (int i = 0; i < FORM_COUNT; i++)
        if (get(header, 4) == forms[i].magic && get(header + 4, 4) == forms[i].version)
            d->width = forms[i].width;
    if (d->width == 0)
        return gd_fail(GD_ERR_FORMAT, "%s: not a token file, or of a version unknown here", path);
    uint32_t count = get(header + 8, 4);
    size_t there = (size - HEADER_BYTES) / (size_t)d->width;
    if (count > INT32_MAX || count != there || (size - HEADER_BYTES) % (size_t)d->width != 0)
        return gd_fail(GD_ERR_FORMAT, "%s: the header says %u tokens, the file holds %zu", path,
                       (unsigned)count, there);
    d->count = count;
    return GD_OK;
}

/* Tokens of four bytes may be too large for an i32. */
static gd_status check_file(const gd_token_data *d)
{
    int64_t chunk[CHUNK];
    gd_status status = GD_OK;
    for (int64_t first = 0; d->width == 4 && status == GD_OK && first < d->count; first += CHUNK)
        status = gd_token_data_read(d, first, d->count - first < CHUNK ? d->count - first : CHUNK,
                                    chunk);
    return status;
}

gd_token_data *gd_token_data_open(gd_context *context, const char *path)
{
    if (!context)
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_token_data_open: the path is NULL");
    gd_token_data *d = gd_alloc_zero(1, sizeof *d);
    if (!d)
        return NULL;
    d->context = context;
    gd_status status = gd_file_open(path, &d->file);
    if (status == GD_OK)
        status = read_header(d, path);
    if (status == GD_OK)
        status = check_file(d);
    return adopt(d, status);
}

gd_token_data *gd_token_data_create(gd_context *context, int64_t count, const int32_t *tokens)
{
    if (!context)
        return NULL;
    for (int64_t i = 0; tokens && i < count; i++)
        if (tokens[i] < 0)
            return gd_fail_null(GD_ERR_INVALID, "gd_token_data_create: token %lld is %d",
                                (long long)i, (int)tokens[i]);
    if (!tokens || count < 1 || count > INT32_MAX)
        return gd_fail_null(GD_ERR_INVALID, "gd_token_data_create: %s",
                            count > INT32_MAX ? "more than 2147483647 tokens"
                                              : "there are no tokens");
    gd_token_data *d = gd_alloc_zero(1, sizeof *d);
    if (!d)
        return NULL;
    d->context = context;
    d->count = count;
    d->tokens = gd_alloc((size_t)count * sizeof *d->tokens);
    if (d->tokens)
        memcpy(d->tokens, tokens, (size_t)count * sizeof *d->tokens);
    return adopt(d, d->tokens ? GD_OK : GD_ERR_MEMORY);
}

int64_t gd_token_data_count(const gd_token_data *d)
{
    return d ? d->count : 0;
}

int32_t gd_token_data_get(const gd_token_data *d, int64_t i)
{
    int64_t token = -1;
    bool there = d && i >= 0 && i < d->count && gd_token_data_read(d, i, 1, &token) == GD_OK;
    return there ? (int32_t)token : -1;
}

/* From a file, through a buffer. */
static gd_status read_file(const gd_token_data *d, int64_t first, int64_t count, int64_t *out)
{
    unsigned char bytes[4 * CHUNK];
    size_t width = (size_t)d->width;
    for (int64_t done = 0; done < count;) {
        int64_t step = count - done < CHUNK ? count - done : CHUNK;
        size_t at = HEADER_BYTES + (size_t)(first + done) * width;
        gd_status status = gd_file_read_at(d->file, at, (size_t)step * width, bytes);
        for (int64_t i = 0; status == GD_OK && i < step; i++) {
            out[done + i] = (int64_t)get(bytes + (size_t)i * width, d->width);
            int64_t number = first + done + i;
            if (out[done + i] > INT32_MAX)
                status = gd_fail(GD_ERR_FORMAT, "a token file: token %lld is beyond 2147483647",
                                 (long long)number);
        }
        if (status != GD_OK)
            return status;
        done += step;
    }
    return GD_OK;
}

gd_status gd_token_data_read(const gd_token_data *d, int64_t first, int64_t count, int64_t *out)
{
    if (d->file)
        return read_file(d, first, count, out);
    for (int64_t i = 0; i < count; i++)
        out[i] = d->tokens[first + i];
    return GD_OK;
}
