/* io/gguf_read.c: GGUF files read. The file is not believed: everything before the tensors' values is read into memory
 * as far as the parts before it ask for, never more than the file has, and each size is compared with what is left.
 * Start at parse(). */
#include "io/gguf.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the header. */
typedef struct span {
    size_t at, size;
} span;

typedef struct value {
    span whole; /* key, kind and value, as it is in the file */
    const char *key;
    gd_gguf_kind kind; /* of a list: of its elements */
    bool list;
    size_t count;
    size_t at;   /* of numbers: of the first */
    span *texts; /* [count], of texts */
} value;

struct gd_gguf {
    char *path;
    gd_file *file;
    unsigned char *header; /* the file's first `loaded` bytes */
    size_t loaded, capacity, at;
    value *values; /* in the order of the file */
    size_t value_count, value_room;
    gd_gguf_entry *entries; /* likewise */
    size_t entry_count, entry_room;
    gd_gguf_entry **by_name; /* [entry_count], sorted */
    value **by_key;
    size_t alignment;
};

enum { MOST_KEY = 65535, MOST_NAME = 1024, LOAD = 1 << 16 };

static gd_status fail(const gd_gguf *g, const char *what)
{
    return gd_fail(GD_ERR_FORMAT, "%s: byte %zu: %s", g->path, g->at, what);
}

/* ---- bytes in sequence ---- */

/* The next `bytes` are in memory. */
static gd_status need(gd_gguf *g, uint64_t bytes)
{
    size_t size = gd_file_size(g->file);
    if (bytes > size - g->at)
        return gd_fail(
            GD_ERR_FORMAT,
            "%s: %zu bytes, and %llu more are promised from byte %zu on: is the file cut?", g->path,
            size, (unsigned long long)bytes, g->at);
    size_t end = g->at + (size_t)bytes;
    if (end <= g->loaded)
        return GD_OK;
    size_t wanted = end > g->loaded + LOAD ? end : g->loaded + LOAD;
    wanted = wanted > size ? size : wanted;
    if (!gd_grow((void **)&g->header, &g->capacity, wanted + 1, 1))
        return GD_ERR_MEMORY;
    gd_status status =
        gd_file_read_at(g->file, g->loaded, wanted - g->loaded, g->header + g->loaded);
    if (status == GD_OK)
        g->loaded = wanted;
    return status;
}

static uint64_t number_at(const unsigned char *at, size_t size)
{
    uint64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n |= (uint64_t)at[i] << (8 * i);
    return n;
}

static gd_status read_number(gd_gguf *g, size_t size, uint64_t *out)
{
    *out = 0;
    gd_status status = need(g, size);
    if (status != GD_OK)
        return status;
    *out = number_at(g->header + g->at, size);
    g->at += size;
    return GD_OK;
}

/* A text. Its size, which stands before it, has been read when it is moved a byte to the front, over the size's last
 * byte, so that there is room for a 0 byte behind it: `out` is where it is then. */
static gd_status read_text(gd_gguf *g, size_t most, span *out)
{
    uint64_t size;
    gd_status status = read_number(g, 8, &size);
    if (status == GD_OK && size > most)
        return fail(g, "a text is longer than it may be");
    if (status == GD_OK)
        status = need(g, size);
    if (status != GD_OK)
        return status;
    *out = (span){ g->at - 1, (size_t)size };
    memmove(g->header + out->at, g->header + g->at, out->size);
    g->header[out->at + out->size] = '\0';
    g->at += out->size;
    return GD_OK;
}

/* ---- values ---- */

/* 0: none of fixed size. */
static size_t kind_size(uint64_t kind)
{
    static const unsigned char sizes[GD_GGUF_KINDS] = {
        [GD_GGUF_U8] = 1,  [GD_GGUF_I8] = 1,  [GD_GGUF_U16] = 2,    [GD_GGUF_I16] = 2,
        [GD_GGUF_U32] = 4, [GD_GGUF_I32] = 4, [GD_GGUF_REAL32] = 4, [GD_GGUF_BOOL] = 1,
        [GD_GGUF_U64] = 8, [GD_GGUF_I64] = 8, [GD_GGUF_REAL64] = 8
    };
    return kind < GD_GGUF_KINDS ? sizes[kind] : 0;
}

