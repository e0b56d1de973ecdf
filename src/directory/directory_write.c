/* SPDX-License-Identifier: Apache-2.0
 *
 * Announcements of puts, and removals.
 */
#include "directory/directory_internal.h"

#include <string.h>

/* Others wait for an announced write for a multiple of what its writer expects, within these. */
#define INTENT_PATIENCE 4u
#define INTENT_MIN_NS   (200 * YB_NS_PER_MS)
#define INTENT_MAX_NS   (30 * YB_NS_PER_S)

/* ---- intent ---------------------------------------------------------------------------------- */

/* Decide on one key that nobody holds, or that is to be replaced. */
static void
announce(struct yb_directory *directory, const struct yb_writes_name *name, uint32_t expected_us,
         struct yb_wire_intent_answer *out)
{
    uint64_t now_ns = yb_directory_now(directory);
    uint64_t expected_ns = expected_us * YB_NS_PER_US;
    uint64_t patience_ns = expected_ns * INTENT_PATIENCE;
    struct yb_writes_found other;

    if (yb_writes_other(directory->writes, name, now_ns, &other)) {
        uint64_t eta_us = other.eta_ns > now_ns ? (other.eta_ns - now_ns) / YB_NS_PER_US : 0;

        out->status = (int32_t)YB_IN_PROGRESS;
        out->eta_us = eta_us < UINT32_MAX ? (uint32_t)eta_us : UINT32_MAX;
        yb_directory_count(directory, YB_DIRECTORY_STAT_IN_PROGRESS, 1);
        return;
    }
    patience_ns = patience_ns > INTENT_MIN_NS ? patience_ns : INTENT_MIN_NS;
    patience_ns = patience_ns < INTENT_MAX_NS ? patience_ns : INTENT_MAX_NS;
    yb_writes_announce(directory->writes, name, now_ns,
                       &(struct yb_writes_times){
                           .eta_ns = now_ns + expected_ns,
                           .patience_ns = now_ns + patience_ns,
                           .expires_ns = now_ns + YB_DIRECTORY_WRITE_KEPT_NS,
                       });
    out->status = (int32_t)YB_OK;
}

static void
answer_intent(struct yb_directory *directory, const struct yb_wire_intents *body, uint32_t tenant,
              uint32_t index, const struct yb_index_answer *found)
{
    struct yb_wire_intent_answer answer = {.status = (int32_t)YB_OK};
    struct yb_writes_name name = {.tenant = (uint16_t)tenant};
    struct yb_writes_found own = {.grant = 0};
    struct yb_wire_intent intent;

    yb_wire_intent_at(&body->items, index, &intent);
    name.hash = intent.hash;
    name.write = intent.write;
    if (body->withdraw != 0) {
        yb_writes_forget(directory->writes, &name);
        yb_wire_intent_answer_store(&answer,
                                    directory->list + (size_t)index * YB_WIRE_INTENT_ANSWER_BYTES);
        return;
    }
    (void)yb_writes_find(directory->writes, &name, yb_directory_now(directory), &own);
    if (own.grant != 0) {
        answer.status = (int32_t)YB_OK; /* Its own put, once more: it gets the same grant. */
    } else if (body->mode == YB_WIRE_MODE_IF_ABSENT && found->presence == YB_INDEX_PRESENT) {
        bool hidden = yb_directory_hides(directory, tenant, intent.hash, found->grant);

        answer.status = (int32_t)(hidden ? YB_IN_PROGRESS : YB_EXISTS);
        answer.grant = hidden ? 0 : found->grant;
        yb_directory_count(directory, YB_DIRECTORY_STAT_EXISTED, hidden ? 0 : 1);
    } else {
        announce(directory, &name, body->expected_us, &answer);
    }
    yb_wire_intent_answer_store(&answer,
                                directory->list + (size_t)index * YB_WIRE_INTENT_ANSWER_BYTES);
}

