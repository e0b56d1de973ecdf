/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches: a call, or a number to ask about, is a job: as many batches of the engine below as its
 * items take, and then its notification.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"
#include "transfer/near.h"

#define DRAIN_NS (2 * YB_NS_PER_S)
#define LOOK_NS  (500 * YB_NS_PER_MS) /* A batch that takes longer has its peer asked. */

struct yb_compat_engine_job {
    struct yb_compat_engine_peer *peer;
    yb_transfer_batch *batches;
    uint32_t batch_count; /* Started. */
    bool claimed;         /* Somebody looks at it. */
    bool notifies;        /* With `message`, which is still to be sent. */
    struct yb_compat_engine_message message;
    uint64_t bytes;
    uint64_t timeout_ns;
    uint64_t deadline_ns;
    enum yb_status status;
    bool write;
};

/* ---- items ----------------------------------------------------------------------------------- */

static struct yb_compat_engine_scratch *
scratch_take(struct yb_compat_engine *engine, uint32_t count)
{
    struct yb_compat_engine_scratch *scratch;

    yb_lock_acquire(&engine->lock);
    scratch = engine->scratch;
    if (scratch != NULL) {
        engine->scratch = scratch->next;
        engine->scratch_count--;
    }
    yb_lock_release(&engine->lock);
    scratch = scratch != NULL ? scratch : calloc(1, sizeof(*scratch));
    if (scratch != NULL && scratch->room < count) {
        free(scratch->items);
        scratch->items = calloc(count, sizeof(*scratch->items));
        scratch->room = count;
        if (scratch->items == NULL) {
            free(scratch);
            scratch = NULL;
        }
    }
    return scratch;
}

static void
scratch_give(struct yb_compat_engine *engine, struct yb_compat_engine_scratch *scratch)
{
    yb_lock_acquire(&engine->lock);
    if (engine->scratch_count < YB_COMPAT_SCRATCH_MAX) {
        scratch->next = engine->scratch;
        engine->scratch = scratch;
        engine->scratch_count++;
        scratch = NULL;
    }
    yb_lock_release(&engine->lock);
    if (scratch != NULL) {
        free(scratch->items);
        free(scratch);
    }
}

static void
fill(const struct yb_compat_move *move, uint32_t first, uint32_t count,
     struct yb_transfer_item *items)
{
    const uint32_t op = move->write ? YB_TRANSFER_WRITE : YB_TRANSFER_READ;

    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct yb_transfer_item){
            .op = op,
            .local = (void *)(uintptr_t)move->local[first + i],
            .length = move->lengths[first + i],
            .remote = YB_TRANSFER_BY_ADDRESS,
            .remote_offset = move->remote[first + i],
        };
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static enum yb_status
start_batch(struct yb_compat_engine *engine, struct yb_compat_engine_job *job,
            const struct yb_transfer_item *items, uint32_t count)
{
    uint8_t part[4096];
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = job->timeout_ns,
    };
    enum yb_status status;

    if (job->notifies && job->message.parts == 1) {
        options.notify_bytes = yb_compat_engine_message_part(&job->message, 0, part);
        options.notify = part;
    }
    status = yb_transfer_submit(engine->transfer, yb_compat_engine_peer_handle(job->peer), items,
                                count, &options, &job->batches[job->batch_count]);
    if (status == YB_OK) {
        job->batch_count++;
        job->notifies = job->notifies && options.notify == NULL;
    }
    return status;
}

/* The notification goes with the only batch, or after all of them. */
static enum yb_status
start_batches(struct yb_compat_engine *engine, struct yb_compat_engine_job *job,
              const struct yb_compat_move *move)
{
    const uint32_t most = move->count < YB_TRANSFER_ITEMS_MAX ? move->count : YB_TRANSFER_ITEMS_MAX;
    struct yb_compat_engine_scratch *scratch = scratch_take(engine, most > 0 ? most : 1);
    bool notifies = job->notifies;
    enum yb_status status = YB_OK;

    if (scratch == NULL) {
        return YB_NO_MEMORY;
    }
    job->notifies = notifies && move->count <= YB_TRANSFER_ITEMS_MAX;
    if (move->count == 0) {
        scratch->items[0] = (struct yb_transfer_item){
            .op = YB_TRANSFER_WRITE,
            .remote = YB_TRANSFER_BY_ADDRESS,
        };
        status = start_batch(engine, job, scratch->items, 1);
    }
    for (uint32_t first = 0; first < move->count && status == YB_OK;) {
        uint32_t count = move->count - first < most ? move->count - first : most;

        fill(move, first, count, scratch->items);
        status = start_batch(engine, job, scratch->items, count);
        first += count;
    }
    job->notifies = notifies && (job->notifies || move->count > YB_TRANSFER_ITEMS_MAX);
    scratch_give(engine, scratch);
    return status;
}

