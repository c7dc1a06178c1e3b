/* tests/test_training_file.c: whole trainings in files (gradus/checkpoint.h): they go on bit for bit,
 * damage is found, and a run folder loses nothing. Forks, so it opens contexts of one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/folder.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

static int begin(void **state)
{
    (void)state;
    return make_folder_in(NULL);
}

static int end(void **state)
{
    (void)state;
    return delete_folder();
}

/* ---- a training ---- */

enum { STEPS = 6, BATCH = 4, IN = 3, WIDTH = 5 };

typedef struct problem {
    gd_context *context;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_ema *ema;
    gd_plateau plateau;
    gd_tensor *sum; /* of losses: state of the caller's own */
    gd_function *step;
    gd_training training;
    gd_named_tensor named;
} problem;

/* Dropout, batch norm, clipped gradients and moving averages. The second layer is made before what
 * comes before it in the alphabet. */
static gd_tensor *step_body(void *user, int count, gd_tensor *const *in)
{
    (void)count;
    problem *p = user;
    gd_tensor *h = gd_relu(gd_nn_linear(p->module, "z", in[0], WIDTH));
    h = gd_nn_dropout(p->module, "drop", gd_nn_batch_norm(p->module, "norm", h), 0.5);
    gd_tensor *loss = gd_mse(gd_nn_linear(p->module, "a", h, 1), in[1]);
    if (!gd_minimize(p->optimizer, loss) || gd_ema_update(p->ema) != GD_OK ||
        !gd_assign(p->sum, gd_add(p->sum, gd_cast(loss, GD_F64))))
        return NULL;
    return loss;
}

static void open_problem(problem *p, uint64_t seed)
{
    *p = (problem){ .context = gd_open("cpu", .threads = 1, .seed = seed) };
    p->module = gd_module_create(p->context, .seed = seed);
    p->optimizer = gd_adam(p->module, .lr = 0.05);
    assert_int_equal(gd_optimizer_clip_norm(p->optimizer, 0.5), GD_OK);
    p->ema = gd_ema_create(p->module, .decay = 0.9);
    p->plateau = (gd_plateau){ GD_PLATEAU_DEFAULTS, .patience = 1 };
    p->sum = gd_state(p->context, GD_SCALAR, 0.0, GD_F64);
    p->step = gd_compile(p->context, step_body, p);
    p->named = (gd_named_tensor){ "sum", p->sum };
    p->training =
        (gd_training){ GD_TRAINING_DEFAULTS,   .optimizer = p->optimizer, .ema = p->ema,
                       .plateau = &p->plateau, .tensor_count = 1,         .tensors = &p->named };
}

static void close_problem(problem *p)
{
    gd_release(p->sum);
    gd_close(p->context);
}

