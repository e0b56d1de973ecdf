/* SPDX-License-Identifier: Apache-2.0
 *
 * Where blocks are, and why one is not.
 */
#include "directory/directory_internal.h"

#include <string.h>

_Static_assert(YB_WIRE_HASH_BYTES == sizeof(struct yb_id), "hashes are read where they arrived");
_Static_assert((int)YB_INDEX_ABSENT == YB_WIRE_PRESENCE_ABSENT &&
                   (int)YB_INDEX_PRESENT == YB_WIRE_PRESENCE_PRESENT &&
                   (int)YB_INDEX_SUSPECT_ONLY == YB_WIRE_PRESENCE_SUSPECT,
               "the index speaks the wire's numbers");
_Static_assert((int)YB_WIRE_PRESENCES_BYTES == YB_WIRE_LOOKUP_ANSWERS_BYTES &&
                   (int)YB_WIRE_PRESENCES_AT_EPOCH == YB_WIRE_LOOKUP_ANSWERS_AT_EPOCH &&
                   (int)YB_WIRE_PRESENCES_AT_MEMBERS_VERSION ==
                       YB_WIRE_LOOKUP_ANSWERS_AT_MEMBERS_VERSION &&
                   (int)YB_WIRE_PRESENCES_AT_ANSWERS == YB_WIRE_LOOKUP_ANSWERS_AT_ANSWERS &&
                   (int)YB_WIRE_PRESENCES_AT_FLUSH == YB_WIRE_LOOKUP_ANSWERS_AT_FLUSH,
               "what stands before the answers is the same");
_Static_assert(YB_WIRE_LOOKUP_ANSWERS_BYTES_MAX <= YB_DIRECTORY_BODY_BYTES &&
                   YB_WIRE_MEMBERS_BYTES_MAX <= YB_DIRECTORY_BODY_BYTES &&
                   YB_WIRE_REGISTERED_BYTES_MAX <= YB_DIRECTORY_BODY_BYTES &&
                   YB_WIRE_EVENTS_BYTES_MAX <= YB_DIRECTORY_BODY_BYTES,
               "every answer fits");

/* ---- lookup ---------------------------------------------------------------------------------- */

typedef bool find_write(const struct yb_writes *writes, const struct yb_writes_name *name,
                        uint64_t now_ns, struct yb_writes_found *found_out);

/* Say why the block is not there, as far as that can change: by a write that `find` finds. */
static void
explain_absence(struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                find_write *find, struct yb_wire_lookup_answer *out)
{
    struct yb_writes_name name = {.hash = hash, .tenant = (uint16_t)tenant};
    uint64_t now_ns = yb_directory_now(directory);
    struct yb_writes_found found;

    if (directory->rebuilding) {
        out->presence = YB_WIRE_PRESENCE_REBUILDING;
    } else if (tenant != YB_TENANTS_NONE && find(directory->writes, &name, now_ns, &found)) {
        uint64_t eta_us = found.eta_ns > now_ns ? (found.eta_ns - now_ns) / YB_NS_PER_US : 0;

        out->presence = YB_WIRE_PRESENCE_IN_PROGRESS;
        out->eta_us = eta_us < UINT32_MAX ? (uint32_t)eta_us : UINT32_MAX;
    }
}

/* An answer has room for four replicas. Of more that are alive it names those from `turn` on. */
static void
fill_answer(const struct yb_index_answer *found, uint32_t turn, struct yb_wire_lookup_answer *out)
{
    uint32_t named =
        found->count < YB_WIRE_ANSWER_REPLICAS ? found->count : YB_WIRE_ANSWER_REPLICAS;
    uint32_t first = found->live > YB_WIRE_ANSWER_REPLICAS ? turn % found->live : 0;
    struct yb_index_replica replicas[YB_WIRE_ANSWER_REPLICAS] = {{.slot = 0}};

    for (uint32_t i = 0; i < named; i++) {
        replicas[i] = found->replicas[first == 0 ? i : (first + i) % found->live];
    }
    *out = (struct yb_wire_lookup_answer){
        .grant = found->grant,
        .size_code = found->size_code,
        .flags = (uint16_t)(found->flags & YB_WIRE_BLOCK_FLAG_ALL),
        .presence = found->presence,
        .count = found->count,
        .slot0 = replicas[0].slot,
        .tier0 = replicas[0].tier,
        .slot1 = replicas[1].slot,
        .tier1 = replicas[1].tier,
        .slot2 = replicas[2].slot,
        .tier2 = replicas[2].tier,
        .slot3 = replicas[3].slot,
        .tier3 = replicas[3].tier,
    };
}

