/* tests/test_data.c: data sets, MNIST, and loaders, with and without a thread of their own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "data/dataset.h"
#include "backend/backend.h"
#include "graph/node.h"

#include "graph/context.h"
#include "support/context.h"
#include "support/data.h"

#define MNIST GD_SOURCE_DIR "/data/mnist"

/* Sample i is [i, i + 0.25, i + 0.5], its label i % 7. */
enum { COUNT = 103, FEATURES = 3 };

static gd_dataset *numbered(gd_context *gd)
{
    float samples[COUNT][FEATURES];
    int64_t labels[COUNT];
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < FEATURES; k++)
            samples[i][k] = (float)i + 0.25f * (float)k;
        labels[i] = i % 7;
    }
    return labelled_samples(gd, GD_SHAPE(FEATURES), GD_F32, 1, COUNT, samples, labels);
}

/* ---- data sets ---- */

static void a_data_set_gives_its_samples(void **state)
{
    gd_dataset *d = numbered(*state);
    assert_int_equal(gd_dataset_count(d), COUNT);
    assert_int_equal(gd_dataset_field_count(d), 2);
    assert_int_equal(gd_dataset_tensor_count(d), 2);
    assert_int_equal(gd_dataset_field(d, 1)->classes, 7);
    assert_int_equal(gd_dataset_field(d, 0)->shape.dim[0], FEATURES);
    assert_int_equal(gd_dataset_field_find(d, "y"), 1);
    assert_int_equal(gd_dataset_field_find(d, "z"), -1);
    assert_null(gd_dataset_field(d, 2));
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(d, 100, 3, t), GD_OK);
    float values[9];
    int64_t labels[3];
    assert_int_equal(gd_tensor_read(t[0], values, sizeof values), GD_OK);
    assert_int_equal(gd_tensor_read(t[1], labels, sizeof labels), GD_OK);
    assert_true(values[0] == 100.0f && values[5] == 101.5f && labels[2] == 102 % 7);
    assert_int_equal(gd_dataset_get(d, 101, 3, t), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "samples 101 to 103 of 103");
    assert_null(t[0]);
}

static void bytes_are_scaled_alike_on_every_instruction_set(void **state)
{
    (void)state;
    uint8_t bytes[256 + 5];
    for (int i = 0; i < 261; i++)
        bytes[i] = (uint8_t)i;
    const float scale = 1.0f / 255.0f, shift = -0.5f;
    static const char *const sets[] = { "baseline", "avx2", "avx512", "neon" };
    for (int s = 0; s < 4; s++) {
        gd_context *gd = NULL;
        if (s > 0) { /* does this machine have it? */
            setenv("GRADUS_ISA", sets[s], 1);
            gd = gd_open(test_device());
            unsetenv("GRADUS_ISA");
            gd_close(gd);
            gd_error_clear();
        }
        if (s > 0 && !gd)
            continue;
        float out[261];
        gd_convert_choose(GD_U8, sets[s])(bytes, out, 261, scale, shift);
        for (int i = 0; i < 261; i++) {
            volatile float product = (float)bytes[i] * scale; /* rounded twice */
            float expected = product + shift;
            assert_memory_equal(&out[i], &expected, sizeof expected);
        }
    }
}

