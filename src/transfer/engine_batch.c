/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches as callers see them: handles, waiting, results.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/stage.h"

#define BATCH_MAGIC        0x62617463u
#define DEFAULT_TIMEOUT_NS (30 * YB_NS_PER_S)
#define ARRAY_ROOM_MIN     64u
#define PINS_SEEN          4u

/* A waiter looks again after this long even if nobody wakes it. */
#define WAIT_STEP_NS YB_NS_PER_S

static yb_transfer_batch
handle_of(const struct yb_batch *batch)
{
    return (uint64_t)batch->generation << 32 | (batch->slot + 1);
}

/* Return the batch that a handle names; NULL: it was released, or never was. */
static struct yb_batch *
find_locked(struct yb_transfer *engine, yb_transfer_batch handle)
{
    uint32_t slot = (uint32_t)handle - 1;
    struct yb_batch *batch;

    yb_lock_assert_held(&engine->lock);
    if (slot >= engine->batch_count) {
        return NULL;
    }
    batch = engine->batches[slot];
    if (batch->generation != (uint32_t)(handle >> 32) ||
        atomic_load(&batch->state) == YB_BATCH_FREE) {
        return NULL;
    }
    return batch;
}

/* ---- mail ------------------------------------------------------------------------------------ */

static void
run_start(struct yb_mail *mail)
{
    struct yb_batch *batch =
        (struct yb_batch *)((uint8_t *)mail - offsetof(struct yb_batch, start_mail));

    yb_remote_start_batch(batch->remote, batch);
}

static void
run_cancel(struct yb_mail *mail)
{
    struct yb_batch *batch =
        (struct yb_batch *)((uint8_t *)mail - offsetof(struct yb_batch, cancel_mail));
    struct yb_transfer *engine = batch->engine;
    bool running;

    yb_lock_acquire(&engine->lock);
    batch->cancel_out = false;
    running = atomic_load(&batch->state) == YB_BATCH_RUNNING;
    if (batch->released) {
        batch->released = false;
        engine->batch_free[engine->batch_free_count++] = batch->slot;
    }
    yb_lock_release(&engine->lock);
    if (running) {
        yb_remote_stop_batch(batch, YB_CANCELLED);
    }
}

/* ---- submit ---------------------------------------------------------------------------------- */

static struct yb_batch *
take_slot_locked(struct yb_transfer *engine)
{
    struct yb_batch *batch;

    if (engine->batch_free_count > 0) {
        return engine->batches[engine->batch_free[--engine->batch_free_count]];
    }
    if (engine->batch_count == engine->options.batches_max) {
        return NULL;
    }
    batch = calloc(1, sizeof(*batch));
    if (batch != NULL) {
        batch->magic = BATCH_MAGIC;
        batch->slot = engine->batch_count;
        batch->engine = engine;
        engine->batches[engine->batch_count++] = batch;
    }
    return batch;
}

static void
give_slot_locked(struct yb_transfer *engine, struct yb_batch *batch)
{
    atomic_store(&batch->state, YB_BATCH_FREE);
    batch->generation++;
    if (batch->cancel_out) {
        batch->released = true;
        return;
    }
    engine->batch_free[engine->batch_free_count++] = batch->slot;
}

static bool
make_room(struct yb_batch *batch, uint32_t count)
{
    uint32_t room = batch->room == 0 ? ARRAY_ROOM_MIN : batch->room;
    struct yb_plan_item *items;
    struct yb_batch_item *states;
    struct yb_region_range *pins;

    if (count <= batch->room) {
        return true;
    }
    while (room < count) {
        room *= 2;
    }
    items = calloc(room, sizeof(*items));
    states = calloc(room, sizeof(*states));
    pins = calloc(room, sizeof(*pins));
    if (items == NULL || states == NULL || pins == NULL) {
        free(items);
        free(states);
        free(pins);
        return false;
    }
    free(batch->items);
    free(batch->states);
    free(batch->pins);
    batch->items = items;
    batch->states = states;
    batch->pins = pins;
    batch->room = room;
    return true;
}

