/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs of the simulator: times worked out by hand, conservation, and that nothing depends on
 * anything but the scenario, the trace and the seed.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "sim/never_worse.h"
#include "sim/paper.h"
#include "sim/settings.h"
#include "sim/simulator.h"
#include "sim/trace_gen.h"

#define BLOCK 10u

/* A token of a prompt takes 1 us; a step of one answer with 101 tokens before it 211 ns. */
static struct yb_scenario
plain(void)
{
    return (struct yb_scenario){
        .instances = 1,
        .cost = {.prefill_token_ns = 1000,
                 .step_base_ns = 100,
                 .step_sequence_ns = 10,
                 .step_token_ns = 1,
                 .kv_bytes = 100,
                 .layers = 10},
        .sched = {.routing = "ready", .fetch_none = true},
        .device_tokens = 1000,
        .seed = 1,
    };
}

/* A trace whose request i has prompt_of[i] as its family: blocks family * 100 .. */
struct asked {
    uint64_t at_ns;
    uint32_t family;
    uint32_t input;
    uint32_t output;
};

#define BLOCKS_MAX 2000u

static struct yb_trace *
trace_of(const struct asked *asked, uint32_t count)
{
    struct yb_trace *trace = calloc(1, sizeof(*trace));

    trace->requests = calloc(count, sizeof(*trace->requests));
    trace->blocks = calloc((size_t)count * 100, sizeof(*trace->blocks));
    trace->parents = calloc(BLOCKS_MAX, sizeof(*trace->parents));
    trace->request_count = count;
    trace->block_count = BLOCKS_MAX;
    trace->block_tokens = BLOCK;
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        trace->parents[i] = i % 100 == 0 ? YB_TRACE_NONE : i - 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        trace->requests[i] = (struct yb_trace_request){.arrival_ns = asked[i].at_ns,
                                                       .first = trace->reference_count,
                                                       .input_tokens = asked[i].input,
                                                       .output_tokens = asked[i].output};
        for (uint32_t j = 0; j < (asked[i].input + BLOCK - 1) / BLOCK; j++) {
            trace->blocks[trace->reference_count++] = asked[i].family * 100 + j;
        }
    }
    return trace;
}

static struct yb_result
run(const struct yb_scenario *scenario, const struct yb_trace *trace)
{
    char message[YB_SIMULATOR_MESSAGE_MAX];
    struct yb_result result;
    enum yb_status status = yb_simulator_run(scenario, trace, &result, message);

    if (status != YB_OK) {
        fail_msg("%s", message);
    }
    return result;
}

static void
test_simulator__one_request_takes_its_prefill_and_its_steps(void **state)
{
    struct yb_scenario scenario = plain();
    struct yb_trace *trace = trace_of((const struct asked[]){{500, 0, 100, 3}}, 1);
    struct yb_result result = run(&scenario, trace);

    (void)state;
    assert_int_equal(result.done, 1);
    assert_int_equal(result.ttft_ns[0], 100000);
    assert_int_equal(result.tpot_ns[0], (211 + 212) / 2);
    assert_int_equal(result.makespan_ns, 100000 + 211 + 212);
    assert_int_equal(result.source_tokens[YB_RESULT_COMPUTED], 100);
    yb_result_fini(&result);
    yb_trace_destroy(&trace);
}

static void
test_simulator__a_prompt_that_came_before_costs_its_last_token(void **state)
{
    struct yb_scenario scenario = plain();
    struct yb_trace *trace =
        trace_of((const struct asked[]){{0, 0, 100, 1}, {1000, 0, 100, 1}, {900000, 1, 50, 1}}, 3);
    struct yb_result result = run(&scenario, trace);

    (void)state;
    /* The second came while the first was computed: it waits, and finds it when it begins. */
    assert_int_equal(result.ttft_ns[1], 100000 - 1000 + 1000);
    assert_int_equal(result.source_tokens[YB_RESULT_DEVICE], 99);
    assert_int_equal(result.ttft_ns[2], 50000);
    yb_result_fini(&result);
    scenario.device_tokens = 0;
    result = run(&scenario, trace);
    assert_int_equal(result.ttft_ns[1], 200000 - 1000);
    assert_int_equal(result.source_tokens[YB_RESULT_COMPUTED], 250);
    yb_result_fini(&result);
    yb_trace_destroy(&trace);
}

