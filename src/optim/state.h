/* optim/state.h: what optimizers and averages keep from step to step, as named tensors: for whole
 * trainings in a file (train/training_file.c). */
#ifndef GD_OPTIM_STATE_H
#define GD_OPTIM_STATE_H

#include <gradus/optim.h>

#include "io/state_list.h"

/* All state there is, as "<prefix><path>.<state>". */
gd_status gd_optimizer_collect(const gd_optimizer *optimizer, const char *prefix,
                               gd_state_list *state);
/* What a file has of it into state, and the learning rate; nothing is changed yet. */
gd_status gd_optimizer_read(gd_optimizer *optimizer, const char *prefix, const gd_tensor_file *file,
                            const char *path, gd_state_list *state, double *lr);

/* Whether losses are scaled, also where the factor has come down to 1. */
bool gd_optimizer_scales_losses(const gd_optimizer *optimizer);

/* Averages, as "<prefix><path>", and "<prefix>updates", how many there have been. */
gd_status gd_ema_collect(const gd_ema *ema, const char *prefix, gd_state_list *state);
gd_status gd_ema_read(gd_ema *ema, const char *prefix, const gd_tensor_file *file, const char *path,
                      gd_state_list *state);

#endif
