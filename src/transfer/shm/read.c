/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads: copy first, then see whether it was worth anything.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "transfer/shm/copy.h"
#include "transfer/shm/path_internal.h"

#define TRIES_MAX 3u

/* Without attach every fragment must be mapped first. Returns true if all are; otherwise the
 * flight waits or has ended. */
static bool
all_mapped(struct yb_shm_flight *flight)
{
    struct yb_shm_hold hold;
    bool waits = false;
    bool refused = false;

    yb_shm_hold_init(&hold, flight->path->session, false);
    for (uint32_t i = 0; i < flight->slice->count && !refused; i++) {
        const struct yb_shm_place *place = &flight->places[i];

        if (flight->slice->fragments[i].status != YB_OK) {
            continue;
        }
        if (!place->backed) {
            refused = true;
            break;
        }
        switch (yb_shm_hold_take(&hold, place->region, true)) {
        case YB_SHM_LOAN_READY: break;
        case YB_SHM_LOAN_REFUSED: refused = true; break;
        default: waits = true; break;
        }
    }
    yb_shm_hold_release(&hold);
    if (refused) {
        yb_shm_flight_fail(flight, YB_UNSUPPORTED, false);
    } else if (waits) {
        flight->state = YB_SHM_FLIGHT_WAITING;
    }
    return !refused && !waits;
}

/* Copy everything. Anything but OK is the session's failure. */
static enum yb_status
copy_all(struct yb_shm_flight *flight)
{
    struct yb_slice *slice = flight->slice;
    struct yb_shm_session *session = flight->path->session;
    struct yb_shm_hold hold;
    struct yb_shm_gather gather;
    enum yb_status statuses[YB_SLICE_FRAGMENTS] = {YB_OK};
    enum yb_status status = YB_OK;

    gather.count = 0;
    yb_shm_hold_init(&hold, session, slice->bytes >= YB_COPY_STREAM_BYTES);
    hold.ready = &flight->path->ready;
    hold.slice = slice;
    for (uint32_t i = 0; i < slice->count && status == YB_OK; i++) {
        const struct yb_shm_place *place = &flight->places[i];

        if (slice->fragments[i].status != YB_OK) {
            continue;
        }
        if (place->backed && yb_shm_hold_take(&hold, place->region, true) == YB_SHM_LOAN_READY) {
            statuses[i] = yb_shm_hold_copy(&hold, place->address, slice->fragments[i].length,
                                           slice->iov[i].iov_base);
            status = statuses[i] == YB_FAULT ? YB_OK : statuses[i];
        } else {
            yb_shm_gather_add(&gather, i, place->address, slice->fragments[i].length,
                              slice->iov[i].iov_base);
        }
    }
    yb_shm_hold_release(&hold);
    if (status == YB_OK && gather.count > 0) {
        status = yb_shm_gather_copy(&gather, session, statuses);
    }
    for (uint32_t i = 0; i < slice->count; i++) {
        if (statuses[i] != YB_OK) {
            slice->fragments[i].status = statuses[i];
        }
    }
    return status;
}

/* List one fragment of each region that bytes came from, in `asked`. */
static void
list_regions(struct yb_shm_flight *flight)
{
    flight->asked_count = 0;
    for (uint32_t i = 0; i < flight->slice->count; i++) {
        bool listed = !flight->places[i].known;

        for (uint32_t k = flight->asked_count; k > 0 && !listed; k--) {
            listed = flight->places[flight->asked[k - 1]].region == flight->places[i].region;
        }
        if (!listed) {
            flight->asked[flight->asked_count++] = (uint8_t)i;
        }
    }
}

/* The region of a listed fragment is no more: its bytes are thrown away (RULES A4). Returns whether
 * fragments are to be tried again: an address may belong to another region by now. */
static bool
discard_region(struct yb_shm_flight *flight, uint64_t region)
{
    bool again = false;

    yb_shm_catalogue_forget(&flight->path->catalogue, region);
    yb_shm_session_forget(flight->path->session, region);
    for (uint32_t i = 0; i < flight->slice->count; i++) {
        struct yb_fragment *fragment = &flight->slice->fragments[i];

        if (!flight->places[i].known || flight->places[i].region != region) {
            continue;
        }
        flight->places[i].known = false;
        fragment->status = YB_STALE;
        if (fragment->region == YB_TRANSFER_BY_ADDRESS && flight->tries < TRIES_MAX) {
            fragment->status = YB_OK;
            again = true;
        }
    }
    return again;
}

/* Whoever is left is good, or goes round once more. */
static void
conclude(struct yb_shm_flight *flight, bool again)
{
    struct yb_shm_path *path = flight->path;

    if (!again) {
        yb_shm_flight_end(flight, (struct yb_slice_end){.status = YB_OK});
        return;
    }
    flight->tries++;
    flight->state = YB_SHM_FLIGHT_READY;
    yb_loop_defer(path->base.remote->worker->loop, &path->task);
}

/* ---- verify by attach ------------------------------------------------------------------------ */

/* The words that one look is about. */
struct look {
    uint32_t count;
    uint64_t regions[YB_SHM_WORDS_MAX];
    uint64_t addresses[YB_SHM_WORDS_MAX];
    uint64_t words[YB_SHM_WORDS_MAX]; /* What stands there. */
};

