/* The network object: describing, planning, looking, and the stages of a micro-batch. */
#include "binding.h"

static PyObject *net_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int dtype, engine;
    unsigned long long seed;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iiK", &dtype, &engine, &seed))
        return NULL;
    NetObject *self = (NetObject *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->dtype = dtype;
    self->functions = PyList_New(0);
    ga_status status = self->functions ? ga_net_create(dtype, engine, seed, &self->net) : GA_EMEMORY;
    if (status) {
        if (!PyErr_Occurred())
            raise_status(status, NULL);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int net_traverse(PyObject *object, visitproc visit, void *arg)
{
    NetObject *self = (NetObject *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->functions);
    Py_VISIT(self->error);
    return 0;
}

static int net_clear(PyObject *object)
{
    NetObject *self = (NetObject *)object;
    Py_CLEAR(self->functions);
    Py_CLEAR(self->error);
    return 0;
}

static void net_dealloc(PyObject *object)
{
    NetObject *self = (NetObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    net_clear(object);
    ga_net_free(self->net);
    Py_XDECREF(self->profile);
    for (int b = 0; b < GA_BLOCKS; b++)
        Py_XDECREF(self->block[b]);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- describing ---- */

static int parse_ints(PyObject *object, int *out, int room, const char *what)
{
    PyObject *items = PySequence_Fast(object, what);
    if (!items)
        return -1;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    if (n > room)
        PyErr_Format(PyExc_ValueError, "%s: got %zd, at most %d are supported", what, n, room);
    for (Py_ssize_t i = 0; i < n && n <= room; i++)
        out[i] = (int)PyLong_AsLong(PySequence_Fast_GET_ITEM(items, i));
    Py_DECREF(items);
    return PyErr_Occurred() ? -1 : (int)n;
}

static PyObject *net_add_input(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    const char *name;
    PyObject *shape_object;
    int integer, sequence, value;
    ga_shape shape;
    if (!PyArg_ParseTuple(args, "sOpp", &name, &shape_object, &integer, &sequence) || parse_shape(shape_object, &shape, name))
        return NULL;
    ga_status status = ga_net_add_input(self->net, name, &shape, integer, sequence, &value);
    return status ? raise_status(status, NULL) : PyLong_FromLong(value);
}

static PyObject *net_add_node(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    const char *kind, *name;
    PyObject *options_object, *inputs_object, *shared_object, *key, *item;
    if (!PyArg_ParseTuple(args, "ssO!OO", &kind, &name, &PyDict_Type, &options_object, &inputs_object, &shared_object))
        return NULL;
    ga_option options[16];
    int n_options = 0, inputs[GA_MAX_INPUTS], shared[GA_MAX_PARAMS], node, value;
    for (Py_ssize_t position = 0; PyDict_Next(options_object, &position, &key, &item); n_options++) {
        if (n_options == 16)
            return PyErr_Format(PyExc_ValueError, "%s: more than 16 options", name);
        options[n_options].name = PyUnicode_AsUTF8(key);
        options[n_options].value = PyFloat_AsDouble(item);
        if (PyErr_Occurred())
            return NULL;
    }
    int n_inputs = parse_ints(inputs_object, inputs, GA_MAX_INPUTS, "inputs of a node");
    if (n_inputs < 0)
        return NULL;
    for (int i = 0; i < GA_MAX_PARAMS; i++)
        shared[i] = -1;
    if (shared_object != Py_None && parse_ints(shared_object, shared, GA_MAX_PARAMS, "parameters of a node") < 0)
        return NULL;
    ga_status status = ga_net_add_node(self->net, kind, name, options, n_options, inputs, n_inputs, shared, &node, &value);
    return status ? raise_status(status, NULL) : Py_BuildValue("ii", node, value);
}

/* ---- functions in Python ---- */

static PyObject *param_views(NetObject *self, int node, int gradients)
{
    ga_node_info info;
    ga_node_get(self->net, node, &info);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < info.n_params; i++) {
        ga_param_info p;
        ga_param_get(self->net, info.params[i], &p);
        int block = gradients ? GA_GRADIENTS : GA_PARAMETERS;
        npy_intp shape[GA_MAX_RANK], strides[GA_MAX_RANK], step = 1;
        for (int d = p.shape.rank - 1; d >= 0; d--) {
            int axis = p.order[d];
            shape[axis] = p.shape.dim[axis];
            strides[axis] = step;
            step *= shape[axis];
        }
        char *at = (char *)block_memory(self->block[block]) + p.offset * (self->dtype == GA_FLOAT64 ? 8 : 4);
        PyObject *array = gradients && p.frozen ? Py_NewRef(Py_None)
                          : block_array(self->block[block], at, p.shape.rank, shape, strides, real_type(self), gradients);
        if (!array || PyList_Append(list, array))
            Py_CLEAR(list);
        Py_XDECREF(array);
    }
    return list;
}

/* The result of a user's function into its place, exact shape and real numbers only. */
static int put(PyObject *result, PyObject *place, const char *name, const char *what)
{
    PyArrayObject *to = (PyArrayObject *)place, *from = (PyArrayObject *)PyArray_FROM_O(result);
    if (!from)
        return -1;
    int same = PyArray_NDIM(from) == PyArray_NDIM(to) && PyArray_CompareLists(PyArray_DIMS(from), PyArray_DIMS(to), PyArray_NDIM(to));
    if (!same) {
        PyObject *a = PyObject_GetAttrString((PyObject *)from, "shape"), *b = PyObject_GetAttrString(place, "shape");
        PyErr_Format(PyExc_ValueError, "%s: %s returned shape %S, expected %S", name, what, a, b);
        Py_XDECREF(a);
        Py_XDECREF(b);
    } else if (!PyTypeNum_ISFLOAT(PyArray_TYPE(from)) && !PyTypeNum_ISINTEGER(PyArray_TYPE(from)) && PyArray_TYPE(from) != NPY_BOOL)
        PyErr_Format(PyExc_TypeError, "%s: %s returned dtype %S, expected real numbers", name, what, PyArray_DESCR(from));
    else
        PyArray_CopyInto(to, from);
    Py_DECREF(from);
    return PyErr_Occurred() ? -1 : 0;
}

static int run_function(NetObject *self, const ga_function_call *call)
{
    ga_node_info info;
    ga_value_info value;
    ga_node_get(self->net, call->node, &info);
    PyObject *xs = PyList_New(0), *dxs = PyList_New(0), *dy = NULL, *y = NULL, *result = NULL;
    PyObject *params = param_views(self, call->node, 0), *grads = call->backward ? param_views(self, call->node, 1) : PyList_New(0);
    int failed = !xs || !dxs || !params || !grads;
    for (int k = 0; k < info.n_inputs && !failed; k++) {
        ga_value_get(self->net, info.inputs[k], &value);
        int type = value.integer ? NPY_INT64 : real_type(self);
        PyObject *x = stored_view(self, (void *)call->x[k], &value.shape, value.sequence, call->samples, call->length, type, 0);
        failed = !x || PyList_Append(xs, x);
        Py_XDECREF(x);
        PyObject *dx = call->dx[k] ? stored_view(self, call->dx[k], &value.shape, value.sequence, call->samples, call->length, type, 1)
                                   : Py_NewRef(Py_None);
        failed = failed || !dx || PyList_Append(dxs, dx);
        Py_XDECREF(dx);
    }
    if (!failed) {
        ga_value_get(self->net, info.output, &value);
        y = stored_view(self, call->y, &value.shape, value.sequence, call->samples, call->length, real_type(self), !call->backward);
        dy = call->backward ? stored_view(self, (void *)call->dy, &value.shape, value.sequence, call->samples, call->length,
                                          real_type(self), 0) : Py_NewRef(Py_None);
        if (y && dy)
            result = PyObject_CallFunction(PyList_GET_ITEM(self->functions, call->node), "OOOiOO", xs, y, dy, call->training, params, grads);
        failed = !result;
    }
    if (!failed && !call->backward)
        failed = put(result, y, info.name, "forward");
    else if (!failed) {
        failed = !PyTuple_Check(result) || PyTuple_GET_SIZE(result) != info.n_inputs;
        if (failed)
            PyErr_Format(PyExc_ValueError, "%s: backward must return one gradient for each of its %d inputs", info.name, info.n_inputs);
        for (int k = 0; k < info.n_inputs && !failed; k++)
            if (PyList_GET_ITEM(dxs, k) != Py_None)
                failed = put(PyTuple_GET_ITEM(result, k), PyList_GET_ITEM(dxs, k), info.name, "backward");
    }
    Py_XDECREF(xs);
    Py_XDECREF(dxs);
    Py_XDECREF(y);
    Py_XDECREF(dy);
    Py_XDECREF(params);
    Py_XDECREF(grads);
    Py_XDECREF(result);
    return failed;
}

static int function_trampoline(void *context, const ga_function_call *call)
{
    NetObject *self = context;
    PyGILState_STATE state = PyGILState_Ensure();
    int failed = run_function(self, call);
    if (failed) {
        PyObject *type, *traceback;
        PyErr_Fetch(&type, &self->error, &traceback);
        PyErr_NormalizeException(&type, &self->error, &traceback);
        if (traceback)
            PyException_SetTraceback(self->error, traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    PyGILState_Release(state);
    return failed;
}

static PyObject *net_add_function(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    const char *name;
    PyObject *callable, *shape_object, *inputs_object, *params;
    int sequence, inputs[GA_MAX_INPUTS], node, value;
    ga_shape shape, param_shapes[GA_MAX_PARAMS];
    const char *param_names[GA_MAX_PARAMS];
    if (!PyArg_ParseTuple(args, "sOOpOO!", &name, &callable, &shape_object, &sequence, &inputs_object, &PyList_Type, &params)
        || parse_shape(shape_object, &shape, name))
        return NULL;
    int n_inputs = parse_ints(inputs_object, inputs, GA_MAX_INPUTS, "inputs of a function"), n_params = (int)PyList_GET_SIZE(params);
    if (n_inputs < 0)
        return NULL;
    if (n_params > GA_MAX_PARAMS)
        return PyErr_Format(PyExc_ValueError, "%s: at most %d parameters are supported", name, GA_MAX_PARAMS);
    for (int i = 0; i < n_params; i++) {
        PyObject *param_shape;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(params, i), "sO", &param_names[i], &param_shape)
            || parse_shape(param_shape, &param_shapes[i], param_names[i]))
            return NULL;
    }
    ga_status status = ga_net_add_function(self->net, name, function_trampoline, self, &shape, sequence, inputs, n_inputs, param_names,
                                           param_shapes, n_params, &node, &value);
    if (status)
        return raise_status(status, NULL);
    while (PyList_GET_SIZE(self->functions) < node)          /* the list is indexed by node */
        if (PyList_Append(self->functions, Py_None))
            return NULL;
    if (PyList_Append(self->functions, callable))
        return NULL;
    return Py_BuildValue("ii", node, value);
}

static PyObject *net_segment(PyObject *object, PyObject *args)
{
    int segment;
    if (!PyArg_ParseTuple(args, "i", &segment))
        return NULL;
    ga_status status = ga_net_segment(((NetObject *)object)->net, segment);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

static PyObject *net_freeze(PyObject *object, PyObject *args)
{
    int param, frozen;
    if (!PyArg_ParseTuple(args, "ip", &param, &frozen))
        return NULL;
    ga_status status = ga_net_freeze(((NetObject *)object)->net, param, frozen);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

/* ---- planning ---- */

static PyObject *net_plan(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    long long micro_batch;
    int recompute;
    ga_plan_options options;
    if (!PyArg_ParseTuple(args, "Lppip", &micro_batch, &options.keep_all, &options.fold_ties, &recompute, &options.lean))
        return NULL;
    options.recompute = recompute;
    ga_status status = ga_net_plan(self->net, micro_batch, &options);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

static const char *const block_names[GA_BLOCKS] = {"parameters", "gradients", "activations", "state", "packed", "workspace"};

static PyObject *net_bytes(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    long long micro_batch;
    int recompute = -1, lean = -1;
    ga_bytes size;
    if (!PyArg_ParseTuple(args, "L|ii", &micro_batch, &recompute, &lean))
        return NULL;
    ga_plan_options options = ga_net_plan_options(self->net);
    if (recompute >= 0)
        options.recompute = (ga_recompute)recompute;
    if (lean >= 0)
        options.lean = lean;
    ga_status status = ga_net_bytes(self->net, micro_batch, &options, &size);
    if (status)
        return raise_status(status, NULL);
    PyObject *dict = Py_BuildValue("{s:L,s:L,s:L,s:i}", "rows", (long long)size.rows, "activation_gradients", (long long)size.gradient_part, "reuse_saved",
                                   (long long)size.reuse_saved, "recomputed", size.recomputed);
    for (int b = 0; dict && b < GA_BLOCKS; b++) {
        PyObject *n = PyLong_FromLongLong(b == GA_ACTIVATIONS ? size.bytes[b] - size.gradient_part : size.bytes[b]);
        if (!n || PyDict_SetItemString(dict, block_names[b], n))
            Py_CLEAR(dict);
        Py_XDECREF(n);
    }
    return dict;
}

static PyObject *net_allocate(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    long long micro_batch;
    ga_bytes size;
    if (!PyArg_ParseTuple(args, "L", &micro_batch))
        return NULL;
    ga_status status = ga_net_bytes(self->net, micro_batch, NULL, &size);
    for (int b = 0; !status && b < GA_BLOCKS; b++) {
        PyObject *block = block_new(size.bytes[b]);
        if (!block)
            return NULL;
        Py_XSETREF(self->block[b], block);
        status = ga_net_bind(self->net, b, block_memory(block));
    }
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

/* ---- looking ---- */

static PyObject *int_list(const int *values, int n)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++)
        PyList_SET_ITEM(list, i, PyLong_FromLong(values[i]));
    return list;
}

static PyObject *net_params(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ga_net_params(self->net); i++) {
        ga_param_info p;
        ga_param_get(self->net, i, &p);
        PyObject *item = Py_BuildValue("sNLLiiiN", p.name, shape_tuple(&p.shape), (long long)p.offset, (long long)p.count, p.node, p.uses,
                                       p.frozen, int_list(p.order, p.shape.rank));
        if (!item || PyList_Append(list, item))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *net_nodes(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ga_net_nodes(self->net); i++) {
        ga_node_info n;
        ga_node_get(self->net, i, &n);
        PyObject *item = Py_BuildValue("ssNiNiLLLd", n.name, n.kind, int_list(n.inputs, n.n_inputs), n.output, int_list(n.params, n.n_params),
                                       n.mixes_samples, (long long)n.saved_bytes, (long long)n.state_offset, (long long)n.state_count, n.flops);
        if (!item || PyList_Append(list, item))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *net_values(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < ga_net_values(self->net); i++) {
        ga_value_info v;
        ga_value_get(self->net, i, &v);
        PyObject *item = Py_BuildValue("Niiii", shape_tuple(&v.shape), v.producer, v.integer, v.sequence, v.has_grad);
        if (!item || PyList_Append(list, item))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *net_target(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ga_shape shape;
    int integer, sequence;
    ga_status status = ga_net_target(((NetObject *)object)->net, &shape, &integer, &sequence);
    return status ? raise_status(status, NULL) : Py_BuildValue("Nii", shape_tuple(&shape), integer, sequence);
}

/* array(block, offset in reals, shape, writable) */
static PyObject *net_array(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    int block, writable;
    long long offset;
    PyObject *shape_object;
    ga_shape shape;
    if (!PyArg_ParseTuple(args, "iLOp", &block, &offset, &shape_object, &writable) || parse_shape(shape_object, &shape, "array"))
        return NULL;
    if (block < 0 || block >= GA_BLOCKS || !self->block[block])
        return PyErr_Format(PyExc_ValueError, "there is no block %d", block);
    npy_intp dims[GA_MAX_RANK];
    for (int i = 0; i < shape.rank; i++)
        dims[i] = shape.dim[i];
    char *at = (char *)block_memory(self->block[block]) + offset * (self->dtype == GA_FLOAT64 ? 8 : 4);
    return block_array(self->block[block], at, shape.rank, dims, NULL, real_type(self), writable);
}

/* value(index, grad, samples): a live view of a value of the last micro-batch. */
static PyObject *net_value(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    int value, grad;
    int64_t offset, length, samples;
    ga_value_info info;
    if (!PyArg_ParseTuple(args, "ip", &value, &grad))
        return NULL;
    ga_status status = ga_value_get(self->net, value, &info);
    if (!status)
        status = ga_value_place(self->net, value, grad, &offset, &samples, &length);
    if (status)
        return raise_status(status, NULL);
    return stored_view(self, (char *)block_memory(self->block[GA_ACTIVATIONS]) + offset, &info.shape, info.sequence, samples, length,
                       info.integer ? NPY_INT64 : real_type(self), 0);
}

static PyObject *net_stage(PyObject *object, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(ga_stage_name(ga_net_stage(((NetObject *)object)->net)));
}

static PyObject *net_train(PyObject *object, PyObject *args)
{
    int training;
    if (!PyArg_ParseTuple(args, "p", &training))
        return NULL;
    ga_net_train(((NetObject *)object)->net, training);
    Py_RETURN_NONE;
}

static PyObject *net_touch(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ga_net_touch(((NetObject *)object)->net);
    Py_RETURN_NONE;
}

/* ---- stages ---- */

static PyObject *net_forward(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    PyObject *inputs;
    Batch b = {0};
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "O", &inputs) || batch_inputs(&b, self, inputs) || enter(self)) {
        batch_free(&b);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ga_forward(self->net, &b.batch);
    Py_END_ALLOW_THREADS leave(self);
    batch_free(&b);
    if (status)
        return raise_status(status, self);
    Py_RETURN_NONE;
}

static PyObject *net_loss(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    PyObject *target, *weight;
    Batch b = {0};
    double loss_sum = 0, total = 0;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "OO", &target, &weight) || batch_target(&b, self, target, weight) || enter(self)) {
        batch_free(&b);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ga_loss(self->net, &b.batch, &loss_sum, &total);
    Py_END_ALLOW_THREADS leave(self);
    batch_free(&b);
    return status ? raise_status(status, self) : Py_BuildValue("dd", loss_sum, total);
}

static PyObject *net_backward(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    ga_status status = GA_OK;
    CALL(self, status, ga_backward(self->net));
    Py_RETURN_NONE;
}

static PyObject *net_zero_grad(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    ga_status status = GA_OK;
    CALL(self, status, ga_zero_grad(self->net));
    Py_RETURN_NONE;
}

static PyObject *net_predict(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    PyObject *inputs, *out = NULL;
    Batch b = {0};
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "O", &inputs) || batch_inputs(&b, self, inputs))
        goto done;
    ga_value_info v;
    status = ga_value_get(self->net, ga_net_prediction(self->net), &v);
    if (status) {
        raise_status(status, self);
        goto done;
    }
    npy_intp shape[GA_MAX_RANK + 1] = {b.batch.samples};
    for (int i = 0; i < v.shape.rank; i++)
        shape[i + 1] = i == 0 && v.sequence && b.batch.length ? b.batch.length : v.shape.dim[i];
    out = PyArray_SimpleNew(v.shape.rank + 1, shape, real_type(self));
    if (!out || enter(self)) {
        Py_CLEAR(out);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS status = ga_predict(self->net, &b.batch, PyArray_DATA((PyArrayObject *)out));
    Py_END_ALLOW_THREADS leave(self);
    if (status) {
        Py_CLEAR(out);
        raise_status(status, self);
    }
done:
    batch_free(&b);
    return out;
}

static PyObject *net_evaluate(PyObject *object, PyObject *args)
{
    NetObject *self = (NetObject *)object;
    PyObject *inputs, *target, *weight;
    Batch b = {0};
    double loss_sum = 0, total = 0;
    ga_status status = GA_OK;
    if (!PyArg_ParseTuple(args, "OOO", &inputs, &target, &weight) || batch_inputs(&b, self, inputs)
        || batch_target(&b, self, target, weight) || enter(self)) {
        batch_free(&b);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ga_evaluate(self->net, &b.batch, &loss_sum, &total);
    Py_END_ALLOW_THREADS leave(self);
    batch_free(&b);
    return status ? raise_status(status, self) : Py_BuildValue("dd", loss_sum, total);
}

static PyObject *net_sample_losses(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    const double *loss, *weight;
    int64_t samples;
    ga_status status = ga_net_sample_losses(self->net, &loss, &weight, &samples);
    if (status)
        return raise_status(status, self);
    npy_intp n = samples;
    PyObject *a = block_array(self->block[GA_ACTIVATIONS], (void *)loss, 1, &n, NULL, NPY_FLOAT64, 0);
    PyObject *b = block_array(self->block[GA_ACTIVATIONS], (void *)weight, 1, &n, NULL, NPY_FLOAT64, 0);
    if (!a || !b) {
        Py_XDECREF(a);
        Py_XDECREF(b);
        return NULL;
    }
    return Py_BuildValue("NN", a, b);
}

/* profile(array of (nodes + 1, 4) float64, or None) */
static PyObject *net_profile(PyObject *object, PyObject *argument)
{
    NetObject *self = (NetObject *)object;
    if (enter(self))
        return NULL;
    ga_time *times = NULL;
    if (argument != Py_None) {
        PyArrayObject *array = (PyArrayObject *)argument;
        if (!PyArray_Check(argument) || PyArray_TYPE(array) != NPY_FLOAT64 || !PyArray_ISCARRAY(array)
            || PyArray_SIZE(array) != 4 * (ga_net_nodes(self->net) + 1)) {
            leave(self);
            PyErr_SetString(PyExc_ValueError, "profile: expected a float64 array of (nodes + 1, 4)");
            return NULL;
        }
        times = PyArray_DATA(array);
    }
    ga_net_profile(self->net, times);
    Py_XSETREF(self->profile, times ? Py_NewRef(argument) : NULL);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *net_guards_intact(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    NetObject *self = (NetObject *)object;
    for (int b = 0; b < GA_BLOCKS; b++)
        if (self->block[b] && !block_intact(self->block[b]))
            Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyMethodDef net_methods[] = {
    {"add_input", net_add_input, METH_VARARGS, "add_input(name, shape, integer, sequence) -> value"},
    {"add_node", net_add_node, METH_VARARGS, "add_node(kind, name, options, inputs, shared) -> (node, value)"},
    {"add_function", net_add_function, METH_VARARGS, "add_function(name, callable, shape, sequence, inputs, params) -> (node, value)"},
    {"freeze", net_freeze, METH_VARARGS, "freeze(param, frozen)"},
    {"segment", net_segment, METH_VARARGS, "segment(number): nodes added from now on are computed again in backward; 0 ends it"},
    {"plan", net_plan, METH_VARARGS, "plan(micro_batch, keep_all, fold_ties, recompute, lean)"},
    {"bytes", net_bytes, METH_VARARGS, "bytes(micro_batch, recompute=-1, lean=-1) -> dict; -1: as planned"},
    {"allocate", net_allocate, METH_VARARGS, "allocate(micro_batch): all blocks"},
    {"params", net_params, METH_NOARGS, "[(name, shape, offset, count, node, uses, frozen, order)]"},
    {"nodes", net_nodes, METH_NOARGS, "[(name, kind, inputs, output, params, mixes_samples, saved_bytes, state_offset, state_count, flops)]"},
    {"values", net_values, METH_NOARGS, "[(shape, producer, integer, sequence, has_grad)]"},
    {"target", net_target, METH_NOARGS, "(shape, integer, sequence)"},
    {"array", net_array, METH_VARARGS, "array(block, offset, shape, writable)"},
    {"value", net_value, METH_VARARGS, "value(index, grad) -> live view"},
    {"train", net_train, METH_VARARGS, "train(flag)"},
    {"touch", net_touch, METH_NOARGS, "parameters were written from outside"},
    {"forward", net_forward, METH_VARARGS, "forward(inputs)"},
    {"loss", net_loss, METH_VARARGS, "loss(target, weight) -> (loss_sum, weight)"},
    {"backward", net_backward, METH_NOARGS, "backward()"},
    {"zero_grad", net_zero_grad, METH_NOARGS, "zero_grad()"},
    {"predict", net_predict, METH_VARARGS, "predict(inputs) -> array"},
    {"evaluate", net_evaluate, METH_VARARGS, "evaluate(inputs, target, weight) -> (loss_sum, weight)"},
    {"profile", net_profile, METH_O, "profile(float64 array of (nodes + 1, 4): seconds forward, backward, pack, and samples; None ends it)"},
    {"guards_intact", net_guards_intact, METH_NOARGS, "nothing was written behind the end of a block"},
    {"sample_losses", net_sample_losses, METH_NOARGS, "(loss, weight) per sample of the last loss stage"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef net_getset[] = {{"stage", net_stage, NULL, "name of the stage that ran last", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot net_slots[] = {
    {Py_tp_new, net_new}, {Py_tp_dealloc, net_dealloc}, {Py_tp_traverse, net_traverse}, {Py_tp_clear, net_clear},
    {Py_tp_methods, net_methods}, {Py_tp_getset, net_getset}, {Py_tp_doc, "Net(dtype, engine, seed)"}, {0, NULL},
};
PyType_Spec Net_Spec = {"gradaccum._core.Net", sizeof(NetObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
                        net_slots};
