/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct engine {
    PyObject ob_base;
    struct yb_compat_engine *engine;
    pid_t process;
};

/* What get_engine() gives: it keeps its engine alive. */
struct inner {
    PyObject ob_base;
    PyObject *engine;
};

static struct engine *
object_of(PyObject *self)
{
    return (struct engine *)(void *)self;
}

static struct yb_compat_engine *
engine_of(PyObject *self)
{
    struct engine *object = object_of(self);

    if (object->process != getpid()) { /* Forked: what is there belongs to the parent. */
        object->engine = yb_compat_engine_create();
        object->process = getpid();
    }
    if (object->engine == NULL) {
        PyErr_NoMemory();
    }
    return object->engine;
}

static PyObject *
engine_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);

    (void)arguments;
    (void)keywords;
    if (self == NULL) {
        return NULL;
    }
    object_of(self)->process = getpid();
    object_of(self)->engine = yb_compat_engine_create();
    if (object_of(self)->engine == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

static void
engine_dealloc(PyObject *self)
{
    struct engine *object = object_of(self);

    if (object->process == getpid() && object->engine != NULL) {
        Py_BEGIN_ALLOW_THREADS;
        yb_compat_engine_destroy(&object->engine);
        Py_END_ALLOW_THREADS;
    }
    yb_py_free(self);
}

/* ---- life ----------------------------------------------------------------------------------- */

static PyObject *
initialize_with(PyObject *self, PyObject *const *argument, PyObject *type)
{
    struct yb_compat_engine *engine = engine_of(self);
    struct yb_compat_engine_options options = {0};
    int32_t code;

    if (engine == NULL || !yb_py_text(argument[0], "", &options.local_hostname) ||
        !yb_py_text(argument[1], "", &options.metadata_server) ||
        !yb_py_text(argument[2], "", &options.protocol) ||
        !yb_py_text(argument[3], "", &options.devices) ||
        !yb_py_text(type, NULL, &options.metadata_type)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_initialize(engine, &options);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(initialize, 4, true, "local_hostname", "metadata_server", "protocol", "device_name")
{
    (void)call;
    return initialize_with(self, argument, NULL);
}

YB_PY_DEFINE(initialize_ext, 5, true, "local_hostname", "metadata_server", "protocol",
             "device_name", "metadata_type")
{
    (void)call;
    return initialize_with(self, argument, argument[4]);
}

static PyObject *
get_rpc_port(PyObject *self, PyObject *none)
{
    struct yb_compat_engine *engine = engine_of(self);

    (void)none;
    return engine == NULL ? NULL : PyLong_FromLong(yb_compat_engine_port(engine));
}

static PyObject *
local_name(PyObject *self, PyObject *none)
{
    struct yb_compat_engine *engine = engine_of(self);
    char text[256] = "";

    (void)none;
    if (engine == NULL) {
        return NULL;
    }
    (void)yb_compat_engine_name(engine, text, sizeof(text));
    return PyUnicode_FromString(text);
}

static PyObject *
get_engine(PyObject *self, PyObject *none)
{
    struct yb_py_module *module = yb_py_module();
    PyTypeObject *type;
    PyObject *inner;

    (void)none;
    if (module == NULL || engine_of(self) == NULL) {
        return NULL;
    }
    type = (PyTypeObject *)(void *)module->inner_engine_type;
    inner = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (inner != NULL) {
        Py_INCREF(self);
        ((struct inner *)(void *)inner)->engine = self;
    }
    return inner;
}

static PyObject *
get_engine_ptr(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong((uintptr_t)engine_of(self));
}

struct yb_compat_engine *
yb_py_engine_of(PyObject *object)
{
    struct yb_py_module *module = yb_py_module();
    int is;

    if (module == NULL) {
        return NULL;
    }
    is = PyObject_IsInstance(object, module->inner_engine_type);
    if (is > 0) {
        object = ((struct inner *)(void *)object)->engine;
    } else if (is == 0) {
        is = PyObject_IsInstance(object, module->engine_type);
    }
    if (is == 0) {
        PyErr_Format(PyExc_TypeError, "engine is what TransferEngine.get_engine() gives, not %R",
                     object);
    }
    return is > 0 ? engine_of(object) : NULL;
}

static void
inner_dealloc(PyObject *self)
{
    Py_CLEAR(((struct inner *)(void *)self)->engine);
    yb_py_free(self);
}

/* ---- memory --------------------------------------------------------------------------------- */

YB_PY_DEFINE(register_memory, 2, false, "buffer_addr", "capacity", "location")
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t address, length;
    const char *location;
    int32_t code;

    (void)call;
    if (engine == NULL || !yb_py_word(argument[0], &address) || !yb_py_word(argument[1], &length) ||
        !yb_py_text(argument[2], "*", &location)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_register(engine, &address, &length, 1, location);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(batch_register_memory, 2, false, "buffer_addresses", "capacities", "location")
{
    struct yb_compat_engine *engine = engine_of(self);
    struct yb_py_words addresses, lengths;
    const char *location;
    int32_t code;

    if (engine == NULL || !yb_py_words(call, argument[0], &addresses) ||
        !yb_py_words(call, argument[1], &lengths) || !yb_py_text(argument[2], "*", &location)) {
        return NULL;
    }
    if (addresses.count != lengths.count) {
        return PyLong_FromLong(-1);
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_register(engine, addresses.words, lengths.words, addresses.count,
                                     location);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(unregister_memory, 1, true, "buffer_addr")
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t address;
    int32_t code;

    (void)call;
    if (engine == NULL || !yb_py_word(argument[0], &address)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_unregister(engine, &address, 1);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(batch_unregister_memory, 1, false, "buffer_addresses")
{
    struct yb_compat_engine *engine = engine_of(self);
    struct yb_py_words addresses;
    int32_t code;

    if (engine == NULL || !yb_py_words(call, argument[0], &addresses)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_unregister(engine, addresses.words, addresses.count);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(allocate_managed_buffer, 1, true, "length")
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t bytes, address;

    (void)call;
    if (engine == NULL || !yb_py_word(argument[0], &bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    address = yb_compat_engine_buffer_alloc(engine, bytes);
    Py_END_ALLOW_THREADS;
    return PyLong_FromUnsignedLongLong(address);
}

YB_PY_DEFINE(free_managed_buffer, 2, true, "buffer_addr", "length")
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t address, length;
    int32_t code;

    (void)call;
    if (engine == NULL || !yb_py_word(argument[0], &address) || !yb_py_word(argument[1], &length)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_buffer_free(engine, address);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

/* Plain copies, as the known system has them: the addresses are the caller's word. */
YB_PY_DEFINE(write_bytes_to_buffer, 3, true, "dest_address", "src_bytes", "length")
{
    uint64_t address, length;
    struct iovec bytes;

    (void)self;
    if (!yb_py_word(argument[0], &address) || !yb_py_word(argument[2], &length)) {
        return NULL;
    }
    if (PyUnicode_Check(argument[1]) ? !yb_py_key(argument[1], &bytes)
                                     : !yb_py_bytes(call, argument[1], &bytes)) {
        return NULL;
    }
    if (length > bytes.iov_len) {
        PyErr_Format(PyExc_ValueError, "length is %llu, and there are %zu bytes",
                     (unsigned long long)length, bytes.iov_len);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    memcpy((void *)(uintptr_t)address, bytes.iov_base, (size_t)length);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(0);
}

YB_PY_DEFINE(read_bytes_from_buffer, 2, true, "source_address", "length")
{
    uint64_t address, length;

    (void)self;
    (void)call;
    if (!yb_py_word(argument[0], &address) || !yb_py_word(argument[1], &length)) {
        return NULL;
    }
    return yb_py_copy((const void *)(uintptr_t)address, length);
}

/* ---- looking around ------------------------------------------------------------------------- */

YB_PY_DEFINE(get_local_topology, 0, false, "device_name")
{
    struct yb_compat_engine *engine = engine_of(self);
    PyObject *given = argument[0] == Py_None ? NULL : argument[0];
    const char *devices;
    PyObject *result;
    char *text;

    (void)call;
    if (engine == NULL || !yb_py_text(given, "", &devices)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    text = yb_compat_engine_topology(engine, devices);
    Py_END_ALLOW_THREADS;
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    result = PyUnicode_FromString(text);
    free(text);
    return result;
}

YB_PY_DEFINE(get_first_buffer_address, 1, true, "segment_name")
{
    struct yb_compat_engine *engine = engine_of(self);
    const char *target;
    uint64_t address;

    (void)call;
    if (engine == NULL || !yb_py_text(argument[0], "", &target)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    address = yb_compat_engine_first_address(engine, target);
    Py_END_ALLOW_THREADS;
    return PyLong_FromUnsignedLongLong(address);
}

YB_PY_DEFINE(send_probe, 1, false, "peer_server_name")
{
    struct yb_compat_engine *engine = engine_of(self);
    const char *target;
    int32_t code;

    (void)call;
    if (engine == NULL || !yb_py_text(argument[0], "", &target)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_probe(engine, target);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

/* One that is no text comes as bytes. */
static PyObject *
notify_text(const char *text, size_t length)
{
    PyObject *object = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, NULL);

    if (object == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        object = PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
    }
    return object;
}

/* [(name, msg), ...], and they are gone here. */
static PyObject *
take_notifies(PyObject *self, PyObject *none)
{
    struct yb_compat_engine *engine = engine_of(self);
    PyObject *list = engine == NULL ? NULL : PyList_New(0);
    struct yb_compat_notified notified;

    (void)none;
    while (list != NULL && yb_compat_engine_next_notify(engine, &notified)) {
        PyObject *name = notify_text(notified.name, notified.name_bytes);
        PyObject *text = name == NULL ? NULL : notify_text(notified.text, notified.text_bytes);
        PyObject *pair = text == NULL ? NULL : PyTuple_Pack(2, name, text);

        if (pair == NULL || PyList_Append(list, pair) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
        Py_XDECREF(text);
        Py_XDECREF(pair);
        free(notified.name);
        free(notified.text);
    }
    return list;
}

/* ---- transfers ------------------------------------------------------------------------------ */

/* What a transfer's arguments become; lists of unlike length make it fail. */
struct move {
    struct yb_compat_move move;
    struct yb_compat_notify notify;
    bool equal;
};

static bool
move_lists(struct yb_py_call *call, PyObject *const *argument, bool single, struct move *move_out)
{
    struct yb_py_words lists[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};

    if (!yb_py_text(argument[0], "", &move_out->move.target)) {
        return false;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (!single) {
            if (!yb_py_words(call, argument[i + 1], &lists[i])) {
                return false;
            }
            continue;
        }
        lists[i].count = 1;
        lists[i].words = yb_py_room(call, 1, sizeof(uint64_t));
        if (lists[i].words == NULL || !yb_py_word(argument[i + 1], lists[i].words)) {
            return false;
        }
    }
    move_out->equal = lists[0].count == lists[1].count && lists[0].count == lists[2].count;
    move_out->move.local = lists[0].words;
    move_out->move.remote = lists[1].words;
    move_out->move.lengths = lists[2].words;
    move_out->move.count = lists[0].count;
    return true;
}

/* A part of a TransferNotify: str or bytes, kept for the call. */
static bool
notify_part(struct yb_py_call *call, PyObject *notify, const char *name, struct iovec *part_out)
{
    PyObject *part = PyObject_GetAttrString(notify, name);
    bool fine = part != NULL && yb_py_keep(call, part) && yb_py_key(part, part_out);

    Py_XDECREF(part);
    return fine;
}

static bool
move_notify(struct yb_py_call *call, PyObject *notify, struct move *move_out)
{
    struct iovec name, text;

    if (notify == NULL || notify == Py_None) {
        return true;
    }
    if (!notify_part(call, notify, "name", &name) || !notify_part(call, notify, "msg", &text)) {
        return false;
    }
    move_out->notify.name = name.iov_base;
    move_out->notify.name_bytes = name.iov_len;
    move_out->notify.text = text.iov_base;
    move_out->notify.text_bytes = text.iov_len;
    move_out->move.notify = &move_out->notify;
    return true;
}

static bool
move_opcode(PyObject *opcode, struct move *move_out)
{
    uint64_t number;

    if (!yb_py_word(opcode, &number)) {
        return false;
    }
    if (number > 1) {
        PyErr_Format(PyExc_ValueError, "opcode is TransferOpcode.Read or .Write, not %R", opcode);
        return false;
    }
    move_out->move.write = number == 1;
    return true;
}

static PyObject *
move_now(PyObject *self, const struct move *move)
{
    struct yb_compat_engine *engine = engine_of(self);
    int32_t code;

    if (engine == NULL) {
        return NULL;
    }
    if (!move->equal) {
        return PyLong_FromLong(-1);
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_move(engine, &move->move);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

static PyObject *
move_later(PyObject *self, const struct move *move)
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t batch = 0;

    if (engine == NULL) {
        return NULL;
    }
    if (move->equal) {
        Py_BEGIN_ALLOW_THREADS;
        batch = yb_compat_engine_submit(engine, &move->move);
        Py_END_ALLOW_THREADS;
    }
    return PyLong_FromUnsignedLongLong(batch);
}

#define SINGLE "target_hostname", "buffer", "peer_buffer_address", "length"
#define LISTS  "target_hostname", "buffers", "peer_buffer_addresses", "lengths"

/* The name, whether it takes single numbers, whether it writes, and how it is run. */
#define YB_PY_MOVE_MAP(X)                                         \
    X(transfer_sync_write, true, true, move_now, SINGLE)          \
    X(transfer_sync_read, true, false, move_now, SINGLE)          \
    X(batch_transfer_sync_write, false, true, move_now, LISTS)    \
    X(batch_transfer_sync_read, false, false, move_now, LISTS)    \
    X(batch_transfer_async_write, false, true, move_later, LISTS) \
    X(batch_transfer_async_read, false, false, move_later, LISTS) \
    X(transfer_submit_write, true, true, move_later, SINGLE)

#define X(name, single, is_write, run, ...)                                         \
    YB_PY_DEFINE(name, 4, false, __VA_ARGS__, "transport_hint")                     \
    {                                                                               \
        struct move move = {.move.write = (is_write)};                              \
                                                                                    \
        return move_lists(call, argument, single, &move) ? run(self, &move) : NULL; \
    }
YB_PY_MOVE_MAP(X)
#undef X

YB_PY_DEFINE(transfer_sync, 5, false, SINGLE, "opcode", "notify", "transport_hint")
{
    struct move move = {0};

    return move_lists(call, argument, true, &move) && move_opcode(argument[4], &move) &&
                   move_notify(call, argument[5], &move)
               ? move_now(self, &move)
               : NULL;
}

YB_PY_DEFINE(batch_transfer_sync, 5, false, LISTS, "opcode", "notify", "transport_hint")
{
    struct move move = {0};

    return move_lists(call, argument, false, &move) && move_opcode(argument[4], &move) &&
                   move_notify(call, argument[5], &move)
               ? move_now(self, &move)
               : NULL;
}

YB_PY_DEFINE(batch_transfer_async, 5, false, LISTS, "opcode", "transport_hint")
{
    struct move move = {0};

    return move_lists(call, argument, false, &move) && move_opcode(argument[4], &move)
               ? move_later(self, &move)
               : NULL;
}

YB_PY_DEFINE(transfer_check_status, 1, true, "batch_id")
{
    struct yb_compat_engine *engine = engine_of(self);
    uint64_t batch;
    int32_t state;

    (void)call;
    if (engine == NULL || !yb_py_word(argument[0], &batch)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    state = yb_compat_engine_check(engine, batch);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(state);
}

YB_PY_DEFINE(get_batch_transfer_status, 1, true, "batch_ids")
{
    struct yb_compat_engine *engine = engine_of(self);
    struct yb_py_words batches;
    int32_t code;

    if (engine == NULL || !yb_py_words(call, argument[0], &batches)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_engine_wait(engine, batches.words, batches.count);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

/* ---- the types ------------------------------------------------------------------------------ */

#define TAKES_true  "buffer, peer_buffer_address, length"
#define TAKES_false "buffers, peer_buffer_addresses, lengths"
#define X(name, single, is_write, run, ...)                                                      \
    YB_PY_ROW(#name, name,                                                                       \
              #name "(target_hostname, " TAKES_##single ", transport_hint=\"\")\n\n0 or -1; an " \
                                                        "asynchronous one gives a number, or 0."),
static PyMethodDef methods[] = {
    YB_PY_ROW("initialize", initialize,
              "initialize(local_hostname, metadata_server, protocol, device_name)\n\n0 or -1."),
    YB_PY_ROW("initialize_ext", initialize_ext,
              "initialize_ext(local_hostname, metadata_server, protocol, device_name, "
              "metadata_type)\n\n0 or -1."),
    {"get_rpc_port", get_rpc_port, METH_NOARGS, "get_rpc_port()\n\n0 before initialize."},
    {"_name", local_name, METH_NOARGS, "\"host:port\", for peers."},
    {"get_engine", get_engine, METH_NOARGS,
     "get_engine()\n\nFor MooncakeDistributedStore.setup(engine=...)."},
    {"get_engine_ptr", get_engine_ptr, METH_NOARGS, "get_engine_ptr()\n\nA number."},
    YB_PY_ROW("register_memory", register_memory,
              "register_memory(buffer_addr, capacity, location=\"*\")\n\n0, or a code: -7 it "
              "overlaps a registered range."),
    YB_PY_ROW("batch_register_memory", batch_register_memory,
              "batch_register_memory(buffer_addresses, capacities, location=\"*\")\n\nAll or none: "
              "0, or the first code."),
    YB_PY_ROW("unregister_memory", unregister_memory, "unregister_memory(buffer_addr)\n\n0, -3."),
    YB_PY_ROW("batch_unregister_memory", batch_unregister_memory,
              "batch_unregister_memory(buffer_addresses)\n\n0, or the first code."),
    YB_PY_ROW("allocate_managed_buffer", allocate_managed_buffer,
              "allocate_managed_buffer(length)\n\nAn address, or 0."),
    YB_PY_ROW("free_managed_buffer", free_managed_buffer,
              "free_managed_buffer(buffer_addr, length)\n\n0, or a code."),
    YB_PY_ROW("write_bytes_to_buffer", write_bytes_to_buffer,
              "write_bytes_to_buffer(dest_address, src_bytes, length)\n\n0."),
    YB_PY_ROW("read_bytes_from_buffer", read_bytes_from_buffer,
              "read_bytes_from_buffer(source_address, length)\n\nbytes."),
    YB_PY_ROW("get_local_topology", get_local_topology,
              "get_local_topology(device_name=None)\n\nJSON."),
    YB_PY_ROW("get_first_buffer_address", get_first_buffer_address,
              "get_first_buffer_address(segment_name)\n\nAn address of the peer's, or 0."),
    YB_PY_ROW("send_probe", send_probe,
              "send_probe(peer_server_name)\n\n0: it answers; otherwise not."),
    {"_take_notifies", take_notifies, METH_NOARGS, "What get_notifies() gives, as tuples."},
    YB_PY_MOVE_MAP(X)
        YB_PY_ROW("transfer_sync", transfer_sync,
                  "transfer_sync(target_hostname, buffer, peer_buffer_address, length, opcode, "
                  "notify=None, transport_hint=\"\")\n\n0 or -1."),
    YB_PY_ROW("batch_transfer_sync", batch_transfer_sync,
              "batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, "
              "opcode, notify=None, transport_hint=\"\")\n\n0 or -1."),
    YB_PY_ROW("batch_transfer_async", batch_transfer_async,
              "batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, "
              "opcode, transport_hint=\"\")\n\nA number, or 0."),
    YB_PY_ROW("transfer_check_status", transfer_check_status,
              "transfer_check_status(batch_id)\n\n1 done, 0 not yet, -1 failed, -2 out of time."),
    YB_PY_ROW("get_batch_transfer_status", get_batch_transfer_status,
              "get_batch_transfer_status(batch_ids)\n\nWait for all: 0 or -1."),
    {NULL, NULL, 0, NULL},
};
#undef X

static PyType_Slot slots[] = {
    {Py_tp_doc, "Moves bytes between memory of processes; see mooncake.engine.TransferEngine."},
    {Py_tp_new, (void *)engine_new},
    {Py_tp_dealloc, (void *)engine_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec yb_py_engine_spec = {
    .name = "yuebing._native.Engine",
    .basicsize = (int)sizeof(struct engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

static PyType_Slot inner_slots[] = {
    {Py_tp_doc, "An engine to share with a store."},
    {Py_tp_dealloc, (void *)inner_dealloc},
    {0, NULL},
};

PyType_Spec yb_py_inner_engine_spec = {
    .name = "mooncake.engine.InnerTransferEngine",
    .basicsize = (int)sizeof(struct inner),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = inner_slots,
};
