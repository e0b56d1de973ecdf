/* SPDX-License-Identifier: Apache-2.0 */
#include "native.h"

#include <unistd.h>

#include "yuebing/client.h"

/* ---- life ----------------------------------------------------------------------------------- */

static struct yb_py_store *
object_of(PyObject *self)
{
    return (struct yb_py_store *)(void *)self;
}

struct yb_compat_store *
yb_py_store_of(PyObject *self)
{
    struct yb_py_store *object = object_of(self);

    if (object->process != getpid()) { /* Forked: what is there belongs to the parent. */
        object->store = yb_compat_store_create();
        object->process = getpid();
        object->ready = false;
    }
    if (object->store == NULL) {
        PyErr_NoMemory();
    }
    return object->store;
}

bool
yb_py_store_ready(PyObject *self)
{
    return yb_py_store_of(self) != NULL && object_of(self)->ready;
}

static PyObject *
store_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);

    (void)arguments;
    (void)keywords;
    if (self == NULL) {
        return NULL;
    }
    object_of(self)->process = getpid();
    object_of(self)->store = yb_compat_store_create();
    if (object_of(self)->store == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

/* As close: no segment and no thread stays behind. */
static void
store_dealloc(PyObject *self)
{
    struct yb_py_store *object = object_of(self);

    if (object->process == getpid()) {
        Py_BEGIN_ALLOW_THREADS;
        yb_compat_store_destroy(&object->store);
        Py_END_ALLOW_THREADS;
    }
    Py_CLEAR(object->engine);
    yb_py_free(self);
}

static bool
setup_texts(PyObject *const *argument, struct yb_compat_setup *setup)
{
    return yb_py_text(argument[0], "", &setup->local_hostname) &&
           yb_py_text(argument[1], "", &setup->metadata_server) &&
           yb_py_text(argument[4], "", &setup->protocol) &&
           yb_py_text(argument[5], "", &setup->devices) &&
           yb_py_text(argument[6], "", &setup->master) &&
           yb_py_text(argument[9], "", &setup->ssd_path) &&
           yb_py_text(argument[10], "default", &setup->tenant);
}

static bool
setup_numbers(PyObject *const *argument, struct yb_compat_setup *setup)
{
    uint64_t port;

    if (!yb_py_word(argument[2], &setup->segment_bytes) ||
        !yb_py_word(argument[3], &setup->local_buffer_bytes) ||
        !yb_py_flag(argument[8], false, &setup->ssd_offload) ||
        !yb_py_flag(argument[11], false, &setup->http_server) ||
        !yb_py_word_or(argument[12], 9300, &port)) {
        return false;
    }
    if (port > UINT16_MAX) {
        PyErr_SetString(PyExc_TypeError, "client_http_port is a number of 0 .. 65535");
        return false;
    }
    setup->http_port = (uint16_t)port;
    return true;
}

YB_PY_DEFINE(setup, 7, false, "local_hostname", "metadata_server", "global_segment_size",
             "local_buffer_size", "protocol", "rdma_devices", "master_server_addr", "engine",
             "enable_ssd_offload", "ssd_offload_path", "tenant_id", "enable_client_http_server",
             "client_http_port")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_setup setup = {0};
    int32_t code;

    if (store == NULL || !setup_texts(argument, &setup) || !setup_numbers(argument, &setup)) {
        return NULL;
    }
    if (argument[7] != NULL && argument[7] != Py_None) {
        setup.engine = yb_py_engine_of(argument[7]);
        if (setup.engine == NULL || !yb_py_keep(call, argument[7])) {
            return NULL;
        }
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_setup(store, &setup);
    Py_END_ALLOW_THREADS;
    if (code == YB_COMPAT_OK) {
        PyObject *before = object_of(self)->engine;

        object_of(self)->ready = true;
        object_of(self)->engine = setup.engine == NULL ? NULL : argument[7];
        Py_XINCREF(object_of(self)->engine);
        Py_XDECREF(before);
    }
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(setup_dummy, 3, false, "mem_pool_size", "local_buffer_size", "server_address")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    uint64_t pool_bytes, local_buffer_bytes;
    const char *server;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_word(argument[0], &pool_bytes) ||
        !yb_py_word(argument[1], &local_buffer_bytes) || !yb_py_text(argument[2], "", &server)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_setup_dummy(store, pool_bytes, local_buffer_bytes, server);
    Py_END_ALLOW_THREADS;
    if (code == YB_COMPAT_OK) {
        object_of(self)->ready = true;
    }
    return PyLong_FromLong(code);
}

/* Dead in the known system, too: it needs a client, and refuses when there is one. */
YB_PY_DEFINE(init_all, 3, true, "protocol", "device_name", "mount_segment_size")
{
    (void)self;
    (void)call;
    (void)argument;
    return PyLong_FromLong(YB_COMPAT_INVALID_PARAMS);
}

static PyObject *
store_close(PyObject *self, PyObject *none)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    int32_t code;

    (void)none;
    if (store == NULL) {
        return NULL;
    }
    object_of(self)->ready = false;
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_close(store);
    Py_END_ALLOW_THREADS;
    Py_CLEAR(object_of(self)->engine);
    return PyLong_FromLong(code);
}

