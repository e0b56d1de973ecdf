/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches as callers see them: blocking, and by handle.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "client/stripe.h"
#include "net/loop.h"

/* A waiter looks again after this long even if nobody wakes it. */
#define WAIT_STEP_NS YB_NS_PER_S

/* How long a caller spins before it sleeps, if that has paid lately. */
#define SPIN_NS     (50 * YB_NS_PER_US)
#define SPIN_ROUNDS 16u /* Between two looks at the clock. */

static void
pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- records --------------------------------------------------------------------------------- */

static yb_client_handle
handle_of(const struct yb_client_record *record)
{
    return (uint64_t)record->generation << 32 | (record->slot + 1);
}

struct yb_client_record *
yb_client_find(struct yb_client *client, yb_client_handle handle)
{
    uint32_t slot = (uint32_t)handle - 1;
    struct yb_client_record *record;

    yb_lock_assert_held(&client->lock);
    if (slot >= client->record_count) {
        return NULL;
    }
    record = client->records[slot];
    if (record->generation != (uint32_t)(handle >> 32) ||
        atomic_load(&record->state) == YB_CLIENT_RECORD_FREE) {
        return NULL;
    }
    return record;
}

/* A batch, or one that was refused, is over: say so. */
static void
tell(struct yb_client_record *record)
{
    struct yb_client *client = record->client;
    yb_client_handle handle = handle_of(record);
    void (*done)(void *, yb_client_handle) = record->done;
    void *owner = record->owner;
    int event_fd = record->event_fd;
    uint64_t one = 1;

    yb_lock_acquire(&client->lock);
    yb_client_fetching_end(record->fetch);
    atomic_store_explicit(&record->state, YB_CLIENT_RECORD_ENDED, memory_order_release);
    if (event_fd > 0) {
        /* Under the lock, though it is a system call: whoever sees the end may close it. */
        (void)!write(event_fd, &one, sizeof(one));
    }
    (void)pthread_cond_broadcast(&record->changed);
    if (done != NULL) {
        atomic_fetch_sub(&client->callbacks, 1);
    }
    yb_lock_release(&client->lock);
    /* From here on the record may be given back by anybody. */
    if (done != NULL) {
        done(owner, handle);
    }
}

static void
run_tell(struct yb_mail *mail)
{
    tell((struct yb_client_record *)((uint8_t *)mail - offsetof(struct yb_client_record, start)));
}

/* On the worker, or on the thread of a caller who has its loop: that is not to run what others
 * want to be called back by, for their locks may be held there. */
static void
end_record(struct yb_client_record *record)
{
    struct yb_client *client = record->client;

    if (yb_client_inside(client)) {
        yb_worker_calmed(client->worker);
        tell(record);
        return;
    }
    if (record->done == NULL) {
        tell(record);
    } else {
        record->told_next = NULL;
        *client->told_tail = record;
        client->told_tail = &record->told_next;
    }
    yb_loop_cut(yb_worker_loop(client->worker)); /* The caller may have waited for just this. */
}

static void
on_done(struct yb_client_batch *batch)
{
    end_record(batch->owner);
}

static void
run_start(struct yb_mail *mail)
{
    struct yb_client_record *record =
        (struct yb_client_record *)((uint8_t *)mail - offsetof(struct yb_client_record, start));
    struct yb_client_batch *batch = &record->batch;

    record->refused = yb_stripe_submit(record->client->core, batch);
    if (record->refused == YB_OK) {
        return;
    }
    batch->status = record->refused;
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->items[i].status = record->refused;
    }
    end_record(record);
}

static void
give_locked(struct yb_client *client, struct yb_client_record *record)
{
    atomic_store(&record->state, YB_CLIENT_RECORD_FREE);
    record->generation++;
    yb_client_fetching_free(record->fetch);
    record->fetch = NULL;
    if (record->cancel_out) {
        record->finished = true; /* Its mail is still on its way. */
        return;
    }
    client->free_records[client->free_count++] = record->slot;
}

