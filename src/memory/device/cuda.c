/* SPDX-License-Identifier: Apache-2.0
 *
 * Each device has a few streams per lane. Copies of one stream end in order, those of different
 * streams in any; an event behind each copy tells. The head of each stream's list is the only
 * copy whose event is asked.
 */
#include "memory/device/cuda.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "memory/memory_internal.h"

#define DRIVER_MAGIC 0x63756472u
#define LANE_MAGIC   0x63756c6eu

/* Enough that copies in both directions and of several transfers overlap: a device has few copy
 * engines. */
#define STREAMS 4u

struct cuda_api {
#define X(field, name, parameters) yb_cuda_result(*field) parameters;
    YB_CUDA_MAP(X)
    YB_CUDA_OPTIONAL_MAP(X) /* NULL: the driver lacks it. */
#undef X
};

struct cuda_device {
    yb_cuda_device handle;            /* Immutable. */
    _Atomic(yb_cuda_context) context; /* Set once, by the first open; NULL before. */
};

struct yb_memory_driver {
    uint32_t magic;
    uint32_t device_count; /* Immutable, like the next one. */
    struct cuda_api api;
    struct cuda_device devices[YB_MEMORY_DEVICES_MAX];
    /* enum peer_state; written by whoever finds out, who all find the same. */
    _Atomic uint8_t peers[YB_MEMORY_DEVICES_MAX][YB_MEMORY_DEVICES_MAX];
};

enum peer_state { PEER_UNKNOWN, PEER_YES, PEER_NO };

struct cuda_stream {
    yb_cuda_stream stream;
    struct yb_memory_copy *head; /* In flight, the oldest first. */
    struct yb_memory_copy *tail;
    uint32_t in_flight;
};

/* What a lane has on one device; made at its first copy. */
struct cuda_lane_device {
    bool ready;
    uint32_t next_stream;
    uint32_t in_flight;
    struct cuda_stream streams[STREAMS];
    yb_cuda_event events[YB_MEMORY_COPIES_MAX]; /* That wait for use again: a stack. */
    uint32_t event_count;
};

struct yb_memory_lane {
    uint32_t magic;
    struct yb_memory_driver *driver;
    uint32_t at; /* Where the search for copies that ended goes on: device and stream. */
    bool waited; /* Nothing can be on its way any more. */
    struct cuda_lane_device devices[]; /* `device_count` of them. */
};

static const char *
name_of(const struct cuda_api *api, yb_cuda_result result)
{
    const char *name = NULL;

    return api->error_name(result, &name) == YB_CUDA_SUCCESS && name != NULL ? name : "error";
}

static enum yb_status
status_of(yb_cuda_result result)
{
    switch (result) {
    case YB_CUDA_SUCCESS: return YB_OK;
    case YB_CUDA_INVALID_VALUE: return YB_FAULT; /* Of the arguments only addresses are foreign. */
    case YB_CUDA_OUT_OF_MEMORY: return YB_NO_MEMORY;
    default: return YB_IO;
    }
}

/* Look all functions up; NULL, or the name of the first that the driver lacks. */
static const char *
look_up(void *library, struct cuda_api *api)
{
    void *symbol;

#define X(field, name, parameters) \
    symbol = dlsym(library, name); \
    if (symbol == NULL) {          \
        return name;               \
    }                              \
    memcpy(&api->field, &symbol, sizeof(api->field));
    YB_CUDA_MAP(X)
#undef X
#define X(field, name, parameters) \
    symbol = dlsym(library, name); \
    memcpy(&api->field, &symbol, sizeof(api->field));
    YB_CUDA_OPTIONAL_MAP(X)
#undef X
    return NULL;
}

