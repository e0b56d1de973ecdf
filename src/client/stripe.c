/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stripe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "client/core_internal.h"

#define UNDO_NS   (5 * YB_NS_PER_S) /* For removing parts of what was not published. */
#define TRIES_MAX 5u                /* Of a value that makes and loses its room beside others. */

/* A manifest, little-endian:
 *
 *     0  magic "YBMF"   4  version 1   8  bytes of the value   16  bytes of each part but the last
 *     24 write id (16)  40 CRC32C of the 40 bytes before       44  zero */
#define MANIFEST_BYTES   48u
#define MANIFEST_MAGIC   0x464d4259u
#define MANIFEST_VERSION 1u

/* The name of a part: a zero byte and three letters, write id, number. */
#define PART_KEY_BYTES 24u
#define PARTS_MAX      YB_CLIENT_ITEMS_MAX

struct plan {
    uint64_t total;
    uint64_t part_bytes;
    uint8_t write[16];
};

/* A batch with long values. */
struct job {
    struct yb_client_core *core;
    struct yb_client_batch *outer;
    struct yb_client_batch inner;
    struct yb_task task;
    void (*next)(struct job *job); /* When `inner` has ended. */
    bool running;                  /* It is in the core. */
    bool resting;                  /* `rest` is armed. */
    struct yb_timer rest;
    bool cancelled;
    uint32_t at;       /* The item of the batch that is worked on. */
    uint64_t began_ns; /* The attempt that is under way. */
    uint32_t tries;
    uint32_t replicas; /* Of a put: the fewest of a part. */
    uint32_t placed;   /* Parts that were put. */
    bool lost;         /* Some of those were evicted meanwhile. */
    enum yb_status status;
    uint64_t grant; /* Of the manifest. */
    struct plan plan;
    struct plan *plans; /* REMOVE: of every item; a total of 0: it is not striped. */
    struct yb_client_item one;
    struct iovec one_iov;
    uint8_t manifest[MANIFEST_BYTES];
    /* ---- of the value that is worked on; owned ---- */
    struct yb_client_item *items;
    struct iovec *iov;
    uint8_t (*keys)[PART_KEY_BYTES];
    uint32_t count;
    uint32_t first; /* Number of the first of these parts. */
};

static void put_next(struct job *job);
static void get_next(struct job *job);
static void remove_next(struct job *job);

uint64_t
yb_stripe_part_bytes(uint64_t total)
{
    uint64_t part = (total / YB_STRIPE_PARTS + YB_STRIPE_PART_MIN - 1) / YB_STRIPE_PART_MIN *
                    YB_STRIPE_PART_MIN;

    part = part < YB_STRIPE_PART_MIN ? YB_STRIPE_PART_MIN : part;
    return part < YB_STRIPE_PART_MAX ? part : YB_STRIPE_PART_MAX;
}

/* ---- manifests ------------------------------------------------------------------------------- */

static void
write_manifest(struct job *job)
{
    uint8_t *out = job->manifest;

    memset(out, 0, MANIFEST_BYTES);
    yb_wire_put_u32(out, MANIFEST_MAGIC);
    yb_wire_put_u32(out + 4, MANIFEST_VERSION);
    yb_wire_put_u64(out + 8, job->plan.total);
    yb_wire_put_u64(out + 16, job->plan.part_bytes);
    memcpy(out + 24, job->plan.write, sizeof(job->plan.write));
    yb_wire_put_u32(out + 40, yb_crc32c(out, 40));
}

static uint64_t
part_count(const struct plan *plan)
{
    return (plan->total + plan->part_bytes - 1) / plan->part_bytes;
}

