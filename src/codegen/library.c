/* codegen/library.c: the functions a generated program needs, and no others: cut out of the text of
 * the engine's own vecmath headers, of kernels.txt and of the dialects' files, which are embedded by
 * cmake/EmbedText.cmake. Start at gd_codegen_link.
 *
 * A text is cut at empty lines into chunks; a chunk defines the names that its #defines, functions
 * and typedefs introduce, and is taken when something taken names one of them outside comments. What
 * a dialect defines itself is defined nowhere else. */
#include "codegen/codegen.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct chunk {
    const char *text;
    size_t length;
    bool is_taken;
} chunk;

typedef struct definition {
    const char *name;
    size_t length;
    size_t chunk;
} definition;

typedef struct library {
    gd_text_buffer text;
    chunk *chunks;
    size_t count, capacity;
    definition *definitions;
    size_t definition_count, definition_capacity;
    size_t own; /* of its length: the dialect's text, which comes first */
} library;

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- the template: sections, each begun by a line of @ and a letter ---- */

typedef struct instance {
    const char *type, *alias, *suffix, *upper, *libm; /* @T @A @S @L @f */
    char kind;                                        /* the section for its kind alone: F, S, U */
} instance;

static const instance instances[] = {
    { "float", "f32", "f32", "F32", "f", 'F' },   { "double", "f64", "f64", "F64", "", 'F' },
    { "int8_t", "i8", "i8", "I8", "", 'S' },      { "int16_t", "i16", "i16", "I16", "", 'S' },
    { "int32_t", "i32", "i32", "I32", "", 'S' },  { "int64_t", "i64", "i64", "I64", "", 'S' },
    { "uint8_t", "u8", "u8", "U8", "", 'U' },     { "uint16_t", "u16", "u16", "U16", "", 'U' },
    { "uint32_t", "u32", "u32", "U32", "", 'U' }, { "uint64_t", "u64", "u64", "U64", "", 'U' },
};
enum { INSTANCES = sizeof instances / sizeof *instances };

static const char *const reductions[] = { "sum", "prod", "max", "min" }; /* @O */
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

/* A section's text for one type. */
static void add_instance(gd_text_buffer *out, const char *text, size_t length, const instance *type,
                         const char *reduction)
{
    for (const char *c = text, *end = text + length; c < end; c++) {
        const char *at = memchr(c, '@', (size_t)(end - c));
        gd_buffer_put(out, c, (size_t)((at ? at : end) - c));
        if (!at)
            return;
        c = at + 1;
        const char *word = *c == 'T'   ? type->type
                           : *c == 'A' ? type->alias
                           : *c == 'S' ? type->suffix
                           : *c == 'L' ? type->upper
                           : *c == 'O' ? reduction
                                       : type->libm;
        gd_buffer_put(out, word, strlen(word));
    }
}

/* The sections of what a dialect defines itself: the first that defines a word counts. */
static const char own_sections[GD_DIALECT_COUNT][4] = { [GD_DIALECT_OPENCL] = "O",
                                                        [GD_DIALECT_CUDA] = "C",
                                                        [GD_DIALECT_OPENCL_STEPS] = "PO",
                                                        [GD_DIALECT_CUDA_STEPS] = "PC",
                                                        [GD_DIALECT_CUDA_CLUSTER] = "QPC" };

static bool is_own_section(char section)
{
    for (int i = 0; i < GD_DIALECT_COUNT; i++)
        if (strchr(own_sections[i], section))
            return true;
    return false;
}

/* Whether a section is for a type. E: for every one; I: for integers; S: for signed ones; U: for
 * unsigned ones; F: for floating types; R: for those, and for every reduction. */
static bool is_for(char section, const instance *type)
{
    return section == 'E' || section == type->kind || (section == 'I' && type->kind != 'F') ||
           (section == 'R' && type->kind == 'F');
}

/* N, a dialect's own, and D, which is empty: once. */
static void add_section(gd_text_buffer *out, char kind, const char *text, size_t length)
{
    const bool once = kind == 'N' || kind == 'D' || is_own_section(kind);
    for (int i = 0; i < (once ? 1 : INSTANCES); i++)
        for (int r = 0; r < (kind == 'R' ? REDUCTIONS : 1); r++)
            if (once || is_for(kind, &instances[i]))
                add_instance(out, text, length, &instances[i], reductions[r]);
}

/* The sections of `own`, or with 0 those of no dialect; up to D, which those for devices stand behind,
 * or all. */
static void add_sections(gd_text_buffer *out, const char *text, char own, bool for_devices)
{
    while (*text && (for_devices || text[1] != 'D')) {
        const char *body = text + strlen("@E\n");
        size_t length = 0;
        while (body[length] && !(body[length] == '@' && body[length + 2] == '\n'))
            length++;
        if (own ? text[1] == own : !is_own_section(text[1]))
            add_section(out, text[1], body, length);
        text = body + length;
    }
}

