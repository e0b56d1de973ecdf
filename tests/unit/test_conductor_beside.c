/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: several conductors side by side, each of which sees reports that are older than what the
 *   others have just decided, serve almost as well as one: the mean time to the first token of four
 *   is at most 1.1 times that of one.
 * Method: instances that compute one prompt after the other, in virtual time; requests come at
 *   random and go to the conductors in turns; every instance reports to all of them, each at a
 *   moment of its own.
 */
#include "conductor_stage.h"

#include <math.h>
#include <stdio.h>

#define INSTANCES  16u
#define CONDUCTORS 4u
#define REQUESTS   6000u
#define REPORT_NS  (100 * YB_NS_PER_MS)
#define TOKEN_NS   100000.0 /* Of prefill, as conductor_stage.h's costs are about. */
#define SESSIONS   40u      /* At a time. */
#define AGE        10u      /* Requests until the oldest of them makes way for another one. */
#define TURNS_MAX  8u       /* Of a session before another one takes its place. */

/* A request, until its first token. */
struct asked {
    uint64_t ready_ns; /* When its first token is out. */
    uint64_t decision;
    uint32_t conductor;
    uint32_t instance;
};

struct instance {
    char name[8];
    uint64_t free_ns; /* When all that it has is computed. */
    uint64_t report_ns;
    uint64_t sequence;
    uint64_t seen[CONDUCTORS];
    struct yb_wire_conductor_key changed[PROMPT_MAX * 4];
    uint32_t changes;
    bool cached[SESSIONS + REQUESTS / AGE][TURNS_MAX]; /* Which turns of a session are here. */
};

struct world {
    uint32_t conductors;
    struct stage stages[CONDUCTORS];
    struct instance instances[INSTANCES];
    struct asked open[REQUESTS];
    uint32_t first_open;
    uint32_t count;
    uint64_t now_ns;
    uint64_t random;
    double ttft_sum_ns;
    double computed_ns;
};

static double
chance(struct world *world)
{
    return ((double)(unit_random(&world->random) >> 11) + 1) / 9007199254740993.0;
}

static void
world_open(struct world *world, uint32_t conductors)
{
    *world = (struct world){.conductors = conductors, .now_ns = YB_NS_PER_S, .random = 7};
    for (uint32_t c = 0; c < conductors; c++) {
        const struct yb_conductor_options options = {
            .routing = "ready",
            .places_max = INSTANCES,
            .blocks_max = 65536,
            .pending_max = 8192,
            .block_tokens = 512,
            .conductor = c,
            .seed = 3,
            .expire_ns = 3600 * YB_NS_PER_S,
        };
        char why[YB_CONDUCTOR_WHY_BYTES] = "";

        world->stages[c].now_ns = world->now_ns;
        assert_int_equal(yb_conductor_create(&options, &world->stages[c].conductor, why), YB_OK);
    }
    for (uint32_t i = 0; i < INSTANCES; i++) {
        struct instance *instance = &world->instances[i];

        (void)snprintf(instance->name, sizeof(instance->name), "p%u", i);
        instance->report_ns = world->now_ns + i * REPORT_NS / INSTANCES;
        for (uint32_t c = 0; c < conductors; c++) {
            assert_int_equal(enroll(&world->stages[c], instance->name, "m", 3, 1), YB_OK);
        }
    }
}

static void
world_close(struct world *world)
{
    for (uint32_t c = 0; c < world->conductors; c++) {
        yb_conductor_destroy(&world->stages[c].conductor);
    }
}

/* Requests of a conductor that an instance has. */
static uint32_t
in_flight(const struct world *world, uint32_t instance, uint32_t conductor)
{
    uint32_t count = 0;

    for (uint32_t i = world->first_open; i < world->count; i++) {
        count += world->open[i].decision != 0 && world->open[i].instance == instance &&
                 world->open[i].conductor == conductor;
    }
    return count;
}

