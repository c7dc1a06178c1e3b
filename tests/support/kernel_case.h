/* tests/support/kernel_case.h: random calls of what has large kernels: convolution, products,
 * pooling, recurrent networks; for test_kernel_fuzz.c. Start at kernel_family.
 *
 * A case is what fuzz_run.h says: a list of fields. The first ones are the same for every family
 * (how operands lie, what numbers they hold), the others are sizes and options of its own. */
#ifndef GD_TESTS_KERNEL_CASE_H
#define GD_TESTS_KERNEL_CASE_H

#include <gradus/nn.h>

#include "support/fuzz_run.h"
#include "support/tensors.h"

/* ---- fields ---- */

enum { KERNEL_OPERANDS = 6 };

enum {
    K_NUMBERS,     /* seed of the operands' numbers */
    K_VALUES,      /* kernel_values */
    K_DTYPE,       /* of the first operand */
    K_OTHER_DTYPE, /* of the others */
    K_GRADIENT,    /* by all operands of a float dtype */
    K_PATH,        /* kernel_paths: which the CPU is made to take once more; 0: none */
    K_COMPILED,    /* compiled as well */
    K_LAYOUT,      /* kernel_layout of each operand */
    K_WRONG = K_LAYOUT + KERNEL_OPERANDS, /* 0, or what is wrong: the family's own number */
    K_OWN,                                /* the family's fields */
};
#define KERNEL_COMMON_FIELDS                                                                      \
    [K_NUMBERS] = { "numbers", 0, FUZZ_SEED }, [K_VALUES] = { "values", 0, FUZZ_NUMBER },         \
    [K_DTYPE] = { "dtype", 0, FUZZ_NUMBER }, [K_OTHER_DTYPE] = { "other_dtype", 0, FUZZ_NUMBER }, \
    [K_GRADIENT] = { "gradient", 0, FUZZ_NUMBER }, [K_PATH] = { "path", 0, FUZZ_NUMBER },         \
    [K_COMPILED] = { "compiled", 0, FUZZ_NUMBER }, [K_LAYOUT] = { "layout0", 0, FUZZ_NUMBER },    \
    [K_LAYOUT + 1] = { "layout1", 0, FUZZ_NUMBER },                                               \
    [K_LAYOUT + 2] = { "layout2", 0, FUZZ_NUMBER },                                               \
    [K_LAYOUT + 3] = { "layout3", 0, FUZZ_NUMBER },                                               \
    [K_LAYOUT + 4] = { "layout4", 0, FUZZ_NUMBER },                                               \
    [K_LAYOUT + 5] = { "layout5", 0, FUZZ_NUMBER }, [K_WRONG] = { "wrong", 0, FUZZ_NUMBER }

/* What the environment says when the CPU is opened, so that small cases reach the ways that large
 * ones take, and the ends of their memory. */
enum { KERNEL_PATHS = 6 };
typedef struct kernel_path {
    const char *conv, *matmul, *l2; /* GRADUS_CONV, GRADUS_MATMUL, GRADUS_L2 */
} kernel_path;
extern const kernel_path kernel_paths[KERNEL_PATHS];

typedef enum kernel_values {
    VALUES_WHOLE,   /* -8 … 8: sums of products are exact, and so compared */
    VALUES_REAL,    /* -1 … 1 */
    VALUES_SPECIAL, /* the same with a few zeros of either sign, infinities and NaNs */
    VALUES_COUNT
} kernel_values;

typedef enum kernel_layout {
    KERNEL_CONTIGUOUS,
    KERNEL_TRANSPOSED, /* axes in reverse order in memory */
    KERNEL_STEPPED,    /* every second element of the last axis */
    KERNEL_REVERSED,   /* every stride negative */
    KERNEL_STRETCHED,  /* stride 0 along axis 0 */
    KERNEL_CUT,        /* out of longer rows */
    KERNEL_LAYOUTS
} kernel_layout;

/* ---- operands ---- */

typedef struct kernel_operand {
    const char *name; /* in the C text: "x" */
    gd_shape shape;
    gd_dtype dtype;
    bool is_index;    /* whole numbers 0 … most, never differentiated */
    bool is_real;     /* never whole numbers */
    int64_t most;     /* whole numbers are -most … most; 0: 8 */
    double scale;     /* real numbers are -scale … scale; 0: 1 */
    bool keeps_signs; /* the result is not linear in it; see kernel_family.terms */
} kernel_operand;

/* ---- families ---- */

typedef struct kernel_call {
    const fuzz_case *c;
    gd_context *gd;
    gd_tensor *const *in;
    gd_module *module; /* of the family's, or NULL */
    FILE *log;         /* gets the call as C; NULL */
    gd_tensor *more;   /* a second result, or NULL */
} kernel_call;

typedef struct kernel_family {
    const char *name;
    int fields;
    const fuzz_field *field;
    void (*draw)(fuzz_case *c, numbers *n);
    /* The operands; their number. A shape may be wrong, not absurd. */
    int (*operands)(const fuzz_case *c, kernel_operand *o);
    /* Of what has parameters, else NULL; the caller releases it. */
    gd_module *(*module)(gd_context *gd, const fuzz_case *c, gd_tensor *const *in);
    gd_tensor *(*call)(kernel_call *k);
    /* Result and gradients are multilinear in the operands without keeps_signs and in the
     * gradient's seed, and each element of them is a sum of at most so many products. NULL: they
     * are not, and an error may be `tolerance` times the unit roundoff times the largest element of
     * all results or of all gradients, and of 1. */
    double (*terms)(const fuzz_case *c);
    double (*tolerance)(const fuzz_case *c);
    /* Whether sums of products of whole numbers are all it computes. */
    bool (*is_exact)(const fuzz_case *c);
} kernel_family;

extern const kernel_family kernel_conv, kernel_product, kernel_pool, kernel_recurrent;

/* ---- for families ---- */

int64_t kernel_below(numbers *n, int64_t bound);               /* 0 … bound-1 */
int64_t kernel_between(numbers *n, int64_t low, int64_t high); /* low … high */
bool kernel_one_in(numbers *n, int64_t count);                 /* true once in `count` */
/* A size: most often small, now and then 1 or about a multiple of what vectors and blocks hold. */
int64_t kernel_size(numbers *n, int64_t most);
/* Halve the field with the largest value among `fields` until cost(c) is at most `budget`. */
void kernel_limit(fuzz_case *c, const int *fields, int count, double (*cost)(const fuzz_case *c),
                  double budget);
/* Print into the log, if there is one. */
void kernel_say(const kernel_call *k, const char *format, ...) GD_PRINTF(2, 3);
/* ", .name = GD_SHAPE(1, 2)", unless the rank is 0; with the name "" an argument, not an option. */
void kernel_say_shape(const kernel_call *k, const char *name, gd_shape shape);
/* ", .name = 1", unless it is 0. */
void kernel_say_option(const kernel_call *k, const char *name, int64_t value);

/* ---- for the test ---- */

/* Draw the common fields, then the family's. */
void kernel_draw(const kernel_family *f, uint64_t seed, fuzz_case *c);
/* The operand as the case has it; `as_magnitude`: absolute values, in f64. Gradients are wanted
 * where the case has any. With a log, the C text that makes it. */
gd_tensor *kernel_place(gd_context *gd, const fuzz_case *c, const kernel_operand *o, int which,
                        bool as_magnitude, FILE *log);
/* The seed of a gradient of this result, laid out in order. */
gd_tensor *kernel_seed(gd_context *gd, const fuzz_case *c, gd_shape shape, gd_dtype dtype,
                       bool as_magnitude, FILE *log);

#endif
