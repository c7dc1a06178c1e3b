/* train/training_file.c: a whole training in one safetensors file: a module's file (nn/module_file.c)
 * with more in it. Tensors: the module's under their paths, "checkpoint/optimizer/fc1.weight.m",
 * "checkpoint/average/fc1.weight", "checkpoint/tensors/…" the caller's. Numbers are strings. Start at
 * gd_training_snapshot() and gd_training_load(). */
#include "train/training_file.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/text.h"
#include "nn/module_file.h"
#include "optim/state.h"
#include "train/words.h"

#include <gradus/compile.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPTIMIZER GD_STATE_PREFIX "optimizer/"
#define AVERAGE   GD_STATE_PREFIX "average/"
#define TENSORS   GD_STATE_PREFIX "tensors/"

/* The struct as this version has it, its module found. */
static gd_status read_training(const char *who, const gd_training *given, gd_training *t)
{
    *t = (gd_training){ GD_TRAINING_DEFAULTS };
    if (!gd_options_read(who, t, sizeof *t, given))
        return gd_error_last();
    if (!t->module)
        t->module = t->model ? gd_model_module(t->model) : gd_optimizer_module(t->optimizer);
    if (!t->module)
        return gd_fail(GD_ERR_INVALID, "%s: a model, a module or an optimizer is needed", who);
    if (t->tensor_count < 0 || (t->tensor_count > 0 && !t->tensors) || t->metadata_count < 0 ||
        (t->metadata_count > 0 && !t->metadata))
        return gd_fail(GD_ERR_INVALID, "%s: %d tensors and %d strings, whose list is NULL", who,
                       t->tensor_count, t->metadata_count);
    if (gd_is_tracing(gd_module_context(t->module)))
        return gd_fail_traced(who);
    return GD_OK;
}

/* ---- strings ---- */

enum { OWN_STRINGS = 5, NUMBERS_BYTES = 128 };

/* The strings of a file, in one list. */
typedef struct strings {
    gd_module_strings module;
    char random[NUMBERS_BYTES], lr[NUMBERS_BYTES], plateau[NUMBERS_BYTES];
    gd_metadata *list;
    size_t count;
} strings;

static void strings_free(strings *s)
{
    gd_module_strings_free(&s->module);
    gd_free(s->list);
}

gd_status gd_training_check_metadata(const char *who, int count, const gd_metadata *metadata)
{
    static const char *const used[] = { "checksum", "producer", "buffers",   "order",
                                        "model",    "dtype",    "random",    "optimizer",
                                        "lr",       "plateau",  "checkpoint" };
    if (count < 0 || (count > 0 && !metadata))
        return gd_fail(GD_ERR_INVALID, "%s: %d strings of metadata, whose list is NULL", who,
                       count);
    for (int i = 0; i < count; i++) {
        const char *key = metadata[i].key;
        if (!key || !metadata[i].value)
            return gd_fail(GD_ERR_INVALID, "%s: string %d of the metadata is NULL", who, i);
        bool is_used = false;
        for (size_t k = 0; k < sizeof used / sizeof *used; k++)
            is_used |= strcmp(key, used[k]) == 0;
        for (int k = 0; k < i; k++)
            is_used |= strcmp(key, metadata[k].key) == 0;
        if (is_used)
            return gd_fail(GD_ERR_INVALID,
                           "%s: \"%s\" is the key of another string of a checkpoint: choose "
                           "another",
                           who, key);
    }
    return GD_OK;
}

/* Where the streams are: the context's, and the module's of initial values. */
static void write_random(const gd_training *t, char *text)
{
    gd_random_stream stream = gd_random_position(gd_module_context(t->module));
    snprintf(text, NUMBERS_BYTES, "%" PRIu64 " %" PRIu64 " %" PRIu64, stream.seed, stream.position,
             gd_module_random_position(t->module));
}

static void add(strings *s, const char *key, const char *value)
{
    s->list[s->count++] = (gd_metadata){ key, value };
}

