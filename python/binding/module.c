/* The module gradaccum._core. */
#define GA_IMPORT_ARRAY
#include "binding.h"

PyTypeObject *Block_Type, *Net_Type, *Optimizer_Type, *Window_Type;

static PyObject *load_blas(PyObject *module, PyObject *args)
{
    const char *path;
    (void)module;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    if (ga_blas_load(path))
        return PyErr_Format(PyExc_OSError, "%s", ga_error());
    Py_RETURN_NONE;
}

static PyObject *blas_name(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    return PyUnicode_FromString(ga_blas_name());
}

static PyObject *cpu_level(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const char *level = ga_cpu_level();
    (void)module;
    return level ? PyUnicode_FromString(level) : raise_status(GA_EVALUE, NULL);
}

static PyObject *cpu_bf16(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    return PyBool_FromLong(ga_cpu_bf16());
}

static PyObject *get_num_threads(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    (void)module;
    return PyLong_FromLong(ga_get_threads());
}

static PyObject *set_num_threads(PyObject *module, PyObject *args)
{
    int n;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &n))
        return NULL;
    ga_status status = ga_set_threads(n);
    if (status)
        return raise_status(status, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"load_blas", load_blas, METH_VARARGS, "load_blas(path): OSError if it is no OpenBLAS"},
    {"blas_name", blas_name, METH_NOARGS, "version and kernel of the loaded OpenBLAS, or ''"},
    {"cpu_level", cpu_level, METH_NOARGS, "kernels in use: avx512, avx2 or baseline"},
    {"cpu_bf16", cpu_bf16, METH_NOARGS, "whether the processor multiplies bfloat16 numbers"},
    {"get_num_threads", get_num_threads, METH_NOARGS,
     "get_num_threads() -> int\n\nThreads that a pass may use. Results do not depend on it."},
    {"set_num_threads", set_num_threads, METH_VARARGS,
     "set_num_threads(n)\n\nThreads that a pass may use, 1 to 256; at most those that the network was planned for take part.\n"
     "Results do not depend on it. The default is GRADACCUM_NUM_THREADS, or the number of cores."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

static int execute(PyObject *module)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    if (!StageError) {
        PyObject *errors = PyImport_ImportModule("gradaccum.errors");
        StageError = errors ? PyObject_GetAttrString(errors, "StageError") : NULL;
        Py_XDECREF(errors);
    }
    if (!StageError || PyModule_AddObjectRef(module, "StageError", StageError))
        return -1;
    return add_type(module, &Block_Spec, &Block_Type) || add_type(module, &Net_Spec, &Net_Type)
           || add_type(module, &Optimizer_Spec, &Optimizer_Type) || add_type(module, &Window_Spec, &Window_Type) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "gradaccum._core", "The C core of gradaccum.", 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }
