/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run is made, freed, and summed up.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/simulator_internal.h"

#define PENDING_MAX    65536u /* Requests that a scheduler follows at a time. */
#define HOLDERS_BYTES  64u    /* Of a block and a place, ... */
#define HOLDERS_PLACES 4u     /* ... and what the set itself takes, in places. */
#define HOLDERS_MIN    (1ull << 20)
#define HOLDERS_MAX    (256ull << 20)

static bool
refuse(char *message, const char *what)
{
    snprintf(message, YB_SIMULATOR_MESSAGE_MAX, "%s", what);
    return false;
}

static bool
scenario_is_valid(const struct yb_scenario *scenario, char *message)
{
    uint64_t places = (uint64_t)scenario->instances + scenario->decode_instances;

    if (scenario->instances == 0 || places > YB_SIMULATOR_INSTANCES_MAX) {
        return refuse(message, "instances: 1 to 16384 in all");
    }
    if (scenario->decode_instances > 0 && scenario->sched.mode != YB_SCHED_MODE_DISAGGREGATED) {
        return refuse(message, "instances that only decode: in mode disaggregated only");
    }
    if (scenario->conductors > YB_SIMULATOR_CONDUCTORS_MAX) {
        return refuse(message, "conductors: 1 to 16");
    }
    if (scenario->decode_instances > 0 && !(scenario->bytes_per_s[YB_FABRIC_PORT_IN] > 0 &&
                                            scenario->bytes_per_s[YB_FABRIC_PORT_OUT] > 0)) {
        return refuse(message, "mode disaggregated needs a network");
    }
    if (scenario->ssd_tokens > 0 && !(scenario->bytes_per_s[YB_FABRIC_SSD] > 0)) {
        return refuse(message, "an SSD needs a rate");
    }
    return true;
}

static struct yb_sched_link
link_of(const struct yb_scenario *scenario, enum yb_fabric_kind kind)
{
    return (struct yb_sched_link){.rate = scenario->bytes_per_s[kind],
                                  .latency_ns = scenario->latency_ns[kind]};
}

/* Of a prompt in one step; 0: all of it. */
static uint32_t
piece_tokens(const struct yb_scenario *scenario)
{
    return scenario->sched.mode == YB_SCHED_MODE_TIME_SLICED ? 0 : scenario->chunk_tokens;
}

static enum yb_status
set_places(const struct yb_simulator *simulator, struct yb_sched *sched)
{
    const struct yb_scenario *scenario = simulator->scenario;
    struct yb_sched_link uplinks[YB_SCHED_UPLINKS] = {link_of(scenario, YB_FABRIC_UPLINK),
                                                      link_of(scenario, YB_FABRIC_DOWNLINK)};
    struct yb_sched_cost cost = scenario->cost;
    enum yb_status status;

    cost.pass_tokens = piece_tokens(scenario);
    status = yb_sched_set_cost(sched, 0, &cost);

    for (uint32_t i = 0; i < simulator->place_count && status == YB_OK; i++) {
        bool decodes = i >= scenario->instances;
        bool apart = scenario->sched.mode == YB_SCHED_MODE_DISAGGREGATED;
        struct yb_sched_instance place = {
            .struct_bytes = sizeof(place),
            .roles = decodes                                   ? YB_SCHED_DECODE
                     : apart && scenario->decode_instances > 0 ? YB_SCHED_PREFILL
                                                               : YB_SCHED_PREFILL | YB_SCHED_DECODE,
            .node = i,
            .rack = scenario->rack_nodes == 0 ? 0 : i / scenario->rack_nodes,
            .links = {[YB_SCHED_LINK_IN] = link_of(scenario, YB_FABRIC_PORT_IN),
                      [YB_SCHED_LINK_OUT] = link_of(scenario, YB_FABRIC_PORT_OUT),
                      [YB_SCHED_LINK_LOAD] =
                          link_of(scenario, scenario->apart ? YB_FABRIC_PORT_IN : YB_FABRIC_BUS),
                      [YB_SCHED_LINK_SSD] = link_of(scenario, YB_FABRIC_SSD),
                      [YB_SCHED_LINK_OBJECT] = link_of(scenario, YB_FABRIC_OBJECT)},
        };

        if (scenario->rack_nodes > 0 && i % scenario->rack_nodes == 0) {
            status = yb_sched_set_rack(sched, place.rack, uplinks);
        }
        if (status == YB_OK) {
            status = yb_sched_set_instance(sched, i, &place);
        }
    }
    return status;
}

