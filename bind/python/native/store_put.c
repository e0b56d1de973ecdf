/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

/* One call of the put family, as its method collected it. */
struct put {
    yb_compat_key *keys;
    struct yb_compat_value *values;
    struct yb_compat_replicate *replicate;
    uint32_t count;
    enum yb_compat_put kind;
    bool upsert;
    bool equal; /* All lists were as long as the keys'. */
};

/* ---- arguments ------------------------------------------------------------------------------ */

bool
yb_py_values(struct yb_py_call *call, PyObject *pointers, PyObject *lengths, uint32_t count,
             struct yb_compat_value **values_out, bool *equal_out)
{
    struct yb_py_words *from, *sizes;
    uint32_t from_count, sizes_count;
    struct yb_compat_value *values;

    if (!yb_py_lists(call, pointers, &from, &from_count) ||
        !yb_py_lists(call, lengths, &sizes, &sizes_count)) {
        return false;
    }
    *equal_out = from_count == count && sizes_count == count;
    values = yb_py_room(call, count, sizeof(*values));
    for (uint32_t i = 0; i < count && *equal_out && values != NULL; i++) {
        struct iovec *pieces = yb_py_room(call, from[i].count, sizeof(*pieces));

        if (pieces == NULL) {
            return false;
        }
        *equal_out = from[i].count == sizes[i].count;
        for (uint32_t j = 0; j < from[i].count && *equal_out; j++) {
            pieces[j].iov_base = (void *)(uintptr_t)from[i].words[j];
            pieces[j].iov_len = (size_t)sizes[i].words[j];
        }
        values[i].pieces = pieces;
        values[i].count = from[i].count;
    }
    *values_out = values;
    return values != NULL;
}

bool
yb_py_single_values(struct yb_py_call *call, PyObject *pointers, PyObject *lengths, uint32_t count,
                    struct yb_compat_value **values_out, bool *equal_out)
{
    struct yb_py_words from, sizes;
    struct yb_compat_value *values;
    struct iovec *pieces;

    if (!yb_py_words(call, pointers, &from) || !yb_py_words(call, lengths, &sizes)) {
        return false;
    }
    values = yb_py_room(call, count, sizeof(*values));
    pieces = yb_py_room(call, count, sizeof(*pieces));
    if (values == NULL || pieces == NULL) {
        return false;
    }
    *equal_out = from.count == count && sizes.count == count;
    for (uint32_t i = 0; i < count && *equal_out; i++) {
        pieces[i].iov_base = (void *)(uintptr_t)from.words[i];
        pieces[i].iov_len = (size_t)sizes.words[i];
        values[i].pieces = &pieces[i];
        values[i].count = 1;
    }
    *values_out = values;
    return true;
}

/* ---- ReplicateConfig ------------------------------------------------------------------------ */

/* An attribute, kept for the call. */
static PyObject *
attribute(struct yb_py_call *call, PyObject *config, const char *name)
{
    PyObject *value = PyObject_GetAttrString(config, name);
    PyObject *kept;

    if (value == NULL) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "expected a ReplicateConfig, not %R", config);
        }
        return NULL;
    }
    kept = yb_py_keep(call, value) ? value : NULL;
    Py_DECREF(value); /* The call has one of its own. */
    return kept;
}

static bool
replicate_numbers(struct yb_py_call *call, PyObject *config, struct yb_compat_replicate *replicate)
{
    static const char *const names[] = {"replica_num", "nof_replica_num", "dfs_replica_num"};
    int64_t *const numbers[] = {&replicate->replica_num, &replicate->nof_replica_num,
                                &replicate->dfs_replica_num};
    PyObject *value;
    uint64_t action;

    for (unsigned i = 0; i < 3; i++) {
        value = attribute(call, config, names[i]);
        if (value == NULL || !yb_py_signed(value, numbers[i])) {
            return false;
        }
    }
    value = attribute(call, config, "soft_pin_action");
    if (value == NULL || !yb_py_word(value, &action)) {
        return false;
    }
    replicate->soft_pin_action = action > UINT32_MAX ? UINT32_MAX : (uint32_t)action;
    value = attribute(call, config, "soft_pin_ttl_ms");
    if (value == NULL) {
        return false;
    }
    replicate->soft_pin_has_ttl = value != Py_None;
    if (value != Py_None && !yb_py_word(value, &replicate->soft_pin_ttl_ms)) {
        return false;
    }
    value = attribute(call, config, "with_hard_pin");
    if (value == NULL || !yb_py_flag(value, false, &replicate->hard_pin)) {
        return false;
    }
    value = attribute(call, config, "prefer_alloc_in_same_node");
    return value != NULL && yb_py_flag(value, false, &replicate->same_node);
}

