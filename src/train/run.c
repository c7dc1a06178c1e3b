/* train/run.c: many steps in one call, for languages whose own calls cost more than a step. */
#include <gradus/train.h>

#include "base/error.h"

/* The next batch, over the end of an epoch. */
static bool next(gd_loader *loader, gd_batch *batch)
{
    const uint64_t mark = gd_error_mark();
    if (gd_loader_next(loader, batch))
        return true;
    return gd_error_since(mark) == GD_OK && gd_loader_next(loader, batch);
}

int64_t gd_function_run(gd_function *step, gd_loader *loader, int64_t count, double *results)
{
    if (!step || !loader || count < 0) {
        (void)gd_fail(GD_ERR_INVALID,
                      "gd_function_run: a function, a loader and a count are needed");
        return 0;
    }
    for (int64_t i = 0; i < count; i++) {
        gd_batch batch;
        gd_tensor *result = next(loader, &batch) ? gd_call(step, batch.count, batch.tensors) : NULL;
        if (!result)
            return i;
        if (results) {
            const uint64_t mark = gd_error_mark();
            results[i] = gd_item(result);
            if (gd_error_since(mark) != GD_OK)
                return i;
        }
    }
    return count;
}