static gd_status read_texts(gd_gguf *g, value *v)
{
    size_t room = 0;
    for (size_t i = 0; i < v->count; i++) {
        if (!gd_grow((void **)&v->texts, &room, i + 1, sizeof *v->texts))
            return GD_ERR_MEMORY;
        gd_status status = read_text(g, SIZE_MAX / 2, &v->texts[i]);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* What follows the key. */
static gd_status read_contents(gd_gguf *g, value *v)
{
    uint64_t kind, count = 1;
    gd_status status = read_number(g, 4, &kind);
    v->list = kind == GD_GGUF_LIST;
    if (status == GD_OK && v->list)
        status = read_number(g, 4, &kind);
    if (status == GD_OK && v->list && kind == GD_GGUF_LIST)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: a list of lists, which Gradus does not read",
                       g->path);
    if (status == GD_OK && v->list)
        status = read_number(g, 8, &count);
    if (status != GD_OK)
        return status;
    if (kind >= GD_GGUF_KINDS)
        return fail(g, "a value is of no kind that there is");
    v->kind = (gd_gguf_kind)kind;
    if (count > gd_file_size(g->file))
        return fail(g, "a list is longer than the file");
    v->count = (size_t)count;
    if (v->kind == GD_GGUF_TEXT)
        return read_texts(g, v);
    v->at = g->at;
    size_t size = kind_size(kind) * v->count;
    status = need(g, size);
    g->at += status == GD_OK ? size : 0;
    return status;
}

static gd_status read_value(gd_gguf *g)
{
    if (!gd_grow((void **)&g->values, &g->value_room, g->value_count + 1, sizeof *g->values))
        return GD_ERR_MEMORY;
    value *v = &g->values[g->value_count++];
    *v = (value){ .whole = { g->at, 0 } };
    span key = { g->at + 7, 0 };
    gd_status status = read_text(g, MOST_KEY, &key);
    if (status == GD_OK && (key.size == 0 || memchr(g->header + key.at, 0, key.size)))
        status = fail(g, "a key is empty, or has a 0 byte");
    if (status == GD_OK)
        status = read_contents(g, v);
    v->whole.size = g->at - v->whole.at;
    return status;
}

static int compare_values(const void *a, const void *b)
{
    return strcmp((*(value *const *)a)->key, (*(value *const *)b)->key);
}

/* Keys as texts, once the header is whole and stays where it is: a byte before where they stand in the file. */
static gd_status name_values(gd_gguf *g)
{
    g->by_key = gd_alloc((g->value_count + 1) * sizeof *g->by_key);
    if (!g->by_key)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < g->value_count; i++) {
        g->values[i].key = (const char *)g->header + g->values[i].whole.at + 7;
        g->by_key[i] = &g->values[i];
    }
    qsort(g->by_key, g->value_count, sizeof(value *), compare_values);
    for (size_t i = 1; i < g->value_count; i++)
        if (strcmp(g->by_key[i - 1]->key, g->by_key[i]->key) == 0)
            return gd_fail(GD_ERR_FORMAT, "%s: it has the key \"%s\" twice", g->path,
                           g->by_key[i]->key);
    return GD_OK;
}

static const value *find_value(const gd_gguf *g, const char *key)
{
    value wanted = { .key = key }, *at = &wanted;
    value **found =
        g && key ? bsearch(&at, g->by_key, g->value_count, sizeof at, compare_values) : NULL;
    return found ? *found : NULL;
}

/* ---- what the tensors are ---- */

/* The size of a tensor in the file, from its shape and type; its last axis is whole blocks. */
static gd_status measure(const gd_gguf *g, gd_gguf_entry *e)
{
    uint64_t count = 1, most = (uint64_t)INT64_MAX / 8;
    for (int i = 0; i < e->shape.rank; i++) {
        uint64_t size = (uint64_t)e->shape.dim[i];
        if (size < 1 || size > most / count)
            return fail(g, "a tensor is empty, or larger than can be");
        count *= size;
    }
    if (!e->format)
        return GD_OK;
    if (e->shape.dim[e->shape.rank - 1] % e->format->count != 0)
        return fail(g, "a tensor's rows are not whole blocks");
    e->bytes = (size_t)(count / (uint64_t)e->format->count) * e->format->size;
    return GD_OK;
}

