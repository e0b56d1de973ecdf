/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench directory`: what a block costs, and how fast they are published, looked up, lost.
 *
 * For each number of blocks a directory in a process of its own is filled through the wire, and an
 * index alone, in one more process, with the same blocks. Then both are asked, in turns. Rates per
 * core count the processor time of the process that answers: they say what its core can do,
 * whatever else runs on the machine and however slowly the client asks.
 */
#include "cli/bench_directory.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/measure.h"
#include "cli/output.h"

#define ROUNDS_MAX 99u
#define DEATHS_MAX 3u
#define CELL_BYTES 32u
#define KEYS_MAX   YB_WIRE_LOOKUP_KEYS_MAX

/* Of one number of outstanding messages. */
struct rates {
    double keys_per_s[ROUNDS_MAX];
    double per_core[ROUNDS_MAX];
    double p50_us[ROUNDS_MAX];
    double p99_us[ROUNDS_MAX];
};

/* Of one number of blocks. */
struct figures {
    uint64_t blocks;
    double bytes_per_block;
    double publish_keys_per_s;
    double publish_per_core;
    struct rates rates[YB_BENCH_LIST_MAX];
    double many_p50_us[ROUNDS_MAX];
    double many_p99_us[ROUNDS_MAX];
    double many_per_core[ROUNDS_MAX];
    uint32_t deaths;
    double death_us[DEATHS_MAX];
    double after_lease_us[DEATHS_MAX];
    double sweep_step_us_max;
    double index_bytes_per_block;
    double index_publish;
    double index_lookup[ROUNDS_MAX];
    double index_sweep_step_us_max;
};

struct bench {
    struct yb_cli *cli;
    uint64_t rounds;
    uint64_t run_ns;
    uint64_t keys;
    uint32_t size_count;
    uint64_t sizes[YB_BENCH_LIST_MAX];
    uint32_t outstanding_count;
    uint64_t outstanding[YB_BENCH_LIST_MAX];
    struct yb_output_progress progress;
    uint64_t done;
    struct figures figures[YB_BENCH_LIST_MAX];
};

/* Everything that is running for one number of blocks. */
struct scene {
    struct yb_bench_directory directory;
    struct yb_bench_index index;
    struct yb_bench_world *world;
};

/* ---- measuring ------------------------------------------------------------------------------- */

static void
step(struct bench *bench)
{
    yb_output_progress_update(&bench->progress, ++bench->done);
}

/* Publish everything; what that took, and what memory. */
static bool
fill(struct scene *scene, struct figures *figures)
{
    double resident = (double)yb_measure_resident_bytes(scene->directory.pid);
    double cpu_ns = (double)yb_measure_cpu_ns(scene->directory.pid);
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t keys = 0;

    if (!yb_bench_world_publish(scene->world, &keys)) {
        return false;
    }
    figures->publish_keys_per_s = (double)keys * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    figures->publish_per_core =
        (double)keys * 1e9 / ((double)yb_measure_cpu_ns(scene->directory.pid) - cpu_ns);
    if (!yb_bench_world_announce(scene->world)) {
        return false;
    }
    figures->bytes_per_block =
        ((double)yb_measure_resident_bytes(scene->directory.pid) - resident) /
        (double)figures->blocks;
    figures->index_bytes_per_block = scene->index.figures->bytes_per_block;
    figures->index_publish = scene->index.figures->publish_keys_per_s;
    return true;
}

/* Look up for a while; *per_core_out counts the directory's processor time. */
static bool
look_up(struct scene *scene, struct yb_bench_lookups *lookups, double *per_core_out)
{
    double cpu_ns = (double)yb_measure_cpu_ns(scene->directory.pid);

    if (!yb_bench_world_announce(scene->world) || !yb_bench_world_look_up(scene->world, lookups)) {
        return false;
    }
    *per_core_out = (double)lookups->looked_up * 1e9 /
                    ((double)yb_measure_cpu_ns(scene->directory.pid) - cpu_ns);
    return true;
}

static bool
measure_round(struct bench *bench, struct scene *scene, struct figures *figures, uint64_t round)
{
    struct yb_bench_lookups many = {
        .outstanding = 1,
        .keys = YB_BENCH_MANY_KEYS,
        .run_ns = bench->run_ns,
    };
    bool ok = yb_bench_index_begin(&scene->index, bench->run_ns);

    yb_bench_world_rest(scene->world, scene->index.order_fd);
    ok = ok && yb_bench_index_end(&scene->index);
    figures->index_lookup[round] = scene->index.figures->lookup_keys_per_s;
    for (uint32_t i = 0; ok && i < bench->outstanding_count; i++) {
        struct rates *rates = &figures->rates[i];
        struct yb_bench_lookups lookups = {
            .outstanding = (uint32_t)bench->outstanding[i],
            .keys = (uint32_t)bench->keys,
            .run_ns = bench->run_ns,
        };

        ok = look_up(scene, &lookups, &rates->per_core[round]);
        rates->keys_per_s[round] = (double)lookups.looked_up * 1e9 / (double)lookups.took_ns;
        rates->p50_us[round] = (double)lookups.p50_ns / 1e3;
        rates->p99_us[round] = (double)lookups.p99_ns / 1e3;
        step(bench);
    }
    ok = ok && look_up(scene, &many, &figures->many_per_core[round]);
    figures->many_p50_us[round] = (double)many.p50_ns / 1e3;
    figures->many_p99_us[round] = (double)many.p99_ns / 1e3;
    step(bench);
    return ok;
}

/* One node after the other. */
static bool
measure_deaths(struct bench *bench, struct scene *scene, struct figures *figures)
{
    figures->deaths = bench->rounds < DEATHS_MAX ? (uint32_t)bench->rounds : DEATHS_MAX;
    for (uint32_t i = 0; i < figures->deaths; i++) {
        struct yb_bench_death death;

        if (!yb_bench_world_kill(scene->world, i * 2, &death)) {
            return false;
        }
        figures->death_us[i] = (double)death.visible_ns / 1e3;
        figures->after_lease_us[i] = (double)death.after_lease_ns / 1e3;
        step(bench);
    }
    if (!yb_bench_directory_ask(&scene->directory) || !yb_bench_index_stop(&scene->index)) {
        return false;
    }
    figures->sweep_step_us_max = (double)scene->directory.page->sweep_step_max_ns / 1e3;
    figures->index_sweep_step_us_max = scene->index.figures->sweep_step_us_max;
    return true;
}

static bool
measure_blocks(struct bench *bench, struct figures *figures)
{
    struct scene scene = {.world = NULL};
    bool ok =
        yb_bench_index_start(figures->blocks, &scene.index) &&
        yb_bench_directory_start(&bench->cli->config, figures->blocks, &scene.directory) &&
        yb_bench_world_open(&bench->cli->config, &scene.directory, figures->blocks, &scene.world) &&
        fill(&scene, figures);

    for (uint64_t round = 0; ok && round < bench->rounds; round++) {
        ok = measure_round(bench, &scene, figures, round);
    }
    ok = ok && measure_deaths(bench, &scene, figures);
    yb_bench_world_close(&scene.world);
    yb_bench_directory_stop(&scene.directory);
    (void)yb_bench_index_stop(&scene.index);
    return ok;
}

static bool
measure_all(struct bench *bench)
{
    uint64_t deaths = bench->rounds < DEATHS_MAX ? bench->rounds : DEATHS_MAX;
    bool ok = true;

    yb_output_progress_begin(
        &bench->progress, bench->cli->err, bench->cli->terminal, yb_clock_system(), "measuring",
        bench->size_count * (bench->rounds * (bench->outstanding_count + 1) + deaths));
    for (uint32_t i = 0; ok && i < bench->size_count; i++) {
        bench->figures[i].blocks = bench->sizes[i];
        ok = measure_blocks(bench, &bench->figures[i]);
    }
    yb_output_progress_end(&bench->progress);
    return ok;
}

/* ---- results --------------------------------------------------------------------------------- */

static void
set_real(json_t *object, const char *name, double value)
{
    (void)json_object_set_new(object, name, json_real(value));
}

/* What does not depend on the messages under way. */
static json_t *
blocks_json(struct bench *bench, struct figures *figures)
{
    json_t *row = json_object();

    (void)json_object_set_new(row, "blocks", json_integer((json_int_t)figures->blocks));
    set_real(row, "bytes_per_block", figures->bytes_per_block);
    set_real(row, "publish_keys_per_s", figures->publish_keys_per_s);
    set_real(row, "publish_keys_per_core_s", figures->publish_per_core);
    set_real(row, "lookup8000_p50_us", yb_bench_median(figures->many_p50_us, bench->rounds));
    set_real(row, "lookup8000_p99_us", yb_bench_median(figures->many_p99_us, bench->rounds));
    set_real(row, "lookup8000_keys_per_core_s",
             yb_bench_median(figures->many_per_core, bench->rounds));
    set_real(row, "death_visible_us", yb_bench_median(figures->death_us, figures->deaths));
    set_real(row, "death_after_lease_us",
             yb_bench_median(figures->after_lease_us, figures->deaths));
    set_real(row, "sweep_step_us_max", figures->sweep_step_us_max);
    set_real(row, "index_bytes_per_block", figures->index_bytes_per_block);
    set_real(row, "index_publish_keys_per_core_s", figures->index_publish);
    set_real(row, "index_lookup_keys_per_core_s",
             yb_bench_median(figures->index_lookup, bench->rounds));
    set_real(row, "index_sweep_step_us_max", figures->index_sweep_step_us_max);
    return row;
}

static int
print_json(struct bench *bench)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < bench->size_count; i++) {
        json_t *common = blocks_json(bench, &bench->figures[i]);

        for (uint32_t k = 0; k < bench->outstanding_count; k++) {
            struct rates *rates = &bench->figures[i].rates[k];
            json_t *row = json_copy(common);

            (void)json_object_set_new(row, "outstanding",
                                      json_integer((json_int_t)bench->outstanding[k]));
            (void)json_object_set_new(row, "keys", json_integer((json_int_t)bench->keys));
            set_real(row, "lookup_keys_per_s", yb_bench_median(rates->keys_per_s, bench->rounds));
            set_real(row, "lookup_keys_per_core_s",
                     yb_bench_median(rates->per_core, bench->rounds));
            set_real(row, "lookup_p50_us", yb_bench_median(rates->p50_us, bench->rounds));
            set_real(row, "lookup_p99_us", yb_bench_median(rates->p99_us, bench->rounds));
            (void)json_array_append_new(array, row);
        }
        json_decref(common);
    }
    return yb_output_json(bench->cli->out,
                          json_pack("{s:s, s:I, s:o}", "bench", "directory", "rounds",
                                    (json_int_t)bench->rounds, "rows", array)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

/* The lines of the table: one figure each, one column for each number of blocks. */
enum line {
    LINE_BYTES,
    LINE_INDEX_BYTES,
    LINE_PUBLISH,
    LINE_PUBLISH_CORE,
    LINE_INDEX_PUBLISH,
    LINE_MANY_P50,
    LINE_MANY_P99,
    LINE_MANY_CORE,
    LINE_INDEX_LOOKUP,
    LINE_DEATH,
    LINE_AFTER_LEASE,
    LINE_SWEEP,
    LINE_INDEX_SWEEP,
    LINES,
};

static const struct {
    const char *what;
    const char *reach;
} lines[LINES] = {
    [LINE_BYTES] = {"bytes per block, resident", "<= 64"},
    [LINE_INDEX_BYTES] = {"  index alone", ""},
    [LINE_PUBLISH] = {"publish, M keys/s", ""},
    [LINE_PUBLISH_CORE] = {"  per core of the directory", ""},
    [LINE_INDEX_PUBLISH] = {"  index alone, per core", ""},
    [LINE_MANY_P50] = {"lookup of 8000 keys, p50 us", "<= 2500"},
    [LINE_MANY_P99] = {"  p99 us", ""},
    [LINE_MANY_CORE] = {"  M keys/s per core", ">= 4"},
    [LINE_INDEX_LOOKUP] = {"lookup, index alone, M keys/s per core", ">= 8"},
    [LINE_DEATH] = {"death visible after fencing, us", ""},
    [LINE_AFTER_LEASE] = {"  after the end of its lease, us", ""},
    [LINE_SWEEP] = {"longest step of the sweep, us", "<= 1000"},
    [LINE_INDEX_SWEEP] = {"  index alone", "<= 1000"},
};

static double
line_value(struct bench *bench, struct figures *figures, enum line line)
{
    uint64_t rounds = bench->rounds;

    switch (line) {
    case LINE_BYTES: return figures->bytes_per_block;
    case LINE_INDEX_BYTES: return figures->index_bytes_per_block;
    case LINE_PUBLISH: return figures->publish_keys_per_s / 1e6;
    case LINE_PUBLISH_CORE: return figures->publish_per_core / 1e6;
    case LINE_INDEX_PUBLISH: return figures->index_publish / 1e6;
    case LINE_MANY_P50: return yb_bench_median(figures->many_p50_us, rounds);
    case LINE_MANY_P99: return yb_bench_median(figures->many_p99_us, rounds);
    case LINE_MANY_CORE: return yb_bench_median(figures->many_per_core, rounds) / 1e6;
    case LINE_INDEX_LOOKUP: return yb_bench_median(figures->index_lookup, rounds) / 1e6;
    case LINE_DEATH: return yb_bench_median(figures->death_us, figures->deaths);
    case LINE_AFTER_LEASE: return yb_bench_median(figures->after_lease_us, figures->deaths);
    case LINE_SWEEP: return figures->sweep_step_us_max;
    case LINE_INDEX_SWEEP: return figures->index_sweep_step_us_max;
    case LINES: break;
    }
    return 0;
}

/* One row of cells; `values` has one for each number of blocks. */
static bool
add_line(struct yb_output_table *table, const struct bench *bench, const char *what,
         const double *values, const char *reach)
{
    char cells[YB_BENCH_LIST_MAX][CELL_BYTES];
    const char *list[YB_BENCH_LIST_MAX + 2] = {what};

    for (uint32_t i = 0; i < bench->size_count; i++) {
        (void)snprintf(cells[i], sizeof(cells[i]), "%.*f", values[i] < 100 ? 2 : 0, values[i]);
        list[i + 1] = cells[i];
    }
    list[bench->size_count + 1] = reach;
    return yb_output_table_add(table, list) == YB_OK;
}

static bool
add_rates(struct yb_output_table *table, struct bench *bench, uint32_t index)
{
    double values[3][YB_BENCH_LIST_MAX];
    char what[64];

    for (uint32_t i = 0; i < bench->size_count; i++) {
        struct rates *rates = &bench->figures[i].rates[index];

        values[0][i] = yb_bench_median(rates->keys_per_s, bench->rounds) / 1e6;
        values[1][i] = yb_bench_median(rates->per_core, bench->rounds) / 1e6;
        values[2][i] = yb_bench_median(rates->p50_us, bench->rounds);
    }
    (void)snprintf(what, sizeof(what), "lookup, %llu messages of %llu, M keys/s",
                   (unsigned long long)bench->outstanding[index], (unsigned long long)bench->keys);
    return add_line(table, bench, what, values[0], "") &&
           add_line(table, bench, "  per core of the directory", values[1], ">= 4") &&
           add_line(table, bench, "  a message's p50 us", values[2], "");
}

static int
print_table(struct bench *bench)
{
    char names[YB_BENCH_LIST_MAX][CELL_BYTES];
    const char *columns[YB_BENCH_LIST_MAX + 2] = {"blocks"};
    struct yb_output_table *table = NULL;
    bool ok;

    for (uint32_t i = 0; i < bench->size_count; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "%llu", (unsigned long long)bench->sizes[i]);
        columns[i + 1] = names[i];
    }
    columns[bench->size_count + 1] = "reach";
    ok = yb_output_table_create(columns, bench->size_count + 2, &table) == YB_OK;
    for (uint32_t line = 0; ok && line < LINES; line++) {
        double values[YB_BENCH_LIST_MAX];

        for (uint32_t i = 0; line == LINE_MANY_P50 && ok && i < bench->outstanding_count; i++) {
            ok = add_rates(table, bench, i);
        }
        for (uint32_t i = 0; i < bench->size_count; i++) {
            values[i] = line_value(bench, &bench->figures[i], (enum line)line);
        }
        ok = ok && add_line(table, bench, lines[line].what, values, lines[line].reach);
    }
    if (ok) {
        yb_output_table_print(table, bench->cli->out, bench->cli->terminal);
        fprintf(bench->cli->out,
                "medians of %llu interleaved rounds; the blocks lie on 16 nodes in 2 tiers, 10 %% "
                "with two replicas, 1 %% more in flight; every run checked its last answers\n",
                (unsigned long long)bench->rounds);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

/* ---- the command line ------------------------------------------------------------------------ */

static bool
read_plan(struct bench *bench)
{
    struct yb_cli *cli = bench->cli;
    uint64_t run_ms = 500;

    bench->rounds = 5;
    bench->keys = 512;
    bench->size_count = 3;
    bench->sizes[0] = 1000000;
    bench->sizes[1] = 4000000;
    bench->sizes[2] = 10000000;
    bench->outstanding_count = 3;
    bench->outstanding[0] = 1;
    bench->outstanding[1] = 100;
    bench->outstanding[2] = 1000;
    if (!yb_bench_list_read(cli, "blocks", YB_BENCH_BLOCKS_MAX, bench->sizes, &bench->size_count) ||
        !yb_bench_list_read(cli, "outstanding", YB_BENCH_OUTSTANDING_MAX, bench->outstanding,
                            &bench->outstanding_count) ||
        !yb_cli_option_number(cli, "keys", 1, KEYS_MAX, &bench->keys) ||
        !yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &bench->rounds) ||
        !yb_cli_option_number(cli, "run-ms", 10, 60000, &run_ms)) {
        return false;
    }
    for (uint32_t i = 0; i < bench->size_count; i++) {
        if (bench->sizes[i] < 1000) {
            fprintf(cli->err, "yuebing bench directory: --blocks are 1000 at least; not %llu\n",
                    (unsigned long long)bench->sizes[i]);
            return false;
        }
    }
    bench->run_ns = run_ms * YB_NS_PER_MS;
    return true;
}

int
yb_bench_directory(struct yb_cli *cli)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    int result = YB_CLI_EXIT_FAILED;

    if (bench == NULL) {
        fprintf(cli->err, "yuebing bench directory: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    bench->cli = cli;
    if (!read_plan(bench)) {
        result = YB_CLI_EXIT_REFUSED;
    } else if (measure_all(bench)) {
        result = cli->json ? print_json(bench) : print_table(bench);
    }
    free(bench);
    return result;
}
