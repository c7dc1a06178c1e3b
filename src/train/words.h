/* train/words.h: reading the numbers that checkpoints have as text. */
#ifndef GD_TRAIN_WORDS_H
#define GD_TRAIN_WORDS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A whole number at *at, which is moved behind it. */
static inline bool gd_take_whole(const char **at, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    bool ok = end != *at && errno == 0;
    *at = end;
    return ok;
}

static inline bool gd_take_unsigned(const char **at, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    bool ok = end != *at && errno == 0;
    *at = end;
    return ok;
}

/* What stands behind the key and a blank at the beginning of a line; NULL: another key does. */
static inline const char *gd_after_key(const char *line, const char *key)
{
    size_t length = strlen(key);
    return strncmp(line, key, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

/* The word at *at, which is moved behind it, into a name of `size` bytes. */
static inline bool gd_take_name(const char **at, char *name, size_t size)
{
    size_t length = strcspn(*at, " \n");
    if (length == 0 || length >= size)
        return false;
    memcpy(name, *at, length);
    name[length] = '\0';
    *at += length;
    return true;
}

#endif
