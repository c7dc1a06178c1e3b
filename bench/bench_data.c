/* bench/bench_data.c: images a second from their files or from memory to an augmented batch, on two
 * processors, against PyTorch's DataLoader with torchvision (peers/data_torch.py); and the share of a
 * training step that is spent waiting for its batch.
 *
 * Cats and dogs: JPEG files, read anew each time, resized to 3x64x64. CIFAR-10: bytes in memory. Both
 * are cropped after padding, mirrored, and given another brightness, contrast and saturation, each
 * image by numbers of its own. Verified: the mean of the first images before they are changed. A
 * data set that is not in ../shared/data (or $GRADUS_SHARED_DATA) is left out. */
#include "measure.h"
#include "side.h"

#include <gradus/gradus.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, CHECKED = 64 };

typedef struct work {
    const char *name, *folder; /* of the peer's case; in the shared data */
    bool files;
    int64_t size, batch;
    int padding;
} work;

static const work works[] = {
    { "cats and dogs", "cats_dogs/train", true, 64, 16, 4 },
    { "CIFAR-10", "cifar10", false, 32, 128, 4 },
};

static void folder_of(const work *w, char *path, size_t size)
{
    const char *shared = getenv("GRADUS_SHARED_DATA");
    snprintf(path, size, "%s/%s", shared ? shared : GD_SOURCE_DIR "/../shared/data", w->folder);
}

/* ---- our side ---- */

typedef struct side {
    const work *work;
    gd_augment_options augment;
    gd_context *context;
    gd_module *module;
    gd_optimizer *optimizer;
    gd_dataset *images;
    gd_loader *loader;
    gd_function *function;
    double waited; /* seconds in gd_loader_next */
} side;

static void open_side(side *s, const work *w)
{
    *s = (side){ .work = w,
                 .augment = { GD_AUGMENT_DEFAULTS, .padding = w->padding, .flip = 0.5,
                              .brightness = 0.4, .contrast = 0.4, .saturation = 0.4 } };
    char path[1024];
    folder_of(w, path, sizeof path);
    s->context = gd_open("cpu", .threads = THREADS, .seed = 1);
    s->images = w->files ? gd_image_folder(s->context, path, w->size, w->size, .cache = 0,
                                           .batch_dtype = GD_U8)
                         : gd_cifar10(s->context, path, .batch_dtype = GD_U8);
    s->loader = gd_loader_create(s->images, .batch = w->batch, .shuffle = true, .drop_last = true,
                                 .workers = THREADS, .prefetch = 4,
                                 .draws = (int)gd_augment_draws(&s->augment));
    if (!s->loader)
        gd_bench_die("%s", gd_error_message());
}

static gd_tensor *augment(void *user, int count, gd_tensor *const *in)
{
    const side *s = user;
    return gd_augment_with(in[0], in[count - 1], &s->augment);
}

/* An epoch through s->function. */
static void run_epoch(void *user)
{
    side *s = user;
    gd_batch b;
    for (;;) {
        double begin = gd_bench_now(THREADS);
        bool more = gd_loader_next(s->loader, &b);
        s->waited += gd_bench_now(THREADS) - begin;
        if (!more)
            break;
        if (!gd_call(s->function, b.count, b.tensors))
            gd_bench_die("%s", gd_error_message());
    }
    if (gd_error_code() != GD_OK)
        gd_bench_die("%s", gd_error_message());
}

/* The mean of the first images as they are. */
static double mean_of_first(const side *s)
{
    gd_tensor *t[2];
    if (gd_dataset_get(s->images, 0, CHECKED, t) != GD_OK)
        gd_bench_die("%s", gd_error_message());
    return gd_item(gd_mean(gd_augment(t[0], NULL), GD_ALL_AXES, false));
}

/* ---- images a second ---- */

