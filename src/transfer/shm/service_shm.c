/* SPDX-License-Identifier: Apache-2.0
 *
 * The answering side: questions about the host and about regions, and writes that are pulled.
 *
 * A pull is carried out wholly inside its method, so that the next frame of the lane, a drain
 * perhaps, is looked at when nothing of it moves any more (RULES A2).
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/shm/copy.h"
#include "transfer/shm/shm.h"
#include "transfer/wire/transfer_wire.h"

#define ANSWER_BYTES_MAX (YB_WIRE_SHM_ANSWER_BYTES + 64 + 127)

static void
refuse(struct yb_request *request, enum yb_status status)
{
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}

/* ---- the question ---------------------------------------------------------------------------- */

static void
handle_offer(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_wire_shm_question question;
    struct yb_wire_shm_answer answer = {.tickets = 0};
    struct yb_shm_intro mine = {.name = ""};
    char why[YB_SHM_WHY_BYTES] = "";
    uint8_t body[ANSWER_BYTES_MAX];
    enum yb_status status = YB_UNSUPPORTED;
    size_t length = 0;
    struct yb_id boot;

    if (engine->shm == NULL || !yb_transfer_peer_allowed(engine, request->peer)) {
        refuse(request, engine->shm == NULL ? YB_UNSUPPORTED : YB_DENIED);
        return;
    }
    if (yb_wire_shm_question_decode(request->body, request->body_bytes, &question, NULL) != YB_OK) {
        refuse(request, YB_INVALID);
        return;
    }
    boot = yb_shm_host_boot(engine->shm);
    if (!yb_id_is_none(question.boot) && !yb_id_is_none(boot) &&
        !yb_id_equal(question.boot, boot)) {
        (void)snprintf(why, sizeof(why), "the peer is another host (boot ids differ)");
    } else {
        const struct yb_shm_intro theirs = {
            .token = question.token,
            .nonce = question.nonce,
            .page = question.page,
            .tickets = question.tickets,
        };

        status = yb_shm_session_expect(engine->shm, request->peer->identity, &theirs, &mine, why);
    }
    if (status == YB_OK) {
        answer.token = mine.token;
        answer.nonce = mine.nonce;
        answer.page = mine.page;
        answer.tickets = mine.tickets;
    } else if (why[0] == '\0') {
        (void)snprintf(why, sizeof(why), "no session: %s", yb_status_text(status));
    }
    answer.name = yb_wire_text_of(mine.name);
    answer.why = yb_wire_text_of(status == YB_OK ? "" : why);
    YB_ASSERT(yb_wire_shm_answer_encode(&answer, body, sizeof(body), &length) == YB_OK);
    yb_request_reply(request, YB_OK, body, (uint32_t)length, NULL, 0);
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Describe the region around a range, and judge the range as a transfer would. */
static void
describe(struct yb_region_table *regions, const struct yb_wire_fragment *fragment,
         struct yb_wire_shm_region *region_out)
{
    struct yb_region_range range = {
        .region = fragment->region,
        .offset = fragment->offset,
        .length = fragment->length,
    };
    struct yb_region_info info;
    enum yb_status status;

    memset(region_out, 0, sizeof(*region_out));
    if (fragment->length == 0) {
        region_out->status = YB_INVALID;
        return;
    }
    if (yb_region_pin(regions, &range, 1, 0) != 0) {
        region_out->status = (int32_t)range.status;
        return;
    }
    status = yb_region_find(regions, range.bytes, fragment->length, &info);
    if (status == YB_OK) {
        *region_out = (struct yb_wire_shm_region){
            .region = info.id,
            .base = (uintptr_t)info.base,
            .length = info.length,
            .live = (uintptr_t)yb_region_live_word(regions, info.id),
            .access = info.access,
            .kind = info.place.kind,
            .backed = info.backing.fd >= 0,
        };
    }
    region_out->status = (int32_t)status;
    yb_region_unpin(regions, &range, 1);
}

static void
handle_regions(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_wire_fragments asked;
    struct yb_wire_shm_region native[YB_SLICE_FRAGMENTS];
    struct yb_wire_shm_regions answer = {.regions = {.native = native}};
    uint8_t body[YB_WIRE_SHM_REGIONS_BYTES + YB_SLICE_FRAGMENTS * YB_WIRE_SHM_REGION_BYTES];
    size_t length = 0;

    if (!yb_transfer_peer_allowed(engine, request->peer)) {
        refuse(request, YB_DENIED);
        return;
    }
    if (yb_wire_fragments_decode(request->body, request->body_bytes, &asked, NULL) != YB_OK) {
        refuse(request, YB_INVALID);
        return;
    }
    answer.regions.count = asked.fragments.count;
    for (uint32_t i = 0; i < asked.fragments.count; i++) {
        struct yb_wire_fragment fragment;

        yb_wire_fragment_at(&asked.fragments, i, &fragment);
        describe(engine->regions, &fragment, &native[i]);
    }
    YB_ASSERT(yb_wire_shm_regions_encode(&answer, body, sizeof(body), &length) == YB_OK);
    yb_request_reply(request, YB_OK, body, (uint32_t)length, NULL, 0);
}

/* ---- pulls ----------------------------------------------------------------------------------- */

/* Whether a pull is to go past the caches: it is large as a whole. */
static bool
is_streamed(const struct yb_wire_pulls *pulls)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < pulls->pulls.count; i++) {
        struct yb_wire_pull pull;

        yb_wire_pull_at(&pulls->pulls, i, &pull);
        bytes += pull.length; /* If that overflows, only speed is lost. */
    }
    return bytes >= YB_COPY_STREAM_BYTES;
}

