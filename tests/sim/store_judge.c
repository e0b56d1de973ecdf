/* SPDX-License-Identifier: Apache-2.0 */
#include "store_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stripe_internal.h"
#include "directory/directory_internal.h"
#include "store_history.h"
#include "store_world.h"

#define KEYS_MAX    4096u
#define SERVED_MAX  4096u
#define STRIPES_MAX 4096u
#define WHOLE_EVERY 8u /* So many steps after each other bytes are compared, not only names. */
#define SLACK_NS    (60 * YB_NS_PER_MS)
#define RESUME_NS   (300 * YB_NS_PER_MS)

/* A value of a key, and since when it is known to have had its effect. */
struct fact {
    uint32_t key;
    uint64_t value;
    uint64_t evident_ns; /* FOREVER: not yet. */
    bool used;
};

/* The last acknowledged end of what a key was. */
struct end {
    uint64_t call_ns; /* 0: none. */
    uint64_t value;   /* That took its place. */
    bool replaced;
    uint32_t number; /* Of the operation. */
};

/* Parts are named by a write: the value that its first part was seen to begin with. */
struct stripe {
    uint8_t write[16];
    uint64_t value;
};

struct served {
    struct yb_id hash;
    uint64_t grant;
    uint64_t size;
    const void *bytes;
    uint32_t node;
    uint32_t tier; /* 0: memory. */
};

struct store_judge {
    struct store_world *world;
    struct fact *facts;
    uint32_t fact_count;
    uint32_t fact_room; /* A power of two. */
    struct end ends[KEYS_MAX];
    struct stripe stripes[STRIPES_MAX];
    uint32_t stripe_count;
    struct served served[SERVED_MAX];
    uint32_t served_count;
    uint32_t node;
    uint32_t tier;
    uint64_t checks;
    bool whole;
    bool loss;
    bool returns;
};

struct store_judge *
store_judge_create(struct store_world *world)
{
    struct store_judge *judge = calloc(1, sizeof(*judge));

    if (judge == NULL) {
        abort();
    }
    judge->world = world;
    return judge;
}

void
store_judge_destroy(struct store_judge **judge)
{
    free((*judge)->facts);
    free(*judge);
    *judge = NULL;
}

void
store_judge_loss(struct store_judge *judge)
{
    judge->loss = true;
}

void
store_judge_returns(struct store_judge *judge)
{
    judge->returns = true;
}

/* ---- what is known -------------------------------------------------------------------------- */

static struct fact *fact_of(struct store_judge *judge, uint32_t key, uint64_t value);

static void
grow(struct store_judge *judge)
{
    struct fact *old = judge->facts;
    uint32_t room = judge->fact_room;

    judge->fact_room = room == 0 ? 256 : room * 2;
    judge->facts = calloc(judge->fact_room, sizeof(*judge->facts));
    if (judge->facts == NULL) {
        abort();
    }
    judge->fact_count = 0;
    for (uint32_t i = 0; i < room; i++) {
        if (old[i].used) {
            fact_of(judge, old[i].key, old[i].value)->evident_ns = old[i].evident_ns;
        }
    }
    free(old);
}

static struct fact *
fact_of(struct store_judge *judge, uint32_t key, uint64_t value)
{
    uint64_t hash = (value * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)key * 0xff51afd7ed558ccdull);
    uint32_t at;

    if (judge->fact_count * 2 >= judge->fact_room) {
        grow(judge);
    }
    at = (uint32_t)(hash >> 32) & (judge->fact_room - 1);
    while (judge->facts[at].used &&
           (judge->facts[at].key != key || judge->facts[at].value != value)) {
        at = (at + 1) & (judge->fact_room - 1);
    }
    if (!judge->facts[at].used) {
        judge->facts[at] = (struct fact){key, value, STORE_HISTORY_FOREVER, true};
        judge->fact_count++;
    }
    return &judge->facts[at];
}

static void
evident(struct store_judge *judge, uint32_t key, uint64_t value)
{
    struct fact *fact = fact_of(judge, key, value);
    uint64_t now_ns = yb_sim_now_ns(judge->world->sim);

    fact->evident_ns = now_ns < fact->evident_ns ? now_ns : fact->evident_ns;
}

static void
ended(struct store_judge *judge, uint32_t key, const struct store_op *op, uint64_t value)
{
    struct end *end = &judge->ends[key];

    if (op->began_ns > end->call_ns) {
        *end = (struct end){
            .call_ns = op->began_ns,
            .value = value,
            .replaced = op->batch.kind == YB_CLIENT_PUT,
            .number = op->number,
        };
    }
}

