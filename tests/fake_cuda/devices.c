/* tests/fake_cuda/devices.c: the fake driver: devices, contexts, errors. See driver.h. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MOST_STACKED = 16 };

fake_cuda fake_machine = { .fail_at = -1 };
static pthread_mutex_t lock; /* recursive */
static bool is_begun;

void fake_cuda_forbid(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "fake CUDA: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void read_settings(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    fake_machine.driver_version = (int)setting("FAKE_CUDA_DRIVER", 13000);
    fake_machine.architecture = (int)setting("FAKE_CUDA_ARCHITECTURE", 90);
    fake_machine.devices = (int)setting("FAKE_CUDA_DEVICES", 2);
    fake_machine.memory = (size_t)setting("FAKE_CUDA_MEMORY", 4L << 30);
    fake_machine.seed = (uint64_t)setting("FAKE_CUDA_SEED", 1);
}

fake_cuda *fake_cuda_state(void)
{
    return &fake_machine;
}

static bool ends_context(int error)
{
    return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_FAILED;
}

bool fake_cuda_call(void)
{
    return fake_machine.calls++ == fake_machine.fail_at;
}

/* The same for the driver's. */
static int driver_call(void)
{
    const bool fails = fake_cuda_call();
    if (fails && !fake_machine.lost && ends_context(fake_machine.fail_with))
        fake_machine.lost = fake_machine.fail_with;
    return fake_machine.lost ? fake_machine.lost : fails ? fake_machine.fail_with : CUDA_SUCCESS;
}

uint64_t fake_draw(void)
{
    return fake_mix(fake_machine.seed++);
}

/* ---- contexts ---- */

enum { MOST_DEVICES = 8 };
static struct CUctx_st contexts[MOST_DEVICES];
static _Thread_local CUcontext stack[MOST_STACKED];
static _Thread_local int stacked;

static CUcontext current(void)
{
    return stacked ? stack[stacked - 1] : NULL;
}

/* fake_begin(): of a function that needs a context. */
int fake_begin_without_context(void)
{
    pthread_mutex_lock(&lock);
    if (!is_begun)
        fake_cuda_forbid("a function of the driver is called before cuInit");
    return driver_call();
}

int fake_begin(void)
{
    const int error = fake_begin_without_context();
    return error                                    ? error
           : !current() || current()->retained == 0 ? CUDA_ERROR_INVALID_CONTEXT
                                                    : CUDA_SUCCESS;
}

int fake_end(int error)
{
    pthread_mutex_unlock(&lock);
    return error;
}

int cuInit(unsigned flags)
{
    (void)flags;
    is_begun = true;
    pthread_mutex_lock(&lock);
    return fake_end(fake_machine.devices == 0 ? CUDA_ERROR_NO_DEVICE : driver_call());
}

int cuDriverGetVersion(int *version)
{
    *version = fake_machine.driver_version;
    return CUDA_SUCCESS;
}

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    { CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
    { CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
      "no kernel image is available for execution on the device" },
    { CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
};

int cuGetErrorName(int error, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return *name = errors[i].name, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return *text = errors[i].text, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    *count = fake_machine.devices;
    return fake_end(fake_begin_without_context());
}

int cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    const int error = fake_begin_without_context();
    return fake_end(error ? error : index < fake_machine.devices ? 0 : CUDA_ERROR_INVALID_DEVICE);
}

int cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return fake_end(fake_begin_without_context());
}

int cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    (void)device;
    *value =
        attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? fake_machine.architecture / 10
        : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? fake_machine.architecture % 10
        : attribute == CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH ? fake_machine.architecture >= 90
                                                          : 4;
    return fake_end(fake_begin_without_context());
}

int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = fake_machine.memory;
    return fake_end(fake_begin_without_context());
}

int cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const int error = fake_begin_without_context();
    if (error == 0) {
        *context = &contexts[device];
        (*context)->kind = CONTEXT;
        (*context)->retained++;
        fake_machine.contexts++;
    }
    return fake_end(error);
}

int cuCtxPushCurrent_v2(CUcontext context)
{
    const int error = fake_begin_without_context();
    EXPECT(context, CONTEXT);
    if (error == 0 && stacked == MOST_STACKED)
        fake_cuda_forbid("contexts are made current and not taken back");
    if (error == 0)
        stack[stacked++] = context;
    return fake_end(error);
}

int cuCtxPopCurrent_v2(CUcontext *context)
{
    if (stacked == 0)
        fake_cuda_forbid("no context is current that could be taken back");
    *context = stack[--stacked];
    return CUDA_SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const int error = fake_begin_without_context();
    if (contexts[device].retained == 0)
        fake_cuda_forbid("a primary context is released that nobody has");
    fake_machine.contexts--;
    if (--contexts[device].retained == 0 && fake_machine.lost) { /* what is in it goes with it */
        fake_drop_things();
        fake_drop_memory();
    }
    return fake_end(error);
}
