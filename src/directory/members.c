/* SPDX-License-Identifier: Apache-2.0
 *
 * The membership, without I/O.
 */
#include "directory/members.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "directory/cluster_file.h"
#include "directory/grant.h"

#define MEMBERS_MAGIC 0x6d656d73u

struct yb_members {
    uint32_t magic;
    struct yb_members_options options;
    struct yb_members_slot *slots; /* [slots_max + 1]; 0 is never used. */
    uint32_t live;
    uint32_t slot_top;  /* No slot above was ever used. */
    uint32_t last_slot; /* Given last: numbers are used again as late as possible. */
    uint64_t last_incarnation;
    uint64_t version;
    uint64_t tick_ns;    /* The caller's time of the last tick. */
    uint64_t counted_ns; /* M2 */
    uint64_t judged_ns;  /* Counted up to the tick before. */
    uint64_t begun_ns;   /* Counted time at which waiting began. */
    struct yb_members_awaited *awaited;
    uint32_t awaited_count;
    struct yb_members_away *away; /* [YB_MEMBERS_AWAY_MAX], oldest first. */
    uint32_t away_count;
    bool *owing; /* Scratch of owe(): who was marked last. */
};

static uint64_t
margin_ns(const struct yb_members *members)
{
    return members->options.lease_ns / 4;
}

/* The counted time of `now_ns`, never less than what a tick at that moment would count. */
static uint64_t
counted_at(const struct yb_members *members, uint64_t now_ns)
{
    uint64_t most = members->options.tick_ns + members->options.tick_ns / 2;
    uint64_t since = now_ns > members->tick_ns ? now_ns - members->tick_ns : 0;

    return members->counted_ns + (since < most ? since : most);
}

static bool
is_live(const struct yb_members_slot *slot)
{
    return slot->state != 0 && slot->state != YB_WIRE_SLOT_STATE_DEAD;
}

/* Give a life the state that its reasons make. */
static void
judge(struct yb_members *members, struct yb_members_slot *slot)
{
    uint8_t state = slot->draining ? YB_WIRE_SLOT_STATE_DRAINING : YB_WIRE_SLOT_STATE_SERVING;

    if (slot->fenced || slot->missed || slot->reported) {
        state = YB_WIRE_SLOT_STATE_SUSPECT;
    }
    if (is_live(slot) && slot->state != state) {
        slot->state = state;
        members->version++;
    }
}

enum yb_status
yb_members_create(const struct yb_members_options *options, struct yb_members **members_out)
{
    struct yb_members *members = calloc(1, sizeof(*members));

    YB_ASSERT(options->slots_max >= 1 && options->slots_max <= YB_MEMBERS_SLOTS_MAX);
    YB_ASSERT(options->tick_ns > 0 && options->lease_ns >= options->tick_ns);
    if (members == NULL) {
        return YB_NO_MEMORY;
    }
    members->slots = calloc((size_t)options->slots_max + 1, sizeof(*members->slots));
    members->away = calloc(YB_MEMBERS_AWAY_MAX, sizeof(*members->away));
    members->owing = calloc((size_t)options->slots_max + 1 + YB_MEMBERS_AWAY_MAX, sizeof(bool));
    if (members->slots == NULL || members->away == NULL || members->owing == NULL) {
        free(members->slots);
        free(members->away);
        free(members->owing);
        free(members);
        return YB_NO_MEMORY;
    }
    members->magic = MEMBERS_MAGIC;
    members->options = *options;
    yb_members_set_epoch(members, options->epoch);
    *members_out = members;
    return YB_OK;
}

void
yb_members_destroy(struct yb_members **members_ref)
{
    struct yb_members *members = *members_ref;

    YB_ASSERT_OBJ(members, MEMBERS_MAGIC);
    *members_ref = NULL;
    members->magic = 0;
    free(members->slots);
    free(members->awaited);
    free(members->away);
    free(members->owing);
    free(members);
}

void
yb_members_begin(struct yb_members *members, uint64_t now_ns)
{
    members->tick_ns = now_ns;
}