static void take_steps(problem *p, int from, int to)
{
    for (int i = from; i < to; i++) {
        float x[BATCH * IN], y[BATCH];
        for (int k = 0; k < BATCH * IN; k++)
            x[k] = (float)((k * 7 + i * 3) % 11) / 5.0f - 1.0f;
        for (int k = 0; k < BATCH; k++)
            y[k] = x[k * IN] * 2.0f - x[k * IN + 1];
        gd_tensor *in[2] = { gd_from_host(p->context, GD_SHAPE(BATCH, IN), GD_F32, x),
                             gd_from_host(p->context, GD_SHAPE(BATCH, 1), GD_F32, y) };
        gd_tensor *loss = gd_call(p->step, 2, in);
        if (!loss)
            fail_msg("%s", gd_error_message());
        double lr = gd_plateau_step(&p->plateau, gd_optimizer_lr(p->optimizer), gd_item(loss));
        assert_int_equal(gd_optimizer_set_lr(p->optimizer, lr), GD_OK);
    }
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    unsigned char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static void overwrite(const char *path, const unsigned char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void assert_same_files(const char *a, const char *b)
{
    size_t sizes[2];
    unsigned char *bytes[2] = { read_file(a, &sizes[0]), read_file(b, &sizes[1]) };
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
}

/* Six steps at once, and six that are interrupted after each of them, end in the same file, byte for
 * byte: in a module that has its parameters, and in one whose layers find them in the file. */
static void a_training_goes_on_bit_for_bit(void **state)
{
    (void)state;
    need_json();
    problem whole;
    open_problem(&whole, 1);
    take_steps(&whole, 0, STEPS);
    assert_int_equal(gd_training_save(&whole.training, in_folder("whole")), GD_OK);
    close_problem(&whole);
    for (int used = 0; used < 2; used++) {
        for (int i = 0; i < STEPS; i++) {
            problem part;
            open_problem(&part, i == 0 ? 1 : 7);
            if (i > 0 && used)
                take_steps(&part, 0, 2); /* to be forgotten */
            if (i > 0 && gd_training_load(&part.training, in_folder("part")) != GD_OK)
                fail_msg("%s", gd_error_message());
            take_steps(&part, i, i + 1);
            assert_int_equal(gd_training_save(&part.training, in_folder("part")), GD_OK);
            close_problem(&part);
        }
        assert_same_files(in_folder("whole"), in_folder("part"));
    }
}

static void save_trained(problem *p, const char *path)
{
    open_problem(p, 1);
    take_steps(p, 0, 2);
    assert_int_equal(gd_training_save(&p->training, path), GD_OK);
}

/* A flipped bit anywhere, and a file that ends anywhere, are found, and nothing is changed. */
static void damage_is_found(void **state)
{
    (void)state;
    need_json();
    problem p;
    const char *path = in_folder("good"), *bad = in_folder("bad");
    save_trained(&p, path);
    size_t size;
    unsigned char *bytes = read_file(path, &size);
    for (size_t i = 0; i < size; i++) {
        unsigned char kept = bytes[i];
        bytes[i] = (unsigned char)(kept ^ 1u << i % 8);
        overwrite(bad, bytes, size);
        bytes[i] = kept;
        gd_status status = gd_training_load(&p.training, bad);
        if (status != GD_ERR_FORMAT && status != GD_ERR_UNSUPPORTED)
            fail_msg("byte %zu of %zu: %s", i, size, gd_error_message());
        gd_error_clear();
    }
    for (size_t end = 0; end < size; end += end < 2000 ? 1 : 97) {
        overwrite(bad, bytes, end);
        assert_int_equal(gd_training_load(&p.training, bad), GD_ERR_FORMAT);
        gd_error_clear();
    }
    free(bytes);
    assert_int_equal(gd_training_save(&p.training, bad), GD_OK);
    assert_same_files(path, bad);
    close_problem(&p);
}

static void files_of_other_trainings_are_refused(void **state)
{
    (void)state;
    need_json();
    problem p;
    const char *path = in_folder("training");
    save_trained(&p, path);
    gd_training t = p.training;
    t.optimizer = gd_sgd(p.module);
    assert_int_equal(gd_training_load(&t, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "holds the state of adam, not of sgd");
    t = (gd_training){ GD_TRAINING_DEFAULTS, .module = gd_module_create(p.context) };
    assert_non_null(gd_parameter(t.module, "other", GD_SHAPE(2, 2)));
    assert_int_equal(gd_training_load(&t, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "of another model: it has no \"other\"");
    t = p.training;
    t.tensor_count = 0;
    assert_int_equal(gd_training_load(&t, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "of another training: it has a \"checkpoint/tensors/sum\"");
    assert_int_equal(gd_module_save(p.module, path), GD_OK);
    assert_int_equal(gd_training_load(&p.training, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "no checkpoint");
    t = p.training;
    t.metadata_count = 1;
    t.metadata = &(gd_metadata){ "lr", "1" };
    assert_int_equal(gd_training_save(&t, path), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "\"lr\" is the key of another string");
    assert_int_equal(gd_training_save(&(gd_training){ GD_TRAINING_DEFAULTS }, path),
                     GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "a model, a module or an optimizer is needed");
    close_problem(&p);
}

/* A checkpoint of a model is a model's file, and carries strings. */
static void a_checkpoint_is_a_model_file(void **state)
{
    need_json();
    gd_model *model = gd_model_load_json(
        *state,
        "{\"input\": [3], \"layers\": [{\"name\": \"out\", \"type\": \"linear\", \"units\": 2}]}",
        .seed = 1);
    assert_non_null(model);
    gd_module *module = gd_model_module(model);
    gd_optimizer *adam = gd_adam(module);
    gd_tensor *x = gd_ones(*state, GD_SHAPE(1, 3), GD_F32);
    assert_non_null(gd_minimize(adam, gd_model_loss(model, gd_model_forward(model, x),
                                                    gd_zeros(*state, GD_SHAPE(1), GD_I64))));
    gd_training t = { GD_TRAINING_DEFAULTS, .model = model, .optimizer = adam, .metadata_count = 1,
                      .metadata = &(gd_metadata){ "statistics", "{\"mean\": 2}" } };
    const char *path = in_folder("model");
    assert_int_equal(gd_training_save(&t, path), GD_OK);
    gd_model *same = gd_model_load(*state, path);
    assert_non_null(same);
    assert_same_bits(gd_model_forward(model, x), gd_model_forward(same, x));
    gd_module *loaded = gd_module_create(*state);
    assert_int_equal(gd_module_load(loaded, path), GD_OK);
    assert_int_equal(gd_module_count(loaded), 2);
    assert_int_equal(gd_module_load(module, path), GD_OK);
    gd_tensor_file *file = gd_tensor_file_open(path);
    assert_non_null(file);
    assert_string_equal(gd_tensor_file_metadata(file, "statistics"), "{\"mean\": 2}");
    assert_int_equal(gd_tensor_file_verify(file), GD_OK);
    gd_tensor_file_close(file);
}

/* Damage in a file of parameters alone is found as well. */
static void a_damaged_model_is_not_loaded(void **state)
{
    need_json();
    gd_module *m = gd_module_create(*state);
    assert_non_null(gd_parameter(m, "w", GD_SHAPE(2, 2)));
    const char *path = in_folder("module");
    assert_int_equal(gd_module_save(m, path), GD_OK);
    size_t size;
    unsigned char *bytes = read_file(path, &size);
    bytes[size - 1] ^= 1;
    overwrite(path, bytes, size);
    free(bytes);
    assert_int_equal(gd_module_load(m, path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "damaged");
    assert_int_equal(gd_module_load(gd_module_create(*state), path), GD_ERR_FORMAT);
    expect_error(GD_ERR_FORMAT, "damaged");
}

/* The published values of XXH64, of text that comes in pieces. */
static void hashes_are_those_of_xxh64(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t hash;
    } rows[] = { { "", UINT64_C(0xef46db3751d8e999) },
                 { "abc", UINT64_C(0x44bc2cf5ad770999) },
                 { "Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1) } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t first = 0; first <= strlen(rows[i].text); first++) {
            gd_hash hash;
            gd_hash_begin(&hash);
            gd_hash_add(&hash, rows[i].text, first);
            gd_hash_add(&hash, rows[i].text + first, strlen(rows[i].text) - first);
            assert_true(gd_hash_end(&hash) == rows[i].hash);
        }
}

/* ---- run folders ---- */

static double steps_in(const char *path)
{
    gd_context *context = gd_open("cpu", .threads = 1);
    gd_tensor_file *file = gd_tensor_file_open(path);
    double steps = -1.0;
    int64_t index = file ? gd_tensor_file_find(file, "checkpoint/optimizer/step") : -1;
    if (index >= 0)
        steps = gd_item(gd_tensor_file_read(file, context, index));
    gd_tensor_file_close(file);
    gd_close(context);
    gd_error_clear();
    return steps;
}

static void the_last_two_and_the_best_are_kept(void **state)
{
    (void)state;
    need_json();
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        const char *path = in_folder(asynchronous ? "rotation1" : "deep/er/rotation0");
        char last[160], previous[160], best[160];
        snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", path);
        snprintf(previous, sizeof previous, "%s/checkpoints/previous.safetensors", path);
        snprintf(best, sizeof best, "%s/checkpoints/best.safetensors", path);
        gd_run *run = gd_run_open(path, .asynchronous = asynchronous, .interval = 0);
        if (!run)
            fail_msg("%s", gd_error_message());
        problem p;
        open_problem(&p, 1);
        assert_false(gd_run_has_checkpoint(run));
        assert_int_equal(gd_run_load(run, &p.training, NULL), GD_ERR_IO);
        expect_error(GD_ERR_IO, "has no checkpoint");
        for (int i = 0; i < 4; i++) {
            take_steps(&p, i, i + 1);
            assert_int_equal(gd_run_save(run, &p.training, i == 1), GD_OK);
        }
        assert_int_equal(gd_run_wait(run), GD_OK);
        assert_true(gd_run_has_checkpoint(run));
        assert_true(steps_in(last) == 4.0 && steps_in(previous) == 3.0 && steps_in(best) == 2.0);

        /* The last one is damaged: the one before is taken. */
        size_t size;
        unsigned char *bytes = read_file(last, &size);
        bytes[size / 2] ^= 4;
        remove(last);
        overwrite(last, bytes, size);
        free(bytes);
        const char *taken;
        assert_int_equal(gd_run_load(run, &p.training, &taken), GD_OK);
        assert_string_equal(taken, previous);
        assert_int_equal(gd_error_code(), GD_OK);
        /* It is not put in the place of the one that is whole by what is saved next. */
        take_steps(&p, 3, 4);
        assert_int_equal(gd_run_save(run, &p.training, false), GD_OK);
        assert_int_equal(gd_run_wait(run), GD_OK);
        assert_true(steps_in(last) == 4.0 && steps_in(previous) == 3.0);
        assert_int_equal(gd_run_close(run), GD_OK);
        close_problem(&p);
    }
}

/* Within the interval nothing is written but the last of what is saved, and the best, when that is asked
 * for: by waiting, by closing. */
static void saves_in_short_order_are_one(void **state)
{
    (void)state;
    need_json();
    assert_null(gd_run_open(in_folder("no"), .interval = -1));
    expect_error(GD_ERR_INVALID, "an interval of -1 seconds");
    for (int better = 0; better < 2; better++) {
        const char *path = in_folder(better ? "merged1" : "merged0");
        char last[160], previous[160], best[160];
        snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", path);
        snprintf(previous, sizeof previous, "%s/checkpoints/previous.safetensors", path);
        snprintf(best, sizeof best, "%s/checkpoints/best.safetensors", path);
        gd_run *run = gd_run_open(path, .interval = 1e6);
        problem p;
        open_problem(&p, 1);
        for (int i = 0; i < 5; i++) { /* best: 2, or 2 and 3 */
            take_steps(&p, i, i + 1);
            assert_int_equal(gd_run_save(run, &p.training, i == 1 || (better && i == 2)), GD_OK);
            if (i == 0)
                assert_int_equal(gd_run_wait(run), GD_OK);
        }
        assert_true(steps_in(last) == 1.0);
        assert_int_not_equal(access(best, F_OK), 0);
        if (better) {
            assert_int_equal(gd_run_close(run), GD_OK);
        } else {
            assert_true(gd_run_has_checkpoint(run)); /* one that is asked after is there */
            assert_true(steps_in(last) == 5.0);
            assert_int_equal(gd_run_close(run), GD_OK);
        }
        assert_true(steps_in(last) == 5.0 && steps_in(previous) == 1.0);
        assert_true(steps_in(best) == (better ? 3.0 : 2.0));
        close_problem(&p);
    }
}

/* An allocator that makes two threads meet. The thread that saves waits, while it copies its state, until the
 * writer has begun to write another state. The writer then waits until the copy has been handed over. The flags
 * are relaxed atomics: they order nothing, so ThreadSanitizer sees whatever the run's mutex fails to order. */
static pthread_t saver;
static _Atomic bool is_armed, is_writing;

static bool told(_Atomic bool *what)
{
    return atomic_load_explicit(what, memory_order_relaxed);
}

static void tell(_Atomic bool *what, bool value)
{
    atomic_store_explicit(what, value, memory_order_relaxed);
}

static void *resize_at_the_meeting(void *user, void *block, size_t bytes)
{
    enum { TRIES = 20000 }; /* of a millisecond: where the two never meet, nothing is tested */
    const struct timespec pause = { .tv_nsec = 1000000 };
    (void)user;
    if (bytes == 0) {
        free(block);
        return NULL;
    }
    const bool waits_for_writer = pthread_equal(pthread_self(), saver) != 0;
    if (!waits_for_writer && told(&is_armed))
        tell(&is_writing, true);
    for (int i = 0; i < TRIES && told(&is_armed) && !(waits_for_writer && told(&is_writing)); i++)
        (void)nanosleep(&pause, NULL);
    return realloc(block, bytes);
}

/* A best state that has become due is written while the next one is copied: both reach their files. */
static void a_state_offered_while_another_is_written_is_kept(void **state)
{
    (void)state;
    need_json();
    const char *path = in_folder("offered");
    char last[160], best[160];
    snprintf(last, sizeof last, "%s/checkpoints/last.safetensors", path);
    snprintf(best, sizeof best, "%s/checkpoints/best.safetensors", path);
    saver = pthread_self();
    gd_set_allocator(&(gd_allocator){ resize_at_the_meeting, NULL });
    gd_run *run = gd_run_open(path, .interval = 0.5);
    problem p;
    open_problem(&p, 1);
    for (int i = 0; i < 3; i++) {
        take_steps(&p, i, i + 1);
        tell(&is_armed, i == 2);
        assert_int_equal(gd_run_save(run, &p.training, i == 1), GD_OK);
        if (i == 0)
            assert_int_equal(gd_run_wait(run), GD_OK);
    }
    tell(&is_armed, false);
    assert_int_equal(gd_run_close(run), GD_OK);
    assert_true(steps_in(last) == 3.0 && steps_in(best) == 2.0);
    close_problem(&p);
    gd_set_allocator(NULL);
}

/* The exit status of a process that opens the folder: 0: it could, 2: it is told that another one
 * has it. */
static int open_in_another_process(const char *path)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        gd_run *run = gd_run_open(path);
        bool told =
            gd_error_code() == GD_ERR_STATE && strstr(gd_error_message(), "trains in this folder");
        _exit(run ? 0 : told ? 2 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void one_process_has_a_folder(void **state)
{
    (void)state;
    const char *path = in_folder("locked");
    gd_run *run = gd_run_open(path);
    assert_non_null(run);
    assert_null(gd_run_open(path));
    char who[32];
    snprintf(who, sizeof who, "process %ld", (long)getpid());
    expect_error(GD_ERR_STATE, who);
    assert_int_equal(gd_run_close(run), GD_OK);
    assert_int_equal(open_in_another_process(path), 0);

    /* A link in the lock's place is an error; what it points to is not written over. */
    char lock[160], other[160];
    snprintf(lock, sizeof lock, "%s/lock", path);
    snprintf(other, sizeof other, "%s/other", path);
    overwrite(other, (const unsigned char *)"kept", 4);
    assert_true(remove(lock) == 0 && symlink(other, lock) == 0);
    assert_null(gd_run_open(path));
    expect_error(GD_ERR_IO, "lock: cannot open");
    size_t size;
    unsigned char *bytes = read_file(other, &size);
    assert_true(size == 4 && memcmp(bytes, "kept", 4) == 0);
    free(bytes);
    assert_int_equal(remove(lock), 0);

    /* A killed process lets go; what it had begun to write is removed. */
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run = gd_run_open(path);
        if (write(told[1], run ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char answer = 0;
    assert_int_equal(read(told[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    assert_int_equal(open_in_another_process(path), 2);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(told[0]);
    close(told[1]);
    char leftover[200];
    snprintf(leftover, sizeof leftover, "%s/checkpoints/next.safetensors.123-4.tmp", path);
    overwrite(leftover, (const unsigned char *)"half", 4);
    run = gd_run_open(path);
    assert_non_null(run);
    assert_int_not_equal(access(leftover, F_OK), 0);
    assert_int_equal(gd_run_close(run), GD_OK);
}

/* A disk that is full (here: files that may not become larger) is an error at the next save, and at
 * the end, and what was saved before stands. */
static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    need_json();
    problem p;
    open_problem(&p, 1);
    take_steps(&p, 0, 1);
    const char *path = in_folder("full"), *last = in_folder("full/checkpoints/last.safetensors");
    gd_run *run = gd_run_open(path, .interval = 0);
    assert_non_null(run);
    assert_int_equal(gd_run_save(run, &p.training, true), GD_OK);
    assert_int_equal(gd_run_wait(run), GD_OK);
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 100;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    take_steps(&p, 1, 2);
    gd_status first = gd_run_save(run, &p.training, false);
    gd_status second = gd_run_save(run, &p.training, false);
    gd_error_clear();
    gd_status third = gd_run_save(run, &p.training, false); /* told once, tried again */
    gd_status at_end = gd_run_close(run);
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(first, GD_OK);
    assert_int_equal(second, GD_ERR_IO);
    assert_int_equal(third, GD_OK);
    assert_int_equal(at_end, GD_ERR_IO);
    expect_error(GD_ERR_IO, "cannot write");
    assert_true(steps_in(last) == 1.0);
    run = gd_run_open(path);
    assert_int_equal(gd_run_load(run, &p.training, NULL), GD_OK);
    take_steps(&p, 1, 2);
    assert_int_equal(gd_run_save(run, &p.training, false), GD_OK);
    assert_int_equal(gd_run_close(run), GD_OK);
    assert_true(steps_in(last) == 2.0);
    close_problem(&p);
}

/* ---- out of memory, at every allocation in turn ---- */

/* A step, saved in a folder, synchronously, and read back. */
static bool everything(int unused)
{
    (void)unused;
    problem p = { .context = gd_open("cpu", .threads = 1) };
    p.module = gd_module_create(p.context, .seed = 1);
    p.optimizer = gd_adam(p.module);
    p.ema = gd_ema_create(p.module);
    p.sum = gd_state(p.context, GD_SCALAR, 0.0, GD_F64);
    p.named = (gd_named_tensor){ "sum", p.sum };
    gd_tensor *x = gd_ones(p.context, GD_SHAPE(2, IN), GD_F32);
    gd_tensor *loss = gd_mean(gd_nn_linear(p.module, "a", x, 1), GD_ALL_AXES, false);
    p.training = (gd_training){ GD_TRAINING_DEFAULTS, .optimizer = p.optimizer, .ema = p.ema,
                                .tensor_count = 1, .tensors = &p.named };
    const char *file;
    gd_run *run = gd_run_open(in_folder("memory"), .asynchronous = false);
    bool ok = p.sum && p.ema && run && gd_minimize(p.optimizer, loss) &&
              gd_ema_update(p.ema) == GD_OK && gd_run_save(run, &p.training, true) == GD_OK &&
              gd_run_load(run, &p.training, &file) == GD_OK;
    ok = gd_run_close(run) == GD_OK && ok;
    gd_release(p.sum);
    gd_close(p.context);
    return ok;
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    need_json();
    fail_every_allocation(everything, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_goes_on_bit_for_bit),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(files_of_other_trainings_are_refused),
        context_test(a_checkpoint_is_a_model_file),
        context_test(a_damaged_model_is_not_loaded),
        cmocka_unit_test(hashes_are_those_of_xxh64),
        cmocka_unit_test(the_last_two_and_the_best_are_kept),
        cmocka_unit_test(saves_in_short_order_are_one),
        cmocka_unit_test(a_state_offered_while_another_is_written_is_kept),
        cmocka_unit_test(one_process_has_a_folder),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