/* The list, and behind it the single name of older callers. */
static bool
replicate_preferred(struct yb_py_call *call, PyObject *config,
                    struct yb_compat_replicate *replicate)
{
    PyObject *list = attribute(call, config, "preferred_segments");
    PyObject *single = attribute(call, config, "preferred_segment");
    const char *one, **names;
    uint32_t count, used = 0;
    PyObject *tuple;

    if (list == NULL || single == NULL || !yb_py_elements(call, list, &tuple, &count) ||
        !yb_py_text(single, "", &one)) {
        return false;
    }
    names = yb_py_room(call, (size_t)count + 2, sizeof(*names));
    if (names == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!yb_py_text(PyTuple_GetItem(tuple, (Py_ssize_t)i), "", &names[used])) {
            return false;
        }
        used += names[used][0] != '\0';
    }
    if (one[0] != '\0') {
        names[used++] = one;
    }
    names[used] = NULL;
    replicate->preferred = used == 0 ? NULL : names;
    return true;
}

bool
yb_py_replicate(struct yb_py_call *call, PyObject *config,
                struct yb_compat_replicate **replicate_out)
{
    struct yb_compat_replicate *replicate;
    yb_compat_key *groups;
    PyObject *group_ids;

    *replicate_out = NULL;
    if (config == NULL || config == Py_None) {
        return true;
    }
    replicate = yb_py_room(call, 1, sizeof(*replicate));
    if (replicate == NULL) {
        return false;
    }
    yb_compat_replicate_default(replicate);
    if (!replicate_numbers(call, config, replicate) ||
        !replicate_preferred(call, config, replicate)) {
        return false;
    }
    group_ids = attribute(call, config, "group_ids");
    if (group_ids == NULL) {
        return false;
    }
    if (group_ids != Py_None) {
        if (!yb_py_keys(call, group_ids, &groups, &replicate->group_count)) {
            return false;
        }
        replicate->groups = groups;
    }
    *replicate_out = replicate;
    return true;
}

/* ---- the calls ------------------------------------------------------------------------------ */

/* Do it; `codes_out` has one entry for each key. */
static bool
run(PyObject *self, const struct put *put, int32_t *codes_out)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    const struct yb_compat_put_call options = {put->kind, put->upsert, put->replicate};

    if (store == NULL) {
        return false;
    }
    if (!put->equal) {
        for (uint32_t i = 0; i < put->count; i++) {
            codes_out[i] = YB_COMPAT_INVALID_PARAMS;
        }
        return true;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_put(store, put->keys, put->values, put->count, &options, codes_out);
    Py_END_ALLOW_THREADS;
    return true;
}

static PyObject *
run_single(PyObject *self, const struct put *put)
{
    int32_t code = YB_COMPAT_INVALID_PARAMS;

    if (!run(self, put, &code)) {
        return NULL;
    }
    return PyLong_FromLong(code);
}

static PyObject *
run_batch(PyObject *self, struct yb_py_call *call, const struct put *put)
{
    int32_t *codes = yb_py_room(call, put->count, sizeof(*codes));

    if (codes == NULL || !run(self, put, codes)) {
        return NULL;
    }
    return yb_py_codes(codes, put->count);
}

