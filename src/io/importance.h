/* io/importance.h: how much the columns of matrices count when they are written in few bits. */
#ifndef GD_IO_IMPORTANCE_H
#define GD_IO_IMPORTANCE_H

#include <gradus/gguf.h>

/* Of one matrix. */
typedef struct gd_column_importance {
    char *name;
    int64_t columns, rows; /* rows of x that were added */
    double *squares;       /* [columns] their sums */
    float *mean;           /* [columns] mean squares */
} gd_column_importance;

struct gd_importance {
    gd_column_importance *entries;
    size_t count, room;
};

/* Add the squares of x [rows, columns] to those of the matrix `name`. GD_ERR_SHAPE: it had other columns. */
gd_status gd_importance_add(gd_importance *importance, const char *name, int64_t rows,
                            int64_t columns, const float *x);
/* The means of the sums. GD_ERR_INVALID: one is not finite. */
gd_status gd_importance_finish(gd_importance *importance);
/* That of a matrix, NULL: there is none. */
const gd_column_importance *gd_importance_of(const gd_importance *importance, const char *name);

#endif
