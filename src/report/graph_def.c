/* report/graph_def.c: a graph of ops as TensorFlow's GraphDef: a node a tensor. An op that reads a parameter
 * is named after it, "fc1/linear", and so are parameters, "fc1/weight": TensorBoard makes boxes of what
 * stands before a slash. Start at gd_graph_def(). */
#include "report/graph_def.h"

#ifdef GD_HAVE_PROTOBUF_C

#include "base/error.h"
#include "base/memory.h"
#include <tensorboard.pb-c.h>

#include <gradus/autograd.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128, PRODUCER = 22 /* of GraphDefs since TensorFlow 1.3 */ };

typedef struct node {
    GdTensorboard__NodeDef def;
    char name[NAME_BYTES], text[256];
    GdTensorboard__NodeDef__AttrEntry entries[3], *entry_list[3];
    GdTensorboard__AttrValue values[3];
    GdTensorboard__AttrValue__ListValue shapes;
    GdTensorboard__TensorShapeProto shape, *shape_list[1];
    GdTensorboard__TensorShapeProto__Dim dims[GD_MAX_RANK], *dim_list[GD_MAX_RANK];
} node;

/* ---- names ---- */

/* A parameter's "0.fc1.weight" as "0/fc1/weight", with what else TensorFlow has in names alone. */
static void write_path(char *out, size_t size, const char *path)
{
    snprintf(out, size, "%s", path);
    for (char *c = out; *c; c++)
        if (*c == '.')
            *c = '/';
        else if (!isalnum((unsigned char)*c) && *c != '_' && *c != '-')
            *c = '_';
}

/* What is before the last slash, with it; "" of none. */
static void cut_to_group(char *path)
{
    char *slash = strrchr(path, '/');
    path[slash ? slash + 1 - path : 0] = '\0';
}

/* Whatever made its first values. */
static bool is_parameter(gd_tensor *t)
{
    return gd_tensor_input_count(t) == 0 && gd_requires_grad(t);
}

static void name_tensor(char *out, gd_tensor *t)
{
    const char *op = is_parameter(t) ? "" : gd_tensor_op(t), *name = gd_tensor_name(t);
    char group[64] = "";
    for (int i = 0; *op && !*group && i < gd_tensor_input_count(t); i++) {
        gd_tensor *in = gd_tensor_input(t, i);
        write_path(group, sizeof group, is_parameter(in) ? gd_tensor_name(in) : "");
        cut_to_group(group);
    }
    if (*op)
        snprintf(out, NAME_BYTES, "%s%s", group, op);
    else
        write_path(out, NAME_BYTES, *name ? name : is_parameter(t) ? "parameter" : "input");
}

/* "relu" where it is free, else "relu_1", … */
static void make_unique(node *const *nodes, int64_t at)
{
    char base[NAME_BYTES];
    int64_t number = 0;
    snprintf(base, sizeof base, "%.100s", nodes[at]->name);
    for (int64_t i = 0; i < at; i++)
        if (strcmp(nodes[i]->name, nodes[at]->name) == 0) {
            snprintf(nodes[at]->name, NAME_BYTES, "%.100s_%lld", base, (long long)++number);
            i = -1;
        }
}

/* ---- attributes ---- */

