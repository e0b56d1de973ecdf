/* SPDX-License-Identifier: Apache-2.0
 *
 * See standin_cuda.h. One mutex protects everything; the copying thread releases it while bytes
 * move, so that copies overlap with what the program does meanwhile.
 */
#include "standin_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/device/cuda.h"

#define EXPORT          __attribute__((visibility("default")))
#define DEVICES_MAX     16
#define ALLOCATIONS_MAX 4096
#define LOCKED_MAX      256

struct yb_cuda_context {
    int device;
    uint64_t retains;
    unsigned peers; /* Bits of devices whose memory it may touch. */
};

/* One thing that a stream does: a copy, or the mark of an event. */
struct operation {
    struct operation *next;
    uint8_t *to; /* NULL: the mark of `event`. */
    const uint8_t *from;
    size_t bytes;
    bool spoil;
    bool hangs; /* While cuda.hung. */
    struct yb_cuda_event *event;
    uint64_t event_record; /* Which record of the event it is. */
};

struct yb_cuda_stream {
    struct yb_cuda_stream *next; /* In the list of all streams. */
    struct operation *head;
    struct operation *tail;
    uint64_t last_number; /* When the last copy was given to it, */
    uint64_t head_number; /* and how long its head waits. */
    bool running;
    yb_cuda_result error; /* Of a copy, for the events behind it. */
};

struct yb_cuda_event {
    uint64_t records;
    uint64_t done; /* The last record whose mark was reached. */
    yb_cuda_result result;
    bool asked;                   /* Since the last record. */
    uint64_t synchronized_before; /* Waits for streams until the last record. */
};

struct allocation {
    uint8_t *front; /* Handed out; may not be touched. */
    uint8_t *back;
    size_t bytes;
    int device;
};

struct locked {
    uint8_t *base;
    size_t bytes;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t work;    /* For the thread that copies, while `idle`. */
    pthread_cond_t changed; /* For callers that wait for it: `waiters`. */
    unsigned waiters;
    bool idle;
    bool started;
    bool thread_runs;
    struct yb_cuda_context contexts[DEVICES_MAX];
    struct allocation allocations[ALLOCATIONS_MAX];
    struct locked locked[LOCKED_MAX];
    struct yb_cuda_stream *streams;
    uint64_t number; /* Counts what is given to streams. */
    uint64_t random;
    uint64_t steps;   /* Held copies that may be carried out, */
    bool step_newest; /* from which end. */
    bool hung;        /* A copy hangs. */
    /* Settings. */
    uint64_t devices, fail_init, fail_start, fail_copy, fail_record, fail_page_lock, hold,
        hang_copy, no_peers, fail_enable;
    /* Counters. */
    uint64_t page_locks, copies, pageable_copies, peer_copies, stream_count, event_count;
    uint64_t wrong_context;
    uint64_t synchronized; /* Waits for streams. */
} cuda = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .changed = PTHREAD_COND_INITIALIZER,
          .devices = 2,
          .random = 88172645463325252ull};

static _Thread_local struct yb_cuda_context *stack[16];
static _Thread_local unsigned depth;

static void
lock(void)
{
    pthread_mutex_lock(&cuda.mutex);
}

/* Release the mutex and pass `result` on, so that a function's end is one line. */
static yb_cuda_result
unlocked(yb_cuda_result result)
{
    pthread_mutex_unlock(&cuda.mutex);
    return result;
}

/* Wake the thread that copies. Nobody is told what nobody waits for: that would be most of what a
 * test does. */
static void
wake_locked(void)
{
    if (cuda.idle) {
        cuda.idle = false;
        pthread_cond_signal(&cuda.work);
    }
}

/* Wait until the thread that copies has done something. */
static void
wait_locked(void)
{
    cuda.waiters++;
    pthread_cond_wait(&cuda.changed, &cuda.mutex);
    cuda.waiters--;
}

