/* graph/body.c: running a function of the user's. */
#include "graph/apply.h"
#include "graph/node.h"

#include "base/error.h"

gd_tensor *gd_run_body(gd_function_body body, void *user, int count, gd_tensor *const *inputs,
                       const char *who)
{
    const uint64_t mark = gd_error_mark();
    gd_tensor *result = body(user, count, inputs);
    if (!gd_usable(result, who))
        result = NULL;
    if (gd_error_since(mark) != GD_OK)
        return NULL;
    if (!result)
        (void)gd_fail(GD_ERR_INVALID,
                      "%s: the body returned NULL without an error; did it read more than the "
                      "%d inputs of the call?",
                      who, count);
    return result;
}
