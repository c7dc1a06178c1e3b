/* text/language_file.c: language models in files: safetensors (GPT-2 as Hugging Face stores it, and
 * our own), and llama2.c's checkpoints; GGUF is in language_gguf.c. Start at gd_language_model_load(). */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "io/file.h"

#include <gradus/io.h>
#include <gradus/ops.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH 128

/* ---- names: those of GPT-2 as published, and ours ---- */

static const struct name_pair {
    const char *ours, *published;
} whole_names[] = { { "token.weight", "wte.weight" },
                    { "position.weight", "wpe.weight" },
                    { "norm.weight", "ln_f.weight" },
                    { "norm.bias", "ln_f.bias" } },
  layer_names[] = { { "norm1.", "ln_1." },           { "self.qkv.", "attn.c_attn." },
                    { "self.out.", "attn.c_proj." }, { "norm2.", "ln_2." },
                    { "ff.up.", "mlp.c_fc." },       { "ff.down.", "mlp.c_proj." } };
enum {
    WHOLE_NAMES = sizeof whole_names / sizeof *whole_names,
    LAYER_NAMES = sizeof layer_names / sizeof *layer_names
};

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* "3.norm1.bias" -> "transformer.h.3.ln_1.bias". Names it does not know stay. */
static const char *published_name(const char *name, char out[PATH])
{
    const char *dot = strchr(name, '.');
    bool in_layer = name[0] >= '0' && name[0] <= '9' && dot;
    for (int i = 0; in_layer && i < LAYER_NAMES; i++)
        if (starts_with(dot + 1, layer_names[i].ours)) {
            snprintf(out, PATH, "transformer.h.%.*s.%s%s", (int)(dot - name), name,
                     layer_names[i].published, dot + 1 + strlen(layer_names[i].ours));
            return out;
        }
    for (int i = 0; i < WHOLE_NAMES; i++)
        if (strcmp(name, whole_names[i].ours) == 0) {
            snprintf(out, PATH, "transformer.%s", whole_names[i].published);
            return out;
        }
    return name;
}

/* And back, with or without "transformer." NULL: the model has no use for it. A published GPT-2 may
 * have its causal masks and a copy of its tied output beside its parameters. */
static const char *own_name(const char *name, char out[PATH])
{
    static const char prefix[] = "transformer.";
    name += starts_with(name, prefix) ? strlen(prefix) : 0;
    for (int i = 0; i < WHOLE_NAMES; i++)
        if (strcmp(name, whole_names[i].published) == 0)
            return whole_names[i].ours;
    const char *dot = starts_with(name, "h.") ? strchr(name + 2, '.') : NULL;
    for (int i = 0; dot && i < LAYER_NAMES; i++)
        if (starts_with(dot + 1, layer_names[i].published)) {
            snprintf(out, PATH, "%.*s.%s%s", (int)(dot - name - 2), name + 2, layer_names[i].ours,
                     dot + 1 + strlen(layer_names[i].published));
            return out;
        }
    return NULL;
}

/* ---- what a safetensors file says of the model beside its tensors ---- */

enum { NUMBERS = 9, REALS = 2 };

typedef struct number {
    const char *key;
    int64_t *value;
} number;

/* The options that are saved; `decoder` and `untied` stand in for the enum and the bool. */
static void list_numbers(gd_language_options *o, int64_t *decoder, int64_t *untied,
                         number out[NUMBERS])
{
    const number all[NUMBERS] = {
        { "gradus.decoder", decoder },       { "gradus.vocabulary", &o->vocabulary },
        { "gradus.length", &o->max_length }, { "gradus.layers", &o->layers },
        { "gradus.heads", &o->heads },       { "gradus.kv_heads", &o->kv_heads },
        { "gradus.width", &o->width },       { "gradus.hidden", &o->hidden },
        { "gradus.untied", untied },
    };
    memcpy(out, all, sizeof all);
}

typedef struct real {
    const char *key;
    double *value;
} real;

/* Files of versions before have none of these: the defaults hold. */
static void list_reals(gd_language_options *o, real out[REALS])
{
    out[0] = (real){ "gradus.epsilon", &o->epsilon };
    out[1] = (real){ "gradus.rotary_base", &o->rotary_base };
}

