/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions, and ranges of many values into many buffers.
 */
#include "native.h"

/* ---- sessions ------------------------------------------------------------------------------- */

/* What a call before setup gives where a list is expected. */
static PyObject *
nothing_yet(void)
{
    return PyErr_Occurred() != NULL ? NULL : PyList_New(0);
}

bool
yb_py_offsets(struct yb_py_call *call, PyObject *object, const struct yb_compat_value *values,
              uint32_t count, const uint64_t ***offsets_out, bool *equal_out)
{
    struct yb_py_words *lists;
    const uint64_t **offsets;
    uint32_t lists_count;

    if (!yb_py_lists(call, object, &lists, &lists_count)) {
        return false;
    }
    offsets = yb_py_room(call, count, sizeof(*offsets));
    *equal_out = lists_count == count;
    for (uint32_t i = 0; i < count && *equal_out && offsets != NULL; i++) {
        *equal_out = lists[i].count == values[i].count;
        offsets[i] = lists[i].words;
    }
    *offsets_out = offsets;
    return offsets != NULL;
}

/* A code of each key. */
typedef void codes_fn(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                      int32_t *codes_out);

static PyObject *
codes_of_keys(PyObject *self, struct yb_py_call *call, PyObject *const *argument, codes_fn *run)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key *keys;
    uint32_t count;
    int32_t *codes;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count)) {
        return NULL;
    }
    if (!yb_py_store_ready(self)) {
        return nothing_yet();
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    run(store, keys, count, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_codes(codes, count);
}

YB_PY_DEFINE(batch_get_session_start, 1, false, "keys")
{
    return codes_of_keys(self, call, argument, yb_compat_store_get_session_start);
}

YB_PY_DEFINE(batch_get_session_end, 1, false, "keys")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key *keys;
    uint32_t count;
    int32_t code;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_get_session_end(store, keys, count);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

typedef void moves_fn(struct yb_compat_store *store, const yb_compat_key *keys,
                      const struct yb_compat_value *values, const uint64_t *const *offsets,
                      uint32_t count, int64_t *codes_out);

/* (keys, all_buffer_ptrs, all_sizes, all_offsets) */
static PyObject *
session_move(PyObject *self, struct yb_py_call *call, PyObject *const *argument, moves_fn *move)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_value *values;
    const uint64_t **offsets;
    bool equal, offsets_equal;
    yb_compat_key *keys;
    uint32_t count;
    int64_t *codes;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count) ||
        !yb_py_values(call, argument[1], argument[2], count, &values, &equal)) {
        return NULL;
    }
    if (!yb_py_store_ready(self)) {
        return nothing_yet();
    }
    if (!equal) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, count);
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL ||
        !yb_py_offsets(call, argument[3], values, count, &offsets, &offsets_equal)) {
        return NULL;
    }
    if (!offsets_equal) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, count);
    }
    Py_BEGIN_ALLOW_THREADS;
    move(store, keys, values, offsets, count, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_sizes(codes, count);
}

YB_PY_DEFINE(batch_get_into_multi_buffer_ranges, 4, false, "keys", "all_buffer_ptrs", "all_sizes",
             "all_src_offsets")
{
    return session_move(self, call, argument, yb_compat_store_get_session_read);
}

YB_PY_DEFINE(batch_put_from_multi_buffer_ranges, 4, false, "keys", "all_buffer_ptrs", "all_sizes",
             "all_dst_offsets")
{
    return session_move(self, call, argument, yb_compat_store_put_session_write);
}

YB_PY_DEFINE(batch_put_session_start, 2, false, "keys", "sizes", "config")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_replicate *replicate;
    struct yb_py_words sizes;
    yb_compat_key *keys;
    uint32_t count;
    int32_t *codes;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count) ||
        !yb_py_words(call, argument[1], &sizes) ||
        !yb_py_replicate(call, argument[2], &replicate)) {
        return NULL;
    }
    if (!yb_py_store_ready(self)) {
        return nothing_yet();
    }
    if (sizes.count != count) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, count);
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_put_session_start(store, keys, sizes.words, count, replicate, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_codes(codes, count);
}

YB_PY_DEFINE(batch_put_session_end, 1, false, "keys")
{
    return codes_of_keys(self, call, argument, yb_compat_store_put_session_end);
}

YB_PY_DEFINE(batch_put_session_revoke, 1, false, "keys")
{
    return codes_of_keys(self, call, argument, yb_compat_store_put_session_revoke);
}

/* ---- get_into_ranges ------------------------------------------------------------------------ */

/* The fragments of one key of one buffer. */
struct fragments {
    struct yb_py_words into; /* Offsets in the buffer; they give the result its shape. */
    struct yb_py_words from;
    struct yb_py_words sizes;
    uint32_t key;
    bool equal;
};

