/* gradus/base.h: what every other header stands on: export macro, status codes, errors, memory,
 * logging.
 *
 * Errors. Functions that do work return gd_status. Functions that build a value return a pointer,
 * NULL on failure. NULL given to a builder gives NULL back in silence, so an expression is checked
 * once, at its end; functions that return gd_status call it GD_ERR_INVALID. The FIRST error of a
 * thread is kept, with a sentence a person can act on, until gd_error_clear(); later ones do not
 * replace it. The library never prints, exits or aborts on a user's input.
 */
#ifndef GRADUS_BASE_H
#define GRADUS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GD_VERSION_MAJOR  0
#define GD_VERSION_MINOR  1
#define GD_VERSION_PATCH  0
#define GD_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define GD_API                 __attribute__((visibility("default")))
#define GD_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define GD_API
#define GD_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, in kind. The sentence is gd_error_message(). */
typedef enum gd_status {
    GD_OK = 0,
    GD_ERR_INVALID,     /* an argument has no meaning here (NULL, negative count, unknown name) */
    GD_ERR_SHAPE,       /* shapes do not fit together, or an axis is out of range */
    GD_ERR_DTYPE,       /* the dtype is not accepted, or two dtypes do not go together */
    GD_ERR_MEMORY,      /* out of memory, or over a limit the user set */
    GD_ERR_IO,          /* the operating system refused: open, read, write, rename */
    GD_ERR_FORMAT,      /* a file or text is not what it claims to be */
    GD_ERR_UNSUPPORTED, /* meaningful, but this build or device cannot do it */
    GD_ERR_STATE,  /* the call comes at the wrong time (reading a traced value, closing an unopened
                      scope, using a tensor that was released) */
    GD_ERR_DEVICE, /* a device failed */
    GD_STATUS_COUNT
} gd_status;

/* The name of a status code, "GD_ERR_SHAPE". Never NULL. */
GD_API const char *gd_status_name(gd_status status);

/* Code of this thread's first error since the last gd_error_clear(); GD_OK if there was none. */
GD_API gd_status gd_error_code(void);

/* Sentence for this thread's first error; "" if there was none. Valid until the thread's next
 * gd_error_clear(). */
GD_API const char *gd_error_message(void);

/* Forget this thread's error. */
GD_API void gd_error_clear(void);

/* Record an error of the caller's own, as the library records its: in a callback, before it returns
 * the failure, so that the sentence is its. Long ones are cut off. GD_OK, or a number that is no
 * status, is recorded as GD_ERR_INVALID; NULL as "". Returns the status recorded. */
GD_API gd_status gd_error_record(gd_status status, const char *message);

/* Where heap memory comes from; only Jansson keeps its own malloc. resize(user, NULL, n) allocates,
 * resize(user, p, 0) releases and returns NULL, else reallocates; results are aligned for any
 * standard type. Called from several threads at once. */
typedef struct gd_allocator {
    void *(*resize)(void *user, void *block, size_t bytes);
    void *user;
} gd_allocator;

/* Replace the allocator (NULL restores malloc's). Only while no context is open and no block is
 * held. */
GD_API void gd_set_allocator(const gd_allocator *allocator);

/* Fault injection for tests: let `count` further allocations (of any kind, on any thread) succeed,
 * then fail every one until called again. A negative count switches it off. Returns the number of
 * allocations asked for since the last call. */
GD_API int64_t gd_fail_allocations_after(int64_t count);

typedef enum gd_log_level { GD_LOG_DEBUG, GD_LOG_INFO, GD_LOG_WARNING } gd_log_level;

/* Receives the library's messages. May be called from any thread. `message` lives only during the
 * call. */
typedef void (*gd_log_callback)(void *user, gd_log_level level, const char *message);

/* Send messages of at least `level` to `callback`; NULL (the default) drops them. */
GD_API void gd_set_log_callback(gd_log_callback callback, void *user, gd_log_level level);

/* "0.1.0" */
GD_API const char *gd_version(void);

/* Monotonic time in seconds, for measuring intervals. */
GD_API double gd_seconds(void);

#ifdef __cplusplus
}
#endif
#endif
