/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetches as callers see them: a batch whose items end one by one.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "net/loop.h"

/* A waiter looks again after this long even if nobody wakes it. */
#define WAIT_STEP_NS YB_NS_PER_S

/* So long the caller's thread moves what lies in memory of its host, before it returns. */
#define HERE_NS (2 * YB_NS_PER_MS)

struct yb_client_fetching {
    bool ordered;
    bool looked;
    uint32_t count;
    uint32_t ended;        /* Items. */
    uint32_t handed;       /* Of these, to whoever asked for the next. */
    uint32_t cancel_count; /* Items of `cancels`. */
    uint32_t *order;       /* Items that have ended, in that order. */
    uint32_t *cancels;     /* Items that are to end early, and that the worker does not know of. */
    bool *has_ended;
    bool *is_cancelled;
};

static struct yb_client_fetching *
fetching_create(uint32_t count, bool ordered)
{
    struct yb_client_fetching *fetch =
        calloc(1, sizeof(*fetch) + (size_t)count * (2 * sizeof(uint32_t) + 2 * sizeof(bool)));

    if (fetch != NULL) {
        fetch->ordered = ordered;
        fetch->count = count;
        fetch->order = (uint32_t *)(fetch + 1);
        fetch->cancels = fetch->order + count;
        fetch->has_ended = (bool *)(fetch->cancels + count);
        fetch->is_cancelled = fetch->has_ended + count;
    }
    return fetch;
}

void
yb_client_fetching_free(struct yb_client_fetching *fetch)
{
    free(fetch);
}

static void
end_item(struct yb_client_fetching *fetch, uint32_t index)
{
    if (!fetch->has_ended[index]) {
        fetch->has_ended[index] = true;
        fetch->order[fetch->ended++] = index;
    }
}

void
yb_client_fetching_end(struct yb_client_fetching *fetch)
{
    if (fetch != NULL) {
        fetch->looked = true;
        for (uint32_t i = 0; i < fetch->count; i++) {
            end_item(fetch, i); /* What was striped, or never begun. */
        }
    }
}

/* ---- on the worker --------------------------------------------------------------------------- */

/* Whoever turns the loop may have waited for just this. */
static void
cut_turn(struct yb_client *client)
{
    if (!yb_client_inside(client)) {
        yb_loop_cut(yb_worker_loop(client->worker));
    }
}

static void
on_looked(struct yb_client_batch *batch)
{
    struct yb_client_record *record = batch->owner;
    struct yb_client *client = record->client;

    yb_lock_acquire(&client->lock);
    record->fetch->looked = true;
    (void)pthread_cond_broadcast(&record->changed);
    yb_lock_release(&client->lock);
    cut_turn(client);
}

static void
on_ended(struct yb_client_batch *batch, uint32_t index)
{
    struct yb_client_record *record = batch->owner;
    struct yb_client *client = record->client;
    uint64_t one = 1;

    yb_lock_acquire(&client->lock);
    end_item(record->fetch, index);
    if (record->event_fd > 0) {
        (void)!write(record->event_fd, &one, sizeof(one)); /* As for a batch: under the lock. */
    }
    (void)pthread_cond_broadcast(&record->changed);
    yb_lock_release(&client->lock);
    cut_turn(client);
}

