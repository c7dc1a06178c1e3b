/* io/gguf_quantize.c: GGUF files in other types: which tensor gets which, and a file written again. Start at
 * gd_gguf_quantize_with(). */
#include "io/gguf.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

#include <string.h>

/* ---- which type ---- */

const gd_block_format *gd_gguf_written_format(const char *who, gd_gguf_type type)
{
    const gd_block_format *format = gd_block_format_of((uint32_t)type);
    if (format)
        return format;
    return gd_fail_null(GD_ERR_INVALID, "%s: %d is no type of gd_gguf_type", who, (int)type);
}

/* A row of a type in a file: llama.cpp's number for "mostly of this type", and for k-quants the type of matrices whose
 * rows are blocks of 32, but not of 256. */
static const struct written_type {
    unsigned char type, file_type, of_short_rows;
} written_types[] = {
    { GD_GGUF_F32, 0, GD_GGUF_F32 },    { GD_GGUF_F16, 1, GD_GGUF_F16 },
    { GD_GGUF_BF16, 32, GD_GGUF_BF16 }, { GD_GGUF_Q4_0, 2, GD_GGUF_Q4_0 },
    { GD_GGUF_Q4_1, 3, GD_GGUF_Q4_1 },  { GD_GGUF_Q5_0, 8, GD_GGUF_Q5_0 },
    { GD_GGUF_Q5_1, 9, GD_GGUF_Q5_1 },  { GD_GGUF_Q8_0, 7, GD_GGUF_Q8_0 },
    { GD_GGUF_Q2_K, 10, GD_GGUF_Q4_0 }, { GD_GGUF_Q3_K, 11, GD_GGUF_Q4_0 },
    { GD_GGUF_Q4_K, 14, GD_GGUF_Q5_0 }, { GD_GGUF_Q5_K, 16, GD_GGUF_Q5_1 },
    { GD_GGUF_Q6_K, 18, GD_GGUF_Q8_0 },
};

static const struct written_type *written_type_of(const gd_block_format *format)
{
    const struct written_type *row = written_types;
    while (row->type != format->type)
        row++;
    return row;
}

const gd_block_format *gd_gguf_choose(const gd_block_format *wanted, const char *name,
                                      gd_shape shape)
{
    const gd_block_format *other = gd_block_format_of(written_type_of(wanted)->of_short_rows);
    const int64_t row = shape.dim[shape.rank - 1];
    if (shape.rank < 2 || strcmp(name, "position_embd.weight") == 0)
        return gd_block_format_of(GD_GGUF_F32);
    if (row % wanted->count == 0)
        return wanted;
    return row % other->count == 0 ? other : gd_block_format_of(GD_GGUF_F16);
}

#define FILE_TYPE "general.file_type"
#define QUANTIZED "general.quantization_version"

void gd_gguf_add_file_type(gd_gguf_values *v, const gd_block_format *format)
{
    gd_gguf_add_u32(v, FILE_TYPE, written_type_of(format)->file_type);
    gd_gguf_add_u32(v, QUANTIZED, 2);
}

/* ---- a file, written again ---- */

typedef struct tensor_source {
    const gd_gguf *file;
    const gd_gguf_entry *entry;
    unsigned char **raw; /* room that all share */
    size_t *capacity;
} tensor_source;

static gd_status read_values(void *user, size_t first, size_t count, float *out)
{
    tensor_source *s = user;
    if (!gd_grow((void **)s->raw, s->capacity, count * sizeof *out, 1))
        return GD_ERR_MEMORY;
    return gd_gguf_read_numbers(s->file, s->entry, first, count, *s->raw, out);
}

/* All but what says how the file is written. */
static gd_status copy_values(const gd_gguf *file, gd_gguf_values *values)
{
    static const char *const anew[] = { FILE_TYPE, QUANTIZED, "general.alignment" };
    gd_status status = GD_OK;
    const char *key;
    for (int64_t i = 0; status == GD_OK && (key = gd_gguf_key(file, i)); i++) {
        bool keep = true;
        for (size_t k = 0; k < sizeof anew / sizeof *anew; k++)
            keep = keep && strcmp(anew[k], key) != 0;
        if (keep)
            status = gd_gguf_copy_value(file, i, values);
    }
    return status;
}

static gd_status write_again(const gd_gguf *file, const char *to, const gd_block_format *format,
                             const gd_gguf_quantize_options *o)
{
    size_t count = (size_t)gd_gguf_count(file), capacity = 0;
    unsigned char *raw = NULL;
    gd_gguf_values values = { 0 };
    gd_gguf_part *parts = gd_alloc_zero(count + 1, sizeof *parts);
    tensor_source *sources = gd_alloc_zero(count + 1, sizeof *sources);
    gd_status status = parts && sources ? copy_values(file, &values) : GD_ERR_MEMORY;
    gd_gguf_add_file_type(&values, format);
    for (size_t i = 0; status == GD_OK && i < count; i++) {
        const gd_gguf_entry *e = gd_gguf_entry_at(file, (int64_t)i);
        sources[i] = (tensor_source){ file, e, &raw, &capacity };
        parts[i] = (gd_gguf_part){ .name = e->name,
                                   .shape = e->shape,
                                   .format = gd_gguf_choose(format, e->name, e->shape),
                                   .values = read_values,
                                   .user = &sources[i] };
    }
    if (status == GD_OK)
        status = gd_gguf_write("gd_gguf_quantize", to, &values, count, parts, o);
    gd_gguf_values_free(&values);
    gd_free(raw);
    gd_free(sources);
    gd_free(parts);
    return status;
}

gd_status gd_gguf_quantize_with(const char *from, const char *to,
                                const gd_gguf_quantize_options *options)
{
    static const char who[] = "gd_gguf_quantize";
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options))
        return gd_error_last();
    if (!from || !to)
        return gd_fail(GD_ERR_INVALID, "%s: a path is NULL", who);
    const gd_block_format *format = gd_gguf_written_format(who, o.type);
    gd_gguf *file = format ? gd_gguf_open(from) : NULL;
    gd_status status = file ? write_again(file, to, format, &o) : gd_error_last();
    gd_gguf_close(file);
    return status;
}
