/* SPDX-License-Identifier: Apache-2.0
 *
 * native.h -- the types of the extension module, among themselves.
 *
 * The module is `yuebing._native`. Its types are bases: packages `mooncake` and `yuebing` derive
 * from them in Python what needs no C. What the calls of `mooncake` mean is decided in src/compat.
 *
 * Threads   With the interpreter's lock held; each method gives it up around what may wait.
 * Failure   A process that was forked cannot use what its parent set up. An object notices by the
 *           number of the process, leaves what it had to the parent, and is as before setup.
 */
#ifndef YB_PY_NATIVE_H
#define YB_PY_NATIVE_H

#include "convert.h"

#include <sys/types.h>

#include "compat/engine.h"
#include "compat/store.h"

/* ---- the module ----------------------------------------------------------------------------- */

struct yb_py_module {
    PyObject *store_type;
    PyObject *engine_type;
    PyObject *inner_engine_type;
    PyObject *buffer_type;
    PyObject *owned_type;
    PyObject *client_type;
    PyObject *batch_type;
};
/* NULL with an exception after the module was unloaded. */
struct yb_py_module *yb_py_module(void);

extern PyMethodDef yb_py_functions[]; /* memory.c */

/* Free an object of a heap type: its memory and its reference to the type. */
void yb_py_free(PyObject *self);

/* ---- store.c -------------------------------------------------------------------------------- */

struct yb_py_store {
    PyObject ob_base;
    struct yb_compat_store *store;
    PyObject *engine; /* That it shares; outlives the store. */
    pid_t process;
    bool ready; /* Set up, and not closed. */
};
extern PyType_Spec yb_py_store_spec;

/* NULL: MemoryError. */
struct yb_compat_store *yb_py_store_of(PyObject *self);
bool yb_py_store_ready(PyObject *self);

/* The methods, by file. */
extern PyMethodDef yb_py_store_put_methods[];
extern PyMethodDef yb_py_store_get_methods[];
extern PyMethodDef yb_py_store_session_methods[];
extern PyMethodDef yb_py_store_more_methods[];

/* Values made of lists of addresses and lengths, `count` of each. *equal_out: all counts fit. */
bool yb_py_values(struct yb_py_call *call, PyObject *pointers, PyObject *lengths, uint32_t count,
                  struct yb_compat_value **values_out, bool *equal_out);
/* The same with one piece for each key. */
bool yb_py_single_values(struct yb_py_call *call, PyObject *pointers, PyObject *lengths,
                         uint32_t count, struct yb_compat_value **values_out, bool *equal_out);
/* Offsets in the shape of `values`. */
bool yb_py_offsets(struct yb_py_call *call, PyObject *object, const struct yb_compat_value *values,
                   uint32_t count, const uint64_t ***offsets_out, bool *equal_out);
/* A ReplicateConfig; NULL and None: *replicate_out is NULL, the default. */
bool yb_py_replicate(struct yb_py_call *call, PyObject *config,
                     struct yb_compat_replicate **replicate_out);

/* ---- buffer.c ------------------------------------------------------------------------------- */

extern PyType_Spec yb_py_buffer_spec;
extern PyType_Spec yb_py_owned_spec;
/* Consumes what `buffer` has. */
PyObject *yb_py_buffer_new(struct yb_compat_buffer *buffer);

/* ---- engine.c ------------------------------------------------------------------------------- */

extern PyType_Spec yb_py_engine_spec;
extern PyType_Spec yb_py_inner_engine_spec;
/* Of a TransferEngine or what its get_engine() gave; NULL with TypeError. */
struct yb_compat_engine *yb_py_engine_of(PyObject *object);

/* ---- client.c ------------------------------------------------------------------------------- */

extern PyType_Spec yb_py_client_spec;
extern PyType_Spec yb_py_batch_spec;

#endif /* YB_PY_NATIVE_H */
