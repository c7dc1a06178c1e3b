/* io/gguf_write.c: GGUF files written: the values, what the tensors are, then tensor by tensor, of which only a piece is
 * in memory at a time. Start at gd_gguf_write(). */
#include "io/gguf.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"
#include "io/importance.h"

#include <math.h>
#include <string.h>

enum { VERSION = 3, ALIGNMENT = 32, PIECE = 1 << 16 /* numbers; a multiple of every block */ };

/* ---- values ---- */

void gd_gguf_values_free(gd_gguf_values *v)
{
    gd_free(v->bytes);
    *v = (gd_gguf_values){ 0 };
}

static void put(gd_gguf_values *v, const void *bytes, size_t size)
{
    v->failed = v->failed || !gd_grow((void **)&v->bytes, &v->capacity, v->size + size + 1, 1);
    if (v->failed)
        return;
    if (size > 0)
        memcpy(v->bytes + v->size, bytes, size);
    v->size += size;
}

static void put_number(gd_gguf_values *v, uint64_t number, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number >> (8 * i) & 0xff);
    put(v, bytes, size);
}

void gd_gguf_put_text(gd_gguf_values *v, const char *text, size_t size)
{
    put_number(v, size, 8);
    put(v, text, size);
}

void gd_gguf_put_u32(gd_gguf_values *v, uint32_t value)
{
    put_number(v, value, 4);
}

void gd_gguf_put_real(gd_gguf_values *v, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(v, bits, 4);
}

static void begin(gd_gguf_values *v, const char *key, gd_gguf_kind kind)
{
    v->count++;
    gd_gguf_put_text(v, key, strlen(key));
    put_number(v, (uint64_t)kind, 4);
}

void gd_gguf_add_text(gd_gguf_values *v, const char *key, const char *text)
{
    begin(v, key, GD_GGUF_TEXT);
    gd_gguf_put_text(v, text, strlen(text));
}

void gd_gguf_add_u32(gd_gguf_values *v, const char *key, uint32_t value)
{
    begin(v, key, GD_GGUF_U32);
    gd_gguf_put_u32(v, value);
}

void gd_gguf_add_real(gd_gguf_values *v, const char *key, float value)
{
    begin(v, key, GD_GGUF_REAL32);
    gd_gguf_put_real(v, value);
}

void gd_gguf_add_bool(gd_gguf_values *v, const char *key, bool value)
{
    begin(v, key, GD_GGUF_BOOL);
    put_number(v, value, 1);
}

void gd_gguf_add_list(gd_gguf_values *v, const char *key, gd_gguf_kind kind, uint64_t count)
{
    begin(v, key, GD_GGUF_LIST);
    put_number(v, (uint64_t)kind, 4);
    put_number(v, count, 8);
}

void gd_gguf_add_raw(gd_gguf_values *v, const unsigned char *raw, size_t size)
{
    v->count++;
    put(v, raw, size);
}

/* ---- the file ---- */

typedef struct writing {
    const char *path;
    gd_gguf_values head; /* all that stands before the tensors */
    gd_gguf_part *parts;
    size_t count;
    const char *who;
    const gd_gguf_quantize_options *options;
    float *numbers, *back;
    float *importance;                   /* of each number */
    const gd_column_importance *columns; /* of the tensor that is written; NULL: none */
    float scale;                         /* by which their mean is 1 */
    unsigned char *blocks;
} writing;

static size_t numbers_of(const gd_gguf_part *p)
{
    size_t count = 1;
    for (int i = 0; i < p->shape.rank; i++)
        count *= (size_t)p->shape.dim[i];
    return count;
}

static size_t bytes_of(const gd_gguf_part *p)
{
    return numbers_of(p) / (size_t)p->format->count * p->format->size;
}

static size_t padding(size_t size)
{
    return (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT;
}

/* The error of what has been written, added up in the order of the numbers. */
static void compare(const writing *w, gd_gguf_part *p, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double value = (double)w->numbers[i], error = fabs((double)w->back[i] - value);
        p->squares += value * value;
        p->squared_error += error * error;
        p->largest_error = error > p->largest_error ? error : p->largest_error;
        if (!w->columns)
            continue;
        double counts = (double)w->columns->mean[(first + i) % (size_t)w->columns->columns];
        p->output_squares += counts * value * value;
        p->output_squared_error += counts * error * error;
    }
}

/* The weight of each number of a piece, around 1. The root, because errors of a row are not independent: where a few columns count for
 * nearly everything, as behind a SwiGLU, their importance itself gives a higher perplexity, at the same error of products. */
static const float *importance_of(writing *w, size_t first, size_t count)
{
    for (size_t i = 0; w->columns && i < count; i++)
        w->importance[i] =
            sqrtf(w->columns->mean[(first + i) % (size_t)w->columns->columns] * w->scale) + 0.05f;
    return w->columns ? w->importance : NULL;
}