static void
pass_holds(struct yb_directory *directory, struct yb_id hash, const struct yb_index_answer *found,
           uint32_t hold_ms)
{
    for (uint32_t i = 0; i < found->count; i++) {
        yb_directory_hold(directory, found->replicas[i].slot, hash, found->grant, hold_ms);
    }
}

/* One question for many keys. */
struct look {
    struct yb_index_query query;
    bool brief;   /* Only whether each is there is to be answered. */
    uint8_t *out; /* The next answer's place. */
};

static void
put_answer(struct look *look, const struct yb_wire_lookup_answer *answer)
{
    if (look->brief) {
        bool striped = (answer->flags & YB_WIRE_BLOCK_FLAG_STRIPED) != 0;

        *look->out++ = (uint8_t)(answer->presence | (striped ? YB_WIRE_PRESENCE_STRIPED : 0));
    } else {
        yb_wire_lookup_answer_store(answer, look->out);
        look->out += YB_WIRE_LOOKUP_ANSWER_BYTES;
    }
}

/* Look up a part of the keys, and write the answers. Returns how many were there. */
static uint32_t
look_up(struct yb_directory *directory, struct look *look, const struct yb_id *hashes,
        uint32_t count)
{
    const struct yb_index_query *query = &look->query;
    bool absences = directory->rebuilding || yb_writes_open(directory->writes) > 0;
    struct yb_index_query first = *query;
    uint32_t hits = 0;

    if (yb_hidden_count(directory->hidden) > 0) {
        first.hold_ms = 0; /* What is said to be absent is not held: each is looked at before. */
    }
    yb_index_lookup(directory->index, &first, hashes, count, directory->answers);
    for (uint32_t i = 0; i < count; i++) {
        struct yb_index_answer *found = &directory->answers[i];
        struct yb_wire_lookup_answer answer;

        if (found->grant != 0 &&
            yb_directory_hides(directory, query->tenant, hashes[i], found->grant)) {
            answer = (struct yb_wire_lookup_answer){.presence = YB_WIRE_PRESENCE_IN_PROGRESS};
            put_answer(look, &answer);
            continue;
        }
        fill_answer(found, directory->turn++, &answer); /* So that all of them are read. */
        hits += found->grant != 0 ? 1 : 0;
        if (found->grant == 0 && absences) {
            explain_absence(directory, query->tenant, hashes[i], yb_writes_other, &answer);
        }
        if (query->hold_ms > 0 && found->grant != 0) {
            if (first.hold_ms == 0) {
                yb_index_lookup(directory->index, query, &hashes[i], 1, found);
            }
            pass_holds(directory, hashes[i], found, query->hold_ms);
        }
        put_answer(look, &answer);
    }
    return hits;
}

/* Write what stands before the answers, which is the same before both kinds. */
static void
put_head(struct yb_directory *directory, const struct look *look, uint32_t count)
{
    struct yb_wire_lookup_answers head = {
        .epoch = directory->epoch,
        .members_version = yb_members_version(directory->members),
        .flush = look->query.tenant == YB_TENANTS_NONE
                     ? 0
                     : yb_tenants_at(directory->tenants, look->query.tenant)->flush,
    };
    size_t length = 0;

    YB_ASSERT(yb_wire_lookup_answers_encode(&head, directory->body, YB_DIRECTORY_BODY_BYTES,
                                            &length) == YB_OK);
    YB_ASSERT(length == YB_WIRE_LOOKUP_ANSWERS_BYTES);
    yb_wire_put_u32(directory->body + YB_WIRE_LOOKUP_ANSWERS_AT_ANSWERS, count);
}

