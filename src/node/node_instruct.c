/* SPDX-License-Identifier: Apache-2.0
 *
 * What a conductor wants: blocks are to be in this node's memory, by a time and in a class.
 *
 *     instruction --not before--> a block: HERE
 *                                   or from below: a load, which others may share (node_load.c)
 *                                   or from another node: a copy (node_copy.c)
 *                 --the last has its outcome--> record
 *
 * What came for somebody who waits is held until the deadline. What came ahead of time is not; of
 * that the record waits until each block was read, or made room unread, or the deadline is there.
 * Whoever wants to be told before (`tells`) gets the record with a number, and asks by that.
 * The deadline does not end a move that is late: the call does, by its own.
 *
 * Up to SLOTS instructions are known at a time; more are AGAIN. Of each, up to WINDOW loads are
 * under way; what finds no room waits for it.
 *
 * Threads   The node's loop.
 * Memory    An instruction is allocated when it comes and freed with its record.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "node/node_below.h"

#define SLOTS    64u
#define WINDOW   32u
#define ROOM_NS  (10 * YB_NS_PER_MS) /* Until it is looked again whether there is room. */
#define GRACE_NS YB_NS_PER_S         /* Past its deadline what came is still held. */

#define OUTCOMES (YB_WIRE_INSTRUCTED_UNUSED + 1u)

static const char *const outcome_words[OUTCOMES] = {"none", "moved",  "joined", "here",
                                                    "gone", "failed", "unused"};
const struct yb_stats_label yb_node_label_instructed = {
    .name = "outcome", .words = outcome_words, .count = OUTCOMES};

struct instruction;

struct block_wanted {
    struct yb_node_join join; /* First. */
    struct instruction *of;
    struct yb_id hash;
    uint64_t grant;
    uint32_t key_at;
    uint16_t key_bytes;
    bool begun;  /* Its load, or copy. */
    bool joined; /* The load that it waits for was somebody else's. */
    struct yb_wire_instruction_outcome outcome; /* `what` 0: none yet. */
};

struct instruction {
    struct yb_timer timer; /* First: its time has come, or there may be room, or it is over. */
    struct yb_node *node;
    struct yb_request *request; /* NULL: nobody waits for it now. */
    uint32_t slot;
    uint32_t tenant;
    uint64_t id;
    uint64_t source;
    uint64_t came_ns;
    uint64_t started_ns; /* 0: its time has not come. */
    uint64_t finished_ns;
    uint64_t deadline_ns;
    uint64_t bytes;
    uint8_t kind; /* enum yb_wire_instruction_kind */
    uint8_t traffic_class;
    bool leaves;
    bool tells;       /* The record comes before it is known who reads what came ... */
    uint32_t watched; /* ... and came, with this number; 0: not yet. `request` is who asks by it. */
    char address[64];
    uint32_t count;
    uint32_t next;      /* Of those that lie below, the first whose load may not have begun. */
    uint32_t under_way; /* Loads. */
    uint32_t left;      /* Without an outcome. */
    uint32_t awaited;   /* That came, and were not read yet. */
    bool short_of;      /* Some did not come: the record does not wait for readers. */
    uint8_t *keys;
    uint32_t copies[YB_WIRE_INSTRUCTION_BLOCKS_MAX]; /* Which block an item of its copies is. */
    struct block_wanted blocks[YB_WIRE_INSTRUCTION_BLOCKS_MAX];
};

struct yb_node_instructions {
    bool stopping;
    uint32_t watches; /* The number that was given last. */
    struct instruction *slots[SLOTS];
};

static void pump(struct instruction *instruction);

enum yb_status
yb_node_instructions_create(struct yb_node *node)
{
    node->instructions = calloc(1, sizeof(*node->instructions));
    return node->instructions != NULL ? YB_OK : YB_NO_MEMORY;
}

void
yb_node_instructions_destroy(struct yb_node *node)
{
    free(node->instructions);
    node->instructions = NULL;
}

/* ---- the record ------------------------------------------------------------------------------ */

static uint64_t
since_us(const struct instruction *instruction, uint64_t at_ns)
{
    return at_ns > instruction->came_ns ? (at_ns - instruction->came_ns) / YB_NS_PER_US : 0;
}

