/* backend/backend.c: which back ends there are. What one provides is in backend.h. */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"

enum { MOST = 16 };
/* Ends with a NULL. */
static const gd_backend *backends[MOST + 1] = { &gd_backend_cpu, &gd_backend_reference };

const gd_backend *gd_backend_at(int i)
{
    return i >= 0 && i < MOST ? backends[i] : NULL;
}

const gd_backend *gd_backend_find(const char *name)
{
    for (int i = 0; name && backends[i]; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

gd_status gd_backend_add(const gd_backend *backend)
{
    int i = 0;
    while (backends[i] && strcmp(backends[i]->name, backend->name) != 0)
        i++;
    if (i == MOST || (backends[i] && backends[i] != backend))
        return gd_fail(GD_ERR_STATE, "back end \"%s\" cannot be added: %s", backend->name,
                       i == MOST ? "there are too many" : "there is one of that name");
    backends[i] = backend;
    return GD_OK;
}

const char *gd_backend_names(char text[GD_BACKEND_NAMES])
{
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; backends[i] && length < GD_BACKEND_NAMES; i++)
        length += (size_t)snprintf(text + length, GD_BACKEND_NAMES - length, "%s\"%s\"",
                                   i == 0 ? "" : ", ", backends[i]->name);
    return text;
}

void gd_host_memory_size(const gd_device *device, size_t *total, size_t *available)
{
    (void)device;
    gd_memory_of_machine(total, available);
}

/* ---- gd_device_count and gd_device_name: every back end has one device, of its name ---- */

int gd_device_count(void)
{
    int count = 0;
    while (backends[count])
        count++;
    return count;
}

const char *gd_device_name(int index)
{
    const gd_backend *backend = gd_backend_at(index);
    return backend ? backend->name : NULL;
}
