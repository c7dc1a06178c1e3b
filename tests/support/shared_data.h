/* support/shared_data.h: data that is not part of the project. It lies in $GRADUS_SHARED_DATA, else
 * in
 * ../shared/data beside the project; a test that needs what is not there is skipped. */
#ifndef GD_TESTS_SHARED_DATA_H
#define GD_TESTS_SHARED_DATA_H

#include <stddef.h>

/* The path of a file there. Static text, until the next call. Skips the test when there is none. */
const char *shared_data(const char *file);
/* Its bytes, with a 0 behind them; the caller frees them. */
char *shared_text(const char *file, size_t *size);

#endif
