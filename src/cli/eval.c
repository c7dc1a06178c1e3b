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

static bool eval(const settings *s, cli_network *network)
{
    gd_context *gd = network->context;
    gd_module *module = gd_model_module(network->model);
    if (gd_module_load(module, s->weights) != GD_OK)
        return false;
    gd_loader *batches = gd_loader_open(gd_mnist(gd, s->data, .test = true), .batch = BATCH);
    gd_metrics metrics;
    if (!batches || gd_evaluate(module, cli_forward, network, batches, .result = &metrics) != GD_OK)
        return false;
    gd_confusion *c = gd_confusion_create(gd, CLASSES);
    bool ok = gd_no_grad_begin(gd) == GD_OK;
    for (gd_batch b; ok && gd_loader_next(batches, &b);) {
        ok = gd_scope_begin(gd) == GD_OK &&
             gd_confusion_add(c, cli_forward(network, b.tensors[0]), b.tensors[1]) == GD_OK;
        ok = gd_scope_end(gd) == GD_OK && ok;
    }
    if (gd_no_grad_end(gd) != GD_OK || !ok)
        return false;
    char count[CLI_COUNT_TEXT];
    printf("%s test digits: accuracy %s%.2f %%%s, loss %.4f\n", cli_count(metrics.samples, count),
           cli_bold(), 100.0 * metrics.accuracy, cli_plain(), metrics.loss);
    print_confusion(c);
    return true;
}

int cli_eval(int argc, char **argv)
{
    settings s = { .data = CLI_DEFAULT_DATA, .weights = CLI_DEFAULT_WEIGHTS };
    const cli_option options[] = {
        { "weights", "FILE", "what gradus train saved (default: " CLI_DEFAULT_WEIGHTS ")", CLI_TEXT,
          &s.weights, 0, 0 },
        { "model", "FILE", "the network as JSON, as given to train", CLI_TEXT, &s.model, 0, 0 },
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
    cli_network_options network_options = { .model = s.model, .threads = s.threads };
    cli_network network;
    code = cli_network_open(&network, &network_options) && eval(&s, &network) ? CLI_OK : cli_fail();
    cli_network_close(&network);
    return code;
}
