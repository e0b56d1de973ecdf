/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_shelf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench_tier.h"
#include "cli/measure.h"

#define BLOCKS      128u
#define BLOCK_BYTES (1ull << 20)
#define OPS         (YB_BENCH_SHELF_FLOWS * YB_BENCH_SHELF_DEPTH)

struct flow {
    const struct yb_bench_flow_options *options;
    uint32_t under_way;
    uint64_t next_ns; /* PACED. */
    uint64_t bytes;   /* Since it is measured. */
    struct yb_histogram us;
};

struct op {
    union yb_bench_tier_any any; /* First. */
    struct yb_bench_shelf *shelf;
    struct flow *flow; /* NULL: of no flow. */
    struct op *next;
    struct iovec iov;
    uint64_t begun_ns;
    uint32_t block;
};

struct yb_bench_shelf {
    struct yb_bench_tier tier;
    char directory[4096]; /* "": none of ours. */
    uint64_t grant;
    uint64_t random;
    uint8_t *memory; /* OPS blocks. */
    struct op *ops;
    struct op *free;
    struct flow flows[YB_BENCH_SHELF_FLOWS];
    uint32_t under_way;
    uint32_t wrong;
    bool measures;
    bool compares;
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static struct yb_id
hash_of(uint32_t block)
{
    struct yb_id id = {{0xc1}};

    memcpy(id.bytes + 8, &block, sizeof(block));
    return id;
}

static void
on_done(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct yb_bench_shelf *shelf = op->shelf;

    yb_bench_tier_note(&shelf->tier, status);
    shelf->wrong += shelf->compares &&
                    !yb_bench_check(op->iov.iov_base, op->block * BLOCK_BYTES, BLOCK_BYTES, 0);
    if (op->flow != NULL) {
        op->flow->under_way--;
        if (shelf->measures && status == YB_OK) {
            op->flow->bytes += BLOCK_BYTES;
            yb_histogram_record(&op->flow->us, (yb_measure_now_ns() - op->begun_ns) / YB_NS_PER_US);
        }
    }
    shelf->under_way--;
    op->next = shelf->free;
    shelf->free = op;
}

static struct op *
take(struct yb_bench_shelf *shelf, struct flow *flow, uint32_t block)
{
    struct op *op = shelf->free;

    shelf->free = op->next;
    op->flow = flow;
    op->block = block;
    op->begun_ns = yb_measure_now_ns();
    shelf->under_way++;
    if (flow != NULL) {
        flow->under_way++;
    }
    return op;
}

/* Read a block; no flow: as one that is compared. */
static void
load(struct yb_bench_shelf *shelf, struct flow *flow, uint32_t block)
{
    struct op *op = take(shelf, flow, block);
    enum yb_status status;

    op->any.load = (struct yb_tier_load){
        .op = {.done = on_done,
               .deadline_ns = YB_NEVER,
               .traffic_class =
                   flow == NULL ? YB_CLASS_THROUGHPUT : (enum yb_class)flow->options->work_class},
        .hash = hash_of(block),
        .grant = shelf->grant,
        .length = BLOCK_BYTES,
        .iov = &op->iov,
        .iov_count = 1};
    status = yb_tier_load(shelf->tier.tier, &op->any.load);
    if (status != YB_OK) {
        on_done(&op->any.op, status);
    }
}

static void
wait_for_all(struct yb_bench_shelf *shelf)
{
    while (shelf->under_way > 0) {
        yb_loop_turn(shelf->tier.loop, YB_BENCH_TIER_TURN_NS);
    }
}

static bool
store_all(struct yb_bench_shelf *shelf)
{
    static const char key[] = "bench block";

    for (uint32_t i = 0; i < BLOCKS && shelf->tier.status == YB_OK; i++) {
        struct op *op = take(shelf, NULL, i);
        enum yb_status status;

        yb_bench_stamp(op->iov.iov_base, i * BLOCK_BYTES, BLOCK_BYTES, 0);
        op->any.store = (struct yb_tier_store){
            .op = {.done = on_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_THROUGHPUT},
            .record = {.hash = hash_of(i),
                       .grant = shelf->grant,
                       .flush = shelf->grant,
                       .size = BLOCK_BYTES,
                       .tenant = "bench",
                       .key = (const uint8_t *)key,
                       .key_bytes = sizeof(key) - 1,
                       .mode = YB_WIRE_MODE_IF_ABSENT,
                       .replicas = 1},
            .iov = &op->iov,
            .iov_count = 1};
        status = yb_tier_store(shelf->tier.tier, &op->any.store);
        if (status != YB_OK) {
            on_done(&op->any.op, status);
        }
    }
    wait_for_all(shelf);
    return shelf->tier.status == YB_OK;
}

/* ---- flows ----------------------------------------------------------------------------------- */

/* Start what is due; returns how long nothing else will be. */
static uint64_t
feed(struct yb_bench_shelf *shelf, struct flow *flow)
{
    const struct yb_bench_flow_options *options = flow->options;
    uint64_t now = yb_measure_now_ns();

    while (flow->under_way < options->depth &&
           (options->mode != YB_BENCH_FLOW_PACED || now >= flow->next_ns)) {
        shelf->random = shelf->random * 6364136223846793005ull + 1442695040888963407ull;
        load(shelf, flow, (uint32_t)(shelf->random >> 33) % BLOCKS);
        flow->next_ns += options->period_ns;
    }
    return options->mode == YB_BENCH_FLOW_PACED && flow->next_ns > now ? flow->next_ns - now
                                                                       : YB_BENCH_TIER_TURN_NS;
}

static void
run_until(struct yb_bench_shelf *shelf, uint32_t count, uint64_t until_ns)
{
    for (uint64_t now = yb_measure_now_ns(); now < until_ns && shelf->tier.status == YB_OK;
         now = yb_measure_now_ns()) {
        uint64_t wait = until_ns - now;

        for (uint32_t i = 0; i < count; i++) {
            uint64_t due = feed(shelf, &shelf->flows[i]);

            wait = due < wait ? due : wait;
        }
        yb_loop_turn(shelf->tier.loop, wait);
    }
}

bool
yb_bench_shelf_play(struct yb_bench_shelf *shelf, const struct yb_bench_flow_options *flows,
                    uint32_t count, uint64_t run_ns, struct yb_bench_flow_result *results_out)
{
    uint64_t begun;
    double span;

    YB_ASSERT(count <= YB_BENCH_SHELF_FLOWS);
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(flows[i].depth <= YB_BENCH_SHELF_DEPTH);
        shelf->flows[i] = (struct flow){.options = &flows[i], .next_ns = yb_measure_now_ns()};
    }
    run_until(shelf, count, yb_measure_now_ns() + run_ns / 5);
    shelf->measures = true;
    begun = yb_measure_now_ns();
    run_until(shelf, count, begun + run_ns);
    shelf->measures = false;
    span = (double)(yb_measure_now_ns() - begun);
    for (uint32_t i = 0; i < count; i++) {
        struct flow *flow = &shelf->flows[i];

        results_out[i] =
            (struct yb_bench_flow_result){.gbps = (double)flow->bytes / span,
                                          .p50_us = (double)yb_histogram_quantile(&flow->us, 0.5),
                                          .p99_us = (double)yb_histogram_quantile(&flow->us, 0.99),
                                          .bytes = flow->bytes,
                                          .batches = flow->bytes / BLOCK_BYTES};
    }
    wait_for_all(shelf);
    if (shelf->tier.status != YB_OK) {
        fprintf(stderr, "yuebing bench classes: %s\n", yb_status_text(shelf->tier.status));
    }
    return shelf->tier.status == YB_OK;
}