/* Start the driver and count its devices; false with the sentence when there is no use of it. */
static bool
start_driver(struct yb_memory_driver *driver, char *why_out, uint32_t why_bytes)
{
    const struct cuda_api *api = &driver->api;
    const char *step = "cuInit";
    yb_cuda_result result = api->init(0);
    int version = 0;
    int devices = 0;

    if (result == YB_CUDA_SUCCESS) {
        step = "cuDeviceGetCount";
        result = api->device_count(&devices);
    }
    for (int i = 0; result == YB_CUDA_SUCCESS && i < devices; i++) {
        if (driver->device_count == YB_MEMORY_DEVICES_MAX) {
            break;
        }
        step = "cuDeviceGet";
        result = api->device_get(&driver->devices[driver->device_count].handle, i);
        driver->device_count += result == YB_CUDA_SUCCESS;
    }
    if (result != YB_CUDA_SUCCESS) {
        snprintf(why_out, why_bytes, "the CUDA driver does not start: %s said %s (%d)", step,
                 name_of(api, result), result);
        return false;
    }
    if (driver->device_count == 0) {
        snprintf(why_out, why_bytes, "the CUDA driver shows no device (CUDA_VISIBLE_DEVICES?)");
        return false;
    }
    if (api->driver_version(&version) != YB_CUDA_SUCCESS) {
        version = 0;
    }
    snprintf(why_out, why_bytes, "CUDA driver %d.%d with %u device%s", version / 1000,
             version % 1000 / 10, driver->device_count, driver->device_count == 1 ? "" : "s");
    return true;
}