static void
job_free(struct yb_compat_engine_job *job)
{
    yb_compat_engine_message_fini(&job->message);
    free(job->batches);
    free(job);
}

/* Make a job that has started nothing yet. */
static struct yb_compat_engine_job *
job_create(struct yb_compat_engine *engine, const struct yb_compat_move *move)
{
    struct yb_compat_engine_job *job = calloc(1, sizeof(*job));
    enum yb_status status = YB_OK;

    if (job == NULL) {
        return NULL;
    }
    job->write = move->write;
    for (uint32_t i = 0; i < move->count; i++) {
        job->bytes = yb_deadline_after(job->bytes, move->lengths[i]); /* Saturates. */
    }
    job->timeout_ns = yb_deadline_after(engine->timeout_ns, job->bytes);
    job->deadline_ns = yb_deadline_after(yb_clock_now(engine->clock), job->timeout_ns);
    job->batches = calloc(move->count / YB_TRANSFER_ITEMS_MAX + 1, sizeof(*job->batches));
    if (move->notify != NULL) {
        status = yb_compat_engine_message_init(engine, move->notify, &job->message);
        job->notifies = status == YB_OK;
    }
    if (job->batches == NULL || status != YB_OK) {
        yb_log_warn(engine->log, "engine", "a notification or batch is too large",
                    yb_log_status("status", status != YB_OK ? status : YB_NO_MEMORY));
        job_free(job);
        return NULL;
    }
    return job;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* A failure that is the items' own, not the peer's. */
static bool
spares_peer(enum yb_status status)
{
    return status == YB_OK || status == YB_INVALID || status == YB_NOT_FOUND ||
           status == YB_FAULT || status == YB_BUSY || status == YB_NO_MEMORY;
}

/* The engine below goes on trying until the deadline. Here a peer that is provably not there fails
 * its calls at once, as callers are used to. */
static enum yb_status
await_batch(struct yb_compat_engine *engine, struct yb_compat_engine_job *job,
            yb_transfer_batch batch)
{
    const yb_transfer_peer peer = yb_compat_engine_peer_handle(job->peer);
    enum yb_status status;

    while ((status = yb_transfer_wait(engine->transfer, batch, LOOK_NS)) == YB_TIMED_OUT) {
        struct yb_transfer_probe probe;
        enum yb_status asked = yb_transfer_ask(engine->transfer, peer, engine->probe_ns, &probe);

        if (job->status == YB_OK && asked != YB_OK && asked != YB_TIMED_OUT && asked != YB_AGAIN) {
            job->status = asked;
            (void)!yb_transfer_cancel(engine->transfer, batch);
        }
    }
    return status;
}

/* A process that refuses connections is gone, and its memory with it: nothing can land there. */
static bool
may_land(const struct yb_compat_engine_job *job, const struct yb_transfer_batch_status *ended)
{
    return ended->status == YB_BUSY || (ended->in_doubt && job->status != YB_REFUSED);
}

/* Wait for a batch to end and give it back. */
static void
end_batch(struct yb_compat_engine *engine, struct yb_compat_engine_job *job, uint32_t index)
{
    yb_transfer_batch batch = job->batches[index];
    struct yb_transfer_batch_status ended = {.status = YB_CLOSED};
    enum yb_status status;

    if (job->status != YB_OK) {
        (void)!yb_transfer_cancel(engine->transfer, batch);
    }
    status = await_batch(engine, job, batch);
    status = status == YB_OK ? yb_transfer_poll(engine->transfer, batch, &ended, NULL, 0) : status;
    if (may_land(job, &ended)) {
        /* What may still land there, or touch memory here, is waited for as long as is bearable. */
        enum yb_status quiet =
            yb_transfer_drain(engine->transfer, yb_compat_engine_peer_handle(job->peer), DRAIN_NS);

        if (quiet != YB_OK) {
            yb_log_warn(engine->log, "engine", "a failed transfer may still move bytes",
                        yb_log_str("peer", yb_compat_engine_peer_name(job->peer)),
                        yb_log_status("status", quiet));
        }
    }
    (void)!yb_transfer_release(engine->transfer, batch);
    status = status == YB_OK ? ended.status : status;
    job->status = job->status == YB_OK ? status : job->status;
}

static void
send_message(struct yb_compat_engine *engine, struct yb_compat_engine_job *job)
{
    const struct yb_transfer_item nothing = {
        .op = YB_TRANSFER_WRITE,
        .remote = YB_TRANSFER_BY_ADDRESS,
    };
    uint8_t part[4096];
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = job->timeout_ns,
        .notify = part,
    };

    for (uint32_t i = 0; i < job->message.parts && job->status == YB_OK; i++) {
        options.notify_bytes = yb_compat_engine_message_part(&job->message, i, part);
        job->status = yb_transfer_submit(engine->transfer, yb_compat_engine_peer_handle(job->peer),
                                         &nothing, 1, &options, &job->batches[0]);
        if (job->status == YB_OK) {
            end_batch(engine, job, 0);
        }
    }
}