/* Copy all pieces whose destination is pinned; *attached_out: some by attach. Anything but OK is
 * the session's failure. */
static enum yb_status
copy_pulls(struct yb_shm_session *session, const struct yb_wire_pulls *pulls,
           struct yb_region_range *ranges, bool *attached_out)
{
    struct yb_shm_hold hold;
    struct yb_shm_gather gather;
    enum yb_status statuses[YB_WIRE_PULLS_MAX];
    enum yb_status status = YB_OK;

    gather.count = 0;
    yb_shm_hold_init(&hold, session, is_streamed(pulls));
    for (uint32_t i = 0; i < pulls->pulls.count; i++) {
        statuses[i] = YB_OK;
    }
    for (uint32_t i = 0; i < pulls->pulls.count && status == YB_OK; i++) {
        struct yb_wire_pull pull;

        yb_wire_pull_at(&pulls->pulls, i, &pull);
        if (ranges[i].status != YB_OK || pull.length == 0) {
            continue;
        }
        if (pull.source_region != 0 &&
            yb_shm_hold_take(&hold, pull.source_region, false) == YB_SHM_LOAN_READY) {
            statuses[i] = yb_shm_hold_copy(&hold, pull.source, pull.length, ranges[i].bytes);
            status = statuses[i] == YB_FAULT ? YB_OK : statuses[i];
        } else {
            yb_shm_gather_add(&gather, i, pull.source, pull.length, ranges[i].bytes);
        }
    }
    yb_shm_hold_release(&hold);
    *attached_out = gather.count > 0;
    if (status == YB_OK && gather.count > 0) {
        status = yb_shm_gather_copy(&gather, session, statuses);
    }
    for (uint32_t i = 0; i < pulls->pulls.count; i++) {
        if (statuses[i] != YB_OK) {
            ranges[i].status = statuses[i];
        }
    }
    return status;
}

/* Carry the pull out between two looks at its ticket: a sender that has given up, or gone, is no
 * longer read from, and what came while it went does not count. */
static enum yb_status
pull_all(struct yb_shm_session *session, const struct yb_wire_pulls *pulls,
         struct yb_region_range *ranges)
{
    enum yb_status status = yb_shm_session_ticket(session, pulls->slot, pulls->ticket, false);
    bool attached;

    if (status == YB_OK) {
        status = copy_pulls(session, pulls, ranges, &attached);
    }
    if (status == YB_OK) {
        status = yb_shm_session_ticket(session, pulls->slot, pulls->ticket, attached);
    }
    switch (status) {
    case YB_OK: return YB_OK;
    case YB_INVALID: return YB_INVALID; /* It named bytes beyond what it lent. */
    default: return YB_STALE;
    }
}