/* ---- chunks and what they define ---- */

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* The name a line introduces: [*name, +length); length 0: none. */
static size_t defined_name(const char *line, const char **name)
{
    const char *end = line;
    if (begins(line, "KERNEL(")) {
        *name = strchr(line, '(') + 1;
        return strcspn(*name, ",");
    }
    if (begins(line, "#define ") || begins(line, "typedef struct ")) {
        *name = line + (line[0] == '#' ? 8 : 15);
        for (end = *name; is_letter(*end); end++)
            ;
        return (size_t)(end - *name);
    }
    if (!begins(line, "static ") && !begins(line, "GD_INLINE ") &&
        !begins(line, "GD_LOCAL_INLINE ") && !begins(line, "GD_CONSTANT "))
        return 0;
    end = line + strcspn(line, "([=;\n");
    while (end > line && !is_letter(end[-1]))
        end--;
    *name = end;
    while (*name > line && is_letter((*name)[-1]))
        --*name;
    return (size_t)(end - *name);
}

static bool add_chunk(library *l, const char *text, size_t length)
{
    if (!gd_grow((void **)&l->chunks, &l->capacity, l->count + 1, sizeof(chunk)))
        return false;
    l->chunks[l->count] = (chunk){ text, length, false };
    for (const char *line = text; line < text + length; line += strcspn(line, "\n") + 1) {
        const char *name;
        size_t letters = defined_name(line, &name);
        if (letters == 0)
            continue;
        if (!gd_grow((void **)&l->definitions, &l->definition_capacity, l->definition_count + 1,
                     sizeof(definition)))
            return false;
        l->definitions[l->definition_count++] = (definition){ name, letters, l->count };
    }
    l->count++;
    return true;
}

static gd_status cut_into_chunks(library *l)
{
    const char *begin = l->text.text;
    int depth = 0; /* of #if */
    for (const char *line = begin; *line;) {
        size_t length = strcspn(line, "\n");
        depth += begins(line, "#if") - begins(line, "#endif");
        if (length == 0 && depth == 0 && line[1] != ' ') { /* not within a function */
            if (line > begin && !add_chunk(l, begin, (size_t)(line - begin)))
                return GD_ERR_MEMORY;
            begin = line + 1;
        }
        line += length + (line[length] == '\n');
    }
    return GD_OK;
}

/* ---- the closure ---- */

static bool is_named(const definition *d, const char *name, size_t length)
{
    return d->length == length && memcmp(d->name, name, length) == 0;
}

static void take_named(library *l, const char *text, size_t length);

/* Take the chunks that define a name: the dialect's if it does. */
static void take_definitions(library *l, const char *name, size_t length)
{
    for (size_t i = 0; i < l->definition_count; i++) {
        const definition *d = &l->definitions[i];
        if (!is_named(d, name, length))
            continue;
        chunk *c = &l->chunks[d->chunk];
        if (!c->is_taken) {
            c->is_taken = true;
            take_named(l, c->text, c->length);
        }
        if ((size_t)(c->text - l->text.text) < l->own)
            return;
    }
}

/* The bytes of the comment that begins at text[0]; 0: none does. */
static size_t comment_at(const char *text, size_t length)
{
    if (length < 2 || text[0] != '/' || (text[1] != '/' && text[1] != '*'))
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (text[1] == '/' && text[i] == '\n')
            return i;
        if (text[1] == '*' && i > 2 && text[i - 1] == '*' && text[i] == '/')
            return i + 1;
    }
    return length;
}

/* The length of the next word outside comments, to which *at goes; 0: there is none. */
static size_t next_word(const char *text, size_t length, size_t *at)
{
    size_t i = *at, end;
    while (i < length && !is_letter(text[i])) {
        const size_t comment = comment_at(text + i, length - i);
        i += comment ? comment : 1;
    }
    for (end = i; end < length && is_letter(text[end]); end++)
        ;
    *at = i;
    return end - i;
}

/* Take every chunk that defines what [text, +length) names. */
static void take_named(library *l, const char *text, size_t length)
{
    size_t word;
    for (size_t i = 0; (word = next_word(text, length, &i)) > 0; i += word)
        take_definitions(l, text + i, word);
}

/* Names in the functions of ops must all be somewhere: those of the vocabulary end in a dtype. */
static gd_status check_named(const library *l, const gd_text_buffer *used)
{
    size_t word;
    for (size_t i = 0; (word = next_word(used->text, used->length, &i)) > 0; i += word) {
        const char *begin = used->text + i, *end = begin + word;
        bool is_ours = word > 4 && *end == '(' && strchr("fiu", end[-3]) && end[-4] == '_' &&
                       memcmp(begin, "op_", 3) != 0;
        for (size_t d = 0; is_ours && d < l->definition_count; d++)
            is_ours = !is_named(&l->definitions[d], begin, word);
        if (is_ours)
            return gd_fail(GD_ERR_UNSUPPORTED, "there is no C text for %.*s", (int)word, begin);
    }
    return GD_OK;
}

