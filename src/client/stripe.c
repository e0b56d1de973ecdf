/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stripe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "client/stripe_internal.h"

#define MANIFEST_MAGIC   0x464d4259u
#define MANIFEST_VERSION 1u

static void get_next(struct yb_stripe_job *job);
static void remove_next(struct yb_stripe_job *job);

uint64_t
yb_stripe_part_bytes(uint64_t total)
{
    uint64_t part = (total / YB_STRIPE_PARTS + YB_STRIPE_PART_MIN - 1) / YB_STRIPE_PART_MIN *
                    YB_STRIPE_PART_MIN;

    part = part < YB_STRIPE_PART_MIN ? YB_STRIPE_PART_MIN : part;
    return part < YB_STRIPE_PART_MAX ? part : YB_STRIPE_PART_MAX;
}

uint64_t
yb_stripe_value_bytes(const struct yb_client_item *item)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < item->iov_count; i++) {
        bytes += item->iov[i].iov_len;
    }
    return bytes;
}

bool
yb_stripe_is_long(const struct yb_client_core *core, const struct yb_client_item *item)
{
    uint64_t most = core->options.part_bytes;

    return yb_stripe_value_bytes(item) > (most != 0 ? most : YB_STRIPE_PART_MAX);
}

/* ---- manifests ------------------------------------------------------------------------------- */

void
yb_stripe_write_manifest(struct yb_stripe_job *job)
{
    uint8_t *out = job->manifest;

    memset(out, 0, YB_STRIPE_MANIFEST_BYTES);
    yb_wire_put_u32(out, MANIFEST_MAGIC);
    yb_wire_put_u32(out + 4, MANIFEST_VERSION);
    yb_wire_put_u64(out + 8, job->plan.total);
    yb_wire_put_u64(out + 16, job->plan.part_bytes);
    memcpy(out + 24, job->plan.write, sizeof(job->plan.write));
    yb_wire_put_u32(out + 40, yb_crc32c(out, 40));
}

uint64_t
yb_stripe_part_count(const struct yb_stripe_plan *plan)
{
    return (plan->total + plan->part_bytes - 1) / plan->part_bytes;
}

