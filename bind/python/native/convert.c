/* SPDX-License-Identifier: Apache-2.0 */
#include "convert.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES   (64u << 10)
#define ALIGNMENT     16u
#define ELEMENTS_MAX  UINT32_MAX
#define COPY_UNLOCKED (64u << 10) /* Below, giving the lock up costs more than the copy. */

struct yb_py_block {
    struct yb_py_block *next;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

struct yb_py_kept {
    struct yb_py_kept *next;
    PyObject *object;
};

struct yb_py_view {
    struct yb_py_view *next;
    Py_buffer buffer;
};

/* ---- arguments ------------------------------------------------------------------------------ */

static unsigned
names_count(const struct yb_py_spec *spec)
{
    unsigned count = 0;

    while (count < YB_PY_ARGUMENTS_MAX && spec->names[count] != NULL) {
        count++;
    }
    return count;
}

static bool
take_keyword(const struct yb_py_spec *spec, PyObject *keyword, PyObject *value,
             PyObject *values_out[])
{
    unsigned known = names_count(spec);

    for (unsigned i = 0; i < known && !spec->no_keywords; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword, spec->names[i]) != 0) {
            continue;
        }
        if (values_out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'", spec->name,
                         spec->names[i]);
            return false;
        }
        values_out[i] = value;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", spec->name,
                 keyword);
    return false;
}

bool
yb_py_arguments(const struct yb_py_spec *spec, const struct yb_py_given *given,
                PyObject *values_out[YB_PY_ARGUMENTS_MAX])
{
    unsigned known = names_count(spec);
    Py_ssize_t keywords = given->keywords == NULL ? 0 : PyTuple_Size(given->keywords);

    memset(values_out, 0, YB_PY_ARGUMENTS_MAX * sizeof(*values_out));
    if (given->count > (Py_ssize_t)known) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %u arguments (%zd given)", spec->name,
                     known, given->count);
        return false;
    }
    for (Py_ssize_t i = 0; i < given->count; i++) {
        values_out[i] = given->values[i];
    }
    for (Py_ssize_t i = 0; i < keywords; i++) {
        if (!take_keyword(spec, PyTuple_GetItem(given->keywords, i),
                          given->values[given->count + i], values_out)) {
            return false;
        }
    }
    for (unsigned i = 0; i < spec->required; i++) {
        if (values_out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'", spec->name,
                         spec->names[i]);
            return false;
        }
    }
    return true;
}

/* ---- a call's memory ------------------------------------------------------------------------ */

void
yb_py_call_begin(struct yb_py_call *call)
{
    call->blocks = NULL;
    call->kept = NULL;
    call->views = NULL;
    call->used = 0;
    call->room = sizeof(call->first);
    call->next = call->first;
}

void
yb_py_call_end(struct yb_py_call *call)
{
    /* Who is told of the end may run Python code that looks at an exception: it stays. */
    for (struct yb_py_view *view = call->views; view != NULL; view = view->next) {
        PyBuffer_Release(&view->buffer);
    }
    for (struct yb_py_kept *kept = call->kept; kept != NULL; kept = kept->next) {
        Py_DECREF(kept->object);
    }
    while (call->blocks != NULL) {
        struct yb_py_block *block = call->blocks;

        call->blocks = block->next;
        free(block);
    }
    yb_py_call_begin(call);
}

void *
yb_py_room(struct yb_py_call *call, size_t count, size_t size)
{
    size_t bytes;
    void *room;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        PyErr_NoMemory();
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > call->room - call->used) {
        size_t whole = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        struct yb_py_block *block = malloc(sizeof(*block) + whole);

        if (block == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        block->next = call->blocks;
        call->blocks = block;
        call->next = block->bytes;
        call->room = whole;
        call->used = 0;
    }
    room = call->next + call->used;
    call->used += bytes;
    memset(room, 0, bytes);
    return room;
}

/* Keep a reference that is ours already. */
static bool
keep_owned(struct yb_py_call *call, PyObject *object)
{
    struct yb_py_kept *kept = yb_py_room(call, 1, sizeof(*kept));

    if (kept == NULL) {
        Py_DECREF(object);
        return false;
    }
    kept->object = object;
    kept->next = call->kept;
    call->kept = kept;
    return true;
}