void gd_codegen_begin(gd_dialect dialect, bool with_f64, gd_text_buffer *out)
{
    /* Compilers of OpenCL C contract x * y + z unless they are told not to, whatever their options
     * say. */
    if (dialect == GD_DIALECT_OPENCL || dialect == GD_DIALECT_OPENCL_STEPS)
        gd_buffer_add(out, "%s#pragma OPENCL FP_CONTRACT OFF\n\n",
                      with_f64 ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "");
}

/* The bytes of the number that begins at text[0], a digit; whether it is a double. */
static size_t number_at(const char *text, bool *is_f64)
{
    const bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    bool is_real = false;
    size_t end = is_hex ? 2 : 0;
    for (; is_letter(text[end]) || text[end] == '.'; end++) {
        const bool is_exponent = strchr(is_hex ? "pP" : "eE", text[end]) != NULL;
        is_real |= is_exponent || text[end] == '.';
        end += is_exponent && (text[end + 1] == '-' || text[end + 1] == '+');
    }
    *is_f64 = is_real && text[end - 1] != 'f' && text[end - 1] != 'F';
    return end;
}

bool gd_codegen_has_f64(const char *text)
{
    const size_t length = strlen(text);
    size_t word;
    for (size_t i = 0; (word = next_word(text, length, &i)) > 0; i += word) {
        bool is_f64 = word == strlen("double") && memcmp(text + i, "double", word) == 0;
        if (isdigit((unsigned char)text[i]))
            word = number_at(text + i, &is_f64);
        if (is_f64)
            return true;
    }
    return false;
}

/* The library, with those chunks taken that `used` needs. */
static gd_status take_needed(library *l, gd_dialect dialect, const gd_text_buffer *used)
{
    const char *own = own_sections[dialect];
    gd_text_buffer template = { 0 };
    gd_codegen_unpack(&template);
    for (const char *section = own; *section && !template.failed; section++)
        add_sections(&l->text, template.text, *section, true);
    l->own = l->text.length;
    if (!template.failed)
        add_sections(&l->text, template.text, 0, *own != 0);
    gd_status status =
        l->text.failed || template.failed || used->failed ? GD_ERR_MEMORY : cut_into_chunks(l);
    if (status == GD_OK)
        status = check_named(l, used);
    if (status == GD_OK && used->text)
        take_named(l, used->text, used->length);
    gd_free(template.text);
    return status;
}

static void free_library(library *l)
{
    gd_free(l->text.text);
    gd_free(l->chunks);
    gd_free(l->definitions);
}

static void add_taken(const library *l, gd_text_buffer *out)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->chunks[i].is_taken)
            gd_buffer_add(out, "%.*s\n", (int)l->chunks[i].length, l->chunks[i].text);
}

gd_status gd_codegen_link(gd_dialect dialect, const gd_text_buffer *used, gd_text_buffer *out)
{
    library l = { 0 };
    const gd_status status = take_needed(&l, dialect, used);
    if (status == GD_OK)
        add_taken(&l, out);
    free_library(&l);
    return status;
}

/* ---- several programs in a text ---- */

/* Names that the lines of a text introduce, but for macros, get others. */
static void rename_defined(const char *text, size_t length, int number, gd_text_buffer *out)
{
    for (const char *line = text, *end = text + length; line < end;
         line += strcspn(line, "\n"), line += line < end) {
        const char *name;
        const size_t letters = line[0] == '#' ? 0 : defined_name(line, &name);
        if (letters)
            gd_buffer_add(out, "#define %.*s %.*s_%d\n", (int)letters, name, (int)letters, name,
                          number);
    }
}

gd_status gd_codegen_link_part(gd_dialect dialect, const gd_text_buffer *used, int number,
                               gd_text_buffer *out)
{
    library l = { 0 };
    const gd_status status = take_needed(&l, dialect, used);
    for (size_t i = 0; status == GD_OK && i < l.count; i++)
        if (l.chunks[i].is_taken)
            rename_defined(l.chunks[i].text, l.chunks[i].length, number, out);
    if (status == GD_OK) {
        rename_defined(used->text, used->length, number, out);
        gd_buffer_add(out, "\n");
        add_taken(&l, out);
    }
    free_library(&l);
    return status;
}

gd_status gd_codegen_end_part(gd_text_buffer *out, size_t part)
{
    gd_text_buffer undone = { 0 };
    for (const char *line = out->failed ? "" : out->text + part; *line;
         line += strcspn(line, "\n"), line += *line != '\0') {
        const char *name;
        const size_t letters = begins(line, "#define ") ? defined_name(line, &name) : 0;
        if (letters)
            gd_buffer_add(&undone, "#undef %.*s\n", (int)letters, name);
    }
    gd_buffer_put(out, undone.text, undone.length);
    const bool failed = undone.failed || out->failed;
    gd_free(undone.text);
    return failed ? GD_ERR_MEMORY : GD_OK;
}
