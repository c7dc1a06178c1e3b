/* train/run_folder.c: a folder one process trains in: its lock, its checkpoints, and the thread that
 * writes them: what is saved while it waits for its time takes the place of what was saved before.
 * Start at gd_run_save(). */
#include "train/training_file.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "io/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* Which of the states wait to be written. */
typedef struct states {
    bool has_last, has_best; /* the best one, where it is not the last */
    bool is_best;            /* the last is the best, too */
} states;

struct gd_run {
    char *folder, *last, *previous, *best, *next, *damaged;
    int lock;
    gd_snapshot last_state, best_state; /* the writer's while it is `writing` */
    bool asynchronous, started;
    double interval;
    pthread_t writer;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex: */
    states due;
    bool writing, hurried, ending;
    double written;   /* when the last write ended */
    gd_status failed; /* of it, not told yet */
    char message[GD_ERROR_MESSAGE_BYTES];
};

/* ---- the folder ---- */

static char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = gd_alloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* A process that has been killed holds its lock until the system has taken it down, which with much
 * memory takes a while: the lock of another process is waited for, a second at most. false: errno. */
static bool take_lock(int file, char *who, size_t size)
{
    enum { TRIES = 100 };
    const struct timespec pause = { .tv_nsec = 10000000 };
    for (int i = 0; flock(file, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK)
            return false;
        ssize_t length = pread(file, who, size - 1, 0);
        who[length > 0 ? strcspn(who, "\n") : 0] = '\0';
        errno = EWOULDBLOCK;
        if (i == TRIES || strtol(who, NULL, 10) == (long)getpid())
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

/* Hold the folder, and write who does. A lock of the system's own: it ends with the process, however
 * that ends. */
static gd_status lock_folder(gd_run *run)
{
    char *path = join(run->folder, "lock"), who[32] = "";
    if (!path)
        return GD_ERR_MEMORY;
    gd_status status = GD_OK;
    run->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->lock < 0) {
        status = gd_fail(GD_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    } else if (!take_lock(run->lock, who, sizeof who)) {
        status = errno == EWOULDBLOCK
                     ? gd_fail(GD_ERR_STATE, "%s: process %s trains in this folder", run->folder,
                               who[0] ? who : "(unknown)")
                     : gd_fail(GD_ERR_IO, "%s: cannot lock: %s", path, strerror(errno));
    } else {
        int length = snprintf(who, sizeof who, "%ld\n", (long)getpid());
        if (ftruncate(run->lock, 0) != 0 || write(run->lock, who, (size_t)length) != length)
            status = gd_fail(GD_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    gd_free(path);
    return status;
}

/* Remove what gd_file_write_atomic had begun when the process was killed. */
static void remove_leftovers(const char *folder)
{
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *path = fnmatch("*.[0-9]*-[0-9]*.tmp", entry->d_name, 0) == 0
                         ? join(folder, entry->d_name)
                         : NULL;
        if (path)
            (void)unlink(path);
        gd_free(path);
    }
    if (directory)
        closedir(directory);
}

static gd_status open_folder(gd_run *run, const char *folder)
{
    run->lock = -1;
    run->folder = gd_strdup(folder);
    char *checkpoints = join(folder, "checkpoints");
    run->last = join(folder, "checkpoints/last.safetensors");
    run->previous = join(folder, "checkpoints/previous.safetensors");
    run->best = join(folder, "checkpoints/best.safetensors");
    run->next = join(folder, "checkpoints/next.safetensors");
    run->damaged = join(folder, "checkpoints/damaged.safetensors");
    gd_status status = GD_ERR_MEMORY;
    if (run->folder && checkpoints && run->last && run->previous && run->best && run->next &&
        run->damaged)
        status = gd_folder_create(checkpoints);
    if (status == GD_OK)
        status = lock_folder(run);
    if (status == GD_OK) {
        remove_leftovers(folder);
        remove_leftovers(checkpoints);
    }
    gd_free(checkpoints);
    return status;
}

static void free_run(gd_run *run)
{
    if (run->lock >= 0)
        close(run->lock);
    gd_snapshot_free(&run->last_state);
    gd_snapshot_free(&run->best_state);
    gd_free(run->folder);
    gd_free(run->last);
    gd_free(run->previous);
    gd_free(run->best);
    gd_free(run->next);
    gd_free(run->damaged);
    pthread_mutex_destroy(&run->mutex);
    pthread_cond_destroy(&run->changed);
    gd_free(run);
}

gd_run *gd_run_open_with(const char *folder, const gd_run_options *options)
{
    gd_run_options o = { GD_RUN_DEFAULTS };
    if (!gd_options_read("gd_run_open", &o, sizeof o, options))
        return NULL;
    if (!folder || !folder[0])
        return gd_fail_null(GD_ERR_INVALID, "gd_run_open: the folder has no name");
    if (!(o.interval >= 0.0))
        return gd_fail_null(GD_ERR_INVALID, "gd_run_open: an interval of %g seconds", o.interval);
    gd_run *run = gd_alloc_zero(1, sizeof *run);
    if (!run)
        return NULL;
    run->asynchronous = o.asynchronous;
    run->interval = o.interval;
    run->written = -INFINITY;
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->changed, NULL);
    if (open_folder(run, folder) == GD_OK)
        return run;
    free_run(run);
    return NULL;
}

const char *gd_run_folder(const gd_run *run)
{
    return run ? run->folder : "";
}

/* ---- writing ---- */

/* last becomes previous. Whenever the process ends, last is there, if there are hard links. */
static gd_status rotate(const gd_run *run)
{
    if (access(run->last, F_OK) != 0)
        return GD_OK;
    gd_status status = gd_file_link(run->last, run->previous);
    return status == GD_ERR_UNSUPPORTED ? gd_file_rename(run->last, run->previous) : status;
}

/* The best comes before the last: a process that is killed in between finds it again when it goes on
 * from the last but one. */
static gd_status write_files(const gd_run *run, states due)
{
    gd_status status = due.has_best ? gd_snapshot_write(&run->best_state, run->best) : GD_OK;
    if (status != GD_OK || !due.has_last)
        return status;
    status = gd_snapshot_write(&run->last_state, run->next);
    if (status == GD_OK && due.is_best) {
        status = gd_file_link(run->next, run->best);
        if (status == GD_ERR_UNSUPPORTED)
            status = gd_snapshot_write(&run->last_state, run->best);
    }
    if (status == GD_OK)
        status = rotate(run);
    return status == GD_OK ? gd_file_rename(run->next, run->last) : status;
}

static bool has_work(const gd_run *run)
{
    return run->due.has_last || run->due.has_best;
}

/* Called with the mutex held, which is let go while the files are written: meanwhile the next state may be
 * offered. */
static void write_pending(gd_run *run)
{
    const states due = run->due;
    run->due = (states){ 0 };
    run->writing = true;
    pthread_mutex_unlock(&run->mutex);
    gd_error_clear();
    gd_status status = write_files(run, due);
    pthread_mutex_lock(&run->mutex);
    if (status != GD_OK) {
        run->failed = status;
        snprintf(run->message, sizeof run->message, "%s", gd_error_last_message());
    }
    run->writing = false;
    run->written = gd_seconds();
    pthread_cond_broadcast(&run->changed);
}

/* Until something changes, or so many seconds have gone by. */
static void wait_at_most(gd_run *run, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double whole = floor(seconds);
    const long nanoseconds = until.tv_nsec + (long)((seconds - whole) * 1e9);
    until.tv_sec += (time_t)whole + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    (void)pthread_cond_timedwait(&run->changed, &run->mutex, &until);
}

static void *write_on(void *user)
{
    const double most = 60.0; /* of a wait, whatever the clock does */
    gd_run *run = user;
    pthread_mutex_lock(&run->mutex);
    while (!run->ending || has_work(run)) {
        const double left = run->written + run->interval - gd_seconds();
        if (!has_work(run))
            pthread_cond_wait(&run->changed, &run->mutex);
        else if (left > 0.0 && !run->hurried && !run->ending)
            wait_at_most(run, left < most ? left : most);
        else
            write_pending(run);
    }
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

/* A thread that leaves signals to the others. */
static gd_status start_writer(gd_run *run)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&run->writer, NULL, write_on, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return gd_fail(GD_ERR_MEMORY, "gd_run_save: cannot start a thread: %s", strerror(failed));
    run->started = true;
    return GD_OK;
}

/* Until all is written. The mutex is held. */
static void drain(gd_run *run)
{
    run->hurried = true;
    pthread_cond_broadcast(&run->changed);
    while (run->writing || has_work(run))
        pthread_cond_wait(&run->changed, &run->mutex);
    run->hurried = false;
}

/* The mutex is held, and let go. */
static gd_status take_failure(gd_run *run)
{
    gd_status status = run->failed;
    run->failed = GD_OK;
    pthread_mutex_unlock(&run->mutex);
    return status == GD_OK ? GD_OK : gd_fail(status, "%s", run->message);
}

gd_status gd_run_wait(gd_run *run)
{
    if (!run)
        return gd_fail(GD_ERR_INVALID, "gd_run_wait: the run is NULL");
    pthread_mutex_lock(&run->mutex);
    drain(run);
    return take_failure(run);
}

/* Makes the last state free to be overwritten: a best one that nobody has written yet is kept beside it,
 * unless a better one follows. */
static gd_status claim_state(gd_run *run, bool best)
{
    pthread_mutex_lock(&run->mutex);
    while (run->writing || (run->interval == 0.0 && has_work(run)))
        pthread_cond_wait(&run->changed, &run->mutex);
    if (run->due.has_last && run->due.is_best && !best) {
        const gd_snapshot state = run->best_state;
        run->best_state = run->last_state;
        run->last_state = state;
        run->due.has_best = true;
    }
    run->due.has_last = false;
    return take_failure(run);
}

static void offer_state(gd_run *run, bool best)
{
    pthread_mutex_lock(&run->mutex);
    run->due.has_last = true;
    run->due.is_best = best;
    run->due.has_best = run->due.has_best && !best;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

gd_status gd_run_save(gd_run *run, const gd_training *training, bool best)
{
    if (!run)
        return gd_fail(GD_ERR_INVALID, "gd_run_save: the run is NULL");
    gd_status status = claim_state(run, best);
    if (status == GD_OK)
        status = gd_training_snapshot(&run->last_state, training);
    if (status == GD_OK && run->asynchronous && !run->started)
        status = start_writer(run);
    if (status != GD_OK)
        return status;
    if (run->asynchronous) {
        offer_state(run, best);
        return GD_OK;
    }
    return write_files(run, (states){ .has_last = true, .is_best = best });
}

gd_status gd_run_close(gd_run *run)
{
    if (!run)
        return GD_OK;
    gd_status status = gd_run_wait(run);
    if (run->started) {
        pthread_mutex_lock(&run->mutex);
        run->ending = true;
        pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->mutex);
        pthread_join(run->writer, NULL);
    }
    free_run(run);
    return status;
}

/* ---- reading ---- */

/* Until nothing is being written; its error is left to be told. */
static void wait_for_writer(gd_run *run)
{
    pthread_mutex_lock(&run->mutex);
    drain(run);
    pthread_mutex_unlock(&run->mutex);
}

bool gd_run_has_checkpoint(gd_run *run)
{
    if (run)
        wait_for_writer(run);
    return run && (access(run->last, F_OK) == 0 || access(run->previous, F_OK) == 0);
}

gd_status gd_run_load(gd_run *run, const gd_training *training, const char **path)
{
    if (path)
        *path = NULL;
    if (!run)
        return gd_fail(GD_ERR_INVALID, "gd_run_load: the run is NULL");
    gd_status status = gd_run_wait(run);
    if (status != GD_OK)
        return status;
    if (!gd_run_has_checkpoint(run))
        return gd_fail(GD_ERR_IO, "%s: has no checkpoint", run->folder);
    const char *file = run->last;
    const uint64_t mark = gd_error_mark();
    if (access(run->previous, F_OK) == 0 && gd_training_check(run->last) != GD_OK) {
        gd_log_message(GD_LOG_WARNING, "%s; the checkpoint before it is taken",
                       gd_error_last_message());
        gd_error_rollback(mark);
        file = run->previous;
    }
    status = gd_training_load(training, file);
    /* A damaged last is set aside: the next save must not put it in place of the one that is whole. */
    if (status == GD_OK && file == run->previous && access(run->last, F_OK) == 0)
        status = gd_file_rename(run->last, run->damaged);
    if (status == GD_OK && path)
        *path = file;
    return status;
}
