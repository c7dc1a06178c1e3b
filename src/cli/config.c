/* cli/config.c: options of a command in JSON files, by names with dots. Start at cli_config_read(). */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GD_HAVE_JANSSON
#include <jansson.h>
#endif

static const char *key_of(const cli_config *c, int i)
{
    cli_kind kind = c->options[i].kind;
    return kind == CLI_GROUP || kind == CLI_OPERAND || kind == CLI_OPERANDS
               ? NULL
               : c->key(c->options[i].name);
}

/* ---- keys ---- */

/* "lr" is meant to be "optimizer.lr", "optimizer" its first member; else what is spelt like it. */
static const char *meant(const cli_config *c, const char *word, char text[CLI_WANTED_BYTES])
{
    const char *keys[CLI_MOST_OPTIONS];
    int count = 0;
    size_t length = strlen(word);
    for (int i = 0; i < c->count; i++) {
        const char *key = key_of(c, i);
        if (!key)
            continue;
        const char *dot = strrchr(key, '.');
        bool ends = dot && strcmp(dot + 1, word) == 0;
        bool begins = strncmp(key, word, length) == 0 && key[length] == '.';
        if (ends || begins || strcmp(c->options[i].name, word) == 0) {
            snprintf(text, CLI_WANTED_BYTES, "; did you mean '%s'?", key);
            return text;
        }
        keys[count++] = key;
    }
    return cli_suggestion(word, "", count, keys);
}

const cli_option *cli_config_find(const cli_config *c, const char *where, const char *key)
{
    char text[CLI_WANTED_BYTES];
    for (int i = 0; i < c->count; i++)
        if (key_of(c, i) && strcmp(key_of(c, i), key) == 0)
            return &c->options[i];
    const char *suggestion = meant(c, key, text);
    fprintf(stderr, "gradus %s: %s: there is no key \"%s\"%s%s\n", c->command, where, key,
            suggestion, *suggestion ? "" : "; 'gradus train --help' lists them");
    return NULL;
}

static int complain(const cli_config *c, const char *where, const char *key, const cli_option *o,
                    const char *given)
{
    char wanted[CLI_WANTED_BYTES];
    fprintf(stderr, "gradus %s: %s: \"%s\" is %s; it takes %s\n", c->command, where, key, given,
            cli_wanted(o, wanted));
    return CLI_USAGE;
}

int cli_config_set(cli_config *c, const char *assignment)
{
    char key[CLI_WANTED_BYTES];
    size_t length = strcspn(assignment, "=");
    if (assignment[length] != '=' || length == 0 || length >= sizeof key) {
        fprintf(stderr, "gradus %s: --set takes KEY=VALUE, not '%s'\n", c->command, assignment);
        return CLI_USAGE;
    }
    memcpy(key, assignment, length);
    key[length] = '\0';
    const cli_option *o = cli_config_find(c, "--set", key);
    if (!o)
        return CLI_USAGE;
    return cli_store(o, assignment + length + 1)
               ? CLI_OK
               : complain(c, "--set", key, o, assignment + length + 1);
}

void cli_config_close(cli_config *c)
{
    for (int i = 0; i < c->text_count; i++)
        free(c->texts[i]);
    free(c->texts);
    c->texts = NULL;
    c->text_count = 0;
}

#ifdef GD_HAVE_JANSSON

/* ---- reading ---- */

/* A text that lives until cli_config_close; ends the program where memory has ended. */
static const char *keep(cli_config *c, char *text)
{
    char **texts = realloc(c->texts, (size_t)(c->text_count + 1) * sizeof *texts);
    if (!text || !texts) {
        fprintf(stderr, "gradus %s: out of memory\n", c->command);
        exit(CLI_FAILED);
    }
    c->texts = texts;
    return c->texts[c->text_count++] = text;
}

/* As cli_store takes it; NULL: a value of that kind is none of the option's. */
static const char *text_of(cli_config *c, const cli_option *o, const json_t *value)
{
    char text[CLI_COUNT_TEXT];
    bool is_text = o->kind == CLI_TEXT || o->kind == CLI_LIST;
    if (json_is_string(value))
        return is_text ? keep(c, strdup(json_string_value(value))) : NULL;
    if (json_is_boolean(value))
        return o->kind == CLI_FLAG ? (json_is_true(value) ? "true" : "false") : NULL;
    if (json_is_array(value) && o->kind == CLI_LIST) {
        char *list = calloc(1, 1);
        for (size_t i = 0; list && i < json_array_size(value); i++) {
            const char *item = text_of(c, o, json_array_get(value, i));
            char *longer = item ? malloc(strlen(list) + strlen(item) + 2) : NULL;
            if (longer)
                sprintf(longer, "%s%s%s", list, i ? "," : "", item);
            free(list);
            list = longer;
        }
        return list ? keep(c, list) : NULL;
    }
    if (!json_is_number(value) || o->kind == CLI_FLAG || o->kind == CLI_TEXT)
        return NULL;
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
    return keep(c, strdup(text));
}

/* A file as it is read. */
typedef struct reader {
    cli_config *config;
    const char *where; /* that messages begin with: its path */
    bool seen[CLI_MOST_OPTIONS];
} reader;

/* {"optimizer.lr": 1, "optimizer": {"lr": 2}} gives one option twice. */
static bool is_new(reader *r, const cli_option *o, const char *key)
{
    bool *seen = &r->seen[o - r->config->options];
    if (*seen)
        fprintf(stderr, "gradus %s: %s: the key \"%s\" is there twice\n", r->config->command,
                r->where, key);
    return !*seen && (*seen = true);
}