static gd_status write_piece(writing *w, gd_gguf_part *p, size_t first, size_t count,
                             gd_file_sink *sink)
{
    size_t at;
    gd_status status = p->values(p->user, first, count, w->numbers);
    if (status != GD_OK)
        return status;
    if (!gd_blocks_write(p->format, w->numbers, importance_of(w, first, count), count, w->blocks,
                         &at))
        return gd_fail(GD_ERR_INVALID,
                       "%s: tensor \"%s\" has a number near element %zu that is not finite, or too "
                       "large for %s",
                       w->path, p->name, first + at, p->format->name);
    gd_blocks_read(p->format, w->blocks, count, w->back);
    compare(w, p, first, count);
    return gd_file_sink_write(sink, w->blocks, count / (size_t)p->format->count * p->format->size);
}

static gd_status tell(const writing *w, const gd_gguf_part *p)
{
    if (!w->options->callback)
        return GD_OK;
    const gd_gguf_written written = {
        .name = p->name,
        .shape = p->shape,
        .type = p->format->type,
        .bytes = bytes_of(p),
        .error = p->squares > 0.0 ? sqrt(p->squared_error / p->squares) : 0.0,
        .largest_error = p->largest_error,
        .output_error = !w->columns ? -1.0
                        : p->output_squares > 0.0
                            ? sqrt(p->output_squared_error / p->output_squares)
                            : 0.0,
    };
    const uint64_t mark = gd_error_mark();
    bool stop = false;
    gd_status status = w->options->callback(w->options->user, &written, &stop);
    if (status == GD_OK && stop)
        return gd_fail(GD_ERR_STATE, "%s: stopped by the callback", w->who);
    return gd_callback_status(status, mark, w->who);
}

static gd_status find_importance(writing *w, const gd_gguf_part *p)
{
    const gd_column_importance *c = gd_importance_of(w->options->importance, p->name);
    const int64_t columns = p->shape.dim[p->shape.rank - 1];
    double sum = 0.0;
    if (c && c->columns != columns)
        return gd_fail(GD_ERR_SHAPE,
                       "%s: the importance of \"%s\" is of %lld columns, it has %lld: it is of "
                       "another model",
                       w->who, p->name, (long long)c->columns, (long long)columns);
    for (int64_t i = 0; c && i < columns; i++)
        sum += (double)c->mean[i];
    w->columns = c;
    w->scale = sum > 0.0 ? (float)((double)columns / sum) : 0.0f;
    return GD_OK;
}

static gd_status write_part(writing *w, gd_gguf_part *p, gd_file_sink *sink)
{
    static const unsigned char zeros[ALIGNMENT];
    size_t total = numbers_of(p);
    gd_status status = find_importance(w, p);
    p->squares = p->squared_error = p->largest_error = 0.0;
    p->output_squares = p->output_squared_error = 0.0;
    for (size_t first = 0; status == GD_OK && first < total; first += PIECE)
        status = write_piece(w, p, first, total - first < PIECE ? total - first : PIECE, sink);
    if (status == GD_OK)
        status = gd_file_sink_write(sink, zeros, padding(bytes_of(p)));
    return status == GD_OK ? tell(w, p) : status;
}

static gd_status write_all(void *user, gd_file_sink *sink)
{
    writing *w = user;
    gd_status status = gd_file_sink_write(sink, w->head.bytes, w->head.size);
    for (size_t i = 0; status == GD_OK && i < w->count; i++)
        status = write_part(w, &w->parts[i], sink);
    return status;
}

static void fill_head(writing *w, const gd_gguf_values *values)
{
    static const unsigned char zeros[ALIGNMENT];
    gd_gguf_values *head = &w->head;
    put(head, "GGUF", 4);
    put_number(head, VERSION, 4);
    put_number(head, w->count, 8);
    put_number(head, (uint64_t)values->count, 8);
    put(head, values->bytes, values->size);
    size_t at = 0;
    for (size_t i = 0; i < w->count; i++) {
        const gd_gguf_part *p = &w->parts[i];
        gd_gguf_put_text(head, p->name, strlen(p->name));
        gd_gguf_put_u32(head, (uint32_t)p->shape.rank);
        for (int axis = p->shape.rank - 1; axis >= 0; axis--)
            put_number(head, (uint64_t)p->shape.dim[axis], 8);
        gd_gguf_put_u32(head, (uint32_t)p->format->type);
        put_number(head, at, 8);
        at += bytes_of(p) + padding(bytes_of(p));
    }
    put(head, zeros, padding(head->size));
}

gd_status gd_gguf_write(const char *who, const char *path, const gd_gguf_values *values,
                        size_t count, gd_gguf_part *parts, const gd_gguf_quantize_options *options)
{
    writing w = { .path = path, .parts = parts, .count = count, .who = who, .options = options };
    fill_head(&w, values);
    w.numbers = gd_alloc(PIECE * sizeof *w.numbers);
    w.back = gd_alloc(PIECE * sizeof *w.back);
    w.blocks = gd_alloc(PIECE * sizeof(float));
    w.importance = gd_alloc(PIECE * sizeof *w.importance);
    gd_status status = GD_ERR_MEMORY;
    if (!values->failed && !w.head.failed && w.numbers && w.back && w.blocks && w.importance)
        status = gd_file_write_streamed(path, write_all, &w);
    gd_free(w.importance);
    gd_free(w.blocks);
    gd_free(w.back);
    gd_free(w.numbers);
    gd_gguf_values_free(&w.head);
    return status;
}
