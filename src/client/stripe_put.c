/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts of long values: parts first, then the manifest, once all of them are there.
 */
#include <string.h>

#include "client/stripe_internal.h"

#define TRIES_MAX 5u                 /* Of a value that makes and loses its room beside others. */
#define NOBODY_NS (3 * YB_NS_PER_MS) /* Until it is looked again whether a node is there. */

static void put_next(struct yb_stripe_job *job);

/* The current item has its outcome. */
static void
put_end(struct yb_stripe_job *job)
{
    yb_stripe_current(job)->status = job->status;
    yb_stripe_free_parts(job);
    job->at++;
    put_next(job);
}

/* Whether the value is larger than all that there is. */
static bool
can_never_fit(const struct yb_stripe_job *job)
{
    const struct yb_client_core *core = job->core;

    return core->member_count > 0 &&
           yb_choose_exceeds(core->choices, core->member_count,
                             yb_stripe_value_bytes(yb_stripe_current(job)));
}

/* Go on with `next` after a while, or when there is no time left. */
static void
put_rest(struct yb_stripe_job *job, void (*next)(struct yb_stripe_job *job), uint64_t rest_ns)
{
    uint64_t until_ns = yb_deadline_after(yb_core_now(job->core), rest_ns);

    job->next = next;
    job->resting = true;
    yb_loop_arm(yb_net_loop(job->core->net), &job->rest,
                until_ns < job->outer->deadline_ns ? until_ns : job->outer->deadline_ns);
}

static void put_parts(struct yb_stripe_job *job);

/* The next attempt, unless there is no time for it: then the status says what it waited for. While
 * nobody is there who could take a part, none is made: a value may have millions of them. */
static void
put_try(struct yb_stripe_job *job)
{
    enum yb_status over = yb_stripe_is_over(job);

    if (over == YB_OK && job->core->member_count == 0) {
        job->status = YB_UNREACHABLE; /* As of a short one: nodes may come back. */
        put_rest(job, put_try, NOBODY_NS);
    } else if (over == YB_OK && !can_never_fit(job)) {
        put_parts(job);
    } else {
        job->status = over == YB_OK ? YB_TOO_LARGE : over == YB_TIMED_OUT ? job->status : over;
        put_end(job);
    }
}

/* Its parts are gone. Others that came at the same time have taken its room, as it may have taken
 * theirs: one of them finds all of it a little later. Nothing is in its hand meanwhile (C4). */
static void
put_undone(struct yb_stripe_job *job)
{
    uint64_t took_ns = yb_core_now(job->core) - job->began_ns;

    yb_stripe_sweep(job);
    if (job->status == YB_NO_SPACE && can_never_fit(job)) {
        job->status = YB_TOO_LARGE;
    }
    if (job->status != YB_NO_SPACE || !job->lost || job->tries + 1 == TRIES_MAX) {
        put_end(job);
        return;
    }
    job->tries++;
    put_rest(job, put_try, yb_core_random(job->core) % ((took_ns << job->tries) + 1));
}

static void
put_published(struct yb_stripe_job *job)
{
    struct yb_client_item *item = yb_stripe_current(job);

    job->status = job->one.status;
    item->grant = job->one.grant;
    item->replicas = job->one.replicas;
    item->replicas = job->replicas < item->replicas ? job->replicas : item->replicas;
    if (job->status == YB_STALE) { /* A flush came between: it has taken the parts. */
        job->status = YB_NO_SPACE;
        job->lost = true;
    }
    if (job->status == YB_OK || job->status == YB_IN_DOUBT) {
        put_end(job);
    } else {
        yb_stripe_undo(job, put_undone);
    }
}

/* It is known which parts are still there. A value is published only when all of them are. */
static void
put_checked(struct yb_stripe_job *job)
{
    uint64_t flush = job->inner.flush_seen;
    uint32_t absent = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        absent += job->items[i].status == YB_NOT_FOUND;
    }
    job->lost = absent > job->count - job->placed;
    if (job->status == YB_OK) {
        job->status = absent > 0 ? YB_NO_SPACE : yb_stripe_is_over(job);
    }
    if (job->status != YB_OK) {
        yb_stripe_undo(job, put_undone);
        return;
    }
    yb_stripe_write_manifest(job);
    yb_stripe_take_one(job);
    job->one.group = job->items[0].group;
    job->one.parent = yb_stripe_current(job)->parent;
    yb_stripe_prepare(job, YB_CLIENT_PUT, &job->one, 1)->put = job->outer->put;
    job->inner.block_flags = YB_WIRE_BLOCK_FLAG_STRIPED;
    job->inner.flush = flush + 1; /* A flush takes all of a value, or nothing. */
    yb_stripe_launch(job, put_published);
}

