/* data/split.c: some of a data set's samples as a data set of its own. Start at
 * gd_dataset_subset(). */
#include "data/dataset.h"

#include "base/error.h"
#include "base/memory.h"

gd_dataset *gd_dataset_subset(const gd_dataset *dataset, int64_t count, const int64_t *indices)
{
    if (!dataset)
        return NULL;
    if (count < 1 || !indices)
        return gd_fail_null(GD_ERR_INVALID, "gd_dataset_subset: %lld indices", (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= dataset->count)
            return gd_fail_null(GD_ERR_SHAPE, "gd_dataset_subset: sample %lld of %lld",
                                (long long)indices[i], (long long)dataset->count);
    int64_t *own = gd_alloc((size_t)count * sizeof *own);
    if (!own)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        own[i] = gd_dataset_index(dataset, indices[i]);
    return gd_dataset_view(dataset, count, own);
}
