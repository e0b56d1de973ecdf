/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer on its worker: batches become slices, slices find a path, ends are counted.
 */
#include "transfer/remote.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/foreign.h"
#include "transfer/across.h"
#include "transfer/engine_internal.h"
#include "transfer/stage.h"
#include "transfer/wire/transfer_wire.h"

#define RETRY_DELAY_NS (2 * YB_NS_PER_MS)

/* How long a batch that was stopped waits for copies of a device's driver (G4 of stage.h): beyond
 * its deadline, and at most, if it was cancelled long before that. */
#define DRIVER_PATIENCE_NS (YB_NS_PER_S / 4)
#define CANCEL_PATIENCE_NS (5 * YB_NS_PER_S)

static const struct yb_plan_limits plan_limits = {
    .bytes_max = YB_SLICE_BYTES,
    .fragments_max = YB_SLICE_FRAGMENTS,
};

static void dispatch(struct yb_remote *remote);
static void check_batch(struct yb_batch *batch);

static uint64_t
now_of(const struct yb_remote *remote)
{
    return yb_loop_now(remote->worker->loop);
}

void
yb_remote_dispatch_soon(struct yb_remote *remote)
{
    yb_loop_defer(remote->worker->loop, &remote->dispatch_task);
}

static struct yb_slice *
slice_of_queue(struct yb_fair_item *item)
{
    return (struct yb_slice *)((uint8_t *)item - offsetof(struct yb_slice, queue));
}

/* ---- items ------------------------------------------------------------------------------- */

static void
end_item(struct yb_batch *batch, uint32_t index, uint64_t word)
{
    struct yb_batch_item *item = &batch->states[index];

    atomic_store_explicit(&item->word, word, memory_order_release);
    atomic_fetch_add(&batch->ended, 1);
    if ((enum yb_status)(int32_t)(uint32_t)word != YB_OK) {
        atomic_fetch_add(&batch->failed, 1);
        batch->status =
            batch->status == YB_OK ? (enum yb_status)(int32_t)(uint32_t)word : batch->status;
    }
}

/* Whether another process than before has moved bytes of an item, which is possible where it names
 * an address: what was moved before went with the process that is no more. */
static bool
is_torn(struct yb_batch_item *item, struct yb_id by)
{
    bool torn = !yb_id_is_none(item->by) && !yb_id_is_none(by) && !yb_id_equal(item->by, by);

    item->by = yb_id_is_none(by) ? item->by : by;
    return torn;
}

/* Account for bytes of an item (B2 of batch.h). The first failure is the item's status. */
static void
account(struct yb_batch *batch, uint32_t index, uint64_t length, struct yb_slice_end end,
        uint32_t path_bit)
{
    struct yb_batch_item *item = &batch->states[index];

    YB_ASSERT(length <= item->left);
    item->left -= length;
    if (end.status == YB_OK && is_torn(item, end.by)) {
        end.status = YB_STALE;
    }
    if (end.status == YB_OK) {
        item->moved += length;
        atomic_fetch_add(&batch->bytes, length);
    } else if (item->failure == YB_OK) {
        item->failure = end.status;
    }
    item->path = (uint8_t)(path_bit != 0 ? path_bit : item->path);
    item->in_doubt = item->in_doubt || end.in_doubt;
    batch->in_doubt = batch->in_doubt || end.in_doubt;
    if (item->left == 0) {
        end_item(batch, index, yb_batch_word(item->failure, item->in_doubt, item->path));
    }
}

/* ---- slices ------------------------------------------------------------------------------ */

static struct yb_slice *
take_slice(struct yb_remote *remote)
{
    struct yb_transfer_worker *worker = remote->worker;
    struct yb_slice *slice = worker->slices;

    if (remote->slices_used >= YB_REMOTE_SLICES_MAX ||
        (remote->slices_used >= YB_REMOTE_SLICES_RESERVED &&
         worker->slices_used >= YB_TRANSFER_SLICES_PER_WORKER)) {
        return NULL;
    }
    if (slice != NULL) {
        worker->slices = slice->next;
    } else {
        slice = calloc(1, sizeof(*slice));
        if (slice == NULL) {
            return NULL;
        }
    }
    worker->slices_used++;
    remote->slices_used++;
    return slice;
}

