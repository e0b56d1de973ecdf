/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes: the target is asked to copy (RULES A4), and does so while the ticket stands.
 */
#include <string.h>

#include "base/check.h"
#include "transfer/shm/path_internal.h"

/* A pull that is put together. */
struct draft {
    struct yb_region_info last; /* The region of ours that was found last; id 0: none. */
    uint32_t count;
    uint64_t bytes;
    struct yb_wire_pull pulls[YB_WIRE_PULLS_MAX];
};

/* Which of our regions the target may copy out of by its mapping; 0: none, it attaches. Anything
 * but READY: it can do neither, or not yet. */
static enum yb_shm_loan
find_source(struct yb_shm_path *path, const struct iovec *vector, struct yb_region_info *last,
            uint64_t *region_out)
{
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
    return path->info.attach_theirs ? YB_SHM_LOAN_READY : loan;
}

/* Add the pieces of a flight, and remember which fragments they are. Anything but READY: nothing
 * was added, since the target cannot get at one of them, or not yet. */
static enum yb_shm_loan
add_flight(struct draft *draft, struct yb_shm_flight *flight)
{
    struct yb_slice *slice = flight->slice;
    uint32_t count = draft->count;

    YB_ASSERT(slice->count <= YB_WIRE_PULLS_MAX - count);
    flight->asked_first = count;
    flight->asked_count = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];
        enum yb_shm_loan loan;
        uint64_t source_region;

        if (fragment->status != YB_OK) {
            continue;
        }
        loan = find_source(flight->path, &slice->iov[i], &draft->last, &source_region);
        if (loan != YB_SHM_LOAN_READY) {
            return loan;
        }
        draft->pulls[count++] = (struct yb_wire_pull){
            .region = fragment->region,
            .offset = fragment->remote_offset,
            .length = fragment->length,
            .source = (uintptr_t)slice->iov[i].iov_base,
            .source_region = source_region,
        };
        flight->asked[flight->asked_count++] = (uint8_t)i;
    }
    draft->count = count;
    draft->bytes += slice->bytes;
    return YB_SHM_LOAN_READY;
}

