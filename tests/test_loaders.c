/* tests/test_loaders.c: data sets whose samples a callback writes, and loaders that make their batches
 * in several threads: orders, draws, sequences, weights, errors; splits and folds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/data.h"

/* Sample i has an image u8 [2, 3] that a callback writes, a sequence of i % MOST steps, a number f64,
 * and a class in memory. */
enum { COUNT = 61, MOST = 11, CLASSES = 4 };

typedef struct source {
    atomic_llong fails;   /* the sample that cannot be read; -1: none */
    atomic_int inside;    /* threads that are in the callback … */
    atomic_int most;      /* … at most, so far */
    atomic_int released;  /* calls of the release callback */
    useconds_t pause;     /* microseconds a sample takes */
    int64_t wrong_length; /* the sample whose sequence is too long; -1: none */
} source;

/* They outlive the test, as its data sets do. */
static source *new_source(void)
{
    static source all[64];
    static int count;
    return &all[count++ % 64];
}

static gd_status write_sample(void *user, int64_t index, gd_sample_values *sample)
{
    source *s = user;
    int inside = atomic_fetch_add(&s->inside, 1) + 1;
    if (inside > atomic_load(&s->most))
        atomic_store(&s->most, inside);
    if (s->pause)
        usleep(s->pause);
    gd_status status = GD_OK;
    if (index == s->fails)
        status = gd_error_record(GD_ERR_FORMAT, "b/cat.jpg: no image");
    uint8_t *image = sample->data[0];
    int32_t *sequence = sample->data[1];
    for (int i = 0; i < 6; i++)
        image[i] = (uint8_t)(3 * index + i);
    sample->length[1] = index == s->wrong_length ? MOST + 1 : index % MOST;
    for (int64_t i = 0; i < index % MOST; i++)
        sequence[i] = (int32_t)(100 * index + i);
    *(double *)sample->data[2] = (double)index + 0.5;
    if (sample->data[3])
        status = gd_error_record(GD_ERR_INVALID, "the label is in memory");
    atomic_fetch_sub(&s->inside, 1);
    return status;
}

static void count_release(void *user)
{
    atomic_fetch_add(&((source *)user)->released, 1);
}

static const gd_field fields[4] = {
    { GD_FIELD_DEFAULTS, .name = "image", .shape = { 2, { 2, 3 } }, .dtype = GD_U8,
      .batch_dtype = GD_F32, .scale = 0.25, .shift = -1 },
    { GD_FIELD_DEFAULTS, .name = "sequence", .shape = { 1, { GD_VARIES } }, .dtype = GD_I32,
      .batch_dtype = GD_I64, .max_length = MOST, .padding = -7 },
    { GD_FIELD_DEFAULTS, .name = "number", .dtype = GD_F64 },
    { GD_FIELD_DEFAULTS, .name = "class", .dtype = GD_U8, .classes = CLASSES },
};

static gd_dataset *called_back(gd_context *gd, source *s, bool one_thread)
{
    uint8_t labels[COUNT];
    int64_t lengths[COUNT];
    const void *arrays[4] = { NULL, NULL, NULL, labels };
    const int64_t *known[4] = { NULL, lengths };
    for (int i = 0; i < COUNT; i++) {
        labels[i] = (uint8_t)(i % 5 % CLASSES); /* 0 is twice as frequent */
        lengths[i] = i % MOST;
    }
    return gd_dataset_create(gd, COUNT, 4, fields, write_sample, s, .release = count_release,
                             .one_thread = one_thread, .arrays = arrays, .lengths = known);
}

#define SOURCE(...)                                  \
    {                                                \
        .fails = -1, .wrong_length = -1, __VA_ARGS__ \
    }

/* ---- what a batch has ---- */

