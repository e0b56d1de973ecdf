/* SPDX-License-Identifier: Apache-2.0
 *
 * What is moved for a request before its prefill, and what its prefill leaves in the tiers.
 */
#include <stdlib.h>

#include "base/check.h"
#include "sim/simulator_internal.h"

/* ---- pins ------------------------------------------------------------------------------------ */

static enum yb_status
pin(struct yb_simulator *simulator, struct yb_simulator_pins *pins, struct yb_stock_copy *copy)
{
    enum yb_status status;

    if (pins->count == pins->room) {
        uint32_t room = pins->room == 0 ? 32 : 2 * pins->room;
        struct yb_stock_copy **copies =
            realloc(pins->copies, room * sizeof(struct yb_stock_copy *));

        if (copies == NULL) {
            return YB_NO_MEMORY;
        }
        pins->copies = copies;
        pins->room = room;
    }
    status = yb_stock_pin(simulator->stock, copy);
    if (status == YB_OK) {
        pins->copies[pins->count++] = copy;
        simulator->held_pins++;
    }
    return status;
}

void
yb_simulator_unpin(struct yb_simulator *simulator, struct yb_simulator_pins *pins)
{
    for (uint32_t i = 0; i < pins->count; i++) {
        yb_stock_unpin(simulator->stock, pins->copies[i]);
    }
    simulator->held_pins -= pins->count;
    free(pins->copies);
    *pins = (struct yb_simulator_pins){0};
}

/* ---- flows ----------------------------------------------------------------------------------- */

static enum yb_status
take_flow(struct yb_simulator *simulator, uint32_t *flow_out)
{
    if (simulator->flow_unused == UINT32_MAX) {
        uint32_t room = simulator->flow_room == 0 ? 256 : 2 * simulator->flow_room;
        struct yb_simulator_flow *flows = realloc(simulator->flows, room * sizeof(*flows));

        if (flows == NULL) {
            return YB_NO_MEMORY;
        }
        simulator->flows = flows;
        for (uint32_t i = room; i-- > simulator->flow_room;) {
            flows[i].next = simulator->flow_unused;
            flows[i].pins = (struct yb_simulator_pins){0};
            simulator->flow_unused = i;
        }
        simulator->flow_room = room;
    }
    *flow_out = simulator->flow_unused;
    simulator->flow_unused = simulator->flows[*flow_out].next;
    simulator->flow_count++;
    return YB_OK;
}

static void
give_flow(struct yb_simulator *simulator, uint32_t flow)
{
    yb_simulator_unpin(simulator, &simulator->flows[flow].pins);
    simulator->flows[flow].next = simulator->flow_unused;
    simulator->flow_unused = flow;
    simulator->flow_count--;
}

static enum yb_pipe_class
class_of(const struct yb_simulator *simulator, enum yb_pipe_class class)
{
    return simulator->scenario->no_classes ? YB_PIPE_FIRST_TOKEN : class;
}

/* Return a node of the pool that is not `node`, if there is one: by the request. */
static uint32_t
other_node(const struct yb_simulator *simulator, uint32_t request, uint32_t node)
{
    uint32_t others = simulator->scenario->instances - 1;

    return others == 0
               ? node
               : (node + 1 + (uint32_t)(yb_simulator_name(request) % others)) % (others + 1);
}

/* A load from the DRAM of the pool to a request's devices. */
static struct yb_fabric_order
dram_order(const struct yb_simulator *simulator, uint32_t request, double bytes)
{
    uint32_t node = simulator->requests[request].prefill;
    bool apart = simulator->scenario->apart && simulator->scenario->instances > 1;

    return (struct yb_fabric_order){
        .from = apart ? YB_FABRIC_FROM_PEER : YB_FABRIC_FROM_DRAM,
        .peer = other_node(simulator, request, node),
        .node = node,
        .class = YB_PIPE_FIRST_TOKEN,
        .bytes = bytes,
    };
}

/* Begin a transfer for a request. `pins` are consumed. *finish_ns_out: when it is expected to be
 * through. Fails with INVALID if there is no such way. */