/* Let what else of the batch is ready go along (F4), as far as there is room. */
static void
add_followers(struct draft *draft, struct yb_shm_flight *leader)
{
    struct yb_shm_flight *last = leader;
    struct yb_shm_flight *flight;

    leader->state = YB_SHM_FLIGHT_PULLING;
    while ((flight = yb_shm_flight_first(leader->path, YB_SHM_FLIGHT_READY,
                                         leader->slice->batch)) != NULL &&
           flight->slice->op == YB_TRANSFER_WRITE && !flight->cancelled &&
           draft->bytes + flight->slice->bytes <= YB_SHM_PULL_BYTES_MAX &&
           flight->slice->count <= YB_WIRE_PULLS_MAX - draft->count &&
           yb_shm_flight_resolve(flight) && add_flight(draft, flight) == YB_SHM_LOAN_READY) {
        flight->state = YB_SHM_FLIGHT_PULLING;
        flight->leader = leader;
        last->next = flight;
        last = flight;
    }
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* Enter the target's outcome of piece `index`. Returns false if there is no such piece. */
static bool
enter_outcome(struct yb_shm_flight *leader, uint32_t index, enum yb_status status)
{
    struct yb_shm_flight *flight = leader;

    while (flight != NULL && index >= flight->asked_first + flight->asked_count) {
        flight = flight->next;
    }
    if (flight == NULL) {
        return false;
    }
    flight->slice->fragments[flight->asked[index - flight->asked_first]].status = status;
    return true;
}

/* Enter the target's outcomes into the fragments. Returns false if they make no sense. */
static bool
read_outcomes(struct yb_shm_flight *leader)
{
    struct yb_wire_outcomes outcomes;

    if (leader->call.reply_body_bytes == 0) {
        return true;
    }
    if (yb_wire_outcomes_decode(leader->reply, leader->call.reply_body_bytes, &outcomes, NULL) !=
        YB_OK) {
        return false;
    }
    for (uint32_t i = 0; i < outcomes.outcomes.count; i++) {
        struct yb_wire_outcome outcome;

        yb_wire_outcome_at(&outcomes.outcomes, i, &outcome);
        if (outcome.status == YB_OK ||
            !enter_outcome(leader, outcome.index, (enum yb_status)outcome.status)) {
            return false;
        }
    }
    return true;
}

/* Judge the answer, or that there is none; it is the same for all of the group. */
static struct yb_slice_end
judge(struct yb_shm_flight *leader)
{
    struct yb_shm_path *path = leader->path;
    struct yb_call *call = &leader->call;
    struct yb_slice_end end = {.status = call->status};

    if (!call->answered) {
        if (leader->target_ended && !leader->cancelled) {
            end = (struct yb_slice_end){.status = YB_PEER_LOST, .path_failed = true};
        } else if (call->sent && !leader->target_ended) { /* F2 */
            end.in_doubt = true;
            path->doubts[call->class]++;
        }
        return end;
    }
    switch (call->status) {
    case YB_OK: end.status = read_outcomes(leader) ? YB_OK : YB_PROTOCOL; break;
    case YB_CLOSED:
        yb_shm_path_lost(path, "the peer has ended the session");
        end = (struct yb_slice_end){.status = YB_PEER_LOST, .path_failed = true};
        break;
    case YB_STALE:
        yb_shm_path_lost(path, "the peer could not read this process's memory any more");
        end = (struct yb_slice_end){.status = YB_PEER_LOST, .path_failed = true};
        break;
    case YB_UNSUPPORTED: end.path_failed = true; break;
    default: break;
    }
    return end;
}

static void
end_group(struct yb_shm_flight *leader, struct yb_slice_end end)
{
    struct yb_shm_path *path = leader->path;
    struct yb_shm_flight *next;

    path->holds++;
    for (struct yb_shm_flight *flight = leader; flight != NULL; flight = next) {
        next = flight->next;
        if (end.path_failed) {
            yb_shm_flight_fail(flight, end.status, end.in_doubt);
        } else {
            yb_shm_flight_end(flight, end);
        }
    }
    path->holds--;
    yb_shm_path_check_gone(path);
}

static void
on_pulled(struct yb_call *call)
{
    struct yb_shm_flight *leader = call->owner;

    yb_shm_host_revoke(leader->path->host, leader->slot); /* F3 */
    end_group(leader, judge(leader));
}

uint64_t
yb_shm_pull_step(struct yb_shm_flight *flight)
{
    struct yb_shm_path *path = flight->path;
    struct draft draft;
    struct yb_wire_pulls body = {.slot = flight->slot, .pulls = {.native = draft.pulls}};
    struct yb_shm_intro theirs;
    enum yb_shm_loan loan;
    enum yb_status status;
    size_t length = 0;

    draft.last.id = 0;
    draft.count = 0;
    draft.bytes = 0;
    loan = add_flight(&draft, flight);
    if (loan == YB_SHM_LOAN_ASKED) {
        flight->state = YB_SHM_FLIGHT_WAITING;
        return 0;
    }
    if (loan != YB_SHM_LOAN_READY) {
        yb_shm_flight_fail(flight, YB_UNSUPPORTED, false);
        return 0;
    }
    if (draft.count == 0) {
        yb_shm_flight_end(flight, (struct yb_slice_end){.status = YB_OK}); /* All refused. */
        return 0;
    }
    add_followers(&draft, flight);
    yb_shm_session_theirs(path->session, &theirs);
    body.token = theirs.token;
    body.pulls.count = draft.count;
    body.ticket = yb_shm_host_issue(path->host, flight->slot);
    YB_ASSERT(yb_wire_pulls_encode(&body, flight->body, sizeof(flight->body), &length) == YB_OK);
    yb_shm_path_call(flight, YB_WIRE_TRANSFER_TYPE_SHM_PULL, (uint32_t)length, on_pulled);
    status = yb_peer_call(path->base.remote->control, &flight->call);
    if (status != YB_OK) {
        yb_shm_host_revoke(path->host, flight->slot);
        end_group(flight, (struct yb_slice_end){.status = status});
    }
    return draft.bytes;
}
