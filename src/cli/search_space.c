/* cli/search_space.c: what is tried: lists of values and ranges, and the draws of a trial. */
#include "search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- --try ---- */

static int complain(const cli_try *t, const char *value)
{
    char wanted[CLI_WANTED_BYTES];
    fprintf(stderr, "gradus search: --try %s: %s is none of its values; it takes %s\n", t->key,
            value, cli_wanted(t->option, wanted));
    return CLI_USAGE;
}

static int complain_spec(const char *key, const char *spec)
{
    fprintf(stderr,
            "gradus search: --try %s=%s: it takes values, as 16,32,64, or a range: "
            "uniform(LOW,HIGH), log(LOW,HIGH), or log(LOW,HIGH,COUNT) for so many values\n",
            key, spec);
    return CLI_USAGE;
}

/* 0.01 and 1e-2 are one value. */
static bool is_same(const cli_try *t, const char *a, const char *b)
{
    bool is_number = t->option->kind == CLI_WHOLE || t->option->kind == CLI_REAL;
    return is_number ? strtod(a, NULL) == strtod(b, NULL) : strcmp(a, b) == 0;
}

/* The choice with that value; -1: there is none. */
static int find_choice(const cli_try *t, const char *value)
{
    for (int i = 0; i < t->count; i++)
        if (is_same(t, t->choices[i], value))
            return i;
    return -1;
}

static int add_choice(cli_try *t, const char *value)
{
    if (!cli_store(t->option, value))
        return complain(t, value);
    if (t->count < CLI_MOST_CHOICES && (t->choices[t->count] = strdup(value)) != NULL) {
        t->count++;
        return CLI_OK;
    }
    fprintf(stderr, "gradus search: --try %s has more than %d values\n", t->key,
            (int)CLI_MOST_CHOICES);
    return CLI_USAGE;
}

/* A point of the range, from 0 to 1, as the option takes it. Drawn: the outer whole numbers are as likely
 * as the others. */
static void format_point(const cli_try *t, double at, bool drawn, char text[CLI_VALUE_BYTES])
{
    bool whole = t->option->kind == CLI_WHOLE;
    double extra = whole && drawn ? 0.5 : 0.0;
    double low = t->low - extra, high = t->high + extra;
    double number = t->draw == CLI_LOG && low > 0.0 ? exp(log(low) + at * (log(high) - log(low)))
                                                    : low + at * (high - low);
    number = fmin(fmax(whole ? round(number) : number, t->low), t->high);
    if (whole) {
        snprintf(text, CLI_VALUE_BYTES, "%.0f", number);
        return;
    }
    /* Four digits can be read and typed; at the ends they may lie outside. */
    snprintf(text, CLI_VALUE_BYTES, "%.4g", number);
    double rounded = strtod(text, NULL);
    if (rounded < t->low || rounded > t->high)
        snprintf(text, CLI_VALUE_BYTES, "%.17g", number);
}

static int add_range(cli_try *t, const char *numbers)
{
    char *end, text[CLI_VALUE_BYTES];
    double parts[3] = { 0 };
    int count = 0;
    const char *at = numbers;
    for (; count < 3; at = end + 1) {
        parts[count] = strtod(at, &end);
        if (end == at || !isfinite(parts[count++]) || *end != ',')
            break;
    }
    bool is_number = t->option->kind == CLI_WHOLE || t->option->kind == CLI_REAL;
    if (t->option->kind == CLI_WHOLE && count >= 2 &&
        (parts[0] != round(parts[0]) || parts[1] != round(parts[1]))) {
        fprintf(stderr, "gradus search: --try %s: %s: it takes whole numbers, and so do its ends\n",
                t->key, t->spec);
        return CLI_USAGE;
    }
    if (strcmp(end, ")") != 0 || count < 2 || !is_number || !(parts[0] < parts[1]) ||
        (t->draw == CLI_LOG && parts[0] <= 0.0) ||
        (count == 3 &&
         !(parts[2] >= 2 && parts[2] <= CLI_MOST_CHOICES && parts[2] == round(parts[2]))))
        return complain_spec(t->key, t->spec);
    t->low = parts[0];
    t->high = parts[1];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, t->option->kind == CLI_WHOLE ? "%.0f" : "%.17g", parts[i]);
        if (!cli_store(t->option, text))
            return complain(t, text);
    }
    if (count < 3)
        return CLI_OK;
    int code = CLI_OK;
    int steps = (int)parts[2] - 1;
    for (int i = 0; code == CLI_OK && i <= steps; i++) {
        format_point(t, (double)i / steps, false, text);
        if (find_choice(t, text) < 0) /* whole numbers that are near come once */
            code = add_choice(t, text);
    }
    t->draw = CLI_CHOICES;
    return code;
}

/* Files by their absolute names, so that the search can be resumed from anywhere. */
static int add_path(cli_try *t, const char *value)
{
    if (strcmp(t->key, "model") == 0 && strcmp(value, "mnist_mlp") == 0)
        return add_choice(t, value);
    char *path;
    int code = CLI_USAGE;
    if (cli_absolute(value, &path) != path)
        fprintf(stderr, "gradus search: --try %s: %s is not there\n", t->key, value);
    else
        code = add_choice(t, path);
    free(path);
    return code;
}

