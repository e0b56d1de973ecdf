/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate TRACE`: one cluster over one trace.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/catalog.h"
#include "cli/output.h"
#include "cli/simulate.h"

bool
yb_simulate_scenario(struct yb_cli *cli, const struct yb_settings *settings,
                     struct yb_scenario *scenario_out)
{
    struct yb_sched_catalog *catalog;
    char message[YB_SETTINGS_MESSAGE_MAX];
    enum yb_status status;

    if (!yb_cli_catalog(cli, &catalog)) {
        return false;
    }
    status = yb_settings_scenario(settings, catalog, scenario_out, message);
    yb_sched_catalog_destroy(&catalog);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, message);
    }
    return status == YB_OK;
}

bool
yb_simulate_settings(struct yb_cli *cli, struct yb_settings *settings_out)
{
    struct yb_settings settings;
    const struct yb_settings_row *row;
    char message[YB_SETTINGS_MESSAGE_MAX];

    yb_settings_init(&settings);
    if (!yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &settings.seed)) {
        return false;
    }
    for (uint32_t i = 0; (row = yb_settings_row(i)) != NULL; i++) {
        const char *text = yb_cli_option(cli, row->name);

        if (text != NULL && yb_settings_set(&settings, row->name, text, message) != YB_OK) {
            fprintf(cli->err, "yuebing simulate: --%s\n", message);
            return false;
        }
    }
    *settings_out = settings;
    return true;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *
times_json(const struct yb_result_times *times, double unit_ns)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "mean", times->mean_ns / unit_ns, "p50",
                     (double)times->p50_ns / unit_ns, "p90", (double)times->p90_ns / unit_ns, "p95",
                     (double)times->p95_ns / unit_ns, "p99", (double)times->p99_ns / unit_ns, "max",
                     (double)times->max_ns / unit_ns);
}

static json_t *
sources_json(const struct yb_result *result)
{
    json_t *sources = json_object();

    for (unsigned i = 0; i < YB_RESULT_SOURCES; i++) {
        (void)json_object_set_new(sources, yb_result_source_name((enum yb_result_source)i),
                                  json_real(yb_result_share(result, (enum yb_result_source)i)));
    }
    return sources;
}

static json_t *
links_json(const struct yb_result *result)
{
    json_t *links = json_array();

    for (unsigned i = 0; i < YB_FABRIC_KINDS; i++) {
        const struct yb_fabric_use *use = &result->links[i];

        (void)json_array_append_new(links, json_pack("{s:s,s:f,s:f,s:f}", "link",
                                                     yb_fabric_kind_name((enum yb_fabric_kind)i),
                                                     "bytes", use->bytes, "use_mean", use->mean,
                                                     "use_max", use->busiest));
    }
    return links;
}

json_t *
yb_simulate_settings_json(const struct yb_settings *settings)
{
    json_t *object = json_object();

#define X(member, name, kind, value, argument, help) \
    (void)json_object_set_new(object, name, json_string(settings->member.text));
    YB_SETTINGS_MAP(X)
#undef X
    (void)json_object_set_new(object, "seed", json_integer((json_int_t)settings->seed));
    return object;
}

json_t *
yb_simulate_json(const struct yb_simulate_shown *shown)
{
    const struct yb_result *result = shown->result;

    return json_pack(
        "{s:s,s:o,s:i,s:i,s:i,s:f,s:f,s:I,s:I,s:o,s:o,s:o,s:f,s:o,s:o,s:{s:f,s:f,s:f},s:I,s:f,s:f}",
        "trace", shown->trace_name, "settings", yb_simulate_settings_json(shown->settings),
        "requests", (int)result->requests, "done", (int)result->done, "rejected",
        (int)result->rejected, "makespan_s", (double)result->makespan_ns / 1e9, "requests_per_s",
        result->requests_per_s, "input_tokens", (json_int_t)result->input_tokens, "output_tokens",
        (json_int_t)result->output_tokens, "ttft_s", times_json(&result->ttft, 1e9), "tpot_ms",
        times_json(&result->tpot, 1e6), "tbt_ms", times_json(&result->tbt, 1e6), "hit",
        yb_result_hit(result), "sources", sources_json(result), "links", links_json(result),
        "utilisation", "prefill", result->prefill_use, "decode", result->decode_use, "stall",
        result->stall_use, "events", (json_int_t)result->events, "wall_s", shown->wall_s,
        "events_per_s", (double)result->events / shown->wall_s);
}

/* ---- as tables ------------------------------------------------------------------------------- */

static bool
add_times(struct yb_output_table *table, const char *name, const struct yb_result_times *times,
          double unit_ns)
{
    char cells[6][32];
    const double values[] = {times->mean_ns,        (double)times->p50_ns, (double)times->p90_ns,
                             (double)times->p95_ns, (double)times->p99_ns, (double)times->max_ns};

    for (unsigned i = 0; i < 6; i++) {
        snprintf(cells[i], sizeof(cells[i]), "%.3f", values[i] / unit_ns);
    }
    return yb_output_table_add(table, (const char *const[]){name, cells[0], cells[1], cells[2],
                                                            cells[3], cells[4], cells[5]}) == YB_OK;
}

static int
print_times(struct yb_cli *cli, const struct yb_result *result)
{
    static const char *const columns[] = {"", "mean", "p50", "p90", "p95", "p99", "max"};
    struct yb_output_table *table;
    bool ok;

    if (yb_output_table_create(columns, 7, &table) != YB_OK) {
        return YB_CLI_EXIT_FAILED;
    }
    ok = add_times(table, "time to first token, s", &result->ttft, 1e9) &&
         add_times(table, "time per token after it, ms", &result->tpot, 1e6) &&
         add_times(table, "time between tokens, ms", &result->tbt, 1e6);
    if (ok) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

static int
print_links(struct yb_cli *cli, const struct yb_result *result)
{
    static const char *const columns[] = {"link", "GB", "busy, mean", "busy, most"};
    struct yb_output_table *table;
    bool ok = true;

    if (yb_output_table_create(columns, 4, &table) != YB_OK) {
        return YB_CLI_EXIT_FAILED;
    }
    for (unsigned i = 0; i < YB_FABRIC_KINDS && ok; i++) {
        const struct yb_fabric_use *use = &result->links[i];
        char bytes[32];
        char mean[32];
        char most[32];

        snprintf(bytes, sizeof(bytes), "%.1f", use->bytes / 1e9);
        snprintf(mean, sizeof(mean), "%.2f %%", 100 * use->mean);
        snprintf(most, sizeof(most), "%.2f %%", 100 * use->busiest);
        ok = use->bytes == 0 ||
             yb_output_table_add(table,
                                 (const char *const[]){yb_fabric_kind_name((enum yb_fabric_kind)i),
                                                       bytes, mean, most}) == YB_OK;
    }
    if (ok) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_simulate_print(struct yb_cli *cli, const struct yb_simulate_shown *shown)
{
    const struct yb_result *result = shown->result;
    int code;

    fprintf(cli->out,
            "%" PRIu32 " requests, %" PRIu32 " done, %" PRIu32 " rejected, %.3f each "
            "second, over %.1f s\n",
            result->requests, result->done, result->rejected, result->requests_per_s,
            (double)result->makespan_ns / 1e9);
    code = print_times(cli, result);
    fprintf(cli->out, "\ntokens of prompts from:");
    for (unsigned i = 0; i < YB_RESULT_SOURCES; i++) {
        fprintf(cli->out, " %s %.2f %%", yb_result_source_name((enum yb_result_source)i),
                100 * yb_result_share(result, (enum yb_result_source)i));
    }
    fprintf(cli->out,
            "\nengines: prefill %.1f %% of their time (%.2f %% stood still for loads), decode "
            "%.1f %%\n\n",
            100 * result->prefill_use, 100 * result->stall_use, 100 * result->decode_use);
    if (code == 0) {
        code = print_links(cli, result);
    }
    fprintf(cli->out, "\n%" PRIu64 " events in %.2f s: %.0f each second\n", result->events,
            shown->wall_s, (double)result->events / shown->wall_s);
    return code;
}

/* ---- a line for each request ----------------------------------------------------------------- */

bool
yb_simulate_csv(struct yb_cli *cli, const struct yb_simulate_shown *shown, const char *path)
{
    FILE *file = fopen(path, "w");
    bool ok;

    if (file == NULL) {
        fprintf(cli->err, "yuebing simulate: cannot write %s: %m\n", path);
        return false;
    }
    fprintf(file, "request,arrival_s,input_tokens,output_tokens,ttft_s,tpot_ms\n");
    for (uint32_t i = 0; i < shown->trace->request_count; i++) {
        const struct yb_trace_request *request = &shown->trace->requests[i];

        fprintf(file, "%" PRIu32 ",%.6f,%" PRIu32 ",%" PRIu32 ",", i,
                (double)request->arrival_ns / 1e9, request->input_tokens, request->output_tokens);
        if (shown->result->ttft_ns[i] != 0) { /* Empty: rejected. */
            fprintf(file, "%.6f,%.3f", (double)shown->result->ttft_ns[i] / 1e9,
                    (double)shown->result->tpot_ns[i] / 1e6);
        } else {
            fprintf(file, ",");
        }
        fprintf(file, "\n");
    }
    ok = ferror(file) == 0;
    ok = fclose(file) == 0 && ok;
    if (!ok) {
        fprintf(cli->err, "yuebing simulate: cannot write %s: %m\n", path);
    }
    return ok;
}

/* ---- the run --------------------------------------------------------------------------------- */

static int
show(struct yb_cli *cli, const struct yb_simulate_shown *shown)
{
    const char *csv = yb_cli_option(cli, "csv");
    const char *page = yb_cli_option(cli, "report");

    if ((csv != NULL && !yb_simulate_csv(cli, shown, csv)) ||
        (page != NULL && !yb_simulate_page(cli, shown, page))) {
        return YB_CLI_EXIT_FAILED;
    }
    if (!cli->json) {
        return yb_simulate_print(cli, shown);
    }
    return yb_output_json(cli->out, yb_simulate_json(shown)) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

static void
show_progress(void *context, uint32_t ended)
{
    yb_output_progress_update(context, ended);
}

/* Run the simulator; on a terminal a line says how far it is. */
static enum yb_status
run_shown(struct yb_cli *cli, struct yb_scenario *scenario, const struct yb_trace *trace,
          struct yb_result *result_out, char message[YB_SIMULATOR_MESSAGE_MAX])
{
    struct yb_output_progress progress;
    enum yb_status status;

    yb_output_progress_begin(&progress, cli->err, cli->terminal, yb_clock_system(), "requests",
                             trace->request_count);
    scenario->progress = show_progress;
    scenario->progress_context = &progress;
    status = yb_simulator_run(scenario, trace, result_out, message);
    yb_output_progress_end(&progress);
    return status;
}

int
yb_simulate_run(struct yb_cli *cli, const char *path)
{
    const struct yb_clock *clock = yb_clock_system();
    struct yb_settings settings;
    struct yb_scenario scenario;
    struct yb_trace *trace = NULL;
    struct yb_result result = {0};
    char message[YB_SETTINGS_MESSAGE_MAX];
    enum yb_status status;
    uint64_t start_ns;
    int code = YB_CLI_EXIT_REFUSED;

    if (!yb_simulate_settings(cli, &settings) || !yb_simulate_scenario(cli, &settings, &scenario) ||
        !yb_simulate_trace(cli, path, &trace)) {
        return YB_CLI_EXIT_REFUSED;
    }
    start_ns = yb_clock_now(clock);
    status = run_shown(cli, &scenario, trace, &result, message);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n", message);
    } else {
        code = show(cli, &(struct yb_simulate_shown){
                             .trace_name = path,
                             .settings = &settings,
                             .trace = trace,
                             .result = &result,
                             .wall_s = (double)(yb_clock_now(clock) - start_ns + 1) / 1e9,
                         });
    }
    yb_result_fini(&result);
    yb_trace_destroy(&trace);
    return code;
}