static enum yb_status
begin_flow(struct yb_simulator *simulator, uint32_t request, const struct yb_fabric_order *order,
           struct yb_simulator_pins *pins, bool stream, uint64_t *finish_ns_out)
{
    uint64_t now_ns = yb_agenda_now(simulator->agenda);
    struct yb_simulator_flow *flow;
    enum yb_status status;
    uint32_t index;

    status = take_flow(simulator, &index);
    if (status != YB_OK) {
        return status;
    }
    flow = &simulator->flows[index];
    status = yb_fabric_begin(simulator->fabric, order, now_ns, &flow->flow);
    if (status != YB_OK) {
        give_flow(simulator, index);
        return status;
    }
    if (pins != NULL) {
        flow->pins = *pins;
        *pins = (struct yb_simulator_pins){0};
    }
    flow->request = request;
    flow->stream = stream;
    *finish_ns_out = yb_fabric_finish_ns(simulator->fabric, &flow->flow, now_ns);
    return yb_simulator_enter(simulator, YB_SIMULATOR_FLOW, index, *finish_ns_out, 0);
}

enum yb_status
yb_simulator_flow_event(struct yb_simulator *simulator, uint32_t flow,
                        struct yb_simulator_through *through_out)
{
    uint64_t now_ns = yb_agenda_now(simulator->agenda);
    struct yb_simulator_flow *entry = &simulator->flows[flow];
    uint64_t finish_ns = yb_fabric_finish_ns(simulator->fabric, &entry->flow, now_ns);
    struct yb_simulator_request *request = &simulator->requests[entry->request];

    *through_out = (struct yb_simulator_through){
        .request = entry->request, .through = finish_ns <= now_ns, .stream = entry->stream};
    if (finish_ns > now_ns) {
        if (!entry->stream && finish_ns > request->job.ready_ns) {
            request->job.ready_ns = finish_ns;
        }
        return yb_simulator_enter(simulator, YB_SIMULATOR_FLOW, flow, finish_ns, 0);
    }
    give_flow(simulator, flow);
    return YB_OK;
}

/* A load of the request: it is ready when all are through. */
static enum yb_status
load(struct yb_simulator *simulator, uint32_t index, const struct yb_fabric_order *order,
     struct yb_simulator_pins *pins)
{
    struct yb_simulator_request *request = &simulator->requests[index];
    uint64_t finish_ns = 0;
    enum yb_status status;

    if (order->bytes <= 0) {
        return YB_OK;
    }
    status = begin_flow(simulator, index, order, pins, false, &finish_ns);
    if (status == YB_OK) {
        request->flows++;
        request->job.ready = false;
        request->job.ready_ns =
            finish_ns > request->job.ready_ns ? finish_ns : request->job.ready_ns;
    }
    return status;
}

/* ---- what is reused -------------------------------------------------------------------------- */

static struct yb_stock_copy *
find_at(struct yb_simulator *simulator, uint32_t place, uint32_t block, unsigned tiers,
        enum yb_sched_tier *tier_out)
{
    for (unsigned tier = 0; tier < tiers; tier++) {
        struct yb_stock_copy *copy =
            yb_stock_find(simulator->stock, simulator->places[place].shelves[tier], block);

        if (copy != NULL) {
            *tier_out = (enum yb_sched_tier)tier;
            return copy;
        }
    }
    return NULL;
}

static const enum yb_result_source source_of[YB_SCHED_TIERS] = {
    [YB_SCHED_TIER_DEVICE] = YB_RESULT_DEVICE,
    [YB_SCHED_TIER_DRAM] = YB_RESULT_DRAM,
    [YB_SCHED_TIER_SSD] = YB_RESULT_SSD,
    [YB_SCHED_TIER_OBJECT] = YB_RESULT_OBJECT,
};

/* Pin what the place itself has of the first `count` blocks, and load what is not on its devices.
 */