/* Each value of a batch is that of its sample. */
static void check_batch(const gd_batch *b, int64_t multiple)
{
    int64_t lengths[COUNT], sequence[COUNT * MOST], most = 1;
    float image[COUNT][6];
    double number[COUNT];
    uint8_t class[COUNT];
    size_t size = (size_t)b->size;
    assert_true(b->count >= 5);
    assert_int_equal(gd_tensor_read(b->tensors[0], image, size * sizeof *image), GD_OK);
    assert_int_equal(gd_tensor_read(b->tensors[2], number, size * sizeof *number), GD_OK);
    assert_int_equal(gd_tensor_read(b->tensors[3], class, size), GD_OK);
    assert_int_equal(gd_tensor_read(b->tensors[4], lengths, size * sizeof *lengths), GD_OK);
    for (int64_t i = 0; i < b->size; i++)
        most = lengths[i] > most ? lengths[i] : most;
    most = (most + multiple - 1) / multiple * multiple;
    most = most < MOST ? most : MOST;
    gd_shape shape = gd_tensor_shape(b->tensors[1]);
    assert_true(shape.rank == 2 && shape.dim[0] == b->size && shape.dim[1] == most);
    assert_int_equal(
        gd_tensor_read(b->tensors[1], sequence, size * (size_t)most * sizeof *sequence), GD_OK);
    for (int64_t i = 0; i < b->size; i++) {
        const int64_t index = b->indices[i];
        for (int k = 0; k < 6; k++)
            assert_true(image[i][k] == (float)(uint8_t)(3 * index + k) * 0.25f - 1);
        assert_true(number[i] == (double)index + 0.5);
        assert_int_equal(class[i], index % 5 % CLASSES);
        assert_int_equal(lengths[i], index % MOST);
        for (int64_t k = 0; k < most; k++)
            assert_int_equal(sequence[i * most + k], k < lengths[i] ? 100 * index + k : -7);
    }
}

static uint64_t add(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Of everything a batch has. */
static uint64_t hash_of(const gd_batch *b)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    char values[8192];
    for (int t = 0; t < b->count; t++) {
        gd_shape shape = gd_tensor_shape(b->tensors[t]);
        size_t bytes =
            (size_t)gd_tensor_count(b->tensors[t]) * gd_dtype_size(gd_tensor_dtype(b->tensors[t]));
        assert_true(bytes <= sizeof values);
        assert_int_equal(gd_tensor_read(b->tensors[t], values, bytes), GD_OK);
        hash = add(add(hash, values, bytes), shape.dim, (size_t)shape.rank * sizeof *shape.dim);
    }
    hash = add(hash, b->indices, (size_t)b->size * sizeof *b->indices);
    return add(add(hash, &b->epoch, sizeof b->epoch), &b->number, sizeof b->number);
}

enum { RUN = 40 };

/* Of RUN batches one after the other, whatever the ends of epochs. */
static void read_run(gd_loader *l, uint64_t hashes[RUN])
{
    for (int n = 0; n < RUN; n++) {
        gd_batch b;
        if (!gd_loader_next(l, &b) && !gd_loader_next(l, &b))
            fail_msg("%s", gd_error_message());
        assert_int_equal(b.number, n);
        assert_int_equal(b.epoch, n / gd_loader_batches(l));
        check_batch(&b, 4);
        hashes[n] = hash_of(&b);
    }
    assert_int_equal(gd_loader_position(l), RUN);
}

static const gd_loader_options kinds[] = {
    { GD_LOADER_DEFAULTS, .batch = 7, .length_multiple = 4 },
    { GD_LOADER_DEFAULTS, .batch = 7, .length_multiple = 4, .shuffle = true, .seed = 3,
      .draws = 5 },
    { GD_LOADER_DEFAULTS, .batch = 8, .length_multiple = 4, .shuffle = true, .drop_last = true },
    { GD_LOADER_DEFAULTS, .batch = 9, .length_multiple = 4, .with_replacement = true, .draws = 2 },
    { GD_LOADER_DEFAULTS, .batch = 6, .length_multiple = 4, .shuffle = true, .seed = 8,
      .length_window = 4 },
    { GD_LOADER_DEFAULTS, .batch = 6, .length_multiple = 4, .length_window = INT32_MAX },
    { GD_LOADER_DEFAULTS, .batch = 5, .length_multiple = 4, .with_replacement = true,
      .batches_per_epoch = INT64_MAX },
    { GD_LOADER_DEFAULTS, .batch = 5, .length_multiple = 4, .shuffle = true,
      .batches_per_epoch = 3 },
    { GD_LOADER_DEFAULTS, .batch = 100, .length_multiple = 4, .shuffle = true },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Order and numbers are those of the loader without threads, bit for bit. */
static void batches_do_not_depend_on_the_number_of_workers(void **state)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int one_thread = 0; one_thread < 2; one_thread++) {
            source *s = new_source();
            *s = (source)SOURCE(.pause = 0);
            gd_dataset *d = called_back(*state, s, one_thread);
            uint64_t expected[RUN], hashes[RUN];
            static const int workers[] = { 0, 1, 2, 3, 7 };
            for (int i = 0; i < 5; i++) {
                gd_loader_options o = kinds[kind];
                o.workers = workers[i];
                o.prefetch = i;
                gd_loader *l = gd_loader_create_with(d, &o);
                if (!l)
                    fail_msg("%s", gd_error_message());
                read_run(l, i ? hashes : expected);
                if (i)
                    assert_memory_equal(hashes, expected, sizeof expected);
                gd_loader_release(l);
            }
            if (one_thread)
                assert_int_equal(s->most, 1);
            gd_dataset_release(d);
            assert_int_equal(s->released, 1);
        }
}

