/* io/safetensors.c: the safetensors format. To read: start at read_header(), which parses the
 * header and then checks the layout. To write: start at gd_safetensors_write(). JSON is jansson's
 * work, in the one section that needs it. */
#include "io/safetensors.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON
#include <jansson.h>
#endif

#define LENGTH_BYTES     8
#define HEADER_BYTES_MAX 100000000u /* the reference implementation's limit */
#define ALIGNMENT        8
#define METADATA_NAME    "__metadata__"
/* How a header with a checksum begins; the digits follow. */
#define CHECKSUM_LEAD   "{\"" METADATA_NAME "\":{\"" GD_SAFETENSORS_CHECKSUM "\":\""
#define CHECKSUM_AT     (LENGTH_BYTES + sizeof CHECKSUM_LEAD - 1)
#define CHECKSUM_DIGITS 16

struct gd_safetensors {
    char *name;                 /* what messages call the file */
    gd_file *file;              /* NULL: it is in memory, at bytes */
    const unsigned char *bytes; /* [size] */
    size_t size;
    size_t values_at, values_bytes; /* the values' place in it */
    gd_safetensors_entry *entries;  /* [count], by name once open */
    size_t count;
    int64_t *dims; /* every entry's shape, one after another */
    gd_safetensors_string *metadata;
    size_t metadata_count;
    void *json; /* the parsed header, which owns the names and strings */
};

/* ---- dtypes ---- */

typedef struct dtype_row {
    const char *name;
    size_t size;
    bool native; /* Gradus has such a dtype */
} dtype_row;

/* In the order in which a file holds them: the reference implementation's, by falling size. Types
 * of less than a byte, such as F4, are not known here. */
static const dtype_row dtypes[] = {
    { "U64", 8, false },     { "I64", 8, true },      { "F64", 8, true },  { "C64", 8, false },
    { "F32", 4, true },      { "U32", 4, false },     { "I32", 4, true },  { "BF16", 2, true },
    { "F16", 2, true },      { "U16", 2, false },     { "I16", 2, false }, { "F8_E8M0", 1, false },
    { "F8_E4M3", 1, false }, { "F8_E5M2", 1, false }, { "I8", 1, false },  { "U8", 1, true },
    { "BOOL", 1, true },
};

static const dtype_row *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* size * product of the shape; false on overflow. An empty shape is one value. */
static bool count_bytes(size_t size, const int64_t *shape, int rank, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < rank; i++)
        if (shape[i] == 0)
            return true;
    for (int i = 0; i < rank; i++) {
        if ((uint64_t)shape[i] > (uint64_t)PTRDIFF_MAX / size)
            return false;
        size *= (size_t)shape[i];
    }
    *bytes = size;
    return true;
}

/* ---- the JSON header ---- */

/* Parse `length` bytes of JSON into file->entries, dims, metadata and json. Checks each entry by
 * itself. */
static gd_status parse_header(gd_safetensors *file, const unsigned char *text, size_t length);

/* The header for entries laid out one after another in this order. *text is gd_free'd by the
 * caller. */
static gd_status build_header(const gd_safetensors_entry *entries, size_t count,
                              const gd_safetensors_string *metadata, size_t metadata_count,
                              char **text);

static void release_json(void *json);

#ifdef GD_HAVE_JANSSON

static gd_status fail_entry(const gd_safetensors *file, const char *entry, const char *problem)
{
    return gd_fail(GD_ERR_FORMAT, "%s: tensor \"%s\": %s", file->name, entry, problem);
}

static gd_status parse_metadata(gd_safetensors *file, json_t *object)
{
    if (!json_is_object(object))
        return gd_fail(GD_ERR_FORMAT, "%s: \"" METADATA_NAME "\" is not an object", file->name);
    file->metadata = gd_alloc_zero(json_object_size(object), sizeof *file->metadata);
    if (!file->metadata)
        return GD_ERR_MEMORY;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return gd_fail(GD_ERR_FORMAT, "%s: the metadata value of \"%s\" is not a string",
                           file->name, key);
        file->metadata[file->metadata_count++] =
            (gd_safetensors_string){ key, json_string_value(value) };
    }
    return GD_OK;
}

