/* compile/lazy.h: what a trace consists of, comparable (GD_MODE_LAZY). */
#ifndef GD_COMPILE_LAZY_H
#define GD_COMPILE_LAZY_H

#include "graph/trace.h"

typedef struct gd_structure {
    uint64_t *words;
    size_t count, capacity;
} gd_structure;

/* Replace *s with the structure of a trace whose arguments are `inputs`. */
gd_status gd_structure_take(gd_structure *s, gd_context *context, const gd_trace *trace,
                            gd_tensor *const *inputs, int input_count);
bool gd_structure_equal(const gd_structure *a, const gd_structure *b);
void gd_structure_free(gd_structure *s);

#endif