/* Bytes for sets of holders: more than if each block had its own set, with all places in it. The
 * library's default, which is for a live cluster, would be most of what a short run takes. */
static uint64_t
holders_bytes(const struct yb_simulator *simulator)
{
    uint64_t bytes = (uint64_t)simulator->trace->block_count *
                     (simulator->place_count + HOLDERS_PLACES) * HOLDERS_BYTES;

    return bytes < HOLDERS_MIN ? HOLDERS_MIN : bytes < HOLDERS_MAX ? bytes : HOLDERS_MAX;
}

static enum yb_status
make_scheds(struct yb_simulator *simulator, char *message)
{
    enum yb_status status = YB_OK;

    for (uint32_t i = 0; i < simulator->conductors && status == YB_OK; i++) {
        struct yb_sched_options options = simulator->scenario->sched;
        uint32_t blocks = simulator->trace->block_count;

        options.struct_bytes = sizeof(options);
        options.places_max = simulator->place_count;
        options.blocks_max = blocks < 1024 ? 1024 : blocks;
        options.holders_bytes_max = holders_bytes(simulator);
        options.pending_max = simulator->trace->request_count < PENDING_MAX
                                  ? simulator->trace->request_count
                                  : PENDING_MAX;
        options.block_tokens = simulator->trace->block_tokens;
        options.conductor = i;
        options.seed = simulator->scenario->seed;
        status =
            yb_sched_create(&options, &simulator->scheds[i], message, YB_SIMULATOR_MESSAGE_MAX);
        if (status == YB_OK) {
            status = yb_sched_scratch_create(simulator->scheds[i], &simulator->scratches[i]);
        }
        if (status == YB_OK) {
            status = set_places(simulator, simulator->scheds[i]);
        }
    }
    return status;
}

static enum yb_status
make_shelves(struct yb_simulator *simulator, struct yb_simulator_place *place, bool decodes)
{
    const struct yb_scenario *scenario = simulator->scenario;
    uint32_t size = simulator->trace->block_tokens;
    const char *eviction = scenario->eviction == NULL ? "lru" : scenario->eviction;
    uint64_t tokens[YB_SCHED_LOCAL_TIERS] = {scenario->device_tokens, scenario->dram_tokens,
                                             scenario->ssd_tokens};
    enum yb_status status = YB_OK;

    for (unsigned tier = 0; tier < YB_SCHED_LOCAL_TIERS && status == YB_OK; tier++) {
        status = yb_stock_add_shelf(simulator->stock, eviction, decodes ? 0 : tokens[tier] / size,
                                    &place->shelves[tier]);
    }
    return status;
}

static enum yb_status
make_place(struct yb_simulator *simulator, uint32_t index)
{
    const struct yb_scenario *scenario = simulator->scenario;
    struct yb_simulator_place *place = &simulator->places[index];
    uint64_t room = scenario->cost.kv_tokens_max;
    struct yb_instance_options options = {
        .cost = &scenario->cost,
        .chunk_tokens = piece_tokens(scenario),
        .batch_max = scenario->batch_max,
        .kv_tokens = room == 0                        ? 0
                     : room > scenario->device_tokens ? room - scenario->device_tokens
                                                      : 1,
        .in_order = scenario->in_order,
        .no_overlap = scenario->no_overlap,
        .begin = yb_simulator_begin,
        .context = simulator,
        .gaps = &place->gaps,
    };
    enum yb_status status = yb_instance_init(&place->instance, &options);

    return status == YB_OK ? make_shelves(simulator, place, index >= scenario->instances) : status;
}