static bool
read_manifest(const uint8_t *bytes, struct plan *plan_out)
{
    struct plan plan = {
        .total = yb_wire_get_u64(bytes + 8),
        .part_bytes = yb_wire_get_u64(bytes + 16),
    };

    memcpy(plan.write, bytes + 24, sizeof(plan.write));
    if (yb_wire_get_u32(bytes) != MANIFEST_MAGIC ||
        yb_wire_get_u32(bytes + 4) != MANIFEST_VERSION ||
        yb_wire_get_u32(bytes + 40) != yb_crc32c(bytes, 40) || plan.total == 0 ||
        plan.total > YB_CLIENT_VALUE_BYTES_MAX || plan.part_bytes < YB_STRIPE_PART_MIN ||
        plan.part_bytes > YB_STRIPE_PART_MAX || part_count(&plan) > PARTS_MAX) {
        return false;
    }
    *plan_out = plan;
    return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void
free_parts(struct job *job)
{
    free(job->items);
    free(job->iov);
    free(job->keys);
    job->items = NULL;
    job->iov = NULL;
    job->keys = NULL;
    job->count = 0;
}

/* Name the parts that bytes `from` to `until` of the value lie in, and lay the caller's pieces over
 * them in that order; NULL: no memory is moved. */
static bool
make_parts(struct job *job, uint64_t from, uint64_t until, const struct yb_client_item *caller)
{
    const struct plan *plan = &job->plan;
    uint32_t first = (uint32_t)(from / plan->part_bytes);
    uint32_t count = (uint32_t)((until - 1) / plan->part_bytes) - first + 1;
    uint32_t pieces = caller != NULL ? caller->iov_count : 0;
    uint32_t piece = 0, used = 0;
    uint64_t skip = 0;

    free_parts(job);
    job->items = calloc(count, sizeof(*job->items));
    job->keys = calloc(count, sizeof(*job->keys));
    job->iov = calloc((size_t)count + pieces, sizeof(*job->iov));
    if (job->items == NULL || job->keys == NULL || job->iov == NULL) {
        free_parts(job);
        return false;
    }
    job->count = count;
    job->first = first;
    for (uint32_t i = 0; i < count; i++) {
        struct yb_client_item *item = &job->items[i];
        uint64_t start = (first + (uint64_t)i) * plan->part_bytes;
        uint64_t begin = start > from ? start : from;
        uint64_t end = start + plan->part_bytes < until ? start + plan->part_bytes : until;
        uint64_t left = end - begin;

        memcpy(job->keys[i], "\0ybp", 4);
        memcpy(job->keys[i] + 4, plan->write, sizeof(plan->write));
        yb_wire_put_u32(job->keys[i] + 20, first + i);
        *item = (struct yb_client_item){
            .key = job->keys[i],
            .key_bytes = PART_KEY_BYTES,
            .iov = &job->iov[used],
            .offset = begin - start,
            .ranged = true, /* Of a get. */
            .group = yb_wire_get_u64(plan->write) | 1u,
        };
        while (caller != NULL && left > 0) {
            uint64_t rest = caller->iov[piece].iov_len - skip;
            uint64_t some = rest < left ? rest : left;

            if (some > 0) {
                job->iov[used++] = (struct iovec){
                    .iov_base = (uint8_t *)caller->iov[piece].iov_base + skip,
                    .iov_len = (size_t)some,
                };
                item->iov_count++;
            }
            left -= some;
            skip += some;
            if (skip == caller->iov[piece].iov_len) {
                piece++;
                skip = 0;
            }
        }
    }
    return true;
}

/* ---- one step after the other ---------------------------------------------------------------- */

static void
on_inner(struct yb_client_batch *batch)
{
    struct job *job = batch->owner;

    job->running = false;
    job->next(job);
}

static void
on_task(struct yb_task *task)
{
    struct job *job = (struct job *)((uint8_t *)task - offsetof(struct job, task));

    job->next(job);
}

static void
on_rest(struct yb_timer *timer)
{
    struct job *job = (struct job *)((uint8_t *)timer - offsetof(struct job, rest));

    job->resting = false;
    job->next(job);
}

/* A batch inside of the batch; put options, flags and deadline may be changed before launch(). */
static struct yb_client_batch *
prepare(struct job *job, enum yb_client_batch_kind kind, struct yb_client_item *items,
        uint32_t count)
{
    job->inner = (struct yb_client_batch){
        .kind = (uint8_t)kind,
        .work_class = job->outer->work_class,
        .deadline_ns = job->outer->deadline_ns,
        .trace_id = job->outer->trace_id,
        .parent_span = job->outer->parent_span,
        .items = items,
        .count = count,
        .raw = true,
        .done = on_inner,
        .owner = job,
    };
    return &job->inner;
}

static void
launch(struct job *job, void (*next)(struct job *job))
{
    enum yb_status status = yb_client_core_submit(job->core, &job->inner);

    job->next = next;
    job->running = status == YB_OK;
    if (status != YB_OK) {
        for (uint32_t i = 0; i < job->inner.count; i++) {
            job->inner.items[i].status = status;
        }
        job->inner.striped = 0;
        yb_loop_defer(yb_net_loop(job->core->net), &job->task);
    }
}

/* The batch is over. */
static void
finish(struct job *job)
{
    struct yb_client_batch *outer = job->outer;

    free_parts(job);
    free(job->plans);
    job->core->jobs--;
    outer->job = NULL;
    free(job);
    outer->then(outer);
}

static struct job *
make_job(struct yb_client_core *core, struct yb_client_batch *outer)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job != NULL) {
        job->core = core;
        job->outer = outer;
        job->task.run = on_task;
        yb_timer_init(&job->rest, on_rest);
        outer->job = job;
        core->jobs++;
    }
    return job;
}

