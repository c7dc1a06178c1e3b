/* base/error.h: recording the calling thread's errors. The one place to put a breakpoint is
 * gd_fail().
 *
 * gd_error_code() is for users: it tells of the first error, which may be older than the current
 * call. A function of the library never asks it whether something failed: it looks at what was
 * returned, and returns that status, or gd_error_last() where only NULL or false came back. Where
 * neither tells (a body of the user's was run), it compares with a mark. */
#ifndef GD_BASE_ERROR_H
#define GD_BASE_ERROR_H

#include <gradus/base.h>

/* A thread's sentence, its closing zero included. Room for a list of all types of layers; what is
 * longer ends in "...". */
#define GD_ERROR_MESSAGE_BYTES 2048

/* Record `status` with a sentence, as this thread's newest error; the user sees it if no earlier
 * one is pending. Returns `status`. */
gd_status gd_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* The same for a builder: records and returns NULL. */
void *gd_fail_null(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* gd_fail(GD_ERR_STATE) for what a compiled function's body cannot do while it is traced: read or
 * write values from the host, which would happen then and not at every call. */
gd_status gd_fail_traced(const char *who);

/* gd_fail(GD_ERR_MEMORY) with the size asked for. */
gd_status gd_fail_memory(size_t bytes);

/* How many errors this thread has recorded: a mark for the two functions that follow. */
uint64_t gd_error_mark(void);

/* Status of the newest error, if it was recorded since the mark, perhaps behind an older one that
 * the user still sees, and has not been cleared; else GD_OK. */
gd_status gd_error_since(uint64_t mark);

/* Forget the errors recorded since the mark, after an attempt that was allowed to fail. An error that
 * was pending at the mark stays pending, unless it was cleared since. */
void gd_error_rollback(uint64_t mark);

/* Status of the newest error: what to return when something that was called failed; and its
 * sentence. */
gd_status gd_error_last(void);
const char *gd_error_last_message(void);

/* The value of `call`, a gd_tensor * or gd_status, in which every sentence that begins with the
 * name of a function, "gd_sum: axis 5 …", is recorded under the name of the public function that
 * was called: GD_AS("gd_std", gd_sqrt(…)). Of nested ones the outermost gives the name. Not around
 * functions of the user's. */
#define GD_AS(name, call)                                        \
    (gd_name_begin(name), _Generic((call), gd_status             \
                                   : gd_name_end_status, default \
                                   : gd_name_end)(call))
void gd_name_begin(const char *name);
void *gd_name_end(void *result);
gd_status gd_name_end_status(gd_status result);

/* What a callback of the user's returned, as the status of the function that called it; where it
 * recorded nothing since the mark, a sentence is recorded here. */
gd_status gd_callback_status(gd_status returned, uint64_t mark, const char *who);

/* Hand a message to the log callback, if one is set and the level is high enough. */
void gd_log_message(gd_log_level level, const char *format, ...) GD_PRINTF(2, 3);

#endif
