/* tests/test_audio.c: WAV files, data sets of them, and gradus train, eval and predict on a folder of sounds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>

#include <gradus/gradus.h>

#include "base/poison.h"

#ifndef GD_TOOL
#define GD_TOOL ""
#endif

#include "support/cli.h"

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- writing ---- */

typedef struct wav {
    int code, channels, bits, rate;
    bool extensible, odd_chunk; /* a chunk of an odd size before the data */
    uint32_t claimed;           /* bytes of sound; 0: as many as there are */
} wav;

static void put(FILE *f, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), f);
}

/* `values` are the bytes of the frames. */
static void write_wav(const char *name, const wav *w, const void *values, size_t size)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    fputs("RIFF", f);
    put(f, 4, 0);
    fputs("WAVE", f);
    if (w->odd_chunk) {
        fputs("LIST", f);
        put(f, 4, 3);
        fputs("abc", f);
        put(f, 1, 0);
    }
    fputs("fmt ", f);
    put(f, 4, w->extensible ? 40 : 16);
    put(f, 2, w->extensible ? 0xfffe : (uint64_t)w->code);
    put(f, 2, (uint64_t)w->channels);
    put(f, 4, (uint64_t)w->rate);
    put(f, 4, (uint64_t)(w->rate * w->channels * w->bits / 8));
    put(f, 2, (uint64_t)(w->channels * w->bits / 8));
    put(f, 2, (uint64_t)w->bits);
    if (w->extensible) {
        put(f, 2, 22);
        put(f, 2, (uint64_t)w->bits);
        put(f, 4, 3);
        put(f, 2, (uint64_t)w->code);
        put(f, 6, UINT64_C(0x001000000000));
        put(f, 8, UINT64_C(0x719b3800aa000080));
    }
    fputs("data", f);
    put(f, 4, w->claimed ? w->claimed : size);
    fwrite(values, 1, size, f);
    assert_int_equal(fclose(f), 0);
}

/* ---- files ---- */

static void check(const wav *w, const void *values, size_t size, const float *wanted)
{
    gd_audio a;
    write_wav("a.wav", w, values, size);
    assert_int_equal(gd_audio_read(in_folder("a.wav"), &a), GD_OK);
    int64_t frames = (int64_t)size * 8 / (w->bits * w->channels);
    assert_true(a.frames == frames && a.channels == w->channels && a.rate == w->rate);
    for (int64_t i = 0; i < frames * w->channels; i++)
        assert_true(a.samples[i] == wanted[i]);
    gd_audio_free(&a);
    assert_null(a.samples);
}

static void all_widths_are_read(void **state)
{
    (void)state;
    const uint8_t bytes[] = { 0, 128, 255, 64 };
    const float of_bytes[] = { -1, 0, 127.0f / 128, -0.5f };
    check(&(wav){ .code = 1, .channels = 1, .bits = 8, .rate = 8000 }, bytes, 4, of_bytes);
    const float stereo[] = { -1, 127.0f / 128, 0, -0.5f }; /* [channels, frames] */
    check(&(wav){ .code = 1, .channels = 2, .bits = 8, .rate = 8000, .odd_chunk = true }, bytes, 4,
          stereo);
    const int16_t shorts[] = { INT16_MIN, 16384, 1 };
    const float of_shorts[] = { -1, 0.5f, 0x1p-15f };
    check(&(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 44100 }, shorts, 6, of_shorts);
    check(&(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 44100, .extensible = true }, shorts,
          6, of_shorts);
    check(&(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 44100, .claimed = 0xffffffff },
          shorts, 6, of_shorts); /* of a pipe */
    const uint8_t three[] = { 0, 0, 0x80, 0, 0, 0x40, 0xff, 0xff, 0xff };
    const float of_three[] = { -1, 0.5f, -0x1p-23f };
    check(&(wav){ .code = 1, .channels = 1, .bits = 24, .rate = 96000 }, three, 9, of_three);
    const int32_t longs[] = { INT32_MIN, 1 << 30 };
    const float of_longs[] = { -1, 0.5f };
    check(&(wav){ .code = 1, .channels = 1, .bits = 32, .rate = 16000 }, longs, 8, of_longs);
    const float floats[] = { -0.25f, 1.5f };
    check(&(wav){ .code = 3, .channels = 1, .bits = 32, .rate = 16000 }, floats, 8, floats);
    const double doubles[] = { -0.25, 1.5 };
    check(&(wav){ .code = 3, .channels = 1, .bits = 64, .rate = 16000, .extensible = true },
          doubles, 16, floats);
}

