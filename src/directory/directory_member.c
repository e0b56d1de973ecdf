/* SPDX-License-Identifier: Apache-2.0
 *
 * Registration, heartbeats, deaths: the membership on the wire.
 *
 * Whatever ends or begins a life is stored before it counts (RULES A5, A9): a directory that starts
 * again must neither miss somebody who may hold blocks, nor take back somebody whose death has let
 * a removal be answered.
 */
#include "directory/directory_internal.h"

#include <string.h>

#define WRITES_EXPIRED_PER_TICK 2048u

/* ---- states ---------------------------------------------------------------------------------- */

void
yb_directory_mirror(struct yb_directory *directory, struct yb_members_slot *slot)
{
    struct yb_directory_port *port = directory->ports[slot->slot];

    if (port == NULL || port->mirrored == slot->state) {
        return;
    }
    port->mirrored = slot->state;
    YB_ASSERT(yb_index_slot_set(directory->index, slot->slot,
                                (enum yb_index_slot_state)slot->state) == YB_OK);
    yb_log_info(directory->options.log, "directory", "a node's state changes",
                yb_log_str("name", slot->facts.name), yb_log_u64("slot", slot->slot),
                yb_log_str("state", yb_wire_slot_state_name(slot->state)),
                yb_log_bool("missed", slot->missed), yb_log_bool("reported", slot->reported),
                yb_log_bool("fenced", slot->fenced));
}

void
yb_directory_fence(struct yb_directory *directory, struct yb_members_slot *slot)
{
    if (!slot->fenced) {
        yb_members_fence(directory->members, slot);
        yb_directory_count(directory, YB_DIRECTORY_STAT_FENCED, 1);
        yb_directory_mirror(directory, slot);
    }
}

/* A life that keeps blocks is about to end: unless another of its name goes on with them, they may
 * come back, and what it was told and has not confirmed is owed. Returns whether it is away. */
static bool
goes_away(struct yb_directory *directory, const struct yb_members_slot *slot)
{
    struct yb_members_away away = {
        .incarnation = slot->incarnation,
        .owes = slot->owes || yb_directory_has_unconfirmed(directory, slot->slot),
        .distrusted = slot->distrusted,
        .unknown = slot->unknown,
    };
    const struct yb_members_slot *next = yb_members_named(directory->members, slot->facts.name);

    if (!slot->facts.keeps || (next != NULL && next != slot && next->facts.keeps)) {
        return false;
    }
    memcpy(away.name, slot->facts.name, sizeof(away.name));
    memcpy(away.address, slot->facts.address, sizeof(away.address));
    yb_members_put_away(directory->members, &away);
    return true;
}

/* A life is over. Only once that is stored; until then it stays what it is. */
static void
end_life(struct yb_directory *directory, struct yb_members_slot *slot)
{
    struct yb_directory_change change = {.without = slot};
    struct yb_directory_news news = {.kind = YB_WIRE_EVENT_KIND_SLOT_LOST, .slot = slot->slot};
    bool away = goes_away(directory, slot);

    if (yb_directory_store(directory, &change) != YB_OK) {
        if (away) {
            yb_members_take_away(directory->members);
        }
        return;
    }
    yb_directory_unconfirmed(directory, slot->slot);
    yb_members_kill(directory->members, slot);
    yb_directory_count(directory, YB_DIRECTORY_STAT_DIED, 1);
    yb_directory_mirror(directory, slot);
    news.tenant = YB_TENANTS_NONE;
    yb_directory_event(directory, &news);
    yb_tenants_forget(directory->tenants, slot->slot);
    yb_directory_port_close(directory, slot->slot);
    yb_directory_rebuild_check(directory);
    yb_directory_sweep_soon(directory);
}

static uint32_t
put_away(struct yb_directory *directory, const struct yb_members_awaited *awaited)
{
    struct yb_members_away away = {
        .incarnation = awaited->incarnation,
        .owes = awaited->owes,
        .distrusted = awaited->owes,
    };

    memcpy(away.name, awaited->name, sizeof(away.name));
    memcpy(away.address, awaited->address, sizeof(away.address));
    yb_members_put_away(directory->members, &away);
    return 1;
}