static gd_status read_entry(gd_gguf *g, span *name)
{
    if (!gd_grow((void **)&g->entries, &g->entry_room, g->entry_count + 1, sizeof *g->entries))
        return GD_ERR_MEMORY;
    gd_gguf_entry *e = &g->entries[g->entry_count++];
    *e = (gd_gguf_entry){ .name = NULL };
    uint64_t rank = 0, size = 0, type = 0, at = 0;
    gd_status status = read_text(g, MOST_NAME, name);
    if (status == GD_OK && (name->size == 0 || memchr(g->header + name->at, 0, name->size)))
        return fail(g, "a tensor's name is empty, or has a 0 byte");
    if (status == GD_OK)
        status = read_number(g, 4, &rank);
    if (status == GD_OK && (rank < 1 || rank > 4))
        return fail(g, "a tensor has no axes, or more than 4");
    e->shape.rank = (int)rank;
    for (int i = e->shape.rank - 1; status == GD_OK && i >= 0; i--) {
        status = read_number(g, 8, &size);
        e->shape.dim[i] = size > INT64_MAX ? 0 : (int64_t)size;
    }
    if (status == GD_OK)
        status = read_number(g, 4, &type);
    if (status == GD_OK)
        status = read_number(g, 8, &at);
    if (status != GD_OK)
        return status;
    e->type = (uint32_t)type;
    e->format = gd_block_format_of(e->type);
    if (at > SIZE_MAX / 2)
        return fail(g, "a tensor lies beyond the end of the file");
    e->at = (size_t)at;
    return measure(g, e);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp((*(gd_gguf_entry *const *)a)->name, (*(gd_gguf_entry *const *)b)->name);
}

/* Names as texts, and places from the file's beginning, compared with its size. */
static gd_status place_entries(gd_gguf *g, const span *names)
{
    size_t size = gd_file_size(g->file);
    size_t data = g->at + (g->alignment - g->at % g->alignment) % g->alignment;
    g->by_name = gd_alloc((g->entry_count + 1) * sizeof *g->by_name);
    if (!g->by_name)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < g->entry_count; i++) {
        gd_gguf_entry *e = &g->entries[i];
        e->name = (const char *)g->header + names[i].at;
        g->by_name[i] = e;
        if (e->at % g->alignment != 0 || data > size || e->at > size - data ||
            e->bytes > size - data - e->at)
            return gd_fail(GD_ERR_FORMAT,
                           "%s: tensor \"%s\" lies beyond the end of the file, or not at a "
                           "multiple of %zu: is the file cut?",
                           g->path, e->name, g->alignment);
        e->at += data;
    }
    qsort(g->by_name, g->entry_count, sizeof *g->by_name, compare_entries);
    for (size_t i = 1; i < g->entry_count; i++)
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0)
            return gd_fail(GD_ERR_FORMAT, "%s: it has the tensor \"%s\" twice", g->path,
                           g->by_name[i]->name);
    return GD_OK;
}

static gd_status read_alignment(gd_gguf *g)
{
    double alignment = 32.0;
    (void)gd_gguf_number(g, "general.alignment", 0, &alignment);
    if (!(alignment >= 1.0 && alignment <= 1 << 20 && alignment == floor(alignment)))
        return gd_fail(GD_ERR_FORMAT, "%s: general.alignment is %g", g->path, alignment);
    g->alignment = (size_t)alignment;
    return GD_OK;
}

/* ---- the file ---- */

