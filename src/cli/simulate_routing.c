/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate TRACE --routing all`: the same requests on the same cluster, each policy of
 * routing beside the others, at each load. What is drawn differs by seed; so each cell may be the
 * mean over several.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/simulate.h"

#define POLICIES_MAX 32u
#define LOADS_MAX    16u
#define SEEDS_MAX    64u
#define LIST_MAX     256u
#define FIGURES      8u

static const char *const figure_names[FIGURES] = {"ttft_mean_s", "ttft_p50_s",   "ttft_p95_s",
                                                  "ttft_p99_s",  "tpot_mean_ms", "tpot_p99_ms",
                                                  "hit",         "peer"};

struct routing {
    struct yb_cli *cli;
    const char *path;
    struct yb_settings settings;
    struct yb_scenario scenario; /* Of the settings; policy and seed are those of the run. */
    struct yb_trace_options trace_options;
    const char *policies[POLICIES_MAX];
    double loads[LOADS_MAX];
    uint32_t policy_count;
    uint32_t load_count;
    uint64_t seeds;
    struct yb_output_table *table;
    json_t *rows;
};

/* ---- options --------------------------------------------------------------------------------- */

static bool
take_policy(struct routing *routing, const char *word)
{
    bool all = strcmp(word, "all") == 0;
    bool known = all;
    const char *name;

    for (uint32_t i = 0; (name = yb_sched_routing_name(i)) != NULL; i++) {
        if ((all || strcmp(name, word) == 0) && routing->policy_count < POLICIES_MAX) {
            routing->policies[routing->policy_count++] = name;
            known = true;
        }
    }
    if (!known) {
        fprintf(routing->cli->err, "yuebing simulate: --routing cannot have \"%s\"; allowed: all",
                word);
        for (uint32_t i = 0; (name = yb_sched_routing_name(i)) != NULL; i++) {
            fprintf(routing->cli->err, " %s", name);
        }
        fputc('\n', routing->cli->err);
    }
    return known;
}

static bool
take_load(struct routing *routing, const char *word)
{
    char *end;
    double load = strtod(word, &end);

    if (end == word || *end != '\0' || !(load >= 0.001 && load <= YB_TRACE_SPEED_MAX) ||
        routing->load_count == LOADS_MAX) {
        fprintf(routing->cli->err,
                "yuebing simulate: --load cannot have \"%s\"; allowed: up to %u of 0.001 .. %g\n",
                word, LOADS_MAX, YB_TRACE_SPEED_MAX);
        return false;
    }
    routing->loads[routing->load_count++] = load;
    return true;
}

/* Call `take` for each word of a list with commas. */
static bool
take_list(struct routing *routing, const char *text, bool (*take)(struct routing *, const char *))
{
    char words[LIST_MAX];
    char *rest = words;

    if (strlen(text) >= sizeof(words)) {
        return take(routing, text); /* It says what is allowed: no word is that long. */
    }
    snprintf(words, sizeof(words), "%s", text);
    while (rest != NULL) {
        if (!take(routing, strsep(&rest, ","))) {
            return false;
        }
    }
    return true;
}

static bool
read_options(struct routing *routing)
{
    struct yb_cli *cli = routing->cli;
    const char *loads = yb_cli_option(cli, "load");

    routing->seeds = 1;
    return yb_simulate_settings(cli, &routing->settings) &&
           yb_simulate_scenario(cli, &routing->settings, &routing->scenario) &&
           yb_simulate_trace_options(cli, &routing->trace_options) &&
           yb_cli_option_number(cli, "seeds", 1, SEEDS_MAX, &routing->seeds) &&
           take_list(routing, yb_cli_option(cli, "routing"), take_policy) &&
           take_list(routing, loads == NULL ? "1" : loads, take_load);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void
add_figures(const struct yb_result *result, double figures[FIGURES])
{
    const double values[FIGURES] = {
        result->ttft.mean_ns / 1e9,
        (double)result->ttft.p50_ns / 1e9,
        (double)result->ttft.p95_ns / 1e9,
        (double)result->ttft.p99_ns / 1e9,
        result->tpot.mean_ns / 1e6,
        (double)result->tpot.p99_ns / 1e6,
        yb_result_hit(result),
        yb_result_share(result, YB_RESULT_PEER),
    };

    for (uint32_t i = 0; i < FIGURES; i++) {
        figures[i] += values[i];
    }
}

static bool
add_row(struct routing *routing, const char *policy, double load, const double figures[FIGURES])
{
    char cells[FIGURES + 1][24];
    const char *row[FIGURES + 2] = {policy, cells[0]};
    json_t *object;

    if (routing->cli->json) {
        object = json_pack("{s:s,s:f}", "routing", policy, "load", load);
        for (uint32_t i = 0; i < FIGURES; i++) {
            (void)json_object_set_new(object, figure_names[i], json_real(figures[i]));
        }
        return json_array_append_new(routing->rows, object) == 0;
    }
    snprintf(cells[0], sizeof(cells[0]), "%g", load);
    for (uint32_t i = 0; i < FIGURES; i++) {
        snprintf(cells[i + 1], sizeof(cells[i + 1]), "%.3f", figures[i]);
        row[i + 2] = cells[i + 1];
    }
    return yb_output_table_add(routing->table, row) == YB_OK;
}

/* ---- the runs -------------------------------------------------------------------------------- */

/* Add what one policy gives with one seed. Returns false after saying what is wrong. */
static bool
run_one(struct routing *routing, const struct yb_trace *trace, const char *policy,
        double figures[FIGURES])
{
    char message[YB_SIMULATOR_MESSAGE_MAX];
    struct yb_result result = {0};

    routing->scenario.sched.routing = policy;
    if (yb_simulator_run(&routing->scenario, trace, &result, message) != YB_OK) {
        fprintf(routing->cli->err, "yuebing simulate: %s\n", message);
        return false;
    }
    add_figures(&result, figures);
    yb_result_fini(&result);
    return true;
}

/* Run all policies at one load. */
static bool
run_load(struct routing *routing, double load, struct yb_output_progress *progress, uint64_t *done)
{
    double figures[POLICIES_MAX][FIGURES] = {{0}};
    struct yb_trace_options options = routing->trace_options;
    uint64_t first = options.seed;
    char message[YB_TRACE_MESSAGE_MAX];
    bool ok = true;

    options.speed *= load;
    for (uint64_t seed = first; seed < first + routing->seeds && ok; seed++) {
        struct yb_trace *trace = NULL;

        options.seed = seed;
        routing->scenario.seed = seed;
        if (yb_trace_open(routing->path, &options, &trace, message) != YB_OK) {
            fprintf(routing->cli->err, "yuebing simulate: %s\n", message);
            return false;
        }
        for (uint32_t i = 0; i < routing->policy_count && ok; i++) {
            ok = run_one(routing, trace, routing->policies[i], figures[i]);
            yb_output_progress_update(progress, ++*done);
        }
        yb_trace_destroy(&trace);
    }
    for (uint32_t i = 0; i < routing->policy_count && ok; i++) {
        for (uint32_t j = 0; j < FIGURES; j++) {
            figures[i][j] /= (double)routing->seeds;
        }
        ok = add_row(routing, routing->policies[i], load, figures[i]);
    }
    return ok;
}

static bool
run_all(struct routing *routing)
{
    struct yb_output_progress progress;
    uint64_t done = 0;
    bool ok = true;

    yb_output_progress_begin(&progress, routing->cli->err, routing->cli->terminal,
                             yb_clock_system(), "runs",
                             routing->seeds * routing->policy_count * routing->load_count);
    for (uint32_t i = 0; i < routing->load_count && ok; i++) {
        ok = run_load(routing, routing->loads[i], &progress, &done);
    }
    yb_output_progress_end(&progress);
    return ok;
}

int
yb_simulate_routing(struct yb_cli *cli, const char *path)
{
    static const char *const columns[] = {"routing", "load",         "TTFT mean s", "P50", "P95",
                                          "P99",     "TPOT mean ms", "P99",         "hit", "peer"};
    struct routing routing = {.cli = cli, .path = path};
    int code = YB_CLI_EXIT_FAILED;

    if (!read_options(&routing)) {
        return YB_CLI_EXIT_REFUSED;
    }
    routing.rows = json_array();
    if (yb_output_table_create(columns, FIGURES + 2, &routing.table) == YB_OK &&
        run_all(&routing)) {
        code = 0;
    }
    if (code == 0 && cli->json) {
        json_t *result =
            json_pack("{s:O,s:I,s:o}", "rows", routing.rows, "seeds", (json_int_t)routing.seeds,
                      "settings", yb_simulate_settings_json(&routing.settings));

        code = yb_output_json(cli->out, result) == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    } else if (code == 0) {
        yb_output_table_print(routing.table, cli->out, cli->terminal);
    }
    json_decref(routing.rows);
    yb_output_table_destroy(&routing.table);
    return code;
}