bool
yb_py_keep(struct yb_py_call *call, PyObject *object)
{
    Py_INCREF(object);
    return keep_owned(call, object);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool
word_of_int(PyObject *number, uint64_t *word_out)
{
    unsigned long long word = PyLong_AsUnsignedLongLong(number);

    if (word == (unsigned long long)-1 && PyErr_Occurred() != NULL) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "expected a number of 0 .. 2**64 - 1, not %R", number);
        }
        return false;
    }
    *word_out = word;
    return true;
}

bool
yb_py_word(PyObject *object, uint64_t *word_out)
{
    PyObject *number;
    bool fine;

    if (PyLong_CheckExact(object)) {
        return word_of_int(object, word_out);
    }
    number = PyNumber_Index(object);
    if (number == NULL) {
        return false;
    }
    fine = word_of_int(number, word_out);
    Py_DECREF(number);
    return fine;
}

bool
yb_py_word_or(PyObject *object, uint64_t otherwise, uint64_t *word_out)
{
    if (object == NULL) {
        *word_out = otherwise;
        return true;
    }
    return yb_py_word(object, word_out);
}

bool
yb_py_signed(PyObject *object, int64_t *number_out)
{
    PyObject *number = PyNumber_Index(object);
    long long value;

    if (number == NULL) {
        return false;
    }
    value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred() != NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "expected a number within 64 bits, not %R", object);
        return false;
    }
    *number_out = value;
    return true;
}

bool
yb_py_flag(PyObject *object, bool otherwise, bool *flag_out)
{
    int truth = object == NULL ? otherwise : PyObject_IsTrue(object);

    if (truth < 0) {
        return false;
    }
    *flag_out = truth != 0;
    return true;
}

/* A contiguous array of 64-bit integers. Elements of the signed kind must not be negative. */
static bool
words_of_buffer(struct yb_py_call *call, const Py_buffer *buffer, struct yb_py_words *words_out)
{
    size_t count = (size_t)buffer->len / sizeof(uint64_t);
    uint64_t *words = yb_py_room(call, count, sizeof(uint64_t));
    bool is_signed = strchr("lq", buffer->format[0]) != NULL;

    if (words == NULL) {
        return false;
    }
    memcpy(words, buffer->buf, (size_t)buffer->len);
    for (size_t i = 0; i < count && is_signed; i++) {
        if (words[i] > INT64_MAX) {
            PyErr_Format(PyExc_TypeError, "expected a number of 0 .. 2**64 - 1, not %lld",
                         (long long)words[i]);
            return false;
        }
    }
    words_out->words = words;
    words_out->count = (uint32_t)count;
    return true;
}