static enum yb_status
load_local(struct yb_simulator *simulator, uint32_t index, uint32_t count)
{
    struct yb_simulator_request *request = &simulator->requests[index];
    double kv_bytes = (double)simulator->scenario->cost.kv_bytes;
    double bytes[YB_SCHED_LOCAL_TIERS] = {0};
    struct yb_fabric_order order = {.node = request->prefill, .class = YB_PIPE_FIRST_TOKEN};
    enum yb_status status;
    uint32_t i;

    for (i = 0; i < count; i++) {
        uint32_t tokens = yb_simulator_block_tokens(simulator, index, i);
        enum yb_sched_tier tier = YB_SCHED_TIER_DEVICE;
        struct yb_stock_copy *copy =
            find_at(simulator, request->prefill, yb_simulator_block(simulator, index, i),
                    YB_SCHED_LOCAL_TIERS, &tier);

        if (copy == NULL || pin(simulator, &request->pins, copy) != YB_OK) {
            break;
        }
        bytes[tier] += kv_bytes * tokens;
        request->tokens_from[source_of[tier]] += tokens;
    }
    request->local_blocks = i;
    order = dram_order(simulator, index, bytes[YB_SCHED_TIER_DRAM]);
    status = load(simulator, index, &order, NULL);
    if (status == YB_OK) {
        order.from = YB_FABRIC_FROM_SSD;
        order.bytes = bytes[YB_SCHED_TIER_SSD];
        status = load(simulator, index, &order, NULL);
    }
    return status;
}

enum yb_status
yb_simulator_load(struct yb_simulator *simulator, uint32_t index,
                  const struct yb_sched_decision *decision)
{
    struct yb_simulator_request *request = &simulator->requests[index];
    uint64_t now_ns = yb_agenda_now(simulator->agenda);
    uint32_t blocks = yb_trace_blocks_of(simulator->trace, index);
    uint64_t not_before_ns = 0;
    enum yb_status status;

    request->job.ready = true;
    request->job.ready_ns = now_ns;
    request->source = decision->source;
    request->source_tier = decision->source_tier;
    status = load_local(simulator, index,
                        decision->local_blocks < blocks ? decision->local_blocks : blocks);
    request->reuse_blocks = request->local_blocks;
    if (status != YB_OK || decision->source == YB_SCHED_NONE ||
        request->local_blocks < decision->local_blocks ||
        decision->reuse_blocks <= decision->local_blocks) {
        return status;
    }
    for (uint32_t i = 0; i < decision->instruction_count; i++) {
        if (decision->instructions[i].kind == YB_SCHED_KIND_FETCH &&
            decision->instructions[i].not_before_ns > not_before_ns) {
            not_before_ns = decision->instructions[i].not_before_ns;
        }
    }
    request->reuse_blocks = decision->reuse_blocks < blocks ? decision->reuse_blocks : blocks;
    if (not_before_ns <= now_ns) {
        return yb_simulator_fetch(simulator, index);
    }
    request->fetching = true;
    request->job.ready = false;
    request->job.ready_ns = UINT64_MAX; /* Nothing of it is to be begun before. */
    return yb_simulator_enter(simulator, YB_SIMULATOR_FETCH, index, not_before_ns, 0);
}

/* Find the copy of a block at the source; NULL: it is not there any more, or not yet. */
static struct yb_stock_copy *
find_source(struct yb_simulator *simulator, const struct yb_simulator_request *request,
            uint32_t block, enum yb_sched_tier *tier_out)
{
    if (request->source == YB_SCHED_SHARED) {
        *tier_out = YB_SCHED_TIER_OBJECT;
        return yb_stock_find(simulator->stock, simulator->object_shelf, block);
    }
    return find_at(simulator, request->source, block, YB_SCHED_LOCAL_TIERS, tier_out);
}

