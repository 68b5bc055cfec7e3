/* The binding: Python objects around gradaccum.h. It checks and converts arguments and holds memory; it does no arithmetic on
 * elements. Every call into the library that may take long runs without the GIL, with the network marked busy. */
#ifndef GA_BINDING_H
#define GA_BINDING_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define PY_ARRAY_UNIQUE_SYMBOL gradaccum_ARRAY_API
#ifndef GA_IMPORT_ARRAY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <stdatomic.h>
#include "gradaccum.h"

typedef struct {
    PyObject_HEAD
    ga_net *net;
    ga_dtype dtype;
    PyObject *block[GA_BLOCKS];
    PyObject *functions;                         /* list of callables, kept alive */
    PyObject *profile;                           /* array that the library counts seconds into, or NULL */
    PyObject *error;                             /* exception of a function that failed during a pass */
    atomic_int busy;
} NetObject;

extern PyTypeObject *Block_Type, *Net_Type, *Optimizer_Type, *Window_Type;
extern PyObject *StageError;

/* errors.c */
PyObject *raise_status(ga_status status, NetObject *net);
int enter(NetObject *net);                       /* 0, or -1 and StageError: another thread is inside */
void leave(NetObject *net);
/* Runs a call of the library without the GIL, alone on the network. */
#define CALL(net_object, status, expression)                                                                                \
    do {                                                                                                                    \
        if (enter(net_object))                                                                                              \
            return NULL;                                                                                                    \
        Py_BEGIN_ALLOW_THREADS status = (expression);                                                                       \
        Py_END_ALLOW_THREADS leave(net_object);                                                                             \
        if (status)                                                                                                         \
            return raise_status(status, net_object);                                                                        \
    } while (0)

/* array.c */
extern PyType_Spec Block_Spec;
PyObject *block_new(int64_t bytes);              /* zeroed, 64-byte aligned */
int block_intact(PyObject *block);               /* nothing was written behind its end */
void *block_memory(PyObject *block);
/* An array over `block`; strides in elements, or NULL for row-major. */
PyObject *block_array(PyObject *block, void *at, int rank, const npy_intp *shape, const npy_intp *strides, int type, int writable);
PyObject *shape_tuple(const ga_shape *shape);
int parse_shape(PyObject *object, ga_shape *shape, const char *what);
int real_type(const NetObject *net);
PyObject *stored_view(NetObject *net, void *at, const ga_shape *shape, int sequence, int64_t samples, int64_t length, int type, int writable);

/* A batch whose arrays are held while the library reads them. */
typedef struct { ga_batch batch; PyObject *held[GA_MAX_INPUTS + 2]; int n; } Batch;
int batch_inputs(Batch *batch, NetObject *net, PyObject *inputs);
int batch_target(Batch *batch, NetObject *net, PyObject *target, PyObject *weight);
void batch_free(Batch *batch);

/* net.c, window.c */
extern PyType_Spec Net_Spec, Optimizer_Spec, Window_Spec;
#endif