bool
yb_stripe_read_manifest(const uint8_t *bytes, uint64_t part_min, struct yb_stripe_plan *plan_out)
{
    struct yb_stripe_plan plan = {
        .total = yb_wire_get_u64(bytes + 8),
        .part_bytes = yb_wire_get_u64(bytes + 16),
    };

    memcpy(plan.write, bytes + 24, sizeof(plan.write));
    if (yb_wire_get_u32(bytes) != MANIFEST_MAGIC ||
        yb_wire_get_u32(bytes + 4) != MANIFEST_VERSION ||
        yb_wire_get_u32(bytes + 40) != yb_crc32c(bytes, 40) || plan.total == 0 ||
        plan.total > YB_CLIENT_VALUE_BYTES_MAX ||
        plan.part_bytes < (part_min != 0 ? part_min : YB_STRIPE_PART_MIN) ||
        plan.part_bytes > YB_STRIPE_PART_MAX || yb_stripe_part_count(&plan) > YB_STRIPE_PARTS_MAX) {
        return false;
    }
    *plan_out = plan;
    return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

void
yb_stripe_free_parts(struct yb_stripe_job *job)
{
    free(job->items);
    free(job->iov);
    free(job->keys);
    job->items = NULL;
    job->iov = NULL;
    job->keys = NULL;
    job->count = 0;
}

bool
yb_stripe_make_parts(struct yb_stripe_job *job, uint64_t from, uint64_t until,
                     const struct yb_client_item *caller)
{
    const struct yb_stripe_plan *plan = &job->plan;
    uint32_t first = (uint32_t)(from / plan->part_bytes);
    uint32_t count = (uint32_t)((until - 1) / plan->part_bytes) - first + 1;
    uint32_t pieces = caller != NULL ? caller->iov_count : 0;
    uint32_t piece = 0, used = 0;
    uint64_t skip = 0;

    yb_stripe_free_parts(job);
    job->items = calloc(count, sizeof(*job->items));
    job->keys = calloc(count, sizeof(*job->keys));
    job->iov = calloc((size_t)count + pieces, sizeof(*job->iov));
    if (job->items == NULL || job->keys == NULL || job->iov == NULL) {
        yb_stripe_free_parts(job);
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
            .key_bytes = YB_STRIPE_KEY_BYTES,
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
    struct yb_stripe_job *job = batch->owner;

    job->running = false;
    job->next(job);
}

static void
on_task(struct yb_task *task)
{
    struct yb_stripe_job *job =
        (struct yb_stripe_job *)((uint8_t *)task - offsetof(struct yb_stripe_job, task));

    job->next(job);
}

static void
on_rest(struct yb_timer *timer)
{
    struct yb_stripe_job *job =
        (struct yb_stripe_job *)((uint8_t *)timer - offsetof(struct yb_stripe_job, rest));

    job->resting = false;
    job->next(job);
}

struct yb_client_batch *
yb_stripe_prepare(struct yb_stripe_job *job, enum yb_client_batch_kind kind,
                  struct yb_client_item *items, uint32_t count)
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

void
yb_stripe_launch(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job))
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

static void
end_job(struct yb_stripe_job *job)
{
    struct yb_stripe_job **link = job->newer != NULL ? &job->newer->older : &job->core->jobs;

    *link = job->older;
    if (job->older != NULL) {
        job->older->newer = job->newer;
    }
    yb_stripe_free_parts(job);
    free(job->plans);
    job->outer->job = NULL;
    free(job);
}

void
yb_stripe_finish(struct yb_stripe_job *job)
{
    struct yb_client_batch *outer = job->outer;

    end_job(job);
    outer->then(outer);
}

static struct yb_stripe_job *
make_job(struct yb_client_core *core, struct yb_client_batch *outer)
{
    struct yb_stripe_job *job = calloc(1, sizeof(*job));

    if (job != NULL) {
        job->core = core;
        job->outer = outer;
        job->task.run = on_task;
        yb_timer_init(&job->rest, on_rest);
        outer->job = job;
        job->older = core->jobs;
        if (job->older != NULL) {
            job->older->newer = job;
        }
        core->jobs = job;
    }
    return job;
}

enum yb_status
yb_stripe_is_over(const struct yb_stripe_job *job)
{
    if (job->cancelled) {
        return YB_CANCELLED;
    }
    if (job->core->stopping) {
        return YB_CLOSED;
    }
    return yb_core_now(job->core) >= job->outer->deadline_ns ? YB_TIMED_OUT : YB_OK;
}

struct yb_client_item *
yb_stripe_current(const struct yb_stripe_job *job)
{
    return &job->outer->items[job->at];
}

void
yb_stripe_take_one(struct yb_stripe_job *job)
{
    job->one_iov = (struct iovec){.iov_base = job->manifest, .iov_len = YB_STRIPE_MANIFEST_BYTES};
    job->one = (struct yb_client_item){
        .key = yb_stripe_current(job)->key,
        .key_bytes = yb_stripe_current(job)->key_bytes,
        .iov = &job->one_iov,
        .iov_count = 1,
    };
}

static void
ask_manifest(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job))
{
    yb_stripe_take_one(job);
    (void)yb_stripe_prepare(job, YB_CLIENT_GET, &job->one, 1);
    yb_stripe_launch(job, next);
}

/* What the manifest that was asked for says. */
static enum yb_status
took_manifest(struct yb_stripe_job *job)
{
    if (job->one.status != YB_OK) {
        return job->one.status;
    }
    if (job->inner.striped == 0 || job->one.size != YB_STRIPE_MANIFEST_BYTES ||
        !yb_stripe_read_manifest(job->manifest, job->core->options.part_bytes, &job->plan)) {
        return YB_CORRUPT;
    }
    job->grant = job->one.grant;
    return YB_OK;
}

/* ---- parts that nobody names any more -------------------------------------------------------- */

/* A removal of parts that nobody waits for. */
struct sweep {
    struct yb_client_batch batch;
    struct yb_client_item *items;
    uint8_t (*keys)[YB_STRIPE_KEY_BYTES];
};

static void
end_sweep(struct sweep *sweep)
{
    free(sweep->items);
    free(sweep->keys);
    free(sweep);
}

static void
on_swept(struct yb_client_batch *batch)
{
    end_sweep(batch->owner);
}