static void
give_slice(struct yb_remote *remote, struct yb_slice *slice)
{
    struct yb_transfer_worker *worker = remote->worker;

    slice->state = YB_SLICE_FREE;
    slice->next = worker->slices;
    worker->slices = slice;
    worker->slices_used--;
    remote->slices_used--;
    if (worker->starved_count == 0) {
        return;
    }
    for (struct yb_remote *each = worker->remotes; each != NULL; each = each->next) {
        if (each->starved_count > 0) {
            yb_remote_dispatch_soon(each);
        }
    }
}

/* Let a batch wait for a free slice (M4). */
static void
starve(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;
    struct yb_starved *list = &remote->starved[batch->options.work_class];

    if (batch->starved) {
        return;
    }
    batch->starved = true;
    batch->starved_next = NULL;
    batch->starved_previous = list->tail;
    if (list->tail != NULL) {
        list->tail->starved_next = batch;
    } else {
        list->head = batch;
    }
    list->tail = batch;
    remote->starved_count++;
    remote->worker->starved_count++;
}

static void
unstarve(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;
    struct yb_starved *list = &remote->starved[batch->options.work_class];

    if (!batch->starved) {
        return;
    }
    batch->starved = false;
    if (batch->starved_previous != NULL) {
        batch->starved_previous->starved_next = batch->starved_next;
    } else {
        list->head = batch->starved_next;
    }
    if (batch->starved_next != NULL) {
        batch->starved_next->starved_previous = batch->starved_previous;
    } else {
        list->tail = batch->starved_previous;
    }
    remote->starved_count--;
    remote->worker->starved_count--;
}

static void
link_slice(struct yb_batch *batch, struct yb_slice *slice)
{
    slice->batch = batch;
    slice->remote = batch->remote;
    slice->previous = NULL;
    slice->next = batch->slices;
    if (batch->slices != NULL) {
        batch->slices->previous = slice;
    }
    batch->slices = slice;
}

static void
unlink_slice(struct yb_slice *slice)
{
    struct yb_batch *batch = slice->batch;

    if (slice->previous != NULL) {
        slice->previous->next = slice->next;
    } else {
        batch->slices = slice->next;
    }
    if (slice->next != NULL) {
        slice->next->previous = slice->previous;
    }
    if (batch->planned == slice) {
        batch->planned = NULL;
    }
    slice->batch = NULL;
}

void
yb_remote_give_slice(struct yb_slice *slice)
{
    yb_stage_give(slice);
    give_slice(slice->remote, slice);
}

/* Take a slice out of its batch and give it and its staging back. */
static void
free_slice(struct yb_slice *slice)
{
    unlink_slice(slice);
    yb_remote_give_slice(slice);
}

void
yb_remote_end_slice(struct yb_slice *slice, struct yb_slice_end end, uint32_t path_bit)
{
    struct yb_batch *batch = slice->batch;

    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];
        struct yb_slice_end own = end;

        if (end.status == YB_OK) {
            own.status = fragment->status;
        }
        account(batch, fragment->item, fragment->length, own, path_bit);
    }
    free_slice(slice);
    check_batch(batch);
}

void
yb_remote_part(struct yb_slice *slice, struct yb_slice_end end)
{
    struct yb_batch *batch = slice->batch;

    for (uint32_t i = 0; i < slice->count; i++) {
        account(batch, slice->fragments[i].item, slice->fragments[i].length, end, 0);
    }
    unlink_slice(slice);
    check_batch(batch);
}

void
yb_remote_queue_slice(struct yb_slice *slice)
{
    slice->state = YB_SLICE_QUEUED;
    /* What was copied out of a device has paid when it was. */
    yb_fair_item_init(&slice->queue, (enum yb_class)slice->batch->options.work_class,
                      slice->deadline_ns, slice->staged ? 0 : slice->bytes);
    yb_fair_push(&slice->remote->queue, &slice->queue);
}