void
yb_members_set_epoch(struct yb_members *members, uint64_t epoch)
{
    members->options.epoch = epoch;
    members->last_incarnation = yb_grant_epoch_start(epoch);
    members->version = yb_grant_epoch_start(epoch) + 1;
}

uint64_t
yb_members_version(const struct yb_members *members)
{
    return members->version;
}

/* ---- registration ---------------------------------------------------------------------------- */

enum yb_status
yb_members_await(struct yb_members *members, const struct yb_members_awaited *awaited)
{
    struct yb_members_awaited *grown;

    YB_ASSERT(members->awaited_count < YB_CLUSTER_MEMBERS_MAX);
    grown = realloc(members->awaited, (members->awaited_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return YB_NO_MEMORY;
    }
    members->awaited = grown;
    grown[members->awaited_count++] = *awaited;
    members->begun_ns = members->counted_ns;
    return YB_OK;
}

struct yb_members_awaited *
yb_members_awaited(struct yb_members *members, uint32_t *count_out)
{
    *count_out = members->awaited_count;
    return members->awaited;
}

/* Find the life that says to have `incarnation`. The one before its last counts too, if the same
 * process says so: the answer that named the last may not have reached it. */
static const struct yb_members_slot *
find_life(const struct yb_members *members, const struct yb_members_facts *facts,
          uint64_t incarnation)
{
    for (uint32_t i = 1; incarnation != 0 && i <= members->slot_top; i++) {
        const struct yb_members_slot *slot = &members->slots[i];

        if (is_live(slot) && (slot->incarnation == incarnation ||
                              (slot->previous == incarnation &&
                               yb_id_equal(slot->facts.identity, facts->identity)))) {
            return slot;
        }
    }
    return NULL;
}

static uint16_t
find_free(const struct yb_members *members)
{
    for (uint32_t i = 0; i < members->options.slots_max; i++) {
        uint32_t slot = (members->last_slot + i) % members->options.slots_max + 1;

        if (members->slots[slot].state == 0) {
            return (uint16_t)slot;
        }
    }
    return 0;
}

enum yb_status
yb_members_plan(const struct yb_members *members, const struct yb_members_facts *facts,
                uint64_t incarnation, struct yb_members_plan *plan_out)
{
    const struct yb_members_slot *life = find_life(members, facts, incarnation);
    struct yb_members_plan plan = {.slot = 0};

    for (uint32_t i = 1; i <= members->slot_top; i++) {
        const struct yb_members_slot *slot = &members->slots[i];

        if (is_live(slot) && !slot->fenced && slot != life &&
            strcmp(slot->facts.name, facts->name) == 0) {
            plan.fences = slot->slot;
        }
    }
    if (life != NULL && life->fenced) {
        if (plan.fences != 0) {
            return YB_FENCED;
        }
        life = NULL; /* M5: it begins anew. */
    }
    if (life != NULL) {
        plan.slot = life->slot;
        plan.keep = true;
        plan.continues = true;
        *plan_out = plan;
        return YB_OK;
    }
    for (uint32_t i = 0; i < members->awaited_count; i++) {
        const struct yb_members_awaited *awaited = &members->awaited[i];

        if (awaited->over) {
            continue;
        }
        if (incarnation != 0 &&
            (awaited->incarnation == incarnation || awaited->previous == incarnation)) {
            plan.awaited = i + 1;
            plan.keep = true;
            break;
        }
        if (facts->keeps && awaited->keeps && strcmp(awaited->name, facts->name) == 0) {
            plan.awaited = i + 1; /* Another life, with what the last one kept. */
        }
    }
    plan.slot = members->live < members->options.live_max ? find_free(members) : 0;
    if (plan.slot == 0) {
        return YB_NO_SPACE;
    }
    *plan_out = plan;
    return YB_OK;
}

uint64_t
yb_members_next_incarnation(const struct yb_members *members)
{
    return members->last_incarnation + 1;
}

/* What is known of the blocks that a new life keeps. */
static void
inherit(struct yb_members *members, struct yb_members_slot *slot,
        const struct yb_members_facts *facts, const struct yb_members_plan *plan)
{
    bool known = plan->awaited != 0;

    slot->open = facts->keeps;
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        const struct yb_members_slot *other = &members->slots[i];

        if (is_live(other) && other != slot && other->facts.keeps &&
            strcmp(other->facts.name, facts->name) == 0) {
            known = true;
            slot->owes = slot->owes || other->owes;
            slot->distrusted = slot->distrusted || other->distrusted;
            slot->unknown = slot->unknown || other->unknown;
        }
    }
    for (uint32_t i = 0; i < members->away_count; i++) {
        const struct yb_members_away *away = &members->away[i];

        if (facts->keeps && strcmp(away->name, facts->name) == 0) {
            known = true;
            slot->owes = slot->owes || away->owes;
            slot->distrusted = slot->distrusted || away->distrusted;
            slot->unknown = slot->unknown || away->unknown;
            members->away_count--;
            memmove(&members->away[i], &members->away[i + 1],
                    (members->away_count - i) * sizeof(*away));
            i--;
        }
    }
    slot->unknown = slot->unknown || (facts->keeps && !known); /* Who knows what was ended. */
    slot->owes = slot->owes || slot->distrusted || slot->unknown;
}

