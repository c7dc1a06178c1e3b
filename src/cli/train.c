/* cli/train.c: gradus train. Start at cli_train(); the loop itself is the library's gd_fit. */
#include "cli.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *model, *data, *output, *optimizer, *schedule;
    int64_t epochs, batch, seed, threads, workers; /* 0: the recipe's */
    double lr, momentum;
    bool faithful, per_example, eager, quiet;
} settings;

/* What is not given on the command line. */
typedef struct recipe {
    const char *optimizer, *schedule;
    int64_t epochs, batch;
    double lr;
} recipe;

static const recipe best = {
    .optimizer = "adam", .schedule = "cosine", .epochs = 10, .batch = 50, .lr = 5e-3
};
/* The original: plain stochastic gradient descent. */
static const recipe faithful = {
    .optimizer = "sgd", .schedule = "constant", .epochs = 10, .batch = 50, .lr = 0.01
};

static void complete(settings *s)
{
    const recipe *r = s->faithful ? &faithful : &best;
    bool own_optimizer = s->optimizer && strcmp(s->optimizer, r->optimizer) != 0;
    s->optimizer = s->optimizer ? s->optimizer : r->optimizer;
    s->schedule = s->schedule ? s->schedule : r->schedule;
    s->epochs = s->epochs ? s->epochs : r->epochs;
    s->batch = s->batch ? s->batch : r->batch;
    if (isnan(s->lr) && !own_optimizer) /* another optimizer has a default of its own */
        s->lr = r->lr;
}

/* ---- display ---- */