/* Why nothing new is begun; OK: it may be. */
static enum yb_status
is_over(const struct job *job)
{
    if (job->cancelled) {
        return YB_CANCELLED;
    }
    if (job->core->stopping) {
        return YB_CLOSED;
    }
    return yb_core_now(job->core) >= job->outer->deadline_ns ? YB_TIMED_OUT : YB_OK;
}

static struct yb_client_item *
current(const struct job *job)
{
    return &job->outer->items[job->at];
}

/* The item under its key, with room for a manifest. */
static void
take_one(struct job *job)
{
    job->one_iov = (struct iovec){.iov_base = job->manifest, .iov_len = MANIFEST_BYTES};
    job->one = (struct yb_client_item){
        .key = current(job)->key,
        .key_bytes = current(job)->key_bytes,
        .iov = &job->one_iov,
        .iov_count = 1,
    };
}

static void
ask_manifest(struct job *job, void (*next)(struct job *job))
{
    take_one(job);
    (void)prepare(job, YB_CLIENT_GET, &job->one, 1);
    launch(job, next);
}

/* What the manifest that was asked for says. */
static enum yb_status
took_manifest(struct job *job)
{
    if (job->one.status != YB_OK) {
        return job->one.status;
    }
    if (job->inner.striped == 0 || job->one.size != MANIFEST_BYTES ||
        !read_manifest(job->manifest, &job->plan)) {
        return YB_CORRUPT;
    }
    job->grant = job->one.grant;
    return YB_OK;
}

/* ---- put ------------------------------------------------------------------------------------- */

static uint64_t
value_bytes(const struct yb_client_item *item)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < item->iov_count; i++) {
        bytes += item->iov[i].iov_len;
    }
    return bytes;
}

static bool
is_long(const struct yb_client_item *item)
{
    return value_bytes(item) > YB_STRIPE_PART_MAX;
}

/* The current item has its outcome. */
static void
put_end(struct job *job)
{
    current(job)->status = job->status;
    free_parts(job);
    job->at++;
    put_next(job);
}

static void put_parts(struct job *job);

/* Whether the value is larger than all that there is. */
static bool
can_never_fit(const struct job *job)
{
    uint64_t most = 0;

    for (uint32_t row = 0; row < job->core->member_count; row++) {
        most += job->core->choices[row].capacity;
    }
    return most > 0 && value_bytes(current(job)) > most;
}

/* The next attempt, unless there is no time for it. */
static void
put_again(struct job *job)
{
    enum yb_status over = is_over(job);

    if (over == YB_OK) {
        put_parts(job);
        return;
    }
    job->status = over == YB_TIMED_OUT ? YB_NO_SPACE : over;
    put_end(job);
}

/* Its parts are gone. Others that came at the same time have taken its room, as it may have taken
 * theirs: one of them finds all of it a little later. Nothing is in its hand meanwhile (C4). */
