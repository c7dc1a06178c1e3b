/* text/language_gguf.c: language models in GGUF files, of the architectures gpt2 and llama: sizes from the file's
 * values, parameters under the names of gd_nn_decoder_only. GGUF's matrices are [out, in] and become [in, out]; a
 * file is read in pieces of some rows. Start at gd_language_open_gguf() and gd_language_model_save_gguf_with(). */
#include "text/language_model.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "io/gguf.h"
#include "text/tokenizer_gguf.h"

#include <gradus/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = GD_LANGUAGE_FILE_NAME };

typedef struct reading {
    const gd_gguf *file;
    gd_language_model *model;
    const char *arch;
    bool quantized; /* matrices of types that gd_block_form_of() takes stay in blocks */
    int64_t used;   /* tensors that have been read */
} reading;

/* ---- sizes ---- */

/* "llama.block_count" */
static const char *key_of(const char *arch, const char *name, char out[NAME])
{
    snprintf(out, NAME, "%s.%s", arch, name);
    return out;
}

static gd_status whole(const gd_gguf *g, const char *arch, const char *name, int64_t otherwise,
                       int64_t *out)
{
    char key[NAME];
    double number = (double)otherwise;
    bool there = gd_gguf_number(g, key_of(arch, name, key), 0, &number);
    if ((!there && otherwise < 0) || !(number >= 0.0 && number <= 1 << 30) ||
        number != floor(number))
        return gd_fail(GD_ERR_FORMAT, "%s: \"%s\" is needed, a whole number", gd_gguf_path(g), key);
    *out = (int64_t)number;
    return GD_OK;
}

/* 1e-5 of the f32 next to it: the number of seven digits that was meant, if it is one. */
static double as_written(double number)
{
    char text[32];
    gd_snprintf(text, sizeof text, "%.7g", number);
    double meant = gd_strtod(text, NULL);
    return (float)meant == (float)number ? meant : number;
}

static gd_status real(const gd_gguf *g, const char *arch, const char *name, double *out)
{
    char key[NAME];
    if (gd_gguf_number(g, key_of(arch, name, key), 0, out))
        *out = as_written(*out);
    if (!(*out > 0.0 && *out < 1e30))
        return gd_fail(GD_ERR_FORMAT, "%s: \"%s\" is %g", gd_gguf_path(g), key, *out);
    return GD_OK;
}

/* What would change the numbers and is not here. */
static gd_status refuse_others(const gd_gguf *g, const char *arch, const gd_language_options *o)
{
    static const char *const heads[] = { "rope.dimension_count", "attention.key_length",
                                         "attention.value_length" };
    int64_t experts = 0, head = o->heads > 0 ? o->width / o->heads : 0, size;
    double factor = 1.0;
    char key[NAME];
    gd_status status = whole(g, arch, "expert_count", 0, &experts);
    for (size_t i = 0; status == GD_OK && i < sizeof heads / sizeof *heads; i++) {
        status = whole(g, arch, heads[i], head, &size);
        if (status == GD_OK && size != head)
            return gd_fail(GD_ERR_UNSUPPORTED, "%s: its \"%s.%s\" is %lld, its heads are %lld wide",
                           gd_gguf_path(g), arch, heads[i], (long long)size, (long long)head);
    }
    if (status != GD_OK)
        return status;
    (void)gd_gguf_number(g, key_of(arch, "rope.scaling.factor", key), 0, &factor);
    const char *scaling = gd_gguf_text(g, key_of(arch, "rope.scaling.type", key), 0, NULL);
    if (experts > 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: it is a mixture of %lld experts, which is not read",
                       gd_gguf_path(g), (long long)experts);
    if ((scaling && strcmp(scaling, "none") != 0 && factor != 1.0) ||
        gd_gguf_find(g, "rope_freqs.weight") >= 0)
        return gd_fail(GD_ERR_UNSUPPORTED, "%s: its rotary positions are scaled, which is not read",
                       gd_gguf_path(g));
    return GD_OK;
}

