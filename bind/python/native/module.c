/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension module `yuebing._native`: its types, functions and numbers.
 */
#include "native.h"

#include "yuebing/status.h"

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "yuebing._native",
    .m_doc = "The C side of packages mooncake and yuebing.",
    .m_size = (Py_ssize_t)sizeof(struct yb_py_module),
    .m_methods = yb_py_functions,
};

struct yb_py_module *
yb_py_module(void)
{
    PyObject *module = PyState_FindModule(&definition);

    if (module == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter is shutting down");
        return NULL;
    }
    return PyModule_GetState(module);
}

void
yb_py_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Methods beyond those of the type's own file. */
static bool
add_methods(PyObject *type, PyMethodDef *methods)
{
    for (; methods->ml_name != NULL; methods++) {
        PyObject *method = PyDescr_NewMethod((PyTypeObject *)(void *)type, methods);

        if (method == NULL || PyObject_SetAttrString(type, methods->ml_name, method) != 0) {
            Py_XDECREF(method);
            return false;
        }
        Py_DECREF(method);
    }
    return true;
}

static bool
add_type(PyObject *module, PyType_Spec *spec, const char *name, PyObject **type_out)
{
    *type_out = PyType_FromSpec(spec);
    if (*type_out == NULL) {
        return false;
    }
    Py_INCREF(*type_out); /* One for the module's state, which lives as long as the process. */
    if (PyModule_AddObject(module, name, *type_out) != 0) {
        Py_DECREF(*type_out);
        return false;
    }
    return true;
}

struct number {
    const char *name;
    long value;
};

static bool
add_numbers(PyObject *module, const char *name, const struct number *rows, size_t count)
{
    PyObject *numbers = PyDict_New();

    for (size_t i = 0; i < count && numbers != NULL; i++) {
        PyObject *value = PyLong_FromLong(rows[i].value);

        if (value == NULL || PyDict_SetItemString(numbers, rows[i].name, value) != 0) {
            Py_CLEAR(numbers);
        }
        Py_XDECREF(value);
    }
    if (numbers == NULL || PyModule_AddObject(module, name, numbers) != 0) {
        Py_XDECREF(numbers);
        return false;
    }
    return true;
}

static bool
add_codes(PyObject *module)
{
    static const struct number rows[] = {
#define X(name, value, text) {#name, value},
        YB_COMPAT_CODE_MAP(X)
#undef X
    };

    return add_numbers(module, "CODES", rows, sizeof(rows) / sizeof(rows[0]));
}

static bool
add_statuses(PyObject *module)
{
    static const struct number rows[] = {
#define X(name, value, scope, text) {#name, value},
        YB_STATUS_MAP(X)
#undef X
    };

    return add_numbers(module, "STATUSES", rows, sizeof(rows) / sizeof(rows[0]));
}

static bool
fill(PyObject *module)
{
    struct yb_py_module *state = PyModule_GetState(module);

    return add_type(module, &yb_py_store_spec, "Store", &state->store_type) &&
           add_methods(state->store_type, yb_py_store_put_methods) &&
           add_methods(state->store_type, yb_py_store_get_methods) &&
           add_methods(state->store_type, yb_py_store_session_methods) &&
           add_methods(state->store_type, yb_py_store_more_methods) &&
           add_type(module, &yb_py_engine_spec, "Engine", &state->engine_type) &&
           add_type(module, &yb_py_inner_engine_spec, "InnerTransferEngine",
                    &state->inner_engine_type) &&
           add_type(module, &yb_py_buffer_spec, "BufferHandle", &state->buffer_type) &&
           add_type(module, &yb_py_owned_spec, "OwnedView", &state->owned_type) &&
           add_type(module, &yb_py_client_spec, "Client", &state->client_type) &&
           add_type(module, &yb_py_batch_spec, "Batch", &state->batch_type) && add_codes(module) &&
           add_statuses(module);
}

PyMODINIT_FUNC PyInit__native(void); /* Python looks it up by name. */

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module == NULL || !fill(module)) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