static gd_status read_head(gd_gguf *g, uint64_t *tensors, uint64_t *values)
{
    uint64_t version = 0;
    gd_status status = gd_file_size(g->file) < 4 ? GD_ERR_FORMAT : need(g, 4);
    if (status == GD_ERR_FORMAT || (status == GD_OK && memcmp(g->header, "GGUF", 4) != 0))
        return gd_fail(GD_ERR_FORMAT, "%s: is no GGUF file", g->path);
    g->at = 4;
    if (status == GD_OK)
        status = read_number(g, 4, &version);
    if (status == GD_OK && version != 2 && version != 3)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: GGUF of version %llu%s; 2 and 3 are read", g->path,
                       (unsigned long long)version,
                       (version & 0xffff) == 0 ? ", or of the other byte order" : "");
    if (status == GD_OK)
        status = read_number(g, 8, tensors);
    if (status == GD_OK)
        status = read_number(g, 8, values);
    return status;
}

static gd_status parse(gd_gguf *g)
{
    uint64_t tensors = 0, values = 0;
    span *names = NULL;
    size_t room = 0;
    gd_status status = read_head(g, &tensors, &values);
    for (uint64_t i = 0; status == GD_OK && i < values; i++)
        status = read_value(g);
    for (uint64_t i = 0; status == GD_OK && i < tensors; i++) {
        if (!gd_grow((void **)&names, &room, (size_t)i + 1, sizeof *names))
            status = GD_ERR_MEMORY;
        else
            status = read_entry(g, &names[i]);
    }
    if (status == GD_OK)
        status = name_values(g);
    if (status == GD_OK)
        status = read_alignment(g);
    if (status == GD_OK)
        status = place_entries(g, names);
    gd_free(names);
    return status;
}

gd_gguf *gd_gguf_open(const char *path)
{
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_gguf_open: the path is NULL");
    gd_gguf *g = gd_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->path = gd_strdup(path);
    gd_status status = g->path ? gd_file_open(path, &g->file) : GD_ERR_MEMORY;
    if (status == GD_OK)
        status = parse(g);
    if (status != GD_OK) {
        gd_gguf_close(g);
        return NULL;
    }
    return g;
}

void gd_gguf_close(gd_gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->value_count; i++)
        gd_free(g->values[i].texts);
    gd_file_close(g->file);
    gd_free(g->values);
    gd_free(g->entries);
    gd_free(g->by_name);
    gd_free(g->by_key);
    gd_free(g->header);
    gd_free(g->path);
    gd_free(g);
}

const char *gd_gguf_path(const gd_gguf *g)
{
    return g->path;
}

/* ---- asking for values ---- */

const char *gd_gguf_key(const gd_gguf *g, int64_t index)
{
    return g && index >= 0 && (uint64_t)index < g->value_count ? g->values[index].key : NULL;
}

/* From the file: in memory the texts have been moved. */
gd_status gd_gguf_copy_value(const gd_gguf *g, int64_t index, gd_gguf_values *to)
{
    span whole = g->values[index].whole;
    unsigned char *raw = gd_alloc(whole.size);
    gd_status status = raw ? gd_file_read_at(g->file, whole.at, whole.size, raw) : GD_ERR_MEMORY;
    if (status == GD_OK)
        gd_gguf_add_raw(to, raw, whole.size);
    gd_free(raw);
    return status;
}

int64_t gd_gguf_length(const gd_gguf *g, const char *key)
{
    const value *v = find_value(g, key);
    return v ? (int64_t)v->count : -1;
}

const char *gd_gguf_text(const gd_gguf *g, const char *key, int64_t index, size_t *size)
{
    const value *v = find_value(g, key);
    if (size)
        *size = 0;
    if (!v || !v->texts || index < 0 || (uint64_t)index >= v->count)
        return NULL;
    if (size)
        *size = v->texts[index].size;
    return (const char *)g->header + v->texts[index].at;
}

