/* backend/gpu/kernels.c: compiled kernels by what they compute. A key is looked up in a hash table; one
 * that is not there is written as text, which is looked up in the cache on disk, and compiled if it
 * is not there either. */
#include "backend/gpu/gpu.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

typedef struct entry {
    uint64_t hash;
    size_t bytes; /* of the key */
    void *key;    /* NULL: the entry is empty */
    void *kernel; /* NULL: not made yet */
    enum { NOT_KNOWN, WITHOUT_F64, WITH_F64 } arithmetic;
} entry;

struct gd_gpu_kernels {
    entry *table;
    size_t size, count; /* size: a power of two, or 0 */
};

gd_gpu_kernels *gd_gpu_kernels_open(void)
{
    return gd_alloc_zero(1, sizeof(gd_gpu_kernels));
}

void gd_gpu_kernels_close(gd_gpu *gpu)
{
    gd_gpu_kernels *k = gpu->kernels;
    for (size_t i = 0; k && i < k->size; i++)
        if (k->table[i].key) {
            if (k->table[i].kernel)
                gpu->driver->kernel_release(gpu, k->table[i].kernel);
            gd_free(k->table[i].key);
        }
    gd_free(k ? k->table : NULL);
    gd_free(k);
}

/* ---- the table: open addressing, at most half full ---- */

static uint64_t hash_of(const void *key, size_t bytes)
{
    gd_hash hash;
    gd_hash_begin(&hash);
    gd_hash_add(&hash, key, bytes);
    return gd_hash_end(&hash);
}

/* Where a key is, or would be. */
static entry *find(const gd_gpu_kernels *k, uint64_t hash, const void *key, size_t bytes)
{
    size_t at = (size_t)hash & (k->size - 1);
    for (;; at = (at + 1) & (k->size - 1)) {
        entry *e = &k->table[at];
        if (!e->key || (e->hash == hash && e->bytes == bytes && memcmp(e->key, key, bytes) == 0))
            return e;
    }
}

static gd_status grow(gd_gpu_kernels *k)
{
    if (2 * (k->count + 1) <= k->size)
        return GD_OK;
    gd_gpu_kernels larger = { .size = k->size ? 2 * k->size : 64, .count = k->count };
    larger.table = gd_alloc_zero(larger.size, sizeof(entry));
    if (!larger.table)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < k->size; i++)
        if (k->table[i].key)
            *find(&larger, k->table[i].hash, k->table[i].key, k->table[i].bytes) = k->table[i];
    gd_free(k->table);
    *k = larger;
    return GD_OK;
}

/* ---- making one ---- */

gd_status gd_gpu_source_write(const void *key, gd_gpu_writer write, gd_gpu_source *source,
                              gd_text_buffer *used)
{
    write(key, source);
    const gd_text_buffer *const parts[] = { &source->definitions, &source->functions.text,
                                            &source->text };
    gd_buffer_add(used, "%s\n", source->kernel); /* names it, if it is the library's */
    for (int i = 0; i < 3; i++) {
        gd_buffer_add(used, "%s", parts[i]->text ? parts[i]->text : "");
        used->failed |= parts[i]->failed;
    }
    return used->failed ? GD_ERR_MEMORY : GD_OK;
}

void gd_gpu_source_free(gd_gpu_source *source)
{
    if (!source)
        return;
    gd_free(source->definitions.text);
    gd_free(source->functions.text.text);
    gd_free(source->text.text);
    gd_free(source);
}

/* A program's text: definitions, the library's functions, its own. */
static gd_status write_program(const gd_gpu *gpu, const void *key, gd_gpu_writer write,
                               gd_gpu_source *source, gd_text_buffer *out)
{
    const gd_dialect dialect = gpu->driver->dialect;
    gd_text_buffer used = { 0 };
    gd_status status = gd_gpu_source_write(key, write, source, &used);
    gd_codegen_begin(dialect, !gpu->is_without_f64, out);
    gd_buffer_add(out, "%s\n", source->definitions.text ? source->definitions.text : "");
    if (status == GD_OK)
        status = gd_codegen_link(dialect, &used, out);
    const gd_text_buffer *const own[] = { &source->functions.text, &source->text };
    for (int i = 0; i < 2; i++)
        gd_buffer_add(out, "\n%s", own[i]->text ? own[i]->text : "");
    gd_free(used.text);
    return status == GD_OK && out->failed ? GD_ERR_MEMORY : status;
}