static void a_loader_goes_on_at_any_batch(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    for (int kind = 0; kind < KINDS; kind++)
        for (int workers = 0; workers <= 2; workers += 2) {
            gd_loader_options o = kinds[kind];
            o.workers = workers;
            gd_loader *l = gd_loader_create_with(d, &o), *other = gd_loader_create_with(d, &o);
            uint64_t hashes[RUN];
            read_run(l, hashes);
            for (int at = RUN - 1; at >= 0; at -= 3) {
                assert_int_equal(gd_loader_seek(at % 2 ? l : other, at), GD_OK);
                for (int n = at; n < RUN && n < at + 4; n++) {
                    gd_loader *from = at % 2 ? l : other;
                    gd_batch b;
                    assert_int_equal(gd_loader_position(from), n);
                    if (!gd_loader_next(from, &b)) /* only after the last batch of an epoch */
                        assert_true(n > at && n % gd_loader_batches(from) == 0 &&
                                    gd_loader_next(from, &b));
                    assert_true(hash_of(&b) == hashes[n]);
                }
            }
            assert_int_equal(gd_loader_seek(l, -1), GD_ERR_INVALID);
            expect_error(GD_ERR_INVALID, "position -1");
            gd_loader_release(l);
            gd_loader_release(other);
        }
}

/* ---- errors ---- */

static void an_error_names_its_sample_and_the_loader_goes_on(void **state)
{
    for (int workers = 0; workers <= 3; workers++) {
        source *s = new_source();
        *s = (source)SOURCE(.fails = 17);
        gd_dataset *d = called_back(*state, s, false);
        gd_loader *l = gd_loader_create(d, .batch = 5, .workers = workers);
        gd_batch b;
        for (int n = 0; n < 3; n++)
            assert_true(gd_loader_next(l, &b));
        assert_false(gd_loader_next(l, &b));
        expect_error(GD_ERR_FORMAT, "sample 17: b/cat.jpg: no image");
        assert_true(b.count == 0 && !b.tensors[0]);
        assert_true(gd_loader_next(l, &b));
        assert_int_equal(b.number, 4);
        check_batch(&b, 8);
        assert_int_equal(gd_loader_seek(l, 3), GD_OK);
        assert_false(gd_loader_next(l, &b));
        expect_error(GD_ERR_FORMAT, "sample 17: b/cat.jpg: no image");
        s->fails = -1;
        assert_int_equal(gd_loader_seek(l, 3), GD_OK);
        assert_true(gd_loader_next(l, &b));
        check_batch(&b, 8);
        gd_loader_release(l);
        gd_dataset_release(d);
    }
}

static gd_status say_nothing(void *user, int64_t index, gd_sample_values *sample)
{
    if (index == 1)
        return GD_ERR_IO;
    *(uint8_t *)sample->data[0] = *(uint8_t *)user;
    return GD_OK;
}

static void wrong_samples_are_errors(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.wrong_length = 4);
    gd_tensor *t[5];
    gd_dataset *d = called_back(*state, s, false);
    assert_int_equal(gd_dataset_get(d, 0, 5, t), GD_ERR_SHAPE);
    expect_error(GD_ERR_SHAPE, "sample 4: field \"sequence\" has 12 steps, of at most 11");
    assert_null(t[0]);
    uint8_t label = 2;
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_U8, .classes = 3 };
    d = gd_dataset_create(*state, 3, 1, &field, say_nothing, &label);
    assert_int_equal(gd_dataset_get(d, 0, 1, t), GD_OK);
    assert_int_equal(gd_dataset_get(d, 1, 1, t), GD_ERR_IO);
    expect_error(GD_ERR_IO, "sample 1: gd_dataset_create: the callback returned");
    label = 3;
    assert_int_equal(gd_dataset_get(d, 2, 1, t), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "sample 2: field \"y\" has label 3, of 3 classes");
    const int64_t last = 2;
    gd_loader *l = gd_loader_create(gd_dataset_subset(d, 1, &last), .workers = 1);
    gd_batch b;
    assert_false(gd_loader_next(l, &b)); /* the index in the loader's own data set */
    expect_error(GD_ERR_INVALID, "sample 0: field \"y\" has label 3");
}