static void
put_undone(struct job *job)
{
    uint64_t now_ns = yb_core_now(job->core);

    if (job->status == YB_NO_SPACE && can_never_fit(job)) {
        job->status = YB_TOO_LARGE;
    }
    if (job->status != YB_NO_SPACE || !job->lost || job->tries + 1 == TRIES_MAX) {
        put_end(job);
        return;
    }
    job->tries++;
    job->next = put_again;
    job->resting = true;
    now_ns += yb_core_random(job->core) % (((now_ns - job->began_ns) << job->tries) + 1);
    yb_loop_arm(yb_net_loop(job->core->net), &job->rest,
                now_ns < job->outer->deadline_ns ? now_ns : job->outer->deadline_ns);
}

/* The value is not published: its parts go. */
static void
put_undo(struct job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        job->items[i].iov_count = 0;
    }
    prepare(job, YB_CLIENT_REMOVE, job->items, job->count)->force = true;
    job->inner.deadline_ns = yb_deadline_after(yb_core_now(job->core), UNDO_NS);
    launch(job, put_undone);
}

static void
put_published(struct job *job)
{
    struct yb_client_item *item = current(job);

    job->status = job->one.status;
    item->grant = job->one.grant;
    item->replicas = job->one.replicas;
    item->replicas = job->replicas < item->replicas ? job->replicas : item->replicas;
    if (job->status == YB_OK || job->status == YB_IN_DOUBT) {
        put_end(job);
    } else {
        put_undo(job);
    }
}

/* It is known which parts are still there. A value is published only when all of them are. */
static void
put_checked(struct job *job)
{
    uint32_t absent = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        absent += job->items[i].status == YB_NOT_FOUND;
    }
    job->lost = absent > job->count - job->placed;
    if (job->status == YB_OK && absent > 0) {
        job->status = YB_NO_SPACE;
    }
    if (job->status != YB_OK) {
        put_undo(job);
        return;
    }
    write_manifest(job);
    take_one(job);
    job->one.group = job->items[0].group;
    job->one.parent = current(job)->parent;
    prepare(job, YB_CLIENT_PUT, &job->one, 1)->put = job->outer->put;
    job->inner.block_flags = YB_WIRE_BLOCK_FLAG_STRIPED;
    launch(job, put_published);
}

static void
put_parted(struct job *job)
{
    job->status = is_over(job);
    job->placed = 0;
    job->lost = false;
    job->replicas = UINT32_MAX;
    for (uint32_t i = 0; i < job->count; i++) {
        struct yb_client_item *part = &job->items[i];
        enum yb_status one = part->status;

        part->iov_count = 0;
        if (one == YB_OK || one == YB_EXISTS) { /* EXISTS: by an attempt of our own. */
            job->placed++;
            if (part->replicas > 0 && part->replicas < job->replicas) {
                job->replicas = part->replicas;
            }
        } else if (job->status == YB_OK) { /* In doubt or not, nobody names it. */
            job->status = one == YB_IN_DOUBT ? YB_TIMED_OUT : one;
        }
    }
    if (job->status != YB_OK && job->status != YB_NO_SPACE) {
        put_undo(job);
        return;
    }
    (void)prepare(job, YB_CLIENT_EXIST, job->items, job->count);
    launch(job, put_checked);
}

static void
put_parts(struct job *job)
{
    struct yb_client_item *item = current(job);

    job->began_ns = yb_core_now(job->core);
    job->plan = (struct plan){.total = value_bytes(item)};
    job->plan.part_bytes = yb_stripe_part_bytes(job->plan.total);
    for (uint32_t i = 0; i < sizeof(job->plan.write); i += sizeof(uint64_t)) {
        yb_wire_put_u64(job->plan.write + i, yb_core_random(job->core));
    }
    job->status = part_count(&job->plan) > PARTS_MAX           ? YB_TOO_LARGE
                  : !make_parts(job, 0, job->plan.total, item) ? YB_NO_MEMORY
                                                               : YB_OK;
    if (job->status != YB_OK) {
        put_end(job);
        return;
    }
    prepare(job, YB_CLIENT_PUT, job->items, job->count)->put = job->outer->put;
    job->inner.put.replace = false;
    job->inner.block_flags = YB_WIRE_BLOCK_FLAG_PART;
    launch(job, put_parted);
}