/* Answer whoever waits, if anybody does. */
static void
answer(struct instruction *instruction, enum yb_status status, uint32_t watched)
{
    struct yb_request *request = instruction->request;
    struct yb_wire_instruction_outcome outcomes[YB_WIRE_INSTRUCTION_BLOCKS_MAX];
    const struct yb_wire_instruction_record record = {
        .id = instruction->id,
        .bytes = instruction->bytes,
        .started_us = since_us(instruction, instruction->started_ns),
        .finished_us = since_us(instruction, instruction->finished_ns),
        .outcomes = {.count = instruction->count, .native = outcomes},
        .watched = watched,
    };
    uint8_t out[YB_WIRE_INSTRUCTION_RECORD_BYTES_MAX];
    size_t length = 0;

    if (request == NULL) {
        return;
    }
    for (uint32_t i = 0; i < instruction->count; i++) {
        outcomes[i] = instruction->blocks[i].outcome;
    }
    YB_ASSERT(yb_wire_instruction_record_encode(&record, out, sizeof(out), &length) == YB_OK);
    instruction->request = NULL;
    yb_node_reply(instruction->node, request, status, out, status == YB_OK ? length : 0);
}

/* Answer, and forget it. */
static void
finish(struct instruction *instruction, enum yb_status status)
{
    struct yb_node *node = instruction->node;

    for (uint32_t i = 0; i < instruction->count; i++) {
        const struct block_wanted *wanted = &instruction->blocks[i];
        struct yb_block *block = yb_block_granted(node->blocks, wanted->hash);

        if (block != NULL && block->awaited == instruction->slot + 1) {
            block->awaited = 0;
        }
        yb_stats_add_at(node->shard, node->stats_first + YB_NODE_STAT_INSTRUCTED,
                        wanted->outcome.what, 0, 1);
    }
    node->instructions->slots[instruction->slot] = NULL;
    yb_loop_disarm(yb_net_loop(node->net), &instruction->timer);
    answer(instruction, status, 0);
    free(instruction->keys);
    free(instruction);
}

/* Every block has its outcome: only whether somebody reads what came ahead of time may be open. */
static void
settle(struct instruction *instruction)
{
    struct yb_node *node = instruction->node;

    if (instruction->awaited > 0 && !instruction->short_of &&
        yb_node_now(node) < instruction->deadline_ns && !node->instructions->stopping) {
        yb_loop_arm(yb_net_loop(node->net), &instruction->timer, instruction->deadline_ns);
        if (instruction->tells) {
            instruction->watched = ++node->instructions->watches;
            answer(instruction, YB_OK, instruction->watched);
        }
        return;
    }
    finish(instruction, node->instructions->stopping ? YB_CLOSED : YB_OK);
}

/* A block has its outcome. Whoever calls it for the last one must not look at the instruction
 * again; `pump` and the handler count one more while they are at it. */
static void
outcome(struct block_wanted *wanted, uint8_t what, uint8_t tier, enum yb_status status)
{
    struct instruction *instruction = wanted->of;

    YB_ASSERT(wanted->outcome.what == 0 && instruction->left > 0);
    wanted->outcome =
        (struct yb_wire_instruction_outcome){.status = status, .what = what, .tier = tier};
    instruction->finished_ns = yb_node_now(instruction->node);
    instruction->left--;
    if (instruction->left == 0) {
        settle(instruction);
    }
}

/* The block is here: it stays as long as it is wanted. */
static void
came(struct block_wanted *wanted, struct yb_block *block, uint8_t what, uint8_t tier)
{
    struct instruction *instruction = wanted->of;
    struct yb_node *node = instruction->node;

    if (what != YB_WIRE_INSTRUCTED_HERE) {
        instruction->bytes += block->size;
    }
    if (instruction->kind != YB_WIRE_INSTRUCTION_KIND_PREFETCH) {
        yb_node_hold(node, block, yb_deadline_after(instruction->deadline_ns, GRACE_NS));
    } else if (what != YB_WIRE_INSTRUCTED_HERE && block->awaited == 0) {
        block->awaited = (uint8_t)(instruction->slot + 1);
        instruction->awaited++;
    }
    outcome(wanted, what, tier, YB_OK);
}

/* What a status of a tier or another node means. */
static void
came_not(struct block_wanted *wanted, enum yb_status status)
{
    bool gone = status == YB_NOT_FOUND || status == YB_STALE || status == YB_REFUSED;

    wanted->of->short_of = true;
    outcome(wanted, gone ? YB_WIRE_INSTRUCTED_GONE : YB_WIRE_INSTRUCTED_FAILED, 0, status);
}

/* ---- from below ------------------------------------------------------------------------------ */

