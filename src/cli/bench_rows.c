/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of `yuebing bench transfer`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "cli/bench_transfer.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)

#define SIZE_MAX_BYTES (64 * MIB)
#define OBJECT_BYTES   (2 * MIB) /* What is cut into fragments. */
#define MANY_ITEMS     10000u
#define MANY_BYTES     (16 * KIB)
#define SMALL_BYTES    64u

/* Bytes under way, so that the path never runs dry. */
#define FLYING_BYTES (16 * MIB)

/* ---- the command line ---------------------------------------------------------------------- */

static bool
read_words(const struct yb_cli *cli, struct yb_bench_plan *plan)
{
    const char *path = yb_cli_option(cli, "path");
    const char *op = yb_cli_option(cli, "op");

    path = path != NULL ? path : "auto";
    op = op != NULL ? op : "both";
    if (strcmp(path, "tcp") == 0) {
        plan->paths = YB_TRANSFER_PATH_TCP;
    } else if (strcmp(path, "shm") == 0) {
        plan->paths = YB_TRANSFER_PATH_SHM;
    } else if (strcmp(path, "auto") == 0) {
        plan->paths = YB_TRANSFER_PATH_ALL;
    } else {
        fprintf(cli->err, "yuebing bench transfer: --path is tcp, shm or auto; not `%s`\n", path);
        return false;
    }
    plan->path_name = path;
    plan->reads = strcmp(op, "read") == 0 || strcmp(op, "both") == 0;
    plan->writes = strcmp(op, "write") == 0 || strcmp(op, "both") == 0;
    if (!plan->reads && !plan->writes) {
        fprintf(cli->err, "yuebing bench transfer: --op is read, write or both; not `%s`\n", op);
        return false;
    }
    plan->tls_only = cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON;
    plan->device = yb_cli_option(cli, "device") != NULL;
    if (plan->device && plan->paths == YB_TRANSFER_PATH_SHM) {
        fprintf(cli->err,
                "yuebing bench transfer: --device goes over tcp, through page-locked host "
                "memory at both ends; shm serves host memory\n");
        return false;
    }
    if (plan->tls_only && plan->paths == YB_TRANSFER_PATH_SHM) {
        fprintf(cli->err,
                "yuebing bench transfer: --tls on is for tcp; shm has nothing to encrypt\n");
        return false;
    }
    return true;
}

