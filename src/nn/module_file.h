/* nn/module_file.h: a module's tensors and what a file says of them beside: for a whole training in
 * a file (train/training_file.c), which is a module's file with more in it. */
#ifndef GD_NN_MODULE_FILE_H
#define GD_NN_MODULE_FILE_H

#include <gradus/model.h>

#include "io/state_list.h"

/* The strings that describe a module, and the model it is of (NULL: of none). */
enum { GD_MODULE_STRINGS = 5 };
typedef struct gd_module_strings {
    int count;
    gd_metadata list[GD_MODULE_STRINGS];
    char *buffers, *order, *model;
} gd_module_strings;
gd_status gd_module_describe(const gd_module *m, const gd_model *model, gd_module_strings *strings);
void gd_module_strings_free(gd_module_strings *strings);

/* All parameters and buffers under their paths. GD_ERR_INVALID: a path is that of training state. */
gd_status gd_module_collect(const gd_module *m, gd_state_list *state);
/* What a file has of them into state; nothing is changed yet. dtypes are the same. */
gd_status gd_module_read(gd_module *m, const gd_tensor_file *file, const char *path,
                         gd_state_list *state);
/* Everything an open file has of a module into an empty one, whose layers find it there; within a
 * scope. */
gd_status gd_module_take(gd_module *m, const gd_tensor_file *file, const char *path);
/* Words of the stream of initial values that are used up. */
uint64_t gd_module_random_position(const gd_module *m);
void gd_module_random_seek(gd_module *m, uint64_t position);

#endif