/* A step is never mixed with a piece of a prompt. */
static void
test_simulator__who_takes_turns_computes_whole_prompts(void **state)
{
    struct yb_trace *trace =
        trace_of((const struct asked[]){{0, 0, 100, 1000}, {150000, 1, 100, 2}}, 2);
    struct yb_scenario scenario = plain();
    struct yb_result mixed;
    struct yb_result turns;

    (void)state;
    scenario.chunk_tokens = 10;
    mixed = run(&scenario, trace);
    scenario.sched.mode = YB_SCHED_MODE_TIME_SLICED;
    turns = run(&scenario, trace);
    assert_true(turns.ttft_ns[1] >= 100000 && turns.ttft_ns[1] < 100000 + 1000);
    assert_true(turns.tbt.max_ns >= 100000); /* The first one's answer stands still meanwhile, */
    assert_true(mixed.tbt.max_ns < 12000);   /* and otherwise goes on beside each piece. */
    yb_result_fini(&mixed);
    yb_result_fini(&turns);
    yb_trace_destroy(&trace);
}

static void
test_simulator__what_lies_in_dram_is_loaded_while_layers_are_computed(void **state)
{
    struct yb_scenario scenario = plain();
    struct yb_trace *trace =
        trace_of((const struct asked[]){{0, 0, 100, 1}, {1000000, 0, 200, 1}}, 2);
    struct yb_result result;

    (void)state;
    scenario.device_tokens = 0;
    scenario.dram_tokens = 1000;
    scenario.bytes_per_s[YB_FABRIC_BUS] = 1e9; /* 100 tokens of 100 bytes: 10 us. */
    result = run(&scenario, trace);
    assert_int_equal(result.source_tokens[YB_RESULT_DRAM], 100);
    assert_int_equal(result.ttft_ns[1], 100000);
    assert_true(result.links[YB_FABRIC_BUS].bytes == 10000);
    yb_result_fini(&result);
    yb_trace_destroy(&trace);
}

static void
test_simulator__a_prompt_is_fetched_from_whoever_has_it_when_that_is_faster(void **state)
{
    struct yb_scenario scenario = plain();
    struct yb_trace *trace = trace_of(
        (const struct asked[]){
            {0, 0, 500, 1}, {1000000, 0, 501, 1}, {1000001, 0, 502, 1}, {1000002, 0, 503, 1}},
        4);
    struct yb_result result;

    (void)state;
    scenario.instances = 4;
    scenario.device_tokens = 0;
    scenario.dram_tokens = 1000;
    scenario.sched.fetch_none = false;
    scenario.sched.routing = "mooncake";
    scenario.bytes_per_s[YB_FABRIC_BUS] = 1e12;
    scenario.bytes_per_s[YB_FABRIC_PORT_IN] = 1e11; /* 50,000 bytes: 500 ns. */
    scenario.bytes_per_s[YB_FABRIC_PORT_OUT] = 1e11;
    result = run(&scenario, trace);
    assert_int_equal(result.done, 4);
    /* The last block, which is partial, is known once the second request has computed it. */
    assert_int_equal(result.source_tokens[YB_RESULT_COMPUTED], 500 + 1 + 1 + 1);
    assert_true(result.ttft.max_ns == 500000);
    assert_true(result.ttft_ns[3] < 10000);
    yb_result_fini(&result);
    yb_trace_destroy(&trace);
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Two prompts, one after the other; decode is elsewhere. When the second is prefilled the first is
 * decoded, and a step takes more than 210 ns: 100, 10 for the answer, 1 for each of 100 tokens. */
static void
test_simulator__with_recheck_a_prompt_is_prefilled_in_vain_if_decode_is_full_then(void **state)
{
    static const uint64_t objectives_ns[] = {0, 210, 2000};
    struct yb_scenario scenario = plain();
    struct yb_trace *trace = trace_of((const struct asked[]){{0, 0, 100, 900}, {0, 1, 70, 2}}, 2);

    (void)state;
    scenario.sched.mode = YB_SCHED_MODE_DISAGGREGATED;
    scenario.decode_instances = 1;
    scenario.bytes_per_s[YB_FABRIC_PORT_IN] = 1e12;
    scenario.bytes_per_s[YB_FABRIC_PORT_OUT] = 1e12;
    for (uint32_t i = 0; i < 6; i++) {
        struct yb_result result;
        bool refused;

        scenario.recheck = i % 2 == 1;
        scenario.sched.tpot_slo_ns = objectives_ns[i / 2];
        refused = scenario.recheck && scenario.sched.tpot_slo_ns == 210;
        result = run(&scenario, trace);
        assert_int_equal(result.refused, refused);
        assert_int_equal(result.rejected, refused);
        assert_int_equal(result.done, 2 - refused);
        assert_int_equal(result.wasted_tokens, refused ? 70 : 0);
        assert_int_equal(result.source_tokens[YB_RESULT_COMPUTED], refused ? 100 : 170);
        assert_int_equal(result.ttft_ns[1] == 0, refused);
        yb_result_fini(&result);
    }
    yb_trace_destroy(&trace);
}

/* ---- several schedulers ---------------------------------------------------------------------- */

#define HERD_REQUESTS 1500u

/* The mean time to the first token of a generated trace at twice its speed, on 16 engines that
 * report every half second. */
static double
mean_with_conductors(const struct yb_trace *trace, uint32_t conductors)
{
    struct yb_settings settings;
    struct yb_scenario scenario;
    char message[YB_SETTINGS_MESSAGE_MAX];
    struct yb_result result;
    double mean_ns;

    yb_settings_init(&settings);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_OK);
    scenario.conductors = conductors;
    scenario.report_ns = 500000000;
    result = run(&scenario, trace);
    mean_ns = result.ttft.mean_ns;
    yb_result_fini(&result);
    return mean_ns;
}