struct ranges {
    yb_compat_key *keys;
    struct fragments *fragments; /* Of all buffers, one after the other. */
    uint32_t *keys_of;           /* How many each buffer has. */
    struct yb_py_words bases;
    uint32_t key_count;
    uint32_t range_count; /* Of fragments whose lists fit. */
    struct yb_compat_range *ranges;
};

/* Lists of one buffer. Where the three differ in length, what is missing is empty. */
static bool
collect_buffer(struct yb_py_call *call, PyObject *const lists[4], struct ranges *all,
               uint32_t buffer, struct fragments **next)
{
    struct yb_py_words *into, *from, *sizes;
    uint32_t counts[4];
    PyObject *keys;

    if (!yb_py_elements(call, lists[0], &keys, &counts[0]) ||
        !yb_py_lists(call, lists[1], &into, &counts[1]) ||
        !yb_py_lists(call, lists[2], &from, &counts[2]) ||
        !yb_py_lists(call, lists[3], &sizes, &counts[3])) {
        return false;
    }
    all->keys_of[buffer] = counts[1];
    *next = yb_py_room(call, counts[1], sizeof(**next));
    for (uint32_t i = 0; i < counts[1] && *next != NULL; i++) {
        struct fragments *one = &(*next)[i];

        one->into = into[i];
        one->equal = i < counts[0] && i < counts[2] && i < counts[3] &&
                     from[i].count == into[i].count && sizes[i].count == into[i].count;
        if (!one->equal) {
            continue;
        }
        one->from = from[i];
        one->sizes = sizes[i];
        one->key = all->key_count++;
        all->range_count += into[i].count;
        if (!yb_py_key(PyTuple_GetItem(keys, (Py_ssize_t)i), &all->keys[one->key])) {
            return false;
        }
    }
    return *next != NULL;
}

/* How many keys there are at most. */
static bool
count_keys(struct yb_py_call *call, PyObject *lists, uint32_t count, uint32_t *keys_out)
{
    *keys_out = 0;
    for (uint32_t i = 0; i < count; i++) {
        PyObject *tuple;
        uint32_t more;

        if (!yb_py_elements(call, PyTuple_GetItem(lists, (Py_ssize_t)i), &tuple, &more)) {
            return false;
        }
        if (__builtin_add_overflow(*keys_out, more, keys_out)) {
            PyErr_SetString(PyExc_TypeError, "too many keys");
            return false;
        }
    }
    return true;
}

/* Whatever lies outside of a buffer's registered memory is refused before anything is read. */
static void
fill_ranges(struct yb_compat_store *store, const struct ranges *all,
            struct fragments *const *of_buffers)
{
    struct yb_compat_range *range = all->ranges;

    for (uint32_t b = 0; b < all->bases.count; b++) {
        const void *base = (const void *)(uintptr_t)all->bases.words[b];
        uint64_t room = yb_compat_store_registered(store, base);

        for (uint32_t k = 0; k < all->keys_of[b]; k++) {
            const struct fragments *one = &of_buffers[b][k];

            for (uint32_t f = 0; f < one->into.count && one->equal; f++, range++) {
                uint64_t into = one->into.words[f], bytes = one->sizes.words[f];
                bool fits = into <= room && bytes <= room - into;

                range->key = one->key;
                range->into = fits ? (void *)(uintptr_t)(all->bases.words[b] + into) : NULL;
                range->source = one->from.words[f];
                range->bytes = bytes;
                range->code_out = YB_COMPAT_INVALID_PARAMS;
            }
        }
    }
}