enum yb_status
yb_simulator_fetch(struct yb_simulator *simulator, uint32_t index)
{
    static const enum yb_fabric_from from[YB_SCHED_TIERS] = {
        YB_FABRIC_FROM_PEER, YB_FABRIC_FROM_PEER, YB_FABRIC_FROM_PEER_SSD, YB_FABRIC_FROM_OBJECT};
    struct yb_simulator_request *request = &simulator->requests[index];
    double kv_bytes = (double)simulator->scenario->cost.kv_bytes;
    struct yb_simulator_pins pins[YB_SCHED_TIERS] = {{0}};
    double bytes[YB_SCHED_TIERS] = {0};
    enum yb_status status = YB_OK;
    uint32_t i;

    request->fetching = false;
    for (i = request->local_blocks; i < request->reuse_blocks; i++) {
        uint32_t tokens = yb_simulator_block_tokens(simulator, index, i);
        enum yb_sched_tier tier = YB_SCHED_TIER_DRAM;
        struct yb_stock_copy *copy =
            find_source(simulator, request, yb_simulator_block(simulator, index, i), &tier);

        if (copy == NULL || pin(simulator, &pins[tier], copy) != YB_OK) {
            break;
        }
        bytes[tier] += kv_bytes * tokens;
        request->tokens_from[tier == YB_SCHED_TIER_OBJECT ? YB_RESULT_OBJECT : YB_RESULT_PEER] +=
            tokens;
    }
    request->reuse_blocks = i;
    for (unsigned tier = 0; tier < YB_SCHED_TIERS && status == YB_OK; tier++) {
        struct yb_fabric_order order = {
            .from = from[tier],
            .peer = request->source == YB_SCHED_SHARED ? request->prefill : request->source,
            .node = request->prefill,
            .class = YB_PIPE_FIRST_TOKEN,
            .bytes = bytes[tier],
        };

        status = load(simulator, index, &order, &pins[tier]);
    }
    for (unsigned tier = 0; tier < YB_SCHED_TIERS; tier++) {
        yb_simulator_unpin(simulator, &pins[tier]);
    }
    return status;
}

/* ---- at the beginning of prefill ------------------------------------------------------------- */

static struct yb_stock_use
use_of(const struct yb_simulator *simulator, uint32_t request, uint32_t index)
{
    return (struct yb_stock_use){
        .parent =
            index == 0 ? YB_STOCK_NO_BLOCK : yb_simulator_block(simulator, request, index - 1),
        .position = index + 1,
        .request = request + 1ull,
        .answer_tokens = simulator->trace->requests[request].output_tokens,
        .now_ns = yb_agenda_now(simulator->agenda),
    };
}

/* What others have computed here meanwhile is reused too; what lies in DRAM is loaded. */
static enum yb_status
reuse_more(struct yb_simulator *simulator, uint32_t index)
{
    struct yb_simulator_request *request = &simulator->requests[index];
    uint32_t blocks = yb_trace_blocks_of(simulator->trace, index);
    struct yb_fabric_order order;
    double bytes = 0;

    while (request->reuse_blocks < blocks) {
        uint32_t tokens = yb_simulator_block_tokens(simulator, index, request->reuse_blocks);
        struct yb_stock_use use = use_of(simulator, index, request->reuse_blocks);
        enum yb_sched_tier tier = YB_SCHED_TIER_DEVICE;
        struct yb_stock_copy *copy =
            find_at(simulator, request->prefill,
                    yb_simulator_block(simulator, index, request->reuse_blocks),
                    YB_SCHED_TIER_DRAM + 1u, &tier);

        if (copy == NULL) {
            break;
        }
        yb_stock_touch(simulator->stock, copy, &use);
        request->tokens_from[source_of[tier]] += tokens;
        bytes +=
            tier == YB_SCHED_TIER_DRAM ? (double)simulator->scenario->cost.kv_bytes * tokens : 0;
        request->reuse_blocks++;
    }
    order = dram_order(simulator, index, bytes);
    return load(simulator, index, &order, NULL);
}

/* The last token of a prompt is always computed: its answer is wanted. */
static void
count_tokens(struct yb_simulator_request *request)
{
    uint32_t reused = 0;
    uint32_t largest = 0;

    for (uint32_t i = 0; i < YB_RESULT_COMPUTED; i++) {
        reused += request->tokens_from[i];
        largest = request->tokens_from[i] > request->tokens_from[largest] ? i : largest;
    }
    if (reused >= request->job.input_tokens) {
        request->tokens_from[largest] -= reused - (request->job.input_tokens - 1);
        reused = request->job.input_tokens - 1;
    }
    request->job.reused_tokens = reused;
    request->tokens_from[YB_RESULT_COMPUTED] = request->job.input_tokens - reused;
}

