/* backend/cuda/cudnn.c: cuDNN, loaded when it is first asked for, from where CUDA's other libraries are
 * looked for (library.c), and never unloaded. */
#include "backend/cuda/cudnn.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"

#define FILE_NAME "libcudnn.so.9"
enum {
    OLDEST = 90000,
    NEWEST = 99999
}; /* 9.0.0: its graph API; a new major version has another file */

static gd_cudnn_api dnn;
static bool has_dnn;
static char no_dnn[GD_CUDA_REASON];

static void set_missing(const char *function_reason)
{
    snprintf(no_dnn, sizeof no_dnn, "the " FILE_NAME " that was found is of no use: %.200s",
             function_reason);
}

static bool find_functions(void *library)
{
    char reason[GD_CUDA_REASON] = "";
    bool is_whole =
        gd_cuda_library_find(library, "cudnnGetErrorString", (void *)&dnn.cudnnGetErrorString,
                             reason) &&
        gd_cuda_library_find(library, "cudnnGetLastErrorString",
                             (void *)&dnn.cudnnGetLastErrorString, reason) &&
        gd_cuda_library_find(library, "cudnnGetVersion", (void *)&dnn.cudnnGetVersion, reason);
#define CUDNN_FUNCTION(name, parameters) \
    is_whole = is_whole && gd_cuda_library_find(library, #name, (void *)&dnn.name, reason);
#include "backend/cuda/cudnn.def"
    if (!is_whole)
        set_missing(reason);
    return is_whole;
}

static void load(void)
{
    void *library = gd_cuda_library_open(FILE_NAME);
    if (!library) {
        snprintf(no_dnn, sizeof no_dnn,
                 "cuDNN cannot be loaded: no " FILE_NAME " was found; it comes with pip install "
                 "nvidia-cudnn-cu13 or from NVIDIA's site, and GRADUS_CUDA_PATH may name its "
                 "folder");
        return;
    }
    if (!find_functions(library))
        return;
    dnn.version = (int)dnn.cudnnGetVersion();
    has_dnn = dnn.version >= OLDEST && dnn.version <= NEWEST;
    if (!has_dnn)
        snprintf(no_dnn, sizeof no_dnn,
                 "the " FILE_NAME " that was found says that it is version %d, and cuDNN 9 "
                 "(%d or newer) is needed",
                 dnn.version, OLDEST);
}

const gd_cudnn_api *gd_cudnn(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load);
    return has_dnn
               ? &dnn
               : gd_fail_null(GD_ERR_UNSUPPORTED, "cuda: convolutions of a library: %s", no_dnn);
}

gd_status gd_cudnn_check(const gd_cudnn_api *api, const char *who, int status, const char *what)
{
    char last[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return GD_OK;
    api->cudnnGetLastErrorString(last, sizeof last);
    last[sizeof last - 1] = '\0';
    return gd_fail(status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
                       ? GD_ERR_MEMORY
                       : GD_ERR_DEVICE,
                   "%s: %s of cuDNN %d.%d.%d: %s%s%s", who, what, api->version / 10000,
                   api->version / 100 % 100, api->version % 100, api->cudnnGetErrorString(status),
                   last[0] ? ": " : "", last);
}
