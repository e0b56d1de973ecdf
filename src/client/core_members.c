/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is there: the nodes of the cluster, as the directory tells them and as they were met.
 */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "client/core_internal.h"
#include "client/news.h"

#define ASK_NS        (1 * YB_NS_PER_S)
#define ASK_RETRY_NS  (20 * YB_NS_PER_MS)
#define REST_NS       (3 * YB_NS_PER_MS)
#define FAILED_MIN_NS (200 * YB_NS_PER_MS)
#define FAILED_MAX_NS (2 * YB_NS_PER_S)

static void ask(struct yb_client_core *core, bool join);

/* ---- members -------------------------------------------------------------------------------- */

uint32_t
yb_core_row(const struct yb_client_core *core, uint16_t slot)
{
    return core->row_of_slot[slot] == 0 ? YB_CORE_NONE : core->row_of_slot[slot] - 1u;
}

struct yb_core_member *
yb_core_member(struct yb_client_core *core, uint16_t slot)
{
    uint32_t row = yb_core_row(core, slot);

    return row == YB_CORE_NONE ? NULL : &core->members[row];
}

/* What of a node is known to choose by. */
static void
set_choice(struct yb_client_core *core, uint32_t row)
{
    const struct yb_core_member *member = &core->members[row];
    const struct yb_wire_member *wire = &member->wire;
    struct yb_choice *choice = &core->choices[row];
    uint64_t busy = choice->busy_bytes;
    bool failed = yb_core_now(core) < member->failed_until_ns;

    *choice = (struct yb_choice){
        .slot = wire->slot,
        .writable = wire->state == YB_WIRE_SLOT_STATE_SERVING && !failed && member->peer != NULL,
        .failed = failed || member->peer == NULL,
        .local = !yb_id_is_none(wire->host) && yb_id_equal(wire->host, core->options.host),
        .zone = wire->zone[0] == 0 ? 0 : (uint32_t)yb_hash_table(1, wire->zone, 32) | 1u,
        .rack = wire->rack[0] == 0 ? 0 : (uint32_t)yb_hash_table(2, wire->rack, 32) | 1u,
        .host = yb_id_is_none(wire->host) ? 0 : (uint32_t)yb_hash_table_id(3, wire->host) | 1u,
        .free_bytes = wire->capacity > wire->used ? wire->capacity - wire->used : 0,
        .capacity = wire->capacity,
        .busy_bytes = busy,
    };
}

static void
member_failed(struct yb_client_core *core, const struct yb_core_io *io)
{
    struct yb_core_member *member = yb_core_member(core, io->slot);
    uint64_t rest_ns = FAILED_MIN_NS;

    if (member == NULL || member->wire.incarnation != io->incarnation) {
        return;
    }
    member->unreported++;
    if (member->failures > 0 && io->call.began_ns <= member->failed_ns) {
        return; /* One cut ends all that is under way: it is one failure. */
    }
    member->failures++;
    member->failed_ns = yb_core_now(core);
    for (uint32_t i = 1; i < member->failures && rest_ns < FAILED_MAX_NS; i++) {
        rest_ns *= 2;
    }
    member->failed_until_ns =
        yb_core_now(core) + (rest_ns < FAILED_MAX_NS ? rest_ns : FAILED_MAX_NS);
    set_choice(core, (uint32_t)(member - core->members));
    yb_core_refresh(core);
}

static void
member_lives(struct yb_client_core *core, const struct yb_core_io *io)
{
    struct yb_core_member *member = yb_core_member(core, io->slot);

    if (member == NULL || member->wire.incarnation != io->incarnation) {
        return;
    }
    if (member->failures != 0) {
        member->failures = 0;
        member->failed_until_ns = 0;
        set_choice(core, (uint32_t)(member - core->members));
    }
}

bool
yb_core_member_heard(const struct yb_core_io *io)
{
    bool lives = io->call.answered && io->call.status != YB_FENCED;

    if (lives) {
        member_lives(io->core, io);
    } else if (!io->work->cancelled && io->call.status != YB_CANCELLED &&
               !yb_core_fetch_hurried(io)) {
        member_failed(io->core, io);
    }
    return lives;
}

void
yb_core_member_drop(struct yb_client_core *core, uint32_t row)
{
    uint32_t last = core->member_count - 1;

    core->row_of_slot[core->members[row].wire.slot] = 0;
    if (core->members[row].peer != NULL) {
        yb_peer_destroy(&core->members[row].peer);
    }
    yb_core_near_close(core, &core->members[row]);
    if (row != last) {
        core->members[row] = core->members[last];
        core->choices[row] = core->choices[last];
        core->row_of_slot[core->members[row].wire.slot] = (uint16_t)(row + 1);
    }
    core->member_count = last;
}

