/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing._native.Client` and `.Batch`: client.h in Python, for yuebing.Store to build upon.
 *
 * A batch's items, keys and buffers live in its object until it has ended, whatever becomes of the
 * caller's.
 */
#include "native.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "yuebing/client.h"

struct client {
    PyObject ob_base;
    struct yb_client *client; /* NULL: not open. */
    uint32_t inside;          /* Calls that gave the interpreter's lock up. */
    bool closing;             /* The last of them closes. */
    pid_t process;
};

struct batch {
    PyObject ob_base;
    PyObject *client;
    yb_client_handle handle; /* 0: it has ended, and was finished. */
    int event_fd;
    uint32_t count;
    struct yb_client_item *items;
    struct yb_client_call options;
    struct yb_py_call call;
    /* ---- of a fetch ---- */
    bool *known;     /* Items whose end was told of; NULL: it is no fetch. */
    uint32_t *order; /* Those of them that wait to be handed out, in the order of their ends. */
    uint32_t order_count;
    uint32_t order_at;
};

static struct client *
object_of(PyObject *self)
{
    return (struct client *)(void *)self;
}

static struct batch *
batch_of(PyObject *self)
{
    return (struct batch *)(void *)self;
}

/* ---- entering and leaving ------------------------------------------------------------------- */

/* NULL with ValueError when it is closed, or the parent's. Otherwise leave() must follow. */
static struct yb_client *
enter(PyObject *self)
{
    struct client *object = object_of(self);

    if (object->client == NULL || object->closing || object->process != getpid()) {
        PyErr_SetString(PyExc_ValueError, "the store is closed, or it is a parent process's");
        return NULL;
    }
    object->inside++;
    return object->client;
}

static void
leave(PyObject *self)
{
    struct client *object = object_of(self);
    struct yb_client *client = object->client;

    object->inside--;
    if (object->closing && object->inside == 0) {
        object->client = NULL;
        Py_BEGIN_ALLOW_THREADS;
        yb_client_close(&client);
        Py_END_ALLOW_THREADS;
    }
}

static void
client_dealloc(PyObject *self)
{
    struct client *object = object_of(self);

    if (object->client != NULL && object->process == getpid()) {
        Py_BEGIN_ALLOW_THREADS;
        yb_client_close(&object->client);
        Py_END_ALLOW_THREADS;
    }
    yb_py_free(self);
}

/* (directory, secret_file, tenant, tls, shared_memory, timeout_ns) -> (status, message) */
YB_PY_DEFINE(client_open, 6, true, "directory", "secret_file", "tenant", "tls", "shared_memory",
             "timeout_ns")
{
    struct yb_client_options options = {.struct_bytes = sizeof(options)};
    PyObject *texts[3];
    const char **const fields[3] = {&options.directory, &options.secret_file, &options.tenant};
    struct yb_client *client = NULL;
    enum yb_status status;
    char message[512] = "";
    uint64_t timeout_ns;
    bool shared;

    (void)call;
    for (unsigned i = 0; i < 3; i++) {
        texts[i] = argument[i] == Py_None ? NULL : argument[i];
        if (!yb_py_text(texts[i], NULL, fields[i])) {
            return NULL;
        }
    }
    if (!yb_py_flag(argument[3], false, &options.tls) || !yb_py_flag(argument[4], true, &shared) ||
        !yb_py_word(argument[5], &timeout_ns)) {
        return NULL;
    }
    if (object_of(self)->client != NULL) {
        return Py_BuildValue("(is)", (int)YB_INVALID, "it is open already");
    }
    options.no_shared_memory = !shared;
    Py_BEGIN_ALLOW_THREADS;
    status = yb_client_open(&options, timeout_ns, &client, message, sizeof(message));
    Py_END_ALLOW_THREADS;
    if (status == YB_OK) {
        object_of(self)->client = client;
        object_of(self)->process = getpid();
        object_of(self)->closing = false;
    }
    return Py_BuildValue("(is)", (int)status, message);
}

static PyObject *
client_close(PyObject *self, PyObject *none)
{
    struct client *object = object_of(self);

    (void)none;
    if (object->client != NULL && !object->closing && object->process == getpid()) {
        object->inside++;
        object->closing = true;
        leave(self);
    }
    Py_RETURN_NONE;
}

/* ---- batches -------------------------------------------------------------------------------- */

/* (timeout_ns, class, replicas, replace, soft, hard, ttl_ms, soft_pin_ms, preferred, hold_ms,
 * force) */
static bool
take_options(struct yb_py_call *call, PyObject *object, struct yb_client_call *options_out)
{
    struct yb_client_put_options *put = &options_out->put;
    unsigned long long timeout_ns, ttl_ms, soft_pin_ms;
    unsigned work_class, replicas, hold_ms;
    int replace, soft, hard, force;
    const char **preferred;
    PyObject *names, *tuple;
    uint32_t count;

    if (!PyArg_ParseTuple(object, "KIIpppKKOIp", &timeout_ns, &work_class, &replicas, &replace,
                          &soft, &hard, &ttl_ms, &soft_pin_ms, &names, &hold_ms, &force) ||
        !yb_py_elements(call, names, &tuple, &count)) {
        return false;
    }
    preferred = yb_py_room(call, (size_t)count + 1, sizeof(*preferred));
    for (uint32_t i = 0; i < count && preferred != NULL; i++) {
        if (!yb_py_text(PyTuple_GetItem(tuple, (Py_ssize_t)i), "", &preferred[i])) {
            return false;
        }
    }
    options_out->struct_bytes = sizeof(*options_out);
    options_out->timeout_ns = timeout_ns;
    options_out->work_class = work_class;
    options_out->hold_ms = hold_ms;
    options_out->force = force != 0;
    put->replicas = replicas;
    put->replace = replace != 0;
    put->soft_pin = soft != 0;
    put->hard_pin = hard != 0;
    put->ttl_ms = ttl_ms;
    put->soft_pin_ms = soft_pin_ms;
    put->preferred = count == 0 ? NULL : preferred;
    return preferred != NULL;
}

/* A place for what is got: a writable buffer. */
static bool
take_place(struct yb_py_call *call, PyObject *object, struct iovec *place_out)
{
    Py_buffer probe;

    /* Only asked whether it may be written; the view that is kept is the plain one. */
    if (PyObject_GetBuffer(object, &probe, PyBUF_WRITABLE) != 0) {
        return false;
    }
    PyBuffer_Release(&probe);
    return yb_py_bytes(call, object, place_out);
}

/* (op, keys, buffers or None, offsets or None ...); the group is that of all. */
static bool
take_items(struct batch *batch, PyObject *const *argument, enum yb_client_op op)
{
    struct yb_py_call *call = &batch->call;
    PyObject *buffers = NULL;
    struct yb_py_words offsets = {NULL, 0};
    uint32_t buffer_count = 0;
    struct iovec *keys, *places;

    if (!yb_py_keys(call, argument[1], &keys, &batch->count) ||
        (argument[2] != Py_None && !yb_py_elements(call, argument[2], &buffers, &buffer_count)) ||
        (argument[3] != Py_None && !yb_py_words(call, argument[3], &offsets))) {
        return false;
    }
    if ((buffers != NULL && buffer_count != batch->count) ||
        (offsets.words != NULL && offsets.count != batch->count)) {
        PyErr_SetString(PyExc_ValueError, "there are not as many buffers or offsets as keys");
        return false;
    }
    batch->items = yb_py_room(call, batch->count, sizeof(*batch->items));
    places = yb_py_room(call, batch->count, sizeof(*places));
    for (uint32_t i = 0; i < batch->count && batch->items != NULL && places != NULL; i++) {
        struct yb_client_item *item = &batch->items[i];

        item->key = keys[i].iov_base;
        item->key_bytes = keys[i].iov_len > UINT32_MAX ? UINT32_MAX : (uint32_t)keys[i].iov_len;
        if (buffers != NULL) {
            PyObject *buffer = PyTuple_GetItem(buffers, (Py_ssize_t)i);

            if (op == YB_CLIENT_OP_GET ? !take_place(call, buffer, &places[i])
                                       : !yb_py_bytes(call, buffer, &places[i])) {
                return false;
            }
            item->iov = &places[i];
            item->iov_count = 1;
        }
        item->ranged = offsets.words != NULL;
        item->offset = offsets.words == NULL ? 0 : offsets.words[i];
    }
    return batch->items != NULL && places != NULL;
}

/* (status, size, bytes, grant, replicas) */
static PyObject *
result_of(const struct yb_client_item *item)
{
    return Py_BuildValue("(iKKKI)", (int)item->status, (unsigned long long)item->size,
                         (unsigned long long)item->bytes, (unsigned long long)item->grant,
                         item->replicas);
}

static PyObject *
results_of(const struct batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);

    for (uint32_t i = 0; i < batch->count && list != NULL; i++) {
        PyObject *tuple = result_of(&batch->items[i]);

        if (tuple == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, (Py_ssize_t)i, tuple);
    }
    return list;
}

static PyObject *
batch_new(PyObject *client)
{
    struct yb_py_module *module = yb_py_module();
    PyTypeObject *type;
    PyObject *self;

    if (module == NULL) {
        return NULL;
    }
    type = (PyTypeObject *)(void *)module->batch_type;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        Py_INCREF(client);
        batch_of(self)->client = client;
        batch_of(self)->event_fd = -1;
        yb_py_call_begin(&batch_of(self)->call);
    }
    return self;
}

static bool
take_batch(struct batch *batch, PyObject *const *argument, enum yb_client_op *op_out)
{
    uint64_t op;

    if (!yb_py_word(argument[0], &op)) {
        return false;
    }
    if (op > YB_CLIENT_OP_REMOVE) {
        PyErr_SetString(PyExc_ValueError, "no such operation");
        return false;
    }
    *op_out = (enum yb_client_op)op;
    return take_options(&batch->call, argument[4], &batch->options) &&
           take_items(batch, argument, *op_out);
}

static enum yb_status
run_batch(struct yb_client *client, enum yb_client_op op, struct batch *batch)
{
    switch (op) {
    case YB_CLIENT_OP_PUT:
        return yb_client_put(client, batch->items, batch->count, &batch->options);
    case YB_CLIENT_OP_GET:
        return yb_client_get(client, batch->items, batch->count, &batch->options);
    case YB_CLIENT_OP_EXIST:
        return yb_client_exist(client, batch->items, batch->count, &batch->options);
    case YB_CLIENT_OP_REMOVE:
        return yb_client_remove(client, batch->items, batch->count, &batch->options);
    }
    return YB_INVALID;
}

/* -> (status, results) */
YB_PY_DEFINE(client_run, 5, true, "op", "keys", "buffers", "offsets", "options")
{
    PyObject *object = batch_new(self);
    struct yb_client *client;
    enum yb_client_op op;
    enum yb_status status;
    PyObject *result = NULL;

    (void)call;
    if (object == NULL) {
        return NULL;
    }
    if (take_batch(batch_of(object), argument, &op)) {
        client = enter(self);
        if (client != NULL) {
            Py_BEGIN_ALLOW_THREADS;
            status = run_batch(client, op, batch_of(object));
            Py_END_ALLOW_THREADS;
            leave(self);
            result = Py_BuildValue("(iN)", (int)status, results_of(batch_of(object)));
        }
    }
    Py_DECREF(object);
    return result;
}

/* Enter the client for a batch that was `read`, and make the event of its end. Returns NULL, with an
 * exception, and the batch is gone, if that cannot be. */
static struct yb_client *
begin_batch(PyObject *self, PyObject *object, bool read)
{
    struct yb_client *client = read ? enter(self) : NULL;

    if (client == NULL) {
        Py_DECREF(object);
        return NULL;
    }
    batch_of(object)->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return client;
}

/* Leave the client. -> (status, Batch or None) */
static PyObject *
begun(PyObject *self, PyObject *object, enum yb_status status)
{
    leave(self);
    if (status != YB_OK) {
        batch_of(object)->handle = 0;
        Py_DECREF(object);
        return Py_BuildValue("(iO)", (int)status, Py_None);
    }
    return Py_BuildValue("(iN)", (int)status, object);
}

/* -> (status, Batch or None) */
YB_PY_DEFINE(client_submit, 5, true, "op", "keys", "buffers", "offsets", "options")
{
    PyObject *object = batch_new(self);
    enum yb_status status = YB_NO_MEMORY;
    struct yb_client *client;
    enum yb_client_op op;
    struct batch *batch;

    (void)call;
    if (object == NULL) {
        return NULL;
    }
    batch = batch_of(object);
    client = begin_batch(self, object, take_batch(batch, argument, &op));
    if (client == NULL) {
        return NULL;
    }
    if (batch->event_fd > 0) {
        Py_BEGIN_ALLOW_THREADS;
        status = yb_client_submit(client, op, batch->items, batch->count, &batch->options, NULL,
                                  NULL, batch->event_fd, &batch->handle);
        Py_END_ALLOW_THREADS;
    }
    return begun(self, object, status);
}

/* Give each item of the list its own limit; None: that of all. */
static bool
take_limits(struct batch *batch, PyObject *object)
{
    struct yb_py_words limits = {NULL, 0};

    if (object == Py_None) {
        return true;
    }
    if (!yb_py_words(&batch->call, object, &limits)) {
        return false;
    }
    if (limits.count != batch->count) {
        PyErr_SetString(PyExc_ValueError, "there are not as many timeouts as keys");
        return false;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->items[i].timeout_ns = limits.words[i];
    }
    return true;
}

static bool
take_fetch(struct batch *batch, PyObject *const *argument, struct yb_client_fetch_options *options)
{
    PyObject *const get[] = {NULL, argument[0], argument[1], argument[2]};
    uint64_t window;

    if (!take_options(&batch->call, argument[3], &batch->options) ||
        !take_items(batch, get, YB_CLIENT_OP_GET) || !take_limits(batch, argument[4]) ||
        !yb_py_flag(argument[5], false, &options->ordered) || !yb_py_word(argument[6], &window)) {
        return false;
    }
    options->window = window > UINT32_MAX ? UINT32_MAX : (uint32_t)window;
    batch->known = yb_py_room(&batch->call, batch->count, sizeof(*batch->known));
    batch->order = yb_py_room(&batch->call, batch->count, sizeof(*batch->order));
    return batch->known != NULL && batch->order != NULL;
}

/* (keys, buffers, offsets, options, timeouts_ns or None, ordered, window) -> (status, Batch or
 * None) */
YB_PY_DEFINE(client_fetch, 7, true, "keys", "buffers", "offsets", "options", "timeouts_ns",
             "ordered", "window")
{
    struct yb_client_fetch_options options = {.struct_bytes = sizeof(options)};
    PyObject *object = batch_new(self);
    enum yb_status status = YB_NO_MEMORY;
    struct yb_client *client;
    struct batch *batch;

    (void)call;
    if (object == NULL) {
        return NULL;
    }
    batch = batch_of(object);
    client = begin_batch(self, object, take_fetch(batch, argument, &options));
    if (client == NULL) {
        return NULL;
    }
    options.event_fd = batch->event_fd;
    if (batch->event_fd > 0) {
        Py_BEGIN_ALLOW_THREADS;
        status = yb_client_fetch(client, batch->items, batch->count, &batch->options, &options,
                                 &batch->handle);
        Py_END_ALLOW_THREADS;
    }
    return begun(self, object, status);
}

/* An item has ended, and is to be handed out. */
static void
keep_order(struct batch *batch, uint32_t index)
{
    if (!batch->known[index]) {
        batch->known[index] = true;
        batch->order[batch->order_count++] = index;
    }
}

/* It has ended; its record goes, and with it the order in which the items of a fetch came: what
 * was not handed out yet is kept here. NULL: the client is closed, and its records are gone. */
static enum yb_status
batch_end(struct batch *batch, struct yb_client *client)
{
    yb_client_handle handle = batch->handle;
    uint32_t index;

    batch->handle = 0;
    if (client == NULL) {
        for (uint32_t i = 0; batch->known != NULL && i < batch->count; i++) {
            keep_order(batch, i);
        }
        return YB_CLOSED;
    }
    while (batch->known != NULL && yb_client_fetch_next(client, handle, 0, &index) == YB_OK) {
        keep_order(batch, index);
    }
    return yb_client_finish(client, handle) == YB_OK ? YB_OK : YB_CLOSED;
}

/* Wait, at most so long; on OK the record is given back. A closed client has ended it. */
static enum yb_status
batch_wait_for(struct batch *batch, uint64_t timeout_ns)
{
    yb_client_handle handle = batch->handle;
    enum yb_status status;
    struct yb_client *client;

    if (handle == 0) {
        return YB_OK;
    }
    client = enter(batch->client);
    if (client == NULL) {
        PyErr_Clear();
        return batch_end(batch, NULL);
    }
    Py_BEGIN_ALLOW_THREADS;
    status = timeout_ns == 0 ? yb_client_poll(client, handle)
                             : yb_client_wait(client, handle, timeout_ns);
    Py_END_ALLOW_THREADS;
    if (batch->handle != handle) {
        status = YB_OK; /* Another thread saw its end meanwhile, and gave the record back. */
    } else if (status == YB_OK) {
        status = batch_end(batch, client);
    }
    leave(batch->client);
    return status;
}

static void
batch_dealloc(PyObject *self)
{
    struct batch *batch = batch_of(self);
    struct yb_client *client;

    if (batch->handle != 0 && object_of(batch->client)->process == getpid()) {
        client = enter(batch->client);
        PyErr_Clear();
        if (client != NULL) {
            yb_client_cancel(client, batch->handle);
            leave(batch->client);
            /* Its memory is in use until it has ended; a cancelled one ends soon. */
            while (batch->handle != 0 && batch_wait_for(batch, 1000000000ull) == YB_TIMED_OUT) {
            }
        }
    }
    if (batch->event_fd >= 0) {
        close(batch->event_fd);
    }
    yb_py_call_end(&batch->call);
    Py_CLEAR(batch->client);
    yb_py_free(self);
}

/* wait(timeout_ns) -> status */
YB_PY_DEFINE(batch_wait, 1, true, "timeout_ns")
{
    uint64_t timeout_ns;

    (void)call;
    if (!yb_py_word(argument[0], &timeout_ns)) {
        return NULL;
    }
    return PyLong_FromLong((long)batch_wait_for(batch_of(self), timeout_ns));
}

/* The place of an item in the list; IndexError. */
static bool
take_index(const struct batch *batch, PyObject *object, uint32_t *index_out)
{
    uint64_t word;

    if (!yb_py_word(object, &word)) {
        return false;
    }
    if (word >= batch->count) {
        PyErr_SetString(PyExc_IndexError, "there are not as many keys");
        return false;
    }
    *index_out = (uint32_t)word;
    return true;
}

/* cancel(index=None): one item of a fetch, or all */
YB_PY_DEFINE(batch_cancel, 0, true, "index")
{
    struct batch *batch = batch_of(self);
    bool one = argument[0] != NULL && argument[0] != Py_None && batch->known != NULL;
    struct yb_client *client;
    uint32_t index = 0;

    (void)call;
    if (one && !take_index(batch, argument[0], &index)) {
        return NULL;
    }
    client = batch->handle == 0 ? NULL : enter(batch->client);
    PyErr_Clear();
    if (client != NULL) {
        if (one) {
            yb_client_fetch_cancel(client, batch->handle, index);
        } else {
            yb_client_cancel(client, batch->handle);
        }
        leave(batch->client);
    }
    Py_RETURN_NONE;
}

/* Forget what the descriptor told; of a batch that has ended it stays readable. */
static PyObject *
batch_heard(PyObject *self, PyObject *none)
{
    struct batch *batch = batch_of(self);
    uint64_t word;

    (void)none;
    (void)!read(batch->event_fd, &word, sizeof(word));
    if (batch_wait_for(batch, 0) != YB_IN_PROGRESS) {
        word = 1;
        (void)!write(batch->event_fd, &word, sizeof(word));
    }
    Py_RETURN_NONE;
}

static PyObject *
batch_fileno(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(batch_of(self)->event_fd);
}

static PyObject *
batch_results(PyObject *self, PyObject *none)
{
    (void)none;
    if (batch_of(self)->handle != 0) {
        PyErr_SetString(PyExc_RuntimeError, "it has not ended");
        return NULL;
    }
    return results_of(batch_of(self));
}

/* [(tier, ready_ns), ...] of a fetch: what its lookup has told */
static PyObject *
batch_places(PyObject *self, PyObject *none)
{
    const struct batch *batch = batch_of(self);
    PyObject *list = PyList_New((Py_ssize_t)batch->count);

    (void)none;
    for (uint32_t i = 0; i < batch->count && list != NULL; i++) {
        PyObject *tuple = Py_BuildValue("(IK)", batch->items[i].tier,
                                        (unsigned long long)batch->items[i].ready_ns);

        if (tuple == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SetItem(list, (Py_ssize_t)i, tuple);
    }
    return list;
}

/* result(index) of a fetch -> (status, ...), or None: it has not ended */
YB_PY_DEFINE(batch_result, 1, true, "index")
{
    struct batch *batch = batch_of(self);
    enum yb_status status = YB_OK;
    struct yb_client *client;
    uint32_t index;

    (void)call;
    if (!take_index(batch, argument[0], &index)) {
        return NULL;
    }
    client = batch->handle == 0 ? NULL : enter(batch->client);
    PyErr_Clear();
    if (client != NULL) {
        status = yb_client_fetch_poll(client, batch->handle, index);
        leave(batch->client);
    }
    if (status == YB_IN_PROGRESS) {
        Py_RETURN_NONE;
    }
    return result_of(&batch->items[index]);
}

/* Hand the next item of a fetch out. NOT_FOUND: all were. */
static enum yb_status
batch_hand_out(struct batch *batch, uint64_t timeout_ns, uint32_t *index_out)
{
    for (;;) {
        yb_client_handle handle = batch->handle;
        struct yb_client *client;
        enum yb_status status;

        if (batch->order_at < batch->order_count) {
            *index_out = batch->order[batch->order_at++];
            return YB_OK;
        }
        if (handle == 0) {
            return YB_NOT_FOUND;
        }
        client = enter(batch->client);
        if (client == NULL) {
            PyErr_Clear();
            (void)batch_end(batch, NULL);
            continue;
        }
        Py_BEGIN_ALLOW_THREADS;
        status = yb_client_fetch_next(client, handle, timeout_ns, index_out);
        Py_END_ALLOW_THREADS;
        leave(batch->client);
        if (status == YB_OK && !batch->known[*index_out]) {
            batch->known[*index_out] = true;
            return YB_OK;
        }
        /* Meanwhile another thread saw the end of all, and has kept the order; or it is closed. */
        if (status != YB_OK && status != YB_CLOSED) {
            return status;
        }
        if (status == YB_CLOSED && batch->handle == handle) {
            (void)batch_end(batch, NULL);
        }
    }
}

/* next(timeout_ns) of a fetch -> (status, index) */
YB_PY_DEFINE(batch_next, 1, true, "timeout_ns")
{
    enum yb_status status;
    uint64_t timeout_ns;
    uint32_t index = 0;

    (void)call;
    if (!yb_py_word(argument[0], &timeout_ns)) {
        return NULL;
    }
    status = batch_hand_out(batch_of(self), timeout_ns, &index);
    return Py_BuildValue("(iI)", (int)status, index);
}

/* ---- the rest of a client ------------------------------------------------------------------- */

/* (force, timeout_ns) -> (status, count) */
YB_PY_DEFINE(client_remove_all, 2, true, "force", "timeout_ns")
{
    struct yb_client_call options = {.struct_bytes = sizeof(options)};
    struct yb_client *client;
    enum yb_status status;
    uint64_t count = 0;

    (void)call;
    if (!yb_py_flag(argument[0], false, &options.force) ||
        !yb_py_word(argument[1], &options.timeout_ns)) {
        return NULL;
    }
    client = enter(self);
    if (client == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = yb_client_remove_all(client, &options, &count);
    Py_END_ALLOW_THREADS;
    leave(self);
    return Py_BuildValue("(iK)", (int)status, (unsigned long long)count);
}

/* Keys are collected in C memory: the callback runs without the interpreter's lock. */
struct listing {
    struct yb_client_entry *entries;
    size_t count;
    size_t room;
    bool full; /* No memory. */
};

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct listing *listing = context;
    void *key;

    if (listing->count == listing->room) {
        size_t room = listing->room * 2 + 64;
        struct yb_client_entry *entries = realloc(listing->entries, room * sizeof(*entries));

        listing->full = entries == NULL;
        if (listing->full) {
            return false;
        }
        listing->entries = entries;
        listing->room = room;
    }
    key = malloc(entry->key_bytes + 1u);
    listing->full = key == NULL;
    if (listing->full) {
        return false;
    }
    memcpy(key, entry->key, entry->key_bytes);
    listing->entries[listing->count] = *entry;
    listing->entries[listing->count].key = key;
    listing->count++;
    return true;
}

/* Consumes the listing. */
static PyObject *
listing_result(struct listing *listing, enum yb_status status)
{
    PyObject *list = listing->full ? PyErr_NoMemory() : PyList_New((Py_ssize_t)listing->count);

    for (size_t i = 0; i < listing->count; i++) {
        const struct yb_client_entry *entry = &listing->entries[i];
        PyObject *tuple =
            list == NULL
                ? NULL
                : Py_BuildValue("(y#KK)", (const char *)entry->key, (Py_ssize_t)entry->key_bytes,
                                (unsigned long long)entry->size, (unsigned long long)entry->grant);

        if (tuple == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, (Py_ssize_t)i, tuple);
        }
        free((void *)(uintptr_t)entry->key);
    }
    free(listing->entries);
    return list == NULL ? NULL : Py_BuildValue("(iN)", (int)status, list);
}

/* (match, pattern, timeout_ns) -> (status, [(key, size, grant), ...]) */
YB_PY_DEFINE(client_list, 3, true, "match", "pattern", "timeout_ns")
{
    struct yb_client_call options = {.struct_bytes = sizeof(options)};
    struct listing listing = {0};
    struct yb_client *client;
    enum yb_status status;
    const char *pattern;
    uint64_t match;

    (void)call;
    if (!yb_py_word(argument[0], &match) || !yb_py_text(argument[1], "", &pattern) ||
        !yb_py_word(argument[2], &options.timeout_ns)) {
        return NULL;
    }
    client = enter(self);
    if (client == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status =
        yb_client_list(client, (enum yb_client_match)match, pattern, &options, visit, &listing);
    Py_END_ALLOW_THREADS;
    leave(self);
    return listing_result(&listing, status);
}

/* (base, length or 0 to undo) -> status */
YB_PY_DEFINE(client_register, 2, true, "address", "size")
{
    struct yb_client *client;
    uint64_t address, length;
    enum yb_status status;

    (void)call;
    if (!yb_py_word(argument[0], &address) || !yb_py_word(argument[1], &length)) {
        return NULL;
    }
    client = enter(self);
    if (client == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    status = length == 0 ? yb_client_unregister(client, (void *)(uintptr_t)address, 10000000000ull)
                         : yb_client_register(client, (void *)(uintptr_t)address, length);
    Py_END_ALLOW_THREADS;
    leave(self);
    return PyLong_FromLong((long)status);
}

/* ---- the types ------------------------------------------------------------------------------ */

static PyMethodDef client_methods[] = {
    YB_PY_ROW("open", client_open, "Join a cluster."),
    {"close", client_close, METH_NOARGS, "Leave."},
    YB_PY_ROW("run", client_run, "Do a batch."),
    YB_PY_ROW("submit", client_submit, "Begin a batch."),
    YB_PY_ROW("fetch", client_fetch, "Begin a batch of gets that end one by one."),
    YB_PY_ROW("remove_all", client_remove_all, "Remove all blocks of the tenant."),
    YB_PY_ROW("list", client_list, "Keys that match."),
    YB_PY_ROW("register", client_register, "Tell of memory; of 0 bytes: no longer."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot client_slots[] = {
    {Py_tp_doc, "A client; yuebing.Store is what to use."},
    {Py_tp_dealloc, (void *)client_dealloc},
    {Py_tp_methods, client_methods},
    {0, NULL},
};

PyType_Spec yb_py_client_spec = {
    .name = "yuebing._native.Client",
    .basicsize = (int)sizeof(struct client),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = client_slots,
};

static PyMethodDef batch_methods[] = {
    YB_PY_ROW("wait", batch_wait, "Wait until it has ended; its status."),
    YB_PY_ROW("cancel", batch_cancel, "Ask it, or one item of a fetch, to end early."),
    {"heard", batch_heard, METH_NOARGS, "Forget what the descriptor told."},
    {"fileno", batch_fileno, METH_NOARGS, "Readable when it, or an item of a fetch, has ended."},
    {"results", batch_results, METH_NOARGS, "Of each key, when it has ended."},
    {"places", batch_places, METH_NOARGS, "Of a fetch: tier and time of each key."},
    YB_PY_ROW("result", batch_result, "Of a fetch: how one key ended; None: it has not."),
    YB_PY_ROW("next", batch_next, "Of a fetch: the next key that has ended."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "A batch under way."},
    {Py_tp_dealloc, (void *)batch_dealloc},
    {Py_tp_methods, batch_methods},
    {0, NULL},
};

PyType_Spec yb_py_batch_spec = {
    .name = "yuebing._native.Batch",
    .basicsize = (int)sizeof(struct batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};