/* Fill `entry`, whose shape is written at `dims`. */
static gd_status parse_entry(const gd_safetensors *file, const char *name, json_t *object,
                             gd_safetensors_entry *entry, int64_t *dims)
{
    json_t *dtype = json_object_get(object, "dtype");
    json_t *shape = json_object_get(object, "shape");
    json_t *offsets = json_object_get(object, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(offsets) != 2)
        return fail_entry(file, name, "lacks a dtype, a shape or two data_offsets");

    const dtype_row *row = find_dtype(json_string_value(dtype));
    if (!row)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: tensor \"%s\": unknown dtype \"%s\"", file->name,
                       name, json_string_value(dtype));
    int rank = (int)json_array_size(shape); /* the header's length bounds it */
    for (int i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail_entry(file, name, "a size in its shape is not a natural number");
        dims[i] = json_integer_value(size);
    }

    json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (!json_is_integer(first) || !json_is_integer(last) || begin < 0 || end < begin)
        return fail_entry(file, name, "its data_offsets are not a range");
    if ((uint64_t)end > file->values_bytes)
        return fail_entry(file, name, "its data_offsets reach past the end of the file");
    size_t bytes;
    if (!count_bytes(row->size, dims, rank, &bytes))
        return fail_entry(file, name, "its shape is larger than memory can hold");
    if (bytes != (uint64_t)(end - begin))
        return gd_fail(
            GD_ERR_FORMAT,
            "%s: tensor \"%s\": its shape needs %zu bytes and its data_offsets span %lld",
            file->name, name, bytes, (long long)(end - begin));
    *entry = (gd_safetensors_entry){ name, row->name, rank, dims, NULL, bytes, (size_t)begin };
    return GD_OK;
}

static gd_status parse_entries(gd_safetensors *file, json_t *root)
{
    const char *name;
    json_t *object;
    size_t sizes = 0;
    json_object_foreach(root, name, object) sizes +=
        json_array_size(json_object_get(object, "shape"));
    file->entries = gd_alloc_zero(json_object_size(root), sizeof *file->entries);
    file->dims = file->entries ? gd_alloc_zero(sizes, sizeof *file->dims) : NULL;
    if (!file->dims)
        return GD_ERR_MEMORY;

    int64_t *dims = file->dims;
    json_object_foreach(root, name, object)
    {
        bool is_metadata = strcmp(name, METADATA_NAME) == 0;
        gd_status status = is_metadata
                               ? parse_metadata(file, object)
                               : parse_entry(file, name, object, &file->entries[file->count], dims);
        if (status != GD_OK)
            return status;
        if (!is_metadata)
            dims += file->entries[file->count++].rank;
    }
    return GD_OK;
}

static gd_status parse_header(gd_safetensors *file, const unsigned char *text, size_t length)
{
    if (length == 0 || text[0] != '{')
        return gd_fail(GD_ERR_FORMAT,
                       "%s: not a safetensors file (its header does not begin with '{')",
                       file->name);
    json_error_t error = { 0 };
    json_t *root = json_loadb((const char *)text, length, JSON_REJECT_DUPLICATES, &error);
    if (root) {
        file->json = root;
        return parse_entries(file, root);
    }
    enum json_error_code code = json_error_code(&error);
    if (code == json_error_out_of_memory ||
        code == json_error_unknown) /* jansson says nothing on some failures */
        return gd_fail(GD_ERR_MEMORY, "%s: out of memory while parsing its header", file->name);
    return gd_fail(GD_ERR_FORMAT, "%s: its header is not valid JSON: %s (byte %d)", file->name,
                   error.text, error.position);
}

/* {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}; NULL when memory is out. jansson's *_new
 * functions take the reference they are given, NULL and failure included. */