static void wrong_options_are_errors(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    double weights[COUNT] = { 0 };
    assert_null(gd_loader_create(d, .weights = weights));
    expect_error(GD_ERR_INVALID, "the weights' sum is 0");
    weights[3] = -1;
    assert_null(gd_loader_create(d, .weights = weights));
    expect_error(GD_ERR_INVALID, "weight -1 of sample 3");
    assert_null(gd_loader_create(d, .batches_per_epoch = 3));
    expect_error(GD_ERR_INVALID, "3 batches in an epoch; the samples fill 2");
    assert_null(gd_loader_create(d, .batches_per_epoch = 0));
    expect_error(GD_ERR_INVALID, "0 batches in an epoch");
    assert_null(gd_loader_create(d, .length_window = 2, .with_replacement = true));
    expect_error(GD_ERR_INVALID, "drawn with replacement");
    assert_null(gd_loader_create(d, .workers = 257));
    expect_error(GD_ERR_INVALID, "workers 257");
    assert_null(gd_loader_create(d, .length_multiple = 0));
    expect_error(GD_ERR_INVALID, "length_multiple 0");
    assert_null(gd_loader_create(d, .batch = INT64_C(1) << 40, .with_replacement = true));
    expect_error(GD_ERR_INVALID, "at most 2147483647");
    const float x[2] = { 1, 2 };
    const void *array = x;
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "x" };
    gd_dataset *plain = gd_dataset_from_arrays(*state, 2, 1, &field, &array);
    assert_null(gd_loader_create(plain, .length_window = 2));
    expect_error(GD_ERR_INVALID, "needs a field whose lengths are known");
}

/* ---- the end ---- */

static void loaders_end_while_workers_work(void **state)
{
    for (int taken = 0; taken < 6; taken++) {
        source *s = new_source();
        *s = (source)SOURCE(.pause = 100);
        gd_dataset *d = called_back(*state, s, false);
        gd_loader *l = gd_loader_create(d, .batch = 4, .shuffle = true, .workers = 3);
        gd_dataset_release(d); /* the loader keeps it */
        gd_batch b;
        for (int i = 0; i < taken; i++)
            assert_true(gd_loader_next(l, &b));
        assert_int_equal(s->released, 0);
        gd_loader_release(l);
        assert_int_equal(s->inside, 0);
        assert_int_equal(s->released, 1);
    }
    source *s = new_source();
    *s = (source)SOURCE(.pause = 100);
    gd_context *gd = gd_open(test_device(), .threads = 1);
    assert_non_null(gd_loader_create(called_back(gd, s, false), .workers = 2));
    gd_close(gd);
    assert_int_equal(s->released, 1);
}

static bool everything(int workers)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_context *gd = gd_open(test_device(), .threads = 1);
    gd_dataset *d = gd ? called_back(gd, s, false) : NULL, *first, *second;
    double weights[COUNT];
    bool ok = d && gd_dataset_sample_weights(d, 3, weights) == GD_OK &&
              gd_dataset_split(d, 0.5, &first, &second, .stratify = 3) == GD_OK;
    gd_loader *sorted = gd_loader_create(ok ? first : NULL, .batch = 20, .shuffle = true,
                                         .workers = workers, .length_window = 1);
    gd_loader *drawn = gd_loader_create(ok ? d : NULL, .batch = 3, .weights = weights);
    gd_batch b;
    gd_tensor *t[5];
    ok = ok && gd_loader_next(sorted, &b) && gd_loader_next(drawn, &b) &&
         gd_dataset_get(second, 0, 5, t) == GD_OK;
    gd_close(gd);
    assert_int_equal(s->released, d ? 1 : s->released);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2)
        fail_every_allocation(everything, workers);
}

/* ---- random numbers ---- */

