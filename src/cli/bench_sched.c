/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench sched`: how long a decision takes.
 *
 * For each number of instances a scheduler is filled as a busy cluster would fill it: racks of
 * sixteen, queues and backlogs of random length, conversations whose blocks lie at a few places
 * each behind a prefix that all of them have, a part of them in the object store alone, some still
 * being computed, and another conductor beside this one. Then requests of `blocks` blocks are
 * decided about and carried out, while places report. Only deciding is timed.
 */
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "yuebing/sched.h"

#define ROUNDS_MAX     99u
#define ROUND_REQUESTS 400u
#define SESSIONS       64u
#define SHARED_BLOCKS  12u /* A prefix that all sessions have: a system prompt, tools. */
#define RACK_PLACES    16u
#define REPORTS        4u /* Places that report between two decisions. */
#define BLOCK_TOKENS   512u
#define HIT_SHARE      10u /* Of 16 sessions so many have been seen before. */

struct row {
    uint32_t instances;
    uint32_t blocks;
    double p50_us;
    double p99_us;
    double index_p50_us; /* Of the lookup alone. */
    double considered;   /* Places that were looked at closely, on average. */
    double bytes_allocated;
};

struct bench {
    struct yb_cli *cli;
    const char *routing;
    uint64_t rounds;
    uint32_t instance_count;
    uint64_t instances[YB_BENCH_LIST_MAX];
    uint32_t block_count;
    uint64_t blocks[YB_BENCH_LIST_MAX];
    uint32_t row_count;
    struct row rows[YB_BENCH_LIST_MAX * YB_BENCH_LIST_MAX];
};

/* One cluster, and the requests to it. */
struct scene {
    struct yb_sched *sched;
    struct yb_sched_scratch *scratch;
    struct yb_sched_hit *hits;
    uint64_t *names; /* Of the blocks of all sessions. */
    double *times_us;
    double *index_us;
    uint64_t random;
    uint64_t now_ns;
    uint64_t sequence;
    uint64_t requests;
    uint32_t instances;
    uint32_t blocks;
    uint64_t considered;
    uint64_t seen; /* Decisions up to this number are in all reports. */
};

static uint64_t
next_random(struct scene *scene)
{
    scene->random ^= scene->random >> 12;
    scene->random ^= scene->random << 25;
    scene->random ^= scene->random >> 27;
    return scene->random * 2685821657736338717ull;
}

static uint32_t
pick(struct scene *scene, uint64_t below)
{
    return (uint32_t)(next_random(scene) % below);
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static bool
set_places(struct scene *scene)
{
    struct yb_sched_link uplinks[YB_SCHED_UPLINKS] = {{50e9, 5000, 0, 0}, {50e9, 5000, 0, 0}};
    bool ok = true;

    for (uint32_t i = 0; ok && i < scene->instances; i++) {
        struct yb_sched_instance instance = {
            .struct_bytes = sizeof(instance),
            .roles = YB_SCHED_PREFILL | YB_SCHED_DECODE,
            .node = i,
            .rack = i / RACK_PLACES,
            .links =
                {
                    [YB_SCHED_LINK_IN] = {25e9, 10000, 0, 0},
                    [YB_SCHED_LINK_OUT] = {25e9, 10000, 0, 0},
                    [YB_SCHED_LINK_LOAD] = {100e9, 5000, 0, 0},
                    [YB_SCHED_LINK_SSD] = {7e9, 100000, 0, 0},
                    [YB_SCHED_LINK_OBJECT] = {2e9, 20000000, 0, 0},
                },
        };

        ok = yb_sched_set_instance(scene->sched, i, &instance) == YB_OK &&
             yb_sched_set_rack(scene->sched, instance.rack, uplinks) == YB_OK;
    }
    return ok;
}

/* A place says how it is: half of them have nothing to do. */
static bool
report(struct scene *scene, uint32_t place)
{
    struct yb_sched_report said = {
        .struct_bytes = sizeof(said),
        .sequence = ++scene->sequence,
        .at_ns = scene->now_ns,
        .running = pick(scene, 32),
        .in_flight = {20, 20},
        .seen = {scene->seen},
    };

    if (pick(scene, 2) == 0) {
        uint32_t wait_ms = pick(scene, 3000);

        said.prefill_done_ns = scene->now_ns + wait_ms * 1000000ull;
        said.prefill_tokens = wait_ms * 9ull;
        said.queued = 1 + wait_ms / 500;
        said.backlog_bytes[YB_SCHED_LINK_IN] = pick(scene, 4) * 500000000ull;
        said.backlog_bytes[YB_SCHED_LINK_OUT] = pick(scene, 4) * 500000000ull;
    }
    said.context_tokens = said.running * 4000ull;
    return yb_sched_report(scene->sched, place, &said) == YB_OK;
}

static uint64_t *
session_of(struct scene *scene, uint32_t session)
{
    return &scene->names[(size_t)session * scene->blocks];
}

static bool
add_run(struct scene *scene, uint32_t session, uint32_t place, uint32_t tier, uint32_t run)
{
    const uint64_t *names = session_of(scene, session);

    for (uint32_t i = 0; i < run; i++) {
        if (yb_sched_add(scene->sched, names[i], place, tier) != YB_OK) {
            return false;
        }
    }
    return true;
}

static bool
fill(struct scene *scene)
{
    bool ok = set_places(scene);
    uint32_t shared = scene->blocks < SHARED_BLOCKS ? scene->blocks : SHARED_BLOCKS;

    for (uint32_t session = 0; session < SESSIONS; session++) {
        uint64_t *names = session_of(scene, session);

        for (uint32_t i = 0; i < scene->blocks; i++) {
            uint64_t parts[2] = {i < shared ? SESSIONS : session, i};

            names[i] = yb_hash_table(0, parts, sizeof(parts));
        }
    }
    for (uint32_t place = 0; ok && place < scene->instances; place++) {
        ok = report(scene, place) && add_run(scene, 0, place, YB_SCHED_TIER_DRAM, shared);
    }
    for (uint32_t session = 0; ok && session < SESSIONS; session++) {
        uint32_t run = 1 + pick(scene, scene->blocks);

        if (session % 16 >= HIT_SHARE) {
            continue;
        }
        ok = add_run(scene, session, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, run);
        for (uint32_t copy = 0; ok && copy < session % 4; copy++) {
            uint32_t place = pick(scene, scene->instances);
            uint32_t part = 1 + pick(scene, run);

            ok = add_run(scene, session, place, YB_SCHED_TIER_SSD, part) &&
                 add_run(scene, session, place, YB_SCHED_TIER_DRAM, 1 + pick(scene, part));
        }
    }
    return ok;
}

static void
scene_close(struct scene *scene)
{
    yb_sched_scratch_destroy(&scene->scratch);
    yb_sched_destroy(&scene->sched);
    free(scene->hits);
    free(scene->names);
    free(scene->times_us);
    free(scene->index_us);
}

static bool
scene_open(const struct bench *bench, struct scene *scene)
{
    struct yb_sched_cost cost = {
        .prefill_token_ns = 1.083e5,
        .prefill_pair_ns = 0.768,
        .step_base_ns = 26.8e6,
        .step_sequence_ns = 150e3,
        .step_token_ns = 33,
        .kv_bytes = 327680,
        .layers = 80,
    };
    struct yb_sched_options options = {
        .struct_bytes = sizeof(options),
        .routing = bench->routing,
        .places_max = scene->instances,
        .blocks_max = SESSIONS * scene->blocks * 2,
        .seed = 7,
        .block_tokens = BLOCK_TOKENS,
        .pending_max = 8192,
    };
    size_t requests = ROUND_REQUESTS * bench->rounds;
    char message[256] = "";

    if (yb_sched_create(&options, &scene->sched, message, sizeof(message)) != YB_OK) {
        fprintf(bench->cli->err, "yuebing bench sched: %s\n", message);
        return false;
    }
    scene->names = calloc((size_t)SESSIONS * scene->blocks, sizeof(*scene->names));
    scene->hits = calloc(scene->instances, sizeof(*scene->hits));
    scene->times_us = calloc(requests, sizeof(*scene->times_us));
    scene->index_us = calloc(requests, sizeof(*scene->index_us));
    if (scene->names == NULL || scene->hits == NULL || scene->times_us == NULL ||
        scene->index_us == NULL ||
        yb_sched_scratch_create(scene->sched, &scene->scratch) != YB_OK ||
        yb_sched_set_cost(scene->sched, 0, &cost) != YB_OK || !fill(scene)) {
        fprintf(bench->cli->err, "yuebing bench sched: no memory\n");
        return false;
    }
    return true;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static bool
decide_one(struct scene *scene)
{
    struct yb_sched_request request = {
        .struct_bytes = sizeof(request),
        .id = scene->requests + 1,
        .arrival_ns = scene->now_ns,
        .input_tokens = scene->blocks * BLOCK_TOKENS,
        .blocks = session_of(scene, pick(scene, SESSIONS)),
        .block_count = scene->blocks,
    };
    struct yb_sched_decision decision;
    const struct yb_clock *clock = yb_clock_system();
    uint64_t began_ns = yb_clock_now(clock);
    uint64_t decided_ns;

    (void)yb_sched_match(scene->sched, scene->scratch, request.blocks, request.block_count,
                         scene->now_ns, scene->hits);
    scene->index_us[scene->requests] = (double)(yb_clock_now(clock) - began_ns) / 1e3;
    began_ns = yb_clock_now(clock);
    if (yb_sched_decide(scene->sched, scene->scratch, &request, scene->now_ns, &decision) !=
            YB_OK ||
        !decision.accepted) {
        return false;
    }
    decided_ns = yb_clock_now(clock);
    scene->times_us[scene->requests] = (double)(decided_ns - began_ns) / 1e3;
    scene->considered += decision.considered;
    scene->requests++;
    return yb_sched_commit(scene->sched, &request, &decision, scene->now_ns) == YB_OK;
}

/* Between two decisions some places report, and old requests end. */
static bool
go_on(struct scene *scene)
{
    bool ok = true;

    scene->now_ns += 1000000;
    if (scene->requests > 64) {
        scene->seen = scene->requests - 32;
        yb_sched_prefilled(scene->sched, scene->requests - 64, scene->now_ns);
        yb_sched_ended(scene->sched, scene->requests - 64, scene->now_ns);
    }
    for (uint32_t i = 0; ok && i < REPORTS; i++) {
        ok = report(scene, pick(scene, scene->instances));
    }
    return ok;
}

static int
compare(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;

    return (*left > *right) - (*left < *right);
}

static bool
measure(struct bench *bench, uint32_t instances, uint32_t blocks)
{
    struct scene scene = {.instances = instances, .blocks = blocks, .random = 88172645463325252ull};
    uint64_t requests = ROUND_REQUESTS * bench->rounds;
    struct row *row = &bench->rows[bench->row_count];
    size_t held;
    bool ok = scene_open(bench, &scene);

    for (uint32_t i = 0; ok && i < 100; i++) { /* Until the table is as it will be. */
        ok = decide_one(&scene) && go_on(&scene);
    }
    scene.considered = 0;
    held = mallinfo2().uordblks;
    *row = (struct row){.instances = instances, .blocks = blocks};
    for (uint64_t i = 0; ok && i + 100 < requests; i++) {
        ok = decide_one(&scene) && go_on(&scene);
    }
    row->bytes_allocated = (double)mallinfo2().uordblks - (double)held;
    if (ok) {
        uint64_t count = requests - 100;

        qsort(scene.times_us + 100, count, sizeof(double), compare);
        qsort(scene.index_us + 100, count, sizeof(double), compare);
        row->p50_us = scene.times_us[100 + count / 2];
        row->p99_us = scene.times_us[100 + count * 99 / 100];
        row->index_p50_us = scene.index_us[100 + count / 2];
        row->considered = (double)scene.considered / (double)count;
        bench->row_count++;
    }
    scene_close(&scene);
    return ok;
}

/* ---- results --------------------------------------------------------------------------------- */

static int
print_json(struct bench *bench)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < bench->row_count; i++) {
        const struct row *row = &bench->rows[i];

        (void)json_array_append_new(
            array,
            json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "instances", (int)row->instances,
                      "blocks", (int)row->blocks, "decision_us_p50", row->p50_us, "decision_us_p99",
                      row->p99_us, "lookup_us_p50", row->index_p50_us, "considered",
                      row->considered, "bytes_allocated", row->bytes_allocated));
    }
    return yb_output_json(bench->cli->out, json_pack("{s:s, s:s, s:I, s:o}", "bench", "sched",
                                                     "routing", bench->routing, "rounds",
                                                     (json_int_t)bench->rounds, "rows", array)) ==
                   YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static int
print_table(struct bench *bench)
{
    static const char *const columns[] = {"instances",      "blocks",        "decision p50 us",
                                          "p99 us",         "lookup p50 us", "considered",
                                          "bytes allocated"};
    struct yb_output_table *table = NULL;
    bool ok = yb_output_table_create(columns, 7, &table) == YB_OK;

    for (uint32_t i = 0; ok && i < bench->row_count; i++) {
        const struct row *row = &bench->rows[i];
        const double values[7] = {row->instances,      row->blocks,       row->p50_us,
                                  row->p99_us,         row->index_p50_us, row->considered,
                                  row->bytes_allocated};
        char cells[7][32];
        const char *list[7];

        for (uint32_t k = 0; k < 7; k++) {
            (void)snprintf(cells[k], sizeof(cells[k]), "%.*f", k >= 2 && k <= 5 ? 1 : 0, values[k]);
            list[k] = cells[k];
        }
        ok = yb_output_table_add(table, list) == YB_OK;
    }
    if (ok) {
        yb_output_table_print(table, bench->cli->out, bench->cli->terminal);
        fprintf(bench->cli->out,
                "%llu decisions each, routing %s; reach: 250 blocks at 256 instances in less than "
                "200 us, nothing allocated\n",
                (unsigned long long)(bench->rounds * ROUND_REQUESTS - 100), bench->routing);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_bench_sched(struct yb_cli *cli)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    int result = YB_CLI_EXIT_REFUSED;
    bool ok = true;

    if (bench == NULL) {
        fprintf(cli->err, "yuebing bench: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    *bench = (struct bench){
        .cli = cli,
        .routing = yb_cli_option(cli, "routing"),
        .rounds = 5,
        .instance_count = 3,
        .instances = {16, 256, 4096},
        .block_count = 1,
        .blocks = {250},
    };
    bench->routing = bench->routing != NULL ? bench->routing : yb_sched_routing_name(0);
    if (yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &bench->rounds) &&
        yb_bench_list_read(cli, "instances", YB_SCHED_PLACES_MAX, bench->instances,
                           &bench->instance_count) &&
        yb_bench_list_read(cli, "blocks", 100000, bench->blocks, &bench->block_count)) {
        for (uint32_t i = 0; ok && i < bench->instance_count; i++) {
            for (uint32_t k = 0; ok && k < bench->block_count; k++) {
                ok = measure(bench, (uint32_t)bench->instances[i], (uint32_t)bench->blocks[k]);
            }
        }
        result = !ok ? YB_CLI_EXIT_FAILED : cli->json ? print_json(bench) : print_table(bench);
    }
    free(bench);
    return result;
}