bool gd_gguf_number(const gd_gguf *g, const char *key, int64_t index, double *out)
{
    const value *v = find_value(g, key);
    size_t size = v ? kind_size(v->kind) : 0;
    if (!out || size == 0 || index < 0 || (uint64_t)index >= v->count)
        return false;
    uint64_t bits = number_at(g->header + v->at + (size_t)index * size, size);
    uint32_t low = (uint32_t)bits;
    float narrow;
    memcpy(&narrow, &low, sizeof narrow);
    switch (v->kind) {
    case GD_GGUF_REAL32:
        *out = (double)narrow;
        break;
    case GD_GGUF_REAL64:
        memcpy(out, &bits, sizeof *out);
        break;
    case GD_GGUF_I8:
        *out = (double)(int8_t)bits;
        break;
    case GD_GGUF_I16:
        *out = (double)(int16_t)bits;
        break;
    case GD_GGUF_I32:
        *out = (double)(int32_t)low;
        break;
    case GD_GGUF_I64:
        *out = (double)(int64_t)bits;
        break;
    case GD_GGUF_BOOL:
        *out = bits != 0 ? 1.0 : 0.0;
        break;
    default:
        *out = (double)bits;
    }
    return true;
}

/* ---- asking for tensors ---- */

int64_t gd_gguf_count(const gd_gguf *g)
{
    return g ? (int64_t)g->entry_count : 0;
}

const gd_gguf_entry *gd_gguf_entry_at(const gd_gguf *g, int64_t index)
{
    return index >= 0 && index < gd_gguf_count(g) ? &g->entries[index] : NULL;
}

gd_status gd_gguf_tensor_info(const gd_gguf *g, int64_t index, gd_gguf_info *info)
{
    const gd_gguf_entry *e = gd_gguf_entry_at(g, index);
    if (!e || !info)
        return gd_fail(GD_ERR_INVALID, "gd_gguf_tensor_info: there is no tensor number %lld",
                       (long long)index);
    *info = (gd_gguf_info){ e->name, (gd_gguf_type)e->type, e->shape, e->bytes };
    return GD_OK;
}

int64_t gd_gguf_find(const gd_gguf *g, const char *name)
{
    gd_gguf_entry wanted = { .name = name }, *at = &wanted;
    gd_gguf_entry **found =
        g && name ? bsearch(&at, g->by_name, g->entry_count, sizeof at, compare_entries) : NULL;
    return found ? *found - g->entries : -1;
}

gd_status gd_gguf_check_type(const gd_gguf *g, const gd_gguf_entry *e)
{
    if (e->format)
        return GD_OK;
    return gd_fail(GD_ERR_UNSUPPORTED,
                   "%s: tensor \"%s\" is of ggml's type %u, which is not read; F32, F16, BF16, "
                   "Q4_0, Q4_1, "
                   "Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K are",
                   g->path, e->name, (unsigned)e->type);
}

gd_status gd_gguf_read_blocks(const gd_gguf *g, const gd_gguf_entry *e, size_t first, size_t count,
                              unsigned char *raw)
{
    gd_status status = gd_gguf_check_type(g, e);
    if (status != GD_OK)
        return status;
    const size_t block = (size_t)e->format->count, size = e->format->size;
    return gd_file_read_at(g->file, e->at + first / block * size, count / block * size, raw);
}

gd_status gd_gguf_read_numbers(const gd_gguf *g, const gd_gguf_entry *e, size_t first, size_t count,
                               unsigned char *raw, float *out)
{
    gd_status status = gd_gguf_read_blocks(g, e, first, count, raw);
    if (status == GD_OK)
        gd_blocks_read(e->format, raw, count, out);
    return status;
}

gd_tensor *gd_gguf_read(const gd_gguf *g, gd_context *context, int64_t index)
{
    const gd_gguf_entry *e = gd_gguf_entry_at(g, index);
    if (!e)
        return gd_fail_null(GD_ERR_INVALID, "gd_gguf_read: there is no tensor number %lld",
                            (long long)index);
    if (gd_gguf_check_type(g, e) != GD_OK) /* before its size is believed */
        return NULL;
    size_t count = 1;
    for (int i = 0; i < e->shape.rank; i++)
        count *= (size_t)e->shape.dim[i];
    unsigned char *raw = gd_alloc(e->bytes + 1);
    float *values = raw ? gd_alloc(count * sizeof *values) : NULL;
    gd_tensor *t = NULL;
    if (values && gd_gguf_read_numbers(g, e, 0, count, raw, values) == GD_OK)
        t = gd_from_host(context, e->shape, GD_F32, values);
    gd_free(values);
    gd_free(raw);
    return t;
}
