/* data/image_list.c: a text file that names images and their classes as a data set. Start at
 * gd_image_list_with(). */
#include "data/images.h"

#include "base/error.h"
#include "base/memory.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 30)

/* A list as it is read: images and, of each, the name of its class. */
typedef struct rows {
    gd_name_list paths, classes;
} rows;

/* Without spaces at both ends, and quotation marks around it. */
static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]))
        text[--length] = '\0';
    if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
        text[length - 1] = '\0';
        text++;
    }
    return text;
}

static bool is_heading(const char *class)
{
    return strcmp(class, "class") == 0 || strcmp(class, "label") == 0;
}

/* A path is the file's own folder's, unless it begins with a slash. */
static gd_status add_row(rows *r, const char *list, const char *path, const char *class, int line)
{
    const char *slash = strrchr(list, '/');
    char whole[GD_PATH_BYTES];
    int folder = path[0] == '/' || !slash ? 0 : (int)(slash + 1 - list);
    if (snprintf(whole, sizeof whole, "%.*s%s", folder, list, path) >= (int)sizeof whole)
        return gd_fail(GD_ERR_FORMAT, "%s, line %d: the path is too long", list, line);
    return gd_name_list_add(&r->paths, whole) && gd_name_list_add(&r->classes, class)
               ? GD_OK
               : GD_ERR_MEMORY;
}

static gd_status read_line(rows *r, const char *list, char *text, int line)
{
    text = trim(text);
    if (!*text || *text == '#')
        return GD_OK;
    char *separator = strrchr(text, '\t');
    separator = separator ? separator : strrchr(text, ',');
    if (!separator)
        return gd_fail(GD_ERR_FORMAT,
                       "%s, line %d: \"%.80s\" is no path and class with a comma or a "
                       "tab between them",
                       list, line, text);
    *separator = '\0';
    const char *path = trim(text), *class = trim(separator + 1);
    if (!*path || !*class)
        return gd_fail(GD_ERR_FORMAT, "%s, line %d: there is no %s", list, line,
                       *path ? "class" : "path");
    if (r->paths.count == 0 && line == 1 && is_heading(class))
        return GD_OK;
    return add_row(r, list, path, class, line);
}

/* The whole file, with a 0 behind it. */
static gd_status read_text(const char *list, char **text, size_t *size)
{
    gd_stream *stream;
    gd_status status = gd_stream_open(list, &stream);
    if (status != GD_OK)
        return status;
    void *bytes = NULL;
    status = gd_stream_take(stream, MOST_BYTES, &bytes, size);
    gd_stream_close(stream);
    *text = status == GD_OK ? gd_realloc(bytes, *size + 1) : NULL;
    if (!*text) {
        gd_free(bytes);
        return status == GD_OK ? GD_ERR_MEMORY : status;
    }
    (*text)[*size] = '\0';
    return GD_OK;
}

static gd_status read_rows(rows *r, const char *list)
{
    char *text;
    size_t size;
    gd_status status = read_text(list, &text, &size);
    if (status != GD_OK)
        return status;
    if (memchr(text, '\0', size))
        status = gd_fail(GD_ERR_FORMAT, "%s: not a text file", list);
    int line = 0;
    for (char *at = text; status == GD_OK && at;) {
        char *end = strchr(at, '\n'), *next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        status = read_line(r, list, at, ++line);
        at = next;
    }
    gd_free(text);
    if (status == GD_OK && r->paths.count == 0)
        status = gd_fail(GD_ERR_FORMAT, "%s: names no images", list);
    return status;
}

/* The different names of `all`, sorted. */
static gd_status make_classes(const gd_name_list *all, gd_name_list *classes)
{
    gd_name_list sorted = { 0 };
    bool ok = true;
    for (size_t i = 0; ok && i < all->count; i++)
        ok = gd_name_list_add(&sorted, all->name[i]);
    gd_name_list_sort(&sorted);
    for (size_t i = 0; ok && i < sorted.count; i++)
        if (i == 0 || strcmp(sorted.name[i], sorted.name[i - 1]) != 0)
            ok = gd_name_list_add(classes, sorted.name[i]);
    gd_name_list_free(&sorted);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

static gd_status make_files(const rows *r, gd_image_files *files)
{
    gd_status status = make_classes(&r->classes, &files->classes);
    for (size_t i = 0; status == GD_OK && i < r->paths.count; i++)
        status = gd_image_files_add(files, r->paths.name[i],
                                    gd_name_list_find(&files->classes, r->classes.name[i]));
    return status;
}

gd_dataset *gd_image_list_with(gd_context *context, const char *path, int64_t height, int64_t width,
                               const gd_image_options *options)
{
    gd_image_options o;
    if (!gd_image_options_read("gd_image_list", &o, options, path, height, width) || !context)
        return NULL;
    rows r = { 0 };
    gd_image_files files = { 0 };
    gd_status status = read_rows(&r, path);
    if (status == GD_OK)
        status = make_files(&r, &files);
    gd_name_list_free(&r.paths);
    gd_name_list_free(&r.classes);
    if (status == GD_OK)
        return gd_image_dataset(context, &files, height, width, &o);
    gd_image_files_free(&files);
    return NULL;
}