static void
add_member(struct yb_client_core *core, const struct yb_wire_member *wire)
{
    struct yb_address_list list = {.count = 1};
    char why[YB_ADDRESS_WHY_BYTES];
    char address[65] = {0};
    struct yb_core_member *member;

    if (core->member_count == YB_CORE_MEMBERS_MAX) {
        return;
    }
    member = &core->members[core->member_count];
    memset(member, 0, sizeof(*member));
    memset(&core->choices[core->member_count], 0, sizeof(core->choices[0]));
    member->wire = *wire;
    memcpy(address, wire->address, sizeof(wire->address));
    if (yb_address_parse(address, 0, &list.items[0], why) != YB_OK ||
        yb_peer_create(core->net, &list, wire->identity, &member->peer) != YB_OK) {
        member->peer = NULL;
    }
    core->row_of_slot[wire->slot] = (uint16_t)(core->member_count + 1);
    core->member_count++;
}

/* Take a new list of members: lives that are not in it are gone. */
static void
take_members(struct yb_client_core *core, const struct yb_wire_members *answer)
{
    for (uint32_t row = 0; row < core->member_count; row++) {
        core->members[row].seen = false;
    }
    for (uint32_t i = 0; i < answer->members.count; i++) {
        struct yb_core_member *member;
        struct yb_wire_member wire;

        yb_wire_member_at(&answer->members, i, &wire);
        if (wire.slot == 0) {
            continue;
        }
        member = yb_core_member(core, wire.slot);
        if (member != NULL && member->wire.incarnation != wire.incarnation) {
            yb_core_member_drop(core, yb_core_row(core, wire.slot));
            member = NULL;
        }
        if (member == NULL) {
            add_member(core, &wire);
            member = yb_core_member(core, wire.slot);
        }
        if (member != NULL) {
            member->wire = wire;
            member->seen = true;
            yb_core_near_open(core, member);
            set_choice(core, (uint32_t)(member - core->members));
        }
    }
    for (uint32_t row = core->member_count; row > 0; row--) {
        if (!core->members[row - 1].seen) {
            yb_core_member_drop(core, row - 1);
        }
    }
}

/* ---- asking the directory who is there ------------------------------------------------------- */

/* The incarnation of the directory that we are connected to; 0: not known. */
static uint64_t
directory_life(const struct yb_client_core *core)
{
    const struct yb_hello_result *result = yb_peer_result(core->directory);

    return result != NULL ? result->incarnation : 0;
}

void
yb_core_rejoin(struct yb_client_core *core)
{
    core->joined = false;
    yb_core_refresh(core);
}

bool
yb_core_current(const struct yb_core_io *io)
{
    struct yb_client_core *core = io->core;

    if (directory_life(core) != core->life) {
        yb_core_rejoin(core);
        return false;
    }
    return io->life == core->life;
}

bool
yb_core_epoch(struct yb_client_core *core, uint64_t epoch)
{
    if (epoch < core->epoch) {
        return false;
    }
    if (epoch > core->epoch) {
        core->epoch = epoch;
        core->members_version = 0;
        core->joined = false; /* Another directory: its cluster and seed are asked first. */
        yb_core_refresh(core);
    }
    return true;
}

void
yb_core_versions(struct yb_client_core *core, uint64_t members_version)
{
    if (members_version != core->members_version) {
        yb_core_refresh(core);
    }
}

void
yb_core_refresh(struct yb_client_core *core)
{
    if (!core->stopping && !core->asking) {
        yb_loop_arm(yb_net_loop(core->net), &core->refresh, yb_core_now(core) + REST_NS);
    }
}

void
yb_core_freshen(struct yb_client_core *core)
{
    uint64_t now = yb_core_now(core);

    if (core->joined && yb_news_left_ns(core->members_ns, core->member_count, now) == 0) {
        core->members_ns = now; /* Asked for: others need not. */
        yb_core_refresh(core);
    }
}

static void
tell(struct yb_client_core *core, enum yb_status status)
{
    if (core->options.news != NULL) {
        core->options.news(core->options.news_owner, status);
    }
}

static void
ask_again(struct yb_client_core *core, uint64_t delay_ns)
{
    if (!core->stopping) {
        yb_loop_arm(yb_net_loop(core->net), &core->refresh, yb_core_now(core) + delay_ns);
    }
}

static void
on_members(struct yb_call *call)
{
    struct yb_client_core *core = call->owner;
    struct yb_wire_members answer;

    core->asking = false;
    if (core->stopping) {
        return;
    }
    if (call->status != YB_OK ||
        yb_wire_members_decode(core->ask_reply, call->reply_body_bytes, &answer, NULL) != YB_OK ||
        answer.epoch < core->epoch) {
        ask_again(core, ASK_RETRY_NS);
        tell(core, call->status != YB_OK ? call->status : YB_PROTOCOL);
        return;
    }
    if (answer.epoch > core->epoch) {
        (void)yb_core_epoch(core, answer.epoch);
        ask_again(core, 0);
        return;
    }
    take_members(core, &answer);
    if (answer.version != core->members_version) {
        yb_core_wake(core);
    }
    core->members_version = answer.version;
    core->members_ns = yb_core_now(core);
    core->joined = true;
    tell(core, YB_OK);
    for (struct yb_core_work *work = core->works; work != NULL; work = work->next) {
        yb_core_pump_soon(work);
    }
    ask_again(core, core->options.members_ms * YB_NS_PER_MS);
}

