/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo_process.h"
#include "cli/measure.h"
#include "cli/verify.h"
#include "directory/wire/directory_wire.h"
#include "node/wire/node_wire.h"

#define LOOK_NS     (20 * YB_NS_PER_MS)
#define DOWN_NS     (10 * YB_NS_PER_S) /* Until a block lies below memory. */
#define TOLD_NS     (3 * YB_NS_PER_S)  /* Until a node has told of its tiers. */
#define ASIDE_NS    (3 * YB_NS_PER_S)  /* Until all nodes have told how their tiers stand. */
#define HELD_NS     (15 * YB_NS_PER_S) /* Until readers hold a block no more. */
#define WANTED_US   1000000u           /* By then a block is to have come. */
#define NAME_LENGTH sizeof(((struct yb_wire_member *)NULL)->name)

static void
name_of(const struct yb_wire_member *member, char name_out[NAME_LENGTH + 1])
{
    (void)snprintf(name_out, NAME_LENGTH + 1, "%.*s", (int)NAME_LENGTH, (const char *)member->name);
}

/* ---- where a block is ------------------------------------------------------------------------ */

static bool
is_below(uint8_t tier)
{
    return tier == YB_WIRE_TIER_SSD || tier == YB_WIRE_TIER_OBJECT;
}

/* Look a block up, and ask the nodes that are named. */
static enum yb_status
look_up(struct yb_verify *verify, uint32_t index, struct yb_cli_block *block_out)
{
    char key[YB_VERIFY_KEY];

    yb_verify_key(verify, index, key);
    return yb_cli_store_block(&verify->store, key, block_out);
}

/* Return the copy of a block in a node's memory (slot 0: in any); NULL: there is none. */
static const struct yb_cli_copy *
in_memory(const struct yb_cli_block *block, uint16_t slot)
{
    for (uint32_t i = 0; i < block->copy_count; i++) {
        if ((slot == 0 || block->copies[i].slot == slot) && !is_below(block->copies[i].tier)) {
            return &block->copies[i];
        }
    }
    return NULL;
}