struct yb_members_slot *
yb_members_admit(struct yb_members *members, const struct yb_members_plan *plan,
                 const struct yb_members_facts *facts, uint64_t incarnation, uint64_t now_ns)
{
    struct yb_members_slot *slot = &members->slots[plan->slot];

    if (plan->fences != 0) {
        yb_members_fence(members, &members->slots[plan->fences]); /* B3: the later one wins. */
    }
    if (!plan->continues) {
        YB_ASSERT(slot->state == 0);
        *slot = (struct yb_members_slot){
            .slot = plan->slot,
            .state = YB_WIRE_SLOT_STATE_SERVING,
            .complete = !plan->keep && (plan->awaited == 0 || !facts->keeps),
        };
        members->live++;
        members->last_slot = plan->slot;
        members->slot_top = plan->slot > members->slot_top ? plan->slot : members->slot_top;
    }
    if (plan->awaited != 0) {
        struct yb_members_awaited *awaited = &members->awaited[plan->awaited - 1];

        awaited->over = true;
        slot->draining = awaited->draining;
        slot->owes = slot->distrusted = awaited->owes;
    }
    if (!plan->continues) {
        inherit(members, slot, facts, plan);
    }
    slot->facts = *facts;
    slot->previous = plan->keep ? incarnation : 0;
    YB_ASSERT(yb_grant_next(&members->last_incarnation));
    slot->incarnation = members->last_incarnation; /* M1 */
    members->version++;
    yb_members_heard(members, slot, now_ns);
    return slot;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct yb_members_slot *
yb_members_at(struct yb_members *members, uint32_t slot)
{
    if (slot == 0 || slot > members->options.slots_max || members->slots[slot].state == 0) {
        return NULL;
    }
    return &members->slots[slot];
}

struct yb_members_slot *
yb_members_speaker(struct yb_members *members, uint32_t slot, uint64_t incarnation)
{
    struct yb_members_slot *found = yb_members_at(members, slot);

    if (found == NULL || !is_live(found) || found->fenced || found->incarnation != incarnation) {
        return NULL;
    }
    return found;
}

struct yb_members_slot *
yb_members_next(struct yb_members *members, uint32_t slot)
{
    for (slot++; slot <= members->slot_top; slot++) {
        if (members->slots[slot].state != 0) {
            return &members->slots[slot];
        }
    }
    return NULL;
}

struct yb_members_slot *
yb_members_named(struct yb_members *members, const char *name)
{
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        struct yb_members_slot *slot = &members->slots[i];

        if (is_live(slot) && !slot->fenced && strcmp(slot->facts.name, name) == 0) {
            return slot;
        }
    }
    return NULL;
}