/* The draws of a sample are the same in any batch of the epoch, and others in the next. */
static void draws_depend_on_seed_epoch_and_sample_alone(void **state)
{
    enum { DRAWS = 6 };
    static float seen[2][2][COUNT][DRAWS];
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    for (int way = 0; way < 2; way++) {
        gd_loader *l = gd_loader_create(d, .batch = way ? 4 : 13, .shuffle = way == 1, .seed = 5,
                                        .workers = way, .draws = DRAWS);
        for (int epoch = 0; epoch < 2; epoch++)
            for (gd_batch b; gd_loader_next(l, &b);) {
                float draws[COUNT][DRAWS];
                gd_tensor *t = b.tensors[b.count - 1];
                assert_int_equal(b.count, 6);
                assert_int_equal(gd_tensor_shape(t).dim[1], DRAWS);
                assert_int_equal(gd_tensor_read(t, draws, (size_t)b.size * sizeof *draws), GD_OK);
                for (int64_t i = 0; i < b.size; i++)
                    memcpy(seen[way][epoch][b.indices[i]], draws[i], sizeof *draws);
            }
    }
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_memory_not_equal(seen[0][0][i], seen[0][1][i], sizeof(float[DRAWS]));
        for (int k = 0; k < DRAWS; k++) {
            assert_true(seen[0][0][i][k] >= 0 && seen[0][0][i][k] < 1);
            sum += (double)seen[0][0][i][k];
        }
    }
    assert_true(fabs(sum / (COUNT * DRAWS) - 0.5) < 0.05);
}

/* How often each sample is drawn. */
static void count_draws(gd_loader *l, int64_t batches, int64_t counts[COUNT])
{
    memset(counts, 0, COUNT * sizeof *counts);
    gd_batch b;
    for (int64_t n = 0; n < batches; n++) {
        if (!gd_loader_next(l, &b))
            assert_true(gd_loader_next(l, &b));
        for (int64_t i = 0; i < b.size; i++)
            counts[b.indices[i]]++;
    }
}

static void samples_are_drawn_by_their_weights(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    double weights[COUNT] = { 0 };
    weights[2] = 1;
    weights[30] = 3;
    int64_t counts[COUNT];
    gd_loader *l = gd_loader_create(d, .batch = 40, .weights = weights, .seed = 2);
    assert_int_equal(gd_loader_batches(l), 1);
    count_draws(l, 100, counts);
    assert_int_equal(counts[2] + counts[30], 4000);
    assert_true(counts[2] > 900 && counts[2] < 1100);
    assert_int_equal(gd_dataset_sample_weights(d, 3, weights), GD_OK);
    l = gd_loader_create(d, .batch = 40, .weights = weights, .seed = 2);
    count_draws(l, 100, counts);
    int64_t of_class[CLASSES] = { 0 };
    for (int i = 0; i < COUNT; i++)
        of_class[i % 5 % CLASSES] += counts[i];
    for (int c = 0; c < CLASSES; c++)
        assert_true(of_class[c] > 900 && of_class[c] < 1100);
    l = gd_loader_create(d, .batch = 40, .with_replacement = true, .batches_per_epoch = INT64_MAX);
    assert_true(gd_loader_samples(l) == INT64_MAX && gd_loader_batches(l) == INT64_MAX);
    count_draws(l, 200, counts);
    for (int i = 0; i < COUNT; i++)
        assert_true(counts[i] > 80 && counts[i] < 190); /* of 131 */
}

/* Sorted by length within windows, a batch's samples differ by less than without. */
static void batches_by_length_need_less_padding(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    int64_t padded[2] = { 0 };
    for (int by_length = 0; by_length < 2; by_length++) {
        gd_loader *l = gd_loader_create(d, .batch = 5, .shuffle = true, .length_multiple = 1,
                                        .length_window = 6 * by_length);
        bool seen[COUNT] = { false };
        int64_t samples = 0;
        for (gd_batch b; gd_loader_next(l, &b); samples += b.size) {
            padded[by_length] += gd_tensor_count(b.tensors[1]);
            for (int64_t i = 0; i < b.size; i++) {
                assert_false(seen[b.indices[i]]);
                seen[b.indices[i]] = true;
            }
        }
        assert_int_equal(samples, COUNT);
    }
    assert_true(4 * padded[1] < 3 * padded[0]);
}

/* ---- parts of data sets ---- */

static void get_one(const gd_dataset *d, int64_t i, int64_t *index, int64_t *class)
{
    gd_tensor *t[5];
    assert_int_equal(gd_dataset_get(d, i, 1, t), GD_OK);
    *index = (int64_t)gd_item(t[2]);
    *class = (int64_t)gd_item(t[3]);
}

