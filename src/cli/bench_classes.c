/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench classes`: what one class of traffic does to another.
 *
 * In each round, with classes and with everything in one class: how fast urgent objects
 * are while lower classes saturate the path, and what the lowest class keeps while the
 * urgent one saturates it too. The path is one of the transfer engine, or the way up from a tier
 * below memory.
 */
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_flow.h"
#include "cli/bench_shelf.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "tier/object/object.h"
#include "tier/ssd/ssd.h"
#include "transfer/remote.h"
#include "transfer/slice.h"

#define ROUNDS_MAX     99u
#define OBJECT_BYTES   (1ull << 20)
#define SATURATE_DEPTH 16u
#define PACED_DEPTH    64u
#define OFFERED        0.10 /* Of what the path can carry. */

enum scene {
    SCENE_ALONE,    /* Urgent objects by themselves. */
    SCENE_OFFERED,  /* The same, while the lower classes saturate. */
    SCENE_SATURATE, /* Everybody saturates. */
    SCENE_OFFERED_OFF,
    SCENE_SATURATE_OFF,
    SCENES,
};

static const char *const scene_names[SCENES] = {
    "first_token offers 10 %, alone", "first_token offers 10 %, others saturate", "all saturate",
    "as 10 %, all in one class",      "as all saturate, all in one class",
};

struct scene_figures {
    double p50_us[ROUNDS_MAX];
    double p99_us[ROUNDS_MAX];
    double gbps[YB_CLASS_COUNT][ROUNDS_MAX];
    double background_share[ROUNDS_MAX];
};

struct classes {
    struct yb_bench_pair pair;
    struct yb_bench_shelf *shelf; /* Instead of the pair, unless NULL. */
    const char *on;
    uint64_t rounds;
    uint64_t run_ns;
    double capacity[ROUNDS_MAX]; /* 10^9 bytes a second. */
    double slice_us[ROUNDS_MAX]; /* At that rate. */
    double limit_us[ROUNDS_MAX]; /* Twice the P99 alone, and one slice. */
    struct scene_figures scenes[SCENES];
};

static void
sleep_for(uint64_t span_ns)
{
    struct timespec span = {
        .tv_sec = (time_t)(span_ns / YB_NS_PER_S),
        .tv_nsec = (long)(span_ns % YB_NS_PER_S),
    };

    (void)ppoll(NULL, 0, &span, NULL);
}

static struct yb_bench_flow_options
flow_of(uint32_t work_class)
{
    return (struct yb_bench_flow_options){
        .mode = YB_BENCH_FLOW_DEPTH,
        .op = YB_TRANSFER_WRITE,
        .size = OBJECT_BYTES,
        .fragments = 1,
        .depth = SATURATE_DEPTH,
        .work_class = work_class,
    };
}

/* What has begun is not interrupted: a slice of the transfer engine, or a block of a tier. */
static uint64_t
piece_bytes(const struct classes *classes)
{
    return classes->shelf != NULL ? OBJECT_BYTES : YB_SLICE_BYTES;
}

/* What the lowest class is granted. */
static double
background_share(const struct classes *classes)
{
    uint32_t permille = classes->shelf == NULL            ? YB_REMOTE_SHARE_BACKGROUND
                        : strcmp(classes->on, "ssd") == 0 ? YB_SSD_SHARE_BACKGROUND
                                                          : YB_OBJECT_SHARE_BACKGROUND;

    return permille / 1000.0;
}

static bool
measure_capacity(struct classes *classes, uint64_t round)
{
    struct yb_bench_flow_options options = flow_of(YB_CLASS_THROUGHPUT);
    struct yb_bench_flow_result result;

    options.run_ns = classes->run_ns;
    if (classes->shelf != NULL) {
        options.depth = YB_BENCH_SHELF_DEPTH;
        if (!yb_bench_shelf_play(classes->shelf, &options, 1, classes->run_ns, &result)) {
            return false;
        }
    } else if (!yb_bench_flow_run(&classes->pair, &options, &result)) {
        return false;
    }
    classes->capacity[round] = result.gbps;
    classes->slice_us[round] = (double)piece_bytes(classes) / result.gbps / 1e3;
    return true;
}

/* Which flow is which: 0 the urgent one, then throughput and background. */
static void
plan_flows(enum scene scene, double capacity, struct yb_bench_flow_options flows[YB_CLASS_COUNT])
{
    bool one_class = scene >= SCENE_OFFERED_OFF;

    for (uint32_t i = 0; i < YB_CLASS_COUNT; i++) {
        flows[i] = flow_of(one_class ? YB_CLASS_THROUGHPUT : i);
    }
    if (scene != SCENE_SATURATE && scene != SCENE_SATURATE_OFF) {
        flows[0].mode = YB_BENCH_FLOW_PACED;
        flows[0].depth = PACED_DEPTH;
        flows[0].period_ns = (uint64_t)((double)OBJECT_BYTES / (capacity * OFFERED));
    }
}

/* The same with a tier. */
static bool
play_shelf(struct classes *classes, enum scene scene, uint64_t round)
{
    struct scene_figures *figures = &classes->scenes[scene];
    struct yb_bench_flow_options options[YB_CLASS_COUNT];
    struct yb_bench_flow_result results[YB_CLASS_COUNT] = {0};
    uint32_t count = scene == SCENE_ALONE ? 1 : YB_CLASS_COUNT;
    double total = 0;

    plan_flows(scene, classes->capacity[round], options);
    for (uint32_t i = 0; i < count; i++) {
        options[i].depth = YB_BENCH_SHELF_DEPTH;
    }
    if (!yb_bench_shelf_play(classes->shelf, options, count, classes->run_ns, results)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        figures->gbps[i][round] = results[i].gbps;
        total += results[i].gbps;
    }
    figures->p50_us[round] = results[0].p50_us;
    figures->p99_us[round] = results[0].p99_us;
    figures->background_share[round] = total > 0 ? results[YB_CLASS_BACKGROUND].gbps / total : 0;
    return yb_bench_shelf_check(classes->shelf);
}

/* Run one scene; the shares are those of the middle, when everybody is at work. */
static bool
play(struct classes *classes, enum scene scene, uint64_t round)
{
    struct scene_figures *figures = &classes->scenes[scene];
    struct yb_bench_flow_options options[YB_CLASS_COUNT];
    struct yb_bench_flow *flows[YB_CLASS_COUNT] = {NULL};
    uint64_t bytes[YB_CLASS_COUNT] = {0};
    uint32_t count = scene == SCENE_ALONE ? 1 : YB_CLASS_COUNT;
    uint64_t began_ns;
    uint64_t total = 0;
    double span;
    bool ok = true;

    plan_flows(scene, classes->capacity[round], options);
    for (uint32_t i = count; ok && i-- > 0;) {
        ok = yb_bench_flow_start(&classes->pair, &options[i], &flows[i]);
    }
    sleep_for(classes->run_ns / 5);
    began_ns = yb_measure_now_ns();
    for (uint32_t i = 0; ok && i < count; i++) {
        bytes[i] = yb_bench_flow_bytes(flows[i]);
    }
    sleep_for(classes->run_ns);
    span = (double)(yb_measure_now_ns() - began_ns);
    for (uint32_t i = 0; ok && i < count; i++) {
        bytes[i] = yb_bench_flow_bytes(flows[i]) - bytes[i];
        total += bytes[i];
        figures->gbps[i][round] = (double)bytes[i] / span;
    }
    figures->background_share[round] =
        total > 0 ? (double)bytes[YB_CLASS_BACKGROUND] / (double)total : 0;
    for (uint32_t i = 0; i < count; i++) {
        struct yb_bench_flow_result result = {0};

        ok = flows[i] != NULL && yb_bench_flow_finish(&flows[i], &result) && ok;
        if (i == 0) {
            figures->p50_us[round] = result.p50_us;
            figures->p99_us[round] = result.p99_us;
        }
    }
    return ok;
}

static bool
measure_all(struct yb_cli *cli, struct classes *classes)
{
    struct yb_bench_flow_options checked = flow_of(YB_CLASS_FIRST_TOKEN);
    struct yb_output_progress progress;
    uint32_t paths;
    bool ok = true;

    yb_output_progress_begin(&progress, cli->err, cli->terminal, yb_clock_system(), "measuring",
                             classes->rounds * SCENES);
    for (uint64_t round = 0; ok && round < classes->rounds; round++) {
        ok = measure_capacity(classes, round);
        for (uint32_t scene = 0; ok && scene < SCENES; scene++) {
            ok = classes->shelf != NULL ? play_shelf(classes, (enum scene)scene, round)
                                        : play(classes, (enum scene)scene, round) &&
                                              yb_bench_flow_check(&classes->pair, &checked, &paths);
            yb_output_progress_update(&progress, round * SCENES + scene + 1);
        }
        classes->limit_us[round] =
            2 * classes->scenes[SCENE_ALONE].p99_us[round] + classes->slice_us[round];
    }
    yb_output_progress_end(&progress);
    return ok;
}

/* ---- results ------------------------------------------------------------------------------- */

static const char *
on_or_off(uint32_t scene)
{
    return scene >= SCENE_OFFERED_OFF ? "off" : "on";
}

static int
print_json(struct yb_cli *cli, struct classes *classes)
{
    uint64_t rounds = classes->rounds;
    json_t *rows = json_array();

    for (uint32_t i = 0; i < SCENES; i++) {
        struct scene_figures *figures = &classes->scenes[i];

        (void)json_array_append_new(
            rows,
            json_pack(
                "{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "scene", scene_names[i], "classes",
                on_or_off(i), "first_token_p50_us", yb_bench_median(figures->p50_us, rounds),
                "first_token_p99_us", yb_bench_median(figures->p99_us, rounds), "first_token_gbps",
                yb_bench_median(figures->gbps[YB_CLASS_FIRST_TOKEN], rounds), "throughput_gbps",
                yb_bench_median(figures->gbps[YB_CLASS_THROUGHPUT], rounds), "background_gbps",
                yb_bench_median(figures->gbps[YB_CLASS_BACKGROUND], rounds), "background_share",
                yb_bench_median(figures->background_share, rounds)));
    }
    return yb_output_json(cli->out,
                          json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "bench",
                                    "classes", "on", classes->on, "rounds", (json_int_t)rounds,
                                    "object_bytes", (json_int_t)OBJECT_BYTES, "capacity_gbps",
                                    yb_bench_median(classes->capacity, rounds), "slice_us",
                                    yb_bench_median(classes->slice_us, rounds), "p99_limit_us",
                                    yb_bench_median(classes->limit_us, rounds),
                                    "background_share_granted", background_share(classes), "rows",
                                    rows)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

static bool
add_row(struct yb_output_table *table, struct classes *classes, uint32_t scene)
{
    struct scene_figures *figures = &classes->scenes[scene];
    uint64_t rounds = classes->rounds;
    char cells[6][32];
    const char *list[8] = {scene_names[scene], on_or_off(scene), cells[0], cells[1],
                           cells[2],           cells[3],         cells[4], cells[5]};

    (void)snprintf(cells[0], sizeof(cells[0]), "%.0f", yb_bench_median(figures->p50_us, rounds));
    (void)snprintf(cells[1], sizeof(cells[1]), "%.0f", yb_bench_median(figures->p99_us, rounds));
    for (uint32_t i = 0; i < YB_CLASS_COUNT; i++) {
        (void)snprintf(cells[2 + i], sizeof(cells[2 + i]), "%.2f",
                       yb_bench_median(figures->gbps[i], rounds));
    }
    (void)snprintf(cells[5], sizeof(cells[5]), "%.1f %%",
                   100 * yb_bench_median(figures->background_share, rounds));
    return yb_output_table_add(table, list) == YB_OK;
}

static int
print_table(struct yb_cli *cli, struct classes *classes)
{
    static const char *const columns[] = {
        "scene",           "classes",         "first_token p50 us", "p99 us", "first_token GB/s",
        "throughput GB/s", "background GB/s", "background share"};
    struct yb_output_table *table = NULL;
    bool ok = yb_output_table_create(columns, 8, &table) == YB_OK;

    for (uint32_t i = 0; ok && i < SCENES; i++) {
        ok = add_row(table, classes, i);
    }
    if (ok) {
        yb_output_table_print(table, cli->out, cli->terminal);
        fprintf(cli->out,
                "objects of 1 MiB, %s; the path carries %.2f GB/s, a piece of %u KiB takes "
                "%.0f us; twice the P99 alone and one piece: %.0f us; background is granted %.0f %%"
                "\nmedians of %llu rounds, with and without classes in turns; bytes were checked "
                "after each scene\n",
                classes->shelf != NULL ? "read" : "written",
                yb_bench_median(classes->capacity, classes->rounds),
                (unsigned)(piece_bytes(classes) / 1024),
                yb_bench_median(classes->slice_us, classes->rounds),
                yb_bench_median(classes->limit_us, classes->rounds),
                100 * background_share(classes), (unsigned long long)classes->rounds);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

static bool
open_pair(struct yb_cli *cli, struct classes *classes)
{
    uint32_t paths = strcmp(classes->on, "shm") == 0 ? YB_TRANSFER_PATH_SHM : YB_TRANSFER_PATH_TCP;
    struct yb_transfer_probe probe;

    classes->pair.options = (struct yb_bench_target_options){
        .shared = paths == YB_TRANSFER_PATH_SHM,
        .paths = paths,
        .congestion =
            strcmp(cli->config.net_congestion, "system") == 0 ? NULL : cli->config.net_congestion,
    };
    return yb_bench_target_open(&classes->pair.options, &classes->pair.target) &&
           yb_bench_pair_open(&classes->pair) &&
           yb_bench_pair_has(cli, &classes->pair, paths, &probe);
}

static bool
is_below(const char *on)
{
    return strcmp(on, "ssd") == 0 || strcmp(on, "object") == 0;
}

/* Options that mean a medium mean nothing to a path of the transfer engine. */
static bool
are_fitting(struct yb_cli *cli, const char *on)
{
    bool ssd = strcmp(on, "ssd") == 0, object = strcmp(on, "object") == 0;

    if (strcmp(on, "tcp") != 0 && strcmp(on, "shm") != 0 && !is_below(on)) {
        fprintf(cli->err, "yuebing bench classes: --on is tcp, shm, ssd or object; not `%s`\n", on);
        return false;
    }
    if ((!ssd && (yb_cli_option(cli, "dir") != NULL || yb_cli_option(cli, "io") != NULL)) ||
        (!object && yb_cli_option(cli, "store") != NULL)) {
        fprintf(cli->err, "yuebing bench classes: --dir and --io go with --on ssd, and --store "
                          "with --on object\n");
        return false;
    }
    return true;
}

int
yb_bench_classes(struct yb_cli *cli)
{
    const char *on = yb_cli_option(cli, "on");
    struct classes *classes;
    uint64_t run_ms = 1000;
    int result = YB_CLI_EXIT_FAILED;

    on = on != NULL ? on : "tcp";
    if (!are_fitting(cli, on)) {
        return YB_CLI_EXIT_REFUSED;
    }
    classes = calloc(1, sizeof(*classes));
    if (classes == NULL) {
        fprintf(cli->err, "yuebing bench classes: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    classes->on = on;
    classes->rounds = 5;
    if (!yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &classes->rounds) ||
        !yb_cli_option_number(cli, "run-ms", 10, 60000, &run_ms)) {
        result = YB_CLI_EXIT_REFUSED;
    } else {
        classes->run_ns = run_ms * YB_NS_PER_MS;
        if ((is_below(on) ? yb_bench_shelf_open(cli, on, &classes->shelf)
                          : open_pair(cli, classes)) &&
            measure_all(cli, classes)) {
            result = cli->json ? print_json(cli, classes) : print_table(cli, classes);
        }
    }
    yb_bench_shelf_close(&classes->shelf);
    yb_bench_pair_close(&classes->pair);
    free(classes);
    return result;
}