void
yb_stripe_undo(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job))
{
    for (uint32_t i = 0; i < job->count; i++) {
        job->items[i].iov_count = 0;
        job->items[i].status = YB_IN_PROGRESS;
    }
    if (yb_stripe_is_over(job) != YB_OK) {
        job->next = next;
        yb_loop_defer(yb_net_loop(job->core->net), &job->task);
        return;
    }
    yb_stripe_prepare(job, YB_CLIENT_REMOVE, job->items, job->count)->force = true;
    yb_stripe_launch(job, next);
}

void
yb_stripe_sweep(struct yb_stripe_job *job)
{
    struct sweep *sweep;
    uint32_t left = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        enum yb_status status = job->items[i].status;

        if (status != YB_OK && status != YB_NOT_FOUND) {
            job->items[left++] = job->items[i];
        }
    }
    sweep = left > 0 ? calloc(1, sizeof(*sweep)) : NULL;
    if (sweep == NULL) {
        yb_stripe_free_parts(job);
        return;
    }
    sweep->items = job->items;
    sweep->keys = job->keys;
    sweep->batch = *yb_stripe_prepare(job, YB_CLIENT_REMOVE, job->items, left);
    sweep->batch.force = true;
    sweep->batch.deadline_ns = yb_deadline_after(yb_core_now(job->core), YB_STRIPE_SWEEP_NS);
    sweep->batch.done = on_swept;
    sweep->batch.owner = sweep;
    job->items = NULL;
    job->keys = NULL;
    yb_stripe_free_parts(job);
    if (yb_client_core_submit(job->core, &sweep->batch) != YB_OK) {
        end_sweep(sweep); /* They are evicted some day. */
    }
}

/* ---- get and exist --------------------------------------------------------------------------- */

/* Whether the core has left the item to us. */
static bool
is_left(const struct yb_stripe_job *job, const struct yb_client_item *item)
{
    return job->outer->kind == YB_CLIENT_EXIST
               ? item->status == YB_OK && item->size == YB_CORE_STRIPED_SIZE
               : item->status == YB_IN_PROGRESS;
}

/* Whether it was only asked if something is there: then it is, whatever becomes of the rest. */
static bool
only_asks(const struct yb_client_batch *batch)
{
    return batch->kind == YB_CLIENT_EXIST && batch->hold_ms == 0;
}

static void
get_end(struct yb_stripe_job *job, enum yb_status status)
{
    yb_stripe_current(job)->status = status;
    yb_stripe_free_parts(job);
    job->at++;
    get_next(job);
}

/* Another value has taken its place. */
static void
get_other(struct yb_stripe_job *job)
{
    struct yb_client_item *item = yb_stripe_current(job);

    *item = job->one;
    if (is_left(job, item)) {
        get_next(job); /* A long one, too. */
    } else {
        get_end(job, item->status);
    }
}

/* Do with what is there now what was to be done with what is gone: hold it, or read it if it is not
 * long. */
static void
ask_again(struct yb_stripe_job *job)
{
    bool holds = job->outer->kind == YB_CLIENT_EXIST;

    job->one = *yb_stripe_current(job);
    yb_stripe_prepare(job, holds ? YB_CLIENT_EXIST : YB_CLIENT_GET, &job->one, 1)->raw = holds;
    job->inner.hold_ms = holds ? job->outer->hold_ms : 0;
    yb_stripe_launch(job, get_other);
}

/* The manifest was asked to go. If it was not there any more, something else may be. */
static void
get_retired(struct yb_stripe_job *job)
{
    if (job->one.status == YB_NOT_FOUND) {
        yb_stripe_free_parts(job);
        if (job->outer->kind == YB_CLIENT_EXIST) {
            ask_again(job);
        } else {
            get_next(job);
        }
    } else {
        get_end(job, YB_NOT_FOUND);
    }
}

