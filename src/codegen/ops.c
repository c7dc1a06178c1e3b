/* codegen/ops.c: elementwise ops as C: a function for each op and dtype in use, from its formula, and
 * a statement for each instruction of a group. Elements of half precision are their bits; ops
 * compute with them in f32 and round once, as the CPU's do (codegen/device/half.txt). */
#include "codegen/codegen.h"

#include <stdio.h>
#include <string.h>

#include "ops/attrs.h"
#include "ops/formulas.h"

static const struct {
    const char *type, *suffix;
} types[GD_DTYPE_COUNT] = {
    [GD_F32] = { "float", "f32" },    [GD_F64] = { "double", "f64" },
    [GD_I32] = { "int32_t", "i32" },  [GD_I64] = { "int64_t", "i64" },
    [GD_I8] = { "int8_t", "i8" },     [GD_I16] = { "int16_t", "i16" },
    [GD_U8] = { "uint8_t", "u8" },    [GD_U16] = { "uint16_t", "u16" },
    [GD_U32] = { "uint32_t", "u32" }, [GD_U64] = { "uint64_t", "u64" },
    [GD_BOOL] = { "uint8_t", "u8" },
};

const char *gd_codegen_type(gd_dtype dtype)
{
    return types[dtype].type;
}

const char *gd_codegen_suffix(gd_dtype dtype)
{
    return types[dtype].suffix;
}

const char *gd_codegen_storage(gd_dtype dtype)
{
    return gd_dtype_is_half(dtype) ? types[GD_U16].type : types[dtype].type;
}

/* The functions that formulas call by other names than gd_<word>_<dtype>. */
static const char *const words[][2] = {
    { "SELECT", "select" },
    { "MAX", "maximum" },
    { "MIN", "minimum" },
    { "ABS", "absolute" },
    { "SIGN", "sign" },
    { "RELU", "relu" },
    { "FLOOR_DIV", "floor_div" },
    { "FLOOR_MOD", "floor_mod" },
    { "INTEGER_POW", "integer_pow" },
    { "COPYSIGN", "copy_sign" },
    { "NEXTAFTER", "next_after" },
    { "FLUSH", "flush" },
    { "FMA", "fused_multiply_add" },
    { "SQRT", "square_root" },
    { "FLOOR", "round_down" },
    { "CEIL", "round_up" },
    { "RINT", "round_even" },
    { "TRUNC", "round_to_zero" },
    { "LGAMMA", "special_lgamma" },
    { "POLYGAMMA", "special_polygamma" },
};

