/* compile/export.c: a plan as one C99 file that needs libc and libm alone: data, the functions in
 * use, and a function that does what a call of the plan does, step by step. It allocates nothing:
 * intermediate values lie in one static block, at the plan's offsets.
 *
 * The steps are export_steps.c, the functions they use codegen/library.c. */
#include "compile/export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

/* ---- names ---- */

gd_status gd_export_check_type(gd_dtype dtype)
{
    return gd_codegen_type(dtype)
               ? GD_OK
               : gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: there is no C type for %s",
                         gd_dtype_name(dtype));
}

static bool is_random_state(const gd_export *e, int s)
{
    return e->owner[s]->storage == e->plan->ir.context->random_state->storage;
}

/* Storage s's name behind the function's, with _ for what C does not allow: no keyword, and no name
 * of the file's functions or of another model in the same program. false: it has none. */
static bool c_name(const gd_export *e, int s, char name[128])
{
    const char *given = is_random_state(e, s) ? "random_state" : e->owner[s]->name;
    name[0] = '\0';
    if (given)
        snprintf(name, 112, "%.72s_%s", e->name, given);
    for (char *c = name; *c; c++)
        if (!(*c >= '0' && *c <= '9') && !(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z'))
            *c = '_';
    return given;
}

void gd_export_storage_name(const gd_export *e, int s, char name[128])
{
    if (!c_name(e, s, name)) {
        snprintf(name, 128, "state_%d", s);
        return;
    }
    bool is_unique = true;
    for (int other = 0; other < e->storages && is_unique; other++) {
        char others[128];
        is_unique = other == s || !c_name(e, other, others) || strcmp(others, name) != 0;
    }
    if (!is_unique)
        snprintf(name + strlen(name), 16, "_%d", s);
}

/* ---- storages of parameters and state ---- */

/* number_of [memories]: of those in use, the order in which the program has them. */
static gd_status number_storages(gd_export *e, int32_t *number_of)
{
    const gd_ir *ir = &e->plan->ir;
    for (int32_t i = 0; i < ir->memory_count; i++)
        number_of[i] = -1;
    for (size_t i = 0; i < ir->count; i++) {
        const gd_tensor *t = ir->values[i].external;
        e->storage[i] = -1;
        if (!t)
            continue;
        int32_t *number = &number_of[ir->values[i].memory];
        if (*number < 0) {
            *number = e->storages;
            e->owner[e->storages++] = t;
        }
        const int32_t s = e->storage[i] = *number;
        if (!gd_layout_is_contiguous(&t->layout) || t->layout.offset != 0)
            return gd_fail(GD_ERR_UNSUPPORTED,
                           "gd_export_c: parameter or state %s is a view of another tensor",
                           t->name ? t->name : "without a name");
        if (ir->values[i].kind == GD_IR_OP)
            e->is_written[s] = true;
    }
    for (size_t i = 0; i < ir->count; i++)
        if (gd_ir_is_effect(&ir->values[i]))
            e->is_written[e->storage[ir->values[i].in[0]]] = true;
    return GD_OK;
}

static gd_status find_storages(gd_export *e)
{
    const gd_ir *ir = &e->plan->ir;
    int32_t *number_of = gd_alloc(sizeof(int32_t) * ((size_t)ir->memory_count + 1));
    e->storage = gd_alloc(sizeof(int32_t) * (ir->count + 1));
    e->owner = gd_alloc(sizeof(gd_tensor *) * (ir->count + 1));
    e->is_written = gd_alloc_zero(ir->count + 1, sizeof(bool));
    e->is_used = gd_alloc_zero(ir->count + 1, sizeof(bool));
    e->is_read = gd_alloc_zero(ir->count + 1, sizeof(bool));
    gd_status status = GD_ERR_MEMORY;
    if (number_of && e->storage && e->owner && e->is_written && e->is_used && e->is_read)
        status = number_storages(e, number_of);
    gd_free(number_of);
    if (status != GD_OK)
        return status;
    /* The seed, and the position of the next word, which every call moves on. */
    for (int s = 0; s < e->storages && ir->random_words; s++)
        if (is_random_state(e, s))
            e->is_written[s] = e->draws = true;
    return ir->random_words ? gd_random_publish(ir->context) : GD_OK;
}

/* ---- data ---- */

/* An integer or a bool in 64 bits, sign-extended. */
static uint64_t whole_at(gd_dtype dtype, const char *at)
{
    const size_t size = gd_dtype_size(dtype);
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++) /* as the devices have them: the lowest byte first */
        bits |= (uint64_t)(unsigned char)at[i] << 8 * i;
    const bool is_signed = gd_dtype_promote(dtype, GD_I8) == dtype;
    const uint64_t top = UINT64_C(1) << (8 * size - 1);
    return is_signed ? (bits ^ top) - top : bits;
}

static void add_whole(gd_text_buffer *out, gd_dtype dtype, uint64_t x)
{
    if (dtype == GD_U64 && x > INT64_MAX)
        gd_buffer_add(out, "%lluu", (unsigned long long)x);
    else
        gd_buffer_add(out, (int64_t)x == INT64_MIN ? "INT64_MIN" : "%lld", (long long)x);
}

static void add_number(gd_text_buffer *out, gd_dtype dtype, const char *at)
{
    if (dtype == GD_F32 || dtype == GD_F64) {
        float narrow = 0;
        double x;
        memcpy(dtype == GD_F32 ? (void *)&narrow : (void *)&x, at, gd_dtype_size(dtype));
        x = dtype == GD_F32 ? (double)narrow : x;
        bool is_whole = x == floor(x) && fabs(x) < 1e6 && !(x == 0 && signbit(x));
        if (isnan(x) || isinf(x))
            gd_buffer_add(out, "%s", isnan(x) ? "NAN" : x > 0 ? "INFINITY" : "-INFINITY");
        else
            gd_buffer_add(out, is_whole ? "%.0f" : "%a", x);
        if (dtype == GD_F32 && isfinite(x) && !is_whole)
            gd_buffer_add(out, "f");
        return;
    }
    add_whole(out, dtype, whole_at(dtype, at));
}

/* An array of what the device has at `address`. */
static gd_status add_array(const gd_export *e, gd_text_buffer *out, const char *before,
                           const char *name, const gd_layout *layout, const void *address)
{
    int64_t count = gd_layout_count(layout);
    gd_device *device = e->plan->ir.context->device;
    const size_t bytes = gd_layout_bytes(layout);
    char shape[GD_SHAPE_TEXT], *data = gd_alloc(bytes + 1);
    gd_status status = data ? GD_OK : GD_ERR_MEMORY;
    if (data && bytes)
        status = device->backend->memory_read(device, data, address, bytes);
    if (status != GD_OK) {
        gd_free(data);
        return status;
    }
    gd_buffer_add(out, "%s%s %s[%lld] /* %s */ = {", before, gd_codegen_type(layout->dtype), name,
                  (long long)(count ? count : 1), gd_layout_text(layout, shape));
    for (int64_t i = 0; i < count; i++) {
        gd_buffer_add(out, i % 8 == 0 ? "\n    " : " ");
        add_number(out, layout->dtype, data + (size_t)i * gd_dtype_size(layout->dtype));
        gd_buffer_add(out, ",");
    }
    gd_buffer_add(out, count ? "\n};\n\n" : " 0 };\n\n");
    gd_free(data);
    return GD_OK;
}

static gd_status add_data(const gd_export *e, gd_text_buffer *out)
{
    for (int s = 0; s < e->storages; s++) {
        const gd_tensor *t = e->owner[s];
        char name[128];
        if (!e->is_used[s] && !is_random_state(e, s))
            continue;
        gd_export_storage_name(e, s, name);
        if (!gd_codegen_type(t->layout.dtype))
            return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: %s is of dtype %s", name,
                           gd_dtype_name(t->layout.dtype));
        gd_status status = add_array(e, out,
                                     !e->is_written[s]                  ? "static const "
                                     : t->name || is_random_state(e, s) ? ""
                                                                        : "static ",
                                     name, &t->layout, t->storage->data);
        if (status != GD_OK)
            return status;
    }
    for (size_t i = 0; i < e->plan->ir.count; i++) {
        const gd_ir_value *v = &e->plan->ir.values[i];
        if (!e->is_read[i] || v->kind == GD_IR_INPUT)
            continue;
        char name[32];
        snprintf(name, sizeof name, "constant_%zu", i);
        if (!gd_codegen_type(v->layout.dtype))
            return gd_fail(GD_ERR_UNSUPPORTED, "gd_export_c: a constant is of dtype %s",
                           gd_dtype_name(v->layout.dtype));
        gd_status status =
            add_array(e, out, "static const ", name, &v->layout,
                      (const char *)e->plan->block->data + e->plan->memory.offset[i]);
        if (status != GD_OK)
            return status;
    }
    return GD_OK;
}