/* A data set of two samples in memory, of fields as they are given. */
static gd_dataset *of_fields(gd_context *gd, gd_field x, gd_field y)
{
    static const float samples[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    static const int64_t labels[2] = { 1, 0 };
    const gd_field fields[2] = { x, y };
    const void *arrays[2] = { samples, labels };
    return gd_dataset_from_arrays(gd, 2, 2, fields, arrays);
}

#define FIELD(...)                     \
    (gd_field)                         \
    {                                  \
        GD_FIELD_DEFAULTS, __VA_ARGS__ \
    }

static void wrong_fields_are_errors(void **state)
{
    gd_context *gd = *state;
    const gd_field x = FIELD(.name = "x", .shape = GD_SHAPE(2));
    const gd_field y = FIELD(.name = "y", .dtype = GD_I64, .classes = 2);
    assert_non_null(of_fields(gd, x, y));
    assert_null(of_fields(gd, x, FIELD(.name = "x")));
    expect_error(GD_ERR_INVALID, "two fields are called \"x\"");
    assert_null(of_fields(gd, FIELD(.shape = GD_SHAPE(2)), y));
    expect_error(GD_ERR_INVALID, "field 0 has no name");
    assert_null(of_fields(gd, FIELD(.name = "x", .shape = GD_SHAPE(0)), y));
    expect_error(GD_ERR_SHAPE, "field \"x\": a sample of rank 1 with such sizes cannot be");
    assert_null(of_fields(gd, FIELD(.name = "x", .shape = GD_SHAPE(GD_VARIES)), y));
    expect_error(GD_ERR_SHAPE, "a sequence of at most 0 steps cannot be");
    assert_null(
        of_fields(gd, FIELD(.name = "x", .shape = GD_SHAPE(GD_VARIES), .max_length = 2), y));
    expect_error(GD_ERR_INVALID, "the lengths of field \"x\" are needed");
    const double fills[4] = { 256, -1, 0.5, NAN };
    for (int i = 0; i < 4; i++) {
        assert_null(of_fields(gd,
                              FIELD(.name = "x", .shape = GD_SHAPE(GD_VARIES), .dtype = GD_U8,
                                    .max_length = 2, .padding = fills[i]),
                              y));
        expect_error(GD_ERR_INVALID, "to fill up sequences with");
    }
    assert_null(of_fields(gd, FIELD(.name = "x", .batch_dtype = GD_I64), y));
    expect_error(GD_ERR_DTYPE, "f32 cannot be i64 in batches");
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_I64, .batch_dtype = GD_U8)));
    expect_error(GD_ERR_DTYPE, "i64 cannot be u8 in batches");
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_I8, .batch_dtype = GD_U8)));
    expect_error(GD_ERR_DTYPE, "i8 cannot be u8 in batches"); /* -1 would be 255 */
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_U8, .batch_dtype = GD_I8)));
    expect_error(GD_ERR_DTYPE, "u8 cannot be i8 in batches"); /* 255 would be -1 */
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_I64, .scale = 2)));
    expect_error(GD_ERR_DTYPE, "what is scaled has a float dtype in batches, not i64");
    assert_null(of_fields(gd, FIELD(.name = "x", .scale = NAN), y));
    expect_error(GD_ERR_INVALID, "finite");
    assert_null(of_fields(gd, FIELD(.name = "x", .dtype = (gd_dtype)77), y));
    expect_error(GD_ERR_DTYPE, "77 is no dtype");
    assert_null(of_fields(gd, FIELD(.name = "x", .classes = 2), y));
    expect_error(GD_ERR_DTYPE, "class indices are integers, not f32");
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_I64, .classes = 1)));
    expect_error(GD_ERR_INVALID, "label 1 of sample 0, of 1 classes");
    assert_null(of_fields(gd, x, FIELD(.name = "y", .dtype = GD_I64, .classes = -2)));
    expect_error(GD_ERR_INVALID, "-2 classes");
}