static const struct yb_cli_copy *
below_memory(const struct yb_cli_block *block, uint16_t slot)
{
    for (uint32_t i = 0; i < block->copy_count; i++) {
        if (block->copies[i].slot == slot && is_below(block->copies[i].tier)) {
            return &block->copies[i];
        }
    }
    return NULL;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Tell a node to have a block in its memory, or (`leaves`) no more. `from` is who has it; NULL:
 * the node itself, below. Returns what became of it. */
static enum yb_status
order(struct yb_verify *verify, const struct yb_wire_member *member,
      const struct yb_wire_member *from, const struct yb_cli_block *block, uint32_t index,
      bool leaves)
{
    char key[YB_VERIFY_KEY];
    const struct yb_wire_instruction_block wanted = {
        .hash = block->hash,
        .grant = block->known.grant,
        .key_bytes = (uint16_t)(yb_verify_key(verify, index, key), strlen(key)),
    };
    const struct yb_wire_instruction asked = {
        .incarnation = member->incarnation,
        .id = verify->number,
        .deadline_us = WANTED_US,
        .source = from != NULL ? from->incarnation : 0,
        .kind = leaves ? YB_WIRE_INSTRUCTION_KIND_MIGRATE : YB_WIRE_INSTRUCTION_KIND_REPLICATE,
        .leaves = leaves,
        .address = {.bytes = from != NULL ? (const char *)from->address : "",
                    .length = from != NULL ? (uint16_t)strnlen((const char *)from->address,
                                                               sizeof(from->address))
                                           : 0},
        .tenant = {.bytes = verify->cli->config.auth_tenant,
                   .length = (uint16_t)strlen(verify->cli->config.auth_tenant)},
        .blocks = {.count = 1, .native = &wanted},
        .keys = {.bytes = (const uint8_t *)key, .length = (uint32_t)strlen(key)},
    };
    uint8_t body[YB_WIRE_INSTRUCTION_BYTES + YB_WIRE_INSTRUCTION_BLOCK_BYTES + 256];
    struct yb_wire_instruction_record record;
    struct yb_wire_instruction_outcome outcome;
    size_t length = 0;
    enum yb_status status;

    YB_ASSERT(yb_wire_instruction_encode(&asked, body, sizeof(body), &length) == YB_OK);
    status = yb_cli_store_ask_node(&verify->store, member,
                                   &(struct yb_cli_question){
                                       .type = YB_WIRE_NODE_TYPE_INSTRUCT,
                                       .body = body,
                                       .body_bytes = length,
                                   });
    if (status == YB_OK &&
        (yb_wire_instruction_record_decode(verify->store.reply, verify->store.reply_bytes, &record,
                                           NULL) != YB_OK ||
         record.outcomes.count != 1)) {
        status = YB_PROTOCOL;
    }
    if (status == YB_OK) {
        yb_wire_instruction_outcome_at(&record.outcomes, 0, &outcome);
        status = (enum yb_status)outcome.status;
    }
    return status;
}

/* ---- metadata map ---------------------------------------------------------------------------- */

/* Put a block on one node, and compare what is said of it. */
static bool
map_one(struct yb_verify *verify, struct yb_verify_link *link, uint32_t index)
{
    const struct yb_wire_member *member = &verify->store.members[index];
    char name[NAME_LENGTH + 1];
    struct yb_cli_block block;
    const struct yb_cli_copy *copy;
    enum yb_status status;

    name_of(member, name);
    if (member->state != YB_WIRE_SLOT_STATE_SERVING) {
        return yb_verify_say(link, YB_VERIFY_BROKEN,
                             "node %s is %s: see that its process runs and reaches the directory",
                             name, yb_wire_slot_state_name(member->state));
    }
    status = yb_verify_put(verify, index, name);
    if (status != YB_OK) {
        return yb_verify_say(link, YB_VERIFY_BROKEN, "a block for node %s was not put: %s", name,
                             yb_cli_outcome_text(status));
    }
    verify->put[index] = true;
    status = look_up(verify, index, &block);
    if (status != YB_OK) {
        return yb_verify_say(link, YB_VERIFY_BROKEN, "the directory does not say where: %s",
                             verify->store.error);
    }
    copy = in_memory(&block, member->slot);
    if (copy == NULL) {
        return yb_verify_say(link, YB_VERIFY_BROKEN,
                             "a block for node %s went elsewhere: has it room? yuebing nodes",
                             name);
    }
    if (copy->status != YB_OK || copy->block != YB_OK || copy->size != YB_VERIFY_BYTES) {
        return yb_verify_say(link, YB_VERIFY_BROKEN,
                             "the directory names node %s, and that says: %s; yuebing node check",
                             name,
                             yb_status_text(copy->status != YB_OK ? copy->status : copy->block));
    }
    link->bytes += YB_VERIFY_BYTES;
    return true;
}

void
yb_verify_map(struct yb_verify *verify, struct yb_verify_link *link)
{
    uint32_t count = verify->store.member_count;

    if (count == 0) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN,
                            "there is no node: start one with yuebing node --directory ADDRESS");
        return;
    }
    count = count < YB_VERIFY_NODES_MAX ? count : YB_VERIFY_NODES_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (!map_one(verify, link, i)) {
            return;
        }
    }
    (void)yb_verify_say(link, YB_VERIFY_OK,
                        "a block on each of %" PRIu32 " nodes: directory and node agree", count);
}

/* ---- prefetch -------------------------------------------------------------------------------- */

/* Two nodes that have got a block each; false: there are not so many. */
static bool
find_pair(const struct yb_verify *verify, uint32_t *from_out, uint32_t *to_out)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < verify->store.member_count && i < YB_VERIFY_NODES_MAX; i++) {
        if (verify->put[i]) {
            *(found == 0 ? from_out : to_out) = i;
            if (++found == 2) {
                return true;
            }
        }
    }
    return false;
}

void
yb_verify_prefetch(struct yb_verify *verify, struct yb_verify_link *link)
{
    const struct yb_wire_member *from, *to;
    char names[2][NAME_LENGTH + 1];
    struct yb_cli_block block;
    uint32_t source = 0, target = 0;
    enum yb_status status;

    if (!find_pair(verify, &source, &target)) {
        (void)yb_verify_say(link, YB_VERIFY_ABSENT,
                            "there are no two nodes that take blocks: start another one");
        return;
    }
    from = &verify->store.members[source];
    to = &verify->store.members[target];
    name_of(from, names[0]);
    name_of(to, names[1]);
    status = look_up(verify, source, &block);
    if (status == YB_OK) {
        status = order(verify, to, from, &block, source, false);
    }
    if (status == YB_OK) {
        status = look_up(verify, source, &block);
    }
    if (status != YB_OK || in_memory(&block, to->slot) == NULL) {
        (void)yb_verify_say(
            link, YB_VERIFY_BROKEN,
            "node %s did not get a block from node %s: %s; can it reach that one? yuebing ping",
            names[1], names[0],
            status != YB_OK ? yb_status_text(status) : "the directory does not know of it");
        return;
    }
    link->bytes = YB_VERIFY_BYTES;
    (void)yb_verify_say(link, YB_VERIFY_OK, "node %s has a block of node %s, as it was told to",
                        names[1], names[0]);
}

