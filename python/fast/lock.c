/* python/fast/lock.c: the locks of contexts, held over calls that let go of the GIL. A thread may take one several times. Their state
 * is changed under the GIL; who has to wait does so at a gate, without the GIL. */
#include "fast.h"

int fast_held;
_Thread_local fast_lock *fast_of_thread;
fast_lock *fast_default;
static fast_lock *all;

static fast_lock *cast(PyObject *self)
{
    return (fast_lock *)self;
}

fast_lock *fast_lock_of(const gd_context *context)
{
    if (fast_of_thread && fast_of_thread->context == context)
        return fast_of_thread;
    for (fast_lock *lock = all; lock; lock = lock->next)
        if (lock->context == context)
            return lock;
    return NULL;
}

static void wait_at_gate(fast_lock *lock)
{
    lock->waiting++;
    PyThreadState *state = PyEval_SaveThread();
    PyThread_acquire_lock(lock->gate, 1);
    PyEval_RestoreThread(state);
    lock->is_open = false;
    lock->waiting--;
}

static bool is_free(const fast_lock *lock)
{
    return lock->depth == 0 || lock->owner == PyThread_get_thread_ident();
}

void fast_acquire(fast_lock *lock)
{
    while (!is_free(lock))
        wait_at_gate(lock);
    lock->owner = PyThread_get_thread_ident();
    lock->depth++;
    fast_held++;
}

void fast_release(fast_lock *lock)
{
    fast_held--;
    if (--lock->depth == 0 && lock->waiting > 0 && !lock->is_open) {
        lock->is_open = true;
        PyThread_release_lock(lock->gate);
    }
}

void fast_drain(fast_lock *lock)
{
    if (PyObject_Size(fast_pending) == 0)
        return;
    PyObject *none = PyObject_CallFunction(fast_drain_function, "K",
                                           (unsigned long long)(uintptr_t)lock->context);
    if (!none)
        PyErr_WriteUnraisable(fast_drain_function);
    Py_XDECREF(none);
}

/* The context of the first tensor among the arguments, or in a list of them; NULL: there is none. */
static gd_context *context_of(PyObject *const *v, Py_ssize_t n)
{
    gd_tensor *t = NULL;
    for (Py_ssize_t i = 0; i < n && !t; i++) {
        bool is_list = v[i] && PyList_Check(v[i]);
        PyObject *first = v[i];
        if (is_list || (v[i] && PyTuple_Check(v[i]))) {
            Py_ssize_t size = is_list ? PyList_Size(v[i]) : PyTuple_Size(v[i]);
            first = size == 0 ? NULL : is_list ? PyList_GetItem(v[i], 0) : PyTuple_GetItem(v[i], 0);
        }
        (void)fast_tensor_of(first, &t);
    }
    return t ? lib.gd_tensor_context(t) : NULL;
}

bool fast_enter_slowly(PyObject *const *v, Py_ssize_t n)
{
    gd_context *context = context_of(v, n);
    fast_lock *lock = context          ? fast_lock_of(context)
                      : fast_of_thread ? fast_of_thread
                                       : fast_default;
    if (!lock)
        return true;
    fast_acquire(lock);
    fast_drain(lock);
    fast_release(lock);
    return true;
}

/* ---- as an object ---- */

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *names)
{
    unsigned long long address = 0;
    (void)names;
    PyThread_type_lock gate = PyThread_allocate_lock();
    PyObject *made =
        gate && PyArg_ParseTuple(args, "K", &address) ? PyType_GenericAlloc(type, 0) : NULL;
    if (!made) {
        if (gate)
            PyThread_free_lock(gate);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    fast_lock *lock = cast(made);
    lock->context = (gd_context *)(uintptr_t)address;
    lock->gate = gate;
    PyThread_acquire_lock(gate, 1);
    lock->next = all;
    all = lock;
    return made;
}

static void end(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    fast_lock **link = &all;
    while (*link && *link != cast(self))
        link = &(*link)->next;
    if (*link)
        *link = cast(self)->next;
    PyThread_release_lock(cast(self)->gate);
    PyThread_free_lock(cast(self)->gate);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *acquire(PyObject *self, PyObject *unused)
{
    (void)unused;
    fast_acquire(cast(self));
    Py_RETURN_TRUE;
}

static PyObject *try_acquire(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (!is_free(cast(self)))
        Py_RETURN_FALSE;
    fast_acquire(cast(self));
    Py_RETURN_TRUE;
}

static PyObject *release(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (cast(self)->depth == 0 || !is_free(cast(self))) {
        PyErr_SetString(PyExc_RuntimeError, "the lock is not held by this thread");
        return NULL;
    }
    fast_release(cast(self));
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
    (void)unused;
    fast_lock *lock = cast(self);
    fast_held -= lock->depth;
    lock->depth = lock->waiting = 0;
    lock->is_open = false;
    lock->gate = PyThread_allocate_lock(); /* the old one may be in any state */
    if (!lock->gate)
        return PyErr_NoMemory();
    PyThread_acquire_lock(lock->gate, 1);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "acquire", acquire, METH_NOARGS, NULL },
    { "try_acquire", try_acquire, METH_NOARGS, "Without waiting: whether it is held now." },
    { "release", release, METH_NOARGS, NULL },
    { "__enter__", acquire, METH_NOARGS, NULL },
    { "__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, NULL },
    { "_at_fork_reinit", reset, METH_NOARGS, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "The lock of a context, given by its address." },
    { Py_tp_methods, methods },
    { Py_tp_new, make },
    { Py_tp_dealloc, end },
    { 0 },
};

PyTypeObject *fast_lock_new_type(void)
{
    PyType_Spec spec = { .name = "gradus._fast.Lock",
                         .basicsize = sizeof(fast_lock),
                         .flags = Py_TPFLAGS_DEFAULT,
                         .slots = slots };
    return (PyTypeObject *)PyType_FromSpec(&spec);
}