static enum yb_status
read_options(const struct yb_transfer_batch_options *given,
             struct yb_transfer_batch_options *options_out)
{
    struct yb_transfer_batch_options options = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            return YB_INVALID;
        }
        memcpy(&options, given,
               given->struct_bytes < sizeof(options) ? given->struct_bytes : sizeof(options));
    }
    options.timeout_ns = options.timeout_ns != 0 ? options.timeout_ns : DEFAULT_TIMEOUT_NS;
    if (options.work_class >= YB_CLASS_COUNT ||
        options.notify_bytes > sizeof(((struct yb_batch *)0)->notify) ||
        (options.notify == NULL && options.notify_bytes > 0)) {
        return YB_INVALID;
    }
    *options_out = options;
    return YB_OK;
}

/* Of the last few regions that a batch has pinned, is one around this memory? */
static bool
is_pinned(const struct yb_batch *batch, const struct yb_region_info *seen, uint64_t local,
          uint64_t length)
{
    for (uint32_t i = 0; i < PINS_SEEN && i < batch->pin_count; i++) {
        uint64_t base = (uint64_t)(uintptr_t)seen[i].base;

        if (local >= base && length <= seen[i].length && local - base <= seen[i].length - length) {
            return true;
        }
    }
    return false;
}

/* Keep registered memory registered while a batch uses it at this end (B4). Memory that is in no
 * region is its owner's business. */
static void
pin_local(struct yb_batch *batch)
{
    struct yb_region_table *regions = batch->engine->regions;
    struct yb_region_info seen[PINS_SEEN];

    batch->pin_count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct yb_transfer_item *item = &batch->items[i].item;
        struct yb_region_range *pin = &batch->pins[batch->pin_count];
        struct yb_region_info info;

        if (yb_plan_check(item) != YB_OK || item->length == 0 ||
            is_pinned(batch, seen, (uint64_t)(uintptr_t)item->local, item->length) ||
            yb_region_find(regions, item->local, item->length, &info) != YB_OK) {
            continue;
        }
        *pin = (struct yb_region_range){.region = info.id, .length = info.length};
        if (yb_region_pin(regions, pin, 1, 0) == 0) {
            seen[batch->pin_count % PINS_SEEN] = info;
            batch->pin_count++;
        }
    }
}

static void
unpin_local(struct yb_batch *batch)
{
    if (yb_stage_keep_pins(batch)) {
        return;
    }
    yb_region_unpin(batch->engine->regions, batch->pins, batch->pin_count);
    batch->pin_count = 0;
}

static void
fill_batch(struct yb_batch *batch, const struct yb_transfer_item *items, uint32_t count,
           const struct yb_transfer_batch_options *options)
{
    for (uint32_t i = 0; i < count; i++) {
        batch->items[i] = (struct yb_plan_item){.item = items[i]};
        batch->states[i].left = 0;
        batch->states[i].moved = 0;
        batch->states[i].failure = YB_OK;
        batch->states[i].in_doubt = false;
        batch->states[i].path = 0;
        batch->states[i].by = (struct yb_id){{0}};
        atomic_store_explicit(&batch->states[i].word, yb_batch_word(YB_IN_PROGRESS, false, 0),
                              memory_order_relaxed);
    }
    batch->count = count;
    atomic_store(&batch->ended, 0);
    atomic_store(&batch->failed, 0);
    atomic_store(&batch->bytes, 0);
    batch->status = YB_OK;
    batch->in_doubt = false;
    batch->options = *options;
    if (options->notify != NULL) {
        memcpy(batch->notify, options->notify, options->notify_bytes);
        batch->options.notify = batch->notify;
    }
    batch->began_ns = yb_transfer_now(batch->engine);
    batch->deadline_ns = yb_deadline_after(batch->began_ns, options->timeout_ns);
    batch->cursor = (struct yb_plan_cursor){0};
    batch->planned = NULL;
    batch->slices = NULL;
    batch->stopped = YB_OK;
    batch->holds = 0;
    batch->exhausted = false;
    batch->starved = false;
    batch->starved_next = NULL;
    batch->starved_previous = NULL;
    batch->notifying = false;
    batch->cancel_out = false;
    yb_mail_init(&batch->start_mail, run_start);
    yb_mail_init(&batch->cancel_mail, run_cancel);
}

