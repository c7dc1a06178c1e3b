/* backend/backend.c: which back ends and devices there are. What one provides is in backend.h. */
#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"

enum { MOST = 16, MOST_NUMBER = 9999 };
/* Ends with a NULL. */
static const gd_backend *backends[MOST + 1] = { &gd_backend_cpu, &gd_backend_reference,
                                                &gd_backend_opencl, &gd_backend_cuda };

/* The number behind the colon; -1: it is none. */
static int number_of(const char *text)
{
    char *end;
    const long number = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
    return number >= 0 && number <= MOST_NUMBER && *end == '\0' ? (int)number : -1;
}

const gd_backend *gd_backend_find(const char *name, int *index)
{
    const size_t length = strcspn(name, ":");
    *index = name[length] ? number_of(name + length + 1) : 0;
    for (int i = 0; backends[i] && *index >= 0; i++)
        if (strlen(backends[i]->name) == length && memcmp(backends[i]->name, name, length) == 0)
            return backends[i]->count || *index == 0 ? backends[i] : NULL;
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

gd_status gd_numbers_choose(gd_numbers chosen, gd_numbers *numbers)
{
    static const char *const names[] = { "exact", "library", "tf32", "fast" };
    const char *value = getenv("GRADUS_NUMBERS");
    *numbers = chosen == GD_NUMBERS_DEFAULT ? GD_NUMBERS_EXACT : chosen;
    if (chosen != GD_NUMBERS_DEFAULT || !value || !*value)
        return GD_OK;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(value, names[i]) == 0) {
            *numbers = (gd_numbers)(GD_NUMBERS_EXACT + i);
            return GD_OK;
        }
    return gd_fail(GD_ERR_INVALID, "GRADUS_NUMBERS=%s: must be exact, library, tf32 or fast",
                   value);
}

void gd_host_memory_size(const gd_device *device, size_t *total, size_t *available)
{
    (void)device;
    gd_memory_of_machine(total, available);
}

/* ---- devices by number ---- */

static int count_of(const gd_backend *backend)
{
    return backend->count ? backend->count() : 1;
}

int gd_device_count(void)
{
    int count = 0;
    for (int i = 0; backends[i]; i++)
        count += count_of(backends[i]);
    return count;
}

const char *gd_device_name(int index)
{
    for (int i = 0; backends[i] && index >= 0; i++) {
        const int count = count_of(backends[i]);
        if (index < count)
            return backends[i]->names ? backends[i]->names[index] : backends[i]->name;
        index -= count;
    }
    return NULL;
}

const char *gd_device_names(char text[GD_DEVICE_NAMES])
{
    size_t length = 0;
    const char *name;
    text[0] = '\0';
    for (int i = 0; (name = gd_device_name(i)) && length < GD_DEVICE_NAMES; i++)
        length += (size_t)snprintf(text + length, GD_DEVICE_NAMES - length, "%s\"%s\"",
                                   i == 0 ? "" : ", ", name);
    return text;
}
