/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes: the target is asked to copy (RULES A4), and does so while the ticket stands.
 */
#include <string.h>

#include "base/check.h"
#include "transfer/shm/path_internal.h"

/* Which of our regions the target may copy out of by its mapping; 0: none, it attaches.
 * Returns false, with the flight waiting or ended, if it can do neither now. */
static bool
find_source(struct yb_shm_flight *flight, const struct iovec *vector, struct yb_region_info *last,
            uint64_t *region_out)
{
    struct yb_shm_path *path = flight->path;
    uintptr_t at = (uintptr_t)vector->iov_base;
    uintptr_t base = (uintptr_t)last->base;
    enum yb_shm_loan loan = YB_SHM_LOAN_REFUSED;

    if (last->id == 0 || at < base || at - base > last->length ||
        vector->iov_len > last->length - (at - base)) {
        last->id = 0;
        if (yb_region_find(path->base.remote->engine->regions, vector->iov_base, vector->iov_len,
                           last) != YB_OK) {
            last->id = 0;
        }
    }
    if (last->id != 0 && last->backing.fd >= 0 && (last->access & YB_REGION_READ) != 0) {
        loan = yb_shm_session_lend(path->session, last->id);
    }
    *region_out = loan == YB_SHM_LOAN_READY ? last->id : 0;
    if (*region_out != 0 || path->info.attach_theirs) {
        return true;
    }
    if (loan == YB_SHM_LOAN_ASKED) {
        flight->state = YB_SHM_FLIGHT_WAITING;
    } else {
        yb_shm_flight_fail(flight, YB_UNSUPPORTED, false);
    }
    return false;
}

/* Write the pieces, and remember which fragments they are. Returns false: not now. */
static bool
fill_pulls(struct yb_shm_flight *flight, struct yb_wire_pull *pulls)
{
    struct yb_slice *slice = flight->slice;
    struct yb_region_info last = {.id = 0};

    flight->asked_count = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];
        uint64_t source_region;

        if (fragment->status != YB_OK) {
            continue;
        }
        if (!find_source(flight, &slice->iov[i], &last, &source_region)) {
            return false;
        }
        pulls[flight->asked_count] = (struct yb_wire_pull){
            .region = fragment->region,
            .offset = fragment->remote_offset,
            .length = fragment->length,
            .source = (uintptr_t)slice->iov[i].iov_base,
            .source_region = source_region,
        };
        flight->asked[flight->asked_count++] = (uint8_t)i;
    }
    return true;
}

/* Enter the target's outcomes into the fragments. Returns false if they make no sense. */
static bool
read_outcomes(struct yb_shm_flight *flight)
{
    struct yb_wire_outcomes outcomes;

    if (flight->call.reply_body_bytes == 0) {
        return true;
    }
    if (yb_wire_outcomes_decode(flight->reply, flight->call.reply_body_bytes, &outcomes, NULL) !=
        YB_OK) {
        return false;
    }
    for (uint32_t i = 0; i < outcomes.outcomes.count; i++) {
        struct yb_wire_outcome outcome;

        yb_wire_outcome_at(&outcomes.outcomes, i, &outcome);
        if (outcome.index >= flight->asked_count || outcome.status == YB_OK) {
            return false;
        }
        flight->slice->fragments[flight->asked[outcome.index]].status =
            (enum yb_status)outcome.status;
    }
    return true;
}

static void
on_unanswered(struct yb_shm_flight *flight)
{
    struct yb_call *call = &flight->call;
    struct yb_slice_end end = {.status = call->status};

    if (flight->target_ended && !flight->cancelled) {
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        return;
    }
    if (call->sent && !flight->target_ended) { /* F2 */
        end.in_doubt = true;
        flight->path->doubts[call->class]++;
    }
    yb_shm_flight_end(flight, end);
}

static void
on_pulled(struct yb_call *call)
{
    struct yb_shm_flight *flight = call->owner;
    struct yb_shm_path *path = flight->path;

    yb_shm_host_revoke(path->host, flight->slot); /* F3 */
    if (!call->answered) {
        on_unanswered(flight);
        return;
    }
    switch (call->status) {
    case YB_OK:
        yb_shm_flight_end(flight, (struct yb_slice_end){
                                      .status = read_outcomes(flight) ? YB_OK : YB_PROTOCOL,
                                  });
        break;
    case YB_CLOSED:
        yb_shm_path_lost(path, "the peer has ended the session");
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        break;
    case YB_STALE:
        yb_shm_path_lost(path, "the peer could not read this process's memory any more");
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        break;
    case YB_UNSUPPORTED: yb_shm_flight_fail(flight, YB_UNSUPPORTED, false); break;
    default: yb_shm_flight_end(flight, (struct yb_slice_end){.status = call->status}); break;
    }
}

void
yb_shm_pull_step(struct yb_shm_flight *flight)
{
    struct yb_shm_path *path = flight->path;
    struct yb_wire_pull native[YB_SLICE_FRAGMENTS];
    struct yb_wire_pulls body = {
        .slot = flight->slot,
        .pulls = {.native = native},
    };
    struct yb_shm_intro theirs;
    size_t length = 0;
    enum yb_status status;

    if (!fill_pulls(flight, native)) {
        return;
    }
    if (flight->asked_count == 0) {
        yb_shm_flight_end(flight, (struct yb_slice_end){.status = YB_OK}); /* All refused. */
        return;
    }
    yb_shm_session_theirs(path->session, &theirs);
    body.token = theirs.token;
    body.pulls.count = flight->asked_count;
    body.ticket = yb_shm_host_issue(path->host, flight->slot);
    YB_ASSERT(yb_wire_pulls_encode(&body, flight->body, sizeof(flight->body), &length) == YB_OK);
    yb_shm_path_call(flight, YB_WIRE_TRANSFER_TYPE_SHM_PULL, (uint32_t)length, on_pulled);
    status = yb_peer_call(path->base.remote->control, &flight->call);
    if (status == YB_OK) {
        flight->state = YB_SHM_FLIGHT_PULLING;
        return;
    }
    yb_shm_host_revoke(path->host, flight->slot);
    yb_shm_flight_end(flight, (struct yb_slice_end){.status = status});
}
