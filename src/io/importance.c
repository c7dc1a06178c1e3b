/* io/importance.c: how much the columns of matrices count when they are written in few bits: the mean squares of what they are
 * multiplied with. Start at gd_importance_add(). */
#include "io/importance.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

void gd_importance_release(gd_importance *importance)
{
    if (!importance)
        return;
    for (size_t i = 0; i < importance->count; i++) {
        gd_free(importance->entries[i].name);
        gd_free(importance->entries[i].squares);
        gd_free(importance->entries[i].mean);
    }
    gd_free(importance->entries);
    gd_free(importance);
}

int64_t gd_importance_count(const gd_importance *importance)
{
    return importance ? (int64_t)importance->count : 0;
}

static gd_column_importance *find(const gd_importance *importance, const char *name)
{
    for (size_t i = 0; importance && i < importance->count; i++)
        if (strcmp(importance->entries[i].name, name) == 0)
            return &importance->entries[i];
    return NULL;
}

const gd_column_importance *gd_importance_of(const gd_importance *importance, const char *name)
{
    return find(importance, name);
}

static gd_column_importance *add(gd_importance *importance, const char *name, int64_t columns)
{
    if (!gd_grow((void **)&importance->entries, &importance->room, importance->count + 1,
                 sizeof *importance->entries))
        return NULL;
    gd_column_importance *e = &importance->entries[importance->count++];
    *e = (gd_column_importance){ .name = gd_strdup(name),
                                 .columns = columns,
                                 .squares = gd_alloc_zero((size_t)columns, sizeof *e->squares),
                                 .mean = gd_alloc_zero((size_t)columns, sizeof *e->mean) };
    return e->name && e->squares && e->mean ? e : NULL;
}

gd_status gd_importance_add(gd_importance *importance, const char *name, int64_t rows,
                            int64_t columns, const float *x)
{
    gd_column_importance *e = find(importance, name);
    if (!e)
        e = add(importance, name, columns);
    if (!e)
        return GD_ERR_MEMORY;
    if (e->columns != columns)
        return gd_fail(GD_ERR_SHAPE, "\"%s\" is used with %lld and with %lld columns", name,
                       (long long)e->columns, (long long)columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            e->squares[c] += (double)x[r * columns + c] * (double)x[r * columns + c];
    e->rows += rows;
    return GD_OK;
}

gd_status gd_importance_finish(gd_importance *importance)
{
    for (size_t i = 0; i < importance->count; i++) {
        gd_column_importance *e = &importance->entries[i];
        for (int64_t c = 0; c < e->columns; c++) {
            e->mean[c] = (float)(e->squares[c] / (double)e->rows);
            if (!isfinite(e->mean[c]))
                return gd_fail(GD_ERR_INVALID,
                               "calibration: what \"%s\" is multiplied with is not finite in "
                               "column %lld",
                               e->name, (long long)c);
        }
    }
    return GD_OK;
}
