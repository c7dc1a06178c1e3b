/* gradus/augment.h: random changes of images in training, on whole batches inside the step, eager or
 * compiled. Start at gd_augment(). All of it is made of ops (gradus/ops.h), so that gradients pass. */
#ifndef GRADUS_AUGMENT_H
#define GRADUS_AUGMENT_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is done to each image, in the order of the members; by default nothing. Amounts are drawn
 * from the range that a member states, evenly unless it says otherwise. */
typedef struct gd_augment_options {
    size_t size GD_DEFAULT(sizeof(gd_augment_options));
    int64_t padding; /* a crop of the image's size at a random place of the image padded by so many
                        pixels on each side. He et al. 2015 */
    double flip;     /* the probability of being mirrored left to right */
    double flip_vertical; /* and top to bottom */
    /* below 1: a crop of at least this share of the area, of any share up to 1, and of a ratio of
     * width to height from 1 / crop_aspect to crop_aspect, evenly in its logarithm; both at most
     * those of the image. Szegedy et al. 2014 (torchvision's RandomResizedCrop) */
    double crop GD_DEFAULT(1), crop_aspect GD_DEFAULT(4.0 / 3.0);
    /* the result's size, -1: the images'. What differs is resized as gd_image_resize does */
    int64_t height GD_DEFAULT(-1), width GD_DEFAULT(-1);
    double rotation;           /* clockwise around the centre, up to so many degrees each way */
    double translation;        /* up to this share of height and width each way */
    double zoom GD_DEFAULT(1); /* larger by 1 / zoom to zoom, evenly in the logarithm */
    double shear;              /* along the rows, up to so many degrees each way */
    /* Strength s: brightness, the difference to the image's mean grey, the difference to each pixel's
     * grey, times a factor from max(0, 1 - s) to 1 + s (torchvision's ColorJitter) */
    double brightness, contrast, saturation;
    double hue;   /* turned by up to this share of the circle of colours each way: 0 … 0.5 */
    double noise; /* the standard deviation of normal noise */
    double erase; /* the probability that a rectangle is erased. Zhong et al. 2017; a square of
                     always the same size: DeVries, Taylor 2017 */
    /* its share of the area, and the bounds of its ratio of height to width, as crop_aspect */
    double erase_least GD_DEFAULT(0.02), erase_most GD_DEFAULT(1.0 / 3.0);
    double erase_aspect GD_DEFAULT(10.0 / 3.0);
    double fill; /* the value of what is erased, or comes from outside the image */
} gd_augment_options;
#define GD_AUGMENT_DEFAULTS                                                                \
    .size = sizeof(gd_augment_options), .crop = 1, .crop_aspect = 4.0 / 3.0, .height = -1, \
    .width = -1, .zoom = 1, .erase_least = 0.02, .erase_most = 1.0 / 3.0,                  \
    .erase_aspect = 10.0 / 3.0, .fill = 0

/* gd_augment(images, draws, .padding = 4, .flip = 0.5): images [n, c, h, w] -> [n, c, height, width]
 * f32. Images of u8 are divided by 255; those of floats have values 0 … 1, as colours and noise cut
 * them to. draws [n, at least gd_augment_draws(&options)] f32: independent numbers of [0, 1), of which
 * the first columns are used; a loader with that `.draws` gives them, so that what happens to a
 * sample depends on the seed, the epoch and the sample alone, for any number of workers and threads.
 * draws may be NULL: then nothing random is done, as for validation; images are resized and made f32. Saturation and
 * hue ask for 1 or 3 channels, of which 1 stays as it is. GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_INVALID
 * (an option). */
#define gd_augment(...) \
    GD_WITH_2(gd_augment_with, gd_augment_options, GD_AUGMENT_DEFAULTS, __VA_ARGS__, )
GD_API gd_tensor *gd_augment_with(gd_tensor *images, gd_tensor *draws,
                                  const gd_augment_options *options);
/* How many numbers a sample's changes are drawn from; -1 and GD_ERR_INVALID for options that
 * gd_augment would refuse. */
GD_API int64_t gd_augment_draws(const gd_augment_options *options);

/* Each image mixed with the next one of the batch (the last with the first): share * x[i] +
 * (1 - share) * x[i+1], and the targets likewise, with a share drawn for each sample from
 * Beta(alpha, alpha). images [n, ..] of floats; targets [n, classes] of floats (gd_one_hot), which
 * gd_cross_entropy takes as probabilities. draws [n, at least GD_MIXUP_DRAWS]. On an error both
 * results are NULL: GD_ERR_SHAPE, GD_ERR_DTYPE, GD_ERR_INVALID. Zhang et al. 2017 */
#define GD_MIXUP_DRAWS 2
GD_API gd_status gd_mixup(gd_tensor *images, gd_tensor *targets, gd_tensor *draws, double alpha,
                          gd_tensor **mixed_images, gd_tensor **mixed_targets);
/* Each image [n, c, h, w] with a rectangle of the next one of the batch, at a random place, of the
 * images' ratio and the area 1 - share, cut at the edges; targets are mixed by the area that was
 * replaced. draws [n, at least GD_CUTMIX_DRAWS]; the rest as gd_mixup. Yun et al. 2019 */
#define GD_CUTMIX_DRAWS 4
GD_API gd_status gd_cutmix(gd_tensor *images, gd_tensor *targets, gd_tensor *draws, double alpha,
                           gd_tensor **mixed_images, gd_tensor **mixed_targets);

#ifdef __cplusplus
}
#endif
#endif