/* put(key, value, config) and upsert. */
static PyObject *
put_value(PyObject *self, struct yb_py_call *call, PyObject *const *argument, bool upsert)
{
    struct yb_compat_value value = {NULL, 1};
    struct iovec piece;
    yb_compat_key key;
    struct put put = {.keys = &key, .values = &value, .count = 1, .upsert = upsert, .equal = true};

    put.kind = YB_COMPAT_PUT_VALUE;
    value.pieces = &piece;
    if (!yb_py_key(argument[0], &key) || !yb_py_bytes(call, argument[1], &piece) ||
        !yb_py_replicate(call, argument[2], &put.replicate)) {
        return NULL;
    }
    return run_single(self, &put);
}

YB_PY_DEFINE(put, 2, false, "key", "value", "config")
{
    return put_value(self, call, argument, false);
}

YB_PY_DEFINE(upsert, 2, false, "key", "value", "config")
{
    return put_value(self, call, argument, true);
}

/* put_batch(keys, values, config): one code for all. */
static PyObject *
put_batch_values(PyObject *self, struct yb_py_call *call, PyObject *const *argument, bool upsert)
{
    struct put put = {.kind = YB_COMPAT_PUT_BATCH, .upsert = upsert};
    struct iovec *pieces;
    uint32_t values_count;
    PyObject *tuple;
    int32_t *codes;

    if (!yb_py_keys(call, argument[0], &put.keys, &put.count) ||
        !yb_py_elements(call, argument[1], &tuple, &values_count) ||
        !yb_py_replicate(call, argument[2], &put.replicate)) {
        return NULL;
    }
    if (values_count != put.count) {
        return PyLong_FromLong(YB_COMPAT_INVALID_PARAMS);
    }
    put.equal = true;
    put.values = yb_py_room(call, put.count, sizeof(*put.values));
    pieces = yb_py_room(call, put.count, sizeof(*pieces));
    codes = yb_py_room(call, put.count, sizeof(*codes));
    if (put.values == NULL || pieces == NULL || codes == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < put.count; i++) {
        if (!yb_py_bytes(call, PyTuple_GetItem(tuple, (Py_ssize_t)i), &pieces[i])) {
            return NULL;
        }
        put.values[i].pieces = &pieces[i];
        put.values[i].count = 1;
    }
    if (!run(self, &put, codes)) {
        return NULL;
    }
    for (uint32_t i = 0; i < put.count; i++) {
        if (codes[i] != YB_COMPAT_OK) {
            return PyLong_FromLong(codes[i]);
        }
    }
    return PyLong_FromLong(YB_COMPAT_OK);
}

YB_PY_DEFINE(put_batch, 2, false, "keys", "values", "config")
{
    return put_batch_values(self, call, argument, false);
}

YB_PY_DEFINE(upsert_batch, 2, false, "keys", "values", "config")
{
    return put_batch_values(self, call, argument, true);
}

/* put_parts(key, *parts, config=...): the arguments are sorted here, as their number is open. */
static PyObject *
put_parts_within(PyObject *self, struct yb_py_call *call, const struct yb_py_given *given,
                 bool upsert)
{
    Py_ssize_t keywords = given->keywords == NULL ? 0 : PyTuple_Size(given->keywords);
    uint32_t parts = given->count < 1 ? 0 : (uint32_t)given->count - 1;
    struct iovec *pieces = yb_py_room(call, parts, sizeof(*pieces));
    struct yb_compat_value value = {pieces, parts};
    yb_compat_key key;
    struct put put = {.keys = &key, .values = &value, .count = 1, .upsert = upsert, .equal = true};

    put.kind = YB_COMPAT_PUT_PARTS;
    if (pieces == NULL) {
        return NULL;
    }
    if (given->count < 1) {
        PyErr_SetString(PyExc_TypeError, "put_parts() missing required argument: 'key'");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *name = PyTuple_GetItem(given->keywords, i);

        if (PyUnicode_CompareWithASCIIString(name, "config") != 0) {
            PyErr_Format(PyExc_TypeError, "put_parts() got an unexpected keyword argument '%U'",
                         name);
            return NULL;
        }
        if (!yb_py_replicate(call, given->values[given->count + i], &put.replicate)) {
            return NULL;
        }
    }
    if (!yb_py_key(given->values[0], &key)) {
        return NULL;
    }
    for (uint32_t i = 0; i < parts; i++) {
        if (!yb_py_plain_bytes(call, given->values[i + 1], &pieces[i])) {
            return NULL;
        }
    }
    return run_single(self, &put);
}

