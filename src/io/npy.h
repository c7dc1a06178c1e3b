/* io/npy.h: a .npy file from any stream: of its own, or out of an archive. */
#ifndef GD_IO_NPY_H
#define GD_IO_NPY_H

#include <gradus/io.h>

#include "io/stream.h"

/* On failure *out is all zero. */
gd_status gd_npy_read_stream(gd_stream *stream, gd_npy *out);

#endif
