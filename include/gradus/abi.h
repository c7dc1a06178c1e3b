/* gradus/abi.h: whether the library is the one that the headers belong to. For other languages, whose bindings are made from
 * the headers (tools/gen-python) and are called without a compiler that would notice a difference.
 */
#ifndef GRADUS_ABI_H
#define GRADUS_ABI_H

#include <gradus/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* SHA-256, in hexadecimal, of the SHA-256s of the public headers the library was compiled with, in
 * the order of their names. */
GD_API const char *gd_api_hash(void);

#ifdef __cplusplus
}
#endif
#endif
