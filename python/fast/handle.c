/* python/fast/handle.c: the type gradus.Tensor: its handle, what is asked most of it, and operators. The package gives it the other
 * methods (gradus/_native.py); where one of the same name was there in Python, it is called in the unusual cases.
 *
 * Not a class derived in Python from one that is made here: those take part in the collection of cycles, which costs each object 16
 * bytes and a tenth of a microsecond. A tensor refers to no object. */
#include "fast.h"

#include <stddef.h>
#include <string.h>

PyTypeObject *fast_tensor_type;

static inline fast_tensor *cast(PyObject *self)
{
    return (fast_tensor *)self;
}

/* ---- its life ---- */

PyObject *fast_fail(void)
{
    PyObject *nothing = PyObject_CallNoArgs(fast_fail_function);
    if (nothing)
        PyErr_SetString(PyExc_SystemError, "a call of the library failed without an error");
    Py_XDECREF(nothing);
    return NULL;
}

PyObject *fast_wrap(gd_tensor *h)
{
    PyObject *made = PyType_GenericAlloc(fast_tensor_type, 0);
    if (!made) {
        lib.gd_release(h);
        return NULL;
    }
    cast(made)->h = h;
    return made;
}

PyObject *fast_finish(gd_tensor *h)
{
    gd_context *context = fast_context();
    if (h || context)
        h = lib.gd_claim(context, h);
    return h ? fast_wrap(h) : fast_fail();
}

/* While another thread may be inside a call without the GIL, the library may not be called but for gd_release_later. */
static void end(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (cast(self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    gd_tensor *h = cast(self)->h;
    if (h && fast_held == 0)
        lib.gd_release(h);
    else if (h)
        lib.gd_release_later(h);
    if (type == fast_tensor_type)
        PyObject_Free(self);
    else /* of a class derived from it */
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- what is asked ---- */

static PyObject *get_h(PyObject *self, void *unused)
{
    (void)unused;
    if (!cast(self)->h)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong((uintptr_t)cast(self)->h);
}

static int set_h(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    uintptr_t h = !value || value == Py_None ? 0 : (uintptr_t)PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred())
        return -1;
    cast(self)->h = (gd_tensor *)h;
    return 0;
}

static PyObject *tuple_of(gd_shape shape)
{
    PyObject *made = PyTuple_New(shape.rank);
    for (int i = 0; made && i < shape.rank; i++) {
        PyObject *size = PyLong_FromLongLong(shape.dim[i]);
        if (!size || PyTuple_SetItem(made, i, size) != 0)
            Py_CLEAR(made);
    }
    return made;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    return tuple_of(lib.gd_tensor_shape(cast(self)->h));
}

static PyObject *get_strides(PyObject *self, void *unused)
{
    (void)unused;
    return tuple_of(lib.gd_tensor_strides(cast(self)->h));
}

static PyObject *get_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(lib.gd_tensor_shape(cast(self)->h).rank);
}

static PyObject *get_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(lib.gd_tensor_count(cast(self)->h));
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(PyTuple_GetItem(fast_dtypes, lib.gd_tensor_dtype(cast(self)->h)));
}

static PyObject *get_requires_grad(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(lib.gd_requires_grad(cast(self)->h));
}

