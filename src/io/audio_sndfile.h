/* io/audio_sndfile.h: sounds by libsndfile. */
#ifndef GD_IO_AUDIO_SNDFILE_H
#define GD_IO_AUDIO_SNDFILE_H

#include <gradus/io.h>

enum { GD_AUDIO_MOST_CHANNELS = 256 };

/* A sound file in memory, of any kind that libsndfile knows. GD_ERR_UNSUPPORTED: the library is not there;
 * GD_ERR_FORMAT, GD_ERR_MEMORY. *out is all zero on failure. */
gd_status gd_sndfile_decode(const char *path, const unsigned char *bytes, size_t size,
                            gd_audio *out);

#endif