/* Hash the keys of what is under way again, under another seed. */
static void
rehash(struct yb_client_core *core)
{
    struct yb_hash_bytes tenant = {core->options.tenant, strlen(core->options.tenant)};

    for (struct yb_core_work *work = core->works; work != NULL; work = work->next) {
        for (uint32_t i = 0; i < work->joined; i++) {
            const struct yb_client_item *item = &work->batch->items[i];
            struct yb_hash_bytes key = {item->key, item->key_bytes};

            work->items[i].hash = yb_hash_key(core->seed, tenant, key);
        }
    }
}

static void
on_cluster(struct yb_call *call)
{
    struct yb_client_core *core = call->owner;
    struct yb_wire_cluster answer;
    bool same;

    core->asking = false;
    if (core->stopping) {
        return;
    }
    if (call->status != YB_OK ||
        yb_wire_cluster_decode(core->ask_reply, call->reply_body_bytes, &answer, NULL) != YB_OK) {
        ask_again(core, ASK_RETRY_NS);
        tell(core, call->status != YB_OK ? call->status : YB_PROTOCOL);
        return;
    }
    same = memcmp(answer.seed, core->seed, sizeof(core->seed)) == 0 &&
           yb_id_equal(answer.cluster, core->cluster);
    if (same && answer.epoch < core->epoch) { /* An old leader; a new cluster begins anew. */
        ask_again(core, ASK_RETRY_NS);
        return;
    }
    if (!same) {
        yb_hints_clear(core->hints);
        memcpy(core->seed, answer.seed, sizeof(core->seed));
        core->cluster = answer.cluster;
        core->clusters++;
        while (core->member_count > 0) { /* Its slots and lives are numbered anew. */
            yb_core_member_drop(core, core->member_count - 1);
        }
        rehash(core);
    }
    core->life = directory_life(core);
    core->epoch = answer.epoch;
    core->members_version = 0;
    ask(core, false);
}

/* Ask for the cluster, or for its members. */
static void
ask(struct yb_client_core *core, bool join)
{
    struct yb_wire_members_question question = {.known = core->members_version};
    size_t length = 0;

    core->ask = (struct yb_call){
        .type = join ? YB_WIRE_DIRECTORY_TYPE_JOIN : YB_WIRE_DIRECTORY_TYPE_MEMBERS,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_core_now(core) + ASK_NS,
        .reply_body = core->ask_reply,
        .reply_body_room = YB_CORE_MEMBERS_REPLY,
        .done = join ? on_cluster : on_members,
        .owner = core,
    };
    if (!join) {
        if (yb_wire_members_question_encode(&question, core->ask_body, sizeof(core->ask_body),
                                            &length) != YB_OK) {
            YB_ASSERT(false);
        }
        core->ask.body = core->ask_body;
        core->ask.body_bytes = (uint32_t)length;
    }
    if (yb_peer_call(core->directory, &core->ask) == YB_OK) {
        core->asking = true;
    } else {
        ask_again(core, ASK_RETRY_NS);
    }
}

static void
on_reported(struct yb_call *call)
{
    ((struct yb_client_core *)call->owner)->reporting = false;
}

/* Tell the directory which nodes could not be reached: it places nothing there for a while (F7). */
static void
report(struct yb_client_core *core)
{
    struct yb_wire_report rows[256];
    struct yb_wire_reports body = {.reports = {.native = rows}};
    size_t length = 0;

    if (core->reporting) {
        return;
    }
    for (uint32_t row = 0; row < core->member_count && body.reports.count < 256; row++) {
        struct yb_core_member *member = &core->members[row];

        if (member->unreported > 0) {
            rows[body.reports.count++] = (struct yb_wire_report){
                .incarnation = member->wire.incarnation,
                .failures = member->unreported,
                .slot = member->wire.slot,
            };
            member->unreported = 0;
        }
    }
    if (body.reports.count == 0 ||
        yb_wire_reports_encode(&body, core->report_body, sizeof(core->report_body), &length) !=
            YB_OK) {
        return;
    }
    core->report = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_REPORT,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_core_now(core) + ASK_NS,
        .body = core->report_body,
        .body_bytes = (uint32_t)length,
        .done = on_reported,
        .owner = core,
    };
    core->reporting = yb_peer_call(core->directory, &core->report) == YB_OK;
}

void
yb_core_on_refresh(struct yb_timer *timer)
{
    struct yb_client_core *core =
        (struct yb_client_core *)((uint8_t *)timer - offsetof(struct yb_client_core, refresh));

    if (core->stopping || core->asking) {
        return;
    }
    report(core);
    for (uint32_t row = 0; row < core->member_count; row++) {
        set_choice(core, row); /* A node that failed may be tried again. */
    }
    ask(core, !core->joined);
}
