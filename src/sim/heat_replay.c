/* SPDX-License-Identifier: Apache-2.0
 *
 * The moves of heat_replay.h.
 */
#include "sim/heat_replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/pipe.h"
#include "sim/simulator.h"
#include "yuebing/sched.h"

#define NONE      UINT32_MAX
#define MOVES_MAX 64u /* At once. */

/* A block of the trace; those in DRAM are a list, the least lately used first. */
struct slot {
    uint32_t before;
    uint32_t after;
    bool stored; /* In the object store, */
    bool dram;   /* in DRAM, */
    bool moved;  /* by a move, and not used since. */
};

struct moving {
    uint32_t block;
    double mark; /* Of the pipe. */
};

struct node {
    const struct yb_trace *trace;
    const struct yb_heat_case *one;
    struct yb_sched_heat *heat;
    struct yb_sched *sched; /* Knows what lies where. */
    struct yb_pipe pipe;
    struct slot *slots;
    uint32_t oldest;
    uint32_t newest;
    uint32_t count;
    uint64_t *names; /* Of the blocks of one request. */
    uint64_t *waits_ns;
    struct moving moving[MOVES_MAX];
    uint32_t moving_count;
    struct yb_heat_result result;
};

/* ---- DRAM ------------------------------------------------------------------------------------ */

static void
unlink_slot(struct node *node, uint32_t block)
{
    struct slot *slot = &node->slots[block];

    *(slot->before == NONE ? &node->oldest : &node->slots[slot->before].after) = slot->after;
    *(slot->after == NONE ? &node->newest : &node->slots[slot->after].before) = slot->before;
}

static void
link_newest(struct node *node, uint32_t block)
{
    struct slot *slot = &node->slots[block];

    slot->before = node->newest;
    slot->after = NONE;
    *(node->newest == NONE ? &node->oldest : &node->slots[node->newest].after) = block;
    node->newest = block;
}

/* Names of blocks for the scheduler begin at 1. */
static enum yb_status
add(struct node *node, uint32_t block, uint32_t place, uint32_t tier)
{
    return yb_sched_add(node->sched, block + 1ull, place, tier);
}

static enum yb_status
evict_oldest(struct node *node)
{
    uint32_t block = node->oldest;

    unlink_slot(node, block);
    node->slots[block].dram = false;
    node->slots[block].moved = false;
    node->count--;
    return yb_sched_drop(node->sched, block + 1ull, 0, YB_SCHED_TIER_DRAM);
}