static PyObject *
put_parts(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *keywords)
{
    struct yb_py_call call;
    PyObject *result;

    yb_py_call_begin(&call);
    result = put_parts_within(self, &call, &(struct yb_py_given){values, count, keywords}, false);
    yb_py_call_end(&call);
    return result;
}

static PyObject *
upsert_parts(PyObject *self, PyObject *const *values, Py_ssize_t count, PyObject *keywords)
{
    struct yb_py_call call;
    PyObject *result;

    yb_py_call_begin(&call);
    result = put_parts_within(self, &call, &(struct yb_py_given){values, count, keywords}, true);
    yb_py_call_end(&call);
    return result;
}

/* put_from(key, buffer_ptr, size, config) */
static PyObject *
put_address(PyObject *self, struct yb_py_call *call, PyObject *const *argument, bool upsert)
{
    struct yb_compat_value value = {NULL, 1};
    uint64_t address, length;
    struct iovec piece;
    yb_compat_key key;
    struct put put = {.keys = &key, .values = &value, .count = 1, .upsert = upsert, .equal = true};

    put.kind = YB_COMPAT_PUT_FROM;
    value.pieces = &piece;
    if (!yb_py_key(argument[0], &key) || !yb_py_word(argument[1], &address) ||
        !yb_py_word(argument[2], &length) || !yb_py_replicate(call, argument[3], &put.replicate)) {
        return NULL;
    }
    piece = (struct iovec){(void *)(uintptr_t)address, (size_t)length};
    return run_single(self, &put);
}

YB_PY_DEFINE(put_from, 3, false, "key", "buffer_ptr", "size", "config")
{
    return put_address(self, call, argument, false);
}

YB_PY_DEFINE(upsert_from, 3, false, "key", "buffer_ptr", "size", "config")
{
    return put_address(self, call, argument, true);
}

/* The metadata first, then the data. What fails here is told as a positive number. */
YB_PY_DEFINE(put_from_with_metadata, 5, false, "key", "buffer_ptr", "metadata_buffer_ptr", "size",
             "metadata_size", "config")
{
    uint64_t data, metadata, data_bytes, metadata_bytes;
    int32_t code = YB_COMPAT_INVALID_PARAMS;
    struct iovec pieces[2];
    struct yb_compat_value value = {pieces, 2};
    yb_compat_key key;
    struct put put = {.keys = &key, .values = &value, .count = 1, .equal = true};

    put.kind = YB_COMPAT_PUT_FROM;
    if (!yb_py_key(argument[0], &key) || !yb_py_word(argument[1], &data) ||
        !yb_py_word(argument[2], &metadata) || !yb_py_word(argument[3], &data_bytes) ||
        !yb_py_word(argument[4], &metadata_bytes) ||
        !yb_py_replicate(call, argument[5], &put.replicate)) {
        return NULL;
    }
    if (!yb_py_store_ready(self)) {
        return PyErr_Occurred() != NULL ? NULL : PyLong_FromLong(YB_COMPAT_INVALID_PARAMS);
    }
    if (put.replicate != NULL && put.replicate->same_node) {
        return PyLong_FromLong(YB_COMPAT_INTERNAL_ERROR);
    }
    if (data_bytes == 0) {
        return PyLong_FromLong(YB_COMPAT_OK);
    }
    pieces[0] = (struct iovec){(void *)(uintptr_t)metadata, (size_t)metadata_bytes};
    pieces[1] = (struct iovec){(void *)(uintptr_t)data, (size_t)data_bytes};
    if (!run(self, &put, &code)) {
        return NULL;
    }
    return PyLong_FromLong(-code);
}