static gd_status collect_strings(const gd_training *t, strings *s)
{
    *s = (strings){ 0 };
    gd_status status = gd_module_describe(t->module, t->model, &s->module);
    write_random(t, s->random);
    size_t most = GD_MODULE_STRINGS + OWN_STRINGS + (size_t)t->metadata_count;
    if (status == GD_OK && !(s->list = gd_alloc_zero(most, sizeof *s->list)))
        status = GD_ERR_MEMORY;
    if (status != GD_OK)
        return status;
    for (int i = 0; i < s->module.count; i++)
        s->list[s->count++] = s->module.list[i];
    add(s, "checkpoint", "1");
    add(s, "random", s->random);
    if (t->optimizer) {
        gd_snprintf(s->lr, NUMBERS_BYTES, "%.17g", gd_optimizer_lr(t->optimizer));
        add(s, "optimizer", gd_optimizer_name(t->optimizer));
        add(s, "lr", s->lr);
    }
    if (t->plateau) {
        gd_snprintf(s->plateau, NUMBERS_BYTES, "%d %d %d %.17g", t->plateau->started,
                    t->plateau->bad, t->plateau->cooling, t->plateau->best);
        add(s, "plateau", s->plateau);
    }
    status = gd_training_check_metadata("gd_training_save", t->metadata_count, t->metadata);
    for (int i = 0; status == GD_OK && i < t->metadata_count; i++)
        s->list[s->count++] = t->metadata[i];
    return status;
}

/* ---- writing ---- */

static gd_status collect_tensors(const gd_training *t, gd_state_list *state)
{
    gd_status status = gd_module_collect(t->module, state);
    if (status == GD_OK && t->optimizer)
        status = gd_optimizer_collect(t->optimizer, OPTIMIZER, state);
    if (status == GD_OK && t->ema)
        status = gd_ema_collect(t->ema, AVERAGE, state);
    for (int i = 0; status == GD_OK && i < t->tensor_count; i++)
        status = t->tensors[i].name && t->tensors[i].tensor
                     ? gd_state_add(state, TENSORS, t->tensors[i].name, NULL, t->tensors[i].tensor)
                     : gd_fail(GD_ERR_INVALID, "gd_training_save: tensor %d is NULL", i);
    return status;
}

gd_status gd_training_snapshot(gd_snapshot *snapshot, const gd_training *training)
{
    gd_training t;
    gd_status status = read_training("gd_training_save", training, &t);
    if (status != GD_OK)
        return status;
    strings s;
    gd_state_list state = { 0 };
    gd_named_tensor *list = NULL;
    status = collect_strings(&t, &s);
    if (status == GD_OK)
        status = collect_tensors(&t, &state);
    if (status == GD_OK && !(list = gd_alloc_zero(state.count + 1, sizeof *list)))
        status = GD_ERR_MEMORY;
    for (size_t i = 0; list && i < state.count; i++)
        list[i] = (gd_named_tensor){ state.list[i].name, state.list[i].tensor };
    if (status == GD_OK)
        status = gd_snapshot_take(snapshot, state.count, list, s.count, s.list);
    gd_free(list);
    gd_state_list_free(&state);
    strings_free(&s);
    return status;
}

gd_status gd_training_save(const gd_training *training, const char *path)
{
    if (!path)
        return gd_fail(GD_ERR_INVALID, "gd_training_save: the path is NULL");
    gd_snapshot snapshot = { 0 };
    gd_status status = gd_training_snapshot(&snapshot, training);
    if (status == GD_OK)
        status = gd_snapshot_write(&snapshot, path);
    gd_snapshot_free(&snapshot);
    return status;
}

/* ---- reading ---- */

/* Numbers of a file, before any is put in place. */
typedef struct numbers {
    uint64_t seed, position, initial;
    double lr;
    gd_plateau plateau;
} numbers;

static gd_status bad_string(const char *path, const char *key)
{
    return gd_fail(GD_ERR_FORMAT, "%s: its \"%s\" is missing or not what Gradus writes", path, key);
}

static gd_status read_numbers(const gd_training *t, const gd_tensor_file *file, const char *path,
                              numbers *n)
{
    const char *random = gd_tensor_file_metadata(file, "random");
    if (!random || !gd_take_unsigned(&random, &n->seed) ||
        !gd_take_unsigned(&random, &n->position) || !gd_take_unsigned(&random, &n->initial))
        return bad_string(path, "random");
    if (!t->plateau)
        return GD_OK;
    const char *plateau = gd_tensor_file_metadata(file, "plateau");
    int64_t started, bad, cooling;
    if (!plateau || !gd_take_whole(&plateau, &started) || !gd_take_whole(&plateau, &bad) ||
        !gd_take_whole(&plateau, &cooling))
        return bad_string(path, "plateau");
    n->plateau = *t->plateau;
    n->plateau.started = started != 0;
    n->plateau.bad = (int)bad;
    n->plateau.cooling = (int)cooling;
    n->plateau.best = gd_strtod(plateau, NULL);
    return GD_OK;
}