/* Cut the current item, unless it is known that it fits nowhere. */
static void
put_first(struct job *job)
{
    job->tries = 0;
    if (can_never_fit(job)) {
        job->status = YB_TOO_LARGE;
        put_end(job);
    } else {
        put_parts(job);
    }
}

/* Is it there already? Then its bytes need not move. */
static void
put_asked(struct job *job)
{
    if (job->one.status == YB_OK) {
        current(job)->grant = job->one.grant;
        job->status = YB_EXISTS;
        put_end(job);
    } else {
        put_first(job);
    }
}

static void
put_next(struct job *job)
{
    enum yb_status over = is_over(job);

    while (job->at < job->outer->count && (over != YB_OK || !is_long(current(job)))) {
        if (is_long(current(job))) {
            current(job)->status = over;
        }
        job->at++;
    }
    if (job->at == job->outer->count) {
        finish(job);
    } else if (job->outer->put.replace) {
        put_first(job);
    } else {
        take_one(job);
        job->one.iov_count = 0;
        (void)prepare(job, YB_CLIENT_EXIST, &job->one, 1);
        launch(job, put_asked);
    }
}

/* Those that are not long have ended. */
static void
put_small_ended(struct job *job)
{
    uint32_t from = 0;

    for (uint32_t i = 0; i < job->outer->count; i++) {
        if (!is_long(&job->outer->items[i])) {
            job->outer->items[i] = job->items[from++];
        }
    }
    free_parts(job);
    put_next(job);
}

static enum yb_status
put_begin(struct job *job)
{
    struct yb_client_batch *outer = job->outer;
    uint32_t count = 0;

    job->items = calloc(outer->count, sizeof(*job->items));
    if (job->items == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < outer->count; i++) {
        struct yb_client_item *item = &outer->items[i];

        item->bytes = item->grant = item->eta_ns = item->pin = 0;
        item->replicas = 0;
        item->data = NULL;
        item->size = value_bytes(item);
        if (!is_long(item)) {
            job->items[count++] = *item;
        }
    }
    prepare(job, YB_CLIENT_PUT, job->items, count)->put = outer->put;
    job->next = put_small_ended;
    if (count > 0) {
        launch(job, put_small_ended);
    } else {
        yb_loop_defer(yb_net_loop(job->core->net), &job->task);
    }
    return YB_OK;
}

/* ---- get and exist --------------------------------------------------------------------------- */

static void
get_end(struct job *job, enum yb_status status)
{
    current(job)->status = status;
    free_parts(job);
    job->at++;
    get_next(job);
}

static void
get_retired(struct job *job)
{
    get_end(job, YB_NOT_FOUND);
}

/* The value cannot be read any more. Its manifest goes, if it is still this one: what comes between
 * this look and the removal is evicted a little early. */
static void
get_looked(struct job *job)
{
    if (job->one.status != YB_OK || job->one.grant != job->grant) {
        get_end(job, YB_NOT_FOUND);
        return;
    }
    (void)prepare(job, YB_CLIENT_REMOVE, &job->one, 1);
    launch(job, get_retired);
}

static void
get_parted(struct job *job)
{
    struct yb_client_item *item = current(job);
    enum yb_status status = YB_OK;
    bool lost = false;

    item->bytes = 0;
    for (uint32_t i = 0; i < job->count; i++) {
        enum yb_status one = job->items[i].status;

        lost = lost || one == YB_NOT_FOUND;
        item->bytes += one == YB_OK ? job->items[i].bytes : 0;
        status = status == YB_OK ? one : status;
    }
    if (lost) {
        take_one(job);
        job->one.iov_count = 0;
        (void)prepare(job, YB_CLIENT_EXIST, &job->one, 1);
        launch(job, get_looked);
        return;
    }
    get_end(job, status);
}

/* The manifest has come: read what was asked for. */
static void
get_parts(struct job *job)
{
    struct yb_client_item *item = current(job);
    uint64_t room = value_bytes(item);
    uint64_t from = item->ranged ? item->offset : 0;
    uint64_t until;

    item->size = job->plan.total;
    item->grant = job->grant;
    if (job->outer->kind == YB_CLIENT_EXIST) {
        get_end(job, YB_OK);
        return;
    }
    if (from > job->plan.total || (!item->ranged && room < job->plan.total)) {
        get_end(job, item->ranged ? YB_INVALID : YB_TOO_SMALL);
        return;
    }
    until = room < job->plan.total - from ? from + room : job->plan.total;
    if (until == from) {
        get_end(job, YB_OK);
    } else if (!make_parts(job, from, until, item)) {
        get_end(job, YB_NO_MEMORY);
    } else {
        (void)prepare(job, YB_CLIENT_GET, job->items, job->count);
        launch(job, get_parted);
    }
}