void
yb_client_fetching_cancel(struct yb_client_record *record)
{
    struct yb_client *client = record->client;
    struct yb_client_fetching *fetch = record->fetch;

    for (;;) {
        uint32_t index = UINT32_MAX;

        yb_lock_acquire(&client->lock);
        if (fetch != NULL && fetch->cancel_count > 0) {
            index = fetch->cancels[--fetch->cancel_count];
        }
        yb_lock_release(&client->lock);
        if (index == UINT32_MAX) {
            return;
        }
        yb_client_core_cancel_item(client->core, &record->batch, index);
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* Take the caller's struct, as much of it as it knows. */
static enum yb_status
read_options(const struct yb_client_fetch_options *given,
             struct yb_client_fetch_options *options_out)
{
    *options_out = (struct yb_client_fetch_options){.struct_bytes = sizeof(*options_out)};
    if (given == NULL) {
        return YB_OK;
    }
    if (given->struct_bytes < sizeof(given->struct_bytes)) {
        return YB_INVALID;
    }
    memcpy(options_out, given,
           given->struct_bytes < sizeof(*options_out) ? given->struct_bytes : sizeof(*options_out));
    return YB_OK;
}

/* Wait until the directory has spoken. It does, or the fetch ends: by its deadline. */
static void
await_looked(struct yb_client *client, struct yb_client_record *record)
{
    yb_lock_acquire(&client->lock);
    while (!record->fetch->looked) {
        (void)yb_lock_wait(&client->lock, &record->changed, WAIT_STEP_NS);
    }
    yb_lock_release(&client->lock);
}

/* Whether more is to be done on this thread: the lookup, and, for a moment, what lies in memory of
 * this host. *until_ns is when that moment is over. */
static bool
goes_on(struct yb_client *client, const struct yb_client_record *record, uint64_t *until_ns)
{
    uint64_t now_ns;
    bool looked;

    if (yb_client_has_ended(record) || atomic_load(&client->callbacks) != 0) {
        return false;
    }
    yb_lock_acquire(&client->lock);
    looked = record->fetch->looked;
    yb_lock_release(&client->lock);
    if (!looked || record->batch.here == 0) {
        return !looked;
    }
    now_ns = yb_clock_now(yb_clock_system());
    if (*until_ns == YB_NEVER) {
        *until_ns = now_ns + HERE_NS;
    }
    return now_ns < *until_ns;
}

static enum yb_status
fetch_begin(struct yb_client *client, const struct yb_client_batch *batch,
            const struct yb_client_fetch_options *options, yb_client_handle *handle_out)
{
    struct yb_client_ending ending = {
        .done = options->done,
        .owner = options->owner,
        .event_fd = options->event_fd,
        .fetch = fetching_create(batch->count, options->ordered),
    };
    struct yb_client_record *record;
    yb_client_handle handle;
    uint64_t until_ns = YB_NEVER;
    enum yb_status status;
    bool taken;

    if (ending.fetch == NULL) {
        return YB_AGAIN;
    }
    taken = yb_client_take_loop(client);
    status = yb_client_begin(client, batch, &ending, &record, &handle);
    if (taken) {
        while (status == YB_OK && goes_on(client, record, &until_ns)) {
            yb_loop_turn(yb_worker_loop(client->worker), until_ns == YB_NEVER ? YB_NEVER : HERE_NS);
        }
        yb_client_give_loop(client);
    }
    if (status != YB_OK) {
        yb_client_fetching_free(ending.fetch);
        return status;
    }
    await_looked(client, record);
    *handle_out = handle;
    return YB_OK;
}

enum yb_status
yb_client_fetch(struct yb_client *client, struct yb_client_item *items, uint32_t count,
                const struct yb_client_call *given,
                const struct yb_client_fetch_options *given_options, yb_client_handle *handle_out)
{
    struct yb_client_fetch_options options;
    struct yb_client_call call;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    if (status == YB_OK) {
        status = read_options(given_options, &options);
    }
    if (items == NULL || count == 0 || count > YB_CLIENT_ITEMS_MAX || handle_out == NULL ||
        yb_client_inside(client)) {
        status = YB_INVALID; /* Also on the worker: it would wait for itself. */
    }
    if (status == YB_OK) {
        struct yb_client_batch batch = yb_client_make_batch(YB_CLIENT_FETCH, items, count, &call);

        batch.window = options.window;
        batch.looked = on_looked;
        batch.ended = on_ended;
        status = fetch_begin(client, &batch, &options, handle_out);
    }
    yb_client_leave(client);
    return status;
}

static struct yb_client_fetching *
find_fetch(struct yb_client *client, yb_client_handle handle, struct yb_client_record **record_out)
{
    *record_out = yb_client_find(client, handle);
    return *record_out != NULL ? (*record_out)->fetch : NULL;
}

enum yb_status
yb_client_fetch_poll(struct yb_client *client, yb_client_handle handle, uint32_t index)
{
    struct yb_client_record *record;
    struct yb_client_fetching *fetch;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_lock_acquire(&client->lock);
    fetch = find_fetch(client, handle, &record);
    status = fetch == NULL             ? YB_CLOSED
             : index >= fetch->count   ? YB_INVALID
             : fetch->has_ended[index] ? YB_OK
                                       : YB_IN_PROGRESS;
    yb_lock_release(&client->lock);
    yb_client_leave(client);
    return status;
}

/* Hand the next item out. IN_PROGRESS: none yet; NOT_FOUND: all were. */
static enum yb_status
next_item(struct yb_client_fetching *fetch, uint32_t *index_out)
{
    if (fetch->handed == fetch->count) {
        return YB_NOT_FOUND;
    }
    if (fetch->ordered ? !fetch->has_ended[fetch->handed] : fetch->handed == fetch->ended) {
        return YB_IN_PROGRESS;
    }
    *index_out = fetch->ordered ? fetch->handed : fetch->order[fetch->handed];
    fetch->handed++;
    return YB_OK;
}

enum yb_status
yb_client_fetch_next(struct yb_client *client, yb_client_handle handle, uint64_t timeout_ns,
                     uint32_t *index_out)
{
    uint64_t deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), timeout_ns);
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_lock_acquire(&client->lock);
    for (;;) {
        struct yb_client_record *record;
        struct yb_client_fetching *fetch = find_fetch(client, handle, &record);
        uint64_t now_ns;

        status = fetch == NULL ? YB_CLOSED : next_item(fetch, index_out);
        if (status != YB_IN_PROGRESS) {
            break;
        }
        now_ns = yb_clock_now(yb_clock_system());
        if (timeout_ns == 0 || now_ns >= deadline_ns || yb_client_inside(client)) {
            status = YB_TIMED_OUT;
            break;
        }
        (void)yb_lock_wait(&client->lock, &record->changed,
                           deadline_ns - now_ns < WAIT_STEP_NS ? deadline_ns - now_ns
                                                               : WAIT_STEP_NS);
    }
    yb_lock_release(&client->lock);
    yb_client_leave(client);
    return status;
}

void
yb_client_fetch_cancel(struct yb_client *client, yb_client_handle handle, uint32_t index)
{
    struct yb_client_record *record;
    struct yb_client_fetching *fetch;

    if (yb_client_enter(client) != YB_OK) {
        return;
    }
    yb_lock_acquire(&client->lock);
    fetch = find_fetch(client, handle, &record);
    if (fetch != NULL && index < fetch->count && !fetch->has_ended[index] &&
        !fetch->is_cancelled[index]) {
        fetch->is_cancelled[index] = true;
        fetch->cancels[fetch->cancel_count++] = index;
        yb_client_cancel_soon(record);
    }
    yb_lock_release(&client->lock);
    yb_client_leave(client);
}
