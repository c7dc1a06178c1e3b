/* io/npy.c: NumPy's .npy files (numpy.lib.format). Start at gd_npy_read_stream().
 *
 *     \x93NUMPY major minor | length of the header, 16 bits (version 1) or 32, little-endian |
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } | values
 *
 * The header is a Python dictionary. NumPy writes these three keys; they may stand in any order. */
#include "io/npy.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

enum { MAX_HEADER = 1 << 16 };

/* What the header says. */
typedef struct header {
    gd_dtype dtype;
    bool swapped, fortran;
    gd_shape shape;
    bool has_descr, has_order, has_shape;
} header;

typedef struct dtype_row {
    char kind, size;
    gd_dtype dtype;
} dtype_row;

static const dtype_row dtypes[] = {
    { 'b', '1', GD_BOOL }, { 'u', '1', GD_U8 },  { 'u', '2', GD_U16 }, { 'u', '4', GD_U32 },
    { 'u', '8', GD_U64 },  { 'i', '1', GD_I8 },  { 'i', '2', GD_I16 }, { 'i', '4', GD_I32 },
    { 'i', '8', GD_I64 },  { 'f', '2', GD_F16 }, { 'f', '4', GD_F32 }, { 'f', '8', GD_F64 },
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

static bool is_little_endian(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* ---- the header ---- */

typedef struct scanner {
    const char *name; /* of the file */
    const char *at;   /* ends with a 0 */
} scanner;

static gd_status fail_header(const scanner *s, const char *wanted)
{
    return gd_fail(GD_ERR_FORMAT, "%s: the .npy header has no %s where it should (at \"%.24s\")",
                   s->name, wanted, s->at);
}

static void skip_blanks(scanner *s)
{
    s->at += strspn(s->at, " \t\r\n");
}

static bool step_over(scanner *s, char c)
{
    skip_blanks(s);
    bool is = *s->at == c;
    s->at += is;
    return is;
}

static bool step_over_word(scanner *s, const char *word)
{
    skip_blanks(s);
    bool is = strncmp(s->at, word, strlen(word)) == 0;
    s->at += is ? strlen(word) : 0;
    return is;
}

/* 'text' or "text" into `text`. */
static bool read_string(scanner *s, char *text, size_t size)
{
    skip_blanks(s);
    char mark = *s->at;
    const char *end = mark == '\'' || mark == '"' ? strchr(s->at + 1, mark) : NULL;
    if (!end || (size_t)(end - s->at) > size)
        return false;
    memcpy(text, s->at + 1, (size_t)(end - s->at - 1));
    text[end - s->at - 1] = '\0';
    s->at = end + 1;
    return true;
}

/* '<f4', '|u1', '>i8', '=f8' */
static gd_status read_descr(scanner *s, header *h)
{
    char text[16] = "";
    bool read = read_string(s, text, sizeof text);
    for (int i = 0; read && i < DTYPE_COUNT; i++)
        if (strchr("<>|=", text[0]) && text[1] == dtypes[i].kind && text[2] == dtypes[i].size &&
            text[3] == '\0') {
            h->dtype = dtypes[i].dtype;
            h->swapped = text[0] == (is_little_endian() ? '>' : '<') && text[2] != '1';
            h->has_descr = true;
            return GD_OK;
        }
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: its values are %s, not booleans, integers of 8 to 64 bits or floats of 16 "
                   "to 64",
                   s->name, read ? text : "records");
}

static gd_status read_order(scanner *s, header *h)
{
    h->has_order = true;
    h->fortran = step_over_word(s, "True");
    return h->fortran || step_over_word(s, "False") ? GD_OK : fail_header(s, "True or False");
}

static gd_status read_size(scanner *s, int64_t *size)
{
    skip_blanks(s);
    const char *begin = s->at;
    *size = 0;
    for (; *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (*size > (INT64_MAX - 9) / 10)
            return fail_header(s, "size");
        *size = 10 * *size + (*s->at - '0');
    }
    (void)step_over(s, 'L'); /* as Python 2 wrote it */
    return s->at > begin ? GD_OK : fail_header(s, "size");
}

/* (), (3,), (3, 4) */
static gd_status read_shape(scanner *s, header *h)
{
    h->has_shape = true;
    if (!step_over(s, '('))
        return fail_header(s, "shape");
    while (!step_over(s, ')')) {
        int64_t size;
        gd_status status = read_size(s, &size);
        if (status != GD_OK)
            return status;
        if (h->shape.rank == GD_MAX_RANK)
            return gd_fail(GD_ERR_UNSUPPORTED, "%s: more than %d axes", s->name, GD_MAX_RANK);
        h->shape.dim[h->shape.rank++] = size;
        if (!step_over(s, ',') && *s->at != ')')
            return fail_header(s, "comma");
    }
    return GD_OK;
}

static gd_status read_entry(scanner *s, header *h)
{
    char key[24];
    if (!read_string(s, key, sizeof key) || !step_over(s, ':'))
        return fail_header(s, "key");
    if (strcmp(key, "descr") == 0 && !h->has_descr)
        return read_descr(s, h);
    if (strcmp(key, "fortran_order") == 0 && !h->has_order)
        return read_order(s, h);
    if (strcmp(key, "shape") == 0 && !h->has_shape)
        return read_shape(s, h);
    return gd_fail(GD_ERR_FORMAT, "%s: the .npy header has the key \"%s\", unknown or twice",
                   s->name, key);
}

static gd_status read_dictionary(scanner *s, header *h)
{
    if (!step_over(s, '{'))
        return fail_header(s, "dictionary");
    while (!step_over(s, '}')) {
        gd_status status = read_entry(s, h);
        if (status != GD_OK)
            return status;
        if (!step_over(s, ',') && *s->at != '}')
            return fail_header(s, "comma");
    }
    if (!h->has_descr || !h->has_order || !h->has_shape)
        return gd_fail(GD_ERR_FORMAT, "%s: the .npy header lacks descr, fortran_order or shape",
                       s->name);
    return GD_OK;
}

static gd_status read_exactly(gd_stream *stream, void *out, size_t bytes)
{
    size_t got;
    gd_status status = gd_stream_read(stream, out, bytes, &got);
    if (status == GD_OK && got < bytes)
        status = gd_fail(GD_ERR_FORMAT, "%s: ends within the .npy header", gd_stream_name(stream));
    return status;
}

static gd_status read_header(gd_stream *stream, header *h)
{
    const char *name = gd_stream_name(stream);
    unsigned char magic[8], length[4] = { 0 };
    gd_status status = read_exactly(stream, magic, sizeof magic);
    if (status != GD_OK)
        return status;
    if (memcmp(magic, "\x93NUMPY", 6) != 0 || magic[6] < 1 || magic[6] > 3)
        return gd_fail(GD_ERR_FORMAT, "%s: not a .npy file of version 1, 2 or 3", name);
    status = read_exactly(stream, length, magic[6] == 1 ? 2 : 4);
    size_t bytes =
        length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    if (status == GD_OK && bytes > MAX_HEADER)
        status = gd_fail(GD_ERR_FORMAT, "%s: a .npy header of %zu bytes", name, bytes);
    char *text = status == GD_OK ? gd_alloc_zero(1, bytes + 1) : NULL;
    if (!text)
        return status == GD_OK ? GD_ERR_MEMORY : status;
    status = read_exactly(stream, text, bytes);
    scanner s = { name, text };
    if (status == GD_OK)
        status = read_dictionary(&s, h);
    gd_free(text);
    return status;
}

/* ---- values ---- */

/* Bytes of the array; false when it exceeds what memory could ever hold. */
static bool count_bytes(gd_dtype dtype, gd_shape shape, size_t *bytes)
{
    *bytes = gd_dtype_size(dtype);
    for (int i = 0; i < shape.rank; i++)
        if (shape.dim[i] == 0) {
            *bytes = 0;
            return true;
        }
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 0 || (uint64_t)shape.dim[i] > (uint64_t)PTRDIFF_MAX / *bytes)
            return false;
        *bytes *= (size_t)shape.dim[i];
    }
    return true;
}