static void wrong_data_sets_are_errors(void **state)
{
    const float samples[4] = { 0 };
    const int64_t labels[4] = { 0, 1, -3, 2 };
    assert_null(labelled_samples(*state, GD_SHAPE(1), GD_F32, 1, 4, samples, labels));
    expect_error(GD_ERR_INVALID, "label -3 of sample 2");
    assert_null(labelled_samples(*state, GD_SHAPE(1), GD_F32, 1, 0, samples, labels));
    expect_error(GD_ERR_INVALID, "0 samples");
    assert_null(
        labelled_samples(*state, GD_SHAPE(1), GD_F32, 1, 1, samples, (int64_t[]){ INT64_MAX }));
    expect_error(GD_ERR_INVALID, "label 9223372036854775807 of sample 0 is too large");
    assert_null(labelled_samples(*state, GD_SHAPE(1), GD_F32, 1, 2, samples, NULL));
    expect_error(GD_ERR_INVALID, "the values of field \"y\" are NULL");
    assert_null(gd_dataset_from_arrays(NULL, 0, 0, NULL, NULL));
    assert_null(gd_dataset_from_arrays(*state, 1, 9, NULL, NULL));
    expect_error(GD_ERR_INVALID, "9 fields; a sample has 1 to 8");
    assert_null(gd_dataset_create(*state, 1, 1, NULL, NULL, NULL));
    expect_error(GD_ERR_INVALID, "the callback is NULL");
}

