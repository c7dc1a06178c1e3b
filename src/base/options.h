/* base/options.h: reading options that a caller has filled, who may have been compiled against another
 * version of their struct. */
#ifndef GD_BASE_OPTIONS_H
#define GD_BASE_OPTIONS_H

#include <gradus/base.h>

/* Copy what the caller has set into `own`, a struct of `size` bytes that holds the defaults and
 * begins with its size; given NULL leaves it so. Members the caller's struct does not have keep
 * their defaults. False, with the error recorded in the name of `who`: GD_ERR_INVALID for a struct
 * that nobody has filled (its size is 0 or less than a size_t), GD_ERR_UNSUPPORTED for one that is
 * larger than ours and has a further member set. */
bool gd_options_read(const char *who, void *own, size_t size, const void *given);

#endif
