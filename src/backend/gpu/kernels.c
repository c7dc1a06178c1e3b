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
    void *key;
    void *kernel; /* NULL: the entry is empty */
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
        if (k->table[i].kernel) {
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
        if (!e->kernel || (e->hash == hash && e->bytes == bytes && memcmp(e->key, key, bytes) == 0))
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
        if (k->table[i].kernel)
            *find(&larger, k->table[i].hash, k->table[i].key, k->table[i].bytes) = k->table[i];
    gd_free(k->table);
    *k = larger;
    return GD_OK;
}

/* ---- making one ---- */

/* What a program consists of, and its text: definitions, the library's functions, its own. */
static gd_status write_program(const gd_gpu *gpu, gd_gpu_source *source, gd_text_buffer *out)
{
    const gd_dialect dialect = gpu->driver->dialect;
    gd_text_buffer *const parts[] = { &source->definitions, &source->functions.text,
                                      &source->text };
    gd_text_buffer used = { 0 };
    gd_buffer_add(&used, "%s\n", source->kernel); /* names it, if it is the library's */
    bool failed = false;
    for (int i = 0; i < 3; i++) {
        gd_buffer_add(&used, "%s", parts[i]->text ? parts[i]->text : "");
        failed |= parts[i]->failed;
    }
    gd_codegen_begin(dialect, out);
    gd_buffer_add(out, "%s\n", source->definitions.text ? source->definitions.text : "");
    gd_status status = gd_codegen_link(dialect, &used, out);
    for (int i = 1; i < 3; i++)
        gd_buffer_add(out, "\n%s", parts[i]->text ? parts[i]->text : "");
    if (status == GD_OK && (out->failed || used.failed || failed))
        status = GD_ERR_MEMORY;
    gd_free(used.text);
    return status;
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

static void *make(gd_gpu *gpu, const void *key, gd_gpu_writer write)
{
    gd_gpu_source *source = gd_alloc_zero(1, sizeof *source);
    if (!source)
        return NULL;
    gd_text_buffer program = { 0 };
    void *kernel = NULL;
    write(key, source);
    if (write_program(gpu, source, &program) == GD_OK) {
        kernel = load(gpu, &program, source->kernel);
        gpu->loaded += kernel != NULL;
        if (!kernel) {
            kernel = compile(gpu, &program, source->kernel);
            gpu->compiled += kernel != NULL;
        }
    }
    gd_free(program.text);
    gd_free(source->definitions.text);
    gd_free(source->functions.text.text);
    gd_free(source->text.text);
    gd_free(source);
    return kernel;
}

void *gd_gpu_kernel(gd_gpu *gpu, const void *key, size_t bytes, gd_gpu_writer write)
{
    gd_gpu_kernels *k = gpu->kernels;
    const uint64_t hash = hash_of(key, bytes);
    if (k->size) {
        const entry *e = find(k, hash, key, bytes);
        if (e->kernel)
            return e->kernel;
    }
    entry new = { .hash = hash, .bytes = bytes, .key = gd_alloc(bytes) };
    if (!new.key || grow(k) != GD_OK || !(new.kernel = make(gpu, key, write))) {
        gd_free(new.key);
        return NULL;
    }
    memcpy(new.key, key, bytes);
    *find(k, hash, key, bytes) = new;
    k->count++;
    return new.kernel;
}
