/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_transfer.h -- which rows `yuebing bench transfer` measures.
 *
 * Threads   One, beside those of the engines.
 */
#ifndef YB_CLI_BENCH_TRANSFER_H
#define YB_CLI_BENCH_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/bench.h"
#include "cli/bench_flow.h"
#include "cli/cli.h"

#define YB_BENCH_ROWS_MAX   256u
#define YB_BENCH_PAIRS_MAX  12u
#define YB_BENCH_ROUNDS_MAX 99u

/* What a row is held against. */
enum yb_bench_against {
    YB_BENCH_AGAINST_SOCKETS,    /* Bare sockets, same size and streams. */
    YB_BENCH_AGAINST_COPY,       /* Memory copy on one core, same size. */
    YB_BENCH_AGAINST_PROCESS_VM, /* One process_vm_readv for the same list. */
    YB_BENCH_AGAINST_ROW,        /* Another row of ours, in the same round. */
    YB_BENCH_AGAINST_PING,       /* A message there and back, sleeping: microseconds. */
    YB_BENCH_AGAINST_PING_BUSY,  /* The same, polling as long as the engine does. */
    YB_BENCH_AGAINST_NOTHING,    /* It is a ceiling itself. */
};

enum yb_bench_what {
    YB_BENCH_FLOW,            /* Ours. */
    YB_BENCH_RAW_COPY,        /* `streams` threads. */
    YB_BENCH_RAW_COPY_STREAM, /* Past the caches. */
    YB_BENCH_RAW_VM,
    YB_BENCH_RAW_PING,
    YB_BENCH_RAW_PING_BUSY,
};

struct yb_bench_row {
    const char *path; /* As asked for. */
    const char *op;
    enum yb_bench_what what;
    enum yb_bench_against against;
    const char *note; /* What the ceiling is, in words. */
    uint32_t base;    /* AGAINST_ROW: which. */
    uint32_t pair;
    uint32_t streams;
    struct yb_bench_flow_options flow;
    uint32_t paths; /* That carried it. */
    double gbps[YB_BENCH_ROUNDS_MAX];
    double ceiling[YB_BENCH_ROUNDS_MAX];
    double p50_us[YB_BENCH_ROUNDS_MAX];
    double p99_us[YB_BENCH_ROUNDS_MAX];
    double cpu_s_per_gb[YB_BENCH_ROUNDS_MAX];
};

/* What the command line asks for. */
struct yb_bench_plan {
    uint32_t paths; /* YB_TRANSFER_PATH_ bits; ALL: auto. */
    const char *path_name;
    uint32_t size_count;
    uint64_t sizes[YB_BENCH_LIST_MAX];
    uint32_t fragment_count;
    uint64_t fragments[YB_BENCH_LIST_MAX];
    uint32_t stream_count;
    uint64_t streams[YB_BENCH_LIST_MAX];
    bool reads;
    bool writes;
    bool tls_only;
    bool device;
    uint64_t rounds;
    uint64_t run_ns;
    const char *congestion;
};

struct yb_bench_table {
    struct yb_bench_plan plan;
    uint32_t pair_count;
    struct yb_bench_pair pairs[YB_BENCH_PAIRS_MAX];
    uint32_t row_count;
    struct yb_bench_row rows[YB_BENCH_ROWS_MAX];
};

/* Read the options. Returns false, having said on cli->err which of them is wrong. */
bool yb_bench_plan_read(const struct yb_cli *cli, struct yb_bench_plan *plan_out);

/* Make rows, and pairs that are not open yet, of the plan. Pure. Returns false if it asks for more
 * than there is room for. */
bool yb_bench_rows_make(struct yb_bench_table *table);

#endif /* YB_CLI_BENCH_TRANSFER_H */