bool
yb_bench_plan_read(const struct yb_cli *cli, struct yb_bench_plan *plan_out)
{
    struct yb_bench_plan plan = {
        .size_count = 4,
        .sizes = {4 * KIB, 64 * KIB, MIB, 16 * MIB},
        .fragment_count = 3,
        .fragments = {1, 64, 512},
        .stream_count = 2,
        .streams = {1, 4},
        .rounds = 5,
        .congestion =
            strcmp(cli->config.net_congestion, "system") == 0 ? NULL : cli->config.net_congestion,
    };
    uint64_t run_ms = 300;

    if (!read_words(cli, &plan) ||
        !yb_bench_list_read(cli, "sizes", SIZE_MAX_BYTES, plan.sizes, &plan.size_count) ||
        !yb_bench_list_read(cli, "fragments", 512, plan.fragments, &plan.fragment_count) ||
        !yb_bench_list_read(cli, "streams", YB_BENCH_STREAMS_MAX, plan.streams,
                            &plan.stream_count) ||
        !yb_cli_option_number(cli, "rounds", 1, YB_BENCH_ROUNDS_MAX, &plan.rounds) ||
        !yb_cli_option_number(cli, "run-ms", 10, 60000, &run_ms)) {
        return false;
    }
    for (uint32_t i = 0; i < plan.size_count; i++) {
        if (plan.sizes[i] % 8 != 0) {
            fprintf(cli->err, "yuebing bench transfer: --sizes are multiples of 8; not %llu\n",
                    (unsigned long long)plan.sizes[i]);
            return false;
        }
    }
    plan.run_ns = run_ms * YB_NS_PER_MS;
    *plan_out = plan;
    return true;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Return the pair with these properties; `pair_count` grows if it is new. YB_BENCH_PAIRS_MAX: no
 * room. */
static uint32_t
pair_of(struct yb_bench_table *table, bool shared, bool tls, uint32_t streams)
{
    struct yb_bench_target_options options = {
        .shared = shared,
        .device = table->plan.device,
        .tls = tls,
        .streams = streams,
        .paths = table->plan.paths,
        .congestion = table->plan.congestion,
    };

    for (uint32_t i = 0; i < table->pair_count; i++) {
        const struct yb_bench_target_options *have = &table->pairs[i].options;

        if (have->shared == shared && have->tls == tls && have->streams == streams) {
            return i;
        }
    }
    if (table->pair_count == YB_BENCH_PAIRS_MAX) {
        return YB_BENCH_PAIRS_MAX;
    }
    table->pairs[table->pair_count].options = options;
    return table->pair_count++;
}

/* Return a new row; NULL: no room, or no pair. */
static struct yb_bench_row *
add_row(struct yb_bench_table *table, uint32_t pair, uint32_t op, uint64_t size, uint32_t fragments)
{
    struct yb_bench_row *row = &table->rows[table->row_count];
    uint64_t depth = FLYING_BYTES / size;

    if (table->row_count == YB_BENCH_ROWS_MAX || pair == YB_BENCH_PAIRS_MAX) {
        return NULL;
    }
    table->row_count++;
    row->path = table->plan.path_name;
    row->op = op == YB_TRANSFER_READ ? "read" : "write";
    row->pair = pair;
    row->streams = table->pairs[pair].options.streams;
    depth = depth < 2 ? 2 : depth;
    row->flow = (struct yb_bench_flow_options){
        .op = op,
        .size = size,
        .fragments = fragments,
        .depth = depth < 64 ? (uint32_t)depth : 64,
        .work_class = YB_CLASS_THROUGHPUT,
        .run_ns = table->plan.run_ns,
    };
    return row;
}

/* What the bytes of a pair's rows are limited by. */
static void
hold_against_machine(const struct yb_bench_table *table, struct yb_bench_row *row)
{
    const struct yb_bench_target_options *options = &table->pairs[row->pair].options;

    if (table->plan.paths == YB_TRANSFER_PATH_TCP || options->tls || options->device) {
        row->against = YB_BENCH_AGAINST_SOCKETS;
        row->note = options->tls ? "bare sockets without TLS, same size and streams"
                                 : "bare sockets, same size and streams";
    } else if (options->shared) {
        row->against = YB_BENCH_AGAINST_COPY;
        row->note = "memory copy on one core, same size";
    } else {
        row->against = YB_BENCH_AGAINST_PROCESS_VM;
        row->note = "one process_vm_readv for the same fragments";
    }
}

static bool
add_machine_row(struct yb_bench_table *table, uint32_t pair, uint32_t op, uint64_t size,
                uint32_t fragments)
{
    struct yb_bench_row *row = add_row(table, pair, op, size, fragments);

    if (row != NULL) {
        hold_against_machine(table, row);
    }
    return row != NULL;
}

/* An object cut into fragments, beside the same object in one piece. */
static bool
add_fragments(struct yb_bench_table *table, uint32_t pair, uint32_t op)
{
    uint32_t base = table->row_count;

    if (table->plan.fragment_count == 1 && table->plan.fragments[0] == 1) {
        return true;
    }
    if (!add_machine_row(table, pair, op, OBJECT_BYTES, 1)) {
        return false;
    }
    for (uint32_t i = 0; i < table->plan.fragment_count; i++) {
        uint32_t fragments = (uint32_t)table->plan.fragments[i];
        struct yb_bench_row *row;

        if (fragments == 1 || OBJECT_BYTES % fragments != 0 || OBJECT_BYTES / fragments % 8 != 0) {
            continue;
        }
        row = add_row(table, pair, op, OBJECT_BYTES, fragments);
        if (row == NULL) {
            return false;
        }
        row->against = YB_BENCH_AGAINST_ROW;
        row->base = base;
        row->note = "the same object in one piece";
    }
    return true;
}

/* Many small items in one batch, beside objects of 1 MiB. */
static bool
add_many(struct yb_bench_table *table, uint32_t pair, uint32_t op)
{
    uint32_t base = table->row_count;
    struct yb_bench_row *row;

    if (!add_machine_row(table, pair, op, MIB, 1)) {
        return false;
    }
    row = add_row(table, pair, op, MANY_ITEMS * MANY_BYTES, MANY_ITEMS);
    if (row == NULL) {
        return false;
    }
    row->flow.mode = YB_BENCH_FLOW_WAITING;
    row->flow.depth = 1;
    row->against = YB_BENCH_AGAINST_ROW;
    row->base = base;
    row->note = "objects of 1 MiB";
    return true;
}

/* One small operation at a time: from callback to callback, and by a caller that waits. */
static bool
add_small(struct yb_bench_table *table, uint32_t pair, uint32_t op)
{
    static const enum yb_bench_flow_mode modes[] = {YB_BENCH_FLOW_DEPTH, YB_BENCH_FLOW_WAITING};

    for (uint32_t i = 0; i < 2; i++) {
        struct yb_bench_row *row = add_row(table, pair, op, SMALL_BYTES, 1);

        if (row == NULL) {
            return false;
        }
        row->flow.mode = modes[i];
        row->flow.depth = 1;
        row->flow.work_class = YB_CLASS_FIRST_TOKEN;
        row->against = i == 0 ? YB_BENCH_AGAINST_PING_BUSY : YB_BENCH_AGAINST_PING;
        row->note = i == 0 ? "bare ping-pong that polls 50 us, then sleeps; ours from callbacks"
                           : "bare ping-pong that sleeps in epoll; ours submits and waits";
    }
    return true;
}

/* The ceilings by themselves. */
static bool
add_raw(struct yb_bench_table *table, enum yb_bench_what what, const char *op, uint64_t size,
        uint32_t fragments, uint32_t threads)
{
    struct yb_bench_row *row = add_row(table, 0, YB_TRANSFER_READ, size, fragments);

    if (row == NULL) {
        return false;
    }
    row->path = "bare";
    row->op = op;
    row->what = what;
    row->against = YB_BENCH_AGAINST_NOTHING;
    row->note = "";
    row->streams = threads;
    return true;
}

static bool
add_raws(struct yb_bench_table *table)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool ok = add_raw(table, YB_BENCH_RAW_COPY, "copy", MIB, 1, 1) &&
              add_raw(table, YB_BENCH_RAW_COPY, "copy", MIB, 1, cores < 1 ? 1 : (uint32_t)cores) &&
              add_raw(table, YB_BENCH_RAW_COPY_STREAM, "copy, streaming", MIB, 1, 1) &&
              add_raw(table, YB_BENCH_RAW_PING, "ping-pong", SMALL_BYTES, 1, 1) &&
              add_raw(table, YB_BENCH_RAW_PING_BUSY, "ping-pong, polling", SMALL_BYTES, 1, 1);

    for (uint32_t i = 0; ok && i < table->plan.fragment_count; i++) {
        uint32_t fragments = (uint32_t)table->plan.fragments[i];

        if (OBJECT_BYTES % fragments == 0) {
            ok = add_raw(table, YB_BENCH_RAW_VM, "process_vm", OBJECT_BYTES, fragments, 1);
        }
    }
    return ok;
}