static int read_value(reader *r, const char *key, const json_t *value)
{
    cli_config *c = r->config;
    const cli_option *o = cli_config_find(c, r->where, key);
    if (!o || !is_new(r, o, key))
        return CLI_USAGE;
    if (json_is_null(value))
        return CLI_OK; /* as without the key */
    const char *text = text_of(c, o, value);
    if (text && cli_store(o, text))
        return CLI_OK;
    char *given = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    int code = complain(c, r->where, key, o, given ? given : "something else");
    free(given);
    return code;
}

static int read_object(reader *r, const char *prefix, json_t *object)
{
    const char *name;
    json_t *value;
    int code = CLI_OK;
    json_object_foreach(object, name, value)
    {
        char key[CLI_WANTED_BYTES];
        if (!*name) {
            fprintf(stderr, "gradus %s: %s: a key is empty\n", r->config->command, r->where);
            return CLI_USAGE;
        }
        snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
        code = json_is_object(value) ? read_object(r, key, value) : read_value(r, key, value);
        if (code != CLI_OK)
            break;
    }
    return code;
}

static int complain_toml(const cli_config *c, const char *path)
{
    fprintf(stderr,
            "gradus %s: %s is TOML; options are read from JSON. Python (3.11 or newer) makes it "
            "of TOML:\n"
            "  python3 -c 'import json, sys, tomllib; json.dump(tomllib.load(sys.stdin.buffer), "
            "sys.stdout)' <FILE.toml >FILE.json\n",
            c->command, path);
    return CLI_USAGE;
}

int cli_config_read(cli_config *c, const char *path)
{
    size_t size;
    json_error_t error;
    if (cli_has_ending(path, ".toml"))
        return complain_toml(c, path);
    char *text = cli_read_file(path, &size);
    if (!text)
        return cli_fail();
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    reader r = { .config = c, .where = path };
    int code = CLI_USAGE;
    if (!root && json_error_code(&error) == json_error_duplicate_key)
        fprintf(stderr, "gradus %s: %s: line %d: %s\n", c->command, path, error.line, error.text);
    else if (!root)
        fprintf(stderr, "gradus %s: %s: line %d is not JSON: %s\n", c->command, path, error.line,
                error.text);
    else if (!json_is_object(root))
        fprintf(stderr, "gradus %s: %s: is no JSON object\n", c->command, path);
    else
        code = read_object(&r, "", root);
    json_decref(root);
    return code;
}

/* ---- writing ---- */

static json_t *value_of(const cli_option *o)
{
    char text[CLI_COUNT_TEXT];
    const char *value = cli_value_text(o, text);
    if (!value)
        return NULL;
    return o->kind == CLI_FLAG    ? json_true()
           : o->kind == CLI_WHOLE ? json_integer((json_int_t) * (int64_t *)o->value)
           : o->kind == CLI_REAL  ? json_real(*(double *)o->value)
                                  : json_string(value);
}

/* "optimizer.lr": the member "lr" of the object "optimizer". */
static bool put(json_t *object, const char *key, json_t *value)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_set_new(object, key, value) == 0;
    char group[CLI_WANTED_BYTES];
    snprintf(group, sizeof group, "%.*s", (int)(dot - key), key);
    json_t *inner = json_object_get(object, group);
    if (!inner && json_object_set_new(object, group, inner = json_object()) != 0) {
        json_decref(value);
        return false;
    }
    return put(inner, dot + 1, value);
}

/* 15 digits where they tell every number, else 17. */
static size_t digits(const cli_config *c)
{
    for (int i = 0; i < c->count; i++) {
        char text[CLI_COUNT_TEXT];
        double number = c->options[i].kind == CLI_REAL ? *(double *)c->options[i].value : 0.0;
        snprintf(text, sizeof text, "%.15g", number);
        if (!isnan(number) && strtod(text, NULL) != number)
            return JSON_REAL_PRECISION(17);
    }
    return JSON_REAL_PRECISION(15);
}

char *cli_config_text(const cli_config *c)
{
    json_t *root = json_object();
    bool ok = root != NULL;
    for (int i = 0; ok && i < c->count; i++) {
        const char *key = key_of(c, i);
        json_t *value = key && c->is_kept(c->options[i].name) ? value_of(&c->options[i]) : NULL;
        ok = !value || put(root, key, value);
    }
    char *text = ok ? json_dumps(root, JSON_INDENT(4) | JSON_PRESERVE_ORDER | digits(c)) : NULL;
    json_decref(root);
    if (!text)
        (void)gd_error_record(GD_ERR_INVALID, "the options cannot be written as JSON: a text is "
                                              "not UTF-8, or memory has ended");
    return text;
}

#else

int cli_config_read(cli_config *c, const char *path)
{
    fprintf(stderr, "gradus %s: %s: this build has no JSON (Jansson)\n", c->command, path);
    return CLI_FAILED;
}

char *cli_config_text(const cli_config *c)
{
    (void)c;
    (void)gd_error_record(GD_ERR_UNSUPPORTED, "this build has no JSON (Jansson)");
    return NULL;
}

#endif

gd_status cli_config_write(const cli_config *c, const char *path)
{
    char *text = cli_config_text(c);
    if (!text)
        return gd_error_code();
    size_t length = strlen(text);
    text[length] = '\n'; /* instead of the 0 byte */
    gd_status status = gd_file_write(path, text, length + 1);
    free(text);
    return status;
}