static void
run_cancel(struct yb_mail *mail)
{
    struct yb_client_record *record =
        (struct yb_client_record *)((uint8_t *)mail - offsetof(struct yb_client_record, cancel));
    struct yb_client *client = record->client;
    bool running;
    bool whole;

    yb_lock_acquire(&client->lock);
    record->cancel_out = false;
    whole = record->cancelled;
    running = atomic_load(&record->state) == YB_CLIENT_RECORD_RUNNING;
    if (record->finished) {
        record->finished = false;
        client->free_records[client->free_count++] = record->slot;
    }
    yb_lock_release(&client->lock);
    if (running && whole) {
        yb_stripe_cancel(client->core, &record->batch);
    } else if (running) {
        yb_client_fetching_cancel(record);
    }
}

void
yb_client_cancel_soon(struct yb_client_record *record)
{
    struct yb_client *client = record->client;

    yb_lock_assert_held(&client->lock);
    if (!yb_client_has_ended(record) && !record->cancel_out && !client->closing) {
        record->cancel_out = true;
        yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(client->worker)), &record->cancel);
    }
}

static struct yb_client_record *
take_locked(struct yb_client *client)
{
    struct yb_client_record *record;

    if (client->free_count > 0) {
        return client->records[client->free_records[--client->free_count]];
    }
    if (client->record_count == YB_CLIENT_RECORDS_MAX) {
        return NULL;
    }
    record = calloc(1, sizeof(*record));
    if (record != NULL) {
        record->client = client;
        record->slot = client->record_count;
        yb_lock_cond_init(&record->changed);
        client->records[client->record_count++] = record;
    }
    return record;
}

void
yb_client_records_fini(struct yb_client *client)
{
    for (uint32_t i = 0; i < client->record_count; i++) {
        YB_ASSERT(atomic_load(&client->records[i]->state) != YB_CLIENT_RECORD_RUNNING);
        YB_ASSERT(pthread_cond_destroy(&client->records[i]->changed) == 0);
        yb_client_fetching_free(client->records[i]->fetch);
        free(client->records[i]);
    }
    client->record_count = 0;
}

/* ---- beginning ------------------------------------------------------------------------------- */

struct yb_client_batch
yb_client_make_batch(enum yb_client_batch_kind kind, struct yb_client_item *items, uint32_t count,
                     const struct yb_client_call *call)
{
    return (struct yb_client_batch){
        .kind = (uint8_t)kind,
        .work_class = (enum yb_class)call->work_class,
        .deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), call->timeout_ns),
        .trace_id = call->trace_id,
        .parent_span = call->parent_span,
        .items = items,
        .count = count,
        .put = call->put,
        .hold_ms = call->hold_ms,
        .force = call->force,
        .brief = call->brief,
    };
}

enum yb_status
yb_client_begin(struct yb_client *client, const struct yb_client_batch *batch,
                const struct yb_client_ending *ending, struct yb_client_record **record_out,
                yb_client_handle *handle_out)
{
    struct yb_client_record *record = NULL;
    enum yb_status status = YB_CLOSED;

    if (!yb_client_core_fits(batch)) {
        return YB_INVALID;
    }
    yb_lock_acquire(&client->lock);
    if (!client->closing) {
        record = take_locked(client);
        status = record != NULL ? YB_OK : YB_AGAIN;
    }
    if (status == YB_OK) {
        record->batch = *batch;
        record->batch.done = on_done;
        record->batch.owner = record;
        record->refused = YB_OK;
        record->done = ending->done;
        record->owner = ending->owner;
        record->event_fd = ending->event_fd;
        record->fetch = ending->fetch;
        record->cancelled = false;
        record->finished = false;
        yb_mail_init(&record->start, run_start);
        yb_mail_init(&record->cancel, run_cancel);
        atomic_store(&record->state, YB_CLIENT_RECORD_RUNNING);
        if (record->done != NULL) {
            atomic_fetch_add(&client->callbacks, 1);
        }
        *record_out = record;
        *handle_out = handle_of(record);
        /* Never refused: the records bound the number of these mails. Under the lock, so that a
         * close is behind it in the mailbox. */
        yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(client->worker)), &record->start);
    }
    yb_lock_release(&client->lock);
    return status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool
yb_client_has_ended(const struct yb_client_record *record)
{
    return atomic_load_explicit(&record->state, memory_order_acquire) == YB_CLIENT_RECORD_ENDED;
}

