/* tests/fuzz/fuzz_audio.c: libFuzzer on WAV files. A sound that is read has all its samples, which are numbers.
 * Others are libsndfile's, which is not fuzzed here: it is looked for where it is not. */
#include "fuzz.h"

#include <math.h>

int LLVMFuzzerInitialize(int *count, char ***words);

int LLVMFuzzerInitialize(int *count, char ***words)
{
    (void)count, (void)words;
    return setenv("GRADUS_SNDFILE_PATH", "/nowhere", 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_audio a;
    gd_error_clear();
    gd_status status = gd_audio_read(fuzz_file(data, size), &a);
    fuzz_check(status == GD_OK);
    if (status != GD_OK) {
        if (a.samples || a.frames || a.channels)
            abort();
        return 0;
    }
    if (a.frames < 1 || a.channels < 1 || a.rate < 1 || (size_t)(a.frames * a.channels) > size)
        abort();
    for (int64_t i = 0; i < a.frames * a.channels; i++)
        if (!isfinite(a.samples[i]))
            abort();
    gd_audio_free(&a);
    return 0;
}
