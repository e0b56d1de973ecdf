/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench transfer`: the engine beside what the machine can do, in the same run.
 */
#include "cli/bench_transfer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_ceilings.h"
#include "cli/output.h"

#define CELL_BYTES 32u

/* How long the engine asks without waiting before it sleeps. */
#define SPIN_NS (50 * YB_NS_PER_US)

/* ---- measuring ----------------------------------------------------------------------------- */

static struct yb_bench_raw
raw_of(const struct yb_bench_pair *pair, const struct yb_bench_row *row,
       struct yb_bench_sockets *sockets)
{
    sockets->count = pair->target.socket_count;
    memcpy(sockets->fds, pair->target.sockets, sizeof(sockets->fds));
    return (struct yb_bench_raw){
        .sockets = sockets,
        .buffer = pair->own.buffer,
        .streams = row->streams,
        .size = row->flow.size,
        .run_ns = row->flow.run_ns,
    };
}

static bool
measure_ping(const struct yb_bench_pair *pair, const struct yb_bench_row *row, uint64_t spin_ns,
             struct yb_bench_times *times_out)
{
    struct yb_bench_sockets sockets;
    struct yb_bench_raw raw = raw_of(pair, row, &sockets);

    raw.streams = 1;
    raw.spin_ns = spin_ns;
    return yb_bench_ceiling_ping(&pair->target, &raw, times_out);
}

static bool
measure_copy(struct yb_bench_pair *pair, const struct yb_bench_row *row, uint32_t threads,
             double *gbps_out)
{
    const struct yb_bench_copy copy = {
        .size = row->flow.size,
        .threads = threads,
        .streams = row->what == YB_BENCH_RAW_COPY_STREAM,
        .run_ns = row->flow.run_ns,
    };

    return yb_bench_pair_copy(pair, &copy, gbps_out);
}

/* Measure what a row is held against. */
static bool
measure_ceiling(struct yb_bench_table *table, struct yb_bench_row *row, uint64_t round)
{
    struct yb_bench_pair *pair = &table->pairs[row->pair];
    struct yb_bench_sockets sockets;
    struct yb_bench_raw raw = raw_of(pair, row, &sockets);
    struct yb_bench_times times = {0};
    double *ceiling = &row->ceiling[round];
    bool ok = true;

    switch (row->against) {
    case YB_BENCH_AGAINST_SOCKETS:
        return yb_bench_ceiling_sockets(&pair->target, &raw, row->flow.op == YB_TRANSFER_READ,
                                        ceiling);
    case YB_BENCH_AGAINST_COPY: return measure_copy(pair, row, 1, ceiling);
    case YB_BENCH_AGAINST_PROCESS_VM:
        return yb_bench_ceiling_process_vm(&pair->target, pair->own.buffer, row->flow.size,
                                           row->flow.fragments, row->flow.run_ns, ceiling);
    case YB_BENCH_AGAINST_ROW: *ceiling = table->rows[row->base].gbps[round]; break;
    case YB_BENCH_AGAINST_PING:
    case YB_BENCH_AGAINST_PING_BUSY:
        ok = measure_ping(pair, row, row->against == YB_BENCH_AGAINST_PING ? 0 : SPIN_NS, &times);
        *ceiling = times.p50_us;
        break;
    case YB_BENCH_AGAINST_NOTHING: break;
    }
    return ok;
}

static bool
measure_row(struct yb_bench_table *table, struct yb_bench_row *row, uint64_t round)
{
    struct yb_bench_pair *pair = &table->pairs[row->pair];
    struct yb_bench_flow_result result = {0};
    struct yb_bench_times times = {0};
    const struct yb_bench_flow_options *flow = &row->flow;
    bool ok = true;

    switch (row->what) {
    case YB_BENCH_FLOW:
        ok = yb_bench_flow_run(pair, flow, &result);
        row->paths |= result.paths;
        row->cpu_s_per_gb[round] = result.cpu_s_per_gb;
        break;
    case YB_BENCH_RAW_COPY:
    case YB_BENCH_RAW_COPY_STREAM: ok = measure_copy(pair, row, row->streams, &result.gbps); break;
    case YB_BENCH_RAW_VM:
        ok = yb_bench_ceiling_process_vm(&pair->target, pair->own.buffer, flow->size,
                                         flow->fragments, flow->run_ns, &result.gbps);
        break;
    case YB_BENCH_RAW_PING:
    case YB_BENCH_RAW_PING_BUSY:
        ok = measure_ping(pair, row, row->what == YB_BENCH_RAW_PING ? 0 : SPIN_NS, &times);
        result.p50_us = times.p50_us;
        result.p99_us = times.p99_us;
        break;
    }
    row->gbps[round] = result.gbps;
    row->p50_us[round] = result.p50_us;
    row->p99_us[round] = result.p99_us;
    return ok;
}

static bool
measure_all(struct yb_cli *cli, struct yb_bench_table *table)
{
    struct yb_output_progress progress;
    uint64_t done = 0;
    bool ok = true;

    yb_output_progress_begin(&progress, cli->err, cli->terminal, yb_clock_system(), "measuring",
                             table->plan.rounds * table->row_count);
    for (uint64_t round = 0; ok && round < table->plan.rounds; round++) {
        for (uint32_t i = 0; ok && i < table->row_count; i++) {
            ok = measure_ceiling(table, &table->rows[i], round) &&
                 measure_row(table, &table->rows[i], round);
            yb_output_progress_update(&progress, ++done);
        }
    }
    yb_output_progress_end(&progress);
    return ok;
}

/* ---- pairs --------------------------------------------------------------------------------- */

/* Where `auto` finds no shared memory its rows go over TCP, and are held against that. */
static void
hold_against_sockets(struct yb_bench_table *table, uint32_t pair)
{
    for (uint32_t i = 0; i < table->row_count; i++) {
        struct yb_bench_row *row = &table->rows[i];

        if (row->pair == pair && (row->against == YB_BENCH_AGAINST_COPY ||
                                  row->against == YB_BENCH_AGAINST_PROCESS_VM)) {
            row->against = YB_BENCH_AGAINST_SOCKETS;
            row->note = "bare sockets, same size and streams; there is no path shm";
        }
    }
}

/* Ask the engines which ways they have: a row never goes another way than it says. */
static bool
check_path(struct yb_cli *cli, struct yb_bench_table *table, uint32_t index)
{
    const struct yb_bench_pair *pair = &table->pairs[index];
    struct yb_transfer_probe probe;

    if (!yb_bench_pair_has(cli, pair, table->plan.paths, &probe)) {
        return false;
    }
    if (table->plan.paths == YB_TRANSFER_PATH_ALL && (probe.paths & YB_TRANSFER_PATH_SHM) == 0) {
        hold_against_sockets(table, index);
    }
    return true;
}

/* All targets first: they are forked before this process has threads. */
static bool
open_pairs(struct yb_cli *cli, struct yb_bench_table *table)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < table->pair_count; i++) {
        ok = yb_bench_target_open(&table->pairs[i].options, &table->pairs[i].target);
    }
    for (uint32_t i = 0; ok && i < table->pair_count; i++) {
        ok = yb_bench_pair_open(&table->pairs[i]) && check_path(cli, table, i);
    }
    return ok;
}

static bool
check_device(struct yb_cli *cli, const struct yb_bench_plan *plan)
{
    char why[256] = "";

    if (plan->device && !yb_bench_device_found(why, sizeof(why))) {
        fprintf(cli->err, "yuebing bench transfer: --device: there is no device to measure: %s\n",
                why);
        return false;
    }
    return true;
}

/* Where the bytes of a row lie. */
static const char *
memory_of(const struct yb_bench_target_options *options)
{
    if (options->device) {
        return "device";
    }
    return options->shared ? "shared" : "ordinary";
}

/* ---- results ------------------------------------------------------------------------------- */

/* What of a row is compared: latencies where it is held against one. */
static bool
is_latency(const struct yb_bench_row *row)
{
    return row->against == YB_BENCH_AGAINST_PING || row->against == YB_BENCH_AGAINST_PING_BUSY;
}

/* The medians of a row, which sort it; ratio is the median of the rounds' ratios, each of one
 * moment, and so comes first. */
struct figures {
    double gbps;
    double ceiling;
    double ratio;
    double p50_us;
    double p99_us;
    double cpu_s_per_gb;
};

static struct figures
figures_of(struct yb_bench_row *row, uint64_t rounds)
{
    double ratios[YB_BENCH_ROUNDS_MAX];
    struct figures figures;

    for (uint64_t i = 0; i < rounds; i++) {
        double ours = is_latency(row) ? row->p50_us[i] : row->gbps[i];

        ratios[i] = row->ceiling[i] > 0 ? ours / row->ceiling[i] : 0;
    }
    figures.gbps = yb_bench_median(row->gbps, rounds);
    figures.ceiling = yb_bench_median(row->ceiling, rounds);
    figures.ratio = yb_bench_median(ratios, rounds);
    figures.p50_us = yb_bench_median(row->p50_us, rounds);
    figures.p99_us = yb_bench_median(row->p99_us, rounds);
    figures.cpu_s_per_gb = yb_bench_median(row->cpu_s_per_gb, rounds);
    return figures;
}

static const char *
path_of(const struct yb_bench_row *row)
{
    if (row->what != YB_BENCH_FLOW) {
        return row->path;
    }
    switch (row->paths) {
    case YB_TRANSFER_PATH_TCP: return "tcp";
    case YB_TRANSFER_PATH_SHM: return "shm";
    default: return "mixed";
    }
}

static int
print_json(struct yb_cli *cli, struct yb_bench_table *table)
{
    uint64_t rounds = table->plan.rounds;
    json_t *array = json_array();

    for (uint32_t i = 0; i < table->row_count; i++) {
        struct yb_bench_row *row = &table->rows[i];
        const struct yb_bench_target_options *options = &table->pairs[row->pair].options;
        struct figures figures = figures_of(row, rounds);
        json_t *item = json_pack(
            "{s:s, s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "path", path_of(row), "op",
            row->op, "size", (json_int_t)row->flow.size, "fragments", (int)row->flow.fragments,
            "streams", (int)row->streams, "gbps", figures.gbps, "ratio", figures.ratio, "p50_us",
            figures.p50_us, "p99_us", figures.p99_us, "cpu_s_per_gb", figures.cpu_s_per_gb);

        (void)json_object_set_new(item, is_latency(row) ? "ceiling_us" : "ceiling_gbps",
                                  json_real(figures.ceiling));
        (void)json_object_set_new(item, "ceiling", json_string(row->note));
        (void)json_object_set_new(item, "tls", json_boolean(options->tls));
        (void)json_object_set_new(item, "memory", json_string(memory_of(options)));
        (void)json_object_set_new(item, "waits",
                                  json_boolean(row->flow.mode == YB_BENCH_FLOW_WAITING));
        (void)json_array_append_new(array, item);
    }
    return yb_output_json(cli->out, json_pack("{s:s, s:I, s:o}", "bench", "transfer", "rounds",
                                              (json_int_t)rounds, "rows", array)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

/* Write a number into a cell, which stays empty where there is none. */
static void
show(char *cell, bool known, int digits, double number, const char *unit)
{
    cell[0] = '\0';
    if (known) {
        (void)snprintf(cell, CELL_BYTES, "%.*f%s", digits, number, unit);
    }
}

static bool
add_cells(struct yb_output_table *output, const struct yb_bench_table *table,
          struct yb_bench_row *row)
{
    struct figures figures = figures_of(row, table->plan.rounds);
    const struct yb_bench_target_options *options = &table->pairs[row->pair].options;
    bool raw = row->what != YB_BENCH_FLOW;
    bool held = row->against != YB_BENCH_AGAINST_NOTHING;
    const char *memory = raw ? "" : memory_of(options);
    char cells[9][CELL_BYTES];
    const char *list[13] = {path_of(row), memory,   row->op,  cells[0], cells[1],
                            cells[2],     cells[3], cells[4], cells[5], cells[6],
                            cells[7],     cells[8], row->note};

    (void)snprintf(cells[0], sizeof(cells[0]), "%llu", (unsigned long long)row->flow.size);
    (void)snprintf(cells[1], sizeof(cells[1]), "%u", row->flow.fragments);
    (void)snprintf(cells[2], sizeof(cells[2]), "%u%s", row->streams,
                   options->tls && !raw ? " tls" : "");
    show(cells[3], figures.gbps > 0, 2, figures.gbps, "");
    show(cells[4], held, is_latency(row) ? 1 : 2, figures.ceiling, is_latency(row) ? " us" : "");
    show(cells[5], held, 2, figures.ratio, "");
    show(cells[6], figures.p50_us > 0, 1, figures.p50_us, "");
    show(cells[7], figures.p50_us > 0, 1, figures.p99_us, "");
    show(cells[8], !raw, 3, figures.cpu_s_per_gb, "");
    return yb_output_table_add(output, list) == YB_OK;
}

static int
print_table(struct yb_cli *cli, struct yb_bench_table *table)
{
    static const char *const columns[] = {
        "path",    "memory", "op",     "size",   "fragments", "streams",     "GB/s",
        "ceiling", "ratio",  "p50 us", "p99 us", "cpu s/GB",  "held against"};
    struct yb_output_table *output = NULL;
    bool ok = yb_output_table_create(columns, 13, &output) == YB_OK;

    for (uint32_t i = 0; ok && i < table->row_count; i++) {
        ok = add_cells(output, table, &table->rows[i]);
    }
    if (ok) {
        yb_output_table_print(output, cli->out, cli->terminal);
        fprintf(cli->out,
                "medians of %llu interleaved rounds; every run checked the bytes of its last "
                "batch; ratio: ours / ceiling of the same round, smaller is better for latencies\n",
                (unsigned long long)table->plan.rounds);
    }
    yb_output_table_destroy(&output);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_bench_transfer(struct yb_cli *cli)
{
    struct yb_bench_table *table = calloc(1, sizeof(*table));
    int result = YB_CLI_EXIT_FAILED;

    if (table == NULL) {
        fprintf(cli->err, "yuebing bench transfer: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    if (!yb_bench_plan_read(cli, &table->plan)) {
        result = YB_CLI_EXIT_REFUSED;
    } else if (!yb_bench_rows_make(table)) {
        fprintf(cli->err, "yuebing bench transfer: too many rows; give fewer sizes or streams\n");
        result = YB_CLI_EXIT_REFUSED;
    } else if (check_device(cli, &table->plan) && open_pairs(cli, table) &&
               measure_all(cli, table)) {
        result = cli->json ? print_json(cli, table) : print_table(cli, table);
    }
    for (uint32_t i = 0; i < table->pair_count; i++) {
        yb_bench_pair_close(&table->pairs[i]);
    }
    free(table);
    return result;
}