/* Spin for a while; whether it has ended. */
static bool
spin(const struct yb_client_record *record, uint64_t until_ns)
{
    do {
        for (uint32_t i = 0; i < SPIN_ROUNDS; i++) {
            if (yb_client_has_ended(record)) {
                return true;
            }
            pause_briefly();
        }
        (void)sched_yield(); /* The worker may be waiting for this very core. */
    } while (yb_clock_now(yb_clock_system()) < until_ns);
    return yb_client_has_ended(record);
}

/* Wait for the end of a batch whose record nobody else gives back. It ends by its deadline: the
 * core sees to that. */
static void
await(struct yb_client *client, struct yb_client_record *record)
{
    uint32_t score = atomic_load_explicit(&client->spin_score, memory_order_relaxed);
    uint64_t began_ns = yb_clock_now(yb_clock_system());
    enum yb_spin_outcome outcome = YB_SPIN_LOST;

    if (score > 0 && spin(record, began_ns + SPIN_NS)) {
        outcome = YB_SPIN_WON;
    } else {
        yb_lock_acquire(&client->lock);
        while (!yb_client_has_ended(record)) {
            (void)yb_lock_wait(&client->lock, &record->changed, WAIT_STEP_NS);
        }
        yb_lock_release(&client->lock);
        if (score == 0) {
            outcome = yb_clock_now(yb_clock_system()) - began_ns <= 2 * SPIN_NS ? YB_SPIN_SHORT
                                                                                : YB_SPIN_LONG;
        }
    }
    atomic_store_explicit(&client->spin_score, yb_loop_spin_next(score, outcome),
                          memory_order_relaxed);
}

bool
yb_client_take_loop(struct yb_client *client)
{
    if (atomic_load(&client->callbacks) != 0 || !yb_worker_take(client->worker)) {
        return false;
    }
    yb_client_core_move(client->core);
    return true;
}

/* Give the loop back. What is to be told to others is told by the worker's own thread. */
void
yb_client_give_loop(struct yb_client *client)
{
    bool busy =
        client->told != NULL || !yb_client_core_calm(client->core) || !yb_client_admin_idle(client);

    while (client->told != NULL) {
        struct yb_client_record *record = client->told;

        client->told = record->told_next;
        yb_mail_init(&record->start, run_tell);
        yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(client->worker)), &record->start);
    }
    client->told_tail = &client->told;
    yb_client_core_move(client->core);
    yb_worker_give(client->worker, busy);
}

/* Turn the loop until a batch has ended, or others need the worker's own thread. */
static void
drive(struct yb_client *client, const struct yb_client_record *record)
{
    while (!yb_client_has_ended(record) && atomic_load(&client->callbacks) == 0) {
        yb_loop_turn(yb_worker_loop(client->worker), YB_NEVER);
    }
}

enum yb_status
yb_client_run_batch(struct yb_client *client, struct yb_client_batch *batch)
{
    const struct yb_client_ending ending = {0};
    struct yb_client_record *record;
    yb_client_handle handle;
    enum yb_status status;
    bool taken;

    if (yb_client_inside(client)) {
        return YB_INVALID; /* It would wait for itself. */
    }
    taken = yb_client_take_loop(client);
    status = yb_client_begin(client, batch, &ending, &record, &handle);
    if (taken) {
        if (status == YB_OK) {
            drive(client, record);
        }
        yb_client_give_loop(client);
    }
    if (status != YB_OK) {
        return status;
    }
    if (!yb_client_has_ended(record)) {
        await(client, record);
    }
    yb_lock_acquire(&client->lock);
    status = record->refused;
    batch->status = record->batch.status;
    batch->total = record->batch.total;
    give_locked(client, record);
    yb_lock_release(&client->lock);
    return status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

enum yb_status
yb_client_run_items(struct yb_client *client, enum yb_client_batch_kind kind,
                    struct yb_client_item *items, uint32_t count,
                    const struct yb_client_call *given)
{
    struct yb_client_call call;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    if (status == YB_OK && items == NULL && count > 0) {
        status = YB_INVALID;
    }
    if (status == YB_OK && count > 0) {
        struct yb_client_batch batch = yb_client_make_batch(kind, items, count, &call);

        status = yb_client_run_batch(client, &batch);
    }
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_put(struct yb_client *client, struct yb_client_item *items, uint32_t count,
              const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_PUT, items, count, call);
}

enum yb_status
yb_client_get(struct yb_client *client, struct yb_client_item *items, uint32_t count,
              const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_GET, items, count, call);
}