/* Those that fit move to the front, are got, and their codes come back to their places. */
static bool
get_fitting(struct yb_py_call *call, struct yb_compat_store *store, const struct ranges *all)
{
    struct yb_compat_range *fitting = yb_py_room(call, all->range_count, sizeof(*fitting));
    uint32_t count = 0;

    if (fitting == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < all->range_count; i++) {
        if (all->ranges[i].into != NULL) {
            fitting[count++] = all->ranges[i];
        }
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_get_ranges(store, all->keys, all->key_count, fitting, count);
    Py_END_ALLOW_THREADS;
    count = 0;
    for (uint32_t i = 0; i < all->range_count; i++) {
        if (all->ranges[i].into != NULL) {
            all->ranges[i].code_out = fitting[count++].code_out;
        }
    }
    return true;
}

/* The codes of one key's fragments. */
static PyObject *
fragments_result(struct yb_py_call *call, const struct fragments *one,
                 const struct yb_compat_range *ranges)
{
    int64_t *codes;

    if (!one->equal) {
        return yb_py_repeat(YB_COMPAT_INVALID_PARAMS, one->into.count);
    }
    codes = yb_py_room(call, one->into.count, sizeof(*codes));
    for (uint32_t i = 0; i < one->into.count && codes != NULL; i++) {
        codes[i] = ranges[i].code_out;
    }
    return codes == NULL ? NULL : yb_py_sizes(codes, one->into.count);
}

static PyObject *
shaped_result(struct yb_py_call *call, const struct ranges *all,
              struct fragments *const *of_buffers)
{
    const struct yb_compat_range *range = all->ranges;
    PyObject *outer = PyList_New((Py_ssize_t)all->bases.count);

    for (uint32_t b = 0; b < all->bases.count && outer != NULL; b++) {
        PyObject *middle = PyList_New((Py_ssize_t)all->keys_of[b]);

        for (uint32_t k = 0; k < all->keys_of[b] && middle != NULL; k++) {
            const struct fragments *one = &of_buffers[b][k];
            PyObject *inner = fragments_result(call, one, range);

            if (inner == NULL) {
                Py_CLEAR(middle);
                break;
            }
            PyList_SetItem(middle, (Py_ssize_t)k, inner);
            range += one->equal ? one->into.count : 0;
        }
        if (middle == NULL) {
            Py_CLEAR(outer);
            break;
        }
        PyList_SetItem(outer, (Py_ssize_t)b, middle);
    }
    return outer;
}

YB_PY_DEFINE(get_into_ranges, 5, false, "buffer_ptrs", "all_keys", "all_dst_offsets",
             "all_src_offsets", "all_sizes")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct fragments **of_buffers;
    struct ranges all = {0};
    PyObject *tuples[4];
    uint32_t counts[4], keys_max;

    if (store == NULL || !yb_py_words(call, argument[0], &all.bases)) {
        return NULL;
    }
    for (unsigned i = 0; i < 4; i++) {
        if (!yb_py_elements(call, argument[i + 1], &tuples[i], &counts[i])) {
            return NULL;
        }
        if (counts[i] != all.bases.count) {
            return Py_BuildValue("[[[i]]]", YB_COMPAT_INVALID_PARAMS);
        }
    }
    if (!count_keys(call, tuples[0], counts[0], &keys_max)) {
        return NULL;
    }
    all.keys = yb_py_room(call, keys_max, sizeof(*all.keys));
    all.keys_of = yb_py_room(call, all.bases.count, sizeof(*all.keys_of));
    of_buffers = yb_py_room(call, all.bases.count, sizeof(struct fragments *));
    if (all.keys == NULL || all.keys_of == NULL || of_buffers == NULL) {
        return NULL;
    }
    for (uint32_t b = 0; b < all.bases.count; b++) {
        PyObject *lists[4];

        for (unsigned i = 0; i < 4; i++) {
            lists[i] = PyTuple_GetItem(tuples[i], (Py_ssize_t)b);
        }
        if (!collect_buffer(call, lists, &all, b, &of_buffers[b])) {
            return NULL;
        }
    }
    all.ranges = yb_py_room(call, all.range_count, sizeof(*all.ranges));
    if (all.ranges == NULL) {
        return NULL;
    }
    fill_ranges(store, &all, of_buffers);
    return get_fitting(call, store, &all) ? shaped_result(call, &all, of_buffers) : NULL;
}

PyMethodDef yb_py_store_session_methods[] = {
    YB_PY_ROW("batch_get_session_start", batch_get_session_start,
              "batch_get_session_start(keys)\n\nKeep a replica in memory of each for reading. 0 or "
              "a code of each: -704 it is not there, -702 it is not in memory."),
    YB_PY_ROW("batch_get_into_multi_buffer_ranges", batch_get_into_multi_buffer_ranges,
              "batch_get_into_multi_buffer_ranges(keys, all_buffer_ptrs, all_sizes, "
              "all_src_offsets)\n\nRead ranges of values that a session keeps. Bytes or a code of "
              "each: -600 no session, -707 its lease is over."),
    YB_PY_ROW("batch_get_session_end", batch_get_session_end,
              "batch_get_session_end(keys)\n\n0; -1 before setup."),
    YB_PY_ROW("batch_put_session_start", batch_put_session_start,
              "batch_put_session_start(keys, sizes, config=ReplicateConfig())\n\nReserve room. 0 "
              "or a code of each: -705 it is there already."),
    YB_PY_ROW("batch_put_from_multi_buffer_ranges", batch_put_from_multi_buffer_ranges,
              "batch_put_from_multi_buffer_ranges(keys, all_buffer_ptrs, all_sizes, "
              "all_dst_offsets)\n\nWrite ranges of values that a session reserved. Bytes or a code "
              "of each."),
    YB_PY_ROW("batch_put_session_end", batch_put_session_end,
              "batch_put_session_end(keys)\n\nMake the values visible. 0 or a code of each."),
    YB_PY_ROW("batch_put_session_revoke", batch_put_session_revoke,
              "batch_put_session_revoke(keys)\n\nGive the room back. 0 or a code of each."),
    YB_PY_ROW("get_into_ranges", get_into_ranges,
              "get_into_ranges(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, "
              "all_sizes)\n\nRanges of many values into many buffers. Bytes or codes by buffer, "
              "key and fragment."),
    {NULL, NULL, 0, NULL},
};
