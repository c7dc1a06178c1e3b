/* train/training_file.h: whole trainings, copied to be written by another thread. */
#ifndef GD_TRAIN_TRAINING_FILE_H
#define GD_TRAIN_TRAINING_FILE_H

#include <gradus/checkpoint.h>

#include "io/snapshot.h"

/* Whether strings of the user's own can stand in a checkpoint beside those that are always there: keys
 * that are used, or twice there, are GD_ERR_INVALID. */
gd_status gd_training_check_metadata(const char *who, int count, const gd_metadata *metadata);
/* All of it as it is now. Errors of gd_training_save, but for those of the file. */
gd_status gd_training_snapshot(gd_snapshot *snapshot, const gd_training *training);
/* Whether a file is a whole checkpoint: GD_ERR_IO, GD_ERR_FORMAT. */
gd_status gd_training_check(const char *path);

#endif
