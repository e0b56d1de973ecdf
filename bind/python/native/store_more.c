/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas, tasks and segments: what mooncake.store gives a nicer shape in Python.
 */
#include "native.h"

/* ---- replicas ------------------------------------------------------------------------------- */

static PyObject *
replica_tuple(const struct yb_compat_replica *replica)
{
    return Py_BuildValue("(IssKOO)", replica->key, replica->segment, replica->endpoint,
                         (unsigned long long)replica->bytes, replica->memory ? Py_True : Py_False,
                         replica->complete ? Py_True : Py_False);
}

/* Asks again with more room when there were more replicas than expected. */
static bool
replicas_of(struct yb_py_call *call, struct yb_compat_store *store, const yb_compat_key *keys,
            uint32_t count, struct yb_compat_replica **replicas_out, uint32_t *replicas_count_out)
{
    uint32_t room = count > UINT32_MAX / 4 ? count : count * 2 + 8;

    for (;;) {
        struct yb_compat_replica *replicas = yb_py_room(call, room, sizeof(*replicas));
        uint32_t found;

        if (replicas == NULL) {
            return false;
        }
        Py_BEGIN_ALLOW_THREADS;
        found = yb_compat_store_replicas(store, keys, count, replicas, room);
        Py_END_ALLOW_THREADS;
        if (found <= room) {
            *replicas_out = replicas;
            *replicas_count_out = found;
            return true;
        }
        room = found;
    }
}

YB_PY_DEFINE(replicas, 1, true, "keys")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_replica *found;
    uint32_t count, found_count;
    yb_compat_key *keys;
    PyObject *list;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count) ||
        !replicas_of(call, store, keys, count, &found, &found_count)) {
        return NULL;
    }
    list = PyList_New((Py_ssize_t)found_count);
    for (uint32_t i = 0; i < found_count && list != NULL; i++) {
        PyObject *tuple = replica_tuple(&found[i]);

        if (tuple == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, (Py_ssize_t)i, tuple);
    }
    return list;
}

YB_PY_DEFINE(batch_replica_clear, 1, false, "keys", "segment_name")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    const char *segment;
    yb_compat_key *keys;
    PyObject *tuple, *list;
    uint32_t count;
    int32_t *codes;

    if (store == NULL || !yb_py_elements(call, argument[0], &tuple, &count) ||
        !yb_py_keys(call, tuple, &keys, &count) || !yb_py_text(argument[1], "", &segment)) {
        return NULL;
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_replica_clear(store, keys, count, segment, codes);
    Py_END_ALLOW_THREADS;
    list = PyList_New(0);
    for (uint32_t i = 0; i < count && list != NULL; i++) {
        if (codes[i] == YB_COMPAT_OK &&
            PyList_Append(list, PyTuple_GetItem(tuple, (Py_ssize_t)i)) != 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* (key, source or None, targets) -> (high, low, code) */
YB_PY_DEFINE(task, 3, true, "key", "source", "targets")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    PyObject *source_object = argument[1] == Py_None ? NULL : argument[1];
    const char *source, **targets;
    uint64_t id[2] = {0, 0};
    yb_compat_key key;
    PyObject *tuple;
    uint32_t count;
    int32_t code;

    if (store == NULL || !yb_py_key(argument[0], &key) ||
        !yb_py_text(source_object, NULL, &source) ||
        !yb_py_elements(call, argument[2], &tuple, &count)) {
        return NULL;
    }
    targets = yb_py_room(call, (size_t)count + 1, sizeof(*targets));
    for (uint32_t i = 0; i < count && targets != NULL; i++) {
        if (!yb_py_text(PyTuple_GetItem(tuple, (Py_ssize_t)i), "", &targets[i])) {
            return NULL;
        }
    }
    if (targets == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_task(store, &key, source, targets, id);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(KKi)", (unsigned long long)id[0], (unsigned long long)id[1], (int)code);
}

/* (high, low) -> (code, is a move, state, created, updated, message) */
YB_PY_DEFINE(task_query, 2, true, "high", "low")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_task found = {0};
    uint64_t id[2];
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_word(argument[0], &id[0]) || !yb_py_word(argument[1], &id[1])) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_task_query(store, id, &found);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(iOiKKs)", (int)code, found.move ? Py_True : Py_False, (int)found.state,
                         (unsigned long long)found.created_ms, (unsigned long long)found.updated_ms,
                         found.message);
}

/* ---- segments given by hand ----------------------------------------------------------------- */

YB_PY_DEFINE(mount, 1, true, "size")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    char name[64] = "";
    uint64_t bytes;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_word(argument[0], &bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_mount(store, bytes, name);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(is)", (int)code, name);
}

YB_PY_DEFINE(unmount, 2, true, "name", "grace_ms")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    const char *name;
    uint64_t grace_ms;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_text(argument[0], "", &name) ||
        !yb_py_word(argument[1], &grace_ms)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_unmount(store, name, grace_ms);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

PyMethodDef yb_py_store_more_methods[] = {
    YB_PY_ROW("_replicas", replicas, "Replicas of keys as tuples."),
    YB_PY_ROW("batch_replica_clear", batch_replica_clear,
              "batch_replica_clear(keys, segment_name=\"\")\n\nDrop replicas, of one segment or of "
              "all. The keys that were cleared."),
    YB_PY_ROW("_task", task, "Begin a copy or a move."),
    YB_PY_ROW("_task_query", task_query, "How a task stands."),
    YB_PY_ROW("_mount", mount, "Give memory to the store: (code, name)."),
    YB_PY_ROW("_unmount", unmount, "Take it back."),
    {NULL, NULL, 0, NULL},
};