static void
say(struct world *world, uint32_t number)
{
    struct instance *instance = &world->instances[number];
    struct yb_wire_conductor_seen seen[CONDUCTORS];
    struct yb_wire_conductor_cached cached[PROMPT_MAX * 4];
    uint64_t left_ns = instance->free_ns > world->now_ns ? instance->free_ns - world->now_ns : 0;
    struct yb_wire_conductor_report said = {
        .incarnation = 1,
        .sequence = ++instance->sequence,
        .name = yb_wire_text_of(instance->name),
        .prefill_left_us = left_ns / YB_NS_PER_US,
        .prefill_tokens = (uint64_t)((double)left_ns / TOKEN_NS),
        .seen = {.count = world->conductors, .native = seen},
        .blocks = {.count = instance->changes, .native = cached},
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";

    for (uint32_t c = 0; c < world->conductors; c++) {
        seen[c] = (struct yb_wire_conductor_seen){.conductor = (uint8_t)c,
                                                  .seen = instance->seen[c],
                                                  .in_flight = in_flight(world, number, c)};
        said.queued += seen[c].in_flight;
    }
    for (uint32_t i = 0; i < instance->changes; i++) {
        cached[i] = (struct yb_wire_conductor_cached){.key = instance->changed[i].key};
    }
    for (uint32_t c = 0; c < world->conductors; c++) {
        assert_int_equal(yb_conductor_report(world->stages[c].conductor, &said, world->now_ns, why),
                         YB_OK);
    }
    instance->changes = 0;
    instance->report_ns += REPORT_NS;
}

/* First tokens that are out by now are told to whoever decided. */
static void
end_prefills(struct world *world)
{
    for (uint32_t i = world->first_open; i < world->count; i++) {
        struct asked *asked = &world->open[i];

        if (asked->decision != 0 && asked->ready_ns <= world->now_ns) {
            struct stage *stage = &world->stages[asked->conductor];

            stage->now_ns = world->now_ns;
            assert_int_equal(
                done(stage, asked->decision, YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN, false, NULL, 0),
                YB_OK);
            assert_int_equal(
                done(stage, asked->decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, false, NULL, 0), YB_OK);
            asked->decision = 0;
        }
    }
    while (world->first_open < world->count && world->open[world->first_open].decision == 0) {
        world->first_open++;
    }
}

/* Let time pass until `until_ns`: reports, and ends. */
static void
pass(struct world *world, uint64_t until_ns)
{
    for (;;) {
        uint32_t next = 0;

        for (uint32_t i = 1; i < INSTANCES; i++) {
            next = world->instances[i].report_ns < world->instances[next].report_ns ? i : next;
        }
        if (world->instances[next].report_ns > until_ns) {
            break;
        }
        world->now_ns = world->instances[next].report_ns;
        end_prefills(world);
        say(world, next);
    }
    world->now_ns = until_ns;
    end_prefills(world);
}

/* A turn of a session: 2 blocks that all have, and two for each turn so far. */
static void
request(struct world *world, uint32_t number)
{
    const uint32_t session = number / AGE + (uint32_t)(unit_random(&world->random) % SESSIONS);
    const uint32_t turn = (uint32_t)(unit_random(&world->random) % TURNS_MAX);
    const uint32_t blocks = 2 + 2 * (turn + 1);
    const uint32_t conductor = number % world->conductors;
    struct stage *stage = &world->stages[conductor];
    struct yb_wire_conductor_key keys[PROMPT_MAX];
    struct yb_conductor_answer answer;
    struct instance *instance;
    uint32_t at = 0;
    uint32_t reused = 0;
    uint64_t begin_ns;

    keys_of(keys, blocks, (uint8_t)session);
    for (uint32_t i = 2; i < blocks; i++) {
        keys[i].key.bytes[2] = (uint8_t)(1 + session / 256);
    }
    stage->now_ns = world->now_ns;
    ask_keys(stage, keys, blocks, &answer);
    while (!yb_wire_text_equal(answer.wire.prefill, world->instances[at].name)) {
        at++;
    }
    instance = &world->instances[at];
    for (uint32_t t = 0; t <= turn && instance->cached[session][t]; t++) {
        reused = 2 + 2 * (t + 1);
    }
    for (uint32_t t = 0; t <= turn; t++) { /* It will be here for the next ones. */
        for (uint32_t i = 0; !instance->cached[session][t] && i < 2; i++) {
            instance->changed[instance->changes++] = keys[2 + 2 * t + i];
        }
        instance->cached[session][t] = true;
    }
    begin_ns = instance->free_ns > world->now_ns ? instance->free_ns : world->now_ns;
    instance->free_ns =
        begin_ns + (uint64_t)((double)(blocks - reused) * 512 * TOKEN_NS) + 5 * YB_NS_PER_MS;
    world->computed_ns += (double)(instance->free_ns - begin_ns);
    instance->seen[conductor] = answer.wire.decision;
    world->ttft_sum_ns += (double)(instance->free_ns - world->now_ns);
    world->open[world->count++] = (struct asked){.ready_ns = instance->free_ns,
                                                 .decision = answer.wire.decision,
                                                 .conductor = conductor,
                                                 .instance = at};
}

/* Return the mean time to the first token, when requests come as far apart as `gap_ns`, on the
 * average. */
static double
mean_ttft(uint32_t conductors, double gap_ns, double *busy_out)
{
    struct world *world = calloc(1, sizeof(*world));
    double mean;

    assert_non_null(world);
    world_open(world, conductors);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        pass(world, world->now_ns + (uint64_t)(-log(chance(world)) * gap_ns));
        request(world, i);
    }
    mean = world->ttft_sum_ns / REQUESTS;
    *busy_out = world->computed_ns / INSTANCES / (double)(world->now_ns - YB_NS_PER_S);
    world_close(world);
    free(world);
    return mean;
}

static void
test_conductor_beside__four_serve_almost_as_well_as_one(void **state)
{
    /* Instances are busy for 30, 50 and 67 % of their time. (Closer to all of it no time is a mean
     * of anything: at 83 % what four do not hit makes queues a third longer.) */
    static const double gaps_ns[] = {96e6, 56e6, 40e6};

    (void)state;
    for (uint32_t i = 0; i < sizeof(gaps_ns) / sizeof(gaps_ns[0]); i++) {
        const double gap_ns = gaps_ns[i];
        double busy[2];
        const double one = mean_ttft(1, gap_ns, &busy[0]);
        const double four = mean_ttft(CONDUCTORS, gap_ns, &busy[1]);

        print_message("a request every %.0f ms: one conductor %.1f ms (busy %.2f), four %.1f ms "
                      "(%.2f): %.3f\n",
                      gap_ns / 1e6, one / 1e6, busy[0], four / 1e6, busy[1], four / one);
        assert_true(four <= 1.1 * one);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conductor_beside__four_serve_almost_as_well_as_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
