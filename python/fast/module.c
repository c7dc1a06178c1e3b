/* python/fast/module.c: the module gradus._fast: loading the library, what the package gives it, compiled calls. */
#include "fast.h"

#include <dlfcn.h>
#include <string.h>

fast_library lib;
PyObject *fast_pending, *fast_python_ops, *fast_fail_function, *fast_drain_function, *fast_dtypes;
static PyObject *python_methods; /* of Tensor, that this module stands for */
static PyObject *made_ops;       /* name -> function of this module */

void fast_bind_operators(bool (*is_op)(const char *method, const char *op));

/* ---- the library ---- */

static PyObject *load(PyObject *self, PyObject *path)
{
    static const char *const names[] = {
#define FAST_POINTER(name) #name,
#include "fast_functions.def"
#undef FAST_POINTER
    };
    (void)self;
    PyObject *bytes = NULL;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    void *library = dlopen(PyBytes_AsString(bytes), RTLD_NOW);
    Py_DECREF(bytes);
    if (!library)
        return PyErr_Format(PyExc_ImportError, "%s", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = dlsym(library, names[i]);
        if (!function)
            return PyErr_Format(PyExc_ImportError, "the library has no %s", names[i]);
        memcpy((char *)&lib + i * sizeof function, &function, sizeof function);
    }
    Py_RETURN_NONE;
}

/* ---- what the package gives ---- */

PyObject *fast_call(PyObject *function, PyObject *self, PyObject *const *args, Py_ssize_t n,
                    PyObject *names)
{
    Py_ssize_t first = self != NULL;
    PyObject *positional = PyTuple_New(first + n), *keywords = names ? PyDict_New() : NULL,
             *result = NULL;
    bool ok = positional && (!names || keywords);
    if (ok && self)
        ok = PyTuple_SetItem(positional, 0, Py_NewRef(self)) == 0;
    for (Py_ssize_t i = 0; ok && i < n; i++)
        ok = PyTuple_SetItem(positional, first + i, Py_NewRef(args[i])) == 0;
    for (Py_ssize_t i = 0; ok && names && i < PyTuple_Size(names); i++)
        ok = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[n + i]) == 0;
    if (ok)
        result = PyObject_Call(function, positional, keywords);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

PyObject *fast_call_python(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t n,
                           PyObject *names)
{
    PyObject *method = python_methods ? PyDict_GetItemString(python_methods, name) : NULL;
    if (!method)
        return Py_NewRef(Py_NotImplemented);
    return fast_call(method, self, args, n, names);
}

static bool is_op(const char *method, const char *op)
{
    PyObject *given = PyDict_GetItemString(python_methods, method),
             *function = PyDict_GetItemString(made_ops, op);
    if (strcmp(method, "__eq__") == 0 || strcmp(method, "__ne__") == 0)
        return given &&
               function; /* beside a tensor or a number; None, which is no tensor, is Python's */
    return given && given == function;
}

/* install_ops(namespace): put this module's functions in the place of those of gradus/_ops.py. */
static PyObject *install_ops(PyObject *self, PyObject *namespace)
{
    (void)self;
    static PyMethodDef *definitions;
    PyObject *module = PyUnicode_FromString("gradus._ops");
    definitions = PyMem_Calloc((size_t)fast_op_count + 1, sizeof *definitions);
    PyObject *replaced = PyDict_New(), *made = PyDict_New();
    bool ok = module && definitions && replaced && made;
    for (int i = 0; ok && i < fast_op_count; i++) {
        const fast_op *op = &fast_ops[i];
        definitions[i] = (PyMethodDef){ op->name, (PyCFunction)(void (*)(void))op->function,
                                        METH_FASTCALL | METH_KEYWORDS, op->doc };
        PyObject *old = PyDict_GetItemString(namespace, op->name),
                 *new = PyCFunction_NewEx(&definitions[i], NULL, module);
        ok = old && new &&PyDict_SetItemString(replaced, op->name, old) == 0 &&
             PyDict_SetItemString(made, op->name, new) == 0;
        if (!old)
            PyErr_Format(PyExc_ImportError, "gradus._fast: there is no function %s", op->name);
        Py_XDECREF(new);
    }
    Py_XDECREF(module);
    fast_python_ops = replaced;
    made_ops = made;
    return ok ? Py_NewRef(made) : NULL;
}