void
yb_simulator_begin(void *context, struct yb_instance_job *job, uint64_t now_ns)
{
    struct yb_simulator *simulator = context;
    struct yb_simulator_request *request = &simulator->requests[job->request];
    enum yb_status status = YB_OK;
    uint64_t finish_ns;

    for (uint32_t i = 0; i < request->pins.count; i++) {
        struct yb_stock_use use = use_of(simulator, job->request, i);

        yb_stock_touch(simulator->stock, request->pins.copies[i], &use);
    }
    yb_simulator_unpin(simulator, &request->pins);
    if (!simulator->scenario->no_begin && !request->fetching) {
        status = reuse_more(simulator, job->request);
    }
    count_tokens(request);
    if (status == YB_OK && request->decode != request->prefill && job->output_tokens > 1) {
        struct yb_fabric_order order = {
            .from = YB_FABRIC_FROM_PEER,
            .peer = request->prefill,
            .node = request->decode,
            .class = class_of(simulator, YB_PIPE_THROUGHPUT),
            .bytes = (double)simulator->scenario->cost.kv_bytes * job->input_tokens,
        };

        request->streaming = true;
        status = begin_flow(simulator, job->request, &order, NULL, true, &finish_ns);
    }
    if (simulator->status == YB_OK) {
        simulator->status = status;
    }
}

/* ---- what is kept ---------------------------------------------------------------------------- */

void
yb_simulator_gone(void *context, uint32_t shelf, uint32_t block)
{
    struct yb_simulator *simulator = context;

    if (simulator->gone_count == simulator->gone_room) {
        uint32_t room = simulator->gone_room == 0 ? 64 : 2 * simulator->gone_room;
        struct yb_simulator_gone *gone = realloc(simulator->gone, room * sizeof(*gone));

        if (gone == NULL) {
            simulator->status = YB_NO_MEMORY;
            return;
        }
        simulator->gone = gone;
        simulator->gone_room = room;
    }
    simulator->gone[simulator->gone_count++] =
        (struct yb_simulator_gone){.shelf = shelf, .block = block};
}

/* Tell all schedulers that a block came to a shelf, or left it. That one has no room for it, or has
 * not known of it, costs a hit. */
static void
tell(struct yb_simulator *simulator, uint32_t shelf, uint32_t block, bool came)
{
    bool shared = shelf == simulator->object_shelf;
    uint32_t place = shared ? YB_SCHED_SHARED : shelf / YB_SCHED_LOCAL_TIERS;
    uint32_t tier = shared ? YB_SCHED_TIER_OBJECT : shelf % YB_SCHED_LOCAL_TIERS;
    uint64_t name = yb_simulator_name(block);

    for (uint32_t i = 0; i < simulator->conductors; i++) {
        enum yb_status status = came ? yb_sched_add(simulator->scheds[i], name, place, tier)
                                     : yb_sched_drop(simulator->scheds[i], name, place, tier);

        YB_ASSERT(status == YB_OK || status == YB_NO_SPACE || status == YB_NOT_FOUND);
    }
}

static enum yb_status
put(struct yb_simulator *simulator, uint32_t shelf, uint32_t block, const struct yb_stock_use *use)
{
    bool known = yb_stock_find(simulator->stock, shelf, block) != NULL;
    enum yb_status status = yb_stock_put(simulator->stock, shelf, block, use);

    if (status == YB_OK && !known) {
        tell(simulator, shelf, block, true);
    }
    return status;
}

/* What left a tier of a node goes to the next one, as long as there is one: a write in the
 * background. */
