/* gradus/checkpoint.h: whole trainings in files, from which they go on as if they had never been
 * stopped, bit for bit. gd_fit saves and resumes by itself (gradus/train.h); this is for loops of
 * one's own. Start at gd_training_save() for a file, at gd_run_open() for a folder that is kept while
 * a program trains:
 *
 *     gd_training training = { GD_TRAINING_DEFAULTS, .model = model, .optimizer = optimizer };
 *     gd_run *run = gd_run_open("runs/1");
 *     gd_run_save(run, &training, false);
 *     gd_run_load(run, &training, NULL);
 *     gd_run_close(run);
 *
 * (gd_checkpoint, in gradus/autograd.h, is something else: to compute again instead of to keep.)
 */
#ifndef GRADUS_CHECKPOINT_H
#define GRADUS_CHECKPOINT_H

#include <gradus/data.h>
#include <gradus/io.h>
#include <gradus/model.h>
#include <gradus/optim.h>
#include <gradus/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All that goes on changing while something is trained. What is NULL is not saved, and one of model,
 * module and optimizer is needed. The context's random stream (dropout) is always among it. */
typedef struct gd_training {
    size_t size GD_DEFAULT(sizeof(gd_training));
    gd_model *model;   /* its parameters, buffers and description */
    gd_module *module; /* parameters and buffers; NULL: the model's, or the optimizer's */
    gd_optimizer *optimizer;
    gd_ema *ema;
    gd_plateau *plateau;
    int tensor_count; /* further state, of the same context: names that differ, shapes that stay */
    const gd_named_tensor *tensors;
    int metadata_count; /* strings, to be read with gd_tensor_file_metadata */
    const gd_metadata *metadata;
} gd_training;
#define GD_TRAINING_DEFAULTS .size = sizeof(gd_training), .metadata = NULL

/* Write it to one safetensors file, atomically and down to the disk, with a checksum. gd_model_load
 * and gd_module_load can read the file too, and pass over what is not theirs: so a file of a model
 * with strings of one's own is a training of a model alone. The same state gives the same bytes.
 * GD_ERR_INVALID: a key of metadata that is used here ("optimizer"); errors of gd_tensors_save. */
GD_API gd_status gd_training_save(const gd_training *training, const char *path);
/* Read it back into objects that were made as those that were saved: same options, same model (a
 * module may still be without parameters: its layers then find them). GD_ERR_FORMAT: the file is
 * damaged, is no such file, or of another model or optimizer, and says what differs; then nothing has
 * changed, but that a module without parameters may have been filled. The random stream and all
 * numbers are those of the moment of saving. */
GD_API gd_status gd_training_load(const gd_training *training, const char *path);

/* ---- run folders ---- */

/* A folder that one process writes to: "lock", and in "checkpoints" the files "last.safetensors",
 * "previous.safetensors", the one before it, and "best.safetensors". At any instant, whatever ends the
 * process, last (or, where the file system has no hard links, last or previous) is a whole file. */
typedef struct gd_run gd_run;

typedef struct gd_run_options {
    size_t size GD_DEFAULT(sizeof(gd_run_options));
    /* gd_run_save copies the values and returns; a thread writes them. Its memory is kept, as much
     * as the state has, and as much again once a best state waited to be written. */
    bool asynchronous GD_DEFAULT(true);
    /* seconds that thread leaves between one write and the next, so that short epochs do not wait for
     * the disk: of what is saved meanwhile the last and the best are written then, or by gd_run_wait
     * and gd_run_close. 0: none, and each is written */
    double interval GD_DEFAULT(1);
} gd_run_options;
#define GD_RUN_DEFAULTS .size = sizeof(gd_run_options), .asynchronous = true, .interval = 1

/* gd_run_open("runs/1"): make the folder, if need be, and hold it: until gd_run_close, or the end of
 * the process, every other gd_run_open of it, here or in another process, is GD_ERR_STATE and says
 * who has it. What a killed process left half written is removed. GD_ERR_IO. */
#define gd_run_open(...) GD_WITH_1(gd_run_open_with, gd_run_options, GD_RUN_DEFAULTS, __VA_ARGS__, )
GD_API gd_run *gd_run_open_with(const char *folder, const gd_run_options *options);
/* Have all that was saved written, and let go. Returns the error of the last write, if nobody has seen
 * it. NULL is fine. */
GD_API gd_status gd_run_close(gd_run *run);
GD_API const char *gd_run_folder(const gd_run *run);

/* Save as the last checkpoint; best: as the best, too. It waits while one before is being written; one
 * that still waits for its time is passed over, but for a best one. If the write before failed (a full
 * disk), it returns its error and saves nothing: the files that were there stay. A process that is
 * killed goes on from the last that was written, to the same bits. */
GD_API gd_status gd_run_save(gd_run *run, const gd_training *training, bool best);
/* Have all that was saved written now, and tell of errors. */
GD_API gd_status gd_run_wait(gd_run *run);
/* Whether there is a checkpoint to go on from; one that is being written counts when it is done. */
GD_API bool gd_run_has_checkpoint(gd_run *run);
/* Go on from the last checkpoint; where it is damaged, from the one before, with a warning
 * (gd_set_log_callback), and the damaged one is kept as "damaged.safetensors". Errors of gd_training_load, GD_ERR_IO: there is none. *path, if path is not
 * NULL, is the file that was read, as long as the run is open; NULL after an error. */
GD_API gd_status gd_run_load(gd_run *run, const gd_training *training, const char **path);

#ifdef __cplusplus
}
#endif
#endif
