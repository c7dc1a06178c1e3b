/* backend/cuda/library.c: NVIDIA's driver, its run-time compiler, and its library of matrix products,
 * loaded when they are first asked for, and never unloaded: their threads may outlive us.
 *
 * They are looked for in the folders of $GRADUS_CUDA_PATH, separated by colons. An empty folder, and
 * no variable, stand for where a system has them: where the loader looks, and the toolkit's folder. */
#include "backend/cuda/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define TOOLKIT "/usr/local/cuda/lib64"
enum {
    OLDEST_DRIVER = 12000, /* CUDA 12.0 */
    PATH_BYTES = 1024,
    REASON = GD_CUDA_REASON,
};

static gd_cuda_api driver;
static gd_nvrtc_api compiler;
static gd_cublas_api products;
static bool has_driver, has_compiler, has_products;
static char no_driver[REASON], no_compiler[REASON], no_products[REASON];

/* ---- finding a library ---- */

/* From one folder, or with "" from where the system has it. */
static void *open_in(const char *folder, size_t length, const char *name)
{
    char path[PATH_BYTES];
    if (length == 0) {
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        return library ? library : open_in(TOOLKIT, strlen(TOOLKIT), name);
    }
    const int bytes = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, name);
    return bytes < PATH_BYTES ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

void *gd_cuda_library_open(const char *name)
{
    const char *folder = getenv("GRADUS_CUDA_PATH");
    for (folder = folder ? folder : "";; folder++) {
        const size_t length = strcspn(folder, ":");
        void *library = open_in(folder, length, name);
        folder += length;
        if (library || !*folder)
            return library;
    }
}

/* A data pointer as a pointer to a function, which ISO C has no conversion for. */
bool gd_cuda_library_find(void *library, const char *name, void *function, char reason[REASON])
{
    void *found = dlsym(library, name);
    if (found)
        *(void **)function = found;
    else
        snprintf(reason, REASON, "it has no function %s", name);
    return found;
}

/* ---- the driver ---- */

static void explain_begin(int error)
{
    char text[GD_CUDA_ERROR_TEXT];
    if (error == CUDA_ERROR_STUB_LIBRARY)
        snprintf(no_driver, REASON,
                 "the libcuda.so.1 that was found is the toolkit's stand-in for linking, and not "
                 "NVIDIA's driver");
    else if (error == CUDA_ERROR_NO_DEVICE)
        snprintf(no_driver, REASON, "NVIDIA's driver finds no device");
    else
        snprintf(no_driver, REASON, "NVIDIA's driver cannot begin: cuInit: %s",
                 gd_cuda_error_text(error, text));
}

static bool begin_driver(void)
{
    const int error = driver.cuInit(0);
    if (error != CUDA_SUCCESS) {
        explain_begin(error);
        return false;
    }
    (void)driver.cuDriverGetVersion(&driver.driver_version);
    if (driver.driver_version >= OLDEST_DRIVER)
        return true;
    snprintf(no_driver, REASON,
             "NVIDIA's driver is too old: it is for CUDA %d.%d, and CUDA %d.%d is needed",
             driver.driver_version / 1000, driver.driver_version % 1000 / 10, OLDEST_DRIVER / 1000,
             OLDEST_DRIVER % 1000 / 10);
    return false;
}

static void load_driver(void)
{
    void *library = gd_cuda_library_open("libcuda.so.1");
    if (!library) {
        snprintf(no_driver, REASON,
                 "libcuda.so.1 cannot be loaded: NVIDIA's driver is not installed");
        return;
    }
    bool is_whole = true;
#define DRIVER(name, parameters) \
    is_whole = is_whole && gd_cuda_library_find(library, #name, (void *)&driver.name, no_driver);
#include "backend/cuda/functions.def"
    if (is_whole)
        has_driver = begin_driver();
    else {
        char missing[REASON / 2];
        snprintf(missing, sizeof missing, "%.200s", no_driver);
        snprintf(no_driver, REASON, "NVIDIA's driver is too old: %s", missing);
    }
}

const gd_cuda_api *gd_cuda(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_driver);
    return has_driver ? &driver : gd_fail_null(GD_ERR_UNSUPPORTED, "cuda: %s", no_driver);
}