/* Write a small IDX file: type, rank 1 or 3, `count` items of zeros. */
static void write_idx(const char *path, unsigned char type, unsigned char rank, unsigned char count)
{
    unsigned char head[16] = { 0, 0, type, rank, 0, 0, 0, count, 0, 0, 0, 2, 0, 0, 0, 2 };
    unsigned char zeros[4096] = { 0 };
    size_t bytes = (size_t)count * (rank == 3 ? 4 : 1) * (type == 0x0d || type == 0x0c ? 4 : 1);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, 4 + 4 * (size_t)rank, file), 4 + 4 * (size_t)rank);
    assert_int_equal(fwrite(zeros, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void idx_pairs_must_go_together(void **state)
{
    char samples[256], labels[256];
    snprintf(samples, sizeof samples, "%s/test_data_%ld_x", GD_BINARY_DIR, (long)getpid());
    snprintf(labels, sizeof labels, "%s/test_data_%ld_y", GD_BINARY_DIR, (long)getpid());
    write_idx(samples, 0x0d, 3, 5);
    write_idx(labels, 0x0c, 1, 5);
    gd_dataset *d = gd_dataset_load_idx(*state, samples, labels, .keep_shape = true);
    assert_non_null(d);
    assert_int_equal(gd_dataset_field(d, 0)->shape.rank, 2);
    gd_dataset_release(d);
    d = gd_dataset_load_idx(*state, samples, labels);
    assert_int_equal(gd_dataset_field(d, 0)->shape.dim[0], 4);
    static const unsigned char huge[] = { 0,    0,    8,    5,    0,    0,    0,    1,
                                          0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                          0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0 };
    FILE *file = fopen(samples, "wb"); /* [1, 2^32-1, 2^32-1, 2^32-1, 0]: no values at all */
    assert_int_equal(fwrite(huge, 1, sizeof huge, file), sizeof huge);
    fclose(file);
    write_idx(labels, 0x08, 1, 1);
    assert_null(gd_dataset_load_idx(*state, samples, labels));
    expect_error(GD_ERR_FORMAT, "a sample has size 0 along axis 4");
    write_idx(samples, 0x0d, 3, 5);
    write_idx(labels, 0x08, 1, 6);
    assert_null(gd_dataset_load_idx(*state, samples, labels));
    expect_error(GD_ERR_FORMAT, "holds 5 samples, but ");
    write_idx(labels, 0x08, 3, 5);
    assert_null(gd_dataset_load_idx(*state, samples, labels));
    expect_error(GD_ERR_FORMAT, "holds u8 of rank 3; labels are");
    write_idx(samples, 0x0b, 1, 0);
    assert_null(gd_dataset_load_idx(*state, samples, labels));
    expect_error(GD_ERR_FORMAT, "holds i16 of rank 1; samples are");
    remove(labels);
    assert_null(
        gd_dataset_load_idx(*state, samples, labels)); /* the error comes from the other thread */
    expect_error(GD_ERR_IO, labels);
    remove(samples);
}

static void mnist_is_read(void **state)
{
    gd_dataset *train, *test;
    if (gd_mnist_pair(*state, MNIST, &train, &test) != GD_OK &&
        gd_error_code() == GD_ERR_UNSUPPORTED) {
        gd_error_clear(); /* a build without zlib */
        skip();
    }
    assert_int_equal(gd_dataset_count(train), 60000);
    assert_int_equal(gd_dataset_count(test), 10000);
    assert_int_equal(gd_dataset_field(train, 1)->classes, 10);
    gd_tensor *t[2];
    assert_int_equal(gd_dataset_get(train, 0, 60000, t), GD_OK);
    gd_tensor *x = t[0], *y = t[1];
    /* numpy: (images.astype(float) / 255).mean() of the training set is 0.1306604762738429; the
     * first labels are 5 0 4 1 9. */
    assert_true(
        fabs(gd_item(gd_mean(gd_cast(x, GD_F64), GD_ALL_AXES, false)) - 0.1306604762738429) < 1e-7);
    assert_true(gd_item(gd_max(x, GD_ALL_AXES, false)) == 1.0);
    int64_t labels[60000];
    assert_int_equal(gd_tensor_read(y, labels, sizeof labels), GD_OK);
    const int64_t first[5] = { 5, 0, 4, 1, 9 };
    assert_memory_equal(labels, first, sizeof first);
    gd_dataset *again = gd_mnist(*state, MNIST, .test = true, .keep_shape = true);
    assert_int_equal(gd_dataset_count(again), 10000);
    assert_int_equal(gd_dataset_field(again, 0)->shape.rank, 2);
    gd_dataset_release(again);
    gd_dataset_release(train);
    gd_dataset_release(test);
}

static void missing_mnist_is_explained(void **state)
{
    assert_null(gd_mnist(*state, "/no/such/folder"));
    expect_error(
        GD_ERR_IO,
        "/no/such/folder: train-images-idx3-ubyte is not there, nor train-images-idx3-ubyte.gz");
    assert_null(gd_mnist(*state, "/no/such/folder", .test = true));
    expect_error(GD_ERR_IO, "t10k-images");
    gd_dataset *a, *b;
    assert_int_equal(gd_mnist_pair(*state, "/no/such/folder", &a, &b), GD_ERR_IO);
    expect_error(GD_ERR_IO, "https://");
    assert_null(a);
    assert_null(gd_mnist(*state, NULL));
    expect_error(GD_ERR_INVALID, "folder");
}

/* ---- loaders ---- */

/* Which samples an epoch gives, in order; checks that x and y belong together. Returns how many
 * batches there were. */
static int64_t read_epoch(gd_loader *l, int order[COUNT], int64_t *samples)
{
    int64_t batches = 0;
    *samples = 0;
    for (gd_batch b; gd_loader_next(l, &b); batches++) {
        assert_int_equal(b.count, 2);
        gd_shape x_shape = gd_tensor_shape(b.tensors[0]), y_shape = gd_tensor_shape(b.tensors[1]);
        assert_true(x_shape.rank == 2 && x_shape.dim[0] == b.size && x_shape.dim[1] == FEATURES);
        assert_true(y_shape.rank == 1 && y_shape.dim[0] == b.size);
        float x[COUNT * FEATURES];
        int64_t y[COUNT];
        assert_int_equal(gd_tensor_read(b.tensors[0], x, (size_t)b.size * FEATURES * sizeof *x),
                         GD_OK);
        assert_int_equal(gd_tensor_read(b.tensors[1], y, (size_t)b.size * sizeof *y), GD_OK);
        for (int64_t i = 0; i < b.size; i++) {
            int sample = (int)x[i * FEATURES];
            assert_true(x[i * FEATURES + 2] == (float)sample + 0.5f);
            assert_int_equal(y[i], sample % 7);
            order[(*samples)++] = sample;
        }
    }
    assert_int_equal(gd_error_code(), GD_OK);
    return batches;
}

static void an_epoch_has_each_sample_once(void **state)
{
    for (int workers = 0; workers <= 3; workers++)
        for (int64_t batch = 1; batch <= 120; batch += 17) {
            gd_dataset *d = numbered(*state);
            gd_loader *l =
                gd_loader_create(d, .batch = batch, .shuffle = true, .seed = 3, .workers = workers);
            assert_int_equal(gd_loader_batches(l), (COUNT + batch - 1) / batch);
            assert_int_equal(gd_loader_samples(l), COUNT);
            for (int epoch = 0; epoch < 3; epoch++) {
                int order[COUNT];
                int64_t samples;
                bool seen[COUNT] = { false };
                assert_int_equal(read_epoch(l, order, &samples), gd_loader_batches(l));
                assert_int_equal(samples, COUNT);
                for (int i = 0; i < COUNT; i++) {
                    assert_false(seen[order[i]]);
                    seen[order[i]] = true;
                }
            }
            gd_loader_release(l);
            gd_dataset_release(d);
        }
}

static void without_shuffle_samples_keep_their_order(void **state)
{
    gd_loader *l = gd_loader_create(numbered(*state), .batch = 10, .drop_last = true);
    for (int epoch = 0; epoch < 2; epoch++) {
        int order[COUNT];
        int64_t samples;
        assert_int_equal(read_epoch(l, order, &samples), 10);
        assert_int_equal(samples, 100);
        assert_int_equal(gd_loader_samples(l), 100);
        for (int i = 0; i < 100; i++)
            assert_int_equal(order[i], i);
    }
}

static void shuffles_depend_on_seed_and_epoch_alone(void **state)
{
    gd_dataset *d = numbered(*state);
    int reference[4][COUNT], order[COUNT];
    int64_t samples;
    gd_loader *l = gd_loader_create(d, .batch = 10, .shuffle = true, .seed = 11);
    for (int epoch = 0; epoch < 4; epoch++)
        read_epoch(l, reference[epoch], &samples);
    assert_memory_not_equal(reference[0], reference[1], sizeof order);
    for (int workers = 0; workers <= 4; workers += 2) {
        gd_loader *other = gd_loader_create(d, .batch = 25, .shuffle = true, .seed = 11,
                                            .workers = workers, .prefetch = workers);
        for (int epoch = 0; epoch < 4; epoch++) {
            read_epoch(other, order, &samples);
            assert_memory_equal(order, reference[epoch], sizeof order);
        }
        gd_loader_release(other);
    }
    gd_loader *other = gd_loader_create(d, .batch = 10, .shuffle = true, .seed = 12);
    read_epoch(other, order, &samples);
    assert_memory_not_equal(order, reference[0], sizeof order);
}

/* A loader that makes batches ahead may be dropped at any moment. */
/* Threads of this process; 0 where that is not known. */
static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks))
        count++;
    if (tasks)
        closedir(tasks);
    return count;
}

