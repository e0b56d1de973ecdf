/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

/* ---- bytes ---------------------------------------------------------------------------------- */

static bool
get_all(PyObject *self, const yb_compat_key *keys, uint32_t count,
        struct yb_compat_buffer *buffers_out)
{
    struct yb_compat_store *store = yb_py_store_of(self);

    if (store == NULL) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_get(store, keys, count, buffers_out);
    Py_END_ALLOW_THREADS;
    return true;
}

/* Consumes the buffer. */
static PyObject *
bytes_of(struct yb_compat_buffer *buffer)
{
    PyObject *bytes =
        buffer->data == NULL ? yb_py_copy("", 0) : yb_py_copy(buffer->data, buffer->bytes);

    yb_compat_buffer_free(buffer);
    return bytes;
}

static PyObject *
handle_of(struct yb_compat_buffer *buffer)
{
    if (buffer->data == NULL) {
        yb_compat_buffer_free(buffer);
        Py_RETURN_NONE;
    }
    return yb_py_buffer_new(buffer);
}

/* Every buffer is consumed, also after a failure. */
static PyObject *
list_of(struct yb_compat_buffer *buffers, uint32_t count,
        PyObject *(*make)(struct yb_compat_buffer *buffer))
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; i < count; i++) {
        PyObject *element = list == NULL ? NULL : make(&buffers[i]);

        if (element == NULL) {
            yb_compat_buffer_free(&buffers[i]);
            Py_CLEAR(list);
            continue;
        }
        PyList_SetItem(list, (Py_ssize_t)i, element);
    }
    return list;
}

YB_PY_DEFINE(get, 1, true, "key")
{
    struct yb_compat_buffer buffer = {0};
    yb_compat_key key;

    (void)call;
    if (!yb_py_key(argument[0], &key) || !get_all(self, &key, 1, &buffer)) {
        return NULL;
    }
    return bytes_of(&buffer);
}

YB_PY_DEFINE(get_buffer, 1, true, "key")
{
    struct yb_compat_buffer buffer = {0};
    yb_compat_key key;

    (void)call;
    if (!yb_py_key(argument[0], &key) || !get_all(self, &key, 1, &buffer)) {
        return NULL;
    }
    return handle_of(&buffer);
}

static PyObject *
get_list(PyObject *self, struct yb_py_call *call, PyObject *keys_object,
         PyObject *(*make)(struct yb_compat_buffer *buffer))
{
    struct yb_compat_buffer *buffers;
    yb_compat_key *keys;
    uint32_t count;

    if (!yb_py_keys(call, keys_object, &keys, &count)) {
        return NULL;
    }
    buffers = yb_py_room(call, count, sizeof(*buffers));
    if (buffers == NULL || !get_all(self, keys, count, buffers)) {
        return NULL;
    }
    return list_of(buffers, count, make);
}

/* Before setup the known system gives one empty value, however many keys there are. */
YB_PY_DEFINE(get_batch, 1, true, "keys")
{
    if (!yb_py_store_ready(self)) {
        struct yb_compat_buffer nothing = {0};

        return PyErr_Occurred() != NULL ? NULL : list_of(&nothing, 1, bytes_of);
    }
    return get_list(self, call, argument[0], bytes_of);
}

YB_PY_DEFINE(batch_get_buffer, 1, true, "keys")
{
    return get_list(self, call, argument[0], handle_of);
}

/* ---- into memory of the caller's ------------------------------------------------------------ */

YB_PY_DEFINE(get_into, 3, false, "key", "buffer_ptr", "size")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    uint64_t address, length;
    struct iovec piece;
    const struct yb_compat_value into = {&piece, 1};
    yb_compat_key key;
    int64_t code;

    (void)call;
    if (store == NULL || !yb_py_key(argument[0], &key) || !yb_py_word(argument[1], &address) ||
        !yb_py_word(argument[2], &length)) {
        return NULL;
    }
    piece = (struct iovec){(void *)(uintptr_t)address, (size_t)length};
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_get_into(store, &key, &into, 1, &code);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(code);
}

static PyObject *
get_into_values(PyObject *self, struct yb_py_call *call, const yb_compat_key *keys,
                const struct yb_compat_value *into, uint32_t count)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    int64_t *codes = yb_py_room(call, count, sizeof(*codes));

    if (store == NULL || codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_get_into(store, keys, into, count, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_sizes(codes, count);
}

YB_PY_DEFINE(batch_get_into, 3, false, "keys", "buffer_ptrs", "sizes")
{
    struct yb_compat_value *into;
    yb_compat_key *keys;
    uint32_t count;
    bool equal;

    if (!yb_py_keys(call, argument[0], &keys, &count) ||
        !yb_py_single_values(call, argument[1], argument[2], count, &into, &equal)) {
        return NULL;
    }
    if (!equal) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, count);
    }
    return get_into_values(self, call, keys, into, count);
}

/* What is preferred makes no difference to what is read. */
YB_PY_DEFINE(batch_get_into_multi_buffers, 3, false, "keys", "all_buffer_ptrs", "all_sizes",
             "prefer_alloc_in_same_node")
{
    struct yb_compat_value *into;
    yb_compat_key *keys;
    uint32_t count;
    bool equal, preferred;

    if (!yb_py_keys(call, argument[0], &keys, &count) ||
        !yb_py_values(call, argument[1], argument[2], count, &into, &equal) ||
        !yb_py_flag(argument[3], false, &preferred)) {
        return NULL;
    }
    if (!equal) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, count);
    }
    return get_into_values(self, call, keys, into, count);
}

PyMethodDef yb_py_store_get_methods[] = {
    YB_PY_ROW("get", get, "get(key)\n\nThe value as bytes; b\"\" if it cannot be had."),
    YB_PY_ROW("get_batch", get_batch, "get_batch(keys)\n\nThe values as bytes; b\"\" for a miss."),
    YB_PY_ROW("get_buffer", get_buffer, "get_buffer(key)\n\nA BufferHandle, or None."),
    YB_PY_ROW("batch_get_buffer", batch_get_buffer,
              "batch_get_buffer(keys)\n\nA BufferHandle or None for each."),
    YB_PY_ROW("get_into", get_into,
              "get_into(key, buffer_ptr, size)\n\nBytes of the value, or a code: -704 it is not "
              "there, -600 the buffer is too small."),
    YB_PY_ROW("batch_get_into", batch_get_into,
              "batch_get_into(keys, buffer_ptrs, sizes)\n\nBytes or a code of each."),
    YB_PY_ROW("batch_get_into_multi_buffers", batch_get_into_multi_buffers,
              "batch_get_into_multi_buffers(keys, all_buffer_ptrs, all_sizes, "
              "prefer_alloc_in_same_node=False)\n\nInto several pieces each. Bytes or a code of "
              "each."),
    {NULL, NULL, 0, NULL},
};