/* DataType of tensorflow/core/framework/types.proto; 0: it has none. */
static int32_t data_type(gd_dtype dtype)
{
    static const struct {
        gd_dtype dtype;
        int32_t number;
    } rows[] = { { GD_F32, 1 },  { GD_F64, 2 },  { GD_I32, 3 },   { GD_U8, 4 },    { GD_I16, 5 },
                 { GD_I8, 6 },   { GD_I64, 9 },  { GD_BOOL, 10 }, { GD_BF16, 14 }, { GD_U16, 17 },
                 { GD_F16, 19 }, { GD_U32, 22 }, { GD_U64, 23 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype)
            return rows[i].number;
    return 0;
}

static GdTensorboard__AttrValue *add_attribute(node *n, char *key)
{
    size_t i = n->def.n_attr++;
    gd_tensorboard__node_def__attr_entry__init(&n->entries[i]);
    gd_tensorboard__attr_value__init(&n->values[i]);
    n->entries[i].key = key;
    n->entries[i].value = &n->values[i];
    n->entry_list[i] = &n->entries[i];
    n->def.attr = n->entry_list;
    return &n->values[i];
}

static void add_shape(node *n, gd_tensor *t)
{
    static char key[] = "_output_shapes";
    gd_shape shape = gd_tensor_shape(t);
    gd_tensorboard__tensor_shape_proto__init(&n->shape);
    for (int i = 0; i < shape.rank; i++) {
        gd_tensorboard__tensor_shape_proto__dim__init(&n->dims[i]);
        n->dims[i].size = shape.dim[i];
        n->dim_list[i] = &n->dims[i];
    }
    n->shape.n_dim = (size_t)shape.rank;
    n->shape.dim = n->dim_list;
    gd_tensorboard__attr_value__list_value__init(&n->shapes);
    n->shape_list[0] = &n->shape;
    n->shapes.n_shape = 1;
    n->shapes.shape = n->shape_list;
    GdTensorboard__AttrValue *value = add_attribute(n, key);
    value->value_case = GD_TENSORBOARD__ATTR_VALUE__VALUE_LIST;
    value->list = &n->shapes;
}

static void add_attributes(node *n, gd_tensor *t)
{
    static char dtype[] = "dtype", attribute[] = "attribute";
    add_shape(n, t);
    GdTensorboard__AttrValue *value = add_attribute(n, dtype);
    value->value_case = GD_TENSORBOARD__ATTR_VALUE__VALUE_TYPE;
    value->type = data_type(gd_tensor_dtype(t));
    if (!*gd_tensor_op(t) || gd_tensor_attribute(t, n->text, sizeof n->text) == 0)
        return;
    value = add_attribute(n, attribute);
    value->value_case = GD_TENSORBOARD__ATTR_VALUE__VALUE_S;
    value->s.data = (uint8_t *)n->text;
    value->s.len = strlen(n->text);
}

/* ---- the graph ---- */

static char *op_of(gd_tensor *t)
{
    static char parameter[] = "Parameter", placeholder[] = "Placeholder";
    union {
        const char *given;
        char *member; /* which protobuf-c does not change */
    } op = { .given = gd_tensor_op(t) };
    return is_parameter(t) ? parameter : *op.given ? op.member : placeholder;
}

static gd_status fill(node **nodes, int64_t at, gd_tensor *const *tensors)
{
    gd_tensor *t = tensors[at];
    node *n = nodes[at];
    gd_tensorboard__node_def__init(&n->def);
    name_tensor(n->name, t);
    make_unique(nodes, at);
    n->def.name = n->name;
    n->def.op = op_of(t);
    add_attributes(n, t);
    int inputs = gd_tensor_input_count(t);
    n->def.input = gd_alloc_zero((size_t)inputs + 1, sizeof(char *));
    for (int i = 0; n->def.input && i < inputs; i++)
        for (int64_t k = at; k-- > 0;)
            if (tensors[k] == gd_tensor_input(t, i)) {
                n->def.input[n->def.n_input++] = nodes[k]->name;
                break;
            }
    return n->def.input ? GD_OK : GD_ERR_MEMORY;
}

static gd_status pack(node **nodes, int64_t count, GdTensorboard__NodeDef **defs,
                      unsigned char **bytes, size_t *size)
{
    GdTensorboard__GraphDef graph = GD_TENSORBOARD__GRAPH_DEF__INIT;
    GdTensorboard__VersionDef versions = GD_TENSORBOARD__VERSION_DEF__INIT;
    for (int64_t i = 0; i < count; i++)
        defs[i] = &nodes[i]->def;
    versions.producer = PRODUCER;
    graph.versions = &versions;
    graph.node = defs;
    graph.n_node = (size_t)count;
    *size = gd_tensorboard__graph_def__get_packed_size(&graph);
    *bytes = gd_alloc(*size + 1);
    if (!*bytes)
        return GD_ERR_MEMORY;
    (void)gd_tensorboard__graph_def__pack(&graph, *bytes);
    return GD_OK;
}

gd_status gd_graph_def(int64_t count, gd_tensor *const *tensors, unsigned char **bytes,
                       size_t *size)
{
    *bytes = NULL;
    *size = 0;
    node **nodes = gd_alloc_zero((size_t)count + 1, sizeof(node *));
    GdTensorboard__NodeDef **defs = gd_alloc_zero((size_t)count + 1, sizeof *defs);
    gd_status status = nodes && defs ? GD_OK : GD_ERR_MEMORY;
    for (int64_t i = 0; status == GD_OK && i < count; i++) {
        nodes[i] = gd_alloc_zero(1, sizeof(node));
        status = nodes[i] ? fill(nodes, i, tensors) : GD_ERR_MEMORY;
    }
    if (status == GD_OK)
        status = pack(nodes, count, defs, bytes, size);
    for (int64_t i = 0; nodes && i < count && nodes[i]; i++) {
        gd_free(nodes[i]->def.input);
        gd_free(nodes[i]);
    }
    gd_free(nodes);
    gd_free(defs);
    return status;
}

#else

typedef int gd_no_graph_def; /* a file needs a declaration */

#endif
