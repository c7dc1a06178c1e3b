/* backend/cpu/paths.c: reading GRADUS_L2, GRADUS_MATMUL and GRADUS_CONV. Start at gd_paths_read.
 */
#include "backend/cpu/paths.h"

#include "base/cpu.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const char *const matmul_names[] = { "",           "packed", "direct", "rows",
                                            "transposed", "bf16x3", NULL };
static const char *const conv_names[] = { "",       "packed",   "direct", "images",
                                          "narrow", "winograd", NULL };

/* The value's index in `names`; 0 where the variable is not set. */
static gd_status read_name(const char *variable, const char *const names[], const char *listed,
                           int *index)
{
    const char *value = getenv(variable);
    for (*index = 0; value && names[*index]; (*index)++)
        if (strcmp(value, names[*index]) == 0)
            return GD_OK;
    if (!value)
        return GD_OK;
    return gd_fail(GD_ERR_INVALID, "%s=%s: must be %s", variable, value, listed);
}

/* Bytes: a number, perhaps with K or M behind it. */
static gd_status read_size(const char *variable, size_t least, size_t most, size_t *bytes)
{
    const char *value = getenv(variable), *end = value;
    if (!value || !*value)
        return GD_OK;
    size_t size = 0;
    for (; *end >= '0' && *end <= '9' && size <= most; end++)
        size = 10 * size + (size_t)(*end - '0');
    if (end > value && (*end == 'K' || *end == 'M') && size <= most)
        size <<= *end++ == 'K' ? 10 : 20;
    if (end == value || *end || size < least || size > most)
        return gd_fail(GD_ERR_INVALID, "%s=%s: must be bytes, 64K to 64M, such as 262144, 256K, 2M",
                       variable, value);
    *bytes = size;
    return GD_OK;
}

gd_status gd_paths_read(gd_paths *paths)
{
    const size_t least = (size_t)128 << 10, most = (size_t)1 << 20;
    size_t cache = gd_cache_bytes(2);
    int matmul, conv;
    gd_status status = read_size("GRADUS_L2", (size_t)64 << 10, (size_t)64 << 20, &cache);
    if (status == GD_OK)
        status = read_name("GRADUS_MATMUL", matmul_names,
                           "packed, direct, rows, transposed or bf16x3", &matmul);
    if (status == GD_OK)
        status = read_name("GRADUS_CONV", conv_names, "packed, direct, images, narrow or winograd",
                           &conv);
    if (status != GD_OK)
        return status;
    /* The other half is for data read or written once: panels of A and tiles of C. */
    cache /= 2;
    paths->block_bytes = cache < least ? least : cache > most ? most : cache / 4096 * 4096;
    paths->stream_bytes = gd_cache_bytes(3);
    paths->matmul = (gd_matmul_path)matmul;
    paths->conv = (gd_conv_path)conv;
    return GD_OK;
}