static PyObject *
health_check(PyObject *self, PyObject *none)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    int32_t health;

    (void)none;
    if (store == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    health = yb_compat_store_health(store);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(health);
}

static PyObject *
lookups(PyObject *self, PyObject *none)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_compat_lookups told;

    (void)none;
    if (store == NULL) {
        return NULL;
    }
    yb_compat_store_lookups(store, &told);
    return Py_BuildValue("(KKK)", (unsigned long long)told.asked, (unsigned long long)told.found,
                         (unsigned long long)told.warned);
}

static PyObject *
counters(PyObject *self, PyObject *none)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    struct yb_client_counters told;

    (void)none;
    if (store == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    (void)yb_compat_store_counters(store, &told);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "puts", (unsigned long long)told.puts,
                         "put_bytes", (unsigned long long)told.put_bytes, "gets",
                         (unsigned long long)told.gets, "hits", (unsigned long long)told.hits,
                         "get_bytes", (unsigned long long)told.get_bytes, "exists",
                         (unsigned long long)told.exists, "calls", (unsigned long long)told.calls,
                         "retries", (unsigned long long)told.retries);
}

static PyObject *
get_hostname(PyObject *self, PyObject *none)
{
    struct yb_compat_store *store = yb_py_store_of(self);
    char text[256] = "";

    (void)none;
    if (store == NULL) {
        return NULL;
    }
    (void)yb_compat_store_hostname(store, text, sizeof(text));
    return PyUnicode_FromString(text);
}

static PyObject *
is_ready(PyObject *self, PyObject *none)
{
    (void)none;
    return PyBool_FromLong(yb_py_store_ready(self));
}

/* ---- keys ----------------------------------------------------------------------------------- */