/* The mean over the kinds: so few requests of one of them, with a seed that differs each time, may
 * come out at 1.12. */
static void
test_simulator__four_schedulers_side_by_side_do_not_herd(void **state)
{
    uint64_t seed = unit_seed("herd");
    uint32_t kinds = 0;
    double sum = 0;

    (void)state;
    for (; yb_trace_gen_kind(kinds) != NULL; kinds++) {
        struct yb_trace *trace;

        assert_int_equal(yb_trace_gen(yb_trace_gen_kind(kinds), HERD_REQUESTS, seed, &trace),
                         YB_OK);
        for (uint32_t i = 0; i < trace->request_count; i++) {
            trace->requests[i].arrival_ns /= 2;
        }
        sum += mean_with_conductors(trace, 4) / mean_with_conductors(trace, 1);
        yb_trace_destroy(&trace);
    }
    if (sum > 1.1 * kinds) {
        fail_msg("the first token takes %.3f times as long", sum / kinds);
    }
    assert_int_equal(kinds, 3);
}

/* ---- starvation ------------------------------------------------------------------------------ */

#define QUEUE_REQUESTS  2000u
#define OVERTAKINGS_MAX 500u
#define CLINGING_SPREAD 8u

/* One prompt in ten has 900 tokens, the others 50; more families than devices have room for, and
 * now and then a burst. Four engines are busy for most of the time. */
static struct yb_trace *
mixed_trace(uint64_t seed)
{
    struct asked *asked = calloc(QUEUE_REQUESTS, sizeof(*asked));
    struct yb_trace *trace;
    uint64_t at_ns = 0;

    for (uint32_t i = 0; i < QUEUE_REQUESTS; i++) {
        bool is_long = unit_random(&seed) % 10 == 0;

        at_ns += i % 200 < 20 ? 0 : unit_random(&seed) % 50000;
        asked[i] = (struct asked){.at_ns = at_ns,
                                  .family = is_long ? 4 + (uint32_t)(unit_random(&seed) % 16)
                                                    : (uint32_t)(unit_random(&seed) % 4),
                                  .input = is_long ? 900 : 50,
                                  .output = 1 + (uint32_t)(unit_random(&seed) % 20)};
    }
    trace = trace_of(asked, QUEUE_REQUESTS);
    free(asked);
    return trace;
}

/* How many of those that came later than a request had their first token before it: the most of all
 * requests. Whoever waits without bound is overtaken without bound. */
static uint32_t
overtakings(const struct yb_trace *trace, const struct yb_result *result)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint64_t first_ns = trace->requests[i].arrival_ns + result->ttft_ns[i];
        uint32_t count = 0;

        for (uint32_t j = i + 1; j < trace->request_count; j++) {
            count += trace->requests[j].arrival_ns + result->ttft_ns[j] < first_ns;
        }
        most = count > most ? count : most;
    }
    return most;
}