/* ---- local hit ------------------------------------------------------------------------------- */

/* A block on a node of this host; false: there is none. */
static bool
find_local(struct yb_verify *verify, uint32_t *index_out, char name_out[NAME_LENGTH + 1])
{
    struct yb_client_node nodes[YB_VERIFY_NODES_MAX];
    uint32_t count = 0;

    if (yb_client_nodes(verify->reader, nodes, YB_VERIFY_NODES_MAX, &count) != YB_OK) {
        return false;
    }
    count = count < YB_VERIFY_NODES_MAX ? count : YB_VERIFY_NODES_MAX;
    for (uint32_t i = 0; i < verify->store.member_count && i < YB_VERIFY_NODES_MAX; i++) {
        for (uint32_t n = 0; n < count && verify->put[i]; n++) {
            if (nodes[n].local && nodes[n].slot == verify->store.members[i].slot) {
                *index_out = i;
                name_of(&verify->store.members[i], name_out);
                return true;
            }
        }
    }
    return false;
}

void
yb_verify_local(struct yb_verify *verify, struct yb_verify_link *link)
{
    struct yb_client_counters before, after;
    char name[NAME_LENGTH + 1];
    uint32_t index = 0;
    uint64_t begun_ns = yb_measure_now_ns();
    enum yb_status status;

    if (!find_local(verify, &index, name)) {
        (void)yb_verify_say(link, YB_VERIFY_ABSENT,
                            "no node that takes blocks is on this host: run it where engines are");
        return;
    }
    yb_client_counters(verify->reader, &before);
    begun_ns = yb_measure_now_ns();
    status = yb_verify_get(verify, index);
    link->took_ns = yb_measure_now_ns() - begun_ns;
    yb_client_counters(verify->reader, &after);
    if (status != YB_OK) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "a block on node %s, of this host: %s", name,
                            yb_cli_outcome_text(status));
        return;
    }
    link->bytes = YB_VERIFY_BYTES;
    if (after.local_bytes - before.local_bytes < YB_VERIFY_BYTES) {
        (void)yb_verify_say(
            link, YB_VERIFY_BROKEN,
            "what lies on node %s, of this host, came over the network: yuebing doctor says why",
            name);
        return;
    }
    (void)yb_verify_say(link, YB_VERIFY_OK, "node %s, through shared memory", name);
}

/* ---- return to origin ------------------------------------------------------------------------ */

/* Wait until the block for a node lies below its memory, too; NULL: it does not. */
static const struct yb_cli_copy *
await_below(struct yb_verify *verify, uint32_t index, struct yb_cli_block *block_out)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t patience_ns = verify->timeout_ns < DOWN_NS ? verify->timeout_ns : DOWN_NS;
    uint64_t until_ns = yb_clock_now(clock) + patience_ns;
    uint16_t slot = verify->store.members[index].slot;
    const struct yb_cli_copy *below = NULL;

    while (below == NULL && look_up(verify, index, block_out) == YB_OK) {
        below = below_memory(block_out, slot);
        if (below == NULL && yb_clock_now(clock) >= until_ns) {
            break;
        }
        if (below == NULL) {
            yb_demo_pause(LOOK_NS);
        }
    }
    return below;
}

/* Whether a node has told of a tier below its memory. */
static bool
has_below(const struct yb_wire_member *member)
{
    return member->ssd_rate != 0 || member->object_rate != 0 || member->ssd_base_us != 0 ||
           member->object_base_us != 0;
}

/* Wait until a node has told of a tier below its memory, which one that has just come has not yet.
 * False: none does. */
static bool
await_told(struct yb_verify *verify)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = yb_clock_now(clock) + TOLD_NS;
    uint32_t count = verify->store.member_count;
    bool told = false;

    for (;;) {
        for (uint32_t i = 0; i < verify->store.member_count; i++) {
            told = told || has_below(&verify->store.members[i]);
        }
        if (told || yb_clock_now(clock) >= until_ns) {
            return told;
        }
        yb_demo_pause(LOOK_NS);
        /* Who comes or goes meanwhile moves the others' places. */
        if (yb_cli_store_members(&verify->store) != YB_OK || verify->store.member_count != count) {
            return false;
        }
    }
}

