/* compile/lazy.c: the structure of a trace as a list of words. In GD_MODE_LAZY the body is recorded
 * at every call, and the list finds the plan that was made of an equal recording. (A recording that
 * repeats the one before it is recognised sooner, by gd_trace_repeat.)
 *
 * The words say, for every op, what it is, its attribute, and each operand: by its number in the
 * trace, as an argument, or by the address of a tensor outside. So two traces with equal lists, on
 * inputs of one signature, are the same program. Addresses can be compared because a plan has
 * references to the tensors outside that it reads: none of them can end while the plan exists. */
#include "compile/lazy.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "graph/context.h"

static bool reserve(gd_structure *s, size_t words)
{
    return gd_grow((void **)&s->words, &s->capacity, s->count + words, sizeof(uint64_t));
}

/* An operand: an odd number for a value of the trace, else an address. */
static uint64_t operand_word(const gd_context *context, const gd_tensor *t)
{
    bool is_traced = !t->storage && t->mark == context->generation;
    return is_traced ? (uint64_t)t->slot * 2 + 1 : (uint64_t)(uintptr_t)t;
}

static bool add_node(gd_structure *s, gd_context *context, gd_tensor *t, int64_t number)
{
    size_t attr_words = (t->op->attr_size + 7) / 8;
    if (!reserve(s, 2 + attr_words + (size_t)t->n_inputs))
        return false;
    uint64_t *to = s->words + s->count;
    *to++ = (uint64_t)(uintptr_t)t->op;
    *to++ = (uint64_t)t->n_inputs;
    if (attr_words) {
        to[attr_words - 1] = 0;
        memcpy(to, t->attr, t->op->attr_size);
        to += attr_words;
    }
    for (int i = 0; i < t->n_inputs; i++)
        *to++ = operand_word(context, t->inputs[i]);
    s->count = (size_t)(to - s->words);
    t->mark = context->generation;
    t->slot = number;
    return true;
}

gd_status gd_structure_take(gd_structure *s, gd_context *context, const gd_trace *trace,
                            gd_tensor *const *inputs, int input_count)
{
    s->count = 0;
    context->generation++;
    for (int i = 0; i < input_count; i++) {
        inputs[i]->mark = context->generation;
        inputs[i]->slot = i;
    }
    for (size_t i = 0; i < trace->count; i++)
        if (!add_node(s, context, trace->nodes[i], (int64_t)i + input_count))
            return GD_ERR_MEMORY;
    if (!reserve(s, trace->output_count))
        return GD_ERR_MEMORY;
    for (size_t i = 0; i < trace->output_count; i++)
        s->words[s->count++] = operand_word(context, trace->outputs[i]);
    return GD_OK;
}

bool gd_structure_equal(const gd_structure *a, const gd_structure *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->words, b->words, a->count * sizeof(uint64_t)) == 0);
}

void gd_structure_free(gd_structure *s)
{
    gd_free(s->words);
    *s = (gd_structure){ 0 };
}