static void
get_parted(struct yb_stripe_job *job)
{
    struct yb_client_item *item = yb_stripe_current(job);
    enum yb_status status = YB_OK;
    bool lost = false;

    item->bytes = 0;
    for (uint32_t i = 0; i < job->count; i++) {
        enum yb_status one = job->items[i].status;

        lost = lost || one == YB_NOT_FOUND;
        item->bytes += one == YB_OK ? job->items[i].bytes : 0;
        status = status == YB_OK ? one : status;
    }
    if (lost) { /* This value cannot be read any more: its manifest goes, and no other (A16). */
        yb_stripe_take_one(job);
        job->one.iov_count = 0;
        yb_stripe_prepare(job, YB_CLIENT_REMOVE, &job->one, 1)->grant = job->grant;
        job->inner.force = true; /* Who holds it has nothing of it. */
        yb_stripe_launch(job, get_retired);
        return;
    }
    get_end(job, status);
}

/* Hold all parts, as the manifest is: what holds a value keeps all of it (D1). */
static void
hold_parts(struct yb_stripe_job *job)
{
    if (!yb_stripe_make_parts(job, 0, job->plan.total, NULL)) {
        get_end(job, YB_NO_MEMORY);
        return;
    }
    yb_stripe_prepare(job, YB_CLIENT_EXIST, job->items, job->count)->hold_ms = job->outer->hold_ms;
    yb_stripe_launch(job, get_parted);
}

/* The manifest has come: read what was asked for. */
static void
get_parts(struct yb_stripe_job *job)
{
    struct yb_client_item *item = yb_stripe_current(job);
    uint64_t room = yb_stripe_value_bytes(item);
    uint64_t from = item->ranged ? item->offset : 0;
    uint64_t until;

    item->size = job->plan.total;
    item->grant = job->grant;
    if (only_asks(job->outer)) {
        get_end(job, YB_OK);
        return;
    }
    if (job->outer->kind == YB_CLIENT_EXIST) {
        hold_parts(job);
        return;
    }
    if (from > job->plan.total || (!item->ranged && room < job->plan.total)) {
        get_end(job, item->ranged ? YB_INVALID : YB_TOO_SMALL);
        return;
    }
    until = room < job->plan.total - from ? from + room : job->plan.total;
    if (until == from) {
        get_end(job, YB_OK);
    } else if (!yb_stripe_make_parts(job, from, until, item)) {
        get_end(job, YB_NO_MEMORY);
    } else {
        (void)yb_stripe_prepare(job, YB_CLIENT_GET, job->items, job->count);
        yb_stripe_launch(job, get_parted);
    }
}

static void
get_manifest(struct yb_stripe_job *job)
{
    bool plain =
        job->inner.striped == 0 && (job->one.status == YB_OK || job->one.status == YB_TOO_SMALL);
    enum yb_status status;

    if (plain && !only_asks(job->outer)) {
        ask_again(job);
        return;
    }
    status = took_manifest(job);
    if (status == YB_OK) {
        get_parts(job);
        return;
    }
    if (only_asks(job->outer)) {
        yb_stripe_current(job)->size =
            plain ? job->one.size : 0; /* It was there; how long is not known. */
        status = YB_OK;
    }
    get_end(job, status);
}

static void
get_next(struct yb_stripe_job *job)
{
    enum yb_status over = yb_stripe_is_over(job);

    while (job->at < job->outer->count &&
           (over != YB_OK || !is_left(job, yb_stripe_current(job)))) {
        if (is_left(job, yb_stripe_current(job))) {
            yb_stripe_current(job)->size = 0;
            yb_stripe_current(job)->status = only_asks(job->outer) ? YB_OK : over;
        }
        job->at++;
    }
    if (job->at == job->outer->count) {
        yb_stripe_finish(job);
    } else {
        ask_manifest(job, get_manifest);
    }
}

/* The core has ended a batch of gets, or of questions: perhaps some values are striped. */
static void
on_first(struct yb_client_batch *batch)
{
    struct yb_client_core *core = batch->core;
    struct yb_stripe_job *job = batch->striped > 0 ? make_job(core, batch) : NULL;

    if (job != NULL) {
        get_next(job);
        return;
    }
    for (uint32_t i = 0; batch->striped > 0 && i < batch->count; i++) {
        struct yb_client_item *item = &batch->items[i];

        if (batch->kind != YB_CLIENT_EXIST) {
            item->status = item->status == YB_IN_PROGRESS ? YB_NO_MEMORY : item->status;
        } else if (item->size == YB_CORE_STRIPED_SIZE) {
            item->size = 0;
            item->status = only_asks(batch) ? item->status : YB_NO_MEMORY;
        }
    }
    batch->then(batch);
}