/* Run the mixed trace at four engines, and return the most overtakings. `spread`: 0, or how far
 * requests may be spread before a policy that clings to prefixes lets go. */
static uint32_t
overtaken_under(const char *routing, const struct yb_trace *trace, uint32_t spread)
{
    struct yb_scenario scenario = plain();
    struct yb_result result;
    uint32_t most;

    scenario.instances = 4;
    scenario.chunk_tokens = 64;
    scenario.sched.routing = routing;
    scenario.sched.spread_max = spread;
    scenario.sched.fetch_none = false;
    for (unsigned i = 0; i < YB_FABRIC_KINDS; i++) {
        scenario.bytes_per_s[i] = 1e9;
    }
    result = run(&scenario, trace);
    assert_int_equal(result.done, QUEUE_REQUESTS);
    most = overtakings(trace, &result);
    yb_result_fini(&result);
    return most;
}

static void
test_simulator__nobody_waits_without_bound_under_any_policy(void **state)
{
    struct yb_trace *trace = mixed_trace(7);

    (void)state;
    for (uint32_t r = 0; yb_sched_routing_name(r) != NULL; r++) {
        const char *name = yb_sched_routing_name(r);
        bool clings = strcmp(name, "preble") == 0;
        uint32_t most = overtaken_under(name, trace, clings ? CLINGING_SPREAD : 0);

        if (most > OVERTAKINGS_MAX) {
            fail_msg("%s: %u later requests were served before one", name, most);
        }
    }
    yb_trace_destroy(&trace);
}

/* By the rule of its paper: who has more than half of a prompt gets it, however many wait there. */
static void
test_simulator__preble_as_published_starves_who_waits_where_the_prefix_is(void **state)
{
    struct yb_trace *trace = mixed_trace(7);

    (void)state;
    assert_true(overtaken_under("preble", trace, 0) > OVERTAKINGS_MAX);
    yb_trace_destroy(&trace);
}

/* ---- walks ----------------------------------------------------------------------------------- */

#define WALK_REQUESTS 400u

static struct yb_trace *
random_trace(uint64_t *seed)
{
    struct asked *asked = calloc(WALK_REQUESTS, sizeof(*asked));
    struct yb_trace *trace;
    uint64_t at_ns = 0;

    for (uint32_t i = 0; i < WALK_REQUESTS; i++) {
        at_ns += unit_random(seed) % 3 == 0 ? 0 : unit_random(seed) % 200000;
        asked[i] = (struct asked){.at_ns = at_ns,
                                  .family = (uint32_t)(unit_random(seed) % 20),
                                  .input = 1 + (uint32_t)(unit_random(seed) % 1000),
                                  .output = (uint32_t)(unit_random(seed) % 50)};
    }
    trace = trace_of(asked, WALK_REQUESTS);
    free(asked);
    return trace;
}

static struct yb_scenario
random_scenario(uint64_t *seed)
{
    struct yb_scenario scenario = plain();
    uint32_t routings = 0;

    while (yb_sched_routing_name(routings) != NULL) {
        routings++;
    }
    scenario.instances = 1 + (uint32_t)(unit_random(seed) % 6);
    scenario.conductors = 1 + (uint32_t)(unit_random(seed) % 3);
    scenario.chunk_tokens = unit_random(seed) % 2 == 0 ? 0 : 64;
    scenario.batch_max = unit_random(seed) % 2 == 0 ? 0 : 3;
    scenario.cost.kv_tokens_max = unit_random(seed) % 2 == 0 ? 0 : 4000;
    scenario.in_order = unit_random(seed) % 4 == 0;
    scenario.no_overlap = unit_random(seed) % 4 == 0;
    scenario.no_chains = unit_random(seed) % 4 == 0;
    scenario.no_begin = unit_random(seed) % 4 == 0;
    scenario.device_tokens = unit_random(seed) % 3 * 700;
    scenario.dram_tokens = unit_random(seed) % 3 * 2000;
    scenario.ssd_tokens = unit_random(seed) % 2 * 3000;
    scenario.object = unit_random(seed) % 2 == 0;
    scenario.report_ns = unit_random(seed) % 2 * 50000;
    scenario.rack_nodes = (uint32_t)(unit_random(seed) % 3);
    scenario.sched.routing = yb_sched_routing_name((uint32_t)(unit_random(seed) % routings));
    scenario.sched.fetch_none = unit_random(seed) % 4 == 0;
    for (unsigned i = 0; i < YB_FABRIC_KINDS; i++) {
        scenario.bytes_per_s[i] = 1e7 * (double)(1 + unit_random(seed) % 1000);
        scenario.latency_ns[i] = unit_random(seed) % 5000;
    }
    if (unit_random(seed) % 3 == 0) {
        scenario.sched.mode = YB_SCHED_MODE_DISAGGREGATED;
        scenario.decode_instances = (uint32_t)(unit_random(seed) % 4);
    }
    return scenario;
}