YB_PY_DEFINE(is_exist, 1, true, "key")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key key;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_key(argument[0], &key)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_exist(store, &key, 1, &code);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(batch_is_exist, 1, false, "keys")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key *keys;
    uint32_t count;
    int32_t *codes;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count)) {
        return NULL;
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_exist(store, keys, count, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_codes(codes, count);
}

YB_PY_DEFINE(get_size, 1, true, "key")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key key;
    int64_t size;

    (void)call;
    if (store == NULL || !yb_py_key(argument[0], &key)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    size = yb_compat_store_size(store, &key);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(size);
}

YB_PY_DEFINE(store_remove, 1, false, "key", "force")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key key;
    int32_t code;
    bool force;

    (void)call;
    if (store == NULL || !yb_py_key(argument[0], &key) || !yb_py_flag(argument[1], false, &force)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_remove(store, &key, 1, force, &code);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(batch_remove, 1, false, "keys", "force")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    yb_compat_key *keys;
    uint32_t count;
    int32_t *codes;
    bool force;

    if (store == NULL || !yb_py_keys(call, argument[0], &keys, &count) ||
        !yb_py_flag(argument[1], false, &force)) {
        return NULL;
    }
    codes = yb_py_room(call, count, sizeof(*codes));
    if (codes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    yb_compat_store_remove(store, keys, count, force, codes);
    Py_END_ALLOW_THREADS;
    return yb_py_codes(codes, count);
}

YB_PY_DEFINE(remove_by_regex, 1, false, "regex_pattern", "force")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    const char *pattern;
    int64_t removed;
    bool force;

    (void)call;
    if (store == NULL || !yb_py_text(argument[0], "", &pattern) ||
        !yb_py_flag(argument[1], false, &force)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    removed = yb_compat_store_remove_regex(store, pattern, force);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(removed);
}

YB_PY_DEFINE(remove_all, 0, false, "force")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    int64_t removed;
    bool force;

    (void)call;
    if (store == NULL || !yb_py_flag(argument[0], false, &force)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    removed = yb_compat_store_remove_all(store, force);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(removed);
}

/* ---- memory --------------------------------------------------------------------------------- */

YB_PY_DEFINE(register_buffer, 2, false, "buffer_ptr", "size")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    uint64_t base, bytes;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_word(argument[0], &base) || !yb_py_word(argument[1], &bytes)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_register(store, (void *)(uintptr_t)base, bytes);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

YB_PY_DEFINE(unregister_buffer, 1, false, "buffer_ptr")
{
    struct yb_compat_store *store = yb_py_store_of(self);
    uint64_t base;
    int32_t code;

    (void)call;
    if (store == NULL || !yb_py_word(argument[0], &base)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = yb_compat_store_unregister(store, (void *)(uintptr_t)base);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLong(code);
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    YB_PY_ROW("setup", setup,
              "setup(local_hostname, metadata_server, global_segment_size, local_buffer_size, "
              "protocol, rdma_devices, master_server_addr, engine=None, enable_ssd_offload=False, "
              "ssd_offload_path=\"\", tenant_id=\"default\", enable_client_http_server=False, "
              "client_http_port=9300)\n\nJoin the store, and give it memory. 0, or a code.\n"
              "setup(config: dict) takes the same by name, sizes also as \"16MB\"."),
    YB_PY_ROW("setup_dummy", setup_dummy,
              "setup_dummy(mem_pool_size, local_buffer_size, server_address)\n\n"
              "Use the node of a mooncake_client on this host. 0, or a code."),
    YB_PY_ROW("init_all", init_all, "init_all(protocol, device_name, mount_segment_size): -600."),
    {"close", store_close, METH_NOARGS, "close()\n\nLeave the store; 0. May be called again."},
    {"health_check", health_check, METH_NOARGS,
     "health_check()\n\n0 healthy, 1 not set up, 2 the master does not answer."},
    {"lookups", lookups, METH_NOARGS,
     "lookups()\n\n(asked, found, warned): keys that were asked for, ever; those that were there; "
     "and how\noften the log was told that none of very many is. Ours, not of the known package."},
    {"_counters", counters, METH_NOARGS, "What it has done since setup."},
    {"get_hostname", get_hostname, METH_NOARGS,
     "get_hostname()\n\n\"host:port\" under which this client's segment is known."},
    {"_is_ready", is_ready, METH_NOARGS, "Whether it is set up and not closed."},
    YB_PY_ROW("is_exist", is_exist,
              "is_exist(key)\n\n1, 0 or a code. What is there is kept for the lease's time."),
    YB_PY_ROW("batch_is_exist", batch_is_exist, "batch_is_exist(keys)\n\n1, 0 or a code of each."),
    YB_PY_ROW("get_size", get_size, "get_size(key)\n\nBytes of the value, or a code."),
    YB_PY_ROW("remove", store_remove,
              "remove(key, force=False)\n\n0, or a code: -704 it is not there, -706 it is held."),
    YB_PY_ROW("batch_remove", batch_remove,
              "batch_remove(keys, force=False)\n\n0 or a code of each."),
    YB_PY_ROW("remove_by_regex", remove_by_regex,
              "remove_by_regex(regex_pattern, force=False)\n\n"
              "How many keys were removed in which the expression is found, or a "
              "code; -600: it cannot be."),
    YB_PY_ROW("remove_all", remove_all,
              "remove_all(force=False)\n\nHow many were removed, or a code."),
    YB_PY_ROW(
        "register_buffer", register_buffer,
        "register_buffer(buffer_ptr, size)\n\n0, or a code: -7 it overlaps a registered one."),
    YB_PY_ROW("unregister_buffer", unregister_buffer,
              "unregister_buffer(buffer_ptr)\n\n0, or a code."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A client of the store; mooncake.store.MooncakeDistributedStore adds the rest."},
    {Py_tp_new, (void *)store_new},
    {Py_tp_dealloc, (void *)store_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec yb_py_store_spec = {
    .name = "yuebing._native.Store",
    .basicsize = (int)sizeof(struct yb_py_store),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