static json_t *build_entry(const gd_safetensors_entry *entry, json_int_t begin)
{
    json_t *shape = json_array();
    bool ok = shape != NULL;
    for (int i = 0; i < entry->rank && ok; i++)
        ok = json_array_append_new(shape, json_integer(entry->shape[i])) == 0;
    json_t *offsets = json_array();
    ok = ok && json_array_append_new(offsets, json_integer(begin)) == 0;
    ok = ok && json_array_append_new(offsets, json_integer(begin + (json_int_t)entry->bytes)) == 0;

    json_t *object = json_object();
    ok = ok && json_object_set_new(object, "dtype", json_string(entry->dtype)) == 0;
    ok = ok && json_object_set(object, "shape", shape) == 0;
    ok = ok && json_object_set(object, "data_offsets", offsets) == 0;
    json_decref(shape);
    json_decref(offsets);
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static gd_status build_metadata(json_t *root, const gd_safetensors_string *metadata, size_t count)
{
    json_t *object = json_object();
    if (json_object_set_new(root, METADATA_NAME, object) != 0)
        return gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(object, metadata[i].key))
            return gd_fail(GD_ERR_INVALID, "safetensors: two metadata values for \"%s\"",
                           metadata[i].key);
        if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) != 0)
            return gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
    }
    return GD_OK;
}

static gd_status build_entries(json_t *root, const gd_safetensors_entry *entries, size_t count)
{
    json_int_t begin = 0; /* check_input() has seen that their sum fits */
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(root, entries[i].name))
            return gd_fail(GD_ERR_INVALID, "safetensors: two tensors are called \"%s\"",
                           entries[i].name);
        if (json_object_set_new(root, entries[i].name, build_entry(&entries[i], begin)) != 0)
            return gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
        begin += (json_int_t)entries[i].bytes;
    }
    return GD_OK;
}

static gd_status build_header(const gd_safetensors_entry *entries, size_t count,
                              const gd_safetensors_string *metadata, size_t metadata_count,
                              char **text)
{
    *text = NULL;
    json_t *root = json_object();
    if (!root)
        return gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
    gd_status status = metadata_count > 0 ? build_metadata(root, metadata, metadata_count) : GD_OK;
    if (status == GD_OK)
        status = build_entries(root, entries, count);
    size_t length = status == GD_OK ? json_dumpb(root, NULL, 0, JSON_COMPACT) : 0;
    if (status == GD_OK && length == 0)
        status = gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
    if (status == GD_OK && !(*text = gd_alloc(length + 1)))
        status = GD_ERR_MEMORY;
    if (status == GD_OK && json_dumpb(root, *text, length, JSON_COMPACT) != length) {
        status = gd_fail(GD_ERR_MEMORY, "out of memory while writing a safetensors header");
        gd_free(*text);
        *text = NULL;
    }
    if (status == GD_OK)
        (*text)[length] = '\0';
    json_decref(root);
    return status;
}

static void release_json(void *json)
{
    json_decref(json);
}

#else

static gd_status parse_header(gd_safetensors *file, const unsigned char *text, size_t length)
{
    (void)text, (void)length;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: this build cannot read safetensors (it was built without jansson)",
                   file->name);
}

static gd_status build_header(const gd_safetensors_entry *entries, size_t count,
                              const gd_safetensors_string *metadata, size_t metadata_count,
                              char **text)
{
    (void)entries, (void)count, (void)metadata, (void)metadata_count;
    *text = NULL;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "this build cannot write safetensors (it was built without jansson)");
}

static void release_json(void *json)
{
    (void)json;
}

#endif

/* ---- reading ---- */

static int compare_places(const void *left, const void *right)
{
    const gd_safetensors_entry *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes
               ? -1
               : a->bytes > b->bytes; /* empty ones before that which begins at the same byte */
}

