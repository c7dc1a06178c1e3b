/* compile/export.h: what the files that write a plan as C share. Private to export*.c; start at
 * gd_export_c in export.c. */
#ifndef GD_COMPILE_EXPORT_H
#define GD_COMPILE_EXPORT_H

#include "codegen/codegen.h"
#include "compile/plan.h"

typedef struct gd_export {
    const gd_plan *plan;
    const char *name;               /* of the function */
    gd_codegen_functions functions; /* of elementwise ops */
    gd_text_buffer body;            /* the steps */
    int32_t *storage; /* [ir.count] number of the storage an external value lies in; -1: none */
    const gd_tensor **owner; /* [storages] a tensor over it */
    bool *is_written;        /* [storages] by an effect */
    bool *is_used;           /* [storages] by a step that is written */
    int storages;
    bool draws;    /* random numbers */
    bool *is_read; /* [ir.count] constants and inputs in use */
} gd_export;

gd_status gd_export_check_type(gd_dtype dtype); /* GD_ERR_UNSUPPORTED: C has none */
/* Name of storage number `s`: that of its tensor with _ for what C does not allow. */
void gd_export_storage_name(const gd_export *e, int s, char name[128]);

/* ---- export_loops.c ---- */

/* "for (int64_t i0 = 0; …)" after some spaces, with a variable of `letter` for each loop. */
void gd_export_open_loops(gd_export *e, const gd_loops *l, const char *letter, int spaces);
/* "i0 * 16 + i1", "0" where nothing varies. */
void gd_export_index(gd_export *e, const gd_loops *l, int operand, const char *letter);
/* "x0 + i0 * 16", "x0" where nothing varies. */
void gd_export_place(gd_export *e, const gd_loops *l, const char *pointer, int operand);
/* What comes before the statement in loops. */
const char *gd_export_indent(const gd_loops *l);

/* "const f32 *const x0 = (const f32 *)fc1_weight + 3;": a pointer <name><number> to a value. */
void gd_export_pointer(gd_export *e, const char *name, int number, int32_t value, bool is_result);
/* Pointers x0, x1, … to the operands of a step, and r0 to its result. */
void gd_export_pointers(gd_export *e, const gd_step *step);

/* ---- steps ---- */

/* export_steps.c: add one step's statements to the body. */
gd_status gd_export_step(gd_export *e, const gd_step *step);
/* GD_ERR_UNSUPPORTED: "there is no C text for <op> <of what>". */
gd_status gd_export_refuse(const gd_step *step, const gd_export *e, const char *of_what);
/* Whether there is a writer for an op, or it needs none. */
bool gd_export_has_writer(gd_op_id op);

/* export_rows.c: fused, with reductions. */
gd_status gd_export_rows(gd_export *e, const gd_step *step);

typedef gd_status (*gd_export_writer)(gd_export *, const gd_step *);
/* export_reduce.c: sum, prod, max, min; argmax, argmin; cumsum, cumprod. */
gd_status gd_export_reduction(gd_export *e, const gd_step *step);
gd_status gd_export_arg_reduction(gd_export *e, const gd_step *step);
gd_status gd_export_scan(gd_export *e, const gd_step *step);
/* export_index.c: moving elements, by indices and otherwise; sorting; random numbers. */
gd_status gd_export_full(gd_export *e, const gd_step *step);
gd_status gd_export_iota(gd_export *e, const gd_step *step);
gd_status gd_export_pad(gd_export *e, const gd_step *step);
gd_status gd_export_concat(gd_export *e, const gd_step *step);
gd_status gd_export_gather(gd_export *e, const gd_step *step);
gd_status gd_export_scatter(gd_export *e, const gd_step *step);
gd_status gd_export_sort(gd_export *e, const gd_step *step);
gd_status gd_export_search(gd_export *e, const gd_step *step);
gd_status gd_export_random(gd_export *e, const gd_step *step);
/* In the loops over a group's elements: v<k>, the word that operand k of the group draws. */
void gd_export_word(gd_export *e, const gd_step *step, const gd_loops *l, int k);
gd_status gd_export_dropout(gd_export *e, const gd_step *step);
/* export_sequence.c: normalisation of rows, attention, recurrent networks, CTC. */
gd_status gd_export_norm(gd_export *e, const gd_step *step);
gd_status gd_export_centred(gd_export *e, const gd_step *step);
gd_status gd_export_attention(gd_export *e, const gd_step *step);
gd_status gd_export_recurrent(gd_export *e, const gd_step *step);
gd_status gd_export_ctc(gd_export *e, const gd_step *step);
/* export_spatial.c: convolution, pooling, and their gradients. */
gd_status gd_export_convolution(gd_export *e, const gd_step *step);
gd_status gd_export_pooling(gd_export *e, const gd_step *step);

#endif