/* What a run asserts itself: each request ends once, shelves balance, pins are given back, tokens
 * add up. Here: in any scenario, and twice the same. */
static void
test_simulator__each_request_ends_once_and_runs_repeat_to_the_last_bit(void **state)
{
    uint64_t seed = unit_seed("simulator");
    unsigned runs = unit_long() ? 2000 : 20;

    (void)state;
    for (unsigned i = 0; i < runs; i++) {
        struct yb_trace *trace = random_trace(&seed);
        struct yb_scenario scenario = random_scenario(&seed);
        struct yb_result first = run(&scenario, trace);
        struct yb_result second = run(&scenario, trace);
        uint64_t tokens = 0;

        assert_int_equal(first.done + first.rejected, WALK_REQUESTS);
        for (unsigned j = 0; j < YB_RESULT_SOURCES; j++) {
            tokens += first.source_tokens[j];
        }
        assert_int_equal(tokens, first.input_tokens);
        assert_int_equal(first.shelf_put, first.shelf_evicted + first.shelf_present);
        assert_memory_equal(first.ttft_ns, second.ttft_ns, WALK_REQUESTS * sizeof(uint64_t));
        assert_memory_equal(first.tpot_ns, second.tpot_ns, WALK_REQUESTS * sizeof(uint64_t));
        assert_int_equal(first.events, second.events);
        assert_int_equal(first.makespan_ns, second.makespan_ns);
        yb_result_fini(&first);
        yb_result_fini(&second);
        yb_trace_destroy(&trace);
    }
}

struct heard {
    uint32_t calls;
    uint32_t ended;
};

static void
hear(void *context, uint32_t ended)
{
    struct heard *heard = context;

    assert_true(ended >= heard->ended && ended <= WALK_REQUESTS);
    heard->calls++;
    heard->ended = ended;
}

static void
test_simulator__who_hears_how_far_a_run_is_changes_nothing_of_it(void **state)
{
    uint64_t seed = unit_seed("progress");
    struct yb_trace *trace = random_trace(&seed);
    struct yb_scenario scenario = plain();
    struct yb_result quiet = run(&scenario, trace);
    struct heard heard = {0};
    struct yb_result told;

    (void)state;
    scenario.progress = hear;
    scenario.progress_context = &heard;
    told = run(&scenario, trace);
    assert_int_equal(heard.calls, told.events / YB_SIMULATOR_PROGRESS_EVENTS);
    assert_true(heard.calls > 0 && heard.ended > 0);
    assert_int_equal(told.events, quiet.events);
    assert_memory_equal(told.ttft_ns, quiet.ttft_ns, WALK_REQUESTS * sizeof(uint64_t));
    yb_result_fini(&quiet);
    yb_result_fini(&told);
    yb_trace_destroy(&trace);
}

static void
test_simulator__events_grow_with_requests_and_not_with_instances(void **state)
{
    uint64_t seed = 7;
    struct yb_trace *trace = random_trace(&seed);
    struct yb_scenario scenario = plain();
    uint64_t events[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct yb_result result;

        scenario.instances = i == 0 ? 4 : 400;
        result = run(&scenario, trace);
        events[i] = result.events;
        yb_result_fini(&result);
    }
    assert_true(events[1] < 2 * events[0]);
    assert_true(events[1] < 20 * WALK_REQUESTS);
    yb_trace_destroy(&trace);
}

