/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing bench store`: the store beside what the machine can do, in the same run.
 */
#include "cli/bench_store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_ceilings.h"
#include "cli/bench_flow.h"
#include "cli/output.h"

#define ROWS_MAX       128u
#define ROUNDS_MAX     99u
#define CELL_BYTES     32u
#define OBJECT_BYTES   (2ull << 20) /* What is cut into fragments. */
#define SMALL_BYTES    4096u        /* What latency is measured with. */
#define BATCH_BYTES    (64ull << 20)
#define PING_BYTES     64u
#define PULL_BYTES_MIN 16384u /* Less goes in frames. */
/* As the loops of a default configuration: how long they ask without sleeping. */
#define SPIN_NS (50 * YB_NS_PER_US)

/* What a row is held against. */
enum against {
    AGAINST_COPY,      /* Memory copy on one core, same size. */
    AGAINST_PULL,      /* How a node may read another process (RULES A4): process_vm_readv. */
    AGAINST_SOCKETS,   /* Bare sockets, one connection, same size. */
    AGAINST_PING_BUSY, /* A message there and back, polling before it sleeps: microseconds. */
    AGAINST_ROW,       /* The same object in one piece. */
    AGAINST_NOTHING,
};

struct row {
    struct yb_bench_store_flow flow;
    bool shared; /* The client may use shared memory. */
    enum against against;
    uint32_t base; /* AGAINST_ROW: which. */
    const char *note;
    bool local; /* It did. */
    double gbps[ROUNDS_MAX];
    double ops_per_s[ROUNDS_MAX];
    double p50_us[ROUNDS_MAX];
    double p99_us[ROUNDS_MAX];
    double cpu_s_per_gb[ROUNDS_MAX];
    double cpu_us_per_op[ROUNDS_MAX];
    double node_us_per_op[ROUNDS_MAX];
    double ceiling[ROUNDS_MAX];
};

struct bench {
    struct yb_cli *cli;
    uint64_t rounds;
    uint64_t run_ns;
    bool tcp;
    bool shm;
    bool device;
    bool ops[YB_BENCH_STORE_OPS]; /* Which are measured. */
    uint32_t size_count;
    uint64_t sizes[YB_BENCH_LIST_MAX];
    uint32_t batch_count;
    uint64_t batches[YB_BENCH_LIST_MAX];
    uint32_t fragment_count;
    uint64_t fragments[YB_BENCH_LIST_MAX];
    struct yb_bench_pair pair;       /* For the ceilings. */
    struct yb_bench_store stores[2]; /* Without and with shared memory. */
    uint32_t row_count;
    struct row rows[ROWS_MAX];
};

static const char *const op_names[YB_BENCH_STORE_OPS] = {"put", "get", "exist", "pin"};

/* ---- the command line ------------------------------------------------------------------------ */

static bool
read_path(struct bench *bench)
{
    struct yb_cli *cli = bench->cli;
    const char *path = yb_cli_option(cli, "path");

    path = path != NULL ? path : "auto";
    bench->tcp = strcmp(path, "tcp") == 0 || strcmp(path, "auto") == 0;
    bench->shm = strcmp(path, "shm") == 0 || strcmp(path, "auto") == 0;
    bench->device = yb_cli_option(cli, "device") != NULL;
    if (!bench->tcp && !bench->shm) {
        fprintf(cli->err, "yuebing bench store: --path is tcp, shm or auto; not `%s`\n", path);
        return false;
    }
    return true;
}

static bool
read_op(struct bench *bench)
{
    const char *text = yb_cli_option(bench->cli, "op");
    bool all = text == NULL || strcmp(text, "all") == 0;
    bool found = all;

    for (uint32_t op = 0; op < YB_BENCH_STORE_OPS; op++) {
        bench->ops[op] = all || strcmp(text, op_names[op]) == 0;
        found = found || bench->ops[op];
    }
    if (!found) {
        fprintf(bench->cli->err,
                "yuebing bench store: --op is put, get, exist, pin or all; not `%s`\n", text);
    }
    return found;
}

static bool
read_plan(struct bench *bench)
{
    struct yb_cli *cli = bench->cli;
    uint64_t run_ms = 300;

    bench->rounds = 5;
    bench->size_count = 3;
    bench->sizes[0] = SMALL_BYTES;
    bench->sizes[1] = 64 << 10;
    bench->sizes[2] = 1 << 20;
    bench->batch_count = 3;
    bench->batches[0] = 1;
    bench->batches[1] = 16;
    bench->batches[2] = 64;
    bench->fragment_count = 3;
    bench->fragments[0] = 1;
    bench->fragments[1] = 64;
    bench->fragments[2] = 512;
    if (!read_path(bench) || !read_op(bench) ||
        !yb_bench_list_read(cli, "sizes", BATCH_BYTES, bench->sizes, &bench->size_count) ||
        !yb_bench_list_read(cli, "batch", YB_BENCH_STORE_BATCH_MAX, bench->batches,
                            &bench->batch_count) ||
        !yb_bench_list_read(cli, "fragments", 512, bench->fragments, &bench->fragment_count) ||
        !yb_cli_option_number(cli, "rounds", 1, ROUNDS_MAX, &bench->rounds) ||
        !yb_cli_option_number(cli, "run-ms", 10, 60000, &run_ms)) {
        return false;
    }
    for (uint32_t i = 0; i < bench->size_count; i++) {
        if (bench->sizes[i] % 8 != 0) {
            fprintf(cli->err, "yuebing bench store: --sizes are multiples of 8; not %llu\n",
                    (unsigned long long)bench->sizes[i]);
            return false;
        }
    }
    bench->run_ns = run_ms * YB_NS_PER_MS;
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Return a new row; NULL: no room. */
static struct row *
add_row(struct bench *bench, bool shared, enum yb_bench_store_op op, uint64_t size, uint64_t batch)
{
    struct row *row = &bench->rows[bench->row_count];

    if (bench->row_count == ROWS_MAX) {
        return NULL;
    }
    bench->row_count++;
    row->shared = shared;
    row->flow = (struct yb_bench_store_flow){
        .op = op,
        .size = size,
        .fragments = 1,
        .batch = (uint32_t)batch,
        .run_ns = bench->run_ns,
    };
    if (op >= YB_BENCH_STORE_EXIST) {
        row->against = AGAINST_NOTHING;
        row->note = op == YB_BENCH_STORE_PIN ? "each pin with its release" : "";
    } else if (batch == 1 && size <= SMALL_BYTES) {
        row->against = AGAINST_PING_BUSY;
        row->note = "bare ping-pong that polls 50 us, then sleeps";
    } else if (shared && !bench->device && op == YB_BENCH_STORE_PUT && size >= PULL_BYTES_MIN) {
        row->against = AGAINST_PULL;
        row->note = "one process_vm_readv, same size, out of ordinary memory";
    } else if (shared && !bench->device) {
        row->against = AGAINST_COPY;
        row->note = "memory copy on one core, same size, from shared memory";
    } else {
        row->against = AGAINST_SOCKETS;
        row->note = "bare sockets, one connection, same size";
    }
    return row;
}

/* An object cut into fragments, beside the same object in one piece. */
static bool
add_fragments(struct bench *bench, bool shared, enum yb_bench_store_op op)
{
    uint32_t base = bench->row_count;
    const uint64_t batch = 16;

    if (bench->fragment_count == 1 && bench->fragments[0] == 1) {
        return true;
    }
    if (add_row(bench, shared, op, OBJECT_BYTES, batch) == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < bench->fragment_count; i++) {
        uint32_t fragments = (uint32_t)bench->fragments[i];
        struct row *row;

        if (fragments == 1 || OBJECT_BYTES % fragments != 0 || OBJECT_BYTES / fragments % 8 != 0) {
            continue;
        }
        row = add_row(bench, shared, op, OBJECT_BYTES, batch);
        if (row == NULL) {
            return false;
        }
        row->flow.fragments = fragments;
        row->against = AGAINST_ROW;
        row->base = base;
        row->note = "the same object in one piece";
    }
    return true;
}

static bool
add_path(struct bench *bench, bool shared)
{
    static const enum yb_bench_store_op moving[] = {YB_BENCH_STORE_PUT, YB_BENCH_STORE_GET};
    bool ok = true;

    for (uint32_t o = 0; ok && o < 2; o++) {
        for (uint32_t i = 0; ok && bench->ops[moving[o]] && i < bench->size_count; i++) {
            for (uint32_t k = 0; ok && k < bench->batch_count; k++) {
                ok = bench->sizes[i] * bench->batches[k] > BATCH_BYTES ||
                     add_row(bench, shared, moving[o], bench->sizes[i], bench->batches[k]) != NULL;
            }
        }
        ok = ok && (!bench->ops[moving[o]] || add_fragments(bench, shared, moving[o]));
    }
    for (uint32_t k = 0; ok && k <= bench->batch_count; k++) {
        /* Beside what was asked for, what they come to when no round trip is waited for. */
        uint64_t batch = k < bench->batch_count ? bench->batches[k] : YB_BENCH_STORE_BATCH_MAX;

        if (batch * SMALL_BYTES > BATCH_BYTES) {
            continue;
        }
        ok = !bench->ops[YB_BENCH_STORE_EXIST] ||
             add_row(bench, shared, YB_BENCH_STORE_EXIST, SMALL_BYTES, batch) != NULL;
        ok = ok && (!bench->ops[YB_BENCH_STORE_PIN] || !shared ||
                    add_row(bench, shared, YB_BENCH_STORE_PIN, SMALL_BYTES, batch) != NULL);
    }
    return ok;
}

static bool
make_rows(struct bench *bench)
{
    return (!bench->shm || add_path(bench, true)) && (!bench->tcp || add_path(bench, false));
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Measure what a row is held against. */
static bool
measure_ceiling(struct bench *bench, struct row *row, uint64_t round)
{
    struct yb_bench_pair *pair = &bench->pair;
    struct yb_bench_sockets sockets = {.count = pair->target.socket_count};
    struct yb_bench_raw raw = {
        .sockets = &sockets,
        .buffer = pair->own.buffer,
        .streams = 1,
        .size = row->flow.size,
        .run_ns = row->flow.run_ns,
    };
    const struct yb_bench_copy copy = {
        .size = row->flow.size,
        .threads = 1,
        .run_ns = row->flow.run_ns,
    };
    struct yb_bench_times times;
    double *ceiling = &row->ceiling[round];

    memcpy(sockets.fds, pair->target.sockets, sizeof(sockets.fds));
    switch (row->against) {
    case AGAINST_COPY: return yb_bench_pair_copy(pair, &copy, ceiling);
    case AGAINST_PULL:
        return yb_bench_ceiling_process_vm(&pair->target, pair->own.buffer, row->flow.size, 1,
                                           row->flow.run_ns, ceiling);
    case AGAINST_SOCKETS:
        return yb_bench_ceiling_sockets(&pair->target, &raw, row->flow.op == YB_BENCH_STORE_GET,
                                        ceiling);
    case AGAINST_PING_BUSY:
        raw.size = PING_BYTES;
        raw.spin_ns = SPIN_NS;
        if (!yb_bench_ceiling_ping(&pair->target, &raw, &times)) {
            return false;
        }
        *ceiling = times.p50_us;
        return true;
    case AGAINST_ROW: *ceiling = bench->rows[row->base].gbps[round]; return true;
    case AGAINST_NOTHING: break;
    }
    return true;
}

static bool
measure_row(struct bench *bench, struct row *row, uint64_t round)
{
    struct yb_bench_store_result result = {0};

    if (!measure_ceiling(bench, row, round) ||
        !yb_bench_store_run(&bench->stores[row->shared], &row->flow, &result)) {
        return false;
    }
    row->local = row->local || result.local;
    row->gbps[round] = result.gbps;
    row->ops_per_s[round] = result.ops_per_s;
    row->p50_us[round] = result.p50_us;
    row->p99_us[round] = result.p99_us;
    row->cpu_s_per_gb[round] = result.cpu_s_per_gb;
    row->cpu_us_per_op[round] = result.cpu_us_per_op;
    row->node_us_per_op[round] = result.node_us_per_op;
    return true;
}

static bool
measure_all(struct bench *bench)
{
    struct yb_output_progress progress;
    uint64_t done = 0;
    bool ok = true;

    yb_output_progress_begin(&progress, bench->cli->err, bench->cli->terminal, yb_clock_system(),
                             "measuring", bench->rounds * bench->row_count);
    for (uint64_t round = 0; ok && round < bench->rounds; round++) {
        for (uint32_t i = 0; ok && i < bench->row_count; i++) {
            ok = measure_row(bench, &bench->rows[i], round);
            yb_output_progress_update(&progress, ++done);
        }
    }
    yb_output_progress_end(&progress);
    return ok;
}

/* All other processes first: they are forked before this one has threads. */
static bool
open_all(struct bench *bench)
{
    const struct yb_config *config = &bench->cli->config;
    bool ok;

    bench->pair.options = (struct yb_bench_target_options){
        .streams = 1,
        .paths = YB_TRANSFER_PATH_TCP,
        .congestion = strcmp(config->net_congestion, "system") == 0 ? NULL : config->net_congestion,
    };
    ok = yb_bench_target_open(&bench->pair.options, &bench->pair.target) &&
         (!bench->tcp || yb_bench_store_start(config, &bench->stores[0])) &&
         (!bench->shm || yb_bench_store_start(config, &bench->stores[1])) &&
         yb_bench_pair_open(&bench->pair);
    return ok && (!bench->tcp || yb_bench_store_open(&bench->stores[0], false, bench->device)) &&
           (!bench->shm || yb_bench_store_open(&bench->stores[1], true, bench->device));
}

/* Where nothing is lent there is no path shm: `auto` leaves its rows out. */
static bool
check_path(struct bench *bench)
{
    enum yb_status status = bench->shm ? yb_bench_store_try_pin(&bench->stores[1]) : YB_OK;

    if (status == YB_UNSUPPORTED && bench->tcp) {
        fprintf(bench->cli->err, "yuebing bench store: no path shm here; see `yuebing doctor`\n");
        bench->shm = false;
        return true;
    }
    if (status != YB_OK) {
        fprintf(bench->cli->err,
                "yuebing bench store: no path shm: %s; see `yuebing doctor`, or give --path tcp\n",
                yb_status_text(status));
    }
    return status == YB_OK;
}

static bool
check_device(const struct bench *bench)
{
    char why[256] = "";

    if (bench->device && !yb_bench_device_found(why, sizeof(why))) {
        fprintf(bench->cli->err,
                "yuebing bench store: --device: there is no device to measure: %s\n", why);
        return false;
    }
    return true;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The medians of a row, which sort it; ratio is the median of the rounds' ratios, each of one
 * moment, and so comes first. */
struct figures {
    double ratio;
    double gbps;
    double ops_per_s;
    double p50_us;
    double p99_us;
    double cpu_s_per_gb;
    double cpu_us_per_op;
    double node_us_per_op;
    double ceiling;
};

static struct figures
figures_of(struct row *row, uint64_t rounds)
{
    double ratios[ROUNDS_MAX];
    struct figures figures;

    for (uint64_t i = 0; i < rounds; i++) {
        double ours = row->against == AGAINST_PING_BUSY ? row->p50_us[i] : row->gbps[i];

        ratios[i] = row->ceiling[i] > 0 ? ours / row->ceiling[i] : 0;
    }
    figures.ratio = yb_bench_median(ratios, rounds);
    figures.gbps = yb_bench_median(row->gbps, rounds);
    figures.ops_per_s = yb_bench_median(row->ops_per_s, rounds);
    figures.p50_us = yb_bench_median(row->p50_us, rounds);
    figures.p99_us = yb_bench_median(row->p99_us, rounds);
    figures.cpu_s_per_gb = yb_bench_median(row->cpu_s_per_gb, rounds);
    figures.cpu_us_per_op = yb_bench_median(row->cpu_us_per_op, rounds);
    figures.node_us_per_op = yb_bench_median(row->node_us_per_op, rounds);
    figures.ceiling = yb_bench_median(row->ceiling, rounds);
    return figures;
}

static const char *
op_of(const struct row *row)
{
    return op_names[row->flow.op];
}

static const char *
path_of(const struct row *row)
{
    return row->local ? "shm" : "tcp";
}

/* Who checks the bytes of every value, beside this bench those of the last batch. */
static const char *
integrity_of(const struct bench *bench)
{
    return bench->cli->config.node_verify ? "node" : "none";
}

static json_t *
row_json(const struct bench *bench, struct row *row)
{
    struct figures figures = figures_of(row, bench->rounds);
    json_t *item =
        json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "path",
                  path_of(row), "op", op_of(row), "size", (json_int_t)row->flow.size, "fragments",
                  (int)row->flow.fragments, "streams", 1, "batch", (int)row->flow.batch, "gbps",
                  figures.gbps, "ops_per_s", figures.ops_per_s, "ratio", figures.ratio, "p50_us",
                  figures.p50_us, "p99_us", figures.p99_us, "cpu_s_per_gb", figures.cpu_s_per_gb,
                  "cpu_us_per_op", figures.cpu_us_per_op, "node_us_per_op", figures.node_us_per_op);

    (void)json_object_set_new(item,
                              row->against == AGAINST_PING_BUSY ? "ceiling_us" : "ceiling_gbps",
                              json_real(figures.ceiling));
    (void)json_object_set_new(item, "ceiling", json_string(row->note));
    (void)json_object_set_new(item, "integrity", json_string(integrity_of(bench)));
    (void)json_object_set_new(item, "memory", json_string(bench->device ? "device" : "ordinary"));
    (void)json_object_set_new(item, "waits", json_true());
    return item;
}

static int
print_json(struct bench *bench)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < bench->row_count; i++) {
        (void)json_array_append_new(array, row_json(bench, &bench->rows[i]));
    }
    return yb_output_json(bench->cli->out, json_pack("{s:s, s:I, s:o}", "bench", "store", "rounds",
                                                     (json_int_t)bench->rounds, "rows", array)) ==
                   YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

/* Write a number into a cell, which stays empty where there is none. */
static void
show(char *cell, bool known, int digits, double number, const char *unit)
{
    cell[0] = '\0';
    if (known) {
        (void)snprintf(cell, CELL_BYTES, "%.*f%s", digits, number, unit);
    }
}

static bool
add_cells(struct yb_output_table *table, const struct bench *bench, struct row *row)
{
    struct figures figures = figures_of(row, bench->rounds);
    bool held = row->against != AGAINST_NOTHING;
    bool latency = row->against == AGAINST_PING_BUSY;
    char cells[11][CELL_BYTES];
    const char *list[15] = {
        path_of(row), op_of(row), cells[0], cells[1], cells[2], cells[3],  cells[4],
        cells[5],     cells[6],   cells[7], cells[8], cells[9], cells[10], integrity_of(bench),
        row->note};

    (void)snprintf(cells[0], sizeof(cells[0]), "%llu", (unsigned long long)row->flow.size);
    (void)snprintf(cells[1], sizeof(cells[1]), "%u", row->flow.fragments);
    (void)snprintf(cells[2], sizeof(cells[2]), "%u", row->flow.batch);
    show(cells[3], figures.gbps > 0, 2, figures.gbps, "");
    show(cells[4], true, 0, figures.ops_per_s, "");
    show(cells[5], held, latency ? 1 : 2, figures.ceiling, latency ? " us" : "");
    show(cells[6], held, 2, figures.ratio, "");
    show(cells[7], true, 1, figures.p50_us, "");
    show(cells[8], true, 1, figures.p99_us, "");
    show(cells[9], true, 2, figures.cpu_us_per_op, "");
    show(cells[10], true, 2, figures.node_us_per_op, "");
    return yb_output_table_add(table, list) == YB_OK;
}

static int
print_table(struct bench *bench)
{
    static const char *const columns[] = {"path",       "op",        "size",        "fragments",
                                          "batch",      "GB/s",      "ops/s",       "ceiling",
                                          "ratio",      "p50 us",    "p99 us",      "cpu us/op",
                                          "node us/op", "integrity", "held against"};
    struct yb_output_table *table = NULL;
    bool ok = yb_output_table_create(columns, 15, &table) == YB_OK;

    for (uint32_t i = 0; ok && i < bench->row_count; i++) {
        ok = add_cells(table, bench, &bench->rows[i]);
    }
    if (ok) {
        yb_output_table_print(table, bench->cli->out, bench->cli->terminal);
        fprintf(
            bench->cli->out,
            "medians of %llu interleaved rounds; one batch after the other, by one thread that "
            "waits; every run checked the bytes of its last batch; ratio: ours / ceiling of the "
            "same round, smaller is better for latencies; cpu: of both processes, node: of the "
            "store's, the directory's thread included: a core of it serves 1 / that\n",
            (unsigned long long)bench->rounds);
    }
    yb_output_table_destroy(&table);
    return ok ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_bench_store(struct yb_cli *cli)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    int result = YB_CLI_EXIT_FAILED;

    if (bench == NULL) {
        fprintf(cli->err, "yuebing bench store: no memory\n");
        return YB_CLI_EXIT_FAILED;
    }
    bench->cli = cli;
    if (!read_plan(bench)) {
        result = YB_CLI_EXIT_REFUSED;
    } else if (check_device(bench) && open_all(bench) && check_path(bench)) {
        if (!make_rows(bench)) {
            fprintf(cli->err, "yuebing bench store: too many rows; give fewer sizes or batches\n");
            result = YB_CLI_EXIT_REFUSED;
        } else if (measure_all(bench)) {
            result = cli->json ? print_json(bench) : print_table(bench);
        }
    }
    yb_bench_store_close(&bench->stores[0]);
    yb_bench_store_close(&bench->stores[1]);
    yb_bench_pair_close(&bench->pair);
    free(bench);
    return result;
}
