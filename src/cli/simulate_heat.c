/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --heat`: see sim/heat_replay.h.
 */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>

#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/heat_replay.h"

#define HORIZON_NS  180000000000ull  /* About the time between two uses of a block. */
#define BLOCK_BYTES (512.0 * 327680) /* Of a model of 70 B parameters. */
#define OBJECT_RATE 12.5e9           /* 100 Gb/s. */

static const char *const traces[] = {"conversation_trace", "toolagent_surrogate",
                                     "synthetic_trace"};
static const uint32_t budgets[] = {1000, 4000, 16000};
static const uint32_t drams[] = {2000, 4000, 8000};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct rows {
    struct yb_cli *cli;
    struct yb_output_progress progress;
    uint64_t done;
    json_t *forecasts;
    json_t *moves;
    struct yb_output_table *forecast_table;
    struct yb_output_table *move_table;
};

static void
step(struct rows *rows)
{
    yb_output_progress_update(&rows->progress, ++rows->done);
}

static enum yb_status
add_score(struct rows *rows, const char *trace, uint32_t budget, unsigned who,
          const struct yb_heat_score *score)
{
    const char *name = yb_heat_forecaster_name((enum yb_heat_forecaster)who);
    char cells[4][24];

    (void)json_array_append_new(
        rows->forecasts,
        json_pack("{s:s,s:s,s:I,s:I,s:I,s:f,s:f}", "trace", trace, "forecaster", name, "budget",
                  (json_int_t)budget, "named", (json_int_t)score->named, "wanted",
                  (json_int_t)score->wanted, "precision", yb_heat_precision(score), "recall",
                  yb_heat_recall(score)));
    snprintf(cells[0], sizeof(cells[0]), "%" PRIu32, budget);
    snprintf(cells[1], sizeof(cells[1]), "%" PRIu64, score->named);
    snprintf(cells[2], sizeof(cells[2]), "%.3f", yb_heat_precision(score));
    snprintf(cells[3], sizeof(cells[3]), "%.3f", yb_heat_recall(score));
    return yb_output_table_add(rows->forecast_table,
                               (const char *const[]){trace, cells[0], name, cells[1],
                                                     score->named == 0 ? "-" : cells[2], cells[3]});
}

static enum yb_status
forecast(struct rows *rows, const char *name, const struct yb_trace *trace)
{
    enum yb_status status = YB_OK;

    for (size_t i = 0; i < COUNT(budgets) && status == YB_OK; i++) {
        struct yb_heat_score scores[YB_HEAT_FORECASTERS];

        status = yb_heat_forecast(trace, HORIZON_NS, budgets[i], scores);
        for (unsigned j = 0; j < YB_HEAT_FORECASTERS && status == YB_OK; j++) {
            status = add_score(rows, name, budgets[i], j, &scores[j]);
        }
        step(rows);
    }
    return status;
}

static enum yb_status
add_moves(struct rows *rows, const char *trace, const struct yb_heat_case *one,
          const struct yb_heat_result *result)
{
    char cells[6][24];

    (void)json_array_append_new(
        rows->moves,
        json_pack("{s:s,s:I,s:b,s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "trace", trace, "dram_blocks",
                  (json_int_t)one->dram_blocks, "moves", (int)one->moves, "from_dram",
                  (json_int_t)result->dram_blocks, "from_object", (json_int_t)result->object_blocks,
                  "moved", (json_int_t)result->moved, "moved_used", (json_int_t)result->moved_used,
                  "requests_waited", (json_int_t)result->waited, "wait_mean_ms",
                  result->wait_mean_ns / 1e6, "wait_p99_ms", result->wait_p99_ns / 1e6));
    snprintf(cells[0], sizeof(cells[0]), "%" PRIu32, one->dram_blocks);
    snprintf(cells[1], sizeof(cells[1]), "%" PRIu64, result->object_blocks);
    snprintf(cells[2], sizeof(cells[2]), "%" PRIu64, result->moved);
    snprintf(cells[3], sizeof(cells[3]), "%" PRIu64, result->moved_used);
    snprintf(cells[4], sizeof(cells[4]), "%.1f", result->wait_mean_ns / 1e6);
    snprintf(cells[5], sizeof(cells[5]), "%.0f", result->wait_p99_ns / 1e6);
    return yb_output_table_add(
        rows->move_table, (const char *const[]){trace, cells[0], one->moves ? "yes" : "no",
                                                cells[1], cells[2], cells[3], cells[4], cells[5]});
}

static enum yb_status
replay(struct rows *rows, const char *name, const struct yb_trace *trace)
{
    enum yb_status status = YB_OK;

    for (size_t i = 0; i < 2 * COUNT(drams) && status == YB_OK; i++) {
        struct yb_heat_case one = {
            .horizon_ns = HORIZON_NS,
            .dram_blocks = drams[i / 2],
            .block_bytes = BLOCK_BYTES,
            .bytes_per_s = OBJECT_RATE,
            .moves = i % 2 == 1,
        };
        struct yb_heat_result result;

        status = yb_heat_replay(trace, &one, &result);
        if (status == YB_OK) {
            status = add_moves(rows, name, &one, &result);
        }
        step(rows);
    }
    return status;
}

/* All of one trace. Returns an exit code, after saying what is wrong. */
static int
run_trace(struct rows *rows, const char *name)
{
    char path[PATH_MAX];
    struct yb_trace *trace = NULL;
    enum yb_status status;

    snprintf(path, sizeof(path), "%s/%s.jsonl", yb_simulate_traces(rows->cli), name);
    if (!yb_simulate_trace(rows->cli, path, &trace)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = forecast(rows, name, trace);
    if (status == YB_OK) {
        status = replay(rows, name, trace);
    }
    yb_trace_destroy(&trace);
    if (status != YB_OK) {
        fprintf(rows->cli->err, "yuebing simulate: %s\n", yb_status_text(status));
        return YB_CLI_EXIT_FAILED;
    }
    return 0;
}

static int
print(struct rows *rows)
{
    struct yb_cli *cli = rows->cli;

    if (cli->json) {
        json_t *all =
            json_pack("{s:f,s:I,s:O,s:O}", "horizon_s", HORIZON_NS / 1e9, "chain_blocks",
                      (json_int_t)YB_HEAT_BLOCKS, "rows", rows->forecasts, "moves", rows->moves);

        return yb_output_json(cli->out, all) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    }
    fprintf(cli->out, "what will be wanted within %.0f s, of what was seen before\n\n",
            HORIZON_NS / 1e9);
    yb_output_table_print(rows->forecast_table, cli->out, cli->terminal);
    fputs("\nmoves from the object store to dram, in the background\n\n", cli->out);
    yb_output_table_print(rows->move_table, cli->out, cli->terminal);
    return 0;
}

int
yb_simulate_heat(struct yb_cli *cli)
{
    static const char *const forecasts[] = {"trace", "budget",    "forecaster",
                                            "named", "precision", "recall"};
    static const char *const moves[] = {"trace", "dram, blocks", "moves",        "fetched",
                                        "moved", "used",         "mean wait ms", "p99"};
    struct rows rows = {.cli = cli, .forecasts = json_array(), .moves = json_array()};
    int code = YB_CLI_EXIT_FAILED;

    if (yb_output_table_create(forecasts, COUNT(forecasts), &rows.forecast_table) == YB_OK &&
        yb_output_table_create(moves, COUNT(moves), &rows.move_table) == YB_OK) {
        code = 0;
        yb_output_progress_begin(&rows.progress, cli->err, cli->terminal, yb_clock_system(),
                                 "replays", COUNT(traces) * (COUNT(budgets) + 2 * COUNT(drams)));
        for (size_t i = 0; i < COUNT(traces) && code == 0; i++) {
            code = run_trace(&rows, traces[i]);
        }
        yb_output_progress_end(&rows.progress);
    }
    if (code == 0) {
        code = print(&rows);
    }
    yb_output_table_destroy(&rows.move_table);
    yb_output_table_destroy(&rows.forecast_table);
    json_decref(rows.moves);
    json_decref(rows.forecasts);
    return code;
}
