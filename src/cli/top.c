/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing top`: what processes do, each second, in a terminal.
 *
 * Of each process a few numbers, out of /v1/stats (observe/watch.h); of a conductor the engines
 * that it knows are shown, too. What only grows is shown by the second.
 */
#include <inttypes.h>
#include <jansson.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "cli/ask.h"
#include "cli/output.h"
#include "cli/request_spans.h"

#define INTERVAL_MS 1000u
#define CELL_BYTES  48u
#define HOME_CLEAR  "\033[H\033[J"

const struct yb_cli_option yb_cli_top_options[] = {
    {"at", "ADDRESS,...", "ports to ask (127.0.0.1:14780); a conductor's engines, too"},
    {"once", NULL, "print one interval, and end"},
    {"interval", "MS", "how long one lasts (1000)"},
    {NULL, NULL, NULL},
};

/* clang-format off */
/* What is shown: name in JSON, heading, by the second, what divides it. The series that are added
 * up for it are below. */
#define NUMBERS(X)                                            \
    X(REQUESTS, "requests",  "requests",  false, 1.0)         \
    X(WAITING,  "waiting",   "waiting",   false, 1.0)         \
    X(ENDED,    "ended_s",   "ended/s",   true,  1.0)         \
    X(FAILED,   "failed_s",  "failed/s",  true,  1.0)         \
    X(GETS,     "gets_s",    "gets/s",    true,  1.0)         \
    X(PUTS,     "puts_s",    "puts/s",    true,  1.0)         \
    X(IN,       "in_mb_s",   "in MB/s",   true,  1e6)         \
    X(OUT,      "out_mb_s",  "out MB/s",  true,  1e6)         \
    X(MISS,     "miss",      "computed",  false, 1e6)         \
    X(P50,      "ttft_p50_ms", "ttft p50 ms", false, 1e6)     \
    X(P99,      "ttft_p99_ms", "p99",     false, 1e6)         \
    X(MAX,      "ttft_max_ms", "max",     false, 1e6)
/* clang-format on */

enum {
#define X(id, name, heading, rate, divisor) TOP_##id,
    NUMBERS(X)
#undef X
        TOP_COUNT
};

static const struct {
    const char *name;
    const char *heading;
    bool rate;
    double divisor;
} numbers[] = {
#define X(id, name, heading, rate, divisor) {name, heading, rate, divisor},
    NUMBERS(X)
#undef X
};

static const struct {
    const char *series;
    const char *label; /* Any of its values is this; NULL: all. */
    const char *member;
    int number;
} sources[] = {
    {"yuebing_engine_requests_running", NULL, "value", TOP_REQUESTS},
    {"yuebing_engine_requests_prefilling", NULL, "value", TOP_REQUESTS},
    {"yuebing_conductor_requests", NULL, "value", TOP_REQUESTS},
    {"yuebing_engine_requests_waiting", NULL, "value", TOP_WAITING},
    {"yuebing_engine_requests_ended_total", NULL, "value", TOP_ENDED},
    {"yuebing_conductor_decisions_total", NULL, "value", TOP_ENDED},
    {"yuebing_engine_requests_failed_total", NULL, "value", TOP_FAILED},
    {"yuebing_conductor_calls_refused_total", NULL, "value", TOP_FAILED},
    {"yuebing_node_gets_total", NULL, "value", TOP_GETS},
    {"yuebing_node_puts_total", NULL, "value", TOP_PUTS},
    {"yuebing_engine_loaded_bytes_total", NULL, "value", TOP_IN},
    {"yuebing_node_put_bytes_total", NULL, "value", TOP_IN},
    {"yuebing_engine_stored_bytes_total", NULL, "value", TOP_OUT},
    {"yuebing_node_get_bytes_total", NULL, "value", TOP_OUT},
    {"yuebing_engine_hit_ratio", "miss", "value", TOP_MISS},
    {"yuebing_engine_ttft_seconds", NULL, "p50", TOP_P50},
    {"yuebing_engine_ttft_seconds", NULL, "p99", TOP_P99},
    {"yuebing_engine_ttft_seconds", NULL, "max", TOP_MAX},
};

/* What one process said. */
struct sample {
    bool answered;
    bool has[TOP_COUNT];
    double values[TOP_COUNT];
    uint64_t now_ns;
    char kind[32];
    char name[64];
};

/* ---- asking ---------------------------------------------------------------------------------- */

static bool
has_label(const json_t *row, const char *wanted)
{
    const char *name;
    json_t *value;

    json_object_foreach(json_object_get(row, "labels"), name, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), wanted) == 0) {
            return true;
        }
    }
    return wanted == NULL;
}

static void
take_row(struct sample *sample, const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "name"));

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && name != NULL; i++) {
        if (strcmp(sources[i].series, name) == 0 &&
            (sources[i].label == NULL || has_label(row, sources[i].label))) {
            sample->values[sources[i].number] +=
                json_number_value(json_object_get(row, sources[i].member));
            sample->has[sources[i].number] = true;
        }
    }
}

static void
take_sample(const char *address, struct sample *sample_out)
{
    char error[YB_CURL_ERROR_BYTES];
    json_t *answer = NULL;
    const json_t *row;
    const char *kind, *name;
    size_t index;
    long code = 0;

    *sample_out = (struct sample){.answered = false};
    if (yb_ask(address, "/v1/stats", &code, &answer, error) == YB_OK && code == 200) {
        kind = json_string_value(json_object_get(json_object_get(answer, "process"), "kind"));
        name = json_string_value(json_object_get(json_object_get(answer, "process"), "name"));
        sample_out->answered = kind != NULL && name != NULL;
        sample_out->now_ns = (uint64_t)json_integer_value(json_object_get(answer, "now_ns"));
        (void)snprintf(sample_out->kind, sizeof(sample_out->kind), "%s", kind != NULL ? kind : "");
        (void)snprintf(sample_out->name, sizeof(sample_out->name), "%s", name != NULL ? name : "");
        json_array_foreach(json_object_get(answer, "stats"), index, row)
        {
            take_row(sample_out, row);
        }
    }
    json_decref(answer);
}

/* ---- showing --------------------------------------------------------------------------------- */

/* What is shown of a number; false: this process has none of that. */
static bool
shown(const struct sample *before, const struct sample *now, int number, double *value_out)
{
    double value = now->values[number];
    double seconds = (double)(now->now_ns - before->now_ns) / 1e9;

    if (!now->has[number]) {
        return false;
    }
    if (numbers[number].rate) {
        if (!before->answered || now->now_ns <= before->now_ns || value < before->values[number]) {
            return false; /* It has been started anew. */
        }
        value = (value - before->values[number]) / seconds;
    }
    *value_out = value / numbers[number].divisor;
    return true;
}

static json_t *
samples_json(const struct yb_request_spans *all, const struct sample *before,
             const struct sample *now)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < all->process_count; i++) {
        json_t *row = json_pack("{s:s, s:b, s:s, s:s}", "address", all->processes[i].address, "up",
                                now[i].answered, "kind", now[i].kind, "name", now[i].name);

        for (int number = 0; number < TOP_COUNT; number++) {
            double value;

            if (shown(&before[i], &now[i], number, &value)) {
                (void)json_object_set_new(row, numbers[number].name, json_real(value));
            }
        }
        (void)json_array_append_new(list, row);
    }
    return json_pack("{s:o}", "processes", list);
}

static bool
print_samples(struct yb_cli *cli, const struct yb_request_spans *all, const struct sample *before,
              const struct sample *now)
{
    const char *columns[TOP_COUNT + 1] = {"process"};
    struct yb_output_table *table = NULL;
    bool added;

    for (int number = 0; number < TOP_COUNT; number++) {
        columns[number + 1] = numbers[number].heading;
    }
    added = yb_output_table_create(columns, TOP_COUNT + 1, &table) == YB_OK;
    for (uint32_t i = 0; i < all->process_count && added; i++) {
        char cells[TOP_COUNT + 1][CELL_BYTES];
        const char *row[TOP_COUNT + 1];

        (void)snprintf(cells[0], CELL_BYTES, "%.15s %.30s",
                       now[i].answered ? now[i].kind : "no answer:",
                       now[i].answered ? now[i].name : all->processes[i].address);
        row[0] = cells[0];
        for (int number = 0; number < TOP_COUNT; number++) {
            double value;

            (void)snprintf(cells[number + 1], CELL_BYTES, "-");
            if (shown(&before[i], &now[i], number, &value)) {
                (void)snprintf(cells[number + 1], CELL_BYTES, "%.*f",
                               value != 0.0 && value < 100.0 ? 2 : 0, value);
            }
            row[number + 1] = cells[number + 1];
        }
        added = yb_output_table_add(table, row) == YB_OK;
    }
    if (added) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return added;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void
take_samples(const struct yb_request_spans *all, struct sample *samples)
{
    for (uint32_t i = 0; i < all->process_count; i++) {
        take_sample(all->processes[i].address, &samples[i]);
    }
}

/* Wait for the next interval. False: a signal says that it is enough. */
static bool
rest(const sigset_t *signals, uint64_t interval_ms)
{
    const struct timespec span = {
        .tv_sec = (time_t)(interval_ms / 1000),
        .tv_nsec = (long)(interval_ms % 1000 * 1000000),
    };

    return sigtimedwait(signals, NULL, &span) < 0;
}

static int
watch(struct yb_cli *cli, const struct yb_request_spans *all, uint64_t interval_ms)
{
    struct sample samples[2][YB_JOIN_PROCESSES_MAX];
    const bool once = yb_cli_option(cli, "once") != NULL;
    sigset_t signals;
    bool printed = true;
    uint32_t turn = 1;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    take_samples(all, samples[0]);
    while (printed && rest(&signals, interval_ms)) {
        const struct sample *before = samples[(turn + 1) % 2];
        struct sample *now = samples[turn % 2];

        take_samples(all, now);
        if (cli->json) {
            printed = yb_output_json(cli->out, samples_json(all, before, now)) == YB_OK;
        } else {
            fputs(cli->terminal && !once ? HOME_CLEAR : "", cli->out);
            printed = print_samples(cli, all, before, now);
        }
        printed = fflush(cli->out) == 0 && printed;
        if (once) {
            break;
        }
        turn++;
    }
    return printed ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_cli_top(struct yb_cli *cli, int argc, char **argv)
{
    const char *at = yb_cli_option(cli, "at");
    uint64_t interval_ms = INTERVAL_MS;
    struct yb_request_spans all;
    int code = YB_CLI_EXIT_REFUSED;

    (void)argc;
    (void)argv;
    if (yb_cli_option_number(cli, "interval", 100, 60000, &interval_ms) &&
        yb_request_spans_begin(cli, at != NULL ? at : YB_ASK_ADDRESS_DEFAULT, &all)) {
        code = watch(cli, &all, interval_ms);
        yb_request_spans_fini(&all);
    }
    return code;
}
