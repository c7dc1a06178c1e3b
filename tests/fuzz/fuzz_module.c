/* tests/fuzz/fuzz_module.c: libFuzzer on gd_module_load, into a module that has its parameters and
 * into an empty one, and on gd_optimizer_load. What is read must work; what fails changes
 * nothing. */
#include "fuzz.h"

static gd_tensor *forward(gd_module *m, gd_tensor *x)
{
    return gd_nn_linear(m, "fc", x, 2);
}

/* A step of training; an error if there is no memory or the file was another model's. */
static bool train(gd_module *m, gd_optimizer *o, gd_tensor *x)
{
    return gd_minimize(o, gd_sum(gd_square(forward(m, x)), GD_ALL_AXES, false)) != NULL;
}

static void load_into_filled(gd_context *gd, const char *path, gd_tensor *x)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_optimizer *adam = gd_adam(m, .lr = 0.1);
    float before[6], after[6];
    if (!train(m, adam, x))
        abort();
    gd_tensor *weight = gd_module_parameter(m, "fc.weight");
    (void)gd_tensor_read(weight, before, sizeof before);
    bool ok = gd_module_load(m, path) == GD_OK;
    fuzz_check(ok);
    (void)gd_tensor_read(weight, after, sizeof after);
    if (!ok && memcmp(before, after, sizeof before) != 0)
        abort();
    fuzz_check(gd_optimizer_load(adam, path) == GD_OK);
    if (gd_module_count(m) != 2 || !train(m, adam, x))
        abort();
}

static void load_into_empty(gd_context *gd, const char *path, gd_tensor *x)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    bool ok = gd_module_load(m, path) == GD_OK;
    if (!ok && gd_module_count(m) != 0)
        abort();
    fuzz_check(ok);
    gd_tensor *y = forward(m, x); /* may be another model's */
    fuzz_check(y != NULL);
    char summary[4096];
    (void)gd_module_summary(m, summary, sizeof summary);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_context *gd = fuzz_context();
    const char *path = fuzz_file(data, size);
    gd_tensor *x = gd_ones(gd, GD_SHAPE(1, 3), GD_F32);
    load_into_filled(gd, path, x);
    load_into_empty(gd, path, x);
    gd_close(gd);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate_safetensors(data, size, room, seed);
}
