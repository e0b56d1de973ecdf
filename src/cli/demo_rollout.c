/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing demo --rollout`: many answers to each of many prompts, all of which are wanted before
 * training goes on. Twice on clusters of their own, with the same prompts and lengths: all answers
 * to a prompt at one engine, and any chunk of any answer anywhere, by the rule of Seer.
 *
 * Beside each stands what the simulator says of the same rollout, at the rate at which the live one
 * pulled KV.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo.h"
#include "cli/demo_router.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "sim/rollout.h"

#define BLOCK_TOKENS  64u
#define BLOCK_BYTES   16384u
#define POOL_BLOCKS   160u
#define TIME_SCALE    0.1
#define NODE_MEMORY   "64m"
#define GROUP_SIZE    8u
#define BATCH         8u
#define PROMPT_TOKENS 512u
#define ANSWER_TOKENS 300.0 /* On the average. */
#define LIMIT_TOKENS  1200u
#define CHUNK_TOKENS  192u
#define SIGMA         1.0
#define GROUP_SIGMA   0.3
#define SEED          23u
#define FAST_BYTES    1e15 /* Per second, where nothing was pulled. */
#define COLUMNS       2u
#define CELL_BYTES    32u
#define CELLS         (COLUMNS + 1u)

static const char *const names[COLUMNS] = {"group-atomic", "seer"};

/* How one way was. */
struct column {
    struct yb_demo_rolled rolled;
    struct yb_demo_column counted; /* By engines and conductor. */
    struct yb_rollout_result simulated;
};

struct rolling {
    struct yb_cli *cli;
    const char *only; /* Which way; NULL: both. */
    uint32_t groups;
    uint32_t answers;
    uint32_t *lengths;
    struct yb_sched_cost cost;
    struct yb_demo_cluster cluster;
    struct column columns[COLUMNS];
};

static bool
fail(const struct rolling *rolling, const char *what, const char *why)
{
    fprintf(rolling->cli->err, "yuebing demo: %s: %s\n", what, why);
    return false;
}

static FILE *
progress_of(const struct rolling *rolling)
{
    return rolling->cli->json ? rolling->cli->err : rolling->cli->out;
}

static bool
is_wanted(const struct rolling *rolling, uint32_t index)
{
    return rolling->only == NULL || strcmp(rolling->only, names[index]) == 0;
}

/* ---- the rollout ----------------------------------------------------------------------------- */

static bool
make(struct rolling *rolling)
{
    const struct yb_rollout_lengths wanted = {
        .groups = rolling->groups,
        .group_size = GROUP_SIZE,
        .mean_tokens = ANSWER_TOKENS,
        .limit_tokens = LIMIT_TOKENS,
        .sigma = SIGMA,
        .group_sigma = GROUP_SIGMA,
        .seed = SEED,
    };
    enum yb_status status = yb_demo_cost(&rolling->cost);

    rolling->lengths = yb_rollout_draw(&wanted);
    if (rolling->lengths == NULL) {
        status = YB_NO_MEMORY;
    }
    return status == YB_OK || fail(rolling, "the rollout", yb_status_text(status));
}

static bool
start(struct rolling *rolling)
{
    const struct yb_demo_shape shape = {
        .conductors = 1,
        .pool = true,
        .classes = true,
        .ahead = true,
        .engines = YB_DEMO_ENGINES,
        .coupled = true,
        .disks = true,
        .model = YB_DEMO_MODEL,
        .time_scale = TIME_SCALE,
        .block_tokens = BLOCK_TOKENS,
        .block_bytes = BLOCK_BYTES,
        .pool_blocks = POOL_BLOCKS,
        .node_memory = NODE_MEMORY,
    };

    return yb_demo_cluster_start(&rolling->cluster, rolling->cli, &shape) ||
           fail(rolling, "the cluster", rolling->cluster.why);
}

/* What the engines and the conductor have counted, when they have come to rest. */
static bool
count(struct rolling *rolling, struct column *column)
{
    struct yb_curl *curl = NULL;
    bool counted = yb_curl_create(&curl, rolling->cluster.why) == YB_OK &&
                   yb_demo_column_ask(&column->counted, &rolling->cluster, curl);

    if (curl != NULL) {
        yb_curl_destroy(&curl);
    }
    return counted || fail(rolling, "the cluster", rolling->cluster.why);
}

/* The same in the simulator, in whose time everything takes as long as on the model's machine. */
static bool
simulate(struct rolling *rolling, struct column *column, bool atomic)
{
    const struct yb_demo_rolled *rolled = &column->rolled;
    struct yb_sched_cost cost = rolling->cost;
    struct yb_rollout_options options = {
        .cost = &cost,
        .places = YB_DEMO_ENGINES,
        .batch = BATCH,
        .groups = rolling->groups,
        .group_size = GROUP_SIZE,
        .prompt_tokens = PROMPT_TOKENS,
        .limit_tokens = LIMIT_TOKENS,
        .chunk_tokens = CHUNK_TOKENS,
        .bytes_per_s = FAST_BYTES,
        .policy = atomic ? YB_ROLLOUT_GROUPED : YB_ROLLOUT_CONTEXT,
        .lengths = rolling->lengths,
    };
    enum yb_status status;

    cost.kv_tokens_max = (uint64_t)POOL_BLOCKS * BLOCK_TOKENS;
    if (rolled->load_us > 0 && rolled->loaded_tokens > 0) {
        options.bytes_per_s = (double)rolled->loaded_tokens * (double)cost.kv_bytes /
                              ((double)rolled->load_us / 1e6 / TIME_SCALE);
    }
    status = yb_rollout_run(&options, &column->simulated);
    return status == YB_OK || fail(rolling, "the simulator", yb_status_text(status));
}

static bool
play(struct rolling *rolling, uint32_t index)
{
    struct column *column = &rolling->columns[index];
    const struct yb_demo_rollout rollout = {
        .cluster = &rolling->cluster,
        .engines = YB_DEMO_ENGINES,
        .batch = BATCH,
        .block_tokens = BLOCK_TOKENS,
        .pool_tokens = POOL_BLOCKS * BLOCK_TOKENS,
        .groups = rolling->groups,
        .group_size = GROUP_SIZE,
        .prompt_tokens = PROMPT_TOKENS,
        .limit_tokens = LIMIT_TOKENS,
        .chunk_tokens = CHUNK_TOKENS,
        .atomic = index == 0,
        .lengths = rolling->lengths,
    };
    struct yb_measure_machine before;

    fprintf(progress_of(rolling), "%s: %u answers to %u prompts\n", names[index], rolling->answers,
            rolling->groups);
    (void)fflush(progress_of(rolling));
    if (!start(rolling)) {
        return false;
    }
    before = yb_measure_machine_now();
    if (!yb_demo_rollout_run(&rollout, &column->rolled)) {
        return fail(rolling, names[index], yb_status_text(YB_NO_MEMORY));
    }
    column->counted.cpu_busy = yb_measure_machine_busy(&before);
    return count(rolling, column) && simulate(rolling, column, rollout.atomic) &&
           (yb_demo_cluster_stop(&rolling->cluster) ||
            fail(rolling, names[index], "a process did not end well"));
}

/* ---- what came of it ------------------------------------------------------------------------- */

/* How much more the busiest engine generated than the least busy one. */
static double
spread_of(const struct yb_demo_rolled *rolled)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;

    for (uint32_t i = 0; i < YB_DEMO_ENGINES; i++) {
        least = rolled->engine_tokens[i] < least ? rolled->engine_tokens[i] : least;
        most = rolled->engine_tokens[i] > most ? rolled->engine_tokens[i] : most;
    }
    return least > 0 ? (double)most / (double)least : 0;
}

static double
share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0;
}

/* clang-format off */
/* Rows of the table, members of the JSON: of `run`, `counted` and `model`. */
#define ROWS(X)                                                                                    \
    X("answers whole",              "answers",         0, run->whole)                         \
    X("tokens generated",           "tokens",          0, run->tokens)                        \
    X("all of it, s",               "took_s",          2, (double)run->took_ns / 1e9)         \
    X("  simulated",                "simulated_s",     2, model->total_s * TIME_SCALE)        \
    X("last tenth, s",              "tail_s",          2, (double)run->tail_ns / 1e9)         \
    X("  simulated",                "simulated_tail_s", 2, model->tail_s * TIME_SCALE)        \
    X("tokens/s",                   "tokens_per_s",    0,                                     \
      share(run->tokens * 1000000, run->took_ns / 1000))                                            \
    X("busiest over idlest engine", "spread",          2, spread_of(run))                     \
    X("chunks",                     "chunks",          0, run->chunks)                        \
    X("  at another engine",        "migrated",        0, run->migrated)                      \
    X("  asked again",              "failed",          0, run->failed)                        \
    X("KV reused there, tokens",    "device_tokens",   0, run->device_tokens)                 \
    X("KV pulled, tokens",          "loaded_tokens",   0, run->loaded_tokens)                 \
    X("  MB/s",                     "load_mb_per_s",   0,                                     \
      share(run->loaded_tokens * (BLOCK_BYTES / BLOCK_TOKENS), run->load_us))                      \
    X("verified, MB",               "verified_mb",     1, (double)counted->verified_bytes / 1e6) \
    X("wrong bytes",                "wrong_bytes",     0, counted->wrong_bytes)               \
    X("CPU busy, %",                "cpu_busy_percent", 0, counted->cpu_busy * 100)
/* clang-format on */

#define X(text_, name_, digits_, value) {text_, name_, digits_},
static const struct {
    const char *text;
    const char *name;
    int digits; /* Behind the point. */
} rows[] = {ROWS(X)};
#undef X
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void
values_of(const struct column *column, double values_out[ROW_COUNT])
{
    const struct yb_demo_rolled *run = &column->rolled;
    const struct yb_demo_column *counted = &column->counted;
    const struct yb_rollout_result *model = &column->simulated;
#define X(text, name, digits, value) (double)(value),
    const double values[ROW_COUNT] = { ROWS(X) };
#undef X

    memcpy(values_out, values, sizeof(values));
}

static void
print_header(const struct rolling *rolling)
{
    fprintf(
        rolling->cli->out,
        "\nrollout   %u answers to each of %u prompts of %u tokens; answers of %.0f tokens on the "
        "average and %u at most, in chunks of %u\n"
        "engines   %u, %u answers at a time and %u tokens of KV each; computing takes 1/%.0f of "
        "%s's time; a block of %u tokens has %u KiB instead of %" PRIu64 " MiB\n\n",
        GROUP_SIZE, rolling->groups, PROMPT_TOKENS, ANSWER_TOKENS, LIMIT_TOKENS, CHUNK_TOKENS,
        YB_DEMO_ENGINES, BATCH, POOL_BLOCKS * BLOCK_TOKENS, 1 / TIME_SCALE, YB_DEMO_MODEL,
        BLOCK_TOKENS, BLOCK_BYTES >> 10, (uint64_t)BLOCK_TOKENS * rolling->cost.kv_bytes >> 20);
}

static bool
print(const struct rolling *rolling, double values[COLUMNS][ROW_COUNT])
{
    const char *heads[CELLS] = {""};
    uint32_t count = 1;
    struct yb_output_table *table = NULL;
    bool done;

    for (uint32_t i = 0; i < COLUMNS; i++) {
        heads[count] = names[i];
        count += is_wanted(rolling, i);
    }
    print_header(rolling);
    done = yb_output_table_create(heads, count, &table) == YB_OK;
    for (size_t row = 0; row < ROW_COUNT && done; row++) {
        char texts[COLUMNS][CELL_BYTES];
        const char *cells[CELLS] = {rows[row].text};

        count = 1;
        for (uint32_t i = 0; i < COLUMNS; i++) {
            cells[count] = texts[i];
            count += is_wanted(rolling, i);
            (void)snprintf(texts[i], CELL_BYTES, "%.*f", rows[row].digits, values[i][row]);
        }
        done = yb_output_table_add(table, cells) == YB_OK;
    }
    if (done) {
        yb_output_table_print(table, rolling->cli->out, rolling->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return done;
}

static bool
print_json(const struct rolling *rolling, double values[COLUMNS][ROW_COUNT])
{
    json_t *columns = json_array();
    uint64_t verified = 0, wrong = 0;
    json_t *value;
    bool done;

    for (uint32_t i = 0; i < COLUMNS; i++) {
        json_t *column;

        if (!is_wanted(rolling, i)) {
            continue;
        }
        column = json_pack("{s:s}", "name", names[i]);
        for (size_t row = 0; row < ROW_COUNT; row++) {
            (void)json_object_set_new(column, rows[row].name, json_real(values[i][row]));
        }
        (void)json_array_append_new(columns, column);
        verified += rolling->columns[i].counted.verified_bytes;
        wrong += rolling->columns[i].counted.wrong_bytes;
    }
    value = json_pack("{s:i, s:i, s:I, s:I, s:o}", "answers", (int)rolling->answers, "prompts",
                      (int)rolling->groups, "verified_bytes", (json_int_t)verified, "wrong_bytes",
                      (json_int_t)wrong, "columns", columns);
    done = value != NULL && json_dumpf(value, rolling->cli->out, JSON_COMPACT) == 0 &&
           fputc('\n', rolling->cli->out) != EOF;
    json_decref(value);
    return done;
}

static bool
show(const struct rolling *rolling)
{
    double values[COLUMNS][ROW_COUNT];

    for (uint32_t i = 0; i < COLUMNS; i++) {
        values_of(&rolling->columns[i], values[i]);
    }
    return rolling->cli->json ? print_json(rolling, values) : print(rolling, values);
}

static bool
as_promised(const struct rolling *rolling)
{
    for (uint32_t i = 0; i < COLUMNS; i++) {
        const struct column *column = &rolling->columns[i];

        if (!is_wanted(rolling, i)) {
            continue;
        }
        if (column->rolled.whole != rolling->answers) {
            return fail(rolling, names[i], "an answer is not whole");
        }
        if (column->counted.wrong_bytes > 0) {
            return fail(rolling, names[i], "bytes were wrong");
        }
    }
    return true;
}

int
yb_cli_demo_rollout(struct yb_cli *cli, uint64_t answers, const char *only)
{
    struct rolling *rolling = calloc(1, sizeof(*rolling));
    bool ok;

    if (rolling == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    rolling->cli = cli;
    rolling->only = only;
    rolling->groups = (uint32_t)answers / GROUP_SIZE;
    rolling->answers = rolling->groups * GROUP_SIZE;
    fprintf(progress_of(rolling),
            "yuebing demo: a rollout on a directory, a conductor, 3 nodes and 4 engines as "
            "processes on this machine; each byte that an engine loads is compared\n");
    ok = make(rolling);
    for (uint32_t i = 0; i < COLUMNS && ok; i++) {
        ok = !is_wanted(rolling, i) || play(rolling, i);
    }
    if (ok && !is_wanted(rolling, 0) && !is_wanted(rolling, 1)) {
        ok = fail(rolling, "--only",
                  "there is no such column; write one as the table's head has it");
    }
    ok = ok && show(rolling) && as_promised(rolling);
    ok = yb_demo_cluster_stop(&rolling->cluster) && ok;
    free(rolling->lengths);
    free(rolling);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}
