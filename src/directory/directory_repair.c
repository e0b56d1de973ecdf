/* SPDX-License-Identifier: Apache-2.0
 *
 * The sweep, and the copies that it and a drain find to be made.
 *
 * A sweep visits all records in steps of less than a millisecond, gives back what deaths and
 * flushes have ended, and tells of blocks that are on fewer slots than they want. These wait in a
 * ring; from there nodes are ordered to fetch copies, a bounded number at a time, in the
 * background class. A
 * node that drains is walked the same way: what is on enough other slots is trimmed, the record
 * first and then the node (RULES B4); of the rest copies are made elsewhere first. A last copy that
 * fits nowhere stays, and the walk is repeated (C7).
 */
#include "directory/directory_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SWEEP_PAUSE_NS  YB_NS_PER_MS
#define SWEEP_RECORDS   (YB_INDEX_SWEEP_STEP / 2) /* A step begins copies, too. */
#define SWEEP_REPAIRS   256u
#define WALK_RECORDS    4096u
#define WALK_ENTRIES    64u
#define COPY_TIMEOUT_NS (60 * YB_NS_PER_S)
#define RATE_NS         YB_NS_PER_S

/* ---- choosing -------------------------------------------------------------------------------- */

/* Return how bad it would be to have two copies in these places, weighed as in client/choose.c. */
static uint32_t
nearness(const struct yb_members_slot *a, const struct yb_members_slot *b)
{
    bool host = !yb_id_is_none(a->facts.host) && yb_id_equal(a->facts.host, b->facts.host);
    bool rack = a->facts.rack[0] != '\0' && strcmp(a->facts.rack, b->facts.rack) == 0;
    bool zone = a->facts.zone[0] != '\0' && strcmp(a->facts.zone, b->facts.zone) == 0;

    return (host ? 4u : 0u) + (rack ? 2u : 0u) + (zone ? 1u : 0u);
}

/* Return the bytes that are free on a slot, less those that are on their way there. */
static uint64_t
free_bytes(const struct yb_directory *directory, const struct yb_members_slot *slot)
{
    uint64_t used = slot->used;

    for (uint32_t i = 0; i < directory->copies_busy; i++) {
        const struct yb_directory_copy *copy = directory->copies_under_way[i];

        for (uint32_t j = 0; copy->target == slot->slot && j < copy->count; j++) {
            used += copy->sizes[j];
        }
    }
    return slot->facts.capacity > used ? slot->facts.capacity - used : 0;
}

#define NO_PLACE UINT32_MAX

/* Return how near a slot is to the copies that stay; NO_PLACE: it can take none. */
static uint32_t
place_on(struct yb_directory *directory, const struct yb_members_slot *slot,
         const struct yb_index_answer *block, uint16_t leaving, uint64_t size)
{
    uint32_t near = 0;

    if (slot->state != YB_WIRE_SLOT_STATE_SERVING || free_bytes(directory, slot) < size) {
        return NO_PLACE; /* C7: draining slots are no targets. */
    }
    if (yb_trims_has(directory->trims, slot->slot, block->grant)) {
        return NO_PLACE; /* B4: the drop is under way, and names the same grant. */
    }
    for (uint32_t i = 0; i < block->count; i++) {
        const struct yb_members_slot *other =
            yb_members_at(directory->members, block->replicas[i].slot);
        uint32_t with = other != NULL && other->slot != leaving ? nearness(slot, other) : 0;

        if (block->replicas[i].slot == slot->slot) {
            return NO_PLACE;
        }
        near = with > near ? with : near;
    }
    return near;
}

/* Choose where a block gets its next copy: as far from the others as can be, then where more is
 * free of two slots that its hash names: not all on whoever is new. Returns 0 if it fits
 * nowhere. */
static uint16_t
choose_target(struct yb_directory *directory, const struct yb_index_answer *block, uint16_t leaving,
              struct yb_id hash)
{
    uint64_t size = yb_index_size_decode(block->size_code);
    struct yb_members_slot *slot = NULL;
    struct yb_members_slot *best = NULL;
    uint32_t nearest = NO_PLACE;
    uint32_t count = 0;
    uint32_t draws[2];
    uint32_t at = 0;

    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        uint32_t near = place_on(directory, slot, block, leaving, size);

