/* text/token_dataset.c: sequences of tokens as the samples of a data set. Start at write_sequence(). */
#include "text/token_data.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/options.h"

#include <string.h>

typedef struct sequences {
    const gd_token_data *data;
    int64_t length, stride, first;
} sequences;

/* The tokens of sequence `index`, and the one behind each of them. */
static gd_status write_sequence(void *user, int64_t index, gd_sample_values *sample)
{
    const sequences *s = user;
    int64_t *x = sample->data[0], *y = sample->data[1];
    const int64_t start = s->first + index * s->stride;
    gd_status status = gd_token_data_read(s->data, start, s->length, x);
    if (status != GD_OK)
        return status;
    memcpy(y, x + 1, (size_t)(s->length - 1) * sizeof *y);
    return gd_token_data_read(s->data, start + s->length, 1, y + s->length - 1);
}

/* Whether the options can be, the count being made that of tokens there are. */
static gd_status check(const gd_token_data *data, gd_token_dataset_options *o)
{
    if (o->length < 1 || (o->stride < 1 && o->stride != -1) || o->first < 0 || o->count < 0)
        return gd_fail(
            GD_ERR_INVALID,
            "gd_token_dataset: length %lld, stride %lld, first %lld, count %lld; the first "
            "two must be at least 1, none may be negative",
            (long long)o->length, (long long)o->stride, (long long)o->first, (long long)o->count);
    if (o->stride == -1)
        o->stride = o->length;
    int64_t all = gd_token_data_count(data);
    if (o->first <= all && o->count == GD_END)
        o->count = all - o->first;
    if (o->first > all || o->count > all - o->first)
        return gd_fail(GD_ERR_SHAPE, "gd_token_dataset: %lld tokens from %lld on, of %lld",
                       (long long)o->count, (long long)o->first, (long long)all);
    if (o->length >= o->count)
        return gd_fail(GD_ERR_SHAPE,
                       "gd_token_dataset: a sequence of %lld tokens needs them and one more; there "
                       "are %lld",
                       (long long)o->length, (long long)o->count);
    return GD_OK;
}

/* As gd_hash_add_spread, of a file, too. What cannot be read tells nothing here: batches will say so. */
static uint64_t fingerprint(const gd_token_data *data, const gd_token_dataset_options *o)
{
    enum { PIECES = 1024, PIECE = 512 };
    int64_t piece[PIECE];
    const int64_t step = o->count > PIECES * PIECE ? (o->count - PIECE) / (PIECES - 1) : PIECE;
    const uint64_t mark = gd_error_mark();
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_hash_add(&hash, &o->count, sizeof o->count);
    gd_hash_add(&hash, &o->stride, sizeof o->stride);
    for (int64_t at = 0; at < o->count; at += step) {
        const int64_t count = o->count - at < PIECE ? o->count - at : PIECE;
        if (gd_token_data_read(data, o->first + at, count, piece) == GD_OK)
            gd_hash_add(&hash, piece, (size_t)count * sizeof *piece);
    }
    gd_error_rollback(mark);
    return gd_hash_end(&hash);
}

gd_dataset *gd_token_dataset_with(gd_context *context, const gd_token_data *data,
                                  const gd_token_dataset_options *options)
{
    gd_token_dataset_options o = { GD_TOKEN_DATASET_DEFAULTS };
    if (!gd_options_read("gd_token_dataset", &o, sizeof o, options) || !context || !data ||
        check(data, &o) != GD_OK)
        return NULL;
    sequences *s = gd_alloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (sequences){ data, o.length, o.stride, o.first };
    const gd_field fields[2] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(o.length), .dtype = GD_I64 },
        { GD_FIELD_DEFAULTS, .name = "y", .shape = GD_SHAPE(o.length), .dtype = GD_I64 },
    };
    const int64_t count = (o.count - 1 - o.length) / o.stride + 1;
    return gd_dataset_create(context, count, 2, fields, write_sequence, s, .release = gd_free,
                             .fingerprint = fingerprint(data, &o));
}