void
yb_directory_handle_intent(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_intent_answers answers = {
        .epoch = directory->epoch,
        .members_version = yb_members_version(directory->members),
    };
    struct yb_index_query query = {.now_ms = yb_directory_now_ms(directory)};
    struct yb_id hashes[YB_DIRECTORY_CHUNK];
    struct yb_wire_intents body;
    size_t length = 0;

    if (yb_wire_intents_decode(request->body, request->body_bytes, &body, NULL) != YB_OK ||
        (body.mode != YB_WIRE_MODE_IF_ABSENT && body.mode != YB_WIRE_MODE_REPLACE)) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    query.tenant = yb_directory_tenant_of(directory, request, true);
    if (query.tenant == YB_TENANTS_NONE) {
        yb_directory_refuse(request, YB_NO_SPACE);
        return;
    }
    for (uint32_t i = 0; i < body.items.count; i += YB_DIRECTORY_CHUNK) {
        uint32_t count = body.items.count - i;

        count = count < YB_DIRECTORY_CHUNK ? count : YB_DIRECTORY_CHUNK;
        for (uint32_t j = 0; j < count; j++) {
            struct yb_wire_intent intent;

            yb_wire_intent_at(&body.items, i + j, &intent);
            hashes[j] = intent.hash;
        }
        yb_index_lookup(directory->index, &query, hashes, count, directory->answers);
        for (uint32_t j = 0; j < count; j++) {
            answer_intent(directory, &body, query.tenant, i + j, &directory->answers[j]);
        }
    }
    answers.answers.count = body.items.count;
    answers.answers.wire = directory->list;
    YB_ASSERT(yb_wire_intent_answers_encode(&answers, directory->body, YB_DIRECTORY_BODY_BYTES,
                                            &length) == YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}

/* ---- remove ---------------------------------------------------------------------------------- */

static enum yb_status
finish_removal(struct yb_directory *directory, const struct yb_index_op *op,
               const struct yb_index_result *result, struct yb_directory_settle *settle)
{
    struct yb_directory_news news = {
        .hash = op->hash,
        .grant = result->dropped_grant,
        .tenant = op->tenant,
        .kind = YB_WIRE_EVENT_KIND_REMOVED,
    };
    struct yb_ghost ghost = {
        .hash = op->hash,
        .grant = result->dropped_grant,
        .at_ns = yb_directory_now(directory),
        .tenant = op->tenant,
        .slot = result->dropped_count > 0 ? result->dropped[0].slot : 0,
        .tier = result->dropped_count > 0 ? result->dropped[0].tier : 0,
        .fate = YB_WIRE_FATE_REMOVED,
    };

    if (result->status == YB_HELD) {
        return YB_LEASED;
    }
    if (result->status != YB_OK) {
        return result->status;
    }
    yb_directory_drop(directory, op, result, YB_DIRECTORY_DROP_REMOVED, settle);
    yb_directory_event(directory, &news);
    yb_ghosts_add(directory->ghosts, &ghost);
    directory->removed++;
    yb_directory_count(directory, YB_DIRECTORY_STAT_REMOVED, 1);
    return YB_OK;
}

static void
store_removal(struct yb_directory *directory, uint32_t index, enum yb_status status)
{
    struct yb_wire_removal_answer answer = {.status = (int32_t)status};

    yb_wire_removal_answer_store(&answer,
                                 directory->list + (size_t)index * YB_WIRE_REMOVAL_ANSWER_BYTES);
}

static void
remove_keys(struct yb_directory *directory, const struct yb_wire_removal *body, uint32_t tenant,
            struct yb_directory_settle *settle)
{
    for (uint32_t i = 0; i < body->hashes.count; i += YB_DIRECTORY_CHUNK) {
        uint32_t count = body->hashes.count - i;

        count = count < YB_DIRECTORY_CHUNK ? count : YB_DIRECTORY_CHUNK;
        for (uint32_t j = 0; j < count; j++) {
            struct yb_wire_hash hash;

            yb_wire_hash_at(&body->hashes, i + j, &hash);
            directory->ops[j] = (struct yb_index_op){
                .hash = hash.hash,
                .grant = body->grant,
                .tenant = (uint16_t)tenant,
                .kind = YB_INDEX_REMOVE,
                .force = body->force,
            };
        }
        yb_index_apply(directory->index, directory->ops, count, yb_directory_now_ms(directory),
                       directory->results);
        for (uint32_t j = 0; j < count; j++) {
            (void)yb_directory_settle_wait_for(directory, settle, tenant, directory->ops[j].hash);
            if (directory->results[j].status == YB_OK ||
                (directory->results[j].status != YB_HELD && body->grant == YB_GRANT_NONE)) {
                yb_directory_ended(directory, tenant, directory->ops[j].hash,
                                   directory->last_grant);
            }
            store_removal(
                directory, i + j,
                finish_removal(directory, &directory->ops[j], &directory->results[j], settle));
        }
    }
}

void
yb_directory_handle_remove(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_directory_settle *settle;
    struct yb_wire_removed removed = {.answers = {.wire = directory->list}};
    struct yb_wire_removal body;
    size_t length = 0;
    uint32_t tenant;

    if (yb_wire_removal_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    settle = yb_directory_settle_begin(directory);
    if (settle == NULL) {
        yb_directory_refuse(request, YB_AGAIN);
        return;
    }
    tenant = yb_directory_tenant_of(directory, request, yb_members_parties(directory->members));
    if (!directory->rebuilding && yb_directory_owe(directory) != YB_OK) {
        yb_directory_settle_go(directory, settle, request, YB_IO, NULL, 0);
        return;
    }
    if (directory->rebuilding || tenant == YB_TENANTS_NONE) {
        /* What is not known cannot be removed: it might come back with an inventory (A9). */
        for (uint32_t i = 0; i < body.hashes.count; i++) {
            store_removal(directory, i, directory->rebuilding ? YB_REBUILDING : YB_NOT_FOUND);
        }
    } else {
        remove_keys(directory, &body, tenant, settle);
    }
    removed.answers.count = body.hashes.count;
    YB_ASSERT(yb_wire_removed_encode(&removed, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_settle_go(directory, settle, request, YB_OK, directory->body, length);
}

/* ---- remove_all ------------------------------------------------------------------------------ */

/* Tell every node, and let the answer wait for all of them. */
static void
order_flush(struct yb_directory *directory, uint32_t tenant, uint64_t epoch,
            struct yb_directory_settle *settle)
{
    struct yb_directory_order order = {
        .number = epoch,
        .settle = settle,
        .tenant = (uint16_t)tenant,
        .kind = YB_DIRECTORY_FLUSH,
    };
    struct yb_members_slot *slot = NULL;

    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        if (slot->state != YB_WIRE_SLOT_STATE_DEAD) {
            uint64_t number = yb_directory_order(directory, slot->slot, &order);

            yb_directory_settle_wait(directory, settle, slot->slot, number);
        }
    }
}

void
yb_directory_handle_remove_all(struct yb_directory *directory, struct yb_request *request)
{
    uint32_t tenant = yb_directory_tenant_of(directory, request, true);
    struct yb_directory_settle *settle = NULL;
    struct yb_directory_news news = {.kind = YB_WIRE_EVENT_KIND_FLUSHED, .tenant = tenant};
    enum yb_status status = tenant == YB_TENANTS_NONE ? YB_NO_SPACE : YB_OK;
    uint64_t epoch = 0;

    if (status == YB_OK) {
        settle = yb_directory_settle_begin(directory);
        status = settle != NULL ? YB_OK : YB_AGAIN;
    }
    if (status == YB_OK) {
        epoch = yb_tenants_at(directory->tenants, tenant)->flush + 1;
        status = yb_index_flush(directory->index, tenant, epoch);
        if (status == YB_AGAIN) {
            yb_directory_sweep_soon(directory);
        }
    }
    if (status == YB_OK) {
        yb_tenants_flush(directory->tenants, tenant, epoch, yb_directory_now(directory));
        status = yb_directory_store(directory, NULL); /* Before anybody may take it for done. */
        yb_directory_event(directory, &news);
        yb_directory_sweep_soon(directory);
    }
    if (settle == NULL) {
        yb_directory_refuse(request, status);
        return;
    }
    if (status != YB_OK) {
        yb_directory_settle_go(directory, settle, request, status, NULL, 0);
        return;
    }
    settle->flush = true;
    settle->flush_epoch = epoch;
    settle->after_rebuild = true; /* Those that have not come back learn it when they register. */
    order_flush(directory, tenant, epoch, settle);
    yb_directory_settle_go(directory, settle, request, YB_OK, NULL, 0);
}