static enum yb_status
put(struct node *node, uint32_t block, bool moved)
{
    struct slot *slot = &node->slots[block];
    enum yb_status status = YB_OK;

    if (slot->dram) {
        unlink_slot(node, block);
        link_newest(node, block);
        slot->moved = slot->moved && moved;
        return YB_OK;
    }
    if (node->count == node->one->dram_blocks) {
        status = evict_oldest(node);
    }
    link_newest(node, block);
    node->count++;
    slot->dram = true;
    slot->moved = moved;
    return status == YB_OK ? add(node, block, 0, YB_SCHED_TIER_DRAM) : status;
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Whether a block is wanted more than the one that would make way for it. */
static bool
is_worth_it(const struct node *node, uint32_t block, uint64_t now_ns)
{
    return node->count < node->one->dram_blocks ||
           yb_sched_heat_of(node->heat, block + 1ull, now_ns) >
               yb_sched_heat_of(node->heat, node->oldest + 1ull, now_ns);
}

/* Put what has come by now. */
static enum yb_status
land(struct node *node, uint64_t now_ns)
{
    enum yb_status status = YB_OK;
    uint32_t left = 0;

    yb_pipe_advance(&node->pipe, now_ns);
    for (uint32_t i = 0; i < node->moving_count && status == YB_OK; i++) {
        struct moving *moving = &node->moving[i];

        if (moving->mark > node->pipe.served[YB_PIPE_BACKGROUND] + 1) {
            node->moving[left++] = *moving;
        } else if (!node->slots[moving->block].dram && is_worth_it(node, moving->block, now_ns)) {
            status = put(node, moving->block, true);
        }
    }
    node->moving_count = left;
    return status;
}

static bool
is_moving(const struct node *node, uint32_t block)
{
    for (uint32_t i = 0; i < node->moving_count; i++) {
        if (node->moving[i].block == block) {
            return true;
        }
    }
    return false;
}

/* Only while nobody waits: the background's guaranteed share would be taken from loads. */
static void
begin_moves(struct node *node, uint64_t now_ns)
{
    struct yb_sched_move moves[MOVES_MAX];
    uint32_t count;

    if (yb_pipe_backlog(&node->pipe, YB_PIPE_BACKGROUND, now_ns) > 0) {
        return;
    }
    count = yb_sched_heat_moves(node->heat, node->sched, YB_HEAT_LEAST, now_ns, moves,
                                MOVES_MAX - node->moving_count);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = (uint32_t)(moves[i].block - 1);

        if (is_moving(node, block) || !is_worth_it(node, block, now_ns)) {
            continue;
        }
        node->moving[node->moving_count++] = (struct moving){
            .block = block,
            .mark = yb_pipe_enter(&node->pipe, YB_PIPE_BACKGROUND, node->one->block_bytes, now_ns),
        };
        node->result.moved++;
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum yb_status
request(struct node *node, uint32_t index)
{
    const struct yb_trace_request *asked = &node->trace->requests[index];
    const uint32_t *blocks = &node->trace->blocks[asked->first];
    uint32_t count = yb_trace_blocks_of(node->trace, index);
    uint32_t fetched = 0;
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < count && status == YB_OK; i++) {
        struct slot *slot = &node->slots[blocks[i]];

        node->names[i] = blocks[i] + 1ull;
        node->result.dram_blocks += slot->dram;
        node->result.moved_used += slot->moved;
        fetched += !slot->dram && slot->stored;
        if (!slot->stored) {
            slot->stored = true;
            status = add(node, blocks[i], YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT);
        }
        if (status == YB_OK) {
            status = put(node, blocks[i], false);
        }
    }
    node->result.object_blocks += fetched;
    if (fetched > 0) {
        double mark = yb_pipe_enter(&node->pipe, YB_PIPE_FIRST_TOKEN,
                                    fetched * node->one->block_bytes, asked->arrival_ns);

        node->waits_ns[index] =
            yb_pipe_finish_ns(&node->pipe, YB_PIPE_FIRST_TOKEN, mark, asked->arrival_ns) -
            asked->arrival_ns;
        node->result.waited++;
    }
    yb_sched_heat_access(node->heat, node->names, count, asked->arrival_ns);
    return status;
}

static enum yb_status
run(struct node *node)
{
    uint64_t due_ns = node->trace->requests[0].arrival_ns + YB_HEAT_EVERY_NS;
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < node->trace->request_count && status == YB_OK; i++) {
        uint64_t now_ns = node->trace->requests[i].arrival_ns;

        for (; node->one->moves && due_ns <= now_ns && status == YB_OK;
             due_ns += YB_HEAT_EVERY_NS) {
            status = land(node, due_ns);
            begin_moves(node, due_ns);
        }
        if (status == YB_OK) {
            status = land(node, now_ns);
        }
        if (status == YB_OK) {
            status = request(node, i);
        }
    }
    return status;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static enum yb_status
make_sched(struct node *node)
{
    struct yb_sched_options options = {
        .struct_bytes = sizeof(options),
        .places_max = 1,
        .blocks_max = node->trace->block_count + 1024u,
    };
    struct yb_sched_cost cost = {.kv_bytes = 1, .layers = 1, .prefill_token_ns = 1};
    struct yb_sched_instance place = {
        .struct_bytes = sizeof(place),
        .roles = YB_SCHED_PREFILL | YB_SCHED_DECODE,
        .links[YB_SCHED_LINK_OBJECT] = {.rate = node->one->bytes_per_s},
    };
    char message[YB_SIMULATOR_MESSAGE_MAX];
    enum yb_status status = yb_sched_create(&options, &node->sched, message, sizeof(message));

    if (status == YB_OK) {
        status = yb_sched_set_cost(node->sched, 0, &cost);
    }
    return status == YB_OK ? yb_sched_set_instance(node->sched, 0, &place) : status;
}

static uint32_t
longest(const struct yb_trace *trace)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint32_t count = yb_trace_blocks_of(trace, i);

        most = count > most ? count : most;
    }
    return most;
}

/* Of all requests, those that did not wait among them. */
static void
take_waits(struct node *node)
{
    uint32_t count = node->trace->request_count;
    uint32_t zeros = count - node->result.waited;
    struct yb_result_times times = yb_result_times(node->waits_ns, count); /* Sorts them. */
    uint32_t p99 = (uint32_t)((count * 99ull + 99) / 100) - 1;

    node->result.wait_mean_ns = times.mean_ns * (count - zeros) / count;
    node->result.wait_p99_ns = (double)node->waits_ns[p99];
}

enum yb_status
yb_heat_replay(const struct yb_trace *trace, const struct yb_heat_case *one,
               struct yb_heat_result *result_out)
{
    struct node node = {.trace = trace, .one = one, .oldest = NONE, .newest = NONE};
    enum yb_status status;

    if (one->dram_blocks == 0 || !(one->bytes_per_s > 0) || !(one->block_bytes > 0)) {
        return YB_INVALID;
    }
    status = yb_sched_heat_create(YB_HEAT_BLOCKS, one->horizon_ns, &node.heat);
    if (status != YB_OK) {
        return status;
    }
    yb_pipe_init(&node.pipe, one->bytes_per_s);
    node.slots = calloc(trace->block_count, sizeof(*node.slots));
    node.names = calloc(longest(trace), sizeof(*node.names));
    node.waits_ns = calloc(trace->request_count, sizeof(*node.waits_ns));
    status = YB_NO_MEMORY;
    if (node.slots != NULL && node.names != NULL && node.waits_ns != NULL) {
        status = make_sched(&node);
    }
    if (status == YB_OK) {
        status = run(&node);
    }
    if (status == YB_OK) {
        take_waits(&node);
        *result_out = node.result;
    }
    yb_sched_destroy(&node.sched);
    free(node.waits_ns);
    free(node.names);
    free(node.slots);
    yb_sched_heat_destroy(&node.heat);
    return status;
}