static enum yb_status
allocate(struct yb_simulator *simulator)
{
    const struct yb_trace *trace = simulator->trace;
    uint32_t longest = 1;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint32_t blocks = yb_trace_blocks_of(trace, i);

        longest = blocks > longest ? blocks : longest;
    }
    simulator->places = calloc(simulator->place_count, sizeof(*simulator->places));
    simulator->changed = calloc(simulator->place_count, sizeof(*simulator->changed));
    simulator->requests = calloc(trace->request_count, sizeof(*simulator->requests));
    simulator->names = calloc(longest, sizeof(*simulator->names));
    return simulator->places == NULL || simulator->changed == NULL || simulator->requests == NULL ||
                   simulator->names == NULL
               ? YB_NO_MEMORY
               : YB_OK;
}

enum yb_status
yb_simulator_make(struct yb_simulator *simulator, char *message)
{
    const struct yb_scenario *scenario = simulator->scenario;
    struct yb_fabric_options fabric = {.rack_nodes = scenario->rack_nodes};
    enum yb_status status;

    if (!scenario_is_valid(scenario, message)) {
        return YB_INVALID;
    }
    simulator->conductors = scenario->conductors == 0 ? 1 : scenario->conductors;
    simulator->place_count = scenario->instances + scenario->decode_instances;
    simulator->flow_unused = UINT32_MAX;
    fabric.nodes = simulator->place_count;
    memcpy(fabric.bytes_per_s, scenario->bytes_per_s, sizeof(fabric.bytes_per_s));
    memcpy(fabric.latency_ns, scenario->latency_ns, sizeof(fabric.latency_ns));
    status = allocate(simulator);
    if (status == YB_OK) {
        status = yb_agenda_create(&simulator->agenda);
    }
    if (status == YB_OK) {
        status = yb_fabric_create(&fabric, &simulator->fabric);
    }
    if (status == YB_OK) {
        status = yb_stock_create(simulator->trace->block_count, yb_simulator_gone, simulator,
                                 &simulator->stock);
    }
    if (status == YB_OK && scenario->no_chains) {
        yb_stock_without_chains(simulator->stock);
    }
    for (uint32_t i = 0; i < simulator->place_count && status == YB_OK; i++) {
        status = make_place(simulator, i);
    }
    if (status == YB_OK) {
        status =
            yb_stock_add_shelf(simulator->stock, "lru", scenario->object ? YB_STOCK_UNBOUNDED : 0,
                               &simulator->object_shelf);
    }
    return status == YB_OK ? make_scheds(simulator, message) : status;
}

void
yb_simulator_free(struct yb_simulator *simulator)
{
    for (uint32_t i = 0; simulator->places != NULL && i < simulator->place_count; i++) {
        yb_instance_fini(&simulator->places[i].instance);
    }
    for (uint32_t i = 0; simulator->requests != NULL && i < simulator->trace->request_count; i++) {
        free(simulator->requests[i].pins.copies);
    }
    for (uint32_t i = 0; i < simulator->flow_room; i++) {
        free(simulator->flows[i].pins.copies);
    }
    for (uint32_t i = 0; i < YB_SIMULATOR_CONDUCTORS_MAX; i++) {
        if (simulator->scratches[i] != NULL) {
            yb_sched_scratch_destroy(&simulator->scratches[i]);
        }
        if (simulator->scheds[i] != NULL) {
            yb_sched_destroy(&simulator->scheds[i]);
        }
    }
    yb_stock_destroy(&simulator->stock);
    yb_fabric_destroy(&simulator->fabric);
    yb_agenda_destroy(&simulator->agenda);
    free(simulator->places);
    free(simulator->changed);
    free(simulator->requests);
    free(simulator->flows);
    free(simulator->gone);
    free(simulator->names);
}

/* ---- the result ------------------------------------------------------------------------------ */

static int
compare(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;

    return (*left > *right) - (*left < *right);
}

