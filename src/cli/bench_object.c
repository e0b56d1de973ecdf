/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench object`: blocks in an object store.
 *
 * Large blocks: put and get at a fixed number of requests, beside the same objects asked of the
 * same medium by bare requests: no record, no checksum, no index. For S3 those are plain libcurl's
 * (bench_curl.h), of as many bytes, at the same concurrency and in the same run. The bare side runs
 * once without any sum, which nobody may who does not trust the way or the medium, and once with
 * those that the tier makes, so that the two ratios tell what sums cost from what the tier does.
 * Small blocks: a thousand gets in flight, an object for each and packed, with the requests that
 * they cost. Every block that is read is compared with what was put.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_curl.h"
#include "cli/bench_target.h"
#include "cli/bench_tier.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "tier/object/record.h"

#define ROUNDS_MAX 99u
#define FLYING     32u
#define GET_TURNS  4u
#define SMALL      1000u
#define LARGE      (1ull << 20)
#define ROWS_MAX   16u

_Static_assert(SMALL * 65536ull <= 2 * FLYING * LARGE, "the memory holds either");

/* Who moves the blocks. */
enum way {
    WAY_TIER,
    WAY_BARE,    /* The same bytes, as they are. */
    WAY_CHECKED, /* And the sums of them that the tier makes. */
    WAYS
};

struct row {
    const char *op;
    const char *layout;
    uint64_t size;
    double gbps;
    double bare_gbps;     /* 0: not measured. */
    double checked_gbps;  /* With sums. */
    double ratio;         /* To the first ... */
    double ratio_checked; /* ... and to the second; 0: not measured. */
    double ops_per_s;
    double requests; /* Per block. */
    double p50_us;
    double p99_us;
};

struct item {
    union yb_bench_tier_any any; /* First. */
    struct yb_object_request bare;
    struct scene *scene;
    struct iovec iov;
    uint8_t *bytes;
    char key[32];
    uint32_t sum; /* Of a bare request. */
    uint64_t begun_ns;
    double took_us;
};

struct scene {
    struct yb_cli *cli;
    const char *url;
    struct yb_bench_tier tier;
    struct yb_helper_pool *pool;
    struct yb_object_backend *backend; /* Bare, of files; NULL: `curl` is. */
    struct yb_bench_curl *curl;
    struct item *items;
    uint8_t *memory;
    uint64_t size;
    uint32_t count;
    uint32_t next;
    uint32_t under_way;
    uint32_t wrong;
    uint64_t epoch; /* Of what is put now: no run meets the blocks of another. */
    bool puts;
    uint32_t row_count;
    struct row rows[ROWS_MAX];
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static struct yb_id
hash_of(uint32_t number)
{
    struct yb_id id = {{0xbe}};

    memcpy(id.bytes + 8, &number, sizeof(number));
    return id;
}

static void on_done(struct yb_tier_op *op, enum yb_status status);

static void
make_store(struct item *item, uint32_t number)
{
    struct scene *scene = item->scene;

    item->any.store = (struct yb_tier_store){
        .op = {.done = on_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_THROUGHPUT},
        .record = {.hash = hash_of(number),
                   .grant = scene->epoch,
                   .flush = scene->epoch,
                   .size = scene->size,
                   .tenant = "bench",
                   .key = (const uint8_t *)item->key,
                   .key_bytes = (uint32_t)strlen(item->key),
                   .mode = YB_WIRE_MODE_IF_ABSENT},
        .iov = &item->iov,
        .iov_count = 1,
    };
}

static void
make_load(struct item *item, uint32_t number)
{
    item->any.load = (struct yb_tier_load){
        .op = {.done = on_done, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_THROUGHPUT},
        .hash = hash_of(number),
        .grant = item->scene->epoch,
        .length = item->scene->size,
        .iov = &item->iov,
        .iov_count = 1,
    };
}

static void
start_next(struct scene *scene)
{
    struct item *item = &scene->items[scene->next];
    enum yb_status status;

    item->begun_ns = yb_measure_now_ns();
    if (scene->puts) {
        make_store(item, scene->next);
        status = yb_tier_store(scene->tier.tier, &item->any.store);
    } else {
        make_load(item, scene->next);
        status = yb_tier_load(scene->tier.tier, &item->any.load);
    }
    scene->next++;
    scene->under_way += status == YB_OK;
    yb_bench_tier_note(&scene->tier, status);
}

static void
ended(struct item *item, enum yb_status status)
{
    struct scene *scene = item->scene;

    item->took_us = (double)(yb_measure_now_ns() - item->begun_ns) / 1e3;
    scene->under_way--;
    yb_bench_tier_note(&scene->tier, status);
}

static void
on_done(struct yb_tier_op *op, enum yb_status status)
{
    ended((struct item *)op, status);
}

/* ---- the same, bare -------------------------------------------------------------------------- */

static void
on_bare(struct yb_object_request *request, enum yb_status status)
{
    ended((struct item *)((uint8_t *)request - offsetof(struct item, bare)), status);
}

/* On a thread of the medium's, as the tier's own. */
static void
sum_before(struct yb_object_request *request)
{
    struct item *item = (struct item *)((uint8_t *)request - offsetof(struct item, bare));

    item->sum ^= yb_bench_sum(item->bytes, item->iov.iov_len);
}

static enum yb_status
sum_after(struct yb_object_request *request)
{
    sum_before(request);
    return YB_OK;
}

static void
start_bare(struct scene *scene, bool sums)
{
    struct item *item = &scene->items[scene->next];
    struct yb_object_request *request = &item->bare;
    enum yb_status status;

    memset(request, 0, sizeof(*request));
    item->begun_ns = yb_measure_now_ns();
    request->done = on_bare;
    request->verb = scene->puts ? YB_OBJECT_PUT : YB_OBJECT_GET;
    request->before = sums && scene->puts ? sum_before : NULL;
    request->after = sums && !scene->puts ? sum_after : NULL;
    request->bytes.iov = &item->iov;
    request->bytes.iov_count = 1;
    request->deadline_ns = YB_NEVER;
    (void)snprintf(request->name, sizeof(request->name), "bench/%llu/bare/%u",
                   (unsigned long long)scene->epoch, scene->next);
    scene->next++;
    status = scene->backend->ops->submit(scene->backend, request);
    scene->under_way += status == YB_OK;
    yb_bench_tier_note(&scene->tier, status);
}

/* ---- one run --------------------------------------------------------------------------------- */

static double
run_curl(struct scene *scene, bool sums)
{
    const struct yb_bench_curl_job job = {
        .puts = scene->puts,
        .sums = sums,
        .epoch = scene->epoch,
        .count = scene->count,
        .size = scene->size,
        .more = yb_object_record_bytes(scene->size, (uint32_t)strlen(scene->items[0].key), 5),
        .memory = scene->memory,
    };
    double took = yb_bench_curl_run(scene->curl, &job);

    yb_bench_tier_note(&scene->tier, took == 0 ? YB_IO : YB_OK);
    return took;
}

static double
run_loop(struct scene *scene, uint32_t flying, enum way way)
{
    uint64_t begun = yb_measure_now_ns();

    scene->next = scene->under_way = 0;
    while ((scene->next < scene->count && scene->tier.status == YB_OK) || scene->under_way > 0) {
        while (scene->next < scene->count && scene->under_way < flying &&
               scene->tier.status == YB_OK) {
            if (way != WAY_TIER) {
                start_bare(scene, way == WAY_CHECKED);
            } else {
                start_next(scene);
            }
        }
        yb_loop_turn(scene->tier.loop, YB_BENCH_TIER_TURN_NS);
    }
    return (double)(yb_measure_now_ns() - begun) / 1e9;
}

/* All items once, `flying` at a time. Returns seconds; 0: it failed. */
static double
run(struct scene *scene, bool puts, uint32_t flying, enum way way)
{
    double took;

    scene->puts = puts;
    for (uint32_t i = 0; i < scene->count; i++) {
        if (puts) {
            yb_bench_stamp(scene->items[i].bytes, i * scene->size, scene->size, 0);
        } else {
            memset(scene->items[i].bytes, 0, scene->size);
        }
    }
    took = way != WAY_TIER && scene->curl != NULL ? run_curl(scene, way == WAY_CHECKED)
                                                  : run_loop(scene, flying, way);
    for (uint32_t i = 0; !puts && i < scene->count; i++) {
        scene->wrong += !yb_bench_check(scene->items[i].bytes, i * scene->size, scene->size, 0);
    }
    return scene->tier.status == YB_OK ? took : 0;
}

static bool
open_tier(struct scene *scene, enum yb_object_layout layout)
{
    const struct yb_object_options options = {
        .url = scene->url, .layout = layout, .concurrency = FLYING};

    return yb_bench_tier_open_store(&scene->tier, &options);
}

static int
compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* What a run took, and half of its blocks, and all but one of a hundred. */
struct outcome {
    double seconds;
    double p50_us;
    double p99_us;
};

static void
look(const struct scene *scene, double seconds, struct outcome *outcome_out)
{
    double *took = calloc(scene->count, sizeof(*took));

    *outcome_out = (struct outcome){.seconds = seconds};
    for (uint32_t i = 0; took != NULL && i < scene->count; i++) {
        took[i] = scene->items[i].took_us;
    }
    if (took != NULL) {
        qsort(took, scene->count, sizeof(*took), compare);
        outcome_out->p50_us = took[scene->count / 2];
        outcome_out->p99_us = took[scene->count * 99ull / 100];
    }
    free(took);
}

static struct row *
add_row(struct scene *scene, const char *op, const char *layout, const struct outcome *outcome)
{
    struct row *row = &scene->rows[scene->row_count++];

    *row = (struct row){.op = op,
                        .layout = layout,
                        .size = scene->size,
                        .gbps = (double)(scene->count * scene->size) / outcome->seconds / 1e9,
                        .ops_per_s = scene->count / outcome->seconds,
                        .p50_us = outcome->p50_us,
                        .p99_us = outcome->p99_us};
    return row;
}

static uint64_t
requests_of(const struct scene *scene)
{
    struct yb_object_stats stats = yb_object_stats(scene->tier.tier);

    return stats.requests[YB_OBJECT_GET] + stats.requests[YB_OBJECT_PUT] +
           stats.requests[YB_OBJECT_HEAD];
}

static void
set_size(struct scene *scene, uint64_t size, uint32_t count)
{
    scene->size = size;
    scene->count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct item *item = &scene->items[i];

        item->scene = scene;
        item->bytes = scene->memory + i * size;
        item->iov = (struct iovec){item->bytes, size};
        (void)snprintf(item->key, sizeof(item->key), "bench block %u", i);
    }
}

/* What the ways took in each round, for as many blocks. */
struct rounds {
    double seconds[WAYS][ROUNDS_MAX];
    struct outcome best; /* Of the tier's runs: its latencies. */
};

static bool
run_once(struct scene *scene, struct rounds *rounds, uint64_t round, bool puts, enum way way)
{
    double took = run(scene, puts, FLYING, way);

    rounds->seconds[way][round] += took;
    if (way == WAY_TIER && took > 0 && (rounds->best.seconds == 0 || took < rounds->best.seconds)) {
        look(scene, took, &rounds->best);
    }
    return took > 0;
}

/* One round: the ways take turns, each first in its turn, so that what else goes on meets all. Gets
 * are short, and have several turns. */
static bool
measure_round(struct scene *scene, struct rounds *puts, struct rounds *gets, uint64_t round)
{
    bool ok = true;

    scene->epoch++;
    for (uint64_t i = 0; ok && i < WAYS; i++) {
        ok = run_once(scene, puts, round, true, (enum way)((i + round) % WAYS));
    }
    for (uint64_t i = 0; ok && i < (uint64_t)WAYS * GET_TURNS; i++) {
        ok = run_once(scene, gets, round, false, (enum way)((i + i / WAYS + round) % WAYS));
    }
    return ok;
}

/* The middle of the rounds' ratios, and not the ratio of the middles: the ways of one round have
 * met the same machine. */
static double
ratio_to(const struct rounds *rounds, enum way way, uint64_t count)
{
    double ratios[ROUNDS_MAX];

    for (uint64_t i = 0; i < count; i++) {
        ratios[i] = rounds->seconds[way][i] / rounds->seconds[WAY_TIER][i];
    }
    return yb_bench_median(ratios, count);
}

static void
add_large(struct scene *scene, bool puts, struct rounds *rounds, uint64_t count)
{
    struct outcome outcome = rounds->best;
    double gigabytes = (double)(scene->count * scene->size) / 1e9 * (puts ? 1 : GET_TURNS);
    struct row *row;

    outcome.seconds = 1; /* Rates are those of the middle round. */
    row = add_row(scene, puts ? "put" : "get", "block", &outcome);
    row->ratio = ratio_to(rounds, WAY_BARE, count);
    row->ratio_checked = ratio_to(rounds, WAY_CHECKED, count);
    row->gbps = gigabytes / yb_bench_median(rounds->seconds[WAY_TIER], count);
    row->ops_per_s = row->gbps * 1e9 / (double)scene->size;
    row->bare_gbps = gigabytes / yb_bench_median(rounds->seconds[WAY_BARE], count);
    row->checked_gbps = gigabytes / yb_bench_median(rounds->seconds[WAY_CHECKED], count);
}

static bool
measure_large(struct scene *scene, uint64_t rounds)
{
    struct rounds *both = calloc(2, sizeof(*both));
    uint64_t before = requests_of(scene);
    bool ok = both != NULL;

    set_size(scene, LARGE, 2 * FLYING);
    for (uint64_t round = 0; ok && round < rounds; round++) {
        ok = measure_round(scene, &both[0], &both[1], round);
    }
    if (ok) {
        double each = (double)(rounds * scene->count * (1 + GET_TURNS));

        add_large(scene, true, &both[0], rounds);
        add_large(scene, false, &both[1], rounds);
        /* Beyond 1: second requests for blocks that were late, and what was tried again. */
        for (uint32_t i = 0; i < 2; i++) {
            scene->rows[i].requests = (double)(requests_of(scene) - before) / each;
        }
    }
    free(both);
    return ok;
}

static bool
measure_small(struct scene *scene, uint64_t size, enum yb_object_layout layout)
{
    const char *name = layout == YB_OBJECT_LAYOUT_PACKED ? "packed" : "block";

    set_size(scene, size, SMALL);
    scene->epoch++;
    for (int puts = 1; puts >= 0; puts--) {
        uint64_t before = requests_of(scene);
        double took = run(scene, puts == 1, SMALL, WAY_TIER);
        struct outcome outcome;
        struct row *row;

        if (took == 0) {
            return false;
        }
        look(scene, took, &outcome);
        row = add_row(scene, puts == 1 ? "put" : "get", name, &outcome);
        row->requests = (double)(requests_of(scene) - before) / SMALL;
    }
    return true;
}

/* ---- results --------------------------------------------------------------------------------- */

static int
print_json(struct scene *scene)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < scene->row_count; i++) {
        const struct row *row = &scene->rows[i];

        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "op",
                             row->op, "layout", row->layout, "size", (json_int_t)row->size, "gbps",
                             row->gbps, "bare_gbps", row->bare_gbps, "ratio", row->ratio,
                             "checked_gbps", row->checked_gbps, "ratio_checked", row->ratio_checked,
                             "ops_per_s", row->ops_per_s, "requests_per_block", row->requests,
                             "p50_us", row->p50_us, "p99_us", row->p99_us));
    }
    return yb_output_json(scene->cli->out, json_pack("{s:s, s:i, s:o}", "bench", "object",
                                                     "concurrency", (int)FLYING, "rows", array)) ==
                   YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static int
print_table(struct scene *scene)
{
    static const char *const columns[] = {"op",       "layout",         "size",         "GB/s",
                                          "bare",     "ratio",          "bare checked", "ratio",
                                          "blocks/s", "requests/block", "p50 us",       "p99 us"};
    struct yb_output_table *table = NULL;
    bool ok = yb_output_table_create(columns, 12, &table) == YB_OK;

    for (uint32_t i = 0; ok && i < scene->row_count; i++) {
        const struct row *row = &scene->rows[i];
        const double values[9] = {row->gbps,         row->bare_gbps,     row->ratio,
                                  row->checked_gbps, row->ratio_checked, row->ops_per_s,
                                  row->requests,     row->p50_us,        row->p99_us};
        char cells[10][32];
        const char *list[12] = {row->op, row->layout, cells[9]};

        (void)snprintf(cells[9], sizeof(cells[9]), "%llu", (unsigned long long)row->size);
        for (uint32_t k = 0; k < 9; k++) {
            (void)snprintf(cells[k], sizeof(cells[k]), "%.*f", k < 5 || k == 6 ? 3 : 0, values[k]);
            list[k + 3] = cells[k];
        }
        ok = yb_output_table_add(table, list) == YB_OK;
    }
    if (ok) {
        yb_output_table_print(table, scene->cli->out, scene->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool
open_bare(struct scene *scene)
{
    char why[YB_OBJECT_WHY_BYTES] = "no memory";
    bool file = strncmp(scene->url, "file:", 5) == 0;
    enum yb_status status;

    if (!file) {
        status = yb_bench_curl_create(scene->url, FLYING, &scene->curl, why);
    } else if ((status = yb_helper_pool_create(8, 256, &scene->pool)) == YB_OK) {
        status = yb_object_file_create(scene->url + 5, scene->tier.loop, scene->pool,
                                       &scene->backend, why);
    }
    if (status != YB_OK) {
        fprintf(scene->cli->err, "yuebing bench: %s\n", why);
    }
    return status == YB_OK;
}

static bool
measure(struct scene *scene, uint64_t rounds)
{
    bool ok = open_tier(scene, YB_OBJECT_LAYOUT_BLOCK) && open_bare(scene) &&
              measure_large(scene, rounds) && measure_small(scene, 4096, YB_OBJECT_LAYOUT_BLOCK) &&
              measure_small(scene, 65536, YB_OBJECT_LAYOUT_BLOCK);

    yb_bench_tier_close(&scene->tier);
    ok = ok && open_tier(scene, YB_OBJECT_LAYOUT_PACKED) &&
         measure_small(scene, 4096, YB_OBJECT_LAYOUT_PACKED) &&
         measure_small(scene, 65536, YB_OBJECT_LAYOUT_PACKED);
    yb_bench_tier_close(&scene->tier);
    if (!ok || scene->wrong > 0) {
        fprintf(scene->cli->err, "yuebing bench: %s, %u blocks came back wrong\n",
                yb_status_text(scene->tier.status), scene->wrong);
    }
    return ok && scene->wrong == 0;
}

int
yb_bench_object(struct yb_cli *cli)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    uint64_t rounds = 5;
    int result = YB_CLI_EXIT_FAILED;

    if (scene == NULL || !yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &rounds)) {
        free(scene);
        return YB_CLI_EXIT_REFUSED;
    }
    scene->cli = cli;
    scene->epoch = yb_clock_wall(yb_clock_system()) / YB_NS_PER_S * 64;
    scene->items = calloc(SMALL, sizeof(*scene->items));
    scene->memory = calloc(2 * FLYING, LARGE); /* As much as SMALL of 64 KiB. */
    scene->tier = (struct yb_bench_tier){.name = "object", .err = cli->err};
    scene->url = yb_bench_tier_url(&scene->tier, cli);
    if (scene->items != NULL && scene->memory != NULL) {
        if (measure(scene, rounds)) {
            result = cli->json ? print_json(scene) : print_table(scene);
        }
        if (scene->backend != NULL) {
            scene->backend->ops->destroy(scene->backend);
        }
        yb_bench_curl_destroy(&scene->curl);
        if (scene->pool != NULL) {
            yb_helper_pool_destroy(&scene->pool);
        }
        yb_bench_tier_fini(&scene->tier);
    }
    free(scene->memory);
    free(scene->items);
    free(scene);
    return result;
}
