/* base/log.c: hands the library's messages to the callback the user set. It writes to no stream of
 * its own. */
#include "base/error.h"
#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#define MESSAGE_BYTES 1024

/* Read without the lock, so that a message nobody wants costs one load. GD_LOG_WARNING + 1: nobody
 * listens. */
static atomic_int lowest_level = GD_LOG_WARNING + 1;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the pair below */
static gd_log_callback sink_callback;
static void *sink_user;

void gd_set_log_callback(gd_log_callback callback, void *user, gd_log_level level)
{
    pthread_mutex_lock(&sink_lock);
    sink_callback = callback;
    sink_user = user;
    atomic_store(&lowest_level, callback ? (int)level : GD_LOG_WARNING + 1);
    pthread_mutex_unlock(&sink_lock);
}

void gd_log_message(gd_log_level level, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;

    /* The callback runs outside the lock: it may log, or replace itself. */
    pthread_mutex_lock(&sink_lock);
    gd_log_callback callback = sink_callback;
    void *user = sink_user;
    pthread_mutex_unlock(&sink_lock);
    if (!callback)
        return;

    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = gd_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length >= 0)
        callback(user, level, message);
}