void
store_judge_began(struct store_judge *judge, const struct store_op *op)
{
    for (uint32_t i = 0; i < op->batch.count; i++) {
        STORE_CHECK(judge->world, op->keys[i] < KEYS_MAX);
        if (op->batch.kind == YB_CLIENT_PUT) {
            fact_of(judge, op->keys[i], op->values[i])->evident_ns = STORE_HISTORY_FOREVER;
        }
    }
}

void
store_judge_ended(struct store_judge *judge, const struct store_op *op)
{
    if (op->batch.kind == YB_CLIENT_REMOVE_ALL) {
        for (uint32_t key = 0; op->batch.status == YB_OK && op->batch.force && key < KEYS_MAX;
             key++) {
            ended(judge, key, op, 0);
        }
        return;
    }
    for (uint32_t i = 0; i < op->batch.count; i++) {
        enum yb_status status = op->items[i].status;
        uint32_t key = op->keys[i];

        if (op->batch.kind == YB_CLIENT_REMOVE && (status == YB_OK || status == YB_NOT_FOUND)) {
            ended(judge, key, op, 0);
        } else if ((op->batch.kind == YB_CLIENT_GET || op->batch.kind == YB_CLIENT_FETCH) &&
                   status == YB_OK) {
            evident(judge, key, op->values[i]);
        } else if (op->batch.kind == YB_CLIENT_PUT && status == YB_OK) {
            evident(judge, key, op->values[i]);
            if (op->batch.put.replace) {
                ended(judge, key, op, op->values[i]);
            }
        }
    }
}

/* ---- what holds at any time ----------------------------------------------------------------- */

/* The key's number. */
static uint32_t
key_of(const struct yb_node_block_view *block)
{
    uint32_t key = 0;

    if (block->key_bytes < 5 || memcmp(block->key, "key-", 4) != 0) {
        return UINT32_MAX;
    }
    for (uint32_t i = 4; i < block->key_bytes && key < KEYS_MAX; i++) {
        key = key * 10 + block->key[i] - '0';
    }
    return key;
}

/* H4: what is served was not there before the key's last acknowledged end. */
static void
check_value(struct store_judge *judge, const struct yb_node_block_view *block, uint32_t key,
            uint64_t value)
{
    struct fact *fact = fact_of(judge, key, value);
    const struct end *end = &judge->ends[key];

    if (fact->evident_ns < end->call_ns && !(end->replaced && end->value == value)) {
        (void)fprintf(stderr,
                      "node %u serves value %llu of key %u, grant %llx, which was there at %.3f ms "
                      "and was ended by operation %u\n",
                      judge->node, (unsigned long long)value, key, (unsigned long long)block->grant,
                      (double)fact->evident_ns / 1e6, end->number);
        store_failed(judge->world, "H4: what was acknowledged to be gone is served nowhere",
                     __FILE__, __LINE__);
    }
    evident(judge, key, value);
}

static bool
is_part(const struct yb_node_block_view *block)
{
    return block->key_bytes == YB_STRIPE_KEY_BYTES && memcmp(block->key, "\0ybp", 4) == 0;
}

/* Find whose value a write's parts are; NULL: its first part has not been seen. */
static struct stripe *
stripe_of(struct store_judge *judge, const uint8_t *write)
{
    for (uint32_t i = 0; i < judge->stripe_count; i++) {
        if (memcmp(judge->stripes[i].write, write, sizeof(judge->stripes[i].write)) == 0) {
            return &judge->stripes[i];
        }
    }
    return NULL;
}

/* A part is no register: it is served as long as somebody keeps it. It tells its write's value. */
static void
learn_part(struct store_judge *judge, const struct yb_node_block_view *block)
{
    const uint8_t *write = block->key + 4;
    struct stripe *stripe = stripe_of(judge, write);
    uint64_t value;

    if (yb_wire_get_u32(block->key + 20) != 0) {
        return;
    }
    STORE_CHECK(judge->world, block->size >= sizeof(value));
    memcpy(&value, block->bytes, sizeof(value));
    if (stripe == NULL) {
        STORE_CHECK(judge->world, judge->stripe_count < STRIPES_MAX);
        stripe = &judge->stripes[judge->stripe_count++];
        memcpy(stripe->write, write, sizeof(stripe->write));
        stripe->value = value;
    }
    STORE_CHECK(judge->world, stripe->value == value); /* Parts of two writes never mix (A16). */
}