/* Plan the next slice of a batch, unless one is planned already. */
static void
feed(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;
    struct yb_slice *slice;

    if (batch->planned != NULL || batch->stopped != YB_OK || batch->exhausted) {
        unstarve(batch);
        return;
    }
    slice = take_slice(remote);
    if (slice == NULL) {
        starve(batch);
        return;
    }
    unstarve(batch);
    if (!yb_plan_next(batch->items, batch->count, &plan_limits, &batch->cursor, slice)) {
        batch->exhausted = true;
        give_slice(remote, slice);
        return;
    }
    link_slice(batch, slice);
    batch->planned = slice;
    slice->path = NULL;
    slice->avoid = 0;
    slice->staged = false;
    slice->staging = NULL;
    slice->copies = 0;
    slice->deadline_ns = batch->deadline_ns;
    for (uint32_t i = 0; i < slice->count; i++) {
        slice->fragments[i].status = YB_OK;
    }
    yb_remote_queue_slice(slice);
}

static void
feed_starved(struct yb_remote *remote)
{
    for (uint32_t class = 0; class < YB_CLASS_COUNT; class ++) {
        struct yb_batch *batch;

        while ((batch = remote->starved[class].head) != NULL) {
            feed(batch);
            if (batch->starved) {
                return; /* There is still none. */
            }
        }
    }
}

/* ---- dispatch ------------------------------------------------------------------------------ */

/* Bytes over TCP are counted where they are sent and come. */
static bool
goes_beside_net(const struct yb_path *path)
{
    return path->ops->bit == YB_TRANSFER_PATH_SHM;
}

void
yb_remote_count_moved(struct yb_remote *remote, const struct yb_slice *slice,
                      enum yb_links_path path, enum yb_status status)
{
    struct yb_links *links = yb_net_links(remote->worker->net);

    yb_links_end(links, remote->link, path, now_of(remote));
    if (status != YB_OK) {
        return;
    }
    if (slice->op == YB_TRANSFER_READ) {
        yb_links_received(links, remote->link, path, yb_slice_moved(slice));
    } else {
        yb_links_sent(links, remote->link, path, yb_slice_moved(slice));
    }
}

/* Hand a slice to the first path that takes it. Returns what the best of them said. */
static enum yb_status
submit(struct yb_remote *remote, struct yb_slice *slice)
{
    enum yb_status best = YB_UNREACHABLE;

    yb_stage_fill_iov(slice);
    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX && remote->paths[i] != NULL; i++) {
        struct yb_path *path = remote->paths[i];
        enum yb_status status;

        if (path->state != YB_PATH_UP || (slice->avoid & path->ops->bit) != 0 ||
            !path->ops->serves(path, slice)) {
            continue;
        }
        slice->path = path;
        status = path->ops->submit(path, slice);
        if (status == YB_OK && goes_beside_net(path)) {
            yb_links_begin(yb_net_links(remote->worker->net), remote->link, YB_LINKS_SHM,
                           now_of(remote));
        }
        if (status == YB_OK || status == YB_AGAIN) {
            return status;
        }
        slice->path = NULL;
        best = status == YB_UNSUPPORTED ? best : status;
    }
    return best;
}

/* Deal with the slice at the head of the queue. Returns false if it has to wait. */
static bool
dispatch_one(struct yb_remote *remote, struct yb_slice *slice)
{
    struct yb_batch *batch = slice->batch;
    enum yb_status status;

    status = yb_across_take(slice);
    if (status == YB_AGAIN) {
        return false;
    }
    if (status == YB_OK) {
        (void)yb_fair_pop(&remote->queue);
        batch->planned = batch->planned == slice ? NULL : batch->planned;
        feed(batch);
        yb_across_copy(slice);
        return true;
    }
    status = yb_stage_take(slice);
    if (status == YB_AGAIN) {
        return true; /* It is parked; others go on. */
    }
    if (status == YB_OK && yb_stage_must_copy_out(slice)) {
        (void)yb_fair_pop(&remote->queue);
        batch->planned = batch->planned == slice ? NULL : batch->planned;
        feed(batch); /* Before the copies, which may be its end. */
        yb_stage_fill_iov(slice);
        yb_stage_copy(slice, true);
        return true;
    }
    status = status == YB_OK ? submit(remote, slice) : status;
    if (status == YB_AGAIN) {
        return false;
    }
    (void)yb_fair_pop(&remote->queue);
    batch->planned = batch->planned == slice ? NULL : batch->planned;
    if (status == YB_OK) {
        slice->state = YB_SLICE_FLYING;
        feed(batch);
    } else {
        feed(batch);
        yb_remote_end_slice(slice, (struct yb_slice_end){.status = status}, 0);
    }
    return true;
}

