/* text/language_file.c: language models in files: safetensors (GPT-2 as Hugging Face stores it, and
 * our own), and llama2.c's checkpoints. Start at gd_language_model_open(). */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"

#include <gradus/io.h>
#include <gradus/ops.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH 128

/* ---- what a safetensors file says of the model beside its tensors ---- */

enum { NUMBERS = 9 };

typedef struct number {
    const char *key;
    int64_t *value;
} number;

/* The options that are saved; `decoder` and `untied` stand in for the enum and the bool. */
static void list_numbers(gd_language_options *o, int64_t *decoder, int64_t *untied,
                         number out[NUMBERS])
{
    const number all[NUMBERS] = {
        { "gradus.decoder", decoder },   { "gradus.vocabulary", &o->vocabulary },
        { "gradus.length", &o->length }, { "gradus.layers", &o->layers },
        { "gradus.heads", &o->heads },   { "gradus.kv_heads", &o->kv_heads },
        { "gradus.width", &o->width },   { "gradus.hidden", &o->hidden },
        { "gradus.untied", untied },
    };
    memcpy(out, all, sizeof all);
}

gd_status gd_language_model_save(const gd_language_model *m, const char *path)
{
    if (!m || !path)
        return gd_fail(GD_ERR_INVALID, "gd_language_model_save: the %s is NULL",
                       m ? "path" : "model");
    gd_language_options o = m->options;
    int64_t decoder = (int64_t)o.decoder, untied = o.untied;
    number numbers[NUMBERS];
    list_numbers(&o, &decoder, &untied, numbers);
    char text[NUMBERS][24];
    gd_metadata metadata[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        snprintf(text[i], sizeof text[i], "%lld", (long long)*numbers[i].value);
        metadata[i] = (gd_metadata){ numbers[i].key, text[i] };
    }
    size_t count = (size_t)gd_module_count(m->module);
    gd_named_tensor *list = gd_alloc_zero(count + 1, sizeof *list);
    if (!list)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        list[i] = (gd_named_tensor){ gd_module_path(m->module, (int)i),
                                     gd_module_tensor(m->module, (int)i) };
    gd_status status = gd_tensors_save(path, list, count, metadata, NUMBERS);
    gd_free(list);
    return status;
}

/* ---- safetensors ---- */

/* The options from the file's metadata; false: there are none. */
static bool options_from_metadata(const gd_tensor_file *file, gd_language_options *o)
{
    int64_t decoder = 0, untied = 0;
    number numbers[NUMBERS];
    list_numbers(o, &decoder, &untied, numbers);
    for (int i = 0; i < NUMBERS; i++) {
        const char *text = gd_tensor_file_metadata(file, numbers[i].key);
        char *end;
        errno = 0;
        long long value = text ? strtoll(text, &end, 10) : 0;
        if (!text || end == text || *end || errno)
            return false;
        *numbers[i].value = value;
    }
    o->decoder = decoder == 0 ? GD_DECODER_GPT2 : GD_DECODER_LLAMA;
    o->untied = untied != 0;
    return true;
}

/* Number of a tensor called `name`, or that without "transformer.", as the published files have it.
 */
static int64_t find(const gd_tensor_file *file, const char *name)
{
    static const char prefix[] = "transformer.";
    int64_t index = gd_tensor_file_find(file, name);
    if (index < 0 && strncmp(name, prefix, strlen(prefix)) == 0)
        index = gd_tensor_file_find(file, name + strlen(prefix));
    return index;
}

static bool matrix(const gd_tensor_file *file, const char *name, int64_t *rows, int64_t *columns)
{
    gd_tensor_info info;
    int64_t index = find(file, name);
    if (index < 0 || gd_tensor_file_info(file, (size_t)index, &info) != GD_OK ||
        info.shape.rank != 2)
        return false;
    *rows = info.shape.dim[0];
    *columns = info.shape.dim[1];
    return true;
}

/* The options of a GPT-2 from the shapes of its tensors. */
static gd_status options_from_shapes(const gd_tensor_file *file, const char *path,
                                     gd_language_options *o)
{
    enum { HEAD_WIDTH = 64 }; /* in all sizes of GPT-2 */
    int64_t width;
    if (!matrix(file, "transformer.wte.weight", &o->vocabulary, &o->width) ||
        !matrix(file, "transformer.wpe.weight", &o->length, &width) ||
        !matrix(file, "transformer.h.0.mlp.c_fc.weight", &width, &o->hidden))
        return gd_fail(GD_ERR_FORMAT,
                       "%s: neither saved by gd_language_model_save nor a GPT-2: wte.weight, "
                       "wpe.weight and h.0.mlp.c_fc.weight are expected",
                       path);
    char name[PATH];
    do
        snprintf(name, sizeof name, "transformer.h.%lld.ln_1.weight", (long long)++o->layers);
    while (find(file, name) >= 0 && o->layers < INT16_MAX);
    o->heads = o->width / HEAD_WIDTH;
    return GD_OK;
}

/* The parameter called `name` takes the file's values. Made on the way to gd_language_fill, so that
 * no initial values are drawn for it. */
