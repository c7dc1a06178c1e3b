/* backend/cpu/scratch.c: ends the process when a kernel takes more scratch than there is; see
 * scratch.h. */
#include "backend/cpu/scratch.h"

#include <stdio.h>
#include <stdlib.h>

void gd_scratch_overrun(size_t bytes, size_t left)
{
    fprintf(stderr, "gradus: a kernel takes %zu bytes of scratch where %zu are left\n", bytes,
            left);
    abort();
}