/* A manifest is its key's value, once it is known which. */
static bool
is_manifest(struct store_judge *judge, const struct yb_node_block_view *block, uint32_t key)
{
    struct yb_stripe_plan plan;
    const struct stripe *stripe;

    if (block->size != YB_STRIPE_MANIFEST_BYTES || judge->world->options.part_bytes == 0 ||
        !yb_stripe_read_manifest(block->bytes, judge->world->options.part_bytes, &plan)) {
        return false;
    }
    stripe = stripe_of(judge, plan.write);
    if (stripe != NULL) {
        check_value(judge, block, key, stripe->value);
    }
    return true;
}

static void
on_served(void *context, const struct yb_node_block_view *block)
{
    struct store_judge *judge = context;
    struct store_world *world = judge->world;
    uint32_t key = key_of(block);
    uint64_t value;

    STORE_CHECK(world, block->grant != 0);
    if (is_part(block)) {
        learn_part(judge, block);
    } else if (!is_manifest(judge, block, key)) {
        STORE_CHECK(world, block->size >= sizeof(value) && key < KEYS_MAX);
        memcpy(&value, block->bytes, sizeof(value));
        check_value(judge, block, key, value);
        if (judge->whole) {
            STORE_CHECK(world, store_value_matches(block->bytes, block->size, key, value));
        }
    }
    if (judge->served_count < SERVED_MAX) {
        judge->served[judge->served_count++] = (struct served){
            .hash = block->hash,
            .grant = block->grant,
            .size = block->size,
            .bytes = block->bytes,
            .node = judge->node,
            .tier = judge->tier,
        };
    }
}

/* What is looked for on a medium. */
struct claimed {
    struct store_judge *judge;
    const struct yb_node_block_view *block;
    bool found;
};

static void
on_kept(void *context, const struct yb_tier_record *record, const void *bytes)
{
    struct claimed *claimed = context;
    struct yb_node_block_view view = *claimed->block;

    if (record->grant != view.grant || !yb_id_equal(record->hash, view.hash)) {
        return;
    }
    claimed->found = true;
    view.bytes = bytes;
    view.key = record->key;
    view.key_bytes = record->key_bytes;
    STORE_CHECK(claimed->judge->world, record->size == view.size);
    on_served(claimed->judge, &view);
}

/* H6: what is claimed below memory is there, and is as good as what is in memory. */
static void
on_below(void *context, uint32_t tier, const struct yb_node_block_view *block)
{
    struct store_judge *judge = context;
    struct claimed claimed = {judge, block, false};

    judge->tier = tier + 1;
    yb_memory_medium_visit(store_node(judge->world, judge->node)->media[tier], on_kept, &claimed);
    STORE_CHECK(judge->world, claimed.found);
}

/* H1: not in a life that the directory takes for dead. */
static void
check_life(struct store_judge *judge, const struct yb_node_info *info)
{
    struct store_life *life = store_directory(judge->world)->life;
    struct yb_members_slot *slot;

    if (life == NULL || life->directory->epoch != info->epoch) {
        return;
    }
    slot = yb_members_at(life->directory->members, info->slot);
    STORE_CHECK(judge->world, slot != NULL); /* Dead, and swept. */
    if (slot->incarnation == info->incarnation) {
        STORE_CHECK(judge->world, slot->state != YB_WIRE_SLOT_STATE_DEAD);
    }
}

static void
check_node(struct store_judge *judge, uint32_t number)
{
    struct store_world *world = judge->world;
    struct store_role *role = store_node(world, number);
    struct yb_node_info info;
    char why[256];

    if (role->life == NULL) {
        return;
    }
    if (!yb_node_check(role->life->node, why, sizeof(why))) {
        (void)fprintf(stderr, "node %u: %s\n", number, why);
        store_failed(world, "H7: used = live + in flight + ungranted + quarantined", __FILE__,
                     __LINE__);
    }
    yb_node_info(role->life->node, &info);
    if (role->stalled || info.incarnation == 0 ||
        info.lease_until_ns <= yb_clock_now(yb_sim_host_clock(role->host))) {
        return; /* Whoever asks it now is told FENCED: it looks at the clock first. */
    }
    judge->node = number;
    check_life(judge, &info);
    judge->tier = 0;
    yb_node_visit(role->life->node, on_served, judge);
    yb_node_visit_below(role->life->node, on_below, judge);
}