static gd_status read_parameter(gd_language_model *m, const gd_tensor_file *file, size_t index,
                                const char *name)
{
    gd_tensor_info info;
    gd_status status = gd_tensor_file_info(file, index, &info);
    if (status == GD_OK)
        status = gd_scope_begin(m->options.context);
    if (status != GD_OK)
        return status;
    gd_tensor *to = gd_parameter(m->module, name, info.shape, GD_INIT_ZEROS);
    if (!to || !gd_assign(to, gd_tensor_file_read(file, index, m->options.context)))
        status = gd_error_code();
    (void)gd_scope_end(m->options.context);
    return status;
}

/* Whether the model has a use for a tensor of the file: a published GPT-2 may have its causal masks
 * and a copy of its tied output beside its parameters. */
static bool is_wanted(const char *name)
{
    size_t n = strlen(name);
    static const char *const masks[] = { ".attn.bias", ".attn.masked_bias" };
    for (size_t i = 0; i < 2; i++)
        if (n >= strlen(masks[i]) && strcmp(name + n - strlen(masks[i]), masks[i]) == 0)
            return false;
    return strcmp(name, "lm_head.weight") != 0;
}

/* The name a tensor of a file has in the model. */
static const char *own_name(const gd_language_model *m, const char *name, char out[PATH])
{
    bool bare = m->options.decoder == GD_DECODER_GPT2 && strncmp(name, "transformer.", 12) != 0;
    snprintf(out, PATH, "%s%s", bare ? "transformer." : "", name);
    return out;
}

/* All that is in the file, then a look at what the model has: the same number of tensors. */
static gd_status read_tensors(gd_language_model *m, const gd_tensor_file *file, const char *path)
{
    char name[PATH];
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < gd_tensor_file_count(file); i++) {
        gd_tensor_info info;
        status = gd_tensor_file_info(file, i, &info);
        if (status == GD_OK && is_wanted(info.name))
            status = read_parameter(m, file, i, own_name(m, info.name, name));
    }
    int there = gd_module_count(m->module);
    if (status == GD_OK)
        status = gd_language_fill(m);
    if (status == GD_OK && gd_module_count(m->module) != there)
        status =
            gd_fail(GD_ERR_FORMAT, "%s: it lacks \"%s\"", path, gd_module_path(m->module, there));
    return status;
}

static gd_language_model *open_safetensors(gd_context *context, const char *path)
{
    gd_tensor_file *file = gd_tensor_file_open(path);
    if (!file)
        return NULL;
    gd_language_options o = { .context = context };
    gd_language_model *m = NULL;
    if (options_from_metadata(file, &o)) {
        m = gd_language_model_new(o);
    } else {
        o = (gd_language_options){ .context = context };
        if (options_from_shapes(file, path, &o) == GD_OK)
            m = gd_language_model_new(o);
    }
    if (m && read_tensors(m, file, path) != GD_OK) {
        gd_language_model_release(m);
        m = NULL;
    }
    gd_tensor_file_close(file);
    return m;
}

/* ---- llama2.c, version 0 ----
 *
 * dim, hidden, layers, heads, kv_heads, vocabulary (negative: an output of its own), length: i32;
 * then f32, each kind for all layers together, matrices [out, in]: token embedding, attention norm,
 * wq, wk, wv, wo, feed-forward norm, w1, w2, w3, norm, two tables of rotary angles, output. */

typedef struct checkpoint {
    gd_language_model *model;
    const unsigned char *bytes;
    size_t size, at;
    float *scratch; /* room for the largest tensor */
} checkpoint;

/* The next tensor, [out, in] in the file, [in, out] as parameter where transposed. */
static gd_status take(checkpoint *c, const char *name, int64_t rows, int64_t columns,
                      bool transposed)
{
    size_t bytes = (size_t)(rows * columns) * sizeof(float);
    const unsigned char *from = c->bytes + c->at; /* at a multiple of 4 in the file */
    gd_shape shape = rows == 1    ? GD_SHAPE(columns)
                     : transposed ? GD_SHAPE(columns, rows)
                                  : GD_SHAPE(rows, columns);
    gd_tensor *to = gd_parameter(c->model->module, name, shape, GD_INIT_ZEROS);
    if (!to)
        return gd_error_code();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++)
            memcpy(&c->scratch[transposed ? k * rows + r : r * columns + k],
                   from + 4 * (r * columns + k), 4);
    c->at += bytes;
    return gd_tensor_write(to, c->scratch, bytes);
}

/* One kind of tensor of all layers. */
static gd_status take_layers(checkpoint *c, const char *name, int64_t rows, int64_t columns)
{
    gd_status status = GD_OK;
    for (int64_t layer = 0; status == GD_OK && layer < c->model->options.layers; layer++) {
        char path[PATH];
        snprintf(path, sizeof path, "layers.%lld.%s", (long long)layer, name);
        status = take(c, path, rows, columns, rows > 1);
    }
    return status;
}