enum yb_status
yb_transfer_submit(struct yb_transfer *engine, yb_transfer_peer peer,
                   const struct yb_transfer_item *items, uint32_t count,
                   const struct yb_transfer_batch_options *given, yb_transfer_batch *batch_out)
{
    struct yb_transfer_batch_options options;
    struct yb_batch *batch;
    struct yb_peer_slot *slot;
    enum yb_status status = read_options(given, &options);

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    if (status != YB_OK || count == 0 || count > YB_TRANSFER_ITEMS_MAX || items == NULL) {
        return YB_INVALID;
    }
    yb_lock_acquire(&engine->lock);
    slot = yb_transfer_find_peer_locked(engine, peer);
    batch = slot != NULL ? take_slot_locked(engine) : NULL;
    yb_lock_release(&engine->lock);
    if (slot == NULL) {
        return YB_CLOSED;
    }
    if (batch == NULL) {
        return YB_AGAIN;
    }
    if (!make_room(batch, count)) {
        yb_lock_acquire(&engine->lock);
        give_slot_locked(engine, batch);
        yb_lock_release(&engine->lock);
        return YB_NO_MEMORY;
    }
    fill_batch(batch, items, count, &options);
    pin_local(batch);
    batch->peer = peer;
    yb_lock_acquire(&engine->lock);
    slot = yb_transfer_find_peer_locked(engine, peer); /* It may have been closed meanwhile. */
    if (slot == NULL) {
        unpin_local(batch);
        give_slot_locked(engine, batch);
        status = YB_CLOSED;
    } else {
        batch->remote = slot->remote;
        atomic_store(&batch->state, YB_BATCH_RUNNING);
        *batch_out = handle_of(batch);
        /* Never refused: batches_max bounds the number of these mails. Under the lock, so that a
         * close of the peer is behind it in the mailbox. */
        yb_mailbox_post_reply(yb_loop_mailbox(slot->worker->loop), &batch->start_mail);
    }
    yb_lock_release(&engine->lock);
    return status;
}

/* ---- results --------------------------------------------------------------------------------- */

void
yb_transfer_batch_ended(struct yb_batch *batch)
{
    struct yb_transfer *engine = batch->engine;
    yb_transfer_batch handle = handle_of(batch);
    void (*done)(struct yb_transfer *, yb_transfer_batch, void *) = batch->options.done;
    void *owner = batch->options.owner;
    int event_fd = batch->options.event_fd;
    uint64_t one = 1;

    batch->remote = NULL;
    unpin_local(batch);
    yb_lock_acquire(&engine->lock);
    atomic_store(&batch->state, YB_BATCH_ENDED);
    batch->ended_as = ++engine->batches_ended;
    if (event_fd > 0) {
        /* Under the lock, though it is a system call: whoever sees the end may close it. */
        (void)!write(event_fd, &one, sizeof(one));
    }
    (void)pthread_cond_broadcast(&engine->changed);
    yb_lock_release(&engine->lock);
    /* From here on the batch may be released by anybody. */
    if (done != NULL) {
        done(engine, handle, owner);
    }
}

static void
read_item(const struct yb_batch_item *item, struct yb_transfer_item_status *status_out)
{
    uint64_t word = atomic_load_explicit(&item->word, memory_order_acquire);

    *status_out = (struct yb_transfer_item_status){
        .status = (enum yb_status)(int32_t)(uint32_t)word,
        .in_doubt = (word >> 32 & 1) != 0,
        .path = (uint8_t)(word >> 40),
    };
    if (status_out->status != YB_IN_PROGRESS) {
        status_out->bytes = item->moved;
    }
}

