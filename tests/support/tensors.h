/* tests/support/tensors.h: what the op tests are written with: numbers for operands, tensors that
 * hold them in different layouts, reading and comparing results, and kernels that are watched. */
#ifndef GD_TESTS_TENSORS_H
#define GD_TESTS_TENSORS_H

#include "support/op_rows.h"

/* A generator of its own (SplitMix64), so that a fault in the engine's does not hide others. */
typedef struct numbers {
    uint64_t state;
} numbers;
uint64_t numbers_next(numbers *n);
/* A generator of the row's own, so that a row's numbers do not depend on which rows stand before
 * it.
 */
numbers numbers_of(const op_row *row, uint64_t seed);
double numbers_uniform(numbers *n, double low, double high);

/* How an operand lies in memory; its values are the same in each, but for those of
 * LAYOUT_STRETCHED, which are equal along axis 0. */
typedef enum layout_kind {
    LAYOUT_CONTIGUOUS,
    LAYOUT_TRANSPOSED, /* axes in reverse order */
    LAYOUT_SLICED, /* every second element of a larger tensor, from 1 on; between them NaN or 77 */
    LAYOUT_REVERSED,  /* negative strides */
    LAYOUT_STRETCHED, /* stride 0 along axis 0 */
    LAYOUT_COUNT
} layout_kind;
extern const char *const layout_names[LAYOUT_COUNT];

#define OPERAND_LIMIT (1 << 20) /* most elements of an operand in the tests */

/* The numbers of one operand, row-major, each exactly a value of the dtype. */
typedef struct operand {
    gd_shape shape;
    gd_dtype dtype;
    layout_kind layout;
    int64_t count;
    double *value; /* [count] */
} operand;

int64_t shape_count(gd_shape shape);
/* Fill `value` by the row's specification. Whole numbers from -8 to 8 when `whole`. */
operand operand_make(const op_row *row, const op_case *c, int which, gd_dtype dtype,
                     layout_kind layout, bool whole, numbers *n);
void operand_free(operand *o);
/* The dtype an operand has when its row is tried with `dtype`. */
gd_dtype operand_dtype(const op_row *row, int which, gd_dtype dtype);

/* A tensor that holds the operand: `leaf` owns the storage, `view` has the operand's shape.
 * place[i] is where element i of the view lies in the leaf (row-major), for leaf_count elements.
 * NULL tensors on failure. */
typedef struct placed {
    gd_tensor *leaf, *view;
    int64_t leaf_count;
} placed;
placed operand_place(gd_context *context, const operand *o, bool requires_grad);
/* Row-major position in the leaf of element i of the operand. */
int64_t operand_leaf_index(const operand *o, int64_t i);

/* The result's elements, row-major, as stored. Fails the test on an error. */
typedef struct reading {
    gd_shape shape;
    gd_dtype dtype;
    int64_t count;
    size_t bytes;
    void *data;
} reading;
reading reading_take(const gd_tensor *t, const char *what);
void reading_free(reading *r);
double reading_value(const reading *r, int64_t i);

/* Distance in units in the last place of the dtype; 0 for equal numbers and for two NaNs, huge when
 * only one is NaN. Integers: their difference. */
double ulp_distance(gd_dtype dtype, double a, double b);
/* Fail the test, naming `what`, unless shapes and dtypes are equal and every pair of elements is
 * within `ulp`. */
void assert_close(const reading *expected, const reading *actual, double ulp, const char *what);
/* The same bits; NaNs may differ in theirs, and zeros in sign only where `signs` is false. */
void assert_same_bits(const reading *expected, const reading *actual, const char *what);

/* Whether they have the same bits, of NaNs and zeros, too. */
bool same_bits(const reading *a, const reading *b);

/* From now on kernels of this context run on copies of their operands in memory of exactly their
 * size, with guard bytes around the result; a kernel that writes outside its result or into an
 * input is counted in watch_faults(). */
void watch_kernels(gd_context *context);
/* Forget a context that was watched; before it is closed. */
void unwatch_kernels(gd_context *context);
int watch_faults(void);

/* The names the CPU back end can run under here: "avx512", "avx2", "baseline", …; NULL at the end.
 */
const char *const *isa_names(void);
/* Whether a * b + c is rounded once in its products: everywhere but on baseline x86-64. */
bool isa_fuses(const char *isa);
/* gd_open("cpu") under an ISA, watched; fails the test on an error. NULL: the best. */
gd_context *open_cpu(const char *isa, int threads);
/* The same without that; NULL on an error. */
gd_context *open_cpu_unwatched(const char *isa, int threads);
gd_context *open_reference(void);
void close_context(gd_context *context);

#endif
