/* backend/backend.c: which back ends there are. What one provides is in backend.h. */
#include "backend/backend.h"

#include <string.h>

static const gd_backend *const backends[] = { &gd_backend_cpu, &gd_backend_reference };

const gd_backend *gd_backend_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}