static int compare_names(const void *left, const void *right)
{
    const gd_safetensors_entry *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* The tensors tile the values: each begins where the one before it ended, from the first byte to
 * the last. */
static gd_status check_layout(const gd_safetensors *file)
{
    size_t at = 0;
    qsort(file->entries, file->count, sizeof *file->entries, compare_places);
    for (size_t i = 0; i < file->count; i++) {
        const gd_safetensors_entry *entry = &file->entries[i];
        if (entry->begin != at)
            return gd_fail(GD_ERR_FORMAT, "%s: tensor \"%s\": %s", file->name, entry->name,
                           entry->begin < at ? "overlaps another one" : "leaves a hole before it");
        at += entry->bytes;
    }
    if (at != file->values_bytes)
        return gd_fail(GD_ERR_FORMAT, "%s: %zu bytes at its end belong to no tensor", file->name,
                       file->values_bytes - at);
    return GD_OK;
}

/* `bytes` of the file from `at` on, which are there. */
static gd_status read_at(const gd_safetensors *file, size_t at, size_t bytes, void *out)
{
    if (file->file)
        return gd_file_read_at(file->file, at, bytes, out);
    if (bytes > 0)
        memcpy(out, file->bytes + at, bytes);
    return GD_OK;
}

/* Check the header and index the tensors. */
static gd_status read_header(gd_safetensors *file)
{
    unsigned char prefix[LENGTH_BYTES];
    if (file->size < LENGTH_BYTES)
        return gd_fail(GD_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                       file->name, file->size);
    gd_status status = read_at(file, 0, LENGTH_BYTES, prefix);
    if (status != GD_OK)
        return status;
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)prefix[i] << 8 * i;
    if (length > HEADER_BYTES_MAX)
        return gd_fail(GD_ERR_FORMAT, "%s: not a safetensors file, or its header is over %u bytes",
                       file->name, HEADER_BYTES_MAX);
    if (length > file->size - LENGTH_BYTES)
        return gd_fail(GD_ERR_FORMAT, "%s: ends within its header", file->name);
    file->values_at = LENGTH_BYTES + (size_t)length;
    file->values_bytes = file->size - file->values_at;
    unsigned char *header = gd_alloc((size_t)length + 1);
    if (!header)
        return GD_ERR_MEMORY;
    status = read_at(file, LENGTH_BYTES, (size_t)length, header);
    if (status == GD_OK)
        status = parse_header(file, header, (size_t)length);
    gd_free(header);
    if (status == GD_OK)
        status = check_layout(file);
    if (status == GD_OK)
        qsort(file->entries, file->count, sizeof *file->entries, compare_names);
    return status;
}

static gd_status create(const char *name, gd_safetensors **out)
{
    gd_safetensors *file = gd_alloc_zero(1, sizeof *file);
    if (file && !(file->name = gd_strdup(name))) {
        gd_free(file);
        file = NULL;
    }
    *out = file;
    return file ? GD_OK : GD_ERR_MEMORY;
}

/* The file, read as far as its header; ended where that fails. */
static gd_status finish_opening(gd_safetensors *file, gd_status status, gd_safetensors **out)
{
    if (status == GD_OK)
        status = read_header(file);
    *out = status == GD_OK ? file : NULL;
    if (status != GD_OK)
        gd_safetensors_close(file);
    return status;
}

gd_status gd_safetensors_open_memory(const void *bytes, size_t size, const char *name,
                                     gd_safetensors **out)
{
    gd_safetensors *file;
    gd_status status = create(name, &file);
    if (status == GD_OK) {
        file->bytes = bytes;
        file->size = size;
    }
    return finish_opening(file, status, out);
}

gd_status gd_safetensors_open(const char *path, gd_safetensors **out)
{
    gd_safetensors *file;
    gd_status status = create(path, &file);
    if (status == GD_OK)
        status = gd_file_open(path, &file->file);
    if (status == GD_OK)
        file->size = gd_file_size(file->file);
    return finish_opening(file, status, out);
}

void gd_safetensors_close(gd_safetensors *file)
{
    if (!file)
        return;
    gd_free(file->entries);
    gd_free(file->dims);
    gd_free(file->metadata);
    release_json(file->json);
    gd_file_close(file->file);
    gd_free(file->name);
    gd_free(file);
}

gd_status gd_safetensors_read(const gd_safetensors *file, const gd_safetensors_entry *entry,
                              void *out)
{
    return read_at(file, file->values_at + entry->begin, entry->bytes, out);
}

size_t gd_safetensors_count(const gd_safetensors *file)
{
    return file->count;
}