static void
on_joined(struct yb_node_join *join, enum yb_status status, struct yb_block *block)
{
    struct block_wanted *wanted = (struct block_wanted *)join;
    struct instruction *instruction = wanted->of;

    instruction->under_way--;
    instruction->left++; /* Ours, until it has been pumped. */
    if (status == YB_OK) {
        came(wanted, block, wanted->joined ? YB_WIRE_INSTRUCTED_JOINED : YB_WIRE_INSTRUCTED_MOVED,
             join->tier);
        yb_node_unpin(instruction->node, block);
    } else {
        came_not(wanted, status);
    }
    pump(instruction);
}

static struct yb_node_name
name_of(const struct block_wanted *wanted)
{
    return (struct yb_node_name){wanted->hash, wanted->of->keys + wanted->key_at, wanted->key_bytes,
                                 wanted->grant};
}

/* Begin the load of one. NOT_READY: there is no room now. */
static enum yb_status
load(struct block_wanted *wanted)
{
    struct instruction *instruction = wanted->of;
    struct yb_node *node = instruction->node;
    const struct yb_node_name name = name_of(wanted);
    enum yb_status status;
    struct yb_shelf_record *record;

    record = yb_node_below_find(node, instruction->tenant, wanted->hash, wanted->grant, &status);
    if (record == NULL) {
        return status;
    }
    wanted->joined = record->loading != 0;
    wanted->join = (struct yb_node_join){
        .wish = {.traffic_class = (enum yb_class)instruction->traffic_class,
                 .deadline_ns = instruction->request->deadline_ns},
        .done = on_joined,
    };
    return yb_node_load(node, record, &name, &wanted->join);
}

/* Begin what there is room for. `left` is one too many meanwhile, and corrected here. */
static void
pump(struct instruction *instruction)
{
    struct yb_node *node = instruction->node;
    const uint64_t now_ns = yb_node_now(node);
    bool over = node->instructions->stopping || instruction->request->deadline_ns <= now_ns;

    while (instruction->next < instruction->count && instruction->under_way < WINDOW) {
        struct block_wanted *wanted = &instruction->blocks[instruction->next];
        struct yb_block *block = yb_block_granted(node->blocks, wanted->hash);
        enum yb_status status = YB_TIMED_OUT;

        if (wanted->outcome.what != 0 || wanted->begun) {
            instruction->next++; /* It did not lie below. */
            continue;
        }
        if (block != NULL && block->grant == wanted->grant) {
            came(wanted, block, YB_WIRE_INSTRUCTED_JOINED, YB_WIRE_TIER_DRAM);
            continue;
        }
        status = over ? YB_TIMED_OUT : load(wanted);
        if (status == YB_NOT_READY) {
            yb_loop_arm(yb_net_loop(node->net), &instruction->timer, now_ns + ROOM_NS);
            break;
        }
        instruction->next++;
        if (status == YB_OK) {
            wanted->begun = true;
            instruction->under_way++;
        } else {
            came_not(wanted, status);
        }
    }
    instruction->left--;
    if (instruction->left == 0) {
        settle(instruction);
    }
}

/* ---- from elsewhere -------------------------------------------------------------------------- */

static void
on_copied(void *owner, uint32_t index, enum yb_status status, bool joined)
{
    struct instruction *instruction = owner;
    struct block_wanted *wanted = &instruction->blocks[instruction->copies[index]];
    struct yb_block *block = yb_block_granted(instruction->node->blocks, wanted->hash);

    if ((status == YB_OK || status == YB_EXISTS) && block != NULL &&
        block->grant == wanted->grant) {
        came(wanted, block,
             status == YB_EXISTS ? YB_WIRE_INSTRUCTED_HERE
             : joined            ? YB_WIRE_INSTRUCTED_JOINED
                                 : YB_WIRE_INSTRUCTED_MOVED,
             YB_WIRE_TIER_DRAM);
    } else {
        came_not(wanted, status == YB_OK || status == YB_EXISTS ? YB_NO_SPACE : status);
    }
}

/* Order the copies that are to come from the source. */
static void
copy(struct instruction *instruction, uint32_t count)
{
    struct yb_wire_copy_item items[YB_WIRE_COPY_ITEMS_MAX];
    const struct yb_node_copy_want want = {
        .address = instruction->address,
        .source = instruction->source,
        .items = items,
        .count = count,
        .traffic_class = (enum yb_class)instruction->traffic_class,
        .deadline_ns = instruction->request->deadline_ns,
        .ended = on_copied,
        .owner = instruction,
    };
    enum yb_status status;

    for (uint32_t i = 0; i < count; i++) {
        struct block_wanted *wanted = &instruction->blocks[instruction->copies[i]];

        wanted->begun = true;
        items[i] = (struct yb_wire_copy_item){.hash = wanted->hash, .grant = wanted->grant};
    }
    status = instruction->source == 0 ? YB_NOT_FOUND : yb_node_copy(instruction->node, &want);
    for (uint32_t i = 0; status != YB_OK && i < count; i++) {
        came_not(&instruction->blocks[instruction->copies[i]], status);
    }
}
_Static_assert(YB_WIRE_COPY_ITEMS_MAX >= YB_WIRE_INSTRUCTION_BLOCKS_MAX, "one order takes all");