static void swap_bytes(unsigned char *data, size_t bytes, size_t size)
{
    for (size_t at = 0; at < bytes; at += size)
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char byte = data[at + i];
            data[at + i] = data[at + size - 1 - i];
            data[at + size - 1 - i] = byte;
        }
}

/* From Fortran order, the first index fastest, to row-major. */
static gd_status reorder(gd_npy *array)
{
    size_t size = gd_dtype_size(array->dtype);
    unsigned char *out = gd_alloc(array->bytes);
    if (!out)
        return GD_ERR_MEMORY;
    int64_t index[GD_MAX_RANK] = { 0 };
    size_t step[GD_MAX_RANK], from = 0, stride = size;
    for (int i = 0; i < array->shape.rank; stride *= (size_t)array->shape.dim[i++])
        step[i] = stride;
    for (size_t at = 0; at < array->bytes; at += size) {
        memcpy(out + at, (unsigned char *)array->data + from, size);
        for (int i = array->shape.rank - 1; i >= 0; i--) {
            from += step[i];
            if (++index[i] < array->shape.dim[i])
                break;
            from -= step[i] * (size_t)array->shape.dim[i];
            index[i] = 0;
        }
    }
    gd_free(array->data);
    array->data = out;
    return GD_OK;
}

static gd_status read_values(gd_stream *stream, const header *h, gd_npy *out)
{
    size_t got, extra;
    unsigned char byte;
    out->dtype = h->dtype;
    out->shape = h->shape;
    if (!count_bytes(h->dtype, h->shape, &out->bytes))
        return gd_fail(GD_ERR_FORMAT,
                       "%s: the .npy header declares more values than memory can hold",
                       gd_stream_name(stream));
    gd_status status = gd_stream_take(stream, out->bytes, &out->data, &got);
    if (status == GD_OK)
        status = gd_stream_read(stream, &byte, 1, &extra); /* reaches gzip's checksum, too */
    if (status == GD_OK && (got < out->bytes || extra))
        status = gd_fail(GD_ERR_FORMAT, "%s: %s than the %zu bytes its .npy header declares",
                         gd_stream_name(stream), extra ? "more" : "less", out->bytes);
    if (status == GD_OK && h->swapped)
        swap_bytes(out->data, out->bytes, gd_dtype_size(h->dtype));
    for (size_t i = 0; status == GD_OK && h->dtype == GD_BOOL && i < out->bytes; i++)
        ((unsigned char *)out->data)[i] = ((unsigned char *)out->data)[i] != 0;
    if (status == GD_OK && h->fortran && out->bytes > 0)
        status = reorder(out);
    return status;
}

