/* ops/table.c: the op table, made of the rows by the two lists. */
#include "graph/op.h"

#include <string.h>

#define GD_UNARY(name, ...)   extern const gd_op gd_op_##name;
#define GD_BINARY(name, ...)  extern const gd_op gd_op_##name;
#define GD_TERNARY(name, ...) extern const gd_op gd_op_##name;
#include "ops/elementwise.def"
#define GD_OP(name) extern const gd_op gd_op_##name;
#include "ops/op_list.def"

static const gd_op *const rows[GD_OP_COUNT] = {
#define GD_UNARY(name, ...)   [GD_OP_##name] = &gd_op_##name,
#define GD_BINARY(name, ...)  [GD_OP_##name] = &gd_op_##name,
#define GD_TERNARY(name, ...) [GD_OP_##name] = &gd_op_##name,
#include "ops/elementwise.def"
#define GD_OP(name) [GD_OP_##name] = &gd_op_##name,
#include "ops/op_list.def"
};

const gd_op *gd_op_row(gd_op_id id)
{
    return rows[id];
}

const gd_op *gd_op_find(const char *name)
{
    for (int id = 0; name && id < GD_OP_COUNT; id++)
        if (strcmp(rows[id]->name, name) == 0)
            return rows[id];
    return NULL;
}