/* ---- its time has come ----------------------------------------------------------------------- */

/* The second half of a migration: a block that nobody reads makes room. */
static void
let_go(struct block_wanted *wanted)
{
    struct yb_node *node = wanted->of->node;
    const struct yb_node_name name = name_of(wanted);
    enum yb_status status;
    struct yb_block *block = yb_node_find(node, wanted->of->tenant, &name, &status);

    if (block == NULL) {
        came_not(wanted, status);
    } else if (block->policy.entry.pins > 0 || block->pins > 0) {
        came_not(wanted, YB_LEASED);
    } else {
        wanted->of->bytes += block->size;
        yb_node_doom(node, block, YB_WIRE_FATE_EVICTED, true);
        outcome(wanted, YB_WIRE_INSTRUCTED_MOVED, YB_WIRE_TIER_DRAM, YB_OK);
    }
}

/* Look where each block is. What lies below is left to `pump`. */
static void
begin(struct instruction *instruction)
{
    struct yb_node *node = instruction->node;
    uint32_t copies = 0;

    instruction->started_ns = yb_node_now(node);
    instruction->left++; /* Ours, until it has been pumped. */
    for (uint32_t i = 0; i < instruction->count; i++) {
        struct block_wanted *wanted = &instruction->blocks[i];
        const struct yb_node_name name = name_of(wanted);
        enum yb_status status;
        struct yb_block *block;

        if (instruction->leaves) {
            let_go(wanted);
            continue;
        }
        block = yb_node_find(node, instruction->tenant, &name, &status);
        if (block != NULL) {
            came(wanted, block, YB_WIRE_INSTRUCTED_HERE, YB_WIRE_TIER_DRAM);
        } else if (status == YB_FENCED) {
            came_not(wanted, status);
        } else if (status != YB_NOT_READY) {
            instruction->copies[copies++] = i;
        }
    }
    if (copies > 0) {
        copy(instruction, copies);
    }
    pump(instruction);
}

static void
on_timer(struct yb_timer *timer)
{
    struct instruction *instruction = (struct instruction *)timer;

    if (instruction->started_ns == 0) {
        begin(instruction);
    } else if (instruction->left > 0) {
        instruction->left++;
        pump(instruction);
    } else {
        finish(instruction, YB_OK);
    }
}

void
yb_node_instruct_met(struct yb_node *node, struct yb_block *block, bool read)
{
    struct instruction *instruction = node->instructions->slots[block->awaited - 1];

    block->awaited = 0;
    if (instruction == NULL) {
        return;
    }
    for (uint32_t i = 0; i < instruction->count; i++) {
        struct block_wanted *wanted = &instruction->blocks[i];

        if (yb_id_equal(wanted->hash, block->hash) && wanted->grant == block->grant && !read) {
            wanted->outcome.what = YB_WIRE_INSTRUCTED_UNUSED;
        }
    }
    instruction->awaited--;
    if (instruction->awaited == 0 && instruction->left == 0 &&
        instruction->request != NULL) { /* From the loop: nobody is inside. */
        yb_loop_arm(yb_net_loop(node->net), &instruction->timer, yb_node_now(node));
    }
}

/* ---- the method ------------------------------------------------------------------------------ */

/* Take over what is said of the blocks. PROTOCOL: their keys are not what was announced. */
static enum yb_status
read_blocks(struct instruction *instruction, const struct yb_wire_instruction *body)
{
    size_t at = 0;

    instruction->count = body->blocks.count;
    instruction->left = body->blocks.count;
    for (uint32_t i = 0; i < body->blocks.count; i++) {
        struct yb_wire_instruction_block said;

        yb_wire_instruction_block_at(&body->blocks, i, &said);
        instruction->blocks[i] = (struct block_wanted){
            .of = instruction,
            .hash = said.hash,
            .grant = said.grant,
            .key_at = (uint32_t)at,
            .key_bytes = said.key_bytes,
        };
        at += said.key_bytes;
    }
    if (at != body->keys.length || at == 0) {
        return YB_PROTOCOL;
    }
    instruction->keys = malloc(at);
    if (instruction->keys == NULL) {
        return YB_NO_MEMORY;
    }
    memcpy(instruction->keys, body->keys.bytes, at);
    return YB_OK;
}

