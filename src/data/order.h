/* data/order.h: which samples are in batch number n. */
#ifndef GD_DATA_ORDER_H
#define GD_DATA_ORDER_H

#include "data/dataset.h"

typedef struct gd_length_key gd_length_key;

typedef struct gd_order {
    uint64_t seed;
    int64_t count;         /* samples of the data set */
    int64_t batch;         /* samples in a full batch */
    int64_t batches, rest; /* in an epoch; samples in its last batch when it is not full, else 0 */
    bool shuffle, with_replacement;
    int64_t window; /* batches by which samples are sorted by length; 0: they are not */

    int64_t *items; /* [count] the order of `epoch`; NULL: that of the data set, or drawn */
    int64_t epoch;  /* of items; -1: none yet */
    double *sums;   /* [count] of the weights up to each sample; NULL: all are alike */
    const gd_dataset *dataset; /* whose lengths are sorted by, … */
    const int64_t *lengths;    /* … by the source's index */
    gd_length_key *keys;       /* room for a window */
    int64_t *places;           /* [batches] where in items each batch of the epoch lies */
} gd_order;

/* What the loader's options mean; an error where they do not go together. */
gd_status gd_order_choose(const gd_dataset *dataset, const gd_loader_options *options,
                          gd_order *order);
/* The memory of an order that was chosen. Close it all the same after a failure. */
gd_status gd_order_open(gd_order *order, const double *weights);
void gd_order_close(gd_order *order);

/* Samples in batch number n. */
int64_t gd_order_size(const gd_order *order, int64_t n);
/* Which they are, in `room` [batch] or in memory that stays as it is until the next call; *known of
 * them and of those that follow can be read there. A function of the order's options and n alone.
 * Allocates nothing. */
const int64_t *gd_order_batch(gd_order *order, int64_t n, int64_t *room, int64_t *known);

#endif