static void
lose_session(struct yb_shm_flight *flight, enum yb_status status)
{
    const char *why = "the peer's process is not the one that proved itself";

    if (status == YB_DENIED) {
        why = "the kernel has begun to forbid reading the peer's memory";
    } else if (status == YB_INVALID) {
        why = "what the peer lent is not what it said";
    } else if (status != YB_STALE) {
        why = "the peer's memory cannot be read";
    }
    yb_shm_path_lost(flight->path, why);
    yb_shm_flight_fail(flight, YB_PEER_LOST, false);
}

static uint32_t
find_word(const struct look *look, uint64_t region)
{
    uint32_t i = 0;

    while (i < look->count && look->regions[i] != region) {
        i++;
    }
    return i;
}

/* Add the regions that a flight's bytes came from. Returns false if there may be no room. */
static bool
add_words(struct look *look, struct yb_shm_flight *flight)
{
    if (flight->asked_count > YB_SHM_WORDS_MAX - look->count) {
        return false;
    }
    for (uint32_t i = 0; i < flight->asked_count; i++) {
        const struct yb_shm_place *place = &flight->places[flight->asked[i]];

        if (find_word(look, place->region) == look->count) {
            look->regions[look->count] = place->region;
            look->addresses[look->count] = place->live;
            look->words[look->count++] = 0;
        }
    }
    return true;
}

/* Judge a flight by what was seen; `status` is how looking went. */
static void
settle_one(struct yb_shm_flight *flight, const struct look *look, enum yb_status status)
{
    bool again = false;

    if (status != YB_OK || !yb_shm_session_up(flight->path->session)) {
        lose_session(flight, status == YB_OK ? YB_STALE : status); /* F1 */
        return;
    }
    for (uint32_t i = 0; i < flight->asked_count; i++) {
        uint64_t region = flight->places[flight->asked[i]].region;

        if (look->words[find_word(look, region)] != region) {
            again = discard_region(flight, region) || again;
        }
    }
    conclude(flight, again);
}

void
yb_shm_read_settle(struct yb_shm_path *path)
{
    struct yb_shm_flight *group[YB_SHM_FLIGHTS];
    uint32_t count;

    for (;;) {
        struct look look = {.count = 0};
        enum yb_status status;

        count = 0;
        for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
            struct yb_shm_flight *flight = &path->flights[i];

            if (flight->state == YB_SHM_FLIGHT_COPIED && add_words(&look, flight)) {
                group[count++] = flight;
            }
        }
        if (count == 0) {
            break;
        }
        atomic_thread_fence(memory_order_seq_cst); /* The words are read after the data. */
        status = yb_shm_session_words(path->session, look.addresses, look.count, look.words);
        for (uint32_t i = 0; i < count; i++) {
            settle_one(group[i], &look, status);
        }
    }
}

/* ---- verify by asking ------------------------------------------------------------------------ */

static void
on_verified(struct yb_call *call)
{
    struct yb_shm_flight *flight = call->owner;
    struct yb_shm_path *path = flight->path;
    struct yb_wire_shm_regions regions;
    bool again = false;

    flight->state = YB_SHM_FLIGHT_READY;
    if (flight->cancelled || !call->answered) {
        yb_shm_flight_end(flight, (struct yb_slice_end){
                                      .status = call->status == YB_OK ? YB_CANCELLED : call->status,
                                      .path_failed = call->status == YB_PEER_LOST,
                                  });
        return;
    }
    if (path->session == NULL || !yb_shm_session_up(path->session) || call->status != YB_OK ||
        yb_wire_shm_regions_decode(flight->reply, call->reply_body_bytes, &regions, NULL) !=
            YB_OK ||
        regions.regions.count != flight->asked_count) {
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        return;
    }
    for (uint32_t i = 0; i < flight->asked_count; i++) {
        uint64_t wanted = flight->places[flight->asked[i]].region;
        struct yb_wire_shm_region region;

        yb_wire_shm_region_at(&regions.regions, i, &region);
        if (region.status != YB_OK || region.region != wanted) {
            again = discard_region(flight, wanted) || again;
        }
    }
    conclude(flight, again);
}

static void
verify_by_asking(struct yb_shm_flight *flight)
{
    struct yb_wire_fragment native[YB_SLICE_FRAGMENTS];
    struct yb_wire_fragments body = {
        .fragments = {.count = flight->asked_count, .native = native},
    };
    size_t length = 0;
    enum yb_status status;

    for (uint32_t i = 0; i < flight->asked_count; i++) {
        native[i] = (struct yb_wire_fragment){
            .region = flight->places[flight->asked[i]].region,
            .length = 1,
        };
    }
    YB_ASSERT(yb_wire_fragments_encode(&body, flight->body, sizeof(flight->body), &length) ==
              YB_OK);
    yb_shm_path_call(flight, YB_WIRE_TRANSFER_TYPE_SHM_REGIONS, (uint32_t)length, on_verified);
    status = yb_peer_call(flight->path->base.remote->control, &flight->call);
    if (status == YB_OK) {
        flight->state = YB_SHM_FLIGHT_VERIFYING;
    } else {
        yb_shm_flight_fail(flight, status, false);
    }
}

void
yb_shm_read_step(struct yb_shm_flight *flight)
{
    enum yb_status status;

    if (!flight->path->info.attach && !all_mapped(flight)) {
        return;
    }
    status = copy_all(flight);
    if (status != YB_OK) {
        lose_session(flight, status);
        return;
    }
    list_regions(flight);
    if (flight->asked_count == 0) {
        conclude(flight, false); /* All were refused. */
    } else if (flight->path->info.attach) {
        flight->state = YB_SHM_FLIGHT_COPIED; /* yb_shm_read_settle() comes in this turn. */
    } else {
        verify_by_asking(flight);
    }
}
