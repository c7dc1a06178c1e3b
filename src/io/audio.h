/* io/audio.h: what is told of a sound file without reading all of it. */
#ifndef GD_IO_AUDIO_H
#define GD_IO_AUDIO_H

#include <stdint.h>

/* Frames a second, by the header of a plain WAV file; 0: it is another file, or none that gd_audio_read takes. No
 * error is recorded. */
int64_t gd_audio_peek_rate(const char *path);

#endif