static gd_status read_sizes(const gd_gguf *g, const char *arch, gd_language_options *o)
{
    bool llama = strcmp(arch, "llama") == 0;
    o->decoder = llama ? GD_DECODER_LLAMA : GD_DECODER_GPT2;
    const struct {
        const char *name;
        int64_t otherwise; /* -1: it is needed */
        int64_t *to;
    } numbers[] = {
        { "context_length", -1, &o->max_length },  { "embedding_length", -1, &o->width },
        { "block_count", -1, &o->layers },         { "feed_forward_length", -1, &o->hidden },
        { "attention.head_count", -1, &o->heads }, { "attention.head_count_kv", 0, &o->kv_heads }
    };
    gd_status status = GD_OK;
    for (size_t i = 0; status == GD_OK && i < sizeof numbers / sizeof *numbers; i++)
        status = whole(g, arch, numbers[i].name, numbers[i].otherwise, numbers[i].to);
    o->kv_heads = o->kv_heads == 0 ? o->heads : o->kv_heads;
    if (status == GD_OK)
        status = real(g, arch,
                      llama ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                      &o->epsilon);
    if (status == GD_OK && llama)
        status = real(g, arch, "rope.freq_base", &o->rotary_base);
    if (status == GD_OK)
        status = refuse_others(g, arch, o);
    const gd_gguf_entry *tokens = gd_gguf_entry_at(g, gd_gguf_find(g, "token_embd.weight"));
    if (status == GD_OK && (!tokens || tokens->shape.rank != 2))
        status = gd_fail(GD_ERR_FORMAT, "%s: it lacks \"token_embd.weight\"", gd_gguf_path(g));
    if (status != GD_OK)
        return status;
    o->vocabulary = tokens->shape.dim[0];
    o->tied = gd_gguf_find(g, "output.weight") < 0;
    return GD_OK;
}

/* ---- parameters ---- */

/* What a parameter of a layer, or of none, is in a file: one tensor, or the three of queries, keys and values. */
typedef struct parameter {
    const char *name;
    const char *in_file[3];
    bool in_layer, as_it_is; /* not transposed */
} parameter;

static const parameter parameters[] = {
    { "token.weight", { "token_embd.weight" }, false, true },
    { "position.weight", { "position_embd.weight" }, false, true },
    { "norm1.weight", { "attn_norm.weight" }, true, true },
    { "norm1.bias", { "attn_norm.bias" }, true, true },
    { "self.qkv.weight", { "attn_qkv.weight" }, true, false },
    { "self.qkv.weight", { "attn_q.weight", "attn_k.weight", "attn_v.weight" }, true, false },
    { "self.qkv.bias", { "attn_qkv.bias" }, true, true },
    { "self.out.weight", { "attn_output.weight" }, true, false },
    { "self.out.bias", { "attn_output.bias" }, true, true },
    { "norm2.weight", { "ffn_norm.weight" }, true, true },
    { "norm2.bias", { "ffn_norm.bias" }, true, true },
    { "ff.gate.weight", { "ffn_gate.weight" }, true, false },
    { "ff.up.weight", { "ffn_up.weight" }, true, false },
    { "ff.up.bias", { "ffn_up.bias" }, true, true },
    { "ff.down.weight", { "ffn_down.weight" }, true, false },
    { "ff.down.bias", { "ffn_down.bias" }, true, true },
    { "norm.weight", { "output_norm.weight" }, false, true },
    { "norm.bias", { "output_norm.bias" }, false, true },
    { "head.weight", { "output.weight" }, false, false },
};
enum { PARAMETERS = sizeof parameters / sizeof *parameters };