static void write_bytes(const char *name, const unsigned char *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* Sounds that are libsndfile's: an error of its own, or that it is not there. */
static void expect_other(void)
{
    gd_audio a;
    gd_status status = gd_audio_read(in_folder("a.wav"), &a);
    assert_null(a.samples);
    assert_has(gd_error_message(), "libsndfile");
    assert_true(status == gd_error_code());
    assert_true(status == GD_ERR_FORMAT || status == GD_ERR_UNSUPPORTED);
    gd_error_clear();
}

static void expect(gd_status status, const char *words)
{
    gd_audio a;
    assert_int_equal(gd_audio_read(in_folder("a.wav"), &a), status);
    assert_null(a.samples);
    assert_has(gd_error_message(), words);
    gd_error_clear();
}

static void damaged_files_are_told(void **state)
{
    (void)state;
    const int16_t shorts[4] = { 1, 2, 3, 4 };
    write_wav("a.wav", &(wav){ .code = 30583, .channels = 1, .bits = 16, .rate = 8000 }, shorts, 8);
    expect_other();
    write_wav("a.wav", &(wav){ .code = 3, .channels = 1, .bits = 16, .rate = 8000 }, shorts, 8);
    expect_other();
    write_wav("a.wav", &(wav){ .code = 1, .channels = 0, .bits = 16, .rate = 8000 }, shorts, 8);
    expect(GD_ERR_FORMAT, "0 channels");
    write_wav("a.wav", &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 8000, .claimed = 100 },
              shorts, 8);
    expect(GD_ERR_FORMAT, "8 bytes of sound, where 100 are announced");
    write_wav("a.wav", &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 8000 }, shorts, 0);
    expect(GD_ERR_FORMAT, "without sound");
    write_text("a.wav", "RIFFxxxxWAVEfmt ");
    expect(GD_ERR_FORMAT, "without a chunk \"fmt \"");
    write_text("a.wav", "ID3");
    expect(GD_ERR_FORMAT, "3 bytes are no sound");
    write_text("a.wav", "A text, which is called a sound.");
    expect_other();
    assert_int_equal(gd_audio_read(NULL, NULL), GD_ERR_INVALID);
    gd_error_clear();
    assert_int_equal(remove(in_folder("a.wav")), 0);
    expect(GD_ERR_IO, "a.wav");
}

/* Every beginning of a file is read or refused, and reads nothing that is not there. */
static void files_cut_anywhere(void **state)
{
    (void)state;
    unsigned char bytes[128];
    const int16_t shorts[4] = { 1, 2, 3, 4 };
    write_wav("whole.wav",
              &(wav){ .code = 1,
                      .channels = 1,
                      .bits = 16,
                      .rate = 8000,
                      .extensible = true,
                      .odd_chunk = true },
              shorts, 8);
    FILE *f = fopen(in_folder("whole.wav"), "rb");
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t n = 0; n < size; n++) {
        gd_audio a;
        f = fopen(in_folder("cut.wav"), "wb");
        fwrite(bytes, 1, n, f);
        fclose(f);
        assert_int_equal(gd_audio_read(in_folder("cut.wav"), &a), GD_ERR_FORMAT);
        gd_error_clear();
    }
}

#ifdef GD_FORGETTING
#define WITHOUT_SNDFILE "MemorySanitizer"
#else
#define WITHOUT_SNDFILE "/nowhere/libsndfile.so.1:"
#endif

