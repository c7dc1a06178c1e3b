/* tests/support/fuzz.h: random valid programs, for test_compile_fuzz.c. Start at fuzz_draw.
 *
 * A program is drawn from a seed: which of its steps there are, what it does at its end, and how it
 * is run. Step after step makes one value, of values made before: rows of op_rows.h on operands
 * made of any values (fuzz_steps.c), elementwise rows on values of their own shapes, and what
 * passes look for (fuzz_patterns.c). Each step draws from a random stream of its own, so a step
 * that is left out leaves the others alone, but for those that read its value, which read an
 * earlier one. The same program makes the same graph whether it is run or traced. */
#ifndef GD_TESTS_FUZZ_H
#define GD_TESTS_FUZZ_H

#include "support/op_rows.h"

#include <stdio.h>

#include "base/random.h"

enum {
    FUZZ_STEPS = 24,
    FUZZ_INPUTS = 4,
    FUZZ_STATES = 4,  /* tensors that steps read and assign to */
    FUZZ_WEIGHTS = 4, /* of a dense layer and of a convolution; they require gradients */
    FUZZ_FIRST = FUZZ_INPUTS + FUZZ_STATES + FUZZ_WEIGHTS, /* the first step's value */
    FUZZ_VALUES = FUZZ_FIRST + FUZZ_STEPS,
};

/* What a program does beside its steps, and how it is run. Shrinking leaves out what it can. */
enum {
    FUZZ_GRADIENT = 1 << 0, /* ends with gradients by inputs and weights */
    FUZZ_SECOND = 1 << 1,   /* and with the gradients of these */
    FUZZ_TRAIN = 1 << 2,    /* and changes weights by them */
    FUZZ_RESULTS = 1 << 3,  /* every value it keeps is a result; else they are joined */
    FUZZ_KEEP_ALL = 1 << 4, /* keeps all values; else some, so that others are read once or never */
    FUZZ_THREADS = 1 << 5,  /* with two threads */
    FUZZ_TWICE = 1 << 6,    /* called twice */
    /* and then once more … */
    FUZZ_LAZY = 1 << 7,    /* in lazy mode */
    FUZZ_LIMIT = 1 << 8,   /* with less memory than it takes */
    FUZZ_HISTORY = 1 << 9, /* with gradients through the calls */
    FUZZ_LARGE = 1 << 10,  /* few steps on an input that threads share the work on */
    FUZZ_OPTIONS = 11,
};
extern const char *const fuzz_option_names[FUZZ_OPTIONS];

typedef struct fuzz_program fuzz_program;

/* A function of two values, called or checkpointed in a step. */
typedef struct fuzz_block {
    fuzz_program *program;
    int step;
    bool is_call;
} fuzz_block;

struct fuzz_program {
    uint64_t seed;
    uint32_t steps;   /* bit i: step i is there */
    unsigned options; /* FUZZ_… */
    uint32_t off;     /* bit i: the compiler's pass i is switched off */
    FILE *log;        /* gets a line a step while the program is made; NULL */
    /* Set by who runs it. */
    gd_tensor *states[FUZZ_STATES], *weights[FUZZ_WEIGHTS];
    fuzz_block blocks[FUZZ_STEPS];
};

/* The program of this seed, for a compiler of so many passes. */
fuzz_program fuzz_draw(uint64_t seed, int passes);
/* Make inputs, which are borrowed from the context's scope, states and weights. */
void fuzz_place(fuzz_program *p, gd_context *gd, gd_tensor *inputs[FUZZ_INPUTS]);
/* A gd_function_body; user is the program. */
gd_tensor *fuzz_body(void *program, int count, gd_tensor *const *in);

/* ---- between the files of fuzz*.c ---- */

typedef struct fuzz_maker {
    fuzz_program *program;
    gd_context *gd;
    gd_random random; /* of the step being made */
    gd_tensor *values[FUZZ_VALUES];
    int count; /* places in values so far; steps that are left out have NULL there */
    int step;
    int backwards;           /* gradients taken that have a history */
    const fuzz_block *block; /* whose values these are; NULL: the program's */
} fuzz_maker;

typedef gd_tensor *(*fuzz_make)(fuzz_maker *m); /* NULL without an error: it makes nothing */

int fuzz_below(fuzz_maker *m, int bound);
void fuzz_say(fuzz_maker *m, const char *format, ...) GD_PRINTF(2, 3);
/* One of the values made so far. */
gd_tensor *fuzz_value(fuzz_maker *m);
/* One of a float dtype; one that gradients reach, if there is one; a small one of two or three axes
 * and a float dtype. */
gd_tensor *fuzz_float(fuzz_maker *m);
gd_tensor *fuzz_tracked(fuzz_maker *m);
gd_tensor *fuzz_rows(fuzz_maker *m);
/* A value brought to this shape and dtype. */
gd_tensor *fuzz_as(fuzz_maker *m, gd_shape shape, gd_dtype dtype);
/* Whether the shapes broadcast to one, *r. */
bool fuzz_broadcast(gd_shape a, gd_shape b, gd_shape *r);

gd_tensor *fuzz_step_row(fuzz_maker *m);
gd_tensor *fuzz_step_elementwise(fuzz_maker *m);
gd_tensor *fuzz_step_block(fuzz_maker *m);
/* A step that makes a pattern. */
typedef struct fuzz_pattern {
    const char *name;
    fuzz_make make;
    int share;        /* how often it is drawn, of all shares */
    bool has_effects; /* not in blocks */
} fuzz_pattern;
extern const fuzz_pattern fuzz_patterns[];
extern const int fuzz_pattern_count;

#endif
