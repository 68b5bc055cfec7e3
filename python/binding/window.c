/* The optimizer and window objects. Both keep their network alive. */
#include <string.h>
#include "binding.h"

static PyObject *empty_array(int64_t n, int type, PyObject **block)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type);
    *block = block_new(n * (int64_t)PyDataType_ELSIZE(descr));
    Py_DECREF(descr);
    npy_intp shape = n;
    return *block ? block_array(*block, block_memory(*block), 1, &shape, NULL, type, 0) : NULL;
}

/* ---- optimizer ---- */

typedef struct { PyObject_HEAD NetObject *net; ga_optimizer *optimizer; PyObject *block[3]; int n_groups; } OptimizerObject;

static int get_double(PyObject *dict, const char *key, double *out)
{
    PyObject *item = PyDict_GetItemString(dict, key);
    if (!item)
        return 0;
    *out = PyFloat_AsDouble(item);
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_hyper(PyObject *dict, ga_hyper *h)
{
    double nesterov = h->nesterov, amsgrad = h->amsgrad;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "a group of hyper-parameters is a dict");
        return -1;
    }
    if (get_double(dict, "lr", &h->lr) || get_double(dict, "weight_decay", &h->weight_decay) || get_double(dict, "momentum", &h->momentum)
        || get_double(dict, "dampening", &h->dampening) || get_double(dict, "beta1", &h->beta1) || get_double(dict, "beta2", &h->beta2)
        || get_double(dict, "eps", &h->eps) || get_double(dict, "nesterov", &nesterov) || get_double(dict, "amsgrad", &amsgrad))
        return -1;
    h->nesterov = nesterov != 0;
    h->amsgrad = amsgrad != 0;
    return 0;
}

static PyObject *optimizer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *net, *groups, *indices;
    int kind;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!iO!O!", Net_Type, &net, &kind, &PyList_Type, &groups, &PyList_Type, &indices))
        return NULL;
    Py_ssize_t n = PyList_GET_SIZE(groups), n_params = ga_net_params(((NetObject *)net)->net);
    if (PyList_GET_SIZE(indices) != n_params)
        return PyErr_Format(PyExc_ValueError, "got groups for %zd parameters, the network has %zd", PyList_GET_SIZE(indices), n_params);
    OptimizerObject *self = (OptimizerObject *)type->tp_alloc(type, 0);
    ga_hyper *hyper = PyMem_Calloc((size_t)n + 1, sizeof *hyper);
    int *group = PyMem_Calloc((size_t)n_params + 1, sizeof *group);
    if (!self || !hyper || !group) {
        PyErr_NoMemory();
        goto fail;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (parse_hyper(PyList_GET_ITEM(groups, i), &hyper[i]))
            goto fail;
    for (Py_ssize_t i = 0; i < n_params; i++)
        group[i] = (int)PyLong_AsLong(PyList_GET_ITEM(indices, i));
    if (PyErr_Occurred())
        goto fail;
    self->net = (NetObject *)Py_NewRef(net);
    self->n_groups = (int)n;
    ga_status status = ga_optimizer_create(self->net->net, kind, hyper, (int)n, group, &self->optimizer);
    int64_t bytes = ga_net_param_count(self->net->net) * (self->net->dtype == GA_FLOAT64 ? 8 : 4);
    for (int i = 0; !status && i < ga_optimizer_states(self->optimizer); i++) {
        self->block[i] = block_new(bytes);
        if (!self->block[i])
            goto fail;
        status = ga_optimizer_bind(self->optimizer, i, block_memory(self->block[i]));
    }
    if (status) {
        raise_status(status, NULL);
        goto fail;
    }
    PyMem_Free(hyper);
    PyMem_Free(group);
    return (PyObject *)self;
fail:
    PyMem_Free(hyper);
    PyMem_Free(group);
    Py_XDECREF(self);
    return NULL;
}