static void
test_simulator__what_makes_no_sense_is_refused_with_the_reason(void **state)
{
    struct yb_trace *trace = trace_of((const struct asked[]){{0, 0, 10, 1}}, 1);
    struct yb_scenario scenario = plain();
    char message[YB_SIMULATOR_MESSAGE_MAX];
    struct yb_result result;

    (void)state;
    scenario.instances = 0;
    assert_int_equal(yb_simulator_run(&scenario, trace, &result, message), YB_INVALID);
    assert_non_null(strstr(message, "instances"));
    scenario = plain();
    scenario.sched.routing = "none such";
    assert_int_equal(yb_simulator_run(&scenario, trace, &result, message), YB_INVALID);
    assert_true(strlen(message) > 0);
    scenario = plain();
    scenario.eviction = "none such";
    scenario.dram_tokens = 100;
    assert_int_equal(yb_simulator_run(&scenario, trace, &result, message), YB_INVALID);
    yb_trace_destroy(&trace);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void
test_simulator__settings_are_understood_or_refused_by_name(void **state)
{
    struct yb_settings settings;
    struct yb_scenario scenario;
    char message[YB_SETTINGS_MESSAGE_MAX];

    (void)state;
    yb_settings_init(&settings);
    assert_int_equal(yb_settings_set(&settings, "net", "25G", message), YB_OK);
    assert_int_equal(yb_settings_set(&settings, "pool", "3Mtok", message), YB_OK);
    assert_int_equal(yb_settings_set(&settings, "device-cache", "327.68M", message), YB_OK);
    assert_int_equal(yb_settings_set(&settings, "instances", "4096", message), YB_OK);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_OK);
    assert_true(scenario.bytes_per_s[YB_FABRIC_PORT_IN] == 25e9 / 8);
    assert_int_equal(scenario.dram_tokens, 3000000);
    assert_int_equal(scenario.device_tokens, 1000);
    assert_int_equal(scenario.instances, 4096);
    assert_int_equal(yb_settings_set(&settings, "nets", "25G", message), YB_NOT_FOUND);
    assert_int_equal(yb_settings_set(&settings, "net", "fast", message), YB_INVALID);
    assert_non_null(strstr(message, "100G"));
    assert_int_equal(yb_settings_set(&settings, "instances", "1.5", message), YB_INVALID);
    assert_int_equal(yb_settings_set(&settings, "pool", "-2", message), YB_INVALID);
    assert_int_equal(yb_settings_set(&settings, "gpu", "8xabacus", message), YB_OK);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_INVALID);
    assert_non_null(strstr(message, "abacus"));
    assert_int_equal(yb_settings_set(&settings, "gpu", "1xl20", message), YB_OK);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_INVALID);
    assert_non_null(strstr(message, "does not fit on 1xl20"));
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const names[] = {"policy", "admission", "eviction"};
        static const char *const known[] = {" rolling", " early-predicted", " trajectory"};

        yb_settings_init(&settings);
        assert_int_equal(yb_settings_set(&settings, names[i], "dice", message), YB_OK);
        assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_INVALID);
        assert_non_null(strstr(message, "cannot be \"dice\"; allowed:"));
        assert_non_null(strstr(message, known[i]));
    }
}

static void
test_simulator__settings_say_how_near_the_best_is_as_good(void **state)
{
    struct yb_settings settings;
    struct yb_scenario scenario;
    char message[YB_SETTINGS_MESSAGE_MAX];

    (void)state;
    yb_settings_init(&settings);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_OK);
    assert_true(scenario.sched.near_best == 0.02 && scenario.sched.rack_cost_ns == 0);
    assert_int_equal(yb_settings_set(&settings, "near-best", "0", message), YB_OK);
    assert_int_equal(yb_settings_set(&settings, "rack-cost-us", "250", message), YB_OK);
    assert_int_equal(yb_settings_scenario(&settings, NULL, &scenario, message), YB_OK);
    assert_true(scenario.sched.near_best < 0); /* To the library 0 is the default. */
    assert_int_equal(scenario.sched.rack_cost_ns, 250000);
}

/* ---- papers ---------------------------------------------------------------------------------- */

/* Of 20 gaps the two longest count: of 28 ms each, the first 40 ms longer. */
static void
test_simulator__mooncakes_tbt_is_the_mean_of_the_longest_tenth(void **state)
{
    (void)state;
    assert_true(fabs(yb_paper_tbt_ns(30e6, 40e6, 21) - 48e6) < 1);
    assert_true(fabs(yb_paper_tbt_ns(68e6, 40e6, 2) - 68e6) < 1); /* One gap is all there is. */
    assert_true(fabs(yb_paper_tbt_ns(28e6, 0, 300) - 28e6) < 1);
    assert_true(yb_paper_tbt_ns(0, 0, 1) == 0 && yb_paper_tbt_ns(0, 0, 0) == 0);
}