void
yb_members_heard(struct yb_members *members, struct yb_members_slot *slot, uint64_t now_ns)
{
    slot->heard_ns = counted_at(members, now_ns);
    slot->answered_ns = now_ns;
    slot->missed = false;
    if (slot->heard_ns - slot->report_ns > members->options.lease_ns) { /* It has been quiet. */
        slot->reported = false;
        slot->reporters = 0;
        slot->failures = 0;
    }
    judge(members, slot);
}

void
yb_members_report(struct yb_members *members, uint32_t number, uint64_t incarnation,
                  struct yb_id reporter, uint32_t failures)
{
    struct yb_members_slot *slot = yb_members_at(members, number);

    if (slot == NULL || !is_live(slot) || slot->incarnation != incarnation || failures == 0) {
        return;
    }
    if (members->counted_ns > slot->report_ns + members->options.lease_ns && !slot->reported) {
        slot->reporters = 0; /* What was before is forgotten. */
        slot->failures = 0;
    }
    if (slot->reporters == 0) {
        slot->reporter = reporter;
        slot->reporters = 1;
    } else if (!yb_id_equal(slot->reporter, reporter)) {
        slot->reporters = YB_MEMBERS_REPORTERS;
    }
    slot->failures += failures < YB_MEMBERS_FAILURES ? failures : YB_MEMBERS_FAILURES;
    slot->failures = slot->failures < YB_MEMBERS_FAILURES ? slot->failures : YB_MEMBERS_FAILURES;
    slot->report_ns = members->counted_ns;
    if (slot->reporters >= YB_MEMBERS_REPORTERS || slot->failures >= YB_MEMBERS_FAILURES) {
        slot->reported = true;
    }
    judge(members, slot);
}

void
yb_members_drain(struct yb_members *members, struct yb_members_slot *slot, bool draining,
                 bool force)
{
    slot->draining = draining;
    slot->force = draining && force;
    slot->drained = slot->drained && draining;
    judge(members, slot);
}

void
yb_members_fence(struct yb_members *members, struct yb_members_slot *slot)
{
    slot->fenced = true;
    judge(members, slot);
    members->version++;
}

void
yb_members_tells(struct yb_members_slot *slot)
{
    slot->telling = true;
    slot->decided = 0;
}

void
yb_members_complete(struct yb_members_slot *slot, uint32_t told)
{
    slot->complete = true;
    slot->told = told;
    slot->telling = false;
}

void
yb_members_decided(struct yb_members_slot *slot, uint32_t count)
{
    slot->decided += count;
}

/* ---- who keeps blocks ------------------------------------------------------------------------ */

void
yb_members_put_away(struct yb_members *members, const struct yb_members_away *away)
{
    if (members->away_count == YB_MEMBERS_AWAY_MAX) {
        members->away_count--;
        memmove(members->away, members->away + 1, members->away_count * sizeof(*away));
    }
    members->away[members->away_count++] = *away;
}

void
yb_members_take_away(struct yb_members *members)
{
    YB_ASSERT(members->away_count > 0);
    members->away_count--;
}

const struct yb_members_away *
yb_members_away(const struct yb_members *members, uint32_t *count_out)
{
    *count_out = members->away_count;
    return members->away;
}

bool
yb_members_parties(const struct yb_members *members)
{
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        if (is_live(&members->slots[i]) && members->slots[i].open) {
            return true;
        }
    }
    return members->away_count > 0;
}

/* Mark one, or take the mark back that was set last. */
static bool
owe(bool *owes, bool *owing, bool mark)
{
    if (!mark) {
        *owes = *owes && !*owing;
        *owing = false;
        return false;
    }
    *owing = !*owes;
    *owes = true;
    return *owing;
}