struct yb_result_times
yb_result_times(uint64_t *values, uint32_t count)
{
    struct yb_result_times times = {0};
    double sum = 0;
    uint32_t first = 0;

    qsort(values, count, sizeof(*values), compare);
    while (first < count && values[first] == 0) {
        first++;
    }
    values += first;
    times.count = count - first;
    if (times.count == 0) {
        return times;
    }
    for (uint64_t i = 0; i < times.count; i++) {
        sum += (double)values[i];
    }
    times.mean_ns = sum / (double)times.count;
#define AT(share) values[(uint64_t)ceil((share) * (double)times.count) - 1]
    times.p50_ns = AT(0.5);
    times.p90_ns = AT(0.9);
    times.p95_ns = AT(0.95);
    times.p99_ns = AT(0.99);
#undef AT
    times.max_ns = values[times.count - 1];
    return times;
}

static struct yb_result_times
times_of(const struct yb_tally *tally)
{
    return (struct yb_result_times){
        .count = tally->count,
        .mean_ns = yb_tally_mean(tally),
        .p50_ns = yb_tally_quantile(tally, 0.5),
        .p90_ns = yb_tally_quantile(tally, 0.9),
        .p95_ns = yb_tally_quantile(tally, 0.95),
        .p99_ns = yb_tally_quantile(tally, 0.99),
        .max_ns = tally->max,
    };
}

/* Z2, and that every pin was given back. */
static void
check_balance(struct yb_simulator *simulator, struct yb_result *result)
{
    YB_ASSERT(simulator->held_pins == 0);
    YB_ASSERT(simulator->flow_count == 0);
    for (uint32_t i = 0; i <= simulator->object_shelf; i++) {
        struct yb_stock_counts counts = yb_stock_counts(simulator->stock, i);

        YB_ASSERT(counts.put == counts.evicted + counts.removed + counts.present);
        result->shelf_put += counts.put;
        result->shelf_evicted += counts.evicted;
        result->shelf_present += counts.present;
        result->shelf_refused += (uint32_t)counts.refused;
    }
    for (uint32_t i = 0; i < simulator->trace->block_count; i++) {
        uint32_t copies = 0;

        for (struct yb_stock_copy *copy = yb_stock_first(simulator->stock, i); copy != NULL;
             copy = copy->next) {
            copies++;
        }
        result->replicas_max = copies > result->replicas_max ? copies : result->replicas_max;
    }
}

static void
sum_places(struct yb_simulator *simulator, struct yb_result *result)
{
    struct yb_tally gaps = {0};
    double time = (double)result->makespan_ns * simulator->place_count;

    for (uint32_t i = 0; i < simulator->place_count; i++) {
        const struct yb_simulator_place *place = &simulator->places[i];

        YB_ASSERT(place->queued == 0 && place->instance.kv_used == 0);
        result->prefill_ns += place->instance.prefill_busy_ns;
        result->decode_use += place->instance.decode_busy_ns / time;
        result->stall_use += place->instance.stall_ns / time;
        gaps.sum += place->gaps.sum;
        gaps.count += place->gaps.count;
        gaps.max = place->gaps.max > gaps.max ? place->gaps.max : gaps.max;
        for (uint32_t j = 0; j < YB_HISTOGRAM_BUCKETS; j++) {
            gaps.buckets[j] += place->gaps.buckets[j];
        }
    }
    result->prefill_use = result->prefill_ns / time;
    result->tbt = times_of(&gaps);
}

static void
sum_requests(struct yb_simulator *simulator, struct yb_result *result)
{
    for (uint32_t i = 0; i < result->requests; i++) {
        const struct yb_simulator_request *request = &simulator->requests[i];

        if (request->state == YB_SIMULATOR_REJECTED) {
            result->rejected++;
            result->refused += request->refused;
            result->wasted_tokens +=
                request->refused ? request->tokens_from[YB_RESULT_COMPUTED] : 0;
            continue;
        }
        YB_ASSERT(request->state == YB_SIMULATOR_DONE);
        result->done++;
        result->input_tokens += request->job.input_tokens;
        result->output_tokens += request->job.output_tokens;
        for (unsigned j = 0; j < YB_RESULT_SOURCES; j++) {
            result->source_tokens[j] += request->tokens_from[j];
        }
        result->ttft_ns[i] = request->first_ns - simulator->trace->requests[i].arrival_ns;
        if (request->job.output_tokens > 1) {
            result->tpot_ns[i] =
                (request->last_ns - request->first_ns) / (request->job.output_tokens - 1);
            result->turn_ns[i] = request->job.decode_ns - request->first_ns;
        }
    }
}

