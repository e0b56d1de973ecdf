/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/demo.h"
#include "cli/output.h"

#define CELL_BYTES 48u
#define BUSY       0.7 /* From here on times are noise. */

static const char *const tiers[YB_DEMO_TIERS] = {"device", "dram", "ssd", "object"};

/* ---- cells ----------------------------------------------------------------------------------- */

typedef void cell_function(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
                           char cell_out[CELL_BYTES]);

static const struct yb_demo_column *
column_of(const struct yb_demo_report *report, uint32_t index)
{
    return &report->columns[index];
}

/* Mean TTFT over that of the column beside. */
static double
ratio_of(const struct yb_demo_report *report, uint32_t index)
{
    double other = report->columns[report->beside[index]].ttft_mean_ns;

    return other > 0 ? report->columns[index].ttft_mean_ns / other : 0;
}

static void
cell_answered(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
              char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    (void)argument;
    (void)snprintf(cell_out, CELL_BYTES, "%u of %u", column->answered, column->asked);
}

static void
cell_hit(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
         char cell_out[CELL_BYTES])
{
    (void)snprintf(cell_out, CELL_BYTES, "%.1f", column_of(report, index)->hit[argument] * 100);
}

/* `argument`: permille of the requests. */
static void
cell_ttft(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
          char cell_out[CELL_BYTES])
{
    (void)snprintf(cell_out, CELL_BYTES, "%.0f",
                   (double)yb_demo_ttft(column_of(report, index), argument / 1000.0) / 1e6);
}

static void
cell_mean(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
          char cell_out[CELL_BYTES])
{
    (void)argument;
    (void)snprintf(cell_out, CELL_BYTES, "%.0f", column_of(report, index)->ttft_mean_ns / 1e6);
}

static void
cell_ratio(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
           char cell_out[CELL_BYTES])
{
    (void)argument;
    (void)snprintf(cell_out, CELL_BYTES, ratio_of(report, index) > 0 ? "%.2f" : "-",
                   ratio_of(report, index));
}

static void
cell_saved(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
           char cell_out[CELL_BYTES])
{
    (void)argument;
    (void)snprintf(cell_out, CELL_BYTES, "%.0f", column_of(report, index)->saved_s);
}

static void
bytes_cell(uint64_t bytes, double seconds, char cell_out[CELL_BYTES])
{
    if (bytes == 0) {
        (void)snprintf(cell_out, CELL_BYTES, "-");
    } else {
        (void)snprintf(cell_out, CELL_BYTES, "%.0f at %.0f", (double)bytes / 1e6,
                       seconds > 0 ? (double)bytes / 1e6 / seconds : 0);
    }
}

static void
cell_loaded(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
            char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    bytes_cell(column->tier_bytes[argument], (double)column->tier_busy_ns[argument] / 1e9,
               cell_out);
}

static void
cell_pulled(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
            char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    (void)argument;
    bytes_cell(column->pulled_bytes, (double)column->pull_us / 1e6, cell_out);
}

static void
cell_stored(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
            char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    (void)argument;
    bytes_cell(column->stored_bytes, column->span_s, cell_out);
}

static void
cell_orders(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
            char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);
    const struct yb_demo_moves *moves = argument == 0 ? &column->fetches : &column->streams;

    (void)snprintf(cell_out, CELL_BYTES, "%" PRIu64 " / %" PRIu64 " / %" PRIu64, moves->in_time,
                   moves->late, moves->otherwise);
}

static void
cell_ready(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
           char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);
    double said = argument == 0 ? (double)column->load_predicted_us : column->ttft_predicted_ns;
    double took = argument == 0 ? (double)column->load_us : column->ttft_measured_ns;

    (void)snprintf(cell_out, CELL_BYTES, took > 0 ? "%.2f" : "-", took > 0 ? said / took : 0);
}

static void
cell_verified(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
              char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    if (argument == 0) {
        (void)snprintf(cell_out, CELL_BYTES, "%.0f", (double)column->verified_bytes / 1e6);
    } else {
        (void)snprintf(cell_out, CELL_BYTES, "%" PRIu64, column->wrong_bytes);
    }
}

/* What failing cost: requests that were asked again; links that were cut. */
static void
cell_chaos(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
           char cell_out[CELL_BYTES])
{
    const struct yb_demo_column *column = column_of(report, index);

    (void)snprintf(cell_out, CELL_BYTES, "%" PRIu64,
                   argument == 0 ? column->retried : column->links_cut);
}