/* batch_put_from(keys, buffer_ptrs, sizes, config) */
static PyObject *
put_addresses(PyObject *self, struct yb_py_call *call, PyObject *const *argument, bool upsert)
{
    struct put put = {.kind = YB_COMPAT_PUT_BUFFERS, .upsert = upsert};

    if (!yb_py_keys(call, argument[0], &put.keys, &put.count) ||
        !yb_py_single_values(call, argument[1], argument[2], put.count, &put.values, &put.equal) ||
        !yb_py_replicate(call, argument[3], &put.replicate)) {
        return NULL;
    }
    return run_batch(self, call, &put);
}

YB_PY_DEFINE(batch_put_from, 3, false, "keys", "buffer_ptrs", "sizes", "config")
{
    return put_addresses(self, call, argument, false);
}

YB_PY_DEFINE(batch_upsert_from, 3, false, "keys", "buffer_ptrs", "sizes", "config")
{
    return put_addresses(self, call, argument, true);
}

YB_PY_DEFINE(batch_put_from_multi_buffers, 3, false, "keys", "all_buffer_ptrs", "all_sizes",
             "config")
{
    struct put put = {.kind = YB_COMPAT_PUT_PIECES};

    if (!yb_py_keys(call, argument[0], &put.keys, &put.count) ||
        !yb_py_values(call, argument[1], argument[2], put.count, &put.values, &put.equal) ||
        !yb_py_replicate(call, argument[3], &put.replicate)) {
        return NULL;
    }
    if (!yb_py_store_ready(self)) {
        return PyErr_Occurred() != NULL ? NULL : PyList_New(0);
    }
    return run_batch(self, call, &put);
}

PyMethodDef yb_py_store_put_methods[] = {
    YB_PY_ROW("put", put,
              "put(key, value, config=ReplicateConfig())\n\n0, also when the key is there already "
              "and keeps its value; or a code: -200 no room, -600 an empty value."),
    YB_PY_ROW("upsert", upsert,
              "upsert(key, value, config=ReplicateConfig())\n\nAs put, but replaces."),
    YB_PY_ROW("put_batch", put_batch,
              "put_batch(keys, values, config=ReplicateConfig())\n\n0, or the first code."),
    YB_PY_ROW("upsert_batch", upsert_batch,
              "upsert_batch(keys, values, config=ReplicateConfig())\n\n0, or the first code."),
    YB_PY_ROW("put_parts", put_parts,
              "put_parts(key, *parts, config=ReplicateConfig())\n\nPut what the parts hold, one "
              "after the other. 0, or a code."),
    YB_PY_ROW("upsert_parts", upsert_parts,
              "upsert_parts(key, *parts, config=ReplicateConfig())\n\nAs put_parts, but replaces."),
    YB_PY_ROW("put_from", put_from,
              "put_from(key, buffer_ptr, size, config=ReplicateConfig())\n\n0, or a code."),
    YB_PY_ROW("upsert_from", upsert_from,
              "upsert_from(key, buffer_ptr, size, config=ReplicateConfig())\n\n0, or a code."),
    YB_PY_ROW("put_from_with_metadata", put_from_with_metadata,
              "put_from_with_metadata(key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, "
              "config=ReplicateConfig())\n\n0, or a code without its sign."),
    YB_PY_ROW("batch_put_from", batch_put_from,
              "batch_put_from(keys, buffer_ptrs, sizes, config=ReplicateConfig())\n\n"
              "0 or a code of each."),
    YB_PY_ROW("batch_upsert_from", batch_upsert_from,
              "batch_upsert_from(keys, buffer_ptrs, sizes, config=ReplicateConfig())\n\n"
              "0 or a code of each."),
    YB_PY_ROW("batch_put_from_multi_buffers", batch_put_from_multi_buffers,
              "batch_put_from_multi_buffers(keys, all_buffer_ptrs, all_sizes, "
              "config=ReplicateConfig())\n\nEach value is made of several pieces. 0 or a code of "
              "each."),
    {NULL, NULL, 0, NULL},
};