gd_status gd_language_model_save(const gd_language_model *m, const char *path,
                                 int64_t metadata_count, const gd_metadata *given)
{
    if (!m || !path || (!given && metadata_count > 0))
        return gd_fail(GD_ERR_INVALID, "gd_language_model_save: the %s is NULL",
                       !m      ? "model"
                       : !path ? "path"
                               : "metadata");
    if (metadata_count < 0)
        return gd_fail(GD_ERR_INVALID, "gd_language_model_save: a negative count");
    if (m->is_quantized)
        return gd_language_refuse_quantized("gd_language_model_save");
    gd_language_options o = m->options;
    int64_t decoder = (int64_t)o.decoder, untied = !o.tied;
    number numbers[NUMBERS];
    list_numbers(&o, &decoder, &untied, numbers);
    real reals[REALS];
    list_reals(&o, reals);
    char text[NUMBERS][24], real_text[REALS][32];
    enum { ALL = NUMBERS + REALS };
    gd_metadata *metadata = gd_alloc_zero((size_t)metadata_count + ALL, sizeof *metadata);
    for (int64_t i = 0; metadata && i < metadata_count; i++)
        metadata[ALL + i] = given[i];
    for (int i = 0; metadata && i < REALS; i++) {
        gd_snprintf(real_text[i], sizeof real_text[i], "%.17g", *reals[i].value);
        metadata[NUMBERS + i] = (gd_metadata){ reals[i].key, real_text[i] };
    }
    for (int i = 0; metadata && i < NUMBERS; i++) {
        snprintf(text[i], sizeof text[i], "%lld", (long long)*numbers[i].value);
        metadata[i] = (gd_metadata){ numbers[i].key, text[i] };
    }
    size_t count = (size_t)gd_module_count(m->module);
    gd_named_tensor *list = gd_alloc_zero(count + 1, sizeof *list);
    char(*names)[PATH] = gd_alloc_zero(count + 1, PATH);
    gd_status status = list && names && metadata ? GD_OK : GD_ERR_MEMORY;
    for (size_t i = 0; status == GD_OK && i < count; i++) {
        const char *name = gd_module_path(m->module, (int)i);
        if (o.decoder == GD_DECODER_GPT2)
            name = published_name(name, names[i]);
        list[i] = (gd_named_tensor){ name, gd_module_tensor(m->module, (int)i) };
    }
    if (status == GD_OK)
        status = gd_tensors_save(path, (int64_t)count, list, ALL + metadata_count, metadata);
    gd_free(metadata);
    gd_free(names);
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
    real reals[REALS];
    list_reals(o, reals);
    for (int i = 0; i < REALS; i++) {
        const char *text = gd_tensor_file_metadata(file, reals[i].key);
        char *end = NULL;
        double value = text ? gd_strtod(text, &end) : *reals[i].value;
        if (text && (end == text || *end))
            return false;
        *reals[i].value = value;
    }
    o->decoder = decoder == 0 ? GD_DECODER_GPT2 : GD_DECODER_LLAMA;
    o->tied = untied == 0;
    return (decoder == 0 || decoder == 1) && (untied == 0 || untied == 1);
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
    if (index < 0 || gd_tensor_file_info(file, index, &info) != GD_OK || info.shape.rank != 2)
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
        !matrix(file, "transformer.wpe.weight", &o->max_length, &width) ||
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

/* ---- the parameters' values ---- */

typedef struct reading {
    gd_language_model *model;
    const gd_tensor_file *file;
    const char *path;
} reading;

/* The parameter takes the file's values. Its shape is looked at before anything is made, so that
 * memory is bounded by the file, whatever its metadata says. It is made on the way to
 * gd_language_fill, so that no initial values are drawn for it. */
static gd_status read_parameter(void *user, const char *name, gd_shape shape)
{
    const reading *r = user;
    const gd_language_options *o = &r->model->options;
    char text[PATH];
    const char *in_file = o->decoder == GD_DECODER_GPT2 ? published_name(name, text) : name;
    int64_t index = find(r->file, in_file);
    if (index < 0)
        return gd_fail(GD_ERR_FORMAT, "%s: it lacks \"%s\"", r->path, in_file);
    gd_tensor_info info;
    gd_status status = gd_tensor_file_info(r->file, index, &info);
    if (status == GD_OK)
        status = gd_language_check_shape(r->path, in_file, info.shape, shape);
    if (status != GD_OK)
        return status;
    status = gd_scope_begin(r->model->context);
    if (status != GD_OK)
        return status;
    gd_tensor *to = gd_parameter(r->model->module, name, info.shape, .init = GD_INIT_ZEROS);
    if (!to || !gd_assign(to, gd_tensor_file_read(r->file, r->model->context, index)))
        status = gd_error_last();
    (void)gd_scope_end(r->model->context);
    return status;
}

static bool has_parameter(const gd_module *module, const char *name)
{
    for (int i = 0; i < gd_module_count(module); i++)
        if (strcmp(gd_module_path(module, i), name) == 0)
            return true;
    return false;
}

/* All parameters of the model have been read. A further tensor in the file is an error if it is named
 * like a parameter; published files may have others. */
static gd_status check_rest(const reading *r)
{
    const gd_module *module = r->model->module;
    bool gpt2 = r->model->options.decoder == GD_DECODER_GPT2;
    bool exact = gd_tensor_file_count(r->file) == gd_module_count(module);
    for (int64_t i = 0; !exact && i < gd_tensor_file_count(r->file); i++) {
        gd_tensor_info info;
        gd_status status = gd_tensor_file_info(r->file, i, &info);
        if (status != GD_OK)
            return status;
        char text[PATH];
        const char *name = gpt2 ? own_name(info.name, text) : info.name;
        if (name && !has_parameter(module, name))
            return gd_fail(GD_ERR_FORMAT, "%s: it has a \"%s\", which a model of its sizes has not",
                           r->path, info.name);
    }
    return GD_OK;
}

static gd_status read_tensors(reading *r)
{
    gd_language_model *m = r->model;
    gd_status status = gd_language_each(&m->options, read_parameter, r);
    if (status == GD_OK)
        status = check_rest(r);
    int count = gd_module_count(m->module);
    if (status == GD_OK)
        status = gd_language_fill(m);
    if (status == GD_OK && gd_module_count(m->module) != count)
        status = gd_fail(GD_ERR_FORMAT, "%s: it lacks \"%s\"", r->path,
                         gd_module_path(m->module, count));
    return status;
}

static gd_language_model *open_safetensors(gd_context *context, const char *path)
{
    gd_tensor_file *file = gd_tensor_file_open(path);
    if (file && gd_tensor_file_verify(file) != GD_OK) {
        gd_tensor_file_close(file);
        return NULL;
    }
    if (!file)
        return NULL;
    gd_language_options o = { GD_LANGUAGE_DEFAULTS };
    gd_language_model *m = NULL;
    if (options_from_metadata(file, &o)) {
        m = gd_language_model_new(context, o);
    } else {
        o = (gd_language_options){ GD_LANGUAGE_DEFAULTS };
        if (options_from_shapes(file, path, &o) == GD_OK)
            m = gd_language_model_new(context, o);
    }
    if (m && read_tensors(&(reading){ m, file, path }) != GD_OK) {
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
    const gd_file *file;
    size_t at;          /* of what has not been laid out yet */
    unsigned char *raw; /* room for the largest piece as it is in the file, … */
    float *scratch;     /* … and for the largest parameter */
} checkpoint;

/* A kind of tensor: [rows, columns], which is [out, in], in each of the layers. */
typedef struct piece {
    int64_t rows, columns;
    size_t at; /* of the first layer's, in bytes */
} piece;

/* The next kind in the file, of `count` layers. */
static piece lay_out(checkpoint *c, int64_t count, int64_t rows, int64_t columns)
{
    piece p = { rows, columns, c->at };
    c->at += (size_t)(count * rows * columns) * sizeof(float);
    return p;
}

/* A parameter from one to three pieces, which become its columns; vectors and, where `as_it_is`,
 * matrices are not transposed. */
static gd_status take(checkpoint *c, const char *name, int64_t layer, const piece *pieces,
                      int count, bool as_it_is)
{
    int64_t in = pieces[0].columns, out = 0, first = 0;
    for (int i = 0; i < count; i++)
        out += pieces[i].rows;
    gd_shape shape = out == 1 ? GD_SHAPE(in) : as_it_is ? GD_SHAPE(out, in) : GD_SHAPE(in, out);
    gd_tensor *to = gd_parameter(c->model->module, name, shape, .init = GD_INIT_ZEROS);
    if (!to)
        return gd_error_last();
    for (int i = 0; i < count; first += pieces[i++].rows) {
        size_t bytes = (size_t)(pieces[i].rows * in) * sizeof(float);
        size_t at = pieces[i].at + (size_t)layer * bytes;
        gd_status status = gd_file_read_at(c->file, at, bytes, c->raw);
        if (status != GD_OK)
            return status;
        for (int64_t r = 0; r < pieces[i].rows; r++)
            for (int64_t k = 0; k < in; k++)
                memcpy(&c->scratch[as_it_is ? r * in + k : k * out + first + r],
                       c->raw + 4 * (r * in + k), 4);
    }
    return gd_tensor_write(to, c->scratch, (size_t)(in * out) * sizeof(float));
}

enum { NORM1, WQ, WK, WV, WO, NORM2, W1, W2, W3, KINDS };

static gd_status take_layer(checkpoint *c, int64_t layer, const piece kind[KINDS])
{
    static const struct {
        const char *name;
        int first, count;
    } parameters[] = { { "norm1.weight", NORM1, 1 }, { "self.qkv.weight", WQ, 3 },
                       { "self.out.weight", WO, 1 }, { "norm2.weight", NORM2, 1 },
                       { "ff.gate.weight", W1, 1 },  { "ff.down.weight", W2, 1 },
                       { "ff.up.weight", W3, 1 } };
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < sizeof parameters / sizeof *parameters; i++) {
        char path[PATH];
        snprintf(path, sizeof path, "%lld.%s", (long long)layer, parameters[i].name);
        status = take(c, path, layer, &kind[parameters[i].first], parameters[i].count, false);
    }
    return status;
}

static gd_status take_all(checkpoint *c)
{
    const gd_language_options *o = &c->model->options;
    int64_t n = o->layers, width = o->width, kv_width = width / o->heads * o->kv_heads;
    piece embedding = lay_out(c, 1, o->vocabulary, width), kind[KINDS];
    kind[NORM1] = lay_out(c, n, 1, width);
    kind[WQ] = lay_out(c, n, width, width);
    kind[WK] = lay_out(c, n, kv_width, width);
    kind[WV] = lay_out(c, n, kv_width, width);
    kind[WO] = lay_out(c, n, width, width);
    kind[NORM2] = lay_out(c, n, 1, width);
    kind[W1] = lay_out(c, n, o->hidden, width);
    kind[W2] = lay_out(c, n, width, o->hidden);
    kind[W3] = lay_out(c, n, o->hidden, width);
    piece norm = lay_out(c, 1, 1, width);
    (void)lay_out(c, 1, o->max_length, width / o->heads); /* rotary angles */
    piece output = lay_out(c, !o->tied, o->vocabulary, width);
    gd_status status = take(c, "token.weight", 0, &embedding, 1, true);
    for (int64_t layer = 0; status == GD_OK && layer < n; layer++)
        status = take_layer(c, layer, kind);
    if (status == GD_OK)
        status = take(c, "norm.weight", 0, &norm, 1, false);
    if (status == GD_OK && !o->tied)
        status = take(c, "head.weight", 0, &output, 1, false);
    return status;
}

enum { LLAMA2C_NUMBERS = 7, LLAMA2C_HEADER = 4 * LLAMA2C_NUMBERS };

/* Sizes from the header, checked one by one, so that no product below can overflow. */
static bool read_header(const unsigned char header[LLAMA2C_HEADER], gd_language_options *o)
{
    const int64_t most = 1 << 24;
    int32_t n[LLAMA2C_NUMBERS];
    for (int i = 0; i < LLAMA2C_NUMBERS; i++) {
        const unsigned char *b = header + 4 * i;
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
    o->tied = n[5] > 0;
    o->max_length = n[6];
    return o->width % o->heads == 0 && o->heads % o->kv_heads == 0;
}

/* Bytes that a file of these sizes has; as a double, exact enough to tell a wrong header. */
static double expected_bytes(const gd_language_options *o)
{
    double width = (double)o->width, hidden = (double)o->hidden, vocabulary = (double)o->vocabulary;
    double kv_width = width / (double)o->heads * (double)o->kv_heads;
    double layer = 2 * width + 2 * width * width + 2 * width * kv_width + 3 * width * hidden;
    double angles = (double)o->max_length * (width / (double)o->heads);
    double all =
        vocabulary * width * (o->tied ? 1 : 2) + (double)o->layers * layer + width + angles;
    return LLAMA2C_HEADER + 4 * all;
}

/* Numbers in the largest parameter: a dense layer, queries, keys and values, or a table. */
static int64_t largest(const gd_language_options *o)
{
    int64_t rows = 3 * o->width;
    rows = rows > o->vocabulary ? rows : o->vocabulary;
    return (rows > o->hidden ? rows : o->hidden) * o->width;
}

static gd_language_model *read_llama2c(gd_context *context, const gd_file *file, const char *path)
{
    gd_language_options o = { GD_LANGUAGE_DEFAULTS };
    unsigned char header[LLAMA2C_HEADER] = { 0 };
    size_t size = gd_file_size(file);
    if (gd_file_read_at(file, 0, size < LLAMA2C_HEADER ? size : LLAMA2C_HEADER, header) != GD_OK)
        return NULL;
    if (!read_header(header, &o))
        return gd_fail_null(
            GD_ERR_FORMAT,
            "%s: neither safetensors, nor GGUF, nor a llama2.c checkpoint of version 0", path);
    if (expected_bytes(&o) != (double)size)
        return gd_fail_null(GD_ERR_FORMAT,
                            "%s: a llama2.c checkpoint of this header has %.0f bytes, the file %zu",
                            path, expected_bytes(&o), size);
    gd_language_model *m = gd_language_model_new(context, o);
    checkpoint c = { .model = m, .file = file, .at = LLAMA2C_HEADER };
    c.scratch = m ? gd_alloc((size_t)largest(&o) * sizeof(float)) : NULL;
    c.raw = c.scratch ? gd_alloc((size_t)largest(&o) * sizeof(float)) : NULL;
    if (m && (!c.raw || take_all(&c) != GD_OK || gd_language_fill(m) != GD_OK)) {
        gd_language_model_release(m);
        m = NULL;
    }
    gd_free(c.raw);
    gd_free(c.scratch);
    return m;
}

/* ---- any of them ---- */

typedef enum file_format { LLAMA2C, SAFETENSORS, GGUF } file_format;

/* safetensors begins with the size of its header, 8 bytes, and then the '{' of its JSON. */
static gd_status recognise(const gd_file *file, file_format *format)
{
    unsigned char first[9] = { 0 };
    size_t size = gd_file_size(file);
    gd_status status = gd_file_read_at(file, 0, size < sizeof first ? size : sizeof first, first);
    *format = memcmp(first, "GGUF", 4) == 0 ? GGUF : first[8] == '{' ? SAFETENSORS : LLAMA2C;
    return status;
}

gd_language_model *gd_language_model_load_with(gd_context *context, const char *path,
                                               const gd_language_load_options *options)
{
    gd_language_load_options o = { GD_LANGUAGE_LOAD_DEFAULTS };
    if (!context || !gd_options_read("gd_language_model_load", &o, sizeof o, options))
        return NULL;
    if (!path)
        return gd_fail_null(GD_ERR_INVALID, "gd_language_model_load: the path is NULL");
    gd_file *file;
    if (gd_file_open(path, &file) != GD_OK)
        return NULL;
    file_format format;
    gd_language_model *m = NULL;
    if (recognise(file, &format) == GD_OK)
        m = format == GGUF          ? gd_language_open_gguf(context, path, o.quantized)
            : format == SAFETENSORS ? open_safetensors(context, path)
                                    : read_llama2c(context, file, path);
    gd_file_close(file);
    if (m && o.quantized && !m->is_quantized)
        gd_log_message(GD_LOG_WARNING,
                       "%s: no matrix is in blocks, so none stays quantized: all are f32", path);
    return m;
}
