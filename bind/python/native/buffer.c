/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory shown through the buffer protocol. A view keeps the object alive, and so the memory: a
 * BufferHandle owns a value of the library's, an OwnedView has an owner in Python.
 */
#include "native.h"

struct handle {
    PyObject ob_base;
    struct yb_compat_buffer buffer;
};

static struct handle *
handle_of(PyObject *self)
{
    return (struct handle *)(void *)self;
}

PyObject *
yb_py_buffer_new(struct yb_compat_buffer *buffer)
{
    struct yb_py_module *module = yb_py_module();
    PyTypeObject *type;
    PyObject *self = NULL;

    if (module != NULL) {
        type = (PyTypeObject *)(void *)module->buffer_type;
        self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    }
    if (self == NULL) {
        yb_compat_buffer_free(buffer);
        return NULL;
    }
    handle_of(self)->buffer = *buffer;
    *buffer = (struct yb_compat_buffer){0};
    return self;
}

static void
handle_dealloc(PyObject *self)
{
    yb_compat_buffer_free(&handle_of(self)->buffer);
    yb_py_free(self);
}

static PyObject *
handle_ptr(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong((uintptr_t)handle_of(self)->buffer.data);
}

static PyObject *
handle_size(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(handle_of(self)->buffer.bytes);
}

static Py_ssize_t
handle_length(PyObject *self)
{
    return (Py_ssize_t)handle_of(self)->buffer.bytes;
}

static int
handle_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct handle *handle = handle_of(self);

    return PyBuffer_FillInfo(view, self, handle->buffer.data, (Py_ssize_t)handle->buffer.bytes, 0,
                             flags);
}

static PyMethodDef methods[] = {
    {"ptr", handle_ptr, METH_NOARGS, "ptr()\n\nIts address."},
    {"size", handle_size, METH_NOARGS, "size()\n\nHow many bytes it has."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A value that was got; memoryview(handle) shows its bytes."},
    {Py_tp_dealloc, (void *)handle_dealloc},
    {Py_tp_methods, methods},
    {Py_sq_length, (void *)handle_length},
    {Py_bf_getbuffer, (void *)handle_get_buffer},
    {0, NULL},
};

PyType_Spec yb_py_buffer_spec = {
    .name = "mooncake.store.BufferHandle",
    .basicsize = (int)sizeof(struct handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

/* ---- memory that an object in Python owns --------------------------------------------------- */

struct owned {
    PyObject ob_base;
    PyObject *owner;
    void *base;
    Py_ssize_t length;
    bool read_only;
};

static struct owned *
owned_of(PyObject *self)
{
    return (struct owned *)(void *)self;
}

static PyObject *
owned_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    unsigned long long address = 0;
    Py_ssize_t length = 0;
    int read_only = 0;
    PyObject *owner, *self;

    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OKn|p", &owner, &address, &length, &read_only)) {
        return NULL;
    }
    if (length < 0 || (address == 0 && length > 0)) {
        PyErr_SetString(PyExc_ValueError, "no memory there");
        return NULL;
    }
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        Py_INCREF(owner);
        owned_of(self)->owner = owner;
        owned_of(self)->base = (void *)(uintptr_t)address;
        owned_of(self)->length = length;
        owned_of(self)->read_only = read_only != 0;
    }
    return self;
}

static void
owned_dealloc(PyObject *self)
{
    Py_CLEAR(owned_of(self)->owner);
    yb_py_free(self);
}

static Py_ssize_t
owned_length(PyObject *self)
{
    return owned_of(self)->length;
}

static int
owned_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct owned *owned = owned_of(self);

    return PyBuffer_FillInfo(view, self, owned->base, owned->length, owned->read_only, flags);
}

static PyType_Slot owned_slots[] = {
    {Py_tp_doc, "OwnedView(owner, address, size, read_only=False): memory that `owner` owns."},
    {Py_tp_new, (void *)owned_new},
    {Py_tp_dealloc, (void *)owned_dealloc},
    {Py_sq_length, (void *)owned_length},
    {Py_bf_getbuffer, (void *)owned_get_buffer},
    {0, NULL},
};

PyType_Spec yb_py_owned_spec = {
    .name = "yuebing._native.OwnedView",
    .basicsize = (int)sizeof(struct owned),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = owned_slots,
};
