/* tests/support/isas.h: a context on each instruction set by name, for tests of kernels that must give the same
 * bits on all. Include after support/context.h. */
#ifndef GD_TESTS_ISAS_H
#define GD_TESTS_ISAS_H

#include "support/context.h"

#include <stdio.h>
#include <stdlib.h>

/* What GRADUS_ISA takes where products of bytes are computed differently. */
static const char *const isas[] = { "baseline",    "avx2", "avx512",
                                    "avx512_vnni", "neon", "neon_dotprod" };
enum { ISAS = sizeof isas / sizeof *isas };

/* NULL: this machine does not run it, or the build has no kernels for it. */
static inline gd_context *open_isa(const char *name, int threads)
{
    const char *set = getenv("GRADUS_ISA");
    char before[32] = "";
    snprintf(before, sizeof before, "%s", set ? set : "");
    setenv("GRADUS_ISA", name, 1);
    gd_context *gd = gd_open("cpu", .threads = threads);
    if (!gd)
        expect_error(GD_ERR_UNSUPPORTED, "");
    setenv("GRADUS_ISA", before, 1);
    return gd;
}

#endif