/* Those that have not come back in time are given up. */
static void
give_up_awaited(struct yb_directory *directory)
{
    struct yb_directory_change change = {.without_awaited = true};
    struct yb_members_awaited *awaited;
    uint32_t count;
    uint32_t waiting = 0;
    uint32_t away = 0;

    awaited = yb_members_awaited(directory->members, &count);
    for (uint32_t i = 0; i < count; i++) {
        waiting += awaited[i].over ? 0 : 1;
        away += !awaited[i].over && awaited[i].keeps ? put_away(directory, &awaited[i]) : 0;
    }
    if (waiting == 0) {
        return;
    }
    if (yb_directory_store(directory, &change) != YB_OK) {
        while (away-- > 0) {
            yb_members_take_away(directory->members);
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!awaited[i].over) {
            yb_log_warn(directory->options.log, "directory", "a member has not come back",
                        yb_log_str("name", awaited[i].name));
        }
        awaited[i].over = true;
    }
    yb_directory_rebuild_check(directory);
}

void
yb_directory_tick(struct yb_directory *directory)
{
    struct yb_members_slot *slot = NULL;

    yb_members_tick(directory->members, yb_directory_now(directory));
    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        struct yb_index_slot_counts counts;

        yb_directory_mirror(directory, slot);
        if (yb_members_overdue(directory->members, slot)) {
            end_life(directory, slot);
        }
        yb_index_slot_counts(directory->index, slot->slot, &counts);
        if (slot->state == YB_WIRE_SLOT_STATE_DEAD && counts.state == YB_INDEX_SLOT_FREE) {
            yb_members_release(directory->members, slot);
        }
    }
    if (yb_members_awaited_overdue(directory->members)) {
        give_up_awaited(directory);
    }
    yb_writes_expire(directory->writes, yb_directory_now(directory), WRITES_EXPIRED_PER_TICK);
    yb_directory_repair_tick(directory);
    if (directory->shard != NULL) {
        struct yb_index_counts counts;

        yb_index_counts(directory->index, &counts);
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_RECORDS,
                     counts.records);
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_MEMBERS,
                     yb_members_live(directory->members));
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_REPAIRS_WAITING,
                     directory->repair_count + directory->copying);
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_REPAIR_RATE,
                     (int64_t)directory->repair_rate.blocks);
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_REPAIR_BYTES_RATE,
                     (int64_t)directory->repair_rate.bytes);
        yb_stats_set(directory->shard, directory->stats_first + YB_DIRECTORY_STAT_REBUILDING,
                     directory->rebuilding ? 1 : 0);
    }
}

/* ---- register -------------------------------------------------------------------------------- */

static void
take_text(char *out, struct yb_wire_text text)
{
    if (text.length > 0) {
        memcpy(out, text.bytes, text.length);
    }
    out[text.length] = '\0';
}

static void
take_facts(const struct yb_request *request, const struct yb_wire_register *body,
           struct yb_members_facts *facts)
{
    *facts = (struct yb_members_facts){
        .identity = request->peer->identity,
        .host = body->host,
        .capacity = body->capacity,
        .huge_bytes = body->huge_bytes,
        .keeps = body->keeps == 1,
    };
    take_text(facts->name, body->name);
    take_text(facts->address, body->address);
    take_text(facts->data_address, body->data_address);
    take_text(facts->rack, body->rack);
    take_text(facts->zone, body->zone);
}

/* A node has seen a grant that we have not given: the cluster file is an old one. Go beyond it, for
 * grants may never be given twice (D1). */
static enum yb_status
pass_grant(struct yb_directory *directory, uint64_t grant)
{
    struct yb_directory_change change = {.epoch = yb_grant_epoch(grant) + 1};
    enum yb_status status;

    if (!yb_grant_valid(grant) || grant <= directory->last_grant) {
        return YB_OK;
    }
    if (change.epoch > YB_GRANT_EPOCH_MAX) {
        return YB_INVALID;
    }
    status = yb_directory_store(directory, &change);
    if (status == YB_OK) {
        yb_log_warn(directory->options.log, "directory",
                    "a node holds later grants than were given: the cluster file is an old one",
                    yb_log_u64("epoch", directory->epoch), yb_log_u64("new_epoch", change.epoch));
        directory->epoch = change.epoch;
        directory->last_grant = yb_grant_epoch_start(change.epoch);
        yb_members_set_epoch(directory->members, change.epoch);
    }
    return status;
}

