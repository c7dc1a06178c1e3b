/* backend/opencl/library.c: the system's OpenCL library, or the one in the folder $GRADUS_OPENCL_PATH,
 * loaded when it is first asked for, and never unloaded: its threads may outlive us. */
#include "backend/opencl/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#ifdef __APPLE__
#define LIBRARY "/System/Library/Frameworks/OpenCL.framework/OpenCL"
#else
#define LIBRARY "libOpenCL.so.1"
#endif
#define FILE_NAME (strrchr("/" LIBRARY, '/') + 1)

static gd_opencl_api api;
static bool is_loaded;
static char reason[256];

/* A data pointer as a pointer to a function, which ISO C has no conversion for. */
static bool find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (found)
        *(void **)function = found;
    else
        snprintf(reason, sizeof reason, "%s has no function %s", LIBRARY, name);
    return found;
}

static void *open_library(void)
{
    const char *folder = getenv("GRADUS_OPENCL_PATH");
    char path[PATH_MAX] = LIBRARY;
    if (folder && *folder)
        snprintf(path, sizeof path, "%s/%s", folder, FILE_NAME);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void load(void)
{
    void *library = open_library();
    if (!library) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "%s", why ? why : LIBRARY " cannot be loaded");
        return;
    }
#define FIND(result, name, parameters) &&find_function(library, #name, &api.name)
    is_loaded = true GD_OPENCL_FUNCTIONS(FIND);
}

const gd_opencl_api *gd_opencl(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    if (!is_loaded)
        return gd_fail_null(GD_ERR_UNSUPPORTED, "%s", reason);
    return &api;
}

int gd_opencl_devices(cl_device_id devices[GD_OPENCL_MOST_DEVICES],
                      cl_platform_id platforms[GD_OPENCL_MOST_DEVICES])
{
    const gd_opencl_api *cl = gd_opencl();
    cl_platform_id all[GD_OPENCL_MOST_DEVICES];
    cl_uint platform_count = 0;
    if (!cl || cl->clGetPlatformIDs(GD_OPENCL_MOST_DEVICES, all, &platform_count) != CL_SUCCESS)
        return 0;
    int count = 0;
    for (cl_uint p = 0; p < platform_count && p < GD_OPENCL_MOST_DEVICES; p++) {
        cl_uint found = 0;
        const cl_uint room = (cl_uint)(GD_OPENCL_MOST_DEVICES - count);
        if (room == 0 || cl->clGetDeviceIDs(all[p], (cl_bitfield)CL_DEVICE_TYPE_ALL_LOW, room,
                                            devices + count, &found) != CL_SUCCESS)
            continue;
        for (found = found < room ? found : room; found > 0; found--)
            platforms[count++] = all[p];
    }
    return count;
}

const char *gd_opencl_error_name(cl_int code, char text[32])
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
        { -1, "CL_DEVICE_NOT_FOUND" },
        { -2, "CL_DEVICE_NOT_AVAILABLE" },
        { -3, "CL_COMPILER_NOT_AVAILABLE" },
        { -4, "CL_MEM_OBJECT_ALLOCATION_FAILURE" },
        { -5, "CL_OUT_OF_RESOURCES" },
        { -6, "CL_OUT_OF_HOST_MEMORY" },
        { -11, "CL_BUILD_PROGRAM_FAILURE" },
        { -14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST" },
        { -30, "CL_INVALID_VALUE" },
        { -33, "CL_INVALID_DEVICE" },
        { -34, "CL_INVALID_CONTEXT" },
        { -36, "CL_INVALID_COMMAND_QUEUE" },
        { -38, "CL_INVALID_MEM_OBJECT" },
        { -42, "CL_INVALID_BINARY" },
        { -46, "CL_INVALID_KERNEL_NAME" },
        { -48, "CL_INVALID_KERNEL" },
        { -51, "CL_INVALID_ARG_SIZE" },
        { -52, "CL_INVALID_KERNEL_ARGS" },
        { -54, "CL_INVALID_WORK_GROUP_SIZE" },
        { -61, "CL_INVALID_BUFFER_SIZE" },
        { -63, "CL_INVALID_GLOBAL_WORK_SIZE" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code)
            return names[i].name;
    snprintf(text, 32, "OpenCL's error %d", (int)code);
    return text;
}