/* Load the library and look all functions up; NULL with the sentence if that cannot be. */
static void *
load(struct cuda_api *api, char *why_out, uint32_t why_bytes)
{
    void *library = dlopen(YB_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *missing;

    if (library == NULL) {
        const char *error = dlerror();

        snprintf(why_out, why_bytes, "no CUDA driver: %s",
                 error != NULL ? error : YB_CUDA_LIBRARY " does not load");
        return NULL;
    }
    missing = look_up(library, api);
    if (missing != NULL) {
        snprintf(why_out, why_bytes,
                 "the CUDA driver is too old: " YB_CUDA_LIBRARY " has no %s; install a newer one",
                 missing);
        dlclose(library);
        return NULL;
    }
    return library;
}

static enum yb_status
cuda_find(struct yb_memory_driver **driver_out, char *why_out, uint32_t why_bytes)
{
    struct yb_memory_driver *driver = calloc(1, sizeof(*driver));

    if (driver == NULL) {
        return YB_NO_MEMORY;
    }
    /* Once loaded the library stays: a driver that was started has threads of its own. */
    if (load(&driver->api, why_out, why_bytes) == NULL ||
        !start_driver(driver, why_out, why_bytes)) {
        free(driver);
        return YB_UNSUPPORTED;
    }
    driver->magic = DRIVER_MAGIC;
    *driver_out = driver;
    return YB_OK;
}

static void
cuda_lose(struct yb_memory_driver **driver_ref)
{
    struct yb_memory_driver *driver = *driver_ref;

    YB_ASSERT_OBJ(driver, DRIVER_MAGIC);
    *driver_ref = NULL;
    for (uint32_t i = 0; i < driver->device_count; i++) {
        if (atomic_load(&driver->devices[i].context) != NULL) {
            (void)driver->api.context_release(driver->devices[i].handle);
        }
    }
    driver->magic = 0;
    free(driver);
}

static uint32_t
cuda_devices(const struct yb_memory_driver *driver)
{
    return driver->device_count;
}

static bool
cuda_probe(struct yb_memory_driver *driver, const void *address, uint32_t *device_out)
{
    int attributes[] = {YB_CUDA_POINTER_MEMORY_TYPE, YB_CUDA_POINTER_IS_MANAGED,
                        YB_CUDA_POINTER_DEVICE};
    unsigned type = 0;
    unsigned managed = 0;
    int device = -1;
    void *data[] = {&type, &managed, &device};

    YB_ASSERT_OBJ(driver, DRIVER_MAGIC);
    /* Memory that the driver does not know is no error here, it has type 0; before the process has
     * any context the call fails, and then there is no device memory yet. */
    if (driver->api.pointer_attributes(3, attributes, data, (uintptr_t)address) !=
        YB_CUDA_SUCCESS) {
        return false;
    }
    if (type != YB_CUDA_MEMORY_TYPE_DEVICE && managed == 0) {
        return false;
    }
    *device_out = (uint32_t)device;
    return true;
}

static enum yb_status
cuda_open(struct yb_memory_driver *driver, uint32_t index)
{
    struct cuda_device *device = &driver->devices[index];
    yb_cuda_context expected = NULL;
    yb_cuda_context context;
    yb_cuda_result result;

    YB_ASSERT_OBJ(driver, DRIVER_MAGIC);
    YB_ASSERT(index < driver->device_count);
    if (atomic_load_explicit(&device->context, memory_order_acquire) != NULL) {
        return YB_OK;
    }
    /* The driver counts retains: of two threads here at once the second gives its own back. */
    result = driver->api.context_retain(&context, device->handle);
    if (result != YB_CUDA_SUCCESS) {
        return result == YB_CUDA_OUT_OF_MEMORY ? YB_NO_MEMORY : YB_IO;
    }
    if (!atomic_compare_exchange_strong(&device->context, &expected, context)) {
        (void)driver->api.context_release(device->handle);
    }
    return YB_OK;
}

/* Make the device's context current for a few calls; the thread's own comes back with leave(). */
static bool
enter(struct yb_memory_driver *driver, uint32_t index)
{
    yb_cuda_context context = atomic_load(&driver->devices[index].context);

    YB_ASSERT(context != NULL);
    return driver->api.context_push(context) == YB_CUDA_SUCCESS;
}

static void
leave(struct yb_memory_driver *driver)
{
    yb_cuda_context context;

    (void)driver->api.context_pop(&context);
}

/* Let the context of one device touch the memory of another. */
static bool
enable_peer(struct yb_memory_driver *driver, uint32_t device, uint32_t peer)
{
    yb_cuda_result result;
    int can = 0;

    if (driver->api.can_access_peer(&can, driver->devices[device].handle,
                                    driver->devices[peer].handle) != YB_CUDA_SUCCESS ||
        can == 0 || !enter(driver, device)) {
        return false;
    }
    result = driver->api.enable_peer(atomic_load(&driver->devices[peer].context), 0);
    leave(driver);
    return result == YB_CUDA_SUCCESS || result == YB_CUDA_PEERS_ALREADY;
}

static bool
cuda_peers(struct yb_memory_driver *driver, uint32_t a, uint32_t b)
{
    uint8_t state = atomic_load(&driver->peers[a][b]);

    YB_ASSERT_OBJ(driver, DRIVER_MAGIC);
    if (a == b) {
        return true;
    }
    if (state == PEER_UNKNOWN) {
        bool yes = driver->api.can_access_peer != NULL && driver->api.enable_peer != NULL &&
                   driver->api.copy_across != NULL && cuda_open(driver, a) == YB_OK &&
                   cuda_open(driver, b) == YB_OK && enable_peer(driver, a, b) &&
                   enable_peer(driver, b, a);

        state = yes ? PEER_YES : PEER_NO;
        atomic_store(&driver->peers[a][b], state);
    }
    return state == PEER_YES;
}

static enum yb_status
cuda_alloc(struct yb_memory_driver *driver, uint32_t device, uint64_t length, void **base_out)
{
    yb_cuda_pointer pointer = 0;
    yb_cuda_result result;

    if (!enter(driver, device)) {
        return YB_IO;
    }
    result = driver->api.mem_alloc(&pointer, length);
    leave(driver);
    if (result == YB_CUDA_SUCCESS) {
        *base_out = (void *)(uintptr_t)pointer;
    }
    return result == YB_CUDA_OUT_OF_MEMORY ? YB_NO_MEMORY
           : result == YB_CUDA_SUCCESS     ? YB_OK
                                           : YB_IO;
}

static void
cuda_free(struct yb_memory_driver *driver, uint32_t device, void *base)
{
    if (enter(driver, device)) {
        (void)driver->api.mem_free((uintptr_t)base);
        leave(driver);
    }
}

static enum yb_status
cuda_page_lock(struct yb_memory_driver *driver, uint32_t device, void *base, uint64_t bytes)
{
    yb_cuda_result result;

    if (!enter(driver, device)) {
        return YB_IO;
    }
    result = driver->api.host_register(base, bytes, YB_CUDA_HOST_PORTABLE);
    leave(driver);
    return status_of(result);
}

static void
cuda_page_unlock(struct yb_memory_driver *driver, uint32_t device, void *base)
{
    if (enter(driver, device)) {
        (void)driver->api.host_unregister(base);
        leave(driver);
    }
}

static enum yb_status
cuda_lane_create(struct yb_memory_driver *driver, struct yb_memory_lane **lane_out)
{
    struct yb_memory_lane *lane =
        calloc(1, sizeof(*lane) + driver->device_count * sizeof(lane->devices[0]));

    YB_ASSERT_OBJ(driver, DRIVER_MAGIC);
    if (lane == NULL) {
        return YB_NO_MEMORY;
    }
    lane->magic = LANE_MAGIC;
    lane->driver = driver;
    *lane_out = lane;
    return YB_OK;
}

/* Give the streams and events of one device back. */
static void
clear_device(const struct cuda_api *api, struct cuda_lane_device *device)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        YB_ASSERT(device->streams[i].head == NULL);
        if (device->streams[i].stream != NULL) {
            (void)api->stream_destroy(device->streams[i].stream);
        }
    }
    for (uint32_t i = 0; i < device->event_count; i++) {
        (void)api->event_destroy(device->events[i]);
    }
    memset(device, 0, sizeof(*device));
}

