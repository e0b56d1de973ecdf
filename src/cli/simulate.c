/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate`: what a cluster would do, without one. Each kind of run is an option that says
 * so and a function here; the simulator itself is src/sim.
 */
#include "cli/simulate.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/catalog.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "sim/settings.h"

const struct yb_cli_option yb_cli_simulate_options[] = {
    {"hit-table", "TRACE", "share of blocks found again, by eviction policy and size of the pool"},
    {"policies", "LIST", "hit-table: these policies alone (all)"},
    {"blocks", "LIST", "hit-table: these sizes alone, inf for no bound (1000 .. 100000,inf)"},
    {"tags", "TAGS",
     "hit-table: what policies hear: none, position, inferred, full (as published)"},
    {"papers", NULL, "what published papers report, beside what ours gives"},
    {"paper", "NAME", "papers: this one alone"},
    {"config-of-papers", "FILE", "papers: instead of the one that is part of the program"},
    {"never-worse", NULL, "a pool beside none, over networks, models and workloads"},
    {"classes-vs-hits", NULL,
     "70 % hits with traffic classes beside 90 % without, by bulk traffic"},
    {"heat", NULL, "which blocks will be wanted: the chain beside others, and what moves save"},
    {"window-sweep", NULL, "fixed prefetch windows beside the controller, as the world changes"},
    {"workload", "NAME", "never-worse: this one alone; likewise --net and --model"},
    {"requests", "N",
     "never-worse: so many of each workload, at most (all); window-sweep: in each half (10000)"},
    {"traces", "DIR", "heat, papers, never-worse: where the published traces are (YUEBING_TRACES)"},
    {"routing", "LIST", "TRACE: policies of routing beside each other, a list or all"},
    {"load", "LIST", "routing: at these times the speed (1)"},
    {"seeds", "N",
     "routing, window sweep: the mean over so many seeds, or how many recovered late (1)"},
    {"replay-decisions", "LOG", "decide again what a conductor's log has, and compare"},
    {"csv", "FILE", "TRACE: write a line for each request"},
    {"report", "FILE", "TRACE: write a page with charts that needs nothing else"},
    YB_CLI_TRACE_OPTIONS,
    YB_CLI_CATALOG_OPTION,
#define X(member, name, kind, value, argument, help) \
    {name, argument, "TRACE: " help " (" value ")"},
    YB_SETTINGS_MAP(X)
#undef X
        {NULL, NULL, NULL},
};

/* One line for each kind of run. */
static const struct {
    const char *option;
    int (*run)(struct yb_cli *cli);
} runs[] = {
    {"classes-vs-hits", yb_simulate_classes},
    {"heat", yb_simulate_heat},
    {"hit-table", yb_simulate_hit_table},
    {"never-worse", yb_simulate_never_worse},
    {"papers", yb_simulate_papers},
    {"replay-decisions", yb_simulate_replay},
    {"window-sweep", yb_simulate_window_sweep},
};
#define RUN_COUNT (sizeof runs / sizeof runs[0])

int
yb_cli_simulate(struct yb_cli *cli, int argc, char **argv)
{
    int (*run)(struct yb_cli * cli) = NULL;
    const char *chosen = NULL;

    for (unsigned i = 0; i < RUN_COUNT; i++) {
        if (yb_cli_option(cli, runs[i].option) == NULL) {
            continue;
        }
        if (run != NULL) {
            fprintf(cli->err, "yuebing simulate: either --%s or --%s\n", chosen, runs[i].option);
            return YB_CLI_EXIT_REFUSED;
        }
        run = runs[i].run;
        chosen = runs[i].option;
    }
    if (run == NULL && argc > 0) {
        return yb_cli_option(cli, "routing") != NULL ? yb_simulate_routing(cli, argv[0])
                                                     : yb_simulate_run(cli, argv[0]);
    }
    if (run == NULL || argc > 0) {
        fprintf(cli->err,
                "yuebing simulate: say what to run, a TRACE or one of --%s, ...; `yuebing help "
                "simulate` lists it all\n",
                runs[0].option);
        return YB_CLI_EXIT_REFUSED;
    }
    return run(cli);
}

static bool
read_real(struct yb_cli *cli, const char *name, double low, double high, double *value_out)
{
    const char *text = yb_cli_option(cli, name);
    char *end;
    double value;

    if (text == NULL) {
        return true;
    }
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high)) {
        fprintf(cli->err, "yuebing %s: --%s cannot be \"%s\"; allowed: %g .. %g\n",
                cli->command->name, name, text, low, high);
        return false;
    }
    *value_out = value;
    return true;
}

/* Read an option that is one of two words. */
static bool
read_word(struct yb_cli *cli, const char *name, const char *const words[], unsigned count,
          unsigned *word_out)
{
    const char *text = yb_cli_option(cli, name);

    if (text == NULL) {
        return true;
    }
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *word_out = i;
            return true;
        }
    }
    fprintf(cli->err, "yuebing %s: --%s cannot be \"%s\"; allowed:", cli->command->name, name,
            text);
    for (unsigned i = 0; i < count; i++) {
        fprintf(cli->err, " %s", words[i]);
    }
    fputc('\n', cli->err);
    return false;
}

const char *
yb_simulate_traces(const struct yb_cli *cli)
{
    static const char name[] = "YUEBING_TRACES=";
    const char *given = yb_cli_option(cli, "traces");

    if (given != NULL) {
        return given;
    }
    for (char *const *entry = yb_config_environment(); *entry != NULL; entry++) {
        if (strncmp(*entry, name, sizeof(name) - 1) == 0) {
            return *entry + sizeof(name) - 1;
        }
    }
    return access("traces", F_OK) == 0 ? "traces" : "../shared/traces";
}

bool
yb_simulate_trace_options(struct yb_cli *cli, struct yb_trace_options *options_out)
{
    static const char *const formats[] = {"auto", "mooncake", "bailian"};
    static const char *const keys[] = {"content", "request"};
    struct yb_trace_options options = {.speed = 1.0};
    uint64_t seed = 1;
    uint64_t block_tokens = 0;
    unsigned format = 0;
    unsigned key = 0;

    if (!yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &seed) ||
        !yb_cli_option_number(cli, "block-tokens", 1, YB_TRACE_BLOCK_TOKENS_MAX, &block_tokens) ||
        !read_real(cli, "speed", 0.001, YB_TRACE_SPEED_MAX, &options.speed) ||
        !read_real(cli, "delay-hit", 0.0, 1.0, &options.delay_hit) ||
        !read_word(cli, "trace-format", formats, 3, &format) ||
        !read_word(cli, "keys", keys, 2, &key)) {
        return false;
    }
    options.seed = seed;
    options.block_tokens = (uint32_t)block_tokens;
    options.format = (enum yb_trace_format)format;
    options.request_keys = key == 1;
    options.spread = yb_cli_option(cli, "burst") == NULL;
    *options_out = options;
    return true;
}

bool
yb_simulate_trace(struct yb_cli *cli, const char *path, struct yb_trace **trace_out)
{
    struct yb_trace_options options;
    char message[YB_TRACE_MESSAGE_MAX];

    if (!yb_simulate_trace_options(cli, &options)) {
        return false;
    }
    if (yb_trace_open(path, &options, trace_out, message) != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, message);
        return false;
    }
    return true;
}