static void
test_simulator__an_order_counts_only_if_it_is_gone_without_the_mechanism(void **state)
{
    struct yb_paper_order order = {
        .names = {"a", "b"}, .with = {2, 1}, .without = {2, 2}, .count = 2, .share = 0.1};
    struct yb_papers *papers;
    char message[YB_PAPER_MESSAGE_MAX];

    (void)state;
    assert_int_equal(yb_papers_create(NULL, ".", &papers, message), YB_OK);
    yb_paper_add_order(papers, (struct yb_paper_row){.paper = "p"}, &order);
    assert_true(yb_papers_row(papers, 0)->ok);
    order.without[1] = 1;
    yb_paper_add_order(papers, (struct yb_paper_row){.paper = "p"}, &order);
    assert_false(yb_papers_row(papers, 1)->ok);
    order.without[1] = 2;
    order.with[1] = 1.9;
    yb_paper_add_order(papers, (struct yb_paper_row){.paper = "p"}, &order);
    assert_false(yb_papers_row(papers, 2)->ok);
    yb_papers_destroy(&papers);
    assert_int_equal(yb_papers_create("[all]\nnets = 1\n", ".", &papers, message), YB_INVALID);
    assert_non_null(strstr(message, "line 2"));
}

static void
test_simulator__without_traces_rows_say_so_and_the_formula_stands(void **state)
{
    const struct yb_paper_row *row;
    struct yb_papers *papers;
    char message[YB_PAPER_MESSAGE_MAX];

    (void)state;
    assert_int_equal(yb_papers_create(NULL, "/nowhere", &papers, message), YB_OK);
    assert_int_equal(yb_papers_run(papers, "mooncake", NULL, NULL, message), YB_OK);
    for (uint32_t i = 0; (row = yb_papers_row(papers, i)) != NULL; i++) {
        bool mooncake = strcmp(row->paper, "Mooncake") == 0;

        assert_true(!mooncake || row->ok == (strcmp(row->figure, "Eq. 2") == 0));
        assert_true(row->ok || row->reason[0] != '\0');
    }
    /* Mooncake's Eq. 2 for 8192 tokens: 5.86 and 18.57 GB/s. */
    assert_true(yb_papers_row(papers, 0)->ours > 5.855 && yb_papers_row(papers, 0)->ours < 5.865);
    assert_true(yb_papers_row(papers, 1)->ours > 18.565 && yb_papers_row(papers, 1)->ours < 18.575);
    yb_papers_destroy(&papers);
}

static void
count_papers(void *context, uint32_t done, uint32_t all)
{
    uint32_t *told = context;

    assert_int_equal(done, *told + 1);
    assert_true(done <= all);
    *told = done;
}

/* Without a section of numbers papers fail at once, side by side. What is said is what the first of
 * them found, whichever thread was the fastest, and the rows are those of the papers before it. */
static void
test_simulator__papers_that_run_side_by_side_are_told_in_their_order(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        struct yb_papers *papers;
        char message[YB_PAPER_MESSAGE_MAX];
        uint32_t told = 0;
        uint32_t rows = 0;

        assert_int_equal(
            yb_papers_create("[all]\nmodel = llama-3-70b\n", "/nowhere", &papers, message), YB_OK);
        assert_int_equal(yb_papers_run(papers, NULL, count_papers, &told, message), YB_INVALID);
        assert_non_null(strstr(message, "[numbers-bidaw]"));
        assert_null(yb_paper_name(told)); /* All were told. */
        while (yb_papers_row(papers, rows) != NULL) {
            assert_string_equal(yb_papers_row(papers, rows++)->paper, "Mooncake");
        }
        assert_true(rows > 30); /* Figure 9 and table 1 alone have 32. */
        yb_papers_destroy(&papers);
    }
}

/* ---- never worse ----------------------------------------------------------------------------- */