/* ---- what libsndfile reads ---- */

/* Skips the test where it is not there. */
static gd_audio read_sample(const char *name)
{
    char path[512];
    gd_audio a;
    snprintf(path, sizeof path, GD_SOURCE_DIR "/tests/goldens/sounds/%s", name);
    gd_status status = gd_audio_read(path, &a);
    if (status == GD_ERR_UNSUPPORTED) {
        assert_has(gd_error_message(), "libsndfile, which reads other sounds, is not there (");
        assert_null(a.samples);
        gd_error_clear();
        skip();
    }
    if (status != GD_OK)
        fail_msg("%s", gd_error_message());
    return a;
}

/* What tests/goldens/sounds are made of. */
static float saw(int64_t i, int64_t channel)
{
    return (float)((i * 37 + channel * 1000) % 2000 * 10 - 10000) / 32768.0f;
}

static void sounds_of_other_kinds_are_read(void **state)
{
    (void)state;
    static const char *const exact[] = { "saw.flac", "saw.aiff" };
    for (int k = 0; k < 2; k++) {
        gd_audio a = read_sample(exact[k]);
        assert_true(a.frames == 100 && a.channels == 2 && a.rate == 8000);
        for (int64_t c = 0; c < 2; c++)
            for (int64_t i = 0; i < 100; i++)
                assert_true(a.samples[c * 100 + i] == saw(i, c));
        gd_audio_free(&a);
    }
    /* Compressed: near the original, and of MP3 a little longer, with a delay. */
    static const char *const about[] = { "ulaw.wav", "saw.ogg", "saw.mp3" };
    static const int64_t frames[] = { 100, 400, 400 };
    for (int k = 0; k < 3; k++) {
        gd_audio a = read_sample(about[k]);
        assert_true(a.channels == 1 && a.rate == 8000 && a.frames >= frames[k]);
        assert_true(k == 2 || a.frames == frames[k]);
        double best = 0;
        for (int64_t delay = 0; delay + frames[k] <= a.frames; delay++) {
            double both = 0, first = 0, second = 0;
            for (int64_t i = 0; i < frames[k]; i++) {
                const double x = a.samples[delay + i], y = saw(i, 0);
                both += x * y, first += x * x, second += y * y;
            }
            const double correlation = both / sqrt(first * second + 1e-9);
            best = correlation > best ? correlation : best;
        }
        assert_true(best > 0.9);
        gd_audio_free(&a);
    }
}

/* A FLAC file cut anywhere is an error. */
static void other_kinds_are_cut_anywhere(void **state)
{
    (void)state;
    gd_audio a = read_sample("saw.flac");
    gd_audio_free(&a);
    unsigned char bytes[512];
    FILE *f = fopen(GD_SOURCE_DIR "/tests/goldens/sounds/saw.flac", "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(size, 200, sizeof bytes - 1);
    for (size_t n = 0; n < size; n++) {
        write_bytes("cut.flac", bytes, n);
        assert_int_equal(gd_audio_read(in_folder("cut.flac"), &a), GD_ERR_FORMAT);
        assert_null(a.samples);
        gd_error_clear();
    }
}

static void names_of_sounds(void **state)
{
    (void)state;
    assert_true(gd_audio_is_file_name("a/b.WAV") && gd_audio_is_file_name("x.y.flac") &&
                gd_audio_is_file_name(".mp3"));
    assert_false(gd_audio_is_file_name("wav") || gd_audio_is_file_name("a.wav.txt") ||
                 gd_audio_is_file_name(NULL));
}

/* ---- a folder of sounds ---- */

enum { FILES = 24, FRAMES = 600, RATE = 8000 };

static void make_sounds(void)
{
    static int16_t frames[FRAMES];
    static const char *const names[] = { "sounds", "sounds/high", "sounds/low" };
    for (int i = 0; i < 3; i++)
        assert_int_equal(mkdir(in_folder(names[i]), 0777), 0);
    for (int i = 0; i < 2 * FILES; i++) {
        char name[64];
        int length = FRAMES - 7 * (i % 5);
        double pitch = i % 2 ? 300 + 5 * i : 1500 + 10 * i;
        for (int k = 0; k < length; k++)
            frames[k] = (int16_t)(9000 * sin(6.28318530718 * pitch * k / RATE + i));
        snprintf(name, sizeof name, "sounds/%s/%02d.wav", i % 2 ? "low" : "high", i);
        write_wav(name, &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = RATE }, frames,
                  (size_t)length * sizeof *frames);
    }
}