static bool
any_on_device(const struct yb_region_range *ranges, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].pinned != NULL && yb_region_place(ranges[i].pinned).kind != YB_MEMORY_HOST) {
            return true;
        }
    }
    return false;
}

static void
reply_outcomes(struct yb_request *request, enum yb_status status,
               const struct yb_region_range *ranges, uint32_t count)
{
    struct yb_wire_outcome native[YB_WIRE_PULLS_MAX];
    struct yb_wire_outcomes outcomes = {.outcomes = {.native = native}};
    uint8_t body[YB_WIRE_OUTCOMES_BYTES + YB_WIRE_PULLS_MAX * YB_WIRE_OUTCOME_BYTES];
    size_t length = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].status != YB_OK) {
            native[outcomes.outcomes.count].index = i;
            native[outcomes.outcomes.count++].status = (int32_t)ranges[i].status;
        }
    }
    if (status == YB_OK && outcomes.outcomes.count > 0) {
        YB_ASSERT(yb_wire_outcomes_encode(&outcomes, body, sizeof(body), &length) == YB_OK);
    }
    yb_request_reply(request, status, body, (uint32_t)length, NULL, 0);
}

static void
handle_pull(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_wire_pulls pulls;
    struct yb_region_range ranges[YB_WIRE_PULLS_MAX];
    struct yb_shm_session *session;
    enum yb_status status = YB_UNSUPPORTED;

    if (engine->shm == NULL || !yb_transfer_peer_allowed(engine, request->peer)) {
        refuse(request, engine->shm == NULL ? YB_UNSUPPORTED : YB_DENIED);
        return;
    }
    if (yb_wire_pulls_decode(request->body, request->body_bytes, &pulls, NULL) != YB_OK) {
        refuse(request, YB_INVALID);
        return;
    }
    session = yb_shm_session_find(engine->shm, pulls.token, request->peer->identity);
    if (session == NULL) {
        refuse(request, YB_CLOSED);
        return;
    }
    for (uint32_t i = 0; i < pulls.pulls.count; i++) {
        struct yb_wire_pull pull;

        yb_wire_pull_at(&pulls.pulls, i, &pull);
        ranges[i] = (struct yb_region_range){
            .region = pull.region,
            .offset = pull.offset,
            .length = pull.length,
        };
    }
    (void)yb_region_pin(engine->regions, ranges, pulls.pulls.count, YB_REGION_WRITE);
    if (!any_on_device(ranges, pulls.pulls.count)) {
        status = pull_all(session, &pulls, ranges);
    }
    yb_region_unpin(engine->regions, ranges, pulls.pulls.count);
    yb_shm_session_unref(session);
    reply_outcomes(request, status, ranges, pulls.pulls.count);
}

void
yb_shm_service_init(struct yb_transfer *engine)
{
    static const struct yb_method methods[] = {
        {
            .type = YB_WIRE_TRANSFER_TYPE_SHM_OFFER,
            .name = "shm_offer",
            .roles = YB_ROLE_ANY,
            .body_bytes_max = YB_WIRE_SHM_QUESTION_BYTES,
            .handle = handle_offer,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_SHM_REGIONS,
            .name = "shm_regions",
            .roles = YB_ROLE_ANY,
            .body_bytes_max = YB_WIRE_FRAGMENTS_BYTES_MAX,
            .handle = handle_regions,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_SHM_PULL,
            .name = "shm_pull",
            .roles = YB_ROLE_ANY,
            .body_bytes_max = YB_WIRE_PULLS_BYTES + YB_WIRE_PULLS_MAX * YB_WIRE_PULL_BYTES,
            .handle = handle_pull,
        },
    };
    const uint32_t count = sizeof(methods) / sizeof(methods[0]);

    YB_ASSERT(engine->method_count + count <= sizeof(engine->methods) / sizeof(engine->methods[0]));
    memcpy(&engine->methods[engine->method_count], methods, sizeof(methods));
    engine->method_count += count;
}
