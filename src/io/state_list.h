/* io/state_list.h: tensors that are kept, by their names in a file: what modules, optimizers and
 * averages are written from and read back into. */
#ifndef GD_IO_STATE_LIST_H
#define GD_IO_STATE_LIST_H

#include <gradus/io.h>

typedef struct gd_state_entry {
    char *name;
    gd_tensor *tensor; /* the owner's, borrowed */
    gd_tensor *value;  /* read from a file, within the scope of the reader; NULL: not read */
} gd_state_entry;

typedef struct gd_state_list {
    gd_state_entry *list;
    size_t count, capacity;
} gd_state_list;

/* "<prefix><path>.<suffix>"; prefix and suffix (with its dot) may be NULL. */
gd_status gd_state_add(gd_state_list *state, const char *prefix, const char *path,
                       const char *suffix, gd_tensor *tensor);
void gd_state_list_free(gd_state_list *state);
/* The entry of that name, NULL if there is none. */
gd_state_entry *gd_state_find(const gd_state_list *state, const char *name);

/* Whose tensors of a file: those whose names begin with prefix. find: the tensor that one called
 * prefix + name is for, made when there can be one; NULL: there can be none, or an error, recorded.
 * whose: "optimizer", for messages. takes_bf16: floats in the file and floats of the owner's may differ
 * where one of them is bf16; they are converted. */
typedef struct gd_state_owner {
    const char *prefix, *whose;
    gd_tensor *(*find)(void *user, const char *name);
    void *user;
    bool takes_bf16;
} gd_state_owner;

/* Read all of an owner's tensors, with those they are for, into state. GD_ERR_FORMAT: one has another
 * shape or dtype, or is nobody's, or one of `has` (all there were before) is not in the file. */
gd_status gd_state_read(gd_state_list *state, const gd_tensor_file *file, const char *path,
                        gd_context *context, const gd_state_owner *owner, const gd_state_list *has);
/* Put what was read in place. */
gd_status gd_state_assign(const gd_state_list *state);

/* ---- names in checkpoints (gd_training_save): a module's tensors have their paths ---- */

#define GD_STATE_PREFIX "checkpoint/"
/* Whether a tensor of a file is not a module's, but of what trained it. */
bool gd_is_training_state(const char *name);

#endif