/* H2: one grant of one key is one value. */
static void
check_grants(struct store_judge *judge)
{
    for (uint32_t i = 0; i < judge->served_count; i++) {
        const struct served *one = &judge->served[i];

        for (uint32_t k = i + 1; k < judge->served_count; k++) {
            const struct served *other = &judge->served[k];

            if (one->grant == other->grant && yb_id_equal(one->hash, other->hash)) {
                STORE_CHECK(judge->world, (one->node != other->node || one->tier != other->tier) &&
                                              one->size == other->size &&
                                              memcmp(one->bytes, other->bytes,
                                                     judge->whole || one->size < sizeof(uint64_t)
                                                         ? one->size
                                                         : sizeof(uint64_t)) == 0);
            }
        }
    }
}

/* An operation ends by its deadline, as its client's clock counts it. */
static void
check_deadlines(struct store_judge *judge)
{
    struct store_world *world = judge->world;

    for (const struct store_op *op = world->ops; op != NULL; op = op->next) {
        struct store_role *role = store_client(world, op->client);

        if (op->done == 0 && op->accepted && !role->stalled && op->life == role->life &&
            yb_sim_now_ns(world->sim) > role->resumed_ns + RESUME_NS) {
            STORE_CHECK(world, yb_clock_now(yb_sim_host_clock(role->host)) <=
                                   op->batch.deadline_ns + SLACK_NS);
        }
    }
}

void
store_judge_check(struct store_judge *judge)
{
    judge->checks++;
    judge->whole = judge->checks % WHOLE_EVERY == 0;
    judge->served_count = 0;
    for (uint32_t i = 0; i < judge->world->options.nodes; i++) {
        check_node(judge, i);
    }
    check_grants(judge);
    check_deadlines(judge);
}

/* ---- inside the directory ------------------------------------------------------------------- */

void
store_drain(struct store_world *world, uint32_t number, bool draining)
{
    struct store_role *role = store_directory(world);
    struct yb_directory *directory = role->life != NULL ? role->life->directory : NULL;
    struct yb_members_slot *slot;
    char name[16];

    if (directory == NULL || role->stalled) {
        return;
    }
    (void)snprintf(name, sizeof(name), "node-%u", number);
    slot = yb_members_named(directory->members, name);
    if (slot != NULL && slot->state != YB_WIRE_SLOT_STATE_DEAD) {
        yb_members_drain(directory->members, slot, draining, false);
        STORE_CHECK(world, yb_directory_store(directory, NULL) == YB_OK);
        yb_directory_mirror(directory, slot);
    }
}

void
store_named(struct store_world *world, struct yb_id hash, struct yb_index_answer *found_out)
{
    struct yb_directory *directory = store_directory(world)->life->directory;
    struct yb_index_query query = {
        .tenant = yb_tenants_find(directory->tenants, "default", strlen("default")),
        .now_ms = yb_directory_now_ms(directory),
    };

    yb_index_lookup(directory->index, &query, &hash, 1, found_out);
}

const struct yb_members_slot *
store_known(struct store_world *world, uint16_t slot)
{
    return yb_members_at(store_directory(world)->life->directory->members, slot);
}

/* ---- histories ------------------------------------------------------------------------------ */

static enum store_outcome
put_outcome(const struct store_op *op, enum yb_status status)
{
    if (status == YB_OK) {
        return STORE_DONE;
    }
    if (op->orphan || status == YB_IN_DOUBT || status == YB_STALE) {
        return STORE_DOUBT; /* STALE: it was granted, and is gone again. */
    }
    return status == YB_EXISTS ? STORE_PRESENT : STORE_FAILED;
}

