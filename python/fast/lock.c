/* python/fast/lock.c: the lock of the library, held over calls that let go of the GIL. A thread may take it several times. Its
 * state is changed under the GIL; who has to wait does so at a gate, without the GIL. */
#include "fast.h"

fast_lock_state fast_lock;
static int waiting;             /* threads at the gate */
static bool is_open;            /* the gate, for one of them */
static PyThread_type_lock gate; /* held while it is closed */

static void wait_at_gate(void)
{
    waiting++;
    PyThreadState *state = PyEval_SaveThread();
    PyThread_acquire_lock(gate, 1);
    PyEval_RestoreThread(state);
    is_open = false;
    waiting--;
}

void fast_acquire(void)
{
    unsigned long self = PyThread_get_thread_ident();
    while (fast_lock.depth > 0 && fast_lock.owner != self)
        wait_at_gate();
    fast_lock.owner = self;
    fast_lock.depth++;
}

void fast_release(void)
{
    if (--fast_lock.depth == 0 && waiting > 0 && !is_open) {
        is_open = true;
        PyThread_release_lock(gate);
    }
}

bool fast_enter_slowly(void)
{
    fast_acquire();
    if (PyObject_Size(fast_pending) > 0) {
        PyObject *none = PyObject_CallNoArgs(fast_drain_function);
        if (!none)
            PyErr_WriteUnraisable(fast_drain_function);
        Py_XDECREF(none);
    }
    fast_release();
    return true;
}

/* ---- as an object ---- */

static PyObject *acquire(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    fast_acquire();
    Py_RETURN_TRUE;
}

static PyObject *release(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (fast_lock.depth == 0 || fast_lock.owner != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_RuntimeError, "the lock is not held by this thread");
        return NULL;
    }
    fast_release();
    Py_RETURN_NONE;
}

static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)args, (void)n;
    return release(self, NULL);
}

/* In a child made by fork: the threads that held it or wait are not there. */
static PyObject *reset(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    fast_lock = (fast_lock_state){ 0 };
    waiting = 0;
    is_open = false;
    gate = PyThread_allocate_lock(); /* the old one may be in any state */
    if (!gate)
        return PyErr_NoMemory();
    PyThread_acquire_lock(gate, 1);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "acquire", acquire, METH_NOARGS, NULL },
    { "release", release, METH_NOARGS, NULL },
    { "__enter__", acquire, METH_NOARGS, NULL },
    { "__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, NULL },
    { "_at_fork_reinit", reset, METH_NOARGS, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "The lock of the library." },
    { Py_tp_methods, methods },
    { 0 },
};

PyObject *fast_lock_new(void)
{
    PyType_Spec spec = { .name = "gradus._fast.Lock",
                         .basicsize = sizeof(PyObject),
                         .flags = Py_TPFLAGS_DEFAULT,
                         .slots = slots };
    PyObject *type = PyType_FromSpec(&spec), *made = NULL, *none = reset(NULL, NULL);
    if (type && none)
        made = PyObject_CallNoArgs(type);
    Py_XDECREF(none);
    Py_XDECREF(type);
    return made;
}