static void
put_parted(struct yb_stripe_job *job)
{
    job->status = yb_stripe_is_over(job);
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
        yb_stripe_undo(job, put_undone);
        return;
    }
    (void)yb_stripe_prepare(job, YB_CLIENT_EXIST, job->items, job->count);
    yb_stripe_launch(job, put_checked);
}

static void
put_parts(struct yb_stripe_job *job)
{
    struct yb_client_item *item = yb_stripe_current(job);

    job->began_ns = yb_core_now(job->core);
    job->plan = (struct yb_stripe_plan){.total = yb_stripe_value_bytes(item)};
    job->plan.part_bytes = job->core->options.part_bytes;
    if (job->plan.part_bytes == 0) {
        job->plan.part_bytes = yb_stripe_part_bytes(job->plan.total);
    }
    for (uint32_t i = 0; i < sizeof(job->plan.write); i += sizeof(uint64_t)) {
        yb_wire_put_u64(job->plan.write + i, yb_core_random(job->core));
    }
    job->status = yb_stripe_part_count(&job->plan) > YB_STRIPE_PARTS_MAX ? YB_TOO_LARGE
                  : !yb_stripe_make_parts(job, 0, job->plan.total, item) ? YB_NO_MEMORY
                                                                         : YB_OK;
    if (job->status != YB_OK) {
        put_end(job);
        return;
    }
    yb_stripe_prepare(job, YB_CLIENT_PUT, job->items, job->count)->put = job->outer->put;
    job->inner.put.replace = false;
    job->inner.block_flags = YB_WIRE_BLOCK_FLAG_PART;
    yb_stripe_launch(job, put_parted);
}

/* Is it there already? Then its bytes need not move. Whoever replaces it has learned who is there,
 * and how much fits. */
static void
put_asked(struct yb_stripe_job *job)
{
    if (job->one.status == YB_OK && !job->outer->put.replace) {
        yb_stripe_current(job)->grant = job->one.grant;
        job->status = YB_EXISTS;
        put_end(job);
    } else {
        job->tries = 0;
        job->status = YB_TIMED_OUT;
        put_try(job);
    }
}

static void
put_next(struct yb_stripe_job *job)
{
    enum yb_status over = yb_stripe_is_over(job);

    while (job->at < job->outer->count &&
           (over != YB_OK || !yb_stripe_is_long(job->core, yb_stripe_current(job)))) {
        if (yb_stripe_is_long(job->core, yb_stripe_current(job))) {
            yb_stripe_current(job)->status = over;
        }
        job->at++;
    }
    if (job->at == job->outer->count) {
        yb_stripe_finish(job);
    } else {
        yb_stripe_take_one(job);
        job->one.iov_count = 0;
        (void)yb_stripe_prepare(job, YB_CLIENT_EXIST, &job->one, 1);
        yb_stripe_launch(job, put_asked);
    }
}

/* Those that are not long have ended. */
static void
put_small_ended(struct yb_stripe_job *job)
{
    uint32_t from = 0;

    for (uint32_t i = 0; i < job->outer->count; i++) {
        if (!yb_stripe_is_long(job->core, &job->outer->items[i])) {
            job->outer->items[i] = job->items[from++];
        }
    }
    yb_stripe_free_parts(job);
    put_next(job);
}

enum yb_status
yb_stripe_put_begin(struct yb_stripe_job *job)
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
        item->size = yb_stripe_value_bytes(item);
        if (!yb_stripe_is_long(job->core, item)) {
            job->items[count++] = *item;
        }
    }
    yb_stripe_prepare(job, YB_CLIENT_PUT, job->items, count)->put = outer->put;
    job->next = put_small_ended;
    if (count > 0) {
        yb_stripe_launch(job, put_small_ended);
    } else {
        yb_loop_defer(yb_net_loop(job->core->net), &job->task);
    }
    return YB_OK;
}
