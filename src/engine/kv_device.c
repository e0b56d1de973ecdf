/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv_device.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/lock.h"
#include "memory/memory_type.h"

#define DEVICE_MAGIC 0x6b766476u
#define PAGE_BYTES   4096u
#define LOOK_NS      (100 * YB_NS_PER_MS)
#define POLL_NS      (20 * YB_NS_PER_US) /* Until it is asked again whether a copy has ended. */

/* What a thread waits for. */
struct work {
    struct work *next;
    const uint8_t *key;
    uint32_t part;
    void *to;         /* NULL: it is compared. */
    const void *from; /* NULL: it is written. */
    size_t wrong;
    enum yb_status status; /* Of the work, once it is done. */
    bool done;
};

/* A copy that is under way. */
struct copying {
    enum yb_status status;
    bool ended;
};

struct yb_kv_device {
    uint32_t magic;
    struct yb_kv_device_options options;
    struct yb_memory *memory;
    struct yb_memory_place place;
    void *base;
    pthread_t thread;
    bool thread_runs;

    /* ---- its thread's ---- */
    struct yb_memory_queue *queue;
    void *host; /* Room for one part. */

    struct yb_lock lock; /* Rank KV_DEVICE; all below. */
    pthread_cond_t more;
    pthread_cond_t ended;
    struct work *first;
    struct work **last;
    bool stops;
    bool ready; /* `status` says whether its thread could begin. */
    enum yb_status status;
};

/* ---- its thread ------------------------------------------------------------------------------ */

static void
on_copied(struct yb_memory_copy *copy, enum yb_status status)
{
    *(struct copying *)copy->owner = (struct copying){.status = status, .ended = true};
}

static enum yb_status
copy(struct yb_kv_device *device, void *to, const void *from)
{
    const struct yb_memory_place host = {YB_MEMORY_HOST, 0};
    const struct timespec pause = {.tv_nsec = POLL_NS};
    struct copying copying = {.ended = false};
    enum yb_status status;
    struct yb_memory_copy one = {
        .to = to,
        .from = from,
        .length = device->options.part_bytes,
        .to_place = to == device->host ? host : device->place,
        .from_place = to == device->host ? device->place : host,
        .done = on_copied,
        .owner = &copying,
    };

    status = yb_memory_copy_start(device->queue, &one);
    if (status != YB_OK) {
        return status;
    }
    while (yb_memory_poll(device->queue), !copying.ended) {
        (void)ppoll(NULL, 0, &pause, NULL);
    }
    return copying.status;
}

static void
run(struct yb_kv_device *device, struct work *work)
{
    if (work->to != NULL) {
        yb_kv_fill(work->key, work->part, device->host, device->options.part_bytes);
        work->status = copy(device, work->to, device->host);
        return;
    }
    work->status = copy(device, device->host, work->from);
    if (work->status == YB_OK && !yb_kv_check(work->key, work->part, device->host,
                                              device->options.part_bytes, &work->wrong)) {
        work->status = YB_CORRUPT;
    }
}

static enum yb_status
begin(struct yb_kv_device *device)
{
    enum yb_status status = yb_memory_queue_create(device->memory, &device->queue);

    if (status == YB_OK) {
        device->host = yb_memory_staging_take(device->queue);
        status = device->host != NULL ? YB_OK : YB_NO_MEMORY;
    }
    return status;
}

static void *
be_device(void *context)
{
    struct yb_kv_device *device = context;
    enum yb_status status;

    yb_cpus_as_process();
    status = begin(device);
    yb_lock_acquire(&device->lock);
    device->status = status;
    device->ready = true;
    (void)pthread_cond_broadcast(&device->ended);
    while (!device->stops || device->first != NULL) {
        struct work *work = device->first;

        if (work == NULL) {
            (void)yb_lock_wait(&device->lock, &device->more, LOOK_NS);
            continue;
        }
        device->first = work->next;
        device->last = device->first == NULL ? &device->first : device->last;
        yb_lock_release(&device->lock);
        run(device, work);
        yb_lock_acquire(&device->lock);
        work->done = true;
        (void)pthread_cond_broadcast(&device->ended);
    }
    yb_lock_release(&device->lock);
    if (device->host != NULL) {
        yb_memory_staging_give(device->queue, device->host);
    }
    if (device->queue != NULL) {
        yb_memory_queue_destroy(&device->queue);
    }
    return NULL;
}

/* ---- what others ask of it ------------------------------------------------------------------- */