/* ---- remove ---------------------------------------------------------------------------------- */

static void
remove_parted(struct yb_stripe_job *job)
{
    yb_stripe_sweep(job);
    job->at++;
    remove_next(job);
}

/* The keys are gone: now the parts of those that were striped. */
static void
remove_next(struct yb_stripe_job *job)
{
    while (job->at < job->outer->count &&
           (job->plans[job->at].total == 0 || yb_stripe_current(job)->status != YB_OK)) {
        job->at++;
    }
    if (job->at == job->outer->count) {
        yb_stripe_finish(job);
        return;
    }
    job->plan = job->plans[job->at];
    if (!yb_stripe_make_parts(job, 0, job->plan.total, NULL)) {
        remove_parted(job); /* They are evicted some day. */
    } else {
        yb_stripe_undo(job, remove_parted);
    }
}

static void
on_keys_removed(struct yb_client_batch *batch)
{
    struct yb_stripe_job *job = batch->job;

    job->running = false;
    job->at = 0;
    remove_next(job);
}

static void
remove_keys(struct yb_stripe_job *job)
{
    enum yb_status status = yb_stripe_is_over(job);

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
    yb_stripe_finish(job);
}

static void remove_look(struct yb_stripe_job *job);

static void
remove_named(struct yb_stripe_job *job)
{
    if (took_manifest(job) == YB_OK) {
        job->plans[job->at] = job->plan;
    }
    job->at++;
    remove_look(job);
}

/* Read the manifest of the next one that has one. */
static void
remove_look(struct yb_stripe_job *job)
{
    bool over = yb_stripe_is_over(job) != YB_OK;

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
remove_asked(struct yb_stripe_job *job)
{
    for (uint32_t i = 0; i < job->outer->count; i++) {
        const struct yb_client_item *item = &job->items[i];

        /* Not known yet, but to be asked for. */
        job->plans[i].part_bytes = item->status == YB_OK && item->size == YB_CORE_STRIPED_SIZE;
    }
    yb_stripe_free_parts(job);
    remove_look(job);
}

static enum yb_status
remove_begin(struct yb_stripe_job *job)
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
    (void)yb_stripe_prepare(job, YB_CLIENT_EXIST, job->items, outer->count);
    yb_stripe_launch(job, remove_asked);
    return YB_OK;
}

/* ---- submit and cancel ----------------------------------------------------------------------- */

static bool
has_long(const struct yb_client_core *core, const struct yb_client_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (yb_stripe_is_long(core, &batch->items[i])) {
            return true;
        }
    }
    return false;
}

/* Begin a batch that has steps of its own before the core sees it. */
static enum yb_status
begin(struct yb_client_core *core, struct yb_client_batch *batch,
      enum yb_status (*first)(struct yb_stripe_job *job))
{
    struct yb_stripe_job *job;
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
        end_job(job);
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
    case YB_CLIENT_FETCH:
    case YB_CLIENT_EXIST: batch->done = on_first; break;
    case YB_CLIENT_REMOVE: return begin(core, batch, remove_begin);
    case YB_CLIENT_PUT:
        if (has_long(core, batch)) {
            return begin(core, batch, yb_stripe_put_begin);
        }
        break;
    default: break;
    }
    return yb_client_core_submit(core, batch);
}

/* Let a job that waits for its next attempt go on in this turn of the loop. */
static void
rest_no_more(struct yb_stripe_job *job)
{
    if (job->resting) {
        job->resting = false;
        yb_loop_disarm(yb_net_loop(job->core->net), &job->rest);
        yb_loop_defer(yb_net_loop(job->core->net), &job->task);
    }
}

void
yb_stripe_cancel(struct yb_client_core *core, struct yb_client_batch *batch)
{
    struct yb_stripe_job *job = batch->job;

    if (job != NULL) {
        job->cancelled = true;
        if (job->running) {
            yb_client_core_cancel(core, &job->inner);
        } else {
            rest_no_more(job);
        }
    }
    yb_client_core_cancel(core, batch); /* Unless it is not there. */
}

void
yb_stripe_stop(struct yb_client_core *core)
{
    for (struct yb_stripe_job *job = core->jobs; job != NULL; job = job->older) {
        rest_no_more(job);
    }
}
