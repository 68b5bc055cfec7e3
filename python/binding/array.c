/* Memory blocks, views of them, and arrays that come from the user. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "binding.h"

/* ---- blocks ---- */

/* Owns memory and exports no buffer, so a view over it that is read-only stays read-only. */
typedef struct { PyObject_HEAD void *memory; int64_t used, bytes; int mapped; } BlockObject;

enum { HUGE_PAGE = 2 << 20, GUARD = 64, GUARD_BYTE = 0xA5 };

PyObject *block_new(int64_t bytes)
{
    BlockObject *block = PyObject_New(BlockObject, Block_Type);
    if (!block)
        return NULL;
    block->used = bytes;
    block->bytes = (bytes + GUARD + 63) / 64 * 64;           /* the bytes behind it show whether something wrote too far */
    block->mapped = block->bytes >= 2 * HUGE_PAGE;
    if (block->mapped) {                         /* big: whole pages, huge ones where the system has them (100 times fewer faults) */
        block->memory = mmap(NULL, (size_t)block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block->memory == MAP_FAILED)
            block->memory = NULL;
        else
            madvise(block->memory, (size_t)block->bytes, MADV_HUGEPAGE);
    } else if ((block->memory = aligned_alloc(64, (size_t)block->bytes)))
        memset(block->memory, 0, (size_t)block->bytes);
    if (!block->memory) {
        Py_DECREF(block);
        return PyErr_Format(PyExc_MemoryError, "no memory for a block of %lld bytes", (long long)bytes);
    }
    memset((char *)block->memory + bytes, GUARD_BYTE, GUARD);
    return (PyObject *)block;
}

int block_intact(PyObject *object)
{
    const BlockObject *block = (const BlockObject *)object;
    const unsigned char *guard = (const unsigned char *)block->memory + block->used;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != GUARD_BYTE)
            return 0;
    return 1;
}

void *block_memory(PyObject *block) { return ((BlockObject *)block)->memory; }

static void block_dealloc(PyObject *self)
{
    BlockObject *block = (BlockObject *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (block->memory && block->mapped)
        munmap(block->memory, (size_t)block->bytes);
    else
        free(block->memory);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_dealloc},
    {Py_tp_doc, "Memory that views keep alive."},
    {0, NULL},
};
PyType_Spec Block_Spec = {"gradaccum._core.Block", sizeof(BlockObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, block_slots};

PyObject *block_array(PyObject *block, void *at, int rank, const npy_intp *shape, const npy_intp *strides, int type, int writable)
{
    npy_intp bytes[NPY_MAXDIMS];
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    for (int i = 0; strides && i < rank; i++)
        bytes[i] = strides[i] * PyDataType_ELSIZE(descr);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, rank, (npy_intp *)shape, strides ? bytes : NULL, at,
                                           NPY_ARRAY_ALIGNED | (writable ? NPY_ARRAY_WRITEABLE : 0), NULL);
    if (!array)
        return NULL;
    Py_INCREF(block);
    if (PyArray_SetBaseObject((PyArrayObject *)array, block) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    return array;
}

/* ---- shapes ---- */

PyObject *shape_tuple(const ga_shape *shape)
{
    PyObject *tuple = PyTuple_New(shape->rank);
    for (int i = 0; tuple && i < shape->rank; i++) {
        PyObject *n = PyLong_FromLongLong(shape->dim[i]);
        if (!n) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, n);
    }
    return tuple;
}