/* Write the tenants that a node has to know to directory->list. Returns how many. */
static uint32_t
list_tenants(struct yb_directory *directory, uint16_t slot)
{
    uint32_t nodes = yb_members_live(directory->members);
    uint32_t count = 0;

    for (uint32_t i = 0; i < yb_tenants_count(directory->tenants); i++) {
        const struct yb_tenant *tenant = yb_tenants_at(directory->tenants, i);
        struct yb_wire_tenant_state state = {.flush = tenant->flush};

        if (tenant->flush == 0 && tenant->limit == YB_TENANTS_NO_LIMIT) {
            continue;
        }
        state.credit = yb_tenants_credit(directory->tenants, i, slot, nodes);
        memcpy(state.tenant, tenant->name, sizeof(state.tenant));
        yb_wire_tenant_state_store(&state,
                                   directory->list + (size_t)count * YB_WIRE_TENANT_STATE_BYTES);
        count++;
    }
    return count;
}

static void
answer_registered(struct yb_directory *directory, struct yb_request *request,
                  const struct yb_members_slot *slot, bool keep)
{
    struct yb_wire_registered answer = {
        .incarnation = slot->incarnation,
        .epoch = directory->epoch,
        .flush_version = yb_tenants_version(directory->tenants),
        .cluster = directory->cluster,
        .lease_ms = directory->options.lease_ms,
        .slot = slot->slot,
        .keep = keep ? 1 : 0,
        .want_keys = directory->options.want_keys ? 1 : 0,
    };
    size_t length = 0;

    memcpy(answer.seed, directory->seed, sizeof(answer.seed));
    answer.tenants.count = list_tenants(directory, slot->slot);
    answer.tenants.wire = directory->list;
    YB_ASSERT(yb_wire_registered_encode(&answer, directory->body, YB_DIRECTORY_BODY_BYTES,
                                        &length) == YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}

/* Admit what was planned. */
static enum yb_status
admit(struct yb_directory *directory, const struct yb_members_plan *plan,
      const struct yb_members_facts *facts, uint64_t incarnation, struct yb_members_slot **slot_out)
{
    struct yb_directory_change change = {.plan = plan, .facts = facts, .incarnation = incarnation};
    struct yb_index_slot_counts counts;
    enum yb_status status;

    yb_index_slot_counts(directory->index, plan->slot, &counts);
    if (!plan->continues && counts.state != YB_INDEX_SLOT_FREE) {
        return YB_AGAIN;
    }
    status = yb_directory_store(directory, &change);
    if (status != YB_OK) {
        return status;
    }
    *slot_out =
        yb_members_admit(directory->members, plan, facts, incarnation, yb_directory_now(directory));
    if (!plan->continues) {
        YB_ASSERT(yb_index_slot_open(directory->index, plan->slot) == YB_OK);
    }
    status = yb_directory_port_open(directory, *slot_out, plan->continues);
    if ((*slot_out)->open) { /* What its last life did not confirm is not to be named by it. */
        struct yb_members_slot *other = NULL;

        while ((other = yb_members_next(directory->members, other != NULL ? other->slot : 0)) !=
               NULL) {
            if (other != *slot_out && strcmp(other->facts.name, facts->name) == 0) {
                yb_directory_unconfirmed(directory, other->slot);
            }
        }
    }
    if (plan->fences != 0) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_FENCED, 1);
        yb_directory_mirror(directory, yb_members_at(directory->members, plan->fences));
    }
    if (status != YB_OK) {
        yb_members_fence(directory->members, *slot_out);
    }
    yb_directory_mirror(directory, *slot_out);
    return status;
}

void
yb_directory_handle_register(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_members_slot *slot = NULL;
    struct yb_members_facts facts;
    struct yb_members_plan plan;
    struct yb_wire_register body;
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = YB_OK;
    bool ours;

    if (yb_wire_register_decode(request->body, request->body_bytes, &body, NULL) != YB_OK ||
        body.name.length == 0) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    take_facts(request, &body, &facts);
    if (yb_address_parse(facts.address, YB_PORT_NODE, &address, why) != YB_OK ||
        !yb_address_connectable(&address)) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    ours = yb_id_equal(body.cluster, directory->cluster);
    if (ours) {
        status = pass_grant(directory, body.grant_max);
    } else {
        body.incarnation = 0; /* What it holds is another cluster's. */
    }
    status = status == YB_OK ? yb_members_plan(directory->members, &facts, body.incarnation, &plan)
                             : status;
    status = status == YB_OK ? admit(directory, &plan, &facts, body.incarnation, &slot) : status;
    if (status != YB_OK) {
        yb_log_warn(directory->options.log, "directory", "a registration is refused",
                    yb_log_str("name", facts.name), yb_log_status("status", status));
        yb_directory_refuse(request, status);
        return;
    }
    yb_directory_count(directory, YB_DIRECTORY_STAT_REGISTERED, 1);
    yb_log_info(directory->options.log, "directory", "a node registers",
                yb_log_str("name", facts.name), yb_log_str("address", facts.address),
                yb_log_u64("slot", slot->slot), yb_log_u64("incarnation", slot->incarnation),
                yb_log_bool("keep", plan.keep), yb_log_bool("continues", plan.continues));
    yb_directory_rebuild_check(directory);
    answer_registered(directory, request, slot, plan.keep);
}