static gd_status take_all(checkpoint *c)
{
    const gd_language_options *o = &c->model->options;
    int64_t kv_width = o->width / o->heads * o->kv_heads;
    const struct {
        const char *name;
        int64_t rows, columns;
    } kinds[] = {
        { "attention_norm.weight", 1, o->width },
        { "attention.wq.weight", o->width, o->width },
        { "attention.wk.weight", kv_width, o->width },
        { "attention.wv.weight", kv_width, o->width },
        { "attention.wo.weight", o->width, o->width },
        { "ffn_norm.weight", 1, o->width },
        { "feed_forward.w1.weight", o->hidden, o->width },
        { "feed_forward.w2.weight", o->width, o->hidden },
        { "feed_forward.w3.weight", o->hidden, o->width },
    };
    gd_status status = take(c, "tok_embeddings.weight", o->vocabulary, o->width, false);
    for (size_t i = 0; status == GD_OK && i < sizeof kinds / sizeof *kinds; i++)
        status = take_layers(c, kinds[i].name, kinds[i].rows, kinds[i].columns);
    if (status == GD_OK)
        status = take(c, "norm.weight", 1, o->width, false);
    c->at += (size_t)(o->length * (o->width / o->heads)) * sizeof(float); /* rotary angles */
    if (status == GD_OK && o->untied)
        status = take(c, "output.weight", o->vocabulary, o->width, true);
    return status;
}

enum { LLAMA2C_NUMBERS = 7, LLAMA2C_HEADER = 4 * LLAMA2C_NUMBERS };

/* Sizes from the header, checked one by one, so that no product below can overflow. */
static bool read_header(const gd_file_view *view, gd_language_options *o)
{
    const int64_t most = 1 << 24;
    int32_t n[LLAMA2C_NUMBERS];
    if (view->size < LLAMA2C_HEADER)
        return false;
    for (int i = 0; i < LLAMA2C_NUMBERS; i++) {
        const unsigned char *b = view->data + 4 * i;
        n[i] = (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                         (uint32_t)b[3] << 24);
        if (n[i] == 0 || n[i] > most || n[i] < (i == 5 ? -most : 1))
            return false;
    }
    o->decoder = GD_DECODER_LLAMA;
    o->width = n[0];
    o->hidden = n[1];
    o->layers = n[2];
    o->heads = n[3];
    o->kv_heads = n[4];
    o->vocabulary = n[5] < 0 ? -(int64_t)n[5] : n[5];
    o->untied = n[5] < 0;
    o->length = n[6];
    return o->width % o->heads == 0 && o->heads % o->kv_heads == 0;
}

/* Bytes that a file of these sizes has; as a double, exact enough to tell a wrong header. */
static double expected_bytes(const gd_language_options *o)
{
    double width = (double)o->width, hidden = (double)o->hidden, vocabulary = (double)o->vocabulary;
    double kv_width = width / (double)o->heads * (double)o->kv_heads;
    double layer = 2 * width + 2 * width * width + 2 * width * kv_width + 3 * width * hidden;
    double angles = (double)o->length * (width / (double)o->heads);
    double all =
        vocabulary * width * (o->untied ? 2 : 1) + (double)o->layers * layer + width + angles;
    return LLAMA2C_HEADER + 4 * all;
}

static int64_t largest(const gd_language_options *o)
{
    int64_t rows = o->vocabulary > o->hidden ? o->vocabulary : o->hidden;
    return (rows > o->width ? rows : o->width) * o->width;
}

static gd_language_model *read_llama2c(gd_context *context, const gd_file_view *view,
                                       const char *path)
{
    gd_language_options o = { .context = context };
    if (!read_header(view, &o))
        return gd_fail_null(GD_ERR_FORMAT,
                            "%s: neither safetensors nor a llama2.c checkpoint of version 0", path);
    if (expected_bytes(&o) != (double)view->size)
        return gd_fail_null(GD_ERR_FORMAT,
                            "%s: a llama2.c checkpoint of this header has %.0f bytes, the file %zu",
                            path, expected_bytes(&o), view->size);
    gd_language_model *m = gd_language_model_new(o);
    checkpoint c = { .model = m, .bytes = view->data, .size = view->size, .at = LLAMA2C_HEADER };
    c.scratch = m ? gd_alloc((size_t)largest(&o) * sizeof(float)) : NULL;
    if (m && (!c.scratch || take_all(&c) != GD_OK || gd_language_fill(m) != GD_OK)) {
        gd_language_model_release(m);
        m = NULL;
    }
    gd_free(c.scratch);
    return m;
}

/* ---- either ---- */

/* safetensors begins with the size of its header, 8 bytes, and then the '{' of its JSON. */
static bool is_safetensors(const gd_file_view *view)
{
    return view->size > 8 && view->data[8] == '{';
}

gd_language_model *gd_language_model_open(gd_context *context, const char *path)
{
    if (!context)
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_language_model_open: the path is NULL");
    gd_file_view view;
    if (gd_file_view_open(path, &view) != GD_OK)
        return NULL;
    gd_language_model *m = is_safetensors(&view) ? open_safetensors(context, path)
                                                 : read_llama2c(context, &view, path);
    gd_file_view_close(&view);
    return m;
}