static void optimizer_dealloc(PyObject *object)
{
    OptimizerObject *self = (OptimizerObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    ga_optimizer_free(self->optimizer);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(self->block[i]);
    Py_XDECREF(self->net);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *optimizer_states(PyObject *object, PyObject *args)
{
    OptimizerObject *self = (OptimizerObject *)object;
    int writable = 0;
    if (!PyArg_ParseTuple(args, "|p", &writable))
        return NULL;
    PyObject *dict = PyDict_New();
    npy_intp n = ga_net_param_count(self->net->net);
    for (int i = 0; dict && i < 3; i++) {
        if (!self->block[i])
            continue;
        PyObject *array = block_array(self->block[i], block_memory(self->block[i]), 1, &n, NULL, real_type(self->net), writable);
        if (!array || PyDict_SetItemString(dict, ga_optimizer_state_name(self->optimizer, i), array))
            Py_CLEAR(dict);
        Py_XDECREF(array);
    }
    return dict;
}

static PyObject *optimizer_set(PyObject *object, PyObject *args)
{
    OptimizerObject *self = (OptimizerObject *)object;
    int group;
    PyObject *dict;
    if (!PyArg_ParseTuple(args, "iO", &group, &dict))
        return NULL;
    ga_hyper *place = ga_optimizer_hyper(self->optimizer, group), hyper;
    if (!place)
        return PyErr_Format(PyExc_IndexError, "there is no group %d", group);
    hyper = *place;
    if (parse_hyper(dict, &hyper))
        return NULL;
    ga_status status = ga_optimizer_set(self->optimizer, group, &hyper);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

static PyObject *optimizer_step(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    OptimizerObject *self = (OptimizerObject *)object;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_optimizer_step(self->optimizer));
    Py_RETURN_NONE;
}

/* take(first, divisor): AdamA takes the micro-batch's gradient into its moments */
static PyObject *optimizer_take(PyObject *object, PyObject *args)
{
    OptimizerObject *self = (OptimizerObject *)object;
    int first;
    double divisor;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "pd", &first, &divisor))
        return NULL;
    CALL(self->net, status, ga_optimizer_take(self->optimizer, first, divisor));
    Py_RETURN_NONE;
}

static PyObject *optimizer_get_clock(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(*ga_optimizer_clock(((OptimizerObject *)object)->optimizer));
}

static int optimizer_set_clock(PyObject *object, PyObject *value, void *closure)
{
    long long n = value ? PyLong_AsLongLong(value) : -1;
    (void)closure;
    if (n < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the clock counts updates: 0 or more");
        return -1;
    }
    *ga_optimizer_clock(((OptimizerObject *)object)->optimizer) = n;
    return 0;
}