static void add_word(gd_text_buffer *out, const char *word, size_t length, const char *suffix)
{
    if (length == 9 && memcmp(word, "INFINITY_", 9) == 0) {
        gd_buffer_add(out, "INFINITY");
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == length && memcmp(words[i][0], word, length) == 0) {
            gd_buffer_add(out, "%s_%s", words[i][1], suffix);
            return;
        }
    gd_buffer_add(out, "gd_");
    for (size_t i = 0; i < length; i++)
        gd_buffer_add(out, "%c", word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    gd_buffer_add(out, "_%s", suffix);
}

/* static inline float op_add_f32(float x, float y) { return x + y; } */
static void define_op(gd_codegen_functions *functions, gd_op_id op, gd_dtype compute)
{
    if (functions->is_defined[compute][op])
        return;
    functions->is_defined[compute][op] = true;
    const gd_op_formula *f = gd_op_formula_of(op);
    const char *type = gd_codegen_type(compute), *suffix = gd_codegen_suffix(compute);
    gd_text_buffer *out = &functions->text;
    gd_buffer_add(out, "static inline %s op_%s_%s(%s x", f->gives_bool ? "uint8_t" : type,
                  gd_op_row(op)->name, suffix, f->chooses ? "uint8_t" : type);
    for (int k = 1; k < f->arity; k++)
        gd_buffer_add(out, ", %s %c", type, 'x' + k);
    gd_buffer_add(out, ")\n{\n    return ");
    bool is_bool = f->gives_bool || compute == GD_BOOL;
    /* Sums and products of whole numbers wrap. */
    bool wraps = gd_dtype_is_integer(compute) && !f->text[strspn(f->text, "xyz+-* ")];
    bool narrow = gd_dtype_size(compute) < 4;
    if (is_bool || narrow || wraps)
        gd_buffer_add(out, "(%s)(", is_bool ? "uint8_t" : type);
    for (const char *c = f->text; *c;) {
        size_t length = 0;
        while ((c[length] >= 'A' && c[length] <= 'Z') || c[length] == '_' ||
               (length && c[length] >= '0' && c[length] <= '9'))
            length++;
        if (length)
            add_word(out, c, length, suffix);
        else
            gd_buffer_add(out, wraps && *c >= 'x' ? "(uint64_t)%c" : "%c", *c);
        c += length ? length : 1;
    }
    gd_buffer_add(out, "%s;\n}\n\n", is_bool || narrow || wraps ? ")" : "");
}

static const char *half_name(gd_dtype dtype)
{
    return dtype == GD_F16 ? "f16" : "bf16";
}

/* "v3", or its f32 if it is of half precision. */
typedef struct number {
    char text[40];
} number;

static number number_of(gd_dtype dtype, int value)
{
    number n;
    if (gd_dtype_is_half(dtype))
        snprintf(n.text, sizeof n.text, "gd_%s_to_f32(v%d)", half_name(dtype), value);
    else
        snprintf(n.text, sizeof n.text, "v%d", value);
    return n;
}

/* Rounded once: f32 holds small integers, and of all others what binary16 does not round to
 * infinity; the functions by name round to odd before. */
static void add_cast_to_half(gd_text_buffer *body, gd_dtype from, gd_dtype to, int operand)
{
    const bool is_wide = gd_dtype_is_integer(from) && gd_dtype_size(from) >= 4;
    if (from == GD_F64 || (to == GD_BF16 && is_wide))
        gd_buffer_add(body, "%s_to_%s(v%d)",
                      gd_dtype_size(from) == 8 ? gd_codegen_suffix(from) : "f64", half_name(to),
                      operand);
    else
        gd_buffer_add(body, "gd_f32_to_%s((float)%s)", half_name(to),
                      number_of(from, operand).text);
}

static void add_cast(gd_text_buffer *body, gd_dtype from, gd_dtype to, int operand)
{
    const bool is_half = gd_dtype_is_half(from);
    const number x = number_of(from, operand);
    if (gd_dtype_is_half(to))
        add_cast_to_half(body, from, to, operand);
    else if (to == GD_BOOL)
        gd_buffer_add(body, is_half ? "(uint8_t)((v%d & 0x7fff) != 0)" : "(uint8_t)(v%d != 0)",
                      operand);
    else if (gd_dtype_is_float(from) && gd_dtype_is_integer(to))
        gd_buffer_add(body, "%s_to_%s(%s)", is_half ? "f32" : gd_codegen_suffix(from),
                      gd_codegen_suffix(to), x.text);
    else
        gd_buffer_add(body, "(%s)%s", gd_codegen_type(to), x.text);
}

/* op_add_f32(v1, v2); in half precision `where` chooses between bits, all else computes in f32. */
static void add_op(gd_codegen_functions *functions, gd_text_buffer *body,
                   const gd_fused_instruction *in, const gd_dtype *dtypes)
{
    const gd_op_id op = (gd_op_id)in->op;
    const gd_op_formula *f = gd_op_formula_of(op);
    const bool is_half = in->compute == GD_F16 || in->compute == GD_BF16;
    const bool rounds = is_half && !f->chooses && !f->gives_bool;
    const gd_dtype compute = !is_half ? (gd_dtype)in->compute : f->chooses ? GD_U16 : GD_F32;
    define_op(functions, op, compute);
    if (rounds)
        gd_buffer_add(body, "gd_f32_to_%s(", half_name((gd_dtype)in->compute));
    gd_buffer_add(body, "op_%s_%s(", gd_op_row(op)->name, gd_codegen_suffix(compute));
    for (int k = 0; k < f->arity; k++)
        gd_buffer_add(body, "%s%s", k ? ", " : "",
                      number_of(f->chooses ? GD_U16 : dtypes[in->from[k]], in->from[k]).text);
    gd_buffer_add(body, rounds ? "))" : ")");
}

/* The loop's body of gd_ew_adam_f32 (backend/cpu/elementwise_f32_isa.c). */
static void define_adam(gd_codegen_functions *functions)
{
    define_op(functions, GD_OP_flush_subnormal, GD_F32);
    define_op(functions, GD_OP_sqrt, GD_F32);
    if (!functions->adam_is_defined)
        gd_buffer_add(
            &functions->text,
            "static inline float op_adam_f32(float p, float g, float m, float v, float "
            "step_size,\n"
            "                                float epsilon, float rest1, float beta2, "
            "float rest2,\n"
            "                                float decay, float *next)\n{\n"
            "    const float first = op_flush_subnormal_f32(m + (g - m) * rest1);\n"
            "    const float second = op_flush_subnormal_f32(v * beta2 + g * rest2 * g);\n"
            "    next[0] = second;\n"
            "    next[1] = p * decay - first * step_size / (op_sqrt_f32(second) + "
            "epsilon);\n"
            "    return first;\n}\n\n");
    functions->adam_is_defined = true;
}

/* Its further results are next<value>[0] and [1]. */
static void add_adam(gd_text_buffer *body, const gd_fused_instruction *in, int value)
{
    gd_buffer_add(body, "            float next%d[2];\n            const float v%d = op_adam_f32(",
                  value, value);
    for (int k = 0; k < GD_ADAM_OPERANDS; k++)
        gd_buffer_add(body, "v%d, ", in->from[k]);
    gd_buffer_add(body, "next%d);\n", value);
}

void gd_codegen_instruction(gd_codegen_functions *functions, gd_text_buffer *body,
                            const gd_fused_attr *group, int i, const gd_dtype *dtypes)
{
    const gd_fused_instruction *in = &group->instruction[i];
    if (in->op == GD_OP_adam) {
        define_adam(functions);
        add_adam(body, in, group->n_inputs + i);
        return;
    }
    gd_buffer_add(body, "            const %s v%d = ", gd_codegen_storage((gd_dtype)in->dtype),
                  group->n_inputs + i);
    if (in->op == GD_OP_cast)
        add_cast(body, dtypes[in->from[0]], (gd_dtype)in->dtype, in->from[0]);
    else if (in->op == GD_OP_extra_result)
        gd_buffer_add(body, "next%d[%d]", in->from[0], in->from[1]);
    else
        add_op(functions, body, in, dtypes);
    gd_buffer_add(body, ";\n");
}

gd_fused_attr gd_codegen_group_of_one(const gd_op *op, int n, gd_dtype computes, gd_dtype result)
{
    gd_fused_attr group;
    memset(&group, 0, sizeof group);
    group.n_inputs = n;
    group.n_instructions = 1;
    group.instruction[0] = (gd_fused_instruction){ .op = (int16_t)op->id,
                                                   .dtype = (int16_t)result,
                                                   .from = { 0, 1, 2 },
                                                   .compute = (int16_t)computes };
    return group;
}
