/* base/base.c: version and clock. */
#include <gradus/base.h>

#include <time.h>

const char *gd_version(void)
{
    return GD_VERSION_STRING;
}

double gd_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