/* install(methods, fail, drain, pending, dtypes) */
static PyObject *install(PyObject *self, PyObject *args)
{
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOO", &python_methods, &fast_fail_function, &fast_drain_function,
                          &fast_pending, &fast_dtypes))
        return NULL;
    Py_INCREF(python_methods);
    Py_INCREF(fast_fail_function);
    Py_INCREF(fast_drain_function);
    Py_INCREF(fast_pending);
    Py_INCREF(fast_dtypes);
    fast_bind_operators(is_op);
    Py_RETURN_NONE;
}

static PyTypeObject *lock_type;

static bool take_lock(PyObject *given, fast_lock **lock)
{
    if (given != Py_None && Py_TYPE(given) != lock_type) {
        PyErr_SetString(PyExc_TypeError, "expected a lock or None");
        return false;
    }
    *lock = given == Py_None ? NULL : (fast_lock *)given;
    return true;
}

/* The package keeps the locks that are given here for as long. */
static PyObject *set_context(PyObject *self, PyObject *given)
{
    (void)self;
    return take_lock(given, &fast_of_thread) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *set_default(PyObject *self, PyObject *given)
{
    (void)self;
    return take_lock(given, &fast_default) ? Py_NewRef(Py_None) : NULL;
}

/* ---- compiled calls ---- */

enum { MOST_INPUTS = 256 };

/* A list of the results, the first of which is h; with the lock held. */
static PyObject *results_of(gd_function *function, gd_tensor *h, Py_ssize_t count)
{
    PyObject *results = PyList_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        gd_tensor *result = i == 0 ? h : lib.gd_retain(lib.gd_function_result(function, (int)i));
        PyObject *tensor = !results || !result ? NULL : fast_wrap(result);
        if (!tensor || PyList_SetItem(results, i, tensor) != 0)
            Py_CLEAR(results);
        if (!results)
            return result ? NULL : fast_fail();
    }
    return results;
}

static PyObject *call_with_lock(gd_function *function, gd_context *context, PyObject *leaves,
                                Py_ssize_t results)
{
    gd_tensor *inputs[MOST_INPUTS];
    int count;
    if (!fast_tensors(leaves, MOST_INPUTS, inputs, &count) || lib.gd_is_tracing(context) ||
        !lib.gd_function_has_plan(function, count, inputs))
        return lib.gd_error_code() == GD_OK ? Py_NewRef(Py_None) : fast_fail();
    gd_tensor *h;
    Py_BEGIN_ALLOW_THREADS h = lib.gd_call(function, count, inputs);
    Py_END_ALLOW_THREADS h = lib.gd_claim(context, h);
    return h ? results_of(function, h, results) : fast_fail();
}

/* call(function, leaves, results) -> the results, or None where there is no plan for these leaves, or a trace is going on. The
 * caller's list or tuple holds the leaves. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    int64_t results = 0;
    if (n != 3 || !fast_integer(args[2], 1, 1 << 20, &results)) {
        PyErr_SetString(PyExc_TypeError, "call(function, leaves, results)");
        return NULL;
    }
    gd_function *function = (gd_function *)(uintptr_t)PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    gd_context *context = lib.gd_function_context(function);
    fast_lock *lock = context ? fast_lock_of(context) : NULL;
    if (!lock) {
        PyErr_SetString(PyExc_SystemError, "a function of a context that is not known");
        return NULL;
    }
    fast_acquire(lock);
    fast_drain(lock);
    PyObject *found = call_with_lock(function, context, args[1], (Py_ssize_t)results);
    fast_release(lock);
    return found;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    { "load", load, METH_O, "Take the functions of the library at this path." },
    { "install_ops", install_ops, METH_O,
      "The functions that stand for those of gradus/_ops.py in this namespace." },
    { "install", install, METH_VARARGS, NULL },
    { "set_context", set_context, METH_O,
      "The lock of the context that is this thread's current one; None: the default one." },
    { "set_default", set_default, METH_O, "The lock of the default context." },
    { "call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL },
    { 0 },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "gradus._fast", .m_doc = "The hot path of the package in C.",
    .m_size = -1,          .m_methods = functions,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *module = PyModule_Create(&definition);
    lock_type = module && fast_ops_ready() ? fast_lock_new_type() : NULL;
    fast_tensor_type = lock_type ? fast_tensor_new_type() : NULL;
    if (!fast_tensor_type || PyModule_AddObjectRef(module, "Lock", (PyObject *)lock_type) != 0 ||
        PyModule_AddObjectRef(module, "Tensor", (PyObject *)fast_tensor_type) != 0 ||
        PyModule_AddStringConstant(module, "HASH", fast_api_hash) != 0)
        Py_CLEAR(module);
    return module;
}