/* Marks the samples of a part, which are in the data set's order, and counts its classes. */
static void take_part(const gd_dataset *d, int mark, int marks[COUNT], int64_t counts[CLASSES])
{
    int64_t last = -1;
    memset(counts, 0, CLASSES * sizeof *counts);
    for (int64_t i = 0; i < gd_dataset_count(d); i++) {
        int64_t index, class;
        get_one(d, i, &index, &class);
        assert_true(index > last);
        assert_int_equal(marks[index], 0);
        marks[index] = mark;
        counts[class]++;
        last = index;
    }
}

static void parts_have_each_sample_once(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false), *first, *second;
    int64_t counts[CLASSES];
    int marks[3][COUNT] = { { 0 } };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gd_dataset_split(d, 0.7, &first, &second, .seed = (uint64_t)(i == 2)),
                         GD_OK);
        assert_int_equal(gd_dataset_count(first), 43); /* of 61 */
        take_part(first, 1, marks[i], counts);
        take_part(second, 2, marks[i], counts);
    }
    assert_memory_equal(marks[0], marks[1], sizeof marks[0]);
    assert_memory_not_equal(marks[0], marks[2], sizeof marks[0]);
    assert_int_equal(gd_dataset_split(d, 0.7, &first, &second, .shuffle = false), GD_OK);
    int64_t index, class;
    get_one(second, 0, &index, &class);
    assert_int_equal(index, 43);
    assert_int_equal(gd_dataset_split(d, 0.001, &first, &second), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a share of 0.001 of 61 samples");
    assert_null(first);
    assert_int_equal(gd_dataset_split(d, 0.5, &first, &second, .stratify = 0), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "field \"image\" has no classes");
    assert_int_equal(gd_dataset_split(d, 0.5, &first, &second, .stratify = 4), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "there is no field 4");
}

/* Classes 0 … 3 have 25, 12, 12, 12 samples. */
static void stratified_parts_have_their_share_of_each_class(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false), *first, *second;
    int marks[COUNT] = { 0 };
    int64_t counts[CLASSES];
    assert_int_equal(gd_dataset_split(d, 0.8, &first, &second, .stratify = 3), GD_OK);
    take_part(first, 1, marks, counts);
    assert_int_equal(gd_dataset_count(first), 49);
    assert_int_equal(counts[0], 20); /* 9.6 of each other class */
    for (int c = 1; c < CLASSES; c++)
        assert_true(counts[c] == 9 || counts[c] == 10);
    take_part(second, 2, marks, counts);
    for (int stratify = -1; stratify <= 3; stratify += 4) {
        memset(marks, 0, sizeof marks);
        for (int fold = 0; fold < 4; fold++) {
            gd_dataset *train, *test;
            assert_int_equal(gd_dataset_fold(d, 4, fold, &train, &test, .stratify = stratify),
                             GD_OK);
            assert_int_equal(gd_dataset_count(train) + gd_dataset_count(test), COUNT);
            assert_true(gd_dataset_count(test) == 15 || gd_dataset_count(test) == 16);
            take_part(test, fold + 1, marks, counts);
            for (int c = 1; stratify == 3 && c < CLASSES; c++)
                assert_int_equal(counts[c], 3);
        }
        for (int i = 0; i < COUNT; i++)
            assert_true(marks[i] > 0);
    }
    gd_dataset *train, *test;
    assert_int_equal(gd_dataset_fold(d, 4, 4, &train, &test), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "fold 4 of 4, of 61 samples");
    double weights[CLASSES];
    assert_int_equal(gd_dataset_class_weights(d, 3, weights), GD_OK);
    assert_true(weights[0] == 61.0 / (4 * 25) && weights[3] == 61.0 / (4 * 12));
}

/* Subsets of subsets, which outlive what they were made of; an index may occur twice. */
static void subsets_stand_on_their_own(void **state)
{
    source *s = new_source();
    *s = (source)SOURCE(.pause = 0);
    gd_dataset *d = called_back(*state, s, false);
    const int64_t indices[4] = { 60, 5, 5, 0 }, again[3] = { 3, 0, 1 }, beyond = 4;
    gd_dataset *some = gd_dataset_subset(d, 4, indices), *fewer = gd_dataset_subset(some, 3, again);
    assert_null(gd_dataset_subset(some, 1, &beyond));
    expect_error(GD_ERR_SHAPE, "sample 4 of 4");
    gd_dataset_release(d);
    gd_dataset_release(some);
    assert_int_equal(s->released, 0);
    const int64_t expected[3] = { 0, 60, 5 };
    for (int64_t i = 0; i < 3; i++) {
        int64_t index, class;
        get_one(fewer, i, &index, &class);
        assert_int_equal(index, expected[i]);
    }
    gd_dataset_release(fewer);
    assert_int_equal(s->released, 1);
}

