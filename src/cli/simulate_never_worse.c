/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --never-worse`: see sim/never_worse.h.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/never_worse.h"

struct rows {
    struct yb_cli *cli;
    struct yb_output_table *table;
    json_t *json;
    uint32_t count;
    uint32_t ok;
    bool failed;
};

static void
take_row(void *context, const struct yb_never_worse_row *row)
{
    struct rows *rows = context;
    char cells[5][32];

    rows->count++;
    rows->ok += row->ok;
    (void)json_array_append_new(
        rows->json,
        json_pack("{s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:b}", "net", row->net, "model", row->model,
                  "workload", row->workload, "ttft_ratio", row->ttft_ratio, "p99_ratio",
                  row->p99_ratio, "throughput_ratio", row->throughput_ratio, "hit_without",
                  row->hit_without, "hit_with", row->hit_with, "ok", (int)row->ok));
    snprintf(cells[0], sizeof(cells[0]), "%.3f", row->ttft_ratio);
    snprintf(cells[1], sizeof(cells[1]), "%.3f", row->p99_ratio);
    snprintf(cells[2], sizeof(cells[2]), "%.3f", row->throughput_ratio);
    snprintf(cells[3], sizeof(cells[3]), "%.3f", row->hit_without);
    snprintf(cells[4], sizeof(cells[4]), "%.3f", row->hit_with);
    rows->failed |=
        yb_output_table_add(rows->table,
                            (const char *const[]){row->net, row->model, row->workload, cells[0],
                                                  cells[1], cells[2], cells[3], cells[4],
                                                  row->ok ? "yes" : "NO"}) != YB_OK;
}

/* All cells of one workload. Returns false after saying what is wrong. */
static bool
run_workload(struct yb_cli *cli, const struct yb_never_worse_workload *workload,
             const struct yb_never_worse_options *options, struct rows *rows)
{
    char path[PATH_MAX];
    char message[YB_NEVER_WORSE_MESSAGE_MAX] = "";
    struct yb_trace *trace = NULL;
    struct yb_trace *made = NULL;
    enum yb_status status;

    snprintf(path, sizeof(path), "%s/%s.jsonl", yb_simulate_traces(cli), workload->trace);
    if (!yb_simulate_trace(cli, path, &trace)) {
        return false;
    }
    status = yb_never_worse_make(trace, workload->kind, options->requests_max, &made);
    yb_trace_destroy(&trace);
    if (status == YB_OK) {
        status = yb_never_worse_run(made, workload->name, options, take_row, rows, message);
        yb_trace_destroy(&made);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n",
                message[0] != '\0' ? message : yb_status_text(status));
    }
    return status == YB_OK;
}

static int
print_rows(struct yb_cli *cli, struct rows *rows)
{
    if (cli->json) {
        json_t *all = json_pack("{s:i,s:i,s:O}", "rows_ok", (int)rows->ok, "rows_all",
                                (int)rows->count, "rows", rows->json);

        return yb_output_json(cli->out, all) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    }
    yb_output_table_print(rows->table, cli->out, cli->terminal);
    fprintf(cli->out, "\n%" PRIu32 " of %" PRIu32 " cells ok\n", rows->ok, rows->count);
    return rows->failed ? YB_CLI_EXIT_FAILED : 0;
}

int
yb_simulate_never_worse(struct yb_cli *cli)
{
    static const char *const columns[] = {"net",        "model",      "workload",  "ttft", "p99",
                                          "throughput", "hit, alone", "hit, pool", "ok"};
    const char *only = yb_cli_option(cli, "workload");
    struct rows rows = {.cli = cli, .json = json_array()};
    struct yb_never_worse_options options = {0};
    struct yb_never_worse_workload workload;
    uint64_t requests = 0;
    int code = YB_CLI_EXIT_REFUSED;
    bool ok = true;

    options.net = yb_cli_option(cli, "net");
    options.model = yb_cli_option(cli, "model");
    options.seed = 1;
    if (!yb_cli_option_number(cli, "requests", 1, UINT32_MAX, &requests) ||
        !yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &options.seed)) {
        json_decref(rows.json);
        return YB_CLI_EXIT_REFUSED;
    }
    options.requests_max = (uint32_t)requests;
    if (yb_output_table_create(columns, 9, &rows.table) != YB_OK) {
        json_decref(rows.json);
        return YB_CLI_EXIT_FAILED;
    }
    for (uint32_t i = 0; ok && (workload = yb_never_worse_workload(i)).name != NULL; i++) {
        if (only == NULL || strcmp(only, workload.name) == 0) {
            ok = run_workload(cli, &workload, &options, &rows);
        }
    }
    if (ok && rows.count == 0) {
        fprintf(cli->err, "yuebing simulate: no such cell; see --workload, --net and --model\n");
    } else if (ok) {
        code = print_rows(cli, &rows);
    }
    yb_output_table_destroy(&rows.table);
    json_decref(rows.json);
    return code;
}
