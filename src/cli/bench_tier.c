/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_tier.h"

#include <unistd.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "cli/folder.h"

#define STORE_FOLDER "yuebing-bench-object"

/* ---- what the tier tells --------------------------------------------------------------------- */

static bool
on_found(void *owner, const struct yb_tier_record *record)
{
    (void)owner;
    (void)record;
    return true;
}

void
yb_bench_tier_note(struct yb_bench_tier *bench, enum yb_status status)
{
    if (bench->status == YB_OK) {
        bench->status = status;
    }
}

static void
on_recovered(void *owner, enum yb_status status)
{
    struct yb_bench_tier *bench = owner;

    bench->recovered = true;
    yb_bench_tier_note(bench, status);
}

static void
on_lost(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why)
{
    struct yb_bench_tier *bench = owner;

    (void)why;
    if (bench->lost != NULL) {
        bench->lost(bench->owner, hash, grant);
    }
}

static void
on_aside(void *owner, enum yb_status status, const char *why)
{
    struct yb_bench_tier *bench = owner;

    if (status != YB_OK) {
        fprintf(bench->err, "yuebing bench %s: %s\n", bench->name, why);
        yb_bench_tier_note(bench, status);
    }
}

static const struct yb_tier_events events = {
    .found = on_found, .recovered = on_recovered, .lost = on_lost, .aside = on_aside};

/* ---- its life -------------------------------------------------------------------------------- */

static bool
open_loop(struct yb_bench_tier *bench)
{
    const struct yb_loop_options options = {.backend = "auto", .clock = yb_clock_system()};

    YB_ASSERT(bench->tier == NULL);
    bench->recovered = false;
    bench->status = YB_OK;
    if (bench->loop == NULL && yb_loop_create(&options, &bench->loop) != YB_OK) {
        fprintf(bench->err, "yuebing bench %s: no memory\n", bench->name);
        return false;
    }
    return true;
}

static bool
await_recovery(struct yb_bench_tier *bench)
{
    while (!bench->recovered && bench->status == YB_OK) {
        yb_loop_turn(bench->loop, YB_BENCH_TIER_TURN_NS);
    }
    return bench->status == YB_OK;
}

bool
yb_bench_tier_open_log(struct yb_bench_tier *bench, const struct yb_ssd_options *options)
{
    struct yb_ssd_options own = *options;

    if (!open_loop(bench)) {
        return false;
    }
    own.loop = bench->loop;
    own.events = &events;
    own.owner = bench;
    if (yb_ssd_create(&own, &bench->tier) != YB_OK) {
        fprintf(bench->err, "yuebing bench %s: no memory for the log\n", bench->name);
        return false;
    }
    return await_recovery(bench);
}

const char *
yb_bench_tier_url(struct yb_bench_tier *bench, const struct yb_cli *cli)
{
    const char *url = yb_cli_option(cli, "store");

    if (url != NULL) {
        return url;
    }
    bench->made = access(STORE_FOLDER, F_OK) != 0 ? STORE_FOLDER : NULL;
    return "file:" STORE_FOLDER;
}

bool
yb_bench_tier_open_store(struct yb_bench_tier *bench, const struct yb_object_options *options)
{
    struct yb_object_options own = *options;
    char why[YB_OBJECT_WHY_BYTES];

    if (!open_loop(bench)) {
        return false;
    }
    own.loop = bench->loop;
    own.events = &events;
    own.owner = bench;
    if (yb_object_create(&own, &bench->tier, why) != YB_OK) {
        fprintf(bench->err, "yuebing bench %s: %s\n", bench->name, why);
        return false;
    }
    return await_recovery(bench);
}

void
yb_bench_tier_close(struct yb_bench_tier *bench)
{
    if (bench->tier == NULL) {
        return;
    }
    yb_tier_stop(bench->tier);
    while (!yb_tier_idle(bench->tier)) {
        yb_loop_turn(bench->loop, YB_BENCH_TIER_TURN_NS);
    }
    yb_tier_destroy(&bench->tier);
}

void
yb_bench_tier_fini(struct yb_bench_tier *bench)
{
    yb_bench_tier_close(bench);
    if (bench->loop != NULL) {
        yb_loop_destroy(&bench->loop);
    }
    if (bench->made != NULL) {
        (void)yb_folder_remove(bench->made);
        bench->made = NULL;
    }
}

uint32_t
yb_bench_sum(const uint8_t *bytes, uint64_t size)
{
    uint32_t sum = 0;

    for (uint64_t at = 0; at < size; at += YB_TIER_CHUNK_BYTES) {
        uint64_t left = size - at;

        sum ^= yb_crc32c(bytes + at, left < YB_TIER_CHUNK_BYTES ? left : YB_TIER_CHUNK_BYTES);
    }
    return sum;
}