static void
dispatch(struct yb_remote *remote)
{
    struct yb_fair_item *item;

    remote->references++;
    yb_stage_unpark(remote);
    feed_starved(remote);
    while ((item = yb_fair_peek(&remote->queue)) != NULL) {
        if (!dispatch_one(remote, slice_of_queue(item))) {
            break;
        }
    }
    remote->references--;
    yb_remote_check_gone(remote);
}

static void
run_dispatch(struct yb_task *task)
{
    dispatch((struct yb_remote *)((uint8_t *)task - offsetof(struct yb_remote, dispatch_task)));
}

void
yb_remote_room(struct yb_path *path)
{
    yb_remote_dispatch_soon(path->remote);
}

/* ---- slices that come back ----------------------------------------------------------------- */

static void
again(struct yb_slice *slice)
{
    slice->path = NULL;
    yb_remote_queue_slice(slice);
    yb_remote_dispatch_soon(slice->remote);
}

static void
on_delay_over(struct yb_timer *timer)
{
    again((struct yb_slice *)((uint8_t *)timer - offsetof(struct yb_slice, timer)));
}

static bool any_refused(const struct yb_slice *slice);

/* The path that failed a write is quiet, or cannot be made so. */
static void
on_quiet(void *owner, enum yb_status status)
{
    struct yb_slice *slice = owner;
    struct yb_batch *batch = slice->batch;
    struct yb_slice_end end = {.status = batch->stopped, .in_doubt = status != YB_OK};

    slice->remote->references--;
    if (status == YB_OK && any_refused(slice) && !yb_remote_drop_failed(slice, 0)) {
        return;
    }
    if (status == YB_OK && batch->stopped == YB_OK) {
        again(slice);
        return;
    }
    end.status = end.status == YB_OK ? status : end.status;
    yb_remote_end_slice(slice, end, 0);
}

bool
yb_remote_drop_failed(struct yb_slice *slice, uint32_t path_bit)
{
    struct yb_batch *batch = slice->batch;
    uint32_t kept = 0;

    slice->bytes = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        struct yb_fragment *fragment = &slice->fragments[i];

        if (fragment->status != YB_OK) {
            account(batch, fragment->item, fragment->length,
                    (struct yb_slice_end){.status = fragment->status}, path_bit);
            continue;
        }
        slice->bytes += fragment->length;
        slice->fragments[kept++] = *fragment;
    }
    slice->count = kept;
    slice->staged = false; /* What is kept has another place in staging now. */
    if (kept == 0) {
        free_slice(slice);
        check_batch(batch);
    } else if (batch->stopped != YB_OK) {
        yb_remote_end_slice(slice, (struct yb_slice_end){.status = batch->stopped}, 0);
        kept = 0;
    }
    return kept > 0;
}

static bool
any_refused(const struct yb_slice *slice)
{
    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->fragments[i].status != YB_OK) {
            return true;
        }
    }
    return false;
}

/* Let the slice wait until what its path was doing is over (T1 of transfer.h). */
static void
quiesce(struct yb_slice *slice)
{
    slice->state = YB_SLICE_QUIETING;
    slice->remote->references++;
    slice->path->ops->quiesce(slice->path, slice->deadline_ns, on_quiet, slice);
}

/* Give the fragments whose local memory is bad their status: they fail alone (T4). Returns false
 * if all are good now, so that nobody is to blame. */
static bool
find_faults(struct yb_slice *slice)
{
    bool found = false;

    for (uint32_t i = 0; slice->staging == NULL && i < slice->count; i++) {
        struct yb_fragment *fragment = &slice->fragments[i];

        fragment->status =
            yb_foreign_check(fragment->local, fragment->length, slice->op == YB_TRANSFER_READ);
        found = found || fragment->status != YB_OK;
    }
    return found;
}