/* ---- arrays ---- */

static void lent_arrays_are_not_copied(void **state)
{
    float x[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
    const void *array = x;
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(2) };
    gd_dataset *lent = gd_dataset_from_arrays(*state, 3, 1, &field, &array, .copy = false);
    gd_dataset *own = gd_dataset_from_arrays(*state, 3, 1, &field, &array);
    x[1][0] = 7;
    gd_tensor *t;
    assert_int_equal(gd_dataset_get(lent, 1, 1, &t), GD_OK);
    assert_true(gd_item(gd_select(gd_select(t, 0, 0), 0, 0)) == 7);
    assert_int_equal(gd_dataset_get(own, 1, 1, &t), GD_OK);
    assert_true(gd_item(gd_select(gd_select(t, 0, 0), 0, 0)) == 3);
}

static void lent_labels_that_change_are_errors(void **state)
{
    int64_t labels[3] = { 0, 1, 1 };
    const void *array = labels;
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = 2 };
    gd_dataset *d = gd_dataset_from_arrays(*state, 3, 1, &field, &array, .copy = false);
    double weights[3];
    assert_int_equal(gd_dataset_class_weights(d, 0, weights), GD_OK);
    labels[1] = 1 << 30;
    assert_int_equal(gd_dataset_class_weights(d, 0, weights), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "label 1073741824 of sample 1, of 2 classes");
}

/* Sequences in memory: [count, max_length, 2], padded in f16 batches. */
static void sequences_in_memory_are_padded(void **state)
{
    uint8_t steps[3][4][2];
    const int64_t lengths[3] = { 2, 0, 3 };
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 8; k++)
            steps[i][k / 2][k % 2] = (uint8_t)(10 * i + k);
    const gd_field field = {
        GD_FIELD_DEFAULTS, .name = "x",           .shape = GD_SHAPE(GD_VARIES, 2),
        .dtype = GD_U8,    .batch_dtype = GD_F16, .scale = 0.5,
        .max_length = 4,   .padding = -0.5
    };
    const void *array = steps;
    const int64_t *known = lengths;
    gd_dataset *d = gd_dataset_from_arrays(*state, 3, 1, &field, &array, .lengths = &known);
    gd_tensor *t[2];
    float values[3][3][2];
    assert_int_equal(gd_dataset_tensor_count(d), 2);
    assert_int_equal(gd_dataset_get(d, 0, 3, t), GD_OK);
    assert_int_equal(gd_tensor_dtype(t[0]), GD_F16);
    assert_int_equal(gd_tensor_shape(t[0]).dim[1], 3);
    assert_int_equal(gd_tensor_read(gd_cast(t[0], GD_F32), values, sizeof values), GD_OK);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 6; k++) {
            float expected = k / 2 < lengths[i] ? 0.5f * (float)(10 * i + k) : -0.5f;
            assert_true(values[i][k / 2][k % 2] == expected);
        }
    const int64_t wrong[3] = { 2, 5, 3 };
    known = wrong;
    assert_null(gd_dataset_from_arrays(*state, 3, 1, &field, &array, .lengths = &known));
    expect_error(GD_ERR_SHAPE, "sample 1 has 5 steps, of at most 4");
}

static gd_tensor *sum_of_sequences(void *user, int count, gd_tensor *const *inputs)
{
    (void)user, (void)count;
    return gd_sum(inputs[0], GD_ALL_AXES, false);
}

/* Whoever writes a batch's rows pads them where they are: the caller gets that memory, of the same few
 * batches in turn, whatever their lengths; and it is a tensor as any other. */
static void sequences_are_padded_by_the_workers(void **state)
{
    for (int workers = 0; workers <= 2; workers += 2) {
        source s = SOURCE();
        gd_dataset *d = called_back(*state, &s, false);
        gd_loader *l = gd_loader_create(d, .batch = 4, .shuffle = true, .workers = workers,
                                        .length_multiple = 1, .drop_last = true);
        gd_function *f = gd_compile(*state, sum_of_sequences, NULL);
        const void *memory[3] = { 0 };
        int64_t length = 0, lengths = 0;
        gd_batch b;
        for (int n = 0; n < 3 * COUNT / 4; n++) {
            assert_true(gd_loader_next(l, &b) || gd_loader_next(l, &b));
            check_batch(&b, 1);
            const void **place = &memory[workers ? n % 3 : 0];
            assert_true(!*place || *place == gd_tensor_data(b.tensors[1]));
            *place = gd_tensor_data(b.tensors[1]);
            lengths += gd_tensor_shape(b.tensors[1]).dim[1] != length;
            length = gd_tensor_shape(b.tensors[1]).dim[1];
            assert_true(gd_item(gd_call(f, 1, &b.tensors[1])) ==
                        gd_item(gd_sum(b.tensors[1], GD_ALL_AXES, false)));
        }
        assert_true(lengths > 3);
        gd_loader_release(l);
        gd_dataset_release(d);
    }
}