/* A thread that was waited for may still be listed for a moment. */
static void assert_threads(int expected)
{
    for (int i = 0; i < 10000 && count_threads() != expected; i++)
        usleep(1000);
    assert_int_equal(count_threads(), expected);
}

/* After any number of batches; released, or closed with the context. */
static void threads_end_with_their_loader(void **state)
{
    (void)state;
    enum { WORKERS = 3, BATCH = 8, BATCHES = (COUNT + BATCH - 1) / BATCH };
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_dataset *d = numbered(gd);
    const int before = count_threads(), one = before ? WORKERS : 0;
    int waiting = 0;
    for (int taken = 0; taken < 20; taken++) {
        gd_loader *l = gd_loader_create(d, .batch = BATCH, .shuffle = true, .workers = WORKERS,
                                        .prefetch = taken % 6);
        gd_batch b;
        for (int i = 0; i < taken; i++)
            assert_int_equal(gd_loader_next(l, &b), i % (BATCHES + 1) != BATCHES);
        assert_threads(before + waiting + one);
        if (taken % 2)
            gd_loader_release(l);
        else
            waiting += one;
        assert_threads(before + waiting);
    }
    gd_close(gd);
    assert_threads(before);
}

/* Wait until all other threads of this process sleep: the one that makes batches has filled its
 * room and waits for more. */