static void
cell_busy(const struct yb_demo_report *report, uint32_t index, uint32_t argument,
          char cell_out[CELL_BYTES])
{
    (void)argument;
    (void)snprintf(cell_out, CELL_BYTES, "%.0f", column_of(report, index)->cpu_busy * 100);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    cell_function *cell;
    uint32_t argument;
} rows[] = {
    {"requests answered", cell_answered, 0},
    {"hit, device, % of tokens", cell_hit, YB_SCHED_TIER_DEVICE},
    {"hit, dram", cell_hit, YB_SCHED_TIER_DRAM},
    {"hit, ssd", cell_hit, YB_SCHED_TIER_SSD},
    {"hit, object store", cell_hit, YB_SCHED_TIER_OBJECT},
    {"TTFT P50, ms", cell_ttft, 500},
    {"TTFT P95", cell_ttft, 950},
    {"TTFT P99", cell_ttft, 990},
    {"TTFT max", cell_ttft, 1000},
    {"TTFT mean", cell_mean, 0},
    {"  over own caches (chaos, conductors: the pool)", cell_ratio, 0},
    {"prefill saved, s", cell_saved, 0},
    {"from dram, MB at MB/s", cell_loaded, YB_SCHED_TIER_DRAM},
    {"from ssd", cell_loaded, YB_SCHED_TIER_SSD},
    {"from the object store", cell_loaded, YB_SCHED_TIER_OBJECT},
    {"handed over", cell_pulled, 0},
    {"stored", cell_stored, 0},
    {"fetches in time / late / else", cell_orders, 0},
    {"hand-overs in time / late / else", cell_orders, 1},
    {"load, predicted / took", cell_ready, 0},
    {"TTFT, predicted / took", cell_ready, 1},
    {"verified, MB", cell_verified, 0},
    {"wrong bytes", cell_verified, 1},
    {"asked again", cell_chaos, 0},
    {"links cut", cell_chaos, 1},
    {"CPU busy, %", cell_busy, 0},
};

static bool
add_row(struct yb_output_table *table, const struct yb_demo_report *report, size_t row)
{
    char texts[YB_DEMO_COLUMNS][CELL_BYTES];
    const char *cells[YB_DEMO_COLUMNS + 1] = {rows[row].name};
    uint32_t count = 1;

    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        if (report->columns[i].asked > 0) {
            rows[row].cell(report, i, rows[row].argument, texts[i]);
            cells[count++] = texts[i];
        }
    }
    return yb_output_table_add(table, cells) == YB_OK;
}

static void
print_header(const struct yb_demo_report *report, FILE *out)
{
    const struct yb_demo_header *header = &report->header;

    fprintf(out, "\nworkload  %s\n", header->workload);
    fprintf(
        out,
        "scales    computing takes 1/%.0f of the model's time; a block of %u tokens has %" PRIu64
        " KiB instead of %" PRIu64 " MiB (1/%.0f)\n",
        1 / header->time_scale, header->block_tokens, header->block_bytes >> 10,
        header->model_bytes >> 20, (double)header->model_bytes / (double)header->block_bytes);
    fprintf(
        out,
        "targets   a first token within %.1f s, each further one within %.0f ms (the model's %u s "
        "and %u ms)\n",
        (double)header->model_ttft_ms * header->time_scale / 1e3,
        (double)header->model_pace_ms * header->time_scale, header->model_ttft_ms / 1000,
        header->model_pace_ms);
    fprintf(
        out,
        "machine   %u processors; the object store is a folder whose requests begin %u ms later; "
        "all times are the wall clock's\n\n",
        header->processors, header->far_ms);
}

bool
yb_demo_print(const struct yb_demo_report *report, const struct yb_cli *cli)
{
    const char *heads[YB_DEMO_COLUMNS + 1] = {""};
    uint32_t count = 1;
    struct yb_output_table *table = NULL;
    double busy = 0;
    bool done;

    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        if (report->columns[i].asked > 0) {
            heads[count++] = report->columns[i].name;
            busy = report->columns[i].cpu_busy > busy ? report->columns[i].cpu_busy : busy;
        }
    }
    print_header(report, cli->out);
    done = yb_output_table_create(heads, count, &table) == YB_OK;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && done; i++) {
        done = add_row(table, report, i);
    }
    if (done) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    if (busy > BUSY) {
        fprintf(cli->out,
                "\nThe processors were %.0f %% busy: the times of this run are noise; bytes and "
                "counts are not.\n",
                busy * 100);
    }
    return done;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *
by_tier(const uint64_t numbers[YB_DEMO_TIERS])
{
    json_t *object = json_object();

    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        (void)json_object_set_new(object, tiers[i], json_integer((json_int_t)numbers[i]));
    }
    return object;
}

static json_t *
moves_json(const struct yb_demo_moves *moves)
{
    return json_pack("{s:I, s:I, s:I}", "in_time", (json_int_t)moves->in_time, "late",
                     (json_int_t)moves->late, "otherwise", (json_int_t)moves->otherwise);
}