/* Whether an integer dtype has all numbers of another, or of bool. */
static bool has_all_of(gd_dtype to, gd_dtype from)
{
    const bool to_unsigned = to == GD_U8 || to == GD_U16 || to == GD_U32 || to == GD_U64;
    const bool from_unsigned = from == GD_U8 || from == GD_U16 || from == GD_U32 || from == GD_U64;
    if (!gd_dtype_is_integer(to) || !gd_dtype_is_integer(from))
        return gd_dtype_is_integer(to) && from == GD_BOOL;
    if (to_unsigned == from_unsigned)
        return gd_dtype_size(to) >= gd_dtype_size(from);
    return from_unsigned && gd_dtype_size(to) > gd_dtype_size(from);
}

/* Batches of every dtype from every dtype, as gd_cast has them, after a scale in f64. */
static void values_are_converted(void **state)
{
    gd_context *gd = *state;
    for (int from = 0; from < GD_DTYPE_COUNT; from++)
        for (int to = 0; to < GD_DTYPE_COUNT; to++) {
            const bool is_float = gd_dtype_is_float((gd_dtype)to);
            gd_tensor *given = gd_cast(gd_sub_scalar(gd_arange(gd, 0, 7, 1, GD_F32), 1),
                                       from == GD_BOOL ? GD_U8 : (gd_dtype)from);
            if (from == GD_BOOL ||
                (from != GD_F32 && !gd_dtype_is_float((gd_dtype)from) &&
                 (from == GD_U8 || from == GD_U16 || from == GD_U32 || from == GD_U64)))
                given =
                    gd_cast(gd_mod_scalar(gd_arange(gd, 0, 7, 1, GD_I64), from == GD_BOOL ? 2 : 9),
                            (gd_dtype)from);
            const gd_field field = { GD_FIELD_DEFAULTS,
                                     .name = "x",
                                     .dtype = (gd_dtype)from,
                                     .batch_dtype = (gd_dtype)to,
                                     .scale = is_float ? 0.25 : 1,
                                     .shift = is_float ? 2 : 0 };
            double values[7]; /* as wide as any dtype */
            const void *array = values;
            assert_int_equal(gd_tensor_read(given, values, 7 * gd_dtype_size((gd_dtype)from)),
                             GD_OK);
            gd_dataset *d = gd_dataset_from_arrays(gd, 7, 1, &field, &array);
            const bool possible =
                from == to || is_float || has_all_of((gd_dtype)to, (gd_dtype)from);
            assert_int_equal(d != NULL, possible);
            gd_error_clear();
            gd_tensor *t, *expected = is_float ? gd_cast(given, GD_F64) : given;
            if (!d)
                continue;
            if (is_float)
                expected = gd_add_scalar(gd_mul_scalar(expected, 0.25), 2);
            assert_int_equal(gd_dataset_get(d, 0, 7, &t), GD_OK);
            assert_same_bits(t, gd_cast(expected, (gd_dtype)to));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(batches_do_not_depend_on_the_number_of_workers),
        context_test(a_loader_goes_on_at_any_batch),
        context_test(an_error_names_its_sample_and_the_loader_goes_on),
        context_test(wrong_samples_are_errors),
        context_test(wrong_options_are_errors),
        context_test(loaders_end_while_workers_work),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
        context_test(draws_depend_on_seed_epoch_and_sample_alone),
        context_test(samples_are_drawn_by_their_weights),
        context_test(batches_by_length_need_less_padding),
        context_test(parts_have_each_sample_once),
        context_test(stratified_parts_have_their_share_of_each_class),
        context_test(subsets_stand_on_their_own),
        context_test(lent_arrays_are_not_copied),
        context_test(lent_labels_that_change_are_errors),
        context_test(sequences_in_memory_are_padded),
        context_test(sequences_are_padded_by_the_workers),
        context_test(values_are_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
