/* support/shared_data.h: data of tests that are too large for a source file. They lie in data/ of
 * the project (data/README.md), some compressed, else in ../shared/data beside it; with
 * $GRADUS_SHARED_DATA in that folder alone. A test that needs what is not there is skipped. */
#ifndef GD_TESTS_SHARED_DATA_H
#define GD_TESTS_SHARED_DATA_H

#include <stddef.h>

/* The path of a file there. Static text, until the next call. Skips the test when there is none. */
const char *shared_data(const char *file);
/* Its bytes, or those of file.gz decompressed, with a 0 behind them; the caller frees them. */
char *shared_text(const char *file, size_t *size);

#endif
