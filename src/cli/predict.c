/* cli/predict.c: gradus predict: test digits drawn in the terminal, beside what the network makes
 * of them. Start at draw_digit(). */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10 };

typedef struct settings {
    const char *model, *data, *weights;
    int64_t index, count, threads;
} settings;

/* A character cell shows two pixels, one above the other: in colour as a half block, else as a
 * shade of their mean. */
static void draw_cell(float upper, float lower)
{
    static const char shades[] = " .:-=+*#%@";
    if (cli_has_colour() && cli_has_unicode()) {
        /* 232 … 255 of the 256-colour palette are greys. */
        printf("\033[38;5;%d;48;5;%dm\xe2\x96\x80", 232 + (int)(upper * 23.0f),
               232 + (int)(lower * 23.0f));
        return;
    }
    float mean = 0.5f * (upper + lower);
    putchar(shades[(int)(mean * 9.0f + 0.5f)]);
}

static void draw_row(const float *pixels, int row)
{
    for (int column = 0; column < SIDE; column++)
        draw_cell(pixels[2 * row * SIDE + column], pixels[(2 * row + 1) * SIDE + column]);
    printf("%s", cli_plain());
}

/* "  7 ############ 99.8 %" */
static void draw_probability(int class, float probability, bool best)
{
    enum { CELLS = 30 };
    printf("   %s%d ", best ? cli_bold() : "", class);
    for (int i = 0; i < CELLS; i++)
        putchar((float)i + 0.5f < probability * (float)CELLS ? '#' : ' ');
    printf(" %5.1f %%%s", 100.0 * (double)probability, best ? cli_plain() : "");
}

static int argmax(const float *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

/* pixels [784] in 0 … 1, probabilities [10] */
static void draw_digit(int64_t index, const float *pixels, const float *probabilities,
                       int64_t truth)
{
    int best = argmax(probabilities, CLASSES);
    bool right = best == truth;
    printf("test digit %lld: predicted %s%d%s with %.1f %%, truth %lld%s\n", (long long)index,
           right ? cli_green() : cli_red(), best, cli_plain(), 100.0 * (double)probabilities[best],
           (long long)truth, right ? "" : "  (wrong)");
    for (int row = 0; row < SIDE / 2; row++) {
        draw_row(pixels, row);
        int class = row - 2;
        if (class >= 0 && class < CLASSES)
            draw_probability(class, probabilities[class], class == best);
        putchar('\n');
    }
    putchar('\n');
}

/* One digit: look it up, ask the network, draw. */
static bool predict_one(cli_network *network, const gd_dataset *digits, int64_t index)
{
    float pixels[PIXELS], probabilities[CLASSES];
    int64_t truth;
    gd_tensor *digit[2]; /* pixels, label */
    if (gd_dataset_get(digits, index, 1, digit) != GD_OK)
        return false;
    gd_tensor *p = gd_softmax(cli_forward(network, digit[0]), -1);
    if (p && gd_tensor_count(p) != CLASSES) {
        fprintf(stderr, "gradus predict: the model gives %lld numbers for a digit, 10 are needed\n",
                (long long)gd_tensor_count(p));
        return false;
    }
    if (gd_tensor_read(digit[0], pixels, sizeof pixels) != GD_OK ||
        gd_tensor_read(digit[1], &truth, sizeof truth) != GD_OK || !p ||
        gd_tensor_read(p, probabilities, sizeof probabilities) != GD_OK)
        return false;
    draw_digit(index, pixels, probabilities, truth);
    return true;
}

static bool predict(const settings *s, cli_network *network)
{
    gd_context *gd = network->context;
    gd_dataset *digits = gd_mnist(gd, s->data, .test = true);
    if (!digits)
        return false;
    int64_t last = gd_dataset_count(digits) - 1;
    if (s->index > last) {
        fprintf(stderr, "gradus predict: there are test digits 0 to %lld, not %lld\n",
                (long long)last, (long long)s->index);
        return false;
    }
    bool ok = gd_no_grad_begin(gd) == GD_OK;
    for (int64_t i = 0; ok && i < s->count && s->index + i <= last; i++) {
        ok = gd_scope_begin(gd) == GD_OK && predict_one(network, digits, s->index + i);
        ok = gd_scope_end(gd) == GD_OK && ok;
    }
    return gd_no_grad_end(gd) == GD_OK && ok;
}

int cli_predict(int argc, char **argv)
{
    settings s = { .data = CLI_DEFAULT_DATA, .count = 3, .threads = -1 };
    const cli_option options[] = {
        { "index", "N", "the first test digit to draw (default: 0)", CLI_WHOLE, &s.index, 0, 9999 },
        { "count", "N", "how many (default: 3)", CLI_WHOLE, &s.count, 1, 10000 },
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
        "gradus predict [OPTION]...",
        "Draw test digits, with what the trained network takes them for."
    };
    int code;
    if (cli_parse(argc, argv, &help, options, (int)(sizeof options / sizeof *options), &code))
        return code;
    cli_network_options network_options = { .model = s.model,
                                            .weights = s.weights,
                                            .threads = s.threads };
    cli_network network;
    bool ok = cli_trained_open(&network, &network_options) && predict(&s, &network);
    code = ok ? CLI_OK : gd_error_code() ? cli_fail() : CLI_FAILED;
    cli_network_close(&network);
    return code;
}