/* 1 when it was such an array, 0 when it is something else, -1 with an exception. */
static int
try_words_of_buffer(struct yb_py_call *call, PyObject *object, struct yb_py_words *words_out)
{
    Py_buffer buffer;
    int done = 0;

    if (!PyObject_CheckBuffer(object)) {
        return 0;
    }
    if (PyObject_GetBuffer(object, &buffer, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (buffer.ndim == 1 && buffer.itemsize == 8 && buffer.format != NULL &&
        strlen(buffer.format) == 1 && strchr("lqLQ", buffer.format[0]) != NULL &&
        (uint64_t)buffer.len / 8 <= ELEMENTS_MAX) {
        done = words_of_buffer(call, &buffer, words_out) ? 1 : -1;
    }
    PyBuffer_Release(&buffer);
    return done;
}

static bool
words_of_list(struct yb_py_call *call, PyObject *list, struct yb_py_words *words_out)
{
    Py_ssize_t count = PyList_Size(list);
    uint64_t *words = yb_py_room(call, (size_t)count, sizeof(uint64_t));

    if (words == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyList_GetItem(list, i); /* Fails if __index__ shortened the list. */

        if (number == NULL || !yb_py_word(number, &words[i])) {
            return false;
        }
    }
    words_out->words = words;
    words_out->count = (uint32_t)count;
    return true;
}

bool
yb_py_words(struct yb_py_call *call, PyObject *object, struct yb_py_words *words_out)
{
    PyObject *tuple;
    uint32_t count;
    int done;

    if (PyList_CheckExact(object) && PyList_Size(object) <= (Py_ssize_t)ELEMENTS_MAX) {
        return words_of_list(call, object, words_out);
    }
    done = try_words_of_buffer(call, object, words_out);
    if (done != 0) {
        return done > 0;
    }
    if (!yb_py_elements(call, object, &tuple, &count)) {
        return false;
    }
    words_out->count = count;
    words_out->words = yb_py_room(call, count, sizeof(uint64_t));
    for (uint32_t i = 0; i < count && words_out->words != NULL; i++) {
        if (!yb_py_word(PyTuple_GetItem(tuple, (Py_ssize_t)i), &words_out->words[i])) {
            return false;
        }
    }
    return words_out->words != NULL;
}

bool
yb_py_lists(struct yb_py_call *call, PyObject *object, struct yb_py_words **lists_out,
            uint32_t *count_out)
{
    struct yb_py_words *lists;
    PyObject *tuple;

    if (!yb_py_elements(call, object, &tuple, count_out)) {
        return false;
    }
    lists = yb_py_room(call, *count_out, sizeof(*lists));
    if (lists == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < *count_out; i++) {
        if (!yb_py_words(call, PyTuple_GetItem(tuple, (Py_ssize_t)i), &lists[i])) {
            return false;
        }
    }
    *lists_out = lists;
    return true;
}

bool
yb_py_elements(struct yb_py_call *call, PyObject *object, PyObject **tuple_out, uint32_t *count_out)
{
    PyObject *tuple;

    /* A single text where a list of texts is meant is a mistake, not a list of letters. */
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyDict_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected a sequence such as a list, not %R", object);
        return false;
    }
    tuple = PySequence_Tuple(object);
    if (tuple == NULL) {
        return false;
    }
    if (PyTuple_Size(tuple) > (Py_ssize_t)ELEMENTS_MAX) {
        Py_DECREF(tuple);
        PyErr_SetString(PyExc_TypeError, "the sequence is too long");
        return false;
    }
    *count_out = (uint32_t)PyTuple_Size(tuple);
    *tuple_out = tuple;
    return keep_owned(call, tuple);
}

/* ---- texts and bytes ------------------------------------------------------------------------ */

bool
yb_py_key(PyObject *object, struct iovec *key_out)
{
    Py_ssize_t length;
    char *bytes;

    if (PyUnicode_Check(object)) {
        const char *text = PyUnicode_AsUTF8AndSize(object, &length);

        if (text == NULL) {
            return false;
        }
        key_out->iov_base = (void *)(uintptr_t)text;
        key_out->iov_len = (size_t)length;
        return true;
    }
    if (PyBytes_Check(object)) {
        if (PyBytes_AsStringAndSize(object, &bytes, &length) != 0) {
            return false;
        }
        key_out->iov_base = bytes;
        key_out->iov_len = (size_t)length;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "a key is a str or bytes, not %R", object);
    return false;
}

bool
yb_py_keys(struct yb_py_call *call, PyObject *object, struct iovec **keys_out, uint32_t *count_out)
{
    struct iovec *keys;
    PyObject *tuple;

    if (!yb_py_elements(call, object, &tuple, count_out)) {
        return false;
    }
    keys = yb_py_room(call, *count_out, sizeof(*keys));
    if (keys == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < *count_out; i++) {
        if (!yb_py_key(PyTuple_GetItem(tuple, (Py_ssize_t)i), &keys[i])) {
            return false;
        }
    }
    *keys_out = keys;
    return true;
}

bool
yb_py_text(PyObject *object, const char *otherwise, const char **text_out)
{
    Py_ssize_t length;
    const char *text;

    if (object == NULL) {
        *text_out = otherwise;
        return true;
    }
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected a str, not %R", object);
        return false;
    }
    text = PyUnicode_AsUTF8AndSize(object, &length);
    if (text == NULL) {
        return false;
    }
    if (strlen(text) != (size_t)length) {
        PyErr_Format(PyExc_TypeError, "%R has a NUL inside", object);
        return false;
    }
    *text_out = text;
    return true;
}