bool
yb_bench_shelf_check(struct yb_bench_shelf *shelf)
{
    memset(shelf->memory, 0, OPS * BLOCK_BYTES);
    shelf->compares = true;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        load(shelf, NULL, i);
    }
    wait_for_all(shelf);
    shelf->compares = false;
    if (shelf->wrong > 0) {
        fprintf(stderr, "yuebing bench classes: %u blocks came back wrong\n", shelf->wrong);
    }
    return shelf->wrong == 0 && shelf->tier.status == YB_OK;
}

/* ---- its life -------------------------------------------------------------------------------- */

static bool
open_log(struct yb_cli *cli, struct yb_bench_shelf *shelf)
{
    const char *parent = yb_cli_option(cli, "dir");
    const struct yb_ssd_options options = {
        .directory = shelf->directory, .io = yb_cli_option(cli, "io"), .capacity = 8ull << 28};

    (void)snprintf(shelf->directory, sizeof(shelf->directory), "%s/yuebing-bench.XXXXXX",
                   parent == NULL ? "." : parent);
    if (mkdtemp(shelf->directory) == NULL) {
        fprintf(cli->err,
                "yuebing bench classes: %s: %m; name a directory on the disk with --dir\n",
                shelf->directory);
        shelf->directory[0] = '\0';
        return false;
    }
    return yb_bench_tier_open_log(&shelf->tier, &options);
}

static bool
open_store(struct yb_cli *cli, struct yb_bench_shelf *shelf)
{
    const struct yb_object_options options = {.url = yb_bench_tier_url(&shelf->tier, cli)};

    return yb_bench_tier_open_store(&shelf->tier, &options);
}

bool
yb_bench_shelf_open(struct yb_cli *cli, const char *on, struct yb_bench_shelf **shelf_out)
{
    struct yb_bench_shelf *shelf = calloc(1, sizeof(*shelf));

    *shelf_out = shelf;
    if (shelf == NULL || (shelf->ops = calloc(OPS, sizeof(*shelf->ops))) == NULL ||
        (shelf->memory = calloc(OPS, BLOCK_BYTES)) == NULL) {
        fprintf(cli->err, "yuebing bench classes: no memory\n");
        return false;
    }
    shelf->tier = (struct yb_bench_tier){.name = "classes", .err = cli->err};
    /* No run meets the blocks of another in the same store. */
    shelf->grant = yb_clock_wall(yb_clock_system()) / YB_NS_PER_S;
    shelf->random = 88172645463325252ull;
    memset(shelf->memory, 1, OPS * BLOCK_BYTES);
    for (uint32_t i = 0; i < OPS; i++) {
        shelf->ops[i].shelf = shelf;
        shelf->ops[i].iov = (struct iovec){shelf->memory + i * BLOCK_BYTES, BLOCK_BYTES};
        shelf->ops[i].next = shelf->free;
        shelf->free = &shelf->ops[i];
    }
    return (strcmp(on, "ssd") == 0 ? open_log(cli, shelf) : open_store(cli, shelf)) &&
           store_all(shelf);
}

void
yb_bench_shelf_close(struct yb_bench_shelf **shelf)
{
    struct yb_bench_shelf *it = *shelf;

    *shelf = NULL;
    if (it == NULL) {
        return;
    }
    yb_bench_tier_fini(&it->tier);
    if (it->directory[0] != '\0') {
        char path[sizeof(it->directory) + 8];

        (void)snprintf(path, sizeof(path), "%s/log", it->directory);
        (void)unlink(path);
        (void)rmdir(it->directory);
    }
    free(it->memory);
    free(it->ops);
    free(it);
}