static int set_requires_grad(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    PyObject *done = value ? PyObject_CallMethod(self, "requires_grad_", "O", value) : NULL;
    if (!value)
        PyErr_SetString(PyExc_AttributeError, "requires_grad cannot be deleted");
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyGetSetDef getters[] = {
    { "_h", get_h, set_h, "The handle, a number; None: closed.", NULL },
    { "shape", get_shape, NULL, "The sizes.", NULL },
    { "strides", get_strides, NULL, "In elements.", NULL },
    { "ndim", get_ndim, NULL, "The number of axes.", NULL },
    { "size", get_size, NULL, "The number of elements.", NULL },
    { "dtype", get_dtype, NULL, "What the elements are.", NULL },
    { "requires_grad", get_requires_grad, set_requires_grad,
      "Whether gradients pass through it or end in it.", NULL },
    { 0 },
};

/* ---- methods ---- */

static PyObject *number_of(gd_dtype dtype, const unsigned char raw[8])
{
#define AS(type, make)                     \
    {                                      \
        type value;                        \
        memcpy(&value, raw, sizeof value); \
        return make(value);                \
    }
    switch (dtype) {
    case GD_F32:
        AS(float, PyFloat_FromDouble)
    case GD_F64:
        AS(double, PyFloat_FromDouble)
    case GD_I8:
        AS(int8_t, PyLong_FromLong)
    case GD_I16:
        AS(int16_t, PyLong_FromLong)
    case GD_I32:
        AS(int32_t, PyLong_FromLong)
    case GD_I64:
        AS(int64_t, PyLong_FromLongLong)
    case GD_U8:
        AS(uint8_t, PyLong_FromLong)
    case GD_U16:
        AS(uint16_t, PyLong_FromLong)
    case GD_U32:
        AS(uint32_t, PyLong_FromUnsignedLongLong)
    case GD_U64:
        AS(uint64_t, PyLong_FromUnsignedLongLong)
    case GD_BOOL:
        AS(uint8_t, PyBool_FromLong)
    default:
        return NULL;
    }
#undef AS
}

static PyObject *item(PyObject *self, PyObject *unused)
{
    (void)unused;
    gd_tensor *h = cast(self)->h;
    gd_dtype dtype = lib.gd_tensor_dtype(h);
    unsigned char raw[8] = { 0 };
    if (!fast_enter(&self, 1) || lib.gd_tensor_count(h) != 1 || dtype == GD_F16 || dtype == GD_BF16)
        return fast_call_python("item", self, NULL, 0, NULL);
    return lib.gd_tensor_read(h, raw, lib.gd_dtype_size(dtype)) == GD_OK ? number_of(dtype, raw)
                                                                         : fast_fail();
}

static PyObject *detach(PyObject *self, PyObject *unused)
{
    (void)unused;
    return fast_enter(&self, 1) ? fast_finish(lib.gd_detach(cast(self)->h)) : NULL;
}

/* x.reshape(2, 3), x.reshape((2, 3)) */
static PyObject *reshape_as(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t n,
                            PyObject *names)
{
    gd_shape shape;
    bool usual = !names && n >= 1 && n <= GD_MAX_RANK;
    if (usual && n == 1) {
        usual = fast_shape(args[0], &shape);
    } else if (usual) {
        shape.rank = (int)n;
        for (Py_ssize_t i = 0; usual && i < n; i++)
            usual = fast_integer(args[i], INT64_MIN, INT64_MAX, &shape.dim[i]);
    }
    if (!usual || !fast_enter(&self, 1))
        return fast_call_python(name, self, args, n, names);
    return fast_finish(lib.gd_reshape(cast(self)->h, shape));
}

static PyObject *reshape(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return reshape_as("reshape", self, args, n, names);
}

static PyObject *view(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return reshape_as("view", self, args, n, names);
}

static PyObject *subscript(PyObject *self, PyObject *key)
{
    int64_t index;
    gd_tensor *h = cast(self)->h;
    if (fast_integer(key, INT64_MIN, INT64_MAX, &index) && fast_enter(&self, 1) &&
        lib.gd_tensor_shape(h).rank > 0)
        return fast_finish(lib.gd_select(h, 0, index));
    return fast_call_python("__getitem__", self, &key, 1, NULL);
}

/* ---- operators ---- */

typedef struct operation {
    const char *op, *forward, *reflected;
    int index; /* of the op; -1: Python has an operator of its own, or there is no such op */
} operation;

enum {
    ADD,
    SUB,
    MUL,
    DIV,
    FLOOR_DIV,
    MOD,
    POW,
    MATMUL,
    AND,
    OR,
    XOR,
    LEFT_SHIFT,
    RIGHT_SHIFT,
    LT,
    LE,
    EQ,
    NE,
    GT,
    GE,
    NEG,
    ABS,
    NOT
};

static operation operations[] = {
    [ADD] = { "add", "__add__", "__radd__", -1 },
    [SUB] = { "sub", "__sub__", "__rsub__", -1 },
    [MUL] = { "mul", "__mul__", "__rmul__", -1 },
    [DIV] = { "div", "__truediv__", "__rtruediv__", -1 },
    [FLOOR_DIV] = { "floor_div", "__floordiv__", "__rfloordiv__", -1 },
    [MOD] = { "mod", "__mod__", "__rmod__", -1 },
    [POW] = { "pow", "__pow__", "__rpow__", -1 },
    [MATMUL] = { "matmul", "__matmul__", "__rmatmul__", -1 },
    [AND] = { "bitwise_and", "__and__", "__rand__", -1 },
    [OR] = { "bitwise_or", "__or__", "__ror__", -1 },
    [XOR] = { "bitwise_xor", "__xor__", "__rxor__", -1 },
    [LEFT_SHIFT] = { "left_shift", "__lshift__", "__rlshift__", -1 },
    [RIGHT_SHIFT] = { "right_shift", "__rshift__", "__rrshift__", -1 },
    [LT] = { "lt", "__lt__", NULL, -1 },
    [LE] = { "le", "__le__", NULL, -1 },
    [EQ] = { "eq", "__eq__", NULL, -1 },
    [NE] = { "ne", "__ne__", NULL, -1 },
    [GT] = { "gt", "__gt__", NULL, -1 },
    [GE] = { "ge", "__ge__", NULL, -1 },
    [NEG] = { "neg", "__neg__", NULL, -1 },
    [ABS] = { "abs", "__abs__", NULL, -1 },
    [NOT] = { "bitwise_not", "__invert__", NULL, -1 },
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Which operators are plainly their op; `is_op` says so of the method that Python has. */
void fast_bind_operators(bool (*is_op)(const char *method, const char *op))
{
    for (int i = 0; i < OPERATIONS; i++)
        operations[i].index =
            is_op(operations[i].forward, operations[i].op) ? fast_find(operations[i].op) : -1;
}

static PyObject *binary(int which, PyObject *x, PyObject *y)
{
    const operation *o = &operations[which];
    PyObject *v[2] = { x, y }, *result;
    if (o->index >= 0 && fast_enter(v, 2) && fast_ops[o->index].run(v, &result))
        return result;
    if (fast_is_tensor(x))
        return fast_call_python(o->forward, x, &y, 1, NULL);
    if (o->reflected && fast_is_tensor(y))
        return fast_call_python(o->reflected, y, &x, 1, NULL);
    return Py_NewRef(Py_NotImplemented);
}

static PyObject *unary(int which, PyObject *x)
{
    const operation *o = &operations[which];
    PyObject *result;
    if (o->index >= 0 && fast_enter(&x, 1) && fast_ops[o->index].run(&x, &result))
        return result;
    return fast_call_python(o->forward, x, NULL, 0, NULL);
}

#define BINARY(name, which)                         \
    static PyObject *name(PyObject *x, PyObject *y) \
    {                                               \
        return binary(which, x, y);                 \
    }
#define UNARY(name, which)             \
    static PyObject *name(PyObject *x) \
    {                                  \
        return unary(which, x);        \
    }
BINARY(add, ADD)
BINARY(subtract, SUB)
BINARY(multiply, MUL)
BINARY(divide, DIV)
BINARY(floor_divide, FLOOR_DIV)
BINARY(remainder_of, MOD)
BINARY(matmul, MATMUL)
BINARY(and_of, AND)
BINARY(or_of, OR)
BINARY(xor_of, XOR)
BINARY(left_shift, LEFT_SHIFT)
BINARY(right_shift, RIGHT_SHIFT)
UNARY(negative, NEG)
UNARY(absolute, ABS)
UNARY(invert, NOT)

static PyObject *power(PyObject *x, PyObject *y, PyObject *modulus)
{
    return modulus == Py_None ? binary(POW, x, y) : Py_NewRef(Py_NotImplemented);
}

static PyObject *compare(PyObject *x, PyObject *y, int how)
{
    static const int which[] = {
        [Py_LT] = LT, [Py_LE] = LE, [Py_EQ] = EQ, [Py_NE] = NE, [Py_GT] = GT, [Py_GE] = GE
    };
    return binary(which[how], x, y);
}

static Py_hash_t hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)self >> 4);
}

