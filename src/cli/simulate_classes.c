/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --classes-vs-hits`: see sim/classes.h.
 */
#include <jansson.h>

#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/classes.h"

#define MODEL    "llama-3-70b"
#define GPU      "a800"
#define GPUS     8u
#define RATE     12.5e9 /* 100 Gb/s. */
#define TOKENS   8192u
#define REQUESTS 20000u
#define BUSY     0.5 /* The engine, with hits of HIT_LOW and nothing else on the port. */
#define HIT_LOW  0.7
#define HIT_HIGH 0.9
#define SHARES   8u /* Of bulk: 0, 0.1, ... */

/* In the order of the columns. */
static const struct {
    const char *name;
    double hit;
    bool classes;
} cells[] = {
    {"70 % with classes", HIT_LOW, true},
    {"90 % without", HIT_HIGH, false},
    {"70 % without", HIT_LOW, false},
    {"90 % with classes", HIT_HIGH, true},
};
#define CELLS (sizeof(cells) / sizeof(cells[0]))

struct compared {
    double background[SHARES];
    struct yb_classes_result results[SHARES][CELLS];
};

static bool
is_better(const struct yb_classes_result results[CELLS])
{
    return results[0].mean_ns < results[1].mean_ns && results[0].p99_ns < results[1].p99_ns;
}

static enum yb_status
run(struct yb_cli *cli, uint64_t seed, struct compared *compared)
{
    struct yb_classes_case one = {
        .bytes_per_s = RATE, .tokens = TOKENS, .requests = REQUESTS, .seed = seed};
    struct yb_sched_catalog *catalog;
    struct yb_output_progress progress;
    enum yb_status status = yb_sched_catalog_create(&catalog);

    if (status != YB_OK) {
        return status;
    }
    status = yb_sched_catalog_cost(catalog, MODEL, GPU, GPUS, &one.cost);
    yb_sched_catalog_destroy(&catalog);
    one.gap_ns = yb_sched_prefill_ns(&one.cost, TOKENS, (uint64_t)(HIT_LOW * TOKENS)) / BUSY;
    yb_output_progress_begin(&progress, cli->err, cli->terminal, yb_clock_system(), "cells",
                             SHARES * CELLS);
    for (uint32_t i = 0; i < SHARES * CELLS && status == YB_OK; i++) {
        compared->background[i / CELLS] = one.background = (double)(i / CELLS) / 10;
        one.hit = cells[i % CELLS].hit;
        one.classes = cells[i % CELLS].classes;
        status = yb_classes_run(&one, &compared->results[i / CELLS][i % CELLS]);
        yb_output_progress_update(&progress, i + 1);
    }
    yb_output_progress_end(&progress);
    return status;
}

static enum yb_status
print_json(struct yb_cli *cli, const struct compared *compared)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < SHARES; i++) {
        for (uint32_t j = 0; j < CELLS; j++) {
            const struct yb_classes_result *result = &compared->results[i][j];

            (void)json_array_append_new(
                rows, json_pack("{s:f,s:f,s:b,s:f,s:f,s:f}", "background", compared->background[i],
                                "hit", cells[j].hit, "classes", (int)cells[j].classes,
                                "ttft_mean_ms", result->mean_ns / 1e6, "ttft_p99_ms",
                                result->p99_ns / 1e6, "load_mean_ms", result->load_mean_ns / 1e6));
        }
    }
    return yb_output_json(cli->out, json_pack("{s:o}", "rows", rows));
}

static enum yb_status
print_table(struct yb_cli *cli, const struct compared *compared)
{
    const char *columns[CELLS + 2] = {"bulk, of the port"};
    struct yb_output_table *table;
    enum yb_status status;

    for (uint32_t j = 0; j < CELLS; j++) {
        columns[j + 1] = cells[j].name;
    }
    columns[CELLS + 1] = "better";
    status = yb_output_table_create(columns, CELLS + 2, &table);
    for (uint32_t i = 0; i < SHARES && status == YB_OK; i++) {
        char texts[CELLS + 1][32];
        const char *row[CELLS + 2] = {texts[CELLS]};

        snprintf(texts[CELLS], sizeof(texts[CELLS]), "%.0f %%", 100 * compared->background[i]);
        for (uint32_t j = 0; j < CELLS; j++) {
            snprintf(texts[j], sizeof(texts[j]), "%.0f / %.0f",
                     compared->results[i][j].mean_ns / 1e6, compared->results[i][j].p99_ns / 1e6);
            row[j + 1] = texts[j];
        }
        row[CELLS + 1] = is_better(compared->results[i]) ? "classes" : "hits";
        status = yb_output_table_add(table, row);
    }
    if (status == YB_OK) {
        fputs("time to the first token, mean / P99, ms\n\n", cli->out);
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return status;
}

int
yb_simulate_classes(struct yb_cli *cli)
{
    struct compared compared;
    uint64_t seed = 1;
    enum yb_status status;

    if (!yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &seed)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = run(cli, seed, &compared);
    if (status == YB_OK) {
        status = cli->json ? print_json(cli, &compared) : print_table(cli, &compared);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n", yb_status_text(status));
    }
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}