gd_status gd_npy_read_stream(gd_stream *stream, gd_npy *out)
{
    header h = { 0 };
    *out = (gd_npy){ 0 };
    gd_status status = read_header(stream, &h);
    if (status == GD_OK)
        status = read_values(stream, &h, out);
    if (status != GD_OK)
        gd_npy_free(out);
    return status;
}

gd_status gd_npy_read(const char *path, gd_npy *out)
{
    if (out)
        *out = (gd_npy){ 0 };
    if (!path || !out)
        return gd_fail(GD_ERR_INVALID, "gd_npy_read: the %s is NULL", path ? "result" : "path");
    gd_stream *stream;
    gd_status status = gd_stream_open(path, &stream);
    if (status == GD_OK)
        status = gd_npy_read_stream(stream, out);
    gd_stream_close(stream);
    return status;
}

void gd_npy_free(gd_npy *npy)
{
    if (!npy)
        return;
    gd_free(npy->data);
    *npy = (gd_npy){ 0 };
}

/* ---- writing ---- */

/* The dictionary, padded with spaces and ended by a newline, so that values begin at a multiple of
 * 64 bytes. Returns the bytes of the whole header. */
static size_t write_header(const gd_npy *a, const dtype_row *row, char *text, size_t size)
{
    enum { PREFIX = 10, ALIGNMENT = 64 };
    char mark = row->size == '1' ? '|' : is_little_endian() ? '<' : '>';
    int at = snprintf(text + PREFIX, size - PREFIX,
                      "{'descr': '%c%c%c', 'fortran_order': False, 'shape': (", mark, row->kind,
                      row->size);
    for (int i = 0; i < a->shape.rank; i++)
        at += snprintf(text + PREFIX + at, size - PREFIX - (size_t)at, "%s%lld", i ? ", " : "",
                       (long long)a->shape.dim[i]);
    at += snprintf(text + PREFIX + at, size - PREFIX - (size_t)at, "%s), }",
                   a->shape.rank == 1 ? "," : "");
    size_t bytes = ((size_t)at + PREFIX + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    memset(text + PREFIX + at, ' ', bytes - PREFIX - (size_t)at);
    text[bytes - 1] = '\n';
    static const char magic[] = { '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0 };
    memcpy(text, magic, sizeof magic);
    text[8] = (char)((bytes - PREFIX) & 0xff);
    text[9] = (char)((bytes - PREFIX) >> 8);
    return bytes;
}

gd_status gd_npy_write(const char *path, const gd_npy *array)
{
    char text[512];
    size_t bytes;
    const dtype_row *row = NULL;
    if (!path || !array || array->shape.rank < 0 || array->shape.rank > GD_MAX_RANK)
        return gd_fail(GD_ERR_INVALID, "gd_npy_write: no path, or no array");
    for (int i = 0; i < DTYPE_COUNT; i++)
        row = dtypes[i].dtype == array->dtype ? &dtypes[i] : row;
    if (!row)
        return gd_fail(GD_ERR_INVALID, "gd_npy_write: NumPy has no %s",
                       gd_dtype_name(array->dtype));
    if (!count_bytes(array->dtype, array->shape, &bytes) || bytes != array->bytes ||
        (bytes > 0 && !array->data))
        return gd_fail(GD_ERR_INVALID,
                       "gd_npy_write: the array has %zu bytes, which is not what "
                       "its dtype and shape make",
                       array->bytes);
    const gd_file_part parts[] = { { text, write_header(array, row, text, sizeof text) },
                                   { array->data, bytes } };
    return gd_file_write_atomic(path, parts, 2);
}