static PyMethodDef optimizer_methods[] = {
    {"states", optimizer_states, METH_VARARGS, "states(writable=False) -> {name: flat array}"},
    {"set", optimizer_set, METH_VARARGS, "set(group, {hyper-parameters})"},
    {"step", optimizer_step, METH_NOARGS, "step() outside a window"},
    {"take", optimizer_take, METH_VARARGS, "take(first, divisor): AdamA takes a micro-batch's gradient into its moments"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef optimizer_getset[] = {
    {"clock", optimizer_get_clock, optimizer_set_clock, "updates done", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot optimizer_slots[] = {
    {Py_tp_new, optimizer_new}, {Py_tp_dealloc, optimizer_dealloc}, {Py_tp_methods, optimizer_methods}, {Py_tp_getset, optimizer_getset},
    {Py_tp_doc, "Optimizer(net, kind, groups, group_of_param)"}, {0, NULL},
};
PyType_Spec Optimizer_Spec = {"gradaccum._core.Optimizer", sizeof(OptimizerObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                              optimizer_slots};

/* ---- window ---- */

typedef struct {
    PyObject_HEAD
    NetObject *net;
    OptimizerObject *optimizer;
    ga_window *window;
    PyObject *buffer, *compensation, *ema;       /* arrays, or None */
} WindowObject;

static int parse_window_options(PyObject *args, PyObject **net, PyObject **optimizer, ga_window_options *o)
{
    int reduction, buffer, on_nonfinite;
    if (!PyArg_ParseTuple(args, "O!Oipidid|d", Net_Type, net, optimizer, &reduction, &o->staged, &buffer, &o->max_grad_norm,
                          &on_nonfinite, &o->loss_scale, &o->ema_decay))
        return -1;
    o->reduction = reduction;
    o->buffer = buffer;
    o->on_nonfinite = on_nonfinite;
    if (*optimizer != Py_None && !PyObject_TypeCheck(*optimizer, Optimizer_Type)) {
        PyErr_SetString(PyExc_TypeError, "optimizer: expected an optimizer of gradaccum.optim, or None");
        return -1;
    }
    return 0;
}

static const int buffer_type[] = {-1, NPY_FLOAT64, -1, NPY_UINT16, NPY_FLOAT16};

static PyObject *window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *net, *optimizer, *block[3] = {NULL, NULL, NULL};
    ga_window_options options = {.ema_decay = -1};
    (void)kwargs;
    if (parse_window_options(args, &net, &optimizer, &options))
        return NULL;
    WindowObject *self = (WindowObject *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->net = (NetObject *)Py_NewRef(net);
    self->optimizer = optimizer == Py_None ? NULL : (OptimizerObject *)Py_NewRef(optimizer);
    ga_status status = ga_window_create(self->net->net, self->optimizer ? self->optimizer->optimizer : NULL, &options, &self->window);
    if (status) {
        raise_status(status, NULL);
        Py_DECREF(self);
        return NULL;
    }
    int64_t need[3];
    ga_window_bytes(self->window, &need[0], &need[1], &need[2]);
    PyObject **array[3] = {&self->buffer, &self->compensation, &self->ema};
    int real = real_type(self->net), kind = buffer_type[options.buffer];
    int types[3] = {kind < 0 ? real : kind, real, real};
    for (int i = 0; i < 3; i++) {
        if (need[i]) {
            *array[i] = empty_array(ga_net_param_count(self->net->net), types[i], &block[i]);
            Py_XDECREF(block[i]);                /* the array keeps it */
            if (!*array[i]) {
                Py_DECREF(self);
                return NULL;
            }
        } else
            *array[i] = Py_NewRef(Py_None);
    }
    void *at[3];
    for (int i = 0; i < 3; i++)
        at[i] = need[i] ? PyArray_DATA((PyArrayObject *)*array[i]) : NULL;
    if (at[2])
        memcpy(at[2], block_memory(self->net->block[GA_PARAMETERS]), (size_t)need[2]);
    status = ga_window_bind(self->window, at[0], at[1], at[2]);
    if (status) {
        raise_status(status, NULL);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void window_dealloc(PyObject *object)
{
    WindowObject *self = (WindowObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    ga_window_free(self->window);
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->compensation);
    Py_XDECREF(self->ema);
    Py_XDECREF((PyObject *)self->optimizer);
    Py_XDECREF((PyObject *)self->net);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *window_set(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    PyObject *net, *optimizer;
    ga_window_options options = {.ema_decay = -1};
    if (parse_window_options(args, &net, &optimizer, &options))
        return NULL;
    ga_status status = ga_window_set(self->window, &options);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

static PyObject *update_dict(const ga_update *u)
{
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:L,s:L,s:L,s:L,s:N,s:i}", "loss_sum", u->loss_sum, "weight", u->weight, "grad_norm", u->grad_norm,
                         "grad_norm_clipped", u->grad_norm_clipped, "samples", (long long)u->samples, "elements", (long long)u->elements,
                         "micro_steps", (long long)u->micro_steps, "rejected", (long long)u->rejected, "clipped",
                         PyBool_FromLong(u->clipped), "skipped", (int)u->skipped);
}

static PyObject *window_begin(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_window_begin(self->window));
    Py_RETURN_NONE;
}

static PyObject *window_accumulate(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    int rejected = 0;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_window_accumulate(self->window, &rejected));
    return PyBool_FromLong(rejected);
}

static PyObject *window_normalize(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_window_normalize(self->window));
    Py_RETURN_NONE;
}

static PyObject *window_clip(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    double max_norm, norm = 0;
    int clipped = 0;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "d", &max_norm))
        return NULL;
    CALL(self->net, status, ga_window_clip(self->window, max_norm, &norm, &clipped));
    return Py_BuildValue("dN", norm, PyBool_FromLong(clipped));
}

static PyObject *window_apply(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_window_apply(self->window));
    Py_RETURN_NONE;
}

static PyObject *window_clear(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    int discard;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "p", &discard))
        return NULL;
    CALL(self->net, status, ga_window_clear(self->window, discard));
    Py_RETURN_NONE;
}

/* add(inputs, target, weight) -> (loss_sum, weight, samples, rejected) */
static PyObject *window_add(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    PyObject *inputs, *target, *weight;
    Batch b = {0};
    double loss_sum = 0, total = 0;
    int rejected = 0;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "OOO", &inputs, &target, &weight) || batch_inputs(&b, self->net, inputs)
        || batch_target(&b, self->net, target, weight) || enter(self->net)) {
        batch_free(&b);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ga_window_add(self->window, &b.batch, &loss_sum, &total, &rejected);
    Py_END_ALLOW_THREADS leave(self->net);
    batch_free(&b);
    return status ? raise_status(status, self->net)
                  : Py_BuildValue("ddLN", loss_sum, total, (long long)b.batch.samples, PyBool_FromLong(rejected));
}