enum yb_status
yb_transfer_poll(struct yb_transfer *engine, yb_transfer_batch handle,
                 struct yb_transfer_batch_status *status_out,
                 struct yb_transfer_item_status *items_out, uint32_t items_room)
{
    struct yb_batch *batch;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    batch = find_locked(engine, handle);
    if (batch != NULL) {
        bool ended = atomic_load(&batch->state) == YB_BATCH_ENDED;

        *status_out = (struct yb_transfer_batch_status){
            .status = ended ? batch->status : YB_IN_PROGRESS,
            .items = batch->count,
            .ended = atomic_load(&batch->ended),
            .failed = atomic_load(&batch->failed),
            .in_doubt = ended && batch->in_doubt,
            .bytes = atomic_load(&batch->bytes),
            .took_ns = ended ? batch->took_ns : yb_transfer_now(engine) - batch->began_ns,
        };
        for (uint32_t i = 0; items_out != NULL && i < items_room && i < batch->count; i++) {
            read_item(&batch->states[i], &items_out[i]);
        }
    }
    yb_lock_release(&engine->lock);
    return batch != NULL ? YB_OK : YB_CLOSED;
}

enum yb_status
yb_transfer_wait(struct yb_transfer *engine, yb_transfer_batch handle, uint64_t timeout_ns)
{
    uint64_t deadline_ns = yb_deadline_after(yb_transfer_now(engine), timeout_ns);
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    for (;;) {
        struct yb_batch *batch = find_locked(engine, handle);
        uint64_t now = yb_transfer_now(engine);
        uint64_t step;

        if (batch == NULL) {
            status = YB_CLOSED;
            break;
        }
        if (atomic_load(&batch->state) == YB_BATCH_ENDED) {
            break;
        }
        if (now >= deadline_ns) {
            status = YB_TIMED_OUT;
            break;
        }
        step = deadline_ns - now < WAIT_STEP_NS ? deadline_ns - now : WAIT_STEP_NS;
        yb_transfer_wait_locked(engine, step);
    }
    yb_lock_release(&engine->lock);
    return status;
}

enum yb_status
yb_transfer_cancel(struct yb_transfer *engine, yb_transfer_batch handle)
{
    struct yb_batch *batch;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    batch = find_locked(engine, handle);
    if (batch != NULL && atomic_load(&batch->state) == YB_BATCH_RUNNING && !batch->cancel_out) {
        struct yb_peer_slot *slot = &engine->peers[(uint32_t)batch->peer - 1];

        batch->cancel_out = true;
        yb_mailbox_post_reply(yb_loop_mailbox(slot->worker->loop), &batch->cancel_mail);
    }
    yb_lock_release(&engine->lock);
    return batch != NULL ? YB_OK : YB_CLOSED;
}

enum yb_status
yb_transfer_release(struct yb_transfer *engine, yb_transfer_batch handle)
{
    struct yb_batch *batch;
    enum yb_status status = YB_CLOSED;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    yb_lock_acquire(&engine->lock);
    batch = find_locked(engine, handle);
    if (batch != NULL) {
        if (atomic_load(&batch->state) != YB_BATCH_ENDED) {
            status = YB_BUSY;
        } else {
            give_slot_locked(engine, batch);
            status = YB_OK;
        }
    }
    yb_lock_release(&engine->lock);
    return status;
}

void
yb_transfer_clear_doubt(struct yb_transfer *engine, yb_transfer_peer peer, uint64_t ended_as)
{
    yb_lock_acquire(&engine->lock);
    for (uint32_t slot = 0; slot < engine->batch_count; slot++) {
        struct yb_batch *batch = engine->batches[slot];

        if (atomic_load(&batch->state) != YB_BATCH_ENDED || batch->peer != peer ||
            !batch->in_doubt || batch->ended_as > ended_as) {
            continue;
        }
        batch->in_doubt = false;
        for (uint32_t i = 0; i < batch->count; i++) {
            uint64_t word = atomic_load(&batch->states[i].word);

            atomic_store(&batch->states[i].word, word & ~(UINT64_C(1) << 32));
        }
    }
    yb_lock_release(&engine->lock);
}
