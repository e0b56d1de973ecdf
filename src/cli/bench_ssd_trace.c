/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench ssd --trace FILE`: a published trace over two tiers. A pool of P blocks decides by
 * the node's default policy what leaves it; that goes down to a real log with room for 2 P. What is
 * found there is loaded, compared, and comes back into the pool, while its record stays (a block
 * that leaves the pool again is not written again). Requests follow one another without pauses, so
 * a store that finds no room waits here, where a node would count a drop.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_ssd.h"
#include "cli/bench_tier.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "policy/policy.h"
#include "sim/trace.h"

#define POLICY       "s3fifo"
#define BLOCK_BYTES  (16u << 10) /* Stands for the megabytes of a real one. */
#define RECORD_BYTES (BLOCK_BYTES + 256u)
#define OPS          512u
#define SEGMENTS     64u
#define SOURCE_BYTES (32u << 20)
#define POOL_MAX     (1u << 20)
#define KEY_BYTES    8u
#define MIX          0x9e3779b97f4a7c15u

struct block {
    struct yb_policy_linked linked; /* First. */
    uint64_t grant;
    bool pooled;
    bool below;   /* RESIDENT in the log. */
    bool storing; /* On its way down: its memory is still there. */
};

struct op {
    union yb_bench_tier_any any; /* First. */
    struct run *run;
    struct iovec iov;
    uint64_t key;
    uint32_t block;
    uint32_t place; /* Of a load, in its request. */
    uint8_t *bytes;
    struct op *next;
};

struct run {
    struct yb_cli *cli;
    const struct yb_trace *trace;
    struct yb_policy *policy;
    struct yb_bench_tier log;
    struct block *blocks;
    struct op *ops;
    struct op *free;
    uint8_t *source;
    uint8_t *target;
    uint64_t grant;
    uint64_t room;
    uint64_t pooled;
    uint32_t loading;
    uint32_t storing;
    uint32_t whole; /* Of the request: so many from the first were found. */
    uint64_t hits_pool;
    uint64_t hits_below;
    uint64_t wrong; /* Loads whose bytes differ: there must be none. */
    uint64_t lost_loads;
    double seconds;
    struct yb_tier_info info;
};

/* ---- events -------------------------------------------------------------------------------- */

static struct yb_id
hash_of(uint64_t number)
{
    struct yb_id hash;
    uint64_t mix = (number + 1) * MIX;

    memcpy(hash.bytes, &number, sizeof number);
    memcpy(hash.bytes + 8, &mix, sizeof mix);
    return hash;
}

static void
on_lost(void *owner, struct yb_id hash, uint64_t grant)
{
    struct run *run = owner;
    uint64_t number;

    memcpy(&number, hash.bytes, sizeof number);
    if (run->blocks[number].grant == grant) {
        run->blocks[number].below = false;
    }
}

/* ---- operations ---------------------------------------------------------------------------- */

static uint8_t *
value_of(const struct run *run, uint64_t number)
{
    return run->source + number * 64 % (SOURCE_BYTES - BLOCK_BYTES);
}

static struct op *
take_op(struct run *run)
{
    struct op *op;

    while (run->free == NULL) {
        yb_loop_turn(run->log.loop, YB_BENCH_TIER_TURN_NS);
    }
    op = run->free;
    run->free = op->next;
    return op;
}

static void
give_op(struct run *run, struct op *op)
{
    op->next = run->free;
    run->free = op;
}

static void
stored(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct run *run = op->run;
    struct block *block = &run->blocks[op->block];

    if (block->grant == op->any.store.record.grant) {
        block->storing = false;
        block->below = status == YB_OK;
    }
    run->storing--;
    give_op(run, op);
}

static void
demote(struct run *run, uint32_t number)
{
    struct block *block = &run->blocks[number];
    struct op *op;

    if (block->below || block->storing || run->log.status != YB_OK) {
        return;
    }
    op = take_op(run);
    op->key = number;
    op->block = number;
    op->iov = (struct iovec){.iov_base = value_of(run, number), .iov_len = BLOCK_BYTES};
    op->any.store = (struct yb_tier_store){
        .op = {.done = stored, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_BACKGROUND},
        .record = {.hash = hash_of(number),
                   .grant = block->grant,
                   .size = BLOCK_BYTES,
                   .tenant = "",
                   .key = (const uint8_t *)&op->key,
                   .key_bytes = KEY_BYTES,
                   .mode = YB_WIRE_MODE_IF_ABSENT,
                   .replicas = 1},
        .iov = &op->iov,
        .iov_count = 1};
    block->storing = true;
    run->storing++;
    while (run->log.status == YB_OK && yb_tier_store(run->log.tier, &op->any.store) == YB_AGAIN) {
        yb_loop_turn(run->log.loop, YB_BENCH_TIER_TURN_NS);
    }
}

static void
loaded(struct yb_tier_op *base, enum yb_status status)
{
    struct op *op = (struct op *)base;
    struct run *run = op->run;

    if (status != YB_OK) {
        run->whole = op->place < run->whole ? op->place : run->whole;
        run->lost_loads++;
    } else {
        run->wrong += memcmp(op->bytes, value_of(run, op->block), BLOCK_BYTES) != 0;
    }
    run->loading--;
    give_op(run, op);
}

static void
load(struct run *run, uint32_t number, uint32_t place)
{
    struct op *op = take_op(run);

    op->key = number;
    op->block = number;
    op->place = place;
    op->iov = (struct iovec){.iov_base = op->bytes, .iov_len = BLOCK_BYTES};
    op->any.load = (struct yb_tier_load){
        .op = {.done = loaded, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_FIRST_TOKEN},
        .hash = hash_of(number),
        .grant = run->blocks[number].grant,
        .key = (const uint8_t *)&op->key,
        .key_bytes = KEY_BYTES,
        .length = BLOCK_BYTES,
        .iov = &op->iov,
        .iov_count = 1};
    run->loading++;
    if (yb_tier_load(run->log.tier, &op->any.load) != YB_OK) {
        loaded(&op->any.op, YB_AGAIN);
    }
}

/* ---- the trace ----------------------------------------------------------------------------- */

static void
make_room(struct run *run)
{
    struct yb_policy_entry *entry = yb_policy_victim(run->policy);
    struct block *block = (struct block *)(void *)entry;

    YB_ASSERT(entry != NULL); /* Nothing is pinned here. */
    demote(run, (uint32_t)(block - run->blocks));
    yb_policy_evict(run->policy, entry);
    block->pooled = false;
    run->pooled--;
}

static void
take_in(struct run *run, uint32_t number, const struct yb_policy_use *use, uint64_t now_ns)
{
    struct block *block = &run->blocks[number];
    uint32_t parent = run->trace->parents[number];
    struct yb_policy_facts facts = {
        .hash = (number + 1) * MIX, .size = 1, .linked = true, .use = *use};

    if (run->pooled == run->room) {
        make_room(run);
    }
    if (!block->below && !block->storing) {
        block->grant = ++run->grant;
    }
    yb_policy_insert(run->policy, &block->linked.entry, &facts, now_ns);
    block->pooled = true;
    run->pooled++;
    if (parent != YB_TRACE_NONE && run->blocks[parent].pooled) {
        YB_ASSERT(yb_policy_attach(run->policy, &block->linked, &run->blocks[parent].linked) ==
                  YB_OK); /* The trace is a forest. */
    }
}

/* How much of a request is here, from its first block on; what is below is loaded. */
static void
look_up(struct run *run, const uint32_t *numbers, uint32_t count)
{
    uint32_t places = 0;

    while (places < count &&
           (run->blocks[numbers[places]].pooled || run->blocks[numbers[places]].storing ||
            run->blocks[numbers[places]].below)) {
        places++;
    }
    run->whole = places;
    for (uint32_t i = 0; i < places; i++) {
        if (!run->blocks[numbers[i]].pooled && !run->blocks[numbers[i]].storing) {
            load(run, numbers[i], i);
        }
    }
    while (run->loading > 0) {
        yb_loop_turn(run->log.loop, YB_BENCH_TIER_TURN_NS);
    }
}

static void
request(struct run *run, uint32_t index)
{
    const struct yb_trace_request *one = &run->trace->requests[index];
    const uint32_t *numbers = &run->trace->blocks[one->first];
    uint32_t count = yb_trace_blocks_of(run->trace, index);

    look_up(run, numbers, count);
    for (uint32_t i = 0; i < count; i++) {
        struct block *block = &run->blocks[numbers[i]];
        struct yb_policy_use use = {.position = i + 1};
        bool here = block->pooled || block->storing;

        run->hits_pool += i < run->whole && here;
        run->hits_below += i < run->whole && !here;
        if (block->pooled) {
            yb_policy_use(run->policy, &block->linked.entry, &use, one->arrival_ns);
        } else if (i < run->whole || !block->below) {
            take_in(run, numbers[i], &use, one->arrival_ns);
        } /* Else it was computed again, and its put heard that it exists. */
    }
}

/* ---- setup and result ---------------------------------------------------------------------- */

static uint64_t
segment_bytes(uint64_t blocks)
{
    uint64_t bytes = blocks * RECORD_BYTES / SEGMENTS;

    bytes = (bytes + YB_SSD_BLOCK_BYTES - 1) / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES;
    return bytes < YB_SSD_SEGMENT_BYTES_MIN ? YB_SSD_SEGMENT_BYTES_MIN : bytes;
}

static bool
prepare(struct run *run, const char *directory, const char *io)
{
    struct yb_policy_options policy = {.name = POLICY, .ghost_count = (uint32_t)run->room};
    struct yb_ssd_options options = {.directory = directory,
                                     .io = io,
                                     .segment_bytes = segment_bytes(2 * run->room),
                                     .operations_max = OPS};

    run->blocks = calloc(run->trace->block_count, sizeof *run->blocks);
    run->ops = calloc(OPS, sizeof *run->ops);
    run->source = malloc(SOURCE_BYTES);
    run->target = malloc((size_t)OPS * BLOCK_BYTES);
    if (run->blocks == NULL || run->ops == NULL || run->source == NULL || run->target == NULL ||
        yb_policy_create(&policy, &run->policy) != YB_OK) {
        fprintf(run->cli->err, "yuebing bench ssd: no memory\n");
        return false;
    }
    for (uint64_t i = 0; i < SOURCE_BYTES; i += sizeof i) {
        uint64_t mix = (i + 1) * MIX;

        memcpy(run->source + i, &mix, sizeof mix);
    }
    for (uint32_t i = 0; i < OPS; i++) {
        run->ops[i].run = run;
        run->ops[i].bytes = run->target + (size_t)i * BLOCK_BYTES;
        give_op(run, &run->ops[i]);
    }
    options.capacity =
        (2 * run->room * RECORD_BYTES / options.segment_bytes + 1) * options.segment_bytes;
    if (options.capacity < YB_SSD_SEGMENTS_MIN * options.segment_bytes) {
        options.capacity = YB_SSD_SEGMENTS_MIN * options.segment_bytes;
    }
    return yb_bench_tier_open_log(&run->log, &options);
}

static void
clean_up(struct run *run, const char *directory)
{
    char path[4200];

    yb_bench_tier_fini(&run->log);
    if (run->policy != NULL) {
        yb_policy_destroy(&run->policy);
    }
    (void)snprintf(path, sizeof path, "%s/log", directory);
    (void)unlink(path);
    free(run->target);
    free(run->source);
    free(run->ops);
    free(run->blocks);
}

static int
print_json(const struct run *run, const char *name, double pool, double below, double amplified)
{
    json_t *value = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:I, s:f}", "bench",
        "ssd", "trace", name, "policy", POLICY, "pool_blocks", (json_int_t)run->room, "ssd_blocks",
        (json_int_t)(2 * run->room), "block_bytes", (json_int_t)BLOCK_BYTES, "references",
        (json_int_t)run->trace->reference_count, "pool_hit", pool, "ssd_hit", below, "hit",
        pool + below, "stored_bytes", (json_int_t)run->info.stored_bytes, "written_bytes",
        (json_int_t)run->info.written_bytes, "write_amplification", amplified, "reclaims",
        (json_int_t)run->info.reclaims, "lost_while_loading", (json_int_t)run->lost_loads,
        "seconds", run->seconds);

    return yb_output_json(run->cli->out, value) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

static int
print(const struct run *run, const char *name)
{
    double references = (double)run->trace->reference_count;
    double pool = (double)run->hits_pool / references;
    double below = (double)run->hits_below / references;
    double amplified = run->info.stored_bytes == 0
                           ? 0
                           : (double)run->info.written_bytes / (double)run->info.stored_bytes;

    if (run->cli->json) {
        return print_json(run, name, pool, below, amplified);
    }
    fprintf(run->cli->out,
            "%s: %.0f blocks asked for, %u different; %s decides what leaves the pool\n"
            "tier    blocks      hit\n"
            "pool  %8llu   %.4f\n"
            "ssd   %8llu   %.4f\n"
            "both             %.4f\n"
            "%.2f GB stored, %.2f GB written: write amplification %.3f; %llu reclaims, %llu loads "
            "came too late; %.1f s\n",
            name, references, run->trace->block_count, POLICY, (unsigned long long)run->room, pool,
            (unsigned long long)(2 * run->room), below, pool + below,
            (double)run->info.stored_bytes / 1e9, (double)run->info.written_bytes / 1e9, amplified,
            (unsigned long long)run->info.reclaims, (unsigned long long)run->lost_loads,
            run->seconds);
    return 0;
}

static bool
run_all(struct run *run)
{
    struct yb_output_progress progress;
    uint64_t begun_ns = yb_measure_now_ns();

    yb_output_progress_begin(&progress, run->cli->err, run->cli->terminal, yb_clock_system(),
                             "requests", run->trace->request_count);
    for (uint32_t i = 0; i < run->trace->request_count && run->log.status == YB_OK; i++) {
        request(run, i);
        yb_output_progress_update(&progress, i + 1);
    }
    while (run->storing > 0 && run->log.status == YB_OK) {
        yb_loop_turn(run->log.loop, YB_BENCH_TIER_TURN_NS);
    }
    yb_output_progress_end(&progress);
    run->seconds = (double)(yb_measure_now_ns() - begun_ns) / 1e9;
    yb_tier_info(run->log.tier, &run->info);
    if (run->wrong > 0) {
        fprintf(run->cli->err, "yuebing bench ssd: %llu blocks came back with other bytes\n",
                (unsigned long long)run->wrong);
    }
    return run->log.status == YB_OK && run->wrong == 0;
}

int
yb_bench_ssd_trace(struct yb_cli *cli, const char *path, const char *directory, const char *io)
{
    struct run run = {.cli = cli, .room = 10000};
    struct yb_trace_options options = {.format = YB_TRACE_AUTO};
    struct yb_trace *trace = NULL;
    char message[YB_TRACE_MESSAGE_MAX];
    int result = YB_CLI_EXIT_FAILED;

    if (!yb_cli_option_number(cli, "pool", 64, POOL_MAX, &run.room)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_trace_open(path, &options, &trace, message) != YB_OK) {
        fprintf(cli->err, "yuebing bench ssd: %s\n", message);
        return YB_CLI_EXIT_REFUSED;
    }
    run.trace = trace;
    run.log =
        (struct yb_bench_tier){.name = "ssd", .err = cli->err, .lost = on_lost, .owner = &run};
    if (prepare(&run, directory, io) && run_all(&run)) {
        result = print(&run, strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1);
    }
    clean_up(&run, directory);
    yb_trace_destroy(&trace);
    return result;
}