static void print_bar(const gd_fit_progress *p)
{
    char left[CLI_COUNT_TEXT], rate[CLI_COUNT_TEXT], text[160], bar[64];
    int length = snprintf(
        text, sizeof text, "loss %.4f  accuracy %5.2f %%  %s samples/s  %s left",
        gd_metrics_get(&p->train, "loss"), 100.0 * gd_metrics_get(&p->train, "accuracy"),
        cli_count((int64_t)p->samples_per_second, rate), cli_duration(p->seconds_left, left));
    int room = cli_width() - length - 20;
    int cells = room < 4 ? 0 : room > 40 ? 40 : room;
    int full = (int)((double)cells * (double)p->step / (double)p->steps);
    for (int i = 0; i < cells; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[cells] = '\0';
    printf("\r\033[K%3lld/%lld [%s] %s", (long long)p->epoch, (long long)p->epochs, bar, text);
    fflush(stdout);
}

static void print_epoch(const gd_fit_progress *p)
{
    char rate[CLI_COUNT_TEXT];
    if (cli_is_terminal())
        printf("\r\033[K");
    printf("epoch %2lld/%lld  loss %.4f  accuracy %5.2f %%  test loss %.4f  test accuracy %s%5.2f "
           "%%%s "
           " %s samples/s  %.2f s\n",
           (long long)p->epoch, (long long)p->epochs, gd_metrics_get(&p->train, "loss"),
           100.0 * gd_metrics_get(&p->train, "accuracy"), gd_metrics_get(&p->validation, "loss"),
           cli_bold(), 100.0 * gd_metrics_get(&p->validation, "accuracy"), cli_plain(),
           cli_count((int64_t)p->samples_per_second, rate), p->seconds);
    fflush(stdout);
}

/* Ten times a second and after each epoch. Training goes on until an interrupt. */
static gd_status show(void *user, const gd_fit_progress *p, bool *stop)
{
    const settings *s = user;
    if (p->epoch_done && !s->quiet)
        print_epoch(p);
    else if (!s->quiet && cli_is_terminal())
        print_bar(p);
    *stop = cli_is_interrupted();
    return GD_OK;
}

/* Unless told otherwise, a small network of flat inputs is trained by one thread: a step of some
 * ten microseconds is over before another has been woken. (Convolutions work long on few
 * parameters.) The result does not depend on it. */
static bool choose_threads(const settings *s, const cli_network *network)
{
    const int64_t small = 200000;
    bool is_small = gd_module_parameter_count(gd_model_module(network->model)) <= small &&
                    gd_model_input_shape(network->model, 0).rank == 1;
    if (s->threads > 0 || !is_small)
        return true;
    return gd_context_set_threads(network->context, 1) == GD_OK;
}

static void print_start(const settings *s, const cli_network *network,
                        const gd_optimizer *optimizer, const gd_dataset *train,
                        const gd_dataset *test)
{
    char summary[8192], a[CLI_COUNT_TEXT], b[CLI_COUNT_TEXT];
    gd_module_summary(gd_model_module(network->model), summary, sizeof summary);
    printf("%s\n", summary);
    printf("%s training digits, %s test digits; %s, learning rate %g (%s), batch %lld%s, seed "
           "%lld; %s, %d thread%s%s\n\n",
           cli_count(gd_dataset_count(train), a), cli_count(gd_dataset_count(test), b),
           gd_optimizer_name(optimizer), gd_optimizer_lr(optimizer), s->schedule,
           (long long)s->batch, s->per_example ? " one example at a time" : "", (long long)s->seed,
           gd_context_isa(network->context), gd_context_threads(network->context),
           gd_context_threads(network->context) == 1 ? "" : "s", s->eager ? ", eager" : "");
}

/* ---- the command ---- */

static gd_tensor *objective(void *network, const gd_objective_call *call)
{
    gd_tensor *logits = cli_forward(network, call->tensors[0]);
    gd_report(call, "accuracy", gd_eq(gd_argmax(logits, -1, false), call->tensors[1]));
    return gd_cross_entropy(logits, call->tensors[1]);
}

static bool train(settings *s, cli_network *network)
{
    gd_context *gd = network->context;
    gd_module *module = gd_model_module(network->model);
    gd_optimizer *optimizer =
        gd_optimizer_create(module, s->optimizer, .lr = s->lr, .momentum = s->momentum);
    gd_dataset *digits, *unseen;
    if (!optimizer || gd_mnist_pair(gd, s->data, &digits, &unseen) != GD_OK)
        return false;
    gd_loader *batches =
        gd_loader_create(digits, .batch = s->per_example ? 1 : s->batch, .shuffle = true,
                         .seed = (uint64_t)s->seed, .workers = (int)s->workers);
    gd_loader *test = gd_loader_create(unseen, .batch = 500);
    if (!batches || !test || !choose_threads(s, network))
        return false;
    if (cli_is_interrupted()) {
        fprintf(stderr, "gradus train: interrupted before it began; nothing is saved\n");
        return true;
    }
    if (!s->quiet)
        print_start(s, network, optimizer, digits, unseen);
    int64_t steps = (gd_loader_samples(batches) + s->batch - 1) / s->batch; /* of an epoch */
    bool is_cosine = strcmp(s->schedule, "cosine") == 0;
    /* Down to nothing by the end, after a short rise. */
    gd_schedule schedule = { GD_SCHEDULE_DEFAULTS,
                             .kind = is_cosine ? GD_SCHEDULE_COSINE : GD_SCHEDULE_CONSTANT,
                             .lr = gd_optimizer_lr(optimizer),
                             .warmup = is_cosine ? steps * s->epochs / 50 : 0 };
    gd_metrics last;
    gd_status status =
        gd_fit(optimizer, objective, network, batches, .epochs = s->epochs, .validation = test,
               .mode = s->eager ? GD_MODE_EAGER : GD_MODE_COMPILED,
               .accumulate = s->per_example ? s->batch : 1, .schedule = gd_schedule_follow,
               .schedule_user = &schedule, .progress = show, .progress_user = s,
               .progress_interval = 0.1, .result = &last);
    if (status == GD_OK)
        status = gd_model_save(network->model, s->output);
    if (status == GD_OK && cli_is_interrupted())
        fprintf(stderr, "%sgradus train: interrupted; what was learned so far is saved to %s\n",
                cli_is_terminal() ? "\n" : "", s->output);
    else if (status == GD_OK && !s->quiet)
        printf("\nSaved to %s. 'gradus predict' draws digits, 'gradus eval' shows where it errs.\n",
               s->output);
    return status == GD_OK;
}

/* What would fail at the end fails now: the file, and a build that cannot save. */
static bool can_save(const char *path)
{
    return gd_file_check_writable(path) == GD_OK &&
           gd_tensors_save("/dev/null", 0, NULL, 0, NULL) == GD_OK;
}

static int check(const settings *s)
{
    if (strcmp(s->schedule, "cosine") == 0 || strcmp(s->schedule, "constant") == 0)
        return CLI_OK;
    fprintf(stderr, "gradus train: --schedule is cosine or constant, not '%s'\n", s->schedule);
    return CLI_USAGE;
}

int cli_train(int argc, char **argv)
{
    settings s = { .data = CLI_DEFAULT_DATA,
                   .threads = -1,
                   .output = CLI_DEFAULT_WEIGHTS,
                   .seed = 1,
                   .lr = NAN,
                   .momentum = NAN };
    const cli_option options[] = {
        { "model", "FILE", "the network as JSON (default: that of examples/models/mnist_mlp.json)",
          CLI_TEXT, &s.model, 0, 0 },
        { "data", "FOLDER", "the four MNIST files (default: " CLI_DEFAULT_DATA ")", CLI_TEXT,
          &s.data, 0, 0 },
        { "output", "FILE", "where to save the result (default: " CLI_DEFAULT_WEIGHTS ")", CLI_TEXT,
          &s.output, 0, 0 },
        { "epochs", "N", "passes over the training digits (default: 10)", CLI_WHOLE, &s.epochs, 1,
          1e6 },
        { "batch", "N", "digits in a batch (default: 50)", CLI_WHOLE, &s.batch, 1, 60000 },
        { "optimizer", "NAME", "sgd, rmsprop, adam, adamw, nadam, radam, … (default: adam)",
          CLI_TEXT, &s.optimizer, 0, 0 },
        { "lr", "X", "learning rate (default: 0.005, or the optimizer's)", CLI_REAL, &s.lr, 0,
          1e6 },
        { "momentum", "X", "of sgd and rmsprop (default: 0)", CLI_REAL, &s.momentum, 0, 1 },
        { "schedule", "NAME", "cosine or constant (default: cosine)", CLI_TEXT, &s.schedule, 0, 0 },
        { "seed", "N", "of initial weights and shuffles (default: 1)", CLI_WHOLE, &s.seed, 0,
          9e15 },
        { "threads", "N",
          "threads to compute with (default: the cores there are; 1 for a small network)",
          CLI_WHOLE, &s.threads, 1, 256 },
        { "workers", "N", "threads that make batches ahead (default: 0, none)", CLI_WHOLE,
          &s.workers, 0, 256 },
        { "faithful", NULL,
          "as the original: sgd, learning rate 0.01, constant, 10 epochs of batch 50", CLI_FLAG,
          &s.faithful, 0, 0 },
        { "per-example", NULL,
          "accumulate gradients one example at a time: the same result, slower", CLI_FLAG,
          &s.per_example, 0, 0 },
        { "eager", NULL, "run op by op, without compiling: the same result, slower", CLI_FLAG,
          &s.eager, 0, 0 },
        { "quiet", NULL, "print nothing but errors", CLI_FLAG, &s.quiet, 0, 0 },
    };
    const cli_command_help help = {
        "gradus train [OPTION]...",
        "Train a network on MNIST's 60,000 handwritten digits, test it on 10,000 others after "
        "every\nepoch, and save it. Ctrl-C ends training and saves what was learned so far."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    complete(&s);
    if (check(&s) != CLI_OK)
        return CLI_USAGE;
    cli_network_options network_options = { .model = s.model,
                                            .threads = s.threads,
                                            .seed = s.seed };
    cli_network network = { 0 };
    cli_catch_interrupts();
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is told in the end, after saving */
    bool ok =
        can_save(s.output) && cli_network_open(&network, &network_options) && train(&s, &network);
    code = !ok ? cli_fail() : cli_is_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    cli_network_close(&network);
    return code;
}
