/* codegen/codegen.h: C text of what the engine computes, for those who write programs: exported C
 * (compile/export.c) and kernels that a device compiles (backend/gpu). The text is that of the
 * engine's own functions: the formulas of ops/elementwise.def, backend/cpu/vecmath*.h, and
 * kernels.txt beside this file. So what it computes has the engine's bits wherever the compiler
 * rounds each operation as IEEE 754 says.
 *
 * Start at gd_codegen_instruction, then gd_codegen_link. */
#ifndef GD_CODEGEN_CODEGEN_H
#define GD_CODEGEN_CODEGEN_H

#include "backend/backend.h"
#include "base/buffer.h"

/* How C calls a dtype: "float", its letters in function names "f32"; NULL: none (half precision).
 */
const char *gd_codegen_type(gd_dtype dtype);
const char *gd_codegen_suffix(gd_dtype dtype);
/* How an element lies in memory: its type, of half precision "uint16_t", its bits. */
const char *gd_codegen_storage(gd_dtype dtype);

/* ---- ops.c: elementwise ops ---- */

/* The functions of ops in use, "op_add_f32": each is defined once. */
typedef struct gd_codegen_functions {
    gd_text_buffer text;
    bool is_defined[GD_DTYPE_COUNT][GD_OP_ELEMENTWISE_COUNT], adam_is_defined;
} gd_codegen_functions;

/* "const float v5 = op_add_f32(v1, v2);": instruction i of a group, into `body`. dtypes: of all the
 * group's values. */
void gd_codegen_instruction(gd_codegen_functions *functions, gd_text_buffer *body,
                            const gd_fused_attr *group, int i, const gd_dtype *dtypes);

/* An elementwise op or a cast as a group of one. `computes`: the dtype of its last operand. */
gd_fused_attr gd_codegen_group_of_one(const gd_op *op, int n, gd_dtype computes, gd_dtype result);

/* ---- loops.c ---- */

enum { GD_LOOP_OPERANDS = GD_FUSED_MAX_INPUTS + 1 + GD_FUSED_MAX_EXTRA };

/* Loops over a shape, with axes merged that all operands step through alike. */
typedef struct gd_loops {
    int rank, operands;
    int64_t size[GD_MAX_RANK];
    int64_t stride[GD_LOOP_OPERANDS][GD_MAX_RANK];
} gd_loops;

/* Those over `over`, to which the operands are broadcast. */
void gd_codegen_merge(gd_loops *l, const gd_layout *over, const gd_layout *const *operands, int n);

/* ---- reduction.c ---- */

/* Loops over the axes that stay (operand 0 is the input, 1 the result) and over those that are reduced
 * (the input alone), each in the order of backend/cpu/reduce.h. */
typedef struct gd_reduce_loops {
    gd_loops kept, reduced;
    int64_t offset;     /* of the first element of the input */
    bool is_by_columns; /* the innermost axis stays */
} gd_reduce_loops;

gd_reduce_loops gd_codegen_reduce(const gd_layout *in, uint32_t axes);
/* The sum, prod, max or min of nothing, as C writes it. */
const char *gd_codegen_identity(gd_op_id op, gd_dtype dtype);

/* ---- library.c ---- */

/* What the text is to be compiled by. A dialect's own definitions stand in <name>.txt and go before
 * those of all. */
typedef enum gd_dialect {
    GD_DIALECT_C,
    GD_DIALECT_OPENCL,
    GD_DIALECT_CUDA,
    GD_DIALECT_OPENCL_STEPS, /* kernels become functions of one: device/steps.txt */
    GD_DIALECT_CUDA_STEPS,
    GD_DIALECT_CUDA_CLUSTER, /* of several work-groups: device/cluster.txt */
    GD_DIALECT_COUNT
} gd_dialect;

/* The first lines of a program. with_f64: the device has f64. */
void gd_codegen_begin(gd_dialect dialect, bool with_f64, gd_text_buffer *out);
/* Whether a text computes in f64: it has the type, or a constant of it. */
bool gd_codegen_has_f64(const char *text);
/* Add to `out` all functions that `used` needs, and no others. GD_ERR_UNSUPPORTED: a name is
 * nowhere. */
gd_status gd_codegen_link(gd_dialect dialect, const gd_text_buffer *used, gd_text_buffer *out);

/* The same for one of several programs in a text. Functions and types, those of `used` as well, get
 * names of their own, with _<number> behind, up to gd_codegen_end_part. */
gd_status gd_codegen_link_part(gd_dialect dialect, const gd_text_buffer *used, int number,
                               gd_text_buffer *out);
/* part: what stands in `out` from there on, of gd_codegen_link_part and the program itself. */
gd_status gd_codegen_end_part(gd_text_buffer *out, size_t part);

/* text.c: all the text there is: a section a line of @ and a letter begins. */
void gd_codegen_unpack(gd_text_buffer *out);

#endif