/* `sorted` has room for all requests. */
static double
steady_per_s(const struct yb_simulator *simulator, uint64_t *sorted)
{
    uint64_t start_ns = simulator->trace->requests[0].arrival_ns;
    uint32_t count = simulator->trace->request_count;
    uint32_t done = 0;
    uint32_t part;

    for (uint32_t i = 0; i < count; i++) {
        if (simulator->requests[i].state == YB_SIMULATOR_DONE) {
            sorted[done++] = simulator->requests[i].last_ns - start_ns;
        }
    }
    qsort(sorted, done, sizeof(*sorted), compare);
    part = done - done / 10;
    return part == 0 || sorted[part - 1] == 0 ? 0 : part / ((double)sorted[part - 1] / 1e9);
}

enum yb_status
yb_simulator_result(struct yb_simulator *simulator, struct yb_result *result_out)
{
    uint32_t count = simulator->trace->request_count;
    struct yb_result result = {.requests = count, .events = yb_agenda_count(simulator->agenda)};
    uint64_t now_ns = yb_agenda_now(simulator->agenda);
    uint64_t *sorted = calloc(count, sizeof(*sorted));
    uint64_t computed = 0;

    result.avoided = simulator->avoided;
    result.ttft_ns = calloc(count, sizeof(*result.ttft_ns));
    result.tpot_ns = calloc(count, sizeof(*result.tpot_ns));
    result.turn_ns = calloc(count, sizeof(*result.turn_ns));
    if (sorted == NULL || result.ttft_ns == NULL || result.tpot_ns == NULL ||
        result.turn_ns == NULL) {
        free(sorted);
        yb_result_fini(&result);
        return YB_NO_MEMORY;
    }
    result.makespan_ns = simulator->last_ns - simulator->trace->requests[0].arrival_ns;
    result.makespan_ns = result.makespan_ns == 0 ? 1 : result.makespan_ns;
    sum_requests(simulator, &result);
    sum_places(simulator, &result);
    check_balance(simulator, &result);
    for (uint32_t i = 0; i < simulator->place_count; i++) {
        computed += simulator->places[i].instance.computed_tokens;
    }
    for (unsigned i = 0; i < YB_RESULT_COMPUTED; i++) { /* Z4 */
        computed += result.source_tokens[i];
    }
    YB_ASSERT(computed == result.input_tokens + result.wasted_tokens);
    result.steady_per_s = steady_per_s(simulator, sorted);
    memcpy(sorted, result.ttft_ns, count * sizeof(*sorted));
    result.ttft = yb_result_times(sorted, count);
    memcpy(sorted, result.tpot_ns, count * sizeof(*sorted));
    result.tpot = yb_result_times(sorted, count);
    for (unsigned i = 0; i < YB_FABRIC_KINDS; i++) {
        result.links[i] = yb_fabric_use(simulator->fabric, (enum yb_fabric_kind)i, now_ns);
    }
    result.requests_per_s = (double)result.done / ((double)result.makespan_ns / 1e9);
    free(sorted);
    *result_out = result;
    return YB_OK;
}

void
yb_result_fini(struct yb_result *result)
{
    free(result->ttft_ns);
    free(result->tpot_ns);
    free(result->turn_ns);
    result->ttft_ns = NULL;
    result->tpot_ns = NULL;
    result->turn_ns = NULL;
}

double
yb_result_share(const struct yb_result *result, enum yb_result_source source)
{
    return result->input_tokens == 0
               ? 0
               : (double)result->source_tokens[source] / (double)result->input_tokens;
}

double
yb_result_hit(const struct yb_result *result)
{
    return result->input_tokens == 0 ? 0 : 1 - yb_result_share(result, YB_RESULT_COMPUTED);
}

const char *
yb_result_source_name(enum yb_result_source source)
{
    static const char *const names[] = {
#define X(name, text) text,
        YB_RESULT_SOURCE_MAP(X)
#undef X
    };

    return names[source];
}
