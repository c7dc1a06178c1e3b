/* python/fast/fast.h: gradus._fast, the hot path of the Python package: what a Tensor is made of, operators, and a function for
 * each op, in C over Python's stable ABI (3.11 on). The package works without it, over ctypes (GRADUS_PYTHON=ctypes).
 *
 * A function here does the usual case: arguments that are tensors, numbers, tuples. Anything else it hands to the function of the
 * same name in Python (gradus/_ops.py), which knows all that may be given and what is to be said about it. So there is one
 * meaning, and this is a short way to it.
 *
 * The GIL is held throughout, but for gd_call and where a lock is waited for. Nothing is linked: the functions are those of the library that ctypes has loaded.
 */
#ifndef GRADUS_FAST_H
#define GRADUS_FAST_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>

#include <gradus/gradus.h>

/* ---- the library ---- */

#define FAST_POINTER(name) __typeof__(name) *name;
typedef struct fast_library {
#include "fast_functions.def"
} fast_library;
#undef FAST_POINTER
extern fast_library lib;

/* ---- tensors: handle.c ---- */

typedef struct fast_tensor {
    PyObject_HEAD gd_tensor *h; /* owned; NULL: closed */
    PyObject *weakrefs;
} fast_tensor;

extern PyTypeObject *fast_tensor_type; /* gradus.Tensor */

PyTypeObject *fast_tensor_new_type(void);

static inline bool fast_is_tensor(PyObject *o)
{
    return Py_TYPE(o) == fast_tensor_type || PyType_IsSubtype(Py_TYPE(o), fast_tensor_type);
}

/* A Tensor that owns h. */
PyObject *fast_wrap(gd_tensor *h);
/* The result of an op: a Tensor, or the library's error raised. All other temporaries go. */
PyObject *fast_finish(gd_tensor *h);
/* Raise the library's error; NULL. */
PyObject *fast_fail(void);

/* ---- ops: parse.c and the generated fast_ops.c ---- */

typedef struct fast_op {
    const char *name;
    const char *const *parameters;   /* [count] */
    int count, positional, required; /* keywords alone come last */
    int (*run)(PyObject *const *v,
               PyObject **result); /* 0: not the usual case, and nothing is done */
    const char *doc;               /* with the signature, as inspect reads it */
    PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
} fast_op;

extern const fast_op fast_ops[];
extern const int fast_op_count;
extern const char fast_api_hash[]; /* of the headers it was made from */
extern PyMethodDef fast_methods[]; /* of Tensor, ended by an empty one */
extern const int fast_method_count;

PyObject *fast_run(int op, PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
int fast_find(const char *name); /* -1: there is none */
bool fast_ops_ready(void);       /* make the names of parameters; false: an exception is set */

/* Conversions: false where Python has to see to it. A value that is not given leaves what is there. */
bool fast_tensor_of(PyObject *v, gd_tensor **out);
bool fast_tensor_or_none(PyObject *v, gd_tensor **out);
bool fast_tensors(PyObject *v, int most, gd_tensor **out, int *count);
bool fast_double(PyObject *v, double *out);
bool fast_integer(PyObject *v, int64_t least, int64_t most, int64_t *out);
bool fast_int(PyObject *v, int *out);
bool fast_int64(PyObject *v, int64_t *out);
bool fast_bool(PyObject *v, bool *out);
bool fast_shape(PyObject *v, gd_shape *out);
bool fast_axes(PyObject *v, gd_axes *out);
bool fast_dtype(PyObject *v, gd_dtype *out);
bool fast_absent(PyObject *v); /* not given, None or False */
/* A number beside a tensor, where C's meaning of it is Python's: 1.5 or 2 beside floats, 2 beside integers. */
bool fast_number(PyObject *v, const gd_tensor *beside, double *out);

/* ---- contexts and their locks: lock.c ---- */

/* The lock of a context, an object of Python. Changed with the GIL held. Who holds it may call the library in this context; so may
 * who holds the GIL while nobody holds it. */
typedef struct fast_lock {
    PyObject_HEAD gd_context *context; /* NULL: of what needs none */
    unsigned long owner;
    int depth, waiting;      /* threads at the gate */
    bool is_open;            /* the gate, for one of them */
    PyThread_type_lock gate; /* held while it is closed */
    struct fast_lock *next;  /* in the list of all */
} fast_lock;

extern int fast_held; /* how often locks are held, by all threads */
extern _Thread_local fast_lock
    *fast_of_thread; /* of this thread's current context; NULL: the default one */
extern fast_lock *fast_default;

PyTypeObject *fast_lock_new_type(void);
fast_lock *fast_lock_of(const gd_context *context);
void fast_acquire(fast_lock *lock);
void fast_release(fast_lock *lock);
void fast_drain(fast_lock *lock); /* give back what Python has let go of; with the lock held */
bool fast_enter_slowly(PyObject *const *v, Py_ssize_t n);

extern PyObject *fast_pending; /* objects that Python has let go of, and the library has not */

/* Before a call of the library with these arguments that does not let go of the GIL: their context's lock is free from then on until
 * the GIL is let go. */
static inline bool fast_enter(PyObject *const *v, Py_ssize_t n)
{
    return (fast_held == 0 && PyObject_Size(fast_pending) == 0) || fast_enter_slowly(v, n);
}

/* In which a thread creates tensors; NULL: none is open yet. */
static inline gd_context *fast_context(void)
{
    const fast_lock *lock = fast_of_thread ? fast_of_thread : fast_default;
    return lock ? lock->context : NULL;
}

/* ---- what Python gave to install(): module.c ---- */

/* A method of Tensor's as it is in Python, for the unusual cases: a new reference. */
PyObject *fast_call_python(const char *name, PyObject *self, PyObject *const *args, Py_ssize_t n,
                           PyObject *names);
PyObject *fast_call(PyObject *function, PyObject *self, PyObject *const *args, Py_ssize_t n,
                    PyObject *names);
extern PyObject *fast_python_ops; /* name -> function of gradus/_ops.py */
extern PyObject *fast_fail_function, *fast_drain_function;
extern PyObject *fast_dtypes; /* tuple by code */

#endif