/* It was replaced by a value that is not long: that one was read. */
static void
get_plain(struct job *job)
{
    struct yb_client_item *item = current(job);

    *item = job->one;
    if (item->status == YB_IN_PROGRESS) {
        get_next(job); /* And that one by a long one. */
    } else {
        get_end(job, item->status);
    }
}

static void
get_manifest(struct job *job)
{
    bool plain =
        job->inner.striped == 0 && (job->one.status == YB_OK || job->one.status == YB_TOO_SMALL);
    enum yb_status status;

    if (plain && job->outer->kind == YB_CLIENT_GET) {
        job->one = *current(job);
        prepare(job, YB_CLIENT_GET, &job->one, 1)->raw = false;
        launch(job, get_plain);
        return;
    }
    status = took_manifest(job);
    if (status == YB_OK) {
        get_parts(job);
        return;
    }
    if (job->outer->kind == YB_CLIENT_EXIST) {
        current(job)->size = plain ? job->one.size : 0; /* It was there; how long is not known. */
        status = YB_OK;
    }
    get_end(job, status);
}

/* Whether the core has left the item to us. */
static bool
is_left(const struct job *job, const struct yb_client_item *item)
{
    return job->outer->kind == YB_CLIENT_EXIST
               ? item->status == YB_OK && item->size == YB_CORE_STRIPED_SIZE
               : item->status == YB_IN_PROGRESS;
}

static void
get_next(struct job *job)
{
    enum yb_status over = is_over(job);

    while (job->at < job->outer->count && (over != YB_OK || !is_left(job, current(job)))) {
        if (is_left(job, current(job))) {
            current(job)->size = 0;
            current(job)->status = job->outer->kind == YB_CLIENT_EXIST ? YB_OK : over;
        }
        job->at++;
    }
    if (job->at == job->outer->count) {
        finish(job);
    } else {
        ask_manifest(job, get_manifest);
    }
}

/* The core has ended a batch of gets, or of questions: perhaps some values are striped. */
static void
on_first(struct yb_client_batch *batch)
{
    struct yb_client_core *core = batch->core;
    struct job *job = batch->striped > 0 ? make_job(core, batch) : NULL;

    if (job != NULL) {
        get_next(job);
        return;
    }
    for (uint32_t i = 0; batch->striped > 0 && i < batch->count; i++) {
        if (batch->kind == YB_CLIENT_GET && batch->items[i].status == YB_IN_PROGRESS) {
            batch->items[i].status = YB_NO_MEMORY;
        } else if (batch->items[i].size == YB_CORE_STRIPED_SIZE) {
            batch->items[i].size = 0;
        }
    }
    batch->then(batch);
}

/* ---- remove ---------------------------------------------------------------------------------- */

static void
remove_parted(struct job *job)
{
    free_parts(job);
    job->at++;
    remove_next(job);
}

/* The keys are gone: now the parts of those that were striped. */
static void
remove_next(struct job *job)
{
    while (job->at < job->outer->count &&
           (job->plans[job->at].total == 0 || current(job)->status != YB_OK)) {
        job->at++;
    }
    if (job->at == job->outer->count) {
        finish(job);
        return;
    }
    job->plan = job->plans[job->at];
    if (!make_parts(job, 0, job->plan.total, NULL)) {
        remove_parted(job);
        return;
    }
    prepare(job, YB_CLIENT_REMOVE, job->items, job->count)->force = true;
    job->inner.deadline_ns = yb_deadline_after(yb_core_now(job->core), UNDO_NS);
    launch(job, remove_parted);
}

static void
on_keys_removed(struct yb_client_batch *batch)
{
    struct job *job = batch->job;

    job->running = false;
    job->at = 0;
    remove_next(job);
}