/* ---- the type ---- */

static PyMemberDef members[] = {
    { "__weaklistoffset__", T_PYSSIZET, offsetof(fast_tensor, weakrefs), READONLY, NULL },
    { 0 },
};

#define FAST_METHOD(name, function, doc)                                                  \
    {                                                                                     \
        name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, doc \
    }
static PyMethodDef own_methods[] = {
    { "item", item, METH_NOARGS, "The only element." },
    { "detach", detach, METH_NOARGS, "The same values without a history." },
    FAST_METHOD("reshape", reshape,
                "The elements in row-major order with another shape, of which one size may be -1."),
    FAST_METHOD("view", view, "As reshape."),
};
enum { OWN_METHODS = sizeof own_methods / sizeof *own_methods };

/* Those written here, and those of the ops. The type keeps the array. */
static PyMethodDef *all_methods(void)
{
    size_t count = OWN_METHODS + (size_t)fast_method_count + 1;
    PyMethodDef *all = PyMem_Calloc(count, sizeof *all);
    if (all) {
        memcpy(all, own_methods, sizeof own_methods);
        memcpy(all + OWN_METHODS, fast_methods, (size_t)fast_method_count * sizeof *all);
    }
    return all;
}

PyTypeObject *fast_tensor_new_type(void)
{
    PyMethodDef *methods = all_methods();
    if (!methods)
        return (PyTypeObject *)PyErr_NoMemory();
    PyType_Slot slots[] = {
        { Py_tp_doc, "" }, /* Python's */
        { Py_tp_dealloc, end },
        { Py_tp_members, members },
        { Py_tp_getset, getters },
        { Py_tp_methods, methods },
        { Py_tp_richcompare, compare },
        { Py_tp_hash, hash },
        { Py_mp_subscript, subscript },
        { Py_nb_add, add },
        { Py_nb_subtract, subtract },
        { Py_nb_multiply, multiply },
        { Py_nb_true_divide, divide },
        { Py_nb_floor_divide, floor_divide },
        { Py_nb_remainder, remainder_of },
        { Py_nb_power, power },
        { Py_nb_matrix_multiply, matmul },
        { Py_nb_and, and_of },
        { Py_nb_or, or_of },
        { Py_nb_xor, xor_of },
        { Py_nb_lshift, left_shift },
        { Py_nb_rshift, right_shift },
        { Py_nb_negative, negative },
        { Py_nb_absolute, absolute },
        { Py_nb_invert, invert },
        { 0 },
    };
    PyType_Spec spec = { .name = "gradus._tensor.Tensor",
                         .basicsize = sizeof(fast_tensor),
                         .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                         .slots = slots };
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