/* Try the slice again where that is safe and useful. Returns false if this was its end. */
static bool
try_again(struct yb_slice *slice, struct yb_slice_end end)
{
    struct yb_remote *remote = slice->remote;
    struct yb_batch *batch = slice->batch;

    if (batch->stopped != YB_OK || now_of(remote) >= slice->deadline_ns || remote->closing) {
        return false;
    }
    if (end.local_fault && find_faults(slice)) {
        if (end.in_doubt) {
            quiesce(slice);
        } else if (yb_remote_drop_failed(slice, slice->path->ops->bit)) {
            again(slice);
        }
        return true;
    }
    if (end.status == YB_AGAIN && !end.in_doubt) {
        slice->state = YB_SLICE_DELAYED;
        yb_timer_init(&slice->timer, on_delay_over);
        yb_loop_arm(remote->worker->loop, &slice->timer,
                    yb_deadline_after(now_of(remote), RETRY_DELAY_NS));
        return true;
    }
    if (!end.path_failed) {
        return false;
    }
    slice->path->counts.switches_away++;
    slice->avoid |= slice->path->ops->bit;
    if (!end.in_doubt) {
        again(slice);
        return true;
    }
    quiesce(slice);
    return true;
}

/* How a slice ends whose batch was stopped: the batch knows why. */
static bool
is_own_doing(enum yb_status status)
{
    return status == YB_CANCELLED || status == YB_PEER_LOST || status == YB_TIMED_OUT ||
           status == YB_CLOSED;
}

void
yb_slice_done(struct yb_slice *slice, struct yb_slice_end end)
{
    uint32_t bit = slice->path->ops->bit;

    YB_ASSERT(slice->state == YB_SLICE_FLYING);
    if (goes_beside_net(slice->path)) {
        yb_remote_count_moved(slice->remote, slice, YB_LINKS_SHM, end.status);
    }
    if (end.status == YB_OK && slice->op == YB_TRANSFER_READ && any_refused(slice)) {
        if (yb_remote_drop_failed(slice, bit)) {
            again(slice); /* The others are read again. */
        }
        return;
    }
    if (end.status == YB_OK && slice->staging != NULL && slice->op == YB_TRANSFER_READ) {
        slice->came_by = bit; /* The path may go meanwhile. */
        yb_stage_copy(slice, false);
        return;
    }
    if (end.status == YB_OK || !try_again(slice, end)) {
        if (slice->batch->stopped != YB_OK && is_own_doing(end.status)) {
            end.status = slice->batch->stopped;
        }
        yb_remote_end_slice(slice, end, end.status == YB_OK ? bit : 0);
    }
}

/* ---- batches ------------------------------------------------------------------------------- */

static void
unlink_batch(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;

    if (batch->previous != NULL) {
        batch->previous->next = batch->next;
    } else {
        remote->batches = batch->next;
    }
    if (batch->next != NULL) {
        batch->next->previous = batch->previous;
    }
    unstarve(batch);
}

static void
conclude_batch(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;

    yb_loop_disarm(remote->worker->loop, &batch->timer);
    unlink_batch(batch);
    /* Not the loop's time, which may be that of before the submit. */
    batch->took_ns = yb_transfer_now(remote->engine) - batch->began_ns;
    yb_transfer_batch_ended(batch);
    yb_remote_check_gone(remote);
}

static void
on_notified(struct yb_call *call)
{
    struct yb_batch *batch = call->owner;

    batch->notifying = false;
    if (call->status != YB_OK) {
        batch->status = call->status;
        batch->in_doubt = batch->in_doubt || call->status == YB_IN_DOUBT;
    }
    conclude_batch(batch);
}

/* All items are applied: tell the peer's program. Returns false if that cannot even begin. */
static bool
notify(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;
    enum yb_status status;

    batch->notify_call = (struct yb_call){
        .type = YB_WIRE_TRANSFER_TYPE_NOTIFY,
        .class = (enum yb_class)batch->options.work_class,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = batch->deadline_ns,
        .mutates = true,
        .trace_id = batch->options.trace_id,
        .parent_span = batch->options.parent_span,
        .body = batch->notify,
        .body_bytes = batch->options.notify_bytes,
        .done = on_notified,
        .owner = batch,
    };
    status = yb_peer_call(remote->control, &batch->notify_call);
    if (status != YB_OK) {
        batch->status = status;
        return false;
    }
    batch->notifying = true;
    return true;
}

/* Is a batch at its end? */
static void
check_batch(struct yb_batch *batch)
{
    if (atomic_load(&batch->ended) < batch->count || batch->slices != NULL || batch->notifying ||
        batch->holds > 0) {
        return;
    }
    if (batch->options.notify != NULL && batch->status == YB_OK) {
        if (batch->stopped != YB_OK) {
            batch->status = batch->stopped; /* All items went well; the peer is not told so. */
        } else if (notify(batch)) {
            return;
        }
    }
    conclude_batch(batch);
}