static void
cuda_lane_destroy(struct yb_memory_lane **lane_ref)
{
    struct yb_memory_lane *lane = *lane_ref;

    YB_ASSERT_OBJ(lane, LANE_MAGIC);
    *lane_ref = NULL;
    for (uint32_t i = 0; i < lane->driver->device_count; i++) {
        struct cuda_lane_device *device = &lane->devices[i];

        YB_ASSERT(device->in_flight == 0);
        if (device->ready && enter(lane->driver, i)) {
            clear_device(&lane->driver->api, device);
            leave(lane->driver);
        }
    }
    lane->magic = 0;
    free(lane);
}

/* Make the device current on this thread, and its streams at the first copy. */
static yb_cuda_result
prepare(struct yb_memory_lane *lane, uint32_t index)
{
    const struct cuda_api *api = &lane->driver->api;
    struct cuda_lane_device *device = &lane->devices[index];
    yb_cuda_result result = api->context_set(
        atomic_load_explicit(&lane->driver->devices[index].context, memory_order_acquire));

    for (uint32_t i = 0; i < STREAMS && result == YB_CUDA_SUCCESS && !device->ready; i++) {
        result = api->stream_create(&device->streams[i].stream, YB_CUDA_STREAM_NON_BLOCKING);
    }
    if (result == YB_CUDA_SUCCESS) {
        device->ready = true;
    } else if (!device->ready) {
        clear_device(api, device);
    }
    return result;
}

static yb_cuda_result
take_event(const struct cuda_api *api, struct cuda_lane_device *device, yb_cuda_event *event_out)
{
    if (device->event_count > 0) {
        *event_out = device->events[--device->event_count];
        return YB_CUDA_SUCCESS;
    }
    return api->event_create(event_out, YB_CUDA_EVENT_DISABLE_TIMING);
}

static void
give_event(struct cuda_lane_device *device, yb_cuda_event event)
{
    YB_ASSERT(device->event_count < YB_MEMORY_COPIES_MAX);
    device->events[device->event_count++] = event;
}

static yb_cuda_result
enqueue(struct yb_memory_driver *driver, const struct yb_memory_copy *copy, yb_cuda_stream stream)
{
    const struct cuda_api *api = &driver->api;
    uint64_t to = (uintptr_t)copy->to;
    uint64_t from = (uintptr_t)copy->from;
    uint32_t to_device = copy->to_place.index;
    uint32_t from_device = copy->from_place.index;

    if (copy->from_place.kind == YB_MEMORY_HOST) {
        return api->copy_to_device(to, copy->from, copy->length, stream);
    }
    if (copy->to_place.kind == YB_MEMORY_HOST) {
        return api->copy_to_host(copy->to, from, copy->length, stream);
    }
    if (to_device == from_device) {
        return api->copy_inside(to, from, copy->length, stream);
    }
    return api->copy_across(to, atomic_load(&driver->devices[to_device].context), from,
                            atomic_load(&driver->devices[from_device].context), copy->length,
                            stream);
}

/* Take the stream with the fewest copies in flight, and of equals the next in turn: what follows a
 * copy that does not end would not end either. */