int parse_shape(PyObject *object, ga_shape *shape, const char *what)
{
    PyObject *items = PySequence_Fast(object, "");
    if (!items || PySequence_Fast_GET_SIZE(items) > GA_MAX_RANK) {
        PyErr_Format(items ? PyExc_ValueError : PyExc_TypeError, "%s: expected a tuple of at most %d sizes per sample, got %R", what,
                     GA_MAX_RANK, object);
        Py_XDECREF(items);
        return -1;
    }
    *shape = (ga_shape){.rank = (int)PySequence_Fast_GET_SIZE(items)};
    for (int i = 0; i < shape->rank; i++) {
        shape->dim[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
        if (shape->dim[i] == -1 && PyErr_Occurred()) {
            Py_DECREF(items);
            return -1;
        }
    }
    Py_DECREF(items);
    return 0;
}

int real_type(const NetObject *net) { return net->dtype == GA_FLOAT64 ? NPY_FLOAT64 : NPY_FLOAT32; }

/* A view of [samples][shape] in the library's storage, with PyTorch's axes. */
PyObject *stored_view(NetObject *net, void *at, const ga_shape *s, int sequence, int64_t samples, int64_t length, int type, int writable)
{
    npy_intp shape[GA_MAX_RANK + 1] = {samples}, strides[GA_MAX_RANK + 1];
    for (int i = 0; i < s->rank; i++)
        shape[i + 1] = i == 0 && sequence ? length : s->dim[i];
    if (s->rank == 3) {                          /* (C, H, W) lies as (H, W, C) */
        strides[1] = 1;
        strides[3] = shape[1];
        strides[2] = shape[1] * shape[3];
        strides[0] = shape[1] * shape[2] * shape[3];
    } else {
        npy_intp step = 1;
        for (int i = s->rank; i > 0; i--) {
            strides[i] = step;
            step *= shape[i];
        }
        strides[0] = step;
    }
    return block_array(net->block[GA_ACTIVATIONS], at, s->rank + 1, shape, strides, type, writable);
}

/* ---- arrays from the user ---- */

static void expected_shape(char *text, size_t room, const ga_shape *s, int sequence)
{
    size_t used = (size_t)snprintf(text, room, "(n");
    for (int i = 0; i < s->rank && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, i == 0 && sequence ? ", up to %lld" : ", %lld", (long long)s->dim[i]);
    snprintf(text + used, room - used, s->rank ? ")" : ",)");
}

/* A C-contiguous array of [n][shape], of the network's reals or of int64; its first axis and, for sequences, its second are
 * checked against *samples and *length where those are set, and stored there otherwise. */
static PyArrayObject *take(PyObject *object, const char *name, NetObject *net, const ga_shape *s, int integer, int sequence,
                           int64_t *samples, int64_t *length)
{
    PyArrayObject *raw = (PyArrayObject *)PyArray_FROM_O(object);
    if (!raw)
        return NULL;
    int type = PyArray_TYPE(raw), is_integer = PyTypeNum_ISINTEGER(type) || type == NPY_BOOL;
    if (!is_integer && !PyTypeNum_ISFLOAT(type)) {
        PyErr_Format(PyExc_TypeError, "%s: got dtype %S, expected %s numbers", name, PyArray_DESCR(raw), integer ? "integer" : "real");
        goto fail;
    }
    if (integer && !is_integer) {
        PyErr_Format(PyExc_TypeError, "%s: got dtype %S, expected integers (class labels or tokens); convert with "
                     ".astype(numpy.int64) if they are whole numbers", name, PyArray_DESCR(raw));
        goto fail;
    }
    int fits = PyArray_NDIM(raw) == s->rank + 1;
    for (int i = 0; fits && i < s->rank; i++)
        fits = PyArray_DIM(raw, i + 1) == s->dim[i] || (i == 0 && sequence && PyArray_DIM(raw, 1) <= s->dim[0] && PyArray_DIM(raw, 1) > 0);
    if (!fits) {
        char want[96];
        expected_shape(want, sizeof want, s, sequence);
        PyObject *shape = PyObject_GetAttrString((PyObject *)raw, "shape");
        PyErr_Format(PyExc_ValueError, "%s: got shape %S, expected %s, n samples; there is no broadcasting%s", name, shape, want,
                     PyArray_NDIM(raw) == s->rank ? "; for a single sample use x[None]" : "");
        Py_XDECREF(shape);
        goto fail;
    }
    if (*samples && PyArray_DIM(raw, 0) != *samples) {
        PyErr_Format(PyExc_ValueError, "%s: got %zd samples, but the other arrays have %lld", name, PyArray_DIM(raw, 0), (long long)*samples);
        goto fail;
    }
    *samples = PyArray_DIM(raw, 0);
    if (sequence && s->rank) {
        if (*length && PyArray_DIM(raw, 1) != *length) {
            PyErr_Format(PyExc_ValueError, "%s: got %zd steps, but the other arrays have %lld", name, PyArray_DIM(raw, 1), (long long)*length);
            goto fail;
        }
        *length = PyArray_DIM(raw, 1);
    }
    PyArrayObject *ready = (PyArrayObject *)PyArray_FROM_OTF((PyObject *)raw, integer ? NPY_INT64 : real_type(net),
                                                            NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
    Py_DECREF(raw);
    return ready;
fail:
    Py_DECREF(raw);
    return NULL;
}

static int hold(Batch *batch, PyArrayObject *array)
{
    if (!array)
        return -1;
    batch->held[batch->n++] = (PyObject *)array;
    return 0;
}

int batch_inputs(Batch *b, NetObject *net, PyObject *inputs)
{
    const char *names[GA_MAX_INPUTS];
    ga_shape shapes[GA_MAX_INPUTS];
    int integer[GA_MAX_INPUTS], sequence[GA_MAX_INPUTS], n = 0;
    for (int v = 0; v < ga_net_values(net->net) && n < GA_MAX_INPUTS; v++) {
        ga_value_info info;
        ga_value_get(net->net, v, &info);
        if (info.producer >= 0)
            continue;
        shapes[n] = info.shape;
        integer[n] = info.integer;
        sequence[n] = info.sequence;
        n++;
    }
    for (int k = 0; k < n; k++)
        names[k] = ga_input_name(net->net, k);
    if (!PyTuple_Check(inputs) || PyTuple_GET_SIZE(inputs) != n) {
        PyErr_Format(PyExc_ValueError, "got %zd inputs, the network has %d", PyTuple_Check(inputs) ? PyTuple_GET_SIZE(inputs) : 1, n);
        return -1;
    }
    for (int k = 0; k < n; k++) {
        if (hold(b, take(PyTuple_GET_ITEM(inputs, k), names[k], net, &shapes[k], integer[k], sequence[k], &b->batch.samples,
                         &b->batch.length)))
            return -1;
        b->batch.input[k] = PyArray_DATA((PyArrayObject *)b->held[b->n - 1]);
    }
    if (b->batch.samples < 1) {
        PyErr_Format(PyExc_ValueError, "%s: the batch has no samples", names[0]);
        return -1;
    }
    return 0;
}

int batch_target(Batch *b, NetObject *net, PyObject *target, PyObject *weight)
{
    ga_shape shape, none = {0};
    int integer, sequence;
    ga_status status = ga_net_target(net->net, &shape, &integer, &sequence);
    if (status) {
        raise_status(status, net);
        return -1;
    }
    if (hold(b, take(target, "y", net, &shape, integer, sequence, &b->batch.samples, &b->batch.length)))
        return -1;
    b->batch.target = PyArray_DATA((PyArrayObject *)b->held[b->n - 1]);
    if (!weight || weight == Py_None)
        return 0;
    NetObject as_double = {.dtype = GA_FLOAT64};
    PyArrayObject *raw = (PyArrayObject *)PyArray_FROM_O(weight);
    if (!raw)
        return -1;
    b->batch.weight_per_element = PyArray_NDIM(raw) != 1;
    PyArrayObject *w = take((PyObject *)raw, "weight", &as_double, b->batch.weight_per_element ? &shape : &none, 0,
                            b->batch.weight_per_element && sequence, &b->batch.samples, &b->batch.length);
    Py_DECREF(raw);
    if (hold(b, w))
        return -1;
    b->batch.weight = PyArray_DATA((PyArrayObject *)b->held[b->n - 1]);
    return 0;
}

void batch_free(Batch *b)
{
    for (int i = 0; i < b->n; i++)
        Py_DECREF(b->held[i]);
    b->n = 0;
}