/* Fail what was not planned yet. */
static void
fail_rest(struct yb_batch *batch, enum yb_status why)
{
    struct yb_slice_end end = {.status = why};

    for (; batch->cursor.item < batch->count; batch->cursor.item++) {
        const struct yb_plan_item *plan = &batch->items[batch->cursor.item];
        uint64_t left = plan->item.length - batch->cursor.done;

        if (!plan->skip && left > 0) {
            account(batch, batch->cursor.item, left, end, 0);
        }
        batch->cursor.done = 0;
    }
    batch->exhausted = true;
}

/* Say when to stop waiting for drivers, while anything of a stopped batch is under way. */
static void
arm_patience(struct yb_batch *batch)
{
    uint64_t now = now_of(batch->remote);
    bool waits = batch->deadline_ns > now && batch->stopped == YB_CANCELLED;
    uint64_t from = waits ? batch->deadline_ns : now;
    uint64_t until = yb_deadline_after(from, DRIVER_PATIENCE_NS);
    uint64_t at_most = yb_deadline_after(now, CANCEL_PATIENCE_NS);

    if (batch->slices != NULL) {
        yb_loop_arm(batch->remote->worker->loop, &batch->timer, until < at_most ? until : at_most);
    }
}

void
yb_remote_stop_batch(struct yb_batch *batch, enum yb_status why)
{
    struct yb_remote *remote = batch->remote;
    struct yb_slice *next;

    if (batch->stopped != YB_OK) {
        return;
    }
    batch->stopped = why;
    batch->holds++; /* Not to end below, while its slices are walked over. */
    fail_rest(batch, why);
    for (struct yb_slice *slice = batch->slices; slice != NULL; slice = next) {
        next = slice->next;
        switch (slice->state) {
        case YB_SLICE_QUEUED:
            yb_fair_remove(&remote->queue, &slice->queue);
            yb_remote_end_slice(slice, (struct yb_slice_end){.status = why}, 0);
            break;
        case YB_SLICE_PARKED:
            yb_stage_forget(slice);
            yb_remote_end_slice(slice, (struct yb_slice_end){.status = why}, 0);
            break;
        case YB_SLICE_DELAYED:
            yb_loop_disarm(remote->worker->loop, &slice->timer);
            yb_remote_end_slice(slice, (struct yb_slice_end){.status = why}, 0);
            break;
        case YB_SLICE_FLYING: slice->path->ops->cancel(slice->path, slice); break;
        default: break; /* Comes back by itself and sees `stopped`. */
        }
    }
    if (batch->notifying) {
        yb_peer_cancel(remote->control, &batch->notify_call);
    }
    arm_patience(batch);
    batch->holds--;
    check_batch(batch);
}

static void
on_batch_timer(struct yb_timer *timer)
{
    struct yb_batch *batch =
        (struct yb_batch *)((uint8_t *)timer - offsetof(struct yb_batch, timer));

    if (batch->stopped == YB_OK) {
        yb_remote_stop_batch(batch, YB_TIMED_OUT);
        return;
    }
    batch->holds++;
    yb_stage_abandon(batch);
    arm_patience(batch); /* What flies may still have to be copied. */
    batch->holds--;
    check_batch(batch);
}

/* Judge every item by itself; empty and impossible ones end here (T4 of transfer.h). */
static void
judge_items(struct yb_remote *remote, struct yb_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct yb_plan_item *plan = &batch->items[i];
        enum yb_status status = yb_plan_check(&plan->item);

        plan->skip = status != YB_OK || plan->item.length == 0;
        if (plan->skip) {
            end_item(batch, i, yb_batch_word(status, false, 0));
            continue;
        }
        batch->states[i].left = plan->item.length;
        plan->place = yb_memory_probe(remote->engine->memory, plan->item.local);
        if (plan->place.kind == YB_MEMORY_HOST) {
            plan->place.index = 0; /* Nodes do not keep fragments apart. */
        }
    }
}