static void
answer_all(struct yb_directory *directory, struct yb_request *request, bool brief)
{
    struct yb_wire_lookup body;
    struct look look = {
        .query = {.now_ms = yb_directory_now_ms(directory)},
        .brief = brief,
        .out = directory->body + YB_WIRE_LOOKUP_ANSWERS_BYTES,
    };
    const struct yb_id *hashes;
    uint32_t hits = 0;

    if (yb_wire_lookup_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    look.query.tenant = yb_directory_tenant_of(directory, request, false);
    look.query.hold_ms = (body.flags & YB_WIRE_LOOKUP_FLAG_HOLD) != 0 ? body.hold_ms : 0;
    hashes = (const struct yb_id *)body.hashes.wire;
    for (uint32_t i = 0; i < body.hashes.count; i += YB_DIRECTORY_CHUNK) {
        uint32_t count = body.hashes.count - i;

        hits += look_up(directory, &look, hashes + i,
                        count < YB_DIRECTORY_CHUNK ? count : YB_DIRECTORY_CHUNK);
    }
    put_head(directory, &look, body.hashes.count);
    directory->lookups += body.hashes.count;
    directory->hits += hits;
    yb_directory_count(directory, YB_DIRECTORY_STAT_LOOKUPS, body.hashes.count);
    yb_directory_count(directory, YB_DIRECTORY_STAT_HITS, hits);
    yb_directory_observe(directory, YB_DIRECTORY_STAT_LOOKUP_TIME,
                         yb_clock_now(yb_loop_clock(directory->loop)) -
                             yb_directory_now(directory));
    yb_directory_reply(directory, request, YB_OK, (size_t)(look.out - directory->body));
}

void
yb_directory_handle_lookup(struct yb_directory *directory, struct yb_request *request)
{
    answer_all(directory, request, false);
}

void
yb_directory_handle_exist(struct yb_directory *directory, struct yb_request *request)
{
    answer_all(directory, request, true);
}

/* ---- explain --------------------------------------------------------------------------------- */

static uint64_t
ago_ms(uint64_t now_ns, uint64_t at_ns)
{
    return now_ns > at_ns ? (now_ns - at_ns) / YB_NS_PER_MS : 0;
}

/* Say what became of a block that is not there: the last words on it, or what must have been. */
static void
tell_fate(struct yb_directory *directory, const struct yb_writes_name *name,
          struct yb_wire_explanation *out)
{
    const struct yb_tenant *tenant = yb_tenants_at(directory->tenants, name->tenant);
    uint64_t now_ns = yb_directory_now(directory);
    struct yb_writes_found written = {.grant = 0};
    struct yb_ghost ghost;
    bool has_ghost = yb_ghosts_find(directory->ghosts, name->tenant, name->hash, &ghost);
    bool has_write = yb_writes_last(directory->writes, name, now_ns, &written);

    if (has_ghost && (!has_write || ghost.grant >= written.grant)) {
        out->grant = ghost.grant;
        out->fate = ghost.fate;
        out->ago_ms = ago_ms(now_ns, ghost.at_ns);
        out->slot0 = ghost.slot;
        out->tier0 = ghost.tier;
        out->size_code = ghost.size_code;
    } else if (has_write) {
        /* It was granted and nobody withdrew or removed it: its tenant was flushed since, or the
         * last node that had it died. */
        bool flushed = tenant->flushed_ns >= written.at_ns;

        out->grant = written.grant;
        out->fate = flushed ? YB_WIRE_FATE_FLUSHED : YB_WIRE_FATE_SLOT_LOST;
        out->ago_ms = ago_ms(now_ns, flushed ? tenant->flushed_ns : written.at_ns);
    }
}

/* Say when a reuse gate last declined the block, if that is remembered. */
static void
tell_decline(struct yb_directory *directory, const struct yb_writes_name *name,
             struct yb_wire_explanation *out)
{
    struct yb_ghost ghost;
    uint64_t ago;

    if (yb_ghosts_find(directory->declined, name->tenant, name->hash, &ghost)) {
        ago = ago_ms(yb_directory_now(directory), ghost.at_ns);
        out->declined = ghost.fate;
        out->declined_ms = ago < UINT32_MAX ? (uint32_t)ago : UINT32_MAX;
        out->load_us = ghost.declined.load_us;
        out->compute_us = ghost.declined.compute_us;
    }
}

void
yb_directory_handle_declined(struct yb_directory *directory, struct yb_request *request)
{
    uint32_t tenant = yb_directory_tenant_of(directory, request, false);
    struct yb_wire_declines body;

    if (yb_wire_declines_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    for (uint32_t i = 0; i < body.items.count && tenant != YB_TENANTS_NONE; i++) {
        struct yb_wire_declined item;

        yb_wire_declined_at(&body.items, i, &item);
        if (item.reason != YB_WIRE_DECLINE_NONE) {
            yb_ghosts_add(directory->declined,
                          &(struct yb_ghost){
                              .hash = item.hash,
                              .declined = {.load_us = item.load_us, .compute_us = item.compute_us},
                              .at_ns = yb_directory_now(directory),
                              .tenant = (uint16_t)tenant,
                              .fate = item.reason,
                          });
        }
    }
    yb_directory_count(directory, YB_DIRECTORY_STAT_DECLINED, body.items.count);
    yb_directory_refuse(request, YB_OK);
}

void
yb_directory_handle_explain(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_explain_question body;
    struct yb_index_query query = {.now_ms = yb_directory_now_ms(directory)};
    struct yb_wire_explanation out = {.grant = 0};
    struct yb_wire_lookup_answer answer;
    struct yb_index_answer found;
    struct yb_writes_found written;
    size_t length = 0;

    if (yb_wire_explain_question_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    query.tenant = yb_directory_tenant_of(directory, request, false);
    yb_index_lookup(directory->index, &query, &body.hash, 1, &found);
    fill_answer(&found, 0, &answer);
    if (found.grant == 0) {
        explain_absence(directory, query.tenant, body.hash, yb_writes_announced, &answer);
    } else if (yb_directory_hides(directory, query.tenant, body.hash, found.grant)) {
        answer.presence = YB_WIRE_PRESENCE_IN_PROGRESS;
        out.hidden = 1;
    }
    out.grant = answer.grant;
    out.eta_us = answer.eta_us;
    out.size_code = answer.size_code;
    out.flags = answer.flags;
    out.presence = answer.presence;
    out.count = answer.count;
    out.slot0 = answer.slot0;
    out.slot1 = answer.slot1;
    out.slot2 = answer.slot2;
    out.slot3 = answer.slot3;
    out.tier0 = answer.tier0;
    out.tier1 = answer.tier1;
    out.tier2 = answer.tier2;
    out.tier3 = answer.tier3;
    out.hold_ms = yb_index_hold_left(directory->index, query.tenant, body.hash, query.now_ms);
    if (query.tenant != YB_TENANTS_NONE) {
        struct yb_writes_name name = {.hash = body.hash, .tenant = (uint16_t)query.tenant};

        tell_decline(directory, &name, &out);
        if (found.grant == 0) {
            tell_fate(directory, &name, &out);
        } else if (yb_writes_last(directory->writes, &name, yb_directory_now(directory),
                                  &written) &&
                   written.grant == found.grant) {
            out.ago_ms = ago_ms(yb_directory_now(directory), written.at_ns);
        }
    }
    YB_ASSERT(yb_wire_explanation_encode(&out, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}
