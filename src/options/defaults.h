/* options/defaults.h: the table of gd_options_default, for tests. */
#ifndef GD_OPTIONS_DEFAULTS_H
#define GD_OPTIONS_DEFAULTS_H

#include <stddef.h>

/* The name of struct number i, from 0 on, and in *size what this version's takes; NULL behind the
 * last. */
const char *gd_options_type(size_t i, size_t *size);

#endif