/* The name in the file, "blk.3.attn_q.weight". */
static const char *file_name(const parameter *p, int part, const char *layer, char out[NAME])
{
    if (!p->in_layer)
        return p->in_file[part];
    snprintf(out, NAME, "blk.%.*s.%s", (int)strcspn(layer, "."), layer, p->in_file[part]);
    return out;
}

/* The row of a parameter "3.self.qkv.weight": the one whose tensor is in the file, else the last of that name. */
static const parameter *find_row(const gd_gguf *g, const char *path)
{
    bool in_layer = path[0] >= '0' && path[0] <= '9';
    const char *name = in_layer ? path + strcspn(path, ".") + 1 : path;
    const parameter *found = NULL;
    char text[NAME];
    for (int i = 0; i < PARAMETERS; i++) {
        const parameter *p = &parameters[i];
        if (p->in_layer != in_layer || strcmp(p->name, name) != 0)
            continue;
        found = p;
        if (gd_gguf_find(g, file_name(p, 0, path, text)) >= 0)
            break;
    }
    return found;
}

/* A tensor's rows become columns first, first + 1 … of values[.., columns]; or the values as they are. */
static gd_status read_piece(const gd_gguf *g, const gd_gguf_entry *e, bool as_it_is, int64_t first,
                            int64_t columns, float *values)
{
    enum { PIECE = 1 << 18 };
    int64_t rows = e->shape.rank == 2 ? e->shape.dim[0] : 1, in = e->shape.dim[e->shape.rank - 1];
    int64_t step = as_it_is ? rows : PIECE / in > 0 ? PIECE / in : 1;
    step = step < rows ? step : rows;
    unsigned char *raw = gd_alloc((size_t)(step * in) * sizeof(float));
    float *piece = as_it_is || !raw ? values : gd_alloc((size_t)(step * in) * sizeof *piece);
    gd_status status = raw && piece ? GD_OK : GD_ERR_MEMORY;
    for (int64_t row = 0; status == GD_OK && row < rows; row += step) {
        int64_t count = rows - row < step ? rows - row : step;
        status = gd_gguf_read_numbers(g, e, (size_t)(row * in), (size_t)(count * in), raw, piece);
        for (int64_t r = 0; status == GD_OK && !as_it_is && r < count; r++)
            for (int64_t k = 0; k < in; k++)
                values[k * columns + first + row + r] = piece[r * in + k];
    }
    if (piece != values)
        gd_free(piece);
    gd_free(raw);
    return status;
}