const gd_safetensors_entry *gd_safetensors_at(const gd_safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const gd_safetensors_entry *gd_safetensors_find(const gd_safetensors *file, const char *name)
{
    gd_safetensors_entry wanted = { .name = name };
    return bsearch(&wanted, file->entries, file->count, sizeof wanted, compare_names);
}

gd_status gd_safetensors_get(const gd_safetensors *file, const char *name,
                             const gd_safetensors_entry **out)
{
    const gd_safetensors_entry *entry = gd_safetensors_find(file, name);
    *out = NULL;
    if (!entry)
        return gd_fail(GD_ERR_INVALID, "%s: holds no tensor \"%s\"", file->name, name);
    if (!find_dtype(entry->dtype)->native)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: tensor \"%s\": Gradus has no dtype %s", file->name,
                       name, entry->dtype);
    *out = entry;
    return GD_OK;
}

size_t gd_safetensors_metadata_count(const gd_safetensors *file)
{
    return file->metadata_count;
}

gd_safetensors_string gd_safetensors_metadata_at(const gd_safetensors *file, size_t index)
{
    return index < file->metadata_count ? file->metadata[index]
                                        : (gd_safetensors_string){ NULL, NULL };
}

const char *gd_safetensors_metadata(const gd_safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    return NULL;
}

/* ---- checksums ---- */

/* XXH64 of the file's bytes with zeros where the digits stand, in hexadecimal. */
static void write_checksum(const gd_file_part *parts, size_t count, char *digits)
{
    gd_hash hash;
    gd_hash_begin(&hash);
    for (size_t i = 0; i < count; i++)
        gd_hash_add(&hash, parts[i].data, parts[i].bytes);
    char text[CHECKSUM_DIGITS + 1];
    snprintf(text, sizeof text, "%016" PRIx64, gd_hash_end(&hash));
    memcpy(digits, text, CHECKSUM_DIGITS);
}

static bool wants_checksum(const char *header)
{
    return strncmp(header, CHECKSUM_LEAD GD_SAFETENSORS_NO_CHECKSUM,
                   sizeof CHECKSUM_LEAD - 1 + CHECKSUM_DIGITS) == 0;
}

bool gd_safetensors_has_checksum(const gd_safetensors *file)
{
    char lead[sizeof CHECKSUM_LEAD];
    return file->values_at >= CHECKSUM_AT + CHECKSUM_DIGITS &&
           read_at(file, LENGTH_BYTES, sizeof lead - 1, lead) == GD_OK &&
           memcmp(lead, CHECKSUM_LEAD, sizeof lead - 1) == 0;
}

gd_status gd_safetensors_verify(const gd_safetensors *file)
{
    enum { PIECE = 1 << 18 };
    if (!gd_safetensors_has_checksum(file))
        return GD_OK;
    unsigned char *piece = gd_alloc(PIECE);
    if (!piece)
        return GD_ERR_MEMORY;
    char digits[CHECKSUM_DIGITS], text[CHECKSUM_DIGITS + 1];
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_status status = GD_OK;
    for (size_t at = 0, bytes; status == GD_OK && at < file->size; at += bytes) {
        /* The digits lie in the first piece. */
        bytes = file->size - at < PIECE ? file->size - at : PIECE;
        status = read_at(file, at, bytes, piece);
        if (status == GD_OK && at == 0) {
            memcpy(digits, piece + CHECKSUM_AT, CHECKSUM_DIGITS);
            memset(piece + CHECKSUM_AT, '0', CHECKSUM_DIGITS);
        }
        if (status == GD_OK)
            gd_hash_add(&hash, piece, bytes);
    }
    gd_free(piece);
    snprintf(text, sizeof text, "%016" PRIx64, gd_hash_end(&hash));
    if (status == GD_OK && memcmp(text, digits, CHECKSUM_DIGITS) != 0)
        status = gd_fail(GD_ERR_FORMAT,
                         "%s: damaged: its checksum is %.16s, that of what it holds now %s",
                         file->name, digits, text);
    return status;
}

/* ---- writing ---- */

