/* SPDX-License-Identifier: Apache-2.0
 *
 * Neighbours in a pack are read with one request: a service is paid, and waits, for each request.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

static const struct yb_tier_load *
load_of(const struct work *work)
{
    return (const struct yb_tier_load *)work->op;
}

static bool
is_whole(const struct work *work)
{
    const struct yb_tier_load *load = load_of(work);

    return work->stage == STAGE_GET && load->offset == 0 && load->length == work->name.size &&
           work->record_bytes <= MEMBER_RECORD;
}

static uint64_t
image_end(const struct work *work)
{
    return work->base + work->name.size + work->record_bytes;
}

/* ---- those that wait ------------------------------------------------------------------------- */

void
yb_object_merge_queue(struct work *work)
{
    if (work->kind == &yb_object_load_kind && work->pack != YB_OBJECT_NO_PACK) {
        struct pack *pack = &work->tier->packs[work->pack];

        work->sibling = NULL;
        work->elder = pack->latest;
        if (pack->latest != NULL) {
            pack->latest->sibling = work;
        } else {
            pack->queued = work;
        }
        pack->latest = work;
    }
}

void
yb_object_merge_unqueue(struct work *work)
{
    if (work->kind == &yb_object_load_kind && work->pack != YB_OBJECT_NO_PACK) {
        struct pack *pack = &work->tier->packs[work->pack];

        if (work->elder != NULL) {
            work->elder->sibling = work->sibling;
        } else {
            YB_ASSERT(pack->queued == work);
            pack->queued = work->sibling;
        }
        if (work->sibling != NULL) {
            work->sibling->elder = work->elder;
        } else {
            pack->latest = work->elder;
        }
        work->sibling = work->elder = NULL;
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

static int
by_place(const void *a, const void *b)
{
    const struct work *left = *(struct work *const *)a;
    const struct work *right = *(struct work *const *)b;

    return left->base < right->base ? -1 : left->base > right->base;
}

/* Those among the waiting ones that lie nearest to the work, and the work, in order of place. The
 * same block asked for twice is two members only if it is asked for twice: that is the node's to
 * join. */
static uint32_t
choose(struct work *work, struct work *chosen[MEMBERS_MAX])
{
    struct work *near[4 * MEMBERS_MAX];
    uint32_t count = 0, at = 0, first, last;
    uint32_t pieces = load_of(work)->iov_count + 2;

    near[count++] = work;
    for (struct work *other = work->tier->packs[work->pack].queued;
         other != NULL && count < 4 * MEMBERS_MAX; other = other->sibling) {
        if (is_whole(other)) {
            near[count++] = other;
        }
    }
    qsort(near, count, sizeof(near[0]), by_place);
    while (near[at] != work) {
        at++;
    }
    first = last = at;
    while (last + 1 < count && last - first + 1 < MEMBERS_MAX) {
        const struct work *next = near[last + 1];

        pieces += load_of(next)->iov_count + 2;
        if (next->base < image_end(near[last]) || next->base - image_end(near[last]) > MERGED_GAP ||
            image_end(next) - near[first]->base > MERGED_BYTES || pieces > MERGED_IOV) {
            break;
        }
        last++;
    }
    while (first > 0 && last - first + 1 < MEMBERS_MAX) {
        const struct work *next = near[first - 1];

        pieces += load_of(next)->iov_count + 2;
        if (image_end(next) > near[first]->base ||
            near[first]->base - image_end(next) > MERGED_GAP ||
            image_end(near[last]) - next->base > MERGED_BYTES || pieces > MERGED_IOV) {
            break;
        }
        first--;
    }
    memcpy(chosen, near + first, (last - first + 1) * sizeof(chosen[0]));
    return last - first + 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static uint8_t *
record_of(const struct flight *flight, uint32_t member)
{
    return flight->edges[0] + member * MEMBER_RECORD;
}

static enum yb_status
judge(struct yb_object_request *request)
{
    struct flight *flight = (struct flight *)request;

    for (uint32_t i = 0; i < flight->member_count; i++) {
        flight->verdicts[i] = yb_object_load_judge(flight->members[i], record_of(flight, i),
                                                   &flight->parsed, flight->tenant);
    }
    return YB_OK;
}

/* The work's request is made; let it bring its neighbours along. */
void
yb_object_merge_plan(struct work *work, struct flight *flight)
{
    struct yb_object_request *request = &flight->request;
    uint64_t at;
    uint32_t pieces = 0;

    if (!is_whole(work) || load_of(work)->iov_count + 2 > MERGED_IOV) {
        return;
    }
    flight->member_count = choose(work, flight->members);
    if (flight->member_count == 1) {
        flight->member_count = 0;
        return;
    }
    at = flight->members[0]->base;
    request->offset = at;
    request->came = NULL; /* Those of many blocks: each is summed when all are there. */
    request->after = judge;
    for (uint32_t i = 0; i < flight->member_count; i++) {
        struct work *member = flight->members[i];
        const struct yb_tier_load *load = load_of(member);

        if (member != work) {
            yb_object_work_join(member);
        }
        if (member->base > at) {
            flight->merged[pieces++] = (struct iovec){.iov_len = member->base - at};
        }
        memcpy(flight->merged + pieces, load->iov, load->iov_count * sizeof(struct iovec));
        pieces += load->iov_count;
        flight->merged[pieces++] = (struct iovec){record_of(flight, i), member->record_bytes};
        at = image_end(member);
        request->deadline_ns =
            member->deadline_ns < request->deadline_ns ? member->deadline_ns : request->deadline_ns;
    }
    request->bytes = (struct yb_object_bytes){.iov = flight->merged, .iov_count = pieces};
    work->tier->stats.merged += flight->member_count - 1;
}

void
yb_object_merge_done(struct flight *flight, enum yb_status status)
{
    for (uint32_t i = 0; i < flight->member_count; i++) {
        struct work *member = flight->members[i];
        enum yb_status verdict = status == YB_OK ? flight->verdicts[i] : status;
        const uint8_t *sums;

        if (verdict == YB_OK) {
            YB_ASSERT(yb_object_record_decode(record_of(flight, i), member->record_bytes,
                                              &flight->parsed, flight->tenant, &sums) == YB_OK);
            yb_object_load_finish(member, &flight->parsed, flight->tenant);
        } else if (status == YB_OK && verdict == YB_NOT_FOUND) {
            yb_object_work_end(member, YB_NOT_FOUND); /* The key is another one. */
        } else if (verdict == YB_NOT_FOUND || verdict == YB_CORRUPT || verdict == YB_VERSION) {
            yb_object_load_drop(member, verdict);
        } else if (!yb_object_work_again(member, flight, verdict)) {
            yb_object_work_fail(member, verdict);
        }
    }
}
