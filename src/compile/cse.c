/* compile/cse.c: common-subexpression elimination. Two ops of one kind with the same attribute and
 * operands compute the same bits; the later is replaced by the earlier. May not touch effects.
 * Reads of a tensor before and after an assignment are different values of the IR, so they are
 * never merged; random ops differ by their position in the stream, which is in their attribute.
 * What a checkpointed block computes again is of another region, and stays. */
#include "compile/passes.h"

#include <string.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ p[i]) * 1099511628211u; /* FNV-1a */
    return hash;
}

static uint64_t hash_value(const gd_ir_value *v)
{
    uint64_t hash = mix(14695981039346656037u, &v->op, sizeof v->op);
    hash = mix(hash, v->in, sizeof(int32_t) * (size_t)v->n);
    return v->attr ? mix(hash, v->attr, v->op->attr_size) : hash;
}

static bool same(const gd_ir_value *a, const gd_ir_value *b)
{
    return a->op == b->op && a->n == b->n && a->region == b->region &&
           memcmp(a->in, b->in, sizeof(int32_t) * (size_t)a->n) == 0 &&
           (!a->attr || memcmp(a->attr, b->attr, a->op->attr_size) == 0);
}

gd_status gd_pass_cse(gd_ir *ir, gd_arena *scratch, int *changes)
{
    size_t slots = 16;
    while (slots < ir->count * 2)
        slots *= 2;
    int32_t *table = gd_arena_array(scratch, slots, sizeof *table); /* value + 1; 0: empty */
    int32_t *replaced_by = gd_arena_array(scratch, ir->count + 1, sizeof *replaced_by);
    if (!table || !replaced_by)
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < ir->count; i++) {
        gd_ir_value *v = &ir->values[i];
        replaced_by[i] = (int32_t)i;
        if (v->kind != GD_IR_OP)
            continue;
        gd_ir_rename(v, replaced_by);
        if (gd_ir_is_effect(v) || v->is_output)
            continue;
        size_t at = hash_value(v) & (slots - 1);
        while (table[at] && !same(&ir->values[table[at] - 1], v))
            at = (at + 1) & (slots - 1);
        if (table[at]) {
            replaced_by[i] = table[at] - 1;
            v->kind = GD_IR_DEAD;
            ++*changes;
        } else {
            table[at] = (int32_t)i + 1;
        }
    }
    gd_ir_replace(ir, replaced_by);
    return GD_OK;
}