const char *gd_cuda_error_text(int error, char text[GD_CUDA_ERROR_TEXT])
{
    const char *name = NULL, *meaning = NULL;
    if (driver.cuGetErrorName && driver.cuGetErrorName(error, &name) == CUDA_SUCCESS && name &&
        driver.cuGetErrorString(error, &meaning) == CUDA_SUCCESS && meaning)
        snprintf(text, GD_CUDA_ERROR_TEXT, "%s: %s", name, meaning);
    else
        snprintf(text, GD_CUDA_ERROR_TEXT, "error %d", error);
    return text;
}

/* ---- the compiler ---- */

/* The one of a major version: a driver runs programs of its own major version and of older ones. */
static bool load_version(int major)
{
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", major);
    void *library = gd_cuda_library_open(name);
    if (!library)
        return false;
    bool is_whole = gd_cuda_library_find(library, "nvrtcGetErrorString",
                                         (void *)&compiler.nvrtcGetErrorString, no_compiler);
#define COMPILER(name, parameters) \
    is_whole =                     \
        is_whole && gd_cuda_library_find(library, #name, (void *)&compiler.name, no_compiler);
#include "backend/cuda/functions.def"
    return is_whole && compiler.nvrtcVersion(&compiler.major, &compiler.minor) == 0;
}

static void load_compiler(void)
{
    const int newest = driver.driver_version / 1000, oldest = OLDEST_DRIVER / 1000;
    for (int major = newest; major >= oldest && !has_compiler; major--)
        has_compiler = load_version(major);
    if (!has_compiler)
        snprintf(no_compiler, REASON,
                 "the compiler of kernels, NVRTC, cannot be loaded: no libnvrtc.so.%d%s was found; "
                 "it comes with the CUDA toolkit and with pip install nvidia-cuda-nvrtc, and "
                 "GRADUS_CUDA_PATH may name its folder",
                 newest, newest > oldest ? " or older" : "");
}

const gd_nvrtc_api *gd_nvrtc(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!gd_cuda())
        return NULL;
    (void)pthread_once(&once, load_compiler);
    return has_compiler ? &compiler : gd_fail_null(GD_ERR_UNSUPPORTED, "cuda: %s", no_compiler);
}

/* ---- matrix products ---- */

/* The one of a major version; *is_there: there is a file of that name. */
static bool load_products_of(int major, bool *is_there)
{
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", major);
    void *library = gd_cuda_library_open(name);
    *is_there = library != NULL;
    if (!library)
        return false;
    bool is_whole = gd_cuda_library_find(library, "cublasLtGetVersion",
                                         (void *)&products.cublasLtGetVersion, no_products) &&
                    gd_cuda_library_find(library, "cublasLtGetStatusName",
                                         (void *)&products.cublasLtGetStatusName, no_products);
#define PRODUCTS(name, parameters) \
    is_whole =                     \
        is_whole && gd_cuda_library_find(library, #name, (void *)&products.name, no_products);
#include "backend/cuda/functions.def"
    if (!is_whole) {
        char missing[REASON / 2];
        snprintf(missing, sizeof missing, "%.200s", no_products);
        snprintf(no_products, REASON, "the %s that was found is of no use: %s", name, missing);
        return false;
    }
    products.version = products.cublasLtGetVersion();
    if (products.version / 10000 == (size_t)major)
        return true;
    snprintf(no_products, REASON,
             "the %s that was found says that it is version %zu, and a version of %d is needed",
             name, products.version, major);
    return false;
}

/* The newest that is there, or none: what is wrong with that is not made good by an older one. */
static void load_products(void)
{
    const int newest = driver.driver_version / 1000, oldest = OLDEST_DRIVER / 1000;
    bool is_there = false;
    for (int major = newest; major >= oldest && !is_there; major--)
        has_products = load_products_of(major, &is_there);
    if (!is_there)
        snprintf(no_products, REASON,
                 "cuBLASLt cannot be loaded: no libcublasLt.so.%d%s was found; it comes with the "
                 "CUDA toolkit and with pip install nvidia-cublas, and GRADUS_CUDA_PATH may name "
                 "its folder",
                 newest, newest > oldest ? " or older" : "");
}

const gd_cublas_api *gd_cublas(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!gd_cuda())
        return NULL;
    (void)pthread_once(&once, load_products);
    return has_products
               ? &products
               : gd_fail_null(GD_ERR_UNSUPPORTED, "cuda: products of a library: %s", no_products);
}
