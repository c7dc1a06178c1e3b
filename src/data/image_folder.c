/* data/image_folder.c: a folder of photographs as a data set: each folder in it is a class, in the
 * order of their names. Hidden files are skipped in silence; other files that are not JPEG or PNG
 * images are skipped with a warning. Start at gd_image_folder_with(). */
#include "data/images.h"

#include "base/error.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_photograph(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (strcasecmp(end, ".jpg") == 0 || strcasecmp(end, ".jpeg") == 0 ||
                   strcasecmp(end, ".png") == 0);
}

static gd_status join(char path[GD_PATH_BYTES], const char *folder, const char *name)
{
    if (snprintf(path, GD_PATH_BYTES, "%s/%s", folder, name) < GD_PATH_BYTES)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID, "%s: the path is too long", folder);
}

static bool is_folder(const char *folder, const char *name)
{
    char path[GD_PATH_BYTES];
    struct stat info;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* What a folder holds, sorted: files that `is` takes, or else, where it is NULL, folders. Names that begin
 * with a dot are hidden. */
static gd_status list_folder(const char *path, bool (*is)(const char *name), const char *what,
                             gd_name_list *list)
{
    DIR *folder = opendir(path);
    if (!folder)
        return gd_fail(GD_ERR_IO, "%s: cannot be read as a folder", path);
    bool ok = true;
    char other[256] = "";
    int others = 0;
    for (struct dirent *entry; ok && (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] == '.')
            continue;
        if (is ? is(name) : is_folder(path, name))
            ok = gd_name_list_add(list, name);
        else if (others++ == 0)
            snprintf(other, sizeof other, "%s", name);
    }
    closedir(folder);
    if (others > 0)
        gd_log_message(GD_LOG_WARNING, "%s: left out what is no %s: %s%s", path,
                       is ? what : "folder", other, others > 1 ? " and others" : "");
    gd_name_list_sort(list);
    return ok ? GD_OK : GD_ERR_MEMORY;
}

static gd_status list_class(gd_image_files *all, const char *folder, int64_t label,
                            bool (*is)(const char *name), const char *what)
{
    gd_name_list files = { 0 };
    gd_status status = list_folder(folder, is, what, &files);
    char path[GD_PATH_BYTES];
    for (size_t i = 0; status == GD_OK && i < files.count; i++) {
        status = join(path, folder, files.name[i]);
        if (status == GD_OK)
            status = gd_image_files_add(all, path, label);
    }
    gd_name_list_free(&files);
    return status;
}

gd_status gd_list_class_folders(gd_image_files *all, const char *folder,
                                bool (*is)(const char *name), const char *what)
{
    gd_status status = list_folder(folder, NULL, what, &all->classes);
    char path[GD_PATH_BYTES];
    for (size_t i = 0; status == GD_OK && i < all->classes.count; i++) {
        status = join(path, folder, all->classes.name[i]);
        if (status == GD_OK)
            status = list_class(all, path, (int64_t)i, is, what);
    }
    if (status == GD_OK && all->paths.count == 0)
        status = gd_fail(GD_ERR_IO, "%s: there is no %s in its folders", folder, what);
    return status;
}

gd_dataset *gd_image_folder_with(gd_context *context, const char *folder, int64_t height,
                                 int64_t width, const gd_image_options *options)
{
    gd_image_options o;
    if (!gd_image_options_read("gd_image_folder", &o, options, folder, height, width) || !context)
        return NULL;
    gd_image_files all = { 0 };
    if (gd_list_class_folders(&all, folder, is_photograph, "image (.jpg, .jpeg, .png)") == GD_OK)
        return gd_image_dataset(context, &all, height, width, &o);
    gd_image_files_free(&all);
    return NULL;
}