static void *load(gd_gpu *gpu, const gd_text_buffer *program, const char *name)
{
    const uint64_t mark = gd_error_mark();
    gd_text_buffer binary = { 0 };
    void *kernel = NULL;
    if (gd_gpu_cache_find(gpu, program, &binary)) {
        kernel = gpu->driver->kernel_load(gpu, binary.text, binary.length, name);
        if (!kernel)
            gd_gpu_cache_forget(gpu, program);
    }
    gd_free(binary.text);
    gd_error_rollback(mark);
    return kernel;
}

static void *compile(gd_gpu *gpu, const gd_text_buffer *program, const char *name)
{
    void *kernel = gpu->driver->kernel_compile(gpu, program->text, name);
    const uint64_t mark = gd_error_mark();
    gd_text_buffer binary = { 0 };
    if (kernel && gpu->driver->kernel_binary(gpu, kernel, &binary) == GD_OK && !binary.failed)
        gd_gpu_cache_store(gpu, program, &binary);
    gd_free(binary.text);
    gd_error_rollback(mark); /* without the cache it is as good */
    return kernel;
}

static void *load_or_compile(gd_gpu *gpu, const gd_text_buffer *program, const char *name)
{
    void *kernel = load(gpu, program, name);
    gpu->loaded += kernel != NULL;
    if (!kernel) {
        kernel = compile(gpu, program, name);
        gpu->compiled += kernel != NULL;
    }
    return kernel;
}

static void *make(gd_gpu *gpu, const void *key, gd_gpu_writer write)
{
    gd_gpu_source *source = gd_alloc_zero(1, sizeof *source);
    gd_text_buffer program = { 0 };
    void *kernel = NULL;
    if (source && write_program(gpu, key, write, source, &program) == GD_OK)
        kernel = load_or_compile(gpu, &program, source->kernel);
    gd_free(program.text);
    gd_gpu_source_free(source);
    return kernel;
}

/* The entry of a key, added where there is none; NULL: no memory. */
static entry *entry_of(gd_gpu_kernels *k, const void *key, size_t bytes)
{
    const uint64_t hash = hash_of(key, bytes);
    entry *e = k->size ? find(k, hash, key, bytes) : NULL;
    if (e && e->key)
        return e;
    const entry new = { .hash = hash, .bytes = bytes, .key = gd_alloc(bytes) };
    if (!new.key || grow(k) != GD_OK) {
        gd_free(new.key);
        return NULL;
    }
    memcpy(new.key, key, bytes);
    e = find(k, hash, key, bytes);
    *e = new;
    k->count++;
    return e;
}

void *gd_gpu_kernel(gd_gpu *gpu, const void *key, size_t bytes, gd_gpu_writer write)
{
    entry *e = entry_of(gpu->kernels, key, bytes);
    if (e && !e->kernel)
        e->kernel = make(gpu, key, write);
    return e ? e->kernel : NULL;
}

void *gd_gpu_kernel_of(gd_gpu *gpu, const gd_text_buffer *program, const char *name)
{
    entry *e = entry_of(gpu->kernels, program->text, program->length + 1);
    if (e && !e->kernel)
        e->kernel = load_or_compile(gpu, program, name);
    return e ? e->kernel : NULL;
}

bool gd_gpu_kernel_has_f64(gd_gpu *gpu, const void *key, size_t bytes, gd_gpu_writer write)
{
    entry *e = entry_of(gpu->kernels, key, bytes);
    if (!e || e->arithmetic != NOT_KNOWN)
        return !e || e->arithmetic == WITH_F64;
    gd_gpu_source *source = gd_alloc_zero(1, sizeof *source);
    gd_text_buffer program = { 0 };
    if (source && write_program(gpu, key, write, source, &program) == GD_OK)
        e->arithmetic = gd_codegen_has_f64(program.text) ? WITH_F64 : WITHOUT_F64;
    gd_free(program.text);
    gd_gpu_source_free(source);
    return e->arithmetic != WITHOUT_F64;
}