static void
tell_locked(void)
{
    if (cuda.waiters > 0) {
        pthread_cond_broadcast(&cuda.changed);
    }
}

/* ---- settings and counters ---------------------------------------------------------------- */

static int
set_locked(const char *name, uint64_t value)
{
    const struct {
        const char *name;
        uint64_t *value;
    } settings[] = {
        {"devices", &cuda.devices},
        {"seed", &cuda.random},
        {"fail_init", &cuda.fail_init},
        {"fail_start", &cuda.fail_start},
        {"fail_copy", &cuda.fail_copy},
        {"fail_record", &cuda.fail_record},
        {"hold", &cuda.hold},
        {"fail_page_lock", &cuda.fail_page_lock},
        {"hang_copy", &cuda.hang_copy},
        {"no_peers", &cuda.no_peers},
        {"fail_enable", &cuda.fail_enable},
        {"step_oldest", &cuda.steps},
        {"step_newest", &cuda.steps},
    };

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (strcmp(settings[i].name, name) == 0) {
            *settings[i].value = value;
            cuda.step_newest = strcmp(name, "step_newest") == 0;
            cuda.hung = cuda.hung && cuda.hang_copy != 0;
            cuda.random |= cuda.random == 0;
            wake_locked();
            /* A step has been made when this returns. */
            while (settings[i].value == &cuda.steps && cuda.steps > 0 && cuda.thread_runs) {
                wait_locked();
            }
            return 0;
        }
    }
    return -1;
}

EXPORT int standin_cuda_set(const char *name, uint64_t value);
EXPORT int
standin_cuda_set(const char *name, uint64_t value)
{
    lock();
    return unlocked(set_locked(name, value));
}

static uint64_t
locked_bytes(void)
{
    uint64_t bytes = 0;

    for (int i = 0; i < LOCKED_MAX; i++) {
        bytes += cuda.locked[i].bytes;
    }
    return bytes;
}

static uint64_t
allocation_count(void)
{
    uint64_t count = 0;

    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        count += cuda.allocations[i].front != NULL;
    }
    return count;
}

static uint64_t
context_count(void)
{
    uint64_t count = 0;

    for (int i = 0; i < DEVICES_MAX; i++) {
        count += cuda.contexts[i].retains;
    }
    return count;
}

EXPORT uint64_t standin_cuda_get(const char *name);
EXPORT uint64_t
standin_cuda_get(const char *name)
{
    uint64_t value = UINT64_MAX;

    lock();
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"page_locks", cuda.page_locks},   {"page_locked_bytes", locked_bytes()},
        {"copies", cuda.copies},           {"pageable_copies", cuda.pageable_copies},
        {"peer_copies", cuda.peer_copies}, {"allocations", allocation_count()},
        {"streams", cuda.stream_count},    {"events", cuda.event_count},
        {"contexts", context_count()},     {"wrong_context", cuda.wrong_context},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        value = strcmp(counters[i].name, name) == 0 ? counters[i].value : value;
    }
    pthread_mutex_unlock(&cuda.mutex);
    return value;
}

/* Read "name=number ..." from the environment, once. */
static void
read_settings_locked(void)
{
    /* lint: allow, how a program that does not know the stand-in is given its settings. */
    const char *given = getenv("STANDIN_CUDA");
    char text[256];
    char *rest = text;
    char *word;

    if (given == NULL) {
        return;
    }
    snprintf(text, sizeof(text), "%s", given);
    while ((word = strsep(&rest, " ,")) != NULL) {
        char *value = strchr(word, '=');

        if (value != NULL) {
            *value++ = '\0';
        }
        if (value == NULL || set_locked(word, strtoull(value, NULL, 10)) != 0) {
            fprintf(stderr, "STANDIN_CUDA: unknown setting %s\n", word);
        }
    }
}

/* ---- the driver, its devices and contexts -------------------------------------------------- */

