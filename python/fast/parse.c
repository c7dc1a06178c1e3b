/* python/fast/parse.c: from Python's arguments to C's, for the usual cases. */
#include "fast.h"

#include <limits.h>
#include <string.h>

enum { MOST_PARAMETERS = 32, MOST_NAMES = 2048 };
static const int64_t EXACT = (int64_t)1 << 53; /* integers beyond it are not exact as a double */

static PyObject *interned[MOST_NAMES]; /* names of parameters, op after op */
static int first_name[MOST_NAMES];     /* where those of an op begin */

bool fast_ops_ready(void)
{
    int at = 0;
    for (int i = 0; i < fast_op_count; i++) {
        first_name[i] = at;
        if (fast_ops[i].count > MOST_PARAMETERS || at + fast_ops[i].count > MOST_NAMES ||
            i >= MOST_NAMES) {
            PyErr_SetString(PyExc_SystemError, "gradus._fast: the tables are too small");
            return false;
        }
        for (int k = 0; k < fast_ops[i].count; k++) {
            interned[at] = PyUnicode_InternFromString(fast_ops[i].parameters[k]);
            if (!interned[at++])
                return false;
        }
    }
    return true;
}

int fast_find(const char *name)
{
    for (int i = 0; i < fast_op_count; i++)
        if (strcmp(fast_ops[i].name, name) == 0)
            return i;
    return -1;
}

/* Put the arguments in the places of the parameters; false: they do not fit, or are not seen to. */
static bool take(int op, PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names,
                 PyObject **v)
{
    const fast_op *o = &fast_ops[op];
    int at = 0;
    if (n + (self != NULL) > o->positional)
        return false;
    if (self)
        v[at++] = self;
    for (Py_ssize_t i = 0; i < n; i++)
        v[at++] = args[i];
    for (int i = at; i < o->count; i++)
        v[i] = NULL;
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int place = at;
        while (place < o->count && interned[first_name[op] + place] != name)
            place++;
        if (place == o->count || v[place])
            return false;
        v[place] = args[n + i];
    }
    for (int i = at; i < o->required; i++)
        if (!v[i])
            return false;
    return true;
}

PyObject *fast_run(int op, PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    PyObject *v[MOST_PARAMETERS], *result;
    if (take(op, self, args, n, names, v) && fast_enter(v, fast_ops[op].count) &&
        fast_ops[op].run(v, &result))
        return result;
    PyObject *python =
        fast_python_ops ? PyDict_GetItemString(fast_python_ops, fast_ops[op].name) : NULL;
    if (!python) {
        PyErr_Format(PyExc_RuntimeError, "gradus._fast: %s has not been installed",
                     fast_ops[op].name);
        return NULL;
    }
    return fast_call(python, self, args, n, names);
}

/* ---- conversions ---- */

bool fast_absent(PyObject *v)
{
    return !v || v == Py_None || v == Py_False;
}

bool fast_tensor_of(PyObject *v, gd_tensor **out)
{
    if (!v || !fast_is_tensor(v))
        return false;
    *out = ((fast_tensor *)v)->h;
    return *out != NULL;
}

bool fast_tensor_or_none(PyObject *v, gd_tensor **out)
{
    return !v || v == Py_None || fast_tensor_of(v, out);
}

bool fast_tensors(PyObject *v, int most, gd_tensor **out, int *count)
{
    bool is_list = v && PyList_Check(v);
    if (!is_list && !(v && PyTuple_Check(v)))
        return false;
    Py_ssize_t size = is_list ? PyList_Size(v) : PyTuple_Size(v);
    if (size > most)
        return false;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!fast_tensor_of(is_list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i), &out[i]))
            return false;
    *count = (int)size;
    return true;
}

bool fast_integer(PyObject *v, int64_t least, int64_t most, int64_t *out)
{
    int overflow = 0;
    if (!PyLong_CheckExact(v))
        return false;
    long long value = PyLong_AsLongLongAndOverflow(v, &overflow);
    if (overflow || value < least || value > most)
        return false;
    *out = value;
    return true;
}

bool fast_int(PyObject *v, int *out)
{
    int64_t value;
    if (!v)
        return true;
    if (!fast_integer(v, INT_MIN, INT_MAX, &value))
        return false;
    *out = (int)value;
    return true;
}

bool fast_int64(PyObject *v, int64_t *out)
{
    return !v || fast_integer(v, INT64_MIN, INT64_MAX, out);
}

bool fast_double(PyObject *v, double *out)
{
    int64_t whole;
    if (!v)
        return true;
    if (PyFloat_CheckExact(v)) {
        *out = PyFloat_AsDouble(v);
        return true;
    }
    if (!fast_integer(v, -EXACT, EXACT, &whole))
        return false;
    *out = (double)whole;
    return true;
}

bool fast_bool(PyObject *v, bool *out)
{
    if (!v)
        return true;
    *out = v == Py_True;
    return v == Py_True || v == Py_False;
}

/* Whole numbers of a tuple, a list, or one; their count, -1 for anything else. */
static int integers(PyObject *v, int64_t *out)
{
    if (PyLong_CheckExact(v))
        return fast_integer(v, INT64_MIN, INT64_MAX, out) ? 1 : -1;
    bool is_list = PyList_CheckExact(v);
    if (!is_list && !PyTuple_CheckExact(v))
        return -1;
    Py_ssize_t size = is_list ? PyList_Size(v) : PyTuple_Size(v);
    if (size > GD_MAX_RANK)
        return -1;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!fast_integer(is_list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i), INT64_MIN,
                          INT64_MAX, &out[i]))
            return -1;
    return (int)size;
}

bool fast_shape(PyObject *v, gd_shape *out)
{
    if (!v)
        return true;
    out->rank = integers(v, out->dim);
    return out->rank >= 0;
}

bool fast_axes(PyObject *v, gd_axes *out)
{
    int64_t axes[GD_MAX_RANK];
    if (!v)
        return true;
    if (v == Py_None) {
        *out = GD_ALL_AXES;
        return true;
    }
    out->count = integers(v, axes);
    for (int i = 0; i < out->count; i++) {
        if (axes[i] < INT_MIN || axes[i] > INT_MAX)
            return false;
        out->axis[i] = (int)axes[i];
    }
    return out->count >= 0;
}

bool fast_dtype(PyObject *v, gd_dtype *out)
{
    if (!v)
        return true;
    if (v == Py_None) {
        *out = GD_F32;
        return true;
    }
    for (int code = 0; code < GD_DTYPE_COUNT; code++)
        if (PyTuple_GetItem(fast_dtypes, code) == v) {
            *out = (gd_dtype)code;
            return true;
        }
    return false;
}

bool fast_number(PyObject *v, const gd_tensor *beside, double *out)
{
    gd_dtype dtype = lib.gd_tensor_dtype(beside);
    bool is_float = lib.gd_dtype_is_float(dtype);
    return (is_float || (dtype != GD_BOOL && PyLong_CheckExact(v))) && fast_double(v, out);
}