static PyObject *window_finish(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    ga_update update;
    ga_status status = GA_OK;
    CALL(self->net, status, ga_window_finish(self->window, &update));
    return update_dict(&update);
}

/* update(inputs, target, weight, piece, limit) -> (record, losses, weights); limit: pieces at most, 0 for any */
static PyObject *window_update(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    PyObject *inputs, *target, *weight, *losses = NULL, *weights = NULL, *result = NULL;
    long long piece, limit;
    Batch b = {0};
    ga_update update;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "OOOLL", &inputs, &target, &weight, &piece, &limit) || batch_inputs(&b, self->net, inputs)
        || batch_target(&b, self->net, target, weight))
        goto done;
    npy_intp pieces = piece > 0 ? (npy_intp)((b.batch.samples + piece - 1) / piece) : 0;
    if (limit && pieces > limit) {
        PyErr_Format(PyExc_ValueError, "update: %lld samples in micro-batches of %lld are %zd micro-batches, but accumulation_steps is %lld; "
                     "give at most %lld samples, plan a larger micro_batch, or raise accumulation_steps", (long long)b.batch.samples, piece,
                     pieces, limit, limit * piece);
        goto done;
    }
    losses = PyArray_ZEROS(1, &pieces, NPY_FLOAT64, 0);
    weights = PyArray_ZEROS(1, &pieces, NPY_FLOAT64, 0);
    if (!losses || !weights || enter(self->net))
        goto done;
    Py_BEGIN_ALLOW_THREADS status = ga_window_update(self->window, &b.batch, piece, PyArray_DATA((PyArrayObject *)losses),
                                                     PyArray_DATA((PyArrayObject *)weights), &update);
    Py_END_ALLOW_THREADS leave(self->net);
    result = status ? raise_status(status, self->net) : Py_BuildValue("NOO", update_dict(&update), losses, weights);
done:
    Py_XDECREF(losses);
    Py_XDECREF(weights);
    batch_free(&b);
    return result;
}

/* update_many(inputs, target, weight, samples, piece, lr or None) -> (records, losses, weights, done, error or None): records as an array
 * of (windows, 9) float64: loss_sum, weight, grad_norm, grad_norm_clipped, samples, elements, micro_steps, clipped, skipped */
static PyObject *window_update_many(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    PyObject *inputs, *target, *weight, *lr_object, *losses = NULL, *weights = NULL, *records = NULL, *lr = NULL, *result = NULL;
    long long samples, piece;
    int64_t done = 0;
    Batch b = {0};
    ga_update *updates = NULL;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "OOOLLO", &inputs, &target, &weight, &samples, &piece, &lr_object) || batch_inputs(&b, self->net, inputs)
        || batch_target(&b, self->net, target, weight))
        goto done;
    int64_t n = b.batch.samples, windows = samples > 0 ? (n + samples - 1) / samples : 0;
    int64_t whole = piece > 0 ? (samples + piece - 1) / piece : 0;
    npy_intp pieces = windows ? (npy_intp)((windows - 1) * whole + (piece > 0 ? (n - (windows - 1) * samples + piece - 1) / piece : 0)) : 0;
    npy_intp shape[2] = {(npy_intp)windows, 9};
    losses = PyArray_ZEROS(1, &pieces, NPY_FLOAT64, 0);
    weights = PyArray_ZEROS(1, &pieces, NPY_FLOAT64, 0);
    records = PyArray_ZEROS(2, shape, NPY_FLOAT64, 0);
    updates = PyMem_Calloc((size_t)windows + 1, sizeof *updates);
    if (lr_object != Py_None) {
        lr = PyArray_FROMANY(lr_object, NPY_FLOAT64, 1, 1, NPY_ARRAY_CARRAY_RO);
        if (lr && PyArray_SIZE((PyArrayObject *)lr) != windows) {
            PyErr_Format(PyExc_ValueError, "update_many: %zd learning rates for %lld windows", PyArray_SIZE((PyArrayObject *)lr), (long long)windows);
            goto done;
        }
    }
    if (!losses || !weights || !records || !updates || (lr_object != Py_None && !lr) || enter(self->net))
        goto done;
    const double *rates = lr ? PyArray_DATA((PyArrayObject *)lr) : NULL;
    Py_BEGIN_ALLOW_THREADS status = ga_window_update_many(self->window, &b.batch, samples, piece, rates, updates,
                                                          PyArray_DATA((PyArrayObject *)losses), PyArray_DATA((PyArrayObject *)weights), &done);
    Py_END_ALLOW_THREADS leave(self->net);
    double *row = PyArray_DATA((PyArrayObject *)records);
    for (int64_t i = 0; i < done; i++, row += 9) {
        const ga_update *u = &updates[i];
        const double values[9] = {u->loss_sum, u->weight, u->grad_norm, u->grad_norm_clipped, (double)u->samples, (double)u->elements,
                                  (double)u->micro_steps, u->clipped, (double)u->skipped};
        memcpy(row, values, sizeof values);
    }
    PyObject *error = NULL;
    if (status) {
        PyObject *type, *traceback;
        raise_status(status, self->net);
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    result = Py_BuildValue("OOOLN", records, losses, weights, (long long)done, error ? error : Py_NewRef(Py_None));
done:
    Py_XDECREF(losses);
    Py_XDECREF(weights);
    Py_XDECREF(records);
    Py_XDECREF(lr);
    PyMem_Free(updates);
    batch_free(&b);
    return result;
}