static void compare(const work *w, const char *folder)
{
    side s;
    open_side(&s, w);
    s.function = gd_compile(s.context, augment, &s);
    gd_bench_side ours = { .check_count = 1 };
    ours.checks[0] = mean_of_first(&s);
    gd_bench_timing timing = gd_bench_time(run_epoch, &s, 1, THREADS, 4);
    double images = (double)gd_loader_samples(s.loader);
    gd_close(s.context);

    char seconds[16], batch[16];
    snprintf(seconds, sizeof seconds, "%g", gd_bench_quick() ? 4.0 : 12.0);
    snprintf(batch, sizeof batch, "%lld", (long long)w->batch);
    const char *const arguments[] = { gd_bench_python(),
                                      GD_SOURCE_DIR "/bench/peers/data_torch.py",
                                      w->files ? "files" : "cifar",
                                      folder,
                                      batch,
                                      seconds,
                                      NULL };
    gd_bench_side peer;
    bool there = gd_bench_run_side(arguments, THREADS, &peer);
    char name[64];
    snprintf(name, sizeof name, "%s, augmented", w->name);
    gd_bench_row row =
        gd_bench_make_row("data", name, THREADS, "images/s", images / timing.seconds, true);
    row.more_is_better = true;
    row.ours_spread = timing.spread;
    if (there) {
        row.peer = 1 / peer.seconds;
        row.peer_spread = peer.spread;
        row.peer_name = peer.name;
        row.peer_how = peer.how;
        row.verified = gd_bench_sides_agree(&ours, &peer, 2e-3);
    }
    gd_bench_print_row(&row);
}

/* ---- a training step ---- */

/* x [batch, 3, 64, 64] -> logits [batch, 2]: examples/cats_dogs.c */
static gd_tensor *cats_dogs(gd_module *m, gd_tensor *x)
{
    x = gd_relu(gd_nn_conv2d(m, "conv1", x, 16, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_relu(gd_nn_conv2d(m, "conv2", x, 32, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_relu(gd_nn_conv2d(m, "conv3", x, 64, GD_SHAPE(3), .padding = GD_SHAPE(1)));
    x = gd_relu(gd_nn_linear(m, "fc1", gd_flatten(x, 1, -1), 128));
    return gd_nn_linear(m, "fc2", x, 2);
}

/* x [batch, 3, 32, 32] -> logits [batch, 10]: examples/cifar.c without normalisation */
static gd_tensor *cifar(gd_module *m, gd_tensor *x)
{
    static const char *const names[] = { "conv1", "conv2", "conv3", "conv4", "conv5", "conv6" };
    for (int i = 0; i < 6; i++) {
        x = gd_relu(gd_nn_conv2d(m, names[i], x, 16 << i / 2, GD_SHAPE(3), .padding = GD_SHAPE(1)));
        x = i % 2 ? gd_max_pool2d(x, GD_SHAPE(2)) : x;
    }
    return gd_nn_linear(m, "out", gd_flatten(x, 1, -1), 10);
}

static gd_tensor *train(void *user, int count, gd_tensor *const *in)
{
    side *s = user;
    gd_tensor *x = augment(user, count, in);
    gd_tensor *logits = s->work->files ? cats_dogs(s->module, x) : cifar(s->module, x);
    return gd_minimize(s->optimizer, gd_cross_entropy(logits, in[1]));
}

static void measure_waiting(const work *w)
{
    side s;
    open_side(&s, w);
    s.module = gd_module_create(s.context, .seed = 1);
    s.optimizer = gd_adam(s.module, .lr = 1e-5);
    s.function = gd_compile(s.context, train, &s);
    run_epoch(&s); /* plans are made */
    double shares[5];
    int epochs = gd_bench_quick() ? 3 : 5;
    for (int i = 0; i < epochs; i++) {
        s.waited = 0;
        double begin = gd_bench_now(THREADS);
        run_epoch(&s);
        shares[i] = 100 * s.waited / (gd_bench_now(THREADS) - begin);
    }
    char name[64];
    snprintf(name, sizeof name, "%s, waiting in a training step", w->name);
    gd_bench_row row = gd_bench_make_row("data", name, THREADS, "%",
                                         gd_bench_median(shares, (size_t)epochs), true);
    gd_bench_print_row(&row);
    gd_close(s.context);
}

int main(int count, char **arguments)
{
    gd_bench_pin(THREADS);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        char folder[1024];
        folder_of(&works[i], folder, sizeof folder);
        if (count > 1 && !strstr(works[i].name, arguments[1]))
            continue;
        if (access(folder, R_OK) != 0) {
            fprintf(stderr, "data: %s is not there\n", folder);
            continue;
        }
        compare(&works[i], folder);
        measure_waiting(&works[i]);
    }
    return gd_bench_all_verified() ? 0 : 1;
}