/* Wait until a job has ended, and free it. */
static int32_t
job_end(struct yb_compat_engine *engine, struct yb_compat_engine_job *job)
{
    enum yb_status status;

    for (uint32_t i = 0; i < job->batch_count; i++) {
        end_batch(engine, job, i);
    }
    if (job->notifies && job->status == YB_OK) {
        send_message(engine, job);
    }
    status = job->status;
    if (status != YB_OK) {
        yb_log_warn(engine->log, "engine", "a transfer failed",
                    yb_log_str("peer", yb_compat_engine_peer_name(job->peer)),
                    yb_log_str("way", job->write ? "write" : "read"),
                    yb_log_u64("bytes", job->bytes), yb_log_status("status", status));
    }
    yb_compat_engine_peer_give(engine, job->peer, !spares_peer(status));
    job_free(job);
    return status == YB_OK ? 0 : YB_COMPAT_ENGINE_FAILED;
}

/* Start one; NULL: it could not be, and nothing of it runs. */
static struct yb_compat_engine_job *
job_start(struct yb_compat_engine *engine, const struct yb_compat_move *move)
{
    struct yb_compat_engine_job *job;

    if (!yb_compat_engine_ready(engine)) {
        return NULL;
    }
    job = job_create(engine, move);
    if (job == NULL) {
        return NULL;
    }
    job->peer = yb_compat_engine_peer_take(engine, move->target);
    if (job->peer == NULL) {
        job_free(job);
        return NULL;
    }
    job->status = start_batches(engine, job, move);
    if (job->status != YB_OK) {
        (void)job_end(engine, job);
        return NULL;
    }
    return job;
}

int32_t
yb_compat_engine_move(struct yb_compat_engine *engine, const struct yb_compat_move *move)
{
    struct yb_compat_engine_job *job = job_start(engine, move);

    return job != NULL ? job_end(engine, job) : YB_COMPAT_ENGINE_FAILED;
}

/* ---- numbers --------------------------------------------------------------------------------- */

uint64_t
yb_compat_engine_submit(struct yb_compat_engine *engine, const struct yb_compat_move *move)
{
    struct yb_compat_engine_job *job = job_start(engine, move);
    uint64_t number = 0;

    if (job == NULL) {
        return 0;
    }
    yb_lock_acquire(&engine->lock);
    for (uint32_t i = 0; i < YB_COMPAT_JOBS_MAX && number == 0; i++) {
        uint32_t slot = (engine->job_hint + i) % YB_COMPAT_JOBS_MAX;

        if (engine->jobs[slot] == NULL) {
            engine->jobs[slot] = job;
            engine->job_hint = slot + 1;
            number = (uint64_t)engine->job_generations[slot] << 32 | (slot + 1);
        }
    }
    yb_lock_release(&engine->lock);
    if (number == 0) {
        yb_log_warn(engine->log, "engine", "too many batches are open; ask for their status",
                    yb_log_u64("most", YB_COMPAT_JOBS_MAX));
        job->status = YB_TOO_LARGE;
        (void)job_end(engine, job);
    }
    return number;
}

static uint32_t
slot_of(uint64_t number)
{
    return (uint32_t)number - 1;
}

/* Take hold of a job so that nobody else ends it. NULL: there is none, or (*running_out) another
 * thread holds it. */