static bool
view_of(struct yb_py_call *call, PyObject *object, int flags, struct yb_py_view **view_out)
{
    struct yb_py_view *view = yb_py_room(call, 1, sizeof(*view));

    if (view == NULL || PyObject_GetBuffer(object, &view->buffer, flags) != 0) {
        return false;
    }
    view->next = call->views;
    call->views = view;
    *view_out = view;
    return true;
}

/* One with gaps between its elements: its bytes in order, as a copy. */
static bool
copy_gapped(struct yb_py_call *call, PyObject *object, struct iovec *bytes_out)
{
    PyObject *copy;

    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return false;
    }
    PyErr_Clear();
    copy = PyBytes_FromObject(object);
    if (copy == NULL || !keep_owned(call, copy)) {
        return false;
    }
    bytes_out->iov_base = PyBytes_AsString(copy);
    bytes_out->iov_len = (size_t)PyBytes_Size(copy);
    return true;
}

bool
yb_py_bytes(struct yb_py_call *call, PyObject *object, struct iovec *bytes_out)
{
    struct yb_py_view *view;

    if (PyBytes_CheckExact(object)) {
        bytes_out->iov_base = PyBytes_AsString(object);
        bytes_out->iov_len = (size_t)PyBytes_Size(object);
        return yb_py_keep(call, object);
    }
    if (!PyObject_CheckBuffer(object)) {
        PyErr_Format(PyExc_TypeError, "expected bytes or another buffer, not %R", object);
        return false;
    }
    if (!view_of(call, object, PyBUF_SIMPLE, &view)) {
        return copy_gapped(call, object, bytes_out);
    }
    bytes_out->iov_base = view->buffer.buf;
    bytes_out->iov_len = (size_t)view->buffer.len;
    return true;
}

bool
yb_py_plain_bytes(struct yb_py_call *call, PyObject *object, struct iovec *bytes_out)
{
    Py_buffer buffer;
    bool plain;

    if (PyBytes_CheckExact(object) || !PyObject_CheckBuffer(object)) {
        return yb_py_bytes(call, object, bytes_out);
    }
    if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDED_RO) != 0) {
        return false;
    }
    plain = buffer.ndim == 1 && buffer.itemsize == 1;
    PyBuffer_Release(&buffer);
    if (!plain) {
        PyErr_SetString(PyExc_RuntimeError,
                        "parts must be 1-dimensional with an itemsize of 1: cast them to bytes");
        return false;
    }
    return yb_py_bytes(call, object, bytes_out);
}

/* ---- results -------------------------------------------------------------------------------- */

PyObject *
yb_py_sizes(const int64_t *sizes, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; i < count && list != NULL; i++) {
        PyObject *number = PyLong_FromLongLong(sizes[i]);

        if (number == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, number);
    }
    return list;
}

PyObject *
yb_py_codes(const int32_t *codes, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; i < count && list != NULL; i++) {
        PyObject *number = PyLong_FromLong(codes[i]);

        if (number == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, number);
    }
    return list;
}

PyObject *
yb_py_repeat(int32_t code, uint32_t count)
{
    PyObject *number = PyLong_FromLong(code);
    PyObject *list = number == NULL ? NULL : PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; i < count && list != NULL; i++) {
        Py_INCREF(number);
        PyList_SetItem(list, (Py_ssize_t)i, number);
    }
    Py_XDECREF(number);
    return list;
}

PyObject *
yb_py_copy(const void *data, uint64_t length)
{
    PyObject *bytes;

    if (length > (uint64_t)PY_SSIZE_T_MAX) {
        PyErr_NoMemory();
        return NULL;
    }
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (bytes == NULL || length == 0) {
        return bytes;
    }
    if (length < COPY_UNLOCKED) {
        memcpy(PyBytes_AsString(bytes), data, (size_t)length);
        return bytes;
    }
    char *to = PyBytes_AsString(bytes);

    Py_BEGIN_ALLOW_THREADS;
    memcpy(to, data, (size_t)length);
    Py_END_ALLOW_THREADS;
    return bytes;
}