static enum yb_status
take(struct yb_node *node, struct yb_request *request, struct instruction **instruction_out)
{
    struct yb_node_instructions *all = node->instructions;
    struct yb_wire_instruction body;
    struct instruction *instruction;
    char tenant[65] = {0};
    uint32_t slot = 0;
    enum yb_status status =
        yb_wire_instruction_decode(request->body, request->body_bytes, &body, NULL);

    if (status != YB_OK) {
        return status;
    }
    if (body.incarnation != node->incarnation || !yb_node_serving(node) || all->stopping) {
        return YB_FENCED;
    }
    while (slot < SLOTS && all->slots[slot] != NULL) {
        slot++;
    }
    if (slot == SLOTS) {
        return YB_AGAIN;
    }
    instruction = calloc(1, sizeof(*instruction));
    status = instruction == NULL ? YB_NO_MEMORY : read_blocks(instruction, &body);
    if (status != YB_OK) {
        free(instruction);
        return status;
    }
    memcpy(tenant, body.tenant.bytes, body.tenant.length);
    memcpy(instruction->address, body.address.bytes, body.address.length);
    yb_timer_init(&instruction->timer, on_timer);
    instruction->node = node;
    instruction->request = request;
    instruction->slot = slot;
    instruction->tenant = yb_node_tenant(node, tenant);
    instruction->id = body.id;
    instruction->source = body.source;
    instruction->came_ns = instruction->finished_ns = yb_node_now(node);
    instruction->deadline_ns =
        yb_deadline_after(instruction->came_ns, body.deadline_us * YB_NS_PER_US);
    instruction->kind = body.kind;
    instruction->traffic_class = body.class;
    instruction->leaves = body.leaves != 0;
    instruction->tells = body.tells != 0;
    all->slots[slot] = instruction;
    if (body.not_before_us > 0) {
        yb_loop_arm(yb_net_loop(node->net), &instruction->timer,
                    yb_deadline_after(instruction->came_ns, body.not_before_us * YB_NS_PER_US));
    }
    *instruction_out = instruction;
    return instruction->tenant != UINT32_MAX ? YB_OK : YB_TOO_LARGE;
}

void
yb_node_instruct_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct instruction *instruction = NULL;
    enum yb_status status;

    node->requests++;
    status = take(node, request, &instruction);
    if (instruction == NULL) {
        yb_node_reply(node, request, status, NULL, 0);
    } else if (status != YB_OK) {
        finish(instruction, status);
    } else if (!yb_timer_is_armed(&instruction->timer)) {
        begin(instruction);
    }
}

void
yb_node_instruct_watch_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_instruction_watch body;
    enum yb_status status =
        yb_wire_instruction_watch_decode(request->body, request->body_bytes, &body, NULL);

    node->requests++;
    if (status == YB_OK && (body.incarnation != node->incarnation || !yb_node_serving(node))) {
        status = YB_FENCED;
    }
    for (uint32_t slot = 0; status == YB_OK && slot < SLOTS; slot++) {
        struct instruction *instruction = node->instructions->slots[slot];

        if (instruction != NULL && instruction->watched == body.watched &&
            instruction->request == NULL) {
            instruction->request = request;
            if (instruction->awaited == 0) { /* While nobody asked. */
                yb_loop_arm(yb_net_loop(node->net), &instruction->timer, yb_node_now(node));
            }
            return;
        }
    }
    yb_node_reply(node, request, status == YB_OK ? YB_NOT_FOUND : status, NULL, 0);
}

void
yb_node_instructions_stop(struct yb_node *node)
{
    node->instructions->stopping = true;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        struct instruction *instruction = node->instructions->slots[slot];

        if (instruction == NULL) {
            continue;
        }
        if (instruction->left == 0) {
            finish(instruction, YB_CLOSED);
            continue;
        }
        instruction->left++;
        for (uint32_t i = 0; i < instruction->count; i++) {
            struct block_wanted *wanted = &instruction->blocks[i];

            if (wanted->outcome.what == 0 && wanted->join.loading != NULL) {
                yb_node_load_leave(node, &wanted->join);
                instruction->under_way--;
                came_not(wanted, YB_CLOSED);
            } else if (wanted->outcome.what == 0 && !wanted->begun) {
                came_not(wanted, YB_CLOSED);
            }
        }
        pump(instruction); /* Copies under way end when the copies stop. */
    }
}