static struct yb_compat_engine_job *
job_claim(struct yb_compat_engine *engine, uint64_t number, bool *running_out)
{
    uint32_t slot = slot_of(number);
    struct yb_compat_engine_job *job = NULL;

    *running_out = false;
    yb_lock_acquire(&engine->lock);
    if (slot < YB_COMPAT_JOBS_MAX && engine->job_generations[slot] == (uint32_t)(number >> 32)) {
        job = engine->jobs[slot];
    }
    if (job != NULL && job->claimed) {
        *running_out = true;
        job = NULL;
    }
    if (job != NULL) {
        job->claimed = true;
    }
    yb_lock_release(&engine->lock);
    return job;
}

/* Give the number back; the job is the caller's. */
static void
job_forget(struct yb_compat_engine *engine, uint64_t number)
{
    yb_lock_acquire(&engine->lock);
    engine->jobs[slot_of(number)] = NULL;
    engine->job_generations[slot_of(number)]++;
    yb_lock_release(&engine->lock);
}

static bool
job_runs(struct yb_compat_engine *engine, const struct yb_compat_engine_job *job)
{
    for (uint32_t i = 0; i < job->batch_count; i++) {
        struct yb_transfer_batch_status status;

        if (yb_transfer_poll(engine->transfer, job->batches[i], &status, NULL, 0) == YB_OK &&
            status.status == YB_IN_PROGRESS) {
            return true;
        }
    }
    return false;
}

int32_t
yb_compat_engine_check(struct yb_compat_engine *engine, uint64_t batch)
{
    struct yb_compat_engine_job *job;
    bool late;
    bool running;

    if (!yb_compat_engine_ready(engine)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    job = job_claim(engine, batch, &running);
    if (job == NULL) {
        return running ? 0 : YB_COMPAT_ENGINE_FAILED;
    }
    if (job_runs(engine, job)) {
        late = yb_clock_now(engine->clock) > job->deadline_ns;
        yb_lock_acquire(&engine->lock);
        job->claimed = false;
        yb_lock_release(&engine->lock);
        return late ? -2 : 0;
    }
    job_forget(engine, batch);
    return job_end(engine, job) == 0 ? 1 : YB_COMPAT_ENGINE_FAILED;
}

int32_t
yb_compat_engine_wait(struct yb_compat_engine *engine, const uint64_t *batches, uint32_t count)
{
    int32_t code = 0;

    if (!yb_compat_engine_ready(engine)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool running;
        struct yb_compat_engine_job *job = job_claim(engine, batches[i], &running);

        if (job == NULL) {
            code = YB_COMPAT_ENGINE_FAILED;
            continue;
        }
        job_forget(engine, batches[i]);
        code = job_end(engine, job) == 0 ? code : YB_COMPAT_ENGINE_FAILED;
    }
    return code;
}

void
yb_compat_engine_jobs_fini(struct yb_compat_engine *engine)
{
    for (uint32_t i = 0; i < YB_COMPAT_JOBS_MAX; i++) {
        if (engine->jobs[i] != NULL) {
            job_free(engine->jobs[i]); /* Its batches ended with the engine below. */
            engine->jobs[i] = NULL;
        }
    }
    while (engine->scratch != NULL) {
        struct yb_compat_engine_scratch *scratch = engine->scratch;

        engine->scratch = scratch->next;
        free(scratch->items);
        free(scratch);
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

int32_t
yb_compat_engine_probe(struct yb_compat_engine *engine, const char *target)
{
    struct yb_transfer_probe probe;
    struct yb_compat_engine_peer *peer;
    enum yb_status status;

    if (!yb_compat_engine_ready(engine)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    peer = yb_compat_engine_peer_take(engine, target);
    if (peer == NULL) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    status = yb_transfer_ask(engine->transfer, yb_compat_engine_peer_handle(peer), engine->probe_ns,
                             &probe);
    yb_compat_engine_peer_give(engine, peer, status != YB_OK);
    return status == YB_OK ? 0 : YB_COMPAT_ENGINE_FAILED;
}

uint64_t
yb_compat_engine_first_address(struct yb_compat_engine *engine, const char *target)
{
    struct yb_compat_engine_peer *peer;
    uint64_t address = 0;
    enum yb_status status;

    if (!yb_compat_engine_ready(engine)) {
        return 0;
    }
    peer = yb_compat_engine_peer_take(engine, target);
    if (peer == NULL) {
        return 0;
    }
    status = yb_transfer_first(engine->transfer, yb_compat_engine_peer_handle(peer),
                               engine->probe_ns, &address);
    yb_compat_engine_peer_give(engine, peer, status != YB_OK && status != YB_NOT_FOUND);
    return status == YB_OK ? address : 0;
}
