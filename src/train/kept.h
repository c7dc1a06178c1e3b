/* train/kept.h: a copy of all that training steps change, in host memory, to be put back: for the
 * learning-rate range test, which leaves no trace, and for blame, which does steps again. */
#ifndef GD_TRAIN_KEPT_H
#define GD_TRAIN_KEPT_H

#include <gradus/train.h>

#include "io/state_list.h"

/* Whose state it is; what is NULL has none. */
typedef struct gd_kept_of {
    gd_optimizer *optimizer; /* and its module */
    gd_loader *loader;
    gd_ema *ema;
    int tensor_count; /* further ones */
    const gd_named_tensor *tensors;
} gd_kept_of;

typedef struct gd_kept {
    gd_state_list state;
    unsigned char *values; /* of all tensors of state, one after another */
    size_t capacity;
    gd_random_stream random;
    double lr;
    int64_t position; /* of the loader */
    bool is_full;
} gd_kept;

/* Copy it as it is now, in place of what was kept before, whose memory is used again. */
gd_status gd_kept_take(gd_kept *kept, const gd_kept_of *of);
/* Tensors that were made since are left as they are. Nothing happens where nothing was kept. */
gd_status gd_kept_restore(const gd_kept *kept, const gd_kept_of *of);
void gd_kept_free(gd_kept *kept);

#endif
