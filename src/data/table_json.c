/* data/table_json.c: encoders as JSON text and back.
 *
 *     {"columns": [{"name": "age", "kind": "number", "mean": 41.5, "deviation": 9.25},
 *                  {"name": "city", "kind": "category", "categories": ["Bern"], "other": true},
 *                  {"name": "day", "kind": "time", "mean": .., "deviation": .., "cycles": ["year"],
 *                   "missing": true}],
 *      "target": {"name": "price", "kind": "number", "mean": .., "deviation": ..}}
 *
 * A target of classes has "classes": [..] instead of the mean. Numbers have 17 digits, so that they
 * are read back bit for bit. Start at gd_table_encoder_format_json() and
 * gd_table_encoder_create_json(). */
#include "data/table.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON

#include <jansson.h>
#include <stdlib.h>

/* ---- to JSON ---- */

static json_t *write_names(const gd_categories *c)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < c->count; i++)
        if (json_array_append_new(list, json_string(c->items[i].name)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *write_cycles(int cycles)
{
    json_t *list = json_array();
    for (int i = 0; i < GD_CYCLE_COUNT; i++)
        if (cycles & gd_cycles[i].bit)
            json_array_append_new(list, json_string(gd_cycles[i].name));
    return list;
}

/* Non-zero if memory is out; jansson takes a NULL value for that. */
static int set_numbers(json_t *object, double mean, double deviation)
{
    return json_object_set_new(object, "mean", json_real(mean)) |
           json_object_set_new(object, "deviation", json_real(deviation));
}

static json_t *write_column(const gd_encoder_column *c)
{
    json_t *object = json_pack("{s:s, s:s}", "name", c->name, "kind", gd_column_kind_name(c->kind));
    int failed;
    if (c->kind == GD_COLUMN_CATEGORY)
        failed = json_object_set_new(object, "categories", write_names(&c->categories));
    else
        failed = set_numbers(object, c->mean, c->deviation);
    if (c->cycles)
        failed |= json_object_set_new(object, "cycles", write_cycles(c->cycles));
    if (c->other)
        failed |= json_object_set_new(object, "other", json_true());
    if (c->missing)
        failed |= json_object_set_new(object, "missing", json_true());
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_target(const gd_table_encoder *e)
{
    json_t *object =
        json_pack("{s:s, s:s}", "name", e->target, "kind", gd_column_kind_name(e->target_kind));
    int failed = e->task == GD_TASK_CLASSIFICATION
                     ? json_object_set_new(object, "classes", write_names(&e->classes))
                     : set_numbers(object, e->mean, e->deviation);
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *write_encoder(const gd_table_encoder *e)
{
    json_t *root = json_object(), *columns = json_array();
    int failed = 0;
    for (int64_t i = 0; i < e->column_count; i++)
        failed |= json_array_append_new(columns, write_column(&e->columns[i]));
    failed |= json_object_set_new(root, "columns", columns);
    if (e->target)
        failed |= json_object_set_new(root, "target", write_target(e));
    if (!failed)
        return root;
    json_decref(root);
    return NULL;
}

size_t gd_table_encoder_format_json(const gd_table_encoder *e, char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
    if (!e)
        return 0;
    json_t *root = write_encoder(e);
    char *dump = root ? json_dumps(root, JSON_REAL_PRECISION(17)) : NULL;
    size_t length = dump ? strlen(dump) : 0;
    if (!dump)
        (void)gd_fail_memory(0);
    else if (size > 0)
        snprintf(text, size, "%s", dump);
    free(dump);
    json_decref(root);
    return length;
}

/* ---- from JSON ---- */

/* Where an object stands, for messages. */
typedef struct place {
    const char *what; /* "column", "target" */
    int64_t number;   /* -1: there is one only */
} place;

static gd_status fail_key(const place *p, const char *key, const char *wanted)
{
    if (p->number < 0)
        return gd_fail(GD_ERR_FORMAT, "the encoder's %s: \"%s\" must be %s", p->what, key, wanted);
    return gd_fail(GD_ERR_FORMAT, "the encoder's %s %lld: \"%s\" must be %s", p->what,
                   (long long)p->number, key, wanted);
}

static gd_status check_keys(const place *p, const json_t *object, const char *const *keys)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return gd_fail(GD_ERR_FORMAT, "the encoder's %s must be an object", p->what);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        gd_nearest nearest = { .given = key };
        char words[GD_NEAREST_TEXT];
        bool known = false;
        for (const char *const *k = keys; *k && !known; k++) {
            known = strcmp(key, *k) == 0;
            gd_nearest_try(&nearest, *k);
        }
        if (!known)
            return gd_fail(GD_ERR_FORMAT, "the encoder's %s: there is no key \"%s\"%s", p->what,
                           key, gd_nearest_words(&nearest, words));
    }
    return GD_OK;
}

static gd_status read_name(const place *p, const json_t *object, char **out)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    if (!name)
        return fail_key(p, "name", "a string");
    *out = gd_strdup(name);
    return *out ? GD_OK : GD_ERR_MEMORY;
}

static gd_status read_kind(const place *p, const json_t *object, gd_column_kind *out)
{
    const char *name = json_string_value(json_object_get(object, "kind"));
    for (int kind = 0; name && kind < GD_COLUMN_KIND_COUNT; kind++)
        if (strcmp(name, gd_column_kind_name((gd_column_kind)kind)) == 0) {
            *out = (gd_column_kind)kind;
            return GD_OK;
        }
    return fail_key(p, "kind", "text, number, boolean, category or time");
}

static gd_status read_flag(const place *p, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    *out = json_is_true(value);
    return !value || json_is_boolean(value) ? GD_OK : fail_key(p, key, "true or false");
}

static gd_status read_numbers(const place *p, const json_t *object, double *mean, double *deviation)
{
    const json_t *m = json_object_get(object, "mean"), *d = json_object_get(object, "deviation");
    *mean = json_number_value(m);
    *deviation = json_number_value(d);
    if (!json_is_number(m) || !isfinite(*mean))
        return fail_key(p, "mean", "a number");
    if (!json_is_number(d) || !isfinite(*deviation) || !(*deviation > 0.0))
        return fail_key(p, "deviation", "a number above 0");
    return GD_OK;
}

static gd_status read_names(const place *p, const json_t *object, const char *key,
                            gd_categories *out)
{
    static const char wanted[] = "a list of different strings, of at least one";
    const json_t *list = json_object_get(object, key);
    size_t count = json_array_size(list); /* 0 for what is no list */
    if (count < 1 || count > GD_TABLE_MAX_CATEGORIES)
        return fail_key(p, key, wanted);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || gd_categories_find(out, name) >= 0)
            return fail_key(p, key, wanted);
        gd_status status = gd_categories_add(out, name);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

static gd_status read_cycles(const place *p, const json_t *object, int *out)
{
    const json_t *list = json_object_get(object, "cycles");
    bool right = !list || json_is_array(list);
    for (size_t i = 0; right && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int before = *out;
        for (int k = 0; name && k < GD_CYCLE_COUNT; k++)
            *out |= strcmp(name, gd_cycles[k].name) == 0 ? gd_cycles[k].bit : 0;
        right = *out != before;
    }
    return right ? GD_OK : fail_key(p, "cycles", "a list of year, week, day");
}

static gd_status read_column(const json_t *object, int64_t number, gd_encoder_column *c)
{
    static const char *const keys[] = { "name",   "kind",  "categories", "mean", "deviation",
                                        "cycles", "other", "missing",    NULL };
    const place p = { "column", number };
    gd_status status = check_keys(&p, object, keys);
    if (status == GD_OK)
        status = read_name(&p, object, &c->name);
    if (status == GD_OK)
        status = read_kind(&p, object, &c->kind);
    if (status == GD_OK && c->kind == GD_COLUMN_TEXT)
        status = fail_key(&p, "kind", "number, boolean, category or time");
    if (status == GD_OK)
        status = c->kind == GD_COLUMN_CATEGORY
                     ? read_names(&p, object, "categories", &c->categories)
                     : read_numbers(&p, object, &c->mean, &c->deviation);
    if (status == GD_OK)
        status = read_flag(&p, object, "missing", &c->missing);
    if (status == GD_OK && c->kind == GD_COLUMN_CATEGORY)
        status = read_flag(&p, object, "other", &c->other);
    if (status == GD_OK && c->kind == GD_COLUMN_TIME)
        status = read_cycles(&p, object, &c->cycles);
    return status;
}

static gd_status read_target(const json_t *object, gd_table_encoder *e)
{
    static const char *const keys[] = { "name", "kind", "classes", "mean", "deviation", NULL };
    const place p = { "target", -1 };
    gd_status status = check_keys(&p, object, keys);
    if (status == GD_OK)
        status = read_name(&p, object, &e->target);
    if (status == GD_OK)
        status = read_kind(&p, object, &e->target_kind);
    if (status != GD_OK)
        return status;
    if (!json_object_get(object, "classes")) {
        e->task = GD_TASK_REGRESSION;
        return read_numbers(&p, object, &e->mean, &e->deviation);
    }
    e->task = GD_TASK_CLASSIFICATION;
    return read_names(&p, object, "classes", &e->classes);
}

static gd_status read_encoder(const json_t *root, gd_table_encoder *e)
{
    static const char *const keys[] = { "columns", "target", NULL };
    const place p = { "text", -1 };
    const json_t *columns = json_object_get(root, "columns"),
                 *target = json_object_get(root, "target");
    gd_status status = check_keys(&p, root, keys);
    for (size_t i = 0; status == GD_OK && i < json_array_size(columns); i++) {
        gd_encoder_column *c = &e->columns[e->column_count++];
        status = read_column(json_array_get(columns, i), (int64_t)i, c);
        e->features += gd_encoder_column_features(c);
    }
    return status == GD_OK && target ? read_target(target, e) : status;
}

gd_table_encoder *gd_table_encoder_create_json(const char *json)
{
    json_error_t error;
    if (!json)
        return gd_fail_null(GD_ERR_INVALID, "gd_table_encoder_create_json: the text is NULL");
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return gd_fail_null(GD_ERR_MEMORY, "out of memory while reading JSON");
    if (!root)
        return gd_fail_null(GD_ERR_FORMAT, "the encoder: not JSON: line %d, column %d: %s",
                            error.line, error.column, error.text);
    size_t columns = json_array_size(json_object_get(root, "columns"));
    gd_table_encoder *e = NULL;
    gd_status status = columns < 1 || columns > GD_TABLE_MAX_COLUMNS
                           ? gd_fail(GD_ERR_FORMAT, "the encoder has no list of \"columns\"")
                           : GD_OK;
    if (status == GD_OK) {
        e = gd_encoder_make((int64_t)columns);
        status = e ? read_encoder(root, e) : GD_ERR_MEMORY;
    }
    json_decref(root);
    if (status == GD_OK)
        return e;
    gd_table_encoder_release(e);
    return NULL;
}

#else

size_t gd_table_encoder_format_json(const gd_table_encoder *e, char *text, size_t size)
{
    if (size > 0)
        text[0] = '\0';
    if (e)
        (void)gd_fail(GD_ERR_UNSUPPORTED, "gd_table_encoder_format_json: this build cannot write "
                                          "JSON (it was built without jansson)");
    return 0;
}

gd_table_encoder *gd_table_encoder_create_json(const char *json)
{
    (void)json;
    return gd_fail_null(GD_ERR_UNSUPPORTED, "gd_table_encoder_create_json: this build cannot read "
                                            "JSON (it was built without jansson)");
}

#endif
