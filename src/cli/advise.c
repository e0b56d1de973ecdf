/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing advise`: see sim/advise.h.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#include "cli/catalog.h"
#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/advise.h"
#include "sim/settings.h"
#include "sim/trace_gen.h"

#define LIKE_DEFAULT     "conversation"
#define REQUESTS_DEFAULT 12031u
#define LENGTHS          4u
#define SHARES           3u
#define OWN              SHARES /* Behind them: the pool that the cluster has. */

const struct yb_cli_option yb_cli_advise_options[] = {
    {"model", "NAME", "what the engines run (llama-3-70b)"},
    {"gpu", "NxNAME", "what each of them runs it on (8xa800)"},
    {"instances", "N", "engines (16)"},
    {"net", "BITS/S", "port of a node (100G)"},
    {"net-us", "US", "until the first byte from a peer (20)"},
    {"bus", "BYTES/S", "from dram to all devices of a node; 0: as the table of devices says (0)"},
    {"pool", "SIZE", "of dram on each node, for the pool (1T)"},
    {"eviction", "NAME", "what leaves the pool (lru)"},
    {"ttft-slo", "S", "objective for the first token (30)"},
    {"tpot-slo-ms", "MS", "objective for each further token (100)"},
    {"trace", "FILE", "what is asked of the cluster; else a generated trace"},
    {"like", "KIND", "generated: conversation, toolagent or synthetic (conversation)"},
    YB_CLI_CATALOG_OPTION,
    YB_CLI_TRACE_OPTIONS,
    {NULL, NULL, NULL},
};

static const uint64_t lengths[LENGTHS] = {1024, 8192, 32768, 131072};
static const double shares[SHARES] = {0.5, 0.8, 0.95};
static const char *const mode_names[YB_ADVISE_MODES] = {
#define X(name, value, word, text) [value] = word,
    YB_SCHED_MODE_MAP(X)
#undef X
};

/* Names of settings that are options here, too. */
static const char *const setting_names[] = {"model",    "gpu",        "instances", "net",
                                            "net-us",   "bus",        "eviction",  "pool",
                                            "ttft-slo", "tpot-slo-ms"};
#define SETTING_COUNT (sizeof(setting_names) / sizeof(setting_names[0]))

/* A pool, and what one more TB buys beside it. */
struct pool {
    struct yb_advise_serving serving;
    struct yb_advise_more more;
};

struct advice {
    struct yb_cli *cli;
    struct yb_settings settings;
    struct yb_advise_case one;
    double bus_bytes_per_s;
    double net_latency_ns;
    uint64_t pool_tokens; /* Of all nodes. */
    const char *trace_name;

    uint64_t net_threshold;
    uint64_t bus_threshold;
    struct yb_advise_pool ideal;
    struct pool pools[SHARES + 1]; /* For a share of the ideal hits, and the cluster's own. */
};

/* ---- what is asked --------------------------------------------------------------------------- */

static bool
read_settings(struct advice *advice)
{
    struct yb_settings *settings = &advice->settings;
    struct yb_scenario scenario;
    char message[YB_SETTINGS_MESSAGE_MAX];
    enum yb_status status;

    yb_settings_init(settings);
    status = yb_settings_set(settings, "ttft-slo", "30", message);
    if (status == YB_OK) {
        status = yb_settings_set(settings, "tpot-slo-ms", "100", message);
    }
    for (unsigned i = 0; i < SETTING_COUNT && status == YB_OK; i++) {
        const char *text = yb_cli_option(advice->cli, setting_names[i]);

        if (text != NULL) {
            status = yb_settings_set(settings, setting_names[i], text, message);
        }
    }
    if (status == YB_OK && (settings->instances.number == 0 || settings->ttft_slo.number == 0 ||
                            settings->tpot_slo.number == 0)) {
        snprintf(message, sizeof(message), "instances, --ttft-slo and --tpot-slo-ms cannot be 0");
        status = YB_INVALID;
    }
    if (status != YB_OK) {
        fprintf(advice->cli->err, "yuebing advise: --%s\n", message);
        return false;
    }
    if (!yb_simulate_scenario(advice->cli, settings, &scenario)) {
        return false;
    }
    advice->one = (struct yb_advise_case){
        .cost = scenario.cost,
        .net_bytes_per_s = scenario.bytes_per_s[YB_FABRIC_PORT_OUT],
        .instances = scenario.instances,
        .ttft_slo_ns = (double)scenario.sched.ttft_slo_ns,
        .tpot_slo_ns = (double)scenario.sched.tpot_slo_ns,
        .eviction = settings->eviction.text,
    };
    advice->pool_tokens = scenario.dram_tokens * scenario.instances;
    advice->bus_bytes_per_s = scenario.bytes_per_s[YB_FABRIC_BUS];
    advice->net_latency_ns = (double)scenario.latency_ns[YB_FABRIC_PORT_OUT];
    return true;
}

/* On true *trace_out is the caller's. */
static bool
read_trace(struct advice *advice, struct yb_trace **trace_out)
{
    struct yb_cli *cli = advice->cli;
    const char *like = yb_cli_option(cli, "like");
    uint64_t seed = 1;
    enum yb_status status;

    advice->trace_name = yb_cli_option(cli, "trace");
    if (advice->trace_name != NULL) {
        return yb_simulate_trace(cli, advice->trace_name, trace_out);
    }
    if (!yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1, &seed)) {
        return false;
    }
    advice->trace_name = like == NULL ? LIKE_DEFAULT : like;
    status = yb_trace_gen(advice->trace_name, REQUESTS_DEFAULT, seed, trace_out);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing advise: --like \"%s\": %s; allowed:", advice->trace_name,
                yb_status_text(status));
        for (uint32_t i = 0; yb_trace_gen_kind(i) != NULL; i++) {
            fprintf(cli->err, " %s", yb_trace_gen_kind(i));
        }
        fputc('\n', cli->err);
    }
    return status == YB_OK;
}

/* ---- what is answered ------------------------------------------------------------------------ */

/* Reckon what a pool of so many blocks brings. */
static enum yb_status
reckon_pool(const struct advice *advice, uint64_t blocks, struct pool *pool_out)
{
    struct yb_advise_serving more;
    enum yb_status status = yb_advise_serving(&advice->one, blocks, &pool_out->serving);

    if (status == YB_OK) {
        status =
            yb_advise_serving(&advice->one, blocks + yb_advise_more_blocks(&advice->one), &more);
    }
    if (status == YB_OK) {
        pool_out->more = yb_advise_compare(&advice->one, &more, &pool_out->serving);
    }
    return status;
}

static enum yb_status
reckon(struct advice *advice)
{
    const struct yb_advise_case *one = &advice->one;
    struct yb_output_progress progress;
    enum yb_status status;

    advice->net_threshold = yb_advise_threshold(
        &one->cost, fmin(one->net_bytes_per_s, advice->bus_bytes_per_s), advice->net_latency_ns);
    advice->bus_threshold = yb_advise_threshold(&one->cost, advice->bus_bytes_per_s, 0);
    yb_output_progress_begin(&progress, advice->cli->err, advice->cli->terminal, yb_clock_system(),
                             "pools", SHARES + 1);
    status = yb_advise_ideal(one, &advice->ideal);
    for (uint32_t i = 0; i <= OWN && status == YB_OK; i++) {
        struct yb_advise_pool pool = {.blocks = advice->pool_tokens / one->trace->block_tokens};

        status = i == OWN ? YB_OK : yb_advise_pool(one, &advice->ideal, shares[i], &pool);
        if (status == YB_OK) {
            status = reckon_pool(advice, pool.blocks, &advice->pools[i]);
        }
        yb_output_progress_update(&progress, i + 1);
    }
    yb_output_progress_end(&progress);
    return status;
}

/* What it takes to compute a prefix, or to load it. */
static double
load_ns(const struct advice *advice, uint64_t tokens, double bytes_per_s)
{
    return (double)advice->one.cost.kv_bytes * (double)tokens / bytes_per_s * 1e9;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *
real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *
threshold_json(uint64_t tokens)
{
    return tokens == UINT64_MAX ? json_null() : json_integer((json_int_t)tokens);
}

static json_t *
lengths_json(const struct advice *advice)
{
    const struct yb_sched_cost *cost = &advice->one.cost;
    json_t *rows = json_array();

    for (uint32_t i = 0; i < LENGTHS; i++) {
        (void)json_array_append_new(
            rows,
            json_pack("{s:I,s:f,s:f,s:o,s:o}", "tokens", (json_int_t)lengths[i], "compute_s",
                      yb_sched_prefill_ns(cost, lengths[i], 0) / 1e9, "break_even_bytes_per_s",
                      yb_sched_break_even(cost, lengths[i]), "net_s",
                      real_or_null(load_ns(advice, lengths[i], advice->one.net_bytes_per_s) / 1e9),
                      "bus_s",
                      real_or_null(load_ns(advice, lengths[i], advice->bus_bytes_per_s) / 1e9)));
    }
    return rows;
}

static json_t *
modes_json(const struct yb_advise_serving *serving)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < YB_ADVISE_MODES; i++) {
        const struct yb_sched_serving *mode = &serving->modes[i];

        (void)json_array_append_new(
            rows, json_pack("{s:s,s:f,s:I,s:f}", "mode", mode_names[i], "requests_per_s",
                            mode->requests_per_s, "prefill_places",
                            (json_int_t)mode->prefill_places, "batch", mode->batch));
    }
    return rows;
}

static json_t *
pool_json(const struct advice *advice, uint32_t index)
{
    const struct yb_advise_pool *pool = &advice->pools[index].serving.pool;
    const struct yb_advise_more *more = &advice->pools[index].more;

    return json_pack("{s:I,s:f,s:f,s:f,s:{s:f,s:f,s:f}}", "blocks", (json_int_t)pool->blocks,
                     "bytes", pool->bytes, "hit", pool->hit, "of_ideal",
                     advice->ideal.hit > 0 ? pool->hit / advice->ideal.hit : 0, "one_more_tb",
                     "hit", more->hit, "requests_per_s", more->requests_per_s, "instances",
                     more->instances);
}

static json_t *
pools_json(const struct advice *advice)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < SHARES; i++) {
        json_t *row = pool_json(advice, i);

        (void)json_object_set_new(row, "wanted", json_real(shares[i]));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

static enum yb_status
print_json(const struct advice *advice)
{
    const struct yb_advise_serving *serving = &advice->pools[OWN].serving;

    return yb_output_json(
        advice->cli->out,
        json_pack("{s:s,s:s,s:I,s:I,s:f,s:f,s:o,s:o,s:o,s:s,s:I,s:{s:f,s:f,s:f},s:o,s:s,s:o,s:f,"
                  "s:o,s:o}",
                  "model", advice->settings.model.text, "gpu", advice->settings.gpu.text,
                  "instances", (json_int_t)advice->one.instances, "kv_bytes_per_token",
                  (json_int_t)advice->one.cost.kv_bytes, "net_bytes_per_s",
                  advice->one.net_bytes_per_s, "bus_bytes_per_s", advice->bus_bytes_per_s,
                  "prefixes", lengths_json(advice), "net_threshold_tokens",
                  threshold_json(advice->net_threshold), "bus_threshold_tokens",
                  threshold_json(advice->bus_threshold), "trace", advice->trace_name, "requests",
                  (json_int_t)advice->one.trace->request_count, "demand", "input_tokens",
                  serving->demand.input_tokens, "reused_tokens", serving->demand.reused_tokens,
                  "output_tokens", serving->demand.output_tokens, "modes", modes_json(serving),
                  "mode", mode_names[serving->mode], "crossover_bytes_per_s",
                  real_or_null(serving->crossover_bytes_per_s), "ideal_hit", advice->ideal.hit,
                  "pools", pools_json(advice), "pool", pool_json(advice, OWN)));
}

/* ---- as tables ------------------------------------------------------------------------------- */

/* Print a table whose rows `add` adds. */
static enum yb_status
print_table(const struct advice *advice, const char *const *columns, unsigned count, uint32_t rows,
            enum yb_status (*add)(struct yb_output_table *, const struct advice *, uint32_t))
{
    struct yb_output_table *table;
    enum yb_status status = yb_output_table_create(columns, count, &table);

    for (uint32_t i = 0; i < rows && status == YB_OK; i++) {
        status = add(table, advice, i);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, advice->cli->out, advice->cli->terminal);
        fputc('\n', advice->cli->out);
    }
    yb_output_table_destroy(&table);
    return status;
}

static enum yb_status
add_length(struct yb_output_table *table, const struct advice *advice, uint32_t row)
{
    uint64_t tokens = lengths[row];
    char cells[5][32];

    snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, tokens);
    snprintf(cells[1], sizeof(cells[1]), "%.3f",
             yb_sched_prefill_ns(&advice->one.cost, tokens, 0) / 1e9);
    snprintf(cells[2], sizeof(cells[2]), "%.3f",
             load_ns(advice, tokens, advice->one.net_bytes_per_s) / 1e9);
    snprintf(cells[3], sizeof(cells[3]), "%.3f",
             load_ns(advice, tokens, advice->bus_bytes_per_s) / 1e9);
    snprintf(cells[4], sizeof(cells[4]), "%.1f",
             yb_sched_break_even(&advice->one.cost, tokens) * 8 / 1e9);
    return yb_output_table_add(
        table, (const char *const[]){cells[0], cells[1], cells[2], cells[3], cells[4]});
}

static enum yb_status
add_mode(struct yb_output_table *table, const struct advice *advice, uint32_t row)
{
    const struct yb_sched_serving *mode = &advice->pools[OWN].serving.modes[row];
    char cells[3][32];

    snprintf(cells[0], sizeof(cells[0]), "%.2f", mode->requests_per_s);
    snprintf(cells[1], sizeof(cells[1]), "%" PRIu32, mode->prefill_places);
    snprintf(cells[2], sizeof(cells[2]), "%.0f", mode->batch);
    return yb_output_table_add(
        table, (const char *const[]){
                   mode_names[row], cells[0], row == YB_SCHED_MODE_DISAGGREGATED ? cells[1] : "all",
                   cells[2], row == advice->pools[OWN].serving.mode ? "best" : ""});
}

static enum yb_status
add_pool(struct yb_output_table *table, const struct advice *advice, uint32_t row)
{
    const struct yb_advise_pool *pool = &advice->pools[row].serving.pool;
    const struct yb_advise_more *more = &advice->pools[row].more;
    char cells[6][32];
    char name[32];

    snprintf(name, sizeof(name), "%.0f %% of ideal", row == OWN ? 100 : 100 * shares[row]);
    snprintf(cells[0], sizeof(cells[0]), "%" PRIu64, pool->blocks);
    snprintf(cells[1], sizeof(cells[1]), "%.2f", pool->bytes / 1e12);
    snprintf(cells[2], sizeof(cells[2]), "%.4f", pool->hit);
    snprintf(cells[3], sizeof(cells[3]), "%+.4f", more->hit);
    snprintf(cells[4], sizeof(cells[4]), "%+.2f", more->requests_per_s);
    snprintf(cells[5], sizeof(cells[5]), "%.3f", more->instances);
    return yb_output_table_add(table, (const char *const[]){row == OWN ? "the cluster's" : name,
                                                            cells[0], cells[1], cells[2], cells[3],
                                                            cells[4], cells[5]});
}

/* Say from how many tokens on loading pays. */
static void
say_threshold(const struct advice *advice, const char *from, uint64_t tokens)
{
    if (tokens == UINT64_MAX) {
        fprintf(advice->cli->out, "from %s: computing is always shorter than loading\n", from);
    } else if (tokens == 1) {
        fprintf(advice->cli->out, "from %s: loading is always shorter than computing\n", from);
    } else {
        fprintf(advice->cli->out,
                "from %s: loading is shorter than computing for prefixes of %" PRIu64
                " tokens and more\n",
                from, tokens);
    }
}

static void
say_crossover(const struct advice *advice)
{
    double gbit_s = advice->pools[OWN].serving.crossover_bytes_per_s * 8 / 1e9;

    if (isinf(gbit_s)) {
        fputs("disaggregated serves less than time-sliced over any network\n\n", advice->cli->out);
    } else {
        fprintf(advice->cli->out,
                "disaggregated serves as much as time-sliced from %.2f Gb/s a node on\n\n", gbit_s);
    }
}

static enum yb_status
print_tables(const struct advice *advice)
{
    static const char *const length_columns[] = {"prefix, tokens", "computed, s", "over the net, s",
                                                 "from dram, s", "break-even, Gb/s"};
    static const char *const mode_columns[] = {"mode", "requests/s", "prefill", "batch", ""};
    static const char *const pool_columns[] = {
        "pool", "blocks", "TB", "hit", "one TB more: hit", "requests/s", "engines saved"};
    const struct yb_sched_demand *demand = &advice->pools[OWN].serving.demand;
    enum yb_status status;

    fprintf(advice->cli->out, "%s on %s: %.1f KiB of KV for each token\n\n",
            advice->settings.model.text, advice->settings.gpu.text,
            (double)advice->one.cost.kv_bytes / 1024);
    status = print_table(advice, length_columns, 5, LENGTHS, add_length);
    if (status != YB_OK) {
        return status;
    }
    say_threshold(advice, "peers", advice->net_threshold);
    say_threshold(advice, "the node's own dram", advice->bus_threshold);
    fprintf(advice->cli->out,
            "\n%s: %" PRIu32 " requests, on the average %.0f tokens, %.0f of them reused, and %.0f "
            "of the answer\n\n",
            advice->trace_name, advice->one.trace->request_count, demand->input_tokens,
            demand->reused_tokens, demand->output_tokens);
    status = print_table(advice, mode_columns, 5, YB_ADVISE_MODES, add_mode);
    if (status != YB_OK) {
        return status;
    }
    say_crossover(advice);
    fprintf(advice->cli->out, "ideal: %" PRIu64 " blocks, %.2f TB, %.4f found\n\n",
            advice->ideal.blocks, advice->ideal.bytes / 1e12, advice->ideal.hit);
    return print_table(advice, pool_columns, 7, OWN + 1, add_pool);
}

int
yb_cli_advise(struct yb_cli *cli, int argc, char **argv)
{
    struct advice advice = {.cli = cli};
    struct yb_trace *trace = NULL;
    enum yb_status status;

    (void)argc;
    (void)argv;
    if (!read_settings(&advice) || !read_trace(&advice, &trace)) {
        return YB_CLI_EXIT_REFUSED;
    }
    advice.one.trace = trace;
    status = reckon(&advice);
    if (status == YB_OK) {
        status = cli->json ? print_json(&advice) : print_tables(&advice);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing advise: %s\n", yb_status_text(status));
    }
    yb_trace_destroy(&trace);
    return status == YB_OK ? 0 : status == YB_INVALID ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
}