static json_t *
counts_json(const struct yb_demo_column *column)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"asked", column->asked},
        {"answered", column->answered},
        {"retried", column->retried},
        {"prompt_tokens", column->prompt_tokens},
        {"pulled_bytes", column->pulled_bytes},
        {"stored_bytes", column->stored_bytes},
        {"verified_bytes", column->verified_bytes},
        {"wrong_bytes", column->wrong_bytes},
        {"load_failures", column->load_failures},
        {"store_failures", column->store_failures},
        {"dropped_stores", column->dropped_stores},
        {"instructions_issued", column->issued},
        {"instructions_terminal", column->terminal},
        {"instructions_open", column->open},
        {"instructions_watched", column->watched},
        {"links_cut", column->links_cut},
        {"memory_bytes", column->memory_bytes},
    };
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        (void)json_object_set_new(object, counts[i].name,
                                  json_integer((json_int_t)counts[i].value));
    }
    return object;
}

static json_t *
column_json(const struct yb_demo_report *report, uint32_t index)
{
    const struct yb_demo_column *column = &report->columns[index];
    json_t *object = counts_json(column);
    json_t *hits = json_object();
    json_t *decisions = json_array(); /* Of each conductor. */

    for (uint32_t i = 0; i < YB_DEMO_TIERS; i++) {
        (void)json_object_set_new(hits, tiers[i], json_real(column->hit[i]));
    }
    for (uint32_t i = 0; i < column->conductors; i++) {
        (void)json_array_append_new(decisions, json_integer((json_int_t)column->decisions[i]));
    }
    (void)json_object_set_new(object, "name", json_string(column->name));
    (void)json_object_set_new(object, "decisions", decisions);
    (void)json_object_set_new(object, "hit_ratio", hits);
    (void)json_object_set_new(
        object, "ttft_ms",
        json_pack("{s:f, s:f, s:f, s:f, s:f}", "p50", (double)yb_demo_ttft(column, 0.5) / 1e6,
                  "p95", (double)yb_demo_ttft(column, 0.95) / 1e6, "p99",
                  (double)yb_demo_ttft(column, 0.99) / 1e6, "max",
                  (double)yb_demo_ttft(column, 1) / 1e6, "mean", column->ttft_mean_ns / 1e6));
    if (ratio_of(report, index) > 0) { /* There is a column beside. */
        (void)json_object_set_new(object, "beside",
                                  json_string(report->columns[report->beside[index]].name));
        (void)json_object_set_new(object, "ttft_over_beside", json_real(ratio_of(report, index)));
    }
    (void)json_object_set_new(object, "prefill_saved_s", json_real(column->saved_s));
    (void)json_object_set_new(object, "tier_bytes", by_tier(column->tier_bytes));
    (void)json_object_set_new(object, "tier_busy_ns", by_tier(column->tier_busy_ns));
    (void)json_object_set_new(object, "load_us",
                              json_pack("{s:I, s:I}", "predicted",
                                        (json_int_t)column->load_predicted_us, "took",
                                        (json_int_t)column->load_us));
    (void)json_object_set_new(object, "ttft_sum_ms",
                              json_pack("{s:f, s:f}", "predicted", column->ttft_predicted_ns / 1e6,
                                        "took", column->ttft_measured_ns / 1e6));
    (void)json_object_set_new(object, "fetches", moves_json(&column->fetches));
    (void)json_object_set_new(object, "hand_overs", moves_json(&column->streams));
    (void)json_object_set_new(object, "span_s", json_real(column->span_s));
    (void)json_object_set_new(object, "cpu_busy", json_real(column->cpu_busy));
    return object;
}

json_t *
yb_demo_json(const struct yb_demo_report *report)
{
    const struct yb_demo_header *header = &report->header;
    json_t *columns = json_array();
    uint64_t verified = 0, wrong = 0;

    for (uint32_t i = 0; i < YB_DEMO_COLUMNS; i++) {
        if (report->columns[i].asked > 0) {
            (void)json_array_append_new(columns, column_json(report, i));
        }
        verified += report->columns[i].verified_bytes;
        wrong += report->columns[i].wrong_bytes;
    }
    return json_pack("{s:s, s:f, s:I, s:I, s:i, s:i, s:f, s:I, s:I, s:o}", "workload",
                     header->workload, "time_scale", header->time_scale, "block_bytes",
                     (json_int_t)header->block_bytes, "model_block_bytes",
                     (json_int_t)header->model_bytes, "block_tokens", (int)header->block_tokens,
                     "object_latency_ms", (int)header->far_ms, "took_s", report->took_s,
                     "verified_bytes", (json_int_t)verified, "wrong_bytes", (json_int_t)wrong,
                     "columns", columns);
}