/* ---- heartbeat ------------------------------------------------------------------------------- */

static void
take_use(struct yb_directory *directory, const struct yb_members_slot *slot,
         const struct yb_wire_tenant_use_list *uses)
{
    if (!yb_tenants_limited(directory->tenants)) {
        return;
    }
    yb_tenants_use_begin(directory->tenants, slot->slot);
    for (uint32_t i = 0; i < uses->count; i++) {
        struct yb_wire_tenant_use use;
        uint32_t length;
        uint32_t tenant;

        yb_wire_tenant_use_at(uses, i, &use);
        length = (uint32_t)strnlen((const char *)use.tenant, sizeof(use.tenant));
        tenant = yb_directory_tenant_named(directory, (const char *)use.tenant, length, false);
        if (tenant != YB_TENANTS_NONE) {
            yb_tenants_use(directory->tenants, tenant, slot->slot, use.used);
        }
    }
}

static void
answer_heartbeat(struct yb_directory *directory, struct yb_request *request,
                 const struct yb_members_slot *slot, uint64_t version)
{
    struct yb_wire_heartbeat_answer answer = {
        .epoch = directory->epoch,
        .flush_version = yb_tenants_version(directory->tenants),
        .lease_ms = slot != NULL ? directory->options.lease_ms : 0,
        .state = YB_WIRE_SLOT_STATE_DEAD,
    };
    size_t length = 0;

    if (slot != NULL) {
        answer.state = slot->draining ? YB_WIRE_SLOT_STATE_DRAINING : slot->state;
        if (version != answer.flush_version || yb_tenants_limited(directory->tenants)) {
            answer.full = 1;
            answer.tenants.count = list_tenants(directory, slot->slot);
            answer.tenants.wire = directory->list;
        }
    }
    YB_ASSERT(yb_wire_heartbeat_answer_encode(&answer, directory->body, YB_DIRECTORY_BODY_BYTES,
                                              &length) == YB_OK);
    yb_directory_reply(directory, request, slot != NULL ? YB_OK : YB_FENCED, length);
}