EXPORT yb_cuda_result cuInit(unsigned flags);
EXPORT yb_cuda_result
cuInit(unsigned flags)
{
    lock();
    if (!cuda.started) {
        read_settings_locked();
        cuda.devices = cuda.devices > DEVICES_MAX ? DEVICES_MAX : cuda.devices;
        cuda.started = true;
    }
    return unlocked(flags != 0 ? YB_CUDA_INVALID_VALUE : (yb_cuda_result)cuda.fail_init);
}

EXPORT yb_cuda_result cuDriverGetVersion(int *version);
EXPORT yb_cuda_result
cuDriverGetVersion(int *version)
{
    *version = 12040;
    return YB_CUDA_SUCCESS;
}

EXPORT yb_cuda_result cuGetErrorName(yb_cuda_result error, const char **name);
EXPORT yb_cuda_result
cuGetErrorName(yb_cuda_result error, const char **name)
{
    switch (error) {
    case YB_CUDA_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case YB_CUDA_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case YB_CUDA_LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default: *name = NULL; return YB_CUDA_INVALID_VALUE;
    }
    return YB_CUDA_SUCCESS;
}

EXPORT yb_cuda_result cuDeviceGetCount(int *count);
EXPORT yb_cuda_result
cuDeviceGetCount(int *count)
{
    lock();
    *count = (int)cuda.devices;
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuDeviceGet(yb_cuda_device *device, int ordinal);
EXPORT yb_cuda_result
cuDeviceGet(yb_cuda_device *device, int ordinal)
{
    lock();
    if (ordinal < 0 || ordinal >= (int)cuda.devices) {
        return unlocked(YB_CUDA_INVALID_DEVICE);
    }
    *device = ordinal;
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuDevicePrimaryCtxRetain(yb_cuda_context *context, yb_cuda_device device);
EXPORT yb_cuda_result
cuDevicePrimaryCtxRetain(yb_cuda_context *context, yb_cuda_device device)
{
    lock();
    if (device < 0 || device >= (int)cuda.devices) {
        return unlocked(YB_CUDA_INVALID_DEVICE);
    }
    cuda.contexts[device].device = device;
    cuda.contexts[device].retains++;
    *context = &cuda.contexts[device];
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuDevicePrimaryCtxRelease_v2(yb_cuda_device device);
EXPORT yb_cuda_result
cuDevicePrimaryCtxRelease_v2(yb_cuda_device device)
{
    lock();
    if (device < 0 || device >= (int)cuda.devices || cuda.contexts[device].retains == 0) {
        return unlocked(YB_CUDA_INVALID_DEVICE);
    }
    cuda.contexts[device].retains--;
    if (cuda.contexts[device].retains == 0) {
        cuda.contexts[device].peers = 0;
    }
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuCtxSetCurrent(yb_cuda_context context);
EXPORT yb_cuda_result
cuCtxSetCurrent(yb_cuda_context context)
{
    depth += depth == 0;
    stack[depth - 1] = context;
    return YB_CUDA_SUCCESS;
}

EXPORT yb_cuda_result cuCtxPushCurrent_v2(yb_cuda_context context);
EXPORT yb_cuda_result
cuCtxPushCurrent_v2(yb_cuda_context context)
{
    if (context == NULL || depth == sizeof(stack) / sizeof(stack[0])) {
        return YB_CUDA_INVALID_CONTEXT;
    }
    stack[depth++] = context;
    return YB_CUDA_SUCCESS;
}

EXPORT yb_cuda_result cuCtxPopCurrent_v2(yb_cuda_context *context);
EXPORT yb_cuda_result
cuCtxPopCurrent_v2(yb_cuda_context *context)
{
    if (depth == 0) {
        return YB_CUDA_INVALID_CONTEXT;
    }
    *context = stack[--depth];
    return YB_CUDA_SUCCESS;
}

EXPORT yb_cuda_result cuCtxGetCurrent(yb_cuda_context *context);
EXPORT yb_cuda_result
cuCtxGetCurrent(yb_cuda_context *context)
{
    *context = depth == 0 ? NULL : stack[depth - 1];
    return YB_CUDA_SUCCESS;
}

/* The context that the calling thread has made current and that is alive; counted if not. */
static struct yb_cuda_context *
current_locked(void)
{
    struct yb_cuda_context *context = depth == 0 ? NULL : stack[depth - 1];

    if (context == NULL || context->retains == 0) {
        cuda.wrong_context++;
        return NULL;
    }
    return context;
}

/* ---- memory ------------------------------------------------------------------------------- */

static struct allocation *
allocation_of_locked(uint64_t pointer)
{
    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        struct allocation *allocation = &cuda.allocations[i];

        if (allocation->front != NULL &&
            pointer - (uintptr_t)allocation->front < allocation->bytes) {
            return allocation;
        }
    }
    return NULL;
}

/* Map a memfd twice; the front keeps everybody out. */
static bool
map_twice(struct allocation *allocation, size_t bytes)
{
    int fd = memfd_create("standin-device", MFD_CLOEXEC);
    void *front = MAP_FAILED;
    void *back = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
        front = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
        back = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (front == MAP_FAILED || back == MAP_FAILED) {
        return false;
    }
    memset(back, 0xdb, bytes); /* Nobody may rely on fresh device memory being zero. */
    *allocation = (struct allocation){.front = front, .back = back, .bytes = bytes};
    return true;
}

EXPORT yb_cuda_result cuMemAlloc_v2(yb_cuda_pointer *pointer, size_t bytes);
EXPORT yb_cuda_result
cuMemAlloc_v2(yb_cuda_pointer *pointer, size_t bytes)
{
    struct yb_cuda_context *context;
    int i = 0;

    lock();
    context = current_locked();
    if (context == NULL || bytes == 0) {
        return unlocked(context == NULL ? YB_CUDA_INVALID_CONTEXT : YB_CUDA_INVALID_VALUE);
    }
    while (i < ALLOCATIONS_MAX && cuda.allocations[i].front != NULL) {
        i++;
    }
    if (i == ALLOCATIONS_MAX || !map_twice(&cuda.allocations[i], bytes)) {
        return unlocked(YB_CUDA_OUT_OF_MEMORY);
    }
    cuda.allocations[i].device = context->device;
    *pointer = (uintptr_t)cuda.allocations[i].front;
    return unlocked(YB_CUDA_SUCCESS);
}

static void drain_all_locked(void);

EXPORT yb_cuda_result cuMemFree_v2(yb_cuda_pointer pointer);
EXPORT yb_cuda_result
cuMemFree_v2(yb_cuda_pointer pointer)
{
    struct allocation *allocation;

    lock();
    if (current_locked() == NULL) {
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    drain_all_locked(); /* As the real one, which waits for the device. */
    allocation = allocation_of_locked(pointer);
    if (allocation == NULL || (uintptr_t)allocation->front != pointer) {
        return unlocked(YB_CUDA_INVALID_VALUE);
    }
    munmap(allocation->front, allocation->bytes);
    munmap(allocation->back, allocation->bytes);
    memset(allocation, 0, sizeof(*allocation));
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **data,
                                             yb_cuda_pointer pointer);
EXPORT yb_cuda_result
cuPointerGetAttributes(unsigned count, int *attributes, void **data, yb_cuda_pointer pointer)
{
    const struct allocation *allocation;
    bool locked = false;

    lock();
    allocation = allocation_of_locked(pointer);
    for (int i = 0; i < LOCKED_MAX; i++) {
        locked = locked || pointer - (uintptr_t)cuda.locked[i].base < cuda.locked[i].bytes;
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned type = allocation != NULL ? YB_CUDA_MEMORY_TYPE_DEVICE
                                           : (locked ? YB_CUDA_MEMORY_TYPE_HOST : 0);

        switch (attributes[i]) {
        case YB_CUDA_POINTER_MEMORY_TYPE: *(unsigned *)data[i] = type; break;
        case YB_CUDA_POINTER_IS_MANAGED: *(unsigned *)data[i] = 0; break;
        case YB_CUDA_POINTER_DEVICE:
            *(int *)data[i] = allocation != NULL ? allocation->device : -2;
            break;
        default: return unlocked(YB_CUDA_INVALID_VALUE);
        }
    }
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags);
EXPORT yb_cuda_result
cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
    int i = 0;

    (void)flags;
    lock();
    cuda.page_locks++;
    if (current_locked() == NULL) {
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    while (i < LOCKED_MAX && cuda.locked[i].bytes != 0) {
        if (cuda.locked[i].base == base) {
            return unlocked(YB_CUDA_ALREADY_MAPPED);
        }
        i++;
    }
    if (i == LOCKED_MAX || cuda.fail_page_lock != 0) {
        return unlocked(YB_CUDA_OUT_OF_MEMORY);
    }
    cuda.locked[i] = (struct locked){base, bytes};
    return unlocked(YB_CUDA_SUCCESS);
}

#ifndef STANDIN_OLD
EXPORT yb_cuda_result cuMemHostUnregister(void *base);
EXPORT yb_cuda_result
cuMemHostUnregister(void *base)
{
    lock();
    for (int i = 0; i < LOCKED_MAX && current_locked() != NULL; i++) {
        if (cuda.locked[i].bytes != 0 && cuda.locked[i].base == base) {
            memset(&cuda.locked[i], 0, sizeof(cuda.locked[i]));
            return unlocked(YB_CUDA_SUCCESS);
        }
    }
    return unlocked(YB_CUDA_INVALID_VALUE);
}
#endif

static bool
is_page_locked_locked(const void *base, size_t bytes)
{
    for (int i = 0; i < LOCKED_MAX; i++) {
        uintptr_t offset = (uintptr_t)base - (uintptr_t)cuda.locked[i].base;

        if (offset < cuda.locked[i].bytes && bytes <= cuda.locked[i].bytes - offset) {
            return true;
        }
    }
    return false;
}

/* ---- streams and the thread that copies ---------------------------------------------------- */

static uint64_t
random_locked(void)
{
    cuda.random ^= cuda.random << 13;
    cuda.random ^= cuda.random >> 7;
    cuda.random ^= cuda.random << 17;
    return cuda.random;
}

/* Choose the stream whose head comes next: a random one, or as the step says. */
static struct yb_cuda_stream *
choose_locked(void)
{
    struct yb_cuda_stream *chosen = NULL;
    unsigned seen = 0;

    for (struct yb_cuda_stream *stream = cuda.streams; stream != NULL; stream = stream->next) {
        bool better;

        if (stream->head == NULL || stream->running || (stream->head->hangs && cuda.hung)) {
            continue;
        }
        if (cuda.steps == 0) {
            better = random_locked() % ++seen == 0;
        } else if (cuda.step_newest) {
            better = chosen == NULL || stream->last_number > chosen->last_number;
        } else {
            better = chosen == NULL || stream->head_number < chosen->head_number;
        }
        chosen = better ? stream : chosen;
    }
    return chosen;
}

/* Carry out the head of the stream; the mutex is released while bytes move. */
static void
carry_out_locked(struct yb_cuda_stream *stream)
{
    struct operation *operation = stream->head;

    if (operation->to != NULL) {
        size_t bytes = operation->spoil ? operation->bytes / 2 : operation->bytes;

        stream->running = true;
        pthread_mutex_unlock(&cuda.mutex);
        memcpy(operation->to, operation->from, bytes);
        lock();
        stream->running = false;
        if (operation->spoil) {
            stream->error = YB_CUDA_LAUNCH_FAILED;
        }
    } else {
        operation->event->done = operation->event_record;
        operation->event->result = stream->error;
        stream->error = YB_CUDA_SUCCESS;
    }
    stream->head = operation->next;
    stream->head_number = ++cuda.number;
    free(operation);
}

static void *
copy_for_ever(void *unused)
{
    (void)unused;
    lock();
    for (;;) {
        struct yb_cuda_stream *stream = cuda.hold != 0 && cuda.steps == 0 ? NULL : choose_locked();

        if (stream == NULL) {
            cuda.steps = 0; /* There is nothing to step over. */
            tell_locked();
            cuda.idle = true;
            while (cuda.idle) {
                pthread_cond_wait(&cuda.work, &cuda.mutex);
            }
            continue;
        }
        carry_out_locked(stream);
        /* The mark behind a copy belongs to its step. */
        while (stream->head != NULL && stream->head->to == NULL) {
            carry_out_locked(stream);
        }
        cuda.steps -= cuda.steps > 0;
        tell_locked();
    }
    return NULL;
}

static bool
start_thread_locked(void)
{
    pthread_t thread;

    if (!cuda.thread_runs) {
        cuda.thread_runs =
            pthread_create(&thread, NULL, copy_for_ever, NULL) == 0 && pthread_detach(thread) == 0;
    }
    return cuda.thread_runs;
}

/* Wait until a stream is empty, even while copies are held. */
static void
drain_locked(struct yb_cuda_stream *stream)
{
    uint64_t hold = cuda.hold;

    cuda.hold = 0;
    wake_locked();
    while (stream->head != NULL) {
        wait_locked();
    }
    cuda.hold = hold;
}

static void
drain_all_locked(void)
{
    for (struct yb_cuda_stream *stream = cuda.streams; stream != NULL; stream = stream->next) {
        drain_locked(stream);
    }
}

EXPORT yb_cuda_result cuStreamCreate(yb_cuda_stream *stream_out, unsigned flags);
EXPORT yb_cuda_result
cuStreamCreate(yb_cuda_stream *stream_out, unsigned flags)
{
    struct yb_cuda_stream *stream = calloc(1, sizeof(*stream));

    (void)flags;
    lock();
    if (stream == NULL || current_locked() == NULL || !start_thread_locked()) {
        free(stream);
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    stream->next = cuda.streams;
    cuda.streams = stream;
    cuda.stream_count++;
    *stream_out = stream;
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuStreamDestroy_v2(yb_cuda_stream stream);
EXPORT yb_cuda_result
cuStreamDestroy_v2(yb_cuda_stream stream)
{
    struct yb_cuda_stream **link = &cuda.streams;

    lock();
    drain_locked(stream);
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    cuda.stream_count--;
    free(stream);
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuStreamSynchronize(yb_cuda_stream stream);
EXPORT yb_cuda_result
cuStreamSynchronize(yb_cuda_stream stream)
{
    lock();
    drain_locked(stream);
    cuda.synchronized++;
    return unlocked(YB_CUDA_SUCCESS);
}

/* Count a setting such as "the third from now" down; true when it is this one. */
static bool
is_the_one(uint64_t *countdown)
{
    if (*countdown == 0) {
        return false;
    }
    return --*countdown == 0;
}

static yb_cuda_result
append_locked(struct yb_cuda_stream *stream, struct operation wanted)
{
    struct operation *operation = malloc(sizeof(*operation));

    if (operation == NULL) {
        return YB_CUDA_OUT_OF_MEMORY;
    }
    *operation = wanted;
    operation->next = NULL;
    cuda.number++;
    stream->last_number = cuda.number;
    if (stream->head == NULL) {
        stream->head = operation;
        stream->head_number = cuda.number;
    } else {
        stream->tail->next = operation;
    }
    stream->tail = operation;
    wake_locked();
    return YB_CUDA_SUCCESS;
}

/* One side of a copy: where its bytes really are, or NULL if the address is not of that kind. */
static uint8_t *
real_bytes_locked(uint64_t address, size_t bytes, bool on_device)
{
    const struct allocation *allocation = allocation_of_locked(address);
    uint64_t offset;

    if (!on_device) {
        return allocation == NULL ? (uint8_t *)(uintptr_t)address : NULL;
    }
    if (allocation == NULL) {
        return NULL;
    }
    offset = address - (uintptr_t)allocation->front;
    return bytes <= allocation->bytes - offset ? allocation->back + offset : NULL;
}

/* The same for an address of either kind. */
static uint8_t *
any_bytes_locked(uint64_t address, size_t bytes)
{
    return real_bytes_locked(address, bytes, allocation_of_locked(address) != NULL);
}

EXPORT int standin_cuda_touch(void *to, const void *from, uint64_t bytes);
EXPORT int
standin_cuda_touch(void *to, const void *from, uint64_t bytes)
{
    uint8_t *real_to;
    const uint8_t *real_from;

    lock();
    real_to = any_bytes_locked((uintptr_t)to, bytes);
    real_from = any_bytes_locked((uintptr_t)from, bytes);
    pthread_mutex_unlock(&cuda.mutex); /* The test frees nothing meanwhile. */
    if (real_to == NULL || real_from == NULL) {
        return -1;
    }
    memcpy(real_to, real_from, bytes);
    return 0;
}

static yb_cuda_result
copy(uint64_t to, bool to_device, uint64_t from, bool from_device, size_t bytes,
     struct yb_cuda_stream *stream)
{
    struct operation operation = {.bytes = bytes};
    const void *host = (const void *)(uintptr_t)(to_device ? from : to);

    lock();
    if (current_locked() == NULL) {
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    operation.to = real_bytes_locked(to, bytes, to_device);
    operation.from = real_bytes_locked(from, bytes, from_device);
    if (operation.to == NULL || operation.from == NULL || bytes == 0) {
        return unlocked(YB_CUDA_INVALID_VALUE);
    }
    if (is_the_one(&cuda.fail_start)) {
        return unlocked(YB_CUDA_LAUNCH_FAILED);
    }
    operation.spoil = is_the_one(&cuda.fail_copy);
    if (cuda.hang_copy != 0 && !cuda.hung) {
        operation.hangs = cuda.hang_copy == 1;
        cuda.hung = operation.hangs;
        cuda.hang_copy -= !operation.hangs;
    }
    cuda.copies++;
    cuda.pageable_copies += !(to_device && from_device) && !is_page_locked_locked(host, bytes);
    return unlocked(append_locked(stream, operation));
}

EXPORT yb_cuda_result cuMemcpyHtoDAsync_v2(yb_cuda_pointer to, const void *from, size_t bytes,
                                           yb_cuda_stream stream);
EXPORT yb_cuda_result
cuMemcpyHtoDAsync_v2(yb_cuda_pointer to, const void *from, size_t bytes, yb_cuda_stream stream)
{
    return copy(to, true, (uintptr_t)from, false, bytes, stream);
}

EXPORT yb_cuda_result cuMemcpyDtoHAsync_v2(void *to, yb_cuda_pointer from, size_t bytes,
                                           yb_cuda_stream stream);
EXPORT yb_cuda_result
cuMemcpyDtoHAsync_v2(void *to, yb_cuda_pointer from, size_t bytes, yb_cuda_stream stream)
{
    return copy((uintptr_t)to, false, from, true, bytes, stream);
}

EXPORT yb_cuda_result cuMemcpyDtoDAsync_v2(yb_cuda_pointer to, yb_cuda_pointer from, size_t bytes,
                                           yb_cuda_stream stream);
EXPORT yb_cuda_result
cuMemcpyDtoDAsync_v2(yb_cuda_pointer to, yb_cuda_pointer from, size_t bytes, yb_cuda_stream stream)
{
    return copy(to, true, from, true, bytes, stream);
}

#ifndef STANDIN_NO_PEERS
EXPORT yb_cuda_result cuDeviceCanAccessPeer(int *can, yb_cuda_device device, yb_cuda_device peer);
EXPORT yb_cuda_result
cuDeviceCanAccessPeer(int *can, yb_cuda_device device, yb_cuda_device peer)
{
    lock();
    *can = device != peer && cuda.no_peers == 0;
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuCtxEnablePeerAccess(yb_cuda_context peer, unsigned flags);
EXPORT yb_cuda_result
cuCtxEnablePeerAccess(yb_cuda_context peer, unsigned flags)
{
    struct yb_cuda_context *context;
    bool again;

    lock();
    context = current_locked();
    if (context == NULL || peer == NULL || peer->retains == 0 || flags != 0) {
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    if (cuda.fail_enable != 0) {
        return unlocked(YB_CUDA_LAUNCH_FAILED);
    }
    again = (context->peers & 1u << peer->device) != 0;
    context->peers |= 1u << peer->device;
    return unlocked(again ? YB_CUDA_PEERS_ALREADY : YB_CUDA_SUCCESS);
}
#endif

EXPORT yb_cuda_result cuMemcpyPeerAsync(yb_cuda_pointer to, yb_cuda_context to_context,
                                        yb_cuda_pointer from, yb_cuda_context from_context,
                                        size_t bytes, yb_cuda_stream stream);
EXPORT yb_cuda_result
cuMemcpyPeerAsync(yb_cuda_pointer to, yb_cuda_context to_context, yb_cuda_pointer from,
                  yb_cuda_context from_context, size_t bytes, yb_cuda_stream stream)
{
    const struct allocation *target;
    const struct allocation *source;
    bool right;

    lock();
    target = allocation_of_locked(to);
    source = allocation_of_locked(from);
    right = to_context != NULL && from_context != NULL && target != NULL && source != NULL &&
            target->device == to_context->device && source->device == from_context->device;
    cuda.peer_copies += right;
    pthread_mutex_unlock(&cuda.mutex);
    return right ? copy(to, true, from, true, bytes, stream) : YB_CUDA_INVALID_VALUE;
}

/* ---- events ------------------------------------------------------------------------------- */

EXPORT yb_cuda_result cuEventCreate(yb_cuda_event *event_out, unsigned flags);
EXPORT yb_cuda_result
cuEventCreate(yb_cuda_event *event_out, unsigned flags)
{
    struct yb_cuda_event *event = calloc(1, sizeof(*event));

    (void)flags;
    lock();
    if (event == NULL || current_locked() == NULL) {
        free(event);
        return unlocked(YB_CUDA_INVALID_CONTEXT);
    }
    cuda.event_count++;
    *event_out = event;
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuEventDestroy_v2(yb_cuda_event event);
EXPORT yb_cuda_result
cuEventDestroy_v2(yb_cuda_event event)
{
    lock();
    while (event->done != event->records) {
        wait_locked();
    }
    cuda.event_count--;
    free(event);
    return unlocked(YB_CUDA_SUCCESS);
}

EXPORT yb_cuda_result cuEventRecord(yb_cuda_event event, yb_cuda_stream stream);
EXPORT yb_cuda_result
cuEventRecord(yb_cuda_event event, yb_cuda_stream stream)
{
    lock();
    if (is_the_one(&cuda.fail_record)) {
        return unlocked(YB_CUDA_LAUNCH_FAILED);
    }
    event->records++;
    event->asked = false;
    event->synchronized_before = cuda.synchronized;
    return unlocked(
        append_locked(stream, (struct operation){.event = event, .event_record = event->records}));
}

EXPORT yb_cuda_result cuEventQuery(yb_cuda_event event);
EXPORT yb_cuda_result
cuEventQuery(yb_cuda_event event)
{
    bool first;

    lock();
    first = !event->asked && event->synchronized_before == cuda.synchronized;
    event->asked = true;
    if (first || event->done != event->records) {
        return unlocked(YB_CUDA_NOT_READY);
    }
    return unlocked(event->result);
}