void
yb_remote_start_batch(struct yb_remote *remote, struct yb_batch *batch)
{
    batch->remote = remote;
    batch->previous = NULL;
    batch->next = remote->batches;
    if (remote->batches != NULL) {
        remote->batches->previous = batch;
    }
    remote->batches = batch;
    yb_timer_init(&batch->timer, on_batch_timer);
    yb_loop_arm(remote->worker->loop, &batch->timer, batch->deadline_ns);
    batch->holds++;
    judge_items(remote, batch);
    if (remote->closing) {
        yb_remote_stop_batch(batch, YB_CLOSED);
    } else {
        feed(batch);
        dispatch(remote);
    }
    batch->holds--;
    check_batch(batch);
}

/* ---- the remote ----------------------------------------------------------------------------- */

uint32_t
yb_remote_stripe(const struct yb_remote *remote, uint32_t number)
{
    YB_ASSERT(number < 256);
    return ((uint32_t)remote->handle - 1) << 8 | number; /* The handle's slot is below 65536. */
}

enum yb_status
yb_remote_create(struct yb_transfer_worker *worker, yb_transfer_peer handle,
                 const struct yb_address_list *addresses, struct yb_id expected,
                 struct yb_remote **remote_out)
{
    const struct yb_fair_options fair = {
        .cost_bytes_max = YB_SLICE_BYTES,
        .share_permille = {0, YB_REMOTE_SHARE_THROUGHPUT, YB_REMOTE_SHARE_BACKGROUND},
    };
    struct yb_remote *remote = calloc(1, sizeof(*remote));
    enum yb_status status;

    if (remote == NULL) {
        return YB_NO_MEMORY;
    }
    remote->magic = YB_REMOTE_MAGIC;
    remote->engine = worker->engine;
    remote->worker = worker;
    remote->handle = handle;
    remote->addresses = *addresses;
    remote->expected = expected;
    remote->link = yb_links_peer(yb_net_links(worker->net), &addresses->items[0], NULL);
    remote->dispatch_task.run = run_dispatch;
    status = yb_fair_init(&remote->queue, &fair);
    YB_ASSERT(status == YB_OK);
    status = yb_peer_create(worker->net, addresses, expected, &remote->control);
    if (status != YB_OK) {
        yb_fair_fini(&remote->queue);
        free(remote);
        return status;
    }
    yb_peer_set_stripe(remote->control, yb_remote_stripe(remote, 0));
    remote->next = worker->remotes;
    worker->remotes = remote;
    for (uint32_t i = 0, k = 0; yb_path_table[i] != NULL; i++) {
        YB_ASSERT(k < YB_REMOTE_PATHS_MAX);
        if ((worker->engine->options.paths & yb_path_table[i]->bit) != 0 &&
            yb_path_table[i]->open(remote, &remote->paths[k]) == YB_OK) {
            remote->paths_open++;
            k++;
        }
    }
    *remote_out = remote;
    return YB_OK;
}

void
yb_remote_check_gone(struct yb_remote *remote)
{
    struct yb_remote **link = &remote->worker->remotes;

    if (!remote->closing || remote->paths_open > 0 || remote->batches != NULL ||
        remote->references > 0) {
        return;
    }
    while (*link != remote) {
        link = &(*link)->next;
    }
    *link = remote->next;
    yb_loop_undefer(remote->worker->loop, &remote->dispatch_task);
    yb_fair_fini(&remote->queue);
    remote->magic = 0;
    free(remote);
}

void
yb_remote_path_closed(struct yb_path *path)
{
    struct yb_remote *remote = path->remote;

    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX; i++) {
        if (remote->paths[i] == path) {
            remote->paths[i] = NULL;
        }
    }
    remote->paths_open--;
    yb_remote_check_gone(remote);
}

void
yb_remote_close(struct yb_remote *remote)
{
    struct yb_batch *next;
    struct yb_path *paths[YB_REMOTE_PATHS_MAX];

    if (remote->closing) {
        return;
    }
    remote->closing = true;
    remote->references++;
    for (struct yb_batch *batch = remote->batches; batch != NULL; batch = next) {
        next = batch->next;
        yb_remote_stop_batch(batch, YB_CLOSED);
    }
    memcpy(paths, remote->paths, sizeof(paths));
    for (uint32_t i = 0; i < YB_REMOTE_PATHS_MAX; i++) {
        if (paths[i] != NULL) {
            paths[i]->ops->close(paths[i]);
        }
    }
    yb_peer_destroy(&remote->control);
    remote->references--;
    yb_remote_check_gone(remote);
}