static enum yb_status
demote(struct yb_simulator *simulator, const struct yb_simulator_gone *gone)
{
    uint32_t place = gone->shelf / YB_SCHED_LOCAL_TIERS;
    uint32_t tier = gone->shelf % YB_SCHED_LOCAL_TIERS;
    bool to_ssd = tier == YB_SCHED_TIER_DRAM && simulator->scenario->ssd_tokens > 0;
    uint32_t shelf = to_ssd ? gone->shelf - tier + YB_SCHED_TIER_SSD : simulator->object_shelf;
    struct yb_stock_use use = {
        .parent = YB_STOCK_NO_BLOCK,
        .now_ns = yb_agenda_now(simulator->agenda),
    };
    struct yb_fabric_order order = {
        .from = to_ssd ? YB_FABRIC_TO_SSD : YB_FABRIC_TO_OBJECT,
        .node = place,
        .class = class_of(simulator, YB_PIPE_BACKGROUND),
        .bytes = (double)(simulator->scenario->cost.kv_bytes * simulator->trace->block_tokens),
    };
    struct yb_fabric_flow flow;
    enum yb_status status;

    if (gone->shelf == simulator->object_shelf || tier == YB_SCHED_TIER_DEVICE ||
        (!to_ssd && !simulator->scenario->object) ||
        yb_stock_find(simulator->stock, shelf, gone->block) != NULL) {
        return YB_OK;
    }
    status = yb_fabric_begin(simulator->fabric, &order, use.now_ns, &flow);
    if (status == YB_OK) {
        use.parent = simulator->trace->parents[gone->block];
        status = put(simulator, shelf, gone->block, &use);
    }
    return status == YB_NO_MEMORY ? status : YB_OK;
}

static enum yb_status
settle_gone(struct yb_simulator *simulator)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < simulator->gone_count && status == YB_OK; i++) {
        struct yb_simulator_gone gone = simulator->gone[i];

        tell(simulator, gone.shelf, gone.block, false);
        status = demote(simulator, &gone);
    }
    simulator->gone_count = 0;
    return status;
}

/* Put a prompt's blocks on a shelf, from the first on, as long as there is room: never a block
 * without the one before it. */
static enum yb_status
keep_on(struct yb_simulator *simulator, uint32_t request, uint32_t shelf)
{
    uint32_t blocks = yb_trace_blocks_of(simulator->trace, request);

    for (uint32_t i = 0; i < blocks; i++) {
        struct yb_stock_use use = use_of(simulator, request, i);
        enum yb_status status;

        if (i > 0 && !simulator->scenario->no_chains &&
            yb_stock_find(simulator->stock, shelf, use.parent) == NULL) {
            break;
        }
        status = put(simulator, shelf, yb_simulator_block(simulator, request, i), &use);
        if (status == YB_NO_MEMORY) {
            return status;
        }
        status = settle_gone(simulator);
        if (status != YB_OK) {
            return status;
        }
    }
    return YB_OK;
}

/* What was computed goes to where the pool has it; nobody waits for that. */
static void
send_computed(struct yb_simulator *simulator, uint32_t request)
{
    uint32_t node = simulator->requests[request].prefill;
    struct yb_fabric_order order = {
        .from = YB_FABRIC_FROM_PEER,
        .peer = node,
        .node = other_node(simulator, request, node),
        .class = class_of(simulator, YB_PIPE_THROUGHPUT),
        .bytes = (double)simulator->scenario->cost.kv_bytes *
                 simulator->requests[request].tokens_from[YB_RESULT_COMPUTED],
    };
    struct yb_fabric_flow flow;
    enum yb_status status;

    if (order.node != node) {
        /* Without a network nothing is sent, and nothing was. */
        status =
            yb_fabric_begin(simulator->fabric, &order, yb_agenda_now(simulator->agenda), &flow);
        (void)status;
    }
}

enum yb_status
yb_simulator_keep(struct yb_simulator *simulator, uint32_t request)
{
    const struct yb_simulator_place *place =
        &simulator->places[simulator->requests[request].prefill];
    enum yb_status status = YB_OK;

    if (simulator->scenario->device_tokens > 0) {
        status = keep_on(simulator, request, place->shelves[YB_SCHED_TIER_DEVICE]);
    }
    if (status == YB_OK && simulator->scenario->dram_tokens > 0) {
        status = keep_on(simulator, request, place->shelves[YB_SCHED_TIER_DRAM]);
        if (status == YB_OK && simulator->scenario->apart) {
            send_computed(simulator, request);
        }
    }
    return status;
}