        count = near < nearest ? 0 : count;
        nearest = near < nearest ? near : nearest;
        count += near == nearest && near != NO_PLACE ? 1 : 0;
    }
    if (count == 0) {
        return 0;
    }
    draws[0] = (uint32_t)(yb_hash_table_id(1, hash) % count);
    draws[1] = (uint32_t)(yb_hash_table_id(2, hash) % count);
    while ((slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        if (place_on(directory, slot, block, leaving, size) != nearest) {
            continue;
        }
        if ((at == draws[0] || at == draws[1]) &&
            (best == NULL || free_bytes(directory, slot) > free_bytes(directory, best))) {
            best = slot;
        }
        at++;
    }
    return best->slot;
}

/* Choose where to copy from: the index names those that are not suspect first. */
static uint16_t
choose_source(struct yb_directory *directory, const struct yb_index_answer *block)
{
    for (uint32_t i = 0; i < block->live; i++) {
        const struct yb_members_slot *slot =
            yb_members_at(directory->members, block->replicas[i].slot);

        if (slot != NULL && slot->state == YB_WIRE_SLOT_STATE_SERVING) {
            return slot->slot;
        }
    }
    return block->live > 0 ? block->replicas[0].slot : 0;
}

/* Return on how many slots a block is that are to stay: neither draining nor suspect. */
static uint32_t
staying(struct yb_directory *directory, const struct yb_index_answer *block)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < block->count; i++) {
        const struct yb_members_slot *slot =
            yb_members_at(directory->members, block->replicas[i].slot);
        bool again = false;

        for (uint32_t j = 0; j < i; j++) {
            again = again || block->replicas[j].slot == block->replicas[i].slot;
        }
        if (again) {
            continue; /* In another tier. */
        }
        count += slot != NULL && slot->state == YB_WIRE_SLOT_STATE_SERVING ? 1 : 0;
    }
    return count;
}

/* ---- the ring -------------------------------------------------------------------------------- */

static uint32_t
ring_room(const struct yb_directory *directory)
{
    return YB_DIRECTORY_REPAIRS_MAX - directory->repair_count;
}

static bool
ring_push(struct yb_directory *directory, const struct yb_directory_repair *repair)
{
    if (directory->repairs == NULL) {
        directory->repairs = malloc(YB_DIRECTORY_REPAIRS_MAX * sizeof(*directory->repairs));
    }
    if (directory->repairs == NULL || ring_room(directory) == 0) {
        yb_directory_count(directory, YB_DIRECTORY_STAT_REPAIRS_LOST, 1);
        yb_directory_repair_after(directory, yb_directory_now(directory) + directory->lease_ns);
        return false;
    }
    directory->repairs[(directory->repair_first + directory->repair_count++) %
                       YB_DIRECTORY_REPAIRS_MAX] = *repair;
    return true;
}

