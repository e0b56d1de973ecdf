/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --window-sweep`: see sim/window_sweep.h.
 */
#include <inttypes.h>
#include <jansson.h>

#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/window_sweep.h"

#define ROWS_MAX         16u
#define REQUESTS_DEFAULT 10000u
#define SEEDS_MAX        1000u

struct sweep {
    struct yb_cli *cli;
    struct yb_window_row rows[ROWS_MAX];
    uint32_t late[ROWS_MAX]; /* Of all seeds, those after which it recovered too late. */
    uint32_t count;
    uint64_t requests;
    uint64_t seed;
    uint64_t seeds;
};

/* Run the row at `index` with each seed; what is shown of it is that with the first. */
static enum yb_status
run_row(struct sweep *sweep, uint32_t index, struct yb_output_progress *progress)
{
    enum yb_status status = YB_OK;

    for (uint64_t i = 0; i < sweep->seeds && status == YB_OK; i++) {
        struct yb_window_row row;

        status = yb_window_row_run(index, (uint32_t)sweep->requests, sweep->seed + i, &row);
        if (status == YB_OK) {
            sweep->rows[index] = i == 0 ? row : sweep->rows[index];
            sweep->late[index] += row.recovery > YB_WINDOW_RECOVERY;
            yb_output_progress_update(progress, index * sweep->seeds + i + 1);
        }
    }
    return status;
}

static enum yb_status
run(struct sweep *sweep)
{
    struct yb_output_progress progress;
    enum yb_status status = YB_OK;
    uint32_t all = 0;

    while (yb_window_row_name(all) != NULL && all < ROWS_MAX) {
        all++;
    }
    yb_output_progress_begin(&progress, sweep->cli->err, sweep->cli->terminal, yb_clock_system(),
                             "changes of the world", all * sweep->seeds);
    while (sweep->count < all && status == YB_OK) {
        status = run_row(sweep, sweep->count, &progress);
        sweep->count += status == YB_OK;
    }
    yb_output_progress_end(&progress);
    return status;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *
times_json(const struct yb_window_times *times)
{
    return json_pack("{s:f,s:f,s:f}", "p50_ms", times->p50_ns / 1e6, "p95_ms", times->p95_ns / 1e6,
                     "p99_ms", times->p99_ns / 1e6);
}

/* Half of a row. */
static json_t *
half_json(const struct yb_window_row *row, uint32_t half)
{
    const struct yb_window_world *world = &row->worlds[half];
    const struct yb_window_times *best = &row->fixed[half][row->best[half]];
    const struct yb_window_times *steered = &row->steered[half];
    json_t *fixed = json_array();

    for (uint32_t i = 0; i < YB_WINDOW_SIZES; i++) {
        json_t *one = times_json(&row->fixed[half][i]);

        (void)json_object_set_new(one, "window", json_integer(yb_window_size(i)));
        (void)json_array_append_new(fixed, one);
    }
    return json_pack("{s:f,s:f,s:f,s:o,s:I,s:I,s:o,s:f,s:f}", "latency_ms", world->latency_ns / 1e6,
                     "jitter", world->jitter, "hit", world->hit, "fixed", fixed, "best_window",
                     (json_int_t)yb_window_size(row->best[half]), "landed",
                     (json_int_t)row->landed[half], "steered", times_json(steered), "p95_ratio",
                     steered->p95_ns / best->p95_ns, "p99_ratio", steered->p99_ns / best->p99_ns);
}

static enum yb_status
print_json(const struct sweep *sweep)
{
    json_t *rows = json_array();
    uint32_t ok = 0;

    for (uint32_t i = 0; i < sweep->count; i++) {
        const struct yb_window_row *row = &sweep->rows[i];

        ok += row->ok;
        (void)json_array_append_new(
            rows,
            json_pack("{s:s,s:o,s:o,s:I,s:I,s:b}", "change", row->name, "before", half_json(row, 0),
                      "after", half_json(row, 1), "recovery_requests", (json_int_t)row->recovery,
                      "seeds_late", (json_int_t)sweep->late[i], "ok", (int)row->ok));
    }
    return yb_output_json(sweep->cli->out, json_pack("{s:i,s:i,s:I,s:o}", "rows_ok", (int)ok,
                                                     "rows_all", (int)sweep->count, "seeds",
                                                     (json_int_t)sweep->seeds, "rows", rows));
}

/* ---- as tables ------------------------------------------------------------------------------- */

static const char *const halves[YB_WINDOW_HALVES] = {"before", "after"};

/* The U: P95 by fixed window, of each half. */
static bool
add_fixed(struct yb_output_table *table, const struct yb_window_row *row, uint32_t half)
{
    char cells[YB_WINDOW_SIZES][24];
    const char *texts[YB_WINDOW_SIZES + 2] = {row->name, halves[half]};

    for (uint32_t i = 0; i < YB_WINDOW_SIZES; i++) {
        snprintf(cells[i], sizeof(cells[i]), "%.0f%s", row->fixed[half][i].p95_ns / 1e6,
                 i == row->best[half] ? "*" : "");
        texts[i + 2] = cells[i];
    }
    return yb_output_table_add(table, texts) == YB_OK;
}

static bool
add_steered(struct yb_output_table *table, const struct yb_window_row *row, uint32_t half)
{
    const struct yb_window_times *best = &row->fixed[half][row->best[half]];
    const struct yb_window_times *steered = &row->steered[half];
    char cells[7][24];

    snprintf(cells[0], sizeof(cells[0]), "%" PRIu32, yb_window_size(row->best[half]));
    snprintf(cells[1], sizeof(cells[1]), "%" PRIu32, row->landed[half]);
    snprintf(cells[2], sizeof(cells[2]), "%.0f", steered->p95_ns / 1e6);
    snprintf(cells[3], sizeof(cells[3]), "%.3f", steered->p95_ns / best->p95_ns);
    snprintf(cells[4], sizeof(cells[4]), "%.0f", steered->p99_ns / 1e6);
    snprintf(cells[5], sizeof(cells[5]), "%.3f", steered->p99_ns / best->p99_ns);
    snprintf(cells[6], sizeof(cells[6]), "%" PRIu32, row->recovery);
    return yb_output_table_add(
               table, (const char *const[]){row->name, halves[half], cells[0], cells[1], cells[2],
                                            cells[3], cells[4], cells[5], half == 0 ? "" : cells[6],
                                            half == 0 ? "" : (row->ok ? "yes" : "NO")}) == YB_OK;
}

/* Print one table; `add` adds half of a row. */
static bool
print_table(const struct sweep *sweep, const char *const *columns, unsigned count,
            bool (*add)(struct yb_output_table *, const struct yb_window_row *, uint32_t))
{
    struct yb_output_table *table;
    bool ok = true;

    if (yb_output_table_create(columns, count, &table) != YB_OK) {
        return false;
    }
    for (uint32_t i = 0; i < sweep->count * YB_WINDOW_HALVES && ok; i++) {
        ok = add(table, &sweep->rows[i / YB_WINDOW_HALVES], i % YB_WINDOW_HALVES);
    }
    if (ok) {
        yb_output_table_print(table, sweep->cli->out, sweep->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return ok;
}

static enum yb_status
print_tables(const struct sweep *sweep)
{
    static const char *const steered[] = {"change",  "",    "best",      "landed",   "p95 ms",
                                          "of best", "p99", "of best's", "recovery", "ok"};
    const char *fixed[YB_WINDOW_SIZES + 2] = {"change", "P95, ms, by window"};
    char sizes[YB_WINDOW_SIZES][12];

    for (uint32_t i = 0; i < YB_WINDOW_SIZES; i++) {
        snprintf(sizes[i], sizeof(sizes[i]), "%" PRIu32, yb_window_size(i));
        fixed[i + 2] = sizes[i];
    }
    if (!print_table(sweep, fixed, YB_WINDOW_SIZES + 2, add_fixed)) {
        return YB_NO_MEMORY;
    }
    fputs("\nthe controller\n\n", sweep->cli->out);
    if (!print_table(sweep, steered, 10, add_steered)) {
        return YB_NO_MEMORY;
    }
    fprintf(sweep->cli->out,
            "\nrecovered later than after %u requests, of %" PRIu64 " seeds:", YB_WINDOW_RECOVERY,
            sweep->seeds);
    for (uint32_t i = 0; i < sweep->count; i++) {
        fprintf(sweep->cli->out, "%s %s %" PRIu32, i == 0 ? "" : ",", sweep->rows[i].name,
                sweep->late[i]);
    }
    fputs("\n", sweep->cli->out);
    return YB_OK;
}

int
yb_simulate_window_sweep(struct yb_cli *cli)
{
    struct sweep sweep = {.cli = cli, .requests = REQUESTS_DEFAULT, .seed = 1, .seeds = 1};
    enum yb_status status;

    if (!yb_cli_option_number(cli, "requests", 2 * YB_WINDOW_SETTLE, YB_WINDOW_REQUESTS_MAX,
                              &sweep.requests) ||
        !yb_cli_option_number(cli, "seed", 0, UINT64_MAX - 1 - SEEDS_MAX, &sweep.seed) ||
        !yb_cli_option_number(cli, "seeds", 1, SEEDS_MAX, &sweep.seeds)) {
        return YB_CLI_EXIT_REFUSED;
    }
    status = run(&sweep);
    if (status == YB_OK) {
        status = cli->json ? print_json(&sweep) : print_tables(&sweep);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n", yb_status_text(status));
    }
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}
