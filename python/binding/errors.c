/* From ga_status to Python's exceptions, in one place; and the mark that a network is in use. */
#include "binding.h"

PyObject *StageError;

PyObject *raise_status(ga_status status, NetObject *net)
{
    if (net && net->error) {                     /* a Python function failed inside a pass: its own exception says most */
        PyObject *error = net->error;
        net->error = NULL;
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
        return NULL;
    }
    PyObject *type = status == GA_EMEMORY ? PyExc_MemoryError
                     : status == GA_EINDEX ? PyExc_IndexError
                     : status == GA_ESTAGE ? StageError
                     : status == GA_ENONFINITE ? PyExc_FloatingPointError
                     : status == GA_ECALLBACK ? PyExc_RuntimeError : PyExc_ValueError;
    PyErr_SetString(type, ga_error());
    return NULL;
}

int enter(NetObject *net)
{
    if (atomic_exchange(&net->busy, 1)) {
        PyErr_SetString(StageError, "this network is in use by another thread (or by a function inside its own pass); one network "
                        "is used by one thread at a time: give each thread its own, or use a lock");
        return -1;
    }
    return 0;
}

void leave(NetObject *net) { atomic_store(&net->busy, 0); }