/* ---- the file ---- */

static const char head[] =
    "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n\n"
    "/* Results are defined bit for bit; nothing may be contracted. */\n"
    "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
    "#elif defined(__GNUC__) && !defined(__STRICT_ANSI__)\n"
    "#pragma GCC optimize(\"fp-contract=off\")\n#endif\n\n"
    "/* Memory is used for values of one type after another. */\n"
    "#if defined(__GNUC__)\n#define MAY_ALIAS __attribute__((may_alias))\n#else\n"
    "#define MAY_ALIAS\n#endif\n"
    "/* Not inlined: within larger functions compilers run out of registers for its sums. */\n"
    "#if defined(__GNUC__)\n#define APART __attribute__((noinline))\n#else\n#define APART\n#endif\n"
    "typedef float MAY_ALIAS f32;\ntypedef double MAY_ALIAS f64;\n"
    "typedef int8_t MAY_ALIAS i8;\ntypedef int16_t MAY_ALIAS i16;\n"
    "typedef int32_t MAY_ALIAS i32;\ntypedef int64_t MAY_ALIAS i64;\n"
    "typedef uint8_t MAY_ALIAS u8;\ntypedef uint16_t MAY_ALIAS u16;\n"
    "typedef uint32_t MAY_ALIAS u32;\ntypedef uint64_t MAY_ALIAS u64;\n\n";