bool
yb_members_owe(struct yb_members *members, bool mark)
{
    bool *owing = members->owing;
    bool any = false;

    for (uint32_t i = 1; i <= members->slot_top; i++) {
        struct yb_members_slot *slot = &members->slots[i];

        if (is_live(slot) && slot->open) {
            any = owe(&slot->owes, &owing[i], mark) || any;
        }
    }
    owing += members->options.slots_max + 1;
    for (uint32_t i = 0; i < members->away_count; i++) {
        any = owe(&members->away[i].owes, &owing[i], mark) || any;
    }
    return any;
}

void
yb_members_distrust(struct yb_members *members)
{
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        struct yb_members_slot *slot = &members->slots[i];

        slot->distrusted = slot->distrusted || (is_live(slot) && slot->open);
    }
    for (uint32_t i = 0; i < members->away_count; i++) {
        members->away[i].distrusted = true;
    }
}

bool
yb_members_kills_lost(const struct yb_members *members)
{
    bool lost = members->away_count == YB_MEMBERS_AWAY_MAX; /* One may have been forgotten. */

    for (uint32_t i = 0; i < members->away_count; i++) {
        lost = lost || members->away[i].distrusted;
    }
    for (uint32_t i = 0; i < members->awaited_count; i++) {
        lost = lost || (!members->awaited[i].over && members->awaited[i].owes);
    }
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        lost = lost || (is_live(&members->slots[i]) && members->slots[i].distrusted);
    }
    return lost;
}

/* ---- time ------------------------------------------------------------------------------------ */

void
yb_members_tick(struct yb_members *members, uint64_t now_ns)
{
    uint64_t counted_ns = counted_at(members, now_ns);

    members->judged_ns = members->counted_ns;
    members->counted_ns = counted_ns;
    members->tick_ns = now_ns;
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        struct yb_members_slot *slot = &members->slots[i];

        if (is_live(slot) && members->judged_ns > slot->heard_ns + members->options.lease_ns / 2) {
            slot->missed = true;
            judge(members, slot);
        }
    }
}

bool
yb_members_overdue(const struct yb_members *members, const struct yb_members_slot *slot)
{
    return is_live(slot) &&
           members->judged_ns > slot->heard_ns + members->options.lease_ns + margin_ns(members);
}

bool
yb_members_awaited_overdue(const struct yb_members *members)
{
    return members->judged_ns > members->begun_ns + members->options.lease_ns + margin_ns(members);
}

void
yb_members_kill(struct yb_members *members, struct yb_members_slot *slot)
{
    YB_ASSERT(is_live(slot));
    slot->state = YB_WIRE_SLOT_STATE_DEAD;
    slot->complete = true; /* Nothing of it is waited for. */
    members->live--;
    members->version++;
}

void
yb_members_release(struct yb_members *members, struct yb_members_slot *slot)
{
    (void)members;
    YB_ASSERT(slot->state == YB_WIRE_SLOT_STATE_DEAD);
    *slot = (struct yb_members_slot){.state = 0};
}

/* How many have not named all that they hold. */
static uint32_t
unnamed(const struct yb_members *members)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < members->awaited_count; i++) {
        count += members->awaited[i].over ? 0 : 1;
    }
    for (uint32_t i = 1; i <= members->slot_top; i++) {
        count += is_live(&members->slots[i]) && !members->slots[i].complete ? 1 : 0;
    }
    return count;
}

bool
yb_members_all_named(const struct yb_members *members)
{
    return unnamed(members) == 0;
}

bool
yb_members_rebuilding(const struct yb_members *members, uint32_t *permille_out)
{
    uint32_t missing = unnamed(members);

    for (uint32_t i = 1; i <= members->slot_top; i++) {
        const struct yb_members_slot *slot = &members->slots[i];

        missing += is_live(slot) && slot->complete && (slot->telling || slot->decided < slot->told)
                       ? 1
                       : 0;
    }
    if (permille_out != NULL) {
        uint32_t all = members->awaited_count > missing ? members->awaited_count : missing;

        *permille_out = missing == 0 ? 1000 : (all - missing) * 1000 / all;
    }
    return missing > 0;
}

uint32_t
yb_members_live(const struct yb_members *members)
{
    return members->live;
}