static gd_tensor *find_tensor(void *user, const char *name)
{
    const gd_training *t = user;
    for (int i = 0; i < t->tensor_count; i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            return t->tensors[i].tensor;
    return NULL;
}

static gd_status read_tensors(gd_training *t, const gd_tensor_file *file, const char *path,
                              gd_state_list *state)
{
    gd_state_list has = { 0 };
    const gd_state_owner owner = {
        .prefix = TENSORS, .whose = "training", .find = find_tensor, .user = t
    };
    gd_status status = GD_OK;
    for (int i = 0; status == GD_OK && i < t->tensor_count; i++)
        status = t->tensors[i].name && t->tensors[i].tensor
                     ? gd_state_add(&has, TENSORS, t->tensors[i].name, NULL, t->tensors[i].tensor)
                     : gd_fail(GD_ERR_INVALID, "gd_training_load: tensor %d is NULL", i);
    if (status == GD_OK)
        status = gd_state_read(state, file, path, gd_module_context(t->module), &owner, &has);
    gd_state_list_free(&has);
    return status;
}

static gd_status read_parts(gd_training *t, const gd_tensor_file *file, const char *path,
                            gd_state_list *state, numbers *n)
{
    gd_status status = read_numbers(t, file, path, n);
    if (status == GD_OK)
        status = gd_module_count(t->module) == 0 ? gd_module_take(t->module, file, path)
                                                 : gd_module_read(t->module, file, path, state);
    if (status == GD_OK && t->optimizer)
        status = gd_optimizer_read(t->optimizer, OPTIMIZER, file, path, state, &n->lr);
    if (status == GD_OK && t->ema)
        status = gd_ema_read(t->ema, AVERAGE, file, path, state);
    return status == GD_OK ? read_tensors(t, file, path, state) : status;
}

static gd_status put_in_place(const gd_training *t, const gd_state_list *state, const numbers *n)
{
    gd_status status = gd_state_assign(state);
    if (status == GD_OK && t->optimizer)
        status = gd_optimizer_set_lr(t->optimizer, n->lr);
    if (status == GD_OK && t->plateau)
        *t->plateau = n->plateau;
    if (status != GD_OK)
        return status;
    gd_module_random_seek(t->module, n->initial);
    return gd_random_seek(gd_module_context(t->module), n->seed, n->position);
}

static gd_status check_file(const gd_tensor_file *file, const char *path)
{
    if (!gd_tensor_file_metadata(file, "checkpoint") || !gd_tensor_file_metadata(file, "checksum"))
        return gd_fail(GD_ERR_FORMAT, "%s: no checkpoint, or damaged: it has no checksum", path);
    return gd_tensor_file_verify(file);
}

gd_status gd_training_load(const gd_training *training, const char *path)
{
    gd_training t;
    gd_status status = read_training("gd_training_load", training, &t);
    if (status != GD_OK)
        return status;
    gd_tensor_file *file = gd_tensor_file_open(path);
    if (!file)
        return gd_error_last();
    gd_context *context = gd_module_context(t.module);
    gd_state_list state = { 0 };
    numbers n = { 0 };
    status = check_file(file, path);
    if (status == GD_OK)
        status = gd_scope_begin(context);
    if (status == GD_OK) {
        status = read_parts(&t, file, path, &state, &n);
        if (status == GD_OK)
            status = put_in_place(&t, &state, &n);
        (void)gd_scope_end(context);
    }
    gd_state_list_free(&state);
    gd_tensor_file_close(file);
    return status;
}

gd_status gd_training_check(const char *path)
{
    gd_tensor_file *file = gd_tensor_file_open(path);
    gd_status status = file ? check_file(file, path) : gd_error_last();
    gd_tensor_file_close(file);
    return status;
}