static void add_head(const gd_export *e, const char *name, gd_text_buffer *out)
{
    gd_buffer_add(
        out,
        "/* %s: written by gradus %s. C99, libc and libm; no memory is allocated.\n"
        " *\n"
        " * Compile with -std=c99 -O3, and -march=native for speed. The results are those "
        "of the engine\n"
        " * bit for bit: of GRADUS_ISA=baseline as compiled for plain x86-64, of the other "
        "instruction sets\n"
        " * with fused multiply-add (-mfma, -march=native). Functions gd_... are elementary "
        "functions, which\n"
        " * src/backend/cpu/vecmath*.h of gradus explains. Start at %s() at the end.\n"
        " *\n"
        " * One call at a time: intermediate values are static. What a call changes is a global "
        "array "
        "named\n"
        " * %s_... . From C++ declare all of it extern \"C\". */\n",
        name, GD_VERSION_STRING, name, name);
    gd_buffer_add(out, "%s", head);
    size_t bytes = e->plan->memory.bytes ? e->plan->memory.bytes : 8;
    gd_buffer_add(out,
                  "/* Intermediate values. */\n"
                  "static union {\n    unsigned char byte[%zu];\n    double align;\n} memory;\n\n",
                  bytes);
}

static void add_parameters(const gd_export *e, gd_text_buffer *out)
{
    const gd_ir *ir = &e->plan->ir;
    const char *separator = "\n    ";
    char shape[GD_SHAPE_TEXT];
    for (size_t i = 0; i < ir->count; i++) {
        if (ir->values[i].kind != GD_IR_INPUT)
            continue;
        const gd_layout *layout = &ir->values[i].layout;
        gd_buffer_add(out, "%sconst %s *input%d /* %s */", separator,
                      gd_codegen_type(layout->dtype), ir->values[i].input,
                      gd_layout_text(layout, shape));
        separator = ",\n    ";
    }
    for (size_t i = 0; i < ir->output_count; i++) {
        const gd_layout *layout = &ir->values[ir->outputs[i]].layout;
        gd_buffer_add(out, "%s%s *result%zu /* %s */", separator, gd_codegen_type(layout->dtype), i,
                      gd_layout_text(layout, shape));
        separator = ",\n    ";
    }
}