static enum yb_status
have_done(struct yb_kv_device *device, struct work *work)
{
    YB_ASSERT_OBJ(device, DEVICE_MAGIC);
    yb_lock_acquire(&device->lock);
    *device->last = work;
    device->last = &work->next;
    (void)pthread_cond_signal(&device->more);
    while (!work->done) {
        (void)yb_lock_wait(&device->lock, &device->ended, LOOK_NS);
    }
    yb_lock_release(&device->lock);
    return work->status;
}

enum yb_status
yb_kv_device_fill(struct yb_kv_device *device, const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                  void *to)
{
    struct work work = {.key = key, .part = part, .to = to};

    return have_done(device, &work);
}

enum yb_status
yb_kv_device_check(struct yb_kv_device *device, const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                   const void *from, size_t *wrong_out)
{
    struct work work = {.key = key, .part = part, .from = from};
    enum yb_status status = have_done(device, &work);

    *wrong_out = work.wrong;
    return status;
}

void *
yb_kv_device_memory(const struct yb_kv_device *device)
{
    return device->base;
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum yb_status
start_thread(struct yb_kv_device *device)
{
    enum yb_status status;

    device->thread_runs = pthread_create(&device->thread, NULL, be_device, device) == 0;
    if (!device->thread_runs) {
        return YB_NO_MEMORY;
    }
    yb_lock_acquire(&device->lock);
    while (!device->ready) {
        (void)yb_lock_wait(&device->lock, &device->ended, LOOK_NS);
    }
    status = device->status;
    yb_lock_release(&device->lock);
    return status;
}

static enum yb_status
start(struct yb_kv_device *device, char why_out[YB_KV_DEVICE_WHY_BYTES])
{
    const struct yb_kv_device_options *options = &device->options;
    const struct yb_memory_staging staging = {
        .queues = 1,
        .slices = 1,
        .slice_bytes = (uint32_t)((options->part_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES),
    };
    enum yb_status status = yb_memory_create(&staging, &device->memory, NULL, 0);

    if (status == YB_OK) {
        status = yb_memory_open(device->memory, device->place);
    }
    if (status == YB_UNSUPPORTED) {
        (void)snprintf(why_out, YB_KV_DEVICE_WHY_BYTES,
                       "there is no device %u here but %u; `yuebing doctor` says why",
                       options->index, yb_memory_device_count(device->memory));
        return status;
    }
    if (status == YB_OK) {
        status = yb_memory_alloc(device->memory, device->place, options->bytes, &device->base);
    }
    if (status == YB_OK) {
        status = start_thread(device);
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_KV_DEVICE_WHY_BYTES,
                       "device %u has no memory for it: %s; ask for fewer blocks, or smaller ones",
                       options->index, yb_status_text(status));
    }
    return status;
}

enum yb_status
yb_kv_device_create(const struct yb_kv_device_options *options, struct yb_kv_device **device_out,
                    char why_out[YB_KV_DEVICE_WHY_BYTES])
{
    struct yb_kv_device *device = calloc(1, sizeof(*device));
    enum yb_status status;

    YB_ASSERT(options->bytes > 0);
    YB_ASSERT(options->part_bytes > 0 && options->part_bytes <= YB_KV_DEVICE_PART_BYTES);
    if (device == NULL) {
        return YB_NO_MEMORY;
    }
    device->magic = DEVICE_MAGIC;
    device->options = *options;
    device->place = (struct yb_memory_place){YB_MEMORY_CUDA, options->index};
    device->last = &device->first;
    yb_lock_init(&device->lock, YB_LOCK_KV_DEVICE);
    yb_lock_cond_init(&device->more);
    yb_lock_cond_init(&device->ended);
    status = start(device, why_out);
    if (status != YB_OK) {
        yb_kv_device_destroy(&device, false);
        return status;
    }
    *device_out = device;
    return YB_OK;
}

void
yb_kv_device_destroy(struct yb_kv_device **device_ref, bool keeps)
{
    struct yb_kv_device *device = *device_ref;

    YB_ASSERT_OBJ(device, DEVICE_MAGIC);
    *device_ref = NULL;
    if (device->thread_runs) {
        yb_lock_acquire(&device->lock);
        device->stops = true;
        (void)pthread_cond_signal(&device->more);
        yb_lock_release(&device->lock);
        YB_ASSERT(pthread_join(device->thread, NULL) == 0);
    }
    if (device->base != NULL && !keeps) {
        yb_memory_free(device->memory, device->place, &device->base, device->options.bytes);
    }
    if (device->memory != NULL && !keeps) {
        yb_memory_destroy(&device->memory);
    }
    (void)pthread_cond_destroy(&device->more);
    (void)pthread_cond_destroy(&device->ended);
    yb_lock_fini(&device->lock);
    device->magic = 0;
    free(device);
}