static void
test_simulator__workloads_are_made_of_a_trace(void **state)
{
    struct yb_trace *trace =
        trace_of((const struct asked[]){{0, 0, 500, 1}, {1, 0, 1000, 1}, {2, 0, 999, 1}}, 3);
    struct yb_trace *made;

    (void)state;
    assert_int_equal(yb_never_worse_make(trace, YB_NEVER_WORSE_SHORT, 0, &made), YB_OK);
    assert_int_equal(made->request_count, 2);
    assert_int_equal(made->requests[1].input_tokens, 999);
    assert_int_equal(yb_trace_blocks_of(made, 0), 50);
    assert_int_equal(yb_trace_blocks_of(made, 1), 100);
    yb_trace_destroy(&made);
    assert_int_equal(yb_never_worse_make(trace, YB_NEVER_WORSE_NO_REUSE, 2, &made), YB_OK);
    assert_int_equal(made->request_count, 2);
    assert_int_equal(made->block_count, 150);
    assert_int_equal(made->blocks[50], 50);
    assert_true(made->parents[50] == YB_TRACE_NONE);
    assert_int_equal(made->parents[51], 50);
    yb_trace_destroy(&made);
    yb_trace_destroy(&trace);
}

static void
take_row(void *context, const struct yb_never_worse_row *row)
{
    *(struct yb_never_worse_row *)context = *row;
}

/* As many runs as it takes to know a P99; one, where the requests are bounded by who asks. */
static void
test_simulator__few_requests_are_run_with_several_seeds(void **state)
{
    struct yb_never_worse_options options = {.net = "100G", .model = "llama-3-8b", .seed = 1};
    struct yb_never_worse_row row = {.runs = 0};
    char message[YB_NEVER_WORSE_MESSAGE_MAX];
    struct yb_trace *trace;

    (void)state;
    assert_int_equal(yb_trace_gen("synthetic", YB_NEVER_WORSE_REQUESTS / 50, 1, &trace), YB_OK);
    assert_int_equal(yb_never_worse_run(trace, "few", &options, take_row, &row, message), YB_OK);
    assert_int_equal(row.runs, YB_NEVER_WORSE_RUNS_MAX);
    assert_true(row.ok && row.hit_with >= row.hit_without);
    options.requests_max = trace->request_count;
    assert_int_equal(yb_never_worse_run(trace, "few", &options, take_row, &row, message), YB_OK);
    assert_int_equal(row.runs, 1);
    yb_trace_destroy(&trace);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulator__one_request_takes_its_prefill_and_its_steps),
        cmocka_unit_test(test_simulator__a_prompt_that_came_before_costs_its_last_token),
        cmocka_unit_test(test_simulator__what_lies_in_dram_is_loaded_while_layers_are_computed),
        cmocka_unit_test(
            test_simulator__a_prompt_is_fetched_from_whoever_has_it_when_that_is_faster),
        cmocka_unit_test(
            test_simulator__with_recheck_a_prompt_is_prefilled_in_vain_if_decode_is_full_then),
        cmocka_unit_test(test_simulator__four_schedulers_side_by_side_do_not_herd),
        cmocka_unit_test(test_simulator__nobody_waits_without_bound_under_any_policy),
        cmocka_unit_test(test_simulator__preble_as_published_starves_who_waits_where_the_prefix_is),
        cmocka_unit_test(test_simulator__each_request_ends_once_and_runs_repeat_to_the_last_bit),
        cmocka_unit_test(test_simulator__who_hears_how_far_a_run_is_changes_nothing_of_it),
        cmocka_unit_test(test_simulator__events_grow_with_requests_and_not_with_instances),
        cmocka_unit_test(test_simulator__what_makes_no_sense_is_refused_with_the_reason),
        cmocka_unit_test(test_simulator__who_takes_turns_computes_whole_prompts),
        cmocka_unit_test(test_simulator__settings_are_understood_or_refused_by_name),
        cmocka_unit_test(test_simulator__settings_say_how_near_the_best_is_as_good),
        cmocka_unit_test(test_simulator__mooncakes_tbt_is_the_mean_of_the_longest_tenth),
        cmocka_unit_test(test_simulator__an_order_counts_only_if_it_is_gone_without_the_mechanism),
        cmocka_unit_test(test_simulator__papers_that_run_side_by_side_are_told_in_their_order),
        cmocka_unit_test(test_simulator__without_traces_rows_say_so_and_the_formula_stands),
        cmocka_unit_test(test_simulator__workloads_are_made_of_a_trace),
        cmocka_unit_test(test_simulator__few_requests_are_run_with_several_seeds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