static gd_status check_types(const gd_export *e)
{
    const gd_ir *ir = &e->plan->ir;
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind != GD_IR_DEAD &&
            gd_export_check_type(ir->values[i].layout.dtype) != GD_OK)
            return gd_error_last();
    for (size_t i = 0; i < ir->output_count; i++)
        if (!gd_layout_is_contiguous(&ir->values[ir->outputs[i]].layout))
            return gd_fail(GD_ERR_UNSUPPORTED,
                           "gd_export_c: result %zu is not contiguous; see gd_contiguous", i);
    return GD_OK;
}

static gd_status write_file(gd_export *e, const char *name, gd_text_buffer *out)
{
    gd_status status = check_types(e);
    if (status == GD_OK)
        status = find_storages(e);
    for (size_t i = 0; status == GD_OK && i < e->plan->n_steps; i++)
        status = gd_export_step(e, &e->plan->steps[i]);
    if (status != GD_OK)
        return status;
    add_head(e, name, out);
    gd_text_buffer used = { 0 };
    gd_buffer_add(&used, "%s%s", e->functions.text.text ? e->functions.text.text : "",
                  e->body.text ? e->body.text : "");
    status = gd_codegen_link(GD_DIALECT_C, &used, out);
    gd_free(used.text);
    if (status == GD_OK)
        status = add_data(e, out);
    if (status != GD_OK)
        return status;
    gd_buffer_add(out, "%s", e->functions.text.text ? e->functions.text.text : "");
    gd_buffer_add(out, "/* 0, or 1 if a label or an index is out of range. */\nint %s(", name);
    add_parameters(e, out);
    gd_buffer_add(out, ");\nint %s(", name);
    add_parameters(e, out);
    gd_buffer_add(out, ")\n{\n");
    const gd_ir *ir = &e->plan->ir;
    for (size_t i = 0; i < ir->count; i++)
        if (ir->values[i].kind == GD_IR_INPUT && !e->is_read[i])
            gd_buffer_add(out, "    (void)input%d;\n", ir->values[i].input);
    gd_buffer_add(out, "%s", e->body.text ? e->body.text : "");
    for (size_t i = 0; i < ir->output_count; i++) {
        const gd_ir_value *v = &ir->values[ir->outputs[i]];
        size_t at = e->plan->memory.offset[v->root] +
                    (size_t)v->layout.offset * gd_dtype_size(v->layout.dtype);
        gd_buffer_add(out, "    memcpy(result%zu, memory.byte + %zu, %zu);\n", i, at,
                      gd_layout_bytes(&v->layout));
    }
    for (int s = 0; s < e->storages && e->draws; s++) {
        char state[128];
        gd_export_storage_name(e, s, state);
        if (is_random_state(e, s))
            gd_buffer_add(out, "    %s[1] += %llu;\n", state, (unsigned long long)ir->random_words);
    }
    gd_buffer_add(out, "    return 0;\n}\n");
    return out->failed || e->body.failed || e->functions.text.failed ? GD_ERR_MEMORY : GD_OK;
}

gd_status gd_plan_export(const gd_plan *plan, const char *name, FILE *file)
{
    gd_export *e = gd_alloc_zero(1, sizeof *e);
    if (!e)
        return GD_ERR_MEMORY;
    e->plan = plan;
    e->name = name;
    gd_text_buffer out = { 0 };
    gd_status status = write_file(e, name, &out);
    if (status == GD_OK && fwrite(out.text, 1, out.length, file) != out.length)
        status = gd_fail(GD_ERR_IO, "gd_export_c: the file cannot be written");
    gd_free(out.text);
    gd_free(e->body.text);
    gd_free(e->functions.text.text);
    gd_free(e->storage);
    gd_free((void *)e->owner);
    gd_free(e->is_written);
    gd_free(e->is_used);
    gd_free(e->is_read);
    gd_free(e);
    return status;
}