static struct cuda_stream *
choose_stream(struct cuda_lane_device *device)
{
    struct cuda_stream *best = &device->streams[device->next_stream];

    for (uint32_t i = 1; i < STREAMS; i++) {
        struct cuda_stream *stream = &device->streams[(device->next_stream + i) % STREAMS];

        best = stream->in_flight < best->in_flight ? stream : best;
    }
    device->next_stream = (device->next_stream + 1) % STREAMS;
    return best;
}

static enum yb_status
cuda_start(struct yb_memory_lane *lane, struct yb_memory_copy *copy)
{
    const struct cuda_api *api = &lane->driver->api;
    uint32_t index =
        copy->to_place.kind == YB_MEMORY_CUDA ? copy->to_place.index : copy->from_place.index;
    struct cuda_lane_device *device = &lane->devices[index];
    struct cuda_stream *stream;
    yb_cuda_event event;
    yb_cuda_result result;

    YB_ASSERT_OBJ(lane, LANE_MAGIC);
    if (copy->to_place.kind == copy->from_place.kind &&
        copy->to_place.index != copy->from_place.index && api->copy_across == NULL) {
        return YB_UNSUPPORTED;
    }
    if (prepare(lane, index) != YB_CUDA_SUCCESS ||
        take_event(api, device, &event) != YB_CUDA_SUCCESS) {
        return YB_IO;
    }
    stream = choose_stream(device);
    result = enqueue(lane->driver, copy, stream->stream);
    if (result == YB_CUDA_SUCCESS) {
        result = api->event_record(event, stream->stream);
        if (result != YB_CUDA_SUCCESS) {
            /* The copy is on its way, but nothing would tell when it ends: end it here. */
            (void)api->stream_wait(stream->stream);
            result = YB_CUDA_LAUNCH_FAILED;
        }
    }
    if (result != YB_CUDA_SUCCESS) {
        give_event(device, event);
        return status_of(result);
    }
    copy->event = event;
    copy->next = NULL;
    if (stream->head == NULL) {
        stream->head = copy;
    } else {
        stream->tail->next = copy;
    }
    stream->tail = copy;
    stream->in_flight++;
    device->in_flight++;
    return YB_OK;
}

static struct yb_memory_copy *
cuda_next_done(struct yb_memory_lane *lane, enum yb_status *status_out)
{
    const struct cuda_api *api = &lane->driver->api;
    uint32_t places = lane->driver->device_count * STREAMS;

    YB_ASSERT_OBJ(lane, LANE_MAGIC);
    for (uint32_t tried = 0; tried < places; tried++, lane->at = (lane->at + 1) % places) {
        struct cuda_lane_device *device = &lane->devices[lane->at / STREAMS];
        struct cuda_stream *stream = &device->streams[lane->at % STREAMS];
        struct yb_memory_copy *copy = stream->head;
        yb_cuda_result result;

        if (copy == NULL) {
            continue;
        }
        result = api->event_query(copy->event);
        if (result == YB_CUDA_NOT_READY && !lane->waited) {
            continue;
        }
        stream->head = copy->next;
        stream->in_flight--;
        device->in_flight--;
        give_event(device, copy->event);
        copy->event = NULL;
        *status_out = result == YB_CUDA_SUCCESS ? YB_OK : YB_IO;
        return copy;
    }
    return NULL;
}

static void
cuda_wait(struct yb_memory_lane *lane)
{
    YB_ASSERT_OBJ(lane, LANE_MAGIC);
    for (uint32_t i = 0; i < lane->driver->device_count; i++) {
        for (uint32_t j = 0; j < STREAMS && lane->devices[i].ready; j++) {
            /* A failure is the context's death, which ends copies as well; events tell. */
            (void)lane->driver->api.stream_wait(lane->devices[i].streams[j].stream);
        }
    }
    lane->waited = true;
}

const struct yb_memory_ops yb_memory_cuda = {
    .name = "cuda",
    .find = cuda_find,
    .lose = cuda_lose,
    .devices = cuda_devices,
    .probe = cuda_probe,
    .open = cuda_open,
    .peers = cuda_peers,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .page_lock = cuda_page_lock,
    .page_unlock = cuda_page_unlock,
    .lane_create = cuda_lane_create,
    .lane_destroy = cuda_lane_destroy,
    .start = cuda_start,
    .next_done = cuda_next_done,
    .wait = cuda_wait,
};
