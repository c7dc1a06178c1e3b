/* cli/pictures.h: what is drawn into a run's folder "pictures", and samples that are looked at. */
#ifndef GD_CLI_PICTURES_H
#define GD_CLI_PICTURES_H

#include "cli.h"

/* The first samples' images [n, channels, height, width]; NULL, and no error: they are none. */
gd_tensor *cli_sample_images(const cli_data *data, const gd_dataset *set, int64_t most);
/* The loss of the first samples, with its history. NULL: failed. One of the models is NULL. */
gd_tensor *cli_sample_loss(const cli_data *data, gd_model *model, gd_language_model *language,
                           const gd_dataset *set, int64_t most);

/* FOLDER/pictures/NAME.svg; the chart is released. It may be NULL, with the error recorded; what this build
 * cannot draw is left out. */
gd_status cli_save_picture(gd_chart *chart, const char *folder, const char *name);
/* "filters" of the first convolution, and "attention-1" … of what each layer attends to in the first
 * sample. */
gd_status cli_draw_model(const cli_data *data, gd_model *model, gd_language_model *language,
                         const gd_dataset *set, const char *folder);

/* What a model makes of one sample. */
typedef struct cli_sample {
    int64_t index;           /* in its data set */
    double truth, predicted; /* classes, or numbers in the target's unit */
    double sure;             /* the probability of the class; of numbers, how far off it is */
    bool wrong;
} cli_sample;

/* Of the first samples of the set, in the order of how much there is to learn of them: the surest mistakes
 * first. Returns how many, -1: the error is recorded; *samples is to be freed in any case. */
int64_t cli_samples_find(const cli_data *data, gd_model *model, const gd_dataset *set,
                         cli_sample **samples);
/* "predictions": images with what they are taken for, or numbers against the true ones. Of other data
 * there is none. */
gd_status cli_draw_samples(const cli_data *data, const gd_dataset *set, int64_t count,
                           const cli_sample *samples, const char *folder);
/* Mistakes among them: rows of a table; on a terminal, images. false: the error is recorded. */
bool cli_print_mistakes(const cli_data *data, const gd_dataset *set, int64_t count,
                        const cli_sample *samples);

/* What a model says of samples with known classes, for the pictures of it. */
#define CLI_MOST_CURVES 10
typedef struct cli_answers {
    gd_confusion *confusion;
    gd_ranking *sure; /* the probability of the class that was predicted, and whether it is right */
    int curves; /* of ROC and of precision and recall: a class each; of two classes the second; of
                         more than CLI_MOST_CURVES one of all pairs of a sample and a class */
    gd_ranking *curve[CLI_MOST_CURVES];
} cli_answers;

/* false: the error is recorded. What it makes is the context's. */
bool cli_answers_open(cli_answers *answers, gd_context *context, int64_t classes);
/* Probabilities [n, classes] and the truth [n]. */
gd_status cli_answers_add(cli_answers *answers, gd_tensor *probabilities, gd_tensor *truth);
/* "confusion", "roc", "precision-recall", "calibration". */
gd_status cli_draw_answers(const cli_answers *answers, const cli_data *data, const char *folder);
/* Probabilities of classes for inputs as data sets have them. */
gd_tensor *cli_probabilities(gd_model *model, gd_tensor *x);

#endif