/* sums() -> (micro_step, loss_sum, weight_sum, samples) of the open window */
static PyObject *window_sums(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    double loss_sum, weight;
    int64_t samples;
    ga_window_sums(self->window, &loss_sum, &weight, &samples);
    return Py_BuildValue("LddL", (long long)ga_window_micro_step(self->window), loss_sum, weight, (long long)samples);
}

static PyObject *window_get_state(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    WindowObject *self = (WindowObject *)object;
    ga_window_state s;
    const ga_counters *c = ga_window_counters(self->window);
    ga_window_get_state(self->window, &s);
    return Py_BuildValue("{s:s,s:L,s:L,s:L,s:L,s:d,s:d,s:d,s:d,s:N,s:{s:L,s:L,s:L,s:L,s:d}}", "stage", ga_stage_name(s.stage), "micro_step",
                         (long long)s.micro_step, "samples", (long long)s.samples, "elements", (long long)s.elements, "rejected",
                         (long long)s.rejected, "loss_sum", s.loss_sum, "weight_sum", s.weight_sum, "grad_norm", s.grad_norm,
                         "grad_norm_clipped", s.grad_norm_clipped, "clipped", PyBool_FromLong(s.clipped), "counters",
                         "micro_steps", (long long)c->micro_steps, "updates", (long long)c->updates, "samples", (long long)c->samples,
                         "elements", (long long)c->elements, "weight", c->weight);
}

static PyObject *window_set_state(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    const char *stage;
    ga_window_state s = {.stage = -1};
    ga_counters c;
    long long n[8];
    if (!PyArg_ParseTuple(args, "s(LLLL)(ddddp)(LLLLd)", &stage, &n[0], &n[1], &n[2], &n[3], &s.loss_sum, &s.weight_sum, &s.grad_norm,
                          &s.grad_norm_clipped, &s.clipped, &n[4], &n[5], &n[6], &n[7], &c.weight))
        return NULL;
    for (int i = 0; i < GA_STAGES; i++)
        if (!strcmp(stage, ga_stage_name(i)))
            s.stage = i;
    s.micro_step = n[0], s.samples = n[1], s.elements = n[2], s.rejected = n[3];
    c.micro_steps = n[4], c.updates = n[5], c.samples = n[6], c.elements = n[7];
    ga_status status = ga_window_set_state(self->window, &s);
    if (status)
        return raise_status(status, NULL);
    *ga_window_counters(self->window) = c;
    Py_RETURN_NONE;
}

static PyObject *window_measure(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    int on;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "p", &on))
        return NULL;
    CALL(self->net, status, ga_window_measure(self->window, on));
    Py_RETURN_NONE;
}

/* noise([numbers to restore]) -> the numbers of ga_noise */
static PyObject *window_noise(PyObject *object, PyObject *args)
{
    ga_noise *n = ga_window_noise(((WindowObject *)object)->window), given = *n;
    long long parts = n->parts;
    if (!PyArg_ParseTuple(args, "|(Lddddd)", &parts, &given.small, &given.small_mean_squares, &given.small_noise, &given.mean, &given.noise))
        return NULL;
    given.parts = parts;
    *n = given;
    return Py_BuildValue("(Lddddd)", (long long)n->parts, n->small, n->small_mean_squares, n->small_noise, n->mean, n->noise);
}

