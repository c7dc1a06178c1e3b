/* tests/test_cli_sounds.c: gradus on folders of sounds: training, answers, and sounds that are none. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#include <math.h>

#ifdef GD_TOOL

#include "support/cli.h"

#include <sys/stat.h>

enum { FRAMES = 400 };

static void put(unsigned char *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

/* A WAV file of 16 bits: a tone of so many periods. */
static void write_tone(const char *path, uint32_t rate, double periods)
{
    unsigned char bytes[44 + 2 * FRAMES] = "RIFF....WAVEfmt ";
    memcpy(bytes + 36, "data", 4);
    put(bytes + 4, sizeof bytes - 8, 4);
    put(bytes + 16, 16, 4);
    put(bytes + 20, 1, 2); /* whole numbers */
    put(bytes + 22, 1, 2); /* channels */
    put(bytes + 24, rate, 4);
    put(bytes + 28, 2 * rate, 4);
    put(bytes + 32, 2, 2);
    put(bytes + 34, 16, 2);
    put(bytes + 40, 2 * FRAMES, 4);
    for (int i = 0; i < FRAMES; i++)
        put(bytes + 44 + 2 * i,
            (uint32_t)(int32_t)(8000.0 * sin(2.0 * acos(-1.0) * periods * i / FRAMES)), 2);
    char whole[1024];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    FILE *file = fopen(whole, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, file), sizeof bytes);
    assert_int_equal(fclose(file), 0);
}

/* NAME/low and NAME/high with 20 tones each. */
static void write_sounds(const char *name, uint32_t rate)
{
    static const char *const parts[] = { "", "/low", "/high" };
    char path[512];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, name, parts[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "%s%s/%02d.wav", name, parts[1 + i % 2], i);
        write_tone(path, rate, (i % 2 ? 40 : 4) + 0.02 * i);
    }
}

static void sounds_are_told_apart(void **state)
{
    (void)state;
    need("jansson");
    write_sounds("tones", 8000);
    const result *r = run("train tones --epochs 12 --run t");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_narrow(r->out);
    assert_has(r->out, "400 frames, 0.05 s at 8000 a second; 2 classes (high, low)");
    assert_has(r->out, "34 sounds for training, 6 for validation");
    assert_has(run("eval t")->out, "6 sounds kept for validation: accuracy 100.00 %");
    r = run("predict t tones/low/00.wav tones/high");
    assert_has(r->out, "file,class,probability\ntones/low/00.wav,low,");
    assert_has(r->out, "tones/high/39.wav,high,");
    write_tone("fast.wav", 16000, 4);
    assert_fails(run("predict t fast.wav"), 1,
                 "fast.wav has 16000 frames a second, the model was trained with 8000");
    write_text("broken.wav", "RIFF");
    assert_fails(run("predict t broken.wav"), 1, "broken.wav: ");
}

static void sounds_that_are_none_are_told(void **state)
{
    (void)state;
    need("jansson");
    write_sounds("absurd", 4000000000u);
    assert_fails(run("train absurd --run a"), 1,
                 ".wav: its header says 4000000000 frames a second, which no sound has");
    assert_false(is_there("^a$"));
    write_sounds("mixed", 8000);
    write_tone("mixed/low/00.wav", 16000, 4);
    assert_fails(run("train mixed --run m"), 1,
                 "low/00.wav: 16000 frames a second, not 8000 as 39 of the 40 sounds");
    assert_false(is_there("^m$"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sounds_are_told_apart),
        cmocka_unit_test(sounds_that_are_none_are_told),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77; /* no tool in this build */
}

#endif