static gd_status check_entry(const gd_safetensors_entry *entry)
{
    if (!entry->name || !gd_utf8_is_valid(entry->name) || strcmp(entry->name, METADATA_NAME) == 0)
        return gd_fail(GD_ERR_INVALID,
                       "safetensors: a tensor's name is missing, not UTF-8, or \"" METADATA_NAME
                       "\"");
    const dtype_row *row = entry->dtype ? find_dtype(entry->dtype) : NULL;
    if (!row)
        return gd_fail(GD_ERR_INVALID, "safetensors: tensor \"%s\": no dtype \"%s\"", entry->name,
                       entry->dtype ? entry->dtype : "(null)");
    for (int i = 0; i < entry->rank; i++)
        if (entry->shape[i] < 0)
            return gd_fail(GD_ERR_INVALID, "safetensors: tensor \"%s\": negative size",
                           entry->name);
    size_t bytes;
    if (entry->rank < 0 || !count_bytes(row->size, entry->shape, entry->rank, &bytes) ||
        bytes != entry->bytes || (bytes > 0 && !entry->data))
        return gd_fail(GD_ERR_INVALID,
                       "safetensors: tensor \"%s\": %zu bytes are not what its shape needs",
                       entry->name, entry->bytes);
    return GD_OK;
}

static gd_status check_input(const gd_safetensors_entry *entries, size_t count,
                             const gd_safetensors_string *metadata, size_t metadata_count)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        gd_status status = check_entry(&entries[i]);
        if (status != GD_OK)
            return status;
        total +=
            entries[i]
                .bytes; /* each at most 2^63-1, so the sum has not wrapped when it is looked at */
        if (total > INT64_MAX)
            return gd_fail(GD_ERR_INVALID, "safetensors: more than 2^63 bytes of tensors");
    }
    for (size_t i = 0; i < metadata_count; i++)
        if (!metadata[i].key || !metadata[i].value || !gd_utf8_is_valid(metadata[i].key) ||
            !gd_utf8_is_valid(metadata[i].value))
            return gd_fail(GD_ERR_INVALID,
                           "safetensors: a metadata key or value is missing or not UTF-8");
    return GD_OK;
}

static int compare_for_layout(const void *left, const void *right)
{
    const gd_safetensors_entry *a = left, *b = right;
    const dtype_row *first = find_dtype(a->dtype), *second = find_dtype(b->dtype);
    if (first != second)
        return first < second ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Length, header, padding, then the values in the layout's order. `parts` has room for all. */
static gd_status write_parts(const char *path, char *header, const gd_safetensors_entry *layout,
                             size_t count, gd_file_part *parts)
{
    static const char blanks[ALIGNMENT] = "        ";
    size_t length = strlen(header);
    size_t padding = -length % ALIGNMENT;
    if (length + padding > HEADER_BYTES_MAX)
        return gd_fail(GD_ERR_INVALID,
                       "safetensors: names and metadata exceed the %u bytes a header may have",
                       HEADER_BYTES_MAX);
    unsigned char prefix[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        prefix[i] = (unsigned char)((uint64_t)(length + padding) >> 8 * i);
    parts[0] = (gd_file_part){ prefix, sizeof prefix };
    parts[1] = (gd_file_part){ header, length };
    parts[2] = (gd_file_part){ blanks, padding };
    for (size_t i = 0; i < count; i++)
        parts[3 + i] = (gd_file_part){ layout[i].data, layout[i].bytes };
    if (wants_checksum(header))
        write_checksum(parts, 3 + count, header + sizeof CHECKSUM_LEAD - 1);
    return gd_file_write_atomic(path, parts, 3 + count);
}

gd_status gd_safetensors_write(const char *path, const gd_safetensors_entry *entries, size_t count,
                               const gd_safetensors_string *metadata, size_t metadata_count)
{
    gd_status status = check_input(entries, count, metadata, metadata_count);
    if (status != GD_OK)
        return status;
    gd_safetensors_entry *layout = gd_alloc_zero(count, sizeof *layout);
    gd_file_part *parts = layout ? gd_alloc_zero(count + 3, sizeof *parts) : NULL;
    char *header = NULL;
    status = parts ? GD_OK : GD_ERR_MEMORY;
    if (status == GD_OK) {
        for (size_t i = 0; i < count; i++)
            layout[i] = entries[i];
        qsort(layout, count, sizeof *layout, compare_for_layout);
        status = build_header(layout, count, metadata, metadata_count, &header);
    }
    if (header)
        status = write_parts(path, header, layout, count, parts);
    gd_free(header);
    gd_free(parts);
    gd_free(layout);
    return status;
}
