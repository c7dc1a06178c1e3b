/* cli/search_state.c: search.json: what is tried, and how far each trial has come. */
#include "search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON
#include <jansson.h>

static void path_of(const cli_study *search, char path[CLI_PATH_BYTES + 32])
{
    snprintf(path, CLI_PATH_BYTES + 32, "%s/search.json", search->folder);
}

/* ---- writing ---- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *trial_json(const cli_study *search, int64_t index)
{
    const cli_trial *trial = &search->trials[index];
    json_t *object = json_object(), *values = json_object(), *results = json_array();
    bool ok = object && values && results;
    for (int i = 0; ok && i < search->try_count; i++)
        ok = json_object_set_new(values, search->tries[i].key, json_string(trial->values[i])) == 0;
    for (int i = 0; ok && i < trial->rounds; i++)
        ok = json_array_append_new(results, number(trial->results[i])) == 0;
    ok = ok && json_object_set_new(object, "trial", json_integer(index + 1)) == 0 &&
         json_object_set(object, "values", values) == 0 &&
         json_object_set(object, "results", results) == 0 &&
         (!trial->problem ||
          json_object_set_new(object, "problem", json_string(trial->problem)) == 0);
    json_decref(values);
    json_decref(results);
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

/* "log(1e-4,1)", or a list of values. */
static json_t *try_json(const cli_try *t)
{
    if (t->draw != CLI_CHOICES)
        return json_string(t->spec);
    json_t *choices = json_array();
    for (int i = 0; choices && i < t->count; i++)
        if (json_array_append_new(choices, json_string(t->choices[i])) != 0) {
            json_decref(choices);
            return NULL;
        }
    return choices;
}

static json_t *search_json(const cli_study *search)
{
    json_t *tries = json_object(), *trials = json_array();
    for (int i = 0; i < search->try_count; i++)
        json_object_set_new(tries, search->tries[i].key, try_json(&search->tries[i]));
    bool ok = json_object_size(tries) == (size_t)search->try_count;
    for (int64_t i = 0; ok && i < search->trial_count; i++)
        ok = json_array_append_new(trials, trial_json(search, i)) == 0;
    json_t *root =
        ok ? json_pack("{s:s, s:I, s:I, s:s, s:O, s:O}", "method", cli_method_names[search->method],
                       "reduction", (json_int_t)search->reduction, "epochs",
                       (json_int_t)search->epochs, "metric", search->metric, "try", tries, "trials",
                       trials)
           : NULL;
    json_decref(tries);
    json_decref(trials);
    return root;
}

gd_status cli_search_save(const cli_study *search)
{
    char path[CLI_PATH_BYTES + 32];
    path_of(search, path);
    json_t *root = search_json(search);
    char *text =
        root ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
             : NULL;
    json_decref(root);
    if (!text)
        return gd_error_record(GD_ERR_MEMORY, "search.json: a text is not UTF-8, or memory has "
                                              "ended");
    gd_status status = gd_file_write(path, text, strlen(text));
    free(text);
    return status;
}

/* ---- reading ---- */

static bool read_trial(cli_study *search, const json_t *object, cli_trial *trial)
{
    const json_t *values = json_object_get(object, "values");
    const json_t *results = json_object_get(object, "results");
    const char *problem = json_string_value(json_object_get(object, "problem"));
    trial->rounds = (int)json_array_size(results);
    if (!json_is_array(results) || trial->rounds > CLI_MOST_ROUNDS)
        return false;
    for (int i = 0; i < trial->rounds; i++) {
        const json_t *result = json_array_get(results, (size_t)i);
        trial->results[i] = json_is_number(result) ? json_number_value(result) : NAN;
    }
    for (int i = 0; i < search->try_count; i++) {
        const char *value = json_string_value(json_object_get(values, search->tries[i].key));
        trial->values[i] =
            value && cli_store(search->tries[i].option, value) ? strdup(value) : NULL;
        if (!trial->values[i])
            return false;
    }
    trial->problem = problem ? strdup(problem) : NULL;
    return true;
}

static bool read_method(cli_study *search, const char *name)
{
    for (int i = 0; i < CLI_METHOD_COUNT; i++)
        if (name && strcmp(name, cli_method_names[i]) == 0) {
            search->method = (cli_method)i;
            return true;
        }
    return false;
}

static bool read_tries(cli_study *search, json_t *tries)
{
    const char *key;
    json_t *spec;
    json_object_foreach(tries, key, spec)
    {
        const char *choices[CLI_MOST_CHOICES];
        size_t count = json_array_size(spec);
        for (size_t i = 0; i < count && i < CLI_MOST_CHOICES; i++)
            choices[i] = json_string_value(json_array_get(spec, i));
        if (count > CLI_MOST_CHOICES ||
            !cli_try_restore(search, key, json_string_value(spec), (int)count, choices))
            return false;
    }
    return search->try_count > 0;
}

static bool read_search(cli_study *search, json_t *root)
{
    const char *metric = json_string_value(json_object_get(root, "metric"));
    const json_t *trials = json_object_get(root, "trials");
    search->reduction = json_integer_value(json_object_get(root, "reduction"));
    search->epochs = json_integer_value(json_object_get(root, "epochs"));
    search->trial_count = (int64_t)json_array_size(trials);
    if (!read_method(search, json_string_value(json_object_get(root, "method"))) || !metric ||
        strlen(metric) >= sizeof search->metric || search->reduction < 2 || search->epochs < 1 ||
        search->trial_count < 1 || search->trial_count > CLI_MOST_TRIALS ||
        !read_tries(search, json_object_get(root, "try")))
        return false;
    snprintf(search->metric, sizeof search->metric, "%s", metric);
    search->trials = calloc((size_t)search->trial_count, sizeof *search->trials);
    bool ok = search->trials != NULL;
    for (int64_t i = 0; ok && i < search->trial_count; i++)
        ok = read_trial(search, json_array_get(trials, (size_t)i), &search->trials[i]);
    return ok;
}

int cli_search_load(cli_study *search)
{
    char path[CLI_PATH_BYTES + 32];
    json_error_t error;
    size_t size;
    path_of(search, path);
    char *text = cli_read_file(path, &size);
    if (!text) {
        gd_error_clear();
        fprintf(stderr, "gradus search: %s: there is no search to go on with\n", search->folder);
        return CLI_FAILED;
    }
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    bool ok = root && read_search(search, root);
    if (!root)
        fprintf(stderr, "gradus search: %s: line %d is not JSON: %s\n", path, error.line,
                error.text);
    else if (!ok)
        fprintf(stderr, "gradus search: %s: is not what gradus search writes\n", path);
    json_decref(root);
    return ok ? CLI_OK : CLI_FAILED;
}

#else

gd_status cli_search_save(const cli_study *search)
{
    (void)search;
    return gd_error_record(GD_ERR_UNSUPPORTED, "this build has no JSON (Jansson)");
}

int cli_search_load(cli_study *search)
{
    fprintf(stderr, "gradus search: %s: this build has no JSON (Jansson)\n", search->folder);
    return CLI_FAILED;
}

#endif