static void sounds_are_cut_and_filled_up(void **state)
{
    (void)state;
    gd_context *gd = gd_open("cpu");
    gd_dataset *d = gd_audio_folder(gd, in_folder("sounds"), 700);
    assert_non_null(d);
    assert_int_equal(gd_dataset_count(d), 2 * FILES);
    const gd_field *y = gd_dataset_field(d, 1);
    assert_true(y->classes == 2 && strcmp(y->class_names[1], "low") == 0);
    gd_tensor *t[2];
    static float sample[700];
    gd_audio a;
    assert_int_equal(gd_dataset_get(d, 1, 1, t), GD_OK); /* high/02.wav */
    assert_int_equal(gd_tensor_read(t[0], sample, sizeof sample), GD_OK);
    assert_int_equal(gd_audio_read(in_folder("sounds/high/02.wav"), &a), GD_OK);
    int64_t before = (700 - a.frames) / 2;
    for (int64_t i = 0; i < 700; i++)
        assert_true(sample[i] ==
                    (i < before || i >= before + a.frames ? 0 : a.samples[i - before]));
    gd_dataset_release(d);
    d = gd_audio_folder(gd, in_folder("sounds"), 100, .channels = 0);
    assert_int_equal(gd_dataset_get(d, 1, 1, t), GD_OK);
    assert_int_equal(gd_tensor_read(t[0], sample, 100 * sizeof *sample), GD_OK);
    for (int64_t i = 0; i < 100; i++)
        assert_true(sample[i] == a.samples[i - (100 - a.frames) / 2]);
    gd_audio_free(&a);
    gd_dataset_release(d);
    d = gd_audio_folder(gd, in_folder("sounds"), 0);
    assert_int_equal(gd_dataset_field(d, 0)->shape.dim[1], FRAMES);
    /* Workers read them; an error names the file. */
    gd_loader *l = gd_loader_create(d, .batch = 8, .workers = 2);
    gd_batch b;
    int64_t seen = 0;
    while (gd_loader_next(l, &b))
        seen += b.size;
    assert_int_equal(seen, 2 * FILES);
    gd_loader_release(l);
    gd_dataset_release(d);
    const int16_t other[] = { 1, 2 };
    write_wav("sounds/low/zz.wav", &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 44100 },
              other, 4);
    assert_null(gd_audio_folder(gd, in_folder("sounds"), 100));
    assert_int_equal(gd_error_code(), GD_ERR_FORMAT);
    assert_has(gd_error_message(),
               "zz.wav: 44100 frames a second, not 8000 as 48 of the 49 sounds");
    gd_error_clear();
    assert_int_equal(remove(in_folder("sounds/low/zz.wav")), 0);
    assert_null(gd_audio_folder(gd, in_folder("sounds"), 100, .rate = 44100));
    assert_has(gd_error_message(), " frames a second, not 44100, which was asked for: ffmpeg");
    gd_error_clear();
    /* One that comes later is told when it is read. */
    write_wav("sounds/low/zz.wav", &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = RATE },
              other, 4);
    d = gd_audio_folder(gd, in_folder("sounds"), 100);
    assert_non_null(d);
    write_wav("sounds/low/zz.wav", &(wav){ .code = 1, .channels = 1, .bits = 16, .rate = 44100 },
              other, 4);
    assert_int_equal(gd_dataset_get(d, 2 * FILES, 1, t), GD_ERR_FORMAT);
    assert_has(gd_error_message(), "zz.wav: 44100 frames a second, where the others have 8000");
    gd_error_clear();
    gd_dataset_release(d);
    assert_int_equal(remove(in_folder("sounds/low/zz.wav")), 0);
    /* Two channels become one: their mean. */
    const int16_t two[] = { 16384, -16384, 16384, 0 };
    assert_int_equal(mkdir(in_folder("stereo"), 0777), 0);
    assert_int_equal(mkdir(in_folder("stereo/a"), 0777), 0);
    write_wav("stereo/a/1.wav", &(wav){ .code = 1, .channels = 2, .bits = 16, .rate = RATE }, two,
              8);
    d = gd_audio_folder(gd, in_folder("stereo"), 0);
    assert_int_equal(gd_dataset_get(d, 0, 1, t), GD_OK);
    assert_int_equal(gd_tensor_read(t[0], sample, 2 * sizeof *sample), GD_OK);
    assert_true(sample[0] == 0 && sample[1] == 0.25f);
    gd_close(gd);
}