static void let_others_finish(void)
{
    char path[64], text[512];
    for (int asleep = 0; asleep < 2;) { /* twice: a thread may have slept for a lock */
        DIR *tasks = opendir("/proc/self/task");
        if (!tasks) { /* not Linux */
            usleep(20000);
            return;
        }
        bool awake = false;
        for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
            long task = strtol(entry->d_name, NULL, 10);
            if (task == 0 || task == (long)getpid())
                continue;
            snprintf(path, sizeof path, "/proc/self/task/%ld/stat", task);
            FILE *file = fopen(path, "r");
            size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
            text[length] = '\0';
            const char *state = strrchr(text, ')'); /* "123 (name) S ..." */
            awake = awake || (state && state[1] && state[2] != 'S');
            if (file)
                fclose(file);
        }
        closedir(tasks);
        asleep = awake ? 0 : asleep + 1;
        usleep(200);
    }
}

/* The caller works on a batch while the thread makes others: the batch must not change under its
 * hands. */
static void a_batch_stays_as_it_is(void **state)
{
    gd_loader *l = gd_loader_create(numbered(*state), .batch = 20, .shuffle = true, .workers = 2);
    for (gd_batch b; gd_loader_next(l, &b);) {
        float before[20 * FEATURES], after[20 * FEATURES];
        size_t bytes = (size_t)b.size * FEATURES * sizeof(float);
        assert_int_equal(gd_tensor_read(b.tensors[0], before, bytes), GD_OK);
        let_others_finish();
        assert_int_equal(gd_tensor_read(b.tensors[0], after, bytes), GD_OK);
        assert_memory_equal(before, after, bytes);
    }
}

/* A loss of one batch has a gradient while the batch is there; one of two batches would need the
 * first, which has been overwritten. On a device whose memory the host cannot reach, too. */
static void gradients_need_batches_that_are_still_there(void **state)
{
    gd_context *gd = *state;
    gd_tensor *w = gd_set_requires_grad(gd_zeros(gd, GD_SHAPE(FEATURES), GD_F32), true), *g;
    for (int i = 0; i < 4; i++) {
        gd->device->host_memory = test_device_is_host() && i % 2 == 0;
        gd_loader *l = gd_loader_create(numbered(gd), .batch = 2, .workers = i < 2 ? 0 : 3);
        gd_batch b;
        assert_true(gd_loader_next(l, &b));
        gd_tensor *loss = gd_sum(gd_mul(b.tensors[0], w), GD_ALL_AXES, false);
        float sums[FEATURES];
        assert_int_equal(gd_grad(1, &loss, NULL, 1, &w, &g), GD_OK);
        assert_int_equal(gd_tensor_read(g, sums, sizeof sums), GD_OK);
        assert_true(sums[0] == 0 + 1 && sums[1] == 0.25f + 1.25f);
        assert_true(gd_loader_next(l, &b));
        gd_tensor *both = gd_add(loss, gd_sum(gd_mul(b.tensors[0], w), GD_ALL_AXES, false));
        assert_int_equal(gd_backward(both), GD_ERR_STATE);
        expect_error(GD_ERR_STATE, "the gradient of mul needs a value that has been overwritten");
        gd_loader_release(l);
    }
}

static void batches_allocate_nothing(void **state)
{
    gd_loader *l = gd_loader_create(numbered(*state), .batch = 20, .shuffle = true, .workers = 2);
    uint64_t before = gd_memory(*state).allocations;
    int64_t tensors = gd_memory(*state).live_tensors;
    gd_fail_allocations_after(0);
    for (int epoch = 0; epoch < 3; epoch++)
        for (gd_batch b; gd_loader_next(l, &b);)
            assert_true(b.size == 20 || b.size == 3);
    assert_int_equal(gd_fail_allocations_after(-1), 0);
    assert_int_equal(gd_memory(*state).allocations, before);
    assert_int_equal(gd_memory(*state).live_tensors, tensors);
}