void
yb_directory_handle_heartbeat(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_members_slot *slot;
    struct yb_wire_heartbeat body;

    if (yb_wire_heartbeat_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    slot = yb_members_speaker(directory->members, body.slot, body.incarnation);
    if (slot == NULL || body.epoch != directory->epoch) {
        answer_heartbeat(directory, request, NULL, 0);
        return;
    }
    slot->facts.capacity = body.capacity;
    slot->used = body.live + body.in_flight + body.ungranted + body.quarantined;
    slot->backlog = body.backlog;
    slot->rate = body.rate;
    slot->ssd = (struct yb_members_below){body.ssd_backlog, body.ssd_rate, body.ssd_base_us};
    slot->object =
        (struct yb_members_below){body.object_backlog, body.object_rate, body.object_base_us};
    take_use(directory, slot, &body.use);
    yb_members_heard(directory->members, slot, yb_directory_now(directory));
    yb_directory_mirror(directory, slot);
    answer_heartbeat(directory, request, slot, body.flush_version);
}

/* ---- report and set_state -------------------------------------------------------------------- */

void
yb_directory_handle_report(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_reports body;

    if (yb_wire_reports_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    for (uint32_t i = 0; i < body.reports.count; i++) {
        struct yb_wire_report report;
        struct yb_members_slot *slot;

        yb_wire_report_at(&body.reports, i, &report);
        yb_members_report(directory->members, report.slot, report.incarnation,
                          request->peer->identity, report.failures);
        slot = yb_members_at(directory->members, report.slot);
        if (slot != NULL) {
            yb_directory_mirror(directory, slot);
        }
    }
    yb_directory_refuse(request, YB_OK);
}

void
yb_directory_handle_set_state(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_members_slot *slot;
    struct yb_wire_state_order body;
    char name[64];
    bool before;

    if (yb_wire_state_order_decode(request->body, request->body_bytes, &body, NULL) != YB_OK ||
        (body.state != YB_WIRE_SLOT_STATE_SERVING && body.state != YB_WIRE_SLOT_STATE_DRAINING)) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    take_text(name, body.name);
    slot = body.slot != 0 ? yb_members_at(directory->members, body.slot)
                          : yb_members_named(directory->members, name);
    if (slot == NULL || slot->state == YB_WIRE_SLOT_STATE_DEAD) {
        yb_directory_refuse(request, YB_NOT_FOUND);
        return;
    }
    if (request->peer->role == YB_WIRE_ROLE_NODE &&
        !yb_id_equal(request->peer->identity, slot->facts.identity)) {
        yb_directory_refuse(request, YB_DENIED); /* A node may speak for itself. */
        return;
    }
    before = slot->draining;
    if (!before && directory->ports[slot->slot] != NULL) {
        directory->ports[slot->slot]->drain_left = 0; /* Nothing was looked at yet. */
    }
    yb_members_drain(directory->members, slot, body.state == YB_WIRE_SLOT_STATE_DRAINING,
                     body.force != 0);
    if (before != slot->draining) {
        enum yb_status status = yb_directory_store(directory, NULL);

        if (status != YB_OK) {
            yb_members_drain(directory->members, slot, before, false);
            yb_directory_refuse(request, status);
            return;
        }
    }
    yb_directory_mirror(directory, slot);
    yb_directory_repair_tick(directory);
    yb_directory_refuse(request, YB_OK);
}

/* ---- members --------------------------------------------------------------------------------- */

static void
store_member(struct yb_directory *directory, const struct yb_members_slot *slot, uint8_t *out)
{
    const struct yb_directory_port *port = directory->ports[slot->slot];
    bool draining = slot->state == YB_WIRE_SLOT_STATE_DRAINING;
    struct yb_wire_member member = {
        .incarnation = slot->incarnation,
        .capacity = slot->facts.capacity,
        .used = slot->used,
        .backlog = slot->backlog,
        .rate = slot->rate,
        .ssd_backlog = slot->ssd.backlog,
        .ssd_rate = slot->ssd.rate,
        .object_backlog = slot->object.backlog,
        .object_rate = slot->object.rate,
        .ssd_base_us = slot->ssd.base_us,
        .object_base_us = slot->object.base_us,
        .age_ms = (yb_directory_now(directory) - slot->answered_ns) / YB_NS_PER_MS,
        .huge_bytes = slot->facts.huge_bytes,
        .identity = slot->facts.identity,
        .host = slot->facts.host,
        .slot = slot->slot,
        .state = slot->state,
        .drained = draining && slot->drained ? 1 : 0,
        .drain_stuck = draining && port != NULL ? port->drain_left : 0,
    };

    memcpy(member.name, slot->facts.name, sizeof(member.name));
    memcpy(member.address, slot->facts.address, sizeof(member.address));
    memcpy(member.data_address, slot->facts.data_address, sizeof(member.data_address));
    memcpy(member.rack, slot->facts.rack, sizeof(member.rack));
    memcpy(member.zone, slot->facts.zone, sizeof(member.zone));
    yb_wire_member_store(&member, out);
}

void
yb_directory_handle_members(struct yb_directory *directory, struct yb_request *request)
{
    struct yb_wire_members answer = {
        .epoch = directory->epoch,
        .version = yb_members_version(directory->members),
    };
    struct yb_members_slot *slot = NULL;
    struct yb_wire_members_question body;
    size_t length = 0;

    if (yb_wire_members_question_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        yb_directory_refuse(request, YB_INVALID);
        return;
    }
    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        if (slot->state != YB_WIRE_SLOT_STATE_DEAD && answer.members.count < YB_WIRE_MEMBERS_MAX) {
            store_member(directory, slot,
                         directory->list + (size_t)answer.members.count * YB_WIRE_MEMBER_BYTES);
            answer.members.count++;
        }
    }
    answer.members.wire = directory->list;
    YB_ASSERT(yb_wire_members_encode(&answer, directory->body, YB_DIRECTORY_BODY_BYTES, &length) ==
              YB_OK);
    yb_directory_reply(directory, request, YB_OK, length);
}