static int add_given(cli_try *t, const char *value)
{
    bool is_path = strcmp(t->key, "data") == 0 || strcmp(t->key, "model") == 0;
    int before = t->count;
    int code = is_path ? add_path(t, value) : add_choice(t, value);
    if (code != CLI_OK || find_choice(t, t->choices[before]) == before)
        return code;
    fprintf(stderr, "gradus search: --try %s: %s is there twice\n", t->key, value);
    return CLI_USAGE;
}

static int add_choices(cli_try *t)
{
    int code = CLI_OK;
    const char *at = t->spec;
    for (;; at++) {
        char value[CLI_VALUE_BYTES];
        size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof value)
            return complain_spec(t->key, t->spec);
        snprintf(value, sizeof value, "%.*s", (int)length, at);
        code = add_given(t, value);
        at += length;
        if (code != CLI_OK || !*at)
            return code;
    }
}

/* A further try of the option with that key; NULL: told why not. */
static cli_try *begin(cli_study *search, const char *key, const char *spec)
{
    const cli_option *o = cli_config_find(search->config, "--try", key);
    if (!o)
        return NULL;
    bool again = false;
    for (int i = 0; i < search->try_count; i++)
        again |= search->tries[i].option == o;
    if (again || search->try_count == CLI_MOST_TRIES || !cli_train_is_kept(o->name)) {
        fprintf(stderr, "gradus search: --try %s: %s\n", key,
                again                         ? "it is there already"
                : !cli_train_is_kept(o->name) ? "it does not change what is learnt"
                                              : "these are more options than can be tried");
        return NULL;
    }
    cli_try *t = &search->tries[search->try_count++];
    *t = (cli_try){ .option = o, .key = cli_train_key(o->name), .spec = strdup(spec) };
    if (!t->spec) {
        fprintf(stderr, "gradus search: out of memory\n");
        return NULL;
    }
    t->draw = strncmp(spec, "log(", 4) == 0       ? CLI_LOG
              : strncmp(spec, "uniform(", 8) == 0 ? CLI_UNIFORM
                                                  : CLI_CHOICES;
    return t;
}

int cli_try_add(cli_study *search, const char *text)
{
    char key[CLI_WANTED_BYTES];
    size_t length = strcspn(text, "=");
    if (text[length] != '=' || length == 0 || length >= sizeof key) {
        fprintf(stderr,
                "gradus search: --try takes KEY=VALUES, as optimizer.lr=log(1e-4,1e-1), "
                "not '%s'\n",
                text);
        return CLI_USAGE;
    }
    snprintf(key, sizeof key, "%.*s", (int)length, text);
    cli_try *t = begin(search, key, text + length + 1);
    if (!t)
        return CLI_USAGE;
    return t->draw == CLI_CHOICES ? add_choices(t) : add_range(t, strchr(t->spec, '(') + 1);
}

bool cli_try_restore(cli_study *search, const char *key, const char *range, int count,
                     const char *const *choices)
{
    cli_try *t = begin(search, key, range ? range : "");
    int code = t ? CLI_OK : CLI_FAILED;
    if (t && range)
        code = t->draw == CLI_CHOICES ? CLI_FAILED : add_range(t, strchr(t->spec, '(') + 1);
    for (int i = 0; i < count && code == CLI_OK; i++)
        code = choices[i] ? add_choice(t, choices[i]) : CLI_FAILED;
    return code == CLI_OK && (range || count > 0);
}

/* ---- draws ---- */

int64_t cli_try_combinations(const cli_study *search)
{
    int64_t count = 1;
    for (int i = 0; i < search->try_count; i++) {
        const cli_try *t = &search->tries[i];
        if (t->draw != CLI_CHOICES || count > CLI_MOST_TRIALS)
            return 0;
        count *= t->count;
    }
    return count > CLI_MOST_TRIALS ? 0 : count;
}

/* A generator whose state is a counter. Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", 2014 (SplitMix64). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* From 0 to below 1, of seed, trial and key: another --try changes nothing of it. */
static double draw(uint64_t seed, int64_t index, const char *key)
{
    uint64_t state = seed;
    uint64_t mixed = next(&state) ^ (uint64_t)index;
    for (state = next(&mixed); *key; key++) {
        state ^= (unsigned char)*key;
        state = next(&state);
    }
    return (double)(next(&state) >> 11) * 0x1p-53;
}

/* All combinations in an order of the seed's: none comes twice. */
static int64_t shuffled(uint64_t seed, int64_t index, int64_t count)
{
    int64_t order[CLI_MOST_TRIALS];
    uint64_t state = seed;
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k = (int64_t)(next(&state) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    return order[index];
}

bool cli_try_draw(const cli_study *search, int64_t index, cli_trial *trial)
{
    uint64_t seed = (uint64_t)search->base.seed;
    int64_t count = cli_try_combinations(search);
    int64_t rest = search->method == CLI_GRID || count == 0 ? index : shuffled(seed, index, count);
    /* The last one changes fastest, as in loops. */
    for (int i = search->try_count - 1; i >= 0; i--) {
        const cli_try *t = &search->tries[i];
        char text[CLI_VALUE_BYTES];
        double at = draw(seed, index, t->key);
        if (t->draw != CLI_CHOICES)
            format_point(t, at, true, text);
        else
            snprintf(text, sizeof text, "%s",
                     t->choices[count > 0 ? rest % t->count : (int64_t)(at * t->count)]);
        rest = count > 0 ? rest / t->count : rest;
        trial->values[i] = strdup(text);
        if (!trial->values[i])
            return false;
    }
    return true;
}
