/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h -- Python's arguments as C's, and C's results as Python's.
 *
 * A method begins a call, converts its arguments once with the interpreter's lock held, gives the
 * lock up, calls C, takes it back, makes its result and ends the call:
 *
 *     yb_py_call_begin -> yb_py_keys, yb_py_lists ... -> [lock given up: C] -> yb_py_call_end
 *
 * What the conversions return lives until yb_py_call_end(), also when another thread changes the
 * caller's lists meanwhile: keys are kept by a reference each, numbers are copied.
 *
 * Every function that can fail returns false (or NULL) with a Python exception set: TypeError for
 * what is of the wrong type, negative or too large.
 *
 * Threads   With the interpreter's lock held.
 * Memory    A call's memory is a chain of blocks; the first lies within the struct, so that small
 *           calls allocate nothing.
 */
#ifndef YB_PY_CONVERT_H
#define YB_PY_CONVERT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* ---- arguments ------------------------------------------------------------------------------ */

#define YB_PY_ARGUMENTS_MAX 16u

/* What a method takes. `no_keywords`: by position only, as the known system binds it. */
struct yb_py_spec {
    const char *name;
    const char *names[YB_PY_ARGUMENTS_MAX];
    unsigned required;
    bool no_keywords;
};

/* A fast call's arguments as C gets them. */
struct yb_py_given {
    PyObject *const *values;
    Py_ssize_t count;
    PyObject *keywords;
};

/* Sort the arguments into `values_out`, in the order of the names; NULL: not given. Borrowed. */
bool yb_py_arguments(const struct yb_py_spec *spec, const struct yb_py_given *given,
                     PyObject *values_out[YB_PY_ARGUMENTS_MAX]);

/* A row of a table of methods. */
#define YB_PY_ROW(name, function, text)                                                    \
    {                                                                                      \
        name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS, text \
    }

/* ---- a call's memory ------------------------------------------------------------------------ */

struct yb_py_block;
struct yb_py_kept;
struct yb_py_view;

struct yb_py_call {
    struct yb_py_block *blocks;
    struct yb_py_kept *kept;
    struct yb_py_view *views;
    size_t used;
    size_t room;
    unsigned char *next;
    _Alignas(16) unsigned char first[2048];
};

void yb_py_call_begin(struct yb_py_call *call);
void yb_py_call_end(struct yb_py_call *call);

/* Define a method: its head sorts the arguments and begins and ends the call; the block that
 * follows is run in between, with `self`, `call` and `argument[i]`. */
#define YB_PY_DEFINE(method, required, no_keywords, ...)                                         \
    static PyObject *method##_within(PyObject *self, struct yb_py_call *call,                    \
                                     PyObject *const *argument);                                 \
    static PyObject *method(PyObject *self, PyObject *const *values, Py_ssize_t count,           \
                            PyObject *keywords)                                                  \
    {                                                                                            \
        static const struct yb_py_spec spec = {#method, {__VA_ARGS__}, required, no_keywords};   \
        PyObject *argument[YB_PY_ARGUMENTS_MAX];                                                 \
        struct yb_py_call call;                                                                  \
        PyObject *result;                                                                        \
                                                                                                 \
        if (!yb_py_arguments(&spec, &(struct yb_py_given){values, count, keywords}, argument)) { \
            return NULL;                                                                         \
        }                                                                                        \
        yb_py_call_begin(&call);                                                                 \
        result = method##_within(self, &call, argument);                                         \
        yb_py_call_end(&call);                                                                   \
        return result;                                                                           \
    }                                                                                            \
    static PyObject *method##_within(PyObject *self, struct yb_py_call *call,                    \
                                     PyObject *const *argument)

/* `count` elements of `size` bytes, zeroed; NULL: MemoryError. */
void *yb_py_room(struct yb_py_call *call, size_t count, size_t size);

/* ---- values --------------------------------------------------------------------------------- */

/* One key: str as UTF-8, or bytes. Borrowed from the object. */
bool yb_py_key(PyObject *object, struct iovec *key_out);
/* A list of keys: any sequence but a str or bytes. */
bool yb_py_keys(struct yb_py_call *call, PyObject *object, struct iovec **keys_out,
                uint32_t *count_out);

/* A number that is not negative: an int, or anything with __index__. */
bool yb_py_word(PyObject *object, uint64_t *word_out);
/* NULL counts as `otherwise`. */
bool yb_py_word_or(PyObject *object, uint64_t otherwise, uint64_t *word_out);
bool yb_py_signed(PyObject *object, int64_t *number_out);
/* Python's truth; NULL counts as `otherwise`. */
bool yb_py_flag(PyObject *object, bool otherwise, bool *flag_out);
/* A str without NUL as UTF-8, borrowed from the object; NULL counts as `otherwise`. */
bool yb_py_text(PyObject *object, const char *otherwise, const char **text_out);

struct yb_py_words {
    uint64_t *words;
    uint32_t count;
};
/* Numbers: a list, any other sequence, or an array of 64-bit integers by its buffer. */
bool yb_py_words(struct yb_py_call *call, PyObject *object, struct yb_py_words *words_out);
/* Lists of numbers. */
bool yb_py_lists(struct yb_py_call *call, PyObject *object, struct yb_py_words **lists_out,
                 uint32_t *count_out);
/* The elements of a sequence, kept for the call. */
bool yb_py_elements(struct yb_py_call *call, PyObject *object, PyObject **tuple_out,
                    uint32_t *count_out);
/* Keep one object for the call. */
bool yb_py_keep(struct yb_py_call *call, PyObject *object);

/* All bytes of a buffer, whatever its elements; one with gaps is copied. */
bool yb_py_bytes(struct yb_py_call *call, PyObject *object, struct iovec *bytes_out);
/* The same, but RuntimeError unless it is one-dimensional with elements of one byte. */
bool yb_py_plain_bytes(struct yb_py_call *call, PyObject *object, struct iovec *bytes_out);

/* ---- results -------------------------------------------------------------------------------- */

PyObject *yb_py_codes(const int32_t *codes, uint32_t count);
PyObject *yb_py_sizes(const int64_t *sizes, uint32_t count);
/* The same number `count` times. */
PyObject *yb_py_repeat(int32_t code, uint32_t count);
/* bytes; large ones are copied without the interpreter's lock. */
PyObject *yb_py_copy(const void *data, uint64_t length);

#endif /* YB_PY_CONVERT_H */
