/* data/images.h: data sets of image files. What files there are is found out by data/image_folder.c
 * and data/image_list.c; data/images.c reads them when they are asked for. */
#ifndef GD_DATA_IMAGES_H
#define GD_DATA_IMAGES_H

#include <gradus/data.h>

#define GD_PATH_BYTES 4096

typedef struct gd_name_list {
    char **name;
    size_t count, capacity;
} gd_name_list;

bool gd_name_list_add(gd_name_list *list, const char *name); /* a copy; false: GD_ERR_MEMORY */
void gd_name_list_sort(gd_name_list *list);
int64_t gd_name_list_find(const gd_name_list *sorted, const char *name); /* -1: not there */
void gd_name_list_free(gd_name_list *list);

/* Files and their classes. */
typedef struct gd_image_files {
    gd_name_list paths, classes;
    int64_t *labels; /* [paths.count] */
    size_t label_capacity;
} gd_image_files;

gd_status gd_image_files_add(gd_image_files *files, const char *path, int64_t label);
void gd_image_files_free(gd_image_files *files);
/* A hash of their names in their folders and, of 4,096 files at most, their sizes. */
uint64_t gd_image_files_fingerprint(const gd_image_files *files);

/* All files in the folders of a folder, which are classes, whose names `is` takes; `what` they are is
 * told where there are others, or none. */
gd_status gd_list_class_folders(gd_image_files *all, const char *folder,
                                bool (*is)(const char *name), const char *what);

/* What does not depend on files, checked. */
bool gd_image_options_read(const char *who, gd_image_options *out, const gd_image_options *given,
                           const char *path, int64_t height, int64_t width);

/* The data set of these files, which are taken over, whether it succeeds or not. */
gd_dataset *gd_image_dataset(gd_context *context, gd_image_files *files, int64_t height,
                             int64_t width, const gd_image_options *options);

#endif