static bool
is_under_way(const struct yb_directory *directory, const struct yb_directory_repair *repair)
{
    for (uint32_t i = 0; i < directory->copies_busy; i++) {
        const struct yb_directory_copy *copy = directory->copies_under_way[i];

        for (uint32_t j = 0; j < copy->count; j++) {
            if (copy->items[j].tenant == repair->tenant &&
                yb_id_equal(copy->items[j].hash, repair->hash)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void start_copies(struct yb_directory *directory);

static void
count_copies(struct yb_directory_copy *copy)
{
    struct yb_directory *directory = copy->directory;
    struct yb_wire_copy_answers answers = {.answers = {.count = 0}};
    enum yb_status status = copy->call.status;

    if (status == YB_OK) {
        status =
            yb_wire_copy_answers_decode(copy->reply, copy->call.reply_body_bytes, &answers, NULL);
    }
    if (status != YB_OK) {
        answers.answers.count = 0;
    }
    for (uint32_t i = 0; i < copy->count; i++) {
        /* An answer that is too short tells nothing of the rest. */
        struct yb_wire_copy_answer answer = {
            .status = (int32_t)(status != YB_OK ? status : YB_PEER_LOST)};

        if (i < answers.answers.count) {
            yb_wire_copy_answer_at(&answers.answers, i, &answer);
        }
        if (answer.status == (int32_t)YB_OK) {
            directory->repaired++;
            directory->repaired_bytes += copy->sizes[i];
            yb_directory_count(directory, YB_DIRECTORY_STAT_REPAIRED, 1);
            yb_directory_count(directory, YB_DIRECTORY_STAT_REPAIRED_BYTES, copy->sizes[i]);
        } else {
            yb_directory_count_status(directory, YB_DIRECTORY_STAT_REPAIR_FAILED,
                                      (enum yb_status)answer.status);
            yb_directory_repair_after(directory, yb_directory_now(directory) + directory->lease_ns);
        }
    }
}

static void
copy_done(struct yb_call *call)
{
    struct yb_directory_copy *copy = call->owner;
    struct yb_directory *directory = copy->directory;

    directory->calls--;
    for (uint32_t i = 0; i < directory->copies_busy; i++) {
        if (directory->copies_under_way[i] == copy) {
            directory->copies_under_way[i] = directory->copies_under_way[--directory->copies_busy];
            break;
        }
    }
    directory->copying -= copy->count;
    if (!directory->stopping) {
        count_copies(copy);
    }
    copy->next = directory->copies;
    directory->copies = copy;
    if (!directory->stopping) {
        start_copies(directory);
    }
}

static struct yb_directory_copy *
take_copy(struct yb_directory *directory)
{
    struct yb_directory_copy *copy = directory->copies;

    if (copy != NULL) {
        directory->copies = copy->next;
    } else {
        copy = calloc(1, sizeof(*copy));
    }
    if (copy != NULL) {
        copy->directory = directory;
        copy->count = 0;
    }
    return copy;
}

/* Send an order to copy. What cannot be sent is found again by a later sweep. */
static void
send_copy(struct yb_directory *directory, struct yb_directory_copy *copy, uint16_t source)
{
    const struct yb_members_slot *target = yb_members_at(directory->members, copy->target);
    const struct yb_members_slot *from = yb_members_at(directory->members, source);
    struct yb_directory_port *port = directory->ports[copy->target];
    struct yb_wire_copy_item items[YB_DIRECTORY_COPY_ITEMS];
    struct yb_wire_copies copies = {
        .epoch = directory->epoch,
        .incarnation = target->incarnation,
        .source = from->incarnation,
        .address = yb_wire_text_of(from->facts.address),
        .items = {.native = items, .count = copy->count},
    };
    size_t length = 0;

    for (uint32_t i = 0; i < copy->count; i++) {
        items[i] = (struct yb_wire_copy_item){
            .hash = copy->items[i].hash,
            .grant = copy->items[i].grant,
            .size = copy->sizes[i],
        };
    }
    YB_ASSERT(yb_wire_copies_encode(&copies, copy->body, sizeof(copy->body), &length) == YB_OK);
    copy->call = (struct yb_call){
        .type = YB_WIRE_NODE_TYPE_COPY,
        .class = YB_CLASS_BACKGROUND,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_directory_now(directory) + COPY_TIMEOUT_NS,
        .mutates = true,
        .body = copy->body,
        .body_bytes = (uint32_t)length,
        .reply_body = copy->reply,
        .reply_body_room = sizeof(copy->reply),
        .done = copy_done,
        .owner = copy,
    };
    if (port == NULL || port->peer == NULL || yb_peer_call(port->peer, &copy->call) != YB_OK) {
        copy->next = directory->copies;
        directory->copies = copy;
        yb_directory_repair_after(directory, yb_directory_now(directory) + directory->lease_ns);
        return;
    }
    directory->calls++;
    directory->copying += copy->count;
    directory->copies_under_way[directory->copies_busy++] = copy;
}

/* What a block that waits needs now. */
struct need {
    uint16_t source;
    uint16_t target; /* 0: nothing. */
    uint64_t size;
};

static struct need
judge(struct yb_directory *directory, const struct yb_directory_repair *repair)
{
    struct yb_index_query query = {
        .tenant = repair->tenant,
        .now_ms = yb_directory_now_ms(directory),
    };
    struct yb_index_answer block;
    struct need need = {.target = 0};

    yb_index_lookup(directory->index, &query, &repair->hash, 1, &block);
    if (block.grant != repair->grant || block.live == 0 || is_under_way(directory, repair)) {
        return need; /* It is another one by now, or gone. */
    }
    if (repair->leaving == 0 ? block.count >= yb_index_wanted(block.flags)
                             : staying(directory, &block) >= 1 &&
                                   staying(directory, &block) >= yb_index_wanted(block.flags)) {
        return need;
    }
    need.size = yb_index_size_decode(block.size_code);
    need.source = choose_source(directory, &block);
    need.target = choose_target(directory, &block, repair->leaving, repair->hash);
    return need;
}

/* Order copies of the blocks that have waited longest, as many as may be under way. Neighbours in
 * the ring that go the same way travel in one order. */
static void
start_copies(struct yb_directory *directory)
{
    struct yb_directory_copy *copy = NULL;
    struct need first = {.target = 0};
    uint32_t budget = YB_DIRECTORY_CHUNK; /* To be looked at in one turn. */

    while (directory->repair_count > 0 && budget-- > 0) {
        const struct yb_directory_repair *repair = &directory->repairs[directory->repair_first];
        uint32_t gathered = copy != NULL ? copy->count : 0;
        struct need need;

        if (directory->copying + gathered >= directory->options.repairs_max) {
            break;
        }
        need = judge(directory, repair);
        if (need.target != 0 && copy != NULL &&
            (need.source != first.source || need.target != first.target ||
             copy->count == YB_DIRECTORY_COPY_ITEMS)) {
            send_copy(directory, copy, first.source);
            copy = NULL;
        }
        if (need.target != 0 && copy == NULL) {
            copy = take_copy(directory);
            if (copy == NULL) {
                break;
            }
            copy->target = need.target;
            first = need;
        }
        if (need.target != 0) {
            copy->sizes[copy->count] = need.size;
            copy->items[copy->count++] = *repair;
        }
        directory->repair_first = (directory->repair_first + 1) % YB_DIRECTORY_REPAIRS_MAX;
        directory->repair_count--;
    }
    if (copy != NULL) {
        send_copy(directory, copy, first.source);
    }
}

/* ---- the sweep ------------------------------------------------------------------------------- */

void
yb_directory_sweep_soon(struct yb_directory *directory)
{
    if (directory->started && !directory->stopping && !yb_timer_is_armed(&directory->sweep)) {
        yb_loop_arm(directory->loop, &directory->sweep,
                    yb_directory_now(directory) + SWEEP_PAUSE_NS);
    }
}

void
yb_directory_repair_after(struct yb_directory *directory, uint64_t when_ns)
{
    directory->repair_sweep_ns =
        when_ns < directory->repair_sweep_ns ? when_ns : directory->repair_sweep_ns;
}

static void
sweep_step(struct yb_directory *directory)
{
    struct yb_index_repair found[SWEEP_REPAIRS];
    struct yb_index_swept swept;
    uint32_t room = ring_room(directory) < SWEEP_REPAIRS ? ring_room(directory) : SWEEP_REPAIRS;

    if (directory->rebuilding) {
        room = 0; /* Not known yet: a sweep is asked for when it is. */
    } else if (room == 0) {
        yb_directory_repair_after(directory, yb_directory_now(directory) + directory->lease_ns);
    }
    yb_index_sweep(directory->index, yb_directory_now_ms(directory), SWEEP_RECORDS, found, room,
                   &swept);
    for (uint32_t i = 0; i < swept.repairs; i++) {
        struct yb_directory_repair repair = {
            .hash = found[i].hash,
            .grant = found[i].grant,
            .tenant = found[i].tenant,
        };

        (void)ring_push(directory, &repair);
        if (found[i].slots == 1) {
            yb_directory_sole(directory, found[i].tenant, found[i].hash, found[i].grant);
        }
    }
    if (!swept.done) {
        yb_directory_sweep_soon(directory);
    }
    start_copies(directory);
}

void
yb_directory_sweep_fired(struct yb_timer *timer)
{
    struct yb_directory *directory =
        (struct yb_directory *)((uint8_t *)timer - offsetof(struct yb_directory, sweep));
    const struct yb_clock *clock = yb_loop_clock(directory->loop);
    uint64_t begun_ns = yb_clock_now(clock);

    if (yb_index_sweep_wanted(directory->index, yb_directory_now_ms(directory))) {
        sweep_step(directory);
        yb_directory_observe(directory, YB_DIRECTORY_STAT_SWEEP_STEP,
                             yb_clock_now(clock) - begun_ns);
    }
}

/* ---- draining -------------------------------------------------------------------------------- */

/* Take a replica away: the record first, then the node. Unless too many nodes have still to hear of
 * trims: then the next walk does it. */
static void
trim(struct yb_directory *directory, const struct yb_index_entry *entry, uint16_t slot)
{
    struct yb_index_op op = {
        .hash = entry->hash,
        .grant = entry->answer.grant,
        .tenant = entry->tenant,
        .kind = YB_INDEX_WITHDRAW,
        .replica_count = 1,
        .replicas = {{.slot = slot}},
    };
    struct yb_directory_order order = {
        .hash = entry->hash,
        .number = entry->answer.grant,
        .tenant = entry->tenant,
        .kind = YB_DIRECTORY_DROP_TRIMMED,
    };
    struct yb_directory_news news = {
        .hash = entry->hash,
        .grant = entry->answer.grant,
        .tenant = entry->tenant,
        .slot = slot,
        .kind = YB_WIRE_EVENT_KIND_DROPPED,
    };
    struct yb_index_result result;
    bool trimmed = false;

    if (yb_trims_note(directory->trims, slot, op.grant) != YB_OK) {
        return;
    }
    for (uint32_t i = 0; i < entry->answer.count; i++) {
        if (entry->answer.replicas[i].slot != slot) {
            continue;
        }
        op.replicas[0].tier = entry->answer.replicas[i].tier;
        yb_index_apply(directory->index, &op, 1, yb_directory_now_ms(directory), &result);
        if (result.status == YB_OK) {
            news.tier = op.replicas[0].tier;
            yb_directory_event(directory, &news);
            trimmed = true;
        }
    }
    YB_ASSERT(trimmed);
    (void)yb_directory_order(directory, slot, &order); /* One order is for all its tiers. */
    yb_directory_sole(directory, entry->tenant, entry->hash, op.grant);
}

/* Decide about one block of a slot that drains. */
static void
drain_block(struct yb_directory *directory, struct yb_directory_port *port,
            const struct yb_members_slot *slot, const struct yb_index_entry *entry)
{
    const struct yb_index_answer *block = &entry->answer;
    uint32_t stay = staying(directory, block);
    uint32_t wanted = yb_index_wanted(block->flags);
    uint16_t target = choose_target(directory, block, slot->slot, entry->hash);

    if (stay >= wanted || (stay > 0 && target == 0) || (target == 0 && slot->force)) {
        trim(directory, entry, slot->slot);
    } else if (target == 0) {
        port->drain_stuck++;
    } else {
        struct yb_directory_repair repair = {
            .hash = entry->hash,
            .grant = block->grant,
            .tenant = entry->tenant,
            .leaving = slot->slot,
        };

        if (!is_under_way(directory, &repair)) {
            (void)ring_push(directory, &repair);
        }
    }
}

static void
walk_over(struct yb_directory *directory, struct yb_directory_port *port,
          struct yb_members_slot *slot, bool any)
{
    port->drain_walking = false;
    port->drain_cursor = 0;
    port->drain_next_ns = yb_directory_now(directory) + directory->lease_ns / 4;
    port->drain_left = port->drain_stuck;
    if (port->drain_stuck > 0) {
        yb_log_warn(directory->options.log, "directory",
                    "a node that drains has blocks that fit nowhere else",
                    yb_log_str("name", slot->facts.name), yb_log_u64("blocks", port->drain_stuck));
    }
    if (!any && !slot->drained && slot->complete && port->order_count == 0) {
        slot->drained = true;
        yb_log_info(directory->options.log, "directory", "a node is drained",
                    yb_log_str("name", slot->facts.name), yb_log_u64("slot", slot->slot));
    } else if (any) {
        slot->drained = false;
    }
}

/* Walk on over the blocks of a slot that drains, for about a millisecond. */
static void
drain_step(struct yb_directory *directory, struct yb_members_slot *slot)
{
    struct yb_directory_port *port = directory->ports[slot->slot];
    struct yb_index_entry entries[WALK_ENTRIES];
    struct yb_index_slot_counts counts;
    uint32_t count;

    if (!port->drain_walking) {
        if (yb_directory_now(directory) < port->drain_next_ns || directory->repair_count > 0) {
            return; /* What the last walk found comes first. */
        }
        port->drain_walking = true;
        port->drain_stuck = 0;
    }
    for (uint32_t visits = 0; visits < WALK_RECORDS; visits += WALK_ENTRIES) {
        if (ring_room(directory) < WALK_ENTRIES) {
            return; /* Copies first. */
        }
        count = yb_index_scan(directory->index, yb_directory_now_ms(directory), slot->slot,
                              WALK_ENTRIES, &port->drain_cursor, entries, WALK_ENTRIES);
        for (uint32_t i = 0; i < count; i++) {
            drain_block(directory, port, slot, &entries[i]);
        }
        if (port->drain_cursor == YB_INDEX_SCAN_END) {
            yb_index_slot_counts(directory->index, slot->slot, &counts);
            walk_over(directory, port, slot, counts.replicas > 0);
            return;
        }
    }
}

/* Once a second: how much was copied in it. */
static void
measure(struct yb_directory *directory)
{
    struct yb_directory_rate *rate = &directory->repair_rate;
    uint64_t now_ns = yb_directory_now(directory);
    double seconds = (double)(now_ns - rate->since_ns) / (double)YB_NS_PER_S;

    if (now_ns - rate->since_ns >= RATE_NS) {
        rate->blocks = (uint64_t)((double)(directory->repaired - rate->blocks_before) / seconds);
        rate->bytes =
            (uint64_t)((double)(directory->repaired_bytes - rate->bytes_before) / seconds);
        rate->blocks_before = directory->repaired;
        rate->bytes_before = directory->repaired_bytes;
        rate->since_ns = now_ns;
    }
}

void
yb_directory_repair_tick(struct yb_directory *directory)
{
    struct yb_members_slot *slot = NULL;

    measure(directory);
    if (directory->repair_sweep_ns <= yb_directory_now(directory)) {
        directory->repair_sweep_ns = YB_NEVER;
        yb_index_sweep_request(directory->index);
    }
    if (yb_index_sweep_wanted(directory->index, yb_directory_now_ms(directory))) {
        yb_directory_sweep_soon(directory);
    }
    while (!directory->rebuilding &&
           (slot = yb_members_next(directory->members, slot != NULL ? slot->slot : 0)) != NULL) {
        if (slot->draining && slot->state == YB_WIRE_SLOT_STATE_DRAINING) {
            drain_step(directory, slot);
        }
    }
    start_copies(directory);
}

void
yb_directory_repairs_free(struct yb_directory *directory)
{
    while (directory->copies != NULL) {
        struct yb_directory_copy *copy = directory->copies;

        directory->copies = copy->next;
        free(copy);
    }
    free(directory->repairs);
}