/* Tell one item as an event; returns false if it says nothing. */
static bool
tell_item(const struct store_op *op, uint32_t index, struct store_event *event)
{
    enum yb_status status = op->items[index].status;

    event->value = op->values[index];
    switch ((enum yb_client_batch_kind)op->batch.kind) {
    case YB_CLIENT_PUT:
        event->did = op->batch.put.replace ? STORE_DID_UPSERT : STORE_DID_PUT;
        event->outcome = (uint8_t)put_outcome(op, status);
        return !(op->batch.put.replace && event->outcome == STORE_PRESENT);
    case YB_CLIENT_GET:
    case YB_CLIENT_FETCH:
        event->did = STORE_DID_GET;
        event->outcome = status == YB_OK ? STORE_DONE : STORE_ABSENT;
        return status == YB_OK || status == YB_NOT_FOUND;
    case YB_CLIENT_EXIST:
        event->did = STORE_DID_EXIST;
        event->outcome = status == YB_OK ? STORE_DONE : STORE_ABSENT;
        return status == YB_OK || status == YB_NOT_FOUND || status == YB_IN_PROGRESS;
    case YB_CLIENT_REMOVE:
        event->did = STORE_DID_REMOVE;
        event->outcome = status == YB_OK                       ? STORE_DONE
                         : status == YB_NOT_FOUND              ? STORE_ABSENT
                         : op->orphan || status == YB_IN_DOUBT ? STORE_DOUBT
                                                               : STORE_FAILED;
        return true;
    default: return false;
    }
}

static bool
tell_flush(const struct store_op *op, struct store_event *event)
{
    event->did = STORE_DID_FLUSH;
    event->outcome = op->batch.status == YB_OK                       ? STORE_DONE
                     : op->orphan || op->batch.status == YB_IN_DOUBT ? STORE_DOUBT
                                                                     : STORE_FAILED;
    return op->batch.force;
}

/* The history of a key. */
static uint32_t
tell(struct store_judge *judge, uint32_t key, struct store_event *events)
{
    uint32_t count = 0;

    for (const struct store_op *op = judge->world->ops; op != NULL; op = op->next) {
        if (!op->accepted || op->done == 0) {
            continue;
        }
        if (op->batch.kind == YB_CLIENT_REMOVE_ALL && count < STORE_HISTORY_EVENTS_MAX) {
            events[count] = (struct store_event){op->began_ns, op->ended_ns, 0, op->number, 0, 0};
            count += tell_flush(op, &events[count]);
        }
        for (uint32_t i = 0; i < op->batch.count && count < STORE_HISTORY_EVENTS_MAX; i++) {
            if (op->keys[i] == key) {
                events[count] =
                    (struct store_event){op->began_ns, op->ended_ns, 0, op->number, 0, 0};
                count += tell_item(op, i, &events[count]);
            }
        }
    }
    return count;
}

uint32_t
store_judge_histories(struct store_judge *judge)
{
    struct store_event *events = calloc(STORE_HISTORY_EVENTS_MAX, sizeof(*events));
    uint32_t hard = 0;

    if (events == NULL) {
        abort();
    }
    for (uint32_t key = 0; key < judge->world->key_count; key++) {
        struct store_history history = {
            .events = events,
            .count = tell(judge, key, events),
            .loss = judge->loss,
            .returns = judge->returns,
            .budget = 200000,
        };
        char why[256];
        enum store_verdict verdict = store_history_judge(&history, why, sizeof(why));

        if (verdict == STORE_BAD) {
            (void)fprintf(stderr, "key %u%s: %s\n", key, judge->loss ? " (with loss)" : "", why);
            judge->world->key_failed = key;
            store_failed(judge->world, "the history of every key can be true", __FILE__, __LINE__);
        }
        hard += verdict == STORE_TOO_HARD;
    }
    free(events);
    return hard;
}

/* ---- the end -------------------------------------------------------------------------------- */

static bool
directory_quiet(const struct yb_directory *directory, char *why_out, size_t why_bytes)
{
    if (directory->settle_count != 0) {
        (void)snprintf(why_out, why_bytes, "%u answers of the directory wait",
                       directory->settle_count);
        return false;
    }
    for (uint32_t i = 1; i <= YB_MEMBERS_SLOTS_MAX; i++) {
        const struct yb_directory_port *port = directory->ports[i];

        if (port != NULL && port->open && port->order_count != 0) {
            (void)snprintf(why_out, why_bytes, "%u orders for slot %u are not confirmed",
                           port->order_count, i);
            return false;
        }
    }
    return true;
}

bool
store_judge_quiet(struct store_judge *judge, char *why_out, size_t why_bytes)
{
    struct store_world *world = judge->world;

    for (uint32_t i = 0; i < world->options.nodes; i++) {
        struct store_life *life = store_node(world, i)->life;

        if (life == NULL ||
            !store_node_quiet(life->node, world->options.clients, why_out, why_bytes)) {
            return false;
        }
    }
    return directory_quiet(store_directory(world)->life->directory, why_out, why_bytes);
}
