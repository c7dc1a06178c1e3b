/* cli/eval.c: gradus eval: accuracy and confusion matrix on the test digits. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLASSES = 10, BATCH = 500 };

typedef struct settings {
    const char *model, *data, *weights;
    int64_t threads;
} settings;

static void print_confusion(const gd_confusion *c)
{
    printf("\n        predicted\ntruth ");
    for (int p = 0; p < CLASSES; p++)
        printf("%6d", p);
    printf("   right\n");
    for (int t = 0; t < CLASSES; t++) {
        printf("%5d ", t);
        for (int p = 0; p < CLASSES; p++) {
            int64_t n = gd_confusion_count(c, t, p);
            if (n == 0)
                printf("     .");
            else
                printf("%s%6lld%s", p == t ? cli_bold() : "", (long long)n,
                       p == t ? cli_plain() : "");
        }
        printf("  %5.1f %%\n", 100.0 * gd_confusion_class(c, t).recall);
    }
}

/* One pass over the batches: the confusion matrix, and the sum of the samples' losses. */
static bool measure(cli_network *network, gd_loader *batches, gd_confusion *c, double *loss,
                    int64_t *samples)
{
    gd_context *gd = network->context;
    for (gd_batch b; gd_loader_next(batches, &b); *samples += b.size) {
        if (gd_scope_begin(gd) != GD_OK)
            return false;
        gd_tensor *logits = cli_forward(network, b.tensors[0]);
        *loss += gd_item(gd_cross_entropy(logits, b.tensors[1])) * (double)b.size;
        bool ok = gd_confusion_add(c, logits, b.tensors[1]) == GD_OK;
        if (gd_scope_end(gd) != GD_OK || !ok)
            return false;
    }
    return gd_error_code() == GD_OK;
}

static bool eval(const settings *s, cli_network *network)
{
    gd_context *gd = network->context;
    gd_module *module = gd_model_module(network->model);
    gd_loader *batches = gd_loader_create(gd_mnist(gd, s->data, .test = true), .batch = BATCH);
    gd_confusion *c = gd_confusion_create(gd, CLASSES);
    double loss = 0.0;
    int64_t samples = 0;
    gd_module_set_training(module, false);
    if (!batches || !c || gd_no_grad_begin(gd) != GD_OK)
        return false;
    bool ok = measure(network, batches, c, &loss, &samples);
    if (gd_no_grad_end(gd) != GD_OK || !ok)
        return false;
    char count[CLI_COUNT_TEXT];
    printf("%s test digits: accuracy %s%.2f %%%s, loss %.4f\n", cli_count(samples, count),
           cli_bold(), 100.0 * gd_confusion_score(c, GD_AVERAGE_MICRO).f1, cli_plain(),
           loss / (double)samples);
    print_confusion(c);
    return true;
}

int cli_eval(int argc, char **argv)
{
    settings s = { .data = CLI_DEFAULT_DATA, .threads = -1 };
    const cli_option options[] = {
        { "model", "FILE",
          "what gradus train saved (default: " CLI_DEFAULT_WEIGHTS "), or the network as JSON",
          CLI_TEXT, &s.model, 0, 0 },
        { "weights", "FILE", "parameters, where they are not in the model's file", CLI_TEXT,
          &s.weights, 0, 0 },
        { "data", "FOLDER", "the four MNIST files (default: " CLI_DEFAULT_DATA ")", CLI_TEXT,
          &s.data, 0, 0 },
        { "threads", "N", "threads to compute with", CLI_WHOLE, &s.threads, 1, 256 },
    };
    const cli_command_help help = {
        "gradus eval [OPTION]...",
        "Accuracy, loss and confusion matrix of a trained network on the 10,000 test digits."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    cli_network_options network_options = { .model = s.model,
                                            .weights = s.weights,
                                            .threads = s.threads };
    cli_network network;
    code = cli_trained_open(&network, &network_options) && eval(&s, &network) ? CLI_OK : cli_fail();
    cli_network_close(&network);
    return code;
}