/* All rows of one direction and one kind of memory. */
static bool
add_direction(struct yb_bench_table *table, uint32_t op, bool shared)
{
    const struct yb_bench_plan *plan = &table->plan;
    bool tls = plan->tls_only;
    uint32_t pair = 0;
    bool ok = true;

    for (uint32_t k = 0; ok && k < plan->stream_count; k++) {
        pair = pair_of(table, shared, tls, (uint32_t)plan->streams[k]);
        for (uint32_t i = 0; ok && i < plan->size_count; i++) {
            ok = add_machine_row(table, pair, op, plan->sizes[i], 1);
        }
    }
    ok = ok && add_fragments(table, pair, op);
    if (ok && !tls) {
        ok = add_many(table, pair, op) && add_small(table, pair, op);
    }
    if (ok && !tls && plan->paths == YB_TRANSFER_PATH_TCP) {
        pair = pair_of(table, false, true, (uint32_t)plan->streams[plan->stream_count - 1]);
        ok = add_machine_row(table, pair, op, MIB, 1);
    }
    return ok;
}

bool
yb_bench_rows_make(struct yb_bench_table *table)
{
    const struct yb_bench_plan *plan = &table->plan;
    /* Where shared memory may be used, both kinds of memory are of interest. */
    int kinds =
        (plan->paths & YB_TRANSFER_PATH_SHM) != 0 && !plan->tls_only && !plan->device ? 2 : 1;
    bool ok = true;

    for (int shared = kinds - 1; shared >= 0; shared--) {
        ok = ok && (!plan->writes || add_direction(table, YB_TRANSFER_WRITE, shared != 0)) &&
             (!plan->reads || add_direction(table, YB_TRANSFER_READ, shared != 0));
    }
    return ok && add_raws(table);
}