/* Have a node let a block go, as soon as nobody holds it: readers do for a while. */
static enum yb_status
let_go(struct yb_verify *verify, uint16_t slot, const struct yb_cli_block *block, uint32_t index)
{
    const struct yb_clock *clock = yb_clock_system();
    const struct yb_wire_member *member = yb_cli_store_member(&verify->store, slot);
    uint64_t until_ns = yb_clock_now(clock) + HELD_NS;
    enum yb_status status = YB_OK;

    do {
        if (status == YB_LEASED) {
            yb_demo_pause(LOOK_NS);
        }
        status = member != NULL ? order(verify, member, NULL, block, index, true) : YB_PEER_LOST;
    } while (status == YB_LEASED && yb_clock_now(clock) < until_ns);
    return status;
}

/* Let memory forget a block, and read it again. */
static void
return_one(struct yb_verify *verify, struct yb_verify_link *link, uint32_t index,
           struct yb_cli_block *block, uint8_t tier)
{
    const struct yb_clock *clock = yb_clock_system();
    char name[NAME_LENGTH + 1];
    uint64_t begun_ns;
    enum yb_status status = YB_OK;

    name_of(&verify->store.members[index], name);
    for (uint32_t i = 0; i < block->copy_count && status == YB_OK; i++) {
        if (!is_below(block->copies[i].tier)) {
            status = let_go(verify, block->copies[i].slot, block, index);
        }
    }
    if (status == YB_OK) {
        status = look_up(verify, index, block);
    }
    if (status != YB_OK || in_memory(block, 0) != NULL) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN, "node %s does not let a block go: %s", name,
                            status != YB_OK ? yb_status_text(status) : "it is still there");
        return;
    }
    begun_ns = yb_clock_now(clock);
    status = yb_verify_get(verify, index);
    link->took_ns = yb_clock_now(clock) - begun_ns;
    if (status != YB_OK) {
        (void)yb_verify_say(link, YB_VERIFY_BROKEN,
                            "what node %s has in its %s only does not come: %s; its log says more",
                            name, yb_wire_tier_name(tier), yb_cli_outcome_text(status));
        return;
    }
    link->bytes = YB_VERIFY_BYTES;
    (void)yb_verify_say(link, YB_VERIFY_OK, "node %s, from its %s, where memory had it no more",
                        name, yb_wire_tier_name(tier));
}

/* A tier that has stepped aside is no tier that a cluster lacks, whatever others have. */
static bool
all_work(struct yb_verify *verify, struct yb_verify_link *link)
{
    uint64_t left_ns = ASIDE_NS;

    for (uint32_t i = 0; i < verify->store.member_count; i++) {
        const struct yb_wire_member *member = &verify->store.members[i];
        struct yb_cli_tiers tiers;
        char name[NAME_LENGTH + 1];

        name_of(member, name);
        yb_cli_store_tiers(&verify->store, member, &left_ns, &tiers);
        for (uint32_t k = 0; k < tiers.count; k++) {
            const struct yb_wire_tier_state *tier = &tiers.each[k];

            if (tier->works == 0) {
                return yb_verify_say(link, YB_VERIFY_BROKEN, "node %s has no %s any more: %.*s",
                                     name, yb_wire_tier_name(tier->tier),
                                     (int)strnlen((const char *)tier->why, sizeof(tier->why)),
                                     (const char *)tier->why);
            }
        }
    }
    return true;
}

void
yb_verify_origin(struct yb_verify *verify, struct yb_verify_link *link)
{
    struct yb_cli_block block;
    bool told;

    if (!all_work(verify, link)) {
        return;
    }
    told = await_told(verify);
    for (uint32_t i = 0; told && i < verify->store.member_count && i < YB_VERIFY_NODES_MAX; i++) {
        const struct yb_cli_copy *below;

        if (!verify->put[i] || !has_below(&verify->store.members[i])) {
            continue;
        }
        below = await_below(verify, i, &block);
        if (below != NULL) {
            return_one(verify, link, i, &block, below->tier);
            return;
        }
    }
    (void)yb_verify_say(link, YB_VERIFY_ABSENT,
                        "no node has put a block below its memory: give nodes --data-dir or "
                        "--object-store, and write policy through");
}
