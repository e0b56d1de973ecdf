/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the module: memory that processes share, memory for an allocator of tensors, and
 * chains of keys.
 */
#include "native.h"

#include <sys/mman.h>

#include "yuebing/client.h"
#include "yuebing/version.h"

#define TOKENS_MAX (1u << 26)

/* ---- memory --------------------------------------------------------------------------------- */

YB_PY_DEFINE(host_alloc, 1, true, "size")
{
    uint64_t bytes;
    void *base;

    (void)self;
    (void)call;
    if (!yb_py_word(argument[0], &bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    base = yb_compat_host_alloc(bytes);
    Py_END_ALLOW_THREADS;
    return PyLong_FromUnsignedLongLong((uintptr_t)base);
}

YB_PY_DEFINE(host_free, 1, true, "ptr")
{
    uint64_t address;
    int32_t code;

    (void)self;
    (void)call;
    if (!yb_py_word(argument[0], &address)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_host_free((void *)(uintptr_t)address);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

/* As PyTorch's pluggable allocators are called: (size, device, stream). */
static void *
pluggable_alloc(ssize_t size, int device, void *stream)
{
    void *base;

    (void)device;
    (void)stream;
    if (size <= 0) {
        return NULL;
    }
    base = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(base, (size_t)size, MADV_HUGEPAGE); /* Where the kernel has none: small ones. */
    return base;
}

static void
pluggable_free(void *base, ssize_t size, int device, void *stream)
{
    (void)device;
    (void)stream;
    if (base != NULL && size > 0) {
        (void)munmap(base, (size_t)size);
    }
}

static PyObject *
get_alloc_func_addr(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromUnsignedLongLong((uintptr_t)pluggable_alloc);
}

static PyObject *
get_free_func_addr(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromUnsignedLongLong((uintptr_t)pluggable_free);
}

/* Where the bytes of a writable buffer lie. */
YB_PY_DEFINE(address_of, 1, true, "buffer")
{
    struct iovec bytes;

    (void)self;
    return yb_py_bytes(call, argument[0], &bytes)
               ? PyLong_FromUnsignedLongLong((uintptr_t)bytes.iov_base)
               : NULL;
}

/* Make a view of `size` bytes at an address; the caller keeps the memory. */
YB_PY_DEFINE(view, 2, true, "address", "size")
{
    uint64_t address, bytes;

    (void)self;
    (void)call;
    if (!yb_py_word(argument[0], &address) || !yb_py_word(argument[1], &bytes)) {
        return NULL;
    }
    if (bytes > (uint64_t)PY_SSIZE_T_MAX || (address == 0 && bytes != 0)) {
        PyErr_SetString(PyExc_ValueError, "no memory there");
        return NULL;
    }
    return PyMemoryView_FromMemory((char *)(uintptr_t)address, (Py_ssize_t)bytes, PyBUF_WRITE);
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* (tokens, block_tokens, salt or None) -> [16 bytes, ...] */
YB_PY_DEFINE(key_chain, 3, true, "tokens", "block_tokens", "salt")
{
    struct yb_py_words words;
    uint64_t block_tokens;
    const char *salt;
    uint32_t *tokens, blocks;
    uint8_t(*keys)[16];
    PyObject *list;

    (void)self;
    if (!yb_py_words(call, argument[0], &words) || !yb_py_word(argument[1], &block_tokens) ||
        !yb_py_text(argument[2] == Py_None ? NULL : argument[2], NULL, &salt)) {
        return NULL;
    }
    if (block_tokens == 0 || block_tokens > TOKENS_MAX || words.count > TOKENS_MAX) {
        PyErr_SetString(PyExc_ValueError, "blocks have 1 .. 2**26 tokens, a sequence no more");
        return NULL;
    }
    blocks = words.count / (uint32_t)block_tokens;
    tokens = yb_py_room(call, words.count, sizeof(*tokens));
    keys = yb_py_room(call, blocks, sizeof(*keys));
    if (tokens == NULL || keys == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < words.count; i++) {
        if (words.words[i] > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a token is a number of 0 .. 2**32 - 1");
            return NULL;
        }
        tokens[i] = (uint32_t)words.words[i];
    }
    Py_BEGIN_ALLOW_THREADS;
    blocks = yb_key_chain(tokens, words.count, (uint32_t)block_tokens, salt, keys, blocks);
    Py_END_ALLOW_THREADS;
    list = PyList_New((Py_ssize_t)blocks);
    for (uint32_t i = 0; i < blocks && list != NULL; i++) {
        PyObject *key = yb_py_copy(keys[i], sizeof(keys[i]));

        if (key == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, (Py_ssize_t)i, key);
    }
    return list;
}

YB_PY_DEFINE(code_text, 1, true, "code")
{
    int64_t code;

    (void)self;
    (void)call;
    if (!yb_py_signed(argument[0], &code)) {
        return NULL;
    }
    return PyUnicode_FromString(
        yb_compat_code_text(code < INT32_MIN || code > INT32_MAX ? 1 : (int32_t)code));
}

YB_PY_DEFINE(status_text, 1, true, "status")
{
    int64_t status;

    (void)self;
    (void)call;
    if (!yb_py_signed(argument[0], &status)) {
        return NULL;
    }
    return PyUnicode_FromString(yb_status_text((enum yb_status)status));
}

static PyObject *
version(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyUnicode_FromString(yb_version());
}

PyMethodDef yb_py_functions[] = {
    YB_PY_ROW("host_alloc", host_alloc, "Memory that processes of this host can share, or 0."),
    YB_PY_ROW("host_free", host_free, "Give it back: 0, or -600."),
    {"get_alloc_func_addr", get_alloc_func_addr, METH_NOARGS,
     "get_alloc_func_addr()\n\nAddress of an allocating function for PyTorch's pluggable "
     "allocators."},
    {"get_free_func_addr", get_free_func_addr, METH_NOARGS,
     "get_free_func_addr()\n\nAddress of its counterpart."},
    YB_PY_ROW("address_of", address_of, "Address of a buffer's first byte."),
    YB_PY_ROW("view", view, "A memoryview of memory at an address."),
    YB_PY_ROW("key_chain", key_chain, "Keys of the blocks of a sequence of tokens."),
    YB_PY_ROW("code_text", code_text, "A sentence for a code."),
    YB_PY_ROW("status_text", status_text, "A sentence for a status."),
    {"version", version, METH_NOARGS, "Version of the library."},
    {NULL, NULL, 0, NULL},
};