static void
remove_keys(struct job *job)
{
    enum yb_status status = is_over(job);

    job->outer->done = on_keys_removed;
    if (status == YB_OK) {
        status = yb_client_core_submit(job->core, job->outer);
    }
    if (status == YB_OK) {
        return;
    }
    for (uint32_t i = 0; i < job->outer->count; i++) {
        job->outer->items[i].status = status;
    }
    finish(job);
}

static void remove_look(struct job *job);

static void
remove_named(struct job *job)
{
    if (took_manifest(job) == YB_OK) {
        job->plans[job->at] = job->plan;
    }
    job->at++;
    remove_look(job);
}

/* Read the manifest of the next one that has one. */
static void
remove_look(struct job *job)
{
    bool over = is_over(job) != YB_OK;

    while (job->at < job->outer->count && (over || job->plans[job->at].part_bytes == 0)) {
        job->at++;
    }
    if (job->at == job->outer->count) {
        remove_keys(job);
    } else {
        ask_manifest(job, remove_named);
    }
}

static void
remove_asked(struct job *job)
{
    for (uint32_t i = 0; i < job->outer->count; i++) {
        const struct yb_client_item *item = &job->items[i];

        /* Not known yet, but to be asked for. */
        job->plans[i].part_bytes = item->status == YB_OK && item->size == YB_CORE_STRIPED_SIZE;
    }
    free_parts(job);
    remove_look(job);
}

static enum yb_status
remove_begin(struct job *job)
{
    struct yb_client_batch *outer = job->outer;

    job->items = calloc(outer->count, sizeof(*job->items));
    job->plans = calloc(outer->count, sizeof(*job->plans));
    if (job->items == NULL || job->plans == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < outer->count; i++) {
        job->items[i].key = outer->items[i].key;
        job->items[i].key_bytes = outer->items[i].key_bytes;
        outer->items[i].status = YB_IN_PROGRESS;
    }
    (void)prepare(job, YB_CLIENT_EXIST, job->items, outer->count);
    launch(job, remove_asked);
    return YB_OK;
}

/* ---- submit and cancel ----------------------------------------------------------------------- */

static bool
has_long(const struct yb_client_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (is_long(&batch->items[i])) {
            return true;
        }
    }
    return false;
}

/* Begin a batch that has steps of its own before the core sees it. */
static enum yb_status
begin(struct yb_client_core *core, struct yb_client_batch *batch,
      enum yb_status (*first)(struct job *job))
{
    struct job *job;
    enum yb_status status;

    if (core->stopping) {
        return YB_CLOSED;
    }
    if (!yb_client_core_fits(batch)) {
        return YB_INVALID;
    }
    job = make_job(core, batch);
    if (job == NULL) {
        return YB_AGAIN;
    }
    batch->status = YB_OK;
    batch->total = 0;
    batch->work = NULL;
    status = first(job);
    if (status != YB_OK) {
        free_parts(job);
        free(job->plans);
        core->jobs--;
        batch->job = NULL;
        free(job);
        return YB_AGAIN;
    }
    return YB_OK;
}

enum yb_status
yb_stripe_submit(struct yb_client_core *core, struct yb_client_batch *batch)
{
    batch->core = core;
    batch->job = NULL;
    batch->then = batch->done;
    switch (batch->kind) {
    case YB_CLIENT_GET:
    case YB_CLIENT_EXIST: batch->done = on_first; break;
    case YB_CLIENT_REMOVE: return begin(core, batch, remove_begin);
    case YB_CLIENT_PUT:
        if (has_long(batch)) {
            return begin(core, batch, put_begin);
        }
        break;
    default: break;
    }
    return yb_client_core_submit(core, batch);
}

void
yb_stripe_cancel(struct yb_client_core *core, struct yb_client_batch *batch)
{
    struct job *job = batch->job;

    if (job != NULL) {
        job->cancelled = true;
        if (job->running) {
            yb_client_core_cancel(core, &job->inner);
        } else if (job->resting) {
            yb_loop_arm(yb_net_loop(core->net), &job->rest, yb_core_now(core));
        }
    }
    yb_client_core_cancel(core, batch); /* Unless it is not there. */
}