static void wrong_loaders_are_errors(void **state)
{
    gd_dataset *d = numbered(*state);
    assert_null(gd_loader_create(d, .batch = -1));
    expect_error(GD_ERR_INVALID, "batch -1");
    assert_null(gd_loader_create(d, .prefetch = -1));
    expect_error(GD_ERR_INVALID, "prefetch -1");
    assert_null(gd_loader_create(d, .batch = 104, .drop_last = true));
    expect_error(GD_ERR_INVALID, "103 samples do not fill a batch of 104");
    assert_null(gd_loader_create(NULL));
    gd_batch b;
    assert_false(gd_loader_next(NULL, &b));
    assert_int_equal(gd_error_code(), GD_OK);
    gd_loader *l = gd_loader_create(d);
    assert_int_equal(gd_loader_batch_size(l), 32);
}

/* ---- out of memory, at every allocation in turn ---- */

static bool everything(int unused)
{
    (void)unused;
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_dataset *d = gd ? numbered(gd) : NULL;
    gd_loader *l = gd_loader_create(d, .batch = 20, .shuffle = true, .workers = 2);
    gd_batch b;
    gd_tensor *t[2];
    bool ok = gd_loader_next(l, &b) && gd_dataset_get(d, 0, 5, t) == GD_OK;
    gd_close(gd);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    fail_every_allocation(everything, 0);
}

/* Files are read by several threads; each may be the one that runs out. */
static void failing_allocations_while_reading(void **state)
{
    char samples[256], labels[256];
    snprintf(samples, sizeof samples, "%s/test_data_%ld_a", GD_BINARY_DIR, (long)getpid());
    snprintf(labels, sizeof labels, "%s/test_data_%ld_b", GD_BINARY_DIR, (long)getpid());
    write_idx(samples, 0x08, 3, 9);
    write_idx(labels, 0x08, 1, 9);
    for (int64_t n = 0;; n++) {
        gd_fail_allocations_after(n);
        gd_dataset *d = gd_dataset_load_idx(*state, samples, labels);
        gd_fail_allocations_after(-1);
        if (d)
            break;
        assert_int_equal(gd_error_code(), GD_ERR_MEMORY);
        gd_error_clear();
        assert_true(n < 1000);
    }
    remove(samples);
    remove(labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_data_set_gives_its_samples, open_context, close_context),
        cmocka_unit_test(bytes_are_scaled_alike_on_every_instruction_set),
        context_test(wrong_fields_are_errors),
        cmocka_unit_test_setup_teardown(wrong_data_sets_are_errors, open_context, close_context),
        cmocka_unit_test_setup_teardown(idx_pairs_must_go_together, open_context, close_context),
        cmocka_unit_test_setup_teardown(mnist_is_read, open_context, close_context),
        cmocka_unit_test_setup_teardown(missing_mnist_is_explained, open_context, close_context),
        cmocka_unit_test_setup_teardown(an_epoch_has_each_sample_once, open_context, close_context),
        cmocka_unit_test_setup_teardown(without_shuffle_samples_keep_their_order, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(shuffles_depend_on_seed_and_epoch_alone, open_context,
                                        close_context),
        cmocka_unit_test(threads_end_with_their_loader),
        cmocka_unit_test_setup_teardown(a_batch_stays_as_it_is, open_context, close_context),
        cmocka_unit_test_setup_teardown(gradients_need_batches_that_are_still_there, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(batches_allocate_nothing, open_context, close_context),
        cmocka_unit_test_setup_teardown(wrong_loaders_are_errors, open_context, close_context),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
        cmocka_unit_test_setup_teardown(failing_allocations_while_reading, open_context,
                                        close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
