/* text/sampler.h: the distribution that a sampler draws from, for choosing tokens in other ways. */
#ifndef GD_TEXT_SAMPLER_H
#define GD_TEXT_SAMPLER_H

#include <gradus/text.h>

/* The probabilities, [count], with which gd_sample would choose each token; they sum to 1 but for rounding. With
 * temperature 0 that of the likeliest is 1. Errors as gd_sample's. */
gd_status gd_sampler_probabilities(gd_sampler *sampler, int64_t count, const float *logits,
                                   int64_t past_count, const int32_t *past, double *probabilities);
/* One of `count`, each with its share of the sum of weights, none of which is negative. */
int32_t gd_sampler_draw(gd_sampler *sampler, int64_t count, const double *weights);
/* From 0 to below 1: the next of the sampler's draws. */
double gd_sampler_unit(gd_sampler *sampler);

#endif