/* arrays(writable=False) -> {"buffer": flat array, "compensation": ..., "ema": ...}, those that there are */
static PyObject *window_arrays(PyObject *object, PyObject *args)
{
    WindowObject *self = (WindowObject *)object;
    const char *name[3] = {"buffer", "compensation", "ema"};
    PyObject *array[3] = {self->buffer, self->compensation, self->ema};
    int writable = 0;
    if (!PyArg_ParseTuple(args, "|p", &writable))
        return NULL;
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < 3; i++) {
        if (array[i] == Py_None)
            continue;
        PyArrayObject *a = (PyArrayObject *)array[i];
        PyObject *view = block_array(PyArray_BASE(a), PyArray_DATA(a), 1, PyArray_SHAPE(a), NULL, PyArray_TYPE(a), writable);
        if (!view || PyDict_SetItemString(dict, name[i], view))
            Py_CLEAR(dict);
        Py_XDECREF(view);
    }
    return dict;
}

static PyObject *array_attribute(PyObject *object, void *closure)
{
    WindowObject *self = (WindowObject *)object;
    PyObject *array = closure == NULL ? self->buffer : *(const char *)closure == 'c' ? self->compensation : self->ema;
    return Py_NewRef(array);
}

static PyObject *window_non_finite(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(ga_window_non_finite(((WindowObject *)object)->window));
}

static PyMethodDef window_methods[] = {
    {"set", window_set, METH_VARARGS, "set(same arguments as the constructor): new options, while empty"},
    {"begin", window_begin, METH_NOARGS, "begin()"},
    {"accumulate", window_accumulate, METH_NOARGS, "accumulate() -> rejected"},
    {"normalize", window_normalize, METH_NOARGS, "normalize()"},
    {"clip", window_clip, METH_VARARGS, "clip(max_norm) -> (norm, clipped)"},
    {"apply", window_apply, METH_NOARGS, "apply(): the optimizer's step"},
    {"clear", window_clear, METH_VARARGS, "clear(discard)"},
    {"add", window_add, METH_VARARGS, "add(inputs, target, weight) -> (loss_sum, weight, samples, rejected)"},
    {"finish", window_finish, METH_NOARGS, "finish() -> record"},
    {"update", window_update, METH_VARARGS, "update(inputs, target, weight, piece, limit) -> (record, losses, weights)"},
    {"update_many", window_update_many, METH_VARARGS, "update_many(inputs, target, weight, samples, piece, lr) -> (records, losses, weights, done, error)"},
    {"sums", window_sums, METH_NOARGS, "sums() -> (micro_step, loss_sum, weight_sum, samples)"},
    {"arrays", window_arrays, METH_VARARGS, "arrays(writable=False) -> {name: flat array}"},
    {"get_state", window_get_state, METH_NOARGS, "get_state() -> dict"},
    {"set_state", window_set_state, METH_VARARGS, "set_state(stage, (micro_step, samples, elements, rejected), (loss_sum, weight_sum, "
     "grad_norm, grad_norm_clipped, clipped), (micro_steps, updates, samples, elements, weight))"},
    {"measure", window_measure, METH_VARARGS, "measure(on): squared norms for the noise scale, from an empty window on"},
    {"noise", window_noise, METH_VARARGS, "noise([restore]) -> (parts, small, small_mean_squares, small_noise, mean, noise) of the open "
     "or last window"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef window_getset[] = {
    {"non_finite", window_non_finite, NULL, "where the first NaN or infinity of the last window that had one came from", NULL},
    {"buffer", array_attribute, NULL, "flat buffer of a staged window, or None", NULL},
    {"compensation", array_attribute, NULL, "its compensation, or None", "c"},
    {"ema", array_attribute, NULL, "flat moving average of the parameters, or None", "e"},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot window_slots[] = {
    {Py_tp_new, window_new}, {Py_tp_dealloc, window_dealloc}, {Py_tp_methods, window_methods}, {Py_tp_getset, window_getset},
    {Py_tp_doc, "Window(net, optimizer, reduction, staged, buffer, max_grad_norm, on_nonfinite, loss_scale, ema_decay)"}, {0, NULL},
};
PyType_Spec Window_Spec = {"gradaccum._core.Window", sizeof(WindowObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, window_slots};
