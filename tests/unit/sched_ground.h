/* SPDX-License-Identifier: Apache-2.0
 *
 * sched_ground.h -- a scheduler with places, prompts, and what tests ask of them.
 */
#ifndef YB_TESTS_SCHED_GROUND_H
#define YB_TESTS_SCHED_GROUND_H

#include "unit.h"

#include <string.h>

#include "yuebing/sched.h"

#define GROUND_BLOCK_TOKENS 512u
#define GROUND_BLOCKS       64u /* Of a prompt. */
#define GROUND_S            1000000000ull
#define GROUND_MS           1000000ull

struct ground {
    struct yb_sched *sched;
    struct yb_sched_scratch *scratch;
    uint32_t places;
    uint64_t now_ns;
    uint64_t requests;
    uint64_t blocks[GROUND_BLOCKS];
};

/* LLaMA3-70B on 8 A800. */
static inline struct yb_sched_cost
ground_cost(void)
{
    return (struct yb_sched_cost){
        .prefill_token_ns = 1.083e5,
        .prefill_pair_ns = 0.768,
        .step_base_ns = 26.8e6,
        .step_sequence_ns = 150e3,
        .step_token_ns = 33,
        .kv_bytes = 327680,
        .layers = 80,
    };
}

static inline struct yb_sched_instance
ground_instance(uint32_t place)
{
    return (struct yb_sched_instance){
        .struct_bytes = sizeof(struct yb_sched_instance),
        .roles = YB_SCHED_PREFILL | YB_SCHED_DECODE,
        .node = place,
        .links =
            {
                [YB_SCHED_LINK_IN] = {12.5e9, 10000, 0, 0},
                [YB_SCHED_LINK_OUT] = {12.5e9, 10000, 0, 0},
                [YB_SCHED_LINK_LOAD] = {100e9, 5000, 0, 0},
                [YB_SCHED_LINK_SSD] = {7e9, 100000, 0, 0},
                [YB_SCHED_LINK_OBJECT] = {1e9, 20000000, 0, 0},
            },
    };
}

static inline struct yb_sched_options
ground_options(const char *routing)
{
    return (struct yb_sched_options){
        .struct_bytes = sizeof(struct yb_sched_options),
        .routing = routing,
        .places_max = 256,
        .blocks_max = 20000,
        .holders_bytes_max = 1 << 20,
        .pending_max = 512,
        .seed = 11,
    };
}

static inline void
ground_open(struct ground *ground, const struct yb_sched_options *options, uint32_t places)
{
    struct yb_sched_cost cost = ground_cost();
    char message[256] = "";

    memset(ground, 0, sizeof(*ground));
    ground->places = places;
    ground->now_ns = 1000 * GROUND_S;
    if (yb_sched_create(options, &ground->sched, message, sizeof(message)) != YB_OK) {
        print_error("%s\n", message);
        fail();
    }
    assert_int_equal(yb_sched_scratch_create(ground->sched, &ground->scratch), YB_OK);
    assert_int_equal(yb_sched_set_cost(ground->sched, 0, &cost), YB_OK);
    for (uint32_t i = 0; i < places; i++) {
        struct yb_sched_instance instance = ground_instance(i);

        assert_int_equal(yb_sched_set_instance(ground->sched, i, &instance), YB_OK);
    }
    for (uint32_t i = 0; i < GROUND_BLOCKS; i++) {
        ground->blocks[i] = 1000 + i;
    }
}

static inline void
ground_close(struct ground *ground)
{
    yb_sched_scratch_destroy(&ground->scratch);
    yb_sched_destroy(&ground->sched);
    assert_null(ground->scratch);
    assert_null(ground->sched);
}

/* The first `run` blocks of a prompt come to a place. */
static inline void
ground_add(struct ground *ground, uint32_t place, uint32_t tier, uint32_t run)
{
    for (uint32_t i = 0; i < run; i++) {
        assert_int_equal(yb_sched_add(ground->sched, ground->blocks[i], place, tier), YB_OK);
    }
}

/* A request for `count` blocks, the last of them whole, and one token more. */
static inline struct yb_sched_request
ground_request(struct ground *ground, uint32_t count)
{
    return (struct yb_sched_request){
        .struct_bytes = sizeof(struct yb_sched_request),
        .id = ++ground->requests,
        .arrival_ns = ground->now_ns,
        .input_tokens = count * GROUND_BLOCK_TOKENS + 1,
        .blocks = ground->blocks,
        .block_count = count,
    };
}

static inline struct yb_sched_decision
ground_decide(struct ground *ground, const struct yb_sched_request *request)
{
    struct yb_sched_decision decision;

    assert_int_equal(
        yb_sched_decide(ground->sched, ground->scratch, request, ground->now_ns, &decision), YB_OK);
    return decision;
}

/* A place says that it is busy for so long. */
static inline void
ground_busy(struct ground *ground, uint32_t place, uint64_t busy_ns)
{
    static const struct yb_sched_report empty;
    struct yb_sched_report report = empty;

    report.struct_bytes = sizeof(report);
    report.sequence = ++ground->requests;
    report.at_ns = ground->now_ns;
    report.prefill_done_ns = ground->now_ns + busy_ns;
    report.prefill_tokens = busy_ns / 110000;
    report.queued = busy_ns > 0;
    assert_int_equal(yb_sched_report(ground->sched, place, &report), YB_OK);
}

#endif /* YB_TESTS_SCHED_GROUND_H */
