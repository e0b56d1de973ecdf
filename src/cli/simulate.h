/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate.h -- what the kinds of runs of `yuebing simulate` share.
 *
 * To add a kind of run: write `int yb_simulate_frob(struct yb_cli *cli)` in
 * src/cli/simulate_frob.c, declare it here, and give it a line in simulate.c, in the options and
 * in `runs`.
 *
 * Threads   One.
 * Memory    A trace that is handed out is owned by the caller: yb_trace_destroy().
 */
#ifndef YB_CLI_SIMULATE_H
#define YB_CLI_SIMULATE_H

#include <jansson.h>

#include "cli/cli.h"
#include "sim/settings.h"
#include "sim/simulator.h"
#include "sim/trace.h"

/* Options of each command that reads a trace. */
/* clang-format off */
#define YB_CLI_TRACE_OPTIONS                                                                       \
    {"trace-format", "FORMAT", "of the trace: auto, mooncake or bailian (auto)"},                  \
    {"block-tokens", "N", "tokens of one block of the trace (512; bailian 16)"},                   \
    {"speed", "X", "let the requests of the trace come X times as fast (1)"},                      \
    {"burst", NULL, "leave requests that were rounded to one tick at one time; else spread them"}, \
    {"keys", "KEYS", "content: equal prompts share blocks; request: nothing is shared (content)"}, \
    {"delay-hit", "SHARE", "let a share of requests come within 1 s of one they share much with"}, \
    {"seed", "N", "of all that is random (1)"}
/* clang-format on */

/* Read the options above. Returns false after saying on `err` what is wrong. */
bool yb_simulate_trace_options(struct yb_cli *cli, struct yb_trace_options *options_out);

/* Read the trace at `path` as the options say. Returns false after saying what is wrong. */
bool yb_simulate_trace(struct yb_cli *cli, const char *path, struct yb_trace **trace_out);

/* Return where the published traces are: --traces, YUEBING_TRACES, or a folder beside us. */
const char *yb_simulate_traces(const struct yb_cli *cli);

/* Read the options that are settings (sim/settings.h). Returns false after saying what is wrong. */
bool yb_simulate_settings(struct yb_cli *cli, struct yb_settings *settings_out);

/* Make a scenario of settings, with the models and devices of --catalog; it borrows names of the
 * settings. Returns false after saying what is wrong. */
bool yb_simulate_scenario(struct yb_cli *cli, const struct yb_settings *settings,
                          struct yb_scenario *scenario_out);

/* What a run is known by, for its reports. */
struct yb_simulate_shown {
    const char *trace_name;
    const struct yb_settings *settings;
    const struct yb_trace *trace;
    const struct yb_result *result;
    double wall_s;
};

/* Return the run as JSON; NULL: no memory. */
json_t *yb_simulate_json(const struct yb_simulate_shown *shown);

json_t *yb_simulate_settings_json(const struct yb_settings *settings);

/* Print the run as tables. Returns an exit code. */
int yb_simulate_print(struct yb_cli *cli, const struct yb_simulate_shown *shown);

/* Write a line for each request, or a page with charts, to a file. They return false after saying
 * what is wrong. */
bool yb_simulate_csv(struct yb_cli *cli, const struct yb_simulate_shown *shown, const char *path);
bool yb_simulate_page(struct yb_cli *cli, const struct yb_simulate_shown *shown, const char *path);

/* The kinds of runs. Each returns an exit code. */
int yb_simulate_run(struct yb_cli *cli, const char *path);
int yb_simulate_routing(struct yb_cli *cli, const char *path);
int yb_simulate_papers(struct yb_cli *cli);
int yb_simulate_never_worse(struct yb_cli *cli);
int yb_simulate_hit_table(struct yb_cli *cli);
int yb_simulate_classes(struct yb_cli *cli);
int yb_simulate_heat(struct yb_cli *cli);
int yb_simulate_window_sweep(struct yb_cli *cli);
int yb_simulate_replay(struct yb_cli *cli);

/* `yuebing trace --audit`, `yuebing trace REQUEST`, `yuebing trace --slowest N`, `yuebing trace
 * record LOG`. Each returns an exit code. */
int yb_cli_trace_audit(struct yb_cli *cli);
int yb_cli_trace_request(struct yb_cli *cli, const char *request);
int yb_cli_trace_slowest(struct yb_cli *cli);
int yb_cli_trace_record(struct yb_cli *cli, const char *path);

#endif /* YB_CLI_SIMULATE_H */