/* Its tensors, compared with what the parameter's shape asks of them. */
static gd_status find_entries(const reading *r, const parameter *p, const char *path,
                              gd_shape shape, const gd_gguf_entry *out[3])
{
    const gd_language_options *o = &r->model->options;
    int64_t keys = o->width / o->heads * o->kv_heads;
    for (int i = 0; i < 3 && p->in_file[i]; i++) {
        char text[NAME];
        const char *name = file_name(p, i, path, text);
        out[i] = gd_gguf_entry_at(r->file, gd_gguf_find(r->file, name));
        if (!out[i])
            return gd_fail(GD_ERR_FORMAT, "%s: it lacks \"%s\"", gd_gguf_path(r->file), name);
        gd_shape wanted = shape;
        if (!p->as_it_is)
            wanted = GD_SHAPE(!p->in_file[1] ? shape.dim[1]
                              : i == 0       ? o->width
                                             : keys,
                              shape.dim[0]);
        gd_status status =
            gd_language_check_shape(gd_gguf_path(r->file), name, out[i]->shape, wanted);
        if (status == GD_OK)
            status = gd_gguf_check_type(r->file, out[i]);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* ---- matrices that stay in blocks ---- */

/* Whether a parameter can, and in which form: a matrix, all of whose tensors fit one. Positions are added,
 * not multiplied. */
static bool stays_in_blocks(const reading *r, const parameter *p, gd_shape shape,
                            const gd_gguf_entry *const entries[3], gd_quantized_form *form)
{
    bool all = r->quantized && shape.rank == 2 && strcmp(p->name, "position.weight") != 0 &&
               gd_block_form_of(entries[0]->type, form);
    for (int i = 1; all && i < 3 && entries[i]; i++) {
        gd_quantized_form other;
        all = gd_block_form_of(entries[i]->type, &other) && gd_block_forms_join(form, &other, form);
    }
    return all;
}

static size_t blocks_of(const gd_gguf_entry *e)
{
    return (size_t)(e->shape.dim[0] * e->shape.dim[1]) / (size_t)e->format->count;
}

/* A tensor's blocks in that form. */
static gd_status read_blocks(const gd_gguf *g, const gd_gguf_entry *e,
                             const gd_quantized_form *form, unsigned char *values, uint16_t *scales)
{
    const size_t blocks = blocks_of(e);
    unsigned char *raw = gd_alloc(blocks * e->format->size);
    gd_status status =
        raw ? gd_gguf_read_blocks(g, e, 0, blocks * (size_t)e->format->count, raw) : GD_ERR_MEMORY;
    for (size_t b = 0; status == GD_OK && b < blocks; b++)
        gd_block_store(e->type, form, raw + b * e->format->size, values + b * (size_t)form->bytes,
                       scales + b * (size_t)form->scales);
    gd_free(raw);
    return status;
}

/* "0.ff.up.values" of "0.ff.up.weight" */
static gd_tensor *make_buffer(const reading *r, const char *path, const char *suffix,
                              gd_shape shape, gd_dtype dtype)
{
    char text[NAME];
    snprintf(text, sizeof text, "%.*s%s", (int)(strlen(path) - strlen("weight")), path, suffix);
    return gd_buffer(r->model->module, text, shape, 0.0, dtype);
}

/* A parameter's tensors are its rows of [out, in], one behind the other. */
static gd_status read_in_blocks(reading *r, const char *path, const gd_gguf_entry *const entries[3],
                                const gd_quantized_form *form)
{
    const int64_t large = entries[0]->shape.dim[1] / entries[0]->format->count; /* of a row */
    int64_t out = 0;
    for (int i = 0; i < 3 && entries[i]; i++)
        out += entries[i]->shape.dim[0];
    const size_t blocks = (size_t)(out * large), bytes = (size_t)form->bytes;
    const size_t each = (size_t)form->scales;
    gd_tensor *to = make_buffer(r, path, "values", GD_SHAPE(out, large * form->bytes),
                                form->four_bits ? GD_U8 : GD_I8);
    gd_tensor *by = make_buffer(r, path, "scales", GD_SHAPE(out, large * form->scales), GD_F16);
    unsigned char *values = to && by ? gd_alloc(blocks * bytes) : NULL;
    uint16_t *scales = values ? gd_alloc(blocks * each * sizeof *scales) : NULL;
    gd_status status = scales ? GD_OK : gd_error_last();
    size_t at = 0;
    for (int i = 0; status == GD_OK && i < 3 && entries[i]; i++, r->used++) {
        status = read_blocks(r->file, entries[i], form, values + at * bytes, scales + at * each);
        at += blocks_of(entries[i]);
    }
    if (status == GD_OK)
        status = gd_tensor_write(to, values, blocks * bytes);
    if (status == GD_OK)
        status = gd_tensor_write(by, scales, blocks * each * sizeof *scales);
    gd_free(scales);
    gd_free(values);
    r->model->is_quantized = true;
    return status;
}

static gd_status read_parameter(void *user, const char *path, gd_shape shape)
{
    reading *r = user;
    const parameter *p = find_row(r->file, path);
    const gd_gguf_entry *entries[3] = { NULL };
    gd_status status =
        p ? find_entries(r, p, path, shape, entries)
          : gd_fail(GD_ERR_FORMAT, "%s: GGUF has no name for \"%s\"", gd_gguf_path(r->file), path);
    if (status != GD_OK)
        return status;
    gd_quantized_form form;
    if (stays_in_blocks(r, p, shape, entries, &form))
        return read_in_blocks(r, path, entries, &form);
    gd_tensor *to = gd_parameter(r->model->module, path, shape, .init = GD_INIT_ZEROS);
    size_t size = (size_t)(shape.dim[0] * (shape.rank == 2 ? shape.dim[1] : 1)) * sizeof(float);
    float *values = to ? gd_alloc(size) : NULL;
    if (!values)
        return gd_error_last();
    int64_t first = 0;
    for (int i = 0; status == GD_OK && i < 3 && entries[i];
         first += entries[i++]->shape.dim[0], r->used++)
        status = read_piece(r->file, entries[i], p->as_it_is, first,
                            shape.rank == 2 ? shape.dim[1] : 1, values);
    if (status == GD_OK)
        status = gd_tensor_write(to, values, size);
    gd_free(values);
    return status;
}

/* A tensor that no parameter takes would be missed: biases of a Llama, scales of another architecture. */
static gd_status check_rest(const reading *r)
{
    for (int64_t i = 0; r->used < gd_gguf_count(r->file) && i < gd_gguf_count(r->file); i++) {
        const char *name = gd_gguf_entry_at(r->file, i)->name, *part = name;
        bool in_layer = strncmp(name, "blk.", 4) == 0 && strchr(name + 4, '.'), known = false;
        if (in_layer)
            part = strchr(name + 4, '.') + 1;
        for (int k = 0; k < PARAMETERS; k++)
            for (int n = 0; n < 3 && parameters[k].in_file[n]; n++)
                known = known || (parameters[k].in_layer == in_layer &&
                                  strcmp(parameters[k].in_file[n], part) == 0);
        bool llama_has_none =
            r->model->options.decoder == GD_DECODER_LLAMA && strstr(part, ".bias");
        if (!known || llama_has_none)
            return gd_fail(GD_ERR_UNSUPPORTED,
                           "%s: it has a \"%s\", which a model of the architecture %s, as it is "
                           "read here, has not",
                           gd_gguf_path(r->file), name, r->arch);
    }
    return r->used == gd_gguf_count(r->file)
               ? GD_OK
               : gd_fail(GD_ERR_FORMAT, "%s: it has more tensors than a model of its sizes",
                         gd_gguf_path(r->file));
}

/* ---- the model ---- */

static gd_language_model *read_model(gd_context *context, const gd_gguf *g, bool quantized)
{
    const char *arch = gd_gguf_text(g, "general.architecture", 0, NULL);
    if (!arch || (strcmp(arch, "gpt2") != 0 && strcmp(arch, "llama") != 0))
        return gd_fail_null(GD_ERR_UNSUPPORTED,
                            "%s: a model of the architecture \"%s\"; gpt2 and llama are read",
                            gd_gguf_path(g), arch ? arch : "");
    gd_language_options o = { GD_LANGUAGE_DEFAULTS };
    gd_language_model *m =
        read_sizes(g, arch, &o) == GD_OK ? gd_language_model_new(context, o) : NULL;
    reading r = { .file = g, .model = m, .arch = arch, .quantized = quantized };
    if (m && (gd_language_each(&m->options, read_parameter, &r) != GD_OK ||
              check_rest(&r) != GD_OK || gd_language_fill(m) != GD_OK)) {
        gd_language_model_release(m);
        m = NULL;
    }
    return m;
}

gd_language_model *gd_language_open_gguf(gd_context *context, const char *path, bool quantized)
{
    gd_gguf *g = gd_gguf_open(path);
    gd_language_model *m = g ? read_model(context, g, quantized) : NULL;
    gd_gguf_close(g);
    return m;
}

/* ---- a model, written ---- */

typedef struct saving {
    const gd_language_model *model;
    gd_gguf_part *parts;
    struct slice *slices; /* of each part */
    size_t count, room, slice_room;
    const gd_block_format *format;
    gd_tensor *held; /* whose values are in memory */
    float *values;
} saving;

/* What a part is of its parameter: rows first, first + 1 … of the transposed one, or all of it. */
typedef struct slice {
    saving *of;
    gd_tensor *tensor;
    bool as_it_is;
    int64_t in, columns, first;
    char name[NAME];
} slice;

static gd_status hold(saving *s, gd_tensor *t)
{
    if (s->held == t)
        return GD_OK;
    size_t size = (size_t)gd_tensor_count(t) * sizeof(float);
    gd_free(s->values);
    s->held = NULL;
    s->values = gd_alloc(size);
    gd_status status = s->values ? gd_scope_begin(s->model->context) : GD_ERR_MEMORY;
    if (status != GD_OK)
        return status;
    status = gd_tensor_read(gd_tensor_dtype(t) == GD_F32 ? t : gd_cast(t, GD_F32), s->values, size);
    (void)gd_scope_end(s->model->context);
    s->held = status == GD_OK ? t : NULL;
    return status;
}

static gd_status give_values(void *user, size_t first, size_t count, float *out)
{
    const slice *p = user;
    gd_status status = hold(p->of, p->tensor);
    if (status != GD_OK)
        return status;
    const float *values = p->of->values;
    if (p->as_it_is) {
        memcpy(out, values + first, count * sizeof *out);
        return GD_OK;
    }
    size_t in = (size_t)p->in, columns = (size_t)p->columns;
    for (size_t i = 0; i < count; i++) {
        size_t row = (first + i) / in, k = (first + i) % in;
        out[i] = values[k * columns + (size_t)p->first + row];
    }
    return GD_OK;
}

/* The row by which a model of ours is written. */
static const parameter *row_to_write(const char *path, bool llama)
{
    const char *name = path[0] >= '0' && path[0] <= '9' ? path + strcspn(path, ".") + 1 : path;
    for (int i = 0; i < PARAMETERS; i++)
        if (strcmp(parameters[i].name, name) == 0 &&
            (strcmp(name, "self.qkv.weight") != 0 || llama == (parameters[i].in_file[1] != NULL)))
            return &parameters[i];
    return NULL;
}

int gd_language_file_names(const gd_language_model *model, const char *name, const char *names[3],
                           char room[3][GD_LANGUAGE_FILE_NAME])
{
    char path[NAME];
    int count = 0;
    snprintf(path, sizeof path, "%s.weight", name);
    const parameter *p = row_to_write(path, model->options.decoder == GD_DECODER_LLAMA);
    for (; p && count < 3 && p->in_file[count]; count++)
        names[count] = file_name(p, count, path, room[count]);
    return count;
}

static gd_status add_parts(void *user, const char *path, gd_shape shape)
{
    saving *s = user;
    const gd_language_options *o = &s->model->options;
    const parameter *p = row_to_write(path, o->decoder == GD_DECODER_LLAMA);
    gd_tensor *t = gd_parameter(s->model->module, path, shape);
    if (!p || !t)
        return p ? gd_error_last() : GD_ERR_STATE;
    int64_t keys = o->width / o->heads * o->kv_heads, first = 0;
    for (int i = 0; i < 3 && p->in_file[i]; i++) {
        if (!gd_grow((void **)&s->parts, &s->room, s->count + 1, sizeof *s->parts) ||
            !gd_grow((void **)&s->slices, &s->slice_room, s->count + 1, sizeof *s->slices))
            return GD_ERR_MEMORY;
        slice *piece = &s->slices[s->count];
        *piece = (slice){ .of = s, .tensor = t, .as_it_is = p->as_it_is, .first = first };
        const char *name = file_name(p, i, path, piece->name);
        if (name != piece->name)
            snprintf(piece->name, sizeof piece->name, "%s", name);
        gd_shape part = shape;
        if (!p->as_it_is) {
            piece->in = shape.dim[0];
            piece->columns = shape.dim[1];
            part = GD_SHAPE(!p->in_file[1] ? shape.dim[1] : i == 0 ? o->width : keys, shape.dim[0]);
            first += part.dim[0];
        }
        s->parts[s->count++] =
            (gd_gguf_part){ .shape = part,
                            .format = gd_gguf_choose(s->format, piece->name, part),
                            .values = give_values };
    }
    return GD_OK;
}

static void add_sizes(const gd_language_options *o, gd_gguf_values *v)
{
    bool llama = o->decoder == GD_DECODER_LLAMA;
    const char *arch = llama ? "llama" : "gpt2";
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        { "context_length", o->max_length },  { "embedding_length", o->width },
        { "block_count", o->layers },         { "feed_forward_length", o->hidden },
        { "attention.head_count", o->heads }, { "attention.head_count_kv", o->kv_heads },
        { "vocab_size", o->vocabulary }
    };
    char key[NAME];
    gd_gguf_add_text(v, "general.architecture", arch);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        gd_gguf_add_u32(v, key_of(arch, numbers[i].name, key), (uint32_t)numbers[i].value);
    if (llama) {
        gd_gguf_add_u32(v, "llama.rope.dimension_count", (uint32_t)(o->width / o->heads));
        gd_gguf_add_real(v, "llama.rope.freq_base", (float)o->rotary_base);
        gd_gguf_add_real(v, "llama.attention.layer_norm_rms_epsilon", (float)o->epsilon);
    } else {
        gd_gguf_add_real(v, "gpt2.attention.layer_norm_epsilon", (float)o->epsilon);
    }
}

static gd_status save(saving *s, const gd_tokenizer *tokenizer, const char *path,
                      const gd_gguf_quantize_options *o)
{
    gd_gguf_values values = { 0 };
    add_sizes(&s->model->options, &values);
    gd_gguf_add_file_type(&values, s->format);
    gd_status status = gd_tokenizer_add_values(tokenizer, &values);
    if (status == GD_OK)
        status = gd_language_each(&s->model->options, add_parts, s);
    for (size_t i = 0; status == GD_OK && i < s->count; i++) {
        s->parts[i].name = s->slices[i].name;
        s->parts[i].user = &s->slices[i];
    }
    if (status == GD_OK)
        status = gd_gguf_write("gd_language_model_save_gguf", path, &values, s->count, s->parts, o);
    gd_gguf_values_free(&values);
    return status;
}

gd_status gd_language_model_save_gguf_with(const gd_language_model *m,
                                           const gd_tokenizer *tokenizer, const char *path,
                                           const gd_gguf_quantize_options *options)
{
    static const char who[] = "gd_language_model_save_gguf";
    gd_gguf_quantize_options o = { GD_GGUF_QUANTIZE_DEFAULTS };
    if (!gd_options_read(who, &o, sizeof o, options))
        return gd_error_last();
    if (!m || !tokenizer || !path)
        return gd_fail(GD_ERR_INVALID, "%s: the %s is NULL", who,
                       !m           ? "model"
                       : !tokenizer ? "tokeniser"
                                    : "path");
    if (m->is_quantized)
        return gd_language_refuse_quantized(who);
    if (gd_tokenizer_count(tokenizer) != m->options.vocabulary)
        return gd_fail(GD_ERR_INVALID, "%s: the model has %lld tokens, the tokeniser %lld", who,
                       (long long)m->options.vocabulary, (long long)gd_tokenizer_count(tokenizer));
    saving s = { .model = m, .format = gd_gguf_written_format(who, o.type) };
    gd_status status = s.format ? save(&s, tokenizer, path, &o) : gd_error_last();
    gd_free(s.values);
    gd_free(s.slices);
    gd_free(s.parts);
    return status;
}