enum yb_status
yb_client_exist(struct yb_client *client, struct yb_client_item *items, uint32_t count,
                const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_EXIST, items, count, call);
}

enum yb_status
yb_client_remove(struct yb_client *client, struct yb_client_item *items, uint32_t count,
                 const struct yb_client_call *call)
{
    return yb_client_run_items(client, YB_CLIENT_REMOVE, items, count, call);
}

enum yb_status
yb_client_remove_all(struct yb_client *client, const struct yb_client_call *given,
                     uint64_t *count_out)
{
    struct yb_client_call call;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    if (status == YB_OK) {
        struct yb_client_batch batch = yb_client_make_batch(YB_CLIENT_REMOVE_ALL, NULL, 0, &call);

        status = yb_client_run_batch(client, &batch);
        status = status == YB_OK ? batch.status : status;
        if (status == YB_OK && count_out != NULL) {
            *count_out = batch.total;
        }
    }
    yb_client_leave(client);
    return status;
}

/* ---- by handle ------------------------------------------------------------------------------- */

static enum yb_client_batch_kind
kind_of(enum yb_client_op op)
{
    switch (op) {
    case YB_CLIENT_OP_PUT: return YB_CLIENT_PUT;
    case YB_CLIENT_OP_GET: return YB_CLIENT_GET;
    case YB_CLIENT_OP_EXIST: return YB_CLIENT_EXIST;
    default: return YB_CLIENT_REMOVE;
    }
}

/* lint: size, the public call: what is to be done, and how its end is told. */
enum yb_status
yb_client_submit(struct yb_client *client, enum yb_client_op op, struct yb_client_item *items,
                 uint32_t count, const struct yb_client_call *given,
                 void (*done)(void *owner, yb_client_handle handle), void *owner, int event_fd,
                 yb_client_handle *handle_out)
{
    const struct yb_client_ending ending = {.done = done, .owner = owner, .event_fd = event_fd};
    struct yb_client_record *record;
    struct yb_client_call call;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = yb_client_read_call(given, &call);
    if (items == NULL || count == 0 || handle_out == NULL || (unsigned)op > YB_CLIENT_OP_REMOVE) {
        status = YB_INVALID;
    }
    if (status == YB_OK) {
        struct yb_client_batch batch = yb_client_make_batch(kind_of(op), items, count, &call);

        status = yb_client_begin(client, &batch, &ending, &record, handle_out);
    }
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_poll(struct yb_client *client, yb_client_handle handle)
{
    struct yb_client_record *record;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_lock_acquire(&client->lock);
    record = yb_client_find(client, handle);
    status = record == NULL ? YB_CLOSED : yb_client_has_ended(record) ? YB_OK : YB_IN_PROGRESS;
    yb_lock_release(&client->lock);
    yb_client_leave(client);
    return status;
}

enum yb_status
yb_client_wait(struct yb_client *client, yb_client_handle handle, uint64_t timeout_ns)
{
    uint64_t deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), timeout_ns);
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_lock_acquire(&client->lock);
    for (;;) {
        struct yb_client_record *record = yb_client_find(client, handle);
        uint64_t now_ns = yb_clock_now(yb_clock_system());

        if (record == NULL || yb_client_has_ended(record)) {
            status = record == NULL ? YB_CLOSED : YB_OK;
            break;
        }
        if (now_ns >= deadline_ns || yb_client_inside(client)) {
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
yb_client_cancel(struct yb_client *client, yb_client_handle handle)
{
    struct yb_client_record *record;

    if (yb_client_enter(client) != YB_OK) {
        return;
    }
    yb_lock_acquire(&client->lock);
    record = yb_client_find(client, handle);
    if (record != NULL) {
        record->cancelled = true;
        yb_client_cancel_soon(record);
    }
    yb_lock_release(&client->lock);
    yb_client_leave(client);
}

enum yb_status
yb_client_finish(struct yb_client *client, yb_client_handle handle)
{
    struct yb_client_record *record;
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_lock_acquire(&client->lock);
    record = yb_client_find(client, handle);
    if (record == NULL) {
        status = YB_CLOSED;
    } else if (!yb_client_has_ended(record)) {
        status = YB_BUSY;
    } else {
        give_locked(client, record);
    }
    yb_lock_release(&client->lock);
    yb_client_leave(client);
    return status;
}