static void a_folder_of_sounds_is_trained_on(void **state)
{
    (void)state;
    need("jansson");
    if (!*GD_TOOL)
        skip();
    const result *r = run("train sounds --run s --batch 8 --epochs 15");
    assert_string_equal(r->err, "");
    assert_int_equal(r->code, 0);
    assert_has(r->out, "600 frames, 0.075 s at 8000 a second; 2 classes (high, low)");
    assert_has(r->out, "conv1  conv1d");
    assert_true(number_after(run("eval s")->out, "sounds kept for validation: accuracy ") > 99);
    assert_true(number_after(run("eval s sounds")->out, "48 sounds: accuracy ") > 99);
    r = run("predict s sounds/low/01.wav sounds/high");
    assert_string_equal(r->err, "");
    assert_has(r->out, "file,class,probability\nsounds/low/01.wav,low,");
    assert_has(r->out, "\nsounds/high/00.wav,high,");
    assert_fails(run("predict s stereo/a/nothing.wav"), 1, "nothing.wav");
    assert_fails(
        run("train stereo --run z"), 1,
        "all sounds are in the folder \"a\": there must be a folder for each of two classes");
    assert_int_equal(mkdir(in_folder("stereo/b"), 0777), 0);
    assert_fails(run("train stereo --run z"), 1, "the folder \"b\" has no sounds to train with");
    /* Without libsndfile. */
    assert_int_equal(mkdir(in_folder("flacs"), 0777), 0);
    assert_int_equal(mkdir(in_folder("flacs/a"), 0777), 0);
    assert_int_equal(mkdir(in_folder("flacs/b"), 0777), 0);
    write_bytes("flacs/a/1.flac", (const unsigned char *)"fLaC, and what follows", 22);
    write_bytes("flacs/b/1.flac", (const unsigned char *)"fLaC, and what follows", 22);
    setenv("GRADUS_SNDFILE_PATH", "/nowhere", 1);
    assert_fails(run("train flacs --run z"), 1,
                 "1.flac: is no plain WAV file, and libsndfile, which reads other sounds, is not "
                 "there (" WITHOUT_SNDFILE);
    unsetenv("GRADUS_SNDFILE_PATH");
}

static int begin(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    make_sounds();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_widths_are_read),
        cmocka_unit_test(damaged_files_are_told),
        cmocka_unit_test(files_cut_anywhere),
        cmocka_unit_test(sounds_of_other_kinds_are_read),
        cmocka_unit_test(other_kinds_are_cut_anywhere),
        cmocka_unit_test(names_of_sounds),
        cmocka_unit_test(sounds_are_cut_and_filled_up),
        cmocka_unit_test(a_folder_of_sounds_is_trained_on),
    };
    return cmocka_run_group_tests(tests, begin, remove_folder);
}
