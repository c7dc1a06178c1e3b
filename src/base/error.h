/* base/error.h: recording the calling thread's first error. The one place to put a breakpoint is
 * gd_fail(). */
#ifndef GD_BASE_ERROR_H
#define GD_BASE_ERROR_H

#include <gradus/base.h>

/* A thread's sentence, its closing zero included. Room for a list of all types of layers; what is
 * longer ends in "...". */
#define GD_ERROR_MESSAGE_BYTES 2048

/* Record `status` with a sentence, unless this thread already holds an error. Returns `status`. */
gd_status gd_fail(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* The same for a builder: records and returns NULL. */
void *gd_fail_null(gd_status status, const char *format, ...) GD_PRINTF(2, 3);

/* gd_fail(GD_ERR_MEMORY) with the size asked for. */
gd_status gd_fail_memory(size_t bytes);

/* Hand a message to the log callback, if one is set and the level is high enough. */
void gd_log_message(gd_log_level level, const char *format, ...) GD_PRINTF(2, 3);

#endif
